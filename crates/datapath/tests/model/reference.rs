//! The model: one record, its lanes, and the tables of the protocol, section 4, as plain Rust.

use super::common::*;
use proptest::prelude::*;
use switchback_datapath::state::lane as lane_state;
use switchback_datapath::*;
use switchback_wire::*;

pub(crate) const KEY: &[u8] = b"the key";
pub(crate) const LANES: usize = 2;
pub(crate) const CAPACITY: usize = 32;
pub(crate) const SLOT: u32 = 1;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Size {
    Empty,
    Fits,
    TooLong,
    Large,
}

/// What a conditional write expects.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    Nothing,
    TheRecordsSeq,
    Seq(u8),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Read,
    /// `age`: 0 repeats the lane's request, 1 is a new one, -1 an old one. `late`: how many
    /// numbers its bucket's counter is set back before it takes its own.
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
    Invalidate {
        seq: u8,
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

pub(crate) fn size() -> impl Strategy<Value = Size> {
    prop_oneof![
        6 => Just(Size::Fits),
        1 => Just(Size::Empty),
        1 => Just(Size::TooLong),
        1 => Just(Size::Large),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let expect = prop_oneof![
        Just(Expect::Nothing),
        Just(Expect::TheRecordsSeq),
        any::<u8>().prop_map(Expect::Seq)
    ];
    let condition = prop_oneof![2 => Just(None), 1 => expect.prop_map(Some)];
    let late = prop_oneof![4 => Just(0u8), 1 => 1..4u8];
    let age = prop_oneof![6 => Just(1i8), 2 => Just(0), 1 => Just(-1)];
    let write = (0..LANES as u8, age, any::<bool>(), condition, size(), late).prop_map(
        |(lane, age, delete, condition, size, late)| Step::Write {
            lane,
            age,
            delete,
            condition,
            size,
            late,
        },
    );
    let answer = (any::<u8>(), 0..6u8).prop_map(|(which, status)| Step::Answer { which, status });
    let read_answer = (any::<u8>(), any::<u8>(), any::<bool>(), size())
        .prop_map(|(which, seq, found, size)| Step::ReadAnswer { which, seq, found, size });
    let update = (any::<u8>(), any::<bool>(), size())
        .prop_map(|(seq, delete, size)| Step::Update { seq, delete, size });
    let incarnation = 0..3u8;
    prop_oneof![
        4 => Just(Step::Read),
        8 => write,
        3 => answer,
        2 => any::<u8>().prop_map(|which| Step::Bounce { which }),
        4 => read_answer,
        2 => update,
        1 => any::<u8>().prop_map(|seq| Step::Invalidate { seq }),
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
pub(crate) struct Lane {
    pub(crate) request: u64,
    pub(crate) state: u8,
    pub(crate) seq: u64,
    pub(crate) status: u8,
    pub(crate) cached: bool,
}

#[derive(Clone, Default, PartialEq, Debug)]
pub(crate) struct Record {
    pub(crate) valid: bool,
    pub(crate) latest: bool,
    pub(crate) evicting: bool,
    pub(crate) refresh: bool,
    pub(crate) tombstone: bool,
    pub(crate) dirty: bool,
    pub(crate) dependent: bool,
    pub(crate) seq: u64,
    pub(crate) adm: u64,
    pub(crate) incarnation: u64,
    pub(crate) generation: u32,
    pub(crate) value: Vec<u8>,
}

/// What the model says of a packet: the verdict, and of an answer or forwarded packet what matters.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    Reply { op: Op, status: Status, seq: u64, cached: bool, value: Vec<u8> },
    Forward { op: Op, seq: u64, flags: u16, guard: u64, value: Vec<u8> },
    Drop(DropReason),
}

#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) op: Op,
    pub(crate) lane: usize,
    pub(crate) request: u64,
    pub(crate) condition: Option<u64>,
    pub(crate) value: Vec<u8>,
    pub(crate) large: bool,
}

pub(crate) struct Model {
    pub(crate) scheme: Scheme,
    pub(crate) found: bool,
    pub(crate) record: Record,
    pub(crate) lanes: [Lane; LANES],
    pub(crate) last: u64,
    pub(crate) generation: u32,
    pub(crate) snapshot: bool,
    pub(crate) reports: Vec<(Op, u64, Vec<u8>)>,
}

impl Model {
    pub(crate) fn fits(request_value: &[u8], large: bool) -> bool {
        !large && request_value.len() <= CAPACITY
    }

    pub(crate) fn evict_itself(&mut self) {
        if !self.record.evicting {
            self.record.evicting = true;
            self.reports.push((Op::EvictMe, self.record.seq, self.record.value.clone()));
        }
    }

    pub(crate) fn store(
        &mut self,
        seq: u64,
        value: &[u8],
        tombstone: bool,
        dirty: bool,
        dependent: bool,
    ) {
        if self.snapshot && self.record.generation < self.generation {
            self.reports.push((Op::Original, self.record.seq, self.record.value.clone()));
        }
        let record = &mut self.record;
        (record.generation, record.seq, record.value) = (self.generation, seq, value.to_vec());
        (record.latest, record.refresh, record.tombstone) = (true, false, tombstone);
        (record.dirty, record.dependent) = (dirty, dependent);
    }

    pub(crate) fn forward(&mut self, request: &Request, seq: u64, cached: bool) -> Outcome {
        let conditional = if request.condition.is_some() { flags::CONDITIONAL } else { 0 };
        let large = if request.large { flags::LARGE } else { 0 };
        let cached_flag = if cached { flags::CACHED } else { 0 };
        let value = if request.op == Op::Delete { Vec::new() } else { request.value.clone() };
        let guard = request.condition.unwrap_or(0);
        Outcome::Forward {
            op: request.op,
            seq,
            flags: conditional | large | cached_flag,
            guard,
            value,
        }
    }

    pub(crate) fn reply(status: Status, seq: u64, cached: bool) -> Outcome {
        Outcome::Reply { op: Op::WriteReply, status, seq, cached, value: Vec::new() }
    }

    pub(crate) fn write(&mut self, request: &Request) -> Outcome {
        let lane = self.lanes[request.lane];
        if lane.state != lane_state::NONE && request.request < lane.request {
            return Outcome::Drop(DropReason::OldRequest);
        }
        if lane.state != lane_state::NONE && request.request == lane.request {
            return match lane.state {
                lane_state::FORWARDED => self.forward_again(request, lane),
                state => {
                    let status = Status::ALL.iter().find(|status| **status as u8 == lane.status);
                    Model::reply(*status.unwrap(), lane.seq, state != lane_state::DONE)
                }
            };
        }
        self.new_write(request)
    }

    pub(crate) fn forward_again(&mut self, request: &Request, lane: Lane) -> Outcome {
        // A retry carries what it carried, the value of a delete included, which is not looked at.
        match self.forward(request, lane.seq, lane.cached) {
            Outcome::Forward { op, seq, flags, guard, .. } => {
                Outcome::Forward { op, seq, flags, guard, value: request.value.clone() }
            }
            other => other,
        }
    }

    pub(crate) fn new_write(&mut self, request: &Request) -> Outcome {
        self.last += 1;
        let s = seq(self.last).0;
        let hit = self.found && self.record.valid;
        let mut cached = false;
        if hit && self.scheme.absorbs_writes() {
            if let Some(outcome) = self.write_back(request, s) {
                return outcome;
            }
        } else if hit && !self.scheme.has_copies() {
            if !Model::fits(&request.value, request.large) {
                self.evict_itself();
            }
            cached = self.scheme.refreshes() && request.condition.is_none();
            (self.record.latest, self.record.refresh) = (false, cached);
            self.record.adm = self.record.adm.max(s);
        }
        self.lanes[request.lane] = Lane {
            request: request.request,
            state: lane_state::FORWARDED,
            seq: s,
            status: 0,
            cached,
        };
        self.forward(request, s, cached)
    }

    /// The table "Write or delete". `None`: forward.
    pub(crate) fn write_back(&mut self, request: &Request, s: u64) -> Option<Outcome> {
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
            (false, true, None) if s <= self.record.seq && self.record.dependent => {
                return Some(Outcome::Drop(DropReason::Contended));
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
            (false, true, Some(_)) if s <= self.record.seq => {
                return Some(Outcome::Drop(DropReason::Contended));
            }
            (false, true, Some(_)) => true,
            (false, false, None) if s > self.record.adm => true,
            (false, false, None) => return None,
            (false, false, Some(_)) => {
                self.record.adm = self.record.adm.max(s);
                return None;
            }
        };
        if absorb {
            self.store(
                s,
                &request.value,
                request.op == Op::Delete,
                true,
                request.condition.is_some(),
            );
        }
        let applied = Lane {
            request: request.request,
            state: lane_state::APPLIED,
            seq: s,
            status: 0,
            cached: false,
        };
        self.lanes[request.lane] = applied;
        Some(Model::reply(Status::Ok, s, true))
    }

    pub(crate) fn read(&self) -> Outcome {
        let forward =
            |flags, seq, guard, value| Outcome::Forward { op: Op::Read, seq, flags, guard, value };
        let record = &self.record;
        if !self.found || !record.valid {
            return forward(0, 0, 0, Vec::new());
        }
        if record.latest {
            let status = if record.tombstone { Status::NotFound } else { Status::Ok };
            let value = if record.tombstone { Vec::new() } else { record.value.clone() };
            return Outcome::Reply {
                op: Op::ReadReply,
                status,
                seq: record.seq,
                cached: true,
                value,
            };
        }
        let is_plain = record.refresh || self.scheme.has_copies();
        match (record.evicting, record.dirty, is_plain) {
            (true, true, _) => forward(flags::EMBEDDED, record.seq, 0, record.value.clone()),
            (true, false, _) | (false, _, true) => forward(0, 0, 0, Vec::new()),
            (false, _, false) => forward(flags::FENCED, 0, seq(self.last).0, Vec::new()),
        }
    }

    pub(crate) fn has_copies(&self) -> bool {
        self.scheme.has_copies()
    }

    /// Whether the record takes what its node sends: a copy if it isn't newer itself.
    pub(crate) fn wants_update(&self, s: u64, incarnation: u64) -> bool {
        let record = &self.record;
        let is_here = self.found && record.valid && !record.evicting && s >= record.adm;
        is_here
            && match self.scheme.has_copies() {
                true => incarnation == record.incarnation && s >= record.seq,
                false => record.refresh,
            }
    }

    /// A node invalidates a copy.
    pub(crate) fn invalidate(&mut self, s: u64, incarnation: u64) {
        let record = &mut self.record;
        if self.found && record.valid && incarnation == record.incarnation {
            record.adm = record.adm.max(s);
            record.latest &= record.seq >= s;
        }
    }

    /// An answer of a fenced read, or (with `update`) NetCache's update.
    pub(crate) fn install(&mut self, s: u64, value: &[u8], large: bool, tombstone: bool) {
        if Model::fits(value, large) {
            self.store(s, value, tombstone, false, true);
        } else {
            self.evict_itself();
        }
    }

    pub(crate) fn state(&self) -> (Record, [Lane; LANES], u64) {
        (self.record.clone(), self.lanes, self.last)
    }
}
