//! UDP in batches: one system call moves up to [`BATCH`] packets either way.

mod incoming;
mod layout;
mod outgoing;

use crate::link::{Sent, Uplink};
use crate::meter::SocketMeter;
use incoming::Incoming;
use mio::{Interest, Registry, Token, Waker};
use outgoing::Outgoing;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use switchback_wire::{Address, Packet};

/// Packets that are sent at once.
pub const BATCH: usize = 64;

/// A UDP socket with its buffers.
pub struct UdpLink {
    socket: mio::net::UdpSocket,
    address: SocketAddr,
    incoming: Box<Incoming>,
    outgoing: Box<Outgoing>,
}

impl UdpLink {
    /// Binds `address`; the buffers are what the kernel is asked for.
    pub fn bind(
        address: SocketAddr,
        receive_bytes: usize,
        send_bytes: usize,
    ) -> io::Result<UdpLink> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        // The kernel may grant less (net.core.rmem_max); `switchback doctor` says so.
        socket.set_recv_buffer_size(receive_bytes)?;
        socket.set_send_buffer_size(send_bytes)?;
        socket.set_nonblocking(true)?;
        let incoming = Incoming::new(socket.as_raw_fd());
        socket.bind(&address.into())?;
        let socket = mio::net::UdpSocket::from_std(socket.into());
        let address = socket.local_addr()?;
        let outgoing = Outgoing::new(address.is_ipv4());
        Ok(UdpLink { socket, address, incoming, outgoing })
    }

    /// Lets the kernel take apart what is sent to one receiver at once. Only for ways on which
    /// every frame is whole when a program looks at it: XDP in generic mode, at a veth's other end,
    /// gets such messages as one frame, and drops them.
    #[must_use]
    pub fn segmenting(mut self) -> UdpLink {
        self.outgoing.is_segmenting = true;
        self
    }

    /// Where it is bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Reads what waits in it and what it dropped.
    pub fn meter(&self) -> io::Result<SocketMeter> {
        SocketMeter::of(&self.socket)
    }

    /// Sends single packets from the same address, in any thread.
    pub fn sender(&self) -> io::Result<UdpSender> {
        let socket = self.socket.as_fd().try_clone_to_owned()?;
        Ok(UdpSender(socket.into()))
    }

    /// Packets that the kernel refused to send.
    pub fn dropped(&self) -> u64 {
        self.outgoing.dropped
    }

    /// Makes a poll wake up when packets arrive.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.register(&mut self.socket, token, Interest::READABLE)
    }

    /// Takes the next packet; `None` if there is none now.
    pub fn receive(&mut self, packet: &mut Packet) -> Option<Address> {
        self.incoming.next(self.socket.as_raw_fd(), packet)
    }

    /// Queues a packet; sends the batch when it is full.
    pub fn send(&mut self, to: Address, packet: &Packet) {
        if !self.outgoing.push(to, packet) {
            self.flush();
        }
    }

    /// Sends what is queued. What the kernel has no room for is lost, as on any network.
    pub fn flush(&mut self) {
        self.outgoing.flush(self.socket.as_raw_fd());
    }
}

/// Sends single packets from the address of a [`UdpLink`].
#[derive(Debug)]
pub struct UdpSender(std::net::UdpSocket);

impl UdpSender {
    /// Sends a packet. What the kernel has no room for is lost, as on any network.
    pub fn send(&self, to: Address, packet: &Packet) {
        let _lost = self.0.send_to(packet.bytes(), SocketAddr::from(to));
    }
}

impl Uplink for UdpLink {
    fn register(
        &mut self,
        registry: &Registry,
        token: Token,
        _waker: &Arc<Waker>,
    ) -> io::Result<()> {
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
        let any_port = || UdpLink::bind("127.0.0.1:0".parse().unwrap(), 1 << 20, 1 << 20);
        cross_in_batches(any_port().unwrap(), any_port().unwrap());
    }

    #[test]
    fn packets_cross_loopback_in_batches_over_ipv6() {
        let any_port = || UdpLink::bind("[::1]:0".parse().unwrap(), 1 << 20, 1 << 20);
        let Ok(a) = any_port() else { return switchback_testing::skip("ipv6") };
        cross_in_batches(a, any_port().unwrap());
    }

    fn cross_in_batches(a: UdpLink, mut b: UdpLink) {
        let mut a = a.segmenting();
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

    #[test]
    fn packets_of_all_lengths_and_senders_arrive_one_by_one_in_order() {
        let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let bind = || UdpLink::bind(local, 4 << 20, 4 << 20).unwrap().segmenting();
        let (mut a, mut b, mut to) = (bind(), bind(), bind());
        // Runs of equal length, which are merged; changes of length either way; other senders
        // between; one that is too long to be ours.
        let lengths = [100, 100, 100, 40, 100, 1300, 1300, 1300, 7, 7, 9, 0, 0, 1, 1300, 100];
        for (i, length) in lengths.into_iter().cycle().take(80).enumerate() {
            let mut packet = Packet::new();
            packet.buffer_mut()[..length].fill(i as u8);
            packet.set_length(length);
            let sender = if i < 60 { &mut a } else { &mut b };
            sender.send(to.address().into(), &packet);
            if i == 59 || i == 79 {
                sender.flush();
                assert!(sender.socket.send_to(&[0; 3000], to.address()).is_ok());
            }
        }
        let mut packet = Packet::new();
        for (i, length) in lengths.into_iter().cycle().take(80).enumerate() {
            let from = to.receive(&mut packet).unwrap();
            assert_eq!(
                from,
                Address::from(if i < 60 { a.address() } else { b.address() }),
                "packet {i}"
            );
            assert_eq!(packet.bytes(), vec![i as u8; length], "packet {i}");
        }
        assert_eq!((to.receive(&mut packet), a.dropped(), b.dropped()), (None, 0, 0));
    }
}
