//! The spool: what it keeps through crashes, full disks and restarts, and what is answered
//! meanwhile.

use crate::fake::{Client, FakeRack, PATIENCE, config};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use switchback_core::client::Preservation;
use switchback_gateway::spool::{Spool, SpoolDirectory, SpoolError};
use switchback_gateway::{Durability, Gateway, GatewayConfig, GatewayError, WorkerStatistics};
use switchback_testing::Tmpfs;
use switchback_wire::{KeyHash, Seq};

fn spooling(directory: &Path, durability: Durability) -> GatewayConfig {
    GatewayConfig { durability, spool_dir: Some(directory.to_owned()), ..config() }
}

/// Repeats what needs the spool's lock while it is held: a process that another test is just
/// starting has a copy of it until it runs its own program.
fn unlocked<T>(mut open: impl FnMut() -> Result<T, GatewayError>) -> Result<T, GatewayError> {
    let begin = Instant::now();
    loop {
        let opened = open();
        let is_locked = matches!(opened, Err(GatewayError::Spool(SpoolError::Locked(_))));
        if !is_locked || begin.elapsed() > PATIENCE {
            return opened;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A gateway on a spool that an earlier one may have had.
fn start(rack: &FakeRack, directory: &Path) -> Gateway {
    let config = || spooling(directory, Durability::EverySecond);
    unlocked(|| rack.try_start(config(), 1)).unwrap()
}

/// What a spool in `directory` holds: keys with sequence number and value, in order.
fn contents(directory: &Path) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    // The lock goes with the gateway; so what is read is a copy.
    let copy = tempfile::tempdir().unwrap();
    for path in segments(directory) {
        let copied = fs::copy(&path, copy.path().join(path.file_name().unwrap()));
        // Deleted meanwhile.
        assert!(copied.is_ok() || !path.exists(), "{copied:?}");
    }
    let mut preserved = Preservation::default();
    let opened = SpoolDirectory::open(copy.path()).unwrap();
    Spool::open(&opened, 0, Durability::Always, u64::MAX, &mut preserved).unwrap();
    let mut found: Vec<_> = preserved
        .iter()
        .map(|kept| (kept.key.clone(), kept.record.seq.0, kept.record.value.clone()))
        .collect();
    found.sort();
    found
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "spool"));
    found.sort();
    found
}

fn keep(preserved: &mut Preservation, key: &[u8], seq: u64, generation: u32, value: &[u8]) {
    let mut hash = [0; 16];
    hash[..key.len().min(16)].copy_from_slice(&key[..key.len().min(16)]);
    preserved.keep(KeyHash(hash), key, value, Seq(seq), value.is_empty(), 7, generation);
}

fn write(spool: &mut Spool, preserved: &mut Preservation) {
    preserved.drain_touched(|kept| spool.push(kept));
    spool.commit(preserved, &WorkerStatistics::default()).unwrap();
}

#[test]
fn everything_answered_is_on_disk_already() {
    for durability in [Durability::Always, Durability::EverySecond] {
        let directory = tempfile::tempdir().unwrap();
        let rack = FakeRack::default();
        let gateway = rack.start(spooling(directory.path(), durability));
        let mut client = Client::connect(&gateway);
        for i in 0..50 {
            assert_eq!(client.ask(&format!("SET k{} v{i}", i % 5)), "+OK\r\n");
            let wanted = format!("v{i}").into_bytes();
            let found = contents(directory.path());
            assert!(found.iter().any(|(_, _, value)| *value == wanted), "{durability}: {found:?}");
        }
        assert_eq!(client.ask("DEL k0"), ":1\r\n");
        assert_eq!(
            contents(directory.path()).iter().find(|(key, ..)| key == b"k0").unwrap().2,
            b""
        );
        // 800 writes of a key in one pipeline are one record.
        let records = || gateway.statistics().sum(|worker| worker.spool_records.get());
        let before = records();
        client.send(&Client::command(&[b"INCR", b"hot"]).repeat(800));
        (0..800).for_each(|_| assert_eq!(client.reply()[0], b':'));
        assert!(records() - before <= 100, "{} records", records() - before);
        assert_eq!(
            contents(directory.path()).iter().find(|(key, ..)| key == b"hot").unwrap().2,
            b"800"
        );
    }
}

#[test]
fn what_a_reader_saw_is_on_disk_too() {
    let rack = FakeRack::default();
    let writer = rack.start(config());
    assert_eq!(Client::connect(&writer).ask("SET k seen"), "+OK\r\n");
    let directory = tempfile::tempdir().unwrap();
    let reader = rack.try_start(spooling(directory.path(), Durability::EverySecond), 1).unwrap();
    assert_eq!(Client::connect(&reader).ask("GET k"), "$4\r\nseen\r\n");
    assert_eq!(contents(directory.path())[0].2, b"seen");
}

#[test]
fn a_restart_preserves_again_and_a_durable_snapshot_releases() {
    let directory = tempfile::tempdir().unwrap();
    let rack = FakeRack::default();
    let preserved =
        |gateway: &Gateway| gateway.statistics().sum(|worker| worker.preserved_records.get());
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    for round in 1..4 {
        let gateway = start(&rack, directory.path());
        let mut client = Client::connect(&gateway);
        client.ask(&format!("SET key{round} v"));
        until("preserved", &|| preserved(&gateway) == round);
        gateway.stop();
        assert_eq!(contents(directory.path()).len() as u64, round);
    }
    let gateway = start(&rack, directory.path());
    rack.set(|knobs| knobs.durable_generation = 2);
    Client::connect(&gateway).ask("SET other v");
    until("released", &|| preserved(&gateway) == 0);
    until("deleted", &|| {
        segments(directory.path()).len() == 1 && contents(directory.path()).is_empty()
    });
}

#[test]
fn a_torn_tail_costs_only_what_was_torn() {
    let directory = tempfile::tempdir().unwrap();
    let rack = FakeRack::default();
    let gateway = rack.start(spooling(directory.path(), Durability::EverySecond));
    let mut client = Client::connect(&gateway);
    for i in 0..20 {
        client.ask(&format!("SET key{i:02} value{i}"));
    }
    gateway.stop();
    let segment = segments(directory.path()).pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    let mut counts = Vec::new();
    for cut in (0..whole.len()).step_by(3) {
        fs::write(&segment, &whole[..cut]).unwrap();
        counts.push(contents(directory.path()).len());
    }
    assert!(counts.is_sorted() && counts[0] == 0 && *counts.last().unwrap() >= 19, "{counts:?}");
    // Torn and used again: what comes later is kept as well.
    fs::write(&segment, &whole[..whole.len() - 5]).unwrap();
    let gateway = start(&rack, directory.path());
    Client::connect(&gateway).ask("SET later v");
    gateway.stop();
    assert_eq!(contents(directory.path()).len(), 20);
}

/// It isn't read into memory as a whole, nor beyond its last whole record.
#[test]
fn a_segment_may_be_longer_than_memory() {
    let directory = tempfile::tempdir().unwrap();
    let opened = SpoolDirectory::open(directory.path()).unwrap();
    let open = |preserved: &mut Preservation| {
        Spool::open(&opened, 0, Durability::Always, u64::MAX, preserved)
    };
    let mut preserved = Preservation::default();
    let mut spool = open(&mut preserved).unwrap();
    keep(&mut preserved, b"key", 1, 1, b"value");
    write(&mut spool, &mut preserved);
    drop(spool);
    let segment = segments(directory.path()).pop().unwrap();
    OpenOptions::new().write(true).open(segment).unwrap().set_len(1 << 42).unwrap();
    let mut again = Preservation::default();
    open(&mut again).unwrap();
    assert_eq!(again.iter().map(|kept| &kept.key[..]).collect::<Vec<_>>(), [b"key"]);
}

#[test]
fn a_file_beyond_the_last_number_is_no_segment() {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join(format!("w0-{}.spool", u64::MAX));
    fs::write(&other, b"SWSPOOL\x01").unwrap();
    let opened = SpoolDirectory::open(directory.path()).unwrap();
    let mut preserved = Preservation::default();
    Spool::open(&opened, 0, Durability::Always, u64::MAX, &mut preserved).unwrap();
    assert!(other.exists() && segments(directory.path()).len() == 2);
}

#[test]
fn a_spool_is_rewritten_when_it_is_long_and_keeps_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let opened = SpoolDirectory::open(directory.path()).unwrap();
    let mut preserved = Preservation::default();
    let mut spool =
        Spool::open(&opened, 0, Durability::EverySecond, 100_000, &mut preserved).unwrap();
    for seq in 1..5000u64 {
        keep(
            &mut preserved,
            format!("key{}", seq % 10).as_bytes(),
            seq,
            1,
            &seq.to_le_bytes().repeat(10),
        );
        write(&mut spool, &mut preserved);
        assert!(spool.bytes() <= 100_000 + 200);
    }
    spool.sync().unwrap();
    assert_eq!(segments(directory.path()).len(), 1);
    let found = contents(directory.path());
    assert_eq!(
        found.iter().map(|(_, seq, _)| *seq).collect::<Vec<_>>().iter().sum::<u64>(),
        (4990..5000).sum()
    );
}

#[test]
fn long_spools_go_on_in_new_segments_and_old_ones_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let opened = SpoolDirectory::open(directory.path()).unwrap();
    let mut preserved = Preservation::default();
    let mut spool =
        Spool::open(&opened, 0, Durability::EverySecond, u64::MAX, &mut preserved).unwrap();
    for seq in 1..=100u64 {
        let generation = 1 + (seq / 50) as u32;
        keep(&mut preserved, format!("key{seq}").as_bytes(), seq, generation, &vec![b'x'; 1 << 20]);
        write(&mut spool, &mut preserved);
    }
    assert!(segments(directory.path()).len() >= 3);
    spool.release(2, false);
    spool.sync().unwrap();
    let rest = contents(directory.path());
    assert!(rest.len() < 70, "{}", rest.len());
    assert!((50..=100).all(|seq| rest.iter().any(|(_, found, _)| *found == seq)));
    spool.release(4, false);
    spool.sync().unwrap();
    // What is written to at the end goes when all before it is gone.
    spool.release(4, false);
    assert!(contents(directory.path()).is_empty());
    // And it is still of use.
    keep(&mut preserved, b"late", 1000, 9, b"v");
    write(&mut spool, &mut preserved);
    assert_eq!(contents(directory.path()).len(), 1);
}

#[test]
fn a_directory_is_one_gateways_and_formats_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    let rack = FakeRack::default();
    let gateway = rack.start(spooling(directory.path(), Durability::Always));
    let second = rack.try_start(spooling(directory.path(), Durability::Always), 1);
    let error = second.err().unwrap();
    assert!(matches!(error, GatewayError::Spool(SpoolError::Locked(_))));
    assert!(error.to_string().contains("another gateway uses the spool in"), "{error}");
    gateway.stop();
    fs::write(directory.path().join("w0-000000000009.spool"), b"SWSPOOL\x02").unwrap();
    let third = unlocked(|| rack.try_start(spooling(directory.path(), Durability::Always), 1));
    let said = third.err().unwrap().to_string();
    assert!(said.contains("is of format 2, and this program reads format 1"), "{said}");
    assert!(said.contains("use the version of Switchback that wrote it"), "{said}");
    let error = rack.try_start(
        GatewayConfig { spool_dir: None, durability: Durability::Always, ..config() },
        1,
    );
    assert!(matches!(error.err().unwrap(), GatewayError::NoSpoolDirectory(_)));
}

#[test]
fn workers_that_are_gone_keep_their_spools_until_those_are_durable_elsewhere() {
    let directory = tempfile::tempdir().unwrap();
    let rack = FakeRack::default();
    let gateway = rack.try_start(spooling(directory.path(), Durability::EverySecond), 4).unwrap();
    // A new connection goes to the worker with the fewest.
    let mut clients: Vec<Client> = (0..4).map(|_| Client::connect(&gateway)).collect();
    for i in 0..40 {
        clients[i % 4].ask(&format!("SET key{i} v"));
    }
    drop(clients);
    gateway.stop();
    let of_others = || {
        segments(directory.path())
            .iter()
            .filter(|path| !path.to_string_lossy().contains("/w0-"))
            .count()
    };
    assert!(segments(directory.path()).iter().any(|path| path.to_string_lossy().contains("/w3-")));
    let gateway = start(&rack, directory.path());
    assert_eq!(Client::connect(&gateway).ask("GET key0"), "$1\r\nv\r\n");
    gateway.stop();
    assert_eq!((of_others(), rack.closed_sessions()), (3, 0), "their records are nowhere else");
    rack.set(|knobs| knobs.durable_generation = 2);
    let gateway = start(&rack, directory.path());
    let begin = Instant::now();
    while of_others() > 0 || rack.closed_sessions() < 3 {
        assert!(
            begin.elapsed() < PATIENCE,
            "{} segments, {} closed",
            of_others(),
            rack.closed_sessions()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(gateway);
}

#[test]
fn a_gateway_without_a_spool_does_not_pass_over_one_that_holds_something() {
    let directory = tempfile::tempdir().unwrap();
    let rack = FakeRack::default();
    let refused = || rack.try_start(spooling(directory.path(), Durability::Memory), 1).err();
    assert!(refused().is_none(), "it was never used");
    let gateway = start(&rack, directory.path());
    assert!(refused().is_none(), "the gateway that uses it looks after it");
    assert_eq!(Client::connect(&gateway).ask("SET k v"), "+OK\r\n");
    gateway.stop();
    // As in `unlocked`: while a copy of its lock is held, the gateway seems to use it yet.
    let begin = Instant::now();
    let error = loop {
        match refused() {
            Some(error) => break error,
            None => assert!(begin.elapsed() < PATIENCE, "what it holds may be nowhere else"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(matches!(error, GatewayError::Spool(SpoolError::Left(_))), "{error}");
    assert_eq!(contents(directory.path()).len(), 1);
    SpoolDirectory::clear(directory.path()).unwrap();
    assert!(refused().is_none(), "nothing is in it");
}

/// Fails if a spool that has filled its disk keeps what is durable elsewhere, for want of room to
/// write.
#[test]
fn a_spool_that_fills_its_disk_makes_room_when_a_snapshot_is_durable() {
    let Some(disk) = Tmpfs::mount(2 << 10) else { return };
    let directory = SpoolDirectory::open(disk.path()).unwrap();
    let mut preserved = Preservation::default();
    let mut spool =
        Spool::open(&directory, 0, Durability::EverySecond, u64::MAX, &mut preserved).unwrap();
    let statistics = WorkerStatistics::default();
    let full = (1..10_000u64).find(|seq| {
        keep(&mut preserved, b"k", *seq, 1, &[b'v'; 4000]);
        preserved.drain_touched(|kept| spool.push(kept));
        spool.commit(&preserved, &statistics).is_err()
    });
    assert!(full.is_some() && spool.is_missing(b"k"));
    // A snapshot of generation 2 is durable: whatever was written before is in it. What could not
    // be written isn't given up for that.
    spool.release(2, false);
    let begin = Instant::now();
    while let Err(error) = spool.commit(&preserved, &statistics) {
        assert!(begin.elapsed() < PATIENCE, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!((spool.failure(), spool.is_missing(b"k")), (None, false));
    assert_eq!(contents(disk.path()), vec![(b"k".to_vec(), full.unwrap(), vec![b'v'; 4000])]);
}

#[test]
fn a_full_disk_is_said_reads_go_on_and_it_mends_itself() {
    let Some(disk) = Tmpfs::mount(2 << 10) else { return };
    let rack = FakeRack::default();
    rack.set(|knobs| knobs.uncached_prefix = Some(b"n".to_vec()));
    let gateway = rack.start(spooling(disk.path(), Durability::EverySecond));
    let mut client = Client::connect(&gateway);
    assert_eq!(client.ask("SET before v"), "+OK\r\n");
    assert_eq!(client.ask("SET n1 v"), "+OK\r\n");
    // Another process fills the disk.
    let filler = disk.path().join("filler");
    let mut file = OpenOptions::new().create(true).append(true).open(&filler).unwrap();
    while file.write_all(&[0; 4096]).is_ok() {}
    while file.write_all(&[0; 1]).is_ok() {}
    // The first write is absorbed, and can't be spooled; a pipeline's other answers stand.
    let value = [b'v'; 900];
    let mut failed = None;
    for i in 0..10 {
        client.send(&Client::command(&[b"SET", format!("full{i}").as_bytes(), &value]));
        client.send(&Client::command(&[b"PING"]));
        let reply = String::from_utf8(client.reply()).unwrap();
        assert_eq!(client.reply(), b"+PONG\r\n");
        if reply != "+OK\r\n" {
            assert!(
                reply.starts_with("-MISCONF the spool in ")
                    && reply.contains("may or may not last"),
                "{reply}"
            );
            failed = Some(i);
            break;
        }
    }
    let failed = failed.expect("the disk is full");
    // From then on writes aren't even begun, and say so.
    let refused = client.ask("SET after v");
    assert!(
        refused.starts_with("-MISCONF ") && refused.contains("nothing was written"),
        "{refused}"
    );
    assert_eq!(rack.value(b"after"), None);
    // Reads of what is spooled, or at a node, go on; a read of what isn't would tell of what may be
    // lost.
    assert_eq!(client.ask("GET before"), "$1\r\nv\r\n");
    assert_eq!(client.ask("GET n1"), "$1\r\nv\r\n");
    assert!(client.ask(&format!("GET full{failed}")).starts_with("-MISCONF "));
    assert!(client.ask("INFO persistence").contains("aof_last_write_status:err"));
    // Room again.
    drop(file);
    fs::remove_file(&filler).unwrap();
    let begin = Instant::now();
    while client.ask("SET after v") != "+OK\r\n" {
        assert!(begin.elapsed() < PATIENCE, "it doesn't recover");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.call(&[b"GET", format!("full{failed}").as_bytes()]).len(), 900 + 8);
    gateway.stop();
    let found = contents(disk.path());
    for key in ["before", "after", &format!("full{failed}")] {
        assert!(found.iter().any(|(found, ..)| found == key.as_bytes()), "{key} isn't spooled");
    }
}
