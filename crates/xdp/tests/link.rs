//! A client past the kernel's network stack, beside one with a socket on the same interface.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::{KEY, header, may_load, store, switch_config};
use std::net::{SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};
use switchback_wire::*;
use switchback_xdp::measure::{Meter, Program};
use switchback_xdp::{Error, Segment, XdpLink, links};

const OWN: SocketAddrV4 = SocketAddrV4::new(Segment::HOSTS, 4000);
const SWITCH: SocketAddrV4 = SocketAddrV4::new(Segment::SWITCH, SWITCH_PORT);

fn system(error: std::io::Error) -> Error {
    Error::System("a test's socket", error)
}

/// Takes packets until they are as many, or a minute has passed.
fn take(link: &mut XdpLink, count: usize) -> Vec<(Address, Packet)> {
    let (mut taken, mut packet, begun) = (Vec::new(), Packet::new(), Instant::now());
    while taken.len() < count && begun.elapsed() < Duration::from_secs(60) {
        match link.receive(&mut packet) {
            Some(from) => taken.push((from, packet.clone())),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    taken
}

#[test]
fn a_link_is_answered_and_leaves_the_rest_to_the_kernel() {
    if !may_load() {
        return;
    }
    let meter = Meter::new(&switch_config()).unwrap();
    store(&meter, &[7; 128]);
    let segment = Segment::new(1).unwrap();
    let links = segment.on_switch(|| links().map_err(system)).unwrap();
    let next_hop = links.iter().find(|link| link.name == Segment::SWITCH_INTERFACE).unwrap().address;
    let _switch = segment.on_switch(|| meter.put(Program::Switch, Segment::SWITCH_INTERFACE)).unwrap();
    let mut link = segment.on_hosts(|| XdpLink::open(Segment::HOSTS_INTERFACE, OWN, next_hop)).unwrap();
    let socket = segment.on_hosts(|| UdpSocket::bind((Segment::HOSTS, 0)).map_err(system)).unwrap();
    socket.connect(SWITCH).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();

    // More than its rings and its memory hold, so that all of it is used again.
    let to = Address::from(SocketAddr::from(SWITCH));
    for round in 0..200u64 {
        for n in 0..32 {
            link.send(to, &Packet::build(Header { request: 32 * round + n, ..header(Op::Read) }, &[], KEY));
        }
        link.flush();
        let taken = take(&mut link, 32);
        assert_eq!(taken.len(), 32, "round {round}");
        for (n, (from, packet)) in (0..).zip(&taken) {
            let answer = packet.parse().unwrap();
            assert_eq!((*from, answer.header.op, answer.header.request), (to, Op::ReadReply, 32 * round + n));
            assert_eq!((answer.value, answer.key), (&[7; 128][..], KEY));
        }
    }
    assert_eq!(link.dropped(), 0);
    assert_eq!(link.receive(&mut Packet::new()), None);

    // The socket beside it, which also needs the kernel's answers for the interface's address.
    let mut bytes = [0; PACKET_BYTES_MAX];
    socket.send(Packet::build(header(Op::Read), &[], KEY).bytes()).unwrap();
    let length = socket.recv(&mut bytes).unwrap();
    assert_eq!(PacketRef::parse(&bytes[..length]).unwrap().header.op, Op::ReadReply);
    // And what comes from a socket on the other side, of any length, whole.
    let other = segment.on_switch(|| UdpSocket::bind((Segment::SWITCH, 0)).map_err(system)).unwrap();
    for length in [1, 40, PACKET_BYTES_MAX, PACKET_BYTES_MAX + 1, 2] {
        other.send_to(&vec![length as u8; length], OWN).unwrap();
    }
    let lengths: Vec<_> = take(&mut link, 4).iter().map(|(_, packet)| packet.bytes().len()).collect();
    assert_eq!(lengths, [1, 40, PACKET_BYTES_MAX, 2]);
    // An address that isn't IPv4's.
    link.send(Address { ip: [1; 16], port: 1 }, &Packet::build(header(Op::Read), &[], KEY));
    assert_eq!(link.dropped(), 1);
}
