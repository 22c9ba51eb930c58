//! The kernel datapath as an agent's target.

use crate::XdpDatapath;
use std::sync::Arc;
use switchback_core::control::Location;
use switchback_core::switch::{Counting, Target};
use switchback_datapath::{NodeAddresses, Verdict};
use switchback_wire::{Address, KeyHash, Map, Packet};

/// What an agent drives.
#[derive(Clone, Debug)]
pub struct XdpTarget {
    datapath: Arc<XdpDatapath>,
    nodes: NodeAddresses,
}

impl XdpTarget {
    /// Drives `datapath`.
    pub fn new(datapath: Arc<XdpDatapath>) -> XdpTarget {
        let nodes = NodeAddresses::new(datapath.config().nodes);
        XdpTarget { datapath, nodes }
    }

    /// The nodes' addresses, kept up to date.
    pub fn nodes(&self) -> NodeAddresses {
        self.nodes.clone()
    }
}

impl Target for XdpTarget {
    fn inject(&mut self, packet: &mut Packet) -> bool {
        matches!(self.datapath.inject(packet), Verdict::Reply)
    }

    fn lookup_insert(&mut self, hash: &KeyHash, at: Location) -> bool {
        self.datapath.lookup_insert(hash, at.class, at.slot).is_ok()
    }

    fn lookup_remove(&mut self, hash: &KeyHash, at: Location) {
        self.datapath.lookup_remove(hash, at.class, at.slot);
    }

    fn clear(&mut self) {
        self.datapath.clear();
    }

    fn set_map(&mut self, map: &Map) {
        if let Err(error) = self.datapath.set_map(map) {
            tracing::error!(%error, "the datapath refuses the controller's map");
        }
    }

    fn set_node(&mut self, node: u16, address: Address) {
        if self.nodes.set(node, address) {
            self.datapath.set_node(node, address);
        } else {
            tracing::error!(
                node,
                "the datapath has no room for as many nodes as the controller says"
            );
        }
    }

    fn set_lanes(&mut self, lanes: u32) {
        self.datapath.set_lanes(lanes);
    }

    fn set_counting(&mut self, counting: Counting) -> u32 {
        let Counting { sampling, threshold, offers } = counting;
        self.datapath.set_counting(sampling, threshold, offers)
    }

    fn next_report(&mut self, packet: &mut Packet) -> bool {
        self.datapath.next_report(packet)
    }

    fn misses(&self) -> u64 {
        let statistics = self.datapath.statistics();
        statistics.read_misses + statistics.write_misses
    }

    fn requests(&self) -> u64 {
        let statistics = self.datapath.statistics();
        statistics.read + statistics.write + statistics.delete
    }

    fn sequence_used(&self) -> u32 {
        self.datapath.sequence_used()
    }

    fn failure(&self) -> Option<&str> {
        self.datapath.failure()
    }

    fn classes(&self) -> Vec<(u32, u32)> {
        self.datapath
            .config()
            .classes
            .iter()
            .map(|class| (class.value_bytes, class.slots))
            .collect()
    }

    fn sketch_width(&self) -> u32 {
        self.datapath.config().sketch_width
    }
}
