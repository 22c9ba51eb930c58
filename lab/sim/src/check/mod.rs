//! What must hold, and which check notices if it doesn't.

pub mod conditions;
pub mod scans;
pub mod search;
pub mod stored;
pub mod strings;
pub mod witness;

use crate::history::OpIndex;
use std::fmt;

/// A promise. Its name is what a violation is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Check {
    /// Every answer fits one order of the operations on its key, which respects real time.
    Linearizable,
    /// What was acknowledged survives the switch.
    AcknowledgedWriteLost,
    /// What was seen survives the switch.
    SeenValueVanished,
    /// A write happens once or not at all.
    WriteRanTwice,
    /// A conditional write happens only upon the version that it expects.
    Condition,
    /// What is read was written, whole.
    StrangeValue,
    /// Expired records are absent, others aren't.
    Expiry,
    /// A scan lists the keys that are there.
    Scan,
    /// After a drain nodes store what was written.
    Stored,
    /// No client is told to forget what isn't durable.
    ReleasedTooEarly,
    /// A key is answered from one epoch at a time.
    TwoOwners,
    /// A snapshot is what the cache was at one moment.
    SnapshotCut,
    /// A backup is what nodes and caches held at one moment.
    BackupCut,
    /// A recovery waits for every client that lives.
    LeftBehind,
    /// What clients are told is at a node, or at every member of its chain.
    Kept,
    /// A loss is declared only of what switches alone protected that are gone.
    Declared,
    /// Every replica has what an answer rests on.
    MembersLackTold,
    /// No replica has what the one before it lacks.
    ChainOrder,
    /// In the end all replicas have the same.
    ReplicasDiffer,
    /// In the end there are as many replicas as there should be.
    UnderReplicated,
    /// Tables and queues stay within their bounds.
    Bounds,
    /// The parts come to rest once the faults are over.
    Settled,
    /// Something gets done while there are faults.
    Progress,
    /// Every client is served once the faults are over.
    Liveness,
}

impl Check {
    /// All of them.
    pub const ALL: [Check; 24] = [
        Check::Linearizable,
        Check::AcknowledgedWriteLost,
        Check::SeenValueVanished,
        Check::WriteRanTwice,
        Check::Condition,
        Check::StrangeValue,
        Check::Expiry,
        Check::Scan,
        Check::Stored,
        Check::ReleasedTooEarly,
        Check::TwoOwners,
        Check::SnapshotCut,
        Check::BackupCut,
        Check::LeftBehind,
        Check::Kept,
        Check::Declared,
        Check::MembersLackTold,
        Check::ChainOrder,
        Check::ReplicasDiffer,
        Check::UnderReplicated,
        Check::Bounds,
        Check::Settled,
        Check::Progress,
        Check::Liveness,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Check::Linearizable => "linearizable",
            Check::AcknowledgedWriteLost => "acknowledged-write-lost",
            Check::SeenValueVanished => "seen-value-vanished",
            Check::WriteRanTwice => "write-ran-twice",
            Check::Condition => "condition",
            Check::StrangeValue => "strange-value",
            Check::Expiry => "expiry",
            Check::Scan => "scan",
            Check::Stored => "stored",
            Check::ReleasedTooEarly => "released-too-early",
            Check::TwoOwners => "two-owners",
            Check::SnapshotCut => "snapshot-cut",
            Check::BackupCut => "backup-cut",
            Check::LeftBehind => "left-behind",
            Check::Kept => "kept",
            Check::Declared => "declared",
            Check::MembersLackTold => "members-lack-told",
            Check::ChainOrder => "chain-order",
            Check::ReplicasDiffer => "replicas-differ",
            Check::UnderReplicated => "under-replicated",
            Check::Bounds => "bounds",
            Check::Settled => "settled",
            Check::Progress => "progress",
            Check::Liveness => "liveness",
        }
    }

    /// What was promised.
    pub fn promise(self) -> &'static str {
        match self {
            Check::Linearizable => {
                "reads, writes, deletes and conditional writes of a key happen one after the other"
            }
            Check::AcknowledgedWriteLost => "no acknowledged write is lost when a part dies",
            Check::SeenValueVanished => "a value that a client saw doesn't vanish when a part dies",
            Check::WriteRanTwice => "a write runs at most once, however often its packets are sent",
            Check::Condition => "a conditional write changes only the version that it expects",
            Check::StrangeValue => "what is read is what was written, whole",
            Check::Expiry => "a record is absent from its expiry on, and not before",
            Check::Scan => {
                "a scan lists, once, what is there all the time, and nothing that is not there"
            }
            Check::Stored => {
                "once the cache is drained, nodes store what was written: number, bytes, expiry, tombstone"
            }
            Check::ReleasedTooEarly => {
                "clients are told to forget preserved records only once those are durable"
            }
            Check::TwoOwners => "an answer of an old epoch doesn't follow one of a new epoch",
            Check::SnapshotCut => {
                "a snapshot holds the cache's dirty records as they were at one moment"
            }
            Check::BackupCut => "a backup is what nodes and caches held at one moment",
            Check::LeftBehind => {
                "a recovery waits for what a client preserves for as long as the client lives"
            }
            Check::Kept => {
                "what the cache tells is at its node, or every switch of its chain keeps it until it is"
            }
            Check::Declared => {
                "a loss is declared only where switches of several domains alone had it, and none is left"
            }
            Check::MembersLackTold => {
                "what an answer rests on is at every replica of its partition"
            }
            Check::ChainOrder => "no replica has a newer version than the one before it",
            Check::ReplicasDiffer => {
                "once the cache is drained, all replicas of a partition have the same"
            }
            Check::UnderReplicated => {
                "once the faults are over partitions get back the replicas that they have lost"
            }
            Check::Bounds => "tables and queues stay within their bounds",
            Check::Settled => {
                "once the faults are over all parts agree on an epoch, and a drain ends"
            }
            Check::Progress => "operations complete while there are faults",
            Check::Liveness => {
                "once the faults are over every operation completes, and the cache works again"
            }
        }
    }
}

/// A set of checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks(u32);

impl Checks {
    /// Every check.
    pub const ALL: Checks = Checks::of(&Check::ALL);

    /// Those of what clients ask and are told. The others look into the parts, and know how the
    /// rack keeps its promises. (The parts still say when it is time to ask the next question after
    /// the faults; if they don't in time, it is asked all the same.)
    pub const BLACK_BOX: Checks = Checks::of(&[
        Check::Linearizable,
        Check::AcknowledgedWriteLost,
        Check::SeenValueVanished,
        Check::WriteRanTwice,
        Check::Condition,
        Check::StrangeValue,
        Check::Expiry,
        Check::Scan,
        Check::BackupCut,
        Check::Progress,
        Check::Liveness,
    ]);

    /// The set of these.
    pub const fn of(checks: &[Check]) -> Checks {
        let (mut set, mut at) = (0, 0);
        while at < checks.len() {
            set |= 1 << checks[at] as u8;
            at += 1;
        }
        Checks(set)
    }

    /// Whether a check is one of them.
    #[inline]
    pub const fn contains(self, check: Check) -> bool {
        self.0 & (1 << check as u8) != 0
    }

    /// The checks that are in both sets.
    pub const fn and(self, other: Checks) -> Checks {
        Checks(self.0 & other.0)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their names, in the order of [`Check::ALL`].
    pub fn names(self) -> String {
        let checks = Check::ALL.into_iter().filter(|check| self.contains(*check));
        checks.map(Check::name).collect::<Vec<_>>().join(", ")
    }
}

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which.
    pub check: Check,
    /// On which key.
    pub key: Option<u32>,
    /// By which operation's answer.
    pub op: Option<OpIndex>,
    /// How.
    pub text: String,
    /// When, in virtual time.
    pub at_us: u64,
}

impl Violation {
    /// A violation by an operation on a key.
    pub fn of(check: Check, key: u32, op: OpIndex, text: String) -> Violation {
        Violation { check, key: Some(key), op: Some(op), text, at_us: 0 }
    }

    /// A violation that no operation shows.
    pub fn general(check: Check, text: String) -> Violation {
        Violation { check, key: None, op: None, text, at_us: 0 }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check.name(), self.text)
    }
}
