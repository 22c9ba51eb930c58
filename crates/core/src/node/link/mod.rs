//! Links between the replicas of a partition (rules R1 to R8).
//!
//! What the head has stored, and what it has decided, travel together from replica to replica, in
//! frames. A replica stores the one, then passes both on; the tail says what was decided, and
//! confirms to the replica before it.
//!
//! A replica takes frames in *rounds*. It begins one, with READY, when it enters a view or an
//! epoch, when it has started, when a frame is missing, and when the sender asks. Frames of a round
//! are numbered without gaps, and frames of another round aren't taken: so of two connections only
//! the newest counts, and nothing need be known of connections at all. A round begins with the
//! state of all that the sender knows to be unconfirmed, then FLUSH. One replica begins a round
//! once the one behind it has had FLUSH of it: so what arrives can be passed on at once.
//!
//! *Unconfirmed* is a key of which a replica has stored something that it doesn't know to be at the
//! tail. That is noted in the batch in which it is stored, so it is known after a restart.

mod encoding;
mod frames;
mod inbound;
mod outbound;
mod unconfirmed;

pub use encoding::LINK_BYTES_MAX;
pub use frames::{Answer, Copy, Effect, FRAME_BYTES_MAX, Frame, HotHint, LinkMessage};
pub(super) use inbound::{Inbound, Taken};
pub(super) use outbound::{Awaited, Outbound};

use crate::storage::Lanes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::KeyHash;

/// Frames that a node has under way at most, and their bytes: beyond this the head takes no
/// request.
pub(super) const FRAMES_MAX: usize = 16_384;
const BYTES_MAX: usize = 64 << 20;

/// In which epoch and view a partition's replicas talk to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Term {
    pub(super) epoch: u32,
    pub(super) view: u32,
}

/// Where a node stands among the replicas of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// The replica before it; `None`: it is the head.
    pub(super) before: Option<u16>,
    /// The replica behind it, or the node that joins there; `None`: no node is behind it.
    pub(super) after: Option<u16>,
    /// The one behind joins: this is the tail.
    pub(super) after_joins: bool,
    /// It is a replica; else it joins.
    pub(super) is_replica: bool,
}

impl Standing {
    /// Of a node among these replicas.
    pub(super) fn of(node: u16, replicas: &[u16]) -> Option<Standing> {
        let at = replicas.iter().position(|replica| *replica == node)?;
        let before = at.checked_sub(1).map(|before| replicas[before]);
        let after = replicas.get(at + 1).copied();
        Some(Standing { before, after, after_joins: false, is_replica: true })
    }

    /// Of a node that joins behind the tail.
    pub(super) fn of_joiner(source: u16) -> Standing {
        Standing { before: Some(source), after: None, after_joins: false, is_replica: false }
    }

    /// The same, if it is the tail, with a node that joins behind it.
    pub(super) fn with_joiner(self, joiner: u16) -> Standing {
        match self.after {
            None => Standing { after: Some(joiner), after_joins: true, ..self },
            Some(_) => self,
        }
    }

    /// Whether it decides.
    pub(super) fn is_head(&self) -> bool {
        self.is_replica && self.before.is_none()
    }

    /// Whether it answers.
    pub(super) fn is_tail(&self) -> bool {
        self.is_replica && (self.after.is_none() || self.after_joins)
    }
}

/// What a change of a node's place leaves behind.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// Keys that are unconfirmed no longer.
    pub(super) confirmed: Vec<(KeyHash, Vec<u8>)>,
    /// What waited for the tail, which this node is now.
    pub(super) reached: Vec<Awaited>,
    /// What waited for a tail that this node has nothing to do with any more.
    pub(super) lost: Vec<Awaited>,
}

/// The links of a node: for each partition with several replicas to the one behind it, and from the
/// one before it.
#[derive(Debug)]
pub(super) struct Links {
    outbound: BTreeMap<u16, Outbound>,
    inbound: BTreeMap<u16, Inbound>,
    messages: VecDeque<(u16, LinkMessage)>,
    /// Partitions of which this node was the tail when it was last arranged.
    tails: BTreeSet<u16>,
    boot: u64,
    next_round: u64,
    /// Frames under way, and their bytes.
    frames: usize,
    bytes: usize,
}

impl Links {
    /// No links. `boot` differs at every start, and so do rounds.
    pub(super) fn new(boot: u64) -> Links {
        Links {
            outbound: BTreeMap::new(),
            inbound: BTreeMap::new(),
            messages: VecDeque::new(),
            tails: BTreeSet::new(),
            boot,
            next_round: boot << 32 | 1,
            frames: 0,
            bytes: 0,
        }
    }

    /// Whether no partition has several replicas.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.outbound.is_empty() && self.inbound.is_empty()
    }

    /// Whether there is a replica behind this one, which waits for it.
    #[inline]
    pub(super) fn passes_on(&self, partition: u16) -> bool {
        self.outbound.get(&partition).is_some_and(|outbound| !outbound.joins())
    }

    /// Whether there is a replica behind this one, or one that joins.
    #[inline]
    pub(super) fn has_outbound(&self, partition: u16) -> bool {
        self.outbound.contains_key(&partition)
    }

    pub(super) fn outbound(&self, partition: u16) -> Option<&Outbound> {
        self.outbound.get(&partition)
    }

    pub(super) fn inbound(&self, partition: u16) -> Option<&Inbound> {
        self.inbound.get(&partition)
    }

    pub(super) fn inbound_mut(&mut self, partition: u16) -> Option<&mut Inbound> {
        self.inbound.get_mut(&partition)
    }

    /// All partitions with a link.
    pub(super) fn partitions(&self) -> Vec<u16> {
        let mut partitions: Vec<_> = self.outbound.keys().chain(self.inbound.keys()).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions.into_iter().copied().collect()
    }

    /// Changes a partition's outbound link, and counts what is under way.
    pub(super) fn change<T>(
        &mut self,
        partition: u16,
        change: impl FnOnce(&mut Outbound) -> T,
    ) -> Option<T> {
        let outbound = self.outbound.get_mut(&partition)?;
        let (frames, bytes) = outbound.under_way();
        let result = change(outbound);
        let (frames_now, bytes_now) = outbound.under_way();
        self.frames = self.frames + frames_now - frames;
        self.bytes = self.bytes + bytes_now - bytes;
        Some(result)
    }

    /// Whether more frames may be under way.
    pub(super) fn has_room(&self) -> bool {
        self.frames < FRAMES_MAX && self.bytes < BYTES_MAX
    }

    /// Frames under way.
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Whether what is decided now can be passed on, of all partitions.
    pub(super) fn are_flowing(&self) -> bool {
        self.outbound.values().all(|outbound| outbound.is_flowing() || outbound.joins())
    }

    /// Keys that are unconfirmed.
    pub(super) fn unconfirmed(&self) -> impl Iterator<Item = &KeyHash> {
        self.outbound.values().flat_map(Outbound::unconfirmed)
    }

    /// Whether a key of a partition is.
    pub(super) fn is_unconfirmed(&self, partition: u16, hash: &KeyHash) -> bool {
        self.outbound.get(&partition).is_some_and(|outbound| outbound.is_unconfirmed(hash))
    }

    /// Something of a key is about to be stored, by a request of this lane if it leaves a
    /// completion. What is to be noted with it; `None`: there is no replica behind this one.
    pub(super) fn note(
        &mut self,
        partition: u16,
        hash: &KeyHash,
        key: &[u8],
        lanes: impl Iterator<Item = (u32, u64)>,
    ) -> Option<Lanes> {
        Some(self.outbound.get_mut(&partition)?.note(hash, key, lanes))
    }

    /// All lanes that are unconfirmed with keys of a partition.
    pub(super) fn lanes_of(&self, partition: u16) -> Lanes {
        self.outbound.get(&partition).map_or(Vec::new(), |it| it.all_lanes().collect())
    }

    /// All lanes that are unconfirmed with keys of other partitions, at the replicas of those.
    pub(super) fn lanes_but(&self, partition: u16) -> impl Iterator<Item = (u32, u64)> {
        let others =
            self.outbound.iter().filter(move |(other, it)| **other != partition && !it.joins());
        others.flat_map(|(_, outbound)| outbound.all_lanes())
    }

    /// A key was noted as unconfirmed before the node restarted.
    pub(super) fn restore(&mut self, partition: u16, hash: KeyHash, key: Vec<u8>, lanes: Lanes) {
        if let Some(outbound) = self.outbound.get_mut(&partition) {
            outbound.restore(hash, key, lanes);
        }
    }

    /// The node is the tail of a partition, or isn't. Whether it is from now on.
    pub(super) fn becomes_tail(&mut self, partition: u16, is_tail: bool) -> bool {
        if !is_tail {
            self.tails.remove(&partition);
        }
        is_tail && self.tails.insert(partition)
    }

    /// The node's place among the replicas of a partition, in this term. While that `is_durable`
    /// not, nothing is sent or taken in it.
    pub(super) fn arrange(
        &mut self,
        partition: u16,
        term: Term,
        standing: Option<Standing>,
        is_durable: bool,
    ) -> Left {
        let mut left = Left::default();
        match standing.and_then(|standing| standing.after) {
            Some(next) if self.outbound.contains_key(&partition) => {
                let joins = standing.is_some_and(|standing| standing.after_joins);
                self.change(partition, |outbound| {
                    outbound.enter(term, next);
                    if !joins {
                        outbound.replica_follows();
                    } else if is_durable && !outbound.joins() {
                        (left.confirmed, left.reached) = outbound.joiner_follows();
                    }
                });
            }
            Some(next) => {
                let mut outbound = Outbound::new(self.boot, term, next);
                if standing.is_some_and(|standing| standing.after_joins) {
                    outbound.joiner_follows();
                }
                self.outbound.insert(partition, outbound);
            }
            None if is_durable => {
                self.change(partition, Outbound::stop);
                if let Some(outbound) = self.outbound.remove(&partition) {
                    let (confirmed, awaited) = outbound.end();
                    left.confirmed = confirmed;
                    let of = if standing.is_some() { &mut left.reached } else { &mut left.lost };
                    *of = awaited;
                }
            }
            None => _ = self.change(partition, Outbound::stop),
        }
        match standing.and_then(|standing| standing.before) {
            Some(before) => {
                let known = self.inbound.get(&partition);
                if known.is_none_or(|inbound| !inbound.is_from(before, term)) {
                    self.inbound.insert(partition, Inbound::new(before, term));
                }
            }
            None => _ = self.inbound.remove(&partition),
        }
        left
    }

    /// Begins a round if none is open: what arrives can be passed on.
    pub(super) fn be_ready(&mut self, partition: u16) {
        let outbound = self.outbound.get(&partition);
        let passes_on = outbound.is_none_or(|it| it.is_flowing() || it.joins());
        let Some(inbound) = self.inbound.get_mut(&partition) else { return };
        if passes_on && !inbound.is_open() {
            inbound.open(self.next_round);
            self.next_round += 1;
            self.say_ready(partition);
        }
    }

    fn say_ready(&mut self, partition: u16) {
        let Some(inbound) = self.inbound.get(&partition) else { return };
        if let Some(ready) = inbound.ready(partition) {
            self.messages.push_back((inbound.before(), ready));
        }
    }

    /// What was sent may be lost: says READY again where nothing comes, and begins rounds that
    /// could not begin before.
    pub(super) fn repeat(&mut self, partition: u16) {
        self.be_ready(partition);
        if self.inbound.get_mut(&partition).is_some_and(Inbound::lacks_frames) {
            self.say_ready(partition);
        }
    }

    /// Ends the round: what comes of it is dropped.
    pub(super) fn close(&mut self, partition: u16) {
        if let Some(inbound) = self.inbound.get_mut(&partition) {
            inbound.close();
        }
    }

    /// The replica before knows of no round: another one begins, if one can.
    pub(super) fn asked(&mut self, partition: u16, before: u16, term: Term) {
        if self.inbound.get(&partition).is_some_and(|inbound| inbound.is_from(before, term)) {
            self.close(partition);
            self.be_ready(partition);
        }
    }

    /// Sends to another replica.
    pub(super) fn send(&mut self, to: u16, message: LinkMessage) {
        self.messages.push_back((to, message));
    }

    /// Takes the next message, and the node that it is for.
    pub(super) fn poll(&mut self) -> Option<(u16, LinkMessage)> {
        self.messages.pop_front()
    }
}
