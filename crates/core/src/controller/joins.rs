//! Joins: partitions that lack replicas get others, and a node that has lost what it had begins
//! anew (rules R10 to R12).

use super::Controller;
use crate::control::JoinStep;
use crate::time::Now;
use crate::topology::ChainId;
use std::collections::BTreeSet;

/// Joins of a node at a time, as the joiner and as the source.
const JOINS_MAX: usize = 2;

impl Controller {
    /// Whether all partitions have as many replicas as they are to have, of which all are members.
    pub fn is_whole(&self) -> bool {
        self.directory.is_whole()
    }

    /// The replicas of a partition that have all that was ever answered: any but one of them may be
    /// lost.
    pub fn members_of(&self, partition: u16) -> Vec<u16> {
        self.directory.members_of(partition)
    }

    /// Partitions and the nodes that stand last in their views and haven't opened: they are no
    /// members yet.
    pub fn opening(&self) -> BTreeSet<(u16, u16)> {
        self.directory.opening().collect()
    }

    /// When partitions that lack replicas are looked for.
    pub(super) fn next_repair_us(&self) -> Option<u64> {
        let is_due = !self.copied.is_empty() || self.directory.lacking().next().is_some();
        (is_due && self.directory.is_replicated()).then_some(self.repair_at_us)
    }

    /// Nodes begin to join partitions that lack replicas.
    pub(super) fn repair(&mut self, now: Now) {
        if !self.directory.is_replicated() || now.monotonic_us < self.repair_at_us {
            return;
        }
        self.repair_at_us = now.in_us(self.config.retry_us);
        self.append_copied(now);
        let mut loads = self.directory.loads(self.members.nodes());
        let mut joins = Vec::new();
        for it in self.directory.lacking() {
            let source = usize::from(it.tail());
            let chain = self.chains.iter().find(|chain| chain.id() == ChainId::new(it.chain));
            let may_begin = chain.is_some_and(|chain| chain.may_change_views());
            if !may_begin || loads[source].2 >= JOINS_MAX {
                continue;
            }
            let may_join = |node: &u16| {
                self.members.is_node_living(now, *node)
                    && !self.members.is_node_failing(*node)
                    && !it.replicas.contains(node)
                    && loads[usize::from(*node)].1 < JOINS_MAX
            };
            let nodes = (0..self.members.nodes()).filter(may_join);
            let Some(node) = nodes.min_by_key(|node| loads[usize::from(*node)].0) else { continue };
            joins.push((it.number, node));
            let load = &mut loads[usize::from(node)];
            (load.0, load.1) = (load.0 + 1, load.1 + 1);
            loads[source].2 += 1;
        }
        self.directory.begin_joins(&mut self.outbox, &joins);
    }

    /// Nodes that have their copies stand last in views, all of a chain together.
    fn append_copied(&mut self, now: Now) {
        let counts = !self.mechanisms.member_once_open();
        let copied = std::mem::take(&mut self.copied);
        let (chains, cx) = self.split(now);
        for chain in chains.iter_mut().filter(|chain| chain.may_change_views()) {
            let is_due = |(partition, number): (&u16, &u32)| {
                let join = cx.directory.join(*partition);
                let stands = join.is_some_and(|it| it.number == *number && !it.is_opening);
                let it = cx.directory.map().numbered(*partition);
                (stands && it.chain == chain.id().number()).then_some(*partition)
            };
            let due: Vec<_> = copied.iter().filter_map(is_due).collect();
            if !due.is_empty() {
                cx.directory.append_joiners(cx.outbox, &due, counts);
                chain.views_changed(&cx);
            }
        }
    }

    /// A node has restarted. What it said of its copies is of the life before: it says it again,
    /// unless it has lost them.
    pub(super) fn joiner_restarted(&mut self, node: u16) {
        let directory = &self.directory;
        let is_other =
            |partition: &u16| directory.join(*partition).is_none_or(|it| it.node != node);
        self.copied.retain(|partition, _| is_other(partition));
    }

    /// A node said hello. If it has nothing, although it has stored partitions of a recovered
    /// epoch, it has lost all: others go on without it.
    pub(super) fn lose_empty_node(&mut self, now: Now, node: u16) {
        if !self.directory.is_replicated() || !self.directory.has_others(node) {
            return;
        }
        let mut chains = (0..self.directory.chains()).map(ChainId::new);
        let has_lost = chains.any(|chain| {
            self.directory.recovered_epoch(chain) > 0
                && self.directory.holders(chain).contains(&node)
                && self.members.standing(node, chain).epoch == 0
        });
        if has_lost {
            self.leave_out(now, node);
        }
    }

    /// A join has come further.
    pub(super) fn join_reported(
        &mut self,
        now: Now,
        node: u16,
        epoch: u32,
        (partition, number, step): (u16, u32, JoinStep),
    ) {
        let known = self.directory.join(partition).filter(|join| join.number == number);
        let Some(join) = known else { return };
        let (chains, cx) = self.split(now);
        if chains.of_epoch(cx.directory, epoch).is_none() {
            return;
        }
        let is_joiner = join.node == node;
        match step {
            JoinStep::Copied if is_joiner && !join.is_opening => {
                self.copied.insert(partition, number);
            }
            JoinStep::Opened if is_joiner && join.is_opening => {
                cx.directory.end_join(cx.outbox, partition);
            }
            JoinStep::GivenUp if !is_joiner && !join.is_opening => {
                cx.directory.end_join(cx.outbox, partition);
            }
            _ => {}
        }
    }
}
