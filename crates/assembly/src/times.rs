//! Times and limits of the parts, and what they are unless something else is wanted.

use switchback_core::client::ClientConfig;
use switchback_core::controller::{ControlBudget, ControllerConfig};
use switchback_core::node::NodeLimits;
use switchback_core::switch::AgentConfig;

/// Times of the parts, in microseconds.
#[derive(Clone, Debug)]
pub struct Times {
    /// How often nodes and switches say hello.
    pub heartbeat_us: u64,
    /// Lease of a session.
    pub lease_us: u64,
    /// How far the clocks of client and controller may drift apart during a lease.
    pub drift_us: u64,
    /// How long a recovery waits for a client that keeps its records on disk.
    pub spool_wait_us: u64,
    /// How long a recovery waits for a silent switch that has what was told, if clients don't
    /// preserve it.
    pub witness_wait_us: u64,
    /// For how long a chain goes on without a switch that lives, but to which a link is dead.
    pub link_pause_us: u64,
    /// How long nodes have to write out what only their logs have, before a backup is cut.
    pub backup_flush_us: u64,
    /// Silence after which a switch counts as dead.
    pub switch_timeout_us: u64,
    /// The same, once its connection is lost; of a node, too.
    pub switch_lost_us: u64,
    /// Silence after which a node counts as dead: partitions that have another replica go on
    /// without it.
    pub node_timeout_us: u64,
    /// How long a rack without any switch waits for one before its clients send to the nodes;
    /// `None`: they never do.
    pub bypass_us: Option<u64>,
    /// Time between two snapshots; `None`: only those that are asked for.
    pub snapshot_us: Option<u64>,
    /// How long it may take until a record that no node has is on its way to its node; `None`: as
    /// long as it is cached.
    pub dirty_max_us: Option<u64>,
    /// First pause before the controller repeats a command, or the agent a report of evictions.
    pub controller_retry_us: u64,
    /// Shortest time from one eviction to the next.
    pub eviction_pause_us: u64,
    /// How long there must be little to do for an epoch to be renewed.
    pub quiet_us: u64,
    /// How often a node repeats unanswered offers and cache updates.
    pub node_retry_us: u64,
    /// How long a node's marks of offers wait at most for a commit that they can be part of.
    pub node_defer_us: u64,
    /// Fences and tombstones live for one or two of these.
    pub floor_period_us: u64,
    /// Shortest and longest wait before a client sends a request again.
    pub client_retry_us: (u64, u64),
    /// After this a read fails and a write is indeterminate.
    pub deadline_us: u64,
    /// How often a client asks for a session while it has none.
    pub hello_us: u64,
}

impl Default for Times {
    fn default() -> Times {
        let (controller, agent) = (ControllerConfig::default(), AgentConfig::default());
        let (node, client) = (NodeLimits::default(), ClientConfig::default());
        Times {
            heartbeat_us: agent.heartbeat_us,
            lease_us: controller.lease_us,
            drift_us: controller.drift_us,
            spool_wait_us: controller.spool_wait_us,
            witness_wait_us: controller.witness_wait_us,
            link_pause_us: controller.link_pause_us,
            backup_flush_us: controller.backup_flush_us,
            switch_timeout_us: controller.switch_timeout_us,
            switch_lost_us: controller.switch_lost_us,
            node_timeout_us: controller.node_timeout_us,
            bypass_us: controller.bypass_us,
            snapshot_us: controller.snapshot_us,
            dirty_max_us: agent.dirty_max_us,
            controller_retry_us: controller.retry_us,
            eviction_pause_us: controller.eviction_pause_us,
            quiet_us: agent.quiet_us,
            node_retry_us: node.retry_us,
            node_defer_us: node.defer_us,
            floor_period_us: node.floor_period_us,
            client_retry_us: client.retry_us,
            deadline_us: client.deadline_us,
            hello_us: client.hello_us,
        }
    }
}

/// Limits of the parts.
#[derive(Clone, Debug)]
pub struct Limits {
    /// What admissions and evictions may cost on the control channel.
    pub control_budget: ControlBudget,
    /// Bytes of preserved records that a recovery holds of one client: several times what a client
    /// preserves.
    pub gather_bytes_max: usize,
    /// Records of a snapshot that the agent loads between two looks at anything else.
    pub loads_a_step: usize,
    /// Keys that a node offers at most; half as many others may have a fence.
    pub marks_max: usize,
    /// Bytes of staged fragments at a node.
    pub staged_bytes_max: usize,
    /// Bytes of large values that were read at a node and may be pulled again.
    pub pulled_bytes_max: usize,
    /// Engine operations under way at a node; beyond this packets are dropped.
    pub operations_max: usize,
    /// Bytes that a client preserves, beyond which its writes wait for a snapshot.
    pub preserve_bytes_max: usize,
    /// Bytes of large values under way, beyond which a client's large operations wait.
    pub large_bytes_max: usize,
    /// Fragments of large values that a client has under way.
    pub fragments_max: u16,
}

impl Default for Limits {
    fn default() -> Limits {
        let (controller, agent) = (ControllerConfig::default(), AgentConfig::default());
        let (node, client) = (NodeLimits::default(), ClientConfig::default());
        Limits {
            control_budget: controller.control_budget,
            gather_bytes_max: controller.gather_bytes_max,
            loads_a_step: agent.loads_a_step,
            marks_max: node.marks_max,
            staged_bytes_max: node.staged_bytes_max,
            pulled_bytes_max: node.pulled_bytes_max,
            operations_max: node.operations_max,
            preserve_bytes_max: client.preserve_bytes_max,
            large_bytes_max: client.large_bytes_max,
            fragments_max: client.fragments_max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_parts_have_in_common_is_the_same_by_default() {
        let (times, node) = (Times::default(), NodeLimits::default());
        assert_eq!(times.heartbeat_us, node.heartbeat_us);
        assert_eq!(times.controller_retry_us, AgentConfig::default().retry_us);
    }
}
