//! Exp#7, and with several switches Exp#S2: throughput over time when popularity changes.

use super::sweep::{COLUMNS, mops, row, start};
use super::{Context, Finding, label, layered};
use crate::batch::Counters;
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Table, Ticks};
use crate::trial::{Bench, Case, Measured};
use switchback_bench::workload::{Change, Pattern, Workload};
use switchback_wire::{PerScheme, Scheme};

/// Servers, as many as the paper has machines: it can't rotate servers here, since the cache
/// changes during a run.
pub(crate) const SERVERS: u16 = 2;
/// Keys that exchange their popularity.
const KEYS: u64 = 200;
/// Length of a bucket of the time series.
const BUCKET_NS: u64 = 100_000_000;
/// Buckets of the moving average by which recovery is judged.
const SMOOTHED: usize = 3;
/// A rack has recovered from a change once that average is this share of the throughput before it.
const RECOVERED: f64 = 0.95;

/// Patterns of change: none, and the paper's three.
pub(crate) const PATTERNS: [(&str, Option<Pattern>); 4] = [
    ("static", None),
    ("hot-in", Some(Pattern::HotIn)),
    ("hot-out", Some(Pattern::HotOut)),
    ("random", Some(Pattern::Random)),
];

/// A rack whose clients' popularity changes.
pub(crate) struct Changes {
    /// Name of the experiment.
    name: &'static str,
    file: &'static str,
    series_file: &'static str,
    title: &'static str,
    /// The rack, of the case that is varied: one of two servers.
    rack: fn(Case) -> Case,
    paper: &'static str,
    differs: &'static str,
}

/// Exp#7.
pub(crate) const ONE_SWITCH: Changes = Changes {
    name: "7",
    file: "exp7",
    series_file: "exp7_series",
    title: "Changes of popularity",
    rack: |case| case,
    paper: "Writes only, 2 servers, 70 s, 200 keys change every 10 s: FarReach exceeds the others \
            by at least 59.4 % on average, as it does without a change; it reacts within about 1 \
            s.",
    differs: "Runs are shorter and changes more frequent; what happens after one is the same. A \
              key counts as hot at 20 sampled requests, as in the paper; at 0.2 Mops a key that \
              draws one request in 4,000 needs most of a second for them.",
};

/// Exp#S2.
pub(crate) const TWO_LAYERS: Changes = Changes {
    name: "S2",
    file: "expS2",
    series_file: "expS2_series",
    title: "Two layers of two switches: changes of popularity",
    rack: |case| Case { servers: 16, ..layered(&case) },
    paper: "The supplement: writes only, 16 servers; DistReach has 2.4 times the throughput of \
            DistNoCache, with changes and without.",
    differs: "Runs are shorter and changes more frequent, as in Exp#7.",
};

/// A case of this experiment or of Exp#8.
pub(crate) fn case(
    context: &Context,
    pattern: Option<Pattern>,
    is_cold: bool,
    snapshot_us: u64,
) -> Case {
    let change = pattern.map(|pattern| Change { pattern, keys: KEYS });
    Case {
        workload: Workload::Mix(100.0),
        servers: SERVERS,
        change,
        is_cold,
        snapshot_us,
        ..context.case()
    }
}

struct Job {
    pattern: usize,
    scheme: Scheme,
    is_cold: bool,
    seed: u64,
}

struct Run {
    measured: Measured,
    series_ops: Vec<f64>,
    /// Longest time from a change until throughput had recovered, in seconds.
    back_s: f64,
}

/// Runs it on one of the racks.
pub(crate) fn run(context: &Context, changes: &Changes) -> Finding {
    let mut jobs = Vec::new();
    let schemes = (changes.rack)(context.case()).schemes;
    for pattern in 0..PATTERNS.len() {
        for &scheme in schemes {
            for is_cold in [false, true] {
                let job = |seed| Job { pattern, scheme, is_cold, seed };
                jobs.extend(context.seeds().into_iter().map(job));
            }
        }
    }
    let results = context.run_all(&jobs, |_| 1, |job| follow(context, changes, job));
    let case = (changes.rack)(context.case());
    Finding {
        name: changes.name,
        title: changes.title,
        paper: changes.paper,
        differs: changes.differs,
        remarks: Vec::new(),
        csv: vec![
            (changes.file, csv(context, changes, &jobs, &results)),
            (changes.series_file, series(context, &jobs, &results)),
        ],
        figures: (0..PATTERNS.len())
            .map(|pattern| figure(context, changes, pattern, &jobs, &results))
            .collect(),
        tables: [false, true].map(|is_cold| summary(&case, is_cold, &jobs, &results)).to_vec(),
    }
}

/// One run: a period without a change, then one after every change.
fn follow(context: &Context, changes: &Changes, job: &Job) -> Run {
    let case = case(context, PATTERNS[job.pattern].1, job.is_cold, context.case().snapshot_us);
    let bench = Bench::new((changes.rack)(case), &context.profile, job.seed);
    let mut world = bench.warm(job.scheme, &context.effort);
    let (period_ns, changes) = (context.effort.change_ns, context.effort.changes);
    world.run_for(period_ns / 4);
    world.measure_series(BUCKET_NS);
    let counters = Counters::of(&world);
    world.run_for(period_ns);
    for phase in 1..=changes {
        world.set_phase(phase);
        world.run_for(period_ns);
    }
    let measured = bench.measured(job.scheme, &world, &counters);
    let buckets = (period_ns / BUCKET_NS) as usize;
    let mut series_ops = world.meter.series_ops();
    series_ops.truncate(buckets * (changes as usize + 1));
    let back_s = back_s(&series_ops, buckets);
    Run { measured, series_ops, back_s }
}

/// The longest time after a change until throughput had recovered, in seconds, of a series with a
/// change every `buckets` buckets.
fn back_s(series_ops: &[f64], buckets: usize) -> f64 {
    let static_ops = mean(&series_ops[..buckets]);
    let after = series_ops[buckets..].chunks(buckets);
    let back = after.map(|period| {
        let is_back = |window: &[f64]| mean(window) >= RECOVERED * static_ops;
        let windows = period.windows(SMOOTHED.min(period.len()));
        windows.into_iter().position(is_back).unwrap_or(period.len())
    });
    back.max().unwrap_or(0) as f64 * BUCKET_NS as f64 / 1e9
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn csv(context: &Context, changes: &Changes, jobs: &[Job], results: &[Run]) -> Csv {
    let mut csv = Csv::new(&[&COLUMNS[..], &["pattern", "back_s"]].concat());
    for (job, run) in jobs.iter().zip(results) {
        let (name, pattern) = PATTERNS[job.pattern];
        let mut fields = row(
            &context.profile,
            job.scheme,
            &(changes.rack)(case(context, pattern, job.is_cold, 0)),
            job.seed,
            &run.measured,
        );
        fields.extend([name.to_owned(), format!("{:.1}", run.back_s)]);
        csv.row(&fields);
    }
    csv
}

fn series(context: &Context, jobs: &[Job], results: &[Run]) -> Csv {
    let mut csv = Csv::new(&[
        "kind",
        "profile",
        "scheme",
        "pattern",
        "start",
        "time_s",
        "throughput_ops",
        "seed",
        "commit",
    ]);
    for (job, run) in jobs.iter().zip(results) {
        for (bucket, ops) in run.series_ops.iter().enumerate() {
            csv.row(&[
                "modelled".to_owned(),
                context.profile.name.to_owned(),
                job.scheme.to_string(),
                PATTERNS[job.pattern].0.to_owned(),
                start(job.is_cold).to_owned(),
                format!("{:.1}", bucket as f64 * BUCKET_NS as f64 / 1e9),
                format!("{ops:.0}"),
                job.seed.to_string(),
                COMMIT.to_owned(),
            ]);
        }
    }
    csv
}

/// Throughput over time, preloaded: the mean of the repetitions.
fn figure(
    context: &Context,
    changes: &Changes,
    pattern: usize,
    jobs: &[Job],
    results: &[Run],
) -> Figure {
    let line = |(ink, &scheme): (usize, &Scheme)| {
        let mine = |job: &Job| job.pattern == pattern && job.scheme == scheme && !job.is_cold;
        let runs: Vec<_> =
            jobs.iter().zip(results).filter(|(job, _)| mine(job)).map(|(_, run)| run).collect();
        let length = runs.iter().map(|run| run.series_ops.len()).min().unwrap_or(0);
        let mean_mops =
            |at: usize| mean(&runs.iter().map(|run| run.series_ops[at]).collect::<Vec<_>>()) / 1e6;
        let point = |at: usize| {
            (at as f64 * BUCKET_NS as f64 / 1e9, Estimate { mean: mean_mops(at), half_width: 0.0 })
        };
        Series::line(scheme.name(), ink, (0..length).map(point).collect())
    };
    let (name, change) = PATTERNS[pattern];
    let every = change.map_or(String::new(), |_| {
        format!(", a change every {} s", context.effort.change_ns as f64 / 1e9)
    });
    let experiment = label(changes.name);
    Figure {
        name: format!("{}_{name}", changes.file),
        title: format!("{experiment} Throughput over time, {name}{every}, preloaded"),
        x_label: "time, s",
        y_label: "throughput (mean), Mops",
        ticks: Ticks::Numbers,
        is_logarithmic: false,
        series: (changes.rack)(context.case()).schemes.iter().enumerate().map(line).collect(),
        origin: context.origin(),
    }
}

fn summary(case: &Case, is_cold: bool, jobs: &[Job], results: &[Run]) -> Table {
    let title = format!(
        "Mean throughput in Mops (modelled), {}; back: longest time until 95 % again",
        start(is_cold)
    );
    let mut head = vec!["pattern".to_owned()];
    head.extend(case.schemes.iter().map(Scheme::to_string));
    head.extend(case.baselines().iter().map(|other| format!("x {other}")));
    head.push(format!("{} back, s", case.ours()));
    let mut table = Table::new(title, &head);
    for (at, (name, _)) in PATTERNS.iter().enumerate() {
        let of = |scheme: Scheme, value: &dyn Fn(&Run) -> f64| {
            let mine =
                |job: &Job| job.pattern == at && job.scheme == scheme && job.is_cold == is_cold;
            let runs = jobs.iter().zip(results).filter(|(job, _)| mine(job));
            Estimate::of(&runs.map(|(_, run)| value(run)).collect::<Vec<_>>())
        };
        let ops =
            PerScheme::of(case.schemes, |scheme| of(scheme, &|run| run.measured.throughput_ops));
        let mut cells = vec![(*name).to_owned()];
        cells.extend(ops.iter().map(|(_, ops)| mops(*ops)));
        let gain = |other: &Scheme| format!("{:.2}", ops[case.ours()].mean / ops[*other].mean);
        cells.extend(case.baselines().iter().map(gain));
        cells.push(format!("{:.1}", of(case.ours(), &|run| run.back_s).mean));
        table.row(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn back_s_is_the_longest_time_after_any_change() {
        let quick = [100.0, 100.0, 100.0, 100.0, 50.0, 90.0, 100.0, 100.0];
        assert_eq!(back_s(&quick, 4), 0.1, "the mean of 90, 100 and 100 is enough");
        let never = [100.0, 100.0, 100.0, 100.0, 50.0, 50.0, 50.0, 50.0];
        assert_eq!(back_s(&never, 4), 0.4);
        assert_eq!(back_s(&[100.0; 8], 4), 0.0);
    }
}
