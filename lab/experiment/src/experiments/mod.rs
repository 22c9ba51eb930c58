//! The experiments: those of FarReach's and of DistReach's papers and one on real workloads, each
//! with its runs and the texts of its report.

mod cleaning;
mod dynamic;
mod failure;
pub(crate) mod goals;
mod hops;
mod latency;
mod memo;
mod recovery;
mod resources;
mod snapshots;
mod sweep;
mod twitter;

use crate::output::{Csv, Figure, Table};
use crate::pool;
use crate::profile::Profile;
use crate::trial::{Case, Effort};
use indicatif::ProgressBar;
use std::sync::Arc;
use switchback_bench::workload::ValueBytes;
use switchback_wire::Scheme;

pub(crate) use memo::Memo;

/// What all experiments of one command line share.
pub(crate) struct Context {
    pub(crate) profile: Profile,
    pub(crate) effort: Effort,
    /// Of the experiments that are not about lengths.
    pub(crate) value_bytes: ValueBytes,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    pub(crate) progress: ProgressBar,
    /// Runs that several experiments need.
    pub(crate) memo: Arc<Memo>,
}

impl Context {
    /// The case that an experiment varies.
    pub(crate) fn case(&self) -> Case {
        Case { value_bytes: self.value_bytes.clone(), ..Case::default() }
    }

    /// The seeds of the repetitions.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        (0..self.effort.repetitions).map(|repetition| self.seed + repetition).collect()
    }

    /// Runs every job, the costliest first; progress is counted in costs. Results are in the order
    /// of the jobs.
    pub(crate) fn run_all<J: Sync, R: Send>(
        &self,
        jobs: &[J],
        cost: impl Fn(&J) -> u64 + Sync,
        work: impl Fn(&J) -> R + Sync,
    ) -> Vec<R> {
        self.progress.set_length(jobs.iter().map(&cost).sum());
        pool::run(self.threads, jobs, &cost, |job| {
            let result = work(job);
            self.progress.inc(cost(job));
            result
        })
    }

    /// A figure's origin: profile and seeds.
    pub(crate) fn origin(&self) -> String {
        self.origin_of(self.profile.name, self.effort.repetitions)
    }

    /// The origin of a figure of this profile with `seeds` seeds.
    pub(crate) fn origin_of(&self, profile: &str, seeds: u64) -> String {
        format!("modelled (virtual time), profile {profile}, {}", seeds_named(self.seed, seeds))
    }
}

/// Names `count` seeds from `first` on.
pub(crate) fn seeds_named(first: u64, count: u64) -> String {
    if count == 1 {
        format!("seed {first}")
    } else {
        format!("seeds {first} to {}", first + count - 1)
    }
}

/// The same case with two layers of two switches, the rack of DistReach's experiments, and the
/// schemes that have layers.
pub(crate) fn layered(case: &Case) -> Case {
    Case { schemes: &Scheme::OF_LAYERS, chains: 2, layers: 2, ..case.clone() }
}

/// The findings of an experiment, and the texts about them.
pub(crate) struct Finding {
    /// Name of the experiment.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The paper's findings.
    pub(crate) paper: &'static str,
    /// Why ours differ, where they do.
    pub(crate) differs: &'static str,
    /// Remarks, each with a heading and a text.
    pub(crate) remarks: Vec<(&'static str, String)>,
    /// CSV files, with their names without `.csv`.
    pub(crate) csv: Vec<(&'static str, Csv)>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<Table>,
}

impl Finding {
    /// Name and title.
    pub(crate) fn heading(&self) -> String {
        format!("{}: {}", label(self.name), self.title)
    }
}

/// Whether an experiment is one of the papers': those have numbers.
fn is_published(name: &str) -> bool {
    name.contains(|letter: char| letter.is_ascii_digit())
}

/// The name of an experiment's files.
pub(crate) fn file(name: &str) -> String {
    if is_published(name) { format!("exp{name}") } else { name.to_owned() }
}

/// The name of an experiment in headings; the papers' have numbers.
pub(crate) fn label(name: &str) -> String {
    if is_published(name) { format!("Exp#{name}") } else { name.to_owned() }
}

/// An experiment.
pub(crate) struct Experiment {
    /// Name on the command line; the papers' have numbers.
    pub(crate) name: &'static str,
    /// Its approximate share of the time of all experiments, if they run in this order.
    pub(crate) weight: u64,
    run: fn(&Context) -> Finding,
}

impl Experiment {
    /// All experiments.
    pub(crate) const ALL: &[Experiment] = &[
        Experiment { name: "1", weight: 25, run: |context| sweep::run(context, &sweep::WORKLOADS) },
        Experiment { name: "2", weight: 15, run: latency::run },
        Experiment { name: "3", weight: 90, run: |context| sweep::run(context, &sweep::SERVERS) },
        Experiment { name: "4", weight: 15, run: |context| sweep::run(context, &sweep::WRITES) },
        Experiment { name: "5", weight: 20, run: |context| sweep::run(context, &sweep::SKEW) },
        Experiment { name: "6", weight: 30, run: |context| sweep::run(context, &sweep::VALUES) },
        Experiment {
            name: "7",
            weight: 70,
            run: |context| dynamic::run(context, &dynamic::ONE_SWITCH),
        },
        Experiment { name: "8", weight: 40, run: snapshots::run },
        Experiment { name: "9", weight: 20, run: recovery::run },
        Experiment {
            name: "10",
            weight: 25,
            run: |context| sweep::run(context, &sweep::LAYERED_WORKLOADS),
        },
        Experiment { name: "11", weight: 20, run: |context| sweep::run(context, &sweep::SWITCHES) },
        Experiment {
            name: "12",
            weight: 40,
            run: |context| sweep::run(context, &sweep::LAYERED_SERVERS),
        },
        Experiment { name: "13", weight: 40, run: failure::by_size },
        Experiment { name: "13b", weight: 10, run: failure::seen_by_others },
        Experiment { name: "14", weight: 5, run: resources::run },
        Experiment {
            name: "S1",
            weight: 30,
            run: |context| sweep::run_all(context, &[&sweep::LAYERED_WRITES, &sweep::LAYERED_SKEW]),
        },
        Experiment {
            name: "S2",
            weight: 70,
            run: |context| dynamic::run(context, &dynamic::TWO_LAYERS),
        },
        Experiment { name: "S3", weight: 20, run: failure::by_layers },
        Experiment { name: "S4", weight: 5, run: hops::run },
        Experiment {
            name: "S5",
            weight: 40,
            run: |context| sweep::run_all(context, &[&sweep::CAPACITY, &sweep::CAPACITY_CHAINS]),
        },
        Experiment { name: "S6", weight: 60, run: cleaning::run },
        Experiment { name: "twitter", weight: 90, run: twitter::run },
    ];

    /// Runs it.
    pub(crate) fn run(&self, context: &Context) -> Finding {
        (self.run)(context)
    }
}
