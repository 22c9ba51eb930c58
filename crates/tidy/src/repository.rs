//! The files of a repository, read once.

use std::fmt;
use std::path::Path;
use std::process::Command;

/// Something that a rule doesn't like.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Where.
    pub path: String,
    /// Line, from 1; 0: the whole file.
    pub line: usize,
    /// What, and why it matters.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// One file that is, or is to be, committed.
#[derive(Clone, Debug)]
pub struct File {
    /// From the repository's root, with `/`.
    pub path: String,
    /// As it is; not UTF-8 is replaced.
    pub text: String,
    /// It is no text.
    pub is_binary: bool,
    /// Its size.
    pub bytes: usize,
}

impl File {
    /// Whether it belongs to a crate: of the product or of the laboratory.
    pub(crate) fn is_of_a_crate(&self) -> bool {
        self.path.starts_with("crates/") || self.path.starts_with("lab/")
    }

    /// Whether its name ends in `.extension`.
    pub fn is(&self, extension: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == extension)
    }

    /// Its lines with their numbers, from 1, and whether a program put them into a page: such a
    /// block stays as `scripts/figures.sh` made it.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let mut is_generated = false;
        self.text.lines().enumerate().map(move |(index, line)| {
            is_generated |= line.starts_with("<!-- generated:");
            is_generated &= line != "<!-- end -->";
            (index + 1, line, is_generated)
        })
    }

    /// The name, without directories.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Rust that only tests compile: they may unwrap, sleep and look at the clock.
    pub fn is_test(&self) -> bool {
        let of_tests =
            |part: &str| ["tests", "testing", "benches", "examples", "fuzz"].contains(&part);
        self.path.split('/').any(of_tests)
            || ["tests.rs", "fake.rs", "testing.rs"].contains(&self.name())
            || self.name().ends_with("_tests.rs")
    }

    /// Lines with their numbers, up to the tests at the file's end.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.take_while(|(_, line)| *line != "#[cfg(test)]")
    }

    /// A finding in this file.
    pub fn finding(&self, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, message: message.into() }
    }
}

/// Every file that git knows, or would take.
#[derive(Clone, Debug, Default)]
pub struct Repository {
    /// In the order of their paths.
    pub files: Vec<File>,
}

impl Repository {
    /// Reads the repository at `root`.
    pub fn read(root: &Path) -> std::io::Result<Repository> {
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()?;
        if !listed.status.success() {
            return Err(std::io::Error::other(
                String::from_utf8_lossy(&listed.stderr).into_owned(),
            ));
        }
        let mut files = Vec::new();
        for path in String::from_utf8_lossy(&listed.stdout).split_terminator('\0') {
            // A file that was removed but not committed so is still listed.
            let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
            files.push(File {
                path: path.to_owned(),
                is_binary: bytes.contains(&0),
                bytes: bytes.len(),
                text: String::from_utf8_lossy(&bytes).into_owned(),
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        Ok(Repository { files })
    }

    /// The file of this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The files with one of these extensions.
    pub fn with(&self, extensions: &'static [&'static str]) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| extensions.iter().any(|extension| file.is(extension)))
    }

    /// A repository of these paths and texts, for the rules' own tests.
    pub fn of(files: &[(&str, &str)]) -> Repository {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.to_owned(),
            text: text.to_owned(),
            is_binary: text.contains('\0'),
            bytes: text.len(),
        };
        Repository { files: files.iter().map(file).collect() }
    }
}
