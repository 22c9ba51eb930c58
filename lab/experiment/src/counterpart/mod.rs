//! Runs in virtual time and their counterparts by the wall clock, with the same servers, capacity,
//! records, map, requests and times: whether the model predicts the machine.
//!
//! The measured side is `switchback-bench`'s: the switch and each node are processes, with RocksDB
//! in the nodes, each node capped. The modelled side has the same capped nodes, and everything else
//! from a profile.

mod cases;
mod modelled;
mod report;

use crate::output::COMMIT;
use crate::profile::{Chosen, Profile};
use anyhow::Context as _;
use cases::{Counterpart, Scale};
use std::path::Path;
use std::time::Duration;
use switchback_bench::rack::RackFactory;
use switchback_bench::report::say;
use switchback_bench::single::{self, Order};

/// Experiments that have a counterpart.
pub(crate) const EXPERIMENTS: [u8; 5] = [1, 2, 7, 8, 9];

/// The results of one side of a run. Those that the experiment doesn't compare are `None`.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Figures {
    throughput_ops: f64,
    limit_ops: Option<f64>,
    /// Mean, median, 99th percentile.
    latency_us: Option<[f64; 3]>,
    /// The load generator's own delay in the mean.
    lateness_us: Option<f64>,
    /// Longest time until throughput was back after a change, in seconds.
    back_s: Option<f64>,
    /// Snapshots that became durable, and the bytes of the last one.
    snapshots: (u64, u64),
    /// Collect, store, re-admit, in milliseconds.
    recovery_ms: Option<[f64; 3]>,
}

/// Both sides of a run.
struct Pair {
    counterpart: Counterpart,
    modelled: Figures,
    measured: Figures,
    /// Reasons why the measured side may be no result.
    objections: Vec<String>,
    /// Load average of the machine when the measurement began.
    load: f64,
}

/// The request of a command line.
pub(crate) struct Request<'a> {
    pub(crate) experiments: &'a [u8],
    pub(crate) is_quick: bool,
    pub(crate) seed: u64,
    pub(crate) chosen: &'a Chosen,
    pub(crate) out: &'a Path,
}

/// Runs both sides of every case, and writes `counterpart.csv` and `counterpart.md` to the
/// directory after each run.
pub(crate) fn run(request: &Request<'_>, racks: &mut dyn RackFactory) -> anyhow::Result<()> {
    let scale = if request.is_quick { Scale::QUICK } else { Scale::FULL };
    let profile = scale.profile(&request.chosen.profile);
    let cases = cases::of(request.experiments, &scale, &profile, request.seed);
    let mut pairs = Vec::new();
    for counterpart in cases {
        let modelled = modelled::run(&counterpart, &scale, &profile, request.seed);
        let order = order(&counterpart, &scale, &profile, request.seed);
        let load = load();
        let outcome = single::run(&order, racks).with_context(|| counterpart.name())?;
        let (measured, objections) = measured(&counterpart, &outcome);
        let pair = Pair { counterpart, modelled, measured, objections, load };
        let line = report::line(&pair) + "\n";
        pairs.push(pair);
        report::write(request, &scale, &pairs)?;
        say(&line)?;
    }
    say(&format!(
        "{} has counterpart.csv and counterpart.md; commit {COMMIT}\n",
        request.out.display()
    ))
}

/// The measured side of a case.
fn order(counterpart: &Counterpart, scale: &Scale, profile: &Profile, seed: u64) -> Order {
    let Counterpart { scheme, workload, rate_ops, change, snapshot_period, crashes, .. } =
        *counterpart;
    Order {
        scheme,
        workload,
        records: scale.records,
        nodes: scale.nodes,
        node_capacity_ops: scale.capacity_ops,
        cache_records: scale.cache_records,
        outstanding: scale.outstanding,
        rate_ops,
        warmup: scale.warmup,
        measured: scale.measured_of(counterpart),
        change: change.map(|change| (change, scale.change_every)),
        snapshot_period,
        crash: crashes
            .then(|| (scale.measured / 2, Duration::from_nanos(profile.switch_restart_ns))),
        seed,
    }
}

fn measured(counterpart: &Counterpart, outcome: &single::Outcome) -> (Figures, Vec<String>) {
    let latency_us = outcome.latency_us.map(|latency| [latency.mean, latency.p50, latency.p99]);
    let figures = Figures {
        throughput_ops: outcome.throughput_ops,
        limit_ops: outcome.limit_ops,
        latency_us: latency_us.filter(|_| counterpart.rate_ops.is_some()),
        lateness_us: outcome.lateness_us.filter(|_| counterpart.rate_ops.is_some()),
        back_s: longest(&outcome.changes),
        snapshots: outcome.snapshots,
        recovery_ms: outcome.recovery.map(|times| steps_ms(&times)),
    };
    (figures, outcome.objections.clone())
}

/// The longest time until throughput recovered from a change, in seconds; infinite if it did not
/// recover within the measured time.
fn longest(changes: &[switchback_bench::report::Recovery]) -> Option<f64> {
    changes
        .iter()
        .map(|change| change.recovered_after.unwrap_or(f64::INFINITY))
        .max_by(f64::total_cmp)
}

/// Collect, store, re-admit. Detection isn't compared: on both sides it is the end of the
/// connection.
fn steps_ms(times: &switchback_core::controller::RecoveryTimes) -> [f64; 3] {
    [times.collect_us, times.store_us, times.readmit_us].map(|us| us as f64 / 1000.0)
}

fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Csv;

    #[test]
    fn the_longest_recovery_counts() {
        let at = |recovered_after| switchback_bench::report::Recovery { at: 1.0, recovered_after };
        assert_eq!(longest(&[]), None);
        assert_eq!(longest(&[at(Some(0.1)), at(Some(0.4))]), Some(0.4));
        assert_eq!(longest(&[at(None), at(Some(0.4))]), Some(f64::INFINITY));
    }

    #[test]
    fn the_model_stays_below_the_limit_and_each_row_names_its_side() {
        let scale = Scale { records: 2000, cache_records: 100, outstanding: 64, ..Scale::QUICK };
        let profile = scale.profile(&Profile::SOFTWARE);
        let mut csv = Csv::new(&report::COLUMNS);
        for counterpart in cases::of(&EXPERIMENTS, &scale, &profile, 1) {
            let figures = modelled::run(&counterpart, &scale, &profile, 1);
            let all_nodes = f64::from(scale.nodes) * scale.capacity_ops;
            assert!(
                figures.throughput_ops > 0.02 * all_nodes,
                "{}: {figures:?}",
                counterpart.name()
            );
            if let Some(limit_ops) = figures.limit_ops.filter(|_| counterpart.rate_ops.is_none()) {
                assert!(
                    figures.throughput_ops < 1.15 * limit_ops,
                    "{}: {figures:?}",
                    counterpart.name()
                );
            }
            assert_eq!(
                figures.recovery_ms.is_some(),
                counterpart.crashes,
                "{}",
                counterpart.name()
            );
            assert_eq!(
                figures.latency_us.is_some(),
                counterpart.rate_ops.is_some(),
                "{}",
                counterpart.name()
            );
            let pair = Pair {
                counterpart,
                modelled: figures,
                measured: figures,
                objections: Vec::new(),
                load: 0.5,
            };
            report::rows(&pair, &scale, 1).into_iter().for_each(|row| csv.row(&row));
            assert!(report::line(&pair).contains("ratio 1.00"));
        }
        let kinds: Vec<_> = csv.records().map(|record| record.text("kind").unwrap()).collect();
        assert!(
            kinds.chunks(2).all(|kinds| kinds == ["modelled", "measured"]) && kinds.len() > 20,
            "{kinds:?}"
        );
    }
}
