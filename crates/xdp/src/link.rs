//! A client's way to the switch past the kernel's network stack: frames of its own, over AF_XDP.

use crate::headers::Headers;
use crate::object::Loaded;
use crate::rings::XdpSocket;
use crate::{Error, attach, sys};
use libbpf_rs::{MapCore, MapFlags};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use switchback_wire::{Address, Packet};

/// Packets that are sent at once.
const BATCH: usize = 64;

/// A port of an interface that has one queue. What arrives for other ports is the kernel's, which also answers for the interface's address;
/// all that is sent goes to one next hop.
#[derive(Debug)]
pub struct XdpLink {
    socket: XdpSocket,
    headers: Headers,
    queued: usize,
    dropped: u64,
    _diverts: OwnedFd,
}

impl AsFd for XdpLink {
    /// Readable when packets have arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl XdpLink {
    /// Takes packets to `own` off an interface of this thread's network namespace, which has this address and no XDP program yet.
    pub fn open(interface: &str, own: SocketAddrV4, next_hop: [u8; 6]) -> Result<XdpLink, Error> {
        let found = attach::link_named(interface)?;
        let divert = Loaded::divert(own)?;
        let socket = XdpSocket::bind(found.index)?;
        let descriptor = socket.as_fd().as_raw_fd().to_ne_bytes();
        divert.map("sockets").update(&0u32.to_ne_bytes(), &descriptor, MapFlags::ANY)?;
        let diverts = sys::link(divert.program("divert"), found.index, attach::XDP_FLAGS_DRV_MODE)
            .map_err(Error::system("attaching what diverts packets to a socket"))?;
        let headers = Headers::new(own, found.address, next_hop);
        Ok(XdpLink { socket, headers, queued: 0, dropped: 0, _diverts: diverts })
    }

    /// Packets that found no room, or have an address that isn't IPv4's.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Takes the next packet; `None` if there is none now. One that is longer than any of ours is passed over.
    pub fn receive(&mut self, packet: &mut Packet) -> Option<Address> {
        loop {
            let headers = &self.headers;
            let taken = self.socket.receive(|frame| {
                let (from, payload) = headers.read(frame)?;
                packet.copy_from(payload).map(|()| Address::from(SocketAddr::from(from)))
            })?;
            if taken.is_some() {
                return taken;
            }
        }
    }

    /// Queues a packet; sends the batch when it is full.
    pub fn send(&mut self, to: Address, packet: &Packet) {
        let SocketAddr::V4(to) = to.into() else {
            self.dropped += 1;
            return;
        };
        if !self.socket.send(|frame| self.headers.write(to, packet.bytes(), frame)) {
            self.dropped += 1;
        }
        self.queued += 1;
        if self.queued == BATCH {
            self.flush();
        }
    }

    /// Sends what is queued.
    pub fn flush(&mut self) {
        if self.queued > 0 {
            self.queued = 0;
            self.socket.flush();
        }
    }
}
