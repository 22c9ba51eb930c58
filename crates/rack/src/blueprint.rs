//! From a checked configuration to what the parts are made with.

use crate::assembly::Blueprint;
use crate::config::{LinkKind, RackConfig, SyncChoice};
use crate::descriptors::Share;
use crate::wiring::{Buffers, Wires};
use std::sync::Arc;
use switchback_core::client::ClientConfig;
use switchback_core::controller::{ControllerConfig, deal_partitions};
use switchback_core::node::NodeLimits;
use switchback_core::switch::{AgentConfig, Counting};
use switchback_datapath::{ClassConfig, Config as DatapathConfig, Features};
use switchback_engine::{Storage, SyncPolicy};
use switchback_wire::{CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX, Scheme};

/// Reports that a switch may have waiting: originals of a snapshot, before the agent takes them.
const REPORTS: (u32, u32) = (1 << 10, 1 << 14);

/// Bytes of memory that a record of the cache takes at most, about.
const CACHED_RECORD_BYTES_MAX: usize = 64 + CACHED_KEY_BYTES_MAX + CACHED_VALUE_BYTES_MAX;

/// The pipeline's configuration for a scheme and its cache.
pub fn datapath(scheme: Scheme, config: &RackConfig) -> DatapathConfig {
    let class = |&(value_bytes, slots): &(u32, u32)| ClassConfig { value_bytes, slots };
    DatapathConfig {
        features: Features::of(scheme),
        classes: config.cache.classes.iter().map(class).collect(),
        lanes: config.controller.lanes,
        partitions: config.rack.partitions,
        nodes: config.nodes.len() as u16,
        sketch_width: config.cache.sketch_width,
        sampling: config.cache.sampling,
        threshold: config.cache.threshold,
        reports: config.cache.records.next_power_of_two().clamp(REPORTS.0, REPORTS.1),
    }
}

/// The controller's configuration; addresses of nodes are filled in by whoever knows them.
pub fn controller(config: &RackConfig, seed: u64) -> ControllerConfig {
    let rack = &config.rack;
    ControllerConfig {
        nodes: Vec::new(),
        routes: deal_partitions(config.nodes.len() as u16, rack.partitions, seed),
        scheme: rack.scheme,
        cache_records: config.cache.records as usize,
        eviction_sample: config.cache.eviction_sample as usize,
        spool_wait_us: config.controller.spool_wait_ms * 1000,
        gather_bytes_max: gather_bytes_max(config),
        bypass_us: us_unless_zero(config.controller.bypass_ms),
        lanes: (config.controller.lanes, config.client.lanes.max(1)),
        lease_us: rack.lease_ms * 1000,
        switch_timeout_us: rack.switch_timeout_ms * 1000,
        snapshot_us: us_unless_zero(rack.snapshot_period_ms),
        ..ControllerConfig::default()
    }
}

/// Twice what a client preserves at most: it begins nothing that it would have to preserve beyond twice `preserve_max_mb`, and
/// each lane may bring a record more. Never less than the default, so that a session that was configured for more before its
/// restart is not given up.
fn gather_bytes_max(config: &RackConfig) -> usize {
    let under_way = config.client.lanes as usize * CACHED_RECORD_BYTES_MAX;
    let preserved = 2 * (config.client.preserve_max_mb as usize * (1 << 20)) + under_way;
    ControllerConfig::default().gather_bytes_max.max(2 * preserved)
}

/// A time that is configured; `None` if it is 0, which means never.
fn us_unless_zero(time_ms: u64) -> Option<u64> {
    (time_ms != 0).then_some(time_ms * 1000)
}

/// The agent's times.
pub fn agent(config: &RackConfig) -> AgentConfig {
    let cache = &config.cache;
    AgentConfig {
        counting: Counting::full(cache.sketch_width, cache.threshold, cache.sampling),
        counting_with_room: Counting::with_room(cache.sketch_width, cache.threshold, cache.sampling),
        records: cache.records as usize,
        heartbeat_us: config.rack.heartbeat_ms * 1000,
        reset_us: cache.reset_period_ms * 1000,
        ..AgentConfig::default()
    }
}

/// A node's limits.
pub fn limits(config: &RackConfig) -> NodeLimits {
    let limits = NodeLimits::default();
    // A client may be configured to wait for long: floors should not pass what it waits for.
    let floor_period_us = limits.floor_period_us.max(4 * config.client.deadline_ms * 1000);
    NodeLimits { heartbeat_us: config.rack.heartbeat_ms * 1000, floor_period_us, ..limits }
}

/// A session's configuration.
pub fn client(config: &RackConfig, spooled: bool) -> ClientConfig {
    let client = &config.client;
    ClientConfig {
        lanes: client.lanes,
        retry_us: (client.retry_ms.0 * 1000, client.retry_ms.1 * 1000),
        deadline_us: client.deadline_ms * 1000,
        preserve_bytes_max: client.preserve_max_mb as usize * (1 << 20),
        large_bytes_max: client.large_max_mb as usize * (1 << 20),
        spooled,
        ..ClientConfig::default()
    }
}

/// Where and how a node keeps its records.
pub fn storage(config: &RackConfig, node: usize) -> Storage {
    let open_files = Share::here(config).tables;
    let node = &config.nodes[node];
    Storage {
        kind: node.engine,
        directory: node.data.clone(),
        sync: match node.sync {
            SyncChoice::Always => SyncPolicy::Always,
            SyncChoice::None => SyncPolicy::None,
        },
        options: node.options.clone(),
        open_files_max: u32::try_from(open_files).unwrap_or(u32::MAX),
        clock: Arc::default(),
    }
}

/// What sockets are to buffer.
pub fn buffers(config: &RackConfig) -> Buffers {
    let bytes = |kb: u32| kb as usize * 1024;
    Buffers { receive: bytes(config.links.receive_buffer_kb), send: bytes(config.links.send_buffer_kb) }
}

/// An embedded rack, with so many client sessions.
pub fn embedded(config: &RackConfig, clients: u16, seed: u64) -> Blueprint {
    // Parts of one process die together, and only a stalled machine makes one silent: nothing to recover from.
    let controller = ControllerConfig { switch_timeout_us: 60_000_000, bypass_us: None, ..controller(config, seed) };
    Blueprint {
        datapath: datapath(config.rack.scheme, config),
        controller,
        agent: agent(config),
        limits: limits(config),
        nodes: (0..config.nodes.len()).map(|node| storage(config, node)).collect(),
        controller_data: config.controller.data.clone(),
        clients,
        node_capacity_ops: None,
        wires: match config.links.kind {
            LinkKind::Memory => Wires::Memory,
            LinkKind::Udp => Wires::Udp(buffers(config)),
        },
        seed: None,
    }
}
