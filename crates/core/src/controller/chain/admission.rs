//! Admission: offers of hot keys become entries of the cache (FarReach III-B; rules 4 and 5).

use super::cache::{CachedKey, Stage};
use super::work::Work;
use super::{Chain, Context, Phase};
use crate::control::{BATCH_MAX, Entry, EntryId, Location, Offer, SwitchCommand};
use crate::storage::OfferId;
use std::collections::{BTreeMap, VecDeque};
use switchback_wire::{CACHED_KEY_BYTES_MAX, KeyHash};

/// Offers that wait for an eviction; never more than the cache has slots, or the last of them would
/// wait while the cache is filled anew many times. More wait only where there is room for them. The
/// others are declined, and come again if their keys stay hot.
const WAITING_MAX: usize = 16_384;
/// Admission commands under way at a time: what arrives meanwhile shares the next one.
const ADMITS_MAX: usize = 4;

/// Offers that wait for a slot, first come first served.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    queue: VecDeque<KeyHash>,
    offers: BTreeMap<KeyHash, Offer>,
    declined: u64,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.queue.len(), self.offers.len());
        self.queue.len()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.offers.clear();
    }

    /// Offers that were declined so far.
    pub(super) fn declined(&self) -> u64 {
        self.declined
    }

    fn contains(&self, hash: &KeyHash) -> bool {
        self.offers.contains_key(hash)
    }

    /// The newest offer of a key stands, at the place of its first.
    fn push(&mut self, offer: Offer) {
        let hash = offer.hash;
        if self.offers.insert(hash, offer).is_none() {
            self.queue.push_back(hash);
        }
    }

    fn pop(&mut self) -> Option<Offer> {
        let hash = self.queue.pop_front()?;
        self.offers.remove(&hash)
    }

    fn remove(&mut self, hash: &KeyHash) {
        if self.offers.remove(hash).is_some() {
            self.queue.retain(|waiting| waiting != hash);
        }
    }

    /// Takes everything out, to be declined.
    pub(super) fn drain(&mut self) -> Vec<Offer> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    /// The first of them: keys of its class are evicted.
    pub(super) fn first(&self) -> Option<&Offer> {
        self.queue.front().map(|hash| &self.offers[hash])
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
        if matches!(self.phase, Phase::Waiting { .. } | Phase::Resyncing) {
            return; // what is cached isn't known yet; nodes repeat their offers
        }
        let (mut held, mut declined) = (Vec::new(), Vec::new());
        for offer in offers {
            let (hash, id) = (offer.hash, offer.id);
            if cx.directory.head_of(&hash) != node {
                continue;
            }
            if self.commands.is_clearing(hash, id) && cx.mechanisms.settled_offers() {
                // Declined a moment ago: taken now, it would be in the cache and then cleared at
                // its node.
                continue;
            }
            if cx.directory.is_bypass(self.id) {
                held.push((hash, id)); // admitted as soon as there is a switch: then they come again
            } else if let Some(cached) = self.cache.find(&hash) {
                if cached.stage == Stage::Clearing {
                    continue; // its old offer is being cleared; it comes again under a new one
                }
                let entry = cached.entry.id;
                self.cache.set_offer(entry, id);
                held.push((hash, id));
            } else if self.fits(cx, &offer)
                && (self.waiting.contains(&hash) || self.has_room_to_wait())
            {
                self.waiting.push(offer);
                held.push((hash, id));
            } else {
                // Left to wait it would be admitted under an offer that its node has cleared.
                self.waiting.remove(&hash);
                self.waiting.declined += 1;
                declined.push((hash, id));
            }
        }
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

    fn has_room_to_wait(&self) -> bool {
        let evictions = WAITING_MAX.min(self.cache.capacity());
        !self.is_draining() && self.waiting.len() < evictions.max(self.cache.room())
    }

    /// Says that these offers came to nothing, so that those keys may be offered again.
    pub(super) fn decline(&mut self, cx: &mut Context<'_>, offers: Vec<(KeyHash, OfferId)>) {
        for (hash, _) in &offers {
            self.missing.remove(hash);
        }
        self.note_readmission(cx);
        self.command_heads(cx, Work::ClearOffers(offers));
    }

    /// Gives slots to waiting offers, or makes room for them.
    pub(super) fn admit_waiting(&mut self, cx: &mut Context<'_>) {
        // During a recovery the switch may serve already; admissions begin with the first node that
        // is released.
        let is_cache_known = !matches!(self.phase, Phase::Waiting { .. } | Phase::Resyncing);
        if cx.directory.active(self.id).is_none() || !is_cache_known || self.waiting.len() == 0 {
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
            self.command_switch(cx, SwitchCommand::Admit(batch));
        }
        // If it was the limit of commands under way that ended the loop, there may be free slots.
        if full {
            self.make_room(cx);
        }
    }

    fn new_entry(&mut self, cx: &Context<'_>, offer: Offer, at: Location) -> Entry {
        let partition = cx.directory.partition_of(&offer.hash);
        let entry = Entry { id: self.next_entry, at, hash: offer.hash, key: offer.key };
        self.next_entry += 1;
        self.cache.insert(CachedKey {
            entry: entry.clone(),
            partition,
            offer: offer.id,
            stage: Stage::Admitting,
        });
        entry
    }

    /// The switch has admitted these entries, but for those that it refused.
    pub(super) fn admitted(
        &mut self,
        cx: &mut Context<'_>,
        entries: &[Entry],
        refused: Vec<EntryId>,
    ) {
        for Entry { id, .. } in entries {
            let id = *id;
            // One that outgrew its slot at once may be on its way out already.
            let admitting = self.cache.get(id).is_some_and(|key| key.stage == Stage::Admitting);
            if admitting && !refused.contains(&id) {
                self.cache.set_stage(id, Stage::Cached);
                if let Some(key) = self.cache.get(id) {
                    self.missing.remove(&key.entry.hash);
                }
            }
        }
        // A refused key has no entry in the switch. As after a removal, its node clears the offer.
        self.removed(cx, refused);
        self.note_readmission(cx);
    }

    /// After a recovery: how many of the keys that were cached are still missing, and when none was
    /// any more.
    fn note_readmission(&mut self, cx: &mut Context<'_>) {
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
