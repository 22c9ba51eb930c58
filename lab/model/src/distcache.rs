//! DistCache (Liu et al., FAST '19), as rules C1 to C5 of `docs/understand/model.md` correct it:
//! one key, one node, a copy in its leaf and one in its spine, a few clients.
//!
//! Caches are read-only. A read is answered by a copy that has the node's latest version, else by
//! the node. A write goes through the leaf, which numbers it, to the node. The node invalidates
//! every copy that it knows of, gives the write to its storage engine once all are invalid, and
//! answers when that has applied it. It sends the copies a version while no write waits or is being
//! applied. What was invalidated and was sent nothing since is still
//! invalid: further writes don't wait for it.
//!
//! The network is as in the other model: everything that was ever sent may arrive any number of
//! times, at any later moment, or never. A spine that is taken for dead runs on, and its clients
//! hear of it one by one.

use crate::config::Kind;
use crate::explore::Model;
use crate::linearizability::is_linearizable;
use crate::properties::Broken;
use crate::state::{CLIENTS_MAX, OPERATIONS_MAX, operation_at, operation_index, value_of};
use std::fmt::{self, Write as _};

/// The copies' places.
const LEAF: usize = 0;
const SPINE: usize = 1;

/// A mechanism that a run can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// A write is applied once every copy has acknowledged that it is invalid.
    InvalidatedFirst,
    /// A copy takes no version older than it has, or than it was invalidated for.
    UpdateCompared,
    /// Invalidations and updates name the incarnation of the copy that they are for.
    IncarnationNamed,
    /// The node forgets a copy once its entry is gone.
    UnregisteredLast,
    /// The node goes on without a dead spine once all clients have left its epoch.
    ZombieAwaited,
    /// A switch acknowledges only for incarnations that it had itself.
    OwnIncarnations,
    /// A copy that is sent a version counts as one that answers.
    SentIsHeard,
    /// After its restart the node takes every copy for one that answers.
    RestartedUnsure,
    /// No copy is sent a version while the storage engine has a write.
    FilledWhenQuiet,
    /// Writes that the engine was given before the key had copies count as well.
    EarlierCounted,
}

/// Every ablation: its name, and what it leaves out.
pub const ABLATIONS: &[(&str, Mechanism)] = &[
    ("answer-before-invalidated", Mechanism::InvalidatedFirst),
    ("update-not-compared", Mechanism::UpdateCompared),
    ("update-any-incarnation", Mechanism::IncarnationNamed),
    ("unregister-first", Mechanism::UnregisteredLast),
    ("no-wait-for-zombie", Mechanism::ZombieAwaited),
    ("successor-acknowledges", Mechanism::OwnIncarnations),
    ("sent-is-invalid", Mechanism::SentIsHeard),
    ("restarted-is-invalid", Mechanism::RestartedUnsure),
    ("fill-under-writes", Mechanism::FilledWhenQuiet),
    ("earlier-writes-uncounted", Mechanism::EarlierCounted),
];

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The operations of each client, one after another: reads and writes.
    pub clients: Vec<Vec<Kind>>,
    /// How often a copy may be admitted, in all.
    pub admissions: u8,
    /// How often a copy may be evicted, in all.
    pub evictions: u8,
    /// The spine may be taken for dead.
    pub crashes: bool,
    /// The node may restart, once.
    pub restarts: bool,
    /// What is left out.
    pub without: Vec<Mechanism>,
}

impl Config {
    /// Two admissions and one eviction, no crash, no restart, and these operations: `WR,R` is a
    /// client that writes and reads, and one that reads.
    pub fn of(operations: &str) -> Result<Config, String> {
        let crate::config::Config { clients, .. } = crate::config::Config::of(operations)?;
        let known = |kind: &Kind| matches!(kind, Kind::Read | Kind::Write);
        if !clients.iter().flatten().all(known) {
            return Err(format!("{operations}: only R (read) and W (write) are modelled"));
        }
        Ok(Config {
            clients,
            admissions: 2,
            evictions: 1,
            crashes: false,
            restarts: false,
            without: Vec::new(),
        })
    }

    fn has(&self, mechanism: Mechanism) -> bool {
        !self.without.contains(&mechanism)
    }

    fn reads(&self, client: u8, request: u8) -> bool {
        self.clients[usize::from(client)][usize::from(request) - 1] == Kind::Read
    }
}

/// A version of the record: which operation wrote it (0: none did), and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
struct Version {
    value: u8,
    seq: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Op {
    Read,
    Write,
    ReadReply,
    WriteReply,
    /// To a copy: be invalid for the write with this number.
    Invalidate,
    /// To the node: it is.
    Invalidated,
    /// To a copy: the node's version.
    Update,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum To {
    /// The switch of a copy.
    Switch(usize),
    Node,
    Client,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Packet {
    to: To,
    op: Op,
    client: u8,
    request: u8,
    /// The client's, when it sent the request.
    epoch: u8,
    version: Version,
    /// The copy that answered, or is invalidated or updated; and its incarnation.
    copy: Option<usize>,
    incarnation: u8,
}

/// A control message. Each may arrive any number of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Command {
    /// To a switch: an empty entry, of this incarnation.
    Admit(usize, u8),
    /// To the node: there is a copy.
    Register(usize, u8),
    /// To a switch: the entry goes.
    Remove(usize, u8),
    /// To the node: it is gone.
    Unregister(usize, u8),
}

/// A switch's entry for the key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Copy {
    /// 0: there is none.
    incarnation: u8,
    /// The highest incarnation that was admitted here.
    admitted_to: u8,
    /// It may answer.
    latest: bool,
    version: Version,
    /// The highest number that it was invalidated for.
    invalidated: u8,
}

impl Copy {
    fn answers(&self) -> bool {
        self.incarnation != 0 && self.latest
    }

    fn invalidate(&mut self, seq: u8) {
        if seq > self.invalidated {
            self.invalidated = seq;
            self.latest &= self.version.seq >= seq;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Node {
    stored: Version,
    /// The incarnation of each copy that is registered; 0: none.
    copies: [u8; 2],
    /// The write that waits for the copies.
    pending: Option<Packet>,
    /// The write that the storage engine was given, and has not applied.
    applying: Option<Packet>,
    /// It keeps copies from being filled.
    is_counted: bool,
    /// Which of them have acknowledged that they are invalid, or were new, and were sent nothing
    /// since.
    invalid: [bool; 2],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Client {
    epoch: u8,
    ended: u8,
    waits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Operation {
    begun: bool,
    done: bool,
    /// What a read returned.
    value: u8,
    /// Operations that had ended before it began, a bit each.
    before: u16,
    /// The number that the leaf gave to a write, which its completion entry keeps.
    seq: u8,
}

/// All that there is.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct State {
    copies: [Copy; 2],
    /// The entry of a spine that was taken for dead and runs on.
    zombie: Option<Copy>,
    /// The rack's epoch: 1 once the spine was taken for dead.
    epoch: u8,
    node: Node,
    clients: [Client; CLIENTS_MAX],
    history: [Operation; CLIENTS_MAX * OPERATIONS_MAX],
    /// Numbers, and incarnations, that were given out.
    numbers: u8,
    incarnations: u8,
    admissions: u8,
    evictions: u8,
    restarted: bool,
    packets: Vec<Packet>,
    commands: Vec<Command>,
}

/// Something that can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A client begins its next operation.
    Invoke(u8),
    /// A packet arrives; if it is for the spine, at the one that was taken for dead.
    Deliver(u16, bool),
    /// A command arrives.
    Command(u16),
    /// The controller admits the key to a switch.
    Admit(usize),
    /// It evicts it there.
    Evict(usize),
    /// The spine is taken for dead.
    Crash,
    /// The node restarts: it knows the copies, not whether they are invalid.
    Restart,
    /// The node's engine applies the write that it was given, and the node answers.
    Apply,
    /// The node sends a copy what it has.
    Refresh(usize),
    /// A client hears of it.
    Hear(u8),
    /// The node no longer waits for the dead spine's copy.
    Forget,
}

impl Model for Config {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        State::default()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (at, operations) in self.clients.iter().enumerate() {
            let (client, number) = (&state.clients[at], at as u8);
            if !client.waits && usize::from(client.ended) < operations.len() {
                actions.push(Action::Invoke(number));
            }
            if client.epoch < state.epoch {
                actions.push(Action::Hear(number));
            }
        }
        for place in [LEAF, SPINE] {
            if state.admissions < self.admissions && !state.has_entry(place) {
                actions.push(Action::Admit(place));
            }
            if state.evictions < self.evictions && state.copies[place].incarnation != 0 {
                actions.push(Action::Evict(place));
            }
        }
        if self.crashes && state.epoch == 0 && state.copies[SPINE].incarnation != 0 {
            actions.push(Action::Crash);
        }
        if self.may_forget(state) {
            actions.push(Action::Forget);
        }
        if self.restarts && !state.restarted {
            actions.push(Action::Restart);
        }
        let node = &state.node;
        if node.applying.is_some() {
            actions.push(Action::Apply);
        }
        let is_writing = node.applying.is_some() && node.is_counted;
        let is_quiet = !is_writing || !self.has(Mechanism::FilledWhenQuiet);
        for place in [LEAF, SPINE] {
            let may_fill = node.copies[place] != 0 && node.invalid[place] && is_quiet;
            if may_fill && node.pending.is_none() {
                actions.push(Action::Refresh(place));
            }
        }
        for (at, packet) in state.packets.iter().enumerate() {
            actions.push(Action::Deliver(at as u16, false));
            if packet.to == To::Switch(SPINE) && state.zombie.is_some() {
                actions.push(Action::Deliver(at as u16, true));
            }
        }
        actions.extend((0..state.commands.len()).map(|at| Action::Command(at as u16)));
    }

    fn take(&self, state: &State, action: Action) -> (State, Option<Broken>) {
        let mut step = Step { config: self, state: state.clone(), broken: None };
        step.act(action);
        step.state.forget();
        (step.state, step.broken)
    }

    fn is_over(&self, state: &State) -> bool {
        let ended = |at: usize| usize::from(state.clients[at].ended) == self.clients[at].len();
        (0..self.clients.len()).all(ended)
    }

    fn must_go_on(&self, _: &State) -> bool {
        true
    }
}

impl Config {
    fn may_forget(&self, state: &State) -> bool {
        let Some(zombie) = state.zombie else { return false };
        let all_moved =
            || state.clients[..self.clients.len()].iter().all(|client| client.epoch == state.epoch);
        let registered = state.node.copies[SPINE];
        registered != 0
            && registered <= zombie.admitted_to
            && (!self.has(Mechanism::ZombieAwaited) || all_moved())
    }
}

impl State {
    /// Whether an entry is there, is to come, or isn't forgotten yet.
    fn has_entry(&self, place: usize) -> bool {
        let copy = &self.copies[place];
        let is_to_come = |command: &Command| match *command {
            Command::Admit(at, incarnation) => at == place && incarnation > copy.admitted_to,
            _ => false,
        };
        copy.incarnation != 0
            || self.node.copies[place] != 0
            || self.commands.iter().any(is_to_come)
    }

    /// Forgets requests and answers for which no client waits.
    fn forget(&mut self) {
        let clients = self.clients;
        self.packets.retain(|packet| {
            let client = &clients[usize::from(packet.client)];
            let waits = client.waits && packet.request == client.ended + 1;
            waits || !(packet.to == To::Client || packet.op == Op::Read)
        });
    }
}

struct Step<'a> {
    config: &'a Config,
    state: State,
    broken: Option<Broken>,
}

impl Step<'_> {
    fn send(&mut self, packet: Packet) {
        if let Err(at) = self.state.packets.binary_search(&packet) {
            self.state.packets.insert(at, packet);
        }
    }

    fn command(&mut self, command: Command) {
        if let Err(at) = self.state.commands.binary_search(&command) {
            self.state.commands.insert(at, command);
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Invoke(client) => self.invoke(client),
            Action::Deliver(at, to_zombie) => {
                let packet = self.state.packets[usize::from(at)];
                match packet.to {
                    To::Switch(_) if to_zombie => self.zombie_receives(packet),
                    To::Switch(place) => self.switch_receives(place, packet),
                    To::Node => self.node_receives(packet),
                    To::Client => self.client_receives(packet),
                }
            }
            Action::Command(at) => self.commanded(self.state.commands[usize::from(at)]),
            Action::Admit(place) => {
                self.state.admissions += 1;
                self.state.incarnations += 1;
                self.command(Command::Admit(place, self.state.incarnations));
            }
            Action::Evict(place) => {
                self.state.evictions += 1;
                self.evict(place);
            }
            Action::Crash => self.crash(),
            Action::Restart => self.restart(),
            Action::Apply => self.apply(),
            Action::Refresh(place) => self.refresh(place),
            Action::Hear(client) => self.hears(client),
            Action::Forget => {
                self.state.node.copies[SPINE] = 0;
                self.go_on();
            }
        }
    }

    fn invoke(&mut self, client: u8) {
        let session = &mut self.state.clients[usize::from(client)];
        session.waits = true;
        let request = session.ended + 1;
        let mut before = 0;
        for (at, operation) in self.state.history.iter().enumerate() {
            before |= u16::from(operation.done) << at;
        }
        let operation = &mut self.state.history[operation_index(client, request)];
        (operation.begun, operation.before) = (true, before);
        self.send_request(client);
    }

    /// A read goes to either of its two switches, a write to the leaf.
    fn send_request(&mut self, client: u8) {
        let Client { epoch, ended, .. } = self.state.clients[usize::from(client)];
        let request = ended + 1;
        let reads = self.config.reads(client, request);
        let (op, value) =
            if reads { (Op::Read, 0) } else { (Op::Write, value_of(client, request)) };
        let version = Version { value, seq: 0 };
        let to = To::Switch(LEAF);
        let packet = Packet { to, op, client, request, epoch, version, copy: None, incarnation: 0 };
        self.send(packet);
        if reads {
            self.send(Packet { to: To::Switch(SPINE), ..packet });
        }
    }

    /// A switch takes requests of its epoch only; the leaf serves on in both.
    fn switch_receives(&mut self, place: usize, packet: Packet) {
        if place == SPINE && packet.op == Op::Read && packet.epoch != self.state.epoch {
            return;
        }
        let copy = self.state.copies[place];
        match packet.op {
            Op::Read if copy.answers() => {
                self.answer(Op::ReadReply, copy.version, Some(place), packet);
            }
            // A miss in the spine goes on to the leaf, and a miss there to the node.
            Op::Read if place == SPINE => self.send(Packet { to: To::Switch(LEAF), ..packet }),
            Op::Read => self.send(Packet { to: To::Node, ..packet }),
            Op::Write => self.number(packet),
            Op::Invalidate => self.state.copies[place] = self.invalidated(copy, packet),
            Op::Update if self.is_named(packet, &copy) => self.update(place, packet.version),
            _ => {}
        }
    }

    fn is_named(&self, packet: Packet, copy: &Copy) -> bool {
        let named = self.config.has(Mechanism::IncarnationNamed);
        copy.incarnation != 0 && (copy.incarnation == packet.incarnation || !named)
    }

    fn update(&mut self, place: usize, version: Version) {
        let compares = self.config.has(Mechanism::UpdateCompared);
        let copy = &mut self.state.copies[place];
        let newest = copy.invalidated.max(copy.version.seq);
        if version.seq >= newest || !compares {
            (copy.version, copy.latest) = (version, true);
        }
    }

    /// A spine that was taken for dead serves the old epoch. What it acknowledges still counts.
    fn zombie_receives(&mut self, packet: Packet) {
        let Some(copy) = self.state.zombie else { return };
        match packet.op {
            Op::Read if packet.epoch == 0 && copy.answers() => {
                self.answer(Op::ReadReply, copy.version, Some(SPINE), packet);
            }
            Op::Invalidate => self.state.zombie = Some(self.invalidated(copy, packet)),
            _ => {}
        }
    }

    /// A switch's entry after an INVALIDATE, which is acknowledged. An incarnation that is still to
    /// come would not know of it, so that isn't.
    fn invalidated(&mut self, mut copy: Copy, packet: Packet) -> Copy {
        if self.is_named(packet, &copy) {
            copy.invalidate(packet.version.seq);
        }
        if copy.admitted_to >= packet.incarnation {
            self.send(Packet { to: To::Node, op: Op::Invalidated, ..packet });
        }
        copy
    }

    /// The leaf numbers a write; its completion entry has the number of one that it saw before.
    fn number(&mut self, packet: Packet) {
        let at = operation_index(packet.client, packet.request);
        if self.state.history[at].seq == 0 {
            self.state.numbers += 1;
            self.state.history[at].seq = self.state.numbers;
        }
        let version = Version { seq: self.state.history[at].seq, ..packet.version };
        self.send(Packet { to: To::Node, version, ..packet });
    }

    fn answer(&mut self, op: Op, version: Version, copy: Option<usize>, to: Packet) {
        self.send(Packet { to: To::Client, op, version, copy, ..to });
    }

    fn node_receives(&mut self, packet: Packet) {
        let node = self.state.node;
        match packet.op {
            Op::Read => self.answer(Op::ReadReply, node.stored, None, packet),
            Op::Write if packet.version.seq <= node.stored.seq => {
                self.answer(Op::WriteReply, Version::default(), None, packet);
            }
            // One waits or is applied at a time: others, until their packets come again.
            Op::Write if node.pending.is_none() && node.applying.is_none() => {
                self.state.node.pending = Some(packet);
                self.invalidate_copies();
                self.go_on();
            }
            Op::Invalidated => {
                let place = packet.copy.expect("the node named it");
                let is_pending =
                    node.pending.is_some_and(|write| write.version.seq == packet.version.seq);
                if is_pending && node.copies[place] == packet.incarnation {
                    self.state.node.invalid[place] = true;
                }
                self.go_on();
            }
            _ => {}
        }
    }

    fn tell(&mut self, place: usize, op: Op, version: Version) {
        let (to, copy) = (To::Switch(place), Some(place));
        let incarnation = self.state.node.copies[place];
        self.send(Packet { to, op, client: 0, request: 0, epoch: 0, version, copy, incarnation });
    }

    /// The copies that may answer.
    fn valid(&self) -> impl Iterator<Item = usize> + use<> {
        let Node { copies, invalid, .. } = self.state.node;
        [LEAF, SPINE].into_iter().filter(move |at| copies[*at] != 0 && !invalid[*at])
    }

    fn invalidate_copies(&mut self) {
        if let Some(write) = self.state.node.pending {
            for place in self.valid() {
                self.tell(place, Op::Invalidate, Version { value: 0, ..write.version });
            }
        }
    }

    /// Gives the engine the write that waits, once it waits for no copy any more.
    fn go_on(&mut self) {
        let Some(write) = self.state.node.pending else { return };
        if self.valid().next().is_some() && self.config.has(Mechanism::InvalidatedFirst) {
            return;
        }
        let has_copies = self.state.node.copies != [0; 2];
        let node = &mut self.state.node;
        (node.pending, node.applying) = (None, Some(write));
        node.is_counted = has_copies || self.config.has(Mechanism::EarlierCounted);
    }

    fn apply(&mut self) {
        let Some(write) = self.state.node.applying.take() else { return };
        self.state.node.stored = write.version;
        self.state.node.is_counted = false;
        self.answer(Op::WriteReply, Version::default(), None, write);
    }

    /// Sends a copy that is invalid what is stored.
    fn refresh(&mut self, place: usize) {
        self.state.node.invalid[place] = !self.config.has(Mechanism::SentIsHeard);
        self.tell(place, Op::Update, self.state.node.stored);
    }

    fn restart(&mut self) {
        self.state.restarted = true;
        let node = &mut self.state.node;
        (node.pending, node.applying, node.is_counted) = (None, None, false);
        self.state.node.invalid = [!self.config.has(Mechanism::RestartedUnsure); 2];
    }

    fn commanded(&mut self, command: Command) {
        match command {
            Command::Admit(place, incarnation) => {
                let copy = &mut self.state.copies[place];
                if incarnation > copy.admitted_to {
                    *copy = Copy { incarnation, admitted_to: incarnation, ..Copy::default() };
                    self.command(Command::Register(place, incarnation));
                }
            }
            // Nothing was sent to it yet: a write that is under way needn't wait for it.
            Command::Register(place, incarnation) => {
                let is_gone = self.state.copies[place].admitted_to > incarnation;
                if is_gone || incarnation <= self.state.node.copies[place] {
                    return;
                }
                self.state.node.copies[place] = incarnation;
                self.state.node.invalid[place] = true;
            }
            Command::Remove(place, incarnation) => {
                let copy = &mut self.state.copies[place];
                if copy.incarnation == incarnation {
                    (copy.incarnation, copy.latest) = (0, false);
                    self.command(Command::Unregister(place, incarnation));
                }
            }
            Command::Unregister(place, incarnation) => {
                if self.state.node.copies[place] == incarnation {
                    self.state.node.copies[place] = 0;
                    self.go_on();
                }
            }
        }
    }

    fn evict(&mut self, place: usize) {
        let incarnation = self.state.copies[place].incarnation;
        self.command(Command::Remove(place, incarnation));
        if !self.config.has(Mechanism::UnregisteredLast) {
            self.command(Command::Unregister(place, incarnation));
        }
    }

    /// Another spine takes its place, empty. Commands to the old one are lost with its connection.
    fn crash(&mut self) {
        let old = self.state.copies[SPINE];
        self.state.zombie = Some(old);
        let knows = !self.config.has(Mechanism::OwnIncarnations);
        let admitted_to = if knows { old.admitted_to } else { 0 };
        self.state.copies[SPINE] = Copy { admitted_to, ..Copy::default() };
        self.state.epoch = 1;
        let to_spine = |command: &Command| {
            matches!(command, Command::Admit(SPINE, _) | Command::Register(SPINE, _))
        };
        self.state.commands.retain(|command| !to_spine(command));
    }

    /// A client moves to the new epoch, and sends again what it waits for.
    fn hears(&mut self, client: u8) {
        let session = &mut self.state.clients[usize::from(client)];
        session.epoch = self.state.epoch;
        if session.waits {
            self.send_request(client);
        }
    }

    fn client_receives(&mut self, packet: Packet) {
        let session = self.state.clients[usize::from(packet.client)];
        let is_of_zombie = packet.copy == Some(SPINE) && packet.epoch != session.epoch;
        if !session.waits || packet.request != session.ended + 1 || is_of_zombie {
            return;
        }
        let operation = &mut self.state.history[operation_index(packet.client, packet.request)];
        operation.done = true;
        if packet.op == Op::ReadReply {
            operation.value = packet.version.value;
        }
        let session = &mut self.state.clients[usize::from(packet.client)];
        (session.waits, session.ended) = (false, packet.request);
        if !self.is_linearizable() {
            self.broken = Some(Broken::NotLinearizable);
        }
    }

    fn is_linearizable(&self) -> bool {
        let mut must = 0;
        let mut before = [None; CLIENTS_MAX * OPERATIONS_MAX];
        for (at, operation) in self.state.history.iter().enumerate() {
            must |= u16::from(operation.done) << at;
            before[at] = operation.begun.then_some(operation.before);
        }
        is_linearizable(&before, must, 0, |at, value| {
            let (client, request) = operation_at(at);
            let operation = &self.state.history[at];
            match self.config.reads(client, request) {
                true => (operation.done && operation.value == value).then_some(value),
                false => Some(value_of(client, request)),
            }
        })
    }
}

/// A counterexample, a line a step.
pub fn trace(config: &Config, path: &[Action]) -> Vec<String> {
    let mut state = config.first();
    let mut lines = Vec::new();
    for (at, action) in path.iter().enumerate() {
        let mut line = format!("{:>3}  ", at + 1);
        write!(line, "{}", Shown(&state, *action)).expect("a string takes it");
        lines.push(line);
        state = config.take(&state, *action).0;
    }
    lines
}

/// An action in a state.
struct Shown<'a>(&'a State, Action);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shown(state, action) = self;
        let name = |place: usize| if place == LEAF { "leaf" } else { "spine" };
        match *action {
            Action::Invoke(client) => write!(f, "client {client} begins its next operation"),
            Action::Deliver(at, to_zombie) => {
                let Packet { to, op, client, request, version, incarnation, .. } =
                    state.packets[usize::from(at)];
                match to {
                    To::Switch(_) if to_zombie => f.write_str("the old spine")?,
                    To::Switch(place) => f.write_str(name(place))?,
                    To::Node => f.write_str("node")?,
                    To::Client => write!(f, "client {client}")?,
                }
                write!(f, " gets {op:?}")?;
                match op {
                    Op::Invalidate | Op::Invalidated | Op::Update => {
                        write!(f, " of incarnation {incarnation}")?;
                    }
                    _ => write!(f, " of client {client} request {request}")?,
                }
                write!(f, ", v{}@{}", version.value, version.seq)
            }
            Action::Command(at) => match state.commands[usize::from(at)] {
                Command::Admit(place, of) => write!(f, "{} admits incarnation {of}", name(place)),
                Command::Register(place, of) => {
                    write!(f, "node registers incarnation {of} of the {}", name(place))
                }
                Command::Remove(place, of) => write!(f, "{} removes incarnation {of}", name(place)),
                Command::Unregister(place, of) => {
                    write!(f, "node forgets incarnation {of} of the {}", name(place))
                }
            },
            Action::Admit(place) => {
                write!(f, "the controller admits the key to the {}", name(place))
            }
            Action::Evict(place) => write!(f, "the controller evicts it from the {}", name(place)),
            Action::Restart => f.write_str("the node restarts"),
            Action::Apply => f.write_str("the node's engine applies the write"),
            Action::Refresh(place) => write!(f, "the node sends the {} what it has", name(place)),
            Action::Crash => f.write_str("the spine is taken for dead, and runs on"),
            Action::Hear(client) => write!(f, "client {client} hears of the new epoch"),
            Action::Forget => f.write_str("the node waits for the dead spine no longer"),
        }
    }
}
