//! The library `cjson`.

use super::host::{Checked, Meter, STRING_BYTES_MAX, bad_argument, bytes};
use super::number;
use mlua::{Lua, MultiValue, Table, Value};

/// Tables within tables.
const DEPTH_MAX: usize = 1000;
/// An array with a number beyond this is an error if it has holes, more than this for an element.
const SPARSE_SAFE: f64 = 10.0;
const SPARSE_RATIO: f64 = 2.0;
const DIGITS: usize = 14;
/// About how long a value takes beside its bytes, in nanoseconds.
const VALUE_WORK: usize = 60;

pub(super) fn encode(values: &MultiValue, meter: &Meter<'_>) -> Checked<Vec<u8>> {
    if values.len() != 1 {
        return Err(bad_argument(1, "encode", "expected 1 argument"));
    }
    let mut writer = Writer { out: Vec::new(), meter };
    writer.append(&values[0], 0)?;
    Ok(writer.out)
}

struct Writer<'a> {
    out: Vec<u8>,
    meter: &'a Meter<'a>,
}

impl Writer<'_> {
    fn append(&mut self, value: &Value, depth: usize) -> Checked<()> {
        self.meter.spend(VALUE_WORK)?;
        match value {
            Value::Nil => self.out.extend_from_slice(b"null"),
            Value::LightUserData(pointer) if pointer.0.is_null() => {
                self.out.extend_from_slice(b"null")
            }
            Value::Boolean(is_true) => {
                self.out.extend_from_slice(if *is_true { &b"true"[..] } else { b"false" });
            }
            Value::Integer(number) => self.append_number(*number as f64)?,
            Value::Number(number) => self.append_number(*number)?,
            Value::String(text) => self.append_string(&text.as_bytes())?,
            Value::Table(table) => {
                let depth = depth + 1;
                if depth > DEPTH_MAX {
                    return Err(format!("Cannot serialise, excessive nesting ({depth})"));
                }
                match array_length(table, self.meter)? {
                    Some(length) => self.append_array(table, length, depth)?,
                    None => self.append_object(table, depth)?,
                }
            }
            other => {
                return Err(format!("Cannot serialise {}: type not supported", other.type_name()));
            }
        }
        self.check_length()
    }

    fn append_number(&mut self, number: f64) -> Checked<()> {
        if !number.is_finite() {
            return Err("Cannot serialise number: must not be NaN or Inf".into());
        }
        self.out.extend_from_slice(number::general(number, DIGITS).as_bytes());
        Ok(())
    }

    fn append_string(&mut self, text: &[u8]) -> Checked<()> {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        self.meter.spend(2 * text.len())?;
        self.out.push(b'"');
        for &byte in text {
            let short = match byte {
                b'"' | b'\\' | b'/' => byte,
                b'\x08' => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                b'\x0c' => b'f',
                b'\r' => b'r',
                0..=0x1f | 0x7f => {
                    let digits = [HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 0xf)]];
                    self.out.extend_from_slice(b"\\u00");
                    self.out.extend_from_slice(&digits);
                    continue;
                }
                _ => {
                    self.out.push(byte);
                    continue;
                }
            };
            self.out.extend_from_slice(&[b'\\', short]);
        }
        self.out.push(b'"');
        self.check_length()
    }

    fn check_length(&self) -> Checked<()> {
        match self.out.len() > STRING_BYTES_MAX {
            true => Err("resulting string too large".into()),
            false => Ok(()),
        }
    }

    fn append_array(&mut self, table: &Table, length: usize, depth: usize) -> Checked<()> {
        self.out.push(b'[');
        for at in 1..=length {
            if at > 1 {
                self.out.push(b',');
            }
            let value: Value = table.raw_get(at).map_err(|error| error.to_string())?;
            self.append(&value, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn append_object(&mut self, table: &Table, depth: usize) -> Checked<()> {
        self.out.push(b'{');
        let begin = self.out.len();
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair.map_err(|error| error.to_string())?;
            if self.out.len() > begin {
                self.out.push(b',');
            }
            match &key {
                Value::Integer(_) | Value::Number(_) => {
                    self.out.push(b'"');
                    self.append(&key, depth)?;
                    self.out.push(b'"');
                }
                Value::String(text) => self.append_string(&text.as_bytes())?,
                other => {
                    let kind = other.type_name();
                    return Err(format!(
                        "Cannot serialise {kind}: table key must be a number or string"
                    ));
                }
            }
            self.out.push(b':');
            self.append(&value, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}

/// The largest number among the keys, if all are positive integers and there are some.
fn array_length(table: &Table, meter: &Meter<'_>) -> Checked<Option<usize>> {
    let (mut largest, mut count) = (0f64, 0f64);
    for pair in table.pairs::<Value, Value>() {
        meter.spend(VALUE_WORK)?;
        let (key, _) = pair.map_err(|error| error.to_string())?;
        let number = match key {
            Value::Integer(number) => number as f64,
            Value::Number(number) => number,
            _ => return Ok(None),
        };
        if number < 1.0 || number.floor() != number || number > f64::from(i32::MAX) {
            return Ok(None);
        }
        largest = largest.max(number);
        count += 1.0;
    }
    if largest > count * SPARSE_RATIO && largest > SPARSE_SAFE {
        return Err("Cannot serialise table: excessively sparse array".into());
    }
    Ok((count > 0.0).then_some(largest as usize))
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    String(Vec<u8>),
    Number(f64),
    Boolean(bool),
    Null,
    End,
    Wrong(&'static str),
}

impl Token {
    fn name(&self) -> &'static str {
        match self {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::String(_) => "T_STRING",
            Token::Number(_) => "T_NUMBER",
            Token::Boolean(_) => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::End => "T_END",
            Token::Wrong(what) => what,
        }
    }
}

struct Reader<'a> {
    lua: &'a Lua,
    meter: &'a Meter<'a>,
    text: &'a [u8],
    at: usize,
    /// Where the last token is.
    token_at: usize,
}

pub(super) fn decode(lua: &Lua, values: &MultiValue, meter: &Meter<'_>) -> Checked<Value> {
    if values.len() != 1 {
        return Err(bad_argument(1, "decode", "expected 1 argument"));
    }
    let text = bytes(values, 1, "decode")?;
    // UTF-16 and UTF-32 have a zero among the first two bytes.
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err("JSON parser does not support UTF-16 or UTF-32".into());
    }
    let mut reader = Reader { lua, meter, text: &text, at: 0, token_at: 0 };
    let token = reader.token();
    let value = reader.value(token, 0)?;
    match reader.token() {
        Token::End => Ok(value),
        token => Err(reader.expected("the end", &token)),
    }
}

impl Reader<'_> {
    fn expected(&self, what: &str, found: &Token) -> String {
        format!("Expected {what} but found {} at character {}", found.name(), self.token_at + 1)
    }

    fn token(&mut self) -> Token {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.token_at = self.at;
        let rest = &self.text[self.at..];
        let Some(&first) = rest.first() else { return Token::End };
        let punctuation = match first {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b':' => Token::Colon,
            b',' => Token::Comma,
            b'"' => return self.string(),
            b'-' | b'0'..=b'9' => return self.number(),
            _ => {
                for (word, token) in [
                    (&b"true"[..], Token::Boolean(true)),
                    (b"false", Token::Boolean(false)),
                    (b"null", Token::Null),
                ] {
                    if rest.starts_with(word) {
                        self.at += word.len();
                        return token;
                    }
                }
                let may_be = |word: &[u8]| {
                    rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word)
                };
                return match first == b'+' || may_be(b"inf") || may_be(b"nan") {
                    true => self.number(),
                    false => Token::Wrong("invalid token"),
                };
            }
        };
        self.at += 1;
        punctuation
    }

    fn number(&mut self) -> Token {
        match number::prefix(&self.text[self.at..]) {
            Some((number, length)) => {
                self.at += length;
                Token::Number(number)
            }
            None => Token::Wrong("invalid number"),
        }
    }

    fn string(&mut self) -> Token {
        let mut string = Vec::new();
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let Some(&byte) = rest.first() else {
                self.token_at = self.at;
                return Token::Wrong("unexpected end of string");
            };
            match byte {
                b'"' => {
                    self.at += 1;
                    return Token::String(string);
                }
                b'\\' => {
                    let plain = match rest.get(1) {
                        Some(&byte @ (b'"' | b'\\' | b'/')) => byte,
                        Some(b'b') => b'\x08',
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(b'f') => b'\x0c',
                        Some(b'r') => b'\r',
                        Some(b'u') => {
                            let Some((character, length)) = unicode(rest) else {
                                self.token_at = self.at;
                                return Token::Wrong("invalid unicode escape code");
                            };
                            string.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                            self.at += length;
                            continue;
                        }
                        _ => {
                            self.token_at = self.at;
                            return Token::Wrong("invalid escape code");
                        }
                    };
                    string.push(plain);
                    self.at += 2;
                }
                other => {
                    string.push(other);
                    self.at += 1;
                }
            }
        }
    }

    fn value(&mut self, token: Token, depth: usize) -> Checked<Value> {
        self.meter.spend(VALUE_WORK)?;
        let made = |result: mlua::Result<Value>| result.map_err(|error| error.to_string());
        match token {
            Token::String(text) => made(self.lua.create_string(text).map(Value::String)),
            Token::Number(number) => Ok(Value::Number(number)),
            Token::Boolean(is_true) => Ok(Value::Boolean(is_true)),
            Token::Null => Ok(Value::NULL),
            Token::ObjectBegin => self.object(self.deeper(depth)?),
            Token::ArrayBegin => self.array(self.deeper(depth)?),
            other => Err(self.expected("value", &other)),
        }
    }

    fn deeper(&self, depth: usize) -> Checked<usize> {
        let depth = depth + 1;
        if depth > DEPTH_MAX {
            let at = self.token_at + 1;
            return Err(format!(
                "Found too many nested data structures ({depth}) at character {at}"
            ));
        }
        Ok(depth)
    }

    fn object(&mut self, depth: usize) -> Checked<Value> {
        let table = self.lua.create_table().map_err(|error| error.to_string())?;
        let mut token = self.token();
        if token == Token::ObjectEnd {
            return Ok(Value::Table(table));
        }
        loop {
            let Token::String(key) = token else {
                return Err(self.expected("object key string", &token));
            };
            match self.token() {
                Token::Colon => {}
                other => return Err(self.expected("colon", &other)),
            }
            token = self.token();
            let value = self.value(token, depth)?;
            let key = self.lua.create_string(key).map_err(|error| error.to_string())?;
            table.raw_set(key, value).map_err(|error| error.to_string())?;
            match self.token() {
                Token::ObjectEnd => return Ok(Value::Table(table)),
                Token::Comma => token = self.token(),
                other => return Err(self.expected("comma or object end", &other)),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Checked<Value> {
        let table = self.lua.create_table().map_err(|error| error.to_string())?;
        let mut token = self.token();
        if token == Token::ArrayEnd {
            return Ok(Value::Table(table));
        }
        for at in 1usize.. {
            let value = self.value(token, depth)?;
            table.raw_set(at, value).map_err(|error| error.to_string())?;
            match self.token() {
                Token::ArrayEnd => break,
                Token::Comma => token = self.token(),
                other => return Err(self.expected("comma or array end", &other)),
            }
        }
        Ok(Value::Table(table))
    }
}

/// The character of an escape, `\u` and four digits or two such, and its length.
fn unicode(text: &[u8]) -> Option<(char, usize)> {
    let unit = |text: &[u8]| {
        let digits = text.strip_prefix(b"\\u")?.get(..4)?;
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        is_hex.then(|| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())?
    };
    let first = unit(text)?;
    if !(0xd800..0xe000).contains(&first) {
        return char::from_u32(first).map(|character| (character, 6));
    }
    let second = unit(text.get(6..)?).filter(|second| (0xdc00..0xe000).contains(second))?;
    let code = 0x10000
        + ((first.checked_sub(0xd800).filter(|high| *high < 0x400)?) << 10)
        + (second - 0xdc00);
    char::from_u32(code).map(|character| (character, 12))
}
