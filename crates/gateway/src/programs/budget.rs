//! How long a program may keep its worker from other connections.

use crate::failure::Failure;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::{Duration, Instant};

/// Of the processor: what the system gives to others meanwhile doesn't count.
pub(crate) const PROGRAM_MS_MAX: u64 = 5;
const LIMIT: Duration = Duration::from_millis(PROGRAM_MS_MAX);

/// How long a program may take before its connection's turn ends with it.
const TURN_MAX: Duration = Duration::from_millis(1);

/// Checks before time counts: most programs end before, and need not ask the system for it.
const FREE_CHECKS: u32 = 8;

/// Work after which a clock is looked at, whatever was checked: about 0.1 ms.
const WORK_MAX: usize = 100_000;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Budget {
    checks: u32,
    /// What was done since the last look at a clock.
    work: usize,
    begin: Option<(Instant, Timespec)>,
}

impl Budget {
    /// A command is to be executed.
    ///
    /// # Errors
    ///
    /// The time is over.
    pub(crate) fn check(&mut self) -> Result<(), Failure> {
        if self.checks < FREE_CHECKS {
            self.checks += 1;
            return Ok(());
        }
        self.look()
    }

    /// Something is done that takes longer the more bytes it is about, and that nothing interrupts.
    /// `work` is about its nanoseconds.
    ///
    /// # Errors
    ///
    /// The time is over.
    pub(crate) fn spend(&mut self, work: usize) -> Result<(), Failure> {
        self.spend_within(work, LIMIT)
    }

    /// The same of a script that has ended in time, whose reply is written: that may take as long
    /// again.
    ///
    /// # Errors
    ///
    /// The time is over.
    pub(crate) fn spend_on_reply(&mut self, work: usize) -> Result<(), Failure> {
        self.spend_within(work, 2 * LIMIT)
    }

    fn spend_within(&mut self, work: usize, limit: Duration) -> Result<(), Failure> {
        self.work = self.work.saturating_add(work);
        if self.work < WORK_MAX {
            return Ok(());
        }
        self.look_within(limit)
    }

    /// Looks at a clock, whose time begins with the first look.
    ///
    /// # Errors
    ///
    /// The time is over.
    pub(crate) fn look(&mut self) -> Result<(), Failure> {
        self.look_within(LIMIT)
    }

    fn look_within(&mut self, limit: Duration) -> Result<(), Failure> {
        self.work = 0;
        let Some((begin, begin_used)) = self.begin else {
            self.begin = Some((Instant::now(), used()));
            return Ok(());
        };
        // To ask the system how much was used takes longer than to look at a clock.
        if begin.elapsed() < limit || between(begin_used, used()) < limit {
            return Ok(());
        }
        Err(Failure::TooSlow(PROGRAM_MS_MAX))
    }

    /// Whether a clock was looked at.
    #[cfg(test)]
    pub(super) fn has_begun(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether other connections are to have their turn after the program.
    pub(crate) fn is_long(&self) -> bool {
        self.begin.is_some_and(|(begin, _)| begin.elapsed() >= TURN_MAX)
    }
}

fn used() -> Timespec {
    clock_gettime(ClockId::ThreadCPUTime)
}

fn between(begin: Timespec, end: Timespec) -> Duration {
    let ns = (end.tv_sec - begin.tv_sec) * 1_000_000_000 + (end.tv_nsec - begin.tv_nsec);
    Duration::from_nanos(u64::try_from(ns).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_time_of_the_processor_counts() {
        let mut budget = Budget::default();
        (0..=FREE_CHECKS).for_each(|_| assert_eq!(budget.check(), Ok(())));
        std::thread::sleep(Duration::from_millis(2 * PROGRAM_MS_MAX));
        assert_eq!(budget.check(), Ok(()));
        while budget.check().is_ok() {}
        assert_eq!(budget.check(), Err(Failure::TooSlow(PROGRAM_MS_MAX)));
        assert_eq!(budget.spend_on_reply(WORK_MAX), Ok(()), "a reply has its time");
        while budget.spend_on_reply(WORK_MAX).is_ok() {}
    }
}
