//! COMMAND: what commands there are.

use super::{no_subcommand, wrong_arity};
use crate::command::{Spec, Verb, glob};
use crate::connection::ConnectionId;
use crate::execute::{answer_here, refuse, refuse_command};
use crate::failure::{ErrorKind, Failure};
use crate::resp::{Args, write};
use crate::running::Running;
use crate::shared::Shared;

pub(crate) fn command(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let put = |running: &mut Running, write: &dyn Fn(&mut Vec<u8>, bool)| {
        answer_here(running, id, Some(Verb::Command), |out, resp3| write(out, resp3));
    };
    if args.len() == 1 {
        return put(running, &|out, resp3| every(out, resp3));
    }
    match args.get(1).to_ascii_lowercase().as_slice() {
        b"count" if args.len() == 2 => {
            put(running, &|out, _| write::integer(out, Verb::all().count() as i64))
        }
        b"count" => wrong_arity(running, id, "command|count"),
        b"info" if args.len() == 2 => put(running, &|out, resp3| every(out, resp3)),
        b"info" => {
            let asked: Vec<_> = args.from(2).map(Verb::from_name).collect();
            put_each(running, id, write_array, &asked, |out, verb, resp3| match verb {
                Some(verb) => one(out, verb.spec(), resp3),
                None => write::null(out, resp3),
            });
        }
        b"docs" => {
            let asked: Vec<Verb> = match args.len() {
                2 => Verb::all().collect(),
                _ => args.from(2).filter_map(Verb::from_name).collect(),
            };
            put_each(running, id, write::map, &asked, |out, verb, resp3| {
                docs(out, verb.spec(), resp3);
            });
        }
        b"list" => list(running, id, args),
        _ => no_subcommand(running, shared, id, args),
    }
}

fn write_array(out: &mut Vec<u8>, length: usize, _: bool) {
    write::array(out, length);
}

/// Answers with an entry for each command that was asked for. One may be there a million times, so
/// the limit of replies counts while they are written.
fn put_each<T: Copy>(
    running: &mut Running,
    id: ConnectionId,
    head: impl FnOnce(&mut Vec<u8>, usize, bool),
    asked: &[T],
    entry: impl Fn(&mut Vec<u8>, T, bool),
) {
    let Some(connection) = running.outbox.replies.connections.get(id) else { return };
    let (resp3, bytes_max) = (connection.resp3, running.config.output_bytes_hard);
    let mut reply = Vec::new();
    head(&mut reply, asked.len(), resp3);
    for &one in asked {
        entry(&mut reply, one, resp3);
        if reply.len() > bytes_max {
            let failure = Failure::ReplyLength(bytes_max);
            return refuse(running, id, failure.kind(), &failure.text());
        }
    }
    answer_here(running, id, Some(Verb::Command), |out, _| out.extend_from_slice(&reply));
}

fn list(running: &mut Running, id: ConnectionId, args: Args<'_>) {
    let pattern = match args.len() {
        2 => &b"*"[..],
        5 if args.get(2).eq_ignore_ascii_case(b"filterby")
            && args.get(3).eq_ignore_ascii_case(b"pattern") =>
        {
            args.get(4)
        }
        5 if args.get(2).eq_ignore_ascii_case(b"filterby") => {
            let text = "ERR COMMAND LIST filters by PATTERN only in Switchback";
            return refuse_command(running, id, Verb::Command, ErrorKind::Unsupported, text);
        }
        _ => return refuse(running, id, ErrorKind::Command, "ERR syntax error"),
    };
    let names: Vec<_> = Verb::all()
        .map(Verb::name)
        .filter(|name| glob::matches(pattern, name.as_bytes()))
        .collect();
    answer_here(running, id, Some(Verb::Command), |out, _| {
        write::array(out, names.len());
        names.iter().for_each(|name| write::bulk(out, name.as_bytes()));
    });
}

fn every(out: &mut Vec<u8>, resp3: bool) {
    write::array(out, Verb::all().count());
    for verb in Verb::all() {
        one(out, verb.spec(), resp3);
    }
}

/// Ten elements, as since Redis 7; there are no ACLs, tips, key specifications or subcommands to
/// tell of.
fn one(out: &mut Vec<u8>, spec: &Spec, resp3: bool) {
    write::array(out, 10);
    write::bulk(out, spec.name.as_bytes());
    write::integer(out, i64::from(spec.arity));
    write::set(out, spec.flags.len(), resp3);
    spec.flags.iter().for_each(|flag| write::simple(out, flag));
    for at in [spec.keys.0, spec.keys.1, spec.keys.2] {
        write::integer(out, i64::from(at));
    }
    write::set(out, 0, resp3);
    write::set(out, 0, resp3);
    write::set(out, 0, resp3);
    write::array(out, 0);
}

fn docs(out: &mut Vec<u8>, spec: &Spec, resp3: bool) {
    write::bulk(out, spec.name.as_bytes());
    write::map(out, 3, resp3);
    for (key, value) in [("summary", spec.summary), ("since", spec.since), ("group", spec.group)] {
        write::bulk(out, key.as_bytes());
        write::bulk(out, value.as_bytes());
    }
}
