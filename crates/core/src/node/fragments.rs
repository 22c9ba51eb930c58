//! Large values: staged before their write, pulled after their read (protocol, section 7).

use super::shim::{Pending, Request, Shim};
use crate::storage::{EngineOp, Record};
use std::collections::BTreeMap;
use switchback_wire::{Address, Header, Op, PacketRef, Seq, Status, VALUE_BYTES_MAX, flags, fragment_bytes};

/// Fragments that one reply's bitmap covers.
const BITMAP_FRAGMENTS: usize = 256;
/// Fragments that one pull may ask for.
const PULL_MAX: u16 = 32;

/// Values being staged, by lane and request, in capped memory.
#[derive(Debug)]
pub(super) struct StagedValues {
    values: BTreeMap<(u32, u64), Staged>,
    bytes: usize,
    bytes_max: usize,
    clock: u64,
}

#[derive(Debug)]
struct Staged {
    value: Vec<u8>,
    per_fragment: usize,
    arrived: Vec<bool>,
    missing: usize,
    used: u64,
}

impl StagedValues {
    pub(super) fn new(bytes_max: usize) -> StagedValues {
        assert!(bytes_max >= VALUE_BYTES_MAX);
        StagedValues { values: BTreeMap::new(), bytes: 0, bytes_max, clock: 0 }
    }

    /// Takes a fragment; what has arrived around it, or `None` if it makes no sense.
    fn put(&mut self, header: &Header, bytes: &[u8], key_bytes: usize) -> Option<[u8; BITMAP_FRAGMENTS / 8]> {
        let total = header.total_bytes as usize;
        let per_fragment = fragment_bytes(key_bytes);
        let index = usize::from(header.fragment_index);
        if total == 0 || total > VALUE_BYTES_MAX || index >= total.div_ceil(per_fragment) {
            return None;
        }
        let from = index * per_fragment;
        if bytes.len() != per_fragment.min(total - from) {
            return None;
        }
        let lane = (header.lane, header.request);
        if self.values.get(&lane).is_some_and(|staged| staged.value.len() != total) {
            self.forget(lane);
        }
        self.make_room(lane, total);
        self.clock += 1;
        let count = total.div_ceil(per_fragment);
        let bytes_held = &mut self.bytes;
        let staged = self.values.entry(lane).or_insert_with(|| {
            *bytes_held += total;
            Staged { value: vec![0; total], per_fragment, arrived: vec![false; count], missing: count, used: 0 }
        });
        staged.used = self.clock;
        if !staged.arrived[index] {
            staged.arrived[index] = true;
            staged.missing -= 1;
            staged.value[from..from + bytes.len()].copy_from_slice(bytes);
        }
        assert_eq!(staged.per_fragment, per_fragment);
        let base = index - index % BITMAP_FRAGMENTS;
        let mut bitmap = [0; BITMAP_FRAGMENTS / 8];
        for (at, _) in staged.arrived[base..].iter().take(BITMAP_FRAGMENTS).enumerate().filter(|(_, there)| **there) {
            bitmap[at / 8] |= 1 << (at % 8);
        }
        Some(bitmap)
    }

    /// Drops the longest unused ones until `total` more bytes fit.
    fn make_room(&mut self, lane: (u32, u64), total: usize) {
        if self.values.contains_key(&lane) {
            return;
        }
        // A lane's newer request ends its older one.
        let older: Vec<_> = self.values.range((lane.0, 0)..lane).map(|(older, _)| *older).collect();
        for older in older {
            self.forget(older);
        }
        while self.bytes + total > self.bytes_max {
            let oldest = self.values.iter().min_by_key(|(_, staged)| staged.used).map(|(lane, _)| *lane);
            let Some(oldest) = oldest else { return };
            self.forget(oldest);
        }
    }

    /// The whole value, if all of it is there. It stays until it is forgotten.
    pub(super) fn take(&self, lane: (u32, u64), total: u32) -> Option<Vec<u8>> {
        let staged = self.values.get(&lane)?;
        (staged.missing == 0 && staged.value.len() == total as usize).then(|| staged.value.clone())
    }

    pub(super) fn forget(&mut self, lane: (u32, u64)) {
        if let Some(staged) = self.values.remove(&lane) {
            self.bytes -= staged.value.len();
        }
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
