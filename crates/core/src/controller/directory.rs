//! What the controller must not forget. Every change is durable before anybody is told of it.

use crate::control::KeyedRecord;
use crate::storage::EngineError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, VecDeque};
use switchback_wire::HashKey;

/// Generations are reserved durably in steps of this many.
pub(super) const GENERATIONS_RESERVED: u32 = 1024;

/// A file of the controller's. The driver stores it whole: written, synced, renamed into place, the old one kept until then.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum StoreFile {
    /// Epoch, sessions, routes.
    Directory,
    /// The last complete snapshot.
    Snapshot,
}

/// A store that the driver still has to do: the file, the number to confirm, the contents.
pub type PendingStore = (StoreFile, u64, Vec<u8>);

/// Merges what waits for a slow disk: of each file only the newest contents need be written, where the first of them were due. So there are
/// at most as many stores as files, and none is confirmed before everything that was asked for earlier is on the disk.
pub fn merge_stores(pending: &mut VecDeque<PendingStore>) {
    let Some(newest) = pending.iter().map(|(_, id, _)| *id).max() else { return };
    let mut merged: VecDeque<PendingStore> = VecDeque::new();
    for (file, id, bytes) in pending.drain(..) {
        match merged.iter_mut().find(|(known, ..)| *known == file) {
            Some((.., contents)) => *contents = bytes,
            None => merged.push_back((file, id, bytes)),
        }
    }
    merged.back_mut().expect("there was one").1 = newest;
    *pending = merged;
}

/// The controller's files as the driver found them.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Contents of [`StoreFile::Directory`].
    pub directory: Option<Vec<u8>>,
    /// Contents of [`StoreFile::Snapshot`].
    pub snapshot: Option<Vec<u8>>,
}

/// The durable directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Directory {
    /// The rack's epoch.
    pub(super) epoch: u32,
    /// The epoch whose recovery is complete.
    pub(super) recovered_epoch: u32,
    /// No generation above this was ever used.
    pub(super) generation_reserved: u32,
    /// How often a controller of this rack was started: makes ids unique over restarts.
    pub(super) starts: u32,
    /// Sessions opened so far: makes request counters rise over the sessions of a lane.
    pub(super) sessions_opened: u32,
    /// Key of the rack's key hashes.
    pub(super) hash_key: HashKey,
    /// Replicas of each partition.
    pub(super) routes: Vec<Vec<u16>>,
    /// Switch that serves the epoch, and its boot.
    pub(super) active: Option<(u16, u64)>,
    /// No switch serves the epoch: clients send to the nodes.
    pub(super) bypass: bool,
    /// Sessions that may hold preserved records.
    pub(super) sessions: BTreeMap<u64, SessionEntry>,
}

/// A session, as it must survive the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SessionEntry {
    pub(super) boot: u64,
    pub(super) lane_first: u32,
    pub(super) lanes: u32,
    pub(super) number: u32,
    pub(super) spooled: bool,
}

/// A complete snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct SnapshotFile {
    pub(super) epoch: u32,
    pub(super) generation: u32,
    pub(super) records: Vec<KeyedRecord>,
}

/// Encodes a file.
pub(super) fn encode<T: Serialize>(file: &T) -> Vec<u8> {
    postcard::to_stdvec(file).expect("plain data has an encoding")
}

/// Decodes a file, or says which one is damaged.
pub(super) fn decode<T: DeserializeOwned>(bytes: Option<&[u8]>, name: &str) -> Result<Option<T>, EngineError> {
    let Some(bytes) = bytes else { return Ok(None) };
    postcard::from_bytes(bytes)
        .map(Some)
        .map_err(|error| EngineError::Corrupt(format!("the controller's {name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_that_wait_are_merged_in_order() {
        let (directory, snapshot) = (StoreFile::Directory, StoreFile::Snapshot);
        let mut pending = VecDeque::from([(directory, 5, vec![5]), (snapshot, 6, vec![6]), (directory, 7, vec![7])]);
        merge_stores(&mut pending);
        // The snapshot's generation was reserved in the fifth store, which it may not precede.
        assert_eq!(pending, [(directory, 5, vec![7]), (snapshot, 7, vec![6])]);
        merge_stores(&mut pending);
        assert_eq!(pending.len(), 2);
        let mut pending = VecDeque::from([(directory, 8, vec![8]), (directory, 9, vec![9])]);
        merge_stores(&mut pending);
        assert_eq!(pending, [(directory, 9, vec![9])]);
    }
}
