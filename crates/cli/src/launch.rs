//! The border to `switchback-rack`: how racks and parts are started, and what the command line asks of them.

use anyhow::bail;
use std::net::SocketAddr;
use std::time::Duration;
use switchback_rack::config::RackConfig;

/// A rack or a part that serves.
pub(crate) trait Running {
    /// The line for stdout, `ready resp=ADDR metrics=ADDR`.
    fn ready(&self) -> String;

    /// Where the gateway and the metrics are, if this process has them; for the hints.
    fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (None, None)
    }

    /// Why it can't go on, once.
    fn failure(&mut self) -> Option<String>;

    /// Brings every cached record to its node, within the time; or says what remains where.
    fn shutdown(self: Box<Self>, drain: Duration) -> Result<(), String>;
}

/// A part of a distributed rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Switch(u16),
    Node(u16),
    Controller,
    Gateway,
}

/// Starts everything in this process.
pub(crate) fn embedded(_config: &RackConfig) -> anyhow::Result<Box<dyn Running>> {
    bail!("this build has no embedded rack")
}

/// Starts one part.
pub(crate) fn part(_config: &RackConfig, part: Part) -> anyhow::Result<Box<dyn Running>> {
    bail!("this build has no {part:?}")
}
