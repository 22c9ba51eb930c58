//! How much Lua does to match a pattern, which nothing interrupts. Its matcher tries one way after
//! the other in which the parts of a pattern can share a text.

use memchr::memchr;

/// Whether `string.find` looks for a text as it is. Lua looks for special bytes up to a zero.
pub(super) fn is_plain(pattern: &[u8]) -> bool {
    let end = memchr(0, pattern).unwrap_or(pattern.len());
    let is_special = |byte: &u8| {
        matches!(byte, b'^' | b'$' | b'*' | b'+' | b'?' | b'.' | b'(' | b'[' | b'%' | b'-')
    };
    !pattern[..end].iter().any(is_special)
}

/// Bytes of the pattern that Lua looks at, at most, while it goes through a text. For each way it
/// looks at each byte of the pattern once, and what repeats at the end, which can't fail, goes
/// through the text once. `gmatch` knows no `^`.
pub(super) fn work(pattern: &[u8], text_bytes: usize, knows_anchor: bool) -> f64 {
    let is_anchored = knows_anchor && pattern.first() == Some(&b'^');
    let mut parts = Parts { shares: u32::from(!is_anchored), optional: 0 };
    parts.count(&pattern[usize::from(is_anchored)..]);
    let bytes = text_bytes as f64;
    let shared = (1..=parts.shares).map(|at| (bytes + f64::from(at)) / f64::from(at));
    let ways = shared.product::<f64>() * f64::from(parts.optional).exp2();
    (pattern.len() + 1) as f64 * (ways + bytes)
}

/// The parts of a pattern that can match in several ways.
struct Parts {
    /// Those that take any number of the text's bytes: what comes before the match, repetitions,
    /// `%b()`, `%1`.
    shares: u32,
    /// Those with a `?`.
    optional: u32,
}

impl Parts {
    /// Counts those of a pattern without its `^`, which is read as Lua's matcher reads it.
    fn count(&mut self, pattern: &[u8]) {
        let mut rest = pattern;
        while let [first, after @ ..] = rest {
            rest = match (first, after) {
                (b'(' | b')', _) => after,
                (b'%', [b'b', after @ ..]) => {
                    self.shares += 1;
                    &after[after.len().min(2)..]
                }
                (b'%', [b'0'..=b'9', after @ ..]) => {
                    self.shares += 1;
                    after
                }
                (b'%', [b'f', after @ ..]) => &after[class_length(after)..],
                _ => self.count_class(&rest[class_length(rest)..]),
            };
        }
    }

    /// Counts a class by what follows it; what is left then.
    fn count_class<'a>(&mut self, after: &'a [u8]) -> &'a [u8] {
        let is_end = |rest: &[u8]| rest.iter().all(|byte| b"()".contains(byte));
        match after {
            [b'*' | b'+' | b'-', rest @ ..] => {
                self.shares += u32::from(!is_end(rest));
                rest
            }
            [b'?', rest @ ..] => {
                self.optional += u32::from(!is_end(rest));
                rest
            }
            rest => rest,
        }
    }
}

/// The length of the class that a pattern begins with: a byte, one after `%`, or a set.
fn class_length(pattern: &[u8]) -> usize {
    let length = match pattern {
        [b'%', ..] => 2,
        [b'[', ..] => {
            // The first byte of a set is no end of it.
            let mut at = if pattern.get(1) == Some(&b'^') { 2 } else { 1 };
            loop {
                at += if pattern.get(at) == Some(&b'%') { 2 } else { 1 };
                if pattern.get(at).is_none_or(|byte| *byte == b']') {
                    break at + 1;
                }
            }
        }
        _ => 1,
    };
    length.min(pattern.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(pattern: &str) -> (u32, u32) {
        let mut parts = Parts { shares: 0, optional: 0 };
        parts.count(pattern.as_bytes());
        (parts.shares, parts.optional)
    }

    #[test]
    fn what_can_match_in_several_ways_is_counted() {
        for (pattern, shares, optional) in [
            ("", 0, 0),
            ("hello", 0, 0),
            ("a*", 0, 0),
            ("(a*)", 0, 0),
            ("(a?)", 0, 0),
            ("a*$", 1, 0),
            ("a*b+c-d?e", 3, 1),
            ("(%w+)=(%w+)", 1, 0),
            ("%*%+%-%?", 0, 0),
            ("%%*a", 1, 0),
            ("*", 0, 0),
            ("**a", 1, 0),
            ("(*a", 0, 0),
            ("[a-z*+-?]", 0, 0),
            ("[]a*b*]x", 0, 0),
            ("[^]a*b*]x", 0, 0),
            ("[%]a*b*]x", 0, 0),
            ("%[a*b*]x", 2, 0),
            ("[a*b", 0, 0),
            ("[", 0, 0),
            ("[^", 0, 0),
            ("[%", 0, 0),
            ("%", 0, 0),
            ("%b", 1, 0),
            ("%b()*", 1, 0),
            ("%b**a", 1, 0),
            ("(a)%1", 1, 0),
            ("(a)%1*a*b", 2, 0),
            ("%f[a*]b*c", 1, 0),
            ("%f", 0, 0),
            ("$*a", 1, 0),
        ] {
            assert_eq!(parts(pattern), (shares, optional), "{pattern}");
        }
    }

    #[test]
    fn work_grows_with_the_ways_to_share_a_text() {
        assert_eq!(work(b"^ab", 10, true), 4.0 * (1.0 + 10.0));
        assert_eq!(work(b"^ab", 10, false), 4.0 * (11.0 + 10.0));
        assert_eq!(work(b"ab", 10, true), 3.0 * (11.0 + 10.0));
        assert_eq!(work(b"a*b", 10, true), 4.0 * (66.0 + 10.0));
        assert_eq!(work(b"^a?a?b", 10, true), 7.0 * (4.0 + 10.0));
        assert!(work(&b"a?".repeat(500), 1, true) > 1e100);
    }

    #[test]
    fn a_text_without_special_bytes_is_looked_for_as_it_is() {
        assert!(is_plain(b"") && is_plain(b"a]b") && is_plain(b"a\0.*"));
        assert!(b"^$*+?.([%-".iter().all(|byte| !is_plain(&[b'a', *byte])));
    }
}
