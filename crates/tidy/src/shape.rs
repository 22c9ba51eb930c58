//! Lengths of lines. (Those of functions are clippy's, in clippy.toml.)

use crate::{File, Finding, Repository};

/// Code and comments fit two windows side by side. rustfmt and clang-format break code at the same
/// width, but leave comments, strings and the bodies of macros.
const CODE_MAX: usize = 100;
/// A line that holds a string literal: a message in one piece can be searched for.
const STRING_MAX: usize = 160;
/// Text of documents.
const TEXT_MAX: usize = 120;
/// A table's row, a command or an image can't be broken.
const UNBROKEN_MAX: usize = 400;

const SOURCES: &[&str] =
    &["rs", "c", "h", "sh", "bash", "toml", "md", "py", "java", "js", "mjs", "lua"];
/// Others' files, and those of an older version: they stay as they are.
const KEPT: &[&str] = &[
    "crates/console/vendor/",
    "crates/rack/tests/config/447d43a/rack.toml",
    "tests/fixtures/447d43a/rack.toml",
];

/// Lines that don't fit the window.
pub(crate) fn overlong_lines(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let is_kept = |file: &&File| KEPT.iter().any(|path| file.path.starts_with(path));
    for file in repository.with(SOURCES).filter(|file| !is_kept(file)) {
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
    if file.is("md") {
        let is_unbroken = ["|", "    ", "![", "<!--"].iter().any(|mark| line.starts_with(mark));
        return if is_unbroken { UNBROKEN_MAX } else { TEXT_MAX };
    }
    match comment(file, line) {
        // A row of a table in it can't be broken.
        Some(text) if text.starts_with('|') => STRING_MAX,
        Some(_) => CODE_MAX,
        None if holds_string(file, line) => STRING_MAX,
        None => CODE_MAX,
    }
}

/// The text of a line that is nothing but a comment.
fn comment<'a>(file: &File, line: &'a str) -> Option<&'a str> {
    let marks: &[&str] = match () {
        () if ["sh", "bash", "py", "toml"].iter().any(|extension| file.is(extension)) => &["#"],
        () if file.is("lua") => &["--"],
        () => &["//!", "///", "//", "/*", "*"],
    };
    let line = line.trim_start();
    marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim_start)
}

/// Whether a part of a string literal is on the line; in Rust, one that goes on behind a `\`, too.
fn holds_string(file: &File, line: &str) -> bool {
    let quotes: &[char] = match () {
        () if file.is("rs") && line.ends_with('\\') => return true,
        () if file.is("rs") || file.is("c") || file.is("h") || file.is("java") => &['"'],
        () if file.is("js") || file.is("mjs") => &['"', '\'', '`'],
        () => &['"', '\''],
    };
    line.contains(quotes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a file of this name that are too long.
    fn found(path: &str, lines: &[&str]) -> Vec<usize> {
        let findings = overlong_lines(&Repository::of(&[(path, &lines.join("\n"))]));
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_lines_are_found() {
        let (fits, long) = ("x".repeat(100), "x".repeat(101));
        let repository = Repository::of(&[("a.rs", &format!("{fits}\n{long}\n"))]);
        let findings = overlong_lines(&repository);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].to_string(), "a.rs:2: 101 characters; 100 fit the window");
        for extension in SOURCES.iter().filter(|extension| **extension != "md") {
            assert_eq!(found(&format!("a.{extension}"), &[&fits, &long]), [2], "{extension}");
        }
        assert_eq!(found("crates/console/vendor/a.js", &[&long]), []);
        assert_eq!(found("crates/console/web/a.js", &[&long]), [1]);
    }

    #[test]
    fn comments_are_wrapped_whatever_they_quote() {
        let comment = |mark: &str, length: usize| {
            let text = format!("{mark} \"quoted\" ");
            format!("    {text}{}", "x".repeat(length - 4 - text.len()))
        };
        for (path, mark) in [
            ("a.rs", "///"),
            ("a.rs", "//!"),
            ("a.c", "//"),
            ("a.h", "*"),
            ("a.java", "/*"),
            ("a.js", "//"),
            ("a.mjs", "//"),
            ("a.sh", "#"),
            ("a.bash", "#"),
            ("a.py", "#"),
            ("a.toml", "#"),
            ("a.lua", "--"),
        ] {
            let lines = [comment(mark, 100), comment(mark, 101)];
            assert_eq!(found(path, &[&lines[0], &lines[1]]), [2], "{path}: {mark}");
        }
        let row = |length: usize| format!("/// | {} |", "x".repeat(length - 8));
        assert_eq!(found("a.rs", &[&row(160), &row(161)]), [2]);
    }

    #[test]
    fn a_message_may_stay_in_one_piece() {
        for (path, begin, end) in [
            ("a.rs", "say(\"", "\");"),
            ("a.rs", "    ", " \\"),
            ("a.rs", "#[error(\"", "\")]"),
            ("a.c", "say(\"", "\");"),
            ("a.java", "say(\"", "\");"),
            ("a.py", "say('", "')"),
            ("a.sh", "say '", "'"),
            ("a.bash", "say \"", "\""),
            ("a.toml", "said = \"", "\""),
            ("a.js", "say(`", "`);"),
            ("a.mjs", "say('", "');"),
            ("a.lua", "say('", "')"),
        ] {
            let line = |length: usize| {
                begin.to_owned() + &"x".repeat(length - begin.len() - end.len()) + end
            };
            assert_eq!(found(path, &[&line(160), &line(161)]), [2], "{path}: {begin}");
        }
        // A lifetime is no string, nor is a backslash at the end of a macro in C.
        let code = |begin: &str, end: &str| format!("{begin}{}{end}", "x".repeat(100));
        assert_eq!(found("a.rs", &[&code("let x: &'a ", ";")]), [1]);
        assert_eq!(found("a.h", &[&code("#define X ", " \\")]), [1]);
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
