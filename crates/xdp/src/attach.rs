//! Attaching to interfaces, and what has to be right there for it to work.

use crate::{Error, XdpDatapath, sys};
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
    _link: OwnedFd,
    _forwarding: Forwarding,
}

impl Attachment {
    /// Attaches to an interface of this thread's network namespace; in the mode that is asked for, or not at all.
    pub fn new(datapath: &XdpDatapath, interface: &str, mode: Mode) -> Result<Attachment, Error> {
        let ifindex = index_of(interface)?;
        let mtu = number(interface, "mtu")?;
        if mtu < MTU_MIN {
            return Err(Error::Interface(format!(
                "{interface} has an MTU of {mtu}, and packets need up to {MTU_MIN}: ip link set dev {interface} mtu 1500"
            )));
        }
        let flags = if mode == Mode::Generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE };
        let program = datapath.loaded.program("switchback");
        let link = sys::link(program, ifindex, flags).map_err(|error| refusal(interface, mode, &error))?;
        let attached = sys::attached_mode(ifindex).map_err(|error| Error::System("asking for the mode", error))?;
        let mode = match attached {
            1 => Mode::Native,
            2 => Mode::Generic,
            3 => Mode::Offloaded,
            other => return Err(Error::Interface(format!("{interface}: attached in the unknown mode {other}"))),
        };
        let v4 = datapath.endpoint().ip[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let forwarding = Forwarding::enable(interface, v4)?;
        Ok(Attachment { interface: interface.to_owned(), mode, _link: link, _forwarding: forwarding })
    }

    /// The mode that it is really in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }
}

/// The program that a veth's other end needs. As long as it is kept, frames that the datapath sends arrive there.
#[derive(Debug)]
pub struct PeerProgram {
    _link: OwnedFd,
}

impl PeerProgram {
    /// Attaches it to an interface of this thread's network namespace.
    pub fn new(datapath: &XdpDatapath, interface: &str) -> Result<PeerProgram, Error> {
        let ifindex = index_of(interface)?;
        let program = datapath.loaded.program("switchback_pass");
        let link = sys::link(program, ifindex, XDP_FLAGS_DRV_MODE)
            .map_err(|error| refusal(interface, Mode::Native, &error))?;
        Ok(PeerProgram { _link: link })
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

fn number(interface: &str, what: &str) -> Result<u32, Error> {
    let text = fs::read_to_string(format!("/sys/class/net/{interface}/{what}"));
    text.ok().and_then(|text| text.trim().parse().ok()).ok_or_else(|| no_interface(interface))
}

fn index_of(interface: &str) -> Result<u32, Error> {
    let name = std::ffi::CString::new(interface).map_err(|_| no_interface(interface))?;
    // SAFETY: a string that ends with 0, for the time of the call.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(no_interface(interface)),
        index => Ok(index),
    }
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
        let before = fs::read_to_string(&setting).map_err(|error| Error::System("reading the forwarding setting", error))?;
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
