//! Copies of records, on which commands run as they would in the rack: each is an operation, and
//! its reads and writes are answered from here.

use crate::batch::{Batch, Kind, Next, Part};
use crate::command::Verb;
use crate::connection::ConnectionId;
use crate::execute::{Plan, plan};
use crate::failure::Failure;
use crate::operation::{Action, Answer, Operation, Parent};
use crate::resp::{Args, write};
use switchback_core::client::Operation as Request;
use switchback_wire::{Seq, VALUE_BYTES_MAX};

/// What the commands together do to a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    Nothing,
    Write { expiry_ms: u64 },
    Delete,
}

/// A record as it was found, and what commands made of it.
#[derive(Debug, Default)]
struct RecordCopy {
    key: Vec<u8>,
    value: Vec<u8>,
    exists: bool,
    expiry_ms: u64,
    existed: bool,
    is_changed: bool,
}

/// Copies and bytes of one that are kept for later programs.
const KEPT_MAX: usize = 16;
const KEPT_BYTES_MAX: usize = 64 << 10;

/// See the [module](self). They keep small buffers.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// The first `count` are in use.
    all: Vec<RecordCopy>,
    count: usize,
    now_ms: u64,
    operation: Operation,
    batch: Batch,
    /// The longest reply.
    reply_bytes_max: usize,
    /// Bytes of the values that commands had to do with.
    work: usize,
}

impl Copies {
    /// Of a gateway whose replies have at most `reply_bytes_max` bytes.
    pub(crate) fn new(reply_bytes_max: usize) -> Copies {
        Copies { reply_bytes_max, ..Copies::default() }
    }

    /// Begins with none.
    pub(crate) fn begin(&mut self, now_ms: u64) {
        (self.count, self.now_ms) = (0, now_ms);
    }

    /// Adds what was found of a key, of which there is no copy yet.
    pub(crate) fn add(&mut self, key: &[u8], found: Option<(&[u8], u64)>) {
        if self.count == self.all.len() {
            self.all.push(RecordCopy::default());
        }
        let copy = &mut self.all[self.count];
        self.count += 1;
        copy.key.clear();
        copy.key.extend_from_slice(key);
        copy.value.clear();
        copy.value.extend_from_slice(found.map_or(&[], |(value, _)| value));
        copy.exists = found.is_some();
        copy.existed = copy.exists;
        copy.expiry_ms = found.map_or(0, |(_, expiry_ms)| expiry_ms);
        copy.is_changed = false;
    }

    /// What has to be done to the copy that was added as number `at`; the value to write is put
    /// into `value`.
    pub(crate) fn end(&mut self, at: usize, value: &mut Vec<u8>) -> Effect {
        let copy = &mut self.all[at];
        match (copy.is_changed, copy.exists) {
            (true, true) => {
                std::mem::swap(value, &mut copy.value);
                Effect::Write { expiry_ms: copy.expiry_ms }
            }
            (true, false) if copy.existed => Effect::Delete,
            (true | false, _) => Effect::Nothing,
        }
    }

    /// None of them is needed any more.
    pub(crate) fn rest(&mut self) {
        for copy in &mut self.all[..self.count] {
            if copy.value.capacity() > KEPT_BYTES_MAX {
                copy.value = Vec::new();
            }
        }
        self.all.truncate(KEPT_MAX);
        self.count = 0;
    }

    /// How many bytes of values commands had to do with since it was asked the last time.
    pub(crate) fn take_work(&mut self) -> usize {
        std::mem::take(&mut self.work)
    }

    fn place(&self, key: &[u8]) -> Option<usize> {
        self.all[..self.count].iter().position(|copy| copy.key == key)
    }

    /// Whether there is a copy of this key's record.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.place(key).is_some()
    }

    /// Executes a command, of whose keys there are copies, and appends its reply.
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

    /// Runs one operation on a record.
    fn answer(
        &mut self,
        verb: Verb,
        action: Action,
        [key, argument, expected]: [&[u8]; 3],
        take: impl FnOnce(&Answer<'_>),
    ) {
        let Some(at) = self.place(key) else { return take(&Answer::Failed(Failure::KeyLength)) };
        let Copies { operation, all, now_ms, work, .. } = self;
        let RecordCopy { value, exists, expiry_ms, is_changed, .. } = &mut all[at];
        *work += value.len();
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

    /// Runs a command of several parts.
    fn batch(&mut self, verb: Verb, kind: Kind, args: Args<'_>, out: &mut Vec<u8>, resp3: bool) {
        let mut batch = std::mem::take(&mut self.batch);
        let result_bytes_max = self.reply_bytes_max;
        batch.begin(kind, ConnectionId::default(), 0, verb);
        batch.fill(args);
        while let Next::Part(part) = batch.next(true) {
            let Part { action, key, argument, expected } = batch.part(part);
            let words = [key, argument, expected].map(<[u8]>::to_vec);
            self.answer(verb, action, words.each_ref().map(Vec::as_slice), |answer| {
                batch.done(part, answer, result_bytes_max);
            });
        }
        batch.write(out, resp3);
        batch.end();
        self.batch = batch;
    }
}
