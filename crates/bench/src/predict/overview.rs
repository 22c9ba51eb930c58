//! A table of all published clusters: which fit a cache, the gain of each scheme, and where
//! write-back does not pay.

use super::SLOTS;
use super::analysis::{Advice, Outcome, Rack, Way, assess};
use super::text::gain;
use super::traffic::Traffic;
use crate::limit::EXACT_KEYS;
use crate::report::{grouped, percent};
use crate::workload::{Cluster, Demand, twitter};
use serde::Serialize;
use std::fmt::Write as _;
use switchback_terminal::Table;
use switchback_wire::Scheme;

/// One cluster.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    cluster: u16,
    key_bytes: Option<u32>,
    value_bytes: Option<u32>,
    rate_ops: Option<f64>,
    alpha: Option<f64>,
    /// Whether its mean record fits a slot, by [`SLOTS`].
    cacheable: [Option<bool>; 2],
    write_share: Option<f64>,
    outcomes: Vec<Outcome>,
    verdict: Option<Advice>,
    /// Why there is no prediction.
    unknown: Option<String>,
}

impl Row {
    fn of(cluster: &'static Cluster, rack: Rack) -> Row {
        let mut row = Row {
            cluster: cluster.number,
            key_bytes: cluster.key_bytes,
            value_bytes: cluster.value_bytes,
            rate_ops: cluster.rate_ops,
            alpha: cluster.alpha,
            cacheable: SLOTS.map(|slot_bytes| cluster.fits(slot_bytes)),
            write_share: None,
            outcomes: Vec::new(),
            verdict: None,
            unknown: None,
        };
        match outlook(cluster, &rack) {
            Ok((Demand { reads, writes }, outcomes, verdict)) => {
                row = Row {
                    write_share: Some(writes / (reads + writes)),
                    outcomes,
                    verdict: Some(verdict),
                    ..row
                };
            }
            Err(reason) => row.unknown = Some(reason.to_string()),
        }
        row
    }

    /// The gain of one policy, as text.
    fn gain(&self, way: Way) -> Option<String> {
        self.outcomes.iter().find(|outcome| outcome.way == way).map(|outcome| gain(outcome.gain))
    }
}

/// The requests, the results of each policy, and the verdict.
fn outlook(
    cluster: &'static Cluster,
    rack: &Rack,
) -> anyhow::Result<(Demand, Vec<Outcome>, Advice)> {
    // Twice as many keys as are cached; each of the others draws a negligible share.
    let exact_keys = (2 * u64::from(rack.cache_records)).clamp(100_000, EXACT_KEYS);
    let traffic = Traffic::of_cluster(cluster, None, rack.slot_bytes.into(), exact_keys)?;
    let (outcomes, verdict) = assess(&traffic, rack);
    Ok((traffic.demand, outcomes, verdict))
}

/// The prediction for a published cluster.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Forecast {
    /// Gain over no cache of a write-through cache whose nodes are full; `None`: nodes would serve
    /// no request.
    pub write_through: Option<f64>,
    /// Gain over no cache of write-back.
    pub write_back: Option<f64>,
    /// Whether write-back pays.
    pub verdict: Advice,
}

/// The prediction of `switchback predict` for a cluster on a rack of `nodes` nodes, with defaults
/// for the rest.
///
/// # Errors
/// A figure that wasn't published.
pub fn forecast(
    cluster: &'static Cluster,
    nodes: u16,
    cache_records: u32,
    slot_bytes: u32,
) -> anyhow::Result<Forecast> {
    let rack = Rack {
        nodes,
        partitions: 4096,
        cache_records,
        slot_bytes,
        node_capacity: None,
        outstanding: 256,
        seed: 1,
        maps: 1,
    };
    let (_, outcomes, verdict) = outlook(cluster, &rack)?;
    let gain =
        |way| outcomes.iter().find(|outcome| outcome.way == way).and_then(|outcome| outcome.gain);
    Ok(Forecast {
        write_through: gain(Way::closed_loop(Scheme::NetCache)),
        write_back: gain(Way::ideal(Scheme::FarReach)),
        verdict,
    })
}

/// Predicts for each cluster.
pub(super) fn overview(rack: Rack) -> Vec<Row> {
    twitter::clusters().iter().map(|cluster| Row::of(cluster, rack)).collect()
}

/// The overview as text.
pub(super) fn text(rows: &[Row], rack: &Rack) -> String {
    let mut text = format!(
        "{} clusters of Twitter's caches by their published mean figures (Yang et al., OSDI 2020; \
         CC BY 4.0),\n\
         each as if on {} nodes with {} records of at most {} B cached. Gains are limits, over no \
         cache; far beyond\n\
         the number of nodes, the switch and the clients are the limit. All values of a cluster \
         are taken to have its\n\
         mean length, and operations of less than 1 %, which weren't published, not to occur.\n\n",
        rows.len(),
        rack.nodes,
        grouped(f64::from(rack.cache_records)),
        rack.slot_bytes
    );
    text += &fitting(rows);
    text += &paying(rows);
    let ways = || Way::all().filter(|way| *way != Way::ideal(Scheme::NoCache));
    let head = ["cluster", "writes", "zipf", "key", "value"].map(str::to_owned).into_iter();
    let head = head.chain(SLOTS.map(|slot| format!("{slot} B")));
    let head = head.chain(ways().map(|way| way.short().to_owned()));
    let mut table = Table::of_numbers(head.chain([String::new()]));
    for row in rows {
        let known = |number: Option<String>| number.unwrap_or_else(|| "?".to_owned());
        let fits =
            |fits: Option<bool>| known(fits.map(|fits| if fits { "fits" } else { "-" }.to_owned()));
        let mut cells = vec![
            format!("twitter:{}", row.cluster),
            known(row.write_share.map(percent)),
            known(row.alpha.map(|alpha| format!("{alpha:.2}"))),
            known(row.key_bytes.map(|bytes| bytes.to_string())),
            known(row.value_bytes.map(|bytes| bytes.to_string())),
            fits(row.cacheable[0]),
            fits(row.cacheable[1]),
        ];
        cells.extend(ways().map(|way| known(row.gain(way))));
        cells.push(row.verdict.map_or("unknown", Advice::short).to_owned());
        table.row(cells);
    }
    let _ = write!(text, "\n{table}");
    text += "\n  through: ideal write-through; full: write-through while nodes are full; back: write-back\n";
    for row in rows {
        if let Some(reason) = &row.unknown {
            let _ = writeln!(text, "  {reason}");
        }
    }
    text
}

/// The share of clusters and requests that fits the slots.
fn fitting(rows: &[Row]) -> String {
    let known: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row.cacheable[0]?, row.cacheable[1]?, row.rate_ops?)))
        .collect();
    let all: f64 = known.iter().map(|(.., rate)| rate).sum();
    let mut text = String::new();
    for (at, slot) in SLOTS.iter().enumerate() {
        let fit = known.iter().filter(|(small, large, _)| [*small, *large][at]);
        let (count, rate) = fit.fold((0, 0.0), |(count, sum), (.., rate)| (count + 1, sum + rate));
        let share = percent(rate / all);
        let _ = writeln!(
            text,
            "Slots of {slot} B hold the mean record of {count} of {} clusters, with {share} of the requests.",
            known.len()
        );
    }
    text
}

/// The clusters where write-back pays, and those where it doesn't, with reasons.
fn paying(rows: &[Row]) -> String {
    let of = |verdict: Advice| -> Vec<String> {
        rows.iter()
            .filter(|row| row.verdict == Some(verdict))
            .map(|row| row.cluster.to_string())
            .collect()
    };
    let known = rows.iter().filter(|row| row.verdict.is_some()).count();
    let not = rows.iter().filter(|row| row.verdict.is_some_and(|verdict| !verdict.pays())).count();
    let mut text = format!(
        "\nWRITE-BACK DOES NOT PAY in {not} of the {known} clusters whose figures are known:\n"
    );
    let list = |pays: bool, text: &mut String| {
        for verdict in Advice::ALL.into_iter().filter(|verdict| verdict.pays() == pays) {
            let clusters = of(verdict);
            if !clusters.is_empty() {
                let _ = writeln!(
                    text,
                    "  {:>2} {}: {}",
                    clusters.len(),
                    verdict.reason(),
                    clusters.join(", ")
                );
            }
        }
    };
    list(false, &mut text);
    let _ = writeln!(text, "It pays in {}:", known - not);
    list(true, &mut text);
    text
}
