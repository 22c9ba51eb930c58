//! The commands that took longest, as SLOWLOG shows them: a ring of the last ones whose answers
//! came later than a threshold.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Microseconds after which an answer is late, until CONFIG SET says otherwise; as in Redis.
const SLOWER_THAN_US: i64 = 10_000;
/// Entries that are kept, until CONFIG SET says otherwise.
const ENTRIES: usize = 128;
/// Entries that may be kept.
pub(crate) const ENTRIES_MAX: usize = 10_000;
/// Bytes of a key that an entry shows.
const KEY_BYTES: usize = 128;

/// A command that took long.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) number: i64,
    pub(crate) unix_s: u64,
    /// From the command's arrival to its answer.
    pub(crate) took_us: u64,
    /// Its name, and the key that it is about, as far as that is shown.
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) peer: String,
    pub(crate) name: Vec<u8>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct SlowLog {
    /// Negative: nothing is late.
    slower_than_us: AtomicI64,
    entries_max: AtomicUsize,
    entries: Mutex<(i64, VecDeque<Entry>)>,
}

impl Default for SlowLog {
    fn default() -> SlowLog {
        SlowLog {
            slower_than_us: AtomicI64::new(SLOWER_THAN_US),
            entries_max: AtomicUsize::new(ENTRIES),
            entries: Mutex::default(),
        }
    }
}

impl SlowLog {
    /// Whether an answer that took this long is to be entered.
    #[inline]
    pub(crate) fn wants(&self, took_us: u64) -> bool {
        let slower_than_us = self.slower_than_us.load(Relaxed);
        u64::try_from(slower_than_us).is_ok_and(|slower_than_us| took_us >= slower_than_us)
    }

    /// Enters a command, whose number is set here.
    pub(crate) fn enter(&self, mut entry: Entry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, entries) = &mut *entries;
        entry.number = *next;
        *next += 1;
        entries.push_front(entry);
        entries.truncate(self.entries_max.load(Relaxed));
    }

    /// The last ones, the latest first.
    pub(crate) fn last(&self, count: usize) -> Vec<Entry> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.1.iter().take(count).cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).1.len()
    }

    pub(crate) fn clear(&self) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).1.clear();
    }

    /// Microseconds after which an answer is late.
    pub(crate) fn slower_than_us(&self) -> i64 {
        self.slower_than_us.load(Relaxed)
    }

    pub(crate) fn set_slower_than_us(&self, us: i64) {
        self.slower_than_us.store(us, Relaxed);
    }

    /// Entries that are kept.
    pub(crate) fn entries_max(&self) -> usize {
        self.entries_max.load(Relaxed)
    }

    pub(crate) fn set_entries_max(&self, entries_max: usize) {
        self.entries_max.store(entries_max, Relaxed);
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).1.truncate(entries_max);
    }
}

/// A key as an entry shows it.
pub(crate) fn shown(key: &[u8]) -> Vec<u8> {
    let mut shown = key[..key.len().min(KEY_BYTES)].to_vec();
    if key.len() > KEY_BYTES {
        shown.extend(format!("... ({} more bytes)", key.len() - KEY_BYTES).bytes());
    }
    shown
}
