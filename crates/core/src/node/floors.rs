//! How a node's floors rise within an epoch, so that fences and tombstones don't live until its end (rule 3).
//!
//! A number that made a fence, a tombstone or an expiring record becomes its bucket's floor a period or two later. From then on a write
//! up to the floor is not applied to an absent key: nobody could tell any more whether it ran before its record was dropped. It
//! is not sent back either, so that it can't run twice; its client has given up on it long before. To a record that is there it isn't
//! applied either, for its fence may be gone, but there it is sent back.
//!
//! What comes out of the cache may be older than any floor. It is stored only under an offer, and above the floor that the offer was made at:
//! everything else are late duplicates of what was stored before. (Or it is what a client kept that a recovery had stopped waiting for; it
//! still overwrites what is older, as long as the offer lasts. To an absent key the engine applies nothing up to the base.)

use super::shim::{Pending, Shim};
use crate::floors::{Floors, seq_bucket};
use crate::storage::{EngineError, EngineOp};
use crate::time::Now;
use std::collections::BTreeMap;
use switchback_wire::{KeyHash, Seq};

/// Marks that are looked at in one step, and when fences are many.
const SWEEP_BATCH: usize = 4096;
const SWEEP_BATCH_CROWDED: usize = 4 * SWEEP_BATCH;

/// The floors, and what will raise them.
#[derive(Debug)]
pub(super) struct RisingFloors {
    pub(super) floors: Floors,
    /// Highest number of each bucket that is to be covered, of this period and of the one before.
    noted: BTreeMap<u16, Seq>,
    due: BTreeMap<u16, Seq>,
    next_period_us: u64,
    /// Floors that are on their way to the disk, and those that failed to get there: until all are saved, no fence is dropped.
    saving: usize,
    base_failed: bool,
    failed: BTreeMap<u16, Seq>,
    swept: KeyHash,
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
            swept: KeyHash([0; 16]),
        }
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

    /// The floors that rise now. They count at once: more is refused then, never less.
    fn period_over(&mut self) -> Vec<(u16, Seq)> {
        let due = std::mem::replace(&mut self.due, std::mem::take(&mut self.noted));
        for (bucket, floor) in &due {
            self.floors.raise(*bucket, *floor);
        }
        due.into_iter().filter(|(_, floor)| *floor > self.floors.base()).collect()
    }
}

impl Shim {
    /// The end of a recovery: nothing older can arrive at all.
    pub(super) fn raise_base(&mut self, floor: Seq) {
        if floor > self.rising.floors.base() {
            self.rising.floors.raise_base(floor);
            self.save_base();
        }
    }

    fn save_base(&mut self) {
        let floor = self.rising.floors.base();
        self.rising.saving += 1;
        self.submit(Pending::Floors(Vec::new()), |id| EngineOp::SetFloor { id, floor });
    }

    fn save_floors(&mut self, floors: Vec<(u16, Seq)>) {
        if !floors.is_empty() {
            self.rising.saving += 1;
            self.submit(Pending::Floors(floors.clone()), |id| EngineOp::RaiseFloors { id, floors });
        }
    }

    /// Drops fences that saved floors stand for, saves again what failed, and raises what is due.
    pub(super) fn raise_floors(&mut self, now: Now) {
        // Early floors cost late copies of writes their outcome; without them fences would have no limit.
        let is_early = self.marks.is_crowded() && self.rising.is_saved();
        if self.rising.is_saved() {
            self.sweep_fences(if is_early { SWEEP_BATCH_CROWDED } else { SWEEP_BATCH });
        }
        if self.rising.base_failed {
            self.rising.base_failed = false;
            self.save_base();
        }
        let failed = std::mem::take(&mut self.rising.failed);
        self.save_floors(failed.into_iter().collect());
        if now.monotonic_us >= self.rising.next_period_us || is_early {
            self.rising.next_period_us = now.in_us(self.limits.floor_period_us);
            let floors = self.rising.period_over();
            self.statistics.floors_raised += floors.len() as u64;
            self.save_floors(floors);
        }
    }

    /// Floors are on the disk, or are to be written again; the base's has no bucket.
    pub(super) fn floors_saved(&mut self, floors: Vec<(u16, Seq)>, error: Option<&EngineError>) {
        self.rising.saving -= 1;
        if error.is_none() {
            return;
        }
        self.rising.base_failed |= floors.is_empty();
        for (bucket, floor) in floors {
            let failed = self.rising.failed.entry(bucket).or_default();
            *failed = (*failed).max(floor);
        }
    }

    fn sweep_fences(&mut self, batch: usize) {
        let floors = &self.rising.floors;
        let covered = |hash: &KeyHash, fence: Seq| fence <= floors.of(hash);
        let (gone, next) = self.marks.drop_fences(self.rising.swept, batch, covered);
        self.rising.swept = next;
        for (hash, key) in gone {
            self.submit(Pending::Nothing, |id| EngineOp::SetMark { id, hash, key, mark: None });
        }
    }

    /// Whether a record out of the cache may be new to this node.
    pub(super) fn may_come_from_cache(&self, hash: &KeyHash, seq: Seq) -> bool {
        let marked = self.marks.get(hash).filter(|marked| marked.mark.offer != 0);
        let is_new = marked.is_some_and(|marked| seq > marked.mark.floor);
        is_new || !self.mechanisms.offered_stores
    }
}
