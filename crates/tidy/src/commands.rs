//! Commands in documents stand one a line: a program that wraps text runs them together, and what
//! followed a comment is then part of it.

use crate::{Finding, Repository};

/// What commands of the documents begin with, besides paths and settings (`NAME=value`).
const PROGRAMS: &[&str] = &[
    "cargo",
    "chgrp",
    "cp",
    "install",
    "make",
    "podman",
    "redis-cli",
    "sudo",
    "switchback",
    "systemctl",
    "timeout",
    "useradd",
];

/// Lines of a block of commands (one with a comment) that begin with no program, have a second
/// comment, or name their program again in the comment.
pub(crate) fn one_a_line(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(&["md"]) {
        let mut blocks: Vec<Vec<(usize, &str)>> = vec![Vec::new()];
        let mut is_fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            let is_fence = line.starts_with("```");
            is_fenced ^= is_fence;
            if !is_fence && (is_fenced || line.starts_with("    ")) {
                blocks.last_mut().expect("it begins with one").push((index + 1, line.trim()));
            } else {
                blocks.push(Vec::new());
            }
        }
        for block in blocks {
            if !block.iter().any(|(_, line)| line.contains(" # ")) {
                continue;
            }
            for (line, why) in block.iter().filter_map(|(at, line)| Some((*at, joined(line)?))) {
                findings.push(file.finding(line, format!("{why}: one command a line")));
            }
        }
    }
    findings
}

/// Why a line looks as if it were several, or a part of one.
fn joined(line: &str) -> Option<&'static str> {
    let first = line.split_whitespace().next().filter(|first| *first != "#")?;
    if !first.contains(['/', '=']) && !PROGRAMS.contains(&first) {
        return Some("begins with no program (crates/tidy/src/commands.rs lists them)");
    }
    let (_, comment) = line.split_once(" # ")?;
    if comment.contains(" # ") {
        return Some("has two comments");
    }
    comment
        .split_whitespace()
        .any(|word| word == first)
        .then_some("has a second command in its comment")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_were_run_together_are_found() {
        let page = "\
Text # with # marks

    switchback a     # one switchback b
    c                # two
    make a   # one cargo b   # two
    NAME=1 make c    # switchback c
    scripts/d.sh     # three
    # A comment by itself.

    any # text
";
        let text = page.to_owned() + "```\nmake a  # one make b\n```\n    b c\n    plain block\n";
        let repository = Repository::of(&[("a.md", &text), ("a.rs", page)]);
        let lines: Vec<_> =
            one_a_line(&repository).into_iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [3, 4, 5, 10, 12]);
    }
}
