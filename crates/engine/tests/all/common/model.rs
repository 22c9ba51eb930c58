//! The contract as plainly as it can be said: one operation after the other on plain maps. It
//! shares no code with the engines.

use super::Reply;
use std::collections::BTreeMap;
use switchback_core::floors::Floors;
use switchback_core::storage::*;
use switchback_wire::{KeyHash, Seq};

type Key = (KeyHash, Vec<u8>);

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Model {
    pub records: BTreeMap<Key, Record>,
    pub marks: BTreeMap<Key, Mark>,
    pub completions: BTreeMap<u32, LaneCompletion>,
    pub unconfirmed: BTreeMap<Key, Lanes>,
    pub state: Option<Vec<u8>>,
    pub floors: Floors,
}

impl Model {
    pub fn execute(&mut self, op: &EngineOp) -> Reply {
        Ok(match op.clone() {
            EngineOp::Get { hash, key, .. } => {
                EngineReply::Got(self.records.get(&(hash, key)).cloned())
            }
            EngineOp::Put { hash, key, record, condition, completion, unconfirmed, .. } => {
                let put = self.put((hash, key.clone()), record, condition, completion);
                if let (Ok(_), Some(lanes)) = (put, unconfirmed) {
                    self.unconfirmed.insert((hash, key), lanes);
                }
                EngineReply::Put(put)
            }
            EngineOp::SetMark { hash, key, mark, unconfirmed, .. } => {
                self.note(hash, &key, unconfirmed);
                self.set_mark(hash, key, mark)
            }
            EngineOp::Merge { hash, key, record, mark, completions, unconfirmed, .. } => {
                self.note(hash, &key, unconfirmed);
                let at = (hash, key.clone());
                if let Some(record) = record
                    && self.records.get(&at).is_none_or(|stored| record.seq > stored.seq)
                {
                    self.records.insert(at, record);
                }
                self.completions.extend(completions.into_iter().map(|done| (done.lane, done)));
                mark.map_or(EngineReply::Set, |mark| self.set_mark(hash, key, mark))
            }
            EngineOp::Confirm { keys, .. } => {
                for key in keys {
                    self.unconfirmed.remove(&key);
                }
                EngineReply::Set
            }
            EngineOp::SetState { state, served, .. } => {
                self.state = Some(state);
                self.floors.set_served(served);
                EngineReply::Set
            }
            EngineOp::SetFloor { chain, floor, .. } => {
                self.floors.raise_base(chain, floor);
                EngineReply::Set
            }
            EngineOp::RaiseFloors { floors, .. } => {
                for (bucket, floor) in floors {
                    self.floors.raise(bucket, floor);
                }
                EngineReply::Set
            }
            EngineOp::Empty { range, keeps, lanes, .. } => {
                self.records.retain(|key, _| !range.contains(&key.0));
                self.marks.retain(|key, _| !range.contains(&key.0));
                self.unconfirmed.retain(|key, _| !range.contains(&key.0));
                for (lane, request) in lanes {
                    self.completions.retain(|_, it| it.lane != lane || it.request > request);
                }
                self.floors.keep(range, keeps);
                EngineReply::Set
            }
            EngineOp::Keep { range, keeps, .. } => {
                self.floors.keep(range, keeps);
                EngineReply::Set
            }
            EngineOp::Copy { range, limit, bytes, .. } => self.copy(range, limit, bytes),
            EngineOp::FlushSoon { .. } | EngineOp::Checkpoint { .. } => EngineReply::Set,
            EngineOp::Scan { from, to, limit, .. } => self.scan(from, to, limit),
        })
    }

    fn note(&mut self, hash: KeyHash, key: &[u8], unconfirmed: Option<Lanes>) {
        if let Some(lanes) = unconfirmed {
            self.unconfirmed.insert((hash, key.to_vec()), lanes);
        }
    }

    fn set_mark(&mut self, hash: KeyHash, key: Vec<u8>, mark: Option<Mark>) -> EngineReply {
        match mark {
            Some(mark) => self.marks.insert((hash, key), mark),
            None => self.marks.remove(&(hash, key)),
        };
        EngineReply::Set
    }

    fn put(
        &mut self,
        key: Key,
        record: Record,
        when: PutCondition,
        trace: Option<LaneCompletion>,
    ) -> Result<Option<Seq>, Newest> {
        let floor = self.floors.base(self.floors.chain_of(&key.0));
        let stored = self.records.get(&key).map(|record| record.seq);
        let newest = stored.map_or(Newest::Floor(floor), Newest::Record);
        let is_newer = record.seq > newest.seq();
        let due = match when {
            PutCondition::Newer { known } => known || is_newer,
            PutCondition::IfSeq(expected) => is_newer && expected == newest.version(),
        };
        if !due {
            return Err(newest);
        }
        let mut record = record;
        if record.since == Record::INHERITED {
            let before = self.records.get(&key).map(Record::base);
            record.since = Some(before.unwrap_or(self.floors.of(&key.0)).min(record.seq));
        }
        let since = record.since;
        self.records.insert(key, record);
        if let Some(trace) = trace {
            self.completions.insert(trace.lane, trace);
        }
        Ok(since)
    }

    /// Whole positions, until there are `limit` keys.
    fn scan(&self, from: u64, to: u64, limit: usize) -> EngineReply {
        let mut by_position: BTreeMap<u64, Vec<ScannedKey>> = BTreeMap::new();
        for ((hash, key), record) in &self.records {
            if (from..=to).contains(&hash.position()) {
                let (tombstone, expiry_ms) = (record.tombstone, record.expiry_ms);
                let scanned = ScannedKey { hash: *hash, key: key.clone(), tombstone, expiry_ms };
                by_position.entry(hash.position()).or_default().push(scanned);
            }
        }
        let mut keys = Vec::new();
        for (position, here) in by_position {
            if keys.len() >= limit.max(1) {
                return EngineReply::Scanned(keys, Some(position));
            }
            keys.extend(here);
        }
        EngineReply::Scanned(keys, None)
    }

    /// Whole hashes, until there are `limit` records or `bytes` bytes.
    fn copy(&self, range: KeyRange, limit: usize, bytes: usize) -> EngineReply {
        let (mut copied, mut taken) = (Vec::<CopiedRecord>::new(), 0);
        for ((hash, key), record) in self.records.range((range.first, Vec::new())..) {
            let is_full = copied.len() >= limit.max(1) || taken >= bytes;
            let is_other = copied.last().is_some_and(|last| last.hash != *hash);
            if *hash > range.last {
                break;
            } else if is_full && is_other {
                return EngineReply::Copied(copied, Some(*hash));
            }
            taken += key.len() + record.value.len();
            copied.push(CopiedRecord { hash: *hash, key: key.clone(), record: record.clone() });
        }
        EngineReply::Copied(copied, None)
    }

    pub fn compact(&mut self, now_ms: u64) {
        self.records.retain(|key, record| {
            let offered = self.marks.get(key).is_some_and(Mark::is_offered);
            let base = self.floors.base(self.floors.chain_of(&key.0));
            let kept = self.floors.kept().iter().any(|range| range.contains(&key.0));
            let floor = if offered { base } else { self.floors.of(&key.0) };
            let floor = if kept { Seq::NONE } else { floor };
            let expired = record.expiry_ms > 0 && record.expiry_ms <= now_ms;
            record.seq > floor || !(record.tombstone || expired)
        });
    }

    pub fn loaded(&self) -> Loaded {
        Loaded {
            state: self.state.clone(),
            floors: self.floors.clone(),
            marks: self
                .marks
                .iter()
                .map(|((hash, key), mark)| (*hash, key.clone(), *mark))
                .collect(),
            completions: self.completions.values().copied().collect(),
            unconfirmed: self
                .unconfirmed
                .iter()
                .map(|((hash, key), lanes)| (*hash, key.clone(), lanes.clone()))
                .collect(),
        }
    }
}
