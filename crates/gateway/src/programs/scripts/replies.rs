//! Replies as scripts have them, both ways.

use super::host::{Host, METERED, lock};
use super::number;
use crate::failure::Failure;
use crate::resp::{parse_i64, write};
use mlua::{Table, Value};
use std::cell::Cell;
use std::sync::Mutex;

/// Tables within tables of a script's reply.
const DEPTH_MAX: usize = 128;
/// About the nanoseconds that it takes to look at a value, and at the fields of a table.
const VALUE_WORK: usize = 100;
const TABLE_WORK: usize = 1000;

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
pub(super) struct Form<'a> {
    /// The client speaks RESP3.
    pub(super) resp3: bool,
    /// The script has said that it does.
    pub(super) script_resp3: bool,
    /// The longest reply.
    bytes_max: usize,
    host: &'a Mutex<Host>,
    /// Work that the budget wasn't told of yet.
    work: Cell<usize>,
}

impl<'a> Form<'a> {
    pub(super) fn new(host: &'a Mutex<Host>, resp3: bool, script_resp3: bool) -> Form<'a> {
        let bytes_max = lock(host).reply_bytes_max;
        Form { resp3, script_resp3, bytes_max, host, work: Cell::new(0) }
    }

    /// Takes note of `work`, and of `bytes` that are to be appended. A table may be within
    /// others many times: what a script returns has no size that its memory would limit.
    fn spend(&self, out: &[u8], work: usize, bytes: usize) -> Result<(), Failure> {
        if out.len().saturating_add(bytes) > self.bytes_max {
            return Err(Failure::ReplyLength(self.bytes_max));
        }
        let work = self.work.get() + work + bytes;
        self.work.set(if work < METERED { work } else { 0 });
        if work < METERED { Ok(()) } else { lock(self.host).budget.spend_on_reply(work) }
    }

    /// Appends what a script returned.
    ///
    /// # Errors
    ///
    /// It is longer than a reply may be, or the script's time is over.
    pub(super) fn write(
        &self,
        out: &mut Vec<u8>,
        value: &Value,
        depth: usize,
    ) -> Result<(), Failure> {
        if let Value::String(text) = value {
            let text = text.as_bytes();
            self.spend(out, VALUE_WORK, text.len())?;
            write::bulk(out, &text);
            return Ok(());
        }
        self.spend(out, VALUE_WORK, 0)?;
        match value {
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
            Value::Table(table) => return self.write_table(out, table, depth),
            _ => write::null(out, self.resp3),
        }
        Ok(())
    }

    fn write_table(&self, out: &mut Vec<u8>, table: &Table, depth: usize) -> Result<(), Failure> {
        self.spend(out, TABLE_WORK, 0)?;
        let field = |name: &str| table.raw_get::<Value>(name).unwrap_or(Value::Nil);
        if let Value::String(text) = field("err") {
            self.spend(out, 0, text.as_bytes().len())?;
            write::error(out, &String::from_utf8_lossy(&text.as_bytes()));
            return Ok(());
        }
        if let Value::String(text) = field("ok") {
            self.spend(out, 0, text.as_bytes().len())?;
            let text = String::from_utf8_lossy(&text.as_bytes()).replace(['\r', '\n'], " ");
            write::simple(out, &text);
            return Ok(());
        }
        if let Value::Number(number) = field("double") {
            let text = number::general(number, 17);
            match self.resp3 {
                true => out.extend_from_slice(format!(",{text}\r\n").as_bytes()),
                false => write::bulk(out, text.as_bytes()),
            }
            return Ok(());
        }
        if let Value::Table(map) = field("map") {
            write::map(out, self.count(out, &map)?, self.resp3);
            return map.pairs::<Value, Value>().flatten().try_for_each(|(key, value)| {
                self.write(out, &key, depth + 1)?;
                self.write(out, &value, depth + 1)
            });
        }
        if let Value::Table(set) = field("set") {
            write::set(out, self.count(out, &set)?, self.resp3);
            let mut pairs = set.pairs::<Value, Value>().flatten();
            return pairs.try_for_each(|(key, _)| self.write(out, &key, depth + 1));
        }
        self.write_sequence(out, table, depth)
    }

    /// Appends the elements up to the first that isn't there. One after the other: mlua has room
    /// for some thousand values at a time.
    fn write_sequence(
        &self,
        out: &mut Vec<u8>,
        table: &Table,
        depth: usize,
    ) -> Result<(), Failure> {
        let (guessed, head) = (table.raw_len(), out.len());
        write::array(out, guessed);
        let (begin, mut length) = (out.len(), 0);
        for value in table.sequence_values::<Value>().map_while(Result::ok) {
            self.write(out, &value, depth + 1)?;
            length += 1;
        }
        // Lua finds an end, which isn't the first one if there is a hole before it.
        if length != guessed {
            let mut right = Vec::new();
            write::array(&mut right, length);
            out.splice(head..begin, right);
        }
        Ok(())
    }

    /// How many fields a table has.
    fn count(&self, out: &[u8], table: &Table) -> Result<usize, Failure> {
        let mut count = 0;
        for _ in table.pairs::<Value, Value>().flatten() {
            self.spend(out, VALUE_WORK, 0)?;
            count += 1;
        }
        Ok(count)
    }
}
