//! The data plane's network: what becomes of a packet on its way.

use crate::plan::DataNetwork;
use crate::random::Random;

/// Delays of a packet's copies; none: it is lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fate {
    delays_us: [u64; 2],
    copies: usize,
}

impl Fate {
    /// The delay of each copy.
    pub(crate) fn delays(&self) -> &[u64] {
        &self.delays_us[..self.copies]
    }
}

/// Counters of the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) struct NetworkStatistics {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) duplicated: u64,
    pub(crate) late: u64,
    pub(crate) blocked: u64,
}

/// Links between all parts.
pub(crate) struct Network {
    plan: DataNetwork,
    random: Random,
    parts: usize,
    /// How many faults block a direction, by sender and receiver.
    blocked: Vec<u8>,
    /// More loss, for a while.
    pub(crate) extra_loss: f64,
    /// More delay, for a while.
    pub(crate) slower: u64,
    /// Counters.
    pub(crate) statistics: NetworkStatistics,
}

impl Network {
    /// A network of as many parts, without partitions.
    pub(crate) fn new(plan: DataNetwork, random: Random, parts: usize) -> Network {
        Network {
            plan,
            random,
            parts,
            blocked: vec![0; parts * parts],
            extra_loss: 0.0,
            slower: 1,
            statistics: NetworkStatistics::default(),
        }
    }

    /// Everything works from now on; only delays stay.
    pub(crate) fn heal(&mut self) {
        self.blocked.fill(0);
        self.extra_loss = 0.0;
        self.slower = 1;
        self.plan.loss = 0.0;
        self.plan.duplication = 0.0;
        self.plan.late = 0.0;
    }

    /// Blocks a direction, or undoes it once.
    pub(crate) fn block(&mut self, from: u16, to: u16, blocks: bool) {
        let at = &mut self.blocked[usize::from(from) * self.parts + usize::from(to)];
        *at = if blocks { at.saturating_add(1) } else { at.saturating_sub(1) };
    }

    /// Whether a fault blocks a direction.
    pub(crate) fn is_blocked(&self, from: u16, to: u16) -> bool {
        self.blocked[usize::from(from) * self.parts + usize::from(to)] > 0
    }

    /// What becomes of a packet.
    #[inline]
    pub(crate) fn send(&mut self, from: u16, to: u16) -> Fate {
        self.statistics.sent += 1;
        if self.blocked[usize::from(from) * self.parts + usize::from(to)] > 0 {
            self.statistics.blocked += 1;
            return Fate::default();
        }
        if self.random.chance(self.plan.loss) || self.random.chance(self.extra_loss) {
            self.statistics.lost += 1;
            return Fate::default();
        }
        let mut fate = Fate { delays_us: [self.delay_us(), 0], copies: 1 };
        if self.random.chance(self.plan.duplication) {
            self.statistics.duplicated += 1;
            fate.delays_us[1] = self.delay_us();
            fate.copies = 2;
        }
        fate
    }

    fn delay_us(&mut self) -> u64 {
        let usual_us = self.plan.delay_us + self.random.exponential(self.plan.jitter_us);
        if self.random.chance(self.plan.late) {
            self.statistics.late += 1;
            return usual_us + self.random.below(self.plan.late_us.max(1));
        }
        usual_us * self.slower
    }
}
