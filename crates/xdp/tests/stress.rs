//! Two CPUs on the same records, in the kernel: nothing torn, nothing lost, no number twice or left
//! out, and of the copies of a request one runs.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::{assert_whole, control, may_load, small_switch, value_of};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use switchback_datapath::{Control, DropReason, Verdict};
use switchback_wire::*;
use switchback_xdp::XdpDatapath;

const KEY: &[u8] = b"a hot key";
const CLIENT: Address = Address::in_memory(1, 1);
const WRITES: u64 = 10_000;

fn hash() -> KeyHash {
    HashKey([5; 16]).hash(KEY)
}

fn header(op: Op) -> Header {
    Header { epoch: 1, key_hash: hash(), ..Header::new(op) }
}

fn switch() -> XdpDatapath {
    let datapath = small_switch(4, 4096);
    control(&datapath, header(Op::Admit), KEY);
    datapath.lookup_insert(&hash(), 0, 0).unwrap();
    control(&datapath, header(Op::SetValid), KEY);
    datapath
}

/// One of the CPUs that this process may use, each for one of the threads as far as they go.
fn pin(index: usize) {
    let allowed = sched_getaffinity(None::<Pid>).unwrap();
    let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    let mut one = CpuSet::new();
    one.set(cpus[index % cpus.len()]);
    sched_setaffinity(None, &one).unwrap();
}

fn send(datapath: &XdpDatapath, header: Header, value: &[u8]) -> (Verdict, Packet) {
    let mut packet = Packet::build(header, value, KEY);
    (datapath.process(&mut packet, CLIENT, 0, 0), packet)
}

/// Each CPU writes and reads the same key. Every write takes one number, whether it finds the
/// record locked or not.
#[test]
fn values_are_whole_and_numbers_have_no_gaps() {
    if !may_load() {
        return;
    }
    let datapath = switch();
    let start = Barrier::new(2);
    let client = |index: usize| {
        let (datapath, start) = (&datapath, &start);
        move || {
            pin(index);
            start.wait();
            let (mut written, mut contended, mut newest) = (BTreeMap::new(), 0u64, 0);
            for request in 1..=WRITES {
                let n = request * 2 + index as u64;
                let (verdict, packet) = send(
                    datapath,
                    Header { lane: index as u32, request, ..header(Op::Write) },
                    &value_of(n),
                );
                match verdict {
                    Verdict::Reply => {
                        written.insert(packet.parse().unwrap().header.seq.0, n);
                    }
                    Verdict::Drop(DropReason::Contended) => contended += 1,
                    other => panic!("{other:?}"),
                }
                if let (Verdict::Reply, packet) = send(datapath, header(Op::Read), &[]) {
                    let parts = packet.parse().unwrap();
                    assert_whole(parts.value);
                    assert!(parts.header.seq.0 >= newest, "a reader never goes back");
                    newest = parts.header.seq.0;
                }
            }
            (written, contended)
        }
    };
    let results = thread::scope(|scope| {
        let threads = [scope.spawn(client(0)), scope.spawn(client(1))];
        threads.map(|thread| thread.join().unwrap())
    });
    let contended: u64 = results.iter().map(|(_, contended)| contended).sum();
    let mut all = BTreeMap::new();
    for (seq, n) in results.into_iter().flat_map(|(written, _)| written) {
        assert!(all.insert(seq, n).is_none(), "no number twice");
    }
    assert_eq!(all.len() as u64 + contended, 2 * WRITES);
    assert_eq!(datapath.peek_sequence(&hash()), 2 * WRITES, "each write took one number");
    let record = datapath.peek_record(0, 0).unwrap();
    let (seq, n) = all.last_key_value().unwrap();
    assert_eq!(
        (record.seq, assert_whole(&record.value)),
        (*seq, *n),
        "the newest acknowledged write is there"
    );
    assert!(all.len() as u64 > WRITES, "{} writes", all.len());
}

/// The same lane from two CPUs: of the copies of one request, one runs.
#[test]
fn copies_of_a_request_run_once() {
    if !may_load() {
        return;
    }
    let datapath = switch();
    let turn = AtomicU64::new(1);
    let client = |index: usize| {
        let (datapath, turn) = (&datapath, &turn);
        move || {
            pin(index);
            let mut answers = Vec::new();
            loop {
                let request = turn.load(Ordering::Acquire);
                if request > WRITES {
                    return answers;
                }
                let (verdict, packet) = send(
                    datapath,
                    Header { lane: 3, request, ..header(Op::Write) },
                    &value_of(request),
                );
                match verdict {
                    Verdict::Reply => {
                        answers.push((request, packet.parse().unwrap().header.seq.0));
                        let _next = turn.compare_exchange(
                            request,
                            request + 1,
                            Ordering::AcqRel,
                            Ordering::Relaxed,
                        );
                    }
                    Verdict::Drop(
                        DropReason::Busy | DropReason::OldRequest | DropReason::Contended,
                    ) => {}
                    other => panic!("{other:?}"),
                }
            }
        }
    };
    let answers = thread::scope(|scope| {
        let threads = [scope.spawn(client(0)), scope.spawn(client(1))];
        threads.map(|thread| thread.join().unwrap())
    });
    let mut seqs = BTreeMap::new();
    for (request, seq) in answers.into_iter().flatten() {
        assert_eq!(*seqs.entry(request).or_insert(seq), seq, "request {request} ran twice");
    }
    assert_eq!(seqs.len() as u64, WRITES, "each has its answer");
    assert!(seqs.values().is_sorted());
}

/// Keys come to one bucket of the lookup table and go, more than it has room for, while another CPU
/// reads them: one that stays is always found, and whatever is found is what was asked for.
#[test]
fn keys_are_found_while_others_come_and_go() {
    if !may_load() {
        return;
    }
    const KEYS: u8 = 6;
    // The last one found the bucket full, and lives in the next.
    const STAYS: u8 = KEYS - 1;
    let datapath = small_switch(KEYS.into(), 4096);
    let hash = |i: u8| {
        let mut hash = KeyHash([0; 16]);
        (hash.0[0], hash.0[15]) = (i + 1, 3);
        hash
    };
    let header =
        |op, i: u8| Header { epoch: 1, location: i.into(), key_hash: hash(i), ..Header::new(op) };
    for i in 0..KEYS {
        control(&datapath, header(Op::Admit, i), &[i]);
        datapath.lookup_insert(&hash(i), 0, i.into()).unwrap();
        control(&datapath, header(Op::SetValid, i), &[i]);
        let write = Header { request: 1, lane: i.into(), location: 0, ..header(Op::Write, i) };
        let verdict =
            datapath.process(&mut Packet::build(write, &value_of(i.into()), &[i]), CLIENT, 0, 0);
        assert_eq!(verdict, Verdict::Reply);
    }
    let (start, is_over) = (Barrier::new(2), AtomicU64::new(0));
    let reader = || {
        pin(1);
        start.wait();
        let mut found = [0u64; KEYS as usize];
        for i in (0..KEYS).cycle() {
            if is_over.load(Ordering::Relaxed) == 1 {
                break;
            }
            let mut packet =
                Packet::build(Header { location: 0, ..header(Op::Read, i) }, &[], &[i]);
            match datapath.process(&mut packet, CLIENT, 0, 0) {
                Verdict::Reply => {
                    assert_eq!(assert_whole(packet.parse().unwrap().value), u64::from(i));
                    found[usize::from(i)] += 1;
                }
                Verdict::Drop(DropReason::Contended) => {}
                other => assert_ne!(i, STAYS, "{other:?}"),
            }
        }
        found
    };
    let found = thread::scope(|scope| {
        let reader = scope.spawn(reader);
        pin(0);
        start.wait();
        for n in 0..WRITES {
            let i = (n % u64::from(STAYS)) as u8;
            assert!(datapath.lookup_remove(&hash(i), 0, i.into()));
            datapath.lookup_insert(&hash(i), 0, i.into()).unwrap();
        }
        is_over.store(1, Ordering::Relaxed);
        reader.join().unwrap()
    });
    assert!(found[usize::from(STAYS)] > 0, "{found:?}");
}
