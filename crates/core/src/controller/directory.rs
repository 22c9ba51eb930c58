//! What the controller must not forget. Every change is durable before anybody is told of it.

use crate::control::KeyedRecord;
use crate::storage::EngineError;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
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
