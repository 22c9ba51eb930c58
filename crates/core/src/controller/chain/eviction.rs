//! Eviction: mark at the owner, store, remove at the owner, then at its keepers, clear the offer;
//! in this order, each step once the one before is confirmed (FarReach III-C; rules 5 and 21). A
//! drain evicts everything.

use super::cache::{CachedKey, Stage};
use super::commands::Order;
use super::work::Work;
use super::{Chain, Context, ControllerConfig, Phase};
use crate::control::{BATCH_MAX, EntryId, KeyedRecord, Offer, SwitchCommand};
use crate::storage::{OfferId, Record};
use switchback_wire::KeyHash;

/// Keys that one command evicts, and that may be on their way out at a time.
const EVICT_BATCH: usize = 32;
const EVICTING_MAX: usize = 512;

impl Chain {
    /// Begins an eviction for each offer that waits and for which none is under way yet.
    pub(super) fn make_room(&mut self, cx: &mut Context<'_>) {
        let on_their_way = self.cache.evicting();
        let deciding = self.commands.is_evict_begin_out();
        let Some(first) = self.waiting.first() else { return };
        if cx.directory.owner(self.id).is_none()
            || deciding
            || on_their_way >= self.waiting.len().min(EVICTING_MAX)
        {
            return;
        }
        if self.eviction_us(cx.config).is_some_and(|at_us| cx.now.monotonic_us < at_us) {
            self.wants_room = true;
            return;
        }
        self.evicted_us = Some(cx.now.monotonic_us);
        let class = self.cache.class_for(first.value_bytes).expect("checked when it was queued");
        // If it is the number of keys that is used up, and not the slots of a class, any key may
        // go.
        let class = if self.cache.is_full() { 0 } else { class };
        let count = (self.waiting.len() - on_their_way).min(EVICT_BATCH);
        let wanted = count * cx.config.eviction_sample;
        let mut candidates = self.cache.sample(class, wanted, cx.random);
        // Keys whose head is silent can't be stored now, so others go.
        let is_heard =
            |partition: u16| cx.members.is_node_heard(cx.now, cx.directory.head(partition));
        candidates.retain(|id| self.cache.get(*id).is_some_and(|key| is_heard(key.partition)));
        // One in `eviction_sample` goes, so that each victim is the least accessed of that many.
        let count = count.min(candidates.len().div_ceil(cx.config.eviction_sample));
        // Slots that are on their way to be free are for the first that wait.
        let counts = self.waiting.counts(on_their_way, count);
        self.begin_eviction(cx, candidates, counts);
    }

    /// When the next evictions may begin, after those before: they share messages, and their nodes
    /// a commit.
    pub(super) fn eviction_us(&self, config: &ControllerConfig) -> Option<u64> {
        self.evicted_us.map(|evicted_us| evicted_us.saturating_add(config.eviction_pause_us))
    }

    fn begin_eviction(&mut self, cx: &mut Context<'_>, candidates: Vec<EntryId>, counts: Vec<u32>) {
        if counts.is_empty() {
            return;
        }
        for id in &candidates {
            self.cache.set_stage(*id, Stage::Candidate);
        }
        let waiting = self.waiting.len() as u32;
        self.command_owner(cx, SwitchCommand::EvictBegin { candidates, counts, waiting });
    }

    /// The switch chose: the others stay, these are stored where they are dirty. Keys that were
    /// counted no more often than what stays are declined.
    pub(super) fn evicting(
        &mut self,
        cx: &mut Context<'_>,
        candidates: Vec<EntryId>,
        counts: &[u32],
        evicting: Vec<(EntryId, Option<Record>)>,
    ) {
        // One that evicted itself meanwhile is on its way out already.
        let is_candidate =
            |id: EntryId| self.cache.get(id).is_some_and(|key| key.stage == Stage::Candidate);
        let chosen = evicting.len();
        let evicting: Vec<_> = evicting.into_iter().filter(|(id, _)| is_candidate(*id)).collect();
        for (id, _) in &evicting {
            self.cache.set_stage(*id, Stage::Evicting);
        }
        for id in candidates {
            if self.cache.get(id).is_some_and(|key| key.stage == Stage::Candidate) {
                self.cache.set_stage(id, Stage::Cached);
            }
        }
        // A named key is outdone by none: if none gave way to it, candidates were gone.
        if let Some(&count) = counts.get(chosen).filter(|count| **count != Offer::NAMED) {
            let outdone = self.waiting.take_outdone(count, self.cache.evicting());
            self.decline(cx, outdone.into_iter().map(|offer| (offer.hash, offer.id)).collect());
        }
        self.store_evicted(cx, evicting);
    }

    fn store_evicted(&mut self, cx: &mut Context<'_>, evicting: Vec<(EntryId, Option<Record>)>) {
        if !cx.mechanisms.keepers_last() {
            let entries = evicting.iter().map(|(id, _)| *id).collect();
            self.command_keepers(cx, SwitchCommand::Remove(entries));
        }
        let mut clean = Vec::new();
        let mut dirty = Vec::new();
        for (id, record) in evicting {
            let Some(key) = self.cache.get(id) else { continue };
            match record {
                None => clean.push(id),
                Some(record) => {
                    let (hash, key) = (key.entry.hash, key.entry.key.clone());
                    dirty.push((id, KeyedRecord { hash, key, record }));
                }
            }
        }
        self.command_heads(cx, Work::StoreEvicted(dirty));
        self.evicted_stored(cx, clean);
    }

    /// Entries whose records outgrew their slots: the switch began their eviction.
    pub(super) fn evict_themselves(
        &mut self,
        cx: &mut Context<'_>,
        entries: Vec<(EntryId, Option<Record>)>,
    ) {
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
        self.store_evicted(cx, fresh);
    }

    /// Their nodes have these records: the owner may forget them.
    pub(super) fn evicted_stored(&mut self, cx: &mut Context<'_>, entries: Vec<EntryId>) {
        if entries.is_empty() || cx.directory.owner(self.id).is_none() {
            return;
        }
        if !cx.mechanisms.late_clearing() {
            for cached in
                entries.iter().filter_map(|id| self.cache.get(*id)).cloned().collect::<Vec<_>>()
            {
                self.decline(cx, vec![(cached.entry.hash, cached.offer)]);
            }
        }
        self.command_owner(cx, SwitchCommand::Remove(entries));
    }

    /// These have been removed at the owner, or at all keepers.
    pub(super) fn removed_by(&mut self, cx: &mut Context<'_>, switch: u16, entries: Vec<EntryId>) {
        if cx.directory.owner(self.id) == Some(switch) {
            self.remove_from_keepers(cx, entries);
        } else if cx.config.scheme.has_copies() {
            let removed = self.spine_removed(cx, switch, &entries);
            self.removed(cx, removed);
        } else {
            self.removed(cx, entries);
        }
    }

    /// The owner doesn't have these, and answers nothing of them: the keepers may forget them.
    pub(super) fn remove_from_keepers(&mut self, cx: &mut Context<'_>, entries: Vec<EntryId>) {
        for id in &entries {
            if !self.cache.is_at(*id, Stage::Clearing) {
                self.cache.set_stage(*id, Stage::Leaving);
            }
        }
        if cx.config.scheme.has_copies() {
            let alone = self.remove_from_spines(cx, entries);
            self.removed(cx, alone);
        } else if entries.is_empty()
            || !self.command_keepers(cx, SwitchCommand::Remove(entries.clone()))
        {
            self.removed(cx, entries);
        }
    }

    /// No switch has these any more: only now may their nodes offer them again.
    fn removed(&mut self, cx: &mut Context<'_>, entries: Vec<EntryId>) {
        let mut offers = Vec::new();
        for id in entries {
            let is_leaving = |key: &&CachedKey| key.stage == Stage::Leaving;
            let Some(key) = self.cache.get(id).filter(is_leaving) else { continue };
            offers.push((key.entry.hash, key.offer));
            self.cache.set_stage(id, Stage::Clearing);
        }
        self.decline(cx, offers);
    }

    /// Their nodes have cleared these offers: the keys may be cached anew.
    pub(super) fn offers_cleared(&mut self, offers: Vec<(KeyHash, OfferId)>) {
        for (hash, _) in offers {
            if let Some(key) = self.cache.find(&hash)
                && key.stage == Stage::Clearing
            {
                let id = key.entry.id;
                self.cache.forget(id);
            }
        }
    }

    /// Evicts everything and admits nothing any more, so that every record is at its node. It lasts
    /// until each caller has called [`Chain::resume`], so that none ends what another waits for.
    pub(in crate::controller) fn drain(&mut self, cx: &mut Context<'_>) {
        self.drains += 1;
        for offer in self.waiting.drain() {
            self.decline(cx, vec![(offer.hash, offer.id)]);
        }
        self.go_on(cx);
    }

    /// Ends a drain, done or not: once no caller wants another one, keys are admitted again.
    pub(in crate::controller) fn resume(&mut self) {
        assert!(self.is_draining(), "a drain is ended once");
        self.drains -= 1;
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drains > 0
    }

    /// Whether a drain has finished: nothing is cached, nothing is preserved, no offer stands.
    pub(in crate::controller) fn is_drained(&self) -> bool {
        let clears = |order: &Order| {
            matches!(
                order,
                Order::Work(Work::ClearOffers(_)) | Order::Switch(SwitchCommand::Remove(_))
            )
        };
        let clearing = self.commands.any(|_, order| clears(order));
        let quiet = matches!(self.phase, Phase::Serving | Phase::Waiting { .. });
        self.is_draining() && quiet && self.cache.iter().next().is_none() && !clearing
    }

    /// Takes the next step of a drain.
    pub(super) fn drain_on(&mut self, cx: &mut Context<'_>) {
        if cx.directory.owner(self.id).is_none()
            || !self.is_draining()
            || self.commands.is_evict_begin_out()
        {
            return;
        }
        let candidates = self.cache.evictable(BATCH_MAX);
        let counts = vec![Offer::NAMED; candidates.len()];
        self.begin_eviction(cx, candidates, counts);
    }
}
