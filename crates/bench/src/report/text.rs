//! Reports for people to read.

use super::number::{grouped, percent};
use super::{Latency, Machine, Run, Spread, Summary};
use crate::cli::{Arrivals, LoadArgs, Outstanding, Rate, Shape};
use crate::generator::{LADDER, TRY_SHARE};
use crate::workload::is_cacheable;
use clap::ValueEnum;
use std::fmt::Write as _;
use switchback_terminal::Table;
use switchback_wire::CACHED_VALUE_BYTES_MAX;

/// A description of the runs and the machine.
pub(crate) fn describe(
    args: &LoadArgs,
    shape: &Shape,
    notes: &[String],
    machine: &Machine,
) -> String {
    let mut text = format!(
        "workload {} ({}), Zipf {}, {} records of {} + {} B, seed {}\n",
        args.workload,
        args.workload.describe(),
        shape.zipf,
        grouped(args.records as f64),
        shape.key_bytes,
        shape.value_bytes,
        args.seed
    );
    if !is_cacheable(shape.value_bytes.longest()) {
        let _ = writeln!(
            text,
            "values have {} B on average; those of {} of the keys are longer than {CACHED_VALUE_BYTES_MAX} B, which no slot of the cache takes",
            grouped(shape.value_bytes.mean(|bytes| bytes as f64)),
            percent(1.0 - shape.value_bytes.cacheable_share())
        );
    }
    let capacity = match args.node_capacity {
        Some(ops) => format!("each capped at {} requests/s", grouped(ops)),
        None => "not capped: no limit can be computed (--node-capacity)".to_owned(),
    };
    let cache = if args.preload { "preloaded with the hottest" } else { "learned from cold" };
    let _ = writeln!(
        text,
        "{} nodes, {capacity}; {}links: {}; cache of {} records, {cache}",
        args.nodes,
        topology(args.layers, args.chains),
        spelt(args.links),
        grouped(f64::from(args.cache_records))
    );
    let pace = match (&args.rate, args.arrivals) {
        (None, _) => "closed loop".to_owned(),
        (Some(rate), Arrivals::Poisson) => format!("open loop at {}, Poisson", pace_of(*rate)),
        (Some(rate), Arrivals::Fixed) => format!("open loop at {}, equal gaps", pace_of(*rate)),
    };
    let _ = writeln!(
        text,
        "{} client thread(s) of {} outstanding, {pace}; {} s measured after {} s of warm-up",
        args.clients, args.outstanding, args.seconds, args.warmup
    );
    if args.outstanding == Outstanding::Best {
        let each_s = args.seconds * TRY_SHARE;
        let _ = writeln!(
            text,
            "outstanding: {LADDER:?} are each tried for {each_s} s after the warm-up; the best is what a scheme is measured with"
        );
    }
    if let Some(pattern) = args.change {
        let keys = args.change_keys;
        let _ = writeln!(
            text,
            "popularity changes every {} s: {}, {keys} keys",
            args.change_every,
            spelt(pattern)
        );
    }
    for note in notes {
        let _ = writeln!(text, "{note}");
    }
    let Machine { cpus, model, kernel } = machine;
    let _ = writeln!(text, "measured by the wall clock on {cpus} CPU(s), {model}, Linux {kernel}");
    text
}

fn pace_of(rate: Rate) -> String {
    match rate {
        Rate::Ops(ops) => format!("{} ops/s", grouped(ops)),
        Rate::OfLimit(share) => format!("{} of the limit", percent(share)),
    }
}

/// A choice as the command line spells it.
pub(crate) fn spelt(choice: impl ValueEnum) -> String {
    choice.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// One line about a run.
pub(crate) fn headline(run: &Run, repetitions: u32) -> String {
    let mut text = run.scheme.name().to_owned();
    if repetitions > 1 {
        let _ = write!(text, " ({} of {repetitions})", run.repetition);
    }
    let _ = write!(text, ": {} ops/s", grouped(run.throughput_ops));
    if let (Some(limit), Some(share)) = (run.limit_ops, run.of_limit) {
        let _ = write!(text, ", {} of the limit {}", percent(share), grouped(limit));
    }
    if let (Some(limit), Some(share)) = (run.limit_learned_ops, run.of_limit_learned) {
        let _ = write!(text, ", {} of a perfect learner's {}", percent(share), grouped(limit));
    }
    let _ = write!(text, ", {} hits", percent(run.hit_ratio));
    if !run.tried.is_empty() {
        let _ = write!(text, ", {} outstanding a client", run.outstanding);
    }
    if let (Some(verified), Some(mismatches)) = (run.verified, run.mismatches) {
        let _ = write!(text, ", {} answers checked, {mismatches} wrong", grouped(verified as f64));
    }
    for objection in &run.objections {
        let _ = write!(
            text,
            "\n    {}: {objection}",
            if run.is_result { "note" } else { "NOT A RESULT" }
        );
    }
    for mismatch in run.wrong() {
        let _ = write!(text, "\n    {mismatch}");
    }
    text + "\n"
}

/// All results of a run that the headline leaves out.
pub(crate) fn text_of_run(run: &Run) -> String {
    let mut text = format!("{}:\n", run.scheme);
    let _ = writeln!(text, "  values of {:.1} MB/s read and written", run.values_mb_per_s);
    if !run.tried.is_empty() {
        let tried = run.tried.iter();
        let tried: Vec<_> = tried
            .map(|tried| format!("{}: {}", tried.outstanding, grouped(tried.throughput_ops)))
            .collect();
        let _ = writeln!(text, "  ops/s by operations outstanding: {}", tried.join(", "));
    }
    let nodes: Vec<_> = run.node_ops.iter().map(|&ops| grouped(ops)).collect();
    let _ = writeln!(
        text,
        "  nodes served {} requests/s; the busiest {:.2} times the mean",
        shorten(nodes),
        run.node_imbalance
    );
    let _ = writeln!(
        text,
        "  cache: {} records, {} admitted, {} evicted meanwhile; {} of operations on cached records; {} of reads conservative",
        grouped(run.cached_records as f64),
        grouped(run.rack.admissions as f64),
        grouped(run.rack.evictions as f64),
        percent(run.cached_share),
        percent(run.conservative_share)
    );
    if let (Some(limit), Some(share)) = (run.limit_cached_ops, run.of_limit_cached) {
        let _ = writeln!(
            text,
            "  with what was cached at the end the limit would be {} ({} reached)",
            grouped(limit),
            percent(share)
        );
    }
    if let Some(limit) = run.limit_closed_loop_ops {
        let _ = writeln!(
            text,
            "  in a closed loop the busiest node's queue keeps its hot keys invalid: there the limit is {} ({} reached)",
            grouped(limit),
            percent(run.throughput_ops / limit)
        );
    }
    let _ = writeln!(
        text,
        "  {} of requests sent again, {} of operations failed, {} packets dropped by the rack",
        percent(run.resent),
        percent(run.failed),
        grouped(run.rack.dropped as f64)
    );
    if let Some(lateness) = &run.lateness_us {
        let (p50, p99) = (microseconds(lateness.p50), microseconds(lateness.p99));
        let _ = writeln!(
            text,
            "  operations were begun {p50} us (p99 {p99} us) after they were due: the generator's part of the latencies below"
        );
    }
    for change in &run.changes {
        let recovery = match change.recovered_after {
            Some(seconds) => format!("back at 95 % of the throughput before after {seconds:.1} s"),
            None => "not back at 95 % of the throughput before".to_owned(),
        };
        let _ = writeln!(text, "  change at {:.1} s: {recovery}", change.at);
    }
    text + &latency_table(run)
}

fn latency_table(run: &Run) -> String {
    let mut table =
        Table::of_numbers(["latency in us", "count", "mean", "p50", "p99", "p99.9", "max"]);
    for (verb, by_part) in &run.latency_us {
        for part in ["cache", "node", "all"] {
            // If only one part answered, the sum is the same.
            let Some(latency) = by_part.get(part).filter(|_| part != "all" || by_part.len() > 2)
            else {
                continue;
            };
            let Latency { count, mean, p50, p99, p999, max } = latency;
            let [mean, p50, p99, p999, max] =
                [mean, p50, p99, p999, max].map(|us| microseconds(*us));
            table.row([
                format!("{verb}, {part}"),
                grouped(*count as f64),
                mean,
                p50,
                p99,
                p999,
                max,
            ]);
        }
    }
    table.to_string()
}

fn microseconds(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { grouped(us) }
}

/// The chains of switches, if there is more than one switch.
fn topology(layers: u8, chains: u16) -> String {
    if layers == 1 && chains == 1 {
        return String::new();
    }
    let plural = |count| if count == 1 { "" } else { "s" };
    let (chains_s, layers_s) = (plural(chains), plural(u16::from(layers)));
    format!("{chains} chain{chains_s} of {layers} layer{layers_s}, each with its cache; ")
}

/// A table of the schemes.
pub(crate) fn text_of_summary(summaries: &[Summary]) -> String {
    let repeated = summaries.iter().any(|summary| summary.runs > 1);
    let mut table = Table::of_numbers([
        "measured",
        if repeated { "ops/s, median" } else { "ops/s" },
        "spread",
        "limit",
        "of limit",
        "of limit_learned",
        "of limit_cached",
        "hits",
        "conservative",
        "imbalance",
        "loss",
        "outstanding",
        "",
    ]);
    let share = |of: Option<Spread>| of.map_or("-".to_owned(), |share| percent(share.median));
    for summary in summaries {
        let spread = if summary.runs > 1 {
            format!("± {}", percent(summary.throughput_ops.relative()))
        } else {
            String::new()
        };
        table.row([
            summary.scheme.name().to_owned(),
            grouped(summary.throughput_ops.median),
            spread,
            summary.limit_ops.map_or("-".to_owned(), |limit| grouped(limit.median)),
            share(summary.of_limit),
            share(summary.of_limit_learned),
            share(summary.of_limit_cached),
            percent(summary.hit_ratio.median),
            percent(summary.conservative_share.median),
            format!("{:.2}", summary.node_imbalance.median),
            percent(summary.loss.median),
            grouped(summary.outstanding.median),
            if summary.is_result { String::new() } else { "NOT A RESULT".to_owned() },
        ]);
    }
    let mut text = table.to_string();
    for summary in summaries {
        if let Some(limit) = summary.limit_closed_loop_ops {
            let share = percent(summary.throughput_ops.median / limit.median);
            let _ = writeln!(
                text,
                "  {} in a closed loop: {share} of {}",
                summary.scheme,
                grouped(limit.median)
            );
        }
    }
    if let [first, others @ ..] = summaries {
        for other in others {
            let gain = other.throughput_ops.median / first.throughput_ops.median;
            let _ = write!(text, "  {} / {}: {gain:.2}", other.scheme, first.scheme);
            if let (Some(a), Some(b)) = (other.limit_ops, first.limit_ops) {
                let _ = write!(text, " (of the limits: {:.2})", a.median / b.median);
            }
            text.push('\n');
        }
    }
    text
}

/// A list for one line.
fn shorten(list: Vec<String>) -> String {
    if list.len() <= 16 {
        return list.join(" ");
    }
    format!("{} ... ({} nodes)", list[..16].join(" "), list.len())
}
