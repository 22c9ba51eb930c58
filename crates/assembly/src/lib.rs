//! What a rack is made of, said once, and its parts made from that.
//!
//! A [`Rack`] describes the cache, the lanes, the times and the limits of all parts. From it come
//! the pipeline's configuration, the agent, the controller, the shims and the sessions, the same in
//! every environment: the embedded rack, the processes of a distributed one, the simulator and the
//! experiments. A [`Part`] has a role, a name and an address, and `part.rs` says what connects
//! parts. An environment brings the rest: network, storage, clock and threads.

mod part;
mod times;

pub use part::{Direction, Part, Parts};
pub use times::{Limits, Times};

use switchback_core::Now;
use switchback_core::client::{ClientConfig, Session};
use switchback_core::controller::{
    Controller, ControllerConfig, Files, OnLoss, Preserve, RackShape, deal_partitions,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{EngineError, Loaded};
use switchback_core::switch::{Agent, AgentConfig, LearningConfig};
use switchback_datapath::{ClassConfig, Config as PipelineConfig, Features};
use switchback_wire::{Address, Map, Scheme};

/// Reports that a switch may have waiting: originals of a snapshot, before the agent takes them.
const REPORTS: (u32, u32) = (1 << 10, 1 << 14);

/// What a rack is made of.
#[derive(Clone, Debug)]
pub struct Rack {
    /// What the cache does.
    pub scheme: Scheme,
    /// How many nodes there are.
    pub nodes: u16,
    /// How many of them are to have each partition.
    pub replicas: u16,
    /// How many chains of switches there are. Each serves its own keys.
    pub chains: u16,
    /// How many layers there are: switches of a chain, to the scheme's
    /// [`layers_max`](Scheme::layers_max).
    pub layers: u8,
    /// Partitions of the key space: a power of two.
    pub partitions: u32,
    /// Lanes of all sessions together.
    pub lanes: u32,
    /// Lanes of one session.
    pub session_lanes: u32,
    /// The cache.
    pub cache: Cache,
    /// Times of the parts.
    pub times: Times,
    /// Limits of the parts.
    pub limits: Limits,
    /// Whether clients preserve what switches in several failure domains have.
    pub preserve: Preserve,
    /// What becomes of a chain when what it told may be lost.
    pub on_loss: OnLoss,
    /// Which mechanisms of the parts are on: all, but in simulations.
    pub mechanisms: Mechanisms,
    /// Which mechanisms of the pipeline are left out: none, but in simulations.
    pub left_out: Features,
}

/// The cache, and how hot keys are found.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Keys that it may hold, in each chain.
    pub records: u32,
    /// Size classes: value bytes and slots.
    pub classes: Vec<(u32, u32)>,
    /// Cached keys that an eviction compares.
    pub eviction_sample: u32,
    /// Counters in a row of the sketch.
    pub sketch_width: u32,
    /// How hot keys are found.
    pub learning: LearningConfig,
    /// Reports that may wait for the agent.
    pub reports: u32,
}

impl Cache {
    /// How many reports may wait for the agent if the cache holds this many keys.
    pub fn reports_for(records: u32) -> u32 {
        records.next_power_of_two().clamp(REPORTS.0, REPORTS.1)
    }
}

impl Rack {
    /// How many switches serve at a time, if no chain lacks one.
    pub fn switches(&self) -> u16 {
        self.chains * u16::from(self.layers)
    }

    /// The switch's pipeline.
    pub fn pipeline(&self) -> PipelineConfig {
        let cache = &self.cache;
        let class = |&(value_bytes, slots): &(u32, u32)| ClassConfig { value_bytes, slots };
        PipelineConfig {
            features: self.features().without(self.left_out),
            classes: cache.classes.iter().map(class).collect(),
            lanes: self.lanes,
            partitions: self.partitions,
            // To spines leaves are nodes, and to leaves spines.
            nodes: if self.scheme.has_copies() { self.nodes + self.chains } else { self.nodes },
            sketch_width: cache.sketch_width,
            sampling: cache.learning.sampling,
            threshold: cache.learning.threshold,
            reports: cache.reports,
        }
    }

    fn features(&self) -> Features {
        let of_scheme = Features::of(self.scheme);
        let is_chain = self.layers > 1 && !self.scheme.has_copies();
        if is_chain { of_scheme.with(Features::LAYERS) } else { of_scheme }
    }

    /// The layer of a switch where nothing else is said of it: switches 0, 1, .. are of the layers
    /// 1, 2, .. in turn, so that each row of as many as there are layers could be a chain.
    pub fn layer_of(&self, switch: u16) -> u8 {
        (switch % u16::from(self.layers)) as u8 + 1
    }

    /// The agent of a switch of this layer and failure domain, which takes packets at `address`.
    /// `boot` differs at every start.
    pub fn agent(&self, boot: u64, layer: u8, domain: String, address: Address, now: Now) -> Agent {
        let (cache, times) = (&self.cache, &self.times);
        let config = AgentConfig {
            layer,
            domain,
            heartbeat_us: times.heartbeat_us,
            learning: cache.learning,
            records: if self.scheme.caches() { cache.records as usize } else { 0 },
            retry_us: times.controller_retry_us,
            quiet_us: times.quiet_us,
            loads_a_step: self.limits.loads_a_step,
            dirty_max_us: times.dirty_max_us.filter(|_| self.scheme.absorbs_writes()),
            has_copies: self.scheme.has_copies(),
            mechanisms: self.mechanisms,
        };
        Agent::new(boot, address, config, now)
    }

    /// Which node and which chain has which partition, if the rack is made now: as evenly as can
    /// be, drawn from `seed`.
    pub fn deal(&self, seed: u64) -> Map {
        deal_partitions((self.nodes, self.replicas), self.chains, self.partitions, seed)
    }

    /// What of it the controller's files have to agree with.
    pub fn shape(&self) -> RackShape {
        RackShape {
            scheme: self.scheme,
            nodes: self.nodes.into(),
            replicas: self.replicas.into(),
            partitions: self.partitions as usize,
            chains: self.chains,
        }
    }

    /// The controller over its files, with the address of each node. `map` is for a rack that
    /// is made now; one that has files keeps its own.
    ///
    /// # Errors
    /// Those of [`Controller::new`].
    pub fn controller(
        &self,
        nodes: Vec<Address>,
        map: Map,
        files: &Files,
        seed: u64,
        now: Now,
    ) -> Result<Controller, EngineError> {
        assert!(
            nodes.len() == usize::from(self.nodes)
                && map.partitions().len() == self.partitions as usize
        );
        assert!((1..=self.scheme.layers_max()).contains(&self.layers));
        let (cache, times) = (&self.cache, &self.times);
        let config = ControllerConfig {
            nodes,
            chains: self.chains,
            layers: self.layers,
            map,
            scheme: self.scheme,
            cache_records: cache.records as usize,
            eviction_sample: cache.eviction_sample as usize,
            control_budget: self.limits.control_budget,
            lanes: (self.lanes, self.session_lanes),
            lease_us: times.lease_us,
            drift_us: times.drift_us,
            spool_wait_us: times.spool_wait_us,
            gather_bytes_max: self.limits.gather_bytes_max,
            switch_timeout_us: times.switch_timeout_us,
            switch_lost_us: times.switch_lost_us,
            node_timeout_us: times.node_timeout_us,
            bypass_us: times.bypass_us,
            snapshot_us: times.snapshot_us,
            retry_us: times.controller_retry_us,
            eviction_pause_us: times.eviction_pause_us,
            preserve: self.preserve,
            on_loss: self.on_loss,
            witness_wait_us: times.witness_wait_us,
            link_pause_us: times.link_pause_us,
            backup_flush_us: times.backup_flush_us,
        };
        Controller::new(config, self.mechanisms, files, seed, now)
    }

    /// The shim of node `index`, to which the switch sends at `address`, over what its engine
    /// found. `boot` differs at every start.
    ///
    /// # Errors
    /// Those of [`Shim::new`].
    pub fn shim(
        &self,
        index: u16,
        boot: u64,
        address: Address,
        loaded: Loaded,
        now: Now,
    ) -> Result<Shim, EngineError> {
        let (times, limits) = (&self.times, &self.limits);
        let limits = NodeLimits {
            heartbeat_us: times.heartbeat_us,
            retry_us: times.node_retry_us,
            defer_us: times.node_defer_us,
            floor_period_us: times.floor_period_us,
            marks_max: limits.marks_max,
            staged_bytes_max: limits.staged_bytes_max,
            pulled_bytes_max: limits.pulled_bytes_max,
            operations_max: limits.operations_max,
        };
        Shim::new(index, boot, address, limits, self.mechanisms, loaded, now)
    }

    /// What a session is made with; `spooled` if the client keeps what it preserves on its disk as
    /// well.
    pub fn client(&self, spooled: bool) -> ClientConfig {
        let (times, limits) = (&self.times, &self.limits);
        ClientConfig {
            lanes: self.session_lanes,
            retry_us: times.client_retry_us,
            deadline_us: times.deadline_us,
            hello_us: times.hello_us,
            preserve_bytes_max: limits.preserve_bytes_max,
            large_bytes_max: limits.large_bytes_max,
            fragments_max: limits.fragments_max,
            spooled,
            mechanisms: self.mechanisms,
        }
    }

    /// A client's session. `boot` differs at every start.
    pub fn session(&self, spooled: bool, boot: u64, seed: u64, now: Now) -> Session {
        Session::new(self.client(spooled), boot, seed, now)
    }
}
