//! What a node tells of itself.
#![allow(clippy::unwrap_used)]

use switchback_core::Now;
use switchback_core::control::{Command, NodeCommand, NodeConfig, NodeReport};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{EngineDone, EngineError, EngineOp, Loaded};
use switchback_wire::{Address, HashKey};

/// What the shim's next hello says of its storage.
fn hello(shim: &mut Shim, now: Now) -> Option<String> {
    shim.handle_timeout(now);
    let mut hellos = std::iter::from_fn(|| shim.poll_message()).filter_map(|report| match report {
        NodeReport::Hello { failure, .. } => Some(failure),
        _ => None,
    });
    hellos.next().expect("it is time for one")
}

#[test]
fn what_the_storage_refuses_is_told_for_a_while() {
    let mut now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };
    let (node, limits) = (Address::in_memory(3, 0), NodeLimits::default());
    let mut shim = Shim::new(0, 1, node, limits, Mechanisms::ALL, Loaded::default(), now).unwrap();
    assert_eq!(hello(&mut shim, now), None);
    let config = NodeConfig {
        hash_key: HashKey([1; 16]),
        routes: vec![vec![0]],
        switch: Some(Address::in_memory(2, 0)),
        lanes: 16,
        write_through: false,
    };
    shim.handle_message(now, Command { id: 1, epoch: 1, body: NodeCommand::Epoch(config) });
    let mut ops = Vec::new();
    shim.poll_ops(&mut ops);
    let [EngineOp::SetState { id, .. }] = ops[..] else { panic!("{ops:?}") };
    shim.handle_done(now, EngineDone { id, result: Err(EngineError::NoSpace("/data".into())) });
    now.monotonic_us += 1_000_000;
    assert_eq!(hello(&mut shim, now).as_deref(), Some("no space left on the device that holds /data"));
    now.monotonic_us += 10_000_000;
    assert_eq!(hello(&mut shim, now), None, "it was long ago");
}
