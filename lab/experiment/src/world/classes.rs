//! How a measurement tells operations apart.

use super::World;
use std::collections::HashSet;
use switchback_wire::KeyHash;

/// Classes of operations.
#[derive(Clone, Default, Debug)]
pub(crate) enum Classes {
    /// One.
    #[default]
    All,
    /// What a node answered, and what the cache did.
    ByAnswer,
    /// Those of a chain with these keys in its cache.
    ByChain(u16, HashSet<KeyHash>),
}

impl Classes {
    /// Answered by a node.
    pub(crate) const MISS: usize = 0;
    /// Answered by the cache.
    pub(crate) const HIT: usize = 1;
    /// Of a key of the chain that it had cached.
    pub(crate) const CACHED: usize = 0;
    /// Of another key of the chain.
    pub(crate) const UNCACHED: usize = 1;
    /// Of another chain's key.
    pub(crate) const OTHERS: usize = 2;

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Classes::All => 0,
            Classes::ByAnswer => 2,
            Classes::ByChain(..) => 3,
        }
    }
}

impl World {
    /// The class of an operation on this record, which the cache answered or didn't.
    pub(super) fn class_of(&self, index: u64, cached: bool) -> usize {
        let Classes::ByChain(chain, keys) = &self.classes else { return usize::from(cached) };
        let controller = &self.controller.controller;
        let hash = controller.hash_key().hash(&self.keys.key(index));
        match controller.map().of(hash).chain == *chain {
            true if keys.contains(&hash) => Classes::CACHED,
            true => Classes::UNCACHED,
            false => Classes::OTHERS,
        }
    }
}
