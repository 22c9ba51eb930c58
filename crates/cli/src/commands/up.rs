//! `switchback up`: a whole rack in one process.

use super::address;
use super::config::load;
use crate::launch::Running;
use crate::output::{self, Paint, Style};
use crate::{launch, serve};
use clap::Args;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use switchback_core::topology::CHAINS_MAX;
use switchback_rack::config::{
    ConsoleAccess, Durability, Gateway, LinkKind, NODES_MAX, Overrides, RECORDS_MAX,
    REPLICATION_MAX, SyncChoice,
};
use switchback_terminal::scheme_parser;
use switchback_wire::{LAYERS_MAX, Scheme};
use switchback_xdp::Mode;

const EXAMPLES: &str = "\
Examples:
  With all defaults: data in ./switchback-data, redis-cli -p 6380, metrics on port 9464:
      switchback up
  A throw-away rack on free ports:
      switchback up --data $(mktemp -d) --resp 127.0.0.1:0 --metrics 127.0.0.1:0 --durability memory
  The write-through baseline on 8 nodes, with a password:
      switchback up --scheme netcache --nodes 8 --resp-password secret
  The switch in the kernel, on a network of the rack's own that ends with it:
      sudo switchback up --datapath xdp

Prints one line on stdout once it serves: ready resp=ADDR metrics=ADDR. SIGINT and SIGTERM bring
every cached record to its node and exit with 0; a second one exits at once.";

/// Run a whole rack in this process: nodes, switch, controller, gateway.
///
/// No root needed, except for the datapath in the kernel.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct UpArgs {
    /// Settings; see `switchback config example`. Flags win over the file.
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// What the cache does.
    #[arg(long, value_name = "NAME", value_parser = scheme_parser())]
    scheme: Option<Scheme>,

    /// Storage nodes.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(NODES_MAX))
    )]
    nodes: Option<u16>,

    /// Nodes that have each record; those of one process share its machine.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(REPLICATION_MAX))
    )]
    replication: Option<u16>,

    /// Switches that serve at a time, each its own keys; fixed once there is data.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=i64::from(CHAINS_MAX))
    )]
    chains: Option<u16>,

    /// Switches that a request passes, one of each layer; for a scheme that has layers.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u8).range(1..=i64::from(LAYERS_MAX))
    )]
    layers: Option<u8>,

    /// Where everything is kept.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,

    /// Where the Redis protocol is served; port 0: any free one.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    resp: Option<SocketAddr>,

    /// Where metrics and administration are served; port 0: any free one.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    metrics: Option<SocketAddr>,

    /// When absorbed writes are on disk: always, everysec or memory.
    #[arg(long, value_name = "WHEN")]
    durability: Option<Durability>,

    /// When nodes force their logs to the disk: always, everysec or none; as --durability if left
    /// out.
    #[arg(long, value_name = "WHEN")]
    sync: Option<SyncChoice>,

    /// What AUTH asks for. Other users of this machine can see it; password_file in rack.toml hides
    /// it.
    #[arg(long, value_name = "PW")]
    resp_password: Option<String>,

    /// How the parts are connected: memory or udp (loopback sockets).
    #[arg(long, value_name = "KIND")]
    links: Option<LinkKind>,

    /// Where packets are processed: user (this process) or xdp (the kernel, in namespaces of the
    /// rack's own; needs root).
    #[arg(long, value_name = "WHERE", default_value = "user", value_parser = ["user", "xdp"])]
    datapath: String,

    /// How the kernel is to do it: native (in the interface's driver; if left out) or generic
    /// (several times slower).
    #[arg(long, value_name = "MODE")]
    xdp_mode: Option<Mode>,

    /// Records that the cache holds at most.
    #[arg(
        long,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(RECORDS_MAX))
    )]
    cache_records: Option<u32>,

    /// Threads of the gateway; 0: one for two cores, at most 8.
    #[arg(long, value_name = "N")]
    workers: Option<u32>,

    /// Say what to try next even if stderr is no terminal.
    #[arg(long)]
    hints: bool,
}

impl UpArgs {
    fn overrides(&self) -> Overrides {
        Overrides {
            scheme: self.scheme,
            nodes: self.nodes,
            data: self.data.clone(),
            resp: self.resp,
            metrics: self.metrics,
            durability: self.durability,
            password: self.resp_password.clone(),
            links: self.links,
            cache_records: self.cache_records,
            sync: self.sync,
            workers: self.workers,
            chains: self.chains,
            layers: self.layers,
            replication: self.replication,
        }
    }
}

pub(crate) fn run(args: &UpArgs) -> anyhow::Result<ExitCode> {
    let Some(config) = load(args.config.as_deref(), &args.overrides()) else {
        return Ok(ExitCode::from(2));
    };
    let kernel = (args.datapath == "xdp").then_some(args.xdp_mode.unwrap_or(Mode::Native));
    if kernel.is_none() && args.xdp_mode.is_some() {
        output::error("--xdp-mode is for --datapath xdp, which isn't asked for");
        return Ok(ExitCode::from(2));
    }
    if kernel.is_some() && args.links == Some(LinkKind::Memory) {
        output::error(
            "--links memory: the kernel sees only what goes through sockets; leave it out with --datapath xdp",
        );
        return Ok(ExitCode::from(2));
    }
    let reloads = serve::reloads(config.gateway.tls.is_some());
    let signals = serve::signals(serve::TOLD_TWICE, reloads)?;
    let rack = launch::embedded(&config, kernel)?;
    let options = client_options(&config.gateway);
    let hints = args.hints || std::io::stderr().is_terminal();
    serve::until_stopped(
        rack,
        &signals,
        reloads,
        Duration::from_millis(config.rack.drain_timeout_ms),
        |rack| {
            if hints {
                let program = std::env::args().next().unwrap_or_else(|| "switchback".to_owned());
                let has_console = config.console.access != ConsoleAccess::Off;
                let scheme = config.rack.scheme;
                let next = what_next(rack, &program, options, has_console, scheme);
                let protection = config.protection();
                output::note(&format!("{next}\nUntil nodes have a write: {protection}."));
            }
        },
    )
}

/// What a Redis client needs beside the address.
fn client_options(gateway: &Gateway) -> &'static str {
    let has_password = gateway.password.as_deref().is_some_and(|password| !password.is_empty());
    let is_tls = gateway.tls.as_ref().is_some_and(|tls| tls.resp.is_none());
    match (is_tls, has_password) {
        (false, false) => "",
        (false, true) => " -a PASSWORD",
        (true, false) => " --tls --cacert CA",
        (true, true) => " --tls --cacert CA -a PASSWORD",
    }
}

/// What to try with a rack that just started. `program` is the command's first word, `options` are
/// for Redis clients.
fn what_next(
    rack: &dyn Running,
    program: &str,
    options: &str,
    has_console: bool,
    scheme: Scheme,
) -> String {
    let paint = Paint::stderr();
    let mut text = format!(
        "\nThe rack serves ({}). Try, in another terminal:\n",
        paint.text(Style::Bold, scheme.name())
    );
    let mut hint = |command: String, what: &str| {
        text += &format!("  {command:<64} {}\n", paint.text(Style::Dim, what));
    };
    let (resp, metrics) = rack.addresses();
    if let Some(resp) = resp {
        let client = format!("-h {} -p {}{options}", resp.ip(), resp.port());
        hint(format!("redis-cli {client} set greeting hello"), "any Redis client works");
        hint(format!("redis-benchmark {client} -t set,get -d 128 -P 16 -c 50 -q"), "some load");
    }
    if let Some(metrics) = metrics {
        let flag =
            if metrics.port() == 9464 { String::new() } else { format!(" --metrics {metrics}") };
        hint(format!("{program} ctl status{flag}"), "who answers, what is cached");
        hint(format!("curl http://{metrics}/metrics"), "for Prometheus");
        if has_console {
            hint(format!("http://{metrics}/"), "all of it in a browser");
        }
    }
    text + "Ctrl-C brings every cached record to its node and stops."
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake;

    impl Running for Fake {
        fn ready(&self) -> String {
            String::new()
        }
        fn addresses(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
            (Some("127.0.0.1:6380".parse().unwrap()), Some("127.0.0.1:1234".parse().unwrap()))
        }
        fn failure(&mut self) -> Option<String> {
            None
        }
        fn shutdown(self: Box<Self>, _: Duration) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn hints_can_be_pasted() {
        let text =
            what_next(&Fake, "target/release/switchback", " -a PASSWORD", true, Scheme::FarReach);
        assert!(
            text.contains("redis-cli -h 127.0.0.1 -p 6380 -a PASSWORD set greeting hello"),
            "{text}"
        );
        assert!(
            text.contains("  target/release/switchback ctl status --metrics 127.0.0.1:1234"),
            "{text}"
        );
        assert!(text.contains("  http://127.0.0.1:1234/ "), "{text}");
    }
}
