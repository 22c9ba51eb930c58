//! Exp#2: latency by target throughput, in an open loop. Latency counts from when a request was
//! due.

use super::sweep::{COLUMNS, row, start};
use super::{Context, Finding};
use crate::batch::Counters;
use crate::confidence::Estimate;
use crate::output::{Csv, Figure, Series, Style, Table, Ticks};
use crate::trial::{Bench, Case, Measured};
use crate::world::Drive;
use switchback_wire::Scheme;

/// Targets in operations a second.
const TARGETS: [f64; 11] =
    [0.1e6, 0.2e6, 0.4e6, 0.5e6, 0.6e6, 0.8e6, 1.0e6, 1.2e6, 1.4e6, 1.6e6, 1.8e6];
/// A rack below this share of its target is overloaded: its latency grows for as long as the run
/// lasts.
const KEPT_UP: f64 = 0.98;
/// Outstanding requests of all clients at most.
const LANES: u32 = 2048;

/// The contents of a figure.
#[derive(Clone, Copy)]
struct Shown {
    /// Suffix of its file's name.
    suffix: &'static str,
    title: &'static str,
    /// Its lines: an index into a point's latencies, a label, a style.
    lines: &'static [(usize, &'static str, Style)],
    is_logarithmic: bool,
}

/// The figures. Medians have a separate one, since at low load they hide the means.
const SHOWN: [Shown; 2] = [
    Shown {
        suffix: "",
        title: "Latency",
        lines: &[(0, "mean", Style::Line), (2, "99th percentile", Style::Dashed)],
        is_logarithmic: true,
    },
    Shown {
        suffix: "_median",
        title: "Median latency",
        lines: &[(1, "median", Style::Line)],
        is_logarithmic: false,
    },
];

/// One target's measurements.
#[derive(Clone, Default)]
struct Point {
    target_ops: f64,
    measured: Measured,
    /// Mean, median, 99th percentile.
    latency_us: (f64, f64, f64),
}

struct Job {
    scheme: Scheme,
    is_cold: bool,
    seed: u64,
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Finding {
    let mut jobs = Vec::new();
    for scheme in Scheme::OF_ONE_LAYER {
        for is_cold in [false, true] {
            jobs.extend(context.seeds().into_iter().map(|seed| Job { scheme, is_cold, seed }));
        }
    }
    let results = context.run_all(&jobs, |_| 1, |job| climb(context, job));
    let columns = [&COLUMNS[..], &["target_ops", "mean_us", "p50_us", "p99_us"]].concat();
    let mut csv = Csv::new(&columns);
    for (job, points) in jobs.iter().zip(&results) {
        let case = Case { is_cold: job.is_cold, ..context.case() };
        for point in points {
            let mut fields = row(&context.profile, job.scheme, &case, job.seed, &point.measured);
            let (mean, p50, p99) = point.latency_us;
            fields.extend([format!("{:.0}", point.target_ops), us(mean), us(p50), us(p99)]);
            csv.row(&fields);
        }
    }
    Finding {
        name: "2",
        title: "Latency by target throughput",
        paper: "Workload A, 16 servers, mean latencies: FarReach reduces NoCache's by 64.9 % and \
                NetCache's by 72.0 % at a target of 0.8 MOPS, where the busiest server of the \
                others is overloaded.",
        differs: "Beyond the capacity of its busiest node a rack's open-loop latency grows as long \
                  as the measurement lasts: such points are shown as overloaded instead of a \
                  number that depends on the length of the run.",
        remarks: Vec::new(),
        csv: vec![("exp2", csv)],
        figures: [false, true]
            .into_iter()
            .flat_map(|is_cold| SHOWN.map(|shown| figure(context, is_cold, shown, &jobs, &results)))
            .collect(),
        tables: [false, true].map(|is_cold| summary(is_cold, &jobs, &results)).to_vec(),
    }
}

/// Measures one target after the other, until the rack is overloaded.
fn climb(context: &Context, job: &Job) -> Vec<Point> {
    let case = Case { is_cold: job.is_cold, ..context.case() };
    let bench = Bench::new(case, &context.profile, job.seed);
    let mut world = bench.warm_up(bench.setup_with(job.scheme, LANES), &context.effort);
    world.drive(Drive::Script);
    world.finish_all();
    let operations = context.effort.operations.0;
    let mut points = Vec::new();
    for target_ops in TARGETS {
        world.drive(Drive::Open(target_ops));
        let run_ns = (operations as f64 / target_ops * 1e9) as u64;
        world.run_for(run_ns / 4);
        world.measure_latencies();
        let counters = Counters::of(&world);
        world.run_for(run_ns);
        let measured = bench.measured(job.scheme, &world, &counters);
        let latency_us = world.meter.latency_us().unwrap_or_default();
        let keeps_up = measured.throughput_ops >= KEPT_UP * target_ops;
        points.push(Point { target_ops, measured, latency_us });
        if !keeps_up {
            break;
        }
    }
    points
}

fn us(us: f64) -> String {
    format!("{us:.1}")
}

/// Latencies of all repetitions at a target; `None` if one of them was overloaded.
fn latencies(
    jobs: &[Job],
    results: &[Vec<Point>],
    is_cold: bool,
    scheme: Scheme,
    target_ops: f64,
) -> Option<[Estimate; 3]> {
    let runs =
        jobs.iter().zip(results).filter(|(job, _)| job.scheme == scheme && job.is_cold == is_cold);
    let mut samples = [Vec::new(), Vec::new(), Vec::new()];
    for (_, points) in runs {
        let point = points.iter().find(|point| point.target_ops == target_ops)?;
        if point.measured.throughput_ops < KEPT_UP * target_ops {
            return None;
        }
        let (mean, p50, p99) = point.latency_us;
        [mean, p50, p99]
            .into_iter()
            .zip(&mut samples)
            .for_each(|(value, samples)| samples.push(value));
    }
    Some(samples.map(|samples| Estimate::of(&samples)))
}

fn figure(
    context: &Context,
    is_cold: bool,
    shown: Shown,
    jobs: &[Job],
    results: &[Vec<Point>],
) -> Figure {
    let Shown { suffix, title, lines, is_logarithmic } = shown;
    let line = |(ink, scheme): (usize, Scheme), (which, name, style): (usize, &str, Style)| {
        let at = |target_ops: f64| {
            let three = latencies(jobs, results, is_cold, scheme, target_ops)?;
            Some((target_ops / 1e6, three[which]))
        };
        let points = TARGETS.into_iter().filter_map(at).collect();
        Series { style, ..Series::line(format!("{scheme}, {name}"), ink, points) }
    };
    Figure {
        name: format!("exp2_{}{suffix}", start(is_cold)),
        title: format!("Exp#2 {title} by target throughput, {}", start(is_cold)),
        x_label: "target throughput, Mops",
        y_label: "latency, us",
        ticks: Ticks::Numbers,
        is_logarithmic,
        series: lines
            .iter()
            .flat_map(|shown| {
                Scheme::OF_ONE_LAYER.into_iter().enumerate().map(move |at| line(at, *shown))
            })
            .collect(),
        origin: context.origin(),
    }
}

fn summary(is_cold: bool, jobs: &[Job], results: &[Vec<Point>]) -> Table {
    let title =
        format!("Latency in us (modelled), {}: mean, median, 99th percentile", start(is_cold));
    let head = ["target Mops"].into_iter().chain(Scheme::OF_ONE_LAYER.map(Scheme::name));
    let mut table = Table::new(title, &head.collect::<Vec<_>>());
    for target_ops in TARGETS {
        let mut cells = vec![format!("{:.1}", target_ops / 1e6)];
        cells.extend(Scheme::OF_ONE_LAYER.map(|scheme| {
            match latencies(jobs, results, is_cold, scheme, target_ops) {
                Some(three) => three.map(|estimate| format!("{:.0}", estimate.mean)).join(", "),
                None => "overloaded".to_owned(),
            }
        }));
        table.row(cells);
    }
    table
}
