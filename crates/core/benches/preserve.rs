//! What preserving a record costs the client (FarReach reports 0.7 us; the aim here is 0.3).

use std::hint::black_box;
use std::time::Instant;
use switchback_core::client::Preservation;
use switchback_wire::{HashKey, KeyHash, Seq};

const RECORDS: usize = 10_000;
const WRITES: usize = 2_000_000;
const ROUNDS: usize = 9;

fn main() {
    let hash_key = HashKey([7; 16]);
    let keys: Vec<Vec<u8>> = (0..RECORDS).map(|i| format!("user{i:012}").into_bytes()).collect();
    let hashes: Vec<KeyHash> = keys.iter().map(|key| hash_key.hash(key)).collect();
    let value = [9; 128];
    println!(
        "preservation of {RECORDS} hot records of 16 + 128 B, {WRITES} writes a round, {ROUNDS} rounds"
    );
    println!("  {:<28} {:>10} {:>10}", "", "median ns", "spread ns");
    let mut preservation = Preservation::default();
    let mut seq = 0;
    row("preserve a write", |at| {
        seq += 1;
        preservation.keep(hashes[at], &keys[at], &value, Seq(seq), false, 0, 1);
    });
    row("preserve it, hand to a spool", |at| {
        seq += 1;
        preservation.keep(hashes[at], &keys[at], &value, Seq(seq), false, 0, 1);
        if seq % 800 == 0 {
            preservation.drain_touched(|kept| {
                black_box(kept);
            });
        }
    });
    let mut copies = vec![[0u8; 144]; RECORDS];
    row("limit: copy its 144 bytes", |at| {
        copies[at][..16].copy_from_slice(&keys[at]);
        copies[at][16..].copy_from_slice(black_box(&value));
    });
}

fn row(name: &str, mut write: impl FnMut(usize)) {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            let mut at = 0;
            for _ in 0..WRITES {
                at = (at + 7919) % RECORDS;
                write(at);
            }
            start.elapsed().as_nanos() as f64 / WRITES as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("  {name:<28} {:>10.1} {:>10.1}", rounds[ROUNDS / 2], rounds[ROUNDS - 1] - rounds[0]);
}
