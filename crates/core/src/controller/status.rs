//! What the controller tells operators.

use super::commands::Stage;
use super::machine::{Controller, Phase};
use crate::time::Now;

/// How long the steps of the last recovery took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryTimes {
    /// The epoch that it began.
    pub epoch: u32,
    /// When it began, of the controller's monotonic clock.
    pub started_us: u64,
    /// From the last sign of life of the old switch.
    pub detect_us: u64,
    /// Until all clients' records were there.
    pub collect_us: u64,
    /// Until the newest of them were stored and every node was released.
    pub store_us: u64,
    /// When that was.
    pub released_at_us: u64,
    /// Until every key that was cached was admitted again, or declined; 0 while some are missing.
    pub readmit_us: u64,
    /// Keys that were cached and have not come back yet.
    pub missing: u64,
    /// Preserved records that clients sent.
    pub gathered: u64,
    /// Records that were stored.
    pub records: u64,
    /// Clients whose lease ran out before they answered.
    pub abandoned_clients: u64,
}

/// A node as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct NodeStatus {
    pub index: u16,
    pub alive: bool,
    pub epoch: u32,
    pub held: bool,
    pub silent_us: u64,
    pub cached_keys: usize,
    pub error: Option<String>,
}

/// A switch as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct SwitchStatus {
    pub index: u16,
    pub active: bool,
    pub alive: bool,
    pub epoch: u32,
    pub silent_us: u64,
}

/// A cached key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct CachedKeyStatus {
    pub key: Vec<u8>,
    pub node: u16,
    pub class: u8,
    pub slot: u32,
    pub stage: &'static str,
}

/// The rack as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct ControllerStatus {
    pub phase: &'static str,
    pub epoch: u32,
    pub generation: u32,
    pub durable_generation: u32,
    pub cached: usize,
    pub waiting_offers: usize,
    pub declined_offers: u64,
    pub sessions: usize,
    pub draining: bool,
    pub snapshots_completed: u64,
    pub snapshots_failed: u64,
    pub snapshot_duration_us: u64,
    pub snapshot_bytes: u64,
    pub snapshot_records: u64,
    pub recovery: Option<RecoveryTimes>,
    pub nodes: Vec<NodeStatus>,
    pub switches: Vec<SwitchStatus>,
}

/// A node that was silent for longer is shown as dead.
const SILENT_US: u64 = 1_000_000;

impl Controller {
    /// Whether the rack serves, nothing being recovered.
    pub fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether no switch serves, and clients send to the nodes.
    pub fn is_bypassing(&self) -> bool {
        self.directory.bypass
    }

    /// Whether clients can be served: of a recovery, at most clients are missing.
    pub fn is_ready_for_clients(&self) -> bool {
        match &self.phase {
            Phase::Serving => true,
            Phase::Recovering(recovery) => recovery.waits_for_clients_only(),
            Phase::Waiting | Phase::Resyncing => false,
        }
    }

    /// Keys in the cache or on their way in or out.
    pub fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Keys that are in the cache.
    pub fn cached_keys(&self) -> Vec<CachedKeyStatus> {
        let status = |key: &super::commands::CachedKey| CachedKeyStatus {
            key: key.entry.key.clone(),
            node: key.node,
            class: key.entry.at.class,
            slot: key.entry.at.slot,
            stage: match key.stage {
                Stage::Admitting => "admitting",
                Stage::Cached | Stage::Candidate => "cached",
                Stage::Evicting => "evicting",
                Stage::Clearing => "clearing",
            },
        };
        self.cache.iter().map(status).collect()
    }

    /// The epoch of the last recovery that has gathered, and the clients whose lease ran out before they answered: what they alone
    /// preserved is lost.
    pub fn abandoned_clients(&self) -> (u32, &[u64]) {
        (self.abandoned.0, &self.abandoned.1)
    }

    /// Commands that wait for their answer.
    pub fn commands_outstanding(&self) -> usize {
        self.commands.len()
    }

    /// Everything at a glance.
    pub fn status(&self, now: Now) -> ControllerStatus {
        let phase = match &self.phase {
            Phase::Waiting => "waiting for a switch",
            Phase::Resyncing => "resynchronizing",
            Phase::Recovering(_) => "recovering",
            Phase::Serving if self.directory.bypass => "serving without a switch",
            Phase::Serving => "serving",
        };
        let silent = |heard_us: u64| now.monotonic_us.saturating_sub(heard_us);
        let node = |(index, node): (usize, &super::machine::NodeState)| NodeStatus {
            index: index as u16,
            alive: node.boot != 0 && silent(node.heard_us) < SILENT_US,
            epoch: node.epoch,
            held: node.held,
            silent_us: silent(node.heard_us),
            cached_keys: self.cache.of_node(index as u16),
            error: node.failure.clone().or_else(|| node.refusal.clone()),
        };
        let active = self.directory.active.map(|(active, _)| active);
        let switch = |(index, switch): (&u16, &super::machine::SwitchState)| SwitchStatus {
            index: *index,
            active: active == Some(*index),
            alive: now.monotonic_us < switch.dead_at_us,
            epoch: switch.epoch,
            silent_us: silent(switch.heard_us),
        };
        ControllerStatus {
            phase,
            epoch: self.directory.epoch,
            generation: self.snapshots.generation,
            durable_generation: self.snapshots.durable_generation,
            cached: self.cache.len(),
            waiting_offers: self.waiting.len(),
            declined_offers: self.waiting.declined,
            sessions: self.directory.sessions.len(),
            draining: self.is_draining(),
            snapshots_completed: self.snapshots.completed,
            snapshots_failed: self.snapshots.failed,
            snapshot_duration_us: self.snapshots.last_duration_us,
            snapshot_bytes: self.snapshots.last_bytes,
            snapshot_records: self.snapshots.last_records,
            recovery: self.times,
            nodes: self.nodes.iter().enumerate().map(node).collect(),
            switches: self.switches.iter().map(switch).collect(),
        }
    }
}
