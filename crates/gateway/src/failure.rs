//! What goes wrong with a command, in Redis' words wherever Redis has words for it.

use std::borrow::Cow;
use thiserror::Error;

/// Why a command failed. Its text is the error reply.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub(crate) enum Failure {
    #[error("ERR syntax error")]
    Syntax,
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    #[error("ERR value is not a valid float")]
    NotAFloat,
    #[error("ERR increment would produce NaN or Infinity")]
    NotFinite,
    #[error("ERR increment or decrement would overflow")]
    Overflow,
    #[error("ERR invalid expire time in '{0}' command")]
    ExpireTime(&'static str),
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    ValueLength,
    #[error("ERR a command has at most {0} bytes")]
    CommandLength(usize),
    #[error("ERR a key has 1 to {} bytes", switchback_wire::KEY_BYTES_MAX)]
    KeyLength,
    #[error(
        "INDETERMINATE the write may or may not have happened: no answer came within {0} ms, or the switch was replaced meanwhile"
    )]
    Indeterminate(u64),
    #[error(
        "INDETERMINATE all writes of this transaction or script happened, or none did: no answer came within {0} ms, or the switch was replaced meanwhile"
    )]
    IndeterminateProgram(u64),
    #[error("TIMEOUT no answer from the rack within {0} ms; nothing was changed")]
    TimedOut(u64),
    #[error(
        "INDETERMINATE disk full on the node of this key: it refused the write, but a copy that is still on its way may find room"
    )]
    NoSpace,
    #[error("ERR others kept writing this key: gave up after {0} attempts, nothing was changed")]
    Contended(u32),
    #[error(
        "TRYAGAIN others kept writing this key: gave up after {0} attempts, nothing was changed"
    )]
    Overtaken(u32),
    #[error("ERR the transaction or script ran for more than {0} ms; nothing was changed")]
    TooSlow(u64),
    #[error("ERR no session with the rack's controller for {0} ms; nothing was sent")]
    NoSession(u64),
    #[error("ERR too many requests under way for {0} ms; nothing was sent")]
    Busy(u64),
    #[error(
        "ERR backpressure: writes wait for a snapshot to become durable, this one for {0} ms; nothing was sent"
    )]
    Backpressure(u64),
    #[error("ERR more than {0} keys match; use SCAN")]
    TooManyKeys(usize),
    #[error("ERR the reply would be longer than {0} bytes")]
    ReplyLength(usize),
    #[error("ERR '{0}' is not supported by Switchback in a transaction or script of one key")]
    NotOfOneKey(&'static str),
    #[error("ERR '{0}' is not supported by Switchback in a transaction")]
    NotInTransaction(&'static str),
    #[error("ERR a transaction has at most {commands} commands of {bytes} bytes together")]
    TransactionLength { commands: usize, bytes: usize },
    #[error("{0}")]
    Unsupported(&'static str),
    #[error("MISCONF {0}; nothing was written")]
    Spool(String),
    #[error("NOSCRIPT No matching script. Please use EVAL.")]
    NoScript,
    #[error("ERR a script has at most {0} keys")]
    TooManyScriptKeys(usize),
    #[error(
        "INDETERMINATE others wrote key {0} of this script meanwhile: its writes to the keys before that have happened, those to the others have not"
    )]
    Torn(usize),
    #[error("ERR the values of a script's keys have more than {0} bytes together")]
    FoundLength(usize),
    #[error("INDETERMINATE some writes of this command have happened, others may or may not: {0}")]
    Partly(String),
    #[error("ERR the script used more than {0} MiB of memory; nothing was changed")]
    ScriptMemory(usize),
    #[error("{0}")]
    Static(&'static str),
    #[error("{0}")]
    Text(String),
}

/// Failures as they are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum ErrorKind {
    /// The client asked for something wrong: syntax, arity, a value that is no integer...
    Command,
    /// A command that Switchback doesn't have.
    Unsupported,
    /// The stream couldn't be parsed; the connection was closed.
    Protocol,
    /// No or the wrong password.
    Auth,
    /// A write that may or may not have happened.
    Indeterminate,
    /// No answer to a read.
    Timeout,
    /// A node's disk is full: a write that most probably didn't happen.
    NoSpace,
    /// A read-modify-write that lost against other writers too often.
    Contended,
    /// No session with the controller.
    NoSession,
    /// No free lane for too long.
    Busy,
    /// No room to preserve writes for too long.
    Backpressure,
    /// The spool couldn't be written.
    Spool,
    /// Key, value or reply too long.
    Length,
    /// A connection over the limit of clients.
    MaxClients,
    /// A connection that was closed because it used too much memory.
    Memory,
    /// A connection whose TLS failed: no certificate that is accepted, plain text, damage.
    Tls,
}

impl ErrorKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [ErrorKind; 16] = [
        ErrorKind::Command,
        ErrorKind::Unsupported,
        ErrorKind::Protocol,
        ErrorKind::Auth,
        ErrorKind::Indeterminate,
        ErrorKind::Timeout,
        ErrorKind::NoSpace,
        ErrorKind::Contended,
        ErrorKind::NoSession,
        ErrorKind::Busy,
        ErrorKind::Backpressure,
        ErrorKind::Spool,
        ErrorKind::Length,
        ErrorKind::MaxClients,
        ErrorKind::Memory,
        ErrorKind::Tls,
    ];

    /// A label for metrics.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Command => "command",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Protocol => "protocol",
            ErrorKind::Auth => "auth",
            ErrorKind::Indeterminate => "indeterminate",
            ErrorKind::Timeout => "timeout",
            ErrorKind::NoSpace => "no_space",
            ErrorKind::Contended => "contended",
            ErrorKind::NoSession => "no_session",
            ErrorKind::Busy => "busy",
            ErrorKind::Backpressure => "backpressure",
            ErrorKind::Spool => "spool",
            ErrorKind::Length => "length",
            ErrorKind::MaxClients => "max_clients",
            ErrorKind::Memory => "memory",
            ErrorKind::Tls => "tls",
        }
    }
}

impl Failure {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Failure::Indeterminate(_)
            | Failure::IndeterminateProgram(_)
            | Failure::Torn(_)
            | Failure::Partly(_) => ErrorKind::Indeterminate,
            Failure::TimedOut(_) => ErrorKind::Timeout,
            Failure::NoSpace => ErrorKind::NoSpace,
            Failure::Contended(_) | Failure::Overtaken(_) => ErrorKind::Contended,
            Failure::NoSession(_) => ErrorKind::NoSession,
            Failure::Busy(_) => ErrorKind::Busy,
            Failure::Backpressure(_) => ErrorKind::Backpressure,
            Failure::ValueLength
            | Failure::CommandLength(_)
            | Failure::FoundLength(_)
            | Failure::KeyLength
            | Failure::TooManyKeys(_)
            | Failure::TooSlow(_)
            | Failure::ScriptMemory(_)
            | Failure::TransactionLength { .. }
            | Failure::TooManyScriptKeys(_)
            | Failure::ReplyLength(_) => ErrorKind::Length,
            Failure::NotOfOneKey(_) | Failure::NotInTransaction(_) | Failure::Unsupported(_) => {
                ErrorKind::Unsupported
            }
            Failure::Spool(_) => ErrorKind::Spool,
            _ => ErrorKind::Command,
        }
    }

    /// Whether a write may have happened all the same.
    pub(crate) fn is_unknown_outcome(&self) -> bool {
        matches!(self.kind(), ErrorKind::Indeterminate | ErrorKind::NoSpace)
    }

    /// The same of a command of which some writes have happened: that nothing was changed, or sent,
    /// isn't true then.
    pub(crate) fn partly(&self) -> Failure {
        let text = self.text();
        let reason = text.split_once(' ').map_or(&*text, |(_, reason)| reason);
        let denials = ["; nothing was ", ", nothing was "];
        let end = denials.iter().filter_map(|denial| reason.find(denial)).min();
        Failure::Partly(reason[..end.unwrap_or(reason.len())].to_owned())
    }

    /// The error reply, without its `-`.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        match self {
            Failure::Static(text) => Cow::Borrowed(text),
            other => Cow::Owned(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_happened_in_part_denies_nothing() {
        let begin =
            "INDETERMINATE some writes of this command have happened, others may or may not: ";
        for (failure, reason) in [
            (Failure::TimedOut(5), "no answer from the rack within 5 ms"),
            (Failure::Busy(5), "too many requests under way for 5 ms"),
            (Failure::Contended(9), "others kept writing this key: gave up after 9 attempts"),
            (Failure::ReplyLength(7), "the reply would be longer than 7 bytes"),
        ] {
            let partly = failure.partly();
            assert_eq!(partly.text(), format!("{begin}{reason}"));
            assert_eq!(partly.kind(), ErrorKind::Indeterminate);
        }
    }
}
