//! What may wait for a commit: marks of offers, and their ends.
//!
//! No client waits for these, but each has to be durable, and forcing the log for one costs as much
//! as for a hundred. So they travel with the next commit of something else; where nothing else is
//! written, together, once [`NodeLimits::defer_us`](super::NodeLimits::defer_us) has passed.
//!
//! What the node tells the controller must not lag behind what it was told: an offer that it was
//! told to clear would be taken for one that stands, by a controller that has just started, and its
//! key would be cached under an offer that the node then clears (rule 5). So nothing is told of
//! offers before those that wait for their end have come to it.

use super::{NodeTimer, Shim};
use crate::control::{Command, NodeCommand};
use crate::time::Now;
use switchback_wire::KeyHash;

/// Keys and commands that wait at most: then they no longer wait.
const DEFERRED_MAX: usize = 256;

/// A key to be offered.
#[derive(Clone, Debug)]
pub(super) struct HotKey {
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    /// How long its value is.
    pub(super) value_bytes: u32,
    /// How often the switch has counted it.
    pub(super) count: u32,
}

/// Commands and offers that wait. Nothing is decided of them yet: what they are about may change
/// meanwhile.
#[derive(Debug, Default)]
pub(super) struct Deferred {
    commands: Vec<Command<NodeCommand>>,
    offers: Vec<HotKey>,
}

impl Deferred {
    /// A command, unless it waits already.
    pub(super) fn command(&mut self, command: Command<NodeCommand>) {
        if self.commands.iter().all(|other| (other.chain, other.id) != (command.chain, command.id))
        {
            self.commands.push(command);
        }
    }

    /// A hot key. What was said last of it stands.
    pub(super) fn offer(&mut self, hot: HotKey) {
        match self.offers.iter_mut().find(|other| other.hash == hot.hash) {
            Some(other) => *other = hot,
            None => self.offers.push(hot),
        }
    }

    /// Whether the end of an offer of this key waits.
    pub(super) fn ends(&self, hash: &KeyHash) -> bool {
        self.commands.iter().any(|command| match &command.body {
            NodeCommand::ClearOffers(offers) => offers.iter().any(|(its, _)| its == hash),
            _ => false,
        })
    }

    fn is_full(&self) -> bool {
        self.commands.len() >= DEFERRED_MAX || self.offers.len() >= DEFERRED_MAX
    }
}

impl Shim {
    /// Something waits from now on.
    pub(super) fn defer(&mut self, now: Now) {
        if self.deferred.is_full() {
            self.take_deferred();
        } else {
            self.timers.set_earlier(NodeTimer::Deferred, now.in_us(self.limits.defer_us));
        }
    }

    /// Does what waits. Offers that end come first: the same keys may be offered anew.
    pub(super) fn take_deferred(&mut self) {
        self.timers.stop(NodeTimer::Deferred);
        let Deferred { commands, offers } = std::mem::take(&mut self.deferred);
        commands.into_iter().for_each(|command| self.obey(command));
        offers.into_iter().for_each(|hot| self.mark_offered(hot));
    }

    /// Brings offers to their end that were told to end, before anything is told of offers.
    pub(super) fn end_offers(&mut self) {
        if self.mechanisms.settled_ends() && !self.deferred.commands.is_empty() {
            self.take_deferred();
        }
    }
}
