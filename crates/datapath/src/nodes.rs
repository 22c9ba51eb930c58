//! Where nodes are, for what forwards packets as the pipeline says.

use std::sync::{Arc, PoisonError, RwLock};
use switchback_wire::Address;

/// Addresses of the nodes, as the controller last told them. Clones share them.
#[derive(Clone, Debug)]
pub struct NodeAddresses(Arc<RwLock<Vec<Option<Address>>>>);

impl NodeAddresses {
    /// Of as many nodes as a pipeline has room for, none of them known yet.
    pub fn new(nodes: u16) -> NodeAddresses {
        NodeAddresses(Arc::new(RwLock::new(vec![None; usize::from(nodes)])))
    }

    /// Says where a node is; false if there is no room for it.
    #[must_use]
    pub fn set(&self, node: u16, address: Address) -> bool {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let place = all.get_mut(usize::from(node));
        place.map(|place| *place = Some(address)).is_some()
    }

    /// Calls `each` with the addresses of these nodes, of those that are known.
    pub fn each(&self, nodes: &[u16], each: impl FnMut(Address)) {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        nodes.iter().filter_map(|node| *all.get(usize::from(*node))?).for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_for_which_there_is_no_place_is_refused() {
        let nodes = NodeAddresses::new(2);
        assert!(!nodes.set(u16::MAX, Address::in_memory(3, 0)));
        assert!(nodes.set(1, Address::in_memory(3, 1)));
        let mut known = Vec::new();
        nodes.each(&[0, 1, 2], |address| known.push(address));
        assert_eq!(known, [Address::in_memory(3, 1)]);
    }
}
