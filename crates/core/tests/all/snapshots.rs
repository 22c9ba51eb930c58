//! Snapshots, as the controller sees them.

use crate::rack::Rack;
use switchback_core::control::{KeyedRecord, Message, Peer, SwitchReport};
use switchback_core::controller::{ControllerConfig, PeriodicSnapshots};
use switchback_core::storage::Record;
use switchback_wire::{KeyHash, Scheme};

/// A switch of many records, or a slow one, takes longer than any pause that is a sign of trouble.
#[test]
fn a_snapshot_that_goes_on_is_waited_for_however_long_it_takes() {
    let mut rack = Rack::with_clients(&[]);
    rack.controller.snapshot_now(rack.now);
    rack.pass(0);
    let (epoch, generation) =
        (rack.controller.epoch(), *rack.snapshots.last().expect("one was asked for"));
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

/// A rack whose cache holds two keys, with a snapshot under way of this generation.
fn rack_with_snapshot() -> (Rack, u32) {
    let mut rack =
        Rack::new(ControllerConfig { cache_records: 2, ..ControllerConfig::default() }, &[]);
    rack.controller.snapshot_now(rack.now);
    rack.pass(0);
    let generation = *rack.snapshots.last().expect("one was asked for");
    (rack, generation)
}

fn chunk(rack: &mut Rack, generation: u32, index: u32, keys: &[u8]) {
    let record = |key: &u8| KeyedRecord {
        hash: KeyHash([*key; 16]),
        key: vec![*key],
        record: Record::default(),
    };
    let (epoch, records) = (rack.controller.epoch(), keys.iter().map(record).collect());
    let report = SwitchReport::SnapshotChunk { epoch, generation, index, records };
    rack.hear(Peer::Switch(0), Message::FromSwitch(report));
}

fn end(rack: &mut Rack, generation: u32, chunks: u32) {
    let end = SwitchReport::SnapshotEnd {
        epoch: rack.controller.epoch(),
        generation,
        chunks,
        complete: true,
    };
    rack.hear(Peer::Switch(0), Message::FromSwitch(end));
}

/// Fails if a switch can make the controller hold what no cache has: more records, or chunks
/// without end.
#[test]
fn a_snapshot_of_more_than_the_cache_holds_fails() {
    for chunks in [&[&[1, 2, 3][..]][..], &[&[1, 2], &[3]], &[&[], &[], &[]]] {
        let (mut rack, generation) = rack_with_snapshot();
        let before = rack.controller.status(rack.now);
        for (index, keys) in (0..).zip(chunks) {
            chunk(&mut rack, generation, index, keys);
        }
        assert_eq!(rack.controller.status(rack.now).snapshots_failed, before.snapshots_failed + 1);
        end(&mut rack, generation, chunks.len() as u32);
        assert_eq!(rack.controller.snapshots_completed(), before.snapshots_completed);
        let asked = rack.snapshots.len();
        rack.pass(100_000);
        assert_eq!(rack.snapshots.len(), asked + 1, "the next one is asked for soon");
    }
}

#[test]
fn a_snapshot_of_all_that_the_cache_holds_is_whole() {
    let (mut rack, generation) = rack_with_snapshot();
    let before = rack.controller.snapshots_completed();
    chunk(&mut rack, generation, 0, &[1]);
    chunk(&mut rack, generation, 1, &[2]);
    end(&mut rack, generation, 2);
    assert_eq!(rack.controller.snapshots_completed(), before + 1);
    assert_eq!(rack.controller.status(rack.now).snapshot_records, 2);
}

fn periodic(rack: &Rack) -> Option<PeriodicSnapshots> {
    rack.controller.chain_statuses(rack.now)[0].snapshots
}

/// Fails if an operator isn't told that snapshots fail: their age rises until one is durable.
#[test]
fn the_age_of_the_last_snapshot_rises_until_another_one_is_durable() {
    let (mut rack, _) = rack_with_snapshot();
    let period_us = 10_000_000;
    assert_eq!(periodic(&rack), Some(PeriodicSnapshots { period_us, age_us: 0 }), "just recovered");
    rack.lives_for(30_000_000);
    assert_eq!(periodic(&rack), Some(PeriodicSnapshots { period_us, age_us: 30_000_000 }));
    let generation = *rack.snapshots.last().expect("they are asked for again and again");
    end(&mut rack, generation, 0);
    assert_eq!(periodic(&rack), Some(PeriodicSnapshots { period_us, age_us: 0 }));
}

/// Fails if an operator is told of a period in which none is taken.
#[test]
fn snapshots_are_periodic_only_where_a_period_is_configured_and_writes_are_absorbed() {
    let without = ControllerConfig { snapshot_us: None, ..ControllerConfig::default() };
    assert_eq!(periodic(&Rack::new(without, &[])), None);
    for scheme in Scheme::OF_ONE_LAYER {
        let rack = Rack::new(ControllerConfig { scheme, ..ControllerConfig::default() }, &[]);
        assert_eq!(periodic(&rack).is_some(), scheme == Scheme::FarReach, "{scheme}");
    }
}
