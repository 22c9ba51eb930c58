//! One run for the report of another crate: the wall-clock counterpart of a model's run.

use crate::cli::{Arrivals, LoadArgs, Outstanding, Rate};
use crate::generator::Crash;
use crate::rack::{Links, RackFactory};
use crate::report::{Latency, Recovery};
use crate::runs::run_once;
use crate::workload::{Change, Workload};
use std::time::Duration;
use switchback_core::controller::RecoveryTimes;
use switchback_wire::Scheme;

/// The parameters of a run.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // As `switchback bench --help` has them.
pub struct Order {
    pub scheme: Scheme,
    pub workload: Workload,
    pub records: u64,
    pub nodes: u16,
    pub node_capacity_ops: f64,
    pub cache_records: u32,
    /// Outstanding operations at most.
    pub outstanding: u32,
    /// Operations a second of an open loop; `None`: a closed loop.
    pub rate_ops: Option<f64>,
    pub warmup: Duration,
    pub measured: Duration,
    /// A change of popularity, and the time between two changes.
    pub change: Option<(Change, Duration)>,
    pub snapshot_period: Duration,
    pub crash: Option<(Duration, Duration)>,
    pub seed: u64,
}

/// The results of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Operations a second.
    pub throughput_ops: f64,
    /// The best possible, with the best content of the cache.
    pub limit_ops: Option<f64>,
    /// Latency of all operations.
    pub latency_us: Option<Latency>,
    /// Mean time after an operation was due until it was begun: the load generator's own part of
    /// the latency.
    pub lateness_us: Option<f64>,
    /// The recovery from each change of popularity.
    pub changes: Vec<Recovery>,
    /// Snapshots that became durable, and the bytes of the last one.
    pub snapshots: (u64, u64),
    /// Times of the recovery, if the switch crashed.
    pub recovery: Option<RecoveryTimes>,
    /// Reasons why the run is no result.
    pub objections: Vec<String>,
}

/// Runs it on a fresh rack of processes, its cache preloaded.
///
/// # Errors
/// Racks that don't start, or fail.
pub fn run(order: &Order, racks: &mut dyn RackFactory) -> anyhow::Result<Outcome> {
    let args = LoadArgs {
        workload: order.workload,
        schemes: Some(vec![order.scheme]),
        layers: 1,
        chains: 1,
        zipf: None,
        records: order.records,
        key_bytes: None,
        value_bytes: None,
        nodes: order.nodes,
        node_capacity: Some(order.node_capacity_ops),
        cache_records: order.cache_records,
        preload: true,
        links: Links::Processes,
        clients: 1,
        outstanding: Outstanding::Each(order.outstanding),
        rate: order.rate_ops.map(Rate::Ops),
        arrivals: Arrivals::Poisson,
        seconds: order.measured.as_secs_f64(),
        warmup: order.warmup.as_secs_f64(),
        change: order.change.map(|(change, _)| change.pattern),
        change_keys: order.change.map_or(1, |(change, _)| change.keys),
        change_every: order.change.map_or(1.0, |(_, every)| every.as_secs_f64()),
        snapshot_period: order.snapshot_period.as_secs_f64(),
        verify: false,
        repeat: 1,
        seed: order.seed,
        data: None,
        json: None,
    };
    let (shape, _) = args.shape()?;
    let crash = order.crash.map(|(after, restart)| Crash { after, restart });
    let (run, recovery) = run_once(&args, &shape, order.scheme, 1, racks, crash)?;
    Ok(Outcome {
        throughput_ops: run.throughput_ops,
        limit_ops: run.limit_ops,
        latency_us: run.latency_all_us,
        lateness_us: run.lateness_us.map(|lateness| lateness.mean),
        changes: run.changes,
        snapshots: (run.rack.snapshots, run.rack.snapshot_bytes),
        recovery,
        objections: run.objections,
    })
}
