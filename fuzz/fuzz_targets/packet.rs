//! Any bytes into the codec and, as if from the wire, into the pipeline.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use switchback_datapath::{Config, Datapath, Shard};
use switchback_wire::{Address, Packet, PacketRef};

static DATAPATH: LazyLock<Datapath> = LazyLock::new(|| {
    let datapath = Datapath::new(&Config::default()).expect("the default configuration is valid");
    datapath.set_node(0, Address::in_memory(1, 0));
    for partition in 0..4096 {
        datapath.set_route(partition, &[0]).expect("node 0 exists");
    }
    datapath
});

fuzz_target!(|bytes: &[u8]| {
    let parsed = PacketRef::parse(bytes).is_ok();
    let mut packet = Packet::new();
    if packet.copy_from(bytes).is_none() {
        assert!(!parsed, "longer than a packet may be");
        return;
    }
    for from in [Address::in_memory(2, 0), Address::in_memory(1, 0)] {
        let mut packet = packet.clone();
        let _ = DATAPATH.process(&mut packet, from, 1, 7, Shard::new(0));
    }
});
