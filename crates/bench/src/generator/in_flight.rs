//! The operations of a client that are in flight, and what each does next.

use super::client::RunState;
use super::recorder::Recorder;
use crate::verify::{Known, Verifier};
use crate::workload::{Lengths, Request, Requests, Stamp, Verb};
use switchback_core::client::{Completion, Outcome};
use switchback_wire::Seq;

/// An operation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) verb: Verb,
    pub(super) index: u64,
    /// Its outstanding request is a write.
    pub(super) writing: bool,
    /// The version that a conditional write expects.
    pub(super) expected: Option<Seq>,
    /// The write's version.
    version: u32,
    known: Known,
    /// The time when it was due, or in a closed loop begun.
    due_ns: u64,
    /// Whether the cache has answered all requests so far.
    cached: bool,
    /// Whether it is a read of the sweep at the end.
    sweep: bool,
}

/// The next step after an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Nothing,
    /// Submit the write of the operation in this slot.
    Write(u32),
}

/// The operations in flight, by slot; a slot's number is the token that the session returns with
/// a completion.
pub(super) struct InFlight<'a> {
    slots: Vec<Operation>,
    free: Vec<u32>,
    writer: u16,
    versions: u32,
    pub(super) requests: Requests,
    pub(super) recorder: Recorder,
    lengths: &'a Lengths,
    verifier: Option<&'a Verifier>,
    ended: u64,
    swept: u64,
}

impl<'a> InFlight<'a> {
    pub(super) fn new(
        operations: u32,
        writer: u16,
        requests: Requests,
        recorder: Recorder,
        shared: &'a RunState<'a>,
    ) -> InFlight<'a> {
        let nothing = Operation {
            verb: Verb::Read,
            index: 0,
            writing: false,
            expected: None,
            version: 0,
            known: Known::default(),
            due_ns: 0,
            cached: true,
            sweep: false,
        };
        InFlight {
            slots: vec![nothing; operations as usize],
            free: (0..operations).rev().collect(),
            writer,
            versions: 0,
            requests,
            recorder,
            lengths: &shared.lengths,
            verifier: shared.verifier,
            ended: 0,
            swept: 0,
        }
    }

    pub(super) fn verifier(&self) -> Option<&'a Verifier> {
        self.verifier
    }

    #[inline]
    pub(super) fn has_room(&self, outstanding: u32) -> bool {
        self.slots.len() - self.free.len() < (outstanding as usize).min(self.slots.len())
    }

    /// Operations that ended, well or not, since it began.
    pub(super) fn ended(&self) -> u64 {
        self.ended
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &Operation {
        &self.slots[slot as usize]
    }

    /// Begins an operation; there must be room.
    #[inline]
    pub(super) fn begin(&mut self, due_ns: u64, request: Request, sweep: bool) -> u32 {
        let slot = self.free.pop().expect("there is room");
        let Request { verb, index } = request;
        let writing = matches!(verb, Verb::Update | Verb::Insert | Verb::Add);
        let expected = (verb == Verb::Add).then_some(Seq::NONE);
        let known = Known::default();
        self.slots[slot as usize] = Operation {
            verb,
            index,
            writing,
            expected,
            version: 0,
            known,
            due_ns,
            cached: true,
            sweep,
        };
        self.prepare(slot);
        slot
    }

    /// Notes what is known before the next request of an operation is sent, and gives a write its
    /// version.
    #[inline]
    fn prepare(&mut self, slot: u32) {
        let operation = &mut self.slots[slot as usize];
        if operation.writing {
            self.versions += 1;
            operation.version = self.versions;
        }
        let Some(verifier) = self.verifier else { return };
        operation.known = verifier.known(operation.index);
        if operation.writing {
            verifier.begin_write(self.stamp(slot));
        }
    }

    /// The stamp of the value that an operation writes.
    #[inline]
    pub(super) fn stamp(&self, slot: u32) -> Stamp {
        let operation = &self.slots[slot as usize];
        Stamp { index: operation.index, writer: self.writer, version: operation.version }
    }

    /// Takes the outcome of a request.
    #[inline]
    pub(super) fn complete(&mut self, now_ns: u64, completion: Completion<'_>) -> Next {
        let slot = completion.token as u32;
        let operation = self.slots[slot as usize];
        let Some((found, seq)) = self.check(slot, completion.outcome) else {
            self.recorder.failed(operation.due_ns, now_ns);
            self.end(slot);
            return Next::Nothing;
        };
        let value_bytes = match completion.outcome {
            Outcome::Value { value, .. } => value.len(),
            Outcome::Written { .. } => self.lengths.of(operation.index),
            _ => 0,
        };
        let reads = !operation.writing;
        self.recorder.answered(now_ns, reads, found, completion.cached, value_bytes);
        let cached = operation.cached && completion.cached;
        if matches!(operation.verb, Verb::Rmw | Verb::Cas) && !operation.writing {
            let expected = (operation.verb == Verb::Cas).then_some(seq);
            self.slots[slot as usize] = Operation { cached, writing: true, expected, ..operation };
            self.prepare(slot);
            return Next::Write(slot);
        }
        self.recorder.ended(operation.due_ns, now_ns, operation.verb, cached);
        self.swept += u64::from(operation.sweep);
        self.end(slot);
        Next::Nothing
    }

    /// Checks an outcome, if there is a verifier. Returns whether there was a record, and its
    /// version; `None` for outcomes without an answer.
    #[inline]
    fn check(&self, slot: u32, outcome: Outcome<'_>) -> Option<(bool, Seq)> {
        let Operation { index, known, expected, .. } = self.slots[slot as usize];
        match outcome {
            Outcome::Value { value, seq, .. } => {
                if let Some(verifier) = self.verifier {
                    verifier.read(index, known, seq, value);
                }
                Some((true, seq))
            }
            Outcome::NotFound { seq } => {
                if let Some(verifier) = self.verifier {
                    verifier.read_nothing(index, known, seq);
                }
                Some((false, seq))
            }
            Outcome::Written { seq } => {
                if let Some(verifier) = self.verifier {
                    verifier.written(self.stamp(slot), known, expected, seq);
                }
                Some((true, seq))
            }
            Outcome::ConditionFailed { seq } => {
                if let Some(verifier) = self.verifier {
                    verifier.refused(index, known, expected, seq);
                }
                Some((true, seq))
            }
            // The others belong to operations that are never submitted, or have no answer.
            _ => None,
        }
    }

    #[inline]
    fn end(&mut self, slot: u32) {
        let operation = &self.slots[slot as usize];
        if operation.verb == Verb::Insert {
            self.requests.inserted(operation.index);
        }
        self.free.push(slot);
        self.ended += 1;
    }

    /// Counts an operation that was due but can't be begun any more: its latency is at least the
    /// time until now.
    pub(super) fn give_up_due(&mut self, due_ns: u64, now_ns: u64) {
        let request = self.requests.next_request();
        self.recorder.took(due_ns, now_ns, request.verb, false);
    }

    /// Records that the sweep has read.
    pub(super) fn swept(&self) -> u64 {
        self.swept
    }
}
