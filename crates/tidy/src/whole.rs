//! Rules about the repository as a whole.

use crate::{File, Finding, Repository};

/// The license of everything that may be loaded into a kernel.
const DATAPATH_LICENSE: &str = "SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0";
/// What compilers, editors and package managers leave behind.
const GENERATED: &[&str] =
    &["o", "a", "so", "class", "jar", "pyc", "rlib", "rmeta", "orig", "rej", "swp", "log"];
const BYTES_MAX: usize = 1 << 20;

/// Names under a section of a TOML file, `name = ...`, with their lines.
fn names_in<'t>(text: &'t str, section: &str) -> Vec<(usize, &'t str, &'t str)> {
    let mut inside = false;
    let mut names = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim() == section;
        } else if let Some((name, value)) =
            line.split_once('=').filter(|_| inside && !line.starts_with('#'))
        {
            names.push((index + 1, name.trim(), value.trim()));
        }
    }
    names
}

/// Where the reasons for dependencies are.
const BOOK: &str = "docs/understand/dependencies.md";
/// Its sections. A dependency stands in the first that one of its users belongs to.
const SECTIONS: [&str; 3] = ["## In the product", "## In the laboratory", "## In tests"];
/// A crate that only tests use.
const FOR_TESTS: &str = "crates/testing/";

/// The section that a dependency belongs to by the manifests; `None` if no crate uses it.
fn section_by_use(repository: &Repository, name: &str) -> Option<&'static str> {
    let word = format!("{name} = ");
    let is_manifest = |file: &&File| file.name() == "Cargo.toml" && file.path.contains('/');
    let mut sections = Vec::new();
    for file in repository.files.iter().filter(is_manifest) {
        let mut is_for_tests = false;
        for line in file.text.lines() {
            if line.starts_with('[') {
                is_for_tests = line.contains("dev-") || file.path.starts_with(FOR_TESTS);
            } else if line.starts_with(&word) {
                sections.push(match is_for_tests {
                    true => 2,
                    false => usize::from(file.path.starts_with("lab/")),
                });
            }
        }
    }
    sections.into_iter().min().map(|section| SECTIONS[section])
}

/// The section of the book with a row for it.
fn section_of_row(book: &str, name: &str) -> Option<&'static str> {
    let mut inside = None;
    for line in book.lines() {
        if line.starts_with("## ") {
            inside = SECTIONS.into_iter().find(|section| line == *section);
        }
        let names = line.strip_prefix("| ").and_then(|row| row.split(" | ").next());
        if inside.is_some() && names.is_some_and(|names| names.contains(&format!("`{name}`"))) {
            return inside;
        }
    }
    None
}

/// Every dependency is there for a reason, written down where its users are, and used.
pub(crate) fn dependencies(repository: &Repository) -> Vec<Finding> {
    let Some(manifest) = repository.file("Cargo.toml") else { return Vec::new() };
    let book = repository.file(BOOK).map_or("", |file| file.text.as_str());
    let mut findings = Vec::new();
    for (line, name, value) in names_in(&manifest.text, "[workspace.dependencies]") {
        if value.contains("path =") {
            continue;
        }
        let used = section_by_use(repository, name);
        let message = match (used, section_of_row(book, name)) {
            (None, _) => format!("no crate uses `{name}`; remove it"),
            (Some(used), None) => format!(
                "{BOOK} doesn't say under \"{used}\" what `{name}` is for, and why it and no other"
            ),
            (Some(used), Some(said)) if used != said => {
                format!("{BOOK} has `{name}` under \"{said}\"; by the manifests it is \"{used}\"")
            }
            _ => continue,
        };
        findings.push(manifest.finding(line, message));
    }
    findings
}

/// Every crate has the workspace's lints.
pub(crate) fn lints(repository: &Repository) -> Vec<Finding> {
    let is_crate = |file: &File| file.is_of_a_crate() && file.name() == "Cargo.toml";
    let without = repository
        .files
        .iter()
        .filter(|file| is_crate(file) && !file.text.contains("[lints]\nworkspace = true"));
    without
        .map(|file| file.finding(0, "add `[lints]` `workspace = true`: the same rules for all"))
        .collect()
}

/// An example in the documentation of a crate that isn't searched for any would never be compiled.
pub(crate) fn examples(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_skipped = |file: &&File| file.text.contains("doctest = false");
    for manifest in repository.with(&["toml"]).filter(is_skipped) {
        let Some(folder) = manifest.path.strip_suffix("Cargo.toml") else { continue };
        let sources = format!("{folder}src/");
        for file in repository.with(&["rs"]).filter(|file| file.path.starts_with(&sources)) {
            let mut is_inside = false;
            for (index, line) in file.text.lines().enumerate() {
                let line = line.trim_start();
                let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
                let fence = comment.and_then(|text| text.trim().strip_prefix("```"));
                let Some(language) = fence else { continue };
                if !is_inside && !["text", "sh", "toml", "c"].contains(&language) {
                    let message =
                        format!("is never compiled: {} has doctest = false", manifest.path);
                    findings.push(file.finding(index + 1, message));
                }
                is_inside = !is_inside;
            }
        }
    }
    findings
}

/// Where files are any bytes: what fuzzing begins with, which scripts/fuzz.sh keeps few and small,
/// what older versions wrote, which this one can't, and pictures of the console, which
/// tests/e2e/console.py takes.
const ANY_BYTES: [&str; 3] = ["docs/run/console/", "fuzz/corpus/", "tests/fixtures/"];

/// Binaries, leftovers of tools, and what is too large to have been written.
pub(crate) fn generated(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &repository.files {
        let extension = file.name().rsplit_once('.').map_or("", |(_, extension)| extension);
        let is_any = ANY_BYTES.iter().any(|directory| file.path.starts_with(directory));
        if !is_any && (file.is_binary || GENERATED.contains(&extension)) {
            findings.push(
                file.finding(0, "a generated or binary file; make it in the build, or in the test"),
            );
        } else if file.bytes > BYTES_MAX {
            findings.push(
                file.finding(0, format!("{} bytes; a repository is cloned whole", file.bytes)),
            );
        }
    }
    findings
}

/// The kernel takes the datapath only under its license.
pub(crate) fn licenses(repository: &Repository) -> Vec<Finding> {
    let sources = repository.with(&["c", "h"]).filter(|file| file.path.starts_with("datapath/"));
    let without = sources
        .filter(|file| !file.text.lines().next().unwrap_or_default().contains(DATAPATH_LICENSE));
    without
        .map(|file| file.finding(1, format!("the first line is `// {DATAPATH_LICENSE}`")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_compiled() {
        let source = "//! ```text\n//! a\n//! ```\n/// ```\n/// b();\n/// ```\n";
        let lines = |manifest| {
            let files = [("crates/a/Cargo.toml", manifest), ("crates/a/src/lib.rs", source)];
            let findings = examples(&Repository::of(&files));
            findings.iter().map(|finding| finding.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("[lib]\ndoctest = false\n"), [4]);
        assert_eq!(lines("[lib]\n"), [] as [usize; 0]);
    }

    #[test]
    fn dependencies_need_a_reason_and_a_user() {
        let repository = Repository::of(&[
            (
                "Cargo.toml",
                "[workspace.dependencies]\nown = { path = \"x\" }\nused = \"1\"\nlost = \"1\"\n[profile.release]\nx = 1\n",
            ),
            ("crates/a/Cargo.toml", "[dependencies]\nused = { workspace = true }\n"),
            (BOOK, "## In the product\n| `lost` | why |"),
        ]);
        let lines: Vec<_> = dependencies(&repository).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4]);
        assert_eq!(lints(&repository).len(), 1);
    }

    #[test]
    fn dependencies_stand_where_their_users_are() {
        let names = ["product", "lab", "tests", "testing", "wrong", "elsewhere"];
        let workspace: String = names.map(|name| format!("{name} = \"1\"\n")).concat();
        let manifest = format!("[workspace.dependencies]\n{workspace}");
        let used = |section: &str, names: &[&str]| {
            let lines: String =
                names.iter().map(|name| format!("{name} = {{ workspace = true }}\n")).collect();
            format!("[{section}]\n{lines}")
        };
        let (product, lab, dev, testing) = (
            used("dependencies", &["product"]) + &used("dev-dependencies", &["lab"]),
            used("dependencies", &["product", "lab", "wrong"]),
            used("dev-dependencies", &["product", "tests", "elsewhere"]),
            used("dependencies", &["testing"]),
        );
        let book = "## In the product\n| `product` | |\n| `wrong` | |\n## In the laboratory\n\
                    | `lab` | |\n\
                    ## In tests\n| `tests`, `testing` | `elsewhere` |\n## What was not taken\n\
                    | `elsewhere` | |\n";
        let repository = Repository::of(&[
            ("Cargo.toml", &manifest),
            ("crates/a/Cargo.toml", &product),
            ("lab/b/Cargo.toml", &lab),
            ("crates/c/Cargo.toml", &dev),
            ("crates/testing/Cargo.toml", &testing),
            (BOOK, book),
        ]);
        let lines: Vec<_> = dependencies(&repository).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [6, 7], "`wrong` and `elsewhere`");
    }

    #[test]
    fn what_a_program_wrote_is_found() {
        let license = format!("// {DATAPATH_LICENSE}\n");
        let repository = Repository::of(&[
            ("datapath/a.h", license.as_str()),
            ("datapath/b.h", "// Mine\n"),
            ("crates/x.o", ""),
            ("data.bin", "\0"),
            ("tests/fixtures/1/data.tar.xz", "\0"),
        ]);
        assert_eq!(licenses(&repository).len(), 1);
        assert_eq!(generated(&repository).len(), 2);
    }
}
