//! A client: session, application threads, spool.

use super::ending::Phase;
use super::{Flight, World};
use crate::check::scans::{Entry, Listing};
use crate::check::witness::Answer;
use crate::check::{Check, Violation};
use crate::disk::SpoolDisk;
use crate::event::Event;
use crate::history::{Answered, Kind, NO_GUARD, NO_OP, Op, OpIndex, fill_value, writer_of};
use crate::plan::Plan;
use crate::random::Random;
use crate::workload::Intent;
use std::collections::BTreeMap;
use switchback_assembly::Part;
use switchback_core::client::{
    Completion, Operation, Outcome, Preservation, PreservedRecord, Session, SubmitError,
};
use switchback_core::control::ClientNotice;
use switchback_core::mechanisms::Mechanisms;
use switchback_core::topology::ChainId;
use switchback_spool::{Disk, OpenError, Spool, load, segments};
use switchback_wire::{Header, Seq, flags, record_flags, scan_entries};

/// What a thread of the application is doing.
#[derive(Clone, Copy, Default)]
struct Thread {
    /// What it wants, if it couldn't yet.
    wants: Option<Intent>,
    /// It waits for an answer.
    waits: bool,
    /// What it writes once it knows the version.
    modifies: Option<(u32, Seq)>,
    /// Where it goes on listing keys.
    scans: Option<Intent>,
}

/// An answer, taken apart.
#[derive(Clone, Copy)]
struct Done {
    token: u64,
    answer: Answer,
    /// While it waited for the spool, a recovery gave its client up, with what it rests on.
    given_up: bool,
}

/// What a client keeps on its disk: the gateway's spool.
struct Spooling {
    /// While the client runs; otherwise only its disk.
    spool: Result<Spool<SpoolDisk>, SpoolDisk>,
    /// Everything is synced before it is answered, so its machine may stop; otherwise only its
    /// process may die.
    always: bool,
    bytes_max: u64,
    is_writing: bool,
    /// Answers that wait for what is being written.
    answers: Vec<Done>,
    next: Vec<PreservedRecord>,
    next_answers: Vec<Done>,
}

impl Spooling {
    fn new(random: &mut Random) -> Spooling {
        Spooling {
            spool: Err(SpoolDisk::default()),
            always: random.chance(0.7),
            bytes_max: random.logarithmic(500, 50_000),
            is_writing: false,
            answers: Vec::new(),
            next: Vec::new(),
            next_answers: Vec::new(),
        }
    }

    /// Opens the spool and loads it.
    fn open(
        &mut self,
        mechanisms: Mechanisms,
        preserved: &mut Preservation,
    ) -> Result<(), OpenError> {
        let Err(disk) = &mut self.spool else { unreachable!("a client runs once") };
        let disk = std::mem::take(disk);
        self.spool = Ok(Spool::open(
            disk,
            0,
            self.always && mechanisms.synced_spool,
            self.bytes_max,
            preserved,
        )?);
        Ok(())
    }

    /// The client dies, perhaps in the middle of what its spool writes; so does its machine, if all
    /// it had been told to is synced.
    fn crash(&mut self, preserved: &Preservation, now_us: u64, random: &mut Random) {
        let spool = std::mem::replace(&mut self.spool, Err(SpoolDisk::default()));
        let Ok(mut spool) = spool else { unreachable!("only a running client dies") };
        if self.is_writing && random.chance(0.7) {
            spool.disk_mut().stops_in(random.below(8) as u32);
            // It isn't there any more to learn how that went.
            let _ = spool.commit(preserved, now_us);
        }
        let mut disk = spool.into_disk();
        if self.always && random.chance(0.5) {
            disk.machine_dies(random)
        } else {
            disk.process_dies()
        }
        self.spool = Err(disk);
        self.is_writing = false;
        self.answers.clear();
        self.next.clear();
        self.next_answers.clear();
    }

    /// What is found on the disk of a client that doesn't run.
    fn left(&self) -> Preservation {
        let mut left = Preservation::default();
        let Err(disk) = &self.spool else { return left };
        for (name, ..) in segments(disk.names().unwrap_or_default(), |_| true) {
            if let Ok(file) = disk.open(&name) {
                let _ = load(file, &mut left);
            }
        }
        left
    }

    /// What is durable elsewhere needn't be kept here.
    fn release(&mut self, session: &Session) {
        if let Ok(spool) = &mut self.spool {
            spool.disk_mut().remove_now();
            spool.release(session.durable_generation(), session.preserved().is_empty());
        }
    }
}

/// A client.
pub(super) struct ClientSlot {
    pub(super) session: Option<Box<Session>>,
    pub(super) life: u16,
    boot: u32,
    /// What it preserved of earlier epochs was given up.
    pub(super) abandoned_in: BTreeMap<ChainId, u32>,
    /// When this controller got its last message.
    pub(super) heard_us: u64,
    threads: Vec<Thread>,
    /// What each thread has asked to be listed.
    listings: Vec<Option<Listing>>,
    /// The version of each key that the application saw last.
    known: Vec<Seq>,
    spool: Option<Spooling>,
    only_reads: bool,
}

impl ClientSlot {
    pub(super) fn new(plan: &Plan, random: &mut Random) -> ClientSlot {
        ClientSlot {
            session: None,
            life: 0,
            boot: 0,
            abandoned_in: BTreeMap::new(),
            heard_us: 0,
            threads: vec![Thread::default(); usize::from(plan.load.threads)],
            listings: vec![None; usize::from(plan.load.threads)],
            known: vec![Seq::NONE; plan.load.keys as usize],
            spool: random.chance(plan.load.spooled).then(|| Spooling::new(random)),
            only_reads: random.chance(plan.load.readers),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.session.is_some()
    }

    /// What was told in this epoch is lost, also if it wasn't handed out yet.
    pub(super) fn lose(&mut self, epoch: u32) {
        let Some(spool) = &mut self.spool else { return };
        let told = spool.answers.iter_mut().chain(&mut spool.next_answers);
        for done in told.filter(|done| done.answer.seq.epoch() == epoch) {
            (done.given_up, done.answer.at_risk) = (true, true);
        }
    }

    /// Whether none of its threads waits for an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.threads.iter().all(|thread| !thread.waits && thread.wants.is_none())
    }
}

/// A spool that can't be written is tried again after this.
const SPOOL_RETRY_US: u64 = 100_000;

/// No operation of the history.
const SCANS: u64 = NO_OP as u64;

/// Answers to scans of a run that are kept and checked, beside those after the faults.
const LISTINGS_MAX: usize = 100;

fn token(op: u64, thread: u16) -> u64 {
    op << 16 | u64::from(thread)
}

fn thread_of(token: u64) -> usize {
    (token & 0xffff) as usize
}

impl World {
    pub(super) fn start_client(&mut self, client: u16) {
        let now = self.now(Part::Client(client));
        let spooled = self.clients[usize::from(client)].spool.is_some();
        let seed = self.random.bits();
        let slot = &mut self.clients[usize::from(client)];
        slot.boot += 1;
        slot.life += 1;
        let boot = u64::from(slot.boot) << 8 | u64::from(client);
        let mut session = Box::new(self.rack.session(spooled, boot, seed, now));
        let opened = slot
            .spool
            .as_mut()
            .map_or(Ok(()), |spool| spool.open(self.rack.mechanisms, session.preserved_mut()));
        slot.session = Some(session);
        if let Err(error) = opened {
            let text = format!("client{client} can't open its spool: {error:?}");
            self.fail(Violation::general(Check::Liveness, text));
            return;
        }
        let slot = &mut self.clients[usize::from(client)];
        slot.threads.fill(Thread::default());
        slot.listings.fill(None);
        for thread in 0..self.plan.load.threads {
            let at_us = self.now_us + self.workload.pause_us();
            self.queue.push(at_us, Event::Submit(client, thread));
        }
        self.pump_client(client);
    }

    pub(super) fn crash_client(&mut self, client: u16) {
        if self.clients[usize::from(client)].spool.is_none() {
            self.weaken_client(client, None);
        }
        let slot = &mut self.clients[usize::from(client)];
        let Some(session) = slot.session.take() else { return };
        slot.heard_us = 0;
        slot.boot += 1;
        slot.threads.fill(Thread::default());
        slot.listings.fill(None);
        if let Some(spool) = &mut slot.spool {
            spool.crash(session.preserved(), self.now_us, &mut self.random);
        }
    }

    /// What a client alone keeps (of one chain, or all) is lost, as promised: answers that rest on
    /// it are evidence no longer.
    fn weaken_client(&mut self, client: u16, chain: Option<ChainId>) {
        if !self.plan.scheme.absorbs_writes() {
            return;
        }
        let slot = &self.clients[usize::from(client)];
        let is_of =
            |kept: &&PreservedRecord| chain.is_none_or(|chain| self.chain_of(&kept.hash) == chain);
        let kept = |preserved: &Preservation| -> BTreeMap<u32, Seq> {
            preserved.iter().filter(is_of).filter_map(|kept| self.kept(kept)).collect()
        };
        let kept = match (&slot.session, &slot.spool) {
            (Some(session), _) => kept(session.preserved()),
            (None, Some(spool)) => kept(&spool.left()),
            (None, None) => return,
        };
        // A spool outlives the lives that wrote it.
        let since_life = if slot.spool.is_some() { 0 } else { slot.life };
        let lost = |key, seq| kept.get(&key).is_some_and(|kept| *kept >= seq);
        self.witness.weaken(&mut self.history, client, since_life, lost);
    }

    /// The recovery of this epoch no longer waited for the client: what it alone keeps is lost, as
    /// promised.
    pub(super) fn give_up_client(&mut self, client: u16, chain: ChainId, epoch: u32) {
        self.weaken_client(client, Some(chain));
        let slot = &mut self.clients[usize::from(client)];
        slot.abandoned_in.insert(chain, epoch);
        if let Some(spool) = &mut slot.spool {
            for done in spool.answers.iter_mut().chain(&mut spool.next_answers) {
                done.given_up = true;
            }
        }
    }

    fn kept(&self, kept: &PreservedRecord) -> Option<(u32, Seq)> {
        Some((self.workload.number_of(&kept.key)?, kept.record.seq))
    }

    pub(super) fn wake_client(&mut self, client: u16) {
        let now = self.now(Part::Client(client));
        let slot = &mut self.clients[usize::from(client)];
        let Some(session) = &mut slot.session else { return };
        if now.is_due(session.poll_timeout()) {
            session.handle_timeout(now);
        }
        if let Some(spooling) = &mut slot.spool {
            spooling.release(session);
        }
        self.pump_client(client);
    }

    pub(super) fn client_hears(&mut self, client: u16, notice: ClientNotice) {
        let now = self.now(Part::Client(client));
        if let ClientNotice::Granted(grant) = &notice {
            for (chain, granted) in grant.chains.iter() {
                let Some(granted) = granted else { continue };
                let (generation, epoch) = (granted.durable_generation, granted.recovered_epoch);
                self.check_released(client, chain, generation, epoch);
            }
        }
        let Some(session) = &mut self.clients[usize::from(client)].session else { return };
        session.handle_message(now, notice);
        self.pump_client(client);
    }

    pub(super) fn client_receives(&mut self, client: u16, flight: Box<Flight>) {
        let now = self.now(Part::Client(client));
        let Some(session) = &self.clients[usize::from(client)].session else {
            self.flights.done(flight);
            return;
        };
        let answer = Header::decode(flight.packet.bytes()).ok();
        if let Some(answer) = &answer
            && answer.durable_generation > session.durable_generation_of(&answer.key_hash)
            && answer.epoch == session.epoch_of(&answer.key_hash)
            && session.is_open_for(now, &answer.key_hash)
        {
            let chain = self.chain_of(&answer.key_hash);
            self.check_released(client, chain, answer.durable_generation, 0);
        }
        let is_write_back = self.plan.scheme.absorbs_writes();
        let slot = &mut self.clients[usize::from(client)];
        let Some(session) = &mut slot.session else { return };
        let session_epoch = answer.as_ref().map_or(0, |answer| session.epoch_of(&answer.key_hash));
        let rests =
            |answer: &Header| session.preserves(&answer.key_hash) && rests_on_client(answer);
        let at_risk = is_write_back && answer.as_ref().is_some_and(rests);
        let completion = session.handle_packet(now, &flight.packet);
        if let Some(completion) = &completion
            && let Some(listing) = &mut slot.listings[thread_of(completion.token)]
            && let Outcome::Scanned { entries, next, live } = completion.outcome
        {
            let entry = |(flagged, key)| Entry { key: self.workload.number_of(key), flagged };
            (listing.next, listing.live) = (next, live);
            listing.entries = scan_entries(entries).map(entry).collect();
            (listing.answered, listing.answered_us) = (self.history.tick(), self.now_us);
        }
        let done = completion.map(|completion| take_apart(&completion, session_epoch, at_risk));
        self.flights.done(flight);
        if let Some(done) = done {
            if let Some(answer) = answer.filter(|_| done.answer.cached) {
                self.check_kept(session_epoch, &answer.key_hash, done.answer.seq);
            }
            self.spool_or_finish(client, done);
        }
        self.pump_client(client);
    }

    /// An answer may be handed out only when what it rests on is on the disk, if there is a spool.
    fn spool_or_finish(&mut self, client: u16, done: Done) {
        let slot = &mut self.clients[usize::from(client)];
        let Some(session) = &mut slot.session else { return };
        let Some(spool) = &mut slot.spool else {
            self.finish(client, done);
            return;
        };
        session.preserved_mut().drain_touched(|kept| spool.next.push(kept.clone()));
        if !done.answer.cached || (spool.next.is_empty() && !spool.is_writing) {
            self.finish(client, done);
            return;
        }
        spool.next_answers.push(done);
        if !spool.is_writing {
            self.begin_spooling(client);
        }
    }

    fn begin_spooling(&mut self, client: u16) {
        let takes_us = 1 + self.random.exponential(self.plan.disks.spool_us);
        let fails = self.random.chance(self.plan.disks.commit_fails) && !self.is_healed();
        let slot = &mut self.clients[usize::from(client)];
        let boot = slot.boot;
        let Some(Spooling { spool: Ok(spool), is_writing, next, next_answers, answers, .. }) =
            &mut slot.spool
        else {
            return;
        };
        *is_writing = true;
        for kept in next.drain(..) {
            spool.push(&kept);
        }
        answers.append(next_answers);
        if fails {
            spool.disk_mut().fail_next();
        }
        self.queue.push(self.now_us + takes_us, Event::Spooled(client, boot));
    }

    pub(super) fn spooled(&mut self, client: u16, boot: u32) {
        if self.is_paused(self.numbers.number(Part::Client(client)), Event::Spooled(client, boot)) {
            return;
        }
        let slot = &mut self.clients[usize::from(client)];
        if slot.boot != boot {
            return;
        }
        let (Some(spooling), Some(session)) = (&mut slot.spool, &slot.session) else { return };
        let Ok(spool) = &mut spooling.spool else { return };
        if spool.commit(session.preserved(), self.now_us).is_err() {
            // What was to be answered may or may not last.
            for done in &mut spooling.answers {
                done.answer.answered = Answered::Unknown;
            }
            self.queue.push(self.now_us + SPOOL_RETRY_US, Event::Spooled(client, boot));
        } else {
            spooling.is_writing = false;
        }
        spooling.release(session);
        let answers = std::mem::take(&mut spooling.answers);
        let is_idle = spooling.next.is_empty() && spooling.next_answers.is_empty();
        if !spooling.is_writing && !is_idle {
            self.begin_spooling(client);
        }
        for done in answers {
            self.finish(client, done);
        }
        self.pump_client(client);
    }

    /// Sends what the session has to send, takes the outcomes that no packet brought.
    pub(super) fn pump_client(&mut self, client: u16) {
        let part = Part::Client(client);
        loop {
            let mut flight = self.flights.buffer();
            let Some(session) = &mut self.clients[usize::from(client)].session else { return };
            match session.poll_packet(&mut flight.packet) {
                Some(to) => self.send_packet(part, to, flight),
                None => {
                    self.flights.done(flight);
                    break;
                }
            }
        }
        loop {
            let Some(session) = &mut self.clients[usize::from(client)].session else { return };
            // That of the key's chain isn't known here; an operation that came to nothing needs
            // none.
            let epoch = session.epoch();
            let Some(completion) = session.poll_completion() else { break };
            let done = take_apart(&completion, epoch, false);
            self.finish(client, done);
        }
        loop {
            let Some(session) = &mut self.clients[usize::from(client)].session else { return };
            let Some(report) = session.poll_message() else { break };
            self.report(part, report);
        }
        let Some(session) = &self.clients[usize::from(client)].session else { return };
        let due_us = session.poll_timeout();
        self.arm(part, due_us);
    }

    /// An operation is over.
    fn finish(&mut self, client: u16, done: Done) {
        let thread = (done.token & 0xffff) as u16;
        let op = done.token >> 16;
        self.trace.number(done.token);
        self.trace.number(done.answer.seq.0);
        let slot = &mut self.clients[usize::from(client)];
        slot.threads[usize::from(thread)].waits = false;
        if op == SCANS {
            self.finish_scan(client, thread);
        } else {
            self.finish_op(client, thread, op as OpIndex, done);
        }
        let pause_us =
            if self.is_healed() { self.ending_pause_us() } else { self.workload.pause_us() };
        self.queue.push(self.now_us + pause_us, Event::Submit(client, thread));
    }

    /// A scan was answered, or came to nothing.
    fn finish_scan(&mut self, client: u16, thread: u16) {
        let slot = &mut self.clients[usize::from(client)];
        let asked = slot.threads[usize::from(thread)].scans.take();
        let Some(listing) = slot.listings[usize::from(thread)].take() else { return };
        if listing.answered == 0 {
            self.scan_came_to_nothing(listing.from);
            return;
        }
        self.statistics.scans += 1;
        if let Some(Intent::Scan { count_only, answers, .. }) = asked
            && answers > 1
            && listing.next != 0
        {
            let goes_on = Intent::Scan { from: listing.next, count_only, answers: answers - 1 };
            slot.threads[usize::from(thread)].scans = Some(goes_on);
        }
        self.scan_goes_on(listing.next);
        if self.is_healed() || self.history.listings.len() < LISTINGS_MAX {
            self.history.listings.push(listing);
        }
    }

    fn finish_op(&mut self, client: u16, thread: u16, index: OpIndex, done: Done) {
        let answer = done.answer;
        let checked = self.witness.answered(&mut self.history, index, answer, self.now_us);
        if answer.at_risk && done.given_up {
            self.witness.weaken_one(&mut self.history, index);
        }
        let op = self.history.ops[index as usize];
        self.trace.line(self.now_us, || format!("#{index} key-{} {op}", op.key));
        let slot = &mut self.clients[usize::from(client)];
        let mine = &mut slot.threads[usize::from(thread)];
        match answer.answered {
            Answered::Value | Answered::Absent | Answered::Written | Answered::ConditionFailed => {
                slot.known[op.key as usize] = answer.seq;
                self.statistics.completed += 1;
                self.statistics.cached += u64::from(answer.cached);
            }
            Answered::Unknown => self.statistics.indeterminate += 1,
            _ => self.statistics.timed_out += 1,
        }
        if let Some((key, _)) = mine.modifies.take()
            && matches!(answer.answered, Answered::Value | Answered::Absent)
        {
            mine.modifies = Some((key, answer.seq));
        }
        if let Err(violation) = checked {
            self.fail(violation);
        }
        self.ending_notes(&op, answer.answered);
    }

    /// A thread that has nothing to do wants this now; whether its session took it.
    pub(super) fn wants(&mut self, client: u16, thread: u16, intent: Intent) -> bool {
        let mine = &mut self.clients[usize::from(client)].threads[usize::from(thread)];
        assert!(!mine.waits && mine.wants.is_none(), "client{client}'s thread {thread} is busy");
        mine.wants = Some(intent);
        self.submit(client, thread);
        self.clients[usize::from(client)].threads[usize::from(thread)].waits
    }

    /// A thread of the application wants to do something.
    pub(super) fn submit(&mut self, client: u16, thread: u16) {
        if self.is_paused(self.numbers.number(Part::Client(client)), Event::Submit(client, thread))
        {
            return;
        }
        let mine = self.clients[usize::from(client)].threads[usize::from(thread)];
        if mine.waits || !self.clients[usize::from(client)].is_running() {
            return;
        }
        let Some(intent) = mine.wants.or_else(|| self.next_intent(client, thread)) else { return };
        let now = self.now(Part::Client(client));
        let (op, bytes) = self.question(client, thread, intent);
        let index = self.history.ops.len() as OpIndex;
        let scan = matches!(intent, Intent::Scan { .. });
        let key = self.workload.key(op.key);
        let condition = op.is_conditional().then_some(Seq(op.guard));
        if op.kind == Kind::Write {
            fill_value(index, bytes, &mut self.value);
        }
        let operation = match (op.kind, intent) {
            (_, Intent::Scan { from, count_only, .. }) => {
                Operation::Scan { position: from, count_only }
            }
            (Kind::Read, _) => Operation::Read { key },
            (Kind::Write, _) => {
                Operation::Write { key, value: &self.value, expiry_ms: op.expiry_ms, condition }
            }
            (Kind::Delete, _) => Operation::Delete { key, condition },
        };
        let token = token(if scan { SCANS } else { index.into() }, thread);
        let slot = &mut self.clients[usize::from(client)];
        let Some(session) = &mut slot.session else { return };
        let submitted = session.submit(now, operation, token);
        let mine = &mut slot.threads[usize::from(thread)];
        match submitted {
            Ok(()) => {
                mine.wants = None;
                mine.waits = true;
                if let Intent::Modify(key) = intent {
                    // First the read, then the write.
                    mine.modifies =
                        if op.kind == Kind::Read { Some((key, Seq(NO_GUARD))) } else { None };
                }
                if let Intent::Scan { from, count_only, .. } = intent {
                    mine.scans = Some(intent);
                    let (asked, asked_us) = (self.history.tick(), self.now_us);
                    let listing =
                        Listing { from, count_only, asked, asked_us, ..Listing::default() };
                    slot.listings[usize::from(thread)] = Some(listing);
                } else {
                    self.begin_op(op, bytes);
                }
            }
            Err(SubmitError::TooLarge) => unreachable!("the workload keeps to the limits"),
            Err(_) => {
                mine.wants = Some(intent);
                let again_us = self.now_us + 500 + self.random.below(3_000);
                self.queue.push(again_us, Event::Submit(client, thread));
            }
        }
        self.pump_client(client);
    }

    fn begin_op(&mut self, op: Op, bytes: usize) {
        let mut op = op;
        op.bytes = bytes as u32;
        self.witness.begin(&mut op);
        let index = self.history.begin(op, self.now_us);
        self.trace.line(self.now_us, || format!("#{index} begins: key-{} {op}", op.key));
    }

    fn next_intent(&mut self, client: u16, thread: u16) -> Option<Intent> {
        let modifies = self.clients[usize::from(client)].threads[usize::from(thread)].modifies;
        if let Some((key, seq)) = modifies
            && seq != Seq(NO_GUARD)
        {
            return Some(Intent::Modify(key));
        }
        self.clients[usize::from(client)].threads[usize::from(thread)].modifies = None;
        let goes_on = self.clients[usize::from(client)].threads[usize::from(thread)].scans.take();
        if self.phase != Phase::Safety {
            return self.ending_intent(client, thread);
        }
        if self.history.ops.len() as u64 >= self.plan.load.operations {
            return None;
        }
        if goes_on.is_some() || self.rules.is_some() {
            return goes_on;
        }
        let only_reads = self.clients[usize::from(client)].only_reads;
        Some(if only_reads { self.workload.draw_read() } else { self.workload.draw() })
    }

    /// What an intent asks, and how many bytes it writes.
    fn question(&mut self, client: u16, thread: u16, intent: Intent) -> (Op, usize) {
        let slot = &self.clients[usize::from(client)];
        let ask = |key, kind| Op::ask(client, slot.life, key, kind);
        match intent {
            Intent::Read(key) => (ask(key, Kind::Read), 0),
            Intent::Delete(key) => (ask(key, Kind::Delete), 0),
            Intent::Scan { .. } => (ask(0, Kind::Read), 0),
            Intent::Write(key, bytes, expires_ms) => {
                let unix_ms = self.clocks[usize::from(self.numbers.number(Part::Client(client)))]
                    .now(self.now_us)
                    .unix_ms;
                let expiry_ms = if expires_ms == 0 { 0 } else { unix_ms + expires_ms };
                (Op { expiry_ms, ..ask(key, Kind::Write) }, bytes)
            }
            Intent::Guess(key, bytes, deletes) => {
                let guard = slot.known[key as usize].0;
                let kind = if deletes { Kind::Delete } else { Kind::Write };
                (Op { guard, ..ask(key, kind) }, if deletes { 0 } else { bytes })
            }
            Intent::Modify(key) => match slot.threads[usize::from(thread)].modifies {
                Some((_, seq)) if seq != Seq(NO_GUARD) => {
                    let op = Op { guard: seq.0, ..ask(key, Kind::Write) };
                    (op, self.workload.bytes())
                }
                _ => (ask(key, Kind::Read), 0),
            },
        }
    }

    /// Before a client releases what it preserves: all of that must be durable elsewhere.
    fn check_released(&mut self, client: u16, chain: ChainId, generation: u32, recovered: u32) {
        let slot = &self.clients[usize::from(client)];
        let Some(session) = &slot.session else { return };
        let abandoned_in = slot.abandoned_in.get(&chain).copied().unwrap_or(0);
        let goes = |kept: &PreservedRecord| {
            let promised = kept.record.seq.epoch() >= abandoned_in;
            let is_of = self.chain_of(&kept.hash) == chain;
            is_of
                && promised
                && (kept.generation < generation || kept.record.seq.epoch() < recovered)
        };
        let going: Vec<_> = session.preserved().iter().filter(|kept| goes(kept)).collect();
        let mut lost = None;
        for kept in &going {
            let seq = kept.record.seq;
            let snapshot = self.controller.chains.get(&chain).map(|chain| &chain.snapshot);
            let there = snapshot.and_then(|snapshot| snapshot.records.get(&kept.hash));
            let in_snapshot = there.is_some_and(|there| *there >= seq);
            if !in_snapshot && !self.is_at_node(&kept.hash, seq) {
                lost = Some(format!(
                    "client{client} is told to forget {seq} of {} (generation {}), which is neither at its node nor in a snapshot",
                    String::from_utf8_lossy(&kept.key),
                    kept.generation,
                ));
            }
        }
        self.statistics.releases_checked += going.len() as u64;
        if let Some(text) = lost {
            self.fail(Violation::general(Check::ReleasedTooEarly, text));
        }
    }
}

/// Whether an answer rests on a record that no node has.
fn rests_on_client(answer: &Header) -> bool {
    let is_dirty = answer.op == switchback_wire::Op::WriteReply
        || answer.record_flags & record_flags::DIRTY != 0;
    answer.has(flags::CACHED) && is_dirty
}

fn take_apart(completion: &Completion<'_>, epoch: u32, at_risk: bool) -> Done {
    let nothing = Answer {
        answered: Answered::Nothing,
        seq: Seq::NONE,
        saw: NO_OP,
        bytes: 0,
        expiry_ms: 0,
        epoch,
        cached: completion.cached,
        at_risk,
    };
    let answer = match completion.outcome {
        Outcome::Value { value, seq, expiry_ms } => {
            let (saw, bytes) = (writer_of(value).unwrap_or(NO_OP), value.len() as u32);
            Answer { answered: Answered::Value, seq, saw, bytes, expiry_ms, ..nothing }
        }
        Outcome::NotFound { seq } => Answer { answered: Answered::Absent, seq, ..nothing },
        Outcome::Written { seq } => Answer { answered: Answered::Written, seq, ..nothing },
        Outcome::ConditionFailed { seq } => {
            Answer { answered: Answered::ConditionFailed, seq, ..nothing }
        }
        Outcome::Scanned { .. } | Outcome::TimedOut => nothing,
        // A copy of the packet may still find room.
        Outcome::NoSpace | Outcome::Indeterminate => {
            Answer { answered: Answered::Unknown, ..nothing }
        }
    };
    Done { token: completion.token, answer, given_up: false }
}
