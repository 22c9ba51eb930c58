//! What commands make of a value: functions of the value and their arguments, which know nothing of
//! keys, expiry or the rack. A [`View`] answers something, an [`Update`] makes a new value.

mod bitfield;
mod bits;
mod float;
mod lcs;
pub mod rdb;

use crate::failure::Failure;
use crate::operation::Answer;
use crate::resp::parse_i64;
use float::Extended;
use std::borrow::Cow;
use std::ops::Range;
use switchback_wire::VALUE_BYTES_MAX;

pub(crate) use bitfield::{Access, Field, Overflow, written_bytes};
pub(crate) use bits::{BitOperation, combined};
pub(crate) use lcs::{Common, LcsOptions, common};
pub(crate) use rdb::restore;

/// Longer strings aren't embedded in Redis' objects; only OBJECT ENCODING tells.
const EMBEDDED_BYTES_MAX: usize = 44;

/// The first and the last byte (or bit) that is meant; negative: counted from the end, which is -1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offsets {
    pub(crate) first: i64,
    pub(crate) last: i64,
}

impl Offsets {
    /// Whether both are counted from the end, and the first one is the later one. Nothing is meant
    /// then, even where both lie before the value and would otherwise be its first byte.
    pub(crate) fn is_backward(self) -> bool {
        self.first < 0 && self.last < 0 && self.first > self.last
    }

    /// What of `length` bytes (or bits) is meant; `None` if nothing is.
    fn within(self, length: usize) -> Option<Range<usize>> {
        let length = length as i64;
        let from_start = |at: i64| if at < 0 { (length + at).max(0) } else { at };
        let (first, last) = (from_start(self.first), from_start(self.last).min(length - 1));
        (first <= last).then(|| first as usize..last as usize + 1)
    }
}

/// What a command answers of a value, which it doesn't change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    Exists,
    Type,
    Length,
    Range(Offsets),
    Bit(u64),
    CountBits {
        offsets: Offsets,
        in_bits: bool,
    },
    /// Without a last offset, zeros follow the value.
    FindBit {
        bit: bool,
        first: i64,
        last: Option<i64>,
        in_bits: bool,
    },
    /// The argument is a list of [`Field`]s to get.
    Fields,
    /// An error that only matters if the record is there; else the number is the answer.
    Refused(&'static str, i64),
    Encoding,
    /// How often its key is asked for, which isn't seen in the value.
    Frequency(u8),
    /// Of a record whose key has this length.
    Memory {
        key_bytes: u32,
    },
    Dump,
}

impl View {
    /// The answer for a value, or for none.
    pub(crate) fn of<'a>(self, value: Option<&'a [u8]>, argument: &[u8]) -> Answer<'a> {
        let exists = value.is_some();
        let bytes = value.unwrap_or_default();
        match self {
            View::Exists => Answer::Integer(i64::from(exists)),
            View::Type => Answer::Status(if exists { "string" } else { "none" }),
            View::Length => Answer::Integer(bytes.len() as i64),
            View::Range(offsets) if offsets.is_backward() => Answer::Bulk(b""),
            View::Range(offsets) => {
                Answer::Bulk(offsets.within(bytes.len()).map_or(b"", |range| &bytes[range]))
            }
            View::Bit(offset) => Answer::Integer(i64::from(bits::get(bytes, offset))),
            View::CountBits { offsets, in_bits } => {
                Answer::Integer(bits::count(bytes, offsets, in_bits))
            }
            View::FindBit { bit, .. } if !exists => Answer::Integer(if bit { -1 } else { 0 }),
            View::FindBit { bit, first, last, in_bits } => {
                Answer::Integer(bits::find(bytes, bit, first, last, in_bits))
            }
            View::Fields => Answer::Fields(Cow::Owned(bitfield::get(bytes, argument))),
            View::Refused(_, otherwise) if !exists => Answer::Integer(otherwise),
            View::Refused(text, _) => Answer::Failed(Failure::Static(text)),
            View::Encoding | View::Frequency(_) if !exists => Answer::Null,
            View::Memory { .. } | View::Dump if !exists => Answer::Null,
            View::Encoding => Answer::Bulk(encoding(bytes).as_bytes()),
            View::Frequency(counter) => Answer::Integer(i64::from(counter)),
            View::Memory { key_bytes } => {
                Answer::Integer(i64::from(key_bytes) + bytes.len() as i64)
            }
            View::Dump => Answer::Made(rdb::dump(bytes)),
        }
    }
}

/// How Redis stores a value that SET wrote.
fn encoding(value: &[u8]) -> &'static str {
    match value.len() {
        _ if parse_i64(value).is_some() => "int",
        ..=EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}

/// The answer of a command that writes, once the write has happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Reply {
    #[default]
    Ok,
    Null,
    Integer(i64),
    /// The value that is in the operation's buffer.
    Value,
    /// The integers that are in the operation's buffer.
    Fields,
    /// What the operation's program has answered.
    Program,
}

/// What an [`Update`] comes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// The new value is to be written; then this is the answer.
    Write(Reply),
    /// Nothing is; this is the answer.
    Nothing(i64),
    /// Nothing is; the answer is the integers in the operation's buffer.
    NothingInFields,
}

/// How a command makes a new value of what is there. The record's expiry stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Update {
    Increment(i64),
    /// By the argument.
    IncrementFloat,
    Append,
    /// Overwrites from this byte on.
    SetRange(usize),
    SetBit(u64, bool),
    /// The argument is a list of [`Field`]s.
    Fields,
}

impl Update {
    /// Makes `new` of what is there and the argument; of [`Update::Fields`] also `fields`, the
    /// answers.
    ///
    /// # Errors
    ///
    /// What is there is no number, the result would be none, or it would be too long.
    #[inline]
    pub(crate) fn apply(
        self,
        old: Option<&[u8]>,
        argument: &[u8],
        new: &mut Vec<u8>,
        fields: &mut Vec<Option<i64>>,
    ) -> Result<Change, Failure> {
        let bytes = old.unwrap_or_default();
        new.clear();
        match self {
            Update::Increment(by) => {
                let number = parse_i64(old.unwrap_or(b"0")).ok_or(Failure::NotAnInteger)?;
                let number = number.checked_add(by).ok_or(Failure::Overflow)?;
                new.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
                Ok(Change::Write(Reply::Integer(number)))
            }
            Update::IncrementFloat => {
                let parse = |text| Extended::parse(text).ok_or(Failure::NotAFloat);
                let sum = parse(old.unwrap_or(b"0"))?.plus(parse(argument)?);
                new.extend(sum.text().ok_or(Failure::NotFinite)?);
                Ok(Change::Write(Reply::Value))
            }
            Update::Append => {
                let length = bytes.len() + argument.len();
                if length > VALUE_BYTES_MAX {
                    return Err(Failure::ValueLength);
                }
                new.extend_from_slice(bytes);
                new.extend_from_slice(argument);
                Ok(Change::Write(Reply::Integer(length as i64)))
            }
            Update::SetRange(_) if argument.is_empty() => Ok(Change::Nothing(bytes.len() as i64)),
            Update::SetRange(offset) => {
                let end = offset.saturating_add(argument.len());
                extend(bytes, end as u64, new)?;
                new[offset..end].copy_from_slice(argument);
                Ok(Change::Write(Reply::Integer(new.len() as i64)))
            }
            Update::SetBit(offset, bit) => {
                extend(bytes, offset / 8 + 1, new)?;
                let before = bits::set(new, offset, bit);
                // As in Redis, a record that stays as it is counts as unchanged.
                if before == bit && old.is_some_and(|old| old.len() == new.len()) {
                    return Ok(Change::Nothing(i64::from(before)));
                }
                Ok(Change::Write(Reply::Integer(i64::from(before))))
            }
            Update::Fields => {
                extend(bytes, written_bytes(argument), new)?;
                bitfield::update(new, argument, fields);
                if old.is_some_and(|old| old == new.as_slice()) {
                    return Ok(Change::NothingInFields);
                }
                Ok(Change::Write(Reply::Fields))
            }
        }
    }
}

/// Copies a value, with zeros behind it up to a length.
fn extend(value: &[u8], bytes_min: u64, new: &mut Vec<u8>) -> Result<(), Failure> {
    let length = usize::try_from(bytes_min).unwrap_or(usize::MAX).max(value.len());
    if length > VALUE_BYTES_MAX {
        return Err(Failure::ValueLength);
    }
    new.extend_from_slice(value);
    new.resize(length, 0);
    Ok(())
}
