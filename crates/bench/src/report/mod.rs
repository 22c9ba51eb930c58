//! The results of runs, as numbers, text and JSON.

mod number;
mod progress;
mod text;

pub use number::grouped;
pub(crate) use number::percent;
pub(crate) use progress::Bar;
pub(crate) use text::{describe, headline, spelt, text_of_run, text_of_summary};

use crate::cli::LoadArgs;
use crate::generator::{Measured, Recorder, STEP_NS, Tried, changes_within};
use crate::limit::imbalance;
use crate::rack::RackStatistics;
use crate::verify::{Mismatch, Verification};
use crate::workload::Verb;
use anyhow::Context as _;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;
use switchback_wire::Scheme;

/// A run with a larger share of lost requests is not a result.
const LOSS_MAX: f64 = 0.02;
/// An open loop that does less than this share of the due operations in time did not keep up.
const KEPT_UP: f64 = 0.98;
/// A throughput above this share of a limit means that the limit is wrong for the run.
const ABOVE_LIMIT: f64 = 1.05;

/// Prints to stdout. A full disk behind it is an error, not a panic.
///
/// # Errors
/// The text can't be written.
pub fn say(text: &str) -> anyhow::Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("writing to stdout")
}

/// Checks before a measurement that its report can be written.
///
/// # Errors
/// The file can't be written.
pub fn check_writable(path: &Path) -> anyhow::Result<()> {
    let is_new = path.symlink_metadata().is_err();
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    // Removed again if it wasn't there, since the run may fail and write no report.
    let tried = opened.and_then(|_| if is_new { std::fs::remove_file(path) } else { Ok(()) });
    tried.with_context(|| format!("cannot write {}", path.display()))
}

/// A report, as it is written to a file.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The program that wrote it.
    pub(crate) tool: &'static str,
    pub(crate) version: &'static str,
    /// `measured`: by the wall clock, not modelled.
    pub(crate) kind: &'static str,
    pub(crate) machine: Machine,
    pub(crate) arguments: LoadArgs,
    /// Notes about the workload.
    pub(crate) notes: Vec<String>,
    pub(crate) runs: Vec<Run>,
    pub(crate) summary: Vec<Summary>,
}

/// The machine of the runs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Machine {
    /// Number that this process may use.
    pub cpus: usize,
    /// Name of the processor.
    pub model: String,
    /// Its version.
    pub kernel: String,
}

impl Machine {
    /// This one.
    pub fn here() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find(|line| line.starts_with("model name"))
            .and_then(|line| line.split(": ").nth(1));
        Machine {
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            model: model.unwrap_or("unknown processor").to_owned(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// Limits of the throughput in operations a second, if the nodes are capped ([`crate::limit`]).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Limits {
    /// With the best content for a cache of this size.
    pub(crate) best: Option<f64>,
    /// With a perfect learner's content at the end of the measured time; `None` if the cache was
    /// preloaded.
    pub(crate) learned: Option<f64>,
    /// With the actual content at the end of the measured time.
    pub(crate) cached: Option<f64>,
    /// Write-through in a closed loop, with the best content: a full node's queue keeps its hot
    /// keys invalid.
    pub(crate) closed_loop: Option<f64>,
    /// Share of operations on records that were cached when the measured time ended.
    pub(crate) cached_share: f64,
}

/// One run of one scheme.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Run {
    pub(crate) scheme: Scheme,
    /// From 1.
    pub(crate) repetition: u32,
    /// Operations a second. A read-modify-write is one.
    pub(crate) throughput_ops: f64,
    /// Operations that each client had outstanding at most, and those that were tried before, if
    /// the best was to be found.
    pub(crate) outstanding: u32,
    pub(crate) tried: Vec<Tried>,
    /// [`Limits`], and the throughput over them.
    pub(crate) limit_ops: Option<f64>,
    pub(crate) limit_learned_ops: Option<f64>,
    pub(crate) limit_cached_ops: Option<f64>,
    pub(crate) limit_closed_loop_ops: Option<f64>,
    pub(crate) of_limit: Option<f64>,
    pub(crate) of_limit_learned: Option<f64>,
    pub(crate) of_limit_cached: Option<f64>,
    /// Operations a second that an open loop was to make.
    pub(crate) offered_ops: Option<f64>,
    /// Operations a second that were due (arrivals are random).
    pub(crate) due_ops: Option<f64>,
    /// Whether an open loop did them in time.
    pub(crate) kept_up: Option<bool>,
    /// Operations of an open loop that were begun after the measured time, or never.
    pub(crate) late: u64,
    pub(crate) unsent: u64,
    /// Requests a second. A read-modify-write is two.
    pub(crate) requests_ops: f64,
    /// Values that were read and written, in 10^6 bytes a second.
    pub(crate) values_mb_per_s: f64,
    /// Share of requests that the cache answered.
    pub(crate) hit_ratio: f64,
    /// Share of operations on records that were cached when the measured time ended.
    pub(crate) cached_share: f64,
    /// Share of reads that found their record cached but outdated, and went to its node.
    pub(crate) conservative_share: f64,
    /// Requests a second of each node.
    pub(crate) node_ops: Vec<f64>,
    /// The busiest node over the mean.
    pub(crate) node_imbalance: f64,
    /// By verb, then by the part that answered (`cache`, `node`, `all`).
    pub(crate) latency_us: BTreeMap<&'static str, BTreeMap<&'static str, Latency>>,
    /// Latency of all verbs together.
    pub(crate) latency_all_us: Option<Latency>,
    /// How long after it was due an operation of an open loop was begun: part of its latency.
    pub(crate) lateness_us: Option<Latency>,
    /// Requests sent again, over requests: an upper bound of the share of lost packets.
    pub(crate) resent: f64,
    /// Operations without an outcome (timed out, indeterminate, no space), over operations.
    pub(crate) failed: f64,
    /// The larger of the two.
    pub(crate) loss: f64,
    /// Reads that found nothing.
    pub(crate) not_found: u64,
    /// Answers that were checked; `null` without `--verify`.
    pub(crate) verified: Option<u64>,
    pub(crate) mismatches: Option<u64>,
    pub(crate) verification: Option<Verification>,
    /// Records that the sweep at the end should have read, but didn't.
    pub(crate) unswept: u64,
    /// Operations that ended in each tenth of a second.
    pub(crate) series: Vec<u64>,
    pub(crate) changes: Vec<Recovery>,
    /// Records cached at the end.
    pub(crate) cached_records: usize,
    pub(crate) rack: RackStatistics,
    pub(crate) seconds: f64,
    /// Whether there are no `objections`, which are reasons why the run is no result.
    pub(crate) is_result: bool,
    pub(crate) objections: Vec<String>,
}

/// Latencies of one kind, in microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
#[allow(missing_docs)] // Their names say it.
pub struct Latency {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Option<Latency> {
        let us = |ns: f64| (ns / 10.0).round() / 100.0;
        let at = |quantile| us(histogram.value_at_quantile(quantile) as f64);
        let (count, mean, max) =
            (histogram.len(), us(histogram.mean()), us(histogram.max() as f64));
        (count > 0).then(|| Latency {
            count,
            mean,
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max,
        })
    }
}

/// The recovery from a change of popularity.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Recovery {
    /// When it happened, in seconds of the measured time.
    pub at: f64,
    /// Seconds until the throughput of half a second was back at 95 % of the mean before the first
    /// change; `null`: never.
    pub recovered_after: Option<f64>,
}

/// The parameters of a run, known before it is measured.
pub(crate) struct RunContext {
    pub(crate) scheme: Scheme,
    pub(crate) repetition: u32,
    pub(crate) offered_ops: Option<f64>,
    pub(crate) change_every: Option<Duration>,
    pub(crate) objections: Vec<String>,
}

impl Run {
    pub(crate) fn new(context: RunContext, measured: Measured, limits: Limits) -> Run {
        let Measured {
            recorder,
            seconds,
            rack,
            sent,
            unsent,
            late,
            verification,
            unswept,
            cached,
            outstanding,
            tried,
            ..
        } = measured;
        let throughput_ops = recorder.operations as f64 / seconds;
        let of = |limit: Option<f64>| limit.map(|limit| throughput_ops / limit);
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let resent = share(sent.retries, sent.submitted);
        let failed = share(recorder.failed, recorder.operations + recorder.failed);
        let node_ops: Vec<f64> = rack.node_ops.iter().map(|&ops| ops as f64 / seconds).collect();
        let latencies = latencies(&recorder);
        // An open loop records the latency of each operation that was due, whenever it ended.
        let due = latencies
            .values()
            .filter_map(|by_part| by_part.get("all"))
            .map(|latency| latency.count)
            .sum::<u64>();
        let due_ops = context.offered_ops.map(|_| (due + recorder.failed) as f64 / seconds);
        let mut run = Run {
            scheme: context.scheme,
            repetition: context.repetition,
            throughput_ops,
            outstanding,
            tried,
            limit_ops: limits.best,
            limit_learned_ops: limits.learned,
            limit_cached_ops: limits.cached,
            limit_closed_loop_ops: limits.closed_loop,
            of_limit: of(limits.best),
            of_limit_learned: of(limits.learned),
            of_limit_cached: of(limits.cached),
            offered_ops: context.offered_ops,
            due_ops,
            kept_up: due_ops.map(|due| unsent == 0 && throughput_ops >= KEPT_UP * due),
            late,
            unsent,
            requests_ops: recorder.requests as f64 / seconds,
            values_mb_per_s: recorder.value_bytes as f64 / 1e6 / seconds,
            hit_ratio: share(recorder.cached, recorder.requests),
            cached_share: limits.cached_share,
            conservative_share: share(rack.conservative_reads, recorder.reads),
            node_imbalance: imbalance(&node_ops),
            node_ops,
            latency_us: latencies,
            latency_all_us: Latency::of(&recorder.all_latencies()),
            lateness_us: Latency::of(&recorder.lateness),
            resent,
            failed,
            loss: resent.max(failed),
            not_found: recorder.not_found,
            verified: verification.as_ref().map(|verification| verification.verified),
            mismatches: verification.as_ref().map(|verification| verification.mismatches),
            unswept,
            changes: context
                .change_every
                .map_or_else(Vec::new, |every| recoveries(&recorder.steps, seconds, every)),
            series: recorder.steps,
            cached_records: cached.len(),
            rack,
            seconds,
            verification,
            is_result: true,
            objections: context.objections,
        };
        run.object();
        run
    }

    /// Lists the reasons why the run is no result.
    fn object(&mut self) {
        let mut say = |says: bool, what: String| {
            if says {
                self.objections.push(what);
                self.is_result = false;
            }
        };
        say(self.throughput_ops == 0.0, "nothing was done at all".to_owned());
        say(
            self.loss > LOSS_MAX,
            format!("{:.1} % of requests lost or sent again", self.loss * 100.0),
        );
        if let Some(verification) = &self.verification {
            say(
                verification.mismatches > 0,
                format!(
                    "{} of {} answers are wrong",
                    verification.mismatches, verification.verified
                ),
            );
        }
        if let (Some(false), Some(due)) = (self.kept_up, self.due_ops) {
            // Not an objection: the latencies are right for this rate.
            let done = grouped(self.throughput_ops);
            self.objections.push(format!(
                "did not keep up: {done} of {} operations a second done",
                grouped(due)
            ));
        }
        if self.of_limit_cached.or(self.of_limit).is_some_and(|share| share > ABOVE_LIMIT) {
            self.objections
                .push("above the limit: the cache changed meanwhile, or nodes serve more than they should".to_owned());
        }
        if self.unswept > 0 {
            self.objections.push(format!(
                "{} records that were written were not read again at the end",
                self.unswept
            ));
        }
        if let Some(verification) = &self.verification
            && verification.unchecked > 0
        {
            self.objections
                .push(format!("{} answers could not be checked", verification.unchecked));
        }
    }

    /// The first wrong answers.
    pub(crate) fn wrong(&self) -> &[Mismatch] {
        self.verification.as_ref().map_or(&[], |verification| &verification.examples)
    }
}

fn latencies(recorder: &Recorder) -> BTreeMap<&'static str, BTreeMap<&'static str, Latency>> {
    let mut by_verb = BTreeMap::new();
    for (verb, [cache, node]) in Verb::ALL.into_iter().zip(&recorder.latencies) {
        let mut all = cache.clone();
        all.add(node).expect("all histograms have the same bounds");
        let by_part = [("cache", cache), ("node", node), ("all", &all)];
        let by_part: BTreeMap<_, _> = by_part
            .into_iter()
            .filter_map(|(part, histogram)| Some((part, Latency::of(histogram)?)))
            .collect();
        if !by_part.is_empty() {
            by_verb.insert(verb.name(), by_part);
        }
    }
    by_verb
}

/// Recoveries from changes of popularity, by the operations that ended in each tenth of a second.
pub fn recoveries(steps: &[u64], seconds: f64, every: Duration) -> Vec<Recovery> {
    let step = STEP_NS as f64 / 1e9;
    let mean = |steps: &[u64]| steps.iter().sum::<u64>() as f64 / steps.len().max(1) as f64;
    let step_of = |change: u32| (f64::from(change) * every.as_secs_f64() / step).round() as usize;
    let before = mean(&steps[..step_of(1).min(steps.len())]);
    let recovery = |change| {
        let (from, next) = (step_of(change), step_of(change + 1).min(steps.len()));
        let back = |&at: &usize| mean(&steps[at..(at + 5).min(next)]) >= 0.95 * before;
        // At least three steps, since shorter ones vary too much.
        let recovered = (from..next.saturating_sub(2)).find(back);
        Recovery {
            at: from as f64 * step,
            recovered_after: recovered.map(|at| ((at - from) as f64 * step * 10.0).round() / 10.0),
        }
    };
    (1..=changes_within(Duration::from_secs_f64(seconds), every)).map(recovery).collect()
}

/// The runs of one scheme together.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Summary {
    pub(crate) scheme: Scheme,
    pub(crate) runs: usize,
    /// All of them may be cited.
    pub(crate) is_result: bool,
    pub(crate) throughput_ops: Spread,
    pub(crate) limit_ops: Option<Spread>,
    pub(crate) of_limit: Option<Spread>,
    pub(crate) of_limit_learned: Option<Spread>,
    pub(crate) of_limit_cached: Option<Spread>,
    pub(crate) limit_closed_loop_ops: Option<Spread>,
    pub(crate) hit_ratio: Spread,
    pub(crate) conservative_share: Spread,
    pub(crate) node_imbalance: Spread,
    pub(crate) loss: Spread,
    pub(crate) outstanding: Spread,
}

/// Median and range of several figures.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Median and range of at least one figure.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => return None,
            odd if odd % 2 == 1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Some(Spread { median, min: sorted[0], max: sorted[sorted.len() - 1] })
    }

    /// Distance from the median to the farther end of the range, over the median.
    pub fn relative(&self) -> f64 {
        (self.max - self.median).max(self.median - self.min) / self.median
    }
}

/// Summarizes the runs by scheme, in the order in which the schemes ran first.
pub(crate) fn summarize(runs: &[Run]) -> Vec<Summary> {
    let mut schemes: Vec<Scheme> = Vec::new();
    for run in runs {
        if !schemes.contains(&run.scheme) {
            schemes.push(run.scheme);
        }
    }
    schemes.into_iter().filter_map(|scheme| summarize_scheme(scheme, runs)).collect()
}

fn summarize_scheme(scheme: Scheme, runs: &[Run]) -> Option<Summary> {
    let of_scheme = || runs.iter().filter(move |run| run.scheme == scheme);
    let spread = |figure: &dyn Fn(&Run) -> Option<f64>| Spread::of(of_scheme().filter_map(figure));
    Some(Summary {
        scheme,
        runs: of_scheme().count(),
        is_result: of_scheme().all(|run| run.is_result),
        throughput_ops: spread(&|run| Some(run.throughput_ops))?,
        limit_ops: spread(&|run| run.limit_ops),
        of_limit: spread(&|run| run.of_limit),
        of_limit_learned: spread(&|run| run.of_limit_learned),
        of_limit_cached: spread(&|run| run.of_limit_cached),
        limit_closed_loop_ops: spread(&|run| run.limit_closed_loop_ops),
        hit_ratio: spread(&|run| Some(run.hit_ratio))?,
        conservative_share: spread(&|run| Some(run.conservative_share))?,
        node_imbalance: spread(&|run| Some(run.node_imbalance))?,
        loss: spread(&|run| Some(run.loss))?,
        outstanding: spread(&|run| Some(run.outstanding.into()))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spread() {
        let spread = Spread::of([3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!(
            (spread.median, spread.min, spread.max, spread.relative()),
            (2.5, 1.0, 10.0, 3.0)
        );
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn recovery_counts_from_the_change() {
        // Two seconds at 100; the change halves it for 0.7 s; the second one does nothing; after
        // the third it never comes back.
        let mut steps = vec![100; 80];
        steps[20..27].fill(50);
        steps[60..].fill(90);
        let found = recoveries(&steps, 8.0, Duration::from_secs(2));
        let expected = [(2.0, Some(0.7)), (4.0, Some(0.0)), (6.0, None)];
        assert_eq!(found, expected.map(|(at, recovered_after)| Recovery { at, recovered_after }));
    }
}
