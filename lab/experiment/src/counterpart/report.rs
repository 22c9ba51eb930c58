//! Compares both sides: rows of a CSV file, and tables with ratios and the reasons for differences.

use super::cases::{Counterpart, Scale};
use super::{EXPERIMENTS, Figures, Pair, Request};
use crate::output::{COMMIT, Csv, Table};
use anyhow::Context as _;

/// Ratios that differ from 1 by no more than this agree.
const AGREEMENT: f64 = 0.1;

pub(super) const COLUMNS: [&str; 25] = [
    "kind",
    "experiment",
    "scheme",
    "servers",
    "node_capacity_ops",
    "records",
    "cache_records",
    "outstanding",
    "workload",
    "parameter",
    "rate_ops",
    "throughput_ops",
    "limit_ops",
    "mean_us",
    "p50_us",
    "p99_us",
    "lateness_us",
    "back_s",
    "snapshots",
    "snapshot_bytes",
    "recovery_ms",
    "load",
    "objections",
    "seed",
    "commit",
];

const INTRODUCTION: &str = "The same runs in virtual time (*modelled*) and by the wall clock \
(*measured*: the switch and each node a process, UDP between them, RocksDB in the nodes), with the \
same nodes, cap, records, partition map, requests, cache content at the start, and times. The \
ratio is measured over modelled.";

/// Reasons for differences between the sides, by experiment.
fn why_they_differ(experiment: u8) -> &'static str {
    match experiment {
        1 => {
            "Requests come in another order, so that the busiest node's share differs, most where \
             few requests are measured; on a busy machine a thread may run later than the token \
             bucket of its node can make up for. In D records are inserted and read at once: which \
             of them are cached before they are read depends on delays of the control plane."
        }
        2 => {
            "Measured latencies count from when an operation was due, and the load generator's \
             thread begins it some tens of microseconds later; the model has no such delay, and \
             the last figure leaves it out. All processes of the rack, the generator and other \
             programs share the CPU, so that a queue or a sync takes longer, by a time slice's \
             milliseconds at worst."
        }
        7 => {
            "Which keys are found hot depends on a sketch's samples, which are drawn differently; \
             at these rates it takes part of a second to sample a key often enough. Recovery is \
             measured in tenths of a second, over half a second: one step is more than 10 %."
        }
        8 => {
            "Snapshots begin at other moments of the run, so that their number differs by one, and \
             their bytes by those written since the last snapshot."
        }
        _ => {
            "All steps take milliseconds at most. Collecting waits until processes are scheduled, \
             and storing for synced commits, whose groups have other sizes than those that were \
             calibrated."
        }
    }
}

/// A figure that is compared: its name, its modelled and its measured value.
type Compared = (&'static str, f64, f64);

/// The figures that an experiment compares.
fn compared(pair: &Pair) -> Vec<Compared> {
    let (modelled, measured) = (&pair.modelled, &pair.measured);
    let mut compared = Vec::new();
    let mut add = |name, modelled: Option<f64>, measured: Option<f64>| {
        if let (Some(modelled), Some(measured)) = (modelled, measured) {
            compared.push((name, modelled, measured));
        }
    };
    let ops = |figures: &Figures| Some(figures.throughput_ops);
    let latency = |figures: &Figures, at: usize| figures.latency_us.map(|us| us[at]);
    let step = |figures: &Figures, at: usize| figures.recovery_ms.map(|ms| ms[at]);
    match pair.counterpart.experiment {
        2 => {
            for (at, name) in ["mean, us", "p50, us", "p99, us"].into_iter().enumerate() {
                add(name, latency(modelled, at), latency(measured, at));
            }
            add("mean from its begin, us", net(modelled), net(measured));
        }
        9 => {
            for (at, name) in ["collect, ms", "store, ms", "re-admit, ms"].into_iter().enumerate() {
                add(name, step(modelled, at), step(measured, at));
            }
            let all = |figures: &Figures| figures.recovery_ms.map(|ms| ms.iter().sum());
            add("in all, ms", all(modelled), all(measured));
        }
        _ => add("ops/s", ops(modelled), ops(measured)),
    }
    match pair.counterpart.experiment {
        7 => add("back, s", modelled.back_s, measured.back_s),
        8 => add("bytes of a snapshot", bytes(modelled), bytes(measured)),
        _ => {}
    }
    compared
}

/// The mean latency since operations were begun (not since they were due), in microseconds.
fn net(figures: &Figures) -> Option<f64> {
    Some(figures.latency_us?[0] - figures.lateness_us?)
}

fn bytes(figures: &Figures) -> Option<f64> {
    let (snapshots, bytes) = figures.snapshots;
    (snapshots > 0).then_some(bytes as f64)
}

fn ratio((_, modelled, measured): &Compared) -> f64 {
    if modelled == measured { 1.0 } else { measured / modelled }
}

fn agrees(compared: &Compared) -> bool {
    (ratio(compared) - 1.0).abs() <= AGREEMENT
}

fn number(figure: f64) -> String {
    match figure {
        _ if figure.is_infinite() => "never".to_owned(),
        _ if figure >= 100.0 => format!("{figure:.0}"),
        _ => format!("{figure:.1}"),
    }
}

fn shown(ratio: f64) -> String {
    if ratio.is_finite() { format!("{ratio:.2}") } else { "-".to_owned() }
}

/// One line for the terminal.
pub(super) fn line(pair: &Pair) -> String {
    let figures = compared(pair).into_iter().map(|compared| {
        let (name, modelled, measured) = compared;
        let ratio = shown(ratio(&compared));
        format!(
            "{name}: modelled {}, measured {}, ratio {ratio}",
            number(modelled),
            number(measured)
        )
    });
    format!("{}: {}", pair.counterpart.name(), figures.collect::<Vec<_>>().join("; "))
}

/// The two rows of a run.
pub(super) fn rows(pair: &Pair, scale: &Scale, seed: u64) -> [Vec<String>; 2] {
    let Counterpart { experiment, scheme, workload, parameter, rate_ops, .. } = &pair.counterpart;
    let some =
        |figure: Option<f64>| figure.map_or_else(String::new, |figure| format!("{figure:.3}"));
    [("modelled", &pair.modelled), ("measured", &pair.measured)].map(|(kind, figures)| {
        let latency = |at: usize| some(figures.latency_us.map(|us| us[at]));
        let is_measured = kind == "measured";
        vec![
            kind.to_owned(),
            experiment.to_string(),
            scheme.to_string(),
            scale.nodes.to_string(),
            scale.capacity_ops.to_string(),
            scale.records.to_string(),
            scale.cache_records.to_string(),
            scale.outstanding.to_string(),
            workload.to_string(),
            parameter.clone(),
            some(*rate_ops),
            some(Some(figures.throughput_ops)),
            some(figures.limit_ops),
            latency(0),
            latency(1),
            latency(2),
            some(figures.lateness_us),
            some(figures.back_s),
            figures.snapshots.0.to_string(),
            figures.snapshots.1.to_string(),
            some(figures.recovery_ms.map(|ms| ms.iter().sum())),
            if is_measured { pair.load.to_string() } else { String::new() },
            if is_measured { pair.objections.join("; ") } else { String::new() },
            seed.to_string(),
            COMMIT.to_owned(),
        ]
    })
}

/// Writes the files with the runs so far.
pub(super) fn write(request: &Request<'_>, scale: &Scale, pairs: &[Pair]) -> anyhow::Result<()> {
    let mut csv = Csv::new(&COLUMNS);
    for pair in pairs {
        rows(pair, scale, request.seed).into_iter().for_each(|row| csv.row(&row));
    }
    for (name, text) in
        [("counterpart.csv", csv.text()), ("counterpart.md", markdown(request, scale, pairs))]
    {
        let path = request.out.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn markdown(request: &Request<'_>, scale: &Scale, pairs: &[Pair]) -> String {
    let Scale { nodes, capacity_ops, records, cache_records, outstanding, measured, .. } = scale;
    let loads = pairs.iter().map(|pair| pair.load);
    let (least, most) = (loads.clone().fold(f64::MAX, f64::min), loads.fold(0.0, f64::max));
    let mut text = format!(
        "# The model and the machine\n\n{INTRODUCTION}\n\n{nodes} nodes of {capacity_ops} \
         requests/s, {records} records of 16 + 128 B, a cache of {cache_records}, preloaded; \
         {outstanding} outstanding requests where the run has no rate; {} s measured; seed {}, \
         commit {COMMIT}, all other costs of profile {}. The machine's load was {least} to \
         {most}.\n\n",
        measured.as_secs_f64(),
        request.seed,
        request.chosen.given,
    );
    for experiment in EXPERIMENTS {
        let mine: Vec<_> =
            pairs.iter().filter(|pair| pair.counterpart.experiment == experiment).collect();
        if !mine.is_empty() {
            text += &section(experiment, &mine);
        }
    }
    text
}

fn section(experiment: u8, pairs: &[&Pair]) -> String {
    let mut table = Table::new(
        format!("## Exp#{experiment}"),
        &["run", "figure", "modelled", "measured", "ratio", "within 10 %"],
    );
    let (mut all, mut apart) = (0, 0);
    for pair in pairs {
        let Counterpart { scheme, workload, parameter, .. } = &pair.counterpart;
        for compared in compared(pair) {
            let (name, modelled, measured) = compared;
            let ratio = shown(ratio(&compared));
            all += 1;
            let run = format!("{scheme} {workload} {parameter}").trim_end().to_owned();
            apart += u64::from(!agrees(&compared));
            let agrees = if agrees(&compared) { "yes" } else { "no" };
            table.row(vec![
                run,
                name.to_owned(),
                number(modelled),
                number(measured),
                ratio,
                agrees.to_owned(),
            ]);
        }
    }
    let mut text =
        format!("{}\n{} of {all} figures agree within 10 %.", table.markdown(), all - apart);
    if apart > 0 {
        text += &format!(" {}", why_they_differ(experiment));
    }
    let objections = pairs
        .iter()
        .flat_map(|pair| pair.objections.iter().map(|said| (pair.counterpart.name(), said)));
    let objections: String = objections.map(|(name, said)| format!("\n- {name}: {said}")).collect();
    if !objections.is_empty() {
        text += &format!("\n\nWhy measured runs may be no results:\n{objections}");
    }
    text + "\n\n"
}
