//! The world: all parts of a rack, their networks, disks and clocks, in one event loop.
//!
//! Nothing in here happens but in [`World::step`], which takes the next event. Parts are the
//! production code; each has a file of its own below, which does what that part's driver does in
//! production.

mod backup;
mod channel;
mod client;
mod controller;
mod data;
mod ending;
mod inspect;
mod links;
mod nemesis;
mod node;
mod script;
mod switch;

use crate::check::Violation;
use crate::check::witness::Witness;
use crate::clock::Clock;
use crate::control::ControlPlane;
use crate::event::Event;
use crate::history::History;
use crate::network::Network;
use crate::parts::parts_of;
use crate::plan::Plan;
use crate::random::Random;
use crate::trace::{Trace, Wanted};
use crate::workload::Workload;
use backup::BackupSlot;
use client::ClientSlot;
use controller::ControllerSlot;
use data::{Flight, Flights};
use ending::{Ending, Phase};
use links::NodeLinks;
use nemesis::Nemesis;
use node::NodeSlot;
use script::Rules;
pub use script::{Act, Script};
use std::collections::BTreeSet;
use switch::SwitchSlot;
use switchback_assembly::{Part, Parts, Rack};
use switchback_core::Now;
use switchback_core::controller::deal_to_chains;
use switchback_events::EventQueue;
use switchback_wire::Map;

/// Counters of a run, beside those of the parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct WorldStatistics {
    pub events: u64,
    pub completed: u64,
    pub cached: u64,
    pub indeterminate: u64,
    pub timed_out: u64,
    pub scans: u64,
    pub recoveries: u64,
    pub losses: u64,
    pub backups: u64,
    pub snapshots: u64,
    pub snapshots_compared: u64,
    pub releases_checked: u64,
    pub drained: u64,
    /// Hardly anything was answered, since something was broken all the time.
    pub idle: u64,
}

/// A rack and everything around it.
pub struct World {
    plan: Plan,
    rack: Rack,
    map: Map,
    /// As the rack was made.
    first_map: Map,
    /// Partitions and their last replicas, of those that have joined and aren't members yet.
    opening: BTreeSet<(u16, u16)>,
    /// Nodes that have lost their disks, and that the controller counts on still.
    emptied: BTreeSet<u16>,
    /// Which key's replicas are compared next.
    compared: u32,
    /// The number of each part.
    numbers: Parts,
    now_us: u64,
    queue: EventQueue<Event>,
    random: Random,
    network: Network,
    control: ControlPlane,
    links: NodeLinks,
    flights: Flights,
    workload: Workload,
    controller: ControllerSlot,
    backup: BackupSlot,
    clients: Vec<ClientSlot>,
    switches: Vec<SwitchSlot>,
    nodes: Vec<NodeSlot>,
    nemesis: Nemesis,
    phase: Phase,
    ending_state: Ending,
    clocks: Vec<Clock>,
    /// When each part's timer rings next.
    armed_us: Vec<u64>,
    /// The last time of each part's clock that was asked for, and when that is.
    asked: Vec<(u64, u64)>,
    paused_until_us: Vec<u64>,
    value: Vec<u8>,
    /// What was asked and answered.
    pub history: History,
    /// Who checks it.
    pub witness: Witness,
    /// Everything that happened.
    pub trace: Trace,
    /// Counters.
    pub statistics: WorldStatistics,
    violation: Option<Violation>,
    /// A script says what happens, until it ends.
    rules: Option<Rules>,
}

impl World {
    /// The world of a plan, at virtual time 0.
    pub fn new(plan: Plan, wanted: Wanted) -> World {
        let numbers = parts_of(plan.scheme);
        let mut random = Random::new(plan.seed ^ 0x005e_ed0f_7031);
        let clocks = (0..numbers.count()).map(|_| draw_clock(&plan, &mut random)).collect();
        let workload = Workload::new(&plan.load, random.fork());
        let skew_ms = 2 * plan.clocks.skew_ms as u64 + 2;
        let rack = plan.rack();
        let nodes = u32::from(rack.nodes);
        let replicas = u32::from(plan.topology.replicas);
        let heads = (0..rack.partitions).map(|partition| {
            (0..replicas).map(|replica| ((partition + replica) % nodes) as u16).collect()
        });
        let map = deal_to_chains(&Map::equal(heads.collect()), rack.chains);
        let mut world = World {
            first_map: map.clone(),
            map,
            opening: BTreeSet::new(),
            emptied: BTreeSet::new(),
            compared: 0,
            numbers,
            now_us: 0,
            queue: EventQueue::default(),
            network: Network::new(plan.data.clone(), random.fork(), numbers.count()),
            control: ControlPlane::new(plan.control.clone(), random.fork(), numbers),
            links: NodeLinks::new(plan.control.clone(), Random::new(plan.seed ^ 0x011a_b5e5)),
            flights: Flights::default(),
            controller: ControllerSlot::default(),
            backup: BackupSlot::default(),
            clients: (0..plan.topology.clients)
                .map(|_| ClientSlot::new(&plan, &mut random))
                .collect(),
            switches: (0..plan.topology.switches).map(|_| SwitchSlot::default()).collect(),
            nodes: (0..plan.topology.nodes).map(|_| NodeSlot::default()).collect(),
            nemesis: Nemesis::new(&plan.faults, random.fork()),
            phase: Phase::Safety,
            ending_state: Ending::default(),
            clocks,
            armed_us: vec![u64::MAX; numbers.count()],
            asked: vec![(0, 0); numbers.count()],
            paused_until_us: vec![0; numbers.count()],
            value: Vec::new(),
            history: History::default(),
            witness: Witness::new(plan.load.keys, skew_ms, plan.checks),
            trace: Trace::new(wanted),
            statistics: WorldStatistics::default(),
            violation: None,
            rules: None,
            workload,
            random,
            rack,
            plan,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        for part in self.parts() {
            self.start_part(part);
        }
        self.queue.push(0, Event::Inspect);
        if self.plan.backup_every_us > 0 {
            self.queue.push(self.plan.backup_every_us, Event::BackUp);
        }
        if self.plan.faults.every_us > 0 {
            let first_us = self.nemesis.pause_us();
            self.queue.push(first_us, Event::Nemesis);
        }
    }

    /// All parts, in a fixed order.
    fn parts(&self) -> Vec<Part> {
        let nodes = (0..self.nodes.len() as u16).map(Part::Node);
        let switches = (0..self.switches.len() as u16).map(Part::Switch);
        let clients = (0..self.clients.len() as u16).map(Part::Client);
        std::iter::once(Part::Controller).chain(switches).chain(nodes).chain(clients).collect()
    }

    /// The virtual time.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What was violated, if something was.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// A promise was broken: the first one counts, of those that are checked.
    fn fail(&mut self, violation: Violation) {
        if !self.plan.checks.contains(violation.check) {
            return;
        }
        let now_us = self.now_us;
        self.trace.violation(now_us, violation.to_string());
        self.violation.get_or_insert(Violation { at_us: now_us, ..violation });
    }

    #[inline]
    fn now(&self, part: Part) -> Now {
        self.clocks[usize::from(self.numbers.number(part))].now(self.now_us)
    }

    /// Sees to it that a part's timer rings at this time of its monotonic clock, if it is set.
    #[inline]
    fn arm(&mut self, part: Part, due_us: Option<u64>) {
        let index = self.numbers.number(part);
        let Some(monotonic_us) = due_us else { return };
        let asked = &mut self.asked[usize::from(index)];
        if asked.0 != monotonic_us {
            *asked = (monotonic_us, self.clocks[usize::from(index)].when(monotonic_us));
        }
        let at_us = asked.1;
        self.arm_at(index, at_us);
    }

    #[inline]
    fn arm_at(&mut self, index: u16, at_us: u64) {
        // Never at once: a part that always has something to do must not stop the world.
        let at_us = at_us.max(self.now_us + 1);
        if at_us < self.armed_us[usize::from(index)] {
            self.armed_us[usize::from(index)] = at_us;
            self.queue.push(at_us, Event::Wake(index));
        }
    }

    /// Runs until the end or a violation; true if there was none.
    pub fn run(&mut self) -> bool {
        while self.violation.is_none() && self.phase != Phase::Over {
            self.step();
        }
        self.violation.is_none()
    }

    /// Takes the next event.
    pub fn step(&mut self) {
        let Some((at_us, event)) = self.queue.pop() else {
            unreachable!("inspections never end");
        };
        assert!(at_us >= self.now_us);
        self.now_us = at_us;
        self.statistics.events += 1;
        self.trace.number(at_us);
        match event {
            Event::Packet(place) => self.packet_arrives(place),
            Event::Wake(index) => self.wake(index),
            Event::Message(place) => self.message_arrives(place),
            Event::Agent(switch, boot) => self.agent_runs(switch, boot),
            Event::Committed(node, boot) => self.committed(node, boot),
            Event::Stored(boot) => self.stored(boot),
            Event::Spooled(client, boot) => self.spooled(client, boot),
            Event::Submit(client, thread) => self.submit(client, thread),
            Event::Reconnect(part, number) => self.control.reconnect(part, number),
            Event::Lost(part, _) => self.connection_lost(part),
            Event::Nemesis => self.strike(),
            Event::Ends(fault) => self.fault_ends(fault),
            Event::Link(place) => self.link_arrives(place),
            Event::BackUp => self.back_up(),
            Event::Inspect => self.inspect(),
        }
    }

    /// Whether a part is paused: then its event comes again when it isn't.
    #[inline]
    fn is_paused(&mut self, index: u16, event: Event) -> bool {
        let until_us = self.paused_until_us[usize::from(index)];
        if until_us <= self.now_us {
            return false;
        }
        self.queue.push(until_us, event);
        true
    }

    fn wake(&mut self, index: u16) {
        if self.armed_us[usize::from(index)] != self.now_us {
            return; // it was set to another time since
        }
        if self.is_paused(index, Event::Wake(index)) {
            self.armed_us[usize::from(index)] = self.paused_until_us[usize::from(index)];
            return;
        }
        self.armed_us[usize::from(index)] = u64::MAX;
        match self.numbers.part(index) {
            Part::Controller => self.wake_controller(),
            Part::Client(client) => self.wake_client(client),
            Part::Switch(switch) => self.wake_switch(switch),
            Part::Node(node) => self.wake_node(node),
        }
    }

    /// Starts a part that isn't running.
    fn start_part(&mut self, part: Part) {
        self.trace.part(self.now_us, part, "starts");
        match part {
            Part::Controller => self.start_controller(),
            Part::Client(client) => self.start_client(client),
            Part::Switch(switch) => self.start_switch(switch),
            Part::Node(node) => self.start_node(node),
        }
    }

    /// Ends a part, and its connections.
    fn crash_part(&mut self, part: Part) {
        self.trace.part(self.now_us, part, "crashes");
        match part {
            Part::Controller => self.crash_controller(),
            Part::Client(client) => self.crash_client(client),
            Part::Switch(switch) => self.crash_switch(switch),
            Part::Node(node) => self.crash_node(node),
        }
        self.paused_until_us[usize::from(self.numbers.number(part))] = 0;
        if part == Part::Controller {
            for other in self.parts() {
                self.break_connection(self.numbers.number(other));
            }
        } else {
            self.break_connection(self.numbers.number(part));
        }
    }

    fn is_running(&self, part: Part) -> bool {
        match part {
            Part::Controller => self.controller.is_running(),
            Part::Client(client) => self.clients[usize::from(client)].is_running(),
            Part::Switch(switch) => self.switches[usize::from(switch)].is_running(),
            Part::Node(node) => self.nodes[usize::from(node)].is_running(),
        }
    }
}

fn draw_clock(plan: &Plan, random: &mut Random) -> Clock {
    let drift = plan.clocks.drift_ppm as u64;
    let skew = plan.clocks.skew_ms as u64;
    Clock {
        zero_us: random.between(1, 1 << 40),
        drift_ppm: random.between(0, 2 * drift) as i64 - drift as i64,
        skew_ms: random.between(0, 2 * skew) as i64 - skew as i64,
    }
}
