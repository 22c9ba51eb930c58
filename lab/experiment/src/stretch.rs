//! Stretches of a run: what was done in each, and when two of them say the same.

use crate::storage::ByKey;
use crate::world::World;
use switchback_wire::KeyHash;

/// What was cached when it was looked at.
#[derive(Clone, Default, Debug)]
pub(crate) struct Content {
    times: ByKey<u32>,
    looks: u32,
}

impl Content {
    /// One look, which saw these keys.
    pub(crate) fn of(keys: Vec<KeyHash>) -> Content {
        let mut content = Content::default();
        content.look(keys);
        content
    }

    /// Looks once more, and sees these keys.
    fn look(&mut self, keys: Vec<KeyHash>) {
        self.looks += 1;
        keys.into_iter().for_each(|hash| *self.times.entry(hash.low()).or_default() += 1);
    }

    /// For which share of the time a key was cached.
    pub(crate) fn share(&self, hash: &KeyHash) -> f64 {
        self.times.get(&hash.low()).map_or(0.0, |times| f64::from(*times) / f64::from(self.looks))
    }

    fn add(&mut self, other: &Content) {
        self.looks += other.looks;
        other.times.iter().for_each(|(hash, times)| *self.times.entry(*hash).or_default() += times);
    }
}

/// What the rack and the perfect learner beside it, if there is one, had cached when they were
/// looked at.
#[derive(Default)]
pub(crate) struct Looked {
    content: Content,
    learned: Option<Content>,
}

impl Looked {
    /// Looks once more.
    pub(crate) fn look(&mut self, world: &World) {
        self.content.look(world.cached_hashes());
        if let Some(keys) = world.learned_hashes() {
            self.learned.get_or_insert_default().look(keys);
        }
    }
}

/// What a perfect learner did in a stretch.
#[derive(Clone, Default, Debug)]
pub(crate) struct Learned {
    pub(crate) content: Content,
    pub(crate) reads: u64,
    /// Of those, what its content had.
    pub(crate) hits: u64,
}

/// Where the counters of a rack were when a measurement began.
pub(crate) struct Begun {
    at_ns: u64,
    busy_ns: Vec<u64>,
    learned_reads: (u64, u64),
    completed: u64,
    cached: u64,
    failed: u64,
}

impl Begun {
    /// Begins now.
    pub(crate) fn now(world: &World) -> Begun {
        let meter = &world.meter;
        let (completed, cached, failed) = (meter.completed, meter.cached, meter.failed);
        let (at_ns, busy_ns, learned_reads) =
            (world.now_ns(), world.busy_ns(), world.learned_reads());
        Begun { at_ns, busy_ns, learned_reads, completed, cached, failed }
    }

    /// What was done since.
    pub(crate) fn until_now(&self, world: &World, looked: Looked) -> Stretch {
        let busy = world.busy_ns();
        let ((reads, hits), (reads_before, hits_before)) =
            (world.learned_reads(), self.learned_reads);
        let learned =
            |content| Learned { content, reads: reads - reads_before, hits: hits - hits_before };
        Stretch {
            ns: world.now_ns() - self.at_ns,
            busy_ns: busy.iter().zip(&self.busy_ns).map(|(now, before)| now - before).collect(),
            completed: world.meter.completed - self.completed,
            cached: world.meter.cached - self.cached,
            failed: world.meter.failed - self.failed,
            content: looked.content,
            learned: looked.learned.map(learned),
        }
    }
}

/// A stretch of a run.
#[derive(Clone, Default, Debug)]
pub(crate) struct Stretch {
    pub(crate) ns: u64,
    /// How long each node was busy.
    busy_ns: Vec<u64>,
    pub(crate) completed: u64,
    /// Of those, what the cache answered.
    pub(crate) cached: u64,
    pub(crate) failed: u64,
    pub(crate) content: Content,
    pub(crate) learned: Option<Learned>,
}

impl Stretch {
    /// Operations a second.
    pub(crate) fn throughput_ops(&self) -> f64 {
        self.completed as f64 * 1e9 / self.ns as f64
    }

    /// The share of the time in which the busiest node was busy.
    pub(crate) fn busiest(&self) -> f64 {
        self.busy_ns.iter().copied().max().unwrap_or(0) as f64 / self.ns as f64
    }

    /// Whether two that served about so many requests at the busiest node differ by no more than
    /// three standard errors.
    pub(crate) fn agrees(&self, other: &Stretch, busiest_requests: f64) -> bool {
        let error = (2.0 / busiest_requests).sqrt();
        (self.throughput_ops() / other.throughput_ops() - 1.0).abs() <= 3.0 * error
    }

    /// One after the other.
    pub(crate) fn joined(stretches: &[Stretch]) -> Stretch {
        let mut whole =
            Stretch { busy_ns: vec![0; stretches[0].busy_ns.len()], ..Stretch::default() };
        for stretch in stretches {
            whole.ns += stretch.ns;
            whole.busy_ns.iter_mut().zip(&stretch.busy_ns).for_each(|(sum, ns)| *sum += ns);
            whole.completed += stretch.completed;
            whole.cached += stretch.cached;
            whole.failed += stretch.failed;
            whole.content.add(&stretch.content);
            if let Some(learned) = &stretch.learned {
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

    fn stretch(ns: u64, completed: u64, busy_ns: [u64; 2]) -> Stretch {
        Stretch { ns, completed, busy_ns: busy_ns.to_vec(), ..Stretch::default() }
    }

    #[test]
    fn stretches_agree_as_far_as_so_few_requests_can_tell() {
        let (one, other) =
            (stretch(1_000_000_000, 1_000, [0; 2]), stretch(1_000_000_000, 1_050, [0; 2]));
        assert!(one.agrees(&other, 1_000.0), "three standard errors of 1,000 requests are 13 %");
        assert!(!one.agrees(&other, 100_000.0));
    }

    #[test]
    fn two_stretches_are_one_of_both_their_lengths() {
        let whole = Stretch::joined(&[stretch(100, 10, [50, 20]), stretch(300, 30, [150, 300])]);
        assert_eq!((whole.ns, whole.completed), (400, 40));
        assert!((whole.busiest() - 0.8).abs() < 1e-9 && (whole.throughput_ops() - 1e8).abs() < 1.0);
    }

    #[test]
    fn a_key_counts_for_the_share_of_looks_that_saw_it() {
        let hash = KeyHash([1; 16]);
        let mut content = Content { times: [(hash.low(), 2)].into_iter().collect(), looks: 2 };
        content.add(&Content { looks: 2, ..Content::default() });
        assert!(
            (content.share(&hash) - 0.5).abs() < 1e-9 && content.share(&KeyHash([2; 16])) == 0.0
        );
    }
}
