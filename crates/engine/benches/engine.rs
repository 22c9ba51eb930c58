//! What the engine costs beside RocksDB itself: the same bytes, the same group sizes, the same
//! options, in the same run.
//!
//! `cargo bench -p switchback-engine [-- seconds]`: keys of 16 bytes, values of 128, as in the
//! papers; no fsync, one thread.
#![allow(clippy::unwrap_used)] // A benchmark that can't write has nothing to report.

use rocksdb::{DB, WriteBatch};
use std::time::{Duration, Instant};
use switchback_core::storage::*;
use switchback_engine::rocks::{Options, RocksEngine};
use switchback_engine::{Engine as _, SyncPolicy};
use switchback_wire::{HashKey, KeyHash, Seq};

const KEYS: u64 = 1_000_000;
const VALUE: [u8; 128] = [0x5a; 128];
const GROUPS: [usize; 3] = [1, 16, 256];

/// Operations a second of `group`, which does `size` at a time.
fn measure(seconds: f64, size: usize, mut group: impl FnMut()) -> f64 {
    let (began, mut operations) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs_f64(seconds) {
        group();
        operations += size;
    }
    operations as f64 / began.elapsed().as_secs_f64()
}

/// Keys in a random order, which is the same for both.
struct Keys(u64);

impl Keys {
    fn next(&mut self) -> [u8; 16] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        key(self.0 % KEYS)
    }
}

fn key(number: u64) -> [u8; 16] {
    let mut key = *b"key:............";
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn line(what: &str, size: usize, ours: f64, raw: f64) {
    println!("{what:<22} {size:>5} {:>10.0} {:>10.0} {:>8.2}", ours, raw, ours / raw);
}

struct Ours {
    engine: RocksEngine,
    hash: HashKey,
    seq: u64,
    ops: Vec<EngineOp>,
    done: Vec<EngineDone>,
}

impl Ours {
    fn put(&mut self, key: [u8; 16], known: bool) {
        self.seq += 1;
        let record = Record { seq: Seq(self.seq), value: VALUE.to_vec(), ..Record::default() };
        let (hash, key, condition) =
            (self.hash.hash(&key), key.to_vec(), PutCondition::Newer { known });
        self.ops.push(EngineOp::Put {
            id: self.seq,
            hash,
            key,
            record,
            condition,
            completion: None,
            source: Source::Client,
            unconfirmed: None,
        });
    }

    fn get(&mut self, key: [u8; 16]) {
        let (hash, key): (KeyHash, _) = (self.hash.hash(&key), key.to_vec());
        self.ops.push(EngineOp::Get { id: 0, hash, key });
    }

    fn run(&mut self) {
        self.engine.execute(&mut self.ops, &mut self.done);
        assert!(self.done.drain(..).all(|done| done.result.is_ok()));
    }
}

/// RocksDB as the engine opens it, without the engine: keys of the same bytes, values with the same
/// 18 bytes before them.
fn raw_database(path: &std::path::Path) -> DB {
    let options = Options::default();
    let cache = rocksdb::Cache::new_lru_cache(options.block_cache_bytes);
    let mut blocks = rocksdb::BlockBasedOptions::default();
    blocks.set_block_cache(&cache);
    blocks.set_bloom_filter(10.0, false);
    let mut raw = rocksdb::Options::default();
    raw.create_if_missing(true);
    raw.set_block_based_table_factory(&blocks);
    raw.set_compression_type(rocksdb::DBCompressionType::Lz4);
    raw.set_write_buffer_size(options.memtable_bytes / 4);
    raw.set_max_write_buffer_number(3);
    DB::open(&raw, path).unwrap()
}

fn stored_key(hash: &HashKey, key: [u8; 16]) -> [u8; 32] {
    let mut stored = [0; 32];
    stored[..16].copy_from_slice(&hash.hash(&key).0);
    stored[16..].copy_from_slice(&key);
    stored
}

fn main() {
    let seconds =
        std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(2.0);
    let (ours_dir, raw_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let options = Options { sync: SyncPolicy::None, ..Options::default() };
    let hash = HashKey([7; 16]);
    let (engine, _) = RocksEngine::open(ours_dir.path(), &options).unwrap();
    let mut ours = Ours { engine, hash, seq: 0, ops: Vec::new(), done: Vec::new() };
    let raw = raw_database(raw_dir.path());
    let value = [0x5a; 18 + VALUE.len()];
    for first in (0..KEYS).step_by(1000) {
        let mut batch = WriteBatch::default();
        for number in first..first + 1000 {
            ours.put(key(number), true);
            batch.put(stored_key(&hash, key(number)), value);
        }
        ours.run();
        raw.write(batch).unwrap();
    }
    ours.engine.compact().unwrap();
    raw.compact_range(None::<&[u8]>, None::<&[u8]>);

    println!("{KEYS} keys of 16 B, values of {} B, no fsync; operations/s", VALUE.len());
    println!("{:<22} {:>5} {:>10} {:>10} {:>8}", "", "group", "engine", "rocksdb", "ratio");
    for size in GROUPS {
        let (mut keys, mut same) = (Keys(42), Keys(42));
        let read = measure(seconds, size, || {
            (0..size).for_each(|_| ours.get(keys.next()));
            ours.run();
        });
        let base = measure(seconds, size, || {
            for _ in 0..size {
                assert!(raw.get_pinned(stored_key(&hash, same.next())).unwrap().is_some());
            }
        });
        line("get", size, read, base);
    }
    for (what, known) in [("put, known newer", true), ("put, with read", false)] {
        for size in GROUPS {
            let (mut keys, mut same) = (Keys(42), Keys(42));
            let written = measure(seconds, size, || {
                (0..size).for_each(|_| ours.put(keys.next(), known));
                ours.run();
            });
            let base = measure(seconds, size, || {
                let mut batch = WriteBatch::default();
                for _ in 0..size {
                    let key = stored_key(&hash, same.next());
                    assert!(known || raw.get_pinned(key).unwrap().is_some());
                    batch.put(key, value);
                }
                raw.write(batch).unwrap();
            });
            line(what, size, written, base);
        }
    }
    synced(&mut ours, raw_dir.path(), seconds);
}

/// What an fsync a group costs, and how groups share it.
fn synced(ours: &mut Ours, beside: &std::path::Path, seconds: f64) {
    let (engine, _) = RocksEngine::open(beside.join("synced"), &Options::default()).unwrap();
    ours.engine = engine;
    for size in GROUPS {
        let mut keys = Keys(42);
        let written = measure(seconds, size, || {
            (0..size).for_each(|_| ours.put(keys.next(), true));
            ours.run();
        });
        println!("{:<22} {size:>5} {written:>10.0}", "put, known, fsync");
    }
}
