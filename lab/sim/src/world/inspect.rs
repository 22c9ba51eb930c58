//! What is looked at now and then: bounds, phases, what is stored.

use super::World;
use crate::check::{Check, Violation};
use crate::event::Event;
use switchback_assembly::Part;
use switchback_core::storage::Record;
use switchback_core::topology::ChainId;
use switchback_engine::MemoryEngine;
use switchback_wire::{KeyHash, Op, Packet, Seq, Status};

/// Virtual time between two looks.
const EVERY_US: u64 = 2_000;
/// Keys whose replicas are compared then.
const COMPARED: u32 = 16;

impl World {
    pub(super) fn inspect(&mut self) {
        self.queue.push(self.now_us + EVERY_US, Event::Inspect);
        self.check_bounds();
        self.check_order();
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
            let heads = if self.plan.topology.replicas > 1 { self.nodes.len() } else { 1 };
            bound("offered keys of a node", node.offered(), 2 * heads * limits.marks_max);
            bound("frames of a node under way", node.frames_under_way(), 1 << 15);
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
        bound("messages between nodes", self.links.under_way(), 1 << 18);
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

    /// Whether a key's node has this version, or a newer one; of several replicas, whether all do.
    pub(super) fn is_at_node(&self, hash: &KeyHash, seq: Seq) -> bool {
        self.members_of(hash).all(|node| self.reached(node, hash) >= seq)
    }

    /// The replicas of a key that have all that was answered: not the one that hasn't opened, nor
    /// one that has lost its disk.
    fn members_of(&self, hash: &KeyHash) -> impl Iterator<Item = u16> {
        let it = self.map.of(*hash);
        let is_member = |node: &u16| {
            !self.opening.contains(&(it.number, *node)) && !self.emptied.contains(node)
        };
        it.replicas.iter().copied().filter(is_member)
    }

    /// The version that a node has of a key. A tombstone that was dropped left its floor behind.
    fn reached(&self, node: u16, hash: &KeyHash) -> Seq {
        let engine = &self.nodes[usize::from(node)].engine;
        engine.record(hash).map_or(engine.floors().of(hash), |record| record.seq)
    }

    /// Whether partitions had several replicas at first.
    pub(super) fn rack_is_replicated(&self) -> bool {
        self.plan.topology.replicas > 1
    }

    /// What an answer of a node rests on is at all replicas: all but one may be lost.
    pub(super) fn check_told(&mut self, node: u16, packet: &Packet) {
        if !self.rack_is_replicated() {
            return;
        }
        let Ok(parts) = packet.parse() else { return };
        let header = parts.header;
        let told = match header.op {
            Op::ReadReply => header.seq,
            Op::WriteReply if header.status == Status::Ok => header.seq,
            Op::WriteReply if header.status == Status::ConditionFailed => Seq(header.guard),
            _ => return,
        };
        // A floor is no version.
        if told.counter() == 0 {
            return;
        }
        if !self.is_at_node(&header.key_hash, told) {
            let text = format!(
                "node{node} answers by {told} of {:?}, which one of {:?} lacks",
                header.key_hash,
                self.map.of(header.key_hash).replicas
            );
            self.fail(Violation::general(Check::MembersLackTold, text));
        }
    }

    /// No replica is ahead of the one before it. Looks at some keys at a time.
    fn check_order(&mut self) {
        if !self.rack_is_replicated() {
            return;
        }
        let Some(controller) = &self.controller.controller else { return };
        let hash_key = controller.hash_key();
        let keys = self.workload.keys();
        for _ in 0..COMPARED.min(keys) {
            self.compared = (self.compared + 1) % keys;
            let hash = hash_key.hash(self.workload.key(self.compared));
            let replicas = &self.map.of(hash).replicas;
            if replicas.iter().any(|node| self.emptied.contains(node)) {
                continue;
            }
            let is_ahead = |pair: &&[u16]| {
                let engine = &self.nodes[usize::from(pair[1])].engine;
                let newer = engine.record(&hash).map_or(Seq::NONE, |record| record.seq);
                newer > self.reached(pair[0], &hash)
            };
            if let Some(pair) = replicas.windows(2).find(is_ahead) {
                let text = format!("of {hash:?} node{} is ahead of node{}", pair[1], pair[0]);
                self.fail(Violation::general(Check::ChainOrder, text));
                return;
            }
        }
    }

    /// In the end all replicas have the same record of each key, and none an offer that the head
    /// lacks.
    pub(super) fn check_replicas(&mut self, now_ms: u64) {
        if !self.rack_is_replicated() {
            return;
        }
        let Some(controller) = &self.controller.controller else { return };
        let hash_key = controller.hash_key();
        let mut differing = None;
        for key in 0..self.workload.keys() {
            let hash = hash_key.hash(self.workload.key(key));
            let of = |node: u16| {
                let engine = &self.nodes[usize::from(node)].engine;
                let record = engine.record(&hash).filter(|record| record.is_live(now_ms));
                (record, engine.is_offered(&hash))
            };
            let replicas = &self.map.of(hash).replicas;
            // That an offer was cleared may be lost at the head, where a commit failed.
            let (record, is_offered) = of(replicas[0]);
            let is_other = |node: &&u16| of(**node).0 != record || (of(**node).1 && !is_offered);
            if let Some(other) = replicas.iter().find(is_other) {
                let text = |node: u16| {
                    let (record, is_offered) = of(node);
                    let offered = if is_offered { ", offered" } else { "" };
                    let seq = record.map_or(Seq::NONE, |record| record.seq);
                    let base = record.map_or(Seq::NONE, Record::base);
                    format!("node{node} has {seq} since {base}{offered}")
                };
                let (one, other) = (text(replicas[0]), text(*other));
                differing = Some(format!("of key {key} {one}, {other}"));
            }
        }
        if let Some(text) = differing {
            self.fail(Violation::general(Check::ReplicasDiffer, text));
        }
    }

    /// Whether all partitions have as many replicas as they are to have, or too few nodes live.
    pub(super) fn are_partitions_whole(&self) -> bool {
        let Some(controller) = &self.controller.controller else { return false };
        let living = self.nodes.iter().filter(|slot| slot.is_running()).count();
        let is_possible = living >= usize::from(self.plan.topology.replicas);
        !self.rack_is_replicated() || !is_possible || controller.is_whole()
    }

    /// Whether replicas take what those before them pass on.
    pub(super) fn are_replicas_ready(&self) -> bool {
        let is_needed = |node: u16| self.map.numbers_of(node).contains(&true);
        let flows = |slot: &super::NodeSlot| {
            slot.shim.as_ref().is_some_and(|shim| shim.are_links_flowing())
        };
        let mut nodes = (0..).zip(&self.nodes);
        !self.rack_is_replicated() || nodes.all(|(node, slot)| !is_needed(node) || flows(slot))
    }

    /// Whether no replica waits for another one.
    pub(super) fn are_replicas_quiet(&self) -> bool {
        let is_needed = |node: u16| self.map.numbers_of(node).contains(&true);
        let has_frames = |slot: &super::NodeSlot| {
            slot.shim.as_ref().is_some_and(|shim| shim.frames_under_way() > 0)
        };
        let mut nodes = (0..).zip(&self.nodes);
        !self.rack_is_replicated() || !nodes.any(|(node, slot)| is_needed(node) && has_frames(slot))
    }
}
