//! INCRBYFLOAT: sums in the 80-bit floating point of x86, which is C's `long double` there: the
//! digits are those of Redis on such a machine. (Elsewhere Redis computes with other widths.)

use std::cmp::Ordering;

/// Text of this length or more is no number, as in Redis.
const TEXT_BYTES_MAX: usize = 5120;
/// The highest bit of the largest number, and the lowest of the smallest: powers of 2.
const HIGHEST_BIT: i64 = 16383;
const LOWEST_BIT: i64 = -16445;
/// Powers of 10, and of 2, that no number reaches in either direction.
const DECIMAL_BOUND: i64 = 5000;
const BINARY_BOUND: i64 = 17000;
/// Digits after the point that are shown.
const DECIMALS: u32 = 17;

/// A number, by [`Extended::parse`] or as a sum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Extended {
    /// `significand` * 2^`exponent`.
    Finite {
        negative: bool,
        significand: u64,
        exponent: i64,
    },
    Infinite,
}

impl Extended {
    /// The nearest number to a text that C's `strtold` takes as a whole, but for what is not a
    /// number, too large, or rounded to nothing: `None`.
    pub(super) fn parse(text: &[u8]) -> Option<Extended> {
        if text.len() >= TEXT_BYTES_MAX {
            return None;
        }
        let (negative, text) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        if text.eq_ignore_ascii_case(b"inf") || text.eq_ignore_ascii_case(b"infinity") {
            return Some(Extended::Infinite);
        }
        let numeral = match text {
            [b'0', b'x' | b'X', rest @ ..] => Numeral::parse(rest, 16, b'p')?,
            rest => Numeral::parse(rest, 10, b'e')?,
        };
        let parsed = numeral.nearest(negative)?;
        let vanished = matches!(parsed, Extended::Finite { significand: 0, .. });
        (!vanished || numeral.digits.is_zero()).then_some(parsed)
    }

    /// The nearest number to `magnitude` * 2^`exponent` and, if `more`, something less than 1 *
    /// 2^`exponent`; `None` if it is too large.
    fn rounded(negative: bool, magnitude: u128, more: bool, exponent: i64) -> Option<Extended> {
        let bits = 128 - i64::from(magnitude.leading_zeros());
        let drop = (bits - 64).max(LOWEST_BIT - exponent).max(0);
        let (significand, exponent) = (halved(magnitude, more, drop as u64), exponent + drop);
        let finite = |significand, exponent| Extended::Finite { negative, significand, exponent };
        let number = match u64::try_from(significand) {
            Ok(significand) => finite(significand, exponent),
            // It was rounded up to 2^64.
            Err(_) => finite(1 << 63, exponent + 1),
        };
        let Extended::Finite { significand, exponent, .. } = number else { return Some(number) };
        let highest = exponent + 63 - i64::from(significand.leading_zeros());
        (significand == 0 || highest <= HIGHEST_BIT).then_some(number)
    }

    /// The nearest number to the sum.
    pub(super) fn plus(self, other: Extended) -> Extended {
        let (
            Extended::Finite { negative, significand, exponent },
            Extended::Finite { negative: other_negative, significand: least, exponent: low },
        ) = (self, other)
        else {
            return Extended::Infinite;
        };
        if exponent < low {
            return other.plus(self);
        }
        if significand == 0 {
            return other;
        }
        // 63 bits more than the larger one has, which is all that rounding can depend on; of what
        // is lower it only matters whether there is something.
        let distance = (exponent - low) as u64;
        let shift = distance.min(63);
        let large = u128::from(significand) << shift;
        let (small, more) = cut(u128::from(least), distance - shift);
        let exponent = exponent - shift as i64;
        let sum = if negative == other_negative {
            Extended::rounded(negative, large + small, more, exponent)
        } else if large >= small {
            Extended::rounded(negative, large - small - u128::from(more), more, exponent)
        } else {
            Extended::rounded(other_negative, small - large, more, exponent)
        };
        sum.unwrap_or(Extended::Infinite)
    }

    /// As Redis shows it: 17 digits after the point, but for zeros at the end. `None` if it is
    /// infinite.
    pub(super) fn text(self) -> Option<Vec<u8>> {
        let Extended::Finite { negative, significand, exponent } = self else { return None };
        let mut text = match u64::try_from(exponent) {
            Ok(exponent) => Natural::from(significand).shifted(exponent).text(),
            Err(_) => {
                let scaled = u128::from(significand) * 10u128.pow(DECIMALS);
                let digits = halved(scaled, false, exponent.unsigned_abs());
                let (whole, rest) = (digits / 10u128.pow(DECIMALS), digits % 10u128.pow(DECIMALS));
                let text = format!("{whole}.{rest:0width$}", width = DECIMALS as usize);
                text.trim_end_matches('0').trim_end_matches('.').to_string()
            }
        };
        if negative && text != "0" {
            text.insert(0, '-');
        }
        Some(text.into_bytes())
    }
}

/// A number without its lowest bits, and whether one of them was 1.
fn cut(number: u128, bits: u64) -> (u128, bool) {
    match bits {
        0 => (number, false),
        1..128 => (number >> bits, number << (128 - bits) != 0),
        _ => (0, number != 0),
    }
}

/// `number`, and something less than 1 if `more`, over 2^`times`: the nearest integer, of two the
/// even one.
fn halved(number: u128, more: bool, times: u64) -> u128 {
    if times == 0 {
        return number;
    }
    let (twice, below) = cut(number, times - 1);
    let rest = below || more;
    let (quotient, half) = (twice >> 1, twice & 1 == 1);
    quotient + u128::from(half && (rest || quotient & 1 == 1))
}

/// A number as text has it: `digits` * `base`^`power`, where `base` is 10 or 2.
struct Numeral {
    digits: Natural,
    /// Of the value, at most: as many digits, or bits, before the point.
    length: i64,
    decimal: bool,
    power: i64,
}

impl Numeral {
    /// Digits, with a point among them or without, and an exponent or none.
    fn parse(text: &[u8], radix: u32, exponent_mark: u8) -> Option<Numeral> {
        let mark = text.iter().position(|byte| byte.to_ascii_lowercase() == exponent_mark);
        let (digits, exponent) = match mark {
            Some(at) => (&text[..at], exponent(&text[at + 1..])?),
            None => (text, 0),
        };
        let bits = if radix == 16 { 4 } else { 1 };
        let (mut number, mut length, mut fraction) = (Natural::default(), 0, None);
        let mut any = false;
        for &byte in digits {
            if byte == b'.' && fraction.is_none() {
                fraction = Some(0);
                continue;
            }
            let digit = char::from(byte).to_digit(radix)?;
            any = true;
            number.multiply_add(u64::from(radix), u64::from(digit));
            length += i64::from(!number.is_zero());
            fraction = fraction.map(|digits| digits + 1);
        }
        let power = exponent - bits * fraction.unwrap_or(0);
        let length = bits * length + power;
        any.then_some(Numeral { digits: number, length, decimal: radix == 10, power })
    }

    /// The nearest number, 0 if it is too small; `None` if it is too large.
    fn nearest(&self, negative: bool) -> Option<Extended> {
        let zero = Extended::Finite { negative, significand: 0, exponent: 0 };
        let bound = if self.decimal { DECIMAL_BOUND } else { BINARY_BOUND };
        if self.digits.is_zero() || self.length < -bound {
            return Some(zero);
        }
        if self.length > bound {
            return None;
        }
        let (mut over, mut under) = (self.digits.clone(), Natural::from(1));
        let mut exponent = 0;
        if self.decimal {
            let scaled = if self.power >= 0 { &mut over } else { &mut under };
            let power = self.power.unsigned_abs();
            for _ in 0..power / CHUNK_DIGITS {
                scaled.multiply_add(CHUNK, 0);
            }
            scaled.multiply_add(10u64.pow((power % CHUNK_DIGITS) as u32), 0);
        } else {
            exponent = self.power;
        }
        // A quotient of 65 or 66 bits: one more than is kept, at least.
        let shift = 65 + under.bits() as i64 - over.bits() as i64;
        let scaled = if shift >= 0 { &mut over } else { &mut under };
        *scaled = scaled.shifted(shift.unsigned_abs());
        let (quotient, rest) = over.divided(&under);
        Extended::rounded(negative, quotient, !rest.is_zero(), exponent - shift)
    }
}

/// A signed decimal; beyond what matters, only its sign counts.
fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let bound = 1_000_000;
    let number = digits
        .iter()
        .fold(0, |number: i64, digit| (number * 10 + i64::from(digit - b'0')).min(bound));
    Some(if negative { -number } else { number })
}

/// Decimal digits that fit a word, and the power of 10 that has one more.
const CHUNK_DIGITS: u64 = 19;
const CHUNK: u64 = 10u64.pow(CHUNK_DIGITS as u32);

/// A natural number of any size: words of 64 bits, the lowest first, the highest not 0.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Natural(Vec<u64>);

impl From<u64> for Natural {
    fn from(number: u64) -> Natural {
        Natural(vec![number]).trimmed()
    }
}

impl Natural {
    fn trimmed(mut self) -> Natural {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u64 {
        self.0.last().map_or(0, |high| self.0.len() as u64 * 64 - u64::from(high.leading_zeros()))
    }

    fn multiply_add(&mut self, by: u64, more: u64) {
        let mut carry = u128::from(more);
        for word in &mut self.0 {
            carry += u128::from(*word) * u128::from(by);
            *word = carry as u64;
            carry >>= 64;
        }
        if carry > 0 {
            self.0.push(carry as u64);
        }
    }

    /// Times 2^`bits`.
    fn shifted(&self, bits: u64) -> Natural {
        let mut words = vec![0; (bits / 64) as usize];
        words.extend(&self.0);
        let mut number = Natural(words).trimmed();
        number.multiply_add(1 << (bits % 64), 0);
        number
    }

    fn halve(&mut self) {
        let mut high = 0;
        for word in self.0.iter_mut().rev() {
            (*word, high) = (*word >> 1 | high << 63, *word & 1);
        }
        if self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_less(&self, other: &Natural) -> bool {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev())) == Ordering::Less
    }

    /// Subtracts what isn't larger.
    fn subtract(&mut self, other: &Natural) {
        let mut borrow = false;
        for (at, word) in self.0.iter_mut().enumerate() {
            let by = other.0.get(at).copied().unwrap_or(0);
            let (difference, below) = word.overflowing_sub(by);
            let further;
            (*word, further) = difference.overflowing_sub(u64::from(borrow));
            borrow = below || further;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// The quotient, which must have 66 bits at most, and the rest.
    fn divided(self, by: &Natural) -> (u128, Natural) {
        let (mut rest, mut divisor) = (self, by.shifted(66));
        let mut quotient = 0;
        for _ in 0..66 {
            divisor.halve();
            quotient <<= 1;
            if !rest.is_less(&divisor) {
                rest.subtract(&divisor);
                quotient |= 1;
            }
        }
        (quotient, rest)
    }

    /// Decimal.
    fn text(mut self) -> String {
        let mut chunks = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for word in self.0.iter_mut().rev() {
                let number = u128::from(rest) << 64 | u128::from(*word);
                *word = (number / u128::from(CHUNK)) as u64;
                rest = (number % u128::from(CHUNK)) as u64;
            }
            chunks.push(rest);
            self = self.trimmed();
        }
        let mut text = chunks.pop().unwrap_or(0).to_string();
        for chunk in chunks.iter().rev() {
            text += &format!("{chunk:019}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str) -> Option<String> {
        let text = Extended::parse(text.as_bytes())?.text()?;
        Some(String::from_utf8(text).unwrap())
    }

    fn sum(a: &str, b: &str) -> Option<String> {
        let sum = Extended::parse(a.as_bytes())?.plus(Extended::parse(b.as_bytes())?);
        Some(String::from_utf8(sum.text()?).unwrap())
    }

    proptest! {
        /// Up to 127 all of the 17 digits are exact.
        #[test]
        fn short_decimals_are_shown_as_they_are(whole in 0..128i64, digits in "[0-9]{0,15}[1-9]") {
            for sign in ["", "-"] {
                let text = format!("{sign}{whole}.{digits}");
                prop_assert_eq!(shown(&text), Some(text));
            }
        }

        /// Integers of 64 bits are exact, and so are their sums unless they need more.
        #[test]
        fn integers_are_exact(a: i64, b: i64) {
            let exact = i128::from(a) + i128::from(b);
            prop_assert_eq!(sum(&a.to_string(), &b.to_string()), Some(exact.to_string()));
        }

        /// All 64 bits count, whatever the exponent: what has a common factor is summed as without.
        #[test]
        fn a_power_of_two_changes_nothing(a: u64, b: i64, power in 64..16000i64) {
            let number = |n: i128, power| {
                let sign = if n < 0 { "-" } else { "" };
                let text = format!("{sign}0x{:x}p{power}", n.unsigned_abs());
                Extended::parse(text.as_bytes()).unwrap()
            };
            let exact = i128::from(a) + i128::from(b);
            prop_assume!(exact.unsigned_abs() < 1 << 64);
            let scaled = number(a.into(), power).plus(number(b.into(), power));
            prop_assert_eq!(scaled.text(), number(exact, power).text());
            let small = number(a.into(), -power).plus(number(b.into(), -power));
            prop_assert_eq!(small.text(), number(exact, -power).text());
        }

        #[test]
        fn no_text_is_too_much(text in "[-+]?(0x)?[0-9a-fpeE.+-]{0,30}") {
            let _ = shown(&text);
        }
    }

    #[test]
    fn rounds_to_the_nearest_and_of_two_to_the_even() {
        for (text, wanted) in [
            ("18446744073709551615", "18446744073709551615"),
            ("18446744073709551617", "18446744073709551616"),
            ("18446744073709551619", "18446744073709551620"),
            ("18446744073709551617.0000000000000001", "18446744073709551618"),
            ("0x1p-18", "0.00000381469726562"),
            ("0x3p-18", "0.00001144409179688"),
            ("0.1", "0.1"),
            ("1e-17", "0.00000000000000001"),
            ("4e-18", "0"),
            ("-4e-18", "0"),
            ("3e3", "3000"),
            ("0x1.8p1", "3"),
            ("+.5", "0.5"),
            ("5.", "5"),
            ("-0", "0"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(wanted), "{text}");
        }
        for (a, b, wanted) in [
            ("3.0e3", "200", "3200"),
            ("10.5", "0.1", "10.6"),
            ("18446744073709551615", "0.5", "18446744073709551616"),
            ("18446744073709551614", "0.5", "18446744073709551614"),
            ("18446744073709551614", "0x1.000000000000001p-1", "18446744073709551615"),
            ("0x1p64", "-0x1.000000000000001p-1", "18446744073709551615"),
            ("0x1p64", "-0x1p-1", "18446744073709551616"),
            ("1e4000", "-1e4000", "0"),
        ] {
            assert_eq!(sum(a, b).as_deref(), Some(wanted), "{a} {b}");
            assert_eq!(sum(b, a).as_deref(), Some(wanted), "{b} {a}");
        }
    }

    #[test]
    fn only_numbers_within_its_range_are_taken() {
        for text in
            ["", " 1", "1 ", "1e", "1e+", "x", "nan", "--1", ".", "0x", "0xg", "0x1p", "1.2.3"]
        {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text:?}");
        }
        let long = "1".repeat(TEXT_BYTES_MAX);
        assert_eq!(Extended::parse(long.as_bytes()), None);
        for text in ["1e4933", "1.2e4932", "0x1p16384", "1e999999999999", "1e-4960", "0x1p-16446"] {
            assert_eq!(Extended::parse(text.as_bytes()), None, "{text}");
        }
        for text in ["1.1e4932", "0x1.fffffffffffffffep16383", "1e-4940", "0x1p-16445", "0e-99999"]
        {
            assert!(
                matches!(Extended::parse(text.as_bytes()), Some(Extended::Finite { .. })),
                "{text}"
            );
        }
        assert_eq!(sum("1.1e4932", "1.1e4932"), None);
        assert_eq!(sum("inf", "-1"), None);
        assert_eq!(Extended::parse(b"-Infinity"), Some(Extended::Infinite));
    }
}
