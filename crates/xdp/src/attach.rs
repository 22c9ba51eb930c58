//! Attaching to interfaces, and what has to be right there for it to work.

use crate::{Error, Link, XdpDatapath, netlink, peer, sys};
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;
use switchback_wire::PACKET_BYTES_MAX;

/// Where in the kernel frames meet the datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the driver, before anything is allocated for them.
    Native,
    /// After the kernel has made its own packet of them: works everywhere, and is as slow as a socket.
    Generic,
    /// On the network card.
    Offloaded,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
            Mode::Offloaded => "offloaded",
        })
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Mode, String> {
        match text {
            "native" => Ok(Mode::Native),
            "generic" => Ok(Mode::Generic),
            _ => Err(format!("\"{}\" is no mode: it is one of \"native\", \"generic\"", text.escape_debug())),
        }
    }
}

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// IPv6 and UDP headers with the longest packet.
const MTU_MIN: u32 = PACKET_BYTES_MAX as u32 + 48;

/// A datapath on an interface. Dropping it, or the end of the process however it ends, takes it off again: the kernel keeps a link only
/// as long as somebody has it open.
#[derive(Debug)]
pub struct Attachment {
    interface: String,
    mode: Mode,
    has_peer_program: bool,
    _link: OwnedFd,
    _peer: Option<OwnedFd>,
    _forwarding: Forwarding,
}

impl Attachment {
    /// Attaches to an interface of this thread's network namespace; in the mode that is asked for, or not at all.
    pub fn new(datapath: &XdpDatapath, interface: &str, mode: Mode) -> Result<Attachment, Error> {
        let found = link_named(interface)?;
        if found.mtu < MTU_MIN {
            return Err(Error::Interface(format!(
                "{interface} has an MTU of {}, and packets need up to {MTU_MIN}: ip link set dev {interface} mtu 1500",
                found.mtu
            )));
        }
        let flags = if mode == Mode::Generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE };
        let program = datapath.loaded.program("switchback");
        let link = sys::link(program, found.index, flags).map_err(|error| refusal(interface, mode, &error))?;
        let attached = sys::attached_mode(found.index).map_err(|error| Error::System("asking for the mode", error))?;
        let mode = match attached {
            1 => Mode::Native,
            2 => Mode::Generic,
            3 => Mode::Offloaded,
            other => return Err(Error::Interface(format!("{interface}: attached in the unknown mode {other}"))),
        };
        let v4 = datapath.endpoint().ip[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let forwarding = Forwarding::enable(interface, v4)?;
        let peer = peer::attach(datapath.loaded.program("switchback_pass"), &found)?;
        Ok(Attachment {
            interface: interface.to_owned(),
            mode,
            has_peer_program: peer.is_some(),
            _link: link,
            _peer: peer,
            _forwarding: forwarding,
        })
    }

    /// The mode that it is really in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Whether it is a veth whose other end was found, and got the program without which it loses what is sent.
    pub fn has_peer_program(&self) -> bool {
        self.has_peer_program
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

fn refusal(interface: &str, mode: Mode, error: &std::io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            format!("{interface} has an XDP program already; `ip link show {interface}` says which")
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == Mode::Native => format!(
            "{interface}'s driver can't take the datapath ({error}); --xdp-mode generic works anywhere, and is several times slower"
        ),
        Some(libc::EPERM | libc::EACCES) => format!("attaching to {interface} needs root or CAP_NET_ADMIN"),
        _ => format!("attaching to {interface}: {error}"),
    };
    Error::Interface(why)
}

fn link_named(interface: &str) -> Result<Link, Error> {
    let links = netlink::links().map_err(|error| Error::System("listing interfaces", error))?;
    links.into_iter().find(|link| link.name == interface).ok_or_else(|| no_interface(interface))
}

fn no_interface(interface: &str) -> Error {
    Error::Interface(format!("there is no interface {interface} here; `ip link` lists those that there are"))
}

/// The kernel looks routes up for a frame only on an interface that forwards.
#[derive(Debug)]
struct Forwarding {
    setting: PathBuf,
    before: Option<String>,
}

impl Forwarding {
    fn enable(interface: &str, v4: bool) -> Result<Forwarding, Error> {
        let family = if v4 { "ipv4" } else { "ipv6" };
        let setting = PathBuf::from(format!("/proc/sys/net/{family}/conf/{interface}/forwarding"));
        let before =
            fs::read_to_string(&setting).map_err(|error| Error::System("reading the forwarding setting", error))?;
        if before.trim() == "1" {
            return Ok(Forwarding { setting, before: None });
        }
        fs::write(&setting, "1").map_err(|error| Error::System("letting the interface forward", error))?;
        Ok(Forwarding { setting, before: Some(before) })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        if let Some(before) = &self.before
            && let Err(error) = fs::write(&self.setting, before)
        {
            tracing::warn!(%error, setting = %self.setting.display(), "not restored");
        }
    }
}
