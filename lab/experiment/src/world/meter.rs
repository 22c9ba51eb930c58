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
    all: Recorder,
    /// The same operations by their class, where classes are told apart.
    classes: Vec<Recorder>,
}

/// Latencies, and counts over time, of those that are asked for.
#[derive(Clone, Default)]
struct Recorder {
    /// Operations that failed.
    failed: u64,
    latencies: Option<Histogram<u64>>,
    /// Length of a bucket of the time series; 0: there is none.
    bucket_ns: u64,
    buckets: Vec<u64>,
}

impl Recorder {
    #[inline]
    fn finished(&mut self, after_ns: u64, latency_ns: u64) {
        if let Some(latencies) = &mut self.latencies {
            latencies.saturating_record(latency_ns);
        }
        if let Some(bucket) = after_ns.checked_div(self.bucket_ns) {
            let bucket = bucket as usize;
            if self.buckets.len() <= bucket {
                self.buckets.resize(bucket + 1, 0);
            }
            self.buckets[bucket] += 1;
        }
    }

    fn series_ops(&self) -> Vec<f64> {
        self.buckets.iter().map(|count| *count as f64 * 1e9 / self.bucket_ns as f64).collect()
    }

    fn latencies(&self) -> Option<&Histogram<u64>> {
        self.latencies.as_ref().filter(|latencies| !latencies.is_empty())
    }
}

impl Meter {
    /// A meter that begins now.
    pub(crate) fn new(since_ns: u64) -> Meter {
        let (all, classes) = (Recorder::default(), Vec::new());
        Meter { completed: 0, cached: 0, failed: 0, since_ns, all, classes }
    }

    /// Latencies as well.
    pub(crate) fn with_latencies(mut self) -> Meter {
        self.all.latencies = Histogram::new_with_bounds(100, LATENCY_MAX_NS, 3).ok();
        self
    }

    /// Counts by buckets of time as well.
    pub(crate) fn with_buckets(mut self, bucket_ns: u64) -> Meter {
        self.all.bucket_ns = bucket_ns;
        self
    }

    /// The same of each of this number of classes.
    pub(crate) fn with_classes(mut self, classes: usize) -> Meter {
        self.classes = vec![self.all.clone(); classes];
        self
    }

    /// Whether classes are told apart.
    pub(crate) fn has_classes(&self) -> bool {
        !self.classes.is_empty()
    }

    /// An operation of this class is over.
    #[inline]
    pub(crate) fn finished(
        &mut self,
        now_ns: u64,
        latency_ns: u64,
        well: bool,
        cached: bool,
        class: usize,
    ) {
        if !well {
            self.failed += 1;
            if let Some(of_class) = self.classes.get_mut(class) {
                of_class.failed += 1;
            }
            return;
        }
        self.completed += 1;
        self.cached += u64::from(cached);
        let after_ns = now_ns - self.since_ns;
        self.all.finished(after_ns, latency_ns);
        if let Some(of_class) = self.classes.get_mut(class) {
            of_class.finished(after_ns, latency_ns);
        }
    }

    /// Operations a second in each bucket.
    pub(crate) fn series_ops(&self) -> Vec<f64> {
        self.all.series_ops()
    }

    /// The same of a class.
    pub(crate) fn class_series_ops(&self, class: usize) -> Vec<f64> {
        self.classes[class].series_ops()
    }

    /// Mean, median and 99th percentile of the latencies, in microseconds.
    pub(crate) fn latency_us(&self) -> Option<(f64, f64, f64)> {
        let latencies = self.all.latencies()?;
        let at = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
        Some((latencies.mean() / 1000.0, at(0.5), at(0.99)))
    }

    /// How many operations of a class failed.
    pub(crate) fn class_failed(&self, class: usize) -> u64 {
        self.classes[class].failed
    }

    /// Mean and longest latency of a class, in microseconds.
    pub(crate) fn class_latency_us(&self, class: usize) -> Option<(f64, f64)> {
        let latencies = self.classes[class].latencies()?;
        Some((latencies.mean() / 1000.0, latencies.max() as f64 / 1000.0))
    }
}
