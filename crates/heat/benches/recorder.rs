//! What the recorder costs a request, by how many keys there are: more than the sketch has places
//! for, and most samples take another key's place.
//!
//! `cargo bench -p switchback-heat`: requests for random keys, each as often as any other.

use std::hint::black_box;
use std::time::Instant;
use switchback_heat::{Access, Heat, Recorder, Subject};
use switchback_wire::{HashKey, KeyHash};

const KEYS: [u32; 3] = [100, 1_000, 100_000];
const REQUESTS: usize = 5_000_000;
const ROUNDS: usize = 9;

fn main() {
    println!("recorder: {REQUESTS} requests a round, {ROUNDS} rounds");
    println!("  {:>8} {:>10} {:>10}", "keys", "median ns", "spread ns");
    for keys in KEYS {
        let hash = |key: u32| HashKey([7; 16]).hash(&key.to_le_bytes());
        let hashes: Vec<KeyHash> = (0..keys).map(hash).collect();
        let heat = Heat::new(1);
        let mut recorder = Recorder::new(&heat, 0, 1);
        let mut rounds: Vec<f64> = (0..ROUNDS).map(|_| round(&mut recorder, &hashes)).collect();
        rounds.sort_by(f64::total_cmp);
        let spread = rounds[ROUNDS - 1] - rounds[0];
        println!("  {keys:>8} {:>10.2} {spread:>10.2}", rounds[ROUNDS / 2]);
        black_box(heat.counts());
    }
}

/// Nanoseconds a request.
fn round(recorder: &mut Recorder, hashes: &[KeyHash]) -> f64 {
    let mut random = 1u64;
    let began = Instant::now();
    for _ in 0..REQUESTS {
        // Xorshift (Marsaglia, 2003).
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let hash = hashes[(random % hashes.len() as u64) as usize];
        let access = Access { hash, is_write: false, is_cached: true };
        recorder.record(access, || Subject { key: b"user000000000001", value_bytes: Some(128) });
    }
    began.elapsed().as_nanos() as f64 / REQUESTS as f64
}
