//! Periodic snapshots: taken by the switch's agent, durable here before anybody is told (design, section 6).

use super::commands::Purpose;
use super::directory::{SnapshotFile, StoreFile, encode};
use super::machine::{Controller, Phase};
use crate::control::{KeyedRecord, SwitchCommand};
use crate::time::Now;

/// A snapshot that makes no progress for this long has failed.
const STALLED_US: u64 = 2_000_000;
/// Shortest pause between two snapshots, whatever asks for one.
const PAUSE_US_MIN: u64 = 100_000;

/// The snapshot being taken, and the last one.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// Highest generation used in this run of the controller.
    pub(super) generation: u32,
    /// A snapshot that began this generation is durable.
    pub(super) durable_generation: u32,
    taking: Option<Taking>,
    next_due_us: u64,
    started_us: u64,
    pub(super) completed: u64,
    pub(super) failed: u64,
    pub(super) last_duration_us: u64,
    pub(super) last_bytes: u64,
    pub(super) last_records: u64,
}

#[derive(Debug)]
struct Taking {
    generation: u32,
    chunks: u32,
    records: Vec<KeyedRecord>,
    /// Being made durable by this store.
    store: Option<u64>,
    progress_us: u64,
}

impl Snapshots {
    /// `durable_generation`: of the snapshot on the disk.
    pub(super) fn new(next_due_us: u64, durable_generation: u32) -> Snapshots {
        Snapshots {
            generation: 0,
            durable_generation,
            taking: None,
            next_due_us,
            started_us: 0,
            completed: 0,
            failed: 0,
            last_duration_us: 0,
            last_bytes: 0,
            last_records: 0,
        }
    }

    /// Asks for a snapshot soon.
    pub(super) fn hurry(&mut self, now: Now) {
        let soon_us = (self.started_us + PAUSE_US_MIN).max(now.monotonic_us);
        self.next_due_us = self.next_due_us.min(soon_us);
    }

    pub(super) fn next_us(&self) -> u64 {
        match &self.taking {
            Some(taking) => taking.progress_us + STALLED_US,
            None => self.next_due_us,
        }
    }

    /// An unfinished snapshot is dropped (rule 10).
    pub(super) fn abandon(&mut self) {
        if self.taking.take().is_some() {
            self.failed += 1;
        }
    }
}

impl Controller {
    /// Takes a snapshot as soon as possible. Returns the lowest generation of one that began after
    /// this call: one that is under way already lacks what was absorbed since it began.
    pub fn snapshot_now(&mut self, now: Now) -> u32 {
        let first = self.snapshots.generation.max(self.snapshot.generation) + 1;
        self.snapshots.hurry(now);
        self.handle_timeout(now);
        first
    }

    /// Complete snapshots so far.
    pub fn snapshots_completed(&self) -> u64 {
        self.snapshots.completed
    }

    pub(super) fn snapshot_if_due(&mut self, now: Now) {
        if let Some(taking) = &self.snapshots.taking {
            if taking.store.is_none() && now.monotonic_us >= taking.progress_us + STALLED_US {
                self.snapshot_failed(now, taking.generation);
            } else if taking.store.is_some() && now.monotonic_us >= taking.progress_us + STALLED_US {
                let taking = self.snapshots.taking.as_mut().expect("seen above");
                taking.progress_us = now.monotonic_us; // a slow disk: wait on
            }
            return;
        }
        if now.monotonic_us < self.snapshots.next_due_us {
            return;
        }
        self.snapshots.next_due_us = now.in_us(self.config.snapshot_us);
        let recovering = matches!(self.phase, Phase::Recovering(_)) && !self.mechanisms.no_snapshot_in_recovery;
        let ready = matches!(self.phase, Phase::Serving) || recovering;
        let Some((active, _)) = self.directory.active else { return };
        if !ready || !self.config.scheme.absorbs_writes() {
            return;
        }
        let generation = self.next_generation();
        self.snapshots.started_us = now.monotonic_us;
        self.snapshots.taking =
            Some(Taking { generation, chunks: 0, records: Vec::new(), store: None, progress_us: now.monotonic_us });
        let body = SwitchCommand::Snapshot { generation };
        self.commands.command_switch(now, self.directory.epoch, active, Purpose::Snapshot(generation), body);
    }

    /// A snapshot came to nothing: the next one is due soon.
    pub(super) fn snapshot_failed(&mut self, now: Now, generation: u32) {
        if self.snapshots.taking.as_ref().is_some_and(|taking| taking.generation == generation) {
            self.snapshots.abandon();
            self.snapshots.next_due_us = now.in_us(PAUSE_US_MIN);
        }
    }

    pub(super) fn snapshot_chunk(&mut self, now: Now, generation: u32, index: u32, records: Vec<KeyedRecord>) {
        let Some(taking) = &mut self.snapshots.taking else { return };
        // A chunk out of its place (a connection broke) makes the snapshot incomplete: its end will tell.
        if taking.generation == generation && taking.chunks == index {
            taking.chunks += 1;
            taking.progress_us = now.monotonic_us;
            taking.records.extend(records);
        }
    }

    pub(super) fn snapshot_end(&mut self, now: Now, generation: u32, chunks: u32, complete: bool) {
        let Some(taking) = &mut self.snapshots.taking else { return };
        if taking.generation != generation || taking.store.is_some() {
            return;
        }
        if !complete || taking.chunks != chunks {
            self.snapshot_failed(now, generation);
            return;
        }
        let records = std::mem::take(&mut taking.records);
        let file = SnapshotFile { epoch: self.directory.epoch, generation, records };
        let bytes = encode(&file);
        self.snapshots.last_bytes = bytes.len() as u64;
        self.snapshots.last_records = file.records.len() as u64;
        self.snapshot = file;
        let store = self.store(StoreFile::Snapshot, bytes);
        let taking = self.snapshots.taking.as_mut().expect("seen above");
        taking.store = Some(store);
        taking.progress_us = now.monotonic_us;
        if !self.mechanisms.release_after_durable {
            self.publish_snapshot(now);
        }
    }

    /// Something was stored: perhaps the snapshot. Only now is anybody told.
    pub(super) fn snapshot_stored(&mut self, now: Now) {
        let Some(store) = self.snapshots.taking.as_ref().and_then(|taking| taking.store) else { return };
        if self.is_stored(store) {
            self.publish_snapshot(now);
        }
    }

    fn publish_snapshot(&mut self, now: Now) {
        let Some(taking) = self.snapshots.taking.take() else { return };
        self.snapshots.completed += 1;
        self.snapshots.last_duration_us = now.monotonic_us - self.snapshots.started_us;
        self.snapshots.durable_generation = taking.generation;
        if let Some((active, _)) = self.directory.active {
            let body = SwitchCommand::DurableGeneration(taking.generation);
            self.commands.command_switch(now, self.directory.epoch, active, Purpose::DurableGeneration, body);
        }
    }
}
