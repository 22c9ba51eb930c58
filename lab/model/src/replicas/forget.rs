//! Forgets packets, frames and commands that can't change anything any more, so that states that
//! differ in nothing else are one.
//!
//! Each rule here says why. A test explores small configurations with and without them.

use super::Mechanism;
use super::config::Config;
use super::state::{Command, Packet, State, To};
use super::step::Step;
use crate::state::{LaneState, Op};

impl Step<'_> {
    /// Forgets what is dead.
    pub(super) fn forget(&mut self) {
        if self.config.keeps_dead_packets {
            return;
        }
        let mut packets = std::mem::take(&mut self.state.packets);
        packets.retain(|packet| !is_dead(self.config, &self.state, packet));
        self.state.packets = packets;
        let mut commands = std::mem::take(&mut self.state.commands);
        commands.retain(|command| !is_dead_command(&self.state, command));
        self.state.commands = commands;
        // A node's view only rises.
        if self.has(Mechanism::FramesOfView) {
            let nodes = self.state.nodes;
            self.state.frames.retain(|frame| frame.view >= nodes[usize::from(frame.to)].view);
        }
    }
}

fn is_dead(config: &Config, state: &State, packet: &Packet) -> bool {
    let waits = packet.request > state.clients[usize::from(packet.client)].ended;
    match packet.to {
        To::Client => !waits,
        To::Switch => is_dead_at_switch(config, state, packet, waits),
        To::Node(node) => {
            let is_gone = !state.node(node).is_up || packet.view < state.node(node).view;
            is_gone || is_dead_at_node(config, state, packet, waits)
        }
    }
}

fn is_dead_at_switch(config: &Config, state: &State, packet: &Packet, waits: bool) -> bool {
    let lane = &state.switch.lanes[usize::from(packet.client)];
    match packet.op {
        // Of a key that is never cached it goes to the tail, which has nothing to remember of it.
        Op::Read => !waits && config.at_most.offers == 0,
        Op::ReadReply => !waits,
        Op::FencedReadReply => !waits && !can_promote(state, packet),
        // Only the lane that waits for it takes it, and a number is given out once.
        Op::WriteReply | Op::ConditionFailed | Op::Bounce | Op::BounceConditional => {
            !lane.waits_for(packet)
        }
        // The lane knows it, and its answer reaches no client.
        Op::Write | Op::ConditionalWrite => {
            !waits && lane.state != LaneState::None && packet.request <= lane.request
        }
        Op::FencedRead | Op::EmbeddedRead => true,
    }
}

/// What a node has done once it may have to do again when its floor rises, which takes knowledge
/// away.
fn is_dead_at_node(config: &Config, state: &State, packet: &Packet, waits: bool) -> bool {
    let To::Node(node) = packet.to else { return false };
    let stored = &state.node(node).stored;
    let seq = packet.version.seq;
    let remembers = config.at_most.floor_rises == 0;
    match packet.op {
        Op::Read => !waits,
        Op::EmbeddedRead => !waits && remembers && seq <= stored.version.seq,
        Op::FencedRead => {
            let is_set = packet.guard <= stored.fence;
            !waits && remembers && is_set && !can_promote(state, packet)
        }
        // It is answered or bounced, and the switch takes neither.
        Op::Write => {
            let is_decided = seq <= stored.base || seq <= stored.fence;
            let lane = &state.switch.lanes[usize::from(packet.client)];
            remembers && is_decided && !lane.waits_for(packet)
        }
        _ => false,
    }
}

/// Whether the answer to a fenced read may promote the cached record, now or later: `adm` of a
/// record only rises, and that of one that comes later is at least the last number given out now.
fn can_promote(state: &State, packet: &Packet) -> bool {
    let record = &state.switch.record;
    let now = record.mark != 0 && !record.latest && !record.evicting && packet.guard >= record.adm;
    now || packet.guard >= state.switch.counter
}

fn is_dead_command(state: &State, command: &Command) -> bool {
    let is_cached = |mark: u8| state.switch.record.mark == mark;
    let may_be_marked = |mark: u8| {
        let mut nodes = state.nodes.iter().filter(|node| node.is_up);
        nodes.any(|node| node.stored.mark <= mark)
    };
    match *command {
        Command::Admit(mark) => mark <= state.switch.admitted_to,
        // Its entry has gone and doesn't come again.
        Command::Remove(mark) => !is_cached(mark) && mark <= state.switch.admitted_to,
        // Marks only rise.
        Command::Store(mark, _) => !is_cached(mark) && !may_be_marked(mark),
        Command::Clear(mark) => !may_be_marked(mark),
    }
}
