//! A client session: lanes with one outstanding request each (rule 11), epochs (rule 8) and the
//! lease (rule 9; Gray and Cheriton, "Leases", SOSP 1989).

mod answers;
mod control;

use super::large::{FRAGMENTS_AT_ONCE, FragmentBudget, PulledValue, Staging};
use super::loads::Load;
use super::preserve::Preservation;
use super::rto::RetryTimer;
use super::types::{ClientConfig, Completion, Operation, Outcome, SessionStatistics, SubmitError};
use crate::control::{
    ChainGrant, ClientNotice, ClientReport, Destination, Grant, KeyedRecord, batch_len,
};
use crate::time::Now;
use crate::timers::{TimerKind, Timers};
use crate::topology::{ByChain, ChainId, ChainMap, round_of, spine_of};
use rand::SeedableRng;
use rand_pcg::Pcg32;
use std::collections::VecDeque;
use switchback_wire::{
    Address, HashKey, Header, KEY_BYTES_MAX, KeyHash, LEAF_HOP, Op, Packet, SPINE_HOP, Seq, Status,
    VALUE_BYTES_MAX, flags, is_large, record_flags,
};

#[derive(Clone, Debug, Default)]
enum LaneState {
    #[default]
    Free,
    /// Waits for the answer to the lane's packet.
    Open,
    /// Stages a large value; the lane's packet is the write that will commit it.
    Staging(Box<Staging>),
    /// The staged write was sent.
    Committing(Box<Staging>),
    /// Pulls a large value, of which this run was asked for last.
    Pulling(Box<PulledValue>, u16, u16),
    /// Its completion is being handed out; the value, if any, lives here until the lane is used
    /// again.
    Done(Box<PulledValue>),
}

#[derive(Clone, Debug)]
struct Lane {
    request: u64,
    state: LaneState,
    /// Fragments of the common budget that it has taken.
    share: u16,
    /// It is held back: nothing of it was sent.
    is_held: bool,
    token: u64,
    packet: Packet,
    /// The chain that serves the operation's key.
    chain: ChainId,
    /// Hash of the operation's key.
    hash: KeyHash,
    /// Expiry of what the operation writes.
    expiry_ms: u64,
    /// The cache refused its conditional write, which expected this; the lane's packet is now a
    /// read of what is there.
    refused: Option<Seq>,
    submitted_us: u64,
    retry_at_us: u64,
    attempt: u32,
}

impl Lane {
    /// Its share of the budget for fragments while it transfers a large value.
    fn share_wanted(&self) -> Option<u16> {
        match &self.state {
            LaneState::Staging(staging) => Some(staging.count().min(FRAGMENTS_AT_ONCE)),
            LaneState::Pulling(pulled, ..) => Some(pulled.count().min(FRAGMENTS_AT_ONCE)),
            LaneState::Free | LaneState::Open | LaneState::Committing(_) | LaneState::Done(_) => {
                None
            }
        }
    }

    /// Whether it waits for its share.
    fn awaits_share(&self) -> bool {
        self.share == 0 && self.share_wanted().is_some()
    }

    /// The operation of the lane's packet.
    #[inline]
    fn asked(&self) -> Op {
        self.packet.op().expect("the lane's own packet")
    }
}

/// An operation that has ended, but for what became of it.
#[derive(Clone, Copy, Debug)]
struct Ended {
    token: u64,
    hash: KeyHash,
    submitted_us: u64,
}

impl Ended {
    #[inline]
    fn of(lane: &Lane) -> Ended {
        Ended { token: lane.token, hash: lane.hash, submitted_us: lane.submitted_us }
    }

    #[inline]
    fn with(self, outcome: Outcome<'_>, cached: bool) -> Completion<'_> {
        let Ended { token, hash, submitted_us } = self;
        Completion { token, hash, outcome, cached, submitted_us }
    }
}

#[derive(Clone, Copy, Debug)]
enum Send {
    /// The lane's packet, if this is still its request.
    Request(u32, u64),
    /// A fragment of what the lane stages.
    Fragment(u32, u64, u16),
}

impl Send {
    fn lane(self) -> u32 {
        let (Send::Request(lane, _) | Send::Fragment(lane, ..)) = self;
        lane
    }
}

/// When a session does something by itself.
#[derive(Clone, Copy, Debug)]
enum SessionTimer {
    /// Says hello: asks for a session, or renews its lease.
    Hello,
    /// Sends again what wasn't answered; the earliest of all lanes.
    Retry,
    /// Sends the preserved records again that the controller hasn't confirmed.
    Gather,
    /// Sends writes that were held back for an epoch that didn't come.
    Quiet,
}

impl TimerKind for SessionTimer {
    #[inline]
    fn index(self) -> usize {
        self as usize
    }
}

/// A session with a rack. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Session {
    config: ClientConfig,
    boot: u64,
    random: Pcg32,
    /// Those that the controller named.
    chains: ByChain<ChainState>,
    /// Some of them have spines.
    has_spines: bool,
    /// The time that the session was told last: `poll_packet` isn't told one.
    now_us: u64,
    /// Which of them serves each key.
    served: ChainMap,
    hash_key: HashKey,
    lane_first: u32,
    request_base: u64,
    lanes: Vec<Lane>,
    free: Vec<u32>,
    lease_until_us: u64,
    lease_us: u64,
    preserved: Preservation,
    retry: RetryTimer,
    timers: Timers<SessionTimer, 4>,
    large_bytes: usize,
    fragments: FragmentBudget,
    sends: VecDeque<Send>,
    messages: VecDeque<ClientReport>,
    finished: VecDeque<Completion<'static>>,
    statistics: SessionStatistics,
}

/// What a session knows of a chain of switches.
#[derive(Debug)]
struct ChainState {
    epoch: u32,
    /// Until then its answers are accepted. A chain that has nothing to offer renews no lease: the
    /// client may not have heard of its newest epoch.
    lease_until_us: u64,
    /// Who serves the epoch.
    destination: Destination,
    durable_generation: u32,
    recovered_epoch: u32,
    /// What the cache tells in the epoch is preserved (rule 7).
    preserves: bool,
    /// The spine that has copies of keys of all chains, and the chain's epoch in which it serves
    /// (DistCache).
    spine: Option<(u32, Address)>,
    /// How loaded the spine is, and the leaf.
    spine_load: Load,
    leaf_load: Load,
    gather: Option<Gather>,
    quiet: Option<Quiet>,
}

/// The epoch is about to change, or a backup to be cut: writes are held back.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    /// They are sent in this epoch if it hasn't changed by then.
    until_us: u64,
    /// The try to cut that asked for it; `None`: the epoch is about to change.
    round: Option<u64>,
    /// The controller was told that none is under way.
    is_told: bool,
}

impl ChainState {
    fn new() -> ChainState {
        let destination = Destination::Switch(Address::default());
        ChainState {
            epoch: 0,
            lease_until_us: 0,
            destination,
            durable_generation: 0,
            recovered_epoch: 0,
            preserves: true,
            spine: None,
            spine_load: Load::default(),
            leaf_load: Load::default(),
            gather: None,
            quiet: None,
        }
    }

    /// Whether operations on its keys can be submitted and their answers accepted.
    #[inline]
    fn is_open(&self, now: Now) -> bool {
        now.monotonic_us < self.lease_until_us
    }
}

/// An answer to a gather that the controller hasn't wholly confirmed.
#[derive(Debug)]
struct Gather {
    epoch: u32,
    chunks: Vec<(bool, ClientReport)>,
}

impl Session {
    /// A session that isn't open yet. `boot` must differ at every start of the client; `seed` feeds
    /// jitter only.
    pub fn new(config: ClientConfig, boot: u64, seed: u64, now: Now) -> Session {
        assert!(config.lanes > 0 && config.deadline_us > 0);
        let fragments = FragmentBudget::new(config.fragments_max);
        let mut timers = Timers::new();
        timers.set(SessionTimer::Hello, now.monotonic_us);
        Session {
            retry: RetryTimer::new(config.retry_us.0, config.retry_us.1),
            config,
            boot,
            random: Pcg32::seed_from_u64(seed),
            chains: ByChain::default(),
            has_spines: false,
            now_us: now.monotonic_us,
            served: ChainMap::default(),
            hash_key: HashKey([0; 16]),
            lane_first: 0,
            request_base: 0,
            lanes: Vec::new(),
            free: Vec::new(),
            lease_until_us: 0,
            lease_us: 0,
            preserved: Preservation::default(),
            timers,
            large_bytes: 0,
            fragments,
            sends: VecDeque::new(),
            messages: VecDeque::new(),
            finished: VecDeque::new(),
            statistics: SessionStatistics::default(),
        }
    }

    /// Takes over what an earlier run of this client had preserved on disk. Before the first hello.
    pub fn preserved_mut(&mut self) -> &mut Preservation {
        &mut self.preserved
    }

    /// Whether what the cache tells of a key is preserved, in the epoch of the key's chain.
    pub fn preserves(&self, hash: &KeyHash) -> bool {
        self.chains.get(self.served.of(hash)).is_none_or(|chain| chain.preserves)
    }

    /// The preserved records.
    pub fn preserved(&self) -> &Preservation {
        &self.preserved
    }

    /// Snapshots before this generation are durable, of all chains.
    pub fn durable_generation(&self) -> u32 {
        self.chains.iter().map(|(_, chain)| chain.durable_generation).min().unwrap_or(0)
    }

    /// The highest epoch of a chain; 0 before the session is open.
    pub fn epoch(&self) -> u32 {
        self.chains.iter().map(|(_, chain)| chain.epoch).max().unwrap_or(0)
    }

    /// The epoch of the chain that serves a key; 0: it has none to offer yet.
    pub fn epoch_of(&self, hash: &KeyHash) -> u32 {
        self.chain_of(hash).map_or(0, |chain| chain.epoch)
    }

    /// Snapshots before this generation are durable, of the chain that serves a key.
    pub fn durable_generation_of(&self, hash: &KeyHash) -> u32 {
        self.chain_of(hash).map_or(0, |chain| chain.durable_generation)
    }

    /// The epoch of each chain.
    pub fn epochs(&self) -> impl Iterator<Item = u32> {
        self.chains.iter().map(|(_, chain)| chain.epoch)
    }

    fn chain_of(&self, hash: &KeyHash) -> Option<&ChainState> {
        self.chains.get(self.served.of(hash))
    }

    /// Whether operations on a key can be submitted and their answers accepted.
    pub fn is_open_for(&self, now: Now, hash: &KeyHash) -> bool {
        self.chain_of(hash).is_some_and(|chain| chain.is_open(now))
    }

    /// Whether operations can be submitted and answers accepted, at least of the keys of one chain.
    #[inline]
    pub fn is_open(&self, now: Now) -> bool {
        now.monotonic_us < self.lease_until_us
    }

    /// Operations under way.
    pub fn outstanding(&self) -> usize {
        self.lanes.len() - self.free.len()
    }

    /// Counters.
    pub fn statistics(&self) -> SessionStatistics {
        self.statistics
    }

    /// The hash of a key in this rack.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        self.hash_key.hash(key)
    }

    /// Starts an operation; `token` comes back with its completion. Then call
    /// [`Session::poll_packet`].
    #[inline]
    pub fn submit(
        &mut self,
        now: Now,
        operation: Operation<'_>,
        token: u64,
    ) -> Result<(), SubmitError> {
        if !self.is_open(now) {
            return Err(SubmitError::NoSession);
        }
        self.now_us = now.monotonic_us;
        let (key, value) = match operation {
            Operation::Read { key } | Operation::Delete { key, .. } => (key, &[][..]),
            Operation::Write { key, value, .. } => (key, value),
            Operation::Scan { .. } => (&[0][..], &[][..]),
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            return Err(SubmitError::TooLarge);
        }
        let large = is_large(value.len(), key.len());
        if (large && self.large_bytes + value.len() > self.config.large_bytes_max)
            || self.must_wait(operation)
        {
            return Err(SubmitError::Backpressure);
        }
        let hash = match operation {
            Operation::Scan { position, .. } => KeyHash::at_position(position),
            _ => self.hash_key.hash(key),
        };
        let chain = self.served.of(&hash);
        if !self.chains.get(chain).is_some_and(|chain| chain.is_open(now)) {
            return Err(SubmitError::NoSession);
        }
        let index = self.free.pop().ok_or(SubmitError::Busy)?;
        let mut header = self.request_header(operation, hash, chain, index);
        let is_write = matches!(header.op, Op::Write | Op::Delete);
        let is_held = is_write && self.chains[chain].quiet.is_some();
        let lane = &mut self.lanes[index as usize];
        assert!(matches!(lane.state, LaneState::Free | LaneState::Done(_)));
        lane.request = header.request;
        lane.token = token;
        lane.submitted_us = now.monotonic_us;
        lane.attempt = 0;
        lane.refused = None;
        lane.state = LaneState::Open;
        lane.is_held = is_held;
        lane.chain = chain;
        lane.hash = header.key_hash;
        lane.expiry_ms = header.expiry_ms;
        self.statistics.submitted += 1;
        if large {
            header.flags |= flags::LARGE;
            header.total_bytes = value.len() as u32;
            lane.packet.fill(&header, &[], key);
            lane.state = LaneState::Staging(Box::new(Staging::new(value, key.len())));
            self.large_bytes += value.len();
        } else {
            lane.packet.fill(&header, value, key);
        }
        if !is_held {
            self.begin_to_send(index);
        }
        self.arm(index, now);
        Ok(())
    }

    /// Sends an operation's first packet, or the first ones of a large value.
    #[inline]
    fn begin_to_send(&mut self, index: u32) {
        let lane = &self.lanes[index as usize];
        if matches!(lane.state, LaneState::Staging(_)) {
            self.transfer(index);
        } else {
            self.sends.push_back(Send::Request(index, lane.request));
        }
    }

    /// Whether an operation has to wait until less is preserved. Writes wait first, since what they
    /// leave is kept for certain; reads of dirty records are kept as well (rule 7), so that they
    /// wait at twice as much. Scans leave nothing.
    fn must_wait(&self, operation: Operation<'_>) -> bool {
        let limit = match operation {
            Operation::Write { .. } | Operation::Delete { .. } => self.config.preserve_bytes_max,
            Operation::Read { .. } => self.config.preserve_bytes_max.saturating_mul(2),
            Operation::Scan { .. } => return false,
        };
        self.preserved.bytes() > limit
    }

    #[inline]
    fn request_header(
        &self,
        operation: Operation<'_>,
        hash: KeyHash,
        chain: ChainId,
        index: u32,
    ) -> Header {
        let (op, condition, expiry_ms) = match operation {
            Operation::Read { .. } => (Op::Read, None, 0),
            Operation::Write { condition, expiry_ms, .. } => (Op::Write, condition, expiry_ms),
            Operation::Delete { condition, .. } => (Op::Delete, condition, 0),
            Operation::Scan { .. } => (Op::Scan, None, 0),
        };
        let mut header = Header::new(op);
        header.key_hash = hash;
        if let Operation::Scan { count_only: true, .. } = operation {
            header.fragment_count = 1;
        }
        header.routing = header.key_hash.routing();
        let chain = &self.chains[chain];
        (header.partition, header.view) = chain.destination.partition(&header.key_hash);
        header.epoch = chain.epoch;
        header.lane = self.lane_first + index;
        header.request = self.lanes[index as usize].request + 1;
        header.expiry_ms = expiry_ms;
        if let Some(expected) = condition {
            header.flags |= flags::CONDITIONAL;
            header.guard = expected.0;
        }
        header
    }

    /// Sets the lane's next retry.
    #[inline]
    fn arm(&mut self, index: u32, now: Now) {
        let lane = &mut self.lanes[index as usize];
        let delay_us = self.retry.delay_us(lane.attempt, &mut self.random);
        lane.retry_at_us = now.in_us(delay_us).min(lane.submitted_us + self.config.deadline_us);
        self.timers.set_earlier(SessionTimer::Retry, lane.retry_at_us);
    }

    /// Goes on with a large value: at once if the lane has its share of the fragments, or gets it
    /// now.
    fn transfer(&mut self, index: u32) {
        let lane = &mut self.lanes[index as usize];
        if lane.share == 0 {
            let share = lane.share_wanted().expect("a large value");
            if !self.fragments.take_or_wait(share, index) {
                return;
            }
            lane.share = share;
        }
        self.send_window(index);
    }

    /// Sends the next fragments, or asks for them.
    fn send_window(&mut self, index: u32) {
        let lane = &self.lanes[index as usize];
        match &lane.state {
            LaneState::Staging(_) => self.send_fragments(index, false),
            _ => self.sends.push_back(Send::Request(index, lane.request)),
        }
    }

    /// The lane's large value is there, or given up: others get its share.
    fn end_transfer(&mut self, now: Now, index: u32) {
        let share = std::mem::take(&mut self.lanes[index as usize].share);
        if share == 0 {
            return;
        }
        self.fragments.give_back(share);
        loop {
            // The lane that ends may still look as if it went on.
            let others = |lane: u32| self.lanes.get(lane as usize).filter(|_| lane != index);
            let awaited =
                |lane| others(lane).filter(|lane| lane.share == 0).and_then(Lane::share_wanted);
            let Some((next, share)) = self.fragments.next(awaited) else { return };
            self.lanes[next as usize].share = share;
            self.send_window(next);
            self.arm(next, now);
        }
    }

    fn send_fragments(&mut self, index: u32, again: bool) {
        let lane = &mut self.lanes[index as usize];
        let LaneState::Staging(staging) = &mut lane.state else { return };
        let (sends, request) = (&mut self.sends, lane.request);
        staging.next_to_send(again, |fragment| {
            sends.push_back(Send::Fragment(index, request, fragment))
        });
    }

    /// Fills `packet` with the next one to send to the returned address.
    #[inline]
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<Address> {
        while let Some(send) = self.sends.pop_front() {
            let (Send::Request(index, request) | Send::Fragment(index, request, _)) = send;
            let Some(lane) = self.lanes.get(index as usize) else { continue };
            let is_over = lane.request != request
                || matches!(lane.state, LaneState::Free | LaneState::Done(_));
            if is_over || lane.awaits_share() {
                continue;
            }
            match (send, &lane.state) {
                (Send::Request(..), LaneState::Staging(_)) => continue,
                (Send::Request(..), LaneState::Pulling(pulled, first, count)) => {
                    fill_pull(packet, &lane.packet, pulled.seq, *first, *count);
                }
                (Send::Request(..), _) => {
                    let fits = packet.copy_from(lane.packet.bytes());
                    fits.expect("a packet is as long as any other at most");
                }
                (Send::Fragment(_, _, fragment), LaneState::Staging(staging)) => {
                    fill_fragment(packet, &lane.packet, staging, fragment);
                }
                (Send::Fragment(..), _) => continue,
            }
            let (chain, hash) = (lane.chain, lane.hash);
            let is_read = matches!(lane.state, LaneState::Open) && lane.asked() == Op::Read;
            // What isn't answered is sent again to the leaf: its spine may be dead.
            let spine = self.less_loaded_spine(chain, &hash, is_read && lane.attempt == 0);
            return Some(spine.unwrap_or_else(|| self.chains[chain].destination.of(packet)));
        }
        None
    }

    /// The key's spine, if it may have a copy and isn't more loaded than the key's leaf; else the
    /// request is for the leaf.
    #[inline]
    fn less_loaded_spine(
        &mut self,
        chain: ChainId,
        hash: &KeyHash,
        is_read: bool,
    ) -> Option<Address> {
        if !self.has_spines {
            return None;
        }
        let packets = |load: &Load| load.packets(self.now_us);
        let is_less_loaded = |at: &ChainId| {
            packets(&self.chains[*at].spine_load) <= packets(&self.chains[chain].leaf_load)
        };
        let at = if is_read { self.spine_of(chain, hash).filter(is_less_loaded) } else { None };
        let Some(at) = at else {
            self.chains[chain].leaf_load.sent();
            return None;
        };
        let spine = &mut self.chains[at];
        spine.spine_load.sent();
        spine.spine.map(|(_, address)| address)
    }

    /// The chain whose spine may have a copy of a key that `chain` serves.
    fn spine_of(&self, chain: ChainId, hash: &KeyHash) -> Option<ChainId> {
        let round = round_of(self.chains[chain].epoch);
        let serves = |state: &ChainState| match state.spine {
            Some((epoch, _)) => epoch == state.epoch && round_of(epoch) == round,
            None => false,
        };
        spine_of(hash, self.chains.iter().filter(|(_, state)| serves(state)).map(|(at, _)| at))
    }

    /// An answer says how loaded the switch is that it comes from.
    fn take_load(&mut self, now: Now, lane: u32, header: &Header) {
        let Lane { chain, hash, .. } = self.lanes[lane as usize];
        let load = match header.hop {
            SPINE_HOP => self.spine_of(chain, &hash).map(|at| &mut self.chains[at].spine_load),
            LEAF_HOP => Some(&mut self.chains[chain].leaf_load),
            _ => None,
        };
        if let Some(load) = load {
            load.told(now, header.location);
        }
    }

    /// Takes a packet from the switch; the completion it brings, if it does, borrows the packet's
    /// value.
    #[inline]
    pub fn handle_packet<'a>(&'a mut self, now: Now, packet: &'a Packet) -> Option<Completion<'a>> {
        let Ok(parts) = packet.parse() else {
            self.statistics.ignored_packets += 1;
            return None;
        };
        let header = &parts.header;
        let index = header.lane.wrapping_sub(self.lane_first);
        let is_waiting = |lane: &&Lane| {
            lane.request == header.request
                && !matches!(lane.state, LaneState::Free | LaneState::Done(_))
        };
        let Some(chain) = self.lanes.get(index as usize).filter(is_waiting).map(|lane| lane.chain)
        else {
            self.statistics.ignored_packets += 1;
            return None;
        };
        // A client without a lease accepts no answer (rule 9); nor does one accept another epoch's
        // (rule 8).
        let fenced =
            self.config.mechanisms.epoch_fence() && header.epoch != self.chains[chain].epoch;
        let expired = self.config.mechanisms.lease() && !self.chains[chain].is_open(now);
        if fenced || expired {
            self.statistics.ignored_packets += 1;
            return None;
        }
        self.generation_is_durable(chain, header.durable_generation);
        if self.has_spines {
            self.now_us = now.monotonic_us;
            self.take_load(now, index, header);
        }
        let cached = header.has(flags::CACHED);
        if self.is_plain(index, header) {
            let ended = self.finish(now, index, cached);
            self.lanes[index as usize].state = LaneState::Free;
            let outcome = match header.op {
                Op::ReadReply => self.read_answer(index, header, parts.value),
                _ => self.written(index, header),
            };
            return Some(ended.with(outcome, cached));
        }
        let outcome = self.answer(now, index, header, parts.value)?;
        let ended = self.finish(now, index, cached);
        let previous = std::mem::take(&mut self.lanes[index as usize].state);
        if let (LaneState::Pulling(pulled, ..), Outcome::Value { seq, expiry_ms, .. }) =
            (previous, outcome)
            && pulled.is_complete()
        {
            let lane = &mut self.lanes[index as usize];
            lane.state = LaneState::Done(pulled);
            let LaneState::Done(pulled) = &lane.state else { unreachable!("just set") };
            let outcome = Outcome::Value { value: &pulled.value, seq, expiry_ms };
            return Some(ended.with(outcome, cached));
        }
        Some(ended.with(outcome, cached))
    }

    /// An operation ends. What state the lane has next, the caller says.
    #[inline]
    fn finish(&mut self, now: Now, index: u32, cached: bool) -> Ended {
        let lane = &self.lanes[index as usize];
        self.statistics.completed += 1;
        if cached {
            self.statistics.answered_by_cache += 1;
        } else {
            self.retry.sample(now.monotonic_us - lane.submitted_us);
        }
        let ended = Ended::of(lane);
        let chain = lane.chain;
        self.large_bytes -= large_bytes(&lane.state);
        self.free.push(index);
        if self.lanes[index as usize].share > 0 {
            self.end_transfer(now, index);
        }
        if self.chains[chain].quiet.is_some() {
            self.tell_if_quiet(chain, Some(index));
        }
        ended
    }
}

/// Bytes of a large value that a lane holds.
fn large_bytes(state: &LaneState) -> usize {
    match state {
        LaneState::Staging(staging) | LaneState::Committing(staging) => staging.value.len(),
        LaneState::Pulling(pulled, ..) => pulled.value.len(),
        LaneState::Free | LaneState::Open | LaneState::Done(_) => 0,
    }
}

fn fill_fragment(packet: &mut Packet, write: &Packet, staging: &Staging, index: u16) {
    let parts = write.parse().expect("the lane's own packet");
    let header = Header {
        op: Op::Fragment,
        flags: 0,
        guard: 0,
        fragment_index: index,
        fragment_count: staging.count(),
        ..parts.header
    };
    packet.fill(&header, staging.fragment(index), parts.key);
}

fn fill_pull(packet: &mut Packet, read: &Packet, seq: Seq, first: u16, count: u16) {
    let parts = read.parse().expect("the lane's own packet");
    let (op, guard) = (Op::ReadFragment, seq.0);
    let header = Header { op, guard, fragment_index: first, fragment_count: count, ..parts.header };
    packet.fill(&header, &[], parts.key);
}
