//! How busy switches are, as their answers say: a read goes to the less busy one of the two that
//! may have a copy of its record (DistCache; rule 30). The power of two choices: Mitzenmacher, "The
//! power of two choices in randomized load balancing", IEEE TPDS 12(10), 2001.

use crate::time::Now;

/// What a switch tells is of the packets of this time; and for how long it stays true.
const WINDOW_US: u64 = 10_000;

/// What a session knows of how busy a switch is.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Load {
    /// Packets that came to the switch in a window, as its last answer said, and those that the
    /// session has sent there since.
    packets: u32,
    told_us: u64,
}

impl Load {
    /// An answer of the switch says so.
    pub(super) fn told(&mut self, now: Now, packets: u32) {
        *self = Load { packets, told_us: now.monotonic_us };
    }

    /// A request is sent to the switch.
    pub(super) fn sent(&mut self) {
        self.packets = self.packets.saturating_add(1);
    }

    /// Packets in a window: half as many for each one that has passed without an answer.
    pub(super) fn packets(&self, now_us: u64) -> u32 {
        let windows = now_us.saturating_sub(self.told_us) / WINDOW_US;
        self.packets.checked_shr(windows.min(u64::from(u32::BITS)) as u32).unwrap_or(0)
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
        load.sent();
        assert_eq!(load.packets(14_999), 101);
        assert_eq!(load.packets(15_000), 50);
        assert_eq!(load.packets(25_000), 25);
        assert_eq!(load.packets(u64::MAX), 0);
        load.told(at(6_000), 7);
        assert_eq!(load.packets(6_000), 7, "what was sent before is told");
    }
}
