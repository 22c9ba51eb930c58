//! System calls that libbpf-rs has no safe form of: all of this crate's `unsafe`, but for netlink's
//! socket.

use libbpf_rs::{AsRawLibbpf as _, OpenProgramMut};
use libbpf_sys as bpf;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
#[cfg(feature = "measure")]
use std::time::Duration;
use std::{fmt, io};

fn check(result: i32) -> io::Result<i32> {
    if result >= 0 { Ok(result) } else { Err(io::Error::from_raw_os_error(-result)) }
}

/// What a test run brings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ran {
    /// The program's return value.
    pub(crate) value: u32,
    /// Bytes of the packet that came out.
    pub(crate) length: usize,
    /// Of one run.
    #[cfg(feature = "measure")]
    pub(crate) took: Duration,
}

/// Runs an XDP program on a packet.
pub(crate) fn test_run(program: BorrowedFd<'_>, packet: &[u8], out: &mut [u8]) -> io::Result<Ran> {
    let options = bpf::bpf_test_run_opts {
        data_out: out.as_mut_ptr().cast(),
        data_size_out: out.len() as u32,
        repeat: 1,
        ..Default::default()
    };
    // SAFETY: the buffer lives during the call and has the length that it is told.
    unsafe { run(program, packet, options) }
}

/// Runs an XDP program again and again on this CPU, each time on what the last one left of the
/// packet, as if it had arrived on an interface.
#[cfg(feature = "measure")]
pub(crate) fn test_repeat(
    program: BorrowedFd<'_>,
    packet: &[u8],
    interface: u32,
    repeat: u32,
) -> io::Result<Ran> {
    let context = bpf::xdp_md {
        data_end: packet.len() as u32,
        ingress_ifindex: interface,
        ..Default::default()
    };
    let mut options = bpf::bpf_test_run_opts { repeat: repeat as i32, ..Default::default() };
    if interface != 0 {
        options.ctx_in = (&raw const context).cast();
        options.ctx_size_in = size_of::<bpf::xdp_md>() as u32;
    }
    // SAFETY: the context lives during the call and has the length that it is told; nothing is
    // written back.
    unsafe { run(program, packet, options) }
}

/// Lets the kernel make frames, `batch` at a time, and do with each what the program says.
#[cfg(feature = "measure")]
pub(crate) fn test_live(
    program: BorrowedFd<'_>,
    packet: &[u8],
    frames: u32,
    batch: u32,
) -> io::Result<()> {
    let options = bpf::bpf_test_run_opts {
        repeat: frames as i32,
        flags: bpf::BPF_F_TEST_XDP_LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: nothing is written back.
    unsafe { run(program, packet, options) }.map(|_| ())
}

/// # Safety
/// What the options point to is as long as they say.
unsafe fn run(
    program: BorrowedFd<'_>,
    packet: &[u8],
    options: bpf::bpf_test_run_opts,
) -> io::Result<Ran> {
    let mut options = bpf::bpf_test_run_opts {
        sz: size_of::<bpf::bpf_test_run_opts>() as bpf::size_t,
        data_in: packet.as_ptr().cast(),
        data_size_in: packet.len() as u32,
        ..options
    };
    // SAFETY: the packet lives during the call; the rest is the caller's promise.
    check(unsafe { bpf::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) })?;
    Ok(Ran {
        value: options.retval,
        length: options.data_size_out as usize,
        #[cfg(feature = "measure")]
        took: Duration::from_nanos(options.duration.into()),
    })
}

/// The system calls by which a loaded datapath is driven, by the names of programs and maps. Tests
/// let them fail.
pub(crate) trait Calls: fmt::Debug + Send + Sync {
    /// Runs an XDP program on a packet.
    fn run(&self, program: &str, packet: &[u8], out: &mut [u8]) -> io::Result<Ran>;

    /// Replaces a map's entry, or adds it.
    fn update(&self, map: &str, key: &[u8], value: &[u8]) -> io::Result<()>;

    /// A map's entry.
    fn lookup(&self, map: &str, key: &[u8]) -> io::Result<Option<Vec<u8>>>;

    /// A map's entry on each CPU.
    fn lookup_percpu(&self, map: &str, key: &[u8]) -> io::Result<Vec<Vec<u8>>>;

    /// Removes a map's entry.
    fn delete(&self, map: &str, key: &[u8]) -> io::Result<()>;
}

/// Where the verifier writes its summary of a program.
pub(crate) struct Log(Box<[u8]>);

impl Log {
    /// To be kept until the program is loaded.
    pub(crate) fn of(program: &mut OpenProgramMut<'_>) -> Log {
        const SUMMARY: u32 = 4;
        let mut log = Log(vec![0; 4096].into());
        program.set_log_level(SUMMARY);
        let at = program.as_libbpf_object().as_ptr();
        // SAFETY: the program isn't loaded yet, and the buffer doesn't move with the box. The
        // caller that loads it keeps this until then.
        let _unchanged_if_it_fails = unsafe {
            bpf::bpf_program__set_log_buf(at, log.0.as_mut_ptr().cast(), log.0.len() as _)
        };
        log
    }

    pub(crate) fn text(&self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(self.0.len());
        String::from_utf8_lossy(&self.0[..end]).into_owned()
    }
}

/// Has the kernel count what programs take, as long as the descriptor that this returns is open.
#[cfg(feature = "measure")]
pub(crate) fn count_run_time() -> io::Result<OwnedFd> {
    // SAFETY: a call without pointers.
    let fd = check(unsafe { bpf::bpf_enable_stats(bpf::BPF_STATS_RUN_TIME) })?;
    // SAFETY: the kernel has just made this descriptor, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Attaches a program to an interface for as long as the descriptor that this returns is open.
pub(crate) fn link(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = bpf::bpf_link_create_opts {
        sz: size_of::<bpf::bpf_link_create_opts>() as bpf::size_t,
        flags,
        ..Default::default()
    };
    // SAFETY: the options live during the call.
    let fd = check(unsafe {
        bpf::bpf_link_create(program.as_raw_fd(), ifindex as RawFd, bpf::BPF_XDP, &options)
    })?;
    // SAFETY: the kernel has just made this descriptor, for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What the kernel says of an interface's XDP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    /// The mode in which something is attached: `XDP_ATTACHED_*`.
    pub(crate) mode: u8,
    /// What its driver can: `NETDEV_XDP_ACT_*`. 0 if this kernel doesn't say.
    pub(crate) features: u64,
}

/// Asks for an interface's XDP.
pub(crate) fn query(ifindex: u32) -> io::Result<Query> {
    let mut options = bpf::bpf_xdp_query_opts {
        sz: size_of::<bpf::bpf_xdp_query_opts>() as bpf::size_t,
        ..Default::default()
    };
    // SAFETY: the options live during the call, which fills them.
    check(unsafe { bpf::bpf_xdp_query(ifindex as i32, 0, &mut options) })?;
    Ok(Query { mode: options.attach_mode, features: options.feature_flags })
}

/// Asks an interface's driver something; `words` begin with the command, as ethtool's structs do.
pub(crate) fn ethtool(interface: &str, words: &mut [u32]) -> io::Result<()> {
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    // SAFETY: plain integers, of which zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: both live during the call; the callers' words have the length of the struct that
    // their command fills.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A number that the kernel tells of a descriptor.
pub(crate) fn described(of: BorrowedFd<'_>, field: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", of.as_raw_fd())).ok()?;
    text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?.trim().parse().ok()
}

/// Moves the calling thread into a network namespace.
pub(crate) fn enter(namespace: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: changes nothing in this process's memory.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Gives the calling thread a new network namespace.
pub(crate) fn unshare() -> io::Result<()> {
    // SAFETY: changes nothing in this process's memory.
    match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The number of the calling thread's network namespace, which no other one ever has until the
/// machine starts again.
pub(crate) fn namespace_cookie() -> io::Result<u64> {
    let socket = std::net::UdpSocket::bind(("0.0.0.0", 0))?;
    let (mut cookie, mut length) = (0u64, size_of::<u64>() as libc::socklen_t);
    let to = (&raw mut cookie).cast();
    // SAFETY: the kernel writes at most `length` bytes, which `cookie` has.
    match unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            to,
            &raw mut length,
        )
    } {
        0 => Ok(cookie),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A map's memory, which is shared with the kernel.
#[derive(Debug)]
pub(crate) struct MappedMemory {
    at: NonNull<u8>,
    length: usize,
}

pub(crate) const PAGE: usize = 4096;

// SAFETY: the memory is reached by atomics only, and lives until it is dropped.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// The first `length` bytes of a mappable map.
    pub(crate) fn new(map: BorrowedFd<'_>, length: usize) -> io::Result<MappedMemory> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), length, access, libc::MAP_SHARED, map.as_raw_fd(), 0)
        };
        match NonNull::new(at.cast()) {
            Some(at) if at.as_ptr() as usize != usize::MAX => Ok(MappedMemory { at, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(crate) fn u32_at(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.length);
        // SAFETY: inside of the map, aligned, and every access is as an atomic of this size.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        assert!(offset.is_multiple_of(8) && offset + 8 <= self.length);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(offset).cast()) }
    }

    pub(crate) fn get_u32(&self, offset: usize) -> u32 {
        self.u32_at(offset).load(Ordering::Acquire)
    }

    pub(crate) fn set_u32(&self, offset: usize, value: u32) {
        self.u32_at(offset).store(value, Ordering::SeqCst);
    }

    pub(crate) fn get_u64(&self, offset: usize) -> u64 {
        self.u64_at(offset).load(Ordering::Acquire)
    }

    pub(crate) fn set_u64(&self, offset: usize, value: u64) {
        self.u64_at(offset).store(value, Ordering::SeqCst);
    }

    /// Whole words from an offset on, one after the other.
    pub(crate) fn get(&self, offset: usize, length: usize) -> Vec<u8> {
        (offset..offset + length).step_by(8).flat_map(|at| self.get_u64(at).to_ne_bytes()).collect()
    }

    /// Replaces them.
    pub(crate) fn set(&self, offset: usize, bytes: &[u8]) {
        for (at, word) in (offset..).step_by(8).zip(bytes.as_chunks::<8>().0) {
            self.set_u64(at, u64::from_ne_bytes(*word));
        }
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and no reference is left.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}
