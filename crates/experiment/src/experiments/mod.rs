//! The nine experiments: what each runs, and what is said about it.

mod dynamic;
mod latency;
mod recovery;
mod snapshots;
mod sweep;

use crate::output::{Csv, Figure, Table};
use crate::profile::Profile;
use crate::trial::Effort;
use indicatif::ProgressBar;

/// What all experiments of one call share.
pub(crate) struct Context {
    pub(crate) profile: Profile,
    pub(crate) effort: Effort,
    pub(crate) seed: u64,
    pub(crate) threads: usize,
    /// Steps forward with every run.
    pub(crate) progress: ProgressBar,
}

impl Context {
    /// The seeds of the repetitions.
    pub(crate) fn seeds(&self) -> Vec<u64> {
        (0..self.effort.repetitions).map(|repetition| self.seed + repetition).collect()
    }

    /// Where a figure comes from.
    pub(crate) fn origin(&self) -> String {
        self.origin_of(self.profile.name)
    }

    /// The same, of a profile.
    pub(crate) fn origin_of(&self, profile: &str) -> String {
        format!("profile {profile}, seeds {} to {}", self.seed, self.seed + self.effort.repetitions - 1)
    }
}

/// What an experiment found.
pub(crate) struct Finding {
    pub(crate) number: u8,
    pub(crate) title: &'static str,
    /// What the paper says.
    pub(crate) paper: &'static str,
    /// Why ours differs, where it does.
    pub(crate) differs: &'static str,
    /// Files by name, without `.csv`.
    pub(crate) csv: Vec<(&'static str, Csv)>,
    pub(crate) figures: Vec<Figure>,
    pub(crate) tables: Vec<Table>,
}

/// An experiment.
pub(crate) struct Experiment {
    pub(crate) number: u8,
    run: fn(&Context) -> Finding,
}

impl Experiment {
    /// All there are.
    pub(crate) const ALL: &[Experiment] = &[
        Experiment { number: 1, run: |context| sweep::run(context, &sweep::WORKLOADS) },
        Experiment { number: 2, run: latency::run },
        Experiment { number: 3, run: |context| sweep::run(context, &sweep::SERVERS) },
        Experiment { number: 4, run: |context| sweep::run(context, &sweep::WRITES) },
        Experiment { number: 5, run: |context| sweep::run(context, &sweep::SKEW) },
        Experiment { number: 6, run: |context| sweep::run(context, &sweep::VALUES) },
        Experiment { number: 7, run: dynamic::run },
        Experiment { number: 8, run: snapshots::run },
        Experiment { number: 9, run: recovery::run },
    ];

    /// Runs it.
    pub(crate) fn run(&self, context: &Context) -> Finding {
        (self.run)(context)
    }
}
