//! The runs that are both modelled and measured: few nodes, capped so low that only they are busy
//! on two processors.

use super::EXPERIMENTS;
use crate::profile::Profile;
use crate::trial::{Bench, Case};
use std::time::Duration;
use switchback_bench::workload::{Change, Pattern, Workload};
use switchback_wire::Scheme;

/// Partitions of a rack, as many as an embedded rack has.
const PARTITIONS: u32 = 256;
/// Keys that exchange their popularity.
const CHANGED_KEYS: u64 = 200;
/// Latencies are compared at these shares of NoCache's limit, and FarReach's also at shares of its
/// own.
const RATES: [f64; 3] = [0.3, 0.6, 0.9];

/// Sizes and times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub(super) nodes: u16,
    pub(super) capacity_ops: f64,
    pub(super) records: u64,
    pub(super) cache_records: u32,
    /// Outstanding requests in a closed loop.
    pub(super) outstanding: u32,
    pub(super) warmup: Duration,
    pub(super) measured: Duration,
    pub(super) change_every: Duration,
}

impl Scale {
    pub(super) const FULL: Scale = Scale {
        nodes: 4,
        capacity_ops: 1000.0,
        records: 100_000,
        cache_records: 1000,
        outstanding: 256,
        warmup: Duration::from_secs(2),
        measured: Duration::from_secs(8),
        change_every: Duration::from_secs(6),
    };
    pub(super) const QUICK: Scale = Scale {
        records: 20_000,
        cache_records: 500,
        warmup: Duration::from_secs(1),
        measured: Duration::from_secs(3),
        change_every: Duration::from_secs(3),
        ..Scale::FULL
    };

    /// A profile with capped nodes.
    pub(super) fn profile(&self, profile: &Profile) -> Profile {
        Profile { node_cap_ns: (1e9 / self.capacity_ops) as u64, ..profile.clone() }
    }

    /// How long a case is measured. A case with changes has two of them.
    pub(super) fn measured_of(&self, counterpart: &Counterpart) -> Duration {
        if counterpart.change.is_some() { self.change_every * 3 } else { self.measured }
    }

    /// The case that both sides run.
    pub(super) fn case(&self, counterpart: &Counterpart) -> Case {
        Case {
            workload: counterpart.workload,
            records: self.records,
            change: counterpart.change,
            servers: self.nodes,
            cache_records: self.cache_records,
            snapshot_us: counterpart.snapshot_period.as_micros() as u64,
            partitions: PARTITIONS,
            ..Case::default()
        }
    }
}

/// A run that is both modelled and measured.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Counterpart {
    pub(super) experiment: u8,
    pub(super) scheme: Scheme,
    pub(super) workload: Workload,
    /// The parameter that the experiment varies, beside scheme and workload.
    pub(super) parameter: String,
    /// Operations a second in an open loop; `None`: a closed loop.
    pub(super) rate_ops: Option<f64>,
    pub(super) change: Option<Change>,
    pub(super) snapshot_period: Duration,
    pub(super) crashes: bool,
}

impl Counterpart {
    pub(super) fn name(&self) -> String {
        let parameter =
            if self.parameter.is_empty() { String::new() } else { format!(", {}", self.parameter) };
        format!("Exp#{} {} {}{parameter}", self.experiment, self.scheme, self.workload)
    }
}

/// The runs of these experiments.
pub(super) fn of(
    experiments: &[u8],
    scale: &Scale,
    profile: &Profile,
    seed: u64,
) -> Vec<Counterpart> {
    let all = EXPERIMENTS.into_iter().filter(|experiment| experiments.contains(experiment));
    all.flat_map(|experiment| match experiment {
        1 => workloads(),
        2 => latencies(scale, profile, seed),
        7 => changes(),
        8 => snapshots(),
        _ => vec![Counterpart {
            crashes: true,
            parameter: format!("{} cached", scale.cache_records),
            ..plain(9, Scheme::FarReach, Workload::Mix(100.0))
        }],
    })
    .collect()
}

fn plain(experiment: u8, scheme: Scheme, workload: Workload) -> Counterpart {
    Counterpart {
        experiment,
        scheme,
        workload,
        parameter: String::new(),
        rate_ops: None,
        change: None,
        snapshot_period: Duration::from_secs(10),
        crashes: false,
    }
}

fn workloads() -> Vec<Counterpart> {
    let all = [Workload::Load, Workload::A, Workload::B, Workload::C, Workload::D, Workload::F];
    all.into_iter()
        .flat_map(|workload| Scheme::OF_ONE_LAYER.map(|scheme| plain(1, scheme, workload)))
        .collect()
}

/// Rates below the limits of the schemes: shares of NoCache's limit, and for FarReach of its own.
fn latencies(scale: &Scale, profile: &Profile, seed: u64) -> Vec<Counterpart> {
    let bench = Bench::new(scale.case(&plain(2, Scheme::NoCache, Workload::A)), profile, seed);
    let limit_ops = |scheme| bench.ideal_ops(scheme);
    let at = |scheme, rate_ops: f64| {
        let rate_ops = rate_ops.round();
        let parameter = format!("{rate_ops} ops/s");
        Counterpart { parameter, rate_ops: Some(rate_ops), ..plain(2, scheme, Workload::A) }
    };
    let mut cases = Vec::new();
    for share in RATES {
        cases.extend(
            Scheme::OF_ONE_LAYER.map(|scheme| at(scheme, share * limit_ops(Scheme::NoCache))),
        );
    }
    cases.extend(
        RATES[1..].iter().map(|share| at(Scheme::FarReach, share * limit_ops(Scheme::FarReach))),
    );
    cases
}

fn changes() -> Vec<Counterpart> {
    let patterns =
        [("hot-in", Pattern::HotIn), ("hot-out", Pattern::HotOut), ("random", Pattern::Random)];
    let of = |(name, pattern): (&str, Pattern)| {
        let change = Some(Change { pattern, keys: CHANGED_KEYS });
        Scheme::OF_ONE_LAYER.map(|scheme| Counterpart {
            parameter: name.to_owned(),
            change,
            ..plain(7, scheme, Workload::Mix(100.0))
        })
    };
    patterns.into_iter().flat_map(of).collect()
}

fn snapshots() -> Vec<Counterpart> {
    let of = |(name, period_ms): (&str, u64)| Counterpart {
        parameter: String::from(name),
        snapshot_period: Duration::from_millis(period_ms),
        ..plain(8, Scheme::FarReach, Workload::Mix(100.0))
    };
    [("no snapshots", 0), ("every 1 s", 1000), ("every 2.5 s", 2500)].map(of).to_vec()
}
