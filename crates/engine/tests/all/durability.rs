//! RocksDB under kill -9, torn logs and flipped bytes; and what it costs in reads and memory.

use crate::common::*;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use switchback_core::storage::*;
use switchback_engine::rocks::{Options, RocksEngine};
use switchback_engine::{Engine, MemoryEngine, OpenError, SyncPolicy};
use switchback_wire::Seq;

/// Tells the child process where and how to write.
const CHILD_DIRECTORY: &str = "SWITCHBACK_ENGINE_CHILD_DIRECTORY";
const CHILD_SYNC: &str = "SWITCHBACK_ENGINE_CHILD_SYNC";
/// Puts a group.
const GROUP: u64 = 8;

fn value(seq: u64) -> Vec<u8> {
    seq.to_be_bytes().repeat(64)
}

/// Group `number`: eight records, a completion, a mark.
fn group(number: u64) -> Vec<EngineOp> {
    let key = |at: u64| format!("key {}", (number * GROUP + at) % 5000).into_bytes();
    let done = LaneCompletion { lane: 1, request: number, seq: Seq(number) };
    let marked =
        Some(Mark { fence: Seq(number), offer: OfferId::from_bits(number), floor: Seq(number) });
    let puts =
        (0..GROUP).map(|at| put(&key(at), record(number * GROUP + at + 1, &value(number)), NEWER));
    let traced = put_completing(b"traced", record(number + 1, b""), KNOWN, done);
    puts.chain([traced, mark(b"marked", marked)]).collect()
}

/// Not a test: the process that the next one kills. Prints the number of each group that was
/// acknowledged.
#[test]
#[ignore = "run by acknowledged_writes_survive_a_kill"]
fn child_that_is_killed() {
    let Ok(path) = std::env::var(CHILD_DIRECTORY) else { return };
    let sync = std::env::var(CHILD_SYNC).unwrap().parse().unwrap();
    let (mut engine, loaded) =
        RocksEngine::open(path, &Options { sync, ..small_options() }).unwrap();
    let first = loaded.completions.first().map_or(0, |done| done.request + 1);
    for number in first.. {
        assert!(run(&mut engine, group(number)).iter().all(Result::is_ok));
        println!("acknowledged {number}");
        std::io::stdout().flush().unwrap();
    }
}

/// Runs the child, kills it after this many acknowledgements, and returns the last one.
fn kill_after(path: &Path, sync: SyncPolicy, acknowledgements: usize) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "durability::child_that_is_killed", "--ignored", "--nocapture"])
        .env(CHILD_DIRECTORY, path)
        .env(CHILD_SYNC, sync.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // What is in the pipe when it dies was acknowledged as well, so this reads to the end.
    let (mut seen, mut last) = (0, None);
    for line in lines {
        let line = line.unwrap();
        if let Some(number) = line.strip_prefix("acknowledged ") {
            last = Some(number.parse().unwrap());
            seen += 1;
        }
        if seen == acknowledgements {
            assert!(matches!(
                RocksEngine::open(path, &small_options()),
                Err(OpenError::Locked { .. })
            ));
            child.kill().unwrap();
            seen += 1;
        }
    }
    child.wait().unwrap();
    last.expect("it was acknowledged something")
}

/// The group that the directory ends with, after a check that all up to it are whole.
fn last_group(engine: &mut dyn Engine, loaded: &Loaded) -> u64 {
    let last = loaded.completions[0].request;
    let marked = Mark { fence: Seq(last), offer: OfferId::from_bits(last), floor: Seq(last) };
    assert_eq!(loaded.marks, [(hash(b"marked"), b"marked".to_vec(), marked)]);
    for number in last.saturating_sub(5000 / GROUP - 1)..=last {
        for op in group(number) {
            if let EngineOp::Put {
                key,
                record,
                condition: PutCondition::Newer { known: false },
                ..
            } = op
            {
                assert_eq!(run_one(engine, get(&key)), got(record), "group {number} of {last}");
            }
        }
    }
    last
}

/// kill -9 in the middle of writing, again and again on one directory. Fails if a write is
/// acknowledged before it is in the log (`WriteOptions` without a log, answers before the commit),
/// if a group is torn, or if the log of a killed process can't be replayed. It can't see a missing
/// fsync, for the kernel survives: `groups_are_synced_as_promised` counts those.
#[test]
fn acknowledged_writes_survive_a_kill() {
    for (sync, kills) in [(SyncPolicy::None, [1, 700, 3000]), (SyncPolicy::Always, [1, 40, 100])] {
        let dir = tempfile::tempdir().unwrap();
        for acknowledgements in kills {
            let acknowledged = kill_after(dir.path(), sync, acknowledgements);
            let (mut engine, loaded) = RocksEngine::open(dir.path(), &small_options()).unwrap();
            let found = last_group(&mut engine, &loaded);
            println!("{sync}: acknowledged {acknowledged}, found {found}");
            assert!(found == acknowledged || found == acknowledged + 1);
            drop(engine);
        }
    }
}

/// Writes groups, and stops without a flush: all of it is in the log.
fn logged(groups: u64) -> Rocks {
    let mut rocks = Rocks::new();
    for number in 0..groups {
        run(&mut rocks, group(number));
    }
    rocks.drop_engine();
    rocks
}

/// A power cut tears the log's last record. Fails if the engine doesn't open then, or half a group
/// appears.
#[test]
fn a_torn_tail_is_a_group_that_never_was() {
    for cut in [1, 7, 100, 1000] {
        let mut rocks = logged(20);
        let log = files(rocks.dir.path(), "log").pop().unwrap();
        let bytes = fs::read(&log).unwrap();
        fs::write(&log, &bytes[..bytes.len() - cut]).unwrap();
        let loaded = rocks.open();
        assert_eq!(last_group(&mut rocks, &loaded), 18, "cut by {cut}");
    }
}

/// Fails if damage in the middle of the log is taken for its end: acknowledged groups after it
/// would be gone without a word.
#[test]
fn a_damaged_log_is_reported() {
    let mut rocks = logged(20);
    let log = files(rocks.dir.path(), "log").pop().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&log, &bytes).unwrap();
    let Err(error) = RocksEngine::open(rocks.dir.path(), &rocks.options) else { panic!("opened") };
    println!("{error}");
    assert!(matches!(error, OpenError::Corrupt { log: true, .. }), "{error:?}");
    let message = error.to_string();
    let words = [rocks.dir.path().to_str().unwrap(), ".log", "Restore it from a backup"];
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
    // Refusing has changed nothing: it is refused again, and can be salvaged, which is then for
    // good.
    assert!(RocksEngine::open(rocks.dir.path(), &rocks.options).is_err());
    rocks.options.salvage = true;
    let loaded = rocks.open();
    let last = last_group(&mut rocks, &loaded);
    assert!((5..15).contains(&last), "{last}");
    rocks.drop_engine();
    rocks.options.salvage = false;
    assert_eq!(rocks.open(), loaded);
}

/// Flips bits throughout a table. Fails if a damaged record is served (checksums off), if a put
/// that needs it overwrites it unread, if the engine stops, or if writing the key anew doesn't
/// help.
#[test]
fn damaged_tables_are_never_served() {
    let mut rocks = Rocks::new();
    let values: Vec<Vec<u8>> =
        (0..400u64).map(|seq| hash(&seq.to_be_bytes()).0.repeat(16)).collect();
    let key = |at: usize| format!("key {at}").into_bytes();
    run(
        &mut rocks,
        values
            .iter()
            .enumerate()
            .map(|(at, value)| put(&key(at), record(at as u64 + 1, value), KNOWN)),
    );
    Box::new(rocks.engine.take().unwrap()).close().unwrap();
    let table = files(rocks.dir.path(), "sst")
        .into_iter()
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let mut bytes = fs::read(&table).unwrap();
    let half = bytes.len() / 2;
    for at in (0..half).step_by(3000) {
        bytes[at] ^= 4;
    }
    fs::write(&table, &bytes).unwrap();
    rocks.open();
    let mut damaged = Vec::new();
    for (at, value) in values.iter().enumerate() {
        match run_one(&mut rocks, get(&key(at))) {
            Err(EngineError::Corrupt(what)) => {
                assert!(what.contains(table.to_str().unwrap()), "{what}");
                damaged.push(at);
            }
            reply => assert_eq!(reply, got(record(at as u64 + 1, value))),
        }
    }
    println!("{} of 400 records damaged", damaged.len());
    assert!((1..400).contains(&damaged.len()));
    let corrupt = |reply: &Reply| matches!(reply, Err(EngineError::Corrupt(_)));
    let victim = key(damaged[0]);
    assert!(corrupt(&run_one(&mut rocks, put(&victim, record(1000, b"new"), NEWER))));
    assert!(corrupt(&run_one(&mut rocks, scan(0, u64::MAX, 1000))));
    let replies = run(
        &mut rocks,
        [put(&victim, record(1000, b"new"), KNOWN), put(b"other", record(1, b"x"), NEWER)],
    );
    assert_eq!(replies, [stored(), stored()]);
    assert_eq!(run_one(&mut rocks, get(&victim)), got(record(1000, b"new")));
}

/// Fails if a put of which the shim knows that it is newer reads; or if any other stops doing so.
#[test]
fn known_puts_do_not_read() {
    let mut rocks = Rocks::new();
    let mut reads_of = |op: EngineOp| {
        let before = rocks.engine().statistics().reads;
        run_one(&mut rocks, op).unwrap();
        rocks.engine().statistics().reads - before
    };
    assert_eq!(reads_of(put(b"a", record(1, b"x"), KNOWN)), 0);
    assert_eq!(reads_of(put(b"a", record(2, b"x"), NEWER)), 1);
    assert_eq!(reads_of(put(b"a", record(3, b"x"), PutCondition::IfSeq(Seq(2)))), 1);
    assert_eq!(reads_of(get(b"a")), 1);
    // A group reads no key that it writes itself.
    let before = rocks.engine().statistics();
    run(
        &mut rocks,
        [put(b"a", record(4, b"x"), KNOWN), put(b"a", record(5, b"x"), NEWER), get(b"a")],
    );
    let after = rocks.engine().statistics();
    assert_eq!(
        (after.reads - before.reads, after.groups - before.groups, after.writes - before.writes),
        (0, 1, 2)
    );
    assert_eq!(after.largest_group, 2);
}

/// Fails if a group under `Always`, a record of the cache under `EverySec`, or a mark, state or
/// floor under any policy, is answered without an fsync; or if a policy pays for one that it
/// needn't.
#[test]
fn groups_are_synced_as_promised() {
    for (sync, of_a_client, of_the_cache) in
        [(SyncPolicy::Always, 1, 1), (SyncPolicy::EverySec, 0, 1), (SyncPolicy::None, 0, 0)]
    {
        let dir = tempfile::tempdir().unwrap();
        let (mut engine, _) =
            RocksEngine::open(dir.path(), &Options { sync, ..small_options() }).unwrap();
        // The background's would be counted as well; it begins a second after the opening.
        let mut syncs_of = |ops: Vec<EngineOp>| {
            let before = engine.statistics().syncs;
            assert!(run(&mut engine, ops).iter().all(Result::is_ok));
            engine.statistics().syncs - before
        };
        let client = |seq| put(b"a", record(seq, b"x"), NEWER);
        assert_eq!(syncs_of(vec![client(1)]), of_a_client, "{sync}");
        let cache = put_of_cache(b"a", record(2, b"x"), NEWER);
        assert_eq!(syncs_of(vec![client(1), cache]), of_the_cache, "{sync}");
        let fence = Mark { fence: Seq(9), ..Mark::default() };
        assert_eq!(syncs_of(vec![client(3), mark(b"a", Some(fence))]), 1, "{sync}");
        assert_eq!(syncs_of(vec![mark(b"a", None)]), of_a_client, "{sync}: it may come back");
        assert_eq!(syncs_of(vec![client(4), state(b"s"), get(b"a")]), 1, "{sync}");
        assert_eq!(syncs_of(vec![client(5), floor(1)]), 1, "{sync}");
        assert_eq!(syncs_of(vec![client(6)]), of_a_client, "{sync}: only its own group is synced");
        assert_eq!(syncs_of(vec![get(b"a")]), 0);
    }
}

/// Fails if nothing forces the log to the disk once a second under `EverySec`, or if an engine that
/// has nothing to force does.
#[test]
fn everysec_syncs_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { sync: SyncPolicy::EverySec, ..small_options() };
    let (mut engine, _) = RocksEngine::open(dir.path(), &options).unwrap();
    for seq in 1..=2 {
        let before = engine.statistics().syncs;
        assert!(run_one(&mut engine, put(b"a", record(seq, b"x"), NEWER)).is_ok());
        let began = Instant::now();
        while engine.statistics().syncs == before {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing syncs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    let before = engine.statistics().syncs;
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(engine.statistics().syncs, before, "there was nothing to sync");
}

/// The machine stops right after the answers. Fails if a mark, or under `EverySec` a record of the
/// cache, is gone with the record of a client that was written last, or without it.
#[test]
fn a_power_cut_takes_only_what_may_lag() {
    for (sync, keeps_cache) in [(SyncPolicy::EverySec, true), (SyncPolicy::None, false)] {
        let mut engine = MemoryEngine::new(sync);
        run_one(&mut engine, mark(b"b", Some(Mark { fence: Seq(3), ..Mark::default() }))).unwrap();
        run_one(&mut engine, put(b"a", record(1, b"client"), NEWER)).unwrap();
        run_one(&mut engine, put_of_cache(b"b", record(4, b"cache"), NEWER)).unwrap();
        run_one(&mut engine, put(b"c", record(1, b"client"), NEWER)).unwrap();
        let loaded = engine.crash(0);
        assert_eq!(loaded.marks.len(), 1, "{sync}");
        let kept = if keeps_cache { got(record(4, b"cache")) } else { ABSENT };
        assert_eq!(run_one(&mut engine, get(b"b")), kept, "{sync}");
        // The log is in order: what was written before something synced is there, too.
        let before = if keeps_cache { got(record(1, b"client")) } else { ABSENT };
        assert_eq!(run_one(&mut engine, get(b"a")), before, "{sync}");
        assert_eq!(run_one(&mut engine, get(b"c")), ABSENT, "{sync}");
    }
}

/// Fails if memtables or cache grow with the data: 96 MiB through 8 MiB of memory.
#[test]
fn memory_is_bounded() {
    let mut rocks = Rocks::new();
    let bound = (rocks.options.block_cache_bytes + rocks.options.memtable_bytes) as u64;
    for round in 0..96u64 {
        let ops = (0..256u64).map(|at| {
            let seq = round * 256 + at + 1;
            put(&seq.to_be_bytes(), record(seq, &hash(&seq.to_le_bytes()).0.repeat(256)), KNOWN)
        });
        run(&mut rocks, ops);
        let reads = (0..200u64).map(|at| get(&(at * (round + 1) + 1).to_be_bytes()));
        run(&mut rocks, reads);
        let now = rocks.engine().statistics();
        // One group of 1 MiB may come on top of what is full already.
        assert!(now.memtable_bytes <= rocks.options.memtable_bytes as u64 + (2 << 20), "{now:?}");
        // On a busy machine 2.2 MiB were seen, most likely blocks that a flush or a compaction
        // held.
        assert!(now.cache_bytes <= bound + (4 << 20), "{now:?}");
    }
    let now = rocks.engine().statistics();
    println!("{now:?}");
    assert!(
        now.disk_bytes > 2 << 20
            && now.writes == 96 * 256
            && now.commit_us >= now.slowest_commit_us
    );
}
