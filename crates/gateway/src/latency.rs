//! The commands that took longest, second by second, as LATENCY shows them: by events, of which
//! each keeps its last seconds with a command that reached a threshold.

use crate::command::Verb;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Seconds that an event keeps, as in Redis.
const SAMPLES_MAX: usize = 160;

/// The slowest command of one second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    pub(crate) unix_s: u64,
    pub(crate) took_ms: u64,
}

/// What an event keeps.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Event {
    /// The oldest first; never empty once the event is there.
    pub(crate) samples: VecDeque<Sample>,
    /// Of all commands since the event was there, in milliseconds.
    pub(crate) max_ms: u64,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Latency {
    /// 0: nothing is kept.
    threshold_ms: AtomicU64,
    events: Mutex<BTreeMap<&'static str, Event>>,
}

/// The event of a command: Redis tells those apart that its table says are fast.
fn event_of(verb: Verb) -> &'static str {
    if verb.spec().flags.contains(&"fast") { "fast-command" } else { "command" }
}

impl Latency {
    /// Whether a command that took this long is kept.
    #[inline]
    pub(crate) fn wants(&self, took_us: u64) -> bool {
        let threshold_ms = self.threshold_ms.load(Relaxed);
        threshold_ms > 0 && took_us / 1000 >= threshold_ms
    }

    /// The threshold in milliseconds; 0: nothing is kept.
    pub(crate) fn threshold_ms(&self) -> u64 {
        self.threshold_ms.load(Relaxed)
    }

    /// Sets the threshold in milliseconds; 0: nothing is kept from now on.
    pub(crate) fn set_threshold_ms(&self, ms: u64) {
        self.threshold_ms.store(ms, Relaxed);
    }

    fn events(&self) -> MutexGuard<'_, BTreeMap<&'static str, Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a command that took `took_us`, and was answered at `unix_s`.
    pub(crate) fn enter(&self, verb: Verb, unix_s: u64, took_us: u64) {
        let took_ms = took_us / 1000;
        let mut events = self.events();
        let event = events.entry(event_of(verb)).or_default();
        event.max_ms = event.max_ms.max(took_ms);
        match event.samples.back_mut() {
            Some(last) if last.unix_s == unix_s => last.took_ms = last.took_ms.max(took_ms),
            _ => {
                if event.samples.len() == SAMPLES_MAX {
                    event.samples.pop_front();
                }
                event.samples.push_back(Sample { unix_s, took_ms });
            }
        }
    }

    /// All events, by their names.
    pub(crate) fn all(&self) -> BTreeMap<&'static str, Event> {
        self.events().clone()
    }

    /// The event of this name.
    pub(crate) fn event(&self, name: &[u8]) -> Option<Event> {
        let events = self.events();
        let mut found = events.iter().filter(|(known, _)| known.as_bytes() == name);
        found.next().map(|(_, event)| event.clone())
    }

    /// Forgets the events that are meant; how many there were.
    pub(crate) fn forget(&self, is_meant: impl Fn(&str) -> bool) -> usize {
        let mut events = self.events();
        let before = events.len();
        events.retain(|name, _| !is_meant(name));
        before - events.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_of_nothing_keeps_nothing() {
        let latency = Latency::default();
        assert_eq!((latency.threshold_ms(), latency.wants(u64::MAX)), (0, false));
        latency.set_threshold_ms(5);
        assert_eq!(latency.threshold_ms(), 5);
        assert!(latency.wants(5000) && !latency.wants(4999));
        latency.set_threshold_ms(0);
        assert!(!latency.wants(u64::MAX));
    }

    #[test]
    fn of_each_second_the_slowest_command_is_kept() {
        let latency = Latency::default();
        for (second, ms) in [(7, 30), (7, 50), (7, 40), (8, 10)] {
            latency.enter(Verb::Get, second, ms * 1000 + 999);
        }
        latency.enter(Verb::Set, 9, 5000);
        let event = latency.event(b"fast-command").unwrap();
        let samples: Vec<_> = event.samples.iter().map(|at| (at.unix_s, at.took_ms)).collect();
        assert_eq!((&samples[..], event.max_ms), (&[(7, 50), (8, 10)][..], 50));
        assert_eq!(latency.event(b"command").unwrap().max_ms, 5);
        for second in 10..1000 {
            latency.enter(Verb::Get, second, 1000);
        }
        let event = latency.event(b"fast-command").unwrap();
        assert_eq!((event.samples.len(), event.samples[0].unix_s), (SAMPLES_MAX, 840));
        assert_eq!(event.max_ms, 50, "of all time");
        assert_eq!(latency.forget(|name| name == "command"), 1);
        assert_eq!(latency.all().len(), 1);
        assert_eq!(latency.forget(|_| true), 1);
        assert_eq!(latency.event(b"fast-command"), None);
    }
}
