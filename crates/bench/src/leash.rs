//! Processes that a measurement starts, and that end with it however it ends: `kill -9` included.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// Kills the command that it becomes once its own standard input ends, which the kernel sees to if
/// nobody else does.
const LEASH: &str =
    r#"exec 3<&0; (read -r _ <&3; kill -9 $$) >/dev/null 2>&1 & exec "$@" </dev/null 3<&-"#;

/// Such a process. It has the thread's CPUs and network; dropped it is killed.
#[derive(Debug)]
pub struct Leashed {
    child: Child,
}

impl Leashed {
    /// Starts a command.
    ///
    /// # Errors
    /// No shell. A program that isn't there only shows in how it ends.
    pub fn spawn(
        command: &[impl AsRef<OsStr>],
        output: Stdio,
        errors: Stdio,
    ) -> io::Result<Leashed> {
        let mut shell = Command::new("sh");
        shell.args(["-c", LEASH, "sh"]).args(command);
        shell.stdin(Stdio::piped()).stdout(output).stderr(errors);
        shell.spawn().map(|child| Leashed { child })
    }

    /// Its number: the command's, not that of a shell around it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it prints, if that was to be a pipe and nobody has asked yet.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The system can't say.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for Leashed {
    fn drop(&mut self) {
        // Errors: it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn it_ends_with_the_pipe_that_it_was_given() {
        let command = ["sh", "-c", "echo $$; exec sleep 1000"];
        let mut leashed = Leashed::spawn(&command, Stdio::piped(), Stdio::null()).unwrap();
        let mut pid = String::new();
        BufReader::new(leashed.output().unwrap()).read_line(&mut pid).unwrap();
        assert_eq!(pid.trim(), leashed.id().to_string(), "it is the process that was started");
        assert_eq!(leashed.ended().unwrap(), None);
        drop(leashed.child.stdin.take());
        assert_eq!(leashed.child.wait().unwrap().signal(), Some(9));
    }
}
