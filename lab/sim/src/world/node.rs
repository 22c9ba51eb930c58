//! A node: shim, engine on a modelled disk, group commit.

use super::{Flight, World};
use crate::check::{Check, Violation};
use crate::event::Event;
use switchback_assembly::Part;
use switchback_core::control::{Command, NodeCommand};
use switchback_core::node::{LinkMessage, Shim};
use switchback_core::storage::{EngineDone, EngineOp};
use switchback_engine::{Engine as _, Fault, MemoryEngine, SyncPolicy};

/// Operations that one commit takes at most.
const GROUP_MAX: usize = 256;

/// A group that is being committed.
enum Commit {
    /// Nothing of it has reached the disk.
    Early(Vec<EngineOp>),
    /// All of it has, but the node doesn't know yet.
    Late(Vec<EngineDone>),
}

/// A node and its disk.
pub(super) struct NodeSlot {
    pub(super) shim: Option<Box<Shim>>,
    pub(super) engine: MemoryEngine,
    boot: u32,
    waiting: Vec<EngineOp>,
    commit: Option<Commit>,
}

impl Default for NodeSlot {
    fn default() -> NodeSlot {
        let engine = MemoryEngine::new(SyncPolicy::Always);
        NodeSlot { shim: None, engine, boot: 0, waiting: Vec::new(), commit: None }
    }
}

impl NodeSlot {
    pub(super) fn is_running(&self) -> bool {
        self.shim.is_some()
    }

    /// Whether nothing is under way in it.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.commit.is_none()
    }
}

impl World {
    pub(super) fn start_node(&mut self, node: u16) {
        let now = self.now(Part::Node(node));
        let address = Part::Node(node).address();
        let slot = &mut self.nodes[usize::from(node)];
        slot.boot += 1;
        let loaded = slot.engine.loaded();
        let boot = u64::from(slot.boot) << 8 | u64::from(node);
        match self.rack.shim(node, boot, address, loaded, now) {
            Ok(shim) => slot.shim = Some(Box::new(shim)),
            Err(error) => {
                self.fail(Violation::general(
                    Check::Liveness,
                    format!("node{node} can't start: {error}"),
                ));
                return;
            }
        }
        self.pump_node(node);
    }

    pub(super) fn crash_node(&mut self, node: u16) {
        let slot = &mut self.nodes[usize::from(node)];
        slot.shim = None;
        slot.boot += 1;
        slot.waiting.clear();
        slot.commit = None;
        let survivors = self.random.below(slot.engine.unsynced() as u64 + 1) as usize;
        slot.engine.crash(survivors);
        self.links.break_all(self.now_us, node);
    }

    /// A node that isn't running has a new disk.
    pub(super) fn lose_disk(&mut self, node: u16) {
        let slot = &mut self.nodes[usize::from(node)];
        assert!(slot.shim.is_none(), "its disk is lost with it");
        slot.engine = MemoryEngine::new(SyncPolicy::Always);
    }

    pub(super) fn wake_node(&mut self, node: u16) {
        let now = self.now(Part::Node(node));
        let Some(shim) = &mut self.nodes[usize::from(node)].shim else { return };
        if now.is_due(shim.poll_timeout()) {
            shim.handle_timeout(now);
        }
        self.pump_node(node);
    }

    pub(super) fn node_receives(&mut self, node: u16, flight: Box<Flight>) {
        let now = self.now(Part::Node(node));
        let Some(shim) = &mut self.nodes[usize::from(node)].shim else {
            self.flights.done(flight);
            return;
        };
        shim.handle_packet(now, flight.from, &flight.packet);
        self.flights.done(flight);
        self.pump_node(node);
    }

    pub(super) fn node_hears(&mut self, node: u16, command: Command<NodeCommand>) {
        let now = self.now(Part::Node(node));
        let Some(shim) = &mut self.nodes[usize::from(node)].shim else { return };
        shim.handle_message(now, command);
        self.pump_node(node);
    }

    /// Another node tells something.
    pub(super) fn node_is_told(&mut self, node: u16, from: u16, message: LinkMessage) {
        let now = self.now(Part::Node(node));
        let Some(shim) = &mut self.nodes[usize::from(node)].shim else { return };
        shim.handle_link(now, from, message);
        self.pump_node(node);
    }

    /// Passes on what the shim has to say.
    fn pump_node(&mut self, node: u16) {
        let part = Part::Node(node);
        loop {
            let mut flight = self.flights.buffer();
            let Some(shim) = &mut self.nodes[usize::from(node)].shim else { return };
            match shim.poll_packet(&mut flight.packet) {
                Some(to) => {
                    self.check_told(node, &flight.packet);
                    self.send_packet(part, to, flight);
                }
                None => {
                    self.flights.done(flight);
                    break;
                }
            }
        }
        loop {
            let Some(shim) = &mut self.nodes[usize::from(node)].shim else { return };
            let Some(report) = shim.poll_message() else { break };
            self.report(part, report);
        }
        loop {
            let Some(shim) = &mut self.nodes[usize::from(node)].shim else { return };
            let Some((to, message)) = shim.poll_link() else { break };
            self.send_link(node, to, message);
        }
        let slot = &mut self.nodes[usize::from(node)];
        let Some(shim) = &mut slot.shim else { return };
        shim.poll_ops(&mut slot.waiting);
        let due_us = shim.poll_timeout();
        if slot.commit.is_none() && !slot.waiting.is_empty() {
            self.begin_commit(node);
        }
        self.arm(part, due_us);
    }

    fn begin_commit(&mut self, node: u16) {
        let fails = self.random.chance(self.plan.disks.commit_fails) && !self.is_healed();
        let takes_us = 1 + self.random.exponential(self.plan.disks.commit_us);
        let late = self.random.chance(0.5);
        let slot = &mut self.nodes[usize::from(node)];
        if fails {
            slot.engine.fail_next(Fault::Io);
        }
        let count = slot.waiting.len().min(GROUP_MAX);
        let mut ops: Vec<EngineOp> = slot.waiting.drain(..count).collect();
        slot.commit = Some(if late {
            let mut done = Vec::with_capacity(ops.len());
            slot.engine.execute(&mut ops, &mut done);
            Commit::Late(done)
        } else {
            Commit::Early(ops)
        });
        let boot = slot.boot;
        self.queue.push(self.now_us + takes_us, Event::Committed(node, boot));
    }

    pub(super) fn committed(&mut self, node: u16, boot: u32) {
        let part = Part::Node(node);
        let event = Event::Committed(node, boot);
        if self.is_paused(self.numbers.number(part), event) {
            return;
        }
        if let Some(rules) = &mut self.rules
            && !rules.lets_commit(node, event)
        {
            return;
        }
        let now = self.now(part);
        let slot = &mut self.nodes[usize::from(node)];
        if slot.boot != boot {
            return;
        }
        let done = match slot.commit.take().expect("one commit at a time") {
            Commit::Late(done) => done,
            Commit::Early(mut ops) => {
                let mut done = Vec::with_capacity(ops.len());
                slot.engine.execute(&mut ops, &mut done);
                done
            }
        };
        let Some(shim) = &mut slot.shim else { return };
        for done in done {
            shim.handle_done(now, done);
        }
        self.pump_node(node);
    }
}
