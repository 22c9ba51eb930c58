//! Commands that wait for their answer. Each is repeated until it comes, or until its epoch is over.

use crate::control::{Command, CommandId, Entry, EntryId, Envelope, Message, NodeCommand, Peer, SwitchCommand};
use crate::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::KeyHash;

/// What an answered command was for.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Purpose {
    Configure,
    Resync,
    Admit(Vec<EntryId>),
    EvictBegin(Vec<EntryId>),
    StoreEvicted(Vec<EntryId>),
    Remove(Vec<EntryId>),
    ClearOffers(Vec<(KeyHash, u64)>),
    OffersHeld(Vec<(KeyHash, u64)>),
    OfferKeys,
    Snapshot(u32),
    DurableGeneration,
    NodeAddress,
    Epoch(u16),
    RecoverStore(u16),
    Release(u16),
}

#[derive(Clone, Debug)]
struct Outstanding {
    to: Peer,
    message: Message,
    purpose: Purpose,
    send_at_us: u64,
    pause_us: u64,
}

/// The table of outstanding commands.
#[derive(Debug)]
pub(super) struct Commands {
    outstanding: BTreeMap<CommandId, Outstanding>,
    next: CommandId,
    retry_us: u64,
}

/// Longest pause between two repetitions.
const PAUSE_US_MAX: u64 = 500_000;

impl Commands {
    /// `starts` makes ids unique over restarts of the controller.
    pub(super) fn new(starts: u32, retry_us: u64) -> Commands {
        Commands { outstanding: BTreeMap::new(), next: u64::from(starts) << 40 | 1, retry_us }
    }

    fn add(&mut self, now: Now, to: Peer, purpose: Purpose, message: impl FnOnce(CommandId) -> Message) {
        let id = self.next;
        self.next += 1;
        let pause_us = self.retry_us;
        let send_at_us = now.monotonic_us;
        self.outstanding.insert(id, Outstanding { to, message: message(id), purpose, send_at_us, pause_us });
    }

    pub(super) fn command_switch(&mut self, now: Now, epoch: u32, switch: u16, purpose: Purpose, body: SwitchCommand) {
        self.add(now, Peer::Switch(switch), purpose, |id| Message::ToSwitch(Command { id, epoch, body }));
    }

    pub(super) fn command_node(&mut self, now: Now, epoch: u32, node: u16, purpose: Purpose, body: NodeCommand) {
        self.add(now, Peer::Node(node), purpose, |id| Message::ToNode(Command { id, epoch, body }));
    }

    /// Takes the answer to a command; `None` if it was answered before, or its epoch is over.
    pub(super) fn answered(&mut self, id: CommandId, from: Peer) -> Option<Purpose> {
        let outstanding = self.outstanding.get(&id)?;
        if outstanding.to != from {
            return None;
        }
        self.outstanding.remove(&id).map(|outstanding| outstanding.purpose)
    }

    /// A command failed for now: it is repeated after a pause.
    pub(super) fn failed(&mut self, now: Now, id: CommandId) {
        if let Some(outstanding) = self.outstanding.get_mut(&id) {
            outstanding.send_at_us = now.in_us(outstanding.pause_us);
        }
    }

    /// A peer is back: repeat at once what it may have missed.
    pub(super) fn repeat_to(&mut self, now: Now, peer: Peer) {
        for outstanding in self.outstanding.values_mut().filter(|outstanding| outstanding.to == peer) {
            outstanding.send_at_us = now.monotonic_us;
            outstanding.pause_us = self.retry_us;
        }
    }

    /// Whether a command with such a purpose is outstanding.
    pub(super) fn any(&self, wanted: impl Fn(&Purpose) -> bool) -> bool {
        self.outstanding.values().any(|outstanding| wanted(&outstanding.purpose))
    }

    /// Offers that nodes were told to clear and may not have cleared yet.
    pub(super) fn clearing(&self) -> BTreeSet<(KeyHash, u64)> {
        let offers = self.outstanding.values().filter_map(|outstanding| match &outstanding.purpose {
            Purpose::ClearOffers(offers) => Some(offers),
            _ => None,
        });
        offers.flatten().copied().collect()
    }

    /// Offers that a node was told are known, and may not have heard so yet.
    pub(super) fn telling_held(&self, node: u16) -> BTreeSet<(KeyHash, u64)> {
        let to_node = self.outstanding.values().filter(|outstanding| outstanding.to == Peer::Node(node));
        let offers = to_node.filter_map(|outstanding| match &outstanding.purpose {
            Purpose::OffersHeld(offers) => Some(offers),
            _ => None,
        });
        offers.flatten().copied().collect()
    }

    /// How many commands with such a purpose are outstanding.
    pub(super) fn count(&self, wanted: impl Fn(&Purpose) -> bool) -> usize {
        self.outstanding.values().filter(|outstanding| wanted(&outstanding.purpose)).count()
    }

    /// The epoch is over, and with it every command.
    pub(super) fn clear(&mut self) {
        self.outstanding.clear();
    }

    /// The cache's state is to be learned anew; what was under way to change it no longer counts. But nodes may yet clear the offers that
    /// they were told to: those must not be taken meanwhile.
    pub(super) fn clear_but_offers(&mut self) {
        self.outstanding.retain(|_, outstanding| matches!(outstanding.purpose, Purpose::ClearOffers(_)));
    }

    /// When [`Commands::due`] has something to send.
    pub(super) fn next_us(&self) -> u64 {
        self.outstanding.values().map(|outstanding| outstanding.send_at_us).min().unwrap_or(u64::MAX)
    }

    /// Commands to send now, for the first time or again.
    pub(super) fn due(&mut self, now: Now, mut send: impl FnMut(Envelope)) {
        for outstanding in self.outstanding.values_mut().filter(|due| due.send_at_us <= now.monotonic_us) {
            outstanding.send_at_us = now.in_us(outstanding.pause_us);
            outstanding.pause_us = (outstanding.pause_us * 2).min(PAUSE_US_MAX);
            send(Envelope { from: Peer::Controller, to: outstanding.to, message: outstanding.message.clone() });
        }
    }
}

/// A key that is on its way into the cache, in it, or on its way out.
#[derive(Clone, Debug)]
pub(super) struct CachedKey {
    pub(super) entry: Entry,
    pub(super) node: u16,
    pub(super) offer: u64,
    pub(super) stage: Stage,
}

/// How far a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// The switch was told to admit it.
    Admitting,
    /// In the cache.
    Cached,
    /// In the cache; the switch was asked whether it is the one to go.
    Candidate,
    /// To-be-evicted in the switch, or being stored or removed.
    Evicting,
    /// Out of the switch; its node still has to clear the offer.
    Clearing,
}
