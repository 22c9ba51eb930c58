//! Keyed key hashes. The rack's key is secret to its clients, so that none can aim collisions at
//! the cache.

use crate::RoutingKey;
use serde::{Deserialize, Serialize};
use siphasher::sip128::SipHasher24;
use std::fmt;

/// The key under which a rack hashes, made once when the rack is made.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashKey(pub [u8; 16]);

/// SipHash-2-4-128 of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct KeyHash(pub [u8; 16]);

impl HashKey {
    /// The hash of `key` in this rack.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        // `new_with_key` isn't inlined, and a hasher that is fed in pieces buffers them.
        let [low, high] = [&self.0[..8], &self.0[8..]]
            .map(|half| u64::from_le_bytes(half.try_into().expect("eight of sixteen bytes")));
        let hash = SipHasher24::new_with_keys(low, high).hash(key);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&hash.h1.to_be_bytes());
        bytes[8..].copy_from_slice(&hash.h2.to_be_bytes());
        KeyHash(bytes)
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl KeyHash {
    /// The first eight bytes: the position in the key space that scans and partitions order by.
    #[inline]
    pub fn position(&self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("eight of sixteen bytes"))
    }

    /// The last eight bytes, for tables.
    #[inline]
    pub fn low(&self) -> u64 {
        u64::from_be_bytes(self.0[8..].try_into().expect("eight of sixteen bytes"))
    }

    /// The routing key of a rack that partitions by hash.
    #[inline]
    pub fn routing(&self) -> RoutingKey {
        RoutingKey(u128::from_be_bytes(self.0))
    }

    /// The hash whose routing key is this one.
    pub fn of_routing(key: RoutingKey) -> KeyHash {
        KeyHash(key.0.to_be_bytes())
    }

    /// The first hash at a position.
    pub fn at_position(position: u64) -> KeyHash {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&position.to_be_bytes());
        KeyHash(bytes)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.position())
    }
}
