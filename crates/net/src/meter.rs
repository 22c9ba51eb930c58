//! What waits in a UDP socket, and what found no room there: only the kernel knows.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Numbers that `SO_MEMINFO` fills in, as of Linux 4.12, and where these are among them
/// (`linux/sock_diag.h`).
const FIELDS: usize = 9;
const RECEIVE_BYTES: usize = 0;
const DROPS: usize = 8;

/// Reads a socket's counters, from any thread.
#[derive(Debug)]
pub struct SocketMeter(OwnedFd);

/// A socket's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SocketQueue {
    /// Memory of the packets that wait to be received: more than their own bytes.
    pub queued_bytes: u64,
    /// Packets that were dropped because the receive buffer was full (or, rarely, damaged).
    pub dropped: u64,
}

impl SocketMeter {
    /// Of this socket, which it keeps open.
    pub fn of(socket: &impl AsFd) -> io::Result<SocketMeter> {
        Ok(SocketMeter(socket.as_fd().try_clone_to_owned()?))
    }

    /// As of now; zeroes if the kernel doesn't say.
    pub fn read(&self) -> SocketQueue {
        let mut fields = [0u32; FIELDS];
        let mut length = size_of_val(&fields) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `fields`, which has as many, and the
        // new length to `length`.
        let result = unsafe {
            libc::getsockopt(
                self.0.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                fields.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if result != 0 {
            return SocketQueue::default();
        }
        SocketQueue { queued_bytes: fields[RECEIVE_BYTES].into(), dropped: fields[DROPS].into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_waits_and_what_is_dropped_is_counted() {
        let receiver =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
        receiver.set_recv_buffer_size(32 << 10).unwrap();
        receiver.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
        let receiver = UdpSocket::from(receiver);
        let meter = SocketMeter::of(&receiver).unwrap();
        assert_eq!(meter.read(), SocketQueue::default());
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = || sender.send_to(&[7; 1000], receiver.local_addr().unwrap()).unwrap();
        send();
        let one = meter.read();
        assert!(one.queued_bytes >= 1000 && one.dropped == 0, "{one:?}");
        (0..200).for_each(|_| _ = send());
        let full = meter.read();
        assert!(full.queued_bytes > one.queued_bytes && full.dropped > 0, "{full:?}");
        receiver.set_nonblocking(true).unwrap();
        while receiver.recv(&mut [0; 2000]).is_ok() {}
        assert_eq!(meter.read().dropped, full.dropped);
        assert!(meter.read().queued_bytes < full.queued_bytes);
    }
}
