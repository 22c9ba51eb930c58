//! Runs `datapath/vectors/*.json` on any build of the pipeline. Their README says what they mean.

// Not every build needs all of it; a failed unwrap is a failed test.
#![allow(dead_code, clippy::unwrap_used)]

use serde_json::{Map, Value, json};
use std::fs;
use std::panic::catch_unwind;
use switchback_datapath::state::{Lane, Record, Registers, bits, lane};
use switchback_datapath::*;
use switchback_wire::*;

/// A build of the pipeline: what a vector needs of it.
pub(crate) trait Subject {
    fn new(config: &Config) -> Self;
    fn control(&self) -> &impl Control;
    fn process(&self, packet: &mut Packet, from: Address, now_ms: u64, random: u32) -> Verdict;
    fn statistics(&self) -> Statistics;
    fn peek_registers(&self) -> Registers;
    fn peek_sequence(&self, hash: &KeyHash) -> u64;
    fn peek_lane(&self, lane: u32) -> Option<Lane>;
    fn peek_record(&self, class: u8, slot: u32) -> Option<Record>;
    fn poke_registers(&self, registers: &Registers);
    fn poke_sequence(&self, hash: &KeyHash, counter: u64);
    fn poke_sketch(&self, hash: &KeyHash, estimate: u32);
    fn poke_lane(&self, lane: u32, entry: &Lane) -> bool;
    fn poke_record(&self, class: u8, slot: u32, record: &Record) -> bool;
}

/// Passes everything on to the methods of the same names. `$process` says how a packet is
/// processed.
macro_rules! subject {
    (
        $type:ty as $inner:ty,
        |$this:ident, $packet:ident, $from:ident, $now_ms:ident, $random:ident| $process:expr,
        $new:expr
    ) => {
        impl Subject for $type {
            fn new(config: &Config) -> Self {
                $new(config)
            }
            fn control(&self) -> &impl Control {
                let this: &$inner = self;
                this
            }
            fn process(
                &self,
                $packet: &mut Packet,
                $from: Address,
                $now_ms: u64,
                $random: u32,
            ) -> Verdict {
                let $this: &$inner = self;
                $process
            }
            fn statistics(&self) -> Statistics {
                <$inner>::statistics(self)
            }
            fn peek_registers(&self) -> Registers {
                <$inner>::peek_registers(self)
            }
            fn peek_sequence(&self, hash: &KeyHash) -> u64 {
                <$inner>::peek_sequence(self, hash)
            }
            fn peek_lane(&self, lane: u32) -> Option<Lane> {
                <$inner>::peek_lane(self, lane)
            }
            fn peek_record(&self, class: u8, slot: u32) -> Option<Record> {
                <$inner>::peek_record(self, class, slot)
            }
            fn poke_registers(&self, registers: &Registers) {
                <$inner>::poke_registers(self, registers);
            }
            fn poke_sequence(&self, hash: &KeyHash, counter: u64) {
                <$inner>::poke_sequence(self, hash, counter);
            }
            fn poke_sketch(&self, hash: &KeyHash, estimate: u32) {
                <$inner>::poke_sketch(self, hash, estimate);
            }
            fn poke_lane(&self, lane: u32, entry: &Lane) -> bool {
                <$inner>::poke_lane(self, lane, entry)
            }
            fn poke_record(&self, class: u8, slot: u32, record: &Record) -> bool {
                <$inner>::poke_record(self, class, slot, record)
            }
        }
    };
}
#[allow(unused_imports)] // For others than the native build.
pub(crate) use subject;

subject!(
    Datapath as Datapath,
    |this, packet, from, now_ms, random| Datapath::process(
        this,
        packet,
        from,
        now_ms,
        random,
        Shard::default()
    ),
    |config| Datapath::new(config).unwrap()
);

const CLIENT: Address = Address::in_memory(1, 1);
const NODE: Address = Address::in_memory(2, 0);
const STRANGER: Address = Address::in_memory(3, 0);
/// The switches before and after in the chain.
const BEFORE: Address = Address::in_memory(4, 1);
const AFTER: Address = Address::in_memory(4, 2);
const LANE: u32 = 1;
const SLOT: u32 = 2;
const INCARNATION: u64 = 77;
const VIEW: u32 = 9;

fn key_hash() -> KeyHash {
    KeyHash(0xc123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes())
}

fn hash(value: &Value) -> KeyHash {
    KeyHash(u128::from_str_radix(value.as_str().unwrap(), 16).unwrap().to_be_bytes())
}

/// Bits from names with spaces between.
fn named<T: Copy + std::iter::Sum>(value: &Value, names: &[(&str, T)]) -> T {
    let bit = |name| {
        names.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no bit {name}")).1
    };
    value.as_str().unwrap().split_whitespace().map(bit).sum()
}

const FLAGS: &[(&str, u16)] = &[
    ("HOT", flags::HOT),
    ("CACHED", flags::CACHED),
    ("FENCED", flags::FENCED),
    ("EMBEDDED", flags::EMBEDDED),
    ("CONDITIONAL", flags::CONDITIONAL),
    ("LARGE", flags::LARGE),
    ("DELETE", flags::DELETE),
];
const RECORD_FLAGS: &[(&str, u8)] =
    &[("TOMBSTONE", record_flags::TOMBSTONE), ("DIRTY", record_flags::DIRTY)];
const STATES: &[(&str, u8)] = &[
    ("VALID", bits::VALID),
    ("LATEST", bits::LATEST),
    ("EVICTING", bits::EVICTING),
    ("REFRESH", bits::REFRESH),
    ("TOMBSTONE", bits::TOMBSTONE),
    ("DIRTY", bits::DIRTY),
    ("DEPENDENT", bits::DEPENDENT),
];
const LANE_STATES: &[(&str, u8)] = &[
    ("APPLIED", lane::APPLIED),
    ("CONDITION_FAILED", lane::CONDITION_FAILED),
    ("FORWARDED", lane::FORWARDED),
    ("DONE", lane::DONE),
];

pub(crate) fn op(value: &Value) -> Op {
    let name = value.as_str().unwrap().replace('_', "");
    *Op::ALL.iter().find(|op| format!("{op:?}").eq_ignore_ascii_case(&name)).unwrap()
}

fn status(value: &Value) -> Status {
    let name = value.as_str().unwrap().replace('_', "");
    *Status::ALL.iter().find(|status| format!("{status:?}").eq_ignore_ascii_case(&name)).unwrap()
}

/// `11`: counter 11 of epoch 5; `"4|9"`; 0: none.
fn seq(value: &Value) -> u64 {
    if let Some(text) = value.as_str() {
        let (epoch, counter) = text.split_once('|').unwrap();
        return Seq::new(epoch.parse().unwrap(), counter.parse().unwrap()).0;
    }
    match value.as_u64().unwrap() {
        0 => 0,
        counter => Seq::new(5, counter).0,
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.as_str().unwrap().as_bytes().to_vec()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    value.as_u64().and_then(|number| T::try_from(number).ok()).unwrap()
}

/// All state that a vector can see.
#[derive(Clone, PartialEq, Debug)]
struct State {
    registers: Registers,
    last: u64,
    lane: Lane,
    record: Record,
    heard: Heard,
}

/// State and settings that are not compared.
#[derive(Clone)]
struct Before {
    state: State,
    has_record: bool,
    found: bool,
    sketch: u32,
    sampled: bool,
}

fn before_default() -> Before {
    let registers =
        Registers { epoch: 5, generation: 3, durable_generation: 2, ..Registers::default() };
    let (lane, record, heard) = (Lane::default(), Record::default(), Heard::default());
    let state = State { registers, last: 10, lane, record, heard };
    Before { state, has_record: false, found: true, sketch: 0, sampled: false }
}

fn apply_record(record: &mut Record, fields: &Map<String, Value>, found: &mut bool) {
    for (name, value) in fields {
        match name.as_str() {
            "state" => record.state = named(value, STATES),
            "seq" => record.seq = seq(value),
            "adm" => record.adm = seq(value),
            "expiry_ms" => record.expiry_ms = number(value),
            "generation" => record.generation = number(value),
            "incarnation" => record.incarnation = number(value),
            "counter" => record.counter = number(value),
            "key" => record.key = bytes(value),
            "value" => record.value = bytes(value),
            "found" => *found = value.as_bool().unwrap(),
            _ => panic!("no such field of a record: {name}"),
        }
    }
    if record.state & bits::VALID != 0 && record.adm == 0 {
        record.adm = Seq::new(5, 0).0;
    }
}

fn apply_lane(lane: &mut Lane, fields: &Map<String, Value>) {
    for (name, value) in fields {
        match name.as_str() {
            "request" => lane.request = number(value),
            "seq" => lane.seq = seq(value),
            "state" => lane.state = named(value, LANE_STATES),
            "status" => lane.status = status(value) as u8,
            "flags" => lane.flags = named(value, FLAGS),
            "locked" => lane.locked = value.as_bool().unwrap(),
            "epoch" => lane.epoch = number(value),
            _ => panic!("no such field of a lane: {name}"),
        }
    }
    if lane.state != lane::NONE && lane.epoch == 0 {
        lane.epoch = 5;
    }
}

/// `{"position": 2, "length": 3}`, with the neighbours that it has there.
fn place(value: &Value) -> Place {
    let (position, length) = (number(&value["position"]), number(&value["length"]));
    Place {
        position,
        length,
        before: (position > 1).then_some(BEFORE),
        after: (position < length).then_some(AFTER),
        protects: value.get("protects").is_some_and(|protects| protects == true),
    }
}

/// `{"before": [1, 0]}`: short and full probes.
fn heard(value: &Value) -> Heard {
    let counts = |side: &str, i: usize| value.get(side).map_or(0, |counts| number(&counts[i]));
    let [before, after] = ["before", "after"].map(|side| [counts(side, 0), counts(side, 1)]);
    Heard::from_counts([before[0], before[1], after[0], after[1]])
}

/// The probes that came between two looks.
fn since(before: Heard, now: Heard) -> Heard {
    let probes = |now: Probes, before: Probes| Probes {
        short: now.short - before.short,
        full: now.full - before.full,
    };
    Heard { before: probes(now.before, before.before), after: probes(now.after, before.after) }
}

fn apply_state(before: &mut Before, fields: &Value) {
    let Some(fields) = fields.as_object() else { return };
    let state = &mut before.state;
    for (name, value) in fields {
        match name.as_str() {
            "epoch" => state.registers.epoch = number(value),
            "generation" => state.registers.generation = number(value),
            "durable_generation" => state.registers.durable_generation = number(value),
            "snapshot" => state.registers.snapshot_active = value.as_bool().unwrap(),
            "place" => state.registers.place = place(value),
            "last" => state.last = number(value),
            "heard" => state.heard = heard(value),
            "sketch" => before.sketch = number(value),
            "sampled" => before.sampled = value.as_bool().unwrap(),
            "lane" => apply_lane(&mut state.lane, value.as_object().unwrap()),
            "record" => {
                if !before.has_record {
                    before.has_record = true;
                    let (hash, key) = (key_hash(), b"key".to_vec());
                    state.record = Record {
                        generation: 3,
                        incarnation: INCARNATION,
                        hash,
                        key,
                        ..Record::default()
                    };
                }
                apply_record(&mut state.record, value.as_object().unwrap(), &mut before.found);
            }
            _ => panic!("no such state: {name}"),
        }
    }
}

/// A packet's parts, as a vector names them.
#[derive(Clone, PartialEq, Debug)]
struct Parts {
    header: Header,
    value: Vec<u8>,
    key: Vec<u8>,
}

fn address(value: &Value) -> Address {
    match value.as_str().unwrap() {
        "client" => CLIENT,
        "node" => NODE,
        "stranger" => STRANGER,
        "before" => BEFORE,
        "after" => AFTER,
        "agent" => Address::default(),
        other => panic!("who is {other}?"),
    }
}

fn apply_packet(parts: &mut Parts, fields: &Value) {
    let header = &mut parts.header;
    for (name, value) in fields.as_object().unwrap() {
        match name.as_str() {
            "op" => header.op = op(value),
            "flags" => header.flags = named(value, FLAGS),
            "status" => header.status = status(value),
            "epoch" => header.epoch = number(value),
            "hop" => header.hop = number(value),
            "ttl" => header.ttl = number(value),
            "tag" => header.tag = number(value),
            "view" => header.view = number(value),
            "session" => header.session = number(value),
            "partition" => header.partition = number(value),
            "seq" => header.seq = Seq(seq(value)),
            "guard" => header.guard = seq(value),
            "guard_number" => header.guard = number(value),
            "state" => header.guard = named(value, STATES).into(),
            "request" => header.request = number(value),
            "lane" => header.lane = number(value),
            "generation" => header.generation = number(value),
            "durable_generation" => header.durable_generation = number(value),
            "expiry_ms" => header.expiry_ms = number(value),
            "total_bytes" => header.total_bytes = number(value),
            "fragment_index" => header.fragment_index = number(value),
            "fragment_count" => header.fragment_count = number(value),
            "record_flags" => header.record_flags = named(value, RECORD_FLAGS),
            "location" => header.location = number(value),
            "origin" => header.origin = address(value),
            "value" => parts.value = bytes(value),
            "value_bytes" => parts.value = vec![0; number(value)],
            "place" => parts.value = place(value).encode().to_vec(),
            "key" => parts.key = bytes(value),
            "hash" => header.key_hash = hash(value),
            "routing" => header.routing = hash(value).routing(),
            "from" | "cut" | "pad" | "patch" => {}
            _ => panic!("no such field of a packet: {name}"),
        }
    }
    header.value_bytes = parts.value.len() as u16;
    header.key_bytes = parts.key.len() as u16;
}

fn packet_in(fields: &Value) -> Parts {
    let is_control = op(&fields["op"]) as u8 >= Op::Admit as u8;
    let mut header =
        Header { epoch: 5, lane: LANE, request: 7, key_hash: key_hash(), ..Header::new(Op::Read) };
    if is_control {
        (header.request, header.location) = (INCARNATION, SLOT);
    }
    let mut parts = Parts { header, value: Vec::new(), key: b"key".to_vec() };
    apply_packet(&mut parts, fields);
    parts
}

fn packet_bytes(parts: &Parts, fields: &Value) -> Packet {
    let mut packet = Packet::build(parts.header, &parts.value, &parts.key);
    if let Some(patches) = fields.get("patch").and_then(Value::as_object) {
        for (offset, hex) in patches {
            let hex = hex.as_str().unwrap();
            let at: usize = offset.parse().unwrap();
            for i in 0..hex.len() / 2 {
                packet.buffer_mut()[at + i] =
                    u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
            }
        }
    }
    let mut length = packet.bytes().len();
    if let Some(cut) = fields.get("cut") {
        length = number(cut);
    }
    if let Some(pad) = fields.get("pad") {
        length += number::<usize>(pad);
    }
    packet.set_length(length);
    packet
}

fn parts_of(packet: &Packet) -> Parts {
    let parts = packet.parse().unwrap();
    Parts { header: parts.header, value: parts.value.to_vec(), key: parts.key.to_vec() }
}

/// What every packet gets beside what the vector says.
fn packet_out(
    parts_in: &Parts,
    fields: &Value,
    verdict: &str,
    registers: &Registers,
    features: Features,
) -> Parts {
    let mut parts = parts_in.clone();
    let header = &mut parts.header;
    let number = header.op as u8;
    let is_from_wire = number < Op::Admit as u8;
    let place = registers.place;
    let is_owner = place.position == place.length;
    let routes = is_owner || features.has(Features::COPIES);
    header.ttl -= 1;
    if is_from_wire && features.has(Features::LAYERS) {
        header.hop = place.position;
    } else if is_from_wire && features.has(Features::COPIES) {
        header.hop = if is_owner { LEAF_HOP } else { SPINE_HOP };
    }
    if is_from_wire && routes {
        (header.partition, header.view) = (3, VIEW);
    }
    if number <= Op::Scan as u8 && place.position == 1 {
        header.origin = CLIENT;
    }
    if (routes || !is_from_wire) && (verdict == "REPLY" || verdict == "UP") {
        header.durable_generation = registers.durable_generation;
    }
    apply_packet(&mut parts, fields);
    parts
}

/// Four equal ranges, whose replicas have changed.
fn map() -> switchback_wire::Map {
    let equal = switchback_wire::Map::equal(vec![vec![0]; 4]);
    let changed = |partition: &Partition| Partition { view: VIEW, ..partition.clone() };
    switchback_wire::Map::new(equal.partitions().iter().map(changed).collect()).unwrap()
}

fn new_subject<S: Subject>(features: Features, before: &Before) -> S {
    let config = Config {
        features,
        classes: vec![ClassConfig { value_bytes: 16, slots: 4 }],
        lanes: 8,
        partitions: 4,
        nodes: 2,
        sketch_width: 1024,
        reports: 4,
        ..Config::default()
    };
    let datapath = S::new(&config);
    datapath.control().set_map(&map()).unwrap();
    datapath.control().set_node(0, NODE);
    datapath.control().set_lanes(4);
    datapath.poke_registers(&before.state.registers);
    datapath.poke_sequence(&key_hash(), before.state.last);
    datapath.poke_sketch(&key_hash(), before.sketch);
    assert!(datapath.poke_lane(LANE, &before.state.lane));
    if before.has_record {
        assert!(datapath.poke_record(0, SLOT, &before.state.record));
        if before.found {
            assert!(datapath.control().lookup_insert(&key_hash(), 0, SLOT).is_ok());
        }
    }
    datapath
}

fn run_packet<S: Subject>(
    datapath: &S,
    packet: &mut Packet,
    fields: &Value,
    sampled: bool,
) -> String {
    let from = fields.get("from").map_or(CLIENT, address);
    let verdict = if from == Address::default() {
        datapath.control().inject(packet)
    } else {
        datapath.process(packet, from, 1000, if sampled { 1 } else { u32::MAX })
    };
    match verdict {
        Verdict::Reply => "REPLY".to_owned(),
        Verdict::Forward(replicas) => {
            assert_eq!(replicas[..], [0]);
            "FORWARD".to_owned()
        }
        Verdict::ToSwitch(neighbour) => {
            let (name, at) = match neighbour {
                Neighbour::Before => ("UP", BEFORE),
                Neighbour::After => ("DOWN", AFTER),
            };
            assert_eq!(datapath.control().neighbour(neighbour), Some(at));
            name.to_owned()
        }
        Verdict::Taken => "TAKEN".to_owned(),
        Verdict::Drop(reason) => format!("DROP {reason}"),
        Verdict::Pass => "PASS".to_owned(),
    }
}

fn check_report<S: Subject>(datapath: &S, expected: &Value) {
    let mut packet = Packet::new();
    assert_eq!(datapath.control().next_report(&mut packet), expected.is_object(), "a report");
    if expected.is_object() {
        let mut header = Header {
            epoch: 5,
            request: INCARNATION,
            location: SLOT,
            key_hash: key_hash(),
            ttl: 0,
            ..Header::new(Op::Read)
        };
        header.generation = 3;
        let mut parts = Parts { header, value: Vec::new(), key: b"key".to_vec() };
        apply_packet(&mut parts, expected);
        assert_eq!(parts_of(&packet), parts, "the report");
        assert!(!datapath.control().next_report(&mut packet), "one report");
    }
}

/// Panics where the pipeline does something else.
fn run<S: Subject>(vector: &Value, features: Features) {
    let mut before = before_default();
    apply_state(&mut before, &vector["before"]);
    let datapath: S = new_subject(features, &before);
    let parts = packet_in(&vector["in"]);
    let mut packet = packet_bytes(&parts, &vector["in"]);
    let is_raw = ["patch", "cut", "pad"].iter().any(|name| vector["in"].get(name).is_some());
    // One in the kernel may have heard probes of another vector.
    let heard_before = datapath.control().heard();
    let verdict = run_packet(&datapath, &mut packet, &vector["in"], before.sampled);
    assert_eq!(verdict, vector["verdict"].as_str().unwrap(), "the verdict");
    if !verdict.starts_with("DROP") && verdict != "TAKEN" && !is_raw {
        let registers = &before.state.registers;
        let expected = packet_out(&parts, &vector["out"], &verdict, registers, features);
        let mut sent = parts_of(&packet);
        if features.has(Features::COPIES) && verdict == "REPLY" {
            // It tells the switch's load: one in the kernel has had the packets of other vectors.
            assert_ne!(std::mem::take(&mut sent.header.location), 0, "the load");
        }
        assert_eq!(sent, expected, "the packet out");
    }
    let mut after = before.clone();
    apply_state(&mut after, &vector["after"]);
    let state = State {
        registers: datapath.peek_registers(),
        last: datapath.peek_sequence(&key_hash()),
        lane: datapath.peek_lane(LANE).unwrap(),
        record: datapath.peek_record(0, SLOT).unwrap(),
        heard: since(heard_before, datapath.control().heard()),
    };
    assert_eq!(state, after.state, "the state after");
    check_report(&datapath, vector.get("report").unwrap_or(&Value::Null));
}

/// Every vector with its features.
pub(crate) fn vectors() -> Vec<(String, Value, Features)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../datapath/vectors");
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut vectors = Vec::new();
    files.retain(|path| {
        path.extension().is_some_and(|extension| extension == "json")
            && !path.ends_with("maps.json")
    });
    for path in &files {
        let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for vector in file["vectors"].as_array().unwrap() {
            let scheme = vector.get("scheme").unwrap_or(&file["scheme"]).as_str().unwrap();
            let name = format!(
                "{}: {}",
                path.file_stem().unwrap().display(),
                vector["name"].as_str().unwrap()
            );
            let features = Features::by_name(scheme).unwrap();
            let is_layered = vector.get("layers").unwrap_or(&file["layers"]) == true;
            let features = if is_layered { features.with(Features::LAYERS) } else { features };
            vectors.push((name, vector.clone(), features));
        }
    }
    vectors
}

/// A map, and where keys belong by it.
pub(crate) struct MapVector {
    name: String,
    /// How many partitions the tables have room for.
    room: u32,
    map: switchback_wire::Map,
    /// Keys, each with its partition's number and head.
    keys: Vec<(KeyHash, u16, u16)>,
}

/// Those of `maps.json`, and one with as many partitions as there can be.
pub(crate) fn maps() -> Vec<MapVector> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../datapath/vectors/maps.json");
    let file: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let partition = |value: &Value| Partition {
        number: number(&value["partition"]),
        start: hash(&value["start"]).into(),
        view: number(&value["view"]),
        chain: 0,
        replicas: value["replicas"].as_array().unwrap().iter().map(number).collect(),
    };
    let looked_up = |key: &Value| (hash(&key[0]), number(&key[1]), number(&key[2]));
    let map = |value: &Value| {
        let partitions = value["partitions"].as_array().unwrap().iter().map(partition).collect();
        let keys = value["keys"].as_array().unwrap().iter().map(looked_up).collect();
        MapVector {
            name: value["name"].as_str().unwrap().to_owned(),
            room: number(&value["room"]),
            map: switchback_wire::Map::new(partitions).unwrap(),
            keys,
        }
    };
    let mut maps: Vec<_> = file["maps"].as_array().unwrap().iter().map(map).collect();
    maps.push(largest_map());
    maps
}

/// Every third key begins a partition, all in one bucket, and the last one has all the rest.
fn largest_map() -> MapVector {
    let replicas = |number: u16| vec![number % 3];
    let start = |number: u16| RoutingKey(u128::from(number) * 3);
    let partition = |number| Partition {
        number,
        start: start(number),
        view: u32::from(number) << 16,
        chain: 0,
        replicas: replicas(number),
    };
    let map = switchback_wire::Map::new((0..=u16::MAX).map(partition).collect()).unwrap();
    let keys = (0..=u16::MAX).step_by(771).chain([u16::MAX]);
    let around = |number: u16| {
        let first = (KeyHash(start(number).0.to_be_bytes()), number, number % 3);
        let last = (KeyHash((start(number).0 + 2).to_be_bytes()), number, number % 3);
        [first, last]
    };
    let name = "as many partitions as there can be".to_owned();
    MapVector { name, room: 1 << 16, map, keys: keys.flat_map(around).collect() }
}

/// Asks a build for the partition and the head of a map's keys.
pub(crate) fn check_map<S: Subject>(vector: &MapVector) {
    let MapVector { name, room, map, keys } = vector;
    let classes = vec![ClassConfig { value_bytes: 16, slots: 4 }];
    let config = Config {
        classes,
        lanes: 8,
        partitions: *room,
        nodes: 3,
        sketch_width: 64,
        ..Config::default()
    };
    let datapath = S::new(&config);
    datapath.poke_registers(&Registers { epoch: 1, generation: 1, ..Registers::default() });
    let ask = |hash: KeyHash| {
        let mut packet = Packet::build(
            Header { epoch: 1, key_hash: hash, ..Header::new(Op::Write) },
            b"v",
            b"key",
        );
        (datapath.process(&mut packet, CLIENT, 1, u32::MAX), packet.parse().unwrap().header)
    };
    datapath.control().set_map(map).unwrap();
    for (hash, partition, head) in keys {
        let found = map.of(*hash);
        assert_eq!(
            (found.number, found.head()),
            (*partition, *head),
            "{name}: the map itself, {:x?}",
            hash.0
        );
        let (verdict, told) = ask(*hash);
        let Verdict::Forward(nodes) = verdict else {
            panic!("{name}: {verdict:?} for {:x?}", hash.0)
        };
        assert_eq!(
            (told.partition, told.view, &nodes[..]),
            (*partition, found.view, &[found.head()][..]),
            "{name}: {:x?}",
            hash.0
        );
    }
}

/// Fails where a build does something else than these vectors say.
pub(crate) fn check_vectors<S: Subject>(vectors: &[(String, Value, Features)]) {
    std::panic::set_hook(Box::new(|_| {})); // Messages are kept, and told below.
    let failed = failures::<S>(vectors, Features(0));
    drop(std::panic::take_hook());
    let (count, all) = (failed.len(), vectors.len());
    assert!(failed.is_empty(), "{count} of {all} failed:\n{}", failed.join("\n"));
}

/// The vectors that fail without these bits, and how.
pub(crate) fn failures<S: Subject>(
    vectors: &[(String, Value, Features)],
    without: Features,
) -> Vec<String> {
    let failed = |(name, vector, features): &(String, Value, Features)| {
        let panicked = catch_unwind(|| run::<S>(vector, features.without(without))).err()?;
        let why = panicked.downcast_ref::<String>().cloned().unwrap_or_default();
        Some(format!("{name}\n    {why}"))
    };
    vectors.iter().filter_map(failed).collect()
}

#[test]
fn names_of_states_are_those_of_the_documentation() {
    assert_eq!(named(&json!("VALID LATEST EVICTING REFRESH"), STATES), 15);
}
