//! A client session: lanes with one outstanding request each (design, section 7), epochs and the lease (section 6).

use super::large::{Assembly, Staging};
use super::preserve::Preservation;
use super::rto::RetryTimer;
use super::types::{ClientConfig, Completion, Operation, Outcome, SessionStatistics, SubmitError};
use crate::control::{BATCH_MAX, ClientNotice, ClientReport, Destination, Grant};
use crate::time::Now;
use rand::SeedableRng;
use rand_pcg::Pcg32;
use std::collections::VecDeque;
use switchback_wire::{
    Address, HashKey, Header, KEY_BYTES_MAX, KeyHash, Op, Packet, Seq, Status, VALUE_BYTES_MAX, flags, is_large,
    partition_of, record_flags,
};

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Free,
    /// Waits for the answer to the lane's packet.
    Open,
    /// Stages a large value; the lane's packet is the write that will commit it.
    Staging(Box<Staging>),
    /// The staged write was sent.
    Committing(Box<Staging>),
    /// Pulls a large value, of which this run was asked for last.
    Pulling(Box<Assembly>, u16, u16),
    /// Its completion is being handed out; the value, if any, lives here until the lane is used again.
    Done(Box<Assembly>),
}

#[derive(Clone, Debug)]
struct Lane {
    request: u64,
    state: State,
    token: u64,
    packet: Packet,
    /// The cache refused its conditional write, which expected this; the lane's packet is now a read of what is there.
    refused: Option<Seq>,
    submitted_us: u64,
    retry_at_us: u64,
    attempt: u32,
}

#[derive(Clone, Copy, Debug)]
enum Send {
    /// The lane's packet, if this is still its request.
    Request(u32, u64),
    /// A fragment of what the lane stages.
    Fragment(u32, u64, u16),
}

/// A session with a rack. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Session {
    config: ClientConfig,
    boot: u64,
    random: Pcg32,
    epoch: u32,
    destination: Destination,
    hash_key: HashKey,
    partitions: u32,
    lane_first: u32,
    lanes: Vec<Lane>,
    free: Vec<u32>,
    lease_until_us: u64,
    next_hello_us: u64,
    lease_us: u64,
    durable_generation: u32,
    recovered_epoch: u32,
    preserved: Preservation,
    gather: Option<Gather>,
    retry: RetryTimer,
    next_retry_us: u64,
    large_bytes: usize,
    sends: VecDeque<Send>,
    messages: VecDeque<ClientReport>,
    finished: VecDeque<Completion<'static>>,
    statistics: SessionStatistics,
}

/// An answer to a gather that the controller hasn't wholly confirmed.
#[derive(Debug)]
struct Gather {
    epoch: u32,
    chunks: Vec<(bool, ClientReport)>,
    retry_at_us: u64,
}

impl Session {
    /// A session that isn't open yet. `boot` must differ at every start of the client; `seed` feeds jitter only.
    pub fn new(config: ClientConfig, boot: u64, seed: u64, now: Now) -> Session {
        assert!(config.lanes > 0 && config.deadline_us > 0);
        Session {
            retry: RetryTimer::new(config.retry_us.0, config.retry_us.1),
            config,
            boot,
            random: Pcg32::seed_from_u64(seed),
            epoch: 0,
            destination: Destination::Switch(Address::default()),
            hash_key: HashKey([0; 16]),
            partitions: 1,
            lane_first: 0,
            lanes: Vec::new(),
            free: Vec::new(),
            lease_until_us: 0,
            next_hello_us: now.monotonic_us,
            lease_us: 0,
            durable_generation: 0,
            recovered_epoch: 0,
            preserved: Preservation::default(),
            gather: None,
            next_retry_us: u64::MAX,
            large_bytes: 0,
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

    /// The preserved records.
    pub fn preserved(&self) -> &Preservation {
        &self.preserved
    }

    /// Snapshots before this generation are durable.
    pub fn durable_generation(&self) -> u32 {
        self.durable_generation
    }

    /// The epoch; 0 before the session is open.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether operations can be submitted and answers accepted.
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

    /// Starts an operation; `token` comes back with its completion. Then call [`Session::poll_transmit`].
    #[inline]
    pub fn submit(&mut self, now: Now, operation: Operation<'_>, token: u64) -> Result<(), SubmitError> {
        if !self.is_open(now) {
            return Err(SubmitError::NoSession);
        }
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
            || (!matches!(operation, Operation::Read { .. } | Operation::Scan { .. }) && self.is_preservation_full())
        {
            return Err(SubmitError::Backpressure);
        }
        let index = self.free.pop().ok_or(SubmitError::Busy)?;
        let header = self.request_header(operation, key, index);
        let lane = &mut self.lanes[index as usize];
        assert!(matches!(lane.state, State::Free | State::Done(_)));
        lane.request += 1;
        lane.token = token;
        lane.submitted_us = now.monotonic_us;
        lane.attempt = 0;
        lane.refused = None;
        lane.state = State::Open;
        let header = Header { request: lane.request, ..header };
        self.statistics.submitted += 1;
        if large {
            let total_bytes = value.len() as u32;
            lane.packet.fill(Header { flags: header.flags | flags::LARGE, total_bytes, ..header }, &[], key);
            lane.state = State::Staging(Box::new(Staging::new(value, key.len())));
            self.large_bytes += value.len();
            self.send_fragments(index, false);
        } else {
            lane.packet.fill(header, value, key);
            let request = lane.request;
            self.sends.push_back(Send::Request(index, request));
        }
        self.arm(index, now);
        Ok(())
    }

    fn is_preservation_full(&self) -> bool {
        self.preserved.bytes() > self.config.preserve_bytes_max
    }

    #[inline]
    fn request_header(&self, operation: Operation<'_>, key: &[u8], index: u32) -> Header {
        let (op, condition, expiry_ms) = match operation {
            Operation::Read { .. } => (Op::Read, None, 0),
            Operation::Write { condition, expiry_ms, .. } => (Op::Write, condition, expiry_ms),
            Operation::Delete { condition, .. } => (Op::Delete, condition, 0),
            Operation::Scan { .. } => (Op::Scan, None, 0),
        };
        let mut header = Header::new(op);
        header.key_hash = match operation {
            Operation::Scan { position, .. } => KeyHash::at_position(position),
            _ => self.hash_key.hash(key),
        };
        if let Operation::Scan { count_only: true, .. } = operation {
            header.fragment_count = 1;
        }
        header.partition = partition_of(&header.key_hash, self.partitions);
        header.epoch = self.epoch;
        header.lane = self.lane_first + index;
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
        self.next_retry_us = self.next_retry_us.min(lane.retry_at_us);
    }

    fn send_fragments(&mut self, index: u32, again: bool) {
        let lane = &mut self.lanes[index as usize];
        let State::Staging(staging) = &mut lane.state else { return };
        let (sends, request) = (&mut self.sends, lane.request);
        staging.next_to_send(again, |fragment| sends.push_back(Send::Fragment(index, request, fragment)));
    }

    /// Fills `packet` with the next one to send to the returned address.
    #[inline]
    pub fn poll_transmit(&mut self, packet: &mut Packet) -> Option<Address> {
        while let Some(send) = self.sends.pop_front() {
            let (Send::Request(index, request) | Send::Fragment(index, request, _)) = send;
            let Some(lane) = self.lanes.get(index as usize) else { continue };
            if lane.request != request || matches!(lane.state, State::Free | State::Done(_)) {
                continue;
            }
            match (send, &lane.state) {
                (Send::Request(..), State::Staging(_)) => continue,
                (Send::Request(..), State::Pulling(assembly, first, count)) => {
                    fill_pull(packet, &lane.packet, assembly.seq, *first, *count);
                }
                (Send::Request(..), _) => {
                    let fits = packet.copy_from(lane.packet.bytes());
                    fits.expect("a packet is as long as any other at most");
                }
                (Send::Fragment(_, _, fragment), State::Staging(staging)) => {
                    fill_fragment(packet, &lane.packet, staging, fragment);
                }
                (Send::Fragment(..), _) => continue,
            }
            return Some(self.destination.of(packet));
        }
        None
    }

    /// Takes a packet from the switch; the completion it brings, if it does, borrows the packet's value.
    #[inline]
    pub fn receive<'a>(&'a mut self, now: Now, packet: &'a Packet) -> Option<Completion<'a>> {
        let Ok(parts) = packet.parse() else {
            self.statistics.ignored_packets += 1;
            return None;
        };
        let header = parts.header;
        let index = header.lane.wrapping_sub(self.lane_first);
        let known = self
            .lanes
            .get(index as usize)
            .is_some_and(|lane| lane.request == header.request && !matches!(lane.state, State::Free | State::Done(_)));
        // A client without a lease accepts no answer (rule 9); nor does one accept another epoch's (rule 8).
        let fenced = self.config.mechanisms.epoch_fence && header.epoch != self.epoch;
        let expired = self.config.mechanisms.lease && !self.is_open(now);
        if fenced || !known || expired {
            self.statistics.ignored_packets += 1;
            return None;
        }
        if header.durable_generation > self.durable_generation {
            self.durable_generation = header.durable_generation;
            self.preserved.release_older_generations(header.durable_generation);
        }
        let outcome = self.answer(now, index, header, parts.value)?;
        let lane = &mut self.lanes[index as usize];
        self.statistics.completed += 1;
        let cached = header.has(flags::CACHED);
        if cached {
            self.statistics.answered_by_cache += 1;
        } else {
            self.retry.sample(now.monotonic_us - lane.submitted_us);
        }
        let previous = std::mem::take(&mut lane.state);
        let (token, submitted_us) = (lane.token, lane.submitted_us);
        self.large_bytes -= large_bytes(&previous);
        self.free.push(index);
        if let (State::Pulling(assembly, ..), Outcome::Value { seq, expiry_ms, .. }) = (previous, outcome)
            && assembly.is_complete()
        {
            let lane = &mut self.lanes[index as usize];
            lane.state = State::Done(assembly);
            let State::Done(assembly) = &lane.state else { unreachable!("just set") };
            let outcome = Outcome::Value { value: &assembly.value, seq, expiry_ms };
            return Some(Completion { token, outcome, cached, submitted_us });
        }
        Some(Completion { token, outcome, cached, submitted_us })
    }

    /// What an answer says; `None` if the operation goes on.
    #[inline]
    fn answer<'a>(&mut self, now: Now, index: u32, header: Header, value: &'a [u8]) -> Option<Outcome<'a>> {
        let lane = &self.lanes[index as usize];
        let asked = Op::from_u8(lane.packet.bytes()[4]).expect("the lane's own packet");
        match (header.op, asked) {
            (Op::ReadReply, Op::Read) if lane.refused.is_some() => Some(self.refused_answer(index, header, value)),
            (Op::ReadReply, Op::Read) if header.has(flags::LARGE) => self.begin_pull(now, index, header, value),
            (Op::ReadReply, Op::Read) if matches!(lane.state, State::Open) => Some(self.read_answer(header, value)),
            (Op::ReadFragmentReply, Op::Read) => self.pulled(now, index, header, value),
            (Op::FragmentReply, Op::Write) => {
                self.staged(now, index, header, value);
                None
            }
            (Op::WriteReply, Op::Write | Op::Delete) => self.write_answer(now, index, header),
            (Op::ScanReply, Op::Scan) => {
                Some(Outcome::Scanned { entries: value, next: header.guard, live: header.total_bytes })
            }
            _ => {
                self.statistics.ignored_packets += 1;
                None
            }
        }
    }

    #[inline]
    fn read_answer<'a>(&mut self, header: Header, value: &'a [u8]) -> Outcome<'a> {
        let dirty = header.record_flags & record_flags::DIRTY != 0;
        // Deleted or expired: the same to whoever saw it, and it must stay so.
        let tombstone = header.status != Status::Ok;
        // What was seen must not vanish, even if its writer never heard that it was written (rule 7).
        let preserves = self.config.mechanisms.preservation && self.config.mechanisms.reader_preservation;
        if header.has(flags::CACHED) && dirty && preserves && header.generation >= self.durable_generation {
            let lane = &self.lanes[(header.lane - self.lane_first) as usize];
            let parts = lane.packet.parse().expect("the lane's own packet");
            let (seq, expiry_ms) = (header.seq, header.expiry_ms);
            self.preserved.keep(header.key_hash, parts.key, value, seq, tombstone, expiry_ms, header.generation);
        }
        match header.status {
            Status::Ok => Outcome::Value { value, seq: header.seq, expiry_ms: header.expiry_ms },
            _ => Outcome::NotFound { seq: header.seq },
        }
    }

    #[inline]
    fn write_answer(&mut self, now: Now, index: u32, header: Header) -> Option<Outcome<'static>> {
        let lane = &mut self.lanes[index as usize];
        match header.status {
            Status::Ok => {
                let parts = lane.packet.parse().expect("the lane's own packet");
                let preserves = self.config.mechanisms.preservation;
                if header.has(flags::CACHED) && preserves && header.generation >= self.durable_generation {
                    let deleted = parts.header.op == Op::Delete;
                    let expiry_ms = parts.header.expiry_ms;
                    let (hash, seq) = (parts.header.key_hash, header.seq);
                    self.preserved.keep(hash, parts.key, parts.value, seq, deleted, expiry_ms, header.generation);
                }
                Some(Outcome::Written { seq: header.seq })
            }
            // The switch has put the record's seq there, in an answer that it repeats as well; `guard` is the request's in those.
            Status::ConditionFailed if header.has(flags::CACHED) && self.config.mechanisms.kept_refusals => {
                self.read_refusing(now, index);
                None
            }
            Status::ConditionFailed => Some(Outcome::ConditionFailed { seq: header.seq }),
            Status::NoSpace => Some(Outcome::NoSpace),
            Status::FragmentsMissing => {
                if let State::Committing(staging) = &mut lane.state {
                    staging.restart();
                    let State::Committing(staging) = std::mem::take(&mut lane.state) else {
                        unreachable!("just matched")
                    };
                    lane.state = State::Staging(staging);
                    self.send_fragments(index, false);
                    self.arm(index, now);
                }
                None
            }
            _ => {
                self.statistics.ignored_packets += 1;
                None
            }
        }
    }

    /// The cache refused a conditional write: whoever hears of it has seen that another version is there. So that version must not
    /// vanish with the switch, even if its writer never heard that it was written (rule 7); it is read, and thereby preserved, first.
    fn read_refusing(&mut self, now: Now, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let parts = lane.packet.parse().expect("the lane's own packet");
        let (asked, key) = (parts.header, parts.key.to_vec());
        lane.refused = Some(Seq(asked.guard));
        let read = Header { op: Op::Read, flags: 0, guard: 0, expiry_ms: 0, total_bytes: 0, ..asked };
        lane.packet.fill(read, &[], &key);
        lane.attempt = 0;
        let request = lane.request;
        self.sends.push_back(Send::Request(index, request));
        self.arm(index, now);
    }

    /// What was read after a refusal.
    fn refused_answer(&mut self, index: u32, header: Header, value: &[u8]) -> Outcome<'static> {
        let expected = self.lanes[index as usize].refused;
        let seq = match self.read_answer(header, value) {
            Outcome::Value { seq, .. } | Outcome::NotFound { seq } => seq,
            _ => header.seq,
        };
        // In a later epoch it may be what was expected after all, since nobody knew of the other. Nothing was done, at any rate.
        if Some(seq) == expected { Outcome::TimedOut } else { Outcome::ConditionFailed { seq } }
    }

    /// A FRAGMENT_REPLY: send more fragments, or commit.
    fn staged(&mut self, now: Now, index: u32, header: Header, bitmap: &[u8]) {
        let lane = &mut self.lanes[index as usize];
        let State::Staging(staging) = &mut lane.state else { return };
        let window_done = staging.arrived(header.fragment_index, bitmap);
        if staging.is_complete() {
            let State::Staging(staging) = std::mem::take(&mut lane.state) else { unreachable!("matched above") };
            lane.state = State::Committing(staging);
            lane.attempt = 0;
            let request = lane.request;
            self.sends.push_back(Send::Request(index, request));
            self.arm(index, now);
        } else if window_done {
            lane.attempt = 0;
            self.send_fragments(index, false);
            self.arm(index, now);
        }
    }

    /// The first answer to a read of a large value.
    fn begin_pull<'a>(&mut self, now: Now, index: u32, header: Header, first: &'a [u8]) -> Option<Outcome<'a>> {
        let lane = &mut self.lanes[index as usize];
        if !matches!(lane.state, State::Open) {
            return None;
        }
        let key_bytes = lane.packet.parse().expect("the lane's own packet").key.len();
        let total = header.total_bytes as usize;
        let assembly = Assembly::begin(first, total, key_bytes, header.seq, header.expiry_ms)?;
        if assembly.is_complete() {
            return Some(Outcome::Value { value: first, seq: header.seq, expiry_ms: header.expiry_ms });
        }
        self.large_bytes += assembly.value.len();
        self.pull(now, index, Box::new(assembly));
        None
    }

    fn pull(&mut self, now: Now, index: u32, assembly: Box<Assembly>) {
        let (first, count) = assembly.wanted();
        let lane = &mut self.lanes[index as usize];
        lane.state = State::Pulling(assembly, first, count);
        lane.attempt = 0;
        let request = lane.request;
        self.sends.push_back(Send::Request(index, request));
        self.arm(index, now);
    }

    /// A READ_FRAGMENT_REPLY.
    fn pulled(&mut self, now: Now, index: u32, header: Header, bytes: &[u8]) -> Option<Outcome<'static>> {
        let lane = &mut self.lanes[index as usize];
        let State::Pulling(assembly, first, count) = &mut lane.state else { return None };
        if header.status != Status::Ok || header.seq != assembly.seq {
            // The value changed under the read: start over, which is a read of the newer value.
            self.large_bytes -= large_bytes(&lane.state);
            lane.state = State::Open;
            let request = lane.request;
            self.sends.push_back(Send::Request(index, request));
            self.arm(index, now);
            return None;
        }
        if !assembly.put(header.fragment_index, bytes) {
            self.statistics.ignored_packets += 1;
            return None;
        }
        if assembly.is_complete() {
            let (seq, expiry_ms) = (assembly.seq, assembly.expiry_ms);
            return Some(Outcome::Value { value: &[], seq, expiry_ms }); // receive() puts the value in
        }
        if assembly.window_done(*first, *count) {
            let State::Pulling(assembly, ..) = std::mem::take(&mut lane.state) else { unreachable!("matched above") };
            self.pull(now, index, assembly);
        }
        None
    }

    /// Takes the next outcome that no packet brought.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion<'static>> {
        self.finished.pop_front()
    }

    /// When to call [`Session::handle_timeout`] next, of the monotonic clock.
    pub fn poll_timeout(&self) -> u64 {
        let gather_us = self.gather.as_ref().map_or(u64::MAX, |gather| gather.retry_at_us);
        self.next_hello_us.min(self.next_retry_us).min(gather_us)
    }

    /// Sends again what was not answered, gives up what is too old, renews the lease.
    pub fn handle_timeout(&mut self, now: Now) {
        if now.monotonic_us >= self.next_hello_us {
            self.say_hello(now);
        }
        if now.monotonic_us >= self.next_retry_us {
            self.retry_lanes(now);
        }
        if let Some(gather) = &mut self.gather
            && now.monotonic_us >= gather.retry_at_us
        {
            gather.retry_at_us = now.in_us(self.config.hello_us);
            let open = gather.chunks.iter().filter(|(done, _)| !done);
            self.messages.extend(open.map(|(_, chunk)| chunk.clone()));
        }
    }

    fn say_hello(&mut self, now: Now) {
        let pressure = self.preserved.bytes() > self.config.preserve_bytes_max / 2;
        self.messages.push_back(ClientReport::Hello {
            boot: self.boot,
            sent_us: now.monotonic_us,
            lanes: self.config.lanes,
            epoch: self.epoch,
            pressure,
            spooled: self.config.spooled,
        });
        // Three tries within a lease; while there is none, or memory is short, as often as is decent.
        let pause_us = if self.is_open(now) && !pressure { self.lease_us / 4 } else { self.config.hello_us };
        self.next_hello_us = now.in_us(pause_us.max(self.config.hello_us));
    }

    fn retry_lanes(&mut self, now: Now) {
        self.next_retry_us = u64::MAX;
        for index in 0..self.lanes.len() as u32 {
            let lane = &mut self.lanes[index as usize];
            if matches!(lane.state, State::Free | State::Done(_)) {
                continue;
            }
            if now.monotonic_us < lane.retry_at_us {
                self.next_retry_us = self.next_retry_us.min(lane.retry_at_us);
                continue;
            }
            if now.monotonic_us >= lane.submitted_us + self.config.deadline_us {
                self.give_up(index);
                continue;
            }
            lane.attempt += 1;
            self.statistics.retries += 1;
            let request = lane.request;
            if matches!(lane.state, State::Staging(_)) {
                self.send_fragments(index, true);
            } else {
                self.sends.push_back(Send::Request(index, request));
            }
            self.arm(index, now);
        }
    }

    /// Ends an operation without an answer.
    fn give_up(&mut self, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let outcome = match Op::from_u8(lane.packet.bytes()[4]) {
            Some(Op::Read | Op::Scan) => Outcome::TimedOut,
            // What was only staged cannot happen any more: the request number is not used again.
            _ if matches!(lane.state, State::Staging(_)) && lane.attempt == 0 => Outcome::TimedOut,
            _ => Outcome::Indeterminate,
        };
        match outcome {
            Outcome::Indeterminate => self.statistics.indeterminate += 1,
            _ => self.statistics.timed_out += 1,
        }
        self.large_bytes -= large_bytes(&lane.state);
        lane.state = State::Free;
        self.free.push(index);
        let (token, submitted_us) = (lane.token, lane.submitted_us);
        self.finished.push_back(Completion { token, outcome, cached: false, submitted_us });
    }

    /// Takes the next message for the controller.
    pub fn poll_message(&mut self) -> Option<ClientReport> {
        self.messages.pop_front()
    }

    /// Takes a message of the controller.
    pub fn handle_message(&mut self, now: Now, notice: ClientNotice) {
        match notice {
            ClientNotice::Granted(grant) => self.granted(now, grant),
            ClientNotice::Gather { epoch, destination } => self.gather(now, epoch, destination),
            ClientNotice::Gathered { epoch, chunk } => {
                let Some(gather) = &mut self.gather else { return };
                if gather.epoch != epoch {
                    return;
                }
                if let Some((done, _)) = gather.chunks.get_mut(chunk as usize) {
                    *done = true;
                }
                if gather.chunks.iter().all(|(done, _)| *done) {
                    self.gather = None;
                }
            }
        }
    }

    fn granted(&mut self, now: Now, grant: Grant) {
        // An answer to an earlier life of this client (it may have waited for the controller's disk), a clock that ran ahead of us, an
        // older epoch: nothing to gain from it.
        let is_mine = grant.boot == self.boot || !self.config.mechanisms.client_life;
        if !is_mine || grant.epoch < self.epoch || grant.hello_us > now.monotonic_us {
            return;
        }
        if grant.epoch > self.epoch && self.epoch != 0 {
            self.gather(now, grant.epoch, grant.destination.clone());
        }
        let fresh = self.epoch == 0 || grant.lane_first != self.lane_first || grant.lanes as usize != self.lanes.len();
        if fresh {
            self.open(&grant);
        }
        self.destination = grant.destination;
        self.lease_us = grant.lease_us;
        self.lease_until_us = self.lease_until_us.max(grant.hello_us.saturating_add(grant.lease_us));
        if grant.durable_generation > self.durable_generation {
            self.durable_generation = grant.durable_generation;
            self.preserved.release_older_generations(grant.durable_generation);
        }
        if grant.recovered_epoch > self.recovered_epoch {
            self.recovered_epoch = grant.recovered_epoch;
            self.preserved.release_older_epochs(grant.recovered_epoch);
        }
    }

    /// Takes over the lanes of a new grant.
    fn open(&mut self, grant: &Grant) {
        for index in 0..self.lanes.len() as u32 {
            if !matches!(self.lanes[index as usize].state, State::Free | State::Done(_)) {
                self.give_up(index);
            }
        }
        self.epoch = grant.epoch;
        self.hash_key = grant.hash_key;
        self.partitions = grant.partitions;
        self.lane_first = grant.lane_first;
        let lane = Lane {
            request: grant.request_base,
            state: State::Free,
            token: 0,
            packet: Packet::new(),
            refused: None,
            submitted_us: 0,
            retry_at_us: 0,
            attempt: 0,
        };
        self.lanes = vec![lane; grant.lanes as usize];
        self.free = (0..grant.lanes).rev().collect();
    }

    /// Moves to a new epoch and answers the gather, in one step (rule 9).
    fn gather(&mut self, now: Now, epoch: u32, destination: Destination) {
        let answering = self.gather.as_ref().is_some_and(|gather| gather.epoch == epoch);
        if epoch < self.epoch || answering {
            return;
        }
        // The same epoch again: a controller that restarted during the recovery asks anew.
        if epoch > self.epoch {
            self.change_epoch(now, epoch, destination);
        }
        let records: Vec<_> = self.preserved.keyed().collect();
        let mut chunks: Vec<_> = records.chunks(BATCH_MAX).map(<[_]>::to_vec).collect();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let count = chunks.len();
        let chunks = chunks.into_iter().enumerate().map(|(chunk, records)| {
            let last = chunk + 1 == count;
            (false, ClientReport::Preserved { epoch, chunk: chunk as u32, last, records })
        });
        let chunks: Vec<_> = chunks.collect();
        self.messages.extend(chunks.iter().map(|(_, chunk)| chunk.clone()));
        self.gather = Some(Gather { epoch, chunks, retry_at_us: now.in_us(self.config.hello_us) });
        if !self.config.mechanisms.release_after_recovery {
            self.preserved.release_older_epochs(epoch);
        }
    }

    fn change_epoch(&mut self, now: Now, epoch: u32, destination: Destination) {
        self.epoch = epoch;
        self.destination = destination;
        self.statistics.epoch_changes += 1;
        self.sends.clear();
        for index in 0..self.lanes.len() as u32 {
            let lane = &mut self.lanes[index as usize];
            match lane.state {
                State::Free | State::Done(_) => continue,
                State::Pulling(..) => {
                    self.large_bytes -= large_bytes(&lane.state);
                    lane.state = State::Open;
                }
                State::Open | State::Staging(_) | State::Committing(_) => {}
            }
            let parts = lane.packet.parse().expect("the lane's own packet");
            if matches!(parts.header.op, Op::Read | Op::Scan) || !self.config.mechanisms.end_with_epoch {
                let header = Header { epoch, ..parts.header };
                lane.packet.rewrite(&header);
                let request = lane.request;
                self.sends.push_back(Send::Request(index, request));
                self.arm(index, now);
            } else {
                self.give_up(index);
            }
        }
    }

    /// Ends the session: nothing is preserved any more, or it is given up. To be sent before the client goes.
    pub fn close(&mut self) {
        self.messages.push_back(ClientReport::Close { boot: self.boot });
        self.lease_until_us = 0;
    }
}

/// Bytes of a large value that a lane holds.
fn large_bytes(state: &State) -> usize {
    match state {
        State::Staging(staging) | State::Committing(staging) => staging.value.len(),
        State::Pulling(assembly, ..) => assembly.value.len(),
        State::Free | State::Open | State::Done(_) => 0,
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
    packet.fill(header, staging.fragment(index), parts.key);
}

fn fill_pull(packet: &mut Packet, read: &Packet, seq: Seq, first: u16, count: u16) {
    let parts = read.parse().expect("the lane's own packet");
    let (op, guard) = (Op::ReadFragment, seq.0);
    let header = Header { op, guard, fragment_index: first, fragment_count: count, ..parts.header };
    packet.fill(header, &[], parts.key);
}
