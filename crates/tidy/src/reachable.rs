//! Files that nothing leads to.

use crate::{File, Finding, Repository};
use std::collections::BTreeSet;

/// Rust files that no `mod` names: they look like code but are never compiled.
pub(crate) fn dead_rust_files(repository: &Repository) -> Vec<Finding> {
    let mut reached = BTreeSet::new();
    for file in repository.with(&["rs"]).filter(|file| is_root(&file.path)) {
        follow(repository, file, &mut reached);
    }
    let dead = repository
        .with(&["rs"])
        .filter(|file| file.is_of_a_crate() && !reached.contains(&file.path));
    dead.map(|file| {
        file.finding(0, "no `mod` leads here, so it is never compiled; remove it or name it")
    })
    .collect()
}

/// What cargo compiles by itself.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["crates" | "lab", _, "build.rs"]
            | ["crates" | "lab", _, "src", "lib.rs" | "main.rs"]
            | ["crates" | "lab", _, "src", "bin", ..]
            | ["crates" | "lab", _, "tests" | "benches" | "examples" | "fuzz", _]
            | ["crates" | "lab", _, "tests" | "benches" | "examples", _, "main.rs"]
            | ["crates" | "lab", _, "fuzz", "fuzz_targets" | "src", _]
    )
}

fn follow(repository: &Repository, file: &File, reached: &mut BTreeSet<String>) {
    if !reached.insert(file.path.clone()) {
        return;
    }
    let (directory, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let own = match name {
        "lib.rs" | "main.rs" | "mod.rs" | "build.rs" => directory.to_owned(),
        _ if is_root(&file.path) => directory.to_owned(),
        _ => format!("{directory}/{}", name.trim_end_matches(".rs")),
    };
    let mut path_of_next = None;
    for line in file.text.lines().map(str::trim) {
        if let Some(path) =
            line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]"))
        {
            path_of_next = Some(path.to_owned());
            continue;
        }
        let Some(module) = module_of(line) else { continue };
        let candidates = match path_of_next.take() {
            Some(path) => vec![normal(&format!("{directory}/{path}"))],
            None => vec![format!("{own}/{module}.rs"), format!("{own}/{module}/mod.rs")],
        };
        for found in candidates.iter().filter_map(|path| repository.file(path)) {
            follow(repository, found, reached);
        }
    }
}

/// `name` of `pub(crate) mod name;`.
fn module_of(line: &str) -> Option<&str> {
    let declaration = line.strip_suffix(';')?;
    let (visibility, name) = declaration.rsplit_once("mod ")?;
    let is_visibility =
        visibility.is_empty() || visibility.starts_with("pub") || visibility.starts_with("#[");
    (is_visibility && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'))
        .then_some(name)
}

/// Without `..`.
pub(crate) fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Headers that nothing includes.
pub(crate) fn dead_headers(repository: &Repository) -> Vec<Finding> {
    let sources: Vec<&File> = repository.with(&["c", "h", "rs"]).collect();
    let mut findings = Vec::new();
    for header in repository.with(&["h"]) {
        let name = header.name();
        let includes = |file: &&&File| {
            let mut lines = file
                .text
                .lines()
                .filter(|line| line.contains("#include") || line.contains("include_str!"));
            file.path != header.path
                && lines.any(|line| {
                    line.contains(&format!("{name}\"")) || line.contains(&format!("/{name}>"))
                })
        };
        if !sources.iter().any(|file| includes(&file)) {
            findings.push(header.finding(0, "no file includes it; remove it or use it"));
        }
    }
    findings
}

/// Documents that the README doesn't lead to, by however many steps.
pub(crate) fn unlinked_documents(repository: &Repository) -> Vec<Finding> {
    let Some(readme) = repository.file("README.md") else { return Vec::new() };
    let mut reached = BTreeSet::new();
    let mut open = vec![readme];
    while let Some(document) = open.pop() {
        if !reached.insert(document.path.clone()) {
            continue;
        }
        let directory = document.path.rsplit_once('/').map_or("", |(directory, _)| directory);
        for piece in document.text.split("](").skip(1) {
            let target = piece.split([')', '#', ' ']).next().unwrap_or_default();
            open.extend(
                repository
                    .file(&normal(&format!("{directory}/{target}")))
                    .filter(|file| file.is("md")),
            );
        }
    }
    let lost = repository.with(&["md"]).filter(|file| !reached.contains(&file.path));
    lost.map(|file| file.finding(0, "no link leads here from README.md: it will not be read"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.path.as_str()).collect()
    }

    #[test]
    fn dead_files_are_found() {
        let repository = Repository::of(&[
            ("crates/a/src/lib.rs", "mod b;\npub(crate) mod c;\n#[path = \"../odd.rs\"]\nmod d;\n"),
            ("crates/a/src/b.rs", "#[cfg(test)]\nmod tests;\n"),
            ("crates/a/src/b/tests.rs", ""),
            ("crates/a/src/c/mod.rs", "mod e;"),
            ("crates/a/src/c/e.rs", ""),
            ("crates/a/odd.rs", ""),
            ("crates/a/src/dead.rs", ""),
            ("crates/a/tests/whole.rs", "mod common;"),
            ("crates/a/tests/common/mod.rs", ""),
        ]);
        assert_eq!(paths(&dead_rust_files(&repository)), ["crates/a/src/dead.rs"]);
    }

    #[test]
    fn dead_headers_and_documents_are_found() {
        let repository = Repository::of(&[
            ("README.md", "[the protocol](docs/protocol.md#packets)"),
            ("docs/protocol.md", "[more](more.md), [up](../examples/README.md)"),
            ("docs/more.md", ""),
            ("docs/lost.md", "[itself](lost.md)"),
            ("examples/README.md", ""),
            ("datapath/a.h", "#include \"b.h\""),
            ("datapath/b.h", ""),
            ("datapath/n.c", "#include \"a.h\""),
            ("datapath/dead.h", ""),
        ]);
        assert_eq!(paths(&dead_headers(&repository)), ["datapath/dead.h"]);
        assert_eq!(paths(&unlinked_documents(&repository)), ["docs/lost.md"]);
    }
}
