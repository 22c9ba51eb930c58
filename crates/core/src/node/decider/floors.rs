//! How a node's floors rise within an epoch, so that fences and tombstones don't live until its end
//! (rule 13).
//!
//! A number that made a fence, a tombstone or an expiring record becomes its bucket's floor a
//! period or two later. From then on a write up to the floor is not applied to an absent key: it is
//! not known any more whether it ran before its record was dropped. It is not sent back either, so
//! that it can't run twice; its client has given up on it long before. To a record that is there it
//! isn't applied either, for its fence may be gone, but there it is sent back.
//!
//! What comes out of the cache may be older than any floor. It is stored only under an offer, and
//! above the floor that the offer was made at: everything else are late duplicates of what was
//! stored before. (Or it is what a client kept that a recovery had stopped waiting for; it still
//! overwrites what is older, as long as the offer lasts. To an absent key the engine applies
//! nothing up to the base.)

use crate::floors::{Floors, seq_bucket};
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::{KeyHash, Seq};

/// Marks that are looked at in one step, and when fences are many.
pub(super) const SWEEP_BATCH: usize = 4096;
pub(super) const SWEEP_BATCH_CROWDED: usize = 4 * SWEEP_BATCH;

/// Floors that are to be made durable.
#[derive(Debug, Default)]
pub(in crate::node) struct FloorsToSave {
    /// The floor of all keys.
    pub(in crate::node) base: Option<Seq>,
    /// Floors of buckets: each list is one operation.
    pub(in crate::node) buckets: Vec<Vec<(u16, Seq)>>,
    /// How many have just risen.
    pub(in crate::node) raised: usize,
}

/// The floors, and what will raise them.
#[derive(Debug)]
pub(super) struct RisingFloors {
    floors: Floors,
    /// Highest number of each bucket that is to be covered, of this period and of the one before.
    noted: BTreeMap<u16, Seq>,
    due: BTreeMap<u16, Seq>,
    next_period_us: u64,
    /// Floors that are on their way to the disk, and those that failed to get there: until all are
    /// saved, no fence is dropped.
    saving: usize,
    base_failed: bool,
    failed: BTreeMap<u16, Seq>,
}

impl RisingFloors {
    pub(super) fn new(floors: Floors, now: Now) -> RisingFloors {
        RisingFloors {
            floors,
            noted: BTreeMap::new(),
            due: BTreeMap::new(),
            next_period_us: now.monotonic_us,
            saving: 0,
            base_failed: false,
            failed: BTreeMap::new(),
        }
    }

    /// The floor of all keys.
    pub(super) fn base(&self) -> Seq {
        self.floors.base()
    }

    /// The floor of a key.
    pub(super) fn of(&self, hash: &KeyHash) -> Seq {
        self.floors.of(hash)
    }

    /// A fence, a tombstone or an expiring record of this number waits to be covered.
    pub(super) fn note(&mut self, hash: &KeyHash, seq: Seq) {
        let noted = self.noted.entry(seq_bucket(hash)).or_default();
        *noted = (*noted).max(seq);
    }

    /// Whether all floors are on the disk.
    pub(super) fn is_saved(&self) -> bool {
        self.saving == 0 && !self.base_failed && self.failed.is_empty()
    }

    /// The end of a recovery: nothing older can arrive at all. The floor to save, if it rises.
    pub(super) fn raise_base(&mut self, floor: Seq) -> Option<Seq> {
        if floor <= self.floors.base() {
            return None;
        }
        self.floors.raise_base(floor);
        self.saving += 1;
        Some(floor)
    }

    /// Raises what is due, or what waits longest if it `is_early`, and says what is to be saved:
    /// that, and what failed before.
    pub(super) fn raise(&mut self, now: Now, period_us: u64, is_early: bool) -> FloorsToSave {
        let mut to_save = FloorsToSave::default();
        if std::mem::take(&mut self.base_failed) {
            to_save.base = Some(self.floors.base());
        }
        to_save.buckets.push(std::mem::take(&mut self.failed).into_iter().collect());
        if now.monotonic_us >= self.next_period_us || is_early {
            self.next_period_us = now.in_us(period_us);
            let raised = self.period_over();
            to_save.raised = raised.len();
            to_save.buckets.push(raised);
        }
        to_save.buckets.retain(|floors| !floors.is_empty());
        self.saving += usize::from(to_save.base.is_some()) + to_save.buckets.len();
        to_save
    }

    /// The floors that rise now. They count at once: more is refused then, never less.
    fn period_over(&mut self) -> Vec<(u16, Seq)> {
        let due = std::mem::replace(&mut self.due, std::mem::take(&mut self.noted));
        for (bucket, floor) in &due {
            self.floors.raise(*bucket, *floor);
        }
        due.into_iter().filter(|(_, floor)| *floor > self.floors.base()).collect()
    }

    /// Floors are on the disk, or are to be written again; the base's has no bucket.
    pub(super) fn saved(&mut self, floors: Vec<(u16, Seq)>, is_saved: bool) {
        self.saving -= 1;
        if is_saved {
            return;
        }
        self.base_failed |= floors.is_empty();
        for (bucket, floor) in floors {
            let failed = self.failed.entry(bucket).or_default();
            *failed = (*failed).max(floor);
        }
    }
}
