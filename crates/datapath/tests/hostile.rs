//! Whatever comes from the network, the pipeline says something sensible, releases its locks, and
//! what it sends on is well-formed.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::*;
use proptest::prelude::*;
use switchback_datapath::*;
use switchback_wire::Scheme;
use switchback_wire::*;

fn check(rig: &Rig, packet: &Packet, verdict: Verdict) {
    assert!(packet.bytes().len() <= PACKET_BYTES_MAX);
    if !matches!(verdict, Verdict::Drop(_)) {
        let header = packet.bytes();
        let sum = HEADER_BYTES
            + usize::from(u16::from_be_bytes([header[112], header[113]]))
            + usize::from(u16::from_be_bytes([header[114], header[115]]));
        assert_eq!(sum, header.len(), "lengths add up");
    }
    for lane in 0..4 {
        assert!(!rig.datapath.peek_lane(lane).unwrap().locked);
    }
    assert!(rig.datapath.peek_record(0, 1).is_some(), "the record isn't locked");
}

fn rig(features: Features) -> Rig {
    let rig = Rig::new(&Config { features, ..small() });
    rig.admit(b"key", 0, 1, 1);
    // Write-back absorbs it; the other schemes send it to the node.
    let absorbs = features.has(Features::WRITE_BACK);
    assert_eq!(rig.write(b"key", b"value", 3, 1).0 == Verdict::Reply, absorbs);
    rig
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..=PACKET_BYTES_MAX),
        node: bool,
        control: bool,
    ) {
        let rig = rig(Features::of(Scheme::FarReach));
        let mut packet = Packet::new();
        packet.copy_from(&bytes).unwrap();
        let verdict = match (control, node) {
            (true, _) => rig.datapath.inject(&mut packet),
            (false, true) => rig.answer(&mut packet),
            (false, false) => rig.datapath.process(&mut packet, CLIENT, 1000, 0, Shard::default()),
        };
        prop_assert!(matches!(verdict, Verdict::Drop(_)));
        check(&rig, &packet, verdict);
    }

    #[test]
    fn damaged_packets(
        op in prop::sample::select(Op::ALL),
        fields in any::<[u64; 4]>(),
        flags: u16,
        value_bytes in 0..300usize,
        damage in prop::collection::vec((0..HEADER_BYTES, any::<u8>()), 0..3),
        cut in prop::option::weighted(0.2, 0..=PACKET_BYTES_MAX),
        features in prop::sample::select(Scheme::ALL.map(Features::of).to_vec()),
        from: bool,
    ) {
        let rig = rig(features);
        let [seq, guard, request, expiry_ms] = fields;
        let lane = request as u32 % 5;
        let location = (u32::from(flags % 3) << 30) | (guard as u32 % 18);
        let ttl = seq as u8 % 4;
        let header = Header {
            flags,
            seq: Seq(seq),
            guard,
            request,
            expiry_ms,
            lane,
            location,
            ttl,
            ..header(op, b"key")
        };
        let mut packet = Packet::build(header, &vec![1; value_bytes], b"key");
        for (at, byte) in damage {
            packet.buffer_mut()[at] = byte;
        }
        packet.set_length(cut.unwrap_or(packet.bytes().len()));
        let verdict = match (op as u8 >= Op::Admit as u8, from) {
            (true, _) => rig.datapath.inject(&mut packet),
            (false, true) => rig.answer(&mut packet),
            (false, false) => rig.datapath.process(&mut packet, CLIENT, 1000, 0, Shard::default()),
        };
        check(&rig, &packet, verdict);
    }
}
