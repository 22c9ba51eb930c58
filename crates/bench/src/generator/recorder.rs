//! The counters and histograms of one client.

use crate::workload::Verb;
use hdrhistogram::Histogram;

/// Length of one step of the throughput over time.
pub(crate) const STEP_NS: u64 = 100_000_000;
/// Longer latencies count as this one.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// Latencies of one kind of operation, in nanoseconds, by the part that answered: the cache, or a
/// node.
pub(crate) type Latencies = [Histogram<u64>; 2];

/// Counts of the measured time.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    /// Operations that ended in the measured time.
    pub(crate) operations: u64,
    /// Requests that were answered in the measured time: by the cache, and in all.
    pub(crate) cached: u64,
    pub(crate) requests: u64,
    /// Reads among them, and reads that found no record.
    pub(crate) reads: u64,
    pub(crate) not_found: u64,
    /// Bytes of the values that were read and written.
    pub(crate) value_bytes: u64,
    /// Operations that ended without an outcome: timed out, indeterminate, no space.
    pub(crate) failed: u64,
    /// Operations that ended in each step.
    pub(crate) steps: Vec<u64>,
    /// By verb, in the order of [`Verb::ALL`].
    pub(crate) latencies: [Latencies; Verb::ALL.len()],
    /// How long after it was due each operation of an open loop began: the generator's own part of
    /// the latency.
    pub(crate) lateness: Histogram<u64>,
    from_ns: u64,
    to_ns: u64,
    by_due: bool,
}

impl Recorder {
    /// Measures from one time to another. Latencies are of operations that were *due* in between
    /// (`by_due`, open loops: however long they take), or that ended in between.
    pub(crate) fn new(from_ns: u64, to_ns: u64, by_due: bool) -> Recorder {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .expect("bounds and digits are in range")
        };
        Recorder {
            operations: 0,
            cached: 0,
            requests: 0,
            reads: 0,
            not_found: 0,
            value_bytes: 0,
            failed: 0,
            steps: vec![0; (to_ns - from_ns).div_ceil(STEP_NS) as usize],
            latencies: std::array::from_fn(|_| [histogram(), histogram()]),
            lateness: histogram(),
            from_ns,
            to_ns,
            by_due,
        }
    }

    /// Latencies of all operations.
    pub(crate) fn all_latencies(&self) -> Histogram<u64> {
        let mut all = self.latencies[0][0].clone();
        let others = self.latencies.iter().flatten().skip(1);
        others
            .for_each(|histogram| all.add(histogram).expect("all histograms have the same bounds"));
        all
    }

    #[inline]
    fn is_measured(&self, ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&ns)
    }

    /// Records that an operation which was due is begun.
    #[inline]
    pub(crate) fn began(&mut self, due_ns: u64, now_ns: u64) {
        if self.is_measured(due_ns) {
            self.lateness.saturating_record(now_ns.saturating_sub(due_ns).max(1));
        }
    }

    /// Records the answer to a request.
    #[inline]
    pub(crate) fn answered(
        &mut self,
        now_ns: u64,
        read: bool,
        found: bool,
        cached: bool,
        value_bytes: usize,
    ) {
        if self.is_measured(now_ns) {
            self.requests += 1;
            self.cached += u64::from(cached);
            self.reads += u64::from(read);
            self.not_found += u64::from(!found);
            self.value_bytes += value_bytes as u64;
        }
    }

    /// Records the end of an operation.
    #[inline]
    pub(crate) fn ended(&mut self, due_ns: u64, now_ns: u64, verb: Verb, cached: bool) {
        if self.is_measured(now_ns) {
            self.operations += 1;
            self.steps[((now_ns - self.from_ns) / STEP_NS) as usize] += 1;
        }
        self.took(due_ns, now_ns, verb, cached);
    }

    /// Records that an operation took at least this long.
    #[inline]
    pub(crate) fn took(&mut self, due_ns: u64, now_ns: u64, verb: Verb, cached: bool) {
        if self.is_measured(if self.by_due { due_ns } else { now_ns }) {
            self.latencies[verb as usize][usize::from(!cached)]
                .saturating_record(now_ns.saturating_sub(due_ns).max(1));
        }
    }

    /// Records that an operation ended without an outcome.
    pub(crate) fn failed(&mut self, due_ns: u64, now_ns: u64) {
        self.failed += u64::from(self.is_measured(due_ns) || self.is_measured(now_ns));
    }

    /// Adds the counts of another client.
    pub(crate) fn add(&mut self, other: &Recorder) {
        self.operations += other.operations;
        self.cached += other.cached;
        self.requests += other.requests;
        self.reads += other.reads;
        self.not_found += other.not_found;
        self.value_bytes += other.value_bytes;
        self.failed += other.failed;
        for (step, more) in self.steps.iter_mut().zip(&other.steps) {
            *step += more;
        }
        let mine = self.latencies.iter_mut().flatten().chain([&mut self.lateness]);
        for (mine, theirs) in mine.zip(other.latencies.iter().flatten().chain([&other.lateness])) {
            mine.add(theirs).expect("all histograms have the same bounds");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warm_up_and_drain_do_not_count() {
        let mut recorder = Recorder::new(1000, 2000, false);
        for (due, end) in [(10, 999), (990, 1000), (1500, 1999), (1999, 2000)] {
            recorder.answered(end, true, true, end == 1000, 100);
            recorder.ended(due, end, Verb::Read, end == 1000);
        }
        assert_eq!((recorder.operations, recorder.requests, recorder.cached), (2, 2, 1));
        assert_eq!(recorder.value_bytes, 200);
        assert_eq!(recorder.latencies[0][0].max(), 10);
        assert_eq!(recorder.latencies[0][1].len(), 1);
    }

    #[test]
    fn an_open_loop_counts_what_was_due_however_long_it_took() {
        let mut recorder = Recorder::new(1000, 2000, true);
        recorder.ended(999, 1500, Verb::Update, false);
        recorder.ended(1999, 900_000, Verb::Update, false);
        assert_eq!(recorder.operations, 1, "throughput is of the measured time");
        assert_eq!(recorder.latencies[1][1].len(), 1);
        assert!(recorder.latencies[1][1].max() >= 897_000);
    }

    #[test]
    fn clients_add_up() {
        let mut sum = Recorder::new(0, 2 * STEP_NS, false);
        let mut other = sum.clone();
        sum.ended(1, 2, Verb::Read, true);
        other.ended(1, STEP_NS + 2, Verb::Read, true);
        sum.add(&other);
        assert_eq!(
            (sum.operations, sum.steps.as_slice(), sum.latencies[0][0].len()),
            (2, &[1, 1][..], 2)
        );
    }
}
