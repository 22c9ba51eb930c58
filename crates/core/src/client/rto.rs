//! When to send again: Jacobson's estimator of round trips (RFC 6298), so that a slow node isn't
//! buried in retries.

use rand::RngExt;
use rand_pcg::Pcg32;

/// Retransmission timeout of one session.
#[derive(Clone, Debug)]
pub(super) struct RetryTimer {
    smoothed_us: u64,
    variance_us: u64,
    min_us: u64,
    max_us: u64,
}

impl RetryTimer {
    pub(super) fn new(min_us: u64, max_us: u64) -> RetryTimer {
        assert!(min_us > 0 && min_us <= max_us);
        RetryTimer { smoothed_us: 0, variance_us: 0, min_us, max_us }
    }

    /// An answer came `sample_us` after the *first* transmission. (After a retry this
    /// overestimates, which is the safe side.)
    pub(super) fn sample(&mut self, sample_us: u64) {
        let sample_us = sample_us.min(self.max_us);
        if self.smoothed_us == 0 {
            self.smoothed_us = sample_us;
            self.variance_us = sample_us / 2;
        } else {
            let error_us = self.smoothed_us.abs_diff(sample_us);
            self.variance_us = (3 * self.variance_us + error_us) / 4;
            self.smoothed_us = (7 * self.smoothed_us + sample_us) / 8;
        }
    }

    /// How long to wait before transmission `attempt + 1`: exponential backoff, with jitter of a
    /// quarter either way.
    pub(super) fn delay_us(&self, attempt: u32, random: &mut Pcg32) -> u64 {
        let base_us = (self.smoothed_us + 4 * self.variance_us).clamp(self.min_us, self.max_us);
        let delay_us = base_us.saturating_mul(1 << attempt.min(10)).min(self.max_us);
        let quarter_us = delay_us / 4;
        delay_us - quarter_us + random.random_range(0..=2 * quarter_us)
    }
}
