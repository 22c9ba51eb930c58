//! The replica: has the engine store what the [decider](super::decider) decided, and answers with
//! what is stored.
//!
//! It owns the engine's operations under way, values that are staged or pulled in fragments, and
//! packets on their way out.

mod fragments;
mod operations;
mod recent;
mod scan;
mod updates;

use super::NodeLimits;
use crate::control::NodeConfig;
use crate::storage::{EngineOp, OpId, Record};
use crate::time::Now;
use fragments::{PulledValues, StagedValues};
use operations::Operations;
use std::collections::VecDeque;
use switchback_wire::{
    Address, Header, KeyHash, Op, Packet, PacketRef, Seq, Status, TTL, flags, fragment_bytes,
    is_large, record_flags,
};
use updates::CacheUpdates;

pub(super) use operations::{PassOn, Pending, Request, Resend, Write};

/// Buffers that wait for the next packets.
const BUFFERS_KEPT: usize = 64;

/// What a node stores and answers.
#[derive(Debug)]
pub(super) struct Replica {
    operations: Operations,
    staged: StagedValues,
    pulled: PulledValues,
    updates: CacheUpdates,
    packets: VecDeque<(Address, Box<Packet>)>,
    /// Buffers of packets that were sent, for the next ones.
    #[allow(clippy::vec_box)] // They are moved, and they are long.
    buffers: Vec<Box<Packet>>,
}

impl Replica {
    /// With nothing under way. The values of the keys in `refresh` are to be sent to the cache.
    pub(super) fn new(limits: &NodeLimits, refresh: VecDeque<KeyHash>) -> Replica {
        Replica {
            operations: Operations::new(),
            staged: StagedValues::new(limits.staged_bytes_max),
            pulled: PulledValues::new(limits.pulled_bytes_max),
            updates: CacheUpdates::new(refresh),
            packets: VecDeque::new(),
            buffers: Vec::new(),
        }
    }

    /// Engine operations under way.
    pub(super) fn operations(&self) -> usize {
        self.operations.len()
    }

    /// How many writes of a key the engine has.
    pub(super) fn puts_of(&self, hash: &KeyHash) -> usize {
        self.operations.puts_of(hash)
    }

    /// Submits an engine operation that `pending` waits for.
    pub(super) fn submit(&mut self, pending: Pending, op: impl FnOnce(OpId) -> EngineOp) -> OpId {
        self.operations.submit(pending, op)
    }

    /// The id that the operation after the next one will get, for a step that comes before it.
    pub(super) fn after_next(&self) -> OpId {
        self.operations.after_next()
    }

    /// What an operation was for, which has ended, or whose answer is to be ignored.
    pub(super) fn take(&mut self, id: OpId) -> Option<Pending> {
        self.operations.take(id)
    }

    /// Appends all operations that the engine is yet to get.
    pub(super) fn poll_ops(&mut self, ops: &mut Vec<EngineOp>) {
        self.operations.poll(ops);
    }

    /// Whether there are any.
    pub(super) fn has_ops(&self) -> bool {
        self.operations.has_some()
    }

    /// Whether one of them changes what is stored, so that there is a commit.
    pub(super) fn has_changes(&self) -> bool {
        self.operations.has_changes()
    }

    /// Fills `packet` with the next one to send.
    pub(super) fn poll_packet(&mut self, packet: &mut Packet) -> Option<Address> {
        let (to, next) = self.packets.pop_front()?;
        packet.copy_from(next.bytes()).expect("a packet is as long as any other at most");
        if self.buffers.len() < BUFFERS_KEPT {
            self.buffers.push(next);
        }
        Some(to)
    }

    /// Sends a packet.
    pub(super) fn send(&mut self, to: Address, header: Header, value: &[u8], key: &[u8]) {
        let mut packet = self.buffers.pop().unwrap_or_default();
        packet.fill(&Header { ttl: TTL, ..header }, value, key);
        self.packets.push_back((to, packet));
    }

    /// Answers a read with what is stored; how long its value is.
    pub(super) fn answer_read(
        &mut self,
        now: Now,
        request: &Request,
        record: Option<Record>,
    ) -> usize {
        let Request { header, key, switch } = request;
        let seq = record.as_ref().map_or(Seq::NONE, |record| record.seq);
        let kept = flags::FENCED & header.flags;
        let mut answer = Header {
            op: Op::ReadReply,
            flags: kept,
            seq,
            expiry_ms: 0,
            record_flags: 0,
            ..*header
        };
        let Some(record) = record.filter(|record| record.is_live(now.unix_ms)) else {
            answer.status = Status::NotFound;
            answer.record_flags = record_flags::TOMBSTONE;
            self.send(*switch, answer, &[], key);
            return 0;
        };
        let value_bytes = record.value.len();
        answer.expiry_ms = record.expiry_ms;
        answer.total_bytes = value_bytes as u32;
        let mut part = &record.value[..];
        if is_large(value_bytes, key.len()) {
            answer.flags |= flags::LARGE;
            part = &part[..fragment_bytes(key.len()).min(value_bytes)];
        }
        self.send(*switch, answer, part, key);
        if answer.has(flags::LARGE) {
            self.pulled.keep(header.key_hash, seq, record.value);
        }
        value_bytes
    }

    /// Sends a record's value to the cache until it is acknowledged (NetCache); false if it isn't
    /// to be sent.
    pub(super) fn update_cache(
        &mut self,
        epoch: u32,
        config: &NodeConfig,
        hash: KeyHash,
        key: &[u8],
        record: &Record,
    ) -> bool {
        let Some(switch) = config.switch else { return false };
        if is_large(record.value.len(), key.len()) || self.updates.has_newer(&hash, record.seq) {
            return false;
        }
        let mut header = Header::new(Op::CacheUpdate);
        header.epoch = epoch;
        header.key_hash = hash;
        header.routing = hash.routing();
        header.seq = record.seq;
        header.expiry_ms = record.expiry_ms;
        header.record_flags = if record.tombstone { record_flags::TOMBSTONE } else { 0 };
        header.partition = config.partition_of(&hash);
        let packet = Packet::build(header, &record.value, key);
        self.packets.push_back((switch, Box::new(packet.clone())));
        self.updates.insert(hash, record.seq, packet, switch);
        true
    }

    /// The switch acknowledges a cache update.
    pub(super) fn cache_updated(&mut self, parts: PacketRef<'_>) {
        self.updates.acknowledged(&parts.header.key_hash, parts.header.seq);
    }

    /// Sends all cache updates again that aren't acknowledged.
    pub(super) fn repeat_updates(&mut self) {
        self.packets.extend(
            self.updates.packets().map(|(switch, packet)| (switch, Box::new(packet.clone()))),
        );
    }

    /// A key isn't cached any more.
    pub(super) fn forget_update(&mut self, hash: &KeyHash) {
        self.updates.remove(hash);
    }

    /// The values of these keys are to be sent to the cache: this node does that from now on.
    pub(super) fn refresh(&mut self, keys: impl Iterator<Item = KeyHash>) {
        self.updates.refresh(keys);
    }

    /// Nothing that `is_of` a chain is cached any more.
    pub(super) fn forget_updates(&mut self, is_of: impl Fn(&KeyHash) -> bool) {
        self.updates.forget(is_of);
    }

    /// The next key whose value is to be read and sent to the cache.
    pub(super) fn next_refresh(&mut self) -> Option<KeyHash> {
        self.updates.next_refresh()
    }
}

/// The answer to a write; `seq` names it, and `told` is the version that a failed condition tells.
pub(super) fn write_reply(write: &Header, status: Status, seq: Seq, told: Seq) -> Header {
    let guard = if status == Status::ConditionFailed { told.0 } else { write.guard };
    let flags = flags_kept(write);
    Header { op: Op::WriteReply, flags, status, guard, total_bytes: 0, seq, ..*write }
}

/// A write that goes back to where its lane is arbitrated.
pub(super) fn bounce(write: &Header) -> Header {
    Header { op: Op::Bounce, flags: flags_kept(write), ..*write }
}

/// The flags of an answer to a write, or of a write that goes back.
fn flags_kept(write: &Header) -> u16 {
    let deleted = if write.op == Op::Delete { flags::DELETE } else { 0 };
    write.flags & (flags::CONDITIONAL | flags::LARGE) | deleted
}
