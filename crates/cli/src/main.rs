//! `switchback`: the product in one program. Each subcommand has a file in `commands`.

mod commands;
mod launch;
mod notify;
mod output;
mod serve;

use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;
use switchback_terminal::{end_with_the_reader, let_large_files_fail, log};

// A release of the whole workspace would give the product what only the laboratory may have.
// (Editors check it as a whole.)
const _: () = assert!(
    cfg!(debug_assertions)
        || !switchback_core::mechanisms::ABLATIONS && !switchback_datapath::ABLATIONS,
    "this program has no switch that turns a mechanism off: build it by itself, as scripts/build.sh does"
);

// Scripts make and drop many small objects (docs/understand/dependencies.md).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const EXAMPLES: &str = "\
Examples:
  See it: a rack under load, and a key that kills its switch:
      switchback demo
  A rack in one process, with redis-cli to talk to it:
      switchback up
      redis-cli -p 6380 set greeting hello
  What it does:
      switchback ctl status
  A rack of its own, elsewhere, on any free ports:
      switchback up --data /tmp/rack --resp 127.0.0.1:0 --metrics 127.0.0.1:0
  Every setting, documented:
      switchback config example > rack.toml";

/// An in-network write-back cache for key-value stores.
///
/// A small stateful data plane between clients and storage nodes that serves reads and absorbs
/// writes of the hottest records, and loses no acknowledged write when any one part dies.
#[derive(Parser, Debug)]
#[command(version, after_help = EXAMPLES, disable_help_subcommand = true, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: log::LogArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    Up(commands::up::UpArgs),
    Demo(switchback_bench::demo::DemoArgs),
    Switch(commands::part::SwitchArgs),
    Node(commands::part::NodeArgs),
    Controller(commands::part::ControllerArgs),
    Gateway(commands::part::GatewayArgs),
    Bench(Box<switchback_bench::cli::BenchArgs>),
    Predict(switchback_bench::predict::PredictArgs),
    Ctl(commands::ctl::CtlArgs),
    Import(switchback_migrate::ImportArgs),
    Export(switchback_migrate::ExportArgs),
    Backup(switchback_migrate::BackupArgs),
    Restore(switchback_migrate::RestoreArgs),
    Config(commands::config::ConfigArgs),
    Doctor(commands::doctor::DoctorArgs),
    Lab(commands::lab::LabArgs),
    Completions(commands::manual::CompletionsArgs),
    Man(commands::manual::ManArgs),
}

impl Command {
    /// Whether it serves others until it is told to stop.
    fn is_server(&self) -> bool {
        matches!(
            self,
            Command::Up(_)
                | Command::Switch(_)
                | Command::Node(_)
                | Command::Controller(_)
                | Command::Gateway(_)
        )
    }
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::start(&cli.log);
    let_large_files_fail();
    let is_server = cli.command.is_server();
    if !is_server {
        end_with_the_reader();
    }
    let outcome = match cli.command {
        Command::Up(args) => commands::up::run(&args),
        Command::Demo(args) => commands::demo(&args),
        Command::Switch(args) => commands::part::switch(&args),
        Command::Node(args) => commands::part::node(&args),
        Command::Controller(args) => commands::part::controller(&args),
        Command::Gateway(args) => commands::part::gateway(&args),
        Command::Bench(args) => commands::bench(*args),
        Command::Predict(args) => switchback_bench::predict::run(&args),
        Command::Ctl(args) => commands::ctl::run(&args),
        Command::Import(args) => commands::import(&args),
        Command::Export(args) => commands::export(&args),
        Command::Backup(args) => commands::backup::backup(&args),
        Command::Restore(args) => commands::backup::restore(&args),
        Command::Config(args) => commands::config::run(&args),
        Command::Doctor(args) => commands::doctor::run(&args),
        Command::Lab(args) => commands::lab::run(&args, &cli.log),
        Command::Completions(args) => commands::manual::completions(&args, Cli::command()),
        Command::Man(args) => commands::manual::man(&args, Cli::command()),
    };
    outcome.unwrap_or_else(|error| {
        // The causes in one line: what failed, then why.
        output::error(&format!("{error:#}"));
        if is_server {
            // RocksDB may still be waiting for room on a full disk; an orderly exit would pull its
            // statics from under it.
            signal_hook::low_level::exit(1);
        }
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_makes_sense_and_says_what_it_does() {
        switchback_testing::check_command_line(Cli::command());
    }
}
