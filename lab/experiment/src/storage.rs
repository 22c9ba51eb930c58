//! A model of a node's storage: 100 million records follow from their keys. Only those that were
//! written since they were loaded need memory.

use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use switchback_bench::workload::{KeySpace, Lengths};
use switchback_core::storage::{EngineDone, EngineOp, EngineReply, Newest, PutCondition, Record};
use switchback_wire::{KeyHash, Seq};

/// The seq of a record that was loaded before the run: older than anything a client writes.
const LOADED: Seq = Seq::new(0, 1);

/// A map by keys, which are given by the low half of their hash.
pub(crate) type ByKey<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;

/// A hasher for keys that are hashes already.
#[derive(Default)]
pub(crate) struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// A node's records. All values have the same length, and their bytes aren't kept.
pub(crate) struct ModelledStore {
    lengths: Lengths,
    keys: KeySpace,
    /// Records that were loaded: those with a lower index.
    loaded: u64,
    /// Versions of the records that were written.
    written: ByKey<Seq>,
}

impl ModelledStore {
    /// A store of the first `loaded` records of these keys, with values of these lengths.
    pub(crate) fn new(lengths: Lengths, keys: KeySpace, loaded: u64) -> ModelledStore {
        ModelledStore { lengths, keys, loaded, written: ByKey::default() }
    }

    /// The version of a record, if there is one.
    fn seq(&self, hash: &KeyHash, key: &[u8]) -> Option<Seq> {
        let written = self.written.get(&hash.low()).copied();
        written
            .or_else(|| self.keys.index(key).filter(|index| *index < self.loaded).map(|_| LOADED))
    }

    /// The length of the value that a key has, if it is one of the workload's.
    pub(crate) fn value_bytes(&self, key: &[u8]) -> usize {
        let drawn = || self.keys.index(key).map_or(0, |index| self.lengths.of(index));
        self.lengths.only().unwrap_or_else(drawn)
    }

    /// Carries out one operation.
    pub(crate) fn execute(&mut self, op: EngineOp) -> EngineDone {
        let (id, reply) = match op {
            EngineOp::Get { id, hash, key } => {
                let value = || vec![b'v'; self.value_bytes(&key)];
                let record = |seq| Record { seq, value: value(), ..Record::default() };
                (id, EngineReply::Got(self.seq(&hash, &key).map(record)))
            }
            EngineOp::Put { id, hash, key, record, condition, .. } => {
                assert!(!record.tombstone, "workloads delete nothing");
                let stored = self.seq(&hash, &key).unwrap_or(Seq::NONE);
                let expected = match condition {
                    PutCondition::Newer { .. } => true,
                    PutCondition::IfSeq(expected) => expected == stored,
                };
                let stores = expected && record.seq > stored;
                if stores {
                    self.written.insert(hash.low(), record.seq);
                }
                (
                    id,
                    EngineReply::Put(if stores {
                        Ok(record.since)
                    } else {
                        Err(Newest::Record(stored))
                    }),
                )
            }
            EngineOp::SetMark { id, .. }
            | EngineOp::Merge { id, .. }
            | EngineOp::Confirm { id, .. }
            | EngineOp::SetState { id, .. }
            | EngineOp::SetFloor { id, .. }
            | EngineOp::RaiseFloors { id, .. }
            | EngineOp::Empty { id, .. }
            | EngineOp::Keep { id, .. }
            | EngineOp::FlushSoon { id }
            | EngineOp::Checkpoint { id, .. } => (id, EngineReply::Set),
            EngineOp::Scan { id, .. } => (id, EngineReply::Scanned(Vec::new(), None)),
            EngineOp::Copy { id, .. } => (id, EngineReply::Copied(Vec::new(), None)),
        };
        EngineDone { id, result: Ok(reply) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_core::storage::Source;

    /// Ten records are loaded.
    fn store() -> ModelledStore {
        ModelledStore::new(Lengths::constant(8), KeySpace::new(1, 16), 10)
    }

    fn hash(index: u64) -> KeyHash {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&index.to_be_bytes());
        KeyHash(bytes)
    }

    fn put(
        store: &mut ModelledStore,
        index: u64,
        seq: Seq,
        condition: PutCondition,
    ) -> EngineReply {
        let record = Record { seq, value: vec![0; 8], ..Record::default() };
        let (hash, key) = (hash(index), store.keys.key(index));
        store
            .execute(EngineOp::Put {
                id: 1,
                hash,
                key,
                record,
                condition,
                completion: None,
                source: Source::Client,
                unconfirmed: None,
            })
            .result
            .unwrap()
    }

    fn get(store: &mut ModelledStore, index: u64) -> Option<(Seq, usize)> {
        let (hash, key) = (hash(index), store.keys.key(index));
        match store.execute(EngineOp::Get { id: 2, hash, key }).result.unwrap() {
            EngineReply::Got(record) => record.map(|record| (record.seq, record.value.len())),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_what_is_newer_is_stored_and_only_that_takes_memory() {
        let (mut store, newer) = (store(), PutCondition::Newer { known: true });
        assert_eq!(get(&mut store, 0), Some((LOADED, 8)));
        assert_eq!(store.written.len(), 0);
        assert_eq!(put(&mut store, 0, Seq::new(1, 7), newer), EngineReply::Put(Ok(None)));
        assert_eq!(
            put(&mut store, 0, Seq::new(1, 6), newer),
            EngineReply::Put(Err(Newest::Record(Seq::new(1, 7))))
        );
        assert_eq!(get(&mut store, 0), Some((Seq::new(1, 7), 8)));
        assert_eq!(store.written.len(), 1);
    }

    #[test]
    fn what_was_not_loaded_can_be_added_once() {
        let (mut store, absent) = (store(), PutCondition::IfSeq(Seq::NONE));
        assert_eq!(get(&mut store, 10), None);
        assert_eq!(
            put(&mut store, 9, Seq::new(1, 1), absent),
            EngineReply::Put(Err(Newest::Record(LOADED)))
        );
        assert_eq!(put(&mut store, 10, Seq::new(1, 2), absent), EngineReply::Put(Ok(None)));
        assert_eq!(
            put(&mut store, 10, Seq::new(1, 3), absent),
            EngineReply::Put(Err(Newest::Record(Seq::new(1, 2))))
        );
        assert_eq!(get(&mut store, 10), Some((Seq::new(1, 2), 8)));
    }
}
