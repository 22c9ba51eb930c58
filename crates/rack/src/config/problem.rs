//! Mistakes in a configuration, and where they are.

use std::fmt;

/// One mistake: where it is, what it is, and what would be right.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Problem {
    /// Line in the file, from 1; 0: not of one line.
    pub line: usize,
    /// Column, in characters, from 1.
    pub column: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

/// Everything that is wrong with a configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// Its mistakes, in the order of its lines; never empty.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    pub(super) fn whole_file(file: &str, message: String) -> ConfigError {
        ConfigError {
            file: file.to_owned(),
            problems: vec![Problem { line: 0, column: 0, message }],
        }
    }
}

impl fmt::Display for ConfigError {
    /// One line a mistake: `rack.toml:3:9: what is wrong; what would be right`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            match problem.line {
                0 => write!(f, "{}: {}", self.file, problem.message)?,
                line => write!(f, "{}:{line}:{}: {}", self.file, problem.column, problem.message)?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// Byte offsets to lines and columns.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Lines<'a> {
        let newlines =
            text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        Lines { text, starts: std::iter::once(0).chain(newlines).collect() }
    }

    /// Line and column of a byte, both from 1.
    pub(super) fn position(&self, byte: usize) -> (usize, usize) {
        let byte = byte.min(self.text.len());
        let line = self.starts.partition_point(|&start| start <= byte);
        let start = self.starts[line - 1];
        let column =
            self.text.as_bytes()[start..byte].iter().filter(|&&byte| byte & 0xc0 != 0x80).count();
        (line, column + 1)
    }
}

/// The candidate that `text` was probably meant to be.
pub(super) fn meant<'c>(
    text: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<&'c str> {
    if text.len() > 64 {
        return None;
    }
    let alike = |candidate: &'c str| (strsim::damerau_levenshtein(text, candidate), candidate);
    let (distance, best) =
        candidates.into_iter().map(alike).min_by_key(|&(distance, _)| distance)?;
    (distance <= (best.len() / 3).max(1)).then_some(best)
}
