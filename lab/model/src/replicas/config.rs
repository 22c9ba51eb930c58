//! What is explored: what each client does, how many replicas there are, and what may go wrong.

use super::Mechanism;
use super::state::NODES_MAX;
use crate::config::Kind;
use crate::state::OPERATIONS_MAX;

/// How often something happens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Times {
    /// The head offers the key.
    pub offers: u8,
    /// The key is evicted.
    pub evictions: u8,
    /// A node dies, for good.
    pub crashes: u8,
    /// A node is removed from the partition and lives: it leaves, or is taken for dead.
    pub removals: u8,
    /// A node restarts.
    pub restarts: u8,
    /// A link breaks, with frames on it.
    pub breaks: u8,
    /// A node joins.
    pub joins: u8,
    /// Two replicas change places.
    pub reorders: u8,
    /// A client gives an operation up.
    pub given_up: u8,
    /// A node's floor rises.
    pub floor_rises: u8,
}

impl Times {
    /// Nothing of it does.
    pub const NEVER: Times = Times {
        offers: 0,
        evictions: 0,
        crashes: 0,
        removals: 0,
        restarts: 0,
        breaks: 0,
        joins: 0,
        reorders: 0,
        given_up: 0,
        floor_rises: 0,
    };
}

/// A configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The operations of each client, one after another: reads, writes, deletes, conditional
    /// writes.
    pub clients: Vec<Vec<Kind>>,
    /// Replicas at first: 1 to 3. Another node is there if one may join.
    pub replicas: usize,
    /// How often what may happen does.
    pub at_most: Times,
    /// Numbers that the switch gives out at most.
    pub counter_max: u8,
    /// What is left out.
    pub without: Vec<Mechanism>,
    /// Only what clients see counts, not yet that a node lacks something.
    pub only_seen: bool,
    /// Keep packets that can't matter any more: the same decision, and more states.
    pub keeps_dead_packets: bool,
}

impl Config {
    /// Two replicas, no faults, and these operations: `WR,R` is a client that writes and reads, and
    /// one that reads.
    pub fn of(operations: &str) -> Result<Config, String> {
        let crate::config::Config { clients, counter_max, .. } =
            crate::config::Config::of(operations)?;
        if clients.iter().flatten().any(|kind| *kind == Kind::Expiring) {
            return Err(format!("{operations}: E (write that expires) isn't modelled here"));
        }
        Ok(Config {
            clients,
            replicas: 2,
            at_most: Times::NEVER,
            counter_max,
            without: Vec::new(),
            only_seen: false,
            keeps_dead_packets: false,
        })
    }

    /// Whether the rules include a mechanism.
    pub(super) fn has(&self, mechanism: Mechanism) -> bool {
        !self.without.contains(&mechanism)
    }

    /// What a client's request is.
    pub(super) fn kind(&self, client: u8, request: u8) -> Kind {
        self.clients[usize::from(client)][usize::from(request) - 1]
    }

    /// Whether a later operation of the client needs the version that it saw.
    pub(super) fn next_is_conditional(&self, client: u8, request: u8) -> bool {
        self.clients[usize::from(client)][usize::from(request)..].contains(&Kind::Conditional)
    }

    /// Whether a value is that of a delete.
    pub(super) fn is_tombstone(&self, value: u8) -> bool {
        usize::from(value).checked_sub(1).is_some_and(|at| {
            self.clients[at / OPERATIONS_MAX][at % OPERATIONS_MAX] == Kind::Delete
        })
    }

    /// Whether a reader of this value is told that there is none.
    pub(super) fn is_absent(&self, value: u8) -> bool {
        value == 0 || self.is_tombstone(value)
    }

    /// Nodes that there are.
    pub(super) fn nodes(&self) -> usize {
        (self.replicas + usize::from(self.at_most.joins > 0)).min(NODES_MAX)
    }
}
