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

use crate::floors::{Bucket, Floors};
use crate::time::Now;
use crate::topology::{ChainId, ChainMap};
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::{KeyHash, Seq};

/// Marks that are looked at in one step, and when fences are many.
pub(super) const SWEEP_BATCH: usize = 4096;
pub(super) const SWEEP_BATCH_CROWDED: usize = 4 * SWEEP_BATCH;

/// Floors that are to be made durable.
#[derive(Debug, Default)]
pub(in crate::node) struct FloorsToSave {
    /// Floors of all keys of a chain.
    pub(in crate::node) bases: Vec<(ChainId, Seq)>,
    /// Floors of buckets: each list is one operation.
    pub(in crate::node) buckets: Vec<Vec<(Bucket, Seq)>>,
    /// How many have just risen.
    pub(in crate::node) raised: usize,
}

/// The floors, and what will raise them.
#[derive(Debug)]
pub(super) struct RisingFloors {
    floors: Floors,
    /// Highest number of each bucket that is to be covered, of this period and of the one before.
    noted: BTreeMap<Bucket, Seq>,
    due: BTreeMap<Bucket, Seq>,
    next_period_us: u64,
    /// Floors that are on their way to the disk, and those that failed to get there: until all are
    /// saved, no fence is dropped.
    saving: usize,
    bases_failed: BTreeSet<ChainId>,
    failed: BTreeMap<Bucket, Seq>,
}

impl RisingFloors {
    pub(super) fn new(floors: Floors, now: Now) -> RisingFloors {
        RisingFloors {
            floors,
            noted: BTreeMap::new(),
            due: BTreeMap::new(),
            next_period_us: now.monotonic_us,
            saving: 0,
            bases_failed: BTreeSet::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Which chain serves each key from now on.
    pub(super) fn set_served(&mut self, served: ChainMap) {
        self.floors.set_served(served);
    }

    /// Which chain serves each key.
    pub(super) fn served(&self) -> &ChainMap {
        self.floors.served()
    }

    /// The chain that serves a key.
    #[inline]
    pub(super) fn chain_of(&self, hash: &KeyHash) -> ChainId {
        self.floors.chain_of(hash)
    }

    /// The bucket of a key.
    #[inline]
    pub(super) fn bucket_of(&self, hash: &KeyHash) -> Bucket {
        self.floors.bucket_of(hash)
    }

    /// The floor of all keys of a key's chain.
    pub(super) fn base_of(&self, hash: &KeyHash) -> Seq {
        self.floors.base(self.chain_of(hash))
    }

    /// The floor of a key.
    pub(super) fn of(&self, hash: &KeyHash) -> Seq {
        self.floors.of(hash)
    }

    /// A fence, a tombstone or an expiring record of this number waits to be covered.
    pub(super) fn note(&mut self, hash: &KeyHash, seq: Seq) {
        let noted = self.noted.entry(self.floors.bucket_of(hash)).or_default();
        *noted = (*noted).max(seq);
    }

    /// Whether all floors are on the disk.
    pub(super) fn is_saved(&self) -> bool {
        self.saving == 0 && self.bases_failed.is_empty() && self.failed.is_empty()
    }

    /// The end of a chain's recovery: nothing older can arrive at all. Whether the floor rises, and
    /// is to be saved.
    pub(super) fn raise_base(&mut self, chain: ChainId, floor: Seq) -> bool {
        let rises = floor > self.floors.base(chain);
        if rises {
            self.floors.raise_base(chain, floor);
            self.saving += 1;
        }
        rises
    }

    /// Raises what is due, or what waits longest if it `is_early`, and says what is to be saved:
    /// that, and what failed before.
    /// Those of the buckets that are `kept` wait for another period.
    pub(super) fn raise(
        &mut self,
        now: Now,
        period_us: u64,
        is_early: bool,
        kept: &BTreeSet<Bucket>,
    ) -> FloorsToSave {
        let mut to_save = FloorsToSave::default();
        let bases = std::mem::take(&mut self.bases_failed).into_iter();
        to_save.bases = bases.map(|chain| (chain, self.floors.base(chain))).collect();
        to_save.buckets.push(std::mem::take(&mut self.failed).into_iter().collect());
        if now.monotonic_us >= self.next_period_us || is_early {
            self.next_period_us = now.in_us(period_us);
            let raised = self.period_over(kept);
            to_save.raised = raised.len();
            to_save.buckets.push(raised);
        }
        to_save.buckets.retain(|floors| !floors.is_empty());
        self.saving += to_save.bases.len() + to_save.buckets.len();
        to_save
    }

    /// The floors of a chain's buckets.
    pub(super) fn of_chain(&self, chain: ChainId) -> Vec<(u16, Seq)> {
        self.floors.buckets(chain).collect()
    }

    /// Raises the floors of buckets to these, but for those that are `kept`, which are left; what
    /// is to be saved.
    pub(super) fn take(
        &mut self,
        chain: ChainId,
        floors: &mut Vec<(u16, Seq)>,
        kept: &BTreeSet<Bucket>,
    ) -> Vec<(Bucket, Seq)> {
        let mut raised = Vec::new();
        floors.retain(|&(number, floor)| {
            let bucket = Bucket { chain, number };
            let rises = floor > self.floors.of_bucket(bucket);
            if rises && !kept.contains(&bucket) {
                self.floors.raise(bucket, floor);
                raised.push((bucket, floor));
            }
            rises && kept.contains(&bucket)
        });
        self.saving += usize::from(!raised.is_empty());
        raised
    }

    /// The floors that rise now. They count at once: more is refused then, never less.
    fn period_over(&mut self, kept: &BTreeSet<Bucket>) -> Vec<(Bucket, Seq)> {
        let mut due = std::mem::replace(&mut self.due, std::mem::take(&mut self.noted));
        for (bucket, floor) in due.extract_if(.., |bucket, _| kept.contains(bucket)) {
            self.noted.insert(bucket, floor);
        }
        for (bucket, floor) in &due {
            self.floors.raise(*bucket, *floor);
        }
        let floors = &self.floors;
        due.into_iter().filter(|(bucket, floor)| *floor > floors.base(bucket.chain)).collect()
    }

    /// The floor of all keys of a chain is on the disk, or is to be written again.
    pub(super) fn base_saved(&mut self, chain: ChainId, is_saved: bool) {
        self.saving -= 1;
        if !is_saved {
            self.bases_failed.insert(chain);
        }
    }

    /// Floors of buckets are on the disk, or are to be written again.
    pub(super) fn saved(&mut self, floors: Vec<(Bucket, Seq)>, is_saved: bool) {
        self.saving -= 1;
        if is_saved {
            return;
        }
        for (bucket, floor) in floors {
            let failed = self.failed.entry(bucket).or_default();
            *failed = (*failed).max(floor);
        }
    }
}
