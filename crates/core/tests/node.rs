//! What a node tells of itself, and what it takes of the controller.
#![allow(clippy::unwrap_used)]

use switchback_core::Now;
use switchback_core::control::{Command, KeyedRecord, NodeCommand, NodeConfig, NodeReport};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{
    EngineDone, EngineError, EngineOp, EngineReply, Loaded, OfferId, OpId, Record,
};
use switchback_core::topology::chain_of;
use switchback_wire::{Address, HashKey, KeyHash, Map};

/// What the shim's next hello says of its storage.
fn hello(shim: &mut Shim, now: Now) -> Option<String> {
    shim.handle_timeout(now);
    let mut hellos = std::iter::from_fn(|| shim.poll_message()).filter_map(|report| match report {
        NodeReport::Hello { failure, .. } => Some(failure),
        _ => None,
    });
    hellos.next().expect("it is time for one")
}

const START: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };

/// Node 0, which has never served.
fn new_node() -> Shim {
    let (address, limits) = (Address::in_memory(3, 0), NodeLimits::default());
    Shim::new(0, 1, address, limits, Mechanisms::ALL, Loaded::default(), START).unwrap()
}

/// Tells a node of epoch 1 and this map; the operation that makes that durable.
fn begin(shim: &mut Shim, map: Map) -> OpId {
    let config = NodeConfig {
        hash_key: HashKey([1; 16]),
        map,
        switch: Some(Address::in_memory(2, 0)),
        lanes: 16,
        write_through: false,
    };
    let command = Command { id: 1, chain: chain_of(0), epoch: 1, body: NodeCommand::Epoch(config) };
    shim.handle_message(START, command);
    let mut ops = Vec::new();
    shim.poll_ops(&mut ops);
    let [EngineOp::SetState { id, .. }] = ops[..] else { panic!("{ops:?}") };
    id
}

#[test]
fn what_the_storage_refuses_is_told_for_a_while() {
    let (mut shim, mut now) = (new_node(), START);
    assert_eq!(hello(&mut shim, now), None);
    let id = begin(&mut shim, Map::equal(vec![vec![0]]));
    shim.handle_done(now, EngineDone { id, result: Err(EngineError::NoSpace("/data".into())) });
    now.monotonic_us += 1_000_000;
    assert_eq!(
        hello(&mut shim, now).as_deref(),
        Some("no space left on the device that holds /data")
    );
    now.monotonic_us += 10_000_000;
    assert_eq!(hello(&mut shim, now), None, "it was long ago");
}

/// Else a controller with an old map would take for stored what the partition's head doesn't have.
#[test]
fn only_the_head_of_a_partition_takes_commands_about_its_keys() {
    let (mut shim, now) = (new_node(), START);
    let id = begin(&mut shim, Map::equal(vec![vec![0], vec![1, 0]]));
    shim.handle_done(now, EngineDone { id, result: Ok(EngineReply::Set) });
    let mut refusal = |id, body| {
        shim.handle_message(now, Command { id, chain: chain_of(0), epoch: 1, body });
        let done = |report| match report {
            NodeReport::Done { id: its, error, .. } if its == id => Some(error),
            _ => None,
        };
        std::iter::from_fn(|| shim.poll_message())
            .find_map(done)
            .expect("nothing to store, so it answers at once")
    };
    let (own, other) = (KeyHash([0x7f; 16]), KeyHash([0x80; 16]));
    let store = |hash| {
        NodeCommand::Store(vec![KeyedRecord { hash, key: vec![1], record: Record::default() }])
    };
    let clear = |hashes: &[KeyHash]| {
        NodeCommand::ClearOffers(hashes.iter().map(|hash| (*hash, OfferId::from_bits(1))).collect())
    };
    assert!(refusal(2, store(own)).is_none() && refusal(3, store(other)).is_some());
    assert!(refusal(4, clear(&[own])).is_none() && refusal(5, clear(&[own, other])).is_some());
}
