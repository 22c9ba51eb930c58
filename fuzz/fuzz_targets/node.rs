//! A node that serves, or waits for its release, or bypasses the switch: packets with right and
//! wrong keys, epochs and lanes, commands of the controller, answers of a storage that fails now
//! and then, time, restarts over what the storage has, damaged or of format 1.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::collections::VecDeque;
use switchback_core::control::{Command, Message, NamedCopy, NodeCommand, NodeConfig, Refresh};
use switchback_core::floors::{Bucket, Floors};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{
    EngineDone, EngineError, EngineOp, LaneCompletion, Loaded, Mark, OfferId,
};
use switchback_core::topology::ChainId;
use switchback_fuzz::storage::Storage;
use switchback_fuzz::{CLIENT, Draw, HASH_KEY, LANES, START, STEPS_MAX, SWITCH, map, node};
use switchback_wire::{Address, HashKey, Op, Packet, Seq, VALUE_BYTES_MAX};

/// What a node is sent, and once what it isn't.
const OPS: &[Op] = &[
    Op::Read,
    Op::Write,
    Op::Delete,
    Op::Fragment,
    Op::Fragment,
    Op::ReadFragment,
    Op::Scan,
    Op::CacheUpdateAck,
    Op::InvalidateAck,
    Op::Bounce,
];
const OPERATIONS_MAX: usize = 64;

struct Node {
    shim: Shim,
    storage: Storage,
    ops: VecDeque<EngineOp>,
    boot: u64,
    next_command: u64,
    now: switchback_core::Now,
}

/// The configuration as a node's state of format 1 has it: hash key, replicas of equal ranges,
/// switch, lanes, whether writes update the cache.
type Config1 = (HashKey, Vec<Vec<u16>>, Option<Address>, u32, bool);

fn limits() -> NodeLimits {
    NodeLimits {
        marks_max: 4,
        staged_bytes_max: VALUE_BYTES_MAX,
        operations_max: OPERATIONS_MAX,
        floor_period_us: 1_000_000,
        ..NodeLimits::default()
    }
}

impl Node {
    fn new() -> Node {
        let shim = Shim::new(0, 1, node(0), limits(), Mechanisms::ALL, Loaded::default(), START)
            .expect("an empty storage");
        let (storage, ops) = Default::default();
        Node { shim, storage, ops, boot: 1, next_command: 1, now: START }
    }

    /// It ends, and starts again over what is stored.
    fn restart(&mut self, draw: &mut Draw<'_>) {
        let is_whole = draw.once_in(2);
        let stored = self.storage.state.clone().unwrap_or_default();
        let state = match draw.below(2) {
            _ if is_whole => self.storage.state.clone(),
            0 => Some(draw.damaged_file(&stored)),
            _ => {
                let state = Node::state_1(draw);
                Some(if draw.once_in(4) { draw.damaged_file(&state) } else { state })
            }
        };
        let mut marks = self.storage.marks();
        let mut completions = Vec::new();
        let mut floors = Floors::default();
        if !is_whole {
            let epoch = self.shim.epoch();
            floors.raise_base(draw.found_chain(), draw.seq(epoch));
            let floor = |draw: &mut Draw<'_>| {
                let (chain, number) = (draw.found_chain(), draw.edgy() as u16 % 4);
                (Bucket { chain, number }, draw.seq(epoch))
            };
            for (bucket, floor) in draw.some(floor) {
                floors.raise(bucket, floor);
            }
            marks.extend(draw.some(|draw| {
                let (hash, key) = draw.named_key();
                let offer = OfferId::from_bits(draw.edgy());
                (hash, key, Mark { fence: draw.seq(epoch), offer, floor: draw.seq(epoch) })
            }));
            completions = draw.some(|draw| {
                let (lane, request) = (draw.edgy() as u32, draw.edgy());
                LaneCompletion { lane, request, seq: draw.seq(epoch) }
            });
        }
        let unconfirmed = Vec::new();
        let loaded = Loaded { state, floors, marks, completions, unconfirmed };
        self.boot += 1;
        match Shim::new(0, self.boot, node(0), limits(), Mechanisms::ALL, loaded, self.now) {
            Ok(shim) => {
                self.shim = shim;
                self.ops.clear();
            }
            Err(error) => assert!(!is_whole, "it wrote this state: {error}"),
        }
    }

    fn state_1(draw: &mut Draw<'_>) -> Vec<u8> {
        let routes = vec![vec![0]; [1, 2, 4, 3][draw.below(4) as usize]];
        let switch = (!draw.once_in(4)).then_some(SWITCH);
        let config: Config1 = (HASH_KEY, routes, switch, LANES, draw.once_in(4));
        let epoch = draw.edgy() as u32;
        let state = (epoch, draw.once_in(2), (!draw.once_in(4)).then_some(config));
        postcard::to_stdvec(&state).expect("plain data has an encoding")
    }

    fn config(draw: &mut Draw<'_>) -> NodeConfig {
        let switch = (!draw.once_in(4)).then_some(SWITCH);
        let refresh = match draw.below(8) {
            0 | 1 => Refresh::Updates,
            2 | 3 => Refresh::Copies,
            _ => Refresh::None,
        };
        NodeConfig { hash_key: HASH_KEY, map: map(), switch, lanes: LANES, refresh }
    }

    /// A copy, in the switch or elsewhere, of a few incarnations.
    fn copy(draw: &mut Draw<'_>) -> NamedCopy {
        let (hash, key) = draw.named_key();
        let switch = if draw.once_in(4) { CLIENT } else { SWITCH };
        NamedCopy { hash, key, switch, entry: draw.below(4).into() }
    }

    fn command(&mut self, draw: &mut Draw<'_>, epoch: u32, body: NodeCommand) {
        let id = if draw.once_in(16) { draw.edgy() } else { self.next_command };
        self.next_command += 1;
        let chain = draw.chain();
        let message = Message::ToNode(Command { id, chain, epoch, body });
        if let Some(Message::ToNode(command)) = draw.arrived(&message) {
            self.shim.handle_message(self.now, command);
        }
    }

    fn drawn_command(&mut self, draw: &mut Draw<'_>) {
        let epoch = self.shim.epoch();
        let (body, epoch) = match draw.below(9) {
            0 => {
                let config = Node::config(draw);
                let next = if draw.once_in(8) {
                    draw.edgy() as u32
                } else {
                    epoch + u32::from(draw.byte() % 2)
                };
                (NodeCommand::Epoch(config), next)
            }
            1 => (NodeCommand::Store(draw.some(|draw| draw.keyed_record(epoch))), epoch),
            2 => (NodeCommand::Release { floor: draw.seq(epoch) }, epoch),
            3 => (NodeCommand::ClearOffers(draw.some(Draw::named_offer)), epoch),
            4 => (NodeCommand::OfferAgain, epoch),
            5 => (NodeCommand::OfferKeys(draw.some(Draw::named_key)), epoch),
            6 => (NodeCommand::OffersHeld(draw.some(Draw::named_offer)), epoch),
            7 => (NodeCommand::RegisterCopies(draw.some(Node::copy)), epoch),
            _ => (NodeCommand::OfferAgain, draw.edgy() as u32),
        };
        self.command(draw, epoch, body);
    }

    /// The storage answers some operations, in order.
    fn answer(&mut self, draw: &mut Draw<'_>, count: usize) {
        let mut ops = Vec::new();
        self.shim.poll_ops(&mut ops);
        self.ops.extend(ops);
        for _ in 0..count {
            let Some(op) = self.ops.pop_front() else { return };
            let fails = draw.once_in(16);
            let (id, reply) = self.storage.execute(draw, op);
            let result = match fails {
                true if draw.once_in(2) => Err(EngineError::NoSpace("/data".into())),
                true => Err(EngineError::Io("broken".into())),
                false => Ok(reply),
            };
            self.shim.handle_done(self.now, EngineDone { id, result });
            let mut ops = Vec::new();
            self.shim.poll_ops(&mut ops);
            self.ops.extend(ops);
        }
    }

    /// Takes what it sends: packets that are in order.
    fn hear(&mut self) {
        let mut packet = Packet::new();
        while self.shim.poll_packet(&mut packet).is_some() {
            assert!(packet.parse().is_ok(), "a node sends what is no packet");
        }
        while self.shim.poll_message().is_some() {}
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut draw = Draw::new(bytes);
    let mut node = Node::new();
    let config = Node::config(&mut draw);
    node.shim.handle_message(
        node.now,
        Command { id: 1 << 32, chain: ChainId::new(0), epoch: 1, body: NodeCommand::Epoch(config) },
    );
    node.answer(&mut Draw::new(&[]), usize::MAX);
    let release = NodeCommand::Release { floor: Seq::new(1, 0) };
    node.shim.handle_message(
        node.now,
        Command { id: 2 << 32, chain: ChainId::new(0), epoch: 1, body: release },
    );
    node.answer(&mut Draw::new(&[]), usize::MAX);
    for _ in 0..STEPS_MAX {
        if draw.is_empty() {
            break;
        }
        match draw.below(8) {
            0..4 => {
                let packet = draw.packet(OPS, node.shim.epoch());
                let from = if draw.once_in(16) { CLIENT } else { SWITCH };
                node.shim.handle_packet(node.now, from, &packet);
            }
            4 => node.drawn_command(&mut draw),
            5 | 6 => {
                let count = 1 + usize::from(draw.byte() % 8);
                node.answer(&mut draw, count);
            }
            _ if draw.once_in(4) => node.restart(&mut draw),
            _ => {
                draw.pass(&mut node.now);
                node.shim.handle_timeout(node.now);
            }
        }
        node.hear();
        assert!(node.shim.operations() < OPERATIONS_MAX + 1024, "operations have a limit");
    }
    node.answer(&mut draw, usize::MAX);
    node.hear();
});
