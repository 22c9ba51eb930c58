//! Open files: as many as the system allows this process, shared out so that clients can't take
//! those that nodes need. A RocksDB that can't open a file takes no writes any more until it is
//! opened anew.

use crate::config::{RackConfig, Shape};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files of a node beside its tables: logs, a lock, what flushes and compactions write.
const NODE_OWN: u64 = 88;
/// Tables that a node keeps open: at least, and if there is no lack of files.
const NODE_TABLES: (u64, u64) = (20, 512);
/// Polls, sockets between parts, the controller's and the spool's files, connections for metrics.
const OTHERS: u64 = 200;
/// Connections of clients that there is room for in any case.
const CLIENTS_MIN: u64 = 16;

/// What one process may have open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Connections of clients.
    pub clients: u64,
    /// Table files of each node.
    pub tables: u64,
}

impl Share {
    /// Divides `limit` files between the nodes and clients of one process. If they are few, tables
    /// get half of what can be chosen.
    fn new(limit: u64, nodes: u64, clients: u64) -> Share {
        let free = limit.saturating_sub(OTHERS + nodes * NODE_OWN);
        let for_tables = free.saturating_sub(clients).max(free / 2);
        let tables = (for_tables / nodes.max(1)).clamp(NODE_TABLES.0, NODE_TABLES.1);
        let left = free.saturating_sub(nodes * tables);
        Share { clients: clients.min(left.max(CLIENTS_MIN)), tables }
    }

    /// For the parts of the rack that are in this process, whose limit is raised as far as it may
    /// raise it itself.
    pub fn here(config: &RackConfig) -> Share {
        let (limit, clients) = (raised(), config.gateway.max_clients.into());
        match config.shape {
            Shape::Embedded => Share::new(limit, config.nodes.len() as u64, clients),
            // A node, or a gateway: neither takes anything from the other.
            Shape::Distributed => {
                Share { clients: Share::new(limit, 0, clients).clients, ..Share::new(limit, 1, 0) }
            }
        }
    }
}

/// Files that the parts may want, if all of them are in one process.
pub fn wanted(config: &RackConfig) -> u64 {
    OTHERS
        + u64::from(config.gateway.max_clients)
        + config.nodes.len() as u64 * (NODE_OWN + NODE_TABLES.1)
}

/// Files that this process may have open once it has raised its limit.
pub fn allowed() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)
}

/// Raises the limit, as redis-server does.
fn raised() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    match setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => current.unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_get_what_nodes_do_not_need() {
        assert_eq!(Share::new(u64::MAX, 4, 10_000), Share { clients: 10_000, tables: 512 });
        assert_eq!(Share::new(20_000, 4, 10_000), Share { clients: 10_000, tables: 512 });
        assert_eq!(Share::new(4_096, 4, 10_000), Share { clients: 1_772, tables: 443 });
        assert_eq!(Share::new(1_024, 4, 10_000), Share { clients: 236, tables: 59 });
        assert_eq!(
            Share::new(256, 4, 10_000),
            Share { clients: 16, tables: 20 },
            "hardly enough for anything"
        );
        assert_eq!(Share::new(1_024, 0, 10_000).clients, 824, "a gateway alone");
        assert_eq!(Share::new(1_024, 1, 0).tables, 512, "a node alone");
    }

    #[test]
    fn what_is_shared_out_is_there() {
        for limit in [1_000, 1_024, 2_000, 4_096, 10_000, 65_536] {
            for (nodes, clients) in [(0, 10_000), (1, 0), (1, 100), (4, 10_000), (6, 64)] {
                let Share { clients: got, tables } = Share::new(limit, nodes, clients);
                assert!(
                    OTHERS + nodes * (NODE_OWN + tables) + got <= limit,
                    "{limit} {nodes} {clients}"
                );
            }
        }
    }
}
