//! One run from beginning to end, and what came of it.

use crate::check::search::{Found, search};
use crate::check::{Check, Violation};
use crate::history::{Op, OpIndex};
use crate::plan::{FaultKind, Plan};
use crate::trace::{TraceEvent, Wanted};
use crate::world::{World, WorldStatistics};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Operations of a key's history that are searched, the first ones.
const SEARCHED_OPS: usize = 300;
/// A search of fewer proves little, and isn't counted.
const SEARCHED_OPS_MIN: usize = 10;
/// Steps of one search.
const SEARCH_STEPS: u64 = 20_000;
/// Keys of a run that are searched.
const SEARCHED_KEYS: usize = 4;
/// Lines of a history that a report prints.
const REPORTED_OPS: usize = 40;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its plan.
    pub plan: Plan,
    /// What was violated.
    pub violation: Option<Violation>,
    /// What led to it, for people.
    pub report: String,
    /// Operations asked.
    pub operations: u64,
    /// Counters.
    pub statistics: WorldStatistics,
    /// What was searched.
    pub searches: Searches,
    /// How often each fault struck, and what the network did.
    pub faults: BTreeMap<&'static str, u64>,
    /// Hash of the trace.
    pub trace: u64,
    /// The trace, if it was wanted.
    pub text: String,
    /// The packets as a capture file, if they were wanted.
    pub capture: Vec<u8>,
    /// The last events, if they were wanted, and how many came before them.
    pub events: (Vec<TraceEvent>, u64),
    /// Virtual time.
    pub virtual_us: u64,
}

/// The searches of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Searches {
    /// Histories of which it was told whether there is an order.
    pub decided: u64,
    /// Histories of which it would have taken too long to tell.
    pub given_up: u64,
    /// Operations of the decided ones.
    pub operations: u64,
}

/// Runs a plan, with a trace in text if that is wanted.
pub fn run(plan: Plan, text: bool) -> Outcome {
    run_traced(plan, Wanted { text, ..Wanted::default() })
}

/// Runs a plan.
pub fn run_traced(plan: Plan, wanted: Wanted) -> Outcome {
    let mut world = World::new(plan, wanted);
    world.run();
    outcome(world)
}

/// What came of a world that has run to its end.
pub(crate) fn outcome(mut world: World) -> Outcome {
    let (searches, unordered) = cross_check(&world);
    let violation = world.violation().cloned().or(unordered);
    let report = violation.as_ref().map_or(String::new(), |violation| explain(&world, violation));
    let mut faults: BTreeMap<&'static str, u64> = FaultKind::all()
        .map(|kind| (kind.name(), world.faults().get(&kind).copied().unwrap_or(0)))
        .collect();
    faults.extend(world.network_faults());
    Outcome {
        plan: world.plan().clone(),
        violation,
        report,
        operations: world.history.ops.len() as u64,
        statistics: world.statistics,
        searches,
        faults,
        trace: world.trace.hash(),
        text: world.trace.text().to_owned(),
        capture: world.trace.take_capture(),
        events: world.trace.take_events(),
        virtual_us: world.now_us(),
    }
}

/// A search, which believes in no sequence numbers, must agree. It looks at some of the keys,
/// popular and unpopular ones.
fn cross_check(world: &World) -> (Searches, Option<Violation>) {
    let history = &world.history;
    let mut counts = vec![0usize; world.plan().load.keys as usize];
    for op in &history.ops {
        counts[op.key as usize] += 1;
    }
    let asked: Vec<usize> =
        (0..counts.len()).filter(|&key| counts[key] >= SEARCHED_OPS_MIN).collect();
    let mut searches = Searches::default();
    for key in asked.iter().step_by(asked.len().div_ceil(SEARCHED_KEYS).max(1)) {
        let searched = search(history, *key as u32, SEARCHED_OPS, SEARCH_STEPS);
        match searched.found {
            _ if searched.operations < SEARCHED_OPS_MIN => {}
            Found::GaveUp => searches.given_up += 1,
            Found::Order | Found::NoOrder => {
                searches.decided += 1;
                searches.operations += searched.operations as u64;
            }
        }
        if searched.found == Found::NoOrder {
            let text = format!(
                "no order explains the first {} operations on key {key}",
                searched.operations
            );
            let violation = Violation::general(Check::Linearizable, text);
            return (searches, Some(Violation { key: Some(*key as u32), ..violation }));
        }
    }
    (searches, None)
}

/// The operations that contradict each other: the one that shows it, and of each version that it
/// ignores, finds or expects the write and who told of it first; what came between the version that
/// a condition expects and its own; and if the answer is of an old epoch, the last one of a newer
/// epoch that was answered before it was asked.
fn smallest(world: &World, violation: &Violation, ops: &[(OpIndex, &Op)]) -> String {
    let mut out = String::new();
    let Some(shown) = violation.op.map(|op| world.history.ops[op as usize]) else { return out };
    let mut contradict: BTreeSet<OpIndex> = violation.op.into_iter().collect();
    for seq in [shown.floor / 2, shown.seq, shown.guard].into_iter().filter(|seq| *seq != 0) {
        let of_version =
            || ops.iter().filter(|(_, op)| op.seq == seq && op.responded < shown.responded);
        contradict
            .extend(of_version().filter(|(_, op)| op.changes()).map(|(index, _)| *index).take(2));
        contradict.extend(of_version().min_by_key(|(_, op)| op.responded).map(|(index, _)| *index));
    }
    if violation.check == Check::Condition {
        let between =
            ops.iter().filter(|(_, op)| op.changes() && shown.guard < op.seq && op.seq < shown.seq);
        contradict.extend(between.map(|(index, _)| *index).take(2));
    }
    if violation.check == Check::TwoOwners {
        let newer =
            ops.iter().filter(|(_, op)| op.epoch > shown.epoch && op.responded < shown.invoked);
        contradict.extend(newer.max_by_key(|(_, op)| op.responded).map(|(index, _)| *index));
    }
    let _ = writeln!(out, "the smallest part that breaks it:");
    for index in contradict {
        let _ = writeln!(out, "   #{index:<6} {}", world.history.ops[index as usize]);
    }
    out
}

/// The part of the history that shows a violation: the operations on its key around it.
fn explain(world: &World, violation: &Violation) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "promised: {}", violation.check.promise());
    let _ = writeln!(
        out,
        "violated ({}): {} [at {} us]",
        violation.check.name(),
        violation.text,
        violation.at_us
    );
    let Some(key) = violation.key else { return out };
    let ops: Vec<_> = world.history.of_key(key).collect();
    out.push_str(&smallest(world, violation, &ops));
    let at = violation.op.and_then(|op| ops.iter().position(|(index, _)| *index == op));
    let end = at.map_or(ops.len(), |at| (at + 5).min(ops.len()));
    let from = end.saturating_sub(REPORTED_OPS);
    let _ = writeln!(out, "operations on key {key} ({} of {}):", end - from, ops.len());
    for (index, op) in &ops[from..end] {
        let mark = if violation.op == Some(*index) { "=>" } else { "  " };
        let _ = writeln!(out, "{mark} #{index:<6} {op}");
    }
    out
}
