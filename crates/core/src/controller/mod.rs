//! The controller: membership and sessions, and for each chain of switches admission, eviction,
//! snapshots and recovery. Never on the data path.
//!
//! A driver owns a [`Controller`] and feeds it messages ([`Controller::handle_message`]), finished
//! stores ([`Controller::handle_done`]), lost connections ([`Controller::handle_lost`]) and time
//! ([`Controller::handle_timeout`], due at [`Controller::poll_timeout`]); then it sends and stores
//! what [`Controller::poll_message`] and [`Controller::poll_op`] give. These keep the order in
//! which messages and stores came up: each gives nothing while the other one is to be asked, so the
//! driver asks until both give nothing.

mod backup;
mod chain;
mod config;
mod directory;
mod joins;
mod membership;
mod outbox;
mod service;
mod sessions;
mod status;
mod topology;

pub use backup::{BackupStage, BackupStatus};
pub use chain::{ControlCost, Declined, Spent};
pub use config::{ControlBudget, ControllerConfig, OnLoss, Preserve};
pub use directory::{Files, RackShape};
pub use outbox::{BackupFile, BackupPart, Store, StoreFile, Stored, merge_stores};
pub use service::ServiceRefusal;
pub use status::{
    CachedKeyStatus, ChainStatus, ControllerStatus, InspectedKeyStatus, Inspection, KeyStanding,
    Loss, NodeStatus, PeriodicSnapshots, RecoveryTimes, ReplicationStatus, SwitchStatus,
};
pub use topology::{deal_partitions, deal_to_chains};

use crate::control::{
    ClientNotice, ClientReport, Envelope, Message, NodeReport, Peer, SwitchReport,
};
use crate::mechanisms::Mechanisms;
use crate::storage::EngineError;
use crate::time::Now;
use crate::topology::{ByChain, ChainId};
use backup::Backup;
use chain::{Budget, Chain, Spines};
use directory::Directory;
use membership::{Membership, NodeHello, SwitchHello};
use outbox::Outbox;
use rand::SeedableRng;
use rand_pcg::Pcg32;
use sessions::{SessionRequest, Sessions};
use std::collections::BTreeMap;
use switchback_wire::{HashKey, Map};
use topology::Chains;

/// The controller of one rack. See the [module](self) for how to drive it.
///
/// It takes messages to the objects that they concern; their effects are in the outbox.
#[derive(Debug)]
pub struct Controller {
    config: ControllerConfig,
    mechanisms: Mechanisms,
    random: Pcg32,
    directory: Directory,
    members: Membership,
    sessions: Sessions,
    chains: Chains,
    budget: Budget,
    spines: Spines,
    backup: Backup,
    outbox: Outbox,
    /// When partitions that lack replicas are next looked for.
    repair_at_us: u64,
    /// Joins whose copies are whole, by partition: their nodes are to stand last in views.
    copied: BTreeMap<u16, u32>,
    /// When it was last called.
    awake_us: u64,
}

/// What the chains of a rack share, for the time of a call.
struct Context<'a> {
    now: Now,
    config: &'a ControllerConfig,
    mechanisms: &'a Mechanisms,
    random: &'a mut Pcg32,
    directory: &'a mut Directory,
    members: &'a Membership,
    sessions: &'a mut Sessions,
    budget: &'a mut Budget,
    spines: &'a mut Spines,
    backup: &'a mut Backup,
    outbox: &'a mut Outbox,
}

/// The same, as far as deadlines follow from it.
#[derive(Clone, Copy)]
struct Known<'a> {
    config: &'a ControllerConfig,
    directory: &'a Directory,
    members: &'a Membership,
    budget: &'a Budget,
}

impl Context<'_> {
    fn known(&self) -> Known<'_> {
        let Context { config, directory, members, budget, .. } = self;
        Known { config, directory, members, budget }
    }

    /// Tells a client.
    fn notify(&mut self, client: u64, notice: ClientNotice) {
        self.outbox.send(Peer::Client(client), Message::ToClient(notice));
    }
}

impl Controller {
    /// Whether the controller of a rack of this shape would accept these files. Asked before
    /// anything of a node is made.
    ///
    /// # Errors
    /// Those of [`Controller::new`].
    pub fn check(files: &Files, shape: &RackShape) -> Result<(), EngineError> {
        files.check_directory(shape)
    }

    /// A controller over its files; without any, of a new rack. `seed` makes the rack's hash key
    /// and feeds sampling.
    ///
    /// # Errors
    /// Files that are damaged, or of a rack of another shape.
    pub fn new(
        config: ControllerConfig,
        mechanisms: Mechanisms,
        files: &Files,
        seed: u64,
        now: Now,
    ) -> Result<Controller, EngineError> {
        assert!(!config.nodes.is_empty());
        let mut random = Pcg32::seed_from_u64(seed);
        let mut outbox = Outbox::new();
        let directory = Directory::open(files, &config, &mut random, &mut outbox)?;
        let snapshots = files.read_snapshots(directory.chains())?;
        let new = |chain: ChainId, snapshot: &directory::SnapshotFile| {
            Chain::new(chain, now, &config, &directory, snapshot.clone())
        };
        let chains = Chains::new(snapshots.map(new));
        Ok(Controller {
            members: Membership::new(now, &config),
            sessions: Sessions::new(now, &config, &directory),
            chains,
            budget: Budget::new(now, config.control_budget),
            spines: Spines::default(),
            backup: Backup::default(),
            config,
            mechanisms,
            random,
            directory,
            outbox,
            repair_at_us: now.monotonic_us,
            copied: BTreeMap::new(),
            awake_us: now.monotonic_us,
        })
    }

    /// The newest epoch of a chain that is, or is becoming, durable.
    pub fn epoch(&self) -> u32 {
        self.directory.last_epoch()
    }

    /// The epoch of a chain that is, or is becoming, durable.
    pub fn chain_epoch(&self, chain: ChainId) -> u32 {
        self.directory.epoch(chain)
    }

    /// The rack's hash key.
    pub fn hash_key(&self) -> HashKey {
        self.directory.hash_key()
    }

    /// Partitions and their replicas.
    pub fn map(&self) -> &Map {
        self.directory.map()
    }

    /// Takes the next message to send.
    pub fn poll_message(&mut self) -> Option<Envelope> {
        self.outbox.poll_message()
    }

    /// Takes the next file to store; [`Controller::handle_done`] is called when it is durable.
    pub fn poll_op(&mut self) -> Option<Store> {
        self.outbox.poll_op()
    }

    /// When to call [`Controller::handle_timeout`] next, of the monotonic clock.
    pub fn poll_timeout(&self) -> Option<u64> {
        let Controller { config, directory, members, budget, .. } = self;
        let known = Known { config, directory, members, budget };
        let timeout = |chain: &Chain| chain.poll_timeout(known);
        let of_rack = self.backup.deadline_us().into_iter().chain(self.next_dead_us());
        let of_rack = of_rack.chain(self.next_repair_us());
        self.chains.iter().filter_map(timeout).chain(of_rack).min()
    }

    /// When a node counts as dead that partitions may go on without.
    fn next_dead_us(&self) -> Option<u64> {
        if !self.directory.is_replicated() {
            return None;
        }
        let nodes = (0..self.members.nodes()).filter(|node| self.directory.may_lose(*node));
        let dead_at_us = nodes.flat_map(|node| {
            let dead_at_us = self.members.node_dead_at_us(node);
            [Some(dead_at_us), self.members.node_useless_at_us(node)].into_iter().flatten()
        });
        dead_at_us.filter(|at_us| *at_us > self.awake_us).min()
    }

    /// Partitions go on without nodes that are dead, or of no use, if they have another replica.
    fn lose_dead_nodes(&mut self, now: Now) {
        if !self.directory.is_replicated() {
            return;
        }
        for node in 0..self.members.nodes() {
            let members = &self.members;
            let is_gone = members.is_node_dead(now, node) || members.is_node_useless(now, node);
            if is_gone && self.directory.may_lose(node) {
                self.leave_out(now, node);
            }
        }
    }

    /// Partitions go on without a node, if they have another member that lives; without one whose
    /// storage fails, if that of the other one doesn't.
    fn leave_out(&mut self, now: Now, node: u16) {
        let members = &self.members;
        let may_fail = members.is_node_dead(now, node) || !members.is_node_failing(node);
        let lives = |node: u16, chain| {
            members.is_node_sound(now, node, chain) && (may_fail || !members.is_node_failing(node))
        };
        let goes_on = !self.mechanisms.join_of_source();
        let changed = self.directory.remove_node(&mut self.outbox, node, lives, goes_on);
        let (chains, mut cx) = self.split(now);
        for chain in changed {
            chains.get_mut(chain).into_iter().for_each(|it| it.lost_node(&mut cx, node));
        }
    }

    /// A store is durable, with everything that was stored before it.
    pub fn handle_done(&mut self, now: Now, done: Stored) {
        self.wake(now);
        self.outbox.set_stored(done.id);
        self.for_each_chain(now, Chain::stored);
        self.go_on(now);
    }

    /// Takes a message.
    pub fn handle_message(&mut self, now: Now, envelope: Envelope) {
        self.wake(now);
        match (envelope.from, envelope.message) {
            (Peer::Switch(switch), Message::FromSwitch(report)) => {
                self.handle_switch(now, switch, report)
            }
            (Peer::Node(node), Message::FromNode(report)) if node < self.members.nodes() => {
                self.handle_node(now, node, report);
            }
            (Peer::Client(client), Message::FromClient(report)) => {
                self.handle_client(now, client, report)
            }
            _ => {} // not for a controller, or not from the peer that it names
        }
        self.go_on(now);
    }

    /// A peer's connection broke. A switch or node that doesn't come back soon counts as dead.
    pub fn handle_lost(&mut self, now: Now, peer: Peer) {
        match peer {
            Peer::Switch(switch) => self.members.switch_is_lost(now, switch),
            Peer::Node(node) => self.members.node_is_lost(now, node),
            Peer::Controller | Peer::Client(_) => {}
        }
    }

    /// Repeats commands, notices dead switches, takes snapshots when they are due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.wake(now);
        self.lose_dead_nodes(now);
        self.repair(now);
        self.for_each_chain(now, Chain::handle_timeout);
        self.follow_rounds(now);
        self.back_up_on(now);
    }

    fn handle_switch(&mut self, now: Now, switch: u16, report: SwitchReport) {
        let epoch = match report {
            SwitchReport::Hello { boot, address, layer, domain, epoch, classes, needs_epoch } => {
                self.members.switch_said_hello(
                    now,
                    switch,
                    SwitchHello { boot, address, layer, domain, epoch, classes },
                );
                let (chains, mut cx) = self.split(now);
                chains.switch_said_hello(&mut cx, switch, needs_epoch);
                return;
            }
            SwitchReport::Done { epoch, .. }
            | SwitchReport::EvictMe { epoch, .. }
            | SwitchReport::Dirty { epoch, .. }
            | SwitchReport::Heard { epoch, .. }
            | SwitchReport::SnapshotChunk { epoch, .. }
            | SwitchReport::SnapshotEnd { epoch, .. } => epoch,
        };
        let (chains, mut cx) = self.split(now);
        if let Some(chain) = chains.of_epoch(cx.directory, epoch) {
            chain.switch_reported(&mut cx, switch, report);
        }
    }

    fn handle_node(&mut self, now: Now, node: u16, report: NodeReport) {
        match report {
            NodeReport::Hello { boot, address, chains, failure } => {
                let hello = NodeHello { boot, address, chains, failure };
                let change = self.members.node_said_hello(now, node, hello);
                if change.restarted {
                    self.joiner_restarted(node);
                }
                self.lose_empty_node(now, node);
                let (chains, mut cx) = self.split(now);
                chains.iter_mut().for_each(|chain| chain.node_said_hello(&mut cx, node, change));
            }
            NodeReport::Done { id, chain, epoch, error } => {
                let is_done = error.is_none();
                self.members.node_answered(node, error);
                let (chains, mut cx) = self.split(now);
                let Some(chain) = chains.get_mut(chain) else { return };
                if !is_done {
                    chain.node_refused(now, id);
                } else if epoch == cx.directory.epoch(chain.id()) {
                    chain.node_done(&mut cx, node, id);
                }
            }
            NodeReport::Offers { epoch, offers } => {
                let (chains, mut cx) = self.split(now);
                if let Some(chain) = chains.of_epoch(cx.directory, epoch) {
                    chain.offered(&mut cx, node, offers);
                }
            }
            NodeReport::Join { epoch, partition, number, step } => {
                self.join_reported(now, node, epoch, (partition, number, step));
            }
        }
    }

    fn handle_client(&mut self, now: Now, client: u64, report: ClientReport) {
        self.sessions.heard(now, client);
        let (chains, mut cx) = self.split(now);
        chains.iter_mut().for_each(|chain| chain.client_heard(&cx, client));
        match report {
            ClientReport::Hello { boot, sent_us, lanes, epochs, pressure, spooled } => {
                let request = SessionRequest { boot, lanes, spooled };
                self.client_said_hello(now, client, request, sent_us, epochs);
                if pressure && self.directory.is_served() {
                    self.for_each_chain(now, Chain::relieve_clients);
                }
            }
            ClientReport::Preserved { epoch, chunk, last, records } => {
                if let Some(chain) = chains.of_epoch(cx.directory, epoch) {
                    chain.client_preserved(&mut cx, client, chunk, last, records);
                }
            }
            ClientReport::Quiet { epoch } => {
                if let Some(chain) = chains.of_epoch(cx.directory, epoch) {
                    chain.client_is_quiet(client);
                }
            }
            ClientReport::Holding { epoch, round } => {
                if let Some(chain) = chains.of_epoch(cx.directory, epoch) {
                    cx.backup.client_holds(client, chain.id(), round);
                }
            }
            ClientReport::Close { boot } => {
                if cx.sessions.close(client, boot, cx.directory, cx.outbox) {
                    cx.backup.client_closed(client);
                    chains.iter_mut().for_each(|chain| chain.client_closed(client));
                }
            }
        }
    }

    fn client_said_hello(
        &mut self,
        now: Now,
        client: u64,
        request: SessionRequest,
        hello_us: u64,
        epochs: ByChain<u32>,
    ) {
        if !self.directory.is_served() {
            return; // nothing to send packets to yet; it asks again
        }
        if !self.backup.admits(client, request.boot) {
            return; // it could write while a backup is cut
        }
        // A recovery that runs waits for the clients that there were.
        let may_forget = self.is_serving();
        self.sessions.open(now, client, request, may_forget, &mut self.directory, &mut self.outbox);
        let (chains, mut cx) = self.split(now);
        chains
            .iter_mut()
            .for_each(|chain| chain.client_said_hello(&mut cx, client, epochs.get(chain.id())));
        backup::ask_again(&mut cx, client);
        let grants = chains.grants(&cx);
        if grants.iter().any(|(_, grant)| grant.is_some()) {
            cx.sessions.grant(now, client, hello_us, grants, cx.directory, cx.outbox);
            chains.iter().for_each(|chain| chain.name_spine(&mut cx, client));
        }
    }

    /// Forgets all sessions: nothing that they preserve is missing at a node (after a drain, with
    /// no client running).
    pub fn close_sessions(&mut self, now: Now) {
        assert!(self.is_drained(), "what clients preserve may be needed");
        self.sessions.close_all(&mut self.directory, &mut self.outbox);
        self.go_on(now);
    }

    /// Takes a snapshot as soon as possible. Returns the lowest generation of one that began after
    /// this call: one that is under way already lacks what was absorbed since it began.
    pub fn snapshot_now(&mut self, now: Now) -> u32 {
        let first = self.directory.first_generation();
        self.chains.iter_mut().for_each(|chain| chain.hurry_snapshot(now));
        self.handle_timeout(now);
        first
    }

    /// Begins a backup, unless one is under way that isn't cut yet; which request it answers.
    /// `None`: one is under way that lacks what is written since its cut; ask again once it has
    /// ended.
    pub fn back_up(&mut self, now: Now) -> Option<u64> {
        let (chains, mut cx) = self.split(now);
        let number = backup::begin(chains, &mut cx);
        self.go_on(now);
        number
    }

    /// A file of the backup with this number can't be stored: the backup is given up.
    pub fn backup_not_stored(&mut self, number: u64, why: &str) {
        self.backup.is_not_stored(number, why);
    }

    /// How the last backup stands that was begun in this run.
    pub fn backup(&self) -> BackupStatus {
        self.backup.status()
    }

    /// How far it has come, and which try to cut it is.
    pub fn backup_stage(&self) -> (BackupStage, u64) {
        (self.backup.stage(), self.backup.round())
    }

    /// Asks the nodes to offer these keys (a preload).
    pub fn preload(&mut self, now: Now, keys: Vec<Vec<u8>>) {
        let (chains, mut cx) = self.split(now);
        chains.with_keys(cx.directory, keys).for_each(|(chain, keys)| chain.preload(&mut cx, keys));
    }

    /// Evicts everything and admits nothing any more, so that every record is at its node. It lasts
    /// until each caller has called [`Controller::resume`], so that none ends what another waits
    /// for.
    pub fn drain(&mut self, now: Now) {
        self.for_each_chain(now, Chain::drain);
    }

    /// Ends a drain, done or not: once no caller wants another one, keys are admitted again.
    pub fn resume(&mut self) {
        self.chains.iter_mut().for_each(Chain::resume);
    }

    /// Whether a drain has finished: nothing is cached, nothing is preserved, no offer stands.
    pub fn is_drained(&self) -> bool {
        self.chains.iter().all(Chain::is_drained)
    }

    /// Notes that it was called.
    fn wake(&mut self, now: Now) {
        let slept_us = now.monotonic_us.saturating_sub(self.awake_us);
        self.awake_us = now.monotonic_us;
        self.members.slept(now, slept_us);
        self.for_each_chain(now, |chain, cx| chain.slept(cx, slept_us));
    }

    /// Takes every step that has become possible.
    fn go_on(&mut self, now: Now) {
        self.lose_dead_nodes(now);
        self.repair(now);
        self.follow_rounds(now);
        self.for_each_chain(now, Chain::go_on);
        self.back_up_on(now);
    }

    /// Where chains change their epochs together: those do that haven't yet.
    fn follow_rounds(&mut self, now: Now) {
        if self.config.scheme.has_copies() {
            self.for_each_chain(now, Chain::follow_round);
        }
    }

    /// Takes the steps of a backup that have become possible, and what chains do then.
    fn back_up_on(&mut self, now: Now) {
        while self.backs_up(now) {
            self.for_each_chain(now, Chain::go_on);
        }
    }

    /// Takes the next step of a backup. Whether there was one.
    fn backs_up(&mut self, now: Now) -> bool {
        let (chains, mut cx) = self.split(now);
        backup::step(chains, &mut cx)
    }

    fn for_each_chain(&mut self, now: Now, mut call: impl FnMut(&mut Chain, &mut Context<'_>)) {
        let (chains, mut cx) = self.split(now);
        chains.iter_mut().for_each(|chain| call(chain, &mut cx));
    }

    /// The chains, and what they share.
    fn split(&mut self, now: Now) -> (&mut Chains, Context<'_>) {
        let Controller {
            config,
            mechanisms,
            random,
            directory,
            members,
            sessions,
            chains,
            budget,
            spines,
            backup,
            outbox,
            ..
        } = self;
        let cx = Context {
            now,
            config,
            mechanisms,
            random,
            directory,
            members,
            sessions,
            budget,
            spines,
            backup,
            outbox,
        };
        (chains, cx)
    }
}
