//! Counting the requests of each key in bounded memory.

use std::collections::HashMap;
use switchback_wire::{CACHED_KEY_BYTES_MAX, HashKey, KeyHash};

/// Keys are identified by their hash under a key that no rack has; random maps are made from these
/// hashes.
const NAMES: HashKey = HashKey(*b"switchback trace");

/// The requests of one operation for one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Access<'a> {
    pub(super) key: &'a [u8],
    /// Length of the key, if it isn't that of its (anonymized) name.
    pub(super) key_bytes: usize,
    pub(super) reads: u8,
    pub(super) writes: u8,
    /// Length of the value, if the trace has it.
    pub(super) value_bytes: Option<u64>,
}

impl<'a> Access<'a> {
    pub(super) fn read(key: &'a [u8]) -> Access<'a> {
        Access { key, key_bytes: key.len(), reads: 1, writes: 0, value_bytes: None }
    }

    pub(super) fn write(key: &'a [u8], value_bytes: u64) -> Access<'a> {
        Access { reads: 0, writes: 1, value_bytes: Some(value_bytes), ..Access::read(key) }
    }

    /// A read, then a write on the condition that the record is still the one that was read.
    pub(super) fn read_modify_write(key: &'a [u8], value_bytes: Option<u64>) -> Access<'a> {
        Access { writes: 1, value_bytes, ..Access::read(key) }
    }
}

/// The requests of one key.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Count {
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// The longest value of the key.
    pub(super) value_bytes: Option<u64>,
    pub(super) key_fits: bool,
}

impl Count {
    pub(super) fn requests(&self) -> u64 {
        self.reads + self.writes
    }
}

/// The requests of all keys. Whenever there are more than `keys_max`, those with few requests are
/// forgotten (as in lossy counting, Manku and Motwani 2002): hot keys stay, and each count lacks at
/// most [`Tally::forgotten_max`] requests. All totals stay exact.
#[derive(Debug)]
pub(super) struct Tally {
    keys: HashMap<KeyHash, Count>,
    pub(super) keys_max: usize,
    pub(super) operations: u64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Requests that a key's count may lack; 0: all counts are exact.
    pub(super) forgotten_max: u64,
}

impl Tally {
    pub(super) fn new(keys_max: usize) -> Tally {
        assert!(keys_max > 0);
        Tally {
            keys: HashMap::new(),
            keys_max,
            operations: 0,
            reads: 0,
            writes: 0,
            forgotten_max: 0,
        }
    }

    pub(super) fn add(&mut self, access: Access<'_>) {
        self.operations += 1;
        self.reads += u64::from(access.reads);
        self.writes += u64::from(access.writes);
        let name = NAMES.hash(access.key);
        if self.keys.len() == self.keys_max && !self.keys.contains_key(&name) {
            self.forget();
        }
        let count = self.keys.entry(name).or_default();
        count.reads += u64::from(access.reads);
        count.writes += u64::from(access.writes);
        count.value_bytes = count.value_bytes.max(access.value_bytes);
        count.key_fits = access.key_bytes <= CACHED_KEY_BYTES_MAX;
    }

    /// Forgets the keys with the fewest requests, at least half of them.
    fn forget(&mut self) {
        let mut requests: Vec<u64> = self.keys.values().map(Count::requests).collect();
        let middle = (requests.len() - 1) / 2;
        let (_, &mut few, _) = requests.select_nth_unstable(middle);
        self.keys.retain(|_, count| count.requests() > few);
        self.forgotten_max += few;
    }

    /// All remembered keys, those with the most requests first.
    pub(super) fn hottest_first(self) -> Vec<(KeyHash, Count)> {
        let mut keys: Vec<_> = self.keys.into_iter().collect();
        keys.sort_unstable_by_key(|(name, count)| (std::cmp::Reverse(count.requests()), *name));
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_keys_stay_and_the_error_is_bounded() {
        let mut tally = Tally::new(100);
        for round in 0..1000u32 {
            tally.add(Access::write(b"hot", 10));
            tally.add(Access::read(b"warm"));
            for cold in 0..10 {
                tally.add(Access::read(format!("{round} {cold}").as_bytes()));
            }
        }
        assert!(tally.keys.len() <= 100 && tally.forgotten_max > 0);
        assert_eq!((tally.operations, tally.reads, tally.writes), (12_000, 11_000, 1000));
        let error = tally.forgotten_max;
        let hottest = tally.hottest_first();
        let hot = hottest.iter().find(|(name, _)| *name == NAMES.hash(b"hot")).unwrap().1;
        assert!(hot.writes <= 1000 && hot.writes + error >= 1000, "{hot:?}, {error}");
        assert!(hottest[..2].iter().any(|(name, _)| *name == NAMES.hash(b"warm")));
    }

    #[test]
    fn counts_are_exact_while_there_is_room() {
        let mut tally = Tally::new(3);
        for access in
            [Access::read(b"a"), Access::write(b"b", 7), Access::write(b"b", 5), Access::read(b"c")]
        {
            tally.add(access);
        }
        tally.add(Access::read_modify_write(b"c", None));
        assert_eq!(tally.forgotten_max, 0);
        let counts: Vec<_> = tally
            .hottest_first()
            .into_iter()
            .map(|(_, c)| (c.reads, c.writes, c.value_bytes))
            .collect();
        assert_eq!(counts, [(2, 1, None), (0, 2, Some(7)), (1, 0, None)]);
    }
}
