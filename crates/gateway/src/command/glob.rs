//! Redis' glob patterns, for MATCH and CONFIG GET. Backtracks to the last star only, so no pattern
//! takes exponential time.

/// Whether `text` matches `pattern`: `*`, `?`, `[a-z]`, `[^a]`, `\` to quote.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        if t == text.len() && p == pattern.len() {
            return true;
        }
        if t < text.len()
            && let Some(next) = one(pattern, p, text[t])
        {
            p = next;
            t += 1;
            continue;
        }
        // The last star takes one more byte.
        match star {
            Some((after, from)) if from < text.len() => {
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the pattern's element at `p`; where the next element is.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match *pattern.get(p)? {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        plain => (plain == byte).then_some(p + 1),
    }
}

fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(p) == Some(&b'^');
    if negated {
        p += 1;
    }
    let mut found = false;
    loop {
        match *pattern.get(p..)? {
            // Not closed: it ends with the pattern, as in Redis.
            [] => break,
            [b']', ..] => {
                p += 1;
                break;
            }
            [b'\\', quoted, ..] => {
                found |= quoted == byte;
                p += 2;
            }
            [from, b'-', to, ..] => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                p += 3;
            }
            [plain, ..] => {
                found |= plain == byte;
                p += 1;
            }
        }
    }
    (found != negated).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, wanted) in [
            ("*", "", true),
            ("*", "abc", true),
            ("a*c", "abbc", true),
            ("a*c", "abb", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[^a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("user:*:name", "user:7:name", true),
            ("*a*b*c", "xaybzc", true),
            ("", "", true),
            ("", "a", false),
            ("[abc", "c", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_ends() {
        let pattern = b"a*".repeat(500);
        assert!(!matches(&[&pattern[..], b"b"].concat(), &b"a".repeat(5000)));
    }
}
