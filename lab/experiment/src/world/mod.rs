//! A rack in virtual time: the production datapath and state machines, with service times, delays
//! and capacities around them.
//!
//! Unlike the simulator's world this one has no faults but a crash of the switch, counts in
//! nanoseconds, and is built to be fast: it measures a rack's throughput, and doesn't check its
//! answers. [`World::step`] executes one event; [`Setup::seed`] determines all of them.

mod classes;
mod client;
mod controller;
mod meter;
mod node;
mod switch;

use crate::profile::Profile;
use crate::storage::ModelledStore;
use crate::timeline::{Link, Next, Timeline};
use client::ClientSlot;
use controller::{ControlPlane, ControllerSlot};
use node::NodeSlot;
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;
use switch::SwitchSlot;
use switchback_assembly::{Cache, Limits, Part, Parts, Rack, Times};
use switchback_bench::learner::Learner;
use switchback_bench::workload::{KeySpace, Lengths, Verb, WorkloadSpec};
use switchback_core::Now;
use switchback_core::client::FRAGMENTS_AT_ONCE;
use switchback_core::controller::{
    Controller, ControllerConfig, ControllerStatus, Files, OnLoss, Preserve,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::switch::LearningConfig;
use switchback_datapath::Features;
use switchback_wire::{HashKey, KeyHash, Map, Packet, Scheme};

pub(crate) use classes::Classes;
pub(crate) use client::Drive;
pub(crate) use meter::Meter;

/// The date at which every run begins, in milliseconds since the Unix epoch.
const START_UNIX_MS: u64 = 1_800_000_000_000;
/// Counters in a row of the sketch: the paper's, and the product's.
const SKETCH_WIDTH: u32 = 1 << 16;
/// Partitions of a large rack.
pub(crate) const PARTITIONS: u32 = 4096;

/// A rack and its workload.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) scheme: Scheme,
    pub(crate) servers: u16,
    pub(crate) clients: u16,
    /// Of all clients together.
    pub(crate) lanes: u32,
    pub(crate) workload: WorkloadSpec,
    pub(crate) key_bytes: usize,
    /// Longest value that the cache takes.
    pub(crate) slot_bytes: u32,
    /// Of each chain.
    pub(crate) cache_records: u32,
    /// Chains of switches, and switches of a chain.
    pub(crate) chains: u16,
    pub(crate) layers: u8,
    /// Time between two packets that a switch takes; 0: it has no limit.
    pub(crate) switch_packet_ns: u64,
    /// Time between two snapshots; 0: none.
    pub(crate) snapshot_us: u64,
    /// How long a record may be in switches alone; `None`: as long as it is cached.
    pub(crate) dirty_max_us: Option<u64>,
    /// Clients send a request again as soon as the product's do; else only after any queue.
    pub(crate) asks_again_soon: bool,
    pub(crate) partitions: u32,
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
}

impl Setup {
    /// What the rack's parts are made with.
    pub(crate) fn rack(&self) -> Rack {
        Rack {
            scheme: self.scheme,
            nodes: self.servers,
            replicas: 1,
            chains: self.chains,
            layers: self.layers,
            // At least one for each server.
            partitions: self.partitions.max(u32::from(self.servers).next_power_of_two()),
            lanes: self.lanes,
            session_lanes: self.lanes / u32::from(self.clients),
            cache: self.cache(),
            times: self.times(),
            limits: self.limits(),
            preserve: Preserve::Auto,
            on_loss: OnLoss::Declare,
            mechanisms: Mechanisms::ALL,
            left_out: Features::NONE,
        }
    }

    fn cache(&self) -> Cache {
        Cache {
            records: self.cache_records,
            // More than records: entries under eviction keep their slots until their node has
            // stored them.
            classes: vec![(self.slot_bytes, self.cache_records.max(1) * 5 / 4 + 16)],
            eviction_sample: ControllerConfig::default().eviction_sample as u32,
            sketch_width: SKETCH_WIDTH,
            learning: LearningConfig { sketch_width: SKETCH_WIDTH, ..LearningConfig::default() },
            reports: Cache::reports_for(self.cache_records),
        }
    }

    /// The rack's many clients are few sessions here: none of their large values waits for others.
    fn limits(&self) -> Limits {
        let (ours, lanes) = (Limits::default(), self.lanes / u32::from(self.clients));
        let fragments = lanes.saturating_mul(FRAGMENTS_AT_ONCE.into()).min(u16::MAX.into()) as u16;
        let large_bytes = lanes as usize * self.workload.value_bytes.longest();
        Limits {
            fragments_max: ours.fragments_max.max(fragments),
            large_bytes_max: ours.large_bytes_max.max(large_bytes),
            ..ours
        }
    }

    /// When clients send a request again. No packet is lost but in a crash of a switch, so it is
    /// only when it must have been, whatever the queue it waits in, or else as soon as the
    /// product's clients do.
    fn client_retry_us(&self) -> (u64, u64) {
        let (first_us, longest_us) = Times::default().client_retry_us;
        let longest_ns = self.profile.node_work_ns(self.workload.value_bytes.longest())[1];
        let longest_queue_us = match self.asks_again_soon {
            true => 0,
            false => u64::from(self.lanes) * longest_ns * 2 / 1000,
        };
        (longest_queue_us.max(first_us), longest_queue_us.max(longest_us))
    }

    fn times(&self) -> Times {
        let client_retry_us = self.client_retry_us();
        Times {
            client_retry_us,
            deadline_us: (10 * client_retry_us.1).max(5_000_000),
            snapshot_us: (self.snapshot_us != 0).then_some(self.snapshot_us),
            dirty_max_us: self.dirty_max_us,
            ..Times::default()
        }
    }

    /// Its parts.
    #[inline]
    fn parts(&self) -> Parts {
        let switches = self.chains * u16::from(self.layers);
        Parts { clients: self.clients, switches, nodes: self.servers }
    }

    /// A controller of this rack, just made.
    fn controller(&self) -> Controller {
        let rack = self.rack();
        let nodes = (0..self.servers).map(|node| Part::Node(node).address()).collect();
        let controller =
            rack.controller(nodes, rack.deal(self.seed), &Files::default(), self.seed, at(0));
        controller.expect("a new rack has no damaged files")
    }

    /// Partitions and their replicas, and the rack's hash key: drawn by the controller, from the
    /// seed.
    pub(crate) fn map(&self) -> (Map, HashKey) {
        let controller = self.controller();
        (controller.map().clone(), controller.hash_key())
    }
}

/// Events other than the arrival of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A node's engine is done.
    Served(u16),
    /// A capped node may have something to begin.
    LooksAgain(u16),
    /// A part's timer.
    Wake(Part),
    /// A control message arrives: its place among those under way.
    Message(u32),
    /// The agent of this switch and boot is done with a command.
    Agent(u16, u64),
    /// The agent of this switch and boot looks for reports.
    Poll(u16, u64),
    /// The controller's oldest file is on its disk.
    Stored,
    /// An operation of an open loop begins.
    Operation,
    /// A switch starts.
    SwitchStarts(u16),
}

/// Counters of a run.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub(crate) requests: u64,
    pub(crate) steps: u64,
    pub(crate) dropped: u64,
    pub(crate) refused: u64,
}

/// A rack.
pub(crate) struct World {
    setup: Setup,
    rack: Rack,
    now_ns: u64,
    timeline: Timeline,
    random: Pcg64Mcg,
    controller: ControllerSlot,
    control: ControlPlane,
    switches: Vec<SwitchSlot>,
    nodes: Vec<NodeSlot>,
    clients: Vec<ClientSlot>,
    /// When each part's timer rings next.
    armed_ns: Vec<u64>,
    drive: Drive,
    arrivals: u64,
    keys: KeySpace,
    key: Vec<u8>,
    /// As long as the longest value.
    value: Vec<u8>,
    lengths: Lengths,
    /// A perfect learner for each chain, if any.
    learners: Vec<Learner>,
    pub(crate) meter: Meter,
    /// How it tells operations apart.
    classes: Classes,
    /// Clients neither hear nor do anything.
    are_clients_paused: bool,
    pub(crate) statistics: Statistics,
}

impl World {
    /// A rack that serves, with its sessions open and nothing cached.
    pub(crate) fn new(setup: Setup) -> World {
        assert!(setup.lanes > 0 && setup.lanes.is_multiple_of(setup.clients.into()));
        let (now, rack) = (at(0), setup.rack());
        let client = |index: u16| {
            let session =
                rack.session(false, u64::from(index) + 1, setup.seed ^ u64::from(index), now);
            let requests = setup.workload.requests(index.into(), setup.clients.into());
            ClientSlot::new(session, requests, rack.session_lanes)
        };
        let keys = KeySpace::new(setup.workload.seed, setup.key_bytes);
        let lengths = setup.workload.lengths();
        let store = || ModelledStore::new(lengths.clone(), keys, setup.workload.preloaded());
        let mut world = World {
            now_ns: 0,
            timeline: Timeline::default(),
            random: Pcg64Mcg::seed_from_u64(setup.seed ^ 0x7669_7274),
            controller: ControllerSlot::new(setup.controller()),
            control: ControlPlane::default(),
            switches: (0..setup.parts().switches).map(|_| SwitchSlot::default()).collect(),
            nodes: (0..setup.servers)
                .map(|node| NodeSlot::new(&rack, node, store(), now))
                .collect(),
            clients: (0..setup.clients).map(client).collect(),
            armed_ns: vec![u64::MAX; setup.parts().count()],
            drive: Drive::Script,
            arrivals: 0,
            keys,
            key: Vec::new(),
            value: vec![b'v'; lengths.longest()],
            lengths,
            learners: Vec::new(),
            meter: Meter::new(0),
            classes: Classes::default(),
            are_clients_paused: false,
            statistics: Statistics::default(),
            rack,
            setup,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.pump_controller();
        (0..self.setup.parts().switches).for_each(|switch| self.start_switch(switch));
        (0..self.setup.servers).for_each(|node| self.wake_node(node));
        (0..self.setup.clients).for_each(|client| self.wake_client(client));
        let ready = |world: &World| {
            let open = |client: &ClientSlot| client.session.is_open(world.now());
            world.controller.controller.is_ready_for_clients() && world.clients.iter().all(open)
        };
        assert!(
            self.run_while(60_000_000_000, |world| !ready(world)),
            "the rack serves within a minute"
        );
    }

    /// What every part's clocks say: there is one time.
    #[inline]
    fn now(&self) -> Now {
        at(self.now_ns)
    }

    /// How long a packet is on its way from one part to the next.
    #[inline]
    fn link_ns(&self, packet: &Packet) -> u64 {
        let Profile { link_ns, link_byte_ns, .. } = self.setup.profile;
        match packet.value_and_key().0.len() {
            0 => link_ns,
            value_bytes => Profile::of_bytes(link_ns, link_byte_ns, value_bytes),
        }
    }

    /// The virtual time.
    pub(crate) fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Arms a part's timer for this time of its clock, if there is one.
    #[inline]
    fn arm(&mut self, part: Part, due_us: Option<u64>) {
        if let Some(due_us) = due_us {
            self.arm_at(part, due_us.saturating_mul(1000));
        }
    }

    #[inline]
    fn arm_at(&mut self, part: Part, at_ns: u64) {
        // Later than now, so that a part whose timer is always due can't stop the virtual time.
        let at_ns = at_ns.max(self.now_ns + 1000);
        let armed_ns = &mut self.armed_ns[usize::from(self.setup.parts().number(part))];
        if at_ns < *armed_ns {
            *armed_ns = at_ns;
            self.timeline.push(at_ns, Event::Wake(part));
        }
    }

    fn wake(&mut self, part: Part) {
        let armed_ns = &mut self.armed_ns[usize::from(self.setup.parts().number(part))];
        if *armed_ns != self.now_ns {
            return; // it was set to another time since
        }
        *armed_ns = u64::MAX;
        match part {
            Part::Controller => self.wake_controller(),
            Part::Switch(switch) => self.wake_switch(switch),
            Part::Node(node) => self.wake_node(node),
            Part::Client(client) => self.wake_client(client),
        }
    }

    /// Takes the next thing that happens.
    #[inline]
    fn step(&mut self) {
        let Some((at_ns, next)) = self.timeline.pop() else {
            unreachable!("heartbeats never end");
        };
        debug_assert!(at_ns >= self.now_ns);
        self.now_ns = at_ns;
        self.statistics.steps += 1;
        match next {
            Next::Arrival(Link::Switch, flight) => self.switch_receives(flight),
            Next::Arrival(Link::Node, flight) => self.node_receives(flight),
            Next::Arrival(Link::Client, flight) => self.client_receives(flight),
            Next::Event(Event::Served(node)) => self.served(node),
            Next::Event(Event::LooksAgain(node)) => self.look_again(node),
            Next::Event(Event::Wake(part)) => self.wake(part),
            Next::Event(Event::Message(place)) => self.message_arrives(place),
            Next::Event(Event::Agent(switch, boot)) => self.agent_done(switch, boot),
            Next::Event(Event::Poll(switch, boot)) => self.poll_reports(switch, boot),
            Next::Event(Event::Stored) => self.stored(),
            Next::Event(Event::Operation) => self.operation_arrives(),
            Next::Event(Event::SwitchStarts(switch)) => self.start_switch(switch),
        }
    }

    /// Runs while a condition holds, at most until a time from now has passed; whether the
    /// condition ended.
    pub(crate) fn run_while(
        &mut self,
        at_most_ns: u64,
        condition: impl Fn(&World) -> bool,
    ) -> bool {
        let end_ns = self.now_ns + at_most_ns;
        while condition(self) {
            if self.timeline.next_ns().is_none_or(|next_ns| next_ns > end_ns) {
                self.now_ns = end_ns;
                return false;
            }
            self.step();
        }
        true
    }

    /// Runs for a time.
    pub(crate) fn run_for(&mut self, ns: u64) {
        self.run_while(ns, |_| true);
    }

    /// Runs until `count` more operations have ended, for `at_most_ns` at most.
    pub(crate) fn run_operations(&mut self, count: u64, at_most_ns: u64) -> bool {
        let end = self.meter.completed + self.meter.failed + count;
        self.run_while(at_most_ns, |world| world.meter.completed + world.meter.failed < end)
    }

    /// Makes clients ask from now on.
    pub(crate) fn drive(&mut self, drive: Drive) {
        let was_open = matches!(self.drive, Drive::Open(_));
        self.drive = drive;
        if matches!(drive, Drive::Open(_)) && !was_open {
            self.timeline.push(self.now_ns, Event::Operation);
        }
        (0..self.setup.clients).for_each(|client| self.wake_threads(client));
    }

    /// Makes clients ask in a closed loop with this number of requests outstanding; a client has at
    /// least one.
    pub(crate) fn drive_outstanding(&mut self, outstanding: u32) {
        let (lanes, clients) = (self.setup.lanes, u32::from(self.setup.clients));
        let few = Drive::Few(outstanding.div_ceil(clients) as usize);
        self.drive(if outstanding < lanes { few } else { Drive::Closed });
    }

    /// How many requests are outstanding in a closed loop.
    pub(crate) fn outstanding(&self) -> u32 {
        match self.drive {
            Drive::Few(threads) => threads as u32 * u32::from(self.setup.clients),
            _ => self.setup.lanes,
        }
    }

    /// Makes the clients read these records, and waits for it.
    pub(crate) fn read_all(&mut self, indexes: &[u64]) {
        self.all(Verb::Read, indexes);
    }

    /// The same for writes.
    pub(crate) fn write_all(&mut self, indexes: &[u64]) {
        self.all(Verb::Update, indexes);
    }

    fn all(&mut self, verb: Verb, indexes: &[u64]) {
        let clients = self.clients.len();
        for (at, index) in indexes.iter().enumerate() {
            self.clients[at % clients].script.push_back((verb, *index));
        }
        (0..self.setup.clients).for_each(|client| self.wake_threads(client));
        self.finish_all();
    }

    /// Lets every operation end that was begun.
    pub(crate) fn finish_all(&mut self) {
        let is_done = |world: &World| {
            world.clients.iter().all(|client| client.is_idle() && client.script.is_empty())
        };
        assert!(self.run_while(3_600_000_000_000, |world| !is_done(world)), "requests end");
    }

    /// Admits the hottest records, and waits until they are cached and filled; how many are.
    pub(crate) fn preload(&mut self, indexes: &[u64]) -> usize {
        let keys = indexes.iter().map(|index| self.keys.key(*index)).collect();
        let now = self.now();
        self.controller.controller.preload(now, keys);
        self.pump_controller();
        let mut before = usize::MAX;
        while before != self.entries() && self.entries() < indexes.len() {
            before = self.entries();
            self.run_while(1_000_000_000, |world| world.entries() < indexes.len());
        }
        // The first read of a record makes it latest.
        self.read_all(indexes);
        self.entries()
    }

    /// Sets the popularity to the one after `phase` changes.
    pub(crate) fn set_phase(&mut self, phase: u32) {
        self.clients.iter_mut().for_each(|client| client.set_phase(phase));
    }

    /// A switch dies with everything in it.
    pub(crate) fn lose_switch(&mut self, switch: u16) {
        self.crash_switch(switch);
        self.switch_is_lost(switch);
    }

    /// A switch dies with everything in it; another one starts in its place.
    pub(crate) fn kill_switch(&mut self, switch: u16) {
        self.lose_switch(switch);
        self.return_switch(switch);
    }

    /// Another switch starts in the place of one that died.
    pub(crate) fn return_switch(&mut self, switch: u16) {
        let starts_ns = self.now_ns + self.setup.profile.switch_restart_ns;
        self.timeline.push(starts_ns, Event::SwitchStarts(switch));
    }

    /// An operator takes a switch out of service: its chain goes on with the others.
    pub(crate) fn drain_switch(&mut self, switch: u16) {
        let now = self.now();
        let drained = self.controller.controller.drain_switch(now, switch, None);
        drained.expect("its chain has another switch");
        self.pump_controller();
    }

    /// From now on clients neither hear nor do anything.
    pub(crate) fn pause_clients(&mut self) {
        self.are_clients_paused = true;
    }

    /// The setup.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Keys that are cached.
    pub(crate) fn cached(&self) -> usize {
        self.controller.controller.cached()
    }

    /// Lets perfect learners count every request from now on.
    pub(crate) fn learn_perfectly(&mut self) {
        let room = self.setup.cache_records as usize;
        let learner = |_| Learner::new(room, self.lengths.clone());
        self.learners = (0..self.setup.chains).map(learner).collect();
    }

    /// Keys that the perfect learners have cached, if there are any.
    pub(crate) fn learned_hashes(&self) -> Option<Vec<KeyHash>> {
        let hash_key = self.controller.controller.hash_key();
        let content = self.learners.iter().flat_map(Learner::content);
        let hashes = || content.map(|index| hash_key.hash(&self.keys.key(*index))).collect();
        (!self.learners.is_empty()).then(hashes)
    }

    /// Reads that the perfect learners saw, and those that found their record in their content.
    pub(crate) fn learned_reads(&self) -> (u64, u64) {
        let both = self.learners.iter().map(Learner::reads_and_hits);
        both.fold((0, 0), |(reads, hits), of| (reads + of.0, hits + of.1))
    }

    /// The perfect learner of the chain that serves this key, if there is one.
    #[inline]
    fn learner_of(&mut self, key: &[u8]) -> Option<&mut Learner> {
        let chain = match self.learners.len() {
            0 | 1 => 0,
            _ => {
                let controller = &self.controller.controller;
                controller.map().of(controller.hash_key().hash(key)).chain
            }
        };
        self.learners.get_mut(usize::from(chain))
    }

    /// What the controller tells.
    pub(crate) fn status(&self) -> ControllerStatus {
        self.controller.controller.status(self.now())
    }

    /// Bytes on the control plane so far.
    pub(crate) fn control_bytes(&self) -> u64 {
        self.control.bytes
    }

    /// How long each node was busy, so far.
    pub(crate) fn busy_ns(&self) -> Vec<u64> {
        self.nodes.iter().map(|node| node.busy_ns).collect()
    }

    /// Begins to measure.
    pub(crate) fn measure(&mut self) {
        self.meter = Meter::new(self.now_ns);
    }

    /// Begins to measure, latencies as well.
    pub(crate) fn measure_latencies(&mut self) {
        self.meter = Meter::new(self.now_ns).with_latencies();
    }

    /// Begins to measure, latencies and buckets of time as well, each class by itself.
    pub(crate) fn measure_classes(&mut self, classes: Classes, bucket_ns: u64) {
        let meter = Meter::new(self.now_ns).with_latencies().with_buckets(bucket_ns);
        self.meter = meter.with_classes(classes.count());
        self.classes = classes;
    }

    /// Begins to measure, by buckets of time as well.
    pub(crate) fn measure_series(&mut self, bucket_ns: u64) {
        self.meter = Meter::new(self.now_ns).with_buckets(bucket_ns);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        crate::effort::simulated(self.statistics.requests);
    }
}

fn at(ns: u64) -> Now {
    Now { monotonic_us: ns / 1000, unix_ms: START_UNIX_MS + ns / 1_000_000 }
}
