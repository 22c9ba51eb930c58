//! One operation on one key: what a command (or one key of a command) wants of the rack, and how
//! far it has come.
//!
//! Writes that depend on what is there are a read and a conditional write with the read's sequence
//! number, which the owner of the record decides; if another writer came between, it starts over.

use crate::command::Verb;
use crate::command::options::{ExpireIf, Expiry, OnlyIf, SetOptions};
use crate::connection::ConnectionId;
use crate::failure::Failure;
use crate::key_queues::Place;
use crate::programs::{Effect, Program, Programs};
use crate::resp::write;
use crate::strings::{Change, Reply, Update, View};
use std::borrow::Cow;
use switchback_core::client::{Operation as Request, Outcome};
use switchback_heat::Subject;
use switchback_wire::{CACHED_VALUE_BYTES_MAX, Seq};

/// Conditional writes of one operation that may fail before it gives up.
pub(crate) const ATTEMPTS_MAX: u32 = 256;
/// Buffers longer than this aren't kept.
const KEPT_BYTES_MAX: usize = 4096;

/// What is to be done with the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Action {
    #[default]
    Get,
    /// The value and when it expires.
    Record,
    View(View),
    /// Time to live or expiry, in ms or s.
    Expiry {
        seconds: bool,
        absolute: bool,
    },
    /// An unconditional write.
    Set {
        expiry_ms: u64,
    },
    SetIf(SetOptions, bool),
    GetDel,
    GetEx(Expiry),
    Update(Update),
    /// At this time, of the Unix epoch in milliseconds.
    Expire(i64, ExpireIf),
    Persist,
    /// Counts whether there was something.
    Delete,
    /// The same, of something that it may be done to.
    DeleteIf(OnlyIf),
    /// Writes a value that must not be there yet, or may be if it `replaces`: one that expires
    /// then, if it isn't 0. An error is answered where it would be written.
    Restore {
        replaces: bool,
        expiry_ms: Result<u64, &'static str>,
    },
    /// An unconditional delete.
    Erase,
    /// Writes the argument, or deletes, on the condition that the record is this version.
    Replace {
        seq: Seq,
        expiry_ms: u64,
    },
    Remove(Seq),
    /// Learns what version there is.
    Watch,
    /// What the operation's program makes of the record.
    Program,
}

impl Action {
    /// Whether it reads before it writes.
    fn is_read_modify_write(self) -> bool {
        match self {
            Action::Get | Action::Record | Action::View(_) => false,
            Action::Expiry { .. } | Action::Watch => false,
            Action::Set { .. } | Action::Erase | Action::GetEx(Expiry::Keep) => false,
            Action::Replace { .. } | Action::Remove(_) => false,
            Action::SetIf(..)
            | Action::GetDel
            | Action::GetEx(_)
            | Action::Update(_)
            | Action::Program
            | Action::Restore { .. } => true,
            Action::Expire(..) | Action::Persist | Action::Delete | Action::DeleteIf(_) => true,
        }
    }
}

/// Where the answer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Parent {
    #[default]
    None,
    /// Reply `.0` of the connection.
    Reply(u64),
    /// Part `.1` of batch `.0`.
    Batch(u32, u32),
}

/// An answer, before it is put into the reply's form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Answer<'a> {
    Ok,
    Null,
    Status(&'static str),
    Integer(i64),
    Bulk(&'a [u8]),
    /// What a part of a batch has read: no reply.
    Record {
        found: Option<(&'a [u8], u64)>,
        seq: Seq,
    },
    /// A bulk string that is nowhere else.
    Made(Vec<u8>),
    /// An array of integers and nulls.
    Fields(Cow<'a, [Option<i64>]>),
    /// A whole reply, in its form.
    Reply(Cow<'a, [u8]>),
    /// A transaction isn't executed, since the record isn't what it was.
    Changed,
    Watched(Version),
    Failed(Failure),
}

/// What WATCH found: which version of the record, and whether that was a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    pub(crate) seq: Seq,
    pub(crate) exists: bool,
}

impl Answer<'_> {
    /// Puts it into the reply's form.
    #[inline]
    pub(crate) fn write(&self, out: &mut Vec<u8>, resp3: bool) {
        match self {
            Answer::Ok | Answer::Watched(_) => write::simple(out, "OK"),
            Answer::Null => write::null(out, resp3),
            Answer::Status(text) => write::simple(out, text),
            Answer::Integer(number) => write::integer(out, *number),
            Answer::Bulk(bytes) => write::bulk(out, bytes),
            Answer::Record { .. } => {}
            Answer::Made(bytes) => write::bulk(out, bytes),
            Answer::Fields(fields) => {
                write::array(out, fields.len());
                for field in fields.iter() {
                    match field {
                        Some(number) => write::integer(out, *number),
                        None => write::null(out, resp3),
                    }
                }
            }
            Answer::Reply(reply) => out.extend_from_slice(reply),
            Answer::Changed => write::null_array(out, resp3),
            Answer::Failed(failure) => write::error(out, &failure.text()),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OperationState {
    #[default]
    Free,
    /// In a key's queue, behind others.
    Waiting,
    /// Its next request can be submitted.
    Ready,
    /// Submitted.
    Submitted,
    /// The session refused it; it is tried again.
    Parked,
}

/// The next request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Step {
    #[default]
    Read,
    WriteArgument(Option<Seq>),
    WriteStored(Option<Seq>),
    Delete(Option<Seq>),
}

#[derive(Debug, Default)]
pub(crate) struct Operation {
    pub(crate) state: OperationState,
    pub(crate) connection: ConnectionId,
    pub(crate) parent: Parent,
    pub(crate) verb: Option<Verb>,
    action: Action,
    pub(crate) key: Vec<u8>,
    argument: Vec<u8>,
    /// What the value is compared with.
    expected: Vec<u8>,
    /// What the record held, or is to hold.
    stored: Vec<u8>,
    /// The answers of a BITFIELD.
    fields: Vec<Option<i64>>,
    program: Option<Box<Program>>,
    step: Step,
    /// The answer once the write has happened.
    planned: Reply,
    expiry_ms: u64,
    attempts: u32,
    /// Everything so far was answered by the cache.
    pub(crate) cached: bool,
    pub(crate) arrived_us: u64,
    pub(crate) parked_us: u64,
    pub(crate) places: [Place; 2],
    pub(crate) waits: u8,
    /// The last one that the request under way is for; itself, if there are no others.
    pub(crate) run_last: u32,
}

impl Operation {
    /// Begins anew.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        connection: ConnectionId,
        parent: Parent,
        verb: Verb,
        action: Action,
    ) {
        assert_eq!(self.state, OperationState::Free);
        self.state = OperationState::Ready;
        self.connection = connection;
        self.parent = parent;
        self.verb = Some(verb);
        self.action = action;
        self.attempts = 0;
        self.cached = true;
        self.planned = Reply::Ok;
        self.expiry_ms = 0;
        self.step = match action {
            Action::Set { expiry_ms } => {
                self.expiry_ms = expiry_ms;
                Step::WriteArgument(None)
            }
            Action::Replace { seq, expiry_ms } => {
                self.expiry_ms = expiry_ms;
                Step::WriteArgument(Some(seq))
            }
            Action::Remove(seq) => Step::Delete(Some(seq)),
            Action::Erase => {
                self.planned = Reply::Integer(1);
                Step::Delete(None)
            }
            _ => Step::Read,
        };
    }

    #[inline]
    pub(crate) fn fill(&mut self, key: &[u8], argument: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.argument.clear();
        self.argument.extend_from_slice(argument);
    }

    /// What the value is to be compared with.
    pub(crate) fn expect(&mut self, expected: &[u8]) {
        self.expected.extend_from_slice(expected);
    }

    /// Takes over what is to be run on the record.
    pub(crate) fn run(&mut self, program: Box<Program>) {
        self.program = Some(program);
    }

    #[inline]
    pub(crate) fn has_program(&self) -> bool {
        self.program.is_some()
    }

    /// Gives everything back but small buffers.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.state = OperationState::Free;
        self.program = None;
        self.connection = ConnectionId::default();
        self.parent = Parent::None;
        self.expected.clear();
        for buffer in [&mut self.argument, &mut self.expected, &mut self.stored] {
            if buffer.capacity() > KEPT_BYTES_MAX {
                *buffer = Vec::new();
            }
        }
        if self.fields.capacity() > KEPT_BYTES_MAX / size_of::<Option<i64>>() {
            self.fields = Vec::new();
        }
    }

    pub(crate) fn is_read_modify_write(&self) -> bool {
        self.action.is_read_modify_write()
    }

    /// Whether its next request may be one for several operations: a read, or a write that comes
    /// with no condition. (Of large values only the parts are requests.)
    #[inline]
    pub(crate) fn is_shareable(&self) -> bool {
        match self.step {
            Step::Read => !self.is_read_modify_write(),
            Step::WriteArgument(condition) => {
                condition.is_none() && self.argument.len() <= CACHED_VALUE_BYTES_MAX
            }
            Step::Delete(condition) => condition.is_none(),
            Step::WriteStored(_) => false,
        }
    }

    /// Whether it waits for `first`, or one like that, and needs no request of its own.
    #[inline]
    pub(crate) fn may_share_with(&self, first: &Operation) -> bool {
        self.state == OperationState::Waiting
            && self.is_shareable()
            && (self.step == Step::Read) == (first.step == Step::Read)
            && self.connection == first.connection
            && self.key == first.key
    }

    /// Bytes of memory that it holds while it isn't finished.
    pub(crate) fn held_bytes(&self) -> usize {
        let program = self.program.as_deref().map_or(0, Program::held_bytes);
        self.key.len() + self.argument.len() + self.expected.len() + program
    }

    /// The request to submit next.
    #[inline]
    pub(crate) fn request(&self) -> Request<'_> {
        let (key, expiry_ms) = (&self.key[..], self.expiry_ms);
        match self.step {
            Step::Read => Request::Read { key },
            Step::WriteArgument(condition) => {
                Request::Write { key, value: &self.argument, expiry_ms, condition }
            }
            Step::WriteStored(condition) => {
                Request::Write { key, value: &self.stored, expiry_ms, condition }
            }
            Step::Delete(condition) => Request::Delete { key, condition },
        }
    }

    /// What its request was about, which had this outcome.
    pub(crate) fn subject(&self, outcome: Outcome<'_>) -> Subject<'_> {
        let value_bytes = match (self.request(), outcome) {
            (Request::Write { value, .. }, _) | (_, Outcome::Value { value, .. }) => {
                Some(value.len() as u32)
            }
            _ => None,
        };
        Subject { key: &self.key, value_bytes }
    }

    /// The write happened.
    #[inline]
    pub(crate) fn written(&self) -> Answer<'_> {
        match self.planned {
            Reply::Ok => Answer::Ok,
            Reply::Null => Answer::Null,
            Reply::Integer(number) => Answer::Integer(number),
            Reply::Value => Answer::Bulk(&self.stored),
            Reply::Fields => Answer::Fields(Cow::Borrowed(&self.fields)),
            Reply::Program => {
                Answer::Reply(Cow::Borrowed(self.program.as_deref().map_or(&[], Program::reply)))
            }
        }
    }

    /// Another writer came between: starts over, but for an error after `ATTEMPTS_MAX` times.
    pub(crate) fn condition_failed(&mut self) -> Option<Answer<'static>> {
        if matches!(self.action, Action::Replace { .. } | Action::Remove(_)) {
            return Some(Answer::Changed);
        }
        self.attempts += 1;
        self.step = Step::Read;
        let is_over = self.attempts >= ATTEMPTS_MAX;
        match &self.program {
            None => is_over.then_some(Answer::Failed(Failure::Contended(self.attempts))),
            Some(program) if program.watches() => Some(Answer::Changed),
            Some(_) => is_over.then_some(Answer::Failed(Failure::Overtaken(self.attempts))),
        }
    }

    /// The answer if it can't be known what became of its write.
    pub(crate) fn indeterminate(&self, deadline_ms: u64) -> Answer<'static> {
        Answer::Failed(match self.program {
            None => Failure::Indeterminate(deadline_ms),
            Some(_) => Failure::IndeterminateProgram(deadline_ms),
        })
    }

    /// The same as [`Operation::read`], of an operation that has a program.
    pub(crate) fn read_program(
        &mut self,
        found: Option<(&[u8], u64)>,
        seq: Seq,
        now_ms: u64,
        programs: &mut Programs,
    ) -> Option<Answer<'static>> {
        let found = found.filter(|&(_, expiry_ms)| expiry_ms == 0 || expiry_ms > now_ms);
        let Some(program) = &mut self.program else { return Some(internal_error()) };
        if program.is_outdated(Version { seq, exists: found.is_some() }) {
            return Some(Answer::Changed);
        }
        match programs.run(program, &self.key, found, now_ms, &mut self.stored) {
            Ok(Effect::Nothing) => Some(Answer::Reply(Cow::Owned(program.take_reply()))),
            Ok(Effect::Write { expiry_ms }) => {
                self.plan(Step::WriteStored(Some(seq)), expiry_ms, Reply::Program)
            }
            Ok(Effect::Delete) => self.plan(Step::Delete(Some(seq)), 0, Reply::Program),
            Err(failure) => Some(Answer::Failed(failure)),
        }
    }

    /// The read's answer has come: the operation's answer, or `None` if now it has to write.
    #[inline]
    pub(crate) fn read<'a>(
        &mut self,
        found: Option<(&'a [u8], u64)>,
        seq: Seq,
        now_ms: u64,
    ) -> Option<Answer<'a>> {
        // The record's owner decides whether it has expired; but one that has by this gateway's
        // clock has no time to live that TTL could tell, so it counts as absent.
        let found = found.filter(|&(_, expiry_ms)| expiry_ms == 0 || expiry_ms > now_ms);
        let (value, expiry_ms) = found.unwrap_or((&[], 0));
        let exists = found.is_some();
        match self.action {
            Action::Get | Action::GetEx(Expiry::Keep) => {
                Some(if exists { Answer::Bulk(value) } else { Answer::Null })
            }
            Action::Record => Some(Answer::Record { found, seq }),
            Action::View(view) => Some(view.of(found.map(|(value, _)| value), &self.argument)),
            Action::Expiry { seconds, absolute } => {
                Some(Answer::Integer(match (exists, expiry_ms) {
                    (false, _) => -2,
                    (true, 0) => -1,
                    (true, at_ms) => time_to_live(at_ms, now_ms, seconds, absolute),
                }))
            }
            Action::SetIf(options, as_integer) => self.set_if(options, as_integer, found, seq),
            Action::Update(update) => self.update(update, found, seq),
            Action::Restore { replaces, expiry_ms } => {
                self.restore_dumped(replaces, expiry_ms, exists, seq, now_ms)
            }
            Action::Expire(at_ms, when) if exists => {
                self.expire(at_ms, when, value, expiry_ms, seq, now_ms)
            }
            Action::GetEx(Expiry::Invalid { not_an_integer: true }) if exists => {
                Some(Answer::Failed(Failure::NotAnInteger))
            }
            Action::GetEx(Expiry::Invalid { .. }) if exists => {
                Some(Answer::Failed(Failure::ExpireTime("getex")))
            }
            // As in Redis, a record that stays as it is counts as unchanged.
            Action::GetEx(Expiry::At(0)) if exists && expiry_ms == 0 => Some(Answer::Bulk(value)),
            Action::GetEx(Expiry::At(at_ms)) if exists => {
                self.restore(value, at_ms, Reply::Value, seq)
            }
            Action::Persist if exists && expiry_ms != 0 => {
                self.restore(value, 0, Reply::Integer(1), seq)
            }
            Action::GetDel if exists => {
                self.keep(value);
                self.plan(Step::Delete(Some(seq)), 0, Reply::Value)
            }
            Action::Delete if exists => self.plan(Step::Delete(Some(seq)), 0, Reply::Integer(1)),
            Action::DeleteIf(only_if) if exists && self.may_happen(only_if, found) => {
                self.plan(Step::Delete(Some(seq)), 0, Reply::Integer(1))
            }
            Action::GetEx(_) | Action::GetDel => Some(Answer::Null),
            Action::Expire(..) | Action::Persist | Action::Delete | Action::DeleteIf(_) => {
                Some(Answer::Integer(0))
            }
            Action::Watch => Some(Answer::Watched(Version { seq, exists })),
            // These begin with a write, so no read of theirs is under way; or have a program.
            Action::Set { .. }
            | Action::Erase
            | Action::Replace { .. }
            | Action::Remove(_)
            | Action::Program => Some(internal_error()),
        }
    }

    fn keep(&mut self, value: &[u8]) {
        self.stored.clear();
        self.stored.extend_from_slice(value);
    }

    #[inline]
    fn plan<'a>(&mut self, step: Step, expiry_ms: u64, planned: Reply) -> Option<Answer<'a>> {
        self.step = step;
        self.expiry_ms = expiry_ms;
        self.planned = planned;
        None
    }

    /// Writes the same value with another expiry.
    fn restore<'a>(
        &mut self,
        value: &[u8],
        expiry_ms: u64,
        planned: Reply,
        seq: Seq,
    ) -> Option<Answer<'a>> {
        self.keep(value);
        self.plan(Step::WriteStored(Some(seq)), expiry_ms, planned)
    }

    fn may_happen(&self, only_if: OnlyIf, found: Option<(&[u8], u64)>) -> bool {
        let is_expected = || found.is_some_and(|(value, _)| value == self.expected);
        match only_if {
            OnlyIf::Always => true,
            OnlyIf::Missing => found.is_none(),
            OnlyIf::Exists => found.is_some(),
            OnlyIf::Equal => is_expected(),
            OnlyIf::Unequal => !is_expected(),
        }
    }

    fn set_if<'a>(
        &mut self,
        options: SetOptions,
        as_integer: bool,
        found: Option<(&'a [u8], u64)>,
        seq: Seq,
    ) -> Option<Answer<'a>> {
        if !self.may_happen(options.only_if, found) {
            return Some(match found {
                Some((value, _)) if options.get => Answer::Bulk(value),
                _ if as_integer => Answer::Integer(0),
                _ => Answer::Null,
            });
        }
        let planned = match found {
            Some((value, _)) if options.get => {
                self.keep(value);
                Reply::Value
            }
            None if options.get => Reply::Null,
            _ if as_integer => Reply::Integer(1),
            _ => Reply::Ok,
        };
        let expiry_ms = match options.expiry {
            Expiry::Keep | Expiry::Invalid { .. } => found.map_or(0, |(_, expiry_ms)| expiry_ms),
            Expiry::At(at_ms) => at_ms,
        };
        self.plan(Step::WriteArgument(Some(seq)), expiry_ms, planned)
    }

    #[inline]
    fn update<'a>(
        &mut self,
        update: Update,
        found: Option<(&[u8], u64)>,
        seq: Seq,
    ) -> Option<Answer<'a>> {
        let (old, expiry_ms) = (found.map(|(value, _)| value), found.map_or(0, |found| found.1));
        match update.apply(old, &self.argument, &mut self.stored, &mut self.fields) {
            Ok(Change::Write(reply)) => self.plan(Step::WriteStored(Some(seq)), expiry_ms, reply),
            Ok(Change::Nothing(length)) => Some(Answer::Integer(length)),
            Ok(Change::NothingInFields) => {
                Some(Answer::Fields(Cow::Owned(std::mem::take(&mut self.fields))))
            }
            Err(failure) => Some(Answer::Failed(failure)),
        }
    }

    fn restore_dumped<'a>(
        &mut self,
        replaces: bool,
        expiry_ms: Result<u64, &'static str>,
        exists: bool,
        seq: Seq,
        now_ms: u64,
    ) -> Option<Answer<'a>> {
        if exists && !replaces {
            let text = "BUSYKEY Target key name already exists.";
            return Some(Answer::Failed(Failure::Static(text)));
        }
        match expiry_ms {
            Err(text) => Some(Answer::Failed(Failure::Static(text))),
            Ok(at_ms) if at_ms == 0 || at_ms > now_ms => {
                self.plan(Step::WriteArgument(Some(seq)), at_ms, Reply::Ok)
            }
            Ok(_) if exists => self.plan(Step::Delete(Some(seq)), 0, Reply::Ok),
            Ok(_) => Some(Answer::Ok),
        }
    }

    fn expire<'a>(
        &mut self,
        at_ms: i64,
        when: ExpireIf,
        value: &[u8],
        expiry_ms: u64,
        seq: Seq,
        now_ms: u64,
    ) -> Option<Answer<'a>> {
        // A record without expiry counts as one that expires at the largest time.
        let current =
            if expiry_ms == 0 { i64::MAX } else { i64::try_from(expiry_ms).unwrap_or(i64::MAX) };
        let refused = (when.none && expiry_ms != 0)
            || (when.some && expiry_ms == 0)
            || (when.greater && (expiry_ms == 0 || at_ms <= current))
            || (when.less && expiry_ms != 0 && at_ms >= current);
        if refused {
            return Some(Answer::Integer(0));
        }
        if at_ms <= now_ms as i64 {
            return self.plan(Step::Delete(Some(seq)), 0, Reply::Integer(1));
        }
        self.restore(value, at_ms as u64, Reply::Integer(1), seq)
    }
}

fn internal_error() -> Answer<'static> {
    Answer::Failed(Failure::Static("ERR internal error"))
}

fn time_to_live(at_ms: u64, now_ms: u64, seconds: bool, absolute: bool) -> i64 {
    let ms = if absolute { at_ms } else { at_ms.saturating_sub(now_ms) };
    let number = if seconds { ms.saturating_add(500) / 1000 } else { ms };
    i64::try_from(number).unwrap_or(i64::MAX)
}
