//! Large values: staged before their write, pulled after their read (protocol, section 7).

use super::shim::{Pending, Request, Shim};
use crate::storage::{EngineOp, Record};
use std::collections::BTreeMap;
use switchback_wire::{
    Address, Header, KeyHash, Op, PacketRef, Seq, Status, VALUE_BYTES_MAX, flags, fragment_bytes, is_large,
};

/// Fragments that one reply's bitmap covers.
const BITMAP_FRAGMENTS: usize = 256;
/// Fragments that one pull may ask for.
const PULL_MAX: u16 = 32;

/// What a staged value is for: the write of this lane, request, key and length. Fragments that differ in one of these are of another
/// value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct StagedName {
    lane: u32,
    request: u64,
    hash: KeyHash,
    total_bytes: u32,
}

impl StagedName {
    /// The value of this packet, a fragment or the write that commits it.
    pub(super) fn of(header: &Header) -> StagedName {
        let Header { lane, request, key_hash: hash, total_bytes, .. } = *header;
        StagedName { lane, request, hash, total_bytes }
    }
}

/// Values being staged, in capped memory: the least recently used one makes room.
#[derive(Debug)]
pub(super) struct StagedValues {
    values: BTreeMap<StagedName, Staged>,
    /// By last use, oldest first.
    uses: BTreeMap<u64, StagedName>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

#[derive(Debug)]
struct Staged {
    value: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
    used: u64,
}

impl Staged {
    fn new(total: usize, fragments: usize) -> Staged {
        Staged { value: vec![0; total], arrived: vec![false; fragments], missing: fragments, used: 0 }
    }

    /// Bytes of memory that it takes, its entries in the two indices included.
    fn bytes(&self) -> usize {
        let entries = size_of::<(StagedName, Staged)>() + size_of::<(u64, StagedName)>();
        self.value.len() + self.arrived.len() + entries
    }

    /// The bitmap of the fragments around this one.
    fn bitmap(&self, index: usize) -> [u8; BITMAP_FRAGMENTS / 8] {
        let base = index - index % BITMAP_FRAGMENTS;
        let mut bitmap = [0; BITMAP_FRAGMENTS / 8];
        for (at, _) in self.arrived[base..].iter().take(BITMAP_FRAGMENTS).enumerate().filter(|(_, there)| **there) {
            bitmap[at / 8] |= 1 << (at % 8);
        }
        bitmap
    }
}

impl StagedValues {
    pub(super) fn new(bytes_max: usize) -> StagedValues {
        assert!(bytes_max >= VALUE_BYTES_MAX);
        StagedValues { values: BTreeMap::new(), uses: BTreeMap::new(), bytes: 0, bytes_max, clock: 0 }
    }

    /// Takes a fragment; what has arrived around it, or `None` if no client would send it.
    fn put(&mut self, header: &Header, bytes: &[u8], key_bytes: usize) -> Option<[u8; BITMAP_FRAGMENTS / 8]> {
        let name = StagedName::of(header);
        let total = header.total_bytes as usize;
        let per_fragment = fragment_bytes(key_bytes);
        let (index, count) = (usize::from(header.fragment_index), total.div_ceil(per_fragment));
        if !is_large(total, key_bytes) || total > VALUE_BYTES_MAX || index >= count {
            return None;
        }
        let from = index * per_fragment;
        if bytes.len() != per_fragment.min(total - from) {
            return None;
        }
        let mut staged = match self.remove(&name) {
            Some(staged) => staged,
            None => {
                self.forget_older(&name);
                Staged::new(total, count)
            }
        };
        if !staged.arrived[index] {
            staged.arrived[index] = true;
            staged.missing -= 1;
            staged.value[from..from + bytes.len()].copy_from_slice(bytes);
        }
        let bitmap = staged.bitmap(index);
        self.insert(name, staged);
        Some(bitmap)
    }

    /// A lane's newer request ends its older ones.
    fn forget_older(&mut self, name: &StagedName) {
        let first = StagedName { lane: name.lane, request: 0, hash: KeyHash([0; 16]), total_bytes: 0 };
        let current = StagedName { request: name.request, ..first };
        let older: Vec<_> = self.values.range(first..current).map(|(older, _)| *older).collect();
        for older in older {
            self.forget(&older);
        }
    }

    fn insert(&mut self, name: StagedName, mut staged: Staged) {
        while self.bytes + staged.bytes() > self.bytes_max
            && let Some((_, oldest)) = self.uses.first_key_value()
        {
            let oldest = *oldest;
            self.forget(&oldest);
        }
        self.clock += 1;
        staged.used = self.clock;
        self.bytes += staged.bytes();
        self.uses.insert(staged.used, name);
        self.values.insert(name, staged);
    }

    fn remove(&mut self, name: &StagedName) -> Option<Staged> {
        let staged = self.values.remove(name)?;
        self.uses.remove(&staged.used);
        self.bytes -= staged.bytes();
        Some(staged)
    }

    /// The whole value, if all of it is there. It stays until it is forgotten.
    pub(super) fn whole(&self, name: &StagedName) -> Option<Vec<u8>> {
        let staged = self.values.get(name)?;
        (staged.missing == 0).then(|| staged.value.clone())
    }

    pub(super) fn forget(&mut self, name: &StagedName) {
        self.remove(name);
    }
}

impl Shim {
    pub(super) fn stage(&mut self, from: Address, parts: PacketRef<'_>) {
        self.statistics.fragments += 1;
        let PacketRef { header, value, key } = parts;
        match self.staged.put(&header, value, key.len()) {
            Some(bitmap) => {
                let reply = Header { op: Op::FragmentReply, flags: 0, ..header };
                self.send(from, reply, &bitmap, key);
            }
            None => self.statistics.dropped_malformed += 1,
        }
    }

    pub(super) fn pull(&mut self, from: Address, parts: PacketRef<'_>) {
        self.statistics.fragments += 1;
        let (hash, key) = (parts.header.key_hash, parts.key.to_vec());
        let request = Request { header: parts.header, key: key.clone(), switch: from };
        self.submit(Pending::Pull(request), |id| EngineOp::Get { id, hash, key });
    }

    pub(super) fn answer_pull(&mut self, request: Request, record: Option<Record>) {
        let Request { header, key, switch } = request;
        let record = record.filter(|record| record.seq == Seq(header.guard) && !record.value.is_empty());
        let mut reply = Header { op: Op::ReadFragmentReply, flags: flags::LARGE, ..header };
        let Some(record) = record else {
            reply.status = Status::Changed;
            self.send(switch, reply, &[], &key);
            return;
        };
        reply.seq = record.seq;
        reply.total_bytes = record.value.len() as u32;
        let fragments = record.value.chunks(fragment_bytes(key.len())).enumerate();
        let wanted = fragments.skip(header.fragment_index.into()).take(header.fragment_count.min(PULL_MAX).into());
        for (index, fragment) in wanted {
            reply.fragment_index = index as u16;
            self.send(switch, reply, fragment, &key);
        }
    }
}
