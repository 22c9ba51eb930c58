//! Packets in batches: what they do one by one, also while the agent changes what they find.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use switchback_datapath::*;
use switchback_wire::*;

const KEYS: u64 = 48;
const KEY: &[u8] = b"a hot key";

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

fn item(packet: Packet, from: Address, random: u32) -> Item {
    Item { packet, from, random, verdict: Verdict::Pass }
}

fn random_item(random: &mut Random, turn: u64) -> Item {
    let key = format!("key {}", random.below(KEYS)).into_bytes();
    let op = [
        Op::Read,
        Op::Read,
        Op::Write,
        Op::Write,
        Op::Delete,
        Op::Scan,
        Op::ReadReply,
        Op::CacheUpdate,
    ][random.below(8) as usize];
    let value = vec![turn as u8; [0, 0, 8, 32, 33, 200][random.below(6) as usize]];
    let flags = [0, 0, flags::CONDITIONAL, flags::FENCED][random.below(4) as usize];
    let (lane, guard) = (random.below(65) as u32, seq(random.below(20)).0);
    let header = Header { lane, request: turn - random.below(3), guard, flags, ..header(op, &key) };
    let mut packet = Packet::build(header, &value, &key);
    if random.below(20) == 0 {
        let at = random.below(packet.bytes().len() as u64) as usize;
        packet.buffer_mut()[at] ^= 1 << random.below(8);
    }
    if random.below(40) == 0 {
        packet.set_length(random.below(120) as usize);
    }
    item(packet, [CLIENT, CLIENT, NODE][random.below(3) as usize], random.below(1 << 32) as u32)
}

#[test]
fn a_batch_does_what_its_packets_do_one_by_one() {
    let (alone, together) = (Rig::new(&small()), Rig::new(&small()));
    for rig in [&alone, &together] {
        for slot in 0..16 {
            rig.admit(format!("key {slot}").as_bytes(), 0, slot as u32, 1);
        }
    }
    let mut random = Random(1);
    let mut turn = 10;
    let mut verdicts = [0; 3];
    for _ in 0..4000 {
        let mut batch = Vec::new();
        for _ in 0..random.below(3 * BATCH as u64) {
            turn += 1;
            batch.push(random_item(&mut random, turn));
        }
        let one_by_one = batch.clone();
        together.datapath.process_batch(&mut batch, 1000, Shard::default());
        for (mut one, other) in one_by_one.into_iter().zip(&batch) {
            let verdict = alone.datapath.process(
                &mut one.packet,
                one.from,
                1000,
                one.random,
                Shard::default(),
            );
            assert_eq!((verdict, one.packet.bytes()), (other.verdict, other.packet.bytes()));
            verdicts[match verdict {
                Verdict::Reply => 0,
                Verdict::Forward(_) => 1,
                _ => 2,
            }] += 1;
        }
    }
    assert!(verdicts.iter().all(|count| *count > 1000), "{verdicts:?}");
    assert_eq!(alone.datapath.statistics(), together.datapath.statistics());
    for slot in 0..16 {
        assert_eq!(alone.load(0, slot, 1).bytes(), together.load(0, slot, 1).bytes());
    }
}

/// The last number of the key's bucket.
fn last(datapath: &Datapath) -> u64 {
    datapath.peek_sequence(&hash(KEY))
}

/// Admits the key and takes it away again: between which numbers all writes were the record's.
fn admit_and_evict(rig: &Rig, incarnation: u64) -> (u64, u64) {
    rig.admit(KEY, 0, 3, incarnation);
    // A writer that isn't running may hold the record for long.
    let adm =
        std::iter::from_fn(|| Some(rig.datapath.peek_record(0, 3))).flatten().next().unwrap().adm;
    let until = Instant::now() + Duration::from_micros(20);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
    let end = last(&rig.datapath);
    rig.evict_begin(KEY, 0, 3, incarnation);
    rig.remove(KEY, 0, 3, incarnation);
    (Seq(adm).counter(), end)
}

/// The agent may change the table behind the lookups that a batch begins with; writes must not
/// notice.
#[test]
fn a_write_in_a_batch_finds_its_record_if_it_takes_its_number_after_the_admission() {
    let rig = Rig::new(&small());
    let stop = AtomicBool::new(false);
    let (periods, written, forwarded) = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut forwarded = Vec::new();
            let mut request = 0;
            while !stop.load(Ordering::Relaxed) {
                request += 1;
                let build = |lane| {
                    let header = Header { lane, request, ..header(Op::Write, KEY) };
                    item(Packet::build(header, b"value", KEY), CLIENT, 0)
                };
                let mut batch: Vec<Item> = (0..BATCH as u32).map(build).collect();
                rig.datapath.process_batch(&mut batch, 1000, Shard::default());
                let missed =
                    batch.iter().filter(|item| matches!(item.verdict, Verdict::Forward(_)));
                forwarded
                    .extend(missed.map(|item| item.packet.parse().unwrap().header.seq.counter()));
            }
            forwarded
        });
        let ends = Stop(&stop);
        let begin = Instant::now();
        let (mut periods, mut written) = (Vec::new(), 0);
        // For a while, and on a busy machine until there is enough to judge by.
        let limit = |is_enough| Duration::from_millis(if is_enough { 1500 } else { 60_000 });
        while begin.elapsed() < limit(periods.len() > 10 && written > 100) {
            let (adm, end) = admit_and_evict(&rig, 1 + periods.len() as u64);
            periods.push((adm, end));
            written += end - adm;
        }
        drop(ends);
        (periods, written, writer.join().unwrap())
    });
    let mut forwarded = forwarded.into_iter().peekable();
    for (adm, end) in &periods {
        while forwarded.next_if(|seq| seq <= adm).is_some() {}
        // The last number may have been taken before the eviction by a write that looked the key up
        // after it.
        assert!(
            forwarded.peek().is_none_or(|seq| seq >= end),
            "forwarded {:?} of {adm}..{end}",
            forwarded.peek()
        );
    }
    assert!(periods.len() > 10 && written > 100, "{} admissions, {written} writes", periods.len());
}
