//! `switchback bench`: its arguments, and the run of them.

use crate::generator::LADDER;
use crate::rack::{Links, RackFactory};
use crate::redis::RedisArgs;
use crate::workload::{KEY_BYTES, Pattern, ValueBytes, Workload, is_cacheable};
use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde::{Serialize, Serializer};
use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use switchback_core::topology::CHAINS_MAX;
use switchback_terminal::scheme_parser;
use switchback_wire::{CACHED_VALUE_BYTES_MAX, LAYERS_MAX, Scheme};

const EXAMPLES: &str = "\
Examples:
  YCSB A on four nodes that serve 5,000 requests a second each, every scheme, five times in turn:
      switchback bench --workload a --node-capacity 5000 --preload --repeat 5
  Latency at 70 % of what is possible, every read checked:
      switchback bench --schemes farreach --node-capacity 5000 --preload --rate 70% --verify
  How fast the cache learns when 200 cold keys become the hottest every 5 s:
      switchback bench --workload mix:100 --node-capacity 5000 --change hot-in \
          --change-every 5 --seconds 20
  A production cache of Twitter's, as far as it is published:
      switchback bench --workload twitter:51 --node-capacity 5000 --preload
  DistReach beside DistCache, two chains of two switches:
      switchback bench --layers 2 --chains 2 --node-capacity 5000 --preload
  A running gateway beside redis-server with the same durability:
      switchback bench redis --gateway 127.0.0.1:6380 --durability everysec
  What TLS costs a gateway that speaks both:
      switchback bench redis --beside 127.0.0.1:6380 --gateway 127.0.0.1:6390 --cacert ca.crt";

/// Largest rate of a node and of all clients. Due operations are counted one by one, so their
/// number is limited.
pub(crate) const OPS_MAX: f64 = 1e8;
const SECONDS_MAX: f64 = 86_400.0;
const OUTSTANDING_MAX: u32 = 1 << 16;

/// Loads racks and measures them, beside their limits.
///
/// Each scheme runs on a fresh embedded rack with the same keys, the same partition map and the
/// same requests. Throughput is printed beside its limit: node capacity over the largest share of
/// requests that the best content of the cache leaves to one node, for the very map that ran
/// (docs/measure/performance.md).
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,

    #[command(flatten)]
    pub(crate) load: LoadArgs,
}

/// Other measurements.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum BenchCommand {
    /// Compares a running gateway with redis-server, or with another gateway, by redis-benchmark.
    Redis(RedisArgs),
}

/// Arguments of the runs: workload and rack.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct LoadArgs {
    /// load, a, b, c, d, f (as in YCSB), mix:WRITE_PERCENT, or twitter:CLUSTER (twitter:36):
    /// published figures of a production cache, which include the skew and the lengths of keys and
    /// values.
    #[arg(long, default_value = "a", value_name = "NAME")]
    pub(crate) workload: Workload,

    /// Schemes to run.
    #[arg(
        long,
        help = schemes_help(),
        value_name = "SCHEMES",
        value_parser = scheme_parser(),
        value_delimiter = ','
    )]
    pub(crate) schemes: Option<Vec<Scheme>>,

    /// Switches that a request passes, one of each layer; for schemes that have layers.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=i64::from(LAYERS_MAX))
    )]
    pub(crate) layers: u8,

    /// Chains of switches, among which the keys are divided. Each has a cache.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(CHAINS_MAX))
    )]
    pub(crate) chains: u16,

    /// Zipf exponent of the keys' popularity; 0 is uniform [default: 0.99, or as published].
    #[arg(long, value_name = "THETA", value_parser = parse_theta)]
    pub(crate) zipf: Option<f64>,

    /// Records that are stored before the run.
    #[arg(
        long,
        default_value_t = 1_000_000,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..=1 << 40)
    )]
    pub(crate) records: u64,

    /// Length of keys [default: 16, or as published].
    #[arg(long, value_name = "BYTES", value_parser = parse_key_bytes)]
    pub(crate) key_bytes: Option<u32>,

    /// Length of values, 1 to 65536: a number, uniform:MIN..MAX, zipfian:MIN..MAX (short ones most
    /// often) or BYTES:WEIGHT,BYTES:WEIGHT,...; a key keeps its length [default: 128, or as
    /// published].
    #[arg(long, value_name = "BYTES|DISTRIBUTION")]
    pub(crate) value_bytes: Option<ValueBytes>,

    /// Storage nodes.
    #[arg(
        long,
        default_value_t = 4,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub(crate) nodes: u16,

    /// Caps each node at this many requests a second, so that nodes are the bottleneck even on a
    /// small machine. Without it no limit can be computed.
    #[arg(long, value_name = "OPS", value_parser = parse_ops)]
    pub(crate) node_capacity: Option<f64>,

    /// Records that each chain's cache holds.
    #[arg(
        long,
        default_value_t = 10_000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1 << 24)
    )]
    pub(crate) cache_records: u32,

    /// Caches the hottest records before the run; otherwise the cache learns them from cold.
    #[arg(long)]
    pub(crate) preload: bool,

    /// How the parts of a rack are connected.
    #[arg(long, value_enum, default_value_t = Links::Memory)]
    pub(crate) links: Links,

    /// Client threads, one session each.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=256)
    )]
    pub(crate) clients: u32,

    /// Operations that each client has outstanding at most; `best`: of 16, 32, 64, 128, 256, 512
    /// and 1024 those with which the scheme does most, which each run tries first.
    #[arg(long, default_value_t = Outstanding::Each(256), value_name = "N|best")]
    pub(crate) outstanding: Outstanding,

    /// Open loop: operations a second of all clients together, or a percentage of the limit (70%).
    /// Latency counts from the time an operation was due, not from when it was sent.
    #[arg(long, value_name = "OPS|PERCENT%")]
    pub(crate) rate: Option<Rate>,

    /// How the operations of an open loop are spaced.
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson)]
    pub(crate) arrivals: Arrivals,

    /// Seconds that are measured.
    #[arg(long, default_value_t = 10.0, value_name = "S", value_parser = parse_seconds)]
    pub(crate) seconds: f64,

    /// Seconds before that, which don't count.
    #[arg(long, default_value_t = 2.0, value_name = "S", value_parser = parse_seconds_or_none)]
    pub(crate) warmup: f64,

    /// Changes which keys are hot while it runs.
    #[arg(long, value_enum, value_name = "PATTERN")]
    pub(crate) change: Option<Pattern>,

    /// How many keys each change concerns.
    #[arg(
        long,
        default_value_t = 200,
        value_name = "N",
        requires = "change",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) change_keys: u64,

    /// Seconds between changes.
    #[arg(
        long,
        default_value_t = 10.0,
        value_name = "S",
        requires = "change",
        value_parser = parse_seconds
    )]
    pub(crate) change_every: f64,

    /// Seconds between two snapshots of the cache; 0: none.
    #[arg(long, default_value_t = 10.0, value_name = "S", value_parser = parse_seconds_or_none)]
    pub(crate) snapshot_period: f64,

    /// Checks every read and write against what was written and acknowledged, and at the end reads
    /// every record that was written. Ends with a failure if anything doesn't match.
    #[arg(long)]
    pub(crate) verify: bool,

    /// Runs everything this often, schemes in turn, and reports medians and spread.
    #[arg(
        long,
        default_value_t = 1,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub(crate) repeat: u32,

    /// The seed of keys, requests, arrivals and partition map.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,

    /// Where nodes keep their data, in a directory that is removed after the run; the system's
    /// directory for temporary files if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Writes all results to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Lengths of keys and values, and the skew of requests.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Shape {
    pub(crate) zipf: f64,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: ValueBytes,
}

impl LoadArgs {
    /// The schemes to run.
    ///
    /// # Errors
    /// An empty list, and a scheme that has fewer layers than are asked for.
    pub(crate) fn schemes(&self) -> anyhow::Result<Vec<Scheme>> {
        let has_layers = |scheme: &Scheme| scheme.layers_max() >= self.layers;
        let schemes = match (&self.schemes, self.layers) {
            (Some(schemes), _) => schemes.clone(),
            (None, 1) => Scheme::OF_ONE_LAYER.to_vec(),
            (None, _) => Scheme::OF_LAYERS.into_iter().filter(has_layers).collect(),
        };
        anyhow::ensure!(!schemes.is_empty(), "no scheme to run");
        if let Some(scheme) = schemes.iter().find(|scheme| !has_layers(scheme)) {
            anyhow::bail!("--layers {}: {scheme} has at most {}", self.layers, scheme.layers_max());
        }
        Ok(schemes)
    }

    /// The shape as given, else as published for the workload, else the default; and notes about
    /// it.
    pub(crate) fn shape(&self) -> anyhow::Result<(Shape, Vec<String>)> {
        let mut notes = Vec::new();
        let mut shape = Shape {
            zipf: self.zipf.unwrap_or(0.99),
            key_bytes: self.key_bytes.unwrap_or(16),
            value_bytes: self.value_bytes.clone().unwrap_or(ValueBytes::constant(128)),
        };
        let Workload::Twitter(cluster) = self.workload else { return Ok((shape, notes)) };
        notes.push(format!(
            "{cluster}: mean figures of a production cache at Twitter (Yang et al., OSDI 2020; CC BY 4.0); its keys, values and order of requests are made up"
        ));
        if self.zipf.is_none() {
            shape.zipf = cluster.alpha.with_context(|| {
                format!("of {cluster} no Zipf exponent was published: give --zipf")
            })?;
        }
        if let (None, Some(published)) = (self.key_bytes, cluster.key_bytes) {
            shape.key_bytes = published.clamp(KEY_BYTES.0 as u32, KEY_BYTES.1 as u32);
            if shape.key_bytes != published {
                notes.push(format!(
                    "keys have {} B instead of {published}: the generator's are {} to {}",
                    shape.key_bytes, KEY_BYTES.0, KEY_BYTES.1
                ));
            }
        }
        if let (None, Some(published)) = (&self.value_bytes, cluster.value_bytes) {
            anyhow::ensure!(
                is_cacheable(published as usize),
                "values of {cluster} have {published} B, and the cache takes \
                 {CACHED_VALUE_BYTES_MAX}: it can't help there (switchback predict --trace \
                 {cluster}). To run its mix with shorter ones, give --value-bytes"
            );
            shape.value_bytes = ValueBytes::constant(published as usize);
        }
        Ok((shape, notes))
    }
}

/// How many operations each client has outstanding.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outstanding {
    /// This number.
    Each(u32),
    /// As many of [`LADDER`] as the scheme does best with.
    Best,
}

impl Outstanding {
    /// The most that a client may have.
    pub(crate) fn most(self) -> u32 {
        match self {
            Outstanding::Each(operations) => operations,
            Outstanding::Best => LADDER[LADDER.len() - 1],
        }
    }
}

impl FromStr for Outstanding {
    type Err = String;

    fn from_str(text: &str) -> Result<Outstanding, String> {
        match text.parse() {
            _ if text == "best" => Ok(Outstanding::Best),
            Ok(operations) if (1..=OUTSTANDING_MAX).contains(&operations) => {
                Ok(Outstanding::Each(operations))
            }
            _ => Err(format!("it is 1 to {OUTSTANDING_MAX}, or best")),
        }
    }
}

impl fmt::Display for Outstanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outstanding::Each(operations) => write!(f, "{operations}"),
            Outstanding::Best => f.write_str("best"),
        }
    }
}

impl Serialize for Outstanding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Outstanding::Each(operations) => serializer.serialize_u32(*operations),
            Outstanding::Best => serializer.collect_str(self),
        }
    }
}

/// The rate of an open loop.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Rate {
    /// Operations a second.
    Ops(f64),
    /// A share of the limit.
    OfLimit(f64),
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        match text.strip_suffix('%') {
            Some(percent) => Ok(Rate::OfLimit(parse_positive(percent)? / 100.0)),
            None => Ok(Rate::Ops(parse_at_most(text, OPS_MAX)?)),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Ops(ops) => write!(f, "{ops}"),
            Rate::OfLimit(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The spacing of an open loop's operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Arrivals {
    /// Exponentially distributed gaps: Poisson arrivals, as of many independent users.
    Poisson,
    /// Equal gaps.
    Fixed,
}

fn schemes_help() -> String {
    let names =
        |schemes: &[Scheme]| schemes.iter().map(|it| it.name()).collect::<Vec<_>>().join(",");
    format!(
        "Schemes to run, in turn [default: {}; with --layers N those of {} that have N layers]",
        names(&Scheme::OF_ONE_LAYER),
        names(&Scheme::OF_LAYERS)
    )
}

fn parse_number(text: &str) -> Result<f64, String> {
    let number: f64 =
        text.replace(['_', ','], "").parse().map_err(|_| format!("`{text}` is not a number"))?;
    if number.is_finite() { Ok(number) } else { Err(format!("`{text}` is not finite")) }
}

pub(crate) fn parse_positive(text: &str) -> Result<f64, String> {
    let number = parse_number(text)?;
    if number > 0.0 { Ok(number) } else { Err("it must be more than 0".to_owned()) }
}

fn parse_at_most(text: &str, most: f64) -> Result<f64, String> {
    let number = parse_positive(text)?;
    if number <= most { Ok(number) } else { Err(format!("it is at most {most}")) }
}

/// Operations that a node may serve in a second: at least one, since requests would time out
/// otherwise.
fn parse_ops(text: &str) -> Result<f64, String> {
    let ops = parse_at_most(text, OPS_MAX)?;
    if ops >= 1.0 { Ok(ops) } else { Err("it is at least 1".to_owned()) }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = parse_at_most(text, SECONDS_MAX)?;
    if seconds >= 0.001 { Ok(seconds) } else { Err("it is at least 0.001".to_owned()) }
}

fn parse_seconds_or_none(text: &str) -> Result<f64, String> {
    if parse_not_negative(text)? == 0.0 { Ok(0.0) } else { parse_seconds(text) }
}

fn parse_not_negative(text: &str) -> Result<f64, String> {
    let number = parse_number(text)?;
    if number >= 0.0 { Ok(number) } else { Err("it can't be negative".to_owned()) }
}

pub(crate) fn parse_theta(text: &str) -> Result<f64, String> {
    let theta = parse_not_negative(text)?;
    if theta <= 10.0 { Ok(theta) } else { Err("beyond 10 there is only one key".to_owned()) }
}

fn parse_key_bytes(text: &str) -> Result<u32, String> {
    let (from, to) = KEY_BYTES;
    let bytes: u32 = text.parse().map_err(|_| format!("`{text}` is not a number of bytes"))?;
    if (from..=to).contains(&(bytes as usize)) {
        Ok(bytes)
    } else {
        Err(format!("it is {from} to {to}"))
    }
}

/// Runs the benchmark. The exit code is a failure if `--verify` found a mismatch.
pub fn run(args: BenchArgs, racks: &mut dyn RackFactory) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(BenchCommand::Redis(redis)) => crate::redis::run(&redis),
        None => crate::runs::run(&args.load, racks),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Parser, Debug)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn parse(line: &str) -> Result<BenchArgs, String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.bench).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_make_sense() {
        Cli::command().debug_assert();
        let args = parse("").unwrap().load;
        assert_eq!(
            (args.schemes().unwrap().as_slice(), args.workload, args.rate),
            (&Scheme::OF_ONE_LAYER[..], Workload::A, None)
        );
        let args =
            parse("--schemes farreach,nocache --workload mix:30 --rate 70% --node-capacity 5,000")
                .unwrap()
                .load;
        assert_eq!(args.schemes().unwrap(), [Scheme::FarReach, Scheme::NoCache]);
        assert_eq!((args.rate, args.node_capacity), (Some(Rate::OfLimit(0.7)), Some(5000.0)));
        let args =
            parse("--warmup 0 --snapshot-period 0 --change hot-in --change-every 5").unwrap().load;
        assert_eq!((args.warmup, args.snapshot_period, args.change_every), (0.0, 0.0, 5.0));
        let schemes = |line: &str| parse(line).unwrap().load.schemes();
        assert_eq!(schemes("--layers 2 --chains 2").unwrap(), Scheme::OF_LAYERS);
        assert_eq!(schemes("--layers 3").unwrap(), [Scheme::NoCache, Scheme::DistReach]);
        let error = schemes("--layers 2 --schemes nocache,farreach").unwrap_err().to_string();
        assert_eq!(error, "--layers 2: farreach has at most 1");
        let outstanding = |line: &str| parse(line).unwrap().load.outstanding;
        assert_eq!(outstanding(""), Outstanding::Each(256));
        assert_eq!(outstanding("--outstanding best"), Outstanding::Best);
        assert!(matches!(
            parse("redis --gateway 127.0.0.1:6380").unwrap().command,
            Some(BenchCommand::Redis(_))
        ));
    }

    #[test]
    fn a_workload_brings_its_own_shape() {
        let shape = |line: &str| parse(line).unwrap().load.shape();
        let of = |zipf, key_bytes, bytes| {
            let value_bytes = ValueBytes::constant(bytes);
            Shape { zipf, key_bytes, value_bytes }
        };
        assert_eq!(shape("").unwrap(), (of(0.99, 16, 128), Vec::new()));
        let (published, notes) = shape("--workload twitter:36").unwrap();
        assert_eq!((published, notes.len()), (of(1.2169, 23, 78), 1));
        // Keys of 10 B, values of 1 B.
        let (padded, notes) = shape("--workload twitter:45").unwrap();
        assert!(padded.key_bytes == 16 && notes[1].contains("instead of 10"), "{notes:?}");
        assert_eq!(shape("--workload twitter:21").unwrap().0.value_bytes, ValueBytes::constant(1));
        let mixed = shape("--value-bytes 128:9,65536:1").unwrap().0.value_bytes;
        assert_eq!((mixed.to_string().as_str(), mixed.longest()), ("128:9,65536:1", 65_536));
        let error = shape("--workload twitter:37").unwrap_err().to_string();
        assert!(error.contains("20134 B") && error.contains("switchback predict"), "{error}");
        assert_eq!(
            shape("--workload twitter:37 --value-bytes 512").unwrap().0,
            of(0.4251, 72, 512)
        );
        assert!(shape("--workload twitter:46").unwrap_err().to_string().contains("--zipf"));
        assert_eq!(shape("--workload twitter:46 --zipf 0.9").unwrap().0, of(0.9, 44, 928));
    }

    #[test]
    fn wrong_arguments_are_refused_with_a_reason() {
        for (line, reason) in [
            ("--workload e", "scans ranges"),
            ("--workload mix:120", "0 to 100"),
            ("--workload twitter:5", "no figures were published"),
            ("--workload twitter:99", "twitter:1 to twitter:54"),
            ("--zipf=-1", "negative"),
            ("--zipf nan", "finite"),
            ("--rate 0", "more than 0"),
            ("--value-bytes 0", "1 to 65536"),
            ("--value-bytes uniform:1..65537", "1 to 65536"),
            ("--value-bytes normal", "uniform:MIN..MAX"),
            ("--key-bytes 4", "16 to 128"),
            ("--schemes discache", "possible values"),
            ("--rate 1e9", "at most 100000000"),
            ("--seconds 0", "more than 0"),
            ("--seconds 1e-9", "at least 0.001"),
            ("--seconds 1e300", "at most 86400"),
            ("--warmup 1e12", "at most 86400"),
            ("--warmup=-1", "negative"),
            ("--change hot-in --change-every 1e300", "at most 86400"),
            ("--change-every 5", "--change <PATTERN>"),
            ("--change-keys 5", "--change <PATTERN>"),
            ("--snapshot-period 1e300", "at most 86400"),
            ("--snapshot-period 1e-6", "at least 0.001"),
            ("--node-capacity 0.5", "at least 1"),
            ("--node-capacity 1e300", "at most 100000000"),
            ("redis --keys 0", "1..="),
            ("--nodes 257", "1..=256"),
            ("--outstanding 0", "1 to 65536, or best"),
            ("--outstanding most", "1 to 65536, or best"),
            ("--cache-records 0", "1..=16777216"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
