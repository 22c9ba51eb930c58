//! From arguments to what is to be done.

use crate::batch::{Kind, Transfer};
use crate::command::introspect::{self, Answer};
use crate::command::options::{self, Expiry, OnlyIf, SetOptions, Unit};
use crate::command::{Refused, Verb, parts, why_unsupported};
use crate::config::Transactions;
use crate::connection::ConnectionId;
use crate::failure::{ErrorKind, Failure};
use crate::operation::Action;
use crate::programs;
use crate::replies::Address;
use crate::resp::{Args, parse_i64, write};
use crate::running::{Link, Running};
use crate::shared::Shared;
use crate::statistics::Answerer;
use crate::strings::{self, Update, View};
use crate::worker::is_due;
use std::fmt::Write;

/// Whether a command was dealt with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// It was.
    Done,
    /// It has to wait until everything before it is answered.
    Wait,
}

/// What a command turns out to be.
pub(crate) enum Plan<'a> {
    One(Action, [&'a [u8]; 2]),
    /// With the value that there should be.
    Comparing(Action, [&'a [u8]; 3]),
    /// With an argument that was made of several.
    Made(Action, &'a [u8], Vec<u8>),
    Many(Kind),
    Scan(Kind, options::ScanOptions),
    /// Answered by the gateway itself.
    Here(Answer),
    /// The same, once all that is under way is out: it changes how replies look, or ends them.
    HereAlone(Answer),
    /// Does more than answer.
    Run(Handler),
}

/// Executes such a command.
pub(crate) type Handler = fn(&mut Running, &mut Link, &Shared, ConnectionId, Args<'_>) -> Flow;

/// Executes one command of a connection.
#[inline]
pub(crate) fn execute(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    args: Args<'_>,
) -> Flow {
    let Some(verb) = admitted(running, id, args) else {
        programs::spoil(running, id);
        return Flow::Done;
    };
    let Some(connection) = running.outbox.replies.connections.get(id) else { return Flow::Done };
    if connection.multi.is_some() && !verb.is_never_queued() {
        programs::queue(running, id, verb, args);
        return Flow::Done;
    }
    if let Some(pause) = shared.paused(running.now.monotonic_us)
        && (!pause.writes_only || verb.may_write() || verb == Verb::Exec)
        && verb != Verb::Client
    {
        running.is_paused = true;
        return Flow::Wait;
    }
    execute_shown(running, link, shared, id, verb, args)
}

/// Executes a command that EXEC has begun with: CLIENT PAUSE doesn't hold it, as in Redis, for what
/// came before it is answered.
pub(crate) fn execute_queued(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    args: Args<'_>,
) -> Flow {
    match admitted(running, id, args) {
        Some(verb) => execute_shown(running, link, shared, id, verb, args),
        None => Flow::Done,
    }
}

/// Executes a command that may be executed now; monitors see it.
#[inline]
fn execute_shown(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    verb: Verb,
    args: Args<'_>,
) -> Flow {
    let flow = execute_verb(running, link, shared, id, verb, args);
    // A script is shown before it runs, so that its own commands come after it.
    if shared.monitors.are_any() && flow == Flow::Done && !verb.is_script() {
        introspect::show(running, shared, id, verb, args);
    }
    flow
}

#[inline]
fn execute_verb(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    verb: Verb,
    args: Args<'_>,
) -> Flow {
    let Some(connection) = running.outbox.replies.connections.get(id) else { return Flow::Done };
    let is_idle = connection.is_idle();
    // Nearly all commands are one of these.
    match verb {
        Verb::Get if check_key(args.get(1)).is_ok() => {
            running.start(link, id, verb, Action::Get, args.get(1), &[]);
            return Flow::Done;
        }
        Verb::Set if args.len() == 3 && check_key(args.get(1)).is_ok() => {
            running.start(link, id, verb, Action::Set { expiry_ms: 0 }, args.get(1), args.get(2));
            return Flow::Done;
        }
        _ => {}
    }
    match plan(verb, args, running.now.unix_ms) {
        Ok(Plan::One(action, [key, argument])) => {
            running.start(link, id, verb, action, key, argument)
        }
        Ok(Plan::Comparing(action, [key, argument, expected])) => {
            running.start_comparing(link, id, verb, action, [key, argument, expected])
        }
        Ok(Plan::Made(action, key, argument)) => {
            running.start(link, id, verb, action, key, &argument)
        }
        Ok(Plan::Many(kind)) if kind.has_stages() && !may_span(running, verb, args) => {
            refuse_command(running, id, verb, ErrorKind::Unsupported, SPANS);
        }
        // What is under way must not end what keeps later commands from overtaking this one.
        Ok(Plan::Many(kind)) if kind.goes_alone() && !is_idle => return Flow::Wait,
        Ok(Plan::Scan(..)) if !is_idle => return Flow::Wait,
        Ok(Plan::Many(kind)) => running.start_batch(link, id, verb, kind, |batch| {
            if !matches!(kind, Kind::Flush | Kind::Count) {
                batch.fill(args);
            }
        }),
        Ok(Plan::Scan(kind, options)) => {
            running.start_batch(link, id, verb, kind, |batch| batch.fill_scan(options));
        }
        Ok(Plan::HereAlone(_)) if !is_idle => return Flow::Wait,
        Ok(Plan::Here(answer) | Plan::HereAlone(answer)) => answer(running, shared, id, args),
        Ok(Plan::Run(handler)) => return handler(running, link, shared, id, args),
        Err(failure) => refuse(running, id, failure.kind(), &failure.text()),
    }
    Flow::Done
}

const SPANS: &str = "ERR no write spans several keys, so this command is refused; with \
     transactions = \"batch\" in [gateway] its reads and writes are executed one after the other, \
     without isolation";

/// Whether a command that writes what it has read of other keys may be executed. On one key it is
/// no more than others are.
fn may_span(running: &Running, verb: Verb, args: Args<'_>) -> bool {
    let mut keys = verb.keys(args).map(|at| args.get(at));
    let first = keys.next();
    running.config.transactions == Transactions::Batch || keys.all(|key| Some(key) == first)
}

/// What command it is; `None` if it isn't even looked at, which is answered.
#[inline]
fn admitted(running: &mut Running, id: ConnectionId, args: Args<'_>) -> Option<Verb> {
    let Some(verb) = Verb::from_name(args.get(0)) else {
        unknown(running, id, args);
        return None;
    };
    let spec = verb.spec();
    if !spec.takes(args.len()) {
        let text = format!("ERR wrong number of arguments for '{}' command", spec.name);
        refuse(running, id, ErrorKind::Command, &text);
        return None;
    }
    let connection = running.outbox.replies.connections.get(id)?;
    if !connection.authenticated && !spec.needs_no_auth() {
        refuse(running, id, ErrorKind::Auth, "NOAUTH Authentication required.");
        return None;
    }
    if connection.is_monitor && verb.reaches_records(args) {
        refuse(running, id, ErrorKind::Command, "ERR Replica can't interact with the keyspace");
        return None;
    }
    if let Some(why) = &running.outbox.spool_failure
        && spec.writes()
    {
        let failure = Failure::Spool(why.clone());
        refuse(running, id, failure.kind(), &failure.text());
        return None;
    }
    Some(verb)
}

/// Answers with an error, at its turn.
pub(crate) fn refuse(running: &mut Running, id: ConnectionId, kind: ErrorKind, text: &str) {
    running.outbox.replies.statistics().count_error(kind);
    answer_here(running, id, None, |out, _| write::error(out, text));
}

/// The same, for a command that Switchback doesn't have.
pub(crate) fn refuse_command(
    running: &mut Running,
    id: ConnectionId,
    command: impl Into<Refused>,
    kind: ErrorKind,
    text: &str,
) {
    running.outbox.replies.statistics().count_refused(command.into());
    refuse(running, id, kind, text);
}

/// Answers at once, if at its turn.
pub(crate) fn answer_here(
    running: &mut Running,
    id: ConnectionId,
    verb: Option<Verb>,
    write: impl FnOnce(&mut Vec<u8>, bool),
) {
    let replies = &mut running.outbox.replies;
    let Some(connection) = replies.connections.get(id) else { return };
    if let Some(captured) = &mut running.captured {
        return write(captured, connection.resp3);
    }
    let number = connection.next_reply();
    if !connection.slots.is_empty() {
        replies.reserve(id);
    }
    let to = Address { connection: id, number, verb, arrived_us: running.now.monotonic_us };
    replies.reply(to, Answerer::Gateway, None, write);
}

/// A name that isn't in the table.
fn unknown(running: &mut Running, id: ConnectionId, args: Args<'_>) {
    let name = printable(args.get(0));
    // A web page has its browser send commands in the body of a request. Redis closes on these
    // words, too.
    if name.eq_ignore_ascii_case("post") || name.eq_ignore_ascii_case("host:") {
        running.outbox.replies.statistics().count_error(ErrorKind::Command);
        if let Some(connection) = running.outbox.replies.connections.get_mut(id) {
            if is_due(&mut running.http_logged) {
                tracing::info!(peer = %connection.peer, "a connection that speaks HTTP is closed");
            }
            connection.closing = true;
        }
        return;
    }
    if let Some(reason) = why_unsupported(&name.to_ascii_lowercase()) {
        let text =
            format!("ERR '{}' is not supported by Switchback: {reason}", name.to_ascii_lowercase());
        return refuse_command(
            running,
            id,
            Refused::from_name(args.get(0)),
            ErrorKind::Unsupported,
            &text,
        );
    }
    let mut text = format!("ERR unknown command '{name}', with args beginning with: ");
    let begin = text.len();
    for argument in args.from(1) {
        if text.len() >= begin + 128 {
            break;
        }
        let room = begin + 128 - text.len();
        let _ = write!(text, "'{}' ", printable(&argument[..argument.len().min(room)]));
    }
    refuse_command(running, id, Refused::from_name(args.get(0)), ErrorKind::Command, &text);
}

fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(128)]).into_owned()
}

/// Every command of the table: one that isn't here doesn't compile.
#[inline]
#[deny(clippy::wildcard_enum_match_arm)]
#[allow(clippy::too_many_lines)] // A line or two a command.
pub(crate) fn plan<'a>(verb: Verb, args: Args<'a>, now_ms: u64) -> Result<Plan<'a>, Failure> {
    let keys = verb.spec().keys;
    if keys.0 > 0 {
        match keys.1 {
            1 => check_key(args.get(1))?,
            _ => verb.keys(args).try_for_each(|at| check_key(args.get(at)))?,
        }
    }
    let one = |action| Ok(Plan::One(action, [args.get(1), &[]]));
    let write = |action, at: usize| Ok(Plan::One(action, [args.get(1), args.get(at)]));
    match verb {
        Verb::Get => one(Action::Get),
        Verb::Set => set(args, now_ms),
        Verb::SetEx => write(set_expiring(args, now_ms, true, "setex")?, 3),
        Verb::PSetEx => write(set_expiring(args, now_ms, false, "psetex")?, 3),
        Verb::SetNx => write(Action::SetIf(SetOptions::plain(OnlyIf::Missing, false), true), 2),
        Verb::GetSet => write(Action::SetIf(SetOptions::plain(OnlyIf::Always, true), false), 2),
        Verb::GetDel => one(Action::GetDel),
        Verb::GetEx => one(Action::GetEx(options::getex(args, now_ms)?)),
        Verb::Append => write(Action::Update(Update::Append), 2),
        Verb::StrLen => one(Action::View(View::Length)),
        Verb::Type => one(Action::View(View::Type)),
        Verb::Incr => one(Action::Update(Update::Increment(1))),
        Verb::Decr => one(Action::Update(Update::Increment(-1))),
        Verb::IncrBy => {
            let by = parse_i64(args.get(2)).ok_or(Failure::NotAnInteger)?;
            one(Action::Update(Update::Increment(by)))
        }
        Verb::DecrBy => {
            let by = parse_i64(args.get(2)).ok_or(Failure::NotAnInteger)?;
            let by = by.checked_neg().ok_or(Failure::Static("ERR decrement would overflow"))?;
            one(Action::Update(Update::Increment(by)))
        }
        Verb::IncrByFloat => write(Action::Update(Update::IncrementFloat), 2),
        Verb::GetRange | Verb::SubStr => one(Action::View(View::Range(parts::range(args)?))),
        Verb::SetRange => write(Action::Update(parts::set_range(args)?), 3),
        Verb::GetBit => one(Action::View(View::Bit(parts::bit_offset(args.get(2))?))),
        Verb::SetBit => one(Action::Update(parts::set_bit(args)?)),
        Verb::BitCount => one(Action::View(parts::count_bits(args))),
        Verb::BitPos => one(Action::View(parts::find_bit(args)?)),
        Verb::BitField | Verb::BitFieldRo => fields(verb, args),
        Verb::Lcs => Ok(Plan::Many(Kind::Lcs(parts::lcs(args)?))),
        Verb::DelEx => delex(args),
        Verb::Dump => one(Action::View(View::Dump)),
        Verb::Restore => restore(args, now_ms),
        Verb::Object => object(args),
        Verb::Memory => memory(args),
        Verb::Keys => Ok(Plan::Scan(Kind::Keys, options::keys(args.get(1)))),
        Verb::RandomKey => Ok(Plan::Scan(Kind::Random, options::random_key())),
        Verb::Time => Ok(Plan::Here(introspect::time)),
        Verb::ReadOnly | Verb::ReadWrite | Verb::Asking => Ok(Plan::Here(introspect::set_mode)),
        Verb::Cluster => Ok(Plan::Here(introspect::cluster)),
        Verb::Function => Ok(Plan::Here(introspect::function)),
        Verb::Expire | Verb::PExpire | Verb::ExpireAt | Verb::PExpireAt => {
            one(expire(verb, args, now_ms)?)
        }
        Verb::Ttl => one(Action::Expiry { seconds: true, absolute: false }),
        Verb::PTtl => one(Action::Expiry { seconds: false, absolute: false }),
        Verb::ExpireTime => one(Action::Expiry { seconds: true, absolute: true }),
        Verb::PExpireTime => one(Action::Expiry { seconds: false, absolute: true }),
        Verb::Persist => one(Action::Persist),
        Verb::Del | Verb::Unlink if args.len() == 2 => one(Action::Delete),
        Verb::Exists | Verb::Touch if args.len() == 2 => one(Action::View(View::Exists)),
        Verb::Del | Verb::Unlink => Ok(Plan::Many(Kind::Delete)),
        Verb::Exists | Verb::Touch => Ok(Plan::Many(Kind::Exists)),
        Verb::MGet => Ok(Plan::Many(Kind::Get)),
        Verb::MSet if args.len().is_multiple_of(2) => {
            Err(Failure::Static("ERR wrong number of arguments for 'mset' command"))
        }
        Verb::MSet => Ok(Plan::Many(Kind::Set)),
        Verb::MSetNx if args.len().is_multiple_of(2) => {
            Err(Failure::Static("ERR wrong number of arguments for 'msetnx' command"))
        }
        Verb::MSetNx => Ok(Plan::Many(Kind::SetMissing)),
        Verb::Rename => transfer(true, true),
        Verb::RenameNx => transfer(true, false),
        Verb::Copy => copy(args),
        Verb::BitOp => Ok(Plan::Many(Kind::Combine(parts::bit_operation(args)?))),
        Verb::Scan => Ok(Plan::Scan(Kind::Scan, options::scan(args)?)),
        Verb::DbSize => Ok(Plan::Many(Kind::Count)),
        Verb::FlushAll | Verb::FlushDb => match args.len() {
            1 => Ok(Plan::Many(Kind::Flush)),
            2 if is_either(args.get(1), "sync", "async") => Ok(Plan::Many(Kind::Flush)),
            _ => Err(Failure::Syntax),
        },
        Verb::Ping => Ok(Plan::Here(introspect::ping)),
        Verb::Echo => Ok(Plan::Here(introspect::echo)),
        Verb::Select => Ok(Plan::Here(introspect::select)),
        Verb::Client if args.get(1).eq_ignore_ascii_case(b"reply") => {
            Ok(Plan::HereAlone(introspect::client))
        }
        Verb::Client => Ok(Plan::Here(introspect::client)),
        Verb::Config => Ok(Plan::Here(introspect::config)),
        Verb::Command => Ok(Plan::Here(introspect::command)),
        Verb::SlowLog => Ok(Plan::Here(introspect::slowlog)),
        Verb::HotKeys => Ok(Plan::Here(introspect::hot_keys)),
        Verb::Latency => Ok(Plan::Here(introspect::latency)),
        Verb::Monitor => Ok(Plan::HereAlone(introspect::monitor)),
        Verb::Info => Ok(Plan::Here(introspect::info)),
        Verb::Multi => Ok(Plan::Here(programs::multi)),
        Verb::Discard => Ok(Plan::Here(programs::discard)),
        Verb::Unwatch => Ok(Plan::Here(programs::unwatch)),
        Verb::Watch => Ok(Plan::Run(programs::watch)),
        Verb::Exec => Ok(Plan::Run(programs::exec)),
        Verb::Eval | Verb::EvalSha | Verb::EvalRo | Verb::EvalShaRo => {
            Ok(Plan::Run(programs::eval))
        }
        Verb::Script => Ok(Plan::Here(programs::script)),
        Verb::Hello => Ok(Plan::HereAlone(introspect::hello)),
        Verb::Auth => Ok(Plan::HereAlone(introspect::auth)),
        Verb::Reset => Ok(Plan::HereAlone(introspect::reset)),
        Verb::Quit => Ok(Plan::HereAlone(introspect::quit)),
    }
}

#[inline]
fn check_key(key: &[u8]) -> Result<(), Failure> {
    if key.is_empty() || key.len() > switchback_wire::KEY_BYTES_MAX {
        Err(Failure::KeyLength)
    } else {
        Ok(())
    }
}

fn is_either(option: &[u8], one: &str, other: &str) -> bool {
    option.eq_ignore_ascii_case(one.as_bytes()) || option.eq_ignore_ascii_case(other.as_bytes())
}

#[inline]
fn set<'a>(args: Args<'a>, now_ms: u64) -> Result<Plan<'a>, Failure> {
    let [key, value] = [args.get(1), args.get(2)];
    Ok(match options::set(args, now_ms)? {
        (SetOptions { only_if: OnlyIf::Always, get: false, expiry: Expiry::At(expiry_ms) }, _) => {
            Plan::One(Action::Set { expiry_ms }, [key, value])
        }
        (options, expected) => {
            Plan::Comparing(Action::SetIf(options, false), [key, value, expected])
        }
    })
}

fn transfer<'a>(moves: bool, replaces: bool) -> Result<Plan<'a>, Failure> {
    Ok(Plan::Many(Kind::Transfer(Transfer { moves, replaces })))
}

fn copy(args: Args<'_>) -> Result<Plan<'_>, Failure> {
    let replaces = options::copy(args)?;
    if args.get(1) == args.get(2) {
        return Err(Failure::Static("ERR source and destination objects are the same"));
    }
    transfer(false, replaces)
}

fn restore<'a>(args: Args<'a>, now_ms: u64) -> Result<Plan<'a>, Failure> {
    let (replaces, expiry_ms) = options::restore(args, now_ms)?;
    let restored = expiry_ms.and_then(|ms| Ok((ms, strings::restore(args.get(3))?)));
    let expiry_ms = restored.as_ref().map(|&(expiry_ms, _)| expiry_ms).map_err(|&text| text);
    let value = restored.map_or(Vec::new(), |(_, value)| value);
    Ok(Plan::Made(Action::Restore { replaces, expiry_ms }, args.get(1), value))
}

fn fields(verb: Verb, args: Args<'_>) -> Result<Plan<'_>, Failure> {
    let (list, writes) = parts::fields(args, verb == Verb::BitFieldRo)?;
    let (view, update) = (Action::View(View::Fields), Action::Update(Update::Fields));
    Ok(Plan::Made(if writes { update } else { view }, args.get(1), list))
}

fn delex(args: Args<'_>) -> Result<Plan<'_>, Failure> {
    let key = args.get(1);
    Ok(match options::delex(args)? {
        (OnlyIf::Always, _) => Plan::One(Action::Delete, [key, &[]]),
        (only_if, expected) => Plan::Comparing(Action::DeleteIf(only_if), [key, &[], expected]),
    })
}

fn object(args: Args<'_>) -> Result<Plan<'_>, Failure> {
    let sub = args.get(1).to_ascii_lowercase();
    match (&sub[..], args.len()) {
        (b"encoding" | b"freq", 3) => check_key(args.get(2))?,
        (b"encoding" | b"freq", _) => {
            let sub = String::from_utf8_lossy(&sub);
            let text = format!("ERR wrong number of arguments for 'object|{sub}' command");
            return Err(Failure::Text(text));
        }
        _ => return Ok(Plan::Here(introspect::no_subcommand)),
    }
    match &sub[..] {
        b"encoding" => Ok(Plan::One(Action::View(View::Encoding), [args.get(2), &[]])),
        _ => Ok(Plan::Run(introspect::frequency)),
    }
}

fn memory(args: Args<'_>) -> Result<Plan<'_>, Failure> {
    if !args.get(1).eq_ignore_ascii_case(b"usage") {
        return Ok(Plan::Here(introspect::no_subcommand));
    }
    match args.len() {
        3 => {}
        // A string is no collection of which some elements would be looked at.
        5 if args.get(3).eq_ignore_ascii_case(b"samples") => {
            let samples = parse_i64(args.get(4)).ok_or(Failure::NotAnInteger)?;
            if samples < 0 {
                return Err(Failure::Syntax);
            }
        }
        ..3 => {
            let text = "ERR wrong number of arguments for 'memory|usage' command";
            return Err(Failure::Static(text));
        }
        _ => return Err(Failure::Syntax),
    }
    let key = args.get(2);
    check_key(key)?;
    Ok(Plan::One(Action::View(View::Memory { key_bytes: key.len() as u32 }), [key, &[]]))
}

fn set_expiring(
    args: Args<'_>,
    now_ms: u64,
    seconds: bool,
    name: &'static str,
) -> Result<Action, Failure> {
    match (Unit { seconds, relative: true }).expiry(args.get(2), now_ms, name)? {
        Expiry::At(expiry_ms) => Ok(Action::Set { expiry_ms }),
        Expiry::Keep | Expiry::Invalid { .. } => Err(Failure::Syntax),
    }
}

fn expire(verb: Verb, args: Args<'_>, now_ms: u64) -> Result<Action, Failure> {
    let unit = Unit {
        seconds: matches!(verb, Verb::Expire | Verb::ExpireAt),
        relative: matches!(verb, Verb::Expire | Verb::PExpire),
    };
    let when = options::expire(args)?;
    let number = parse_i64(args.get(2)).ok_or(Failure::NotAnInteger)?;
    let at_ms = unit.instant(number, now_ms).ok_or(Failure::ExpireTime(verb.name()))?;
    Ok(Action::Expire(at_ms, when))
}
