//! Real workloads: the throughput of each scheme with the published figures of Twitter's cache
//! clusters, and where write-back does not pay.
//!
//! Every cluster whose figures suffice runs like the paper's workloads; the rows of the others say
//! which figure is missing. A cluster fits a slot if its mean record does, since lengths were
//! published as means only.

use super::memo::Starts;
use super::sweep::{COLUMNS, mops, row};
use super::{Context, Finding};
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Style, Table, Ticks};
use crate::trial::{Case, Effort, Measured};
use switchback_bench::predict::{Advice, Forecast, GAIN_MIN, SLOT_BYTES_MAX, SLOTS, forecast};
use switchback_bench::workload::{Cluster, Demand, ValueBytes, Workload, twitter};
use switchback_wire::{PerScheme, Scheme};

/// Rate of all clients at most: 20 times the capacity of all nodes. Above it the nodes are not what
/// limits a rack.
const MOST_OPS: f64 = 20e6;
/// A rack with this share of [`MOST_OPS`] counts as not limited by its nodes.
const UNLIMITED: f64 = 0.9;
/// Runs are shorter than those of other experiments, since there are many of them, and the map of
/// keys to nodes, which each seed draws anew, changes results more than the length does.
const EFFORT: Effort = Effort { operations: (30_000, 600_000), ..Effort::QUICK };

/// A cluster and its results.
#[derive(Clone)]
struct Row {
    cluster: &'static Cluster,
    /// Share of the requests that write.
    writes: Option<f64>,
    /// A run of each scheme for every seed; empty if the figures don't suffice, or no record can be
    /// cached.
    runs: Vec<PerScheme<Measured>>,
    /// The same from an empty cache.
    cold: Vec<PerScheme<Measured>>,
    /// Why there are no runs.
    unrun: Option<String>,
    forecast: Option<Forecast>,
}

/// What is run for a cluster.
///
/// # Errors
/// Why nothing is.
fn case(cluster: &'static Cluster) -> Result<Case, String> {
    let workload: Workload = cluster.to_string().parse().map_err(|_| "nothing was published")?;
    let theta = cluster.alpha.ok_or("no Zipf exponent was published")?;
    let records = cluster.lasting_keys().ok_or("no number of keys was published")?;
    let value_bytes = cluster.value_bytes.ok_or("no length of values was published")?;
    if cluster.fits(SLOT_BYTES_MAX) != Some(true) {
        return Err(format!(
            "nothing is cached: the mean value has {value_bytes} B, a slot {}",
            SLOT_BYTES_MAX
        ));
    }
    // What a value of the model has at least.
    let value_bytes = ValueBytes::constant(value_bytes.max(16) as usize);
    Ok(Case { workload, theta, records, value_bytes, most_ops: MOST_OPS, ..Case::default() })
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Finding {
    let clusters: Vec<_> = twitter::clusters().iter().collect();
    let rows = rows(context, &clusters);
    finding(context, &rows)
}

/// Runs these clusters.
fn rows(context: &Context, clusters: &[&'static Cluster]) -> Vec<Row> {
    let seeds = seeds(context);
    let row = |cluster: &&'static Cluster| Row {
        cluster,
        writes: cluster.to_string().parse().ok().map(|workload: Workload| {
            let Demand { reads, writes } = workload.demand();
            writes / (reads + writes)
        }),
        runs: Vec::new(),
        cold: Vec::new(),
        unrun: case(cluster).err(),
        forecast: forecast(
            cluster,
            Case::default().servers,
            Case::default().cache_records,
            SLOT_BYTES_MAX,
        )
        .ok(),
    };
    let mut rows: Vec<_> = clusters.iter().map(row).collect();
    let mut jobs = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        if let Ok(case) = case(row.cluster) {
            jobs.extend(seeds.iter().map(|seed| (at, case.clone(), *seed)));
        }
    }
    let results = context.run_all(
        &jobs,
        |_| 1,
        |(_, case, seed)| Starts::measured(case, *seed, &context.profile, &EFFORT),
    );
    for ((at, ..), starts) in jobs.iter().zip(results) {
        rows[*at].runs.push(starts.of(false).clone());
        rows[*at].cold.push(starts.of(true).clone());
    }
    rows
}

/// One repetition is enough for a look.
fn seeds(context: &Context) -> Vec<u64> {
    let count = if context.effort.is_quick { 1 } else { context.effort.repetitions };
    context.seeds().into_iter().take(count as usize).collect()
}

impl Row {
    /// The mean of `value` over the repetitions.
    fn of(&self, value: impl Fn(&PerScheme<Measured>) -> f64) -> Option<Estimate> {
        (!self.runs.is_empty())
            .then(|| Estimate::of(&self.runs.iter().map(value).collect::<Vec<_>>()))
    }

    fn throughput(&self, scheme: Scheme) -> Option<Estimate> {
        self.of(|m| m[scheme].throughput_ops)
    }

    fn measured_gain_over(&self, other: Scheme) -> Option<Estimate> {
        self.of(|m| m[Scheme::FarReach].throughput_ops / m[other].throughput_ops)
    }

    /// Throughput of write-back over that of another scheme; 1 if no record can be cached.
    fn gain_over(&self, other: Scheme) -> Option<f64> {
        let measured = self.measured_gain_over(other).map(|gain| gain.mean);
        measured.or((self.cluster.fits(SLOT_BYTES_MAX) == Some(false)).then_some(1.0))
    }

    /// Whether the clients' rate limits a scheme's throughput, so that a gain would be larger at a
    /// higher rate.
    fn is_unlimited(&self, scheme: Scheme) -> bool {
        self.runs.iter().any(|m| m[scheme].throughput_ops >= UNLIMITED * MOST_OPS)
    }

    /// The verdict: from the measured gains, by the rule that `predict` applies to limits; the
    /// reason why write-back doesn't pay is that of `predict`.
    fn verdict(&self) -> Option<Advice> {
        let forecast = self.forecast.map(|forecast| forecast.verdict);
        match (self.gain_over(Scheme::NoCache)?, self.gain_over(Scheme::NetCache)?, forecast?) {
            (_, over_through, Advice::WriteBack) if over_through >= GAIN_MIN => {
                Some(Advice::WriteBack)
            }
            (_, over_through, _) if over_through >= GAIN_MIN => Some(Advice::UnderLoad),
            (over_none, ..) if over_none >= GAIN_MIN => Some(Advice::WriteThrough),
            (.., why) if !why.pays() && why != Advice::WriteThrough => Some(why),
            _ => Some(Advice::TooMany),
        }
    }

    /// Millions a second, with an interval if there are repetitions.
    fn mops(&self, estimate: Estimate) -> String {
        if self.runs.len() > 1 { mops(estimate) } else { format!("{:.3}", estimate.mean / 1e6) }
    }

    /// A gain as text.
    fn gain(&self, other: Scheme) -> String {
        let more = if self.is_unlimited(Scheme::FarReach) && !self.is_unlimited(other) {
            "> "
        } else {
            ""
        };
        match self.gain_over(other) {
            Some(gain) if gain >= 100.0 => format!("{more}{gain:.0}"),
            Some(gain) => format!("{more}{gain:.2}"),
            None => "?".to_owned(),
        }
    }
}

/// Rows in the order of gains, the largest first: over write-through, then over no cache; unknown
/// ones come last.
fn by_gain(rows: &[Row]) -> Vec<&Row> {
    let key = |row: &Row| {
        let pays = row.verdict().is_some_and(Advice::pays);
        let over_through = row.gain_over(Scheme::NetCache).unwrap_or(0.0);
        (pays, if pays { over_through } else { 0.0 }, row.gain_over(Scheme::NoCache).unwrap_or(0.0))
    };
    let mut sorted: Vec<_> = rows.iter().collect();
    sorted.sort_by(|a, b| {
        let (a, b) = (key(a), key(b));
        b.0.cmp(&a.0).then(b.1.total_cmp(&a.1)).then(b.2.total_cmp(&a.2))
    });
    sorted
}

fn finding(context: &Context, rows: &[Row]) -> Finding {
    Finding {
        name: "twitter",
        title: "Would it help Twitter's cache clusters?",
        paper: "FarReach's has no such experiment. The figures of the 54 clusters are those of \
                Yang, Yue and Rashmi, \"A large scale analysis of hundreds of in-memory cache \
                clusters at Twitter\" (OSDI 2020; CC BY 4.0): means of a week's traces of March \
                2020.",
        differs: "",
        remarks: vec![("What these figures can tell", LIMITS.to_owned())],
        csv: vec![
            ("twitter", csv(context, rows)),
            ("twitter_clusters", clusters_csv(context, rows)),
        ],
        figures: vec![figure(context, rows)],
        tables: vec![verdicts(rows), fitting(rows), table(rows), cold(rows)],
    }
}

const LIMITS: &str = "\
Each cluster's load is put on 16 servers (of 0.06 Mops each in the profile paper) with 10,000 \
records cached, preloaded, as those of the paper's experiments, and in the last table from an \
empty cache; its own rate is not needed for a gain. Lengths were published as \
means only, so that a cluster is cacheable as a whole or not at all; the last column of the table \
of slots is a bound for any distribution of lengths (Markov's inequality). Operations below 1 % \
were not published and count as none: a cluster that is called read-only may have a few writes, \
and where one key draws most of the requests write-back gains from these, too. Operations, keys \
and lengths are independent of each other. `add` is a write that expects no record, `cas`, `incr` \
and the like are a read and a write that expects the version read; a `delete` is a write. Clients \
ask for at most 20 Mops, beyond which the switch and the clients would be the limit: a gain with > \
is at least that. Keys of the model have 16 B and values at least 16; nodes and links cost a \
little more for each byte.";

/// The number of clusters that ran for which `switchback predict` says the same about whether
/// write-back pays, and the clusters for which it doesn't.
fn agreement(rows: &[Row]) -> (String, Vec<String>) {
    let judged: Vec<_> = rows.iter().filter(|row| !row.runs.is_empty()).collect();
    let agrees = |row: &Row| {
        row.verdict().map(Advice::pays) == row.forecast.map(|forecast| forecast.verdict.pays())
    };
    let others: Vec<_> = judged
        .iter()
        .filter(|row| !agrees(row))
        .map(|row| row.cluster.number.to_string())
        .collect();
    (format!("{} of {} that ran", judged.len() - others.len(), judged.len()), others)
}

/// A table of the clusters where write-back doesn't pay, and then of those where it does.
fn verdicts(rows: &[Row]) -> Table {
    let mut table = Table::new(
        "WHERE WRITE-BACK DOES NOT PAY, and where it does",
        &["write-back", "clusters", "which"],
    );
    let which = |wanted: &dyn Fn(&Row) -> bool| -> Vec<String> {
        rows.iter().filter(|row| wanted(row)).map(|row| row.cluster.number.to_string()).collect()
    };
    let mut add = |name: String, numbers: Vec<String>| {
        if !numbers.is_empty() {
            table.row(vec![name, numbers.len().to_string(), numbers.join(" ")]);
        }
    };
    let said = |pays| if pays { "pays" } else { "does NOT pay" };
    for pays in [false, true] {
        for verdict in Advice::ALL.into_iter().filter(|verdict| verdict.pays() == pays) {
            add(
                format!("{}: {}", said(pays), verdict.reason()),
                which(&|row| row.verdict() == Some(verdict)),
            );
        }
    }
    add("unknown: figures are missing".to_owned(), which(&|row| row.verdict().is_none()));
    let (agree, others) = agreement(rows);
    let others =
        if others.is_empty() { String::new() } else { format!("not of {}", others.join(" ")) };
    table.row(vec!["`switchback predict` says the same".to_owned(), agree, others]);
    table
}

/// A table of the clusters that fit each size of slots.
fn fitting(rows: &[Row]) -> Table {
    let title = "What is cacheable: clusters whose mean record fits a slot, their share of all requests, and the share of records that fits in any case";
    let head = ["slot, B", "clusters", "of", "of the requests", "of the records, at least"];
    let mut table = Table::new(title, &head);
    for slot in SLOTS {
        let known = || {
            rows.iter().filter_map(|row| {
                Some((row.cluster, row.cluster.fits(slot)?, row.cluster.rate_ops?))
            })
        };
        let all: f64 = known().map(|(.., rate)| rate).sum();
        let (fit, rate) = known()
            .filter(|(_, fits, _)| *fits)
            .fold((0, 0.0), |(n, sum), (.., rate)| (n + 1, sum + rate));
        let sure = known()
            .map(|(cluster, _, rate)| cluster.fits_at_least(slot).unwrap_or(0.0) * rate)
            .sum::<f64>();
        let percent = |part: f64| format!("{:.0} %", 100.0 * part / all.max(1e-9));
        table.row(vec![
            slot.to_string(),
            fit.to_string(),
            known().count().to_string(),
            percent(rate),
            percent(sure),
        ]);
    }
    table
}

/// The smallest of the slots that hold a cluster's mean record.
fn slot(cluster: &Cluster) -> String {
    match SLOTS.into_iter().find(|slot| cluster.fits(*slot) == Some(true)) {
        Some(slot) => slot.to_string(),
        None if cluster.fits(SLOT_BYTES_MAX).is_some() => "none".to_owned(),
        None => "?".to_owned(),
    }
}

fn known(number: Option<f64>, decimals: usize) -> String {
    number.map_or("?".to_owned(), |number| format!("{number:.decimals$}"))
}

fn percent(share: Option<f64>) -> String {
    known(share.map(|share| 100.0 * share), 0)
}

/// A table of all clusters, the largest gain first.
fn table(rows: &[Row]) -> Table {
    let mut head: Vec<String> =
        ["cluster", "write-back", "writes, %", "Zipf", "once, %", "key, value, B", "slot, B"]
            .map(str::to_owned)
            .to_vec();
    head.extend(Scheme::OF_ONE_LAYER.map(|scheme| scheme.to_string()));
    head.push("limit".to_owned());
    head.extend(Scheme::baselines().map(|other| format!("x {other}")));
    head.push("predicted".to_owned());
    let title = "Throughput in Mops (modelled), preloaded, by gain; once: share of requests to keys that are used only once; limit: of write-back";
    let mut table = Table::new(title, &head).with_words(&[1, head.len() - 1]);
    for row in by_gain(rows) {
        let Cluster { number, key_bytes, value_bytes, alpha, .. } = *row.cluster;
        let bytes =
            |length: Option<u32>| length.map_or("?".to_owned(), |length| length.to_string());
        let is_result = row.runs.iter().flat_map(PerScheme::iter).all(|(_, run)| run.is_converged);
        let mut cells = vec![
            number.to_string(),
            match (row.verdict(), is_result) {
                (Some(verdict), true) => verdict.short().to_owned(),
                (Some(_), false) => "not converged: no result".to_owned(),
                (None, _) => format!("unknown: {}", row.unrun.clone().unwrap_or_default()),
            },
            percent(row.writes),
            known(alpha, 2),
            percent(row.cluster.one_hit_keys.map(|_| row.cluster.one_hit_requests())),
            format!("{}, {}", bytes(key_bytes), bytes(value_bytes)),
            slot(row.cluster),
        ];
        cells.extend(
            Scheme::OF_ONE_LAYER
                .map(|scheme| row.throughput(scheme).map_or("-".to_owned(), |ops| row.mops(ops))),
        );
        let limit = row.of(|m| m[Scheme::FarReach].limit_ops);
        cells.push(match limit {
            Some(limit) if limit.mean >= MOST_OPS => "not nodes".to_owned(),
            Some(limit) => row.mops(limit),
            None => "-".to_owned(),
        });
        cells.extend(Scheme::baselines().map(|other| row.gain(other)));
        cells.push(
            row.forecast.map_or("?".to_owned(), |forecast| forecast.verdict.short().to_owned()),
        );
        table.row(cells);
    }
    table
}

/// A table of the clusters that ran, in the same order, from an empty cache.
fn cold(rows: &[Row]) -> Table {
    let mut head = vec!["cluster".to_owned()];
    head.extend(Scheme::OF_ONE_LAYER.map(|scheme| scheme.to_string()));
    head.extend(["limit_learned", "of limit_learned", "hit ratio"].map(str::to_owned));
    head.extend(Scheme::baselines().map(|other| format!("x {other}")));
    let title = "Throughput in Mops (modelled), cold; limit_learned: of write-back with what a perfect learner had cached";
    let mut table = Table::new(title, &head);
    for row in by_gain(rows) {
        let row = Row { runs: row.cold.clone(), ..row.clone() };
        let ours = |value: fn(&Measured) -> f64| row.of(|m| value(&m[Scheme::FarReach]));
        let Some(of_learned) = ours(|run| run.throughput_ops / run.goal_ops()) else { continue };
        let is_result = row.runs.iter().flat_map(PerScheme::iter).all(|(_, run)| run.is_converged);
        let unsettled = if is_result { "" } else { " (not converged: no result)" };
        let mut cells = vec![format!("{}{unsettled}", row.cluster.number)];
        let of = |estimate: Option<Estimate>| {
            estimate.map_or("-".to_owned(), |estimate| row.mops(estimate))
        };
        cells.extend(Scheme::OF_ONE_LAYER.map(|scheme| of(row.throughput(scheme))));
        cells.push(of(ours(Measured::goal_ops)));
        cells.push(format!("{:.3}", of_learned.mean));
        cells.push(known(ours(|run| run.hit_ratio).map(|ratio| ratio.mean), 3));
        cells.extend(Scheme::baselines().map(|other| row.gain(other)));
        table.row(cells);
    }
    table
}

fn csv(context: &Context, rows: &[Row]) -> Csv {
    let mut csv = Csv::new(&[&["cluster"][..], &COLUMNS].concat());
    for found in rows {
        let Ok(preloaded) = case(found.cluster) else { continue };
        for (is_cold, runs) in [(false, &found.runs), (true, &found.cold)] {
            let case = Case { is_cold, ..preloaded.clone() };
            for (seed, measured) in seeds(context).into_iter().zip(runs) {
                for (scheme, measured) in measured.iter() {
                    let mut fields = vec![found.cluster.number.to_string()];
                    fields.extend(row(&context.profile, scheme, &case, seed, measured));
                    csv.row(&fields);
                }
            }
        }
    }
    csv
}

/// A row for every cluster: its figures, and the results (means of the repetitions) or why there
/// are none. Unknown fields are empty.
fn clusters_csv(context: &Context, rows: &[Row]) -> Csv {
    let mut columns: Vec<String> = [
        "kind",
        "profile",
        "cluster",
        "key_bytes",
        "value_bytes",
        "rate_ops",
        "write_share",
        "zipf_alpha",
        "one_hit_requests",
    ]
    .map(str::to_owned)
    .to_vec();
    columns.extend(SLOTS.map(|slot| format!("fits_{slot}")));
    columns.extend(SLOTS.map(|slot| format!("fits_{slot}_at_least")));
    columns.extend(Scheme::OF_ONE_LAYER.map(|scheme| format!("{scheme}_ops")));
    columns.push("farreach_limit_ops".to_owned());
    columns.extend(Scheme::baselines().map(|other| format!("gain_over_{other}")));
    columns.extend(
        ["verdict", "predicted", "why_not_run", "repetitions", "seed", "commit"].map(str::to_owned),
    );
    let mut csv = Csv::new(&columns);
    let some = |number: Option<f64>, decimals: usize| known(number, decimals).replace('?', "");
    for row in rows {
        let cluster = row.cluster;
        let bytes = |length: Option<u32>| length.map(f64::from);
        let mut fields = vec![
            "modelled".to_owned(),
            context.profile.name.to_owned(),
            cluster.number.to_string(),
        ];
        fields.push(some(bytes(cluster.key_bytes), 0));
        fields.extend([
            some(bytes(cluster.value_bytes), 0),
            some(cluster.rate_ops, 0),
            some(row.writes, 4),
        ]);
        fields.extend([
            some(cluster.alpha, 4),
            some(cluster.one_hit_keys.map(|_| cluster.one_hit_requests()), 4),
        ]);
        fields.extend(
            SLOTS.map(|slot| cluster.fits(slot).map_or(String::new(), |fits| fits.to_string())),
        );
        fields.extend(SLOTS.map(|slot| some(cluster.fits_at_least(slot), 3)));
        fields.extend(
            Scheme::OF_ONE_LAYER.map(|scheme| some(row.throughput(scheme).map(|ops| ops.mean), 0)),
        );
        fields.push(some(row.of(|m| m[Scheme::FarReach].limit_ops).map(|ops| ops.mean), 0));
        fields.extend(Scheme::baselines().map(|other| some(row.gain_over(other), 3)));
        fields.push(row.verdict().map_or("unknown", Advice::short).to_owned());
        fields.push(row.forecast.map_or("unknown", |forecast| forecast.verdict.short()).to_owned());
        fields.push(row.unrun.clone().unwrap_or_default());
        fields.extend([
            seeds(context).len().to_string(),
            context.seed.to_string(),
            COMMIT.to_owned(),
        ]);
        csv.row(&fields);
    }
    csv
}

/// The gain of write-back over write-through, by the share of writes; marks show the mean length of
/// values.
fn figure(context: &Context, rows: &[Row]) -> Figure {
    let class = |label: &str, ink: usize, slot_of: &str| {
        let mut series = Series { style: Style::Marks, ..Series::line(label, ink, Vec::new()) };
        for row in rows.iter().filter(|row| slot(row.cluster) == slot_of) {
            let (Some(writes), Some(gain)) = (row.writes, row.gain_over(Scheme::NetCache)) else {
                continue;
            };
            let estimate = row
                .measured_gain_over(Scheme::NetCache)
                .unwrap_or(Estimate { mean: gain, half_width: 0.0 });
            series.points.push((100.0 * writes, estimate));
            let at_least = if row.is_unlimited(Scheme::FarReach) { "\u{2191}" } else { "" };
            let name = format!("{}{at_least}", row.cluster.number);
            series.names.push(if gain >= GAIN_MIN { name } else { String::new() });
        }
        series
    };
    let [small, large] = SLOTS;
    let even = |x: f64| (x, Estimate { mean: 1.0, half_width: 0.0 });
    Figure {
        name: "twitter".to_owned(),
        title: "Twitter's cache clusters: what write-back gains over write-through".to_owned(),
        x_label: "share of writes, %",
        y_label: "FarReach over NetCache (\u{2191}: at least)",
        ticks: Ticks::Numbers,
        is_logarithmic: true,
        series: vec![
            class(&format!("mean value up to {small} B"), 2, &small.to_string()),
            class(&format!("up to {large} B"), 1, &large.to_string()),
            class("larger, not cached", 4, "none"),
            Series::limit("no gain", vec![even(0.0), even(100.0)]),
        ],
        origin: context.origin_of(context.profile.name, seeds(context).len() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Profile;
    use indicatif::ProgressBar;
    use std::sync::Arc;

    fn context() -> Context {
        Context {
            profile: Profile::PAPER,
            effort: Effort::QUICK,
            value_bytes: Case::default().value_bytes,
            seed: 1,
            threads: 2,
            progress: ProgressBar::hidden(),
            memo: Arc::default(),
        }
    }

    fn of(numbers: &[&str]) -> Vec<Row> {
        let clusters: Vec<_> =
            numbers.iter().map(|number| twitter::cluster(number).unwrap()).collect();
        rows(&context(), &clusters)
    }

    #[test]
    fn each_kind_of_cluster_has_its_verdict() {
        // Half writes and mild skew; reads only; nothing but keys used once; values of 9 KB;
        // nothing published; no exponent.
        let rows = of(&["40", "3", "15", "8", "5", "43"]);
        let verdicts: Vec<_> = rows.iter().map(Row::verdict).collect();
        assert_eq!(verdicts[1], Some(Advice::WriteThrough), "reads only");
        assert_eq!(verdicts[2], Some(Advice::Even), "keys that are used once");
        assert_eq!(verdicts[3], Some(Advice::TooLarge));
        assert_eq!(verdicts[4..], [None, None]);
        assert!(
            rows[0].runs.len() == 1
                && rows[3].runs.is_empty()
                && rows[5].unrun.as_ref().unwrap().contains("Zipf")
        );
        for row in rows.iter().filter(|row| !row.runs.is_empty()) {
            for (_, run) in row.runs.iter().flat_map(PerScheme::iter) {
                let of_limit = run.throughput_ops / run.limit_ops;
                assert!(
                    run.failed == 0 && (0.02..1.15).contains(&of_limit),
                    "{}: {run:?}",
                    row.cluster
                );
            }
        }
        assert_eq!(
            rows[3].gain_over(Scheme::NetCache),
            Some(1.0),
            "what is not cached gains nothing"
        );
        let finding = finding(&context(), &rows);
        let lines = |at: usize| finding.csv[at].1.text().lines().count();
        assert_eq!((lines(0), lines(1)), (1 + 2 * 3 * Scheme::OF_ONE_LAYER.len(), 1 + 6));
        assert_eq!([2, 3].map(|at| finding.tables[at].rows.len()), [6, 3]);
    }

    #[test]
    fn write_back_gains_most_from_a_few_writes_to_one_hot_key() {
        let rows = of(&["51", "15"]);
        assert!(
            rows[0].verdict().unwrap().pays()
                && rows[0].is_unlimited(Scheme::FarReach)
                && rows[0].gain(Scheme::NetCache).starts_with("> ")
        );
        assert_eq!(by_gain(&rows)[0].cluster.number, 51);
        assert_eq!(agreement(&rows), ("2 of 2 that ran".to_owned(), Vec::new()));
    }
}
