//! A node's part in DistCache: what its copies are told, and what they answer.

use super::{Served, Shim};
use crate::control::NamedCopy;
use crate::node::copies::{CopyId, Invalidation, Refill};
use crate::node::replica::{Pending, Write};
use crate::storage::{EngineOp, Record};
use switchback_wire::{Address, Header, KeyHash, Op, flags, is_large, record_flags};

impl Shim {
    /// Switches have admitted these copies. One of a key that isn't offered any more is gone by
    /// now.
    pub(super) fn register_copies(&mut self, copies: Vec<NamedCopy>) {
        for NamedCopy { hash, key, switch, entry } in copies {
            if self.decider.is_offered(&hash) {
                let under_way = || self.replica.puts_of(&hash);
                self.copies.register(hash, key, CopyId { switch, entry }, under_way);
            }
        }
        self.tell_copies();
    }

    /// No switch has copies of a key any more.
    pub(super) fn forget_copies(&mut self, hash: &KeyHash) {
        let released = self.copies.unregister(hash);
        self.decide_again(released);
    }

    /// A switch has acknowledged what a copy was told.
    pub(super) fn copy_answered(&mut self, from: Address, header: &Header) {
        let (hash, seq) = (header.key_hash, header.seq);
        let copy = CopyId { switch: from, entry: header.request };
        if header.op == Op::InvalidateAck {
            let released = self.copies.invalidated(&hash, copy, seq);
            self.decide_again(released);
        } else {
            self.copies.updated(&hash, copy, seq);
        }
        self.tell_copies();
    }

    /// Writes that wait for no copy any more: what was stored meanwhile, and which fences were
    /// raised, may have changed what becomes of them.
    fn decide_again(&mut self, writes: Vec<Write>) {
        for write in writes {
            let header = write.request.header;
            let lacks_value = header.has(flags::LARGE) && !write.is_staged;
            let decision = self.decider.write(&header, lacks_value);
            self.carry_out(write, decision);
        }
    }

    /// Sends what copies are to be told, and reads what they are to be filled with where that isn't
    /// known.
    pub(super) fn tell_copies(&mut self) {
        while let Some(Invalidation { copy, hash, key, seq }) = self.copies.next_invalidation() {
            let header = Header { key_hash: hash, seq, ..Header::new(Op::Invalidate) };
            self.tell_copy(copy, header, &[], &key);
        }
        while let Some(refill) = self.copies.next_refill() {
            let (hash, key) = (refill.hash, refill.key.clone());
            self.replica.submit(Pending::Refill(refill), |id| EngineOp::Get { id, hash, key });
        }
    }

    /// What is stored is known: the copies of its key are sent it.
    pub(super) fn fill_copies(&mut self, refill: &Refill, record: &Record) {
        // What fits no packet fits no slot: its copies stay invalid.
        if is_large(record.value.len(), refill.key.len()) {
            return;
        }
        let header = Header {
            key_hash: refill.hash,
            seq: record.seq,
            expiry_ms: record.expiry_ms,
            record_flags: if record.tombstone { record_flags::TOMBSTONE } else { 0 },
            ..Header::new(Op::CacheUpdate)
        };
        for copy in self.copies.refilled(refill, record.seq) {
            self.statistics.cache_updates += 1;
            self.tell_copy(copy, header, &record.value, &refill.key);
        }
    }

    fn tell_copy(&mut self, copy: CopyId, header: Header, value: &[u8], key: &[u8]) {
        let hash = header.key_hash;
        let Some((served, config)) = self.told(&hash) else { return };
        let (epoch, partition) = (Served::epoch(served), config.partition_of(&hash));
        let (routing, request) = (hash.routing(), copy.entry);
        let header = Header { epoch, partition, routing, request, ..header };
        self.replica.send(copy.switch, header, value, key);
    }
}
