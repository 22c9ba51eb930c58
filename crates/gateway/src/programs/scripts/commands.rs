//! EVAL and its like, and SCRIPT.

use super::engine::Compiled;
use super::sources::Sha;
use super::words::Words;
use crate::batch::Kind;
use crate::command::{Verb, introspect};
use crate::config::Transactions;
use crate::connection::ConnectionId;
use crate::execute::{Flow, answer_here, refuse, refuse_command};
use crate::failure::{ErrorKind, Failure};
use crate::programs::{Program, Programs, is_key};
use crate::resp::{Args, write};
use crate::running::{Link, Running};
use crate::shared::Shared;
use std::sync::Arc;

const SEVERAL: &str = "ERR a script of several keys, which no write spans, is refused; with \
     transactions = \"batch\" in [gateway] its writes are executed one after the other, without \
     isolation";

/// The place of the first key among the arguments.
const FIRST_KEY: usize = 3;
/// Keys of a script.
const KEYS_MAX: usize = 1000;

/// What scripts of a common size are given, at most.
pub(super) const COMMON_BYTES_MAX: usize = 64 << 10;

/// A script that is to be run, and with what.
#[derive(Debug)]
pub(crate) struct Call {
    pub(super) script: Arc<Compiled>,
    pub(super) read_only: bool,
    pub(super) keys: Words,
    pub(super) arguments: Words,
}

impl Call {
    /// Bytes of its keys and arguments.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.bytes() + self.arguments.bytes()
    }

    /// About what they take in Lua, where each word has the head of a string and a place in a
    /// table.
    pub(super) fn lua_bytes(&self) -> usize {
        const WORD_BYTES: usize = 64;
        self.bytes() + WORD_BYTES * (self.keys.count() + self.arguments.count())
    }

    /// Whether it is given more than is common.
    pub(super) fn is_large(&self) -> bool {
        self.lua_bytes() > COMMON_BYTES_MAX
    }

    /// Of an EVAL or one like it, whose script is known by then.
    pub(crate) fn new(
        programs: &mut Programs,
        verb: Verb,
        args: Args<'_>,
    ) -> Result<Call, Failure> {
        let keys = verb.count_keys(args)?;
        let by_name = matches!(verb, Verb::EvalSha | Verb::EvalShaRo);
        let script = match by_name {
            true => programs.named(sha_named(args.get(1)).ok_or(Failure::NoScript)?)?,
            false => programs.of_text(args.get(1))?,
        };
        let mut words = args.from(FIRST_KEY);
        let (keys, arguments) = (words.by_ref().take(keys).collect(), words.collect());
        let read_only = script.is_read_only || matches!(verb, Verb::EvalRo | Verb::EvalShaRo);
        Ok(Call { script, read_only, keys, arguments })
    }
}

/// The name that a command gives.
fn sha_named(word: &[u8]) -> Option<Sha> {
    let mut name = Sha::try_from(word).ok()?;
    name.make_ascii_lowercase();
    Some(name)
}

pub(crate) fn eval(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    args: Args<'_>,
) -> Flow {
    let verb = Verb::from_name(args.get(0)).unwrap_or(Verb::Eval);
    let connection = running.outbox.replies.connections.get(id);
    if verb.keys(args).count() > 1 && connection.is_some_and(|connection| !connection.is_idle()) {
        return Flow::Wait;
    }
    if shared.monitors.are_any() {
        introspect::show(running, shared, id, verb, args);
    }
    if let Err(failure) = start(running, link, id, verb, args) {
        match failure.kind() {
            ErrorKind::Unsupported => {
                refuse_command(running, id, verb, failure.kind(), &failure.text());
            }
            kind => refuse(running, id, kind, &failure.text()),
        }
    }
    Flow::Done
}

fn start(
    running: &mut Running,
    link: &mut Link,
    id: ConnectionId,
    verb: Verb,
    args: Args<'_>,
) -> Result<(), Failure> {
    let call = Call::new(&mut running.programs, verb, args)?;
    if let Some(why) = &running.outbox.spool_failure
        && !call.read_only
    {
        return Err(Failure::Spool(why.clone()));
    }
    let all_keys = (FIRST_KEY..FIRST_KEY + call.keys.count()).map(|at| args.get(at));
    let mut keys = all_keys.clone();
    if !keys.clone().all(is_key) {
        return Err(Failure::KeyLength);
    }
    let first = keys.next();
    let several = keys.clone().any(|other| Some(other) != first);
    if several && running.config.transactions == Transactions::Refuse {
        return Err(Failure::Unsupported(SEVERAL));
    }
    if several && keys.clone().count() >= KEYS_MAX {
        return Err(Failure::TooManyScriptKeys(KEYS_MAX));
    }
    let Some(connection) = running.outbox.replies.connections.get(id) else { return Ok(()) };
    let mut program = Program::script(call, connection.resp3);
    match first {
        Some(_) if several => running.start_batch(link, id, verb, Kind::Script, |batch| {
            batch.fill_script(program, all_keys);
        }),
        Some(key) => running.start_program(link, id, verb, key, program),
        None => {
            let reply = running.programs.run_keyless(&mut program, running.now.unix_ms)?;
            answer_here(running, id, Some(verb), |out, _| out.extend_from_slice(&reply));
        }
    }
    Ok(())
}

/// SCRIPT.
pub(crate) fn script(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let sub = args.get(1).to_ascii_lowercase();
    let put = |running: &mut Running, write: &dyn Fn(&mut Vec<u8>)| {
        answer_here(running, id, Some(Verb::Script), |out, _| write(out));
    };
    let error = |running: &mut Running, text: &str| refuse(running, id, ErrorKind::Command, text);
    match (&sub[..], args.len()) {
        (b"load", 3) => match running.programs.of_text(args.get(2)) {
            Ok(script) => {
                // This worker may know a script that all have forgotten since, as the oldest.
                shared.scripts.insert(script.sha, &Arc::from(args.get(2)));
                put(running, &|out| write::bulk(out, &script.sha));
            }
            Err(failure) => error(running, &failure.text()),
        },
        (b"exists", 3..) => put(running, &|out| {
            write::array(out, args.len() - 2);
            for name in args.from(2) {
                let name = sha_named(name);
                let is_known = name.is_some_and(|name| shared.scripts.get(&name).is_some());
                write::integer(out, i64::from(is_known));
            }
        }),
        (b"flush", 2..) => {
            let how = args.from(2).next().unwrap_or(b"sync");
            let is_known =
                [&b"sync"[..], b"async"].iter().any(|known| how.eq_ignore_ascii_case(known));
            if args.len() > 3 || !is_known {
                return error(running, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
            }
            shared.scripts.flush();
            put(running, &|out| write::simple(out, "OK"));
        }
        // None runs for longer than its worker looks at nothing else.
        (b"kill", 2) => error(running, "NOTBUSY No scripts in execution right now."),
        (b"load" | b"exists" | b"kill", _) => {
            let sub = String::from_utf8_lossy(&sub).into_owned();
            let text = format!("ERR wrong number of arguments for 'script|{sub}' command");
            error(running, &text);
        }
        _ => introspect::no_subcommand(running, shared, id, args),
    }
}
