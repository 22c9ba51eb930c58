//! Several threads on the same records: nothing torn, nothing lost, no number twice, and snapshots
//! that are one point in time.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::*;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switchback_datapath::*;
use switchback_wire::*;

const KEY: &[u8] = b"a hot key";
const RUN: Duration = Duration::from_millis(1500);
/// What takes longer than this hangs: a busy machine may stall everything for seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether to go on: for a while, and on a busy machine until there is enough to judge by.
fn goes_on(begin: Instant, is_enough: bool) -> bool {
    begin.elapsed() < if is_enough { RUN } else { PATIENCE }
}

fn config() -> Config {
    Config {
        classes: vec![ClassConfig { value_bytes: 1024, slots: 64 }],
        lanes: 64,
        sampling: 0.5,
        reports: 4096,
        ..small()
    }
}

/// A value that shows whether it is whole: `n`, again and again, as long as `n` says.
fn value(n: u64) -> Vec<u8> {
    let words = 1 + (n % 128) as usize;
    n.to_be_bytes().repeat(words)
}

fn assert_whole(value: &[u8]) -> u64 {
    let n = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value.len(), 8 * (1 + (n % 128) as usize), "as long as it says");
    assert!(value.chunks(8).all(|word| word == n.to_be_bytes()), "all of one write");
    n
}

fn process(
    datapath: &Datapath,
    header: Header,
    value: &[u8],
    key: &[u8],
    shard: u8,
) -> (Verdict, Packet) {
    let mut packet = Packet::build(header, value, key);
    let random = header.request as u32 ^ 0x9e37_79b9;
    let verdict = datapath.process(
        &mut packet,
        CLIENT,
        1000,
        random.wrapping_mul(2_654_435_761),
        Shard::new(shard),
    );
    (verdict, packet)
}

/// Fails if a write that was answered stands between a conditional write and the version that this
/// one expected. (There is but one plain writer, so none of its writes can be overwritten by a
/// later one while it is under way.)
#[test]
fn nothing_comes_between_a_conditional_write_and_what_it_expected() {
    let rig = Rig::new(&config());
    rig.admit(KEY, 0, 5, 1);
    let datapath = &rig.datapath;
    let stop = AtomicBool::new(false);
    let stop_asked = &|| stop.load(Ordering::Relaxed);
    let (answers, changes) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let (mut plain, mut conditional): (BTreeSet<u64>, Vec<(u64, u64)>) = Default::default();
    thread::scope(|scope| {
        let ends = Stop(&stop);
        let writer = scope.spawn(move || {
            let mut answered = Vec::new();
            let mut request = 0;
            while !stop_asked() {
                request += 1;
                let header = Header { lane: 0, request, ..header(Op::Write, KEY) };
                let (verdict, packet) = process(datapath, header, &value(request), KEY, 0);
                if verdict == Verdict::Reply {
                    answered.push(packet.parse().unwrap().header.seq.0);
                    answers.fetch_add(1, Ordering::Relaxed);
                }
            }
            answered
        });
        let changer = scope.spawn(move || {
            let mut changed = Vec::new();
            let mut request = 0;
            while !stop_asked() {
                request += 1;
                let (verdict, packet) = process(datapath, header(Op::Read, KEY), &[], KEY, 1);
                if verdict != Verdict::Reply {
                    continue;
                }
                let guard = packet.parse().unwrap().header.seq.0;
                let header = Header {
                    lane: 1,
                    request,
                    flags: flags::CONDITIONAL,
                    guard,
                    ..header(Op::Write, KEY)
                };
                let (verdict, packet) = process(datapath, header, &value(request), KEY, 1);
                let answer = packet.parse().unwrap().header;
                if verdict == Verdict::Reply && answer.status == Status::Ok {
                    changed.push((guard, answer.seq.0));
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            }
            changed
        });
        let begin = Instant::now();
        let is_enough =
            || answers.load(Ordering::Relaxed) > 10_000 && changes.load(Ordering::Relaxed) > 100;
        while goes_on(begin, is_enough()) {
            thread::sleep(Duration::from_millis(10));
        }
        drop(ends);
        plain.extend(writer.join().unwrap());
        conditional.extend(changer.join().unwrap());
    });
    for (expected, made) in &conditional {
        let between = plain.range((Bound::Excluded(expected), Bound::Excluded(made))).next();
        assert_eq!(between, None, "between {expected} and {made}");
    }
    assert!(
        plain.len() > 10_000 && conditional.len() > 100,
        "{} and {}",
        plain.len(),
        conditional.len()
    );
}

/// Two writers and a reader on one key.
#[test]
fn values_are_whole_and_sequence_numbers_are_used_once() {
    let rig = Rig::new(&config());
    rig.admit(KEY, 0, 5, 1);
    let datapath = &rig.datapath;
    let stop = AtomicBool::new(false);
    let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut acknowledged: Vec<(u64, u64)> = Vec::new();
    thread::scope(|scope| {
        let ends = Stop(&stop);
        let reader = |shard: u8| {
            let stop = &stop;
            let reads = &reads;
            move || {
                let mut newest = 0;
                while !stop.load(Ordering::Relaxed) {
                    let (verdict, packet) =
                        process(datapath, header(Op::Read, KEY), &[], KEY, shard);
                    if verdict == Verdict::Reply {
                        let parts = packet.parse().unwrap();
                        assert_whole(parts.value);
                        assert!(parts.header.seq.0 >= newest, "a reader never goes back");
                        newest = parts.header.seq.0;
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        scope.spawn(reader(2));
        let writer = |lane: u32| {
            let (stop, writes) = (&stop, &writes);
            move || {
                let mut acknowledged = Vec::new();
                let mut request = 0;
                while !stop.load(Ordering::Relaxed) {
                    request += 1;
                    let n = request * 2 + u64::from(lane);
                    let header = Header { lane, request, ..header(Op::Write, KEY) };
                    let (verdict, packet) = process(datapath, header, &value(n), KEY, lane as u8);
                    match verdict {
                        Verdict::Reply => {
                            acknowledged.push((packet.parse().unwrap().header.seq.0, n));
                            writes.fetch_add(1, Ordering::Relaxed);
                        }
                        Verdict::Drop(DropReason::Contended) => {}
                        other => panic!("{other:?}"),
                    }
                }
                acknowledged
            }
        };
        let writers = [scope.spawn(writer(0)), scope.spawn(writer(1))];
        let begin = Instant::now();
        let is_enough =
            || writes.load(Ordering::Relaxed) > 10_000 && reads.load(Ordering::Relaxed) > 1_000;
        while goes_on(begin, is_enough()) {
            thread::sleep(Duration::from_millis(10));
        }
        drop(ends);
        for writer in writers {
            let of_one = writer.join().unwrap();
            assert!(of_one.is_sorted(), "a later write of a lane has a later number");
            acknowledged.extend(of_one);
        }
    });
    let numbers: HashSet<_> = acknowledged.iter().map(|(seq, _)| seq).collect();
    assert_eq!(numbers.len(), acknowledged.len(), "no number twice");
    let record = datapath.peek_record(0, 5).unwrap();
    let newest = acknowledged.iter().max().unwrap();
    assert_eq!(
        (record.seq, assert_whole(&record.value)),
        *newest,
        "the newest acknowledged write is there"
    );
    assert!(
        acknowledged.len() > 10_000 && reads.load(Ordering::Relaxed) > 1_000,
        "{} writes",
        acknowledged.len()
    );
}

/// The same lane from two threads: of the copies of one request, one runs.
#[test]
fn copies_of_a_request_run_once() {
    let rig = Rig::new(&config());
    rig.admit(KEY, 0, 5, 1);
    let datapath = &rig.datapath;
    let turn = AtomicU64::new(1);
    let done = AtomicU64::new(0);
    const TURNS: u64 = 50_000;
    let client = |shard: u8| {
        let (turn, done) = (&turn, &done);
        move || {
            let mut answers = Vec::new();
            loop {
                let request = turn.load(Ordering::Acquire);
                if request > TURNS {
                    return answers;
                }
                let header = Header { lane: 3, request, ..header(Op::Write, KEY) };
                let (verdict, packet) = process(datapath, header, &value(request), KEY, shard);
                match verdict {
                    Verdict::Reply => answers.push((request, packet.parse().unwrap().header.seq)),
                    Verdict::Drop(
                        DropReason::Busy | DropReason::OldRequest | DropReason::Contended,
                    ) => {}
                    other => panic!("{other:?}"),
                }
                // The next request begins when one of them has its answer.
                let next = turn.compare_exchange(
                    request,
                    request + 1,
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                );
                done.fetch_add(u64::from(next.is_ok()), Ordering::Relaxed);
            }
        }
    };
    let answers = thread::scope(|scope| {
        let threads = [scope.spawn(client(0)), scope.spawn(client(1))];
        threads.map(|thread| thread.join().unwrap())
    });
    let mut seqs: HashMap<u64, Seq> = HashMap::new();
    for (request, seq) in answers.into_iter().flatten() {
        assert_eq!(*seqs.entry(request).or_insert(seq), seq, "request {request} ran twice");
    }
    let statistics = datapath.statistics();
    let distinct: HashSet<_> = seqs.values().collect();
    assert_eq!(distinct.len(), seqs.len());
    assert!(statistics.absorbed_writes <= TURNS, "{} of {TURNS}", statistics.absorbed_writes);
    assert!(seqs.len() as u64 > TURNS / 100, "{} answered", seqs.len());
}

/// Admissions, evictions and lookups go on while a reader and a writer use the keys: a hit is
/// of the right record.
#[test]
fn a_slot_that_changes_its_key_never_answers_for_the_other() {
    let rig = Rig::new(&config());
    let datapath = &rig.datapath;
    let stop = AtomicBool::new(false);
    let keys: Vec<Vec<u8>> = (0..4u8).map(|i| vec![b'a' + i; 20 + usize::from(i)]).collect();
    let hits = AtomicU64::new(0);
    thread::scope(|scope| {
        let ends = Stop(&stop);
        let client = |lane: u32| {
            let (stop, keys, hits) = (&stop, &keys, &hits);
            move || {
                for request in 1.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let key = &keys[(request % 4) as usize];
                    let op = if request % 8 < 4 { Op::Write } else { Op::Read };
                    let header = Header { lane, request, ..header(op, key) };
                    let (verdict, packet) = process(datapath, header, key, key, lane as u8);
                    if let Verdict::Drop(reason) = verdict {
                        assert_eq!(reason, DropReason::Contended);
                        continue;
                    }
                    let parts = packet.parse().unwrap();
                    assert_eq!(parts.key, key, "the packet's own key");
                    if parts.header.op == Op::ReadReply || parts.header.has(flags::EMBEDDED) {
                        assert_eq!(parts.value, key, "the value of this key");
                        hits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        };
        scope.spawn(client(0));
        scope.spawn(client(1));
        let begin = Instant::now();
        let mut incarnation = 0;
        while goes_on(begin, incarnation > 100 && hits.load(Ordering::Relaxed) > 100) {
            incarnation += 1;
            let key = &keys[(incarnation % 4) as usize];
            rig.admit(key, 0, 7, incarnation);
            for _ in 0..200 {
                std::hint::spin_loop();
            }
            let evicted = rig.evict_begin(key, 0, 7, incarnation);
            let parts = evicted.parse().unwrap();
            assert!(parts.value.is_empty() || parts.value == key, "evicted whole");
            rig.remove(key, 0, 7, incarnation);
        }
        drop(ends);
        assert!(incarnation > 100, "{incarnation} incarnations");
    });
    assert!(hits.load(Ordering::Relaxed) > 100, "{hits:?} hits");
}

/// One writer goes round the keys, writing 1 to all, then 2 to all...: at any point in time the
/// values go down by one at most once. A snapshot taken meanwhile must look like such a point.
#[test]
fn a_snapshot_is_one_point_in_time() {
    const KEYS: u32 = 32;
    let rig = Rig::new(&config());
    let datapath = &rig.datapath;
    let keys: Vec<_> = (0..KEYS).map(|slot| slot.to_be_bytes()).collect();
    for (slot, key) in keys.iter().enumerate() {
        rig.admit(key, 0, slot as u32, slot as u64);
    }
    let stop = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    let mut snapshots = 0;
    let mut originals_used = 0;
    thread::scope(|scope| {
        let ends = Stop(&stop);
        scope.spawn(|| {
            let mut request = 0;
            for round in 1u64.. {
                for key in &keys {
                    loop {
                        request += 1;
                        let header = Header { lane: 0, request, ..header(Op::Write, key) };
                        match process(datapath, header, &value(round), key, 0).0 {
                            Verdict::Reply => break,
                            Verdict::Drop(DropReason::Contended) => {}
                            other => panic!("{other:?}"),
                        }
                    }
                }
                rounds.store(round, Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        while rounds.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        let begin = Instant::now();
        let mut generation = 1;
        while goes_on(begin, snapshots > 50 && originals_used > 50) {
            generation += 1;
            let (values, used) = snapshot(&rig, KEYS, generation);
            let falls: Vec<_> = values.windows(2).filter(|pair| pair[0] != pair[1]).collect();
            assert!(falls.len() <= 1, "one point in time: {values:?}");
            assert!(
                falls.iter().all(|pair| pair[0] == pair[1] + 1),
                "one point in time: {values:?}"
            );
            snapshots += 1;
            originals_used += used;
        }
        drop(ends);
    });
    assert_eq!(datapath.statistics().drops[DropReason::Unreported as usize], 0);
    assert!(
        snapshots > 50 && originals_used > 50,
        "{snapshots} snapshots, {originals_used} originals"
    );
}

/// Takes a snapshot as the agent does: loads all, and waits for the originals of what changed
/// meanwhile.
fn snapshot(rig: &Rig, keys: u32, generation: u32) -> (Vec<u64>, usize) {
    rig.control(Header { generation, ..Header::new(Op::SnapshotBegin) }, b"-");
    let mut values: Vec<Option<u64>> = Vec::new();
    for slot in 0..keys {
        let packet = rig.load(0, slot, slot.into());
        let parts = packet.parse().unwrap();
        assert!(parts.header.generation <= generation);
        values.push((parts.header.generation < generation).then(|| assert_whole(parts.value)));
    }
    rig.control(Header::new(Op::SnapshotEnd), b"-");
    // A writer may still be reporting what it saw before the end.
    let mut report = Packet::new();
    let deadline = Instant::now() + PATIENCE;
    let mut used = 0;
    while values.iter().any(Option::is_none) || rig.datapath.next_report(&mut report) {
        assert!(Instant::now() < deadline, "an original is missing");
        let Ok(parts) = report.parse() else {
            rig.datapath.next_report(&mut report);
            continue;
        };
        assert_eq!((parts.header.op, parts.header.generation < generation), (Op::Original, true));
        let at = &mut values[parts.header.location as usize];
        if at.is_none() {
            *at = Some(assert_whole(parts.value));
            used += 1;
        }
        report.set_length(0);
    }
    (values.into_iter().flatten().collect(), used)
}

/// Everything is forgotten while packets come: after it, nothing of the old epoch is there.
#[test]
fn clearing_under_traffic_leaves_nothing_of_the_old_epoch() {
    let rig = Rig::new(&config());
    let datapath = &rig.datapath;
    let stop = AtomicBool::new(false);
    let epoch = AtomicU64::new(u64::from(EPOCH));
    thread::scope(|scope| {
        let (ends, epoch) = (Stop(&stop), &epoch);
        let stop = &stop;
        scope.spawn(move || {
            let mut request = 0;
            while !stop.load(Ordering::Relaxed) {
                request += 1;
                let now = epoch.load(Ordering::Relaxed) as u32;
                let header = Header { epoch: now, lane: 1, request, ..header(Op::Write, KEY) };
                let (verdict, packet) = process(datapath, header, &value(request), KEY, 0);
                if verdict == Verdict::Reply {
                    assert_eq!(packet.parse().unwrap().header.seq.epoch(), now);
                }
            }
        });
        let begin = Instant::now();
        while goes_on(begin, epoch.load(Ordering::Relaxed) > 20) {
            datapath.clear();
            let record = datapath.peek_record(0, 5).unwrap();
            assert_eq!((record, datapath.peek_lane(1).unwrap()), Default::default());
            assert_eq!(datapath.peek_registers().epoch, 0);
            let next = epoch.load(Ordering::Relaxed) + 1;
            rig.control(
                Header { epoch: next as u32, generation: 1, ..Header::new(Op::SetEpoch) },
                b"-",
            );
            rig.admit(KEY, 0, 5, next);
            epoch.store(next, Ordering::Relaxed);
            for _ in 0..2000 {
                std::hint::spin_loop();
            }
            let record = datapath.peek_record(0, 5).unwrap();
            assert!(record.seq == 0 || Seq(record.seq).epoch() == next as u32);
        }
        drop(ends);
    });
    assert!(epoch.load(Ordering::Relaxed) > 20);
}
