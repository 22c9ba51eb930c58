//! The pipeline against a model of one record and its lanes, written from the tables of the protocol, section 4: random sequences of
//! requests, retries, late answers, bounces, updates and control packets must leave both in the same state, with the same verdicts.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod common;

use common::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::cell::RefCell;
use switchback_datapath::state::{bits, lane as lane_state};
use switchback_datapath::*;
use switchback_wire::*;

const KEY: &[u8] = b"the key";
const LANES: usize = 2;
const CAPACITY: usize = 32;
const SLOT: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Size {
    Empty,
    Fits,
    TooLong,
    Large,
}

/// What a conditional write expects.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Nothing,
    TheRecordsSeq,
    Seq(u8),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read,
    /// `age`: 0 repeats the lane's request, 1 is a new one, -1 an old one. `late`: its number was taken so much earlier.
    Write {
        lane: u8,
        age: i8,
        delete: bool,
        condition: Option<Expect>,
        size: Size,
        late: u8,
    },
    /// About the `which`-th write that was forwarded so far.
    Answer {
        which: u8,
        status: u8,
    },
    Bounce {
        which: u8,
    },
    /// To the `which`-th fenced read so far.
    ReadAnswer {
        which: u8,
        seq: u8,
        found: bool,
        size: Size,
    },
    Update {
        seq: u8,
        delete: bool,
        size: Size,
    },
    Admit {
        incarnation: u8,
    },
    SetValid {
        incarnation: u8,
    },
    EvictBegin {
        incarnation: u8,
    },
    Remove {
        incarnation: u8,
    },
    Insert,
    TakeOut,
    SnapshotBegin,
    SnapshotEnd,
}

fn size() -> impl Strategy<Value = Size> {
    prop_oneof![6 => Just(Size::Fits), 1 => Just(Size::Empty), 1 => Just(Size::TooLong), 1 => Just(Size::Large)]
}

fn step() -> impl Strategy<Value = Step> {
    let expect = prop_oneof![Just(Expect::Nothing), Just(Expect::TheRecordsSeq), any::<u8>().prop_map(Expect::Seq)];
    let condition = prop_oneof![2 => Just(None), 1 => expect.prop_map(Some)];
    let late = prop_oneof![4 => Just(0u8), 1 => 1..4u8];
    let age = prop_oneof![6 => Just(1i8), 2 => Just(0), 1 => Just(-1)];
    let write = (0..LANES as u8, age, any::<bool>(), condition, size(), late).prop_map(
        |(lane, age, delete, condition, size, late)| Step::Write { lane, age, delete, condition, size, late },
    );
    let answer = (any::<u8>(), 0..6u8).prop_map(|(which, status)| Step::Answer { which, status });
    let read_answer = (any::<u8>(), any::<u8>(), any::<bool>(), size())
        .prop_map(|(which, seq, found, size)| Step::ReadAnswer { which, seq, found, size });
    let update =
        (any::<u8>(), any::<bool>(), size()).prop_map(|(seq, delete, size)| Step::Update { seq, delete, size });
    let incarnation = 0..3u8;
    prop_oneof![
        4 => Just(Step::Read),
        8 => write,
        3 => answer,
        2 => any::<u8>().prop_map(|which| Step::Bounce { which }),
        4 => read_answer,
        2 => update,
        3 => incarnation.clone().prop_map(|incarnation| Step::Admit { incarnation }),
        3 => incarnation.clone().prop_map(|incarnation| Step::SetValid { incarnation }),
        1 => incarnation.clone().prop_map(|incarnation| Step::EvictBegin { incarnation }),
        1 => incarnation.prop_map(|incarnation| Step::Remove { incarnation }),
        3 => Just(Step::Insert),
        1 => Just(Step::TakeOut),
        1 => Just(Step::SnapshotBegin),
        1 => Just(Step::SnapshotEnd),
    ]
}

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Lane {
    request: u64,
    state: u8,
    seq: u64,
    status: u8,
    cached: bool,
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Record {
    valid: bool,
    latest: bool,
    evicting: bool,
    refresh: bool,
    tombstone: bool,
    dirty: bool,
    seq: u64,
    adm: u64,
    incarnation: u64,
    generation: u32,
    value: Vec<u8>,
}

/// What the model says of a packet: the verdict, and of an answer or forwarded packet what matters.
#[derive(Clone, PartialEq, Debug)]
enum Outcome {
    Reply { op: Op, status: Status, seq: u64, cached: bool, value: Vec<u8> },
    Forward { op: Op, seq: u64, flags: u8, guard: u64, value: Vec<u8> },
    Drop(DropReason),
}

#[derive(Clone)]
struct Request {
    op: Op,
    lane: usize,
    request: u64,
    condition: Option<u64>,
    value: Vec<u8>,
    large: bool,
}

struct Model {
    write_back: bool,
    found: bool,
    record: Record,
    lanes: [Lane; LANES],
    last: u64,
    generation: u32,
    snapshot: bool,
    reports: Vec<(Op, u64, Vec<u8>)>,
}

impl Model {
    fn fits(request_value: &[u8], large: bool) -> bool {
        !large && request_value.len() <= CAPACITY
    }

    fn evict_itself(&mut self) {
        if !self.record.evicting {
            self.record.evicting = true;
            self.reports.push((Op::EvictMe, self.record.seq, self.record.value.clone()));
        }
    }

    fn store(&mut self, seq: u64, value: &[u8], tombstone: bool, dirty: bool) {
        if self.snapshot && self.record.generation < self.generation {
            self.reports.push((Op::Original, self.record.seq, self.record.value.clone()));
        }
        let record = &mut self.record;
        (record.generation, record.seq, record.value) = (self.generation, seq, value.to_vec());
        (record.latest, record.refresh, record.tombstone, record.dirty) = (true, false, tombstone, dirty);
    }

    fn forward(&mut self, request: &Request, seq: u64, cached: bool) -> Outcome {
        let conditional = if request.condition.is_some() { flags::CONDITIONAL } else { 0 };
        let large = if request.large { flags::LARGE } else { 0 };
        let cached_flag = if cached { flags::CACHED } else { 0 };
        let value = if request.op == Op::Delete { Vec::new() } else { request.value.clone() };
        let guard = request.condition.unwrap_or(0);
        Outcome::Forward { op: request.op, seq, flags: conditional | large | cached_flag, guard, value }
    }

    fn reply(status: Status, seq: u64, cached: bool) -> Outcome {
        Outcome::Reply { op: Op::WriteReply, status, seq, cached, value: Vec::new() }
    }

    fn write(&mut self, request: &Request) -> Outcome {
        let lane = self.lanes[request.lane];
        if lane.state != lane_state::NONE && request.request < lane.request {
            return Outcome::Drop(DropReason::OldRequest);
        }
        if lane.state != lane_state::NONE && request.request == lane.request {
            return match lane.state {
                lane_state::FORWARDED => self.forward_again(request, lane),
                state => Model::reply(Status::from_u8(lane.status).unwrap(), lane.seq, state != lane_state::DONE),
            };
        }
        self.new_write(request)
    }

    fn forward_again(&mut self, request: &Request, lane: Lane) -> Outcome {
        // A retry carries what it carried, the value of a delete included, since nobody looks at it.
        match self.forward(request, lane.seq, lane.cached) {
            Outcome::Forward { op, seq, flags, guard, .. } => {
                Outcome::Forward { op, seq, flags, guard, value: request.value.clone() }
            }
            other => other,
        }
    }

    fn new_write(&mut self, request: &Request) -> Outcome {
        self.last += 1;
        let s = seq(self.last).0;
        let hit = self.found && self.record.valid;
        let mut cached = false;
        if hit && self.write_back {
            if let Some(outcome) = self.write_back(request, s) {
                return outcome;
            }
        } else if hit {
            if !Model::fits(&request.value, request.large) {
                self.evict_itself();
            }
            cached = request.condition.is_none();
            (self.record.latest, self.record.refresh) = (false, cached);
            self.record.adm = self.record.adm.max(s);
        }
        self.lanes[request.lane] =
            Lane { request: request.request, state: lane_state::FORWARDED, seq: s, status: 0, cached };
        self.forward(request, s, cached)
    }

    /// The table "Write or delete". `None`: forward.
    fn write_back(&mut self, request: &Request, s: u64) -> Option<Outcome> {
        if !Model::fits(&request.value, request.large) {
            self.evict_itself();
        }
        let absorb = match (self.record.evicting, self.record.latest, request.condition) {
            (true, _, Some(_)) => return Some(Outcome::Drop(DropReason::Evicting)),
            (true, _, None) => {
                if s > self.record.seq {
                    self.record.latest = false;
                }
                return None;
            }
            (false, true, None) => s > self.record.seq,
            (false, true, Some(expected)) if expected != self.record.seq => {
                let (request, seq) = (request.clone(), self.record.seq);
                self.lanes[request.lane] = Lane {
                    request: request.request,
                    state: lane_state::CONDITION_FAILED,
                    seq,
                    status: Status::ConditionFailed as u8,
                    cached: false,
                };
                return Some(Model::reply(Status::ConditionFailed, seq, true));
            }
            (false, true, Some(_)) if s <= self.record.seq => return Some(Outcome::Drop(DropReason::Contended)),
            (false, true, Some(_)) => true,
            (false, false, None) if s > self.record.adm => true,
            (false, false, None) => return None,
            (false, false, Some(_)) => {
                self.record.adm = self.record.adm.max(s);
                return None;
            }
        };
        if absorb {
            self.store(s, &request.value, request.op == Op::Delete, true);
        }
        let applied = Lane { request: request.request, state: lane_state::APPLIED, seq: s, status: 0, cached: false };
        self.lanes[request.lane] = applied;
        Some(Model::reply(Status::Ok, s, true))
    }

    fn read(&self) -> Outcome {
        let forward = |flags, seq, guard, value| Outcome::Forward { op: Op::Read, seq, flags, guard, value };
        let record = &self.record;
        if !self.found || !record.valid {
            return forward(0, 0, 0, Vec::new());
        }
        if record.latest {
            let status = if record.tombstone { Status::NotFound } else { Status::Ok };
            let value = if record.tombstone { Vec::new() } else { record.value.clone() };
            return Outcome::Reply { op: Op::ReadReply, status, seq: record.seq, cached: true, value };
        }
        match (record.evicting, record.dirty, record.refresh) {
            (true, true, _) => forward(flags::EMBEDDED, record.seq, 0, record.value.clone()),
            (true, false, _) | (false, _, true) => forward(0, 0, 0, Vec::new()),
            (false, _, false) => forward(flags::FENCED, 0, seq(self.last).0, Vec::new()),
        }
    }

    /// An answer of a fenced read, or (with `update`) NetCache's update.
    fn install(&mut self, s: u64, value: &[u8], large: bool, tombstone: bool) {
        if Model::fits(value, large) {
            self.store(s, value, tombstone, false);
        } else {
            self.evict_itself();
        }
    }

    fn state(&self) -> (Record, [Lane; LANES], u64) {
        (self.record.clone(), self.lanes, self.last)
    }
}

/// Both, side by side.
struct Pair {
    rig: Rig,
    model: Model,
    writes: Vec<Packet>,
    fenced: Vec<Packet>,
    next_request: [u64; LANES],
}

fn value_of(size: Size, seed: u64) -> Vec<u8> {
    match size {
        Size::Empty | Size::Large => Vec::new(),
        Size::Fits => vec![seed as u8; 1 + (seed % CAPACITY as u64) as usize],
        Size::TooLong => vec![seed as u8; CAPACITY + 1],
    }
}

impl Pair {
    fn new(write_back: bool) -> Pair {
        let features = if write_back { Features::FARREACH } else { Features::NETCACHE };
        let rig = Rig::new(&Config { features, sampling: 0.0, ..small() });
        let model = Model {
            write_back,
            found: false,
            record: Record::default(),
            lanes: [Lane::default(); LANES],
            last: 0,
            generation: 1,
            snapshot: false,
            reports: Vec::new(),
        };
        Pair { rig, model, writes: Vec::new(), fenced: Vec::new(), next_request: [1; LANES] }
    }

    fn observed(&mut self, verdict: Verdict, packet: &Packet) -> Outcome {
        if let Verdict::Drop(reason) = verdict {
            return Outcome::Drop(reason);
        }
        let parts = packet.parse().unwrap();
        assert_eq!(parts.key, KEY);
        let (header, value) = (parts.header, parts.value.to_vec());
        if verdict == Verdict::Reply {
            let cached = header.has(flags::CACHED);
            return Outcome::Reply { op: header.op, status: header.status, seq: header.seq.0, cached, value };
        }
        match header.op {
            Op::Read if header.has(flags::FENCED) => self.fenced.push(packet.clone()),
            Op::Read => {}
            _ => self.writes.push(packet.clone()),
        }
        Outcome::Forward { op: header.op, seq: header.seq.0, flags: header.flags, guard: header.guard, value }
    }

    fn check(&mut self, verdict: Verdict, packet: &Packet, expected: Outcome) {
        let observed = self.observed(verdict, packet);
        assert_eq!(observed, expected, "the pipeline (left) and the model (right)");
        self.check_state();
    }

    fn check_state(&mut self) {
        let datapath = &self.rig.datapath;
        let image = datapath.peek_record(0, SLOT).unwrap();
        let has = |bit| image.state & bit != 0;
        let record = Record {
            valid: has(bits::VALID),
            latest: has(bits::LATEST),
            evicting: has(bits::EVICTING),
            refresh: has(bits::REFRESH),
            tombstone: has(bits::TOMBSTONE),
            dirty: has(bits::DIRTY),
            seq: image.seq,
            adm: image.adm,
            incarnation: image.incarnation,
            generation: image.generation,
            value: image.value,
        };
        let lanes = std::array::from_fn(|lane| {
            let entry = datapath.peek_lane(lane as u32).unwrap();
            assert!(!entry.locked, "lane {lane} stays locked");
            let cached = entry.flags & flags::CACHED != 0;
            Lane { request: entry.request, state: entry.state, seq: entry.seq, status: entry.status, cached }
        });
        let state = (record, lanes, datapath.peek_sequence(&hash(KEY)));
        assert_eq!(state, self.model.state(), "the pipeline (left) and the model (right)");
        let mut report = Packet::new();
        let mut reports = Vec::new();
        while datapath.next_report(&mut report) {
            let parts = report.parse().unwrap();
            reports.push((parts.header.op, parts.header.seq.0, parts.value.to_vec()));
        }
        assert_eq!(reports, std::mem::take(&mut self.model.reports), "reports");
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Read => {
                let (verdict, packet) = self.rig.read(KEY);
                let expected = self.model.read();
                self.check(verdict, &packet, expected);
            }
            Step::Write { lane, age, delete, condition, size, late } => {
                self.write(lane.into(), age, delete, condition, size, late.into());
            }
            Step::Answer { which, status } => self.answer(which.into(), status),
            Step::Bounce { which } => self.bounce(which.into()),
            Step::ReadAnswer { which, seq, found, size } => self.read_answer(which.into(), seq.into(), found, size),
            Step::Update { seq, delete, size } => self.update(seq.into(), delete, size),
            Step::Insert => {
                if self.rig.datapath.lookup_insert(&hash(KEY), 0, SLOT).is_ok() {
                    assert!(!self.model.found);
                    self.model.found = true;
                }
            }
            Step::TakeOut => {
                assert_eq!(self.rig.datapath.lookup_remove(&hash(KEY), 0, SLOT), self.model.found);
                self.model.found = false;
            }
            Step::SnapshotBegin => {
                let generation = self.model.generation + 1;
                self.rig.control(Header { generation, ..Header::new(Op::SnapshotBegin) }, b"-");
                (self.model.generation, self.model.snapshot) = (generation, true);
            }
            Step::SnapshotEnd => {
                self.rig.control(Header::new(Op::SnapshotEnd), b"-");
                self.model.snapshot = false;
            }
            Step::Admit { incarnation } => self.control(Op::Admit, incarnation.into()),
            Step::SetValid { incarnation } => self.control(Op::SetValid, incarnation.into()),
            Step::EvictBegin { incarnation } => self.control(Op::EvictBegin, incarnation.into()),
            Step::Remove { incarnation } => self.control(Op::Remove, incarnation.into()),
        }
    }

    fn write(&mut self, lane: usize, age: i8, delete: bool, condition: Option<Expect>, size: Size, late: u64) {
        let request_number = (self.next_request[lane] as i64 + i64::from(age)).max(0) as u64;
        self.next_request[lane] = self.next_request[lane].max(request_number);
        let expected = |expect| match expect {
            Expect::Nothing => 0,
            Expect::TheRecordsSeq => self.model.record.seq,
            Expect::Seq(counter) => seq(counter.into()).0,
        };
        let request = Request {
            op: if delete { Op::Delete } else { Op::Write },
            lane,
            request: request_number,
            condition: condition.map(expected),
            value: if delete { Vec::new() } else { value_of(size, request_number) },
            large: size == Size::Large && !delete,
        };
        let mut flags = if request.condition.is_some() { flags::CONDITIONAL } else { 0 };
        flags |= if request.large { flags::LARGE } else { 0 };
        let guard = request.condition.unwrap_or(0);
        let header = Header { flags, guard, lane: lane as u32, request: request_number, ..header(request.op, KEY) };
        // A write on another core that took its number before the last few did.
        let newest = self.model.last;
        self.set_last(newest.saturating_sub(late));
        let (verdict, packet) = self.rig.send(header, &request.value, KEY);
        let expected = self.model.write(&request);
        self.check(verdict, &packet, expected);
        self.set_last(newest.max(self.model.last));
    }

    fn set_last(&mut self, last: u64) {
        self.model.last = last;
        self.rig.datapath.poke_sequence(&hash(KEY), last);
    }

    fn pick(packets: &[Packet], which: usize) -> Option<Packet> {
        (!packets.is_empty()).then(|| packets[which % packets.len()].clone())
    }

    fn waits(&self, header: &Header) -> bool {
        let lane = &self.model.lanes[header.lane as usize];
        (lane.state, lane.request, lane.seq) == (lane_state::FORWARDED, header.request, header.seq.0)
    }

    fn answer(&mut self, which: usize, status: u8) {
        let Some(forwarded) = Pair::pick(&self.writes, which) else { return };
        let forwarded = forwarded.parse().unwrap().header;
        let statuses =
            [Status::Ok, Status::Ok, Status::Ok, Status::ConditionFailed, Status::FragmentsMissing, Status::NoSpace];
        let status = statuses[usize::from(status)];
        let stored = seq(3);
        let guard = if status == Status::ConditionFailed { stored.0 } else { forwarded.guard };
        let mut packet = Packet::build(Header { op: Op::WriteReply, status, guard, ..forwarded }, &[], KEY);
        let verdict = self.rig.answer(&mut packet);
        let mut expected = Outcome::Drop(DropReason::NotPending);
        if self.waits(&forwarded) {
            let seq = if status == Status::ConditionFailed { stored.0 } else { forwarded.seq.0 };
            expected = Model::reply(status, seq, false);
            if !matches!(status, Status::FragmentsMissing | Status::NoSpace) {
                self.model.lanes[forwarded.lane as usize] = Lane {
                    request: forwarded.request,
                    state: lane_state::DONE,
                    seq,
                    status: status as u8,
                    cached: false,
                };
            }
        }
        self.check(verdict, &packet, expected);
    }

    fn bounce(&mut self, which: usize) {
        let Some(forwarded) = Pair::pick(&self.writes, which) else { return };
        let parts = forwarded.parse().unwrap();
        let delete = parts.header.op == Op::Delete;
        let flags = parts.header.flags | if delete { flags::DELETE } else { 0 };
        let mut packet = Packet::build(Header { op: Op::Bounce, flags, ..parts.header }, parts.value, KEY);
        let verdict = self.rig.answer(&mut packet);
        let request = Request {
            op: parts.header.op,
            lane: parts.header.lane as usize,
            request: parts.header.request,
            condition: parts.header.has(flags::CONDITIONAL).then_some(parts.header.guard),
            value: parts.value.to_vec(),
            large: parts.header.has(flags::LARGE),
        };
        let expected = match self.waits(&parts.header) {
            true => self.model.new_write(&request),
            false => Outcome::Drop(DropReason::NotPending),
        };
        self.check(verdict, &packet, expected);
    }

    fn read_answer(&mut self, which: usize, counter: u64, found: bool, size: Size) {
        let Some(fenced) = Pair::pick(&self.fenced, which) else { return };
        let fenced = fenced.parse().unwrap().header;
        let status = if found { Status::Ok } else { Status::NotFound };
        let value = if found { value_of(size, counter) } else { Vec::new() };
        let large = found && size == Size::Large;
        let s = seq(counter.min(fenced.guard & 0xff));
        let flags = fenced.flags | if large { flags::LARGE } else { 0 };
        let mut packet = Packet::build(Header { op: Op::ReadReply, status, seq: s, flags, ..fenced }, &value, KEY);
        let verdict = self.rig.answer(&mut packet);
        let record = &self.model.record;
        let waits = self.model.found && record.valid && !record.latest && !record.evicting;
        if waits && fenced.guard >= record.adm {
            self.model.install(s.0, &value, large, !found);
        }
        let expected = Outcome::Reply { op: Op::ReadReply, status, seq: s.0, cached: false, value };
        self.check(verdict, &packet, expected);
    }

    fn update(&mut self, counter: u64, delete: bool, size: Size) {
        if size == Size::Large {
            return; // Nodes send none.
        }
        // Around `adm`, where it matters.
        let s = self.model.record.adm.saturating_add(counter % 5).saturating_sub(2).max(seq(1).0);
        let value = if delete { Vec::new() } else { value_of(size, counter) };
        let record_flags = if delete { record_flags::TOMBSTONE } else { 0 };
        let header = Header { seq: Seq(s), record_flags, ..header(Op::CacheUpdate, KEY) };
        let mut packet = Packet::build(header, &value, KEY);
        let verdict = self.rig.answer(&mut packet);
        let record = &self.model.record;
        if self.model.found && record.valid && !record.evicting && record.refresh && s >= record.adm {
            self.model.install(s, &value, false, delete);
        }
        assert_eq!(packet.parse().unwrap().header.origin, NODE);
        let value = Vec::new();
        let expected = Outcome::Reply { op: Op::CacheUpdateAck, status: Status::Ok, seq: s, cached: false, value };
        self.check(verdict, &packet, expected);
    }

    fn control(&mut self, op: Op, incarnation: u64) {
        let header = Header { slot: SLOT, request: incarnation, ..header(op, KEY) };
        let mut packet = Packet::build(header, &[], KEY);
        assert_eq!(self.rig.datapath.inject(&mut packet), Verdict::Reply);
        let status = packet.parse().unwrap().header.status;
        let record = &mut self.model.record;
        let same = record.incarnation == incarnation;
        let refused = if op == Op::Admit { record.valid && !same } else { !same };
        assert_eq!(status, if refused { Status::Changed } else { Status::Ok });
        if refused {
            return self.check_state();
        }
        match op {
            Op::Admit if record.valid => {}
            Op::Admit => {
                let generation = self.model.generation;
                *record = Record { incarnation, generation, ..Record::default() };
            }
            Op::SetValid if !record.valid => (record.valid, record.adm) = (true, seq(self.model.last).0),
            Op::SetValid => {}
            Op::EvictBegin => record.evicting = true,
            _ => {
                let (valid, latest, evicting, refresh, tombstone, dirty) = Default::default();
                *record = Record { valid, latest, evicting, refresh, tombstone, dirty, ..record.clone() };
            }
        }
        if op == Op::EvictBegin {
            let parts = packet.parse().unwrap();
            assert_eq!((parts.header.seq.0, parts.value), (record.seq, &record.value[..]));
        }
        self.check_state();
    }
}

/// What all cases together must have seen, so that an idle run can't pass.
fn assert_covered(totals: &[(String, u64)]) {
    let names = [
        "read_hits",
        "read_misses",
        "write_hits",
        "write_misses",
        "fenced_reads",
        "embedded_reads",
        "absorbed_writes",
        "forwarded_writes",
        "repeated_answers",
        "bounces_executed",
        "promotions",
        "cache_updates_applied",
        "condition_failures",
        "self_evictions",
        "reports",
        "drop_old_request",
        "drop_not_pending",
        "drop_evicting",
    ];
    for name in names {
        let (_, total) = totals.iter().find(|(known, _)| known == name).unwrap();
        assert!(*total >= 100, "{name}: only {total}");
    }
}

#[test]
fn the_pipeline_does_what_the_tables_say() {
    let config = ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let totals: RefCell<Vec<(String, u64)>> = RefCell::default();
    let cases = (any::<bool>(), prop::collection::vec(step(), 1..120));
    let result = TestRunner::new(config).run(&cases, |(write_back, steps)| {
        let mut pair = Pair::new(write_back);
        // The slot knows the key from the beginning; whether it is admitted is up to the steps.
        pair.run(Step::Admit { incarnation: 0 });
        for step in steps {
            pair.run(step);
        }
        let mut totals = totals.borrow_mut();
        for (i, (name, count)) in pair.rig.datapath.statistics().iter().enumerate() {
            if totals.len() == i {
                totals.push((name, 0));
            }
            totals[i].1 += count;
        }
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
    assert_covered(&totals.borrow());
}
