//! Exp#8: throughput and control-plane bandwidth by the period of snapshots.

use super::dynamic::{PATTERNS, case};
use super::sweep::{COLUMNS, mops, row, start};
use super::{Context, Finding};
use crate::batch::Counters;
use crate::confidence::Estimate;
use crate::output::{Csv, Figure, Series, Table, Ticks};
use crate::trial::{Bench, Measured};
use switchback_wire::Scheme;

/// Periods in milliseconds; 0: no snapshots.
const PERIODS_MS: [u64; 5] = [0, 2500, 5000, 7500, 10_000];

/// Whether a rack begins cold.
const STARTS: [bool; 2] = [false, true];

struct Job {
    is_cold: bool,
    pattern: usize,
    period_ms: u64,
    seed: u64,
}

struct Run {
    measured: Measured,
    bytes_per_s: f64,
    snapshots: u64,
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Finding {
    let patterns = if context.effort.is_quick { 3..4 } else { 1..4 };
    let mut jobs = Vec::new();
    for is_cold in STARTS {
        for pattern in patterns.clone() {
            for period_ms in PERIODS_MS {
                jobs.extend(context.seeds().into_iter().map(|seed| Job {
                    is_cold,
                    pattern,
                    period_ms,
                    seed,
                }));
            }
        }
    }
    let results = context.run_all(&jobs, |_| 1, |job| watch(context, job));
    Finding {
        name: "8",
        title: "Period of snapshots",
        paper: "Writes only, 2 servers, changing popularity: about 0.2 MOPS whatever the period. \
                Control-plane bandwidth 0.03 MiB/s without snapshots, 1.41 MiB/s every 2.5 s, 0.33 \
                MiB/s every 10 s.",
        differs: "A snapshot here holds only records that no node has. Bandwidth counts every \
                  control message with its frame, heartbeats included, over a run that is short: \
                  where the last column has one or two snapshots, one more or less changes the \
                  bandwidth by as much.",
        remarks: Vec::new(),
        csv: vec![("exp8", csv(context, &jobs, &results))],
        figures: STARTS
            .into_iter()
            .flat_map(|cold| figures(context, cold, patterns.clone(), &jobs, &results))
            .collect(),
        tables: STARTS
            .into_iter()
            .flat_map(|is_cold| patterns.clone().map(move |pattern| (is_cold, pattern)))
            .map(|(is_cold, pattern)| summary(is_cold, pattern, &jobs, &results))
            .collect(),
    }
}

/// One run, at least as long as the longest period.
fn watch(context: &Context, job: &Job) -> Run {
    let case = case(context, PATTERNS[job.pattern].1, job.is_cold, job.period_ms * 1000);
    let bench = Bench::new(case, &context.profile, job.seed);
    let mut world = bench.warm(Scheme::FarReach, &context.effort);
    world.measure();
    let counters = Counters::of(&world);
    let (bytes_before, snapshots_before) =
        (world.control_bytes(), world.status().snapshots_completed);
    let run_ns = context.effort.snapshots_ns;
    let changes = (run_ns / context.effort.change_ns) as u32;
    for phase in 1..=changes {
        world.set_phase(phase);
        world.run_for(context.effort.change_ns);
    }
    let seconds = (world.now_ns() - world.meter.since_ns) as f64 / 1e9;
    Run {
        measured: bench.measured(Scheme::FarReach, &world, &counters),
        bytes_per_s: (world.control_bytes() - bytes_before) as f64 / seconds,
        snapshots: world.status().snapshots_completed - snapshots_before,
    }
}

fn csv(context: &Context, jobs: &[Job], results: &[Run]) -> Csv {
    let columns =
        [&COLUMNS[..], &["pattern", "snapshot_period_ms", "control_bytes_per_s", "snapshots"]]
            .concat();
    let mut csv = Csv::new(&columns);
    for (job, run) in jobs.iter().zip(results) {
        let (name, pattern) = PATTERNS[job.pattern];
        let mut fields = row(
            &context.profile,
            Scheme::FarReach,
            &case(context, pattern, job.is_cold, 0),
            job.seed,
            &run.measured,
        );
        let bandwidth = format!("{:.0}", run.bytes_per_s);
        fields.extend([
            name.to_owned(),
            job.period_ms.to_string(),
            bandwidth,
            run.snapshots.to_string(),
        ]);
        csv.row(&fields);
    }
    csv
}

/// The mean of `value` over the repetitions of a point.
fn mean_of(
    (is_cold, pattern, period_ms): (bool, usize, u64),
    jobs: &[Job],
    results: &[Run],
    value: impl Fn(&Run) -> f64,
) -> Estimate {
    let mine =
        |job: &Job| (job.is_cold, job.pattern, job.period_ms) == (is_cold, pattern, period_ms);
    let runs = jobs.iter().zip(results).filter(|(job, _)| mine(job));
    Estimate::of(&runs.map(|(_, run)| value(run)).collect::<Vec<_>>())
}

fn period_name(period_ms: u64) -> String {
    if period_ms == 0 { "none".to_owned() } else { (period_ms as f64 / 1000.0).to_string() }
}

fn figures(
    context: &Context,
    is_cold: bool,
    patterns: std::ops::Range<usize>,
    jobs: &[Job],
    results: &[Run],
) -> Vec<Figure> {
    let start = start(is_cold);
    let draw = |name: &str, title: &str, y_label, value: fn(&Run) -> f64| Figure {
        name: format!("{name}_{start}"),
        title: format!("{title}, {start}"),
        x_label: "period of snapshots, s",
        y_label,
        ticks: Ticks::steps(PERIODS_MS.map(period_name)),
        is_logarithmic: false,
        series: patterns
            .clone()
            .enumerate()
            .map(|(ink, pattern)| {
                let point = |at: usize| {
                    (at as f64, mean_of((is_cold, pattern, PERIODS_MS[at]), jobs, results, value))
                };
                Series::line(
                    format!("farreach, {}", PATTERNS[pattern].0),
                    ink,
                    (0..PERIODS_MS.len()).map(point).collect(),
                )
            })
            .collect(),
        origin: context.origin(),
    };
    vec![
        draw(
            "exp8_throughput",
            "Exp#8 Throughput by period of snapshots",
            "throughput, Mops",
            |run| run.measured.throughput_ops / 1e6,
        ),
        draw(
            "exp8_bandwidth",
            "Exp#8 Control plane by period of snapshots",
            "control plane, MiB/s",
            |run| run.bytes_per_s / f64::from(1 << 20),
        ),
    ]
}

fn summary(is_cold: bool, pattern: usize, jobs: &[Job], results: &[Run]) -> Table {
    let title = format!("FarReach (modelled), {}, {}", PATTERNS[pattern].0, start(is_cold));
    let mut table = Table::new(title, &["period, s", "Mops", "control plane, MiB/s", "snapshots"]);
    for period_ms in PERIODS_MS {
        let of =
            |value: fn(&Run) -> f64| mean_of((is_cold, pattern, period_ms), jobs, results, value);
        let bandwidth = of(|run| run.bytes_per_s / f64::from(1 << 20));
        table.row(vec![
            period_name(period_ms),
            mops(of(|run| run.measured.throughput_ops)),
            format!("{:.3} +-{:.3}", bandwidth.mean, bandwidth.half_width),
            format!("{:.1}", of(|run| run.snapshots as f64).mean),
        ]);
    }
    table
}
