//! Linearizability by search (Wing and Gong; Lowe's cache of visited states), which knows nothing
//! of sequence numbers beyond what conditions name. Exponential in the number of operations that
//! are under way at a time, so it is given a number of steps. It checks the witness, and what real
//! clients recorded ([`super::strings`]).

use crate::history::{Answered, History, Kind, NO_OP, Op, OpIndex};
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

    /// Whether it leaves every state as it is.
    fn is_read(&self, at: usize) -> bool;

    /// Which of the operations that may come next is tried first: the lowest. It decides how long a
    /// search takes, not what it finds.
    fn hint(&self, at: usize) -> u64;
}

/// Looks for an order of the operations, which are sorted by their beginnings, in at most `steps`
/// steps.
pub fn find_order<O: Object>(
    object: &O,
    begin: &O::State,
    intervals: &[Interval],
    steps: u64,
) -> Found {
    let done = vec![0; intervals.len().div_ceil(64)];
    let mut search = Search { object, intervals, done, seen: HashSet::new(), steps };
    match search.extend(begin, 0) {
        true => Found::Order,
        false if search.steps == 0 => Found::GaveUp,
        false => Found::NoOrder,
    }
}

/// A state of the search: everything before this operation is done, and these from its word on;
/// what they left behind.
type Visited<S> = (usize, Vec<u64>, S);

struct Search<'a, O: Object> {
    object: &'a O,
    intervals: &'a [Interval],
    done: Vec<u64>,
    seen: HashSet<Visited<O::State>>,
    steps: u64,
}

impl<O: Object> Search<'_, O> {
    fn is_done(&self, at: usize) -> bool {
        self.done[at / 64] & (1 << (at % 64)) != 0
    }

    fn set_done(&mut self, at: usize, done: bool) {
        let bit = 1 << (at % 64);
        if done { self.done[at / 64] |= bit } else { self.done[at / 64] &= !bit }
    }

    /// When the first of the required operations that are not done was answered: it must come
    /// before everything that was asked later.
    fn first_answer(&self, from: usize) -> Option<u64> {
        let mut first = None;
        for at in from..self.intervals.len() {
            let interval = self.intervals[at];
            if first.is_some_and(|first| interval.invoked > first) {
                break;
            }
            if interval.is_required && !self.is_done(at) {
                first = Some(
                    first.map_or(interval.responded, |first: u64| first.min(interval.responded)),
                );
            }
        }
        first
    }

    /// Whether the rest of the operations, all of them from `from` on, can follow upon `state`.
    fn extend(&mut self, state: &O::State, from: usize) -> bool {
        let mut reads = Vec::new();
        let goes_on = self.extend_beyond_reads(state, from, &mut reads);
        if !goes_on {
            for at in reads {
                self.set_done(at, false);
            }
        }
        goes_on
    }

    /// A read that fits the state and may come next can just as well come next in every order:
    /// those are done first.
    fn extend_beyond_reads(
        &mut self,
        state: &O::State,
        mut from: usize,
        reads: &mut Vec<usize>,
    ) -> bool {
        let first_answer = loop {
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            while from < self.intervals.len() && self.is_done(from) {
                from += 1;
            }
            let Some(first_answer) = self.first_answer(from) else { return true };
            let known = reads.len();
            for at in self.next(from, first_answer) {
                if self.object.is_read(at) && self.object.apply(state, at).is_some() {
                    self.set_done(at, true);
                    reads.push(at);
                }
            }
            if reads.len() == known {
                break first_answer;
            }
        };
        let length = self.done.iter().rposition(|word| *word != 0).map_or(0, |last| last + 1);
        let beyond = self.done.get(from / 64..length).unwrap_or_default().to_vec();
        if !self.seen.insert((from, beyond, state.clone())) {
            return false;
        }
        let next = self.next(from, first_answer);
        let mut changes: Vec<usize> =
            next.into_iter().filter(|&at| !self.object.is_read(at)).collect();
        changes.sort_by_key(|&at| self.object.hint(at));
        changes.into_iter().any(|at| self.try_next(state, from, at))
    }

    fn try_next(&mut self, state: &O::State, from: usize, at: usize) -> bool {
        let Some(next) = self.object.apply(state, at) else { return false };
        self.set_done(at, true);
        let goes_on = self.extend(&next, from);
        if !goes_on {
            self.set_done(at, false);
        }
        goes_on
    }

    /// The operations that may come next.
    fn next(&self, from: usize, first_answer: u64) -> Vec<usize> {
        let asked = (from..self.intervals.len())
            .take_while(|&at| self.intervals[at].invoked <= first_answer);
        asked.filter(|&at| !self.is_done(at)).collect()
    }
}

/// A simulated key: its state is the last change.
struct KeyHistory<'a> {
    ops: Vec<(OpIndex, &'a Op)>,
    all: &'a [Op],
    /// Which operation made a version.
    writers: BTreeMap<u64, OpIndex>,
}

/// What a search of a key's history came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Searched {
    /// How many operations it has.
    pub operations: usize,
    /// Whether there is an order.
    pub found: Found,
}

/// Looks for an order of the first operations on a key, of `operations` at most, in at most `steps`
/// steps.
///
/// The history ends before the first answer that may rest on the loss of what a client took along,
/// and before the first operation that expires: the search knows no clocks.
pub fn search(history: &History, key: u32, operations: usize, steps: u64) -> Searched {
    let of_key: Vec<_> = history.of_key(key).collect();
    let until = end_of_searchable(&of_key, operations);
    let counts = |op: &Op| match op.answered {
        _ if op.invoked >= until => false,
        Answered::Nothing => false,
        Answered::Pending | Answered::Unknown => op.changes(),
        Answered::Value | Answered::Absent | Answered::ConditionFailed => op.responded < until,
        Answered::Written => true,
    };
    let ops: Vec<_> = of_key.into_iter().filter(|(_, op)| counts(op)).collect();
    let made = |op: &Op| op.changes() && op.seq != 0 && op.answered != Answered::ConditionFailed;
    let writers =
        ops.iter().filter(|(_, op)| made(op)).map(|(index, op)| (op.seq, *index)).collect();
    let interval = |(_, op): &(OpIndex, &Op)| Interval {
        invoked: op.invoked,
        responded: op.responded,
        is_required: op.responded < until
            && !matches!(op.answered, Answered::Pending | Answered::Unknown),
    };
    let intervals: Vec<_> = ops.iter().map(interval).collect();
    let operations = ops.len();
    let found =
        find_order(&KeyHistory { ops, all: &history.ops, writers }, &NO_OP, &intervals, steps);
    Searched { operations, found }
}

/// The moment at which the part of a history ends that can be searched; operations that are under
/// way then may have happened.
fn end_of_searchable(of_key: &[(OpIndex, &Op)], operations: usize) -> u64 {
    let too_many = of_key.get(operations).map(|(_, op)| op.invoked);
    let expiring = of_key.iter().find(|(_, op)| op.expiry_ms != 0).map(|(_, op)| op.invoked);
    // What a client took along was in the cache of its epoch: answers of that epoch know nothing of
    // its loss.
    let lost_in = of_key.iter().filter(|(_, op)| op.weak).map(|(_, op)| op.epoch).min();
    let after = |(_, op): &&(OpIndex, &Op)| lost_in.is_some_and(|epoch| op.epoch > epoch);
    let lost = of_key.iter().filter(after).map(|(_, op)| op.responded).min();
    [too_many, expiring, lost].into_iter().flatten().min().unwrap_or(u64::MAX)
}

impl Object for KeyHistory<'_> {
    type State = OpIndex;

    fn apply(&self, &state: &OpIndex, at: usize) -> Option<OpIndex> {
        let (index, op) = self.ops[at];
        match op.answered {
            Answered::Value => (state == op.saw).then_some(state),
            Answered::Absent => self.is_absent(state).then_some(state),
            Answered::ConditionFailed => self.is_refused(state, op).then_some(state),
            _ if !op.is_conditional() || self.is_version(state, op.guard) => Some(index),
            _ => None,
        }
    }

    fn is_read(&self, at: usize) -> bool {
        matches!(
            self.ops[at].1.answered,
            Answered::Value | Answered::Absent | Answered::ConditionFailed
        )
    }

    /// The witness's order, if it is one; what may not have happened at all comes last.
    fn hint(&self, at: usize) -> u64 {
        let seq = self.ops[at].1.seq;
        if seq == 0 { u64::MAX } else { seq }
    }
}

impl KeyHistory<'_> {
    /// Whether a conditional write can have found this: the version that it was told, if that is
    /// known, and not the one it expects.
    fn is_refused(&self, state: OpIndex, op: &Op) -> bool {
        if op.seq == 0 {
            // Even if a tombstone is expected: it may have been forgotten.
            return self.is_absent(state);
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
            // An unknown version: that of a change whose number no answer told, or nothing at all.
            None => self.is_absent(state) || self.all[state as usize].seq == 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations one after the other, or side by side, by name.
    struct Script(History);

    impl Script {
        fn new() -> Script {
            Script(History::default())
        }

        fn ask(&mut self, kind: Kind) -> OpIndex {
            self.0.begin(Op::ask(0, 1, 0, kind), 0)
        }

        fn answer(&mut self, index: OpIndex, answered: Answered, saw: OpIndex) {
            let moment = self.0.tick();
            let op = &mut self.0.ops[index as usize];
            (op.answered, op.saw, op.responded) = (answered, saw, moment);
        }

        fn write(&mut self) -> OpIndex {
            let index = self.ask(Kind::Write);
            self.answer(index, Answered::Written, NO_OP);
            index
        }

        fn read(&mut self, saw: OpIndex) {
            let index = self.ask(Kind::Read);
            self.answer(index, Answered::Value, saw);
        }

        fn found(&self) -> Found {
            search(&self.0, 0, 1000, 20_000).found
        }
    }

    #[test]
    fn a_long_history_is_searched_in_about_a_step_an_operation() {
        let mut script = Script::new();
        for _ in 0..400 {
            let write = script.write();
            script.read(write);
        }
        assert_eq!(
            search(&script.0, 0, 1000, 2_000),
            Searched { operations: 800, found: Found::Order }
        );
        script.read(3);
        assert_eq!(script.found(), Found::NoOrder);
    }

    #[test]
    fn an_unknown_write_may_come_late_but_only_once() {
        let mut script = Script::new();
        let unknown = script.ask(Kind::Write);
        for _ in 0..100 {
            let write = script.write();
            script.read(write);
        }
        script.read(unknown);
        assert_eq!(script.found(), Found::Order);
        let last = script.write();
        script.read(last);
        script.read(unknown);
        assert_eq!(script.found(), Found::NoOrder);
    }

    #[test]
    fn writes_side_by_side_are_ordered_by_what_is_read_of_them() {
        let mut script = Script::new();
        let writes: Vec<_> = (0..6).map(|_| script.ask(Kind::Write)).collect();
        for write in writes.iter().rev() {
            script.read(*write);
        }
        for write in &writes {
            script.answer(*write, Answered::Written, NO_OP);
        }
        assert_eq!(script.found(), Found::Order);
        script.read(writes[3]);
        assert_eq!(script.found(), Found::NoOrder);
    }

    #[test]
    fn a_history_ends_where_clocks_or_lost_clients_come_in() {
        let mut script = Script::new();
        let first = script.write();
        script.read(first);
        let at = script.ask(Kind::Write);
        script.0.ops[at as usize].expiry_ms = 5;
        let absent = script.ask(Kind::Read);
        script.answer(absent, Answered::Absent, NO_OP);
        assert_eq!(
            search(&script.0, 0, 1000, 100),
            Searched { operations: 2, found: Found::Order }
        );
        script.0.ops[at as usize].expiry_ms = 0;
        assert_eq!(script.found(), Found::NoOrder);
        // The first write was lost with its client, which the read of the next epoch shows.
        script.0.ops[first as usize].weak = true;
        script.0.ops[absent as usize].epoch = 1;
        assert_eq!(script.found(), Found::Order);
    }
}
