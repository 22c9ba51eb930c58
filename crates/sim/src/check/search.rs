//! Linearizability by search (Wing and Gong; Lowe's cache of visited states), which knows nothing of sequence numbers beyond what
//! conditions name. Exponential at worst, so for small histories: it checks the witness, and what real clients recorded
//! ([`super::strings`]).

use crate::history::{History, Kind, NO_OP, Op, OpIndex, Told};
use std::collections::{BTreeMap, HashSet};
use std::hash::Hash;

/// What a search came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// There is an order.
    Order,
    /// There is none.
    NoOrder,
    /// It would take too long to tell.
    GaveUp,
}

/// When an operation was under way.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// When it was asked.
    pub invoked: u64,
    /// When it was answered; `u64::MAX` without an answer.
    pub responded: u64,
    /// Whether it happened; otherwise it may have.
    pub is_required: bool,
}

/// What operations do, one after the other.
pub trait Object {
    /// What they leave behind.
    type State: Clone + Eq + Hash;

    /// The state after the operation, if its answer fits the state before.
    fn apply(&self, state: &Self::State, at: usize) -> Option<Self::State>;
}

/// Looks for an order of the operations, which are sorted by their beginnings, in at most `steps` steps.
pub fn find_order<O: Object>(object: &O, begin: &O::State, intervals: &[Interval], steps: u64) -> Found {
    let done = vec![0; intervals.len().div_ceil(64)];
    let mut search = Search { object, intervals, done, seen: HashSet::new(), steps };
    match search.extend(begin) {
        true => Found::Order,
        false if search.steps == 0 => Found::GaveUp,
        false => Found::NoOrder,
    }
}

struct Search<'a, O: Object> {
    object: &'a O,
    intervals: &'a [Interval],
    done: Vec<u64>,
    seen: HashSet<(Vec<u64>, O::State)>,
    steps: u64,
}

impl<O: Object> Search<'_, O> {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] & (1 << (at % 64)) != 0
    }

    /// Whether the rest of the operations can follow upon `state`.
    fn extend(&mut self, state: &O::State) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        let is_open = |search: &Self, at: usize| !search.is_done(at) && search.intervals[at].is_required;
        // Whoever was answered first must come before everything that was asked later.
        let open = (0..self.intervals.len()).filter(|&at| is_open(self, at));
        let Some(first_answer) = open.map(|at| self.intervals[at].responded).min() else { return true };
        if !self.seen.insert((self.done.clone(), state.clone())) {
            return false;
        }
        for at in 0..self.intervals.len() {
            if self.intervals[at].invoked > first_answer {
                break;
            }
            if self.is_done(at) {
                continue;
            }
            if let Some(next) = self.object.apply(state, at) {
                self.done[at / 64] |= 1 << (at % 64);
                if self.extend(&next) {
                    return true;
                }
                self.done[at / 64] &= !(1 << (at % 64));
            }
        }
        false
    }
}

/// A simulated key: its state is the last change.
struct Record<'a> {
    ops: Vec<(OpIndex, &'a Op)>,
    all: &'a [Op],
    /// Which operation made a version.
    writers: BTreeMap<u64, OpIndex>,
}

/// Looks for an order of a key's operations, in at most `steps` steps.
pub fn search(history: &History, key: u32, steps: u64) -> Found {
    let counts = |op: &Op| match op.told {
        Told::Pending | Told::Unknown => op.changes(),
        Told::Nothing => false,
        _ => true,
    };
    let ops: Vec<_> = history.of_key(key).filter(|(_, op)| counts(op)).collect();
    let made = |op: &Op| op.changes() && op.seq != 0 && op.told != Told::ConditionFailed;
    let writers = ops.iter().filter(|(_, op)| made(op)).map(|(index, op)| (op.seq, *index)).collect();
    let interval = |(_, op): &(OpIndex, &Op)| Interval {
        invoked: op.invoked,
        responded: op.responded,
        is_required: !matches!(op.told, Told::Pending | Told::Unknown),
    };
    let intervals: Vec<_> = ops.iter().map(interval).collect();
    find_order(&Record { ops, all: &history.ops, writers }, &NO_OP, &intervals, steps)
}

impl Object for Record<'_> {
    type State = OpIndex;

    fn apply(&self, &state: &OpIndex, at: usize) -> Option<OpIndex> {
        let (index, op) = self.ops[at];
        match op.told {
            Told::Value => (state == op.saw).then_some(state),
            Told::Absent => self.is_absent(state).then_some(state),
            Told::ConditionFailed => self.is_refused(state, op).then_some(state),
            _ if !op.is_conditional() || self.is_version(state, op.guard) => Some(index),
            _ => None,
        }
    }
}

impl Record<'_> {
    /// Whether a conditional write can have found this: the version that it was told, if that is known, and not the one it expects.
    fn is_refused(&self, state: OpIndex, op: &Op) -> bool {
        if op.seq == 0 {
            return self.is_absent(state); // even if a tombstone is expected: it may have been forgotten
        }
        match (self.writers.get(&op.seq), self.writers.get(&op.guard)) {
            (Some(found), _) => state == *found,
            (None, Some(expected)) => state != *expected,
            (None, None) => true,
        }
    }

    fn is_absent(&self, state: OpIndex) -> bool {
        self.all.get(state as usize).is_none_or(|op| op.kind == Kind::Delete || op.expiry_ms != 0)
    }

    fn is_version(&self, state: OpIndex, seq: u64) -> bool {
        match self.writers.get(&seq) {
            Some(&writer) => state == writer,
            // An unknown version: that of a change whose number nobody learned, or nothing at all.
            None => self.is_absent(state) || self.all[state as usize].seq == 0,
        }
    }
}
