//! The controller's commands, offers and heartbeats: a node's side of the control channel.

use super::bypass::Arbiter;
use super::shim::{NodeTimer, Pending, Progress, Shim};
use crate::control::{BATCH_MAX, Command, CommandId, KeyedRecord, NodeCommand, NodeConfig, NodeReport, Offer};
use crate::storage::{EngineError, EngineOp};
use crate::time::Now;
use switchback_wire::{KeyHash, Seq};

/// Keys whose value is read for the cache at a time, after a restart (NetCache).
const REFRESH_BATCH: usize = 64;

impl Shim {
    /// Takes a command of the controller.
    pub fn handle_message(&mut self, now: Now, command: Command<NodeCommand>) {
        let Command { id, epoch, body } = command;
        let raises = matches!(body, NodeCommand::Epoch(_));
        if self.mechanisms.epoch_fence && (epoch < self.state.epoch || (epoch > self.state.epoch && !raises)) {
            return; // an old controller's, or one that this node has still to catch up with
        }
        if self.commands.contains_key(&id) {
            return; // repeated while it is being done
        }
        let serves = matches!(body, NodeCommand::Epoch(_) | NodeCommand::Release { .. });
        if self.needs_epoch && serves && epoch == self.state.epoch {
            let error = "this node restarted within a bypass epoch, and can serve only in a new one";
            self.done(id, Some(error.into()));
            return;
        }
        match body {
            NodeCommand::Epoch(config) => self.change_epoch(id, epoch, config),
            NodeCommand::Store(records) => self.store_all(id, records),
            NodeCommand::Release { floor } => self.release(now, id, floor),
            NodeCommand::ClearOffers(offers) => self.clear_offers(id, offers),
            NodeCommand::OfferAgain => {
                self.marks.offer_all_again();
                self.send_offers();
                self.done(id, None);
            }
            NodeCommand::OfferKeys(keys) => self.offer_keys(id, keys),
            NodeCommand::OffersHeld(offers) => {
                for (hash, offer) in offers {
                    self.marks.hold(&hash, offer);
                }
                self.done(id, None);
            }
        }
    }

    fn done(&mut self, id: CommandId, error: Option<String>) {
        self.reports.push_back(NodeReport::Done { id, epoch: self.state.epoch, error });
    }

    /// Rule 8. Nothing is served from here on until the new state is durable.
    fn change_epoch(&mut self, id: CommandId, epoch: u32, config: NodeConfig) {
        if let Some(old) = &self.state.config
            && old.hash_key != config.hash_key
        {
            let error = "this node holds records of another rack (its hash key differs): give it its own rack's controller directory, \
                         or, for a new rack, an empty directory";
            self.done(id, Some(error.into()));
            return;
        }
        if epoch == self.state.epoch && self.serving && self.state.config.as_ref() == Some(&config) {
            self.done(id, None);
            return;
        }
        if epoch > self.state.epoch {
            // Everything stored is of an older epoch, so every write of the new one is newer than all of it.
            self.newest.fill(Seq::new(epoch, 0));
            self.state.held = true;
            self.updates.clear();
            self.needs_epoch = false;
            self.arbiter = Arbiter::of(epoch, &config);
        }
        self.state.epoch = epoch;
        self.mine = config.partitions_of(self.index);
        self.state.config = Some(config);
        self.serving = false;
        self.set_state(id);
    }

    fn set_state(&mut self, id: CommandId) {
        let state = postcard::to_stdvec(&self.state).expect("plain data has an encoding");
        self.commands.insert(id, Progress { remaining: 1, error: None });
        self.submit(Pending::State(id), |op| EngineOp::SetState { id: op, state });
    }

    pub(super) fn state_set(&mut self, _now: Now, id: CommandId, error: Option<EngineError>) {
        self.commands.remove(&id);
        // After an error the controller repeats the command; until then the node is silent.
        self.serving = error.is_none();
        let released = self.serving && !self.state.held;
        self.done(id, error.map(|error| error.to_string()));
        if released {
            self.marks.offer_all_again();
            self.send_offers();
        }
    }

    fn store_all(&mut self, id: CommandId, records: Vec<KeyedRecord>) {
        // What isn't new was stored before.
        let new = |keyed: &KeyedRecord| self.may_come_from_cache(&keyed.hash, keyed.record.seq);
        let new: Vec<KeyedRecord> = records.into_iter().filter(new).collect();
        if new.is_empty() {
            self.done(id, None);
            return;
        }
        self.commands.insert(id, Progress { remaining: new.len(), error: None });
        for KeyedRecord { hash, key, record } in new {
            self.store(Pending::Command(id), hash, key, record);
        }
    }

    pub(super) fn command_step(&mut self, id: CommandId, error: Option<EngineError>) {
        let progress = self.commands.get_mut(&id).expect("a command lives until its last step");
        progress.remaining -= 1;
        if let Some(error) = error {
            progress.error.get_or_insert(error.to_string());
        }
        if progress.remaining == 0 {
            let error = self.commands.remove(&id).and_then(|progress| progress.error);
            self.done(id, error);
        }
    }

    /// The end of a recovery: everything older than the floor is stored, or will never come.
    fn release(&mut self, _now: Now, id: CommandId, floor: Seq) {
        if !self.state.held && self.serving {
            self.done(id, None);
            return;
        }
        self.raise_base(floor);
        self.state.held = false;
        self.serving = false;
        self.set_state(id);
    }

    fn clear_offers(&mut self, id: CommandId, offers: Vec<(KeyHash, u64)>) {
        let mut steps = 0;
        for (hash, offer) in offers {
            let Some((key, mark)) = self.marks.clear_offer(&hash, offer) else { continue };
            self.updates.remove(&hash);
            steps += 1;
            self.submit(Pending::Command(id), |op| EngineOp::SetMark { id: op, hash, key, mark });
        }
        if steps == 0 {
            self.done(id, None);
        } else {
            self.commands.insert(id, Progress { remaining: steps, error: None });
        }
    }

    /// Offers keys that the controller names (a preload): the length of the value decides the slot class, so it is read first.
    fn offer_keys(&mut self, id: CommandId, keys: Vec<(KeyHash, Vec<u8>)>) {
        for (hash, key) in keys {
            let pending = Pending::Named { hash, key: key.clone() };
            self.submit(pending, |op| EngineOp::Get { id: op, hash, key });
        }
        self.done(id, None);
    }

    /// Sends what the controller hasn't confirmed.
    fn send_offers(&mut self) {
        if self.state.held || !self.serving {
            return;
        }
        let mut offers = Vec::new();
        let mut again = Vec::new();
        while let Some(hash) = self.marks.to_offer.pop_front() {
            let Some(marked) = self.marks.get(&hash) else { continue };
            if marked.mark.offer == 0 || marked.known || !marked.durable {
                continue;
            }
            let (id, key, value_bytes) = (marked.mark.offer, marked.key.clone(), marked.value_bytes);
            offers.push(Offer { id, hash, key, value_bytes });
            again.push(hash);
        }
        self.marks.to_offer.extend(again);
        let epoch = self.state.epoch;
        for batch in offers.chunks(BATCH_MAX) {
            self.reports.push_back(NodeReport::Offers { epoch, offers: batch.to_vec() });
        }
    }

    /// Says hello, repeats offers and cache updates.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.timers.is_due(NodeTimer::Hello, now) {
            self.timers.set(NodeTimer::Hello, now.in_us(self.limits.heartbeat_us));
            let (boot, address, epoch, held) = (self.boot, self.address, self.state.epoch, self.state.held);
            let is_half_used = self.arbiter.as_ref().is_some_and(Arbiter::is_half_used);
            let needs_epoch = self.needs_epoch || (is_half_used && self.mechanisms.renewal);
            let failure = self.failure(now).map(str::to_owned);
            self.reports.push_back(NodeReport::Hello { boot, address, epoch, held, needs_epoch, failure });
        }
        if self.timers.is_due(NodeTimer::Retry, now) {
            self.timers.set(NodeTimer::Retry, now.in_us(self.limits.retry_us));
            self.send_offers();
            self.repeat_updates();
            self.raise_floors(now);
        }
    }

    fn repeat_updates(&mut self) {
        let again: Vec<_> = self.updates.values().map(|update| (update.switch, update.packet.clone())).collect();
        for (switch, packet) in again {
            self.send_packet(switch, packet);
        }
        if self.state.held || !self.serving {
            return;
        }
        for _ in 0..REFRESH_BATCH {
            let Some(hash) = self.refresh.pop_front() else { return };
            let Some(marked) = self.marks.get(&hash) else { continue };
            let key = marked.key.clone();
            let pending = Pending::Refresh { hash, key: key.clone() };
            self.submit(pending, |id| EngineOp::Get { id, hash, key });
        }
    }
}
