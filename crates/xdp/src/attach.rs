//! Attaching to interfaces, and what has to be right there for it to work.

use crate::forwarding::Forwarding;
use crate::{Error, Link, XdpDatapath, netlink, peer, sys};
use libbpf_rs::Program;
use std::fmt;
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::str::FromStr;
use std::sync::{Arc, Weak};
use switchback_wire::PACKET_BYTES_MAX;

/// Where in the kernel frames meet the datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the driver, before anything is allocated for them.
    Native,
    /// After the kernel has made its own packet of them: works everywhere, and is as slow as a
    /// socket.
    Generic,
    /// On the network card.
    Offloaded,
}

impl Mode {
    /// `XDP_ATTACHED_*`.
    pub(crate) fn of_kernel(attached: u8) -> Option<Mode> {
        match attached {
            1 => Some(Mode::Native),
            2 => Some(Mode::Generic),
            3 => Some(Mode::Offloaded),
            _ => None,
        }
    }
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
            _ => Err(format!(
                "\"{}\" is no mode: it is one of \"native\", \"generic\"",
                text.escape_debug()
            )),
        }
    }
}

const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
pub(crate) const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
/// IPv6 and UDP headers with the longest packet.
pub const MTU_MIN: u32 = PACKET_BYTES_MAX as u32 + 48;

/// A datapath on an interface. Dropping it, or the end of the process however it ends, takes it off
/// again: the kernel keeps a link only as long as a process has it open.
#[derive(Debug)]
pub struct Attachment {
    watch: Watch,
    // Before the program goes: only a process that has one on the interface may change how it
    // forwards.
    _forwarding: Forwarding,
    _link: Arc<OwnedFd>,
    peer: Option<OwnedFd>,
}

/// Tells where a datapath was attached, and whether it still is. Doesn't keep it there.
#[derive(Clone, Debug)]
pub struct Watch {
    interface: String,
    mode: Mode,
    link: Weak<OwnedFd>,
    program: u32,
}

impl Watch {
    /// The interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// The mode that it is really in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// False once it was taken off (also by another process), another program was put in its place,
    /// or the interface is gone.
    pub fn is_attached(&self) -> bool {
        let Some(link) = self.link.upgrade() else { return false };
        let says = |field| sys::described(link.as_fd(), field);
        says("ifindex").is_none_or(|index| index != 0)
            && says("prog_id").is_none_or(|id| id == self.program.into())
    }
}

impl Attachment {
    /// Attaches to an interface of this thread's network namespace; in the mode that is asked for,
    /// or not at all.
    pub fn new(datapath: &XdpDatapath, interface: &str, mode: Mode) -> Result<Attachment, Error> {
        Attachment::with_peer(datapath, interface, mode, None)
    }

    /// The same, if it is known in which namespace a veth's other end is.
    pub(crate) fn with_peer(
        datapath: &XdpDatapath,
        interface: &str,
        mode: Mode,
        namespace: Option<&File>,
    ) -> Result<Attachment, Error> {
        let found = link_named(interface)?;
        if found.mtu < MTU_MIN {
            return Err(Error::Interface(format!(
                "{interface} has an MTU of {}, and packets need up to {MTU_MIN}: ip link set dev {interface} mtu 1500",
                found.mtu
            )));
        }
        warn_of(datapath, &found)?;
        let flags = if mode == Mode::Generic { XDP_FLAGS_SKB_MODE } else { XDP_FLAGS_DRV_MODE };
        let program = datapath.loaded.program("switchback");
        let link = sys::link(program, found.index, flags)
            .map_err(|error| refusal(interface, mode, &error))?;
        let attached = sys::query(found.index).map_err(Error::system("asking for the mode"))?.mode;
        let unknown =
            || Error::Interface(format!("{interface}: attached in the unknown mode {attached}"));
        let mode = Mode::of_kernel(attached).ok_or_else(unknown)?;
        let forwarding = Forwarding::enable(interface, endpoint(datapath).is_ipv4())?;
        // A veth in native mode drops what is sent to an end without a program; in generic mode it
        // doesn't.
        let peer = match mode {
            Mode::Native => {
                peer::attach(datapath.loaded.program("switchback_pass"), &found, namespace)?
            }
            Mode::Generic | Mode::Offloaded => None,
        };
        let link = Arc::new(link);
        let watch = Watch {
            interface: interface.to_owned(),
            mode,
            link: Arc::downgrade(&link),
            program: Program::id_from_fd(program)?,
        };
        Ok(Attachment { watch, _forwarding: forwarding, _link: link, peer })
    }

    /// Whether it is a veth whose other end was found, and got the program without which it loses
    /// what is sent.
    pub fn has_peer_program(&self) -> bool {
        self.peer.is_some()
    }

    /// Where it is, and whether it stays there.
    pub fn watch(&self) -> &Watch {
        &self.watch
    }
}

fn endpoint(datapath: &XdpDatapath) -> IpAddr {
    IpAddr::from(datapath.endpoint().ip).to_canonical()
}

/// Warns of an interface that is down, or that hasn't the switch's address: possible on purpose,
/// but more often a mistake.
fn warn_of(datapath: &XdpDatapath, interface: &Link) -> Result<(), Error> {
    let name = &interface.name;
    if !interface.is_up {
        tracing::warn!("{name} is down, and nothing comes in by it: ip link set dev {name} up");
    }
    let addresses =
        netlink::addresses(interface.index).map_err(Error::system("listing addresses"))?;
    let address = endpoint(datapath);
    if !addresses.contains(&address) {
        tracing::warn!(
            "{name} doesn't have the switch's address, {address}: the kernel answers only what \
             comes in by {name} all the same; packets that come in elsewhere are left to this \
             process, which is several times slower"
        );
    }
    Ok(())
}

fn refusal(interface: &str, mode: Mode, error: &std::io::Error) -> Error {
    let why = match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            format!("{interface} has an XDP program already; `ip link show {interface}` says which")
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == Mode::Native => format!(
            "{interface}'s driver can't take the datapath ({error}); --xdp-mode generic works anywhere, and is several times slower"
        ),
        Some(libc::ERANGE) => format!(
            "{interface}, or a veth's other end, has an MTU too large for the datapath in native \
             mode: ip link set dev {interface} mtu 1500, at both ends"
        ),
        Some(libc::EPERM | libc::EACCES) => {
            format!("attaching to {interface} needs root or CAP_NET_ADMIN")
        }
        _ => format!("attaching to {interface}: {error}"),
    };
    Error::Interface(why)
}

pub(crate) fn link_named(interface: &str) -> Result<Link, Error> {
    let links = netlink::links().map_err(Error::system("listing interfaces"))?;
    links.into_iter().find(|link| link.name == interface).ok_or_else(|| no_interface(interface))
}

fn no_interface(interface: &str) -> Error {
    Error::Interface(format!(
        "there is no interface {interface} here; `ip link` lists those that there are"
    ))
}
