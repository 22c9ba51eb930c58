//! Replies as scripts have them, both ways.

use super::number;
use crate::resp::{parse_i64, write};
use mlua::{Lua, Table, Value};

/// Tables within tables of a script's reply.
const DEPTH_MAX: usize = 128;

/// A reply, as a script gets it, and whether it is an error. `at` is moved behind it.
pub(super) fn to_lua(lua: &Lua, reply: &[u8], at: &mut usize) -> mlua::Result<(Value, bool)> {
    let rest = &reply[*at..];
    let end = rest.windows(2).position(|two| two == b"\r\n").unwrap_or(rest.len());
    let line = rest.get(1..end).unwrap_or_default();
    *at = (*at + end + 2).min(reply.len());
    let length = || parse_i64(line).and_then(|length| usize::try_from(length).ok());
    let value = match rest.first() {
        Some(b'+') => Value::Table(single(lua, "ok", line)?),
        Some(b'-') => return Ok((Value::Table(single(lua, "err", line)?), true)),
        Some(b':') => Value::Number(parse_i64(line).unwrap_or(0) as f64),
        Some(b'$') => match length() {
            Some(length) => {
                let bytes = &reply[*at..*at + length];
                *at += length + 2;
                Value::String(lua.create_string(bytes)?)
            }
            None => Value::Boolean(false),
        },
        Some(b'*') => match length() {
            Some(length) => Value::Table(elements(lua, reply, at, length)?),
            None => Value::Boolean(false),
        },
        Some(b'%') => {
            let map = lua.create_table()?;
            for _ in 0..length().unwrap_or(0) {
                let (key, _) = to_lua(lua, reply, at)?;
                map.raw_set(key, to_lua(lua, reply, at)?.0)?;
            }
            let table = lua.create_table()?;
            table.raw_set("map", map)?;
            Value::Table(table)
        }
        _ => Value::Nil,
    };
    Ok((value, false))
}

fn single(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(table)
}

fn elements(lua: &Lua, reply: &[u8], at: &mut usize, length: usize) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(length, 0)?;
    for place in 1..=length {
        table.raw_set(place, to_lua(lua, reply, at)?.0)?;
    }
    Ok(table)
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
            let pairs: Vec<_> = map.pairs::<Value, Value>().flatten().collect();
            write::map(out, pairs.len(), self.resp3);
            for (key, value) in &pairs {
                self.write(out, key, depth + 1);
                self.write(out, value, depth + 1);
            }
            return;
        }
        if let Value::Table(set) = field("set") {
            let pairs: Vec<_> = set.pairs::<Value, Value>().flatten().collect();
            write::set(out, pairs.len(), self.resp3);
            pairs.iter().for_each(|(key, _)| self.write(out, key, depth + 1));
            return;
        }
        let mut elements = Vec::new();
        while let Ok(value) = table.raw_get::<Value>(elements.len() + 1)
            && !value.is_nil()
        {
            elements.push(value);
        }
        write::array(out, elements.len());
        elements.iter().for_each(|value| self.write(out, value, depth + 1));
    }
}
