//! The stream of requests of one client.

use super::{Popularity, Verb, WorkloadSpec, Zipf, mix};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::VecDeque;

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request {
    /// What.
    pub verb: Verb,
    /// Index of the record.
    pub index: u64,
}

/// The requests of one client, without end. Clients of one run draw from different streams of the
/// same seed.
///
/// Clients insert disjoint records: client `c` of `n` the `c`-th, `c + n`-th and so on after those
/// that were preloaded. Reads of the latest records choose among those that were preloaded and
/// those that this client has inserted itself and knows to be written, so that its stream doesn't
/// depend on other clients (with one client, exactly YCSB's D).
#[derive(Clone, Debug)]
pub struct Requests {
    /// Cumulative probabilities of the verbs.
    thresholds: [f64; Verb::ALL.len()],
    /// Share of requests for keys that are used only once.
    one_hit: f64,
    zipf: Zipf,
    random: Pcg64Mcg,
    popularity: Popularity,
    latest: bool,
    inserts: Inserts,
}

impl Requests {
    pub(super) fn new(spec: &WorkloadSpec, client: u32, clients: u32) -> Requests {
        assert!(client < clients);
        let mut sum = 0.0;
        let thresholds = spec.workload.mix().map(|share| {
            sum += share;
            sum
        });
        Requests {
            thresholds,
            one_hit: spec.workload.one_hit(),
            zipf: Zipf::new(spec.records, spec.theta),
            random: Pcg64Mcg::seed_from_u64(mix(spec.seed ^ mix(1 + u64::from(client)))),
            popularity: spec.popularity(),
            latest: spec.workload.reads_latest(),
            inserts: Inserts::new(spec.preloaded() + u64::from(client), u64::from(clients)),
        }
    }

    /// The next request.
    #[inline]
    pub fn next_request(&mut self) -> Request {
        let draw: f64 = self.random.random();
        let at = self.thresholds.iter().position(|&threshold| draw < threshold);
        // Rounding may leave the last threshold a little below 1.
        let verb = at.map_or_else(|| self.last_verb(), |at| Verb::ALL[at]);
        if verb == Verb::Insert {
            return Request { verb, index: self.inserts.next() };
        }
        if self.one_hit > 0.0 && self.random.random::<f64>() < self.one_hit {
            let index = self.inserts.next();
            self.inserts.done(index);
            return Request { verb: if verb == Verb::Update { Verb::Insert } else { verb }, index };
        }
        let rank = self.zipf.sample(&mut self.random);
        let index = if self.latest { self.latest(rank) } else { self.popularity.index(rank) };
        Request { verb, index }
    }

    /// The last verb with a probability above 0.
    #[cold]
    fn last_verb(&self) -> Verb {
        let whole = self.thresholds[Verb::ALL.len() - 1];
        Verb::ALL[self.thresholds.iter().position(|&threshold| threshold >= whole).unwrap_or(0)]
    }

    /// Notes that the insert of this record has ended: reads may choose it.
    pub fn inserted(&mut self, index: u64) {
        self.inserts.done(index);
    }

    /// Goes to the popularity after `phase` changes.
    pub fn set_phase(&mut self, phase: u32) {
        self.popularity.set_phase(phase);
    }

    fn latest(&self, rank: u64) -> u64 {
        match self.inserts.latest(rank) {
            Some(index) => index,
            None => self.popularity.index(rank - self.inserts.known),
        }
    }
}

/// The records that one client inserts.
#[derive(Clone, Debug)]
struct Inserts {
    first: u64,
    step: u64,
    begun: u64,
    /// Number of records from the first on that are written.
    known: u64,
    /// Whether each record after these is written.
    done: VecDeque<bool>,
}

impl Inserts {
    fn new(first: u64, step: u64) -> Inserts {
        Inserts { first, step, begun: 0, known: 0, done: VecDeque::new() }
    }

    fn next(&mut self) -> u64 {
        let index = self.first + self.begun * self.step;
        self.begun += 1;
        self.done.push_back(false);
        index
    }

    fn done(&mut self, index: u64) {
        let ordinal = (index - self.first) / self.step;
        if let Some(done) =
            ordinal.checked_sub(self.known).and_then(|at| self.done.get_mut(at as usize))
        {
            *done = true;
        }
        while self.done.front() == Some(&true) {
            self.done.pop_front();
            self.known += 1;
        }
    }

    fn latest(&self, rank: u64) -> Option<u64> {
        let ordinal = self.known.checked_sub(rank + 1)?;
        Some(self.first + ordinal * self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Change, Pattern, ValueBytes};

    fn spec(workload: &str) -> WorkloadSpec {
        WorkloadSpec {
            workload: workload.parse().unwrap(),
            theta: 0.99,
            records: 1000,
            value_bytes: ValueBytes::constant(128),
            change: None,
            seed: 1,
        }
    }

    fn take(requests: &mut Requests, count: usize) -> Vec<Request> {
        (0..count).map(|_| requests.next_request()).collect()
    }

    #[test]
    fn a_seed_and_a_client_determine_the_requests() {
        let spec = spec("a");
        let first = take(&mut spec.requests(0, 2), 1000);
        assert_eq!(take(&mut spec.requests(0, 2), 1000), first);
        assert_ne!(take(&mut spec.requests(1, 2), 1000), first);
        assert_ne!(take(&mut WorkloadSpec { seed: 2, ..spec }.requests(0, 2), 1000), first);
    }

    #[test]
    fn verbs_come_in_their_shares() {
        for name in ["a", "b", "c", "d", "f", "mix:25", "load"] {
            let spec = spec(name);
            let requests = take(&mut spec.requests(0, 1), 40_000);
            for (verb, share) in Verb::ALL.into_iter().zip(spec.workload.mix()) {
                let count = requests.iter().filter(|request| request.verb == verb).count() as f64;
                assert!((count / 40_000.0 - share).abs() < 0.02, "{name} {verb:?} {count}");
            }
        }
    }

    #[test]
    fn keys_of_one_request_come_in_their_share_and_never_again() {
        // 41.48 % of the keys had one request, and a key had 4.3 on average.
        let spec = spec("twitter:22");
        let requests: Vec<_> =
            (0..2).flat_map(|client| take(&mut spec.requests(client, 2), 20_000)).collect();
        let mut once: Vec<_> =
            requests.iter().map(|request| request.index).filter(|&index| index >= 1000).collect();
        let share = once.len() as f64 / requests.len() as f64;
        assert!((share - 0.4148 / 4.3).abs() < 0.01, "{share}");
        let count = once.len();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), count);
        for (verb, share) in [(Verb::Read, 0.72), (Verb::Cas, 0.18)] {
            let count = requests.iter().filter(|request| request.verb == verb).count() as f64;
            assert!((count / 40_000.0 - share).abs() < 0.02, "{verb:?} {count}");
        }
    }

    #[test]
    fn clients_insert_disjoint_records_behind_those_that_are_there() {
        let spec = spec("load");
        let mut indexes: Vec<_> = (0..3)
            .flat_map(|client| take(&mut spec.requests(client, 3), 100))
            .map(|request| request.index)
            .collect();
        indexes.sort_unstable();
        assert_eq!(indexes, (0..300).collect::<Vec<_>>());
        let inserted = take(&mut self::spec("d").requests(0, 1), 1000);
        assert!(
            inserted
                .iter()
                .filter(|request| request.verb == Verb::Insert)
                .all(|request| request.index >= 1000)
        );
    }

    #[test]
    fn the_latest_records_are_read_once_they_are_written() {
        let mut requests = spec("d").requests(0, 1);
        let mut inserted = Vec::new();
        while inserted.len() < 100 {
            let request = requests.next_request();
            match request.verb {
                Verb::Insert => inserted.push(request.index),
                _ => assert!(request.index < 1000, "not known to be written"),
            }
        }
        // Acknowledged in another order than they were begun: those behind a gap are not yet read.
        for &index in inserted[1..].iter().rev() {
            requests.inserted(index);
        }
        assert!(take(&mut requests, 100).iter().all(|r| r.verb == Verb::Insert || r.index < 1000));
        requests.inserted(inserted[0]);
        let reads = take(&mut requests, 4000);
        let newest =
            reads.iter().filter(|r| r.verb == Verb::Read && r.index == inserted[99]).count();
        let hottest = reads.iter().filter(|r| r.verb == Verb::Read).count() as f64 * 0.13;
        assert!(newest as f64 > hottest * 0.8, "{newest} reads of the newest record");
    }

    #[test]
    fn a_change_of_popularity_changes_what_is_hot() {
        let change = Some(Change { pattern: Pattern::HotIn, keys: 10 });
        let mut requests = WorkloadSpec { change, ..spec("c") }.requests(0, 1);
        let hot = |requests: &mut Requests| {
            take(requests, 2000).iter().filter(|r| r.index >= 990).count()
        };
        assert!(hot(&mut requests) < 100);
        requests.set_phase(1);
        assert!(hot(&mut requests) > 600);
    }
}
