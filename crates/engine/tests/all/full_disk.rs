//! Faults of the disk: full, failing, rotten. Nothing is acknowledged that isn't there, reads go
//! on, writes come back.

use crate::common::*;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};
use switchback_core::storage::*;
use switchback_engine::rocks::RocksEngine;
use switchback_engine::{Engine, Fault, MemoryEngine, SyncPolicy};
use switchback_testing::Tmpfs;
use switchback_wire::Seq;

fn no_space(reply: &Reply) -> bool {
    matches!(reply, Err(EngineError::NoSpace(_)))
}

/// Fails if any operation that rests on a failed commit is answered as if it had succeeded, if one
/// that doesn't is failed, if the overlay of a failed group stays, or if its floor or completion
/// does.
#[test]
fn a_failed_group_leaves_nothing() {
    let mut memory = MemoryEngine::new(SyncPolicy::Always);
    run(&mut memory, [put(b"a", record(5, b"five"), NEWER), put(b"b", record(5, b"b"), NEWER)]);
    let done = LaneCompletion { lane: 1, request: 1, seq: Seq(9) };
    let group = || {
        [
            get(b"a"),
            put_completing(b"a", record(9, b"nine"), PutCondition::IfSeq(Seq(5)), done),
            get(b"a"), // rests on the put: the stored record is what is left
            put(b"a", record(7, b"x"), NEWER), // refused because of the put: unknown now
            put(b"b", record(4, b"x"), NEWER), // refused because of the store: still true
            floor(20),
            put(b"c", record(11, b"x"), NEWER), // refused because of the floor: unknown now
            state(b"s"),
            mark(b"a", Some(Mark { fence: Seq(1), offer: OfferId::from_bits(1), floor: Seq(0) })),
        ]
    };
    for (fault, seq) in [(Fault::NoSpace, 15), (Fault::Io, 16)] {
        memory.fail_next(fault);
        let replies = run(&mut memory, group());
        let failed = |reply: &Reply| match fault {
            Fault::NoSpace => no_space(reply),
            Fault::Io => matches!(reply, Err(EngineError::Io(_))),
        };
        assert_eq!([&replies[0], &replies[2]], [&got(record(5, b"five")); 2]);
        assert_eq!(replies[4], refused(5));
        assert!([1, 3, 5, 6, 7, 8].into_iter().all(|at| failed(&replies[at])), "{replies:?}");
        assert_eq!(memory.loaded(), Loaded::default());
        assert_eq!(run(&mut memory, [get(b"a"), get(b"c")]), [got(record(5, b"five")), ABSENT]);
        let below_that_floor = put(format!("d{seq}").as_bytes(), record(seq, b"x"), NEWER);
        assert_eq!(run_one(&mut memory, below_that_floor), stored());
    }
    assert_eq!(run(&mut memory, group())[1], stored());
    assert_eq!(run(&mut memory, [get(b"a")]), [got(record(9, b"nine"))]);
    assert_eq!(memory.loaded().completions, [done]);
}

/// Fails if a full disk takes writes, refuses reads, or stays full.
#[test]
fn the_modelled_disk_fills_up() {
    let mut memory = MemoryEngine::new(SyncPolicy::None);
    run(&mut memory, [put(b"a", record(1, b"x"), NEWER)]);
    memory.set_full(true);
    for _ in 0..3 {
        let replies = run(&mut memory, [put(b"a", record(2, b"y"), NEWER), get(b"b"), get(b"a")]);
        assert!(no_space(&replies[0]));
        assert_eq!(replies[1..], [ABSENT, got(record(1, b"x"))]);
    }
    memory.set_full(false);
    assert_eq!(run_one(&mut memory, put(b"a", record(2, b"y"), NEWER)), stored());
}

/// Fails if a group that wasn't acknowledged can't turn up after a crash (it can on a real disk:
/// written, then the sync failed), or if it turns up although later groups have gone past it.
#[test]
fn a_failed_group_may_turn_up_after_a_crash() {
    for fault in [Fault::Io, Fault::NoSpace] {
        for (survivors, after) in [(0, ABSENT), (1, got(record(1, b"ghost")))] {
            let mut memory = MemoryEngine::new(SyncPolicy::Always);
            memory.fail_next(fault);
            run(&mut memory, [put(b"a", record(1, b"ghost"), NEWER)]);
            memory.fail_next(fault);
            run(&mut memory, [put(b"a", record(2, b"second"), NEWER)]);
            assert_eq!((run_one(&mut memory, get(b"a")), memory.unsynced()), (ABSENT, 1));
            memory.crash(survivors);
            assert_eq!(run_one(&mut memory, get(b"a")), after);
        }
        let mut memory = MemoryEngine::new(SyncPolicy::Always);
        memory.fail_next(fault);
        run(&mut memory, [put(b"a", record(1, b"ghost"), NEWER)]);
        run(&mut memory, [put(b"b", record(2, b"x"), NEWER)]);
        memory.crash(usize::MAX);
        assert_eq!(run(&mut memory, [get(b"a"), get(b"b")]), [ABSENT, got(record(2, b"x"))]);
    }
}

/// Fails if faults that meet groups of reads, which commit nothing, wait in line: then every commit
/// for a long time fails, though the simulator has ended all faults (seed 11505, `nocache`).
#[test]
fn faults_ordered_while_nothing_is_committed_do_not_add_up() {
    let mut memory = MemoryEngine::new(SyncPolicy::Always);
    for _ in 0..3 {
        memory.fail_next(Fault::Io);
        assert_eq!(run_one(&mut memory, get(b"a")), ABSENT);
    }
    let reply = run_one(&mut memory, put(b"a", record(1, b"x"), NEWER));
    assert!(matches!(reply, Err(EngineError::Io(_))), "{reply:?}");
    assert_eq!(run_one(&mut memory, put(b"a", record(2, b"y"), NEWER)), stored());
}

/// Fails if a rotten record is served or overwritten unread, if its neighbours suffer, or if
/// writing it anew doesn't help.
#[test]
fn rot_is_never_served() {
    let mut memory = MemoryEngine::new(SyncPolicy::None);
    run(&mut memory, [put(b"a", record(1, b"x"), NEWER), put(b"b", record(2, b"y"), NEWER)]);
    memory.sync();
    assert!(!memory.rot(&hash(b"nothing"), b"nothing"));
    assert!(memory.rot(&hash(b"a"), b"a"));
    let corrupt = |reply: &Reply| matches!(reply, Err(EngineError::Corrupt(_)));
    assert!(corrupt(&run_one(&mut memory, get(b"a"))));
    assert!(corrupt(&run_one(&mut memory, put(b"a", record(3, b"z"), NEWER))));
    assert!(corrupt(&run_one(&mut memory, scan(0, u64::MAX, 9))));
    assert_eq!(run_one(&mut memory, get(b"b")), got(record(2, b"y")));
    assert_eq!(run_one(&mut memory, put(b"a", record(4, b"new"), KNOWN)), stored());
    assert_eq!(run_one(&mut memory, get(b"a")), got(record(4, b"new")));
    // The new version never reached the disk, so the rotten one is there again.
    memory.crash(0);
    assert!(corrupt(&run_one(&mut memory, get(b"a"))));
}

/// Keys and the newest acknowledged seq of each.
#[derive(Default)]
struct Acknowledged {
    seqs: BTreeMap<Vec<u8>, u64>,
    next: u64,
}

/// Bytes that lz4 can't shrink.
fn noise(seq: u64, bytes: usize) -> Vec<u8> {
    let mut word = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        word.to_le_bytes()
    };
    (0..bytes.div_ceil(8)).flat_map(step).take(bytes).collect()
}

impl Acknowledged {
    /// Writes a group of four, each with a completion; whether it was acknowledged. Fails unless
    /// all or none are.
    fn write(&mut self, engine: &mut dyn Engine) -> bool {
        let seqs: Vec<u64> = (0..4).map(|at| self.next + at + 1).collect();
        self.next += 4;
        let key = |seq: u64| format!("key {}", seq % 1000).into_bytes();
        let ops = seqs.iter().map(|&seq| {
            let done = LaneCompletion { lane: (seq % 4) as u32, request: seq, seq: Seq(seq) };
            put_completing(&key(seq), record(seq, &noise(seq, 4000)), NEWER, done)
        });
        let replies = run(engine, ops);
        let all = replies.iter().all(|reply| *reply == stored());
        assert!(all || replies.iter().all(no_space), "{replies:?}");
        if all {
            self.seqs.extend(seqs.into_iter().map(|seq| (key(seq), seq)));
        }
        all
    }

    /// Fails if an acknowledged write is missing. One that failed may be there only if `ghosts`: it
    /// may have reached the log.
    fn check(&self, engine: &mut dyn Engine, ghosts: bool) {
        for (key, &seq) in &self.seqs {
            let Ok(EngineReply::Got(Some(found))) = run_one(engine, get(key)) else {
                panic!("{seq} is lost")
            };
            assert!(
                found.seq.0 == seq || (ghosts && found.seq.0 > seq),
                "{} instead of {seq}",
                found.seq
            );
            assert_eq!(found.value, noise(found.seq.0, 4000));
        }
    }
}

/// Takes `bytes`, or what is left of them: how much the engine has taken itself by now is
/// RocksDB's affair.
fn take_room(ballast: &Path, bytes: usize) {
    let mut file = File::create(ballast).unwrap();
    let chunk = [1; 1 << 16];
    let taken = (0..bytes / chunk.len()).take_while(|_| file.write_all(&chunk).is_ok()).count();
    println!("ballast: {} KiB", taken * 64);
}

fn fill(engine: &mut dyn Engine, written: &mut Acknowledged) {
    let groups = (0..10_000).find(|_| !written.write(engine));
    println!("full after {} groups", groups.expect("a disk of 24 MiB is full some day"));
}

fn wait_for_room(engine: &mut dyn Engine, written: &mut Acknowledged) {
    let began = Instant::now();
    while !written.write(engine) {
        assert!(began.elapsed() < Duration::from_secs(60), "writes never came back");
        std::thread::sleep(Duration::from_millis(100));
    }
    println!("writes came back after {:.1} s", began.elapsed().as_secs_f64());
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A real file system that is really full, twice. Fails if a group is half stored, a failed write
/// is acknowledged, a read suffers, writes don't come back by themselves, the engine can't be
/// stopped or a copy of the directory (a crash) can't be opened; or if anything acknowledged is
/// lost in any of this.
#[test]
fn a_full_file_system() {
    for sync in [SyncPolicy::Always, SyncPolicy::EverySec, SyncPolicy::None] {
        let Some(mount) = Tmpfs::mount(24 << 10) else { return };
        let (path, ballast) = (mount.path().join("node"), mount.path().join("ballast"));
        let options = switchback_engine::rocks::Options { sync, ..small_options() };
        let (mut engine, _) = RocksEngine::open(&path, &options).unwrap();
        let mut written = Acknowledged::default();
        for round in 0..2 {
            take_room(&ballast, 12 << 20);
            fill(&mut engine, &mut written);
            written.check(&mut engine, false);
            for _ in 0..20 {
                // While it is full, small writes may still fit into the log: they are acknowledged,
                // or they fail.
                written.write(&mut engine);
            }
            let crashed = tempfile::tempdir().unwrap();
            copy(&path, &crashed.path().join("node"));
            let (mut copied, _) = RocksEngine::open(crashed.path().join("node"), &options).unwrap();
            written.check(&mut copied, true);
            fs::remove_file(&ballast).unwrap();
            wait_for_room(&mut engine, &mut written);
            written.check(&mut engine, false);
            println!("{sync}, round {round}: {:?}", engine.statistics());
        }
        assert!(engine.statistics().failed_groups > 0);
        drop(engine);
        let (mut engine, loaded) = RocksEngine::open(&path, &options).unwrap();
        written.check(&mut engine, false);
        assert_eq!(loaded.completions.len(), 4);
    }
}

/// Fails if an engine on a full disk can't be stopped, or started again once there is room, or
/// loses something by it.
#[test]
fn stopping_on_a_full_file_system() {
    let Some(mount) = Tmpfs::mount(24 << 10) else { return };
    let (path, ballast) = (mount.path().join("node"), mount.path().join("ballast"));
    let (mut engine, _) = RocksEngine::open(&path, &small_options()).unwrap();
    let mut written = Acknowledged::default();
    take_room(&ballast, 14 << 20);
    fill(&mut engine, &mut written);
    println!("closing says {:?}", Box::new(engine).close());
    match RocksEngine::open(&path, &small_options()) {
        Ok((mut engine, _)) => written.check(&mut engine, true),
        Err(error) => println!("opening says {error}"),
    }
    fs::remove_file(&ballast).unwrap();
    let (mut engine, _) = RocksEngine::open(&path, &small_options()).unwrap();
    written.check(&mut engine, true);
    assert!(written.write(&mut engine));
}
