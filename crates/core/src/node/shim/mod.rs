//! The shim's state, and the way of packets and engine answers through it.

mod commands;
mod copying;
mod deferred;
mod joins;
mod replicas;
mod requests;
mod served;
mod state;

use super::copies::Copies;
use super::decider::Decider;
use super::link::Links;
use super::replica::{Pending, Replica};
use crate::control::{CommandId, NodeConfig, NodeReport, Offer};
use crate::mechanisms::Mechanisms;
use crate::storage::{EngineDone, EngineError, EngineOp, EngineReply, Lanes, Loaded, Record};
use crate::time::Now;
use crate::timers::{TimerKind, Timers};
use crate::topology::{ByChain, ChainId};
use deferred::Deferred;
use joins::Joining;
use served::Served;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::{Address, Header, KeyHash, Op, Packet, PacketRef, Seq, flags};

/// How long an error of the engine is told of.
const FAILURE_TOLD_US: u64 = 10_000_000;

/// Limits and times of a node.
#[derive(Clone, Debug)]
pub struct NodeLimits {
    /// How often it says hello.
    pub heartbeat_us: u64,
    /// How often unanswered offers and cache updates are repeated.
    pub retry_us: u64,
    /// How long marks of offers wait at most for a commit that they can be part of.
    pub defer_us: u64,
    /// Keys that are offered at most. Half as many others may have a fence: beyond a quarter floors
    /// rise early to replace fences, beyond the half what needs one more is dropped, and no key is
    /// offered.
    pub marks_max: usize,
    /// Bytes of staged fragments; beyond this the oldest staging is dropped.
    pub staged_bytes_max: usize,
    /// Bytes of large values that were read and may be pulled again; beyond this the oldest is
    /// dropped.
    pub pulled_bytes_max: usize,
    /// Engine operations under way; beyond this packets are dropped.
    pub operations_max: usize,
    /// Fences and tombstones live for one or two of these. Safety doesn't depend on it (the
    /// simulator raises floors after milliseconds), but a write whose copies are still on their way
    /// when a floor passes it may end as indeterminate. So it is several times what a client waits
    /// for an answer (5 s by default), and far longer than a packet lives in a rack. Longer periods
    /// keep more marks: one for each key that was fenced meanwhile.
    pub floor_period_us: u64,
}

impl Default for NodeLimits {
    fn default() -> NodeLimits {
        NodeLimits {
            heartbeat_us: 20_000,
            retry_us: 50_000,
            defer_us: 5_000,
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
    pub dropped_view: u64,
    pub dropped_held: u64,
    pub dropped_unready: u64,
    pub dropped_below_floor: u64,
    pub dropped_no_fence: u64,
    pub dropped_overload: u64,
    pub dropped_no_space: u64,
    pub engine_errors: u64,
    pub floors_raised: u64,
    pub frames: u64,
    pub frames_resent: u64,
    pub parts_copied: u64,
}

/// A command whose operations are not all done.
#[derive(Clone, Debug, Default)]
struct Progress {
    remaining: usize,
    error: Option<String>,
}

/// When a shim does something by itself.
#[derive(Clone, Copy, Debug)]
enum NodeTimer {
    /// Says hello.
    Hello,
    /// Repeats unanswered offers and cache updates, and raises floors.
    Retry,
    /// Does what was deferred.
    Deferred,
}

impl TimerKind for NodeTimer {
    fn index(self) -> usize {
        self as usize
    }
}

/// The shim of one node. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Shim {
    index: u16,
    boot: u64,
    address: Address,
    limits: NodeLimits,
    mechanisms: Mechanisms,
    /// How it serves the partitions of each chain that it was told of.
    chains: ByChain<Served>,
    /// Decides requests.
    decider: Decider,
    /// Stores and answers.
    replica: Replica,
    /// What answers beside it (DistCache).
    copies: Copies,
    /// To and from the other replicas of its partitions.
    links: Links,
    /// Keys that are unconfirmed no longer, and still noted so.
    confirmed: Vec<(KeyHash, Vec<u8>)>,
    /// What a join needs that needn't survive a restart, by partition.
    joining: BTreeMap<u16, Joining>,
    /// Partitions of which this node is no replica any more, and of which it still has something:
    /// what only it may have completed on their keys, and whether the engine drops it all already.
    left: BTreeMap<u16, (Lanes, bool)>,
    /// Partitions of which a part is being read for a copy.
    copying: BTreeSet<u16>,
    /// Partitions whose tombstones are kept for a joiner, of which this node is the source.
    kept: BTreeSet<u16>,
    /// How often the node's own state was made durable, or was to be.
    states: u64,
    /// Chains that are released once all that was unconfirmed is at the tails.
    releasing: BTreeMap<ChainId, (CommandId, Seq)>,
    /// When the engine last refused something, and why.
    failed: Option<(u64, String)>,
    commands: BTreeMap<(ChainId, CommandId), Progress>,
    /// What waits for the next commit.
    deferred: Deferred,
    statistics: NodeStatistics,
    reports: VecDeque<NodeReport>,
    timers: Timers<NodeTimer, 3>,
}

impl Shim {
    /// The shim of node `index`, over what its engine found. `boot` must differ at every start.
    ///
    /// A state that can't be decoded is an error of the engine's, which the environment has to
    /// report.
    pub fn new(
        index: u16,
        boot: u64,
        address: Address,
        limits: NodeLimits,
        mechanisms: Mechanisms,
        mut loaded: Loaded,
        now: Now,
    ) -> Result<Shim, EngineError> {
        assert!(boot != 0);
        let states = match &loaded.state {
            None => ByChain::default(),
            Some(bytes) => state::decode(bytes)?,
        };
        let chains =
            states.map(|chain, state| Served::restarted(state.clone(), index, chain, mechanisms));
        let refreshes = |hash: &KeyHash| {
            chains.get(loaded.floors.chain_of(hash)).is_some_and(Served::refreshes)
        };
        let marked = loaded.marks.iter().map(|(hash, ..)| *hash);
        let refresh = marked.filter(refreshes).collect();
        let served = chains.map(|_, served| Some((served.epoch(), served.config()?)));
        let unconfirmed = std::mem::take(&mut loaded.unconfirmed);
        let kept = loaded.floors.kept().to_vec();
        let decider = Decider::new(loaded, served, limits.marks_max, boot, mechanisms, now);
        let mut timers = Timers::new();
        timers.set(NodeTimer::Hello, now.monotonic_us);
        timers.set(NodeTimer::Retry, now.monotonic_us);
        let mut shim = Shim {
            index,
            boot,
            address,
            mechanisms,
            chains,
            decider,
            replica: Replica::new(&limits, refresh),
            copies: Copies::new(mechanisms),
            links: Links::new(boot),
            confirmed: Vec::new(),
            joining: BTreeMap::new(),
            left: BTreeMap::new(),
            copying: BTreeSet::new(),
            kept: BTreeSet::new(),
            states: 0,
            releasing: BTreeMap::new(),
            failed: None,
            commands: BTreeMap::new(),
            deferred: Deferred::default(),
            statistics: NodeStatistics::default(),
            reports: VecDeque::new(),
            timers,
            limits,
        };
        for chain in shim.chains.iter().map(|(chain, _)| chain).collect::<Vec<_>>() {
            shim.arrange(chain);
        }
        shim.restore_unconfirmed(unconfirmed);
        shim.restore_joins(kept);
        Ok(shim)
    }

    /// Its index in the rack.
    pub fn index(&self) -> u16 {
        self.index
    }

    /// The highest epoch in which it serves a chain; 0 before the controller told it one.
    pub fn epoch(&self) -> u32 {
        self.chains.iter().map(|(_, served)| served.epoch()).max().unwrap_or(0)
    }

    /// How many keys are marked as offered.
    pub fn offered(&self) -> usize {
        self.decider.offered()
    }

    /// Engine operations under way.
    pub fn operations(&self) -> usize {
        self.replica.operations()
    }

    /// Counters.
    pub fn statistics(&self) -> NodeStatistics {
        self.statistics
    }

    /// Takes a packet that came from `from`.
    pub fn handle_packet(&mut self, _now: Now, from: Address, packet: &Packet) {
        let Ok(parts) = packet.parse() else {
            self.statistics.dropped_malformed += 1;
            return;
        };
        if !self.is_welcome(from, &parts) {
            return;
        }
        if self.replica.operations() >= self.limits.operations_max {
            self.statistics.dropped_overload += 1;
            return;
        }
        let parts = match self.decider.arbitrates(&parts.header.key_hash) {
            true => self.take_from_client(from, parts),
            false => Some(parts),
        };
        let Some(parts) = parts else { return };
        match parts.header.op {
            Op::Read => self.read(from, parts),
            Op::Write | Op::Delete => self.write(from, parts),
            Op::Fragment => {
                self.statistics.fragments += 1;
                let is_taken = self.replica.stage(from, parts);
                self.statistics.dropped_malformed += u64::from(!is_taken);
            }
            Op::ReadFragment => {
                self.statistics.fragments += 1;
                self.replica.pull(from, parts);
            }
            Op::Scan => self.scan(from, parts),
            Op::CacheUpdateAck | Op::InvalidateAck if self.copies.is_at(from, &parts.header) => {
                self.copy_answered(from, &parts.header);
            }
            Op::CacheUpdateAck => self.replica.cache_updated(parts),
            _ => self.statistics.dropped_malformed += 1,
        }
    }

    /// The checks before anything else; counts what they refuse.
    fn is_welcome(&mut self, from: Address, parts: &PacketRef<'_>) -> bool {
        let header = &parts.header;
        let told = self.told(&header.key_hash);
        let Some((served, config)) = told.filter(|(served, _)| served.is_serving()) else {
            self.statistics.dropped_epoch += 1;
            return false;
        };
        if self.mechanisms.epoch_fence() && header.epoch != served.epoch() {
            self.statistics.dropped_epoch += 1;
            return false;
        }
        let mine = served.is_mine(header.partition);
        let hashed = header.op == Op::Scan || config.hash_key.hash(parts.key) == header.key_hash;
        // Partitions are ranges of hashes: the routing key, by which one is found, is the hash.
        let hashed = hashed && header.routing == header.key_hash.routing();
        let stranger =
            config.switch.is_some_and(|switch| switch != from) && !self.copies.is_at(from, header);
        let is_in_view = mine && config.map.numbered(header.partition).view == header.view;
        if !mine || !hashed || (self.mechanisms.epoch_fence() && stranger) {
            self.statistics.dropped_stranger += 1;
            return false;
        }
        if !is_in_view {
            self.statistics.dropped_view += 1;
            return false;
        }
        let is_held = served.holds_all() || self.decider.is_offered(&header.key_hash);
        if served.is_held() && self.mechanisms.hold() && is_held {
            self.statistics.dropped_held += 1;
            return false;
        }
        if !self.is_asked_rightly(header) {
            self.statistics.dropped_unready += 1;
            return false;
        }
        true
    }

    /// Where a partition has several replicas: plain reads are for the tail, and what changes
    /// something for the head, which passes it on; be it a read.
    fn is_asked_rightly(&self, header: &Header) -> bool {
        if self.links.is_empty() {
            return true;
        }
        let outbound = self.links.outbound(header.partition);
        match header.op {
            Op::Read if header.has(flags::FENCED) || header.has(flags::EMBEDDED) => {}
            Op::Read | Op::ReadFragment | Op::Scan | Op::CacheUpdateAck => {
                let is_tail = outbound.is_none_or(|it| it.joins());
                return is_tail && !self.is_opening(header.partition);
            }
            _ => {}
        }
        let is_head = self.links.inbound(header.partition).is_none();
        let goes_on = outbound.is_none_or(|it| it.joins() || it.is_flowing());
        is_head && goes_on && self.links.has_room()
    }

    /// How the node serves the chain of a key; `None` while it wasn't told of it.
    fn served(&self, hash: &KeyHash) -> Option<&Served> {
        self.chains.get(self.decider.chain_of(hash))
    }

    /// The same, and what the controller told.
    fn told(&self, hash: &KeyHash) -> Option<(&Served, &NodeConfig)> {
        let served = self.served(hash)?;
        Some((served, served.config()?))
    }

    /// Takes an answer of the engine.
    pub fn handle_done(&mut self, now: Now, done: EngineDone) {
        let Some(pending) = self.replica.take(done.id) else { return };
        if let Err(error) = &done.result {
            self.statistics.engine_errors += 1;
            self.failed = Some((now.monotonic_us, error.to_string()));
            if matches!(error, EngineError::NoSpace(_)) {
                self.statistics.dropped_no_space += 1;
            }
        }
        match &done.result {
            Ok(EngineReply::Put(Ok(_)) | EngineReply::Set) => self.decider.committed(false),
            Ok(_) => {}
            Err(_) => self.decider.committed(true),
        }
        if done.result.is_err() {
            match &pending {
                Pending::Put { request, .. } | Pending::Refusal { request, .. } => {
                    self.decider.nothing_came(&request.header);
                }
                Pending::LookUp(write) => self.decider.nothing_came(&write.request.header),
                _ => {}
            }
        }
        match (pending, done.result) {
            // Its replicas have changed meanwhile.
            (Pending::Read(request) | Pending::Pull(request) | Pending::Scan(request, _), _)
                if !self.is_in_view(&request.header) => {}
            (Pending::Read(request), Ok(EngineReply::Got(record))) => {
                self.answer_read(now, &request, record)
            }
            (Pending::Put { request, update, again, effect }, result) => {
                let effect = self.effect_of(effect, &result);
                self.put_done(now, request, update, again, effect, result)
            }
            (Pending::PassOn(pass_on), result) => self.stored_to_pass_on(*pass_on, result),
            (Pending::Merge { partition, round, number, hash, merged }, result) => {
                let frame = (partition, round, number);
                self.effect_stored(frame, &hash, &merged, result.is_ok());
            }
            (Pending::Resend(resend), result) => self.read_for_resend(*resend, result),
            (Pending::Emptied { partition, join, range, lanes }, result) => {
                self.emptied(partition, join, range, lanes, result.is_ok());
            }
            (Pending::Kept { partition: it }, done) => self.tombstones_kept(it, done.is_ok()),
            (Pending::JoinsSaved(joins), result) => self.joins_saved(joins, result.is_ok()),
            (Pending::GivenUp { partition, join, states }, result) => {
                self.given_up(partition, join, states, result.is_ok());
            }
            (Pending::Copied { partition, join, from, round, range }, result) => {
                self.send_copy(partition, (join, from, round), range, result);
            }
            (Pending::CopyMerged { partition, join, hash, merged }, result) => {
                self.copy_merged(partition, join, &hash, &merged, result.is_ok());
            }
            (Pending::LookUp(write), Ok(EngineReply::Got(record))) => {
                self.looked_up(write, record.as_ref())
            }
            (Pending::Pull(request), Ok(EngineReply::Got(record))) => {
                self.replica.answer_pull(request, record)
            }
            (Pending::Scan(request, end), Ok(EngineReply::Scanned(keys, next))) => {
                // The listing ends where the engine stopped: no offered key beyond it.
                let last = next.map_or(end, |next| next - 1);
                let offered =
                    self.decider.offered_between(request.header.key_hash.position(), last);
                self.replica.answer_scan(now, request, last, keys, offered);
            }
            (Pending::Step { before } | Pending::Fence { before, .. }, Err(_)) => {
                self.forget(before)
            }
            (Pending::Refusal { request, told, fence }, Ok(_)) => {
                self.refusal_saved(&request, told, fence)
            }
            (Pending::Fence { hash, fence, .. }, Ok(_)) => self.decider.fence_saved(&hash, fence),
            (Pending::Offer { hash, offer, value_bytes }, result) => {
                self.offer_marked(hash, offer, value_bytes, result.is_ok());
            }
            (Pending::Base(chain), result) => self.decider.base_saved(chain, result.is_ok()),
            (Pending::Floors(floors), result) => self.decider.floors_saved(floors, result.is_ok()),
            (Pending::Command(chain, id), result) => self.command_step(chain, id, result.err()),
            (Pending::State(chain, id, number), result) => {
                self.state_set(chain, id, number, result.err());
            }
            (Pending::Named { hash, key }, Ok(EngineReply::Got(record))) => {
                let value_bytes = record.map_or(0, |record| record.value.len());
                self.offer(now, &hash, &key, value_bytes, Offer::NAMED);
            }
            (Pending::Refresh { hash, key }, Ok(EngineReply::Got(record)))
                if !self.is_passed_on(&hash) =>
            {
                self.update_cache(hash, &key, &record.unwrap_or_default());
            }
            (Pending::Refill(refill), result) => {
                self.copies.was_read(&refill.hash);
                if let Ok(EngineReply::Got(record)) = result {
                    let absent = Record { tombstone: true, ..Record::default() };
                    self.fill_copies(&refill, &record.unwrap_or(absent));
                }
                self.tell_copies();
            }
            // A read that failed is not answered: damaged bytes are never served, and the client
            // tells its user.
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
        if self.replica.has_changes() {
            self.take_deferred();
            self.forget_confirmed();
        }
        self.replica.poll_ops(ops);
    }

    /// Whether there are operations for the engine.
    pub fn has_ops(&self) -> bool {
        self.replica.has_ops()
    }

    /// Fills `packet` with the next one to send.
    pub fn poll_packet(&mut self, packet: &mut Packet) -> Option<Address> {
        self.replica.poll_packet(packet)
    }

    /// Takes the next message for the controller.
    pub fn poll_message(&mut self) -> Option<NodeReport> {
        self.reports.pop_front()
    }

    /// When to call [`Shim::handle_timeout`] next, of the monotonic clock.
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.next_us()
    }
}
