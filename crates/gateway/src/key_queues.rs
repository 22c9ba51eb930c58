//! The order of operations on a key: those of one connection run in the order of its commands, and
//! read-modify-writes of one key run one after the other, so that a worker's own commands don't
//! make each other's conditional writes fail.
//!
//! Both are queues: the table knows the last operation of each, an operation knows the next one. A
//! queue is named by a 64-bit hash; if two names collide, operations wait without need. Operations
//! that the cache answers at once never enter the table.

use hashbrown::HashTable;
use std::hash::{BuildHasher, RandomState};

/// No operation.
pub(crate) const NONE: u32 = u32::MAX;

/// An operation's place in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) name: u64,
    pub(crate) next: u32,
    pub(crate) joined: bool,
}

impl Default for Place {
    fn default() -> Place {
        Place { name: 0, next: NONE, joined: false }
    }
}

/// The last operation of each key's queues.
#[derive(Debug, Default)]
pub(crate) struct KeyQueues {
    tails: HashTable<(u64, u32)>,
    hasher: RandomState,
}

impl KeyQueues {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tails.is_empty()
    }

    /// The queue of a connection's operations on a key.
    pub(crate) fn program_order(&self, connection: (u32, u32), key: &[u8]) -> u64 {
        self.hasher.hash_one((connection, key))
    }

    /// The queue of a key's read-modify-writes.
    pub(crate) fn read_modify_write(&self, key: &[u8]) -> u64 {
        self.hasher.hash_one(key)
    }

    pub(crate) fn tail(&self, name: u64) -> Option<u32> {
        self.tails.find(name, |entry| entry.0 == name).map(|entry| entry.1)
    }

    /// Makes `operation` the queue's last; returns the one before it.
    pub(crate) fn push(&mut self, name: u64, operation: u32) -> Option<u32> {
        if let Some(entry) = self.tails.find_mut(name, |entry| entry.0 == name) {
            return Some(std::mem::replace(&mut entry.1, operation));
        }
        self.tails.insert_unique(name, (name, operation), |entry| entry.0);
        None
    }

    /// The queue's last operation has finished.
    pub(crate) fn remove(&mut self, name: u64) {
        if let Ok(entry) = self.tails.find_entry(name, |entry| entry.0 == name) {
            entry.remove();
        }
    }
}
