//! A node: the production shim, and one server with a queue in front of it. Every operation of the
//! engine takes its time.

use super::switch::switch_of;
use super::{Event, World};
use crate::profile::Profile;
use crate::storage::ModelledStore;
use crate::timeline::{Flight, Link};
use rand::RngExt;
use std::collections::VecDeque;
use switchback_assembly::Part;
use switchback_assembly::Rack;
use switchback_core::Now;
use switchback_core::control::{Command, NodeCommand};
use switchback_core::node::Shim;
use switchback_core::storage::{EngineOp, Loaded, PutCondition};
use switchback_wire::{Op, Packet, Scheme};

/// A capped node whose requests have to wait checks its cap again after this time, the timeout of
/// the rack's node thread.
const LOOKS_AGAIN_NS: u64 = 1_000_000;
/// Depth of a capped node's token bucket, as in the rack's node thread: idle time that it may make
/// up for.
const CATCH_UP_NS: u64 = 5_000_000;

/// A node.
pub(super) struct NodeSlot {
    pub(super) shim: Shim,
    pub(super) store: ModelledStore,
    #[allow(clippy::vec_box)]
    queue: VecDeque<Box<Flight>>,
    waiting: Vec<EngineOp>,
    serving: Vec<EngineOp>,
    is_busy: bool,
    /// When the cap lets the next request begin.
    admits_ns: u64,
    looks_again: bool,
    /// Work other than operations of the engine: what caches are told.
    debt_ns: u64,
    /// How long it was busy.
    pub(super) busy_ns: u64,
}

/// Time of an operation of the engine, in a group with others or alone.
fn cost_ns(profile: &Profile, op: &EngineOp, alone: bool, store: &ModelledStore) -> u64 {
    let [read_alone_ns, write_alone_ns] = profile.node_alone_ns;
    match op {
        EngineOp::Get { key, .. } => {
            let ns = if alone { read_alone_ns } else { profile.node_read_ns };
            Profile::of_bytes(ns, profile.node_read_byte_ns, store.value_bytes(key))
        }
        EngineOp::Scan { .. } => profile.node_read_ns,
        EngineOp::Put { condition, record, .. } => {
            let ns = match condition {
                PutCondition::Newer { .. } if alone => write_alone_ns,
                PutCondition::Newer { .. } => profile.node_write_ns,
                PutCondition::IfSeq(_) => profile.node_conditional_ns,
            };
            Profile::of_bytes(ns, profile.node_write_byte_ns, record.value.len())
        }
        _ => profile.node_mark_ns,
    }
}

impl NodeSlot {
    /// Node `index`, just started.
    pub(super) fn new(rack: &Rack, index: u16, store: ModelledStore, now: Now) -> NodeSlot {
        let address = Part::Node(index).address();
        let boot = u64::from(index) + 1;
        let shim = rack.shim(index, boot, address, Loaded::default(), now);
        NodeSlot {
            shim: shim.expect("an empty store is in order"),
            store,
            queue: VecDeque::new(),
            waiting: Vec::new(),
            serving: Vec::new(),
            is_busy: false,
            admits_ns: 0,
            looks_again: false,
            debt_ns: 0,
            busy_ns: 0,
        }
    }
}

impl NodeSlot {
    /// Whether the cap's token bucket lets another request begin, by the rule of `switchback-rack`.
    fn admits(&mut self, now_ns: u64, cap_ns: u64) -> bool {
        self.admits_ns = self.admits_ns.max(now_ns.saturating_sub(CATCH_UP_NS));
        let admits = self.admits_ns <= now_ns;
        self.admits_ns += if admits { cap_ns } else { 0 };
        admits
    }
}

impl World {
    #[inline]
    pub(super) fn node_receives(&mut self, flight: Box<Flight>) {
        let node = flight.to;
        self.nodes[usize::from(node)].queue.push_back(flight);
        self.serve(node);
    }

    pub(super) fn node_hears(&mut self, node: u16, command: Command<NodeCommand>) {
        let now = self.now();
        self.nodes[usize::from(node)].shim.handle_message(now, command);
        self.pump_node(node);
        self.serve(node);
    }

    pub(super) fn wake_node(&mut self, node: u16) {
        let now = self.now();
        let shim = &mut self.nodes[usize::from(node)].shim;
        if now.is_due(shim.poll_timeout()) {
            shim.handle_timeout(now);
        }
        self.pump_node(node);
        self.serve(node);
    }

    /// Takes the next operations: those that wait in the shim, then a packet's.
    fn serve(&mut self, node: u16) {
        loop {
            let now = self.now();
            let slot = &mut self.nodes[usize::from(node)];
            if slot.is_busy {
                return;
            }
            if slot.waiting.is_empty() {
                let Some(flight) = slot.queue.front() else { return };
                let cap_ns = self.setup.profile.node_cap_ns;
                if cap_ns > 0 && is_request(&flight.packet) && !slot.admits(self.now_ns, cap_ns) {
                    if !std::mem::replace(&mut slot.looks_again, true) {
                        self.timeline.push(self.now_ns + LOOKS_AGAIN_NS, Event::LooksAgain(node));
                    }
                    return;
                }
                let Some(flight) = slot.queue.pop_front() else { return };
                slot.shim.handle_packet(now, flight.from, &flight.packet);
                self.timeline.done(flight);
                self.pump_node(node);
                continue;
            }
            std::mem::swap(&mut slot.waiting, &mut slot.serving);
            let alone = slot.queue.is_empty() && slot.serving.len() == 1;
            let (profile, store) = (&self.setup.profile, &slot.store);
            let work_ns: u64 =
                slot.serving.iter().map(|op| cost_ns(profile, op, alone, store)).sum();
            let spread = self.setup.profile.service_spread;
            let factor = 1.0 + spread * (2.0 * self.random.random::<f64>() - 1.0);
            let takes_ns = (work_ns as f64 * factor) as u64 + std::mem::take(&mut slot.debt_ns);
            slot.is_busy = true;
            slot.busy_ns += takes_ns;
            self.timeline.push(self.now_ns + takes_ns, Event::Served(node));
        }
    }

    /// A capped node looks for requests that it may begin now.
    pub(super) fn look_again(&mut self, node: u16) {
        self.nodes[usize::from(node)].looks_again = false;
        self.serve(node);
    }

    /// A node's engine is done.
    pub(super) fn served(&mut self, node: u16) {
        let now = self.now();
        let slot = &mut self.nodes[usize::from(node)];
        slot.is_busy = false;
        for op in slot.serving.drain(..) {
            let done = slot.store.execute(op);
            slot.shim.handle_done(now, done);
        }
        self.pump_node(node);
        self.serve(node);
    }

    /// Passes on what the shim has to say.
    fn pump_node(&mut self, node: u16) {
        loop {
            let mut flight = self.timeline.buffer();
            let slot = &mut self.nodes[usize::from(node)];
            let Some(to) = slot.shim.poll_packet(&mut flight.packet) else {
                self.timeline.done(flight);
                break;
            };
            if self.setup.scheme.refreshes() {
                slot.debt_ns += told_ns(&self.setup.profile, self.setup.scheme, &flight.packet);
            }
            flight.from = Part::Node(node).address();
            flight.to = switch_of(&to);
            let arrives_ns = self.now_ns + self.link_ns(&flight.packet);
            self.timeline.send(Link::Switch, arrives_ns, flight);
        }
        while let Some(report) = self.nodes[usize::from(node)].shim.poll_message() {
            self.report(Part::Node(node), report);
        }
        let slot = &mut self.nodes[usize::from(node)];
        slot.shim.poll_ops(&mut slot.waiting);
        let due_us = slot.shim.poll_timeout();
        self.arm(Part::Node(node), due_us);
    }
}

/// What a cap counts.
fn is_request(packet: &Packet) -> bool {
    let op = packet.op_and_origin().map(|(op, _)| op);
    matches!(
        op,
        Some(Op::Read | Op::Write | Op::Delete | Op::Fragment | Op::ReadFragment | Op::Scan)
    )
}

/// What it takes to tell a cache something, if the packet does.
fn told_ns(profile: &Profile, scheme: Scheme, packet: &Packet) -> u64 {
    let Ok(parts) = packet.parse() else { return 0 };
    let message_ns = match (parts.header.op, scheme.has_copies()) {
        (Op::Invalidate | Op::CacheUpdate, true) => profile.copy_message_ns,
        (Op::CacheUpdate, false) => profile.cache_update_ns,
        _ => return 0,
    };
    // It sends a value, as an answer to a read does.
    Profile::of_bytes(message_ns, profile.node_read_byte_ns, parts.value.len())
}
