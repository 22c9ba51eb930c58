//! Views: the replicas of a chain's partitions change while it serves, or recovers (rule R9). And
//! joins, of which nodes hear once the views are told (rules R10 to R12).
//!
//! A change is durable first. Then the chain's switches route by it, and only then do nodes enter
//! it: until no switch sends anything to a replica that was left out, the others confirm nothing
//! that it lacks. An epoch that begins meanwhile brings the views along.
//!
//! What is told are always the newest views of all partitions whose replicas have ever changed.
//! Who hears of them takes those that are newer than what it knows, so their order doesn't matter.

use super::commands::Order;
use super::{Chain, Context, Phase};
use crate::control::{NodeCommand, NodeStanding, Peer, SwitchCommand};
use std::collections::{BTreeMap, BTreeSet};

/// How far the newest views have come.
#[derive(Debug, Default)]
pub(super) struct Views {
    step: Step,
    /// Nodes that store nothing of the chain any more, and were told so.
    told: BTreeSet<u16>,
    /// The list of joins that each node was told last, and the newest of them.
    joins_told: BTreeMap<u16, u32>,
    joins_version: u32,
    /// A node may not have been told the newest list.
    joins_due: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    /// All who need to be told have been, or are being told.
    #[default]
    Told,
    /// They become durable with this store.
    Storing(u64),
    /// Switches are being told.
    Routing,
}

impl Views {
    /// An epoch begins: its configurations have the newest views.
    pub(super) fn are_brought_by_epoch(&mut self) {
        *self = Views::default();
    }
}

impl Chain {
    /// A node was taken out of partitions of the chain.
    pub(in crate::controller) fn lost_node(&mut self, cx: &mut Context<'_>, node: u16) {
        let holders = cx.directory.holders(self.id);
        let store = cx.directory.last_store();
        self.withdraw_views();
        self.views.told.clear();
        self.views.joins_told.remove(&node);
        self.views.joins_due = true;
        if !holders.contains(&node) {
            self.commands.withdraw_from(Peer::Node(node));
        }
        self.commands.repeat_to(cx.now, Peer::Node(node));
        self.begin_without_others(cx);
        if let Phase::Recovering(recovery) = &mut self.phase
            && recovery.is_left_to(holders, store)
        {
            self.views.are_brought_by_epoch();
            return;
        }
        self.views.step = Step::Storing(store);
    }

    /// Replicas of the chain's partitions have changed, while it serves: a node that joined stands
    /// last in a view.
    pub(in crate::controller) fn views_changed(&mut self, cx: &Context<'_>) {
        self.withdraw_views();
        self.views.told.clear();
        self.views.step = Step::Storing(cx.directory.last_store());
    }

    /// Whether it serves, and all who need to be told of the newest views have been, or are being
    /// told.
    pub(in crate::controller) fn may_change_views(&self) -> bool {
        self.is_serving() && self.views.step == Step::Told
    }

    /// Tells nodes which joins there are, once that is durable, and the views are told.
    pub(super) fn joins_on(&mut self, cx: &Context<'_>) {
        let (version, store) = cx.directory.joins_version();
        let is_known = self.views.joins_version == version && !self.views.joins_due;
        if version == 0 || is_known || !self.may_change_views() || !cx.outbox.is_stored(store) {
            return;
        }
        if self.views.joins_version != version {
            self.commands.withdraw(|order| matches!(order, Order::Node(NodeCommand::Joins { .. })));
            self.views.joins_version = version;
        }
        self.views.joins_due = false;
        let joins = cx.directory.joins(self.id);
        for node in 0..cx.members.nodes() {
            let is_told = self.views.joins_told.get(&node) == Some(&version);
            let is_there = cx.members.is_node_living(cx.now, node)
                && cx.members.standing(node, self.id).epoch == cx.directory.epoch(self.id);
            if !is_told && is_there {
                self.views.joins_told.insert(node, version);
                let joins = joins.clone();
                self.command_node(cx, node, NodeCommand::Joins { version, joins });
            }
        }
    }

    /// A node said hello: it may not have been told the newest list of joins.
    pub(super) fn joins_lag(&mut self, cx: &Context<'_>, node: u16, restarted: bool) {
        if restarted {
            self.views.joins_told.remove(&node);
        }
        let (version, _) = cx.directory.joins_version();
        self.views.joins_due |= self.views.joins_told.get(&node) != Some(&version);
    }

    /// The switches serve on after a restart of the controller, which may have told nothing of the
    /// newest views.
    pub(super) fn tell_views_again(&mut self, cx: &Context<'_>) {
        if !cx.directory.views(self.id).is_empty() {
            self.views.step = Step::Storing(cx.directory.last_store());
        }
    }

    fn withdraw_views(&mut self) {
        self.commands.withdraw(|order| {
            matches!(
                order,
                Order::Switch(SwitchCommand::Views(_)) | Order::Node(NodeCommand::Views(_))
            )
        });
    }

    /// Tells the switches, once the views are durable.
    pub(super) fn views_on(&mut self, cx: &Context<'_>) {
        let Step::Storing(store) = self.views.step else { return };
        // Which switches serve next isn't known while the chain waits.
        if !cx.outbox.is_stored(store) || matches!(self.phase, Phase::Waiting { .. }) {
            return;
        }
        self.views.step = Step::Routing;
        self.command_members(cx, SwitchCommand::Views(cx.directory.views(self.id)));
    }

    /// All switches route by the views that they were told.
    pub(super) fn views_routed(&mut self, cx: &Context<'_>) {
        if self.views.step != Step::Routing {
            return;
        }
        self.views.step = Step::Told;
        let joiners = cx.directory.joins(self.id).into_iter().map(|join| join.node);
        let holders = cx.directory.holders(self.id).iter().copied();
        for node in joiners.chain(holders).collect::<BTreeSet<_>>() {
            self.command_node(cx, node, NodeCommand::Views(cx.directory.views(self.id)));
        }
    }

    /// A node that stores nothing of the chain said hello. If it did once, it is told so: it has
    /// nothing to do with those that do any more.
    pub(super) fn stranger_said_hello(&mut self, cx: &Context<'_>, node: u16, restarted: bool) {
        let NodeStanding { epoch, held, .. } = cx.members.standing(node, self.id);
        // One that has lost what it had says 0, and holds its keys.
        let was_told = epoch > 0 || held;
        if restarted {
            self.views.told.remove(&node);
        }
        let is_told = self.views.step != Step::Told || self.views.told.contains(&node);
        if !was_told || is_told || !self.is_serving() {
            return;
        }
        self.views.told.insert(node);
        if epoch == cx.directory.epoch(self.id) {
            self.command_node(cx, node, NodeCommand::Views(cx.directory.views(self.id)));
        } else {
            self.send_epoch(cx, node);
        }
    }
}
