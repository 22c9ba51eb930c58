//! The commands under way, and what drives them through the session.

mod many;
mod queued;
mod runs;

use crate::arena::Arena;
use crate::batch::Batch;
use crate::command::Verb;
use crate::config::GatewayConfig;
use crate::connection::{ConnectionId, Unspooled};
use crate::failure::Failure;
use crate::key_queues::{KeyQueues, NONE};
use crate::latency::Latency;
use crate::operation::{Action, Answer, Operation, OperationState, Parent, Version};
use crate::programs::{Program, Programs};
use crate::replies::{Address, Replies};
use crate::shared::Shared;
use crate::slowlog::{Entry, SlowLog, shown};
use crate::statistics::Answerer;
use queued::{BATCH, Queued};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use switchback_core::Now;
use switchback_core::client::{Completion, Outcome, Session, SubmitError};
use switchback_heat::{Access, Recorder};
use switchback_net::{ControlLink, Outgoing, Sent, Uplink};
use switchback_wire::Packet;

/// Set in the tokens of scans; the rest is the batch's index.
const SCAN_TOKEN: u64 = 1 << 63;

/// Something that can go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Work {
    Operation(u32),
    Batch(u32),
}

/// The way to the rack.
pub(crate) struct Link {
    pub(crate) session: Session,
    pub(crate) uplink: Box<dyn Uplink>,
    pub(crate) control: Box<dyn ControlLink>,
    pub(crate) packet: Box<Packet>,
    /// Room for what is sent at once.
    pub(crate) batch: Vec<Outgoing>,
}

impl Link {
    pub(crate) fn new(
        session: Session,
        uplink: Box<dyn Uplink>,
        control: Box<dyn ControlLink>,
    ) -> Link {
        let batch = vec![Outgoing::default(); BATCH];
        Link { session, uplink, control, packet: Box::new(Packet::new()), batch }
    }

    /// Takes as many packets from the session as fit a batch, and sends them.
    #[inline]
    fn send_batch(&mut self) -> usize {
        let mut count = 0;
        for outgoing in &mut self.batch {
            let Some(to) = self.session.poll_packet(&mut outgoing.item.packet) else { break };
            outgoing.to = to;
            count += 1;
        }
        if count > 0 {
            self.uplink.send_batch(&mut self.batch[..count]);
        }
        count
    }
}

/// Where answers go.
pub(crate) struct Outbox {
    pub(crate) replies: Replies,
    /// Replies have to wait for the spool.
    pub(crate) spools: bool,
    /// Why the spool can't be written, while it can't.
    pub(crate) spool_failure: Option<String>,
    batches: Arena<Batch>,
    /// Batches that can go on.
    batch_work: VecDeque<u32>,
    result_bytes_max: usize,
}

/// The commands under way.
pub(crate) struct Running {
    pub(crate) now: Now,
    pub(crate) config: Arc<GatewayConfig>,
    pub(crate) outbox: Outbox,
    operations: Arena<Operation>,
    /// Operations that can go on.
    work: VecDeque<u32>,
    parked: VecDeque<Work>,
    /// Since the last try something has happened by which the session may take what is parked.
    may_retry: bool,
    key_queues: KeyQueues,
    queued: Queued,
    current: u32,
    pub(crate) programs: Programs,
    /// Where the gateway's own answers go while they aren't replies.
    pub(crate) captured: Option<Vec<u8>>,
    recorder: Recorder,
    slow_log: Arc<SlowLog>,
    latency: Arc<Latency>,
    /// When the log was told of a connection that speaks HTTP.
    pub(crate) http_logged: Option<Instant>,
    /// A command waits for CLIENT PAUSE.
    pub(crate) is_paused: bool,
}

impl Running {
    pub(crate) fn new(
        now: Now,
        shared: &Shared,
        replies: Replies,
        spools: bool,
        programs: Programs,
        recorder: Recorder,
    ) -> Running {
        Running {
            now,
            outbox: Outbox {
                replies,
                spools,
                spool_failure: None,
                batches: Arena::default(),
                batch_work: VecDeque::new(),
                result_bytes_max: shared.config.output_bytes_hard,
            },
            programs,
            captured: None,
            config: Arc::clone(&shared.config),
            operations: Arena::default(),
            work: VecDeque::new(),
            parked: VecDeque::new(),
            may_retry: false,
            key_queues: KeyQueues::default(),
            queued: Queued::default(),
            current: NONE,
            recorder,
            slow_log: Arc::clone(&shared.slow_log),
            latency: Arc::clone(&shared.latency),
            http_logged: None,
            is_paused: false,
        }
    }

    /// The session has heard something, or time has passed: what it refused may be taken now.
    pub(crate) fn may_retry(&mut self) {
        self.may_retry = true;
    }

    /// Whether a refused request is to be tried again.
    pub(crate) fn has_to_retry(&self) -> bool {
        self.may_retry && !self.parked.is_empty()
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.operations.in_use() == 0 && self.outbox.batches.in_use() == 0
    }

    /// Starts a command on one key.
    #[inline]
    pub(crate) fn start(
        &mut self,
        link: &mut Link,
        id: ConnectionId,
        verb: Verb,
        action: Action,
        key: &[u8],
        argument: &[u8],
    ) {
        self.start_filled(link, id, verb, action, |operation| operation.fill(key, argument));
    }

    /// The same, of one that compares the record's value: key, argument, and what is expected.
    pub(crate) fn start_comparing(
        &mut self,
        link: &mut Link,
        id: ConnectionId,
        verb: Verb,
        action: Action,
        [key, argument, expected]: [&[u8]; 3],
    ) {
        self.start_filled(link, id, verb, action, |operation| {
            operation.fill(key, argument);
            operation.expect(expected);
        });
    }

    /// Starts a transaction or script on its key.
    pub(crate) fn start_program(
        &mut self,
        link: &mut Link,
        id: ConnectionId,
        verb: Verb,
        key: &[u8],
        program: Program,
    ) {
        self.start_filled(link, id, verb, Action::Program, |operation| {
            operation.fill(key, &[]);
            operation.run(Box::new(program));
        });
    }

    /// What the gateway answers in `answer`.
    pub(crate) fn captured(&mut self, answer: impl FnOnce(&mut Running)) -> Vec<u8> {
        self.captured = Some(Vec::new());
        answer(self);
        self.captured.take().unwrap_or_default()
    }

    #[inline]
    fn start_filled(
        &mut self,
        link: &mut Link,
        id: ConnectionId,
        verb: Verb,
        action: Action,
        fill: impl FnOnce(&mut Operation),
    ) {
        let Some(connection) = self.outbox.replies.connections.get_mut(id) else { return };
        let number = connection.next_reply();
        connection.unfinished += 1;
        let at = self.operations.take();
        let operation = &mut self.operations[at];
        operation.begin(id, Parent::Reply(number), verb, action);
        operation.arrived_us = self.now.monotonic_us;
        fill(operation);
        connection.held_bytes += operation.held_bytes();
        self.outbox.replies.reserve(id);
        self.begin(link, at);
        self.drive(link);
    }

    /// Lets an operation run, or wait for those before it.
    fn begin(&mut self, link: &mut Link, at: u32) {
        // Queues know what couldn't be answered at once, so what is queued on the same key goes
        // first.
        if self.queued.may_hold(&self.operations[at].key) {
            self.pump(link);
        }
        if !self.key_queues.is_empty() {
            let names = self.queue_names(at);
            if names.into_iter().flatten().any(|name| self.key_queues.tail(name).is_some()) {
                self.operations[at].state = OperationState::Waiting;
                self.join(at);
                return;
            }
        }
        self.run(link, at);
    }

    fn queue_names(&self, at: u32) -> [Option<u64>; 2] {
        let operation = &self.operations[at];
        let connection = (operation.connection.index, operation.connection.serial);
        let order = self.key_queues.program_order(connection, &operation.key);
        let writes = operation
            .is_read_modify_write()
            .then(|| self.key_queues.read_modify_write(&operation.key));
        [Some(order), writes]
    }

    /// Makes others wait for this operation, and it for those that are there.
    fn join(&mut self, at: u32) {
        if self.operations[at].places[0].joined {
            return;
        }
        for (queue, name) in self.queue_names(at).into_iter().enumerate() {
            let Some(name) = name else { continue };
            let before = self.key_queues.push(name, at);
            let operation = &mut self.operations[at];
            operation.places[queue].name = name;
            operation.places[queue].joined = true;
            if let Some(before) = before {
                operation.waits += 1;
                self.operations[before].places[queue].next = at;
            }
        }
    }

    /// Submits an operation's next request, which goes with the next batch.
    #[inline]
    fn run(&mut self, link: &mut Link, at: u32) {
        self.current = at;
        while self.operations[at].state == OperationState::Ready {
            let operation = &self.operations[at];
            // Its connection is gone, and it hasn't begun to write: it ends here.
            if matches!(operation.parent, Parent::Reply(_))
                && self.outbox.replies.connections.get(operation.connection).is_none()
            {
                self.finish(at);
                break;
            }
            match self.submit(link, at) {
                Ok(()) => {
                    self.queued.push(at, &self.operations[at].key);
                    if self.queued.is_full() {
                        self.pump(link);
                    }
                }
                Err(SubmitError::TooLarge) => self.deliver(at, &Answer::Failed(Failure::KeyLength)),
                // Once the queued requests are sent and answered, the session may take this one.
                Err(_) if !self.queued.is_empty() => self.pump(link),
                Err(_) => self.park(at),
            }
        }
        self.current = NONE;
        if self.operations[at].state == OperationState::Parked {
            self.join(at);
        }
    }

    fn park(&mut self, at: u32) {
        let operation = &mut self.operations[at];
        operation.state = OperationState::Parked;
        operation.parked_us = self.now.monotonic_us;
        if let Some(connection) = self.outbox.replies.connections.get_mut(operation.connection) {
            connection.parked += 1;
        }
        self.parked.push_back(Work::Operation(at));
    }

    /// Sends what the session has to send, in batches, and takes the answers that come at once.
    /// Operations that are unfinished then are entered in the queues of their keys.
    #[inline]
    pub(crate) fn pump(&mut self, link: &mut Link) {
        loop {
            let count = link.send_batch();
            if count == 0 {
                break;
            }
            for Outgoing { item, sent, .. } in &link.batch[..count] {
                if *sent == Sent::Answered
                    && let Some(completion) = link.session.handle_packet(self.now, &item.packet)
                {
                    self.complete(completion);
                }
            }
        }
        while let Some(at) = self.queued.pop() {
            if self.operations[at].state != OperationState::Free {
                self.join(at);
            }
        }
    }

    /// Sends what is queued, and goes on until nothing is; false if nothing was.
    pub(crate) fn settle(&mut self, link: &mut Link) -> bool {
        let was_queued = !self.queued.is_empty();
        while !self.queued.is_empty() {
            self.pump(link);
            self.drive(link);
        }
        was_queued
    }

    /// Does what can be done without waiting.
    #[inline]
    pub(crate) fn drive(&mut self, link: &mut Link) {
        loop {
            if let Some(at) = self.work.pop_front() {
                self.run(link, at);
            } else if let Some(at) = self.outbox.batch_work.pop_front() {
                self.run_batch(link, at);
            } else {
                break;
            }
        }
    }

    /// Takes an outcome.
    #[inline]
    pub(crate) fn complete(&mut self, completion: Completion<'_>) {
        let Completion { token, outcome, .. } = completion;
        self.may_retry = true;
        if token & SCAN_TOKEN != 0 {
            return self.complete_scan((token ^ SCAN_TOKEN) as u32, outcome);
        }
        self.complete_run(token as u32, &completion);
    }

    #[inline]
    fn complete_one(&mut self, at: u32, completion: &Completion<'_>) {
        self.record(at, completion);
        let deadline_ms = self.config.session.deadline_us / 1000;
        let Completion { outcome, cached, .. } = *completion;
        let operation = &mut self.operations[at];
        operation.cached &= cached;
        let statistics = self.outbox.replies.statistics();
        let found = match outcome {
            Outcome::Value { value, expiry_ms, .. } => Some((value, expiry_ms)),
            _ => None,
        };
        let answer = match outcome {
            Outcome::Value { seq, .. } | Outcome::NotFound { seq } => {
                let counter = if found.is_some() { &statistics.found } else { &statistics.missing };
                counter.add(1);
                match operation.has_program() {
                    false => operation.read(found, seq, self.now.unix_ms),
                    true => {
                        operation.read_program(found, seq, self.now.unix_ms, &mut self.programs)
                    }
                }
            }
            Outcome::Written { .. } => {
                statistics.written.add(1);
                return self.deliver_written(at);
            }
            Outcome::ConditionFailed { .. } => operation.condition_failed(),
            Outcome::NoSpace => Some(Answer::Failed(Failure::NoSpace)),
            Outcome::TimedOut => Some(Answer::Failed(Failure::TimedOut(deadline_ms))),
            Outcome::Indeterminate => Some(operation.indeterminate(deadline_ms)),
            Outcome::Scanned { .. } => Some(Answer::Failed(Failure::Static("ERR internal error"))),
        };
        match answer {
            Some(answer) => self.deliver(at, &answer),
            None => self.make_ready(at),
        }
    }

    /// Records a request that was answered, whether others shared it or not.
    #[inline]
    fn record(&mut self, at: u32, completion: &Completion<'_>) {
        let is_write = match completion.outcome {
            Outcome::Value { .. } | Outcome::NotFound { .. } => false,
            Outcome::Written { .. } | Outcome::ConditionFailed { .. } | Outcome::NoSpace => true,
            Outcome::TimedOut | Outcome::Indeterminate | Outcome::Scanned { .. } => return,
        };
        let access = Access { hash: completion.hash, is_write, is_cached: completion.cached };
        let operation = &self.operations[at];
        self.recorder.record(access, || operation.subject(completion.outcome));
    }

    /// The operation can go on: by [`Running::run`] if that is what it is in, else as work.
    fn make_ready(&mut self, at: u32) {
        self.operations[at].state = OperationState::Ready;
        if self.current != at {
            self.work.push_back(at);
        }
    }

    #[inline]
    fn deliver_written(&mut self, at: u32) {
        let Running { operations, outbox, .. } = self;
        let operation = &operations[at];
        outbox.deliver(operation, &operation.written());
        self.finish(at);
    }

    #[inline]
    fn deliver(&mut self, at: u32, answer: &Answer<'_>) {
        self.outbox.deliver(&self.operations[at], answer);
        self.finish(at);
    }

    /// Ends an operation; those that waited for it may go on.
    #[inline]
    fn finish(&mut self, at: u32) {
        let operation = &self.operations[at];
        let (id, held) = (operation.connection, operation.held_bytes());
        let counts = matches!(operation.parent, Parent::Reply(_));
        let took_us = self.now.monotonic_us.saturating_sub(operation.arrived_us);
        if counts && self.is_slow(took_us) {
            let (verb, key) = (operation.verb, shown(&operation.key));
            self.was_slow(id, took_us, verb, Some(key));
        }
        let operation = &mut self.operations[at];
        if operation.places[0].joined {
            self.leave(at);
        }
        self.operations[at].end();
        self.operations.give_back(at);
        if counts {
            self.release(id, held);
        }
    }

    /// Whether SLOWLOG or LATENCY is to know of a command that took this long.
    #[inline]
    fn is_slow(&self, took_us: u64) -> bool {
        self.slow_log.wants(took_us) || self.latency.wants(took_us)
    }

    /// Enters a command that took long.
    #[cold]
    fn was_slow(&self, id: ConnectionId, took_us: u64, verb: Option<Verb>, key: Option<Vec<u8>>) {
        if let Some(verb) = verb
            && self.latency.wants(took_us)
        {
            self.latency.enter(verb, self.now.unix_ms / 1000, took_us);
        }
        if !self.slow_log.wants(took_us) {
            return;
        }
        let Some(connection) = self.outbox.replies.connections.get(id) else { return };
        let name = verb.map(|verb| verb.name().as_bytes().to_vec());
        self.slow_log.enter(Entry {
            number: 0,
            unix_s: self.now.unix_ms / 1000,
            took_us,
            words: name.into_iter().chain(key).collect(),
            peer: connection.peer.to_string(),
            name: connection.name.clone(),
        });
    }

    /// Takes an operation out of its queues.
    fn leave(&mut self, at: u32) {
        let places = std::mem::take(&mut self.operations[at].places);
        for (queue, place) in places.into_iter().enumerate().filter(|(_, place)| place.joined) {
            if place.next == NONE {
                self.key_queues.remove(place.name);
                continue;
            }
            assert!(self.operations[place.next].places[queue].joined);
            let next = &mut self.operations[place.next];
            next.waits -= 1;
            if next.waits == 0 && next.state == OperationState::Waiting {
                self.make_ready(place.next);
            }
        }
    }

    #[inline]
    fn release(&mut self, id: ConnectionId, held_bytes: usize) {
        let Some(connection) = self.outbox.replies.connections.get_mut(id) else { return };
        connection.unfinished -= 1;
        connection.held_bytes -= held_bytes;
        if connection.stalled {
            self.outbox.replies.mark_resume(id);
        }
    }

    /// Tries again what the session refused; gives up what has waited too long.
    pub(crate) fn retry_parked(&mut self, link: &mut Link) {
        let mut refused = None;
        self.may_retry = false;
        for _ in 0..self.parked.len() {
            let Some(work) = self.parked.pop_front() else { break };
            let (id, since_us) = match work {
                Work::Operation(at) => {
                    (self.operations[at].connection, self.operations[at].parked_us)
                }
                Work::Batch(at) => {
                    (self.outbox.batches[at].connection, self.outbox.batches[at].parked_us)
                }
            };
            let is_orphan = self.outbox.replies.connections.get(id).is_none();
            let result = match (refused, work) {
                // Its connection is gone, so it isn't begun.
                _ if is_orphan => Err(SubmitError::NoSession),
                (Some(error), _) => Err(error),
                (None, Work::Operation(at)) => self.submit(link, at),
                (None, Work::Batch(at)) => {
                    let token = SCAN_TOKEN | u64::from(at);
                    link.session.submit(self.now, self.outbox.batches[at].scan_request(), token)
                }
            };
            let waited_us = self.now.monotonic_us.saturating_sub(since_us);
            let gives_up = is_orphan || waited_us >= self.config.wait_max.as_micros() as u64;
            if let Err(error) = result
                && !gives_up
            {
                self.parked.push_back(work);
                // Reads may pass writes that wait for a snapshot; for lanes and sessions all wait
                // alike.
                refused = refused.or((error != SubmitError::Backpressure).then_some(error));
                continue;
            }
            if let Some(connection) = self.outbox.replies.connections.get_mut(id) {
                connection.parked -= 1;
                if connection.stalled {
                    self.outbox.replies.mark_resume(id);
                }
            }
            match (result, work) {
                (Ok(()), _) => self.pump(link),
                (Err(error), Work::Operation(at)) => {
                    self.deliver(at, &Answer::Failed(refusal(error, waited_us)))
                }
                (Err(error), Work::Batch(at)) => {
                    self.outbox.batches[at].scan_failed(refusal(error, waited_us));
                    self.work_batch(at);
                }
            }
        }
        self.drive(link);
    }

    fn work_batch(&mut self, at: u32) {
        self.outbox.batch_work.push_back(at);
    }
}

/// What a command is told that waited in vain.
fn refusal(error: SubmitError, waited_us: u64) -> Failure {
    let waited_ms = waited_us / 1000;
    match error {
        SubmitError::Busy => Failure::Busy(waited_ms),
        SubmitError::NoSession => Failure::NoSession(waited_ms),
        SubmitError::Backpressure => Failure::Backpressure(waited_ms),
        SubmitError::TooLarge => Failure::KeyLength,
    }
}

impl Outbox {
    /// Tells a connection what it watches.
    fn watched(&mut self, operation: &Operation, version: Version) {
        if let Some(connection) = self.replies.connections.get_mut(operation.connection)
            && let Some(watched) = &mut connection.watched
        {
            watched.found(&operation.key, version);
        }
    }

    /// Hands an answer to the reply or batch that waits for it.
    #[inline]
    fn deliver(&mut self, operation: &Operation, answer: &Answer<'_>) {
        match operation.parent {
            Parent::Reply(number) => {
                let to = Address {
                    connection: operation.connection,
                    number,
                    verb: operation.verb,
                    arrived_us: operation.arrived_us,
                };
                let by = if operation.cached { Answerer::Cache } else { Answerer::Node };
                let unspooled =
                    (self.spools && operation.cached).then(|| match self.spool_failure {
                        None => Unspooled::Any,
                        Some(_) => self.replies.unspooled_key(&operation.key),
                    });
                if let Answer::Watched(version) = answer {
                    self.watched(operation, *version);
                }
                self.replies.answer(to, answer, by, unspooled);
            }
            Parent::Batch(at, part) => {
                let batch = &mut self.batches[at];
                batch.cached &= operation.cached;
                batch.any_cached |= operation.cached;
                batch.done(part, answer, self.result_bytes_max);
                self.batch_work.push_back(at);
            }
            Parent::None => {}
        }
    }
}
