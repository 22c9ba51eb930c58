//! What must hold, and who notices if it doesn't.

pub mod conditions;
pub mod search;
pub mod strings;
pub mod witness;

use crate::history::OpIndex;
use std::fmt;

/// A promise. Its name is what a violation is called.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    /// Nobody is told to forget what isn't durable.
    ReleasedTooEarly,
    /// A key is answered from one epoch at a time.
    TwoOwners,
    /// A snapshot is what the cache was at one moment.
    SnapshotCut,
    /// A recovery waits for every client that lives.
    LeftBehind,
    /// Tables and queues stay within their bounds.
    Bounds,
    /// Something gets done while there are faults.
    Progress,
    /// Everything gets done once the faults are over.
    Liveness,
}

impl Check {
    /// All of them.
    pub const ALL: [Check; 14] = [
        Check::Linearizable,
        Check::AcknowledgedWriteLost,
        Check::SeenValueVanished,
        Check::WriteRanTwice,
        Check::Condition,
        Check::StrangeValue,
        Check::Expiry,
        Check::ReleasedTooEarly,
        Check::TwoOwners,
        Check::SnapshotCut,
        Check::LeftBehind,
        Check::Bounds,
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
            Check::ReleasedTooEarly => "released-too-early",
            Check::TwoOwners => "two-owners",
            Check::SnapshotCut => "snapshot-cut",
            Check::LeftBehind => "left-behind",
            Check::Bounds => "bounds",
            Check::Progress => "progress",
            Check::Liveness => "liveness",
        }
    }

    /// What was promised.
    pub fn promise(self) -> &'static str {
        match self {
            Check::Linearizable => "reads, writes, deletes and conditional writes of a key happen one after the other",
            Check::AcknowledgedWriteLost => "no acknowledged write is lost when a part dies",
            Check::SeenValueVanished => "a value that someone saw doesn't vanish when a part dies",
            Check::WriteRanTwice => "a write runs at most once, however often its packets are sent",
            Check::Condition => "a conditional write changes only the version that it expects",
            Check::StrangeValue => "what is read is what was written, whole",
            Check::Expiry => "a record is absent from its expiry on, and not before",
            Check::ReleasedTooEarly => "clients are told to forget preserved records only once those are durable",
            Check::TwoOwners => "an answer of an old epoch doesn't follow one of a new epoch",
            Check::SnapshotCut => "a snapshot holds the cache's dirty records as they were at one moment",
            Check::LeftBehind => "a recovery waits for what a client preserves for as long as the client lives",
            Check::Bounds => "tables and queues stay within their bounds",
            Check::Progress => "operations complete while there are faults",
            Check::Liveness => "once the faults are over every operation completes, and the cache works again",
        }
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
