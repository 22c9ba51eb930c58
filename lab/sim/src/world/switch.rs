//! A switch: the native datapath and its agent.
//!
//! In production packets pass while the agent writes tables. Here some packets wait for the agent
//! to be in the middle of a command and pass between its steps.

use super::{Flight, World};
use crate::check::{Check, Violation};
use crate::event::Event;
use crate::plan::Plan;
use crate::random::Random;
use std::collections::{BTreeMap, VecDeque};
use switchback_assembly::Part;
use switchback_core::Now;
use switchback_core::control::{Command, KeyedRecord, Location, SwitchCommand, SwitchReport};
use switchback_core::floors::SEQ_BUCKETS;
use switchback_core::switch::{Agent, Counting, Target, carry_out};
use switchback_datapath::state::bits;
use switchback_datapath::{Control, Datapath, Shard, Verdict};
use switchback_wire::{Address, Heard, KeyHash, Map, Op, Packet, Place, Seq};

/// Caches of more keys are compared with their snapshots only now and then.
const COMPARED_KEYS: usize = 64;
/// Packets of an agent's that are under way a second time.
const REPEATS_MAX: usize = 8;

/// What the cache held dirty when a snapshot began.
pub(super) struct Cut {
    generation: u32,
    records: BTreeMap<KeyHash, Seq>,
}

/// The parts of a running switch.
pub(super) struct RunningSwitch {
    pub(super) datapath: Datapath,
    pub(super) agent: Agent,
    /// Its place in the chain.
    place: Place,
    entries: BTreeMap<KeyHash, Location>,
    cut: Option<Cut>,
    /// Packets of the agent's that the pipeline will get a second time.
    repeats: VecDeque<Packet>,
}

/// A switch.
#[derive(Default)]
pub(super) struct SwitchSlot {
    pub(super) running: Option<Box<RunningSwitch>>,
    boot: u32,
    commands: VecDeque<Command<SwitchCommand>>,
    /// The agent is about to do something.
    is_busy: bool,
    #[allow(clippy::vec_box)] // They are moved from hop to hop, and they are long.
    held: Vec<Box<Flight>>,
    /// The agent looks at reports then at the latest.
    poll_at_us: u64,
    chunks: Vec<KeyedRecord>,
}

impl RunningSwitch {
    /// The version that it keeps of a key as one of the keepers of this epoch; `None`: it is none.
    pub(super) fn kept(&self, epoch: u32, hash: &KeyHash) -> Option<Seq> {
        if self.agent.epoch() != epoch || self.place.position == self.place.length {
            return None;
        }
        let at = self.entries.get(hash);
        Some(at.map_or(Seq::NONE, |at| version_of(&self.datapath, *at)))
    }
}

/// The version of the record in a slot, if it counts.
fn version_of(datapath: &Datapath, at: Location) -> Seq {
    let record = datapath.peek_record(at.class, at.slot).expect("the agent names slots that exist");
    if record.state & bits::VALID != 0 { Seq(record.seq) } else { Seq::NONE }
}

impl SwitchSlot {
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether nothing waits in it.
    pub(super) fn is_idle(&self) -> bool {
        self.commands.is_empty() && self.held.is_empty()
    }
}

/// The datapath as its agent drives it, with packets in between.
struct Between<'a> {
    running: &'a Datapath,
    plan: &'a Plan,
    random: &'a mut Random,
    unix_ms: u64,
    /// Where the next epoch's sequence counters begin.
    sequence_start: u64,
    place: &'a mut Place,
    entries: &'a mut BTreeMap<KeyHash, Location>,
    /// What a keeper has removed.
    removed: Vec<(KeyHash, Seq)>,
    cut: &'a mut Option<Cut>,
    repeats: &'a mut VecDeque<Packet>,
    #[allow(clippy::vec_box)]
    held: &'a mut Vec<Box<Flight>>,
    passed: Vec<(Box<Flight>, Verdict)>,
    /// Probes, and the neighbours that they are for.
    probes: Vec<(Address, Packet)>,
}

impl Between<'_> {
    /// Some of the packets that wait pass now.
    fn packets_pass(&mut self) {
        while !self.held.is_empty() && self.random.chance(0.3) {
            let flight = self.held.remove(0);
            self.pass(flight);
        }
    }

    /// A packet that ends an entry may come a second time, late: it names the incarnation that it
    /// means.
    fn repeat_packets(&mut self, packet: &Packet) {
        if self.repeats.len() > REPEATS_MAX || (!self.repeats.is_empty() && self.random.chance(0.3))
        {
            let mut late = self.repeats.pop_front().expect("not empty");
            let _late = self.running.inject(&mut late);
        }
        let ends_entry = |op: Op| matches!(op, Op::EvictBegin | Op::Remove);
        if self.random.chance(self.plan.data.repeats)
            && packet.parse().is_ok_and(|parts| ends_entry(parts.header.op))
        {
            self.repeats.push_back(packet.clone());
        }
    }

    fn pass(&mut self, mut flight: Box<Flight>) {
        let bits = self.random.bits() as u32;
        let verdict = self.running.process(
            &mut flight.packet,
            flight.from,
            self.unix_ms,
            bits,
            Shard::default(),
        );
        self.passed.push((flight, verdict));
    }

    /// What a keeper has of a key.
    fn kept(&self, hash: &KeyHash) -> Option<(KeyHash, Seq)> {
        let at = self.entries.get(hash).filter(|_| self.place.position < self.place.length)?;
        let version = version_of(self.running, *at);
        (version > Seq::NONE).then_some((*hash, version))
    }

    /// What is dirty now, of this epoch, if that can be told at a bearable price.
    fn look(&mut self, epoch: u32, generation: u32) {
        *self.cut = None;
        if self.entries.len() > COMPARED_KEYS && !self.random.chance(0.05) {
            return;
        }
        let mut records = BTreeMap::new();
        for (hash, at) in self.entries.iter() {
            let record = self
                .running
                .peek_record(at.class, at.slot)
                .expect("the agent names slots that exist");
            let is_dirty = record.state & bits::VALID != 0 && record.state & bits::DIRTY != 0;
            if is_dirty && Seq(record.seq).epoch() == epoch {
                records.insert(*hash, Seq(record.seq));
            }
        }
        *self.cut = Some(Cut { generation, records });
    }
}

impl Target for Between<'_> {
    fn inject(&mut self, packet: &mut Packet) -> bool {
        self.packets_pass();
        self.repeat_packets(packet);
        let begins = match packet.parse() {
            Ok(parts) if parts.header.op == Op::SnapshotBegin => {
                Some((parts.header.epoch, parts.header.generation))
            }
            _ => None,
        };
        let removes = match packet.parse() {
            Ok(parts) if parts.header.op == Op::Remove => {
                Some((parts.header.key_hash, parts.header.epoch))
            }
            _ => None,
        };
        // Of what it has frozen, it may be that no client was told.
        let is_of = |epoch| move |(_, version): &(KeyHash, Seq)| version.epoch() == epoch;
        let kept = removes.and_then(|(hash, epoch)| self.kept(&hash).filter(is_of(epoch)));
        let replied = matches!(self.running.inject(packet), Verdict::Reply);
        if let Some((epoch, generation)) = begins {
            self.look(epoch, generation);
        }
        self.removed.extend(kept.filter(|(hash, _)| self.kept(hash).is_none()));
        replied
    }

    fn lookup_insert(&mut self, hash: &KeyHash, at: Location) -> bool {
        self.packets_pass();
        let inserted = self.running.lookup_insert(hash, at.class, at.slot).is_ok();
        if inserted {
            self.entries.insert(*hash, at);
        }
        inserted
    }

    fn lookup_remove(&mut self, hash: &KeyHash, at: Location) {
        self.packets_pass();
        self.running.lookup_remove(hash, at.class, at.slot);
        if self.entries.get(hash) == Some(&at) {
            self.entries.remove(hash);
        }
    }

    fn clear(&mut self) {
        self.running.clear();
        if self.sequence_start > 0 {
            for bucket in 0..SEQ_BUCKETS as u128 {
                self.running.poke_sequence(&KeyHash(bucket.to_be_bytes()), self.sequence_start);
            }
        }
        self.entries.clear();
        self.repeats.clear();
        *self.cut = None;
    }

    fn set_map(&mut self, map: &Map) {
        self.running.set_map(map).expect("the controller knows the rack");
    }

    fn set_node(&mut self, node: u16, address: Address) {
        self.running.set_node(node, address);
    }

    fn set_place(&mut self, place: &Place) {
        *self.place = *place;
        self.running.set_place(place).expect("the controller knows the rack");
    }

    fn set_lanes(&mut self, lanes: u32) {
        self.running.set_lanes(lanes);
    }

    fn set_counting(&mut self, counting: Counting) -> u32 {
        let Counting { sampling, threshold, offers } = counting;
        self.running.set_counting(sampling, threshold, offers)
    }

    fn next_report(&mut self, packet: &mut Packet) -> bool {
        self.running.next_report(packet)
    }

    fn probe(&mut self, to: Address, packet: &Packet) -> bool {
        self.probes.push((to, packet.clone()));
        true
    }

    fn heard(&self) -> Heard {
        self.running.heard()
    }

    fn misses(&self) -> u64 {
        self.running.misses()
    }

    fn requests(&self) -> u64 {
        self.running.requests()
    }

    fn sequence_used(&self) -> u32 {
        self.running.sequence_used()
    }

    fn classes(&self) -> Vec<(u32, u32)> {
        self.plan.topology.classes.clone()
    }

    fn sketch_width(&self) -> u32 {
        self.plan.topology.sketch_width
    }
}

impl World {
    pub(super) fn start_switch(&mut self, switch: u16) {
        let part = Part::Switch(switch);
        let now = self.now(part);
        self.rack.limits.loads_a_step = 1 + self.random.below(64) as usize;
        let datapath = Datapath::new(&self.rack.pipeline()).expect("a drawn rack makes sense");
        let slot = &mut self.switches[usize::from(switch)];
        slot.boot += 1;
        let boot = u64::from(slot.boot) << 8 | u64::from(switch);
        let domain = format!("domain-{}", self.plan.topology.domain_of(switch));
        let agent = self.rack.agent(boot, self.rack.layer_of(switch), domain, part.address(), now);
        slot.running = Some(Box::new(RunningSwitch {
            datapath,
            agent,
            place: Place::sole(),
            entries: BTreeMap::new(),
            cut: None,
            repeats: VecDeque::new(),
        }));
        slot.poll_at_us = u64::MAX;
        slot.is_busy = false;
        self.agent_acts(switch, now, |agent| agent.handle_timeout(now));
    }

    pub(super) fn crash_switch(&mut self, switch: u16) {
        let slot = &mut self.switches[usize::from(switch)];
        slot.running = None;
        slot.boot += 1;
        slot.commands.clear();
        slot.chunks.clear();
        slot.is_busy = false;
        for flight in std::mem::take(&mut slot.held) {
            self.flights.done(flight);
        }
    }

    pub(super) fn switch_receives(&mut self, switch: u16, mut flight: Box<Flight>) {
        let now = self.now(Part::Switch(switch));
        let interleave = self.plan.data.interleave;
        let slot = &mut self.switches[usize::from(switch)];
        let Some(running) = &mut slot.running else {
            self.flights.done(flight);
            return;
        };
        if slot.is_busy && self.random.chance(interleave) {
            slot.held.push(flight);
            return;
        }
        let bits = self.random.bits() as u32;
        let verdict = running.datapath.process(
            &mut flight.packet,
            flight.from,
            now.unix_ms,
            bits,
            Shard::default(),
        );
        if slot.poll_at_us == u64::MAX {
            slot.poll_at_us = self.now_us + self.plan.agents.poll_us;
            let at_us = slot.poll_at_us;
            self.arm_at(self.numbers.number(Part::Switch(switch)), at_us);
        }
        self.carry_out(switch, flight, verdict);
    }

    fn carry_out(&mut self, switch: u16, flight: Box<Flight>, verdict: Verdict) {
        let part = Part::Switch(switch);
        match verdict {
            Verdict::Reply => {
                let to = match flight.packet.parse() {
                    Ok(parts) if !parts.header.op.is_acknowledgement() => parts.header.origin,
                    _ => flight.from,
                };
                self.send_packet(part, to, flight);
            }
            Verdict::Forward(replicas) => {
                let running = self.switches[usize::from(switch)].running.as_ref();
                let told = running.and_then(|running| running.datapath.told_node(replicas[0]));
                let to = told.unwrap_or(Part::Node(replicas[0]).address());
                self.send_packet(part, to, flight);
            }
            Verdict::ToSwitch(neighbour) => {
                let running = self.switches[usize::from(switch)].running.as_ref();
                // It may have got another place since it processed the packet.
                match running.and_then(|running| running.datapath.neighbour(neighbour)) {
                    Some(to) => self.send_packet(part, to, flight),
                    None => self.flights.done(flight),
                }
            }
            Verdict::Drop(reason) => {
                self.trace.line(self.now_us, || format!("{part} drops {reason}"));
                self.flights.done(flight);
            }
            Verdict::Taken | Verdict::Pass => self.flights.done(flight),
        }
    }

    pub(super) fn switch_hears(&mut self, switch: u16, command: Command<SwitchCommand>) {
        let after_us = self.random.exponential(self.plan.agents.command_us);
        let slot = &mut self.switches[usize::from(switch)];
        if slot.running.is_none() {
            return;
        }
        slot.commands.push_back(command);
        if !slot.is_busy {
            slot.is_busy = true;
            let boot = slot.boot;
            self.queue.push(self.now_us + after_us, Event::Agent(switch, boot));
        }
    }

    pub(super) fn agent_runs(&mut self, switch: u16, boot: u32) {
        let part = Part::Switch(switch);
        if self.is_paused(self.numbers.number(part), Event::Agent(switch, boot)) {
            return;
        }
        let now = self.now(part);
        let slot = &mut self.switches[usize::from(switch)];
        if slot.boot != boot {
            return;
        }
        slot.is_busy = false;
        let commands = std::mem::take(&mut slot.commands);
        self.agent_acts(switch, now, |agent| {
            for command in commands {
                agent.handle_message(now, command);
            }
        });
    }

    pub(super) fn wake_switch(&mut self, switch: u16) {
        let now = self.now(Part::Switch(switch));
        self.switches[usize::from(switch)].poll_at_us = u64::MAX;
        self.agent_acts(switch, now, |agent| {
            if now.is_due(agent.poll_timeout()) {
                agent.handle_timeout(now);
            } else {
                agent.handle_readable(now);
            }
        });
    }

    /// Lets the agent do something, with packets in between, and passes on what comes of it.
    fn agent_acts(&mut self, switch: u16, now: Now, acts: impl FnOnce(&mut Agent)) {
        let sequence_start = if self.is_healed() { 0 } else { self.plan.topology.sequence_start };
        let slot = &mut self.switches[usize::from(switch)];
        let Some(running) = &mut slot.running else { return };
        let RunningSwitch { datapath, agent, place, entries, cut, repeats } = &mut **running;
        let mut between = Between {
            running: datapath,
            plan: &self.plan,
            random: &mut self.random,
            unix_ms: now.unix_ms,
            sequence_start,
            place,
            entries,
            removed: Vec::new(),
            cut,
            repeats,
            held: &mut slot.held,
            passed: Vec::new(),
            probes: Vec::new(),
        };
        acts(agent);
        carry_out(agent, now, &mut between);
        while !between.held.is_empty() {
            let flight = between.held.remove(0);
            between.pass(flight);
        }
        let Between { passed, removed, probes, .. } = between;
        for (hash, version) in removed {
            self.check_removed(switch, &hash, version);
        }
        for (flight, verdict) in passed {
            self.carry_out(switch, flight, verdict);
        }
        for (to, packet) in probes {
            let mut flight = self.flights.buffer();
            flight.packet = packet;
            self.send_packet(Part::Switch(switch), to, flight);
        }
        self.pump_agent(switch);
    }

    fn pump_agent(&mut self, switch: u16) {
        let part = Part::Switch(switch);
        loop {
            let slot = &mut self.switches[usize::from(switch)];
            let Some(running) = &mut slot.running else { return };
            let Some(report) = running.agent.poll_message() else { break };
            self.follow_snapshot(switch, &report);
            self.report(part, report);
        }
        let slot = &self.switches[usize::from(switch)];
        let Some(running) = &slot.running else { return };
        let (due_us, poll_at_us) = (running.agent.poll_timeout(), slot.poll_at_us);
        if running.agent.is_taking_snapshot() {
            let step_us = 1 + self.random.exponential(self.plan.agents.step_us);
            self.arm_at(self.numbers.number(part), self.now_us + step_us);
        } else {
            self.arm(part, due_us);
        }
        if poll_at_us != u64::MAX {
            self.arm_at(self.numbers.number(part), poll_at_us);
        }
    }

    /// A keeper forgets a version only when the key's node has it.
    fn check_removed(&mut self, switch: u16, hash: &KeyHash, version: Seq) {
        if !self.is_at_node(hash, version) {
            let text =
                format!("switch{switch} forgets {version} of {hash:?}, which its node lacks");
            self.fail(Violation::general(Check::Kept, text));
        }
    }

    /// A version that the cache told in this epoch is at the key's node, or at every keeper that
    /// serves the epoch still.
    pub(super) fn check_kept(&mut self, epoch: u32, hash: &KeyHash, told: Seq) {
        let running = self.switches.iter().filter_map(|slot| slot.running.as_ref());
        let lacks = running.filter_map(|it| it.kept(epoch, hash)).find(|kept| *kept < told);
        if let Some(kept) = lacks
            && !self.is_at_node(hash, told)
        {
            let text = format!("{told} of {hash:?} was told in epoch {epoch}: a keeper has {kept}");
            self.fail(Violation::general(Check::Kept, text));
        }
    }

    /// A snapshot must be what the cache was when it began.
    fn follow_snapshot(&mut self, switch: u16, report: &SwitchReport) {
        let slot = &mut self.switches[usize::from(switch)];
        match report {
            SwitchReport::SnapshotChunk { index, records, .. } => {
                if *index == 0 {
                    slot.chunks.clear();
                }
                slot.chunks.extend(records.iter().cloned());
            }
            SwitchReport::SnapshotEnd { generation, complete, chunks, .. } => {
                if *chunks == 0 {
                    slot.chunks.clear();
                }
                let taken = std::mem::take(&mut slot.chunks);
                let cut = slot.running.as_mut().and_then(|running| running.cut.take());
                if let Some(cut) = cut.filter(|cut| *complete && cut.generation == *generation) {
                    self.compare_snapshot(&cut, &taken);
                }
                self.statistics.snapshots += u64::from(*complete);
            }
            _ => {}
        }
    }

    fn compare_snapshot(&mut self, cut: &Cut, taken: &[KeyedRecord]) {
        self.statistics.snapshots_compared += 1;
        let generation = cut.generation;
        let mut missing = cut.records.clone();
        for keyed in taken {
            let (hash, seq) = (keyed.hash, keyed.record.seq);
            if missing.remove(&hash) != Some(seq) {
                let was = cut.records.get(&hash);
                let text =
                    format!("snapshot {generation} has {seq} of {hash:?}, the cache had {was:?}");
                self.fail(Violation::general(Check::SnapshotCut, text));
            }
        }
        for (hash, seq) in missing {
            let text = format!("snapshot {generation} lacks {seq} of {hash:?}");
            self.fail(Violation::general(Check::SnapshotCut, text));
        }
    }
}
