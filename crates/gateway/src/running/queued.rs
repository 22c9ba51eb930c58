//! Operations whose requests the session has, but which haven't been sent: they go to the switch as
//! one batch, which is faster than one by one.

/// Operations that are sent at once.
pub(crate) const BATCH: usize = switchback_net::SEND_BATCH;

/// The filter has 2^BITS bits.
const BITS: u32 = 12;

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Queued {
    operations: Vec<u32>,
    /// A Bloom filter of one hash (Bloom, CACM 13, 1970) of the keys that are queued: an operation
    /// that finds no bit is alone with its key.
    keys: Box<[u64; 1 << (BITS - 6)]>,
}

impl Default for Queued {
    fn default() -> Queued {
        Queued { operations: Vec::with_capacity(BATCH), keys: Box::new([0; 1 << (BITS - 6)]) }
    }
}

/// The word and bit of a key: of its last bytes, where keys differ mostly.
#[inline]
fn place(key: &[u8]) -> (usize, u64) {
    let mut tail = [0; 8];
    let length = key.len().min(8);
    tail[..length].copy_from_slice(&key[key.len() - length..]);
    let mixed = u64::from_le_bytes(tail).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
    ((mixed >> 6) as usize, 1 << (mixed & 63))
}

impl Queued {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.operations.len() >= BATCH
    }

    /// Whether an operation on this key may be queued. Never wrong if it says no.
    #[inline]
    pub(super) fn may_hold(&self, key: &[u8]) -> bool {
        let (word, bit) = place(key);
        self.keys[word] & bit != 0
    }

    #[inline]
    pub(super) fn push(&mut self, operation: u32, key: &[u8]) {
        let (word, bit) = place(key);
        self.keys[word] |= bit;
        self.operations.push(operation);
    }

    /// Takes an operation out; when none is left, no key is.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<u32> {
        let operation = self.operations.pop();
        if operation.is_none() {
            self.keys.fill(0);
        }
        operation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queued_key_is_found_until_all_are_taken_out() {
        let mut queued = Queued::default();
        let keys: Vec<String> = (0..40).map(|i| format!("{}{i}", "k".repeat(i % 10))).collect();
        for (at, key) in keys.iter().enumerate() {
            queued.push(at as u32, key.as_bytes());
        }
        assert!(queued.is_full() && keys.iter().all(|key| queued.may_hold(key.as_bytes())));
        let mut taken = 0;
        while queued.pop().is_some() {
            taken += 1;
        }
        assert_eq!(taken, keys.len());
        assert!(queued.is_empty() && keys.iter().all(|key| !queued.may_hold(key.as_bytes())));
    }
}
