//! Counters of a gateway. A worker's counters are written by that worker
//! only, so counting is a plain load and store, not a locked instruction.

use crate::command::{Refused, VERBS, Verb};
use crate::failure::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A counter with one writer and any readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    #[inline]
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
}

/// Who answered a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum Answerer {
    /// The gateway, without the rack.
    Gateway,
    /// The cache, every part of it.
    Cache,
    /// A node, at least in part.
    Node,
}

impl Answerer {
    /// All of them, in the order of their numbers.
    pub const ALL: [Answerer; 3] = [Answerer::Gateway, Answerer::Cache, Answerer::Node];

    /// A label for metrics.
    pub fn name(self) -> &'static str {
        match self {
            Answerer::Gateway => "gateway",
            Answerer::Cache => "cache",
            Answerer::Node => "node",
        }
    }
}

/// Buckets of a [`Histogram`]: bucket `i` counts what took less than `2^i` microseconds, the last
/// one everything else.
pub const BUCKETS: usize = 25;

/// Times, in buckets of powers of two.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&self, us: u64, count: u64) {
        let bucket = (u64::BITS - us.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].add(count);
        self.sum_us.add(us * count);
    }

    /// The buckets' upper bounds in microseconds (exclusive; `None`: none) and counts, not
    /// cumulated.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        self.buckets
            .iter()
            .enumerate()
            .map(|(i, count)| ((i + 1 < BUCKETS).then_some(1 << i), count.get()))
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    /// All together.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }
}

/// Counters of one worker.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct WorkerStatistics {
    pub connections_accepted: Counter,
    pub connections_open: Counter,
    pub bytes_in: Counter,
    pub bytes_out: Counter,
    /// Reads that found a record, and that found none.
    pub found: Counter,
    pub missing: Counter,
    /// Writes and deletes that happened.
    pub written: Counter,
    /// Records and bytes handed to the spool.
    pub spool_records: Counter,
    pub spool_bytes: Counter,
    /// Bytes of the spool on disk.
    pub spool_size: Counter,
    /// Failures to write or sync it.
    pub spool_errors: Counter,
    /// Rewrites with only the newest versions.
    pub spool_rewrites: Counter,
    /// Times of `write`, by the worker.
    pub spool_writes: Histogram,
    /// Times of `fdatasync`, by the worker (`always`) or its background thread (`everysec`).
    pub spool_syncs: Histogram,
    /// 1 while the session can submit operations.
    pub session_open: Counter,
    /// The session's preserved records.
    pub preserved_records: Counter,
    pub preserved_bytes: Counter,
    /// The session's own counters.
    pub session_submitted: Counter,
    pub session_answered_by_cache: Counter,
    pub session_retries: Counter,
    pub session_epoch_changes: Counter,
    errors: [Counter; ErrorKind::ALL.len()],
    refused: Vec<Counter>,
    latency: Vec<Histogram>,
}

impl Default for WorkerStatistics {
    fn default() -> WorkerStatistics {
        WorkerStatistics {
            connections_accepted: Counter::default(),
            connections_open: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            found: Counter::default(),
            missing: Counter::default(),
            written: Counter::default(),
            spool_records: Counter::default(),
            spool_bytes: Counter::default(),
            spool_size: Counter::default(),
            spool_errors: Counter::default(),
            spool_rewrites: Counter::default(),
            spool_writes: Histogram::default(),
            spool_syncs: Histogram::default(),
            session_open: Counter::default(),
            preserved_records: Counter::default(),
            preserved_bytes: Counter::default(),
            session_submitted: Counter::default(),
            session_answered_by_cache: Counter::default(),
            session_retries: Counter::default(),
            session_epoch_changes: Counter::default(),
            errors: Default::default(),
            refused: (0..Refused::COUNT).map(|_| Counter::default()).collect(),
            latency: (0..VERBS * Answerer::ALL.len()).map(|_| Histogram::default()).collect(),
        }
    }
}

impl WorkerStatistics {
    /// Times from a command's arrival to the writing of its reply, by command and by who answered.
    /// Its count is the commands' count.
    #[inline]
    pub fn latency(&self, verb: Verb, answerer: Answerer) -> &Histogram {
        &self.latency[verb as usize * Answerer::ALL.len() + answerer as usize]
    }

    /// Error replies by kind.
    pub fn errors(&self, kind: ErrorKind) -> u64 {
        self.errors[kind as usize].get()
    }

    /// How often a command was refused because Switchback doesn't have it.
    pub fn refused(&self, command: Refused) -> u64 {
        self.refused[command.number()].get()
    }

    pub(crate) fn count_refused(&self, command: Refused) {
        self.refused[command.number()].add(1);
    }

    pub(crate) fn count_error(&self, kind: ErrorKind) {
        self.errors[kind as usize].add(1);
    }
}

/// Counters of a gateway.
#[derive(Debug)]
pub struct GatewayStatistics {
    workers: Vec<WorkerStatistics>,
}

impl GatewayStatistics {
    /// Of this many workers, which have counted nothing yet.
    pub fn new(workers: usize) -> GatewayStatistics {
        GatewayStatistics { workers: (0..workers).map(|_| WorkerStatistics::default()).collect() }
    }

    /// The workers' counters.
    pub fn workers(&self) -> &[WorkerStatistics] {
        &self.workers
    }

    /// A counter, summed over the workers.
    pub fn sum(&self, counter: impl Fn(&WorkerStatistics) -> u64) -> u64 {
        self.workers.iter().map(counter).sum()
    }

    /// Commands that `answerer` answered.
    pub fn commands(&self, answerer: Answerer) -> u64 {
        self.sum(|worker| Verb::all().map(|verb| worker.latency(verb, answerer).count()).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_land_in_their_bucket() {
        let histogram = Histogram::default();
        for us in [0, 1, 2, 3, 4, u64::MAX >> 30] {
            histogram.record(us, 1);
        }
        let counts: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts[..4], [1, 1, 2, 1]);
        assert_eq!(histogram.buckets().last(), Some((None, 1)));
        assert_eq!(histogram.count(), 6);
    }
}
