//! Forgets packets and commands that can't change anything any more, so that states that differ in
//! nothing else are one.
//!
//! Each rule here says why. A test explores small configurations with and without them.

use crate::ablation::Mechanism;
use crate::config::Config;
use crate::state::{
    Command, Entry, Keeper, LaneState, Op, Packet, Phase, Record, State, Switch, To,
};
use crate::step::Step;

/// What the reasons rest on; an ablation takes some away.
#[derive(Clone, Copy)]
struct Reasons {
    epochs: bool,
    arbiter: bool,
    fences: bool,
    stores: bool,
    commands: bool,
    keeping: bool,
}

impl Step<'_> {
    /// Forgets what is dead.
    pub(crate) fn forget(&mut self) {
        let other_rules = self.has(Mechanism::Outdated)
            && self.has(Mechanism::Validity)
            && self.has(Mechanism::IncarnationCheck);
        let reasons = Reasons {
            epochs: self.has(Mechanism::EpochFence)
                && self.has(Mechanism::EpochByRack)
                && self.has(Mechanism::OwnChain),
            arbiter: self.has(Mechanism::Completion) && self.has(Mechanism::RetryOldSeq),
            fences: self.has(Mechanism::Fence) && other_rules,
            stores: self.has(Mechanism::SeqCompare)
                && self.has(Mechanism::Dependent)
                && self.config.floor_rises == 0,
            commands: other_rules
                && self.has(Mechanism::OfferedStores)
                && self.has(Mechanism::LateClearing),
            keeping: self.has(Mechanism::KeepNewest)
                && self.has(Mechanism::DropUnkept)
                && self.has(Mechanism::KeepersFirst),
        };
        if reasons.epochs {
            self.forget_zombies();
        }
        let mut commands = std::mem::take(&mut self.state.commands);
        commands.retain(|command| !is_dead_command(&self.state, command, reasons));
        self.state.commands = commands;
        let mut packets = std::mem::take(&mut self.state.packets);
        packets.retain(|packet| !is_dead(self.config, &self.state, packet, reasons));
        self.state.packets = packets;
    }

    /// Once node and clients have left an epoch, nothing that its switches do is seen; nor is it
    /// once they refuse their epoch. What a recovery may load from them stays.
    fn forget_zombies(&mut self) {
        let clients =
            self.state.clients[..self.config.clients.len()].iter().map(|client| client.epoch);
        let oldest = clients.min().expect("there are clients").min(self.state.node.epoch);
        let (controller, owner) = (self.state.controller, self.config.owner());
        let chains = self.state.switches.iter_mut().zip(&mut self.state.keepers);
        for (switch, keepers) in chains.filter(|(switch, _)| switch.epoch != 0) {
            let counts = controller.phase != Phase::Serving
                && switch.epoch == controller.recovered_epoch
                && (controller.witnesses != 0 || controller.was_drained);
            let is_over = switch.epoch < oldest;
            if is_over && !counts {
                (*switch, *keepers) = (Switch::default(), Default::default());
                continue;
            }
            // After a restart of the controller all members of a drained chain are asked.
            let witnesses = match controller.was_drained {
                true if counts => self.config.members(),
                false if counts => controller.witnesses,
                _ => 0,
            };
            for (place, keeper) in keepers[..owner].iter_mut().enumerate() {
                let is_witness = witnesses & 1 << place != 0;
                forget_of_keeper(keeper, is_over, is_witness);
            }
            forget_of_owner(switch, is_over, witnesses & 1 << owner != 0);
        }
        self.state.packets.retain(|packet| packet.epoch >= oldest);
    }
}

fn forget_of_keeper(keeper: &mut Keeper, is_over: bool, is_witness: bool) {
    if !is_witness && (keeper.frozen || is_over) {
        *keeper = Keeper { frozen: true, ..Keeper::default() };
    } else if keeper.frozen {
        *keeper = Keeper { frozen: true, version: keeper.version, ..Keeper::default() };
    }
}

fn forget_of_owner(switch: &mut Switch, is_over: bool, is_witness: bool) {
    let Switch { epoch, frozen, record, admitted_to, .. } = *switch;
    if !is_witness && (frozen || is_over) {
        *switch = Switch { epoch, frozen: true, ..Switch::default() };
    } else if frozen {
        let record = Record { version: record.version, ..Record::default() };
        *switch = Switch { epoch, frozen, record, ..Switch::default() };
    } else if is_over {
        *switch = Switch { epoch, record, admitted_to, ..Switch::default() };
    }
}

fn is_dead(config: &Config, state: &State, packet: &Packet, reasons: Reasons) -> bool {
    let client = &state.clients[usize::from(packet.client)];
    let waits = packet.request > client.ended && (packet.epoch >= client.epoch || !reasons.epochs);
    match packet.to {
        To::Client => !waits,
        // The node's epoch only rises.
        To::Node if reasons.epochs && packet.epoch < state.node.epoch => true,
        To::Keeper(place) => {
            let chain = state.chain_of(packet.epoch);
            let place = usize::from(place);
            reasons.epochs
                && chain.is_some_and(|chain| {
                    let frozen = state.keepers[chain][place].frozen;
                    frozen || !waits && is_kept(config, state, packet, (chain, place), reasons)
                })
        }
        To::Node | To::Switch => {
            let switch = state.switches.iter().find(|switch| switch.epoch == packet.epoch);
            switch.is_some_and(|switch| is_dead_there(state, switch, packet, waits, reasons))
        }
    }
}

/// Whether a packet that no client waits for is nothing new to a keeper, nor to those after it:
/// they have it, or have no entry, and get none in this epoch.
fn is_kept(
    config: &Config,
    state: &State,
    packet: &Packet,
    (chain, place): (usize, usize),
    reasons: Reasons,
) -> bool {
    let (spent, controller) = (&state.spent, &state.controller);
    let may_admit = packet.epoch == controller.epoch
        && (spent.admissions < config.admissions
            || spent.controller_restarts < config.controller_restarts
            || controller.phase != Phase::Serving);
    let admits = |command: &Command| match command {
        Command::AdmitKeeper(_, entry) => entry.epoch == packet.epoch,
        _ => false,
    };
    let is_answer = !matches!(packet.op, Op::Read | Op::Write | Op::ConditionalWrite);
    let nothing_new = |keeper: &Keeper| {
        keeper.frozen || !keeper.is_valid() || keeper.version.seq >= packet.version.seq
    };
    let settled = !may_admit && !state.commands.iter().any(admits);
    let keepers = &state.keepers[chain][..=place];
    reasons.keeping && is_answer && settled && keepers.iter().all(nothing_new)
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
        (To::Switch, _) if switch.frozen => true,
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
    let serves = |switch: &&Switch| !switch.frozen;
    let of = |epoch: u8| state.switches.iter().find(|switch| switch.epoch == epoch).filter(serves);
    let keeper = |place: u8, entry: &Entry| {
        let chain = state.chain_of(entry.epoch);
        let keeper = chain.map(|chain| &state.keepers[chain][usize::from(place)]);
        keeper.filter(|keeper| !keeper.frozen)
    };
    match command {
        Command::AdmitKeeper(place, entry) => {
            keeper(*place, entry).is_none_or(|keeper| entry.id <= keeper.admitted_to)
        }
        Command::RemoveKeeper(place, entry) => {
            keeper(*place, entry).is_none_or(|keeper| keeper.entry != *entry)
        }
        Command::MarkClean(entry, _) => {
            of(entry.epoch).is_none_or(|switch| switch.record.entry != *entry)
        }
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
        Command::StoreEvicted(entry, _)
        | Command::StoreCleaned(entry, _)
        | Command::ClearOffer(entry) => {
            entry.epoch < state.node.epoch
                || entry.epoch == state.node.epoch && entry.offer != state.node.offer
        }
        Command::StoreRecovered(epoch, _) | Command::Release(epoch) => {
            *epoch < state.node.epoch || *epoch == state.node.epoch && !state.node.held
        }
        Command::Released(epoch) => {
            *epoch != state.controller.epoch || state.controller.phase != Phase::Storing
        }
    }
}
