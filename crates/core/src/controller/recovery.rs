//! Recovery of a switch (design, section 6): a new epoch, then hold, gather, store the newest, release. Clients run on meanwhile.
//!
//! Also here: which switch is alive, and what a restarted controller does with one that is.

use super::cache::Cache;
use super::commands::{Purpose, Stage};
use super::machine::{Controller, Phase, SwitchState};
use super::sessions::ClientState;
use super::status::RecoveryTimes;
use crate::control::{
    ClientNotice, Destination, Entry, KeyedRecord, Location, NodeCommand, NodeConfig, SwitchCommand, SwitchConfig,
    batch_len,
};
use crate::time::Now;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::{Address, EPOCH_MAX, KeyHash, Seq};

/// Stores under way to one node at a time.
const STORES_MAX: usize = 8;

/// A recovery in progress.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The store that makes the new epoch durable: nobody hears of it before.
    pub(super) stored_by: u64,
    begun: bool,
    switch_ready: bool,
    merged: bool,
    nodes: Vec<NodeRecovery>,
    clients: BTreeMap<u64, Gathered>,
    best: BTreeMap<KeyHash, KeyedRecord>,
    ask_again_us: u64,
    times: RecoveryTimes,
}

#[derive(Debug, Default)]
struct NodeRecovery {
    moved: bool,
    to_store: VecDeque<KeyedRecord>,
    storing: usize,
    releasing: bool,
    released: bool,
}

#[derive(Debug)]
struct Gathered {
    chunks: BTreeSet<u32>,
    last: Option<u32>,
    /// When it is no longer waited for: it accepts no answer of the old epoch any more, and hasn't been heard of for the time of a lease.
    deadline_us: u64,
    /// However often it is heard of.
    deadline_us_max: u64,
}

impl Gathered {
    fn is_done(&self, now: Now) -> bool {
        self.is_complete() || now.monotonic_us >= self.deadline_us
    }

    fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| self.chunks.len() == last as usize + 1)
    }
}

impl Recovery {
    /// Whether switch and nodes have moved to the new epoch.
    pub(super) fn waits_for_clients_only(&self) -> bool {
        self.begun && self.switch_ready && self.nodes.iter().all(|node| node.moved)
    }

    /// Takes preserved records of a client; the newest version of each key counts.
    pub(super) fn gathered(
        &mut self,
        now: Now,
        client: u64,
        chunk: u32,
        last: bool,
        records: Vec<KeyedRecord>,
        newest: bool,
    ) {
        let Some(gathered) = self.clients.get_mut(&client) else { return };
        if self.merged || now.monotonic_us >= gathered.deadline_us {
            return;
        }
        gathered.chunks.insert(chunk);
        if last {
            gathered.last = Some(chunk);
        }
        self.times.gathered += records.len() as u64;
        for record in records {
            self.merge(record, newest);
        }
    }

    /// A client lives: it is waited for as long as if it had just got a lease.
    pub(super) fn heard(&mut self, client: u64, until_us: u64) {
        if let Some(gathered) = self.clients.get_mut(&client) {
            gathered.deadline_us = gathered.deadline_us.max(until_us.min(gathered.deadline_us_max));
        }
    }

    /// A client is gone, and has nothing more to tell: there is nobody to wait for.
    pub(super) fn closed(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// Nothing was heard of anybody for this long, since nobody listened.
    pub(super) fn slept(&mut self, now: Now, slept_us: u64, lease_us: u64) {
        for gathered in self.clients.values_mut() {
            gathered.deadline_us_max += slept_us;
            let anew_us = now.in_us(lease_us).min(gathered.deadline_us_max);
            gathered.deadline_us = anew_us.max(gathered.deadline_us + slept_us);
        }
    }

    fn merge(&mut self, record: KeyedRecord, newest: bool) {
        let known = self.best.get(&record.hash);
        if known.is_none_or(|known| newest && known.record.seq < record.record.seq) {
            self.best.insert(record.hash, record);
        }
    }
}

impl Controller {
    pub(super) fn switch_hello(
        &mut self,
        now: Now,
        switch: u16,
        boot: u64,
        address: Address,
        epoch: u32,
        classes: Vec<(u32, u32)>,
    ) {
        let dead_at_us = now.in_us(self.config.switch_timeout_us);
        let heard_us = now.monotonic_us;
        if self.directory.active == Some((switch, boot)) {
            self.active_heard_us = heard_us;
        }
        let state = SwitchState { boot, address, epoch, classes, dead_at_us, heard_us };
        self.switches.insert(switch, state);
        let active = self.directory.active;
        let recovered = self.directory.recovered_epoch == self.directory.epoch;
        match self.phase {
            Phase::Waiting if active == Some((switch, boot)) && epoch == self.directory.epoch && recovered => {
                self.resync(now, switch);
            }
            // Another one is preferred for a while: it may hold the cache, and answer a moment later.
            Phase::Waiting if active.is_some_and(|(id, _)| id != switch) && !self.waited_long(now) => {}
            Phase::Waiting => self.start_recovery(now, Some(switch)),
            _ if self.directory.bypass => self.start_recovery(now, Some(switch)),
            _ if active.is_some_and(|(id, known)| id == switch && known != boot) => {
                self.start_recovery(now, Some(switch));
            }
            _ => {}
        }
    }

    /// Whether the switch that served last has been waited for long enough.
    fn waited_long(&self, now: Now) -> bool {
        now.monotonic_us >= self.waiting_since_us + self.config.switch_timeout_us
    }

    /// Notices a dead switch; another one that lives takes over, or the first that says hello, or after a while the nodes do without.
    pub(super) fn check_switch(&mut self, now: Now) {
        if matches!(self.phase, Phase::Waiting) {
            let bypass_us = self.waiting_since_us.saturating_add(self.config.bypass_us);
            if self.directory.epoch > 0 && now.monotonic_us >= bypass_us {
                self.start_recovery(now, None);
            }
            return;
        }
        let Some((active, _)) = self.directory.active else { return };
        let dead = self.switches.get(&active).is_none_or(|state| now.monotonic_us >= state.dead_at_us);
        if !dead {
            return;
        }
        let alive = |state: &SwitchState| now.monotonic_us < state.dead_at_us;
        let standby = self.switches.iter().find(|(id, state)| **id != active && alive(state)).map(|(id, _)| *id);
        match standby {
            Some(standby) => self.start_recovery(now, Some(standby)),
            None => {
                self.phase = Phase::Waiting;
                self.waiting_since_us = now.monotonic_us;
            }
        }
    }

    /// Raises the epoch; everything else follows once that is durable. Without a switch it is a bypass epoch.
    pub(super) fn start_recovery(&mut self, now: Now, switch: Option<u16>) {
        if self.directory.epoch >= EPOCH_MAX {
            // All epochs are used: the rack waits for the switch that served last.
            (self.phase, self.waiting_since_us) = (Phase::Waiting, now.monotonic_us);
            return;
        }
        let silent_since_us = self.directory.active.map_or(now.monotonic_us, |_| self.active_heard_us);
        let state = switch.map(|switch| (switch, self.switches[&switch].clone()));
        self.directory.epoch += 1;
        self.directory.active = state.as_ref().map(|(switch, state)| (*switch, state.boot));
        self.directory.bypass = state.is_none();
        self.commands.clear();
        self.snapshots.abandon();
        self.waiting.clear();
        // One whose offer is being cleared may be offered no more.
        let cached = self.cache.iter().filter(|key| key.stage != Stage::Clearing);
        self.missing.extend(cached.map(|key| key.entry.hash));
        self.active_heard_us = state.as_ref().map_or(now.monotonic_us, |(_, state)| state.heard_us);
        let classes = state.map_or(Vec::new(), |(_, state)| state.classes);
        self.cache = Cache::new(&classes, self.config.cache_records);
        let stored_by = self.store_directory();
        self.phase = Phase::Recovering(Box::new(Recovery {
            stored_by,
            begun: false,
            switch_ready: false,
            merged: false,
            nodes: self.nodes.iter().map(|_| NodeRecovery::default()).collect(),
            clients: BTreeMap::new(),
            best: BTreeMap::new(),
            ask_again_us: u64::MAX,
            times: RecoveryTimes {
                epoch: self.directory.epoch,
                started_us: now.monotonic_us,
                detect_us: now.monotonic_us - silent_since_us,
                ..RecoveryTimes::default()
            },
        }));
    }

    /// Takes the next steps of a recovery.
    pub(super) fn recover_on(&mut self, now: Now) {
        let Phase::Recovering(recovery) = &self.phase else { return };
        if !recovery.begun {
            if !self.is_stored(recovery.stored_by) && self.mechanisms.durable_epoch {
                return;
            }
            self.begin_recovery(now);
        }
        self.merge_when_gathered(now);
        self.store_and_release(now);
        self.finish_recovery(now);
    }

    /// The new epoch is durable: tell everybody.
    fn begin_recovery(&mut self, now: Now) {
        let epoch = self.directory.epoch;
        let generation = self.next_generation();
        if let Some((active, boot)) = self.directory.active {
            let config = SwitchConfig {
                boot,
                generation,
                lanes: self.config.lanes.0,
                routes: self.directory.routes.clone(),
                nodes: self.node_addresses(),
            };
            self.commands.command_switch(now, epoch, active, Purpose::Configure, SwitchCommand::Configure(config));
        }
        let destination = self.destination().expect("the switch said hello, if there is one");
        for node in 0..self.nodes.len() as u16 {
            self.send_epoch(now, node);
        }
        let clients = self.clients_to_gather_from(now);
        let Phase::Recovering(recovery) = &mut self.phase else { unreachable!("called while recovering") };
        recovery.begun = true;
        recovery.clients = clients;
        recovery.switch_ready = matches!(destination, Destination::Nodes { .. });
        recovery.ask_again_us = now.in_us(self.config.retry_us);
        let clients: Vec<u64> = recovery.clients.keys().copied().collect();
        for client in clients {
            self.notify(client, ClientNotice::Gather { epoch, destination: destination.clone() });
        }
    }

    /// Every client, and how long it is waited for: the new epoch took its time to become durable, and nobody was asked before.
    fn clients_to_gather_from(&self, now: Now) -> BTreeMap<u64, Gathered> {
        let lease_us = self.config.lease_us + self.config.drift_us;
        let gather_from = |(id, client): (&u64, &ClientState)| {
            let spool_us = if client.spooled { now.in_us(self.config.spool_wait_us) } else { 0 };
            // Its lease may have run out because there was no switch to grant one for.
            let lives = client.heard_us != 0 && now.monotonic_us <= client.heard_us + lease_us;
            let alive_us = if lives && self.mechanisms.wait_while_heard { client.heard_us + lease_us } else { 0 };
            let deadline_us = client.lease_until_us.max(spool_us).max(alive_us);
            let deadline_us_max = now.in_us(self.config.spool_wait_us).max(deadline_us);
            (*id, Gathered { chunks: BTreeSet::new(), last: None, deadline_us, deadline_us_max })
        };
        self.clients.iter().map(gather_from).collect()
    }

    fn node_addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|node| node.address).collect()
    }

    /// Where clients send their packets in this epoch; `None` while the switch's address isn't known (after a restart).
    pub(super) fn destination(&self) -> Option<Destination> {
        match self.directory.active {
            Some((active, _)) => self.switches.get(&active).map(|switch| Destination::Switch(switch.address)),
            None if self.directory.bypass => {
                Some(Destination::Nodes { routes: self.directory.routes.clone(), nodes: self.node_addresses() })
            }
            None => None,
        }
    }

    fn send_epoch(&mut self, now: Now, node: u16) {
        let switch = match self.destination() {
            None => return,
            Some(Destination::Switch(switch)) => Some(switch),
            Some(Destination::Nodes { .. }) => None,
        };
        let config = NodeConfig {
            hash_key: self.directory.hash_key,
            routes: self.directory.routes.clone(),
            switch,
            lanes: self.config.lanes.0,
            write_through: self.config.scheme.refreshes(),
        };
        let body = NodeCommand::Epoch(config);
        self.commands.command_node(now, self.directory.epoch, node, Purpose::Epoch(node), body);
    }

    pub(super) fn switch_configured(&mut self, _now: Now) {
        if let Phase::Recovering(recovery) = &mut self.phase {
            recovery.switch_ready = true;
        }
    }

    /// A client says hello during a recovery: ask it, if it hasn't answered.
    pub(super) fn gather_from(&mut self, client: u64, client_epoch: u32) {
        let epoch = self.directory.epoch;
        let Phase::Recovering(recovery) = &self.phase else { return };
        if !recovery.begun || recovery.clients.get(&client).is_none_or(Gathered::is_complete) {
            return;
        }
        // One that moved already is answering; its chunks are repeated until they are confirmed.
        if client_epoch == epoch && recovery.clients[&client].last.is_some() {
            return;
        }
        let Some(destination) = self.destination() else { return };
        self.notify(client, ClientNotice::Gather { epoch, destination });
    }

    /// Asks again whoever hasn't answered.
    pub(super) fn gather_again(&mut self, now: Now) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if recovery.merged || now.monotonic_us < recovery.ask_again_us {
            return;
        }
        recovery.ask_again_us = now.in_us(self.config.retry_us);
        let open = recovery.clients.iter().filter(|(_, gathered)| gathered.last.is_none());
        let open: Vec<u64> = open.map(|(client, _)| *client).collect();
        let epoch = self.directory.epoch;
        let Some(destination) = self.destination() else { return };
        for client in open {
            self.notify(client, ClientNotice::Gather { epoch, destination: destination.clone() });
        }
    }

    /// When the recovery has something to do without a message.
    pub(super) fn recovery_deadline_us(&self) -> u64 {
        match &self.phase {
            Phase::Recovering(recovery) if recovery.begun && !recovery.merged => {
                let open = recovery.clients.values().filter(|gathered| !gathered.is_complete());
                let deadline_us = open.map(|gathered| gathered.deadline_us).min().unwrap_or(0);
                deadline_us.min(recovery.ask_again_us)
            }
            _ => u64::MAX,
        }
    }

    /// All clients have answered, or accept no answer any more: the newest version of each key goes to its node.
    fn merge_when_gathered(&mut self, now: Now) {
        let newest = self.mechanisms.recover_newest;
        let wait = self.mechanisms.gather_all;
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if recovery.merged || (wait && !recovery.clients.values().all(|gathered| gathered.is_done(now))) {
            return;
        }
        recovery.merged = true;
        let incomplete = recovery.clients.iter().filter(|(_, gathered)| !gathered.is_complete());
        self.abandoned = (self.directory.epoch, incomplete.map(|(client, _)| *client).collect());
        recovery.times.abandoned_clients = self.abandoned.1.len() as u64;
        recovery.times.collect_us = now.monotonic_us - recovery.times.started_us;
        // A snapshot of an epoch that was recovered since is at the nodes already.
        if self.snapshot.epoch >= self.directory.recovered_epoch {
            for record in self.snapshot.records.clone() {
                recovery.merge(record, newest);
            }
        }
        let records = std::mem::take(&mut recovery.best);
        recovery.times.records = records.len() as u64;
        for (hash, record) in records {
            let node = self.node_of(&hash);
            let Phase::Recovering(recovery) = &mut self.phase else { unreachable!("it is recovering") };
            recovery.nodes[usize::from(node)].to_store.push_back(record);
        }
    }

    /// Each node gets its records, then is released, however long the others take.
    fn store_and_release(&mut self, now: Now) {
        let epoch = self.directory.epoch;
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if !recovery.merged {
            return;
        }
        for (index, node) in recovery.nodes.iter_mut().enumerate() {
            let index = index as u16;
            while node.moved && node.storing < STORES_MAX && !node.to_store.is_empty() {
                let count = batch_len(&node.to_store);
                let batch = node.to_store.drain(..count).collect();
                node.storing += 1;
                self.commands.command_node(now, epoch, index, Purpose::RecoverStore(index), NodeCommand::Store(batch));
            }
            if node.moved && node.storing == 0 && !node.releasing {
                node.releasing = true;
                let body = NodeCommand::Release { floor: Seq::new(epoch, 0) };
                self.commands.command_node(now, epoch, index, Purpose::Release(index), body);
            }
        }
    }

    /// A node confirmed a step.
    pub(super) fn node_recovers(&mut self, now: Now, node: u16, purpose: &Purpose) {
        let Phase::Recovering(recovery) = &mut self.phase else {
            // It lost its epoch (an empty disk, say) while the rack served: nothing is held for it. (While the rack waits for a switch,
            // a recovery may have been cut short: what it was to store is still missing.)
            let serving = matches!(self.phase, Phase::Serving);
            if serving && matches!(purpose, Purpose::Epoch(_)) && self.nodes[usize::from(node)].held {
                self.release_node(now, node);
            }
            return;
        };
        let state = &mut recovery.nodes[usize::from(node)];
        match purpose {
            Purpose::Epoch(_) => state.moved = true,
            Purpose::RecoverStore(_) => state.storing -= 1,
            Purpose::Release(_) => state.released = true,
            _ => {}
        }
    }

    fn release_node(&mut self, now: Now, node: u16) {
        let epoch = self.directory.epoch;
        let body = NodeCommand::Release { floor: Seq::new(epoch, 0) };
        self.commands.command_node(now, epoch, node, Purpose::Release(node), body);
    }

    /// A node said hello: is it where it should be?
    pub(super) fn node_lags(&mut self, now: Now, node: u16) {
        if !matches!(self.phase, Phase::Serving) {
            return;
        }
        let state = &self.nodes[usize::from(node)];
        let (epoch, held) = (state.epoch, state.held);
        let about = |purpose: &Purpose| *purpose == Purpose::Epoch(node) || *purpose == Purpose::Release(node);
        if self.commands.any(about) {
            return;
        }
        if epoch < self.directory.epoch {
            self.send_epoch(now, node);
        } else if held && epoch == self.directory.epoch {
            self.release_node(now, node);
        }
    }

    fn finish_recovery(&mut self, now: Now) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if !recovery.merged || !recovery.switch_ready || !recovery.nodes.iter().all(|node| node.released) {
            return;
        }
        let mut times = recovery.times;
        times.store_us = now.monotonic_us - times.started_us - times.collect_us;
        times.released_at_us = now.monotonic_us;
        times.missing = self.missing.len() as u64;
        self.times = Some(times);
        self.directory.recovered_epoch = self.directory.epoch;
        // Who was waited for in vain is waited for once.
        let is_silent = |client: &&u64| self.clients.get(client).is_some_and(|state| state.heard_us < times.started_us);
        let silent: Vec<u64> = self.abandoned.1.iter().filter(is_silent).copied().collect();
        self.forget(&silent);
        self.phase = Phase::Serving;
        self.snapshots.hurry(now);
    }

    /// After a restart of the controller: the switch serves on, and tells what it holds.
    fn resync(&mut self, now: Now, switch: u16) {
        let classes = self.switches[&switch].classes.clone();
        self.cache = Cache::new(&classes, self.config.cache_records);
        self.commands.clear_but_offers();
        self.waiting.clear();
        self.phase = Phase::Resyncing;
        let body = SwitchCommand::ListEntries(None);
        self.commands.command_switch(now, self.directory.epoch, switch, Purpose::Resync, body);
    }

    pub(super) fn resynced(&mut self, now: Now, entries: Vec<Entry>, next: Option<Location>) {
        for entry in entries {
            self.next_entry = self.next_entry.max(entry.id + 1);
            let node = self.node_of(&entry.hash);
            // Under which offer it is cached its node will say, when it is asked to offer again.
            self.cache.adopt(entry, node, 0);
        }
        let Some((active, _)) = self.directory.active else { return };
        match next {
            Some(next) => {
                let body = SwitchCommand::ListEntries(Some(next));
                self.commands.command_switch(now, self.directory.epoch, active, Purpose::Resync, body);
            }
            None => {
                self.phase = Phase::Serving;
                for node in 0..self.nodes.len() as u16 {
                    let body = NodeCommand::OfferAgain;
                    self.commands.command_node(now, self.directory.epoch, node, Purpose::OfferKeys, body);
                }
            }
        }
    }
}
