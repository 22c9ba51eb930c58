//! DUMP and RESTORE: a string as Redis' RDB files have it, behind it the format's version and a
//! checksum.

use crate::resp::parse_i64;
use switchback_wire::VALUE_BYTES_MAX;

/// The version that Redis 7.0 writes, and the last that it reads.
const VERSION: u16 = 10;
/// Version and checksum.
const FOOTER_BYTES: usize = 10;
/// The type of strings.
const STRING: u8 = 0;

const BAD_CHECKSUM: &str = "ERR DUMP payload version or checksum are wrong";
const BAD_FORMAT: &str = "ERR Bad data format";
const TOO_LONG: &str = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";

/// Polynomial 0xad93d23594c935a9 (that of Jones), the lowest bit first.
const POLYNOMIAL: u64 = 0x95ac_9329_ac4b_c9b5;

const TABLE: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut rest, mut bit) = (byte as u64, 0);
        while bit < 8 {
            rest = if rest & 1 == 1 { rest >> 1 ^ POLYNOMIAL } else { rest >> 1 };
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// The checksum of RDB files, of `bytes` that follow those of `sum`; 0: of none.
pub fn checksum(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| TABLE[usize::from(sum as u8 ^ byte)] ^ sum >> 8)
}

/// Appends a string: its length, and its bytes.
pub fn put_string(out: &mut Vec<u8>, value: &[u8]) {
    match value.len() {
        length @ 0..64 => out.push(length as u8),
        length @ 64..0x4000 => out.extend((0x4000 | length as u16).to_be_bytes()),
        length => {
            out.push(0x80);
            out.extend((length as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(value);
}

/// The payload that DUMP answers. It isn't compressed; Redis compresses values of more than 20
/// bytes, and reads both.
pub(super) fn dump(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(value.len() + 16);
    out.push(STRING);
    let number = parse_i64(value).and_then(|number| i32::try_from(number).ok());
    match number {
        Some(number) => match (i8::try_from(number), i16::try_from(number)) {
            (Ok(number), _) => out.extend([0xc0, number as u8]),
            (_, Ok(number)) => {
                out.push(0xc1);
                out.extend(number.to_le_bytes());
            }
            _ => {
                out.push(0xc2);
                out.extend(number.to_le_bytes());
            }
        },
        None => put_string(&mut out, value),
    }
    out.extend(VERSION.to_le_bytes());
    let sum = checksum(0, &out);
    out.extend(sum.to_le_bytes());
    out
}

/// The value of a payload.
///
/// # Errors
///
/// The error reply: it is broken, of a newer version, of another type than string, or longer than a
/// value may be.
pub(crate) fn restore(payload: &[u8]) -> Result<Vec<u8>, &'static str> {
    let (body, footer) = payload.split_last_chunk::<FOOTER_BYTES>().ok_or(BAD_CHECKSUM)?;
    let [low, high, sum @ ..] = *footer;
    let summed = &payload[..body.len() + 2];
    if u16::from_le_bytes([low, high]) > VERSION || u64::from_le_bytes(sum) != checksum(0, summed) {
        return Err(BAD_CHECKSUM);
    }
    match body {
        [STRING, rest @ ..] => string(&mut { rest }),
        [1..=7 | 9..=20, ..] => Err("ERR RESTORE: Switchback stores strings only"),
        _ => Err(BAD_FORMAT),
    }
}

fn string(rest: &mut &[u8]) -> Result<Vec<u8>, &'static str> {
    let number = |number: i64| Ok(number.to_string().into_bytes());
    match *rest {
        [0xc0, byte, ..] => number(i64::from(*byte as i8)),
        [0xc1, a, b, ..] => number(i64::from(i16::from_le_bytes([*a, *b]))),
        [0xc2, a, b, c, d, ..] => number(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
        [0xc3, packed @ ..] => {
            *rest = packed;
            let (packed, full) = (length(rest)?, length(rest)?);
            decompress(rest.get(..packed).ok_or(BAD_FORMAT)?, full)
        }
        _ => {
            let length = length(rest)?;
            let value = rest.get(..length).ok_or(BAD_FORMAT)?;
            if length > VALUE_BYTES_MAX { Err(TOO_LONG) } else { Ok(value.to_vec()) }
        }
    }
}

/// A length of 6, 14, 32 or 64 bits.
fn length(rest: &mut &[u8]) -> Result<usize, &'static str> {
    let (first, more) = rest.split_first().ok_or(BAD_FORMAT)?;
    let (count, high) = match first {
        0..=0x3f => (0, first & 0x3f),
        0x40..=0x7f => (1, first & 0x3f),
        0x80 => (4, 0),
        0x81 => (8, 0),
        _ => return Err(BAD_FORMAT),
    };
    let (bytes, after) = more.split_at_checked(count).ok_or(BAD_FORMAT)?;
    *rest = after;
    let number = bytes.iter().fold(u64::from(high), |sum, &byte| sum << 8 | u64::from(byte));
    usize::try_from(number).map_err(|_| BAD_FORMAT)
}

/// LZF: stretches of literal bytes, and references to what came at most 8 KiB before.
fn decompress(mut packed: &[u8], length: usize) -> Result<Vec<u8>, &'static str> {
    if length > VALUE_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let mut out = Vec::with_capacity(length);
    while let Some((&control, rest)) = packed.split_first() {
        if control < 32 {
            let (literal, rest) =
                rest.split_at_checked(usize::from(control) + 1).ok_or(BAD_FORMAT)?;
            out.extend_from_slice(literal);
            packed = rest;
        } else {
            let (count, rest) = match (control >> 5, rest) {
                (7, [more, rest @ ..]) => (usize::from(*more) + 9, rest),
                (count, rest) => (usize::from(count) + 2, rest),
            };
            let (low, rest) = rest.split_first().ok_or(BAD_FORMAT)?;
            let distance = usize::from(control & 0x1f) << 8 | usize::from(*low);
            let from = out.len().checked_sub(distance + 1).ok_or(BAD_FORMAT)?;
            // It may refer to what it makes itself.
            for at in from..from + count {
                out.push(out[at]);
            }
            packed = rest;
        }
        if out.len() > length {
            return Err(BAD_FORMAT);
        }
    }
    if out.len() == length { Ok(out) } else { Err(BAD_FORMAT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A payload with this body.
    fn sealed(body: &[u8], version: u16) -> Vec<u8> {
        let mut payload = body.to_vec();
        payload.extend(version.to_le_bytes());
        let sum = checksum(0, &payload);
        payload.extend(sum.to_le_bytes());
        payload
    }

    proptest! {
        #[test]
        fn what_is_dumped_is_restored(value in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            (-70000..70000i64).prop_map(|number| number.to_string().into_bytes()),
            any::<i64>().prop_map(|number| number.to_string().into_bytes()),
            (16_000..17_000usize).prop_map(|length| vec![b'x'; length]),
        ]) {
            prop_assert_eq!(restore(&dump(&value)), Ok(value));
        }

        #[test]
        fn a_changed_byte_is_noticed(
            value in any::<[u8; 20]>(),
            at in 0..32usize,
            by in 1..=255u8,
        ) {
            let mut payload = dump(&value);
            payload[at] ^= by;
            prop_assert_eq!(restore(&payload), Err(BAD_CHECKSUM));
        }

        #[test]
        fn no_body_is_too_much(
            mut body in prop::collection::vec(any::<u8>(), 0..60),
            packed: bool,
        ) {
            if packed {
                body.splice(0..0, [STRING, 0xc3]);
            }
            let _ = restore(&sealed(&body, VERSION));
        }
    }

    #[test]
    fn payloads_as_redis_makes_them() {
        // `DUMP` of "hello", of 100 x and of "abcabc..." (60 bytes), by redis-server 7.0.15.
        assert_eq!(checksum(0, b"123456789"), 0xe9c6_d914_c4b8_d9ca);
        assert_eq!(dump(b"hello")[..8], *b"\0\x05hello\x0a");
        let hundred = sealed(b"\0\xc3\x09\x40\x64\x01xx\xe0\x57\0\x01xx", VERSION);
        assert_eq!(restore(&hundred), Ok(vec![b'x'; 100]));
    }

    #[test]
    fn broken_bodies_are_refused() {
        for body in [
            &b""[..],
            b"\0",
            b"\0\x05hell",
            b"\0\x40",
            b"\0\x80\0\0",
            b"\0\x82",
            b"\0\xc0",
            b"\0\xc2\0\0",
            b"\0\xc3\x02\x05\x00",
            // A reference to what was before its beginning.
            b"\0\xc3\x03\x05\x20\x05a",
            // Less, and more, than it says.
            b"\0\xc3\x02\x05\0a",
            b"\0\xc3\x03\x01\x01aa",
            b"\xff",
        ] {
            assert_eq!(restore(&sealed(body, VERSION)), Err(BAD_FORMAT), "{body:?}");
        }
        assert_eq!(restore(&sealed(b"\0\x01x", VERSION + 1)), Err(BAD_CHECKSUM));
        assert_eq!(restore(&sealed(b"\0\x01x", 1)), Ok(b"x".to_vec()));
        assert_eq!(restore(b"short"), Err(BAD_CHECKSUM));
        assert!(
            restore(&sealed(b"\x01\x01\x01x", VERSION)).is_err_and(|text| text.contains("only"))
        );
        let long = sealed(b"\0\xc3\x01\x80\x00\x10\x00\x01x", VERSION);
        assert_eq!(restore(&long), Err(TOO_LONG));
    }
}
