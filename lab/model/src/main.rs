//! Explores a configuration of the model from the command line.

use clap::Parser;
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Instant;
use switchback_model::ablation::{ABLATIONS, Mechanism};
use switchback_model::config::Config;
use switchback_model::explore::{Verdict, explore};
use switchback_model::trace::trace;

/// Looks at every state of a small rack: do the rules keep their promises?
///
/// Exits with 1, and a shortest counterexample, if not.
#[derive(Parser)]
struct Arguments {
    /// What each client does: R reads, W writes, D deletes, E writes what expires, C writes if
    /// nothing changed since it saw the key.
    #[arg(default_value = "WR,WR")]
    operations: String,
    /// Times that the node may offer the key.
    #[arg(long, default_value_t = 1)]
    admissions: u8,
    /// Times that it may be evicted.
    #[arg(long, default_value_t = 1)]
    evictions: u8,
    /// Times that the switch may die (at most 2); the old one runs on.
    #[arg(long, default_value_t = 0)]
    crashes: u8,
    /// Snapshots.
    #[arg(long, default_value_t = 0)]
    snapshots: u8,
    /// Restarts of the node.
    #[arg(long, default_value_t = 0)]
    node_restarts: u8,
    /// Restarts of the controller. One within a recovery begins another, so crashes and restarts
    /// are at most 2 together.
    #[arg(long, default_value_t = 0)]
    controller_restarts: u8,
    /// Times that the node's floor may rise; clients may give operations up then.
    #[arg(long, default_value_t = 0)]
    floor_rises: u8,
    /// Writes look the record up some time after they took their number, as on several cores.
    #[arg(long)]
    two_cores: bool,
    /// Numbers that a switch gives out before it refuses writes (at most 31).
    #[arg(long, default_value_t = 8)]
    counter_max: u8,
    /// Leave a mechanism out.
    #[arg(long, value_name = "NAME", value_parser = ablation_names())]
    ablate: Option<String>,
    /// Stop after about this many states; 25 to 40 bytes each, and some 500 for each of the newest.
    #[arg(long, default_value_t = 20_000_000)]
    states: usize,
    /// Keep packets that can't matter any more: slower, and the same verdict.
    #[arg(long)]
    keep_dead_packets: bool,
    /// A line to stderr for each depth.
    #[arg(long, short)]
    verbose: bool,
}

fn ablation_names() -> clap::builder::PossibleValuesParser {
    ABLATIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>().into()
}

impl Arguments {
    fn config(&self) -> Result<Config, String> {
        if self.crashes + self.controller_restarts > 2
            || self.counter_max > 31
            || self.counter_max == 0
        {
            return Err("at most 2 crashes and controller restarts, and 1 to 31 numbers".into());
        }
        Ok(Config {
            admissions: self.admissions,
            evictions: self.evictions,
            crashes: self.crashes,
            snapshots: self.snapshots,
            node_restarts: self.node_restarts,
            controller_restarts: self.controller_restarts,
            floor_rises: self.floor_rises,
            two_cores: self.two_cores,
            counter_max: self.counter_max,
            without: self.ablate.as_deref().and_then(Mechanism::left_out_by),
            keeps_dead_packets: self.keep_dead_packets,
            ..Config::of(&self.operations)?
        })
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.config() {
        Ok(config) => run(&arguments, &config).unwrap_or(ExitCode::from(2)), // the reader has ended
        Err(error) => {
            eprintln!("switchback-model: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(arguments: &Arguments, config: &Config) -> io::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let began = Instant::now();
    let report = explore(config, arguments.states, |depth, states| {
        if arguments.verbose {
            eprintln!("depth {depth}: {states} states");
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    writeln!(out, "{} states, depth {}, {seconds:.1} s", report.states, report.depth)?;
    match report.verdict {
        Verdict::Holds => writeln!(out, "holds: every state was seen")?,
        Verdict::HoldsSoFar => writeln!(out, "holds so far: there are more states")?,
        Verdict::Violated(broken, path) => {
            writeln!(out, "violated: {broken}")?;
            for line in trace(config, &path) {
                writeln!(out, "{line}")?;
            }
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}
