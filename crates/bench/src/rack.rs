//! The interface between the benchmark and a rack. Embedded racks implement it over memory,
//! distributed ones over sockets; tests have a fake.

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
    /// Loopback sockets between processes: one for the switch and one for each node.
    Processes,
}

/// Parameters of a rack. Two racks of equal options have equal partition maps: the hash key and the
/// map are drawn from `seed`, so that schemes are compared on the same map.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RackOptions {
    /// Storage nodes.
    pub nodes: u16,
    /// Switches of each chain.
    pub layers: u8,
    /// Chains of switches.
    pub chains: u16,
    /// Records that the cache of a chain holds at most.
    pub cache_records: u32,
    /// Requests a second that each node serves at most (reads and writes alike, a token bucket with
    /// a negligible burst); `None`: no cap.
    pub node_capacity_ops: Option<f64>,
    /// How the parts are connected.
    pub links: Links,
    /// Client sessions that will be opened.
    pub clients: u32,
    /// Lanes that each of them asks for.
    pub lanes: u32,
    /// Length of the longest value, for the cache's slot classes.
    pub value_bytes: u32,
    /// Milliseconds between two snapshots of the cache; 0: none.
    pub snapshot_period_ms: u64,
    /// Seed of the hash key and the map.
    pub seed: u64,
    /// Nodes keep their data here, in a directory that is removed with the rack; `None`: in the
    /// system's directory for temporary files.
    pub data: Option<PathBuf>,
}

/// Counters of a rack since its start.
#[derive(Clone, PartialEq, Default, Debug, Serialize)]
pub struct RackStatistics {
    /// Requests that each node has served (reads and writes of clients; not cache updates, fences
    /// or admissions).
    pub node_ops: Vec<u64>,
    /// Requests that the switch answered from its cache.
    pub hits: u64,
    /// Requests that it didn't answer: it forwarded or dropped them.
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

/// A client's links to the rack.
pub struct ClientLinks {
    /// Its number on the control channel ([`switchback_core::control::Peer::Client`]).
    pub id: u64,
    /// Its link to the switch.
    pub uplink: Box<dyn Uplink>,
    /// Its link to the controller.
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

    /// Opens the links of client `index`. Called once for each client, from 0 on.
    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks>;

    /// Stores records in the nodes that they belong to, without the switch and as fast as possible.
    /// `Preload` is `Clone` and can be split ([`Preload::part`]), so that several threads may load.
    fn load(&mut self, records: Preload) -> anyhow::Result<()>;

    /// Admits these keys, hottest first, until the cache is full, and waits until they are cached
    /// *and have their values* (by a first read each, if necessary). Returns the number of cached
    /// keys.
    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize>;

    /// Hashes of the keys that are cached now, in any order.
    fn cached(&self) -> Vec<KeyHash>;

    /// Crashes the switch, which loses its state; another one starts after `restart`.
    fn replace_switch(&mut self, restart: Duration) -> anyhow::Result<()> {
        anyhow::bail!(
            "the switch of this rack can't be replaced, neither at once nor after {restart:?}"
        )
    }

    /// Times of the last recovery, if there was one.
    fn recovery(&self) -> Option<RecoveryTimes> {
        None
    }

    /// The present counters. Called while clients run, a few times a second.
    fn statistics(&self) -> RackStatistics;

    /// Stops it and removes its data.
    fn stop(self: Box<Self>) -> anyhow::Result<()>;
}
