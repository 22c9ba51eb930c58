//! The controller's picture of the cache, and the one allocator of its slots.

use super::copies::SpineCopy;
use crate::control::{Entry, EntryId, Inspected, Location};
use crate::controller::directory::Directory;
use crate::controller::status::CachedKeyStatus;
use crate::storage::OfferId;
use rand::RngExt;
use rand_pcg::Pcg32;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use switchback_wire::KeyHash;

/// A key that is on its way into the cache, in it, or on its way out.
#[derive(Clone, Debug)]
pub(super) struct CachedKey {
    pub(super) entry: Entry,
    /// Its key's.
    pub(super) partition: u16,
    pub(super) offer: OfferId,
    pub(super) stage: Stage,
    /// When it got its slot; `None`: before the controller started.
    pub(super) admitted_us: Option<u64>,
    /// What the switch had of it at the last inspection that reached it, and that one's number.
    pub(super) inspected: Option<(u64, Inspected)>,
    /// Its copy in a spine.
    pub(super) copy: Option<SpineCopy>,
}

impl CachedKey {
    /// What operators are told of it.
    pub(super) fn status(&self, directory: &Directory) -> CachedKeyStatus {
        CachedKeyStatus {
            key: self.entry.key.clone(),
            hash: self.entry.hash,
            node: directory.head(self.partition),
            class: self.entry.at.class,
            slot: self.entry.at.slot,
            stage: self.stage.name(),
        }
    }
}

/// How far a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// Switches were told to admit it.
    Admitting,
    /// In the cache.
    Cached,
    /// In the cache; the switch was asked whether it is the one to go.
    Candidate,
    /// To-be-evicted in the owner, or being stored or removed there.
    Evicting,
    /// Not in the owner, or no longer; keepers are to remove it.
    Leaving,
    /// In no switch; its node still has to clear the offer.
    Clearing,
}

impl Stage {
    /// Whether it is on its way out and still holds a slot.
    fn gives_way(self) -> bool {
        matches!(self, Stage::Evicting | Stage::Leaving)
    }

    /// As operators are told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Stage::Admitting => "admitting",
            Stage::Cached | Stage::Candidate => "cached",
            Stage::Evicting | Stage::Leaving => "evicting",
            Stage::Clearing => "clearing",
        }
    }
}

/// One size class: its free slots, and its evictable entries in a list that can be sampled.
#[derive(Debug, Default)]
struct Class {
    value_bytes: u32,
    slots: u32,
    /// Slots from here on were never given out, but for those adopted.
    never_used: u32,
    adopted: BTreeSet<u32>,
    free: Vec<u32>,
    evictable: Vec<EntryId>,
    place_of: BTreeMap<EntryId, usize>,
}

/// Every key that is or may be in the cache.
#[derive(Debug, Default)]
pub(super) struct Cache {
    keys: BTreeMap<EntryId, CachedKey>,
    by_hash: BTreeMap<KeyHash, EntryId>,
    classes: Vec<Class>,
    /// Keys that hold a slot.
    occupied: usize,
    evicting: usize,
    limit: usize,
    /// Keys of each partition, whatever their stage.
    of_partition: BTreeMap<u16, usize>,
}

impl Cache {
    /// An empty cache of these classes, `(value bytes, slots)`, that holds at most `limit` keys.
    pub(super) fn new(classes: &[(u32, u32)], limit: usize) -> Cache {
        let mut last = 0;
        let class = |&(value_bytes, slots): &(u32, u32)| {
            assert!(value_bytes > last, "classes rise in size");
            last = value_bytes;
            Class { value_bytes, slots, ..Class::default() }
        };
        Cache { classes: classes.iter().map(class).collect(), limit, ..Cache::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.occupied
    }

    /// Keys on their way out that still hold a slot.
    pub(super) fn evicting(&self) -> usize {
        self.evicting
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.classes.iter().map(|class| class.slots as usize).sum()
    }

    /// How many keys it can hold.
    pub(super) fn capacity(&self) -> usize {
        self.limit.min(self.slots())
    }

    /// How many more keys it can hold. A switch may be found to hold more than it may by now.
    pub(super) fn room(&self) -> usize {
        self.capacity().saturating_sub(self.occupied)
    }

    /// Whether it holds as many keys as it may.
    pub(super) fn is_full(&self) -> bool {
        self.occupied >= self.limit
    }

    pub(super) fn get(&self, id: EntryId) -> Option<&CachedKey> {
        self.keys.get(&id)
    }

    /// Whether a key is that far.
    pub(super) fn is_at(&self, id: EntryId, stage: Stage) -> bool {
        self.get(id).is_some_and(|key| key.stage == stage)
    }

    pub(super) fn find(&self, hash: &KeyHash) -> Option<&CachedKey> {
        self.by_hash.get(hash).and_then(|id| self.keys.get(id))
    }

    /// Partitions, with the number of their keys.
    pub(super) fn partitions(&self) -> impl Iterator<Item = (u16, usize)> {
        self.of_partition.iter().map(|(partition, keys)| (*partition, *keys))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &CachedKey> {
        self.keys.values()
    }

    /// The first `limit` incarnations of these.
    pub(super) fn ids(&self, of: Range<EntryId>, limit: usize) -> Vec<EntryId> {
        self.keys.range(of).take(limit).map(|(id, _)| *id).collect()
    }

    /// The smallest class that a value of this length fits.
    pub(super) fn class_for(&self, value_bytes: u32) -> Option<u8> {
        let class = self.classes.iter().position(|class| class.value_bytes >= value_bytes)?;
        Some(class as u8)
    }

    /// A free slot in `class` or a larger one, unless the cache is full.
    pub(super) fn allocate(&mut self, class: u8) -> Option<Location> {
        if self.is_full() {
            return None;
        }
        for class in class..self.classes.len() as u8 {
            let from = &mut self.classes[usize::from(class)];
            while from.adopted.remove(&from.never_used) {
                from.never_used += 1;
            }
            let slot = match from.free.pop() {
                Some(slot) => slot,
                None if from.never_used < from.slots => {
                    from.never_used += 1;
                    from.never_used - 1
                }
                None => continue,
            };
            self.occupied += 1;
            return Some(Location { class, slot });
        }
        None
    }

    /// Takes a key in whose slot was just allocated.
    pub(super) fn insert(&mut self, key: CachedKey) {
        let id = key.entry.id;
        let before = self.by_hash.insert(key.entry.hash, id);
        assert!(before.is_none(), "a key is cached once");
        *self.of_partition.entry(key.partition).or_default() += 1;
        let before = self.keys.insert(id, key);
        assert!(before.is_none(), "an incarnation is used once");
    }

    /// Takes in a key that a switch was found to hold already, after a restart of the controller.
    /// An entry whose key, incarnation or slot is taken, or whose slot doesn't exist, is ignored.
    pub(super) fn adopt(&mut self, entry: Entry, partition: u16, offer: OfferId) {
        if self.by_hash.contains_key(&entry.hash) || self.keys.contains_key(&entry.id) {
            return;
        }
        let at = entry.at.slot;
        let class =
            self.classes.get_mut(usize::from(entry.at.class)).filter(|class| at < class.slots);
        let Some(class) = class else { return };
        match class.free.iter().position(|free| *free == at) {
            Some(place) => _ = class.free.remove(place),
            None if at >= class.never_used && class.adopted.insert(at) => {}
            None => return,
        }
        self.occupied += 1;
        let id = entry.id;
        self.insert(CachedKey {
            entry,
            partition,
            offer,
            stage: Stage::Admitting,
            admitted_us: None,
            inspected: None,
            copy: None,
        });
        self.set_stage(id, Stage::Cached);
    }

    /// Moves a key on; keeps the list of evictable ones.
    pub(super) fn set_stage(&mut self, id: EntryId, stage: Stage) {
        let Some(key) = self.keys.get_mut(&id) else { return };
        let class = &mut self.classes[usize::from(key.entry.at.class)];
        if key.stage == Stage::Cached && stage != Stage::Cached {
            let at = class.place_of.remove(&id).expect("cached entries are evictable");
            class.evictable.swap_remove(at);
            if let Some(moved) = class.evictable.get(at) {
                class.place_of.insert(*moved, at);
            }
        }
        if key.stage != Stage::Cached && stage == Stage::Cached {
            class.place_of.insert(id, class.evictable.len());
            class.evictable.push(id);
        }
        if stage == Stage::Clearing && key.stage != Stage::Clearing {
            class.free.push(key.entry.at.slot);
            self.occupied -= 1;
        }
        self.evicting -= usize::from(key.stage.gives_way());
        self.evicting += usize::from(stage.gives_way());
        key.stage = stage;
    }

    /// Its node learned the offer under which it is cached (after a restart of the controller).
    pub(super) fn set_offer(&mut self, id: EntryId, offer: OfferId) {
        if let Some(key) = self.keys.get_mut(&id) {
            key.offer = offer;
        }
    }

    /// It has this copy in a spine, or none.
    pub(super) fn set_copy(&mut self, id: EntryId, copy: Option<SpineCopy>) {
        if let Some(key) = self.keys.get_mut(&id) {
            key.copy = copy;
        }
    }

    /// The switch told what it has of a key, at the inspection of this number.
    pub(super) fn set_inspected(&mut self, inspection: u64, inspected: Inspected) {
        if let Some(key) = self.keys.get_mut(&inspected.id) {
            key.inspected = Some((inspection, inspected));
        }
    }

    /// Forgets a key whose offer is cleared.
    pub(super) fn forget(&mut self, id: EntryId) {
        if let Some(key) = self.keys.get(&id) {
            assert_eq!(key.stage, Stage::Clearing);
            self.by_hash.remove(&key.entry.hash);
            *self.of_partition.entry(key.partition).or_default() -= 1;
            self.keys.remove(&id);
        }
    }

    /// `count` distinct evictable keys of class `from` or larger, at random; fewer if there aren't
    /// as many.
    pub(super) fn sample(&self, from: u8, count: usize, random: &mut Pcg32) -> Vec<EntryId> {
        let classes = &self.classes[usize::from(from).min(self.classes.len())..];
        let total: usize = classes.iter().map(|class| class.evictable.len()).sum();
        if total <= count {
            return classes.iter().flat_map(|class| class.evictable.iter().copied()).collect();
        }
        // Sampling the same victim twice would make the sample smaller than it seems: draw distinct
        // places (Floyd).
        let mut places = std::collections::BTreeSet::new();
        for upper in total - count..total {
            let place = random.random_range(0..=upper);
            if !places.insert(place) {
                places.insert(upper);
            }
        }
        let at = |mut place: usize| {
            for class in classes {
                match class.evictable.get(place) {
                    Some(id) => return *id,
                    None => place -= class.evictable.len(),
                }
            }
            unreachable!("places are below the total")
        };
        places.into_iter().map(at).collect()
    }

    /// Evictable keys, in order, to `limit`.
    pub(super) fn evictable(&self, limit: usize) -> Vec<EntryId> {
        self.classes.iter().flat_map(|class| class.evictable.iter().copied()).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn cache_of(count: u32) -> Cache {
        let mut cache = Cache::new(&[(128, count), (1024, 2)], 1000);
        for i in 0..count {
            let at = cache.allocate(0).unwrap();
            let hash = KeyHash([i as u8; 16]);
            let entry = Entry { id: i.into(), at, hash, key: vec![i as u8], count: 0 };
            cache.insert(CachedKey {
                entry,
                partition: 0,
                offer: OfferId::from_bits(1),
                stage: Stage::Admitting,
                admitted_us: None,
                inspected: None,
                copy: None,
            });
            cache.set_stage(i.into(), Stage::Cached);
        }
        cache
    }

    #[test]
    fn victims_are_distinct() {
        let cache = cache_of(10);
        let mut random = Pcg32::seed_from_u64(1);
        for _ in 0..1000 {
            let mut sample = cache.sample(0, 4, &mut random);
            sample.sort_unstable();
            sample.dedup();
            assert_eq!(sample.len(), 4);
        }
        assert_eq!(cache.sample(0, 20, &mut random).len(), 10);
        assert_eq!(cache.sample(1, 4, &mut random).len(), 0);
    }

    #[test]
    fn a_slot_is_free_again_when_its_entry_is_removed() {
        let mut cache = cache_of(3);
        assert_eq!(cache.allocate(0), Some(Location { class: 1, slot: 0 }));
        assert_eq!(cache.allocate(0), Some(Location { class: 1, slot: 1 }));
        assert_eq!(cache.allocate(0), None);
        cache.set_stage(1, Stage::Evicting);
        assert_eq!(cache.allocate(0), None);
        cache.set_stage(1, Stage::Clearing);
        assert_eq!(cache.allocate(0), Some(Location { class: 0, slot: 1 }));
        cache.forget(1);
        assert_eq!(cache.find(&KeyHash([1; 16])).map(|key| key.entry.id), None);
    }

    #[test]
    fn what_a_switch_cannot_hold_is_not_adopted() {
        let mut cache = Cache::new(&[(128, 4)], 4);
        let mut adopt = |id: u64, class, slot| {
            let entry = Entry {
                id,
                at: Location { class, slot },
                hash: KeyHash([slot as u8; 16]),
                key: vec![7],
                count: 0,
            };
            cache.adopt(entry, 0, OfferId::NONE);
            cache.len()
        };
        assert_eq!(adopt(1, 0, 1), 1);
        assert_eq!(adopt(2, 1, 2), 1, "no such class");
        assert_eq!(adopt(2, 0, 4), 1, "no such slot");
        assert_eq!(adopt(2, 0, u32::MAX), 1);
        assert_eq!(adopt(1, 0, 2), 1, "an incarnation is used once");
        assert_eq!(adopt(2, 0, 2), 2);
        let twice = Entry {
            id: 3,
            at: Location { class: 0, slot: 1 },
            hash: KeyHash([9; 16]),
            key: vec![9],
            count: 0,
        };
        cache.adopt(twice, 0, OfferId::NONE);
        assert_eq!(cache.len(), 2, "a slot holds one key");
    }

    #[test]
    fn a_switch_that_holds_more_than_it_may_has_no_room() {
        let mut cache = Cache::new(&[(128, 4)], 1);
        for slot in 0..2 {
            let at = Location { class: 0, slot };
            let hash = KeyHash([slot as u8; 16]);
            cache.adopt(
                Entry { id: slot.into(), at, hash, key: vec![7], count: 0 },
                0,
                OfferId::NONE,
            );
        }
        assert_eq!((cache.len(), cache.room(), cache.is_full()), (2, 0, true));
    }

    #[test]
    fn an_adopted_entry_keeps_its_slot() {
        let mut cache = Cache::new(&[(128, 4)], 4);
        let at = Location { class: 0, slot: 2 };
        cache.adopt(
            Entry { id: 7, at, hash: KeyHash([7; 16]), key: vec![7], count: 0 },
            0,
            OfferId::NONE,
        );
        let others: Vec<_> = (0..3).map(|_| cache.allocate(0).unwrap().slot).collect();
        assert!(!others.contains(&2));
        assert_eq!(cache.allocate(0), None);
    }
}
