//! Packets to send. Neighbours of equal length to one receiver go to the kernel as one message,
//! which it takes apart (segmentation offload): one walk through its network stack instead of one a
//! packet.

use super::BATCH;
use super::layout::{Control, from_address, name_bytes};
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use switchback_wire::{Address, PACKET_BYTES_MAX, Packet};

/// Packets of one message that the kernel takes apart (`UDP_MAX_SEGMENTS` of Linux before 6.9).
const SEGMENTS_MAX: usize = 64;
/// Bytes of one message: an IP packet's largest, less its headers.
const MESSAGE_BYTES_MAX: usize = 65_535 - 48;

/// A queue of packets, emptied by [`Outgoing::flush`].
pub(super) struct Outgoing {
    bytes: [[u8; PACKET_BYTES_MAX]; BATCH],
    lengths: [usize; BATCH],
    to: [Address; BATCH],
    count: usize,
    is_v4: bool,
    // Of messages, the others of packets.
    names: [libc::sockaddr_storage; BATCH],
    controls: [Control; BATCH],
    /// Whether the kernel is to take messages apart; if it can't, that is found out by trying.
    pub(super) is_segmenting: bool,
    /// Packets that the kernel refused.
    pub(super) dropped: u64,
}

/// What the kernel reads of one `sendmmsg`.
struct Messages {
    headers: [libc::mmsghdr; BATCH],
    vectors: [libc::iovec; BATCH],
}

impl Outgoing {
    pub(super) fn new(is_v4: bool) -> Box<Outgoing> {
        // SAFETY: all fields are plain integers (or truth values), for which zero is a value;
        // allocated zeroed because the array is too large to pass through the stack.
        let mut new = unsafe { Box::<Outgoing>::new_zeroed().assume_init() };
        new.is_v4 = is_v4;
        new
    }

    /// Queues a packet; false if that was the last one that finds room.
    pub(super) fn push(&mut self, to: Address, packet: &Packet) -> bool {
        let at = self.count;
        let length = packet.bytes().len();
        self.bytes[at][..length].copy_from_slice(packet.bytes());
        self.lengths[at] = length;
        self.to[at] = to;
        self.count += 1;
        self.count < BATCH
    }

    /// The packets from `start` on that make one message: all of one length, but the last one,
    /// which may be shorter.
    fn message_at(&self, start: usize) -> Range<usize> {
        let (length, mut bytes, mut end) = (self.lengths[start], self.lengths[start], start + 1);
        while self.is_segmenting
            && end < self.count
            && end - start < SEGMENTS_MAX
            && self.lengths[end - 1] == length
            && (1..=length).contains(&self.lengths[end])
            && bytes + self.lengths[end] <= MESSAGE_BYTES_MAX
            && self.to[end] == self.to[start]
        {
            bytes += self.lengths[end];
            end += 1;
        }
        start..end
    }

    /// Sends what is queued. What the kernel has no room for is lost, as on any network.
    pub(super) fn flush(&mut self, fd: RawFd) {
        let mut sent = 0;
        while sent < self.count {
            sent = self.send_from(fd, sent);
        }
        self.count = 0;
    }

    /// Sends the packets from `start` on; up to which one they are done with.
    fn send_from(&mut self, fd: RawFd, start: usize) -> usize {
        // SAFETY: these structs are plain integers and pointers, of which zero is a value.
        let mut messages: Messages = unsafe { std::mem::zeroed() };
        let (mut ends, mut count, mut at) = ([0; BATCH], 0, start);
        while at < self.count {
            let packets = self.message_at(at);
            at = packets.end;
            ends[count] = at;
            self.prepare(&mut messages, count, packets);
            count += 1;
        }
        // SAFETY: `count` headers are initialized by `prepare`, which points them into `messages`
        // and `self`; neither moves or ends before the call does.
        let done = unsafe {
            libc::sendmmsg(fd, messages.headers.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT)
        };
        match usize::try_from(done) {
            Ok(done) if done > 0 => ends[done - 1],
            _ if ends[0] - start > 1 && is_unsupported(&io::Error::last_os_error()) => {
                // No checksum offload on this way, or an old kernel: one by one from now on,
                // beginning with these.
                self.is_segmenting = false;
                start
            }
            // The first one was refused (no room, or no socket at that port): go on behind it.
            _ => {
                self.dropped += (ends[0] - start) as u64;
                ends[0]
            }
        }
    }

    /// Describes `packets` in the message at `index`.
    fn prepare(&mut self, messages: &mut Messages, index: usize, packets: Range<usize>) {
        let Messages { headers, vectors } = messages;
        for at in packets.clone() {
            vectors[at] = libc::iovec {
                iov_base: self.bytes[at].as_mut_ptr().cast(),
                iov_len: self.lengths[at],
            };
        }
        from_address(self.to[packets.start], self.is_v4, &mut self.names[index]);
        let header = &mut headers[index].msg_hdr;
        header.msg_iov = vectors[packets.clone()].as_mut_ptr();
        header.msg_iovlen = packets.len() as _;
        header.msg_name = (&raw mut self.names[index]).cast();
        header.msg_namelen = name_bytes(self.is_v4);
        if packets.len() > 1 {
            self.controls[index].set_segment_bytes(self.lengths[packets.start] as u16);
            header.msg_control = (&raw mut self.controls[index]).cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
    }
}

/// Whether that was about taking messages apart rather than about sending.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(packets: &[(u16, usize)]) -> Box<Outgoing> {
        let mut outgoing = Outgoing::new(true);
        outgoing.is_segmenting = true;
        for (port, length) in packets {
            let mut packet = Packet::new();
            packet.set_length(*length);
            assert!(outgoing.push(Address { ip: [0; 16], port: *port }, &packet));
        }
        outgoing
    }

    fn messages(outgoing: &Outgoing) -> Vec<Range<usize>> {
        let (mut found, mut at) = (Vec::new(), 0);
        while at < outgoing.count {
            found.push(outgoing.message_at(at));
            at = outgoing.message_at(at).end;
        }
        found
    }

    #[test]
    fn equal_neighbours_are_one_message_and_the_last_may_be_shorter() {
        let mut outgoing = queued(&[
            (1, 130),
            (1, 130),
            (1, 120),
            (1, 120),
            (1, 130),
            (2, 130),
            (2, 130),
            (2, 0),
            (2, 0),
        ]);
        assert_eq!(messages(&outgoing), [0..3, 3..4, 4..5, 5..7, 7..8, 8..9]);
        outgoing.is_segmenting = false;
        assert_eq!(messages(&outgoing).len(), 9);
    }

    #[test]
    fn a_message_fits_an_ip_packet() {
        let outgoing = queued(&[(1, PACKET_BYTES_MAX); BATCH - 1]);
        // 45 packets are 64,800 bytes.
        assert_eq!(messages(&outgoing), [0..45, 45..63]);
    }
}
