//! Any bytes into the codec, and packets into the pipeline as if from the wire: of clients and
//! nodes, of keys that are cached and others, with any header, damaged or not.
#![no_main]

use libfuzzer_sys::arbitrary::{Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use switchback_datapath::{ClassConfig, Config, Control, Datapath, Shard, Verdict};
use switchback_wire::{
    Address, DecodeError, HashKey, Header, KeyHash, Map, Op, Packet, PacketRef, RoutingKey, Seq,
    Status,
};

const CACHED: u8 = 4;
const KEYS: u8 = 8;
const CLIENT: Address = Address::in_memory(1, 0);
const NODE: Address = Address::in_memory(2, 0);

fn key(index: u8) -> (KeyHash, [u8; 4]) {
    let key = [b'k', b'e', b'y', index];
    (HashKey([3; 16]).hash(&key), key)
}

/// A small one that serves epoch 1, with a few keys cached.
fn datapath() -> Datapath {
    let class = |value_bytes| ClassConfig { value_bytes, slots: 8 };
    let classes = [128, 1168].map(class).to_vec();
    let sizes = Config {
        classes,
        lanes: 16,
        partitions: 4,
        nodes: 2,
        sketch_width: 64,
        reports: 16,
        ..Config::default()
    };
    let datapath = Datapath::new(&sizes).expect("the configuration is valid");
    datapath.set_node(0, NODE);
    datapath.set_map(&Map::equal(vec![vec![0]; 4])).expect("node 0 exists");
    let inject = |header: Header, key: &[u8]| {
        assert_eq!(datapath.inject(&mut Packet::build(header, &[], key)), Verdict::Reply);
    };
    inject(Header { epoch: 1, generation: 1, ..Header::new(Op::SetEpoch) }, b"-");
    for slot in 0..u32::from(CACHED) {
        let (key_hash, key) = key(slot as u8);
        let header = Header { location: slot, request: 1, key_hash, ..Header::new(Op::Admit) };
        inject(header, &key);
        datapath.lookup_insert(&key_hash, 0, slot).expect("there is room");
        inject(Header { op: Op::SetValid, ..header }, &key);
    }
    datapath
}

fn draw(input: &mut Unstructured<'_>) -> Result<Packet> {
    let (key_hash, key) = key(input.arbitrary::<u8>()? % KEYS);
    let op = *input.choose(Op::ALL)?;
    let value_bytes = if input.ratio(1, 4)? {
        input.int_in_range(0..=1168)?
    } else {
        input.int_in_range(0..=16)?
    };
    let header = Header {
        op,
        flags: input.arbitrary()?,
        epoch: if input.ratio(1, 8)? { input.int_in_range(0..=0xff_ffff)? } else { 1 },
        partition: input.arbitrary::<u16>()? % 8,
        hop: input.arbitrary::<u8>()? % 3,
        ttl: input.arbitrary::<u8>()? % 4,
        tag: input.arbitrary()?,
        view: input.arbitrary()?,
        session: input.arbitrary()?,
        routing: if input.ratio(1, 8)? {
            RoutingKey(input.arbitrary()?)
        } else {
            key_hash.routing()
        },
        status: *input.choose(Status::ALL)?,
        seq: Seq(1 << 40 | u64::from(input.arbitrary::<u8>()?)),
        guard: 1 << 40 | u64::from(input.arbitrary::<u8>()?),
        request: u64::from(input.arbitrary::<u8>()? % 16),
        lane: u32::from(input.arbitrary::<u8>()? % 18),
        generation: u32::from(input.arbitrary::<u8>()? % 4),
        expiry_ms: u64::from(input.arbitrary::<u8>()?),
        total_bytes: input.arbitrary::<u32>()? % (2 << 20),
        fragment_index: input.arbitrary()?,
        fragment_count: input.arbitrary()?,
        record_flags: input.arbitrary()?,
        location: input.arbitrary()?,
        key_hash,
        origin: CLIENT,
        ..Header::new(op)
    };
    let mut packet = Packet::build(header, &[7; 1168][..value_bytes], &key);
    if input.ratio(1, 8)? {
        let at = input.choose_index(packet.bytes().len())?;
        packet.buffer_mut()[at] = input.arbitrary()?;
    }
    Ok(packet)
}

fuzz_target!(|bytes: &[u8]| {
    let parsed = PacketRef::parse(bytes).is_ok();
    let datapath = datapath();
    let mut packet = Packet::new();
    match packet.copy_from(bytes) {
        Some(()) => _ = datapath.process(&mut packet, CLIENT, 1, 7, Shard::new(0)),
        None => assert!(!parsed, "longer than a packet may be"),
    }
    let mut input = Unstructured::new(bytes);
    while !input.is_empty() {
        let (Ok(mut packet), Ok(from_node), Ok(random)) =
            (draw(&mut input), input.arbitrary::<bool>(), input.arbitrary())
        else {
            return;
        };
        let from = if from_node { NODE } else { CLIENT };
        let verdict = datapath.process(&mut packet, from, 1, random, Shard::new(0));
        if matches!(verdict, Verdict::Reply | Verdict::Forward(_)) {
            // It passes on a status that it doesn't know: that is for the receiver to refuse.
            let parsed = packet.parse().map(|_| ());
            assert!(
                matches!(parsed, Ok(()) | Err(DecodeError::Unknown)),
                "the pipeline sends what is no packet"
            );
        }
    }
});
