//! The best possible throughput for one partition map, one popularity and one content of the cache.
//!
//! Let an operation make `R` reads and `W` writes on average ([`Demand`]), let key `k` be chosen
//! with probability `p(k)`, and let `head(k)` and `tail(k)` be the nodes that its writes and its
//! reads go to. Node `n` then serves, per operation,
//!
//! ```text
//! L(n) = sum over k of p(k) * (R * read(k) * [tail(k) = n] + W * write(k) * [head(k) = n])
//! ```
//!
//! requests, where `read(k)` and `write(k)` are the shares that the cache leaves to nodes (a value
//! that travels in fragments is several requests: [`Work`]):
//!
//! | scheme | uncached key | cached key |
//! | --- | --- | --- |
//! | no cache | 1, 1 | 1, 1 |
//! | write-back | 1, 1 | 0, 0 |
//! | write-through, write-around | 1, 1 | `m(k)`, 1 |
//!
//! and the limit is the throughput at which the busiest node is at its capacity: `X = C / max
//! L(n)`, with `C` requests a second a node.
//!
//! *Ideal* write-through updates the cache the moment a write arrives, so that cached reads never
//! miss: `m(k) = 0`. A real one invalidates the record when the write passes and has it back when
//! the node has applied it, a time `d` later; the record is valid when no write of the last `d`
//! seconds was its own, so that with writes of a Poisson stream `m(k) = 1 - exp(-X * W * p(k) *
//! d)`, and `X` is the solution of `X * max L(n) = C`. With `d` the time that a request waits at a
//! full node, outstanding requests over `C`, this is what write-through can reach *in a closed
//! loop*: there the queue of the busiest node keeps exactly its hot keys invalid.
//!
//! Write-around has the record back when a read that followed the last write is answered, a time
//! `d` after it. With both streams Poisson, and `f(k) = R / (R + W)` the chance that the key's last
//! request more than `d` ago was a read, `m(k) = 1 - f(k) * exp(-X * W * p(k) * d)`. Ideally, `d =
//! 0`, the first read after a write is the only one that misses.
//!
//! Switches of a limited capacity are a limit besides. Where a chain has two or more, each request
//! of its keys passes the first of them twice, on its way down and as its answer, whether the cache
//! answers it or a node. If a switch passes `S` packets a second and chain `c` draws `q(c)`
//! requests per operation, then `X <= S / (2 max q(c))` ([`Placement::limit_of_switches`]).
//!
//! These limits leave out the cost of cache updates, fenced and conservative reads, admissions and
//! evictions. No content of a cache has a key whose value fits no slot: its requests are its node's
//! in every limit.
//!
//! Three contents of the cache have a limit, each under its own name in every report:
//!
//! | name | content |
//! | --- | --- |
//! | `limit` | the best for a cache of this size: the records of each chain that are asked for most ([`Placement::limit_of_hottest`]) |
//! | `limit_learned` | a perfect learner's at that moment: those asked for most so far ([`crate::learner`]) |
//! | `limit_cached` | the actual one |
//!
//! Only the last depends on how well a cache chose, so runs are judged by the first, and those that
//! begin with nothing cached by the second. In read-latest (workload D) the hot keys change all the
//! time: its limit is that of a cache in which the newest records are found whenever they are read,
//! with keys spread evenly over partitions; its `limit_learned` is that of the share of reads which
//! found their record in the learner's content; its actual content changes with every insert and
//! has no limit.

use crate::workload::{Demand, KeySpace, WorkloadSpec, ZipfShares, is_cacheable};
use std::collections::HashSet;
use switchback_core::client::FRAGMENTS_AT_ONCE;
use switchback_wire::{HashKey, KeyHash, Map, Scheme, fragment_bytes, is_large};

/// Number of the hottest keys that are placed one by one; the others count by the expected share of
/// each partition. Of 100 million keys at Zipf 0.99 the hottest million draw three quarters, and
/// none of the rest more than 5.5e-8.
pub const EXACT_KEYS: u64 = 1_000_000;
/// Fewer keys are enough if each of those after them draws less than this share, but at least
/// [`EXACT_KEYS_MIN`].
const SHARE_MIN: f64 = 5e-8;
const EXACT_KEYS_MIN: u64 = 100_000;

/// A share of the spread keys below this is a rounding error.
const ROUNDING: f64 = 1e-9;

/// The load of a workload, by nodes and partitions.
#[derive(Clone, Debug)]
pub struct Placement {
    hot: Vec<Hot>,
    /// The load of the keys that are not placed one by one, as `(reads, writes)` of each node.
    rest: Vec<(f64, f64)>,
    /// The load of these keys on each partition.
    rest_of_partition: Vec<(f64, f64)>,
    map: Map,
    latest: Option<Latest>,
}

/// Reads of the latest records.
#[derive(Clone, Copy, Debug)]
struct Latest {
    /// Shares of the newest record, the one before it and so on.
    shares: ZipfShares,
    /// The share of the records that a cache takes.
    cacheable: f64,
    /// What a read of one of these takes of its node, over what a read takes on average.
    work: f64,
}

/// What one read and one write of a key take of its node. A limit in operations a second of nodes
/// with a capacity of `C` a second counts it in the unit of `C`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Work {
    /// A read.
    pub read: f64,
    /// A write.
    pub write: f64,
}

impl Work {
    /// One request each.
    pub const ONE: Work = Work { read: 1.0, write: 1.0 };

    /// Requests that a node serves for a value of this length. A value that no packet holds is
    /// staged fragment by fragment before its write; after a read all fragments but the first are
    /// pulled, [`FRAGMENTS_AT_ONCE`] by one request.
    pub fn of_value(value_bytes: usize, key_bytes: usize) -> Work {
        if !is_large(value_bytes, key_bytes) {
            return Work::ONE;
        }
        let fragments = value_bytes.div_ceil(fragment_bytes(key_bytes));
        let pulls = (fragments - 1).div_ceil(usize::from(FRAGMENTS_AT_ONCE));
        Work { read: (1 + pulls) as f64, write: (1 + fragments) as f64 }
    }
}

/// The load of one key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct KeyShare {
    /// Hash of the key.
    pub hash: KeyHash,
    /// Its share of all reads.
    pub reads: f64,
    /// Its share of all writes.
    pub writes: f64,
    /// Whether a cache may hold it.
    pub cacheable: bool,
}

#[derive(Clone, Copy, Debug)]
struct Hot {
    key: KeyShare,
    work: Work,
    head: u16,
    tail: u16,
    chain: u16,
}

/// What is left of the room for keys that each chain's cache has.
pub(crate) struct Room(Vec<usize>);

impl Room {
    /// Room for `count` keys in each of these chains' caches.
    pub(crate) fn new(chains: usize, count: usize) -> Room {
        Room(vec![count; chains])
    }

    /// Takes a place for a cacheable key of a chain, if there is one.
    pub(crate) fn takes(&mut self, chain: u16) -> bool {
        let left = &mut self.0[usize::from(chain)];
        let taken = *left > 0;
        *left -= usize::from(taken);
        taken
    }
}

/// How a cache relieves nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Policy {
    /// The requests of cached keys that it answers.
    pub scheme: Scheme,
    /// Time until a node has refreshed an invalid record, in service times of a node: 0 is ideal;
    /// in a closed loop it is the number of outstanding requests.
    pub refresh_services: f64,
}

impl Policy {
    /// The ideal policy of a scheme: refreshes take no time.
    pub const fn ideal(scheme: Scheme) -> Policy {
        Policy { scheme, refresh_services: 0.0 }
    }

    /// A scheme in a closed loop with this number of outstanding requests. It is the ideal one
    /// where no record is invalid while its write waits at the node: DistCache's copies answer
    /// until the node is about to apply the write.
    pub const fn closed_loop(scheme: Scheme, outstanding: f64) -> Policy {
        let waits = scheme.invalidates() && !scheme.has_copies();
        Policy { scheme, refresh_services: if waits { outstanding } else { 0.0 } }
    }
}

/// A limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Limit {
    /// Throughput with a node capacity of 1 (`C = 1`): multiply it by the capacity.
    pub ops_per_capacity: f64,
    /// Requests per operation that each node serves.
    pub node_load: Vec<f64>,
}

impl Limit {
    /// Operations a second with nodes of this capacity; infinite if nodes serve no request.
    pub fn ops(&self, node_capacity_ops: f64) -> f64 {
        node_capacity_ops * self.ops_per_capacity
    }

    /// Load of the busiest node over the mean.
    pub fn imbalance(&self) -> f64 {
        imbalance(&self.node_load)
    }
}

/// The largest over the mean; 1 if all are 0.
pub fn imbalance(loads: &[f64]) -> f64 {
    let sum: f64 = loads.iter().sum();
    if sum == 0.0 { 1.0 } else { max(loads) * loads.len() as f64 / sum }
}

fn max(loads: &[f64]) -> f64 {
    loads.iter().copied().fold(0.0, f64::max)
}

/// The number of the hottest keys that are placed one by one.
fn exact_keys(shares: &ZipfShares) -> u64 {
    let (mut low, mut high) = (EXACT_KEYS_MIN.min(shares.items()), EXACT_KEYS.min(shares.items()));
    while low < high {
        let middle = (low + high) / 2;
        if shares.share(middle) < SHARE_MIN { high = middle } else { low = middle + 1 }
    }
    low
}

impl Placement {
    /// Places keys by their shares, hottest first, on the nodes that `map` names: writes go to a
    /// partition's head, reads to its tail. The rest of the shares to 1 is spread evenly over the
    /// range of keys.
    pub fn new(map: &Map, shares: impl Iterator<Item = (KeyHash, f64)>) -> Placement {
        let key = |(hash, share)| KeyShare { hash, reads: share, writes: share, cacheable: true };
        Placement::of_keys(map, shares.map(key))
    }

    /// Places keys with separate shares of reads and writes.
    pub fn of_keys(map: &Map, keys: impl Iterator<Item = KeyShare>) -> Placement {
        Placement::of_work(map, keys.map(|key| (key, Work::ONE)), Work::ONE)
    }

    /// The same of keys whose requests don't take the same of their nodes; `mean` is what those
    /// without number take on average.
    fn of_work(map: &Map, keys: impl Iterator<Item = (KeyShare, Work)>, mean: Work) -> Placement {
        let place = |(key, work): (KeyShare, Work)| {
            let partition = map.of(key.hash);
            let (head, tail, chain) = (partition.head(), partition.tail(), partition.chain);
            Hot { key, work, head, tail, chain }
        };
        let hot: Vec<_> = keys.map(place).collect();
        // Small ones first, so that rounding errors stay small.
        let left = |share: fn(&KeyShare) -> f64| {
            let left = 1.0 - hot.iter().rev().map(|hot| share(&hot.key)).sum::<f64>();
            if left > ROUNDING { left } else { 0.0 }
        };
        let reads = left(|key| key.reads) * mean.read;
        let writes = left(|key| key.writes) * mean.write;
        let rest_of = |place| (reads * map.share(place), writes * map.share(place));
        let rest_of_partition: Vec<_> = (0..map.partitions().len()).map(rest_of).collect();
        let mut rest = vec![(0.0, 0.0); map.nodes()];
        for (partition, (reads, writes)) in map.partitions().iter().zip(&rest_of_partition) {
            rest[usize::from(partition.tail())].0 += reads;
            rest[usize::from(partition.head())].1 += writes;
        }
        Placement { hot, rest, rest_of_partition, map: map.clone(), latest: None }
    }

    /// Places a workload on a rack, after `phase` changes of popularity. Workloads without lasting
    /// hot keys (inserts, read-latest) spread evenly over partitions. Nodes have a capacity in
    /// requests.
    pub fn of_workload(
        spec: &WorkloadSpec,
        phase: u32,
        keys: KeySpace,
        map: &Map,
        hash_key: HashKey,
    ) -> Placement {
        let requests = |value_bytes| Work::of_value(value_bytes, keys.key_bytes());
        Placement::of_workload_with(spec, phase, keys, map, hash_key, requests)
    }

    /// The same with what requests take of nodes by the length of the value.
    pub fn of_workload_with(
        spec: &WorkloadSpec,
        phase: u32,
        keys: KeySpace,
        map: &Map,
        hash_key: HashKey,
        work: impl Fn(usize) -> Work,
    ) -> Placement {
        let shares = ZipfShares::new(spec.records, spec.theta);
        let exact = if spec.workload.is_static() { exact_keys(&shares) } else { 0 };
        let lasting = 1.0 - spec.workload.one_hit();
        let mut popularity = spec.popularity();
        popularity.set_phase(phase);
        let lengths = spec.lengths();
        let mut key = Vec::new();
        let hot = (0..exact).map(|rank| {
            let index = popularity.index(rank);
            keys.write_key(index, &mut key);
            let (hash, share) = (hash_key.hash(&key), shares.share(rank) * lasting);
            let value_bytes = lengths.of(index);
            let cacheable = is_cacheable(value_bytes);
            (KeyShare { hash, reads: share, writes: share, cacheable }, work(value_bytes))
        });
        let mean = |of: fn(Work) -> f64| spec.value_bytes.mean(|bytes| of(work(bytes)));
        let mean = Work { read: mean(|work| work.read), write: mean(|work| work.write) };
        let placement = Placement::of_work(map, hot, mean);
        let latest = spec.workload.reads_latest().then(|| {
            let cacheable = spec.value_bytes.cacheable_share();
            let read = |bytes| if is_cacheable(bytes) { work(bytes).read } else { 0.0 };
            let read = spec.value_bytes.mean(read) / cacheable.max(f64::MIN_POSITIVE);
            Latest { shares, cacheable, work: read / mean.read }
        });
        Placement { latest, ..placement }
    }

    /// Whether contents have a limit: not if the hot keys change with every insert.
    pub fn has_lasting_content(&self) -> bool {
        self.latest.is_none()
    }

    /// The chains of switches, each with room for `count` keys.
    fn room(&self, count: usize) -> Room {
        Room::new(self.chains(), count)
    }

    /// How many chains of switches share the keys.
    fn chains(&self) -> usize {
        let chains = self.map.partitions().iter().map(|partition| partition.chain);
        usize::from(chains.max().unwrap_or(0)) + 1
    }

    /// Hashes of the `count` hottest cacheable keys of each chain.
    pub fn hottest(&self, count: usize) -> HashSet<KeyHash> {
        let mut room = self.room(count);
        let cached = self.hot.iter().filter(|hot| hot.key.cacheable && room.takes(hot.chain));
        cached.map(|hot| hot.key.hash).collect()
    }

    /// The share of operations on these keys, if a key has the same share of reads and of writes.
    pub fn share_of(&self, keys: &HashSet<KeyHash>) -> f64 {
        // Not sum(): without terms that is -0.
        self.hot
            .iter()
            .filter(|hot| keys.contains(&hot.key.hash))
            .fold(0.0, |sum, hot| sum + hot.key.reads)
    }

    /// Requests per operation that each partition draws, without a cache.
    pub fn partition_load(&self, demand: Demand) -> Vec<f64> {
        let requests = |reads, writes| demand.reads * reads + demand.writes * writes;
        let rest = self.rest_of_partition.iter();
        let mut load: Vec<_> = rest.map(|(reads, writes)| requests(*reads, *writes)).collect();
        for Hot { key, work, .. } in &self.hot {
            load[self.map.find(key.hash)] +=
                requests(key.reads * work.read, key.writes * work.write);
        }
        load
    }

    /// Requests per operation that each chain of switches draws, counted as their nodes count them
    /// ([`Work`]).
    fn chain_load(&self, demand: Demand) -> Vec<f64> {
        let mut load = vec![0.0; self.chains()];
        for (partition, requests) in self.map.partitions().iter().zip(self.partition_load(demand)) {
            load[usize::from(partition.chain)] += requests;
        }
        load
    }

    /// Operations a second at which the first switch of the busiest chain passes `switch_pps`
    /// packets a second, in chains of two switches or more. It doesn't depend on what is cached.
    pub fn limit_of_switches(&self, demand: Demand, switch_pps: f64) -> f64 {
        switch_pps / (2.0 * max(&self.chain_load(demand)))
    }

    /// The limit under `policy` with these keys cached. (Cached keys that are not among the
    /// [`EXACT_KEYS`] hottest don't change it.)
    pub fn limit(&self, demand: Demand, policy: Policy, cached: &HashSet<KeyHash>) -> Limit {
        self.limit_of_content(demand, policy, |hash| if cached.contains(hash) { 1.0 } else { 0.0 })
    }

    /// The limit with a content that changes: `cached` is the share of the time in which a key is
    /// cached.
    pub fn limit_of_content(
        &self,
        demand: Demand,
        policy: Policy,
        cached: impl Fn(&KeyHash) -> f64,
    ) -> Limit {
        let share = |hot: &Hot| if policy.scheme.caches() { cached(&hot.key.hash) } else { 0.0 };
        let cached: Vec<f64> = self.hot.iter().map(share).collect();
        self.limit_of(demand, policy, &cached)
    }

    /// The limit with the `count` hottest cacheable keys of each chain cached: the best content of
    /// caches of that size.
    pub fn limit_of_hottest(&self, demand: Demand, policy: Policy, count: usize) -> Limit {
        if let Some(Latest { shares, cacheable, .. }) = &self.latest {
            // The newest `count` that fit a slot lie among more that don't.
            let newest = ((count * self.chains()) as f64 / cacheable) as u64;
            return self.limit_of_hits(demand, policy, cacheable * shares.head(newest));
        }
        let mut room = self.room(if policy.scheme.caches() { count } else { 0 });
        let admit = |hot: &Hot| f64::from(u8::from(hot.key.cacheable && room.takes(hot.chain)));
        let cached: Vec<f64> = self.hot.iter().map(admit).collect();
        self.limit_of(demand, policy, &cached)
    }

    /// The limit if this share of the reads of each node finds its record cached, and no write
    /// does: that of read-latest, whose writes are all inserts.
    pub fn limit_of_hits(&self, demand: Demand, policy: Policy, hits: f64) -> Limit {
        let hits = if policy.scheme.caches() { hits } else { 0.0 };
        let hits = hits * self.latest.map_or(1.0, |latest| latest.work);
        self.limit_of(
            Demand { reads: demand.reads * (1.0 - hits), ..demand },
            policy,
            &vec![0.0; self.hot.len()],
        )
    }

    fn limit_of(&self, demand: Demand, policy: Policy, cached: &[f64]) -> Limit {
        let mut node_load = self.certain_load(demand, policy, cached);
        let Policy { scheme, refresh_services } = policy;
        if scheme.invalidates() {
            // Keys that aren't written are never invalid.
            let cached = self
                .hot
                .iter()
                .zip(cached)
                .filter(|(hot, cached)| **cached > 0.0 && hot.key.writes > 0.0);
            let misses: Vec<_> = cached
                .map(|(hot, cached)| {
                    let (reads, writes) =
                        (demand.reads * hot.key.reads, demand.writes * hot.key.writes);
                    let fetched = if scheme.refreshes() { 1.0 } else { reads / (reads + writes) };
                    let reads = reads * cached * hot.work.read;
                    (usize::from(hot.tail), reads, fetched, writes * refresh_services)
                })
                .filter(|&(_, reads, fetched, writes_a_refresh)| {
                    reads > 0.0 && (fetched < 1.0 || writes_a_refresh > 0.0)
                })
                .collect();
            let at = |ops: f64| {
                let mut load = node_load.clone();
                for &(tail, reads, fetched, writes_a_refresh) in &misses {
                    load[tail] +=
                        reads * (1.0 - fetched - fetched * (-ops * writes_a_refresh).exp_m1());
                }
                load
            };
            if !misses.is_empty() {
                node_load = at(self.solve(|ops| max(&at(ops))));
            }
        }
        Limit { ops_per_capacity: 1.0 / max(&node_load), node_load }
    }

    /// Requests that each node serves per operation at any throughput: all but reads of cached keys
    /// that writes have made invalid.
    fn certain_load(&self, demand: Demand, policy: Policy, cached: &[f64]) -> Vec<f64> {
        let mut load: Vec<f64> = self
            .rest
            .iter()
            .map(|(reads, writes)| demand.reads * reads + demand.writes * writes)
            .collect();
        for (hot, &cached) in self.hot.iter().zip(cached) {
            let reads = if policy.scheme.caches() { 1.0 - cached } else { 1.0 };
            let writes = if policy.scheme.absorbs_writes() { 1.0 - cached } else { 1.0 };
            load[usize::from(hot.tail)] += hot.key.reads * demand.reads * reads * hot.work.read;
            load[usize::from(hot.head)] += hot.key.writes * demand.writes * writes * hot.work.write;
        }
        load
    }

    /// The throughput `x` with `x * busiest(x) = 1`, where `busiest` doesn't fall.
    fn solve(&self, busiest: impl Fn(f64) -> f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0 / busiest(0.0));
        if !high.is_finite() {
            high = 1.0 / busiest(f64::MAX);
        }
        for _ in 0..40 {
            let middle = (low + high) / 2.0;
            if middle * busiest(middle) > 1.0 { high = middle } else { low = middle }
        }
        (low + high) / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ValueBytes, Workload};
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;
    use switchback_wire::Partition;

    fn spec(workload: Workload, records: u64, theta: f64) -> WorkloadSpec {
        let value_bytes = ValueBytes::constant(128);
        WorkloadSpec { workload, theta, records, value_bytes, change: None, seed: 1 }
    }

    /// Deals partitions to nodes in turn, as racks do.
    fn map(partitions: usize, nodes: u16) -> Map {
        Map::equal(
            (0..partitions)
                .map(|partition| vec![(partition % usize::from(nodes)) as u16])
                .collect(),
        )
    }

    fn hash_key(seed: u64) -> HashKey {
        HashKey(Pcg64Mcg::seed_from_u64(seed).random())
    }

    #[test]
    fn a_key_that_is_cached_half_of_the_time_relieves_its_node_of_half_of_its_load() {
        let map = map(16, 1);
        let spec = spec(Workload::A, 100, 0.99);
        let placement = Placement::of_workload(&spec, 0, KeySpace::new(1, 16), &map, hash_key(2));
        let demand = Demand { reads: 0.5, writes: 0.5 };
        let load = |cached: f64| {
            placement
                .limit_of_content(demand, Policy::ideal(Scheme::FarReach), |_| cached)
                .node_load[0]
        };
        assert!((load(0.5) - (load(0.0) + load(1.0)) / 2.0).abs() < 1e-9);
        assert!((load(0.0) - 1.0).abs() < 1e-9 && load(1.0).abs() < 1e-9);
    }

    #[test]
    fn formula_and_counting_agree() {
        // Brute force: sum the definition over all keys, by another way of finding their nodes.
        let (records, theta, demand) = (500, 0.99, Demand { reads: 1.0, writes: 0.5 });
        let routes: Vec<Vec<u16>> = (0..64u16).map(|p| vec![p % 5, (p + 1 + p % 4) % 5]).collect();
        let map = Map::equal(routes.clone());
        let (keys, hash_key) = (KeySpace::new(3, 16), hash_key(1));
        let spec = WorkloadSpec { seed: 3, ..spec(Workload::F, records, theta) };
        let placement = Placement::of_workload(&spec, 0, keys, &map, hash_key);
        let cached = placement.hottest(50);
        let zeta: f64 = (1..=records).map(|k| (k as f64).powf(-theta)).sum();
        for (policy, read, write) in [
            (Policy::ideal(Scheme::NoCache), 1.0, 1.0),
            (Policy::ideal(Scheme::FarReach), 0.0, 0.0),
            (Policy::ideal(Scheme::NetCache), 0.0, 1.0),
            // A third of the requests are writes, each of which makes the read after it miss.
            (Policy::ideal(Scheme::WriteAround), 1.0 / 3.0, 1.0),
        ] {
            let mut load = [0.0; 5];
            for index in 0..records {
                let (read, write) = if index < 50 { (read, write) } else { (1.0, 1.0) };
                let share = ((index + 1) as f64).powf(-theta) / zeta;
                let route = &routes[(hash_key.hash(&keys.key(index)).position() >> 58) as usize];
                load[usize::from(route[0])] += share * demand.writes * write;
                load[usize::from(route[1])] += share * demand.reads * read;
            }
            let limit = placement.limit(demand, policy, &cached);
            for (node, load) in load.iter().enumerate() {
                assert!((limit.node_load[node] - load).abs() < 1e-12, "{policy:?} node {node}");
            }
            assert!((limit.ops(1000.0) - 1000.0 / max(&load)).abs() < 1e-6);
        }
    }

    #[test]
    fn keys_may_be_read_and_written_in_their_own_shares() {
        // Key 0 is only written, key 1 only read, key 2 fits no cache; reads and writes are as
        // many.
        let (map, demand) = (map(4, 1), Demand { reads: 0.5, writes: 0.5 });
        let key = |position: u64, reads, writes, cacheable| {
            let hash = KeyHash::at_position(position << 62);
            KeyShare { hash, reads, writes, cacheable }
        };
        let keys = [key(0, 0.0, 0.8, true), key(1, 0.6, 0.0, true), key(2, 0.4, 0.2, false)];
        let placement = Placement::of_keys(&map, keys.into_iter());
        assert_eq!(placement.partition_load(demand), [0.4, 0.3, 0.2 + 0.5 * 0.2, 0.0]);
        let load = |policy, count| placement.limit_of_hottest(demand, policy, count).node_load[0];
        let through = |refresh_services| Policy::closed_loop(Scheme::NetCache, refresh_services);
        for (policy, count, expected) in [
            (Policy::ideal(Scheme::NoCache), 3, 1.0),
            (Policy::ideal(Scheme::FarReach), 0, 1.0),
            (Policy::ideal(Scheme::FarReach), 1, 0.6),
            (Policy::ideal(Scheme::FarReach), 2, 0.3),
            (Policy::ideal(Scheme::FarReach), 3, 0.3),
            (through(0.0), 1, 1.0),
            (through(0.0), 3, 0.7),
            // The key that is read is never written, so it is never invalid.
            (through(1e9), 3, 0.7),
        ] {
            let load = load(policy, count);
            assert!((load - expected).abs() < 1e-12, "{policy:?} {count}: {load}");
        }
        // With all keys cached nodes serve no request.
        let placement = Placement::of_keys(
            &map,
            keys.into_iter().take(2).map(|key| KeyShare { writes: 1.0, reads: 0.5, ..key }),
        );
        let all_reads = Demand { reads: 1.0, writes: 0.0 };
        for policy in [Policy::ideal(Scheme::FarReach), through(100.0)] {
            let limit = placement.limit_of_hottest(all_reads, policy, 2);
            assert_eq!(
                (limit.ops_per_capacity, limit.node_load[0]),
                (f64::INFINITY, 0.0),
                "{policy:?}"
            );
        }
    }

    #[test]
    fn the_tail_by_expectation_is_the_tail_by_counting() {
        let map = map(1024, 16);
        let (keys, hash_key) = (KeySpace::new(1, 16), hash_key(2));
        let shares = ZipfShares::new(400_000, 0.99);
        let hashes: Vec<_> =
            (0..400_000).map(|rank| (hash_key.hash(&keys.key(rank)), shares.share(rank))).collect();
        let exact = Placement::new(&map, hashes.iter().copied());
        let short = Placement::new(&map, hashes.iter().copied().take(50_000));
        let cached = exact.hottest(1000);
        for policy in [Policy::ideal(Scheme::NoCache), Policy::ideal(Scheme::FarReach)] {
            let demand = Workload::A.demand();
            let (a, b) =
                (exact.limit(demand, policy, &cached), short.limit(demand, policy, &cached));
            assert!((a.ops_per_capacity / b.ops_per_capacity - 1.0).abs() < 0.01);
        }
    }

    #[test]
    fn keys_with_tiny_shares_are_not_placed_one_by_one() {
        let exact = |records, theta| exact_keys(&ZipfShares::new(records, theta));
        assert_eq!(
            [exact(100_000_000, 0.99), exact(100_000_000, 0.0), exact(500, 0.99)],
            [1_000_000, 100_000, 500]
        );
        let steep = ZipfShares::new(100_000_000, 1.2);
        let count = exact(100_000_000, 1.2);
        assert!((100_000..1_000_000).contains(&count), "{count}");
        assert!(steep.share(count) < SHARE_MIN && steep.share(count - 1) >= SHARE_MIN);
    }

    /// Medians over random maps, in the paper's setting, of write-back over no cache, and of no
    /// cache.
    fn gains(nodes: u16) -> (f64, f64) {
        let spec = spec(Workload::A, 100_000_000, 0.99);
        let mut gains = Vec::new();
        for seed in 0..5 {
            let placement = Placement::of_workload(
                &spec,
                0,
                KeySpace::new(seed, 16),
                &map(4096, nodes),
                hash_key(seed),
            );
            let cached = placement.hottest(10_000);
            let [none, back] = [Policy::ideal(Scheme::NoCache), Policy::ideal(Scheme::FarReach)]
                .map(|policy| {
                    placement.limit(Workload::A.demand(), policy, &cached).ops_per_capacity
                });
            gains.push((back / none, none));
        }
        gains.sort_by(|a, b| a.0.total_cmp(&b.0));
        gains[2]
    }

    #[test]
    fn the_papers_setting_gives_the_documents_figures() {
        // docs/measure/performance.md, "The limit": 3.0 to 4.2 at 16 servers, 13 to 16 at 128.
        let (gain, _) = gains(16);
        assert!((3.0..4.2).contains(&gain), "{gain} at 16");
        let (gain, _) = gains(128);
        assert!((13.0..16.5).contains(&gain), "{gain} at 128");
    }

    #[test]
    fn a_slow_refresh_costs_write_through_its_hits() {
        let spec = spec(Workload::A, 100_000, 0.99);
        let placement =
            Placement::of_workload(&spec, 0, KeySpace::new(1, 16), &map(1024, 16), hash_key(1));
        let cached = placement.hottest(1000);
        let limit =
            |policy| placement.limit(Workload::A.demand(), policy, &cached).ops_per_capacity;
        let through =
            |refresh_services| limit(Policy::closed_loop(Scheme::NetCache, refresh_services));
        let falling: Vec<_> = [0.0, 1.0, 10.0, 100.0, 1000.0, 1e9].map(through).into();
        assert!(falling.is_sorted_by(|a, b| a > b), "{falling:?}");
        let none = limit(Policy::ideal(Scheme::NoCache));
        assert!((falling[5] / none - 1.0).abs() < 1e-3, "no record is ever valid");
        assert!(
            falling[0] > 1.5 * none && limit(Policy::ideal(Scheme::FarReach)) > 1.5 * falling[0]
        );
        // Without writes, write-through and write-back have the same limit.
        let reads = Workload::C.demand();
        let through = placement.limit(reads, Policy::closed_loop(Scheme::NetCache, 256.0), &cached);
        assert_eq!(
            through.node_load,
            placement.limit(reads, Policy::ideal(Scheme::FarReach), &cached).node_load
        );
    }

    #[test]
    fn reads_after_writes_miss_under_write_around() {
        // One key, requests one after the other, each a write with the probability w: counted, and
        // by the formula.
        let key =
            KeyShare { hash: KeyHash::at_position(0), reads: 1.0, writes: 1.0, cacheable: true };
        let placement = Placement::of_keys(&map(4, 1), [key].into_iter());
        let mut random = Pcg64Mcg::seed_from_u64(1);
        for writes in [0.05, 0.5, 0.95] {
            let (mut served, mut is_valid, requests) = (0, true, 200_000);
            for _ in 0..requests {
                let is_write = random.random_bool(writes);
                served += u32::from(is_write || !is_valid);
                is_valid = !is_write;
            }
            let counted = f64::from(served) / f64::from(requests);
            let demand = Demand { reads: 1.0 - writes, writes };
            let limit = |policy| placement.limit_of_hottest(demand, policy, 1).node_load[0];
            assert!(
                (limit(Policy::ideal(Scheme::WriteAround)) - counted).abs() < 0.01,
                "{writes}: {counted}"
            );
            let full = [0.0, 1.0, 100.0, 1e9]
                .map(|services| limit(Policy::closed_loop(Scheme::WriteAround, services)));
            assert!(full.is_sorted() && full[0] < 1.0 && full[3] > 0.999, "{full:?}");
            assert!(limit(Policy::closed_loop(Scheme::NetCache, 1.0)) < full[1]);
        }
    }

    #[test]
    fn a_closed_loop_explains_the_papers_netcache() {
        // NetCache over no cache in Exp#1: 1.04 in A, 1.29 in B, 1.06 in F, far below the ideal.
        for (workload, low, high) in
            [(Workload::A, 1.0, 1.15), (Workload::B, 1.1, 1.4), (Workload::F, 1.0, 1.15)]
        {
            let spec = spec(workload, 100_000_000, 0.99);
            let placement =
                Placement::of_workload(&spec, 0, KeySpace::new(1, 16), &map(4096, 16), hash_key(1));
            let cached = placement.hottest(10_000);
            let limit =
                |policy| placement.limit(workload.demand(), policy, &cached).ops_per_capacity;
            let gain = limit(Policy::closed_loop(Scheme::NetCache, 256.0))
                / limit(Policy::ideal(Scheme::NoCache));
            assert!((low..high).contains(&gain), "{workload}: {gain}");
            assert!(
                limit(Policy::ideal(Scheme::NetCache))
                    > 1.4 * limit(Policy::ideal(Scheme::NoCache))
            );
        }
    }

    #[test]
    fn a_hot_key_that_fits_no_slot_lowers_the_limit() {
        // The hottest key of this seed has a short value, then a long one; the others stay short.
        let limits = |value_bytes: &str| {
            let value_bytes: ValueBytes = value_bytes.parse().unwrap();
            let spec = WorkloadSpec { value_bytes, ..spec(Workload::C, 1000, 0.99) };
            let keys = KeySpace::new(1, 16);
            let placement = Placement::of_workload(&spec, 0, keys, &map(64, 4), hash_key(1));
            let demand = Workload::C.demand();
            let limit = |scheme, count| {
                placement.limit_of_hottest(demand, Policy::ideal(scheme), count).ops_per_capacity
            };
            let content = placement.hottest(100);
            assert_eq!(content.len(), 100.min(spec.hottest(u64::MAX).count()));
            let best = placement.limit(demand, Policy::ideal(Scheme::FarReach), &content);
            assert_eq!(best.ops_per_capacity, limit(Scheme::FarReach, 100));
            let hottest = hash_key(1).hash(&keys.key(spec.popularity().index(0)));
            (limit(Scheme::NoCache, 100), limit(Scheme::FarReach, 100), content.contains(&hottest))
        };
        let (none, best, has_hottest) = limits("1168");
        assert!(has_hottest && best > 1.5 * none, "{best} {none}");
        // What one packet holds no more: a read and a pull for each.
        let (large, cached, has_hottest) = limits("1300");
        assert_eq!((cached, has_hottest), (large, false));
        assert!((none / large - 2.0).abs() < 1e-9, "{none} {large}");
        // Of half of the keys: those that fit are cached, the hottest of the others is its node's.
        let (none, mixed, _) = limits("128:1,1300:1");
        assert!(mixed > 1.01 * none && mixed < 0.7 * best, "{none} {mixed} {best}");
    }

    #[test]
    fn each_chain_caches_the_hottest_of_its_own_keys() {
        let chains = [0, 1, 0, 0];
        let with_chain = |(place, partition): (usize, &Partition)| Partition {
            chain: chains[place],
            ..partition.clone()
        };
        let equal = map(4, 4);
        let map = Map::new(equal.partitions().iter().enumerate().map(with_chain).collect());
        let map = map.expect("a map");
        // A key in each of the four quarters, the hottest first.
        let key = |quarter: u64| KeyHash::at_position(quarter << 62);
        let shares = [(0, 0.4), (2, 0.3), (3, 0.2), (1, 0.1)];
        let placement =
            Placement::new(&map, shares.map(|(at, share)| (key(at), share)).into_iter());
        assert_eq!(placement.hottest(1), HashSet::from([key(0), key(1)]));
        assert_eq!(placement.hottest(2), HashSet::from([key(0), key(1), key(2)]));
        let demand = Demand { reads: 1.0, writes: 0.0 };
        let limit = |count| {
            placement.limit_of_hottest(demand, Policy::ideal(Scheme::DistReach), count).node_load
        };
        let busiest = |count| max(&limit(count));
        assert!((busiest(1) - 0.3).abs() < 1e-9 && (busiest(2) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn the_switches_of_the_busiest_chain_pass_each_of_its_requests_twice() {
        let equal = map(4, 4);
        let with_chain = |(place, partition): (usize, &Partition)| Partition {
            chain: u16::from(place == 3),
            ..partition.clone()
        };
        let map = Map::new(equal.partitions().iter().enumerate().map(with_chain).collect());
        let placement = |shares: &[(u64, f64)]| {
            let hot = shares.iter().map(|&(at, share)| (KeyHash::at_position(at << 62), share));
            Placement::new(map.as_ref().expect("a map"), hot)
        };
        let demand = Demand { reads: 1.5, writes: 0.5 };
        let limit = |shares: &[(u64, f64)]| placement(shares).limit_of_switches(demand, 1000.0);
        // The three quarters of the first chain draw 1.5 requests an operation.
        assert!((limit(&[]) - 1000.0 / 3.0).abs() < 1e-9);
        // All requests are for one key.
        assert!((limit(&[(3, 1.0)]) - 250.0).abs() < 1e-9);
    }

    #[test]
    fn a_large_value_is_as_many_requests_as_its_fragments_take() {
        let work = |value_bytes| Work::of_value(value_bytes, 16);
        assert_eq!([work(1), work(1168)], [Work::ONE; 2]);
        assert_eq!(work(1169), Work { read: 1.0, write: 2.0 }, "one fragment, which is the answer");
        assert_eq!(work(1281), Work { read: 2.0, write: 3.0 });
        assert_eq!(work(65_536), Work { read: 3.0, write: 53.0 });
    }

    #[test]
    fn the_newest_records_that_fit_no_slot_are_read_from_nodes() {
        let limit = |value_bytes: &str| {
            let value_bytes: ValueBytes = value_bytes.parse().unwrap();
            let spec = WorkloadSpec { value_bytes, ..spec(Workload::D, 10_000, 0.99) };
            let keys = KeySpace::new(1, 16);
            let placement = Placement::of_workload(&spec, 0, keys, &map(64, 4), hash_key(1));
            let reads = Demand { reads: 1.0, writes: 0.0 };
            let limit =
                |scheme| placement.limit_of_hottest(reads, Policy::ideal(scheme), 100).node_load[0];
            (limit(Scheme::NoCache), limit(Scheme::FarReach))
        };
        let (_, small) = limit("128");
        let (none, large) = limit("4000");
        assert_eq!((none, large), (0.5, 0.5), "a read and a pull each, of four nodes");
        // Half of the keys: reads of the 200 newest are hits for every other of them.
        let (none, half) = limit("128:1,4000:1");
        let head = |count| ZipfShares::new(10_000, 0.99).head(count);
        assert!((none - 0.375).abs() < 1e-9 && (small - 0.25 * (1.0 - head(100))).abs() < 1e-9);
        assert!((half - (none - 0.25 * 0.5 * head(200))).abs() < 1e-9, "{half}");
    }

    #[test]
    fn inserts_spread_by_partitions() {
        let spec = spec(Workload::Load, 1000, 0.99);
        let placement =
            Placement::of_workload(&spec, 0, KeySpace::new(1, 16), &map(4, 3), hash_key(1));
        let limit = placement.limit(
            Workload::Load.demand(),
            Policy::ideal(Scheme::FarReach),
            &HashSet::new(),
        );
        assert_eq!(limit.node_load, [0.5, 0.25, 0.25]);
        assert_eq!((limit.ops(1000.0), limit.imbalance()), (2000.0, 1.5));
    }

    #[test]
    fn read_latest_is_limited_by_the_newest_records_on_equally_busy_nodes() {
        let (records, count) = (1_000_000, 10_000);
        let spec = spec(Workload::D, records, 0.99);
        let placement =
            Placement::of_workload(&spec, 0, KeySpace::new(1, 16), &map(64, 16), hash_key(1));
        let limit = |scheme| {
            placement
                .limit_of_hottest(Workload::D.demand(), Policy::ideal(scheme), count)
                .ops(60_000.0)
        };
        // Of 100 operations 95 read, and the newest records take their share of those; 5 insert.
        let zeta = |n: u64| (1..=n).map(|k| (k as f64).powf(-0.99)).sum::<f64>();
        let cached = 16.0 * 60_000.0 / (0.95 * (1.0 - zeta(count as u64) / zeta(records)) + 0.05);
        for scheme in [Scheme::FarReach, Scheme::NetCache] {
            assert!(
                (limit(scheme) / cached - 1.0).abs() < 1e-9,
                "{scheme}: {} {cached}",
                limit(scheme)
            );
        }
        assert!((limit(Scheme::NoCache) / (16.0 * 60_000.0) - 1.0).abs() < 1e-9);
        let of_hits = |hits| {
            placement
                .limit_of_hits(Workload::D.demand(), Policy::ideal(Scheme::FarReach), hits)
                .ops(60_000.0)
        };
        assert!(
            (of_hits(0.0) - limit(Scheme::NoCache)).abs() < 1.0
                && of_hits(1.0) > 19.0 * of_hits(0.0)
        );
        assert!(!placement.has_lasting_content());
    }

    proptest! {
        #[test]
        fn more_cache_never_lowers_a_limit(
            theta in 0.0f64..1.5,
            nodes in 1u16..20,
            few in 0usize..200,
            more in 0usize..200,
            seed in any::<u64>(),
            writes in 0.0f64..1.0,
            refresh_services in prop_oneof![Just(0.0), 0.1f64..500.0],
        ) {
            let spec = WorkloadSpec { seed, ..spec(Workload::Mix(writes * 100.0), 1000, theta) };
            let placement = Placement::of_workload(
                &spec,
                0,
                KeySpace::new(seed, 16),
                &map(256, nodes),
                hash_key(seed),
            );
            let (few, more) = (placement.hottest(few.min(more)), placement.hottest(few.max(more)));
            let demand = spec.workload.demand();
            let limit = |policy, cached| placement.limit(demand, policy, cached).ops_per_capacity;
            let through = Policy::closed_loop(Scheme::NetCache, refresh_services);
            for policy in [Policy::ideal(Scheme::FarReach), through] {
                prop_assert!(limit(policy, &more) >= limit(policy, &few) * (1.0 - 1e-9));
            }
            let back = limit(Policy::ideal(Scheme::FarReach), &more);
            let uncached = limit(Policy::ideal(Scheme::NoCache), &more);
            prop_assert!(back >= limit(through, &more) * (1.0 - 1e-9));
            prop_assert!(limit(through, &more) >= uncached * (1.0 - 1e-9));
            prop_assert!(uncached <= f64::from(nodes) * (1.0 + 1e-9));
        }
    }
}
