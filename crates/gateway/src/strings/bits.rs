//! Bits of a value: bit 0 is the highest of byte 0, as in Redis.

use super::Offsets;

/// One bit; those beyond the value's end are 0.
pub(super) fn get(value: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| value.get(at)).copied().unwrap_or(0);
    byte >> (7 - offset % 8) & 1 == 1
}

/// Sets a bit that lies within the value; what it was.
pub(super) fn set(value: &mut [u8], offset: u64, bit: bool) -> bool {
    let before = get(value, offset);
    let mask = 1 << (7 - offset % 8);
    let byte = &mut value[(offset / 8) as usize];
    *byte = if bit { *byte | mask } else { *byte & !mask };
    before
}

/// The part of a value that commands on bits look at: whole bytes, of which some bits at both ends
/// don't belong to it.
struct Part<'a> {
    bytes: &'a [u8],
    /// The bit of the value that `bytes` begins with.
    first_bit: u64,
    /// Bits of the first byte that aren't looked at.
    before: u32,
    /// Bits of the last byte that aren't looked at.
    after: u32,
}

/// `None` if nothing of the value is within `offsets`.
fn part(value: &[u8], offsets: Offsets, in_bits: bool) -> Option<Part<'_>> {
    if !in_bits {
        let bytes = offsets.within(value.len())?;
        let first_bit = bytes.start as u64 * 8;
        return Some(Part { bytes: &value[bytes], first_bit, before: 0, after: 0 });
    }
    let bits = offsets.within(value.len() * 8)?;
    let (first, last) = (bits.start, bits.end - 1);
    Some(Part {
        bytes: &value[first / 8..=last / 8],
        first_bit: (first - first % 8) as u64,
        before: (first % 8) as u32,
        after: 7 - (last % 8) as u32,
    })
}

/// How many bits within `offsets` (of bits, or of bytes) are 1.
pub(super) fn count(value: &[u8], offsets: Offsets, in_bits: bool) -> i64 {
    if offsets.is_backward() {
        return 0;
    }
    let Some(Part { bytes, before, after, .. }) = part(value, offsets, in_bits) else { return 0 };
    let (words, rest) = bytes.as_chunks::<8>();
    let ones = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones()));
    let rest = rest.iter().map(|byte| u64::from(byte.count_ones()));
    let excluded = (bytes[0] & !(0xff >> before)).count_ones()
        + (bytes[bytes.len() - 1] & !(0xffu8 << after)).count_ones();
    (ones.sum::<u64>() + rest.sum::<u64>() - u64::from(excluded)) as i64
}

/// How values are combined, bit by bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BitOperation {
    And,
    Or,
    Xor,
    /// Of one value.
    Not,
}

/// Combines values. Shorter ones count as followed by zeros.
pub(crate) fn combined(operation: BitOperation, values: &[&[u8]]) -> Vec<u8> {
    let length = values.iter().map(|value| value.len()).max().unwrap_or(0);
    let Some((first, others)) = values.split_first() else { return Vec::new() };
    let mut all = first.to_vec();
    all.resize(length, 0);
    if operation == BitOperation::Not {
        all.iter_mut().for_each(|byte| *byte = !*byte);
    }
    for other in others {
        let padded = other.iter().copied().chain(std::iter::repeat(0));
        for (byte, with) in all.iter_mut().zip(padded) {
            *byte = match operation {
                BitOperation::And => *byte & with,
                BitOperation::Or => *byte | with,
                BitOperation::Xor | BitOperation::Not => *byte ^ with,
            };
        }
    }
    all
}

/// The first bit that is `bit`, or -1. Without a last offset, the value counts as followed by
/// zeros.
pub(super) fn find(value: &[u8], bit: bool, first: i64, last: Option<i64>, in_bits: bool) -> i64 {
    let offsets = Offsets { first, last: last.unwrap_or(-1) };
    let Some(Part { bytes, first_bit, before, after }) = part(value, offsets, in_bits) else {
        return -1;
    };
    let flip = if bit { 0 } else { 0xff };
    let end = bytes.len() - 1;
    // A byte whose ones are what is looked for.
    let wanted = |at: usize| {
        let mut byte = bytes[at] ^ flip;
        if at == 0 {
            byte &= 0xff >> before;
        }
        if at == end {
            byte &= 0xff << after;
        }
        byte
    };
    let found = (0..bytes.len()).map(|at| (at, wanted(at))).find(|&(_, byte)| byte != 0);
    match found {
        Some((at, byte)) => (first_bit + at as u64 * 8 + u64::from(byte.leading_zeros())) as i64,
        None if !bit && last.is_none() => (first_bit + bytes.len() as u64 * 8) as i64,
        None => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_bit_that_was_set_is_there_and_no_other_changed(
            value in prop::collection::vec(any::<u8>(), 1..40), offset: u64, bit: bool
        ) {
            let offset = offset % (value.len() as u64 * 8);
            let mut changed = value.clone();
            prop_assert_eq!(set(&mut changed, offset, bit), get(&value, offset));
            for at in 0..value.len() as u64 * 8 + 20 {
                let wanted = if at == offset { bit } else { get(&value, at) };
                prop_assert_eq!(get(&changed, at), wanted);
            }
        }

        /// Beside a look at one bit after the other.
        #[test]
        fn counts_and_finds_what_is_there(
            value in prop::collection::vec(prop::sample::select(vec![0u8, 255, 16, 77]), 0..40),
            first in -400i64..400, last in -400i64..400, in_bits: bool, bit: bool
        ) {
            let unit = if in_bits { 1 } else { 8 };
            let bits = value.len() as i64 * 8;
            let from_end = |at: i64| if at < 0 { (bits / unit + at).max(0) } else { at };
            let (from, to) = (from_end(first) * unit, from_end(last) * unit + unit - 1);
            let inside: Vec<i64> = (from..=to.min(bits - 1)).collect();
            let is = |&at: &i64| get(&value, at as u64) == bit;
            let found = inside.iter().copied().find(is).unwrap_or(-1);
            prop_assert_eq!(find(&value, bit, first, Some(last), in_bits), found);
            let ones = inside.iter().filter(|&&at| get(&value, at as u64)).count() as i64;
            let ones = if first < 0 && last < 0 && first > last { 0 } else { ones };
            prop_assert_eq!(count(&value, Offsets { first, last }, in_bits), ones);
        }
    }

    #[test]
    fn zeros_follow_a_value_without_a_last_offset() {
        assert_eq!(find(&[0xff, 0xff], false, 0, None, false), 16);
        assert_eq!(find(&[0xff, 0xff], false, 1, None, false), 16);
        assert_eq!(find(&[0xff, 0xff], false, 0, Some(-1), false), -1);
        assert_eq!(find(&[0xff, 0xff], false, 2, None, false), -1);
        assert_eq!(find(&[0, 0], true, 0, None, false), -1);
    }
}
