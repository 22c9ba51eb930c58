//! What comes from the replica before this one.

use super::{Answer, Effect, Frame, LinkMessage, Term};
use std::collections::VecDeque;

/// A frame whose effect is being stored.
#[derive(Debug)]
pub(in crate::node) struct Arrived {
    pub(in crate::node) number: u64,
    pub(in crate::node) effect: Option<Effect>,
    pub(in crate::node) answer: Option<Answer>,
    pub(in crate::node) is_flush: bool,
    is_stored: bool,
}

/// What becomes of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) enum Taken {
    /// It is the next one: its effect is to be stored.
    Next,
    /// It was taken before; up to here all are done.
    Before(u64),
    /// It is of another round, or there is none.
    Strange,
    /// One before it is missing, or the sender is in another life: the round has ended.
    Gap,
}

/// The link from the replica before.
#[derive(Debug)]
pub(in crate::node) struct Inbound {
    before: u16,
    term: Term,
    /// The round that is open.
    round: Option<u64>,
    /// The last frame that was taken, and the life of its sender.
    last: u64,
    boot: u64,
    queue: VecDeque<Arrived>,
    /// Up to here the tail is known to have all.
    confirmed: u64,
    /// Frames of another round came: READY may be lost.
    is_asked: bool,
    /// FLUSH of a round of this term has arrived, and all before it is stored.
    is_flushed: bool,
}

impl Inbound {
    pub(super) fn new(before: u16, term: Term) -> Inbound {
        Inbound {
            before,
            term,
            round: None,
            last: 0,
            boot: 0,
            queue: VecDeque::new(),
            confirmed: 0,
            is_asked: false,
            is_flushed: false,
        }
    }

    pub(super) fn is_from(&self, before: u16, term: Term) -> bool {
        (self.before, self.term) == (before, term)
    }

    /// The node before.
    pub(in crate::node) fn before(&self) -> u16 {
        self.before
    }

    pub(in crate::node) fn term(&self) -> Term {
        self.term
    }

    pub(in crate::node) fn is_open(&self) -> bool {
        self.round.is_some()
    }

    /// Whether all that was unconfirmed before when the term began is stored here.
    pub(in crate::node) fn is_flushed(&self) -> bool {
        self.is_flushed
    }

    pub(super) fn open(&mut self, round: u64) {
        self.close();
        self.round = Some(round);
    }

    pub(super) fn close(&mut self) {
        self.round = None;
        (self.last, self.confirmed, self.is_asked) = (0, 0, false);
        self.queue.clear();
    }

    pub(super) fn ready(&self, partition: u16) -> Option<LinkMessage> {
        let Term { epoch, view } = self.term;
        self.round.map(|round| LinkMessage::Ready { partition, epoch, view, round })
    }

    /// Whether a round is open of which no frame comes.
    pub(super) fn lacks_frames(&mut self) -> bool {
        self.is_open() && (self.last == 0 || std::mem::take(&mut self.is_asked))
    }

    /// A frame of the term has arrived. `takes_any`: rounds aren't looked at.
    pub(in crate::node) fn take(&mut self, frame: &mut Frame, takes_any: bool) -> Taken {
        if takes_any && self.is_open() {
            self.last = self.last.max(frame.number);
            self.push(frame);
            return Taken::Next;
        }
        if self.round != Some(frame.round) {
            self.is_asked = true;
            return Taken::Strange;
        }
        let is_of_another_life = self.last > 0 && frame.boot != self.boot;
        if is_of_another_life || frame.number > self.last + 1 {
            self.close();
            return Taken::Gap;
        }
        if frame.number <= self.last {
            return Taken::Before(self.confirmed);
        }
        (self.last, self.boot) = (frame.number, frame.boot);
        self.push(frame);
        Taken::Next
    }

    fn push(&mut self, frame: &mut Frame) {
        self.queue.push_back(Arrived {
            number: frame.number,
            effect: frame.effect.take(),
            answer: frame.answer.take(),
            is_flush: frame.is_flush,
            is_stored: false,
        });
    }

    /// The frame that was taken last.
    pub(in crate::node) fn newest(&self) -> Option<&Arrived> {
        self.queue.back()
    }

    /// The last frame that was taken.
    pub(in crate::node) fn last(&self) -> u64 {
        self.last
    }

    /// Whether this round is open.
    pub(in crate::node) fn is_in(&self, round: u64) -> bool {
        self.round == Some(round)
    }

    /// The round that is open.
    pub(in crate::node) fn round(&self) -> Option<u64> {
        self.round
    }

    /// The effect of a frame is stored.
    pub(in crate::node) fn stored(&mut self, number: u64) {
        // They have numbers without gaps.
        let first = self.queue.front().map_or(0, |arrived| arrived.number);
        let place = number.checked_sub(first).and_then(|place| usize::try_from(place).ok());
        let arrived = place.and_then(|place| self.queue.get_mut(place));
        if let Some(arrived) = arrived.filter(|arrived| arrived.number == number) {
            arrived.is_stored = true;
        }
    }

    /// The next frame, if its effect is stored, and with it those of all before.
    pub(in crate::node) fn next_stored(&mut self) -> Option<Arrived> {
        if !self.queue.front()?.is_stored {
            return None;
        }
        let arrived = self.queue.pop_front()?;
        self.is_flushed |= arrived.is_flush;
        Some(arrived)
    }

    /// The tail has all frames up to this one: what is to be told.
    pub(in crate::node) fn confirmed(
        &mut self,
        partition: u16,
        number: u64,
    ) -> Option<LinkMessage> {
        self.confirmed = self.confirmed.max(number);
        self.round.map(|round| LinkMessage::Confirm { partition, round, number })
    }
}
