//! How a node serves the partitions of one chain of switches: in which epoch, and whether yet.

use super::state::ServedState;
use crate::control::{NodeConfig, Refresh};
use crate::mechanisms::Mechanisms;
use crate::topology::ChainId;

/// How a node serves the partitions of a chain.
#[derive(Debug)]
pub(super) struct Served {
    state: ServedState,
    /// Which partitions of the chain are the node's own, by the state's map, by their numbers.
    mine: Vec<bool>,
    /// False from the arrival of a new epoch until it is durable: nothing is served meanwhile.
    serving: bool,
    /// How often the state was to be made durable.
    saving: u64,
    /// The node restarted within a bypass epoch: what it gave out and answered in that is
    /// forgotten. Or it restarted, and has forgotten which copies there are.
    outlived: bool,
}

impl Served {
    /// How a node serves a chain that it wasn't told of.
    pub(super) fn untold(mechanisms: Mechanisms) -> Served {
        Served::restarted(ServedState::default(), 0, ChainId::default(), mechanisms)
    }

    /// How node `index` goes on with a chain after a restart.
    pub(super) fn restarted(
        state: ServedState,
        index: u16,
        chain: ChainId,
        mechanisms: Mechanisms,
    ) -> Served {
        let held = state.held && mechanisms.durable_hold();
        let state = ServedState { held, ..state };
        let in_bypass = state.config.as_ref().is_some_and(|config| config.switch.is_none());
        let has_copies =
            state.config.as_ref().is_some_and(|config| config.refresh == Refresh::Copies);
        let outlived =
            (in_bypass && mechanisms.bypass_once()) || (has_copies && mechanisms.copies_by_epoch());
        Served {
            mine: state
                .config
                .as_ref()
                .map_or(Vec::new(), |config| config.partitions_of(index, chain)),
            serving: state.config.is_some() && !outlived,
            saving: 0,
            outlived,
            state,
        }
    }

    /// The chain's epoch; 0 before the controller told one.
    pub(super) fn epoch(&self) -> u32 {
        self.state.epoch
    }

    /// What the controller told last.
    pub(super) fn config(&self) -> Option<&NodeConfig> {
        self.state.config.as_ref()
    }

    /// Whether writes update the chain's cache (NetCache).
    pub(super) fn refreshes(&self) -> bool {
        self.config().is_some_and(|config| config.refresh == Refresh::Updates)
    }

    /// Whether the epoch is durable.
    pub(super) fn is_serving(&self) -> bool {
        self.serving
    }

    /// Whether offered keys wait for the node's release.
    pub(super) fn is_held(&self) -> bool {
        self.state.held
    }

    /// Whether all keys are served.
    pub(super) fn is_released(&self) -> bool {
        self.serving && !self.state.held
    }

    /// Whether the node restarted within a bypass epoch, which it must not serve again.
    pub(super) fn is_outlived(&self) -> bool {
        self.outlived
    }

    /// Whether a partition is the chain's and has a replica here.
    pub(super) fn is_mine(&self, partition: u16) -> bool {
        self.mine.get(usize::from(partition)).is_some_and(|mine| *mine)
    }

    /// Takes a configuration over, of this epoch or of a later one, which holds offered keys.
    /// Nothing is served until it is durable.
    pub(super) fn change_epoch(
        &mut self,
        epoch: u32,
        config: NodeConfig,
        index: u16,
        chain: ChainId,
    ) {
        if epoch > self.state.epoch {
            self.state.held = true;
            self.outlived = false;
        }
        self.mine = config.partitions_of(index, chain);
        self.state = ServedState { epoch, held: self.state.held, config: Some(config) };
        self.serving = false;
    }

    /// The end of the chain's recovery; nothing is served until this is durable.
    pub(super) fn release(&mut self) {
        self.state.held = false;
        self.serving = false;
    }

    /// What is to be made durable.
    pub(super) fn state(&self) -> &ServedState {
        &self.state
    }

    /// It is to be made durable as it is now; the number of that.
    pub(super) fn saving(&mut self) -> u64 {
        self.saving += 1;
        self.saving
    }

    /// That is durable, or couldn't be made so. Whether nothing has changed since.
    pub(super) fn saved(&mut self, number: u64, is_saved: bool) -> bool {
        let is_last = number == self.saving;
        if is_last {
            self.serving = is_saved;
        }
        is_last
    }
}
