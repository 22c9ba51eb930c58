//! A switch with one client, one node, one key: what most tests need.

// Each test uses a part of it; a failed unwrap is a failed test.
#![allow(dead_code, clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use switchback_datapath::*;
use switchback_wire::*;

pub(crate) const EPOCH: u32 = 1;
pub(crate) const CLIENT: Address = Address::in_memory(1, 1);
pub(crate) const NODE: Address = Address::in_memory(2, 0);
pub(crate) const HASH_KEY: HashKey = HashKey([7; 16]);

pub(crate) fn small() -> Config {
    Config {
        classes: vec![
            ClassConfig { value_bytes: 32, slots: 16 },
            ClassConfig { value_bytes: 128, slots: 64 },
        ],
        lanes: 64,
        partitions: 4,
        nodes: 4,
        sketch_width: 1024,
        reports: 64,
        sampling: 1.0,
        ..Config::default()
    }
}

pub(crate) struct Rig {
    pub(crate) datapath: Datapath,
}

/// A sequence number of the rig's epoch.
pub(crate) fn seq(counter: u64) -> Seq {
    Seq::new(EPOCH, counter)
}

pub(crate) fn hash(key: &[u8]) -> KeyHash {
    HASH_KEY.hash(key)
}

pub(crate) fn header(op: Op, key: &[u8]) -> Header {
    Header { epoch: EPOCH, key_hash: hash(key), ..Header::new(op) }
}

/// Ends the other threads, also if this one fails.
pub(crate) struct Stop<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Rig {
    pub(crate) fn new(config: &Config) -> Rig {
        let datapath = Datapath::new(config).unwrap();
        datapath.set_map(&Map::equal(vec![vec![0]; config.partitions as usize])).unwrap();
        datapath.set_node(0, NODE);
        let rig = Rig { datapath };
        rig.control(Header { epoch: EPOCH, generation: 1, ..Header::new(Op::SetEpoch) }, b"-");
        rig
    }

    pub(crate) fn control(&self, header: Header, key: &[u8]) -> Packet {
        let mut packet = Packet::build(header, &[], key);
        let mut verdict = self.datapath.inject(&mut packet);
        // The thread that holds the record may not be running: repeated, as agents do.
        for _ in 0..1000 {
            if verdict != Verdict::Drop(DropReason::Contended) {
                break;
            }
            verdict = self.datapath.inject(&mut packet);
        }
        assert_eq!(verdict, Verdict::Reply, "{:?}", header.op);
        packet
    }

    fn record_control(&self, op: Op, key: &[u8], class: u8, slot: u32, incarnation: u64) -> Packet {
        let location = location(class, slot).unwrap();
        self.control(Header { location, request: incarnation, ..header(op, key) }, key)
    }

    pub(crate) fn admit(&self, key: &[u8], class: u8, slot: u32, incarnation: u64) {
        self.record_control(Op::Admit, key, class, slot, incarnation);
        self.datapath.lookup_insert(&hash(key), class, slot).unwrap();
        self.record_control(Op::SetValid, key, class, slot, incarnation);
    }

    pub(crate) fn evict_begin(&self, key: &[u8], class: u8, slot: u32, incarnation: u64) -> Packet {
        self.record_control(Op::EvictBegin, key, class, slot, incarnation)
    }

    pub(crate) fn remove(&self, key: &[u8], class: u8, slot: u32, incarnation: u64) {
        assert!(self.datapath.lookup_remove(&hash(key), class, slot));
        self.record_control(Op::Remove, key, class, slot, incarnation);
    }

    pub(crate) fn load(&self, class: u8, slot: u32, incarnation: u64) -> Packet {
        self.record_control(Op::LoadRecord, b"-", class, slot, incarnation)
    }

    pub(crate) fn send(&self, header: Header, value: &[u8], key: &[u8]) -> (Verdict, Packet) {
        let mut packet = Packet::build(header, value, key);
        let verdict = self.datapath.process(&mut packet, CLIENT, 1000, 0, Shard::default());
        (verdict, packet)
    }

    pub(crate) fn answer(&self, packet: &mut Packet) -> Verdict {
        self.datapath.process(packet, NODE, 1000, 0, Shard::default())
    }

    pub(crate) fn write(
        &self,
        key: &[u8],
        value: &[u8],
        lane: u32,
        request: u64,
    ) -> (Verdict, Packet) {
        self.send(Header { lane, request, ..header(Op::Write, key) }, value, key)
    }

    pub(crate) fn read(&self, key: &[u8]) -> (Verdict, Packet) {
        self.send(header(Op::Read, key), &[], key)
    }
}
