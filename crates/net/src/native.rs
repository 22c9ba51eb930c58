//! The native datapath as an agent's target.

use std::sync::Arc;
use switchback_core::control::Location;
use switchback_core::switch::{Counting, Target};
use switchback_datapath::{Datapath, NodeAddresses, Verdict};
use switchback_wire::{Address, KeyHash, Map, Packet};

/// The datapath in this process.
#[derive(Clone, Debug)]
pub struct NativeTarget {
    datapath: Arc<Datapath>,
    nodes: NodeAddresses,
    classes: Vec<(u32, u32)>,
    sketch_width: u32,
}

impl NativeTarget {
    /// Drives `datapath`, which was made with `config`.
    pub fn new(datapath: Arc<Datapath>, config: &switchback_datapath::Config) -> NativeTarget {
        let classes = config.classes.iter().map(|class| (class.value_bytes, class.slots)).collect();
        let (nodes, sketch_width) = (NodeAddresses::new(config.nodes), config.sketch_width);
        NativeTarget { datapath, nodes, classes, sketch_width }
    }

    /// The nodes' addresses, kept up to date.
    pub fn nodes(&self) -> NodeAddresses {
        self.nodes.clone()
    }
}

impl Target for NativeTarget {
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
        self.datapath.misses()
    }

    fn requests(&self) -> u64 {
        self.datapath.requests()
    }

    fn sequence_used(&self) -> u32 {
        self.datapath.sequence_used()
    }

    fn classes(&self) -> Vec<(u32, u32)> {
        self.classes.clone()
    }

    fn sketch_width(&self) -> u32 {
        self.sketch_width
    }
}
