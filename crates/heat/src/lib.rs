//! Where the load is: requests by hash range, and the hottest keys of late.
//!
//! A [`Recorder`] belongs to one thread that asks the rack, a worker of the gateway. Each request
//! adds one to a counter; one in [`SAMPLED_ONE_IN`], at random, has its key counted, too. Any
//! thread reads both from the [`Heat`] that all recorders of a process share. Memory is fixed.

mod history;
mod ranges;
mod sketch;
mod window;

pub use history::{COARSE_SECONDS, COARSE_STEP, FINE_SECONDS, History, Plane, View};
pub use ranges::{Counts, RANGES};
pub use sketch::{HotKey, KEYS, SHOWN_KEY_BYTES_MAX};
pub use window::{Hottest, SECONDS_MAX};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use ranges::Ranges;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use switchback_wire::KeyHash;
use window::Window;

/// Of this many requests one has its key counted.
pub const SAMPLED_ONE_IN: u32 = 64;

/// A request that was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Of the key.
    pub hash: KeyHash,
    /// A write or delete, else a read.
    pub is_write: bool,
    /// The cache answered, not a node.
    pub is_cached: bool,
}

/// What a sample adds to an [`Access`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Subject<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Length of the value that was read or written; `None`: there was none.
    pub value_bytes: Option<u32>,
}

/// What one thread records.
#[derive(Debug, Default)]
struct Recorded {
    ranges: Ranges,
    keys: Mutex<Window>,
}

/// What all threads of a process record.
#[derive(Debug)]
pub struct Heat {
    started: Instant,
    recorded: Vec<Arc<Recorded>>,
}

impl Heat {
    /// Of this many threads, which have recorded nothing yet.
    pub fn new(threads: usize) -> Heat {
        let recorded = (0..threads).map(|_| Arc::default()).collect();
        Heat { started: Instant::now(), recorded }
    }

    /// The counters of all hash ranges since the start.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.recorded.iter().for_each(|recorded| recorded.ranges.add_to(&mut counts));
        counts
    }

    /// The hottest keys of the last `seconds` (at most [`SECONDS_MAX`]) and of the second that is
    /// under way.
    pub fn hottest(&self, seconds: u64) -> Hottest {
        let now_us = elapsed_us(self.started);
        let mut hottest = Hottest::default();
        for recorded in &self.recorded {
            let keys = recorded.keys.lock().unwrap_or_else(PoisonError::into_inner);
            keys.add_to(&mut hottest, now_us, seconds);
        }
        hottest
    }

    /// Requests for the key of this hash, in the same time as of [`Heat::hottest`]: an estimate
    /// from samples, 0 for a key that isn't among the hottest.
    pub fn requests(&self, hash: &KeyHash, seconds: u64) -> u64 {
        let now_us = elapsed_us(self.started);
        let of = |recorded: &Arc<Recorded>| {
            let keys = recorded.keys.lock().unwrap_or_else(PoisonError::into_inner);
            keys.samples_of(hash, now_us, seconds)
        };
        self.recorded.iter().map(of).sum::<u64>() * u64::from(SAMPLED_ONE_IN)
    }
}

fn elapsed_us(since: Instant) -> u64 {
    since.elapsed().as_micros() as u64
}

/// What one thread records with.
#[derive(Debug)]
pub struct Recorder {
    started: Instant,
    recorded: Arc<Recorded>,
    random: Pcg32,
    /// Requests up to the next sample.
    left: u32,
}

impl Recorder {
    /// Of thread `thread` of `heat`. `seed` decides which requests are sampled.
    pub fn new(heat: &Heat, thread: usize, seed: u64) -> Recorder {
        let mut recorder = Recorder {
            started: heat.started,
            recorded: Arc::clone(&heat.recorded[thread]),
            random: Pcg32::seed_from_u64(seed),
            left: 0,
        };
        recorder.left = recorder.pause();
        recorder
    }

    /// Counts a request; `subject` is asked if it is sampled.
    #[inline]
    pub fn record<'a>(&mut self, access: Access, subject: impl FnOnce() -> Subject<'a>) {
        self.recorded.ranges.count(access);
        self.left -= 1;
        if self.left == 0 {
            self.sample(access, subject());
        }
    }

    #[cold]
    fn sample(&mut self, access: Access, subject: Subject<'_>) {
        self.left = self.pause();
        let now_us = elapsed_us(self.started);
        // While the window is read a sample is left out: a request never waits for a reader.
        if let Ok(mut keys) = self.recorded.keys.try_lock() {
            keys.add(now_us, access, subject);
        }
    }

    /// Requests to the next sample: random, since pipelines may repeat with a period that a fixed
    /// number divides.
    fn pause(&mut self) -> u32 {
        self.random.random_range(1..2 * SAMPLED_ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(first: u8, is_write: bool, is_cached: bool) -> Access {
        Access { hash: KeyHash([first; 16]), is_write, is_cached }
    }

    #[test]
    fn requests_are_counted_by_range_and_keys_by_sample() {
        let heat = Heat::new(2);
        let mut recorders = [0, 1].map(|thread| Recorder::new(&heat, thread, 7));
        let requests = 64_000u32;
        for at in 0..requests {
            let access = access(
                if at.is_multiple_of(4) { 200 } else { 9 },
                at.is_multiple_of(2),
                !at.is_multiple_of(4),
            );
            let key: &[u8] = if at.is_multiple_of(4) { b"few" } else { b"many" };
            recorders[usize::from(at.is_multiple_of(3))]
                .record(access, || Subject { key, value_bytes: Some(5) });
        }
        let counts = heat.counts();
        let [few, many] = [200, 9].map(|range| counts.of(range));
        assert_eq!((few.reads(), few.writes(), few.at_nodes()), (0, 16_000, 16_000));
        assert_eq!((many.reads(), many.writes(), many.at_nodes()), (32_000, 16_000, 0));
        let hottest = heat.hottest(SECONDS_MAX);
        let samples = hottest.samples() as f64;
        assert!((900.0..1100.0).contains(&samples), "{samples} of {requests}");
        let keys = hottest.keys();
        assert_eq!((keys[0].key(), keys[1].key(), keys.len()), (&b"many"[..], &b"few"[..], 2));
        let share = f64::from(keys[0].samples()) / samples;
        assert!((0.7..0.8).contains(&share), "{share}");
        let many = heat.requests(&KeyHash([9; 16]), SECONDS_MAX);
        assert_eq!(many, u64::from(keys[0].samples() * SAMPLED_ONE_IN));
        assert_eq!(heat.requests(&KeyHash([1; 16]), SECONDS_MAX), 0);
    }

    #[test]
    fn a_period_of_the_requests_is_not_that_of_the_samples() {
        let heat = Heat::new(1);
        let mut recorder = Recorder::new(&heat, 0, 1);
        for at in 0..640_000u32 {
            let name = [(at % SAMPLED_ONE_IN) as u8];
            recorder
                .record(access(name[0], false, true), || Subject { key: &name, value_bytes: None });
        }
        let hottest = heat.hottest(SECONDS_MAX);
        assert_eq!(hottest.keys().len(), SAMPLED_ONE_IN as usize, "each of them was sampled");
    }

    #[test]
    fn a_reader_costs_a_sample_and_no_wait() {
        let heat = Heat::new(1);
        let mut recorder = Recorder::new(&heat, 0, 1);
        let mut ask = || {
            for _ in 0..10 * SAMPLED_ONE_IN {
                recorder.record(access(1, true, true), || Subject { key: b"k", value_bytes: None });
            }
        };
        let reading = heat.recorded[0].keys.lock().unwrap();
        ask();
        drop(reading);
        assert_eq!(heat.hottest(SECONDS_MAX).samples(), 0);
        ask();
        assert!(heat.hottest(SECONDS_MAX).samples() > 0);
        assert_eq!(heat.counts().of(1).writes(), 20 * SAMPLED_ONE_IN);
    }
}
