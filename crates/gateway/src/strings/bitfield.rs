//! BITFIELD: integers of 1 to 64 bits anywhere in a value.

/// What becomes of a result that its integer has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub(crate) enum Overflow {
    #[default]
    Wrap,
    Saturate,
    Fail,
}

/// What is done with an integer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Access {
    Get,
    Set,
    Increment,
}

/// One subcommand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Field {
    pub(crate) access: Access,
    pub(crate) overflow: Overflow,
    pub(crate) signed: bool,
    /// 1 to 64, or to 63 without a sign.
    pub(crate) bits: u8,
    /// Its first bit.
    pub(crate) offset: u64,
    /// What is stored or added.
    pub(crate) operand: i64,
}

impl Field {
    const BYTES: usize = 20;

    /// Appends it to a list that [`get`] and [`update`] take.
    pub(crate) fn encode(self, list: &mut Vec<u8>) {
        list.extend([self.access as u8, self.overflow as u8, self.signed.into(), self.bits]);
        list.extend(self.offset.to_le_bytes());
        list.extend(self.operand.to_le_bytes());
    }

    fn decode(bytes: &[u8; Field::BYTES]) -> Field {
        let [access, overflow, signed, bits, numbers @ ..] = bytes;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&numbers[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        Field {
            access: match access {
                0 => Access::Get,
                1 => Access::Set,
                _ => Access::Increment,
            },
            overflow: match overflow {
                0 => Overflow::Wrap,
                1 => Overflow::Saturate,
                _ => Overflow::Fail,
            },
            signed: *signed != 0,
            bits: *bits,
            offset: number(0),
            operand: number(8) as i64,
        }
    }

    /// Bytes that a value must have for it.
    fn end_bytes(self) -> u64 {
        (self.offset + u64::from(self.bits) - 1) / 8 + 1
    }

    /// All bits of its integer.
    fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// Where its bits are: the first byte, how many bytes, and how many bits follow in the last.
    fn place(self) -> (usize, usize, u32) {
        let last_bit = self.offset + u64::from(self.bits) - 1;
        let first = self.offset / 8;
        (first as usize, (last_bit / 8 - first) as usize + 1, 7 - (last_bit % 8) as u32)
    }

    fn read(self, value: &[u8]) -> i64 {
        let (first, count, shift) = self.place();
        let bytes = (first..first + count).map(|at| value.get(at).copied().unwrap_or(0));
        let word = bytes.fold(0, |word, byte| word << 8 | u128::from(byte));
        let raw = (word >> shift) as u64 & self.mask();
        if self.signed { self.extended(raw) } else { raw as i64 }
    }

    /// Its bits must lie within the value.
    fn write(self, value: &mut [u8], number: i64) {
        let (first, count, shift) = self.place();
        let bytes = &mut value[first..first + count];
        let word = bytes.iter().fold(0, |word, &byte| word << 8 | u128::from(byte));
        let mask = u128::from(self.mask()) << shift;
        let new = u128::from(number as u64 & self.mask()) << shift;
        let word = (word & !mask | new).to_be_bytes();
        bytes.copy_from_slice(&word[16 - count..]);
    }

    /// The number whose lowest bits these are.
    fn extended(self, raw: u64) -> i64 {
        let unused = 64 - u32::from(self.bits);
        (raw << unused) as i64 >> unused
    }

    /// `number` + `by` as its integer holds it; `None` if it fails.
    fn sum(self, number: i64, by: i64) -> Option<i64> {
        let beyond = if self.signed {
            self.signed_overflow(number, by)
        } else {
            self.unsigned_overflow(number as u64, by)
        };
        let sum = number.wrapping_add(by);
        match (beyond, self.overflow) {
            (None, _) => Some(sum),
            (Some(_), Overflow::Fail) => None,
            (Some(limit), Overflow::Saturate) => Some(limit),
            (Some(_), Overflow::Wrap) if self.signed => Some(self.extended(sum as u64)),
            (Some(_), Overflow::Wrap) => Some((sum as u64 & self.mask()) as i64),
        }
    }

    /// The limit that is exceeded. Differences wrap as in Redis, so that a far too small number can
    /// exceed the upper one.
    fn signed_overflow(self, number: i64, by: i64) -> Option<i64> {
        let max = (self.mask() >> 1) as i64;
        let min = -max - 1;
        let (most, least) = (max.wrapping_sub(number), min.wrapping_sub(number));
        let narrow = self.bits < 64;
        if number > max || (by > most && (narrow || (number >= 0 && by > 0))) {
            Some(max)
        } else if number < min || (by < least && (narrow || (number < 0 && by < 0))) {
            Some(min)
        } else {
            None
        }
    }

    fn unsigned_overflow(self, number: u64, by: i64) -> Option<i64> {
        let max = self.mask();
        let (most, least) = (max.wrapping_sub(number) as i64, number.wrapping_neg() as i64);
        if number > max || (by > 0 && by > most) {
            Some(max as i64)
        } else if by < 0 && by < least {
            Some(0)
        } else {
            None
        }
    }

    /// Does it with a value that has room for it; its answer.
    fn apply(self, value: &mut [u8]) -> Option<i64> {
        let before = self.read(value);
        let (after, answer) = match self.access {
            Access::Get => return Some(before),
            Access::Set => (self.sum(self.operand, 0)?, before),
            Access::Increment => {
                let sum = self.sum(before, self.operand)?;
                (sum, sum)
            }
        };
        self.write(value, after);
        Some(answer)
    }
}

fn decoded(list: &[u8]) -> impl Iterator<Item = Field> {
    list.as_chunks().0.iter().map(Field::decode)
}

/// Bytes that a value has at least after the list's writes; 0 if it writes nothing.
pub(crate) fn written_bytes(list: &[u8]) -> u64 {
    let writes = decoded(list).filter(|field| field.access != Access::Get);
    writes.map(Field::end_bytes).max().unwrap_or(0)
}

/// The integers of a list that writes nothing.
pub(super) fn get(value: &[u8], list: &[u8]) -> Vec<Option<i64>> {
    decoded(list).map(|field| Some(field.read(value))).collect()
}

/// Does all of a list, one after the other; `value` has [`written_bytes`] at least. The answers:
/// `None` where it would overflow and may not.
pub(super) fn update(value: &mut [u8], list: &[u8], answers: &mut Vec<Option<i64>>) {
    answers.clear();
    answers.extend(decoded(list).map(|field| field.apply(value)));
}

#[cfg(test)]
mod tests {
    use super::super::bits;
    use super::*;
    use proptest::prelude::*;

    fn fields() -> impl Strategy<Value = Field> {
        (1..=64u8, any::<bool>(), 0..200u64, any::<i64>()).prop_map(
            |(bits, signed, offset, operand)| Field {
                access: Access::Set,
                overflow: Overflow::Wrap,
                signed,
                bits: if signed { bits } else { bits.min(63) },
                offset,
                operand,
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(field in fields(), kind in 0..9u8) {
            let access = [Access::Get, Access::Set, Access::Increment][usize::from(kind % 3)];
            let overflow = [Overflow::Wrap, Overflow::Saturate, Overflow::Fail];
            let field = Field { access, overflow: overflow[usize::from(kind / 3)], ..field };
            let mut list = Vec::new();
            field.encode(&mut list);
            prop_assert_eq!(decoded(&list).collect::<Vec<_>>(), [field]);
        }

        #[test]
        fn a_stored_integer_is_there_and_no_other_bit_changed(
            field in fields(), value in prop::collection::vec(any::<u8>(), 40)
        ) {
            let mut changed = value.clone();
            prop_assert_eq!(field.apply(&mut changed), Some(field.read(&value)));
            let unused = 64 - u32::from(field.bits);
            let wrapped = (field.operand as u64) << unused;
            let wanted =
                if field.signed { wrapped as i64 >> unused } else { (wrapped >> unused) as i64 };
            prop_assert_eq!(field.read(&changed), wanted);
            let own = field.offset..field.offset + u64::from(field.bits);
            for at in (0..320).filter(|at| !own.contains(at)) {
                prop_assert_eq!(bits::get(&changed, at), bits::get(&value, at));
            }
        }

        /// Beside sums in 128 bits.
        #[test]
        fn a_sum_wraps_saturates_or_fails_at_its_limits(
            field in fields(), before: i64, by in prop_oneof![any::<i64>(), -300..300i64]
        ) {
            let before = if field.signed {
                field.extended(before as u64)
            } else {
                (before as u64 & field.mask()) as i64
            };
            let size = 1i128 << field.bits;
            let (min, max) =
                if field.signed { (-size / 2, size / 2 - 1) } else { (0, size - 1) };
            let exact = i128::from(before) + i128::from(by);
            let with = |overflow| Field { overflow, ..field }.sum(before, by).map(i128::from);
            prop_assert_eq!(with(Overflow::Wrap), Some((exact - min).rem_euclid(size) + min));
            prop_assert_eq!(with(Overflow::Saturate), Some(exact.clamp(min, max)));
            let fails = exact < min || exact > max;
            prop_assert_eq!(with(Overflow::Fail), (!fails).then_some(exact));
        }
    }

    #[test]
    fn bits_beyond_the_end_are_zeros() {
        let field = Field {
            access: Access::Get,
            overflow: Overflow::Wrap,
            signed: false,
            bits: 16,
            offset: 4,
            operand: 0,
        };
        assert_eq!(field.read(&[0xff]), 0xf000);
        assert_eq!(Field { offset: u64::MAX / 16, ..field }.read(&[0xff]), 0);
        assert_eq!(field.end_bytes(), 3);
    }
}
