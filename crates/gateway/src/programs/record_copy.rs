//! A copy of one record, on which commands run as they would in the rack: each is an operation, and
//! its reads and writes are answered from here.

use crate::batch::{Batch, Kind, Next};
use crate::command::Verb;
use crate::connection::ConnectionId;
use crate::execute::{Plan, plan};
use crate::failure::Failure;
use crate::operation::{Action, Answer, Operation, Parent};
use crate::resp::{Args, write};
use switchback_core::client::Operation as Request;
use switchback_wire::{Seq, VALUE_BYTES_MAX};

/// What the commands together do to the record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Nothing,
    Write { expiry_ms: u64 },
    Delete,
}

/// See the [module](self). It keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct RecordCopy {
    key: Vec<u8>,
    value: Vec<u8>,
    exists: bool,
    expiry_ms: u64,
    existed: bool,
    is_changed: bool,
    now_ms: u64,
    operation: Operation,
    batch: Batch,
}

impl RecordCopy {
    /// Begins with what was found of a key.
    pub(crate) fn begin(&mut self, key: &[u8], found: Option<(&[u8], u64)>, now_ms: u64) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(found.map_or(&[], |(value, _)| value));
        self.exists = found.is_some();
        self.existed = self.exists;
        self.expiry_ms = found.map_or(0, |(_, expiry_ms)| expiry_ms);
        self.is_changed = false;
        self.now_ms = now_ms;
    }

    /// What has to be done for what was executed; the value to write is put into `value`.
    pub(crate) fn end(&mut self, value: &mut Vec<u8>) -> Effect {
        match (self.is_changed, self.exists) {
            (true, true) => {
                std::mem::swap(value, &mut self.value);
                Effect::Write { expiry_ms: self.expiry_ms }
            }
            (true, false) if self.existed => Effect::Delete,
            (true | false, _) => Effect::Nothing,
        }
    }

    /// Whether it is the record of this key.
    pub(crate) fn is_of(&self, key: &[u8]) -> bool {
        self.key == key
    }

    /// Executes a command, which names no other key, and appends its reply.
    pub(crate) fn execute(&mut self, args: Args<'_>, out: &mut Vec<u8>, resp3: bool) {
        let Some(verb) = Verb::from_name(args.get(0)) else { return };
        let result = match plan(verb, args, self.now_ms) {
            Ok(Plan::One(action, [key, argument])) => {
                self.answer(verb, action, [key, argument, &[]], |answer| answer.write(out, resp3));
                Ok(())
            }
            Ok(Plan::Comparing(action, parts)) => {
                self.answer(verb, action, parts, |answer| answer.write(out, resp3));
                Ok(())
            }
            Ok(Plan::Made(action, key, argument)) => {
                let parts = [key, &argument, &[]];
                self.answer(verb, action, parts, |answer| answer.write(out, resp3));
                Ok(())
            }
            Ok(Plan::Many(kind)) if kind.names_keys() => {
                self.batch(verb, kind, args, out, resp3);
                Ok(())
            }
            Ok(_) => Err(Failure::NotOfOneKey(verb.name())),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = result {
            write::error(out, &failure.text());
        }
    }

    /// Runs one operation on the record.
    fn answer(
        &mut self,
        verb: Verb,
        action: Action,
        [key, argument, expected]: [&[u8]; 3],
        take: impl FnOnce(&Answer<'_>),
    ) {
        let RecordCopy { operation, value, exists, expiry_ms, is_changed, now_ms, .. } = self;
        debug_assert_eq!(self.key, key);
        operation.begin(ConnectionId::default(), Parent::None, verb, action);
        operation.fill(key, argument);
        operation.expect(expected);
        loop {
            match operation.request() {
                Request::Read { .. } => {
                    let found = exists.then_some((&value[..], *expiry_ms));
                    if let Some(answer) = operation.read(found, Seq::NONE, *now_ms) {
                        take(&answer);
                        break;
                    }
                }
                Request::Write { value: new, .. } if new.len() > VALUE_BYTES_MAX => {
                    take(&Answer::Failed(Failure::ValueLength));
                    break;
                }
                Request::Write { value: new, expiry_ms: at_ms, .. } => {
                    value.clear();
                    value.extend_from_slice(new);
                    (*exists, *expiry_ms, *is_changed) = (true, at_ms, true);
                    take(&operation.written());
                    break;
                }
                Request::Delete { .. } => {
                    (*exists, *is_changed) = (false, true);
                    take(&operation.written());
                    break;
                }
                Request::Scan { .. } => break, // no operation's request
            }
        }
        operation.end();
    }

    /// Runs a command that names its one key several times.
    fn batch(&mut self, verb: Verb, kind: Kind, args: Args<'_>, out: &mut Vec<u8>, resp3: bool) {
        let mut batch = std::mem::take(&mut self.batch);
        batch.begin(kind, ConnectionId::default(), 0, verb);
        batch.fill(args);
        while let Next::Part(part) = batch.next(true) {
            let (action, key, argument) = batch.part(part);
            let (key, argument) = (key.to_vec(), argument.to_vec());
            self.answer(verb, action, [&key, &argument, &[]], |answer| {
                batch.done(part, answer, usize::MAX);
            });
        }
        batch.write(out, resp3);
        batch.end();
        self.batch = batch;
    }
}
