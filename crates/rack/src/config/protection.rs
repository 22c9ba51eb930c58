//! Who protects what the cache tells, until a node has it (rule 25).

use super::{RackConfig, Shape};
use std::collections::BTreeSet;
use std::fmt;
use switchback_core::controller::Preserve;

/// Who protects what the cache of a rack tells while all of its switches serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing needs to be protected: nodes have every write before it is acknowledged.
    Nodes,
    /// Clients alone: a chain is one switch.
    Clients,
    /// Clients, and the switches of a chain, which are in one failure domain.
    ClientsOfOneDomain,
    /// The switches of a chain, in this number of failure domains; clients, too, if they are to.
    Switches {
        /// Failure domains of the rack's switches.
        domains: usize,
        /// `preserve = "always"`.
        and_clients: bool,
    },
}

impl RackConfig {
    /// Who protects what the cache tells. `ctl chains` knows of the switches that live.
    pub fn protection(&self) -> Protection {
        let scheme = self.rack.scheme;
        if !scheme.absorbs_writes() {
            return Protection::Nodes;
        }
        if self.topology.layers == 1 || !scheme.keeps_in_switches() {
            return Protection::Clients;
        }
        let domains: BTreeSet<_> = self.switches.iter().map(|switch| &switch.domain).collect();
        if self.shape == Shape::Embedded || domains.len() < 2 {
            return Protection::ClientsOfOneDomain;
        }
        let and_clients = self.rack.preserve == Preserve::Always;
        Protection::Switches { domains: domains.len(), and_clients }
    }

    /// In how many failure domains the rack's switches are; `None` where those of a chain protect
    /// nothing in any case.
    pub fn listed_domains(&self) -> Option<usize> {
        match self.protection() {
            Protection::Nodes | Protection::Clients => None,
            Protection::ClientsOfOneDomain => Some(1),
            Protection::Switches { domains, .. } => Some(domains),
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Protection::Nodes => f.write_str("nodes have every write before it is acknowledged"),
            Protection::Clients => f.write_str(
                "clients preserve what the cache tells, until nodes or a snapshot have it",
            ),
            Protection::ClientsOfOneDomain => f.write_str(
                "clients preserve what the cache tells: all switches are in one failure domain",
            ),
            Protection::Switches { domains, and_clients } => {
                let clients = if *and_clients { ", and clients" } else { "" };
                write!(f, "switches in {domains} failure domains{clients}")
            }
        }
    }
}
