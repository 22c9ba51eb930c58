//! UDP in batches: one system call moves up to [`BATCH`] packets either way.

use crate::link::{Sent, Uplink};
use crate::meter::SocketMeter;
use mio::{Interest, Registry, Token, Waker};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use switchback_wire::{Address, PACKET_BYTES_MAX, Packet};

/// Packets of one system call.
pub const BATCH: usize = 64;

/// A UDP socket with its buffers.
pub struct UdpLink {
    socket: mio::net::UdpSocket,
    address: SocketAddr,
    incoming: Box<Batch>,
    outgoing: Box<Batch>,
    /// Received packets not taken yet: `next..count` of `incoming`.
    next: usize,
    is_v4: bool,
    dropped: u64,
}

/// Buffers for one batch, in the layout that the kernel takes.
struct Batch {
    bytes: [[u8; PACKET_BYTES_MAX]; BATCH],
    names: [libc::sockaddr_storage; BATCH],
    lengths: [usize; BATCH],
    count: usize,
}

impl Batch {
    fn new() -> Box<Batch> {
        // SAFETY: all fields are plain integers (sockaddr_storage included), for which zero is a value; allocated zeroed because
        // the array is too large to pass through the stack.
        unsafe { Box::<Batch>::new_zeroed().assume_init() }
    }
}

impl UdpLink {
    /// Binds `address`; the buffers are what the kernel is asked for.
    pub fn bind(address: SocketAddr, receive_bytes: usize, send_bytes: usize) -> io::Result<UdpLink> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // The kernel may grant less (net.core.rmem_max); `switchback doctor` says so.
        socket.set_recv_buffer_size(receive_bytes)?;
        socket.set_send_buffer_size(send_bytes)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        let socket = mio::net::UdpSocket::from_std(socket.into());
        let address = socket.local_addr()?;
        Ok(UdpLink {
            socket,
            address,
            incoming: Batch::new(),
            outgoing: Batch::new(),
            next: 0,
            is_v4: address.is_ipv4(),
            dropped: 0,
        })
    }

    /// Where it is bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads what waits in it and what it dropped.
    pub fn meter(&self) -> io::Result<SocketMeter> {
        SocketMeter::of(&self.socket)
    }

    /// Packets that the kernel refused to send.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Makes a poll wake up when packets arrive.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Takes the next packet; `None` if there is none now.
    pub fn receive(&mut self, packet: &mut Packet) -> Option<Address> {
        if self.next == self.incoming.count {
            self.receive_batch();
        }
        if self.next == self.incoming.count {
            return None;
        }
        let at = self.next;
        self.next += 1;
        let from = to_address(&self.incoming.names[at]);
        packet.copy_from(&self.incoming.bytes[at][..self.incoming.lengths[at]])?;
        Some(from)
    }

    fn receive_batch(&mut self) {
        self.next = 0;
        let batch = &mut *self.incoming;
        // SAFETY: an mmsghdr of zeroes is a value; the pointers set below are to buffers that outlive the call.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        for at in 0..BATCH {
            vectors[at] = libc::iovec { iov_base: batch.bytes[at].as_mut_ptr().cast(), iov_len: PACKET_BYTES_MAX };
            headers[at].msg_hdr.msg_iov = &raw mut vectors[at];
            headers[at].msg_hdr.msg_iovlen = 1;
            headers[at].msg_hdr.msg_name = (&raw mut batch.names[at]).cast();
            headers[at].msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
        }
        let fd = self.socket.as_raw_fd();
        // SAFETY: `headers` holds BATCH initialized entries, whose buffers are BATCH distinct arrays of the stated lengths.
        let got =
            unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), BATCH as u32, libc::MSG_DONTWAIT, std::ptr::null_mut()) };
        batch.count = usize::try_from(got).unwrap_or(0);
        for (length, header) in batch.lengths.iter_mut().zip(&headers[..batch.count]) {
            // A packet that was longer than any of ours fails its length check.
            *length = header.msg_len as usize;
        }
    }

    /// Queues a packet; sends the batch when it is full.
    pub fn send(&mut self, to: Address, packet: &Packet) {
        let batch = &mut *self.outgoing;
        let at = batch.count;
        let length = packet.bytes().len();
        batch.bytes[at][..length].copy_from_slice(packet.bytes());
        batch.lengths[at] = length;
        from_address(to, self.is_v4, &mut batch.names[at]);
        batch.count += 1;
        if batch.count == BATCH {
            self.flush();
        }
    }

    /// Sends what is queued. What the kernel has no room for is lost, as on any network.
    pub fn flush(&mut self) {
        let batch = &mut *self.outgoing;
        let count = std::mem::take(&mut batch.count);
        // SAFETY: an mmsghdr of zeroes is a value; the pointers set below are to buffers that outlive the call.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; BATCH];
        for at in 0..count {
            vectors[at] = libc::iovec { iov_base: batch.bytes[at].as_mut_ptr().cast(), iov_len: batch.lengths[at] };
            headers[at].msg_hdr.msg_iov = &raw mut vectors[at];
            headers[at].msg_hdr.msg_iovlen = 1;
            headers[at].msg_hdr.msg_name = (&raw mut batch.names[at]).cast();
            headers[at].msg_hdr.msg_namelen = name_bytes(self.is_v4);
        }
        let fd = self.socket.as_raw_fd();
        let mut sent = 0;
        while sent < count {
            let left = (count - sent) as u32;
            // SAFETY: `headers[sent..count]` are initialized above and point to live buffers.
            let done = unsafe { libc::sendmmsg(fd, headers[sent..].as_mut_ptr(), left, libc::MSG_DONTWAIT) };
            match usize::try_from(done) {
                Ok(done) if done > 0 => sent += done,
                // The first of the rest was refused (no room, or nobody at that port): go on behind it.
                _ => {
                    self.dropped += 1;
                    sent += 1;
                }
            }
        }
    }
}

fn name_bytes(is_v4: bool) -> u32 {
    let bytes = if is_v4 { size_of::<libc::sockaddr_in>() } else { size_of::<libc::sockaddr_in6>() };
    bytes as u32
}

fn to_address(name: &libc::sockaddr_storage) -> Address {
    let name: *const libc::sockaddr_storage = name;
    // SAFETY: sockaddr_storage is as large and aligned as any address; the family says which one the kernel wrote.
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

fn from_address(to: Address, is_v4: bool, name: &mut libc::sockaddr_storage) {
    let name: *mut libc::sockaddr_storage = name;
    // SAFETY: sockaddr_storage is as large and aligned as any address, and zeroes are a value of each.
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

impl Uplink for UdpLink {
    fn register(&mut self, registry: &Registry, token: Token, _waker: &Arc<Waker>) -> io::Result<()> {
        UdpLink::register(self, registry, token)
    }

    fn send(&mut self, to: Address, packet: &mut Packet) -> Sent {
        UdpLink::send(self, to, packet);
        Sent::OnItsWay
    }

    fn flush(&mut self) {
        UdpLink::flush(self);
    }

    fn receive(&mut self, packet: &mut Packet) -> bool {
        UdpLink::receive(self, packet).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::{Header, Op};

    #[test]
    fn packets_cross_loopback_in_batches() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let address: SocketAddr = address.parse().unwrap();
            let Ok(mut a) = UdpLink::bind(address, 1 << 20, 1 << 20) else {
                eprintln!("skipped {address}: not available on this machine");
                continue;
            };
            let mut b = UdpLink::bind(address, 1 << 20, 1 << 20).unwrap();
            for i in 0..150u64 {
                let header = Header { request: i, ..Header::new(Op::Read) };
                a.send(b.address().into(), &Packet::build(header, b"", &[7; 30]));
            }
            a.flush();
            let mut packet = Packet::new();
            let mut seen = 0;
            while let Some(from) = b.receive(&mut packet) {
                assert_eq!(from, Address::from(a.address()));
                assert_eq!(packet.parse().unwrap().header.request, seen);
                seen += 1;
            }
            assert_eq!((seen, a.dropped()), (150, 0));
        }
    }
}
