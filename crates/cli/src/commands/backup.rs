//! `switchback backup` and `switchback restore`: a rack's data, as they are at one moment.

use super::ENDS_AT_ONCE;
use super::config::load;
use super::ctl::Rack;
use crate::serve;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use switchback_migrate::{BackupArgs, RestoreArgs, RunningRack};
use switchback_rack::admin::BackupStatus;
use switchback_rack::config::{Overrides, RackConfig};

pub(crate) fn backup(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let Some(config) = rack(args.config.as_deref(), &args.data) else {
        return Ok(ExitCode::from(2));
    };
    let rack = Rack { address: args.metrics.unwrap_or(config.rack.metrics) };
    switchback_migrate::backup(args, &config, &rack, serve::signals(ENDS_AT_ONCE, false)?)
}

pub(crate) fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    let Some(config) = rack(args.config.as_deref(), &args.data) else {
        return Ok(ExitCode::from(2));
    };
    switchback_migrate::restore(args, &config, serve::signals(ENDS_AT_ONCE, false)?)
}

fn rack(file: Option<&Path>, data: &Option<PathBuf>) -> Option<RackConfig> {
    load(file, &Overrides { data: data.clone(), ..Overrides::default() })
}

impl RunningRack for Rack {
    fn begin(&self) -> anyhow::Result<BackupStatus> {
        self.post("backup")
    }

    fn status(&self) -> anyhow::Result<BackupStatus> {
        self.get("backup")
    }
}
