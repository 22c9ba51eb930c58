//! Inline commands: a line of words, quoted as in redis-cli, for people with telnet.

use super::args::Range;

/// Splits a line into words: their text goes to `text`, where they are goes to `words`. False:
/// quotes don't match.
pub(super) fn split(line: &[u8], text: &mut Vec<u8>, words: &mut Vec<Range>) -> bool {
    let mut rest = line;
    loop {
        while let [space, tail @ ..] = rest
            && is_space(*space)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return true;
        }
        let from = text.len();
        match word(rest, text) {
            Some(tail) => rest = tail,
            None => return false,
        }
        words.push(Range::new(from, text.len()));
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c | 0)
}

/// Takes one word, of plain and quoted stretches; what is left of the line, or `None` if a quote
/// isn't closed.
fn word<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return Some(rest),
            [b'"', tail @ ..] => {
                rest = double_quoted(tail, text)?;
                return ends_word(rest);
            }
            [b'\'', tail @ ..] => {
                rest = single_quoted(tail, text)?;
                return ends_word(rest);
            }
            [byte, ..] if is_space(*byte) => return Some(rest),
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

/// A closing quote has to be followed by a space or nothing.
fn ends_word(rest: &[u8]) -> Option<&[u8]> {
    rest.first().is_none_or(|&byte| is_space(byte)).then_some(rest)
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'"', tail @ ..] => return Some(tail),
            [b'\\', b'x', high, low, tail @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                text.push(hex(*high) << 4 | hex(*low));
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return None,
            [b'\'', tail @ ..] => return Some(tail),
            [b'\\', b'\'', tail @ ..] => {
                text.push(b'\'');
                rest = tail;
            }
            [byte, tail @ ..] => {
                text.push(*byte);
                rest = tail;
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.to_ascii_uppercase().wrapping_sub(b'A').wrapping_add(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Option<Vec<String>> {
        let (mut text, mut words) = (Vec::new(), Vec::new());
        split(line.as_bytes(), &mut text, &mut words).then(|| {
            words
                .iter()
                .map(|range| String::from_utf8_lossy(&text[range.from()..range.to()]).into_owned())
                .collect()
        })
    }

    #[test]
    fn words_and_quotes() {
        assert_eq!(words(" set  a b ").unwrap(), ["set", "a", "b"]);
        assert_eq!(words(r#"set a "b c\x41\n" 'it\'s'"#).unwrap(), ["set", "a", "b cA\n", "it's"]);
        assert_eq!(words(r#"set a """#).unwrap(), ["set", "a", ""]);
        assert_eq!(words(r#"a"b c""#).unwrap(), ["ab c"]);
        assert_eq!(words(r#"set a "b"#), None);
        assert_eq!(words(r#"set "a"b"#), None);
        assert_eq!(words("").unwrap(), Vec::<String>::new());
    }
}
