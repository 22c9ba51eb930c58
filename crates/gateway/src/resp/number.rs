//! Integers as Redis takes them.

/// Parses a decimal integer the way Redis' `string2ll` does: no sign but `-`, no spaces, no leading
/// zeros, no overflow.
#[inline]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'0'] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    // 19 digits hold every i64; a leading zero is refused, "-0" with it.
    if digits.is_empty() || digits.len() > 19 || digits[0] == b'0' {
        return None;
    }
    let mut number: u64 = 0;
    for &digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(digit - b'0');
    }
    match negative {
        true if number <= 1 << 63 => Some((number as i64).wrapping_neg()),
        false => i64::try_from(number).ok(),
        true => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_integer_survives(number in any::<i64>()) {
            prop_assert_eq!(parse_i64(number.to_string().as_bytes()), Some(number));
        }

        #[test]
        fn only_the_canonical_form_is_taken(text in "[-+ 0-9a]{0,22}") {
            let canonical = text.parse::<i64>().ok().filter(|number| number.to_string() == text);
            prop_assert_eq!(parse_i64(text.as_bytes()), canonical);
        }
    }

    #[test]
    fn the_edges() {
        assert_eq!(parse_i64(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_i64(b"9223372036854775808"), None);
        assert_eq!(parse_i64(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_i64(b"-9223372036854775809"), None);
        assert_eq!(parse_i64(b"-0"), None);
        assert_eq!(parse_i64(b"01"), None);
        assert_eq!(parse_i64(b""), None);
    }
}
