//! What the kernel says of interfaces, and makes of them, by rtnetlink, in the calling thread's
//! network namespace; /sys shows those of another.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_GETADDR: u16 = 22;
const RTM_GETNSID: u16 = 90;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const IFF_UP: u32 = 1;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_NUM_TX_QUEUES: u16 = 31;
const IFLA_NUM_RX_QUEUES: u16 = 32;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; zeros if it has none.
    pub address: [u8; 6],
    /// The longest packet that it sends.
    pub mtu: u32,
    /// Whether it is set up.
    pub is_up: bool,
    /// The number of the interface that it is tied to; of a veth, its other end.
    pub peer: Option<u32>,
    /// This namespace's number for the one that the other end is in; none: this one.
    pub peer_namespace: Option<i32>,
}

/// A netlink socket.
fn open() -> io::Result<File> {
    // SAFETY: plain values.
    let fd = unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor, for us.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

fn request(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut message = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    message.extend(kind.to_ne_bytes());
    message.extend((NLM_F_REQUEST | flags).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = 4 + value.len();
    let mut bytes = (length as u16).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// `struct ifinfomsg`: which interface, and which of its flags are to be set.
fn interface(index: u32, flags: u32) -> Vec<u8> {
    [0, index, flags, flags].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |bytes| u16::from_ne_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes
        .get(at..at + 4)
        .map_or(0, |bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The attributes behind a message's own header.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0));
        let value = bytes.get(4..length)?;
        let kind = u16_at(bytes, 2) & 0x3fff;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// Calls `take` with the kind and the body of each message of the answer, until it ends.
fn answers(socket: &mut File, is_dump: bool, mut take: impl FnMut(u16, &[u8])) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = socket.read(&mut buffer)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut rest = &buffer[..length];
        while rest.len() >= 16 {
            let (size, kind) = (u32_at(rest, 0) as usize, u16_at(rest, 4));
            let Some(body) = rest.get(16..size) else { break };
            match kind {
                NLMSG_DONE => return Ok(()),
                NLMSG_ERROR => {
                    let code = u32_at(body, 0) as i32;
                    return if code == 0 {
                        Ok(())
                    } else {
                        Err(io::Error::from_raw_os_error(-code))
                    };
                }
                _ => take(kind, body),
            }
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or_default();
        }
        if !is_dump {
            return Ok(());
        }
    }
}

fn link_of(body: &[u8]) -> Link {
    let is_up = u32_at(body, 8) & IFF_UP != 0;
    let mut link = Link { index: u32_at(body, 4), is_up, ..Link::default() };
    for (kind, value) in attributes(body.get(16..).unwrap_or_default()) {
        match kind {
            IFLA_IFNAME => {
                link.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned()
            }
            IFLA_ADDRESS => link.address = value.try_into().unwrap_or_default(),
            IFLA_MTU => link.mtu = u32_at(value, 0),
            IFLA_LINK => link.peer = Some(u32_at(value, 0)),
            IFLA_LINK_NETNSID => link.peer_namespace = Some(u32_at(value, 0) as i32),
            _ => {}
        }
    }
    link
}

/// All interfaces.
pub fn links() -> io::Result<Vec<Link>> {
    let mut socket = open()?;
    socket.write_all(&request(RTM_GETLINK, NLM_F_DUMP, &[0; 16]))?;
    let mut links = Vec::new();
    answers(&mut socket, true, |kind, body| {
        if kind == RTM_NEWLINK {
            links.push(link_of(body));
        }
    })?;
    Ok(links)
}

/// The addresses of an interface.
pub(crate) fn addresses(index: u32) -> io::Result<Vec<IpAddr>> {
    let mut socket = open()?;
    socket.write_all(&request(RTM_GETADDR, NLM_F_DUMP, &[0; 8]))?;
    let mut found = Vec::new();
    answers(&mut socket, true, |kind, body| {
        if kind == RTM_NEWADDR && u32_at(body, 4) == index {
            found.extend(address_of(body));
        }
    })?;
    Ok(found)
}

/// Its own, even if it is tied to the one at the other end (`IFA_ADDRESS` is that one then).
fn address_of(body: &[u8]) -> Option<IpAddr> {
    let of = |wanted| {
        attributes(body.get(8..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    };
    let value = of(IFA_LOCAL).or_else(|| of(IFA_ADDRESS))?;
    let v4 = || <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into());
    v4().or_else(|| <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()))
}

/// Has the kernel do something.
fn order(kind: u16, flags: u16, body: &[u8]) -> io::Result<()> {
    let mut socket = open()?;
    socket.write_all(&request(kind, NLM_F_ACK | flags, body))?;
    answers(&mut socket, false, |_, _| {})
}

/// Makes a veth, its other end in another namespace, both with `queues` queues.
pub(crate) fn add_veth(
    name: &str,
    other_name: &str,
    other: BorrowedFd<'_>,
    queues: u32,
) -> io::Result<()> {
    let end = |name: &str| {
        let mut end = interface(0, 0);
        end.extend(attribute(IFLA_IFNAME, format!("{name}\0").as_bytes()));
        end.extend(attribute(IFLA_NUM_TX_QUEUES, &queues.to_ne_bytes()));
        end.extend(attribute(IFLA_NUM_RX_QUEUES, &queues.to_ne_bytes()));
        end
    };
    let peer =
        [end(other_name), attribute(IFLA_NET_NS_FD, &other.as_raw_fd().to_ne_bytes())].concat();
    let data = attribute(IFLA_INFO_DATA, &attribute(VETH_INFO_PEER, &peer));
    let info = attribute(IFLA_LINKINFO, &[attribute(IFLA_INFO_KIND, b"veth"), data].concat());
    order(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, &[end(name), info].concat())
}

/// Sets an interface up.
pub(crate) fn set_up(index: u32) -> io::Result<()> {
    order(RTM_NEWLINK, 0, &interface(index, IFF_UP))
}

/// Gives an interface an address.
pub(crate) fn add_address(index: u32, address: Ipv4Addr, prefix_bits: u8) -> io::Result<()> {
    let mut body = vec![libc::AF_INET as u8, prefix_bits, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(attribute(IFA_LOCAL, &address.octets()));
    body.extend(attribute(IFA_ADDRESS, &address.octets()));
    order(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, &body)
}

/// This namespace's number for another one, if it has one.
pub(crate) fn namespace_id(of: BorrowedFd<'_>) -> io::Result<Option<i32>> {
    let mut body = vec![0; 4];
    body.extend(8u16.to_ne_bytes());
    body.extend(NETNSA_FD.to_ne_bytes());
    body.extend(of.as_raw_fd().to_ne_bytes());
    let mut socket = open()?;
    socket.write_all(&request(RTM_GETNSID, 0, &body))?;
    let mut id = None;
    answers(&mut socket, false, |_, body| {
        let found =
            attributes(body.get(4..).unwrap_or_default()).find(|(kind, _)| *kind == NETNSA_NSID);
        id = found.map(|(_, value)| u32_at(value, 0) as i32).filter(|id| *id >= 0);
    })?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_there() {
        let links = links().unwrap();
        let loopback = links.iter().find(|link| link.name == "lo").unwrap();
        assert!(loopback.index > 0 && loopback.mtu >= 1500, "{loopback:?}");
        let addresses = addresses(loopback.index).unwrap();
        assert!(
            !loopback.is_up || addresses.contains(&Ipv4Addr::LOCALHOST.into()),
            "{addresses:?}"
        );
    }
}
