//! The subcommands, a file each.

pub(crate) mod config;
pub(crate) mod ctl;
pub(crate) mod doctor;
pub(crate) mod experiment;
pub(crate) mod part;
pub(crate) mod sim;
pub(crate) mod up;

use std::net::SocketAddr;

/// An address on the command line.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "it is an IP address with a port, as 127.0.0.1:6380 or [::1]:6380".to_owned())
}
