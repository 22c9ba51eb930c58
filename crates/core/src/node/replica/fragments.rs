//! Large values: staged before their write, pulled after their read (protocol, section 7).

use super::Replica;
use super::operations::{Pending, Request};
use super::recent::Recent;
use crate::storage::{EngineOp, Record};
use switchback_wire::{
    Address, Header, KeyHash, Op, PacketRef, Seq, Status, VALUE_BYTES_MAX, flags, fragment_bytes,
    is_large,
};

/// Fragments that one reply's bitmap covers.
const BITMAP_FRAGMENTS: usize = 256;
/// Fragments that one pull may ask for.
const PULL_MAX: u16 = 32;

/// What a staged value is for: the write of this lane, request, key and length. Fragments that
/// differ in one of these are of another value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct StagedName {
    lane: u32,
    request: u64,
    hash: KeyHash,
    total_bytes: u32,
}

impl StagedName {
    /// The value of this packet, a fragment or the write that commits it.
    fn of(header: &Header) -> StagedName {
        let Header { lane, request, key_hash: hash, total_bytes, .. } = *header;
        StagedName { lane, request, hash, total_bytes }
    }
}

/// Values being staged, in capped memory.
#[derive(Debug)]
pub(super) struct StagedValues(Recent<StagedName, Staged>);

#[derive(Debug)]
struct Staged {
    value: Vec<u8>,
    arrived: Vec<bool>,
    missing: usize,
}

impl Staged {
    fn new(total: usize, fragments: usize) -> Staged {
        Staged { value: vec![0; total], arrived: vec![false; fragments], missing: fragments }
    }

    /// The bitmap of the fragments around this one.
    fn bitmap(&self, index: usize) -> [u8; BITMAP_FRAGMENTS / 8] {
        let base = index - index % BITMAP_FRAGMENTS;
        let mut bitmap = [0; BITMAP_FRAGMENTS / 8];
        for (at, _) in self.arrived[base..]
            .iter()
            .take(BITMAP_FRAGMENTS)
            .enumerate()
            .filter(|(_, there)| **there)
        {
            bitmap[at / 8] |= 1 << (at % 8);
        }
        bitmap
    }
}

impl StagedValues {
    pub(super) fn new(bytes_max: usize) -> StagedValues {
        assert!(bytes_max >= VALUE_BYTES_MAX);
        StagedValues(Recent::new(bytes_max))
    }

    /// Takes a fragment; what has arrived around it, or `None` if no client would send it.
    fn put(
        &mut self,
        header: &Header,
        bytes: &[u8],
        key_bytes: usize,
    ) -> Option<[u8; BITMAP_FRAGMENTS / 8]> {
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
        let mut staged = match self.0.remove(&name) {
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
        self.0.insert(name, total + count, staged);
        Some(bitmap)
    }

    /// A lane's newer request ends its older ones.
    fn forget_older(&mut self, name: &StagedName) {
        let first =
            StagedName { lane: name.lane, request: 0, hash: KeyHash([0; 16]), total_bytes: 0 };
        let current = StagedName { request: name.request, ..first };
        for older in self.0.names(first..current) {
            self.forget(&older);
        }
    }

    fn is_whole(&self, name: &StagedName) -> bool {
        self.0.get(name).is_some_and(|staged| staged.missing == 0)
    }

    fn whole(&self, name: &StagedName) -> Option<Vec<u8>> {
        let staged = self.0.get(name)?;
        (staged.missing == 0).then(|| staged.value.clone())
    }

    fn forget(&mut self, name: &StagedName) {
        self.0.remove(name);
    }
}

/// Large values that were read lately, so that each pull of one needn't read it again. A sequence
/// number names one version of a key for ever, so what is kept under it never becomes wrong.
#[derive(Debug)]
pub(super) struct PulledValues(Recent<(KeyHash, Seq), Vec<u8>>);

impl PulledValues {
    pub(super) fn new(bytes_max: usize) -> PulledValues {
        PulledValues(Recent::new(bytes_max))
    }

    /// Keeps the value of a version.
    pub(super) fn keep(&mut self, hash: KeyHash, seq: Seq, value: Vec<u8>) {
        let bytes = value.len();
        self.0.insert((hash, seq), bytes, value);
    }
}

impl Replica {
    /// Takes a fragment of a value that is staged, and tells what has arrived of it; false if no
    /// client would send it.
    pub(in crate::node) fn stage(&mut self, from: Address, parts: PacketRef<'_>) -> bool {
        let PacketRef { header, value, key } = parts;
        let bitmap = self.staged.put(&header, value, key.len());
        if let Some(bitmap) = &bitmap {
            let reply = Header { op: Op::FragmentReply, flags: 0, ..header };
            self.send(from, reply, bitmap, key);
        }
        bitmap.is_some()
    }

    /// Whether the whole value that this write commits is staged.
    pub(in crate::node) fn has_staged(&self, write: &Header) -> bool {
        self.staged.is_whole(&StagedName::of(write))
    }

    /// The whole value that this write commits, if all of it is staged. It stays until it is
    /// forgotten.
    pub(in crate::node) fn staged(&self, write: &Header) -> Option<Vec<u8>> {
        self.staged.whole(&StagedName::of(write))
    }

    /// The value that this write committed needn't be staged any more.
    pub(in crate::node) fn forget_staged(&mut self, write: &Header) {
        self.staged.forget(&StagedName::of(write));
    }

    /// Answers a pull of fragments, or reads their value first.
    pub(in crate::node) fn pull(&mut self, from: Address, parts: PacketRef<'_>) {
        let header = parts.header;
        let (hash, key) = (header.key_hash, parts.key.to_vec());
        let request = Request { header, key: key.clone(), switch: from };
        match self.pulled.0.remove(&(hash, Seq(header.guard))) {
            Some(value) => self.send_fragments(request, value),
            None => _ = self.submit(Pending::Pull(request), |id| EngineOp::Get { id, hash, key }),
        }
    }

    /// Answers a pull with what is stored.
    pub(in crate::node) fn answer_pull(&mut self, request: Request, record: Option<Record>) {
        let header = request.header;
        match record.filter(|record| record.seq == Seq(header.guard) && !record.value.is_empty()) {
            Some(record) => self.send_fragments(request, record.value),
            None => {
                let reply = Header {
                    op: Op::ReadFragmentReply,
                    flags: flags::LARGE,
                    status: Status::Changed,
                    ..header
                };
                self.send(request.switch, reply, &[], &request.key);
            }
        }
    }

    /// Sends the fragments of a version that a pull asks for.
    fn send_fragments(&mut self, request: Request, value: Vec<u8>) {
        let Request { header, key, switch } = request;
        let seq = Seq(header.guard);
        let total_bytes = value.len() as u32;
        let mut reply =
            Header { op: Op::ReadFragmentReply, flags: flags::LARGE, seq, total_bytes, ..header };
        let fragments = value.chunks(fragment_bytes(key.len())).enumerate();
        let wanted = fragments
            .skip(header.fragment_index.into())
            .take(header.fragment_count.min(PULL_MAX).into());
        for (index, fragment) in wanted {
            reply.fragment_index = index as u16;
            self.send(switch, reply, fragment, &key);
        }
        self.pulled.keep(header.key_hash, seq, value);
    }
}
