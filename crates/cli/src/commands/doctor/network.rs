//! Ports that a rack is to have.

use super::Check;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use switchback_rack::config::{RackConfig, Shape};
use switchback_rack::machine::MACHINE;

pub(super) fn ports(config: &RackConfig) -> Vec<Check> {
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
    checks
}

/// Whether this machine has the address; a distributed rack's file names those of others as well.
fn is_ours(address: SocketAddr) -> bool {
    UdpSocket::bind(SocketAddr::new(address.ip(), 0)).is_ok()
}

fn tcp(name: &str, address: SocketAddr, setting: &str) -> Check {
    port(name, "TCP", address, TcpListener::bind(address).err(), setting)
}

fn port(
    name: &str,
    kind: &str,
    address: SocketAddr,
    error: Option<io::Error>,
    setting: &str,
) -> Check {
    let Some(error) = error else {
        return Check::fits(MACHINE, name, format!("{kind} {address} is free"));
    };
    let found = match error.kind() {
        io::ErrorKind::AddrInUse => format!("{kind} {address} is taken"),
        _ => format!("{kind} {address}: {error}"),
    };
    let mend = format!(
        "stop what has it (perhaps a rack that runs already: switchback ctl status), or choose another: {setting}"
    );
    Check::missing(MACHINE, name, found, mend)
}
