//! The pipeline against a model of one record and its lanes, written from the tables of the
//! protocol, section 4: random sequences of requests, retries, late answers, bounces, updates and
//! control packets must leave both in the same state, with the same verdicts.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

#[path = "../common/mod.rs"]
mod common;
mod reference;

use common::*;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use reference::*;
use std::cell::RefCell;
use switchback_datapath::state::{bits, lane as lane_state};
use switchback_datapath::*;
use switchback_wire::Scheme;
use switchback_wire::*;

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
    fn new(scheme: Scheme) -> Pair {
        let features = Features::of(scheme);
        let rig = Rig::new(&Config { features, sampling: 0.0, ..small() });
        let model = Model {
            scheme,
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
            return Outcome::Reply {
                op: header.op,
                status: header.status,
                seq: header.seq.0,
                cached,
                value,
            };
        }
        match header.op {
            Op::Read if header.has(flags::FENCED) => self.fenced.push(packet.clone()),
            Op::Read => {}
            _ => self.writes.push(packet.clone()),
        }
        Outcome::Forward {
            op: header.op,
            seq: header.seq.0,
            flags: header.flags,
            guard: header.guard,
            value,
        }
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
            dependent: has(bits::DEPENDENT),
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
            Lane {
                request: entry.request,
                state: entry.state,
                seq: entry.seq,
                status: entry.status,
                cached,
            }
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
            Step::ReadAnswer { which, seq, found, size } => {
                self.read_answer(which.into(), seq.into(), found, size)
            }
            Step::Update { seq, delete, size } => self.update(seq.into(), delete, size),
            Step::Invalidate { seq } => self.invalidate(seq.into()),
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

    fn write(
        &mut self,
        lane: usize,
        age: i8,
        delete: bool,
        condition: Option<Expect>,
        size: Size,
        late: u64,
    ) {
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
        let header = Header {
            flags,
            guard,
            lane: lane as u32,
            request: request_number,
            ..header(request.op, KEY)
        };
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
        (lane.state, lane.request, lane.seq)
            == (lane_state::FORWARDED, header.request, header.seq.0)
    }

    fn answer(&mut self, which: usize, status: u8) {
        let Some(forwarded) = Pair::pick(&self.writes, which) else { return };
        let forwarded = forwarded.parse().unwrap().header;
        let statuses = [
            Status::Ok,
            Status::Ok,
            Status::Ok,
            Status::ConditionFailed,
            Status::FragmentsMissing,
            Status::NoSpace,
        ];
        let status = statuses[usize::from(status)];
        let stored = seq(3);
        let guard = if status == Status::ConditionFailed { stored.0 } else { forwarded.guard };
        let mut packet =
            Packet::build(Header { op: Op::WriteReply, status, guard, ..forwarded }, &[], KEY);
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
        let mut packet =
            Packet::build(Header { op: Op::Bounce, flags, ..parts.header }, parts.value, KEY);
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
        let mut packet = Packet::build(
            Header { op: Op::ReadReply, status, seq: s, flags, ..fenced },
            &value,
            KEY,
        );
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
        // Of the incarnation, mostly.
        let request = self.model.record.incarnation + u64::from(counter.is_multiple_of(16));
        let header = Header { seq: Seq(s), request, record_flags, ..header(Op::CacheUpdate, KEY) };
        let mut packet = Packet::build(header, &value, KEY);
        let verdict = self.rig.answer(&mut packet);
        if self.model.wants_update(s, request) {
            self.model.install(s, &value, false, delete);
        }
        assert_eq!(packet.parse().unwrap().header.origin, NODE);
        let value = Vec::new();
        let expected = Outcome::Reply {
            op: Op::CacheUpdateAck,
            status: Status::Ok,
            seq: s,
            cached: false,
            value,
        };
        self.check(verdict, &packet, expected);
    }

    fn invalidate(&mut self, counter: u64) {
        if !self.model.has_copies() {
            return; // Other schemes drop it.
        }
        let s = self.model.record.adm.saturating_add(counter % 5).saturating_sub(2).max(seq(1).0);
        let request = self.model.record.incarnation + u64::from(counter.is_multiple_of(16));
        let header = Header { seq: Seq(s), request, ..header(Op::Invalidate, KEY) };
        let mut packet = Packet::build(header, &[], KEY);
        let verdict = self.rig.answer(&mut packet);
        self.model.invalidate(s, request);
        let (op, status, value) = (Op::InvalidateAck, Status::Ok, Vec::new());
        let expected = Outcome::Reply { op, status, seq: s, cached: false, value };
        self.check(verdict, &packet, expected);
    }

    fn control(&mut self, op: Op, incarnation: u64) {
        let header = Header { location: SLOT, request: incarnation, ..header(op, KEY) };
        let mut packet = Packet::build(header, &[], KEY);
        assert_eq!(self.rig.datapath.inject(&mut packet), Verdict::Reply);
        let status = packet.parse().unwrap().header.status;
        // A copy may be filled with any version.
        let from = if self.model.has_copies() { 0 } else { seq(self.model.last).0 };
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
            Op::SetValid if !record.valid => (record.valid, record.adm) = (true, from),
            Op::SetValid => {}
            Op::EvictBegin => record.evicting = true,
            _ => {
                let (valid, latest, evicting, refresh, tombstone, dirty, dependent) =
                    Default::default();
                *record = Record {
                    valid,
                    latest,
                    evicting,
                    refresh,
                    tombstone,
                    dirty,
                    dependent,
                    ..record.clone()
                };
            }
        }
        if op == Op::EvictBegin {
            let parts = packet.parse().unwrap();
            assert_eq!((parts.header.seq.0, parts.value), (record.seq, &record.value[..]));
        }
        self.check_state();
    }
}

/// What all cases together must have seen, so that an idle run can't pass. The rarest is seen some
/// 115 times, by chance.
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
        assert!(*total >= 30, "{name}: only {total}");
    }
}

#[test]
fn the_pipeline_does_what_the_tables_say() {
    let config =
        ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() };
    let totals: RefCell<Vec<(String, u64)>> = RefCell::default();
    let scheme = prop::sample::select(
        Scheme::ALL.into_iter().filter(|scheme| scheme.caches()).collect::<Vec<_>>(),
    );
    let cases = (scheme, prop::collection::vec(step(), 1..120));
    let result = TestRunner::new(config).run(&cases, |(scheme, steps)| {
        let mut pair = Pair::new(scheme);
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
