//! The directory: it makes views. Replicas are removed, a node joins, two change places.

use super::Mechanism;
use super::state::{JoinerCopy, Node, State};
use super::step::Step;
use super::view::View;

impl Step<'_> {
    fn change(&mut self, view: View) {
        self.state.views.push(view);
    }

    /// A node is removed, be it dead or not. If it was the source of a node that joins, that begins
    /// anew.
    pub(super) fn remove_node(&mut self, node: u8) {
        let mut view = self.state.directory();
        let was_tail = view.is_replica(node) && view.tail() == node;
        let was_source = view.opening && view.next(node) == Some(view.tail());
        if view.joiner == Some(node) {
            view.joiner = None;
            return self.change(view);
        }
        view.remove(node);
        if was_tail {
            view.opening = false;
        }
        if self.has(Mechanism::JoinOfSource) {
            if was_tail {
                view.joiner = None;
            }
            if was_source {
                view.remove(view.tail());
                view.opening = false;
            }
        }
        self.change(view);
    }

    /// A node begins to join.
    pub(super) fn join(&mut self, node: u8) {
        let mut view = self.state.directory();
        (view.joiner, view.join) = (Some(node), self.state.spent.joins);
        self.state.copy = None;
        self.change(view);
    }

    /// The source makes a copy for the joiner.
    pub(super) fn make_copy(&mut self) {
        let View { joiner, join, .. } = self.state.directory();
        let Node { mut stored, mut floor, .. } = self.state.node(self.state.directory().tail());
        if !self.has(Mechanism::MarksCopied) {
            (stored.mark, stored.mark_floor) = (0, 0);
        }
        if !self.has(Mechanism::CompletionsCopied) {
            stored.completions = Default::default();
        }
        if !self.has(Mechanism::FloorsCopied) {
            floor = 0;
        }
        self.state.copy = joiner.map(|to| JoinerCopy { to, join, stored, floor });
    }

    /// The joiner merges the copy.
    pub(super) fn copy_arrives(&mut self) {
        let JoinerCopy { to, stored, floor, .. } = self.state.copy.take().expect("it is under way");
        let config = self.config;
        let node = self.state.node_mut(to);
        node.stored.merge(&stored, config);
        node.floor = node.floor.max(floor);
        node.copied = true;
    }

    /// The joiner, which has its copy, stands last in the next view.
    pub(super) fn append_joiner(&mut self) {
        let mut view = self.state.directory();
        let joiner = view.joiner.take().expect("a node joins");
        view.append(joiner);
        view.opening = self.has(Mechanism::MemberOnceOpen);
        self.change(view);
    }

    /// The directory hears that the tail has opened: it is a member.
    pub(super) fn hear_opened(&mut self) {
        self.state.views.last_mut().expect("there is a view").opening = false;
    }

    pub(super) fn reorder(&mut self, one: u8, other: u8) {
        let mut view = self.state.directory();
        view.swap(one, other);
        self.change(view);
    }
}

impl State {
    /// Whether a node may be removed: another member stays. (Only one that lives can serve.)
    pub(super) fn may_lose(&self, node: u8) -> bool {
        let view = self.directory();
        view.joiner == Some(node)
            || view.is_replica(node) && view.other_members(node).next().is_some()
    }

    /// The same, and another member lives.
    pub(super) fn may_fail(&self, node: u8) -> bool {
        let view = self.directory();
        self.may_lose(node) && view.other_members(node).any(|other| self.node(other).is_up)
    }

    /// Whether no node is about to join.
    pub(super) fn is_settled(&self) -> bool {
        let view = self.directory();
        view.joiner.is_none() && !view.opening
    }

    /// Whether a node may begin to join.
    pub(super) fn may_join(&self, node: u8) -> bool {
        let view = self.directory();
        self.node(node).is_up && !view.has(node) && self.is_settled() && !view.is_full()
    }

    /// The joiner, if it is in the newest view, and has begun in this join.
    fn joiner(&self) -> Option<Node> {
        let View { joiner, join, .. } = self.directory();
        let node = self.node(joiner?);
        (node.view == self.newest() && node.join == join).then_some(node)
    }

    /// Whether the source may make a copy for the joiner.
    pub(super) fn may_copy(&self) -> bool {
        let source = self.node(self.directory().tail());
        let is_there = source.is_up && source.view == self.newest() && self.copy.is_none();
        is_there && self.joiner().is_some_and(|node| node.is_up && !node.copied)
    }

    /// Whether the copy under way may arrive.
    pub(super) fn may_take_copy(&self) -> bool {
        self.copy.is_some_and(|copy| {
            let node = self.node(copy.to);
            node.is_up && node.join == copy.join
        })
    }

    /// Whether the joiner may become the tail.
    pub(super) fn may_append(&self) -> bool {
        self.joiner().is_some_and(|node| node.copied)
    }

    /// Whether the tail has opened, and the directory hasn't heard of it.
    pub(super) fn has_opened(&self) -> bool {
        let view = self.directory();
        let tail = self.node(view.tail());
        view.opening && tail.open && tail.view == self.newest()
    }

    /// Whether the head holds, so that replicas may change places, and all have the same.
    pub(super) fn may_reorder(&self, needs_flush: bool) -> bool {
        let view = self.directory();
        let head = self.node(view.head());
        let is_equal = |node: &u8| {
            let node = self.node(*node);
            node.is_up && node.view == self.newest() && node.stored == head.stored
        };
        let holds = head.held && head.view == self.newest();
        holds && (view.replicas().iter().all(is_equal) || !needs_flush)
    }

    /// Whether the head may be told to hold.
    pub(super) fn may_hold(&self) -> bool {
        let view = self.directory();
        let head = self.node(view.head());
        let serves = head.is_up && head.view == self.newest() && !head.held;
        serves && self.is_settled() && view.replicas().len() > 1
    }
}
