//! The agent: commands in, operations on the datapath and messages to the controller out.

use super::datapath::{DatapathAction, DatapathDone, DatapathOp, DatapathReport};
use super::entries::Entries;
use super::gain::Watched;
use super::learning::{Counted, Learning, LearningConfig};
use super::snapshot::Snapshot;
use super::sweep::Sweep;
use super::target::LoadedRecord;
use super::traffic::Traffic;
use crate::control::{
    BATCH_MAX, Command, CommandId, Entry, EntryId, Inspected, Location, Offer, SwitchCommand,
    SwitchReport, SwitchResult, batch_len,
};
use crate::mechanisms::Mechanisms;
use crate::storage::Record;
use crate::time::Now;
use crate::timers::{TimerKind, Timers};
use crate::topology::round_of;
use std::collections::{BTreeMap, VecDeque};
use switchback_wire::{Address, Map, Place, Seq, View};

/// Choices of this many commands are remembered, so that a repeated one is answered as before.
const CHOICES_KEPT: usize = 1024;
/// Commands that may wait while an operation is under way. Beyond this they are dropped: the
/// controller repeats them.
const COMMANDS_MAX: usize = 1024;

/// Sequence numbers of an epoch that are used when another one is asked for at a quiet moment, and
/// when at any moment; in 256ths. At ten million writes a second to one key these are 15 and 27
/// hours.
const RENEW_WHEN_QUIET: u32 = 128;
const RENEW_NOW: u32 = 224;

/// What an agent is made with.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// The layer of its switch, from 1 next to the clients.
    pub layer: u8,
    /// What its switch fails together with, to
    /// [`DOMAIN_BYTES_MAX`](crate::control::DOMAIN_BYTES_MAX) bytes.
    pub domain: String,
    /// How often it says hello.
    pub heartbeat_us: u64,
    /// How hot keys are found.
    pub learning: LearningConfig,
    /// How many keys the cache is to hold; with none, there is nothing to learn.
    pub records: usize,
    /// How often evictions that the datapath began are told again.
    pub retry_us: u64,
    /// How long there must be little to do for a moment to be quiet.
    pub quiet_us: u64,
    /// Records of a snapshot that are loaded between two looks at anything else.
    pub loads_a_step: usize,
    /// How long it may take until a record that no node has is on its way to its node; `None`: as
    /// long as it is cached.
    pub dirty_max_us: Option<u64>,
    /// Its records are copies (DistCache): that of a spine are of all chains' keys.
    pub has_copies: bool,
    /// All, but in simulations.
    pub mechanisms: Mechanisms,
}

impl Default for AgentConfig {
    fn default() -> AgentConfig {
        AgentConfig {
            layer: 1,
            domain: String::new(),
            heartbeat_us: 20_000,
            learning: LearningConfig::default(),
            records: 1 << 16,
            retry_us: 50_000,
            quiet_us: 1_000_000,
            loads_a_step: 256,
            // As Linux has it for the pages of files: `vm.dirty_expire_centisecs`.
            dirty_max_us: Some(30_000_000),
            has_copies: false,
            mechanisms: Mechanisms::ALL,
        }
    }
}

/// Counters of an agent.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AgentStatistics {
    pub admitted: u64,
    pub refused: u64,
    pub evicted: u64,
    pub evicted_themselves: u64,
    pub snapshots: u64,
    pub originals: u64,
    pub ageings: u64,
}

/// When an agent does something by itself.
#[derive(Clone, Copy, Debug)]
enum AgentTimer {
    /// Says hello.
    Hello,
    /// Looks at what was counted.
    Count,
    /// Tells the controller again of evictions that the datapath began.
    Retry,
    /// Goes on with a snapshot: due at once while one is being taken.
    Load,
    /// Goes on with the sweep for dirty records.
    Sweep,
}

impl TimerKind for AgentTimer {
    fn index(self) -> usize {
        self as usize
    }
}

/// What the agent has yet to do of what it was called for. It begins when everything before it is
/// done.
#[derive(Debug)]
enum Step {
    /// Say hello, if it is time.
    Hello,
    /// Look at what was counted, if it is time.
    Count,
    /// Take the datapath's reports, all that there are by then.
    TakeReports {
        /// An eviction has begun of which the controller is to be told.
        tells: bool,
    },
    /// Load the next records of the snapshot, if one is being taken.
    LoadRecords,
    /// End the snapshot, all records of which are loaded.
    EndSnapshot,
    /// Load the next records of the sweep, if it is time.
    Sweep,
    /// Tell the controller of these evictions, which the datapath began.
    TellEvictions(Vec<EntryId>),
    /// Tell it again, if it is time.
    TellAgain,
    /// Set the point of a snapshot.
    BeginSnapshot(CommandId, u32),
    /// Remove these entries, which a snapshot under way doesn't need any more.
    Remove(CommandId, Vec<EntryId>),
    /// Note that nodes have stored these versions; the same.
    Clean(CommandId, Vec<(EntryId, Seq)>),
}

/// What comes of the operation under way, once it has ended.
#[derive(Debug)]
enum Awaited {
    Nothing,
    /// This command is done.
    Answer(CommandId),
    /// It was to begin an epoch.
    Configured(CommandId),
    /// Of the frozen entries these were to be loaded, and those from this location on are next.
    LoadedFrozen(CommandId, Vec<Entry>, Option<Location>),
    /// What was frozen was to go, so that these entries can be admitted.
    Forgotten(CommandId, Vec<Entry>),
    /// It was to admit these entries, in the order of the command.
    Admitted {
        command: CommandId,
        entries: Vec<Admission>,
    },
    /// Of these candidates the least counted are to be evicted, as far as those that want their
    /// slots were counted more often; the counters that are read are those of the ones not
    /// `evicting`.
    Counters {
        command: CommandId,
        candidates: Vec<Candidate>,
        counts: Vec<u32>,
    },
    /// The counters of newcomers and of spared victims, in pairs.
    Watched(Vec<(Watched, Watched)>),
    /// The evictions of these entries, for a command or because the datapath began them.
    Evicting {
        command: Option<CommandId>,
        entries: Vec<EntryId>,
    },
    Hello,
    Counted,
    Reports {
        tells: bool,
    },
    Loaded(Vec<EntryId>),
    /// The records that the sweep has come to.
    Swept,
    SnapshotBegun(CommandId, u32),
    SnapshotEnded,
    /// The counters of these entries, which a command asks for: their records come next.
    InspectedCounters {
        command: CommandId,
        entries: Vec<Entry>,
    },
    /// The records of entries that were counted so.
    InspectedRecords {
        command: CommandId,
        counters: Vec<u32>,
    },
}

/// An entry that a command admits.
#[derive(Clone, Copy, Debug)]
struct Admission {
    id: EntryId,
    /// The datapath is asked: the agent knows no reason to refuse it.
    is_tried: bool,
}

/// An entry that may be evicted.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: EntryId,
    evicting: bool,
}

/// The agent of one switch. See the [module](super) for how to drive it.
///
/// At most one operation is under way. What it is called for is a list of steps; commands that
/// arrive meanwhile wait.
#[derive(Debug)]
pub struct Agent {
    boot: u64,
    address: Address,
    config: AgentConfig,
    epoch: u32,
    /// The epoch of the command that is being obeyed: its chain's.
    asked_in: u32,
    /// In the chain, in this epoch.
    place: Place,
    /// Partitions and their replicas; `None` before it is configured.
    map: Option<Map>,
    entries: Entries,
    /// What was cached in an earlier epoch, until something is admitted in this one.
    frozen: Entries,
    /// That epoch.
    frozen_epoch: u32,
    /// Incarnations up to here were admitted, or never will be: they rise from one command to the
    /// next.
    admitted_to: EntryId,
    snapshot: Option<Snapshot>,
    /// `None`: its switch owns no records, or they may be dirty for ever.
    sweep: Option<Sweep>,
    choices: BTreeMap<CommandId, Vec<EntryId>>,
    reports: VecDeque<SwitchReport>,
    statistics: AgentStatistics,
    timers: Timers<AgentTimer, 5>,
    learning: Learning,
    traffic: Traffic,
    commands: VecDeque<Command<SwitchCommand>>,
    steps: VecDeque<Step>,
    /// The next operation, until it is polled.
    op: Option<DatapathOp>,
    /// An operation is under way, or is to be polled.
    awaited: Option<Awaited>,
}

impl Agent {
    /// An agent that isn't configured yet. `boot` must differ at every start; `address` is where
    /// its switch takes packets.
    pub fn new(boot: u64, address: Address, config: AgentConfig, now: Now) -> Agent {
        let mut timers = Timers::new();
        timers.set(AgentTimer::Hello, now.monotonic_us);
        Agent {
            boot,
            address,
            epoch: 0,
            asked_in: 0,
            place: Place::sole(),
            map: None,
            entries: Entries::default(),
            frozen: Entries::default(),
            frozen_epoch: 0,
            admitted_to: 0,
            snapshot: None,
            sweep: None,
            choices: BTreeMap::new(),
            reports: VecDeque::new(),
            statistics: AgentStatistics::default(),
            timers,
            learning: Learning::new(config.learning, now),
            traffic: Traffic::begin(now, config.quiet_us, 0),
            commands: VecDeque::new(),
            steps: VecDeque::new(),
            op: None,
            awaited: None,
            config,
        }
    }

    /// The epoch it serves; 0 before it is configured.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Keys in the cache.
    pub fn cached(&self) -> usize {
        self.entries.len()
    }

    /// The earlier epoch whose cached records it keeps; `None`: it keeps none.
    pub fn frozen_epoch(&self) -> Option<u32> {
        (self.frozen.len() > 0).then_some(self.frozen_epoch)
    }

    /// Counters.
    pub fn statistics(&self) -> AgentStatistics {
        self.statistics
    }

    /// Every cached key, with whether it is being evicted.
    pub fn entries(&self) -> impl Iterator<Item = (&Entry, bool)> {
        self.entries.all().map(|cached| (&cached.entry, cached.evicting))
    }

    /// Whether a snapshot is being taken. Then [`Agent::poll_timeout`] is due at once, and each
    /// [`Agent::handle_timeout`] loads [`AgentConfig::loads_a_step`] records.
    pub fn is_taking_snapshot(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Takes a command of the controller.
    pub fn handle_message(&mut self, now: Now, command: Command<SwitchCommand>) {
        if self.commands.len() < COMMANDS_MAX {
            self.commands.push_back(command);
        }
        self.go_on(now);
    }

    /// Says hello, looks at what was counted, goes on with a snapshot, takes the datapath's
    /// reports.
    pub fn handle_timeout(&mut self, now: Now) {
        let reports = Step::TakeReports { tells: false };
        self.take_steps(
            now,
            [Step::Hello, Step::Count, reports, Step::LoadRecords, Step::Sweep, Step::TellAgain],
        );
    }

    /// Takes the datapath's reports, if there are any.
    pub fn handle_readable(&mut self, now: Now) {
        self.take_steps(now, [Step::TakeReports { tells: false }]);
    }

    /// Takes steps that aren't asked for by the controller: none while an operation is under way,
    /// for they are asked for again.
    fn take_steps(&mut self, now: Now, steps: impl IntoIterator<Item = Step>) {
        if self.awaited.is_none() {
            self.steps.extend(steps);
            self.go_on(now);
        }
    }

    /// Goes on with what is to be done, up to the next operation.
    fn go_on(&mut self, now: Now) {
        while self.awaited.is_none() {
            if let Some(step) = self.steps.pop_front() {
                self.take_step(now, step);
            } else if let Some(command) = self.commands.pop_front() {
                self.obey(now, command);
            } else {
                return;
            }
        }
    }

    /// Has something done to the datapath.
    fn ask(&mut self, action: DatapathAction, awaited: Awaited) {
        assert!(self.awaited.is_none(), "one operation at a time");
        self.op = Some(DatapathOp { epoch: self.epoch, action });
        self.awaited = Some(awaited);
    }

    /// The next operation on the datapath. No other one follows before [`Agent::handle_done`].
    pub fn poll_op(&mut self) -> Option<DatapathOp> {
        self.op.take()
    }

    /// The operation that was polled has ended so.
    pub fn handle_done(&mut self, now: Now, done: DatapathDone) {
        let awaited = self.awaited.take().expect("an operation is under way");
        match (awaited, done) {
            (Awaited::Nothing, DatapathDone::Changed) => {}
            (Awaited::Answer(command), DatapathDone::Changed) => {
                self.answer(command, SwitchResult::Ok)
            }
            (Awaited::Configured(command), DatapathDone::Configured { requests, misses }) => {
                self.configured(now, command, requests, misses);
            }
            (Awaited::LoadedFrozen(command, entries, next), DatapathDone::Records(records)) => {
                self.loaded_frozen(command, &entries, records, next)
            }
            (Awaited::Forgotten(command, entries), DatapathDone::Changed) => {
                self.admit(command, entries);
            }
            (Awaited::Admitted { command, entries }, DatapathDone::Admitted(admitted)) => {
                self.admitted(command, &entries, &admitted);
            }
            (
                Awaited::Counters { command, candidates, counts },
                DatapathDone::Counters(counters),
            ) => {
                self.choose(command, &candidates, &counters, &counts);
            }
            (Awaited::Watched(pairs), DatapathDone::Counters(counters)) => {
                self.watched(&pairs, &counters)
            }
            (Awaited::Evicting { command, entries }, DatapathDone::Records(records)) => {
                self.evicting(command, &entries, records);
            }
            (Awaited::Hello, DatapathDone::Meters { requests, sequence_used, classes, heard }) => {
                self.say_hello(now, requests, sequence_used, classes);
                let heard = heard.map(|heard| SwitchReport::Heard { epoch: self.epoch, heard });
                self.reports.extend(heard);
            }
            (Awaited::Counted, DatapathDone::Counted(counted)) => self.counted(now, counted),
            (Awaited::Reports { tells }, DatapathDone::Reports(reports)) => {
                self.reported(reports, tells)
            }
            (Awaited::Loaded(entries), DatapathDone::Records(records)) => {
                self.loaded(entries, records)
            }
            (Awaited::Swept, DatapathDone::Records(records)) => self.swept(records),
            (Awaited::SnapshotBegun(command, generation), DatapathDone::SnapshotBegun(begun)) => {
                self.snapshot_begun(now, command, generation, begun);
            }
            (Awaited::SnapshotEnded, DatapathDone::Changed) => self.snapshot_ended(),
            (Awaited::InspectedCounters { command, entries }, DatapathDone::Counters(counters)) => {
                let awaited = Awaited::InspectedRecords { command, counters };
                self.ask(DatapathAction::LoadRecords(entries), awaited);
            }
            (Awaited::InspectedRecords { command, counters }, DatapathDone::Records(records)) => {
                self.inspected(command, counters, records);
            }
            (awaited, done) => unreachable!("{awaited:?} ends with {done:?}"),
        }
        self.go_on(now);
    }

    /// Takes the next message for the controller.
    pub fn poll_message(&mut self) -> Option<SwitchReport> {
        self.reports.pop_front()
    }

    /// When to call [`Agent::handle_timeout`] next, of the monotonic clock; `None` while an
    /// operation is under way.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.next_us().filter(|_| self.awaited.is_none())
    }

    fn take_step(&mut self, now: Now, step: Step) {
        match step {
            Step::Hello if self.timers.is_due(AgentTimer::Hello, now) => {
                self.ask(DatapathAction::ReadMeters(self.place), Awaited::Hello);
            }
            Step::Hello => {}
            Step::Count if self.timers.is_due(AgentTimer::Count, now) => {
                let counting = self.learning.counting();
                self.ask(DatapathAction::SetCounting(counting), Awaited::Counted);
            }
            Step::Count => {}
            Step::TakeReports { tells } => {
                self.ask(DatapathAction::TakeReports, Awaited::Reports { tells })
            }
            Step::LoadRecords => self.load_records(),
            Step::Sweep if self.timers.is_due(AgentTimer::Sweep, now) => self.sweep(now),
            Step::Sweep => {}
            Step::EndSnapshot => self.ask(DatapathAction::EndSnapshot, Awaited::SnapshotEnded),
            Step::TellEvictions(ids) => self.begin_evictions(None, ids),
            Step::TellAgain => self.tell_again(now),
            Step::BeginSnapshot(command, generation) => {
                let awaited = Awaited::SnapshotBegun(command, generation);
                self.ask(DatapathAction::BeginSnapshot(generation), awaited);
            }
            Step::Remove(command, entries) => self.remove(command, &entries),
            Step::Clean(command, versions) => self.clean(command, &versions),
        }
    }

    fn obey(&mut self, now: Now, command: Command<SwitchCommand>) {
        let Command { id, epoch, body, .. } = command;
        let is_mine = |boot: u64| boot == self.boot || !self.config.mechanisms.switch_life();
        let configures = match &body {
            SwitchCommand::Configure(config) | SwitchCommand::Freeze(config) => {
                is_mine(config.boot)
            }
            _ => false,
        };
        let is_of_round = self.config.has_copies
            && !self.place.is_owner()
            && round_of(epoch) == round_of(self.epoch);
        if epoch != self.epoch && !(is_of_round || (epoch > self.epoch && configures)) {
            return;
        }
        self.asked_in = epoch;
        match body {
            SwitchCommand::Configure(config) => {
                self.configure(id, epoch, DatapathAction::Configure(config));
            }
            SwitchCommand::Freeze(config) => {
                self.configure(id, epoch, DatapathAction::Freeze(config));
            }
            SwitchCommand::LoadFrozen(from) => self.load_frozen(id, from),
            SwitchCommand::Lanes(lanes) => {
                self.ask(DatapathAction::SetLanes(lanes), Awaited::Answer(id))
            }
            SwitchCommand::NodeAddress(node, address) => {
                self.ask(DatapathAction::SetNode(node, address), Awaited::Answer(id));
            }
            SwitchCommand::Admit(entries) => self.admit(id, entries),
            SwitchCommand::EvictBegin { candidates, counts, waiting } => {
                self.learning.room_is_made(now, waiting);
                self.evict(id, &candidates, counts);
            }
            SwitchCommand::Remove(entries) => self.remove(id, &entries),
            SwitchCommand::Snapshot { generation } => self.begin_snapshot(id, generation),
            SwitchCommand::DurableGeneration(generation) => {
                self.ask(DatapathAction::SetDurableGeneration(generation), Awaited::Answer(id));
            }
            SwitchCommand::ListEntries(from) => {
                // The controller that asks knows of no eviction that has begun: it is told of them
                // as of those that the datapath began.
                self.entries.disown_evictions();
                self.timers.set(AgentTimer::Retry, now.monotonic_us);
                let (entries, next) = self.entries.list(from, BATCH_MAX);
                self.answer(id, SwitchResult::Entries(entries, next));
            }
            SwitchCommand::Inspect(entries) => self.inspect(id, &entries),
            SwitchCommand::Clean(versions) => self.clean(id, &versions),
            SwitchCommand::Views(views) => self.set_views(id, &views),
        }
    }

    /// Routes by these views. Without an answer the command is repeated: of a map with other
    /// partitions, in vain.
    fn set_views(&mut self, id: CommandId, views: &[View]) {
        let Some(Ok(map)) = self.map.as_ref().map(|map| map.with_views(views)) else { return };
        self.map = Some(map.clone());
        self.ask(DatapathAction::SetMap(map), Awaited::Answer(id));
    }

    fn answer(&mut self, id: CommandId, result: SwitchResult) {
        self.reports.push_back(SwitchReport::Done { id, epoch: self.asked_in, result });
    }

    /// Begins an epoch, with nothing cached; what was is frozen, or gone.
    fn configure(&mut self, command: CommandId, epoch: u32, action: DatapathAction) {
        if epoch == self.epoch {
            self.answer(command, SwitchResult::Ok); // repeated: what was admitted since stays
            return;
        }
        let (DatapathAction::Configure(config) | DatapathAction::Freeze(config)) = &action else {
            unreachable!("an epoch begins with a configuration");
        };
        let period_us = self.config.dirty_max_us.filter(|_| config.place.is_owner());
        self.sweep = period_us.map(Sweep::new);
        self.timers.stop(AgentTimer::Sweep);
        let cached = std::mem::take(&mut self.entries);
        if !matches!(action, DatapathAction::Freeze(_)) {
            self.frozen = Entries::default();
        } else if cached.len() > 0 {
            // Else nothing was admitted since there was something to freeze.
            (self.frozen, self.frozen_epoch) = (cached, self.epoch);
        }
        self.admitted_to = 0;
        self.snapshot = None;
        self.timers.stop(AgentTimer::Load);
        self.choices.clear();
        self.place = config.place;
        self.map = Some(config.map.clone());
        self.epoch = epoch;
        self.ask(action, Awaited::Configured(command));
    }

    fn load_frozen(&mut self, command: CommandId, from: Option<Location>) {
        let (entries, next) = self.frozen.list(from, BATCH_MAX);
        let awaited = Awaited::LoadedFrozen(command, entries.clone(), next);
        self.ask(DatapathAction::LoadRecords(entries), awaited);
    }

    /// Tells the records of frozen entries that no node has, as many as go into a message. If one
    /// couldn't be loaded the command is left to be repeated.
    fn loaded_frozen(
        &mut self,
        command: CommandId,
        entries: &[Entry],
        records: Vec<Option<LoadedRecord>>,
        next: Option<Location>,
    ) {
        let Some(records) = records.into_iter().collect::<Option<Vec<_>>>() else { return };
        let dirty = entries.iter().zip(records);
        let dirty: Vec<_> =
            dirty.filter_map(|(entry, loaded)| Some((entry.at, loaded.if_dirty()?))).collect();
        let told = batch_len(dirty.iter().map(|(_, keyed)| keyed));
        let next = dirty.get(told).map_or(next, |(at, _)| Some(*at));
        let records: Vec<_> = dirty.into_iter().take(told).map(|(_, keyed)| keyed).collect();
        self.answer(command, SwitchResult::Frozen(records, next));
        if next.is_none() && !self.config.mechanisms.forget_last() {
            self.forget_frozen(Awaited::Nothing);
        }
    }

    /// Frees the slots of what was frozen.
    fn forget_frozen(&mut self, awaited: Awaited) {
        let frozen = std::mem::take(&mut self.frozen);
        let entries = frozen.all().map(|cached| cached.entry.clone()).collect();
        self.ask(DatapathAction::Remove(entries), awaited);
    }

    fn configured(&mut self, now: Now, command: CommandId, requests: u64, misses: u64) {
        self.traffic = Traffic::begin(now, self.config.quiet_us, requests);
        self.timers.set(AgentTimer::Hello, now.monotonic_us);
        self.learning.begin(now, requests, misses);
        if self.config.records > 0 {
            self.timers.set(AgentTimer::Count, now.monotonic_us);
        }
        if self.sweep.is_some() {
            self.timers.set(AgentTimer::Sweep, now.monotonic_us);
        }
        self.answer(command, SwitchResult::Ok);
    }

    fn say_hello(&mut self, now: Now, requests: u64, sequence_used: u32, classes: Vec<(u32, u32)>) {
        self.timers.set(AgentTimer::Hello, now.in_us(self.config.heartbeat_us));
        self.traffic.observe(now, requests);
        let needs_epoch = self.needs_epoch(sequence_used);
        let (boot, address, epoch) = (self.boot, self.address, self.epoch);
        let AgentConfig { layer, domain, .. } = &self.config;
        let (layer, domain) = (*layer, domain.clone());
        let hello =
            SwitchReport::Hello { boot, address, layer, domain, epoch, classes, needs_epoch };
        self.reports.push_back(hello);
    }

    /// Whether the epoch's sequence numbers are so far used that now is the moment for another one.
    fn needs_epoch(&self, used: u32) -> bool {
        self.config.mechanisms.renewal()
            && (used >= RENEW_NOW || (used >= RENEW_WHEN_QUIET && self.traffic.is_quiet()))
    }

    /// Goes on counting by what was counted, and halves all counts if it is time.
    fn counted(&mut self, now: Now, counted: Counted) {
        self.timers.set(AgentTimer::Count, now.in_us(self.config.learning.period_us));
        let (cached, records) = (self.entries.len(), self.config.records);
        if self.learning.look(now, counted, cached, records) {
            self.statistics.ageings += 1;
            self.ask(DatapathAction::Age, Awaited::Nothing);
        } else {
            self.look_at_watched();
        }
    }

    /// Reads the counters of newcomers and spared victims that were watched for long enough: of
    /// pairs both of which are cached still.
    fn look_at_watched(&mut self) {
        let mut pairs = self.learning.watched();
        pairs.retain(|(newcomer, victim)| {
            [newcomer, victim].iter().all(|one| self.entries.get(one.id).is_some())
        });
        if !pairs.is_empty() {
            let slots = pairs.iter().flat_map(|(newcomer, victim)| [newcomer.at, victim.at]);
            self.ask(DatapathAction::ReadCounters(slots.collect()), Awaited::Watched(pairs));
        }
    }

    fn watched(&mut self, pairs: &[(Watched, Watched)], counters: &[u32]) {
        for ((newcomer, victim), counters) in pairs.iter().zip(counters.chunks_exact(2)) {
            let hits = |one: &Watched, counter: u32| counter.saturating_sub(one.count);
            self.learning.seen(hits(newcomer, counters[0]), hits(victim, counters[1]));
        }
    }

    fn admit(&mut self, command: CommandId, entries: Vec<Entry>) {
        if self.frozen.len() > 0 {
            self.forget_frozen(Awaited::Forgotten(command, entries));
            return;
        }
        let (mut admissions, mut tried) = (Vec::new(), Vec::new());
        for mut entry in entries {
            if self.entries.get(entry.id).is_some() {
                continue; // repeated
            }
            entry.count = self.learning.worth(entry.count);
            // Repeated after it was evicted and removed: admitted once more it would be there,
            // unknown to the controller. (Or overtaken by a later command: then its key is offered
            // again.)
            let is_late =
                entry.id <= self.admitted_to && self.config.mechanisms.rising_admissions();
            self.admitted_to = self.admitted_to.max(entry.id);
            let is_tried = !is_late && self.entries.is_free(entry.at);
            admissions.push(Admission { id: entry.id, is_tried });
            if is_tried {
                // It holds its place from here on, unless the datapath refuses it.
                self.entries.insert(entry.clone());
                tried.push(entry);
            }
        }
        let counted = tried.iter().filter(|entry| entry.count != Offer::NAMED);
        if let Some(Entry { id, at, count, .. }) = counted.min_by_key(|entry| entry.count) {
            self.learning.admitted(Watched { id: *id, at: *at, count: *count });
        }
        self.ask(DatapathAction::Admit(tried), Awaited::Admitted { command, entries: admissions });
    }

    fn admitted(&mut self, command: CommandId, entries: &[Admission], admitted: &[bool]) {
        let mut admitted = admitted.iter();
        let mut refused = Vec::new();
        for Admission { id, is_tried } in entries {
            if *is_tried && admitted.next() == Some(&true) {
                self.statistics.admitted += 1;
                continue;
            }
            if *is_tried {
                self.entries.remove(*id);
            }
            self.statistics.refused += 1;
            refused.push(*id);
        }
        self.answer(command, SwitchResult::Admitted { refused });
    }

    /// Evicts the least accessed of the candidates, as many as are outdone: the first of `counts`
    /// by the least of them, the second by the next. The same ones if the command is repeated.
    fn evict(&mut self, command: CommandId, candidates: &[EntryId], counts: Vec<u32>) {
        if let Some(chosen) = self.choices.get(&command) {
            self.begin_evictions(Some(command), chosen.clone());
            return;
        }
        let (mut known, mut counters) = (Vec::new(), Vec::new());
        for id in candidates {
            let Some(cached) = self.entries.get(*id) else { continue };
            known.push(Candidate { id: *id, evicting: cached.evicting });
            if !cached.evicting {
                counters.push(cached.entry.at);
            }
        }
        self.ask(
            DatapathAction::ReadCounters(counters),
            Awaited::Counters { command, candidates: known, counts },
        );
    }

    fn choose(
        &mut self,
        command: CommandId,
        candidates: &[Candidate],
        counters: &[u32],
        counts: &[u32],
    ) {
        let mut counters = counters.iter();
        let mut next = || counters.next().copied().unwrap_or(0);
        // One whose eviction has begun (for a controller that is gone) is the first to go: `None`.
        let counted = candidates.iter().map(|one| ((!one.evicting).then(&mut next), one.id));
        let mut counted: Vec<_> = counted.collect();
        counted.sort_unstable();
        let counts_of: Vec<_> = counted.iter().filter_map(|(counter, _)| *counter).collect();
        self.learning.compared(&counts_of);
        let gives_way = |(counter, worth): (Option<u32>, u32)| {
            counter.is_none_or(|cached| worth >= self.learning.to_outdo(cached))
        };
        let worths = counts.iter().map(|count| self.learning.worth(*count));
        let outdone = counted
            .iter()
            .zip(worths)
            .take_while(|((counter, _), worth)| gives_way((*counter, *worth)))
            .count();
        let mut chosen: Vec<_> = counted[..outdone].iter().map(|(_, chosen)| *chosen).collect();
        self.spare(&counted[..outdone], counts, &mut chosen);
        self.choices.insert(command, chosen.clone());
        while self.choices.len() > CHOICES_KEPT {
            self.choices.pop_first();
        }
        self.begin_evictions(Some(command), chosen);
    }

    /// Spares the last of the `chosen` now and then, if a key wants its place that was counted.
    fn spare(
        &mut self,
        outdone: &[(Option<u32>, EntryId)],
        counts: &[u32],
        chosen: &mut Vec<EntryId>,
    ) {
        let Some((Some(count), id)) = outdone.last().copied() else { return };
        let Some(cached) = self.entries.get(id) else { return };
        if counts[outdone.len() - 1] != Offer::NAMED && self.learning.spares(outdone.len()) {
            self.learning.spared(Watched { id, at: cached.entry.at, count });
            chosen.pop();
        }
    }

    /// Marks entries as to-be-evicted, for a command or because the datapath began it.
    fn begin_evictions(&mut self, command: Option<CommandId>, ids: Vec<EntryId>) {
        let known = ids.iter().filter_map(|id| Some(self.entries.get(*id)?.entry.clone()));
        let known: Vec<Entry> = known.collect();
        let entries = known.iter().map(|entry| entry.id).collect();
        self.ask(DatapathAction::BeginEvictions(known), Awaited::Evicting { command, entries });
    }

    /// Entries are to be evicted: tells what their nodes have to store of them, if anything.
    fn evicting(
        &mut self,
        command: Option<CommandId>,
        entries: &[EntryId],
        records: Vec<Option<LoadedRecord>>,
    ) {
        let mut evicting: Vec<(EntryId, Option<Record>)> = Vec::new();
        for (id, loaded) in entries.iter().zip(records) {
            let Some(loaded) = loaded else { continue };
            let cached =
                self.entries.get_mut(*id).expect("entries stay while an operation is under way");
            if !cached.evicting {
                cached.evicting = true;
                self.statistics.evicted += 1;
            }
            evicting.push((*id, loaded.if_dirty().map(|keyed| keyed.record)));
        }
        match command {
            Some(command) => self.answer(command, SwitchResult::Evicting(evicting)),
            None => self
                .reports
                .push_back(SwitchReport::EvictMe { epoch: self.epoch, entries: evicting }),
        }
    }

    /// Removes entries; their records are loaded first if a snapshot under way needs them.
    fn remove(&mut self, command: CommandId, entries: &[EntryId]) {
        if self.loads_first(entries.iter().copied()) {
            self.steps.push_front(Step::Remove(command, entries.to_vec()));
            return;
        }
        let removed =
            entries.iter().filter_map(|id| Some(self.entries.remove(*id)?.entry)).collect();
        self.ask(DatapathAction::Remove(removed), Awaited::Answer(command));
    }

    fn inspect(&mut self, command: CommandId, entries: &[EntryId]) {
        let known = entries.iter().filter_map(|id| Some(self.entries.get(*id)?.entry.clone()));
        let entries: Vec<Entry> = known.collect();
        let slots = entries.iter().map(|entry| entry.at).collect();
        self.ask(
            DatapathAction::ReadCounters(slots),
            Awaited::InspectedCounters { command, entries },
        );
    }

    fn inspected(
        &mut self,
        command: CommandId,
        counters: Vec<u32>,
        records: Vec<Option<LoadedRecord>>,
    ) {
        let inspected = counters.into_iter().zip(records).filter_map(|(count, loaded)| {
            let LoadedRecord { entry, keyed, dirty, .. } = loaded?;
            let bytes = (keyed.key.len() + keyed.record.value.len()) as u32;
            Some(Inspected { id: entry, count, dirty, bytes })
        });
        self.answer(command, SwitchResult::Inspected(inspected.collect()));
    }

    fn begin_snapshot(&mut self, command: CommandId, generation: u32) {
        if let Some(snapshot) = &self.snapshot {
            let repeated = snapshot.generation() == generation;
            self.answer(command, if repeated { SwitchResult::Ok } else { SwitchResult::Busy });
            return;
        }
        self.steps
            .extend([Step::TakeReports { tells: false }, Step::BeginSnapshot(command, generation)]);
    }

    fn snapshot_begun(&mut self, now: Now, command: CommandId, generation: u32, begun: bool) {
        if !begun {
            self.answer(command, SwitchResult::Busy);
            return;
        }
        self.snapshot = Some(Snapshot::begin(self.epoch, generation, &self.entries));
        self.timers.set(AgentTimer::Load, now.monotonic_us);
        self.statistics.snapshots += 1;
        self.answer(command, SwitchResult::Ok);
    }

    fn load_records(&mut self) {
        let Some(snapshot) = &mut self.snapshot else { return };
        let entries = snapshot.next_step(&self.entries, self.config.loads_a_step);
        let ids = entries.iter().map(|entry| entry.id).collect();
        self.ask(DatapathAction::LoadRecords(entries), Awaited::Loaded(ids));
    }

    /// Loads the records of these entries that a snapshot under way hasn't loaded. Whether there
    /// are any.
    fn loads_first(&mut self, ids: impl Iterator<Item = EntryId>) -> bool {
        let Some(snapshot) = &mut self.snapshot else { return false };
        if !self.config.mechanisms.load_before_removal() {
            return false;
        }
        let entries = snapshot.next_of(&self.entries, ids);
        if entries.is_empty() {
            return false;
        }
        let ids = entries.iter().map(|entry| entry.id).collect();
        self.ask(DatapathAction::LoadRecords(entries), Awaited::Loaded(ids));
        true
    }

    fn loaded(&mut self, entries: Vec<EntryId>, records: Vec<Option<LoadedRecord>>) {
        let snapshot =
            self.snapshot.as_mut().expect("a snapshot stays while its records are loaded");
        snapshot.loaded(entries, records);
        snapshot.emit(false, &mut self.reports);
        if snapshot.is_loaded() {
            // A record's original is reported before its new generation can be seen, so it is there
            // by now or never.
            self.steps.push_front(Step::EndSnapshot);
            self.steps.push_front(Step::TakeReports { tells: false });
        }
    }

    fn snapshot_ended(&mut self) {
        let snapshot = self.snapshot.take().expect("a snapshot stays until it ends");
        self.timers.stop(AgentTimer::Load);
        let must_be_whole = self.config.mechanisms.whole_snapshots();
        snapshot.finish(must_be_whole, &mut self.reports);
    }

    fn sweep(&mut self, now: Now) {
        let Some(sweep) = &mut self.sweep else { return };
        let (entries, pause_us) = sweep.step(&self.entries);
        self.timers.set(AgentTimer::Sweep, now.in_us(pause_us));
        if !entries.is_empty() {
            self.ask(DatapathAction::LoadRecords(entries), Awaited::Swept);
        }
    }

    /// Tells what the sweep found dirty, in as many messages as it takes. What a message doesn't
    /// reach the controller with is found again.
    fn swept(&mut self, records: Vec<Option<LoadedRecord>>) {
        let mut dirty: Vec<_> =
            records.into_iter().flatten().filter(|loaded| loaded.dirty).collect();
        while !dirty.is_empty() {
            let told = batch_len(dirty.iter().map(|loaded| &loaded.keyed));
            let records = dirty.drain(..told).map(|loaded| (loaded.entry, loaded.keyed.record));
            let report = SwitchReport::Dirty { epoch: self.epoch, records: records.collect() };
            self.reports.push_back(report);
        }
    }

    /// Nodes have stored these versions; records are loaded first as before a removal.
    fn clean(&mut self, command: CommandId, versions: &[(EntryId, Seq)]) {
        if self.loads_first(versions.iter().map(|(id, _)| *id)) {
            self.steps.push_front(Step::Clean(command, versions.to_vec()));
            return;
        }
        let known = versions
            .iter()
            .filter_map(|(id, seq)| Some((self.entries.get(*id)?.entry.clone(), *seq)));
        let known = known.collect();
        self.ask(DatapathAction::Clean(known), Awaited::Answer(command));
    }

    /// The datapath has reported this; `tells` if it has reported an eviction before.
    fn reported(&mut self, reports: Vec<DatapathReport>, mut tells: bool) {
        let are_all = reports.len() < BATCH_MAX;
        for report in reports {
            match report {
                DatapathReport::Original(loaded) => {
                    self.statistics.originals += 1;
                    if let Some(snapshot) = &mut self.snapshot {
                        snapshot.original(loaded);
                    }
                }
                DatapathReport::EvictMe(id) => tells |= self.evicts_itself(id),
            }
        }
        if !are_all {
            self.steps.push_front(Step::TakeReports { tells });
        } else if tells {
            self.tell_evicted_themselves();
        }
    }

    fn evicts_itself(&mut self, id: EntryId) -> bool {
        let begun = self.entries.evicts_itself(id);
        self.statistics.evicted_themselves += u64::from(begun);
        begun
    }

    fn tell_evicted_themselves(&mut self) {
        let ids: Vec<_> = self.entries.evicted_themselves().iter().copied().collect();
        for batch in ids.chunks(BATCH_MAX).rev() {
            self.steps.push_front(Step::TellEvictions(batch.to_vec()));
        }
    }

    fn tell_again(&mut self, now: Now) {
        let retry_us = now.in_us(self.config.retry_us);
        if self.timers.is_due(AgentTimer::Retry, now) {
            self.tell_evicted_themselves();
            self.timers.set(AgentTimer::Retry, retry_us);
        }
        if self.entries.evicted_themselves().is_empty() {
            self.timers.stop(AgentTimer::Retry);
        } else {
            self.timers.set_earlier(AgentTimer::Retry, retry_us);
        }
    }
}
