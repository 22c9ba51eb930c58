//! How a node serves the partitions of one chain of switches: in which epoch, and whether yet.

use super::state::{Hold, ServedState};
use crate::control::{Join, NodeConfig, Refresh};
use crate::mechanisms::Mechanisms;
use crate::node::join::KnownJoins;
use crate::node::link::{Standing, Term};
use crate::topology::ChainId;
use switchback_wire::{Map, Partition};

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
        let held = if mechanisms.durable_hold() { state.held } else { Hold::Nothing };
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
        self.state.held != Hold::Nothing
    }

    /// Whether keys wait that aren't offered.
    pub(super) fn holds_all(&self) -> bool {
        self.state.held >= Hold::All
    }

    /// Whether it had nothing when it was told of the chain, and wasn't told yet that it may begin
    /// so.
    pub(super) fn is_fresh(&self) -> bool {
        self.state.held == Hold::Fresh
    }

    /// It may begin with nothing; nothing is served until that is durable.
    pub(super) fn begin(&mut self) {
        self.state.held = Hold::All;
        self.serving = false;
    }

    /// Whether all keys are served.
    pub(super) fn is_released(&self) -> bool {
        self.serving && !self.is_held()
    }

    /// Whether the node restarted within a bypass epoch, which it must not serve again.
    pub(super) fn is_outlived(&self) -> bool {
        self.outlived
    }

    /// Whether a partition is the chain's and has a replica here.
    pub(super) fn is_mine(&self, partition: u16) -> bool {
        self.mine.get(usize::from(partition)).is_some_and(|mine| *mine)
    }

    /// Where this node, which has this index, stands among the replicas of a partition; `None`: it
    /// isn't the chain's, or has no replica here.
    pub(super) fn standing(&self, index: u16, partition: u16) -> Option<Standing> {
        let config = self.config()?;
        let known = self.state.joins.of(partition);
        if self.is_mine(partition) {
            let replicas = &config.map.numbered(partition).replicas;
            let standing = Standing::of(index, replicas)?;
            let joiner = known.filter(|it| {
                let is_new = !replicas.contains(&it.join.node);
                it.join.source == index && !it.has_ended && is_new
            });
            return Some(match joiner {
                Some(it) => standing.with_joiner(it.join.node),
                None => standing,
            });
        }
        let Join { source, .. } = known.filter(|it| it.is_begun(index) && !it.has_ended)?.join;
        let is_tail = config.map.numbered(partition).tail() == source;
        is_tail.then(|| Standing::of_joiner(source))
    }

    /// The joins that concern this node.
    pub(super) fn joins(&self) -> &KnownJoins {
        &self.state.joins
    }

    pub(super) fn joins_mut(&mut self) -> &mut KnownJoins {
        &mut self.state.joins
    }

    /// Takes a newer list of joins over. Nothing is served until it is durable, if it `is_saved`.
    pub(super) fn take_joins(
        &mut self,
        index: u16,
        version: u32,
        joins: Vec<Join>,
        is_saved: bool,
    ) {
        self.state.joins.take(index, version, joins);
        self.serving &= !is_saved;
    }

    /// Whether the node has joined a partition, and may lack something of what its source had: it
    /// stands behind that, last.
    pub(super) fn is_last_behind(&self, index: u16, join: &Join) -> bool {
        let replicas = || self.config().map(|config| &config.map.numbered(join.partition).replicas);
        self.is_mine(join.partition)
            && replicas().is_some_and(|replicas| replicas.ends_with(&[join.source, index]))
    }

    /// Partitions of which the node is no replica any more by a newer map.
    pub(super) fn left_by(&self, index: u16, map: &Map) -> Vec<u16> {
        let Some(known) = self.config().map(|config| &config.map) else { return Vec::new() };
        let had = |it: &&Partition| {
            let mut all = known.partitions().iter();
            all.any(|was| was.number == it.number && was.replicas.contains(&index))
        };
        let left =
            map.partitions().iter().filter(|it| it.view > 0 && !it.replicas.contains(&index));
        left.filter(had).map(|it| it.number).collect()
    }

    /// Epoch and view of one of the chain's partitions.
    pub(super) fn term(&self, partition: u16) -> Term {
        let config = self.config().expect("a partition is known by its map");
        Term { epoch: self.state.epoch, view: config.map.numbered(partition).view }
    }

    /// A configuration with the newest view of each partition: its own, or that which is known. It
    /// may have waited while views changed.
    pub(super) fn with_known_views(&self, config: NodeConfig) -> NodeConfig {
        let known = self.config().into_iter().flat_map(|known| known.map.changed_views());
        let known: Vec<_> = known.collect();
        match config.map.with_views(&known) {
            Ok(map) if !known.is_empty() => NodeConfig { map, ..config },
            _ => config,
        }
    }

    /// Whether one of the node's partitions has another view in this map than it is known to have.
    fn moves(&self, map: &Map, mine: &[bool]) -> bool {
        let known = |number: u16| match self.config() {
            Some(config) if self.is_mine(number) => config.map.numbered(number).view,
            _ => 0,
        };
        let mut partitions = map.partitions().iter();
        partitions.any(|it| {
            let is_mine = mine.get(usize::from(it.number)).is_some_and(|mine| *mine);
            is_mine && it.view != known(it.number)
        })
    }

    /// Takes a configuration over, of this epoch or of a later one, which holds offered keys.
    /// Nothing is served until it is durable. All keys wait where a view begins with it.
    pub(super) fn change_epoch(
        &mut self,
        epoch: u32,
        config: NodeConfig,
        index: u16,
        chain: ChainId,
    ) {
        if epoch > self.state.epoch {
            self.state.held = self.state.held.max(Hold::Offered);
            self.outlived = false;
        }
        let mine = config.partitions_of(index, chain);
        if self.is_held() && self.moves(&config.map, &mine) {
            self.state.held = self.state.held.max(Hold::All);
        }
        let has_others =
            |it: &Partition| mine[usize::from(it.number)] && (it.view > 0 || it.replicas.len() > 1);
        if self.state.config.is_none() && config.map.partitions().iter().any(has_others) {
            self.state.held = Hold::Fresh;
        }
        self.mine = mine;
        (self.state.epoch, self.state.config) = (epoch, Some(config));
        self.serving = false;
    }

    /// The end of the chain's recovery; nothing is served until this is durable.
    pub(super) fn release(&mut self) {
        self.state.held = Hold::Nothing;
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
