//! The agent: commands in, table writes and control packets, reports out.

use super::counting::Counting;
use super::entries::Entries;
use super::snapshot::Snapshot;
use super::target::{Inject, LoadedRecord, Target};
use super::traffic::Traffic;
use crate::control::{
    BATCH_MAX, Command, CommandId, Entry, EntryId, SwitchCommand, SwitchConfig, SwitchReport, SwitchResult,
};
use crate::mechanisms::Mechanisms;
use crate::storage::Record;
use crate::time::Now;
use std::collections::{BTreeMap, VecDeque};
use switchback_wire::{Address, Op, Packet};

/// Choices of the last so many commands are remembered, so that a repeated one is answered as before.
const CHOICES_KEPT: usize = 1024;

/// Sequence numbers of an epoch that are used when another one is asked for at a quiet moment, and when at
/// any moment; in 256ths. At ten million writes a second to one key these are 15 and 27 hours.
const RENEW_WHEN_QUIET: u32 = 128;
const RENEW_NOW: u32 = 224;

/// Times of an agent.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// How often it says hello.
    pub heartbeat_us: u64,
    /// The sketch and the counters are cleared at least this often.
    pub reset_us: u64,
    /// How misses are counted while the cache is full; anew after so many, whatever the rate, that a slow rack finds its hot keys, too.
    pub counting: Counting,
    /// And while it has room: fewer than `records` keys are cached.
    pub counting_with_room: Counting,
    /// How many keys the cache is to hold.
    pub records: usize,
    /// How often evictions that the datapath began are told again.
    pub retry_us: u64,
    /// How long there must be little to do for a moment to be quiet.
    pub quiet_us: u64,
    /// Records of a snapshot that are loaded between two looks at anything else.
    pub loads_a_step: usize,
    /// All, but in simulations.
    pub mechanisms: Mechanisms,
}

impl Default for AgentConfig {
    fn default() -> AgentConfig {
        let counting = Counting { start: 0, misses: 1 << 18 };
        AgentConfig {
            heartbeat_us: 20_000,
            reset_us: 60_000_000,
            counting,
            counting_with_room: counting,
            records: 0,
            retry_us: 50_000,
            quiet_us: 1_000_000,
            loads_a_step: 256,
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
    pub resets: u64,
}

/// The agent of one switch. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Agent {
    boot: u64,
    address: Address,
    config: AgentConfig,
    epoch: u32,
    entries: Entries,
    /// Incarnations up to here were admitted, or never will be: they rise from one command to the next.
    admitted_to: EntryId,
    snapshot: Option<Snapshot>,
    choices: BTreeMap<CommandId, Vec<EntryId>>,
    reports: VecDeque<SwitchReport>,
    statistics: AgentStatistics,
    packet: Packet,
    next_hello_us: u64,
    next_reset_us: u64,
    misses_at_reset: u64,
    counting: Counting,
    /// Room had to be made since counting began, so there was none.
    made_room: bool,
    next_retry_us: u64,
    traffic: Traffic,
}

impl Agent {
    /// An agent that isn't configured yet. `boot` must differ at every start; `address` is where clients send packets.
    pub fn new(boot: u64, address: Address, config: AgentConfig, now: Now) -> Agent {
        Agent {
            boot,
            address,
            epoch: 0,
            entries: Entries::default(),
            admitted_to: 0,
            snapshot: None,
            choices: BTreeMap::new(),
            reports: VecDeque::new(),
            statistics: AgentStatistics::default(),
            packet: Packet::new(),
            next_hello_us: now.monotonic_us,
            next_reset_us: now.in_us(config.reset_us),
            misses_at_reset: 0,
            counting: config.counting,
            made_room: false,
            next_retry_us: u64::MAX,
            traffic: Traffic::begin(now, config.quiet_us, 0),
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

    /// Counters.
    pub fn statistics(&self) -> AgentStatistics {
        self.statistics
    }

    /// Every cached key, with whether it is being evicted.
    pub fn entries(&self) -> impl Iterator<Item = (&Entry, bool)> {
        self.entries.all().map(|cached| (&cached.entry, cached.evicting))
    }

    /// Takes a command of the controller.
    pub fn handle_command(&mut self, now: Now, command: Command<SwitchCommand>, target: &mut dyn Target) {
        let Command { id, epoch, body } = command;
        let is_mine = |boot: u64| boot == self.boot || !self.config.mechanisms.switch_life;
        let configures = matches!(&body, SwitchCommand::Configure(config) if is_mine(config.boot));
        if epoch < self.epoch || (epoch > self.epoch && !configures) {
            return;
        }
        let result = match body {
            SwitchCommand::Configure(config) => self.configure(now, epoch, &config, target),
            SwitchCommand::Lanes(lanes) => {
                target.set_lanes(lanes);
                SwitchResult::Ok
            }
            SwitchCommand::NodeAddress(node, address) => {
                target.set_node(node, address);
                SwitchResult::Ok
            }
            SwitchCommand::Admit(entries) => self.admit(entries, target),
            SwitchCommand::EvictBegin { candidates, count } => {
                self.makes_room(now);
                self.evict_begin(id, &candidates, count, target)
            }
            SwitchCommand::Remove(entries) => self.remove(&entries, target),
            SwitchCommand::Snapshot { generation } => self.begin_snapshot(generation, target),
            SwitchCommand::DurableGeneration(generation) => {
                self.inject(target).set_durable_generation(generation);
                SwitchResult::Ok
            }
            SwitchCommand::ListEntries(from) => {
                // Whoever asks knows of no eviction that has begun: it hears of them as of those that the datapath began.
                self.entries.disown_evictions();
                self.next_retry_us = now.monotonic_us;
                let (entries, next) = self.entries.list(from, BATCH_MAX);
                SwitchResult::Entries(entries, next)
            }
        };
        self.reports.push_back(SwitchReport::Done { id, epoch: self.epoch, result });
    }

    fn inject<'a>(&'a mut self, target: &'a mut dyn Target) -> Inject<'a> {
        Inject { target, packet: &mut self.packet, epoch: self.epoch }
    }

    fn configure(&mut self, now: Now, epoch: u32, config: &SwitchConfig, target: &mut dyn Target) -> SwitchResult {
        if epoch == self.epoch {
            return SwitchResult::Ok; // repeated: what was admitted since stays
        }
        // Epoch 0 refuses every packet while nothing is what it was.
        self.inject(target).set_epoch(0, config.generation);
        target.clear();
        self.entries = Entries::default();
        self.admitted_to = 0;
        self.snapshot = None;
        self.choices.clear();
        for (node, address) in config.nodes.iter().enumerate() {
            target.set_node(node as u16, *address);
        }
        for (partition, replicas) in config.routes.iter().enumerate() {
            target.set_route(partition as u16, replicas);
        }
        target.set_lanes(config.lanes);
        self.epoch = epoch;
        self.traffic = Traffic::begin(now, self.config.quiet_us, target.requests());
        self.next_hello_us = now.monotonic_us;
        let set = self.inject(target).set_epoch(epoch, config.generation);
        assert!(set || target.failure().is_some(), "the datapath takes its own agent's epoch");
        self.begin_counting(now, target);
        SwitchResult::Ok
    }

    /// Room is made, so the cache is full: it counts as such from now on.
    fn makes_room(&mut self, now: Now) {
        self.made_room = true;
        if self.counting != self.config.counting {
            self.next_reset_us = now.monotonic_us;
        }
    }

    /// Clears counters, and counts as the cache's room asks for.
    fn begin_counting(&mut self, now: Now, target: &mut dyn Target) {
        let has_room = !self.made_room && self.entries.len() < self.config.records;
        self.counting = if has_room { self.config.counting_with_room } else { self.config.counting };
        self.made_room = false;
        self.misses_at_reset = target.misses();
        self.next_reset_us = now.in_us(self.config.reset_us);
        self.statistics.resets += 1;
        let start = self.counting.start;
        self.inject(target).reset_counting(start);
    }

    fn admit(&mut self, entries: Vec<Entry>, target: &mut dyn Target) -> SwitchResult {
        let mut refused = Vec::new();
        for entry in entries {
            if self.entries.get(entry.id).is_some() {
                continue; // repeated
            }
            // Repeated after it was evicted and removed: admitted once more it would be there without anybody's knowing. (Or overtaken by
            // a later command: then its key is offered again.)
            let is_late = entry.id <= self.admitted_to && self.config.mechanisms.rising_admissions;
            self.admitted_to = self.admitted_to.max(entry.id);
            if is_late || !self.entries.is_free(entry.at) || !self.inject(target).admit(&entry) {
                self.statistics.refused += 1;
                refused.push(entry.id);
                continue;
            }
            self.statistics.admitted += 1;
            self.entries.insert(entry);
        }
        SwitchResult::Admitted { refused }
    }

    /// Evicts the least accessed of the candidates; the same ones if the command is repeated.
    fn evict_begin(
        &mut self,
        id: CommandId,
        candidates: &[EntryId],
        count: u32,
        target: &mut dyn Target,
    ) -> SwitchResult {
        let chosen = match self.choices.get(&id) {
            Some(chosen) => chosen.clone(),
            None => {
                let mut counted = Vec::new();
                for candidate in candidates {
                    let Some(cached) = self.entries.get(*candidate) else { continue };
                    let (at, evicting) = (cached.entry.at, cached.evicting);
                    // One whose eviction has begun (for a controller that is gone) is the first to go.
                    let count = if evicting { 0 } else { self.inject(target).counter(at).saturating_add(1) };
                    counted.push((count, *candidate));
                }
                counted.sort_unstable();
                let chosen: Vec<_> = counted.into_iter().take(count as usize).map(|(_, chosen)| chosen).collect();
                self.choices.insert(id, chosen.clone());
                while self.choices.len() > CHOICES_KEPT {
                    self.choices.pop_first();
                }
                chosen
            }
        };
        let evicting = chosen.into_iter().filter_map(|id| Some((id, self.begin_eviction(id, target)?))).collect();
        SwitchResult::Evicting(evicting)
    }

    /// Marks an entry as to-be-evicted; what a node has to store of it, if anything.
    fn begin_eviction(&mut self, id: EntryId, target: &mut dyn Target) -> Option<Option<Record>> {
        let entry = self.entries.get(id)?.entry.clone();
        let loaded = self.inject(target).evict_begin(&entry)?;
        let cached = self.entries.get_mut(id).expect("looked up above");
        if !cached.evicting {
            cached.evicting = true;
            self.statistics.evicted += 1;
        }
        Some(loaded.if_dirty().map(|keyed| keyed.record))
    }

    fn remove(&mut self, entries: &[EntryId], target: &mut dyn Target) -> SwitchResult {
        for id in entries {
            if let Some(cached) = self.entries.remove(*id) {
                self.inject(target).remove(&cached.entry);
            }
        }
        SwitchResult::Ok
    }

    fn begin_snapshot(&mut self, generation: u32, target: &mut dyn Target) -> SwitchResult {
        if let Some(snapshot) = &self.snapshot {
            let repeated = snapshot.generation == generation;
            return if repeated { SwitchResult::Ok } else { SwitchResult::Busy };
        }
        self.take_reports(target);
        let mut inject = Inject { target, packet: &mut self.packet, epoch: self.epoch };
        match Snapshot::begin(generation, &self.entries, &mut inject) {
            Some(snapshot) => {
                self.snapshot = Some(snapshot);
                self.statistics.snapshots += 1;
                SwitchResult::Ok
            }
            None => SwitchResult::Busy,
        }
    }

    /// When to call [`Agent::handle_timeout`] next, of the monotonic clock; 0 while there are records to load.
    pub fn poll_timeout(&self) -> u64 {
        if self.snapshot.is_some() {
            return 0;
        }
        self.next_hello_us.min(self.next_reset_us).min(self.next_retry_us)
    }

    /// Says hello, clears counters, goes on with a snapshot, takes the datapath's reports.
    pub fn handle_timeout(&mut self, now: Now, target: &mut dyn Target) {
        if now.monotonic_us >= self.next_hello_us {
            self.next_hello_us = now.in_us(self.config.heartbeat_us);
            self.traffic.observe(now, target.requests());
            let (boot, address, epoch) = (self.boot, self.address, self.epoch);
            let (classes, needs_epoch) = (target.classes(), self.needs_epoch(target));
            self.reports.push_back(SwitchReport::Hello { boot, address, epoch, classes, needs_epoch });
        }
        // (None any more, once the datapath has failed.)
        let misses = target.misses().saturating_sub(self.misses_at_reset);
        if now.monotonic_us >= self.next_reset_us || misses >= self.counting.misses {
            self.begin_counting(now, target);
        }
        self.take_reports(target);
        self.go_on_with_snapshot(target);
        if now.monotonic_us >= self.next_retry_us {
            self.tell_evicted_themselves(target);
            self.next_retry_us = now.in_us(self.config.retry_us);
        }
        if self.entries.evicted_themselves().is_empty() {
            self.next_retry_us = u64::MAX;
        } else {
            self.next_retry_us = self.next_retry_us.min(now.in_us(self.config.retry_us));
        }
    }

    /// Whether the epoch's sequence numbers are so far used that now is the moment for another one.
    fn needs_epoch(&self, target: &dyn Target) -> bool {
        let used = target.sequence_used();
        self.config.mechanisms.renewal && (used >= RENEW_NOW || (used >= RENEW_WHEN_QUIET && self.traffic.is_quiet()))
    }

    fn go_on_with_snapshot(&mut self, target: &mut dyn Target) {
        let Some(mut snapshot) = self.snapshot.take() else { return };
        let mut inject = Inject { target, packet: &mut self.packet, epoch: self.epoch };
        let loaded = snapshot.step(&self.entries, &mut inject, self.config.loads_a_step);
        snapshot.emit(false, &mut self.reports);
        self.snapshot = Some(snapshot);
        if loaded {
            // A record's original is reported before its new generation can be seen, so it is there by now or never.
            self.take_reports(target);
            let snapshot = self.snapshot.take().expect("put back above");
            let mut inject = Inject { target, packet: &mut self.packet, epoch: self.epoch };
            let must_be_whole = self.config.mechanisms.whole_snapshots;
            snapshot.finish(&self.entries, &mut inject, must_be_whole, &mut self.reports);
        }
    }

    /// Takes what the datapath reports.
    pub fn take_reports(&mut self, target: &mut dyn Target) {
        let mut told = false;
        while target.next_report(&mut self.packet) {
            let Some(loaded) = LoadedRecord::from_packet(&self.packet) else { continue };
            match self.packet.parse().map(|parts| parts.header.op) {
                Ok(Op::Original) => {
                    self.statistics.originals += 1;
                    if let Some(snapshot) = &mut self.snapshot {
                        snapshot.original(loaded);
                    }
                }
                Ok(Op::EvictMe) => told |= self.evicts_itself(loaded.entry),
                _ => {}
            }
        }
        if told {
            self.tell_evicted_themselves(target);
        }
    }

    fn evicts_itself(&mut self, id: EntryId) -> bool {
        let begun = self.entries.evicts_itself(id);
        self.statistics.evicted_themselves += u64::from(begun);
        begun
    }

    fn tell_evicted_themselves(&mut self, target: &mut dyn Target) {
        let ids: Vec<_> = self.entries.evicted_themselves().iter().copied().collect();
        for batch in ids.chunks(BATCH_MAX) {
            let entries: Vec<_> =
                batch.iter().filter_map(|id| Some((*id, self.begin_eviction(*id, target)?))).collect();
            self.reports.push_back(SwitchReport::EvictMe { epoch: self.epoch, entries });
        }
    }

    /// Takes the next message for the controller.
    pub fn poll_report(&mut self) -> Option<SwitchReport> {
        self.reports.pop_front()
    }
}
