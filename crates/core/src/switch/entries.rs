//! What the agent believes to be in the lookup table.

use crate::control::{Entry, EntryId, Location};
use std::collections::{BTreeMap, BTreeSet};

/// A cached key and how far its eviction is.
#[derive(Clone, Debug)]
pub(super) struct CachedEntry {
    pub(super) entry: Entry,
    pub(super) evicting: bool,
}

/// Cached keys by incarnation and by place.
#[derive(Debug, Default)]
pub(super) struct Entries {
    by_id: BTreeMap<EntryId, CachedEntry>,
    by_place: BTreeMap<Location, EntryId>,
    /// Evictions that the datapath began: the controller must hear of them until it removes the
    /// entries.
    evicted_themselves: BTreeSet<EntryId>,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.by_id.len(), self.by_place.len());
        self.by_id.len()
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&CachedEntry> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: EntryId) -> Option<&mut CachedEntry> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn is_free(&self, at: Location) -> bool {
        !self.by_place.contains_key(&at)
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        let before = self.by_place.insert(entry.at, entry.id);
        assert!(before.is_none(), "a slot holds one entry");
        self.by_id.insert(entry.id, CachedEntry { entry, evicting: false });
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<CachedEntry> {
        let cached = self.by_id.remove(&id)?;
        let at = self.by_place.remove(&cached.entry.at);
        assert_eq!(at, Some(id));
        self.evicted_themselves.remove(&id);
        Some(cached)
    }

    pub(super) fn ids(&self) -> impl Iterator<Item = EntryId> {
        self.by_id.keys().copied()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &CachedEntry> {
        self.by_id.values()
    }

    /// A new controller doesn't know which evictions have begun: they count as the switch's own.
    pub(super) fn disown_evictions(&mut self) {
        let evicting = self.by_id.iter().filter(|(_, cached)| cached.evicting).map(|(id, _)| *id);
        self.evicted_themselves.extend(evicting);
    }

    /// The datapath began this eviction; false if it had begun.
    pub(super) fn evicts_itself(&mut self, id: EntryId) -> bool {
        let Some(cached) = self.by_id.get_mut(&id).filter(|cached| !cached.evicting) else {
            return false;
        };
        cached.evicting = true;
        self.evicted_themselves.insert(id);
        true
    }

    /// Entries of which the controller must hear that their evictions have begun.
    pub(super) fn evicted_themselves(&self) -> &BTreeSet<EntryId> {
        &self.evicted_themselves
    }

    /// Up to `limit` entries from a place on, and the place to go on from.
    pub(super) fn list(
        &self,
        from: Option<Location>,
        limit: usize,
    ) -> (Vec<Entry>, Option<Location>) {
        let from = from.unwrap_or(Location { class: 0, slot: 0 });
        let mut places = self.by_place.range(from..);
        let listed =
            places.by_ref().take(limit).map(|(_, id)| self.by_id[id].entry.clone()).collect();
        (listed, places.next().map(|(at, _)| *at))
    }
}
