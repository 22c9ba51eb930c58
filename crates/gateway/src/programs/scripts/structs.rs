//! The library `struct`: numbers and strings as C has them in memory.

use super::host::{Checked, bad_argument, bytes, number};
use mlua::{Lua, MultiValue, Value};

/// Bytes of an integer.
const INTEGER_MAX: usize = 32;

/// A format, and what its options have said so far.
struct Format<'a> {
    name: &'static str,
    text: &'a [u8],
    at: usize,
    is_big_endian: bool,
    alignment: usize,
}

/// An option that is for a value: its letter, and its size.
struct Item {
    letter: u8,
    size: usize,
}

impl<'a> Format<'a> {
    fn new(name: &'static str, text: &'a [u8]) -> Format<'a> {
        Format { name, text, at: 0, is_big_endian: false, alignment: 1 }
    }

    /// The digits that follow.
    fn number(&mut self, otherwise: usize) -> usize {
        let begin = self.at;
        let mut number = 0usize;
        while let Some(digit) = self.text.get(self.at).filter(|byte| byte.is_ascii_digit()) {
            number = number.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
            self.at += 1;
        }
        if self.at == begin { otherwise } else { number }
    }

    /// The next option that is for a value; `None` at the end.
    fn next(&mut self) -> Checked<Option<Item>> {
        while let Some(&letter) = self.text.get(self.at) {
            self.at += 1;
            let size = match letter {
                b'b' | b'B' | b'x' => 1,
                b'h' | b'H' => 2,
                b'l' | b'L' | b'T' | b'd' => 8,
                b'f' => 4,
                b'c' => self.number(1),
                b's' => 0,
                b'i' | b'I' => {
                    let size = self.number(4);
                    if size > INTEGER_MAX {
                        return Err(format!(
                            "integral size {size} is larger than limit of {INTEGER_MAX}"
                        ));
                    }
                    size
                }
                _ => {
                    self.control(letter)?;
                    continue;
                }
            };
            return Ok(Some(Item { letter, size }));
        }
        Ok(None)
    }

    fn control(&mut self, letter: u8) -> Checked<()> {
        match letter {
            b' ' => {}
            b'>' => self.is_big_endian = true,
            b'<' => self.is_big_endian = false,
            b'!' => {
                let alignment = self.number(8);
                if !alignment.is_power_of_two() {
                    return Err(format!("alignment {alignment} is not a power of 2"));
                }
                self.alignment = alignment;
            }
            other => {
                let what = format!("invalid format option '{}'", char::from(other));
                return Err(bad_argument(1, self.name, &what));
            }
        }
        Ok(())
    }

    /// Bytes to leave out before an item.
    fn padding(&self, position: usize, item: &Item) -> usize {
        if item.size == 0 || item.letter == b'c' {
            return 0;
        }
        let size = item.size.min(self.alignment);
        size.wrapping_sub(position & (size - 1)) & (size - 1)
    }

    fn ordered(&self, mut little_endian: Vec<u8>) -> Vec<u8> {
        if self.is_big_endian {
            little_endian.reverse();
        }
        little_endian
    }
}

pub(super) fn pack(values: &MultiValue) -> Checked<Vec<u8>> {
    let text = bytes(values, 1, "pack")?;
    let mut format = Format::new("pack", &text);
    let (mut out, mut at) = (Vec::new(), 2);
    while let Some(item) = format.next()? {
        out.resize(out.len() + format.padding(out.len(), &item), 0);
        match item.letter {
            b'x' => out.push(0),
            b'f' => {
                let number = packed_number(values, at)? as f32;
                out.extend(format.ordered(number.to_le_bytes().to_vec()));
            }
            b'd' => out.extend(format.ordered(packed_number(values, at)?.to_le_bytes().to_vec())),
            b's' | b'c' => {
                let string = bytes(values, at, "pack").map_err(|text| of_nil(values, at, text))?;
                let size = if item.size == 0 { string.len() } else { item.size };
                if string.len() < size {
                    return Err(bad_argument(at + 1, "pack", "string too short"));
                }
                out.extend_from_slice(&string[..size]);
                out.extend((item.letter == b's').then_some(0));
            }
            _ => {
                let number = packed_number(values, at)?;
                let integer = if number < 0.0 { number as i64 as u64 } else { number as u64 };
                let mut little = integer.to_le_bytes().to_vec();
                little.resize(item.size.max(8), 0);
                little.truncate(item.size);
                out.extend(format.ordered(little));
            }
        }
        at += usize::from(item.letter != b'x');
        if out.len() > super::host::STRING_BYTES_MAX {
            return Err("resulting string too large".into());
        }
    }
    Ok(out)
}

fn packed_number(values: &MultiValue, at: usize) -> Checked<f64> {
    number(values, at, "pack").map_err(|text| of_nil(values, at, text))
}

/// What isn't there is called nil by this library.
fn of_nil(values: &MultiValue, at: usize, text: String) -> String {
    if at > values.len() { text.replace("got no value", "got nil") } else { text }
}

pub(super) fn size(values: &MultiValue) -> Checked<f64> {
    let text = bytes(values, 1, "size")?;
    let mut format = Format::new("size", &text);
    let mut position = 0usize;
    while let Some(item) = format.next()? {
        let name = match item.letter {
            b's' => "s",
            b'c' if item.size == 0 => "c0",
            _ => {
                let padding = format.padding(position, &item);
                position = position.saturating_add(padding).saturating_add(item.size);
                continue;
            }
        };
        return Err(bad_argument(1, "size", &format!("option '{name}' has no fixed size")));
    }
    Ok(position as f64)
}

pub(super) fn unpack(lua: &Lua, values: &MultiValue) -> Checked<Vec<Value>> {
    let text = bytes(values, 1, "unpack")?;
    let data = bytes(values, 2, "unpack")?;
    let from = if values.len() < 3 { 1.0 } else { number(values, 3, "unpack")? };
    if from.is_nan() || from < 1.0 {
        return Err(bad_argument(3, "unpack", "offset must be 1 or greater"));
    }
    let mut position = from as usize - 1;
    let mut format = Format::new("unpack", &text);
    let mut results = Vec::new();
    let take = |position: usize, size: usize| {
        let end = position.checked_add(size).filter(|&end| end <= data.len());
        end.map(|end| &data[position..end])
            .ok_or_else(|| bad_argument(2, "unpack", "data string too short"))
    };
    let string = |bytes: &[u8]| {
        lua.create_string(bytes).map(Value::String).map_err(|error| error.to_string())
    };
    while let Some(Item { letter, mut size }) = format.next()? {
        position = position.saturating_add(format.padding(position, &Item { letter, size }));
        let slice = take(position, size)?;
        match letter {
            b'x' => {}
            b'f' | b'd' => {
                let bytes = format.ordered(slice.to_vec());
                results.push(Value::Number(match bytes[..] {
                    [a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
                    _ => f64::from_le_bytes(bytes.try_into().unwrap_or_default()),
                }));
            }
            b's' => {
                let rest = &data[position..];
                let end = rest.iter().position(|&byte| byte == 0);
                let end = end.ok_or("unfinished string in data")?;
                results.push(string(&rest[..end])?);
                size = end + 1;
            }
            b'c' if size == 0 => {
                let Some(Value::Number(before)) = results.pop() else {
                    return Err("format 'c0' needs a previous size".into());
                };
                size = if before < 0.0 { usize::MAX } else { before as usize };
                results.push(string(take(position, size)?)?);
            }
            b'c' => results.push(string(slice)?),
            _ => {
                let little = format.ordered(slice.to_vec());
                results.push(Value::Number(integer(&little, letter.is_ascii_lowercase())));
            }
        }
        position += size;
    }
    results.push(Value::Number(position as f64 + 1.0));
    Ok(results)
}

/// Of an integer's bytes the last eight count.
fn integer(little: &[u8], signed: bool) -> f64 {
    let mut bytes = [0; 8];
    let kept = little.len().min(8);
    bytes[..kept].copy_from_slice(&little[..kept]);
    let number = u64::from_le_bytes(bytes);
    if !signed || little.len() > 8 {
        return number as f64;
    }
    let shift = 64 - 8 * kept as u32;
    if shift == 64 { 0.0 } else { ((number << shift) as i64 >> shift) as f64 }
}
