//! Rules about tests that don't run.

use crate::{Finding, Repository};

const LIST: &str = "tests/skips.txt";

/// Each line of the list of skips has three columns, and names tests that exist.
pub(crate) fn listed(repository: &Repository) -> Vec<Finding> {
    let Some(list) = repository.file(LIST) else { return Vec::new() };
    let mut findings = Vec::new();
    for (index, line) in
        list.text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        if columns.len() != 3 || columns.contains(&"") {
            findings.push(
                list.finding(index + 1, "write: test | what may be lacking | why it needs that"),
            );
        } else if !exists(repository, columns[0]) {
            let message = format!(
                "there is no test `{}`; remove the line, or write its new name",
                columns[0]
            );
            findings.push(list.finding(index + 1, message));
        }
    }
    findings
}

/// Whether something matches `package/binary::test` (the test's name may begin with `*`) or
/// `script: part`.
fn exists(repository: &Repository, name: &str) -> bool {
    let Some((binary, test)) = name.rsplit_once("::") else {
        return repository.file(name.split(": ").next().unwrap_or(name)).is_some();
    };
    let package = binary.split('/').next().unwrap_or(binary);
    let folder = package.strip_prefix("switchback-").unwrap_or(package);
    let directories = ["crates", "lab"].map(|above| format!("{above}/{folder}/"));
    let is_of = |path: &str| directories.iter().any(|directory| path.starts_with(directory));
    let mut sources = repository.with(&["rs"]).filter(|file| is_of(&file.path));
    let function = match test.strip_prefix('*') {
        Some(end) => format!("{end}()"),
        None => format!("fn {test}()"),
    };
    sources.any(|file| {
        test == "*"
            || file.text.lines().any(|line| line.contains("fn ") && line.contains(&function))
    })
}

/// A test that `cargo test` ignores is run by another one, which its reason names.
pub(crate) fn ignored(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(&["rs"]) {
        for (index, line) in
            file.text.lines().enumerate().filter(|(_, line)| line.trim().starts_with("#[ignore"))
        {
            let by = line.split_once("\"run by ").and_then(|(_, name)| name.split('"').next());
            if !by.is_some_and(|name| file.text.contains(&format!("fn {name}()"))) {
                let message = "an ignored test tests nothing: let another one run it \
                               (`#[ignore = \"run by NAME\"]`), or return after \
                               switchback_testing::skip";
                findings.push(file.finding(index + 1, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_name_tests() {
        let repository = Repository::of(&[
            (
                LIST,
                "# comment\nswitchback-a/b::c | x | why\nswitchback-a/*::*c | x | why\n\
                 t/s.sh: part | x | why\n\
                 switchback-a/b::gone | x | why\nt/gone.sh | x | why\nt/s.sh | x\n",
            ),
            ("crates/a/tests/b.rs", "#[test]\nfn c() {}\n"),
            ("t/s.sh", ""),
        ]);
        let lines: Vec<_> = listed(&repository).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [5, 6, 7]);
    }

    #[test]
    fn ignored_tests_are_run_by_another() {
        let text = "#[ignore]\n#[ignore = \"slow\"]\n#[ignore = \"run by gone\"]\n#[ignore = \"run by all\"]\nfn all() {}\n";
        let repository = Repository::of(&[("crates/a/tests/b.rs", text)]);
        let lines: Vec<_> = ignored(&repository).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3]);
    }
}
