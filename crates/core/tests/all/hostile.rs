//! What nodes, clients and the controller make of packets and messages that no part of ours would
//! send: they go on, and what they keep is bounded.

use std::collections::BTreeMap;
use switchback_core::Now;
use switchback_core::client::{ClientConfig, Operation, Outcome, Session, SubmitError};
use switchback_core::control::{
    BATCH_BYTES_MAX, BATCH_MAX, ChainGrant, ClientNotice, Command, Destination, Grant, KeyedRecord,
    NodeCommand, NodeConfig, batch_len,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{EngineDone, EngineOp, EngineReply, Loaded, Record, ScannedKey};
use switchback_core::topology::{ByChain, ChainId, ChainMap};
use switchback_wire::{
    Address, HashKey, Header, KEY_BYTES_MAX, KeyHash, Map, Op, Packet, PacketRef, RoutingKey, Seq,
    Status, VALUE_BYTES_MAX, flags, fragment_bytes, record_flags,
};

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };
const SWITCH: Address = Address::in_memory(2, 0);
const HASH_KEY: HashKey = HashKey([1; 16]);
const EPOCH: u32 = 1;

/// A node that serves epoch 1 over a storage that keeps everything it is given.
struct Node {
    shim: Shim,
    records: BTreeMap<KeyHash, Record>,
    /// How often a record was read.
    gets: usize,
}

impl Node {
    fn new(limits: NodeLimits) -> Node {
        let address = Address::in_memory(3, 0);
        let shim =
            Shim::new(0, 1, address, limits, Mechanisms::ALL, Loaded::default(), NOW).unwrap();
        let mut node = Node { shim, records: BTreeMap::new(), gets: 0 };
        let config = NodeConfig {
            hash_key: HASH_KEY,
            map: Map::equal(vec![vec![0]]),
            switch: Some(SWITCH),
            lanes: 16,
            refresh: switchback_core::control::Refresh::None,
        };
        for (id, body) in
            [(1, NodeCommand::Epoch(config)), (2, NodeCommand::Release { floor: Seq::NONE })]
        {
            node.shim
                .handle_message(NOW, Command { id, chain: ChainId::new(0), epoch: EPOCH, body });
            node.carry_out();
        }
        node
    }

    fn carry_out(&mut self) {
        let mut ops = Vec::new();
        while self.shim.has_ops() {
            self.shim.poll_ops(&mut ops);
            for op in ops.drain(..) {
                let (id, reply) = match op {
                    EngineOp::Get { id, hash, .. } => {
                        self.gets += 1;
                        (id, EngineReply::Got(self.records.get(&hash).cloned()))
                    }
                    EngineOp::Put { id, hash, record, .. } => {
                        let since = record.since;
                        self.records.insert(hash, record);
                        (id, EngineReply::Put(Ok(since)))
                    }
                    EngineOp::SetMark { id, .. }
                    | EngineOp::Merge { id, .. }
                    | EngineOp::Confirm { id, .. }
                    | EngineOp::SetState { id, .. }
                    | EngineOp::SetFloor { id, .. }
                    | EngineOp::RaiseFloors { id, .. }
                    | EngineOp::Empty { id, .. }
                    | EngineOp::Keep { id, .. }
                    | EngineOp::FlushSoon { id }
                    | EngineOp::Checkpoint { id, .. } => (id, EngineReply::Set),
                    EngineOp::Copy { id, .. } => (id, EngineReply::Copied(Vec::new(), None)),
                    EngineOp::Scan { id, .. } => {
                        let found = |(hash, _): (&KeyHash, &Record)| ScannedKey {
                            hash: *hash,
                            key: vec![b'k'; 100],
                            tombstone: false,
                            expiry_ms: 0,
                        };
                        (id, EngineReply::Scanned(self.records.iter().map(found).collect(), None))
                    }
                };
                self.shim.handle_done(NOW, EngineDone { id, result: Ok(reply) });
            }
        }
    }

    /// What it answers to this packet, as a client would route it.
    fn asked(&mut self, header: Header, value: &[u8], key: &[u8]) -> Vec<Packet> {
        let key_hash = HASH_KEY.hash(key);
        self.routed(Header { key_hash, routing: key_hash.routing(), ..header }, value, key)
    }

    /// The same, with the hash and the routing key that the packet has.
    fn routed(&mut self, header: Header, value: &[u8], key: &[u8]) -> Vec<Packet> {
        let header = Header { epoch: EPOCH, ..header };
        self.shim.handle_packet(NOW, SWITCH, &Packet::build(header, value, key));
        self.carry_out();
        let mut packet = Packet::new();
        std::iter::from_fn(|| self.shim.poll_packet(&mut packet).map(|_| packet.clone())).collect()
    }

    /// Fragment `index` of a value of `total` bytes, each of which is `fill`.
    fn staged(&mut self, index: u16, total: usize, fill: u8, key: &[u8]) -> Vec<Packet> {
        let part = fragment_bytes(key.len());
        let bytes = part.min(total - usize::from(index) * part);
        let header = Header {
            request: 1,
            total_bytes: total as u32,
            fragment_index: index,
            ..Header::new(Op::Fragment)
        };
        self.asked(header, &vec![fill; bytes], key)
    }

    /// What the write that commits a staged value is answered.
    fn committed(&mut self, total: usize, key: &[u8]) -> Status {
        let (flags, total_bytes) = (flags::LARGE, total as u32);
        let header = Header {
            request: 1,
            flags,
            total_bytes,
            seq: Seq::new(EPOCH, 1),
            ..Header::new(Op::Write)
        };
        let answers = self.asked(header, &[], key);
        answers[0].parse().unwrap().header.status
    }
}

/// Its partition was found by the routing key, so the node may not be the one that has the key.
#[test]
fn a_packet_that_is_routed_by_another_key_is_dropped() {
    let mut node = Node::new(NodeLimits::default());
    let key_hash = HASH_KEY.hash(b"key");
    let right = key_hash.routing();
    let ops = [Op::Write, Op::Read, Op::Scan, Op::Delete];
    for (routing, answers) in [(RoutingKey(right.0 ^ 1), 0), (right, 1)] {
        for (op, counter) in ops.into_iter().zip(1..) {
            let seq = Seq::new(EPOCH, counter);
            let header = Header { key_hash, routing, seq, ..Header::new(op) };
            let key: &[u8] = if op == Op::Scan { &[0] } else { b"key" };
            assert_eq!(node.routed(header, &[], key).len(), answers, "{op:?} by {routing:?}");
        }
        assert_eq!(node.shim.statistics().dropped_stranger, ops.len() as u64);
    }
}

/// A switch that hasn't heard of a change of the replicas sends it to one of those before.
#[test]
fn a_packet_of_another_view_is_dropped() {
    let mut node = Node::new(NodeLimits::default());
    let ops = [Op::Write, Op::Read, Op::Delete, Op::Scan];
    for (view, answers) in [(1, 0), (0, 1)] {
        for (op, counter) in ops.into_iter().zip(1..) {
            let header = Header { view, seq: Seq::new(EPOCH, counter), ..Header::new(op) };
            let key: &[u8] = if op == Op::Scan { &[0] } else { b"key" };
            assert_eq!(node.asked(header, &[], key).len(), answers, "{op:?} in view {view}");
        }
        assert_eq!(node.shim.statistics().dropped_view, ops.len() as u64);
    }
}

/// Fails if the key that a scan names leaves its answer no room for what it lists.
#[test]
fn a_scan_that_names_a_key_is_refused() {
    let mut node = Node::new(NodeLimits::default());
    for seq in 1..100u64 {
        let header = Header { seq: Seq::new(EPOCH, seq), ..Header::new(Op::Write) };
        assert_eq!(node.asked(header, b"value", &seq.to_be_bytes()).len(), 1);
    }
    let listed = node.asked(Header::new(Op::Scan), &[], &[0]);
    assert!(listed[0].parse().unwrap().value.len() > 1000, "an answer is filled with keys");
    for bytes in [2, 100, KEY_BYTES_MAX] {
        assert_eq!(node.asked(Header::new(Op::Scan), &[], &vec![0; bytes]).len(), 0);
    }
    assert_eq!(node.shim.statistics().dropped_malformed, 3);
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
    // More and smaller fragments than the value with the short key has, of the same lane, request
    // and total.
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
    const TOTAL: usize = 1_200;
    let mut node = Node::new(NodeLimits::default());
    node.staged(0, TOTAL, 1, b"one");
    assert_eq!(node.committed(TOTAL, b"two"), Status::FragmentsMissing);
    assert_eq!(node.committed(TOTAL, b"one"), Status::Ok);
    assert_eq!(node.records[&HASH_KEY.hash(b"one")].value, vec![1; TOTAL]);
}

#[test]
fn what_is_staged_stays_within_its_memory() {
    const TOTAL: usize = 1_200;
    let limits = NodeLimits { staged_bytes_max: VALUE_BYTES_MAX, ..NodeLimits::default() };
    let mut node = Node::new(limits);
    let lanes = VALUE_BYTES_MAX / TOTAL;
    let fragment = |lane: usize| Header {
        lane: lane as u32,
        request: 1,
        total_bytes: TOTAL as u32,
        ..Header::new(Op::Fragment)
    };
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

fn chain_grant() -> ChainGrant {
    ChainGrant {
        epoch: EPOCH,
        destination: Destination::Switch(SWITCH),
        durable_generation: 0,
        recovered_epoch: 0,
        preserves: true,
        gathers: true,
    }
}

fn grant(lanes: u32) -> ClientNotice {
    ClientNotice::Granted(Grant {
        boot: 7,
        hello_us: NOW.monotonic_us,
        lease_us: 1_000_000,
        chains: ByChain::new(1, |_| Some(chain_grant())),
        served: ChainMap::default(),
        hash_key: HASH_KEY,
        lane_first: 0,
        lanes,
        request_base: 0,
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

#[test]
fn a_session_that_snapshots_never_relieve_stops_before_it_preserves_without_limit() {
    const PRESERVE_BYTES_MAX: usize = 10_000;
    let config = ClientConfig {
        lanes: 4,
        preserve_bytes_max: PRESERVE_BYTES_MAX,
        ..ClientConfig::default()
    };
    let mut session = Session::new(config, 7, 1, NOW);
    session.handle_message(NOW, grant(4));
    let (mut packet, mut read) = (Packet::new(), 0u32);
    // Dirty records of other clients, which the cache answers.
    while session.submit(NOW, Operation::Read { key: &read.to_be_bytes() }, 0).is_ok() {
        assert!(read < 1_000, "{} bytes are preserved", session.preserved().bytes());
        read += 1;
        while session.poll_packet(&mut packet).is_some() {
            let parts = packet.parse().unwrap();
            let answer = Header {
                op: Op::ReadReply,
                flags: flags::CACHED,
                record_flags: record_flags::DIRTY,
                seq: Seq::new(EPOCH, read.into()),
                generation: 1,
                ..parts.header
            };
            let answer = Packet::build(answer, &[7; 100], parts.key);
            assert!(session.handle_packet(NOW, &answer).is_some());
        }
    }
    assert_eq!(
        session.submit(NOW, Operation::Read { key: b"one more" }, 0),
        Err(SubmitError::Backpressure)
    );
    assert_eq!(
        session.submit(NOW, Operation::Delete { key: b"k", condition: None }, 0),
        Err(SubmitError::Backpressure)
    );
    assert!(
        (2 * PRESERVE_BYTES_MAX..3 * PRESERVE_BYTES_MAX).contains(&session.preserved().bytes())
    );
    // A snapshot makes room.
    session.submit(NOW, Operation::Scan { position: 0, count_only: true }, 0).unwrap();
    session.poll_packet(&mut packet).unwrap();
    let header = packet.parse().unwrap().header;
    let answer = Header { op: Op::ScanReply, durable_generation: 2, ..header };
    session.handle_packet(NOW, &Packet::build(answer, &[], &[0]));
    assert_eq!(session.submit(NOW, Operation::Read { key: b"one more" }, 0), Ok(()));
}

/// The fragments that a pull brings, from `first` on.
fn pulled(node: &mut Node, seq: Seq, first: usize) -> Vec<Packet> {
    let header = Header {
        guard: seq.0,
        fragment_index: first as u16,
        fragment_count: 32,
        ..Header::new(Op::ReadFragment)
    };
    node.asked(header, &[], b"key")
}

#[test]
fn a_large_value_is_read_once_however_often_it_is_pulled() {
    let mut node = Node::new(NodeLimits::default());
    let record = |counter: u64, fill: u8| Record {
        seq: Seq::new(EPOCH, counter),
        value: vec![fill; VALUE_BYTES_MAX],
        ..Record::default()
    };
    node.records.insert(HASH_KEY.hash(b"key"), record(1, 1));
    let first = node.asked(Header::new(Op::Read), &[], b"key");
    assert!(first[0].parse().unwrap().header.has(flags::LARGE));
    let (part, mut value) = (fragment_bytes(3), first[0].parse().unwrap().value.to_vec());
    while value.len() < VALUE_BYTES_MAX {
        for fragment in pulled(&mut node, Seq::new(EPOCH, 1), value.len() / part) {
            value.extend_from_slice(fragment.parse().unwrap().value);
        }
    }
    assert!(value == vec![1; VALUE_BYTES_MAX]);
    assert_eq!(node.gets, 1);
    // Another version: what is kept of this one is none of it.
    node.records.insert(HASH_KEY.hash(b"key"), record(2, 2));
    for fragment in pulled(&mut node, Seq::new(EPOCH, 2), 0) {
        let parts = fragment.parse().unwrap();
        assert!(
            parts.header.seq == Seq::new(EPOCH, 2) && parts.value.iter().all(|byte| *byte == 2)
        );
    }
    let status = pulled(&mut node, Seq::new(EPOCH, 3), 0)[0].parse().unwrap().header.status;
    assert_eq!(status, Status::Changed);
}

/// A session with a few fragments for many lanes, and what its rack answers.
struct Large {
    session: Session,
    asked: Vec<Packet>,
    done: usize,
}

const LARGE_LANES: u32 = 8;
const FRAGMENTS: u16 = 70;
const LARGE_BYTES: usize = 60_000;

impl Large {
    fn new() -> Large {
        let config = ClientConfig {
            lanes: LARGE_LANES,
            fragments_max: FRAGMENTS,
            ..ClientConfig::default()
        };
        let mut session = Session::new(config, 7, 1, NOW);
        session.handle_message(NOW, grant(LARGE_LANES));
        Large { session, asked: Vec::new(), done: 0 }
    }

    fn transmitted(&mut self) {
        let mut packet = Packet::new();
        while self.session.poll_packet(&mut packet).is_some() {
            self.asked.push(packet.clone());
        }
    }

    /// Fragments that are on their way, either way.
    fn under_way(&self) -> usize {
        let fragments = |packet: &Packet| match packet.parse().unwrap().header {
            Header { op: Op::Fragment, .. } => 1,
            Header { op: Op::ReadFragment, fragment_count, .. } => usize::from(fragment_count),
            _ => 0,
        };
        self.asked.iter().map(fragments).sum()
    }

    /// Answers everything that was asked.
    fn answer(&mut self) {
        for asked in std::mem::take(&mut self.asked) {
            let PacketRef { header, key, .. } = asked.parse().unwrap();
            let part = fragment_bytes(key.len());
            let fragment = |index: u16| vec![1; part.min(LARGE_BYTES - usize::from(index) * part)];
            let read =
                Header { seq: Seq::new(EPOCH, 1), total_bytes: LARGE_BYTES as u32, ..header };
            match header.op {
                Op::Read => {
                    let header = Header { op: Op::ReadReply, flags: flags::LARGE, ..read };
                    self.hear(header, &fragment(0), key);
                }
                Op::ReadFragment => {
                    for index in
                        header.fragment_index..header.fragment_index + header.fragment_count
                    {
                        let header =
                            Header { op: Op::ReadFragmentReply, fragment_index: index, ..read };
                        self.hear(header, &fragment(index), key);
                    }
                }
                Op::Fragment => {
                    let mut bitmap = [0; 32];
                    bitmap[usize::from(header.fragment_index) / 8] |=
                        1 << (header.fragment_index % 8);
                    self.hear(Header { op: Op::FragmentReply, ..header }, &bitmap, key);
                }
                _ => self.hear(Header { op: Op::WriteReply, ..header }, &[], key),
            }
        }
    }

    fn hear(&mut self, header: Header, value: &[u8], key: &[u8]) {
        if let Some(completion) =
            self.session.handle_packet(NOW, &Packet::build(header, value, key))
        {
            self.done += 1;
            if let Outcome::Value { value, .. } = completion.outcome {
                assert!(value == vec![1; LARGE_BYTES]);
            }
        }
        self.transmitted();
    }
}

#[test]
fn fragments_under_way_are_limited_over_all_lanes() {
    for reads in [true, false] {
        let mut large = Large::new();
        let value = vec![1; LARGE_BYTES];
        for lane in 0..LARGE_LANES {
            let key = [b'k', lane as u8];
            let operation = match reads {
                true => Operation::Read { key: &key },
                false => {
                    Operation::Write { key: &key, value: &value, expiry_ms: 0, condition: None }
                }
            };
            large.session.submit(NOW, operation, lane.into()).unwrap();
        }
        large.transmitted();
        let mut rounds = 0;
        while large.done < LARGE_LANES as usize {
            assert!(large.under_way() <= FRAGMENTS.into(), "{} fragments", large.under_way());
            assert!(!large.asked.is_empty(), "{} of {LARGE_LANES} are done", large.done);
            large.answer();
            rounds += 1;
        }
        assert!(rounds > 2 * LARGE_LANES / 2, "two lanes at a time");
        assert_eq!(large.session.outstanding(), 0);
    }
}

/// Once it asked a node to store what was staged, a client can't tell any more: a late copy of an
/// answer says that fragments are missing, though they were sent anew and stored since.
#[test]
fn a_large_write_that_was_asked_for_may_have_happened() {
    let value = vec![1; LARGE_BYTES];
    for asks in [false, true] {
        let mut large = Large::new();
        let (key, expiry_ms, condition) = (b"k", 0, None);
        let write = Operation::Write { key, value: &value, expiry_ms, condition };
        large.session.submit(NOW, write, 0).unwrap();
        large.transmitted();
        while asks && large.asked[0].parse().unwrap().header.op == Op::Fragment {
            large.answer();
        }
        if asks {
            let missing = Header {
                op: Op::WriteReply,
                status: Status::FragmentsMissing,
                ..large.asked[0].parse().unwrap().header
            };
            large.hear(missing, &[], key);
            assert!(large.under_way() > 0, "it sends the fragments anew");
        }
        let to = ChainGrant { epoch: EPOCH + 1, ..chain_grant() };
        let (chain, served) = (ChainId::new(0), ChainMap::default());
        large.session.handle_message(NOW, ClientNotice::Move { chain, to, served });
        let outcome = large.session.poll_completion().unwrap().outcome;
        assert_eq!(outcome, if asks { Outcome::Indeterminate } else { Outcome::TimedOut });
    }
}

/// One that is given up while it waits, or while others wait for it, costs the others nothing.
#[test]
fn a_share_of_the_fragments_comes_back_from_what_is_given_up() {
    let mut large = Large::new();
    let value = vec![1; LARGE_BYTES];
    let mut now = NOW;
    for round in 0..10 {
        for lane in 0..LARGE_LANES {
            let (key, expiry_ms, condition) = ([b'k', lane as u8], 0, None);
            let operation = Operation::Write { key: &key, value: &value, expiry_ms, condition };
            large.session.submit(now, operation, lane.into()).unwrap();
        }
        large.transmitted();
        assert_eq!(large.under_way(), 64, "in round {round}");
        large.asked.clear();
        now.monotonic_us += 10_000_000;
        large.session.handle_timeout(now);
        assert_eq!(
            std::iter::from_fn(|| large.session.poll_completion()).count(),
            LARGE_LANES as usize
        );
        let ClientNotice::Granted(grant) = grant(LARGE_LANES) else { unreachable!("a grant") };
        let renewed = Grant { hello_us: now.monotonic_us, ..grant };
        large.session.handle_message(now, ClientNotice::Granted(renewed));
        large.transmitted();
    }
}

#[test]
fn a_batch_is_cut_by_bytes_too() {
    let keyed = |value_bytes| {
        let record = Record { value: vec![0; value_bytes], ..Record::default() };
        KeyedRecord { hash: KeyHash::default(), key: vec![b'k'], record }
    };
    assert_eq!(batch_len(&vec![keyed(100); 1_000]), BATCH_MAX);
    assert_eq!(batch_len(&vec![keyed(BATCH_BYTES_MAX / 4); 10]), 3);
    assert_eq!(batch_len(&vec![keyed(VALUE_BYTES_MAX); 10]), 1, "one at least");
    assert_eq!(batch_len(&[]), 0);
}
