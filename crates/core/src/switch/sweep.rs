//! The sweep: which cached records are looked at next, so that each is looked at once in a given
//! time. What it finds dirty is stored at its node and then counts as clean (rule 26): background
//! writeback, as operating systems do it with the pages of files.

use super::entries::Entries;
use crate::control::{BATCH_MAX, Entry, Location};

/// Longest pause between two steps.
const PAUSE_US_MAX: u64 = 100_000;

/// Where the sweep is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sweep {
    /// How long it takes to look at everything once.
    period_us: u64,
    next: Option<Location>,
}

impl Sweep {
    /// From the first slot on.
    pub(super) fn new(period_us: u64) -> Sweep {
        Sweep { period_us: period_us.max(1), next: None }
    }

    /// The entries of the next step, and how long after it the one after that is due.
    pub(super) fn step(&mut self, entries: &Entries) -> (Vec<Entry>, u64) {
        let all = entries.len() as u128;
        let period_us = u128::from(self.period_us);
        let longest_us = u128::from(PAUSE_US_MAX).min(period_us);
        let count = (all * longest_us).div_ceil(period_us).min(BATCH_MAX as u128);
        let pause_us = (period_us * count).checked_div(all).unwrap_or(longest_us);
        let (step, next) = entries.list(self.next, count as usize);
        self.next = next;
        (step, pause_us.clamp(1, u128::from(PAUSE_US_MAX)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::KeyHash;

    fn cached(count: u32) -> Entries {
        let mut entries = Entries::default();
        for slot in 0..count {
            let (id, at) = (u64::from(slot) + 1, Location { class: 0, slot });
            let (hash, key) = (KeyHash::at_position(id), vec![1]);
            entries.insert(Entry { id, hash, key, at, count: 0 });
        }
        entries
    }

    #[test]
    fn every_entry_is_looked_at_in_a_period_and_no_step_is_too_large() {
        for (count, period_us) in
            [(1, 1_000), (7, 30_000_000), (1_000, 1_000_000), (100_000, 30_000_000), (5_000, 2)]
        {
            let (entries, mut sweep) = (cached(count), Sweep::new(period_us));
            let (mut seen, mut now_us, mut last_us) = (0, 0, 0);
            while seen < count as usize {
                let (step, pause_us) = sweep.step(&entries);
                assert!(step.len() <= BATCH_MAX && (1..=PAUSE_US_MAX).contains(&pause_us));
                seen += step.len();
                last_us = now_us;
                now_us += pause_us;
            }
            // A step takes a microsecond at least.
            assert!(last_us <= period_us.max(u64::from(count)), "{count}: {last_us}");
            assert_eq!(seen, count as usize, "none twice");
        }
    }

    #[test]
    fn with_nothing_cached_it_waits() {
        let (step, pause_us) = Sweep::new(30_000_000).step(&cached(0));
        assert!(step.is_empty() && pause_us == PAUSE_US_MAX);
    }
}
