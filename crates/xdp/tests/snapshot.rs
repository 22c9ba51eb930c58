//! A snapshot in the kernel while another CPU writes: originals are reported before they are
//! overwritten, so what the agent puts together is one point in time.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::{assert_whole, control, may_load, small_switch, value_of};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switchback_datapath::{Control, DropReason, Verdict};
use switchback_wire::*;
use switchback_xdp::XdpDatapath;

const KEYS: u32 = 16;
const SNAPSHOTS: u32 = 60;
const CLIENT: Address = Address::in_memory(1, 1);

/// Ends the writer, also if this thread fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn key(slot: u32) -> [u8; 4] {
    slot.to_be_bytes()
}

fn header(op: Op, key: &[u8]) -> Header {
    Header { epoch: 1, key_hash: HashKey([5; 16]).hash(key), ..Header::new(op) }
}

fn switch(reports: u32) -> XdpDatapath {
    let datapath = small_switch(KEYS, reports);
    for slot in 0..KEYS {
        let key = key(slot);
        control(&datapath, Header { location: slot, ..header(Op::Admit, &key) }, &key);
        datapath.lookup_insert(&header(Op::Admit, &key).key_hash, 0, slot).unwrap();
        control(&datapath, Header { location: slot, ..header(Op::SetValid, &key) }, &key);
    }
    datapath
}

fn write(datapath: &XdpDatapath, key: &[u8], value: u64, request: u64) -> Verdict {
    let mut packet =
        Packet::build(Header { request, ..header(Op::Write, key) }, &value_of(value), key);
    datapath.process(&mut packet, CLIENT, 0, 0)
}

/// Writes a value to each key, by requests of these numbers.
fn write_all(datapath: &XdpDatapath, value: u64, requests: &mut impl Iterator<Item = u64>) {
    for key in (0..KEYS).map(key) {
        loop {
            match write(datapath, &key, value, requests.next().unwrap()) {
                Verdict::Reply => break,
                Verdict::Drop(DropReason::Contended) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

/// Writes 1 to all keys, then 2 to all...
fn write_rounds(datapath: &XdpDatapath, rounds: &AtomicU64, stop: &AtomicBool) {
    let mut requests = 1..;
    for round in 1u64.. {
        write_all(datapath, round, &mut requests);
        rounds.store(round, Ordering::Relaxed);
        if stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// Takes a snapshot as the agent does: loads all, and waits for the originals of what changed
/// meanwhile.
fn snapshot(
    datapath: &XdpDatapath,
    generation: u32,
    once_begun: impl FnOnce(),
) -> (Vec<u64>, usize) {
    control(datapath, Header { generation, ..header(Op::SnapshotBegin, b"-") }, b"-");
    once_begun();
    let mut values: Vec<Option<u64>> = Vec::new();
    for slot in 0..KEYS {
        let packet =
            control(datapath, Header { location: slot, ..header(Op::LoadRecord, b"-") }, b"-");
        let parts = packet.parse().unwrap();
        assert!(parts.header.generation <= generation);
        values.push((parts.header.generation < generation).then(|| assert_whole(parts.value)));
    }
    control(datapath, header(Op::SnapshotEnd, b"-"), b"-");
    let loaded: Vec<bool> = values.iter().map(Option::is_some).collect();
    // The writer may still be reporting what it saw before the end.
    let mut report = Packet::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut originals = 0;
    loop {
        let found = datapath.next_report(&mut report);
        if !found && values.iter().all(Option::is_some) {
            return (values.into_iter().flatten().collect(), originals);
        }
        assert!(Instant::now() < deadline, "an original is missing");
        if found {
            let parts = report.parse().unwrap();
            assert_eq!(
                (parts.header.op, parts.header.generation < generation),
                (Op::Original, true)
            );
            // The last one counts: a writer that was delayed may still report for the snapshot
            // before.
            let slot = parts.header.location as usize;
            if !loaded[slot] {
                originals += usize::from(values[slot].is_none());
                values[slot] = Some(assert_whole(parts.value));
            }
        }
    }
}

/// At any point in time the values go down by one at most once from the first key to the last,
/// since one writer goes round them.
#[test]
fn a_snapshot_is_one_point_in_time() {
    if !may_load() {
        return;
    }
    let datapath = switch(4096);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut originals = 0;
    thread::scope(|scope| {
        let _ends = Stop(&stop);
        let writer = scope.spawn(|| write_rounds(&datapath, &rounds, &stop));
        while rounds.load(Ordering::Relaxed) == 0 && !writer.is_finished() {
            thread::yield_now();
        }
        let wait_for_a_round = || {
            let now = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) <= now + 1 && !writer.is_finished() {
                thread::yield_now();
            }
        };
        for generation in 2..2 + SNAPSHOTS {
            // Every other one begins long before anything is loaded, so all of it is overwritten
            // meanwhile.
            let is_late = generation % 2 == 0;
            let (values, used) = snapshot(&datapath, generation, || {
                if is_late {
                    wait_for_a_round()
                }
            });
            let changes: Vec<_> = values.windows(2).filter(|pair| pair[0] != pair[1]).collect();
            assert!(changes.len() <= 1, "one point in time: {values:?}");
            assert!(
                changes.iter().all(|pair| pair[0] == pair[1] + 1),
                "one point in time: {values:?}"
            );
            originals += used;
            wait_for_a_round();
        }
    });
    assert_eq!(datapath.statistics().drops[DropReason::Unreported as usize], 0);
    assert!(originals >= SNAPSHOTS as usize / 2 * KEYS as usize, "{originals} originals");
}

/// Reports that wait stay where they are, and a record whose original finds no room beside them
/// doesn't change.
#[test]
fn a_record_whose_original_finds_no_room_stays_as_it_is() {
    if !may_load() {
        return;
    }
    let datapath = switch(1);
    let mut requests = 1..;
    write_all(&datapath, 1, &mut requests);
    control(&datapath, Header { generation: 2, ..header(Op::SnapshotBegin, b"-") }, b"-");
    let mut refused = Vec::new();
    for slot in 0..KEYS {
        match write(&datapath, &key(slot), 2, requests.next().unwrap()) {
            Verdict::Reply => {}
            Verdict::Drop(DropReason::Unreported) => refused.push(slot),
            other => panic!("{other:?}"),
        }
        assert_eq!(datapath.next_unreached(), None);
    }
    assert!((1..KEYS as usize).contains(&refused.len()), "{refused:?} of {KEYS}");
    for slot in 0..KEYS {
        let packet =
            control(&datapath, Header { location: slot, ..header(Op::LoadRecord, b"-") }, b"-");
        let is_old = assert_whole(packet.parse().unwrap().value) == 1;
        assert_eq!(is_old, refused.contains(&slot));
    }
    let mut report = Packet::new();
    let taken = (0..KEYS).filter(|_| datapath.next_report(&mut report)).count();
    assert_eq!(taken + refused.len(), KEYS as usize);
    for slot in refused {
        while write(&datapath, &key(slot), 2, requests.next().unwrap())
            == Verdict::Drop(DropReason::Unreported)
        {
            assert!(datapath.next_report(&mut report), "what is taken makes room");
        }
    }
}
