//! A client: the production session, and threads that send requests in a closed loop, from a
//! script, or at a given rate.

use super::World;
use super::switch::switch_of;
use crate::timeline::{Flight, Link};
use rand::RngExt;
use std::collections::VecDeque;
use switchback_assembly::Part;
use switchback_bench::workload::{Requests, Verb};
use switchback_core::client::{Operation, Outcome, Session, SubmitError};
use switchback_core::control::ClientNotice;
use switchback_wire::Seq;

/// A thread that could not submit tries again after this time.
const AGAIN_NS: u64 = 1_000_000;

/// What a thread is doing.
#[derive(Clone, Copy, Debug)]
struct Thread {
    verb: Verb,
    index: u64,
    /// When the operation was to begin.
    begun_ns: u64,
    /// The second half of an operation that reads first: the version that was read.
    writes_back: Option<Seq>,
}

impl Thread {
    /// About to begin an operation.
    fn new(verb: Verb, index: u64, begun_ns: u64) -> Thread {
        Thread { verb, index, begun_ns, writes_back: None }
    }

    fn reads_first(&self) -> bool {
        matches!(self.verb, Verb::Rmw | Verb::Cas)
    }
}

/// A client.
pub(super) struct ClientSlot {
    pub(super) session: Session,
    requests: Requests,
    threads: Vec<Thread>,
    idle: Vec<u32>,
    /// Records that are to be read or written, once.
    pub(super) script: VecDeque<(Verb, u64)>,
    /// Operations that could not begin when they were to, since no thread was free.
    backlog: VecDeque<u64>,
}

/// How threads get their requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Drive {
    /// From scripts only.
    Script,
    /// Closed loop: a thread begins its next operation when one ends.
    Closed,
    /// Closed loop with this number of threads of each client.
    Few(usize),
    /// Open loop: Poisson arrivals, with this number of operations a second of all clients
    /// together.
    Open(f64),
}

impl ClientSlot {
    pub(super) fn new(session: Session, requests: Requests, threads: u32) -> ClientSlot {
        let thread = Thread::new(Verb::Read, 0, 0);
        ClientSlot {
            session,
            requests,
            threads: vec![thread; threads as usize],
            idle: (0..threads).rev().collect(),
            script: VecDeque::new(),
            backlog: VecDeque::new(),
        }
    }

    /// Whether no thread waits for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.idle.len() == self.threads.len()
    }

    /// Threads that wait for an answer.
    fn active(&self) -> usize {
        self.threads.len() - self.idle.len()
    }

    pub(super) fn set_phase(&mut self, phase: u32) {
        self.requests.set_phase(phase);
    }
}

impl World {
    #[inline]
    pub(super) fn client_receives(&mut self, flight: Box<Flight>) {
        if self.are_clients_paused {
            return self.timeline.done(flight);
        }
        let now = self.now();
        let client = flight.to;
        let slot = &mut self.clients[usize::from(client)];
        let completion = slot.session.handle_packet(now, &flight.packet);
        let done = completion.map(|done| (done.token as u32, version(&done.outcome), done.cached));
        self.timeline.done(flight);
        if let Some((thread, version, cached)) = done {
            self.finish(client, thread, version, cached);
        }
        self.pump_client(client);
    }

    pub(super) fn client_hears(&mut self, client: u16, notice: ClientNotice) {
        if self.are_clients_paused {
            return;
        }
        let now = self.now();
        self.clients[usize::from(client)].session.handle_message(now, notice);
        self.pump_client(client);
    }

    pub(super) fn wake_client(&mut self, client: u16) {
        if self.are_clients_paused {
            return;
        }
        let now = self.now();
        let session = &mut self.clients[usize::from(client)].session;
        if now.is_due(session.poll_timeout()) {
            session.handle_timeout(now);
        }
        self.pump_client(client);
        self.wake_threads(client);
    }

    /// An operation's request was answered, or given up.
    #[inline]
    fn finish(&mut self, client: u16, thread: u32, version: Option<Seq>, cached: bool) {
        let slot = &mut self.clients[usize::from(client)];
        let state = &mut slot.threads[thread as usize];
        if version.is_some() && state.reads_first() && state.writes_back.is_none() {
            state.writes_back = version;
            return self.submit(client, thread);
        }
        if state.verb == Verb::Insert {
            slot.requests.inserted(state.index);
        }
        let (latency_ns, index) = (self.now_ns - state.begun_ns, state.index);
        let class = if self.meter.has_classes() { self.class_of(index, cached) } else { 0 };
        self.meter.finished(self.now_ns, latency_ns, version.is_some(), cached, class);
        self.begin(client, thread);
    }

    /// A free thread begins its next operation, if there is one.
    fn begin(&mut self, client: u16, thread: u32) {
        let slot = &mut self.clients[usize::from(client)];
        let begun_ns = match (self.drive, slot.script.pop_front()) {
            (_, Some((verb, index))) => {
                slot.threads[thread as usize] = Thread::new(verb, index, self.now_ns);
                return self.submit(client, thread);
            }
            (Drive::Closed, None) => Some(self.now_ns),
            (Drive::Few(threads), None) => (slot.active() <= threads).then_some(self.now_ns),
            (Drive::Open(_), None) => slot.backlog.pop_front(),
            (Drive::Script, None) => None,
        };
        let Some(begun_ns) = begun_ns else {
            slot.idle.push(thread);
            return;
        };
        let request = slot.requests.next_request();
        slot.threads[thread as usize] = Thread::new(request.verb, request.index, begun_ns);
        self.submit(client, thread);
    }

    /// Sends a thread's request.
    #[inline]
    fn submit(&mut self, client: u16, thread: u32) {
        let now = self.now();
        let slot = &mut self.clients[usize::from(client)];
        let state = slot.threads[thread as usize];
        self.keys.write_key(state.index, &mut self.key);
        let (key, value) = (&self.key, &self.value[..self.lengths.of(state.index)]);
        let condition = match state.verb {
            Verb::Add => Some(Seq::NONE),
            Verb::Cas => state.writes_back,
            _ => None,
        };
        let reads =
            state.verb == Verb::Read || (state.reads_first() && state.writes_back.is_none());
        let operation = match reads {
            true => Operation::Read { key },
            false => Operation::Write { key, value, expiry_ms: 0, condition },
        };
        match slot.session.submit(now, operation, thread.into()) {
            Ok(()) => {
                self.statistics.requests += 1;
                let key = std::mem::take(&mut self.key);
                if let Some(learner) = self.learner_of(&key) {
                    learner.request(state.index, reads);
                }
                self.key = key;
            }
            Err(SubmitError::TooLarge) => unreachable!("the setup keeps to the limits"),
            // No session, or preserved records wait for a snapshot: the thread asks again, for
            // something else.
            Err(_) => {
                self.statistics.refused += 1;
                slot.idle.push(thread);
                self.arm_at(Part::Client(client), self.now_ns + AGAIN_NS);
            }
        }
    }

    /// Idle threads look for something to do.
    pub(super) fn wake_threads(&mut self, client: u16) {
        let slot = &mut self.clients[usize::from(client)];
        let is_open = slot.session.is_open(super::at(self.now_ns));
        let wanted = match self.drive {
            _ if !is_open => 0,
            Drive::Closed => slot.idle.len(),
            Drive::Few(threads) => slot.idle.len().min(threads.saturating_sub(slot.active())),
            Drive::Open(_) => slot.idle.len().min(slot.script.len() + slot.backlog.len()),
            Drive::Script => slot.idle.len().min(slot.script.len()),
        };
        let woken = slot.idle.split_off(slot.idle.len() - wanted);
        for thread in woken.into_iter().rev() {
            self.begin(client, thread);
        }
        self.pump_client(client);
    }

    /// The next operation of an open loop begins.
    pub(super) fn operation_arrives(&mut self) {
        let Drive::Open(rate) = self.drive else { return };
        if self.are_clients_paused {
            return;
        }
        let client = (self.arrivals % self.clients.len() as u64) as u16;
        self.arrivals += 1;
        let slot = &mut self.clients[usize::from(client)];
        slot.backlog.push_back(self.now_ns);
        if let Some(thread) = slot.idle.pop() {
            self.begin(client, thread);
            self.pump_client(client);
        }
        let pause_ns = -(1.0 - self.random.random::<f64>()).ln() * 1e9 / rate;
        self.timeline.push(self.now_ns + pause_ns as u64, super::Event::Operation);
    }

    /// Sends what the session has to send.
    #[inline]
    pub(super) fn pump_client(&mut self, client: u16) {
        loop {
            let mut flight = self.timeline.buffer();
            let session = &mut self.clients[usize::from(client)].session;
            let Some(to) = session.poll_packet(&mut flight.packet) else {
                self.timeline.done(flight);
                break;
            };
            flight.from = Part::Client(client).address();
            flight.to = switch_of(&to);
            let arrives_ns = self.now_ns + self.link_ns(&flight.packet);
            self.timeline.send(Link::Switch, arrives_ns, flight);
        }
        while let Some(completion) = self.clients[usize::from(client)].session.poll_completion() {
            let (thread, version) = (completion.token as u32, version(&completion.outcome));
            self.finish(client, thread, version, false);
        }
        while let Some(report) = self.clients[usize::from(client)].session.poll_message() {
            self.report(Part::Client(client), report);
        }
        let due_us = self.clients[usize::from(client)].session.poll_timeout();
        self.arm(Part::Client(client), due_us);
    }
}

/// The version that an operation read or made, if it ended well; that of a record that refused a
/// condition is one, too.
fn version(outcome: &Outcome<'_>) -> Option<Seq> {
    match outcome {
        Outcome::Value { seq, .. }
        | Outcome::NotFound { seq }
        | Outcome::Written { seq }
        | Outcome::ConditionFailed { seq } => Some(*seq),
        _ => None,
    }
}
