//! `switchback switch|node|controller|gateway`: one part of a distributed rack.

use super::address;
use super::config::load;
use crate::launch::{self, CaptureFile, Datapath, Interface, Part};
use crate::{output, serve};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use switchback_rack::config::{Overrides, RackConfig, Shape};
use switchback_xdp::Mode;

/// Run one switch of a distributed rack: the datapath and its agent.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
                  switchback switch --config rack.toml --index 1    \
                  # the second [[switch]]: a spare\n  \
                  switchback switch --config rack.toml --pcap /tmp/packets.pcap    \
                  # for tools/wireshark/switchback.lua")]
pub(crate) struct SwitchArgs {
    /// The file that describes the rack.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Which [[switch]] of the file, from 0.
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    index: u16,
    /// Where packets are processed: user (a socket of this process) or xdp (the kernel, on an
    /// interface; needs root).
    #[arg(long, value_name = "WHERE", default_value = "user", value_parser = ["user", "xdp"])]
    datapath: String,
    /// The interface that has the switch's address.
    #[arg(long, value_name = "IF", required_if_eq("datapath", "xdp"))]
    iface: Option<String>,
    /// native (in the interface's driver; if left out) or generic (any interface, several times
    /// slower).
    #[arg(long, value_name = "MODE")]
    xdp_mode: Option<Mode>,
    /// Write every packet, in and out, to this file for Wireshark, until it is --pcap-mb long. It
    /// costs the switch 1 to 3 us a packet. (In user space only: the kernel's packets are seen by
    /// tcpdump on the other machines.)
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// How long that file may become, in MiB.
    #[arg(long, value_name = "N", default_value_t = 256, requires = "pcap")]
    pcap_mb: u32,
}

/// Run one storage node of a distributed rack.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  switchback node --config rack.toml --index 3    # the fourth [[node]]"
)]
pub(crate) struct NodeArgs {
    /// The file that describes the rack.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Which [[node]] of the file, from 0.
    #[arg(short, long, value_name = "N")]
    index: u16,
    /// Serve this many requests a second at most: plays a slower server, so that nodes are the
    /// bottleneck of a measurement.
    #[arg(long, value_name = "OPS", value_parser = clap::value_parser!(u32).range(1..))]
    capacity: Option<u32>,
}

/// Run the controller of a distributed rack.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  switchback controller --config rack.toml")]
pub(crate) struct ControllerArgs {
    /// The file that describes the rack.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// `switchback demo` started it, and reads from its standard output that the console's button
    /// was pressed, which kills the switch that serves.
    #[arg(long, hide = true)]
    demo: bool,
}

/// Run a gateway of a distributed rack: it speaks the Redis protocol to applications.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Example:\n  switchback gateway --config rack.toml --resp 127.0.0.1:6381 --data /tmp/second"
)]
pub(crate) struct GatewayArgs {
    /// The file that describes the rack.
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Where the Redis protocol is served; port 0: any free one.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    resp: Option<std::net::SocketAddr>,
    /// Where its spool is kept; a second gateway on a machine needs another.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// What AUTH asks for. Other users of this machine can see it; password_file in rack.toml hides
    /// it.
    #[arg(long, value_name = "PW")]
    resp_password: Option<String>,
}

pub(crate) fn switch(args: &SwitchArgs) -> anyhow::Result<ExitCode> {
    let bytes_max = u64::from(args.pcap_mb) << 20;
    let capture = args.pcap.clone().map(|path| CaptureFile { path, bytes_max });
    let datapath = match (args.datapath.as_str(), &args.iface) {
        ("xdp", Some(_)) if capture.is_some() => {
            output::error("--pcap is for --datapath user: the kernel's packets don't come by here");
            return Ok(ExitCode::from(2));
        }
        ("xdp", Some(name)) => Datapath::Kernel(Interface {
            name: name.clone(),
            mode: args.xdp_mode.unwrap_or(Mode::Native),
        }),
        _ if args.iface.is_some() || args.xdp_mode.is_some() => {
            output::error("--iface and --xdp-mode are for --datapath xdp, which isn't asked for");
            return Ok(ExitCode::from(2));
        }
        _ => Datapath::User(capture),
    };
    run(&args.config, &Overrides::default(), Part::Switch(args.index, datapath))
}

pub(crate) fn node(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    run(&args.config, &Overrides::default(), Part::Node(args.index, args.capacity.map(f64::from)))
}

pub(crate) fn controller(args: &ControllerArgs) -> anyhow::Result<ExitCode> {
    run(&args.config, &Overrides::default(), Part::Controller(args.demo))
}

pub(crate) fn gateway(args: &GatewayArgs) -> anyhow::Result<ExitCode> {
    let overrides = Overrides {
        resp: args.resp,
        data: args.data.clone(),
        password: args.resp_password.clone(),
        ..Overrides::default()
    };
    run(&args.config, &overrides, Part::Gateway)
}

fn run(file: &std::path::Path, overrides: &Overrides, part: Part) -> anyhow::Result<ExitCode> {
    let Some(config) = load(Some(file), overrides) else { return Ok(ExitCode::from(2)) };
    if let Err(mistake) = listed(&config, &part) {
        output::error(&format!("{}: {mistake}", file.display()));
        return Ok(ExitCode::from(2));
    }
    let has_files = matches!(part, Part::Gateway) && config.gateway.tls.is_some();
    let reloads = serve::reloads(has_files);
    let signals = serve::signals(serve::TOLD_TWICE, reloads)?;
    let running = launch::part(&config, &part)?;
    serve::until_stopped(
        running,
        &signals,
        reloads,
        Duration::from_millis(config.rack.drain_timeout_ms),
        |_| {},
    )
}

/// Whether the file describes this part.
fn listed(config: &RackConfig, part: &Part) -> Result<(), String> {
    if config.shape == Shape::Embedded {
        return Err(
            "the file lists no [[switch]], so it describes a rack in one process: run `switchback up --config` \
                    with it, or list switches and nodes (`switchback config example`, at its end)"
                .to_owned(),
        );
    }
    let (name, index, count) = match *part {
        Part::Switch(index, _) => ("switch", index, config.switches.len()),
        Part::Node(index, _) => ("node", index, config.nodes.len()),
        Part::Controller(_) | Part::Gateway => return Ok(()),
    };
    match usize::from(index) < count {
        true => Ok(()),
        false => Err(format!(
            "--index {index}: the file lists {count} as [[{name}]], from 0 to {}",
            count - 1
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn parts_that_are_not_listed_are_refused() {
        let parse = |text| {
            RackConfig::parse(text, "rack.toml", Path::new(""), &Overrides::default()).unwrap()
        };
        let embedded = listed(&parse(""), &Part::Controller(false)).unwrap_err();
        assert!(embedded.contains("switchback up --config"), "{embedded}");
        let rack = parse("[[switch]]\naddress = '127.0.0.1:1'\n[[node]]\naddress = '127.0.0.1:2'");
        assert_eq!(listed(&rack, &Part::Node(0, None)), Ok(()));
        let error = listed(&rack, &Part::Node(1, None)).unwrap_err();
        assert_eq!(error, "--index 1: the file lists 1 as [[node]], from 0 to 0");
    }
}
