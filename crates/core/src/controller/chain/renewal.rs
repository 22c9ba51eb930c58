//! Renewal: another epoch with the same switches, long before the sequence numbers of this one run
//! out.
//!
//! A new epoch wipes the switches. So that this loses nothing, even of clients that died long ago,
//! the cache is drained first; afterwards the nodes are asked to offer the same keys again. Writes
//! that are open when the epoch changes end as indeterminate.

use super::{Chain, Context, Phase};
use switchback_wire::EPOCH_MAX;

/// How long a drain may take: a node that doesn't store keeps its keys in the cache.
const DRAIN_US_MAX: u64 = 10_000_000;
/// Pause after a drain that took too long.
const PAUSE_US: u64 = 60_000_000;

/// A renewal's progress.
#[derive(Debug, Default)]
pub(super) enum Renewal {
    /// None is under way.
    #[default]
    Idle,
    /// The cache is drained in this epoch. These keys were in it.
    Draining { epoch: u32, until_us: u64, keys: Vec<Vec<u8>> },
    /// The epoch has changed, or the drain was given up: these keys come back once the rack serves.
    Refilling { keys: Vec<Vec<u8>> },
    /// The drain took too long; the next try comes then.
    Pausing { until_us: u64 },
}

impl Renewal {
    /// When it has something to do without a message.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        match self {
            Renewal::Draining { until_us, .. } => Some(*until_us),
            _ => None,
        }
    }
}

impl Chain {
    /// A switch that serves asks for another epoch.
    pub(super) fn renew(&mut self, cx: &mut Context<'_>) {
        let may_begin = match &self.renewal {
            Renewal::Idle => true,
            Renewal::Pausing { until_us } => cx.now.monotonic_us >= *until_us,
            Renewal::Draining { .. } | Renewal::Refilling { .. } => false,
        };
        let is_last = cx.directory.last_epoch() >= EPOCH_MAX;
        if !may_begin || is_last || !matches!(self.phase, Phase::Serving) {
            return;
        }
        let keys = self.cache.iter().map(|cached| cached.entry.key.clone()).collect();
        let (epoch, until_us) = (cx.directory.epoch(self.id), cx.now.in_us(DRAIN_US_MAX));
        self.renewal = Renewal::Draining { epoch, until_us, keys };
        self.drain(cx);
    }

    /// Takes the next step of a renewal.
    pub(super) fn renew_on(&mut self, cx: &mut Context<'_>) {
        let is_serving = matches!(self.phase, Phase::Serving);
        match std::mem::take(&mut self.renewal) {
            Renewal::Draining { epoch, until_us, keys } => {
                let is_over = epoch != cx.directory.epoch(self.id) || !is_serving;
                let is_late = cx.now.monotonic_us >= until_us;
                let is_drained = !is_over && self.is_drained();
                if !is_over && !is_late && !is_drained {
                    self.renewal = Renewal::Draining { epoch, until_us, keys };
                    return;
                }
                self.resume();
                if is_late && !is_over && !is_drained {
                    self.renewal = Renewal::Pausing { until_us: cx.now.in_us(PAUSE_US) };
                    self.preload(cx, keys);
                    return;
                }
                self.renewal = Renewal::Refilling { keys };
                if is_drained {
                    let members: Vec<_> = cx.directory.switches(self.id).collect();
                    self.begin_epoch(cx, &members, true);
                }
            }
            Renewal::Refilling { keys } if is_serving => self.preload(cx, keys),
            other => self.renewal = other,
        }
    }
}
