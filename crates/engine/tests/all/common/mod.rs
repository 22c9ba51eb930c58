//! What the engines' tests share: short ways to write operations, and both engines behind one face.
#![allow(dead_code)] // Each test binary uses its part.
#![allow(unreachable_pub)] // Not a crate of its own.
#![allow(clippy::unwrap_used)] // An unexpected error fails the test; that is all it should do.

pub mod model;

use switchback_core::floors::{Bucket, seq_bucket};
use switchback_core::storage::*;
use switchback_core::topology::{ChainId, ChainMap};
use switchback_engine::rocks::{Options, RocksEngine};
use switchback_engine::{Engine, MemoryEngine, Statistics, SyncPolicy};
use switchback_wire::{HashKey, KeyHash, Map, Partition, Seq};
use tempfile::TempDir;

pub const KNOWN: PutCondition = PutCondition::Newer { known: true };
pub const NEWER: PutCondition = PutCondition::Newer { known: false };

pub fn hash(key: &[u8]) -> KeyHash {
    HashKey([7; 16]).hash(key)
}

pub fn record(seq: u64, value: &[u8]) -> Record {
    Record { seq: Seq(seq), value: value.to_vec(), ..Record::default() }
}

pub fn tombstone(seq: u64) -> Record {
    Record { seq: Seq(seq), tombstone: true, ..Record::default() }
}

pub fn get(key: &[u8]) -> EngineOp {
    EngineOp::Get { id: 0, hash: hash(key), key: key.to_vec() }
}

pub fn put(key: &[u8], record: Record, condition: PutCondition) -> EngineOp {
    EngineOp::Put {
        id: 0,
        hash: hash(key),
        key: key.to_vec(),
        record,
        condition,
        completion: None,
        source: Source::Client,
        unconfirmed: None,
    }
}

/// The same of the cache.
pub fn put_of_cache(key: &[u8], record: Record, condition: PutCondition) -> EngineOp {
    let EngineOp::Put { id, hash, key, record, condition, completion, unconfirmed, .. } =
        put(key, record, condition)
    else {
        unreachable!("it makes no other operation");
    };
    let source = Source::Cache;
    EngineOp::Put { id, hash, key, record, condition, completion, source, unconfirmed }
}

pub fn put_completing(
    key: &[u8],
    record: Record,
    condition: PutCondition,
    completion: LaneCompletion,
) -> EngineOp {
    EngineOp::Put {
        id: 0,
        hash: hash(key),
        key: key.to_vec(),
        record,
        condition,
        completion: Some(completion),
        source: Source::Client,
        unconfirmed: None,
    }
}

pub fn mark(key: &[u8], mark: Option<Mark>) -> EngineOp {
    EngineOp::SetMark { id: 0, hash: hash(key), key: key.to_vec(), mark, unconfirmed: None }
}

/// What another replica has, of a client's.
pub fn merge(
    key: &[u8],
    record: Option<Record>,
    mark: Option<Mark>,
    completions: Vec<LaneCompletion>,
) -> EngineOp {
    EngineOp::Merge {
        id: 0,
        hash: hash(key),
        key: key.to_vec(),
        record,
        mark: mark.map(Some),
        completions,
        source: Source::Client,
        unconfirmed: None,
    }
}

/// A put of which the tail doesn't know yet.
pub fn put_unconfirmed(key: &[u8], record: Record, lanes: Lanes) -> EngineOp {
    EngineOp::Put {
        id: 0,
        hash: hash(key),
        key: key.to_vec(),
        record,
        condition: PutCondition::Newer { known: false },
        completion: None,
        source: Source::Client,
        unconfirmed: Some(lanes),
    }
}

pub fn state(state: &[u8]) -> EngineOp {
    EngineOp::SetState { id: 0, state: state.to_vec(), served: ChainMap::default() }
}

/// Two chains serve a half of the keys each.
pub fn halves() -> ChainMap {
    let equal = Map::equal(vec![vec![0], vec![0]]);
    let of_chain = |(chain, it): (u16, &Partition)| Partition { chain, ..it.clone() };
    let map = Map::new((0..).zip(equal.partitions()).map(of_chain).collect());
    ChainMap::from(&map.expect("two halves"))
}

pub fn floor(floor: u64) -> EngineOp {
    EngineOp::SetFloor { id: 0, chain: ChainId::default(), floor: Seq(floor) }
}

pub fn floor_of(key: &[u8], floor: u64) -> EngineOp {
    EngineOp::RaiseFloors { id: 0, floors: vec![(bucket(&hash(key)), Seq(floor))] }
}

/// The bucket of a key, where there is one chain.
pub fn bucket(hash: &KeyHash) -> Bucket {
    Bucket { chain: ChainId::default(), number: seq_bucket(hash) }
}

pub fn scan(from: u64, to: u64, limit: usize) -> EngineOp {
    EngineOp::Scan { id: 0, from, to, limit }
}

pub fn empty(range: KeyRange, keeps: bool, lanes: Lanes) -> EngineOp {
    EngineOp::Empty { id: 0, range, keeps, lanes }
}

pub fn keep(range: KeyRange, keeps: bool) -> EngineOp {
    EngineOp::Keep { id: 0, range, keeps }
}

pub fn copy(range: KeyRange, limit: usize, bytes: usize) -> EngineOp {
    EngineOp::Copy { id: 0, range, limit, bytes }
}

/// All keys whose hashes begin with a bit of 0, or with one of 1.
pub fn half(high: bool) -> KeyRange {
    let (first, last) = if high { (0x80, 0xff) } else { (0, 0x7f) };
    let hash = |first, rest| {
        let mut bytes = [rest; 16];
        bytes[0] = first;
        KeyHash(bytes)
    };
    KeyRange { first: hash(first, 0), last: hash(last, 0xff) }
}

pub type Reply = Result<EngineReply, EngineError>;

pub fn stored() -> Reply {
    Ok(EngineReply::Put(Ok(None)))
}

/// The same of a record that was made upon the one before it.
pub fn stored_since(seq: u64) -> Reply {
    Ok(EngineReply::Put(Ok(Some(Seq(seq)))))
}

pub fn refused(seq: u64) -> Reply {
    Ok(EngineReply::Put(Err(Newest::Record(Seq(seq)))))
}

/// Of an absent key.
pub fn refused_by_floor(seq: u64) -> Reply {
    Ok(EngineReply::Put(Err(Newest::Floor(Seq(seq)))))
}

pub fn got(record: Record) -> Reply {
    Ok(EngineReply::Got(Some(record)))
}

pub const ABSENT: Reply = Ok(EngineReply::Got(None));
pub const SET: Reply = Ok(EngineReply::Set);

fn number(op: &mut EngineOp, to: OpId) {
    match op {
        EngineOp::Get { id, .. }
        | EngineOp::Put { id, .. }
        | EngineOp::SetMark { id, .. }
        | EngineOp::Merge { id, .. }
        | EngineOp::Confirm { id, .. }
        | EngineOp::SetState { id, .. }
        | EngineOp::SetFloor { id, .. }
        | EngineOp::RaiseFloors { id, .. }
        | EngineOp::Empty { id, .. }
        | EngineOp::Keep { id, .. }
        | EngineOp::Copy { id, .. }
        | EngineOp::FlushSoon { id }
        | EngineOp::Checkpoint { id, .. }
        | EngineOp::Scan { id, .. } => *id = to,
    }
}

/// Runs a group. Fails if an operation isn't answered, is answered twice, or out of order.
pub fn run(engine: &mut dyn Engine, ops: impl IntoIterator<Item = EngineOp>) -> Vec<Reply> {
    let mut ops: Vec<EngineOp> = ops.into_iter().collect();
    for (id, op) in ops.iter_mut().enumerate() {
        number(op, 100 + id as OpId);
    }
    let (count, mut done) = (ops.len() as OpId, Vec::new());
    engine.execute(&mut ops, &mut done);
    assert!(ops.is_empty(), "operations are taken");
    assert!(
        done.iter().map(|done| done.id).eq(100..100 + count),
        "one answer each, in order: {done:?}"
    );
    done.into_iter().map(|done| done.result).collect()
}

pub fn run_one(engine: &mut dyn Engine, op: EngineOp) -> Reply {
    run(engine, [op]).remove(0)
}

/// An engine that can be stopped and started, whichever it is.
pub trait Restartable: Engine {
    fn reopen(&mut self) -> Loaded;
    fn compact_now(&mut self);
    fn set_clock(&mut self, now_ms: u64);
}

impl Restartable for MemoryEngine {
    fn reopen(&mut self) -> Loaded {
        self.crash(usize::MAX)
    }
    fn compact_now(&mut self) {
        self.compact();
    }
    fn set_clock(&mut self, now_ms: u64) {
        self.set_now_ms(now_ms);
    }
}

/// RocksDB in a directory of its own.
pub struct Rocks {
    pub engine: Option<RocksEngine>,
    pub dir: TempDir,
    pub options: Options,
}

/// Small, so that tests see flushes; no syncs, so that they are fast.
pub fn small_options() -> Options {
    Options {
        sync: SyncPolicy::None,
        block_cache_bytes: 4 << 20,
        memtable_bytes: 4 << 20,
        ..Options::default()
    }
}

impl Rocks {
    pub fn new() -> Rocks {
        let dir = tempfile::tempdir().unwrap();
        let options = small_options();
        let (engine, loaded) = RocksEngine::open(dir.path(), &options).unwrap();
        assert_eq!(loaded, Loaded::default());
        Rocks { engine: Some(engine), dir, options }
    }

    pub fn engine(&mut self) -> &mut RocksEngine {
        self.engine.as_mut().unwrap()
    }

    /// Without a flush: what isn't in a table is in the log only.
    pub fn drop_engine(&mut self) {
        self.engine = None;
    }

    pub fn open(&mut self) -> Loaded {
        let (engine, loaded) = RocksEngine::open(self.dir.path(), &self.options).unwrap();
        self.engine = Some(engine);
        loaded
    }
}

impl Engine for Rocks {
    fn execute(&mut self, ops: &mut Vec<EngineOp>, done: &mut Vec<EngineDone>) {
        self.engine().execute(ops, done);
    }
    fn statistics(&self) -> Statistics {
        self.engine.as_ref().unwrap().statistics()
    }
    fn close(self: Box<Self>) -> Result<(), EngineError> {
        Box::new(self.engine.unwrap()).close()
    }
}

impl Restartable for Rocks {
    fn reopen(&mut self) -> Loaded {
        Box::new(self.engine.take().unwrap()).close().unwrap();
        self.open()
    }
    fn compact_now(&mut self) {
        self.engine().compact().unwrap();
    }
    fn set_clock(&mut self, now_ms: u64) {
        self.options.clock.store(now_ms, std::sync::atomic::Ordering::Relaxed);
    }
}

/// The directory's files of an extension, oldest first.
pub fn files(dir: &std::path::Path, extension: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    files.sort();
    files
}
