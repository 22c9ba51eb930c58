//! What keys cost on the control channel on their way into the cache and out of it, and the budget
//! of that.
//!
//! Two token buckets, one of messages and one of bytes, pay for what admissions and evictions send
//! and what is answered. An admission or an eviction begins only while both have something left.
//! What follows from it never waits: a bucket may owe, and pays that back before anything else
//! begins. A drain, and a record that outgrew its slot, never wait either, and are paid for alike.
//!
//! Offers are counted, but not paid for: the switch's own bucket limits them. Paid for from the
//! budget, more offers than it has room for would keep it empty, and nothing would be admitted. Nor
//! are cleanings, which the period of the switch's sweep limits.

use crate::control::{Message, encoded_bytes};
use crate::controller::ControlBudget;
use crate::time::Now;
use serde::Serialize;
use std::ops::AddAssign;

/// A bucket holds what its rate brings in this time.
const BURST_US: u64 = 250_000;
/// A message or byte in millionths: a rate a second fills a bucket by as many each microsecond.
const TOKEN: u64 = 1_000_000;
/// The length before each message.
const FRAME_BYTES: u64 = 4;
/// What a report has besides what it tells, about: its kind, a command's id, an epoch.
const REPORT_BYTES: u64 = 10;
/// Rates are told of at least this time.
const RATE_US: u64 = 1_000_000;

/// What a message is sent for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A key is offered, or its offer is held or cleared.
    Offer,
    /// A key is admitted.
    Admission,
    /// A key is evicted: chosen, stored at its node, removed.
    Eviction,
    /// A dirty record is stored at its node while it is cached.
    Cleaning,
}

/// Messages and bytes on the control channel.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[allow(missing_docs)]
pub struct Spent {
    pub messages: u64,
    pub bytes: u64,
}

impl AddAssign for Spent {
    fn add_assign(&mut self, more: Spent) {
        self.messages += more.messages;
        self.bytes += more.bytes;
    }
}

/// What keys cost on the control channel, as the controller sends and receives it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ControlCost {
    /// Of offers, ever: made, held and cleared.
    pub offers: Spent,
    /// Of admissions, ever.
    pub admissions: Spent,
    /// Of evictions, ever.
    pub evictions: Spent,
    /// Of cleanings, ever.
    pub cleanings: Spent,
    /// Of admissions and evictions together, in a second, lately.
    pub per_s: Spent,
    /// How often admissions and evictions had to wait for the budget.
    pub delays: u64,
}

/// A token bucket that may owe.
#[derive(Debug)]
struct Bucket {
    per_s: u64,
    /// In millionths.
    left: i64,
}

impl Bucket {
    /// A full one.
    fn new(per_s: u64) -> Bucket {
        let mut bucket = Bucket { per_s, left: 0 };
        bucket.fill(BURST_US);
        bucket
    }

    fn fill(&mut self, elapsed_us: u64) {
        let brought = |us| i64::try_from(self.per_s.saturating_mul(us)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_add(brought(elapsed_us)).min(brought(BURST_US));
    }

    fn take(&mut self, count: u64) {
        let taken = i64::try_from(count.saturating_mul(TOKEN)).unwrap_or(i64::MAX);
        self.left = self.left.saturating_sub(taken);
    }

    /// How long it takes until something is left; `None`: for ever.
    fn wait_us(&self) -> Option<u64> {
        if self.left > 0 {
            return Some(0);
        }
        let missing = self.left.unsigned_abs() + 1;
        (self.per_s > 0).then(|| missing.div_ceil(self.per_s))
    }
}

/// What was spent in a second, lately.
#[derive(Debug)]
struct Rate {
    since_us: u64,
    /// Since then.
    spent: Spent,
    /// In the time before, a second.
    before: Spent,
}

impl Rate {
    /// In a second of the time since it was begun; before that is long enough, of the time before.
    fn at(&self, now: Now) -> Spent {
        let elapsed_us = now.monotonic_us.saturating_sub(self.since_us);
        if elapsed_us < RATE_US {
            return self.before;
        }
        let a_second = |count: u64| (u128::from(count) * 1_000_000 / u128::from(elapsed_us)) as u64;
        Spent { messages: a_second(self.spent.messages), bytes: a_second(self.spent.bytes) }
    }

    fn add(&mut self, now: Now, spent: Spent) {
        if now.monotonic_us.saturating_sub(self.since_us) >= RATE_US {
            let before = self.at(now);
            *self = Rate { since_us: now.monotonic_us, spent: Spent::default(), before };
        }
        self.spent += spent;
    }
}

/// The budget of admissions and evictions of all chains, and what they and offers have cost.
#[derive(Debug)]
pub(in crate::controller) struct Budget {
    messages: Bucket,
    bytes: Bucket,
    filled_us: u64,
    /// But for `per_s`.
    cost: ControlCost,
    rate: Rate,
}

impl Budget {
    pub(in crate::controller) fn new(now: Now, limits: ControlBudget) -> Budget {
        let (spent, before) = Default::default();
        Budget {
            messages: Bucket::new(limits.messages_per_s),
            bytes: Bucket::new(limits.bytes_per_s),
            filled_us: now.monotonic_us,
            cost: ControlCost::default(),
            rate: Rate { since_us: now.monotonic_us, spent, before },
        }
    }

    /// Whether anything is ever admitted.
    pub(super) fn is_closed(&self) -> bool {
        self.messages.per_s == 0 || self.bytes.per_s == 0
    }

    /// Whether an admission or an eviction that is wanted may begin now.
    pub(super) fn may_begin(&mut self, now: Now) -> bool {
        self.fill(now);
        self.wait_us() == Some(0)
    }

    /// Something that is wanted has to wait from now on.
    pub(super) fn delays(&mut self) {
        self.cost.delays += 1;
    }

    /// When something may begin; `None`: never.
    pub(super) fn ready_us(&self) -> Option<u64> {
        Some(self.filled_us.saturating_add(self.wait_us()?))
    }

    /// A message is sent, for the first time or again.
    pub(super) fn sent(&mut self, now: Now, purpose: Purpose, message: &Message) {
        self.spend(now, purpose, FRAME_BYTES + encoded_bytes(message));
    }

    /// A report has arrived that tells this.
    pub(super) fn received(&mut self, now: Now, purpose: Purpose, told: &impl Serialize) {
        self.spend(now, purpose, FRAME_BYTES + REPORT_BYTES + encoded_bytes(told));
    }

    /// What it has paid for, and offers.
    pub(in crate::controller) fn cost(&self, now: Now) -> ControlCost {
        ControlCost { per_s: self.rate.at(now), ..self.cost }
    }

    fn wait_us(&self) -> Option<u64> {
        Some(self.messages.wait_us()?.max(self.bytes.wait_us()?))
    }

    fn fill(&mut self, now: Now) {
        let elapsed_us = now.monotonic_us.saturating_sub(self.filled_us);
        self.filled_us += elapsed_us;
        self.messages.fill(elapsed_us);
        self.bytes.fill(elapsed_us);
    }

    fn spend(&mut self, now: Now, purpose: Purpose, bytes: u64) {
        let spent = Spent { messages: 1, bytes };
        match purpose {
            Purpose::Offer => return self.cost.offers += spent,
            Purpose::Cleaning => return self.cost.cleanings += spent,
            Purpose::Admission => self.cost.admissions += spent,
            Purpose::Eviction => self.cost.evictions += spent,
        }
        self.fill(now);
        self.messages.take(spent.messages);
        self.bytes.take(spent.bytes);
        self.rate.add(now, spent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(monotonic_us: u64) -> Now {
        Now { monotonic_us, unix_ms: 0 }
    }

    #[test]
    fn a_bucket_pays_back_what_it_owes_and_holds_no_more_than_a_burst() {
        let mut bucket = Bucket::new(8);
        assert_eq!(bucket.wait_us(), Some(0));
        bucket.take(6);
        assert_eq!(bucket.wait_us(), Some(500_001), "it held 2 and owes 4");
        bucket.fill(500_000);
        assert_eq!(bucket.wait_us(), Some(1));
        bucket.fill(3_600_000_000);
        bucket.take(2);
        assert_eq!(bucket.wait_us(), Some(1), "it held 2 again");
        bucket.take(u64::MAX);
        bucket.fill(u64::MAX);
        assert!(bucket.wait_us().is_some(), "numbers don't overflow");
    }

    #[test]
    fn a_rate_is_of_a_second_or_more() {
        let mut budget = Budget::new(now(0), ControlBudget::default());
        let mut spend = |at_us, bytes| {
            budget.spend(now(at_us), Purpose::Admission, bytes);
            budget.cost(now(at_us)).per_s
        };
        assert_eq!(spend(0, 100), Spent::default(), "no second has passed");
        assert_eq!(spend(900_000, 300), Spent::default());
        assert_eq!(spend(2_000_000, 50), Spent { messages: 1, bytes: 200 }, "400 in two seconds");
        assert_eq!(budget.cost(now(2_900_000)).per_s, Spent { messages: 1, bytes: 200 });
        assert_eq!(budget.cost(now(3_000_000)).per_s, Spent { messages: 1, bytes: 50 });
        assert_eq!(budget.cost(now(7_000_000)).per_s, Spent { messages: 0, bytes: 10 });
    }
}
