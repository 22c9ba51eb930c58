//! Numbers as C's printf and strtod have them.

/// A number that `%.17g` prints as an integer.
pub(super) fn integral(number: f64) -> Option<i64> {
    let integer = number as i64;
    let is_integral = integer as f64 == number && integer.unsigned_abs() < 100_000_000_000_000_000;
    let is_minus_zero = integer == 0 && number.is_sign_negative();
    (is_integral && !is_minus_zero).then_some(integer)
}

/// A number as `%.{digits}g` prints it.
pub(super) fn general(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        let text = if number.is_nan() { "nan" } else { "inf" };
        return if number.is_sign_negative() { format!("-{text}") } else { text.into() };
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    without_zeros(&format!("{number:.decimals$}")).into()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// The number that a text begins with, and its length; `None` if it begins with none.
pub(super) fn prefix(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let (number, length) = unsigned(&text[sign..])?;
    Some((if text[0] == b'-' { -number } else { number }, sign + length))
}

fn unsigned(text: &[u8]) -> Option<(f64, usize)> {
    let begins =
        |word: &[u8]| text.len() >= word.len() && text[..word.len()].eq_ignore_ascii_case(word);
    for (word, number) in
        [(&b"infinity"[..], f64::INFINITY), (b"inf", f64::INFINITY), (b"nan", f64::NAN)]
    {
        if begins(word) {
            return Some((number, word.len()));
        }
    }
    if begins(b"0x") {
        let digits = text[2..].iter().take_while(|digit| digit.is_ascii_hexdigit());
        let value = |digit: &u8| f64::from((*digit as char).to_digit(16).unwrap_or(0));
        let count = digits.clone().count();
        let number = digits.fold(0.0, |number, digit| number * 16.0 + value(digit));
        // Without digits it is a 0, and an x that follows.
        return Some(if count == 0 { (0.0, 1) } else { (number, 2 + count) });
    }
    let digits = |from: usize| text[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut end = whole;
    if text.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if end == 0 {
        return None;
    }
    if matches!(text.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(end + 1), Some(b'-' | b'+')));
        let exponent = if end + 1 + sign < text.len() { digits(end + 1 + sign) } else { 0 };
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let number = std::str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    Some((number, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_by_c() {
        for (number, digits, wanted) in [
            (0.0, 17, "0"),
            (0.1, 17, "0.10000000000000001"),
            (0.1, 14, "0.1"),
            (1e20, 14, "1e+20"),
            (123456789.0, 14, "123456789"),
            (1e-5, 14, "1e-05"),
            (1e-4, 14, "0.0001"),
            (-2.5, 14, "-2.5"),
            (99999999999999.9, 14, "1e+14"),
            (f64::INFINITY, 14, "inf"),
            (f64::NEG_INFINITY, 14, "-inf"),
        ] {
            assert_eq!(general(number, digits), wanted, "{number}");
        }
    }

    #[test]
    fn an_integral_number_is_printed_as_an_integer_of_at_most_17_digits() {
        for number in [0.0, 1.0, -1.0, 2f64.powi(53), 99_999_999_999_999_984.0] {
            let integer = integral(number).map(|integer| integer.to_string());
            assert_eq!(integer, Some(general(number, 17)));
        }
        for number in [-0.0, 0.5, 1e17, -1e17, 2f64.powi(63), f64::NAN, f64::INFINITY] {
            assert_eq!(integral(number), None, "{number}");
        }
    }

    #[test]
    fn a_text_begins_with_a_number_or_not() {
        for (text, wanted) in [
            ("12x", Some((12.0, 2))),
            ("-1.5e3,", Some((-1500.0, 6))),
            ("1e", Some((1.0, 1))),
            ("1.", Some((1.0, 2))),
            (".5", Some((0.5, 2))),
            ("0x10", Some((16.0, 4))),
            ("0xg", Some((0.0, 1))),
            ("-inf", Some((f64::NEG_INFINITY, 4))),
            ("-", None),
            (".", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(prefix(text.as_bytes()), wanted, "{text}");
        }
    }
}
