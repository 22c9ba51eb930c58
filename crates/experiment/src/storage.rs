//! A node's storage, modelled: 100 million records that nobody wrote since they were loaded follow from their keys, and need no memory.

use hashbrown::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use switchback_core::storage::{EngineDone, EngineOp, EngineReply, PutCondition, Record};
use switchback_wire::{KeyHash, Seq};

/// The seq of a record that was loaded before the run: older than anything a client writes.
const LOADED: Seq = Seq::new(0, 1);

/// Something of each key, by the low half of the key's hash.
pub(crate) type ByKey<V> = HashMap<u64, V, BuildHasherDefault<Identity>>;

/// Hashes that are hashes already.
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

/// What a node stores. Every key exists. Of a value only the length counts.
pub(crate) struct ModelledStore {
    value_bytes: usize,
    /// Versions of the records that were written.
    written: ByKey<Seq>,
}

impl ModelledStore {
    /// A store whose records have values of this length.
    pub(crate) fn new(value_bytes: usize) -> ModelledStore {
        ModelledStore { value_bytes, written: ByKey::default() }
    }

    fn seq(&self, hash: &KeyHash) -> Seq {
        self.written.get(&hash.low()).copied().unwrap_or(LOADED)
    }

    /// Carries out one operation.
    pub(crate) fn execute(&mut self, op: EngineOp) -> EngineDone {
        let (id, reply) = match op {
            EngineOp::Get { id, hash, .. } => {
                let value = vec![b'v'; self.value_bytes];
                let record = Record { seq: self.seq(&hash), value, ..Record::default() };
                (id, EngineReply::Got(Some(record)))
            }
            EngineOp::Put { id, hash, record, condition, .. } => {
                assert!(!record.tombstone, "workloads delete nothing");
                let stored = self.seq(&hash);
                let expected = match condition {
                    PutCondition::Newer { .. } => true,
                    PutCondition::IfSeq(expected) => expected == stored,
                };
                let stores = expected && record.seq > stored;
                if stores {
                    self.written.insert(hash.low(), record.seq);
                }
                (id, EngineReply::Put(if stores { Ok(()) } else { Err(stored) }))
            }
            EngineOp::SetMark { id, .. }
            | EngineOp::SetState { id, .. }
            | EngineOp::SetFloor { id, .. }
            | EngineOp::RaiseFloors { id, .. } => (id, EngineReply::Set),
            EngineOp::Scan { id, .. } => (id, EngineReply::Scanned(Vec::new(), None)),
        };
        EngineDone { id, result: Ok(reply) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(store: &mut ModelledStore, low: u64, seq: Seq) -> EngineReply {
        let mut bytes = [0; 16];
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        let op = EngineOp::Put {
            id: 1,
            hash: KeyHash(bytes),
            key: b"k".to_vec(),
            record: Record { seq, value: vec![0; 8], ..Record::default() },
            condition: PutCondition::Newer { known: true },
            completion: None,
        };
        store.execute(op).result.unwrap()
    }

    #[test]
    fn only_what_is_newer_is_stored_and_only_that_takes_memory() {
        let mut store = ModelledStore::new(8);
        let get = |store: &mut ModelledStore| match store
            .execute(EngineOp::Get { id: 2, hash: KeyHash([0; 16]), key: b"k".to_vec() })
            .result
            .unwrap()
        {
            EngineReply::Got(Some(record)) => (record.seq, record.value.len()),
            other => panic!("{other:?}"),
        };
        assert_eq!(get(&mut store), (LOADED, 8));
        assert_eq!(store.written.len(), 0);
        assert_eq!(put(&mut store, 0, Seq::new(1, 7)), EngineReply::Put(Ok(())));
        assert_eq!(put(&mut store, 0, Seq::new(1, 6)), EngineReply::Put(Err(Seq::new(1, 7))));
        assert_eq!(get(&mut store), (Seq::new(1, 7), 8));
        assert_eq!(store.written.len(), 1);
    }
}
