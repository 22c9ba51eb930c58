//! Runs of all schemes and repetitions, in turn.

use crate::cli::LoadArgs;
use crate::rack::RackFactory;
use std::process::ExitCode;

pub(crate) fn run(_args: &LoadArgs, _racks: &mut dyn RackFactory) -> anyhow::Result<ExitCode> {
    anyhow::bail!("the load generator isn't there yet")
}
