//! What must hold in every state.

use crate::config::{Config, Kind};
use crate::linearizability;
use crate::state::{
    CLIENTS_MAX, OPERATIONS_MAX, Outcome, Phase, Seq, State, operation_at, operation_index,
};
use crate::step::Step;
use std::fmt;

/// A property that doesn't hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broken {
    /// No order of the operations explains what clients saw.
    NotLinearizable,
    /// A write was executed under two numbers.
    ExecutedTwice,
    /// A version that was acknowledged, or seen, is at no node, preserved by no client and in no
    /// durable snapshot: a crash of the switch would lose it.
    Lost,
    /// A version that was told isn't at the node, and a switch from which a recovery may have to
    /// take it doesn't have it.
    NotKept,
    /// A client waits, and nothing that may still happen changes anything, though there are
    /// numbers.
    Stuck,
    /// A snapshot lacks a record that was cached at its point, though no report was lost.
    SnapshotIncomplete,
    /// A replica that counts as a member lacks what was answered: it may be the only one that is
    /// left.
    MemberLacks,
    /// A replica has a newer version than the one before it, which decides, or passes decisions on.
    ReplicaAhead,
    /// Replicas have different versions, and nothing will change that.
    ReplicasDiffer,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::NotLinearizable => "not linearizable",
            Broken::ExecutedTwice => "a write was executed twice",
            Broken::Lost => "a version that was acknowledged or seen can be lost",
            Broken::NotKept => "a version that was told isn't at every switch of its chain",
            Broken::Stuck => "a client waits for ever",
            Broken::SnapshotIncomplete => "a snapshot is incomplete",
            Broken::MemberLacks => "a member lacks what was answered",
            Broken::ReplicaAhead => "a replica is ahead of the one before it",
            Broken::ReplicasDiffer => "replicas differ for ever",
        })
    }
}

impl Step<'_> {
    /// A write was executed under this number.
    pub(crate) fn executed(&mut self, client: u8, request: u8, seq: Seq) {
        let operation = &mut self.state.history[operation_index(client, request)];
        if operation.executed == Seq::NONE {
            operation.executed = seq;
        } else if operation.executed != seq {
            self.breaks(Broken::ExecutedTwice);
        }
    }

    /// An operation has ended.
    pub(crate) fn check_history(&mut self, client: u8, request: u8) {
        let outcome = self.state.history[operation_index(client, request)].outcome;
        let says_something = matches!(outcome, Outcome::Done | Outcome::Failed);
        if says_something && !is_linearizable(self.config, &self.state) {
            self.breaks(Broken::NotLinearizable);
        }
    }

    /// What was told before counts no more; what had no outcome may still run.
    pub(crate) fn begin_history_anew(&mut self) {
        self.state.began_with = self.state.node.stored.value;
        self.state.promised = Seq::NONE;
        let mut forgotten = 0;
        for (at, operation) in self.state.history.iter_mut().enumerate() {
            if matches!(operation.outcome, Outcome::Done | Outcome::Failed | Outcome::Void) {
                operation.outcome = Outcome::Void;
                forgotten |= 1 << at;
            }
        }
        for operation in &mut self.state.history {
            operation.before &= !forgotten;
        }
    }

    /// After every step.
    pub(crate) fn check_state(&mut self) {
        let controller = &self.state.controller;
        let node = self.state.node.stored.seq.max(self.state.node.floor);
        if node >= self.state.promised || self.config.only_seen {
            return;
        }
        if (self.config.has_keepers() || controller.witnesses != 0) && !self.is_kept() {
            self.breaks(Broken::NotKept);
        }
        let controller = &self.state.controller;
        if !controller.is_preserved {
            return;
        }
        let preserved = self.state.clients.iter().map(|client| client.preserved.version.seq);
        let counts = controller.durable.epoch >= controller.recovered_epoch;
        let snapshot = if counts { controller.durable.version.seq } else { Seq::NONE };
        if preserved.fold(snapshot, Seq::max) < self.state.promised {
            self.breaks(Broken::Lost);
        }
    }

    /// Whether every switch from which a recovery may have to take it has what was told: all of the
    /// chain, or those of the last recovered chain that can still be asked.
    fn is_kept(&self) -> bool {
        let (state, owner) = (&self.state, self.config.owner());
        let controller = &state.controller;
        let (epoch, members) = match controller.phase {
            Phase::Serving => (controller.epoch, self.config.members()),
            _ => (controller.recovered_epoch, controller.witnesses),
        };
        if members == 0 {
            return true; // no switch is left to be asked
        }
        let chain = state.chain_of(epoch).expect("a chain is kept as long as it counts");
        (0..self.config.layers).filter(|member| members & 1 << member != 0).all(|member| {
            let version = state.version_at(chain, member, owner);
            version.seq >= state.promised
        })
    }
}

/// Whether an order of the operations explains them. Those whose outcome isn't known may have run,
/// or not.
fn is_linearizable(config: &Config, state: &State) -> bool {
    let mut must = 0;
    let mut before = [None; CLIENTS_MAX * OPERATIONS_MAX];
    for (at, operation) in state.history.iter().enumerate() {
        match operation.outcome {
            Outcome::None | Outcome::Void => continue,
            Outcome::Done | Outcome::Failed => must |= 1 << at,
            Outcome::Open | Outcome::Indeterminate => {}
        }
        before[at] = Some(operation.before);
    }
    let history = History { config, state };
    linearizability::is_linearizable(&before, must, state.began_with, |at, value| {
        history.effect(at, value)
    })
}

struct History<'a> {
    config: &'a Config,
    state: &'a State,
}

impl History<'_> {
    /// The register's value after the operation; `None` if it can't have run now.
    fn effect(&self, at: usize, value: u8) -> Option<u8> {
        let operation = &self.state.history[at];
        let (client, request) = operation_at(at);
        let written = crate::state::value_of(client, request);
        let kind = self.config.kind(client, request);
        match (kind, operation.outcome) {
            (Kind::Read, Outcome::Done) => {
                let found = operation.value;
                let absent = self.is_absent(found, operation.found_expired);
                (found == value || absent && self.is_absent(value, self.state.expired))
                    .then_some(value)
            }
            (Kind::Read, _) => None,
            (Kind::Write | Kind::Delete | Kind::Expiring, _) => Some(written),
            (Kind::Conditional, Outcome::Failed) => (operation.value != value).then_some(value),
            (Kind::Conditional, _) => (operation.value == value).then_some(written),
        }
    }

    /// A reader sees no difference between a key that was deleted, or has expired, and one that
    /// never was. Whether a version has expired is decided by the part that answers, when it does;
    /// that moment is no part of the order.
    fn is_absent(&self, value: u8, expired: bool) -> bool {
        value == 0 || self.config.is_tombstone(value) || expired && self.config.expires(value)
    }
}
