//! The library `cmsgpack`.

use super::host::{Checked, Meter, bytes, number};
use mlua::{Lua, MultiValue, Table, Value};

/// Tables within tables; what is deeper is packed as nil.
const PACKED_DEPTH_MAX: usize = 16;
const UNPACKED_DEPTH_MAX: usize = 1000;
/// About how long a value takes beside its bytes, in nanoseconds.
const VALUE_WORK: usize = 60;
const MISSING: &str = "Missing bytes in input.";
const BAD_FORMAT: &str = "Bad data format in input.";

pub(super) fn pack(values: &MultiValue, meter: &Meter<'_>) -> Checked<Vec<u8>> {
    if values.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut out = Vec::new();
    values.iter().try_for_each(|value| append(&mut out, value, 0, meter))?;
    Ok(out)
}

fn append(out: &mut Vec<u8>, value: &Value, depth: usize, meter: &Meter<'_>) -> Checked<()> {
    meter.spend(VALUE_WORK)?;
    match value {
        Value::Boolean(is_true) => out.push(if *is_true { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => append_integer(out, *number),
        Value::Number(number) if *number as i64 as f64 == *number => {
            append_integer(out, *number as i64);
        }
        Value::Number(number) => match f64::from(*number as f32) == *number {
            true => {
                out.push(0xca);
                out.extend((*number as f32).to_be_bytes());
            }
            false => {
                out.push(0xcb);
                out.extend(number.to_be_bytes());
            }
        },
        Value::String(text) => {
            let text = text.as_bytes();
            meter.spend(text.len())?;
            match text.len() {
                length @ ..32 => out.push(0xa0 | length as u8),
                length @ ..256 => out.extend([0xd9, length as u8]),
                length => append_length(out, 0xda, length),
            }
            out.extend_from_slice(&text);
        }
        Value::Table(table) if depth < PACKED_DEPTH_MAX => append_table(out, table, depth, meter)?,
        _ => out.push(0xc0),
    }
    if out.len() > super::host::STRING_BYTES_MAX {
        return Err("resulting string too large".into());
    }
    Ok(())
}

/// A length in two bytes after `code`, or in four after the next one.
fn append_length(out: &mut Vec<u8>, code: u8, length: usize) {
    match u16::try_from(length) {
        Ok(short) => {
            out.push(code);
            out.extend(short.to_be_bytes());
        }
        Err(_) => {
            out.push(code + 1);
            out.extend((length as u32).to_be_bytes());
        }
    }
}

fn append_integer(out: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    let (code, kept) = match number {
        -32..128 => return out.push(number as u8),
        128..0x100 => (0xcc, 1),
        0x100..0x1_0000 => (0xcd, 2),
        0x1_0000..0x1_0000_0000 => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -0x80..-32 => (0xd0, 1),
        -0x8000..-0x80 => (0xd1, 2),
        -0x8000_0000..-0x8000 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(code);
    out.extend_from_slice(&bytes[8 - kept..]);
}

fn append_table(out: &mut Vec<u8>, table: &Table, depth: usize, meter: &Meter<'_>) -> Checked<()> {
    let (mut count, mut largest, mut is_array) = (0usize, 0f64, true);
    for pair in table.pairs::<Value, Value>() {
        meter.spend(VALUE_WORK)?;
        let (key, _) = pair.map_err(|error| error.to_string())?;
        count += 1;
        match key {
            Value::Integer(number) if number > 0 => largest = largest.max(number as f64),
            Value::Number(number) if number > 0.0 && number.floor() == number => {
                largest = largest.max(number);
            }
            _ => is_array = false,
        }
    }
    is_array &= largest == count as f64;
    match (count, is_array) {
        (..16, true) => out.push(0x90 | count as u8),
        (_, true) => append_length(out, 0xdc, count),
        (..16, false) => out.push(0x80 | count as u8),
        (_, false) => append_length(out, 0xde, count),
    }
    if is_array {
        return (1..=count).try_for_each(|at| {
            let value: Value = table.raw_get(at).map_err(|error| error.to_string())?;
            append(out, &value, depth + 1, meter)
        });
    }
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        append(out, &key, depth + 1, meter)?;
        append(out, &value, depth + 1, meter)?;
    }
    Ok(())
}

/// All that a string holds.
pub(super) fn unpack(lua: &Lua, values: &MultiValue, meter: &Meter<'_>) -> Checked<Vec<Value>> {
    let data = bytes(values, 1, "unpack")?;
    let mut reader = Reader { lua, meter, data: &data, at: 0 };
    let mut results = Vec::new();
    while reader.at < data.len() {
        results.push(reader.value(0)?);
    }
    Ok(results)
}

pub(super) fn unpack_one(lua: &Lua, values: &MultiValue, meter: &Meter<'_>) -> Checked<Vec<Value>> {
    let offset = if values.len() < 2 { 0.0 } else { number(values, 2, "unpack_one")? };
    unpack_some(lua, meter, &bytes(values, 1, "unpack_one")?, 1.0, offset)
}

pub(super) fn unpack_limit(
    lua: &Lua,
    values: &MultiValue,
    meter: &Meter<'_>,
) -> Checked<Vec<Value>> {
    let data = bytes(values, 1, "unpack_limit")?;
    let limit = number(values, 2, "unpack_limit")?;
    let offset = if values.len() < 3 { 0.0 } else { number(values, 3, "unpack_limit")? };
    unpack_some(lua, meter, &data, limit, offset)
}

/// At most `limit` from an offset on; before them the offset of what is left, or -1.
fn unpack_some(
    lua: &Lua,
    meter: &Meter<'_>,
    data: &[u8],
    limit: f64,
    offset: f64,
) -> Checked<Vec<Value>> {
    if limit < 0.0 || offset < 0.0 {
        let (offset, length) = (offset as i64, data.len());
        return Err(format!(
            "Invalid request to unpack with offset of {offset} and limit of {length}."
        ));
    }
    if offset > data.len() as f64 {
        let (offset, length) = (offset as i64, data.len());
        return Err(format!("Start offset {offset} greater than input length {length}."));
    }
    let mut reader = Reader { lua, meter, data, at: offset as usize };
    let is_all = limit < 1.0 && offset < 1.0;
    let mut results = Vec::new();
    while reader.at < data.len() && (is_all || (results.len() as f64) < limit.floor()) {
        results.push(reader.value(0)?);
    }
    if !is_all {
        let left = if reader.at == data.len() { -1.0 } else { reader.at as f64 };
        results.insert(0, Value::Number(left));
    }
    Ok(results)
}

struct Reader<'a> {
    lua: &'a Lua,
    meter: &'a Meter<'a>,
    data: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Checked<&'a [u8]> {
        let end = self.at.checked_add(length).filter(|&end| end <= self.data.len());
        let end = end.ok_or(MISSING)?;
        let taken = &self.data[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// An unsigned number of `length` bytes.
    fn unsigned(&mut self, length: usize) -> Checked<u64> {
        Ok(self.take(length)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn signed(&mut self, length: usize) -> Checked<Value> {
        let shift = 64 - 8 * length as u32;
        Ok(Value::Number(((self.unsigned(length)? << shift) as i64 >> shift) as f64))
    }

    fn string(&mut self, length: usize) -> Checked<Value> {
        let text = self.take(length)?;
        self.lua.create_string(text).map(Value::String).map_err(|error| error.to_string())
    }

    fn value(&mut self, depth: usize) -> Checked<Value> {
        if depth > UNPACKED_DEPTH_MAX {
            return Err(BAD_FORMAT.into());
        }
        self.meter.spend(VALUE_WORK)?;
        let code = self.take(1)?[0];
        match code {
            0..=0x7f => Ok(Value::Number(f64::from(code))),
            0xe0.. => Ok(Value::Number(f64::from(code as i8))),
            0xa0..=0xbf => self.string(usize::from(code & 0x1f)),
            0x90..=0x9f => self.array(usize::from(code & 0xf), depth),
            0x80..=0x8f => self.map(usize::from(code & 0xf), depth),
            0xc0 => Ok(Value::Nil),
            0xc2 => Ok(Value::Boolean(false)),
            0xc3 => Ok(Value::Boolean(true)),
            0xca => {
                let bits = self.unsigned(4)? as u32;
                Ok(Value::Number(f64::from(f32::from_bits(bits))))
            }
            0xcb => Ok(Value::Number(f64::from_bits(self.unsigned(8)?))),
            0xcc..=0xcf => Ok(Value::Number(self.unsigned(1 << (code - 0xcc))? as f64)),
            0xd0..=0xd3 => self.signed(1 << (code - 0xd0)),
            0xd9..=0xdb => {
                let length = self.unsigned(1 << (code - 0xd9))?;
                self.string(length as usize)
            }
            0xdc | 0xdd => {
                let length = self.unsigned(2 << (code - 0xdc))?;
                self.array(length as usize, depth)
            }
            0xde | 0xdf => {
                let length = self.unsigned(2 << (code - 0xde))?;
                self.map(length as usize, depth)
            }
            _ => Err(BAD_FORMAT.into()),
        }
    }

    fn array(&mut self, length: usize, depth: usize) -> Checked<Value> {
        let table = self.lua.create_table().map_err(|error| error.to_string())?;
        for at in 1..=length {
            let value = self.value(depth + 1)?;
            table.raw_set(at, value).map_err(|error| error.to_string())?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> Checked<Value> {
        let table = self.lua.create_table().map_err(|error| error.to_string())?;
        for _ in 0..length {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            if matches!(&key, Value::Nil) || matches!(&key, Value::Number(key) if key.is_nan()) {
                return Err(BAD_FORMAT.into());
            }
            table.raw_set(key, value).map_err(|error| error.to_string())?;
        }
        Ok(Value::Table(table))
    }
}
