//! The clock of a run, and a timer that wakes a poll.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime};
use switchback_core::Now;

/// One clock for all clients of a run. Counts nanoseconds since it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
    unix_ms: u64,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Clock { origin: Instant::now(), unix_ms: unix.as_millis() as u64 }
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// A time of this clock, in the type that state machines take.
    #[inline]
    pub(crate) fn at(&self, ns: u64) -> Now {
        Now { monotonic_us: ns / 1000, unix_ms: self.unix_ms + ns / 1_000_000 }
    }
}

/// Wakes a poll to the microsecond (a timerfd). The timeout of `epoll_wait` is in milliseconds,
/// which would be the latency of an open loop.
#[derive(Debug)]
pub(super) struct Timer(OwnedFd);

impl Timer {
    pub(super) fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
        // SAFETY: no pointers are passed; the result is checked before it is used.
        let fd = unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and has no other owner.
        let timer = Timer(unsafe { OwnedFd::from_raw_fd(fd) });
        registry.register(&mut SourceFd(&timer.0.as_raw_fd()), token, Interest::READABLE)?;
        Ok(timer)
    }

    /// Sets the timer to go off once, after this time, instead of the time that it was set to
    /// before. (Setting it makes the descriptor unreadable again, so it needn't be read.)
    pub(super) fn set(&self, after: Duration) -> io::Result<()> {
        let after = after.max(Duration::from_nanos(1)); // 0 would switch it off
        // SAFETY: all fields of the C struct may be zero.
        let mut setting: libc::itimerspec = unsafe { std::mem::zeroed() };
        setting.it_value.tv_sec = after.as_secs() as libc::time_t;
        setting.it_value.tv_nsec = after.subsec_nanos().into();
        // SAFETY: the descriptor is open, the setting lives through the call, and the old one may
        // be null.
        let result =
            unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &setting, std::ptr::null_mut()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};

    #[test]
    fn the_timer_goes_off_each_time_it_is_set() {
        let mut poll = Poll::new().unwrap();
        let timer = Timer::new(poll.registry(), Token(3)).unwrap();
        let mut events = Events::with_capacity(4);
        for _ in 0..3 {
            timer.set(Duration::from_micros(50)).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
            assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [Token(3)]);
        }
    }
}
