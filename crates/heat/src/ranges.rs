//! Counters of hash ranges.

use super::{Access, Plane};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use switchback_wire::KeyHash;

/// Ranges of the hash space, of equal size: a key's is the first byte of its hash.
pub const RANGES: usize = 256;

/// Kinds of requests that a range counts apart.
const KINDS: usize = 4;

/// What is counted of an access: bit 0 for a write, bit 1 for an answer of the cache.
#[inline]
fn kind(is_write: bool, is_cached: bool) -> usize {
    usize::from(is_write) | usize::from(is_cached) << 1
}

/// The counters of one thread: 4 KiB. Only that thread writes them, so counting is a plain load and
/// store, not a locked instruction. They wrap.
#[derive(Debug)]
pub(super) struct Ranges([[AtomicU32; KINDS]; RANGES]);

impl Default for Ranges {
    fn default() -> Ranges {
        Ranges([const { [const { AtomicU32::new(0) }; KINDS] }; RANGES])
    }
}

impl Ranges {
    #[inline]
    pub(super) fn count(&self, access: Access) {
        let KeyHash([range, ..]) = access.hash;
        let counter = &self.0[usize::from(range)][kind(access.is_write, access.is_cached)];
        counter.store(counter.load(Relaxed).wrapping_add(1), Relaxed);
    }

    pub(super) fn add_to(&self, sums: &mut Counts) {
        for (sum, counters) in sums.0.iter_mut().zip(self.0.iter()) {
            for (sum, counter) in sum.0.iter_mut().zip(counters) {
                *sum = sum.wrapping_add(counter.load(Relaxed));
            }
        }
    }
}

/// What the ranges counted, modulo 2^32.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts(Box<[Count; RANGES]>);

/// What one range counted.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Count([u32; KINDS]);

impl Default for Counts {
    fn default() -> Counts {
        Counts(Box::new([Count::default(); RANGES]))
    }
}

impl Counts {
    /// Of one range.
    pub fn of(&self, range: u8) -> Count {
        self.0[usize::from(range)]
    }

    /// What all ranges counted together since an earlier look, of one plane.
    pub fn since(&self, earlier: &Counts, plane: Plane) -> u64 {
        let more = |(now, before): (&Count, &Count)| {
            u64::from(plane.of(*now).wrapping_sub(plane.of(*before)))
        };
        self.0.iter().zip(earlier.0.iter()).map(more).sum()
    }
}

impl Count {
    /// Reads, whatever answered them.
    pub fn reads(&self) -> u32 {
        self.0[kind(false, false)].wrapping_add(self.0[kind(false, true)])
    }

    /// Writes and deletes, whatever answered them.
    pub fn writes(&self) -> u32 {
        self.0[kind(true, false)].wrapping_add(self.0[kind(true, true)])
    }

    /// Requests of both kinds that a node answered.
    pub fn at_nodes(&self) -> u32 {
        self.0[kind(false, false)].wrapping_add(self.0[kind(true, false)])
    }
}
