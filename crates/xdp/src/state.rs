//! The state behind the packets, as vectors describe it: the twin of
//! [`switchback_datapath::state`]. For tests.

use crate::layout::{Fields, FieldsMut, place};
use crate::{XdpDatapath, hash_key};
use switchback_datapath::state::{Lane, Record, Registers};
use switchback_wire::{KeyHash, location};

impl XdpDatapath {
    /// A slot's place among the counters of all classes.
    fn index(&self, class: u8, slot: u32) -> u32 {
        self.config.classes.iter().take(usize::from(class)).map(|class| class.slots).sum::<u32>()
            + slot
    }

    /// Where a slot's record and value are, and their bytes.
    fn slot(&self, class: u8, slot: u32) -> (usize, usize) {
        let class = usize::from(class);
        (self.chunks.place(class, slot), self.chunks.slot_bytes[class] as usize)
    }

    fn array(&self, map: &str, index: u32) -> Option<Vec<u8>> {
        self.calls.lookup(map, &index.to_ne_bytes()).ok().flatten()
    }

    /// A record as it is; `None` if there is no such slot.
    pub fn peek_record(&self, class: u8, slot: u32) -> Option<Record> {
        location(class, slot).filter(|_| usize::from(class) < self.config.classes.len())?;
        if slot >= self.config.classes[usize::from(class)].slots {
            return None;
        }
        let index = self.index(class, slot);
        let (at, length) = self.slot(class, slot);
        loop {
            let before = self.slots.get_u32(at + place("record.version"));
            let bytes = self.slots.get(at, length);
            if before.is_multiple_of(2)
                && before == self.slots.get_u32(at + place("record.version"))
            {
                let (record, value) = bytes.split_at(place("size.record"));
                return Some(self.record(record, value, index));
            }
        }
    }

    fn record(&self, bytes: &[u8], value: &[u8], index: u32) -> Record {
        let fields = Fields { of: "record", bytes };
        let mut hash = KeyHash::default();
        hash.0[..8].copy_from_slice(&fields.u64("hash_high").to_be_bytes());
        hash.0[8..].copy_from_slice(&fields.u64("hash_low").to_be_bytes());
        let counter = self.array("counters", index).unwrap_or_default();
        Record {
            state: fields.u8("state"),
            seq: fields.u64("seq"),
            adm: fields.u64("adm"),
            expiry_ms: fields.u64("expiry_ms"),
            generation: fields.u32("generation"),
            incarnation: fields.u64("incarnation"),
            counter: counter.first_chunk::<4>().map_or(0, |bytes| u32::from_ne_bytes(*bytes)),
            hash,
            key: fields.bytes("key", usize::from(fields.u16("key_bytes"))).to_vec(),
            value: value[..usize::from(fields.u16("value_bytes"))].to_vec(),
        }
    }

    /// Replaces a record; false if there is no such slot or its value doesn't fit. No packet of it
    /// may be in flight.
    pub fn poke_record(&self, class: u8, slot: u32, record: &Record) -> bool {
        let Some(size) = self.config.classes.get(usize::from(class)) else { return false };
        if slot >= size.slots
            || record.value.len() > size.value_bytes as usize
            || record.key.len() > 128
        {
            return false;
        }
        let (at, length) = self.slot(class, slot);
        let mut bytes = vec![0; place("size.record")];
        let mut fields = FieldsMut { of: "record", bytes: &mut bytes };
        fields.set("state", &[record.state]);
        fields.set("seq", &record.seq.to_ne_bytes());
        fields.set("adm", &record.adm.to_ne_bytes());
        fields.set("expiry_ms", &record.expiry_ms.to_ne_bytes());
        fields.set("generation", &record.generation.to_ne_bytes());
        fields.set("incarnation", &record.incarnation.to_ne_bytes());
        fields.set("hash_high", &record.hash.position().to_ne_bytes());
        fields.set("hash_low", &record.hash.low().to_ne_bytes());
        fields.set("key_bytes", &(record.key.len() as u16).to_ne_bytes());
        fields.set("value_bytes", &(record.value.len() as u16).to_ne_bytes());
        fields.set("key", &record.key);
        let index = self.index(class, slot);
        bytes.extend(&record.value);
        bytes.resize(length, 0);
        self.slots.set(at, &bytes);
        self.update("counters", &index.to_ne_bytes(), &record.counter.to_ne_bytes());
        true
    }

    /// A lane's entry as it is.
    pub fn peek_lane(&self, lane: u32) -> Option<Lane> {
        let bytes = self.array("lanes", lane)?;
        let fields = Fields { of: "lane", bytes: &bytes };
        Some(Lane {
            request: fields.u64("request"),
            seq: fields.u64("seq"),
            state: fields.u8("state"),
            status: fields.u8("status"),
            flags: fields.u16("flags"),
            locked: fields.u32("locked") != 0,
            epoch: fields.u32("epoch"),
        })
    }

    /// Replaces a lane's entry; no packet of it may be in flight.
    pub fn poke_lane(&self, lane: u32, entry: &Lane) -> bool {
        if lane >= self.config.lanes {
            return false;
        }
        let mut bytes = vec![0; place("size.lane")];
        let mut fields = FieldsMut { of: "lane", bytes: &mut bytes };
        fields.set("locked", &u32::from(entry.locked).to_ne_bytes());
        fields.set("state", &[entry.state]);
        fields.set("status", &[entry.status]);
        fields.set("flags", &entry.flags.to_ne_bytes());
        fields.set("request", &entry.request.to_ne_bytes());
        fields.set("seq", &entry.seq.to_ne_bytes());
        fields.set("epoch", &entry.epoch.to_ne_bytes());
        self.update("lanes", &lane.to_ne_bytes(), &bytes);
        true
    }

    /// The registers as they are.
    pub fn peek_registers(&self) -> Registers {
        let snapshot = self.shared.get_u64(place("registers.snapshot"));
        Registers {
            epoch: self.shared.get_u32(place("registers.epoch")),
            generation: (snapshot >> 32) as u32,
            durable_generation: self.shared.get_u32(place("registers.durable_generation")),
            snapshot_active: snapshot & 1 != 0,
            place: self.place(),
        }
    }

    /// Replaces the registers.
    pub fn poke_registers(&self, registers: &Registers) {
        let snapshot = u64::from(registers.generation) << 32 | u64::from(registers.snapshot_active);
        self.shared.set_u32(place("registers.epoch"), registers.epoch);
        self.shared.set_u32(place("registers.durable_generation"), registers.durable_generation);
        self.shared.set_u64(place("registers.snapshot"), snapshot);
        self.take_place(&registers.place);
    }

    fn bucket(hash: &KeyHash) -> u32 {
        (hash.low() % place("constant.SEQUENCE_BUCKETS") as u64) as u32
    }

    /// The last counter that was given out in this key's bucket.
    pub fn peek_sequence(&self, hash: &KeyHash) -> u64 {
        let bytes = self.array("sequences", XdpDatapath::bucket(hash)).unwrap_or_default();
        bytes.first_chunk::<8>().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }

    /// Makes this the last counter that was given out.
    pub fn poke_sequence(&self, hash: &KeyHash, counter: u64) {
        let index = XdpDatapath::bucket(hash).to_ne_bytes();
        self.update("sequences", &index, &counter.to_ne_bytes());
    }

    /// Makes this the key's estimate in the sketch.
    pub fn poke_sketch(&self, hash: &KeyHash, estimate: u32) {
        let key = hash_key(hash);
        let half = |at: usize| u32::from_ne_bytes(key[at..at + 4].try_into().expect("4 bytes"));
        // The high half of each word first, whatever the machine's byte order.
        let swap = cfg!(target_endian = "little");
        let order = if swap { [4, 0, 12, 8] } else { [0, 4, 8, 12] };
        for (row, at) in order.into_iter().enumerate() {
            let index =
                row as u32 * self.config.sketch_width + (half(at) & (self.config.sketch_width - 1));
            self.update("sketches", &index.to_ne_bytes(), &estimate.to_ne_bytes());
        }
    }
}
