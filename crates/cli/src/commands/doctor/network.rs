//! Ports, and what sockets may buffer.

use super::Check;
use crate::output::bytes;
use std::fs::read_to_string;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use switchback_rack::config::{LinkKind, RackConfig, Shape};

const GROUP: &str = "machine";

/// `in_kernel`: the kernel is to be the switch, which takes sockets.
pub(super) fn checks(config: &RackConfig, in_kernel: bool) -> Vec<Check> {
    let is_distributed = config.shape == Shape::Distributed;
    let here = |address: &SocketAddr| !is_distributed || is_ours(*address);
    let mut checks = Vec::new();
    let tls = config.gateway.tls.as_ref().and_then(|tls| tls.resp);
    let plain = [
        ("gateway port", config.gateway.resp, "--resp ADDR or resp in [gateway]"),
        ("metrics port", config.rack.metrics, "--metrics ADDR or metrics in [rack]"),
    ];
    let tls = tls.map(|address| ("TLS port", address, "tls_resp in [gateway]"));
    for (name, address, setting) in plain.into_iter().chain(tls) {
        checks.extend(here(&address).then(|| tcp(name, address, setting)));
    }
    if is_distributed {
        if here(&config.controller.listen) {
            checks.push(tcp("control port", config.controller.listen, "listen in [controller]"));
        }
        let nodes = config.nodes.iter().filter_map(|node| node.address);
        for address in config.switches.iter().map(|switch| switch.address).chain(nodes).filter(here)
        {
            checks.push(port(
                "packet port",
                "UDP",
                address,
                UdpSocket::bind(address).err(),
                "address in [[switch]] or [[node]]",
            ));
        }
    }
    let memory =
        config.shape == Shape::Embedded && config.links.kind == LinkKind::Memory && !in_kernel;
    for (name, wanted_kb) in
        [("rmem_max", config.links.receive_buffer_kb), ("wmem_max", config.links.send_buffer_kb)]
    {
        checks.push(buffer(name, u64::from(wanted_kb) << 10, memory));
    }
    checks
}

/// Whether this machine has the address; a distributed rack's file names those of others as well.
fn is_ours(address: SocketAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok()
}

fn tcp(name: &'static str, address: SocketAddr, setting: &str) -> Check {
    port(name, "TCP", address, TcpListener::bind(address).err(), setting)
}

fn port(
    name: &'static str,
    kind: &str,
    address: SocketAddr,
    error: Option<io::Error>,
    setting: &str,
) -> Check {
    let Some(error) = error else {
        return Check::fits(GROUP, name, format!("{kind} {address} is free"));
    };
    let found = match error.kind() {
        io::ErrorKind::AddrInUse => format!("{kind} {address} is taken"),
        _ => format!("{kind} {address}: {error}"),
    };
    let mend = format!(
        "stop what has it (perhaps a rack that runs already: switchback ctl status), or choose another: {setting}"
    );
    Check::missing(GROUP, name, found, mend)
}

/// `unused`: the rack's parts talk in memory, so there is nothing to mend.
fn buffer(name: &'static str, wanted: u64, unused: bool) -> Check {
    let file = format!("/proc/sys/net/core/{name}");
    let Some(limit) = read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok())
    else {
        return Check::optional(
            GROUP,
            name,
            "unknown",
            format!("UDP sockets ask for {}", bytes(wanted)),
        );
    };
    let found = format!("{} a UDP socket, {} are asked for", bytes(limit), bytes(wanted));
    match limit >= wanted || unused {
        true if unused => Check::fits(
            GROUP,
            name,
            format!("{} a UDP socket (unused: links in memory)", bytes(limit)),
        ),
        true => Check::fits(GROUP, name, found),
        false => {
            let mend = format!(
                "sysctl -w net.core.{name}={wanted}; bursts beyond the limit are lost and sent again"
            );
            Check::optional(GROUP, name, found, mend)
        }
    }
}
