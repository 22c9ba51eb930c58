//! What goes to the replica behind this one.

use super::unconfirmed::Unconfirmed;
use super::{Answer, Effect, Frame, LinkMessage, Term};
use crate::control::CommandId;
use crate::storage::{Lanes, OfferId};
use crate::topology::ChainId;
use std::collections::VecDeque;
use switchback_wire::KeyHash;

/// Unconfirmed keys that are read for a round at a time.
const READS_MAX: usize = 64;
/// Frames and bytes under way to a node that joins, beyond which the round ends: the next one sends
/// each key once.
const JOINER_FRAMES_MAX: usize = 2048;
const JOINER_BYTES_MAX: usize = 16 << 20;
/// Keys that may be unconfirmed at a node that joins: beyond that the join is given up.
const JOINER_KEYS_MAX: usize = 1 << 18;
/// Earlier lives of the node behind that are remembered.
const LIVES_MAX: usize = 16;
/// Frames and bytes that a partition may always have under way while what is unconfirmed is sent,
/// however many other partitions have: a node that waits for another one must not let a third wait.
const RESENT_FRAMES_MAX: usize = 64;
const RESENT_BYTES_MAX: usize = 1 << 20;
/// The frame of something that is sent with the next FLUSH.
const WITH_FLUSH: u64 = u64::MAX;

/// What is to happen once the tail has a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::node) enum Awaited {
    /// A step of a command is done.
    Command(ChainId, CommandId),
    /// An offer is sent.
    Offer { hash: KeyHash, offer: OfferId, value_bytes: u32 },
    /// A frame of the replica before is confirmed to it.
    Frame { round: u64, number: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flow {
    /// The replica behind has begun no round.
    Waiting,
    /// It has, and what is unconfirmed is being sent.
    Resending { round: u64 },
    /// FLUSH is sent.
    Flowing { round: u64 },
}

/// The link to the replica behind.
#[derive(Debug)]
pub(in crate::node) struct Outbound {
    boot: u64,
    next: u16,
    /// That node joins: this is the tail, and waits for nothing.
    joins: bool,
    term: Term,
    flow: Flow,
    /// Of the last frame of the round.
    number: u64,
    /// The numbers of those that aren't confirmed, and how long they are.
    under_way: VecDeque<(u64, usize)>,
    bytes: usize,
    /// In the order of the frames.
    awaited: VecDeque<(u64, Awaited)>,
    unconfirmed: Unconfirmed,
    /// The round's FLUSH.
    flush: Option<u64>,
    /// A FLUSH of this term is confirmed.
    is_flushed: bool,
    /// Something was confirmed since that was last asked.
    has_moved: bool,
    /// The last frame, if it is a probe.
    probe: Option<u64>,
    /// ASK was said in this term.
    has_asked: bool,
    /// The last round of the term that was begun: none is begun twice.
    begun: u64,
    /// Lives of the node behind that ended in the term: none of their rounds is begun any more.
    lives: VecDeque<u64>,
}

impl Outbound {
    pub(super) fn new(boot: u64, term: Term, next: u16) -> Outbound {
        Outbound {
            boot,
            next,
            joins: false,
            term,
            flow: Flow::Waiting,
            number: 0,
            under_way: VecDeque::new(),
            bytes: 0,
            awaited: VecDeque::new(),
            unconfirmed: Unconfirmed::default(),
            flush: None,
            is_flushed: false,
            has_moved: false,
            probe: None,
            has_asked: false,
            begun: 0,
            lives: VecDeque::new(),
        }
    }

    /// In this term it goes to this node, once that has begun a round.
    pub(super) fn enter(&mut self, term: Term, next: u16) {
        if (self.term, self.next) != (term, next) {
            (self.term, self.next, self.is_flushed) = (term, next, false);
            self.has_asked = false;
            // READY of another term is known by that, and nodes come back in other terms.
            self.begun = 0;
            self.lives.clear();
            self.stop();
        }
    }

    /// Whether a round is of the current life of the node behind, or of a new one, as far as that
    /// is known. Notes the life.
    fn is_of_this_life(&mut self, round: u64) -> bool {
        let (life, last) = (round >> 32, self.begun >> 32);
        if life == last {
            return round > self.begun;
        }
        if self.lives.contains(&life) {
            return false;
        }
        if self.lives.len() == LIVES_MAX {
            self.lives.pop_front();
        }
        self.lives.push_back(last);
        true
    }

    /// The round has ended.
    pub(in crate::node) fn stop(&mut self) {
        self.flow = Flow::Waiting;
        self.begin_anew();
        self.unconfirmed.end();
    }

    fn begin_anew(&mut self) {
        (self.number, self.flush, self.bytes, self.probe) = (0, None, 0, None);
        self.under_way.clear();
        self.awaited.iter_mut().for_each(|(number, _)| *number = WITH_FLUSH);
    }

    /// There is no replica behind any more: the keys that were unconfirmed, and what waited.
    pub(super) fn end(self) -> (Vec<(KeyHash, Vec<u8>)>, Vec<Awaited>) {
        let awaited = self.awaited.into_iter().map(|(_, awaited)| awaited).collect();
        (self.unconfirmed.into_keys(), awaited)
    }

    /// A node joins behind this one, which is the tail: the keys that are confirmed by that, and
    /// what waited. They stay unconfirmed for the joiner.
    pub(super) fn joiner_follows(&mut self) -> (Vec<(KeyHash, Vec<u8>)>, Vec<Awaited>) {
        self.joins = true;
        let awaited = std::mem::take(&mut self.awaited);
        (self.unconfirmed.keys(), awaited.into_iter().map(|(_, awaited)| awaited).collect())
    }

    /// The node behind is a replica.
    pub(super) fn replica_follows(&mut self) {
        self.joins = false;
    }

    /// Whether the node behind joins.
    pub(in crate::node) fn joins(&self) -> bool {
        self.joins
    }

    /// Whether the node behind, which joins, lags so far that its round should end.
    pub(in crate::node) fn lags(&self) -> bool {
        self.joins && (self.under_way.len() >= JOINER_FRAMES_MAX || self.bytes >= JOINER_BYTES_MAX)
    }

    /// Whether too many keys are unconfirmed for a join to go on.
    pub(in crate::node) fn is_too_far(&self) -> bool {
        self.joins && self.unconfirmed.len() > JOINER_KEYS_MAX
    }

    /// Whether more of what is unconfirmed may be sent, even if the node has no room.
    pub(in crate::node) fn may_resend(&self) -> bool {
        self.under_way.len() < RESENT_FRAMES_MAX && self.bytes < RESENT_BYTES_MAX
    }

    /// The last frame of the round, and the round; `None` while there is none.
    pub(in crate::node) fn position(&self) -> Option<(u64, u64)> {
        self.round().map(|round| (round, self.number))
    }

    pub(super) fn all_lanes(&self) -> impl Iterator<Item = (u32, u64)> {
        self.unconfirmed.all_lanes()
    }

    /// The node behind.
    pub(in crate::node) fn next(&self) -> u16 {
        self.next
    }

    pub(in crate::node) fn term(&self) -> Term {
        self.term
    }

    /// Frames that aren't confirmed, and their bytes.
    pub(super) fn under_way(&self) -> (usize, usize) {
        (self.under_way.len(), self.bytes)
    }

    /// ASK, if it wasn't said in this term. The node behind may have said READY before.
    pub(in crate::node) fn ask_once(&mut self, partition: u16) -> Option<LinkMessage> {
        let ask = self.ask(partition).filter(|_| !self.has_asked);
        self.has_asked = true;
        ask
    }

    /// ASK, if no round is known.
    pub(in crate::node) fn ask(&self, partition: u16) -> Option<LinkMessage> {
        let Term { epoch, view } = self.term;
        let is_waiting = self.flow == Flow::Waiting;
        is_waiting.then_some(LinkMessage::Ask { partition, epoch, view })
    }

    /// Whether what is decided now can be passed on.
    pub(in crate::node) fn is_flowing(&self) -> bool {
        matches!(self.flow, Flow::Flowing { .. })
    }

    /// Whether all that was unconfirmed when the term began is at the tail.
    pub(in crate::node) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    fn round(&self) -> Option<u64> {
        match self.flow {
            Flow::Waiting => None,
            Flow::Resending { round } | Flow::Flowing { round } => Some(round),
        }
    }

    pub(super) fn unconfirmed(&self) -> impl Iterator<Item = &KeyHash> {
        self.unconfirmed.hashes()
    }

    pub(in crate::node) fn is_unconfirmed(&self, hash: &KeyHash) -> bool {
        self.unconfirmed.has(hash)
    }

    pub(super) fn note(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        lanes: impl Iterator<Item = (u32, u64)>,
    ) -> Lanes {
        self.unconfirmed.note(hash, key, lanes)
    }

    pub(super) fn restore(&mut self, hash: KeyHash, key: Vec<u8>, lanes: Lanes) {
        self.unconfirmed.restore(hash, key, lanes);
    }

    /// The lanes that are unconfirmed with a key.
    pub(in crate::node) fn lanes(&self, hash: &KeyHash) -> Lanes {
        self.unconfirmed.lanes(hash)
    }

    /// An operation that was to change a key has ended, and is passed on if it `has_changed` it.
    /// The key, if it is confirmed by now.
    pub(in crate::node) fn ended(
        &mut self,
        hash: &KeyHash,
        has_changed: bool,
    ) -> Option<(KeyHash, Vec<u8>)> {
        self.unconfirmed.done(hash, has_changed)
    }

    /// All that is stored of a key is passed on next.
    pub(in crate::node) fn is_read(&mut self, hash: &KeyHash) {
        self.unconfirmed.is_read(hash);
    }

    /// It isn't known what is stored of a key: it is read, and sent.
    pub(in crate::node) fn send_again(&mut self, hash: &KeyHash) {
        self.unconfirmed.send_again(hash);
    }

    /// The replica behind has begun a round. Whether it is a new one.
    pub(in crate::node) fn begin(&mut self, round: u64, resends: bool) -> bool {
        // They rise within a life of the node behind.
        if !self.is_of_this_life(round) {
            return false;
        }
        self.begun = round;
        self.flow = Flow::Resending { round };
        self.begin_anew();
        self.unconfirmed.begin(resends);
        true
    }

    /// The next key that is to be read and sent, and the round.
    pub(in crate::node) fn read_next(&mut self) -> Option<(u64, KeyHash, Vec<u8>)> {
        let round = self.round()?;
        if self.unconfirmed.reading() >= READS_MAX {
            return None;
        }
        self.unconfirmed.read_next().map(|(hash, key)| (round, hash, key))
    }

    /// Whether a round is this one.
    pub(in crate::node) fn is_in(&self, round: u64) -> bool {
        self.round() == Some(round)
    }

    /// FLUSH, if it is due.
    pub(in crate::node) fn flush(&mut self, partition: u16) -> Option<Frame> {
        let Flow::Resending { round } = self.flow else { return None };
        if !self.unconfirmed.is_all_sent() {
            return None;
        }
        self.flow = Flow::Flowing { round };
        let frame = self.frame(partition, None, None, true)?;
        self.flush = Some(frame.number);
        self.awaited.iter_mut().for_each(|(number, _)| *number = frame.number);
        Some(frame)
    }

    /// A frame with this, if there is a round to send it in. What is decided while that has only
    /// begun may rest on what isn't sent yet: it comes to nothing. `awaited` waits for this frame,
    /// or for the next FLUSH.
    pub(in crate::node) fn pass_on(
        &mut self,
        partition: u16,
        effect: Option<Effect>,
        answer: Option<Answer>,
        awaited: Option<Awaited>,
    ) -> Option<Frame> {
        let answer = answer.filter(|_| self.is_flowing());
        let is_due = self.is_flowing() || effect.is_some();
        let frame = is_due.then(|| self.frame(partition, effect, answer, false)).flatten();
        let number = frame.as_ref().filter(|_| self.is_flowing()).map(|frame| frame.number);
        self.awaited.extend(awaited.map(|awaited| (number.unwrap_or(WITH_FLUSH), awaited)));
        frame
    }

    /// An empty frame, if none was confirmed for a while: if one before it is lost, the gap shows.
    /// It is repeated itself.
    pub(in crate::node) fn probe(&mut self, partition: u16) -> Option<Frame> {
        let has_moved = std::mem::take(&mut self.has_moved);
        if has_moved || self.under_way.is_empty() {
            return None;
        }
        if let Some(number) = self.probe {
            let (Term { epoch, view }, round, boot) = (self.term, self.round()?, self.boot);
            let (effect, answer, is_flush) = (None, None, false);
            return Some(Frame {
                partition,
                epoch,
                view,
                boot,
                round,
                number,
                effect,
                answer,
                is_flush,
            });
        }
        let probe = self.frame(partition, None, None, false)?;
        self.probe = Some(probe.number);
        Some(probe)
    }

    fn frame(
        &mut self,
        partition: u16,
        effect: Option<Effect>,
        answer: Option<Answer>,
        is_flush: bool,
    ) -> Option<Frame> {
        let round = self.round()?;
        (self.number, self.probe) = (self.number + 1, None);
        let (Term { epoch, view }, boot, number) = (self.term, self.boot, self.number);
        let frame = Frame { partition, epoch, view, boot, round, number, effect, answer, is_flush };
        if let Some(effect) = &frame.effect {
            self.unconfirmed.sent(&effect.hash, number, &effect.completions);
        }
        self.bytes += frame.bytes();
        self.under_way.push_back((number, frame.bytes()));
        Some(frame)
    }

    /// The tail has the frames of this round up to this one: the keys that are confirmed by it, and
    /// what has waited for it.
    pub(in crate::node) fn confirm(
        &mut self,
        round: u64,
        number: u64,
    ) -> (Vec<(KeyHash, Vec<u8>)>, Vec<Awaited>) {
        if !self.is_in(round) || number > self.number {
            return Default::default();
        }
        while let Some((sent, bytes)) = self.under_way.front().copied()
            && sent <= number
        {
            self.under_way.pop_front();
            self.bytes -= bytes;
            self.has_moved = true;
        }
        self.is_flushed |= self.flush.is_some_and(|flush| flush <= number);
        let mut reached = Vec::new();
        while self.awaited.front().is_some_and(|(sent, _)| *sent <= number) {
            reached.extend(self.awaited.pop_front().map(|(_, awaited)| awaited));
        }
        (self.unconfirmed.confirm(number), reached)
    }
}
