//! One client thread: a session, its links, and a loop that keeps them busy.

use super::Plan;
use super::clock::{Clock, Timer};
use super::in_flight::{InFlight, Next};
use super::pacer::Pacer;
use super::recorder::Recorder;
use crate::learner::Learner;
use crate::rack::ClientLinks;
use crate::verify::Verifier;
use crate::workload::{KeySpace, Lengths, Request, Verb};
use anyhow::Context as _;
use mio::{Events, Poll, Token, Waker};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use switchback_core::client::{Operation, Session, SessionStatistics, SubmitError};
use switchback_net::Sent;
use switchback_wire::Packet;

const WAKER: Token = Token(0);
const TIMER: Token = Token(1);
const UPLINK: Token = Token(2);

/// Operations that are begun before the links are polled again, so that answers of nodes don't wait
/// for long.
const BATCH: usize = 64;
/// A refused operation is submitted again after this time, or when the client wakes up for another
/// reason.
const REFUSED_NS: u64 = 200_000;
/// Time limit for opening a session.
const SESSION_NS: u64 = 10_000_000_000;
/// Error of clients that end because another one failed.
pub(super) const STOPPED: &str = "another client failed";
/// Longest sleep.
const SLEEP_NS: u64 = 50_000_000;

/// Times of a run on its clock: start, measured time, end. Set once all clients have a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start_ns: u64,
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
    /// After this time no operation that is overdue is begun any more.
    pub(super) drain_ns: u64,
    /// After this time no operation is waited for.
    pub(super) end_ns: u64,
}

/// State that the clients of a run share.
pub(super) struct RunState<'a> {
    pub(super) clock: Clock,
    pub(super) keys: KeySpace,
    pub(super) lengths: Lengths,
    pub(super) verifier: Option<&'a Verifier>,
    /// Operations that each client may have outstanding now.
    pub(super) outstanding: AtomicU32,
    /// Clients that have a session.
    pub(super) ready: AtomicU32,
    /// Set when all are.
    pub(super) times: OnceLock<Times>,
    /// Clients whose operations have all ended.
    pub(super) drained: AtomicU32,
    /// A client failed, or the run was interrupted.
    pub(super) stop: AtomicBool,
    /// Operations that each client has ended since it began.
    pub(super) ended: Vec<AtomicU64>,
    /// Gap between changes of popularity; `u64::MAX`: it doesn't change.
    pub(super) change_ns: u64,
    /// Counts the requests of all clients. Used only if nodes are capped, so that its time doesn't
    /// change what is measured.
    pub(super) learner: Option<Mutex<Learner>>,
}

impl<'a> RunState<'a> {
    pub(super) fn new(plan: &Plan, verifier: Option<&'a Verifier>) -> RunState<'a> {
        RunState {
            clock: Clock::start(),
            keys: plan.keys,
            lengths: plan.spec.lengths(),
            verifier,
            outstanding: AtomicU32::new(plan.outstanding),
            ready: AtomicU32::new(0),
            drained: AtomicU32::new(0),
            times: OnceLock::new(),
            stop: AtomicBool::new(false),
            ended: (0..plan.clients).map(|_| AtomicU64::new(0)).collect(),
            change_ns: plan.change_every.map_or(u64::MAX, |every| every.as_nanos() as u64),
            learner: plan
                .learner_records
                .map(|records| Mutex::new(Learner::new(records, plan.spec.lengths()))),
        }
    }

    /// Whether all operations of all clients have ended.
    fn are_drained(&self) -> bool {
        self.drained.load(Ordering::Acquire) as usize == self.ended.len()
    }

    /// Operations that all clients have ended since they began.
    pub(super) fn operations(&self) -> u64 {
        self.ended.iter().map(|ended| ended.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn learner(&self) -> Option<MutexGuard<'_, Learner>> {
        self.learner.as_ref().map(|learner| learner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The results of a client.
pub(super) struct ClientResults {
    pub(super) recorder: Recorder,
    /// Counters of its session over the measured time.
    pub(super) sent: SessionStatistics,
    /// Operations that were due but never begun.
    pub(super) unsent: u64,
    /// Operations that were due but begun only after the measured time.
    pub(super) late: u64,
}

/// The stage of a client's run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Begins operations.
    Running,
    /// Waits for outstanding operations.
    Draining,
    /// Waits for those of other clients: what they still write is to be read, too.
    Drained,
    /// Reads every record that was written once more.
    Sweeping,
    Done,
}

pub(super) struct Client<'a> {
    shared: &'a RunState<'a>,
    number: u32,
    session: Session,
    links: ClientLinks,
    poll: Poll,
    events: Events,
    timer: Timer,
    packet: Packet,
    key: Vec<u8>,
    value: Vec<u8>,
    in_flight: InFlight<'a>,
    pacer: Option<Pacer>,
    times: Times,
    stage: Stage,
    /// Records that the sweep at the end hasn't read yet.
    sweep: Option<Box<dyn Iterator<Item = u64> + 'a>>,
    /// Slots whose requests the session refused for now.
    refused: Vec<u32>,
    next_change_ns: u64,
    phase: u32,
    sent_before: Option<SessionStatistics>,
    sent_after: Option<SessionStatistics>,
    unsent: u64,
    late: u64,
    now_ns: u64,
}

impl<'a> Client<'a> {
    /// Opens the session, counts it as ready, and waits until the run begins; `equip` then makes
    /// the parts that depend on the times.
    pub(super) fn open(
        shared: &'a RunState<'a>,
        number: u32,
        mut session: Session,
        mut links: ClientLinks,
        equip: impl FnOnce(Times) -> (InFlight<'a>, Option<Pacer>),
    ) -> anyhow::Result<Client<'a>> {
        let mut poll = Poll::new().context("a client's poll")?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKER).context("a client's waker")?);
        let timer = Timer::new(poll.registry(), TIMER).context("a client's timer")?;
        links.uplink.register(poll.registry(), UPLINK, &waker).context("a client's uplink")?;
        links.control.register(&waker);
        let mut events = Events::with_capacity(64);
        let times = wait_for_start(shared, &mut session, &mut links, &mut poll, &mut events)?;
        let (in_flight, pacer) = equip(times);
        Ok(Client {
            shared,
            number,
            session,
            links,
            poll,
            events,
            timer,
            packet: Packet::new(),
            key: Vec::new(),
            value: Vec::new(),
            in_flight,
            pacer,
            times,
            stage: Stage::Running,
            sweep: None,
            refused: Vec::new(),
            next_change_ns: times.from_ns.saturating_add(shared.change_ns),
            phase: 0,
            sent_before: None,
            sent_after: None,
            unsent: 0,
            late: 0,
            now_ns: shared.clock.now_ns(),
        })
    }

    /// Runs to the end.
    pub(super) fn run(mut self) -> anyhow::Result<ClientResults> {
        while self.stage != Stage::Done {
            let busy = self.turn()?;
            self.shared.ended[self.number as usize]
                .store(self.in_flight.ended(), Ordering::Relaxed);
            if !busy && self.stage != Stage::Done {
                self.sleep()?;
            }
        }
        self.session.close();
        exchange(&mut self.session, &mut self.links, self.shared.clock.at(self.now_ns));
        if let Some(verifier) = self.in_flight.verifier() {
            verifier.add_swept(self.in_flight.swept());
        }
        let before = self.sent_before.unwrap_or_default();
        let after = self.sent_after.unwrap_or_else(|| self.session.statistics());
        let sent = SessionStatistics {
            submitted: after.submitted - before.submitted,
            retries: after.retries - before.retries,
            timed_out: after.timed_out - before.timed_out,
            indeterminate: after.indeterminate - before.indeterminate,
            ignored_packets: after.ignored_packets - before.ignored_packets,
            ..after
        };
        Ok(ClientResults {
            recorder: self.in_flight.recorder,
            sent,
            unsent: self.unsent,
            late: self.late,
        })
    }

    /// Polls links, timers and operations once; false if there was nothing to do.
    fn turn(&mut self) -> anyhow::Result<bool> {
        self.now_ns = self.shared.clock.now_ns();
        let now = self.shared.clock.at(self.now_ns);
        exchange(&mut self.session, &mut self.links, now);
        let mut busy = false;
        while self.links.uplink.receive(&mut self.packet) {
            busy = true;
            self.take_packet()?;
        }
        while let Some(completion) = self.session.poll_completion() {
            busy = true;
            // Only failures are returned here, and they have no next step.
            self.in_flight.complete(self.now_ns, completion);
        }
        self.transmit()?; // retries
        self.mark_times();
        busy |= self.begin_some()?;
        self.links.uplink.flush();
        self.next_stage();
        Ok(busy)
    }

    /// Begins operations that are due while there is room, up to [`BATCH`].
    fn begin_some(&mut self) -> anyhow::Result<bool> {
        for slot in std::mem::take(&mut self.refused) {
            self.submit(slot)?;
        }
        let mut busy = false;
        for _ in 0..BATCH {
            if !self.refused.is_empty() || !self.has_room() {
                break;
            }
            let Some((due_ns, request, sweep)) = self.next_operation() else { break };
            busy = true;
            let slot = self.in_flight.begin(due_ns, request, sweep);
            self.submit(slot)?;
        }
        Ok(busy)
    }

    /// Whether another operation may be begun.
    #[inline]
    fn has_room(&self) -> bool {
        self.in_flight.has_room(self.shared.outstanding.load(Ordering::Relaxed))
    }

    /// The operation to begin next, when it was due, and whether it is a read of the sweep.
    #[inline]
    fn next_operation(&mut self) -> Option<(u64, Request, bool)> {
        if let Some(index) = self.next_to_sweep() {
            return Some((self.now_ns, Request { verb: Verb::Read, index }, true));
        }
        match (self.stage, &mut self.pacer) {
            (Stage::Running, None) if self.now_ns < self.times.to_ns => {
                Some((self.now_ns, self.in_flight.requests.next_request(), false))
            }
            (Stage::Running, Some(pacer))
                if pacer.next_ns() <= self.now_ns.min(self.times.to_ns - 1) =>
            {
                self.late += u64::from(self.now_ns >= self.times.to_ns);
                let due_ns = pacer.take();
                self.in_flight.recorder.began(due_ns, self.now_ns);
                Some((due_ns, self.in_flight.requests.next_request(), false))
            }
            _ => None,
        }
    }

    /// The next record of the sweep.
    #[inline]
    fn next_to_sweep(&mut self) -> Option<u64> {
        let sweep = self.sweep.as_mut()?;
        let index = sweep.next();
        if index.is_none() {
            self.sweep = None;
        }
        index
    }

    /// Begins to read every record that was touched, this client's share of them.
    fn begin_sweep(&mut self) {
        let clients = self.shared.ended.len() as u64;
        let part = u64::from(self.number);
        let touched = self.in_flight.verifier().map(|verifier| verifier.touched(part, clients));
        self.sweep = touched.map(|records| Box::new(records) as Box<dyn Iterator<Item = u64>>);
    }

    /// Hands the request of a slot to the session and sends it.
    #[inline]
    fn submit(&mut self, slot: u32) -> anyhow::Result<()> {
        let operation = *self.in_flight.slot(slot);
        self.shared.keys.write_key(operation.index, &mut self.key);
        let key = self.key.as_slice();
        let request = if operation.writing {
            let value_bytes = self.shared.lengths.of(operation.index);
            self.in_flight.stamp(slot).write_value(value_bytes, &mut self.value);
            Operation::Write {
                key,
                value: &self.value,
                expiry_ms: 0,
                condition: operation.expected,
            }
        } else {
            Operation::Read { key }
        };
        match self.session.submit(self.shared.clock.at(self.now_ns), request, u64::from(slot)) {
            Ok(()) => {
                if let Some(mut learner) = self.shared.learner() {
                    learner.request(operation.index, !operation.writing);
                }
                self.transmit()
            }
            Err(SubmitError::Busy | SubmitError::NoSession | SubmitError::Backpressure) => {
                self.refused.push(slot);
                Ok(())
            }
            Err(error @ SubmitError::TooLarge) => Err(error.into()),
        }
    }

    /// Sends the session's packets, and takes the answers that arrive in the call.
    #[inline]
    fn transmit(&mut self) -> anyhow::Result<()> {
        while let Some(to) = self.session.poll_packet(&mut self.packet) {
            if self.links.uplink.send(to, &mut self.packet) == Sent::Answered {
                self.take_packet()?;
            }
        }
        Ok(())
    }

    /// Handles the packet in the buffer.
    #[inline]
    fn take_packet(&mut self) -> anyhow::Result<()> {
        self.now_ns = self.shared.clock.now_ns();
        let Some(completion) =
            self.session.handle_packet(self.shared.clock.at(self.now_ns), &self.packet)
        else {
            return Ok(());
        };
        match self.in_flight.complete(self.now_ns, completion) {
            Next::Nothing => Ok(()),
            Next::Write(slot) => self.submit(slot),
        }
    }

    /// Reads the counters at both ends of the measured time, and changes popularity when it is due.
    fn mark_times(&mut self) {
        if self.sent_before.is_none() && self.now_ns >= self.times.from_ns {
            self.sent_before = Some(self.session.statistics());
        }
        if self.sent_after.is_none() && self.now_ns >= self.times.to_ns {
            self.sent_after = Some(self.session.statistics());
        }
        if self.now_ns >= self.next_change_ns && self.now_ns < self.times.to_ns {
            self.phase += 1;
            self.in_flight.requests.set_phase(self.phase);
            self.next_change_ns = self.next_change_ns.saturating_add(self.shared.change_ns);
        }
    }

    fn next_stage(&mut self) {
        if self.shared.stop.load(Ordering::Relaxed) || self.now_ns >= self.times.end_ns {
            self.stage = Stage::Done;
            return;
        }
        match self.stage {
            Stage::Running if self.now_ns >= self.times.to_ns => {
                let pacer = self.pacer.as_ref().map(Pacer::next_ns);
                let due = pacer.is_some_and(|due_ns| due_ns < self.times.to_ns);
                if due && self.now_ns < self.times.drain_ns {
                    return;
                }
                self.give_up_due();
                self.stage = Stage::Draining;
            }
            Stage::Draining if self.in_flight.is_empty() => {
                self.shared.drained.fetch_add(1, Ordering::AcqRel);
                self.stage = Stage::Drained;
            }
            Stage::Drained if self.shared.are_drained() => {
                self.begin_sweep();
                self.stage = if self.sweep.is_some() { Stage::Sweeping } else { Stage::Done };
            }
            Stage::Sweeping if self.sweep.is_none() && self.in_flight.is_empty() => {
                self.stage = Stage::Done
            }
            _ => {}
        }
    }

    /// Operations that an open loop couldn't begin count with the time that they have waited.
    fn give_up_due(&mut self) {
        let Some(pacer) = &mut self.pacer else { return };
        while pacer.next_ns() < self.times.to_ns {
            self.in_flight.give_up_due(pacer.take(), self.now_ns);
            self.unsent += 1;
        }
    }

    /// Sleeps until something arrives or is due.
    fn sleep(&mut self) -> anyhow::Result<()> {
        let sleeps_ns = self.now_ns + SLEEP_NS;
        let due_ns = self.session.poll_timeout().map(|due_us| due_us.saturating_mul(1000));
        let mut until_ns = due_ns.map_or(sleeps_ns, |due_ns| due_ns.min(sleeps_ns));
        if !self.refused.is_empty() {
            until_ns = until_ns.min(self.now_ns + REFUSED_NS);
        } else if let (Some(pacer), Stage::Running, true) =
            (&self.pacer, self.stage, self.has_room())
        {
            until_ns = until_ns.min(pacer.next_ns());
        }
        for time_ns in [self.times.from_ns, self.times.to_ns, self.next_change_ns] {
            if time_ns > self.now_ns {
                until_ns = until_ns.min(time_ns);
            }
        }
        let now_ns = self.shared.clock.now_ns();
        if until_ns <= now_ns {
            return Ok(());
        }
        self.timer.set(Duration::from_nanos(until_ns - now_ns)).context("a client's timer")?;
        poll_once(&mut self.poll, &mut self.events, Duration::from_nanos(2 * SLEEP_NS))
    }
}

/// Waits until all clients have a session and the times of the run are set.
fn wait_for_start(
    shared: &RunState<'_>,
    session: &mut Session,
    links: &mut ClientLinks,
    poll: &mut Poll,
    events: &mut Events,
) -> anyhow::Result<Times> {
    let give_up_ns = shared.clock.now_ns() + SESSION_NS;
    let mut ready = false;
    loop {
        let now_ns = shared.clock.now_ns();
        let now = shared.clock.at(now_ns);
        exchange(session, links, now);
        if !ready && session.is_open(now) {
            ready = true;
            shared.ready.fetch_add(1, Ordering::Release);
        }
        if let (true, Some(&times)) = (ready, shared.times.get()) {
            return Ok(times);
        }
        anyhow::ensure!(ready || now_ns < give_up_ns, "no session with the controller within 10 s");
        anyhow::ensure!(!shared.stop.load(Ordering::Relaxed), STOPPED);
        poll_once(poll, events, Duration::from_millis(5))?;
    }
}

/// Exchanges control messages, and handles timeouts.
fn exchange(session: &mut Session, links: &mut ClientLinks, now: switchback_core::Now) {
    while let Some(notice) = links.control.receive() {
        session.handle_message(now, notice);
    }
    if now.is_due(session.poll_timeout()) {
        session.handle_timeout(now);
    }
    while let Some(report) = session.poll_message() {
        links.control.send(report);
    }
}

fn poll_once(poll: &mut Poll, events: &mut Events, timeout: Duration) -> anyhow::Result<()> {
    match poll.poll(events, Some(timeout)) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => {
            Err(error).context("a client's poll")
        }
        _ => Ok(()),
    }
}
