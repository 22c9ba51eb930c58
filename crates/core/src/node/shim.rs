//! The shim's state, and the way of packets and engine answers through it.

use super::bypass::Arbiter;
use super::floors::RisingFloors;
use super::fragments::{PulledValues, StagedValues};
use super::marks::Marks;
use crate::control::{CommandId, NodeConfig, NodeReport};
use crate::floors::{SEQ_BUCKETS, seq_bucket};
use crate::mechanisms::Mechanisms;
use crate::storage::{EngineDone, EngineError, EngineOp, EngineReply, LaneCompletion, Loaded, OpId};
use crate::time::Now;
use crate::timers::{TimerKind, Timers};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::{Address, Header, KeyHash, Op, Packet, PacketRef, Seq};

/// Buffers that wait for the next packets.
const BUFFERS_KEPT: usize = 64;

/// How long an error of the engine is told of.
const FAILURE_TOLD_US: u64 = 10_000_000;

/// Limits and times of a node.
#[derive(Clone, Debug)]
pub struct NodeLimits {
    /// How often it says hello.
    pub heartbeat_us: u64,
    /// How often unanswered offers and cache updates are repeated.
    pub retry_us: u64,
    /// Keys that are offered at most. Half as many others may have a fence: beyond a quarter floors rise early to
    /// replace fences, beyond the half what needs one more is dropped, and no key is offered.
    pub marks_max: usize,
    /// Bytes of staged fragments; beyond this the oldest staging is dropped.
    pub staged_bytes_max: usize,
    /// Bytes of large values that were read and may be pulled again; beyond this the oldest is dropped.
    pub pulled_bytes_max: usize,
    /// Engine operations under way; beyond this packets are dropped.
    pub operations_max: usize,
    /// Fences and tombstones live for one or two of these. Safety doesn't depend on it (the simulator raises floors after milliseconds), but a
    /// write whose copies are still on their way when a floor passes it may end as indeterminate. So it is several times what
    /// a client waits for an answer (5 s by default), and far longer than a packet lives in a rack. Longer periods keep
    /// more marks: one for each key that was fenced meanwhile.
    pub floor_period_us: u64,
}

impl Default for NodeLimits {
    fn default() -> NodeLimits {
        NodeLimits {
            heartbeat_us: 20_000,
            retry_us: 50_000,
            marks_max: 1 << 20,
            staged_bytes_max: 64 << 20,
            pulled_bytes_max: 16 << 20,
            operations_max: 1 << 16,
            floor_period_us: 30_000_000,
        }
    }
}

/// Counters of a node.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct NodeStatistics {
    pub reads: u64,
    pub writes: u64,
    pub scans: u64,
    pub fragments: u64,
    pub applied: u64,
    pub superseded: u64,
    pub bounced: u64,
    pub condition_failed: u64,
    pub fenced_reads: u64,
    pub embedded_stored: u64,
    pub offers: u64,
    pub offers_refused: u64,
    pub cache_updates: u64,
    pub dropped_malformed: u64,
    pub dropped_epoch: u64,
    pub dropped_stranger: u64,
    pub dropped_held: u64,
    pub dropped_below_floor: u64,
    pub dropped_no_fence: u64,
    pub dropped_overload: u64,
    pub dropped_no_space: u64,
    pub engine_errors: u64,
    pub floors_raised: u64,
}

/// What survives a restart beside records and marks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct DurableState {
    pub(super) epoch: u32,
    pub(super) held: bool,
    pub(super) config: Option<NodeConfig>,
}

/// What an engine operation was for.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    /// Answer this read with what the engine has.
    Read(Request),
    /// Answer this write. `update` is its value for the cache (NetCache); `again` is its value in case it has to be bounced, which it
    /// can't if it was known to be newer than anything stored.
    Write { request: Request, update: Option<Vec<u8>>, again: Option<Vec<u8>>, offer: bool },
    /// Not newer than the fence: only the stored seq tells whether to answer or to bounce.
    Fenced { request: Request, value: Vec<u8>, staged: bool },
    /// Answer this write that its condition failed, once the fence is durable.
    Refusal { request: Request, told: Seq, fence: Seq },
    /// Answer a pull of fragments.
    Pull(Request),
    /// Answer a scan.
    Scan(Request, u64),
    /// A step that must succeed before operation `before` may be answered.
    Step { before: OpId },
    /// The same for a fence.
    Fence { hash: KeyHash, fence: Seq, before: OpId },
    /// An offer to send once its mark is durable.
    Offer { hash: KeyHash, offer: u64, value_bytes: u32 },
    /// Floors of buckets, or of everything.
    Floors(Vec<(u16, Seq)>),
    /// One of several operations of a command.
    Command(CommandId),
    /// The state with a new epoch, or of a release.
    State(CommandId),
    /// A key that the controller wants to be offered.
    Named { hash: KeyHash, key: Vec<u8> },
    /// The current value of an offered key, for the cache (NetCache).
    Refresh { hash: KeyHash, key: Vec<u8> },
    /// Nobody waits for it.
    Nothing,
}

/// A request packet, as its answer needs it.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) header: Header,
    pub(super) key: Vec<u8>,
    pub(super) switch: Address,
}

/// A command whose operations are not all done.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    pub(super) remaining: usize,
    pub(super) error: Option<String>,
}

/// When a shim does something by itself.
#[derive(Clone, Copy, Debug)]
pub(super) enum NodeTimer {
    /// Says hello.
    Hello,
    /// Repeats unanswered offers and cache updates, and raises floors.
    Retry,
}

impl TimerKind for NodeTimer {
    fn index(self) -> usize {
        self as usize
    }
}

/// The shim of one node. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Shim {
    pub(super) index: u16,
    pub(super) boot: u64,
    pub(super) address: Address,
    pub(super) limits: NodeLimits,
    pub(super) mechanisms: Mechanisms,
    pub(super) state: DurableState,
    /// Which partitions are its own, by the state's routes.
    pub(super) mine: Vec<bool>,
    /// False from the arrival of a new epoch until it is durable: nothing is served meanwhile.
    pub(super) serving: bool,
    /// It restarted within a bypass epoch: what it gave out and answered in that is forgotten.
    pub(super) needs_epoch: bool,
    /// In a bypass epoch.
    pub(super) arbiter: Option<Arbiter>,
    pub(super) rising: RisingFloors,
    pub(super) marks: Marks,
    pub(super) completions: BTreeMap<u32, LaneCompletion>,
    /// Conditional writes in the engine: a duplicate must not be decided again meanwhile.
    pub(super) deciding: BTreeSet<(u32, u64)>,
    /// When the engine last refused something, and why.
    pub(super) failed: Option<(u64, String)>,
    /// Highest seq that was handed to the engine, by bucket; a higher one needs no read to be known as newer.
    pub(super) newest: Vec<Seq>,
    pub(super) staged: StagedValues,
    pub(super) pulled: PulledValues,
    pub(super) updates: BTreeMap<KeyHash, CacheUpdate>,
    pub(super) refresh: VecDeque<KeyHash>,
    pub(super) commands: BTreeMap<CommandId, Progress>,
    pub(super) statistics: NodeStatistics,
    next_op: OpId,
    pending: BTreeMap<OpId, Pending>,
    ops: Vec<EngineOp>,
    packets: VecDeque<(Address, Box<Packet>)>,
    /// Buffers of packets that were sent, for the next ones.
    #[allow(clippy::vec_box)] // They are moved, and they are long.
    buffers: Vec<Box<Packet>>,
    pub(super) reports: VecDeque<NodeReport>,
    pub(super) timers: Timers<NodeTimer, 2>,
}

/// A value on its way into the cache (NetCache), until the switch acknowledges it.
#[derive(Clone, Debug)]
pub(super) struct CacheUpdate {
    pub(super) seq: Seq,
    pub(super) packet: Packet,
    pub(super) switch: Address,
}

impl Shim {
    /// The shim of node `index`, over what its engine found. `boot` must differ at every start.
    ///
    /// A state that can't be decoded is an error of the engine's, which the environment has to report.
    pub fn new(
        index: u16,
        boot: u64,
        address: Address,
        limits: NodeLimits,
        mechanisms: Mechanisms,
        loaded: Loaded,
        now: Now,
    ) -> Result<Shim, EngineError> {
        assert!(boot != 0);
        let empty = loaded.state.is_none();
        let mut state = match &loaded.state {
            None => DurableState { epoch: 0, held: false, config: None },
            Some(bytes) => postcard::from_bytes(bytes)
                .map_err(|error| EngineError::Corrupt(format!("the node's own state: {error}")))?,
        };
        // After a restart nothing is known of what is stored, unless nothing is.
        let known = if empty { Seq::NONE } else { Seq(u64::MAX) };
        let refresh = match &state.config {
            Some(config) if config.write_through => loaded.marks.iter().map(|(hash, ..)| *hash).collect(),
            _ => VecDeque::new(),
        };
        state.held &= mechanisms.durable_hold;
        let mut marks = if mechanisms.durable_offer { loaded.marks } else { Vec::new() };
        if !mechanisms.durable_fence {
            marks.iter_mut().for_each(|(_, _, mark)| mark.fence = Seq::NONE);
        }
        let in_bypass = state.config.as_ref().is_some_and(|config| config.switch.is_none());
        let outlived = in_bypass && mechanisms.bypass_once;
        let marks = Marks::new(marks, limits.marks_max, boot, mechanisms);
        let mut rising = RisingFloors::new(loaded.floors, now);
        for (hash, fence) in marks.fences() {
            rising.note(hash, fence);
        }
        let mut timers = Timers::new();
        timers.set(NodeTimer::Hello, now.monotonic_us);
        timers.set(NodeTimer::Retry, now.monotonic_us);
        Ok(Shim {
            index,
            boot,
            address,
            mechanisms,
            serving: state.config.is_some() && !outlived,
            needs_epoch: outlived,
            arbiter: state.config.as_ref().and_then(|config| Arbiter::of(state.epoch, config)),
            mine: state.config.as_ref().map_or(Vec::new(), |config| config.partitions_of(index)),
            state,
            rising,
            marks,
            completions: loaded.completions.into_iter().map(|done| (done.lane, done)).collect(),
            deciding: BTreeSet::new(),
            failed: None,
            newest: vec![known; SEQ_BUCKETS],
            staged: StagedValues::new(limits.staged_bytes_max),
            pulled: PulledValues::new(limits.pulled_bytes_max),
            updates: BTreeMap::new(),
            refresh,
            commands: BTreeMap::new(),
            statistics: NodeStatistics::default(),
            next_op: 1,
            pending: BTreeMap::new(),
            ops: Vec::new(),
            packets: VecDeque::new(),
            buffers: Vec::new(),
            reports: VecDeque::new(),
            timers,
            limits,
        })
    }

    /// Its index in the rack.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// Its epoch; 0 before the controller told it one.
    pub fn epoch(&self) -> u32 {
        self.state.epoch
    }

    /// Whether it waits for its release.
    pub fn is_held(&self) -> bool {
        self.state.held
    }

    /// How many keys are marked as offered.
    pub fn offered(&self) -> usize {
        self.marks.offered()
    }

    /// Engine operations under way.
    pub fn operations(&self) -> usize {
        self.pending.len()
    }

    /// Counters.
    pub fn statistics(&self) -> NodeStatistics {
        self.statistics
    }

    /// Takes a packet that came from `from`.
    pub fn handle_packet(&mut self, now: Now, from: Address, packet: &Packet) {
        let Ok(parts) = packet.parse() else {
            self.statistics.dropped_malformed += 1;
            return;
        };
        if !self.is_welcome(from, &parts) {
            return;
        }
        if self.pending.len() >= self.limits.operations_max {
            self.statistics.dropped_overload += 1;
            return;
        }
        let parts = match self.arbiter {
            Some(_) => self.take_from_client(from, parts),
            None => Some(parts),
        };
        let Some(parts) = parts else { return };
        match parts.header.op {
            Op::Read => self.read(now, from, parts),
            Op::Write | Op::Delete => self.write(now, from, parts),
            Op::Fragment => self.stage(from, parts),
            Op::ReadFragment => self.pull(from, parts),
            Op::Scan => self.scan(from, parts),
            Op::CacheUpdateAck => self.cache_updated(parts),
            _ => self.statistics.dropped_malformed += 1,
        }
    }

    /// The checks before anything else; counts what they refuse.
    fn is_welcome(&mut self, from: Address, parts: &PacketRef<'_>) -> bool {
        let header = &parts.header;
        let Some(config) = &self.state.config else {
            self.statistics.dropped_epoch += 1;
            return false;
        };
        if !self.serving || (self.mechanisms.epoch_fence && header.epoch != self.state.epoch) {
            self.statistics.dropped_epoch += 1;
            return false;
        }
        let mine = self.mine.get(usize::from(header.partition)).is_some_and(|mine| *mine);
        let hashed = header.op == Op::Scan || config.hash_key.hash(parts.key) == header.key_hash;
        let stranger = config.switch.is_some_and(|switch| switch != from);
        if !mine || !hashed || (self.mechanisms.epoch_fence && stranger) {
            self.statistics.dropped_stranger += 1;
            return false;
        }
        if self.state.held && self.mechanisms.hold && self.marks.is_offered(&header.key_hash) {
            self.statistics.dropped_held += 1;
            return false;
        }
        true
    }

    /// Submits an engine operation that `pending` waits for.
    pub(super) fn submit(&mut self, pending: Pending, op: impl FnOnce(OpId) -> EngineOp) -> OpId {
        let id = self.next_op;
        self.next_op += 1;
        self.pending.insert(id, pending);
        self.ops.push(op(id));
        id
    }

    /// The id that the next-but-`ahead` operation will get, for steps that come before it.
    pub(super) fn upcoming(&self, ahead: u64) -> OpId {
        self.next_op + ahead
    }

    /// Forgets an operation: its answer is ignored.
    fn forget(&mut self, id: OpId) {
        match self.pending.remove(&id) {
            Some(Pending::Write { request, .. }) => {
                self.deciding.remove(&(request.header.lane, request.header.request));
            }
            Some(Pending::Fenced { request, .. }) => self.nothing_came(&request.header),
            _ => {}
        }
    }

    /// Takes an answer of the engine.
    pub fn handle_done(&mut self, now: Now, done: EngineDone) {
        let Some(pending) = self.pending.remove(&done.id) else { return };
        if let Err(error) = &done.result {
            self.statistics.engine_errors += 1;
            self.failed = Some((now.monotonic_us, error.to_string()));
            if matches!(error, EngineError::NoSpace(_)) {
                self.statistics.dropped_no_space += 1;
            }
        }
        if let Pending::Write { request, .. } | Pending::Fenced { request, .. } | Pending::Refusal { request, .. } =
            &pending
            && done.result.is_err()
        {
            self.nothing_came(&request.header);
        }
        match (pending, done.result) {
            (Pending::Read(request), Ok(EngineReply::Got(record))) => self.answer_read(now, request, record),
            (Pending::Write { request, update, again, offer }, result) => {
                self.answer_write(request, update, again, offer, result);
            }
            (Pending::Fenced { request, value, staged }, Ok(EngineReply::Got(record))) => {
                self.answer_fenced(now, request, value, staged, record);
            }
            (Pending::Pull(request), Ok(EngineReply::Got(record))) => self.answer_pull(request, record),
            (Pending::Scan(request, end), Ok(EngineReply::Scanned(keys, next))) => {
                self.answer_scan(now, request, end, keys, next);
            }
            (Pending::Step { before } | Pending::Fence { before, .. }, Err(_)) => self.forget(before),
            (Pending::Refusal { request, told, fence }, Ok(_)) => self.refusal_saved(&request, told, fence),
            (Pending::Fence { hash, fence, .. }, Ok(_)) => self.marks.fence_saved(&hash, fence),
            (Pending::Offer { hash, offer, value_bytes }, result) => {
                self.offer_marked(hash, offer, value_bytes, result)
            }
            (Pending::Floors(floors), result) => self.floors_saved(floors, result.as_ref().err()),
            (Pending::Command(id), result) => self.command_step(id, result.err()),
            (Pending::State(id), result) => self.state_set(now, id, result.err()),
            (Pending::Named { hash, key }, Ok(EngineReply::Got(record))) => {
                self.offer(&hash, &key, record.map_or(0, |record| record.value.len()));
            }
            (Pending::Refresh { hash, key }, Ok(EngineReply::Got(record))) => {
                self.update_cache(hash, &key, record.unwrap_or_default());
            }
            // A read that failed is not answered: damaged bytes are never served, and the client tells its user.
            _ => {}
        }
    }

    /// What the engine last refused, if that was lately.
    pub fn failure(&self, now: Now) -> Option<&str> {
        let (at_us, why) = self.failed.as_ref()?;
        (now.monotonic_us < at_us + FAILURE_TOLD_US).then_some(why)
    }

    /// Appends all operations that are to be carried out, in order: an engine commits many at once.
    pub fn poll_ops(&mut self, ops: &mut Vec<EngineOp>) {
        ops.append(&mut self.ops);
    }

    /// Whether there are operations for the engine.
    pub fn has_ops(&self) -> bool {
        !self.ops.is_empty()
    }

    /// Fills `packet` with the next one to send.
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<Address> {
        let (to, next) = self.packets.pop_front()?;
        packet.copy_from(next.bytes()).expect("a packet is as long as any other at most");
        if self.buffers.len() < BUFFERS_KEPT {
            self.buffers.push(next);
        }
        Some(to)
    }

    /// Takes the next message for the controller.
    pub fn poll_message(&mut self) -> Option<NodeReport> {
        self.reports.pop_front()
    }

    /// Sends a packet.
    pub(super) fn send(&mut self, to: Address, header: Header, value: &[u8], key: &[u8]) {
        let mut packet = self.buffers.pop().unwrap_or_default();
        packet.fill(header, value, key);
        self.packets.push_back((to, packet));
    }

    /// Sends a packet that is kept, too.
    pub(super) fn send_packet(&mut self, to: Address, packet: Packet) {
        self.packets.push_back((to, Box::new(packet)));
    }

    /// When to call [`Shim::handle_timeout`] next, of the monotonic clock.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.next_us()
    }
}

/// The index of a key's bucket.
pub(super) fn bucket_of(hash: &KeyHash) -> usize {
    usize::from(seq_bucket(hash))
}
