//! The timers of a state machine: at most one deadline for each kind.

use crate::time::Now;

/// The kinds of timers of one state machine: a fieldless enum.
pub trait TimerKind: Copy {
    /// Its place in the table: below the table's length, another one for each kind.
    fn index(self) -> usize;
}

/// A deadline for each of `N` kinds, in microseconds of the monotonic clock.
#[derive(Clone, Debug)]
pub struct Timers<K, const N: usize> {
    deadlines_us: [Option<u64>; N],
    kinds: std::marker::PhantomData<K>,
}

impl<K: TimerKind, const N: usize> Timers<K, N> {
    /// No timer is set.
    pub const fn new() -> Timers<K, N> {
        Timers { deadlines_us: [None; N], kinds: std::marker::PhantomData }
    }

    /// Sets a timer, whether it was set or not.
    #[inline]
    pub fn set(&mut self, kind: K, deadline_us: u64) {
        self.deadlines_us[kind.index()] = Some(deadline_us);
    }

    /// Sets a timer, unless it is set to an earlier time.
    #[inline]
    pub fn set_earlier(&mut self, kind: K, deadline_us: u64) {
        let known = &mut self.deadlines_us[kind.index()];
        *known = Some(known.map_or(deadline_us, |known_us| known_us.min(deadline_us)));
    }

    /// Stops a timer.
    #[inline]
    pub fn stop(&mut self, kind: K) {
        self.deadlines_us[kind.index()] = None;
    }

    /// When a timer is due; `None` if it isn't set.
    #[inline]
    pub fn get(&self, kind: K) -> Option<u64> {
        self.deadlines_us[kind.index()]
    }

    /// Whether a timer is set and due.
    #[inline]
    pub fn is_due(&self, kind: K, now: Now) -> bool {
        self.get(kind).is_some_and(|deadline_us| now.monotonic_us >= deadline_us)
    }

    /// The earliest deadline; `None` if no timer is set.
    #[inline]
    pub fn next_us(&self) -> Option<u64> {
        self.deadlines_us.iter().flatten().copied().min()
    }
}

impl<K: TimerKind, const N: usize> Default for Timers<K, N> {
    fn default() -> Timers<K, N> {
        Timers::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Kind {
        Hello,
        Retry,
    }

    impl TimerKind for Kind {
        fn index(self) -> usize {
            self as usize
        }
    }

    fn at(monotonic_us: u64) -> Now {
        Now { monotonic_us, unix_ms: 0 }
    }

    #[test]
    fn the_earliest_timer_is_next_and_due_from_its_deadline_on() {
        let mut timers = Timers::<Kind, 2>::new();
        assert_eq!((timers.next_us(), timers.is_due(Kind::Hello, at(u64::MAX))), (None, false));
        timers.set(Kind::Hello, 20);
        timers.set_earlier(Kind::Retry, 10);
        timers.set_earlier(Kind::Retry, 30);
        assert_eq!((timers.next_us(), timers.get(Kind::Retry)), (Some(10), Some(10)));
        assert!(timers.is_due(Kind::Retry, at(10)) && !timers.is_due(Kind::Retry, at(9)));
        timers.stop(Kind::Retry);
        timers.set(Kind::Hello, 40);
        assert_eq!(timers.next_us(), Some(40));
    }
}
