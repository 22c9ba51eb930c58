//! The replicas of a partition: what the tail says, what is sent anew, what views change, and how a
//! node becomes one of them.

use std::collections::BTreeMap;
use switchback_core::Now;
use switchback_core::control::{
    Command, Join, JoinStep, NodeCommand, NodeConfig, NodeReport, Refresh,
};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{LinkMessage, NodeLimits, Shim};
use switchback_core::storage::{
    CopiedRecord, EngineDone, EngineOp, EngineReply, LaneCompletion, Lanes, Loaded, Mark, Newest,
    PutCondition, Record,
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
            EngineOp::Empty { id, range, lanes, .. } => {
                self.records.retain(|hash, _| !range.contains(hash));
                self.marks.retain(|hash, _| !range.contains(hash));
                self.unconfirmed.retain(|hash, _| !range.contains(hash));
                for (lane, request) in lanes {
                    self.completions.retain(|_, it| it.lane != lane || it.request > request);
                }
                (id, EngineReply::Set)
            }
            EngineOp::Keep { id, .. } => (id, EngineReply::Set),
            EngineOp::Copy { id, range, limit, .. } => {
                let mut records = self.records.range(range.first..=range.last);
                let of = |(hash, record): (&KeyHash, &Record)| {
                    let (hash, key, record) = (*hash, self.key_of(hash), record.clone());
                    CopiedRecord { hash, key, record }
                };
                let copied = records.by_ref().take(limit).map(of).collect();
                (id, EngineReply::Copied(copied, records.next().map(|(hash, _)| *hash)))
            }
            other => panic!("{other:?}"),
        }
    }

    /// One of the keys of these tests.
    fn key_of(&self, hash: &KeyHash) -> Vec<u8> {
        let others = (0..200u8).map(|name| vec![b'k', name]);
        let mut keys = others.chain([KEY.to_vec()]);
        keys.find(|key| HASH_KEY.hash(key) == *hash).expect("a key of these tests")
    }

    fn reports(&mut self) -> Vec<NodeReport> {
        std::iter::from_fn(|| self.shim.poll_message()).collect()
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

/// Nodes 0 to `count`, the replicas of one partition in this order; and its view.
struct Rack(Vec<Node>, u32);

impl Rack {
    fn new(count: u16) -> Rack {
        let mut rack = Rack((0..count).map(Node::new).collect(), 0);
        let map = Map::equal(vec![(0..count).collect()]);
        for node in &mut rack.0 {
            node.tell(1, NodeCommand::Epoch(config(map.clone())));
            node.tell(90, NodeCommand::Begin);
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

/// Fails if a key that is sent again brings the completion of another one: a replica that becomes
/// the head would answer that the write of that key ran, and not have it.
#[test]
fn a_completion_comes_with_the_record_that_it_is_of() {
    let mut rack = Rack::new(2);
    let hash = HASH_KEY.hash(KEY);
    let names = (0..200u8).map(|name| vec![b'k', name]);
    let other = names.into_iter().find(|key| HASH_KEY.hash(key) > hash).expect("half of them are");
    for (number, key) in [(1, KEY), (2, &other[..])] {
        let key_hash = HASH_KEY.hash(key);
        let header = Header {
            seq: Seq::new(1, number),
            request: 8 + number,
            lane: 3,
            flags: flags::CONDITIONAL,
            epoch: 1,
            key_hash,
            routing: key_hash.routing(),
            ..Header::new(Op::Write)
        };
        let packet = Packet::build(header, b"value", key);
        rack.0[0].shim.handle_packet(at(0), SWITCH, &packet);
        rack.run(|message| !is_frame(message));
    }
    rack.0[0].restart();
    let is_other = |message: &LinkMessage| {
        matches!(message, LinkMessage::Frame(frame)
            if frame.effect.as_ref().is_some_and(|effect| effect.hash != hash))
    };
    for later_us in [100_000, 200_000] {
        rack.0.iter_mut().for_each(|node| node.shim.handle_timeout(at(later_us)));
        // The link breaks before the other key's frame.
        let mut is_broken = false;
        rack.run(|message| {
            is_broken |= is_other(message);
            !is_broken
        });
    }
    assert_eq!((rack.0[1].seq(), rack.0[1].records.len()), (Seq::new(1, 1), 1));
    assert!(rack.0[1].completions.is_empty(), "{:?}", rack.0[1].completions);
    rack.repeat(300_000);
    rack.repeat(400_000);
    assert_eq!(rack.0[1].records.len(), 2);
    assert_eq!(rack.0[1].completions, rack.0[0].completions);
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

/// The replicas of a rack of three are nodes 0 and 1, and node 2 has said nothing yet.
fn rack_of_two() -> Rack {
    let mut rack = Rack::new(2);
    rack.0.push(Node::new(2));
    let node = &mut rack.0[2];
    node.tell(1, NodeCommand::Epoch(config(Map::equal(vec![vec![0, 1]]))));
    node.tell(2, NodeCommand::Release { floor: Seq::NONE });
    rack
}

/// Node 2 joins behind node 1, in the join with this number.
fn join(rack: &mut Rack, number: u32) {
    let joins = vec![Join { partition: 0, number, node: 2, source: 1 }];
    for node in &mut rack.0 {
        let joins = joins.clone();
        node.tell(100 + u64::from(number), NodeCommand::Joins { version: number, joins });
    }
}

fn view(rack: &mut Rack, number: u32, replicas: Vec<u16>) {
    for node in &mut rack.0 {
        let views = vec![View { partition: 0, number, replicas: replicas.clone() }];
        node.tell(200 + u64::from(number), NodeCommand::Views(views));
    }
}

/// How joins go, as a node says.
fn steps(node: &mut Node) -> Vec<(u32, JoinStep)> {
    let step = |report: NodeReport| match report {
        NodeReport::Join { number, step, .. } => Some((number, step)),
        _ => None,
    };
    let mut steps: Vec<_> = node.reports().into_iter().filter_map(step).collect();
    steps.dedup();
    steps
}

fn write_key(rack: &mut Rack, name: u8, number: u64, flags: u16) {
    let key = [b'k', name];
    let hash = HASH_KEY.hash(&key);
    let (seq, request) = (Seq::new(1, number), number);
    let header = Header { seq, request, flags, lane: name.into(), ..Header::new(Op::Write) };
    let header = Header { key_hash: hash, routing: hash.routing(), epoch: 1, ..header };
    let header = Header { view: rack.1, ..header };
    let packet = Packet::build(header, b"value", &key);
    rack.0[0].shim.handle_packet(at(0), SWITCH, &packet);
    rack.run(|_| true);
}

fn same(rack: &Rack, one: usize, other: usize) -> bool {
    let (one, other) = (&rack.0[one], &rack.0[other]);
    one.records == other.records && one.marks == other.marks && one.completions == other.completions
}

/// Fails if a joiner lacks anything that was there or came meanwhile, if it answers before it has
/// all that its source had, or if the chain waits for it.
#[test]
fn a_joiner_gets_what_was_there_and_what_changes() {
    let mut rack = rack_of_two();
    for name in 0..200 {
        write_key(&mut rack, name, 1, if name % 3 == 0 { flags::CONDITIONAL } else { 0 });
    }
    rack.0[1].answers();
    // Nothing of a partition counts that the node has from before.
    let stale = Record { seq: Seq::new(1, 99), ..Record::default() };
    rack.0[2].records.insert(HASH_KEY.hash(b"kx"), stale);
    join(&mut rack, 1);
    rack.run(|message| !matches!(message, LinkMessage::Copy(_)));
    assert!(rack.0[2].records.is_empty());
    write_key(&mut rack, 7, 2, 0);
    assert_eq!(rack.0[1].answers().len(), 1, "the tail answers by itself");
    for later in 1..9 {
        rack.repeat(100_000 * later);
    }
    assert!(same(&rack, 1, 2));
    assert_eq!(steps(&mut rack.0[2]), [(1, JoinStep::Copied)]);
    assert!(rack.0[2].answers().is_empty());

    // The source hasn't heard of the view: it may have answered what the new tail lacks.
    let replicas = vec![0, 1, 2];
    let views = vec![View { partition: 0, number: 1, replicas: replicas.clone() }];
    rack.0[2].tell(300, NodeCommand::Views(views));
    rack.1 = 1;
    let read = |rack: &mut Rack| {
        rack.ask(2, Header { view: 1, ..Header::new(Op::Read) });
        rack.run(|_| true);
        rack.0[2].answers().len()
    };
    assert_eq!(read(&mut rack), 0);
    view(&mut rack, 1, replicas);
    rack.repeat(2_000_000);
    assert_eq!(steps(&mut rack.0[2]), [(1, JoinStep::Opened)]);
    assert_eq!(read(&mut rack), 1);
    write_key(&mut rack, 8, 3, 0);
    assert_eq!((rack.0[1].answers().len(), rack.0[2].answers().len()), (0, 1));
    assert!(same(&rack, 0, 2));
}

/// Fails if a restart of joiner or source loses anything, or begins the join anew.
#[test]
fn restarts_in_a_join_do_not_matter() {
    let mut rack = rack_of_two();
    (0..200).for_each(|name| write_key(&mut rack, name, 1, 0));
    join(&mut rack, 1);
    let mut copies = 0;
    let mut passes = |message: &LinkMessage| {
        copies += usize::from(matches!(message, LinkMessage::Copy(_)));
        copies < 3
    };
    rack.run(&mut passes);
    // READY and the source's ASK have crossed: the first part was of a round that has ended.
    rack.0.iter_mut().for_each(|node| node.shim.handle_timeout(at(50_000)));
    rack.run(&mut passes);
    let arrived = rack.0[2].records.len();
    assert!((1..200).contains(&arrived), "a part has arrived: {arrived}");
    rack.0[1].restart();
    write_key(&mut rack, 3, 2, 0);
    rack.repeat(100_000);
    rack.0[2].restart();
    write_key(&mut rack, 4, 2, 0);
    for later in 2..9 {
        rack.repeat(100_000 * later);
    }
    assert!(same(&rack, 1, 2));
    assert_eq!(steps(&mut rack.0[2]), [(1, JoinStep::Copied)]);
    // Under another number it begins with nothing.
    join(&mut rack, 2);
    assert!(rack.0[2].records.is_empty());
}

/// Fails if a node that has lost all it had answers among those that have it.
#[test]
fn a_node_with_nothing_is_not_released_among_others() {
    let mut node = Node::new(1);
    node.tell(1, NodeCommand::Epoch(config(Map::equal(vec![vec![0, 1]]))));
    node.tell(2, NodeCommand::Release { floor: Seq::NONE });
    let refuses =
        |report: &NodeReport| matches!(report, NodeReport::Done { id: 2, error: Some(_), .. });
    assert!(node.reports().iter().any(refuses));
    node.shim.handle_timeout(at(0));
    let says_nothing = |report: &NodeReport| {
        matches!(report, NodeReport::Hello { chains, .. }
            if chains[ChainId::new(0)].epoch == 0)
    };
    assert!(node.reports().iter().any(says_nothing));
    node.restart();
    node.tell(3, NodeCommand::Release { floor: Seq::NONE });
    assert!(node.reports().iter().any(|it| matches!(it, NodeReport::Done { error: Some(_), .. })));
    node.tell(4, NodeCommand::Begin);
    node.tell(5, NodeCommand::Release { floor: Seq::NONE });
    let refuses = |it: &NodeReport| matches!(it, NodeReport::Done { id: 5, error: Some(_), .. });
    assert!(!node.reports().iter().any(refuses), "it waits for the replica before it");
}
