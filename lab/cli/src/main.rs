//! `switchback-lab`: what Switchback is tested, modelled and measured with. `switchback lab` runs
//! it.

mod chart;
mod draw;
mod experiment;
mod sim;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use switchback_terminal::{end_with_the_reader, error, let_large_files_fail, log};

/// What Switchback is tested, modelled and measured with.
#[derive(Parser, Debug)]
#[command(
    version,
    bin_name = "switchback lab",
    disable_help_subcommand = true,
    max_term_width = 120
)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    #[command(flatten)]
    log: log::LogArgs,
}

#[derive(Subcommand, Debug)]
enum Command {
    Sim(Box<sim::SimArgs>),
    Experiment(Box<experiment::ExperimentCommand>),
    Calibrate(switchback_measure::CalibrateArgs),
    Datapath(switchback_measure::DatapathArgs),
    Draw(draw::DrawArgs),
}

/// The product's program, which racks of processes run: beside this one, or on PATH.
fn product() -> anyhow::Result<PathBuf> {
    let beside =
        std::env::current_exe().context("the path of this program")?.with_file_name("switchback");
    Ok(if beside.exists() { beside } else { "switchback".into() })
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        Command::Sim(_) => log::start_without_warnings(&cli.log),
        _ => log::start(&cli.log),
    }
    end_with_the_reader();
    let_large_files_fail();
    let outcome = match cli.command {
        Command::Sim(args) => sim::run(&args),
        Command::Experiment(args) => experiment::run(&args),
        Command::Calibrate(args) => switchback_measure::calibrate(&args),
        Command::Datapath(args) => switchback_measure::cli::run(&args),
        Command::Draw(args) => draw::run(&args),
    };
    outcome.unwrap_or_else(|failure| {
        // The causes in one line: what failed, then why.
        error(&format!("{failure:#}"));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod figures;

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense_and_says_what_it_does() {
        switchback_testing::check_command_line(Cli::command());
    }
}
