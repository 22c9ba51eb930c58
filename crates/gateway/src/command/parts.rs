//! Arguments of commands on parts of values, with Redis' errors.

use crate::failure::Failure;
use crate::resp::{Args, parse_i64};
use crate::strings::{Access, BitOperation, Field, LcsOptions, Offsets, Overflow, Update, View};
use switchback_wire::VALUE_BYTES_MAX;

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

fn integer(text: &[u8]) -> Result<i64, Failure> {
    parse_i64(text).ok_or(Failure::NotAnInteger)
}

/// The first and last byte of GETRANGE.
pub(crate) fn range(args: Args<'_>) -> Result<Offsets, Failure> {
    Ok(Offsets { first: integer(args.get(2))?, last: integer(args.get(3))? })
}

/// The first byte of SETRANGE.
pub(crate) fn set_range(args: Args<'_>) -> Result<Update, Failure> {
    let offset = usize::try_from(integer(args.get(2))?);
    offset.map(Update::SetRange).map_err(|_| Failure::Static("ERR offset is out of range"))
}

/// Which bit GETBIT and SETBIT mean: one that a value can have.
pub(crate) fn bit_offset(text: &[u8]) -> Result<u64, Failure> {
    bit(parse_i64(text))
}

fn bit(offset: Option<i64>) -> Result<u64, Failure> {
    let offset = offset.and_then(|offset| u64::try_from(offset).ok());
    let of_value = offset.filter(|offset| offset / 8 < VALUE_BYTES_MAX as u64);
    of_value.ok_or(Failure::Static("ERR bit offset is not an integer or out of range"))
}

/// Bit and its value of SETBIT.
pub(crate) fn set_bit(args: Args<'_>) -> Result<Update, Failure> {
    let offset = bit_offset(args.get(2))?;
    match parse_i64(args.get(3)) {
        Some(bit @ 0..=1) => Ok(Update::SetBit(offset, bit == 1)),
        _ => Err(Failure::Static("ERR bit is not an integer or out of range")),
    }
}

/// Whether offsets are of bits; they are of bytes unless it is said.
fn in_bits(unit: &[u8]) -> Result<bool, &'static str> {
    match () {
        () if unit.eq_ignore_ascii_case(b"bit") => Ok(true),
        () if unit.eq_ignore_ascii_case(b"byte") => Ok(false),
        () => Err(SYNTAX),
    }
}

/// What BITCOUNT counts.
pub(crate) fn count_bits(args: Args<'_>) -> View {
    let number = |at: usize| parse_i64(args.get(at)).ok_or(NOT_AN_INTEGER);
    let view = || {
        let (offsets, in_bits) = match args.len() {
            2 => (Offsets { first: 0, last: -1 }, false),
            4 => (Offsets { first: number(2)?, last: number(3)? }, false),
            5 => {
                let offsets = Offsets { first: number(2)?, last: number(3)? };
                // Redis answers 0 to these before it looks at the unit.
                let in_bits = !offsets.is_backward() && in_bits(args.get(4))?;
                (offsets, in_bits)
            }
            _ => return Err(SYNTAX),
        };
        Ok(View::CountBits { offsets, in_bits })
    };
    view().unwrap_or_else(|text| View::Refused(text, 0))
}

/// How BITOP combines values.
pub(crate) fn bit_operation(args: Args<'_>) -> Result<BitOperation, Failure> {
    match args.get(1).to_ascii_lowercase().as_slice() {
        b"and" => Ok(BitOperation::And),
        b"or" => Ok(BitOperation::Or),
        b"xor" => Ok(BitOperation::Xor),
        b"not" if args.len() == 4 => Ok(BitOperation::Not),
        b"not" => Err(Failure::Static("ERR BITOP NOT must be called with a single source key.")),
        _ => Err(Failure::Syntax),
    }
}

/// What BITPOS looks for.
pub(crate) fn find_bit(args: Args<'_>) -> Result<View, Failure> {
    let bit = match integer(args.get(2))? {
        0 => false,
        1 => true,
        _ => return Err(Failure::Static("ERR The bit argument must be 1 or 0.")),
    };
    let number = |at: usize| parse_i64(args.get(at)).ok_or(NOT_AN_INTEGER);
    let view = || {
        let (first, last, in_bits) = match args.len() {
            3 => (0, None, false),
            4 => (number(3)?, None, false),
            5 => (number(3)?, Some(number(4)?), false),
            6 => {
                let (first, in_bits) = (number(3)?, in_bits(args.get(5))?);
                (first, Some(number(4)?), in_bits)
            }
            _ => return Err(SYNTAX),
        };
        Ok(View::FindBit { bit, first, last, in_bits })
    };
    Ok(view().unwrap_or_else(|text| View::Refused(text, if bit { -1 } else { 0 })))
}

/// The subcommands of BITFIELD or, `read_only`, of BITFIELD_RO, encoded; and whether any of them
/// writes.
pub(crate) fn fields(args: Args<'_>, read_only: bool) -> Result<(Vec<u8>, bool), Failure> {
    let (mut list, mut writes, mut overflow) = (Vec::new(), false, Overflow::Wrap);
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        let is = |name: &str, operands: usize| {
            args.get(at).eq_ignore_ascii_case(name.as_bytes()) && more >= operands
        };
        let access = match () {
            () if is("get", 2) => Access::Get,
            () if is("set", 3) => Access::Set,
            () if is("incrby", 3) => Access::Increment,
            () if is("overflow", 1) => {
                overflow = self::overflow(args.get(at + 1))?;
                at += 2;
                continue;
            }
            () => return Err(Failure::Syntax),
        };
        let (signed, bits) = integer_type(args.get(at + 1))?;
        let offset = field_offset(args.get(at + 2), bits)?;
        let operand = if access == Access::Get { 0 } else { integer(args.get(at + 3))? };
        Field { access, overflow, signed, bits, offset, operand }.encode(&mut list);
        writes |= access != Access::Get;
        at += if access == Access::Get { 3 } else { 4 };
    }
    if writes && read_only {
        return Err(Failure::Static("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    Ok((list, writes))
}

fn overflow(name: &[u8]) -> Result<Overflow, Failure> {
    match name.to_ascii_lowercase().as_slice() {
        b"wrap" => Ok(Overflow::Wrap),
        b"sat" => Ok(Overflow::Saturate),
        b"fail" => Ok(Overflow::Fail),
        _ => Err(Failure::Static("ERR Invalid OVERFLOW type specified")),
    }
}

/// Whether an integer has a sign, and how many bits: `i8`, `u63`.
fn integer_type(text: &[u8]) -> Result<(bool, u8), Failure> {
    let parsed = match text {
        [b'i', bits @ ..] => {
            parse_i64(bits).filter(|bits| (1..=64).contains(bits)).map(|n| (true, n))
        }
        [b'u', bits @ ..] => {
            parse_i64(bits).filter(|bits| (1..=63).contains(bits)).map(|n| (false, n))
        }
        _ => None,
    };
    parsed.map(|(signed, bits)| (signed, bits as u8)).ok_or(Failure::Static(
        "ERR Invalid bitfield type. Use something like i16 u8. \
            Note that u64 is not supported but i64 is.",
    ))
}

/// The first bit of an integer: `100`, or `#3` for the fourth of integers side by side.
fn field_offset(text: &[u8], bits: u8) -> Result<u64, Failure> {
    let (text, times) = match text.strip_prefix(b"#") {
        Some(place) => (place, i64::from(bits)),
        None => (text, 1),
    };
    bit(parse_i64(text).map(|number| number.wrapping_mul(times)))
}

/// Options of LCS.
pub(crate) fn lcs(args: Args<'_>) -> Result<LcsOptions, Failure> {
    let mut options = LcsOptions::default();
    let mut at = 3;
    while at < args.len() {
        let is = |name: &str| args.get(at).eq_ignore_ascii_case(name.as_bytes());
        if is("idx") {
            options.matches = true;
        } else if is("len") {
            options.length = true;
        } else if is("withmatchlen") {
            options.match_lengths = true;
        } else if is("minmatchlen") && at + 1 < args.len() {
            at += 1;
            options.match_bytes_min = u64::try_from(integer(args.get(at))?).unwrap_or(0);
        } else {
            return Err(Failure::Syntax);
        }
        at += 1;
    }
    if options.matches && options.length {
        return Err(Failure::Static(
            "ERR If you want both the length and indexes, please just use IDX.",
        ));
    }
    Ok(options)
}
