//! What must hold in every state.

use super::config::Config;
use super::state::State;
use super::step::Step;
use super::stored::Version;
use crate::config::Kind;
use crate::linearizability::is_linearizable;
use crate::properties::Broken;
use crate::state::{CLIENTS_MAX, OPERATIONS_MAX, Outcome, operation_at, operation_index, value_of};

impl Step<'_> {
    /// An answer rests on the version with this number.
    pub(super) fn told(&mut self, seq: u8) {
        self.state.told = self.state.told.max(seq);
    }

    /// A write ran under this number.
    pub(super) fn executed(&mut self, client: u8, request: u8, seq: u8) {
        let operation = &mut self.state.history[operation_index(client, request)];
        if operation.executed == 0 {
            operation.executed = seq;
        } else if operation.executed != seq {
            self.breaks(Broken::ExecutedTwice);
        }
    }

    /// A tail shows this version, so it has run. (One that died with its head never has.)
    pub(super) fn shown(&mut self, version: Version) {
        if version.value != 0 {
            let (client, request) = operation_at(usize::from(version.value) - 1);
            self.executed(client, request, version.seq);
        }
    }

    /// An operation has ended.
    pub(super) fn check_history(&mut self, outcome: Outcome) {
        let says_something = matches!(outcome, Outcome::Done | Outcome::Failed);
        if says_something && !self.config.explains(&self.state) {
            self.breaks(Broken::NotLinearizable);
        }
    }

    /// After every step.
    pub(super) fn check_state(&mut self) {
        if self.config.only_seen {
            return;
        }
        if self.state.a_member_lacks_told() {
            self.breaks(Broken::MemberLacks);
        }
        if self.state.a_replica_is_ahead() {
            self.breaks(Broken::ReplicaAhead);
        }
        if self.state.replicas_differ(self.config) {
            self.breaks(Broken::ReplicasDiffer);
        }
    }
}

impl State {
    /// Whether a member lacks a version that an answer rests on, or that the cache has answered and
    /// no longer has. All members but one may be lost.
    fn a_member_lacks_told(&self) -> bool {
        let view = self.directory();
        let mut replicas = view.replicas().iter().copied();
        replicas.any(|node| view.is_member(node) && self.reached(node) < self.told)
    }

    /// Whether a node has a newer version than the one before it, which is in the same view.
    fn a_replica_is_ahead(&self) -> bool {
        let nodes = (0..self.nodes.len() as u8).filter(|node| self.node(*node).view != 0);
        nodes.into_iter().any(|node| {
            let view = self.node(node).view;
            let Some(next) = self.view(view).next(node) else { return false };
            let next = self.node(next);
            next.view == view && next.stored.version.seq > self.reached(node)
        })
    }

    /// Whether replicas have different versions, though nothing is under way between them, and
    /// nothing is unconfirmed: they would differ for ever.
    fn replicas_differ(&self, config: &Config) -> bool {
        let view = self.directory();
        let (head, tail) = (view.head(), view.tail());
        let is_at_rest = |node: &u8| {
            let at = self.node(*node);
            at.is_up && at.view == self.newest() && (*node == tail || !at.unconfirmed)
        };
        let replicas = view.replicas();
        let is_between = |from: u8, to: u8| view.is_replica(from) && view.is_replica(to);
        if !self.is_settled()
            || !replicas.iter().all(is_at_rest)
            || self.frames.iter().any(|frame| is_between(frame.from, frame.to))
        {
            return false;
        }
        let shown = |node: u8| {
            let version = self.node(node).stored.version;
            if config.is_absent(version.value) { Version::default() } else { version }
        };
        replicas.iter().any(|node| shown(*node) != shown(head))
    }
}

impl Config {
    /// Whether an order of the operations explains what clients were told. Those whose outcome
    /// isn't known may have run, or not.
    fn explains(&self, state: &State) -> bool {
        let mut must = 0;
        let mut before = [None; CLIENTS_MAX * OPERATIONS_MAX];
        for (at, operation) in state.history.iter().enumerate() {
            let has_outcome = matches!(operation.outcome, Outcome::Done | Outcome::Failed);
            must |= u16::from(has_outcome) << at;
            before[at] = (operation.outcome != Outcome::None).then_some(operation.before);
        }
        is_linearizable(&before, must, 0, |at, value| self.effect(state, at, value))
    }

    /// The register's value after the operation; `None` if it can't have run now. A condition that
    /// expects a tombstone may fail because that was dropped.
    fn effect(&self, state: &State, at: usize, value: u8) -> Option<u8> {
        let operation = &state.history[at];
        let (client, request) = operation_at(at);
        let written = value_of(client, request);
        let expected = operation.value;
        let both_absent = self.is_absent(expected) && self.is_absent(value);
        let is_expected = expected == value || both_absent;
        match (self.kind(client, request), operation.outcome) {
            (Kind::Read, Outcome::Done) => is_expected.then_some(value),
            (Kind::Read, _) => None,
            (Kind::Conditional, Outcome::Failed) => {
                (expected != value || self.is_tombstone(expected)).then_some(value)
            }
            (Kind::Conditional, _) => is_expected.then_some(written),
            _ => Some(written),
        }
    }
}
