//! As much of Redis' protocol (RESP2) as the demo's load speaks: commands as arrays of bulk
//! strings, and the replies of SET and GET.

use anyhow::{Context as _, bail};
use switchback_gateway::resp::write;

/// Longer replies are no answer to what the load asks.
const REPLY_BYTES_MAX: usize = 1 << 20;

/// A reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    Simple(String),
    Error(String),
    Bulk(Vec<u8>),
    Nothing,
}

/// Appends a command.
pub(super) fn command(output: &mut Vec<u8>, arguments: &[&[u8]]) {
    write::array(output, arguments.len());
    arguments.iter().for_each(|argument| write::bulk(output, argument));
}

/// Replies of a connection, which come in pieces.
#[derive(Default)]
pub(super) struct Replies {
    bytes: Vec<u8>,
    taken: usize,
}

impl Replies {
    /// Adds what was received.
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// The next reply, if all of it is there.
    ///
    /// # Errors
    /// What was received is no reply to SET or GET.
    pub(super) fn next(&mut self) -> anyhow::Result<Option<Reply>> {
        let rest = &self.bytes[self.taken..];
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            anyhow::ensure!(rest.len() <= REPLY_BYTES_MAX, "a reply is too long");
            return Ok(None);
        };
        let line = std::str::from_utf8(&rest[..end]).context("a reply is no text")?;
        let (mut length, after) = (end + 2, &rest[end + 2..]);
        let reply = match line.split_at_checked(1) {
            Some(("+", text)) => Reply::Simple(text.to_owned()),
            Some(("-", text)) => Reply::Error(text.to_owned()),
            Some(("$", "-1")) => Reply::Nothing,
            Some(("$", bytes)) => {
                let bytes: usize = bytes.parse().context("a reply's length")?;
                anyhow::ensure!(bytes <= REPLY_BYTES_MAX, "a reply is too long");
                if after.len() < bytes + 2 {
                    return Ok(None);
                }
                length += bytes + 2;
                Reply::Bulk(after[..bytes].to_owned())
            }
            _ => bail!("{line:?} is no reply to what was asked"),
        };
        self.taken += length;
        Ok(Some(reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_an_array_of_bulk_strings() {
        let mut output = Vec::new();
        command(&mut output, &[b"SET", b"k", b"a\r\nb"]);
        assert_eq!(output, b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n");
    }

    #[test]
    fn replies_are_found_wherever_the_pieces_end() {
        let bytes = b"+OK\r\n$4\r\na\r\nb\r\n$-1\r\n-TRYAGAIN later\r\n$0\r\n\r\n";
        let expected = [
            Reply::Simple("OK".into()),
            Reply::Bulk(b"a\r\nb".to_vec()),
            Reply::Nothing,
            Reply::Error("TRYAGAIN later".into()),
            Reply::Bulk(Vec::new()),
        ];
        for size in 1..=bytes.len() {
            let mut replies = Replies::default();
            let mut found = Vec::new();
            for piece in bytes.chunks(size) {
                replies.add(piece);
                while let Some(reply) = replies.next().unwrap() {
                    found.push(reply);
                }
            }
            assert_eq!(found, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn what_is_no_reply_is_an_error() {
        for bytes in ["*1\r\n", ":1\r\n", "\r\n", "$x\r\n", "$99999999\r\n"] {
            let mut replies = Replies::default();
            replies.add(bytes.as_bytes());
            assert!(replies.next().is_err(), "{bytes:?}");
        }
    }
}
