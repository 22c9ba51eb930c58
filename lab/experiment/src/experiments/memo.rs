//! A memo of throughputs: a run that several experiments need is made once.

use super::Context;
use crate::profile::Profile;
use crate::trial::{Bench, Case, Effort, Measured};
use std::sync::{Mutex, PoisonError};
use switchback_bench::workload::Workload;
use switchback_wire::PerScheme;

/// The measurements of a case with every scheme, preloaded and cold.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Starts {
    preloaded: PerScheme<Measured>,
    cold: PerScheme<Measured>,
}

impl Starts {
    /// Those of one start.
    pub(crate) fn of(&self, is_cold: bool) -> &PerScheme<Measured> {
        if is_cold { &self.cold } else { &self.preloaded }
    }

    /// Measures a case.
    pub(crate) fn measured(case: &Case, seed: u64, profile: &Profile, effort: &Effort) -> Starts {
        let bench = |is_cold| Bench::new(Case { is_cold, ..case.clone() }, profile, seed);
        let preloaded = bench(false);
        let preloaded = PerScheme::of(case.schemes, |scheme| preloaded.throughput(scheme, effort));
        let cold = bench(true);
        let cold = PerScheme::of(case.schemes, |scheme| {
            // Without a cache there is nothing to preload, so both starts are the same run.
            if scheme.caches() {
                cold.throughput(scheme, effort)
            } else {
                preloaded[scheme].clone()
            }
        });
        Starts { preloaded, cold }
    }
}

/// All measurements so far, by case and seed.
#[derive(Default)]
pub(crate) struct Memo {
    measured: Mutex<Vec<(Case, u64, Starts)>>,
}

impl Memo {
    /// Measures those of the wanted runs that aren't known yet; returns the results of all, in
    /// order.
    pub(crate) fn measure(&self, context: &Context, wanted: &[(Case, u64)]) -> Vec<Starts> {
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<(Case, u64)> = Vec::new();
        for (case, seed) in wanted {
            let job = (representative(case), *seed);
            let is_known = measured.iter().any(|(case, seed, _)| (case, seed) == (&job.0, &job.1));
            if !is_known && !missing.contains(&job) {
                missing.push(job);
            }
        }
        let results = context.run_all(
            &missing,
            |(case, _)| cost(case),
            |(case, seed)| Starts::measured(case, *seed, &context.profile, &context.effort),
        );
        measured.extend(
            missing.into_iter().zip(results).map(|((case, seed), starts)| (case, seed, starts)),
        );
        let find = |(case, seed): &(Case, u64)| {
            let case = representative(case);
            let found =
                measured.iter().find(|(other, of_seed, _)| *other == case && of_seed == seed);
            found.expect("measured above").2.clone()
        };
        wanted.iter().map(find).collect()
    }
}

/// The same case for all names of one run: a mix that is one of YCSB's workloads becomes that
/// workload.
fn representative(case: &Case) -> Case {
    let named = [Workload::A, Workload::B, Workload::C]
        .into_iter()
        .find(|named| named.mix() == case.workload.mix());
    let workload = if matches!(case.workload, Workload::Mix(_)) {
        named.unwrap_or(case.workload)
    } else {
        case.workload
    };
    Case { workload, ..case.clone() }
}

/// Approximate cost of a case: the more servers, the more requests until the busiest has served
/// enough of them.
fn cost(case: &Case) -> u64 {
    4 + u64::from(case.servers) / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_workloads_of_different_names_are_one_run() {
        let case = |workload| representative(&Case { workload, ..Case::default() });
        assert_eq!(case(Workload::Mix(50.0)), case(Workload::A));
        assert_eq!(case(Workload::Mix(0.0)), case(Workload::C));
        assert_ne!(case(Workload::Mix(75.0)), case(Workload::A));
        assert_ne!(case(Workload::F), case(Workload::A));
    }
}
