//! What the controller must not forget. Every change is durable before a part is told of it.

use super::ControllerConfig;
use super::outbox::{Outbox, StoreFile};
use crate::control::{Join, KeyedRecord, LANES_MAX, Message, Peer};
use crate::storage::EngineError;
use crate::topology::{ByChain, CHAINS_MAX, ChainId, ChainMap, epoch_of_round, round_of};
use rand::RngExt;
use rand_pcg::Pcg32;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use switchback_wire::{EPOCH_MAX, HashKey, KeyHash, LAYERS_MAX, Map, Partition, Scheme, View};

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
    /// Contents of [`StoreFile::Snapshot`], of each chain that has one.
    pub snapshots: BTreeMap<ChainId, Vec<u8>>,
}

/// What of a rack its directory has to agree with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RackShape {
    /// What the cache does.
    pub scheme: Scheme,
    /// How many nodes there are.
    pub nodes: usize,
    /// How many of them are to have each partition.
    pub replicas: usize,
    /// How many partitions there are.
    pub partitions: usize,
    /// How many chains of switches there are.
    pub chains: u16,
}

impl RackShape {
    fn of(config: &ControllerConfig) -> RackShape {
        let replicas = config.map.partitions().iter().map(|it| it.replicas.len());
        RackShape {
            scheme: config.scheme,
            nodes: config.nodes.len(),
            replicas: replicas.max().unwrap_or(1),
            partitions: config.map.partitions().len(),
            chains: config.chains,
        }
    }
}

impl Files {
    /// The last complete snapshot of each chain; an empty one if there is none.
    ///
    /// # Errors
    /// A damaged file.
    pub(super) fn read_snapshots(&self, chains: u16) -> Result<ByChain<SnapshotFile>, EngineError> {
        let mut snapshots = ByChain::new(chains, |_| SnapshotFile::default());
        for (chain, snapshot) in snapshots.iter_mut() {
            let found = self.snapshots.get(&chain).map(Vec::as_slice);
            *snapshot = decode(found, "snapshot")?.unwrap_or_default();
        }
        Ok(snapshots)
    }

    /// The directory of a rack of this shape.
    ///
    /// # Errors
    /// A damaged file, or one of another rack.
    fn read_directory(&self, shape: &RackShape) -> Result<Option<DirectoryFile>, EngineError> {
        let RackShape { scheme, nodes, replicas, partitions, chains } = *shape;
        let file = decode::<DirectoryFile>(self.directory.as_deref(), "directory")?;
        let Some(file) = file else { return Ok(None) };
        if !file.is_plausible() {
            let why = "the controller's directory has numbers that no controller comes to";
            return Err(EngineError::Corrupt(why.into()));
        }
        let other = |was: usize, what: &str, said: usize, mend: String| {
            EngineError::OtherRack(format!(
                "this rack was made with {was} {what} and can't be opened with {said}: {mend}"
            ))
        };
        let joiners = file.joins.open.values().map(|join| usize::from(join.node) + 1);
        let was = joiners.max().unwrap_or(0).max(file.map.nodes());
        // A node that was taken out is named no more.
        let are_all_named = file.map.changed_views().next().is_none();
        if was > nodes || (was < nodes && are_all_named) {
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
        let was = usize::from(file.chains.chains());
        if was != usize::from(chains) {
            return Err(other(
                was,
                if was == 1 { "chain of switches" } else { "chains of switches" },
                chains.into(),
                format!("say chains = {was} under [topology]"),
            ));
        }
        let was = file.map.partitions().iter().map(|it| it.replicas.len()).max().unwrap_or(1);
        if was > replicas {
            return Err(other(
                was,
                "replicas of each partition",
                replicas,
                format!("say replication = {was} under [rack], for it can be raised only"),
            ));
        }
        if file.is_replicated() && scheme.has_copies() {
            let why = format!(
                "partitions of this rack have, or had, several replicas, which scheme = \
                 \"{scheme}\" can't have: say another one under [rack]"
            );
            return Err(EngineError::OtherRack(why));
        }
        Ok(Some(file))
    }

    /// Whether a rack of this shape has this directory.
    ///
    /// # Errors
    /// A damaged file, or one of another rack.
    pub(super) fn check_directory(&self, shape: &RackShape) -> Result<(), EngineError> {
        self.read_directory(shape).map(|_| ())
    }
}

/// The durable directory, as it is in the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DirectoryFile {
    /// Each chain.
    chains: ByChain<ChainEntry>,
    /// No generation of a snapshot above this was ever used, of any chain.
    generation_reserved: u32,
    /// How often a controller of this rack was started: makes ids unique over restarts.
    starts: u32,
    /// Sessions opened so far: makes request counters rise over the sessions of a lane.
    sessions_opened: u32,
    /// Key of the rack's key hashes.
    hash_key: HashKey,
    /// Partitions, their replicas and chains.
    map: Map,
    /// Sessions that may hold preserved records.
    sessions: BTreeMap<u64, SessionEntry>,
    /// Switches that an operator has taken out: they serve no chain.
    drained: BTreeSet<u16>,
    /// Nodes that join partitions.
    joins: JoinsFile,
}

/// Joins, as they must survive the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct JoinsFile {
    /// How many have begun: names the last one.
    begun: u32,
    /// How often `open` has changed.
    changed: u32,
    /// By partition.
    open: BTreeMap<u16, JoinEntry>,
}

/// A join that isn't over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct JoinEntry {
    pub(super) number: u32,
    pub(super) node: u16,
    /// The node stands last in the partition's view, and wasn't heard to have opened: it is no
    /// member yet, which may be left alone.
    pub(super) is_opening: bool,
}

/// The directory in format 6, which knew no joins.
#[derive(Serialize, Deserialize)]
struct DirectoryWithoutJoins {
    chains: ByChain<ChainEntry>,
    generation_reserved: u32,
    starts: u32,
    sessions_opened: u32,
    hash_key: HashKey,
    map: Map,
    sessions: BTreeMap<u64, SessionEntry>,
    drained: BTreeSet<u16>,
}

impl From<DirectoryWithoutJoins> for DirectoryFile {
    fn from(was: DirectoryWithoutJoins) -> DirectoryFile {
        DirectoryFile {
            chains: was.chains,
            generation_reserved: was.generation_reserved,
            starts: was.starts,
            sessions_opened: was.sessions_opened,
            hash_key: was.hash_key,
            map: was.map,
            sessions: was.sessions,
            drained: was.drained,
            joins: JoinsFile::default(),
        }
    }
}

impl DirectoryFile {
    /// Whether partitions have, or had, several replicas.
    fn is_replicated(&self) -> bool {
        self.map.partitions().iter().any(|it| it.view > 0 || it.replicas.len() > 1)
    }

    /// Whether a controller may have come to its numbers, so that there is one after each.
    fn is_plausible(&self) -> bool {
        (1..=CHAINS_MAX).contains(&self.chains.chains())
            && ChainMap::from(&self.map).chains().all(|chain| self.chains.get(chain).is_some())
            && self.chains.iter().all(|(_, chain)| chain.is_plausible())
            && self.generation_reserved < COUNTED_MAX
            && self.starts < STARTS_MAX
            && self.sessions_opened < COUNTED_MAX
            && self.joins.begun < COUNTED_MAX
            && self.joins.changed < COUNTED_MAX
            && self
                .joins
                .open
                .keys()
                .all(|partition| self.map.partitions().iter().any(|it| it.number == *partition))
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

/// A chain, as it must survive the controller.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct ChainEntry {
    /// Its epoch. Each new one, of any chain, is the next number.
    epoch: u32,
    /// Recovery of its epochs before this one is durable.
    recovered_epoch: u32,
    /// Who serves the epoch: switches and their boots, in the order of their layers.
    members: Vec<(u16, u64)>,
    /// No switch: clients send to the nodes.
    bypass: bool,
    /// What clients preserve of what the epoch's members tell.
    preserves: Preserved,
    /// The members of the last recovered epoch, if its switches keep what it told.
    witnesses: Vec<(u16, u64)>,
    /// What clients preserved of what those told.
    preserved: Preserved,
}

/// Of which round a chain's next epoch is, where all chains change theirs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Round {
    /// The next one: the other chains follow.
    Next,
    /// The last one, which another chain began.
    Last,
}

/// What clients preserve of what a chain's members tell them in an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) enum Preserved {
    /// Everything that no node has (rule 7).
    #[default]
    All,
    /// Nothing: the switches alone protect it.
    Nothing,
}

impl ChainEntry {
    fn is_plausible(&self) -> bool {
        let is_chain = |members: &[(u16, u64)]| {
            members.len() <= usize::from(LAYERS_MAX)
                && members.iter().map(|(switch, _)| switch).collect::<BTreeSet<_>>().len()
                    == members.len()
        };
        self.epoch <= EPOCH_MAX
            && self.recovered_epoch <= self.epoch
            && is_chain(&self.members)
            && is_chain(&self.witnesses)
    }
}

/// A chain in format 4, the switches of which kept nothing for a recovery.
#[derive(Serialize, Deserialize)]
struct ChainWithoutWitnesses {
    epoch: u32,
    recovered_epoch: u32,
    members: Vec<(u16, u64)>,
    bypass: bool,
}

impl From<ChainWithoutWitnesses> for ChainEntry {
    fn from(was: ChainWithoutWitnesses) -> ChainEntry {
        let ChainWithoutWitnesses { epoch, recovered_epoch, members, bypass } = was;
        ChainEntry { epoch, recovered_epoch, members, bypass, ..ChainEntry::default() }
    }
}

/// The directory in format 5, which knew no switches that were taken out; in format 4 with chains
/// without witnesses, and in format 3, which has the same bytes.
#[derive(Serialize, Deserialize)]
struct DirectoryWithoutDrained<C> {
    chains: C,
    generation_reserved: u32,
    starts: u32,
    sessions_opened: u32,
    hash_key: HashKey,
    map: Map,
    sessions: BTreeMap<u64, SessionEntry>,
}

/// Chains of format 4, the switches of which are no witnesses.
fn with_witnesses(chains: Vec<ChainWithoutWitnesses>) -> ByChain<ChainEntry> {
    let mut chains = chains.into_iter().map(ChainEntry::from);
    ByChain::new(chains.len() as u16, |_| chains.next().unwrap_or_default())
}

impl<C> DirectoryWithoutDrained<C> {
    fn upgrade(self, chains: impl FnOnce(C) -> ByChain<ChainEntry>) -> DirectoryFile {
        let was = self;
        DirectoryFile {
            chains: chains(was.chains),
            drained: BTreeSet::new(),
            joins: JoinsFile::default(),
            generation_reserved: was.generation_reserved,
            starts: was.starts,
            sessions_opened: was.sessions_opened,
            hash_key: was.hash_key,
            map: was.map,
            sessions: was.sessions,
        }
    }
}

/// The directory in formats 1 and 2, which knew one chain. `M`: as many equal ranges as there were
/// lists of replicas, or the map of partitions.
#[derive(Serialize, Deserialize)]
struct DirectoryOfOne<M> {
    epoch: u32,
    recovered_epoch: u32,
    generation_reserved: u32,
    starts: u32,
    sessions_opened: u32,
    hash_key: HashKey,
    map: M,
    active: Option<(u16, u64)>,
    bypass: bool,
    sessions: BTreeMap<u64, SessionEntry>,
}

impl<M> DirectoryOfOne<M> {
    fn upgrade<E>(self, map: impl FnOnce(M) -> Result<Map, E>) -> Result<DirectoryFile, E> {
        let DirectoryOfOne { epoch, recovered_epoch, active, bypass, .. } = self;
        let members: Vec<_> = active.into_iter().collect();
        let entry = ChainEntry { epoch, recovered_epoch, members, bypass, ..ChainEntry::default() };
        Ok(DirectoryFile {
            chains: ByChain::new(1, |_| entry.clone()),
            generation_reserved: self.generation_reserved,
            starts: self.starts,
            sessions_opened: self.sessions_opened,
            hash_key: self.hash_key,
            map: map(self.map)?,
            sessions: self.sessions,
            drained: BTreeSet::new(),
            joins: JoinsFile::default(),
        })
    }
}

impl StoreFile {
    /// The format of the files that this version writes.
    pub const FORMAT: u8 = 7;

    /// Contents of an older format, 1 to 6, in the format of this version. A snapshot is the same
    /// in all. A directory of format 3 has of each chain the switch that serves, if one does: a
    /// list of none or one member, as in format 4, has the same bytes.
    ///
    /// # Errors
    /// They are damaged.
    pub fn upgrade(self, format: u8, contents: Vec<u8>) -> Result<Vec<u8>, EngineError> {
        assert!((1..StoreFile::FORMAT).contains(&format), "an older format");
        if matches!(self, StoreFile::Snapshot(_)) {
            return Ok(contents);
        }
        let damaged =
            |why: &dyn Display| EngineError::Corrupt(format!("the controller's directory: {why}"));
        let file = match format {
            1 => {
                let was = postcard::from_bytes::<DirectoryOfOne<Vec<Vec<u16>>>>(&contents);
                was.map_err(|error| damaged(&error))?
                    .upgrade(Map::try_equal)
                    .map_err(|error| damaged(&error))?
            }
            2 => {
                let was = postcard::from_bytes::<DirectoryOfOne<Map>>(&contents);
                was.map_err(|error| damaged(&error))?.upgrade(Ok::<Map, EngineError>)?
            }
            3 | 4 => {
                type Was = DirectoryWithoutDrained<Vec<ChainWithoutWitnesses>>;
                let was = postcard::from_bytes::<Was>(&contents);
                was.map_err(|error| damaged(&error))?.upgrade(with_witnesses)
            }
            6 => {
                let was = postcard::from_bytes::<DirectoryWithoutJoins>(&contents);
                was.map_err(|error| damaged(&error))?.into()
            }
            _ => {
                type Was = DirectoryWithoutDrained<ByChain<ChainEntry>>;
                let was = postcard::from_bytes::<Was>(&contents);
                was.map_err(|error| damaged(&error))?.upgrade(|chains| chains)
            }
        };
        Ok(encode(&file))
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
    /// Which chain serves each key, by the file's map.
    served: ChainMap,
    /// The nodes that store partitions of each chain, by the same.
    holders: ByChain<BTreeSet<u16>>,
    /// Partitions have, or had, several replicas.
    is_replicated: bool,
    /// How many replicas a partition is to have.
    replication: usize,
    /// How many partitions have fewer.
    short: usize,
    /// The store of the last change of joins.
    joins_store: u64,
    /// The last generation that was used in this run of the controller; 0: none yet.
    generation: u32,
    /// The store of its last change.
    last_store: u64,
}

impl Directory {
    /// The directory in `files`; without any, that of a new rack, whose hash key is drawn from
    /// `random`. The new start is counted.
    ///
    /// # Errors
    /// A damaged file, or one of a rack with other nodes, partitions or chains.
    pub(super) fn open(
        files: &Files,
        config: &ControllerConfig,
        random: &mut Pcg32,
        outbox: &mut Outbox,
    ) -> Result<Directory, EngineError> {
        let shape = RackShape::of(config);
        assert!(shape.replicas == 1 || !config.scheme.has_copies(), "it has copies in switches");
        let found = files.read_directory(&shape)?;
        let mut file = found.unwrap_or_else(|| DirectoryFile {
            chains: ByChain::new(config.chains, |_| ChainEntry::default()),
            generation_reserved: 0,
            starts: 0,
            sessions_opened: 0,
            hash_key: HashKey(random.random()),
            map: config.map.clone(),
            sessions: BTreeMap::new(),
            drained: BTreeSet::new(),
            joins: JoinsFile::default(),
        });
        assert!(file.is_plausible(), "partitions of chains that there are");
        file.starts += 1;
        let (served, holders) = (ChainMap::from(&file.map), holders(&file));
        let is_replicated = shape.replicas > 1 || file.is_replicated();
        let mut directory = Directory {
            short: short_of(&file.map, shape.replicas),
            file,
            served,
            holders,
            is_replicated,
            replication: shape.replicas,
            joins_store: 0,
            generation: 0,
            last_store: 0,
        };
        directory.joins_store = directory.save(outbox);
        Ok(directory)
    }

    /// Whether an operator has taken a switch out.
    pub(super) fn is_drained(&self, switch: u16) -> bool {
        self.file.drained.contains(&switch)
    }

    /// Takes a switch out, or back in.
    pub(super) fn set_drained(&mut self, outbox: &mut Outbox, switch: u16, drained: bool) {
        let is_new = match drained {
            true => self.file.drained.insert(switch),
            false => self.file.drained.remove(&switch),
        };
        if is_new {
            self.save(outbox);
        }
    }

    /// How many chains of switches there are.
    pub(super) fn chains(&self) -> u16 {
        self.file.chains.chains()
    }

    /// The epoch of a chain that is, or is becoming, durable.
    pub(super) fn epoch(&self, chain: ChainId) -> u32 {
        self.file.chains[chain].epoch
    }

    /// Whether a chain can begin another epoch.
    pub(super) fn has_next_epoch(&self, rounds: bool) -> bool {
        let last = self.last_epoch();
        if rounds { round_of(last) + 1 < round_of(EPOCH_MAX) } else { last < EPOCH_MAX }
    }

    /// Whether other chains are in a later round of epochs than this one.
    pub(super) fn is_behind(&self, chain: ChainId) -> bool {
        round_of(self.epoch(chain)) < round_of(self.last_epoch())
    }

    /// The newest epoch of all chains.
    pub(super) fn last_epoch(&self) -> u32 {
        let epochs = self.file.chains.iter().map(|(_, chain)| chain.epoch);
        epochs.max().expect("a rack has a chain")
    }

    /// Recovery of the chain's epochs before this one is durable, or is becoming so.
    pub(super) fn recovered_epoch(&self, chain: ChainId) -> u32 {
        self.file.chains[chain].recovered_epoch
    }

    /// Whether nothing is left to recover in a chain's epoch.
    pub(super) fn is_recovered(&self, chain: ChainId) -> bool {
        self.recovered_epoch(chain) == self.epoch(chain)
    }

    /// The switches that serve a chain's epoch and their boots, from the clients to the nodes.
    pub(super) fn members(&self, chain: ChainId) -> &[(u16, u64)] {
        &self.file.chains[chain].members
    }

    /// The same without the boots.
    pub(super) fn switches(&self, chain: ChainId) -> impl Iterator<Item = u16> {
        self.members(chain).iter().map(|(switch, _)| *switch)
    }

    /// The member next to the clients of a chain that has one beside the owner: DistCache's spine.
    pub(super) fn spine(&self, chain: ChainId) -> Option<u16> {
        self.keepers(chain).next()
    }

    /// The member to which a chain's clients send.
    pub(super) fn first(&self, chain: ChainId) -> Option<u16> {
        self.switches(chain).next()
    }

    /// The member that decides about a chain's keys, next to the nodes.
    pub(super) fn owner(&self, chain: ChainId) -> Option<u16> {
        self.switches(chain).last()
    }

    /// The members that keep what the owner answers: all others.
    pub(super) fn keepers(&self, chain: ChainId) -> impl Iterator<Item = u16> {
        self.switches(chain).take(self.members(chain).len().saturating_sub(1))
    }

    /// The chain whose epoch a switch serves, or was the last to serve.
    pub(super) fn chain_of_switch(&self, switch: u16) -> Option<ChainId> {
        let mut chains = self.file.chains.iter().map(|(chain, _)| chain);
        chains.find(|chain| self.switches(*chain).any(|member| member == switch))
    }

    /// The same, or the chain that a recovery may take from it.
    pub(super) fn home_of_switch(&self, switch: u16) -> Option<ChainId> {
        let mut chains = self.file.chains.iter().map(|(chain, _)| chain);
        let is_witness = |chain: &ChainId| self.witnesses(*chain).iter().any(|it| it.0 == switch);
        self.chain_of_switch(switch).or_else(|| chains.find(is_witness))
    }

    /// The members of a chain's last recovered epoch and their boots, if they keep what it told.
    pub(super) fn witnesses(&self, chain: ChainId) -> &[(u16, u64)] {
        &self.file.chains[chain].witnesses
    }

    /// What clients preserved of what those told.
    pub(super) fn preserved(&self, chain: ChainId) -> Preserved {
        self.file.chains[chain].preserved
    }

    /// What clients preserve in a chain's epoch.
    pub(super) fn preserves(&self, chain: ChainId) -> Preserved {
        self.file.chains[chain].preserves
    }

    /// Whether no switch serves a chain's epoch, and clients send to the nodes.
    pub(super) fn is_bypass(&self, chain: ChainId) -> bool {
        self.file.chains[chain].bypass
    }

    /// Whether clients have something to send packets to, at least of one chain.
    pub(super) fn is_served(&self) -> bool {
        self.file.chains.iter().any(|(_, chain)| !chain.members.is_empty() || chain.bypass)
    }

    /// How often a controller of this rack was started.
    pub(super) fn starts(&self) -> u32 {
        self.file.starts
    }

    /// The rack's hash key.
    pub(super) fn hash_key(&self) -> HashKey {
        self.file.hash_key
    }

    /// Partitions, their replicas and chains.
    pub(super) fn map(&self) -> &Map {
        &self.file.map
    }

    /// Which chain serves each key.
    pub(super) fn served(&self) -> &ChainMap {
        &self.served
    }

    /// The partition that a key belongs to.
    pub(super) fn partition_of(&self, hash: &KeyHash) -> u16 {
        self.file.map.of(*hash).number
    }

    /// The nodes that store a partition, its head first.
    pub(super) fn replicas(&self, partition: u16) -> &[u16] {
        &self.file.map.numbered(partition).replicas
    }

    /// Whether partitions have, or had, several replicas.
    pub(super) fn is_replicated(&self) -> bool {
        self.is_replicated
    }

    /// The views of a chain's partitions whose replicas have changed.
    pub(super) fn views(&self, chain: ChainId) -> Vec<View> {
        let is_of = |view: &View| self.file.map.numbered(view.partition).chain == chain.number();
        self.file.map.changed_views().filter(is_of).collect()
    }

    /// The join of a partition, if a node joins it.
    pub(super) fn join(&self, partition: u16) -> Option<JoinEntry> {
        self.file.joins.open.get(&partition).copied()
    }

    /// Partitions and the nodes that haven't opened.
    pub(super) fn opening(&self) -> impl Iterator<Item = (u16, u16)> {
        let opening = self.file.joins.open.iter().filter(|(_, join)| join.is_opening);
        opening.map(|(partition, join)| (*partition, join.node))
    }

    /// The replicas of a partition but for one that hasn't opened: each has all that was answered.
    fn whole<'a>(&self, it: &'a Partition) -> impl Iterator<Item = u16> + 'a {
        let opening = self.join(it.number).filter(|join| join.is_opening).map(|join| join.node);
        it.replicas.iter().copied().filter(move |node| Some(*node) != opening)
    }

    /// The members of the partition with this number.
    pub(super) fn members_of(&self, partition: u16) -> Vec<u16> {
        self.whole(self.file.map.numbered(partition)).collect()
    }

    /// Whether a partition has a replica at this node, and a member at another one.
    pub(super) fn has_others(&self, node: u16) -> bool {
        let mut partitions = self.file.map.partitions().iter();
        let has_other = |it: &Partition| self.whole(it).any(|member| member != node);
        self.is_replicated && partitions.any(|it| it.replicas.contains(&node) && has_other(it))
    }

    /// Whether partitions can do without this node: they have another member, or it only joins
    /// them.
    pub(super) fn may_lose(&self, node: u16) -> bool {
        self.file.joins.open.values().any(|join| join.node == node) || self.has_others(node)
    }

    /// Takes a node out of the partitions of which another member `lives`. A join ends with its
    /// source, unless it `goes_on`. The chains of those whose replicas have changed.
    pub(super) fn remove_node(
        &mut self,
        outbox: &mut Outbox,
        node: u16,
        lives: impl Fn(u16, ChainId) -> bool,
        goes_on: bool,
    ) -> BTreeSet<ChainId> {
        let (mut views, mut ended, mut chains) = (Vec::new(), Vec::new(), BTreeSet::new());
        for it in self.file.map.partitions() {
            let (chain, join) = (ChainId::new(it.chain), self.join(it.number));
            let mut gone = vec![node];
            if let Some(join) = join.filter(|join| join.node == node) {
                debug_assert!(it.replicas.contains(&node) == join.is_opening);
                ended.push(it.number);
            } else if !self.whole(it).any(|other| other != node && lives(other, chain)) {
                continue;
            } else if let Some(join) = join
                && self.whole(it).last() == Some(node)
                && !goes_on
            {
                ended.push(it.number);
                gone.push(join.node);
            }
            let left = it.replicas.iter().copied().filter(|replica| !gone.contains(replica));
            let replicas: Vec<_> = left.collect();
            if replicas.len() < it.replicas.len() {
                views.push(View { partition: it.number, number: it.view + 1, replicas });
                chains.insert(chain);
            }
        }
        if !views.is_empty() || !ended.is_empty() {
            ended.iter().for_each(|partition| _ = self.file.joins.open.remove(partition));
            // Who goes on may stand alone: then it counts as a member.
            let alone: Vec<_> = views.iter().filter(|view| view.replicas.len() == 1).collect();
            for view in alone {
                let open = &mut self.file.joins.open;
                if open.get(&view.partition).is_some_and(|join| join.is_opening) {
                    open.remove(&view.partition);
                }
            }
            self.change_views(&views);
            self.save_joins(outbox);
        }
        chains
    }

    fn change_views(&mut self, views: &[View]) {
        self.file.map = self.file.map.with_views(views).expect("a replica is left of each");
        self.holders = holders(&self.file);
        self.short = short_of(&self.file.map, self.replication);
    }

    fn save_joins(&mut self, outbox: &mut Outbox) {
        self.file.joins.changed += 1;
        self.joins_store = self.save(outbox);
    }

    /// How many partitions each node has, or joins; how many it joins; and of how many joins it is
    /// the source.
    pub(super) fn loads(&self, nodes: u16) -> Vec<(usize, usize, usize)> {
        let mut loads = vec![(0, 0, 0); usize::from(nodes)];
        for it in self.file.map.partitions() {
            it.replicas.iter().for_each(|node| loads[usize::from(*node)].0 += 1);
            if let Some(join) = self.join(it.number) {
                let load = &mut loads[usize::from(join.node)];
                (load.0, load.1) = (load.0 + usize::from(!join.is_opening), load.1 + 1);
                let source = self.whole(it).last();
                source.into_iter().for_each(|node| loads[usize::from(node)].2 += 1);
            }
        }
        loads
    }

    /// Partitions with too few members, which no node joins.
    pub(super) fn lacking(&self) -> impl Iterator<Item = &Partition> {
        let all = if self.short > 0 { self.file.map.partitions() } else { &[] };
        let lacks = |it: &&Partition| {
            it.replicas.len() < self.replication && !self.file.joins.open.contains_key(&it.number)
        };
        all.iter().filter(lacks)
    }

    /// How many replicas each partition is to have.
    pub(super) fn replication(&self) -> usize {
        self.replication
    }

    /// How many partitions a node joins.
    pub(super) fn joining(&self) -> usize {
        self.file.joins.open.len()
    }

    /// Whether all partitions have as many members as they are to have.
    pub(super) fn is_whole(&self) -> bool {
        self.file.joins.open.is_empty() && self.short == 0
    }

    /// Nodes begin to join partitions.
    pub(super) fn begin_joins(&mut self, outbox: &mut Outbox, joins: &[(u16, u16)]) {
        for (partition, node) in joins {
            let begun = &mut self.file.joins;
            begun.begun += 1;
            let entry = JoinEntry { number: begun.begun, node: *node, is_opening: false };
            begun.open.insert(*partition, entry);
        }
        if !joins.is_empty() {
            self.save_joins(outbox);
        }
    }

    /// Joiners have their copies: they stand last in the next views of these partitions, and
    /// `count` as members already, or not.
    pub(super) fn append_joiners(&mut self, outbox: &mut Outbox, partitions: &[u16], count: bool) {
        let mut views = Vec::new();
        for partition in partitions {
            let Some(join) = self.file.joins.open.get_mut(partition) else { continue };
            join.is_opening = true;
            let it = self.file.map.numbered(*partition);
            let replicas = it.replicas.iter().copied().chain([join.node]).collect();
            views.push(View { partition: *partition, number: it.view + 1, replicas });
            if count {
                self.file.joins.open.remove(partition);
            }
        }
        self.change_views(&views);
        self.save_joins(outbox);
    }

    /// A join is over: its node is a member, or no longer joins.
    pub(super) fn end_join(&mut self, outbox: &mut Outbox, partition: u16) {
        self.file.joins.open.remove(&partition);
        self.save_joins(outbox);
    }

    /// The joins of a chain's partitions.
    pub(super) fn joins(&self, chain: ChainId) -> Vec<Join> {
        let join = |(partition, join): (&u16, &JoinEntry)| {
            let it = self.file.map.numbered(*partition);
            let source = self.whole(it).last().filter(|_| it.chain == chain.number())?;
            Some(Join { partition: *partition, number: join.number, node: join.node, source })
        };
        self.file.joins.open.iter().filter_map(join).collect()
    }

    /// Whether a node joins partitions of a chain.
    pub(super) fn is_joiner(&self, chain: ChainId, node: u16) -> bool {
        let is_of = |partition: &u16| self.file.map.numbered(*partition).chain == chain.number();
        let mut open = self.file.joins.open.iter();
        open.any(|(partition, join)| join.node == node && is_of(partition))
    }

    /// How often joins have changed, and the store that makes the last change durable.
    pub(super) fn joins_version(&self) -> (u32, u64) {
        (self.file.joins.changed, self.joins_store)
    }

    /// The store of the last change.
    pub(super) fn last_store(&self) -> u64 {
        self.last_store
    }

    /// The nodes that store partitions of a chain.
    pub(super) fn holders(&self, chain: ChainId) -> &BTreeSet<u16> {
        &self.holders[chain]
    }

    /// The node that decides about a partition's keys now.
    pub(super) fn head(&self, partition: u16) -> u16 {
        self.replicas(partition)[0]
    }

    /// The head of the partition that a key belongs to.
    pub(super) fn head_of(&self, hash: &KeyHash) -> u16 {
        self.head(self.partition_of(hash))
    }

    /// Begins a chain's next epoch, served by these switches and boots, or by none; the store that
    /// makes it durable.
    pub(super) fn begin_epoch(
        &mut self,
        outbox: &mut Outbox,
        chain: ChainId,
        members: Vec<(u16, u64)>,
        preserves: Preserved,
        in_round: Option<Round>,
    ) -> u64 {
        let epoch = match in_round {
            None => self.last_epoch() + 1,
            Some(Round::Next) => epoch_of_round(round_of(self.last_epoch()) + 1, chain),
            Some(Round::Last) => epoch_of_round(round_of(self.last_epoch()), chain),
        };
        let bypass = members.is_empty();
        let entry = &mut self.file.chains[chain];
        (entry.epoch, entry.bypass) = (epoch, bypass);
        (entry.members, entry.preserves) = (members, preserves);
        self.save(outbox)
    }

    /// A chain's epoch is recovered, and its members are witnesses from now on, if they keep what
    /// they tell; sessions of `gone` are forgotten. The store that makes it durable.
    pub(super) fn end_recovery(
        &mut self,
        outbox: &mut Outbox,
        chain: ChainId,
        keeps: bool,
        gone: &[u64],
    ) -> u64 {
        let entry = &mut self.file.chains[chain];
        (entry.recovered_epoch, entry.preserved) = (entry.epoch, entry.preserves);
        entry.witnesses = if keeps { entry.members.clone() } else { Vec::new() };
        self.close_sessions(outbox, gone);
        self.last_store
    }

    /// The lowest generation that [`Directory::next_generation`] may give.
    pub(super) fn first_generation(&self) -> u32 {
        match self.generation {
            0 => self.file.generation_reserved + 1,
            used => used + 1,
        }
    }

    /// The next generation, reserved before it is used: never one that any chain had, even if the
    /// controller restarted; unless they may begin anew (`rises`: they may not).
    pub(super) fn next_generation(&mut self, outbox: &mut Outbox, rises: bool) -> u32 {
        self.generation = if rises { self.first_generation() } else { self.generation + 1 };
        if rises && self.generation > self.file.generation_reserved {
            self.file.generation_reserved = self.generation + GENERATIONS_RESERVED;
            self.save(outbox);
        }
        self.generation
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

    /// The directory as a backup has it. No client preserves what the backup lacks, so none is
    /// waited for when it is restored, and no switch is a witness of more.
    pub(super) fn of_backup(&self) -> Vec<u8> {
        let mut file = self.file.clone();
        file.sessions.clear();
        for (_, chain) in file.chains.iter_mut() {
            (chain.preserves, chain.preserved) = (Preserved::All, Preserved::All);
            chain.witnesses.clear();
        }
        encode(&file)
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

/// The nodes that store partitions of each chain.
fn holders(file: &DirectoryFile) -> ByChain<BTreeSet<u16>> {
    let mut holders = ByChain::new(file.chains.chains(), |_| BTreeSet::new());
    for partition in file.map.partitions() {
        holders[ChainId::new(partition.chain)].extend(&partition.replicas);
    }
    holders
}

/// Encodes a file.
pub(super) fn encode<T: Serialize>(file: &T) -> Vec<u8> {
    postcard::to_stdvec(file).expect("plain data has an encoding")
}

/// How many partitions have fewer replicas than this.
fn short_of(map: &Map, replicas: usize) -> usize {
    map.partitions().iter().filter(|it| it.replicas.len() < replicas).count()
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
    use switchback_wire::{Partition, Seq};

    fn directory() -> DirectoryFile {
        DirectoryFile {
            chains: ByChain::new(1, |_| ChainEntry::default()),
            generation_reserved: 0,
            starts: 1,
            sessions_opened: 0,
            hash_key: HashKey([6; 16]),
            map: Map::equal(vec![vec![0]]),
            sessions: BTreeMap::new(),
            drained: BTreeSet::new(),
            joins: JoinsFile::default(),
        }
    }

    /// Whether the directory of a rack with one node, partition and chain can be opened, changed
    /// so.
    fn opened(change: impl FnOnce(&mut DirectoryFile)) -> Result<(), EngineError> {
        let mut file = directory();
        change(&mut file);
        let files = Files { directory: Some(encode(&file)), ..Files::default() };
        let scheme = Scheme::FarReach;
        let shape = RackShape { scheme, nodes: 1, replicas: 1, partitions: 1, chains: 1 };
        files.check_directory(&shape)
    }

    fn with_chain(map: &Map, chain: u16) -> Map {
        let partition = map.partitions()[0].clone();
        Map::new(vec![Partition { chain, ..partition }]).expect("a map")
    }

    #[test]
    fn a_partition_of_a_chain_that_there_is_not_is_damage() {
        assert_eq!(opened(|_| ()), Ok(()));
        let damaged = opened(|file| file.map = with_chain(&file.map, 1));
        assert!(matches!(damaged, Err(EngineError::Corrupt(_))), "{damaged:?}");
        let none = opened(|file| file.chains = ByChain::default());
        assert!(matches!(none, Err(EngineError::Corrupt(_))), "{none:?}");
    }

    #[test]
    fn another_number_of_chains_is_refused_by_it() {
        let error = opened(|file| {
            file.chains = ByChain::new(2, |_| ChainEntry::default());
            file.map = with_chain(&file.map, 1);
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("this rack was made with 2 chains of switches"), "{error}");
        assert!(error.contains("say chains = 2 under [topology]"), "{error}");
    }

    /// The next start, epoch, generation or session would overflow.
    #[test]
    fn numbers_that_no_controller_comes_to_are_damage() {
        let is_damage =
            |change: fn(&mut DirectoryFile)| matches!(opened(change), Err(EngineError::Corrupt(_)));
        assert!(is_damage(|file| file.starts = u32::MAX));
        assert!(is_damage(|file| file.sessions_opened = u32::MAX));
        assert!(is_damage(|file| file.generation_reserved = u32::MAX));
        assert!(is_damage(|file| file.joins.begun = u32::MAX));
        assert!(is_damage(|file| file.joins.changed = u32::MAX));
        assert!(is_damage(|file| {
            file.joins.open.insert(9, JoinEntry { number: 1, node: 0, is_opening: false });
        }));
        let opened_with =
            |entry: ChainEntry| opened(|file| file.chains = ByChain::new(1, |_| entry.clone()));
        let entry = ChainEntry::default;
        assert_eq!(opened_with(ChainEntry { epoch: EPOCH_MAX, ..entry() }), Ok(()));
        assert!(opened_with(ChainEntry { epoch: u32::MAX, ..entry() }).is_err());
        assert!(opened_with(ChainEntry { recovered_epoch: 1, ..entry() }).is_err());
        let members = |count| (0..count).map(|switch| (switch, 7)).collect();
        let most = u16::from(LAYERS_MAX);
        assert_eq!(opened_with(ChainEntry { members: members(most), ..entry() }), Ok(()));
        assert!(opened_with(ChainEntry { members: members(most + 1), ..entry() }).is_err());
        let session =
            SessionEntry { boot: 1, lane_first: u32::MAX, lanes: 1, number: 1, spooled: false };
        let with_session = |file: &mut DirectoryFile| _ = file.sessions.insert(1, session);
        assert!(matches!(opened(with_session), Err(EngineError::Corrupt(_))));
    }

    #[test]
    fn generations_rise_over_chains_and_starts() {
        let (mut random, mut outbox) = (rand::SeedableRng::seed_from_u64(1), Outbox::new());
        let config =
            ControllerConfig { nodes: vec![Default::default()], ..ControllerConfig::default() };
        let mut start = |files: &Files| {
            Directory::open(files, &config, &mut random, &mut outbox).expect("a directory")
        };
        let mut directory = start(&Files::default());
        let mut outbox = Outbox::new();
        assert_eq!(directory.first_generation(), 1);
        assert_eq!(directory.next_generation(&mut outbox, true), 1);
        assert_eq!(directory.next_generation(&mut outbox, true), 2);
        let files = Files { directory: Some(encode(&directory.file)), ..Files::default() };
        let mut restarted = start(&files);
        let first = restarted.first_generation();
        assert!(first > 2);
        assert_eq!(restarted.next_generation(&mut outbox, true), first);
    }

    /// The directory of a rack with three nodes, of which the first two have its partition.
    fn with_replicas(outbox: &mut Outbox) -> Directory {
        let config = ControllerConfig {
            nodes: vec![Default::default(); 3],
            map: Map::equal(vec![vec![0, 1]]),
            ..ControllerConfig::default()
        };
        let mut random = rand::SeedableRng::seed_from_u64(1);
        Directory::open(&Files::default(), &config, &mut random, outbox).expect("a directory")
    }

    #[test]
    fn a_partition_is_not_left_to_a_node_that_has_not_opened() {
        let (mut outbox, chain) = (Outbox::new(), ChainId::new(0));
        let mut directory = with_replicas(&mut outbox);
        assert!(directory.is_whole());
        directory.remove_node(&mut outbox, 0, |_, _| true, false);
        assert_eq!((directory.replicas(0), directory.is_whole()), (&[1][..], false));
        directory.begin_joins(&mut outbox, &[(0, 2)]);
        let join = |source| vec![Join { partition: 0, number: 1, node: 2, source }];
        assert_eq!((directory.joins(chain), directory.lacking().count()), (join(1), 0));
        directory.append_joiners(&mut outbox, &[0], false);
        assert_eq!((directory.replicas(0), directory.members_of(0)), (&[1, 2][..], vec![1]));
        assert_eq!(directory.joins(chain), join(1));
        let changed = directory.remove_node(&mut outbox, 1, |_, _| true, false);
        assert!(changed.is_empty() && directory.replicas(0) == [1, 2], "it is the last member");
        assert!(!directory.has_others(1) && directory.has_others(2));
        directory.end_join(&mut outbox, 0);
        assert!(directory.is_whole());
        directory.remove_node(&mut outbox, 1, |node, _| node == 2, false);
        assert_eq!(directory.replicas(0), [2]);
    }

    #[test]
    fn a_join_ends_with_its_source() {
        let mut outbox = Outbox::new();
        let mut directory = with_replicas(&mut outbox);
        let chain = ChainId::new(0);
        directory.begin_joins(&mut outbox, &[(0, 2)]);
        directory.remove_node(&mut outbox, 0, |_, _| true, false);
        assert_eq!(directory.joins(chain).len(), 1, "another node than its source has gone");
        directory.append_joiners(&mut outbox, &[0], false);
        let (before, _) = directory.joins_version();
        directory.remove_node(&mut outbox, 2, |_, _| true, false);
        assert_eq!((directory.replicas(0), directory.joins(chain)), (&[1][..], Vec::new()));
        directory.begin_joins(&mut outbox, &[(0, 0)]);
        directory.append_joiners(&mut outbox, &[0], false);
        directory.end_join(&mut outbox, 0);
        directory.begin_joins(&mut outbox, &[(0, 2)]);
        assert_eq!(directory.joins(chain)[0].source, 0);
        directory.remove_node(&mut outbox, 0, |_, _| true, false);
        assert_eq!((directory.replicas(0), directory.joins(chain)), (&[1][..], Vec::new()));
        directory.begin_joins(&mut outbox, &[(0, 2)]);
        assert_eq!(directory.joins(chain)[0].number, 4, "none is used twice");
        assert!(directory.joins_version().0 > before);
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
        let (epoch, recovered_epoch, members) = (1, 2, vec![(11, 12)]);
        let entry = ChainEntry { epoch, recovered_epoch, members, ..ChainEntry::default() };
        let directory = DirectoryFile {
            chains: ByChain::new(1, |_| entry.clone()),
            generation_reserved: 3,
            starts: 4,
            sessions_opened: 5,
            hash_key: HashKey([6; 16]),
            map: Map::equal(vec![vec![0], vec![1]]),
            sessions: BTreeMap::from([(13, session)]),
            drained: BTreeSet::from([14]),
            joins: JoinsFile {
                begun: 15,
                changed: 16,
                open: BTreeMap::from([(1, JoinEntry { number: 15, node: 0, is_opening: true })]),
            },
        };
        // Two partitions: number, start with its bits in reverse order, view, chain, replicas.
        let map = [2, 0, 0, 0, 0, 1, 0, 1, 1, 0, 0, 1, 1];
        let sessions = [1, 13, 7, 8, 9, 10, 1];
        // A chain: epoch, recovered epoch, members, bypass, what clients preserve, witnesses, what
        // clients preserved.
        let of_chain = |chain: &[u8]| [&[1], chain, &[3, 4, 5], &[6; 16], &map, &sessions].concat();
        let before = of_chain(&[1, 2, 1, 11, 12, 0, 0, 0, 0]);
        // How many have begun, and how often they changed; one: partition, number, node, opening.
        let joins = [15, 16, 1, 1, 15, 0, 1];
        assert_eq!(encode(&directory), [&before[..], &[1, 14], &joins].concat());
        let was = [&before[..], &[1, 14]].concat();
        let upgraded = StoreFile::Directory.upgrade(6, was.clone());
        assert_eq!(upgraded, Ok([&was[..], &[0, 0, 0]].concat()));
        for cut in 0..was.len() {
            assert!(StoreFile::Directory.upgrade(6, was[..cut].to_vec()).is_err());
        }
        // What was written before format 6 names no switches that were taken out.
        let bytes = [&before[..], &[0, 0, 0, 0]].concat();
        let of_one =
            |map: &[u8]| [&[1, 2, 3, 4, 5][..], &[6; 16], map, &[1, 11, 12, 0], &sessions].concat();
        for (format, was) in [(1, of_one(&[2, 1, 0, 1, 1])), (2, of_one(&map))] {
            let upgraded = |bytes: &[u8]| StoreFile::Directory.upgrade(format, bytes.to_vec());
            assert_eq!(upgraded(&was), Ok(bytes.clone()));
            for cut in 0..was.len() {
                assert!(upgraded(&was[..cut]).is_err());
            }
        }
        // Format 4 has no witnesses, and format 3 has the switch that serves as an option.
        let was = of_chain(&[1, 2, 1, 11, 12, 0]);
        let active = postcard::to_stdvec(&Some((11_u16, 12_u64))).expect("plain data");
        assert_eq!(was[3..6], active);
        for (format, was) in [(3, &was), (4, &was), (5, &before)] {
            assert_eq!(StoreFile::Directory.upgrade(format, was.clone()), Ok(bytes.clone()));
            for cut in 0..was.len() {
                assert!(StoreFile::Directory.upgrade(format, was[..cut].to_vec()).is_err());
            }
        }
        let two = vec![(11, 12), (13, 14)];
        let (members, witnesses) = (two.clone(), two);
        let (preserves, preserved) = (Preserved::All, Preserved::Nothing);
        let longer = ChainEntry { members, preserves, witnesses, preserved, ..entry };
        let chain = [1, 2, 2, 11, 12, 13, 14, 0, 0, 2, 11, 12, 13, 14, 1];
        assert_eq!(encode(&longer), chain);
        let three = of_one(&[3, 1, 0, 1, 1, 1, 0]);
        let error = StoreFile::Directory.upgrade(1, three).unwrap_err().to_string();
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
