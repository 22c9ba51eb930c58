//! `switchback predict`: whether an in-network cache would help, before there is one.
//!
//! A trace is counted by key ([`tally`], [`trace`]), or a load follows from published figures
//! ([`traffic`]); [`crate::limit`] says what each scheme can make of it on a rack that is only
//! thought of ([`analysis`]). What is predicted are limits: the best that each scheme can do with
//! the hottest records cached.

mod analysis;
mod columns;
mod monitor;
mod overview;
mod tally;
#[cfg(test)]
mod tests;
mod text;
mod trace;
mod traffic;

pub use analysis::{Advice, GAIN_MIN};
pub use overview::{Forecast, forecast};

use crate::cli::{parse_positive, parse_theta};
use crate::limit::EXACT_KEYS;
use crate::report::{check_writable, say};
use crate::workload::twitter;
use analysis::Rack;
use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use switchback_wire::CACHED_VALUE_BYTES_MAX;
use traffic::Traffic;

/// The longest value that the software targets cache.
pub const SLOT_BYTES_MAX: u32 = CACHED_VALUE_BYTES_MAX as u32;
/// The largest slots: of a Tofino, and of the software targets.
pub const SLOTS: [u32; 2] = [128, SLOT_BYTES_MAX];

const EXAMPLES: &str = "\
Examples:
  What a Redis is asked now, for a minute:
      timeout 60 redis-cli monitor > trace.log
      switchback predict --trace trace.log --nodes 8
  A trace in columns (a header line names key, op and perhaps value_bytes), on a switch with slots \
      of 128 B:
      switchback predict --trace trace.csv --slot-bytes 128
  A production cache of Twitter's, and all of them:
      switchback predict --trace twitter:51
      switchback predict --trace twitter:all

Nothing has to be running. Exact while the trace has at most --keys-max keys; memory doesn't grow
beyond.";

/// Say from a trace what a cache in the network would gain, or that it would not help.
///
/// Prints the load of each node now; for every scheme the hit ratio, the limit and the gain over no
/// cache with the hottest records cached; and how many records suffice. No rack has to be there:
/// --nodes and --partitions say what it would have, with as many partitions at each node.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct PredictArgs {
    /// A log of `redis-cli monitor`, a CSV, `-` for stdin, or twitter:N (published figures of a
    /// cluster), twitter:all.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,

    /// Storage nodes.
    #[arg(
        long,
        default_value_t = 16,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    nodes: u16,

    /// Partitions, a power of two.
    #[arg(long, default_value_t = 4096, value_name = "N", value_parser = parse_partitions)]
    partitions: u32,

    /// Records that the cache holds.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    cache_records: u32,

    /// The longest value that the cache holds: 128 on a Tofino; software and XDP have the default.
    #[arg(
        long,
        default_value_t = SLOT_BYTES_MAX,
        value_name = "BYTES",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOT_BYTES_MAX))
    )]
    slot_bytes: u32,

    /// Requests a second that a node serves: limits are printed as operations a second, too.
    #[arg(long, value_name = "OPS", value_parser = parse_positive)]
    node_capacity: Option<f64>,

    /// Requests that clients have outstanding while nodes are full: under write-through a write
    /// keeps its record invalid while it waits behind its node's share of them.
    #[arg(long, default_value_t = 256, value_name = "N")]
    outstanding: u32,

    /// Random partition maps that gains are computed for: how keys fall on nodes is chance.
    #[arg(
        long,
        default_value_t = 5,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    maps: u32,

    /// The seed of the maps.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,

    /// Keys that are counted one by one, about 200 B of memory each; with more, those with few
    /// requests count as spread evenly.
    #[arg(
        long,
        default_value_t = 2_000_000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(100..=1 << 30)
    )]
    keys_max: u32,

    /// Zipf exponent of twitter:N, where none was published (43, 46) or instead of it.
    #[arg(long, value_name = "THETA", value_parser = parse_theta)]
    zipf: Option<f64>,

    /// Writes everything to this file, from which `switchback lab draw` draws a figure.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn parse_partitions(text: &str) -> Result<u32, String> {
    let partitions: u32 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    let fits = partitions.is_power_of_two() && partitions <= 1 << 16;
    if fits {
        Ok(partitions)
    } else {
        Err("partitions are a power of two, at most 65536".to_owned())
    }
}

impl PredictArgs {
    fn rack(&self) -> anyhow::Result<Rack> {
        let (nodes, partitions) = (self.nodes, self.partitions);
        ensure!(
            u32::from(nodes) <= partitions,
            "{nodes} nodes share {partitions} partitions; make it at least {} (--partitions)",
            u32::from(nodes).next_power_of_two()
        );
        Ok(Rack {
            nodes,
            partitions,
            cache_records: self.cache_records,
            slot_bytes: self.slot_bytes,
            node_capacity: self.node_capacity,
            outstanding: self.outstanding,
            seed: self.seed,
            maps: self.maps,
        })
    }
}

/// Predicts and prints.
pub fn run(args: &PredictArgs) -> anyhow::Result<ExitCode> {
    args.json.as_deref().map(check_writable).transpose()?;
    let rack = args.rack()?;
    let cluster = args.trace.to_str().and_then(|trace| trace.strip_prefix("twitter:"));
    ensure!(
        args.zipf.is_none() || cluster.is_some_and(|cluster| cluster != "all"),
        "--zipf is of twitter:N only"
    );
    if cluster == Some("all") {
        let overview = overview::overview(rack);
        say(&overview::text(&overview, &rack))?;
        return write_json(args.json.as_deref(), &overview);
    }
    let traffic = match cluster {
        Some(number) => {
            let cluster = twitter::cluster(number).map_err(anyhow::Error::msg)?;
            Traffic::of_cluster(cluster, args.zipf, rack.slot_bytes.into(), EXACT_KEYS)?
        }
        None => {
            let trace = trace::read(&args.trace, args.keys_max as usize)?;
            Traffic::of_trace(args.trace.display().to_string(), trace, rack.slot_bytes.into())
        }
    };
    let prediction = analysis::predict(&traffic, rack);
    say(&text::text(&prediction))?;
    write_json(args.json.as_deref(), &prediction)
}

fn write_json(path: Option<&Path>, what: &impl Serialize) -> anyhow::Result<ExitCode> {
    if let Some(path) = path {
        let json = serde_json::to_vec_pretty(what).context("the prediction as JSON")?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}
