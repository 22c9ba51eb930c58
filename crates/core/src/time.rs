//! Time, as it is handed to every state machine. Nothing in this crate reads a clock.

/// What the driver's clocks say.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Now {
    /// Microseconds of a clock that never goes back; its zero is arbitrary. Timeouts and leases
    /// count in it.
    pub monotonic_us: u64,
    /// Milliseconds since the Unix epoch. Only the expiry of records and the numbers of backups
    /// look at it.
    pub unix_ms: u64,
}

impl Now {
    /// The monotonic instant `us` microseconds from now.
    pub fn in_us(self, us: u64) -> u64 {
        self.monotonic_us.saturating_add(us)
    }

    /// Whether a deadline of the monotonic clock has come; `None` never does.
    #[inline]
    pub fn is_due(self, deadline_us: Option<u64>) -> bool {
        deadline_us.is_some_and(|deadline_us| self.monotonic_us >= deadline_us)
    }
}
