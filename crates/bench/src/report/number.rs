//! Numbers for people to read.

/// A whole number with commas between groups of three digits.
pub fn grouped(number: f64) -> String {
    if !number.is_finite() {
        return "-".to_owned();
    }
    let digits = format!("{:.0}", number.abs());
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let grouped: Vec<_> =
            [0.0, 999.4, 1000.0, -12_345.0, 1e9, f64::INFINITY].map(grouped).into();
        assert_eq!(grouped, ["0", "999", "1,000", "-12,345", "1,000,000,000", "-"]);
        assert_eq!(percent(0.9312), "93.1 %");
    }
}
