//! Measures the operations of clients.

use hdrhistogram::Histogram;

/// Longest latency of the histogram, in nanoseconds.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// Finished operations.
pub(crate) struct Meter {
    /// Operations that succeeded.
    pub(crate) completed: u64,
    /// Of these, operations that the cache answered.
    pub(crate) cached: u64,
    /// Operations that failed.
    pub(crate) failed: u64,
    /// Virtual time at which the measurement began.
    pub(crate) since_ns: u64,
    latencies: Option<Histogram<u64>>,
    /// Length of a bucket of the time series; 0: there is none.
    bucket_ns: u64,
    buckets: Vec<u64>,
}

impl Meter {
    /// A meter that begins now.
    pub(crate) fn new(since_ns: u64) -> Meter {
        Meter {
            completed: 0,
            cached: 0,
            failed: 0,
            since_ns,
            latencies: None,
            bucket_ns: 0,
            buckets: Vec::new(),
        }
    }

    /// Latencies as well.
    pub(crate) fn with_latencies(mut self) -> Meter {
        self.latencies = Histogram::new_with_bounds(100, LATENCY_MAX_NS, 3).ok();
        self
    }

    /// Counts by buckets of time as well.
    pub(crate) fn with_buckets(mut self, bucket_ns: u64) -> Meter {
        self.bucket_ns = bucket_ns;
        self
    }

    /// An operation is over.
    #[inline]
    pub(crate) fn finished(&mut self, now_ns: u64, latency_ns: u64, well: bool, cached: bool) {
        if !well {
            self.failed += 1;
            return;
        }
        self.completed += 1;
        self.cached += u64::from(cached);
        if let Some(latencies) = &mut self.latencies {
            latencies.saturating_record(latency_ns);
        }
        if let Some(bucket) = (now_ns - self.since_ns).checked_div(self.bucket_ns) {
            let bucket = bucket as usize;
            if self.buckets.len() <= bucket {
                self.buckets.resize(bucket + 1, 0);
            }
            self.buckets[bucket] += 1;
        }
    }

    /// Operations a second in each bucket.
    pub(crate) fn series_ops(&self) -> Vec<f64> {
        self.buckets.iter().map(|count| *count as f64 * 1e9 / self.bucket_ns as f64).collect()
    }

    /// Mean, median and 99th percentile of the latencies, in microseconds.
    pub(crate) fn latency_us(&self) -> Option<(f64, f64, f64)> {
        let latencies = self.latencies.as_ref().filter(|latencies| !latencies.is_empty())?;
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Some((latencies.mean() / 1000.0, at(0.5), at(0.99)))
    }
}
