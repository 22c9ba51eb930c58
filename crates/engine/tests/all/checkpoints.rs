//! Checkpoints: copies of what is stored, from which an engine opens.

use crate::common::*;
use std::fs;
use std::path::Path;
use switchback_core::storage::*;
use switchback_engine::rocks::{Options, RocksEngine, checkpoints_of};
use switchback_engine::{MemoryEngine, SyncPolicy};
use switchback_wire::Seq;
use tempfile::tempdir;

fn checkpoint(number: u64) -> EngineOp {
    EngineOp::Checkpoint { id: 0, number }
}

/// The numbers of the checkpoints that there are.
fn numbers(path: &Path) -> Vec<u64> {
    let entries = fs::read_dir(checkpoints_of(path)).unwrap();
    entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect()
}

/// What is stored before and after a checkpoint, in one group.
fn around(number: u64) -> [EngineOp; 6] {
    let of_b = Mark { fence: Seq(1), offer: OfferId::from_bits(1), floor: Seq(0) };
    [
        put(b"a", record(5, b"five"), NEWER),
        mark(b"b", Some(of_b)),
        state(b"s"),
        EngineOp::FlushSoon { id: 0 },
        checkpoint(number),
        put(b"a", record(6, b"six"), NEWER),
    ]
}

#[test]
fn a_checkpoint_has_all_that_was_stored_before_it() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("node-0");
    let (mut engine, _) = RocksEngine::open(&path, &Options::default()).unwrap();
    let replies = run(&mut engine, around(7));
    assert!(replies.iter().all(Result::is_ok), "{replies:?}");
    let copy = checkpoints_of(&path).join("7");
    let (mut restored, loaded) = RocksEngine::open(&copy, &Options::default()).unwrap();
    assert_eq!((loaded.state.as_deref(), loaded.marks.len()), (Some(&b"s"[..]), 1));
    assert_eq!(run_one(&mut restored, get(b"a")), got(record(5, b"five")));
    assert_eq!(run_one(&mut engine, get(b"a")), got(record(6, b"six")));
}

#[test]
fn the_last_checkpoint_is_kept_and_an_earlier_number_changes_nothing() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("node-0");
    let (mut engine, _) = RocksEngine::open(&path, &Options::default()).unwrap();
    run(&mut engine, [put(b"a", record(5, b"five"), NEWER), checkpoint(7)]);
    run(&mut engine, [put(b"a", record(6, b"six"), NEWER), checkpoint(9)]);
    // Commands are repeated until they are answered.
    run(&mut engine, [put(b"a", record(8, b"eight"), NEWER), checkpoint(9), checkpoint(7)]);
    let checkpoints = checkpoints_of(&path);
    assert_eq!(numbers(&path), [9]);
    let (mut restored, _) = RocksEngine::open(checkpoints.join("9"), &Options::default()).unwrap();
    assert_eq!(run_one(&mut restored, get(b"a")), got(record(6, b"six")));
}

/// A process was killed while it made one, or while it dropped one.
#[test]
fn what_is_left_of_an_unfinished_checkpoint_does_no_harm() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("node-0");
    let (mut engine, _) = RocksEngine::open(&path, &Options::default()).unwrap();
    let unfinished = checkpoints_of(&path).join("unfinished");
    fs::create_dir_all(&unfinished).unwrap();
    fs::write(unfinished.join("000009.sst"), b"half").unwrap();
    assert_eq!(numbers(&path), []);
    assert_eq!(run_one(&mut engine, checkpoint(1)), SET);
    assert_eq!(numbers(&path), [1]);
    assert!(!unfinished.exists());
}

#[test]
fn the_simulated_disk_has_checkpoints_as_well() {
    let mut engine = MemoryEngine::new(SyncPolicy::Always);
    run(&mut engine, around(7));
    run(&mut engine, [checkpoint(7), checkpoint(6)]);
    assert!(engine.restored(6).is_none());
    let mut restored = engine.restored(7).unwrap();
    assert_eq!(restored.loaded().state.as_deref(), Some(&b"s"[..]));
    assert_eq!(run_one(&mut restored, get(b"a")), got(record(5, b"five")));
}
