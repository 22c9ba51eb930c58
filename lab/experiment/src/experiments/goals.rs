//! The goals of the evaluation, judged by the rows of the experiments' CSV files.

use super::Finding;
use crate::output::{CsvRow, Table};
use std::collections::BTreeMap;
use switchback_wire::Scheme;

/// The paper's bandwidth of the control plane at a period of 2.5 s.
const PAPERS_MIB_PER_S: f64 = 1.41;

/// A goal, and the finding: its text, and whether the goal is met. `None`: its experiment wasn't
/// run.
type Goal = (&'static str, Option<(String, bool)>);

/// A scheme that is judged: its baselines, and the CSV files that compare them.
struct Judged {
    scheme: Scheme,
    baselines: &'static [Scheme],
    /// Of cases that have a limit.
    limited: &'static [&'static str],
    all: &'static [&'static str],
    /// Least share of the limit preloaded, and of `limit_learned` cold.
    least: [f64; 2],
}

const ONE_SWITCH: Judged = Judged {
    scheme: Scheme::FarReach,
    baselines: Scheme::OF_ONE_LAYER.split_at(Scheme::OF_ONE_LAYER.len() - 1).0,
    limited: &["exp1", "exp3", "exp4", "exp5", "exp6"],
    all: &["exp1", "exp3", "exp4", "exp5", "exp6", "exp7", "twitter"],
    least: [0.95, 0.95],
};

const TWO_LAYERS: Judged = Judged {
    scheme: Scheme::DistReach,
    baselines: Scheme::OF_LAYERS.split_at(Scheme::OF_LAYERS.len() - 1).0,
    limited: &["exp10", "exp11", "exp12", "expS1_writes", "expS1_skew"],
    all: &["exp10", "exp11", "exp12", "expS1_writes", "expS1_skew", "expS2"],
    least: [0.95, 0.96],
};

/// A table of all goals, with the findings of the experiments that were run.
pub(crate) fn table(findings: &[Finding]) -> Table {
    let of = |name| records(findings, name);
    let goals: [Goal; 10] = [
        (
            "write-back at 95 % of its limit or more; cold, of limit_learned; in each case of \
             Exp#1 and #3 to #6",
            near_its_limit(findings, &ONE_SWITCH),
        ),
        ("never more than 2 % below NetCache or NoCache", never_worse(findings, &ONE_SWITCH)),
        (
            "recovery of 10,000 records within 0.25 s, calibrated costs or the software switch's",
            recovers(&of("exp9"), 10_000.0, 0.25),
        ),
        (
            "recovery of a million records within 3 s, the same costs",
            recovers(&of("exp9"), 1e6, 3.0),
        ),
        ("control plane at a period of 2.5 s below the paper's 1.41 MiB/s", bandwidth(&of("exp8"))),
        ("95 % of the throughput again within 0.5 s of a change", back(&of("exp7"))),
        (
            "two layers at 95 % of their limit or more; cold, at 96 % of limit_learned; in each \
             case of Exp#10 to #12 and #S1",
            near_its_limit(findings, &TWO_LAYERS),
        ),
        (
            "two layers never more than 2 % below the same switches without a cache, or with \
             DistCache",
            never_worse(findings, &TWO_LAYERS),
        ),
        (
            "a chain's 10,000 records, all dirty: held for 25 ms at most when a switch dies, \
             software costs",
            of_chain(&of("exp13"), &["load_us", "store_us"], 25.0),
        ),
        (
            "and admitted again within 45 ms in all, detection apart",
            of_chain(&of("exp13"), &["load_us", "store_us", "readmit_us"], 45.0),
        ),
    ];
    let mut table = Table::new("Goals (modelled)", &["goal", "found", "met"]).with_words(&[1, 2]);
    for (goal, found) in goals {
        let (found, met) = match found {
            Some((found, true)) => (found, "yes"),
            Some((found, false)) => (found, "NO"),
            None => ("not run".to_owned(), "-"),
        };
        table.row(vec![goal.to_owned(), found, met.to_owned()]);
    }
    table
}

fn records<'a>(findings: &'a [Finding], name: &str) -> Vec<CsvRow<'a>> {
    let files = findings.iter().flat_map(|finding| &finding.csv);
    files.filter(|(file, _)| *file == name).flat_map(|(_, csv)| csv.records()).collect()
}

/// Means of a value over the repetitions, by the name of their point.
fn means(values: impl Iterator<Item = (String, f64)>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::<String, (f64, f64)>::new();
    for (name, value) in values {
        let (sum, count) = sums.entry(name).or_default();
        (*sum, *count) = (*sum + value, *count + 1.0);
    }
    sums.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect()
}

/// The name of a point: the parameters that all its repetitions have.
fn point(record: &CsvRow<'_>) -> String {
    let columns = ["workload", "servers", "theta", "value_bytes", "pattern", "start"];
    // One chain isn't worth a word.
    let chains = ["chains"].into_iter().filter(|column| record.number(column) > Some(1.0));
    chains
        .chain(columns)
        .filter_map(|column| Some(format!("{column} {}", record.text(column)?)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// The starts of runs, and the column of the limit that each is judged by, in the order of
/// [`Judged::least`].
const JUDGED_BY: [(&str, &str); 2] = [("preloaded", "of_limit"), ("cold", "of_limit_learned")];

fn near_its_limit(findings: &[Finding], judged: &Judged) -> Option<(String, bool)> {
    let ours = |record: &CsvRow<'_>| record.text("scheme") == Some(judged.scheme.name());
    let files = judged.limited.iter();
    let all: Vec<_> = files.flat_map(|name| records(findings, name)).filter(ours).collect();
    let unsettled: BTreeMap<_, _> = all
        .iter()
        .filter(|record| record.text("converged") == Some("no"))
        .map(|record| (point(record), ()))
        .collect();
    let (mut found, mut met) = (Vec::new(), true);
    for ((start, column), least) in JUDGED_BY.into_iter().zip(judged.least) {
        let of_start = all.iter().filter(|record| record.text("start") == Some(start));
        let results = of_start.filter(|record| !unsettled.contains_key(&point(record)));
        let means =
            means(results.filter_map(|record| Some((point(record), record.number(column)?))));
        let below: Vec<_> = means.iter().filter(|(_, of)| **of < least).collect();
        let (low, high) = means
            .values()
            .fold((f64::MAX, 0.0f64), |(low, high), of| (low.min(*of), high.max(*of)));
        if !means.is_empty() {
            found.push(format!("{start} {low:.3} to {high:.3}"));
            met &= below.is_empty();
        }
        if let Some((point, of)) = below.iter().min_by(|a, b| a.1.total_cmp(b.1)) {
            let (missed, all) = (below.len(), means.len());
            found.push(format!("{missed} of {all} below, at worst {of:.3} ({point})"));
        }
    }
    found.extend(unsettled.keys().map(|point| format!("not converged, no result ({point})")));
    (!found.is_empty()).then(|| (found.join("; "), met))
}

/// The point where write-back is worst, of all experiments that compare the schemes.
fn never_worse(findings: &[Finding], judged: &Judged) -> Option<(String, bool)> {
    let files = judged.all.iter();
    let all: Vec<_> = files.flat_map(|name| records(findings, name)).collect();
    let of = |scheme: &str| {
        let ours = all.iter().filter(|record| record.text("scheme") == Some(scheme));
        means(ours.filter_map(|record| Some((point(record), record.number("throughput_ops")?))))
    };
    let ours = of(judged.scheme.name());
    let ratios = judged.baselines.iter().flat_map(|other| {
        let ratio = |(point, ops): (String, f64)| {
            (ours.get(&point).map_or(0.0, |ours| ours / ops), other, point)
        };
        of(other.name()).into_iter().map(ratio).collect::<Vec<_>>()
    });
    let (ratio, other, point) = ratios.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((format!("at worst {ratio:.3} times {other} ({point})"), ratio >= 0.98))
}

fn recovers(records: &[CsvRow<'_>], size: f64, most_s: f64) -> Option<(String, bool)> {
    // The costs of this machine, if they were calibrated.
    let has = |name: &str| records.iter().any(|record| record.text("profile") == Some(name));
    let name = if has("calibrated") { "calibrated" } else { "software" };
    let of_profile = records.iter().filter(|record| record.text("profile") == Some(name));
    let of_size = of_profile.filter(|record| record.number("cache_records") == Some(size));
    let seconds = of_size.filter_map(|record| {
        Some((record.text("start")?.to_owned(), record.number("total_us")? / 1e6))
    });
    let (start, mean) = means(seconds).into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((format!("{mean:.3} s, costs {name}, {start}"), mean < most_s))
}

/// What the slowest kind of recovery of 10,000 records takes in these columns together.
fn of_chain(records: &[CsvRow<'_>], columns: &[&str], most_ms: f64) -> Option<(String, bool)> {
    let is_one = |record: &&CsvRow<'_>| {
        record.text("profile") == Some("software")
            && record.number("cache_records") == Some(10_000.0)
    };
    let ms = |record: &CsvRow<'_>| {
        let us: Option<f64> = columns.iter().map(|column| record.number(column)).sum();
        Some((record.text("killed")?.to_owned(), us? / 1e3))
    };
    let (killed, mean) = means(records.iter().filter(is_one).filter_map(ms))
        .into_iter()
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((format!("{mean:.1} ms at most (killed: {killed})"), mean <= most_ms))
}

fn bandwidth(records: &[CsvRow<'_>]) -> Option<(String, bool)> {
    let frequent =
        records.iter().filter(|record| record.text("snapshot_period_ms") == Some("2500"));
    let mib = |record: &CsvRow<'_>| {
        Some((point(record), record.number("control_bytes_per_s")? / f64::from(1 << 20)))
    };
    let most = means(frequent.filter_map(mib)).into_values().max_by(f64::total_cmp)?;
    Some((format!("{most:.2} MiB/s"), most < PAPERS_MIB_PER_S))
}

fn back(records: &[CsvRow<'_>]) -> Option<(String, bool)> {
    let ours = records.iter().filter(|record| record.text("scheme") == Some("farreach"));
    let means = means(ours.filter_map(|record| Some((point(record), record.number("back_s")?))));
    let (point, longest) = means.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((format!("{longest:.2} s at most ({point})"), longest <= 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Csv;

    fn finding(file: &'static str, columns: &[&'static str], rows: &[&[&str]]) -> Finding {
        let mut csv = Csv::new(columns);
        rows.iter().for_each(|row| {
            csv.row(&row.iter().map(|field| (*field).to_owned()).collect::<Vec<_>>())
        });
        let (figures, tables, remarks) = (Vec::new(), Vec::new(), Vec::new());
        Finding {
            name: "1",
            title: "",
            paper: "",
            differs: "",
            remarks,
            csv: vec![(file, csv)],
            figures,
            tables,
        }
    }

    #[test]
    fn goals_are_judged_by_means_and_those_not_run_are_marked() {
        let servers = [
            "scheme",
            "servers",
            "start",
            "throughput_ops",
            "of_limit",
            "of_limit_learned",
            "converged",
        ];
        let exp3 = finding(
            "exp3",
            &servers,
            &[
                &["farreach", "16", "preloaded", "100", "0.98", "", "yes"],
                &["farreach", "16", "preloaded", "100", "0.94", "", "yes"],
                &["nocache", "16", "preloaded", "103", "0.90", "", "yes"],
                &["farreach", "16", "cold", "200", "0.60", "0.97", "yes"],
                &["farreach", "32", "cold", "100", "0.50", "0.50", "no"],
                &["farreach", "64", "cold", "100", "0.99", "0.94", "yes"],
            ],
        );
        let sizes = ["profile", "cache_records", "start", "total_us"];
        let exp9 = finding(
            "exp9",
            &sizes,
            &[
                &["paper", "10000", "preloaded", "1"],
                &["software", "10000", "cold", "300000"],
                &["software", "10000", "preloaded", "100000"],
            ],
        );
        let table = table(&[exp3, exp9]);
        let found: Vec<_> =
            table.rows.iter().map(|row| (row[1].as_str(), row[2].as_str())).collect();
        let judged = "preloaded 0.960 to 0.960; cold 0.940 to 0.970; 1 of 2 below, at worst 0.940 \
                      (servers 64, start cold); not converged, no result (servers 32, start cold)";
        assert_eq!(found[0], (judged, "NO"));
        assert_eq!(found[1], ("at worst 0.971 times nocache (servers 16, start preloaded)", "NO"));
        assert_eq!(found[2], ("0.300 s, costs software, cold", "NO"));
        assert_eq!(found[3..], [("not run", "-"); 7]);
    }

    #[test]
    fn two_layers_have_goals_of_their_own() {
        let columns =
            ["scheme", "chains", "start", "throughput_ops", "of_limit", "of_limit_learned"];
        let exp11 = finding(
            "exp11",
            &columns,
            &[
                &["distreach", "2", "preloaded", "100", "0.96", ""],
                &["distreach", "2", "cold", "100", "0.60", "0.955"],
                &["nocache", "2", "preloaded", "50", "1.00", ""],
            ],
        );
        let columns = ["profile", "killed", "cache_records", "load_us", "store_us", "readmit_us"];
        let exp13 = finding(
            "exp13",
            &columns,
            &[
                &["software", "owner", "10000", "9000", "14000", "20000"],
                &["software", "keeper", "10000", "9000", "17000", "10000"],
                &["paper", "owner", "10000", "900000", "140000", "20000"],
            ],
        );
        let table = table(&[exp11, exp13]);
        let found: Vec<_> =
            table.rows.iter().map(|row| (row[1].as_str(), row[2].as_str())).collect();
        let judged = "preloaded 0.960 to 0.960; cold 0.955 to 0.955; 1 of 1 below, at worst 0.955 \
                      (chains 2, start cold)";
        assert_eq!(found[6], (judged, "NO"));
        assert_eq!(found[7], ("at worst 2.000 times nocache (chains 2, start preloaded)", "yes"));
        assert_eq!(found[8], ("26.0 ms at most (killed: keeper)", "NO"));
        assert_eq!(found[9], ("43.0 ms at most (killed: owner)", "yes"));
    }
}
