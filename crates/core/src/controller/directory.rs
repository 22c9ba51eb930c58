//! What the controller must not forget. Every change is durable before a part is told of it.

use super::ControllerConfig;
use super::outbox::{Outbox, StoreFile};
use crate::control::{KeyedRecord, LANES_MAX, Message, Peer};
use crate::storage::EngineError;
use crate::topology::{ByChain, ChainId, unknown_chain};
use rand::RngExt;
use rand_pcg::Pcg32;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;
use std::fmt::Display;
use switchback_wire::{EPOCH_MAX, HashKey, KeyHash, Map};

/// Generations are reserved durably in steps of this many.
const GENERATIONS_RESERVED: u32 = 1024;

/// Generations and sessions are fewer: one a second would take 68 years.
const COUNTED_MAX: u32 = 1 << 31;
/// Starts are fewer: an entry of the cache has its number from the start, above 40 bits of its own,
/// and is named in 63 bits.
const STARTS_MAX: u32 = 1 << 23;

/// The controller's files as the driver found them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Files {
    /// Contents of [`StoreFile::Directory`].
    pub directory: Option<Vec<u8>>,
    /// Contents of [`StoreFile::Snapshot`].
    pub snapshot: Option<Vec<u8>>,
}

impl Files {
    /// The last complete snapshot; an empty one if there is none.
    ///
    /// # Errors
    /// A damaged file.
    pub(super) fn read_snapshot(&self) -> Result<SnapshotFile, EngineError> {
        Ok(decode(self.snapshot.as_deref(), "snapshot")?.unwrap_or_default())
    }

    /// The directory of a rack with this many nodes and partitions.
    ///
    /// # Errors
    /// A damaged file, or one of a rack with other nodes or partitions, or with more chains than
    /// there are.
    fn read_directory(
        &self,
        nodes: usize,
        partitions: usize,
    ) -> Result<Option<DirectoryFile>, EngineError> {
        let file = decode::<DirectoryFile>(self.directory.as_deref(), "directory")?;
        let Some(file) = file else { return Ok(None) };
        if !file.is_plausible() {
            let why = "the controller's directory has numbers that no controller comes to";
            return Err(EngineError::Corrupt(why.into()));
        }
        if let Some(chain) = unknown_chain(&file.map) {
            return Err(EngineError::Io(format!(
                "chain {chain} of switches serves partitions of this rack, and this program doesn't know it: use the \
                 version of Switchback that wrote the directory"
            )));
        }
        let other = |was: usize, what: &str, said: usize, mend: String| {
            EngineError::OtherRack(format!(
                "this rack was made with {was} {what} and can't be opened with {said}: {mend}"
            ))
        };
        let was = file.map.nodes();
        if was != nodes {
            return Err(other(
                was,
                "nodes",
                nodes,
                format!("say --nodes {was}, or count = {was} under [nodes]"),
            ));
        }
        let was = file.map.partitions().len();
        if was != partitions {
            return Err(other(
                was,
                "partitions",
                partitions,
                format!("say partitions = {was} under [rack]"),
            ));
        }
        Ok(Some(file))
    }

    /// Whether a rack with this many nodes and partitions has this directory.
    ///
    /// # Errors
    /// A damaged file, or one of a rack with other nodes or partitions.
    pub(super) fn check_directory(
        &self,
        nodes: usize,
        partitions: usize,
    ) -> Result<(), EngineError> {
        self.read_directory(nodes, partitions).map(|_| ())
    }
}

/// The durable directory, as it is in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DirectoryFile {
    /// Epochs and generations of each chain.
    counters: ByChain<Counters>,
    /// How often a controller of this rack was started: makes ids unique over restarts.
    starts: u32,
    /// Sessions opened so far: makes request counters rise over the sessions of a lane.
    sessions_opened: u32,
    /// Key of the rack's key hashes.
    hash_key: HashKey,
    /// Partitions and their replicas.
    map: Map,
    /// Who serves the epoch of each chain.
    serving: ByChain<Serving>,
    /// Sessions that may hold preserved records.
    sessions: BTreeMap<u64, SessionEntry>,
}

impl DirectoryFile {
    /// Whether a controller may have come to its numbers, so that there is one after each.
    fn is_plausible(&self) -> bool {
        self.counters.iter().all(|(_, counters)| {
            counters.epoch <= EPOCH_MAX
                && counters.recovered_epoch <= counters.epoch
                && counters.generation_reserved < COUNTED_MAX
        }) && self.starts < STARTS_MAX
            && self.sessions_opened < COUNTED_MAX
            && self.lanes_are_disjoint()
    }

    /// Whether each session has lanes, in range, and no lane has two sessions: a request of one
    /// would be taken for a repetition of the other's.
    fn lanes_are_disjoint(&self) -> bool {
        let mut lanes: Vec<_> =
            self.sessions.values().map(|session| (session.lane_first, session.lanes)).collect();
        lanes.sort_unstable();
        let in_range =
            |&(first, count): &(u32, u32)| first <= LANES_MAX && (1..=LANES_MAX).contains(&count);
        lanes.iter().all(in_range)
            && lanes.is_sorted_by(|(first, count), (next, _)| first + count <= *next)
    }
}

/// The counters of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Counters {
    /// The chain's epoch. Each new one, of any chain, is the next number.
    epoch: u32,
    /// The epoch whose recovery is complete.
    recovered_epoch: u32,
    /// No generation above this was ever used.
    generation_reserved: u32,
}

/// Who serves a chain's epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Serving {
    /// A switch, and its boot.
    active: Option<(u16, u64)>,
    /// No switch: clients send to the nodes.
    bypass: bool,
}

/// The directory in format 1, which knew one chain, and as many equal ranges as there were lists of
/// replicas.
#[derive(Serialize, Deserialize)]
struct DirectoryFile1 {
    counters: Counters,
    starts: u32,
    sessions_opened: u32,
    hash_key: HashKey,
    routes: Vec<Vec<u16>>,
    serving: Serving,
    sessions: BTreeMap<u64, SessionEntry>,
}

impl StoreFile {
    /// The format of the files that this version writes.
    pub const FORMAT: u8 = 2;

    /// Contents of format 1 in the format of this version. A snapshot is the same in both.
    ///
    /// # Errors
    /// They are damaged.
    pub fn upgrade(self, contents: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        if self == StoreFile::Snapshot {
            return Ok(contents);
        }
        let damaged =
            |why: &dyn Display| EngineError::Corrupt(format!("the controller's directory: {why}"));
        let was: DirectoryFile1 =
            postcard::from_bytes(&contents).map_err(|error| damaged(&error))?;
        Ok(encode(&DirectoryFile {
            counters: ByChain::new(|_| was.counters),
            starts: was.starts,
            sessions_opened: was.sessions_opened,
            hash_key: was.hash_key,
            map: Map::try_equal(was.routes).map_err(|error| damaged(&error))?,
            serving: ByChain::new(|_| was.serving),
            sessions: was.sessions,
        }))
    }
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

/// The durable directory. Every method that changes it stores it.
#[derive(Debug)]
pub(super) struct Directory {
    file: DirectoryFile,
    /// The store of its last change.
    last_store: u64,
}

impl Directory {
    /// The directory in `files`; without any, that of a new rack, whose hash key is drawn from
    /// `random`. The new start is counted.
    ///
    /// # Errors
    /// A damaged file, or one of a rack with other nodes or partitions.
    pub(super) fn open(
        files: &Files,
        config: &ControllerConfig,
        random: &mut Pcg32,
        outbox: &mut Outbox,
    ) -> Result<Directory, EngineError> {
        let found = files.read_directory(config.nodes.len(), config.map.partitions().len())?;
        let mut file = found.unwrap_or_else(|| DirectoryFile {
            counters: ByChain::new(|_| Counters::default()),
            starts: 0,
            sessions_opened: 0,
            hash_key: HashKey(random.random()),
            map: config.map.clone(),
            serving: ByChain::new(|_| Serving::default()),
            sessions: BTreeMap::new(),
        });
        file.starts += 1;
        let mut directory = Directory { file, last_store: 0 };
        directory.save(outbox);
        Ok(directory)
    }

    /// The epoch of a chain that is, or is becoming, durable.
    pub(super) fn epoch(&self, chain: ChainId) -> u32 {
        self.file.counters[chain].epoch
    }

    /// The newest epoch of all chains.
    pub(super) fn last_epoch(&self) -> u32 {
        self.file
            .counters
            .iter()
            .map(|(_, counters)| counters.epoch)
            .max()
            .expect("a rack has a chain")
    }

    /// Recovery of the chain's epochs before this one is durable, or is becoming so.
    pub(super) fn recovered_epoch(&self, chain: ChainId) -> u32 {
        self.file.counters[chain].recovered_epoch
    }

    /// Whether nothing is left to recover in a chain's epoch.
    pub(super) fn is_recovered(&self, chain: ChainId) -> bool {
        self.recovered_epoch(chain) == self.epoch(chain)
    }

    /// The switch that serves a chain's epoch, and its boot.
    pub(super) fn active(&self, chain: ChainId) -> Option<(u16, u64)> {
        self.file.serving[chain].active
    }

    /// The switch that serves a chain's epoch.
    pub(super) fn active_switch(&self, chain: ChainId) -> Option<u16> {
        self.active(chain).map(|(switch, _)| switch)
    }

    /// Whether no switch serves a chain's epoch, and clients send to the nodes.
    pub(super) fn is_bypass(&self, chain: ChainId) -> bool {
        self.file.serving[chain].bypass
    }

    /// Whether clients have something to send their packets to, of whichever chain.
    pub(super) fn is_served(&self) -> bool {
        self.file.serving.iter().all(|(_, serving)| serving.active.is_some() || serving.bypass)
    }

    /// How often a controller of this rack was started.
    pub(super) fn starts(&self) -> u32 {
        self.file.starts
    }

    /// The rack's hash key.
    pub(super) fn hash_key(&self) -> HashKey {
        self.file.hash_key
    }

    /// Partitions and their replicas.
    pub(super) fn map(&self) -> &Map {
        &self.file.map
    }

    /// The partition that a key belongs to.
    pub(super) fn partition_of(&self, hash: &KeyHash) -> u16 {
        self.file.map.of(*hash).number
    }

    /// The nodes that store a partition, its head first.
    pub(super) fn replicas(&self, partition: u16) -> &[u16] {
        &self.file.map.numbered(partition).replicas
    }

    /// The node that decides about a partition's keys now.
    pub(super) fn head(&self, partition: u16) -> u16 {
        self.replicas(partition)[0]
    }

    /// The head of the partition that a key belongs to.
    pub(super) fn head_of(&self, hash: &KeyHash) -> u16 {
        self.head(self.partition_of(hash))
    }

    /// Begins a chain's next epoch, served by this switch and boot, or by none; the store that
    /// makes it durable.
    pub(super) fn begin_epoch(
        &mut self,
        outbox: &mut Outbox,
        chain: ChainId,
        active: Option<(u16, u64)>,
    ) -> u64 {
        self.file.counters[chain].epoch = self.last_epoch() + 1;
        self.file.serving[chain] = Serving { active, bypass: active.is_none() };
        self.save(outbox)
    }

    /// A chain's epoch is recovered; sessions of `gone` are forgotten.
    pub(super) fn end_recovery(&mut self, outbox: &mut Outbox, chain: ChainId, gone: &[u64]) {
        self.file.counters[chain].recovered_epoch = self.epoch(chain);
        self.close_sessions(outbox, gone);
    }

    /// No generation of a chain above this was ever used, in any run of the controller.
    pub(super) fn generation_reserved(&self, chain: ChainId) -> u32 {
        self.file.counters[chain].generation_reserved
    }

    /// Sees to it that a chain's generation is reserved before it is used.
    pub(super) fn reserve_generation(
        &mut self,
        outbox: &mut Outbox,
        chain: ChainId,
        generation: u32,
    ) {
        let reserved = &mut self.file.counters[chain].generation_reserved;
        if generation > *reserved {
            *reserved = generation + GENERATIONS_RESERVED;
            self.save(outbox);
        }
    }

    /// A client's session.
    pub(super) fn session(&self, client: u64) -> Option<&SessionEntry> {
        self.file.sessions.get(&client)
    }

    /// All sessions.
    pub(super) fn sessions(&self) -> impl ExactSizeIterator<Item = (u64, &SessionEntry)> {
        self.file.sessions.iter().map(|(client, session)| (*client, session))
    }

    /// Opens a session with these lanes, `(first, count)`, in place of the one that the client had.
    /// Its number is higher than that of any before it.
    pub(super) fn open_session(
        &mut self,
        outbox: &mut Outbox,
        client: u64,
        boot: u64,
        (lane_first, lanes): (u32, u32),
        spooled: bool,
    ) {
        self.file.sessions_opened += 1;
        let number = self.file.sessions_opened;
        self.file
            .sessions
            .insert(client, SessionEntry { boot, lane_first, lanes, number, spooled });
        self.save(outbox);
    }

    /// Closes the sessions of these clients.
    pub(super) fn close_sessions(&mut self, outbox: &mut Outbox, clients: &[u64]) {
        for client in clients {
            self.file.sessions.remove(client);
        }
        self.save(outbox);
    }

    /// Closes all sessions.
    pub(super) fn close_all_sessions(&mut self, outbox: &mut Outbox) {
        self.file.sessions.clear();
        self.save(outbox);
    }

    /// Sends a message once everything that the directory says now is durable.
    pub(super) fn send_when_durable(&self, outbox: &mut Outbox, to: Peer, message: Message) {
        outbox.send_after(self.last_store, to, message);
    }

    fn save(&mut self, outbox: &mut Outbox) -> u64 {
        self.last_store = outbox.store(StoreFile::Directory, encode(&self.file));
        self.last_store
    }
}

/// Encodes a file.
pub(super) fn encode<T: Serialize>(file: &T) -> Vec<u8> {
    postcard::to_stdvec(file).expect("plain data has an encoding")
}

/// Decodes a file, or says which one is damaged.
pub(super) fn decode<T: DeserializeOwned>(
    bytes: Option<&[u8]>,
    name: &str,
) -> Result<Option<T>, EngineError> {
    let Some(bytes) = bytes else { return Ok(None) };
    postcard::from_bytes(bytes)
        .map(Some)
        .map_err(|error| EngineError::Corrupt(format!("the controller's {name}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Record;
    use crate::topology::chain_of;
    use switchback_wire::{Partition, Seq};

    /// Whether the directory of a rack with one node and one partition can be opened, changed so.
    fn opened(change: impl FnOnce(&mut DirectoryFile)) -> Result<(), EngineError> {
        let mut file = DirectoryFile {
            counters: ByChain::new(|_| Counters::default()),
            starts: 1,
            sessions_opened: 0,
            hash_key: HashKey([6; 16]),
            map: Map::equal(vec![vec![0]]),
            serving: ByChain::new(|_| Serving::default()),
            sessions: BTreeMap::new(),
        };
        change(&mut file);
        Files { directory: Some(encode(&file)), snapshot: None }.check_directory(1, 1)
    }

    #[test]
    fn a_directory_of_another_chain_is_refused_by_its_number() {
        assert_eq!(opened(|_| ()), Ok(()));
        let error = opened(|file| {
            let partition = file.map.partitions()[0].clone();
            file.map = Map::new(vec![Partition { chain: 1, ..partition }]).expect("a map");
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("chain 1 of switches serves partitions of this rack"), "{error}");
    }

    /// The next start, epoch, generation or session would overflow.
    #[test]
    fn numbers_that_no_controller_comes_to_are_damage() {
        let is_damage =
            |change: fn(&mut DirectoryFile)| matches!(opened(change), Err(EngineError::Corrupt(_)));
        let chain = chain_of(0);
        assert!(is_damage(|file| file.starts = u32::MAX));
        assert!(is_damage(|file| file.sessions_opened = u32::MAX));
        assert_eq!(opened(|file| file.counters[chain].epoch = EPOCH_MAX), Ok(()));
        assert!(is_damage(|file| file.counters[chain_of(0)].epoch = u32::MAX));
        assert!(is_damage(|file| file.counters[chain_of(0)].recovered_epoch = 1));
        assert!(is_damage(|file| file.counters[chain_of(0)].generation_reserved = u32::MAX));
        let session =
            SessionEntry { boot: 1, lane_first: u32::MAX, lanes: 1, number: 1, spooled: false };
        let with_session = |file: &mut DirectoryFile| _ = file.sessions.insert(1, session);
        assert!(matches!(opened(with_session), Err(EngineError::Corrupt(_))));
    }

    #[test]
    fn sessions_that_share_a_lane_are_damage() {
        let opened = |lanes: &[(u32, u32)]| {
            opened(|file| {
                for (client, &(lane_first, lanes)) in lanes.iter().enumerate() {
                    let (boot, number) = (7, client as u32);
                    let session = SessionEntry { boot, lane_first, lanes, number, spooled: false };
                    file.sessions.insert(client as u64, session);
                }
            })
        };
        assert_eq!(opened(&[(8, 8), (0, 8)]), Ok(()));
        for damage in [&[(0, 8), (7, 8)][..], &[(0, 8), (0, 8)], &[(4, 0)], &[(0, 8), (4, 0)]] {
            assert!(matches!(opened(damage), Err(EngineError::Corrupt(_))), "{damage:?}");
        }
    }

    /// Fails if a rack that exists could not be opened any more.
    #[test]
    fn the_form_of_the_files_stays() {
        let session = SessionEntry { boot: 7, lane_first: 8, lanes: 9, number: 10, spooled: true };
        let directory = DirectoryFile {
            counters: ByChain::new(|_| Counters {
                epoch: 1,
                recovered_epoch: 2,
                generation_reserved: 3,
            }),
            starts: 4,
            sessions_opened: 5,
            hash_key: HashKey([6; 16]),
            map: Map::equal(vec![vec![0], vec![1]]),
            serving: ByChain::new(|_| Serving { active: Some((11, 12)), bypass: false }),
            sessions: BTreeMap::from([(13, session)]),
        };
        // Two partitions: number, start with its bits in reverse order, view, chain, replicas.
        let map = [2, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1];
        let rest = [1, 11, 12, 0, 1, 13, 7, 8, 9, 10, 1];
        let bytes = [&[1, 2, 3, 4, 5][..], &[6; 16], &map, &rest].concat();
        assert_eq!(encode(&directory), bytes);
        let routes_1 = [2, 1, 0, 1, 1];
        let bytes_1 = [&[1, 2, 3, 4, 5][..], &[6; 16], &routes_1, &rest].concat();
        assert_eq!(StoreFile::Directory.upgrade(bytes_1.clone()), Ok(bytes));
        for cut in 0..bytes_1.len() {
            assert!(StoreFile::Directory.upgrade(bytes_1[..cut].to_vec()).is_err());
        }
        let three = [&[1, 2, 3, 4, 5][..], &[6; 16], &[3, 1, 0, 1, 1, 1, 0], &rest].concat();
        let error = StoreFile::Directory.upgrade(three).unwrap_err().to_string();
        assert!(error.contains("equal ranges are a power of two"), "{error}");
        let record = Record { seq: Seq(3), value: vec![4], expiry_ms: 5, ..Record::default() };
        let record = KeyedRecord { hash: KeyHash([6; 16]), key: vec![7], record };
        let snapshot = SnapshotFile { epoch: 1, generation: 2, records: vec![record] };
        assert_eq!(
            encode(&snapshot),
            [&[1, 2, 1][..], &[6; 16], &[1, 7, 3, 0, 5, 1, 4, 0]].concat()
        );
    }
}
