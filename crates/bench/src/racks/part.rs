//! A part of a rack as a process: how it is started, and asked.

use crate::process_guard::ProcessGuard;
use anyhow::Context as _;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;
use switchback_rack::admin::RackStatus;

/// Time limit for an answer of a part.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Starts `program part --config file`, with more arguments.
pub(crate) fn start(
    program: &Path,
    file: &Path,
    part: &str,
    arguments: &[String],
    errors: Stdio,
) -> anyhow::Result<ProcessGuard> {
    let fixed = [program.as_os_str(), part.as_ref(), "--config".as_ref(), file.as_os_str()];
    let command: Vec<&OsStr> = fixed.into_iter().chain(arguments.iter().map(OsStr::new)).collect();
    ProcessGuard::spawn(&command, Stdio::piped(), errors)
        .with_context(|| format!("starting a {part}"))
}

/// Waits for the line that says that a part is ready. Returns what it says after that; `None`: it
/// ended instead.
pub(crate) fn wait_until_ready(
    process: &mut ProcessGuard,
) -> anyhow::Result<Option<BufReader<ChildStdout>>> {
    let mut output = BufReader::new(process.output().context("a part's output is taken")?);
    let mut line = String::new();
    output.read_line(&mut line)?;
    Ok(line.starts_with("ready ").then_some(output))
}

/// Asks parts for their status.
pub(crate) struct Asker(ureq::Agent);

impl Default for Asker {
    fn default() -> Asker {
        let config = ureq::Agent::config_builder().proxy(None);
        Asker(config.timeout_global(Some(ANSWER_LIMIT)).build().into())
    }
}

impl Asker {
    /// The status that a part serves at the address of its metrics.
    pub(crate) fn status(&self, metrics: Option<SocketAddr>) -> anyhow::Result<RackStatus> {
        let metrics = metrics.context("a part without metrics")?;
        let mut answer = self.0.get(format!("http://{metrics}/status")).call()?;
        Ok(serde_json::from_str(&answer.body_mut().read_to_string()?)?)
    }
}
