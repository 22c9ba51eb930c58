//! Exp#S4: latency by number of layers, at a load that lets no queue grow.

use super::{Context, Finding, layered};
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Style, Table, Ticks};
use crate::trial::{Bench, Case};
use crate::world::{Classes, Drive};
use switchback_bench::workload::Workload;
use switchback_wire::Scheme;

const LAYERS: [u8; 5] = [1, 2, 3, 4, 8];
/// Requests come at this share of what the rack can do.
const LOAD: f64 = 0.02;
const LANES: u32 = 256;
/// No series is wanted.
const BUCKET_NS: u64 = 0;
/// What is measured: a class of the world's, a name.
const ANSWERS: [(usize, &str); 2] = [(Classes::HIT, "hit"), (Classes::MISS, "miss")];

struct Job {
    layers: u8,
    seed: u64,
}

fn case(context: &Context, layers: u8) -> Case {
    Case { workload: Workload::A, layers, ..layered(&context.case()) }
}

/// Mean latencies of [`ANSWERS`], in microseconds.
fn latencies_us(context: &Context, job: &Job) -> [f64; 2] {
    let bench = Bench::new(case(context, job.layers), &context.profile, job.seed);
    let mut world = bench.filled(bench.setup_with(Scheme::DistReach, LANES));
    world.drive(Drive::Open(LOAD * bench.ideal_ops(Scheme::DistReach)));
    world.measure_classes(Classes::ByAnswer, BUCKET_NS);
    world.run_operations(context.effort.operations.0, u64::MAX / 2);
    ANSWERS.map(|(class, _)| world.meter.class_latency_us(class).map_or(0.0, |(mean, _)| mean))
}

/// What they are without any queue: a hit crosses each link and each switch but the last twice, a
/// miss one link more, and its node.
fn without_queues_us(context: &Context, layers: u8) -> [f64; 2] {
    let profile = &context.profile;
    let value_bytes = context.case().value_bytes;
    let layers = f64::from(layers);
    let [link, pipeline] = [profile.link_ns, profile.pipeline_ns].map(|ns| ns as f64);
    let [read, write] =
        [0, 1].map(|at| value_bytes.mean(|bytes| profile.node_work_ns(bytes)[at] as f64));
    let hit = 2.0 * layers * link + (2.0 * layers - 1.0) * pipeline;
    let miss = 2.0 * (layers + 1.0) * link + 2.0 * layers * pipeline + (read + write) / 2.0;
    [hit / 1e3, miss / 1e3]
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Finding {
    let jobs: Vec<_> = LAYERS
        .into_iter()
        .flat_map(|layers| context.seeds().into_iter().map(move |seed| Job { layers, seed }))
        .collect();
    let results = context.run_all(&jobs, |job| job.layers.into(), |job| latencies_us(context, job));
    let of = |layers: u8, answer: usize| {
        let mine = jobs.iter().zip(&results).filter(|(job, _)| job.layers == layers);
        Estimate::of(&mine.map(|(_, latencies)| latencies[answer]).collect::<Vec<_>>())
    };
    let mut csv = Csv::new(&[
        "kind",
        "profile",
        "scheme",
        "chains",
        "layers",
        "answer",
        "mean_us",
        "without_queues_us",
        "seed",
        "commit",
    ]);
    for (job, latencies) in jobs.iter().zip(&results) {
        let ideal = without_queues_us(context, job.layers);
        for (at, (_, name)) in ANSWERS.into_iter().enumerate() {
            csv.row(&[
                "modelled".to_owned(),
                context.profile.name.to_owned(),
                Scheme::DistReach.to_string(),
                case(context, job.layers).chains.to_string(),
                job.layers.to_string(),
                name.to_owned(),
                format!("{:.2}", latencies[at]),
                format!("{:.2}", ideal[at]),
                job.seed.to_string(),
                COMMIT.to_owned(),
            ]);
        }
    }
    let title = "Mean latency in us (modelled), preloaded, workload A at 2 % load";
    let mut table =
        Table::new(title, &["layers", "hit", "without queues", "miss", "without queues"]);
    for layers in LAYERS {
        let ideal = without_queues_us(context, layers);
        let both = [0, 1].map(|at| [of(layers, at).mean, ideal[at]]);
        let cells = both.into_iter().flatten().map(|us| format!("{us:.1}"));
        table.row([layers.to_string()].into_iter().chain(cells).collect());
    }
    let line = |(at, (_, name)): (usize, (usize, &str))| {
        let points = LAYERS.iter().map(|layers| (f64::from(*layers), of(*layers, at)));
        let ideal = |layers: &u8| {
            let mean = without_queues_us(context, *layers)[at];
            (f64::from(*layers), Estimate { mean, half_width: 0.0 })
        };
        let ideal =
            Series::line(format!("{name}, no queue"), at, LAYERS.iter().map(ideal).collect());
        [Series::line(name, at, points.collect()), Series { style: Style::Dashed, ..ideal }]
    };
    let figure = Figure {
        name: "expS4".to_owned(),
        title: "Exp#S4 Latency by number of layers".to_owned(),
        x_label: "layers",
        y_label: "mean latency, us",
        ticks: Ticks::Numbers,
        is_logarithmic: false,
        series: ANSWERS.into_iter().enumerate().flat_map(line).collect(),
        origin: context.origin(),
    };
    Finding {
        name: "S4",
        title: "Latency by number of layers",
        paper: "Not in the paper.",
        differs: "Every layer adds two links and two passes of a pipeline to each request, cached \
                  or not.",
        remarks: Vec::new(),
        csv: vec![("expS4", csv)],
        figures: vec![figure],
        tables: vec![table],
    }
}
