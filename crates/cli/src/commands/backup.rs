//! `switchback backup` and `switchback restore`: a rack's data, as they are at one moment.

use super::ENDS_AT_ONCE;
use super::config::load;
use super::ctl::Rack;
use crate::serve;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use switchback_migrate::{BackupArgs, RestoreArgs, RunningRack};
use switchback_rack::admin::{BackupStatus, ChainStatus, NodeStatus};
use switchback_rack::config::{Overrides, RackConfig};

pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let Some(mut config) = rack(args.config.as_deref(), &args.data, None) else {
        return Ok(ExitCode::from(2));
    };
    let running = Rack { address: args.metrics.unwrap_or(config.rack.metrics) };
    if args.config.is_none() {
        // What `switchback up` was told by flags: an interrupted backup knows, or the rack.
        let shape = match switchback_migrate::nodes_and_chains(&args.to)? {
            Some(shape) => shape,
            None => {
                let nodes: Vec<NodeStatus> = running.get("nodes")?;
                let chains: Vec<ChainStatus> = running.get("chains")?;
                (nodes.len() as u16, chains.len() as u16)
            }
        };
        let Some(described) = rack(None, &args.data, Some(shape)) else {
            return Ok(ExitCode::from(2));
        };
        config = described;
    }
    switchback_migrate::backup(args, &config, &running, serve::signals(ENDS_AT_ONCE, false)?)
}

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    // What `switchback up` will be told by flags.
    let shape = match args.config {
        Some(_) => None,
        None => switchback_migrate::nodes_and_chains(&args.from)?,
    };
    let Some(config) = rack(args.config.as_deref(), &args.data, shape) else {
        return Ok(ExitCode::from(2));
    };
    switchback_migrate::restore(args, &config, serve::signals(ENDS_AT_ONCE, false)?)
}

/// The rack of a file, or the one that `switchback up` runs with this many nodes and chains.
fn rack(
    file: Option<&Path>,
    data: &Option<PathBuf>,
    shape: Option<(u16, u16)>,
) -> Option<RackConfig> {
    let (nodes, chains) = shape.unzip();
    load(file, &Overrides { data: data.clone(), nodes, chains, ..Overrides::default() })
}

impl RunningRack for Rack {
    fn begin(&self) -> anyhow::Result<BackupStatus> {
        self.post("backup")
    }

    fn status(&self) -> anyhow::Result<BackupStatus> {
        self.get("backup")
    }
}
