//! How keys that aren't cached are counted: when the sketch begins anew, and at what.
//!
//! In a full cache a key is hot that was counted `threshold` times. While there is room, one is hot
//! that was counted a few times: an empty slot is worth less than any record. The datapath knows
//! one threshold; counters that begin below it by less make keys hot earlier.

/// How many times a key was counted that is hot while there is room (or the threshold of a full
/// cache, if that is less).
const COUNTED_WITH_ROOM: u32 = 5;

/// One way to count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counting {
    /// What the sketch's counters begin at.
    pub start: u32,
    /// Misses after which they begin anew.
    pub misses: u64,
}

impl Counting {
    /// Of a full cache: a key is hot at the threshold.
    pub fn full(sketch_width: u32, threshold: u32, sampling: f64) -> Counting {
        Counting { start: 0, misses: misses(sketch_width, threshold, sampling) }
    }

    /// Of a cache that has room.
    pub fn with_room(sketch_width: u32, threshold: u32, sampling: f64) -> Counting {
        let counted = threshold.min(COUNTED_WITH_ROOM);
        Counting { start: threshold - counted, misses: misses(sketch_width, counted, sampling) }
    }
}

/// After how many misses to begin anew, if a key is hot that was counted `counted` times: when cold
/// keys have filled every counter to half of `counted`, the least of a key's four counters still
/// tells hot from cold.
fn misses(sketch_width: u32, counted: u32, sampling: f64) -> u64 {
    let noise = f64::from(counted) / 2.0 * f64::from(sketch_width);
    (noise / sampling.max(1e-6)) as u64 + 1
}
