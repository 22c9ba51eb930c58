//! Leaving out one mechanism after the other: is each missed, by which checks, how soon?

use crate::ablation::Ablation;
use crate::check::{Check, Checks};
use crate::plan::Plan;
use crate::run::run;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use switchback_wire::Scheme;

/// What became of one ablation.
#[derive(Clone, Debug)]
pub struct Missed {
    /// Which one.
    pub ablation: Ablation,
    /// Seeds up to the first in which a check that the ablation names caught it.
    pub needed: Option<u64>,
    /// Seeds that ran.
    pub runs: u64,
    /// By which checks it was caught, named or not, and how often.
    pub checks: BTreeMap<Check, u64>,
}

impl Missed {
    /// How many runs caught it.
    pub fn caught(&self) -> u64 {
        self.checks.values().sum()
    }

    /// The checks, the most frequent first.
    fn names(&self) -> String {
        let mut checks: Vec<_> = self.checks.iter().collect();
        checks.sort_by_key(|(check, count)| (u64::MAX - **count, **check));
        checks.iter().map(|(check, _)| check.name()).collect::<Vec<_>>().join(", ")
    }
}

/// Runs an ablation, in racks of this scheme, with these checks, until one that it names has caught
/// it or it has had its seeds, and `at_least` seeds in any case. Where the number of seeds that it
/// needs is to be known (`at_least` isn't 0), its hint isn't used.
pub fn miss(ablation: Ablation, scheme: Scheme, checked: Checks, at_least: u64) -> Missed {
    let mut missed = Missed { ablation, needed: None, runs: 0, checks: BTreeMap::new() };
    let hint = ablation.hint.filter(|_| at_least == 0);
    let mut seeds = hint.into_iter().chain(0..ablation.seeds.max(at_least));
    while (missed.runs < at_least || missed.needed.is_none())
        && let Some(seed) = seeds.next()
    {
        let plan = Plan { checks: checked, ..Plan::draw(seed, scheme, ablation) };
        let outcome = run(plan, false);
        missed.runs += 1;
        if let Some(violation) = outcome.violation {
            if ablation.caught_by.contains(violation.check) {
                missed.needed.get_or_insert(missed.runs);
            }
            *missed.checks.entry(violation.check).or_default() += 1;
        }
    }
    missed
}

/// The same for every ablation, several at a time; with [`Checks::BLACK_BOX`], for those that
/// clients can see, where they can see them. In racks of this scheme, or of the one that misses it
/// each.
pub fn miss_each(
    scheme: Option<Scheme>,
    checked: Checks,
    at_least: u64,
    threads: usize,
) -> Vec<Missed> {
    let outside = checked == Checks::BLACK_BOX;
    let seen =
        |ablation: &Ablation| if outside { ablation.seen_from_outside() } else { Some(*ablation) };
    let ablations: Vec<Ablation> = Ablation::ALL.iter().filter_map(seen).collect();
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(ablation) = ablations.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let scheme = scheme.unwrap_or(ablation.scheme);
                    let missed = miss(*ablation, scheme, checked, at_least);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(missed);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let place = |name: &str| Ablation::ALL.iter().position(|ablation| ablation.name == name);
    done.sort_by_key(|missed| place(missed.ablation.name));
    done
}

/// The table of `docs/understand/guarantees.md`.
pub fn table(missed: &[Missed]) -> String {
    let mut out = String::from(
        "| mechanism | `--ablate` | to be caught by one of | found by | seeds needed | caught in |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for row in missed {
        let needed = row.needed.map_or("not caught".to_owned(), |needed| needed.to_string());
        let Missed { ablation, runs, .. } = row;
        let (rule, name, named) = (ablation.rule, ablation.name, ablation.caught_by.names());
        let (names, caught) = (row.names(), row.caught());
        let _ = writeln!(
            out,
            "| {rule} | `{name}` | {named} | {names} | {needed} | {caught} of {runs} |"
        );
    }
    out
}
