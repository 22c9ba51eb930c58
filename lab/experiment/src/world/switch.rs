//! The switch: the production datapath and agent. A packet takes the pipeline's time, a command the
//! agent's time for its entries.

use super::{Event, World};
use crate::timeline::{Flight, Link};
use rand::RngExt;
use std::collections::VecDeque;
use std::sync::Arc;
use switchback_assembly::Part;
use switchback_core::control::{Command, SwitchCommand};
use switchback_core::switch::{Agent, carry_out};
use switchback_datapath::{Control, Datapath, Shard, Verdict};
use switchback_net::DatapathTarget;
use switchback_wire::KeyHash;

/// How often the agent looks for reports of the datapath.
const POLL_NS: u64 = 500_000;
/// The one switch.
const SWITCH: Part = Part::Switch(0);

/// The parts of a running switch.
struct RunningSwitch {
    datapath: Arc<Datapath>,
    target: DatapathTarget<Datapath>,
    agent: Agent,
}

/// A switch, or its place.
#[derive(Default)]
pub(super) struct SwitchSlot {
    running: Option<Box<RunningSwitch>>,
    pub(super) boot: u64,
    commands: VecDeque<Command<SwitchCommand>>,
    is_busy: bool,
}

impl World {
    pub(super) fn start_switch(&mut self) {
        let now = self.now();
        let pipeline = self.rack.pipeline();
        let datapath = Arc::new(Datapath::new(&pipeline).expect("the setup makes sense"));
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let slot = &mut self.switch;
        slot.boot += 1;
        slot.is_busy = false;
        let agent = self.rack.agent(slot.boot, 1, String::new(), SWITCH.address(), now);
        slot.running = Some(Box::new(RunningSwitch { datapath, target, agent }));
        let boot = slot.boot;
        self.timeline.push(self.now_ns + POLL_NS, Event::Poll(boot));
        self.agent_acts(|agent| agent.handle_timeout(now));
    }

    pub(super) fn crash_switch(&mut self) {
        self.switch.running = None;
        self.switch.boot += 1;
        self.switch.commands.clear();
        self.timeline.cut_switch();
    }

    #[inline]
    pub(super) fn switch_receives(&mut self, mut flight: Box<Flight>) {
        let bits: u32 = self.random.random();
        let unix_ms = self.now().unix_ms;
        let Some(running) = &self.switch.running else {
            self.timeline.done(flight);
            return;
        };
        let verdict = running.datapath.process(
            &mut flight.packet,
            flight.from,
            unix_ms,
            bits,
            Shard::default(),
        );
        let to = match verdict {
            Verdict::Reply => match flight.packet.parse() {
                // An acknowledged cache update goes back to where it came from.
                Ok(parts) if parts.header.op == switchback_wire::Op::CacheUpdateAck => flight.from,
                Ok(parts) => parts.header.origin,
                Err(_) => flight.from,
            },
            Verdict::Forward(replicas) => Part::Node(replicas[0]).address(),
            Verdict::ToSwitch(neighbour) => {
                running.datapath.neighbour(neighbour).expect("the pipeline names one that it has")
            }
            Verdict::Drop(_) | Verdict::Pass => {
                self.statistics.dropped += 1;
                self.timeline.done(flight);
                return;
            }
        };
        flight.from = SWITCH.address();
        let (link, index) = match Part::of_address(&to) {
            Some(Part::Node(node)) => (Link::Node, node),
            Some(Part::Client(client)) => (Link::Client, client),
            _ => unreachable!("the switch answers clients and nodes"),
        };
        flight.to = index;
        let arrives_ns =
            self.now_ns + self.setup.profile.pipeline_ns + self.link_ns(&flight.packet);
        self.timeline.send(link, arrives_ns, flight);
    }

    pub(super) fn switch_hears(&mut self, command: Command<SwitchCommand>) {
        if self.switch.running.is_none() {
            return;
        }
        self.switch.commands.push_back(command);
        self.agent_begins();
    }

    /// The agent takes its next command: it is done after its time.
    fn agent_begins(&mut self) {
        let slot = &mut self.switch;
        let Some(command) = slot.commands.front().filter(|_| !slot.is_busy) else { return };
        let entries = match &command.body {
            SwitchCommand::Admit(entries) => entries.len(),
            SwitchCommand::EvictBegin { candidates, .. } => candidates.len(),
            SwitchCommand::Remove(entries) => entries.len(),
            _ => 0,
        };
        slot.is_busy = true;
        let takes_ns = entries as u64 * self.setup.profile.agent_entry_ns;
        let boot = slot.boot;
        self.timeline.push(self.now_ns + takes_ns, Event::Agent(boot));
    }

    /// The agent is done with its command.
    pub(super) fn agent_done(&mut self, boot: u64) {
        if self.switch.boot != boot || self.switch.running.is_none() {
            return;
        }
        let now = self.now();
        self.switch.is_busy = false;
        if let Some(command) = self.switch.commands.pop_front() {
            self.agent_acts(|agent| agent.handle_message(now, command));
        }
        self.agent_begins();
    }

    pub(super) fn wake_switch(&mut self) {
        let now = self.now();
        self.agent_acts(|agent| {
            if now.is_due(agent.poll_timeout()) {
                agent.handle_timeout(now);
            }
        });
    }

    pub(super) fn poll_reports(&mut self, boot: u64) {
        if self.switch.boot == boot && self.switch.running.is_some() {
            let now = self.now();
            self.agent_acts(|agent| agent.handle_readable(now));
            self.timeline.push(self.now_ns + POLL_NS, Event::Poll(boot));
        }
    }

    /// Runs `acts` on the agent, then carries out its operations and sends its messages.
    fn agent_acts(&mut self, acts: impl FnOnce(&mut Agent)) {
        let now = self.now();
        let Some(running) = &mut self.switch.running else { return };
        let RunningSwitch { target, agent, .. } = &mut **running;
        acts(agent);
        carry_out(agent, now, target);
        let (due_us, is_taking_snapshot) = (agent.poll_timeout(), agent.is_taking_snapshot());
        let mut reports = Vec::new();
        while let Some(report) = agent.poll_message() {
            reports.push(report);
        }
        for report in reports {
            self.report(SWITCH, report);
        }
        if is_taking_snapshot {
            // The next step takes its time.
            let loads = self.rack.limits.loads_a_step as u64;
            self.arm_at(SWITCH, self.now_ns + loads * self.setup.profile.agent_load_ns);
        } else {
            self.arm(SWITCH, due_us);
        }
    }

    /// Keys in the switch's tables.
    pub(crate) fn entries(&self) -> usize {
        self.switch.running.as_ref().map_or(0, |running| running.agent.cached())
    }

    /// Keys in the cache, without those under eviction.
    pub(crate) fn cached_hashes(&self) -> Vec<KeyHash> {
        let Some(running) = &self.switch.running else { return Vec::new() };
        running
            .agent
            .entries()
            .filter(|(_, evicting)| !evicting)
            .map(|(entry, _)| entry.hash)
            .collect()
    }
}
