//! The controller's state, and the way of messages through it.

use super::admission::Waiting;
use super::cache::Cache;
use super::commands::{Commands, Purpose};
use super::directory::{Directory, Files, GENERATIONS_RESERVED, SnapshotFile, StoreFile, decode, encode};
use super::recovery::Recovery;
use super::renewal::Renewal;
use super::sessions::ClientState;
use super::snapshots::Snapshots;
use super::status::RecoveryTimes;
use crate::control::{ClientNotice, CommandId, Envelope, Message, NodeReport, Peer, SwitchReport, SwitchResult};
use crate::mechanisms::Mechanisms;
use crate::storage::EngineError;
use crate::time::Now;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::{Address, HashKey, KeyHash, Scheme};

/// What a rack is made of, and its times.
#[derive(Clone, Debug)]
pub struct ControllerConfig {
    /// Address of each node.
    pub nodes: Vec<Address>,
    /// Replicas of each partition, for a rack that is made now; an existing one keeps its own.
    pub routes: Vec<Vec<u16>>,
    /// What the cache does.
    pub scheme: Scheme,
    /// Keys that the cache may hold.
    pub cache_records: usize,
    /// Cached keys that an eviction compares.
    pub eviction_sample: usize,
    /// Lanes in all, and for one session at most.
    pub lanes: (u32, u32),
    /// Lease of a session.
    pub lease_us: u64,
    /// How far the clocks of client and controller may drift apart during a lease.
    pub drift_us: u64,
    /// How long a recovery waits for a client that keeps its records on disk.
    pub spool_wait_us: u64,
    /// Silence after which a switch counts as dead.
    pub switch_timeout_us: u64,
    /// The same, once its connection is lost.
    pub switch_lost_us: u64,
    /// How long a rack without any switch waits for one before its clients send to the nodes.
    pub bypass_us: u64,
    /// Time between two snapshots.
    pub snapshot_us: u64,
    /// First pause before a command is repeated.
    pub retry_us: u64,
}

impl Default for ControllerConfig {
    fn default() -> ControllerConfig {
        ControllerConfig {
            nodes: Vec::new(),
            routes: Vec::new(),
            scheme: Scheme::FarReach,
            cache_records: 65_536,
            eviction_sample: 8,
            lanes: (65_536, 4_096),
            lease_us: 5_000_000,
            drift_us: 100_000,
            spool_wait_us: 60_000_000,
            switch_timeout_us: 500_000,
            switch_lost_us: 50_000,
            bypass_us: 2_000_000,
            snapshot_us: 10_000_000,
            retry_us: 50_000,
        }
    }
}

/// What the driver has to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Send a message.
    Send(Envelope),
    /// Store a file whole, then call [`Controller::handle_stored`].
    Store(StoreFile, u64, Vec<u8>),
}

/// A switch as the controller knows it.
#[derive(Clone, Debug)]
pub(super) struct SwitchState {
    pub(super) boot: u64,
    pub(super) address: Address,
    pub(super) epoch: u32,
    pub(super) classes: Vec<(u32, u32)>,
    /// It counts as dead when it says nothing until then.
    pub(super) dead_at_us: u64,
    pub(super) heard_us: u64,
}

/// A node as the controller knows it.
#[derive(Clone, Debug)]
pub(super) struct NodeState {
    pub(super) boot: u64,
    pub(super) address: Address,
    pub(super) epoch: u32,
    pub(super) held: bool,
    pub(super) heard_us: u64,
    /// Why it did not do what it was told.
    pub(super) refusal: Option<String>,
    /// What its storage has lately refused.
    pub(super) failure: Option<String>,
}

/// What the rack is doing.
#[derive(Debug)]
pub(super) enum Phase {
    /// No switch serves: the first that says hello will.
    Waiting,
    /// The switch that serves is known, its cached keys are being listed (after a restart of the controller).
    Resyncing,
    /// A new epoch is being made durable, then recovered.
    Recovering(Box<Recovery>),
    /// All is well.
    Serving,
}

/// A recovery calls the controller once in a retry's pause; if so many were missed, it slept.
const SLEEP_RETRIES: u64 = 4;

/// The controller of one rack. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Controller {
    pub(super) config: ControllerConfig,
    pub(super) mechanisms: Mechanisms,
    pub(super) random: Pcg32,
    pub(super) directory: Directory,
    pub(super) snapshot: SnapshotFile,
    pub(super) phase: Phase,
    pub(super) switches: BTreeMap<u16, SwitchState>,
    pub(super) nodes: Vec<NodeState>,
    pub(super) clients: BTreeMap<u64, ClientState>,
    pub(super) commands: Commands,
    pub(super) cache: Cache,
    pub(super) waiting: Waiting,
    pub(super) snapshots: Snapshots,
    /// How many wait for an empty cache.
    pub(super) drains: u32,
    pub(super) renewal: Renewal,
    pub(super) next_entry: u64,
    pub(super) waiting_since_us: u64,
    pub(super) times: Option<RecoveryTimes>,
    /// Keys that were cached when a switch died, until they are cached again or declined.
    pub(super) missing: BTreeSet<KeyHash>,
    /// The last sign of life of the switch that serves, or served last.
    pub(super) active_heard_us: u64,
    /// The last recovery that has gathered, and whom it no longer waited for.
    pub(super) abandoned: (u32, Vec<u64>),
    effects: VecDeque<Effect>,
    /// Messages that may leave only when the directory as of this store is durable.
    held_back: VecDeque<(u64, Envelope)>,
    next_store: u64,
    stored: u64,
    /// When it was last called.
    awake_us: u64,
    /// The last store of the directory.
    pub(super) directory_store: u64,
}

/// The directory in a controller's files, of a rack with so many nodes and partitions.
fn read_directory(files: &Files, nodes: usize, partitions: usize) -> Result<Option<Directory>, EngineError> {
    let Some(directory) = decode::<Directory>(files.directory.as_deref(), "directory")? else { return Ok(None) };
    let other = |was: usize, what: &str, said: usize, mend: String| {
        EngineError::Io(format!("this rack was made with {was} {what} and can't be opened with {said}: {mend}"))
    };
    let was = directory.routes.iter().flatten().max().map_or(0, |node| usize::from(*node) + 1);
    if was != nodes {
        return Err(other(was, "nodes", nodes, format!("say --nodes {was}, or count = {was} under [nodes]")));
    }
    let was = directory.routes.len();
    if was != partitions {
        return Err(other(was, "partitions", partitions, format!("say partitions = {was} under [rack]")));
    }
    Ok(Some(directory))
}

impl Controller {
    /// Whether a controller with so many nodes and partitions would accept these files. Asked before anything of a node is made.
    ///
    /// # Errors
    /// Those of [`Controller::new`].
    pub fn check(files: &Files, nodes: usize, partitions: usize) -> Result<(), EngineError> {
        read_directory(files, nodes, partitions).map(|_| ())
    }

    /// A controller over its files; without any, of a new rack. `seed` makes the rack's hash key and feeds sampling.
    ///
    /// # Errors
    /// Files that are damaged, or of a rack with other nodes or partitions.
    pub fn new(
        config: ControllerConfig,
        mechanisms: Mechanisms,
        files: &Files,
        seed: u64,
        now: Now,
    ) -> Result<Controller, EngineError> {
        assert!(!config.nodes.is_empty() && config.routes.len().is_power_of_two());
        let mut random = Pcg32::seed_from_u64(seed);
        let directory = read_directory(files, config.nodes.len(), config.routes.len())?;
        let snapshot: SnapshotFile = decode(files.snapshot.as_deref(), "snapshot")?.unwrap_or_default();
        let mut directory = directory.unwrap_or_else(|| Directory {
            epoch: 0,
            recovered_epoch: 0,
            generation_reserved: 0,
            starts: 0,
            sessions_opened: 0,
            hash_key: HashKey(random.random()),
            routes: config.routes.clone(),
            active: None,
            bypass: false,
            sessions: BTreeMap::new(),
        });
        directory.starts += 1;
        // Nodes and clients of a bypass epoch need nothing of the controller but leases.
        let bypassed = directory.bypass && directory.recovered_epoch == directory.epoch;
        let node = |address: &Address| NodeState {
            boot: 0,
            address: *address,
            epoch: 0,
            held: false,
            heard_us: 0,
            refusal: None,
            failure: None,
        };
        let lease_us = now.in_us(config.lease_us + config.drift_us);
        let client = |(id, session): (&u64, &super::directory::SessionEntry)| (*id, ClientState::of(session, lease_us));
        let mut controller = Controller {
            mechanisms,
            random,
            snapshots: Snapshots::new(now.in_us(config.snapshot_us), snapshot.generation),
            snapshot,
            phase: if bypassed { Phase::Serving } else { Phase::Waiting },
            switches: BTreeMap::new(),
            nodes: config.nodes.iter().map(node).collect(),
            clients: directory.sessions.iter().map(client).collect(),
            commands: Commands::new(directory.starts, config.retry_us),
            cache: Cache::new(&[], config.cache_records),
            waiting: Waiting::default(),
            drains: 0,
            renewal: Renewal::default(),
            next_entry: u64::from(directory.starts) << 40 | 1,
            waiting_since_us: now.monotonic_us,
            times: None,
            missing: BTreeSet::new(),
            active_heard_us: now.monotonic_us,
            abandoned: (0, Vec::new()),
            effects: VecDeque::new(),
            held_back: VecDeque::new(),
            next_store: 1,
            stored: 0,
            awake_us: now.monotonic_us,
            directory_store: 0,
            directory,
            config,
        };
        controller.store_directory();
        Ok(controller)
    }

    /// The epoch that is, or is becoming, durable.
    pub fn epoch(&self) -> u32 {
        self.directory.epoch
    }

    /// The rack's hash key.
    pub fn hash_key(&self) -> HashKey {
        self.directory.hash_key
    }

    /// Replicas of each partition.
    pub fn routes(&self) -> &[Vec<u16>] {
        &self.directory.routes
    }

    /// Makes the directory durable; the number of the store.
    pub(super) fn store_directory(&mut self) -> u64 {
        let bytes = encode(&self.directory);
        self.directory_store = self.store(StoreFile::Directory, bytes);
        self.directory_store
    }

    pub(super) fn store(&mut self, file: StoreFile, bytes: Vec<u8>) -> u64 {
        let id = self.next_store;
        self.next_store += 1;
        self.effects.push_back(Effect::Store(file, id, bytes));
        id
    }

    /// Whether store `id` is durable.
    pub(super) fn is_stored(&self, id: u64) -> bool {
        self.stored >= id
    }

    /// Sends a message.
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        self.effects.push_back(Effect::Send(Envelope { from: Peer::Controller, to, message }));
    }

    pub(super) fn notify(&mut self, client: u64, notice: ClientNotice) {
        self.send(Peer::Client(client), Message::ToClient(notice));
    }

    /// Sends a message once store `id` is durable.
    pub(super) fn send_after(&mut self, id: u64, to: Peer, message: Message) {
        self.held_back.push_back((id, Envelope { from: Peer::Controller, to, message }));
        self.release_held_back();
    }

    fn release_held_back(&mut self) {
        while let Some((id, _)) = self.held_back.front() {
            if *id > self.stored {
                return;
            }
            let (_, envelope) = self.held_back.pop_front().expect("just seen");
            self.effects.push_back(Effect::Send(envelope));
        }
    }

    /// The next generation; never one that was used before, whatever crashes.
    pub(super) fn next_generation(&mut self) -> u32 {
        if !self.mechanisms.rising_generations {
            self.snapshots.generation += 1;
            return self.snapshots.generation;
        }
        let used = self.snapshots.generation.max(self.snapshot.generation);
        let next = if self.snapshots.generation == 0 { self.directory.generation_reserved + 1 } else { used + 1 };
        if next > self.directory.generation_reserved {
            self.directory.generation_reserved = next + GENERATIONS_RESERVED;
            self.store_directory();
        }
        self.snapshots.generation = next;
        next
    }

    /// Takes the next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Store `id` is durable, with everything that was stored before it.
    pub fn handle_stored(&mut self, now: Now, id: u64) {
        self.wake(now);
        self.stored = self.stored.max(id);
        self.release_held_back();
        self.snapshot_stored(now);
        self.go_on(now);
    }

    /// Takes a message.
    pub fn handle_message(&mut self, now: Now, envelope: Envelope) {
        self.wake(now);
        match (envelope.from, envelope.message) {
            (Peer::Switch(switch), Message::FromSwitch(report)) => self.handle_switch(now, switch, report),
            (Peer::Node(node), Message::FromNode(report)) if usize::from(node) < self.nodes.len() => {
                self.handle_node(now, node, report);
            }
            (Peer::Client(client), Message::FromClient(report)) => self.handle_client(now, client, report),
            _ => {} // not for a controller, or not from whom it says
        }
        self.go_on(now);
    }

    fn handle_switch(&mut self, now: Now, switch: u16, report: SwitchReport) {
        if let SwitchReport::Hello { boot, address, epoch, classes, needs_epoch } = report {
            self.switch_hello(now, switch, boot, address, epoch, classes);
            if needs_epoch && epoch == self.directory.epoch && self.directory.active == Some((switch, boot)) {
                self.renew(now);
            }
            return;
        }
        if self.directory.active.map(|(active, _)| active) != Some(switch) {
            return;
        }
        match report {
            SwitchReport::Hello { .. } => {}
            SwitchReport::Done { id, epoch, result } if epoch == self.directory.epoch => {
                self.switch_done(now, switch, id, result);
            }
            SwitchReport::EvictMe { epoch, entries } if epoch == self.directory.epoch => {
                self.evict_themselves(now, entries);
            }
            SwitchReport::SnapshotChunk { epoch, generation, index, records } if epoch == self.directory.epoch => {
                self.snapshot_chunk(now, generation, index, records);
            }
            SwitchReport::SnapshotEnd { epoch, generation, chunks, complete } if epoch == self.directory.epoch => {
                self.snapshot_end(now, generation, chunks, complete);
            }
            _ => {} // another epoch's
        }
    }

    fn switch_done(&mut self, now: Now, switch: u16, id: CommandId, result: SwitchResult) {
        let Some(purpose) = self.commands.answered(id, Peer::Switch(switch)) else { return };
        match (purpose, result) {
            (Purpose::Configure, SwitchResult::Ok) => self.switch_configured(now),
            (Purpose::Resync, SwitchResult::Entries(entries, next)) => self.resynced(now, entries, next),
            (Purpose::Admit(entries), SwitchResult::Admitted { refused }) => self.admitted(now, entries, refused),
            (Purpose::EvictBegin(candidates), SwitchResult::Evicting(evicting)) => {
                self.evicting(now, candidates, evicting);
            }
            (Purpose::Remove(entries), _) => self.removed(now, entries),
            (Purpose::Snapshot(generation), SwitchResult::Busy) => self.snapshot_failed(now, generation),
            _ => {}
        }
    }

    fn handle_node(&mut self, now: Now, node: u16, report: NodeReport) {
        match report {
            NodeReport::Hello { boot, address, epoch, held, needs_epoch, failure } => {
                self.node_hello(now, node, boot, address, epoch, held);
                self.nodes[usize::from(node)].failure = failure;
                if needs_epoch && epoch == self.directory.epoch && self.directory.bypass {
                    self.start_recovery(now, None);
                }
            }
            NodeReport::Done { id, epoch, error } => {
                self.nodes[usize::from(node)].refusal.clone_from(&error);
                if error.is_some() {
                    self.commands.failed(now, id);
                } else if epoch == self.directory.epoch
                    && let Some(purpose) = self.commands.answered(id, Peer::Node(node))
                {
                    self.node_done(now, node, purpose);
                }
            }
            NodeReport::Offers { epoch, offers } if epoch == self.directory.epoch => self.offered(now, node, offers),
            NodeReport::Offers { .. } => {}
        }
    }

    fn node_done(&mut self, now: Now, node: u16, purpose: Purpose) {
        match purpose {
            Purpose::Epoch(_) | Purpose::RecoverStore(_) | Purpose::Release(_) => {
                self.node_recovers(now, node, &purpose)
            }
            Purpose::StoreEvicted(entries) => self.evicted_stored(now, entries),
            Purpose::ClearOffers(offers) => self.offers_cleared(offers),
            _ => {}
        }
    }

    fn node_hello(&mut self, now: Now, node: u16, boot: u64, address: Address, epoch: u32, held: bool) {
        let state = &mut self.nodes[usize::from(node)];
        let restarted = state.boot != boot;
        let moved = state.address != address;
        let (refusal, failure) = (state.refusal.take(), state.failure.take());
        *state = NodeState { boot, address, epoch, held, heard_us: now.monotonic_us, refusal, failure };
        if restarted {
            self.commands.repeat_to(now, Peer::Node(node));
        }
        if moved && let Some((active, _)) = self.directory.active {
            let body = crate::control::SwitchCommand::NodeAddress(node, address);
            self.commands.command_switch(now, self.directory.epoch, active, Purpose::NodeAddress, body);
        }
        self.node_lags(now, node);
    }

    /// A peer's connection broke. A switch that doesn't come back soon counts as dead.
    pub fn handle_lost(&mut self, now: Now, peer: Peer) {
        let Peer::Switch(switch) = peer else { return };
        if let Some(state) = self.switches.get_mut(&switch) {
            state.dead_at_us = state.dead_at_us.min(now.in_us(self.config.switch_lost_us));
        }
    }

    /// While it slept (a paused process), clients may have spoken to deaf ears: they get their time anew.
    fn wake(&mut self, now: Now) {
        let slept_us = now.monotonic_us.saturating_sub(self.awake_us);
        self.awake_us = now.monotonic_us;
        if let Phase::Recovering(recovery) = &mut self.phase
            && slept_us > SLEEP_RETRIES * self.config.retry_us
            && self.mechanisms.wait_while_heard
        {
            recovery.slept(now, slept_us, self.config.lease_us + self.config.drift_us);
        }
    }

    /// Takes every step that has become possible.
    pub(super) fn go_on(&mut self, now: Now) {
        self.recover_on(now);
        self.admit_waiting(now);
        self.drain_on(now);
        self.renew_on(now);
        let effects = &mut self.effects;
        self.commands.due(now, |envelope| effects.push_back(Effect::Send(envelope)));
    }

    /// When to call [`Controller::handle_timeout`] next, of the monotonic clock.
    pub fn poll_timeout(&self) -> u64 {
        let active = self.directory.active.and_then(|(switch, _)| self.switches.get(&switch));
        let dead_us = match self.phase {
            Phase::Waiting if self.directory.epoch > 0 => self.waiting_since_us.saturating_add(self.config.bypass_us),
            Phase::Waiting => u64::MAX,
            _ => active.map_or(u64::MAX, |switch| switch.dead_at_us),
        };
        self.commands
            .next_us()
            .min(dead_us)
            .min(self.snapshots.next_us())
            .min(self.recovery_deadline_us())
            .min(self.renewal.deadline_us())
    }

    /// Repeats commands, notices dead switches, takes snapshots when they are due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.wake(now);
        self.check_switch(now);
        self.snapshot_if_due(now);
        self.gather_again(now);
        self.go_on(now);
    }
}
