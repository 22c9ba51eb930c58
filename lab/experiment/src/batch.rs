//! A run is measured in batches, until the throughputs of two in a row agree: the method of batch
//! means (Law and Kelton, "Simulation Modeling and Analysis") with a stopping rule.

use crate::storage::ByKey;
use crate::world::World;
use switchback_wire::KeyHash;

/// The content of a cache, sampled a number of times.
#[derive(Clone, Default, Debug)]
pub(crate) struct Content {
    /// In how many samples each key was cached.
    cached: ByKey<u32>,
    samples: u32,
}

impl Content {
    /// One sample, with these keys.
    pub(crate) fn of(keys: Vec<KeyHash>) -> Content {
        let mut content = Content::default();
        content.sample(keys);
        content
    }

    /// Adds a sample with these keys.
    fn sample(&mut self, keys: Vec<KeyHash>) {
        self.samples += 1;
        keys.into_iter().for_each(|hash| *self.cached.entry(hash.low()).or_default() += 1);
    }

    /// The share of the samples in which a key was cached.
    pub(crate) fn share(&self, hash: &KeyHash) -> f64 {
        let share = |cached: &u32| f64::from(*cached) / f64::from(self.samples);
        self.cached.get(&hash.low()).map_or(0.0, share)
    }

    fn add(&mut self, other: &Content) {
        self.samples += other.samples;
        other.cached.iter().for_each(|(hash, n)| *self.cached.entry(*hash).or_default() += n);
    }
}

/// The contents of the rack's cache and of the perfect learner's, if there is a learner.
#[derive(Default)]
pub(crate) struct Contents {
    rack: Content,
    learner: Option<Content>,
}

impl Contents {
    /// Adds a sample of both.
    pub(crate) fn sample(&mut self, world: &World) {
        self.rack.sample(world.cached_hashes());
        if let Some(keys) = world.learned_hashes() {
            self.learner.get_or_insert_default().sample(keys);
        }
    }
}

/// The perfect learner's part in a batch.
#[derive(Clone, Default, Debug)]
pub(crate) struct Learned {
    pub(crate) content: Content,
    pub(crate) reads: u64,
    /// Reads of keys that were in its content.
    pub(crate) hits: u64,
}

/// The counters of a rack at one moment, from which a measurement subtracts.
pub(crate) struct Counters {
    at_ns: u64,
    busy_ns: Vec<u64>,
    learned_reads: (u64, u64),
    completed: u64,
    cached: u64,
    failed: u64,
}

impl Counters {
    /// The counters now.
    pub(crate) fn of(world: &World) -> Counters {
        let meter = &world.meter;
        let (completed, cached, failed) = (meter.completed, meter.cached, meter.failed);
        let (at_ns, busy_ns, learned_reads) =
            (world.now_ns(), world.busy_ns(), world.learned_reads());
        Counters { at_ns, busy_ns, learned_reads, completed, cached, failed }
    }

    /// The batch from these counters until now, with the contents that were sampled meanwhile.
    pub(crate) fn until_now(&self, world: &World, contents: Contents) -> Batch {
        let busy = world.busy_ns();
        let ((reads, hits), (reads_before, hits_before)) =
            (world.learned_reads(), self.learned_reads);
        let learned =
            |content| Learned { content, reads: reads - reads_before, hits: hits - hits_before };
        Batch {
            ns: world.now_ns() - self.at_ns,
            busy_ns: busy.iter().zip(&self.busy_ns).map(|(now, before)| now - before).collect(),
            completed: world.meter.completed - self.completed,
            cached: world.meter.cached - self.cached,
            failed: world.meter.failed - self.failed,
            content: contents.rack,
            learned: contents.learner.map(learned),
        }
    }
}

/// A batch of a run.
#[derive(Clone, Default, Debug)]
pub(crate) struct Batch {
    pub(crate) ns: u64,
    /// Time that each node was busy.
    busy_ns: Vec<u64>,
    pub(crate) completed: u64,
    /// Of the completed operations, those that the cache answered.
    pub(crate) cached: u64,
    pub(crate) failed: u64,
    pub(crate) content: Content,
    pub(crate) learned: Option<Learned>,
}

impl Batch {
    /// Operations a second.
    pub(crate) fn throughput_ops(&self) -> f64 {
        self.completed as f64 * 1e9 / self.ns as f64
    }

    /// The share of the time in which the busiest node was busy.
    pub(crate) fn busiest(&self) -> f64 {
        self.busy_ns.iter().copied().max().unwrap_or(0) as f64 / self.ns as f64
    }

    /// Whether the throughputs of two batches differ by no more than three standard errors, if the
    /// busiest node served about `busiest_requests` in each.
    pub(crate) fn agrees(&self, other: &Batch, busiest_requests: f64) -> bool {
        let error = (2.0 / busiest_requests).sqrt();
        (self.throughput_ops() / other.throughput_ops() - 1.0).abs() <= 3.0 * error
    }

    /// The batches as one: sums of times and counters.
    pub(crate) fn joined(batches: &[Batch]) -> Batch {
        let mut whole = Batch { busy_ns: vec![0; batches[0].busy_ns.len()], ..Batch::default() };
        for batch in batches {
            whole.ns += batch.ns;
            whole.busy_ns.iter_mut().zip(&batch.busy_ns).for_each(|(sum, ns)| *sum += ns);
            whole.completed += batch.completed;
            whole.cached += batch.cached;
            whole.failed += batch.failed;
            whole.content.add(&batch.content);
            if let Some(learned) = &batch.learned {
                let sum = whole.learned.get_or_insert_default();
                sum.content.add(&learned.content);
                sum.reads += learned.reads;
                sum.hits += learned.hits;
            }
        }
        whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(ns: u64, completed: u64, busy_ns: [u64; 2]) -> Batch {
        Batch { ns, completed, busy_ns: busy_ns.to_vec(), ..Batch::default() }
    }

    #[test]
    fn batches_agree_within_three_standard_errors() {
        let (one, other) =
            (batch(1_000_000_000, 1_000, [0; 2]), batch(1_000_000_000, 1_050, [0; 2]));
        assert!(one.agrees(&other, 1_000.0), "three standard errors of 1,000 requests are 13 %");
        assert!(!one.agrees(&other, 100_000.0));
    }

    #[test]
    fn joined_batches_add_up_times_and_operations() {
        let whole = Batch::joined(&[batch(100, 10, [50, 20]), batch(300, 30, [150, 300])]);
        assert_eq!((whole.ns, whole.completed), (400, 40));
        assert!((whole.busiest() - 0.8).abs() < 1e-9 && (whole.throughput_ops() - 1e8).abs() < 1.0);
    }

    #[test]
    fn a_key_counts_for_the_share_of_samples_that_have_it() {
        let hash = KeyHash([1; 16]);
        let mut content = Content { cached: [(hash.low(), 2)].into_iter().collect(), samples: 2 };
        content.add(&Content { samples: 2, ..Content::default() });
        assert!(
            (content.share(&hash) - 0.5).abs() < 1e-9 && content.share(&KeyHash([2; 16])) == 0.0
        );
    }
}
