//! Replies as scripts have them, both ways.

use super::number;
use crate::resp::{parse_i64, write};
use mlua::{Table, Value};

/// Tables within tables of a script's reply.
const DEPTH_MAX: usize = 128;

/// The first line of a reply in RESP.
pub(super) struct Line<'a> {
    /// Its first byte: what the reply is.
    pub(super) kind: u8,
    /// What comes behind that.
    pub(super) text: &'a [u8],
}

impl<'a> Line<'a> {
    /// The line at `at`, which is moved behind it. It is empty where there is none.
    pub(super) fn take(reply: &'a [u8], at: &mut usize) -> Line<'a> {
        let rest = reply.get(*at..).unwrap_or_default();
        let end = rest.windows(2).position(|two| two == b"\r\n").unwrap_or(rest.len());
        *at = (*at + end + 2).min(reply.len());
        let kind = rest.first().copied().unwrap_or_default();
        Line { kind, text: rest.get(1..end).unwrap_or_default() }
    }

    /// What it says, if that is a number; else 0.
    pub(super) fn number(&self) -> i64 {
        parse_i64(self.text).unwrap_or(0)
    }

    /// Bytes or elements that follow; `None`: there is no value.
    pub(super) fn length(&self) -> Option<usize> {
        parse_i64(self.text).and_then(|length| usize::try_from(length).ok())
    }
}

/// How a script's value is answered.
pub(super) struct Form {
    /// The client speaks RESP3.
    pub(super) resp3: bool,
    /// The script has said that it does.
    pub(super) script_resp3: bool,
}

impl Form {
    /// Appends what a script returned.
    pub(super) fn write(&self, out: &mut Vec<u8>, value: &Value, depth: usize) {
        match value {
            Value::String(text) => write::bulk(out, &text.as_bytes()),
            Value::Integer(number) => write::integer(out, *number),
            // As x86 converts what is out of range.
            Value::Number(number) if !(-9.3e18..9.2e18).contains(number) => {
                write::integer(out, i64::MIN);
            }
            Value::Number(number) => write::integer(out, *number as i64),
            Value::Boolean(is_true) if self.script_resp3 && self.resp3 => {
                out.extend_from_slice(if *is_true { b"#t\r\n" } else { b"#f\r\n" });
            }
            Value::Boolean(is_true) if self.script_resp3 => {
                write::integer(out, i64::from(*is_true));
            }
            Value::Boolean(true) => write::integer(out, 1),
            Value::Table(_) if depth > DEPTH_MAX => {
                write::error(out, "ERR reached lua stack limit");
            }
            Value::Table(table) => self.write_table(out, table, depth),
            _ => write::null(out, self.resp3),
        }
    }

    fn write_table(&self, out: &mut Vec<u8>, table: &Table, depth: usize) {
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            return write::error(out, &String::from_utf8_lossy(&text.as_bytes()));
        }
        if let Value::String(text) = field("ok") {
            let text = String::from_utf8_lossy(&text.as_bytes()).replace(['\r', '\n'], " ");
            return write::simple(out, &text);
        }
        if let Value::Number(number) = field("double") {
            let text = number::general(number, 17);
            return match self.resp3 {
                true => out.extend_from_slice(format!(",{text}\r\n").as_bytes()),
                false => write::bulk(out, text.as_bytes()),
            };
        }
        if let Value::Table(map) = field("map") {
            write::map(out, count(&map), self.resp3);
            for (key, value) in map.pairs::<Value, Value>().flatten() {
                self.write(out, &key, depth + 1);
                self.write(out, &value, depth + 1);
            }
            return;
        }
        if let Value::Table(set) = field("set") {
            write::set(out, count(&set), self.resp3);
            let pairs = set.pairs::<Value, Value>().flatten();
            pairs.for_each(|(key, _)| self.write(out, &key, depth + 1));
            return;
        }
        // One after the other: mlua has room for some thousand values at a time.
        let at = |place: usize| table.raw_get::<Value>(place).unwrap_or(Value::Nil);
        let length = (1..).take_while(|place| !at(*place).is_nil()).count();
        write::array(out, length);
        (1..=length).for_each(|place| self.write(out, &at(place), depth + 1));
    }
}

/// How many fields a table has.
fn count(table: &Table) -> usize {
    table.pairs::<Value, Value>().flatten().count()
}
