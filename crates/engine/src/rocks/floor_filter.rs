//! The compaction filter: drops what can't be asked for any more.

use super::format::{decode_key, decode_record, encode_key};
use crate::group::is_dead;
use rocksdb::CompactionDecision;
use rocksdb::compaction_filter::CompactionFilter;
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};
use std::collections::HashSet;
use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use switchback_core::floors::Floors;
use switchback_core::storage::{KeyRange, Mark};
use switchback_wire::KeyHash;

/// What compactions have to know; they run in RocksDB's threads.
#[derive(Default)]
pub(crate) struct FilterState {
    /// The durable floors. Raised only after the floors themselves are on the disk: the other way
    /// round a crash would leave absent keys below which writes are not refused.
    floors: RwLock<Floors>,
    /// Stored keys of what may be in the cache.
    offered: RwLock<HashSet<Vec<u8>>>,
    /// Milliseconds since the Unix epoch, by the driver's clock; 0: nothing has expired.
    pub(crate) now_ms: Arc<AtomicU64>,
    /// Records dropped.
    pub(crate) dropped: AtomicU64,
}

impl FilterState {
    /// With this clock: milliseconds since the Unix epoch.
    pub(crate) fn new(now_ms: Arc<AtomicU64>) -> FilterState {
        FilterState { now_ms, ..FilterState::default() }
    }

    /// Brings the floors up to date.
    pub(crate) fn set_floors(&self, floors: &Floors) {
        self.floors.write().unwrap_or_else(PoisonError::into_inner).clone_from(floors);
    }

    /// Takes note of a mark.
    pub(crate) fn mark(&self, hash: &KeyHash, key: &[u8], mark: Option<&Mark>) {
        let mut stored = Vec::new();
        encode_key(hash, key, &mut stored);
        let mut offered = self.offered.write().unwrap_or_else(PoisonError::into_inner);
        match mark {
            Some(mark) if mark.is_offered() => offered.insert(stored),
            _ => offered.remove(&stored),
        };
    }

    /// The marks of a range are gone.
    pub(crate) fn forget_marks(&self, range: &KeyRange) {
        let mut offered = self.offered.write().unwrap_or_else(PoisonError::into_inner);
        offered.retain(|key| decode_key(key).is_none_or(|(hash, _)| !range.contains(&hash)));
    }

    fn is_offered(&self, stored: &[u8]) -> bool {
        self.offered.read().unwrap_or_else(PoisonError::into_inner).contains(stored)
    }
}

/// Makes a filter for each compaction.
pub(crate) struct FloorFilter(pub(crate) Arc<FilterState>);

/// Of one compaction. Floor and time are those of its beginning.
pub(crate) struct OneCompaction {
    shared: Arc<FilterState>,
    floors: Floors,
    now_ms: u64,
}

const NAME: &CStr = c"switchback floor";

impl CompactionFilterFactory for FloorFilter {
    type Filter = OneCompaction;

    fn create(&mut self, _context: CompactionFilterContext) -> OneCompaction {
        OneCompaction {
            floors: self.0.floors.read().unwrap_or_else(PoisonError::into_inner).clone(),
            now_ms: self.0.now_ms.load(Ordering::Relaxed),
            shared: self.0.clone(),
        }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

impl CompactionFilter for OneCompaction {
    fn filter(&mut self, _level: u32, key: &[u8], value: &[u8]) -> CompactionDecision {
        // What can't be decoded is kept: a read reports it.
        let Some(((hash, _), (record, _))) = decode_key(key).zip(decode_record(value)) else {
            return CompactionDecision::Keep;
        };
        // A key that is offered from now on has at least these floors in its mark.
        let droppable = |is_offered| self.floors.droppable(&hash, is_offered);
        let dead = is_dead(&record, droppable(false), self.now_ms)
            && (is_dead(&record, droppable(true), self.now_ms) || !self.shared.is_offered(key));
        if dead {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            return CompactionDecision::Remove;
        }
        CompactionDecision::Keep
    }

    fn name(&self) -> &CStr {
        NAME
    }
}
