//! A node's storage in memory, which forgets nothing.

use crate::Draw;
use std::collections::BTreeMap;
use switchback_core::storage::{
    CopiedRecord, EngineOp, EngineReply, KeyRange, LaneCompletion, Lanes, Mark, Newest, Record,
    ScannedKey,
};
use switchback_wire::{KeyHash, Seq};

/// What a node has stored.
#[derive(Debug, Default)]
pub struct Storage {
    records: BTreeMap<KeyHash, (Vec<u8>, Record)>,
    marks: BTreeMap<KeyHash, (Vec<u8>, Mark)>,
    completions: BTreeMap<u32, LaneCompletion>,
    unconfirmed: BTreeMap<KeyHash, (Vec<u8>, Lanes)>,
    kept: Vec<KeyRange>,
    /// The shim's own state.
    pub state: Option<Vec<u8>>,
}

impl Storage {
    /// All marks.
    pub fn marks(&self) -> Vec<(KeyHash, Vec<u8>, Mark)> {
        self.marks.iter().map(|(hash, (key, mark))| (*hash, key.clone(), *mark)).collect()
    }

    /// All completions.
    pub fn completions(&self) -> Vec<LaneCompletion> {
        self.completions.values().copied().collect()
    }

    /// All that is noted as unconfirmed.
    pub fn unconfirmed(&self) -> Vec<(KeyHash, Vec<u8>, Lanes)> {
        let noted = self.unconfirmed.iter();
        noted.map(|(hash, (key, lanes))| (*hash, key.clone(), lanes.clone())).collect()
    }

    /// Ranges that keep their tombstones.
    pub fn kept(&self) -> &[KeyRange] {
        &self.kept
    }

    /// Does what a shim asks. Once in a while something newer is found.
    pub fn execute(&mut self, draw: &mut Draw<'_>, op: EngineOp) -> (u64, EngineReply) {
        match op {
            EngineOp::Get { id, hash, .. } => {
                let record = self.records.get(&hash).map(|(_, record)| record.clone());
                (id, EngineReply::Got(record))
            }
            EngineOp::Put { id, hash, key, record, completion, unconfirmed, .. } => {
                let stored = self.records.get(&hash).map_or(Seq::NONE, |(_, record)| record.seq);
                if stored >= record.seq || draw.once_in(16) {
                    return (id, EngineReply::Put(Err(Newest::Record(stored))));
                }
                self.note(hash, &key, unconfirmed);
                self.completions.extend(completion.map(|done| (done.lane, done)));
                self.records.insert(hash, (key, Record { since: None, ..record }));
                (id, EngineReply::Put(Ok(None)))
            }
            EngineOp::SetMark { id, hash, key, mark, unconfirmed } => {
                self.note(hash, &key, unconfirmed);
                self.mark(hash, key, mark);
                (id, EngineReply::Set)
            }
            EngineOp::Merge { id, hash, key, record, mark, completions, unconfirmed, .. } => {
                self.note(hash, &key, unconfirmed);
                self.completions.extend(completions.into_iter().map(|done| (done.lane, done)));
                let stored = self.records.get(&hash).map_or(Seq::NONE, |(_, record)| record.seq);
                if let Some(record) = record.filter(|record| record.seq > stored) {
                    self.records.insert(hash, (key.clone(), record));
                }
                if let Some(mark) = mark {
                    self.mark(hash, key, mark);
                }
                (id, EngineReply::Set)
            }
            EngineOp::Confirm { id, keys } => {
                keys.iter().for_each(|(hash, _)| drop(self.unconfirmed.remove(hash)));
                (id, EngineReply::Set)
            }
            EngineOp::SetState { id, state, .. } => {
                self.state = Some(state);
                (id, EngineReply::Set)
            }
            EngineOp::Empty { id, range, keeps, lanes } => {
                self.records.retain(|hash, _| !range.contains(hash));
                self.marks.retain(|hash, _| !range.contains(hash));
                self.unconfirmed.retain(|hash, _| !range.contains(hash));
                self.completions.retain(|lane, _| lanes.iter().all(|(gone, _)| gone != lane));
                self.keep(range, keeps);
                (id, EngineReply::Set)
            }
            EngineOp::Keep { id, range, keeps } => {
                self.keep(range, keeps);
                (id, EngineReply::Set)
            }
            EngineOp::SetFloor { id, .. }
            | EngineOp::RaiseFloors { id, .. }
            | EngineOp::FlushSoon { id }
            | EngineOp::Checkpoint { id, .. } => (id, EngineReply::Set),
            EngineOp::Copy { id, range, limit, .. } => {
                let within = self.records.range(range.first..=range.last);
                let mut within = within.map(|(hash, (key, record))| CopiedRecord {
                    hash: *hash,
                    key: key.clone(),
                    record: record.clone(),
                });
                let copied = within.by_ref().take(limit).collect();
                let next = within.next().map(|record| record.hash);
                (id, EngineReply::Copied(copied, next))
            }
            EngineOp::Scan { id, from, to, .. } => {
                let wanted = |hash: &KeyHash| (from..=to).contains(&hash.position());
                let listed = self.records.iter().filter(|(hash, _)| wanted(hash));
                let listed = listed.map(|(hash, (key, record))| ScannedKey {
                    hash: *hash,
                    key: key.clone(),
                    tombstone: record.tombstone,
                    expiry_ms: record.expiry_ms,
                });
                (id, EngineReply::Scanned(listed.collect(), None))
            }
        }
    }

    fn note(&mut self, hash: KeyHash, key: &[u8], lanes: Option<Lanes>) {
        if let Some(lanes) = lanes {
            self.unconfirmed.insert(hash, (key.to_vec(), lanes));
        }
    }

    fn mark(&mut self, hash: KeyHash, key: Vec<u8>, mark: Option<Mark>) {
        match mark {
            Some(mark) => drop(self.marks.insert(hash, (key, mark))),
            None => drop(self.marks.remove(&hash)),
        }
    }

    fn keep(&mut self, range: KeyRange, keeps: bool) {
        self.kept.retain(|kept| *kept != range);
        if keeps {
            self.kept.push(range);
        }
    }
}
