//! Tells systemd what the service does (`Type=notify`), if it asked.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The service is ready for its users.
pub(crate) fn ready() {
    send("READY=1");
}

/// The service drains; systemd waits, up to TimeoutStopSec.
pub(crate) fn stopping() {
    send("STOPPING=1");
}

fn send(state: &str) {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return };
    let address = match path.as_encoded_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address
        .and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "systemd could not be told {state}");
    }
}
