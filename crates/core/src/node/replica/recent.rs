//! A map in capped memory: the least recently used entry makes room.

use std::collections::BTreeMap;
use std::ops::Range;

/// Values by name, of a limited number of bytes.
#[derive(Debug)]
pub(super) struct Recent<K, V> {
    values: BTreeMap<K, Used<V>>,
    /// By last use, oldest first.
    uses: BTreeMap<u64, K>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

#[derive(Debug)]
struct Used<V> {
    value: V,
    bytes: usize,
    at: u64,
}

impl<K: Ord + Copy, V> Recent<K, V> {
    pub(super) fn new(bytes_max: usize) -> Recent<K, V> {
        Recent { values: BTreeMap::new(), uses: BTreeMap::new(), bytes: 0, bytes_max, clock: 0 }
    }

    /// Takes in a value, used now, whose heap has `heap_bytes`. What it takes here counts as well.
    pub(super) fn insert(&mut self, name: K, heap_bytes: usize, value: V) {
        self.remove(&name);
        let bytes = heap_bytes + size_of::<(K, Used<V>)>() + size_of::<(u64, K)>();
        while self.bytes + bytes > self.bytes_max
            && let Some((_, &oldest)) = self.uses.first_key_value()
        {
            self.remove(&oldest);
        }
        self.clock += 1;
        self.bytes += bytes;
        self.uses.insert(self.clock, name);
        self.values.insert(name, Used { value, bytes, at: self.clock });
    }

    pub(super) fn get(&self, name: &K) -> Option<&V> {
        self.values.get(name).map(|used| &used.value)
    }

    pub(super) fn remove(&mut self, name: &K) -> Option<V> {
        let used = self.values.remove(name)?;
        self.uses.remove(&used.at);
        self.bytes -= used.bytes;
        Some(used.value)
    }

    /// The names in a range.
    pub(super) fn names(&self, range: Range<K>) -> Vec<K> {
        self.values.range(range).map(|(name, _)| *name).collect()
    }
}
