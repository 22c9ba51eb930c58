//! Writes and deletes: protocol, section 5, in its order. And what NetCache adds: updates of the cache.

use super::fragments::StagedName;
use super::marks::RaisedFence;
use super::shim::{CacheUpdate, Pending, Request, Shim, bucket_of};
use crate::storage::{EngineError, EngineOp, EngineReply, LaneCompletion, PutCondition, Record};
use crate::time::Now;
use std::ops::Bound;
use switchback_wire::{Address, Header, KeyHash, Op, Packet, PacketRef, Seq, Status, flags, is_large, record_flags};

impl Shim {
    pub(super) fn write(&mut self, _now: Now, from: Address, parts: PacketRef<'_>) {
        self.statistics.writes += 1;
        let header = parts.header;
        let request = Request { header, key: parts.key.to_vec(), switch: from };
        let lane = (header.lane, header.request);
        if header.has(flags::CONDITIONAL) && self.mechanisms.node_completion {
            if self.was_applied(&header) {
                self.send_write_reply(&request, Status::Ok, header.seq);
                return;
            }
            if self.deciding.contains(&lane) {
                return; // a duplicate of what the engine is deciding: that answer is the answer
            }
            if self.is_past(lane) {
                return; // its completion would replace a newer one, of which copies may still come
            }
        }
        let large = header.has(flags::LARGE) && header.op == Op::Write;
        let staged = if large { self.staged.whole(&StagedName::of(&header)) } else { None };
        let fenced = header.seq <= self.marks.fence(&header.key_hash) && self.mechanisms.fence;
        let below_floor = header.seq <= self.rising.floors.of(&header.key_hash) && self.mechanisms.floor;
        if fenced || below_floor || (large && staged.is_none()) {
            // Only the stored seq tells: an old duplicate is answered, anything else goes back, or is staged anew.
            let hash = header.key_hash;
            let key = request.key.clone();
            let value = staged.clone().unwrap_or_else(|| parts.value.to_vec());
            let pending = Pending::Fenced { request, value, staged: staged.is_some() };
            self.submit(pending, |id| EngineOp::Get { id, hash, key });
            return;
        }
        let value = staged.unwrap_or_else(|| parts.value.to_vec());
        self.apply(request, value);
    }

    fn was_applied(&self, header: &Header) -> bool {
        let done = self.completions.get(&header.lane);
        done.is_some_and(|done| done.request == header.request && done.seq == header.seq)
    }

    /// Whether a conditional write of a later request of the lane was applied, or is being decided: nobody waits for this one any more.
    fn is_past(&self, (lane, request): (u32, u64)) -> bool {
        let later = (Bound::Excluded((lane, request)), Bound::Included((lane, u64::MAX)));
        self.completions.get(&lane).is_some_and(|done| done.request > request)
            || self.deciding.range(later).next().is_some()
    }

    /// Hands a write to the engine.
    fn apply(&mut self, request: Request, value: Vec<u8>) {
        let header = request.header;
        let hash = header.key_hash;
        let tombstone = header.op == Op::Delete;
        if tombstone || header.expiry_ms != 0 {
            self.rising.note(&hash, header.seq);
        }
        let since = if header.has(flags::CONDITIONAL) { Record::INHERITED } else { None };
        let record = Record { seq: header.seq, tombstone, expiry_ms: header.expiry_ms, value, since };
        let newest = &mut self.newest[bucket_of(&hash)];
        let known = header.seq > *newest || !self.mechanisms.seq_compare;
        *newest = (*newest).max(header.seq);
        let mut completion = None;
        let mut condition = PutCondition::Newer { known };
        if header.has(flags::CONDITIONAL) {
            condition = PutCondition::IfSeq(Seq(header.guard));
            completion = Some(LaneCompletion { lane: header.lane, request: header.request, seq: header.seq });
            if self.mechanisms.node_completion {
                self.deciding.insert((header.lane, header.request));
            }
        }
        let write_through = self.state.config.as_ref().is_some_and(|config| config.write_through);
        let cached = write_through && (header.has(flags::CACHED) || self.marks.is_offered(&hash));
        let update = cached.then(|| record.value.clone());
        let key = request.key.clone();
        let may_be_refused = !known && !header.has(flags::CONDITIONAL);
        let again = may_be_refused.then(|| if header.has(flags::LARGE) { Vec::new() } else { record.value.clone() });
        let pending = Pending::Write { request, update, again, offer: header.has(flags::HOT) };
        self.submit(pending, |id| EngineOp::Put { id, hash, key, record, condition, completion });
    }

    pub(super) fn answer_write(
        &mut self,
        request: Request,
        update: Option<Vec<u8>>,
        again: Option<Vec<u8>>,
        offer: bool,
        result: Result<EngineReply, EngineError>,
    ) {
        let header = request.header;
        let lane = (header.lane, header.request);
        self.deciding.remove(&lane);
        let stored = match result {
            Ok(EngineReply::Put(stored)) => stored,
            Err(EngineError::NoSpace(_)) => {
                self.send_write_reply(&request, Status::NoSpace, header.seq);
                return;
            }
            _ => return,
        };
        let conditional = header.has(flags::CONDITIONAL);
        match stored {
            Ok(()) => {
                self.statistics.applied += 1;
                if conditional {
                    let done = LaneCompletion { lane: header.lane, request: header.request, seq: header.seq };
                    self.completions.insert(header.lane, done);
                }
                self.send_write_reply(&request, Status::Ok, header.seq);
                self.staged.forget(&StagedName::of(&header));
                let value_bytes = if header.has(flags::LARGE) { header.total_bytes } else { header.value_bytes.into() };
                if let Some(value) = update {
                    let tombstone = header.op == Op::Delete;
                    let record = Record { seq: header.seq, tombstone, expiry_ms: header.expiry_ms, value, since: None };
                    self.update_cache(header.key_hash, &request.key, record);
                }
                if offer && header.op == Op::Write {
                    self.offer(&header.key_hash, &request.key, value_bytes as usize);
                }
            }
            Err(stored) if conditional => {
                self.statistics.condition_failed += 1;
                let told = self.version_told(stored);
                if header.guard == Seq::NONE.0 && stored < header.seq {
                    self.refuse_for_good(request, told);
                } else {
                    self.send_write_reply(&request, Status::ConditionFailed, told);
                }
            }
            Err(stored) => match again.filter(|_| stored != header.seq) {
                // Overwritten, or overtaken by a write that ran upon the version before: only the stored record tells.
                Some(value) => {
                    let (hash, key) = (header.key_hash, request.key.clone());
                    let pending = Pending::Fenced { request, value, staged: true };
                    self.submit(pending, |id| EngineOp::Get { id, hash, key });
                }
                None => {
                    self.statistics.superseded += 1;
                    self.send_write_reply(&request, Status::Ok, header.seq);
                }
            },
        }
    }

    /// A write at or below the fence, the floor or the stored seq, or one whose staged value is missing, once the stored record is known.
    pub(super) fn answer_fenced(
        &mut self,
        _now: Now,
        request: Request,
        value: Vec<u8>,
        staged: bool,
        record: Option<Record>,
    ) {
        let header = request.header;
        let floor = self.rising.floors.of(&header.key_hash);
        let stored = record.as_ref().map_or(self.rising.floors.base(), |record| record.seq);
        let base = record.as_ref().map_or(stored, Record::base);
        let base = if self.mechanisms.chain { base } else { stored };
        // Then the chain may have begun upon nothing, below a floor: what else was there nobody knows any more.
        let is_chained =
            self.mechanisms.unsure_chains && record.as_ref().is_some_and(|record| record.base() < record.seq);
        let conditional = header.has(flags::CONDITIONAL);
        if conditional && self.was_applied(&header) {
            self.send_write_reply(&request, Status::Ok, header.seq);
        } else if conditional && header.seq <= stored {
            let told = self.version_told(stored);
            self.send_write_reply(&request, Status::ConditionFailed, told);
        } else if header.seq == stored {
            self.statistics.superseded += 1;
            self.send_write_reply(&request, Status::Ok, header.seq);
        } else if (record.is_none() || is_chained) && header.seq <= floor && self.mechanisms.floor {
            // It may have run, and its record may have been deleted and dropped since; or not.
            self.statistics.dropped_below_floor += 1;
        } else if header.seq <= base {
            self.statistics.superseded += 1;
            self.send_write_reply(&request, Status::Ok, header.seq);
        } else if header.seq <= stored || header.seq <= self.marks.saved_fence(&header.key_hash) {
            self.bounce(&request, &value);
        } else if header.seq <= self.marks.fence(&header.key_hash) {
            self.save_fence(request, value, staged);
        } else if header.seq <= floor && self.mechanisms.floor {
            // Sent back it may run anew: that no copy of it runs here must be known after a restart, too.
            match self.rising.is_saved() {
                true => self.bounce(&request, &value),
                false => self.nothing_came(&header),
            }
        } else if header.has(flags::LARGE) && !staged {
            self.send_write_reply(&request, Status::FragmentsMissing, header.seq);
        } else {
            // The fence fell meanwhile (a floor covers it): an ordinary write by now.
            self.apply(request, value);
        }
    }

    /// The commit of a fence failed. It is tried again before a write below is sent back: that no copy of it runs here must be known after a
    /// restart, too.
    fn save_fence(&mut self, request: Request, value: Vec<u8>, staged: bool) {
        let (hash, key) = (request.header.key_hash, request.key.clone());
        let Some(marked) = self.marks.get(&hash) else { return };
        let mark = marked.mark;
        let before = self.upcoming(1);
        let named = key.clone();
        let pending = Pending::Fence { hash, fence: mark.fence, before };
        self.submit(pending, |id| EngineOp::SetMark { id, hash, key: named, mark: Some(mark) });
        self.submit(Pending::Fenced { request, value, staged }, |id| EngineOp::Get { id, hash, key });
    }

    /// Nothing came of a write: its next copy is another try.
    pub(super) fn nothing_came(&mut self, header: &Header) {
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.failed(header);
        }
    }

    /// Sends a write back to whoever arbitrates its lane: it runs under a new number if the lane still waits for it, else never.
    ///
    /// No copy of it may run here any more, not even from a commit that failed and that a crash brings to light: so what the bounce rests on is
    /// durable, and a commit that succeeds buries those that failed before.
    fn bounce(&mut self, request: &Request, value: &[u8]) {
        let header = request.header;
        self.statistics.bounced += 1;
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.bounced(&header);
            return;
        }
        let deleted = if header.op == Op::Delete { flags::DELETE } else { 0 };
        let kept = header.flags & (flags::CONDITIONAL | flags::LARGE);
        let bounce = Header { op: Op::Bounce, flags: kept | deleted, ..header };
        let value = if header.has(flags::LARGE) { &[][..] } else { value };
        self.send(request.switch, bounce, value, &request.key);
    }

    /// A write that expected an absent key found a record. Should that vanish (deleted, or expired, and dropped), a late copy of the write must
    /// not run after all: a fence keeps it from that, and is durable before the write is answered.
    fn refuse_for_good(&mut self, request: Request, told: Seq) {
        let Header { key_hash: hash, seq, .. } = request.header;
        self.rising.note(&hash, seq);
        let raised = match self.mechanisms.fenced_refusals {
            true => self.marks.raise_fence(&hash, &request.key, seq),
            false => RaisedFence::Saved,
        };
        match raised {
            RaisedFence::Saved => self.send_write_reply(&request, Status::ConditionFailed, told),
            RaisedFence::ToSave(mark) => {
                let key = request.key.clone();
                let pending = Pending::Refusal { request, told, fence: mark.fence };
                self.submit(pending, |id| EngineOp::SetMark { id, hash, key, mark: Some(mark) });
            }
            RaisedFence::NoRoom => {
                self.statistics.dropped_no_fence += 1;
                self.nothing_came(&request.header);
            }
        }
    }

    /// The fence of a refused write is durable.
    pub(super) fn refusal_saved(&mut self, request: &Request, told: Seq, fence: Seq) {
        self.marks.fence_saved(&request.header.key_hash, fence);
        self.send_write_reply(request, Status::ConditionFailed, told);
    }

    /// The version that a failed condition is told: of an absent key none, as a read says, not the floor that its writes have to exceed.
    fn version_told(&self, stored: Seq) -> Seq {
        if stored == self.rising.floors.base() { Seq::NONE } else { stored }
    }

    pub(super) fn send_write_reply(&mut self, request: &Request, status: Status, seq: Seq) {
        let header = request.header;
        if header.epoch != self.state.epoch && self.mechanisms.epoch_fence {
            return; // the engine took its time: whoever asked is told that its outcome is unknown
        }
        let deleted = if header.op == Op::Delete { flags::DELETE } else { 0 };
        let kept = header.flags & (flags::CONDITIONAL | flags::LARGE);
        // `seq` names the write to the switch's arbiter; the stored seq of a failed condition travels in `guard`.
        let guard = if status == Status::ConditionFailed { seq.0 } else { header.guard };
        let mut reply = Header { op: Op::WriteReply, flags: kept | deleted, status, guard, total_bytes: 0, ..header };
        if let Some(arbiter) = &mut self.arbiter {
            arbiter.answered(&header, status, seq);
            reply.seq = seq;
        }
        self.send(request.switch, reply, &[], &request.key);
    }

    /// Sends a record's value to the cache until it is acknowledged (NetCache).
    pub(super) fn update_cache(&mut self, hash: KeyHash, key: &[u8], record: Record) {
        let Some(config) = &self.state.config else { return };
        if is_large(record.value.len(), key.len()) || self.updates.get(&hash).is_some_and(|old| old.seq > record.seq) {
            return;
        }
        let mut header = Header::new(Op::CacheUpdate);
        header.epoch = self.state.epoch;
        header.key_hash = hash;
        header.seq = record.seq;
        header.expiry_ms = record.expiry_ms;
        header.record_flags = if record.tombstone { record_flags::TOMBSTONE } else { 0 };
        header.partition = switchback_wire::partition_of(&hash, config.routes.len() as u32);
        let Some(switch) = config.switch else { return };
        let packet = Packet::build(header, &record.value, key);
        self.statistics.cache_updates += 1;
        self.send_packet(switch, packet.clone());
        self.updates.insert(hash, CacheUpdate { seq: record.seq, packet, switch });
    }

    pub(super) fn cache_updated(&mut self, parts: PacketRef<'_>) {
        let hash = parts.header.key_hash;
        if self.updates.get(&hash).is_some_and(|update| update.seq <= parts.header.seq) {
            self.updates.remove(&hash);
        }
    }
}
