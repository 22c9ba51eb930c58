//! The replicas of a partition: what the tail says, what is sent anew, what views change.

use std::collections::BTreeMap;
use switchback_core::Now;
use switchback_core::control::{Command, NodeCommand, NodeConfig, NodeReport, Refresh};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{LinkMessage, NodeLimits, Shim};
use switchback_core::storage::{
    EngineDone, EngineOp, EngineReply, LaneCompletion, Lanes, Loaded, Mark, Newest, PutCondition,
    Record,
};
use switchback_core::topology::ChainId;
use switchback_wire::{
    Address, HashKey, Header, KeyHash, Map, Op, Packet, Seq, Status, View, flags,
};

const SWITCH: Address = Address::in_memory(2, 0);
const HASH_KEY: HashKey = HashKey([1; 16]);
const KEY: &[u8] = b"key";

/// A node, and what it has stored.
struct Node {
    index: u16,
    boot: u64,
    shim: Shim,
    state: Option<Vec<u8>>,
    records: BTreeMap<KeyHash, Record>,
    marks: BTreeMap<KeyHash, (Vec<u8>, Mark)>,
    completions: BTreeMap<u32, LaneCompletion>,
    unconfirmed: BTreeMap<KeyHash, (Vec<u8>, Lanes)>,
}

impl Node {
    fn new(index: u16) -> Node {
        let (records, marks, completions, unconfirmed) = Default::default();
        let shim = Node::shim(index, 1, Loaded::default());
        Node { index, boot: 1, shim, state: None, records, marks, completions, unconfirmed }
    }

    fn shim(index: u16, boot: u64, loaded: Loaded) -> Shim {
        let (address, limits) = (Address::in_memory(3, index), NodeLimits::default());
        let boot = boot << 8 | u64::from(index);
        Shim::new(index, boot, address, limits, Mechanisms::ALL, loaded, at(0)).unwrap()
    }

    fn restart(&mut self) {
        self.boot += 1;
        let marks = self.marks.iter().map(|(hash, (key, mark))| (*hash, key.clone(), *mark));
        let unconfirmed = self.unconfirmed.iter();
        let loaded = Loaded {
            state: self.state.clone(),
            marks: marks.collect(),
            completions: self.completions.values().copied().collect(),
            unconfirmed: unconfirmed
                .map(|(hash, (key, lanes))| (*hash, key.clone(), lanes.clone()))
                .collect(),
            ..Loaded::default()
        };
        self.shim = Node::shim(self.index, self.boot, loaded);
    }

    /// Stores what is to be stored, until there is nothing.
    fn store(&mut self) {
        loop {
            let mut ops = Vec::new();
            self.shim.poll_ops(&mut ops);
            if ops.is_empty() {
                return;
            }
            for op in ops {
                let (id, reply) = self.execute(op);
                self.shim.handle_done(at(0), EngineDone { id, result: Ok(reply) });
            }
        }
    }

    fn note(&mut self, hash: KeyHash, key: &[u8], unconfirmed: Option<Lanes>) {
        if let Some(lanes) = unconfirmed {
            self.unconfirmed.insert(hash, (key.to_vec(), lanes));
        }
    }

    fn execute(&mut self, op: EngineOp) -> (u64, EngineReply) {
        match op {
            EngineOp::Get { id, hash, .. } => {
                (id, EngineReply::Got(self.records.get(&hash).cloned()))
            }
            EngineOp::Put { id, hash, key, record, condition, completion, unconfirmed, .. } => {
                let stored = self.records.get(&hash).map_or(Seq::NONE, |record| record.seq);
                let is_due = match condition {
                    PutCondition::Newer { .. } => record.seq > stored,
                    PutCondition::IfSeq(expected) => stored == expected,
                };
                if !is_due {
                    return (id, EngineReply::Put(Err(Newest::Record(stored))));
                }
                self.note(hash, &key, unconfirmed);
                self.completions.extend(completion.map(|done| (done.lane, done)));
                let since = record.since.map(|_| stored);
                self.records.insert(hash, Record { since, ..record });
                (id, EngineReply::Put(Ok(since)))
            }
            EngineOp::Merge { id, hash, key, record, mark, completions, unconfirmed, .. } => {
                self.note(hash, &key, unconfirmed);
                let stored = self.records.get(&hash).map_or(Seq::NONE, |record| record.seq);
                self.records
                    .extend(record.filter(|it| it.seq > stored).map(|record| (hash, record)));
                self.completions.extend(completions.into_iter().map(|done| (done.lane, done)));
                if let Some(mark) = mark {
                    self.set_mark(hash, key, mark);
                }
                (id, EngineReply::Set)
            }
            EngineOp::SetMark { id, hash, key, mark, unconfirmed } => {
                self.note(hash, &key, unconfirmed);
                self.set_mark(hash, key, mark);
                (id, EngineReply::Set)
            }
            EngineOp::Confirm { id, keys } => {
                for (hash, _) in keys {
                    self.unconfirmed.remove(&hash);
                }
                (id, EngineReply::Set)
            }
            EngineOp::SetState { id, state, .. } => {
                self.state = Some(state);
                (id, EngineReply::Set)
            }
            EngineOp::SetFloor { id, .. } | EngineOp::RaiseFloors { id, .. } => {
                (id, EngineReply::Set)
            }
            other => panic!("{other:?}"),
        }
    }

    fn set_mark(&mut self, hash: KeyHash, key: Vec<u8>, mark: Option<Mark>) {
        match mark {
            Some(mark) => drop(self.marks.insert(hash, (key, mark))),
            None => drop(self.marks.remove(&hash)),
        }
    }

    fn tell(&mut self, id: u64, body: NodeCommand) {
        let command = Command { id, chain: ChainId::new(0), epoch: 1, body };
        self.shim.handle_message(at(0), command);
        self.store();
    }

    /// What it says to the switch.
    fn answers(&mut self) -> Vec<Header> {
        let mut packet = Packet::new();
        let mut answers = Vec::new();
        while self.shim.poll_packet(&mut packet).is_some() {
            answers.push(packet.parse().unwrap().header);
        }
        answers
    }

    fn seq(&self) -> Seq {
        self.records.get(&HASH_KEY.hash(KEY)).map_or(Seq::NONE, |record| record.seq)
    }
}

fn at(later_us: u64) -> Now {
    Now { monotonic_us: 1_000_000 + later_us, unix_ms: 1_800_000_000_000 }
}

fn config(map: Map) -> NodeConfig {
    NodeConfig { hash_key: HASH_KEY, map, switch: Some(SWITCH), lanes: 16, refresh: Refresh::None }
}

/// Nodes 0 to `count`, the replicas of one partition in this order.
struct Rack(Vec<Node>);

impl Rack {
    fn new(count: u16) -> Rack {
        let mut rack = Rack((0..count).map(Node::new).collect());
        let map = Map::equal(vec![(0..count).collect()]);
        for node in &mut rack.0 {
            node.tell(1, NodeCommand::Epoch(config(map.clone())));
            node.tell(2, NodeCommand::Release { floor: Seq::NONE });
        }
        rack.run(|_| true);
        rack
    }

    /// Carries messages that pass, until there is none.
    fn run(&mut self, mut passes: impl FnMut(&LinkMessage) -> bool) {
        loop {
            let mut messages = Vec::new();
            for node in &mut self.0 {
                node.store();
                let from = node.index;
                let of_node = std::iter::from_fn(|| node.shim.poll_link());
                messages.extend(of_node.map(|(to, message)| (from, to, message)));
            }
            if messages.is_empty() {
                return;
            }
            for (from, to, message) in messages {
                if passes(&message) {
                    self.0[usize::from(to)].shim.handle_link(at(0), from, message);
                }
            }
        }
    }

    /// It is time to repeat what may be lost.
    fn repeat(&mut self, later_us: u64) {
        for node in &mut self.0 {
            node.shim.handle_timeout(at(later_us));
        }
        self.run(|_| true);
    }

    fn ask(&mut self, node: usize, header: Header) {
        let key_hash = HASH_KEY.hash(KEY);
        let header = Header { key_hash, routing: key_hash.routing(), epoch: 1, ..header };
        let packet = Packet::build(header, b"value", KEY);
        self.0[node].shim.handle_packet(at(0), SWITCH, &packet);
    }

    fn write(&mut self, node: usize, number: u64) {
        self.ask(
            node,
            Header { seq: Seq::new(1, number), request: number, ..Header::new(Op::Write) },
        );
    }

    fn seqs(&self) -> Vec<Seq> {
        self.0.iter().map(Node::seq).collect()
    }
}

fn is_frame(message: &LinkMessage) -> bool {
    matches!(message, LinkMessage::Frame(_))
}

/// Fails if the head answers, or if an answer comes before all replicas have what it is about.
#[test]
fn the_tail_answers_what_all_replicas_have() {
    let mut rack = Rack::new(3);
    rack.write(0, 1);
    rack.run(|message| !is_frame(message));
    assert_eq!(rack.seqs(), [Seq::new(1, 1), Seq::NONE, Seq::NONE]);
    assert!(rack.0.iter_mut().all(|node| node.answers().is_empty()));
    // Its frame was lost: a probe shows that.
    rack.repeat(100_000);
    rack.repeat(200_000);
    assert_eq!(rack.seqs(), [Seq::new(1, 1); 3]);
    rack.write(0, 1);
    rack.run(|_| true);
    let answers: Vec<_> = rack.0.iter_mut().map(Node::answers).collect();
    assert!(answers[0].is_empty() && answers[1].is_empty());
    let [answer] = answers[2][..] else { panic!("{answers:?}") };
    assert_eq!(
        (answer.op, answer.status, answer.seq),
        (Op::WriteReply, Status::Ok, Seq::new(1, 1))
    );
    assert_eq!(rack.0[0].shim.frames_under_way(), 0);
}

/// Fails if a replica takes what another one is for.
#[test]
fn each_replica_takes_what_is_for_it() {
    let mut rack = Rack::new(2);
    rack.write(1, 1);
    rack.ask(0, Header::new(Op::Read));
    rack.ask(1, Header { flags: flags::FENCED, guard: 5, ..Header::new(Op::Read) });
    rack.run(|_| true);
    assert!(rack.0.iter_mut().all(|node| node.answers().is_empty()));
    rack.ask(1, Header::new(Op::Read));
    rack.ask(0, Header { flags: flags::FENCED, guard: 5, ..Header::new(Op::Read) });
    rack.run(|_| true);
    let (head, tail) = (rack.0[0].answers(), rack.0[1].answers());
    assert_eq!((head.len(), tail.len()), (0, 2));
    assert!(rack.0.iter().all(|node| node.marks.len() == 1), "the fence is at both");
}

/// Fails if what is unconfirmed is forgotten, or sent without what was stored with it.
#[test]
fn a_head_that_restarts_sends_what_is_unconfirmed() {
    let mut rack = Rack::new(2);
    let conditional = Header {
        seq: Seq::new(1, 1),
        request: 9,
        lane: 3,
        flags: flags::CONDITIONAL,
        ..Header::new(Op::Write)
    };
    rack.ask(0, conditional);
    rack.run(|message| !is_frame(message));
    assert_eq!((rack.0[0].unconfirmed.len(), rack.0[1].seq()), (1, Seq::NONE));
    rack.0[0].restart();
    rack.repeat(100_000);
    rack.repeat(200_000);
    assert_eq!(rack.seqs(), [Seq::new(1, 1); 2]);
    assert_eq!(rack.0[1].completions, rack.0[0].completions);
    rack.repeat(300_000);
    assert_eq!(rack.0[0].unconfirmed.len(), 0);
}

/// Fails if a head waits for a replica that has left, if a late command brings that back, or if it
/// goes on answering itself.
#[test]
fn a_view_leaves_a_replica_out_for_good() {
    let mut rack = Rack::new(2);
    rack.write(0, 1);
    rack.run(|message| !is_frame(message));
    let views = vec![View { partition: 0, number: 1, replicas: vec![0] }];
    rack.0[0].tell(3, NodeCommand::Views(views.clone()));
    rack.0[0].tell(4, NodeCommand::Epoch(config(Map::equal(vec![vec![0, 1]]))));
    rack.ask(0, Header { seq: Seq::new(1, 2), request: 2, view: 1, ..Header::new(Op::Write) });
    rack.ask(0, Header { view: 1, ..Header::new(Op::Read) });
    rack.run(|_| true);
    let answers = rack.0[0].answers();
    assert_eq!(answers.iter().map(|it| it.op).collect::<Vec<_>>(), [Op::WriteReply, Op::ReadReply]);
    rack.write(0, 3);
    rack.run(|_| true);
    assert_eq!(rack.0[0].answers(), [], "that is of the view before");
    rack.0[1].tell(3, NodeCommand::Views(views));
    rack.ask(1, Header { view: 1, ..Header::new(Op::Read) });
    rack.run(|_| true);
    assert_eq!(rack.0[1].answers(), []);
    let done = |node: &mut Node| {
        let reports = std::iter::from_fn(|| node.shim.poll_message());
        reports.filter(|it| matches!(it, NodeReport::Done { id: 3, error: None, .. })).count()
    };
    assert_eq!(rack.0.iter_mut().map(done).collect::<Vec<_>>(), [1, 1]);
}
