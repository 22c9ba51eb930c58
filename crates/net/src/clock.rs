//! The clocks, which only drivers read.

use std::time::Instant;
use switchback_core::Now;

/// Both clocks of [`Now`]. The monotonic one counts from when the clock was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { start: Instant::now() }
    }
}

impl Clock {
    /// What time it is.
    #[inline]
    pub fn now(&self) -> Now {
        // One second ahead, so that "before the start" can be said.
        let monotonic_us = self.start.elapsed().as_micros() as u64 + 1_000_000;
        Now { monotonic_us, unix_ms: unix_ms() }
    }
}

/// Milliseconds since the Unix epoch, to the kernel's tick: what expiry needs, at a few
/// nanoseconds.
#[inline]
pub fn unix_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    // Before 1970 nothing expires.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000_000
}

/// How long to wait until `due_us` of this clock; `None`: for ever.
pub fn until(now: Now, due_us: Option<u64>) -> Option<std::time::Duration> {
    due_us.map(|due_us| std::time::Duration::from_micros(due_us.saturating_sub(now.monotonic_us)))
}
