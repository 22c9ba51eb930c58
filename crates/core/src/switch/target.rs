//! What an agent needs of a datapath, and the control packets it injects (protocol, section 6).

use super::learning::Counting;
use crate::control::{Entry, EntryId, KeyedRecord, Location};
use crate::storage::Record;
use switchback_wire::{
    Address, HEADER_BYTES, Header, Heard, KeyHash, Map, Op, PACKET_BYTES_MAX, Packet, Place, Seq,
    Status, record_flags,
};

/// A datapath as its agent sees it.
pub trait Target {
    /// Runs a control packet through the pipeline; false if it was not answered.
    fn inject(&mut self, packet: &mut Packet) -> bool;

    /// Makes the key of this hash be found at `at`; false if its place in the table is taken.
    fn lookup_insert(&mut self, hash: &KeyHash, at: Location) -> bool;

    /// Undoes [`Target::lookup_insert`].
    fn lookup_remove(&mut self, hash: &KeyHash, at: Location);

    /// Forgets everything cached, counted, completed. The epoch is 0 while this runs, so that no
    /// packet is served.
    fn clear(&mut self);

    /// Partitions and their replicas. The epoch is 0 while this runs, unless the ranges stay as
    /// they were: of a change of views a packet may meet a part, and its node drops it then.
    fn set_map(&mut self, map: &Map);

    /// Address of a node.
    fn set_node(&mut self, node: u16, address: Address);

    /// Its place in its chain of switches; the only one's until then. The epoch is 0 while this
    /// runs.
    fn set_place(&mut self, place: &Place);

    /// Lanes granted.
    fn set_lanes(&mut self, lanes: u32);

    /// How keys are counted from now on; how many offers were left of those before.
    fn set_counting(&mut self, counting: Counting) -> u32;

    /// Takes the next report; false if there is none.
    fn next_report(&mut self, packet: &mut Packet) -> bool;

    /// How many requests missed the cache, ever.
    fn misses(&self) -> u64;

    /// How many reads, writes and deletes came, ever.
    fn requests(&self) -> u64;

    /// How much of the epoch's sequence numbers the fullest bucket has used, in 256ths; 0 below
    /// half.
    fn sequence_used(&self) -> u32;

    /// Sends a packet to another switch of the chain, from where this one takes packets. False if
    /// nothing between them can lose it, so that there is nothing to find out.
    fn probe(&mut self, to: Address, packet: &Packet) -> bool {
        let _ = (to, packet);
        false
    }

    /// How many probes of its neighbours arrived, ever.
    fn heard(&self) -> Heard {
        Heard::default()
    }

    /// Why it can't be driven any more, if so. It serves nothing then; what it says, and what was
    /// done, is void.
    fn failure(&self) -> Option<&str> {
        None
    }

    /// Slots of each class: `(value bytes, slots)`.
    fn classes(&self) -> Vec<(u32, u32)>;

    /// Counters in a row of the sketch.
    fn sketch_width(&self) -> u32;
}

/// A record as a control packet or report brings it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedRecord {
    /// Incarnation of its entry.
    pub entry: EntryId,
    /// The record with its key.
    pub keyed: KeyedRecord,
    /// No node has it.
    pub dirty: bool,
    /// Snapshot generation of its last change.
    pub generation: u32,
}

impl LoadedRecord {
    /// Reads an answer to LOAD_RECORD or EVICT_BEGIN, or a report.
    pub(super) fn from_packet(packet: &Packet) -> Option<LoadedRecord> {
        let parts = packet.parse().ok()?;
        let header = parts.header;
        let record = Record {
            seq: header.seq,
            tombstone: header.record_flags & record_flags::TOMBSTONE != 0,
            expiry_ms: header.expiry_ms,
            value: parts.value.to_vec(),
            since: None,
        };
        Some(LoadedRecord {
            entry: header.request,
            keyed: KeyedRecord { hash: header.key_hash, key: parts.key.to_vec(), record },
            dirty: header.record_flags & record_flags::DIRTY != 0 && header.seq > Seq::NONE,
            generation: header.generation,
        })
    }

    /// The record, if a node needs it.
    pub(super) fn if_dirty(self) -> Option<KeyedRecord> {
        self.dirty.then_some(self.keyed)
    }
}

/// Injects control packets.
pub(super) struct Inject<'a> {
    pub(super) target: &'a mut dyn Target,
    pub(super) packet: &'a mut Packet,
    pub(super) epoch: u32,
}

impl Inject<'_> {
    fn run(&mut self, header: Header, key: &[u8]) -> bool {
        self.run_in(self.epoch, header, key)
    }

    fn run_in(&mut self, epoch: u32, header: Header, key: &[u8]) -> bool {
        self.packet.fill(&Header { epoch, ..header }, &[], key);
        self.target.inject(self.packet)
            && self.packet.parse().is_ok_and(|parts| parts.header.status == Status::Ok)
    }

    fn header(op: Op, entry: &Entry) -> Header {
        let mut header = Header::new(op);
        header.location = entry.at.in_packet();
        header.request = entry.id;
        header.key_hash = entry.hash;
        header
    }

    fn on_entry(&mut self, op: Op, entry: &Entry) -> bool {
        self.run(Inject::header(op, entry), &entry.key)
    }

    /// Makes the slot a hollow record, findable, then valid. False if the lookup table refuses the
    /// key.
    pub(super) fn admit(&mut self, entry: &Entry) -> bool {
        let counted = Header { guard: entry.count.into(), ..Inject::header(Op::Admit, entry) };
        if !self.run(counted, &entry.key) {
            return false;
        }
        if !self.target.lookup_insert(&entry.hash, entry.at) {
            self.on_entry(Op::Remove, entry);
            return false;
        }
        self.on_entry(Op::SetValid, entry)
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        self.on_entry(Op::Remove, entry);
        self.target.lookup_remove(&entry.hash, entry.at);
    }

    pub(super) fn evict_begin(&mut self, entry: &Entry) -> Option<LoadedRecord> {
        self.on_entry(Op::EvictBegin, entry)
            .then(|| LoadedRecord::from_packet(self.packet))
            .flatten()
    }

    pub(super) fn load(&mut self, entry: &Entry) -> Option<LoadedRecord> {
        self.on_entry(Op::LoadRecord, entry)
            .then(|| LoadedRecord::from_packet(self.packet))
            .flatten()
    }

    /// The record isn't dirty any more, if this is its version still.
    pub(super) fn clean(&mut self, entry: &Entry, seq: Seq) {
        self.run(Header { seq, ..Inject::header(Op::Clean, entry) }, &entry.key);
    }

    /// The access counter of a slot.
    pub(super) fn counter(&mut self, at: Location) -> u32 {
        let header =
            Header { location: at.in_packet(), total_bytes: 1, ..Header::new(Op::LoadCounters) };
        if !self.run(header, &[0]) {
            return 0;
        }
        let counters =
            self.packet.parse().ok().and_then(|parts| parts.value.first_chunk::<4>().copied());
        counters.map_or(0, u32::from_be_bytes)
    }

    pub(super) fn set_epoch(&mut self, epoch: u32, generation: u32) -> bool {
        self.run_in(epoch, Header { generation, ..Header::new(Op::SetEpoch) }, &[0])
    }

    pub(super) fn snapshot_begin(&mut self, generation: u32) -> bool {
        self.run(Header { generation, ..Header::new(Op::SnapshotBegin) }, &[0])
    }

    pub(super) fn snapshot_end(&mut self) {
        self.run(Header::new(Op::SnapshotEnd), &[0]);
    }

    pub(super) fn set_durable_generation(&mut self, durable_generation: u32) {
        self.run(Header { durable_generation, ..Header::new(Op::SetDurableGeneration) }, &[0]);
    }

    /// Halves all counts, a stretch at a time: the datapath goes on counting meanwhile.
    pub(super) fn age(&mut self) {
        const STRETCH: u32 = 1024;
        for location in (0..self.target.sketch_width()).step_by(STRETCH as usize) {
            let total_bytes = STRETCH.min(self.target.sketch_width() - location);
            self.halve(Header { location, total_bytes, ..Header::new(Op::AgeSketch) });
        }
        for (class, (_, slots)) in self.target.classes().into_iter().enumerate() {
            for slot in (0..slots).step_by(STRETCH as usize) {
                let total_bytes = STRETCH.min(slots - slot);
                let location = Location { class: class as u8, slot }.in_packet();
                self.halve(Header { location, total_bytes, ..Header::new(Op::AgeCounters) });
            }
        }
    }

    fn halve(&mut self, header: Header) {
        self.run(Header { guard: 1, ..header }, &[0]);
    }

    /// Sends each neighbour a short probe and one as long as a packet can be, which a link with too
    /// small an MTU loses (rule 28). How many of theirs arrived; `None` if nothing can be lost.
    pub(super) fn probe(&mut self, place: &Place) -> Option<Heard> {
        const FILLING: [u8; PACKET_BYTES_MAX - HEADER_BYTES - 1] =
            [0; PACKET_BYTES_MAX - HEADER_BYTES - 1];
        let header = Header { epoch: self.epoch, hop: place.position, ..Header::new(Op::Probe) };
        let mut can_lose = false;
        for to in [place.before, place.after].into_iter().flatten() {
            for value in [&FILLING[..0], &FILLING] {
                self.packet.fill(&header, value, &[0]);
                can_lose |= self.target.probe(to, self.packet);
            }
        }
        can_lose.then(|| self.target.heard())
    }
}
