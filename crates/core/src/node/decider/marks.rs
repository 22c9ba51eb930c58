//! What a node remembers of hot keys: fences and offers (rules 2, 3 and 5).
//!
//! A fence is a fencing token (Burrows, "The Chubby lock service", OSDI 2006, calls it a
//! sequencer): the node bounces writes whose sequence number is not above it, however late they
//! come.

use crate::control::Offer;
use crate::mechanisms::Mechanisms;
use crate::storage::{KeyRange, Mark, OfferId};
use std::collections::{BTreeMap, VecDeque};
use switchback_wire::{KeyHash, Seq};

/// A key's mark, and what needn't survive a restart of it.
#[derive(Clone, Debug)]
pub(super) struct MarkedKey {
    pub(super) key: Vec<u8>,
    pub(super) mark: Mark,
    /// The fence that is known to be durable.
    saved_fence: Seq,
    /// Length of the value when it was offered; unknown after a restart.
    pub(super) value_bytes: u32,
    /// How often the switch had counted it when it was offered.
    pub(super) count: u32,
    /// The offer's mark is durable, at all replicas, so that it may be sent.
    pub(super) durable: bool,
    /// The controller has confirmed the offer.
    pub(super) known: bool,
}

impl MarkedKey {
    /// Its offer.
    pub(super) fn offer(&self, hash: &KeyHash) -> Offer {
        let MarkedKey { value_bytes, count, .. } = *self;
        Offer { id: self.mark.offer, hash: *hash, key: self.key.clone(), value_bytes, count }
    }
}

/// What became of a fence that was to be raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) enum RaisedFence {
    /// A fence that high is known to be durable.
    Saved,
    /// This mark is to be made durable.
    ToSave(Mark),
    /// Too many keys have one: nothing changed.
    NoRoom,
}

/// All marks of a node, by key hash.
#[derive(Debug)]
pub(super) struct Marks {
    keys: BTreeMap<KeyHash, MarkedKey>,
    offered: usize,
    limit: usize,
    mechanisms: Mechanisms,
    next_offer: u64,
    /// Offers to send, again or for the first time.
    pub(super) to_offer: VecDeque<KeyHash>,
}

impl Marks {
    pub(super) fn new(
        loaded: Vec<(KeyHash, Vec<u8>, Mark)>,
        limit: usize,
        boot: u64,
        mechanisms: Mechanisms,
    ) -> Marks {
        let marked = |key, mark: Mark| {
            let saved_fence = mark.fence;
            let (value_bytes, count) = (0, Offer::NAMED);
            MarkedKey { key, mark, saved_fence, value_bytes, count, durable: true, known: false }
        };
        let keys: BTreeMap<_, _> =
            loaded.into_iter().map(|(hash, key, mark)| (hash, marked(key, mark))).collect();
        let to_offer: VecDeque<_> = keys
            .iter()
            .filter(|(_, marked)| marked.mark.is_offered())
            .map(|(hash, _)| *hash)
            .collect();
        // Unique over restarts with the boot's randomness, within one by counting.
        let next_offer = boot << 32 | 1;
        Marks { keys, offered: to_offer.len(), limit, mechanisms, next_offer, to_offer }
    }

    pub(super) fn offered(&self) -> usize {
        self.offered
    }

    pub(super) fn get(&self, hash: &KeyHash) -> Option<&MarkedKey> {
        self.keys.get(hash)
    }

    pub(super) fn get_mut(&mut self, hash: &KeyHash) -> Option<&mut MarkedKey> {
        self.keys.get_mut(hash)
    }

    pub(super) fn is_offered(&self, hash: &KeyHash) -> bool {
        self.keys.get(hash).is_some_and(|marked| marked.mark.is_offered())
    }

    pub(super) fn fence(&self, hash: &KeyHash) -> Seq {
        self.keys.get(hash).map_or(Seq::NONE, |marked| marked.mark.fence)
    }

    /// The fence that survives a restart.
    pub(super) fn saved_fence(&self, hash: &KeyHash) -> Seq {
        self.keys.get(hash).map_or(Seq::NONE, |marked| marked.saved_fence)
    }

    fn entry(&mut self, hash: &KeyHash, key: &[u8]) -> &mut MarkedKey {
        self.keys.entry(*hash).or_insert_with(|| MarkedKey {
            key: key.to_vec(),
            mark: Mark::default(),
            saved_fence: Seq::NONE,
            value_bytes: 0,
            count: 0,
            durable: false,
            known: false,
        })
    }

    /// Raises a key's fence, if there is room for it: of keys that aren't offered half as many have
    /// one as may be offered.
    pub(super) fn raise_fence(&mut self, hash: &KeyHash, key: &[u8], fence: Seq) -> RaisedFence {
        if !self.keys.contains_key(hash) && self.fenced_only() >= self.limit / 2 {
            return RaisedFence::NoRoom;
        }
        let marked = self.entry(hash, key);
        marked.mark.fence = marked.mark.fence.max(fence);
        if fence > marked.saved_fence {
            RaisedFence::ToSave(marked.mark)
        } else {
            RaisedFence::Saved
        }
    }

    /// Keys that have a fence and aren't offered.
    fn fenced_only(&self) -> usize {
        self.keys.len() - self.offered
    }

    /// Whether fences should be dropped before their time: half of their room is taken.
    pub(super) fn is_crowded(&self) -> bool {
        self.fenced_only() > self.limit / 4
    }

    /// A fence is durable.
    pub(super) fn fence_saved(&mut self, hash: &KeyHash, fence: Seq) {
        if let Some(marked) = self.keys.get_mut(hash) {
            marked.saved_fence = marked.saved_fence.max(fence);
        }
    }

    /// Marks a key as offered; the mark to make durable before the offer is sent. `None` if it is
    /// offered already or there is no room.
    pub(super) fn offer(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        value_bytes: u32,
        count: u32,
        floor: Seq,
    ) -> Option<Mark> {
        // Each offer that is cleared may leave a fence, so their room limits offers, too.
        let has_room = self.offered < self.limit && self.fenced_only() <= self.limit / 2;
        if self.is_offered(hash) || !has_room {
            return None;
        }
        let offer = OfferId::from_bits(self.next_offer);
        self.next_offer += 1;
        self.offered += 1;
        let marked = self.entry(hash, key);
        marked.mark.offer = offer;
        marked.mark.floor = floor;
        marked.value_bytes = value_bytes;
        marked.count = count;
        marked.durable = false;
        marked.known = false;
        Some(marked.mark)
    }

    /// Takes in a mark of another replica: fences rise only, and offers are the head's. The mark to
    /// be stored; `None` inside: there is none.
    pub(super) fn merge(&mut self, hash: &KeyHash, key: &[u8], mark: Mark) -> Option<Mark> {
        let known = self.keys.get(hash).map(|marked| marked.mark).unwrap_or_default();
        let fence = known.fence.max(mark.fence);
        let merged = Mark { fence, ..mark };
        self.offered -= usize::from(known.is_offered());
        self.offered += usize::from(merged.is_offered());
        if merged == Mark::default() {
            self.keys.remove(hash);
            return None;
        }
        let marked = self.entry(hash, key);
        if merged.offer != known.offer {
            (marked.value_bytes, marked.count) = (0, Offer::NAMED);
            (marked.durable, marked.known) = (false, false);
        }
        marked.mark = merged;
        Some(merged)
    }

    /// Nothing of a range is marked any more.
    pub(super) fn forget(&mut self, range: &KeyRange) {
        let gone: Vec<_> = self.within(range).map(|(hash, _)| *hash).collect();
        for hash in gone {
            let marked = self.keys.remove(&hash).expect("just seen");
            self.offered -= usize::from(marked.mark.is_offered());
        }
        self.to_offer.retain(|hash| !range.contains(hash));
    }

    /// The marks of a range, in order.
    pub(super) fn within(&self, range: &KeyRange) -> impl Iterator<Item = (&KeyHash, &MarkedKey)> {
        self.keys.range(range.first..=range.last)
    }

    /// A mark that was merged is durable, or couldn't be made so: then there was no offer, unless
    /// that is durable from before. At the tail (`is_last`) all replicas have it then.
    pub(super) fn merged(&mut self, hash: &KeyHash, mark: &Mark, is_saved: bool, is_last: bool) {
        let Some(marked) = self.keys.get_mut(hash) else { return };
        if is_saved {
            marked.saved_fence = marked.saved_fence.max(mark.fence);
            marked.durable |= is_last && marked.mark.offer == mark.offer;
        } else if marked.mark.offer == mark.offer && !marked.durable {
            self.clear_offer(hash, mark.offer);
        }
    }

    /// Not all replicas may have a key's mark.
    pub(super) fn unconfirmed(&mut self, hash: &KeyHash) {
        if let Some(marked) = self.keys.get_mut(hash) {
            marked.durable = false;
        }
    }

    /// All replicas have a key's mark: its offer may be sent.
    pub(super) fn confirmed(&mut self, hash: &KeyHash) {
        if let Some(marked) = self.keys.get_mut(hash)
            && marked.mark.is_offered()
            && !marked.durable
        {
            marked.durable = true;
            self.to_offer.push_back(*hash);
        }
    }

    /// The controller knows this offer: no need to repeat it.
    pub(super) fn hold(&mut self, hash: &KeyHash, offer: OfferId) {
        if let Some(marked) = self.keys.get_mut(hash)
            && marked.mark.offer == offer
        {
            marked.known = true;
        }
    }

    /// Clears an offer, if it is this one. The mark that remains to be stored (`None` inside:
    /// nothing remains).
    pub(super) fn clear_offer(
        &mut self,
        hash: &KeyHash,
        offer: OfferId,
    ) -> Option<(Vec<u8>, Option<Mark>)> {
        let marked = self.keys.get_mut(hash)?;
        if marked.mark.offer != offer || !marked.mark.is_offered() {
            return None;
        }
        self.offered -= 1;
        marked.mark.offer = OfferId::NONE;
        marked.mark.floor = Seq::NONE;
        let key = marked.key.clone();
        if marked.mark.fence > Seq::NONE && self.mechanisms.lasting_fence() {
            return Some((key, Some(marked.mark)));
        }
        self.keys.remove(hash);
        Some((key, None))
    }

    /// Of at most `limit` marks from `from` on, drops those of keys that aren't offered and whose
    /// fence is covered. Which went, and where to go on.
    pub(super) fn drop_fences(
        &mut self,
        from: KeyHash,
        limit: usize,
        covered: impl Fn(&KeyHash, Seq) -> bool,
    ) -> (Vec<(KeyHash, Vec<u8>)>, KeyHash) {
        let mut range = self.keys.range(from..);
        let seen: Vec<_> = range.by_ref().take(limit).collect();
        let droppable = seen
            .into_iter()
            .filter(|(hash, marked)| !marked.mark.is_offered() && covered(hash, marked.mark.fence));
        let gone: Vec<_> = droppable.map(|(hash, marked)| (*hash, marked.key.clone())).collect();
        let next = range.next().map_or(KeyHash([0; 16]), |(hash, _)| *hash);
        for (hash, _) in &gone {
            self.keys.remove(hash);
        }
        (gone, next)
    }

    /// All fences.
    pub(super) fn fences(&self) -> impl Iterator<Item = (&KeyHash, Seq)> {
        self.keys
            .iter()
            .map(|(hash, marked)| (hash, marked.mark.fence))
            .filter(|(_, fence)| *fence > Seq::NONE)
    }

    /// An offered key was counted again. If it was twice as often as the controller knows, and the
    /// offer may be sent, the controller is to know.
    pub(super) fn counted(&mut self, hash: &KeyHash, count: u32) -> bool {
        let Some(marked) = self.keys.get_mut(hash) else { return false };
        let is_news = marked.durable && count / 2 >= marked.count.max(1);
        if is_news {
            marked.count = count;
        }
        is_news
    }

    /// Offers every offered key anew that `is_of` a chain: the controller may have forgotten them.
    pub(super) fn offer_all_again(&mut self, is_of: impl Fn(&KeyHash) -> bool) {
        self.to_offer.retain(|hash| !is_of(hash));
        for (hash, marked) in self.keys.iter_mut().filter(|(hash, _)| is_of(hash)) {
            marked.known = false;
            marked.count = Offer::NAMED;
            if marked.mark.is_offered() && marked.durable {
                self.to_offer.push_back(*hash);
            }
        }
    }

    /// Keys marked as offered whose position is in `from..=to`, in order.
    pub(super) fn offered_between(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (&KeyHash, &MarkedKey)> {
        let range = self.keys.range(KeyHash::at_position(from)..);
        range
            .take_while(move |(hash, _)| hash.position() <= to)
            .filter(|(_, marked)| marked.mark.is_offered())
    }
}
