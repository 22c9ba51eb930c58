//! Operations of the engine that are under way, and what each was for.

use crate::control::CommandId;
use crate::floors::Bucket;
use crate::node::copies::Refill;
use crate::node::decider::Merged;
use crate::node::join::CopyAt;
use crate::node::link::{Answer, Awaited, Effect};
use crate::storage::{EngineOp, KeyRange, Lanes, Mark, OfferId, OpId};
use crate::topology::ChainId;
use hashbrown::HashTable;
use switchback_wire::{Address, Header, KeyHash, Seq};

/// A request packet, as its answer needs it.
#[derive(Clone, Debug)]
pub(in crate::node) struct Request {
    pub(in crate::node) header: Header,
    pub(in crate::node) key: Vec<u8>,
    /// Where the answer goes: the switch, or in a bypass epoch the client.
    pub(in crate::node) switch: Address,
}

/// A write that is neither run nor answered yet.
#[derive(Clone, Debug)]
pub(in crate::node) struct Write {
    pub(in crate::node) request: Request,
    pub(in crate::node) value: Vec<u8>,
    /// The value was staged, as far as that matters: it is here.
    pub(in crate::node) is_staged: bool,
}

/// What a head passes on once the engine has stored it.
#[derive(Debug)]
pub(in crate::node) struct PassOn {
    pub(in crate::node) effect: Effect,
    pub(in crate::node) answer: Option<Answer>,
    pub(in crate::node) awaited: Option<Awaited>,
}

/// An unconfirmed key that is read to be sent in a round, and what was known of it by then.
#[derive(Debug)]
pub(in crate::node) struct Resend {
    pub(in crate::node) partition: u16,
    pub(in crate::node) round: u64,
    pub(in crate::node) hash: KeyHash,
    pub(in crate::node) key: Vec<u8>,
    pub(in crate::node) mark: Mark,
    /// Its offer, and the length of its value, if that isn't known to be at all replicas.
    pub(in crate::node) offer: Option<(OfferId, u32)>,
}

/// What an engine operation was for.
#[derive(Debug)]
pub(in crate::node) enum Pending {
    /// Answer this read with what the engine has.
    Read(Request),
    /// Answer this write, which the engine stores or not.
    Put {
        /// The write.
        request: Request,
        /// Its value for the cache (NetCache).
        update: Option<Vec<u8>>,
        /// Its value in case it has to be bounced, which it can't if it was known to be newer than
        /// anything stored.
        again: Option<Vec<u8>>,
        /// What goes to the replica behind.
        effect: Option<Box<Effect>>,
    },
    /// Once it is stored this goes to the replica behind.
    PassOn(Box<PassOn>),
    /// A frame's effect, or that of one of another round by now.
    Merge { partition: u16, round: u64, number: u64, hash: KeyHash, merged: Box<Merged> },
    /// What is stored of an unconfirmed key, for a round.
    Resend(Box<Resend>),
    /// All of a partition is dropped: for a join with this number, or because the node has left it.
    Emptied { partition: u16, join: Option<u32>, range: KeyRange, lanes: Lanes },
    /// How far joins have come: partition, number and place of each.
    JoinsSaved(Vec<(u16, u32, CopyAt)>),
    /// The tombstones of a partition are kept for a joiner.
    Kept { partition: u16 },
    /// That the node, a source, has given up this join of a partition; how often the state was made
    /// durable by then.
    GivenUp { partition: u16, join: u32, states: u64 },
    /// Records from here on, for a node that joins.
    Copied { partition: u16, join: u32, from: CopyAt, round: u64, range: KeyRange },
    /// Something of a part of a copy.
    CopyMerged { partition: u16, join: u32, hash: KeyHash, merged: Box<Merged> },
    /// Only the stored record tells what becomes of this write.
    LookUp(Write),
    /// Answer this write that its condition failed, once the fence is durable.
    Refusal { request: Request, told: Seq, fence: Seq },
    /// Answer a pull of fragments.
    Pull(Request),
    /// Answer a scan up to this position.
    Scan(Request, u64),
    /// A step that must succeed before operation `before` may be answered.
    Step { before: OpId },
    /// The same for a fence.
    Fence { hash: KeyHash, fence: Seq, before: OpId },
    /// An offer to send once its mark is durable.
    Offer { hash: KeyHash, offer: OfferId, value_bytes: u32 },
    /// The floor of all keys of a chain.
    Base(ChainId),
    /// Floors of buckets.
    Floors(Vec<(Bucket, Seq)>),
    /// One of several operations of a command.
    Command(ChainId, CommandId),
    /// The state with a new epoch, or of a release, and how often there was one to store.
    State(ChainId, CommandId, u64),
    /// A key that the controller wants to be offered.
    Named { hash: KeyHash, key: Vec<u8> },
    /// The current value of an offered key, for the cache (NetCache).
    Refresh { hash: KeyHash, key: Vec<u8> },
    /// What is stored of a key, for its copies (DistCache).
    Refill(Refill),
    /// Nothing waits for it.
    Nothing,
}

/// The operations under way, and those that the engine is yet to get.
#[derive(Debug)]
pub(super) struct Operations {
    next: OpId,
    pending: HashTable<(OpId, Pending)>,
    ops: Vec<EngineOp>,
    /// One of `ops` changes what is stored.
    has_changes: bool,
}

impl Operations {
    pub(super) fn new() -> Operations {
        Operations { next: 1, pending: HashTable::new(), ops: Vec::new(), has_changes: false }
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// How many writes of a key are under way. Looks at all operations.
    pub(super) fn puts_of(&self, hash: &KeyHash) -> usize {
        let is_put = |pending: &Pending| match pending {
            Pending::Put { request, .. } => request.header.key_hash == *hash,
            _ => false,
        };
        self.pending.iter().filter(|(_, pending)| is_put(pending)).count()
    }

    pub(super) fn submit(&mut self, pending: Pending, op: impl FnOnce(OpId) -> EngineOp) -> OpId {
        let id = self.next;
        self.next += 1;
        self.pending.insert_unique(hash(id), (id, pending), |(id, _)| hash(*id));
        let op = op(id);
        let reads =
            matches!(op, EngineOp::Get { .. } | EngineOp::Scan { .. } | EngineOp::Copy { .. });
        self.has_changes |= !reads;
        self.ops.push(op);
        id
    }

    /// The id of the operation after the next one.
    pub(super) fn after_next(&self) -> OpId {
        self.next + 1
    }

    pub(super) fn take(&mut self, id: OpId) -> Option<Pending> {
        let found = self.pending.find_entry(hash(id), |(other, _)| *other == id).ok()?;
        let ((_, pending), _) = found.remove();
        Some(pending)
    }

    pub(super) fn poll(&mut self, ops: &mut Vec<EngineOp>) {
        ops.append(&mut self.ops);
        self.has_changes = false;
    }

    pub(super) fn has_some(&self) -> bool {
        !self.ops.is_empty()
    }

    pub(super) fn has_changes(&self) -> bool {
        self.has_changes
    }
}

/// Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3): ids are consecutive, and
/// no packet or message chooses one.
fn hash(id: OpId) -> u64 {
    id.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
