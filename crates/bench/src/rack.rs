//! What the benchmark needs of a rack. Embedded racks implement it over memory, distributed ones
//! over sockets; tests have a fake.

use crate::workload::Preload;
use clap::ValueEnum;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;
use switchback_core::controller::RecoveryTimes;
use switchback_net::{ControlLink, Uplink};
use switchback_wire::{HashKey, KeyHash, Map, Scheme};

/// How the parts of a rack are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Links {
    /// Queues that carry the same packets.
    Memory,
    /// Real loopback sockets.
    Udp,
    /// The same between processes: the switch and each node are one.
    Processes,
}

/// The rack that a run asks for. Two racks of equal options have equal partition maps: whatever is
/// random about a rack (its hash key, its map) is drawn from `seed`, so that schemes are compared
/// on the same map.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RackOptions {
    /// Storage nodes.
    pub nodes: u16,
    /// Records that the cache holds at most.
    pub cache_records: u32,
    /// Requests a second that each node serves at most (reads and writes alike, a token bucket
    /// without a burst worth mentioning); `None`: as many as it can.
    pub node_capacity_ops: Option<f64>,
    /// How the parts are connected.
    pub links: Links,
    /// Client sessions that will be opened.
    pub clients: u32,
    /// Lanes that each of them asks for.
    pub lanes: u32,
    /// Length of all values, for the cache's slot classes.
    pub value_bytes: u32,
    /// Milliseconds between two snapshots of the cache; 0: none.
    pub snapshot_period_ms: u64,
    /// Feeds whatever is random about the rack.
    pub seed: u64,
    /// Where nodes keep their data, in a directory that goes with the rack; `None`: where the
    /// system keeps what is temporary.
    pub data: Option<PathBuf>,
}

/// Counters of a rack since its start; they only grow.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct RackStatistics {
    /// Requests that each node has served (reads and writes of clients; not cache updates, fences
    /// or admissions).
    pub node_ops: Vec<u64>,
    /// Requests that the switch answered from its cache.
    pub hits: u64,
    /// Requests that it forwarded.
    pub misses: u64,
    /// Reads of a cached key that it forwarded nevertheless, because its record was outdated.
    pub conservative_reads: u64,
    /// Keys admitted to the cache.
    pub admissions: u64,
    /// Keys evicted from it.
    pub evictions: u64,
    /// Packets known to be dropped, anywhere: full queues, locked lanes, refused epochs.
    pub dropped: u64,
    /// Snapshots that became durable.
    pub snapshots: u64,
    /// Bytes of the last of them.
    pub snapshot_bytes: u64,
}

/// What a client needs of the rack.
pub struct ClientLinks {
    /// Its number on the control channel ([`switchback_core::control::Peer::Client`]).
    pub id: u64,
    /// Its way to the switch.
    pub uplink: Box<dyn Uplink>,
    /// Its way to the controller.
    pub control: Box<dyn ControlLink>,
}

/// Starts racks, one after the other.
pub trait RackFactory {
    /// Starts a rack with empty nodes and an empty cache, ready to serve.
    fn start(
        &mut self,
        scheme: Scheme,
        options: &RackOptions,
    ) -> anyhow::Result<Box<dyn BenchRack>>;
}

/// A running rack.
pub trait BenchRack {
    /// Partitions and their replicas, as the switch has them.
    fn map(&self) -> Map;

    /// The rack's hash key.
    fn hash_key(&self) -> HashKey;

    /// Opens the way for client `index`. Called once for each client, from 0 on.
    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks>;

    /// Stores records in the nodes they belong to, past the switch and as fast as can be. `Preload`
    /// is `Clone` and can be split ([`Preload::part`]), so that several threads may load.
    fn load(&mut self, records: Preload) -> anyhow::Result<()>;

    /// Admits these keys, hottest first, as far as there is room, and waits until they are cached
    /// *and filled* (a first read each, if need be). Returns how many are.
    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize>;

    /// Hashes of the keys that are cached now, in any order.
    fn cached(&self) -> Vec<KeyHash>;

    /// The switch dies with all it knows, and after a while another one serves.
    fn replace_switch(&mut self, restart: Duration) -> anyhow::Result<()> {
        anyhow::bail!(
            "the switch of this rack can't be replaced, neither at once nor after {restart:?}"
        )
    }

    /// What the last recovery took, if there was one.
    fn recovery(&self) -> Option<RecoveryTimes> {
        None
    }

    /// The counters as of now. Called while clients run, a few times a second.
    fn statistics(&self) -> RackStatistics;

    /// Stops it and removes what it stored.
    fn stop(self: Box<Self>) -> anyhow::Result<()>;
}
