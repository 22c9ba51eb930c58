//! Temporary directories of a measurement, which are removed when it ends, even by `kill -9`.

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Removes the directory once its own standard input ends; the kernel closes that when the
/// measurement is killed. The script ignores Ctrl-C, which is for the measurement, and tries
/// several times, since parts of the rack may still write for a moment.
const REMOVE: &str = r#"trap "" HUP INT QUIT TERM; read -r _; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit; sleep 0.5; done"#;

/// A temporary directory, removed when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    remover: Child,
}

impl Scratch {
    /// Makes one in `parent`, which is created if it doesn't exist (and stays), or else in the
    /// system's directory for temporary files. Its name begins with `switchback-` and `purpose`.
    ///
    /// # Errors
    /// No directory can be made there, or there is no shell.
    pub fn new(parent: Option<&Path>, purpose: &str) -> anyhow::Result<Scratch> {
        let parent = parent.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let made = std::fs::create_dir_all(&parent);
        let prefix = format!("switchback-{purpose}-");
        let directory =
            made.and_then(|()| tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent));
        let directory = directory
            .with_context(|| format!("cannot make a directory in {}", parent.display()))?;
        let mut shell = Command::new("sh");
        shell.args(["-c", REMOVE, "sh"]).arg(directory.path());
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let remover = shell.spawn().context("cannot run sh")?;
        Ok(Scratch { directory, remover })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A path in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        // Errors: the remover was killed, in order to keep the directory.
        let _ = self.remover.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_removed_when_the_pipe_of_its_process_closes() {
        let parent = tempfile::tempdir().unwrap();
        let parent = parent.path().join("not/there/yet");
        let mut scratch = Scratch::new(Some(&parent), "test").unwrap();
        assert!(scratch.path().starts_with(&parent) && scratch.path().is_dir());
        std::fs::write(scratch.join("file"), b"").unwrap();
        drop(scratch.remover.stdin.take());
        assert!(scratch.remover.wait().unwrap().success());
        assert!(!scratch.path().exists() && parent.exists());
    }

    #[test]
    fn it_goes_when_dropped() {
        let scratch = Scratch::new(None, "test").unwrap();
        let path = scratch.path().to_path_buf();
        std::fs::create_dir_all(path.join("a/b")).unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn the_error_names_a_parent_that_can_have_no_directory() {
        let parent = tempfile::NamedTempFile::new().unwrap();
        let error = Scratch::new(Some(parent.path()), "test").unwrap_err();
        assert!(error.to_string().contains(parent.path().to_str().unwrap()));
    }
}
