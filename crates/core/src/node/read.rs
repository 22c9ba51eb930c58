//! Reads: plain, fenced, and with an embedded record (rules 2 and 5).

use super::marks::RaisedFence;
use super::shim::{Pending, Request, Shim};
use crate::control::Offer;
use crate::storage::{EngineError, EngineOp, EngineReply, PutCondition, Record};
use crate::time::Now;
use switchback_wire::{
    Address, CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX, Header, KeyHash, Op, PacketRef, Seq, Status, flags,
    fragment_bytes, is_large, record_flags,
};

impl Shim {
    pub(super) fn read(&mut self, _now: Now, from: Address, parts: PacketRef<'_>) {
        self.statistics.reads += 1;
        let PacketRef { header, value, key } = parts;
        let (hash, owned) = (header.key_hash, key.to_vec());
        // The answer comes after the step, or never: the engine takes operations in order, and a failed step forgets the read.
        if header.has(flags::FENCED) && self.mechanisms.fence {
            self.statistics.fenced_reads += 1;
            self.rising.note(&hash, Seq(header.guard));
            match self.marks.raise_fence(&hash, key, Seq(header.guard)) {
                RaisedFence::Saved => {}
                RaisedFence::ToSave(mark) => {
                    let before = self.upcoming(1);
                    let key = owned.clone();
                    let pending = Pending::Fence { hash, fence: mark.fence, before };
                    self.submit(pending, |id| EngineOp::SetMark { id, hash, key, mark: Some(mark) });
                }
                RaisedFence::NoRoom => {
                    self.statistics.dropped_no_fence += 1;
                    return;
                }
            }
        } else if header.has(flags::EMBEDDED)
            && self.mechanisms.embedding_store
            && self.may_come_from_cache(&hash, header.seq)
        {
            self.statistics.embedded_stored += 1;
            let before = self.upcoming(1);
            self.store(Pending::Step { before }, hash, owned.clone(), embedded(&header, value));
        }
        let request = Request { header, key: owned.clone(), switch: from };
        self.submit(Pending::Read(request), |id| EngineOp::Get { id, hash, key: owned });
    }

    /// Stores a record of the cache iff it is newer.
    pub(super) fn store(&mut self, pending: Pending, hash: KeyHash, key: Vec<u8>, record: Record) {
        let known = !self.mechanisms.seq_compare;
        // Later writes of the bucket must not be taken for newer than this one unread.
        let newest = &mut self.newest[super::shim::bucket_of(&hash)];
        *newest = (*newest).max(record.seq);
        if record.tombstone || record.expiry_ms != 0 {
            self.rising.note(&hash, record.seq);
        }
        let condition = PutCondition::Newer { known };
        let record = Record { since: Record::INHERITED, ..record };
        self.submit(pending, |id| EngineOp::Put { id, hash, key, record, condition, completion: None });
    }

    pub(super) fn answer_read(&mut self, now: Now, request: Request, record: Option<Record>) {
        let Request { header, key, switch } = request;
        let seq = record.as_ref().map_or(Seq::NONE, |record| record.seq);
        let kept = flags::FENCED & header.flags;
        let mut answer = Header { op: Op::ReadReply, flags: kept, seq, expiry_ms: 0, record_flags: 0, ..header };
        let live = record.filter(|record| record.is_live(now.unix_ms));
        let value_bytes = live.as_ref().map_or(0, |record| record.value.len());
        match live {
            None => {
                answer.status = Status::NotFound;
                answer.record_flags = record_flags::TOMBSTONE;
                self.send(switch, answer, &[], &key);
            }
            Some(record) => {
                answer.expiry_ms = record.expiry_ms;
                answer.total_bytes = value_bytes as u32;
                let mut part = &record.value[..];
                if is_large(value_bytes, key.len()) {
                    answer.flags |= flags::LARGE;
                    part = &part[..fragment_bytes(key.len()).min(value_bytes)];
                }
                self.send(switch, answer, part, &key);
                if answer.has(flags::LARGE) {
                    self.pulled.keep(header.key_hash, seq, record.value);
                }
            }
        }
        if header.has(flags::HOT) {
            self.offer(&header.key_hash, &key, value_bytes);
        }
    }

    /// Offers a hot key to the cache, once: marks it durably first (rule 5).
    pub(super) fn offer(&mut self, hash: &KeyHash, key: &[u8], value_bytes: usize) {
        if key.len() > CACHED_KEY_BYTES_MAX || value_bytes > CACHED_VALUE_BYTES_MAX {
            return;
        }
        if self.marks.is_offered(hash) {
            return;
        }
        let floor = self.rising.floors.of(hash);
        let Some(mark) = self.marks.offer(hash, key, value_bytes as u32, floor) else {
            self.statistics.offers_refused += 1;
            return;
        };
        self.statistics.offers += 1;
        let (hash, key) = (*hash, key.to_vec());
        let pending = Pending::Offer { hash, offer: mark.offer, value_bytes: value_bytes as u32 };
        self.submit(pending, |id| EngineOp::SetMark { id, hash, key, mark: Some(mark) });
    }

    /// The mark of an offer is durable: now it may be sent. Or it isn't: there was no offer.
    pub(super) fn offer_marked(
        &mut self,
        hash: KeyHash,
        offer: u64,
        value_bytes: u32,
        result: Result<EngineReply, EngineError>,
    ) {
        if result.is_err() {
            self.marks.clear_offer(&hash, offer);
            return;
        }
        let Some(marked) = self.marks.get_mut(&hash) else { return };
        if marked.mark.offer != offer {
            return;
        }
        marked.durable = true;
        if self.state.held {
            return; // the release offers everything
        }
        let offer = Offer { id: offer, hash, key: marked.key.clone(), value_bytes };
        let epoch = self.state.epoch;
        self.marks.to_offer.push_back(hash);
        self.reports.push_back(crate::control::NodeReport::Offers { epoch, offers: vec![offer] });
    }
}

/// The record that a read embeds.
fn embedded(header: &Header, value: &[u8]) -> Record {
    let tombstone = header.record_flags & record_flags::TOMBSTONE != 0;
    Record { seq: header.seq, tombstone, expiry_ms: header.expiry_ms, value: value.to_vec(), since: None }
}
