//! The native datapath as an agent's target.

use std::sync::{Arc, PoisonError, RwLock};
use switchback_core::control::Location;
use switchback_core::switch::Target;
use switchback_datapath::{Datapath, Verdict};
use switchback_wire::{Address, KeyHash, Map, Packet};

/// Addresses of the nodes, as the controller last told them: where a socket driver forwards to.
pub type NodeAddresses = Arc<RwLock<Vec<Address>>>;

/// The datapath in this process.
#[derive(Clone, Debug)]
pub struct NativeTarget {
    datapath: Arc<Datapath>,
    nodes: NodeAddresses,
    nodes_max: u16,
    classes: Vec<(u32, u32)>,
    sketch_width: u32,
}

impl NativeTarget {
    /// Drives `datapath`, which was made with `config`.
    pub fn new(datapath: Arc<Datapath>, config: &switchback_datapath::Config) -> NativeTarget {
        let classes = config.classes.iter().map(|class| (class.value_bytes, class.slots)).collect();
        let (nodes_max, sketch_width) = (config.nodes, config.sketch_width);
        NativeTarget { datapath, nodes: NodeAddresses::default(), nodes_max, classes, sketch_width }
    }

    /// The nodes' addresses, kept up to date.
    pub fn nodes(&self) -> NodeAddresses {
        Arc::clone(&self.nodes)
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
        if node >= self.nodes_max {
            tracing::error!(
                node,
                "the datapath has room for {} nodes, fewer than the controller says",
                self.nodes_max
            );
            return;
        }
        self.datapath.set_node(node, address);
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(node);
        if nodes.len() <= index {
            nodes.resize(index + 1, Address::default());
        }
        nodes[index] = address;
    }

    fn set_lanes(&mut self, lanes: u32) {
        self.datapath.set_lanes(lanes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_datapath::Config;

    #[test]
    fn a_node_for_which_there_is_no_place_is_refused() {
        let config = Config { nodes: 2, ..Config::default() };
        let datapath = Arc::new(Datapath::new(&config).expect("the configuration is valid"));
        let mut target = NativeTarget::new(datapath, &config);
        target.set_node(u16::MAX, Address::in_memory(3, 0));
        target.set_node(1, Address::in_memory(3, 1));
        let nodes = target.nodes();
        let nodes = nodes.read().expect("no thread panicked");
        assert_eq!(nodes[..], [Address::default(), Address::in_memory(3, 1)]);
    }
}
