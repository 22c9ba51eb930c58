//! The request parser: incremental, without copies. A command's arguments are ranges of the
//! connection's input buffer, and what was parsed of an unfinished command is not parsed again when
//! more of it arrives.

use super::args::{Args, Range};
use super::{inline, parse_i64};
use memchr::memchr;
use thiserror::Error;

/// Digits of nearly all lengths.
const SHORT_LENGTH: usize = 4;

/// What one command may be.
#[derive(Clone, Debug)]
pub struct ParserLimits {
    /// Arguments of a command; more break the connection.
    pub args_max: usize,
    /// Bytes of an argument; a longer one is read and thrown away, and the command refused.
    pub bulk_max: usize,
    /// Bytes of an argument; a longer one breaks the connection.
    pub bulk_hard_max: usize,
    /// Bytes of an inline command, or of a line that is to say a length.
    pub inline_max: usize,
    /// These are the limits of a connection that hasn't shown a password yet.
    pub unauthenticated: bool,
}

impl Default for ParserLimits {
    fn default() -> ParserLimits {
        ParserLimits {
            args_max: 1 << 20,
            bulk_max: 1 << 20,
            bulk_hard_max: 512 << 20,
            inline_max: 64 << 10,
            unauthenticated: false,
        }
    }
}

impl ParserLimits {
    /// What Redis grants before authentication.
    pub fn unauthenticated() -> ParserLimits {
        ParserLimits {
            args_max: 10,
            bulk_max: 16_384,
            bulk_hard_max: 16_384,
            unauthenticated: true,
            ..ParserLimits::default()
        }
    }
}

/// The stream can't be followed any more; the connection has to be closed. The texts are Redis'.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs)]
pub enum ProtocolError {
    #[error("Protocol error: invalid multibulk length")]
    MultibulkLength,
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    #[error("Protocol error: expected '$', got '{}'", char::from(*.0))]
    ExpectedBulk(u8),
    #[error("Protocol error: too big mbulk count string")]
    MultibulkLine,
    #[error("Protocol error: too big bulk count string")]
    BulkLine,
    #[error("Protocol error: too big inline request")]
    InlineLength,
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
}

/// What [`Parser::next`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// More bytes are needed: this many from the start of the input, as far as is known.
    Incomplete {
        /// Input length to try again with, at least.
        wants: usize,
    },
    /// These bytes are done with, and there is nothing to execute.
    Skip {
        /// How many.
        consumed: usize,
    },
    /// A whole command; see [`Parser::args`]. It is found again until [`Parser::done`].
    Command {
        /// Its length in the input.
        consumed: usize,
    },
    /// A command with an argument longer than allowed has passed; it has to be answered with an
    /// error.
    Rejected,
}

/// The parser of one connection. Offsets count from the first byte that wasn't consumed.
#[derive(Debug, Default)]
pub struct Parser {
    ranges: Vec<Range>,
    inline: Vec<u8>,
    is_inline: bool,
    /// Arguments still to come.
    left: usize,
    /// Parsed up to here.
    at: usize,
    /// The header of the next argument was read: its length.
    bulk: Option<usize>,
    complete: bool,
    /// The command is being thrown away: bytes of the current argument that are still to come.
    rejecting: Option<usize>,
}

impl Parser {
    /// Whether [`Parser::next`] has something to say without any further input.
    pub fn is_due(&self) -> bool {
        self.complete || (self.rejecting == Some(0) && self.left == 0)
    }

    /// Looks for the next command in `input`, the bytes not yet consumed.
    #[inline]
    pub fn next(&mut self, input: &[u8], limits: &ParserLimits) -> Result<Parsed, ProtocolError> {
        if self.complete {
            return Ok(Parsed::Command { consumed: self.at });
        }
        if self.rejecting.is_some() {
            return self.reject(input, limits);
        }
        if self.left == 0 {
            match input.first() {
                None => return Ok(Parsed::Incomplete { wants: 1 }),
                Some(b'*') => {}
                Some(_) => return self.next_inline(input, limits),
            }
            let Some((count, end)) = length_line(input, 0, limits, ProtocolError::MultibulkLine)?
            else {
                return Ok(Parsed::Incomplete { wants: input.len() + 1 });
            };
            let count = count.ok_or(ProtocolError::MultibulkLength)?;
            if count > limits.args_max as i64 {
                return Err(match limits.unauthenticated {
                    true => ProtocolError::UnauthenticatedMultibulkLength,
                    false => ProtocolError::MultibulkLength,
                });
            }
            if count <= 0 {
                return Ok(Parsed::Skip { consumed: end });
            }
            self.left = count as usize;
            self.at = end;
            self.is_inline = false;
        }
        self.arguments(input, limits)
    }

    #[inline]
    fn arguments(&mut self, input: &[u8], limits: &ParserLimits) -> Result<Parsed, ProtocolError> {
        while self.left > 0 {
            let length = match self.bulk {
                Some(length) => length,
                None => match bulk_line(input, self.at, limits)? {
                    None => return Ok(Parsed::Incomplete { wants: input.len() + 1 }),
                    Some((length, end)) => {
                        self.at = end;
                        if length > limits.bulk_max {
                            return Ok(self.begin_reject(length));
                        }
                        self.bulk = Some(length);
                        length
                    }
                },
            };
            let end = self.at + length;
            if input.len() < end + 2 {
                return Ok(Parsed::Incomplete { wants: end + 2 });
            }
            self.ranges.push(Range::new(self.at, end));
            self.at = end + 2;
            self.bulk = None;
            self.left -= 1;
        }
        self.complete = true;
        Ok(Parsed::Command { consumed: self.at })
    }

    fn begin_reject(&mut self, length: usize) -> Parsed {
        let consumed = std::mem::take(&mut self.at);
        self.ranges.clear();
        self.left -= 1;
        self.rejecting = Some(length + 2);
        Parsed::Skip { consumed }
    }

    /// Throws away what belongs to a command that is too long, as it arrives.
    fn reject(&mut self, input: &[u8], limits: &ParserLimits) -> Result<Parsed, ProtocolError> {
        let skip = self.rejecting.unwrap_or(0);
        if skip > 0 {
            let consumed = skip.min(input.len());
            self.rejecting = Some(skip - consumed);
            return Ok(if consumed == 0 {
                Parsed::Incomplete { wants: 1 }
            } else {
                Parsed::Skip { consumed }
            });
        }
        if self.left == 0 {
            self.rejecting = None;
            return Ok(Parsed::Rejected);
        }
        let Some((length, end)) = bulk_line(input, 0, limits)? else {
            return Ok(Parsed::Incomplete { wants: input.len() + 1 });
        };
        self.left -= 1;
        self.rejecting = Some(length + 2);
        Ok(Parsed::Skip { consumed: end })
    }

    fn next_inline(
        &mut self,
        input: &[u8],
        limits: &ParserLimits,
    ) -> Result<Parsed, ProtocolError> {
        // What was searched before isn't searched again.
        let Some(newline) = memchr(b'\n', &input[self.at..]).map(|at| at + self.at) else {
            if input.len() > limits.inline_max {
                return Err(ProtocolError::InlineLength);
            }
            self.at = input.len();
            return Ok(Parsed::Incomplete { wants: input.len() + 1 });
        };
        if newline > limits.inline_max {
            return Err(ProtocolError::InlineLength);
        }
        let line = input[..newline].strip_suffix(b"\r").unwrap_or(&input[..newline]);
        self.inline.clear();
        if !inline::split(line, &mut self.inline, &mut self.ranges) {
            return Err(ProtocolError::Quotes);
        }
        self.at = 0;
        if self.ranges.is_empty() {
            return Ok(Parsed::Skip { consumed: newline + 1 });
        }
        self.at = newline + 1;
        self.is_inline = true;
        self.complete = true;
        Ok(Parsed::Command { consumed: self.at })
    }

    /// The arguments of the command that was just found in `input`.
    #[inline]
    pub fn args<'a>(&'a self, input: &'a [u8]) -> Args<'a> {
        let bytes = if self.is_inline { &self.inline[..] } else { input };
        Args::new(bytes, &self.ranges)
    }

    /// The command that was found is dealt with; the caller consumes its bytes.
    #[inline]
    pub fn done(&mut self) {
        self.complete = false;
        self.at = 0;
        self.ranges.clear();
        // A long command must not leave its bookkeeping behind on an idle connection.
        if self.ranges.capacity() > 1024 {
            self.ranges = Vec::new();
        }
        if self.inline.capacity() > 1024 {
            self.inline = Vec::new();
        }
    }

    /// Bytes of memory.
    pub fn memory(&self) -> usize {
        self.ranges.capacity() * size_of::<Range>() + self.inline.capacity()
    }
}

/// A `$` line at `from`: the length and where the argument begins.
#[inline]
fn bulk_line(
    input: &[u8],
    from: usize,
    limits: &ParserLimits,
) -> Result<Option<(usize, usize)>, ProtocolError> {
    match input.get(from) {
        None => return Ok(None),
        Some(b'$') => {}
        Some(&other) => return Err(ProtocolError::ExpectedBulk(other)),
    }
    let Some((length, end)) = length_line(input, from, limits, ProtocolError::BulkLine)? else {
        return Ok(None);
    };
    let length =
        length.and_then(|length| usize::try_from(length).ok()).ok_or(ProtocolError::BulkLength)?;
    if length > limits.bulk_hard_max {
        return Err(match limits.unauthenticated {
            true => ProtocolError::UnauthenticatedBulkLength,
            false => ProtocolError::BulkLength,
        });
    }
    Ok(Some((length, end)))
}

/// The number that `line` is, and its digits, if they are few, the common case, and the line is
/// whole.
#[inline]
fn short_length(line: &[u8]) -> Option<(u32, usize)> {
    let mut number = 0;
    for (at, &byte) in line.iter().take(SHORT_LENGTH + 1).enumerate() {
        match byte {
            b'0'..=b'9' if at < SHORT_LENGTH => number = 10 * number + u32::from(byte - b'0'),
            b'\r' if at > 0 && (at == 1 || line[0] != b'0') && at + 1 < line.len() => {
                return Some((number, at));
            }
            _ => break,
        }
    }
    None
}

/// The number after the first byte of the line at `from` (`None` if it is none), and where the next
/// line begins.
#[inline]
fn length_line(
    input: &[u8],
    from: usize,
    limits: &ParserLimits,
    too_long: ProtocolError,
) -> Result<Option<(Option<i64>, usize)>, ProtocolError> {
    let line = &input[from + 1..];
    if let Some((length, end)) = short_length(line) {
        return Ok(Some((Some(length.into()), from + 1 + end + 2)));
    }
    match memchr(b'\r', &line[..line.len().min(limits.inline_max)]) {
        None if line.len() >= limits.inline_max => Err(too_long),
        None => Ok(None),
        // The line feed must have arrived; which byte it is isn't checked, as in Redis.
        Some(end) if end + 1 >= line.len() => Ok(None),
        Some(end) => Ok(Some((parse_i64(&line[..end]), from + 1 + end + 2))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, PartialEq, Debug)]
    enum Event {
        Command(Vec<Vec<u8>>),
        Rejected,
        Error(ProtocolError),
    }

    /// Feeds `stream` in the given pieces, as a connection does.
    fn parse(stream: &[u8], cuts: &[usize], limits: &ParserLimits) -> Vec<Event> {
        let mut parser = Parser::default();
        let (mut start, mut end) = (0, 0);
        let mut events = Vec::new();
        for cut in cuts.iter().copied().chain([stream.len()]) {
            end = end.max(cut.min(stream.len()));
            loop {
                let input = &stream[start..end];
                match parser.next(input, limits) {
                    Ok(Parsed::Incomplete { wants }) => {
                        assert!(wants > input.len(), "would never go on");
                        break;
                    }
                    Ok(Parsed::Skip { consumed }) => start += consumed,
                    Ok(Parsed::Rejected) => events.push(Event::Rejected),
                    Ok(Parsed::Command { consumed }) => {
                        events.push(Event::Command(
                            parser.args(input).from(0).map(<[u8]>::to_vec).collect(),
                        ));
                        parser.done();
                        start += consumed;
                    }
                    Err(error) => {
                        events.push(Event::Error(error));
                        return events;
                    }
                }
            }
        }
        events
    }

    #[test]
    fn short_lengths_are_read_as_long_ones() {
        for text in (0..100_000)
            .map(|i| i.to_string())
            .chain(["", "-1", "00", "01", "1x"].map(String::from))
        {
            let whole = format!("{text}\r\n");
            let wanted =
                parse_i64(text.as_bytes()).filter(|_| (1..=SHORT_LENGTH).contains(&text.len()));
            let wanted =
                wanted.filter(|&length| length >= 0).map(|length| (length as u32, text.len()));
            assert_eq!(short_length(whole.as_bytes()), wanted, "{text}");
            assert_eq!(short_length(&whole.as_bytes()[..whole.len() - 1]), None, "{text}");
        }
    }

    fn command(words: &[&str]) -> Event {
        Event::Command(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    fn all(stream: &[u8]) -> Vec<Event> {
        parse(stream, &[], &ParserLimits::default())
    }

    #[test]
    fn a_pipeline_is_the_same_at_every_split_point() {
        let stream =
            b"*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$4\r\nx\r\ny\r\nping \"x y\"\r\n\r\n*0\r\n*-1\r\n\
            *2\r\n$3\r\nGET\r\n$0\r\n\r\nget a\n";
        let whole = all(stream);
        let wanted = [
            command(&["PING"]),
            command(&["SET", "a", "x\r\ny"]),
            command(&["ping", "x y"]),
            command(&["GET", ""]),
            command(&["get", "a"]),
        ];
        assert_eq!(whole, wanted);
        for first in 0..=stream.len() {
            for second in first..=stream.len() {
                assert_eq!(parse(stream, &[first, second], &ParserLimits::default()), whole);
            }
        }
        let bytewise: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(parse(stream, &bytewise, &ParserLimits::default()), whole);
    }

    #[test]
    fn what_redis_refuses() {
        use ProtocolError::*;
        for (stream, error) in [
            (&b"*x\r\n"[..], MultibulkLength),
            (b"*\r\n", MultibulkLength),
            (b"*+1\r\n", MultibulkLength),
            (b"*1048577\r\n", MultibulkLength),
            (b"*9999999999999999999999\r\n", MultibulkLength),
            (&[b"*", &[b'1'; 70][..], b"\r\n"].concat(), MultibulkLength),
            (&[b"*1\r\n$", &[b'1'; 70][..], b"\r\n"].concat(), BulkLength),
            (&[b"*", &[b'1'; 70_000][..]].concat(), MultibulkLine),
            (&[b"*1\r\n$", &[b'1'; 70_000][..]].concat(), BulkLine),
            (b"*1\r\n$-1\r\n", BulkLength),
            (b"*1\r\n$536870913\r\n", BulkLength),
            (b"*1\r\n$x\r\n", BulkLength),
            (b"*1\r\n:1\r\n", ExpectedBulk(b':')),
            (b"set \"a\r\n", Quotes),
        ] {
            assert_eq!(
                all(stream),
                [Event::Error(error)],
                "{}",
                String::from_utf8_lossy(&stream[..stream.len().min(80)])
            );
        }
        assert_eq!(all(&[b'a'; 70_000]), [Event::Error(InlineLength)]);
        let limits = ParserLimits::unauthenticated();
        assert_eq!(parse(b"*11\r\n", &[], &limits), [Event::Error(UnauthenticatedMultibulkLength)]);
        assert_eq!(
            parse(b"*1\r\n$20000\r\n", &[], &limits),
            [Event::Error(UnauthenticatedBulkLength)]
        );
    }

    #[test]
    fn an_argument_that_is_too_long_costs_its_command_only() {
        let limits = ParserLimits { bulk_max: 8, ..ParserLimits::default() };
        let stream = b"*3\r\n$3\r\nSET\r\n$9\r\n123456789\r\n$1\r\nx\r\n*1\r\n$4\r\nPING\r\n";
        for cut in 0..=stream.len() {
            assert_eq!(parse(stream, &[cut], &limits), [Event::Rejected, command(&["PING"])]);
        }
        let bytewise: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(parse(stream, &bytewise, &limits), [Event::Rejected, command(&["PING"])]);
    }

    fn encode(commands: &[Vec<Vec<u8>>]) -> Vec<u8> {
        let mut stream = Vec::new();
        for command in commands {
            stream.extend(format!("*{}\r\n", command.len()).bytes());
            for argument in command {
                stream.extend(format!("${}\r\n", argument.len()).bytes());
                stream.extend(argument);
                stream.extend(b"\r\n");
            }
        }
        stream
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn any_commands_survive_any_cuts(
            commands in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..6),
            mut cuts in prop::collection::vec(0usize..800, 0..12),
        ) {
            cuts.sort_unstable();
            let wanted: Vec<Event> = commands.iter().cloned().map(Event::Command).collect();
            prop_assert_eq!(parse(&encode(&commands), &cuts, &ParserLimits::default()), wanted);
        }

        #[test]
        fn garbage_is_parsed_alike_however_it_is_cut(
            pieces in prop::collection::vec(prop::sample::select(vec![
                "*", "$", "1", "2", "-", "9", "\r\n", "\r", "\n", "\"", "'", "\\", "x", " ", "get", "*1\r\n$1\r\n", "\0", "$12\r\n",
            ]), 0..60),
            mut cuts in prop::collection::vec(0usize..200, 0..8),
        ) {
            cuts.sort_unstable();
            let stream = pieces.concat().into_bytes();
            let limits = ParserLimits { bulk_max: 10, ..ParserLimits::default() };
            prop_assert_eq!(parse(&stream, &cuts, &limits), parse(&stream, &[], &limits));
        }
    }
}
