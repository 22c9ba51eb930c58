//! Latencies.

use std::sync::atomic::{AtomicU64, Ordering};

/// Upper bounds of the buckets: a hit in memory takes a microsecond, an uncached write waits for a disk.
pub const BOUNDS_US: [u64; 21] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
    1_000_000, 2_000_000, 5_000_000,
];
const BUCKETS: usize = BOUNDS_US.len() + 1;

/// A histogram that one thread records to (several may) and any thread reads.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum_us: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one operation.
    #[inline]
    pub fn record_us(&self, us: u64) {
        let bucket = BOUNDS_US.partition_point(|&bound| bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// As it is now.
    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed)),
            sum_us: self.sum_us.load(Ordering::Relaxed),
        }
    }
}

/// A histogram at one point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HistogramSnapshot {
    /// Operations in each bucket, not cumulated; the last has no bound.
    pub buckets: [u64; BUCKETS],
    /// Sum of all latencies.
    pub sum_us: u64,
}

impl HistogramSnapshot {
    /// Adds another thread's.
    pub fn add(&mut self, other: &HistogramSnapshot) {
        for (bucket, more) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += more;
        }
        self.sum_us += other.sum_us;
    }

    /// How many operations there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The bound that `share` (0 to 1) of the operations stayed within; none if there were none or it has no bound.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, bound) in self.buckets.iter().zip(BOUNDS_US) {
            seen += bucket;
            if seen >= wanted {
                return Some(bound);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_belong_to_their_bucket() {
        let histogram = Histogram::default();
        for us in [0, 1, 2, 3, 5_000_000, 5_000_001] {
            histogram.record_us(us);
        }
        let mut snapshot = histogram.snapshot();
        assert_eq!((snapshot.buckets[0], snapshot.buckets[1], snapshot.buckets[2]), (2, 1, 1));
        assert_eq!((snapshot.buckets[20], snapshot.buckets[21]), (1, 1));
        snapshot.add(&histogram.snapshot());
        assert_eq!((snapshot.count(), snapshot.sum_us), (12, 2 * 10_000_007));
        assert_eq!(snapshot.quantile_us(0.5), Some(2));
        assert_eq!((snapshot.quantile_us(1.0), HistogramSnapshot::default().quantile_us(0.5)), (None, None));
    }
}
