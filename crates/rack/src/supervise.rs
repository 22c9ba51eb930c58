//! What operators see and ask: the `Admin` of a rack over its controller and whatever else runs in
//! this process.

mod hot;

use crate::admin::{
    Admin, AdminError, BackupStatus, CacheStatus, CachedRecord, CachedStatus, ChainStatus,
    ClientsStatus, ControlStatus, DrainResult, HotStatus, KillResult, NodeStatus, OperationsStatus,
    PartitionStatus, RackStatus, RecoveryStatus, SnapshotResult, SnapshotStatus, SwitchStatus,
    serving,
};
use crate::config::{KeyNames, RackConfig, Shape};
use crate::gateway::Serves;
use crate::threads::{AgentHandle, ControllerHandle, NodeHandle};
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_core::Now;
use switchback_core::control::Peer;
use switchback_core::controller::{
    self, BackupStage, CachedKeyStatus, Controller, ControllerStatus, InspectedKeyStatus,
    ServiceRefusal,
};
use switchback_core::switch::AgentStatistics;
use switchback_datapath::Statistics;
use switchback_heat::{Counts, Heat};
use switchback_wire::{KeyHash, Partition};

/// How long a snapshot may take that an operator asked for.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(30);
/// Between two looks at something that takes its time.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Reads a pipeline's counters.
pub type Counted = Box<dyn Fn() -> Statistics + Send + Sync>;

/// Asks another process for something; false if that can't be reached.
pub type Asks = Box<dyn Fn() -> bool + Send + Sync>;

/// Tells where other processes of the rack tell over HTTP what they know.
pub type Others = Box<dyn Fn() -> Vec<(Peer, SocketAddr)> + Send + Sync>;

/// A switch that runs in this process.
pub struct SwitchHere {
    /// What its pipeline counted.
    pub counted: Counted,
    /// Its agent.
    pub agent: AgentHandle,
    /// It is of the last layer, and decides about what passes the others, too.
    pub is_last: bool,
}

/// What runs in this process.
pub struct Supervisor {
    /// Configuration of the rack.
    pub config: RackConfig,
    /// When the process began to serve.
    pub started: Instant,
    /// The controller, if it is here.
    pub controller: Option<ControllerHandle>,
    /// Other processes that the controller hears.
    pub others: Others,
    /// Switches that are here. If the controller is, too, it knows them by their places.
    pub switches: Vec<SwitchHere>,
    /// Nodes that are here, by number.
    pub nodes: Vec<(u16, NodeHandle)>,
    /// Packets dropped by queues of this process.
    pub dropped: Box<dyn Fn() -> u64 + Send + Sync>,
    /// What the gateway adds, if it is here.
    pub clients: Box<dyn Fn() -> ClientsStatus + Send + Sync>,
    /// Whether the gateway serves, if it is here.
    pub gateway: Option<Serves>,
    /// What the gateway's clients ask for, if it is here.
    pub heat: Option<Arc<Heat>>,
    /// Asks the demo that started this process to kill the switch that serves, if one did.
    pub demo: Option<Asks>,
}

impl Supervisor {
    /// A supervisor of a process with nothing in it yet.
    pub fn new(config: &RackConfig) -> Supervisor {
        Supervisor {
            config: config.clone(),
            started: Instant::now(),
            controller: None,
            others: Box::new(Vec::new),
            switches: Vec::new(),
            nodes: Vec::new(),
            dropped: Box::new(|| 0),
            clients: Box::new(ClientsStatus::default),
            gateway: None,
            heat: None,
            demo: None,
        }
    }

    fn controller(&self) -> Result<&ControllerHandle, AdminError> {
        let elsewhere = "this process has no controller: ask the controller's (see [rack] metrics in rack.toml)";
        self.controller.as_ref().ok_or_else(|| AdminError::Unsupported(elsewhere.into()))
    }

    /// Takes a switch out of service, or back: the switches then.
    fn change_service(
        &self,
        change: impl FnOnce(&mut Controller, Now) -> Result<(), ServiceRefusal> + Send + 'static,
    ) -> Result<Vec<SwitchStatus>, AdminError> {
        let changed = self.controller()?.call(change).ok_or_else(ended)?;
        changed.map_err(|refusal| AdminError::Failed(refusal.to_string()))?;
        self.switches()
    }

    fn heat(&self) -> Result<&Heat, AdminError> {
        let elsewhere = "this process has no gateway, which counts what is asked for: ask a \
                         gateway's (see metrics in [gateway] of rack.toml)";
        self.heat.as_deref().ok_or_else(|| AdminError::Unsupported(elsewhere.into()))
    }

    /// The controller's status, if it is here and runs.
    pub fn controller_status(&self) -> Option<ControllerStatus> {
        self.controller.as_ref()?.call(|controller, now| controller.status(now))
    }

    /// Those that decide; `None` if there is no switch here.
    fn last_switches(&self) -> Option<impl Iterator<Item = &SwitchHere>> {
        let switches = (!self.switches.is_empty()).then_some(&self.switches)?;
        Some(switches.iter().filter(|switch| switch.is_last))
    }

    fn operations(&self) -> Option<OperationsStatus> {
        if self.switches.is_empty() {
            return None;
        }
        let all = self.switches.iter().map(|switch| (switch.is_last, (switch.counted)()));
        let counted = Statistics::of_rack(all);
        Some(OperationsStatus {
            reads: counted.read,
            writes: counted.write + counted.delete,
            answered_by_switch: counted.answered(),
            answered_by_nodes: counted.read_reply + counted.write_reply,
            absorbed_writes: counted.absorbed_writes,
            conservative_reads: counted.conservative_reads(),
            dropped: counted.drops.iter().sum::<u64>() + (self.dropped)(),
        })
    }

    fn node_status(
        &self,
        known: Option<&switchback_core::controller::NodeStatus>,
        index: u16,
    ) -> NodeStatus {
        let address = self.config.nodes.get(usize::from(index)).and_then(|node| node.address);
        let mut status = NodeStatus {
            index,
            address: address.map(|it| it.to_string()),
            ..NodeStatus::default()
        };
        if let Some(known) = known {
            status.alive = Some(known.alive);
            status.held = Some(known.held);
            status.epoch = Some(known.epoch);
            status.cached_keys = Some(known.cached_keys as u64);
            status.partitions = Some(known.partitions as u64);
            status.joining = Some(known.joining as u64);
            status.error.clone_from(&known.error);
        }
        if let Some((_, node)) = self.nodes.iter().find(|(here, _)| *here == index) {
            let (counted, engine) = (node.statistics(), node.engine());
            status.reads = Some(counted.reads);
            status.writes = Some(counted.writes);
            status.disk_bytes = Some(engine.disk_bytes);
        }
        status
    }

    fn cached_record(&self, inspected: &InspectedKeyStatus) -> CachedRecord {
        let InspectedKeyStatus { key, age_us, switch_has } = inspected;
        CachedRecord {
            key: shown(&key.key, key.hash, self.config.console.keys),
            node: key.node,
            count: switch_has.map(|has| has.count),
            age_seconds: age_us.map(|us| us as f64 / 1e6),
            dirty: switch_has.map(|has| has.dirty),
            bytes: switch_has.map(|has| has.bytes.into()),
            class: key.class,
            slot: key.slot,
            stage: key.stage.into(),
        }
    }

    fn switch_statuses(&self, known: &ControllerStatus) -> Vec<SwitchStatus> {
        let status = |switch: &controller::SwitchStatus| {
            let place = usize::from(switch.index);
            let listed = self.config.switches.get(place);
            let listed = listed.filter(|_| self.config.shape == Shape::Distributed);
            let counted = self.switches.get(place).map(|here| (here.counted)());
            SwitchStatus {
                index: switch.index,
                address: listed.map(|listed| listed.address.to_string()),
                layer: switch.layer,
                active: switch.active,
                chain: switch.chain,
                drained: switch.drained,
                alive: switch.alive,
                epoch: switch.epoch,
                error: switch.refusal.clone().filter(|_| switch.alive),
                requests: counted.map(|counted| counted.read + counted.write + counted.delete),
            }
        };
        known.switches.iter().map(status).collect()
    }

    /// Why the controller's files can't be stored just now, if it is here and so.
    fn store_error(&self) -> Option<String> {
        self.controller.as_ref().and_then(ControllerHandle::store_error)
    }
}

/// Takes a snapshot and waits until it is durable; `None` if `limit` is not enough. It has
/// everything that was absorbed before the call.
pub(crate) fn take_snapshot(
    controller: &ControllerHandle,
    limit: Duration,
) -> Result<Option<SnapshotResult>, AdminError> {
    let start = Instant::now();
    let first =
        controller.call(|controller, now| controller.snapshot_now(now)).ok_or_else(ended)?;
    while start.elapsed() < limit {
        let status = controller.call(|controller, now| controller.status(now)).ok_or_else(ended)?;
        if status.durable_generation >= first {
            return Ok(Some(SnapshotResult {
                generation: status.durable_generation,
                records: status.snapshot_records,
                bytes: status.snapshot_bytes,
                duration_seconds: status.snapshot_duration_us as f64 / 1e6,
            }));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(None)
}

fn backup_status(status: controller::BackupStatus) -> BackupStatus {
    let stage = match status.stage {
        BackupStage::Ended => "ended",
        BackupStage::Waiting => "waiting",
        BackupStage::Holding => "holding",
        BackupStage::Cutting => "cutting",
        BackupStage::Collecting => "collecting",
    };
    BackupStatus {
        request: status.request,
        number: status.round,
        stage: stage.into(),
        waits_for: status.waits_for,
        complete: status.is_complete,
        failure: status.failure,
        tries: status.tries,
        held_seconds: status.held_us as f64 / 1e6,
    }
}

/// Has the switch inspected, and waits until it has told what it has, or until the controller no
/// longer waits for it. The most counted key is the first, those that it didn't tell of the last.
fn inspect(controller: &ControllerHandle) -> Result<Vec<InspectedKeyStatus>, AdminError> {
    let inspection = controller.call(Controller::inspect).ok_or_else(ended)?;
    loop {
        let inspection = inspection.clone();
        let look = move |controller: &mut Controller, now| controller.inspected(&inspection, now);
        if let Some(mut keys) = controller.call(look).ok_or_else(ended)? {
            keys.sort_by_key(|key| Reverse(key.switch_has.map(|inspected| inspected.count)));
            return Ok(keys);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

fn ended() -> AdminError {
    AdminError::Failed("the controller's thread has ended: restart it, and see its log".into())
}

impl Admin for Supervisor {
    fn has_controller(&self) -> bool {
        self.controller.is_some()
    }

    fn others(&self) -> Vec<(Peer, SocketAddr)> {
        (self.others)()
    }

    fn status(&self) -> RackStatus {
        let counted = |count: fn(&AgentStatistics) -> u64| {
            Some(self.last_switches()?.map(|switch| count(&switch.agent.statistics())).sum())
        };
        let mut status = RackStatus {
            name: self.config.rack.name.clone(),
            version: env!("CARGO_PKG_VERSION").into(),
            scheme: self.config.rack.scheme.name().into(),
            shape: self.config.shape.name().into(),
            phase: "unknown to this process".into(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            operations: self.operations(),
            clients: (self.clients)(),
            cache: CacheStatus {
                records_max: self.config.cached_keys_max(),
                classes: self.config.cache.classes.clone(),
                admissions: counted(|agent| agent.admitted),
                evictions: counted(|agent| agent.evicted + agent.evicted_themselves),
                ..CacheStatus::default()
            },
            nodes: self.nodes(),
            ..RackStatus::default()
        };
        if let Some(known) = self.controller_status() {
            add_controller(&mut status, &known, self.store_error(), &self.config);
            status.switches = self.switch_statuses(&known);
        }
        status
    }

    fn health(&self) -> Result<String, String> {
        if self.controller.is_some() {
            return serving(self.status().phase);
        }
        match self.gateway.as_ref().map(|serves| serves()) {
            Some(true) => Ok("serving".into()),
            Some(false) => Err("no session with the rack".into()),
            None => Ok("running; the controller knows whether the rack serves".into()),
        }
    }

    fn cached(&self, limit: usize) -> Result<CachedStatus, AdminError> {
        let keys = inspect(self.controller()?)?;
        Ok(CachedStatus {
            total: keys.len() as u64,
            records: keys.iter().take(limit).map(|key| self.cached_record(key)).collect(),
        })
    }

    fn hot(&self, limit: usize, seconds: u64) -> Result<HotStatus, AdminError> {
        self.hottest(limit, seconds)
    }

    fn place(&self, hot: &mut HotStatus) {
        self.place_all(&mut hot.keys);
    }

    fn asked(&self) -> Option<Counts> {
        self.heat.as_ref().map(|heat| heat.counts())
    }

    fn nodes(&self) -> Vec<NodeStatus> {
        let known = self.controller_status();
        let known = |index| known.as_ref().and_then(|status| status.nodes.get(usize::from(index)));
        (0..self.config.nodes.len() as u16)
            .map(|index| self.node_status(known(index), index))
            .collect()
    }

    fn chains(&self) -> Result<Vec<ChainStatus>, AdminError> {
        let chains = self.controller()?.call(|controller, now| controller.chain_statuses(now));
        let status = |chain: switchback_core::controller::ChainStatus| ChainStatus {
            chain: chain.chain,
            phase: chain.phase.into(),
            epoch: chain.epoch,
            switch: chain.members.last().copied(),
            switches: chain.members,
            generation: chain.generation,
            durable_generation: chain.durable_generation,
            cached: chain.cached as u64,
            domains: chain.domains as u64,
            preserved: chain.preserved,
            losses: chain.losses,
        };
        Ok(chains.ok_or_else(ended)?.into_iter().map(status).collect())
    }

    fn switches(&self) -> Result<Vec<SwitchStatus>, AdminError> {
        self.controller()?;
        let known = self.controller_status().ok_or_else(ended)?;
        Ok(self.switch_statuses(&known))
    }

    fn partitions(&self) -> Result<Vec<PartitionStatus>, AdminError> {
        let map = self.controller()?.call(|controller, _| controller.map().clone());
        let status = |partition: &Partition| PartitionStatus {
            partition: partition.number,
            first_key: format!("{:032x}", partition.start.0),
            view: partition.view,
            chain: partition.chain,
            replicas: partition.replicas.clone(),
        };
        Ok(map.ok_or_else(ended)?.partitions().iter().map(status).collect())
    }

    fn kill_switch(&self) -> Result<KillResult, AdminError> {
        let elsewhere = "only `switchback demo` kills a switch when asked to";
        let ask = self.demo.as_ref().ok_or_else(|| AdminError::Unsupported(elsewhere.into()))?;
        match ask() {
            true => Ok(KillResult { asked: true }),
            false => Err(AdminError::Failed("the demo can't be reached".into())),
        }
    }

    fn is_demo(&self) -> bool {
        self.demo.is_some()
    }

    fn snapshot(&self) -> Result<SnapshotResult, AdminError> {
        let controller = self.controller()?;
        if !self.config.rack.scheme.absorbs_writes() {
            let text = format!(
                "a {} rack has no snapshots: its nodes have everything",
                self.config.rack.scheme
            );
            return Err(AdminError::Unsupported(text));
        }
        let taken = take_snapshot(controller, SNAPSHOT_LIMIT)?;
        taken.ok_or_else(|| {
            let why = self.store_error().map_or_else(String::new, |error| format!(": {error}"));
            AdminError::Failed(format!("no snapshot within {} s{why}", SNAPSHOT_LIMIT.as_secs()))
        })
    }

    fn back_up(&self) -> Result<BackupStatus, AdminError> {
        if self.config.rack.replication > 1 {
            let why = "a rack with replication above 1 can't be backed up yet: \
                       `switchback export` writes its records to a file";
            return Err(AdminError::Failed(why.into()));
        }
        let begin =
            |controller: &mut Controller, now| controller.back_up(now).map(|_| controller.backup());
        let begun = self.controller()?.call(begin).ok_or_else(ended)?;
        let is_cut =
            "a backup is being made that lacks what is written since: ask again once it has ended";
        begun.map(backup_status).ok_or_else(|| AdminError::Failed(is_cut.into()))
    }

    fn backup(&self) -> Result<BackupStatus, AdminError> {
        let status = self.controller()?.call(|controller, _| controller.backup());
        status.map(backup_status).ok_or_else(ended)
    }

    fn drain_switch(
        &self,
        switch: u16,
        spare: Option<u16>,
    ) -> Result<Vec<SwitchStatus>, AdminError> {
        self.change_service(move |controller, now| controller.drain_switch(now, switch, spare))
    }

    fn add_switch(&self, switch: u16) -> Result<Vec<SwitchStatus>, AdminError> {
        self.change_service(move |controller, now| controller.add_switch(now, switch))
    }

    fn drain(&self) -> Result<DrainResult, AdminError> {
        let controller = self.controller()?;
        let start = Instant::now();
        let limit = Duration::from_millis(self.config.rack.drain_timeout_ms);
        let before = controller.call(|controller, now| {
            let before = controller.cached();
            controller.drain(now);
            before
        });
        let before = before.ok_or_else(ended)? as u64;
        let left = loop {
            let is_over = start.elapsed() > limit;
            let end = move |controller: &mut Controller, _| {
                (is_over || controller.is_drained()).then(|| {
                    let left = controller.cached_keys();
                    // The rack goes on serving: keys that stay hot come back into the cache, at
                    // once and uncounted.
                    controller.resume();
                    left
                })
            };
            if let Some(left) = controller.call(end).ok_or_else(ended)? {
                break left;
            }
            std::thread::sleep(LOOK_AGAIN);
        };
        Ok(DrainResult {
            drained: before.saturating_sub(left.len() as u64),
            remaining: describe_remaining(&left, self.config.console.keys),
            duration_seconds: start.elapsed().as_secs_f64(),
        })
    }
}

/// What a drain has left, by node.
pub(crate) fn describe_remaining(keys: &[CachedKeyStatus], names: KeyNames) -> Vec<String> {
    let mut by_node = std::collections::BTreeMap::<u16, Vec<String>>::new();
    for key in keys {
        by_node.entry(key.node).or_default().push(shown(&key.key, key.hash, names));
    }
    let line = |(node, keys): (&u16, &Vec<String>)| {
        let some = keys.iter().take(3).cloned().collect::<Vec<_>>().join(", ");
        let more = if keys.len() > 3 { ", ..." } else { "" };
        format!("node {node}: {} cached records are not stored there ({some}{more})", keys.len())
    };
    by_node.iter().map(line).collect()
}

/// A key as it is told: other bytes than printable ASCII as `\xNN`, or only the first 16 digits of
/// its hash.
fn shown(key: &[u8], hash: KeyHash, names: KeyNames) -> String {
    match names {
        KeyNames::Names => key.escape_ascii().to_string(),
        KeyNames::Hash => format!("#{:016x}", u128::from_be_bytes(hash.0) >> 64),
    }
}

fn add_controller(
    status: &mut RackStatus,
    known: &ControllerStatus,
    error: Option<String>,
    config: &RackConfig,
) {
    let seconds = |us: u64| us as f64 / 1e6;
    status.phase = known.phase.into();
    status.epoch = Some(known.epoch);
    status.draining = Some(known.draining);
    status.cache.records = Some(known.cached as u64);
    status.cache.waiting_offers = Some(known.waiting_offers as u64);
    let (cost, budget) = (known.control_cost, config.cache.control_budget);
    status.control = Some(ControlStatus {
        messages_per_s: cost.per_s.messages,
        bytes_per_s: cost.per_s.bytes,
        messages_per_s_max: budget.messages_per_s,
        bytes_per_s_max: budget.bytes_per_s,
        delays: cost.delays,
    });
    status.clients.sessions = Some(known.sessions as u64);
    status.replication = Some(known.replication.into());
    status.snapshots = Some(SnapshotStatus {
        generation: known.generation,
        durable_generation: known.durable_generation,
        completed: known.snapshots_completed,
        failed: known.snapshots_failed,
        duration_seconds: seconds(known.snapshot_duration_us),
        records: known.snapshot_records,
        bytes: known.snapshot_bytes,
        error,
    });
    status.recovery = known.recovery.map(|times| RecoveryStatus {
        epoch: times.epoch,
        complete: times.missing == 0,
        detect_seconds: seconds(times.detect_us),
        collect_seconds: seconds(times.collect_us),
        store_seconds: seconds(times.store_us),
        readmit_seconds: seconds(times.readmit_us),
        records: times.records,
        loaded: times.loaded,
        gathered: times.gathered,
        lost_keys: times.lost_keys,
        abandoned_clients: times.abandoned_clients,
    });
}

#[cfg(test)]
mod tests;
