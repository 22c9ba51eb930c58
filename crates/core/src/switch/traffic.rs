//! When a switch has little to do: the moment for what disturbs requests.

use crate::time::Now;

/// A quiet moment has at most this part of the mean rate, as a divisor.
const QUIET_PART: u128 = 4;

/// The rate of requests, over an epoch and over its last moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    /// Length of a moment.
    moment_us: u64,
    /// When the epoch began, and how many requests had come by then.
    began: (u64, u64),
    /// The present moment, and how many requests have come by now.
    moment: (u64, u64),
    is_quiet: bool,
}

impl Traffic {
    /// Begins with an epoch; `requests` have come so far.
    pub(super) fn begin(now: Now, moment_us: u64, requests: u64) -> Traffic {
        let began = (now.monotonic_us, requests);
        Traffic { moment_us, began, moment: began, is_quiet: false }
    }

    /// `requests` have come so far. Judges the moment that ends, if one does.
    pub(super) fn observe(&mut self, now: Now, requests: u64) {
        let since = |from: (u64, u64)| {
            (
                u128::from(now.monotonic_us.saturating_sub(from.0)),
                u128::from(requests.saturating_sub(from.1)),
            )
        };
        let (us, count) = since(self.moment);
        if us < self.moment_us.into() {
            return;
        }
        let (epoch_us, epoch_count) = since(self.began);
        // count / us <= epoch_count / epoch_us / QUIET_PART
        self.is_quiet = count * epoch_us * QUIET_PART <= epoch_count * us;
        self.moment = (now.monotonic_us, requests);
    }

    /// Whether the last moment was quiet.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_with_a_quarter_of_the_mean_rate_is_quiet() {
        let at = |monotonic_us| Now { monotonic_us, unix_ms: 1 };
        let mut traffic = Traffic::begin(at(0), 10, 500);
        traffic.observe(at(10), 600);
        assert!(!traffic.is_quiet(), "the first moment is as busy as the mean");
        traffic.observe(at(15), 600);
        assert!(!traffic.is_quiet(), "the moment goes on");
        traffic.observe(at(20), 616);
        assert!(!traffic.is_quiet(), "1.6 a microsecond of 5.8");
        traffic.observe(at(30), 620);
        assert!(traffic.is_quiet(), "0.4 of 4");
        traffic.observe(at(40), 720);
        assert!(!traffic.is_quiet());
    }
}
