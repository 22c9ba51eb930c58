//! The end of a run: faults stop, and then everything has to come right.

use super::World;
use crate::check::stored::{Stored, compare};
use crate::check::{Check, Violation, conditions, scans};
use crate::clock::START_UNIX_MS;
use crate::history::{Answered, Op};
use crate::workload::Intent;
use switchback_assembly::Part;
use switchback_core::controller::ChainStatus;
use switchback_core::topology::ChainId;
use switchback_wire::{CACHED_KEY_BYTES_MAX, Seq};

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Faults, and the load.
    Safety,
    /// No faults; what is under way has to complete.
    Settling,
    /// Every key is read.
    Reading(u32),
    /// One key is written until the cache absorbs it.
    Warming(u32),
    /// All keys are listed, from this position on, while the cache holds some of them; whether the
    /// question is under way.
    Listing(u64, bool),
    /// Everything is evicted.
    Draining,
    /// Every key is read again, now from its node.
    Rereading(u32),
    /// That was it.
    Over,
}

/// State of the ending.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ending {
    /// The phase has to be over by then.
    deadline_us: u64,
    /// When it began.
    since_us: u64,
    /// The cache answered what it is asked in the warming phase: an absorbed write, or a read
    /// without write-back.
    absorbed: bool,
    /// Reads that came to nothing.
    retries: u32,
    /// Recoveries before it.
    recoveries: u64,
}

/// Operations on one key after which the cache must have absorbed a write.
const WARMING_MAX: u32 = 200_000;
/// The first of them, which come without a pause.
const WARMING_FAST: u32 = 20_000;
/// Recoveries after the faults because dead links are tried again: the pauses of a link double,
/// from no less than 50 ms to 64 times as long.
const LINK_TRIES_MAX: u64 = 16;
/// Tries to cut the backup that is under way when the faults end.
const CUTS_MAX: u64 = 5;

impl World {
    pub(super) fn is_healed(&self) -> bool {
        self.phase != Phase::Safety
    }

    /// A long time for this rack.
    fn patience_us(&self) -> u64 {
        let times = &self.plan.times;
        let longest_us = times.lease_us
            + times.spool_wait_us
            + self.witness_wait_us()
            + times.deadline_us
            + times.snapshot_us.unwrap_or(0);
        2 * longest_us + 20 * times.switch_timeout_us + 10_000_000 + self.repair_us()
    }

    /// A long time for all replicas but one of each partition to be made again: a join takes some
    /// ten messages and commits, one after the other, and each may wait to be repeated.
    fn repair_us(&self) -> u64 {
        let plan = &self.plan;
        let replicas = u64::from(plan.topology.replicas.saturating_sub(1));
        let step_us = plan.control.delay_us + plan.control.jitter_us + plan.disks.commit_us;
        let waits_us = 2 * (plan.times.node_retry_us + plan.times.controller_retry_us);
        u64::from(self.rack.partitions) * replicas * (20 * step_us + waits_us)
    }

    fn enter(&mut self, phase: Phase) {
        self.trace.line(self.now_us, || format!("phase {phase:?}"));
        self.phase = phase;
        self.ending_state.since_us = self.now_us.max(self.pauses_end_us());
        self.ending_state.deadline_us = self.ending_state.since_us + self.patience_us();
        // Threads that had nothing to do look again.
        for client in 0..self.clients.len() as u16 {
            for thread in 0..self.plan.load.threads {
                self.queue.push(self.now_us + 1, crate::event::Event::Submit(client, thread));
            }
        }
    }

    pub(super) fn end_faults(&mut self) {
        self.heal();
        self.ending_state.recoveries = self.statistics.recoveries;
        self.enter(Phase::Settling);
    }

    /// Whether the phase may end.
    pub(super) fn go_on_with_ending(&mut self) {
        if self.violation.is_some() {
            return;
        }
        match self.phase {
            // It is over when the script says so.
            Phase::Safety if self.rules.is_some() => {}
            Phase::Safety => {
                let done = self.history.ops.len() as u64 >= self.plan.load.operations;
                let idle = self.clients.iter().all(super::ClientSlot::is_idle);
                if self.now_us >= self.plan.safety_us || (done && idle) {
                    self.check_progress();
                    self.end_faults();
                }
            }
            Phase::Settling => {
                self.add_switches();
                // A switch that a fault silenced may count as dead only now.
                let times = &self.plan.times;
                let noticed_us = 2 * times.switch_timeout_us + times.switch_lost_us;
                if self.now_us >= self.ending_state.since_us + noticed_us && self.is_settled() {
                    self.enter(Phase::Reading(0));
                }
            }
            Phase::Reading(key) => {
                if self.is_all_read(key) {
                    self.begin_warming();
                }
            }
            Phase::Warming(_) => {
                if self.ending_state.absorbed {
                    self.enter(Phase::Listing(0, false));
                }
            }
            // It goes on by its answers.
            Phase::Listing(..) => {}
            Phase::Draining => {
                let drained = self
                    .controller
                    .controller
                    .as_ref()
                    .is_some_and(|controller| controller.is_drained());
                let is_quiet = self.is_quiet() && self.are_replicas_quiet();
                if drained && is_quiet && self.are_partitions_whole() {
                    self.statistics.drained += 1;
                    self.check_stored();
                    self.enter(Phase::Rereading(0));
                }
            }
            Phase::Rereading(key) => {
                if self.is_all_read(key) {
                    self.finish_run();
                }
            }
            Phase::Over => {}
        }
        if self.phase != Phase::Safety
            && self.phase != Phase::Over
            && self.now_us > self.ending_state.deadline_us
        {
            self.give_up();
        }
    }

    /// The phase takes too long. The parts' own state says whether they settled and drained,
    /// clients whether the rest is done: without the check of the former, clients are asked all the
    /// same.
    fn give_up(&mut self) {
        let rests = match self.are_partitions_whole() {
            true => Check::Settled,
            false => Check::UnderReplicated,
        };
        let (check, next) = match self.phase {
            Phase::Settling => (rests, Some(Phase::Reading(0))),
            Phase::Draining => (rests, Some(Phase::Rereading(0))),
            _ => (Check::Liveness, None),
        };
        let text =
            format!("{:?} took more than {} us: {}", self.phase, self.patience_us(), self.state());
        self.fail(Violation::general(check, text));
        if self.violation.is_none()
            && let Some(next) = next
        {
            self.enter(next);
        }
    }

    /// What might explain that nothing goes on.
    fn state(&self) -> String {
        let now = self.now(Part::Controller);
        let controller =
            self.controller.controller.as_ref().map(|controller| controller.status(now));
        let sessions: Vec<_> =
            self.clients.iter().filter_map(|slot| slot.session.as_ref()).collect();
        let sessions: Vec<_> =
            sessions.iter().map(|session| (session.epoch(), session.outstanding())).collect();
        let nodes: Vec<_> = self.nodes.iter().filter_map(|slot| slot.shim.as_ref()).collect();
        let nodes: Vec<_> = nodes.iter().map(|node| (node.offered(), node.statistics())).collect();
        format!(
            "{controller:?}, sessions (epoch, outstanding) {sessions:?}, nodes (offered, counters) {nodes:?}"
        )
    }

    /// Operations complete while there are faults, unless something was broken all the time: such a
    /// run proves nothing, and is counted.
    fn check_progress(&mut self) {
        let (done, asked) = (self.statistics.completed, self.history.ops.len() as u64);
        // The end of an epoch leaves the outcome of what was under way unknown.
        let calm = self.plan.faults.every_us == 0
            && self.plan.data.loss < 0.05
            && self.statistics.recoveries <= 1;
        let floor = if calm { asked * 9 / 10 } else { asked / 50 };
        if done >= floor && asked > 0 {
            return;
        }
        let (calm_us, needed_us) =
            (self.nemesis.longest_calm_us(self.now_us), self.recovers_within_us());
        if calm_us < needed_us {
            self.statistics.idle += 1;
            return;
        }
        let text = format!(
            "{done} of {asked} operations were answered, fewer than {floor}, although there was no \
             fault for {calm_us} us, and a rack serves again within {needed_us}"
        );
        self.fail(Violation::general(Check::Progress, text));
    }

    /// How long a rack without faults may take until it serves: a switch is declared dead, and a
    /// recovery waits for silent clients.
    fn recovers_within_us(&self) -> u64 {
        let times = &self.plan.times;
        2 * times.switch_timeout_us
            + times.switch_lost_us
            + times.lease_us
            + times.drift_us
            + times.spool_wait_us
            + self.witness_wait_us()
    }

    /// How long a recovery may wait for a switch that has what was told.
    fn witness_wait_us(&self) -> u64 {
        if self.rack.layers > 1 { self.plan.times.witness_wait_us } else { 0 }
    }

    pub(super) fn is_settled(&self) -> bool {
        let Some(controller) = &self.controller.controller else { return false };
        let idle = self.clients.iter().all(super::ClientSlot::is_idle);
        let is_prompt = self.control.is_prompt(self.now_us) && self.links.is_prompt(self.now_us);
        if !idle || !is_prompt || !self.are_replicas_ready() || !self.are_partitions_whole() {
            return false;
        }
        let now = self.now(Part::Controller);
        let chains = controller.chain_statuses(now);
        let moved = self
            .clients
            .iter()
            .filter_map(|slot| slot.session.as_ref())
            .all(|session| session.epochs().eq(chains.iter().map(|chain| chain.epoch)));
        // The controller may not have noticed yet that a switch died, or is back.
        let running = || self.switches.iter().filter_map(|slot| slot.running.as_ref());
        let serving = |epoch| running().filter(|running| running.agent.epoch() == epoch).count();
        // A chain goes on without one end of a dead link. One that lost too many probes is tried
        // again after a pause that doubles, to longer than a phase takes.
        let layers = |chain: &ChainStatus| {
            let left_out = controller.left_out_switches(now, ChainId::new(chain.chain));
            usize::from(self.rack.layers).saturating_sub(left_out).max(1)
        };
        let switched = chains.iter().all(|chain| serving(chain.epoch) >= layers(chain));
        let serves = switched && controller.is_serving() && !controller.is_bypassing();
        moved && serves
    }

    /// Whether nothing is on its way any more.
    fn is_quiet(&self) -> bool {
        self.controller.is_idle()
            && self.nodes.iter().all(super::NodeSlot::is_idle)
            && self.switches.iter().all(super::SwitchSlot::is_idle)
            && self.clients.iter().all(super::ClientSlot::is_idle)
    }

    /// A thread's pause after the faults: a key gets hot only if it is asked for faster than
    /// counters are cleared, but it may have to queue behind thousands of offers of the load.
    pub(super) fn ending_pause_us(&self) -> u64 {
        match self.phase {
            Phase::Warming(count) if count > WARMING_FAST => 1_000,
            _ => 1,
        }
    }

    fn is_all_read(&self, key: u32) -> bool {
        key >= self.workload.keys() && self.clients.iter().all(super::ClientSlot::is_idle)
    }

    fn begin_warming(&mut self) {
        let caches = self.plan.scheme.caches();
        self.enter(if caches { Phase::Warming(0) } else { Phase::Listing(0, false) });
    }

    fn begin_draining(&mut self) {
        self.enter(Phase::Draining);
        let now = self.now(Part::Controller);
        if let Some(controller) = &mut self.controller.controller {
            controller.drain(now);
        }
        self.pump_controller();
    }

    /// What a thread does after the safety phase.
    pub(super) fn ending_intent(&mut self, client: u16, _thread: u16) -> Option<Intent> {
        match self.phase {
            Phase::Reading(key) if key < self.workload.keys() => {
                self.phase = Phase::Reading(key + 1);
                Some(Intent::Read(key))
            }
            Phase::Listing(from, false) => {
                self.phase = Phase::Listing(from, true);
                Some(Intent::Scan { from, count_only: false, answers: 1 })
            }
            Phase::Rereading(key) if key < self.workload.keys() => {
                self.phase = Phase::Rereading(key + 1);
                Some(Intent::Read(key))
            }
            Phase::Warming(count) if client == 0 && count < WARMING_MAX => {
                self.phase = Phase::Warming(count + 1);
                let key = (0..self.workload.keys())
                    .find(|&key| self.workload.key(key).len() <= CACHED_KEY_BYTES_MAX);
                // If the next read fetches what a write made invalid, the one after it is answered,
                // unless another thread has written meanwhile.
                let threads = self.plan.load.threads as u32;
                let reads = if self.plan.scheme.absorbs_writes() { 1 } else { 4 * threads };
                let is_read = count % (reads + 3) < reads;
                key.map(|key| if is_read { Intent::Read(key) } else { Intent::Write(key, 8, 0) })
            }
            _ => None,
        }
    }

    /// After the faults no operation may come to nothing, and the cache works again.
    pub(super) fn ending_notes(&mut self, op: &Op, answered: Answered) {
        if matches!(self.phase, Phase::Safety | Phase::Settling) || op.invoked_us == 0 {
            return;
        }
        if matches!(self.phase, Phase::Warming(_)) && op.cached {
            self.ending_state.absorbed |= op.changes() || !self.plan.scheme.absorbs_writes();
        }
        if matches!(answered, Answered::Unknown | Answered::Nothing) {
            self.note_nothing(format!("an operation on key {}, {op}", op.key));
        }
    }

    /// A scan was answered, up to the position `next`; 0: that was all.
    pub(super) fn scan_goes_on(&mut self, next: u64) {
        match self.phase {
            Phase::Listing(..) if next == 0 => self.begin_draining(),
            Phase::Listing(..) => self.phase = Phase::Listing(next, false),
            _ => {}
        }
    }

    /// A scan wasn't answered in time.
    pub(super) fn scan_came_to_nothing(&mut self, from: u64) {
        if matches!(self.phase, Phase::Listing(..)) {
            self.phase = Phase::Listing(from, false);
            self.note_nothing(format!("a scan from {from:x} on"));
        }
    }

    fn note_nothing(&mut self, what: String) {
        self.ending_state.retries += 1;
        // Deadlines may be a third of the time in which writes are held back, or a link is found to
        // be dead.
        let changes = 4 * u64::from(self.plan.load.threads) * self.epochs_may_end();
        if u64::from(self.ending_state.retries) > 3 + changes {
            let text = format!("even after the faults this came to nothing, after others: {what}");
            self.fail(Violation::general(Check::Liveness, text));
        }
    }

    /// How often an epoch may end after the faults, which ends, or holds back, what every thread
    /// asks for: it is renewed once more, a switch is taken back in, or a dead link is tried again.
    /// While a backup is cut writes are held back as well.
    fn epochs_may_end(&self) -> u64 {
        let topology = &self.plan.topology;
        let may_change = topology.sequence_start > 0 || topology.switches > topology.chains;
        let tried = if self.rack.layers > 1 {
            (self.statistics.recoveries - self.ending_state.recoveries).min(LINK_TRIES_MAX)
        } else {
            0
        };
        let cuts = if self.plan.backup_every_us > 0 { CUTS_MAX } else { 0 };
        tried.max(may_change.into()) + cuts
    }

    /// After a drain the nodes have everything, as it was written.
    fn check_stored(&mut self) {
        let now_ms = START_UNIX_MS + self.now_us / 1000;
        self.check_replicas(now_ms);
        for key in 0..self.workload.keys() {
            let Some(hash) = self.hash_of(key) else { return };
            let seq = self.stored_record(&hash).map_or(Seq::NONE, |record| record.seq);
            self.witness.settle(&self.history, key, seq);
            let stored =
                Stored { record: self.stored_record(&hash), floor: self.stored_floor(&hash) };
            if let Err(text) = compare(&self.history, &self.witness, key, stored, now_ms) {
                let violation =
                    Violation::general(Check::Stored, format!("after a drain key {key} {text}"));
                self.fail(Violation { key: Some(key), ..violation });
                return;
            }
        }
    }

    fn hash_of(&self, key: u32) -> Option<switchback_wire::KeyHash> {
        let controller = self.controller.controller.as_ref()?;
        Some(controller.hash_key().hash(self.workload.key(key)))
    }

    fn finish_run(&mut self) {
        if let Err(violation) = conditions::check(&self.history, &self.witness) {
            self.fail(violation);
        }
        let Some(controller) = &self.controller.controller else { return };
        let hash_key = controller.hash_key();
        let position = |key| hash_key.hash(self.workload.key(key)).position();
        let positions: Vec<u64> = (0..self.workload.keys()).map(position).collect();
        if let Err(violation) = scans::check(&self.history, &positions, self.witness.skew_ms()) {
            self.fail(violation);
        }
        self.phase = Phase::Over;
    }
}
