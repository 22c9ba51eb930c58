//! Floors: below them a key without a record says nothing any more, because its tombstone may have
//! been dropped.
//!
//! The *base* holds for all keys of a chain and rises at the end of its recovery: nothing of an
//! older epoch can arrive. The floor of a *bucket* of keys rises within an epoch, a while after a
//! write of that number passed the node. Then something older may still arrive, but the node
//! neither applies it to an absent key nor sends it back.

use crate::storage::KeyRange;
use crate::topology::{ChainId, ChainMap};
use std::fmt;
use switchback_wire::{KeyHash, Seq};

/// Keys share sequence counters by bucket, as at the switch (`SEQUENCE_BUCKETS` of
/// `datapath/tables.h`): only numbers of one bucket can be compared.
pub const SEQ_BUCKETS: usize = 1 << 15;

/// The bucket of a key's sequence numbers, among those of its chain.
pub fn seq_bucket(hash: &KeyHash) -> u16 {
    (hash.low() as usize & (SEQ_BUCKETS - 1)) as u16
}

/// Keys of one chain that share sequence counters: their numbers can be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bucket {
    /// The chain.
    pub chain: ChainId,
    /// The [`seq_bucket`].
    pub number: u16,
}

/// The floors of one node: each chain's own, since each numbers its writes by itself (another
/// chain's number says nothing of what is still on its way).
#[derive(Clone, Default)]
pub struct Floors {
    served: ChainMap,
    /// From the first chain on, as far as one has risen.
    chains: Vec<ChainFloors>,
    /// Ranges whose tombstones are kept, whatever the floors: a copy of them is under way.
    kept: Vec<KeyRange>,
}

/// The floors of a chain's keys.
#[derive(Clone, Default)]
struct ChainFloors {
    base: Seq,
    /// Empty until the first one rises.
    buckets: Vec<u64>,
}

impl ChainFloors {
    fn of_bucket(&self, number: u16) -> Seq {
        let floor = self.buckets.get(usize::from(number)).copied();
        self.base.max(Seq(floor.unwrap_or(0)))
    }

    /// The floors of buckets that are above the base.
    fn above_base(&self) -> impl Iterator<Item = (u16, Seq)> {
        let buckets = self.buckets.iter().enumerate().filter(|(_, floor)| **floor > self.base.0);
        buckets.map(|(bucket, floor)| (bucket as u16, Seq(*floor)))
    }
}

impl Floors {
    /// Which chain serves each key from now on.
    pub fn set_served(&mut self, served: ChainMap) {
        self.served = served;
    }

    /// Which chain serves each key.
    pub fn served(&self) -> &ChainMap {
        &self.served
    }

    /// The chain that serves a key.
    #[inline]
    pub fn chain_of(&self, hash: &KeyHash) -> ChainId {
        self.served.of(hash)
    }

    /// The bucket of a key.
    pub fn bucket_of(&self, hash: &KeyHash) -> Bucket {
        Bucket { chain: self.chain_of(hash), number: seq_bucket(hash) }
    }

    fn of_chain(&self, chain: ChainId) -> Option<&ChainFloors> {
        self.chains.get(usize::from(chain.number()))
    }

    fn of_chain_mut(&mut self, chain: ChainId) -> &mut ChainFloors {
        assert!(chain.is_possible(), "a node serves no such chain");
        let index = usize::from(chain.number());
        if self.chains.len() <= index {
            self.chains.resize_with(index + 1, ChainFloors::default);
        }
        &mut self.chains[index]
    }

    /// The floor of all keys of a chain.
    pub fn base(&self, chain: ChainId) -> Seq {
        self.of_chain(chain).map_or(Seq::NONE, |floors| floors.base)
    }

    /// The floor of a key.
    pub fn of(&self, hash: &KeyHash) -> Seq {
        self.of_bucket(self.bucket_of(hash))
    }

    /// From now on the tombstones of a range are kept.
    pub fn keep(&mut self, range: KeyRange, keeps: bool) {
        match (self.kept.binary_search(&range), keeps) {
            (Err(place), true) => self.kept.insert(place, range),
            (Ok(place), false) => _ = self.kept.remove(place),
            _ => {}
        }
    }

    /// The ranges whose tombstones are kept.
    pub fn kept(&self) -> &[KeyRange] {
        &self.kept
    }

    /// Up to where a key's tombstone, or its expired record, may be dropped. `is_offered`: the
    /// cache may have something older than the floor of its bucket.
    pub fn droppable(&self, hash: &KeyHash, is_offered: bool) -> Seq {
        if self.kept.iter().any(|range| range.contains(hash)) {
            Seq::NONE
        } else if is_offered {
            self.base(self.chain_of(hash))
        } else {
            self.of(hash)
        }
    }

    /// The floors of a chain's buckets that are above its base.
    pub fn buckets(&self, chain: ChainId) -> impl Iterator<Item = (u16, Seq)> {
        self.of_chain(chain).into_iter().flat_map(ChainFloors::above_base)
    }

    /// The floor of a bucket.
    pub fn of_bucket(&self, bucket: Bucket) -> Seq {
        self.of_chain(bucket.chain).map_or(Seq::NONE, |floors| floors.of_bucket(bucket.number))
    }

    /// Raises the floor of all keys of a chain. Floors never sink.
    pub fn raise_base(&mut self, chain: ChainId, floor: Seq) {
        let floors = self.of_chain_mut(chain);
        floors.base = floors.base.max(floor);
    }

    /// Raises the floor of a bucket. Of one that doesn't exist nothing is kept.
    pub fn raise(&mut self, bucket: Bucket, floor: Seq) {
        let floors = self.of_chain_mut(bucket.chain);
        if floors.buckets.is_empty() {
            floors.buckets = vec![0; SEQ_BUCKETS];
        }
        if let Some(known) = floors.buckets.get_mut(usize::from(bucket.number)) {
            *known = floor.0.max(*known);
        }
    }

    /// Each chain's base, and the floors of its buckets that are above it.
    fn risen(&self) -> impl Iterator<Item = (Seq, Vec<(u16, Seq)>)> {
        let last = self
            .chains
            .iter()
            .rposition(|floors| floors.base > Seq::NONE || floors.above_base().next().is_some());
        let risen = &self.chains[..last.map_or(0, |last| last + 1)];
        risen.iter().map(|floors| (floors.base, floors.above_base().collect()))
    }
}

impl fmt::Debug for Floors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Floors")
            .field("served", &self.served)
            .field("risen", &self.risen().collect::<Vec<_>>())
            .field("kept", &self.kept)
            .finish()
    }
}

impl PartialEq for Floors {
    fn eq(&self, other: &Floors) -> bool {
        self.served == other.served && self.kept == other.kept && self.risen().eq(other.risen())
    }
}

impl Eq for Floors {}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::{Map, Partition};

    #[test]
    fn a_floor_is_that_of_its_bucket_or_the_base_and_never_sinks() {
        let (here, there) = (KeyHash([1; 16]), KeyHash([2; 16]));
        let mut floors = Floors::default();
        let (chain, bucket) = (floors.chain_of(&here), floors.bucket_of(&here));
        floors.raise_base(chain, Seq(5));
        floors.raise(bucket, Seq(9));
        assert_eq!((floors.of(&here), floors.of(&there)), (Seq(9), Seq(5)));
        floors.raise(bucket, Seq(8));
        floors.raise_base(chain, Seq(4));
        assert_eq!((floors.of(&here), floors.of(&there)), (Seq(9), Seq(5)));
        floors.raise_base(chain, Seq(10));
        assert_eq!(floors.of(&here), Seq(10));
    }

    #[test]
    fn a_floor_holds_for_the_keys_of_its_chain_alone() {
        let halves = Map::equal(vec![vec![0], vec![0]]);
        let of_chain =
            |chain: u16| Partition { chain, ..halves.partitions()[usize::from(chain)].clone() };
        let map = Map::new(vec![of_chain(0), of_chain(1)]).expect("a map");
        let mut floors = Floors::default();
        floors.set_served(ChainMap::from(&map));
        // In one bucket, at both ends of the key space.
        let (low, high) =
            (KeyHash([0; 16]), KeyHash([vec![0xff], vec![0; 15]].concat().try_into().unwrap()));
        assert_eq!(seq_bucket(&low), seq_bucket(&high));
        floors.raise(floors.bucket_of(&high), Seq::new(9, 3));
        floors.raise_base(floors.chain_of(&high), Seq::new(9, 0));
        assert_eq!((floors.of(&low), floors.of(&high)), (Seq::NONE, Seq::new(9, 3)));
        assert_eq!(floors.base(floors.chain_of(&low)), Seq::NONE);
    }

    #[test]
    fn floors_that_never_rose_make_no_difference() {
        let mut floors = Floors::default();
        floors.raise_base(ChainId::new(3), Seq::NONE);
        assert_eq!(floors, Floors::default());
        floors.raise_base(ChainId::new(3), Seq(1));
        assert_ne!(floors, Floors::default());
    }
}
