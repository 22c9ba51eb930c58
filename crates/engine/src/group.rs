//! Group commit (DeWitt et al., "Implementation techniques for main memory database systems",
//! SIGMOD 1984), as both engines do it: decide in order, commit once, answer in order.
//!
//! Decisions look at the store and, before it, at the *overlay*: what this very group is about to
//! write. An answer that rests on the overlay is given only once the commit has succeeded.

use crate::policy::Urgency;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use switchback_core::floors::{Bucket, Floors, seq_bucket};
use switchback_core::storage::{
    CopiedRecord, EngineDone, EngineError, EngineOp, EngineReply, KeyRange, LaneCompletion, Lanes,
    Mark, Newest, OpId, PutCondition, Record, ScannedKey, Source,
};
use switchback_core::topology::{ChainId, ChainMap};
use switchback_wire::{KeyHash, Seq};

/// One thing that a commit writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// A record, already found to be due.
    Record { hash: KeyHash, key: Vec<u8>, record: Record },
    /// The trace of a conditional write.
    Completion(LaneCompletion),
    /// A mark, or its end.
    Mark { hash: KeyHash, key: Vec<u8>, mark: Option<Mark> },
    /// That a key is unconfirmed, with these lanes; `None`: that it is confirmed.
    Unconfirmed { hash: KeyHash, key: Vec<u8>, lanes: Option<Lanes> },
    /// The shim's state, and which chain serves each key.
    State(Vec<u8>, ChainMap),
    /// The floor of all keys of a chain, already found to rise.
    Floor(ChainId, Seq),
    /// Floors of buckets, already found to rise.
    Floors(Vec<(Bucket, Seq)>),
    /// The end of everything in a range, which keeps its tombstones from then on if it says so; and
    /// of the completions of these lanes, already found to be no later.
    Emptied { range: KeyRange, keeps: bool, lanes: Vec<u32> },
    /// Whether a range keeps its tombstones.
    Kept { range: KeyRange, keeps: bool },
}

/// What a read found.
pub(crate) type ReadResult = Result<Option<Record>, EngineError>;

/// What a scan found: the keys, and where to go on.
pub(crate) type Scanned = (Vec<ScannedKey>, Option<u64>);

/// What a copy read: records, and where to go on.
pub(crate) type Copied = (Vec<CopiedRecord>, Option<KeyHash>);

/// A record without its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    /// Its seq.
    pub(crate) seq: Seq,
    /// Where its series began ([`Record::base`]).
    pub(crate) base: Seq,
}

impl Version {
    /// Of a record.
    pub(crate) fn of(record: &Record) -> Version {
        Version { seq: record.seq, base: record.base() }
    }
}

/// Everything of a stored record but its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordHead {
    pub(crate) seq: Seq,
    pub(crate) tombstone: bool,
    pub(crate) expiry_ms: u64,
    pub(crate) since: Option<Seq>,
}

/// Whether a record reads as absent, so that it may be dropped if the floor is as high: that speaks
/// for it from then on.
pub(crate) fn is_dead(record: &RecordHead, floor: Seq, now_ms: u64) -> bool {
    let expired = record.expiry_ms != 0 && record.expiry_ms <= now_ms;
    record.seq <= floor && (record.tombstone || expired)
}

/// What the engines differ in.
pub(crate) trait Store {
    /// Reads a committed record.
    fn read(&mut self, hash: &KeyHash, key: &[u8]) -> Result<Option<Record>, EngineError>;
    /// Reads the committed records of these keys.
    fn read_all(&mut self, keys: &[(KeyHash, Vec<u8>)]) -> Vec<ReadResult> {
        keys.iter().map(|(hash, key)| self.read(hash, key)).collect()
    }
    /// Reads what a committed record is, without its value.
    fn read_version(&mut self, hash: &KeyHash, key: &[u8]) -> Result<Option<Version>, EngineError>;
    /// Lists committed keys.
    fn scan(&mut self, from: u64, to: u64, limit: usize) -> Result<Scanned, EngineError>;
    /// Reads committed records.
    fn copy(&mut self, range: KeyRange, limit: usize, bytes: usize) -> Result<Copied, EngineError>;
    /// The completion that a lane has committed.
    fn completion(&mut self, lane: u32) -> Result<Option<LaneCompletion>, EngineError>;
    /// Makes all changes durable, or none: how soon the policy says, by the most urgent of them.
    fn commit(&mut self, changes: &[Change], urgency: Urgency) -> Result<(), EngineError>;
    /// The committed floors.
    fn floors(&self) -> &Floors;
    /// Begins to write out what only the log has, so that the next checkpoint is quick.
    fn flush_soon(&mut self) -> Result<(), EngineError>;
    /// Makes the checkpoint with this number of all that is committed, unless there is one with
    /// this or a higher number; drops those with lower ones.
    fn checkpoint(&mut self, number: u64) -> Result<(), EngineError>;
}

/// An answer that may have to wait for the commit.
enum Answer {
    /// Rests on committed data only.
    Now(Result<EngineReply, EngineError>),
    /// Rests on the commit; fails with it.
    IfCommitted(EngineReply),
    /// Of a get: the record of this change; the stored one if the commit fails.
    ReadOf(usize),
    /// Of a get: what the next of the group's reads finds. The group changes nothing of that key
    /// before it.
    Read,
}

/// What a put is to store of a key, and when.
struct Put {
    record: Record,
    condition: PutCondition,
    completion: Option<LaneCompletion>,
    unconfirmed: Option<Lanes>,
}

/// What a put finds where it is to store.
struct Found {
    stored: Option<Version>,
    /// This very group is about to write it, or the floor of an absent key.
    rests_on_commit: bool,
    /// What an absent key counts as.
    floor: Seq,
    /// What may have been dropped here was at most this.
    dropped: Seq,
}

/// The overlay and its memory, kept between groups so that they don't allocate.
#[derive(Default)]
pub(crate) struct Group {
    changes: Vec<Change>,
    /// Keys that are read together, before the commit.
    reads: Vec<(KeyHash, Vec<u8>)>,
    answers: Vec<(OpId, Answer)>,
    overlay: HashMap<KeyHash, usize, BuildHasherDefault<FirstBytes>>,
    served: Option<ChainMap>,
    bases: BTreeMap<ChainId, Seq>,
    raised: BTreeMap<Bucket, Seq>,
    urgency: Urgency,
}

/// Key hashes are random already.
#[derive(Default)]
struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 = self.0.rotate_left(5) ^ u64::from_le_bytes(word);
        }
    }
    fn write_usize(&mut self, _length: usize) {}
}

impl Group {
    /// Runs `ops` as [`crate::Engine::execute`] says.
    pub(crate) fn run<S: Store>(
        &mut self,
        store: &mut S,
        ops: &mut Vec<EngineOp>,
        done: &mut Vec<EngineDone>,
    ) {
        let single = ops.len() == 1;
        for op in ops.drain(..) {
            self.take(store, op, single, done);
        }
        self.finish(store, done);
    }

    fn take<S: Store>(
        &mut self,
        store: &mut S,
        op: EngineOp,
        single: bool,
        done: &mut Vec<EngineDone>,
    ) {
        let (id, answer) = match op {
            EngineOp::Get { id, hash, key } => (id, self.get(hash, key)),
            EngineOp::Put { id, hash, key, record, condition, completion, source, unconfirmed } => {
                self.is_from(source);
                let put = Put { record, condition, completion, unconfirmed };
                (id, self.put(store, (hash, key), put, single))
            }
            EngineOp::SetMark { id, hash, key, mark, unconfirmed } => {
                self.note(hash, &key, unconfirmed);
                (id, self.set_mark(hash, key, mark))
            }
            EngineOp::Merge { id, hash, key, record, mark, completions, source, unconfirmed } => {
                let merged = record.map(|record| self.merge(store, (hash, key.clone()), record));
                if let Some(Err(error)) = merged {
                    (id, Answer::Now(Err(error)))
                } else {
                    self.is_from(source);
                    self.note(hash, &key, unconfirmed);
                    self.changes.extend(completions.into_iter().map(Change::Completion));
                    if let Some(mark) = mark {
                        self.set_mark(hash, key, mark);
                    }
                    (id, Answer::IfCommitted(EngineReply::Set))
                }
            }
            EngineOp::Confirm { id, keys } => {
                let confirmed = |(hash, key)| Change::Unconfirmed { hash, key, lanes: None };
                self.changes.extend(keys.into_iter().map(confirmed));
                (id, Answer::IfCommitted(EngineReply::Set))
            }
            EngineOp::SetState { id, state, served } => {
                self.is_at_least(Urgency::Must);
                self.served = Some(served.clone());
                (id, self.set(Change::State(state, served)))
            }
            EngineOp::SetFloor { id, chain, floor } => (id, self.set_floor(store, chain, floor)),
            EngineOp::RaiseFloors { id, floors } => (id, self.raise_floors(store, floors)),
            EngineOp::Empty { id, range, keeps, lanes } => {
                // By itself, so that nothing of the group is looked for where it was.
                self.finish(store, done);
                (id, self.empty(store, range, keeps, &lanes))
            }
            EngineOp::Keep { id, range, keeps } => {
                self.is_at_least(Urgency::Must);
                (id, self.set(Change::Kept { range, keeps }))
            }
            EngineOp::Copy { id, range, limit, bytes } => {
                // As for a scan.
                self.finish(store, done);
                let copied = store.copy(range, limit.max(1), bytes);
                (id, Answer::Now(copied.map(|(records, next)| EngineReply::Copied(records, next))))
            }
            EngineOp::FlushSoon { id } => {
                (id, Answer::Now(store.flush_soon().map(|()| EngineReply::Set)))
            }
            EngineOp::Checkpoint { id, number } => {
                // As for a scan.
                self.finish(store, done);
                (id, Answer::Now(store.checkpoint(number).map(|()| EngineReply::Set)))
            }
            EngineOp::Scan { id, from, to, limit } => {
                // A scan reads the store itself, so everything before it goes there first. One
                // commit or two makes no difference: operations are atomic each by itself.
                self.finish(store, done);
                let scanned = store.scan(from, to, limit.max(1));
                (id, Answer::Now(scanned.map(|(keys, next)| EngineReply::Scanned(keys, next))))
            }
        };
        let ends_group = matches!(self.changes.last(), Some(Change::Emptied { .. }));
        self.answers.push((id, answer));
        if ends_group {
            self.finish(store, done);
        }
    }

    /// Ends all that there is of a range.
    fn empty<S: Store>(
        &mut self,
        store: &mut S,
        range: KeyRange,
        keeps: bool,
        lanes: &Lanes,
    ) -> Answer {
        let mut gone = Vec::new();
        for (lane, request) in lanes {
            match store.completion(*lane) {
                Ok(Some(done)) if done.request <= *request => gone.push(*lane),
                Ok(_) => {}
                Err(error) => return Answer::Now(Err(error)),
            }
        }
        self.is_at_least(Urgency::Must);
        self.set(Change::Emptied { range, keeps, lanes: gone })
    }

    fn get(&mut self, hash: KeyHash, key: Vec<u8>) -> Answer {
        if let Some(change) = self.overlaid(&hash, &key) {
            return Answer::ReadOf(change);
        }
        self.reads.push((hash, key));
        Answer::Read
    }

    fn put<S: Store>(
        &mut self,
        store: &mut S,
        (hash, key): (KeyHash, Vec<u8>),
        put: Put,
        single: bool,
    ) -> Answer {
        let Put { mut record, condition, completion, unconfirmed } = put;
        let inherits = record.since == Record::INHERITED;
        if inherits || condition != (PutCondition::Newer { known: true }) {
            let found = match self.version(store, &hash, &key) {
                Ok(found) => found,
                Err(error) => return Answer::Now(Err(error)),
            };
            if let Some(refusal) = self.refusal(&found, record.seq, condition) {
                return refusal;
            }
            if inherits {
                let base = found.stored.map_or(found.dropped, |version| version.base);
                record.since = Some(base.min(record.seq));
            }
        }
        let since = record.since;
        self.note(hash, &key, unconfirmed);
        if !single {
            self.overlay.insert(hash, self.changes.len());
        }
        self.changes.push(Change::Record { hash, key, record });
        self.changes.extend(completion.map(Change::Completion));
        Answer::IfCommitted(EngineReply::Put(Ok(since)))
    }

    /// Stores what another replica has, if it is newer. Floors say nothing of it: each replica has
    /// its own.
    fn merge<S: Store>(
        &mut self,
        store: &mut S,
        (hash, key): (KeyHash, Vec<u8>),
        record: Record,
    ) -> Result<(), EngineError> {
        let stored = self.version(store, &hash, &key)?.stored;
        if stored.is_none_or(|version| record.seq > version.seq) {
            self.overlay.insert(hash, self.changes.len());
            self.changes.push(Change::Record { hash, key, record });
        }
        Ok(())
    }

    fn set_mark(&mut self, hash: KeyHash, key: Vec<u8>, mark: Option<Mark>) -> Answer {
        if mark.is_some() {
            self.is_at_least(Urgency::Must);
        }
        self.set(Change::Mark { hash, key, mark })
    }

    /// Notes that a key is unconfirmed, if it is.
    fn note(&mut self, hash: KeyHash, key: &[u8], unconfirmed: Option<Lanes>) {
        if let Some(lanes) = unconfirmed {
            self.changes.push(Change::Unconfirmed { hash, key: key.to_vec(), lanes: Some(lanes) });
        }
    }

    /// What a put finds.
    fn version<S: Store>(
        &self,
        store: &mut S,
        hash: &KeyHash,
        key: &[u8],
    ) -> Result<Found, EngineError> {
        let (stored, uncommitted) = match self.overlaid(hash, key) {
            Some(change) => (Some(Version::of(self.record_of(change))), true),
            None => (store.read_version(hash, key)?, false),
        };
        let served = self.served.as_ref().unwrap_or_else(|| store.floors().served());
        let bucket = Bucket { chain: served.of(hash), number: seq_bucket(hash) };
        let rising = self.bases.get(&bucket.chain).copied();
        let floor = rising.unwrap_or_else(|| store.floors().base(bucket.chain));
        let raised = self.raised.get(&bucket).copied();
        let dropped = floor.max(raised.unwrap_or_else(|| store.floors().of_bucket(bucket)));
        let rests_on_commit = uncommitted || (stored.is_none() && rising.is_some());
        Ok(Found { stored, rests_on_commit, floor, dropped })
    }

    /// The refusal of a put with this seq, if it must be refused.
    fn refusal(&self, found: &Found, seq: Seq, condition: PutCondition) -> Option<Answer> {
        let stored = found.stored.map(|version| version.seq);
        let newest = stored.map_or(Newest::Floor(found.floor), Newest::Record);
        let is_newer = seq > newest.seq();
        let due = match condition {
            PutCondition::Newer { known } => known || is_newer,
            PutCondition::IfSeq(expected) => is_newer && newest.version() == expected,
        };
        if due {
            return None;
        }
        let reply = EngineReply::Put(Err(newest));
        Some(if found.rests_on_commit {
            Answer::IfCommitted(reply)
        } else {
            Answer::Now(Ok(reply))
        })
    }

    /// A record comes from there.
    fn is_from(&mut self, source: Source) {
        if source == Source::Cache {
            self.is_at_least(Urgency::Cache);
        }
    }

    fn is_at_least(&mut self, urgency: Urgency) {
        self.urgency = self.urgency.max(urgency);
    }

    fn set(&mut self, change: Change) -> Answer {
        self.changes.push(change);
        Answer::IfCommitted(EngineReply::Set)
    }

    /// The floor never sinks: what lay below the old one may be gone already.
    fn set_floor<S: Store>(&mut self, store: &S, chain: ChainId, floor: Seq) -> Answer {
        self.is_at_least(Urgency::Must);
        let base = self.bases.entry(chain).or_insert_with(|| store.floors().base(chain));
        *base = floor.max(*base);
        let floor = *base;
        self.set(Change::Floor(chain, floor))
    }

    fn raise_floors<S: Store>(&mut self, store: &S, floors: Vec<(Bucket, Seq)>) -> Answer {
        self.is_at_least(Urgency::Must);
        let mut rising = Vec::new();
        for (bucket, floor) in floors {
            let raised =
                self.raised.entry(bucket).or_insert_with(|| store.floors().of_bucket(bucket));
            if floor > *raised {
                *raised = floor;
                rising.push((bucket, floor));
            }
        }
        self.set(Change::Floors(rising))
    }

    /// Reads and commits what was gathered, and answers what was taken.
    fn finish<S: Store>(&mut self, store: &mut S, done: &mut Vec<EngineDone>) {
        let mut read = store.read_all(&self.reads).into_iter();
        self.reads.clear();
        let committed = match self.changes.is_empty() {
            true => Ok(()),
            false => store.commit(&self.changes, self.urgency),
        };
        let mut answers = std::mem::take(&mut self.answers);
        for (id, answer) in answers.drain(..) {
            let result = match (answer, &committed) {
                (Answer::Now(result), _) => result,
                (Answer::IfCommitted(reply), Ok(())) => Ok(reply),
                (Answer::IfCommitted(_), Err(error)) => Err(error.clone()),
                (Answer::ReadOf(change), Ok(())) => {
                    Ok(EngineReply::Got(Some(self.record_of(change).clone())))
                }
                (Answer::ReadOf(change), Err(_)) => {
                    let (hash, key) = self.key_of(change);
                    store.read(hash, key).map(EngineReply::Got)
                }
                (Answer::Read, _) => {
                    read.next().expect("each key that is read has a result").map(EngineReply::Got)
                }
            };
            done.push(EngineDone { id, result });
        }
        self.answers = answers;
        self.changes.clear();
        self.overlay.clear();
        self.served = None;
        self.bases.clear();
        self.raised.clear();
        self.urgency = Urgency::MayLag;
    }

    /// The change that holds the newest record of the key, if this group writes one.
    fn overlaid(&self, hash: &KeyHash, key: &[u8]) -> Option<usize> {
        let newest = *self.overlay.get(hash)?;
        if self.key_of(newest).1 == key {
            return Some(newest);
        }
        // Two keys of one 128-bit hash: never seen, but then the overlay knows only the later one.
        (0..newest).rev().find(|&at| {
            matches!(
                &self.changes[at],
                Change::Record { hash: other, key: name, .. } if other == hash && name == key
            )
        })
    }

    fn record_of(&self, change: usize) -> &Record {
        match &self.changes[change] {
            Change::Record { record, .. } => record,
            _ => unreachable!("the overlay names changes of records only"),
        }
    }

    fn key_of(&self, change: usize) -> (&KeyHash, &[u8]) {
        match &self.changes[change] {
            Change::Record { hash, key, .. } => (hash, key),
            _ => unreachable!("the overlay names changes of records only"),
        }
    }
}
