//! Numbers as people read them.

/// `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 key`, `1,234 keys`: of a noun whose plural ends in `s`.
pub fn count(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// `3.4 MiB`, in units of 1,024.
pub fn bytes(number: u64) -> String {
    let mut value = number as f64;
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 || unit == "TiB" {
            return if unit == "B" { format!("{number} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit takes all")
}

/// `120 us`, `4.5 ms`, `3.2 s`, `2 h 5 min`.
pub fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{} h {} min", (s / 3600.0) as u64, (s / 60.0) as u64 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            (grouped(0), grouped(999), grouped(1_234_567)),
            ("0".into(), "999".into(), "1,234,567".into())
        );
        let keys = [0, 1, 1200].map(|number| count(number, "key"));
        assert_eq!(keys, ["0 keys", "1 key", "1,200 keys"]);
        assert_eq!(
            (bytes(10), bytes(1536), bytes(u64::MAX)),
            ("10 B".into(), "1.5 KiB".into(), "16777216.0 TiB".into())
        );
        assert_eq!(
            (seconds(0.00012), seconds(0.25), seconds(7500.0)),
            ("120 us".into(), "250.0 ms".into(), "2 h 5 min".into())
        );
    }
}
