//! Storage as effects: what a node's shim asks of its engine, and what the engine answers.
//!
//! The shim emits [`EngineOp`]s and gets one [`EngineDone`] for each. The engine takes them in
//! order: **an operation sees the effect of every operation submitted before it**, even of one that
//! is not durable yet; but it is answered only when everything it saw is durable. So an engine may
//! gather writes into one commit (group commit), which callers don't notice.

use crate::floors::{Bucket, Floors};
use crate::topology::{ChainId, ChainMap};
use serde::{Deserialize, Serialize};
use switchback_wire::{KeyHash, Seq};
use thiserror::Error;

/// Names one operation of a shim; never used twice while outstanding.
pub type OpId = u64;

/// A record as an engine stores it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// The write that made it.
    pub seq: Seq,
    /// It is a delete.
    pub tombstone: bool,
    /// Milliseconds since the Unix epoch; 0: never.
    pub expiry_ms: u64,
    /// Empty for a tombstone.
    pub value: Vec<u8>,
    /// Where an unbroken series of dependent versions began, if this is one of them: each was made
    /// upon the one before it (by a condition, or in the cache). An unconditional write with a seq
    /// in between never ran here. `None`: a series may begin here.
    pub since: Option<Seq>,
}

impl Record {
    /// For [`Record::since`] of a record to be stored: the engine puts in what is true of the
    /// version that it replaces.
    pub const INHERITED: Option<Seq> = Some(Seq(u64::MAX));

    /// Unconditional writes to here ran, or were overwritten by one that ran; those above, up to
    /// `seq`, never ran.
    pub fn base(&self) -> Seq {
        self.since.unwrap_or(self.seq)
    }

    /// Whether a reader sees a value at this time.
    pub fn is_live(&self, unix_ms: u64) -> bool {
        !self.tombstone && (self.expiry_ms == 0 || self.expiry_ms > unix_ms)
    }
}

/// When a put is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PutCondition {
    /// Iff the record is newer than the stored one; `known` if the shim already knows that it is,
    /// so that the engine needn't read.
    Newer {
        /// No stored version can be newer.
        known: bool,
    },
    /// Iff it is newer than the stored record and the stored seq ([`Seq::NONE`] for an absent key,
    /// whatever the floor) is this one.
    IfSeq(Seq),
}

/// Where a record to be stored comes from, which says how soon it must be on the disk if the
/// engine's policy lets records of clients wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Source {
    /// A client's write, which was just made: how long it may wait is what the policy says.
    Client,
    /// The cache, by an eviction or a recovery. The write was acknowledged long ago, and clients
    /// stop preserving it once it is stored here.
    Cache,
}

/// The durable trace of a conditional write (protocol, section 5), stored in the same batch as the
/// write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LaneCompletion {
    /// Session lane.
    pub lane: u32,
    /// The lane's request counter.
    pub request: u64,
    /// The write's sequence number.
    pub seq: Seq,
}

/// Names an offer of a key to the cache. The node draws it, and never uses one twice for the keys
/// of a partition; other parts only compare it and give it back.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct OfferId(u64);

impl OfferId {
    /// Names no offer.
    pub const NONE: OfferId = OfferId(0);

    /// The offer that a mark names by these bits; [`OfferId::bits`] gives them back.
    pub const fn from_bits(bits: u64) -> OfferId {
        OfferId(bits)
    }

    /// What to write down of it.
    pub const fn bits(self) -> u64 {
        self.0
    }
}

/// What a node remembers of a key beside its record (rules 2, 3 and 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mark {
    /// Writes up to here are bounced.
    pub fence: Seq,
    /// The offer under which the key may be cached; [`OfferId::NONE`]: it isn't offered.
    pub offer: OfferId,
    /// The key's floor when it was offered. Whatever the cache writes under this offer is newer.
    pub floor: Seq,
}

impl Mark {
    /// Whether the key may be cached.
    pub fn is_offered(&self) -> bool {
        self.offer != OfferId::NONE
    }
}

/// That a key is *unconfirmed*: what a replica stores of it, and what these lanes have completed on
/// it up to these requests, isn't known to be at the tail of its partition.
pub type Lanes = Vec<(u32, u64)>;

/// Keys whose hashes follow each other: those of a partition, or of a part of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct KeyRange {
    /// The first hash.
    pub first: KeyHash,
    /// The last one.
    pub last: KeyHash,
}

impl KeyRange {
    /// Whether a key is in it.
    #[inline]
    pub fn contains(&self, hash: &KeyHash) -> bool {
        (self.first..=self.last).contains(hash)
    }
}

/// A key and its record, as a copy has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopiedRecord {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// Its record.
    pub record: Record,
}

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineOp {
    /// Reads a record.
    Get {
        /// Repeated in the answer.
        id: OpId,
        /// Hash of the key.
        hash: KeyHash,
        /// The key.
        key: Vec<u8>,
    },
    /// Stores a record, perhaps.
    Put {
        /// Repeated in the answer.
        id: OpId,
        /// Hash of the key.
        hash: KeyHash,
        /// The key.
        key: Vec<u8>,
        /// What to store.
        record: Record,
        /// When to store it.
        condition: PutCondition,
        /// Stored in the same batch, iff the record is.
        completion: Option<LaneCompletion>,
        /// What is lost if the record is lost with the machine's power.
        source: Source,
        /// Noted in the same batch, iff the record is stored.
        unconfirmed: Option<Lanes>,
    },
    /// Sets or clears a key's mark. A mark that is set is synced whatever the engine's policy: an
    /// eviction's record would be refused without it. That it was cleared may be lost.
    SetMark {
        /// Repeated in the answer.
        id: OpId,
        /// Hash of the key.
        hash: KeyHash,
        /// The key.
        key: Vec<u8>,
        /// `None`: clear.
        mark: Option<Mark>,
        /// Noted in the same batch.
        unconfirmed: Option<Lanes>,
    },
    /// Stores what another replica has of a key, in one batch: the record iff it is newer than the
    /// stored one, whatever the floor; the mark and the completions as they are.
    Merge {
        /// Repeated in the answer.
        id: OpId,
        /// Hash of the key.
        hash: KeyHash,
        /// The key.
        key: Vec<u8>,
        /// Its record.
        record: Option<Record>,
        /// Its mark; `Some(None)`: clear.
        mark: Option<Option<Mark>>,
        /// Completions of writes to it.
        completions: Vec<LaneCompletion>,
        /// What is lost if the record is lost with the machine's power.
        source: Source,
        /// Noted in the same batch.
        unconfirmed: Option<Lanes>,
    },
    /// Forgets that these keys are unconfirmed. It may be lost.
    Confirm {
        /// Repeated in the answer.
        id: OpId,
        /// Which.
        keys: Vec<(KeyHash, Vec<u8>)>,
    },
    /// Replaces the shim's own durable state (opaque to the engine), and says by which chain's
    /// floors each key is judged. Synced to the disk whatever the engine's policy.
    SetState {
        /// Repeated in the answer.
        id: OpId,
        /// The state.
        state: Vec<u8>,
        /// Which chain serves each key.
        served: ChainMap,
    },
    /// Absent keys of a chain count as stored with this seq from now on, and its tombstones and
    /// expired records up to it may be dropped. Synced. A floor never sinks: a lower one changes
    /// nothing.
    SetFloor {
        /// Repeated in the answer.
        id: OpId,
        /// The chain.
        chain: ChainId,
        /// The floor.
        floor: Seq,
    },
    /// Tombstones and expired records of these buckets up to these seqs may be dropped, but not
    /// those of offered keys: an older record of them may still come out of the cache. Absent keys
    /// accept puts below: what may be put there the shim knows. Synced; floors never sink.
    RaiseFloors {
        /// Repeated in the answer.
        id: OpId,
        /// Buckets and their floors.
        floors: Vec<(Bucket, Seq)>,
    },
    /// Drops all that is stored of a range's keys, tombstones, marks and what is noted of them
    /// included, and the completions of these lanes up to these requests. Synced.
    Empty {
        /// Repeated in the answer.
        id: OpId,
        /// Which keys.
        range: KeyRange,
        /// As of [`EngineOp::Keep`]: an older record may still be copied.
        keeps: bool,
        /// Completions that only this node may have had.
        lanes: Lanes,
    },
    /// A range keeps its tombstones and expired records from now on, whatever floors say, while it
    /// is copied; or it has been copied whole, and they may be dropped again. Synced.
    Keep {
        /// Repeated in the answer.
        id: OpId,
        /// Which keys.
        range: KeyRange,
        /// Whether it keeps them.
        keeps: bool,
    },
    /// Reads the records of a range in the order of their hashes, tombstones included.
    Copy {
        /// Repeated in the answer.
        id: OpId,
        /// Which keys.
        range: KeyRange,
        /// At most about this many; keys of one hash are never separated.
        limit: usize,
        /// No more once they have this many bytes.
        bytes: usize,
    },
    /// Begins to write out what only the log has, so that the next checkpoint is quick. Answered at
    /// once.
    FlushSoon {
        /// Repeated in the answer.
        id: OpId,
    },
    /// Keeps a copy of all that is stored, under a number, unless there is one with this or a
    /// higher number; drops those with lower ones. Synced.
    Checkpoint {
        /// Repeated in the answer.
        id: OpId,
        /// Which.
        number: u64,
    },
    /// Lists stored keys in the order of their hashes, tombstones included.
    Scan {
        /// Repeated in the answer.
        id: OpId,
        /// First hash position.
        from: u64,
        /// Last hash position, inclusive.
        to: u64,
        /// At most about this many keys; keys of one position are never separated.
        limit: usize,
    },
}

/// A key as a scan lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScannedKey {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// It is a delete.
    pub tombstone: bool,
    /// Milliseconds since the Unix epoch; 0: never.
    pub expiry_ms: u64,
}

/// What a write has to exceed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newest {
    /// The record that the key has, or its tombstone.
    Record(Seq),
    /// The floor of an absent key's chain, which is no version of it.
    Floor(Seq),
}

impl Newest {
    /// What a write has to exceed.
    pub fn seq(self) -> Seq {
        let (Newest::Record(seq) | Newest::Floor(seq)) = self;
        seq
    }

    /// The version that a reader sees: none of an absent key.
    pub fn version(self) -> Seq {
        match self {
            Newest::Record(seq) => seq,
            Newest::Floor(_) => Seq::NONE,
        }
    }
}

/// What became of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EngineReply {
    /// Of a get. An absent key answers `None`.
    Got(Option<Record>),
    /// Of a put: stored, with this [`Record::since`], or not because of what was found.
    Put(Result<Option<Seq>, Newest>),
    /// Of a mark, a merge, a confirmation, a state, floors, a flush, a checkpoint, or a range that
    /// was emptied, or keeps its tombstones or not.
    Set,
    /// Of a scan: the keys, and the position to go on from unless all were listed.
    Scanned(Vec<ScannedKey>, Option<u64>),
    /// Of a copy: the records, and the hash to go on from unless all were read.
    Copied(Vec<CopiedRecord>, Option<KeyHash>),
}

/// An operation's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineDone {
    /// The operation.
    pub id: OpId,
    /// Its outcome. After an error nothing of the operation is visible; but a crash before the next
    /// successful write may bring it to light, since what reached the disk is unknown.
    pub result: Result<EngineReply, EngineError>,
}

/// Why an operation was not done.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum EngineError {
    /// The disk is full; the engine goes on serving reads, and writes again when there is room.
    #[error("no space left on the device that holds {0}")]
    NoSpace(String),
    /// Stored bytes are damaged. They are never served.
    #[error("stored data is damaged: {0}")]
    Corrupt(String),
    /// What is stored belongs to another rack than the one that is started.
    #[error("{0}")]
    OtherRack(String),
    /// Anything else.
    #[error("storage failed: {0}")]
    Io(String),
}

/// What an engine found when it was opened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Loaded {
    /// The last state that was set.
    pub state: Option<Vec<u8>>,
    /// The last floors.
    pub floors: Floors,
    /// All marks.
    pub marks: Vec<(KeyHash, Vec<u8>, Mark)>,
    /// All completions.
    pub completions: Vec<LaneCompletion>,
    /// All keys that are unconfirmed, each with the lanes that were noted with it last.
    pub unconfirmed: Vec<(KeyHash, Vec<u8>, Lanes)>,
}
