//! Processes that a measurement starts, and that end with it, even if it is killed by `kill -9`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

/// Becomes the command, and kills it once the script's standard input ends; the kernel closes that
/// when the measurement is killed.
const KILL_AT_END_OF_INPUT: &str =
    r#"exec 3<&0; (read -r _ <&3; kill -9 $$) >/dev/null 2>&1 & exec "$@" </dev/null 3<&-"#;

/// A process that is killed when this is dropped. It inherits the thread's CPUs and network, and is
/// a process group of its own: Ctrl-C is for the measurement alone.
#[derive(Debug)]
pub struct ProcessGuard {
    child: Child,
}

impl ProcessGuard {
    /// Starts a command.
    ///
    /// # Errors
    /// No shell. A program that doesn't exist is no error here: the process ends with a failure.
    pub fn spawn(
        command: &[impl AsRef<OsStr>],
        output: Stdio,
        errors: Stdio,
    ) -> io::Result<ProcessGuard> {
        let mut shell = Command::new("sh");
        shell.args(["-c", KILL_AT_END_OF_INPUT, "sh"]).args(command);
        shell.stdin(Stdio::piped()).stdout(output).stderr(errors).process_group(0);
        shell.spawn().map(|child| ProcessGuard { child })
    }

    /// Its process id: the command's, not that of a shell around it.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its standard output, if that is a pipe and wasn't taken yet.
    pub fn output(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    /// The system doesn't return the status.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }
}

impl Drop for ProcessGuard {
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
    fn ctrl_c_does_not_reach_it() {
        let command = ["sleep", "1000"];
        let process = ProcessGuard::spawn(&command, Stdio::null(), Stdio::null()).unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        // After the name in parentheses: state, parent, process group.
        let fields = stat.rsplit(')').next().unwrap();
        let group = fields.split_whitespace().nth(2).unwrap();
        assert_eq!(group, process.id().to_string());
    }

    #[test]
    fn it_is_killed_when_its_standard_input_ends() {
        let command = ["sh", "-c", "echo $$; exec sleep 1000"];
        let mut process = ProcessGuard::spawn(&command, Stdio::piped(), Stdio::null()).unwrap();
        let mut pid = String::new();
        BufReader::new(process.output().unwrap()).read_line(&mut pid).unwrap();
        assert_eq!(pid.trim(), process.id().to_string(), "it is the process that was started");
        assert_eq!(process.ended().unwrap(), None);
        drop(process.child.stdin.take());
        assert_eq!(process.child.wait().unwrap().signal(), Some(9));
    }
}
