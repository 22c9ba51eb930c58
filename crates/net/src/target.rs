//! A datapath as an agent's target.

use crate::udp::UdpSender;
use std::sync::Arc;
use switchback_core::control::Location;
use switchback_core::switch::{Counting, Target};
use switchback_datapath::{Control, NodeAddresses, Verdict};
use switchback_wire::{Address, Heard, KeyHash, Map, Packet, Place};

/// What an agent drives: a datapath of either kind.
#[derive(Clone, Debug)]
pub struct DatapathTarget<D> {
    datapath: Arc<D>,
    nodes: NodeAddresses,
    /// How packets get to other switches; `None`: by a call.
    link: Option<Arc<UdpSender>>,
}

impl<D: Control> DatapathTarget<D> {
    /// Drives `datapath`.
    pub fn new(datapath: Arc<D>) -> DatapathTarget<D> {
        let nodes = NodeAddresses::new(datapath.config().nodes);
        DatapathTarget { datapath, nodes, link: None }
    }

    /// Other switches are reached over a network, from where this one takes packets.
    #[must_use]
    pub fn over(self, link: UdpSender) -> DatapathTarget<D> {
        DatapathTarget { link: Some(Arc::new(link)), ..self }
    }

    /// The nodes' addresses, kept up to date.
    pub fn nodes(&self) -> NodeAddresses {
        self.nodes.clone()
    }
}

impl<D: Control> Target for DatapathTarget<D> {
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

    fn set_place(&mut self, place: &Place) {
        if let Err(error) = self.datapath.set_place(place) {
            tracing::error!(%error, ?place, "the datapath refuses its place in the chain");
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

    fn probe(&mut self, to: Address, packet: &Packet) -> bool {
        self.link.iter().for_each(|link| link.send(to, packet));
        self.link.is_some()
    }

    fn heard(&self) -> Heard {
        self.datapath.heard()
    }

    fn failure(&self) -> Option<&str> {
        self.datapath.failure()
    }

    fn classes(&self) -> Vec<(u32, u32)> {
        let classes = &self.datapath.config().classes;
        classes.iter().map(|class| (class.value_bytes, class.slots)).collect()
    }

    fn sketch_width(&self) -> u32 {
        self.datapath.config().sketch_width
    }
}
