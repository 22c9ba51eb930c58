//! Linearizability by search (Wing and Gong; Lowe's cache of visited states), which knows nothing of sequence numbers beyond what
//! conditions name. Exponential at worst, so for small histories: it checks the witness.

use crate::history::{History, Kind, NO_OP, Op, OpIndex, Told};
use std::collections::{BTreeMap, HashSet};

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

struct Search<'a> {
    ops: Vec<(OpIndex, &'a Op)>,
    all: &'a [Op],
    /// Which operation made a version.
    writers: BTreeMap<u64, OpIndex>,
    done: Vec<u64>,
    seen: HashSet<(Vec<u64>, OpIndex)>,
    steps: u64,
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
    let words = ops.len().div_ceil(64);
    let mut search = Search { ops, all: &history.ops, writers, done: vec![0; words], seen: HashSet::new(), steps };
    match search.extend(NO_OP) {
        true => Found::Order,
        false if search.steps == 0 => Found::GaveUp,
        false => Found::NoOrder,
    }
}

impl Search<'_> {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] & (1 << (at % 64)) != 0
    }

    fn is_required(op: &Op) -> bool {
        !matches!(op.told, Told::Pending | Told::Unknown)
    }

    /// Whether the rest of the operations can follow upon `state`, the last change.
    fn extend(&mut self, state: OpIndex) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        let open = |search: &Search<'_>, at: usize| !search.is_done(at) && Search::is_required(search.ops[at].1);
        // Whoever was answered first must come before everything that was asked later.
        let first_answer = (0..self.ops.len()).filter(|&at| open(self, at)).map(|at| self.ops[at].1.responded).min();
        let Some(first_answer) = first_answer else { return true };
        if !self.seen.insert((self.done.clone(), state)) {
            return false;
        }
        for at in 0..self.ops.len() {
            let (index, op) = self.ops[at];
            if op.invoked > first_answer {
                break;
            }
            if self.is_done(at) {
                continue;
            }
            if let Some(next) = self.apply(state, index, op) {
                self.done[at / 64] |= 1 << (at % 64);
                if self.extend(next) {
                    return true;
                }
                self.done[at / 64] &= !(1 << (at % 64));
            }
        }
        false
    }

    /// The state after an operation, if its answer fits the state before.
    fn apply(&self, state: OpIndex, index: OpIndex, op: &Op) -> Option<OpIndex> {
        match op.told {
            Told::Value => (state == op.saw).then_some(state),
            Told::Absent => self.is_absent(state).then_some(state),
            Told::ConditionFailed => self.is_refused(state, op).then_some(state),
            _ if !op.is_conditional() || self.is_version(state, op.guard) => Some(index),
            _ => None,
        }
    }

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
