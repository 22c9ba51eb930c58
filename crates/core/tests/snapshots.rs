//! Snapshots, as the controller sees them.

mod rack;

use rack::Rack;
use switchback_core::control::{Message, Peer, SwitchReport};

/// A switch of many records, or a slow one, takes longer than any pause that is a sign of trouble.
#[test]
fn a_snapshot_that_goes_on_is_waited_for_however_long_it_takes() {
    let mut rack = Rack::with_clients(&[]);
    rack.controller.snapshot_now(rack.now);
    rack.pass(0);
    let (epoch, generation) = (rack.controller.epoch(), *rack.snapshots.last().expect("one was asked for"));
    for index in 0..10 {
        rack.lives_for(1_500_000);
        let report = SwitchReport::SnapshotChunk { epoch, generation, index, records: Vec::new() };
        rack.hear(Peer::Switch(0), Message::FromSwitch(report));
    }
    let end = SwitchReport::SnapshotEnd { epoch, generation, chunks: 10, complete: true };
    let before = rack.controller.snapshots_completed();
    rack.hear(Peer::Switch(0), Message::FromSwitch(end));
    assert_eq!(rack.controller.snapshots_completed(), before + 1);
}

#[test]
fn a_snapshot_without_progress_is_given_up() {
    let mut rack = Rack::with_clients(&[]);
    rack.controller.snapshot_now(rack.now);
    rack.pass(0);
    let asked = rack.snapshots.len();
    rack.lives_for(3_000_000);
    assert!(rack.snapshots.len() > asked, "another one is asked for");
}

/// What the switch absorbed since it began isn't in a snapshot that is under way.
#[test]
fn one_that_is_asked_for_begins_afterwards() {
    let mut rack = Rack::with_clients(&[]);
    let first = rack.controller.snapshot_now(rack.now);
    rack.pass(0);
    let under_way = *rack.snapshots.last().expect("one was asked for");
    assert!(under_way >= first, "nothing was under way");
    let second = rack.controller.snapshot_now(rack.now);
    assert!(second > under_way);
    for generation in [under_way, second] {
        assert_eq!(rack.snapshots.last(), Some(&generation));
        assert!(rack.controller.status(rack.now).durable_generation < second);
        let epoch = rack.controller.epoch();
        let end = SwitchReport::SnapshotEnd { epoch, generation, chunks: 0, complete: true };
        rack.hear(Peer::Switch(0), Message::FromSwitch(end));
        rack.pass(100_000);
    }
    assert_eq!(rack.controller.status(rack.now).durable_generation, second);
}
