//! What can happen, and what each of it does.

use super::config::Config;
use super::state::{Client, Command, Node, State, To};
use super::{Mechanism, Times};
use crate::explore::Model;
use crate::properties::Broken;

/// Something that can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A client begins its next operation.
    Invoke(u8),
    /// It waits for that no longer.
    GiveUp(u8),
    /// A packet arrives.
    Deliver(u16),
    /// A command arrives at the switch.
    CommandSwitch(u16),
    /// A command arrives at a node that is head in its view.
    CommandHead(u16, u8),
    /// The first frame on the link between two nodes arrives.
    Frame(u8, u8),
    /// A node hears that the tail has all that it has stored.
    Confirm(u8),
    /// The head offers the key, or says so again.
    Offer(u8),
    /// The key's eviction begins.
    Evict,
    /// A node dies.
    Crash(u8),
    /// A node restarts.
    Restart(u8),
    /// A link breaks.
    Break(u8, u8),
    /// The directory removes a node.
    Remove(u8),
    /// A node begins to join.
    Join(u8),
    /// Its source makes a copy for it.
    MakeCopy,
    /// It has the copy.
    CopyArrives,
    /// It becomes the tail.
    Append,
    /// The directory hears that the tail has opened.
    HearOpened,
    /// The switch routes by the newest view.
    Route,
    /// A node enters a view.
    Enter(u8, u8),
    /// The head takes nothing more in this view.
    Hold,
    /// The replicas at two places change them.
    Reorder(u8, u8),
    /// A node's floor rises.
    RaiseFloor(u8),
}

/// A state that something happens to.
pub(super) struct Step<'a> {
    pub(super) config: &'a Config,
    pub(super) state: State,
    pub(super) broken: Option<Broken>,
}

impl Step<'_> {
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        self.config.has(mechanism)
    }

    /// The first property that breaks is the one that is told.
    pub(super) fn breaks(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    fn act(&mut self, action: Action) {
        self.spend(action);
        match action {
            Action::Invoke(client) => self.invoke(client),
            Action::GiveUp(client) => self.give_up(client),
            Action::Deliver(at) => {
                let packet = self.state.packets[usize::from(at)];
                match packet.to {
                    To::Node(node) => self.node_receives(node, packet),
                    To::Switch => self.switch_receives(packet),
                    To::Client => self.client_receives(packet),
                }
            }
            Action::CommandSwitch(at) => match self.state.commands[usize::from(at)] {
                Command::Admit(mark) => self.admit(mark),
                Command::Remove(mark) => self.remove_entry(mark),
                Command::Store(..) | Command::Clear(_) => {}
            },
            Action::CommandHead(at, node) => {
                self.head_commanded(node, self.state.commands[usize::from(at)]);
            }
            Action::Frame(from, to) => self.frame_arrives(from, to),
            Action::Confirm(node) => self.state.node_mut(node).unconfirmed = false,
            Action::Offer(node) => self.offer(node),
            Action::Evict => self.evict(),
            Action::Crash(node) => self.crash(node),
            Action::Restart(node) => self.restart(node),
            Action::Break(from, to) => self.break_link(from, to),
            Action::Remove(node) => self.remove_node(node),
            Action::Join(node) => self.join(node),
            Action::MakeCopy => self.make_copy(),
            Action::CopyArrives => self.copy_arrives(),
            Action::Append => self.append_joiner(),
            Action::HearOpened => self.hear_opened(),
            Action::Route => self.state.switch.view = self.state.newest(),
            Action::Enter(node, view) => self.enter_view(node, view),
            Action::Hold => {
                let head = self.state.directory().head();
                self.state.node_mut(head).held = true;
            }
            Action::Reorder(one, other) => self.reorder(one, other),
            Action::RaiseFloor(node) => self.raise_floor(node),
        }
    }

    /// Counts what may happen a few times only.
    fn spend(&mut self, action: Action) {
        let lives = |node| self.state.node(node).is_up;
        let lived = matches!(action, Action::Remove(node) if lives(node));
        let spent = &mut self.state.spent;
        match action {
            Action::GiveUp(_) => spent.given_up += 1,
            Action::Evict => spent.evictions += 1,
            Action::Crash(_) => spent.crashes += 1,
            Action::Restart(_) => spent.restarts += 1,
            Action::Break(..) => spent.breaks += 1,
            Action::Remove(_) => spent.removals += u8::from(lived),
            Action::Join(_) => spent.joins += 1,
            Action::Hold => spent.reorders += 1,
            Action::RaiseFloor(_) => spent.floor_rises += 1,
            _ => {}
        }
    }
}

impl Model for Config {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        State::first(self)
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut add = |action, is_possible: bool| {
            if is_possible {
                actions.push(action);
            }
        };
        self.add_of_clients(state, &mut add);
        for at in 0..state.packets.len() as u16 {
            add(Action::Deliver(at), true);
        }
        self.add_of_commands(state, &mut add);
        self.add_of_links(state, &mut add);
        for node in 0..self.nodes() as u8 {
            self.add_of_node(state, node, &mut add);
        }
        self.add_of_directory(state, &mut add);
    }

    fn take(&self, state: &State, action: Action) -> (State, Option<Broken>) {
        let mut step = Step { config: self, state: state.clone(), broken: None };
        step.act(action);
        step.forget();
        step.check_state();
        (step.state, step.broken)
    }

    fn is_over(&self, state: &State) -> bool {
        let ended = |at: usize| usize::from(state.clients[at].ended) == self.clients[at].len();
        (0..self.clients.len()).all(ended)
    }

    /// While a client waits, and there are numbers.
    fn must_go_on(&self, state: &State) -> bool {
        let waits = state.clients.iter().any(|client| client.waits);
        waits && state.switch.counter < self.counter_max
    }
}

impl Config {
    fn add_of_clients(&self, state: &State, add: &mut impl FnMut(Action, bool)) {
        for (at, operations) in self.clients.iter().enumerate() {
            let Client { ended, waits, .. } = state.clients[at];
            let client = at as u8;
            add(Action::Invoke(client), !waits && usize::from(ended) < operations.len());
            let may_give_up = state.spent.given_up < self.at_most.given_up;
            add(Action::GiveUp(client), waits && may_give_up);
        }
    }

    fn add_of_commands(&self, state: &State, add: &mut impl FnMut(Action, bool)) {
        for (at, command) in state.commands.iter().enumerate() {
            let at = at as u16;
            match command {
                Command::Admit(_) | Command::Remove(_) => add(Action::CommandSwitch(at), true),
                Command::Store(..) | Command::Clear(_) => {
                    for node in 0..self.nodes() as u8 {
                        add(Action::CommandHead(at, node), state.decides(node));
                    }
                }
            }
        }
        let record = state.switch.record;
        let may_evict = state.spent.evictions < self.at_most.evictions;
        add(Action::Evict, record.mark != 0 && !record.evicting && may_evict);
    }

    /// A frame of a view that its receiver isn't in yet waits.
    fn add_of_links(&self, state: &State, add: &mut impl FnMut(Action, bool)) {
        let mut last = None;
        for frame in &state.frames {
            let link = (frame.from, frame.to);
            if last.replace(link) == Some(link) {
                continue;
            }
            let is_awaited = frame.view <= state.node(frame.to).view;
            let may_arrive = is_awaited || !self.has(Mechanism::FramesOfView);
            add(Action::Frame(frame.from, frame.to), may_arrive);
            let may_break = state.spent.breaks < self.at_most.breaks;
            add(Action::Break(frame.from, frame.to), may_break);
        }
    }

    fn add_of_node(&self, state: &State, node: u8, add: &mut impl FnMut(Action, bool)) {
        let Times { crashes, removals, restarts, joins, floor_rises, .. } = self.at_most;
        let Node { is_up, view, .. } = state.node(node);
        let is_dead = !is_up && state.may_lose(node);
        let is_taken_for_dead = is_up && state.spent.removals < removals && state.may_fail(node);
        add(Action::Remove(node), is_dead || is_taken_for_dead);
        if !is_up {
            return;
        }
        add(Action::Confirm(node), state.may_confirm(node));
        add(Action::Offer(node), self.may_offer(state, node));
        add(Action::Restart(node), view != 0 && state.spent.restarts < restarts);
        add(Action::Crash(node), state.spent.crashes < crashes && state.may_fail(node));
        add(Action::Join(node), state.spent.joins < joins && state.may_join(node));
        for later in view + 1..=state.newest() {
            let routed = later <= state.switch.view || !self.has(Mechanism::SwitchFirst);
            add(Action::Enter(node, later), state.view(later).has(node) && routed);
        }
        let may_rise = state.spent.floor_rises < floor_rises;
        add(Action::RaiseFloor(node), may_rise && state.floor_due(node, self).is_some());
    }

    /// Whether the key may be offered, or that it is said again: it may have been lost.
    fn may_offer(&self, state: &State, node: u8) -> bool {
        let stored = state.node(node).stored;
        let is_new = !stored.is_offered() && state.spent.offers < self.at_most.offers;
        let is_again = stored.is_offered() && stored.mark > state.switch.admitted_to;
        state.decides(node) && (is_new || is_again && !state.offer_is_under_way())
    }

    fn add_of_directory(&self, state: &State, add: &mut impl FnMut(Action, bool)) {
        add(Action::MakeCopy, state.may_copy());
        add(Action::CopyArrives, state.may_take_copy());
        add(Action::Append, state.may_append());
        add(Action::HearOpened, state.has_opened());
        add(Action::Route, state.switch.view < state.newest());
        let may_hold = state.spent.reorders < self.at_most.reorders;
        add(Action::Hold, may_hold && state.may_hold());
        if state.may_reorder(self.has(Mechanism::ReorderFlushed)) {
            let places = state.directory().replicas().len() as u8;
            for one in 0..places {
                (one + 1..places).for_each(|other| add(Action::Reorder(one, other), true));
            }
        }
    }
}
