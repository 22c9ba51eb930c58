//! The kernel's build of the pipeline as tests use it.

// Each test uses a part of it; a failed unwrap is a failed test.
#![allow(dead_code, clippy::unwrap_used)]

#[path = "../../../datapath/tests/conformance/mod.rs"]
pub(crate) mod conformance;

use conformance::*;
use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use switchback_datapath::state::{Lane, Record, Registers};
use switchback_datapath::*;
use switchback_wire::*;
use switchback_xdp::XdpDatapath;

/// Whether this process may load programs; if not, the test is skipped.
pub(crate) fn may_load() -> bool {
    let may = switchback_xdp::permission();
    if may.is_err() {
        switchback_testing::skip("bpf");
    }
    may.is_ok()
}

/// A control packet, repeated while the other CPU holds the record, as the agent does.
pub(crate) fn control(datapath: &XdpDatapath, header: Header, key: &[u8]) -> Packet {
    loop {
        let mut packet = Packet::build(header, &[], key);
        match datapath.inject(&mut packet) {
            Verdict::Reply => return packet,
            Verdict::Drop(DropReason::Contended) => {}
            other => panic!("{:?}: {other:?}", header.op),
        }
    }
}

/// A switch for the CPUs to meet on: one class of slots, one partition, a ring of reports, epoch 1.
pub(crate) fn small_switch(slots: u32, reports: u32) -> XdpDatapath {
    let config = Config {
        classes: vec![ClassConfig { value_bytes: 1168, slots }],
        lanes: 8,
        partitions: 1,
        nodes: 1,
        sketch_width: 64,
        reports,
        ..Config::default()
    };
    let datapath = XdpDatapath::new(&config, Address::default()).unwrap();
    datapath.set_map(&Map::equal(vec![vec![0]])).unwrap();
    let begin = Header { epoch: 1, generation: 1, ..Header::new(Op::SetEpoch) };
    control(&datapath, begin, b"-");
    datapath
}

/// A value that shows whether it is whole: `n`, as often as `n` says.
pub(crate) fn value_of(n: u64) -> Vec<u8> {
    n.to_be_bytes().repeat(1 + (n % 128) as usize)
}

/// The `n` of such a value, which must be whole.
pub(crate) fn assert_whole(value: &[u8]) -> u64 {
    let n = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value.len(), 8 * (1 + (n % 128) as usize), "as long as it says");
    assert!(value.chunks(8).all(|word| word == n.to_be_bytes()), "all of one write");
    n
}

/// Loading takes most of a second, so what was loaded for the last vector is used again, after it
/// has forgotten everything.
pub(crate) struct Kernel(Rc<XdpDatapath>);

thread_local! {
    static LOADED: RefCell<Option<Rc<XdpDatapath>>> = const { RefCell::new(None) };
}

impl Kernel {
    fn load(config: &Config) -> Kernel {
        LOADED.with_borrow_mut(|loaded| {
            let same = loaded.take().filter(|loaded| loaded.config() == config);
            let datapath = match same {
                Some(datapath) => {
                    // A lane that a vector has locked stays locked for ever.
                    for lane in 0..config.lanes {
                        datapath.poke_lane(lane, &Lane::default());
                    }
                    datapath.clear();
                    datapath
                }
                None => Rc::new(XdpDatapath::new(config, Address::default()).unwrap()),
            };
            *loaded = Some(Rc::clone(&datapath));
            Kernel(datapath)
        })
    }
}

impl Deref for Kernel {
    type Target = XdpDatapath;
    fn deref(&self) -> &XdpDatapath {
        &self.0
    }
}

subject!(
    Kernel as XdpDatapath,
    |this, packet, from, now_ms, random| XdpDatapath::process(this, packet, from, now_ms, random),
    Kernel::load
);

/// The key of [`switch`]'s record.
pub(crate) const KEY: &[u8] = b"a key of 21 bytes....";

/// A switch with one record, written once.
pub(crate) fn switch(endpoint: &str, value: &[u8]) -> XdpDatapath {
    let endpoint: std::net::SocketAddr = endpoint.parse().unwrap();
    let datapath = XdpDatapath::new(&switch_config(), endpoint.into()).unwrap();
    store(&datapath, value);
    datapath
}

/// What it is made with.
pub(crate) fn switch_config() -> Config {
    Config {
        classes: vec![ClassConfig { value_bytes: 1168, slots: 4 }],
        lanes: 4,
        partitions: 1,
        nodes: 1,
        sketch_width: 64,
        ..Config::default()
    }
}

/// Gives an empty switch its record.
pub(crate) fn store(datapath: &XdpDatapath, value: &[u8]) {
    datapath.set_map(&Map::equal(vec![vec![0]])).unwrap();
    let control = |header: Header| {
        let mut packet = Packet::build(Header { epoch: 1, key_hash: hash(), ..header }, &[], KEY);
        assert_eq!(datapath.inject(&mut packet), Verdict::Reply);
    };
    control(Header { generation: 1, ..Header::new(Op::SetEpoch) });
    control(Header::new(Op::Admit));
    datapath.lookup_insert(&hash(), 0, 0).unwrap();
    control(Header::new(Op::SetValid));
    let mut write = Packet::build(header(Op::Write), value, KEY);
    assert_eq!(datapath.process(&mut write, Address::in_memory(1, 1), 0, 0), Verdict::Reply);
}

fn hash() -> KeyHash {
    HashKey([3; 16]).hash(KEY)
}

pub(crate) fn header(op: Op) -> Header {
    Header { epoch: 1, key_hash: hash(), request: 1, ..Header::new(op) }
}
