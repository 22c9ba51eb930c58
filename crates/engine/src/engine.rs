//! What a storage engine is to the one that drives it.

use switchback_core::storage::{EngineDone, EngineError, EngineOp};

/// A storage engine. Opening one is [`Kind::open`](crate::Kind); the operations, and what holds for
/// them, are [`switchback_core::storage`]'s.
pub trait Engine: Send {
    /// Takes `ops` in order and commits them as one group; answers each, in order, into `done`.
    fn execute(&mut self, ops: &mut Vec<EngineOp>, done: &mut Vec<EngineDone>);

    /// Counters since the opening, and sizes now. May look at the disk: to be asked once a second,
    /// not for each operation.
    fn statistics(&self) -> Statistics;

    /// Ends cleanly, so that the next opening is quick.
    ///
    /// # Errors
    /// Nothing that was answered is lost after an error either; the next opening takes longer.
    fn close(self: Box<Self>) -> Result<(), EngineError>;
}

/// Counters of an engine since it was opened, and sizes as they are now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Bytes that the directory takes on the disk, log included.
    pub disk_bytes: u64,
    /// Bytes in memtables.
    pub memtable_bytes: u64,
    /// Bytes in the block cache, memtables' share included.
    pub cache_bytes: u64,
    /// Reads of the store for a get or to decide a put. A put of which the shim knows that it is
    /// newer causes none.
    pub reads: u64,
    /// Groups that were committed.
    pub groups: u64,
    /// Records, marks, completions, states and floors in them; over `groups` this is the mean size
    /// of a group.
    pub writes: u64,
    /// The largest of them.
    pub largest_group: u64,
    /// Groups that could not be committed.
    pub failed_groups: u64,
    /// Times that the log was forced to the disk.
    pub syncs: u64,
    /// Scans.
    pub scans: u64,
    /// Tombstones and expired records that compactions dropped.
    pub dropped: u64,
    /// Microseconds for which the engine held writes back because flushes or compactions lagged.
    pub stalled_us: u64,
    /// Microseconds spent in commits.
    pub commit_us: u64,
    /// The slowest commit.
    pub slowest_commit_us: u64,
}
