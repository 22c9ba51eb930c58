//! Lengths of lines and functions.

use crate::{File, Finding, Repository};

/// Code fits two windows side by side; a comment or a message may run on a little.
const CODE_MAX: usize = 120;
const PROSE_MAX: usize = 160;
/// A paragraph is a line or a few; a table's row can't be broken.
const MARKDOWN_MAX: usize = 400;
const FUNCTION_MAX: usize = 80;

/// Lines that don't fit the window.
pub(crate) fn overlong_lines(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(&["rs", "c", "h", "sh", "toml", "md", "py", "java"]) {
        for (index, line) in file.text.lines().enumerate() {
            let length = line.chars().count();
            let limit = line_limit(file, line);
            if length > limit {
                findings.push(file.finding(index + 1, format!("{length} characters; {limit} fit the window")));
            }
        }
    }
    findings
}

fn line_limit(file: &File, line: &str) -> usize {
    let start = line.trim_start();
    let is_comment = ["//", "#", "*", "/*"].iter().any(|mark| start.starts_with(mark));
    match () {
        () if file.is("md") => MARKDOWN_MAX,
        // A message in one piece can be searched for.
        () if is_comment || line.contains('"') => PROSE_MAX,
        () => CODE_MAX,
    }
}

/// Functions that don't fit a screen or two.
pub(crate) fn overlong_functions(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.with(&["rs"]) {
        let lines: Vec<&str> = file.text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            if !begins_function(line) {
                continue;
            }
            // rustfmt puts the closing brace at the indentation of `fn`.
            let indentation = &line[..line.len() - line.trim_start().len()];
            let closing = format!("{indentation}}}");
            let Some(length) = lines[start..].iter().position(|line| *line == closing) else { continue };
            let one_line = line.trim_end().ends_with('}') || line.trim_end().ends_with(';');
            if !one_line && length + 1 > FUNCTION_MAX {
                let message = format!("a function of {} lines; at {FUNCTION_MAX} it wants to be several", length + 1);
                findings.push(file.finding(start + 1, message));
            }
        }
    }
    findings
}

fn begins_function(line: &str) -> bool {
    let words = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe", "extern", "\"C\""];
    let mut rest = line.split_whitespace().skip_while(|word| words.contains(word));
    rest.next() == Some("fn")
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
    fn long_functions_are_found() {
        let body = "    work();\n".repeat(79);
        let text = format!("impl X {{\n    pub fn short() {{\n    }}\n}}\npub async fn long() {{\n{body}}}\n");
        let findings = overlong_functions(&Repository::of(&[("a.rs", &text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [5]);
    }
}
