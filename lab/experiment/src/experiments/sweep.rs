//! Throughput by one parameter: Exp#1, #3 to #6, and with several switches #10 to #12, #S1 and #S5.

use super::{Context, Finding, label, layered};
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Table, Ticks};
use crate::profile::Profile;
use crate::trial::{Case, Measured};
use switchback_bench::workload::{ValueBytes, Workload};
use switchback_wire::{PerScheme, Scheme};

/// A parameter and its values.
pub(crate) struct Sweep {
    /// Name of the experiment.
    name: &'static str,
    file: &'static str,
    title: &'static str,
    /// Name of the parameter in tables, and at the axis of a figure.
    parameter: &'static str,
    axis: &'static str,
    /// Whether the values of the parameter have an order.
    is_ordered: bool,
    /// Whether both axes of a figure are logarithmic.
    is_logarithmic: bool,
    /// Values of the parameter: name and case, by the case that is varied.
    points: fn(&Case) -> Vec<(String, Case)>,
    paper: &'static str,
    differs: &'static str,
}

/// Exp#1.
pub(crate) const WORKLOADS: Sweep = Sweep {
    name: "1",
    file: "exp1",
    title: "Throughput by workload",
    parameter: "workload",
    axis: "YCSB workload",
    is_ordered: false,
    is_logarithmic: false,
    points: |base| {
        let all = [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::F];
        all.into_iter()
            .map(|workload| (workload.to_string(), Case { workload, ..base.clone() }))
            .collect()
    },
    paper: "16 servers: FarReach exceeds NoCache by 90.8 % (A), 55.0 % (B), 84.3 % (C), 71.7 % \
            (F), NetCache by 83.9 % (A), 20.0 % (B), 61.4 % (F); the same as NetCache on C, and as \
            both on Insert and D. A node does 0.06 MOPS.",
    differs: "The paper's own gains are well below the limit of write-back for such a workload; it \
              does not say what else limited its rack. Here only nodes have a limited capacity, \
              and FarReach reaches its limit except in D: the hot keys there were just inserted, \
              and the limit is that of a cache that has the newest records without delay. Each \
              scheme is shown with the number of outstanding requests at which its throughput is \
              highest. For NetCache that is a small number: a hot key's writes wait in the queue \
              of the busiest node, and until they are done its reads miss, so it gains more in B. \
              The paper doesn't say how many it had. Of absolute figures its text has few: about 1 \
              MOPS of uniform requests (here 16 nodes of 0.06 make 0.96), about 0.7 MOPS without a \
              cache at Zipf 0.99 (values of 256 B; nocache in A to C and in Exp#4 to #6: the \
              hottest key alone draws 5 % of all requests, so that the result depends on the map \
              of keys to nodes), about 0.2 MOPS of FarReach on two servers (Exp#7 and #8).",
};

/// Exp#3.
pub(crate) const SERVERS: Sweep = Sweep {
    name: "3",
    file: "exp3",
    title: "Scalability: throughput by number of servers",
    parameter: "servers",
    axis: "servers",
    is_ordered: true,
    is_logarithmic: true,
    points: |base| {
        let all = [16, 32, 64, 128, 256, 1024];
        all.into_iter()
            .map(|servers| (servers.to_string(), Case { servers, ..base.clone() }))
            .collect()
    },
    paper: "Workload A: FarReach reaches 1.9, 2.5, 3.9 and 6.6 times NoCache with 16, 32, 64 and \
            128 servers; NetCache is as NoCache.",
    differs: "As in Exp#1: write-back's own limit is two to three times higher than what the paper \
              measured. 256 and 1024 servers are not in the paper.",
};

/// Exp#4.
pub(crate) const WRITES: Sweep = Sweep {
    name: "4",
    file: "exp4",
    title: "Throughput by share of writes",
    parameter: "write_percent",
    axis: "share of writes, %",
    is_ordered: true,
    is_logarithmic: false,
    points: |base| {
        let case = |percent| Case { workload: Workload::Mix(percent), ..base.clone() };
        [0.0, 25.0, 50.0, 75.0, 100.0]
            .into_iter()
            .map(|percent| (percent.to_string(), case(percent)))
            .collect()
    },
    paper: "FarReach exceeds NoCache by 67.1 to 135.3 %, and NetCache by 48.3 to 185.7 % from 25 % \
            of writes on; without writes it is as NetCache. At 100 % NetCache is below NoCache, \
            because nodes update the cache.",
    differs: "The cost of an update was fitted to the last of these: 135.3 against 185.7 % make \
              NetCache 0.82 of NoCache.",
};

/// Exp#5.
pub(crate) const SKEW: Sweep = Sweep {
    name: "5",
    file: "exp5",
    title: "Throughput by skew",
    parameter: "theta",
    axis: "Zipf exponent",
    is_ordered: true,
    is_logarithmic: false,
    points: |base| {
        let case = |theta| Case { workload: Workload::Mix(100.0), theta, ..base.clone() };
        [0.0, 0.9, 0.95, 0.99, 1.2]
            .into_iter()
            .map(|theta| (theta.to_string(), case(theta)))
            .collect()
    },
    paper: "Writes only. Uniform: about 1 MOPS with every scheme. Skewed: FarReach exceeds NoCache \
            by 34.2 to 135.3 %, NetCache by 50.4 to 185.7 %, the more the higher the skew.",
    differs: "16 nodes of 0.06 MOPS make 0.96 MOPS of uniform requests. 1.2 is not in the paper.",
};

/// Exp#6.
pub(crate) const VALUES: Sweep = Sweep {
    name: "6",
    file: "exp6",
    title: "Throughput by size of values",
    parameter: "value_bytes",
    axis: "size of values, B",
    is_ordered: true,
    is_logarithmic: false,
    points: |base| {
        let case = |bytes| Case {
            workload: Workload::Mix(100.0),
            value_bytes: ValueBytes::constant(bytes),
            ..base.clone()
        };
        [16, 32, 64, 128, 256, 512, 1024]
            .into_iter()
            .map(|bytes| (bytes.to_string(), case(bytes)))
            .collect()
    },
    paper: "Writes only, 16 to 128 B: FarReach has 2.3 times NoCache's and NetCache's throughput \
            at every size. 256 B do not fit the switch: about 0.7 MOPS with every scheme.",
    differs: "A slot of this switch holds the longest of these values, so all are cached. The \
              paper gives one service time only, of 128 B; the cost of each further byte was \
              measured on this repository's node. At 256 B the paper's rack has no cache: compare \
              its 0.7 MOPS to NoCache.",
};

/// Exp#10.
pub(crate) const LAYERED_WORKLOADS: Sweep = Sweep {
    name: "10",
    file: "exp10",
    title: "Two layers of two switches: throughput by workload",
    points: |base| (WORKLOADS.points)(&layered(base)),
    paper: "2 spine and 2 leaf switches of 10,000 records each, 16 servers, in Mininet: DistReach \
            exceeds DistNoCache by 133.1 % (A), 126.7 % (B, F), 130 % (C), 23.8 % (D), and has the \
            same on Insert; it exceeds DistCache by 90.0 % (A), 41.8 % (B), 78.0 % (F).",
    differs: "DistNoCache is nocache here: the same switches and links, without a cache. \
              `distcache` has a switch of each layer for a key, of which either may have a copy; \
              its clients send writes to the leaf, and reads to the one of the two that they sent \
              less to. Its limit is that of write-through without any message to copies, and \
              without the time in which they are invalid; its nodes let writes that wait for each \
              other share messages. The paper's servers take 100 ms for a request, which hides \
              what else limited its rack; only ratios can be compared. A chain is one switch of \
              each layer, and each of the two caches 10,000 keys of its own.",
    ..WORKLOADS
};

/// Exp#11.
pub(crate) const SWITCHES: Sweep = Sweep {
    name: "11",
    file: "exp11",
    title: "Two layers: throughput by number of switches in each",
    parameter: "chains",
    axis: "switches in each layer",
    is_ordered: true,
    is_logarithmic: true,
    points: |base| {
        let case = |chains| Case { chains, ..writes_only(layered(base)) };
        [1, 2, 4, 8].into_iter().map(|chains| (chains.to_string(), case(chains))).collect()
    },
    paper: "Writes only, 16 servers: DistReach gains 16.9 % from 1 to 8 switches a layer, and has \
            2.7 times the throughput of DistNoCache and of DistCache with 8.",
    differs: "Each chain caches 10,000 records of its own keys, so more switches are more room: \
              the limit rises by 28 % from 1 to 8.",
};

/// Exp#12.
pub(crate) const LAYERED_SERVERS: Sweep = Sweep {
    name: "12",
    file: "exp12",
    title: "Two layers of two switches: throughput by number of servers",
    points: |base| {
        let case = |servers| Case { servers, ..writes_only(layered(base)) };
        [8, 16, 32, 64, 128]
            .into_iter()
            .map(|servers| (servers.to_string(), case(servers)))
            .collect()
    },
    paper: "Writes only, 8 to 64 servers: DistReach reaches 2.1 to 5.4 times DistNoCache, and 2.1 \
            to 6.8 times DistCache.",
    differs: "128 servers are not in the paper.",
    ..SERVERS
};

/// The first half of Exp#S1.
pub(crate) const LAYERED_WRITES: Sweep = Sweep {
    name: "S1",
    file: "expS1_writes",
    title: "Two layers of two switches: throughput by share of writes, and by skew",
    points: |base| (WRITES.points)(&layered(base)),
    paper: "The supplement: up to 2.4 times DistNoCache, the more the more writes and skew.",
    differs: "",
    ..WRITES
};

/// The second half of Exp#S1.
pub(crate) const LAYERED_SKEW: Sweep = Sweep {
    file: "expS1_skew",
    points: |base| {
        let case = |theta| Case { theta, ..writes_only(layered(base)) };
        [0.9, 0.95, 0.99].into_iter().map(|theta| (theta.to_string(), case(theta))).collect()
    },
    parameter: SKEW.parameter,
    axis: SKEW.axis,
    ..LAYERED_WRITES
};

/// The first half of Exp#S5.
pub(crate) const CAPACITY: Sweep = Sweep {
    name: "S5",
    file: "expS5_capacity",
    title: "Two layers: throughput of switches with a capacity",
    parameter: "switch_mpps",
    axis: "packets a switch passes, M/s",
    is_ordered: true,
    is_logarithmic: true,
    points: |base| {
        let case = |switch_packet_ns| Case { switch_packet_ns, ..in_chains(base) };
        [4_000, 2_000, 1_000, 500, 250, 125]
            .into_iter()
            .map(case)
            .map(|case| (mpps(&case).expect("it has a limit"), case))
            .collect()
    },
    paper: "Not in the paper.",
    differs: "Each switch passes one packet after the other, and all others wait. A request passes \
              the first switch of its chain twice, as the request and as its answer, whether the \
              cache has its key or not, so `limit of switches` is the same for both schemes: the \
              capacity over twice the share of the busiest chain. `limit` is the less of that and \
              of what the nodes allow. The first sweep is workload A on 16 servers with two \
              switches a layer. The second has 64 servers and switches of 0.25 M packets/s, which \
              are the limit then, so that it shows how evenly chains share the load. DistCache \
              isn't among them: its requests don't pass each layer, so that it has another limit.",
};

/// The second half of Exp#S5.
pub(crate) const CAPACITY_CHAINS: Sweep = Sweep {
    file: "expS5_switches",
    parameter: SWITCHES.parameter,
    axis: SWITCHES.axis,
    points: |base| {
        let base = Case { switch_packet_ns: 4_000, servers: 64, ..in_chains(base) };
        let case = |chains| Case { chains, ..base.clone() };
        [1, 2, 4, 8].into_iter().map(|chains| (chains.to_string(), case(chains))).collect()
    },
    ..CAPACITY
};

/// Packets that a switch of a limited capacity passes, in millions a second.
fn mpps(case: &Case) -> Option<String> {
    case.switch_pps().map(|pps| (pps / 1e6).to_string())
}

/// The layered case with the schemes whose packets cross each layer.
fn in_chains(base: &Case) -> Case {
    Case { schemes: &[Scheme::NoCache, Scheme::DistReach], ..layered(base) }
}

fn writes_only(case: Case) -> Case {
    Case { workload: Workload::Mix(100.0), ..case }
}

/// A run of all schemes, preloaded or cold.
struct Run {
    point: usize,
    is_cold: bool,
    seed: u64,
    measured: PerScheme<Measured>,
}

/// Runs the sweeps of an experiment, which the first of them names.
pub(crate) fn run_all(context: &Context, sweeps: &[&Sweep]) -> Finding {
    let findings = sweeps.iter().map(|sweep| run(context, sweep));
    let joined = findings.reduce(|mut all, more| {
        all.csv.extend(more.csv);
        all.figures.extend(more.figures);
        all.tables.extend(more.tables);
        all
    });
    joined.expect("an experiment has a sweep")
}

/// Runs a sweep.
pub(crate) fn run(context: &Context, sweep: &Sweep) -> Finding {
    let points = (sweep.points)(&context.case());
    let seeds = context.seeds();
    let wanted: Vec<_> = points
        .iter()
        .flat_map(|(_, case)| seeds.iter().map(|seed| (case.clone(), *seed)))
        .collect();
    let results = context.memo.measure(context, &wanted);
    let mut runs = Vec::new();
    for point in 0..points.len() {
        for is_cold in [false, true] {
            runs.extend(seeds.iter().enumerate().map(|(at, &seed)| {
                let measured = results[point * seeds.len() + at].of(is_cold).clone();
                Run { point, is_cold, seed, measured }
            }));
        }
    }
    let names: Vec<_> = points.iter().map(|(name, _)| name.clone()).collect();
    let case = &points[0].1;
    let results_of = |is_cold| Results { sweep, names: &names, case, is_cold, runs: &runs };
    let results = [results_of(false), results_of(true)];
    Finding {
        name: sweep.name,
        title: sweep.title,
        paper: sweep.paper,
        differs: sweep.differs,
        remarks: Vec::new(),
        csv: vec![(sweep.file, csv(context, &points, &runs))],
        figures: results.iter().map(|results| results.figure(context)).collect(),
        tables: results.iter().map(Results::table).collect(),
    }
}

/// The columns that every row has.
pub(crate) const COLUMNS: [&str; 28] = [
    "kind",
    "profile",
    "scheme",
    "chains",
    "layers",
    "servers",
    "workload",
    "theta",
    "value_bytes",
    "records",
    "cache_records",
    "start",
    "throughput_ops",
    "limit_ops",
    "limit_learned_ops",
    "limit_cached_ops",
    "of_limit",
    "of_limit_learned",
    "of_limit_cached",
    "outstanding",
    "hit_ratio",
    "cached",
    "busiest_node",
    "failed",
    "operations",
    "converged",
    "seed",
    "commit",
];

/// A row of these columns.
pub(crate) fn row(
    profile: &Profile,
    scheme: Scheme,
    case: &Case,
    seed: u64,
    measured: &Measured,
) -> Vec<String> {
    let limits = [Some(measured.limit_ops), measured.limit_learned_ops, measured.limit_cached_ops];
    let [limit, learned, cached] =
        limits.map(|ops| ops.map_or(String::new(), |ops| format!("{ops:.0}")));
    let of = limits.map(|ops| {
        ops.map_or(String::new(), |ops| format!("{:.4}", measured.throughput_ops / ops))
    });
    let [of_limit, of_learned, of_cached] = of;
    vec![
        "modelled".to_owned(),
        profile.name.to_owned(),
        scheme.to_string(),
        case.chains.to_string(),
        case.layers.to_string(),
        case.servers.to_string(),
        case.workload.to_string(),
        case.theta.to_string(),
        case.value_bytes.to_string(),
        case.records.to_string(),
        case.cache_records.to_string(),
        start(case.is_cold).to_owned(),
        format!("{:.0}", measured.throughput_ops),
        limit,
        learned,
        cached,
        of_limit,
        of_learned,
        of_cached,
        measured.outstanding.to_string(),
        format!("{:.4}", measured.hit_ratio),
        measured.cached.to_string(),
        format!("{:.4}", measured.busiest),
        measured.failed.to_string(),
        measured.operations.to_string(),
        if measured.is_converged { "yes" } else { "no" }.to_owned(),
        seed.to_string(),
        COMMIT.to_owned(),
    ]
}

/// The start of a run, as files and titles name it.
pub(crate) fn start(is_cold: bool) -> &'static str {
    if is_cold { "cold" } else { "preloaded" }
}

/// A file with a row for each run of each scheme. Those of switches with a capacity have two
/// columns more.
fn csv(context: &Context, points: &[(String, Case)], runs: &[Run]) -> Csv {
    let is_limited = points.iter().any(|(_, case)| case.switch_pps().is_some());
    let more: &[&str] = if is_limited { &["switch_mpps", "limit_switches_ops"] } else { &[] };
    let mut csv = Csv::new(&[&COLUMNS[..], more].concat());
    for Run { point, is_cold, seed, measured } in runs {
        let case = Case { is_cold: *is_cold, ..points[*point].1.clone() };
        for (scheme, measured) in measured.iter() {
            let mut fields = row(&context.profile, scheme, &case, *seed, measured);
            fields.extend(mpps(&case));
            fields.extend(measured.limit_switches_ops.map(|ops| format!("{ops:.0}")));
            csv.row(&fields);
        }
    }
    csv
}

/// The results of the runs with one start, by the values of the parameter.
struct Results<'a> {
    sweep: &'a Sweep,
    names: &'a [String],
    /// One of its cases, which all compare the same schemes.
    case: &'a Case,
    is_cold: bool,
    runs: &'a [Run],
}

impl Results<'_> {
    /// The mean of `value` over the repetitions of a point.
    fn of(&self, point: usize, value: impl Fn(&PerScheme<Measured>) -> f64) -> Estimate {
        Estimate::of(&self.runs(point).map(value).collect::<Vec<_>>())
    }

    fn runs(&self, point: usize) -> impl Iterator<Item = &PerScheme<Measured>> {
        let mine = move |run: &&Run| run.point == point && run.is_cold == self.is_cold;
        self.runs.iter().filter(mine).map(|run| &run.measured)
    }

    /// A table with means of the repetitions and their ratios.
    fn table(&self) -> Table {
        let title = format!(
            "Throughput in Mops (modelled), {}: mean and 95 % confidence",
            start(self.is_cold)
        );
        let (ours, schemes, baselines) =
            (self.case.ours(), self.case.schemes, self.case.baselines());
        let mut head = vec![self.sweep.parameter.to_owned()];
        head.extend(schemes.iter().map(Scheme::to_string));
        head.push("limit".to_owned());
        let is_limited = self.case.switch_pps().is_some();
        if is_limited {
            head.push("limit of switches".to_owned());
        }
        if self.is_cold {
            head.push("limit_learned".to_owned());
        }
        head.push("of limit".to_owned());
        if self.is_cold {
            head.push("of limit_learned".to_owned());
        }
        head.push("of limit_cached".to_owned());
        let with_limit = |scheme: &&Scheme| **scheme == Scheme::NoCache || scheme.has_copies();
        let limited: Vec<_> = baselines.iter().filter(with_limit).collect();
        head.extend(limited.iter().map(|other| format!("{other} of limit")));
        head.extend(baselines.iter().map(|other| format!("x {other}")));
        head.extend(schemes.iter().map(|scheme| format!("{scheme} outstanding")));
        let mut table = Table::new(title, &head);
        for (point, name) in self.names.iter().enumerate() {
            let ratio =
                |other| self.of(point, |m| m[ours].throughput_ops / m[other].throughput_ops).mean;
            let of = |scheme: Scheme, limit: fn(&Measured) -> Option<f64>| {
                let runs: Option<Vec<_>> = self
                    .runs(point)
                    .map(|m| limit(&m[scheme]).map(|ops| m[scheme].throughput_ops / ops))
                    .collect();
                runs.map_or("-".to_owned(), |runs| format!("{:.3}", Estimate::of(&runs).mean))
            };
            let is_result =
                self.runs(point).all(|measured| measured.iter().all(|(_, run)| run.is_converged));
            let mut cells = vec![if is_result {
                name.clone()
            } else {
                format!("{name} (not converged: no result)")
            }];
            let throughput = |scheme: &Scheme| self.of(point, |m| m[*scheme].throughput_ops);
            cells.extend(schemes.iter().map(|scheme| mops(throughput(scheme))));
            cells.push(mops(self.of(point, |m| m[ours].limit_ops)));
            if is_limited {
                let of_switches = |m: &PerScheme<Measured>| m[ours].limit_switches_ops;
                cells.push(mops(self.of(point, |m| of_switches(m).expect("they have one"))));
            }
            if self.is_cold {
                cells.push(mops(self.of(point, |m| m[ours].goal_ops())));
            }
            cells.push(of(ours, |m| Some(m.limit_ops)));
            if self.is_cold {
                cells.push(of(ours, |m| m.limit_learned_ops));
            }
            cells.push(of(ours, |m| m.limit_cached_ops));
            cells.extend(limited.iter().map(|other| of(**other, |m| Some(m.limit_ops))));
            cells.extend(baselines.iter().map(|other| format!("{:.2}", ratio(*other))));
            let outstanding =
                |scheme: &Scheme| self.of(point, |m| f64::from(m[*scheme].outstanding)).mean;
            cells.extend(schemes.iter().map(|scheme| format!("{:.0}", outstanding(scheme))));
            table.row(cells);
        }
        table
    }

    /// Positions of the parameter's values on the horizontal axis.
    fn positions(&self) -> Vec<f64> {
        let ratio =
            |name: &String| name.parse().ok().filter(|_| self.sweep.is_logarithmic).map(f64::log2);
        self.names.iter().enumerate().map(|(at, name)| ratio(name).unwrap_or(at as f64)).collect()
    }

    fn figure(&self, context: &Context) -> Figure {
        let positions = self.positions();
        let in_mops = |estimate: Estimate| Estimate {
            mean: estimate.mean / 1e6,
            half_width: estimate.half_width / 1e6,
        };
        let means = |value: &dyn Fn(&PerScheme<Measured>) -> f64| {
            positions
                .iter()
                .enumerate()
                .map(|(point, &at)| (at, in_mops(self.of(point, value))))
                .collect()
        };
        let ours = self.case.ours();
        let line = |(at, scheme): (usize, &Scheme)| {
            Series::line(scheme.name(), at, means(&|m| m[*scheme].throughput_ops))
        };
        let mut all: Vec<_> = self.case.schemes.iter().enumerate().map(line).collect();
        let limit =
            if self.is_cold { "limit_learned of write-back" } else { "limit of write-back" };
        all.push(Series::limit(limit, means(&|m| m[ours].goal_ops())));
        let names = self.names.to_vec();
        Figure {
            name: format!("{}_{}", self.sweep.file, start(self.is_cold)),
            title: format!(
                "{} {}, {}",
                label(self.sweep.name),
                self.sweep.title,
                start(self.is_cold)
            ),
            x_label: self.sweep.axis,
            y_label: "throughput, Mops",
            ticks: match self.sweep.is_ordered {
                true => Ticks::Steps(positions.into_iter().zip(names).collect()),
                false => Ticks::Kinds(names),
            },
            is_logarithmic: self.sweep.is_logarithmic,
            series: all,
            origin: context.origin(),
        }
    }
}

/// An estimate in millions a second.
pub(crate) fn mops(estimate: Estimate) -> String {
    format!("{:.3} +-{:.3}", estimate.mean / 1e6, estimate.half_width / 1e6)
}
