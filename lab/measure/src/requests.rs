//! The requests' keys, drawn beforehand: Zipf 0.99 over the cached keys, or over as many that
//! aren't cached.

use crate::cases::{KEY_BYTES, Outcome};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_pcg::Pcg64Mcg;
use switchback_bench::workload::Zipf;
use switchback_wire::{HashKey, KeyHash};

/// As many as fit the kernel's table of them.
pub(crate) const REQUESTS: usize = switchback_xdp::measure::REQUESTS;
const ZIPF: f64 = 0.99;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) key: [u8; KEY_BYTES],
    pub(crate) hash: KeyHash,
    /// For what is decided by chance.
    pub(crate) random: u32,
}

impl Request {
    pub(crate) fn new(index: u64, random: u32) -> Request {
        let mut key = *b"user000000000000";
        key[8..].copy_from_slice(&index.to_be_bytes());
        Request { key, hash: HashKey([3; 16]).hash(&key), random }
    }
}

/// Requests for the keys of `slots` slots, or for keys that no slot has.
pub(crate) fn requests(slots: u32, outcome: Outcome) -> Vec<Request> {
    let first = if outcome == Outcome::Hit { 0 } else { 1 << 40 };
    let mut random = Pcg64Mcg::seed_from_u64(u64::from(slots));
    // Neighbours in memory are no neighbours in popularity.
    let mut keys: Vec<u32> = (0..slots).collect();
    keys.shuffle(&mut random);
    let zipf = Zipf::new(slots.into(), ZIPF);
    let mut draw = |_| {
        let rank = zipf.sample(&mut random) as usize;
        Request::new(first + u64::from(keys[rank]), random.random())
    };
    (0..REQUESTS).map(&mut draw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_hottest_key_has_its_share() {
        let requests = requests(1024, Outcome::Hit);
        let mut counts = HashMap::new();
        for request in &requests {
            *counts.entry(request.key).or_insert(0usize) += 1;
        }
        let expected =
            REQUESTS as f64 / (1..=1024).map(|rank| f64::from(rank).powf(-ZIPF)).sum::<f64>();
        let hottest = *counts.values().max().unwrap() as f64;
        assert!((hottest / expected - 1.0).abs() < 0.05, "{hottest} of {expected}");
        assert!(counts.keys().all(|key| key.starts_with(b"user")));
    }
}
