//! What is looked at now and then: bounds, phases, what is stored.

use super::World;
use crate::check::{Check, Violation};
use crate::event::Event;
use switchback_assembly::Part;
use switchback_core::storage::Record;
use switchback_core::topology::ChainId;
use switchback_engine::MemoryEngine;
use switchback_wire::{KeyHash, Seq};

/// Virtual time between two looks.
const EVERY_US: u64 = 2_000;

impl World {
    pub(super) fn inspect(&mut self) {
        self.queue.push(self.now_us + EVERY_US, Event::Inspect);
        self.check_bounds();
        self.compact_now_and_then();
        self.go_on_with_ending();
    }

    /// Engines compact when they like.
    fn compact_now_and_then(&mut self) {
        if self.random.chance(self.plan.disks.compaction) {
            let node = self.random.below(self.nodes.len() as u64) as usize;
            let unix_ms = self.clocks[usize::from(self.numbers.number(Part::Node(node as u16)))]
                .now(self.now_us)
                .unix_ms;
            let engine = &mut self.nodes[node].engine;
            engine.set_now_ms(unix_ms);
            engine.compact();
        }
    }

    fn check_bounds(&mut self) {
        let limits = &self.rack.limits;
        let mut broken = None;
        let mut bound = |what: &str, is: usize, limit: usize| {
            if is > limit {
                broken = Some(format!("{what}: {is}, of {limit} at most"));
            }
        };
        let records = self.rack.cache.records as usize;
        for node in self.nodes.iter().filter_map(|slot| slot.shim.as_ref()) {
            bound("engine operations of a node", node.operations(), limits.operations_max + 1024);
            // A restart finds those again whose clearing it cut short.
            bound("offered keys of a node", node.offered(), 2 * limits.marks_max);
        }
        for running in self.switches.iter().filter_map(|slot| slot.running.as_ref()) {
            bound("keys cached by a switch", running.agent.cached(), records);
        }
        for session in self.clients.iter().filter_map(|slot| slot.session.as_ref()) {
            bound(
                "operations of a session",
                session.outstanding(),
                self.rack.session_lanes as usize,
            );
            bound(
                "records preserved by a session",
                session.preserved().len(),
                self.plan.load.keys as usize,
            );
        }
        if let Some(controller) = &self.controller.controller {
            let chains = usize::from(self.rack.chains);
            bound("keys cached, as the controller sees it", controller.cached(), chains * records);
            bound("commands of the controller", controller.commands_outstanding(), 4096);
        }
        bound("packets under way", self.flights.len(), 1 << 18);
        bound("events", self.queue.len(), 1 << 19);
        if let Some(text) = broken {
            self.fail(Violation::general(Check::Bounds, text));
        }
    }

    /// The chain that serves a key.
    pub(super) fn chain_of(&self, hash: &KeyHash) -> ChainId {
        ChainId::new(self.map.of(*hash).chain)
    }

    fn engine_of(&self, hash: &KeyHash) -> &MemoryEngine {
        let node = self.map.of(*hash).head();
        &self.nodes[usize::from(node)].engine
    }

    /// What a key's node has stored.
    pub(super) fn stored_record(&self, hash: &KeyHash) -> Option<&Record> {
        self.engine_of(hash).record(hash)
    }

    /// Up to which version a key's node may have dropped its tombstone.
    pub(super) fn stored_floor(&self, hash: &KeyHash) -> Seq {
        self.engine_of(hash).floors().of(hash)
    }

    /// Whether a key's node has this version, or a newer one.
    pub(super) fn is_at_node(&self, hash: &KeyHash, seq: Seq) -> bool {
        // A tombstone that was dropped left its floor behind.
        self.stored_record(hash).map_or(self.stored_floor(hash), |record| record.seq) >= seq
    }
}
