//! What a rack tells of the load that it has, over HTTP.
#![allow(clippy::unwrap_used)]

mod http;

use http::{WAIT_MAX, get, until};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switchback_rack::admin::{CachedStatus, HeatStatus, HotStatus, KeyPlace};
use switchback_rack::config::{Durability, KeyNames, Overrides, RackConfig};
use switchback_rack::embedded::EmbeddedRack;

fn start(directory: &tempfile::TempDir) -> EmbeddedRack {
    EmbeddedRack::start(&config(directory), None).unwrap()
}

fn config(directory: &tempfile::TempDir) -> RackConfig {
    let any: Option<SocketAddr> = Some("127.0.0.1:0".parse().unwrap());
    let overrides = Overrides {
        nodes: Some(2),
        data: Some(directory.path().into()),
        resp: any,
        metrics: any,
        durability: Some(Durability::Memory),
        workers: Some(1),
        cache_records: Some(64),
        ..Overrides::default()
    };
    RackConfig::load(None, &overrides).unwrap()
}

/// Requests between two pauses of the load, of one connection.
const BATCH: usize = 500;
const PAUSE: Duration = Duration::from_millis(10);
/// The share of the requests that are for the planted key.
const PLANTED: f64 = 0.3;

/// A load of Zipf 0.99 over 1,000 keys, as `user:N`, a quarter of it writes; and of the planted
/// key.
struct Load {
    shared: Arc<(AtomicBool, AtomicU64)>,
    thread: JoinHandle<()>,
    /// Requests that were answered, at some times.
    answered: Vec<(Instant, u64)>,
}

impl Load {
    fn start(rack: &EmbeddedRack) -> Load {
        let shared = Arc::<(AtomicBool, AtomicU64)>::default();
        let (asked, address) = (Arc::clone(&shared), rack.resp_address());
        let thread = std::thread::spawn(move || ask(address, &asked.0, &asked.1));
        Load { shared, thread, answered: Vec::new() }
    }

    /// Requests a second in the last `window`; `None` if it wasn't looked at before that.
    fn rate(&mut self, window: Duration) -> Option<f64> {
        let answered = self.shared.1.load(Ordering::Relaxed);
        self.answered.push((Instant::now(), answered));
        let (since, before) = self.answered.iter().rev().find(|(at, _)| at.elapsed() >= window)?;
        Some((answered - before) as f64 / since.elapsed().as_secs_f64())
    }

    fn end(self) {
        self.shared.0.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}

fn ask(address: SocketAddr, ends: &AtomicBool, answered: &AtomicU64) {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let mut random = Pcg32::seed_from_u64(1);
    let sums: Vec<f64> = (1..=1000)
        .scan(0.0, |sum, rank| {
            *sum += f64::from(rank).powf(-0.99);
            Some(*sum)
        })
        .collect();
    while !ends.load(Ordering::Relaxed) {
        let mut commands = String::new();
        for _ in 0..BATCH {
            let drawn = random.random_range(0.0..sums[999]);
            let rank = sums.partition_point(|sum| *sum < drawn);
            let key = match random.random_bool(PLANTED) {
                true => "planted".to_owned(),
                false => format!("user:{rank}"),
            };
            if random.random_bool(0.25) {
                write!(commands, "SET {key} {:0300}\r\n", 7).unwrap();
            } else {
                // A reply of one line, whether there is a value or not.
                write!(commands, "STRLEN {key}\r\n").unwrap();
            }
        }
        stream.write_all(commands.as_bytes()).unwrap();
        let mut line = String::new();
        (0..BATCH).for_each(|_| {
            replies.read_line(&mut line).unwrap();
        });
        answered.fetch_add(BATCH as u64, Ordering::Relaxed);
        std::thread::sleep(PAUSE);
    }
}

#[test]
fn a_planted_hot_key_is_the_first_and_its_rate_is_right() {
    let directory = tempfile::tempdir().unwrap();
    let rack = start(&directory);
    let idle: HotStatus = get(rack.metrics_address(), "/hot");
    assert_eq!((idle.keys.len(), idle.samples), (0, 0));
    let mut load = Load::start(&rack);
    let near = |found: f64, expected: f64| (found / expected - 1.0).abs() < 0.1;
    let is_right = |hot: &HotStatus| {
        let made = load.rate(Duration::from_secs_f64(hot.window_seconds));
        let (Some(first), Some(made)) = (hot.keys.first(), made) else { return false };
        first.key == "planted"
            && near(first.requests_per_s(), PLANTED * made)
            && near(first.share, PLANTED)
            && first.reads_per_s > 2.0 * first.writes_per_s
            && (first.cache, first.value_bytes) == (Some(KeyPlace::Cached), Some(300))
    };
    let hot = until(rack.metrics_address(), "/hot", is_right);
    assert!(hot.window_seconds <= 3.0 && hot.keys.len() == 20, "{hot:?}");
    assert!(hot.keys[0].node.is_some_and(|node| node < 2), "{hot:?}");
    let range = usize::from(hot.keys[0].range);
    let is_right = |heat: &HeatStatus| {
        let Some(made) = load.rate(Duration::from_secs(2)) else { return false };
        let mut columns = heat.reads_per_s.iter().zip(&heat.writes_per_s).zip(&heat.nodes_per_s);
        let Some(((reads, writes), nodes)) = columns.next_back() else { return false };
        let rate = |range| reads[range] + writes[range];
        let brightest = (0..heat.ranges).max_by(|a, b| rate(*a).total_cmp(&rate(*b)));
        let sum: f64 = (0..heat.ranges).map(rate).sum();
        // The range has a few of the other keys, too.
        let is_hot = rate(range) > 0.9 * PLANTED * made && rate(range) < 1.3 * PLANTED * made;
        brightest == Some(range) && is_hot && near(sum, made) && nodes[range] < 0.1 * rate(range)
    };
    until(rack.metrics_address(), "/heat?seconds=2&columns=1", is_right);
    load.end();
    rack.shutdown(Duration::from_secs(30)).unwrap();
}

#[test]
fn hidden_keys_are_told_by_their_hashes_alone() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&directory);
    config.console.keys = KeyNames::Hash;
    let rack = EmbeddedRack::start(&config, None).unwrap();
    let load = Load::start(&rack);
    let is_there = |cached: &CachedStatus| cached.records.len() > 10;
    let cached: CachedStatus = until(rack.metrics_address(), "/cached", is_there);
    let hot: HotStatus =
        until(rack.metrics_address(), "/hot?seconds=10", |hot: &HotStatus| hot.keys.len() == 20);
    load.end();
    let is_hash = |key: &str| {
        key.strip_prefix('#').is_some_and(|hash| {
            hash.len() == 16 && hash.chars().all(|digit| digit.is_ascii_hexdigit())
        })
    };
    assert!(cached.records.iter().all(|record| is_hash(&record.key)), "{cached:?}");
    for key in &hot.keys {
        assert!(is_hash(&key.key) && key.hash.starts_with(&key.key[1..]), "{key:?}");
        assert!(key.hash.starts_with(&format!("{:02x}", key.range)), "{key:?}");
    }
    rack.shutdown(Duration::from_secs(30)).unwrap();
}

#[test]
fn hot_keys_that_are_not_cached_have_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    let rack = start(&directory);
    let mut stream = TcpStream::connect(rack.resp_address()).unwrap();
    let mut replies = BufReader::new(stream.try_clone().unwrap());
    let (long, large) = ("k".repeat(200), "v".repeat(2000));
    let told = |hot: &HotStatus, key: &str| {
        hot.keys.iter().find(|hot| hot.key == key).and_then(|hot| hot.cache)
    };
    let mut ask = |commands: &str, answer: &str| {
        stream.write_all(commands.as_bytes()).unwrap();
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        assert_eq!(line, answer);
    };
    ask(&format!("SET large {large}\r\n"), "+OK\r\n");
    let start = Instant::now();
    loop {
        for _ in 0..100 {
            ask(&format!("STRLEN {long}\r\n"), ":0\r\n");
            ask("STRLEN large\r\n", ":2000\r\n");
        }
        let hot: HotStatus = get(rack.metrics_address(), "/hot");
        let reasons = (told(&hot, &long[..128]), told(&hot, "large"));
        if reasons == (Some(KeyPlace::KeyTooLong), Some(KeyPlace::ValueTooLarge)) {
            break;
        }
        assert!(start.elapsed() < WAIT_MAX, "{hot:?}");
    }
    rack.shutdown(Duration::from_secs(30)).unwrap();
}
