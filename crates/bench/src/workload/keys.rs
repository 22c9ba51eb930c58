//! Keys and values of records: a key follows from the index, a value from index and version.

use super::Lengths;
use std::ops::Range;

/// Shortest and longest key.
pub const KEY_BYTES: (usize, usize) = (16, 128);
/// Bytes of a value's stamp. A shorter value is the beginning of a digest of the stamp: it differs
/// from others, but names no write.
pub const STAMP_BYTES: usize = 16;
/// Writer of the records that are stored before the run.
pub const PRELOADED: u16 = 0;

/// Bits of an index, and of the number in a key.
const INDEX_BITS: u32 = 48;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Names records: record `index` is `user` and twelve hexadecimal digits, a seeded permutation of
/// the index, so that neighbours in rank are not neighbours in any order of keys. Longer keys are
/// padded in front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeySpace {
    seed: u64,
    key_bytes: usize,
}

impl KeySpace {
    /// Keys of `key_bytes` bytes.
    pub fn new(seed: u64, key_bytes: usize) -> KeySpace {
        assert!((KEY_BYTES.0..=KEY_BYTES.1).contains(&key_bytes));
        KeySpace { seed: mix(seed ^ 0x5357_4954_4348_4241), key_bytes }
    }

    /// Length of every key.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Writes the key of record `index` to `key`.
    #[inline]
    pub fn write_key(&self, index: u64, key: &mut Vec<u8>) {
        assert!(index <= INDEX_MASK, "an index has {INDEX_BITS} bits");
        let number = permute(index, self.seed);
        key.clear();
        key.resize(self.key_bytes - 16, b'.');
        key.extend_from_slice(b"user");
        for digit in (0..INDEX_BITS / 4).rev() {
            key.push(HEX[(number >> (digit * 4)) as usize & 15]);
        }
    }

    /// The index of the record of this key, if the key space has it.
    pub fn index(&self, key: &[u8]) -> Option<u64> {
        let name = key.get(self.key_bytes - 16..).filter(|_| key.len() == self.key_bytes)?;
        let digits = std::str::from_utf8(name.strip_prefix(b"user")?).ok()?;
        Some(unpermute(u64::from_str_radix(digits, 16).ok()?, self.seed))
    }

    /// The key of record `index`.
    pub fn key(&self, index: u64) -> Vec<u8> {
        let mut key = Vec::new();
        self.write_key(index, &mut key);
        key
    }
}

const MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
const INVERSES: [u64; 3] =
    [inverse(MULTIPLIERS[0]), inverse(MULTIPLIERS[1]), inverse(MULTIPLIERS[2])];

/// A permutation of the 48-bit numbers: every step (odd multiplication, addition, xor with a right
/// shift) can be undone.
#[inline]
fn permute(index: u64, seed: u64) -> u64 {
    let mut x = index.wrapping_add(seed) & INDEX_MASK;
    for multiplier in MULTIPLIERS {
        x = x.wrapping_mul(multiplier) & INDEX_MASK;
        x ^= x >> 25;
    }
    x
}

/// The inverse permutation.
#[inline]
fn unpermute(mut x: u64, seed: u64) -> u64 {
    for inverse in INVERSES.into_iter().rev() {
        x ^= x >> 25; // twice 25 is more than 48 bits
        x = x.wrapping_mul(inverse) & INDEX_MASK;
    }
    x.wrapping_sub(seed) & INDEX_MASK
}

/// The inverse of an odd number modulo 2^64, by Newton's method: each step doubles the number of
/// right bits.
const fn inverse(odd: u64) -> u64 {
    let mut x = odd; // three bits are right
    let mut step = 0;
    while step < 5 {
        x = x.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// The finalizer of SplitMix64.
#[inline]
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Identifies the write that made a value; all bytes of the value follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The record it was written to.
    pub index: u64,
    /// The writer: the client's number from 1 on, or [`PRELOADED`].
    pub writer: u16,
    /// The number of the write among those of its writer.
    pub version: u32,
}

/// Why bytes are no value that a client wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValueError {
    /// Another length than the record's values have.
    Length,
    /// Length is right, checksum wrong.
    Checksum,
}

impl Stamp {
    /// Writes the value of `value_bytes` bytes that this write stores.
    ///
    /// 48 bits of index, 16 of writer, 32 of version, CRC-32 of all that isn't the CRC; then
    /// pseudo-random filler, which doesn't compress and differs from version to version, so that a
    /// torn value can't pass. Fewer than [`STAMP_BYTES`] are the beginning of a digest.
    #[inline]
    pub fn write_value(&self, value_bytes: usize, value: &mut Vec<u8>) {
        assert!(value_bytes > 0 && self.index <= INDEX_MASK);
        let head = self.index << 16 | u64::from(self.writer);
        value.clear();
        if value_bytes < STAMP_BYTES {
            let first = mix(head ^ mix(u64::from(self.version) + 1));
            value.extend_from_slice(&first.to_be_bytes());
            value.extend_from_slice(&mix(first ^ head).to_be_bytes());
            return value.truncate(value_bytes);
        }
        value.extend_from_slice(&head.to_be_bytes());
        value.extend_from_slice(&self.version.to_be_bytes());
        value.extend_from_slice(&[0; 4]);
        let mut word = mix(head ^ u64::from(self.version).rotate_left(24));
        while value.len() < value_bytes {
            let bytes = word.to_le_bytes();
            value.extend_from_slice(&bytes[..bytes.len().min(value_bytes - value.len())]);
            word = word.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        }
        let checksum = checksum(value);
        value[12..16].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The write that made `value`, if it is a whole value of `value_bytes` bytes; `None` if such a
    /// value is too short to name it.
    #[inline]
    pub fn read_value(value: &[u8], value_bytes: usize) -> Result<Option<Stamp>, ValueError> {
        if value.len() != value_bytes {
            return Err(ValueError::Length);
        }
        if value_bytes < STAMP_BYTES {
            return Ok(None);
        }
        let u32_at =
            |at: usize| u32::from_be_bytes(value[at..at + 4].try_into().expect("four bytes"));
        if u32_at(12) != checksum(value) {
            return Err(ValueError::Checksum);
        }
        let head = u64::from(u32_at(0)) << 32 | u64::from(u32_at(4));
        Ok(Some(Stamp { index: head >> 16, writer: head as u16, version: u32_at(8) }))
    }
}

#[inline]
fn checksum(value: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&value[..12]);
    hasher.update(&value[16..]);
    hasher.finalize()
}

/// The records that are stored before a run: those of a range of indexes, with version 0. Returns
/// one record after the other without allocating.
#[derive(Clone, Debug)]
pub struct Preload {
    keys: KeySpace,
    lengths: Lengths,
    range: Range<u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Preload {
    /// The records of `range`.
    pub fn new(keys: KeySpace, lengths: Lengths, range: Range<u64>) -> Preload {
        Preload { keys, lengths, range, key: Vec::new(), value: Vec::new() }
    }

    /// Number of records that are left.
    pub fn remaining(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// Part `part` of `parts` about equal ones that together are the whole.
    pub fn part(&self, part: u64, parts: u64) -> Preload {
        assert!(part < parts);
        let at = |part: u64| {
            self.range.start
                + (u128::from(self.remaining()) * u128::from(part) / u128::from(parts)) as u64
        };
        Preload { range: at(part)..at(part + 1), ..self.clone() }
    }

    /// The next record: key and value, valid until the next call.
    #[inline]
    pub fn next_record(&mut self) -> Option<(&[u8], &[u8])> {
        let index = self.range.next()?;
        self.keys.write_key(index, &mut self.key);
        Stamp { index, writer: PRELOADED, version: 0 }
            .write_value(self.lengths.of(index), &mut self.value);
        Some((&self.key, &self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    #[test]
    fn keys_are_distinct_of_the_right_length_and_spread() {
        let keys = KeySpace::new(1, 16);
        let all: HashSet<_> = (0..200_000).map(|index| keys.key(index)).collect();
        assert_eq!(all.len(), 200_000);
        assert!(all.iter().all(|key| key.len() == 16 && key.starts_with(b"user")));
        // Each first digit gets about its share of any run of neighbours.
        let mut counts = [0; 256];
        for index in 0..16_000 {
            counts[keys.key(index)[4] as usize] += 1;
        }
        assert!(
            HEX.iter().all(|&digit| (800..1200).contains(&counts[usize::from(digit)])),
            "{counts:?}"
        );
        assert_ne!(KeySpace::new(2, 16).key(5), keys.key(5));
        assert_eq!(KeySpace::new(1, 40).key(5).len(), 40);
    }

    #[test]
    fn the_parts_of_a_preload_are_the_whole() {
        let whole = Preload::new(KeySpace::new(1, 16), Lengths::constant(32), 5..1005);
        let collect = |mut preload: Preload| {
            let mut keys = Vec::new();
            while let Some((key, value)) = preload.next_record() {
                assert_eq!(value.len(), 32);
                keys.push(key.to_vec());
            }
            keys
        };
        let parts: Vec<_> = (0..7).flat_map(|part| collect(whole.part(part, 7))).collect();
        assert_eq!(parts, collect(whole));
    }

    proptest! {
        #[test]
        fn the_permutation_is_one(a in 0u64..1 << 48, b in 0u64..1 << 48, seed in any::<u64>()) {
            prop_assert_eq!(a == b, permute(a, seed) == permute(b, seed));
        }

        #[test]
        fn a_key_says_whose_it_is(
            index in 0u64..1 << 48,
            seed in any::<u64>(),
            key_bytes in 16usize..128,
        ) {
            let keys = KeySpace::new(seed, key_bytes);
            prop_assert_eq!(keys.index(&keys.key(index)), Some(index));
            prop_assert_eq!(keys.index(&keys.key(index)[1..]), None);
        }

        #[test]
        fn a_value_identifies_its_write(
            index in 0u64..1 << 48,
            writer in any::<u16>(),
            version in any::<u32>(),
            value_bytes in 16usize..70_000,
        ) {
            let stamp = Stamp { index, writer, version };
            let mut value = Vec::new();
            stamp.write_value(value_bytes, &mut value);
            prop_assert_eq!(value.len(), value_bytes);
            prop_assert_eq!(Stamp::read_value(&value, value_bytes), Ok(Some(stamp)));
        }

        #[test]
        fn a_short_value_names_no_write_but_differs_from_others(
            index in 0u64..1 << 48, version in 0u32..1 << 30, value_bytes in 8usize..16,
        ) {
            let (mut value, mut newer) = (Vec::new(), Vec::new());
            Stamp { index, writer: 1, version }.write_value(value_bytes, &mut value);
            Stamp { index, writer: 1, version: version + 1 }.write_value(value_bytes, &mut newer);
            prop_assert!(value.len() == value_bytes && value != newer);
            prop_assert_eq!(Stamp::read_value(&value, value_bytes), Ok(None));
            prop_assert_eq!(Stamp::read_value(&value[1..], value_bytes), Err(ValueError::Length));
        }

        #[test]
        fn a_flipped_bit_or_a_torn_value_is_found(
            index in 0u64..1 << 48,
            version in 0u32..1 << 30,
            value_bytes in 24usize..300,
            at in any::<usize>(),
            bit in 0u8..8,
        ) {
            let (mut value, mut newer) = (Vec::new(), Vec::new());
            Stamp { index, writer: 1, version }.write_value(value_bytes, &mut value);
            Stamp { index, writer: 1, version: version + 1 }.write_value(value_bytes, &mut newer);
            let mut flipped = value.clone();
            flipped[at % value_bytes] ^= 1 << bit;
            prop_assert!(Stamp::read_value(&flipped, value_bytes).is_err());
            // Torn behind the stamp: the checksum is the older one's, some of the bytes are the
            // newer one's.
            let from = 16 + at % (value_bytes - 16);
            prop_assume!(value[from..] != newer[from..]);
            value[from..].copy_from_slice(&newer[from..]);
            prop_assert!(Stamp::read_value(&value, value_bytes).is_err());
            prop_assert_eq!(Stamp::read_value(&value[1..], value_bytes), Err(ValueError::Length));
        }
    }
}
