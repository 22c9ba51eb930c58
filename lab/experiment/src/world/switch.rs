//! The switches: the production datapath and agent. A packet takes the pipeline's time, a command
//! the agent's time for its entries. In a switch of a limited capacity packets wait for their turn.

use super::{Event, World};
use crate::profile::Profile;
use crate::timeline::{Flight, Link};
use rand::RngExt;
use std::collections::VecDeque;
use std::sync::Arc;
use switchback_assembly::Part;
use switchback_core::control::{BATCH_MAX, Command, Location, SwitchCommand};
use switchback_core::switch::{Agent, carry_out};
use switchback_datapath::state::bits;
use switchback_datapath::{Control, Datapath, Shard, Verdict};
use switchback_net::DatapathTarget;
use switchback_wire::{Address, KeyHash};

/// How often the agent looks for reports of the datapath.
const POLL_NS: u64 = 500_000;

/// The parts of a running switch.
struct RunningSwitch {
    datapath: Arc<Datapath>,
    target: DatapathTarget<Datapath>,
    agent: Agent,
    /// When the pipeline may take the next packet.
    takes_ns: u64,
}

impl RunningSwitch {
    /// When a packet that arrives now has its turn, if each takes `packet_ns`. They are taken in
    /// the order in which they arrive.
    #[inline]
    fn turn_ns(&mut self, now_ns: u64, packet_ns: u64) -> u64 {
        let turn_ns = self.takes_ns.max(now_ns);
        self.takes_ns = turn_ns + packet_ns;
        turn_ns
    }
}

/// A switch, or its place.
#[derive(Default)]
pub(super) struct SwitchSlot {
    running: Option<Box<RunningSwitch>>,
    boots: u64,
    commands: VecDeque<Command<SwitchCommand>>,
    is_busy: bool,
}

/// The switch that clients and nodes send to at this address.
#[inline]
pub(super) fn switch_of(address: &Address) -> u16 {
    match Part::of_address(address) {
        Some(Part::Switch(switch)) => switch,
        _ => unreachable!("clients and nodes send to switches"),
    }
}

impl World {
    pub(super) fn start_switch(&mut self, switch: u16) {
        let now = self.now();
        let pipeline = self.rack.pipeline();
        let datapath = Arc::new(Datapath::new(&pipeline).expect("the setup makes sense"));
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let slot = &mut self.switches[usize::from(switch)];
        slot.boots += 1;
        slot.is_busy = false;
        let boots = slot.boots;
        // No two switches fail together, and no two have had one boot.
        let (boot, domain) = (boots << 16 | u64::from(switch), switch.to_string());
        let layer = self.rack.layer_of(switch);
        let address = Part::Switch(switch).address();
        let agent = self.rack.agent(boot, layer, domain, address, now);
        slot.running = Some(Box::new(RunningSwitch { datapath, target, agent, takes_ns: 0 }));
        self.timeline.push(self.now_ns + POLL_NS, Event::Poll(switch, boots));
        self.agent_acts(switch, |agent| agent.handle_timeout(now));
    }

    pub(super) fn crash_switch(&mut self, switch: u16) {
        let slot = &mut self.switches[usize::from(switch)];
        slot.running = None;
        slot.boots += 1;
        slot.commands.clear();
        self.timeline.cut_switch(switch);
    }

    #[inline]
    pub(super) fn switch_receives(&mut self, mut flight: Box<Flight>) {
        let switch = flight.to;
        let bits: u32 = self.random.random();
        let unix_ms = self.now().unix_ms;
        let Some(running) = &mut self.switches[usize::from(switch)].running else {
            self.timeline.done(flight);
            return;
        };
        // What it does it does at once: as packets keep their order, only when it leaves can
        // differ.
        let turn_ns = running.turn_ns(self.now_ns, self.setup.switch_packet_ns);
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
                Ok(parts) if parts.header.op.is_acknowledgement() => flight.from,
                Ok(parts) => parts.header.origin,
                Err(_) => flight.from,
            },
            Verdict::Forward(replicas) => {
                let told = running.datapath.told_node(replicas[0]);
                told.unwrap_or(Part::Node(replicas[0]).address())
            }
            Verdict::ToSwitch(neighbour) => {
                running.datapath.neighbour(neighbour).expect("the pipeline names one that it has")
            }
            Verdict::Taken | Verdict::Drop(_) | Verdict::Pass => {
                self.statistics.dropped += 1;
                self.timeline.done(flight);
                return;
            }
        };
        flight.from = Part::Switch(switch).address();
        let (link, index) = match Part::of_address(&to) {
            Some(Part::Switch(switch)) => (Link::Switch, switch),
            Some(Part::Node(node)) => (Link::Node, node),
            Some(Part::Client(client)) => (Link::Client, client),
            _ => unreachable!("a switch sends to clients, nodes and its neighbours"),
        };
        flight.to = index;
        let arrives_ns = turn_ns + self.setup.profile.pipeline_ns + self.link_ns(&flight.packet);
        self.timeline.send(link, arrives_ns, flight);
    }

    pub(super) fn switch_hears(&mut self, switch: u16, command: Command<SwitchCommand>) {
        let slot = &mut self.switches[usize::from(switch)];
        if slot.running.is_some() {
            slot.commands.push_back(command);
            self.agent_begins(switch);
        }
    }

    /// The agent takes its next command: it is done after its time.
    fn agent_begins(&mut self, switch: u16) {
        let slot = &mut self.switches[usize::from(switch)];
        let Some(command) = slot.commands.front().filter(|_| !slot.is_busy) else { return };
        let entries = match &command.body {
            SwitchCommand::Admit(entries) => entries.len(),
            SwitchCommand::EvictBegin { candidates, .. } => candidates.len(),
            SwitchCommand::Remove(entries) => entries.len(),
            _ => 0,
        };
        // As many as it may look at; the last ones are fewer.
        let loads = match &command.body {
            SwitchCommand::LoadFrozen(_) => BATCH_MAX,
            _ => 0,
        };
        slot.is_busy = true;
        let Profile { agent_entry_ns, agent_load_ns, .. } = self.setup.profile;
        let takes_ns = entries as u64 * agent_entry_ns + loads as u64 * agent_load_ns;
        self.timeline.push(self.now_ns + takes_ns, Event::Agent(switch, slot.boots));
    }

    fn is_running(&self, switch: u16, boots: u64) -> bool {
        let slot = &self.switches[usize::from(switch)];
        slot.boots == boots && slot.running.is_some()
    }

    /// The agent is done with its command.
    pub(super) fn agent_done(&mut self, switch: u16, boots: u64) {
        if !self.is_running(switch, boots) {
            return;
        }
        let now = self.now();
        let slot = &mut self.switches[usize::from(switch)];
        slot.is_busy = false;
        if let Some(command) = slot.commands.pop_front() {
            self.agent_acts(switch, |agent| agent.handle_message(now, command));
        }
        self.agent_begins(switch);
    }

    pub(super) fn wake_switch(&mut self, switch: u16) {
        let now = self.now();
        self.agent_acts(switch, |agent| {
            if now.is_due(agent.poll_timeout()) {
                agent.handle_timeout(now);
            }
        });
    }

    pub(super) fn poll_reports(&mut self, switch: u16, boots: u64) {
        if self.is_running(switch, boots) {
            let now = self.now();
            self.agent_acts(switch, |agent| agent.handle_readable(now));
            self.timeline.push(self.now_ns + POLL_NS, Event::Poll(switch, boots));
        }
    }

    /// Runs `acts` on the agent, then carries out its operations and sends its messages.
    fn agent_acts(&mut self, switch: u16, acts: impl FnOnce(&mut Agent)) {
        let (now, part) = (self.now(), Part::Switch(switch));
        let Some(running) = &mut self.switches[usize::from(switch)].running else { return };
        let RunningSwitch { target, agent, .. } = &mut **running;
        acts(agent);
        carry_out(agent, now, target);
        let (due_us, is_loading) = (agent.poll_timeout(), agent.is_taking_snapshot());
        let mut reports = Vec::new();
        while let Some(report) = agent.poll_message() {
            reports.push(report);
        }
        for report in reports {
            self.report(part, report);
        }
        if is_loading {
            // The next step takes its time.
            let loads = self.rack.limits.loads_a_step as u64;
            self.arm_at(part, self.now_ns + loads * self.setup.profile.agent_load_ns);
        } else {
            self.arm(part, due_us);
        }
    }

    /// The switches next to the nodes, which have what their chains cache.
    fn owners(&self) -> impl Iterator<Item = &RunningSwitch> {
        let is_owner = |(at, _): &(usize, _)| self.rack.layer_of(*at as u16) == self.rack.layers;
        let owners = self.switches.iter().enumerate().filter(is_owner);
        owners.filter_map(|(_, slot)| slot.running.as_deref())
    }

    /// Keys in the tables of the chains.
    pub(crate) fn entries(&self) -> usize {
        self.owners().map(|owner| owner.agent.cached()).sum()
    }

    /// The switch of a chain that has what the chain caches, if one serves.
    fn owner_of(&self, chain: u16) -> Option<&RunningSwitch> {
        let owner = *self.status().chains[usize::from(chain)].members.last()?;
        self.switches[usize::from(owner)].running.as_deref()
    }

    /// Keys in the table of a chain, whichever switch owns it now.
    pub(crate) fn entries_of(&self, chain: u16) -> usize {
        self.owner_of(chain).map_or(0, |owner| owner.agent.cached())
    }

    /// Records of a chain that no node has.
    pub(crate) fn dirty_of(&self, chain: u16) -> usize {
        let Some(RunningSwitch { agent, datapath, .. }) = self.owner_of(chain) else { return 0 };
        let is_dirty = |at: &Location| {
            let record = datapath.peek_record(at.class, at.slot);
            record.is_some_and(|record| record.state & bits::DIRTY != 0)
        };
        agent.entries().filter(|(entry, _)| is_dirty(&entry.at)).count()
    }

    /// Keys in the caches, without those under eviction.
    pub(crate) fn cached_hashes(&self) -> Vec<KeyHash> {
        let entries = self.owners().flat_map(|owner| owner.agent.entries());
        entries.filter(|(_, evicting)| !evicting).map(|(entry, _)| entry.hash).collect()
    }
}
