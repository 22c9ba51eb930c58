//! `switchback lab experiment`: FarReach's evaluation in virtual time.

use clap::Args;
use std::process::ExitCode;
use switchback_experiment::ExperimentArgs;

const EXAMPLES: &str = "\
Examples:
  A look at all of the paper's Exp#1 to Exp#9, with figures and a report:
      switchback lab experiment all --quick --out results
  Throughput by workload and by number of servers, as a result:
      switchback lab experiment 1 3 --out results
  Recovery, with other seeds:
      switchback lab experiment 9 --seed 100 --out results
  The model beside the machine, in one run:
      switchback lab experiment 1 2 7 8 9 --measured --out results

The same seed gives the same figures, on any number of processors, but for 14, which is measured on
this machine. docs/measure/evaluation.md has the method.";

/// Repeat FarReach's evaluation in virtual time, every figure beside its limit.
///
/// The production pipeline and state machines run with service times, delays and capacities as
/// parameters: what comes out is modelled, not measured (14 is). Writes a CSV file and figures
/// (SVG, PNG) for each experiment, and a report.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ExperimentCommand {
    #[command(flatten)]
    args: ExperimentArgs,
}

pub(crate) fn run(command: &ExperimentCommand) -> anyhow::Result<ExitCode> {
    let program = crate::product()?;
    switchback_experiment::run(
        &command.args,
        &mut switchback_bench::racks::LocalRacks { program },
    )?;
    Ok(ExitCode::SUCCESS)
}
