//! The chains of switches of a rack, and what there is once for each of them.
//!
//! A chain serves the requests of its partitions. Epochs, sequence numbers, snapshot generations
//! and recoveries are a chain's. There is one, which all switches belong to and which serves all
//! partitions: nothing but this file relies on that. So far its name takes no room in messages and
//! files, and what there is once for each chain takes as much as one of it.

use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};
use switchback_wire::{KeyHash, Map};

/// Names a chain of switches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChainId(());

impl ChainId {
    /// Its number, as in [`Partition::chain`](switchback_wire::Partition::chain).
    pub fn number(self) -> u16 {
        0
    }
}

/// The first chain that a map names and that there isn't, if it does.
pub(crate) fn unknown_chain(map: &Map) -> Option<u16> {
    let is_known = |number: u16| ByChain::new(|_| ()).iter().any(|(id, ())| id.number() == number);
    map.partitions().iter().map(|partition| partition.chain).find(|number| !is_known(*number))
}

/// The chain that serves a partition.
pub fn chain_of(_partition: u16) -> ChainId {
    ChainId(())
}

/// The chain that serves a key's partition, also for a part that doesn't know the map.
pub fn chain_of_key(_hash: &KeyHash) -> ChainId {
    ChainId(())
}

/// The chain that a switch belongs to.
pub fn chain_of_switch(_switch: u16) -> ChainId {
    ChainId(())
}

/// One of something for each chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ByChain<T> {
    only: T,
}

impl<T> ByChain<T> {
    /// What `make` makes for each chain.
    pub fn new(mut make: impl FnMut(ChainId) -> T) -> ByChain<T> {
        ByChain { only: make(ChainId(())) }
    }

    /// The same; `None` if it makes none for some chain.
    pub fn try_new(mut make: impl FnMut(ChainId) -> Option<T>) -> Option<ByChain<T>> {
        Some(ByChain { only: make(ChainId(()))? })
    }

    /// Each chain, with its own.
    pub fn iter(&self) -> impl Iterator<Item = (ChainId, &T)> {
        std::iter::once((ChainId(()), &self.only))
    }

    /// Each chain, with its own.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChainId, &mut T)> {
        std::iter::once((ChainId(()), &mut self.only))
    }
}

impl<T> Index<ChainId> for ByChain<T> {
    type Output = T;

    #[inline]
    fn index(&self, _chain: ChainId) -> &T {
        &self.only
    }
}

impl<T> IndexMut<ChainId> for ByChain<T> {
    #[inline]
    fn index_mut(&mut self, _chain: ChainId) -> &mut T {
        &mut self.only
    }
}
