//! Veth pairs for measurements, in namespaces of nobody's: all of it is gone with the process, however that ends.

use anyhow::{Context as _, ensure};
use std::process::Command;

/// A veth pair in this thread's namespace.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) server: String,
    pub(crate) client: String,
    /// The server's.
    pub(crate) index: u32,
}

/// Runs `ip` with these words.
pub(crate) fn ip(words: &str) -> anyhow::Result<()> {
    let output =
        Command::new("ip").args(words.split(' ')).output().context("running `ip` (apt-get install iproute2)")?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {words}`: {}", reason.trim());
    Ok(())
}

impl Pair {
    /// One end is the switch's, with its address and with a node's as a neighbour.
    pub(crate) fn new() -> anyhow::Result<Pair> {
        let (server, client) = ("switch".to_owned(), "client".to_owned());
        ip("link set lo up")?;
        ip(&format!("link add {server} type veth peer name {client}"))?;
        for end in [&server, &client] {
            ip(&format!("link set {end} up"))?;
        }
        ip(&format!("addr add 10.213.0.2/24 dev {server}"))?;
        ip(&format!("neigh replace 10.213.0.3 lladdr 02:00:00:00:00:03 dev {server} nud permanent"))?;
        let forwarding = format!("/proc/sys/net/ipv4/conf/{server}/forwarding");
        std::fs::write(&forwarding, "1").with_context(|| format!("writing {forwarding}"))?;
        let links = switchback_xdp::links().context("listing interfaces")?;
        let index = links.iter().find(|link| link.name == server).context("the veth that was just made is gone")?.index;
        Ok(Pair { server, client, index })
    }
}
