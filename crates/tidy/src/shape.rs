//! Lengths of lines. (Those of functions are clippy's, in clippy.toml.)

use crate::{File, Finding, Repository};

/// Code fits two windows side by side; a comment or a message may run on a little.
const CODE_MAX: usize = 120;
const PROSE_MAX: usize = 160;
/// Text of documents.
const TEXT_MAX: usize = 120;
/// A table's row, a command or an image can't be broken.
const UNBROKEN_MAX: usize = 400;

/// Lines that don't fit the window.
pub(crate) fn overlong_lines(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(&["rs", "c", "h", "sh", "toml", "md", "py", "java"]) {
        let mut is_code = false;
        for (number, line, is_generated) in file.lines() {
            is_code ^= file.is("md") && line.starts_with("```");
            let length = line.chars().count();
            let limit = if is_code || is_generated { UNBROKEN_MAX } else { line_limit(file, line) };
            if length > limit {
                findings.push(
                    file.finding(number, format!("{length} characters; {limit} fit the window")),
                );
            }
        }
    }
    findings
}

fn line_limit(file: &File, line: &str) -> usize {
    let start = line.trim_start();
    let is_comment = ["//", "#", "*", "/*"].iter().any(|mark| start.starts_with(mark));
    match () {
        () if file.is("md") => {
            let is_unbroken = ["|", "    ", "![", "<!--"].iter().any(|mark| line.starts_with(mark));
            if is_unbroken { UNBROKEN_MAX } else { TEXT_MAX }
        }
        // A message in one piece can be searched for.
        () if is_comment || line.contains('"') => PROSE_MAX,
        () => CODE_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_found() {
        let (code, prose) = ("x".repeat(121), format!("// {}", "x".repeat(118)));
        let repository = Repository::of(&[("a.rs", &format!("fine\n{code}\n{prose}\n"))]);
        let findings = overlong_lines(&repository);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].to_string(), "a.rs:2: 121 characters; 120 fit the window");
    }

    #[test]
    fn text_of_documents_is_wrapped() {
        let long = "x".repeat(121);
        let page =
            format!("{long}\n| {long} |\n    {long}\n![{long}](x.svg)\n```\n{long}\n```\n{long}\n");
        let repository = Repository::of(&[("a.md", &page)]);
        let lines: Vec<_> = overlong_lines(&repository)
            .into_iter()
            .map(|finding| (finding.path, finding.line))
            .collect();
        assert_eq!(lines, [("a.md".to_owned(), 1), ("a.md".to_owned(), 8)]);
    }
}
