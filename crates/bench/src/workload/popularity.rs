//! The records' popularity ranks, and how these change (FarReach VI-C, Exp#7).

use super::mix;
use clap::ValueEnum;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;
use std::collections::HashMap;

/// How popularity changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// The coldest keys become the hottest; all others move down.
    HotIn,
    /// The hottest keys become the coldest; all others move up.
    HotOut,
    /// Random ones of the 10,000 hottest keys change places with the coldest.
    Random,
}

/// A periodic change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Change {
    /// What changes.
    pub pattern: Pattern,
    /// How many keys each time.
    pub keys: u64,
}

/// [`Pattern::Random`] chooses among this number of the hottest keys.
const RANDOM_AMONG: u64 = 10_000;

/// A permutation of the records: rank (0 is the hottest) to index.
#[derive(Clone, Debug)]
pub struct Popularity {
    records: u64,
    /// The newest record is the hottest, not the oldest.
    latest: bool,
    change: Option<Change>,
    seed: u64,
    phase: u32,
    /// A rank without an entry in `swapped` stands for the rank this much further on.
    shift: u64,
    /// Ranks that changed places.
    swapped: HashMap<u64, u64>,
}

impl Popularity {
    /// The popularity before any change.
    pub fn new(records: u64, latest: bool, change: Option<Change>, seed: u64) -> Popularity {
        assert!(records > 0);
        Popularity { records, latest, change, seed, phase: 0, shift: 0, swapped: HashMap::new() }
    }

    /// How many changes have happened.
    pub fn phase(&self) -> u32 {
        self.phase
    }

    /// The record of a rank.
    #[inline]
    pub fn index(&self, rank: u64) -> u64 {
        let mut rank = rank + self.shift;
        if rank >= self.records {
            rank -= self.records;
        }
        if !self.swapped.is_empty()
            && let Some(&other) = self.swapped.get(&rank)
        {
            rank = other;
        }
        if self.latest { self.records - 1 - rank } else { rank }
    }

    /// Sets the popularity to the one after `phase` changes.
    pub fn set_phase(&mut self, phase: u32) {
        if phase < self.phase {
            *self = Popularity::new(self.records, self.latest, self.change, self.seed);
        }
        let Some(change) = self.change else { return };
        let keys = change.keys.min(self.records);
        while self.phase < phase {
            self.phase += 1;
            match change.pattern {
                Pattern::HotIn => self.shift = (self.shift + self.records - keys) % self.records,
                Pattern::HotOut => self.shift = (self.shift + keys) % self.records,
                Pattern::Random => self.swap_some(keys),
            }
        }
    }

    fn swap_some(&mut self, keys: u64) {
        let hot = RANDOM_AMONG.min(self.records / 2);
        let mut random = Pcg64Mcg::seed_from_u64(mix(self.seed ^ u64::from(self.phase)));
        let mut chosen: Vec<u64> = Vec::new();
        while (chosen.len() as u64) < keys.min(hot) {
            let rank = random.random_range(0..hot);
            if !chosen.contains(&rank) {
                chosen.push(rank);
            }
        }
        let before = u64::from(self.phase - 1) * keys;
        for (at, rank) in chosen.into_iter().enumerate() {
            // Each change takes keys that were cold so far.
            let cold = self.records - 1 - (before + at as u64) % (self.records - hot);
            let (a, b) = (
                *self.swapped.get(&rank).unwrap_or(&rank),
                *self.swapped.get(&cold).unwrap_or(&cold),
            );
            self.swapped.insert(rank, b);
            self.swapped.insert(cold, a);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn order(popularity: &Popularity) -> Vec<u64> {
        (0..popularity.records).map(|rank| popularity.index(rank)).collect()
    }

    fn after(pattern: Pattern, keys: u64, records: u64, phase: u32) -> Popularity {
        let mut popularity = Popularity::new(records, false, Some(Change { pattern, keys }), 1);
        popularity.set_phase(phase);
        popularity
    }

    #[test]
    fn hot_in_brings_the_coldest_to_the_top() {
        assert_eq!(order(&after(Pattern::HotIn, 2, 6, 1)), [4, 5, 0, 1, 2, 3]);
        assert_eq!(order(&after(Pattern::HotIn, 2, 6, 2)), [2, 3, 4, 5, 0, 1]);
    }

    #[test]
    fn hot_out_sends_the_hottest_to_the_bottom() {
        assert_eq!(order(&after(Pattern::HotOut, 2, 6, 1)), [2, 3, 4, 5, 0, 1]);
    }

    #[test]
    fn random_replaces_hot_keys_by_cold_ones_and_nothing_else() {
        let (records, keys) = (50_000, 200);
        let changed = order(&after(Pattern::Random, keys, records, 1));
        let hot: Vec<_> = (0..10_000).filter(|&rank| changed[rank] != rank as u64).collect();
        assert_eq!(hot.len(), 200);
        assert!(hot.iter().all(|&rank| changed[rank] >= records - keys));
        assert!((10_000..49_800).all(|rank| changed[rank] == rank as u64));
    }

    #[test]
    fn the_latest_record_is_the_hottest() {
        assert_eq!(order(&Popularity::new(4, true, None, 1)), [3, 2, 1, 0]);
    }

    proptest! {
        #[test]
        fn it_stays_a_permutation_and_phases_can_be_set_in_any_order(
            records in 2u64..500,
            keys in 1u64..60,
            phase in 0u32..40,
            detour in 0u32..40,
            pattern in prop_oneof![
                Just(Pattern::HotIn),
                Just(Pattern::HotOut),
                Just(Pattern::Random),
            ],
        ) {
            let popularity = after(pattern, keys, records, phase);
            let mut sorted = order(&popularity);
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..records).collect::<Vec<_>>());
            let mut other = after(pattern, keys, records, detour);
            other.set_phase(phase);
            prop_assert_eq!(order(&other), order(&popularity));
        }
    }
}
