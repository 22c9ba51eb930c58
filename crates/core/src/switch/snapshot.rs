//! Crash-consistent snapshots of the dirty records (FarReach III-D; design, section 6).

use super::entries::Entries;
use super::target::{Inject, LoadedRecord};
use crate::control::{BATCH_MAX, EntryId, KeyedRecord, SwitchReport, batch_len};
use std::collections::{BTreeMap, VecDeque};

/// A snapshot being taken.
#[derive(Debug)]
pub(super) struct Snapshot {
    epoch: u32,
    pub(super) generation: u32,
    to_load: VecDeque<EntryId>,
    /// Records that changed since the point, as they were at it; `None` if no node needs them.
    originals: BTreeMap<EntryId, Option<KeyedRecord>>,
    /// Loaded too late: their originals must arrive.
    awaited: Vec<EntryId>,
    collected: Vec<KeyedRecord>,
    chunks: u32,
    complete: bool,
}

impl Snapshot {
    /// Sets the point: from here on the datapath reports originals.
    pub(super) fn begin(generation: u32, entries: &Entries, inject: &mut Inject<'_>) -> Option<Snapshot> {
        if !inject.snapshot_begin(generation) {
            return None;
        }
        Some(Snapshot {
            epoch: inject.epoch,
            generation,
            to_load: entries.ids().collect(),
            originals: BTreeMap::new(),
            awaited: Vec::new(),
            collected: Vec::new(),
            chunks: 0,
            complete: true,
        })
    }

    /// A record was about to change for the first time since the point.
    pub(super) fn original(&mut self, loaded: LoadedRecord) {
        if loaded.generation < self.generation {
            self.originals.entry(loaded.entry).or_insert_with(|| loaded.if_dirty());
        }
    }

    /// Loads some records; true when all are loaded.
    pub(super) fn step(&mut self, entries: &Entries, inject: &mut Inject<'_>, loads: usize) -> bool {
        for _ in 0..loads {
            let Some(id) = self.to_load.pop_front() else { return true };
            // An entry that went meanwhile was stored by its eviction first.
            let Some(cached) = entries.get(id) else { continue };
            match inject.load(&cached.entry) {
                Some(loaded) if loaded.generation < self.generation => self.collected.extend(loaded.if_dirty()),
                Some(_) => self.awaited.push(id),
                None => self.complete = false,
            }
        }
        false
    }

    /// Moves full chunks, or at the end everything, to the controller's reports.
    pub(super) fn emit(&mut self, all: bool, reports: &mut VecDeque<SwitchReport>) {
        while self.collected.len() >= BATCH_MAX || (all && !self.collected.is_empty()) {
            let records = self.collected.drain(..batch_len(&self.collected)).collect();
            let (epoch, generation, index) = (self.epoch, self.generation, self.chunks);
            reports.push_back(SwitchReport::SnapshotChunk { epoch, generation, index, records });
            self.chunks += 1;
        }
    }

    /// Ends it, after the last report was taken: complete only if the original of every record that was loaded too late is there.
    pub(super) fn finish(
        mut self,
        entries: &Entries,
        inject: &mut Inject<'_>,
        must_be_whole: bool,
        reports: &mut VecDeque<SwitchReport>,
    ) {
        inject.snapshot_end();
        for id in std::mem::take(&mut self.awaited) {
            match self.originals.remove(&id) {
                Some(original) => self.collected.extend(original),
                None if entries.get(id).is_none() => {}
                None => self.complete = false,
            }
        }
        self.complete |= !must_be_whole;
        self.emit(true, reports);
        reports.push_back(SwitchReport::SnapshotEnd {
            epoch: self.epoch,
            generation: self.generation,
            chunks: self.chunks,
            complete: self.complete,
        });
    }
}
