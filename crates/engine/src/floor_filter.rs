//! The compaction filter: drops what nobody can ask for any more.

use crate::format::{decode_record, is_dead};
use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switchback_wire::Seq;

/// What compactions have to know; they run in RocksDB's threads.
#[derive(Default)]
pub(crate) struct Shared {
    /// The durable floor. Set only after the floor itself is on the disk: the other way round a crash would leave absent keys below
    /// which writes are not refused.
    pub(crate) floor: AtomicU64,
    /// Milliseconds since the Unix epoch, by the driver's clock; 0: nothing has expired.
    pub(crate) now_ms: Arc<AtomicU64>,
    /// Records dropped.
    pub(crate) dropped: AtomicU64,
}

/// Makes a filter for each compaction.
pub(crate) struct FloorFilter(pub(crate) Arc<Shared>);

/// Of one compaction. Floor and time are those of its beginning.
pub(crate) struct OneCompaction {
    shared: Arc<Shared>,
    floor: Seq,
    now_ms: u64,
}

const NAME: &CStr = c"switchback floor";

impl CompactionFilterFactory for FloorFilter {
    type Filter = OneCompaction;

    fn create(&mut self, _context: CompactionFilterContext) -> OneCompaction {
        OneCompaction {
            floor: Seq(self.0.floor.load(Ordering::Acquire)),
            now_ms: self.0.now_ms.load(Ordering::Relaxed),
            shared: self.0.clone(),
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

impl CompactionFilter for OneCompaction {
    fn filter(&mut self, _level: u32, _key: &[u8], value: &[u8]) -> CompactionDecision {
        // What can't be decoded is kept: a read reports it.
        match decode_record(value) {
            Some((record, _)) if is_dead(&record, self.floor, self.now_ms) => {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
                CompactionDecision::Remove
            }
            _ => CompactionDecision::Keep,
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}
