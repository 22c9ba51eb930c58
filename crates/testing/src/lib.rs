//! For tests of several crates: skips that are counted, small file systems, command lines.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Records that the running test is skipped for want of `lacking`, one of what `tests/lacks.sh`
/// looks for or a command. The test returns then, and passes as far as `cargo test` knows.
///
/// `scripts/test.sh` names a file in `SWITCHBACK_SKIPS`; it counts what is in there, and fails for
/// what `tests/skips.txt` doesn't list. Must be called from the test's own thread, which has the
/// test's name.
pub fn skip(lacking: &str) {
    let name = test_name();
    // Not by eprintln!, which is shown of failed tests only.
    let _unseen = writeln!(std::io::stderr(), "\nskipped: {name} (lacking: {lacking})");
    if let Some(path) = std::env::var_os("SWITCHBACK_SKIPS") {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        // One write, so that lines of tests that run at once stay whole.
        file.write_all(format!("{name}\t{lacking}\n").as_bytes()).unwrap();
    }
}

/// The running test as in `switchback-engine/full_disk::a_full_file_system`: package, binary, path.
fn test_name() -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let binary = std::env::current_exe().unwrap();
    let binary = binary.file_stem().unwrap().to_string_lossy().into_owned();
    // cargo appends a hash.
    let binary = binary.rsplit_once('-').map_or(binary.as_str(), |(name, _)| name);
    let thread = std::thread::current();
    format!("{package}/{binary}::{}", thread.name().unwrap_or("?"))
}

/// A file system of its own, in memory; unmounted at the end.
#[derive(Debug)]
pub struct Tmpfs(TempDir);

impl Tmpfs {
    /// One of `kib` KiB. `None`, and the test is skipped, where nothing can be mounted.
    pub fn mount(kib: u32) -> Option<Tmpfs> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &format!("size={kib}k"), "switchback-test"])
            .arg(directory.path());
        if !mount.output().is_ok_and(|output| output.status.success()) {
            skip("mounts");
            return None;
        }
        Some(Tmpfs(directory))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes it read-only.
    pub fn forbid_writes(&self) {
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", "remount,ro"]).arg(self.path()).status().unwrap().success());
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Even if something is still open in it.
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Fails where a command line contradicts itself, or a subcommand or an argument has no help.
pub fn check_command_line(mut command: clap::Command) {
    command.clone().debug_assert();
    command.build();
    for subcommand in command.get_subcommands() {
        assert!(subcommand.get_about().is_some(), "{} has no help", subcommand.get_name());
        for argument in subcommand.get_arguments() {
            let (name, id) = (subcommand.get_name(), argument.get_id());
            assert!(argument.get_help().is_some(), "{name} {id} has no help");
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_knows_its_name() {
        assert_eq!(
            super::test_name(),
            "switchback-testing/switchback_testing::tests::a_test_knows_its_name"
        );
    }
}
