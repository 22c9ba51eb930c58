//! What a packet costs in the native pipeline, on one core.
//!
//! Keys are drawn from a Zipf distribution (0.99) beforehand. Every iteration builds its request
//! anew, since the pipeline rewrites it; that is measured alone and subtracted. The last column is
//! what a loop takes that only touches the memory of a hit: bucket, record, value (copied) and
//! counter, in tables of the same sizes.
//!
//! `cargo bench -p switchback-datapath`, with a number of rounds as argument if 9 isn't right.

use std::hint::black_box;
use std::time::Instant;
use switchback_datapath::{BATCH, ClassConfig, Config, Control, Datapath, Item, Shard, Verdict};
use switchback_wire::{Address, HashKey, Header, KeyHash, Map, Op, Packet};

const OPERATIONS: usize = 1 << 18;
const CLIENT: Address = Address::in_memory(1, 0);
const LANES: u32 = 1024;

#[derive(Clone, Copy)]
struct Request {
    key: [u8; 16],
    hash: KeyHash,
    random: u32,
    slot: u32,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    HitRead,
    HitWrite,
    Miss,
}

/// A small generator, so that the bench needs no crate for it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

fn key(index: u64) -> [u8; 16] {
    let mut key = *b"user000000000000";
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

/// Requests for `keys` keys, Zipf 0.99, in random order of popularity.
fn requests(keys: u32, first: u64) -> Vec<Request> {
    let mut cumulative: Vec<f64> = Vec::with_capacity(keys as usize);
    let mut sum = 0.0;
    for rank in 1..=keys {
        sum += f64::from(rank).powf(-0.99);
        cumulative.push(sum);
    }
    let mut random = Random(u64::from(keys) + first);
    let mut slots: Vec<u32> = (0..keys).collect();
    for i in (1..slots.len()).rev() {
        slots.swap(i, (random.next() % (i as u64 + 1)) as usize);
    }
    let hash_key = HashKey([3; 16]);
    let draw = |_| {
        let at = (random.next() >> 11) as f64 / (1u64 << 53) as f64 * sum;
        let rank = cumulative.partition_point(|below| *below < at).min(keys as usize - 1);
        let key = key(first + u64::from(slots[rank]));
        Request { key, hash: hash_key.hash(&key), random: random.next() as u32, slot: slots[rank] }
    };
    (0..OPERATIONS).map(draw).collect()
}

fn new_datapath(value_bytes: u32, slots: u32) -> Datapath {
    let classes = vec![ClassConfig { value_bytes, slots }];
    let config = Config { classes, lanes: LANES, ..Config::default() };
    let datapath = Datapath::new(&config).expect("a sound configuration");
    datapath
        .set_map(&Map::equal(vec![vec![0]; config.partitions as usize]))
        .expect("there is room");
    let mut packet =
        Packet::build(Header { epoch: 1, generation: 1, ..Header::new(Op::SetEpoch) }, &[], b"-");
    assert_eq!(datapath.inject(&mut packet), Verdict::Reply);
    let hash_key = HashKey([3; 16]);
    for slot in 0..slots {
        let key = key(u64::from(slot));
        let header = Header {
            location: slot,
            request: 1,
            key_hash: hash_key.hash(&key),
            ..Header::new(Op::Admit)
        };
        packet.fill(&header, &[], &key);
        assert_eq!(datapath.inject(&mut packet), Verdict::Reply);
        datapath.lookup_insert(&header.key_hash, 0, slot).expect("there is room");
        packet.fill(&Header { op: Op::SetValid, ..header }, &[], &key);
        assert_eq!(datapath.inject(&mut packet), Verdict::Reply);
    }
    datapath
}

/// Packets between two looks at the clock: few enough that most stretches are not preempted on a
/// shared machine.
const STRETCH: usize = 8192;
struct Bench<'a> {
    datapath: &'a Datapath,
    value: &'a [u8],
    next_request: u64,
    batch: Vec<Item>,
}

/// What a round does with the packets that it builds.
#[derive(Clone, Copy, PartialEq)]
enum With {
    Nothing,
    Process,
    ProcessBatch,
}

impl Bench<'_> {
    /// Nanoseconds a packet, of each stretch of the requests.
    fn round(&mut self, kind: Kind, requests: &[Request], with: With) -> Vec<f64> {
        requests.chunks(STRETCH).map(|stretch| self.stretch(kind, stretch, with)).collect()
    }

    fn stretch(&mut self, kind: Kind, requests: &[Request], with: With) -> f64 {
        let op = if kind == Kind::HitWrite { Op::Write } else { Op::Read };
        let value = if kind == Kind::HitWrite { self.value } else { &[] };
        let mut header = Header { epoch: 1, ..Header::new(op) };
        let mut answered = 0usize;
        let start = Instant::now();
        for requests in requests.chunks(BATCH) {
            let batch = &mut self.batch[..requests.len()];
            for (item, request) in batch.iter_mut().zip(requests) {
                self.next_request += 1;
                header.key_hash = request.hash;
                header.request = self.next_request;
                header.lane = self.next_request as u32 % LANES;
                item.packet.fill(&header, value, &request.key);
                item.random = request.random;
            }
            match with {
                With::Nothing => {}
                With::Process => {
                    for item in &mut *batch {
                        let packet = &mut item.packet;
                        item.verdict =
                            self.datapath.process(packet, CLIENT, 1, item.random, Shard::default());
                    }
                }
                With::ProcessBatch => self.datapath.process_batch(batch, 1, Shard::default()),
            }
            answered +=
                black_box(&*batch).iter().filter(|item| item.verdict == Verdict::Reply).count();
        }
        let ns = start.elapsed().as_nanos() as f64 / requests.len() as f64;
        let expected = if kind == Kind::Miss { 0 } else { requests.len() };
        assert!(
            with == With::Nothing || answered == expected,
            "{answered} of {} answered",
            requests.len()
        );
        ns
    }
}

/// Median, first and ninth decile.
fn spread(mut of: Vec<f64>) -> (f64, f64, f64) {
    of.sort_by(f64::total_cmp);
    (of[of.len() / 2], of[of.len() / 10], of[of.len() * 9 / 10])
}

/// Tables of the datapath's sizes, and nothing of it but the memory that a hit touches: a bucket,
/// then the record that it names (head, value, counter).
struct Memory {
    buckets: Vec<u64>,
    records: Vec<u64>,
    counters: Vec<u32>,
    stride: usize,
    value: usize,
}

impl Memory {
    fn new(value_bytes: usize, slots: u32) -> Memory {
        let stride = (192 + value_bytes).next_multiple_of(64) / 8;
        let buckets = huge((slots as usize / 2 + 1).next_power_of_two() * 8, 0);
        let records = huge(stride * slots as usize, 1);
        Memory {
            buckets,
            records,
            counters: vec![0; slots as usize],
            stride,
            value: value_bytes / 8,
        }
    }

    fn bucket(&self, request: &Request) -> usize {
        (request.hash.low() as usize & (self.buckets.len() / 8 - 1)) * 8
    }

    /// As the pipeline does it: the record's place is known once the bucket is there.
    fn touch(&mut self, request: &Request, to: &mut [u64]) {
        let slot = request.slot as usize + self.buckets[self.bucket(request)] as usize;
        let record = &self.records[slot * self.stride..][..self.stride];
        black_box(record[0]);
        to[..self.value].copy_from_slice(&record[24..24 + self.value]);
        self.counters[slot] += 1;
        black_box(to);
    }

    /// Nanoseconds a request.
    fn round(&mut self, requests: &[Request]) -> f64 {
        let mut to = [0u64; 128];
        let start = Instant::now();
        for request in requests {
            self.touch(request, &mut to);
        }
        start.elapsed().as_nanos() as f64 / requests.len() as f64
    }
}

/// Filled, and on huge pages like the datapath's tables, as far as there are any.
fn huge(words: usize, with: u64) -> Vec<u64> {
    const HUGE_PAGE: usize = 2 << 20;
    const MADV_HUGEPAGE: i32 = 14;
    unsafe extern "C" {
        fn madvise(at: *mut u8, length: usize, advice: i32) -> i32;
    }
    let mut table = Vec::<u64>::with_capacity(words);
    let at = table.as_mut_ptr().cast::<u8>();
    let skipped = at.align_offset(4096);
    if words * 8 >= HUGE_PAGE {
        // SAFETY: whole pages within the allocation; the advice changes no contents, and may be
        // refused.
        let _ = unsafe { madvise(at.wrapping_add(skipped), words * 8 - skipped, MADV_HUGEPAGE) };
    }
    table.resize(words, with);
    table
}

/// What touching a hit's memory alone costs, of stretches as the pipeline's.
fn touching(value_bytes: usize, slots: u32, requests: &[Request]) -> f64 {
    let mut memory = Memory::new(value_bytes, slots);
    memory.round(requests);
    spread(
        (0..5)
            .flat_map(|_| {
                requests.chunks(STRETCH).map(|stretch| memory.round(stretch)).collect::<Vec<_>>()
            })
            .collect(),
    )
    .0
}

fn main() {
    let rounds =
        std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(9usize);
    println!(
        "ns a packet, one core, Zipf 0.99, 16 B keys, {OPERATIONS} packets x {rounds} rounds; net \
         of building the packet;\n\
         median (first..ninth decile) of stretches of {STRETCH} packets"
    );
    println!(
        "packet     value  slots | one by one           | in batches of {BATCH}     | building | touching the memory"
    );
    for slots in [1 << 10, 1 << 16] {
        for value_bytes in [16, 128, 1024] {
            let datapath = new_datapath(value_bytes, slots);
            let value = vec![7u8; value_bytes as usize];
            let empty = Item { from: CLIENT, ..Item::default() };
            let batch = vec![empty; BATCH];
            let mut bench = Bench { datapath: &datapath, value: &value, next_request: 0, batch };
            let hits = requests(slots, 0);
            let misses = requests(slots, 1 << 40);
            let touched = touching(value_bytes as usize, slots, &hits);
            // Every key has a value before any is read.
            bench.round(Kind::HitWrite, &every(slots), With::Process);
            for (name, kind) in
                [("hit read", Kind::HitRead), ("hit write", Kind::HitWrite), ("miss", Kind::Miss)]
            {
                let requests = if kind == Kind::Miss { &misses } else { &hits };
                bench.round(kind, requests, With::Process);
                let building = spread(
                    (0..rounds).flat_map(|_| bench.round(kind, requests, With::Nothing)).collect(),
                )
                .0;
                let mut net = |with| {
                    spread((0..rounds).flat_map(|_| bench.round(kind, requests, with)).collect())
                };
                let (alone, batched) = (net(With::Process), net(With::ProcessBatch));
                let [alone, batched] = [alone, batched].map(|(median, low, high)| {
                    (median - building, low - building, high - building)
                });
                println!(
                    "{name:<9} {value_bytes:>5} B {slots:>6} | {:5.1} ({:5.1}..{:5.1}) | {:5.1} ({:5.1}..{:5.1}) | {building:8.1} | {touched:8.1}",
                    alone.0, alone.1, alone.2, batched.0, batched.1, batched.2
                );
            }
        }
    }
}

/// One request for each key.
fn every(slots: u32) -> Vec<Request> {
    let hash_key = HashKey([3; 16]);
    let request = |slot: u32| {
        let key = key(slot.into());
        Request { key, hash: hash_key.hash(&key), random: 0, slot }
    };
    (0..slots).map(request).collect()
}
