//! Commands about the connection and the gateway: no data is touched.

use super::Verb;
use super::options::OUT_OF_INT;
use crate::config::Cluster;
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse, refuse_command};
use crate::failure::ErrorKind;
use crate::resp::{Args, parse_i64, write};
use crate::running::Running;
use crate::shared::Shared;
use std::time::{SystemTime, UNIX_EPOCH};

mod catalogue;
mod clients;
mod cluster;
mod config;
mod functions;
mod help;
mod hot;
mod info;
mod latency;
mod monitor;
mod slowlog;

pub(crate) use catalogue::command;
pub(crate) use clients::client;
use clients::{CLIENT_NAMES, objection, set_name};
pub(crate) use cluster::{cluster, set_mode};
pub(crate) use config::config;
pub(crate) use functions::function;
use help::{help_of, write_help};
pub(crate) use hot::{frequency, hot_keys};
pub(crate) use latency::latency;
use monitor::end_monitor;
pub(crate) use monitor::{monitor, show};
pub(crate) use slowlog::slowlog;

/// The Redis release whose behaviour is followed; clients decide by it what they may use.
pub(crate) const REDIS_VERSION: &str = "7.0.15";
/// The same, a byte a part.
pub(crate) const REDIS_VERSION_NUMBER: u32 = 0x0007_000f;

/// Answers such a command.
pub(crate) type Answer = fn(&mut Running, &Shared, ConnectionId, Args<'_>);

pub(crate) fn ping(running: &mut Running, _: &Shared, id: ConnectionId, args: Args<'_>) {
    match args.len() {
        1 | 2 => answer_here(running, id, Some(Verb::Ping), |out, _| write_ping(out, args)),
        _ => wrong_arity(running, id, "ping"),
    }
}

/// The reply of PING.
pub(crate) fn write_ping(out: &mut Vec<u8>, args: Args<'_>) {
    match args.len() {
        1 => write::simple(out, "PONG"),
        2 => write::bulk(out, args.get(1)),
        _ => write::error(out, "ERR wrong number of arguments for 'ping' command"),
    }
}

pub(crate) fn echo(running: &mut Running, _: &Shared, id: ConnectionId, args: Args<'_>) {
    answer_here(running, id, Some(Verb::Echo), |out, _| write::bulk(out, args.get(1)));
}

pub(crate) fn time(running: &mut Running, _: &Shared, id: ConnectionId, _: Args<'_>) {
    answer_here(running, id, Some(Verb::Time), |out, _| write_time(out));
}

/// The reply of TIME.
pub(crate) fn write_time(out: &mut Vec<u8>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    write::array(out, 2);
    write::bulk(out, now.as_secs().to_string().as_bytes());
    write::bulk(out, now.subsec_micros().to_string().as_bytes());
}

/// HELP, or a subcommand that isn't there, of a command of which others are.
pub(crate) fn no_subcommand(running: &mut Running, _: &Shared, id: ConnectionId, args: Args<'_>) {
    let Some(verb) = Verb::from_name(args.get(0)) else { return };
    match (help_of(verb), args.len()) {
        (Some(lines), 2) if args.get(1).eq_ignore_ascii_case(b"help") => {
            answer_here(running, id, Some(verb), |out, _| write_help(out, verb, lines));
        }
        (Some(_), _) if args.get(1).eq_ignore_ascii_case(b"help") => {
            wrong_arity(running, id, &format!("{}|help", verb.name()));
        }
        _ => refuse_subcommand(running, id, verb, args.get(1)),
    }
}

pub(crate) fn quit(running: &mut Running, shared: &Shared, id: ConnectionId, _: Args<'_>) {
    end_monitor(running, shared, id);
    ok(running, id, Verb::Quit);
    if let Some(connection) = running.outbox.replies.connections.get_mut(id) {
        connection.closing = true;
    }
}

pub(crate) fn info(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let text = info::info(running, shared, args);
    answer_here(running, id, Some(Verb::Info), |out, resp3| write::verbatim(out, &text, resp3));
}

fn wrong_arity(running: &mut Running, id: ConnectionId, name: &str) {
    refuse(
        running,
        id,
        ErrorKind::Command,
        &format!("ERR wrong number of arguments for '{name}' command"),
    );
}

fn ok(running: &mut Running, id: ConnectionId, verb: Verb) {
    answer_here(running, id, Some(verb), |out, _| write::simple(out, "OK"));
}

pub(crate) fn select(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    match parse_i64(args.get(1)) {
        Some(0) => ok(running, id, Verb::Select),
        Some(_) if shared.config.cluster == Cluster::Emulated => {
            refuse(running, id, ErrorKind::Command, "ERR SELECT is not allowed in cluster mode");
        }
        Some(number) if i32::try_from(number).is_err() => {
            refuse(running, id, ErrorKind::Command, OUT_OF_INT);
        }
        Some(_) => refuse(running, id, ErrorKind::Command, "ERR DB index is out of range"),
        None => {
            refuse(running, id, ErrorKind::Command, "ERR value is not an integer or out of range")
        }
    }
}

/// Whether user and password are right. The time it takes tells nothing of where they differ.
fn is_password(shared: &Shared, user: &[u8], password: &[u8]) -> bool {
    let Some(wanted) = &shared.config.password else { return user == b"default" };
    let wanted = wanted.as_bytes();
    let mut difference = usize::from(user != b"default") | (wanted.len() ^ password.len());
    for (at, &byte) in password.iter().enumerate() {
        difference |= usize::from(byte ^ wanted.get(at).copied().unwrap_or(0));
    }
    difference == 0
}

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";

pub(crate) fn auth(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let (user, password) = match args.len() {
        2 if shared.config.password.is_none() => {
            let text = "ERR AUTH <password> called without any password configured for the default \
                user. Are you sure your configuration is correct?";
            return refuse(running, id, ErrorKind::Auth, text);
        }
        2 => (&b"default"[..], args.get(1)),
        3 => (args.get(1), args.get(2)),
        _ => return refuse(running, id, ErrorKind::Command, "ERR syntax error"),
    };
    if !is_password(shared, user, password) {
        return refuse(running, id, ErrorKind::Auth, WRONG_PASSWORD);
    }
    if let Some(connection) = running.outbox.replies.connections.get_mut(id) {
        connection.authenticated = true;
    }
    ok(running, id, Verb::Auth);
}

pub(crate) fn hello(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let wish = match args.len() {
        1 => None,
        _ => match parse_i64(args.get(1)) {
            Some(version @ 2..=3) => Some(version == 3),
            Some(_) => {
                return refuse(
                    running,
                    id,
                    ErrorKind::Command,
                    "NOPROTO unsupported protocol version",
                );
            }
            None => {
                let text = "ERR Protocol version is not an integer or out of range";
                return refuse(running, id, ErrorKind::Command, text);
            }
        },
    };
    // What an option says holds even if a later one is refused, as in Redis.
    let mut at = 2;
    while at < args.len() {
        let is = |option: &str, more: usize| {
            args.get(at).eq_ignore_ascii_case(option.as_bytes()) && at + more < args.len()
        };
        if is("auth", 2) {
            if !is_password(shared, args.get(at + 1), args.get(at + 2)) {
                return refuse(running, id, ErrorKind::Auth, WRONG_PASSWORD);
            }
            if let Some(connection) = running.outbox.replies.connections.get_mut(id) {
                connection.authenticated = true;
            }
            at += 3;
        } else if is("setname", 1) {
            if let Some(text) = objection(CLIENT_NAMES, args.get(at + 1)) {
                return refuse(running, id, ErrorKind::Command, &text);
            }
            set_name(running, shared, id, args.get(at + 1));
            at += 2;
        } else {
            let text = format!(
                "ERR Syntax error in HELLO option '{}'",
                String::from_utf8_lossy(args.get(at))
            );
            return refuse(running, id, ErrorKind::Command, &text);
        }
    }
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    if !connection.authenticated {
        let text = "NOAUTH HELLO must be called with the client already authenticated, otherwise \
            the HELLO AUTH <user> <pass> option can be used to authenticate the client and select \
            the RESP protocol version at the same time";
        return refuse(running, id, ErrorKind::Auth, text);
    }
    connection.resp3 = wish.unwrap_or(connection.resp3);
    let (number, resp3) = (connection.number, connection.resp3);
    shared.describe(number, |info| info.resp3 = resp3);
    let mode = shared.config.cluster.redis_mode();
    answer_here(running, id, Some(Verb::Hello), |out, resp3| greet(out, resp3, number, mode));
}

fn greet(out: &mut Vec<u8>, resp3: bool, number: u64, mode: &str) {
    write::map(out, 7, resp3);
    for (key, value) in [("server", "switchback"), ("version", REDIS_VERSION)] {
        write::bulk(out, key.as_bytes());
        write::bulk(out, value.as_bytes());
    }
    write::bulk(out, b"proto");
    write::integer(out, if resp3 { 3 } else { 2 });
    write::bulk(out, b"id");
    write::integer(out, number as i64);
    for (key, value) in [("mode", mode), ("role", "master")] {
        write::bulk(out, key.as_bytes());
        write::bulk(out, value.as_bytes());
    }
    write::bulk(out, b"modules");
    write::array(out, 0);
}

pub(crate) fn reset(running: &mut Running, shared: &Shared, id: ConnectionId, _: Args<'_>) {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    connection.resp3 = false;
    // CLIENT REPLY OFF ends here; SKIP still means this reply, as in Redis.
    if connection.silent_until == u64::MAX {
        connection.silent_until = 0;
    }
    shared.describe(connection.number, |info| info.resp3 = false);
    (connection.multi, connection.watched) = (None, None);
    connection.authenticated = shared.config.password.is_none();
    set_name(running, shared, id, b"");
    end_monitor(running, shared, id);
    answer_here(running, id, Some(Verb::Reset), |out, _| write::simple(out, "RESET"));
}

/// A subcommand that isn't there.
fn refuse_subcommand(running: &mut Running, id: ConnectionId, verb: Verb, sub: &[u8]) {
    let command = verb.name();
    let sub = String::from_utf8_lossy(&sub[..sub.len().min(128)]);
    let lower = sub.to_ascii_lowercase();
    if let Some(reason) = why_refused(verb, &lower) {
        let text = format!("ERR '{command}|{lower}' is not supported by Switchback: {reason}");
        return refuse_command(running, id, verb, ErrorKind::Unsupported, &text);
    }
    let text =
        format!("ERR unknown subcommand '{sub}'. Try {} HELP.", command.to_ascii_uppercase());
    refuse_command(running, id, verb, ErrorKind::Command, &text);
}

/// Why Switchback doesn't have this subcommand of Redis (lower case); `None` if Redis hasn't,
/// either.
fn why_refused(verb: Verb, sub: &str) -> Option<&'static str> {
    Some(match (verb, sub) {
        (Verb::Client, "caching" | "tracking" | "trackinginfo") => {
            "nothing is tracked for the caches of clients"
        }
        (Verb::Cluster, "countkeysinslot" | "getkeysinslot") => "nodes have keys by another hash",
        (Verb::Cluster, _) if cluster::UNSUPPORTED.iter().any(|(name, _)| *name == sub) => {
            "the cluster has one owner, which nothing changes"
        }
        (Verb::Command, "getkeys" | "getkeysandflags") => "COMMAND INFO tells where keys are",
        (Verb::Config, "resetstat") => "counters only rise",
        (Verb::Config, "rewrite") => "rack.toml is written by hand",
        (Verb::Function, "delete" | "dump" | "kill" | "load" | "restore" | "stats") => {
            "it has no functions; scripts are run by EVAL and EVALSHA"
        }
        (Verb::Latency, "graph") => "it draws no graph",
        (Verb::Memory, "doctor" | "malloc-stats" | "purge" | "stats") => {
            "INFO tells the memory of the gateway's process"
        }
        (Verb::Object, "idletime") => "nothing knows when a key was last asked for",
        (Verb::Object, "refcount") => "values aren't shared",
        (Verb::Script, "debug") => "there is no debugger",
        _ => return None,
    })
}

/// A subcommand that is there, with another number of arguments than it takes, where Redis leaves
/// that to the command.
fn wrong_syntax(running: &mut Running, id: ConnectionId, verb: Verb, sub: &[u8]) {
    let sub = String::from_utf8_lossy(&sub[..sub.len().min(128)]);
    let text = format!(
        "ERR unknown subcommand or wrong number of arguments for '{sub}'. Try {} HELP.",
        verb.name().to_ascii_uppercase()
    );
    refuse_command(running, id, verb, ErrorKind::Command, &text);
}
