//! Both sides of the language border mean the same bytes and numbers.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::collections::HashMap;
use switchback_datapath::state::{bits, lane};
use switchback_datapath::*;
use switchback_wire::*;

fn c() -> HashMap<&'static str, u64> {
    layout().into_iter().collect()
}

/// `ReadReply` as C has it: `READ_REPLY`.
fn shouted(name: &str) -> String {
    let mut shouted = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !shouted.is_empty() {
            shouted.push('_');
        }
        shouted.push(letter.to_ascii_uppercase());
    }
    shouted
}

/// Which bytes of the header change with each field, and whether all values come back.
#[test]
fn every_field_is_at_the_same_offset() {
    let zero = Header { ttl: 0, ..Header::new(Op::Read) };
    let ones = KeyHash([0xff; 16]);
    let changed: &[(&str, Header)] = &[
        ("op", Header { op: Op::Write, ..zero }),
        ("flags", Header { flags: !0, ..zero }),
        ("tenant", Header { tenant: !0, ..zero }),
        ("epoch", Header { epoch: !0, ..zero }),
        ("partition", Header { partition: !0, ..zero }),
        ("hop", Header { hop: !0, ..zero }),
        ("ttl", Header { ttl: !0, ..zero }),
        ("seq", Header { seq: Seq(!0), ..zero }),
        ("guard", Header { guard: !0, ..zero }),
        ("request", Header { request: !0, ..zero }),
        ("lane", Header { lane: !0, ..zero }),
        ("session", Header { session: !0, ..zero }),
        ("hash_high", Header { key_hash: KeyHash::at_position(!0), ..zero }),
        ("routing_high", Header { routing: RoutingKey(!0 << 64), ..zero }),
        ("routing_low", Header { routing: RoutingKey(u64::MAX.into()), ..zero }),
        ("expiry_ms", Header { expiry_ms: !0, ..zero }),
        ("tag", Header { tag: !0, ..zero }),
        ("view", Header { view: !0, ..zero }),
        ("generation", Header { generation: !0, ..zero }),
        ("durable_generation", Header { durable_generation: !0, ..zero }),
        ("total_bytes", Header { total_bytes: !0, ..zero }),
        ("value_bytes", Header { value_bytes: !0, ..zero }),
        ("key_bytes", Header { key_bytes: !0, ..zero }),
        ("fragment_index", Header { fragment_index: !0, ..zero }),
        ("fragment_count", Header { fragment_count: !0, ..zero }),
        ("origin_port", Header { origin: Address { ip: [0; 16], port: !0 }, ..zero }),
        ("status", Header { status: Status::Changed, ..zero }),
        ("record_flags", Header { record_flags: !0, ..zero }),
        ("location", Header { location: !0, ..zero }),
    ];
    let encode = |header: &Header| {
        let mut bytes = [0; HEADER_BYTES];
        header.encode(&mut bytes);
        bytes
    };
    let places = |header: &Header| -> Vec<u64> {
        let pairs = encode(header).into_iter().zip(encode(&zero)).enumerate();
        pairs.filter(|(_, (a, b))| a != b).map(|(at, _)| at as u64).collect()
    };
    let c = c();
    for (name, header) in changed {
        let field = c[&*format!("wire.{name}")];
        let (offset, bytes) = (field / 16, field % 16);
        let expected: Vec<_> = match *name {
            "op" | "status" => vec![offset], // They only have the values they have.
            _ => (offset..offset + bytes).collect(),
        };
        assert_eq!(places(header), expected, "{name}");
    }
    let both = |high: &str, low: &str| {
        let (high, low) = (c[&*format!("wire.{high}")] / 16, c[&*format!("wire.{low}")] / 16);
        (high..high + 8).chain(low..low + 8).collect::<Vec<_>>()
    };
    assert_eq!(places(&Header { key_hash: ones, ..zero }), both("hash_high", "hash_low"));
    let origin = Address { ip: [0xff; 16], port: 0 };
    assert_eq!(places(&Header { origin, ..zero }), both("origin_high", "origin_low"));
    let named = changed.len() + 3; // hash_low, origin_high, origin_low
    let constant = ["wire.magic", "wire.version"];
    assert_eq!(c.keys().filter(|name| name.starts_with("wire.")).count(), named + constant.len());
}

#[test]
fn every_number_is_the_same() {
    let c = c();
    let mut rust: Vec<(String, u64)> = Vec::new();
    rust.extend(
        Op::ALL.iter().map(|op| (format!("op.{}", shouted(&format!("{op:?}"))), *op as u64)),
    );
    rust.extend(
        Status::ALL.iter().map(|s| (format!("status.{}", shouted(&format!("{s:?}"))), *s as u64)),
    );
    let reason =
        |reason: &DropReason| (format!("drop.{}", shouted(&format!("{reason:?}"))), *reason as u64);
    rust.extend(DropReason::ALL.iter().map(reason));
    let feature = |(name, bit): &(&str, Features)| {
        (format!("feature.{}", name.replace('-', "_").to_uppercase()), bit.0)
    };
    rust.extend(Features::ALL.iter().map(feature));
    let numbers: &[(&str, u64)] = &[
        ("flag.HOT", flags::HOT.into()),
        ("flag.CACHED", flags::CACHED.into()),
        ("flag.FENCED", flags::FENCED.into()),
        ("flag.EMBEDDED", flags::EMBEDDED.into()),
        ("flag.CONDITIONAL", flags::CONDITIONAL.into()),
        ("flag.LARGE", flags::LARGE.into()),
        ("flag.DELETE", flags::DELETE.into()),
        ("record_flag.TOMBSTONE", record_flags::TOMBSTONE.into()),
        ("record_flag.DIRTY", record_flags::DIRTY.into()),
        ("constant.MAGIC", MAGIC.into()),
        ("constant.VERSION", VERSION.into()),
        ("constant.HEADER_BYTES", HEADER_BYTES as u64),
        ("constant.PACKET_BYTES_MAX", PACKET_BYTES_MAX as u64),
        ("constant.KEY_BYTES_MAX", KEY_BYTES_MAX as u64),
        ("constant.CACHED_KEY_BYTES_MAX", CACHED_KEY_BYTES_MAX as u64),
        ("constant.CACHED_VALUE_BYTES_MAX", CACHED_VALUE_BYTES_MAX as u64),
        ("constant.EPOCH_MAX", EPOCH_MAX.into()),
        ("constant.SEQ_COUNTER_BITS", SEQ_COUNTER_BITS.into()),
        ("constant.SWITCH_PORT", SWITCH_PORT.into()),
        ("constant.NO_LOCATION", NO_LOCATION.into()),
        ("constant.LAYERS_MAX", LAYERS_MAX.into()),
        ("constant.SPINE_HOP", SPINE_HOP.into()),
        ("constant.LEAF_HOP", LEAF_HOP.into()),
        ("constant.EPOCHS_OF_ROUND", EPOCHS_OF_ROUND.into()),
        ("constant.STATISTIC_COUNT", twins().1.len() as u64),
        ("constant.STATE_VALID", bits::VALID.into()),
        ("constant.STATE_LATEST", bits::LATEST.into()),
        ("constant.STATE_EVICTING", bits::EVICTING.into()),
        ("constant.STATE_REFRESH", bits::REFRESH.into()),
        ("constant.STATE_TOMBSTONE", bits::TOMBSTONE.into()),
        ("constant.STATE_DIRTY", bits::DIRTY.into()),
        ("constant.STATE_DEPENDENT", bits::DEPENDENT.into()),
        ("constant.LANE_NONE", lane::NONE.into()),
        ("constant.LANE_APPLIED", lane::APPLIED.into()),
        ("constant.LANE_CONDITION_FAILED", lane::CONDITION_FAILED.into()),
        ("constant.LANE_FORWARDED", lane::FORWARDED.into()),
        ("constant.LANE_DONE", lane::DONE.into()),
    ];
    rust.extend(numbers.iter().map(|(name, number)| ((*name).to_owned(), *number)));
    rust.extend(twins().2.iter().map(|(name, size)| ((*name).to_owned(), *size as u64)));
    for (name, number) in &rust {
        assert_eq!(c.get(&**name), Some(number), "{name}");
    }
    // Fields are compared above; what lies in maps, crates/xdp asks for by name.
    let elsewhere = ["wire.", "record.", "lane.", "registers."];
    let in_maps = ["size.record", "size.lane", "size.registers", "constant.SEQUENCE_BUCKETS"];
    let is_elsewhere = |name: &&&str| {
        elsewhere.iter().any(|prefix| name.starts_with(prefix)) || in_maps.contains(&&***name)
    };
    let count = c.keys().filter(is_elsewhere).count();
    assert_eq!(rust.len() + count, c.len(), "nothing is in one language only");
}

#[test]
fn statistics_have_the_same_names() {
    let (c, rust, _) = twins();
    let c: Vec<_> = c.into_iter().map(str::to_lowercase).collect();
    assert_eq!(c, rust);
    assert_eq!(Statistics::default().iter().count(), rust.len() - 1);
}
