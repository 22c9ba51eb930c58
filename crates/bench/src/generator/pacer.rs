//! Due times of the operations of an open loop.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The due times of one client's operations. They don't depend on answers: an operation that can't
/// be sent in time stays due.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    mean_gap_ns: f64,
    poisson: bool,
    random: Pcg64Mcg,
    next_ns: f64,
}

impl Pacer {
    /// `ops` operations a second from `start_ns` on.
    pub(crate) fn new(ops: f64, poisson: bool, start_ns: u64, seed: u64) -> Pacer {
        assert!(ops > 0.0);
        let random = Pcg64Mcg::seed_from_u64(seed);
        let mut pacer = Pacer { mean_gap_ns: 1e9 / ops, poisson, random, next_ns: start_ns as f64 };
        pacer.advance();
        pacer
    }

    /// The due time of the next operation.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Takes the next operation; returns its due time.
    #[inline]
    pub(crate) fn take(&mut self) -> u64 {
        let due_ns = self.next_ns();
        self.advance();
        due_ns
    }

    #[inline]
    fn advance(&mut self) {
        let gap = if self.poisson { -(1.0 - self.random.random::<f64>()).ln() } else { 1.0 };
        self.next_ns += gap * self.mean_gap_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_at_the_asked_rate() {
        for poisson in [false, true] {
            let mut pacer = Pacer::new(10_000.0, poisson, 5_000_000_000, 1);
            let due: Vec<_> = (0..100_000).map(|_| pacer.take()).collect();
            assert!(due.is_sorted() && due[0] >= 5_000_000_000);
            let seconds = (due[99_999] - 5_000_000_000) as f64 / 1e9;
            assert!((seconds - 10.0).abs() < 0.15, "{seconds}");
            // Gaps longer than three times the mean: none, or e^-3 of them.
            let long = due.windows(2).filter(|pair| pair[1] - pair[0] > 300_000).count() as f64
                / 100_000.0;
            assert!((long - if poisson { (-3f64).exp() } else { 0.0 }).abs() < 0.005, "{long}");
        }
    }
}
