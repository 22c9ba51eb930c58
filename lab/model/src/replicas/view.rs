//! A view: which nodes are the replicas of the partition, in which order.

use super::state::NODES_MAX;

/// A view. Its number is its place in the list of all views; the first one is 1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct View {
    order: [u8; NODES_MAX],
    length: u8,
    /// The node that is sent a copy, and what changes, by the tail.
    pub(super) joiner: Option<u8>,
    /// The tail has joined, and hasn't been heard to have opened: it isn't a member yet.
    pub(super) opening: bool,
    /// The number of the join of joiner or opening tail.
    pub(super) join: u8,
}

impl View {
    /// Of the first nodes, all of them members.
    pub(super) fn of_first(nodes: usize) -> View {
        let mut view = View::default();
        (0..nodes as u8).for_each(|node| view.append(node));
        view
    }

    /// The replicas, head first.
    pub(super) fn replicas(&self) -> &[u8] {
        &self.order[..usize::from(self.length)]
    }

    pub(super) fn append(&mut self, node: u8) {
        self.order[usize::from(self.length)] = node;
        self.length += 1;
    }

    pub(super) fn remove(&mut self, node: u8) {
        let at = self.position(node).expect("it is a replica");
        self.order[at..].rotate_left(1);
        self.length -= 1;
        self.order[usize::from(self.length)] = 0;
    }

    pub(super) fn swap(&mut self, one: u8, other: u8) {
        self.order.swap(usize::from(one), usize::from(other));
    }

    pub(super) fn is_full(&self) -> bool {
        usize::from(self.length) == NODES_MAX
    }

    fn position(&self, node: u8) -> Option<usize> {
        self.replicas().iter().position(|replica| *replica == node)
    }

    pub(super) fn is_replica(&self, node: u8) -> bool {
        self.position(node).is_some()
    }

    pub(super) fn head(&self) -> u8 {
        self.order[0]
    }

    pub(super) fn tail(&self) -> u8 {
        *self.replicas().last().expect("a view has replicas")
    }

    /// Whether a node is of the view: a replica, or the joiner.
    pub(super) fn has(&self, node: u8) -> bool {
        self.is_replica(node) || self.joiner == Some(node)
    }

    /// The node that gets what this one passes on: the joiner, behind the tail.
    pub(super) fn next(&self, node: u8) -> Option<u8> {
        let at = self.position(node)?;
        self.replicas().get(at + 1).copied().or(self.joiner)
    }

    /// The last node that a replica's changes reach: the tail, or the joiner if it is the tail.
    pub(super) fn end_for(&self, node: u8) -> Option<u8> {
        if self.tail() == node { self.joiner } else { Some(self.tail()) }
    }

    /// Whether a replica has everything that was answered.
    pub(super) fn is_member(&self, node: u8) -> bool {
        self.is_replica(node) && !(self.opening && self.tail() == node)
    }

    /// The members, but for one node.
    pub(super) fn other_members(&self, node: u8) -> impl Iterator<Item = u8> {
        self.replicas().iter().copied().filter(move |at| *at != node && self.is_member(*at))
    }
}
