//! How loaded switches are, as their answers say: a read goes to the less loaded one of the two
//! that may have a copy of its record (DistCache; protocol, section 4). The power of two choices:
//! Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001.

use crate::time::Now;

/// What a switch tells is of the packets of this time; and for how long it stays true.
const WINDOW_US: u64 = 10_000;

/// What a session knows of the load of a switch.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Load {
    /// Packets that came to the switch in a window, as its last answer said.
    told: u32,
    told_us: u64,
    /// Requests that the session has sent there since. A switch that answers nothing is given few.
    sent: u32,
}

impl Load {
    /// An answer of the switch says so.
    pub(super) fn told(&mut self, now: Now, packets: u32) {
        *self = Load { told: packets, told_us: now.monotonic_us, sent: 0 };
    }

    /// A request is sent to the switch.
    pub(super) fn sent(&mut self) {
        self.sent = self.sent.saturating_add(1);
    }

    /// Requests that were sent long ago say less: the switch gets some again, to see whether it
    /// answers.
    pub(super) fn age(&mut self) {
        self.sent /= 2;
    }

    /// Packets in a window: of those that were told half for each one that has passed since.
    pub(super) fn packets(&self, now_us: u64) -> u32 {
        let windows = now_us.saturating_sub(self.told_us) / WINDOW_US;
        let windows = windows.min(u64::from(u32::BITS)) as u32;
        self.told.checked_shr(windows).unwrap_or(0).saturating_add(self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(monotonic_us: u64) -> Now {
        Now { monotonic_us, ..Now::default() }
    }

    #[test]
    fn what_was_told_is_halved_for_each_window_without_an_answer() {
        let mut load = Load::default();
        load.told(at(5_000), 100);
        assert_eq!(load.packets(14_999), 100);
        assert_eq!(load.packets(15_000), 50);
        assert_eq!(load.packets(25_000), 25);
        assert_eq!(load.packets(u64::MAX), 0);
        load.told(at(6_000), u32::MAX);
        load.sent();
        assert_eq!(load.packets(6_000), u32::MAX);
    }

    #[test]
    fn what_was_sent_counts_until_the_switch_answers() {
        let mut load = Load::default();
        load.told(at(0), 4);
        (0..10).for_each(|_| load.sent());
        assert_eq!((load.packets(0), load.packets(1_000_000)), (14, 10));
        load.age();
        assert_eq!(load.packets(1_000_000), 5);
        load.told(at(1_000_000), 7);
        assert_eq!(load.packets(1_000_000), 7);
    }
}
