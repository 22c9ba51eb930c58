//! SLOWLOG.

use super::{Verb, no_subcommand, ok, wrong_arity, wrong_syntax};
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse};
use crate::failure::ErrorKind;
use crate::resp::{Args, parse_i64, write};
use crate::running::Running;
use crate::shared::Shared;

/// Entries that GET shows, if it isn't said how many.
const SHOWN: usize = 10;

pub(crate) fn slowlog(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let log = &shared.slow_log;
    match (args.get(1).to_ascii_lowercase().as_slice(), args.len()) {
        (b"reset", 2) => {
            log.clear();
            ok(running, id, Verb::SlowLog);
        }
        (b"len", 2) => {
            let length = log.len() as i64;
            answer_here(running, id, Some(Verb::SlowLog), |out, _| write::integer(out, length));
        }
        (b"get", 2 | 3) => {
            let count = match args.len() {
                2 => Some(SHOWN),
                _ => match parse_i64(args.get(2)) {
                    Some(-1) => Some(usize::MAX),
                    Some(count) => usize::try_from(count).ok(),
                    None => None,
                },
            };
            let Some(count) = count else {
                let text = "ERR count should be greater than or equal to -1";
                return refuse(running, id, ErrorKind::Command, text);
            };
            let entries = log.last(count);
            answer_here(running, id, Some(Verb::SlowLog), |out, _| {
                write::array(out, entries.len());
                for entry in &entries {
                    write::array(out, 6);
                    write::integer(out, entry.number);
                    write::integer(out, entry.unix_s as i64);
                    write::integer(out, entry.took_us as i64);
                    write::array(out, entry.words.len());
                    entry.words.iter().for_each(|word| write::bulk(out, word));
                    write::bulk(out, entry.peer.as_bytes());
                    write::bulk(out, &entry.name);
                }
            });
        }
        (b"reset", _) => wrong_arity(running, id, "slowlog|reset"),
        (b"len", _) => wrong_arity(running, id, "slowlog|len"),
        (b"get", _) => wrong_syntax(running, id, Verb::SlowLog, args.get(1)),
        _ => no_subcommand(running, shared, id, args),
    }
}
