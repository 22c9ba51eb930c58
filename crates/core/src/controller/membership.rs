//! Which switches and nodes there are, and what was last heard of each.

use super::ControllerConfig;
use super::status::{NodeStatus, SwitchStatus};
use crate::control::NodeStanding;
use crate::time::Now;
use crate::topology::{ByChain, Candidate, ChainId};
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::Address;

/// A node that was silent for this long is taken for dead.
const NODE_SILENT_US: u64 = 1_000_000;
/// A node whose storage has refused operations for this long is of no use to others. It says that
/// for a while after the last refusal, so one alone isn't enough.
const NODE_FAILING_US: u64 = 15_000_000;

/// What a switch said in its last hello.
#[derive(Clone, Debug)]
pub(super) struct SwitchHello {
    /// Drawn anew at every start.
    pub(super) boot: u64,
    /// Where it takes packets.
    pub(super) address: Address,
    /// Its layer, from 1 next to the clients.
    pub(super) layer: u8,
    /// What it fails together with.
    pub(super) domain: String,
    /// Its epoch.
    pub(super) epoch: u32,
    /// Slots of each class: `(value bytes, slots)`.
    pub(super) classes: Vec<(u32, u32)>,
}

/// What a node said in its last hello.
#[derive(Clone, Debug)]
pub(super) struct NodeHello {
    /// Drawn anew at every start.
    pub(super) boot: u64,
    /// Where the switch sends packets.
    pub(super) address: Address,
    /// How it serves the partitions of each chain that it was told of.
    pub(super) chains: ByChain<NodeStanding>,
    /// What its storage has lately refused.
    pub(super) failure: Option<String>,
}

#[derive(Clone, Debug)]
struct Switch {
    hello: SwitchHello,
    heard_us: u64,
    /// It counts as dead when it says nothing until then.
    dead_at_us: u64,
}

impl Switch {
    fn is_alive(&self, now: Now) -> bool {
        now.monotonic_us < self.dead_at_us
    }

    fn candidate(&self, switch: u16) -> Candidate<'_> {
        let SwitchHello { layer, classes, .. } = &self.hello;
        Candidate { switch, layer: *layer, classes }
    }
}

#[derive(Clone, Debug)]
struct Node {
    hello: NodeHello,
    heard_us: u64,
    /// Since when its storage has refused operations.
    failing_since_us: Option<u64>,
    /// It counts as dead when it says nothing until then, since its connection broke.
    lost_at_us: Option<u64>,
    /// Why it did not do what it was told.
    refusal: Option<String>,
}

impl Node {
    fn is_heard(&self, now: Now) -> bool {
        now.monotonic_us.saturating_sub(self.heard_us) < NODE_SILENT_US
    }

    fn standings(&self) -> impl Iterator<Item = &NodeStanding> {
        self.hello.chains.iter().map(|(_, standing)| standing)
    }
}

/// What a node's hello shows beside what it says.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeChange {
    pub(super) restarted: bool,
    pub(super) moved: bool,
}

/// Switches that said hello, and the rack's nodes.
#[derive(Debug)]
pub(super) struct Membership {
    switches: BTreeMap<u16, Switch>,
    nodes: Vec<Node>,
    switch_timeout_us: u64,
    switch_lost_us: u64,
    node_timeout_us: u64,
    /// Silence of nodes counts from then on: before, the controller didn't listen.
    listens_since_us: u64,
}

impl Membership {
    /// The configured nodes; nothing was heard of any.
    pub(super) fn new(now: Now, config: &ControllerConfig) -> Membership {
        let node = |address: &Address| {
            let chains = ByChain::default();
            let hello = NodeHello { boot: 0, address: *address, chains, failure: None };
            let (failing_since_us, lost_at_us, refusal) = Default::default();
            Node { hello, heard_us: 0, failing_since_us, lost_at_us, refusal }
        };
        Membership {
            switches: BTreeMap::new(),
            nodes: config.nodes.iter().map(node).collect(),
            switch_timeout_us: config.switch_timeout_us,
            switch_lost_us: config.switch_lost_us,
            node_timeout_us: config.node_timeout_us,
            listens_since_us: now.monotonic_us,
        }
    }

    /// The controller wasn't called for this long: if it was paused, it may have missed what nodes
    /// said.
    pub(super) fn slept(&mut self, now: Now, slept_us: u64) {
        if slept_us >= self.node_timeout_us / 2 {
            self.listens_since_us = now.monotonic_us;
        }
    }

    /// When a node counts as dead if it says nothing until then.
    pub(super) fn node_dead_at_us(&self, node: u16) -> u64 {
        let Node { heard_us, lost_at_us, .. } = self.nodes[usize::from(node)];
        let silent_at_us = heard_us.max(self.listens_since_us) + self.node_timeout_us;
        lost_at_us.map_or(silent_at_us, |lost_at_us| lost_at_us.min(silent_at_us))
    }

    /// When a node is of no use any more, if its storage goes on failing.
    pub(super) fn node_useless_at_us(&self, node: u16) -> Option<u64> {
        let since_us = self.nodes[usize::from(node)].failing_since_us?;
        Some(since_us + NODE_FAILING_US)
    }

    /// Whether a node's storage has failed for [`NODE_FAILING_US`].
    pub(super) fn is_node_useless(&self, now: Now, node: u16) -> bool {
        self.node_useless_at_us(node).is_some_and(|at_us| now.monotonic_us >= at_us)
    }

    /// Whether a node's storage has lately refused operations.
    pub(super) fn is_node_failing(&self, node: u16) -> bool {
        self.nodes[usize::from(node)].failing_since_us.is_some()
    }

    /// The connection to a node broke: it lives for a shorter while.
    pub(super) fn node_is_lost(&mut self, now: Now, node: u16) {
        let lost_at_us = now.in_us(self.switch_lost_us);
        if let Some(state) = self.nodes.get_mut(usize::from(node)) {
            state.lost_at_us.get_or_insert(lost_at_us);
        }
    }

    /// Whether a node has said lately that it lives, and with what it had: what goes on without
    /// another node may rely on it.
    pub(super) fn is_node_sound(&self, now: Now, node: u16, chain: ChainId) -> bool {
        self.is_node_living(now, node) && self.standing(node, chain).epoch > 0
    }

    /// Whether a node has said lately that it lives, and its connection holds.
    pub(super) fn is_node_living(&self, now: Now, node: u16) -> bool {
        let Node { hello, heard_us, lost_at_us, .. } = &self.nodes[usize::from(node)];
        let is_heard = now.monotonic_us < heard_us + self.node_timeout_us / 2;
        hello.boot != 0 && is_heard && lost_at_us.is_none()
    }

    /// Whether a node counts as dead.
    pub(super) fn is_node_dead(&self, now: Now, node: u16) -> bool {
        now.monotonic_us >= self.node_dead_at_us(node)
    }

    /// A switch said hello: it lives for a while.
    pub(super) fn switch_said_hello(&mut self, now: Now, switch: u16, hello: SwitchHello) {
        let dead_at_us = now.in_us(self.switch_timeout_us);
        self.switches.insert(switch, Switch { hello, heard_us: now.monotonic_us, dead_at_us });
    }

    /// The connection to a switch broke: it lives for a shorter while.
    pub(super) fn switch_is_lost(&mut self, now: Now, switch: u16) {
        if let Some(state) = self.switches.get_mut(&switch) {
            state.dead_at_us = state.dead_at_us.min(now.in_us(self.switch_lost_us));
        }
    }

    /// The last hello of a switch.
    pub(super) fn switch(&self, switch: u16) -> Option<&SwitchHello> {
        self.switches.get(&switch).map(|state| &state.hello)
    }

    /// Whether a switch has said hello lately.
    pub(super) fn is_switch_alive(&self, now: Now, switch: u16) -> bool {
        self.switches.get(&switch).is_some_and(|state| state.is_alive(now))
    }

    /// In how many failure domains these switches are, as far as they have been heard of.
    pub(super) fn domains(&self, switches: impl Iterator<Item = u16>) -> usize {
        let hellos = switches.filter_map(|switch| self.switch(switch));
        hellos.map(|hello| &hello.domain).collect::<BTreeSet<_>>().len()
    }

    /// When a switch last said hello.
    pub(super) fn switch_heard_us(&self, switch: u16) -> Option<u64> {
        self.switches.get(&switch).map(|state| state.heard_us)
    }

    /// When a switch counts as dead if it says nothing until then.
    pub(super) fn switch_dead_at_us(&self, switch: u16) -> Option<u64> {
        self.switches.get(&switch).map(|state| state.dead_at_us)
    }

    /// The switches that live, of those that `may` serve; `first` before all others.
    pub(super) fn candidates(
        &self,
        now: Now,
        first: Option<u16>,
        may: impl Fn(u16) -> bool,
    ) -> Vec<Candidate<'_>> {
        let living = self.switches.iter().filter(|(id, state)| state.is_alive(now) && may(**id));
        let mut candidates: Vec<_> = living.map(|(id, state)| state.candidate(*id)).collect();
        candidates.sort_by_key(|candidate| Some(candidate.switch) != first);
        candidates
    }

    /// How many nodes there are. They are numbered from 0.
    pub(super) fn nodes(&self) -> u16 {
        self.nodes.len() as u16
    }

    /// Address of each node.
    pub(super) fn node_addresses(&self) -> Vec<Address> {
        self.nodes.iter().map(|node| node.hello.address).collect()
    }

    /// How a node serves the partitions of a chain, by its last hello.
    pub(super) fn standing(&self, node: u16, chain: ChainId) -> NodeStanding {
        self.node(node).chains.get(chain).copied().unwrap_or_default()
    }

    /// A node's last hello.
    pub(super) fn node(&self, node: u16) -> &NodeHello {
        &self.nodes[usize::from(node)].hello
    }

    /// Whether a node has lately said hello.
    pub(super) fn is_node_heard(&self, now: Now, node: u16) -> bool {
        self.nodes[usize::from(node)].is_heard(now)
    }

    /// A node said hello.
    pub(super) fn node_said_hello(&mut self, now: Now, node: u16, hello: NodeHello) -> NodeChange {
        let state = &mut self.nodes[usize::from(node)];
        let restarted = state.hello.boot != hello.boot;
        let moved = state.hello.address != hello.address;
        match hello.failure {
            Some(_) => _ = state.failing_since_us.get_or_insert(now.monotonic_us),
            None => state.failing_since_us = None,
        }
        (state.hello, state.heard_us, state.lost_at_us) = (hello, now.monotonic_us, None);
        NodeChange { restarted, moved }
    }

    /// A node answered a command: it did what it was told, or refused because of this.
    pub(super) fn node_answered(&mut self, node: u16, refusal: Option<String>) {
        self.nodes[usize::from(node)].refusal = refusal;
    }

    /// All switches, the chain that each serves, and why a spare can't take a place that is free.
    pub(super) fn switch_statuses(
        &self,
        now: Now,
        chain_of: impl Fn(u16) -> Option<u16>,
        is_drained: impl Fn(u16) -> bool,
        refusal: impl Fn(u16) -> Option<String>,
    ) -> Vec<SwitchStatus> {
        let status = |(index, switch): (&u16, &Switch)| SwitchStatus {
            index: *index,
            layer: switch.hello.layer,
            active: chain_of(*index).is_some(),
            chain: chain_of(*index),
            drained: is_drained(*index),
            alive: switch.is_alive(now),
            epoch: switch.hello.epoch,
            silent_us: now.monotonic_us.saturating_sub(switch.heard_us),
            refusal: refusal(*index),
        };
        self.switches.iter().map(status).collect()
    }

    /// All switches that ever said hello.
    pub(super) fn switch_indices(&self) -> impl Iterator<Item = u16> {
        self.switches.keys().copied()
    }

    /// All nodes, the number of cached keys of each, and the [`loads`](super::Directory::loads).
    pub(super) fn node_statuses(
        &self,
        now: Now,
        cached_keys: impl Fn(u16) -> usize,
        loads: &[(usize, usize, usize)],
    ) -> Vec<NodeStatus> {
        let status = |(index, node): (usize, &Node)| NodeStatus {
            index: index as u16,
            alive: node.hello.boot != 0 && node.is_heard(now),
            epoch: node.standings().map(|standing| standing.epoch).max().unwrap_or(0),
            held: node.standings().any(|standing| standing.held),
            silent_us: now.monotonic_us.saturating_sub(node.heard_us),
            cached_keys: cached_keys(index as u16),
            partitions: loads[index].0,
            joining: loads[index].1,
            error: node.hello.failure.clone().or_else(|| node.refusal.clone()),
        };
        self.nodes.iter().enumerate().map(status).collect()
    }
}
