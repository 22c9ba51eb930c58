//! Whether admissions slow what is cached. A connection reads cached keys of an embedded rack at a
//! steady rate, and another one meanwhile writes and reads new keys, one after the other. In turn
//! these are keys that the cache takes, so that all of them are admitted, and keys that are a byte
//! too long for it, so that the rack does the same work but for the admissions.
//!
//! ```sh
//! cargo run --release -p switchback-bench --example admissions
//! ```
//!
//! A latency counts from when a read was due, if the answer before it came later than that, and
//! else from when it was sent: it has what the rack made reads wait for, and not how late the
//! system woke this program.

use anyhow::{Context as _, ensure};
use clap::Parser;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switchback_bench::report::{Machine, Spread, grouped, say};
use switchback_bench::scratch::Scratch;
use switchback_rack::admin::RackStatus;
use switchback_rack::config::{Cache, Durability, Overrides, RackConfig, SyncChoice};
use switchback_rack::embedded::EmbeddedRack;
use switchback_terminal::Table;
use switchback_wire::CACHED_KEY_BYTES_MAX;

/// Keys that are cached and read all the time.
const CACHED: u32 = 1_000;
const VALUE_BYTES: usize = 128;
/// For any answer, for the cache to take the first keys, and for the rack to stop.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser)]
struct Cli {
    /// How often both are measured, in turn.
    #[arg(
        long,
        default_value_t = 15,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100)
    )]
    pairs: u32,
    /// New keys of a measurement.
    #[arg(
        long,
        default_value_t = 10_000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    keys: u32,
    /// Reads of cached keys in a second.
    #[arg(
        long,
        default_value_t = 5_000,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000)
    )]
    rate: u32,
    /// Where the rack keeps its data, in a directory that is removed; the system's directory for
    /// temporary files if not given.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let args = Cli::parse();
    let scratch = Scratch::new(args.data.as_deref(), "admissions")?;
    let rack = EmbeddedRack::start(&configured(&args, scratch.path())?, None)?;
    let measured = measure(&args, &rack);
    let stopped = rack.shutdown(PATIENCE).map_err(anyhow::Error::msg);
    let (refused, admitted) = measured?;
    stopped?;
    report(&args, &refused, &admitted)
}

/// A rack whose cache has room for all keys.
fn configured(args: &Cli, data: &Path) -> anyhow::Result<RackConfig> {
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    let overrides = Overrides {
        data: Some(data.to_path_buf()),
        resp: Some(any),
        metrics: Some(any),
        durability: Some(Durability::Memory),
        cache_records: Some(CACHED + args.keys * args.pairs),
        sync: Some(SyncChoice::None),
        ..Overrides::default()
    };
    let mut config = RackConfig::load(None, &overrides)?;
    let (records, value_bytes) = (config.cache.records, VALUE_BYTES as u32);
    config.cache.classes = Cache::classes_of_one_size(records, value_bytes);
    // So wide that no key has to be counted twice, since its counters have counts of others.
    config.cache.sketch_width = 1 << 20;
    config.rack.snapshot_period_ms = 0;
    Ok(config)
}

/// What was seen of cached keys while new ones were asked for.
struct Round {
    reads: usize,
    p50_us: f64,
    p99_us: f64,
    /// New keys that were admitted.
    admitted: u64,
}

/// Rounds with keys that are too long to be admitted, and with keys that are admitted.
fn measure(args: &Cli, rack: &EmbeddedRack) -> anyhow::Result<(Vec<Round>, Vec<Round>)> {
    let mut reader = Connection::open(rack.resp_address())?;
    let mut other = Connection::open(rack.resp_address())?;
    let cached: Vec<_> = (0..CACHED).map(|number| key("cached", number, 16)).collect();
    fill(rack, &mut reader, &cached)?;
    let (mut refused, mut admitted) = (Vec::new(), Vec::new());
    for pair in 0..args.pairs {
        let mut beside = |key_bytes| {
            let first = args.keys * pair;
            let new = (first..first + args.keys).map(|number| key("new", number, key_bytes));
            round(rack, args.rate, &mut reader, &cached, &mut other, new)
        };
        let (fits, too_long) = (CACHED_KEY_BYTES_MAX, CACHED_KEY_BYTES_MAX + 1);
        // Which is first changes, too.
        if pair % 2 == 0 {
            refused.push(beside(too_long)?);
            admitted.push(beside(fits)?);
        } else {
            admitted.push(beside(fits)?);
            refused.push(beside(too_long)?);
        }
    }
    Ok((refused, admitted))
}

/// A key of this length.
fn key(kind: &str, number: u32, bytes: usize) -> Vec<u8> {
    format!("{kind}:{number:0>width$}", width = bytes - kind.len() - 1).into_bytes()
}

/// Writes these keys, and reads them until the cache answers.
fn fill(rack: &EmbeddedRack, reader: &mut Connection, keys: &[Vec<u8>]) -> anyhow::Result<()> {
    let begin = Instant::now();
    while status(rack)?.cache.records < Some(keys.len() as u64) {
        ensure!(begin.elapsed() < PATIENCE, "the keys that are to be read aren't cached");
        for key in keys {
            reader.set(key)?;
        }
    }
    // The first read of a key makes its record latest.
    keys.iter().try_for_each(|key| reader.get(key))
}

/// Reads cached keys at this rate a second, while `other` writes and reads new ones.
fn round(
    rack: &EmbeddedRack,
    rate: u32,
    reader: &mut Connection,
    cached: &[Vec<u8>],
    other: &mut Connection,
    mut new: impl Iterator<Item = Vec<u8>> + Send,
) -> anyhow::Result<Round> {
    let admissions = || Ok::<_, anyhow::Error>(status(rack)?.cache.admissions.unwrap_or(0));
    let before = admissions()?;
    let is_over = AtomicBool::new(false);
    let mut waits = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let asked = new.try_for_each(|key| other.set(&key).and_then(|()| other.get(&key)));
            is_over.store(true, Ordering::Relaxed);
            asked
        });
        let waits = reads(reader, cached, rate, &is_over);
        asking.join().expect("it doesn't panic")?;
        waits
    })?;
    waits.sort();
    let us = |share: usize| waits[waits.len() * share / 100].as_nanos() as f64 / 1000.0;
    let admitted = admissions()? - before;
    Ok(Round { reads: waits.len(), p50_us: us(50), p99_us: us(99), admitted })
}

/// Reads keys at this rate a second until it is over; how long each read took.
fn reads(
    reader: &mut Connection,
    keys: &[Vec<u8>],
    rate: u32,
    is_over: &AtomicBool,
) -> anyhow::Result<Vec<Duration>> {
    let gap = Duration::from_secs(1) / rate;
    let (mut waits, mut due) = (Vec::new(), Instant::now());
    for key in keys.iter().cycle() {
        if is_over.load(Ordering::Relaxed) && !waits.is_empty() {
            break;
        }
        let is_late = Instant::now() >= due;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let begin = if is_late { due } else { Instant::now() };
        reader.get(key)?;
        waits.push(begin.elapsed());
        due += gap;
    }
    Ok(waits)
}

fn status(rack: &EmbeddedRack) -> anyhow::Result<RackStatus> {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().proxy(None).timeout_global(Some(PATIENCE)).build().into();
    let mut answer = agent.get(format!("http://{}/status", rack.metrics_address())).call()?;
    Ok(serde_json::from_str(&answer.body_mut().read_to_string()?)?)
}

fn report(args: &Cli, refused: &[Round], admitted: &[Round]) -> anyhow::Result<()> {
    let Machine { cpus, model, kernel } = Machine::here();
    say(&format!(
        "{cpus} CPUs of {model}, Linux {kernel}\n\
         {} reads of cached keys a second, beside {} new keys written and read; \
         medians of {} pairs (least..greatest)\n",
        grouped(args.rate.into()),
        grouped(args.keys.into()),
        args.pairs
    ))?;
    let spread = |rounds: &[Round], of: fn(&Round) -> f64| {
        let spread = Spread::of(rounds.iter().map(of)).expect("there is a pair");
        format!("{:.1} ({:.1}..{:.1})", spread.median, spread.min, spread.max)
    };
    let mut table = Table::of_numbers(["new keys", "admitted", "reads", "p50, us", "p99, us"]);
    for (name, rounds) in [("too long for the cache", refused), ("admitted", admitted)] {
        table.row([
            name.to_owned(),
            least(rounds.iter().map(|round| round.admitted)),
            least(rounds.iter().map(|round| round.reads as u64)),
            spread(rounds, |round| round.p50_us),
            spread(rounds, |round| round.p99_us),
        ]);
    }
    say(&table.to_string())?;
    let ratio = |of: fn(&Round) -> f64| {
        let pairs = refused.iter().zip(admitted);
        let spread = Spread::of(pairs.map(|(refused, admitted)| of(admitted) / of(refused)));
        let spread = spread.expect("there is a pair");
        format!("{:.2} ({:.2}..{:.2})", spread.median, spread.min, spread.max)
    };
    let (p50, p99) = (ratio(|round| round.p50_us), ratio(|round| round.p99_us));
    say(&format!("  admitted / too long, by pairs: p50 {p50}, p99 {p99}\n"))
}

/// The fewest of all rounds.
fn least(counts: impl Iterator<Item = u64>) -> String {
    format!(">= {}", grouped(counts.min().unwrap_or(0) as f64))
}

/// A blocking connection to the gateway.
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    reply: Vec<u8>,
    value: Vec<u8>,
}

impl Connection {
    fn open(address: SocketAddr) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let value = vec![b'v'; VALUE_BYTES];
        Ok(Connection { stream, request: Vec::new(), reply: Vec::new(), value })
    }

    fn set(&mut self, key: &[u8]) -> anyhow::Result<()> {
        write!(self.request, "*3\r\n$3\r\nSET\r\n${}\r\n", key.len())?;
        self.request.extend_from_slice(key);
        write!(self.request, "\r\n${VALUE_BYTES}\r\n")?;
        self.request.extend_from_slice(&self.value);
        self.request.extend_from_slice(b"\r\n");
        self.run(b"+OK\r\n")
    }

    fn get(&mut self, key: &[u8]) -> anyhow::Result<()> {
        write!(self.request, "*2\r\n$3\r\nGET\r\n${}\r\n", key.len())?;
        self.request.extend_from_slice(key);
        self.request.extend_from_slice(b"\r\n");
        let mut reply = format!("${VALUE_BYTES}\r\n").into_bytes();
        reply.extend_from_slice(&self.value);
        reply.extend_from_slice(b"\r\n");
        self.run(&reply)
    }

    /// Sends the request, and takes the reply, which must be this one.
    fn run(&mut self, expected: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(&self.request)?;
        self.request.clear();
        self.reply.resize(expected.len(), 0);
        self.stream.read_exact(&mut self.reply).context("a reply")?;
        ensure!(self.reply == expected, "a reply: {}", String::from_utf8_lossy(&self.reply));
        Ok(())
    }
}
