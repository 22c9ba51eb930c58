//! The state behind the packets, as vectors describe it. For tests: everything else goes through
//! packets.

use crate::{Datapath, ffi};
use switchback_wire::{KeyHash, Place};

/// Bits of [`Record::state`]; the first four are `guard` of LOAD_RECORD.
pub mod bits {
    /// Serves.
    pub const VALID: u8 = 1;
    /// The newest version there is.
    pub const LATEST: u8 = 2;
    /// To be evicted.
    pub const EVICTING: u8 = 4;
    /// NetCache: the node's update is on its way.
    pub const REFRESH: u8 = 8;
    /// The record is a delete.
    pub const TOMBSTONE: u8 = 16;
    /// No node has this version yet.
    pub const DIRTY: u8 = 32;
    /// Made upon the version before it: nothing may stand in between.
    pub const DEPENDENT: u8 = 64;
}

/// States of a [`Lane`]; `guard` of LOAD_LANE.
pub mod lane {
    /// Never used.
    pub const NONE: u8 = 0;
    /// Absorbed by the switch.
    pub const APPLIED: u8 = 1;
    /// Failed at the switch.
    pub const CONDITION_FAILED: u8 = 2;
    /// At the node.
    pub const FORWARDED: u8 = 3;
    /// Answered by the node.
    pub const DONE: u8 = 4;
}

/// A record's state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // Section 4 of the protocol.
pub struct Record {
    pub state: u8,
    pub seq: u64,
    pub adm: u64,
    pub expiry_ms: u64,
    pub generation: u32,
    pub incarnation: u64,
    pub counter: u32,
    pub hash: KeyHash,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A lane's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)] // Section 3 of the protocol.
pub struct Lane {
    pub request: u64,
    pub seq: u64,
    pub state: u8,
    pub status: u8,
    /// CACHED if it was forwarded so.
    pub flags: u16,
    pub locked: bool,
    /// In which it was made.
    pub epoch: u32,
}

/// What all packets share.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct Registers {
    pub epoch: u32,
    pub generation: u32,
    pub durable_generation: u32,
    pub snapshot_active: bool,
    pub place: Place,
}

impl Datapath {
    /// A record as it is; `None` if there is no such slot.
    pub fn peek_record(&self, class: u8, slot: u32) -> Option<Record> {
        let image = self.handle.peek_record(switchback_wire::location(class, slot)?)?;
        let mut hash = KeyHash::default();
        hash.0[..8].copy_from_slice(&image.hash_high.to_be_bytes());
        hash.0[8..].copy_from_slice(&image.hash_low.to_be_bytes());
        Some(Record {
            state: image.state,
            seq: image.seq,
            adm: image.adm,
            expiry_ms: image.expiry_ms,
            generation: image.generation,
            incarnation: image.incarnation,
            counter: image.counter,
            hash,
            key: image.key[..usize::from(image.key_bytes)].to_vec(),
            value: image.value[..usize::from(image.value_bytes)].to_vec(),
        })
    }

    /// Replaces a record; false if there is no such slot or its value doesn't fit.
    pub fn poke_record(&self, class: u8, slot: u32, record: &Record) -> bool {
        let Some(location) = switchback_wire::location(class, slot) else { return false };
        let mut image = ffi::RecordImage {
            seq: record.seq,
            adm: record.adm,
            expiry_ms: record.expiry_ms,
            incarnation: record.incarnation,
            hash_high: record.hash.position(),
            hash_low: record.hash.low(),
            generation: record.generation,
            counter: record.counter,
            value_bytes: record.value.len() as u16,
            key_bytes: record.key.len() as u16,
            state: record.state,
            reserved: [0; 3],
            key: [0; 128],
            value: [0; switchback_wire::CACHED_VALUE_BYTES_MAX],
        };
        let (Some(key), Some(value)) =
            (image.key.get_mut(..record.key.len()), image.value.get_mut(..record.value.len()))
        else {
            return false;
        };
        key.copy_from_slice(&record.key);
        value.copy_from_slice(&record.value);
        self.handle.poke_record(location, &image)
    }

    /// A lane's entry as it is.
    pub fn peek_lane(&self, lane: u32) -> Option<Lane> {
        let image = self.handle.peek_lane(lane)?;
        let (request, seq, locked) = (image.request, image.seq, image.locked != 0);
        Some(Lane {
            request,
            seq,
            state: image.state,
            status: image.status,
            flags: image.flags,
            locked,
            epoch: image.epoch,
        })
    }

    /// Replaces a lane's entry; no packet of it may be in flight.
    pub fn poke_lane(&self, lane: u32, entry: &Lane) -> bool {
        let image = ffi::LaneImage {
            request: entry.request,
            seq: entry.seq,
            state: entry.state,
            status: entry.status,
            flags: entry.flags,
            locked: entry.locked.into(),
            reserved: [0; 3],
            epoch: entry.epoch,
            padding: 0,
        };
        self.handle.poke_lane(lane, &image)
    }

    /// The registers as they are.
    pub fn peek_registers(&self) -> Registers {
        let image = self.handle.peek_registers();
        Registers {
            epoch: image.epoch,
            generation: image.generation,
            durable_generation: image.durable_generation,
            snapshot_active: image.snapshot_active != 0,
            place: Place::decode(&image.place.0),
        }
    }

    /// Replaces the registers.
    pub fn poke_registers(&self, registers: &Registers) {
        self.handle.poke_registers(&ffi::RegistersImage {
            epoch: registers.epoch,
            generation: registers.generation,
            durable_generation: registers.durable_generation,
            snapshot_active: registers.snapshot_active.into(),
            place: ffi::ChainPlace(registers.place.encode()),
        });
    }

    /// The last counter that was given out in this key's bucket.
    pub fn peek_sequence(&self, hash: &KeyHash) -> u64 {
        self.handle.peek_sequence(hash)
    }

    /// Makes this the last counter that was given out.
    pub fn poke_sequence(&self, hash: &KeyHash, counter: u64) {
        self.handle.poke_sequence(hash, counter);
    }

    /// Makes this the key's estimate in the sketch.
    pub fn poke_sketch(&self, hash: &KeyHash, estimate: u32) {
        self.handle.poke_sketch(hash, estimate);
    }
}
