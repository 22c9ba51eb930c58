//! An AF_XDP socket: its memory, its four rings, its system calls, and all `unsafe` for that. What is in a frame is not its business.
//!
//! Half of the frames are to be received into, and go round from the fill ring through the receive ring and back; the other half are to
//! be sent, and go from the list of free ones through the send ring and the completion ring back to it. A frame that the kernel has is
//! in one of its rings, and isn't touched.

use crate::Error;
use crate::sys::{PAGE, Shared};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// Room for a frame, and for what the kernel keeps in front of one.
const FRAME_BYTES: usize = 2048;
/// Entries of each ring.
const ENTRIES: u32 = 1024;
/// Frames of each direction: half as many, since the kernel says late what it has taken off a ring.
const FRAMES: u64 = ENTRIES as u64 / 2;
const MEMORY_BYTES: usize = 2 * FRAMES as usize * FRAME_BYTES;
/// The kernel sends 32 at a time unless told otherwise; some more for when it has no room at once.
const KICKS_MAX: u32 = 2 * ENTRIES / 32;

/// One of the two sides of a ring that is shared with the kernel. Positions only grow, and wrap around at 2^32.
#[derive(Debug)]
struct Ring {
    memory: Shared,
    producer: usize,
    consumer: usize,
    entries: usize,
    /// Words of an entry.
    words: usize,
    /// Our position, and the other side's when it was last looked at.
    ours: u32,
    theirs: u32,
}

/// Where in a frame bytes are, and how many: of the rings of frames alone the beginning only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Entry {
    at: u64,
    bytes: u32,
}

impl Ring {
    fn slot(&self) -> usize {
        self.entries + 8 * self.words * (self.ours % ENTRIES) as usize
    }

    /// Puts an entry behind the last one, to be seen after [`Ring::publish`]; false if there is no room.
    fn push(&mut self, entry: Entry) -> bool {
        if self.ours.wrapping_sub(self.theirs) == ENTRIES {
            self.theirs = self.memory.u32_at(self.consumer).load(Ordering::Acquire);
        }
        if self.ours.wrapping_sub(self.theirs) >= ENTRIES {
            return false;
        }
        let slot = self.slot();
        self.memory.u64_at(slot).store(entry.at, Ordering::Relaxed);
        if self.words == 2 {
            // No options. (The length is the first half of the word.)
            self.memory.u32_at(slot + 8).store(entry.bytes, Ordering::Relaxed);
            self.memory.u32_at(slot + 12).store(0, Ordering::Relaxed);
        }
        self.ours = self.ours.wrapping_add(1);
        true
    }

    fn publish(&self) {
        self.memory.u32_at(self.producer).store(self.ours, Ordering::Release);
    }

    /// Whether the other side has taken all that was published.
    fn is_taken(&self) -> bool {
        self.memory.u32_at(self.consumer).load(Ordering::Acquire) == self.ours
    }

    /// Takes the next entry, whose place is free after [`Ring::release`].
    fn pop(&mut self) -> Option<Entry> {
        if self.ours == self.theirs {
            self.theirs = self.memory.u32_at(self.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        let slot = self.slot();
        let at = self.memory.u64_at(slot).load(Ordering::Relaxed);
        let bytes = if self.words == 2 { self.memory.u32_at(slot + 8).load(Ordering::Relaxed) } else { 0 };
        self.ours = self.ours.wrapping_add(1);
        Some(Entry { at, bytes })
    }

    fn release(&self) {
        self.memory.u32_at(self.consumer).store(self.ours, Ordering::Release);
    }
}

/// The memory of all frames.
#[derive(Debug)]
struct Frames(Shared);

impl Frames {
    /// Bytes of frames that we have: taken off a ring, and not given back as long as the reference lives.
    fn bytes(&mut self, entry: Entry) -> &mut [u8] {
        let (at, bytes) = (entry.at as usize, entry.bytes as usize);
        assert!(at < MEMORY_BYTES && at % FRAME_BYTES + bytes <= FRAME_BYTES, "{entry:?} is in no frame");
        // SAFETY: inside of the mapping, which lives as long as `self`; the kernel doesn't touch frames that it hasn't got, and `&mut
        // self` keeps everybody else out.
        unsafe { std::slice::from_raw_parts_mut(self.0.pointer().add(at), bytes) }
    }
}

/// The socket, bound to a queue of an interface. It gets what a program on the interface redirects to it.
#[derive(Debug)]
pub(crate) struct XdpSocket {
    fd: OwnedFd,
    frames: Frames,
    fill: Ring,
    receive: Ring,
    send: Ring,
    completion: Ring,
    /// Frames that nothing is sent from.
    free: Vec<u64>,
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn set<T>(fd: BorrowedFd<'_>, option: libc::c_int, value: &T) -> io::Result<()> {
    // SAFETY: the value lives during the call and has the length that it is told.
    let result = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, option, (&raw const *value).cast(), size_of::<T>() as u32)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn offsets(fd: BorrowedFd<'_>) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: plain integers, of which zero is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut length = size_of_val(&offsets) as libc::socklen_t;
    let to = (&raw mut offsets).cast();
    // SAFETY: the kernel writes at most `length` bytes, which `offsets` has.
    let got = unsafe { libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, to, &raw mut length) };
    match got {
        0 if length as usize == size_of_val(&offsets) => Ok(offsets),
        0 => Err(io::Error::other("Linux before 5.4 has other rings")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a ring and maps it.
fn ring(
    fd: BorrowedFd<'_>,
    (option, page_offset): (libc::c_int, libc::c_ulonglong),
    (of, words): (&libc::xdp_ring_offset, usize),
) -> io::Result<Ring> {
    set(fd, option, &ENTRIES)?;
    let [producer, consumer, entries] = [of.producer, of.consumer, of.desc].map(|offset| offset as usize);
    let length = (entries + 8 * words * ENTRIES as usize).next_multiple_of(PAGE);
    let memory = Shared::at(Some(fd), length, page_offset as libc::off_t)?;
    Ok(Ring { memory, producer, consumer, entries, words, ours: 0, theirs: 0 })
}

impl XdpSocket {
    /// Bound to the first queue of an interface; the kernel copies frames, as it can with any driver.
    pub(crate) fn bind(interface: u32) -> Result<XdpSocket, Error> {
        let socket = XdpSocket::new().map_err(Error::system("making an AF_XDP socket (CONFIG_XDP_SOCKETS)"))?;
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: interface,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the address lives during the call and has the length that it is told.
        match unsafe { libc::bind(socket.fd.as_raw_fd(), (&raw const address).cast(), length) } {
            0 => Ok(socket),
            // (Also for about a second after another one was closed.)
            _ => Err(Error::system("binding an AF_XDP socket to an interface's queue")(io::Error::last_os_error())),
        }
    }

    fn new() -> io::Result<XdpSocket> {
        // SAFETY: plain values.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let frames = Frames(Shared::at(None, MEMORY_BYTES, 0)?);
        let memory = libc::xdp_umem_reg {
            addr: frames.0.pointer() as u64,
            len: MEMORY_BYTES as u64,
            chunk_size: FRAME_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd.as_fd(), libc::XDP_UMEM_REG, &memory)?;
        let offsets = offsets(fd.as_fd())?;
        let fill = (libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_PGOFF_FILL_RING);
        let completion = (libc::XDP_UMEM_COMPLETION_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let receive = (libc::XDP_RX_RING, libc::XDP_PGOFF_RX_RING as libc::c_ulonglong);
        let send = (libc::XDP_TX_RING, libc::XDP_PGOFF_TX_RING as libc::c_ulonglong);
        let mut socket = XdpSocket {
            fill: ring(fd.as_fd(), fill, (&offsets.fr, 1))?,
            completion: ring(fd.as_fd(), completion, (&offsets.cr, 1))?,
            receive: ring(fd.as_fd(), receive, (&offsets.rx, 2))?,
            send: ring(fd.as_fd(), send, (&offsets.tx, 2))?,
            frames,
            free: (FRAMES..2 * FRAMES).map(|index| index * FRAME_BYTES as u64).collect(),
            fd,
        };
        for index in 0..FRAMES {
            let has_room = socket.fill.push(Entry { at: index * FRAME_BYTES as u64, bytes: 0 });
            assert!(has_room);
        }
        socket.fill.publish();
        Ok(socket)
    }

    /// Shows the next frame that arrived; `None` if there is none now.
    pub(crate) fn receive<T>(&mut self, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let entry = self.receive.pop()?;
        let taken = take(self.frames.bytes(entry));
        self.receive.release();
        let frame = entry.at - entry.at % FRAME_BYTES as u64;
        let has_room = self.fill.push(Entry { at: frame, bytes: 0 });
        assert!(has_room, "all frames fit, those twice that the kernel hasn't said it has taken");
        self.fill.publish();
        Some(taken)
    }

    /// Has a frame written, of the length that `write` says, to be sent by [`XdpSocket::flush`]; false if there is no room for it.
    pub(crate) fn send(&mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        let Some(&at) = self.free.last() else { return false };
        let Some(length) = write(self.frames.bytes(Entry { at, bytes: FRAME_BYTES as u32 })) else { return false };
        let is_queued = self.send.push(Entry { at, bytes: length as u32 });
        if is_queued {
            self.free.pop();
        }
        is_queued
    }

    /// Takes back what has been sent.
    fn reclaim(&mut self) {
        while let Some(entry) = self.completion.pop() {
            self.free.push(entry.at);
        }
        self.completion.release();
    }

    /// Sends what is queued. What the kernel doesn't take now stays queued.
    pub(crate) fn flush(&mut self) {
        self.send.publish();
        for _ in 0..KICKS_MAX {
            // SAFETY: no bytes are passed: the call says that there are entries in the ring.
            unsafe { libc::sendto(self.fd.as_raw_fd(), std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
            if self.send.is_taken() {
                break;
            }
        }
        self.reclaim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    /// Both sides of a ring in a file's memory, at the same position.
    fn sides(words: usize, position: u32) -> [Ring; 2] {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 15).unwrap();
        let side = |file: &File| {
            let memory = Shared::new(file.as_fd(), 1 << 15).unwrap();
            memory.set_u32(0, position);
            memory.set_u32(64, position);
            Ring { memory, producer: 0, consumer: 64, entries: 128, words, ours: position, theirs: position }
        };
        [side(&file), side(&file)]
    }

    #[test]
    fn entries_arrive_once_and_in_order_where_positions_wrap_around() {
        for words in [1, 2] {
            let [mut producer, mut consumer] = sides(words, u32::MAX - 5);
            let entry = |n: u64| Entry { at: n << 11, bytes: if words == 2 { n as u32 } else { 0 } };
            let (mut pushed, mut popped) = (0, 0);
            for round in 0..100 {
                while pushed < popped + 1 + round * 13 % u64::from(ENTRIES) {
                    assert!(producer.push(entry(pushed)));
                    pushed += 1;
                }
                assert_eq!(consumer.pop(), None, "nothing was published");
                producer.publish();
                assert!(!producer.is_taken());
                while popped < pushed {
                    assert_eq!(consumer.pop(), Some(entry(popped)));
                    popped += 1;
                }
                assert_eq!(consumer.pop(), None);
                consumer.release();
                assert!(producer.is_taken());
            }
        }
    }

    #[test]
    fn a_full_ring_takes_no_more_until_something_is_taken() {
        let [mut producer, mut consumer] = sides(2, u32::MAX - ENTRIES / 2);
        let entry = |n: u32| Entry { at: u64::from(n), bytes: n };
        for n in 0..ENTRIES {
            assert!(producer.push(entry(n)));
        }
        producer.publish();
        assert!(!producer.push(entry(0)));
        assert_eq!(consumer.pop(), Some(entry(0)));
        assert!(!producer.push(entry(0)), "taken, but not released");
        consumer.release();
        assert!(producer.push(entry(ENTRIES)));
        assert!(!producer.push(entry(0)));
        producer.publish();
        for n in 1..=ENTRIES {
            assert_eq!(consumer.pop(), Some(entry(n)));
        }
        assert_eq!(consumer.pop(), None);
    }
}
