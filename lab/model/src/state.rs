//! What there is: one key, one node, one chain of switches and those that it replaced, a few
//! clients, one controller, and everything that was ever sent.
//!
//! Plain data, as small as the rules allow. What may happen to it lives in the files of the parts.

/// Most clients of a configuration.
pub(crate) const CLIENTS_MAX: usize = 3;
/// Most operations of one client.
pub(crate) const OPERATIONS_MAX: usize = 3;
/// Most switches of a chain.
pub(crate) const LAYERS_MAX: usize = 3;
/// Most chains, one after another.
pub(crate) const CHAINS_MAX: usize = 4;

/// A sequence number: `epoch | counter`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Seq(pub u8);

impl Seq {
    const COUNTER_BITS: u32 = 5;
    /// Of no write.
    pub(crate) const NONE: Seq = Seq(0);

    /// The number `counter` of an epoch.
    pub(crate) fn new(epoch: u8, counter: u8) -> Seq {
        assert!(counter < 1 << Seq::COUNTER_BITS && epoch < 8);
        Seq(epoch << Seq::COUNTER_BITS | counter)
    }

    /// Which of its epoch's numbers it is.
    pub(crate) fn counter(self) -> u8 {
        self.0 & ((1 << Seq::COUNTER_BITS) - 1)
    }

    /// The epoch that it was given out in.
    pub(crate) fn epoch(self) -> u8 {
        self.0 >> Seq::COUNTER_BITS
    }
}

/// A version of the record: which operation wrote it (0: none did), and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Version {
    /// The write, numbered from 1.
    pub(crate) value: u8,
    /// Its sequence number.
    pub(crate) seq: Seq,
}

/// What a packet is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Op {
    /// A client's read, or a read forwarded as it is.
    Read,
    /// A read behind a fence (`guard`), to the node.
    FencedRead,
    /// A read with the evicted record in it, to the node.
    EmbeddedRead,
    /// A write or delete.
    Write,
    /// A write under the condition that `guard` is the record's number.
    ConditionalWrite,
    /// The answer to a read.
    ReadReply,
    /// The answer to a fenced read; `guard` is the fence.
    FencedReadReply,
    /// The answer to a write.
    WriteReply,
    /// The answer to a conditional write that another version (`guard`) refused.
    ConditionFailed,
    /// A write that the node sends back, since a fence is above it.
    Bounce,
    /// The same, conditional.
    BounceConditional,
}

/// Who gets a packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum To {
    /// Any owner that runs: a chain's last switch.
    Switch,
    /// The keeper at this place of a chain, counted from the clients.
    Keeper(u8),
    /// The node.
    Node,
    /// The client that it names.
    Client,
}

/// A packet. Every one that was ever sent may arrive any number of times, at any later moment, or
/// never.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Packet {
    /// Who gets it.
    pub(crate) to: To,
    /// What it is.
    pub(crate) op: Op,
    /// The client, which has one lane.
    pub(crate) client: u8,
    /// The lane's request, from 1.
    pub(crate) request: u8,
    /// The sender's epoch.
    pub(crate) epoch: u8,
    /// Of the write, or of the version that is answered or embedded.
    pub(crate) version: Version,
    /// Fence, or the condition's number.
    pub(crate) guard: Seq,
    /// Snapshot generation of an answer from the cache.
    pub(crate) generation: u8,
    /// The switch answered it from its cache.
    pub(crate) cached: bool,
    /// No node has this version yet.
    pub(crate) dirty: bool,
    /// An answer's version had expired when its owner looked at it.
    pub(crate) expired: bool,
}

/// A control message. Repeated like packets: each may arrive any number of times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Command {
    /// To a keeper: an entry for the key.
    AdmitKeeper(u8, Entry),
    /// To the owner: an entry for the key, under an offer of the node's.
    Admit(Entry),
    /// To the owner: the entry is to be evicted.
    EvictBegin(Entry),
    /// To the owner: the entry goes.
    Remove(Entry),
    /// To a keeper: the entry goes.
    RemoveKeeper(u8, Entry),
    /// To the node: store a record that is evicted; the entry goes then.
    StoreEvicted(Entry, Version),
    /// To the node: the offer's entry is gone.
    ClearOffer(Entry),
    /// To the node: store the newest version that a recovery gathered; a release follows.
    StoreRecovered(u8, Version),
    /// To the node: the recovery of this epoch is over.
    Release(u8),
    /// To the controller: the node is released in this epoch.
    Released(u8),
    /// To the node: store a record that stays in the cache; it is clean then.
    StoreCleaned(Entry, Version),
    /// To the owner: a node has the version with this number.
    MarkClean(Entry, Seq),
}

/// A cache entry as control messages name it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Entry {
    /// The epoch that it lives in.
    pub(crate) epoch: u8,
    /// Its incarnation: unique.
    pub(crate) id: u8,
    /// The node's offer that it stands for.
    pub(crate) offer: u8,
}

/// A cached record (protocol, section 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Record {
    /// The incarnation and the offer; `id` 0: there is none.
    pub(crate) entry: Entry,
    /// There is no newer version at the node.
    pub(crate) latest: bool,
    /// To be evicted.
    pub(crate) evicting: bool,
    /// No node has this version.
    pub(crate) dirty: bool,
    /// Made upon the version before it: by a condition, or by a node, which alone knows.
    pub(crate) dependent: bool,
    /// What it holds; hollow: nothing.
    pub(crate) version: Version,
    /// The last number given out when it became valid.
    pub(crate) adm: Seq,
    /// The snapshot generation of its last change.
    pub(crate) generation: u8,
}

impl Record {
    /// Whether a lookup finds it.
    pub(crate) fn is_valid(&self) -> bool {
        self.entry.id != 0
    }
}

/// What a lane's entry waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) enum LaneState {
    /// No request came.
    #[default]
    None,
    /// The switch absorbed the write.
    Applied,
    /// The switch refused the conditional write.
    Refused,
    /// The node was asked.
    Forwarded,
    /// The node said OK.
    Done,
    /// The node said that the condition failed.
    DoneFailed,
}

/// A completion entry (protocol, section 3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Lane {
    /// The lane's newest request.
    pub(crate) request: u8,
    /// The number of its write.
    pub(crate) seq: Seq,
    /// What became of it.
    pub(crate) state: LaneState,
    /// On one core this write took its number, and hasn't looked the record up yet.
    pub(crate) locked: Option<Packet>,
}

/// A snapshot that an agent takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Taking {
    /// Its generation; 0: none is taken.
    pub(crate) generation: u8,
    /// The entry that was there at its point.
    pub(crate) entry: u8,
    /// The original of a record that changed since: reported?
    pub(crate) reported: bool,
    /// The original, if it was dirty.
    pub(crate) original: Version,
}

/// Datapath and agent of a chain's owner.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Switch {
    /// 0: there is none.
    pub(crate) epoch: u8,
    /// It refuses its epoch: its record is only there to be loaded.
    pub(crate) frozen: bool,
    /// Numbers given out in this epoch.
    pub(crate) counter: u8,
    /// Snapshot generation.
    pub(crate) generation: u8,
    /// The highest incarnation that was admitted.
    pub(crate) admitted_to: u8,
    /// The key's record.
    pub(crate) record: Record,
    /// A lane for each client.
    pub(crate) lanes: [Lane; CLIENTS_MAX],
    /// The snapshot under way.
    pub(crate) taking: Taking,
}

impl Switch {
    /// The last number that was given out.
    pub(crate) fn last(&self) -> Seq {
        Seq::new(self.epoch, self.counter)
    }
}

/// Datapath and agent of a keeper. Its epoch is its owner's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Keeper {
    /// It refuses its epoch: its record is only there to be loaded.
    pub(crate) frozen: bool,
    /// The highest incarnation that was admitted.
    pub(crate) admitted_to: u8,
    /// The key's entry; `id` 0: there is none.
    pub(crate) entry: Entry,
    /// The newest version that passed it on its way up, and that no node had.
    pub(crate) version: Version,
    /// Numbers given out: by keepers of the published order alone.
    pub(crate) counter: u8,
}

impl Keeper {
    /// Whether the key has an entry.
    pub(crate) fn is_valid(&self) -> bool {
        self.entry.id != 0
    }
}

/// A storage node. All of this is durable, unless an ablation says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Node {
    /// Its epoch.
    pub(crate) epoch: u8,
    /// From the change of the epoch to its release.
    pub(crate) held: bool,
    /// The key was offered when it was held; noted only where a loss may be declared.
    pub(crate) was_offered: bool,
    /// The stored record; `value` 0: there is none.
    pub(crate) stored: Version,
    /// Where the series of dependent versions began (`since` in the code).
    pub(crate) base: Seq,
    /// Writes up to here are sent back.
    pub(crate) fence: Seq,
    /// Below this nothing can arrive, or is refused.
    pub(crate) floor: Seq,
    /// The floor of the last release: what absent keys count as stored with.
    pub(crate) floor_of_epoch: Seq,
    /// The offer under which the key may be cached; 0: not offered.
    pub(crate) offer: u8,
    /// The floor when it was offered.
    pub(crate) offer_floor: Seq,
    /// Offers made so far.
    pub(crate) offers: u8,
    /// The newest conditional write that ran, of each lane: request and number.
    pub(crate) completions: [(u8, Seq); CLIENTS_MAX],
}

/// A version that a client keeps until it is durable elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Preserved {
    /// `value` 0: nothing.
    pub(crate) version: Version,
    /// Its snapshot generation.
    pub(crate) generation: u8,
}

/// A client session with one lane.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Client {
    /// Its epoch.
    pub(crate) epoch: u8,
    /// Operations that have ended.
    pub(crate) ended: u8,
    /// The next one is under way.
    pub(crate) waits: bool,
    /// The cache refused its conditional write: it reads what is there.
    pub(crate) refused: bool,
    /// The version that it saw last; kept only if a condition will need it.
    pub(crate) seen: Version,
    /// The newest version that the cache answered it and no other part is known to have.
    pub(crate) preserved: Preserved,
    /// Snapshots up to this generation are durable, as far as it heard.
    pub(crate) durable_generation: u8,
    /// The last epoch of which it heard that its recovery is over.
    pub(crate) recovered_epoch: u8,
}

/// A snapshot file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Snapshot {
    /// The epoch that it was taken in.
    pub(crate) epoch: u8,
    /// Its generation.
    pub(crate) generation: u8,
    /// The record, if it was cached and dirty.
    pub(crate) version: Version,
}

/// How far the recovery of an epoch is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) enum Phase {
    /// None is under way.
    #[default]
    Serving,
    /// Witnesses are asked, or clients if none is left.
    Gathering,
    /// The node stores the newest version.
    Storing,
}

/// The controller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Controller {
    /// The epoch of the key's chain.
    pub(crate) epoch: u8,
    /// The last epoch that was recovered.
    pub(crate) recovered_epoch: u8,
    /// Clients preserve what that one told.
    pub(crate) is_preserved: bool,
    /// The last epoch of any chain.
    pub(crate) last_epoch: u8,
    /// The epoch of the chain that doesn't serve the key; 0: there is one chain.
    pub(crate) other_epoch: u8,
    /// The highest generation given out.
    pub(crate) generation: u8,
    /// Where it is.
    pub(crate) phase: Phase,
    /// Members of the last recovered epoch's chain that can be asked for what they have, a bit
    /// each.
    pub(crate) witnesses: u8,
    /// Those that were loaded.
    pub(crate) loaded: u8,
    /// The chain was empty when it was exchanged: nothing is to be asked for.
    pub(crate) was_drained: bool,
    /// Clients that have answered the gather, a bit each.
    pub(crate) gathered: u8,
    /// The newest version of their answers.
    pub(crate) best: Version,
    /// The generation of the snapshot under way; 0: none.
    pub(crate) taking: u8,
    /// The newest snapshot, perhaps not durable yet.
    pub(crate) snapshot: Snapshot,
    /// The newest durable snapshot.
    pub(crate) durable: Snapshot,
    /// Which generation clients are told to be durable.
    pub(crate) published: u8,
    /// Incarnations given out.
    pub(crate) entries: u8,
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) enum Outcome {
    /// It wasn't begun.
    #[default]
    None,
    /// It is under way.
    Open,
    /// A read that returned `value`, or a write that was acknowledged.
    Done,
    /// The condition failed.
    Failed,
    /// It may have run.
    Indeterminate,
    /// It surely did nothing.
    Void,
}

/// An operation in the history.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Operation {
    /// What became of it.
    pub(crate) outcome: Outcome,
    /// What a read returned; what a conditional write expected.
    pub(crate) value: u8,
    /// The read was told that it had expired.
    pub(crate) found_expired: bool,
    /// Operations that had ended before it began, a bit each.
    pub(crate) before: u16,
    /// Under which number a write was executed.
    pub(crate) executed: Seq,
}

/// What can be spent of admissions, faults and the like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(crate) struct Spent {
    /// Offers of the node.
    pub(crate) admissions: u8,
    /// Evictions.
    pub(crate) evictions: u8,
    /// Crashes of switches.
    pub(crate) crashes: u8,
    /// Exchanges of all switches.
    pub(crate) changes: u8,
    /// Exchanges of a drained chain.
    pub(crate) hand_overs: u8,
    /// Records stored to be clean.
    pub(crate) cleanings: u8,
    /// Moves of the partition.
    pub(crate) moves: u8,
    /// Recoveries of the chain that doesn't serve the key.
    pub(crate) other_recoveries: u8,
    /// Snapshots.
    pub(crate) snapshots: u8,
    /// Restarts of the node.
    pub(crate) node_restarts: u8,
    /// Restarts of the controller.
    pub(crate) controller_restarts: u8,
    /// Rises of the node's floor.
    pub(crate) floor_rises: u8,
}

/// Everything.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct State {
    /// The chains' owners in the order of their epochs; the last one serves, the others are
    /// zombies.
    pub(crate) switches: [Switch; CHAINS_MAX],
    /// Their keepers, from the clients on.
    pub(crate) keepers: [[Keeper; LAYERS_MAX - 1]; CHAINS_MAX],
    /// The node.
    pub(crate) node: Node,
    /// The clients.
    pub(crate) clients: [Client; CLIENTS_MAX],
    /// The controller.
    pub(crate) controller: Controller,
    /// What clients did.
    pub(crate) history: [Operation; CLIENTS_MAX * OPERATIONS_MAX],
    /// The value that was there when history began, or after the last loss that was declared.
    pub(crate) began_with: u8,
    /// The newest version that a client was told of.
    pub(crate) promised: Seq,
    /// What was to expire has expired.
    pub(crate) expired: bool,
    /// What was spent.
    pub(crate) spent: Spent,
    /// Every packet that may still matter, in order.
    pub(crate) packets: Vec<Packet>,
    /// Every command that may still matter, in order.
    pub(crate) commands: Vec<Command>,
}

impl State {
    /// The switch that serves.
    pub(crate) fn active(&self) -> usize {
        let active = self.switches.iter().rposition(|switch| switch.epoch != 0);
        active.expect("there is always one")
    }

    /// The chain of an epoch.
    pub(crate) fn chain_of(&self, epoch: u8) -> Option<usize> {
        self.switches.iter().position(|switch| switch.epoch == epoch)
    }

    /// Whether a member of a chain refuses its epoch.
    pub(crate) fn is_frozen(&self, chain: usize, member: usize, owner: usize) -> bool {
        if member == owner {
            self.switches[chain].frozen
        } else {
            self.keepers[chain][member].frozen
        }
    }

    /// What a member of a chain has of the key.
    pub(crate) fn version_at(&self, chain: usize, member: usize, owner: usize) -> Version {
        if member == owner {
            self.switches[chain].record.version
        } else {
            self.keepers[chain][member].version
        }
    }

    /// Puts a packet into the network.
    pub(crate) fn send(&mut self, packet: Packet) {
        if let Err(at) = self.packets.binary_search(&packet) {
            self.packets.insert(at, packet);
        }
    }

    /// Puts a command into the control channel.
    pub(crate) fn command(&mut self, command: Command) {
        if let Err(at) = self.commands.binary_search(&command) {
            self.commands.insert(at, command);
        }
    }
}

/// The index of an operation in the history.
pub(crate) fn operation_index(client: u8, request: u8) -> usize {
    usize::from(client) * OPERATIONS_MAX + usize::from(request) - 1
}

/// Client and request of the operation with this index in the history.
pub(crate) fn operation_at(index: usize) -> (u8, u8) {
    ((index / OPERATIONS_MAX) as u8, (index % OPERATIONS_MAX) as u8 + 1)
}

/// The value that an operation writes: unique, and never 0.
pub(crate) fn value_of(client: u8, request: u8) -> u8 {
    operation_index(client, request) as u8 + 1
}
