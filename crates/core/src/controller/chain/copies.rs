//! Copies of a chain's records in spines (DistCache; rule 30).
//!
//! A key that the chain's leaf has admitted is admitted to its spine, too, if that has a free slot:
//! under an incarnation of its own, and maybe by another chain's switch. Then the key's node learns
//! of both copies, and fills them. A copy in a spine goes once the leaf's is gone, and the node
//! forgets both when it clears the offer.

use super::cache::{Cache, CachedKey, Stage};
use super::work::Work;
use super::{Chain, Context};
use crate::control::{Entry, EntryId, NamedCopy, SwitchCommand};
use crate::storage::OfferId;
use crate::topology::{ChainId, round_of, spine_of};
use std::collections::BTreeMap;
use switchback_wire::KeyHash;

/// Where a key has a copy beside its leaf's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpineCopy {
    switch: u16,
    /// Its incarnation.
    entry: EntryId,
}

/// The slots of all spines, in a round of epochs.
#[derive(Debug, Default)]
pub(in crate::controller) struct Spines {
    round: u32,
    caches: BTreeMap<u16, Cache>,
    last_entry: EntryId,
}

impl Spines {
    /// In the round of an epoch. Each round begins with empty spines.
    fn of_epoch(&mut self, epoch: u32) -> &mut Spines {
        if round_of(epoch) > self.round {
            self.caches.clear();
            self.round = round_of(epoch);
        }
        self
    }

    /// The number of the next incarnation. They rise over all chains, as a switch wants it.
    fn next_entry(&mut self, starts: u32) -> EntryId {
        self.last_entry = self.last_entry.max(u64::from(starts) << 40) + 1;
        self.last_entry
    }

    /// A copy is gone: its slot is free.
    fn free(&mut self, copy: SpineCopy) {
        if let Some(cache) = self.caches.get_mut(&copy.switch) {
            cache.set_stage(copy.entry, Stage::Clearing);
            cache.forget(copy.entry);
        }
    }
}

impl Chain {
    /// The switch whose copy of a key there may be beside the leaf's.
    fn spine_of(&self, cx: &Context<'_>, hash: &KeyHash) -> Option<u16> {
        let chains = (0..cx.directory.chains()).map(ChainId::new);
        let spine = spine_of(hash, chains.filter(|chain| cx.directory.spine(*chain).is_some()))?;
        cx.directory.spine(spine)
    }

    /// The leaf has admitted these: their spines are told, as far as they have slots. Then, or at
    /// once for the others, their nodes.
    pub(super) fn admit_to_spines(&mut self, cx: &mut Context<'_>, entries: &[EntryId]) {
        let mut by_spine: BTreeMap<u16, Vec<Entry>> = BTreeMap::new();
        let mut alone = Vec::new();
        for id in entries {
            match self.new_spine_copy(cx, *id) {
                Some((switch, entry)) => by_spine.entry(switch).or_default().push(entry),
                None => alone.push(*id),
            }
        }
        for (switch, entries) in by_spine {
            self.command_switch(cx, switch, SwitchCommand::Admit(entries));
        }
        self.register_copies(cx, &alone);
    }

    /// A slot in its spine for a cached key.
    fn new_spine_copy(&mut self, cx: &mut Context<'_>, id: EntryId) -> Option<(u16, Entry)> {
        let key = self.cache.get(id)?;
        let switch = self.spine_of(cx, &key.entry.hash)?;
        let classes = &cx.members.switch(switch)?.classes;
        let limit = cx.config.cache_records;
        let spines = cx.spines.of_epoch(cx.directory.epoch(self.id));
        let cache = spines.caches.entry(switch).or_insert_with(|| Cache::new(classes, limit));
        let at = cache.allocate(key.entry.at.class)?;
        let entry = spines.next_entry(cx.directory.starts());
        let copy = Entry { id: entry, at, ..key.entry.clone() };
        let cache = spines.caches.get_mut(&switch).expect("just made");
        cache.insert(CachedKey {
            entry: copy.clone(),
            partition: key.partition,
            offer: OfferId::NONE,
            stage: Stage::Admitting,
            admitted_us: key.admitted_us,
            inspected: None,
            copy: None,
        });
        self.cache.set_copy(id, Some(SpineCopy { switch, entry }));
        Some((switch, copy))
    }

    /// A spine has admitted these copies, but for those that it refused.
    pub(super) fn spine_admitted(
        &mut self,
        cx: &mut Context<'_>,
        copies: &[Entry],
        refused: &[EntryId],
    ) {
        let mut ids = Vec::new();
        for copy in copies {
            let Some(key) = self.cache.find(&copy.hash) else { continue };
            let id = key.entry.id;
            let Some(held) = key.copy.filter(|held| held.entry == copy.id) else { continue };
            if refused.contains(&copy.id) {
                cx.spines.free(held);
                self.cache.set_copy(id, None);
            }
            ids.push(id);
        }
        self.register_copies(cx, &ids);
    }

    /// Tells the keys' nodes of their copies.
    fn register_copies(&mut self, cx: &mut Context<'_>, ids: &[EntryId]) {
        let address = |switch: u16| cx.members.switch(switch).map(|hello| hello.address);
        let leaf = cx.directory.owner(self.id).and_then(address);
        let mut copies = Vec::new();
        for id in ids {
            let Some(cached) = self.cache.get(*id) else { continue };
            let Entry { hash, key, .. } = &cached.entry;
            let spine = cached.copy.and_then(|copy| Some((address(copy.switch)?, copy.entry)));
            for (switch, entry) in leaf.map(|leaf| (leaf, *id)).into_iter().chain(spine) {
                copies.push((*id, NamedCopy { hash: *hash, key: key.clone(), switch, entry }));
            }
        }
        self.command_heads(cx, Work::RegisterCopies(copies));
    }

    /// The keys' nodes know of these copies.
    pub(super) fn copies_registered(&mut self, cx: &Context<'_>, copies: &[(EntryId, NamedCopy)]) {
        for (id, copy) in copies {
            if self.cache.is_at(*id, Stage::Admitting) {
                self.cache.set_stage(*id, Stage::Cached);
                self.missing.remove(&copy.hash);
            }
        }
        self.note_readmission(cx);
    }

    /// The leaf doesn't have these any more: their spines may forget them. Those that no spine has
    /// are returned.
    pub(super) fn remove_from_spines(
        &mut self,
        cx: &Context<'_>,
        entries: Vec<EntryId>,
    ) -> Vec<EntryId> {
        let mut by_spine: BTreeMap<u16, Vec<EntryId>> = BTreeMap::new();
        let mut alone = Vec::new();
        for id in entries {
            match self.cache.get(id).and_then(|key| key.copy) {
                Some(copy) => by_spine.entry(copy.switch).or_default().push(copy.entry),
                None => alone.push(id),
            }
        }
        for (switch, copies) in by_spine {
            self.command_switch(cx, switch, SwitchCommand::Remove(copies));
        }
        alone
    }

    /// A spine has removed these copies: the entries that they were copies of.
    pub(super) fn spine_removed(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        copies: &[EntryId],
    ) -> Vec<EntryId> {
        let mut removed = Vec::new();
        for entry in copies {
            let copy = SpineCopy { switch, entry: *entry };
            let cached = cx.spines.caches.get(&switch).and_then(|cache| cache.get(*entry));
            let Some(hash) = cached.map(|key| key.entry.hash) else { continue };
            cx.spines.free(copy);
            let key = self.cache.find(&hash).filter(|key| key.copy == Some(copy));
            if let Some(id) = key.map(|key| key.entry.id) {
                self.cache.set_copy(id, None);
                removed.push(id);
            }
        }
        removed
    }
}
