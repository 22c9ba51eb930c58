//! What the fake rack holds, and what it does with packets.

use super::HASH_KEY;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};
use switchback_wire::{
    Header, KeyHash, Op, Packet, PacketRef, Seq, Status, flags, fragment_bytes, is_large,
    push_scan_entry, record_flags,
};

/// How it behaves.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Keys that begin with this are not cached, and answered later.
    pub uncached_prefix: Option<Vec<u8>>,
    /// Nothing is cached.
    pub nothing_cached: bool,
    /// Answers are lost, duplicated, reordered, in percent.
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    /// Nothing is answered.
    pub silent: bool,
    /// No write is.
    pub silent_writes: bool,
    /// No packet of this key is answered.
    pub silent_key: Option<Vec<u8>>,
    /// No packet is answered after this many from the rack's beginning.
    pub silent_after: Option<u64>,
    /// Nothing is stored: reads find the same value, writes are absorbed. (For measurements.)
    pub null: bool,
    /// Workers die.
    pub broken: bool,
    /// No session is granted.
    pub no_session: bool,
    /// Writes find the disk full.
    pub no_space: bool,
    /// How many conditional writes fail, as if another client had written.
    pub fail_conditions: u32,
    /// Fewer lanes than usual.
    pub lanes: Option<u32>,
    pub generation: u32,
    pub durable_generation: u32,
}

impl Default for Knobs {
    fn default() -> Knobs {
        Knobs {
            uncached_prefix: None,
            nothing_cached: false,
            loss: 0,
            duplication: 0,
            reordering: 0,
            silent: false,
            silent_writes: false,
            silent_after: None,
            silent_key: None,
            null: false,
            broken: false,
            no_session: false,
            no_space: false,
            fail_conditions: 0,
            lanes: None,
            generation: 1,
            durable_generation: 0,
        }
    }
}

#[derive(Clone, Default)]
struct Stored {
    seq: Seq,
    value: Vec<u8>,
    expiry_ms: u64,
    tombstone: bool,
}

#[derive(Default)]
pub struct Records {
    pub knobs: Knobs,
    pub writes: u64,
    pub packets: u64,
    pub closed_sessions: u64,
    records: BTreeMap<(KeyHash, Vec<u8>), Stored>,
    last: u64,
    /// Of each lane: the last write and its answer.
    done: HashMap<u32, (u64, Packet)>,
    staged: HashMap<(u32, u64), BTreeMap<u16, Vec<u8>>>,
    boots: std::cell::RefCell<Vec<u64>>,
}

impl Records {
    /// Request numbers never come twice, over all boots.
    pub fn request_base(&self, boot: u64) -> u64 {
        let mut boots = self.boots.borrow_mut();
        let at = boots.iter().position(|&known| known == boot).unwrap_or_else(|| {
            boots.push(boot);
            boots.len() - 1
        });
        (at as u64 + 1) << 40
    }

    fn now_ms() -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
    }

    fn is_live(stored: &Stored) -> bool {
        !stored.tombstone && (stored.expiry_ms == 0 || stored.expiry_ms > Records::now_ms())
    }

    pub fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let stored = self.records.get(&(HASH_KEY.hash(key), key.to_vec()))?;
        Records::is_live(stored).then(|| stored.value.clone())
    }

    /// Whether the switch would have it.
    fn is_cached(&self, key: &[u8]) -> bool {
        !self.knobs.nothing_cached
            && !self.knobs.uncached_prefix.as_ref().is_some_and(|prefix| key.starts_with(prefix))
    }

    /// Handles a request: true if the answer is in `packet`, else answers are appended to
    /// `answers`.
    pub fn handle(&mut self, packet: &mut Packet, answers: &mut VecDeque<Packet>) -> bool {
        let request = packet.clone();
        let PacketRef { header, value, key } = request.parse().unwrap();
        match header.op {
            Op::Read => self.read(header, key, packet),
            Op::Write | Op::Delete => self.write(header, value, key, packet),
            Op::Fragment => self.stage(header, value, key, packet),
            Op::ReadFragment => return self.read_fragments(header, key, answers),
            Op::Scan => self.scan(header, key, packet),
            other => panic!("{other:?} from a client"),
        }
        let answer = packet.parse().unwrap().header;
        let inline = answer.has(flags::CACHED);
        if !inline {
            answers.push_back(packet.clone());
        }
        inline
    }

    fn reply(&self, to: Header, op: Op) -> Header {
        Header {
            op,
            flags: 0,
            guard: 0,
            seq: Seq::NONE,
            expiry_ms: 0,
            durable_generation: self.knobs.durable_generation,
            ..to
        }
    }

    fn read(&mut self, request: Header, key: &[u8], packet: &mut Packet) {
        let mut answer = self.reply(request, Op::ReadReply);
        let stored =
            self.records.get(&(HASH_KEY.hash(key), key.to_vec())).cloned().unwrap_or_default();
        answer.seq = stored.seq;
        let exists = stored.seq != Seq::NONE && Records::is_live(&stored);
        let value = if exists { &stored.value[..] } else { &[] };
        answer.expiry_ms = stored.expiry_ms;
        answer.status = if exists { Status::Ok } else { Status::NotFound };
        if is_large(value.len(), key.len()) {
            answer.flags = flags::LARGE;
            answer.total_bytes = value.len() as u32;
            return packet.fill(&answer, &value[..fragment_bytes(key.len()).min(value.len())], key);
        }
        if self.is_cached(key) {
            answer.flags = flags::CACHED;
            answer.record_flags = record_flags::DIRTY;
            answer.generation = self.knobs.generation;
        }
        packet.fill(&answer, value, key);
    }

    fn write(&mut self, request: Header, value: &[u8], key: &[u8], packet: &mut Packet) {
        if let Some((done, answer)) = self.done.get(&request.lane) {
            if *done == request.request {
                *packet = answer.clone();
                return;
            }
            assert!(*done < request.request, "a request number came again");
        }
        let mut answer = self.reply(request, Op::WriteReply);
        answer.status = self.apply(request, value, key, &mut answer);
        let large = request.has(flags::LARGE);
        if answer.status == Status::Ok && self.is_cached(key) && !large {
            answer.flags = flags::CACHED;
            answer.generation = self.knobs.generation;
        }
        packet.fill(&answer, &[], key);
        if !matches!(answer.status, Status::FragmentsMissing | Status::NoSpace) {
            self.done.insert(request.lane, (request.request, packet.clone()));
        }
    }

    fn apply(&mut self, request: Header, value: &[u8], key: &[u8], answer: &mut Header) -> Status {
        if self.knobs.no_space {
            return Status::NoSpace;
        }
        let value = match request.has(flags::LARGE) {
            true => match self.staged.remove(&(request.lane, request.request)) {
                Some(parts) => parts.into_values().flatten().collect(),
                None => return Status::FragmentsMissing,
            },
            false => value.to_vec(),
        };
        let stored = self.records.entry((HASH_KEY.hash(key), key.to_vec())).or_default();
        let conditional = request.has(flags::CONDITIONAL);
        if conditional && self.knobs.fail_conditions > 0 {
            self.knobs.fail_conditions -= 1;
            answer.seq = stored.seq;
            return Status::ConditionFailed;
        }
        if conditional && stored.seq.0 != request.guard {
            answer.seq = stored.seq;
            return Status::ConditionFailed;
        }
        self.last += 1;
        self.writes += 1;
        let tombstone = request.op == Op::Delete;
        *stored =
            Stored { seq: Seq::new(1, self.last), value, expiry_ms: request.expiry_ms, tombstone };
        answer.seq = stored.seq;
        Status::Ok
    }

    fn stage(&mut self, request: Header, value: &[u8], key: &[u8], packet: &mut Packet) {
        let parts = self.staged.entry((request.lane, request.request)).or_default();
        parts.insert(request.fragment_index, value.to_vec());
        let base = request.fragment_index - request.fragment_index % 256;
        let mut bitmap = [0u8; 32];
        for (&index, _) in parts.range(base..base.saturating_add(256)) {
            let bit = usize::from(index - base);
            bitmap[bit / 8] |= 1 << (bit % 8);
        }
        let answer = self.reply(request, Op::FragmentReply);
        packet.fill(&answer, &bitmap, key);
    }

    fn read_fragments(
        &mut self,
        request: Header,
        key: &[u8],
        answers: &mut VecDeque<Packet>,
    ) -> bool {
        let stored =
            self.records.get(&(HASH_KEY.hash(key), key.to_vec())).cloned().unwrap_or_default();
        let per_fragment = fragment_bytes(key.len());
        for index in request.fragment_index..request.fragment_index + request.fragment_count {
            let mut answer = self.reply(request, Op::ReadFragmentReply);
            answer.fragment_index = index;
            answer.seq = stored.seq;
            let from = usize::from(index) * per_fragment;
            if stored.seq.0 != request.guard || from >= stored.value.len() {
                answer.status = Status::Changed;
                answers.push_back(Packet::build(answer, &[], key));
                break;
            }
            let to = (from + per_fragment).min(stored.value.len());
            answers.push_back(Packet::build(answer, &stored.value[from..to], key));
        }
        false
    }

    fn scan(&mut self, request: Header, key: &[u8], packet: &mut Packet) {
        let mut answer = self.reply(request, Op::ScanReply);
        let count_only = request.fragment_count == 1;
        let position = request.key_hash.position();
        // One sixteenth of the key space is a node's.
        let end = ((position >> 60) + 1).checked_shl(60).filter(|&end| end > position).unwrap_or(0);
        answer.guard = end;
        let mut entries = Vec::new();
        for ((hash, key), stored) in
            self.records.range((KeyHash::at_position(position), Vec::new())..)
        {
            if end != 0 && hash.position() >= end {
                break;
            }
            // A cache holds some of the keys, the deleted ones, too.
            let maybe_cached = hash.0[15] & 1 == 1;
            if !maybe_cached && !Records::is_live(stored) {
                continue;
            }
            let listed = maybe_cached || !count_only;
            if listed && !push_scan_entry(&mut entries, maybe_cached, key, fragment_bytes(1)) {
                answer.guard = hash.position();
                break;
            }
            answer.total_bytes += u32::from(!maybe_cached);
        }
        packet.fill(&answer, &entries, key);
    }
}
