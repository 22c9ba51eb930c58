//! Whole frames through the program that is attached: addresses, lengths, checksums; what isn't
//! ours is passed untouched.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::{KEY, header, may_load, switch};
use std::net::SocketAddr;
use switchback_wire::*;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

fn sum(bytes: &[u8]) -> u16 {
    let words =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A frame from a client, without UDP's checksum, as one arrives from a socket on the same machine.
fn frame(from: &str, to: &str, packet: &Packet) -> Vec<u8> {
    let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
    let length = (8 + packet.bytes().len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    match (from, to) {
        (SocketAddr::V4(from), SocketAddr::V4(to)) => {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((length + 20).to_be_bytes());
            frame.extend([0, 9, 0x40, 0, 61, 17, 0, 0]);
            frame.extend(from.ip().octets());
            frame.extend(to.ip().octets());
        }
        (SocketAddr::V6(from), SocketAddr::V6(to)) => {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend(length.to_be_bytes());
            frame.extend([17, 61]);
            frame.extend(from.ip().octets());
            frame.extend(to.ip().octets());
        }
        _ => unreachable!(),
    }
    frame.extend(from.port().to_be_bytes());
    frame.extend(to.port().to_be_bytes());
    frame.extend(length.to_be_bytes());
    frame.extend([0x12, 0x34]);
    frame.extend(packet.bytes());
    frame
}

fn check_answer(asked: &[u8], answer: &[u8], ip: usize, value: &[u8]) {
    assert_eq!(
        (&answer[..6], &answer[6..12]),
        (&asked[6..12], &asked[..6]),
        "back where it came from"
    );
    let udp = ip + if asked[12] == 8 { 20 } else { 40 };
    let (addresses, width) = if asked[12] == 8 { (26, 4) } else { (22, 16) };
    let (source, destination) =
        (addresses..addresses + width, addresses + width..addresses + 2 * width);
    assert_eq!(answer[source.clone()], asked[destination.clone()]);
    assert_eq!(answer[destination], asked[source]);
    assert_eq!(
        (&answer[udp..udp + 2], &answer[udp + 2..udp + 4]),
        (&asked[udp + 2..udp + 4], &asked[udp..udp + 2])
    );
    let length = u16::from_be_bytes([answer[udp + 4], answer[udp + 5]]);
    assert_eq!(usize::from(length), answer.len() - udp, "UDP's length");
    if asked[12] == 8 {
        assert_eq!(sum(&answer[14..34]), 0xffff, "IP's checksum");
        assert_eq!(
            usize::from(u16::from_be_bytes([answer[16], answer[17]])),
            answer.len() - 14,
            "IP's length"
        );
        assert_eq!(answer[udp + 6..udp + 8], [0, 0], "none, which IPv4 allows");
    } else {
        assert_eq!(
            usize::from(u16::from_be_bytes([answer[18], answer[19]])),
            answer.len() - 54,
            "IP's length"
        );
        let pseudo =
            [&answer[22..54], &[0, 0][..], &length.to_be_bytes(), &[0, 17], &answer[54..]].concat();
        assert_eq!(sum(&pseudo), 0xffff, "UDP's checksum");
    }
    let packet = PacketRef::parse(&answer[udp + 8..]).unwrap();
    assert_eq!((packet.header.op, packet.value, packet.key), (Op::ReadReply, value, KEY));
}

#[test]
fn answers_are_whole_frames_back_to_the_client() {
    if !may_load() {
        return;
    }
    for (client, endpoint) in
        [("10.0.0.9:4000", "10.0.7.3:5357"), ("[fd00::9]:4000", "[fd00::1]:5357")]
    {
        for length in [0, 1, 7, 128, 501, 1024, 1025, 1167, 1168] {
            let value: Vec<u8> = (0..length).map(|i| i as u8 ^ 0x5a).collect();
            let datapath = switch(endpoint, &value);
            let asked = frame(client, endpoint, &Packet::build(header(Op::Read), &[], KEY));
            let (action, answer) = datapath.frame(&asked).unwrap();
            assert_eq!(action, XDP_TX, "{length}");
            check_answer(&asked, &answer, 14, &value);
        }
    }
}

#[test]
fn what_is_not_ours_is_passed_untouched() {
    if !may_load() {
        return;
    }
    let datapath = switch("10.0.7.3:5357", b"value");
    let packet = Packet::build(header(Op::Read), &[], KEY);
    let ours = frame("10.0.0.9:4000", "10.0.7.3:5357", &packet);
    let other_address = frame("10.0.0.9:4000", "10.0.0.2:5357", &packet);
    let other_port = frame("10.0.0.9:4000", "10.0.7.3:5358", &packet);
    let v6 = frame("[fd00::9]:4000", "[fd00::1]:5357", &packet);
    let changed = |at: usize, byte: u8| {
        let mut frame = ours.clone();
        frame[at] = byte;
        frame
    };
    let tagged = [&ours[..12], &[0x81, 0, 0, 7], &ours[12..]].concat();
    let (tcp, options, fragment, arp) =
        (changed(23, 6), changed(14, 0x46), changed(20, 0x20), changed(13, 6));
    for frame in [
        other_address,
        other_port,
        v6,
        tagged,
        tcp,
        options,
        fragment,
        arp,
        vec![0; 14],
        ours[..40].to_vec(),
    ] {
        assert_eq!(datapath.frame(&frame).unwrap(), (XDP_PASS, frame));
    }
    // Ours, but damaged: dropped and counted.
    let before = datapath.statistics().drops.iter().sum::<u64>();
    assert_eq!(datapath.frame(&changed(42, 0)).unwrap().0, XDP_DROP);
    assert_eq!(datapath.frame(&ours[..ours.len() - 1]).unwrap().0, XDP_DROP);
    assert_eq!(datapath.statistics().drops.iter().sum::<u64>(), before + 2);
}
