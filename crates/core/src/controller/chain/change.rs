//! Planned changes: another epoch while every switch lives. With the same switches, long before the
//! sequence numbers of this one run out (rule 17); or with others, since an operator takes a switch
//! out, or a layer that was left out has one again (rule 27).
//!
//! A new epoch wipes the switches. So that this loses nothing, even of clients that died long ago,
//! the cache is drained first; so that no write's outcome is unknown, clients then end the writes
//! that are under way, and hold back new ones until the epoch has changed. Afterwards the nodes are
//! asked to offer the same keys again.

use super::{Chain, Context, Phase};
use crate::control::ClientNotice;
use std::collections::BTreeSet;

/// How long a drain may take: a node that doesn't store keeps its keys in the cache.
const DRAIN_US_MAX: u64 = 10_000_000;
/// How long clients may take to end the writes that are under way. One that is silent is not waited
/// for longer.
const QUIET_US_MAX: u64 = 100_000;
/// Pause after a drain that took too long.
const PAUSE_US: u64 = 60_000_000;

/// A planned change's progress.
#[derive(Debug, Default)]
pub(super) enum Change {
    /// None is under way.
    #[default]
    Idle,
    /// The cache is drained. What is to follow is decided when it is.
    Draining { plan: Plan, until_us: u64 },
    /// These clients have writes under way.
    Quiescing { plan: Plan, until_us: u64, clients: BTreeSet<u64> },
    /// The epoch has changed, or the drain was given up: these keys come back once the rack serves.
    Refilling { keys: Vec<Vec<u8>> },
    /// The drain took too long; the next try comes then.
    Pausing { until_us: u64 },
}

/// What a change began with.
#[derive(Debug)]
pub(super) struct Plan {
    /// The epoch that ends.
    epoch: u32,
    /// A spare that comes before others.
    first: Option<u16>,
    /// What was cached.
    keys: Vec<Vec<u8>>,
}

impl Change {
    /// Whether none is under way.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self, Change::Idle | Change::Pausing { .. })
    }

    /// When it has something to do without a message.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        match self {
            Change::Draining { until_us, .. } | Change::Quiescing { until_us, .. } => {
                Some(*until_us)
            }
            _ => None,
        }
    }
}

impl Chain {
    /// Begins a change, unless one is under way, or was given up lately: a switch that serves needs
    /// other numbers, or an operator wants others to serve. A spare that is `first` comes before
    /// others. Whether it has begun.
    pub(in crate::controller) fn change(
        &mut self,
        cx: &mut Context<'_>,
        first: Option<u16>,
    ) -> bool {
        let may_begin = match &self.change {
            Change::Idle => true,
            Change::Pausing { until_us } => cx.now.monotonic_us >= *until_us,
            _ => false,
        };
        let is_last = !cx.directory.has_next_epoch(cx.config.scheme.has_copies());
        if !may_begin || is_last || !matches!(self.phase, Phase::Serving) {
            return false;
        }
        let keys = self.cache.iter().map(|cached| cached.entry.key.clone()).collect();
        let plan = Plan { epoch: cx.directory.epoch(self.id), first, keys };
        self.change = Change::Draining { plan, until_us: cx.now.in_us(DRAIN_US_MAX) };
        self.drain(cx);
        true
    }

    /// Takes the next step of a change.
    pub(super) fn change_on(&mut self, cx: &mut Context<'_>) {
        let is_serving = matches!(self.phase, Phase::Serving);
        match std::mem::take(&mut self.change) {
            Change::Draining { plan, .. } | Change::Quiescing { plan, .. }
                if !is_serving || plan.epoch != cx.directory.epoch(self.id) =>
            {
                // The epoch has changed for another reason.
                self.resume();
                self.change = Change::Refilling { keys: plan.keys };
            }
            Change::Draining { plan, .. } if self.is_empty_for_change(cx) => {
                self.quiesce(cx, plan);
            }
            Change::Draining { plan, until_us } if cx.now.monotonic_us >= until_us => {
                self.give_up_change(cx, plan);
            }
            Change::Quiescing { plan, until_us, clients }
                if clients.is_empty() || cx.now.monotonic_us >= until_us =>
            {
                self.hand_over(cx, plan);
            }
            Change::Refilling { keys } if is_serving => self.preload(cx, keys),
            other => {
                self.change = other;
                if is_serving && self.has_drained_member(cx) {
                    self.change(cx, None);
                }
            }
        }
    }

    fn is_empty_for_change(&self, cx: &Context<'_>) -> bool {
        self.is_drained() || !cx.mechanisms.drain_before_change()
    }

    /// Nothing is cached: clients end their writes.
    fn quiesce(&mut self, cx: &mut Context<'_>, plan: Plan) {
        let waits = cx.mechanisms.quiet_before_change();
        // One without a lease accepts no answer, so its writes have ended.
        let living = cx
            .sessions
            .waited_for(self.id)
            .filter(|(_, client)| waits && client.lease_until_us > cx.now.monotonic_us);
        let clients: BTreeSet<_> = living.map(|(client, _)| client).collect();
        for client in &clients {
            let (chain, epoch) = (self.id, plan.epoch);
            cx.notify(*client, ClientNotice::Quiesce { chain, epoch });
        }
        self.change = Change::Quiescing { plan, until_us: cx.now.in_us(QUIET_US_MAX), clients };
        self.change_on(cx);
    }

    /// Repeats the notice to a client that says hello while the change waits for it: the notice or
    /// its answer was lost, or the client has moved to this epoch since.
    pub(super) fn quiesce_again(&self, cx: &mut Context<'_>, client: u64, its_epoch: Option<u32>) {
        let Change::Quiescing { plan, clients, .. } = &self.change else { return };
        if clients.contains(&client) && its_epoch == Some(plan.epoch) {
            let (chain, epoch) = (self.id, plan.epoch);
            cx.notify(client, ClientNotice::Quiesce { chain, epoch });
        }
    }

    /// A client has no writes under way.
    pub(in crate::controller) fn client_is_quiet(&mut self, client: u64) {
        if let Change::Quiescing { clients, .. } = &mut self.change {
            clients.remove(&client);
        }
    }

    /// The next epoch begins; every record is at its node.
    fn hand_over(&mut self, cx: &mut Context<'_>, plan: Plan) {
        if !self.is_empty_for_change(cx) {
            // A key was on its way in.
            let until_us = cx.now.in_us(DRAIN_US_MAX);
            self.change = Change::Draining { plan, until_us };
            return;
        }
        self.resume();
        let mut members = self.formed_anew(cx, plan.first);
        if members.is_empty() {
            // The only one that could take its place has gone.
            members = cx.directory.switches(self.id).collect();
        }
        self.change = Change::Refilling { keys: plan.keys };
        self.begin_epoch(cx, &members, true);
    }

    /// A node doesn't store what the cache holds.
    fn give_up_change(&mut self, cx: &mut Context<'_>, plan: Plan) {
        self.resume();
        let members = self.formed_anew(cx, plan.first);
        if members.len() > cx.directory.members(self.id).len() {
            // Better a recovery than a copy less.
            self.change = Change::Refilling { keys: plan.keys };
            self.start_recovery(cx, &members);
        } else {
            self.change = Change::Pausing { until_us: cx.now.in_us(PAUSE_US) };
            self.preload(cx, plan.keys);
        }
    }

    /// Whether one of its switches is to be taken out, and the chain could do without it.
    fn has_drained_member(&self, cx: &Context<'_>) -> bool {
        let mut switches = cx.directory.switches(self.id);
        switches.any(|switch| cx.directory.is_drained(switch))
            && !self.formed_anew(cx, None).is_empty()
    }
}
