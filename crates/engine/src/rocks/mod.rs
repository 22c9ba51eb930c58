//! The engine that ships: RocksDB, write-ahead log always on, one commit a group.

mod checkpoint;
mod error;
mod floor_filter;
mod format;
mod open;
mod options;
mod syncer;

pub use checkpoint::{checkpoints_of, drop_later, remove_dropped};
pub use open::{FORMAT_FILE, FORMAT_VERSION};
pub use options::Options;

use crate::engine::{Engine, Statistics};
use crate::error::OpenError;
use crate::group::{Change, Copied, Group, ReadResult, RecordHead, Scanned, Store, Version};
use crate::kind::{self, Kind, Opened, Setting, Storage, Takes};
use crate::policy::{SyncPolicy, Urgency};
use error::{engine_error, open_error};
use floor_filter::{FilterState, FloorFilter};
use format::{COMPLETIONS, FloorOf, MARKS, RECORDS, STATE, STATE_SERVED, STATE_SHIM};
use open::Stage;
use options::Tuning;
use rocksdb::statistics::Ticker;
use rocksdb::{
    ColumnFamily, DB, DBPinnableSlice, ErrorKind, FlushOptions, IteratorMode, ReadOptions,
    WriteBatch, WriteOptions,
};
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use switchback_core::floors::Floors;
use switchback_core::storage::{
    CopiedRecord, EngineDone, EngineError, EngineOp, KeyRange, LaneCompletion, Loaded, Record,
    ScannedKey,
};
use switchback_wire::KeyHash;
use syncer::Syncer;

/// How long writes may be held back because flushes lag, and how often it is tried again.
const HELD_BACK_MAX: Duration = Duration::from_secs(30);
const HELD_BACK_PAUSE: Duration = Duration::from_millis(1);

/// Records, marks, completions and state in RocksDB.
///
/// Every group is one batch of one write: its write-ahead log record is whole or absent after a
/// crash. When the disk is full, groups fail as a whole with [`EngineError::NoSpace`] and reads go
/// on; RocksDB looks every five seconds whether there is room for a memtable again, and then writes
/// are taken again without an operator's doing.
pub struct RocksEngine {
    group: Group,
    store: RocksStore,
}

/// The database and what serves one call after the other.
struct RocksStore {
    db: Arc<DB>,
    tuning: Tuning,
    path: PathBuf,
    /// For messages.
    name: String,
    policy: SyncPolicy,
    /// Forces the log to the disk in the background, under [`SyncPolicy::EverySec`].
    syncer: Option<Syncer>,
    shared: Arc<FilterState>,
    floors: Floors,
    synced: WriteOptions,
    unsynced: WriteOptions,
    key: Vec<u8>,
    value: Vec<u8>,
    statistics: Statistics,
}

impl RocksEngine {
    /// Opens a directory, or makes it; replays the log; reads all that a shim must know before it
    /// starts.
    pub fn open(
        path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<(RocksEngine, Loaded), OpenError> {
        let path = path.as_ref();
        let stage = open::claim(path)?;
        let shared = Arc::new(FilterState::new(Arc::clone(&options.clock)));
        let mut tuning = Tuning::new(options, FloorFilter(shared.clone()));
        tuning.db.create_if_missing(stage == Stage::Creating);
        let db = DB::open_cf_descriptors(&tuning.db, path, tuning.families())
            .map_err(|error| open_error(path, &error))?;
        let db = Arc::new(db);
        // Before the node's own state can be stored in this version's format.
        if stage != Stage::Complete {
            open::mark(path, Stage::Complete)?;
        }
        let loaded = load(&db, path)?;
        shared.set_floors(&loaded.floors);
        for (hash, key, mark) in &loaded.marks {
            shared.mark(hash, key, Some(mark));
        }
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        synced.set_no_slowdown(true);
        let mut unsynced = WriteOptions::default();
        unsynced.set_no_slowdown(true);
        let store = RocksStore {
            tuning,
            path: path.to_path_buf(),
            name: path.display().to_string(),
            policy: options.sync,
            syncer: (options.sync == SyncPolicy::EverySec)
                .then(|| Syncer::start(Arc::clone(&db)))
                .transpose()
                .map_err(|error| OpenError::from_io(path, &error))?,
            db,
            shared,
            floors: loaded.floors.clone(),
            synced,
            unsynced,
            key: Vec::new(),
            value: Vec::new(),
            statistics: Statistics::default(),
        };
        Ok((RocksEngine { group: Group::default(), store }, loaded))
    }

    /// Writes memtables out into tables.
    pub fn flush(&self) -> Result<(), EngineError> {
        for name in [RECORDS, MARKS, COMPLETIONS, STATE] {
            let flushed = self.store.db.flush_cf(self.store.family(name));
            flushed.map_err(|error| engine_error(&self.store.name, &error))?;
        }
        Ok(())
    }

    /// Flushes and compacts everything now, and so drops what the floor allows to drop.
    pub fn compact(&self) -> Result<(), EngineError> {
        self.flush()?;
        self.store.db.compact_range_cf(self.store.family(RECORDS), None::<&[u8]>, None::<&[u8]>);
        Ok(())
    }
}

impl Drop for RocksStore {
    fn drop(&mut self) {
        self.syncer = None;
        // Not every policy promises it, but a clean end should survive a power cut a second later.
        if let Err(error) = self.db.flush_wal(true) {
            // There is no caller to tell; acknowledged writes are in the log already.
            drop(error);
        }
    }
}

impl Engine for RocksEngine {
    fn execute(&mut self, ops: &mut Vec<EngineOp>, done: &mut Vec<EngineDone>) {
        self.group.run(&mut self.store, ops, done);
    }

    /// Looks at the directory: for once a second, not for each operation.
    fn statistics(&self) -> Statistics {
        let store = &self.store;
        let sum = |property: &str| -> u64 {
            let of = |name| {
                store
                    .db
                    .property_int_value_cf(store.family(name), property)
                    .ok()
                    .flatten()
                    .unwrap_or(0)
            };
            [RECORDS, MARKS, COMPLETIONS, STATE].into_iter().map(of).sum()
        };
        Statistics {
            disk_bytes: directory_bytes(&store.path),
            memtable_bytes: sum("rocksdb.cur-size-all-mem-tables"),
            cache_bytes: store.tuning.cache.get_usage() as u64,
            syncs: store.tuning.db.get_ticker_count(Ticker::WalFileSynced),
            dropped: store.shared.dropped.load(Ordering::Relaxed),
            stalled_us: store.tuning.db.get_ticker_count(Ticker::StallMicros),
            ..store.statistics
        }
    }

    /// Writes everything into tables, so that the next opening has nothing to replay.
    fn close(self: Box<Self>) -> Result<(), EngineError> {
        self.flush()
    }
}

/// As the registry lists it.
pub(crate) const KIND: Kind =
    Kind { name: "rocksdb", settings: &[BLOCK_CACHE_MB, MEMTABLE_MB], memory_bytes, open };

const BLOCK_CACHE_MB: Setting = memory("block_cache_mb", 256);
const MEMTABLE_MB: Setting = memory("memtable_mb", 64);

/// An amount of memory in MiB, to 1 TiB.
const fn memory(key: &'static str, default: u64) -> Setting {
    Setting { key, takes: Takes::Integer { least: 1, most: 1 << 20, default } }
}

fn bytes(options: &kind::Options, setting: &Setting) -> u64 {
    options.integer(setting) << 20
}

fn memory_bytes(options: &kind::Options) -> u64 {
    bytes(options, &BLOCK_CACHE_MB) + bytes(options, &MEMTABLE_MB)
}

fn open(storage: &Storage) -> Result<Opened, OpenError> {
    let bytes = |setting| bytes(&storage.options, setting) as usize;
    let options = Options {
        sync: storage.sync,
        block_cache_bytes: bytes(&BLOCK_CACHE_MB),
        memtable_bytes: bytes(&MEMTABLE_MB),
        max_open_files: storage.open_files_max,
        clock: Arc::clone(&storage.clock),
        ..Options::default()
    };
    let (engine, loaded) = RocksEngine::open(&storage.directory, &options)?;
    Ok((Box::new(engine), loaded))
}

impl RocksStore {
    fn family(&self, name: &str) -> &ColumnFamily {
        self.db.cf_handle(name).expect("all families were opened")
    }

    /// Reads a record's stored bytes, without copying them out of the cache.
    fn fetch<T>(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        take: impl FnOnce(RecordHead, &[u8]) -> T,
    ) -> Result<Option<T>, EngineError> {
        self.statistics.reads += 1;
        format::encode_key(hash, key, &mut self.key);
        let found: Option<DBPinnableSlice<'_>> = self
            .db
            .get_pinned_cf(self.family(RECORDS), &self.key)
            .map_err(|error| engine_error(&self.name, &error))?;
        found.map(|stored| self.decoded(hash, &stored, take)).transpose()
    }

    /// What is taken of a record's stored bytes.
    fn decoded<T>(
        &self,
        hash: &KeyHash,
        stored: &[u8],
        take: impl FnOnce(RecordHead, &[u8]) -> T,
    ) -> Result<T, EngineError> {
        match format::decode_record(stored) {
            Some((head, value)) => Ok(take(head, value)),
            None => Err(EngineError::Corrupt(format!(
                "{}: the record of {hash:?} can't be decoded",
                self.name
            ))),
        }
    }

    fn batch(&mut self, changes: &[Change]) -> WriteBatch {
        let (mut key, mut value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.value));
        let mut batch = WriteBatch::default();
        let records = self.family(RECORDS);
        for change in changes {
            match change {
                Change::Record { hash, key: name, record } => {
                    format::encode_key(hash, name, &mut key);
                    format::encode_record(record, &mut value);
                    batch.put_cf(records, &key, &value);
                }
                Change::Completion(completion) => {
                    let (lane, stored) = format::encode_completion(completion);
                    batch.put_cf(self.family(COMPLETIONS), lane, stored);
                }
                Change::Mark { hash, key: name, mark } => {
                    format::encode_key(hash, name, &mut key);
                    match mark {
                        Some(mark) => {
                            batch.put_cf(self.family(MARKS), &key, format::encode_mark(mark))
                        }
                        None => batch.delete_cf(self.family(MARKS), &key),
                    }
                }
                Change::Unconfirmed { hash, key: name, lanes } => {
                    format::encode_unconfirmed_key(hash, name, &mut key);
                    match lanes {
                        Some(lanes) => {
                            let stored = format::encode_lanes(lanes);
                            batch.put_cf(self.family(STATE), &key, stored);
                        }
                        None => batch.delete_cf(self.family(STATE), &key),
                    }
                }
                Change::State(state, served) => {
                    let (states, served) = (self.family(STATE), format::encode_served(served));
                    batch.put_cf(states, STATE_SHIM, format::encode_state(state));
                    batch.put_cf(states, STATE_SERVED, served);
                }
                Change::Floor(chain, floor) => {
                    let place = FloorOf::Chain(*chain);
                    let stored = format::encode_state(&floor.0.to_be_bytes());
                    batch.put_cf(self.family(STATE), place.encode(), stored);
                }
                Change::Emptied { range, keeps, lanes } => {
                    self.empty(&mut batch, range, *keeps, lanes);
                }
                Change::Kept { range, keeps } => self.keep(&mut batch, range, *keeps),
                Change::Floors(floors) => {
                    for (bucket, floor) in floors {
                        let place = FloorOf::Bucket(*bucket);
                        let stored = format::encode_state(&floor.0.to_be_bytes());
                        batch.put_cf(self.family(STATE), place.encode(), stored);
                    }
                }
            }
        }
        (self.key, self.value) = (key, value);
        batch
    }

    /// Ends everything in a range.
    fn empty(&self, batch: &mut WriteBatch, range: &KeyRange, keeps: bool, lanes: &[u32]) {
        let (mut first, mut beyond) = (Vec::new(), Vec::new());
        format::encode_key(&range.first, &[], &mut first);
        format::beyond_key(&range.last, &mut beyond);
        batch.delete_range_cf(self.family(RECORDS), &first, &beyond);
        batch.delete_range_cf(self.family(MARKS), &first, &beyond);
        format::encode_unconfirmed_key(&range.first, &[], &mut first);
        format::beyond_unconfirmed_key(&range.last, &mut beyond);
        batch.delete_range_cf(self.family(STATE), &first, &beyond);
        for lane in lanes {
            batch.delete_cf(self.family(COMPLETIONS), lane.to_be_bytes());
        }
        self.keep(batch, range, keeps);
    }

    /// Says whether a range keeps its tombstones.
    fn keep(&self, batch: &mut WriteBatch, range: &KeyRange, keeps: bool) {
        let kept = format::encode_kept_key(range);
        match keeps {
            true => batch.put_cf(self.family(STATE), kept, format::encode_state(&[])),
            false => batch.delete_cf(self.family(STATE), kept),
        }
    }

    fn count_commit(&mut self, changes: usize, began: Instant, failed: bool) {
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let counters = &mut self.statistics;
        counters.commit_us += took;
        counters.slowest_commit_us = counters.slowest_commit_us.max(took);
        if failed {
            counters.failed_groups += 1;
        } else {
            counters.groups += 1;
            counters.writes += changes as u64;
            counters.largest_group = counters.largest_group.max(changes as u64);
        }
    }
}

/// A whole record.
fn record(head: RecordHead, value: &[u8]) -> Record {
    Record {
        seq: head.seq,
        tombstone: head.tombstone,
        expiry_ms: head.expiry_ms,
        value: value.to_vec(),
        since: head.since,
    }
}

impl Store for RocksStore {
    fn read(&mut self, hash: &KeyHash, key: &[u8]) -> Result<Option<Record>, EngineError> {
        self.fetch(hash, key, record)
    }

    /// One MultiGet, in which RocksDB shares lookups of filters and indexes among keys.
    fn read_all(&mut self, keys: &[(KeyHash, Vec<u8>)]) -> Vec<ReadResult> {
        if let [(hash, key)] = keys {
            return vec![self.read(hash, key)];
        }
        self.statistics.reads += keys.len() as u64;
        let mut encoded = Vec::new();
        let mut ends = Vec::with_capacity(keys.len());
        for (hash, key) in keys {
            format::encode_key(hash, key, &mut self.key);
            encoded.extend_from_slice(&self.key);
            ends.push(encoded.len());
        }
        let begins = iter::once(0).chain(ends.iter().copied());
        let names = begins.zip(&ends).map(|(begin, end)| &encoded[begin..*end]);
        let found = self.db.batched_multi_get_cf(self.family(RECORDS), names, false);
        let read = |((hash, _), found): (&(KeyHash, _), Result<Option<DBPinnableSlice<'_>>, _>)| {
            let found = found.map_err(|error| engine_error(&self.name, &error))?;
            found.map(|stored| self.decoded(hash, &stored, record)).transpose()
        };
        keys.iter().zip(found).map(read).collect()
    }

    fn read_version(&mut self, hash: &KeyHash, key: &[u8]) -> Result<Option<Version>, EngineError> {
        self.fetch(hash, key, |head, _| Version {
            seq: head.seq,
            base: head.since.unwrap_or(head.seq),
        })
    }

    fn scan(&mut self, from: u64, to: u64, limit: usize) -> Result<Scanned, EngineError> {
        self.statistics.scans += 1;
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(from.to_be_bytes());
        if let Some(end) = to.checked_add(1) {
            options.set_iterate_upper_bound(end.to_be_bytes());
        }
        // A scan of everything would push the hot blocks out.
        options.fill_cache(false);
        options.set_auto_readahead_size(true);
        let mut keys: Vec<ScannedKey> = Vec::new();
        if from > to {
            return Ok((keys, None));
        }
        for entry in self.db.iterator_cf_opt(self.family(RECORDS), options, IteratorMode::Start) {
            let (key, value) = entry.map_err(|error| engine_error(&self.name, &error))?;
            let decoded = format::decode_key(&key).zip(format::decode_record(&value));
            let Some(((hash, key), (head, _))) = decoded else {
                return Err(EngineError::Corrupt(format!(
                    "{}: a record can't be decoded",
                    self.name
                )));
            };
            if keys.len() >= limit
                && keys.last().is_some_and(|last| last.hash.position() != hash.position())
            {
                return Ok((keys, Some(hash.position())));
            }
            keys.push(ScannedKey {
                hash,
                key: key.to_vec(),
                tombstone: head.tombstone,
                expiry_ms: head.expiry_ms,
            });
        }
        Ok((keys, None))
    }

    fn copy(&mut self, range: KeyRange, limit: usize, bytes: usize) -> Result<Copied, EngineError> {
        self.statistics.scans += 1;
        let (mut first, mut beyond) = (Vec::new(), Vec::new());
        format::encode_key(&range.first, &[], &mut first);
        format::beyond_key(&range.last, &mut beyond);
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(first);
        options.set_iterate_upper_bound(beyond);
        // As a scan.
        options.fill_cache(false);
        options.set_auto_readahead_size(true);
        let mut records: Vec<CopiedRecord> = Vec::new();
        let mut taken = 0;
        for entry in self.db.iterator_cf_opt(self.family(RECORDS), options, IteratorMode::Start) {
            let (key, value) = entry.map_err(|error| engine_error(&self.name, &error))?;
            let decoded = format::decode_key(&key).zip(format::decode_record(&value));
            let Some(((hash, key), (head, value))) = decoded else {
                return Err(EngineError::Corrupt(format!(
                    "{}: a record can't be decoded",
                    self.name
                )));
            };
            let is_full = records.len() >= limit || taken >= bytes;
            if is_full && records.last().is_some_and(|last| last.hash != hash) {
                return Ok((records, Some(hash)));
            }
            taken += key.len() + value.len();
            let RecordHead { seq, tombstone, expiry_ms, since } = head;
            let record = Record { seq, tombstone, expiry_ms, since, value: value.to_vec() };
            records.push(CopiedRecord { hash, key: key.to_vec(), record });
        }
        Ok((records, None))
    }

    fn completion(&mut self, lane: u32) -> Result<Option<LaneCompletion>, EngineError> {
        let key = lane.to_be_bytes();
        let found = self.db.get_pinned_cf(self.family(COMPLETIONS), key);
        let found = found.map_err(|error| engine_error(&self.name, &error))?;
        let Some(stored) = found else { return Ok(None) };
        match format::decode_completion(&key, &stored) {
            Some(done) => Ok(Some(done)),
            None => Err(EngineError::Corrupt(format!(
                "{}: the completion of lane {lane} can't be decoded",
                self.name
            ))),
        }
    }

    fn commit(&mut self, changes: &[Change], urgency: Urgency) -> Result<(), EngineError> {
        let began = Instant::now();
        let lags_too_far = self.syncer.as_ref().is_some_and(Syncer::lags_too_far);
        let sync = self.policy.forces(urgency) || lags_too_far;
        let written = self.write(changes, sync);
        if let Some(syncer) = &self.syncer {
            syncer.written(sync && written.is_ok());
        }
        self.count_commit(changes.len(), began, written.is_err());
        written.map_err(|error| engine_error(&self.name, &error))?;
        self.tell_compactions(changes);
        Ok(())
    }

    fn flush_soon(&mut self) -> Result<(), EngineError> {
        let mut options = FlushOptions::default();
        options.set_wait(false);
        for name in [RECORDS, MARKS, COMPLETIONS, STATE] {
            let begun = self.db.flush_cf_opt(self.family(name), &options);
            begun.map_err(|error| engine_error(&self.name, &error))?;
        }
        Ok(())
    }

    fn checkpoint(&mut self, number: u64) -> Result<(), EngineError> {
        checkpoint::make(&self.db, &self.path, number)
    }

    fn floors(&self) -> &Floors {
        &self.floors
    }
}

impl RocksStore {
    /// Offers first: what is offered now keeps its tombstones from floors that rise now.
    fn tell_compactions(&mut self, changes: &[Change]) {
        let mut rises = false;
        for change in changes {
            match change {
                Change::Mark { hash, key, mark } => self.shared.mark(hash, key, mark.as_ref()),
                Change::State(_, served) => {
                    self.floors.set_served(served.clone());
                    rises = true;
                }
                Change::Floor(chain, floor) => {
                    self.floors.raise_base(*chain, *floor);
                    rises = true;
                }
                Change::Floors(floors) => {
                    for (bucket, floor) in floors {
                        self.floors.raise(*bucket, *floor);
                    }
                    rises = true;
                }
                Change::Emptied { range, keeps, .. } => {
                    self.shared.forget_marks(range);
                    self.floors.keep(*range, *keeps);
                    rises = true;
                }
                Change::Kept { range, keeps } => {
                    self.floors.keep(*range, *keeps);
                    rises = true;
                }
                Change::Record { .. } | Change::Completion(_) | Change::Unconfirmed { .. } => {}
            }
        }
        if rises {
            self.shared.set_floors(&self.floors);
        }
    }

    /// Writes changes as one batch; waits here while RocksDB holds writes back.
    ///
    /// Waiting inside of RocksDB can last for ever: the recovery from a full disk flushes through
    /// the queue of writers whose head waits for the end of that recovery. (Seen with 11.8,
    /// memtables full and disk full at once.)
    fn write(&mut self, changes: &[Change], sync: bool) -> Result<(), rocksdb::Error> {
        let began = Instant::now();
        loop {
            let batch = self.batch(changes);
            match self.db.write_opt(batch, if sync { &self.synced } else { &self.unsynced }) {
                Err(error)
                    if error.kind() == ErrorKind::Incomplete && began.elapsed() < HELD_BACK_MAX =>
                {
                    std::thread::sleep(HELD_BACK_PAUSE);
                }
                written => return written,
            }
        }
    }
}

/// Everything that is not records.
fn load(db: &DB, path: &Path) -> Result<Loaded, OpenError> {
    let damaged = |what: &str| OpenError::Corrupt {
        path: path.to_path_buf(),
        detail: format!("an entry of '{what}' can't be decoded"),
        log: false,
    };
    let mut loaded = Loaded::default();
    each(db, path, STATE, |key, stored| {
        match key {
            STATE_SHIM => loaded.state = Some(format::decode_state(stored)?.to_vec()),
            STATE_SERVED => loaded.floors.set_served(format::decode_served(stored)?),
            _ => {
                if let Some(range) = format::decode_kept_key(key) {
                    loaded.floors.keep(range, true);
                    return Some(());
                }
                if let Some((hash, key)) = format::decode_unconfirmed_key(key) {
                    loaded.unconfirmed.push((hash, key.to_vec(), format::decode_lanes(stored)?));
                    return Some(());
                }
                match FloorOf::decode(key)? {
                    FloorOf::Chain(chain) => {
                        loaded.floors.raise_base(chain, format::decode_floor(stored)?)
                    }
                    FloorOf::Bucket(bucket) => {
                        loaded.floors.raise(bucket, format::decode_floor(stored)?)
                    }
                }
            }
        }
        Some(())
    })?
    .ok_or_else(|| damaged(STATE))?;
    each(db, path, MARKS, |key, stored| {
        let (hash, key) = format::decode_key(key)?;
        loaded.marks.push((hash, key.to_vec(), format::decode_mark(stored)?));
        Some(())
    })?
    .ok_or_else(|| damaged(MARKS))?;
    each(db, path, COMPLETIONS, |key, stored| {
        loaded.completions.push(format::decode_completion(key, stored)?);
        Some(())
    })?
    .ok_or_else(|| damaged(COMPLETIONS))?;
    Ok(loaded)
}

/// Shows every entry of a family to `take`; `None` as soon as that is.
fn each(
    db: &DB,
    path: &Path,
    family: &str,
    mut take: impl FnMut(&[u8], &[u8]) -> Option<()>,
) -> Result<Option<()>, OpenError> {
    let handle = db.cf_handle(family).expect("all families were opened");
    for entry in db.iterator_cf(handle, IteratorMode::Start) {
        let (key, value) = entry.map_err(|error| open_error(path, &error))?;
        if take(&key, &value).is_none() {
            return Ok(None);
        }
    }
    Ok(Some(()))
}

/// What the directory's files take. A file that a compaction removes meanwhile counts nothing.
fn directory_bytes(path: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(path) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| entry.metadata().ok())
        .map(|file| file.blocks() * 512)
        .sum()
}
