//! Record preservation (FarReach III-D; rule 7): the newest version of every record that the switch
//! answered from its cache and that no node and no durable snapshot has yet.

use crate::control::KeyedRecord;
use crate::storage::Record;
use hashbrown::HashTable;
use switchback_wire::{KeyHash, Seq};

/// A record that is kept until it is durable elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PreservedRecord {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// The record.
    pub record: Record,
    /// Snapshot generation of its last write.
    pub generation: u32,
}

/// Which version of a key is kept, and where. Readers see the same version again and again: they
/// need no look at the entry.
#[derive(Clone, Copy, Debug)]
struct Version {
    hash: KeyHash,
    seq: Seq,
    generation: u32,
    at: u32,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    kept: PreservedRecord,
    used: bool,
    touched: bool,
}

/// The newest preserved record of each key.
///
/// Entries live in a slab and keep their buffers, so that preserving a hot key again allocates
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Preservation {
    index: HashTable<Version>,
    entries: Vec<Entry>,
    free: Vec<u32>,
    touched: Vec<u32>,
    bytes: usize,
}

/// What an entry costs beside key and value.
const ENTRY_BYTES: usize = size_of::<Entry>() + 2 * size_of::<Version>();

impl Preservation {
    /// How many keys are kept.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Bytes of memory that the kept records take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Keeps this version unless a newer one of the key is kept already.
    #[inline]
    #[allow(clippy::too_many_arguments)] // The parts of a record, still in the packet's buffer.
    pub fn keep(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        value: &[u8],
        seq: Seq,
        tombstone: bool,
        expiry_ms: u64,
        generation: u32,
    ) {
        let entries = &self.entries;
        let found = self.index.find_mut(hash.low(), |version| {
            // A sequence number is given out once.
            version.hash == hash
                && (version.seq == seq || entries[version.at as usize].kept.key == key)
        });
        let at = match found {
            // Equal: seen again by a reader, or answered again with a later generation. The later
            // one is the safe one.
            Some(version) if (version.seq, version.generation) >= (seq, generation) => return,
            Some(version) => {
                (version.seq, version.generation) = (seq, generation);
                version.at
            }
            None => self.insert(hash, key, seq, generation),
        };
        let entry = &mut self.entries[at as usize];
        let record = &mut entry.kept.record;
        self.bytes += value.len();
        self.bytes -= record.value.len();
        record.seq = seq;
        record.tombstone = tombstone;
        record.expiry_ms = expiry_ms;
        record.value.clear();
        record.value.extend_from_slice(value);
        entry.kept.generation = generation;
        if !entry.touched {
            entry.touched = true;
            self.touched.push(at);
        }
    }

    /// Makes room for a key's first version; the entry's record is the caller's to fill in.
    fn insert(&mut self, hash: KeyHash, key: &[u8], seq: Seq, generation: u32) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[at as usize];
        assert!(!entry.used);
        entry.used = true;
        entry.kept.hash = hash;
        entry.kept.key.clear();
        entry.kept.key.extend_from_slice(key);
        self.bytes += ENTRY_BYTES + key.len();
        self.index.insert_unique(hash.low(), Version { hash, seq, generation, at }, |version| {
            version.hash.low()
        });
        at
    }

    /// Drops every record of which `gone` says that it is durable elsewhere.
    fn release(&mut self, gone: impl Fn(&PreservedRecord) -> bool) {
        for at in 0..self.entries.len() {
            let entry = &mut self.entries[at];
            if !entry.used || !gone(&entry.kept) {
                continue;
            }
            entry.used = false;
            let hash = entry.kept.hash;
            self.bytes -= ENTRY_BYTES + entry.kept.key.len() + entry.kept.record.value.len();
            entry.kept.record.value.clear();
            let found = self.index.find_entry(hash.low(), |version| version.at == at as u32);
            found.expect("every used entry is indexed").remove();
            self.free.push(at as u32);
        }
        assert_eq!(self.index.len() + self.free.len(), self.entries.len());
    }

    /// A snapshot of `generation` is durable: everything older is in it, or at its node, as far as
    /// the key `is_of` the chain whose snapshot it is.
    pub(super) fn release_older_generations(
        &mut self,
        generation: u32,
        is_of: impl Fn(&KeyHash) -> bool,
    ) {
        self.release(|kept| kept.generation < generation && is_of(&kept.hash));
    }

    /// Recovery up to `epoch` is durable: everything that was written before it is at its node, as
    /// far as the key `is_of` the chain that was recovered.
    pub(super) fn release_older_epochs(&mut self, epoch: u32, is_of: impl Fn(&KeyHash) -> bool) {
        self.release(|kept| kept.record.seq.epoch() < epoch && is_of(&kept.hash));
    }

    /// The kept records, in a stable order.
    pub fn iter(&self) -> impl Iterator<Item = &PreservedRecord> {
        self.entries.iter().filter(|entry| entry.used).map(|entry| &entry.kept)
    }

    /// Hands out, once, every kept record that changed since the last call: what a spool has to
    /// write.
    pub fn drain_touched(&mut self, mut write: impl FnMut(&PreservedRecord)) {
        while let Some(at) = self.touched.pop() {
            let entry = &mut self.entries[at as usize];
            entry.touched = false;
            if entry.used {
                write(&entry.kept);
            }
        }
    }

    /// Whether [`Preservation::drain_touched`] has something to hand out.
    pub fn has_touched(&self) -> bool {
        !self.touched.is_empty()
    }

    /// The kept records in the form of the control channel.
    pub(super) fn keyed(&self) -> impl Iterator<Item = KeyedRecord> {
        self.iter().map(|kept| KeyedRecord {
            hash: kept.hash,
            key: kept.key.clone(),
            record: kept.record.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(preservation: &mut Preservation, key: u8, seq: u64, generation: u32) {
        let hash = KeyHash([key; 16]);
        preservation.keep(hash, &[key], &[seq as u8; 8], Seq(seq), false, 0, generation);
    }

    #[test]
    fn the_newest_version_is_kept_and_released_by_generation() {
        let mut preservation = Preservation::default();
        keep(&mut preservation, 1, 5, 1);
        keep(&mut preservation, 1, 4, 2); // older: would be wrong to keep
        keep(&mut preservation, 2, 7, 2);
        assert_eq!(preservation.len(), 2);
        assert_eq!(preservation.iter().next().map(|kept| kept.record.seq), Some(Seq(5)));
        preservation.release_older_generations(2, |_| true);
        assert_eq!(preservation.iter().map(|kept| kept.key[0]).collect::<Vec<_>>(), [2]);
        preservation.release_older_generations(3, |_| true);
        assert_eq!((preservation.len(), preservation.bytes()), (0, 0));
    }

    #[test]
    fn a_version_seen_again_after_its_release_is_kept_again() {
        let mut preservation = Preservation::default();
        keep(&mut preservation, 1, 5, 1);
        keep(&mut preservation, 1, 5, 1);
        preservation.release_older_generations(2, |_| true);
        assert!(preservation.is_empty());
        keep(&mut preservation, 1, 5, 2);
        assert_eq!(preservation.len(), 1);
    }

    #[test]
    fn each_change_is_handed_to_the_spool_once_and_newest() {
        let mut preservation = Preservation::default();
        keep(&mut preservation, 1, 5, 1);
        keep(&mut preservation, 1, 6, 1);
        let mut written = Vec::new();
        preservation.drain_touched(|kept| written.push(kept.record.seq));
        assert_eq!(written, [Seq(6)]);
        assert!(!preservation.has_touched());
        keep(&mut preservation, 1, 6, 1);
        assert!(!preservation.has_touched());
    }
}
