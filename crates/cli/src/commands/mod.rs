//! The subcommands, a file each.

pub(crate) mod backup;
pub(crate) mod config;
pub(crate) mod ctl;
pub(crate) mod doctor;
pub(crate) mod lab;
pub(crate) mod manual;
pub(crate) mod part;
pub(crate) mod up;

use crate::serve;
use anyhow::Context as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use switchback_bench::cli::BenchArgs;
use switchback_bench::demo::DemoArgs;
use switchback_bench::racks::LocalRacks;
use switchback_migrate::{ExportArgs, ImportArgs};

/// An address on the command line.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "it is an IP address with a port, as 127.0.0.1:9464 or [::1]:9464".to_owned())
}

/// This program, which racks of processes run, too.
fn program() -> anyhow::Result<PathBuf> {
    std::env::current_exe().context("the path of this program")
}

/// `switchback bench`.
pub(crate) fn bench(args: BenchArgs) -> anyhow::Result<ExitCode> {
    switchback_bench::cli::run(args, &mut LocalRacks { program: program()? })
}

/// What is said of a command that is told twice to stop.
const ENDS_AT_ONCE: &str = "told twice: ending at once";

/// `switchback demo`.
pub(crate) fn demo(args: &DemoArgs) -> anyhow::Result<ExitCode> {
    let signals = serve::signals(ENDS_AT_ONCE, false)?;
    switchback_bench::demo::run(args, &program()?, &signals)
}

/// `switchback import`.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    switchback_migrate::import(args, serve::signals(ENDS_AT_ONCE, false)?)
}

/// `switchback export`.
pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    switchback_migrate::export(args, serve::signals(ENDS_AT_ONCE, false)?)
}
