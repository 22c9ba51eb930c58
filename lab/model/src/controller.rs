//! The controller: evictions, recovery, snapshots (`crates/core/src/controller`). It reacts at
//! once: delays are those of its commands.

use crate::ablation::Mechanism;
use crate::config::Config;
use crate::state::{
    Command, Controller, Keeper, Phase, Record, Seq, Snapshot, State, Switch, Version,
};
use crate::step::Step;

impl Step<'_> {
    fn controller(&mut self) -> &mut Controller {
        &mut self.state.controller
    }

    /// Takes a command out of the control channel; it stays there, and may come again.
    pub(crate) fn commanded(&mut self, command: Command, at: usize) {
        match command {
            Command::AdmitKeeper(place, entry) => self.admit_keeper(at, place.into(), entry),
            Command::Admit(entry) => self.admit(at, entry),
            Command::EvictBegin(entry) => self.evict_begin(at, entry),
            Command::Remove(entry) => self.remove(at, entry),
            Command::RemoveKeeper(place, entry) => self.remove_keeper(at, place.into(), entry),
            Command::StoreEvicted(entry, version) => self.store_evicted(entry, version),
            Command::ClearOffer(entry) => self.clear_offer(entry),
            Command::StoreRecovered(epoch, version) => self.store_recovered(epoch, version),
            Command::Release(epoch) => self.release(epoch),
            Command::Released(epoch) => {
                self.recovered(epoch);
                self.offer_again();
            }
            Command::StoreCleaned(entry, version) => self.store_cleaned(entry, version),
            Command::MarkClean(entry, seq) => self.mark_clean(at, entry, seq),
        }
    }

    /// Has a dirty record stored, so that it needn't be recovered.
    pub(crate) fn clean(&mut self) {
        let Record { entry, version, .. } = self.state.switches[self.state.active()].record;
        self.state.command(Command::StoreCleaned(entry, version));
    }

    /// Decides to evict what the active switch holds.
    pub(crate) fn evict(&mut self) {
        let at = self.state.active();
        let entry = self.state.switches[at].record.entry;
        self.state.command(Command::EvictBegin(entry));
        self.evict_begin(at, entry);
    }

    /// The active chain is replaced: a new epoch, with empty switches. Of the last recovered
    /// epoch's chain these members can be asked for what they have; the others were taken for dead,
    /// and may run on as zombies.
    pub(crate) fn begin_recovery(&mut self, witnesses: u8) {
        let next = self.state.active() + 1;
        // What the last recovered epoch's protection left is asked, whatever the next one's will
        // be.
        let asks = self.has(Mechanism::ProtectionOfLast) || !self.config.is_preserved(next);
        let controller = self.controller();
        controller.last_epoch += 1;
        controller.epoch = controller.last_epoch;
        controller.witnesses = if asks { witnesses } else { 0 };
        controller.loaded = 0;
        controller.was_drained = false;
        controller.generation += 1;
        controller.phase = Phase::Gathering;
        controller.gathered = 0;
        controller.best = Version::default();
        controller.taking = 0; // an unfinished snapshot is dropped (rule 10)
        let (epoch, generation) = (controller.epoch, controller.generation);
        let record = self.left_in_the_slot(witnesses);
        self.state.switches[next] = Switch { epoch, generation, record, ..Switch::default() };
    }

    /// A chain that was drained is replaced: neither its switches nor clients have anything that
    /// the node lacks, so none is asked. The old switches run on.
    pub(crate) fn hand_over(&mut self) {
        self.begin_recovery(0);
        self.controller().was_drained = true;
    }

    /// The key's partition goes to another chain: both get a new epoch, and the key's old chain
    /// serves on for other keys.
    pub(crate) fn move_partition(&mut self) {
        let by_rack = self.has(Mechanism::EpochByRack);
        let controller = self.controller();
        let others = controller.other_epoch;
        controller.last_epoch += 1;
        controller.other_epoch = controller.last_epoch;
        let (epoch, generation) = (controller.other_epoch, controller.generation);
        if !by_rack {
            controller.last_epoch = others;
        }
        let next = self.state.active() + 1;
        self.state.switches[next] = Switch { epoch, generation, ..Switch::default() };
        self.begin_recovery(self.config.members());
    }

    /// The other chain has a new epoch, and its keys a floor.
    pub(crate) fn recover_other(&mut self) {
        let controller = self.controller();
        controller.last_epoch += 1;
        controller.other_epoch = controller.last_epoch;
        let epoch = controller.other_epoch;
        if !self.has(Mechanism::FloorByChain) {
            self.state.node.floor_of_epoch = Seq::new(epoch, 0);
        }
    }

    /// What no witness has, and no client preserved, is lost if the key was cached. From here on
    /// older versions may be read.
    pub(crate) fn declare_loss(&mut self, epoch: u8) {
        let controller = *self.controller();
        let cached = self.state.node.was_offered;
        if controller.epoch == epoch
            && controller.witnesses == 0
            && !controller.is_preserved
            && cached
        {
            self.begin_history_anew();
        }
    }

    /// What a switch that serves on has of the epoch before: nothing that counts.
    fn left_in_the_slot(&self, witnesses: u8) -> Record {
        if witnesses == 0 || self.has(Mechanism::RecordEpoch) {
            return Record::default();
        }
        let (chain, owner) = (self.state.active(), self.config.owner());
        let member = witnesses.trailing_zeros() as usize;
        if member == owner {
            return self.state.switches[chain].record;
        }
        let Keeper { entry, version, .. } = self.state.keepers[chain][member];
        Record { entry, version, latest: true, dirty: true, ..Record::default() }
    }

    /// `FREEZE`: a witness refuses its epoch, for ever. Then its record is loaded; it can't change
    /// any more, so that needn't be a step of its own.
    pub(crate) fn freeze(&mut self, member: usize) {
        let controller = *self.controller();
        let chain = self.state.chain_of(controller.recovered_epoch);
        let (chain, owner) = (chain.expect("witnesses are kept"), self.config.owner());
        let loads_first = !self.has(Mechanism::LoadAfterFreeze);
        if !loads_first || controller.loaded & 1 << member != 0 {
            if member == owner {
                self.state.switches[chain].frozen = true;
            } else {
                self.state.keepers[chain][member].frozen = true;
            }
        }
        if controller.loaded & 1 << member != 0 {
            return;
        }
        self.controller().loaded |= 1 << member;
        self.merge(self.state.version_at(chain, member, owner));
        if !self.has(Mechanism::ForgetLast) {
            self.forget_witness(chain, member);
        }
    }

    fn forget_witness(&mut self, chain: usize, member: usize) {
        if member == self.config.owner() {
            self.state.switches[chain].record = Record::default();
        } else {
            self.state.keepers[chain][member].version = Version::default();
        }
    }

    /// A client has answered; the newest version counts.
    pub(crate) fn gathered(&mut self, client: u8, version: Version) {
        let controller = self.controller();
        if controller.phase != Phase::Gathering || controller.witnesses != 0 {
            return;
        }
        self.controller().gathered |= 1 << client;
        self.merge(version);
    }

    fn merge(&mut self, version: Version) {
        let newest = self.has(Mechanism::RecoverNewest);
        let best = &mut self.controller().best;
        if version.value != 0 && (best.value == 0 || newest && best.seq < version.seq) {
            *best = version;
        }
    }

    /// The newest version goes to the node, then the node is released.
    pub(crate) fn store_gathered(&mut self) {
        let controller = *self.controller();
        // A snapshot of an epoch that was recovered since is at the node already.
        if controller.snapshot.epoch >= controller.recovered_epoch {
            self.merge(controller.snapshot.version);
        }
        let controller = self.controller();
        controller.phase = Phase::Storing;
        let (epoch, best) = (controller.epoch, controller.best);
        controller.best = Version::default();
        self.state.command(match best.value {
            0 => Command::Release(epoch),
            _ => Command::StoreRecovered(epoch, best),
        });
    }

    /// The node is released: the recovery is over.
    pub(crate) fn recovered(&mut self, epoch: u8) {
        let is_preserved = self.config.is_preserved(self.state.active());
        let controller = self.controller();
        if controller.epoch == epoch && controller.phase == Phase::Storing {
            controller.recovered_epoch = epoch;
            controller.is_preserved = is_preserved;
            controller.phase = Phase::Serving;
            controller.witnesses = 0;
            controller.loaded = 0;
            controller.was_drained = false;
        }
    }

    /// Begins a snapshot. Generations only rise (rule 10).
    pub(crate) fn begin_snapshot(&mut self) {
        let controller = self.controller();
        controller.generation += 1;
        controller.taking = controller.generation;
        let generation = controller.generation;
        let at = self.state.active();
        self.snapshot_begin(at, generation);
    }

    /// The switch's agent has loaded everything: now it is to become durable.
    pub(crate) fn end_snapshot(&mut self) {
        let at = self.state.active();
        let generation = self.state.switches[at].taking.generation;
        let version = self.snapshot_load(at);
        if generation != self.controller().taking {
            return; // of a controller that forgot it
        }
        let early = !self.has(Mechanism::ReleaseAfterDurable);
        let controller = self.controller();
        controller.snapshot =
            Snapshot { epoch: controller.epoch, generation: controller.taking, version };
        if early {
            controller.published = controller.taking;
        }
    }

    /// The snapshot is durable; only now are clients told.
    pub(crate) fn store_snapshot(&mut self) {
        let controller = self.controller();
        controller.durable = controller.snapshot;
        controller.published = controller.published.max(controller.snapshot.generation);
        controller.taking = 0;
    }

    /// It forgets what isn't durable, and its connections end before the next controller's begin,
    /// so its commands are lost. A recovery that wasn't over begins anew, in another epoch; else
    /// the switch serves on: its agent tells of evictions that had begun, the node offers its keys
    /// again.
    pub(crate) fn controller_restarts(&mut self) {
        self.state.commands.clear();
        let controller = self.controller();
        controller.snapshot = controller.durable;
        controller.taking = 0;
        // That nothing is to be asked for is not durable.
        let (was_drained, asked) = (controller.was_drained, controller.witnesses);
        let witnesses = match was_drained {
            true if self.config.has_keepers() => self.config.members(),
            true => 0,
            false => asked,
        };
        let controller = self.controller();
        if controller.phase != Phase::Serving {
            self.begin_recovery(witnesses);
            return;
        }
        let chain = self.state.active();
        let record = self.state.switches[chain].record;
        let kept = self.state.keepers[chain].iter().find(|keeper| keeper.is_valid());
        let kept = kept.map(|keeper| keeper.entry);
        if record.evicting {
            self.state.command(Command::EvictBegin(record.entry));
        } else if let (Some(entry), false) = (kept, record.is_valid()) {
            self.remove_from_keepers(chain, entry);
        } else if !record.is_valid() {
            self.offer_again();
        }
    }
}

/// Whether a witness, which has everything that was told, refuses its epoch and was loaded; if none
/// is left, whether every client has answered the gather.
pub(crate) fn may_store_gathered(config: &Config, state: &State) -> bool {
    let controller = &state.controller;
    let enough = if controller.was_drained {
        true
    } else if controller.witnesses != 0 {
        (0..config.layers).any(|member| is_gathered(config, state, member))
            || !config.has(Mechanism::ReleaseAfterFreeze)
    } else {
        let all = (1 << config.clients.len()) - 1;
        let waits = match controller.is_preserved {
            true => config.has(Mechanism::GatherAll),
            false => config.has(Mechanism::DeclareAfterClients),
        };
        controller.gathered == all || !waits
    };
    controller.phase == Phase::Gathering && enough
}

/// Whether a witness refuses its epoch, and was loaded.
fn is_gathered(config: &Config, state: &State, member: usize) -> bool {
    let controller = &state.controller;
    let chain = state.chain_of(controller.recovered_epoch).expect("witnesses are kept");
    controller.loaded & 1 << member != 0 && state.is_frozen(chain, member, config.owner())
}

/// The witnesses that a recovery has yet to ask.
pub(crate) fn may_freeze<'a>(
    config: &'a Config,
    state: &'a State,
) -> impl Iterator<Item = usize> + 'a {
    let controller = state.controller;
    let asks = controller.phase == Phase::Gathering;
    (0..config.layers).filter(move |member| {
        let is_witness = asks && controller.witnesses & 1 << member != 0;
        is_witness && !is_gathered(config, state, *member)
    })
}

/// Whether the chain is drained: no switch of it has an entry, and the node offers nothing.
pub(crate) fn may_hand_over(config: &Config, state: &State) -> bool {
    let chain = state.active();
    let is_empty = !state.switches[chain].record.is_valid()
        && !state.keepers[chain].iter().any(|keeper| keeper.is_valid())
        && state.node.offer == 0;
    is_empty || !config.has(Mechanism::DrainBeforeHandOver)
}

/// Rule 10: no snapshot runs during a recovery.
pub(crate) fn may_begin_snapshot(config: &Config, state: &State) -> bool {
    let waits = config.has(Mechanism::NoSnapshotInRecovery);
    state.controller.is_preserved
        && state.controller.taking == 0
        && (state.controller.phase == Phase::Serving || !waits)
}
