//! A node's shim over the modelled disk, packet by packet: what late copies must not do once
//! tombstones may have been dropped.

use switchback_core::Now;
use switchback_core::control::{Command, KeyedRecord, NodeCommand, NodeConfig};
use switchback_core::floors::seq_bucket;
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::Record;
use switchback_core::topology::ChainId;
use switchback_engine::{Engine as _, Fault, MemoryEngine, SyncPolicy};
use switchback_wire::{Address, HashKey, Header, Map, Op, Packet, Seq, Status, flags};

const HASH_KEY: HashKey = HashKey([7; 16]);
const SWITCH: Address = Address::in_memory(2, 0);
const PERIOD_US: u64 = 1_000_000;

/// A node of one partition.
struct Node {
    shim: Shim,
    engine: MemoryEngine,
    now: Now,
    boots: u64,
    commands: u64,
    epoch: u32,
    limits: NodeLimits,
}

fn limits() -> NodeLimits {
    NodeLimits { floor_period_us: PERIOD_US, retry_us: PERIOD_US, ..NodeLimits::default() }
}

fn start(engine: &MemoryEngine, limits: &NodeLimits, boot: u64, now: Now) -> Shim {
    let limits = limits.clone();
    Shim::new(0, boot, Address::in_memory(3, 0), limits, Mechanisms::ALL, engine.loaded(), now)
        .expect("a sound state")
}

impl Node {
    /// Serves epoch 1.
    fn new() -> Node {
        Node::within(limits())
    }

    /// The same with these limits.
    fn within(limits: NodeLimits) -> Node {
        let now = Now { monotonic_us: PERIOD_US, unix_ms: 1_800_000_000_000 };
        let engine = MemoryEngine::new(SyncPolicy::Always);
        let shim = start(&engine, &limits, 1, now);
        let mut node = Node { shim, engine, now, boots: 1, commands: 0, epoch: 0, limits };
        node.next_epoch(&[]);
        node
    }

    /// The next epoch begins; these records are recovered.
    fn next_epoch(&mut self, recovered: &[KeyedRecord]) {
        self.epoch += 1;
        let config = NodeConfig {
            hash_key: HASH_KEY,
            map: Map::equal(vec![vec![0]]),
            switch: Some(SWITCH),
            lanes: 8,
            refresh: switchback_core::control::Refresh::None,
        };
        self.command(NodeCommand::Epoch(config));
        self.command(NodeCommand::Store(recovered.to_vec()));
        self.command(NodeCommand::Release { floor: Seq::new(self.epoch, 0) });
    }

    fn command(&mut self, body: NodeCommand) {
        self.commands += 1;
        self.shim.handle_message(
            self.now,
            Command { id: self.commands, chain: ChainId::new(0), epoch: self.epoch, body },
        );
        self.work();
    }

    /// The process ends and starts again.
    fn restart(&mut self) {
        self.boots += 1;
        self.engine.crash(usize::MAX);
        self.shim = start(&self.engine, &self.limits, self.boots, self.now);
    }

    fn tick(&mut self) {
        self.now.monotonic_us += PERIOD_US;
        self.shim.handle_timeout(self.now);
        self.work();
    }

    fn work(&mut self) {
        while self.shim.has_ops() {
            let (mut ops, mut done) = (Vec::new(), Vec::new());
            self.shim.poll_ops(&mut ops);
            self.engine.execute(&mut ops, &mut done);
            done.into_iter().for_each(|done| self.shim.handle_done(self.now, done));
        }
    }

    /// The answers to a packet of the switch.
    fn hear(&mut self, header: Header, key: &[u8]) -> Vec<(Op, Status)> {
        let key_hash = HASH_KEY.hash(key);
        let header = Header { epoch: self.epoch, key_hash, routing: key_hash.routing(), ..header };
        let value: &[u8] = if header.op == Op::Write { b"value" } else { b"" };
        self.shim.handle_packet(self.now, SWITCH, &Packet::build(header, value, key));
        self.work();
        let mut answers = Vec::new();
        let mut packet = Packet::new();
        while self.shim.poll_packet(&mut packet).is_some() {
            let header = packet.parse().expect("a sound packet").header;
            answers.push((header.op, header.status));
        }
        answers
    }

    /// The stored version that a read finds, if any.
    fn stored(&self, key: &[u8]) -> Option<Seq> {
        self.engine.record(&HASH_KEY.hash(key)).map(|record| record.seq)
    }
}

fn request(op: Op, seq: Seq) -> Header {
    Header { seq, ..Header::new(op) }
}

/// A write of the lane that expects this version.
fn conditional(lane: u32, request: u64, seq: Seq, guard: Seq) -> Header {
    Header {
        flags: flags::CONDITIONAL,
        seq,
        guard: guard.0,
        lane,
        request,
        ..Header::new(Op::Write)
    }
}

const OK: [(Op, Status); 1] = [(Op::WriteReply, Status::Ok)];
const REFUSED: [(Op, Status); 1] = [(Op::WriteReply, Status::ConditionFailed)];
const BOUNCED: [(Op, Status); 1] = [(Op::Bounce, Status::Ok)];

/// Fails if a write that a tombstone refused runs after all once the tombstone is dropped, be it
/// after a restart.
#[test]
fn a_refused_expectation_of_nothing_stays_refused() {
    let mut node = Node::new();
    assert_eq!(node.hear(request(Op::Delete, Seq::new(1, 5)), b"key"), OK);
    node.next_epoch(&[]);
    let create = conditional(0, 1, Seq::new(2, 1), Seq::NONE);
    assert_eq!(node.hear(create, b"key"), REFUSED);
    assert_eq!(node.engine.compact(), 1);
    node.restart();
    assert_eq!(node.hear(create, b"key"), BOUNCED);
    assert_eq!(node.stored(b"key"), None);
}

/// Fails if a write is refused whose commit had failed, and a crash then brings to light what the
/// failed commit left on the disk (seed 16976 of nocache).
#[test]
fn a_write_whose_commit_failed_stays_refused() {
    let mut node = Node::new();
    assert_eq!(node.hear(request(Op::Delete, Seq::new(1, 5)), b"key"), OK);
    node.next_epoch(&[]);
    let write = conditional(0, 1, Seq::new(2, 1), Seq::new(1, 5));
    node.engine.fail_next(Fault::NoSpace);
    assert_eq!(node.hear(write, b"key"), [(Op::WriteReply, Status::NoSpace)]);
    assert_eq!(node.engine.compact(), 1, "what it expected");
    assert_eq!(node.hear(write, b"key"), REFUSED);
    node.restart();
    assert_eq!(node.stored(b"key"), None);
    assert_eq!(node.hear(write, b"key"), BOUNCED);
}

/// Fails if a late write of a lane takes the place of a newer one's completion, so that a copy of
/// that one counts as refused.
#[test]
fn a_late_write_of_a_lane_leaves_the_newest_completion() {
    let mut node = Node::new();
    let newest = conditional(0, 2, Seq::new(1, 10), Seq::NONE);
    assert_eq!(node.hear(newest, b"key"), OK);
    assert_eq!(node.hear(conditional(0, 1, Seq::new(1, 9), Seq::NONE), b"other"), []);
    assert_eq!(node.hear(conditional(1, 1, Seq::new(1, 11), Seq::new(1, 10)), b"key"), OK);
    assert_eq!(node.hear(newest, b"key"), OK);
}

/// Fails if a write is sent back by a floor that a crash would forget: a copy of it could run then,
/// and the write a second time.
#[test]
fn a_floor_sends_nothing_back_before_it_is_durable() {
    let mut node = Node::new();
    let bucket = |key: &[u8]| seq_bucket(&HASH_KEY.hash(key));
    let mut others = (0u32..).map(|number| number.to_be_bytes());
    let other =
        others.find(|other| bucket(other) == bucket(b"key")).expect("there are few buckets");
    node.tick();
    assert_eq!(node.hear(request(Op::Write, Seq::new(1, 3)), b"key"), OK);
    assert_eq!(node.hear(request(Op::Delete, Seq::new(1, 8)), &other), OK);
    node.tick();
    node.engine.fail_next(Fault::Io);
    node.tick();
    let late = request(Op::Write, Seq::new(1, 6));
    assert_eq!(node.hear(late, b"key"), []);
    node.tick();
    assert_eq!(node.hear(late, b"key"), BOUNCED);
    assert_eq!(node.stored(b"key"), Some(Seq::new(1, 3)));
}

/// Fails if a record of the cache that a recovery no longer waited for is dropped though the node
/// has an older one.
#[test]
fn what_a_client_kept_through_a_recovery_still_overwrites_what_is_older() {
    let mut node = Node::new();
    let hot = Header { flags: flags::HOT, ..request(Op::Write, Seq::new(1, 1)) };
    assert_eq!(node.hear(hot, b"key"), OK);
    node.next_epoch(&[]);
    let record = Record { seq: Seq::new(1, 2), value: b"kept".to_vec(), ..Record::default() };
    node.next_epoch(&[KeyedRecord { hash: HASH_KEY.hash(b"key"), key: b"key".to_vec(), record }]);
    assert_eq!(node.stored(b"key"), Some(Seq::new(1, 2)));
}

/// Fails if each refused expectation of nothing, or each fenced read, leaves a fence without any
/// limit.
#[test]
fn fences_have_a_limit_and_floors_make_room_for_more() {
    const MARKS: usize = 16;
    let mut node = Node::within(NodeLimits {
        marks_max: MARKS,
        floor_period_us: 1000 * PERIOD_US,
        ..limits()
    });
    let keys: Vec<[u8; 4]> = (0u32..64).map(u32::to_be_bytes).collect();
    for key in &keys {
        assert_eq!(node.hear(request(Op::Write, Seq::new(1, 1)), key), OK);
    }
    let create = |lane: usize, seq: u64| conditional(lane as u32, 1, Seq::new(1, seq), Seq::NONE);
    let refused: Vec<_> =
        (0..64).map(|lane| node.hear(create(lane, 9), &keys[lane]) == REFUSED).collect();
    assert_eq!(refused.iter().filter(|refused| **refused).count(), MARKS / 2);
    assert_eq!(node.engine.loaded().marks.len(), MARKS / 2);
    assert_eq!(node.shim.statistics().dropped_no_fence, 64 - MARKS as u64 / 2);
    let fenced = Header { flags: flags::FENCED, guard: Seq::new(1, 9).0, ..Header::new(Op::Read) };
    assert_eq!(node.hear(fenced, &keys[63]), [], "it needs a fence, too");
    // Long before a period is over: the next retry raises floors, the one after that drops what
    // they cover.
    let mut left: Vec<usize> = (0..64).filter(|lane| !refused[*lane]).collect();
    for round in 0..64 {
        // By then a floor may be above the number that it had, and the switch gives it another one.
        left.retain(|lane| node.hear(create(*lane, 10 + round), &keys[*lane]) != REFUSED);
        node.tick();
        assert!(node.engine.loaded().marks.len() <= MARKS / 2);
    }
    assert_eq!(left, [0; 0]);
    node.tick();
    node.tick();
    assert_eq!(node.hear(fenced, &keys[63]), [(Op::ReadReply, Status::Ok)]);
}
