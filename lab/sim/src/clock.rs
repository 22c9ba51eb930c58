//! The clocks of the parts: each has its own zero, its own speed and its own idea of the date.

use switchback_core::Now;

/// The date at which every run begins, in milliseconds since the Unix epoch.
pub const START_UNIX_MS: u64 = 1_800_000_000_000;

/// More than a month.
const FAR_US: u64 = 1 << 42;

/// A part's clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// What the monotonic clock said at virtual time 0.
    pub zero_us: u64,
    /// How much it gains (or loses) in a million microseconds.
    pub drift_ppm: i64,
    /// How far its date is off, in milliseconds.
    pub skew_ms: i64,
}

impl Clock {
    /// What the part's clocks say at a virtual time.
    #[inline]
    pub fn now(&self, at_us: u64) -> Now {
        let drifted = at_us as i64 + at_us as i64 * self.drift_ppm / 1_000_000;
        let unix_ms = (START_UNIX_MS + at_us / 1000).saturating_add_signed(self.skew_ms);
        Now { monotonic_us: self.zero_us + drifted as u64, unix_ms }
    }

    /// The first virtual time at which the monotonic clock says this or more.
    #[inline]
    pub fn when(&self, monotonic_us: u64) -> u64 {
        if monotonic_us == u64::MAX {
            return u64::MAX;
        }
        // What is further away than any run is long comes as late as one likes.
        let wanted = monotonic_us.saturating_sub(self.zero_us).min(FAR_US);
        let monotonic_us = self.zero_us + wanted;
        let mut at = wanted * 1_000_000 / 1_000_000u64.saturating_add_signed(self.drift_ppm);
        while self.now(at).monotonic_us < monotonic_us {
            at += 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_not_early() {
        for drift_ppm in [-20_000, -7, 0, 3, 15_000] {
            let clock = Clock { zero_us: 1234, drift_ppm, skew_ms: 0 };
            for due in [0, 1234, 1235, 999_999, 123_456_789] {
                let at = clock.when(due);
                assert!(clock.now(at).monotonic_us >= due);
                assert!(at == 0 || clock.now(at - 1).monotonic_us < due, "{drift_ppm} {due} {at}");
            }
        }
    }
}
