//! Crash-consistent snapshots of the dirty records, copy-on-write (Sheng et al., "FarReach", USENIX
//! ATC 2023, section III-D; rule 6).

use super::entries::Entries;
use super::target::LoadedRecord;
use crate::control::{BATCH_MAX, Entry, EntryId, KeyedRecord, SwitchReport, batch_len};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A snapshot being taken.
#[derive(Debug)]
pub(super) struct Snapshot {
    epoch: u32,
    generation: u32,
    to_load: BTreeSet<EntryId>,
    /// A step found nothing more to load.
    is_loaded: bool,
    /// Records that changed since the point, as they were at it; `None` if no node needs them.
    originals: BTreeMap<EntryId, Option<KeyedRecord>>,
    /// Loaded too late: their originals must arrive.
    awaited: Vec<EntryId>,
    collected: Vec<KeyedRecord>,
    chunks: u32,
    complete: bool,
}

impl Snapshot {
    /// A snapshot whose point has just been set: from here on the datapath reports originals.
    pub(super) fn begin(epoch: u32, generation: u32, entries: &Entries) -> Snapshot {
        Snapshot {
            epoch,
            generation,
            to_load: entries.ids().collect(),
            is_loaded: false,
            originals: BTreeMap::new(),
            awaited: Vec::new(),
            collected: Vec::new(),
            chunks: 0,
            complete: true,
        }
    }

    /// The generation that its point began.
    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// A record was about to change for the first time since the point.
    pub(super) fn original(&mut self, loaded: LoadedRecord) {
        // The last one counts: a write that was delayed may report, after this snapshot's
        // beginning, what the one before it asked for. The record's lock orders its reports.
        if loaded.generation < self.generation {
            self.originals.insert(loaded.entry, loaded.if_dirty());
        }
    }

    /// The entries whose records are to be loaded in the next step.
    pub(super) fn next_step(&mut self, entries: &Entries, loads: usize) -> Vec<Entry> {
        let mut step = Vec::new();
        for _ in 0..loads {
            let Some(id) = self.to_load.pop_first() else {
                self.is_loaded = true;
                break;
            };
            step.extend(entries.get(id).map(|cached| cached.entry.clone()));
        }
        step
    }

    /// Those of these entries whose records are yet to be loaded. They are about to be removed, or
    /// to count as clean: a backup's checkpoint of their node may be older than that (rule 29).
    pub(super) fn next_of(
        &mut self,
        entries: &Entries,
        ids: impl Iterator<Item = EntryId>,
    ) -> Vec<Entry> {
        let ids = ids.filter(|id| self.to_load.remove(id));
        ids.filter_map(|id| Some(entries.get(id)?.entry.clone())).collect()
    }

    /// A step has loaded the records of these entries.
    pub(super) fn loaded(&mut self, ids: Vec<EntryId>, records: Vec<Option<LoadedRecord>>) {
        for (id, record) in ids.into_iter().zip(records) {
            match record {
                Some(loaded) if loaded.generation < self.generation => {
                    self.collected.extend(loaded.if_dirty())
                }
                Some(_) => self.awaited.push(id),
                None => self.complete = false,
            }
        }
    }

    /// Whether all records are loaded.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded
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

    /// Ends it, after the last report was taken: complete only if the original of every record that
    /// was loaded too late is there.
    pub(super) fn finish(mut self, must_be_whole: bool, reports: &mut VecDeque<SwitchReport>) {
        for id in std::mem::take(&mut self.awaited) {
            match self.originals.remove(&id) {
                Some(original) => self.collected.extend(original),
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
