//! Citations that lead nowhere: rules and sections by number, documents, links, files, tests.

use crate::reachable::normal;
use crate::{File, Finding, Repository};
use std::collections::BTreeSet;
use std::ops::Range;

const RULES: &str = "docs/understand/rules.md";
const PROTOCOL: &str = "docs/understand/protocol.md";
/// Files whose text may cite something.
const CITING: &[&str] = &["rs", "h", "c", "md", "py", "sh", "bash", "lua", "toml", "yml"];
/// Where the files are that documents name.
const FOLDERS: &[&str] = &[
    "contrib", "crates", "datapath", "docs", "examples", "fuzz", "lab", "scripts", "tests", "tools",
];
/// Documents, and what they name that isn't committed, or no longer.
const NOT_COMMITTED: &[(&str, &str)] = &[
    // It names the last commit that has it.
    ("docs/measure/performance.md", "crates/xdp/src/link.rs"),
    // The example makes it.
    ("examples/rack/README.md", "examples/rack/data"),
    // Fuzzing makes it.
    ("fuzz/README.md", "fuzz/artifacts/TARGET"),
    // For any target.
    ("fuzz/README.md", "fuzz/corpus/TARGET"),
];

/// A line between its neighbours: a citation may be broken between two lines.
struct Line {
    number: usize,
    /// End of the line before, line, beginning of the next.
    text: String,
    /// Where in that the line is.
    own: Range<usize>,
}

fn lines(file: &File) -> Vec<Line> {
    let lines: Vec<(usize, &str)> = match file.is("rs") {
        true => file.product_lines().collect(),
        false => file.text.lines().enumerate().map(|(index, line)| (index + 1, line)).collect(),
    };
    let neighbour = |index: Option<usize>| {
        let line = index.and_then(|index| lines.get(index)).map_or("", |(_, line)| line);
        line.trim_start_matches([' ', '/', '!', '#', '*', '-'])
    };
    let with_neighbours = |(index, (number, line)): (usize, &(usize, &str))| {
        let (before, after) = (neighbour(index.checked_sub(1)), neighbour(Some(index + 1)));
        let start = before.len() + 1;
        Line {
            number: *number,
            text: format!("{before} {line} {after}"),
            own: start..start + line.len(),
        }
    };
    lines.iter().enumerate().map(with_neighbours).collect()
}

/// The numbers that `text` begins with: `2, 3 and 5`.
fn numbers(text: &str) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut rest = text;
    loop {
        let digits =
            rest.len() - rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).len();
        let Ok(number) = rest[..digits].parse() else { return numbers };
        numbers.push(number);
        rest = &rest[digits..];
        let separator =
            [", ", " and ", " to "].into_iter().find_map(|separator| rest.strip_prefix(separator));
        let Some(next) = separator else { return numbers };
        rest = next;
    }
}

/// Where `word`, or its plural, stands before numbers in the line: what is before, what after, and
/// the numbers.
fn cited<'t>(text: &'t str, own: &Range<usize>, word: &str) -> Vec<(&'t str, &'t str, Vec<u32>)> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices(word).filter(|(start, _)| own.contains(start)) {
        let after = &text[start + word.len()..];
        let after = after.strip_prefix('s').unwrap_or(after);
        let Some(after) = after.strip_prefix(' ') else { continue };
        let is_word = !text[..start].ends_with(|letter: char| letter.is_ascii_alphanumeric());
        let numbers = numbers(after);
        if is_word && !numbers.is_empty() {
            found.push((&text[..start], after, numbers));
        }
    }
    found
}

/// Numbers of the headings that begin with `mark`.
fn headings(repository: &Repository, path: &str, mark: &str) -> BTreeSet<u32> {
    let lines = repository.file(path).map_or("", |file| &file.text).lines();
    lines.filter_map(|line| numbers(line.strip_prefix(mark)?).first().copied()).collect()
}

/// Rules are cited by the numbers that they have.
pub(crate) fn rules(repository: &Repository) -> Vec<Finding> {
    let known = headings(repository, RULES, "## Rule ");
    let mut findings = Vec::new();
    for file in repository.with(CITING) {
        for Line { number, text, own } in lines(file) {
            let small = text.replace("Rule", "rule");
            for rule in cited(&small, &own, "rule").into_iter().flat_map(|(_, _, numbers)| numbers)
            {
                if !known.contains(&rule) {
                    findings.push(file.finding(number, format!("{RULES} has no rule {rule}")));
                }
            }
        }
    }
    findings
}

/// Sections are cited with their document, and are there.
pub(crate) fn sections(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(CITING) {
        for Line { number, text, own } in lines(file) {
            for (before, after, sections) in cited(&text, &own, "section") {
                let Some(document) = document_of(repository, file, before, after) else {
                    let is_standard =
                        before.trim_end_matches([' ', '(', ',']).rsplit(' ').nth(1) == Some("RFC");
                    if !is_standard {
                        findings.push(file.finding(
                            number,
                            "a section of which document? Name it, or cite a rule",
                        ));
                    }
                    continue;
                };
                let known = headings(repository, &document, "## ");
                for section in sections.iter().filter(|section| !known.contains(section)) {
                    findings
                        .push(file.finding(number, format!("{document} has no section {section}")));
                }
            }
        }
    }
    findings
}

/// The document that is named beside a section: before it, behind it, or the page itself.
fn document_of(repository: &Repository, file: &File, before: &str, after: &str) -> Option<String> {
    let before = before.trim_end_matches([' ', ',', '`', ')', '(', '/', '!', '#', '*']);
    let word = before.rsplit([' ', '`', '(']).next().unwrap_or_default();
    if word.ends_with(".md") {
        let path = normal(word);
        return Some(if exists(repository, &path) { path } else { beside(file, word) });
    }
    let is_protocol = word.to_lowercase().ends_with("protocol") || word.ends_with("protocol]");
    if is_protocol || after.contains("of the protocol") {
        return Some(PROTOCOL.to_owned());
    }
    file.is("md").then(|| file.path.clone())
}

/// The path of what `file` calls `target`, from its own folder.
fn beside(file: &File, target: &str) -> String {
    let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    normal(&format!("{folder}/{target}"))
}

/// Whether it is a file of the repository, or a folder with files.
fn exists(repository: &Repository, path: &str) -> bool {
    let path = path.trim_end_matches('/');
    repository.files.iter().any(|file| {
        file.path.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Documents that code and documents name are there; so are the files that documents name.
pub(crate) fn paths(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(CITING) {
        for Line { number, text, own } in lines(file) {
            let is_name =
                |letter: char| letter.is_ascii_alphanumeric() || "_-./*$:".contains(letter);
            for word in text[own].split(|letter| !is_name(letter)) {
                let path = word.trim_start_matches("../").trim_end_matches(['.', ':', '/']);
                let Some((folder, rest)) = path.split_once('/') else { continue };
                let is_cited = folder == "docs" || file.is("md") && FOLDERS.contains(&folder);
                let is_exempt = NOT_COMMITTED.contains(&(file.path.as_str(), path));
                if is_cited
                    && !is_exempt
                    && !rest.contains(['*', '$', ':'])
                    && !exists(repository, path)
                {
                    findings.push(file.finding(number, format!("{path} isn't there")));
                }
            }
        }
    }
    findings
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(file: &File) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut is_code = false;
    for line in file.text.lines() {
        is_code ^= line.starts_with("```");
        let title = line.trim_start_matches('#');
        if is_code || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = title.trim().to_lowercase();
        let kept =
            kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        let anchor: String = kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect();
        let again = (1..).map(|count| format!("{anchor}-{count}"));
        let free =
            std::iter::once(anchor.clone()).chain(again).find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

/// Links between documents lead to files and headings that are there.
pub(crate) fn links(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(&["md"]) {
        for (index, line) in file.text.lines().enumerate() {
            for link in line
                .split("](")
                .skip(1)
                .filter_map(|rest| rest.split_once(')'))
                .map(|(link, _)| link)
            {
                let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
                if target.contains("://") {
                    continue;
                }
                let path = match target {
                    "" => file.path.clone(),
                    target => beside(file, target),
                };
                let page = repository.file(&path);
                if !exists(repository, &path) {
                    findings.push(file.finding(index + 1, format!("{path} isn't there")));
                } else if !anchor.is_empty()
                    && !page.is_some_and(|page| anchors(page).contains(anchor))
                {
                    findings
                        .push(file.finding(index + 1, format!("{path} has no heading #{anchor}")));
                }
            }
        }
    }
    findings
}

/// What a rule is proved by is there: ablations (`no-fence`), tests (`the_switch_dies`), files.
pub(crate) fn proofs(repository: &Repository) -> Vec<Finding> {
    let Some(file) = repository.file(RULES) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut is_proof = false;
    for (index, line) in file.text.lines().enumerate() {
        is_proof = line.starts_with("**Proved by**") || is_proof && !line.is_empty();
        for name in line.split('`').skip(1).step_by(2).filter(|_| is_proof) {
            if !is_there(repository, name) {
                findings.push(
                    file.finding(
                        index + 1,
                        format!("no ablation, test or file is called `{name}`"),
                    ),
                );
            }
        }
    }
    findings
}

fn is_there(repository: &Repository, name: &str) -> bool {
    let contains = |file: &File, text: &str| file.text.contains(text);
    if name.contains('/') {
        return exists(repository, name);
    }
    if name.contains('_') {
        let declaration = format!("fn {name}()");
        return repository.with(&["rs"]).any(|file| contains(file, &declaration));
    }
    let quoted = format!("\"{name}\"");
    let mut lists = repository.with(&["rs"]).filter(|file| file.path.ends_with("src/ablation.rs"));
    lists.any(|file| contains(file, &quoted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [String; 0] = [];

    fn said(findings: &[Finding]) -> Vec<String> {
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rules_and_sections_have_numbers_that_exist() {
        let repository = Repository::of(&[
            (RULES, "## Rule 1\n\n## Rule 2\n\n## Rule 3\n"),
            (PROTOCOL, "## 1. The packet\n\nAs section 1 says, not section 2.\n"),
            (
                "a.rs",
                "// Rules 1, 2 and\n// 4; protocol,\n// section 1.\n// (Protocol, section 3.)\n",
            ),
            ("b.h", "// (rule 3) RFC 9112 (section 3.2)\n// (plan, section 7)\n"),
        ]);
        assert_eq!(said(&rules(&repository)), [format!("a.rs:1: {RULES} has no rule 4")]);
        let wrong = [
            format!("a.rs:4: {PROTOCOL} has no section 3"),
            "b.h:2: a section of which document? Name it, or cite a rule".to_owned(),
            format!("{PROTOCOL}:3: {PROTOCOL} has no section 2"),
        ];
        let mut found = said(&sections(&repository));
        found.sort();
        assert_eq!(found, wrong);
    }

    #[test]
    fn paths_and_links_lead_somewhere() {
        let page = "# A\n\n## What's `a_b`, then\n\n## A\n\n[b](b.md#there), [c](../c.md), [x](#a-1), [y](#gone)\n";
        let repository = Repository::of(&[
            ("docs/a.md", page),
            (
                "docs/b.md",
                "## There\n\n[back](a.md#whats-a_b-then) to `crates/x/src` and `crates/y`\n",
            ),
            (
                "crates/x/src/lib.rs",
                "// See docs/a.md, ../docs/gone.md.\n// https://x.org/docs/y.md docs/$name.md\n",
            ),
        ]);
        let lost = ["docs/a.md:7: c.md isn't there", "docs/a.md:7: docs/a.md has no heading #gone"];
        assert_eq!(said(&links(&repository)), lost);
        let lost = [
            "docs/b.md:3: crates/y isn't there",
            "crates/x/src/lib.rs:1: docs/gone.md isn't there",
        ];
        assert_eq!(said(&paths(&repository)), lost);
    }

    #[test]
    fn what_proves_a_rule_is_there() {
        let rules = "`any`\n\n**Proved by** `no-fence`, `no-hold`;\n`it_holds`, `it_fell`, `a/b.rs`, `a/c.json`.\n\n`x`\n";
        let repository = Repository::of(&[
            (RULES, rules),
            ("lab/sim/src/ablation.rs", "(\"no-fence\", 1)"),
            ("a/b.rs", "\"no-hold\"\nfn it_holds() {}\n"),
        ]);
        let lost = ["no-hold", "it_fell", "a/c.json"];
        let lines = [3, 4, 4];
        let expected = lost.iter().zip(lines).map(|(name, line)| {
            format!("{RULES}:{line}: no ablation, test or file is called `{name}`")
        });
        assert_eq!(said(&proofs(&repository)), expected.collect::<Vec<_>>());
        assert_eq!(said(&proofs(&Repository::of(&[]))), NONE);
    }
}
