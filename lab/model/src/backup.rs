//! Backups, as rule 29 of `docs/understand/rules.md` has them cut: two keys, a node for each, one
//! cache, a few clients and the controller.
//!
//! What the other rules promise is taken for granted. A write takes effect in one step at one
//! place, the cache or its node, as a version that is newer than every other one of its key. A read
//! sees the newest version. Of the messages between the controller and a client each may arrive at
//! any later moment, but they arrive in order.
//!
//! A backup is a read of both keys that began with the cut and ended when the writes went on: it
//! has to be linearizable.

use crate::explore::Model;
use crate::properties::Broken;
use crate::state::{CLIENTS_MAX, OPERATIONS_MAX, operation_at, operation_index};
use std::cell::Cell;

/// X and Y: each is the only key of the node with its number.
const KEYS: [usize; 2] = [0, 1];

/// A version of each key; 0 is what was there at first.
type Versions = [u8; 2];

/// A mechanism that a run can do without.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mechanism {
    /// The cut begins once all clients hold their writes back.
    HoldFirst,
    /// A cut that took longer than clients hold their writes back is void.
    CutInTime,
    /// Nodes make their checkpoints once the snapshot has begun.
    SnapshotFirst,
    /// A record that changes is loaded for the snapshot under way first.
    ChangedLoaded,
    /// So is a record that is removed, or marked as clean.
    RemovedLoaded,
    /// An answer counts for the try that it names.
    AnswerOfTry,
    /// While a cut is made only clients that have answered are granted a lease, not all that were
    /// asked.
    LeaseOfHolders,
}

/// Every ablation: its name, and what it leaves out.
pub const ABLATIONS: &[(&str, Mechanism)] = &[
    ("cut-unheld", Mechanism::HoldFirst),
    ("cut-late", Mechanism::CutInTime),
    ("checkpoint-first", Mechanism::SnapshotFirst),
    ("no-snapshot-cow", Mechanism::ChangedLoaded),
    ("removed-unloaded", Mechanism::RemovedLoaded),
    ("answer-of-earlier-try", Mechanism::AnswerOfTry),
    ("lease-unheld", Mechanism::LeaseOfHolders),
];

/// An operation on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A read, which is one step.
    Read(usize),
    /// A write, which begins, takes effect and ends.
    Write(usize),
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The operations of each client, one after another.
    pub clients: Vec<Vec<Operation>>,
    /// How often the controller may try to cut.
    pub tries: u8,
    /// How often a key may be admitted to the cache. X is there at first.
    pub admissions: u8,
    /// How often a key may be evicted.
    pub evictions: u8,
    /// How often a node may store a dirty record that isn't being evicted.
    pub cleanings: u8,
    /// How often a client's lease may run out.
    pub lapses: u8,
    /// Clients may give writes up, which may take effect even so.
    pub gives_up: bool,
    /// What is left out.
    pub without: Vec<Mechanism>,
    /// Complete backups that were checked so far.
    pub checked: Cell<usize>,
}

impl Config {
    /// One try, one admission and one eviction, and these operations: `XY,Yx` is a client that
    /// writes X, then Y, and one that writes Y, then reads X.
    pub fn of(operations: &str) -> Result<Config, String> {
        let operation = |letter| match letter {
            'X' => Ok(Operation::Write(0)),
            'Y' => Ok(Operation::Write(1)),
            'x' => Ok(Operation::Read(0)),
            'y' => Ok(Operation::Read(1)),
            _ => Err(format!("{operations}: only X, Y (write it), x and y (read it) are modelled")),
        };
        let client = |letters: &str| letters.chars().map(operation).collect::<Result<Vec<_>, _>>();
        let clients = operations.split(',').map(client).collect::<Result<Vec<_>, _>>()?;
        if clients.len() > CLIENTS_MAX || clients.iter().any(|of| of.len() > OPERATIONS_MAX) {
            return Err(format!(
                "{operations}: at most {CLIENTS_MAX} clients, {OPERATIONS_MAX} each"
            ));
        }
        Ok(Config {
            clients,
            tries: 1,
            admissions: 1,
            evictions: 1,
            cleanings: 0,
            lapses: 0,
            gives_up: false,
            without: Vec::new(),
            checked: Cell::new(0),
        })
    }

    fn has(&self, mechanism: Mechanism) -> bool {
        !self.without.contains(&mechanism)
    }

    /// The operation that a client waits for, or else its next one.
    fn next(&self, state: &State, client: u8) -> Option<Operation> {
        let ended = state.clients[usize::from(client)].ended;
        self.clients[usize::from(client)].get(usize::from(ended)).copied()
    }

    /// The key of an operation.
    fn key(&self, at: usize) -> usize {
        let (client, request) = operation_at(at);
        let (Operation::Read(key) | Operation::Write(key)) =
            self.clients[usize::from(client)][usize::from(request) - 1];
        key
    }
}

/// A record of the cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Record {
    version: u8,
    /// The version that the controller had its node store last.
    stored: u8,
    dirty: bool,
    /// It doesn't change any more: writes go to the node.
    evicting: bool,
    /// It was dirty when the snapshot under way began, and that hasn't loaded it.
    to_load: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Client {
    /// Operations that have ended.
    ended: u8,
    /// A write is under way.
    waits: bool,
    /// The last try that it has heard of.
    heard: u8,
    /// The last one that it has answered.
    answered: u8,
    /// It begins no write.
    holds: bool,
    /// It has no lease: it begins nothing, and accepts no answer.
    lapsed: bool,
    /// It had one when the last try began.
    asked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Write {
    begun: bool,
    /// 0: it hasn't taken effect.
    version: u8,
    /// What clients knew when it began.
    before: Versions,
    /// It began after the cut was made.
    after_cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Stage {
    /// There was no try yet, or the last one is void.
    #[default]
    Idle,
    /// Clients are asked to hold their writes back.
    Holding,
    /// They do, and the cut is being made.
    Cutting,
    /// The writes go on, and the snapshot becomes whole.
    Collecting,
    Complete,
}

/// A try to cut.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Cut {
    stage: Stage,
    /// It takes long: a client may write again before it is made.
    late: bool,
    /// What clients knew when it began.
    known: Versions,
    /// The snapshot has begun.
    begun: bool,
    /// The dirty records that were loaded for it.
    snapshot: Versions,
    /// What nodes had stored when they made their checkpoints.
    checkpoints: [Option<u8>; 2],
}

impl Cut {
    /// Whether clients that have heard of it hold their writes back for sure.
    fn is_in_time(&self) -> bool {
        matches!(self.stage, Stage::Holding | Stage::Cutting) && !self.late
    }
}

/// All that there is.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct State {
    nodes: Versions,
    cache: [Option<Record>; 2],
    clients: [Client; CLIENTS_MAX],
    writes: [Write; CLIENTS_MAX * OPERATIONS_MAX],
    /// The newest version of each key that a client has read, or heard to be written.
    known: Versions,
    tries: u8,
    cut: Cut,
    admissions: u8,
    evictions: u8,
    cleanings: u8,
    lapses: u8,
}

/// Something that can happen: to a client, to a write, to a key, or to the backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A client begins its next operation. A read has ended then.
    Begin(u8),
    /// It hears that its write is done.
    End(u8),
    /// It waits for that no longer.
    GiveUp(u8),
    /// Its lease runs out.
    Lapse(u8),
    /// It is granted a lease again.
    Renew(u8),
    /// It hears that it is to hold its writes back.
    Hear(u8),
    /// It answers that it does, and that none is under way.
    Answer(u8),
    /// It writes again: it hears that the try is over, or waits for that no longer.
    GoOn(u8),
    /// A write takes effect.
    Apply(usize),
    /// A key is admitted to the cache.
    Admit(usize),
    /// Its eviction begins.
    Evict(usize),
    /// Its node stores the cache's record.
    Store(usize),
    /// The cache hears that its dirty record is stored: it is clean.
    Clean(usize),
    /// The cache hears that its evicted record is stored: it removes it.
    Remove(usize),
    /// The cache loads its record for the snapshot.
    Load(usize),
    /// The key's node makes its checkpoint.
    Checkpoint(usize),
    /// Clients are asked to hold their writes back.
    Ask,
    /// All do: the cut begins.
    Cut,
    /// The cache begins its snapshot.
    Snapshot,
    /// The cut takes too long.
    Late,
    /// It is made: the writes may go on.
    Resume,
    /// The try is given up.
    Void,
    /// The snapshot is whole.
    Complete,
}

impl Model for Config {
    type State = State;
    type Action = Action;

    fn first(&self) -> State {
        State { cache: [Some(Record::default()), None], ..State::default() }
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let mut add = |action, is_possible: bool| {
            if is_possible {
                actions.push(action);
            }
        };
        for client in 0..self.clients.len() as u8 {
            self.add_of_client(state, client, &mut add);
        }
        for (at, write) in state.writes.iter().enumerate() {
            add(Action::Apply(at), write.begun && write.version == 0);
        }
        for key in KEYS {
            self.add_of_key(state, key, &mut add);
        }
        self.add_of_backup(state, &mut add);
    }

    fn take(&self, state: &State, action: Action) -> (State, Option<Broken>) {
        let mut state = state.clone();
        self.act(&mut state, action);
        if action != Action::Complete {
            return (state, None);
        }
        self.checked.set(self.checked.get() + 1);
        let broken = self.flaw(&state).map(|_| Broken::NotLinearizable);
        (state, broken)
    }

    /// Whether a backup is complete, or none can be any more.
    fn is_over(&self, state: &State) -> bool {
        let Cut { stage, late, .. } = state.cut;
        let is_void = stage == Stage::Idle || late && self.has(Mechanism::CutInTime);
        stage == Stage::Complete || is_void && state.tries == self.tries
    }

    fn must_go_on(&self, _: &State) -> bool {
        true
    }
}

impl Config {
    fn add_of_client(&self, state: &State, number: u8, add: &mut impl FnMut(Action, bool)) {
        let client = state.clients[usize::from(number)];
        let Client { waits, heard, answered, holds, lapsed, asked, .. } = client;
        match self.next(state, number) {
            Some(_) if waits => {
                let write = state.writes[operation_index(number, client.ended + 1)];
                add(Action::End(number), !lapsed && write.version != 0);
                add(Action::GiveUp(number), self.gives_up);
            }
            Some(Operation::Write(_)) => add(Action::Begin(number), !lapsed && !holds),
            Some(Operation::Read(_)) => add(Action::Begin(number), !lapsed),
            None => {}
        }
        let has_answered = answered == state.tries || !self.has(Mechanism::LeaseOfHolders);
        let is_granted = match state.cut.stage {
            Stage::Holding => asked, // and waited for again
            Stage::Cutting => asked && has_answered,
            _ => true,
        };
        add(Action::Lapse(number), !lapsed && state.lapses < self.lapses);
        add(Action::Renew(number), lapsed && is_granted);
        add(Action::Hear(number), heard < state.tries);
        add(Action::Answer(number), holds && !waits && answered < heard);
        let has_to_hold = heard == state.tries && state.cut.is_in_time();
        add(Action::GoOn(number), holds && !has_to_hold);
    }

    fn add_of_key(&self, state: &State, key: usize, add: &mut impl FnMut(Action, bool)) {
        let Some(record) = state.cache[key] else {
            add(Action::Admit(key), state.admissions < self.admissions);
            return;
        };
        let Record { version, stored, dirty, evicting, to_load } = record;
        let is_stored = stored == version;
        let is_cleaned = dirty && state.cleanings < self.cleanings;
        add(Action::Evict(key), !evicting && state.evictions < self.evictions);
        add(Action::Store(key), !is_stored && (evicting || is_cleaned));
        add(Action::Clean(key), dirty && is_stored);
        add(Action::Remove(key), evicting && is_stored);
        add(Action::Load(key), to_load);
    }

    fn add_of_backup(&self, state: &State, add: &mut impl FnMut(Action, bool)) {
        let Cut { stage, late, begun, checkpoints, .. } = state.cut;
        let are_made = checkpoints.iter().all(Option::is_some);
        let in_order = self.has(Mechanism::SnapshotFirst);
        let may_resume = !late || !self.has(Mechanism::CutInTime);
        let is_whole = !state.cache.iter().flatten().any(|record| record.to_load);
        match stage {
            Stage::Idle => add(Action::Ask, state.tries < self.tries),
            Stage::Holding => add(Action::Cut, self.all_hold(state)),
            Stage::Cutting => {
                add(Action::Snapshot, !begun && (in_order || are_made));
                for node in KEYS {
                    let is_due = checkpoints[node].is_none() && (begun || !in_order);
                    add(Action::Checkpoint(node), is_due);
                }
                add(Action::Resume, begun && are_made && may_resume);
            }
            Stage::Collecting => add(Action::Complete, is_whole),
            Stage::Complete => {}
        }
        add(Action::Late, state.cut.is_in_time());
        add(Action::Void, !matches!(stage, Stage::Idle | Stage::Complete));
    }

    /// Whether all clients have answered, but for those without a lease: these accept no answer.
    fn all_hold(&self, state: &State) -> bool {
        let first = if self.has(Mechanism::AnswerOfTry) { state.tries } else { 1 };
        let holds = |client: &Client| client.lapsed || client.answered >= first;
        state.clients[..self.clients.len()].iter().all(holds) || !self.has(Mechanism::HoldFirst)
    }

    fn act(&self, state: &mut State, action: Action) {
        match action {
            Action::Begin(client) => self.begin(state, client),
            Action::End(client) => {
                let at = operation_index(client, state.client(client).ended + 1);
                state.ends(client, Some((self.key(at), state.writes[at].version)));
            }
            Action::GiveUp(client) => state.ends(client, None),
            Action::Lapse(client) => {
                state.lapses += 1;
                state.client(client).lapsed = true;
            }
            Action::Renew(client) => state.client(client).lapsed = false,
            Action::Hear(client) => {
                let client = state.client(client);
                (client.heard, client.holds) = (client.heard + 1, true);
            }
            Action::Answer(client) => {
                let client = state.client(client);
                client.answered = client.heard;
            }
            Action::GoOn(client) => state.client(client).holds = false,
            Action::Apply(at) => self.apply(state, at),
            Action::Admit(key) => {
                state.admissions += 1;
                let version = state.nodes[key];
                let record = Record { version, stored: version, ..Record::default() };
                state.cache[key] = Some(record);
            }
            Action::Evict(key) => {
                state.evictions += 1;
                state.record(key).evicting = true;
            }
            Action::Store(key) => {
                let record = state.record(key);
                record.stored = record.version;
                let Record { stored, evicting, .. } = *record;
                state.cleanings += u8::from(!evicting);
                state.nodes[key] = state.nodes[key].max(stored);
            }
            Action::Clean(key) => {
                self.load_first(state, key, Mechanism::RemovedLoaded);
                state.record(key).dirty = false;
            }
            Action::Remove(key) => {
                self.load_first(state, key, Mechanism::RemovedLoaded);
                state.cache[key] = None;
            }
            Action::Load(key) => state.load(key),
            Action::Checkpoint(node) => state.cut.checkpoints[node] = Some(state.nodes[node]),
            Action::Ask => {
                state.tries += 1;
                state.cut.stage = Stage::Holding;
                state.clients.iter_mut().for_each(|client| client.asked = !client.lapsed);
            }
            Action::Cut => (state.cut.stage, state.cut.known) = (Stage::Cutting, state.known),
            Action::Snapshot => {
                state.cut.begun = true;
                state.cache.iter_mut().flatten().for_each(|record| record.to_load = record.dirty);
            }
            Action::Late => state.cut.late = true,
            Action::Resume => state.cut.stage = Stage::Collecting,
            Action::Void => {
                state.cut = Cut::default();
                state.cache.iter_mut().flatten().for_each(|record| record.to_load = false);
                state.writes.iter_mut().for_each(|write| write.after_cut = false);
            }
            Action::Complete => state.cut.stage = Stage::Complete,
        }
    }

    fn begin(&self, state: &mut State, client: u8) {
        match self.next(state, client).expect("it has operations left") {
            Operation::Read(key) => state.ends(client, Some((key, state.newest(key)))),
            Operation::Write(_) => {
                state.client(client).waits = true;
                let at = operation_index(client, state.client(client).ended + 1);
                let after_cut = state.cut.stage == Stage::Collecting;
                state.writes[at] =
                    Write { begun: true, version: 0, before: state.known, after_cut };
            }
        }
    }

    fn apply(&self, state: &mut State, at: usize) {
        let key = self.key(at);
        let version = state.newest(key) + 1;
        state.writes[at].version = version;
        if state.absorbs(key) {
            self.load_first(state, key, Mechanism::ChangedLoaded);
            let record = state.record(key);
            (record.version, record.dirty) = (version, true);
        } else {
            state.nodes[key] = version;
        }
    }

    fn load_first(&self, state: &mut State, key: usize, mechanism: Mechanism) {
        if self.has(mechanism) {
            state.load(key);
        }
    }

    /// What is wrong with a complete backup.
    fn flaw(&self, state: &State) -> Option<String> {
        let backup = state.backup();
        let lacks = |known: Versions| {
            let key = KEYS.into_iter().find(|key| backup[*key] < known[*key])?;
            Some(named(key, known[key]))
        };
        if let Some(known) = lacks(state.cut.known) {
            return Some(format!("it lacks {known}, which was known when the cut began"));
        }
        for (at, write) in state.writes.iter().enumerate().filter(|(_, write)| write.version != 0) {
            let key = self.key(at);
            if write.version > backup[key] {
                continue;
            }
            let it = named(key, write.version);
            if write.after_cut {
                return Some(format!("it has {it}, which began after the cut was made"));
            }
            if let Some(known) = lacks(write.before) {
                return Some(format!("it has {it} and lacks {known}, known when {it} began"));
            }
        }
        None
    }

    /// An action in a state, in words.
    fn words(&self, state: &State, action: Action) -> String {
        let newest = |key| named(key, state.newest(key));
        let cached = |key| named(key, state.cache[key].map_or(0, |record| record.version));
        let heard = |client: u8| state.clients[usize::from(client)].heard;
        match action {
            Action::Begin(client) => match self.next(state, client) {
                Some(Operation::Read(key)) => format!("client {client} reads {}", newest(key)),
                _ => format!("client {client} begins to write"),
            },
            Action::End(client) => format!("client {client} hears that its write is done"),
            Action::GiveUp(client) => format!("client {client} gives its write up"),
            Action::Lapse(client) => format!("the lease of client {client} runs out"),
            Action::Renew(client) => format!("client {client} is granted a lease"),
            Action::Hear(client) => {
                format!("client {client} hears of try {}, and holds back", heard(client) + 1)
            }
            Action::Answer(client) => format!("client {client} answers try {}", heard(client)),
            Action::GoOn(client) => format!("client {client} holds back no longer"),
            Action::Apply(at) => {
                let key = self.key(at);
                let written = named(key, state.newest(key) + 1);
                match state.absorbs(key) {
                    true => format!("the cache absorbs {written}"),
                    false => format!("node {key} applies {written}"),
                }
            }
            Action::Admit(key) => format!("the cache admits {}", newest(key)),
            Action::Evict(key) => format!("the eviction of {} begins", cached(key)),
            Action::Store(key) => format!("node {key} stores {}", cached(key)),
            Action::Clean(key) => format!("{} is clean", cached(key)),
            Action::Remove(key) => format!("the cache removes {}", cached(key)),
            Action::Load(key) => format!("the cache loads {} for its snapshot", cached(key)),
            Action::Checkpoint(node) => {
                format!("node {node} makes its checkpoint: {}", named(node, state.nodes[node]))
            }
            Action::Ask => format!("try {} begins: clients are asked to hold", state.tries + 1),
            Action::Cut => "the cut begins".into(),
            Action::Snapshot => "the cache begins its snapshot".into(),
            Action::Late => "the try takes too long".into(),
            Action::Resume => "the cut is made".into(),
            Action::Void => "the try is void".into(),
            Action::Complete => {
                let [x, y] = KEYS.map(|key| named(key, state.backup()[key]));
                let flaw = self.flaw(state).unwrap_or_else(|| "nothing is wrong".into());
                format!("the backup is complete, with {x} and {y}: {flaw}")
            }
        }
    }
}

impl State {
    fn client(&mut self, client: u8) -> &mut Client {
        &mut self.clients[usize::from(client)]
    }

    fn record(&mut self, key: usize) -> &mut Record {
        self.cache[key].as_mut().expect("the key is cached")
    }

    /// The newest version of a key.
    fn newest(&self, key: usize) -> u8 {
        self.cache[key].map_or(0, |record| record.version).max(self.nodes[key])
    }

    /// Whether a write of the key is for the cache.
    fn absorbs(&self, key: usize) -> bool {
        self.cache[key].is_some_and(|record| !record.evicting)
    }

    /// A client's operation ends, and tells it of a version of a key.
    fn ends(&mut self, client: u8, told: Option<(usize, u8)>) {
        let client = self.client(client);
        (client.ended, client.waits) = (client.ended + 1, false);
        if let Some((key, version)) = told {
            self.known[key] = self.known[key].max(version);
        }
    }

    /// A record is loaded for the snapshot under way, if it is yet to be.
    fn load(&mut self, key: usize) {
        let record = self.record(key);
        let Record { version, dirty, .. } = *record;
        if std::mem::take(&mut record.to_load) && dirty {
            self.cut.snapshot[key] = version;
        }
    }

    /// What a backup has of each key: the newer one of its node's checkpoint and the snapshot.
    fn backup(&self) -> Versions {
        KEYS.map(|key| self.cut.checkpoints[key].unwrap_or(0).max(self.cut.snapshot[key]))
    }
}

/// A version of a key, as traces name it.
fn named(key: usize, version: u8) -> String {
    format!("{}{version}", ["X", "Y"][key])
}

/// A counterexample, a line a step.
pub fn trace(config: &Config, path: &[Action]) -> Vec<String> {
    let mut state = config.first();
    let mut lines = Vec::new();
    for (at, action) in path.iter().enumerate() {
        lines.push(format!("{:>3}  {}", at + 1, config.words(&state, *action)));
        config.act(&mut state, *action);
    }
    lines
}
