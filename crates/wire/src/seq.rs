//! Sequence numbers: `epoch (24 bits) | counter (40 bits)`.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Bits of the counter within an epoch.
pub const SEQ_COUNTER_BITS: u32 = 40;
/// Largest epoch.
pub const EPOCH_MAX: u32 = (1 << 24) - 1;
/// Epochs of a round, where all chains of a rack change theirs together: one for each chain that
/// there may be.
pub const EPOCHS_OF_ROUND: u32 = 64;

/// The version of a record. Orders all writes of a key; 0 is "never written".
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Seq {
    /// Before every write.
    pub const NONE: Seq = Seq(0);

    /// The sequence number `counter` of `epoch`.
    pub const fn new(epoch: u32, counter: u64) -> Seq {
        assert!(epoch <= EPOCH_MAX);
        assert!(counter < 1 << SEQ_COUNTER_BITS);
        Seq((epoch as u64) << SEQ_COUNTER_BITS | counter)
    }

    /// The epoch that gave it out.
    pub const fn epoch(self) -> u32 {
        (self.0 >> SEQ_COUNTER_BITS) as u32
    }

    /// The counter within the epoch.
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << SEQ_COUNTER_BITS) - 1)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.epoch(), self.counter())
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
