//! The hottest keys of a stream in fixed memory: Space-Saving (Metwally, Agrawal and El Abbadi,
//! "Efficient Computation of Frequent and Top-k Elements in Data Streams", ICDT 2005).

use super::{Access, Subject};
use hashbrown::HashTable;
use switchback_wire::{CACHED_KEY_BYTES_MAX, KeyHash};

/// Keys that are counted at a time.
pub const KEYS: usize = 256;

/// The bytes of a key that are kept: of the longest key that can be cached, all.
pub const SHOWN_KEY_BYTES_MAX: usize = CACHED_KEY_BYTES_MAX;

/// A key and what was counted of it. What came before it was among the [`KEYS`] isn't counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HotKey {
    hash: KeyHash,
    shown: [u8; SHOWN_KEY_BYTES_MAX],
    key_bytes: u16,
    value_bytes: Option<u32>,
    reads: u32,
    writes: u32,
    cached: u32,
}

impl HotKey {
    fn new(hash: KeyHash, key: &[u8]) -> HotKey {
        let mut shown = [0; SHOWN_KEY_BYTES_MAX];
        let length = key.len().min(SHOWN_KEY_BYTES_MAX);
        shown[..length].copy_from_slice(&key[..length]);
        let key_bytes = u16::try_from(key.len()).unwrap_or(u16::MAX);
        HotKey { hash, shown, key_bytes, value_bytes: None, reads: 0, writes: 0, cached: 0 }
    }

    fn count(&mut self, access: Access, value_bytes: Option<u32>) {
        self.reads += u32::from(!access.is_write);
        self.writes += u32::from(access.is_write);
        self.cached += u32::from(access.is_cached);
        self.value_bytes = value_bytes.or(self.value_bytes);
    }

    /// Adds what was counted later of the same key.
    pub(super) fn add(&mut self, later: &HotKey) {
        self.reads += later.reads;
        self.writes += later.writes;
        self.cached += later.cached;
        self.value_bytes = later.value_bytes.or(self.value_bytes);
    }

    /// Its hash in the rack.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }

    /// Its first bytes, to [`SHOWN_KEY_BYTES_MAX`].
    pub fn key(&self) -> &[u8] {
        &self.shown[..usize::from(self.key_bytes).min(SHOWN_KEY_BYTES_MAX)]
    }

    /// Its length.
    pub fn key_bytes(&self) -> u16 {
        self.key_bytes
    }

    /// Length of the value that was read or written last, of those that were sampled.
    pub fn value_bytes(&self) -> Option<u32> {
        self.value_bytes
    }

    /// Samples that were reads.
    pub fn reads(&self) -> u32 {
        self.reads
    }

    /// Samples that were writes or deletes.
    pub fn writes(&self) -> u32 {
        self.writes
    }

    /// Samples of both kinds.
    pub fn samples(&self) -> u32 {
        self.reads + self.writes
    }

    /// Samples that the cache answered.
    pub fn cached(&self) -> u32 {
        self.cached
    }
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Sketch {
    keys: Vec<HotKey>,
    /// Space-Saving's counters: a key that takes another one's place begins with that one's.
    counters: Vec<u32>,
    places: HashTable<u16>,
    samples: u32,
    /// No counter is lower, if all places are taken.
    lowest: u32,
    /// Where the search for a counter that is as low goes on.
    cursor: usize,
}

impl Default for Sketch {
    fn default() -> Sketch {
        Sketch {
            keys: Vec::with_capacity(KEYS),
            counters: Vec::with_capacity(KEYS),
            places: HashTable::with_capacity(KEYS),
            samples: 0,
            lowest: 0,
            cursor: 0,
        }
    }
}

impl Sketch {
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.counters.clear();
        self.places.clear();
        (self.samples, self.lowest, self.cursor) = (0, 0, 0);
    }

    pub(super) fn add(&mut self, access: Access, subject: Subject<'_>) {
        self.samples += 1;
        let at = match self.find(&access.hash) {
            Some(at) => at,
            None => self.take_in(access.hash, subject.key),
        };
        self.counters[at] += 1;
        self.keys[at].count(access, subject.value_bytes);
    }

    fn find(&self, hash: &KeyHash) -> Option<usize> {
        let is_it = |place: &u16| self.keys[usize::from(*place)].hash == *hash;
        self.places.find(hash.low(), is_it).map(|place| usize::from(*place))
    }

    /// Gives a key a place: a free one, or that of the key with the lowest counter.
    fn take_in(&mut self, hash: KeyHash, key: &[u8]) -> usize {
        let key = HotKey::new(hash, key);
        let at = if self.keys.len() < KEYS {
            self.keys.push(key);
            self.counters.push(0);
            self.keys.len() - 1
        } else {
            let at = self.find_lowest();
            let left = std::mem::replace(&mut self.keys[at], key).hash;
            let is_it = |place: &u16| usize::from(*place) == at;
            if let Ok(place) = self.places.find_entry(left.low(), is_it) {
                place.remove();
            }
            at
        };
        let keys = &self.keys;
        let low = |place: &u16| keys[usize::from(*place)].hash.low();
        self.places.insert_unique(hash.low(), at as u16, low);
        at
    }

    /// A place whose counter is the lowest, in amortized constant time: counters only rise, so none
    /// before the cursor is as low, and each pass over all of them raises `lowest`.
    fn find_lowest(&mut self) -> usize {
        loop {
            let rest = &self.counters[self.cursor..];
            if let Some(at) = rest.iter().position(|counter| *counter == self.lowest) {
                self.cursor += at + 1;
                return self.cursor - 1;
            }
            self.cursor = 0;
            self.lowest = self.counters.iter().copied().min().expect("KEYS isn't 0");
        }
    }

    /// All samples, also of keys that have no place.
    pub(super) fn samples(&self) -> u32 {
        self.samples
    }

    /// Samples of a key while it had a place.
    pub(super) fn samples_of(&self, hash: &KeyHash) -> u32 {
        self.find(hash).map_or(0, |at| self.keys[at].samples())
    }

    /// The keys that have a place.
    pub(super) fn keys(&self) -> &[HotKey] {
        &self.keys
    }

    /// Samples that a key had at most that aren't counted, whether it has a place now or not.
    pub(super) fn uncounted_max(&self) -> u32 {
        let is_full = self.keys.len() == KEYS;
        if is_full { self.counters.iter().copied().min().unwrap_or(0) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn hash(number: u32) -> KeyHash {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[8..12].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
        KeyHash(bytes)
    }

    fn add(sketch: &mut Sketch, number: u32) {
        let access =
            Access { hash: hash(number), is_write: number.is_multiple_of(2), is_cached: false };
        sketch.add(access, Subject { key: &number.to_le_bytes(), value_bytes: None });
    }

    #[test]
    fn a_hot_key_stays_among_any_number_of_cold_ones() {
        let mut sketch = Sketch::default();
        for cold in 1..100_000 {
            add(&mut sketch, cold);
            if cold.is_multiple_of(20) {
                add(&mut sketch, 0);
            }
        }
        let hottest = sketch.keys().iter().max_by_key(|key| key.samples()).unwrap();
        assert_eq!((hottest.key(), hottest.key_bytes()), (&[0; 4][..], 4));
        assert!(hottest.samples() > 4_900, "of 5,000: {}", hottest.samples());
        assert_eq!((sketch.keys().len(), sketch.places.len()), (KEYS, KEYS));
    }

    #[test]
    fn of_a_long_key_the_beginning_is_kept_and_the_length_told() {
        let mut sketch = Sketch::default();
        let access = Access { hash: hash(1), is_write: true, is_cached: true };
        sketch.add(access, Subject { key: &[b'k'; 1024], value_bytes: Some(7) });
        let key = &sketch.keys()[0];
        assert_eq!((key.key(), key.key_bytes()), (&[b'k'; SHOWN_KEY_BYTES_MAX][..], 1024));
        assert_eq!((key.writes(), key.cached(), key.value_bytes()), (1, 1, Some(7)));
    }

    proptest! {
        /// What Space-Saving promises: counts are never too high, and too low by at most what the
        /// lowest counter says, which is at most the mean.
        #[test]
        fn counts_are_within_the_bound(
            earlier in prop::collection::vec(0u32..600, 0..4000),
            numbers in prop::collection::vec(0u32..600, 1..4000),
        ) {
            let (mut sketch, mut exact) = (Sketch::default(), BTreeMap::new());
            // A pane of a window is used again.
            earlier.into_iter().for_each(|number| add(&mut sketch, number));
            sketch.clear();
            for number in &numbers {
                add(&mut sketch, number % (1 + number / 2));
                *exact.entry(number % (1 + number / 2)).or_insert(0u32) += 1;
            }
            let uncounted = sketch.uncounted_max();
            prop_assert!(uncounted as usize * KEYS <= numbers.len());
            for (number, count) in exact {
                let found = sketch.find(&hash(number)).map_or(0, |at| sketch.keys[at].samples());
                let is_near = found <= count && count <= found + uncounted;
                prop_assert!(is_near, "{number}: {found} {count}");
            }
        }
    }
}
