//! Networks of a process's own: a datapath on each, clients with sockets.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

#[path = "../../../crates/xdp/tests/common/mod.rs"]
mod common;

use common::{KEY, header, may_load, small_switch, switch};
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use switchback_datapath::{ClassConfig, Config};
use switchback_wire::*;
use switchback_xdp::measure::{LANES, Meter, Program};
use switchback_xdp::{Attachment, Error, Mode, Segment};

/// A network with a switch that has one record.
struct Rack {
    attachment: Attachment,
    client: UdpSocket,
    _segment: Segment,
}

impl Rack {
    fn new(value: &[u8], mode: Mode) -> Rack {
        let datapath = switch(&format!("{}:5357", Segment::SWITCH), value);
        let segment = Segment::new(2).unwrap();
        let attachment = segment.attach(&datapath, mode).unwrap();
        let bind = || {
            UdpSocket::bind((Segment::HOSTS, 0)).map_err(|error| Error::System("binding", error))
        };
        let client = segment.on_hosts(bind).unwrap();
        client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        client.connect((Segment::SWITCH, 5357)).unwrap();
        Rack { attachment, client, _segment: segment }
    }

    /// What a client reads. Only the kernel is there to answer.
    fn read(&self) -> Vec<u8> {
        let mut bytes = [0; PACKET_BYTES_MAX];
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            self.client.send(Packet::build(header(Op::Read), &[], KEY).bytes()).unwrap();
            if let Ok(length) = self.client.recv(&mut bytes) {
                let answer = PacketRef::parse(&bytes[..length]).unwrap();
                assert_eq!(answer.header.op, Op::ReadReply);
                return answer.value.to_vec();
            }
        }
        panic!("no answer");
    }
}

#[test]
fn two_networks_with_the_same_names_and_addresses_know_nothing_of_each_other() {
    if !may_load() {
        return;
    }
    let (one, two) = (Rack::new(b"one", Mode::Native), Rack::new(b"two", Mode::Generic));
    let mode = |rack: &Rack| rack.attachment.watch().mode();
    assert_eq!((mode(&one), mode(&two)), (Mode::Native, Mode::Generic));
    assert!(one.attachment.has_peer_program());
    for _ in 0..10 {
        assert_eq!((one.read(), two.read()), (b"one".to_vec(), b"two".to_vec()));
    }
    drop(one);
    assert_eq!(two.read(), b"two");
}

#[test]
fn who_watches_sees_that_a_datapath_is_no_longer_there() {
    if !may_load() {
        return;
    }
    let datapath = small_switch(1, 1);
    let segment = Segment::new(1).unwrap();
    let attachment = segment.attach(&datapath, Mode::Generic).unwrap();
    let watch = attachment.watch().clone();
    assert_eq!((watch.interface(), watch.is_attached()), (Segment::SWITCH_INTERFACE, true));
    drop(attachment);
    assert!(!watch.is_attached());
    // The interface goes with its namespace, when the kernel comes to it.
    let attachment = segment.attach(&datapath, Mode::Generic).unwrap();
    drop(segment);
    let begun = Instant::now();
    while attachment.watch().is_attached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the interface doesn't go");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_program_that_the_other_end_has_already_will_do() {
    if !may_load() {
        return;
    }
    let classes = vec![ClassConfig { value_bytes: 128, slots: 1 }];
    let config = Config {
        classes,
        lanes: LANES,
        partitions: 1,
        nodes: 1,
        sketch_width: 64,
        ..Config::default()
    };
    let (datapath, other) = (small_switch(1, 1), Meter::new(&config).unwrap());
    let segment = Segment::new(1).unwrap();
    let _sink = segment.on_hosts(|| other.put(Program::Sink, Segment::HOSTS_INTERFACE)).unwrap();
    let attachment = segment.attach(&datapath, Mode::Native).unwrap();
    assert!(attachment.watch().is_attached() && !attachment.has_peer_program());
}
