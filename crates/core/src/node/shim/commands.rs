//! The controller's commands, offers and heartbeats: a node's side of the control channel.

use super::{NodeTimer, Progress, Served, Shim};
use crate::control::{
    BATCH_MAX, Command, CommandId, KeyedRecord, NodeCommand, NodeConfig, NodeReport, NodeStanding,
};
use crate::node::link::Awaited;
use crate::node::replica::Pending;
use crate::storage::{EngineError, EngineOp, OfferId, OpId};
use crate::time::Now;
use crate::topology::ChainId;
use std::collections::BTreeSet;
use switchback_wire::{KeyHash, Seq, View};

/// Keys whose value is read for the cache at a time, after a restart (NetCache).
const REFRESH_BATCH: usize = 64;

impl Shim {
    /// Takes a command of the controller.
    pub fn handle_message(&mut self, now: Now, command: Command<NodeCommand>) {
        if matches!(command.body, NodeCommand::ClearOffers(_)) {
            self.deferred.command(command);
            self.defer(now);
        } else {
            self.obey(command);
        }
    }

    /// Does what a command says, if it is still meant.
    pub(super) fn obey(&mut self, command: Command<NodeCommand>) {
        let Command { id, chain, epoch, body } = command;
        let (index, mechanisms) = (self.index, self.mechanisms);
        if let NodeCommand::Epoch(config) = &body
            && self.is_of_another_rack(config)
        {
            // Before the epoch is looked at: a new controller's first is far below the node's own,
            // and would be ignored as an old controller's.
            let error = "this node holds records of another rack (its hash key differs): give it \
                         its own rack's controller directory, or, for a new rack, an empty \
                         directory";
            self.done(chain, id, Some(error.into()));
            return;
        }
        let served = self.chains.known(chain, |_| Served::untold(mechanisms));
        let raises = matches!(body, NodeCommand::Epoch(_));
        if self.mechanisms.epoch_fence()
            && (epoch < served.epoch() || (epoch > served.epoch() && !raises))
        {
            return; // an old controller's, or one that this node has still to catch up with
        }
        if self.commands.contains_key(&(chain, id)) {
            return; // repeated while it is being done
        }
        let serves = matches!(body, NodeCommand::Epoch(_) | NodeCommand::Release { .. });
        if served.is_outlived() && serves && epoch == served.epoch() {
            let error = "this node restarted in an epoch that it must not serve again, and waits for a new one";
            self.done(chain, id, Some(error.into()));
            return;
        }
        if !body.all_keys(|hash| {
            served.config().is_some_and(|config| config.is_head_of(index, chain, hash))
        }) {
            let error = "this node doesn't head partitions of this chain that have these keys";
            self.done(chain, id, Some(error.into()));
            return;
        }
        match body {
            NodeCommand::Epoch(config) => self.change_epoch(chain, id, epoch, config),
            NodeCommand::Store(records) => self.store_all(chain, id, records),
            NodeCommand::Release { floor } => self.release(chain, id, floor),
            NodeCommand::ClearOffers(offers) => self.clear_offers(chain, id, offers),
            NodeCommand::OfferAgain => {
                self.offer_all_again(chain);
                self.done(chain, id, None);
            }
            NodeCommand::OfferKeys(keys) => self.offer_keys(chain, id, keys),
            NodeCommand::OffersHeld(offers) => {
                for (hash, offer) in offers {
                    self.decider.hold_offer(&hash, offer);
                }
                self.done(chain, id, None);
            }
            NodeCommand::RegisterCopies(copies) => {
                self.register_copies(copies);
                self.done(chain, id, None);
            }
            NodeCommand::Views(views) => self.change_views(chain, id, &views),
            NodeCommand::Joins { version, joins } => self.change_joins(chain, id, version, joins),
            NodeCommand::Begin => {
                if self.chains[chain].is_fresh() {
                    self.chains[chain].begin();
                }
                match self.chains[chain].is_serving() {
                    true => self.done(chain, id, None),
                    false => self.set_state(chain, id),
                }
            }
            NodeCommand::FlushSoon => self.submit(chain, id, |id| EngineOp::FlushSoon { id }),
            NodeCommand::Checkpoint(number) => {
                self.submit(chain, id, |id| EngineOp::Checkpoint { id, number });
            }
        }
    }

    /// Has the engine do all of a command.
    fn submit(&mut self, chain: ChainId, id: CommandId, op: impl FnOnce(OpId) -> EngineOp) {
        self.commands.insert((chain, id), Progress { remaining: 1, error: None });
        self.replica.submit(Pending::Command(chain, id), op);
    }

    pub(super) fn done(&mut self, chain: ChainId, id: CommandId, error: Option<String>) {
        self.reports.push_back(NodeReport::Done {
            id,
            chain,
            // Another rack's controller may ask about a chain that this node was told nothing of.
            epoch: self.chains.get(chain).map_or(0, Served::epoch),
            error,
        });
    }

    /// Whether the records here were stored under another rack's hash key.
    fn is_of_another_rack(&self, config: &NodeConfig) -> bool {
        let known = self.chains.iter().find_map(|(_, served)| served.config());
        known.is_some_and(|known| known.hash_key != config.hash_key)
    }

    /// Rule 8. Nothing of the chain is served from here on until the new state is durable.
    fn change_epoch(&mut self, chain: ChainId, id: CommandId, epoch: u32, config: NodeConfig) {
        let served = &mut self.chains[chain];
        let config = served.with_known_views(config);
        if epoch == served.epoch() && served.is_serving() && served.config() == Some(&config) {
            self.done(chain, id, None);
            return;
        }
        if epoch > served.epoch() {
            self.decider.begin_epoch(chain, epoch, &config);
            let decider = &self.decider;
            self.replica.forget_updates(|hash| decider.chain_of(hash) == chain);
            self.copies.forget(|hash| decider.chain_of(hash) == chain);
        }
        self.releasing.remove(&chain);
        self.leave(chain, &config.map);
        self.chains[chain].change_epoch(epoch, config, self.index, chain);
        self.arrange(chain);
        self.set_state(chain, id);
    }

    /// Replicas of the chain's partitions have changed. Nothing of the chain is served from here on
    /// until that is durable.
    fn change_views(&mut self, chain: ChainId, id: CommandId, views: &[View]) {
        let served = &mut self.chains[chain];
        let Some(config) = served.config() else { return };
        let map = match config.map.with_views(views) {
            Ok(map) => map,
            Err(error) => return self.done(chain, id, Some(error.to_string())),
        };
        if map == config.map && served.is_serving() {
            self.done(chain, id, None);
            return;
        }
        let (epoch, config) = (served.epoch(), NodeConfig { map, ..config.clone() });
        self.leave(chain, &config.map);
        self.chains[chain].change_epoch(epoch, config, self.index, chain);
        self.arrange(chain);
        self.set_state(chain, id);
    }

    /// Makes durable how the node serves each chain; a command about one asks for it.
    pub(super) fn set_state(&mut self, chain: ChainId, id: CommandId) {
        let number = self.chains[chain].saving();
        let state = self.state_bytes();
        let served = self.decider.served().clone();
        self.commands.insert((chain, id), Progress { remaining: 1, error: None });
        self.replica.submit(Pending::State(chain, id, number), |op| EngineOp::SetState {
            id: op,
            state,
            served,
        });
    }

    /// A state is durable, or couldn't be made so. What another command has changed meanwhile isn't
    /// durable yet: the node serves when that is.
    pub(super) fn state_set(
        &mut self,
        chain: ChainId,
        id: CommandId,
        number: u64,
        error: Option<EngineError>,
    ) {
        self.commands.remove(&(chain, id));
        // After an error the controller repeats the command; until then the node is silent.
        let error = match self.chains[chain].saved(number, error.is_none()) {
            true => error.map(|error| error.to_string()),
            false => Some("a later command has changed the state before it was durable".into()),
        };
        self.done(chain, id, error);
        self.arrange(chain);
        self.joins_on(chain);
        if self.chains[chain].is_released() {
            self.offer_all_again(chain);
        }
    }

    fn offer_all_again(&mut self, chain: ChainId) {
        self.end_offers();
        self.decider.offer_all_again(chain);
        self.send_offers(chain);
    }

    fn store_all(&mut self, chain: ChainId, id: CommandId, records: Vec<KeyedRecord>) {
        // What isn't new was stored before.
        let is_new =
            |keyed: &KeyedRecord| self.decider.may_come_from_cache(&keyed.hash, keyed.record.seq);
        let (new, old): (Vec<KeyedRecord>, Vec<_>) = records.into_iter().partition(is_new);
        let flushes = self.passing_on(old.iter().map(|keyed| keyed.hash));
        let remaining = new.len() + flushes.len();
        if remaining == 0 {
            self.done(chain, id, None);
            return;
        }
        self.commands.insert((chain, id), Progress { remaining, error: None });
        for KeyedRecord { hash, key, record } in new {
            let awaited = Some(Awaited::Command(chain, id));
            if !self.store_and_pass_on(hash, &key, &record, None, awaited) {
                self.store(Pending::Command(chain, id), hash, key, record);
            }
        }
        self.flush_for(chain, id, flushes);
    }

    /// The partitions of these keys, of those with a replica behind this one.
    fn passing_on(&self, keys: impl Iterator<Item = KeyHash>) -> BTreeSet<u16> {
        keys.filter(|hash| self.is_passed_on(hash))
            .filter_map(|hash| self.partition_of(&hash))
            .collect()
    }

    /// What a command asks for was done before: it may not be at the tails of these partitions yet.
    fn flush_for(&mut self, chain: ChainId, id: CommandId, partitions: BTreeSet<u16>) {
        for partition in partitions {
            self.pass_on(partition, None, None, Some(Awaited::Command(chain, id)));
        }
    }

    pub(super) fn command_step(
        &mut self,
        chain: ChainId,
        id: CommandId,
        error: Option<EngineError>,
    ) {
        let command = (chain, id);
        let progress =
            self.commands.get_mut(&command).expect("a command lives until its last step");
        progress.remaining -= 1;
        if let Some(error) = error {
            progress.error.get_or_insert(error.to_string());
        }
        if progress.remaining == 0 {
            let error = self.commands.remove(&command).and_then(|progress| progress.error);
            self.done(chain, id, error);
        }
    }

    /// The end of a recovery: everything older than the floor is stored, or will never come.
    fn release(&mut self, chain: ChainId, id: CommandId, floor: Seq) {
        if self.chains[chain].is_released() {
            self.done(chain, id, None);
            return;
        }
        if self.chains[chain].is_fresh() {
            let error = "this node has nothing, and stands among other replicas: it waits until it \
                         is told that it may begin so, or has left them";
            return self.done(chain, id, Some(error.into()));
        }
        if !self.is_flushed(chain) {
            self.releasing.insert(chain, (id, floor));
            return;
        }
        let by_chain = self.mechanisms.floors_by_chain();
        let all = self.chains.iter().map(|(chain, _)| chain);
        for chain in all.filter(|it| *it == chain || !by_chain).collect::<Vec<_>>() {
            if self.decider.raise_base(chain, floor) {
                self.save_base(chain, floor);
            }
        }
        self.chains[chain].release();
        self.set_state(chain, id);
    }

    /// Releases chains that wait for what was unconfirmed, if they needn't any more.
    pub(super) fn release_if_flushed(&mut self) {
        let flushed = self.releasing.keys().copied().filter(|chain| self.is_flushed(*chain));
        for chain in flushed.collect::<Vec<_>>() {
            if let Some((id, floor)) = self.releasing.remove(&chain) {
                self.release(chain, id, floor);
            }
        }
    }

    fn clear_offers(&mut self, chain: ChainId, id: CommandId, offers: Vec<(KeyHash, OfferId)>) {
        let mut steps = 0;
        let mut cleared_before = Vec::new();
        for (hash, offer) in offers {
            let Some((key, mark)) = self.decider.clear_offer(&hash, offer) else {
                cleared_before.push(hash);
                continue;
            };
            self.replica.forget_update(&hash);
            self.forget_copies(&hash);
            steps += 1;
            let awaited = Some(Awaited::Command(chain, id));
            if self.save_and_pass_on(hash, &key, mark, None, awaited) {
                continue;
            }
            self.replica.submit(Pending::Command(chain, id), |op| EngineOp::SetMark {
                id: op,
                hash,
                key,
                mark,
                unconfirmed: None,
            });
        }
        let flushes = self.passing_on(cleared_before.into_iter());
        let remaining = steps + flushes.len();
        if remaining == 0 {
            self.done(chain, id, None);
        } else {
            self.commands.insert((chain, id), Progress { remaining, error: None });
            self.flush_for(chain, id, flushes);
        }
    }

    /// Offers keys that the controller names (a preload): the length of the value decides the slot
    /// class, so it is read first.
    fn offer_keys(&mut self, chain: ChainId, id: CommandId, keys: Vec<(KeyHash, Vec<u8>)>) {
        for (hash, key) in keys {
            let pending = Pending::Named { hash, key: key.clone() };
            self.replica.submit(pending, |op| EngineOp::Get { id: op, hash, key });
        }
        self.done(chain, id, None);
    }

    /// Sends the offers of a chain that the controller hasn't confirmed.
    fn send_offers(&mut self, chain: ChainId) {
        self.end_offers();
        if !self.chains[chain].is_released() {
            return;
        }
        let (config, index) = (self.chains[chain].config(), self.index);
        let is_headed =
            |hash: &KeyHash| config.is_some_and(|config| config.is_head_of(index, chain, hash));
        let offers = self.decider.open_offers(chain, is_headed);
        let epoch = self.chains[chain].epoch();
        for batch in offers.chunks(BATCH_MAX) {
            self.reports.push_back(NodeReport::Offers { epoch, offers: batch.to_vec() });
        }
    }

    /// Says hello, repeats offers and cache updates.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.timers.is_due(NodeTimer::Hello, now) {
            self.timers.set(NodeTimer::Hello, now.in_us(self.limits.heartbeat_us));
            let (boot, address) = (self.boot, self.address);
            let chains = self.chains.map(|chain, served| self.standing(chain, served));
            let failure = self.failure(now).map(str::to_owned);
            self.reports.push_back(NodeReport::Hello { boot, address, chains, failure });
        }
        if self.timers.is_due(NodeTimer::Retry, now) {
            self.timers.set(NodeTimer::Retry, now.in_us(self.limits.retry_us));
            let chains: Vec<_> = self.chains.iter().map(|(chain, _)| chain).collect();
            chains.into_iter().for_each(|chain| self.send_offers(chain));
            self.repeat_updates();
            self.raise_floors(now);
            self.repeat_links();
            self.repeat_joins();
            self.forget_confirmed();
        }
        if self.timers.is_due(NodeTimer::Deferred, now) {
            self.take_deferred();
        }
    }

    fn standing(&self, chain: ChainId, served: &Served) -> NodeStanding {
        let is_used = self.decider.is_half_used(chain) && self.mechanisms.renewal();
        let needs_epoch = served.is_outlived() || is_used;
        // One that has nothing says so until it may begin.
        let epoch = if served.is_fresh() { 0 } else { served.epoch() };
        let held = served.is_held();
        // A key counts once, however many nodes have it.
        let is_headed = |hash: &&KeyHash| {
            let config = served.config();
            config.is_some_and(|config| config.is_head_of(self.index, chain, hash))
        };
        let headed = || self.decider.all_offered().filter(is_headed).count();
        let held_keys = if held { headed() as u32 } else { 0 };
        NodeStanding { epoch, held, needs_epoch, held_keys }
    }

    fn repeat_updates(&mut self) {
        self.replica.repeat_updates();
        self.copies.repeat();
        self.tell_copies();
        if !self.chains.iter().all(|(_, served)| served.is_released()) {
            return;
        }
        for _ in 0..REFRESH_BATCH {
            let Some(hash) = self.replica.next_refresh() else { return };
            // Of several replicas the tail knows what is to be shown.
            if self.is_passed_on(&hash) {
                continue;
            }
            let Some(key) = self.decider.marked_key(&hash).map(<[u8]>::to_vec) else { continue };
            let pending = Pending::Refresh { hash, key: key.clone() };
            self.replica.submit(pending, |id| EngineOp::Get { id, hash, key });
        }
    }

    /// Clears marks that floors stand for, and makes floors durable.
    fn raise_floors(&mut self, now: Now) {
        let keeps = self.mechanisms.floor_below_unconfirmed();
        let unconfirmed = self.links.unconfirmed().filter(|_| keeps).copied().collect();
        let (gone, to_save) =
            self.decider.raise_floors(now, self.limits.floor_period_us, &unconfirmed);
        for (hash, key) in gone {
            self.replica.submit(Pending::Nothing, |id| EngineOp::SetMark {
                id,
                hash,
                key,
                mark: None,
                unconfirmed: None,
            });
        }
        for (chain, floor) in to_save.bases {
            self.save_base(chain, floor);
        }
        for floors in to_save.buckets {
            self.replica
                .submit(Pending::Floors(floors.clone()), |id| EngineOp::RaiseFloors { id, floors });
        }
        self.statistics.floors_raised += to_save.raised as u64;
    }

    fn save_base(&mut self, chain: ChainId, floor: Seq) {
        self.replica.submit(Pending::Base(chain), |id| EngineOp::SetFloor { id, chain, floor });
    }
}
