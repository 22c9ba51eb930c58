//! What the kernel reports, through ring buffers.

use crate::Error;
use crate::layout::{Fields, place};
use crate::object::Loaded;
use libbpf_rs::RingBufferBuilder;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, io};
use switchback_datapath::state::bits;
use switchback_wire::{Address, Header, KeyHash, Op, Packet, Seq, record_flags};
use zerocopy::FromBytes as _;

/// Reports taken from a ring at once. The others wait in it; what finds no room there is counted.
const TAKEN_MAX: usize = 64;

/// A ring buffer's end, and what was taken from it.
struct Ring {
    /// Has the kernel's entries put into `taken`, at most [`TAKEN_MAX`]; negative: an error's
    /// number.
    consume: Box<dyn FnMut() -> i32 + Send>,
    taken: Arc<Mutex<VecDeque<Vec<u8>>>>,
}

impl Ring {
    fn new(loaded: &Loaded, map: &str) -> Result<Ring, Error> {
        let taken = Arc::<Mutex<VecDeque<Vec<u8>>>>::default();
        let to = Arc::clone(&taken);
        let push = move |bytes: &[u8]| {
            to.lock().unwrap_or_else(PoisonError::into_inner).push_back(bytes.to_vec());
            0
        };
        let mut builder = RingBufferBuilder::new();
        builder.add(loaded.map(map), push)?;
        let kernel = builder.build()?;
        Ok(Ring { consume: Box::new(move || kernel.consume_raw_n(TAKEN_MAX)), taken })
    }

    fn pop(&self) -> Option<Vec<u8>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if let Some(entry) = self.pop() {
            return Ok(Some(entry));
        }
        match (self.consume)() {
            error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
            _ => Ok(self.pop()),
        }
    }
}

/// The ends of the rings.
pub(crate) struct Reports {
    records: Ring,
    unreached: Ring,
}

impl Reports {
    pub(crate) fn new(loaded: &Loaded) -> Result<Reports, Error> {
        let (records, unreached) = (Ring::new(loaded, "reports")?, Ring::new(loaded, "unreached")?);
        Ok(Reports { records, unreached })
    }

    /// Reports of no kernel: reading them gives this number, again and again.
    #[cfg(test)]
    pub(crate) fn answering(number: i32) -> Reports {
        let ring = || Ring { consume: Box::new(move || number), taken: Arc::default() };
        Reports { records: ring(), unreached: ring() }
    }

    /// Takes the next report; false if there is none.
    pub(crate) fn next(&mut self, packet: &mut Packet) -> io::Result<bool> {
        let report = self.records.next()?;
        Ok(report.is_some_and(|report| {
            fill(packet, &report);
            true
        }))
    }

    pub(crate) fn next_unreached(&mut self) -> io::Result<Option<Address>> {
        let address = |bytes: Vec<u8>| Some(Address::read_from_prefix(&bytes).ok()?.0);
        Ok(self.unreached.next()?.and_then(address))
    }
}

impl fmt::Debug for Reports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reports").finish_non_exhaustive()
    }
}

/// `struct report` of tables_bpf.h, in front of the record.
const REPORT_BYTES: usize = 16;

/// A report as the packet that native.c makes of it.
fn fill(packet: &mut Packet, report: &[u8]) {
    let word = |at: usize| u32::from_ne_bytes(report[at..at + 4].try_into().expect("4 bytes"));
    let (op, location, epoch) = (word(0), word(4), word(8));
    let record = Fields { of: "record", bytes: &report[REPORT_BYTES..] };
    let state = record.u8("state");
    let mut hash = KeyHash::default();
    hash.0[..8].copy_from_slice(&record.u64("hash_high").to_be_bytes());
    hash.0[8..].copy_from_slice(&record.u64("hash_low").to_be_bytes());
    let op = if op == Op::Original as u32 { Op::Original } else { Op::EvictMe };
    let flag = |bit, flag| if state & bit != 0 { flag } else { 0 };
    let header = Header {
        epoch,
        location,
        seq: Seq(record.u64("seq")),
        guard: u64::from(state & (bits::VALID | bits::LATEST | bits::EVICTING | bits::REFRESH)),
        request: record.u64("incarnation"),
        generation: record.u32("generation"),
        key_hash: hash,
        expiry_ms: record.u64("expiry_ms"),
        record_flags: flag(bits::TOMBSTONE, record_flags::TOMBSTONE)
            | flag(bits::DIRTY, record_flags::DIRTY),
        ttl: 0, // it goes nowhere
        ..Header::new(op)
    };
    let value_at = REPORT_BYTES + place("size.record");
    let value = &report[value_at..value_at + usize::from(record.u16("value_bytes"))];
    packet.fill(&header, value, record.bytes("key", usize::from(record.u16("key_bytes"))));
}
