//! What can happen next, and what comes of it.

use crate::ablation::Mechanism;
use crate::config::Config;
use crate::controller::{may_begin_snapshot, may_freeze, may_hand_over, may_store_gathered};
use crate::explore::Model;
use crate::properties::Broken;
use crate::state::{Client, Command, Controller, Packet, Phase, Seq, State, Switch, To, Version};

/// Something that can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A client begins its next operation.
    Invoke(u8),
    /// A client gives its operation up.
    GiveUp(u8),
    /// A packet arrives; in the chain of this index, if it is for a switch.
    Deliver(u16, u8),
    /// A command arrives; in the chain of this index, if it is for a switch.
    Command(u16, u8),
    /// On one core a write that has its number goes on.
    GoOn(u8, u8),
    /// The node offers the key.
    Offer,
    /// The controller evicts it.
    Evict,
    /// A dirty record is to be stored, and to be clean then.
    Clean,
    /// Switches die, or are taken for dead: of the last recovered chain these can be asked for what
    /// they have, a bit each.
    Crash(u8),
    /// All switches are exchanged while they live.
    Change,
    /// A drained chain is exchanged for one of other switches.
    HandOver,
    /// The partition goes to another chain.
    Move,
    /// The other chain is recovered.
    RecoverOther,
    /// A client hears of its old chain's new epoch before it hears that the partition moved.
    HearOther(u8),
    /// A witness is told to refuse its epoch, and is loaded.
    Freeze(u8),
    /// The node hears of the new epoch.
    NodeChangesEpoch,
    /// A client hears of it, and answers the gather.
    Gather(u8),
    /// Clients were gathered from.
    StoreGathered,
    /// A client hears that the recovery is over.
    HearRecovered(u8),
    /// A snapshot begins.
    BeginSnapshot,
    /// The agent has loaded it.
    EndSnapshot,
    /// It is durable.
    StoreSnapshot,
    /// A client hears that it is.
    HearDurable(u8),
    /// The node restarts.
    RestartNode,
    /// The controller restarts.
    RestartController,
    /// The floor of the node rises.
    RaiseFloor,
    /// What was to expire expires.
    Expire,
}

/// A step from one state to another.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// What is explored.
    pub(crate) config: &'a Config,
    /// The state.
    pub(crate) state: State,
    /// The first property that the step broke.
    pub(crate) broken: Option<Broken>,
}

impl Step<'_> {
    /// Whether the rules include a mechanism.
    pub(crate) fn has(&self, mechanism: Mechanism) -> bool {
        self.config.has(mechanism)
    }

    /// A property doesn't hold.
    pub(crate) fn breaks(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    /// Whether the owner of a version takes it for expired: there is one clock.
    pub(crate) fn has_expired(&self, version: Version) -> bool {
        self.state.expired && self.config.expires(version.value)
    }

    fn go_on(&mut self, at: usize, client: u8) {
        let locked = self.state.switches[at].lanes[usize::from(client)].locked.take();
        self.write_numbered(at, locked.expect("it is possible only then"));
    }

    fn act(&mut self, action: Action) {
        let spent = &mut self.state.spent;
        match action {
            Action::Invoke(client) => self.invoke(client),
            Action::GiveUp(client) => self.gives_up(client),
            Action::Deliver(packet, at) => {
                let packet = self.state.packets[usize::from(packet)];
                match packet.to {
                    To::Switch => self.switch_receives(at.into(), packet),
                    To::Keeper(place) => self.keeper_receives(at.into(), place.into(), packet),
                    To::Node => self.node_receives(packet),
                    To::Client => self.client_receives(packet),
                }
            }
            Action::Command(command, at) => {
                let command = self.state.commands[usize::from(command)];
                self.commanded(command, at.into());
            }
            Action::GoOn(at, client) => self.go_on(at.into(), client),
            Action::Offer => {
                spent.admissions += 1;
                self.offer();
            }
            Action::Evict => {
                spent.evictions += 1;
                self.evict();
            }
            Action::Clean => {
                spent.cleanings += 1;
                self.clean();
            }
            Action::Crash(witnesses) => {
                spent.crashes += 1;
                self.begin_recovery(witnesses);
            }
            Action::Change => {
                spent.changes += 1;
                self.begin_recovery(self.config.members());
            }
            Action::HandOver => {
                spent.hand_overs += 1;
                self.hand_over();
            }
            Action::Move => {
                spent.moves += 1;
                self.move_partition();
            }
            Action::RecoverOther => {
                spent.other_recoveries += 1;
                self.recover_other();
            }
            Action::HearOther(client) => self.moves_to(client, self.state.controller.other_epoch),
            Action::Freeze(member) => self.freeze(member.into()),
            Action::NodeChangesEpoch => self.node_changes_epoch(),
            Action::Gather(client) => self.gather_from(client),
            Action::StoreGathered => self.store_gathered(),
            Action::HearRecovered(client) => self.hears_recovered(client),
            Action::BeginSnapshot => {
                spent.snapshots += 1;
                self.begin_snapshot();
            }
            Action::EndSnapshot => self.end_snapshot(),
            Action::StoreSnapshot => self.store_snapshot(),
            Action::HearDurable(client) => self.hears_durable(client),
            Action::RestartNode => {
                spent.node_restarts += 1;
                self.node_restarts();
            }
            Action::RestartController => {
                spent.controller_restarts += 1;
                self.controller_restarts();
            }
            Action::RaiseFloor => {
                spent.floor_rises += 1;
                self.raise_floor();
            }
            Action::Expire => self.state.expired = true,
        }
    }
}

impl Model for Config {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        let mut state = State::default();
        // Another chain has older epochs.
        let (epoch, other_epoch) = if self.has_other_chain() { (3, 1) } else { (1, 0) };
        state.switches[0] = Switch { epoch, generation: 1, ..Switch::default() };
        state.controller = Controller {
            epoch,
            recovered_epoch: epoch,
            is_preserved: self.is_preserved(0),
            last_epoch: epoch,
            other_epoch,
            generation: 1,
            ..Controller::default()
        };
        state.node.epoch = epoch;
        state.node.floor_of_epoch = Seq::new(epoch, 0);
        for client in &mut state.clients[..self.clients.len()] {
            *client = Client { epoch, recovered_epoch: epoch, ..Client::default() };
        }
        state
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        of_clients(self, state, actions);
        of_faults(self, state, actions);
        of_snapshots(self, state, actions);
        of_packets(self, state, actions);
        of_commands(state, actions);
        for at in chains(state) {
            for (client, lane) in state.switches[usize::from(at)].lanes.iter().enumerate() {
                if lane.locked.is_some() {
                    actions.push(Action::GoOn(at, client as u8));
                }
            }
        }
    }

    /// Without the packets that can't matter any more.
    fn take(&self, state: &State, action: Action) -> (State, Option<Broken>) {
        let mut step = Step { config: self, state: state.clone(), broken: None };
        step.act(action);
        step.check_state();
        if !self.keeps_dead_packets {
            step.forget();
        }
        (step.state, step.broken)
    }

    fn is_over(&self, state: &State) -> bool {
        let ended = |at: usize| usize::from(state.clients[at].ended) == self.clients[at].len();
        (0..self.clients.len()).all(ended)
    }

    /// Once the numbers are used up, writes end only with an epoch.
    fn must_go_on(&self, state: &State) -> bool {
        state.switches[state.active()].counter < self.counter_max
    }
}

fn of_packets(config: &Config, state: &State, actions: &mut Vec<Action>) {
    for (index, packet) in state.packets.iter().enumerate() {
        match packet.to {
            To::Switch | To::Keeper(_) => {
                let chains = taking(config, state, packet);
                actions.extend(chains.map(|chain| Action::Deliver(index as u16, chain)));
            }
            To::Node | To::Client => actions.push(Action::Deliver(index as u16, 0)),
        }
    }
}

fn of_commands(state: &State, actions: &mut Vec<Action>) {
    for (index, command) in state.commands.iter().enumerate() {
        match command {
            Command::AdmitKeeper(_, entry)
            | Command::Admit(entry)
            | Command::EvictBegin(entry)
            | Command::Remove(entry)
            | Command::RemoveKeeper(_, entry)
            | Command::MarkClean(entry, _) => {
                let named = state.chain_of(entry.epoch).map(|chain| chain as u8);
                actions.extend(named.map(|chain| Action::Command(index as u16, chain)));
            }
            _ => actions.push(Action::Command(index as u16, 0)),
        }
    }
}

fn chains(state: &State) -> impl Iterator<Item = u8> {
    (0..state.switches.len() as u8).filter(|at| state.switches[usize::from(*at)].epoch != 0)
}

/// The chains that may take a packet: that of its epoch.
fn taking(config: &Config, state: &State, packet: &Packet) -> impl Iterator<Item = u8> {
    let fenced = config.has(Mechanism::EpochFence);
    chains(state)
        .filter(move |at| !fenced || state.switches[usize::from(*at)].epoch == packet.epoch)
}

fn of_clients(config: &Config, state: &State, actions: &mut Vec<Action>) {
    let controller = &state.controller;
    for (at, operations) in config.clients.iter().enumerate() {
        let (client, number) = (&state.clients[at], at as u8);
        if !client.waits && usize::from(client.ended) < operations.len() {
            actions.push(Action::Invoke(number));
        }
        if client.waits && (config.floor_rises > 0 || config.gives_up) {
            actions.push(Action::GiveUp(number));
        }
        if client.epoch != controller.epoch {
            actions.push(Action::Gather(number));
            if state.spent.moves > 0 && client.epoch < controller.other_epoch {
                actions.push(Action::HearOther(number));
            }
        }
        if config.has_preserved()
            && client.recovered_epoch < controller.recovered_epoch
            && client.epoch >= controller.recovered_epoch
        {
            actions.push(Action::HearRecovered(number));
        }
        if client.durable_generation < controller.published {
            actions.push(Action::HearDurable(number));
        }
    }
}

fn of_faults(config: &Config, state: &State, actions: &mut Vec<Action>) {
    let (spent, node) = (&state.spent, &state.node);
    let record = &state.switches[state.active()].record;
    if spent.admissions < config.admissions && node.offer == 0 {
        actions.push(Action::Offer);
    }
    if spent.evictions < config.evictions && record.is_valid() && !record.evicting {
        actions.push(Action::Evict);
    }
    if spent.cleanings < config.cleanings && record.is_valid() && record.dirty {
        actions.push(Action::Clean);
    }
    if spent.crashes < config.crashes {
        actions.extend(survivors(config, state).map(Action::Crash));
    }
    let serves = state.controller.phase == Phase::Serving;
    if spent.changes < config.changes && serves {
        actions.push(Action::Change);
    }
    if spent.hand_overs < config.hand_overs && serves && may_hand_over(config, state) {
        actions.push(Action::HandOver);
    }
    if spent.moves < config.moves && serves {
        actions.push(Action::Move);
    }
    if spent.other_recoveries < config.other_recoveries {
        actions.push(Action::RecoverOther);
    }
    if spent.node_restarts < config.node_restarts {
        actions.push(Action::RestartNode);
    }
    if spent.controller_restarts < config.controller_restarts {
        actions.push(Action::RestartController);
    }
    if spent.floor_rises < config.floor_rises {
        actions.push(Action::RaiseFloor);
    }
    if node.epoch != state.controller.epoch {
        actions.push(Action::NodeChangesEpoch);
    }
    if !state.expired && config.has_expiring() {
        actions.push(Action::Expire);
    }
}

/// Who may be left once switches have died: any members of the chain, but not all; within a
/// recovery any of its witnesses, all of them if those of the new chain died. Where clients
/// preserve nothing, one is left, unless the loss is to be declared.
fn survivors(config: &Config, state: &State) -> impl Iterator<Item = u8> {
    let serves = state.controller.phase == Phase::Serving;
    let of = if serves { config.members() } else { state.controller.witnesses };
    let least = u8::from(!state.controller.is_preserved && !config.declares && of != 0);
    let most = if serves { of - 1 } else { of };
    (least..=most).filter(move |some| some & !of == 0)
}

fn of_snapshots(config: &Config, state: &State, actions: &mut Vec<Action>) {
    let controller = &state.controller;
    let taking = state.switches[state.active()].taking.generation;
    if state.spent.snapshots < config.snapshots && taking == 0 && may_begin_snapshot(config, state)
    {
        actions.push(Action::BeginSnapshot);
    }
    if taking != 0 {
        actions.push(Action::EndSnapshot);
    }
    if controller.taking != 0 && controller.taking == controller.snapshot.generation {
        actions.push(Action::StoreSnapshot);
    }
    actions.extend(may_freeze(config, state).map(|member| Action::Freeze(member as u8)));
    if may_store_gathered(config, state) {
        actions.push(Action::StoreGathered);
    }
}
