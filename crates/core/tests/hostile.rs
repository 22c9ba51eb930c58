//! What nodes, clients and the controller make of packets and messages that no part of ours would send: they go on, and what they keep is
//! bounded.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use switchback_core::Now;
use switchback_core::client::{ClientConfig, Session};
use switchback_core::control::{ClientNotice, Command, Destination, Grant, NodeCommand, NodeConfig};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{EngineDone, EngineOp, EngineReply, Loaded, Record};
use switchback_wire::{
    Address, HashKey, Header, KEY_BYTES_MAX, KeyHash, Op, Packet, Seq, Status, VALUE_BYTES_MAX, flags, fragment_bytes,
};

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };
const SWITCH: Address = Address::in_memory(2, 0);
const HASH_KEY: HashKey = HashKey([1; 16]);
const EPOCH: u32 = 1;

/// A node that serves epoch 1 over a storage that keeps everything it is given.
struct Node {
    shim: Shim,
    records: BTreeMap<KeyHash, Record>,
}

impl Node {
    fn new(limits: NodeLimits) -> Node {
        let address = Address::in_memory(3, 0);
        let shim = Shim::new(0, 1, address, limits, Mechanisms::ALL, Loaded::default(), NOW).unwrap();
        let mut node = Node { shim, records: BTreeMap::new() };
        let config = NodeConfig {
            hash_key: HASH_KEY,
            routes: vec![vec![0]],
            switch: Some(SWITCH),
            lanes: 16,
            write_through: false,
        };
        for (id, body) in [(1, NodeCommand::Epoch(config)), (2, NodeCommand::Release { floor: Seq::NONE })] {
            node.shim.handle_command(NOW, Command { id, epoch: EPOCH, body });
            node.carry_out();
        }
        node
    }

    fn carry_out(&mut self) {
        let mut ops = Vec::new();
        while self.shim.has_ops() {
            self.shim.take_ops(&mut ops);
            for op in ops.drain(..) {
                let (id, reply) = match op {
                    EngineOp::Get { id, hash, .. } => (id, EngineReply::Got(self.records.get(&hash).cloned())),
                    EngineOp::Put { id, hash, record, .. } => {
                        self.records.insert(hash, record);
                        (id, EngineReply::Put(Ok(())))
                    }
                    EngineOp::SetMark { id, .. }
                    | EngineOp::SetState { id, .. }
                    | EngineOp::SetFloor { id, .. }
                    | EngineOp::RaiseFloors { id, .. } => (id, EngineReply::Set),
                    EngineOp::Scan { id, .. } => (id, EngineReply::Scanned(Vec::new(), None)),
                };
                self.shim.handle_done(NOW, EngineDone { id, result: Ok(reply) });
            }
        }
    }

    /// What it answers to this packet.
    fn asked(&mut self, header: Header, value: &[u8], key: &[u8]) -> Vec<Packet> {
        let header = Header { epoch: EPOCH, key_hash: HASH_KEY.hash(key), ..header };
        self.shim.handle_packet(NOW, SWITCH, &Packet::build(header, value, key));
        self.carry_out();
        let mut packet = Packet::new();
        std::iter::from_fn(|| self.shim.poll_packet(&mut packet).map(|_| packet.clone())).collect()
    }

    /// Fragment `index` of a value of `total` bytes, each of which is `fill`.
    fn staged(&mut self, index: u16, total: usize, fill: u8, key: &[u8]) -> Vec<Packet> {
        let part = fragment_bytes(key.len());
        let bytes = part.min(total - usize::from(index) * part);
        let header =
            Header { request: 1, total_bytes: total as u32, fragment_index: index, ..Header::new(Op::Fragment) };
        self.asked(header, &vec![fill; bytes], key)
    }

    /// What the write that commits a staged value is answered.
    fn committed(&mut self, total: usize, key: &[u8]) -> Status {
        let (flags, total_bytes) = (flags::LARGE, total as u32);
        let header = Header { request: 1, flags, total_bytes, seq: Seq::new(EPOCH, 1), ..Header::new(Op::Write) };
        let answers = self.asked(header, &[], key);
        answers[0].parse().unwrap().header.status
    }
}

/// The bits of a FRAGMENT_REPLY that are set.
fn arrived(answers: &[Packet]) -> u32 {
    let parts = answers[0].parse().unwrap();
    assert_eq!(parts.header.op, Op::FragmentReply);
    parts.value.iter().map(|byte| byte.count_ones()).sum()
}

#[test]
fn fragments_of_one_request_with_keys_of_other_lengths_are_other_values() {
    const TOTAL: usize = 4_000;
    let (short, long) = (&b"key"[..], &[b'k'; KEY_BYTES_MAX][..]);
    let mut node = Node::new(NodeLimits::default());
    // More and smaller fragments than the value with the short key has, of the same lane, request and total.
    assert_eq!(arrived(&node.staged(0, TOTAL, 1, short)), 1);
    assert_eq!(arrived(&node.staged(0, TOTAL, 2, long)), 1);
    assert_eq!(arrived(&node.staged(12, TOTAL, 2, long)), 2);
    for index in 1..4 {
        node.staged(index, TOTAL, 1, short);
    }
    assert_eq!(node.committed(TOTAL, short), Status::Ok);
    assert_eq!(node.records[&HASH_KEY.hash(short)].value, vec![1; TOTAL]);
}

#[test]
fn a_value_is_committed_under_the_key_that_it_was_staged_with() {
    const TOTAL: usize = 1_100;
    let mut node = Node::new(NodeLimits::default());
    node.staged(0, TOTAL, 1, b"one");
    assert_eq!(node.committed(TOTAL, b"two"), Status::FragmentsMissing);
    assert_eq!(node.committed(TOTAL, b"one"), Status::Ok);
    assert_eq!(node.records[&HASH_KEY.hash(b"one")].value, vec![1; TOTAL]);
}

#[test]
fn what_is_staged_stays_within_its_memory() {
    const TOTAL: usize = 1_100;
    let limits = NodeLimits { staged_bytes_max: VALUE_BYTES_MAX, ..NodeLimits::default() };
    let mut node = Node::new(limits);
    let lanes = VALUE_BYTES_MAX / TOTAL;
    let fragment =
        |lane: usize| Header { lane: lane as u32, request: 1, total_bytes: TOTAL as u32, ..Header::new(Op::Fragment) };
    for lane in 0..lanes {
        assert_eq!(arrived(&node.asked(fragment(lane), &[1; TOTAL], b"key")), 1);
    }
    let commit = |lane: usize| {
        let seq = Seq::new(EPOCH, 1 + lane as u64);
        Header { op: Op::Write, flags: flags::LARGE, seq, ..fragment(lane) }
    };
    let mut status = |lane| node.asked(commit(lane), &[], b"key")[0].parse().unwrap().header.status;
    assert_eq!(status(0), Status::FragmentsMissing, "the first one made room");
    assert_eq!(status(lanes - 1), Status::Ok, "the last one is there");
}

#[test]
fn a_value_that_is_not_large_is_not_staged() {
    let mut node = Node::new(NodeLimits::default());
    let header = Header { request: 1, total_bytes: 1, ..Header::new(Op::Fragment) };
    assert!(node.asked(header, &[1], b"key").is_empty());
    assert_eq!(node.shim.statistics().dropped_malformed, 1);
}

fn grant(lanes: u32) -> ClientNotice {
    ClientNotice::Granted(Grant {
        boot: 7,
        hello_us: NOW.monotonic_us,
        lease_us: 1_000_000,
        epoch: EPOCH,
        destination: Destination::Switch(SWITCH),
        hash_key: HASH_KEY,
        partitions: 4,
        lane_first: 0,
        lanes,
        request_base: 0,
        durable_generation: 0,
        recovered_epoch: 0,
    })
}

#[test]
fn a_session_takes_no_more_lanes_than_it_asked_for() {
    let mut session = Session::new(ClientConfig { lanes: 4, ..ClientConfig::default() }, 7, 1, NOW);
    session.handle_message(NOW, grant(1 << 24));
    assert!(!session.is_open(NOW));
    session.handle_message(NOW, grant(4));
    assert!(session.is_open(NOW));
}
