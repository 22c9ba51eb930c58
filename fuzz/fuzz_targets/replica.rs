//! A node of several replicas: of some partitions the head, the tail, between them, or a node that
//! joins. It is fed what the other replicas, the controller, the switch and its storage tell it,
//! mostly of the rounds, views and joins that there are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, VecDeque};
use switchback_core::control::{Command, Join, Message, NodeCommand, NodeConfig, Refresh};
use switchback_core::floors::Floors;
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{
    Answer, Copy, CopyAt, Effect, Frame, HotHint, LinkMessage, NodeLimits, Shim,
};
use switchback_core::storage::{
    EngineDone, EngineError, EngineOp, LaneCompletion, Loaded, Mark, OfferId, Source,
};
use switchback_core::topology::ChainId;
use switchback_fuzz::storage::Storage;
use switchback_fuzz::{Draw, HASH_KEY, LANES, PARTITIONS, START, STEPS_MAX, SWITCH, map, node};
use switchback_wire::{Header, KeyHash, Map, Op, Packet, Seq, VALUE_BYTES_MAX, View};

const OPS: &[Op] = &[Op::Read, Op::Write, Op::Delete, Op::Scan, Op::ReadFragment];
const OPERATIONS_MAX: usize = 64;
const MESSAGES_MAX: usize = 1 << 12;

struct Replica {
    shim: Shim,
    storage: Storage,
    ops: VecDeque<EngineOp>,
    map: Map,
    joins: u32,
    /// Rounds that it has begun, and frames that were sent in them.
    rounds: BTreeMap<u16, (u64, u64)>,
    /// Rounds in which it was last heard to send, and its last frame.
    sent: BTreeMap<u16, (u64, u64)>,
    boot: u64,
    next_command: u64,
    now: switchback_core::Now,
}

/// The partitions: of the first node 0 is the head, of the second the tail, of the third it is
/// between others, the fourth it joins.
fn replicas() -> Map {
    let views = [vec![0, 1], vec![1, 0], vec![1, 0, 2], vec![1]];
    let view = |(partition, replicas)| View { partition, number: 1, replicas };
    let views: Vec<View> = (0..PARTITIONS).zip(views).map(view).collect();
    map().with_views(&views).expect("each has a replica")
}

impl Replica {
    fn new() -> Replica {
        let limits = NodeLimits {
            marks_max: 4,
            staged_bytes_max: VALUE_BYTES_MAX,
            operations_max: OPERATIONS_MAX,
            floor_period_us: 1_000_000,
            ..NodeLimits::default()
        };
        let shim = Shim::new(0, 1, node(0), limits, Mechanisms::ALL, Loaded::default(), START)
            .expect("an empty storage");
        let (storage, ops, rounds, sent) = Default::default();
        let (map, joins, boot, next_command, now) = (replicas(), 0, 1, 1, START);
        Replica { shim, storage, ops, map, joins, rounds, sent, boot, next_command, now }
    }

    fn restart(&mut self) {
        let mut floors = Floors::default();
        self.storage.kept().iter().for_each(|range| floors.keep(*range, true));
        let loaded = Loaded {
            state: self.storage.state.clone(),
            floors,
            marks: self.storage.marks(),
            completions: self.storage.completions(),
            unconfirmed: self.storage.unconfirmed(),
        };
        self.boot += 1;
        let limits = NodeLimits { operations_max: OPERATIONS_MAX, ..NodeLimits::default() };
        let boot = self.boot;
        self.shim = Shim::new(0, boot, node(0), limits, Mechanisms::ALL, loaded, self.now)
            .expect("it wrote this state");
        self.ops.clear();
    }

    fn command(&mut self, draw: &mut Draw<'_>, epoch: u32, body: NodeCommand) {
        self.next_command += 1;
        let id = self.next_command;
        let message = Message::ToNode(Command { id, chain: ChainId::new(0), epoch, body });
        if let Some(Message::ToNode(command)) = draw.arrived(&message) {
            self.shim.handle_message(self.now, command);
        }
    }

    fn config(&self) -> NodeConfig {
        let (map, switch) = (self.map.clone(), Some(SWITCH));
        NodeConfig { hash_key: HASH_KEY, map, switch, lanes: LANES, refresh: Refresh::None }
    }

    fn drawn_command(&mut self, draw: &mut Draw<'_>) {
        let epoch = self.shim.epoch();
        match draw.below(6) {
            0 => {
                let config = self.config();
                let next = epoch + u32::from(draw.byte() % 2);
                self.command(draw, next, NodeCommand::Epoch(config));
            }
            1 => self.command(draw, epoch, NodeCommand::Release { floor: Seq::new(epoch, 0) }),
            2 => {
                let partition = draw.below(PARTITIONS.into()) as u16;
                let lists =
                    [vec![0], vec![0, 1], vec![1, 0], vec![1, 0, 2], vec![1], vec![2, 1, 0]];
                let number = self.map.numbered(partition).view + 1;
                let replicas = draw.one(&lists).clone();
                let views = [View { partition, number, replicas }];
                self.map = self.map.with_views(&views).expect("each has a replica");
                let views = self.map.changed_views().collect();
                self.command(draw, epoch, NodeCommand::Views(views));
            }
            3 => {
                self.joins += 1;
                let (version, joins) = (self.joins, draw.some(|draw| self.drawn_join(draw)));
                self.command(draw, epoch, NodeCommand::Joins { version, joins });
            }
            4 => {
                let stored = draw.some(|draw| draw.keyed_record(epoch));
                self.command(draw, epoch, NodeCommand::Store(stored));
            }
            _ => {
                let offers = draw.some(Draw::named_offer);
                self.command(draw, epoch, NodeCommand::ClearOffers(offers));
            }
        }
    }

    fn drawn_join(&self, draw: &mut Draw<'_>) -> Join {
        let partition = draw.below(PARTITIONS.into()) as u16;
        let (node, source) = *draw.one(&[(0, 1), (0, 2), (2, 0), (1, 0)]);
        Join { partition, number: 1 + draw.below(4), node, source }
    }

    fn effect(draw: &mut Draw<'_>, epoch: u32) -> Effect {
        let (hash, key) = draw.named_key();
        let record = (!draw.once_in(4)).then(|| draw.record(epoch));
        let offer = OfferId::from_bits(draw.below(3).into());
        let mark = Mark { fence: draw.seq(epoch), offer, floor: draw.seq(epoch) };
        let mark = draw.once_in(2).then_some(mark);
        let completions = draw.some(|draw| LaneCompletion {
            lane: draw.below(LANES + 1),
            request: draw.edgy(),
            seq: draw.seq(epoch),
        });
        let source = if draw.once_in(2) { Source::Cache } else { Source::Client };
        Effect { record, mark, completions, source, ..Effect::of(hash, key) }
    }

    fn answer_of(draw: &mut Draw<'_>, epoch: u32) -> Option<Answer> {
        let (hash, key) = draw.named_key();
        let op = if draw.once_in(2) { Op::WriteReply } else { Op::Read };
        let header = Header {
            key_hash: hash,
            routing: hash.routing(),
            epoch,
            view: draw.below(3),
            partition: draw.below(PARTITIONS.into()) as u16,
            ..Header::new(op)
        };
        let value = if op == Op::Read { Vec::new() } else { draw.value(64) };
        match draw.below(3) {
            0 => None,
            _ if op == Op::Read => Some(Answer::Read { header, key }),
            _ => Some(Answer::Packet { header, value, key }),
        }
    }

    fn at(draw: &mut Draw<'_>) -> CopyAt {
        match draw.below(4) {
            0 => CopyAt::Keys(KeyHash([draw.byte(); 16])),
            1 => CopyAt::Lanes(draw.below(LANES)),
            2 => CopyAt::Floors,
            _ => CopyAt::All,
        }
    }

    /// A message of another node, mostly of the round that is open.
    fn drawn_message(&mut self, draw: &mut Draw<'_>) -> LinkMessage {
        let partition = match draw.once_in(16) {
            true => draw.edgy() as u16,
            false => draw.below(PARTITIONS.into()) as u16,
        };
        let epoch = self.shim.epoch();
        let known = self.map.partitions().iter().find(|it| it.number == partition);
        let view = known.map_or(0, |it| it.view);
        let (round, number) = self.rounds.get(&partition).copied().unwrap_or_default();
        let (own, last) = self.sent.get(&partition).copied().unwrap_or_default();
        match draw.below(8) {
            0 => LinkMessage::Ask { partition, epoch, view },
            1 => LinkMessage::Ready { partition, epoch, view, round: draw.edgy() },
            2 => {
                let number = if draw.once_in(8) { draw.edgy() } else { last };
                LinkMessage::Confirm { partition, round: own, number }
            }
            3 => {
                let (hash, key) = draw.named_key();
                let hot = HotHint { hash, key, value_bytes: draw.edgy() as u32, count: 3 };
                LinkMessage::Hint { partition, hot }
            }
            4 => {
                let (join, from) = (1 + draw.below(4), Replica::at(draw));
                LinkMessage::Fetch { partition, join, from }
            }
            5 => LinkMessage::Copy(Box::new(Copy {
                partition,
                join: 1 + draw.below(4),
                round,
                after: number,
                from: Replica::at(draw),
                next: Replica::at(draw),
                effects: draw.some(|draw| Replica::effect(draw, epoch)),
                completions: Replica::effect(draw, epoch).completions,
                floors: draw.some(|draw| (draw.edgy() as u16, draw.seq(epoch))),
            })),
            _ => {
                let number = if draw.once_in(8) { draw.edgy() } else { number.wrapping_add(1) };
                self.rounds.insert(partition, (round, number));
                LinkMessage::Frame(Box::new(Frame {
                    partition,
                    epoch,
                    view,
                    boot: 7,
                    round,
                    number,
                    effect: draw.once_in(2).then(|| Replica::effect(draw, epoch)),
                    answer: Replica::answer_of(draw, epoch),
                    is_flush: draw.once_in(4),
                }))
            }
        }
    }

    /// It arrives: encoded, once in a while damaged, decoded and checked.
    fn hears(&mut self, draw: &mut Draw<'_>, message: &LinkMessage) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        if draw.once_in(16) {
            bytes = draw.damaged_file(&bytes);
        }
        if let Ok(message) = LinkMessage::decode(&bytes) {
            let from = 1 + u16::from(draw.byte() % 2);
            self.shim.handle_link(self.now, from, message);
        }
    }

    fn answer(&mut self, draw: &mut Draw<'_>, count: usize) {
        for _ in 0..count {
            let mut ops = Vec::new();
            self.shim.poll_ops(&mut ops);
            self.ops.extend(ops);
            let Some(op) = self.ops.pop_front() else { return };
            let fails = draw.once_in(16);
            let (id, reply) = self.storage.execute(draw, op);
            let result = if fails { Err(EngineError::Io("broken".into())) } else { Ok(reply) };
            self.shim.handle_done(self.now, EngineDone { id, result });
        }
    }

    /// Takes what it sends.
    fn hear(&mut self) {
        let mut packet = Packet::new();
        while self.shim.poll_packet(&mut packet).is_some() {
            assert!(packet.parse().is_ok(), "a node sends what is no packet");
        }
        while self.shim.poll_message().is_some() {}
        for count in 0.. {
            let Some((_, message)) = self.shim.poll_link() else { return };
            assert!(count < MESSAGES_MAX, "what it says at once has a limit");
            match &message {
                LinkMessage::Ready { partition, round, .. } => {
                    self.rounds.insert(*partition, (*round, 0));
                }
                LinkMessage::Frame(frame) => {
                    self.sent.insert(frame.partition, (frame.round, frame.number));
                }
                _ => {}
            }
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert!(LinkMessage::decode(&bytes).is_ok(), "a node says what others refuse");
        }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut draw = Draw::new(bytes);
    let mut replica = Replica::new();
    let none = &mut Draw::new(&[]);
    let config = replica.config();
    replica.command(none, 1, NodeCommand::Epoch(config));
    replica.answer(none, usize::MAX);
    replica.command(none, 1, NodeCommand::Begin);
    replica.answer(none, usize::MAX);
    replica.command(none, 1, NodeCommand::Release { floor: Seq::new(1, 0) });
    replica.answer(none, usize::MAX);
    replica.hear();
    for _ in 0..STEPS_MAX {
        if draw.is_empty() {
            break;
        }
        match draw.below(16) {
            0..3 => {
                let packet = draw.packet(OPS, replica.shim.epoch());
                replica.shim.handle_packet(replica.now, SWITCH, &packet);
            }
            3..9 => {
                let message = replica.drawn_message(&mut draw);
                replica.hears(&mut draw, &message);
            }
            9 | 10 => replica.drawn_command(&mut draw),
            11..14 => {
                let count = 1 + usize::from(draw.byte() % 8);
                replica.answer(&mut draw, count);
            }
            14 if draw.once_in(8) => replica.restart(),
            _ => {
                draw.pass(&mut replica.now);
                replica.shim.handle_timeout(replica.now);
            }
        }
        replica.hear();
        assert!(replica.shim.operations() < OPERATIONS_MAX + 4096, "operations have a limit");
    }
    replica.answer(&mut draw, 1 << 16);
    replica.hear();
});
