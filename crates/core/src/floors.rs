//! Floors: below them a key without a record says nothing any more, because its tombstone may have
//! been dropped.
//!
//! The *base* holds for all keys and rises at the end of a recovery: nothing of an older epoch can
//! arrive. The floor of a *bucket* of keys rises within an epoch, a while after a write of that
//! number passed the node. Then something older may still arrive, but the node neither applies it
//! to an absent key nor sends it back.

use std::fmt;
use switchback_wire::{KeyHash, Seq};

/// Keys share sequence counters by bucket, as at the switch (`SEQUENCE_BUCKETS` of
/// `datapath/tables.h`): only numbers of one bucket can be compared.
pub const SEQ_BUCKETS: usize = 1 << 15;

/// The bucket of a key's sequence numbers.
pub fn seq_bucket(hash: &KeyHash) -> u16 {
    (hash.low() as usize & (SEQ_BUCKETS - 1)) as u16
}

/// The floors of one node.
#[derive(Clone, Default)]
pub struct Floors {
    base: Seq,
    /// Empty until the first one rises.
    buckets: Vec<u64>,
}

impl Floors {
    /// The floors that an engine found.
    pub fn new(base: Seq, buckets: &[(u16, Seq)]) -> Floors {
        let mut floors = Floors { base, buckets: Vec::new() };
        for (bucket, floor) in buckets {
            floors.raise(*bucket, *floor);
        }
        floors
    }

    /// The floor of all keys.
    pub fn base(&self) -> Seq {
        self.base
    }

    /// The floor of a key.
    pub fn of(&self, hash: &KeyHash) -> Seq {
        self.of_bucket(seq_bucket(hash))
    }

    /// The floor of a bucket.
    pub fn of_bucket(&self, bucket: u16) -> Seq {
        let floor = self.buckets.get(usize::from(bucket)).copied();
        self.base.max(Seq(floor.unwrap_or(0)))
    }

    /// Raises the floor of all keys. Floors never sink.
    pub fn raise_base(&mut self, floor: Seq) {
        self.base = self.base.max(floor);
    }

    /// Raises the floor of a bucket. Of one that doesn't exist nothing is kept.
    pub fn raise(&mut self, bucket: u16, floor: Seq) {
        if self.buckets.is_empty() {
            self.buckets = vec![0; SEQ_BUCKETS];
        }
        if let Some(known) = self.buckets.get_mut(usize::from(bucket)) {
            *known = floor.0.max(*known);
        }
    }

    /// The floors of buckets that are above the base.
    pub fn above_base(&self) -> impl Iterator<Item = (u16, Seq)> {
        let buckets = self.buckets.iter().enumerate().filter(|(_, floor)| **floor > self.base.0);
        buckets.map(|(bucket, floor)| (bucket as u16, Seq(*floor)))
    }
}

impl fmt::Debug for Floors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entry(&"base", &self.base).entries(self.above_base()).finish()
    }
}

impl PartialEq for Floors {
    fn eq(&self, other: &Floors) -> bool {
        self.base == other.base && self.above_base().eq(other.above_base())
    }
}

impl Eq for Floors {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_that_of_its_bucket_or_the_base_and_never_sinks() {
        let (here, there) = (KeyHash([1; 16]), KeyHash([2; 16]));
        let mut floors = Floors::new(Seq(5), &[(seq_bucket(&here), Seq(9))]);
        assert_eq!((floors.of(&here), floors.of(&there)), (Seq(9), Seq(5)));
        floors.raise(seq_bucket(&here), Seq(8));
        floors.raise_base(Seq(4));
        assert_eq!((floors.of(&here), floors.of(&there)), (Seq(9), Seq(5)));
        assert_eq!(floors.above_base().collect::<Vec<_>>(), [(seq_bucket(&here), Seq(9))]);
        floors.raise_base(Seq(10));
        assert_eq!((floors.of(&here), floors.above_base().count()), (Seq(10), 0));
    }
}
