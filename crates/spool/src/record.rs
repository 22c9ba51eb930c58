//! A spooled record's bytes: `crc32 | length | seq | expiry | generation | flags | hash | key
//! length | key | value`, little-endian. The checksum covers all after it, the length all after it.

use std::io::{self, Read};
use switchback_core::client::{Preservation, PreservedRecord};
use switchback_wire::{KEY_BYTES_MAX, KeyHash, Seq, VALUE_BYTES_MAX};

/// Checksum and length.
const PREFIX_BYTES: usize = 8;
/// What follows them, before the key.
const FIXED_BYTES: usize = 8 + 8 + 4 + 1 + 16 + 2;
const TOMBSTONE: u8 = 1;

pub(super) fn encode(kept: &PreservedRecord, to: &mut Vec<u8>) {
    let from = to.len();
    let length = FIXED_BYTES + kept.key.len() + kept.record.value.len();
    to.extend_from_slice(&[0; 4]);
    to.extend_from_slice(&(length as u32).to_le_bytes());
    to.extend_from_slice(&kept.record.seq.0.to_le_bytes());
    to.extend_from_slice(&kept.record.expiry_ms.to_le_bytes());
    to.extend_from_slice(&kept.generation.to_le_bytes());
    to.push(if kept.record.tombstone { TOMBSTONE } else { 0 });
    to.extend_from_slice(&kept.hash.0);
    to.extend_from_slice(&(kept.key.len() as u16).to_le_bytes());
    to.extend_from_slice(&kept.key);
    to.extend_from_slice(&kept.record.value);
    let checksum = crc32fast::hash(&to[from + 4..]);
    to[from..from + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// A record in a segment.
pub(super) struct Spooled<'a> {
    pub(super) seq: Seq,
    pub(super) expiry_ms: u64,
    pub(super) generation: u32,
    pub(super) tombstone: bool,
    pub(super) hash: KeyHash,
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

impl Spooled<'_> {
    pub(super) fn keep(&self, preserved: &mut Preservation) {
        let Spooled { seq, expiry_ms, generation, tombstone, hash, key, value } = *self;
        preserved.keep(hash, key, value, seq, tombstone, expiry_ms, generation);
    }
}

/// Replaces `bytes` by the next record, for [`decode`]; by less than a record at the end of the
/// file, or where its length can't be right.
pub(super) fn read(file: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<()> {
    bytes.clear();
    file.take(PREFIX_BYTES as u64).read_to_end(bytes)?;
    if let Some(length) = length(bytes) {
        file.take(length as u64).read_to_end(bytes)?;
    }
    Ok(())
}

/// How long the record is that begins with `bytes`, without its prefix; `None` if no record is.
fn length(bytes: &[u8]) -> Option<usize> {
    let length = u32::from_le_bytes(*bytes.get(4..)?.first_chunk()?) as usize;
    let lengths = FIXED_BYTES..=FIXED_BYTES + KEY_BYTES_MAX + VALUE_BYTES_MAX;
    lengths.contains(&length).then_some(length)
}

/// The record that `bytes` begin with, and its length; `None` if it is torn or damaged.
pub(super) fn decode(bytes: &[u8]) -> Option<(Spooled<'_>, usize)> {
    let length = length(bytes)?;
    let (checksum, rest) = bytes.split_first_chunk::<4>()?;
    let checked = rest.get(..4 + length)?;
    if crc32fast::hash(checked) != u32::from_le_bytes(*checksum) {
        return None;
    }
    let (seq, rest) = checked[4..].split_first_chunk()?;
    let (expiry_ms, rest) = rest.split_first_chunk()?;
    let (generation, rest) = rest.split_first_chunk()?;
    let (flags, rest) = rest.split_first()?;
    let (hash, rest) = rest.split_first_chunk()?;
    let (key_bytes, rest) = rest.split_first_chunk()?;
    let (key, value) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_bytes)))?;
    let record = Spooled {
        seq: Seq(u64::from_le_bytes(*seq)),
        expiry_ms: u64::from_le_bytes(*expiry_ms),
        generation: u32::from_le_bytes(*generation),
        tombstone: flags & TOMBSTONE != 0,
        hash: KeyHash(*hash),
        key,
        value,
    };
    (!key.is_empty() && key.len() <= KEY_BYTES_MAX).then_some((record, PREFIX_BYTES + length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use switchback_core::storage::Record;

    proptest! {
        #[test]
        fn a_record_survives_and_damage_is_seen(
            key in prop::collection::vec(any::<u8>(), 1..100),
            value in prop::collection::vec(any::<u8>(), 0..300),
            seq in any::<u64>(),
            expiry_ms in any::<u64>(),
            generation in any::<u32>(),
            tombstone in any::<bool>(),
            damaged in any::<prop::sample::Index>(),
        ) {
            let record = Record { seq: Seq(seq), tombstone, expiry_ms, value, since: None };
            let kept = PreservedRecord { hash: KeyHash([7; 16]), key, record, generation };
            let mut bytes = Vec::new();
            encode(&kept, &mut bytes);
            let (spooled, length) = decode(&bytes).unwrap();
            prop_assert_eq!(length, bytes.len());
            let read = PreservedRecord {
                hash: spooled.hash,
                key: spooled.key.to_vec(),
                record: Record {
                    seq: spooled.seq,
                    tombstone: spooled.tombstone,
                    expiry_ms: spooled.expiry_ms,
                    value: spooled.value.to_vec(),
                    since: None,
                },
                generation: spooled.generation,
            };
            prop_assert_eq!(read, kept);
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_none());
            }
            let at = damaged.index(bytes.len());
            bytes[at] ^= 0x10;
            prop_assert!(decode(&bytes).is_none());
        }
    }
}
