//! CLIENT: connections, by their numbers.

use super::{Verb, no_subcommand, ok, wrong_arity};
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse};
use crate::failure::{ErrorKind, Failure};
use crate::resp::{Args, parse_i64, write};
use crate::running::Running;
use crate::shared::{ClientInfo, Pause, Shared};
use std::time::Duration;

/// The longest CLIENT PAUSE.
const PAUSE_MS_MAX: u64 = 24 * 3600 * 1000;
pub(super) const CLIENT_NAMES: &str = "Client names";
/// Longest name of a connection or library that is kept.
const NAME_BYTES_MAX: usize = 256;

/// The error for a name of a connection or library that isn't accepted; `names` says what it
/// names.
pub(super) fn objection(names: &str, name: &[u8]) -> Option<String> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Some(format!("ERR {names} cannot contain spaces, newlines or special characters."));
    }
    (name.len() > NAME_BYTES_MAX)
        .then(|| format!("ERR {names} cannot be longer than {NAME_BYTES_MAX} bytes"))
}

pub(super) fn set_name(running: &mut Running, shared: &Shared, id: ConnectionId, name: &[u8]) {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    connection.name = name.to_vec();
    shared
        .describe(connection.number, |info| info.name = String::from_utf8_lossy(name).into_owned());
}

pub(crate) fn client(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let Some(connection) = running.outbox.replies.connections.get(id) else { return };
    let number = connection.number;
    let sub = String::from_utf8_lossy(args.get(1)).to_ascii_lowercase();
    match (sub.as_str(), args.len()) {
        ("id", 2) => {
            answer_here(running, id, Some(Verb::Client), |out, _| {
                write::integer(out, number as i64)
            });
        }
        ("getname", 2) => {
            let name = connection.name.clone();
            answer_here(running, id, Some(Verb::Client), |out, resp3| match name.is_empty() {
                true => write::null(out, resp3),
                false => write::bulk(out, &name),
            });
        }
        ("setname", 3) => match objection(CLIENT_NAMES, args.get(2)) {
            None => {
                set_name(running, shared, id, args.get(2));
                ok(running, id, Verb::Client);
            }
            Some(text) => refuse(running, id, ErrorKind::Command, &text),
        },
        ("setinfo", 4) => set_info(running, shared, id, number, args),
        ("info", 2) => {
            let text =
                shared.clients().get(&number).map_or(String::new(), |info| describe(number, info));
            answer_here(running, id, Some(Verb::Client), |out, resp3| {
                write::verbatim(out, &text, resp3)
            });
        }
        ("list", _) => match listed(shared, args) {
            Ok(text) => answer_here(running, id, Some(Verb::Client), |out, resp3| {
                write::verbatim(out, &text, resp3)
            }),
            Err(failure) => refuse(running, id, failure.kind(), &failure.text()),
        },
        ("reply", 3) => reply(running, id, args.get(2)),
        ("kill", 3..) => kill(running, shared, id, args),
        ("pause", 3 | 4) => pause(running, shared, id, args),
        ("unpause", 2) => {
            shared.unpause();
            ok(running, id, Verb::Client);
        }
        // No connection waits in a command, and nothing is tracked.
        ("unblock", 3 | 4) => unblock(running, id, args),
        ("getredir", 2) => {
            answer_here(running, id, Some(Verb::Client), |out, _| write::integer(out, -1));
        }
        // Accepted without effect: the gateway evicts no keys by when they were last used.
        ("no-evict" | "no-touch", 3)
            if [&b"on"[..], b"off"].contains(&&args.get(2).to_ascii_lowercase()[..]) =>
        {
            ok(running, id, Verb::Client);
        }
        ("no-evict" | "no-touch", 3) => refuse(running, id, ErrorKind::Command, "ERR syntax error"),
        (
            "id" | "getname" | "setname" | "setinfo" | "info" | "no-evict" | "no-touch" | "reply"
            | "kill" | "pause" | "unpause" | "unblock" | "getredir",
            _,
        ) => {
            wrong_arity(running, id, &format!("client|{sub}"));
        }
        _ => no_subcommand(running, shared, id, args),
    }
}

/// What CLIENT LIST says: all connections, those of a type, or those of some numbers.
fn listed(shared: &Shared, args: Args<'_>) -> Result<String, Failure> {
    let option = args.from(2).next().map(<[u8]>::to_ascii_lowercase);
    let clients = shared.clients();
    let all = || clients.iter().map(|(&number, info)| describe(number, info)).collect();
    match (option.as_deref(), args.len()) {
        (None, _) => Ok(all()),
        (Some(b"type"), 4) => match is_normal(args.get(3)).map_err(Failure::Text)? {
            true => Ok(all()),
            false => Ok(String::new()),
        },
        (Some(b"id"), 4..) => {
            let bytes_max = shared.config.output_bytes_hard;
            let mut text = String::new();
            for number in args.from(3) {
                let number = parse_i64(number).ok_or(Failure::Static("ERR Invalid client ID"))?;
                let Ok(number) = u64::try_from(number) else { continue };
                let Some(info) = clients.get(&number) else { continue };
                text.push_str(&describe(number, info));
                // One number may be there a million times.
                if text.len() > bytes_max {
                    return Err(Failure::ReplyLength(bytes_max));
                }
            }
            Ok(text)
        }
        _ => Err(Failure::Syntax),
    }
}

/// Whether a type of connections is the one that there is.
fn is_normal(kind: &[u8]) -> Result<bool, String> {
    match kind.to_ascii_lowercase().as_slice() {
        b"normal" => Ok(true),
        b"master" | b"replica" | b"slave" | b"pubsub" => Ok(false),
        _ => Err(format!("ERR Unknown client type '{}'", String::from_utf8_lossy(kind))),
    }
}

/// Which replies the client wants.
fn reply(running: &mut Running, id: ConnectionId, which: &[u8]) {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    let this = connection.next_reply();
    match which.to_ascii_lowercase().as_slice() {
        b"on" => {
            connection.silent_until = 0;
            return ok(running, id, Verb::Client);
        }
        b"off" => connection.silent_until = u64::MAX,
        // This one, and the next.
        b"skip" => connection.silent_until = connection.silent_until.max(this + 2),
        _ => return refuse(running, id, ErrorKind::Command, "ERR syntax error"),
    }
    answer_here(running, id, Some(Verb::Client), |_, _| ());
}

/// Which connections CLIENT KILL means.
#[derive(Default)]
struct Filter<'a> {
    number: Option<u64>,
    peer: Option<&'a [u8]>,
    local: Option<&'a [u8]>,
    /// Others are spared: there are no users but the default one, and no connections of other
    /// types.
    none: bool,
    spares_self: bool,
}

impl<'a> Filter<'a> {
    fn parse(args: Args<'a>) -> Result<Filter<'a>, String> {
        let mut filter = Filter { spares_self: true, ..Filter::default() };
        for at in (2..args.len()).step_by(2) {
            if at + 1 == args.len() {
                return Err("ERR syntax error".into());
            }
            let value = args.get(at + 1);
            let lower = value.to_ascii_lowercase();
            let shown = || String::from_utf8_lossy(value);
            match args.get(at).to_ascii_lowercase().as_slice() {
                b"id" => {
                    let number = parse_i64(value).and_then(|number| u64::try_from(number).ok());
                    let number = number.filter(|&number| number > 0);
                    filter.number = Some(number.ok_or("ERR client-id should be greater than 0")?);
                }
                b"addr" => filter.peer = Some(value),
                b"laddr" => filter.local = Some(value),
                b"type" => filter.none |= !is_normal(value)?,
                b"user" if value == b"default" => {}
                b"user" => return Err(format!("ERR No such user '{}'", shown())),
                b"skipme" => match lower.as_slice() {
                    b"yes" => filter.spares_self = true,
                    b"no" => filter.spares_self = false,
                    _ => return Err("ERR syntax error".into()),
                },
                _ => return Err("ERR syntax error".into()),
            }
        }
        Ok(filter)
    }

    fn means(&self, number: u64, info: &ClientInfo) -> bool {
        let is = |wanted: Option<&[u8]>, address: std::net::SocketAddr| {
            wanted.is_none_or(|wanted| wanted == address.to_string().as_bytes())
        };
        !self.none
            && self.number.is_none_or(|wanted| wanted == number)
            && is(self.peer, info.peer)
            && is(self.local, info.local)
    }
}

fn kill(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let Some(connection) = running.outbox.replies.connections.get(id) else { return };
    let own = connection.number;
    let by_address = args.len() == 3;
    let filter = match by_address {
        true => Ok(Filter { peer: Some(args.get(2)), ..Filter::default() }),
        false => Filter::parse(args),
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(text) => return refuse(running, id, ErrorKind::Command, &text),
    };
    let meant: Vec<(u64, usize)> = shared
        .clients()
        .iter()
        .filter(|&(&number, info)| {
            filter.means(number, info) && !(number == own && filter.spares_self)
        })
        .map(|(&number, info)| (number, info.worker))
        .collect();
    if by_address && meant.is_empty() {
        return refuse(running, id, ErrorKind::Command, "ERR No such client");
    }
    for &(number, worker) in meant.iter().filter(|(number, _)| *number != own) {
        shared.close(number, worker);
    }
    match by_address {
        true => ok(running, id, Verb::Client),
        false => answer_here(running, id, Some(Verb::Client), |out, _| {
            write::integer(out, meant.len() as i64);
        }),
    }
    if meant.iter().any(|(number, _)| *number == own)
        && let Some(connection) = running.outbox.replies.connections.get_mut(id)
    {
        connection.closing = true;
    }
}

fn pause(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let writes_only = match args.from(3).next().map(<[u8]>::to_ascii_lowercase).as_deref() {
        Some(b"write") => true,
        Some(b"all") | None => false,
        _ => {
            let text = "ERR CLIENT PAUSE mode must be WRITE or ALL";
            return refuse(running, id, ErrorKind::Command, text);
        }
    };
    let text = match parse_i64(args.get(2)).map(u64::try_from) {
        Some(Ok(ms)) => {
            let time = Duration::from_millis(ms.min(PAUSE_MS_MAX));
            let now_us = running.now.monotonic_us;
            let until_us = now_us + time.as_micros() as u64;
            shared.pause(Pause { until_us, writes_only }, now_us);
            return ok(running, id, Verb::Client);
        }
        Some(Err(_)) => "ERR timeout is negative",
        None => "ERR timeout is not an integer or out of range",
    };
    refuse(running, id, ErrorKind::Command, text);
}

fn unblock(running: &mut Running, id: ConnectionId, args: Args<'_>) {
    let how = args.from(3).next().map(<[u8]>::to_ascii_lowercase);
    let text = match how.as_deref() {
        Some(b"timeout" | b"error") | None if parse_i64(args.get(2)).is_some() => {
            return answer_here(running, id, Some(Verb::Client), |out, _| write::integer(out, 0));
        }
        Some(b"timeout" | b"error") | None => "ERR value is not an integer or out of range",
        _ => "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR",
    };
    refuse(running, id, ErrorKind::Command, text);
}

fn set_info(running: &mut Running, shared: &Shared, id: ConnectionId, number: u64, args: Args<'_>) {
    let (attribute, value) = (args.get(2), args.get(3));
    let at = match attribute.to_ascii_lowercase().as_slice() {
        b"lib-name" => 0,
        b"lib-ver" => 1,
        _ => {
            let text = format!("ERR Unrecognized option '{}'", String::from_utf8_lossy(attribute));
            return refuse(running, id, ErrorKind::Command, &text);
        }
    };
    if let Some(text) = objection(&String::from_utf8_lossy(attribute).to_ascii_lowercase(), value) {
        return refuse(running, id, ErrorKind::Command, &text);
    }
    shared.describe(number, |info| info.library[at] = String::from_utf8_lossy(value).into_owned());
    ok(running, id, Verb::Client);
}

fn describe(number: u64, info: &ClientInfo) -> String {
    format!(
        "id={number} addr={} laddr={} name={} age={} db=0 resp={} lib-name={} lib-ver={}\n",
        info.peer,
        info.local,
        info.name,
        info.since.elapsed().as_secs(),
        if info.resp3 { 3 } else { 2 },
        info.library[0],
        info.library[1],
    )
}
