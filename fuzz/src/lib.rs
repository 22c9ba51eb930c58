//! What the targets share: packets and control messages drawn from the fuzzer's bytes. Most are in
//! order (of this rack, of its epoch, about one of a few keys), so that they reach states that need
//! several of them; the others differ in one thing from what would be.

pub mod storage;

use libfuzzer_sys::arbitrary::Unstructured;
use switchback_core::Now;
use switchback_core::control::{Entry, KeyedRecord, Location, Message, Offer};
use switchback_core::storage::{OfferId, Record};
use switchback_core::topology::ChainId;
use switchback_wire::{
    Address, EPOCH_MAX, HashKey, Header, KEY_BYTES_MAX, KeyHash, Map, Op, Packet, RoutingKey, Seq,
    Status,
};

/// Steps that a target takes of one input at most.
pub const STEPS_MAX: usize = 256;
/// The rack's hash key.
pub const HASH_KEY: HashKey = HashKey([3; 16]);
/// Where its switch is.
pub const SWITCH: Address = Address::in_memory(2, 0);
/// Where its client is.
pub const CLIENT: Address = Address::in_memory(1, 0);
/// Its partitions.
pub const PARTITIONS: u16 = 4;
/// Lanes granted.
pub const LANES: u32 = 8;
/// Keys that it is about.
const KEYS: u8 = 6;

/// Where a node is.
pub fn node(index: u16) -> Address {
    Address::in_memory(3, index)
}

/// Its partitions, with one replica each, of two nodes in turn.
pub fn map() -> Map {
    Map::equal((0..PARTITIONS).map(|partition| vec![partition % 2]).collect())
}

/// A clock that moves when the input says so.
pub const START: Now = Now { monotonic_us: 1_000_000, unix_ms: 1_800_000_000_000 };

/// Draws from the fuzzer's bytes; zeros once they are used up.
pub struct Draw<'a>(Unstructured<'a>);

impl<'a> Draw<'a> {
    /// A chain of switches, mostly one that there is.
    pub fn chain(&mut self) -> ChainId {
        ChainId::new(if self.once_in(16) { self.edgy() as u16 } else { self.below(2) as u16 })
    }

    /// A chain that may be found on a disk.
    pub fn found_chain(&mut self) -> ChainId {
        ChainId::new(self.below(2) as u16)
    }

    /// Over an input.
    pub fn new(bytes: &'a [u8]) -> Draw<'a> {
        Draw(Unstructured::new(bytes))
    }

    /// Whether there is nothing left to draw from.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.arbitrary().unwrap_or(0)
    }

    /// A number below `end`, to 256.
    pub fn below(&mut self, end: u32) -> u32 {
        u32::from(self.byte()) % end
    }

    /// True for one byte in `of`.
    pub fn once_in(&mut self, of: u32) -> bool {
        self.below(of) == of - 1
    }

    /// One of these.
    pub fn one<'b, T>(&mut self, of: &'b [T]) -> &'b T {
        &of[self.below(of.len() as u32) as usize]
    }

    /// A small number, or one of those at which something ends.
    pub fn edgy(&mut self) -> u64 {
        match self.below(16) {
            12 => self.number(),
            13 => u64::from(u32::MAX),
            14 => u64::MAX,
            15 => 1 << 40,
            small => u64::from(small as u8 % 4) + u64::from(self.byte() % 4),
        }
    }

    /// A sequence number of epoch `epoch` or of its neighbours, or any.
    pub fn seq(&mut self, epoch: u32) -> Seq {
        let epoch = epoch.min(EPOCH_MAX);
        match self.below(16) {
            14 => Seq(self.edgy()),
            15 => Seq::NONE,
            13 => Seq::new(epoch.saturating_sub(1), self.byte().into()),
            _ => Seq::new(epoch, self.byte().into()),
        }
    }

    /// Bytes for a value: few, or as many as fit, or more than that.
    pub fn value(&mut self, bytes_max: usize) -> Vec<u8> {
        let bytes = match self.below(8) {
            0 => 0,
            6 => usize::from(self.byte()) * 6,
            7 => bytes_max,
            _ => usize::from(self.byte() % 16),
        };
        vec![self.byte(); bytes.min(bytes_max)]
    }

    /// One of a few keys; some are longer than what is cached.
    pub fn key(&mut self) -> Vec<u8> {
        match self.byte() % KEYS {
            4 => vec![b'l'; 129],
            5 => vec![b'L'; KEY_BYTES_MAX],
            index => vec![b'k', b'e', b'y', index],
        }
    }

    /// A key, and nearly always its hash.
    pub fn named_key(&mut self) -> (KeyHash, Vec<u8>) {
        let key = self.key();
        let hash = if self.once_in(16) { KeyHash([self.byte(); 16]) } else { HASH_KEY.hash(&key) };
        (hash, key)
    }

    /// A record of this epoch.
    pub fn record(&mut self, epoch: u32) -> Record {
        let tombstone = self.once_in(4);
        Record {
            seq: self.seq(epoch),
            tombstone,
            expiry_ms: if self.once_in(4) { START.unix_ms + u64::from(self.byte()) } else { 0 },
            value: if tombstone { Vec::new() } else { self.value(2048) },
            since: None,
        }
    }

    /// A record with its key.
    pub fn keyed_record(&mut self, epoch: u32) -> KeyedRecord {
        let (hash, key) = self.named_key();
        KeyedRecord { hash, key, record: self.record(epoch) }
    }

    /// Some of what `item` draws.
    pub fn some<T>(&mut self, mut item: impl FnMut(&mut Draw<'a>) -> T) -> Vec<T> {
        (0..self.below(5)).map(|_| item(self)).collect()
    }

    /// A place in a switch: mostly one that there is.
    pub fn location(&mut self) -> Location {
        let strange = self.once_in(16);
        let (class, slot) = (self.byte(), self.byte());
        if strange {
            return Location { class, slot: self.number() as u32 };
        }
        Location { class: class % 2, slot: u32::from(slot % 8) }
    }

    /// An entry of the cache.
    pub fn entry(&mut self) -> Entry {
        let (hash, key) = self.named_key();
        Entry { id: self.edgy(), at: self.location(), hash, key, count: self.edgy() as u32 }
    }

    /// An offer of a node.
    pub fn offer(&mut self) -> Offer {
        let (hash, key) = self.named_key();
        let (value_bytes, count) = (self.edgy() as u32, self.edgy() as u32);
        Offer { id: OfferId::from_bits(self.edgy()), hash, key, value_bytes, count }
    }

    /// An offer, as the controller names it.
    pub fn named_offer(&mut self) -> (KeyHash, OfferId) {
        (self.named_key().0, OfferId::from_bits(self.edgy()))
    }

    /// A header about a key: of this epoch, and in the key's partition, but now and then.
    pub fn header(&mut self, ops: &[Op], epoch: u32) -> (Header, Vec<u8>) {
        let (key_hash, key) = self.named_key();
        let op = *self.one(ops);
        let partition = map().of(key_hash).number;
        let mut header =
            Header { epoch, key_hash, routing: key_hash.routing(), partition, ..Header::new(op) };
        header.lane = self.below(LANES);
        header.request = u64::from(self.byte() % 4);
        header.flags = self.number() as u16;
        header.seq = self.seq(epoch);
        header.guard = if self.once_in(2) { self.seq(epoch).0 } else { 0 };
        header.total_bytes = match self.below(8) {
            6 => switchback_wire::VALUE_BYTES_MAX as u32 + u32::from(self.byte()),
            7 => self.edgy() as u32,
            _ => 1_200 * (1 + u32::from(self.byte() % 8)),
        };
        header.fragment_index =
            if self.once_in(8) { self.edgy() as u16 } else { self.below(8) as u16 };
        header.fragment_count =
            if self.once_in(8) { self.edgy() as u16 } else { self.below(40) as u16 };
        if self.once_in(4) {
            header.status = *self.one(Status::ALL);
            header.generation = self.below(4);
            header.durable_generation = self.below(4);
            header.record_flags = self.byte();
            header.expiry_ms = START.unix_ms + self.edgy() % 10_000;
            header.hop = self.byte() % 4;
            header.tenant = self.byte().into();
            header.location = u32::from(self.byte() % 3) << 30 | self.edgy() as u32;
            header.ttl = self.byte() % 4;
            (header.tag, header.session) = (self.edgy(), self.edgy() as u32);
            header.view = self.edgy() as u32;
        }
        match self.below(32) {
            28 => header.routing = RoutingKey(self.number().into()),
            29 => header.epoch = self.number() as u32 & switchback_wire::EPOCH_MAX,
            30 => header.partition = self.number() as u16,
            31 => header.lane = self.edgy() as u32,
            _ => {}
        }
        (header, key)
    }

    /// A packet about a key, a few of which are damaged on their way.
    pub fn packet(&mut self, ops: &[Op], epoch: u32) -> Packet {
        let (header, key) = self.header(ops, epoch);
        let room = switchback_wire::fragment_bytes(key.len());
        let part = room.min(
            (header.total_bytes as usize).saturating_sub(usize::from(header.fragment_index) * room),
        );
        let is_part = matches!(header.op, Op::Fragment | Op::ReadFragmentReply) || self.once_in(8);
        let value = if is_part { vec![self.byte(); part] } else { self.value(room) };
        let packet = Packet::build(header, &value, &key);
        self.damaged(packet)
    }

    /// The packet, or once in a while one that differs in a byte, or ends early.
    pub fn damaged(&mut self, mut packet: Packet) -> Packet {
        if self.once_in(32) {
            let at = self.number() as usize % packet.bytes().len();
            packet.buffer_mut()[at] = self.byte();
        }
        if self.once_in(64) {
            let length = self.number() as usize % packet.bytes().len();
            packet.set_length(length);
        }
        packet
    }

    /// The message as it arrives at its receiver: encoded, once in a while damaged, decoded and
    /// checked. `None` if it is refused.
    pub fn arrived(&mut self, message: &Message) -> Option<Message> {
        let mut bytes = postcard::to_stdvec(message).expect("plain data has an encoding");
        if self.once_in(16) {
            let at = self.number() as usize % bytes.len();
            bytes[at] = self.byte();
        }
        Message::decode(&bytes).ok()
    }

    /// A file that differs in a byte, or ends early; or any few bytes.
    pub fn damaged_file(&mut self, whole: &[u8]) -> Vec<u8> {
        let mut bytes = whole.to_vec();
        match self.below(4) {
            0 => bytes = self.some(Draw::number).into_iter().flat_map(u64::to_be_bytes).collect(),
            1 => bytes.truncate(self.number() as usize % (whole.len() + 1)),
            _ if whole.is_empty() => {}
            _ => {
                let at = self.number() as usize % whole.len();
                bytes[at] = self.byte();
            }
        }
        bytes
    }

    /// Time passes: a moment, or long enough for anything to be due.
    pub fn pass(&mut self, now: &mut Now) {
        let us = match self.below(8) {
            6 => 10_000_000,
            7 => 100_000_000,
            small => 1 << (2 * small + 5),
        };
        now.monotonic_us += us;
        now.unix_ms += us / 1_000;
    }
}
