//! `switchback lab`: the laboratory's program, which is not linked into this one.

use anyhow::{Context as _, anyhow};
use clap::Args;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};
use switchback_terminal::log::LogArgs;

const PROGRAM: &str = "switchback-lab";

/// Simulate, repeat the paper's experiments, measure the parts: runs the program `switchback-lab`.
///
/// It is looked for beside this program, then on PATH. `switchback lab --help` lists what it does.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(crate) struct LabArgs {
    /// What `switchback-lab` is given.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

/// Becomes that program, so that signals and exit codes are its own. Returns only if that fails.
pub(crate) fn run(args: &LabArgs, log: &LogArgs) -> anyhow::Result<ExitCode> {
    let here = std::env::current_exe().context("the path of this program")?;
    let beside = here.with_file_name(PROGRAM);
    let program = if beside.exists() { beside.into_os_string() } else { PROGRAM.into() };
    let error = Command::new(&program).args(log.arguments()).args(&args.arguments).exec();
    let program = program.display();
    Err(match error.kind() {
        ErrorKind::NotFound => anyhow!(
            "{PROGRAM} is neither beside {} nor on PATH; in a checkout of Switchback `make build` \
             builds both programs, to be copied to the same directory",
            here.display()
        ),
        _ => anyhow!(error).context(format!("running {program}")),
    })
}
