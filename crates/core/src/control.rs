//! The control channel: what the controller and the other parts tell each other.
//!
//! What holds for every message: it carries the epoch of the chain that it is about; a command is
//! repeated until it is answered, and answering it again does no harm; a message of another epoch
//! than the one in which the receiver serves the chain is refused, except one that raises it, which
//! only the controller sends (rule 8).

mod delivery;
pub(crate) mod limits;

pub use delivery::Delivery;
pub(crate) use limits::LANES_MAX;
pub use limits::{DOMAIN_BYTES_MAX, Malformed};

use crate::storage::{OfferId, Record};
use crate::topology::{ByChain, ChainId, ChainMap};
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;
use switchback_wire::{
    Address, HashKey, Heard, KeyHash, Map, Op, Packet, Partition, Place, Scheme, Seq, View,
};

/// Names a command until it is answered.
pub type CommandId = u64;
/// One admission of a key: its *incarnation*. Never used twice in an epoch.
pub type EntryId = u64;

/// At most this many records, offers or entries in one message.
pub const BATCH_MAX: usize = 256;

/// At most about this many bytes of records in one message: far less than a frame may have.
pub const BATCH_BYTES_MAX: usize = 256 << 10;

/// The versions of the messages that this program speaks. A change of their encoding is a new
/// version; the one before stays, for the time of an upgrade.
pub const VERSIONS: RangeInclusive<u16> = 8..=VIEWS_VERSION;
/// Brought views, and partitions with several replicas.
const VIEWS_VERSION: u16 = 10;
/// Brought what backups need, and [`ClientNotice::Released`].
const BACKUPS_VERSION: u16 = 9;

/// For how long a client that is asked to holds back writes, unless it hears sooner that it
/// needn't: longer than the controller waits for clients, and takes to make an epoch durable. It
/// may have died.
pub const HOLD_US: u64 = 300_000;

/// How many of these records go into one message: at least one, if there is one.
pub fn batch_len<'a>(records: impl IntoIterator<Item = &'a KeyedRecord>) -> usize {
    let mut bytes = 0;
    let fits = |record: &&KeyedRecord| {
        let is_first = bytes == 0;
        bytes += record.bytes();
        is_first || bytes <= BATCH_BYTES_MAX
    };
    records.into_iter().take(BATCH_MAX).take_while(fits).count()
}

/// Bytes that this, a message or a part of one, takes on the control channel. Nothing is encoded.
pub(crate) fn encoded_bytes(part: &impl Serialize) -> u64 {
    let size = postcard::serialize_with_flavor(part, postcard::ser_flavors::Size::default());
    size.expect("plain data has an encoding") as u64
}

/// An endpoint of the control channel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub enum Peer {
    /// The controller.
    Controller,
    /// A switch's agent.
    Switch(u16),
    /// A node's shim.
    Node(u16),
    /// A client session.
    Client(u64),
}

/// A message on its way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Envelope {
    /// Who sent it.
    pub from: Peer,
    /// Its receiver.
    pub to: Peer,
    /// What it says.
    pub message: Message,
}

/// Everything that travels on the control channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Message {
    /// Controller to switch.
    ToSwitch(Command<SwitchCommand>),
    /// Controller to node.
    ToNode(Command<NodeCommand>),
    /// Controller to client.
    ToClient(ClientNotice),
    /// Switch to controller.
    FromSwitch(SwitchReport),
    /// Node to controller.
    FromNode(NodeReport),
    /// Client to controller.
    FromClient(ClientReport),
}

/// A command of the controller.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Command<T> {
    /// Repeated in the answer.
    pub id: CommandId,
    /// The chain that it is about.
    pub chain: ChainId,
    /// The chain's epoch.
    pub epoch: u32,
    /// What to do.
    pub body: T,
}

/// A record with its key, wherever it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KeyedRecord {
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// The record.
    pub record: Record,
}

impl KeyedRecord {
    /// Bytes that a record takes at least, about.
    pub(crate) const BYTES_MIN: usize = 64;

    /// Bytes that it takes in a message, about.
    pub(crate) fn bytes(&self) -> usize {
        KeyedRecord::BYTES_MIN + self.key.len() + self.record.value.len()
    }
}

/// Where a cached record lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub struct Location {
    /// Slot class.
    pub class: u8,
    /// Slot within the class.
    pub slot: u32,
}

impl Location {
    /// As a packet names it; what no switch can have, as no slot.
    pub fn in_packet(self) -> u32 {
        switchback_wire::location(self.class, self.slot).unwrap_or(switchback_wire::NO_LOCATION)
    }
}

/// One key of the cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Its incarnation.
    pub id: EntryId,
    /// Its place.
    pub at: Location,
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// What its access counter begins at: how often it was counted before.
    pub count: u32,
}

/// What the switch has of a cached key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inspected {
    /// Its incarnation.
    pub id: EntryId,
    /// Its access counter.
    pub count: u32,
    /// No node has its record.
    pub dirty: bool,
    /// Length of its key and its value.
    pub bytes: u32,
}

/// What the switch needs to know to serve.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SwitchConfig {
    /// The boot that it is for. A switch that restarted within an epoch has forgotten which
    /// sequence numbers it gave out: it must not serve that epoch again.
    pub boot: u64,
    /// Its place in the chain.
    pub place: Place,
    /// First generation; higher than any before it (rule 10).
    pub generation: u32,
    /// Lanes granted to sessions.
    pub lanes: u32,
    /// Partitions and their replicas.
    pub map: Map,
    /// Address of each node.
    pub nodes: Vec<Address>,
}

/// Commands to the switch's agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SwitchCommand {
    /// Forget everything and serve this rack in the command's epoch (the only command that raises
    /// it, beside [`SwitchCommand::Freeze`]).
    Configure(SwitchConfig),
    /// Serve this rack in the command's epoch, and keep what was cached in the last one, to be
    /// loaded. It counts for nothing any more, and goes with the first admission: that says that
    /// its recovery is durable.
    Freeze(SwitchConfig),
    /// Tell the records that no node has of those that were frozen, from this location on.
    LoadFrozen(Option<Location>),
    /// Serve this many lanes.
    Lanes(u32),
    /// Node `.0` moved to address `.1`.
    NodeAddress(u16, Address),
    /// Admit these keys.
    Admit(Vec<Entry>),
    /// Begin the eviction of the least accessed of these, each if a key that wants its slot was
    /// counted more often.
    EvictBegin {
        /// The entries to choose from.
        candidates: Vec<EntryId>,
        /// How often those were counted that want slots, the most often first: none goes beyond
        /// their number.
        counts: Vec<u32>,
        /// How many want slots in all.
        waiting: u32,
    },
    /// Free these slots.
    Remove(Vec<EntryId>),
    /// Take a snapshot: all dirty records as of now. Answered when it has begun; chunks follow.
    Snapshot {
        /// The generation that begins.
        generation: u32,
    },
    /// A snapshot that began this generation is durable.
    DurableGeneration(u32),
    /// List the cached keys from this location on.
    ListEntries(Option<Location>),
    /// Tell how often these were counted, and what they hold.
    Inspect(Vec<EntryId>),
    /// Nodes have these versions: whichever is a record's still isn't dirty any more.
    Clean(Vec<(EntryId, Seq)>),
    /// Route by these views of partitions, as far as they are newer than those that are known.
    Views(Vec<View>),
}

/// What the switch's agent tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SwitchReport {
    /// I am here; also the heartbeat.
    Hello {
        /// Drawn anew at every start.
        boot: u64,
        /// Where it takes packets.
        address: Address,
        /// Its layer, from 1 next to the clients.
        layer: u8,
        /// What it fails together with: switches of one domain count as one copy.
        domain: String,
        /// Its epoch; 0 before it is configured.
        epoch: u32,
        /// Slots of each class: `(value bytes, slots)`.
        classes: Vec<(u32, u32)>,
        /// Its sequence numbers of this epoch will run out, and now is a good moment for another
        /// one.
        needs_epoch: bool,
    },
    /// Answer to a command.
    Done {
        /// The command's.
        id: CommandId,
        /// The agent's.
        epoch: u32,
        /// What came of it.
        result: SwitchResult,
    },
    /// These records outgrew their slots: they are being evicted already.
    EvictMe {
        /// The agent's.
        epoch: u32,
        /// Which, and what they hold.
        entries: Vec<(EntryId, Option<Record>)>,
    },
    /// The sweep found these dirty: their nodes are to store them (rule 26).
    Dirty {
        /// The agent's.
        epoch: u32,
        /// Which, and what they hold.
        records: Vec<(EntryId, Record)>,
    },
    /// Part of a snapshot.
    SnapshotChunk {
        /// The agent's.
        epoch: u32,
        /// Which snapshot.
        generation: u32,
        /// From 0, without gaps.
        index: u32,
        /// Dirty records.
        records: Vec<KeyedRecord>,
    },
    /// The snapshot's end.
    SnapshotEnd {
        /// The agent's.
        epoch: u32,
        /// Which snapshot.
        generation: u32,
        /// How many chunks there were.
        chunks: u32,
        /// False if an original is missing: the snapshot must not be used.
        complete: bool,
    },
    /// How many probes of its neighbours in the chain have arrived; with each hello, if a packet
    /// between them can be lost (rule 28).
    Heard {
        /// The agent's.
        epoch: u32,
        /// Since the switch started.
        heard: Heard,
    },
}

/// Answers of the switch's agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SwitchResult {
    /// Done, nothing to tell.
    Ok,
    /// These entries could not be admitted (their hash collides).
    Admitted {
        /// The refused ones.
        refused: Vec<EntryId>,
    },
    /// These are being evicted; a record where one is dirty.
    Evicting(Vec<(EntryId, Option<Record>)>),
    /// Cached keys, and where to go on.
    Entries(Vec<Entry>, Option<Location>),
    /// Records that were frozen and that no node has, and where to go on.
    Frozen(Vec<KeyedRecord>, Option<Location>),
    /// What the switch has of those that it was asked for; nothing of one that it doesn't cache.
    Inspected(Vec<Inspected>),
    /// Not possible now (a snapshot is already running).
    Busy,
}

/// Commands to a node's shim. Those about keys are for the head of the keys' partitions: the
/// controller looks up which node that is whenever it sends one, and a node that isn't refuses.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeCommand {
    /// Serve the chain's partitions in the command's epoch (the only command that raises it), and
    /// hold their offered keys until released. Repeated in the same epoch it only brings the
    /// configuration up to date.
    Epoch(NodeConfig),
    /// Store iff newer; answered when durable.
    Store(Vec<KeyedRecord>),
    /// Serve the held keys again. Nothing below the floor can arrive any more.
    Release {
        /// Absent keys count as stored with this seq.
        floor: Seq,
    },
    /// These offers came to nothing, or their entries are gone.
    ClearOffers(Vec<(KeyHash, OfferId)>),
    /// Offer again whatever is marked as offered, of the chain's partitions: this controller has
    /// just started.
    OfferAgain,
    /// Offer these keys, hot or not.
    OfferKeys(Vec<(KeyHash, Vec<u8>)>),
    /// These offers are known; no need to repeat them.
    OffersHeld(Vec<(KeyHash, OfferId)>),
    /// A backup is to be made: write out what only the log has. Answered when that has begun.
    FlushSoon,
    /// Keep a copy of all that is stored, under this number, unless there is one with this or a
    /// higher number; answered when it is durable. Those with lower ones are dropped.
    Checkpoint(u64),
    /// Switches have admitted these copies: they are to be filled, and invalidated before a write
    /// (DistCache).
    RegisterCopies(Vec<NamedCopy>),
    /// Partitions of the chain have these replicas, as far as the views are newer than those that
    /// are known; answered when durable. No switch routes by older ones.
    Views(Vec<View>),
    /// These nodes join partitions of the chain, and no others, unless a newer list is known;
    /// answered when durable.
    Joins {
        /// Rises with every change.
        version: u32,
        /// All of them.
        joins: Vec<Join>,
    },
    /// A node that has nothing may stand among other replicas as it is: the rack is new, or no
    /// other node has anything either. It can be released from now on.
    Begin,
}

/// A node becomes the last replica of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Join {
    /// The partition.
    pub partition: u16,
    /// Names it; never used twice.
    pub number: u32,
    /// Who joins.
    pub node: u16,
    /// Who passes on to it what changes, and sends it a copy: the tail, or who was it when the node
    /// became the tail of a view.
    pub source: u16,
}

/// How a join goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum JoinStep {
    /// The joiner has the whole copy.
    Copied,
    /// The joiner has opened: it has all that was ever answered.
    Opened,
    /// The source has given it up: too much changes.
    GivenUp,
}

/// A copy of a record in a cache that answers by itself (DistCache).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedCopy {
    /// The key's hash.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// Where the switch is that has it.
    pub switch: Address,
    /// Its incarnation.
    pub entry: EntryId,
}

impl NodeCommand {
    /// Whether this holds for every key that it is about.
    pub(crate) fn all_keys(&self, holds: impl Fn(&KeyHash) -> bool) -> bool {
        match self {
            NodeCommand::Store(records) => records.iter().all(|record| holds(&record.hash)),
            NodeCommand::ClearOffers(offers) | NodeCommand::OffersHeld(offers) => {
                offers.iter().all(|(hash, _)| holds(hash))
            }
            NodeCommand::OfferKeys(keys) => keys.iter().all(|(hash, _)| holds(hash)),
            NodeCommand::RegisterCopies(copies) => copies.iter().all(|copy| holds(&copy.hash)),
            NodeCommand::Epoch(_)
            | NodeCommand::Release { .. }
            | NodeCommand::OfferAgain
            | NodeCommand::FlushSoon
            | NodeCommand::Views(_)
            | NodeCommand::Joins { .. }
            | NodeCommand::Begin
            | NodeCommand::Checkpoint(_) => true,
        }
    }
}

/// What a node needs to know to serve the partitions of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeConfig {
    /// The rack's hash key; a node that stored records under another one refuses.
    pub hash_key: HashKey,
    /// Partitions and their replicas.
    pub map: Map,
    /// The chain's owner in this epoch; packets of others are dropped. `None`: a bypass epoch, in
    /// which clients send to the nodes.
    pub switch: Option<Address>,
    /// Lanes granted to sessions.
    pub lanes: u32,
    /// How writes get into the cache.
    pub refresh: Refresh,
}

/// How a node's writes get into the cache. Encoded as the `bool` that its first two values were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Refresh {
    /// Not at all: the switch takes them over, or the next read fetches them.
    None,
    /// Through CACHE_UPDATE, of whatever is offered (NetCache).
    Updates,
    /// The same, of copies that the controller names; a node that restarts has forgotten them, and
    /// serves in a new epoch only (DistCache).
    Copies,
}

impl Refresh {
    /// That of a scheme.
    pub const fn of(scheme: Scheme) -> Refresh {
        if scheme.has_copies() {
            Refresh::Copies
        } else if scheme.refreshes() {
            Refresh::Updates
        } else {
            Refresh::None
        }
    }
}

impl NodeConfig {
    /// Which partitions of a chain have a replica at this node, by their numbers.
    pub(crate) fn partitions_of(&self, node: u16, chain: ChainId) -> Vec<bool> {
        let mut mine = self.map.numbers_of(node);
        let is_other = |partition: &&Partition| partition.chain != chain.number();
        for partition in self.map.partitions().iter().filter(is_other) {
            mine[usize::from(partition.number)] = false;
        }
        mine
    }

    /// The partition that a key belongs to.
    pub(crate) fn partition_of(&self, hash: &KeyHash) -> u16 {
        self.map.of(*hash).number
    }

    /// Whether a node heads the partition that a key belongs to, and this chain serves that.
    pub(crate) fn is_head_of(&self, node: u16, chain: ChainId, hash: &KeyHash) -> bool {
        let partition = self.map.of(*hash);
        partition.head() == node && partition.chain == chain.number()
    }
}

/// A hot key that a node offers to the cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Offer {
    /// Its name, durable at the node.
    pub id: OfferId,
    /// Hash of the key.
    pub hash: KeyHash,
    /// The key.
    pub key: Vec<u8>,
    /// Length of its value, for the slot class.
    pub value_bytes: u32,
    /// How often the switch had counted it, or [`Offer::NAMED`].
    pub count: u32,
}

impl Offer {
    /// The count of a key that is offered because it was named, or was cached before: it outdoes
    /// any that was counted.
    pub const NAMED: u32 = u32::MAX;
}

/// How a node serves the partitions of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStanding {
    /// In this epoch; 0: not yet.
    pub epoch: u32,
    /// It waits for its release.
    pub held: bool,
    /// It restarted within a bypass epoch, which it must not serve again, or its sequence numbers
    /// of that will run out.
    pub needs_epoch: bool,
    /// While it waits for its release, the keys that wait with it: they may have been in the cache.
    pub held_keys: u32,
}

/// What a node's shim tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NodeReport {
    /// I am here; also the heartbeat.
    Hello {
        /// Drawn anew at every start.
        boot: u64,
        /// Where the switch sends packets.
        address: Address,
        /// How it serves the partitions of each chain that it was told of.
        chains: ByChain<NodeStanding>,
        /// What its storage has lately refused.
        failure: Option<String>,
    },
    /// Answer to a command.
    Done {
        /// The command's.
        id: CommandId,
        /// The command's.
        chain: ChainId,
        /// The one in which it serves the chain.
        epoch: u32,
        /// Not done because of this; the controller tries again.
        error: Option<String>,
    },
    /// Hot keys, and on restart or release all keys that are still marked as offered. Repeated
    /// until held or cleared.
    Offers {
        /// The one in which it serves the keys' chain.
        epoch: u32,
        /// The keys.
        offers: Vec<Offer>,
    },
    /// A join has come this far. Repeated until the controller tells of the next step.
    Join {
        /// The epoch in which it serves the partition's chain.
        epoch: u32,
        /// The partition.
        partition: u16,
        /// The number of the join.
        number: u32,
        /// How far.
        step: JoinStep,
    },
}

/// What the controller tells a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientNotice {
    /// Answer to a hello: the session, and its lease.
    Granted(Grant),
    /// Move to a chain's epoch.
    Move {
        /// The chain.
        chain: ChainId,
        /// Its new epoch, and who serves it.
        to: ChainGrant,
        /// Which chain serves each key: a client that has just restarted, with what it preserved,
        /// may have no grant yet.
        served: ChainMap,
    },
    /// The epoch of this chain is about to change: end the writes that are under way, hold back new
    /// ones, then say [`ClientReport::Quiet`].
    Quiesce {
        /// The chain.
        chain: ChainId,
        /// Its epoch that ends.
        epoch: u32,
    },
    /// This chunk of preserved records has arrived.
    Gathered {
        /// The epoch.
        epoch: u32,
        /// The chunk.
        chunk: u32,
    },
    /// A backup is about to be cut (rule 29): end the writes to this chain that are under way, hold
    /// back new ones, then say [`ClientReport::Holding`].
    Hold {
        /// The chain.
        chain: ChainId,
        /// Its epoch.
        epoch: u32,
        /// Repeated in the answer. Each try to cut has its own.
        round: u64,
    },
    /// The try to cut is over, whatever came of it: the writes go on that are held back for it.
    Resume {
        /// The try's.
        round: u64,
    },
    /// Nodes serve again what they held for a recovery: requests that wait are worth sending again
    /// at once.
    Released {
        /// The chain.
        chain: ChainId,
        /// The epoch that was recovered.
        epoch: u32,
    },
    /// A chain's spine, which answers reads of its copies (DistCache). Only racks of that scheme
    /// have one.
    Spine {
        /// The chain.
        chain: ChainId,
        /// The epoch in which the spine serves.
        epoch: u32,
        /// Its address.
        switch: Address,
    },
}

/// Where a client's packets go.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Destination {
    /// All to the first switch of the chain.
    Switch(Address),
    /// Each to its partition's node: no switch serves (a bypass epoch).
    Nodes {
        /// Partitions and their replicas.
        map: Map,
        /// Address of each node.
        nodes: Vec<Address>,
    },
}

impl Destination {
    /// Where a packet goes: reads to a partition's tail, everything else to its head.
    #[inline]
    pub fn of(&self, packet: &Packet) -> Address {
        match self {
            Destination::Switch(switch) => *switch,
            Destination::Nodes { map, nodes } => direct(map, nodes, packet).unwrap_or_default(),
        }
    }

    /// The partition that a packet about this key names, and its view: 0 on its way to a switch,
    /// which puts them in.
    #[inline]
    pub fn partition(&self, hash: &KeyHash) -> (u16, u32) {
        match self {
            Destination::Switch(_) => (0, 0),
            Destination::Nodes { map, .. } => {
                let Partition { number, view, .. } = map.of(*hash);
                (*number, *view)
            }
        }
    }
}

fn direct(map: &Map, nodes: &[Address], packet: &Packet) -> Option<Address> {
    let header = packet.parse().ok()?.header;
    let partition = map.of(header.key_hash);
    let reads = matches!(header.op, Op::Read | Op::ReadFragment | Op::Scan);
    let node = if reads { partition.tail() } else { partition.head() };
    nodes.get(usize::from(node)).copied()
}

/// What a chain of switches offers to a client that has a lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainGrant {
    /// The chain's epoch.
    pub epoch: u32,
    /// Who serves it.
    pub destination: Destination,
    /// Preserved records of an older generation are durable.
    pub durable_generation: u32,
    /// Recovery of the epochs before this one is durable: records older than it are released.
    pub recovered_epoch: u32,
    /// Clients preserve what the cache tells them in this epoch: its switches alone don't protect
    /// it.
    pub preserves: bool,
    /// The epochs before are being recovered from what clients preserve: all records of the chain's
    /// partitions are to be sent.
    pub gathers: bool,
}

/// A session and its lease.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Grant {
    /// The boot of the hello that this answers: an earlier life of the client has other lanes or
    /// request numbers.
    pub boot: u64,
    /// The `sent_us` of the hello that this answers.
    pub hello_us: u64,
    /// How long answers may be accepted, from `hello_us` on.
    pub lease_us: u64,
    /// What each chain offers; `None`: no switch serves it now, and it has nothing to offer.
    pub chains: ByChain<Option<ChainGrant>>,
    /// Which chain serves each key.
    pub served: ChainMap,
    /// The rack's hash key.
    pub hash_key: HashKey,
    /// First lane.
    pub lane_first: u32,
    /// How many lanes.
    pub lanes: u32,
    /// Request counters start here.
    pub request_base: u64,
}

/// What a client tells.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientReport {
    /// Open the session, or renew its lease.
    Hello {
        /// Drawn anew at every start.
        boot: u64,
        /// The client's monotonic clock.
        sent_us: u64,
        /// Lanes it would like to have.
        lanes: u32,
        /// Its epoch of each chain that it was told of; 0: none yet.
        epochs: ByChain<u32>,
        /// Preserved bytes are near their limit: take a snapshot soon.
        pressure: bool,
        /// It keeps its preserved records on disk: after a crash it comes back with them.
        spooled: bool,
    },
    /// Preserved records, as asked by a gather; repeated until gathered.
    Preserved {
        /// The new epoch.
        epoch: u32,
        /// From 0.
        chunk: u32,
        /// No more after this.
        last: bool,
        /// Newest record of each key.
        records: Vec<KeyedRecord>,
    },
    /// No write to the chain with this epoch is under way.
    Quiet {
        /// The epoch that ends.
        epoch: u32,
    },
    /// The session ends; it preserves nothing any more.
    Close {
        /// The boot that ends.
        boot: u64,
    },
    /// No write to the chain with this epoch is under way, and none will be before
    /// [`ClientNotice::Resume`], or [`HOLD_US`] after the client was asked.
    Holding {
        /// The chain's epoch.
        epoch: u32,
        /// Of the [`ClientNotice::Hold`] that this answers.
        round: u64,
    },
}
