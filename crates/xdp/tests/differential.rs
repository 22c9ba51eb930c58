//! The same random packets through both builds of the pipeline: the same verdicts, packets,
//! reports, statistics and state.
//!
//! `FUZZ_SEED` and `FUZZ_STEPS` look further; a failure names both.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::conformance::Subject;
use common::{Kernel, may_load};
use std::env;
use switchback_datapath::*;
use switchback_wire::Scheme;
use switchback_wire::*;

const KEYS: u32 = 7;
const LANES: u32 = 6;
const SLOTS: u32 = 3;
const CLASSES: [u32; 2] = [24, 200];
const CLIENT: Address = Address::in_memory(1, 1);
const NODE: Address = Address::in_memory(2, 0);
/// The switches before and after in the chain.
const BEFORE: Address = Address::in_memory(4, 1);
const AFTER: Address = Address::in_memory(4, 2);

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
    }
    fn below(&mut self, bound: u32) -> u32 {
        (self.next() % u64::from(bound)) as u32
    }
    fn one_in(&mut self, n: u32) -> bool {
        self.below(n) == 0
    }
    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u32) as usize]
    }
}

fn key(i: u32) -> Vec<u8> {
    // The kernel's build moves keys of 8 to 16 bytes by two words that overlap.
    let lengths = [7, 8, 9, 16, 17, 128, 129];
    (0..lengths[i as usize]).map(|at| b'a' + (i + at) as u8).collect()
}

fn hash(i: u32) -> KeyHash {
    HashKey([9; 16]).hash(&key(i))
}

/// A place with the neighbours that it has.
fn chained(position: u8, length: u8) -> Place {
    Place {
        position,
        length,
        before: (position > 1).then_some(BEFORE),
        after: (position < length).then_some(AFTER),
        protects: length == 2,
    }
}

/// Each scheme on the only switch of a chain, and write-back on each role in a longer one.
fn subjects() -> Vec<(Features, Place)> {
    let layered = Features::of(Scheme::FarReach).with(Features::LAYERS);
    let places = [chained(2, 2), chained(1, 2), chained(2, 3)];
    let sole = Scheme::ALL.into_iter().map(|scheme| (Features::of(scheme), Place::sole()));
    sole.chain(places.map(|place| (layered, place))).collect()
}

/// Keys have places, mostly, so that they are found there.
fn place(random: &mut Random, i: u32) -> (u8, u32) {
    match random.one_in(8) {
        true => (random.below(3) as u8, random.below(SLOTS + 1)),
        false => ((i % 2) as u8, (i / 2) % SLOTS),
    }
}

fn config(features: Features) -> Config {
    Config {
        features,
        classes: CLASSES.map(|value_bytes| ClassConfig { value_bytes, slots: SLOTS }).to_vec(),
        lanes: 8,
        partitions: 4,
        nodes: 4,
        sketch_width: 256,
        reports: 64,
        threshold: 3,
        ..Config::default()
    }
}

/// Both builds, side by side.
struct Pair {
    native: Datapath,
    kernel: Kernel,
    before: Statistics,
    place: Place,
}

impl Pair {
    fn new(features: Features, place: Place) -> Pair {
        let config = config(features);
        let (native, kernel) = (Datapath::new(&config).unwrap(), <Kernel as Subject>::new(&config));
        let before = kernel.statistics();
        let pair = Pair { native, kernel, before, place };
        // One bucket has a range of its own, and ranges meet in the others.
        let starts = [0, 1 << 126 | 5, 1 << 127, 7 << 125];
        let partition = |(number, start)| {
            let start = RoutingKey(start);
            Partition { number, start, view: 0, chain: 0, replicas: vec![number % 2, 3] }
        };
        let map = Map::new((0..).zip(starts).map(partition).collect()).unwrap();
        pair.native.set_map(&map).unwrap();
        pair.kernel.set_map(&map).unwrap();
        for node in 0..2 {
            let address = Address { port: NODE.port + node, ..NODE };
            pair.native.set_node(node, address);
            pair.kernel.set_node(node, address);
        }
        pair.native.set_place(&place).unwrap();
        pair.kernel.set_place(&place).unwrap();
        pair.native.set_lanes(LANES);
        pair.kernel.set_lanes(LANES);
        pair
    }

    /// An epoch, and most keys cached.
    fn begin(&self) {
        let both = |header: Header, key: &[u8]| {
            let mut packet = Packet::build(Header { epoch: 1, ..header }, &[], key);
            assert_eq!(self.kernel.inject(&mut packet.clone()), Verdict::Reply);
            assert_eq!(self.native.inject(&mut packet), Verdict::Reply);
        };
        both(Header { generation: 1, ..Header::new(Op::SetEpoch) }, b"-");
        for i in 0..KEYS - 1 {
            let (class, slot) = ((i % 2) as u8, (i / 2) % SLOTS);
            let at = location(class, slot).unwrap();
            let header = |op| Header { location: at, key_hash: hash(i), ..Header::new(op) };
            both(header(Op::Admit), &key(i));
            self.native.lookup_insert(&hash(i), class, slot).unwrap();
            self.kernel.lookup_insert(&hash(i), class, slot).unwrap();
            both(header(Op::SetValid), &key(i));
        }
    }

    fn step(&self, random: &mut Random, forwarded: &mut Vec<Packet>, turn: u64) -> String {
        if random.one_in(12) {
            let i = random.below(KEYS);
            let (class, slot) = place(random, i);
            if random.one_in(4) {
                let native = self.native.lookup_remove(&hash(i), class, slot);
                assert_eq!(native, self.kernel.lookup_remove(&hash(i), class, slot), "removed");
            } else {
                let native = self.native.lookup_insert(&hash(i), class, slot);
                assert_eq!(native, self.kernel.lookup_insert(&hash(i), class, slot), "inserted");
            }
            return "table".to_owned();
        }
        let (mut packet, from) = packet(random, forwarded, turn, &self.place);
        let said = format!(
            "{:02x?} from {from:?}",
            &packet.bytes()[..packet.bytes().len().min(HEADER_BYTES)]
        );
        let mut other = packet.clone();
        let dice = random.next() as u32 | 1;
        let now_ms = 1000 + turn;
        let (native, kernel) = match from {
            Some(from) => (
                self.native.process(&mut packet, from, now_ms, dice, Shard::default()),
                self.kernel.process(&mut other, from, now_ms, dice),
            ),
            None => (self.native.inject(&mut packet), self.kernel.inject(&mut other)),
        };
        assert_eq!(native, kernel, "the verdict on {said}");
        if !matches!(native, Verdict::Drop(_)) {
            assert_eq!(packet.bytes(), other.bytes(), "the packet that came of {said}");
        }
        if matches!(native, Verdict::Forward(_)) || native == Verdict::ToSwitch(Neighbour::After) {
            forwarded.push(packet);
            if forwarded.len() > 16 {
                forwarded.remove(0);
            }
        }
        said
    }

    fn compare(&self) {
        assert_eq!(self.native.peek_registers(), self.kernel.peek_registers());
        for i in 0..KEYS {
            assert_eq!(self.native.peek_sequence(&hash(i)), self.kernel.peek_sequence(&hash(i)));
        }
        for lane in 0..8 {
            assert_eq!(self.native.peek_lane(lane), self.kernel.peek_lane(lane), "lane {lane}");
        }
        for class in 0..3 {
            for slot in 0..=SLOTS {
                let (native, kernel) =
                    (self.native.peek_record(class, slot), self.kernel.peek_record(class, slot));
                assert_eq!(native, kernel, "record {class}.{slot}");
            }
        }
        let (mut native, mut kernel) = (Packet::new(), Packet::new());
        loop {
            let more = self.native.next_report(&mut native);
            assert_eq!(more, self.kernel.next_report(&mut kernel), "a report");
            if !more {
                break;
            }
            assert_eq!(native.bytes(), kernel.bytes(), "the report");
        }
        let counted = self.kernel.statistics();
        for (((name, native), (_, kernel)), (_, before)) in
            self.native.statistics().iter().zip(counted.iter()).zip(self.before.iter())
        {
            assert_eq!(native, kernel - before, "{name}");
        }
    }
}

/// A packet and its sender; `None`: the agent.
fn packet(
    random: &mut Random,
    forwarded: &[Packet],
    turn: u64,
    place: &Place,
) -> (Packet, Option<Address>) {
    let (mut packet, mut from) = match random.below(10) {
        0..=4 => (request(random, turn, place), Some(place.before.unwrap_or(CLIENT))),
        5..=7 if !forwarded.is_empty() => {
            (answer(random, forwarded, place), Some(place.after.unwrap_or(NODE)))
        }
        _ => (control(random), None),
    };
    if random.one_in(40) {
        let at = random.below(packet.bytes().len() as u32) as usize;
        packet.buffer_mut()[at] ^= 1 << random.below(8);
    }
    if random.one_in(60) {
        packet.set_length((packet.bytes().len() - 1).max(14));
    }
    if random.one_in(60) {
        from = random.of(&[
            Some(CLIENT),
            Some(NODE),
            Some(Address { port: 1 + NODE.port, ..NODE }),
            None,
        ]);
    }
    (packet, from)
}

/// Of a length that a packet has room for beside the key.
fn value(random: &mut Random, key: &[u8]) -> Vec<u8> {
    let length: usize = random.of(&[0, 1, 8, 23, 24, 25, 100, 200, 201, 1024, 1168, 1170]);
    vec![random.next() as u8; length.min(fragment_bytes(key.len()))]
}

fn request(random: &mut Random, turn: u64, place: &Place) -> Packet {
    let i = random.below(KEYS);
    let op = random.of(&[
        Op::Read,
        Op::Read,
        Op::Write,
        Op::Write,
        Op::Delete,
        Op::Fragment,
        Op::ReadFragment,
        Op::Scan,
    ]);
    let flag =
        random.of(&[0, 0, 0, flags::CONDITIONAL, flags::LARGE, flags::EMBEDDED | flags::FENCED]);
    let mut header = Header { epoch: 1, flags: flag, key_hash: hash(i), ..Header::new(op) };
    header.hop = place.position - 1;
    header.lane = random.below(LANES + 1);
    header.request = if random.one_in(4) { turn.saturating_sub(random.next() % 8) } else { turn };
    header.guard = Seq::new(1, random.next() % 6).0;
    header.expiry_ms = if random.one_in(4) { 1000 + turn + random.next() % 20 } else { 0 };
    if random.one_in(30) {
        header.epoch = random.below(3);
    }
    let value =
        if op == Op::Read && !random.one_in(10) { Vec::new() } else { value(random, &key(i)) };
    Packet::build(header, &value, &key(i))
}

fn answer(random: &mut Random, forwarded: &[Packet], place: &Place) -> Packet {
    let asked = &forwarded[random.below(forwarded.len() as u32) as usize];
    let parts = asked.parse().unwrap();
    let mut header = parts.header;
    let is_read = header.op == Op::Read;
    header.op = match (header.op, random.below(8)) {
        (Op::Read, 0) | (Op::Write, 0) => Op::CacheUpdate,
        (Op::Read, _) => Op::ReadReply,
        (Op::Write | Op::Delete, 1..=2) => Op::Bounce,
        (Op::Delete, 0) => Op::Invalidate,
        (Op::Write | Op::Delete, _) => Op::WriteReply,
        (other, _) => other,
    };
    if header.op == Op::Bounce && parts.header.op == Op::Delete {
        header.flags |= flags::DELETE;
    }
    header.status = random.of(&[
        Status::Ok,
        Status::Ok,
        Status::NotFound,
        Status::ConditionFailed,
        Status::NoSpace,
    ]);
    let is_keeper = place.after.is_some();
    if is_read || is_keeper {
        header.seq = Seq::new(1, random.next() % 20);
    }
    header.hop = place.position + 1;
    if is_keeper {
        header.flags |= random.of(&[0, flags::CACHED, flags::CACHED]);
        header.record_flags =
            random.of(&[0, record_flags::DIRTY, record_flags::DIRTY | record_flags::TOMBSTONE]);
        header.generation = random.below(9);
    }
    let value = if header.op == Op::WriteReply && !is_keeper {
        Vec::new()
    } else {
        value(random, parts.key)
    };
    Packet::build(header, &value, parts.key)
}

fn control(random: &mut Random) -> Packet {
    let i = random.below(KEYS - 1);
    let op = random.of(&[
        Op::Admit,
        Op::Admit,
        Op::SetValid,
        Op::SetValid,
        Op::SetValid,
        Op::EvictBegin,
        Op::Remove,
        Op::LoadRecord,
        Op::LoadCounters,
        Op::AgeCounters,
        Op::AgeSketch,
        Op::SnapshotBegin,
        Op::SnapshotEnd,
        Op::SetDurableGeneration,
        Op::SetEpoch,
        Op::LoadLane,
        Op::Clean,
        Op::Forget,
        Op::Freeze,
    ]);
    let mut header = Header { epoch: 1, key_hash: hash(i), ..Header::new(op) };
    let (class, slot) = place(random, i);
    header.location = location(class, slot).unwrap_or(NO_LOCATION);
    header.request = u64::from(random.below(6) / 4);
    header.generation = 1 + random.below(40) / (1 + random.below(40));
    header.durable_generation = random.below(9);
    header.total_bytes = random.below(80);
    header.lane = random.below(LANES + 1);
    if op == Op::AgeSketch {
        header.guard = random.below(4).into();
    }
    header.seq = Seq::new(1, random.next() % 20);
    if matches!(op, Op::SetEpoch | Op::Freeze) && random.one_in(10) {
        header.epoch = random.below(3);
    }
    // Now and then one that there isn't.
    let place = chained(1 + random.below(3) as u8, 1 + random.below(3) as u8).encode();
    Packet::build(header, if op == Op::Freeze { &place } else { &[] }, &key(i))
}

fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

#[test]
fn both_builds_do_the_same() {
    if !may_load() {
        return;
    }
    let (seed, steps) = (number("FUZZ_SEED", 1), number("FUZZ_STEPS", 20_000));
    for (i, (features, place)) in subjects().into_iter().enumerate() {
        let mut random = Random((seed + i as u64 * 1000).wrapping_mul(0x2545_f491_4f6c_dd1d) | 1);
        let mut pair = Pair::new(features, place);
        let mut forwarded = Vec::new();
        let mut last = String::new();
        let mut totals = [0; 8];
        for turn in 0..steps {
            // Begins with empty tables now and then, since some states are never left.
            if turn % 500 == 0 {
                add(&mut totals, &pair.native.statistics());
                pair = Pair::new(features, place);
                pair.begin();
            }
            let at = format!("FUZZ_SEED={seed} {features:?} {place:?} step {turn} after {last}");
            let run = std::panic::AssertUnwindSafe(|| {
                let said = pair.step(&mut random, &mut forwarded, turn);
                if turn % 20 == 19 {
                    pair.compare();
                }
                said
            });
            match std::panic::catch_unwind(run) {
                Ok(said) => last = said,
                Err(panic) => {
                    eprintln!("{at}");
                    std::panic::resume_unwind(panic);
                }
            }
        }
        // The run went where it was to go.
        let enough = totals.iter().filter(|total| **total > steps / 10_000).count();
        let is_keeper = place.after.is_some();
        let wanted = match (features.has(Features::CACHE), features.has(Features::WRITE_BACK)) {
            _ if is_keeper => 2,
            // Updates name an incarnation, which the request of a write seldom is.
            _ if features.has(Features::COPIES) => 2,
            (false, _) => 0,
            (true, false) => 4,
            (true, true) => 6,
        };
        assert!(
            enough >= wanted,
            "hits, absorbed, embedded or updates, promotions, reports, passed, kept: {totals:?}"
        );
    }
}

fn add(totals: &mut [u64; 8], counted: &Statistics) {
    let seen = [
        counted.read_hits,
        counted.write_hits,
        counted.absorbed_writes + counted.cache_updates_applied,
        counted.embedded_reads,
        counted.promotions,
        counted.reports,
        counted.passed,
        counted.kept,
    ];
    for (total, seen) in totals.iter_mut().zip(seen) {
        *total += seen;
    }
}
