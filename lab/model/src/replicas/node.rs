//! A node: views, restarts, floors.

use super::state::{Client, Lane, Node, State};
use super::step::Step;
use super::stored::{Stored, Version};
use super::{Config, Mechanism};

impl Step<'_> {
    /// A node enters a view. As its tail it answers at once if it had everything that was answered
    /// in its own view before; else once it is told that it has. A joiner begins empty.
    pub(super) fn enter_view(&mut self, node: u8, number: u8) {
        let was_member = self.was_member(node);
        let view = self.state.view(number);
        let opens_at_once = was_member || !self.has(Mechanism::OpenAfterFlush);
        let begins_empty = self.has(Mechanism::JoinEmpty);
        let at = self.state.node_mut(node);
        (at.view, at.held) = (number, false);
        if view.joiner == Some(node) {
            at.open = false;
            if at.join != view.join {
                at.begin_to_join(view.join, begins_empty);
            }
            return;
        }
        at.open = view.tail() == node && opens_at_once;
        at.unconfirmed &= view.next(node).is_some();
        self.resend(node);
    }

    /// Whether a node has everything that was answered, as far as its own view says.
    fn was_member(&self, node: u8) -> bool {
        let Node { view, open, .. } = self.state.node(node);
        let view = self.state.view(view);
        view.is_replica(node) && (view.tail() != node || open)
    }

    /// A node dies. What it sent may still arrive.
    pub(super) fn crash(&mut self, node: u8) {
        self.state.node_mut(node).is_up = false;
        self.state.frames.retain(|frame| frame.to != node);
    }

    /// A node restarts; its links are made anew, also by those that send to it in their own views.
    pub(super) fn restart(&mut self, node: u8) {
        self.state.frames.retain(|frame| frame.from != node && frame.to != node);
        if !self.has(Mechanism::DurableUnconfirmed) {
            self.state.node_mut(node).unconfirmed = false;
        }
        self.resend(node);
        for other in 0..self.config.nodes() as u8 {
            let Node { view, .. } = self.state.node(other);
            if self.state.view(view).next(other) == Some(node) {
                self.resend(other);
            }
        }
    }

    /// The floor rises. What it stands for goes: fences, and the tombstone of a key that isn't
    /// offered.
    pub(super) fn raise_floor(&mut self, node: u8) {
        let Some(due) = self.state.floor_due(node, self.config) else { return };
        let is_tombstone = self.config.is_tombstone(self.state.node(node).stored.version.value);
        let node = self.state.node_mut(node);
        node.floor = due;
        node.stored.fence = 0;
        if is_tombstone && !node.stored.is_offered() {
            (node.stored.version, node.stored.base) = (Version::default(), 0);
        }
    }
}

impl Node {
    fn begin_to_join(&mut self, join: u8, begins_empty: bool) {
        (self.join, self.copied, self.unconfirmed) = (join, false, false);
        if begins_empty {
            (self.stored, self.floor) = (Stored::default(), 0);
        }
    }
}

impl State {
    /// The number up to which a node's floor may rise: no client waits any more for a write up to
    /// there, and all replicas have what it would drop.
    pub(super) fn floor_due(&self, node: u8, config: &Config) -> Option<u8> {
        let Node { view: number, stored, floor, unconfirmed, open, .. } = self.node(node);
        if number == 0 || unconfirmed && config.has(Mechanism::FloorBelowUnconfirmed) {
            return None;
        }
        let view = self.view(number);
        let joins = view.joiner == Some(node) || view.tail() == node && !open;
        if joins && config.has(Mechanism::JoinerKeepsTombstones) {
            return None;
        }
        let is_tombstone = config.is_tombstone(stored.version.value);
        let due = stored.fence.max(if is_tombstone { stored.version.seq } else { 0 });
        let waits = |(client, lane): (&Client, &Lane)| {
            client.waits && lane.request == client.ended + 1 && lane.seq <= due
        };
        let mut lanes = self.clients.iter().zip(&self.switch.lanes);
        (due > floor && !lanes.any(waits)).then_some(due)
    }
}
