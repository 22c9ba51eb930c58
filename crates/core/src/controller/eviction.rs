//! Eviction: mark, store, remove, clear the offer; in this order, each step once the one before is confirmed (FarReach III-C;
//! design, section 5, rule 5).

use super::commands::{Purpose, Stage};
use super::machine::{Controller, Phase};
use crate::control::{BATCH_MAX, EntryId, KeyedRecord, NodeCommand, SwitchCommand};
use crate::storage::Record;
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::KeyHash;

/// Keys that one command evicts, and that may be on their way out at a time.
const EVICT_BATCH: usize = 32;
const EVICTING_MAX: usize = 512;
/// A node that was silent for this long is taken for dead: its keys can't be evicted now, so others go.
const NODE_SILENT_US: u64 = 1_000_000;

impl Controller {
    /// Begins as many evictions as offers wait in vain.
    pub(super) fn make_room(&mut self, now: Now) {
        let Some((active, _)) = self.directory.active else { return };
        let on_their_way = self.cache.evicting();
        let deciding = self.commands.is_evict_begin_out();
        let Some(first) = self.waiting.first() else { return };
        if deciding || on_their_way >= self.waiting.len().min(EVICTING_MAX) {
            return;
        }
        let class = self.cache.class_for(first.value_bytes).expect("checked when it was queued");
        // If it is the number of keys that is used up, and not the slots of a class, anybody may go.
        let class = if self.cache.is_full() { 0 } else { class };
        let count = (self.waiting.len() - on_their_way).min(EVICT_BATCH);
        let wanted = count * self.config.eviction_sample;
        let mut candidates = self.cache.sample(class, wanted, &mut self.random);
        candidates.retain(|id| self.cache.get(*id).is_some_and(|key| self.is_node_alive(now, key.node)));
        // One in `eviction_sample` goes, so that each victim is the least accessed of that many.
        let count = count.min(candidates.len().div_ceil(self.config.eviction_sample));
        self.begin_eviction(now, active, candidates, count);
    }

    fn is_node_alive(&self, now: Now, node: u16) -> bool {
        self.nodes[usize::from(node)].heard_us + NODE_SILENT_US > now.monotonic_us
    }

    fn begin_eviction(&mut self, now: Now, active: u16, candidates: Vec<EntryId>, count: usize) {
        if count == 0 {
            return;
        }
        for id in &candidates {
            self.cache.set_stage(*id, Stage::Candidate);
        }
        let purpose = Purpose::EvictBegin(candidates.clone());
        let body = SwitchCommand::EvictBegin { candidates, count: count as u32 };
        self.commands.command_switch(now, self.directory.epoch, active, purpose, body);
    }

    /// The switch chose: the others stay, these are stored where they are dirty.
    pub(super) fn evicting(&mut self, now: Now, candidates: Vec<EntryId>, evicting: Vec<(EntryId, Option<Record>)>) {
        // One that evicted itself meanwhile is on its way out already.
        let is_candidate = |id: EntryId| self.cache.get(id).is_some_and(|key| key.stage == Stage::Candidate);
        let evicting: Vec<_> = evicting.into_iter().filter(|(id, _)| is_candidate(*id)).collect();
        for (id, _) in &evicting {
            self.cache.set_stage(*id, Stage::Evicting);
        }
        for id in candidates {
            if self.cache.get(id).is_some_and(|key| key.stage == Stage::Candidate) {
                self.cache.set_stage(id, Stage::Cached);
            }
        }
        self.store_evicted(now, evicting);
    }

    fn store_evicted(&mut self, now: Now, evicting: Vec<(EntryId, Option<Record>)>) {
        let mut clean = Vec::new();
        let mut dirty: BTreeMap<u16, (Vec<EntryId>, Vec<KeyedRecord>)> = BTreeMap::new();
        for (id, record) in evicting {
            let Some(key) = self.cache.get(id) else { continue };
            match record {
                None => clean.push(id),
                Some(record) => {
                    let (ids, records) = dirty.entry(key.node).or_default();
                    ids.push(id);
                    records.push(KeyedRecord { hash: key.entry.hash, key: key.entry.key.clone(), record });
                }
            }
        }
        for (node, (ids, records)) in dirty {
            let purpose = Purpose::StoreEvicted(ids);
            self.commands.command_node(now, self.directory.epoch, node, purpose, NodeCommand::Store(records));
        }
        self.evicted_stored(now, clean);
    }

    /// Entries whose records outgrew their slots: the switch began their eviction.
    pub(super) fn evict_themselves(&mut self, now: Now, entries: Vec<(EntryId, Option<Record>)>) {
        let fresh: Vec<_> = entries
            .into_iter()
            .filter(|(id, _)| {
                let stage = self.cache.get(*id).map(|key| key.stage);
                matches!(stage, Some(Stage::Admitting | Stage::Cached | Stage::Candidate))
            })
            .collect();
        for (id, _) in &fresh {
            self.cache.set_stage(*id, Stage::Evicting);
        }
        self.store_evicted(now, fresh);
    }

    /// Their nodes have these records: the switch may forget them.
    pub(super) fn evicted_stored(&mut self, now: Now, entries: Vec<EntryId>) {
        let Some((active, _)) = self.directory.active else { return };
        if entries.is_empty() {
            return;
        }
        if !self.mechanisms.late_clearing {
            for cached in entries.iter().filter_map(|id| self.cache.get(*id)).cloned().collect::<Vec<_>>() {
                self.decline(now, cached.node, vec![(cached.entry.hash, cached.offer)]);
            }
        }
        let purpose = Purpose::Remove(entries.clone());
        self.commands.command_switch(now, self.directory.epoch, active, purpose, SwitchCommand::Remove(entries));
    }

    /// The switch has forgotten these: only now may their nodes offer them again.
    pub(super) fn removed(&mut self, now: Now, entries: Vec<EntryId>) {
        let mut offers: BTreeMap<u16, Vec<(KeyHash, u64)>> = BTreeMap::new();
        for id in entries {
            let Some(key) = self.cache.get(id) else { continue };
            offers.entry(key.node).or_default().push((key.entry.hash, key.offer));
            self.cache.set_stage(id, Stage::Clearing);
        }
        for (node, offers) in offers {
            self.decline(now, node, offers);
        }
    }

    pub(super) fn offers_cleared(&mut self, offers: Vec<(KeyHash, u64)>) {
        for (hash, _) in offers {
            if let Some(key) = self.cache.find(&hash)
                && key.stage == Stage::Clearing
            {
                let id = key.entry.id;
                self.cache.forget(id);
            }
        }
    }

    /// Evicts everything and admits nothing any more, so that every record is at its node. It lasts until everybody who asked for it has
    /// called [`Controller::resume`], so that nobody ends what somebody else waits for.
    pub fn drain(&mut self, now: Now) {
        self.drains += 1;
        for (node, offer) in self.waiting.drain() {
            self.decline(now, node, vec![(offer.hash, offer.id)]);
        }
        self.go_on(now);
    }

    /// Ends a drain, done or not: once nobody wants another one, keys are admitted again.
    pub fn resume(&mut self) {
        assert!(self.is_draining(), "nobody drains");
        self.drains -= 1;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drains > 0
    }

    /// Whether a drain has finished: nothing is cached, nothing is preserved, no offer stands.
    pub fn is_drained(&self) -> bool {
        let clearing = self.commands.any(|purpose| matches!(purpose, Purpose::ClearOffers(_) | Purpose::Remove(_)));
        let quiet = matches!(self.phase, Phase::Serving | Phase::Waiting);
        self.is_draining() && quiet && self.cache.iter().next().is_none() && !clearing
    }

    pub(super) fn drain_on(&mut self, now: Now) {
        let Some((active, _)) = self.directory.active else { return };
        if !self.is_draining() || self.commands.is_evict_begin_out() {
            return;
        }
        let candidates = self.cache.evictable(BATCH_MAX);
        let count = candidates.len();
        self.begin_eviction(now, active, candidates, count);
    }
}
