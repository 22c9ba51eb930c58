//! What a node has stored of the key, and how one that follows takes what another has.

use super::{Config, Mechanism};
use crate::state::CLIENTS_MAX;

/// A version of the record: which operation wrote it (0: none did), and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct Version {
    pub(super) value: u8,
    pub(super) seq: u8,
}

/// The newest conditional write of a client that was applied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct Completion {
    pub(super) request: u8,
    pub(super) seq: u8,
}

/// What a node has stored of the key; all of it is durable. Also an *effect*: what has changed of
/// it, and else zeros.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct Stored {
    pub(super) version: Version,
    /// Where the series of versions began that were each made upon the one before (`since` in the
    /// code): what is not newer has run, or was overwritten.
    pub(super) base: u8,
    /// Writes up to here are sent back.
    pub(super) fence: u8,
    /// The number of its mark: odd while the key is offered.
    pub(super) mark: u8,
    /// The floor when the mark was made.
    pub(super) mark_floor: u8,
    pub(super) completions: [Completion; CLIENTS_MAX],
}

impl Stored {
    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        *self == Stored::default()
    }

    /// Whether the key may be cached.
    pub(super) fn is_offered(&self) -> bool {
        self.mark % 2 == 1
    }

    /// What has changed since.
    pub(super) fn since(&self, before: &Stored) -> Stored {
        let mut effect = Stored::default();
        if (self.version, self.base) != (before.version, before.base) {
            (effect.version, effect.base) = (self.version, self.base);
        }
        if self.fence != before.fence {
            effect.fence = self.fence;
        }
        if self.mark != before.mark {
            (effect.mark, effect.mark_floor) = (self.mark, self.mark_floor);
        }
        let completions = self.completions.iter().zip(&before.completions);
        for (changed, (now, then)) in effect.completions.iter_mut().zip(completions) {
            if now != then {
                *changed = *now;
            }
        }
        effect
    }

    /// Takes what is newer of an effect or of a copy, and nothing else. Whether there was anything.
    pub(super) fn merge(&mut self, other: &Stored, config: &Config) -> bool {
        let before = *self;
        let is_newer = other.version.seq > self.version.seq;
        if is_newer || other.version.seq != 0 && !config.has(Mechanism::SeqCompare) {
            (self.version, self.base) = (other.version, other.base);
        }
        self.fence = self.fence.max(other.fence);
        if other.mark > self.mark && config.has(Mechanism::MarksReplicated) {
            (self.mark, self.mark_floor) = (other.mark, other.mark_floor);
        }
        if config.has(Mechanism::CompletionsReplicated) {
            for (own, other) in self.completions.iter_mut().zip(&other.completions) {
                if other.request > own.request {
                    *own = *other;
                }
            }
        }
        *self != before
    }

    /// Whether a node with this and this floor lacks nothing of another one's.
    pub(super) fn covers(&self, floor: u8, other: &Stored) -> bool {
        let completions = self.completions.iter().zip(&other.completions);
        self.version.seq.max(floor) >= other.version.seq
            && self.fence.max(floor) >= other.fence
            && self.mark >= other.mark
            && completions.into_iter().all(|(own, other)| own.request >= other.request)
    }
}
