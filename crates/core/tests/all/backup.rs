//! Backups: one cut through nodes and caches (rule 29).

use crate::rack::{Rack, client_hello};
use std::collections::BTreeMap;
use switchback_core::control::{
    ClientNotice, ClientReport, KeyedRecord, Message, Peer, SwitchReport,
};
use switchback_core::controller::{BackupFile, BackupPart, ControllerConfig, Files};
use switchback_core::storage::Record;
use switchback_core::topology::ChainId;
use switchback_wire::{KeyHash, Seq};

const CHAIN: ChainId = ChainId::new(0);
/// When a backup that was begun has waited for nodes to flush.
const FLUSHED_US: u64 = 2_000_000;

/// The rounds in which a client was asked to hold its writes back.
fn holds(rack: &Rack, client: u64) -> Vec<u64> {
    let of_client = rack.told.iter().filter(|(to, _)| *to == client);
    of_client
        .filter_map(|(_, notice)| match notice {
            ClientNotice::Hold { round, .. } => Some(*round),
            _ => None,
        })
        .collect()
}

/// The rounds that were over, as a client heard.
fn resumed(rack: &Rack, client: u64) -> Vec<u64> {
    let of_client = rack.told.iter().filter(|(to, _)| *to == client);
    of_client
        .filter_map(|(_, notice)| match notice {
            ClientNotice::Resume { round } => Some(*round),
            _ => None,
        })
        .collect()
}

fn says_hello(rack: &mut Rack, client: u64) {
    rack.client_says(client, client_hello());
}

/// `us` microseconds pass; the switch and client 1 say hello now and then.
fn all_live_for(rack: &mut Rack, us: u64) {
    for _ in 0..us / 100_000 {
        rack.switch_starts(1);
        says_hello(rack, 1);
        rack.pass(100_000);
    }
}

/// A backup is asked for, nodes have flushed, and clients were asked to hold their writes back; the
/// round.
fn asked(rack: &mut Rack) -> u64 {
    rack.controller.back_up(rack.now);
    all_live_for(rack, FLUSHED_US);
    *holds(rack, 1).last().expect("it was asked")
}

fn client_holds(rack: &mut Rack, client: u64, round: u64) {
    let epoch = rack.controller.epoch();
    rack.client_says(client, ClientReport::Holding { epoch, round });
}

fn record() -> KeyedRecord {
    let record = Record { seq: Seq(1 << 40 | 7), value: b"v".to_vec(), ..Record::default() };
    KeyedRecord { hash: KeyHash([1; 16]), key: vec![1], record }
}

/// The switch sends the snapshot that it was told to take last.
fn snapshot_arrives(rack: &mut Rack, records: Vec<KeyedRecord>) {
    let (epoch, generation) = (rack.controller.epoch(), *rack.snapshots.last().unwrap());
    let chunk = SwitchReport::SnapshotChunk { epoch, generation, index: 0, records };
    rack.hear(Peer::Switch(0), Message::FromSwitch(chunk));
    let end = SwitchReport::SnapshotEnd { epoch, generation, chunks: 1, complete: true };
    rack.hear(Peer::Switch(0), Message::FromSwitch(end));
}

/// A rack that takes no snapshots unasked but that of its recovery, which has arrived; and a
/// client.
fn quiet_rack() -> Rack {
    let config = ControllerConfig { snapshot_us: None, ..ControllerConfig::default() };
    let mut rack = Rack::new(config, &[1]);
    rack.lives_for(1_000_000);
    snapshot_arrives(&mut rack, Vec::new());
    rack.snapshots.clear();
    rack
}

#[test]
fn a_cut_is_made_while_clients_hold_their_writes_back() {
    let mut rack = quiet_rack();
    let round = asked(&mut rack);
    assert!(rack.snapshots.is_empty() && rack.checkpoints.is_empty(), "it waits for the client");
    rack.makes_checkpoints = false;
    client_holds(&mut rack, 1, round);
    assert_eq!((rack.snapshots.len(), &rack.checkpoints[..]), (1, &[round][..]));
    assert!(resumed(&rack, 1).is_empty(), "the node has no checkpoint yet");
    rack.makes_checkpoints = true;
    rack.pass(100_000);
    assert_eq!(resumed(&rack, 1), [round]);
    assert!(rack.backups.is_empty(), "the snapshot isn't whole");
    snapshot_arrives(&mut rack, vec![record()]);
    let files: Vec<_> = rack.backups.iter().map(|(file, _)| *file).collect();
    let file = |part| BackupFile { number: round, part };
    assert_eq!(files, [file(BackupPart::Snapshot(CHAIN)), file(BackupPart::Directory)]);
    let status = rack.controller.backup();
    assert_eq!((status.waits_for, status.failure, status.tries), (None, None, 1));
    assert!(status.is_complete && status.held_us == 100_000);
}

#[test]
fn a_cut_that_takes_too_long_is_void_and_its_answers_count_for_no_other() {
    let mut rack = quiet_rack();
    let first = asked(&mut rack);
    rack.pass(250_000);
    assert_eq!(resumed(&rack, 1), [first]);
    client_holds(&mut rack, 1, first);
    assert!(rack.snapshots.is_empty());
    all_live_for(&mut rack, 1_000_000);
    let second = *holds(&rack, 1).last().unwrap();
    assert!(second > first);
    client_holds(&mut rack, 1, first);
    assert!(rack.snapshots.is_empty(), "the client may write again since");
    client_holds(&mut rack, 1, second);
    assert_eq!(rack.checkpoints, [second]);
}

#[test]
fn a_checkpoint_that_comes_too_late_makes_the_cut_void() {
    let mut rack = quiet_rack();
    let first = asked(&mut rack);
    rack.makes_checkpoints = false;
    client_holds(&mut rack, 1, first);
    rack.pass(250_000);
    assert_eq!(resumed(&rack, 1), [first]);
    rack.makes_checkpoints = true;
    rack.pass(500_000);
    snapshot_arrives(&mut rack, vec![record()]);
    assert!(rack.backups.is_empty(), "a client may have written between the two");
    let failure = rack.controller.backup().failure.expect("a reason");
    assert!(failure.contains("checkpoints of nodes {0}"), "{failure}");
}

#[test]
fn no_other_client_gets_a_lease_while_a_cut_is_made() {
    let mut rack = quiet_rack();
    let round = asked(&mut rack);
    let granted = |rack: &Rack| {
        let to_it = |(to, notice): &&(u64, ClientNotice)| {
            *to == 2 && matches!(notice, ClientNotice::Granted(_))
        };
        rack.told.iter().filter(to_it).count()
    };
    says_hello(&mut rack, 2);
    assert_eq!(granted(&rack), 0, "it could write at once");
    client_holds(&mut rack, 1, round);
    assert_eq!(resumed(&rack, 1), [round]);
    says_hello(&mut rack, 2);
    assert_eq!(granted(&rack), 1);
}

#[test]
fn a_client_that_missed_the_notice_hears_it_with_its_next_hello() {
    let mut rack = quiet_rack();
    let round = asked(&mut rack);
    says_hello(&mut rack, 1);
    assert_eq!(holds(&rack, 1), [round, round]);
    client_holds(&mut rack, 1, round);
    says_hello(&mut rack, 1);
    assert_eq!(holds(&rack, 1), [round, round]);
}

#[test]
fn a_client_whose_lease_has_run_out_is_not_waited_for() {
    let mut rack = quiet_rack();
    rack.lives_for(20_000_000);
    rack.controller.back_up(rack.now);
    rack.lives_for(FLUSHED_US);
    assert!(holds(&rack, 1).is_empty());
    assert_eq!((rack.snapshots.len(), rack.checkpoints.len()), (1, 1));
}

/// The model's `lease-unheld`: it could write while the cut is made.
#[test]
fn a_client_whose_lease_ran_out_while_it_was_asked_gets_none_before_the_cut_is_made() {
    let mut rack = quiet_rack();
    // Its lease of 5 s runs out soon after it is asked.
    rack.lives_for(1_900_000);
    rack.controller.back_up(rack.now);
    rack.lives_for(FLUSHED_US);
    let round = *holds(&rack, 1).last().expect("it was asked");
    assert!(rack.snapshots.is_empty(), "it still has its lease");
    rack.makes_checkpoints = false;
    rack.lives_for(200_000);
    assert_eq!((rack.snapshots.len(), &rack.checkpoints[..1]), (1, &[round][..]));
    let granted = |rack: &Rack| {
        rack.told.iter().filter(|(_, notice)| matches!(notice, ClientNotice::Granted(_))).count()
    };
    let before = granted(&rack);
    says_hello(&mut rack, 1);
    assert_eq!(granted(&rack), before);
    rack.makes_checkpoints = true;
    rack.lives_for(100_000);
    assert_eq!(resumed(&rack, 1), [round]);
    says_hello(&mut rack, 1);
    assert_eq!(granted(&rack), before + 1);
}

#[test]
fn a_snapshot_that_fails_makes_the_cut_void() {
    let mut rack = quiet_rack();
    let first = asked(&mut rack);
    client_holds(&mut rack, 1, first);
    let (epoch, generation) = (rack.controller.epoch(), rack.snapshots[0]);
    let end = SwitchReport::SnapshotEnd { epoch, generation, chunks: 0, complete: false };
    rack.hear(Peer::Switch(0), Message::FromSwitch(end));
    assert!(rack.backups.is_empty());
    assert!(rack.controller.backup().failure.is_some());
}

#[test]
fn a_backup_that_cannot_be_cut_is_given_up() {
    let mut rack = quiet_rack();
    asked(&mut rack);
    all_live_for(&mut rack, 10_000_000);
    let status = rack.controller.backup();
    assert_eq!((status.waits_for, status.tries, status.is_complete), (None, 5, false));
    assert!(status.failure.unwrap().contains("clients to hold their writes back (1 of them)"));
    assert_eq!(holds(&rack, 1).last(), resumed(&rack, 1).last());
}

#[test]
fn a_restored_rack_stores_the_snapshot_and_waits_for_no_client() {
    let mut rack = quiet_rack();
    let round = asked(&mut rack);
    client_holds(&mut rack, 1, round);
    snapshot_arrives(&mut rack, vec![record()]);
    let mut files = Files { directory: None, snapshots: BTreeMap::new() };
    for (file, bytes) in rack.backups {
        match file.part {
            BackupPart::Snapshot(chain) => _ = files.snapshots.insert(chain, bytes),
            BackupPart::Directory => files.directory = Some(bytes),
        }
    }
    let restored = Rack::of(files, ControllerConfig::default(), &[]);
    assert_eq!(restored.stored, [record()]);
    assert!(restored.controller.epoch() > rack.controller.epoch());
}
