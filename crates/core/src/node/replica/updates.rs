//! Values on their way into the cache, until the switch acknowledges them (NetCache).

use std::collections::{BTreeMap, VecDeque};
use switchback_wire::{Address, KeyHash, Packet, Seq};

#[derive(Clone, Debug)]
struct CacheUpdate {
    seq: Seq,
    packet: Packet,
    switch: Address,
}

/// The newest value of each key that is on its way.
#[derive(Debug, Default)]
pub(super) struct CacheUpdates {
    updates: BTreeMap<KeyHash, CacheUpdate>,
    /// Keys whose values are to be read and sent: all that may be cached, after a restart.
    refresh: VecDeque<KeyHash>,
}

impl CacheUpdates {
    pub(super) fn new(refresh: VecDeque<KeyHash>) -> CacheUpdates {
        CacheUpdates { updates: BTreeMap::new(), refresh }
    }

    pub(super) fn has_newer(&self, hash: &KeyHash, seq: Seq) -> bool {
        self.updates.get(hash).is_some_and(|update| update.seq > seq)
    }

    pub(super) fn insert(&mut self, hash: KeyHash, seq: Seq, packet: Packet, switch: Address) {
        self.updates.insert(hash, CacheUpdate { seq, packet, switch });
    }

    /// The switch has this version, or a newer one.
    pub(super) fn acknowledged(&mut self, hash: &KeyHash, seq: Seq) {
        if self.updates.get(hash).is_some_and(|update| update.seq <= seq) {
            self.updates.remove(hash);
        }
    }

    pub(super) fn remove(&mut self, hash: &KeyHash) {
        self.updates.remove(hash);
    }

    /// Those of keys that `is_of` a chain are on their way to a cache that is empty now.
    pub(super) fn forget(&mut self, is_of: impl Fn(&KeyHash) -> bool) {
        self.updates.retain(|hash, _| !is_of(hash));
    }

    /// All packets, and where they go.
    pub(super) fn packets(&self) -> impl Iterator<Item = (Address, &Packet)> {
        self.updates.values().map(|update| (update.switch, &update.packet))
    }

    pub(super) fn refresh(&mut self, keys: impl Iterator<Item = KeyHash>) {
        self.refresh.extend(keys);
    }

    pub(super) fn next_refresh(&mut self) -> Option<KeyHash> {
        self.refresh.pop_front()
    }
}
