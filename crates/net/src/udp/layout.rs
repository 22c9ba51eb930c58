//! Addresses and control messages in the layout that the kernel takes.

use std::net::SocketAddr;
use switchback_wire::Address;

/// Says of a message how long the packets in it are (`linux/udp.h`).
const UDP_SEGMENT: i32 = 103;
/// Asks for merged packets, and says of a message how long those in it are.
pub(super) const UDP_GRO: i32 = 104;

/// Bytes of an address of this family.
pub(super) fn name_bytes(is_v4: bool) -> u32 {
    let bytes =
        if is_v4 { size_of::<libc::sockaddr_in>() } else { size_of::<libc::sockaddr_in6>() };
    bytes as u32
}

/// What the kernel wrote.
pub(super) fn to_address(name: &libc::sockaddr_storage) -> Address {
    let name: *const libc::sockaddr_storage = name;
    // SAFETY: sockaddr_storage is as large and aligned as any address; the family says which one
    // the kernel wrote.
    unsafe {
        if i32::from((*name).ss_family) == libc::AF_INET {
            let v4 = &*name.cast::<libc::sockaddr_in>();
            let ip = std::net::Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            return SocketAddr::from((ip, u16::from_be(v4.sin_port))).into();
        }
        let v6 = &*name.cast::<libc::sockaddr_in6>();
        Address { ip: v6.sin6_addr.s6_addr, port: u16::from_be(v6.sin6_port) }
    }
}

/// Writes what the kernel reads; `name` held zeroes or an address of the same family.
pub(super) fn from_address(to: Address, is_v4: bool, name: &mut libc::sockaddr_storage) {
    let name: *mut libc::sockaddr_storage = name;
    // SAFETY: sockaddr_storage is as large and aligned as any address, and zeroes are a value of
    // each.
    unsafe {
        if is_v4 {
            let v4 = &mut *name.cast::<libc::sockaddr_in>();
            v4.sin_family = libc::AF_INET as u16;
            v4.sin_port = to.port.to_be();
            v4.sin_addr.s_addr = u32::from_ne_bytes([to.ip[12], to.ip[13], to.ip[14], to.ip[15]]);
            return;
        }
        let v6 = &mut *name.cast::<libc::sockaddr_in6>();
        v6.sin6_family = libc::AF_INET6 as u16;
        v6.sin6_port = to.port.to_be();
        v6.sin6_addr.s6_addr = to.ip;
    }
}

/// A control message that holds one length, aligned as they have to be. Zeroes are a value.
#[repr(C, align(8))]
pub(super) struct Control {
    header: libc::cmsghdr,
    value: [u8; 8],
}

impl Control {
    /// Says of a message to be sent how long the packets in it are.
    pub(super) fn set_segment_bytes(&mut self, bytes: u16) {
        self.header.cmsg_len = (size_of::<libc::cmsghdr>() + size_of::<u16>()) as _;
        self.header.cmsg_level = libc::SOL_UDP;
        self.header.cmsg_type = UDP_SEGMENT;
        self.value[..2].copy_from_slice(&bytes.to_ne_bytes());
    }

    /// What the kernel says in `bytes` of control messages: how long the message's packets are, if
    /// it merged any.
    pub(super) fn segment_bytes(&self, bytes: usize) -> Option<usize> {
        let is_told = bytes >= size_of::<libc::cmsghdr>() + size_of::<libc::c_int>()
            && (self.header.cmsg_level, self.header.cmsg_type) == (libc::SOL_UDP, UDP_GRO);
        let [a, b, c, d, ..] = self.value;
        let length = usize::try_from(libc::c_int::from_ne_bytes([a, b, c, d])).unwrap_or(0);
        (is_told && length > 0).then_some(length)
    }
}
