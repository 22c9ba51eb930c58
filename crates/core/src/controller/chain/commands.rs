//! Commands that wait for their answer. Each is repeated until it comes, or until its epoch is over.

use crate::control::{Command, CommandId, EntryId, Envelope, Message, NodeCommand, Peer, SwitchCommand};
use crate::storage::OfferId;
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
    ClearOffers(Vec<(KeyHash, OfferId)>),
    OffersHeld(Vec<(KeyHash, OfferId)>),
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

/// Offers that outstanding commands are about.
type Offers = BTreeSet<(KeyHash, OfferId, CommandId)>;

/// The table of outstanding commands. There may be as many as there are offers after a recovery, so
/// nothing that is done for every message looks through them all.
#[derive(Debug)]
pub(super) struct Commands {
    outstanding: BTreeMap<CommandId, Outstanding>,
    /// When each is sent, for the first time or again.
    schedule: BTreeSet<(u64, CommandId)>,
    /// Admissions among them.
    admits: usize,
    /// Questions among them which of some records are to be evicted.
    evict_begins: usize,
    /// Offers that nodes were told to clear and may not have cleared yet.
    clearing: Offers,
    /// Offers that nodes were told are known, and may not have heard so yet.
    telling: Offers,
    next: CommandId,
    retry_us: u64,
}

fn contains(offers: &Offers, hash: KeyHash, offer: OfferId) -> bool {
    offers.range((hash, offer, 0)..=(hash, offer, CommandId::MAX)).next().is_some()
}

/// Longest pause between two repetitions.
const PAUSE_US_MAX: u64 = 500_000;

impl Commands {
    /// `starts` makes ids unique over restarts of the controller.
    pub(super) fn new(starts: u32, retry_us: u64) -> Commands {
        Commands {
            outstanding: BTreeMap::new(),
            schedule: BTreeSet::new(),
            admits: 0,
            evict_begins: 0,
            clearing: Offers::new(),
            telling: Offers::new(),
            next: u64::from(starts) << 40 | 1,
            retry_us,
        }
    }

    fn add(&mut self, now: Now, to: Peer, purpose: Purpose, message: impl FnOnce(CommandId) -> Message) {
        let id = self.next;
        self.next += 1;
        let pause_us = self.retry_us;
        let send_at_us = now.monotonic_us;
        self.schedule.insert((send_at_us, id));
        match &purpose {
            Purpose::Admit(_) => self.admits += 1,
            Purpose::EvictBegin(_) => self.evict_begins += 1,
            _ => {}
        }
        if let Some((set, offers)) = self.offers_of(&purpose) {
            set.extend(offers.iter().map(|(hash, offer)| (*hash, *offer, id)));
        }
        self.outstanding.insert(id, Outstanding { to, message: message(id), purpose, send_at_us, pause_us });
    }

    fn remove(&mut self, id: CommandId) -> Option<Purpose> {
        let Outstanding { purpose, send_at_us, .. } = self.outstanding.remove(&id)?;
        self.schedule.remove(&(send_at_us, id));
        match &purpose {
            Purpose::Admit(_) => self.admits -= 1,
            Purpose::EvictBegin(_) => self.evict_begins -= 1,
            _ => {}
        }
        if let Some((set, offers)) = self.offers_of(&purpose) {
            offers.iter().for_each(|(hash, offer)| {
                set.remove(&(*hash, *offer, id));
            });
        }
        Some(purpose)
    }

    /// The offers that a command is about, and the set that knows them while it is outstanding.
    fn offers_of<'a>(&mut self, purpose: &'a Purpose) -> Option<(&mut Offers, &'a [(KeyHash, OfferId)])> {
        match purpose {
            Purpose::ClearOffers(offers) => Some((&mut self.clearing, offers)),
            Purpose::OffersHeld(offers) => Some((&mut self.telling, offers)),
            _ => None,
        }
    }

    /// Sets when a command is sent again.
    fn send_at(&mut self, id: CommandId, at_us: u64, pause_us: u64) {
        let Some(outstanding) = self.outstanding.get_mut(&id) else { return };
        self.schedule.remove(&(outstanding.send_at_us, id));
        self.schedule.insert((at_us, id));
        (outstanding.send_at_us, outstanding.pause_us) = (at_us, pause_us);
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
        self.remove(id)
    }

    /// A command failed for now: it is repeated after a pause.
    pub(super) fn failed(&mut self, now: Now, id: CommandId) {
        if let Some(pause_us) = self.outstanding.get(&id).map(|outstanding| outstanding.pause_us) {
            self.send_at(id, now.in_us(pause_us), pause_us);
        }
    }

    /// A peer is back: repeat at once what it may have missed.
    pub(super) fn repeat_to(&mut self, now: Now, peer: Peer) {
        let of_peer = self.outstanding.iter().filter(|(_, outstanding)| outstanding.to == peer);
        let ids: Vec<_> = of_peer.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.send_at(id, now.monotonic_us, self.retry_us));
    }

    /// Whether a command with such a purpose is outstanding. Looks through all.
    pub(super) fn any(&self, wanted: impl Fn(&Purpose) -> bool) -> bool {
        self.outstanding.values().any(|outstanding| wanted(&outstanding.purpose))
    }

    /// Whether a node was told to clear this offer and may not have cleared it yet.
    pub(super) fn is_clearing(&self, hash: KeyHash, offer: OfferId) -> bool {
        contains(&self.clearing, hash, offer)
    }

    /// Whether a node was told that this offer is known, and may not have heard so yet.
    pub(super) fn is_telling(&self, hash: KeyHash, offer: OfferId) -> bool {
        contains(&self.telling, hash, offer)
    }

    /// How many commands are outstanding.
    pub(super) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// How many of them are admissions.
    pub(super) fn admits(&self) -> usize {
        self.admits
    }

    /// Whether the switch was asked which of some records are to be evicted.
    pub(super) fn is_evict_begin_out(&self) -> bool {
        self.evict_begins > 0
    }

    /// The epoch is over, and with it every command.
    pub(super) fn clear(&mut self) {
        self.outstanding.clear();
        self.schedule.clear();
        (self.admits, self.evict_begins) = (0, 0);
        self.clearing.clear();
        self.telling.clear();
    }

    /// The cache's state is to be learned anew; what was under way to change it no longer counts. But
    /// nodes may yet clear the offers that they were told to: those must not be taken meanwhile.
    pub(super) fn clear_but_offers(&mut self) {
        let others = self.outstanding.iter().filter(|(_, other)| !matches!(other.purpose, Purpose::ClearOffers(_)));
        for id in others.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    /// When [`Commands::due`] has something to send.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.schedule.first().map(|(at_us, _)| *at_us)
    }

    /// Commands to send now, for the first time or again.
    pub(super) fn due(&mut self, now: Now, mut send: impl FnMut(Envelope)) {
        let due = self.schedule.range(..=(now.monotonic_us, CommandId::MAX));
        for id in due.map(|(_, id)| *id).collect::<Vec<_>>() {
            let outstanding = &self.outstanding[&id];
            send(Envelope { from: Peer::Controller, to: outstanding.to, message: outstanding.message.clone() });
            let pause_us = outstanding.pause_us;
            self.send_at(id, now.in_us(pause_us), (pause_us * 2).min(PAUSE_US_MAX));
        }
    }
}
