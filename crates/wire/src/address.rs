//! Where a packet goes: an IPv6 (or IPv4-mapped) address and a UDP port.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An endpoint of the data plane, as the header carries it.
///
/// In-memory links use addresses too, from a range that no network routes, so that packets look the
/// same everywhere.
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    FromBytes,
    Immutable,
    IntoBytes,
)]
#[repr(C)]
pub struct Address {
    /// IPv6, or IPv4 mapped into it.
    pub ip: [u8; 16],
    /// UDP port, host order.
    pub port: u16,
}

impl Address {
    /// Address of an in-memory endpoint: `role` and `index` in the discard prefix `100::/64` (RFC
    /// 6666).
    pub const fn in_memory(role: u16, index: u16) -> Address {
        let mut ip = [0; 16];
        ip[0] = 1;
        ip[12] = (role >> 8) as u8;
        ip[13] = role as u8;
        ip[14] = (index >> 8) as u8;
        ip[15] = index as u8;
        Address { ip, port: 1 }
    }
}

impl From<SocketAddr> for Address {
    fn from(socket: SocketAddr) -> Address {
        let ip = match socket.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            IpAddr::V6(v6) => v6.octets(),
        };
        Address { ip, port: socket.port() }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> SocketAddr {
        let ip = Ipv6Addr::from(address.ip);
        match ip.to_ipv4_mapped() {
            Some(v4) => SocketAddr::new(v4.into(), address.port),
            None => SocketAddr::new(ip.into(), address.port),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}
