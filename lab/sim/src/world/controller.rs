//! The controller and its files.

use super::World;
use crate::check::{Check, Violation};
use crate::event::Event;
use serde::Deserialize;
use std::collections::{BTreeMap, VecDeque};
use switchback_assembly::Part;
use switchback_core::control::{ClientNotice, Envelope, KeyedRecord, Message, Peer, SwitchCommand};
use switchback_core::controller::{
    BackupFile, Controller, Files, Preserve, Store, StoreFile, Stored, merge_stores,
};
use switchback_core::topology::ChainId;
use switchback_wire::{KeyHash, Seq};

/// The controller and its disk.
#[derive(Default)]
pub(super) struct ControllerSlot {
    pub(super) controller: Option<Box<Controller>>,
    boot: u32,
    files: Files,
    stores: VecDeque<Store>,
    /// What is known of each chain that was heard of.
    pub(super) chains: BTreeMap<ChainId, ChainSlot>,
}

/// What is known of a chain.
#[derive(Default)]
pub(super) struct ChainSlot {
    /// What the snapshot on the disk holds.
    pub(super) snapshot: DurableSnapshot,
    /// Recovery that was noticed last.
    recovered: u32,
    /// Its epoch, and since when.
    epoch: u32,
    epoch_since_us: u64,
    /// Losses that this run of the controller has declared.
    losses: u64,
}

/// The snapshot on the disk.
#[derive(Default)]
pub(super) struct DurableSnapshot {
    pub(super) generation: u32,
    pub(super) records: BTreeMap<KeyHash, Seq>,
}

/// The controller's snapshot file, as its reader sees it.
#[derive(Deserialize)]
struct SnapshotFile {
    _epoch: u32,
    generation: u32,
    records: Vec<KeyedRecord>,
}

impl ControllerSlot {
    pub(super) fn is_running(&self) -> bool {
        self.controller.is_some()
    }

    /// Whether no store is under way but those of snapshots, which never end.
    pub(super) fn is_idle(&self) -> bool {
        self.stores.iter().all(|store| matches!(store.file, StoreFile::Snapshot(_)))
    }

    /// A file is on the disk; of a backup's the world looks after.
    fn keep(&mut self, Store { file, bytes, .. }: Store) -> Option<(BackupFile, Vec<u8>)> {
        match file {
            StoreFile::Backup(file) => return Some((file, bytes)),
            StoreFile::Directory => self.files.directory = Some(bytes),
            StoreFile::Snapshot(chain) => {
                let read: SnapshotFile =
                    postcard::from_bytes(&bytes).expect("the controller wrote it");
                let records =
                    read.records.into_iter().map(|keyed| (keyed.hash, keyed.record.seq)).collect();
                let snapshot = DurableSnapshot { generation: read.generation, records };
                self.chains.entry(chain).or_default().snapshot = snapshot;
                self.files.snapshots.insert(chain, bytes);
            }
        }
        None
    }
}

impl World {
    pub(super) fn start_controller(&mut self) {
        let now = self.now(Part::Controller);
        let rack = &self.rack;
        let nodes = (0..self.plan.topology.nodes).map(|node| Part::Node(node).address()).collect();
        let seed = self.random.bits();
        let slot = &mut self.controller;
        slot.boot += 1;
        slot.chains.values_mut().for_each(|chain| chain.losses = 0);
        let map = self.first_map.clone();
        match rack.controller(nodes, map, &slot.files, seed, now) {
            Ok(controller) => slot.controller = Some(Box::new(controller)),
            Err(error) => {
                self.fail(Violation::general(
                    Check::Liveness,
                    format!("the controller can't start: {error}"),
                ));
                return;
            }
        }
        if matches!(self.phase, super::ending::Phase::Draining) {
            self.controller.controller.as_mut().expect("just started").drain(now);
        }
        self.pump_controller();
    }

    pub(super) fn crash_controller(&mut self) {
        let renamed = self.random.chance(0.5);
        let slot = &mut self.controller;
        slot.controller = None;
        slot.boot += 1;
        for client in &mut self.clients {
            client.heard_us = 0;
        }
        // The store that was under way may just have become durable.
        let store = slot.stores.pop_front().filter(|_| renamed);
        slot.stores.clear();
        self.keep(store);
    }

    /// A file is on the disk, if there is one.
    fn keep(&mut self, store: Option<Store>) {
        if let Some((file, bytes)) = store.and_then(|store| self.controller.keep(store)) {
            self.keep_of_backup(file, &bytes);
        }
    }

    pub(super) fn wake_controller(&mut self) {
        let now = self.now(Part::Controller);
        let Some(controller) = &mut self.controller.controller else { return };
        if now.is_due(controller.poll_timeout()) {
            controller.handle_timeout(now);
        }
        self.pump_controller();
    }

    pub(super) fn controller_hears(&mut self, envelope: Envelope) {
        let now = self.now(Part::Controller);
        let Some(controller) = &mut self.controller.controller else { return };
        if let Peer::Client(client) = envelope.from {
            self.clients[client as usize].heard_us = self.now_us;
        }
        controller.handle_message(now, envelope);
        self.pump_controller();
    }

    pub(super) fn controller_loses(&mut self, part: Part) {
        let now = self.now(Part::Controller);
        let Some(controller) = &mut self.controller.controller else { return };
        controller.handle_lost(now, part.peer());
        self.pump_controller();
    }

    pub(super) fn stored(&mut self, boot: u32) {
        if self.is_paused(self.numbers.number(Part::Controller), Event::Stored(boot)) {
            return;
        }
        let now = self.now(Part::Controller);
        let slot = &mut self.controller;
        if slot.boot != boot {
            return;
        }
        let store = slot.stores.pop_front().expect("a store is under way");
        let done = Stored { id: store.id };
        self.keep(Some(store));
        if !self.controller.stores.is_empty() {
            merge_stores(&mut self.controller.stores);
            self.begin_store();
        }
        let Some(controller) = &mut self.controller.controller else { return };
        controller.handle_done(now, done);
        self.pump_controller();
    }

    fn begin_store(&mut self) {
        let takes_us = 1 + self.random.exponential(self.plan.disks.store_us);
        let boot = self.controller.boot;
        self.queue.push(self.now_us + takes_us, Event::Stored(boot));
    }

    /// Carries out what the controller wants.
    pub(super) fn pump_controller(&mut self) {
        self.follow_views();
        self.notice_abandoned();
        loop {
            let Some(controller) = &mut self.controller.controller else { return };
            if let Some(store) = controller.poll_op() {
                self.controller.stores.push_back(store);
                if self.controller.stores.len() == 1 {
                    self.begin_store();
                }
            } else if let Some(envelope) = controller.poll_message() {
                self.check_release(&envelope.message);
                self.carry(envelope);
            } else {
                break;
            }
        }
        let Some(controller) = &self.controller.controller else { return };
        let due_us = controller.poll_timeout();
        self.arm(Part::Controller, due_us);
        self.watch_backup();
    }

    /// Which replicas there are is what the controller knows.
    fn follow_views(&mut self) {
        if !self.rack_is_replicated() {
            return;
        }
        let Some(controller) = &self.controller.controller else { return };
        if *controller.map() != self.map {
            self.map = controller.map().clone();
            let map = &self.map;
            self.emptied.retain(|node| map.numbers_of(*node).contains(&true));
        }
        self.opening = controller.opening();
    }

    /// No part may be told of a snapshot that isn't on the disk.
    fn check_release(&mut self, message: &Message) {
        match message {
            Message::ToSwitch(command) => {
                if let SwitchCommand::DurableGeneration(generation) = command.body {
                    self.check_durable(command.chain, generation);
                }
            }
            Message::ToClient(ClientNotice::Granted(grant)) => {
                for (chain, granted) in grant.chains.iter() {
                    if let Some(granted) = granted {
                        self.check_durable(chain, granted.durable_generation);
                    }
                }
            }
            _ => {}
        }
    }

    fn check_durable(&mut self, chain: ChainId, told: u32) {
        let durable = self.controller.chains.entry(chain).or_default().snapshot.generation;
        if told > durable {
            let text = format!(
                "generation {told} of chain {} is called durable, but the disk has {durable}",
                chain.number()
            );
            self.fail(Violation::general(Check::ReleasedTooEarly, text));
        }
    }

    /// A client that a recovery went on without, after its lease ran out, is as good as crashed:
    /// what it alone keeps is lost, as promised. Of others nothing may be lost.
    fn notice_abandoned(&mut self) {
        for chain in (0..self.plan.topology.chains).map(ChainId::new) {
            self.notice_abandoned_by(chain);
            self.notice_loss(chain);
        }
    }

    /// The controller declares that what a chain told is lost: it may, where switches of several
    /// domains had it and clients nothing.
    fn notice_loss(&mut self, chain: ChainId) {
        let Some(controller) = &self.controller.controller else { return };
        let now = self.now(Part::Controller);
        let (losses, last_loss) = controller.losses(chain);
        let slot = self.controller.chains.entry(chain).or_default();
        let Some(loss) = last_loss.filter(|_| losses > slot.losses) else { return };
        slot.losses = losses;
        let status = controller.chain_statuses(now).swap_remove(usize::from(chain.number()));
        self.statistics.losses += 1;
        self.trace
            .line(self.now_us, || format!("{loss:?} of chain {} is declared", chain.number()));
        let topology = &self.plan.topology;
        if topology.domains == 1 || topology.preserve == Preserve::Always {
            let text = format!("{loss:?} is declared, though clients preserve what was told");
            self.fail(Violation::general(Check::Declared, text));
        }
        // A switch may also keep what was told in an epoch, of another chain even, that has been
        // recovered without it.
        let has = |switch: &&u16| {
            let running = self.switches[usize::from(**switch)].running.as_ref();
            running.is_some_and(|running| running.agent.frozen_epoch() == Some(loss.epoch))
        };
        if let Some(switch) = status.members.iter().find(has) {
            let text = format!("{loss:?} is declared, though switch{switch} has what was told");
            self.fail(Violation::general(Check::Declared, text));
        }
        self.lose(chain, loss.epoch);
    }

    /// What an epoch of a chain told, and no node has, is lost: answers that show it are evidence
    /// no longer.
    fn lose(&mut self, chain: ChainId, epoch: u32) {
        let Some(controller) = &self.controller.controller else { return };
        let hash_key = controller.hash_key();
        let of_key = |key| {
            let hash = hash_key.hash(self.workload.key(key));
            let stored = self.stored_record(&hash).map(|record| record.seq);
            let has = stored.unwrap_or(self.stored_floor(&hash));
            (self.chain_of(&hash) == chain).then_some(has)
        };
        let has: Vec<_> = (0..self.workload.keys()).map(of_key).collect();
        let is_lost = |key: u32, seq: Seq| {
            seq.epoch() == epoch && has[key as usize].is_some_and(|has| has < seq)
        };
        self.witness.lose(&mut self.history, is_lost);
        self.clients.iter_mut().for_each(|client| client.lose(epoch));
    }

    fn notice_abandoned_by(&mut self, chain: ChainId) {
        let Some(controller) = &self.controller.controller else { return };
        let slot = self.controller.chains.entry(chain).or_default();
        let epoch = controller.chain_epoch(chain);
        if epoch != slot.epoch {
            (slot.epoch, slot.epoch_since_us) = (epoch, self.now_us);
        }
        let (epoch, abandoned) = controller.abandoned_clients(chain);
        if epoch <= slot.recovered {
            return;
        }
        slot.recovered = epoch;
        let waited_us = self.now_us - slot.epoch_since_us;
        let abandoned = abandoned.to_vec();
        self.statistics.recoveries += 1;
        for client in abandoned {
            self.trace.line(self.now_us, || {
                format!("client{client} is abandoned by the recovery of epoch {epoch}")
            });
            let slot = &self.clients[client as usize];
            // Clocks differ by a few per cent.
            let times = &self.plan.times;
            let silent_us = self.now_us - slot.heard_us;
            if slot.heard_us != 0
                && silent_us < times.lease_us * 9 / 10
                && waited_us < times.spool_wait_us * 9 / 10
            {
                let text = format!(
                    "the recovery of epoch {epoch} no longer waits for client{client}, heard {silent_us} us ago"
                );
                self.fail(Violation::general(Check::LeftBehind, text));
            } else {
                self.give_up_client(client as u16, chain, epoch);
            }
        }
    }
}
