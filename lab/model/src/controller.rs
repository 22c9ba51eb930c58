//! The controller: evictions, recovery, snapshots (`crates/core/src/controller`). It reacts at
//! once: delays are those of its commands.

use crate::ablation::Mechanism;
use crate::config::Config;
use crate::state::{Command, Controller, Phase, Snapshot, State, Switch, Version};
use crate::step::Step;

impl Step<'_> {
    fn controller(&mut self) -> &mut Controller {
        &mut self.state.controller
    }

    /// Takes a command out of the control channel; it stays there, and may come again.
    pub(crate) fn commanded(&mut self, command: Command, at: usize) {
        match command {
            Command::Admit(entry) => self.admit(at, entry),
            Command::EvictBegin(entry) => self.evict_begin(at, entry),
            Command::Remove(entry) => self.remove(at, entry),
            Command::StoreEvicted(entry, version) => self.store_evicted(entry, version),
            Command::ClearOffer(entry) => self.clear_offer(entry),
            Command::StoreRecovered(epoch, version) => self.store_recovered(epoch, version),
            Command::Release(epoch) => self.release(epoch),
        }
    }

    /// Decides to evict what the active switch holds.
    pub(crate) fn evict(&mut self) {
        let at = self.state.active();
        let entry = self.state.switches[at].record.entry;
        self.state.command(Command::EvictBegin(entry));
        self.evict_begin(at, entry);
    }

    /// The active switch is taken for dead: a new epoch, with an empty switch. The old one may run
    /// on as a zombie.
    pub(crate) fn begin_recovery(&mut self) {
        let controller = self.controller();
        controller.epoch += 1;
        controller.generation += 1;
        controller.phase = Phase::Gathering;
        controller.gathered = 0;
        controller.best = Version::default();
        controller.taking = 0; // an unfinished snapshot is dropped (rule 10)
        let (epoch, generation) = (controller.epoch, controller.generation);
        let next = self.state.active() + 1;
        self.state.switches[next] = Switch { epoch, generation, ..Switch::default() };
    }

    /// A client has answered; the newest version counts.
    pub(crate) fn gathered(&mut self, client: u8, version: Version) {
        if self.controller().phase != Phase::Gathering {
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
        let controller = self.controller();
        if controller.epoch == epoch && controller.phase == Phase::Storing {
            controller.recovered_epoch = epoch;
            controller.phase = Phase::Serving;
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
        if controller.phase != Phase::Serving {
            self.begin_recovery();
            return;
        }
        let record = self.state.switches[self.state.active()].record;
        if record.evicting {
            self.state.command(Command::EvictBegin(record.entry));
        } else if self.state.node.offer != 0 && !self.state.node.held && !record.is_valid() {
            self.send_offer();
        }
    }
}

/// Whether every client has answered the gather.
pub(crate) fn may_store_gathered(config: &Config, state: &State) -> bool {
    let controller = &state.controller;
    let all = (1 << config.clients.len()) - 1;
    let waits = config.without != Some(Mechanism::GatherAll);
    controller.phase == Phase::Gathering && (controller.gathered == all || !waits)
}

/// Rule 10: no snapshot runs during a recovery.
pub(crate) fn may_begin_snapshot(config: &Config, state: &State) -> bool {
    let waits = config.without != Some(Mechanism::NoSnapshotInRecovery);
    state.controller.taking == 0 && (state.controller.phase == Phase::Serving || !waits)
}
