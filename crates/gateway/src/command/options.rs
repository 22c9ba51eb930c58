//! Options of commands, with Redis' errors.

use crate::failure::Failure;
use crate::resp::{Args, parse_i64};
use rand::TryRng;
use rand::rngs::SysRng;

/// The error for the number of a database that fits no C `int`.
pub(crate) const OUT_OF_INT: &str =
    "ERR value is out of range, value must between -2147483648 and 2147483647";

/// On what a SET or DELEX depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OnlyIf {
    Always,
    Missing,
    Exists,
    /// The value is the expected one.
    Equal,
    /// It isn't, or there is none.
    Unequal,
}

/// What becomes of a record's expiry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expiry {
    /// Stays.
    Keep,
    /// Goes: 0; or is this, in milliseconds since the Unix epoch.
    At(u64),
    /// Can't be; which only matters if the record is there (GETEX).
    Invalid { not_an_integer: bool },
}

/// Options of SET.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SetOptions {
    pub(crate) only_if: OnlyIf,
    pub(crate) get: bool,
    pub(crate) expiry: Expiry,
}

impl SetOptions {
    /// Those of a record without expiry.
    pub(crate) fn plain(only_if: OnlyIf, get: bool) -> SetOptions {
        SetOptions { only_if, get, expiry: Expiry::At(0) }
    }
}

/// On what an EXPIRE depends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ExpireIf {
    pub(crate) none: bool,
    pub(crate) some: bool,
    pub(crate) greater: bool,
    pub(crate) less: bool,
}

/// A unit of time, and whether it counts from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unit {
    pub(crate) seconds: bool,
    pub(crate) relative: bool,
}

impl Unit {
    /// The unit of an EX, PX, EXAT or PXAT option.
    fn of(option: &[u8]) -> Option<Unit> {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let (seconds, relative) = match () {
            () if is("ex") => (true, true),
            () if is("px") => (false, true),
            () if is("exat") => (true, false),
            () if is("pxat") => (false, false),
            () => return None,
        };
        Some(Unit { seconds, relative })
    }

    /// The instant that `number` means, in milliseconds since the Unix epoch; `None` if that
    /// overflows.
    pub(crate) fn instant(self, number: i64, now_ms: u64) -> Option<i64> {
        let ms = if self.seconds { number.checked_mul(1000)? } else { number };
        if self.relative { ms.checked_add(i64::try_from(now_ms).ok()?) } else { Some(ms) }
    }

    /// An expiry that must lie after the epoch, for all but EXPIRE and its like.
    pub(crate) fn expiry(
        self,
        text: &[u8],
        now_ms: u64,
        command: &'static str,
    ) -> Result<Expiry, Failure> {
        let number = parse_i64(text).ok_or(Failure::NotAnInteger)?;
        let instant = if number > 0 { self.instant(number, now_ms) } else { None };
        instant.map(|ms| Expiry::At(ms as u64)).ok_or(Failure::ExpireTime(command))
    }
}

/// The time that the option at `at` sets by the argument after it, if it is one that may follow the
/// `earlier`: the last of a kind counts.
fn time_at<'a>(
    args: Args<'a>,
    at: usize,
    earlier: Option<(Unit, &[u8])>,
) -> Option<(Unit, &'a [u8])> {
    let unit = Unit::of(args.get(at))?;
    let may_follow = earlier.is_none_or(|(earlier, _)| earlier == unit);
    (may_follow && at + 1 < args.len()).then(|| (unit, args.get(at + 1)))
}

/// Whether COPY replaces what is there.
pub(crate) fn copy(args: Args<'_>) -> Result<bool, Failure> {
    let mut replaces = false;
    let mut at = 3;
    while at < args.len() {
        let is = |name: &str| args.get(at).eq_ignore_ascii_case(name.as_bytes());
        if is("replace") {
            replaces = true;
        } else if is("db") && at + 1 < args.len() {
            at += 1;
            match parse_i64(args.get(at)) {
                Some(0) => {}
                Some(number) if i32::try_from(number).is_ok() => {
                    return Err(Failure::Static("ERR DB index is out of range"));
                }
                Some(_) => return Err(Failure::Static(OUT_OF_INT)),
                None => return Err(Failure::NotAnInteger),
            }
        } else {
            return Err(Failure::Syntax);
        }
        at += 1;
    }
    Ok(replaces)
}

/// Options of SET, from argument 3 on, and the value that they compare with.
#[inline]
pub(crate) fn set<'a>(args: Args<'a>, now_ms: u64) -> Result<(SetOptions, &'a [u8]), Failure> {
    let mut options = SetOptions::plain(OnlyIf::Always, false);
    let mut time: Option<(Unit, &[u8])> = None;
    let mut expected = &[][..];
    let mut at = 3;
    while at < args.len() {
        let option = args.get(at);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        let may_be = |only_if| [OnlyIf::Always, only_if].contains(&options.only_if);
        if is("nx") && may_be(OnlyIf::Missing) {
            options.only_if = OnlyIf::Missing;
        } else if is("xx") && may_be(OnlyIf::Exists) {
            options.only_if = OnlyIf::Exists;
        } else if let Some(only_if) = comparison(option)
            && options.only_if == OnlyIf::Always
            && at + 1 < args.len()
        {
            options.only_if = only_if;
            at += 1;
            expected = args.get(at);
        } else if is("get") {
            options.get = true;
        } else if is("keepttl") && time.is_none() {
            options.expiry = Expiry::Keep;
        } else if let Some(later) = time_at(args, at, time)
            && options.expiry != Expiry::Keep
        {
            at += 1;
            time = Some(later);
        } else {
            return Err(Failure::Syntax);
        }
        at += 1;
    }
    // Only a well-formed command complains about its numbers.
    if let Some((unit, text)) = time {
        options.expiry = unit.expiry(text, now_ms, "set")?;
    }
    Ok((options, expected))
}

fn comparison(option: &[u8]) -> Option<OnlyIf> {
    match () {
        () if option.eq_ignore_ascii_case(b"ifeq") => Some(OnlyIf::Equal),
        () if option.eq_ignore_ascii_case(b"ifne") => Some(OnlyIf::Unequal),
        () => None,
    }
}

/// The condition of DELEX, and the value that it compares with.
pub(crate) fn delex<'a>(args: Args<'a>) -> Result<(OnlyIf, &'a [u8]), Failure> {
    match args.len() {
        2 => Ok((OnlyIf::Always, &[])),
        4 => {
            let only_if = comparison(args.get(2))
                .ok_or(Failure::Static("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE"))?;
            Ok((only_if, args.get(3)))
        }
        _ => Err(Failure::Static("ERR wrong number of arguments for 'delex' command")),
    }
}

/// Options of RESTORE, from argument 4 on, and its time: whether it replaces a record, and the
/// expiry in milliseconds since the epoch (0: none), or its error, which only matters if the record
/// isn't there or is replaced.
pub(crate) fn restore(
    args: Args<'_>,
    now_ms: u64,
) -> Result<(bool, Result<u64, &'static str>), Failure> {
    let (mut replaces, mut relative) = (false, true);
    let (mut has_idle_time, mut has_frequency) = (false, false);
    let mut at = 4;
    while at < args.len() {
        let is = |name: &str| args.get(at).eq_ignore_ascii_case(name.as_bytes());
        // How long ago and how often a key was used isn't kept here, so both are only checked. As
        // Redis does, it takes one or the other.
        let number = |range: std::ops::RangeInclusive<i64>, text| {
            let number = parse_i64(args.get(at + 1)).ok_or(Failure::NotAnInteger)?;
            if range.contains(&number) { Ok(()) } else { Err(Failure::Static(text)) }
        };
        if is("replace") {
            replaces = true;
        } else if is("absttl") {
            relative = false;
        } else if is("idletime") && at + 1 < args.len() && !has_frequency {
            has_idle_time = true;
            number(0..=i64::MAX, "ERR Invalid IDLETIME value, must be >= 0")?;
            at += 1;
        } else if is("freq") && at + 1 < args.len() && !has_idle_time {
            has_frequency = true;
            number(0..=255, "ERR Invalid FREQ value, must be >= 0 and <= 255")?;
            at += 1;
        } else {
            return Err(Failure::Syntax);
        }
        at += 1;
    }
    let expiry_ms = match parse_i64(args.get(2)).map(u64::try_from) {
        None => Err("ERR value is not an integer or out of range"),
        Some(Err(_)) => Err("ERR Invalid TTL value, must be >= 0"),
        Some(Ok(0)) => Ok(0),
        Some(Ok(ms)) => Ok(if relative { now_ms.saturating_add(ms) } else { ms }),
    };
    Ok((replaces, expiry_ms))
}

/// Options of GETEX, from argument 2 on.
pub(crate) fn getex(args: Args<'_>, now_ms: u64) -> Result<Expiry, Failure> {
    let mut persist = false;
    let mut time: Option<(Unit, &[u8])> = None;
    let mut at = 2;
    while at < args.len() {
        let option = args.get(at);
        if option.eq_ignore_ascii_case(b"persist") && time.is_none() {
            persist = true;
        } else if let Some(later) = time_at(args, at, time)
            && !persist
        {
            at += 1;
            time = Some(later);
        } else {
            return Err(Failure::Syntax);
        }
        at += 1;
    }
    Ok(match time {
        Some((unit, text)) => unit.expiry(text, now_ms, "getex").unwrap_or_else(|failure| {
            Expiry::Invalid { not_an_integer: failure == Failure::NotAnInteger }
        }),
        None if persist => Expiry::At(0),
        None => Expiry::Keep,
    })
}

/// Options of EXPIRE and its like, from argument 3 on.
pub(crate) fn expire(args: Args<'_>) -> Result<ExpireIf, Failure> {
    let mut when = ExpireIf::default();
    for option in args.from(3) {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => when.none = true,
            b"xx" => when.some = true,
            b"gt" => when.greater = true,
            b"lt" => when.less = true,
            _ => {
                return Err(Failure::Text(format!(
                    "ERR Unsupported option {}",
                    String::from_utf8_lossy(option)
                )));
            }
        }
    }
    if when.none && (when.some || when.greater || when.less) {
        return Err(Failure::Static(
            "ERR NX and XX, GT or LT options at the same time are not compatible",
        ));
    }
    if when.greater && when.less {
        return Err(Failure::Static("ERR GT and LT options at the same time are not compatible"));
    }
    Ok(when)
}

/// What a scan looks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScanOptions {
    pub(crate) cursor: u64,
    pub(crate) count: usize,
    pub(crate) pattern: Option<Vec<u8>>,
    /// Keys of another type than string are asked for: there are none.
    pub(crate) other_type: bool,
}

/// A cursor as Redis takes it, with `strtoul`: a sign may come first, and nothing at all is 0.
fn cursor(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [] => return Some(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let cursor: u64 = digits.parse().ok()?;
    Some(if negative { cursor.wrapping_neg() } else { cursor })
}

/// The cursor and options of SCAN.
pub(crate) fn scan(args: Args<'_>) -> Result<ScanOptions, Failure> {
    let cursor = cursor(args.get(1)).ok_or(Failure::Static("ERR invalid cursor"))?;
    let mut options = ScanOptions { cursor, count: 10, pattern: None, other_type: false };
    let mut at = 2;
    while at < args.len() {
        let option = args.get(at);
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if at + 1 >= args.len() {
            return Err(Failure::Syntax);
        }
        let value = args.get(at + 1);
        if is("count") {
            let count = parse_i64(value).ok_or(Failure::NotAnInteger)?;
            options.count =
                usize::try_from(count).ok().filter(|&count| count > 0).ok_or(Failure::Syntax)?;
        } else if is("match") {
            options.pattern = Some(value.to_vec());
        } else if is("type") {
            options.other_type = !value.eq_ignore_ascii_case(b"string");
        } else {
            return Err(Failure::Syntax);
        }
        at += 2;
    }
    Ok(options)
}

/// The scan that KEYS is.
pub(crate) fn keys(pattern: &[u8]) -> ScanOptions {
    ScanOptions { cursor: 0, count: usize::MAX, pattern: Some(pattern.to_vec()), other_type: false }
}

/// The scan that RANDOMKEY is: from anywhere on. (From the beginning, should the system have no
/// random number.)
pub(crate) fn random_key() -> ScanOptions {
    let cursor = SysRng.try_next_u64().unwrap_or(0);
    ScanOptions { cursor, count: 1, pattern: None, other_type: false }
}
