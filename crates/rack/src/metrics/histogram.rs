//! Latencies, in the buckets in which the gateway counts them.

use switchback_gateway::{BUCKETS, Histogram};

/// Upper bounds of the buckets, powers of two; the last bucket has none.
pub const BOUNDS_US: [u64; BUCKETS - 1] = {
    let mut bounds = [1; BUCKETS - 1];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// A histogram at one point in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HistogramSnapshot {
    /// Operations in each bucket, not cumulated; the last has no bound.
    pub buckets: [u64; BUCKETS],
    /// Sum of all latencies.
    pub sum_us: u64,
}

impl From<&Histogram> for HistogramSnapshot {
    fn from(histogram: &Histogram) -> HistogramSnapshot {
        let mut buckets = [0; BUCKETS];
        for (bucket, (_, count)) in buckets.iter_mut().zip(histogram.buckets()) {
            *bucket = count;
        }
        HistogramSnapshot { buckets, sum_us: histogram.sum_us() }
    }
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_the_gateway() {
        let theirs: Vec<_> =
            Histogram::default().buckets().filter_map(|(bound, _)| bound).collect();
        assert_eq!(theirs, BOUNDS_US);
        let mut snapshot = HistogramSnapshot::from(&Histogram::default());
        let mut other = HistogramSnapshot { sum_us: 7, ..HistogramSnapshot::default() };
        other.buckets[3] = 2;
        snapshot.add(&other);
        assert_eq!((snapshot.count(), snapshot.sum_us), (2, 7));
    }
}
