//! A run by hand: what clients ask, what becomes of single packets, which parts die, in this order.
//! No seed decides any of it, so a script means the same whatever else the simulator draws.

use super::{ClientSlot, Flight, World};
use crate::check::Violation;
use crate::event::Event;
use crate::focus::Focus;
use crate::history::{Answered, Op, OpIndex};
use crate::plan::{Agents, Clocks, ControlNetwork, DataNetwork, Disks, Load, Plan, Topology};
use crate::run::{Outcome, outcome};
use crate::trace::Wanted;
use crate::workload::Intent;
use std::collections::{BTreeMap, VecDeque};
use switchback_assembly::Part;
use switchback_assembly::Times;
use switchback_core::Now;
use switchback_core::control::Envelope;
use switchback_core::controller::{ControlBudget, Controller, Preserve};
use switchback_core::floors::seq_bucket;
use switchback_core::switch::LearningConfig;
use switchback_wire::Op as Verb;
use switchback_wire::Scheme;

/// An answer comes, and a rack serves, within this time.
const PATIENCE_US: u64 = 10_000_000;

/// What becomes of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// The first one passes; a copy of it is kept for [`Script::deliver`].
    Copy,
    /// The first one is kept for [`Script::deliver`].
    Hold,
    /// All are lost, until [`Script::stop_losing`].
    Lose,
}

struct Rule {
    from: Part,
    to: Part,
    verb: Verb,
    act: Act,
}

/// Rules for packets, the first that fits counts, and the packets that were kept.
/// And what else waits.
#[derive(Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    kept: VecDeque<(Part, Part, Vec<u8>)>,
    /// From which part to which no control message arrives, and those that wait there, in order.
    stalled: BTreeMap<(Part, Part), Vec<Envelope>>,
    /// Nodes whose engines end no commit, and the one that waits for that.
    stopped: BTreeMap<u16, Option<Event>>,
}

impl Rules {
    pub(super) fn lets_pass(&mut self, from: Part, to: Part, flight: &Flight) -> bool {
        let Ok(parts) = flight.packet.parse() else { return true };
        let fits = |rule: &Rule| (rule.from, rule.to, rule.verb) == (from, to, parts.header.op);
        let Some(at) = self.rules.iter().position(fits) else { return true };
        let act = self.rules[at].act;
        if act != Act::Lose {
            self.rules.remove(at);
            self.kept.push_back((from, to, flight.packet.bytes().to_vec()));
        }
        act == Act::Copy
    }

    /// The message, unless it has to wait.
    pub(super) fn stalls(&mut self, from: Part, to: Part, envelope: Envelope) -> Option<Envelope> {
        let Some(waiting) = self.stalled.get_mut(&(from, to)) else { return Some(envelope) };
        waiting.push(envelope);
        None
    }

    /// Whether a node's commit may end.
    pub(super) fn lets_commit(&mut self, node: u16, event: Event) -> bool {
        let Some(waits) = self.stopped.get_mut(&node) else { return true };
        *waits = Some(event);
        false
    }
}

impl World {
    /// The clients' epochs.
    fn epochs(&self) -> impl Iterator<Item = u32> {
        self.clients.iter().filter_map(|slot| slot.session.as_ref()).map(|session| session.epoch())
    }

    /// Whether every client may ask.
    fn has_sessions(&self) -> bool {
        let open = |(client, slot): (u16, &ClientSlot)| {
            let now = self.now(Part::Client(client));
            slot.session.as_ref().is_some_and(|session| session.is_open(now))
        };
        (0..).zip(&self.clients).all(open)
    }

    /// How many keys the nodes have marked as offered.
    fn offered(&self) -> usize {
        self.nodes.iter().filter_map(|slot| slot.shim.as_ref()).map(|shim| shim.offered()).sum()
    }
}

/// A rack that does what it is told. Everything else works: nothing is lost, no part dies, no key
/// becomes hot by itself.
pub struct Script {
    world: World,
}

impl Script {
    /// A small rack without faults, of two clients with a lane each, to be narrowed. Nothing of it
    /// is drawn.
    pub fn plan() -> Plan {
        let mut plan = Plan::calm(0, Scheme::FarReach);
        plan.focus = Focus::Anything;
        plan.topology = Topology {
            nodes: 1,
            replicas: 1,
            clients: 2,
            switches: 1,
            chains: 1,
            layers: 1,
            domains: 1,
            preserve: Preserve::Auto,
            partitions: 16,
            classes: vec![(1024, 8)],
            cache_records: 8,
            // Five counts make a key hot.
            learning: LearningConfig {
                threshold: 5,
                sketch_width: 1024,
                ..LearningConfig::default()
            },
            sketch_width: 1024,
            reports: 1024,
            lanes: 1,
            eviction_sample: 4,
            control_budget: ControlBudget::default(),
            few_marks: false,
            sequence_start: 0,
        };
        plan.times = Times {
            quiet_us: 100_000,
            heartbeat_us: 5_000,
            node_retry_us: 2_000,
            node_defer_us: 500,
            floor_period_us: 10_000,
            bypass_us: Some(1_000_000),
            lease_us: 1_000_000,
            drift_us: 50_000,
            spool_wait_us: 1_000_000,
            witness_wait_us: 500_000,
            link_pause_us: 60_000_000,
            backup_flush_us: 2_000_000,
            switch_timeout_us: 50_000,
            switch_lost_us: 20_000,
            node_timeout_us: 1_000_000,
            snapshot_us: Some(100_000),
            dirty_max_us: None,
            controller_retry_us: 5_000,
            eviction_pause_us: 500,
            client_retry_us: (2_000, 20_000),
            deadline_us: 500_000,
            hello_us: 5_000,
        };
        plan.agents = Agents { command_us: 20, poll_us: 100, step_us: 20 };
        plan.clocks = Clocks { drift_ppm: 0, skew_ms: 0 };
        plan.data = DataNetwork { delay_us: 20, ..DataNetwork::default() };
        plan.control =
            ControlNetwork { delay_us: 50, reconnect_us: 1_000, ..ControlNetwork::default() };
        plan.disks = Disks {
            commit_us: 30,
            store_us: 200,
            spool_us: 50,
            commit_fails: 0.0,
            compaction: 0.0,
        };
        plan.load = Load {
            keys: 4,
            skew: 0.0,
            threads: 1,
            think_us: 100,
            mix: [1.0, 0.0, 0.0, 0.0, 0.0, 0.0],
            value_bytes: 8,
            large: (0.0, 2_000),
            expiring: (0.0, 1),
            long_keys: 0.0,
            readers: 0.0,
            spooled: 0.0,
            operations: 0,
        };
        plan
    }

    /// Starts the rack of a plan; it serves, and its clients have sessions.
    pub fn begin(plan: Plan) -> Script {
        let mut script = Script { world: World::new(plan, Wanted::default()) };
        script.world.rules = Some(Rules::default());
        script.until("the rack serves", |world| world.is_settled() && world.has_sessions());
        script
    }

    /// Runs until something is true, which is what the message says.
    fn until(&mut self, what: &str, is_true: impl Fn(&World) -> bool) {
        let end_us = self.world.now_us + PATIENCE_US;
        while !is_true(&self.world) {
            assert!(self.world.now_us < end_us, "this doesn't come true: {what}");
            self.world.step();
        }
    }

    /// Goes on for `us` microseconds.
    pub fn wait_us(&mut self, us: u64) {
        let end_us = self.world.now_us + us;
        while self.world.now_us < end_us {
            self.world.step();
        }
    }

    /// A client asks something.
    fn ask(&mut self, client: u16, intent: Intent) -> OpIndex {
        let index = self.world.history.ops.len() as OpIndex;
        assert!(
            self.world.wants(client, 0, intent),
            "client{client} can't ask: it has no lane, or no session"
        );
        index
    }

    /// A client reads a key.
    pub fn read(&mut self, client: u16, key: u32) -> OpIndex {
        self.ask(client, Intent::Read(key))
    }

    /// A client writes a key.
    pub fn write(&mut self, client: u16, key: u32) -> OpIndex {
        self.ask(client, Intent::Write(key, 8, 0))
    }

    /// A client writes a key if it is at the version that it saw last; never written, if it saw
    /// none.
    pub fn write_if(&mut self, client: u16, key: u32) -> OpIndex {
        self.ask(client, Intent::Guess(key, 8, false))
    }

    /// A client deletes a key.
    pub fn delete(&mut self, client: u16, key: u32) -> OpIndex {
        self.ask(client, Intent::Delete(key))
    }

    /// The operation, once it is answered.
    pub fn answer(&mut self, index: OpIndex) -> Op {
        self.until("an operation is answered", |world| {
            world.history.ops[index as usize].responded != u64::MAX
        });
        self.world.history.ops[index as usize]
    }

    /// Waits for an operation, which must be told this.
    pub fn expect(&mut self, index: OpIndex, answered: Answered) {
        let op = self.answer(index);
        assert_eq!(op.answered, answered, "#{index} {op}");
    }

    /// Says what becomes of packets from one part to another.
    pub fn on(&mut self, from: Part, to: Part, verb: Verb, act: Act) {
        self.rules().rules.push(Rule { from, to, verb, act });
    }

    /// Packets are lost no longer.
    pub fn stop_losing(&mut self) {
        self.rules().rules.retain(|rule| rule.act != Act::Lose);
    }

    /// Waits until a packet is kept.
    pub fn keeps(&mut self) {
        self.until("a packet is kept", |world| {
            world.rules.as_ref().is_some_and(|rules| !rules.kept.is_empty())
        });
    }

    /// Delivers the packet that was kept first.
    pub fn deliver(&mut self) {
        let (from, to, bytes) = self.rules().kept.pop_front().expect("a packet was kept");
        self.world.inject(from, to, &bytes);
    }

    /// Messages of one part to another wait from now on, until [`Script::flow`]. The other
    /// direction of their connection goes on.
    pub fn stall(&mut self, from: Part, to: Part) {
        self.rules().stalled.insert((from, to), Vec::new());
    }

    /// Waits until a message waits.
    pub fn stalls(&mut self) {
        let waits = |rules: &Rules| rules.stalled.values().any(|waiting| !waiting.is_empty());
        self.until("a message waits", |world| world.rules.as_ref().is_some_and(waits));
    }

    /// Messages of one part to another wait no longer: those that did arrive, in their order.
    pub fn flow(&mut self, from: Part, to: Part) {
        let waiting = self.rules().stalled.remove(&(from, to)).expect("this direction was stalled");
        for envelope in waiting {
            self.world.carry(envelope);
        }
    }

    /// A node's engine ends no commit from now on, until [`Script::start_engine`].
    pub fn stop_engine(&mut self, node: u16) {
        self.rules().stopped.insert(node, None);
    }

    /// Waits until an engine that was stopped has a commit to end.
    pub fn commits(&mut self) {
        let waits = |rules: &Rules| rules.stopped.values().any(Option::is_some);
        self.until("a commit waits", |world| world.rules.as_ref().is_some_and(waits));
    }

    /// A node's engine works again.
    pub fn start_engine(&mut self, node: u16) {
        if let Some(Some(commit)) = self.rules().stopped.remove(&node) {
            self.world.queue.push(self.world.now_us, commit);
        }
    }

    /// Waits until the rack does without a switch.
    pub fn bypasses(&mut self) {
        self.until("the nodes serve without a switch", |world| {
            let Some(controller) = &world.controller.controller else { return false };
            let moved = world.epochs().all(|epoch| epoch == controller.epoch());
            controller.is_bypassing() && controller.is_serving() && moved
        });
    }

    /// Waits until a node is in an epoch of which some client hasn't heard.
    pub fn moves_on(&mut self, node: u16) {
        self.until("a node begins an epoch", |world| {
            let shim = world.nodes[usize::from(node)].shim.as_ref();
            shim.is_some_and(|shim| world.epochs().any(|epoch| epoch < shim.epoch()))
        });
    }

    /// The controller asks for a key to be offered, and its node has marked it: the offer is on its
    /// way to the disk.
    pub fn offer(&mut self, key: u32) {
        let before = self.world.offered();
        let name = self.world.workload.key(key).to_vec();
        self.command(|controller, now| controller.preload(now, vec![name]));
        self.until("a key is offered", |world| world.offered() > before);
    }

    /// Whether the cache absorbs a client's write of a key; what was just admitted is read first.
    pub fn absorbs(&mut self, client: u16, key: u32) -> bool {
        let read = self.read(client, key);
        self.answer(read);
        let write = self.write(client, key);
        self.answer(write).cached
    }

    /// The controller evicts everything and declines what is offered, until [`Script::resume`].
    pub fn drain(&mut self) {
        self.command(Controller::drain);
    }

    /// Offers are taken again.
    pub fn resume(&mut self) {
        self.command(|controller, _| controller.resume());
    }

    fn command(&mut self, does: impl FnOnce(&mut Controller, Now)) {
        let now = self.world.now(Part::Controller);
        does(self.world.controller.controller.as_mut().expect("the controller runs"), now);
        self.world.pump_controller();
    }

    /// A node's engine drops what its floors allow to drop; how many records.
    pub fn compact(&mut self, node: u16) -> usize {
        let unix_ms = self.world.now(Part::Node(node)).unix_ms;
        let engine = &mut self.world.nodes[usize::from(node)].engine;
        engine.set_now_ms(unix_ms);
        engine.compact()
    }

    /// Two keys that share a floor.
    pub fn neighbours(&self) -> (u32, u32) {
        let hash_key =
            self.world.controller.controller.as_ref().expect("the rack serves").hash_key();
        let mut known = BTreeMap::new();
        let keys = 0..self.world.workload.keys();
        let mut pairs = keys.filter_map(|key| {
            let bucket = seq_bucket(&hash_key.hash(self.world.workload.key(key)));
            known.insert(bucket, key).map(|other| (other, key))
        });
        pairs.next().expect("there are more keys than floors")
    }

    /// A part dies, and with its connection what waited there.
    pub fn crash(&mut self, part: Part) {
        let of_part = |((from, to), _): &(&(Part, Part), _)| *from == part || *to == part;
        self.rules().stalled.iter_mut().filter(of_part).for_each(|(_, waiting)| waiting.clear());
        self.world.crash_part(part);
    }

    /// A part that died comes back.
    pub fn start(&mut self, part: Part) {
        self.world.start_part(part);
    }

    fn rules(&mut self) -> &mut Rules {
        self.world.rules.as_mut().expect("the script isn't over")
    }

    /// The script is over: everything has to come right as at the end of each run. What the checks
    /// found.
    pub fn end(mut self) -> Outcome {
        let rules = self.rules();
        assert!(rules.stalled.is_empty() && rules.stopped.is_empty(), "nothing waits for ever");
        self.world.rules = None;
        if self.world.violation.is_none() {
            self.world.end_faults();
        }
        self.world.run();
        outcome(self.world)
    }

    /// What the checks have found so far.
    pub fn violation(&self) -> Option<&Violation> {
        self.world.violation()
    }
}
