//! Periodic snapshots: taken by the switch's agent, durable here before clients are told (rule 6).

use super::{Chain, Context, Phase};
use crate::control::{KeyedRecord, SwitchCommand};
use crate::controller::backup;
use crate::controller::directory::{Preserved, SnapshotFile, encode};
use crate::controller::outbox::{Outbox, StoreFile};
use crate::controller::status::ControllerStatus;
use crate::time::Now;
use crate::topology::ChainId;

/// A snapshot that makes no progress for this long has failed.
const STALLED_US: u64 = 2_000_000;
/// Shortest pause between two snapshots, whatever asks for one.
const PAUSE_US_MIN: u64 = 100_000;

/// The snapshot being taken, the last one, and the generations that they begin.
#[derive(Debug)]
pub(super) struct Snapshots {
    /// Highest generation used in this run of the controller; 0: none yet.
    generation: u32,
    /// A snapshot that began this generation is durable.
    durable_generation: u32,
    /// The last complete one, durable or becoming so.
    last: SnapshotFile,
    taking: Option<Taking>,
    /// `None`: once one is asked for.
    next_due_us: Option<u64>,
    /// An operator asked for one since the last one was complete.
    is_asked_for: bool,
    started_us: u64,
    /// When what was told before was saved last: a snapshot was durable, or a recovery had stored
    /// it at the nodes. Before either, when the controller started.
    saved_us: u64,
    completed: u64,
    failed: u64,
    last_duration_us: u64,
    last_bytes: u64,
    last_records: u64,
}

/// A snapshot being taken.
#[derive(Debug)]
struct Taking {
    generation: u32,
    chunks: u32,
    records: Vec<KeyedRecord>,
    /// As many chunks and records as it may have.
    records_max: usize,
    /// Being made durable by this store.
    store: Option<u64>,
    progress_us: u64,
}

impl Snapshots {
    /// `last`: the one on the disk.
    pub(super) fn new(now: Now, next_due_us: Option<u64>, last: SnapshotFile) -> Snapshots {
        Snapshots {
            generation: 0,
            durable_generation: last.generation,
            last,
            taking: None,
            next_due_us,
            is_asked_for: false,
            started_us: 0,
            saved_us: now.monotonic_us,
            completed: 0,
            failed: 0,
            last_duration_us: 0,
            last_bytes: 0,
            last_records: 0,
        }
    }

    /// The last complete one, durable or becoming so.
    pub(super) fn last(&self) -> &SnapshotFile {
        &self.last
    }

    /// A snapshot that began this generation is durable.
    pub(super) fn durable_generation(&self) -> u32 {
        self.durable_generation
    }

    /// Complete snapshots so far.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// The next generation: of the chains' common ones, so that those of two chains can be
    /// compared.
    pub(super) fn next_generation(&mut self, cx: &mut Context<'_>) -> u32 {
        let rises = cx.mechanisms.rising_generations();
        self.generation = cx.directory.next_generation(cx.outbox, rises);
        self.generation
    }

    /// A recovery has stored at the nodes what was told before.
    pub(super) fn chain_is_recovered(&mut self, now: Now) {
        self.saved_us = now.monotonic_us;
    }

    /// For how long what is told is in no durable snapshot, and was not recovered.
    pub(super) fn age_us(&self, now: Now) -> u64 {
        now.monotonic_us.saturating_sub(self.saved_us)
    }

    /// Asks for a snapshot soon.
    pub(super) fn hurry(&mut self, now: Now) {
        let soon_us = (self.started_us + PAUSE_US_MIN).max(now.monotonic_us);
        self.next_due_us = Some(self.next_due_us.map_or(soon_us, |due_us| due_us.min(soon_us)));
    }

    /// Another epoch begins, in which none is taken unasked.
    pub(super) fn unschedule(&mut self, now: Now) {
        self.next_due_us = self.is_asked_for.then(|| now.in_us(PAUSE_US_MIN));
    }

    /// When the next one is due, or the one under way is given up.
    pub(super) fn next_us(&self) -> Option<u64> {
        match &self.taking {
            Some(taking) => Some(taking.progress_us + STALLED_US),
            None => self.next_due_us,
        }
    }

    /// Begins one; its records will arrive in chunks.
    fn begin(&mut self, now: Now, generation: u32, records_max: usize) {
        self.started_us = now.monotonic_us;
        let progress_us = now.monotonic_us;
        self.taking = Some(Taking {
            generation,
            chunks: 0,
            records: Vec::new(),
            records_max,
            store: None,
            progress_us,
        });
    }

    /// An unfinished snapshot is dropped (rule 10).
    pub(super) fn abandon(&mut self) {
        if self.taking.take().is_some() {
            self.failed += 1;
        }
    }

    /// A snapshot came to nothing: the next one is due soon.
    pub(super) fn fail(&mut self, now: Now, generation: u32) {
        if self.taking.as_ref().is_some_and(|taking| taking.generation == generation) {
            self.abandon();
            self.next_due_us = Some(now.in_us(PAUSE_US_MIN));
        }
    }

    /// The snapshot under way made no progress: it has failed, unless a slow disk is the reason.
    fn stalled(&mut self, now: Now) {
        let Some(taking) = &mut self.taking else { return };
        match taking.store {
            Some(_) => taking.progress_us = now.monotonic_us,
            None => {
                let generation = taking.generation;
                self.fail(now, generation);
            }
        }
    }

    /// A part of a snapshot has arrived. One out of its place (a connection broke) makes the
    /// snapshot incomplete: its end will tell. One of more than the cache holds makes it fail at
    /// once.
    pub(super) fn take_chunk(
        &mut self,
        now: Now,
        generation: u32,
        index: u32,
        records: Vec<KeyedRecord>,
    ) {
        let Some(taking) = &mut self.taking else { return };
        if taking.generation != generation || taking.chunks != index || taking.store.is_some() {
            return;
        }
        let is_within_limits = (index as usize) < taking.records_max
            && taking.records.len() + records.len() <= taking.records_max;
        if !is_within_limits {
            self.fail(now, generation);
            return;
        }
        taking.chunks += 1;
        taking.progress_us = now.monotonic_us;
        taking.records.extend(records);
    }

    /// The switch has sent all of a snapshot: stores it, if it is whole.
    fn end(
        &mut self,
        now: Now,
        generation: u32,
        chunks: u32,
        complete: bool,
        (chain, epoch): (ChainId, u32),
        outbox: &mut Outbox,
    ) {
        let Some(taking) = &mut self.taking else { return };
        if taking.generation != generation || taking.store.is_some() {
            return;
        }
        if !complete || taking.chunks != chunks {
            self.fail(now, generation);
            return;
        }
        let records = std::mem::take(&mut taking.records);
        self.last = SnapshotFile { epoch, generation, records };
        let bytes = encode(&self.last);
        self.last_bytes = bytes.len() as u64;
        self.last_records = self.last.records.len() as u64;
        taking.store = Some(outbox.store(StoreFile::Snapshot(chain), bytes));
        taking.progress_us = now.monotonic_us;
    }

    /// Whether a snapshot is being stored.
    fn is_storing(&self) -> bool {
        self.taking.as_ref().is_some_and(|taking| taking.store.is_some())
    }

    /// Whether the store of a snapshot has ended, and clients were not told yet.
    pub(super) fn is_stored(&self, outbox: &Outbox) -> bool {
        let store = self.taking.as_ref().and_then(|taking| taking.store);
        store.is_some_and(|store| outbox.is_stored(store))
    }

    /// The snapshot under way is complete; its generation.
    fn complete(&mut self, now: Now) -> Option<u32> {
        let taking = self.taking.take()?;
        self.is_asked_for = false;
        self.completed += 1;
        self.saved_us = now.monotonic_us;
        self.last_duration_us = now.monotonic_us - self.started_us;
        self.durable_generation = taking.generation;
        Some(taking.generation)
    }

    /// Adds what operators are told of snapshots.
    pub(super) fn status(&self, status: ControllerStatus) -> ControllerStatus {
        ControllerStatus {
            generation: self.generation,
            durable_generation: self.durable_generation,
            snapshots_completed: self.completed,
            snapshots_failed: self.failed,
            snapshot_duration_us: self.last_duration_us,
            snapshot_bytes: self.last_bytes,
            snapshot_records: self.last_records,
            ..status
        }
    }
}

impl Chain {
    /// Takes a snapshot as soon as possible, since an operator asked for one.
    pub(in crate::controller) fn hurry_snapshot(&mut self, now: Now) {
        self.snapshots.is_asked_for = true;
        self.snapshots.hurry(now);
    }

    /// Clients preserve much: takes a snapshot soon, if it releases some of that.
    pub(in crate::controller) fn relieve_clients(&mut self, cx: &mut Context<'_>) {
        if self.takes_snapshots(cx) {
            self.snapshots.hurry(cx.now);
        }
    }

    /// Since the last durable snapshot of this run of the controller, or since a recovery, if that
    /// was later.
    pub(in crate::controller) fn snapshot_age_us(&self, now: Now) -> u64 {
        self.snapshots.age_us(now)
    }

    /// Complete snapshots so far.
    pub(in crate::controller) fn snapshots_completed(&self) -> u64 {
        self.snapshots.completed()
    }

    /// Whether snapshots are taken unasked: where clients preserve what they are told, which a
    /// snapshot releases.
    fn takes_snapshots(&self, cx: &Context<'_>) -> bool {
        cx.directory.preserves(self.id) == Preserved::All
    }

    /// The next snapshot is due, or the one under way makes no progress.
    pub(super) fn snapshot_is_due(&mut self, cx: &mut Context<'_>) {
        if self.snapshots.taking.is_some() {
            self.snapshots.stalled(cx.now);
            return;
        }
        if cx.backup.holds_up_snapshots() {
            self.snapshots.next_due_us = Some(cx.now.in_us(PAUSE_US_MIN));
            return;
        }
        let period_us = cx.config.snapshot_us.filter(|_| self.takes_snapshots(cx));
        self.snapshots.next_due_us = period_us.map(|period_us| cx.now.in_us(period_us));
        let recovering =
            matches!(self.phase, Phase::Recovering(_)) && !cx.mechanisms.no_snapshot_in_recovery();
        let ready = matches!(self.phase, Phase::Serving) || recovering;
        if (!ready || self.begin_snapshot(cx).is_none()) && period_us.is_none() {
            self.snapshots.unschedule(cx.now);
        }
    }

    /// Whether a backup may be cut: it serves, no snapshot is under way, and no change of its
    /// switches.
    pub(in crate::controller) fn is_ready_to_cut(&self) -> bool {
        matches!(self.phase, Phase::Serving)
            && self.snapshots.taking.is_none()
            && self.change.is_idle()
    }

    /// Whether the snapshot that began this generation is being taken.
    pub(in crate::controller) fn takes_snapshot(&self, generation: u32) -> bool {
        self.snapshots.taking.as_ref().is_some_and(|taking| taking.generation == generation)
    }

    /// Has the owner take a snapshot: all that is dirty when it begins. The generation that begins;
    /// `None`: nothing is dirty in this chain ever, or no switch serves it.
    pub(in crate::controller) fn begin_snapshot(&mut self, cx: &mut Context<'_>) -> Option<u32> {
        if cx.directory.owner(self.id).is_none() || !cx.config.scheme.absorbs_writes() {
            return None;
        }
        let generation = self.snapshots.next_generation(cx);
        // A snapshot has at most one record of each key that has a slot, and no empty chunk. The
        // cache holds more than it is configured for if the controller was restarted with a lower
        // number; then none is admitted until fewer are left.
        let records_max = cx.config.cache_records.max(self.cache.len());
        self.snapshots.begin(cx.now, generation, records_max);
        self.command_owner(cx, SwitchCommand::Snapshot { generation });
        Some(generation)
    }

    /// The switch has sent all of a snapshot.
    pub(super) fn snapshot_end(
        &mut self,
        cx: &mut Context<'_>,
        generation: u32,
        chunks: u32,
        complete: bool,
    ) {
        let of = (self.id, cx.directory.epoch(self.id));
        self.snapshots.end(cx.now, generation, chunks, complete, of, cx.outbox);
        if !cx.mechanisms.release_after_durable() && self.snapshots.is_storing() {
            self.publish_snapshot(cx);
        }
    }

    /// The snapshot is durable: the switch is told, and clients with their next grant.
    pub(super) fn publish_snapshot(&mut self, cx: &mut Context<'_>) {
        if let Some(generation) = self.snapshots.complete(cx.now) {
            backup::snapshot_is_whole(cx, self.id, &self.snapshots.last);
            self.command_owner(cx, SwitchCommand::DurableGeneration(generation));
        }
    }
}
