//! `switchback config`: the file that describes a rack.

use crate::output::{self, Paint, Style, grouped};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use switchback_rack::config::{EXAMPLE, Overrides, RackConfig};
use switchback_rack::gateway::Tls;

/// Check a rack.toml, or print one to start from.
#[derive(Args, Clone, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand, Clone, Debug)]
enum ConfigCommand {
    /// Report every mistake in a file, with its place and what would be right.
    #[command(
        after_help = "Example:\n  switchback config check rack.toml && systemctl restart 'switchback-*'"
    )]
    Check {
        /// The file.
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print a documented rack.toml with every key and its default.
    #[command(after_help = "Example:\n  switchback config example > rack.toml")]
    Example,
}

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        ConfigCommand::Example => output::line(EXAMPLE.trim_end())?,
        ConfigCommand::Check { file } => {
            let Some(config) = load(Some(file), &Overrides::default()) else {
                return Ok(ExitCode::FAILURE);
            };
            if let Some(tls) = &config.gateway.tls
                && let Err(error) = Tls::open(tls.files.clone())
            {
                output::error(&format!("{}: [gateway]: {error}", file.display()));
                return Ok(ExitCode::FAILURE);
            }
            let parts = format!("{} switches, {} nodes", config.switches.len(), config.nodes.len());
            let parts = if config.switches.is_empty() {
                format!("{} nodes", config.nodes.len())
            } else {
                parts
            };
            output::line(&format!(
                "{}: fine ({} rack, {}, {parts})",
                file.display(),
                config.shape,
                config.rack.scheme
            ))?;
            let budget = config.cache.control_budget;
            output::line(&format!(
                "control plane: at most {} messages/s and {} bytes/s for admissions and evictions",
                grouped(budget.messages_per_s),
                grouped(budget.bytes_per_s)
            ))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads and checks; reports what is wrong on stderr.
pub(crate) fn load(file: Option<&Path>, overrides: &Overrides) -> Option<RackConfig> {
    match RackConfig::load(file, overrides) {
        Ok(config) => Some(config),
        Err(error) => {
            output::note(&error.to_string());
            let count = match error.problems.len() {
                1 => "1 mistake".to_owned(),
                count => format!("{count} mistakes"),
            };
            output::note(&Paint::stderr().text(Style::Red, &count));
            None
        }
    }
}
