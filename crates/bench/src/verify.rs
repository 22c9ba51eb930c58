//! Checks that clients read what was written.
//!
//! Every answer carries the record's version ([`Seq`]), and versions order all writes of a key. So
//! a table with the newest version of each record that any client knows of, by an acknowledgement
//! or a read, is enough to check each answer when it comes:
//!
//! - a read returns a version that is not older than the newest one known *when the read began*: no
//!   acknowledged write is lost, no read is stale, no value that was seen is taken back;
//! - a write gets a version newer than the newest one known when it began;
//! - a conditional write is done only if no version newer than the expected one was known when it
//!   began, and refused only for another version;
//! - one version has one value for all clients;
//! - a value is whole, belongs to this record, and is one that its writer has written ([`Stamp`]);
//!   one of fewer than [`STAMP_BYTES`] only has the record's length;
//! - a record that was stored is found.
//!
//! These are the conditions under which the history of a key is linearizable with versions as its
//! order, except that a version which two clients never both saw isn't compared. Afterwards every
//! record in the table is read once more.

use crate::workload::{Lengths, PRELOADED, STAMP_BYTES, Stamp, ValueError, mix};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use switchback_wire::Seq;

/// Records of one chunk of the table; chunks exist once one of their records is touched.
const CHUNK: u64 = 1 << 16;
const CHUNKS: u64 = 1 << 16;
/// Mismatches that are kept in full.
const EXAMPLES_MAX: usize = 10;

/// Faults of an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// An older version than one that was known when the read began.
    Stale,
    /// No record, though there is one.
    Missing,
    /// A value that no client wrote: wrong length or checksum.
    Corrupt,
    /// The value of another record.
    Foreign,
    /// A whole value of this record that its writer has not written yet.
    Invented,
    /// Another value than this version has elsewhere.
    Different,
    /// A write with an older version than one that was known when it began.
    Unordered,
    /// A conditional write that was done though another version was known when it began, or refused
    /// though the record has the expected one.
    Condition,
}

/// An answer with a fault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mismatch {
    /// The fault.
    pub fault: Fault,
    /// The record.
    pub index: u64,
    /// The version in the answer.
    pub seq: u64,
    /// The newest version known when the operation began.
    pub known: u64,
    /// What the value's own bytes say, if they can be read.
    pub value: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.fault {
            Fault::Stale => "an older version than was known when the read began",
            Fault::Missing => "not found, though it was written",
            Fault::Corrupt => "a value that no client wrote",
            Fault::Foreign => "the value of another record",
            Fault::Invented => "a value that its writer has not written",
            Fault::Different => "another value than this version has elsewhere",
            Fault::Unordered => "a write ordered before one that was known when it began",
            Fault::Condition => "a conditional write done or refused against its condition",
        };
        write!(
            f,
            "record {}: {what}: version {:?}, known {:?}",
            self.index,
            Seq(self.seq),
            Seq(self.known)
        )?;
        if let Some(value) = &self.value {
            write!(f, ", {value}")?;
        }
        Ok(())
    }
}

/// The results of the checks.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Verification {
    /// Answers that were checked.
    pub verified: u64,
    /// Answers with a fault.
    pub mismatches: u64,
    /// Their numbers by fault.
    pub faults: BTreeMap<Fault, u64>,
    /// The first of them.
    pub examples: Vec<Mismatch>,
    /// Answers that could not be checked, because the table can't hold their record or version.
    pub unchecked: u64,
    /// Records that were read once more at the end.
    pub swept: u64,
}

/// What the table knew of a record when an operation began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known(u64);

/// The table, shared by all clients. One word a record: version and a fingerprint of its value.
pub struct Verifier {
    chunks: Vec<OnceLock<Box<[AtomicU64]>>>,
    preloaded: u64,
    lengths: Lengths,
    /// Versions that each writer has begun to write, by writer.
    begun: Vec<AtomicU32>,
    verification: Mutex<Verification>,
    verified: AtomicU64,
    unchecked: AtomicU64,
    swept: AtomicU64,
}

/// Bits of a fingerprint. Two values under one version have equal fingerprints in one case in a
/// million.
const PRINT_BITS: u32 = 20;
/// Bits of a version's counter and epoch that are kept. A run begins with a fresh rack, so its
/// counters fit.
const COUNTER_BITS: u32 = 32;
const EPOCH_BITS: u32 = 64 - PRINT_BITS - COUNTER_BITS;

/// A version in the order of versions, with the fingerprint below it; `None` if it is out of range.
fn word(seq: Seq, print: u64) -> Option<u64> {
    if seq.counter() >> COUNTER_BITS != 0 || seq.epoch() >> EPOCH_BITS != 0 {
        return None;
    }
    Some((u64::from(seq.epoch()) << COUNTER_BITS | seq.counter()) << PRINT_BITS | print)
}

fn seq_of(word: u64) -> Seq {
    let version = word >> PRINT_BITS;
    Seq::new((version >> COUNTER_BITS) as u32, version & ((1 << COUNTER_BITS) - 1))
}

/// Never 0, so that the word of a known version isn't 0.
fn fingerprint(stamp: Stamp) -> u64 {
    let hash = mix(u64::from(stamp.writer) << 32 | u64::from(stamp.version));
    (hash >> (64 - PRINT_BITS)).max(1)
}

/// The same of a value that is too short for a stamp.
fn fingerprint_of_short(value: &[u8]) -> u64 {
    let mut padded = [0; STAMP_BYTES];
    padded[..value.len()].copy_from_slice(value);
    let number = u128::from_be_bytes(padded);
    (mix(mix(number as u64) ^ (number >> 64) as u64) >> (64 - PRINT_BITS)).max(1)
}

/// What a value says of itself.
fn said(stamp: Stamp) -> String {
    let Stamp { index, writer, version } = stamp;
    format!("write {version} of client {writer} to record {index}")
}

impl Verifier {
    /// A table that knows of `preloaded` records, of any version, and of writers 1 to `writers`.
    pub fn new(preloaded: u64, lengths: Lengths, writers: u16) -> Verifier {
        Verifier {
            chunks: (0..CHUNKS).map(|_| OnceLock::new()).collect(),
            preloaded,
            lengths,
            begun: (0..=writers).map(|_| AtomicU32::new(0)).collect(),
            verification: Mutex::default(),
            verified: AtomicU64::new(0),
            unchecked: AtomicU64::new(0),
            swept: AtomicU64::new(0),
        }
    }

    fn slot(&self, index: u64) -> Option<&AtomicU64> {
        let chunk = self.chunks.get((index / CHUNK) as usize)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| AtomicU64::new(0)).collect());
        Some(&chunk[(index % CHUNK) as usize])
    }

    /// What the table knows of a record; called before an operation is sent.
    pub fn known(&self, index: u64) -> Known {
        Known(self.slot(index).map_or(0, |slot| slot.load(Ordering::Acquire)))
    }

    /// Notes a write that is about to be sent.
    pub fn begin_write(&self, stamp: Stamp) {
        self.begun[usize::from(stamp.writer)].store(stamp.version, Ordering::Release);
    }

    /// Checks the answer of a read.
    pub fn read(&self, index: u64, known: Known, seq: Seq, value: &[u8]) {
        self.verified.fetch_add(1, Ordering::Relaxed);
        let stamp = match Stamp::read_value(value, self.lengths.of(index)) {
            Ok(Some(stamp)) => stamp,
            Ok(None) => {
                return self.read_version(index, known, seq, fingerprint_of_short(value), None);
            }
            Err(error) => {
                let error = match error {
                    ValueError::Length => format!("{} bytes long", value.len()),
                    ValueError::Checksum => "with a wrong checksum".to_owned(),
                };
                return self.mismatch(Fault::Corrupt, index, seq, known, Some(error));
            }
        };
        if stamp.index != index {
            return self.mismatch(Fault::Foreign, index, seq, known, Some(said(stamp)));
        }
        if !self.was_begun(stamp) {
            return self.mismatch(Fault::Invented, index, seq, known, Some(said(stamp)));
        }
        self.read_version(index, known, seq, fingerprint(stamp), Some(stamp));
    }

    /// Checks the version that was read, of a value with this fingerprint.
    fn read_version(&self, index: u64, known: Known, seq: Seq, print: u64, stamp: Option<Stamp>) {
        let Some(word) = word(seq, print) else { return self.uncheckable() };
        if seq < seq_of(known.0) {
            return self.mismatch(Fault::Stale, index, seq, known, stamp.map(said));
        }
        if !self.learn(index, word) {
            self.mismatch(Fault::Different, index, seq, known, stamp.map(said));
        }
    }

    /// The fingerprint of the value that a write stores.
    fn fingerprint(&self, stamp: Stamp) -> u64 {
        let value_bytes = self.lengths.of(stamp.index);
        if value_bytes >= STAMP_BYTES {
            return fingerprint(stamp);
        }
        let mut value = Vec::with_capacity(STAMP_BYTES);
        stamp.write_value(value_bytes, &mut value);
        fingerprint_of_short(&value)
    }

    fn was_begun(&self, stamp: Stamp) -> bool {
        if stamp.writer == PRELOADED {
            return stamp.version == 0 && stamp.index < self.preloaded;
        }
        self.begun
            .get(usize::from(stamp.writer))
            .is_some_and(|begun| stamp.version <= begun.load(Ordering::Acquire))
    }

    /// Checks the answer that there is no such record. (No workload deletes.)
    pub fn read_nothing(&self, index: u64, known: Known, seq: Seq) {
        self.verified.fetch_add(1, Ordering::Relaxed);
        if index < self.preloaded || known.0 != 0 {
            self.mismatch(Fault::Missing, index, seq, known, None);
        }
    }

    /// Checks the acknowledgement of a write, which may have expected a version.
    pub fn written(&self, stamp: Stamp, known: Known, expected: Option<Seq>, seq: Seq) {
        self.verified.fetch_add(1, Ordering::Relaxed);
        let there = stamp.index < self.preloaded || known.0 != 0;
        if expected
            .is_some_and(|expected| expected < seq_of(known.0) || (there && expected == Seq::NONE))
        {
            return self.mismatch(Fault::Condition, stamp.index, seq, known, None);
        }
        let Some(word) = word(seq, self.fingerprint(stamp)) else { return self.uncheckable() };
        if known.0 != 0 && seq <= seq_of(known.0) {
            return self.mismatch(Fault::Unordered, stamp.index, seq, known, None);
        }
        if !self.learn(stamp.index, word) {
            self.mismatch(Fault::Different, stamp.index, seq, known, None);
        }
    }

    /// Checks the refusal of a conditional write: the record has version `seq`, and not the
    /// expected one.
    pub fn refused(&self, index: u64, known: Known, expected: Option<Seq>, seq: Seq) {
        self.verified.fetch_add(1, Ordering::Relaxed);
        if expected.is_none_or(|expected| expected == seq) {
            self.mismatch(Fault::Condition, index, seq, known, None);
        } else if seq < seq_of(known.0) {
            self.mismatch(Fault::Stale, index, seq, known, None);
        }
    }

    /// Takes a version into the table; false if it is there with another value.
    fn learn(&self, index: u64, word: u64) -> bool {
        let Some(slot) = self.slot(index) else {
            self.uncheckable();
            return true;
        };
        let mut there = slot.load(Ordering::Acquire);
        loop {
            if there != 0 && there >> PRINT_BITS == word >> PRINT_BITS {
                return there == word;
            }
            if there > word {
                return true;
            }
            match slot.compare_exchange_weak(there, word, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(now) => there = now,
            }
        }
    }

    fn uncheckable(&self) {
        self.unchecked.fetch_add(1, Ordering::Relaxed);
    }

    fn mismatch(&self, fault: Fault, index: u64, seq: Seq, known: Known, value: Option<String>) {
        let mut verification = self.verification.lock().unwrap_or_else(PoisonError::into_inner);
        verification.mismatches += 1;
        *verification.faults.entry(fault).or_default() += 1;
        if verification.examples.len() < EXAMPLES_MAX {
            verification.examples.push(Mismatch {
                fault,
                index,
                seq: seq.0,
                known: seq_of(known.0).0,
                value,
            });
        }
    }

    /// Records that the table knows a version of: part `part` of `parts`, to be read once more at
    /// the end.
    pub fn touched(&self, part: u64, parts: u64) -> impl Iterator<Item = u64> + '_ {
        let chunks = (0..CHUNKS)
            .filter_map(|at| self.chunks[at as usize].get().map(|chunk| (at * CHUNK, chunk)));
        chunks.flat_map(move |(first, chunk)| {
            let known =
                chunk.iter().enumerate().filter(|(_, slot)| slot.load(Ordering::Acquire) != 0);
            known.map(move |(at, _)| first + at as u64).filter(move |index| index % parts == part)
        })
    }

    /// Adds the number of records that a client's sweep has read.
    pub fn add_swept(&self, records: u64) {
        self.swept.fetch_add(records, Ordering::Relaxed);
    }

    /// The results so far.
    pub fn verification(&self) -> Verification {
        let verification = self.verification.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Verification {
            verified: self.verified.load(Ordering::Relaxed),
            unchecked: self.unchecked.load(Ordering::Relaxed),
            swept: self.swept.load(Ordering::Relaxed),
            ..verification
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: usize = 64;

    fn value(stamp: Stamp) -> Vec<u8> {
        let mut value = Vec::new();
        stamp.write_value(BYTES, &mut value);
        value
    }

    fn stamp(index: u64, version: u32) -> Stamp {
        Stamp { index, writer: 1, version }
    }

    /// Ten preloaded records; write 1 of record 5 acknowledged as version 7.
    fn table() -> Verifier {
        let table = Verifier::new(10, Lengths::constant(BYTES), 2);
        table.begin_write(stamp(5, 1));
        table.written(stamp(5, 1), table.known(5), None, Seq::new(1, 7));
        table
    }

    fn faults(table: &Verifier) -> Vec<Fault> {
        table.verification().faults.into_keys().collect()
    }

    #[test]
    fn what_was_written_is_accepted() {
        let table = table();
        table.read(5, table.known(5), Seq::new(1, 7), &value(stamp(5, 1)));
        table.read(
            3,
            table.known(3),
            Seq::NONE,
            &value(Stamp { index: 3, writer: PRELOADED, version: 0 }),
        );
        table.read_nothing(11, table.known(11), Seq::NONE);
        // Concurrent: the read began before the next write was acknowledged, and returns the older
        // version.
        let known = table.known(5);
        table.begin_write(stamp(5, 2));
        table.written(stamp(5, 2), table.known(5), None, Seq::new(1, 9));
        table.read(5, known, Seq::new(1, 7), &value(stamp(5, 1)));
        // A version that was never acknowledged may be read, since acknowledgements may be lost.
        table.begin_write(stamp(5, 3));
        table.read(5, table.known(5), Seq::new(2, 1), &value(stamp(5, 3)));
        // Conditional writes: one in time, one too late.
        table.written(stamp(11, 4), table.known(11), Some(Seq::NONE), Seq::new(2, 2));
        table.refused(5, table.known(5), Some(Seq::new(1, 9)), Seq::new(2, 1));
        let verification = table.verification();
        assert_eq!(
            (verification.mismatches, verification.verified, verification.unchecked),
            (0, 9, 0),
            "{verification:?}"
        );
    }

    #[test]
    fn every_fault_is_found() {
        let check = |fault: Fault, act: &dyn Fn(&Verifier)| {
            let table = table();
            act(&table);
            assert_eq!(faults(&table), [fault]);
        };
        let preloaded = |index| value(Stamp { index, writer: PRELOADED, version: 0 });
        check(Fault::Stale, &|table| table.read(5, table.known(5), Seq::new(1, 6), &preloaded(5)));
        check(Fault::Stale, &|table| {
            // What a read has seen must not be taken back either.
            table.begin_write(stamp(5, 2));
            table.read(5, table.known(5), Seq::new(1, 8), &value(stamp(5, 2)));
            table.read(5, table.known(5), Seq::new(1, 7), &value(stamp(5, 1)));
        });
        check(Fault::Missing, &|table| table.read_nothing(5, table.known(5), Seq::new(1, 8)));
        check(Fault::Missing, &|table| table.read_nothing(3, table.known(3), Seq::NONE));
        check(Fault::Corrupt, &|table| {
            table.read(5, table.known(5), Seq::new(1, 7), &value(stamp(5, 1))[1..])
        });
        check(Fault::Corrupt, &|table| table.read(5, table.known(5), Seq::new(1, 7), &[0; BYTES]));
        check(Fault::Foreign, &|table| {
            table.read(5, table.known(5), Seq::new(1, 7), &preloaded(6))
        });
        check(Fault::Invented, &|table| {
            table.read(5, table.known(5), Seq::new(1, 8), &value(stamp(5, 2)))
        });
        check(Fault::Different, &|table| {
            table.read(5, table.known(5), Seq::new(1, 7), &preloaded(5))
        });
        check(Fault::Different, &|table| {
            // The read came first, the acknowledgement later.
            let known = table.known(5);
            table.read(5, known, Seq::new(1, 8), &preloaded(5));
            table.begin_write(stamp(5, 2));
            table.written(stamp(5, 2), known, None, Seq::new(1, 8));
        });
        check(Fault::Condition, &|table| {
            // Version 7 is known.
            table.begin_write(stamp(5, 2));
            table.written(stamp(5, 2), table.known(5), Some(Seq::new(1, 6)), Seq::new(1, 8));
        });
        check(Fault::Condition, &|table| {
            table.written(stamp(3, 2), table.known(3), Some(Seq::NONE), Seq::new(1, 8));
        });
        check(Fault::Condition, &|table| {
            table.refused(5, table.known(5), Some(Seq::new(1, 7)), Seq::new(1, 7))
        });
        check(Fault::Stale, &|table| {
            table.refused(5, table.known(5), Some(Seq::NONE), Seq::new(1, 6))
        });
        check(Fault::Unordered, &|table| {
            table.begin_write(stamp(5, 2));
            table.written(stamp(5, 2), table.known(5), None, Seq::new(1, 7));
        });
    }

    #[test]
    fn a_value_that_is_too_short_for_a_stamp_is_checked_by_version() {
        let short = |version| {
            let mut value = Vec::new();
            stamp(5, version).write_value(3, &mut value);
            value
        };
        let check = |fault: Option<Fault>, seq, value: &[u8]| {
            let table = Verifier::new(10, Lengths::constant(3), 2);
            table.begin_write(stamp(5, 1));
            table.written(stamp(5, 1), table.known(5), None, Seq::new(1, 7));
            table.read(5, table.known(5), seq, value);
            assert_eq!(faults(&table), Vec::from_iter(fault));
        };
        check(None, Seq::new(1, 7), &short(1));
        check(None, Seq::new(1, 8), &short(2));
        check(Some(Fault::Different), Seq::new(1, 7), &short(2));
        check(Some(Fault::Stale), Seq::new(1, 6), &short(1));
        check(Some(Fault::Corrupt), Seq::new(1, 7), &short(1)[1..]);
    }

    #[test]
    fn each_record_has_its_own_length() {
        let lengths = Lengths::new("uniform:1..65536".parse().unwrap(), 1);
        let table = Verifier::new(1000, lengths.clone(), 1);
        for index in 0..1000 {
            let mut value = Vec::new();
            let preloaded = Stamp { index, writer: PRELOADED, version: 0 };
            preloaded.write_value(lengths.of(index), &mut value);
            table.read(index, table.known(index), Seq::new(0, 1), &value);
        }
        assert_eq!(table.verification().mismatches, 0, "{:?}", table.verification().examples);
        let mut value = Vec::new();
        stamp(3, 0).write_value(lengths.of(4), &mut value);
        table.read(3, table.known(3), Seq::new(0, 1), &value);
        assert_eq!(faults(&table), [Fault::Corrupt]);
    }

    #[test]
    fn answers_that_cannot_be_checked_are_counted() {
        let table = table();
        table.begin_write(stamp(CHUNK * CHUNKS, 2));
        table.written(stamp(CHUNK * CHUNKS, 2), table.known(CHUNK * CHUNKS), None, Seq::new(1, 1));
        table.written(stamp(4, 2), table.known(4), None, Seq::new(5000, 1));
        assert_eq!((table.verification().unchecked, table.verification().mismatches), (2, 0));
    }

    #[test]
    fn the_sweep_finds_every_touched_record_once() {
        let table = table();
        for index in [0, 1, 65_535, 65_536, 1_000_000] {
            table.written(stamp(index, 1), table.known(index), None, Seq::new(1, 1));
        }
        let mut swept: Vec<_> =
            (0..3).flat_map(|part| table.touched(part, 3).collect::<Vec<_>>()).collect();
        swept.sort_unstable();
        assert_eq!(swept, [0, 1, 5, 65_535, 65_536, 1_000_000]);
    }

    proptest! {
        #[test]
        fn words_are_ordered_as_versions_are(
            a in (0u32..4096, 0u64..1 << 32),
            b in (0u32..4096, 0u64..1 << 32),
            prints in (1u64..1 << 20, 1u64..1 << 20),
        ) {
            let (a, b) = (Seq::new(a.0, a.1), Seq::new(b.0, b.1));
            let (wa, wb) = (word(a, prints.0).unwrap(), word(b, prints.1).unwrap());
            prop_assert_eq!((seq_of(wa), seq_of(wb)), (a, b));
            if a != b {
                prop_assert_eq!(a < b, wa < wb);
            }
        }
    }
}
