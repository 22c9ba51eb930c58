//! One run: a rack is made, filled, driven and measured, and its limit is computed for the
//! partition map and the content of the cache that the run had.

use crate::batch::{Batch, Content, Contents, Counters, Learned};
use crate::profile::Profile;
use crate::world::{Drive, PARTITIONS, Setup, World};
use switchback_assembly::Times;
use switchback_bench::limit::{Limit, Placement, Policy, Work};
use switchback_bench::workload::{Change, Demand, KeySpace, ValueBytes, Workload, WorkloadSpec};
use switchback_wire::{CACHED_VALUE_BYTES_MAX, HashKey, Map, Scheme};

/// Records of a rack: the paper's.
pub(crate) const RECORDS: u64 = 100_000_000;
/// Cached records: the paper's.
pub(crate) const CACHE_RECORDS: u32 = 10_000;
/// Bytes of a key: the paper's.
pub(crate) const KEY_BYTES: usize = 16;
/// A closed loop has as many outstanding requests as random arrivals would have that keep the
/// busiest node busy for this share of the time. With more, it would only take longer until queues
/// have their full length.
const BUSY: f64 = 0.99;
/// Lanes while a cold cache learns: admission takes virtual time, and with more lanes more requests
/// would have to be simulated meanwhile.
const LEARNING_LANES: usize = 64;
/// Samples of the cache's content in two batches.
const CONTENT_SAMPLES: u64 = 8;
/// Batches of a run at most. If no two in a row agree and are within the limit, the run has not
/// converged.
const BATCHES_MAX: usize = 8;

/// Numbers of outstanding requests that are tried, beside the number that fills the busiest node:
/// with more, cached records that wait for nodes (NetCache) wait longer, with fewer nodes are idle.
const OUTSTANDING: [u32; 6] = [16, 32, 64, 128, 256, 512];
/// Each try is this fraction of a batch.
const TRY: u64 = 4;

/// Lanes of one session at most.
const SESSION_LANES: u32 = 4096;
/// Lanes of a rack at least, and at most.
const LANES_MIN: f64 = 64.0;
const LANES_MAX: f64 = 65_536.0;
/// Work of a node in a second, in nanoseconds: the capacity that limits are computed for.
const NODE_WORK: f64 = 1e9;
/// A time limit that no run reaches, in virtual time.
const FOREVER_NS: u64 = 3_600_000_000_000;

/// How long runs take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Effort {
    /// Repetitions, each with a seed of its own.
    pub(crate) repetitions: u64,
    /// Requests that the busiest node is to serve while it is measured: their number's root is the
    /// error.
    pub(crate) busiest_requests: f64,
    /// Operations that are measured at least, and at most.
    pub(crate) operations: (u64, u64),
    /// Operations after which a cold cache counts as warm at the latest.
    pub(crate) learning: u64,
    /// Virtual time between two changes of popularity, and how many there are (Exp#7).
    pub(crate) change_ns: u64,
    pub(crate) changes: u32,
    /// How long snapshots are watched (Exp#8).
    pub(crate) snapshots_ns: u64,
    /// How long a rack is busy before its switch dies (Exp#9).
    pub(crate) before_crash_ns: u64,
    pub(crate) is_quick: bool,
}

impl Effort {
    /// For results.
    pub(crate) const FULL: Effort = Effort {
        repetitions: 5,
        busiest_requests: 10_000.0,
        operations: (100_000, 20_000_000),
        learning: 1_500_000,
        change_ns: 3_000_000_000,
        changes: 2,
        snapshots_ns: 12_000_000_000,
        before_crash_ns: 250_000_000,
        is_quick: false,
    };
    /// For a look.
    pub(crate) const QUICK: Effort = Effort {
        repetitions: 2,
        busiest_requests: 2_500.0,
        operations: (30_000, 3_000_000),
        learning: 400_000,
        change_ns: 1_500_000_000,
        changes: 1,
        snapshots_ns: 10_000_000_000,
        before_crash_ns: 100_000_000,
        is_quick: true,
    };
}

/// What is run.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Case {
    pub(crate) workload: Workload,
    pub(crate) theta: f64,
    pub(crate) records: u64,
    pub(crate) change: Option<Change>,
    pub(crate) servers: u16,
    pub(crate) value_bytes: ValueBytes,
    /// Of each chain.
    pub(crate) cache_records: u32,
    /// What is compared: the last one is judged, the others are its baselines.
    pub(crate) schemes: &'static [Scheme],
    /// Chains of switches, which share the keys, and switches of a chain.
    pub(crate) chains: u16,
    pub(crate) layers: u8,
    /// Time between two packets that a switch takes, in nanoseconds; 0: it has no limit.
    pub(crate) switch_packet_ns: u64,
    pub(crate) snapshot_us: u64,
    /// How long a record may be in switches alone until it is on its way to its node; `None`: as
    /// long as it is cached.
    pub(crate) dirty_max_us: Option<u64>,
    /// Clients send a request again as soon as the product's do, though it may wait in a queue
    /// still; else only after any queue.
    pub(crate) asks_again_soon: bool,
    pub(crate) partitions: u32,
    /// The cache is empty at first, and learns what is hot.
    pub(crate) is_cold: bool,
    /// Clients ask for about this number of operations a second at most, even if nodes could serve
    /// more.
    pub(crate) most_ops: f64,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            workload: Workload::A,
            theta: 0.99,
            records: RECORDS,
            change: None,
            servers: 16,
            value_bytes: ValueBytes::constant(128),
            cache_records: CACHE_RECORDS,
            schemes: &Scheme::OF_ONE_LAYER,
            chains: 1,
            layers: 1,
            switch_packet_ns: 0,
            snapshot_us: 10_000_000,
            dirty_max_us: Times::default().dirty_max_us,
            asks_again_soon: false,
            partitions: PARTITIONS,
            is_cold: false,
            most_ops: f64::INFINITY,
        }
    }
}

impl Case {
    /// The scheme that is judged.
    pub(crate) fn ours(&self) -> Scheme {
        *self.schemes.last().expect("something is compared")
    }

    /// Packets a second that a switch passes at most, if it has a limit.
    pub(crate) fn switch_pps(&self) -> Option<f64> {
        (self.switch_packet_ns > 0).then(|| 1e9 / self.switch_packet_ns as f64)
    }

    /// What it is compared with.
    pub(crate) fn baselines(&self) -> &'static [Scheme] {
        &self.schemes[..self.schemes.len() - 1]
    }
}

/// What a run was measured at.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) throughput_ops: f64,
    /// The best possible with the scheme, this map and the best content of the cache; of a
    /// write-through cache the ideal.
    pub(crate) limit_ops: f64,
    /// The same with what a perfect learner had cached meanwhile; `None` if there was nothing to
    /// learn: a preloaded cache.
    pub(crate) limit_learned_ops: Option<f64>,
    /// The same with what was cached meanwhile; `None` where what is hot moves.
    pub(crate) limit_cached_ops: Option<f64>,
    /// What switches of a limited capacity allow, whatever is cached: no other limit is above it.
    pub(crate) limit_switches_ops: Option<f64>,
    /// The share that the cache answered.
    pub(crate) hit_ratio: f64,
    pub(crate) cached: usize,
    /// How busy the busiest node was.
    pub(crate) busiest: f64,
    pub(crate) failed: u64,
    /// Requests that were outstanding.
    pub(crate) outstanding: u32,
    /// Operations that were measured, and all events.
    pub(crate) operations: u64,
    pub(crate) steps: u64,
    /// Whether it was measured long enough: if not, it is no result.
    pub(crate) is_converged: bool,
}

impl Measured {
    /// The limit that the run is judged by.
    pub(crate) fn goal_ops(&self) -> f64 {
        self.limit_learned_ops.unwrap_or(self.limit_ops)
    }

    /// That of the actual content, where it has one.
    fn content_limit_ops(&self) -> f64 {
        self.limit_cached_ops.unwrap_or(self.limit_ops)
    }

    /// Whether the throughput is within the limit of the content, as far as this number of requests
    /// of the busiest node can tell: three standard errors. A rack that does more is not at rest.
    fn is_within_limit(&self, busiest_requests: f64) -> bool {
        self.throughput_ops <= self.content_limit_ops() * (1.0 + 3.0 / busiest_requests.sqrt())
    }
}

/// How long a node works for a read and for a write, in nanoseconds: the mean over all keys.
fn mean_work_ns(profile: &Profile, value_bytes: &ValueBytes) -> Work {
    let mean = |at: usize| value_bytes.mean(|bytes| profile.node_work_ns(bytes)[at] as f64);
    Work { read: mean(0), write: mean(1) }
}

/// Everything of a case that its schemes share.
pub(crate) struct Bench {
    pub(crate) case: Case,
    profile: Profile,
    seed: u64,
    /// Of the popularity at the beginning.
    placement: Placement,
    map: Map,
    hash_key: HashKey,
    /// What switches of a limited capacity allow, in operations a second.
    limit_switches_ops: Option<f64>,
}

impl Bench {
    /// Looks at a case under a seed.
    pub(crate) fn new(case: Case, profile: &Profile, seed: u64) -> Bench {
        let setup = Bench::setup_of(&case, profile, seed, Scheme::NoCache, 2);
        let keys = KeySpace::new(seed, KEY_BYTES);
        let (map, hash_key) = setup.map();
        let mean = mean_work_ns(profile, &case.value_bytes);
        // Over the mean, which `Bench::work` has.
        let work = |value_bytes| {
            let [read, write] = profile.node_work_ns(value_bytes).map(|ns| ns as f64);
            Work { read: read / mean.read, write: write / mean.write }
        };
        let spec = &setup.workload;
        let placement = Placement::of_workload_with(spec, 0, keys, &map, hash_key, work);
        let of_switches = |pps| placement.limit_of_switches(case.workload.demand(), pps);
        let limit_switches_ops = case.switch_pps().map(of_switches);
        let profile = profile.clone();
        Bench { case, profile, seed, placement, map, hash_key, limit_switches_ops }
    }

    fn setup_of(case: &Case, profile: &Profile, seed: u64, scheme: Scheme, lanes: u32) -> Setup {
        let Case { workload, theta, records, change, .. } = *case;
        let value_bytes = case.value_bytes.clone();
        let slot_bytes = value_bytes.longest().min(CACHED_VALUE_BYTES_MAX) as u32;
        Setup {
            scheme,
            servers: case.servers,
            clients: lanes.div_ceil(SESSION_LANES).max(2) as u16,
            lanes,
            workload: WorkloadSpec { workload, theta, records, value_bytes, change, seed },
            key_bytes: KEY_BYTES,
            slot_bytes,
            cache_records: case.cache_records,
            chains: case.chains,
            layers: case.layers,
            switch_packet_ns: case.switch_packet_ns,
            snapshot_us: case.snapshot_us,
            dirty_max_us: case.dirty_max_us,
            asks_again_soon: case.asks_again_soon,
            partitions: case.partitions,
            profile: profile.clone(),
            seed,
        }
    }

    /// The rack of a scheme: with as many requests under way as fill its busiest node.
    pub(crate) fn setup(&self, scheme: Scheme) -> Setup {
        let wanted = self.under_way(&self.ideal(scheme));
        let clients = wanted.div_ceil(SESSION_LANES).max(2);
        self.setup_with(scheme, wanted.next_multiple_of(clients))
    }

    /// Outstanding requests if they arrive at random and the busiest node is busy for the share
    /// [`BUSY`] of the time: those in the nodes' queues (the Pollaczek-Khinchine formula for M/G/1
    /// queues: Pollaczek 1930, Khinchine 1932), and those on links.
    fn under_way(&self, limit: &Limit) -> u32 {
        let ops = (BUSY * limit.ops(NODE_WORK)).min(self.case.most_ops);
        let variation = (1.0 + self.profile.service_spread.powi(2) / 3.0) * self.dispersion();
        let at_node = |load: &f64| {
            let busy = ops * load / NODE_WORK;
            busy + busy * busy * variation / (2.0 * (1.0 - busy))
        };
        // What the cache answers crosses each switch and two links of it, what a node answers two
        // links more.
        let demand = self.case.workload.demand();
        let at_nodes = limit.node_load.iter().sum::<f64>() / self.request_ns();
        let layers = f64::from(self.case.layers);
        let pairs = layers * (demand.reads + demand.writes) + at_nodes;
        let pair_s = (2 * self.profile.link_ns + self.profile.pipeline_ns) as f64 / 1e9;
        let under_way = limit.node_load.iter().map(at_node).sum::<f64>() + ops * pairs * pair_s;
        under_way.clamp(LANES_MIN, LANES_MAX) as u32
    }

    /// The throughput of a scheme at its limit, with the hottest keys cached.
    pub(crate) fn ideal_ops(&self, scheme: Scheme) -> f64 {
        self.ideal(scheme).ops(NODE_WORK)
    }

    /// What an operation demands of nodes, in nanoseconds of their work: [`NODE_WORK`] is what each
    /// has in a second.
    fn work(&self) -> Demand {
        let Demand { reads, writes } = self.case.workload.demand();
        let mean = mean_work_ns(&self.profile, &self.case.value_bytes);
        Demand { reads: reads * mean.read, writes: writes * mean.write }
    }

    /// How long a node works for a request, on average.
    fn request_ns(&self) -> f64 {
        let (work, demand) = (self.work(), self.case.workload.demand());
        (work.reads + work.writes) / (demand.reads + demand.writes)
    }

    /// The mean square of what a request takes over the square of the mean: 1 where all values have
    /// one length. A sum of unlike requests tells as much as one of this many times fewer like
    /// ones.
    fn dispersion(&self) -> f64 {
        let Demand { reads, writes } = self.case.workload.demand();
        let mean = |power: i32| {
            let of = |bytes: usize| {
                let [read, write] = self.profile.node_work_ns(bytes).map(|ns| ns as f64);
                (reads * read + writes * write).powi(power)
            };
            self.case.value_bytes.mean(of)
        };
        mean(2) / (mean(1) * mean(1))
    }

    /// The limit with the hottest keys cached.
    fn ideal(&self, scheme: Scheme) -> Limit {
        let records = self.case.cache_records as usize;
        self.placement.limit_of_hottest(self.work(), Policy::ideal(scheme), records)
    }

    /// The rack of a scheme, with `lanes` lanes.
    pub(crate) fn setup_with(&self, scheme: Scheme, lanes: u32) -> Setup {
        Bench::setup_of(&self.case, &self.profile, self.seed, scheme, lanes)
    }

    /// A limit in operations a second; clients don't ask for more than they do, and switches may
    /// have a limit of their own.
    fn ops(&self, limit: &Limit) -> f64 {
        let of_switches = self.limit_switches_ops.unwrap_or(f64::INFINITY);
        limit.ops(NODE_WORK).min(self.case.most_ops).min(of_switches)
    }

    /// The limit with what a perfect learner had cached during a batch, if there was one.
    fn limit_learned(&self, scheme: Scheme, batch: &Batch) -> Option<Limit> {
        let Learned { content, reads, hits } = batch.learned.as_ref()?;
        if self.placement.has_lasting_content() {
            return Some(self.limit_of(scheme, content));
        }
        let hits = *hits as f64 / (*reads as f64).max(1.0);
        Some(self.placement.limit_of_hits(self.work(), Policy::ideal(scheme), hits))
    }

    /// The limit with what was cached during a batch, if that has one.
    fn limit_cached(&self, scheme: Scheme, batch: &Batch) -> Option<Limit> {
        let is_lasting = self.placement.has_lasting_content() && self.case.change.is_none();
        is_lasting.then(|| self.limit_of(scheme, &batch.content))
    }

    /// The limit of a scheme with this content of the cache.
    fn limit_of(&self, scheme: Scheme, content: &Content) -> Limit {
        self.placement
            .limit_of_content(self.work(), Policy::ideal(scheme), |hash| content.share(hash))
    }

    /// What caches can hold of this case's records: the hottest of each chain.
    pub(crate) fn preloadable(&self) -> Vec<u64> {
        let Case { chains, cache_records, .. } = self.case;
        let spec = self.setup_with(self.case.ours(), 2).workload;
        let keys = KeySpace::new(self.seed, KEY_BYTES);
        let chain_of = |index: u64| match chains {
            1 => 0,
            _ => usize::from(self.map.of(self.hash_key.hash(&keys.key(index))).chain),
        };
        let mut room = vec![cache_records; chains.into()];
        let mut left = usize::from(chains) * cache_records as usize;
        let mut all = Vec::with_capacity(left);
        for index in spec.hottest(u64::MAX) {
            if left == 0 {
                break;
            }
            let room = &mut room[chain_of(index)];
            if *room > 0 {
                (*room, left) = (*room - 1, left - 1);
                all.push(index);
            }
        }
        all
    }

    /// A rack of this scheme, its cache filled or warmed up, its clients asking in a closed loop.
    pub(crate) fn warm(&self, scheme: Scheme, effort: &Effort) -> World {
        self.warm_up(self.setup(scheme), effort)
    }

    /// A given rack, with the hottest records cached if it has a cache. Its clients don't send
    /// requests yet.
    pub(crate) fn filled(&self, setup: Setup) -> World {
        let mut world = World::new(setup);
        if world.setup().scheme.caches() {
            world.preload(&self.preloadable());
        }
        world
    }

    /// A given rack, warm and driven in a closed loop. A cache that learned has other keys than the
    /// hottest, so the number of outstanding requests is the one that fills the busiest node with
    /// these keys; with more, queues would take seconds to reach a steady state.
    pub(crate) fn warm_up(&self, setup: Setup, effort: &Effort) -> World {
        let scheme = setup.scheme;
        if !scheme.caches() || !self.case.is_cold {
            let mut world = self.filled(setup);
            world.drive(Drive::Closed);
            return world;
        }
        let mut world = World::new(setup);
        if self.case.change.is_none() {
            world.learn_perfectly();
        }
        // A large rack executes the learning operations of a small one in a moment, so it learns
        // for at least as long as it is measured.
        learn(&mut world, effort.learning.max(self.operations(scheme, effort)));
        let content = Content::of(world.cached_hashes());
        world.drive_outstanding(self.under_way(&self.limit_of(scheme, &content)));
        world
    }

    /// Operations of a measurement, enough for the throughput of a scheme.
    fn operations(&self, scheme: Scheme, effort: &Effort) -> u64 {
        if self.ideal_ops(scheme) >= self.case.most_ops {
            return effort.operations.0; // clients limit it, not a node's queue
        }
        let share = self.ideal(scheme).node_load.iter().copied().fold(0.0, f64::max);
        ((effort.busiest_requests * self.request_ns() / share) as u64)
            .clamp(effort.operations.0, effort.operations.1)
    }

    /// Measures the throughput of a scheme in batches, until two in a row agree and are within the
    /// limit.
    pub(crate) fn throughput(&self, scheme: Scheme, effort: &Effort) -> Measured {
        let mut world = self.warm(scheme, effort);
        let operations = self.operations(scheme, effort);
        let busiest_requests = effort.busiest_requests / self.dispersion();
        self.seek_outstanding(&mut world, operations / 2 / TRY);
        world.run_operations((operations / 4).max(10 * u64::from(world.setup().lanes)), FOREVER_NS);
        let mut batches: Vec<Batch> = Vec::new();
        loop {
            batches.push(self.batch(&mut world, operations / 2));
            let Some(last) = batches.last_chunk::<2>() else { continue };
            let agree = last[0].agrees(&last[1], busiest_requests / 2.0);
            if agree || batches.len() == BATCHES_MAX {
                let measured = self.concluded(scheme, &world, Batch::joined(last));
                // The rate of the clients is no limit of the rack.
                let is_unlimited = measured.content_limit_ops() >= self.case.most_ops;
                let is_converged =
                    agree && (is_unlimited || measured.is_within_limit(busiest_requests));
                if is_converged || batches.len() == BATCHES_MAX {
                    return Measured { is_converged, ..measured };
                }
            }
        }
    }

    /// Sets the number of outstanding requests to the one with the highest throughput, of
    /// [`OUTSTANDING`] and the present number.
    fn seek_outstanding(&self, world: &mut World, operations: u64) {
        let filling = world.outstanding();
        let mut best = (0.0, filling);
        for outstanding in OUTSTANDING.into_iter().filter(|fewer| *fewer < filling).chain([filling])
        {
            world.drive_outstanding(outstanding);
            world.run_operations((operations / 4).max(4 * u64::from(filling)), FOREVER_NS);
            let counters = Counters::of(world);
            world.run_operations(operations, FOREVER_NS);
            let throughput_ops = counters.until_now(world, Contents::default()).throughput_ops();
            if throughput_ops > best.0 {
                best = (throughput_ops, outstanding);
            }
        }
        world.drive_outstanding(best.1);
    }

    /// Runs a batch of `operations` operations, and samples the content of the cache meanwhile.
    fn batch(&self, world: &mut World, operations: u64) -> Batch {
        let counters = Counters::of(world);
        let mut contents = Contents::default();
        for _ in 0..CONTENT_SAMPLES / 2 {
            world.run_operations(operations / (CONTENT_SAMPLES / 2), FOREVER_NS);
            contents.sample(world);
        }
        counters.until_now(world, contents)
    }

    /// Measures a rack from `counters` until now. The content of the cache is sampled once, at the
    /// end.
    pub(crate) fn measured(&self, scheme: Scheme, world: &World, counters: &Counters) -> Measured {
        let mut contents = Contents::default();
        contents.sample(world);
        Measured {
            is_converged: true,
            ..self.concluded(scheme, world, counters.until_now(world, contents))
        }
    }

    fn concluded(&self, scheme: Scheme, world: &World, run: Batch) -> Measured {
        Measured {
            throughput_ops: run.throughput_ops(),
            limit_ops: self.ops(&self.ideal(scheme)),
            limit_switches_ops: self.limit_switches_ops,
            limit_learned_ops: self.limit_learned(scheme, &run).map(|limit| self.ops(&limit)),
            limit_cached_ops: self.limit_cached(scheme, &run).map(|limit| self.ops(&limit)),
            hit_ratio: run.cached as f64 / (run.completed as f64).max(1.0),
            cached: world.cached_hashes().len(),
            busiest: run.busiest(),
            failed: run.failed,
            outstanding: world.outstanding(),
            operations: run.completed,
            steps: world.statistics.steps,
            is_converged: false,
        }
    }
}

/// Runs until the cache's content hardly grows any more, at most for `operations` operations.
fn learn(world: &mut World, operations: u64) {
    world.drive(Drive::Few(LEARNING_LANES / usize::from(world.setup().clients)));
    let chunk = operations / 6;
    for _ in 0..6 {
        let before = world.cached();
        world.run_operations(chunk, FOREVER_NS);
        if before > 0 && world.cached() <= before * 51 / 50 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::PerScheme;

    /// Seconds of work for the whole file: few records, few nodes.
    const TINY: Effort = Effort {
        repetitions: 1,
        busiest_requests: 3_000.0,
        operations: (10_000, 40_000),
        learning: 60_000,
        ..Effort::QUICK
    };

    fn tiny(workload: Workload) -> Case {
        Case { workload, records: 100_000, servers: 4, cache_records: 500, ..Case::default() }
    }

    fn throughput(case: Case, scheme: Scheme, seed: u64) -> Measured {
        Bench::new(case, &Profile::PAPER, seed).throughput(scheme, &TINY)
    }

    #[test]
    fn the_same_seed_is_the_same_run_and_another_one_is_not() {
        for is_cold in [false, true] {
            let case = Case { is_cold, ..tiny(Workload::A) };
            let run = throughput(case.clone(), Scheme::FarReach, 7);
            assert_eq!(throughput(case.clone(), Scheme::FarReach, 7), run);
            assert_ne!(throughput(case, Scheme::FarReach, 8), run);
        }
    }

    #[test]
    fn no_throughput_is_above_its_limit_and_write_back_reaches_it() {
        for workload in
            [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::F]
        {
            for scheme in Scheme::OF_ONE_LAYER {
                let run = throughput(tiny(workload), scheme, 3);
                let of_limit = run.throughput_ops / run.limit_ops;
                assert_eq!(run.failed, 0, "{workload} {scheme}");
                // The busiest node serves 3,000 requests: its share of a sample is off by a few
                // times 2 %.
                assert!(of_limit < 1.08, "{workload} {scheme}: {of_limit}");
                if workload.is_static() && !scheme.invalidates() {
                    assert!(of_limit > 0.92, "{workload} {scheme}: {of_limit}");
                }
            }
        }
    }

    #[test]
    fn the_schemes_differ_as_they_must() {
        let run = |workload, scheme| throughput(tiny(workload), scheme, 5);
        let all = |workload| PerScheme::from_fn(|scheme| run(workload, scheme).throughput_ops);
        let (writes, reads) = (all(Workload::Mix(100.0)), all(Workload::C));
        let none = Scheme::NoCache;
        for scheme in Scheme::OF_ONE_LAYER.into_iter().filter(|scheme| scheme.caches()) {
            let gain = writes[scheme] / writes[none];
            match (scheme.absorbs_writes(), scheme.refreshes()) {
                (true, _) => assert!(gain > 1.5, "{scheme} takes writes off nodes: {gain}"),
                (_, true) => assert!(gain < 1.0, "nodes also update the cache of {scheme}: {gain}"),
                (false, false) => {
                    assert!((gain - 1.0).abs() < 0.02, "{scheme} leaves writes to nodes: {gain}")
                }
            }
            let (gain, same) =
                (reads[scheme] / reads[none], reads[scheme] / reads[Scheme::FarReach]);
            assert!(
                gain > 1.5 && (same - 1.0).abs() < 0.02,
                "reads are the same to all: {scheme} {gain} {same}"
            );
        }
    }

    #[test]
    fn each_scheme_is_measured_with_its_best_number_of_outstanding_requests() {
        let bench = Bench::new(tiny(Workload::B), &Profile::PAPER, 5);
        let best = bench.throughput(Scheme::NetCache, &TINY);
        let mut world = bench.warm(Scheme::NetCache, &TINY);
        let filling = world.outstanding();
        assert!(best.outstanding < filling, "{} of {filling}", best.outstanding);
        world.run_operations(10_000, FOREVER_NS);
        let counters = Counters::of(&world);
        world.run_operations(40_000, FOREVER_NS);
        let filled_ops = bench.measured(Scheme::NetCache, &world, &counters).throughput_ops;
        assert!(best.throughput_ops > 1.05 * filled_ops, "{} {filled_ops}", best.throughput_ops);
        // No cached record of write-back waits for a node: it is best with all nodes busy.
        let write_back = bench.throughput(Scheme::FarReach, &TINY);
        assert!(write_back.outstanding > best.outstanding, "{write_back:?} {best:?}");
    }

    #[test]
    fn values_of_many_lengths_reach_a_limit_that_knows_which_of_them_fit_and_what_they_cost() {
        let case = |value_bytes: &str, is_cold| {
            let value_bytes = value_bytes.parse().unwrap();
            Case { value_bytes, is_cold, ..tiny(Workload::A) }
        };
        let short = throughput(case("64", false), Scheme::NoCache, 3);
        for scheme in [Scheme::NoCache, Scheme::FarReach] {
            let run = throughput(case("64:3,1168:1,65536:1", false), scheme, 3);
            let of_limit = run.throughput_ops / run.limit_ops;
            assert!((0.85..1.1).contains(&of_limit) && run.failed == 0, "{scheme}: {run:?}");
            let bench = Bench::new(case("65536", false), &Profile::PAPER, 3);
            let nodes = |value_bytes| Profile::PAPER.node_work_ns(value_bytes).iter().sum::<u64>();
            let times = bench.ideal_ops(scheme) * nodes(65_536) as f64
                / (short.limit_ops * nodes(64) as f64);
            assert!((times - 1.0).abs() < 0.05, "{scheme}: {times}");
            assert!(bench.preloadable().is_empty(), "no slot takes them");
        }
        // A slot's share of the keys, the hottest of them, and no others are learned.
        let run = throughput(case("64:1,4096:1", true), Scheme::FarReach, 9);
        let learned_ops = run.limit_learned_ops.unwrap();
        assert!(run.cached > 300 && learned_ops < run.limit_ops, "{run:?}");
        assert!(run.throughput_ops < 1.05 * learned_ops, "{run:?}");
        let bench = Bench::new(case("64:1,4096:1", false), &Profile::PAPER, 9);
        let lengths = bench.setup(Scheme::FarReach).workload.lengths();
        let preloadable = bench.preloadable();
        assert!(preloadable.len() == 500 && preloadable.iter().all(|&i| lengths.is_cacheable(i)));
    }

    #[test]
    fn copies_in_two_layers_serve_reads_and_cost_writes_their_messages() {
        let case = |workload| {
            let schemes = &Scheme::OF_LAYERS;
            Case { chains: 2, layers: 2, schemes, ..tiny(workload) }
        };
        let run = |workload, scheme| throughput(case(workload), scheme, 3);
        let reads = run(Workload::C, Scheme::DistCache);
        let of_limit = reads.throughput_ops / reads.limit_ops;
        assert!((0.95..1.02).contains(&of_limit) && reads.failed == 0, "{reads:?}");
        // Messages would take 0.22 of a node's time if each write had four of its own. Writes that
        // wait for each other share them.
        let writes = run(Workload::Mix(100.0), Scheme::DistCache);
        let of_limit = writes.throughput_ops / writes.limit_ops;
        assert!((0.7..0.99).contains(&of_limit) && writes.failed == 0, "{writes:?}");
    }

    #[test]
    fn switches_of_a_limited_capacity_are_the_limit_of_all_schemes() {
        let schemes = &[Scheme::NoCache, Scheme::DistReach];
        let case = Case { switch_packet_ns: 10_000, schemes, ..tiny(Workload::A) };
        let case = Case { chains: 2, layers: 2, ..case };
        for &scheme in schemes {
            let run = throughput(case.clone(), scheme, 3);
            let of_limit = run.throughput_ops / run.limit_ops;
            // 0.1 Mpps, each packet twice: for one chain half of it, for two that are even all.
            assert!((50_000.0..100_000.0).contains(&run.limit_ops), "{scheme}: {run:?}");
            let is_within = (0.97..1.01).contains(&of_limit);
            assert!(is_within && run.is_converged && run.failed == 0, "{scheme}: {run:?}");
        }
        // Above what the nodes do, they are the limit.
        let fast = Case { switch_packet_ns: 10, ..case.clone() };
        let none = Case { switch_packet_ns: 0, ..case };
        let [fast, none] = [fast, none].map(|case| throughput(case, Scheme::DistReach, 3));
        assert!(
            (fast.throughput_ops / none.throughput_ops - 1.0).abs() < 0.02,
            "{fast:?} {none:?}"
        );
        assert!(
            fast.limit_switches_ops > Some(fast.limit_ops) && none.limit_switches_ops.is_none()
        );
    }

    #[test]
    fn a_cold_cache_learns_what_is_hot_and_fills() {
        let case = Case { is_cold: true, ..tiny(Workload::A) };
        let (cold, none) =
            (throughput(case.clone(), Scheme::FarReach, 9), throughput(case, Scheme::NoCache, 9));
        assert!(
            cold.cached > 450 && cold.throughput_ops > 1.2 * none.throughput_ops,
            "{cold:?} {none:?}"
        );
    }

    #[test]
    fn a_perfect_learner_is_above_what_was_learned_and_below_the_best_content() {
        for workload in [Workload::A, Workload::D] {
            let case = Case { is_cold: true, ..tiny(workload) };
            let none_ops = Bench::new(case.clone(), &Profile::PAPER, 9).ideal_ops(Scheme::NoCache);
            let run = throughput(case, Scheme::FarReach, 9);
            let learned_ops = run.limit_learned_ops.unwrap();
            // In D what is hot moves, so that counts of all requests say less and less of it.
            let least_ops = if workload.is_static() { 0.5 * run.limit_ops } else { none_ops };
            assert!(learned_ops < run.limit_ops && learned_ops > least_ops, "{workload}: {run:?}");
            assert!(
                run.goal_ops() == learned_ops && run.throughput_ops < 1.05 * learned_ops,
                "{workload}: {run:?}"
            );
            let cached_ops = run.limit_cached_ops;
            assert!(
                cached_ops.is_none_or(|cached_ops| cached_ops < 1.02 * learned_ops),
                "{workload}: {run:?}"
            );
            assert_eq!(cached_ops.is_some(), workload == Workload::A);
        }
        let preloaded = throughput(tiny(Workload::A), Scheme::FarReach, 9);
        assert!(
            preloaded.limit_learned_ops.is_none() && preloaded.goal_ops() == preloaded.limit_ops
        );
        let of_best = preloaded.limit_cached_ops.unwrap() / preloaded.limit_ops;
        // An exchange may bring a colder key of the busiest node, which takes more off that node.
        assert!(
            (0.98..1.005).contains(&of_best),
            "what was preloaded is the best content, but for exchanges: {of_best}"
        );
    }

    #[test]
    fn a_cold_cache_takes_little_throughput_where_nothing_is_hot() {
        let case = Case { is_cold: true, theta: 0.0, records: RECORDS, ..tiny(Workload::A) };
        let (cold, none) =
            (throughput(case.clone(), Scheme::FarReach, 9), throughput(case, Scheme::NoCache, 9));
        assert!(cold.throughput_ops > 0.96 * none.throughput_ops, "{cold:?} {none:?}");
    }

    #[test]
    fn a_throughput_above_its_limit_is_no_result() {
        let run = |throughput_ops, limit_cached_ops| Measured {
            throughput_ops,
            limit_ops: 2e6,
            limit_cached_ops,
            ..Measured::default()
        };
        assert!(
            run(1.02e6, Some(1e6)).is_within_limit(10_000.0),
            "three standard errors of 10,000 requests are 3 %"
        );
        assert!(!run(1.04e6, Some(1e6)).is_within_limit(10_000.0));
        assert!(
            run(1.04e6, None).is_within_limit(10_000.0),
            "without a content's limit the best content's counts"
        );
    }

    #[test]
    fn a_rack_recovers_from_the_death_of_its_switch_and_goes_on() {
        let bench = Bench::new(tiny(Workload::Mix(100.0)), &Profile::SOFTWARE, 11);
        let mut world = bench.warm(Scheme::FarReach, &TINY);
        world.run_operations(5_000, 10_000_000_000);
        let epoch = world.status().epoch;
        world.kill_switch(0);
        world.run_for(3_000_000_000);
        let status = world.status();
        let times = status.recovery.expect("there was a recovery");
        assert!(
            times.epoch > epoch && times.records > 0 && times.missing == 0 && times.readmit_us > 0,
            "{times:?}"
        );
        // A few are being exchanged for hotter ones at any moment.
        assert!(world.entries() > 450, "what was cached is cached again: {}", world.entries());
        world.measure();
        assert!(world.run_operations(5_000, 10_000_000_000), "clients go on");
        assert_eq!(world.meter.failed, 0);
    }

    #[test]
    fn an_open_loop_has_the_rate_it_is_given() {
        let bench = Bench::new(tiny(Workload::A), &Profile::PAPER, 13);
        let mut world = bench.warm_up(bench.setup_with(Scheme::FarReach, 256), &TINY);
        world.drive(Drive::Script);
        world.finish_all();
        world.drive(Drive::Open(50_000.0));
        world.measure_latencies();
        world.run_for(400_000_000);
        let completed = world.meter.completed as f64;
        assert!((completed / 20_000.0 - 1.0).abs() < 0.05, "{completed} of 20,000");
        let (mean_us, median_us, p99_us) = world.meter.latency_us().unwrap();
        // Two links and the pipeline, for a hit; a node's service more for a miss.
        assert!(
            median_us > 10.0 && mean_us < 200.0 && p99_us >= median_us,
            "{mean_us} {median_us} {p99_us}"
        );
    }
}
