//! Forgets packets and commands that can't change anything any more, so that states that differ in
//! nothing else are one.
//!
//! Each rule here says why. A test explores small configurations with and without them.

use crate::ablation::Mechanism;
use crate::state::{Command, LaneState, Op, Packet, State, Switch, To};
use crate::step::Step;

/// What the reasons rest on; an ablation takes some away.
#[derive(Clone, Copy)]
struct Reasons {
    epochs: bool,
    arbiter: bool,
    fences: bool,
    stores: bool,
    commands: bool,
}

impl Step<'_> {
    /// Forgets what is dead.
    pub(crate) fn forget(&mut self) {
        let other_rules = self.has(Mechanism::Outdated)
            && self.has(Mechanism::Validity)
            && self.has(Mechanism::IncarnationCheck);
        let reasons = Reasons {
            epochs: self.has(Mechanism::EpochFence),
            arbiter: self.has(Mechanism::Completion) && self.has(Mechanism::RetryOldSeq),
            fences: self.has(Mechanism::Fence) && other_rules,
            stores: self.has(Mechanism::SeqCompare)
                && self.has(Mechanism::Dependent)
                && self.config.floor_rises == 0,
            commands: other_rules
                && self.has(Mechanism::OfferedStores)
                && self.has(Mechanism::LateClearing),
        };
        if reasons.epochs {
            self.forget_zombies();
        }
        let mut packets = std::mem::take(&mut self.state.packets);
        packets.retain(|packet| !is_dead(&self.state, packet, reasons));
        self.state.packets = packets;
        let mut commands = std::mem::take(&mut self.state.commands);
        commands.retain(|command| !is_dead_command(&self.state, command, reasons));
        self.state.commands = commands;
    }

    /// Once node and clients have left an epoch, nothing that its switch does is seen.
    fn forget_zombies(&mut self) {
        let clients =
            self.state.clients[..self.config.clients.len()].iter().map(|client| client.epoch);
        let oldest = clients.min().expect("there are clients").min(self.state.node.epoch);
        for switch in &mut self.state.switches {
            if switch.epoch != 0 && switch.epoch < oldest {
                *switch = Switch::default();
            }
        }
        self.state.packets.retain(|packet| packet.epoch >= oldest);
    }
}

fn is_dead(state: &State, packet: &Packet, reasons: Reasons) -> bool {
    let client = &state.clients[usize::from(packet.client)];
    let waits = packet.request > client.ended && (packet.epoch >= client.epoch || !reasons.epochs);
    match packet.to {
        To::Client => !waits,
        // The node's epoch only rises.
        To::Node if reasons.epochs && packet.epoch < state.node.epoch => true,
        To::Node | To::Switch => {
            let switch = state.switches.iter().find(|switch| switch.epoch == packet.epoch);
            switch.is_some_and(|switch| is_dead_there(state, switch, packet, waits, reasons))
        }
    }
}

fn is_dead_there(
    state: &State,
    switch: &Switch,
    packet: &Packet,
    waits: bool,
    reasons: Reasons,
) -> bool {
    if !reasons.epochs {
        return false; // any switch may take it
    }
    let node = &state.node;
    let lane = &switch.lanes[usize::from(packet.client)];
    let same = lane.request == packet.request && lane.seq == packet.version.seq;
    // Only the lane that waits for it takes a node's word on a write; a number is given out once.
    let arbiter_waits = lane.state == LaneState::Forwarded && same || !reasons.arbiter;
    match (packet.to, packet.op) {
        // Their answers reach no client, and they change nothing else.
        (To::Node, Op::Read) | (To::Switch, Op::ReadReply) => !waits,
        (To::Node, Op::EmbeddedRead) => {
            !waits && packet.version.seq <= node.stored.seq && reasons.stores
        }
        (To::Node, Op::FencedRead) => {
            !waits && reasons.fences && packet.guard <= node.fence && !can_promote(switch, packet)
        }
        (To::Switch, Op::FencedReadReply) => {
            !waits && reasons.fences && !can_promote(switch, packet)
        }
        (To::Switch, Op::WriteReply | Op::ConditionFailed | Op::Bounce | Op::BounceConditional) => {
            !arbiter_waits
        }
        // Answered or bounced, and the switch takes neither.
        (To::Node, Op::Write) => {
            let decided = packet.version.seq <= node.base || packet.version.seq <= node.fence;
            !arbiter_waits && decided && reasons.stores && reasons.fences
        }
        (To::Switch, Op::Write | Op::ConditionalWrite) => {
            let over = lane.state != LaneState::None && !waits;
            let known = packet.request < lane.request || packet.request == lane.request && over;
            reasons.arbiter && known && lane.locked.is_none()
        }
        _ => false,
    }
}

/// Whether the answer to a fenced read may promote the record of this switch, now or later: `adm`
/// of a record only rises, and that of one that comes later is at least the last number given out
/// now.
fn can_promote(switch: &Switch, packet: &Packet) -> bool {
    let record = &switch.record;
    let now = record.is_valid() && !record.latest && !record.evicting && packet.guard >= record.adm;
    now || packet.guard >= switch.last()
}

fn is_dead_command(state: &State, command: &Command, reasons: Reasons) -> bool {
    if !reasons.commands || !reasons.epochs {
        return false;
    }
    let of = |epoch: u8| state.switches.iter().find(|switch| switch.epoch == epoch);
    match command {
        Command::Admit(entry) => {
            of(entry.epoch).is_none_or(|switch| entry.id <= switch.admitted_to)
        }
        Command::EvictBegin(entry) | Command::Remove(entry) => {
            let named = |switch: &Switch| {
                switch.record.entry.id == entry.id || entry.id > switch.admitted_to
            };
            !of(entry.epoch).is_some_and(named)
        }
        // Its offer is cleared only after the entry went, so it was stored by then.
        Command::StoreEvicted(entry, _) | Command::ClearOffer(entry) => {
            entry.epoch < state.node.epoch
                || entry.epoch == state.node.epoch && entry.offer != state.node.offer
        }
        Command::StoreRecovered(epoch, _) | Command::Release(epoch) => {
            *epoch < state.node.epoch || *epoch == state.node.epoch && !state.node.held
        }
    }
}
