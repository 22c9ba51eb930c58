//! The simulator alone, without the rest of `switchback`: it compiles in seconds.

use clap::Parser;
use std::process::ExitCode;
use switchback_sim::cli::{SimArgs, run};

#[derive(Parser)]
#[command(name = "switchback-sim", about = "Torments simulated racks")]
struct Cli {
    #[command(flatten)]
    args: SimArgs,
}

fn main() -> ExitCode {
    run(&Cli::parse().args)
}
