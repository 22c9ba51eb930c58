//! Directories for the time of a measurement, which go with it however it ends: `kill -9` included.

use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Removes the directory once its own standard input ends, which the kernel sees to if nobody else
/// does. Ctrl-C is for the measurement; parts that end with it may write for a moment yet.
const REMOVE: &str = r#"trap "" HUP INT QUIT TERM; read -r _; for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" && exit; sleep 0.5; done"#;

/// Such a directory; dropped it is removed.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    remover: Child,
}

impl Scratch {
    /// Makes one in `parent`, which is made if it isn't there (and stays), or else where the system
    /// keeps what is temporary. Its name begins with `switchback-`, `purpose`.
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

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A place in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        // Errors: it was killed, and whoever did that wants the directory.
        let _ = self.remover.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_the_pipe_that_the_process_holds() {
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
    fn a_place_where_none_can_be_is_named() {
        let parent = tempfile::NamedTempFile::new().unwrap();
        let error = Scratch::new(Some(parent.path()), "test").unwrap_err();
        assert!(error.to_string().contains(parent.path().to_str().unwrap()));
    }
}
