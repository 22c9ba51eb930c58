//! An engine on a modelled disk, for simulation: deterministic, and it fails when told to.

use crate::engine::{Engine, Statistics};
use crate::group::{Change, Copied, Group, RecordHead, Scanned, Store, Version, is_dead};
use crate::policy::{SyncPolicy, Urgency};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_core::floors::Floors;
use switchback_core::storage::{
    CopiedRecord, EngineDone, EngineError, EngineOp, KeyRange, LaneCompletion, Lanes, Loaded, Mark,
    Record, ScannedKey,
};
use switchback_wire::KeyHash;

/// As the registry lists it where RocksDB isn't built, so that a `rack.toml` has an engine to name
/// there.
#[cfg(not(feature = "rocks"))]
pub(crate) const KIND: crate::Kind = crate::Kind {
    name: "memory",
    settings: &[],
    memory_bytes: |_| 0,
    open: |storage| Ok((Box::new(MemoryEngine::new(storage.sync)), Loaded::default())),
};

type Key = (KeyHash, Vec<u8>);

/// How a commit fails. What reached the disk is unknown then: the group may yet be found there
/// after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The disk is full.
    NoSpace,
    /// The disk reports an error.
    Io,
}

/// An engine in memory, for simulation.
///
/// Its disk holds committed groups in order. Under [`SyncPolicy::Always`] each is safe when it is
/// answered; under another policy the newest ones may be only in the operating system's memory
/// until [`sync`](MemoryEngine::sync), or a group that the policy forces, takes them along, and a
/// [`crash`](MemoryEngine::crash) keeps as many of them, oldest first, as the simulator says. A
/// group is one log record with a checksum, so a torn one is an absent one.
pub struct MemoryEngine {
    group: Group,
    store: MemoryStore,
}

#[derive(Default)]
struct MemoryStore {
    policy: SyncPolicy,
    image: Image,
    /// How to take the un-synced groups back, oldest first.
    unsynced: VecDeque<Vec<Undo>>,
    /// The first group whose commit failed since one succeeded. RocksDB writes nothing to its log
    /// after it, and goes on in a new one.
    ghost: Option<Vec<Change>>,
    fail_next: Option<Fault>,
    full: bool,
    now_ms: u64,
    /// The last checkpoint and its number.
    checkpoint: Option<(u64, Image)>,
}

/// What is on the disk.
#[derive(Clone, Default)]
struct Image {
    records: BTreeMap<Key, Record>,
    rotten: BTreeSet<Key>,
    marks: BTreeMap<Key, Mark>,
    completions: BTreeMap<u32, LaneCompletion>,
    unconfirmed: BTreeMap<Key, Lanes>,
    state: Option<Vec<u8>>,
    floors: Floors,
}

/// What was there before a change.
enum Undo {
    Record {
        key: Key,
        before: Option<Record>,
        rotten: bool,
    },
    Completion {
        lane: u32,
        before: Option<LaneCompletion>,
    },
    Mark {
        key: Key,
        before: Option<Mark>,
    },
    Unconfirmed {
        key: Key,
        before: Option<Lanes>,
    },
    /// States, floors and emptied ranges are synced at once, and never taken back.
    Nothing,
}

impl MemoryEngine {
    /// An empty disk.
    pub fn new(policy: SyncPolicy) -> MemoryEngine {
        MemoryEngine {
            group: Group::default(),
            store: MemoryStore { policy, ..MemoryStore::default() },
        }
    }

    /// What a shim finds when it starts on this disk.
    pub fn loaded(&self) -> Loaded {
        let image = &self.store.image;
        Loaded {
            state: image.state.clone(),
            floors: image.floors.clone(),
            marks: image
                .marks
                .iter()
                .map(|((hash, key), mark)| (*hash, key.clone(), *mark))
                .collect(),
            completions: image.completions.values().copied().collect(),
            unconfirmed: image
                .unconfirmed
                .iter()
                .map(|((hash, key), lanes)| (*hash, key.clone(), lanes.clone()))
                .collect(),
        }
    }

    /// A disk with the checkpoint of this number; `None`: there is none.
    pub fn restored(&self, number: u64) -> Option<MemoryEngine> {
        let store = &self.store;
        let (_, image) = store.checkpoint.as_ref().filter(|(there, _)| *there == number)?;
        let mut restored = MemoryEngine::new(store.policy);
        restored.store.image = image.clone();
        Some(restored)
    }

    /// How many groups a crash may take back: answers above it make no difference to
    /// [`crash`](MemoryEngine::crash).
    pub fn unsynced(&self) -> usize {
        self.store.unsynced.len() + usize::from(self.store.ghost.is_some())
    }

    /// The operating system writes everything out.
    pub fn sync(&mut self) {
        self.store.unsynced.clear();
    }

    /// The machine stops and starts again: the oldest `survivors` of the
    /// [`unsynced`](MemoryEngine::unsynced) groups are found on the disk, the others never were
    /// there. (When only the process ends, all survive.) Faults that were ordered are over, except
    /// rot.
    pub fn crash(&mut self, survivors: usize) -> Loaded {
        let store = &mut self.store;
        if survivors > store.unsynced.len()
            && let Some(ghost) = store.ghost.take()
        {
            for change in &ghost {
                store.image.apply(change);
            }
        }
        while store.unsynced.len() > survivors {
            for undo in store.unsynced.pop_back().unwrap_or_default().into_iter().rev() {
                store.image.undo(undo);
            }
        }
        store.unsynced.clear();
        store.ghost = None;
        store.fail_next = None;
        store.full = false;
        self.loaded()
    }

    /// The next commit fails like this, and only that one: faults ordered while nothing is
    /// committed don't add up.
    pub fn fail_next(&mut self, fault: Fault) {
        self.store.fail_next = Some(fault);
    }

    /// Whether the disk is full: then all commits fail with [`EngineError::NoSpace`].
    pub fn set_full(&mut self, full: bool) {
        self.store.full = full;
    }

    /// Damages a record where it is stored, until it is written again. Whether there is one.
    pub fn rot(&mut self, hash: &KeyHash, key: &[u8]) -> bool {
        let key = (*hash, key.to_vec());
        self.store.image.records.contains_key(&key) && self.store.image.rotten.insert(key)
    }

    /// What is damaged is as it was, from a backup.
    pub fn mend(&mut self) {
        self.store.image.rotten.clear();
    }

    /// The time by which [`compact`](MemoryEngine::compact) drops expired records; 0: none.
    pub fn set_now_ms(&mut self, now_ms: u64) {
        self.store.now_ms = now_ms;
    }

    /// Drops what the floor allows to drop; how many. RocksDB does it when it likes, the simulator
    /// when it likes.
    pub fn compact(&mut self) -> usize {
        let now_ms = self.store.now_ms;
        let Image { records, rotten, marks, floors, .. } = &mut self.store.image;
        let before = records.len();
        records.retain(|key, record| {
            let (seq, since) = (record.seq, record.since);
            let head =
                RecordHead { seq, tombstone: record.tombstone, expiry_ms: record.expiry_ms, since };
            let offered = marks.get(key).is_some_and(Mark::is_offered);
            let floor = floors.droppable(&key.0, offered);
            rotten.contains(key) || !is_dead(&head, floor, now_ms)
        });
        before - records.len()
    }

    /// The record of a hash, for checkers: no fault touches this.
    pub fn record(&self, hash: &KeyHash) -> Option<&Record> {
        let from = (*hash, Vec::new());
        self.store
            .image
            .records
            .range(from..)
            .next()
            .filter(|((found, _), _)| found == hash)
            .map(|(_, record)| record)
    }

    /// Whether a key's mark offers it, for checkers.
    pub fn is_offered(&self, hash: &KeyHash) -> bool {
        let mut marks = self.store.image.marks.range((*hash, Vec::new())..);
        marks.next().is_some_and(|((of, _), mark)| of == hash && mark.is_offered())
    }

    /// The floors on the disk, for checkers.
    pub fn floors(&self) -> &Floors {
        &self.store.image.floors
    }

    /// All records, for checkers: no fault touches this.
    pub fn records(&self) -> impl Iterator<Item = (&KeyHash, &[u8], &Record)> {
        self.store.image.records.iter().map(|((hash, key), record)| (hash, key.as_slice(), record))
    }
}

impl Engine for MemoryEngine {
    fn execute(&mut self, ops: &mut Vec<EngineOp>, done: &mut Vec<EngineDone>) {
        self.group.run(&mut self.store, ops, done);
    }

    /// All zero: the model counts nothing.
    fn statistics(&self) -> Statistics {
        Statistics::default()
    }

    fn close(mut self: Box<Self>) -> Result<(), EngineError> {
        self.sync();
        Ok(())
    }
}

impl Image {
    fn apply(&mut self, change: &Change) -> Undo {
        match change.clone() {
            Change::Record { hash, key, record } => {
                let key = (hash, key);
                let rotten = self.rotten.remove(&key);
                Undo::Record { before: self.records.insert(key.clone(), record), rotten, key }
            }
            Change::Completion(completion) => {
                let lane = completion.lane;
                Undo::Completion { lane, before: self.completions.insert(lane, completion) }
            }
            Change::Mark { hash, key, mark } => {
                let key = (hash, key);
                Undo::Mark { before: replace(&mut self.marks, key.clone(), mark), key }
            }
            Change::Unconfirmed { hash, key, lanes } => {
                let key = (hash, key);
                let before = replace(&mut self.unconfirmed, key.clone(), lanes);
                Undo::Unconfirmed { key, before }
            }
            Change::State(state, served) => {
                self.state = Some(state);
                self.floors.set_served(served);
                Undo::Nothing
            }
            Change::Floor(chain, floor) => {
                self.floors.raise_base(chain, floor);
                Undo::Nothing
            }
            Change::Floors(floors) => {
                for (bucket, floor) in floors {
                    self.floors.raise(bucket, floor);
                }
                Undo::Nothing
            }
            Change::Emptied { range, keeps, lanes } => {
                self.empty(range, keeps, &lanes);
                Undo::Nothing
            }
            Change::Kept { range, keeps } => {
                self.floors.keep(range, keeps);
                Undo::Nothing
            }
        }
    }

    fn empty(&mut self, range: KeyRange, keeps: bool, lanes: &[u32]) {
        self.records.retain(|key, _| !range.contains(&key.0));
        self.rotten.retain(|key| !range.contains(&key.0));
        self.marks.retain(|key, _| !range.contains(&key.0));
        self.unconfirmed.retain(|key, _| !range.contains(&key.0));
        self.completions.retain(|lane, _| !lanes.contains(lane));
        self.floors.keep(range, keeps);
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Record { key, before, rotten } => {
                self.rotten.remove(&key);
                if rotten {
                    self.rotten.insert(key.clone());
                }
                replace(&mut self.records, key, before);
            }
            Undo::Completion { lane, before } => {
                replace(&mut self.completions, lane, before);
            }
            Undo::Mark { key, before } => {
                replace(&mut self.marks, key, before);
            }
            Undo::Unconfirmed { key, before } => {
                replace(&mut self.unconfirmed, key, before);
            }
            Undo::Nothing => {}
        }
    }

    fn check(&self, key: &Key) -> Result<(), EngineError> {
        match self.rotten.contains(key) {
            true => Err(EngineError::Corrupt(format!("the record of {:?}", key.0))),
            false => Ok(()),
        }
    }
}

fn replace<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

impl Store for MemoryStore {
    fn read(&mut self, hash: &KeyHash, key: &[u8]) -> Result<Option<Record>, EngineError> {
        let key = (*hash, key.to_vec());
        self.image.check(&key)?;
        Ok(self.image.records.get(&key).cloned())
    }

    fn read_version(&mut self, hash: &KeyHash, key: &[u8]) -> Result<Option<Version>, EngineError> {
        let key = (*hash, key.to_vec());
        self.image.check(&key)?;
        Ok(self.image.records.get(&key).map(Version::of))
    }

    fn scan(&mut self, from: u64, to: u64, limit: usize) -> Result<Scanned, EngineError> {
        let mut keys: Vec<ScannedKey> = Vec::new();
        for (key, record) in self.image.records.range((KeyHash::at_position(from), Vec::new())..) {
            let position = key.0.position();
            if position > to {
                break;
            }
            self.image.check(key)?;
            if keys.len() >= limit
                && keys.last().is_some_and(|last| last.hash.position() != position)
            {
                return Ok((keys, Some(position)));
            }
            let (hash, key) = key.clone();
            keys.push(ScannedKey {
                hash,
                key,
                tombstone: record.tombstone,
                expiry_ms: record.expiry_ms,
            });
        }
        Ok((keys, None))
    }

    fn copy(&mut self, range: KeyRange, limit: usize, bytes: usize) -> Result<Copied, EngineError> {
        let mut records: Vec<CopiedRecord> = Vec::new();
        let mut taken = 0;
        for (key, record) in self.image.records.range((range.first, Vec::new())..) {
            if !range.contains(&key.0) {
                break;
            }
            self.image.check(key)?;
            let is_full = records.len() >= limit || taken >= bytes;
            if is_full && records.last().is_some_and(|last| last.hash != key.0) {
                return Ok((records, Some(key.0)));
            }
            taken += key.1.len() + record.value.len();
            let (hash, key) = key.clone();
            records.push(CopiedRecord { hash, key, record: record.clone() });
        }
        Ok((records, None))
    }

    fn completion(&mut self, lane: u32) -> Result<Option<LaneCompletion>, EngineError> {
        Ok(self.image.completions.get(&lane).copied())
    }

    fn commit(&mut self, changes: &[Change], urgency: Urgency) -> Result<(), EngineError> {
        let fault = if self.full { Some(Fault::NoSpace) } else { self.fail_next.take() };
        if let Some(fault) = fault {
            self.ghost.get_or_insert_with(|| changes.to_vec());
            return Err(match fault {
                Fault::NoSpace => EngineError::NoSpace("the simulated disk".to_owned()),
                Fault::Io => EngineError::Io("the simulated disk reports an error".to_owned()),
            });
        }
        self.ghost = None;
        let undo = changes.iter().map(|change| self.image.apply(change)).collect();
        if self.policy.forces(urgency) {
            self.unsynced.clear();
        } else {
            self.unsynced.push_back(undo);
        }
        Ok(())
    }

    fn flush_soon(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    fn checkpoint(&mut self, number: u64) -> Result<(), EngineError> {
        if self.full {
            return Err(EngineError::NoSpace("the simulated disk".into()));
        }
        if self.checkpoint.as_ref().is_none_or(|(there, _)| *there < number) {
            self.checkpoint = Some((number, self.image.clone()));
        }
        Ok(())
    }

    fn floors(&self) -> &Floors {
        &self.image.floors
    }
}
