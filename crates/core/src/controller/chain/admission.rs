//! Admission: offers of hot keys become entries of the cache, first of the chain's keepers, then of
//! its owner (FarReach III-B; rules 4, 5 and 21).

use super::budget::{Budget, Purpose};
use super::cache::{CachedKey, Stage};
use super::work::Work;
use super::{Chain, Context, Directory, Phase};
use crate::control::{BATCH_MAX, Entry, EntryId, Location, Offer, SwitchCommand};
use crate::storage::OfferId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::AddAssign;
use switchback_wire::{CACHED_KEY_BYTES_MAX, KeyHash};

/// Offers that wait for an eviction; never more than the cache has slots. More wait only where
/// there is room for them.
const WAITING_MAX: usize = 1024;
/// Admission commands under way at a time: what arrives meanwhile shares the next one.
const ADMITS_MAX: usize = 4;
/// What the counter of a key begins at that was named, or cached before: it isn't among the next
/// victims, but counts no more than others for long.
const NAMED_COUNT: u32 = 16;

/// Offers that were declined, by the reason.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Declined {
    /// No slot holds such a key or value, or nothing is cached at all.
    pub unfit: u64,
    /// Others that were counted more often wait already, as many as may.
    pub crowded: u64,
    /// What is cached was counted as often.
    pub outdone: u64,
}

impl AddAssign for Declined {
    fn add_assign(&mut self, more: Declined) {
        self.unfit += more.unfit;
        self.crowded += more.crowded;
        self.outdone += more.outdone;
    }
}

impl Declined {
    /// For any reason.
    pub fn total(&self) -> u64 {
        self.unfit + self.crowded + self.outdone
    }
}

/// An offer's rank among those that wait: more counted first, then first come.
type Rank = (Reverse<u32>, u64);

/// Offers that wait for a slot, the most counted first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ranked: BTreeMap<Rank, Offer>,
    ranks: BTreeMap<KeyHash, Rank>,
    arrived: u64,
    declined: Declined,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.ranked.len(), self.ranks.len());
        self.ranked.len()
    }

    /// Whether an offer of this key waits.
    pub(super) fn has(&self, hash: &KeyHash) -> bool {
        self.ranks.contains_key(hash)
    }

    pub(super) fn clear(&mut self) {
        self.ranked.clear();
        self.ranks.clear();
    }

    /// Offers that were declined so far.
    pub(super) fn declined(&self) -> Declined {
        self.declined
    }

    /// The newest offer of a key stands, at the rank of its count. If more than `limit` wait then,
    /// the least counted is to be declined.
    fn push(&mut self, offer: Offer, limit: usize) -> Option<Offer> {
        self.remove(&offer.hash);
        let rank = (Reverse(offer.count), self.arrived);
        self.arrived += 1;
        self.ranks.insert(offer.hash, rank);
        self.ranked.insert(rank, offer);
        if self.len() <= limit {
            return None;
        }
        self.declined.crowded += 1;
        let (_, last) = self.ranked.pop_last()?;
        self.ranks.remove(&last.hash);
        Some(last)
    }

    fn pop(&mut self) -> Option<Offer> {
        let (_, offer) = self.ranked.pop_first()?;
        self.ranks.remove(&offer.hash);
        Some(offer)
    }

    fn remove(&mut self, hash: &KeyHash) {
        if let Some(rank) = self.ranks.remove(hash) {
            self.ranked.remove(&rank);
        }
    }

    /// Takes everything out, to be declined.
    pub(super) fn drain(&mut self) -> Vec<Offer> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// Takes out what was counted `count` times or less, but for the `kept` most counted ones.
    pub(super) fn take_outdone(&mut self, count: u32, kept: usize) -> Vec<Offer> {
        let mut outdone = Vec::new();
        while self.len() > kept
            && let Some((rank, offer)) = self.ranked.pop_last()
        {
            if offer.count > count {
                self.ranked.insert(rank, offer);
                break;
            }
            self.ranks.remove(&offer.hash);
            outdone.push(offer);
        }
        self.declined.outdone += outdone.len() as u64;
        outdone
    }

    /// The first of them: keys of its class are evicted.
    pub(super) fn first(&self) -> Option<&Offer> {
        self.ranked.values().next()
    }

    /// The counts of those from place `from` on, `count` of them.
    pub(super) fn counts(&self, from: usize, count: usize) -> Vec<u32> {
        self.ranked.values().skip(from).take(count).map(|offer| offer.count).collect()
    }
}

impl Chain {
    /// A node offers hot keys, in the chain's epoch: those of partitions that it heads.
    pub(in crate::controller) fn offered(
        &mut self,
        cx: &mut Context<'_>,
        node: u16,
        offers: Vec<Offer>,
    ) {
        if matches!(self.phase, Phase::Waiting { .. } | Phase::Resyncing(_)) {
            return; // what is cached isn't known yet; nodes repeat their offers
        }
        cx.budget.received(cx.now, Purpose::Offer, &offers);
        let (mut held, mut declined) = (Vec::new(), Vec::new());
        for offer in offers {
            let (hash, id) = (offer.hash, offer.id);
            let is_of = cx.directory.served().of(&hash) == self.id;
            if !is_of || cx.directory.head_of(&hash) != node {
                continue;
            }
            let is_declined = self.commands.is_clearing(hash, id) || declined.contains(&(hash, id));
            if is_declined && cx.mechanisms.settled_offers() {
                // Declined a moment ago: taken now, it would be in the cache and then cleared at
                // its node.
                continue;
            }
            if cx.directory.is_bypass(self.id) {
                // Admitted as soon as there is a switch: then they come again.
                held.push((hash, id));
            } else if let Some(cached) = self.cache.find(&hash) {
                if cached.stage == Stage::Clearing {
                    continue; // its old offer is being cleared; it comes again under a new one
                }
                let entry = cached.entry.id;
                self.cache.set_offer(entry, id);
                held.push((hash, id));
            } else if self.fits(cx, &offer) {
                held.push((hash, id));
                let limit = self.waiting_max(cx.budget);
                declined.extend(self.waiting.push(offer, limit).map(|last| (last.hash, last.id)));
            } else {
                // Left to wait it would be admitted under an offer that its node has cleared.
                self.waiting.remove(&hash);
                self.waiting.declined.unfit += 1;
                declined.push((hash, id));
            }
        }
        held.retain(|offer| !declined.contains(offer));
        // A node repeats what it hasn't heard of; to tell it once is enough, since commands are
        // repeated, too.
        held.retain(|(hash, id)| !self.commands.is_telling(*hash, *id));
        if !held.is_empty() {
            self.command_heads(cx, Work::HoldOffers(held));
        }
        self.decline(cx, declined);
    }

    /// Whether the cache can take this key at all.
    fn fits(&self, cx: &Context<'_>, offer: &Offer) -> bool {
        cx.config.scheme.caches()
            && offer.key.len() <= CACHED_KEY_BYTES_MAX
            && self.cache.class_for(offer.value_bytes).is_some()
    }

    /// How many offers may wait.
    fn waiting_max(&self, budget: &Budget) -> usize {
        let evictions = WAITING_MAX.min(self.cache.capacity());
        let admits = !self.is_draining() && !budget.is_closed();
        if admits { evictions.max(self.cache.room()) } else { 0 }
    }

    /// Says that these offers came to nothing, so that those keys may be offered again.
    pub(super) fn decline(&mut self, cx: &mut Context<'_>, offers: Vec<(KeyHash, OfferId)>) {
        for (hash, _) in &offers {
            self.missing.remove(hash);
        }
        self.note_readmission(cx);
        self.command_heads(cx, Work::ClearOffers(offers));
    }

    /// Whether offers wait that could be given slots, or for which room could be made.
    pub(super) fn wants_slots(&self, directory: &Directory, waits_for_recovery: bool) -> bool {
        let is_cache_known = match self.phase {
            Phase::Waiting { .. } | Phase::Resyncing(_) => false,
            // The switch may serve already; admissions begin with the first node that is released.
            // But what is in switches alone must be at nodes before there is more of it (rule 24).
            Phase::Recovering(_) => !waits_for_recovery,
            Phase::Serving => true,
        };
        directory.owner(self.id).is_some() && is_cache_known && self.waiting.len() > 0
    }

    /// Gives slots to waiting offers, or makes room for them, as far as the budget goes.
    pub(super) fn admit_waiting(&mut self, cx: &mut Context<'_>) {
        self.wants_room = false;
        let waits = cx.config.scheme.keeps_in_switches() && cx.mechanisms.admit_last();
        let wants_slots = self.wants_slots(cx.directory, waits);
        let must_wait = wants_slots && !cx.budget.may_begin(cx.now);
        if must_wait && !self.awaits_budget {
            cx.budget.delays();
        }
        self.awaits_budget = must_wait;
        if !wants_slots || must_wait {
            return;
        }
        let mut full = false;
        while !full && self.waiting.len() > 0 && self.commands.admits() < ADMITS_MAX {
            let mut batch = Vec::new();
            while batch.len() < BATCH_MAX {
                let Some(offer) = self.waiting.first() else { break };
                let class =
                    self.cache.class_for(offer.value_bytes).expect("checked when it was queued");
                let Some(at) = self.cache.allocate(class) else {
                    full = true;
                    break;
                };
                let offer = self.waiting.pop().expect("just seen");
                batch.push(self.new_entry(cx, offer, at));
            }
            if batch.is_empty() {
                break;
            }
            self.admit(cx, batch);
        }
        // If it was the limit of commands under way that ended the loop, there may be free slots.
        if full {
            self.make_room(cx);
        }
    }

    fn new_entry(&mut self, cx: &Context<'_>, offer: Offer, at: Location) -> Entry {
        let partition = cx.directory.partition_of(&offer.hash);
        let count = if offer.count == Offer::NAMED { NAMED_COUNT } else { offer.count };
        let entry = Entry { id: self.next_entry, at, hash: offer.hash, key: offer.key, count };
        self.next_entry += 1;
        self.cache.insert(CachedKey {
            entry: entry.clone(),
            partition,
            offer: offer.id,
            stage: Stage::Admitting,
            admitted_us: Some(cx.now.monotonic_us),
            inspected: None,
            copy: None,
        });
        entry
    }

    /// Tells the first members of new entries: the keepers, if there are any. Of copies leaves hear
    /// first, then spines.
    fn admit(&mut self, cx: &mut Context<'_>, entries: Vec<Entry>) {
        let command = SwitchCommand::Admit(entries);
        let keepers_first = cx.mechanisms.keepers_first() && !cx.config.scheme.has_copies();
        if !keepers_first || !self.command_keepers(cx, command.clone()) {
            self.command_owner(cx, command);
        }
    }

    /// A member has admitted these entries, but for those that it refused. `by_all`: all that were
    /// told together have answered.
    pub(super) fn admitted_by(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        entries: Vec<Entry>,
        refused: Vec<EntryId>,
        by_all: bool,
    ) {
        if cx.config.scheme.has_copies() && cx.directory.owner(self.id) != Some(switch) {
            self.spine_admitted(cx, &entries, &refused);
            return;
        }
        for id in refused {
            // One that outgrew its slot at once may be on its way out already.
            if self.cache.is_at(id, Stage::Admitting) {
                self.cache.set_stage(id, Stage::Leaving);
            }
        }
        if !by_all {
            return;
        }
        let cache = &self.cache;
        let at = |stage| move |entry: &&Entry| cache.is_at(entry.id, stage);
        let refused: Vec<_> = entries.iter().filter(at(Stage::Leaving)).map(|it| it.id).collect();
        let admitted: Vec<_> = entries.iter().filter(at(Stage::Admitting)).cloned().collect();
        let is_owner = cx.directory.owner(self.id) == Some(switch);
        if cx.config.scheme.has_copies() {
            let admitted: Vec<_> = admitted.iter().map(|entry| entry.id).collect();
            self.admit_to_spines(cx, &admitted);
        } else if is_owner == cx.mechanisms.keepers_first()
            || !self.admit_next(cx, is_owner, &admitted)
        {
            for Entry { id, hash, .. } in admitted {
                self.cache.set_stage(id, Stage::Cached);
                self.missing.remove(&hash);
            }
        }
        // A refused key has no entry in the owner. As after a removal, its node clears the offer.
        self.remove_from_keepers(cx, refused);
        self.note_readmission(cx);
    }

    /// Tells the other members of entries that the owner has admitted, or the keepers. Whether
    /// there is anything to tell.
    fn admit_next(&mut self, cx: &Context<'_>, by_owner: bool, entries: &[Entry]) -> bool {
        if entries.is_empty() {
            return false;
        }
        let command = SwitchCommand::Admit(entries.to_vec());
        if by_owner {
            return self.command_keepers(cx, command);
        }
        self.command_owner(cx, command);
        true
    }

    /// After a recovery: how many of the keys that were cached are still missing, and when none was
    /// any more.
    pub(super) fn note_readmission(&mut self, cx: &Context<'_>) {
        let epoch = cx.directory.epoch(self.id);
        let Some(times) =
            self.times.as_mut().filter(|times| times.epoch == epoch && times.missing > 0)
        else {
            return;
        };
        times.missing = self.missing.len() as u64;
        if times.missing == 0 {
            times.readmit_us = cx.now.monotonic_us - times.released_at_us;
        }
    }

    /// Asks the nodes to offer these keys (a preload).
    pub(in crate::controller) fn preload(&mut self, cx: &mut Context<'_>, keys: Vec<Vec<u8>>) {
        let hash_key = cx.directory.hash_key();
        let named = keys.into_iter().map(|key| (hash_key.hash(&key), key));
        self.command_heads(cx, Work::OfferKeys(named.collect()));
        self.go_on(cx);
    }
}
