//! A key's way into the cache and out of it.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::*;
use switchback_datapath::*;
use switchback_wire::Scheme;
use switchback_wire::*;

fn is_forward(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Forward(replicas) if replicas[..] == [0])
}

#[test]
fn a_key_is_admitted_promoted_written_evicted_and_gone() {
    let rig = Rig::new(&small());
    let key = b"key";
    let (verdict, _) = rig.read(key);
    assert!(is_forward(verdict));
    rig.admit(key, 0, 3, 77);

    // Hollow: reads go to the node behind a fence, and the answer promotes.
    let (verdict, packet) = rig.read(key);
    assert!(is_forward(verdict));
    let fenced = packet.parse().unwrap().header;
    assert!(fenced.has(flags::FENCED) && fenced.origin == CLIENT);
    let mut answer =
        Packet::build(Header { op: Op::ReadReply, seq: seq(0), ..fenced }, b"from the node", key);
    assert_eq!(rig.answer(&mut answer), Verdict::Reply);
    let (verdict, packet) = rig.read(key);
    assert_eq!(verdict, Verdict::Reply);
    assert_eq!(packet.parse().unwrap().value, b"from the node");
    assert_eq!(packet.parse().unwrap().header.record_flags, 0);

    // Written here, and read here.
    let (verdict, packet) = rig.write(key, b"absorbed", 1, 1);
    assert_eq!(verdict, Verdict::Reply);
    let written = packet.parse().unwrap();
    assert_eq!(
        (written.header.seq, written.header.generation, written.value),
        (seq(1), 1, &b""[..])
    );
    assert!(written.header.has(flags::CACHED));
    let (_, packet) = rig.read(key);
    let read = packet.parse().unwrap();
    assert_eq!((read.value, read.key, read.header.seq), (&b"absorbed"[..], &key[..], seq(1)));
    assert_eq!(read.header.record_flags, record_flags::DIRTY);

    // On its way out: still answering, until a write passes it by.
    let evicted = rig.evict_begin(key, 0, 3, 77);
    assert_eq!(evicted.parse().unwrap().value, b"absorbed");
    assert_eq!(rig.read(key).0, Verdict::Reply);
    assert!(is_forward(rig.write(key, b"newer", 1, 2).0));
    let (verdict, packet) = rig.read(key);
    assert!(is_forward(verdict));
    let embedded = packet.parse().unwrap();
    assert!(embedded.header.has(flags::EMBEDDED) && !embedded.header.has(flags::FENCED));
    assert_eq!((embedded.value, embedded.header.seq), (&b"absorbed"[..], seq(1)));
    rig.remove(key, 0, 3, 77);
    let (verdict, packet) = rig.read(key);
    assert!(is_forward(verdict) && packet.parse().unwrap().value.is_empty());
}

#[test]
fn the_lookup_table_takes_all_its_slots_and_gives_them_back() {
    let config = Config { classes: vec![ClassConfig { value_bytes: 16, slots: 2000 }], ..small() };
    let rig = Rig::new(&config);
    let keys: Vec<_> = (0..2000u32).map(u32::to_be_bytes).collect();
    for round in 0..3 {
        for (slot, key) in keys.iter().enumerate() {
            rig.admit(key, 0, slot as u32, round);
        }
        let again = rig.datapath.lookup_insert(&hash(&keys[5]), 0, 6);
        assert_eq!(again, Err(TableError::Duplicate));
        for (i, key) in keys.iter().enumerate() {
            let (_, packet) = rig.read(key);
            assert!(packet.parse().unwrap().header.has(flags::FENCED), "key {i} is found");
        }
        for (slot, key) in keys.iter().enumerate() {
            rig.remove(key, 0, slot as u32, round);
            let (_, packet) = rig.read(key);
            assert!(!packet.parse().unwrap().header.has(flags::FENCED), "key {slot} is gone");
        }
    }
}

#[test]
fn only_nodes_answer_and_only_agents_control() {
    let rig = Rig::new(&small());
    let reply = header(Op::ReadReply, b"k");
    assert_eq!(rig.send(reply, b"lie", b"k").0, Verdict::Drop(DropReason::Sender));
    assert_eq!(
        rig.send(header(Op::SetEpoch, b"k"), b"", b"k").0,
        Verdict::Drop(DropReason::Control)
    );
    let mut request = Packet::build(header(Op::Read, b"k"), b"", b"k");
    assert_eq!(rig.datapath.inject(&mut request), Verdict::Drop(DropReason::Control));
    rig.datapath.set_node(1, CLIENT);
    assert_eq!(rig.send(reply, b"true", b"k").0, Verdict::Reply);
    rig.datapath.set_node(1, Address::in_memory(9, 9));
    assert_eq!(rig.send(reply, b"lie", b"k").0, Verdict::Drop(DropReason::Sender));
}

#[test]
fn a_cleared_datapath_refuses_everything_until_its_next_epoch() {
    let rig = Rig::new(&small());
    rig.admit(b"k", 0, 0, 1);
    assert_eq!(rig.write(b"k", b"v", 0, 1).0, Verdict::Reply);
    rig.datapath.clear();
    assert_eq!(rig.read(b"k").0, Verdict::Drop(DropReason::Epoch));
    rig.control(Header { epoch: EPOCH + 1, ..Header::new(Op::SetEpoch) }, b"-");
    assert_eq!(rig.read(b"k").0, Verdict::Drop(DropReason::Epoch));
    let next = Header { epoch: EPOCH + 1, ..header(Op::Write, b"k") };
    let (verdict, packet) = rig.send(next, b"v", b"k");
    assert!(is_forward(verdict));
    assert_eq!(packet.parse().unwrap().header.seq, Seq::new(EPOCH + 1, 1));
    assert_eq!(rig.datapath.peek_record(0, 0), Some(state::Record::default()));
}

#[test]
fn a_hot_key_is_told_of_at_every_count_and_then_at_every_eighth() {
    let rig = Rig::new(&Config { threshold: 3, ..small() });
    let told = |rig: &Rig, key: &[u8]| {
        let header = rig.read(key).1.parse().unwrap().header;
        header.has(flags::HOT).then_some(header.generation)
    };
    let counts: Vec<_> = (0..20).filter_map(|_| told(&rig, b"k")).collect();
    assert_eq!(counts, (3..=16).collect::<Vec<_>>());
    assert_eq!(rig.datapath.statistics().hot_misses, 14);
    let counts: Vec<_> = (0..20).filter_map(|_| told(&rig, b"k")).collect();
    assert_eq!(counts, [24, 32, 40]);
    // Forty, halved four times, are two.
    let age = Header { total_bytes: 1024, guard: 4, ..Header::new(Op::AgeSketch) };
    rig.control(age, b"-");
    assert_eq!(told(&rig, b"k"), Some(3));
    // The agent allows a number, and hears how many of those before were left.
    assert_eq!(rig.datapath.set_counting(1.0, 1, 2), u32::MAX - 18);
    let told_of = [b"a", b"b", b"c"].map(|key| told(&rig, key));
    assert_eq!(told_of, [Some(1), Some(1), None]);
    assert_eq!(rig.datapath.set_counting(0.0, 1, 5), 0);
    assert_eq!((told(&rig, b"d"), rig.datapath.set_counting(1.0, 1, 0)), (None, 5));
}

/// A record in a snapshot's way changes once its original is reported, and not before there is room
/// for that.
#[test]
fn a_record_without_room_for_its_original_stays_as_it_is() {
    let all = Features::of(Scheme::FarReach);
    let ablations = cfg!(feature = "ablations").then(|| all.without(Features::REPORT_FIRST));
    for features in [all].into_iter().chain(ablations) {
        let rig = Rig::new(&Config { features, reports: 2, ..small() });
        let keys: Vec<_> = (0..3u32).map(u32::to_be_bytes).collect();
        for (slot, key) in keys.iter().enumerate() {
            rig.admit(key, 0, slot as u32, slot as u64);
            assert_eq!(rig.write(key, b"before", slot as u32, 1).0, Verdict::Reply);
        }
        rig.control(Header { generation: 2, ..Header::new(Op::SnapshotBegin) }, b"-");
        let written: Vec<_> =
            (0..3).map(|i| rig.write(&keys[i], b"after", i as u32, 2).0).collect();
        let (_, third) = rig.read(&keys[2]);
        let third = third.parse().unwrap();
        if !features.has(Features::REPORT_FIRST) {
            assert_eq!(
                (written[2], third.value),
                (Verdict::Reply, &b"after"[..]),
                "the original is lost"
            );
            continue;
        }
        assert_eq!(
            written,
            [Verdict::Reply, Verdict::Reply, Verdict::Drop(DropReason::Unreported)]
        );
        assert_eq!((third.value, third.header.generation), (&b"before"[..], 1));
        assert!(rig.datapath.next_report(&mut Packet::new()));
        assert_eq!(rig.write(&keys[2], b"after", 2, 2).0, Verdict::Reply, "its copy finds room");
    }
}

#[test]
fn the_switches_of_distcache_tell_how_many_packets_they_had_lately() {
    let rig = Rig::new(&Config { features: Features::of(Scheme::DistCache), ..small() });
    rig.admit(b"key", 0, 3, 77);
    let at = |now_ms: u64, op: Op, from: Address, value: &[u8]| {
        let asked = Header { seq: seq(1), request: 77, ..header(op, b"key") };
        let mut packet = Packet::build(asked, value, b"key");
        let verdict = rig.datapath.process(&mut packet, from, now_ms, 0, Shard::default());
        assert_eq!(verdict, Verdict::Reply);
        let header = packet.parse().unwrap().header;
        assert_eq!(header.hop, LEAF_HOP);
        header.location
    };
    let read = |now_ms| at(now_ms, Op::Read, CLIENT, b"");
    // The numbers of windows begin anew every 497 days; the last of these times is set back.
    for begin_ms in [1_000, 1_795_000_000_000, 1_800_000_000_000, (10 << 32) - 10, 2_000] {
        assert_eq!(at(begin_ms, Op::CacheUpdate, NODE, b"value"), 1);
        for count in 2..=20 {
            assert_eq!(read(begin_ms + 3), count);
        }
        assert_eq!(read(begin_ms + 10), 1 + 20, "all of the window before");
        assert_eq!(read(begin_ms + 15), 2 + 10, "half of it");
        assert_eq!(read(begin_ms + 9), 3 + 2, "a clock that lags behind begins no window");
        assert_eq!(read(begin_ms + 40), 1, "nothing came for a window");
    }
}
