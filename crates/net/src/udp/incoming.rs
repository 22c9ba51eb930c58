//! Packets that arrived. The kernel may hand over many of one sender as one message (receive
//! offload), which is taken apart here.

use super::layout::{Control, UDP_GRO, to_address};
use std::io;
use std::os::fd::RawFd;
use switchback_wire::{Address, Packet};

/// Messages of one system call.
const MESSAGES: usize = 64;
/// Bytes of a message: no datagram is longer, merged or not.
const MESSAGE_BYTES_MAX: usize = 65_535;

/// What the last system call brought.
pub(super) struct Incoming {
    // First, so that each begins on a page, and no more pages are ever touched than arrived.
    bytes: [[u8; MESSAGE_BYTES_MAX + 1]; MESSAGES],
    names: [libc::sockaddr_storage; MESSAGES],
    controls: [Control; MESSAGES],
    messages: [Message; MESSAGES],
    count: usize,
    /// The message that packets are taken from, and where in it the next one begins.
    next: usize,
    at: usize,
}

/// A message, and how long the packets are that are merged in it; the last one may be shorter.
#[derive(Clone, Copy)]
struct Message {
    bytes: usize,
    segment_bytes: usize,
}

impl Incoming {
    /// Buffers; the socket is asked to merge packets, which old kernels can't.
    pub(super) fn new(fd: RawFd) -> Box<Incoming> {
        let on: libc::c_int = 1;
        // SAFETY: the value lives during the call and has the length that it is told.
        let merges = unsafe {
            libc::setsockopt(
                fd,
                libc::SOL_UDP,
                UDP_GRO,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        if merges != 0 {
            tracing::debug!(
                error = %io::Error::last_os_error(),
                "the kernel doesn't merge packets"
            );
        }
        // SAFETY: all fields are plain integers (sockaddr_storage included), for which zero is a
        // value; allocated zeroed because the array is too large to pass through the stack.
        unsafe { Box::<Incoming>::new_zeroed().assume_init() }
    }

    /// Copies the next packet; `None` if there is none now. One that is longer than any of ours is
    /// passed over.
    pub(super) fn next(&mut self, fd: RawFd, packet: &mut Packet) -> Option<Address> {
        loop {
            if self.next == self.count {
                self.receive(fd);
                if self.count == 0 {
                    return None;
                }
            }
            let (index, start) = (self.next, self.at);
            let Message { bytes, segment_bytes } = self.messages[index];
            let end = bytes.min(start + segment_bytes);
            self.at = end;
            if end == bytes {
                (self.next, self.at) = (index + 1, 0);
            }
            if packet.copy_from(&self.bytes[index][start..end]).is_some() {
                return Some(to_address(&self.names[index]));
            }
        }
    }

    fn receive(&mut self, fd: RawFd) {
        // SAFETY: an mmsghdr of zeroes is a value; the pointers set below are to buffers that
        // outlive the call.
        let mut headers: [libc::mmsghdr; MESSAGES] = unsafe { std::mem::zeroed() };
        let mut vectors = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; MESSAGES];
        for at in 0..MESSAGES {
            vectors[at] = libc::iovec {
                iov_base: self.bytes[at].as_mut_ptr().cast(),
                iov_len: MESSAGE_BYTES_MAX,
            };
            let header = &mut headers[at].msg_hdr;
            header.msg_iov = &raw mut vectors[at];
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut self.names[at]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as u32;
            header.msg_control = (&raw mut self.controls[at]).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: all headers are initialized; their buffers are distinct and have the stated
        // lengths.
        let got = unsafe {
            libc::recvmmsg(
                fd,
                headers.as_mut_ptr(),
                MESSAGES as u32,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        self.count = usize::try_from(got).unwrap_or(0);
        (self.next, self.at) = (0, 0);
        for (at, header) in headers[..self.count].iter().enumerate() {
            let bytes = (header.msg_len as usize).min(MESSAGE_BYTES_MAX);
            let control_bytes = header.msg_hdr.msg_controllen;
            let segment_bytes = self.controls[at].segment_bytes(control_bytes).unwrap_or(bytes);
            self.messages[at] = Message { bytes, segment_bytes };
        }
    }
}
