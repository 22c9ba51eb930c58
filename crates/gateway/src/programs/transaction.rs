//! MULTI and what follows it: commands wait here until EXEC, which has them run as one program if
//! they touch one key, or executes them one after the other.

use super::{Budget, Program, is_key};
use crate::command::{Verb, introspect};
use crate::config::Transactions;
use crate::connection::ConnectionId;
use crate::execute::{Flow, Plan, answer_here, execute_queued, plan, refuse, refuse_command};
use crate::failure::{ErrorKind, Failure};
use crate::operation::{Action, Version};
use crate::resp::{Args, Range, write};
use crate::running::{Link, Running};
use crate::shared::Shared;

/// Commands of one transaction.
const COMMANDS_MAX: usize = 100_000;
/// About the nanoseconds that it takes to have the gateway answer a command.
const ANSWER_WORK: usize = 200;

const SEVERAL: &str = "ERR a transaction of several keys, which no write spans, is refused; with \
     transactions = \"batch\" in [gateway] its commands are executed one after the other, without \
     isolation";
const SEVERAL_WATCHED: &str =
    "ERR a transaction that watches a key may touch that one only: no write spans several keys";

/// Commands that wait for EXEC.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    bytes: Vec<u8>,
    ranges: Vec<Range>,
    queued: Vec<Queued>,
    /// What the gateway answers itself.
    answers: Vec<u8>,
    /// The key that is touched.
    key: Option<Range>,
    touches_several: bool,
    /// A command was refused, so none is executed.
    is_refused: bool,
    asks_gateway: bool,
    /// Those before this one have been executed.
    next: usize,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    verb: Verb,
    /// Its arguments among the ranges.
    first: u32,
    end: u32,
    /// Where the reply is among the answers, if the gateway knows it itself.
    answered: Option<Range>,
}

/// A command as it is run.
pub(crate) struct Command<'a> {
    pub(crate) verb: Verb,
    pub(crate) args: Args<'a>,
    pub(crate) answered: Option<&'a [u8]>,
}

/// The key that a connection watches.
#[derive(Debug)]
pub(crate) struct Watched {
    key: Vec<u8>,
    /// `None` until it is known.
    version: Option<Version>,
}

impl Watched {
    /// The rack has told what there is of a key.
    pub(crate) fn found(&mut self, key: &[u8], version: Version) {
        if self.key == key {
            self.version = Some(version);
        }
    }
}

impl Transaction {
    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
            + self.answers.len()
            + self.ranges.len() * size_of::<Range>()
            + self.queued.len() * size_of::<Queued>()
    }

    /// Appends the head of its reply.
    pub(crate) fn head(&self, out: &mut Vec<u8>) {
        write::array(out, self.queued.len());
    }

    pub(crate) fn commands(&self) -> impl Iterator<Item = Command<'_>> {
        self.queued.iter().map(|queued| Command {
            verb: queued.verb,
            args: self.args(queued),
            answered: queued.answered.map(|range| &self.answers[range.from()..range.to()]),
        })
    }

    fn args(&self, queued: &Queued) -> Args<'_> {
        Args::new(&self.bytes, &self.ranges[queued.first as usize..queued.end as usize])
    }

    fn key(&self) -> Option<&[u8]> {
        self.key.map(|range| &self.bytes[range.from()..range.to()])
    }

    /// Takes over a command, and which keys it touches.
    fn push(&mut self, verb: Verb, args: Args<'_>) {
        let first = self.ranges.len();
        for argument in args.from(0) {
            let from = self.bytes.len();
            self.bytes.extend_from_slice(argument);
            self.ranges.push(Range::new(from, self.bytes.len()));
        }
        let end = self.ranges.len();
        if self.key.is_none() {
            let key = verb.keys(args).next().and_then(|at| self.ranges.get(first + at));
            self.key = key.copied();
        }
        self.asks_gateway |= verb.asks_gateway();
        let (first, end) = (first as u32, end as u32);
        self.queued.push(Queued { verb, first, end, answered: None });
    }

    /// Whether a command touches another key than those before it, or the one that is `watched`.
    fn is_left_by(&self, verb: Verb, args: Args<'_>, watched: Option<&[u8]>) -> bool {
        let mut keys = verb.keys(args).map(|at| args.get(at));
        let Some(key) = self.key().or(watched).or_else(|| keys.clone().next()) else {
            return verb.touches_all();
        };
        verb.touches_all() || keys.any(|other| other != key)
    }

    /// Has the gateway answer the commands that touch no key.
    ///
    /// # Errors
    ///
    /// The answers are longer than a reply may be, or take too long.
    fn ask_gateway(
        &mut self,
        running: &mut Running,
        shared: &Shared,
        id: ConnectionId,
    ) -> Result<(), Failure> {
        let bytes_max = running.config.output_bytes_hard;
        let mut budget = Budget::default();
        for at in 0..self.queued.len() {
            let queued = self.queued[at];
            let Ok(Plan::Here(answer)) = plan(queued.verb, self.args(&queued), running.now.unix_ms)
            else {
                continue;
            };
            let args = self.args(&queued);
            let reply = running.captured(|running| answer(running, shared, id, args));
            let from = self.answers.len();
            if from.saturating_add(reply.len()) > bytes_max {
                return Err(Failure::ReplyLength(bytes_max));
            }
            budget.spend(ANSWER_WORK + reply.len())?;
            self.answers.extend_from_slice(&reply);
            self.queued[at].answered = Some(Range::new(from, self.answers.len()));
        }
        Ok(())
    }
}

fn ok(running: &mut Running, id: ConnectionId, verb: Verb) {
    answer_here(running, id, Some(verb), |out, _| write::simple(out, "OK"));
}

/// A command of the table that comes after MULTI.
pub(crate) fn queue(running: &mut Running, id: ConnectionId, verb: Verb, args: Args<'_>) {
    let mode = running.config.transactions;
    let bytes_max = running.config.command_bytes_max;
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    let watched = connection.watched.as_deref().map(|watched| &watched.key[..]);
    let Some(transaction) = &mut connection.multi else { return };
    let several = transaction.is_left_by(verb, args, watched);
    let refusal = match () {
        () if verb.changes_connection() => Some(Failure::NotInTransaction(verb.name())),
        () if several && watched.is_some() => Some(Failure::Unsupported(SEVERAL_WATCHED)),
        () if several && mode == Transactions::Refuse => Some(Failure::Unsupported(SEVERAL)),
        () if verb.keys(args).any(|at| !is_key(args.get(at))) => Some(Failure::KeyLength),
        () if transaction.queued.len() >= COMMANDS_MAX
            || transaction.bytes() + args.bytes() > bytes_max =>
        {
            Some(Failure::TransactionLength { commands: COMMANDS_MAX, bytes: bytes_max })
        }
        () => None,
    };
    if let Some(failure) = refusal {
        transaction.is_refused = true;
        return refuse_command(running, id, verb, failure.kind(), &failure.text());
    }
    transaction.touches_several |= several;
    transaction.push(verb, args);
    answer_here(running, id, None, |out, _| write::simple(out, "QUEUED"));
}

/// A command after MULTI was refused: the transaction can't be executed any more.
pub(crate) fn spoil(running: &mut Running, id: ConnectionId) {
    if let Some(connection) = running.outbox.replies.connections.get_mut(id)
        && let Some(transaction) = &mut connection.multi
    {
        transaction.is_refused = true;
    }
}

pub(crate) fn multi(running: &mut Running, _: &Shared, id: ConnectionId, _: Args<'_>) {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    if connection.multi.is_some() {
        return refuse(running, id, ErrorKind::Command, "ERR MULTI calls can not be nested");
    }
    connection.multi = Some(Box::default());
    ok(running, id, Verb::Multi);
}

pub(crate) fn discard(running: &mut Running, _: &Shared, id: ConnectionId, _: Args<'_>) {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else { return };
    if connection.multi.take().is_none() {
        return refuse(running, id, ErrorKind::Command, "ERR DISCARD without MULTI");
    }
    connection.watched = None;
    ok(running, id, Verb::Discard);
}

pub(crate) fn unwatch(running: &mut Running, _: &Shared, id: ConnectionId, _: Args<'_>) {
    if let Some(connection) = running.outbox.replies.connections.get_mut(id) {
        connection.watched = None;
    }
    ok(running, id, Verb::Unwatch);
}

pub(crate) fn watch(
    running: &mut Running,
    link: &mut Link,
    _: &Shared,
    id: ConnectionId,
    args: Args<'_>,
) -> Flow {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else {
        return Flow::Done;
    };
    let key = args.get(1);
    if connection.multi.is_some() {
        refuse(running, id, ErrorKind::Command, "ERR WATCH inside MULTI is not allowed");
    } else if let Some(watched) = &connection.watched
        && args.from(1).all(|other| other == watched.key)
    {
        ok(running, id, Verb::Watch);
    } else if connection.watched.is_some() || args.from(2).any(|other| other != key) {
        let text = "ERR WATCH of several keys is refused: no write spans several keys";
        refuse_command(running, id, Verb::Watch, ErrorKind::Unsupported, text);
    } else {
        connection.watched = Some(Box::new(Watched { key: key.to_vec(), version: None }));
        running.start(link, id, Verb::Watch, Action::Watch, key, &[]);
    }
    Flow::Done
}

pub(crate) fn exec(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
    _: Args<'_>,
) -> Flow {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else {
        return Flow::Done;
    };
    // What is watched has to be known.
    if connection.multi.is_some() && connection.watched.is_some() && !connection.is_idle() {
        return Flow::Wait;
    }
    let Some(mut transaction) = connection.multi.take() else {
        refuse(running, id, ErrorKind::Command, "ERR EXEC without MULTI");
        return Flow::Done;
    };
    let watched = connection.watched.take();
    let resp3 = connection.resp3;
    if transaction.is_refused {
        let text = "EXECABORT Transaction discarded because of previous errors.";
        refuse(running, id, ErrorKind::Command, text);
        return Flow::Done;
    }
    if let Some(why) = &running.outbox.spool_failure
        && transaction.queued.iter().any(|queued| queued.verb.may_write())
    {
        let failure = Failure::Spool(why.clone());
        refuse(running, id, failure.kind(), &failure.text());
        return Flow::Done;
    }
    let key = transaction.key().or(watched.as_deref().map(|watched| &watched.key[..]));
    let Some(key) = key.filter(|_| !transaction.touches_several).map(<[u8]>::to_vec) else {
        answer_here(running, id, Some(Verb::Exec), |out, _| transaction.head(out));
        if let Some(connection) = running.outbox.replies.connections.get_mut(id) {
            connection.replayed = Some(transaction).filter(|all| !all.queued.is_empty());
        }
        return Flow::Done;
    };
    let only_if = match watched.map(|watched| watched.version) {
        None => None,
        Some(Some(version)) => Some(version),
        // The read failed, as WATCH was told.
        Some(None) => {
            answer_here(running, id, Some(Verb::Exec), write::null_array);
            return Flow::Done;
        }
    };
    if shared.monitors.are_any() {
        for command in transaction.commands() {
            introspect::show(running, shared, id, command.verb, command.args);
        }
    }
    if transaction.asks_gateway
        && let Err(failure) = transaction.ask_gateway(running, shared, id)
    {
        refuse(running, id, failure.kind(), &failure.text());
        return Flow::Done;
    }
    running.start_program(
        link,
        id,
        Verb::Exec,
        &key,
        Program::transaction(*transaction, only_if, resp3),
    );
    Flow::Done
}

/// Executes the next command of a transaction that takes one after the other; its reply is the next
/// element of EXEC's. If it has to wait it is still the next one.
pub(crate) fn replay(
    running: &mut Running,
    link: &mut Link,
    shared: &Shared,
    id: ConnectionId,
) -> Flow {
    let Some(connection) = running.outbox.replies.connections.get_mut(id) else {
        return Flow::Done;
    };
    let Some(mut transaction) = connection.replayed.take() else { return Flow::Done };
    let Some(queued) = transaction.queued.get(transaction.next).copied() else {
        return Flow::Done;
    };
    let flow = execute_queued(running, link, shared, id, transaction.args(&queued));
    if flow == Flow::Done {
        transaction.next += 1;
    }
    if transaction.next < transaction.queued.len()
        && let Some(connection) = running.outbox.replies.connections.get_mut(id)
    {
        connection.replayed = Some(transaction);
    }
    flow
}
