//! From a checked configuration to what the parts are made with.

use crate::assembly::Blueprint;
use crate::config::{LinkKind, RackConfig, SyncChoice};
use crate::descriptors::Share;
use crate::wiring::{Buffers, Wires};
use std::sync::Arc;
use switchback_assembly::{Cache, Limits, Rack, Times};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::switch::LearningConfig;
use switchback_datapath::Features;
use switchback_engine::{Storage, SyncPolicy};
use switchback_wire::{CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX};

/// Bytes of memory that a record of the cache takes at most, about.
const CACHED_RECORD_BYTES_MAX: usize = 64 + CACHED_KEY_BYTES_MAX + CACHED_VALUE_BYTES_MAX;

/// What the rack is made of.
pub fn rack(config: &RackConfig) -> Rack {
    let cache = &config.cache;
    Rack {
        scheme: config.rack.scheme,
        nodes: config.nodes.len() as u16,
        replicas: config.rack.replication,
        chains: config.topology.chains,
        layers: config.topology.layers,
        partitions: config.rack.partitions,
        lanes: config.controller.lanes,
        session_lanes: config.client.lanes,
        cache: Cache {
            records: cache.records,
            classes: cache.classes.clone(),
            eviction_sample: cache.eviction_sample,
            sketch_width: cache.sketch_width,
            learning: LearningConfig {
                threshold: cache.threshold,
                sampling: cache.sampling,
                counted_per_s: cache.counted_per_s,
                admissions_per_s: cache.admissions_per_s,
                sketch_width: cache.sketch_width,
                ageing_us: cache.ageing_period_ms * 1000,
                ..LearningConfig::default()
            },
            reports: Cache::reports_for(cache.records),
        },
        times: times(config),
        limits: limits(config),
        preserve: config.rack.preserve,
        on_loss: config.rack.on_loss,
        mechanisms: Mechanisms::ALL,
        left_out: Features::NONE,
    }
}

fn times(config: &RackConfig) -> Times {
    let (rack, client, usual) = (&config.rack, &config.client, Times::default());
    Times {
        heartbeat_us: rack.heartbeat_ms * 1000,
        lease_us: rack.lease_ms * 1000,
        switch_timeout_us: rack.switch_timeout_ms * 1000,
        snapshot_us: us_unless_zero(rack.snapshot_period_ms),
        dirty_max_us: us_unless_zero(config.cache.dirty_max_ms),
        spool_wait_us: config.controller.spool_wait_ms * 1000,
        witness_wait_us: config.controller.witness_wait_ms * 1000,
        bypass_us: us_unless_zero(config.controller.bypass_ms),
        // A client may be configured to wait for long: floors should not pass what it waits for.
        floor_period_us: usual.floor_period_us.max(4 * client.deadline_ms * 1000),
        client_retry_us: (client.retry_ms.0 * 1000, client.retry_ms.1 * 1000),
        deadline_us: client.deadline_ms * 1000,
        ..usual
    }
}

fn limits(config: &RackConfig) -> Limits {
    let preserve_bytes_max = config.client.preserve_max_mb as usize * (1 << 20);
    // Beyond twice as much a client begins nothing that it would have to preserve, and each lane
    // may bring a record more.
    let preserved = 2 * preserve_bytes_max + config.client.lanes as usize * CACHED_RECORD_BYTES_MAX;
    let usual = Limits::default();
    Limits {
        control_budget: config.cache.control_budget,
        // Never less than usual, so that a client that was configured for more before its restart
        // is not given up.
        gather_bytes_max: usual.gather_bytes_max.max(2 * preserved),
        preserve_bytes_max,
        large_bytes_max: config.client.large_max_mb as usize * (1 << 20),
        ..usual
    }
}

/// A time that is configured; `None` if it is 0, which means never.
fn us_unless_zero(time_ms: u64) -> Option<u64> {
    (time_ms != 0).then_some(time_ms * 1000)
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
            SyncChoice::EverySec => SyncPolicy::EverySec,
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
    Buffers {
        receive: bytes(config.links.receive_buffer_kb),
        send: bytes(config.links.send_buffer_kb),
    }
}

/// An embedded rack with `clients` sessions.
pub fn embedded(config: &RackConfig, clients: u16, seed: u64) -> Blueprint {
    let mut rack = rack(config);
    // Parts of one process die together, and only a stalled machine makes one silent: nothing to
    // recover from.
    rack.times.switch_timeout_us = 60_000_000;
    rack.times.node_timeout_us = 60_000_000;
    rack.times.bypass_us = None;
    Blueprint {
        map: rack.deal(seed),
        rack,
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
