//! The decider: what becomes of a request, by what the node knows of its key and lane (protocol,
//! section 5, in its order).
//!
//! It changes nothing but what it knows. What is to be stored and answered it says as a value; the
//! [replica](super::replica) does that, and its outcome comes back.

mod arbiter;
mod floors;
mod marks;
mod writes;

use crate::control::{NodeConfig, Offer};
use crate::floors::{Bucket, SEQ_BUCKETS};
use crate::mechanisms::Mechanisms;
use crate::node::link::Effect;
use crate::storage::{
    KeyRange, LaneCompletion, Lanes, Loaded, Mark, OfferId, PutCondition, Record,
};
use crate::time::Now;
use crate::topology::{ByChain, ChainId, ChainMap};
use arbiter::Arbiter;
use floors::{RisingFloors, SWEEP_BATCH, SWEEP_BATCH_CROWDED};
use marks::Marks;
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::{Header, KeyHash, Seq, flags};

pub(super) use arbiter::Arbitration;
pub(super) use floors::FloorsToSave;
pub(super) use marks::RaisedFence;
pub(super) use writes::{Decision, Put};

/// What is to be done before a read is answered.
#[derive(Debug)]
pub(super) enum ReadVerdict {
    /// Nothing.
    Plain,
    /// Its key's fence rises, or has no room to.
    Fenced(RaisedFence),
    /// The record that it embeds is stored, if it is newer.
    Embedded,
}

/// What becomes of a hot key.
#[derive(Debug)]
pub(super) enum Offering {
    /// It is offered already, but the controller doesn't know how hot it is by now.
    Hotter(Offer),
    /// It is offered already.
    Known,
    /// There is no room for another offer.
    Refused,
    /// It is offered once this mark is durable.
    ToSave(Mark),
}

/// What is to be stored of an effect, beside its record.
#[derive(Debug)]
pub(super) struct Merged {
    /// The mark, if it is part of the effect; `None` inside: clear.
    pub(super) mark: Option<Option<Mark>>,
    /// Completions that are newer than those that are known.
    pub(super) completions: Vec<LaneCompletion>,
}

/// What a node knows to decide requests by.
#[derive(Debug)]
pub(super) struct Decider {
    mechanisms: Mechanisms,
    marks: Marks,
    rising: RisingFloors,
    /// Where the last look for fences that floors stand for ended.
    swept: KeyHash,
    completions: BTreeMap<u32, LaneCompletion>,
    /// Conditional writes in the engine, by lane and request: a duplicate must not be decided again
    /// meanwhile.
    deciding: BTreeSet<(u32, u64)>,
    /// No commit has succeeded since one failed: a crash may bring to light what that one wrote.
    commit_failed: bool,
    chains: ByChain<Numbers>,
}

/// What is known of the sequence numbers of a chain.
#[derive(Debug, Default)]
struct Numbers {
    /// Highest number that was handed to the engine, by bucket; a higher one needs no read to be
    /// known as newer.
    newest: Vec<Seq>,
    /// In a bypass epoch.
    arbiter: Option<Arbiter>,
}

impl Decider {
    /// Knows what the engine found, and with which epoch and configuration the node served each
    /// chain that it knew, if it did.
    pub(super) fn new(
        loaded: Loaded,
        served: ByChain<Option<(u32, &NodeConfig)>>,
        marks_max: usize,
        boot: u64,
        mechanisms: Mechanisms,
        now: Now,
    ) -> Decider {
        // After a restart the highest stored number isn't known, unless the engine is empty.
        let known = if loaded.state.is_none() { Seq::NONE } else { Seq(u64::MAX) };
        let mut marks = if mechanisms.durable_offer() { loaded.marks } else { Vec::new() };
        if !mechanisms.durable_fence() {
            marks.iter_mut().for_each(|(_, _, mark)| mark.fence = Seq::NONE);
        }
        let marks = Marks::new(marks, marks_max, boot, mechanisms);
        let mut rising = RisingFloors::new(loaded.floors, now);
        for (hash, fence) in marks.fences() {
            rising.note(hash, fence);
        }
        Decider {
            mechanisms,
            marks,
            rising,
            swept: KeyHash([0; 16]),
            completions: loaded.completions.into_iter().map(|done| (done.lane, done)).collect(),
            deciding: BTreeSet::new(),
            commit_failed: false,
            chains: served.map(|_, served| Numbers {
                newest: vec![known; SEQ_BUCKETS],
                arbiter: served.and_then(|(epoch, config)| Arbiter::of(epoch, config)),
            }),
        }
    }

    /// A new epoch of a chain begins. Everything stored of its partitions is of an older one, so
    /// every write of the new one is newer than all of it.
    pub(super) fn begin_epoch(&mut self, chain: ChainId, epoch: u32, config: &NodeConfig) {
        self.rising.set_served(ChainMap::from(&config.map));
        let numbers = self.chains.known(chain, |_| Numbers::default());
        numbers.newest = vec![Seq::new(epoch, 0); SEQ_BUCKETS];
        numbers.arbiter = Arbiter::of(epoch, config);
    }

    /// The engine has committed something, or failed to.
    pub(super) fn committed(&mut self, has_failed: bool) {
        self.commit_failed = has_failed;
    }

    /// Which chain serves each key.
    pub(super) fn served(&self) -> &ChainMap {
        self.rising.served()
    }

    /// The chain that serves a key, as far as the node knows the rack's partitions.
    #[inline]
    pub(super) fn chain_of(&self, hash: &KeyHash) -> ChainId {
        self.rising.chain_of(hash)
    }

    /// Whether the chain of a key is in a bypass epoch, in which writes come without a number.
    pub(super) fn arbitrates(&self, hash: &KeyHash) -> bool {
        self.chains.get(self.chain_of(hash)).is_some_and(|numbers| numbers.arbiter.is_some())
    }

    /// Whether half of the sequence numbers of a chain's bypass epoch are used.
    pub(super) fn is_half_used(&self, chain: ChainId) -> bool {
        let arbiter = self.chains.get(chain).and_then(|numbers| numbers.arbiter.as_ref());
        arbiter.is_some_and(Arbiter::is_half_used)
    }

    fn arbiter_of(&mut self, header: &Header) -> Option<&mut Arbiter> {
        let chain = self.chain_of(&header.key_hash);
        self.chains.get_mut(chain)?.arbiter.as_mut()
    }

    /// Arbitrates a write that came from a client directly.
    pub(super) fn arbitrate(&mut self, header: &Header) -> Arbitration {
        let remembers = self.mechanisms.bypass_lanes();
        self.arbiter_of(header).expect("a bypass epoch has an arbiter").arbitrate(header, remembers)
    }

    /// A write is answered with this number. The number that names it in the answer.
    pub(super) fn answered(
        &mut self,
        header: &Header,
        status: switchback_wire::Status,
        told: Seq,
    ) -> Seq {
        match self.arbiter_of(header) {
            Some(arbiter) => {
                arbiter.answered(header, status, told);
                told
            }
            None => header.seq,
        }
    }

    /// Nothing came of a write: its next copy is another try.
    pub(super) fn nothing_came(&mut self, header: &Header) {
        if let Some(arbiter) = self.arbiter_of(header) {
            arbiter.failed(header);
        }
    }

    /// A write can't run under its number. Whether this node arbitrates, so that nothing goes back
    /// to a switch.
    pub(super) fn bounced(&mut self, header: &Header) -> bool {
        match self.arbiter_of(header) {
            Some(arbiter) => {
                arbiter.bounced(header);
                true
            }
            None => false,
        }
    }

    /// A read arrives: fences and embedded records come before its answer.
    pub(super) fn read(&mut self, header: &Header, key: &[u8]) -> ReadVerdict {
        let hash = &header.key_hash;
        if header.has(flags::FENCED) && self.mechanisms.fence() {
            let fence = Seq(header.guard);
            self.rising.note(hash, fence);
            return ReadVerdict::Fenced(self.marks.raise_fence(hash, key, fence));
        }
        let embeds = header.has(flags::EMBEDDED) && self.mechanisms.embedding_store();
        if embeds && self.may_come_from_cache(hash, header.seq) {
            return ReadVerdict::Embedded;
        }
        ReadVerdict::Plain
    }

    /// This fence of a key is durable.
    pub(super) fn fence_saved(&mut self, hash: &KeyHash, fence: Seq) {
        self.marks.fence_saved(hash, fence);
    }

    /// Whether a record out of the cache may be new to this node.
    pub(super) fn may_come_from_cache(&self, hash: &KeyHash, seq: Seq) -> bool {
        let marked = self.marks.get(hash).filter(|marked| marked.mark.is_offered());
        let is_new = marked.is_some_and(|marked| seq > marked.mark.floor);
        is_new || !self.mechanisms.offered_stores()
    }

    /// How a record of the cache is stored: iff it is newer.
    pub(super) fn take_from_cache(&mut self, hash: &KeyHash, record: Record) -> Put {
        // Later writes of the bucket must not be taken for newer than this one unread.
        let newest = self.newest_of(hash);
        *newest = (*newest).max(record.seq);
        if record.tombstone || record.expiry_ms != 0 {
            self.rising.note(hash, record.seq);
        }
        let condition = PutCondition::Newer { known: !self.mechanisms.seq_compare() };
        let record = Record { since: Record::INHERITED, ..record };
        Put { record, condition, completion: None, may_be_older: false }
    }

    /// Takes in what another replica has: it is newer, or known.
    pub(super) fn merge(&mut self, effect: &Effect) -> Merged {
        let Effect { hash, key, .. } = effect;
        if let Some(record) = &effect.record {
            let newest = self.newest_of(hash);
            *newest = (*newest).max(record.seq);
            if record.tombstone || record.expiry_ms != 0 {
                self.rising.note(hash, record.seq);
            }
        }
        let mark = effect.mark.filter(|_| self.mechanisms.marks_replicated()).map(|mark| {
            if mark.fence > Seq::NONE {
                self.rising.note(hash, mark.fence);
            }
            self.marks.merge(hash, key, mark)
        });
        let mut completions = effect.completions.clone();
        completions.retain(|done| self.is_news(done));
        Merged { mark, completions }
    }

    fn is_news(&self, done: &LaneCompletion) -> bool {
        let known = self.completions.get(&done.lane);
        known.is_none_or(|known| known.request < done.request)
            && self.mechanisms.completions_replicated()
    }

    /// What was merged is durable, or couldn't be made so; at the tail, if the node `is_last`.
    pub(super) fn merged(
        &mut self,
        hash: &KeyHash,
        merged: &Merged,
        is_saved: bool,
        is_last: bool,
    ) {
        if let Some(mark) = &merged.mark {
            self.marks.merged(hash, &mark.unwrap_or_default(), is_saved, is_last);
        }
        for done in merged.completions.iter().filter(|_| is_saved) {
            if self.is_news(done) {
                self.completions.insert(done.lane, *done);
            }
        }
    }

    /// Not all replicas may have a key's mark.
    pub(super) fn mark_unconfirmed(&mut self, hash: &KeyHash) {
        self.marks.unconfirmed(hash);
    }

    /// All replicas have a key's mark.
    pub(super) fn mark_confirmed(&mut self, hash: &KeyHash) {
        self.marks.confirmed(hash);
    }

    /// A key's offer that isn't known to be at all replicas, and the length of its value.
    pub(super) fn unconfirmed_offer(&self, hash: &KeyHash) -> Option<(OfferId, u32)> {
        let marked = self.marks.get(hash).filter(|marked| !marked.durable)?;
        marked.mark.is_offered().then_some((marked.mark.offer, marked.value_bytes))
    }

    /// What a key is marked with.
    pub(super) fn mark_of(&self, hash: &KeyHash) -> Mark {
        self.marks.get(hash).map(|marked| marked.mark).unwrap_or_default()
    }

    /// The completions of these requests of these lanes. A lane that has gone on gives none: its
    /// last one is of another write, which may be of another key, whose record it must not precede.
    pub(super) fn completions_of(&self, lanes: &Lanes) -> Vec<LaneCompletion> {
        let of_request = |(lane, request): &(u32, u64)| {
            self.completions.get(lane).filter(|done| done.request == *request).copied()
        };
        lanes.iter().filter_map(of_request).collect()
    }

    /// Nothing of a range is stored any more, nor completions of these lanes up to these requests.
    pub(super) fn empty(&mut self, range: &KeyRange, lanes: &Lanes) {
        self.marks.forget(range);
        for (lane, request) in lanes {
            if self.completions.get(lane).is_some_and(|done| done.request <= *request) {
                self.completions.remove(lane);
            }
        }
    }

    /// Keys of a range that are marked as offered or fenced, in order, and their marks.
    pub(super) fn marks_in(&self, range: &KeyRange) -> impl Iterator<Item = (&KeyHash, &[u8])> {
        self.marks.within(range).map(|(hash, marked)| (hash, &marked.key[..]))
    }

    /// Completions from a lane on, at most this many, and the lane to go on from; without those
    /// that are `unconfirmed`.
    pub(super) fn completions_from(
        &self,
        lane: u32,
        limit: usize,
        unconfirmed: &BTreeMap<u32, u64>,
    ) -> (Vec<LaneCompletion>, Option<u32>) {
        let mut from = self.completions.range(lane..);
        let taken: Vec<_> = from.by_ref().take(limit).map(|(_, done)| *done).collect();
        let is_known = |done: &LaneCompletion| {
            unconfirmed.get(&done.lane).is_none_or(|request| done.request > *request)
        };
        (taken.into_iter().filter(is_known).collect(), from.next().map(|(lane, _)| *lane))
    }

    /// The floors of a chain's buckets.
    pub(super) fn floors_of(&self, chain: ChainId) -> Vec<(u16, Seq)> {
        self.rising.of_chain(chain)
    }

    /// Takes over these floors, as far as they are higher, but for those of buckets with something
    /// `unconfirmed`, which are left: what is to be saved.
    pub(super) fn take_floors(
        &mut self,
        chain: ChainId,
        floors: &mut Vec<(u16, Seq)>,
        unconfirmed: &BTreeSet<KeyHash>,
    ) -> Vec<(Bucket, Seq)> {
        let kept: BTreeSet<_> =
            unconfirmed.iter().map(|hash| self.rising.bucket_of(hash)).collect();
        self.rising.take(chain, floors, &kept)
    }

    /// Whether all floors are on the disk.
    pub(super) fn are_floors_saved(&self) -> bool {
        self.rising.is_saved()
    }

    /// Keys that are marked as offered.
    pub(super) fn all_offered(&self) -> impl Iterator<Item = &KeyHash> {
        self.marks.offered_between(0, u64::MAX).map(|(hash, _)| hash)
    }

    fn newest_of(&mut self, hash: &KeyHash) -> &mut Seq {
        let Bucket { chain, number } = self.rising.bucket_of(hash);
        &mut self.chains[chain].newest[usize::from(number)]
    }

    /// How many keys are marked as offered.
    pub(super) fn offered(&self) -> usize {
        self.marks.offered()
    }

    /// Whether a key is marked as offered.
    pub(super) fn is_offered(&self, hash: &KeyHash) -> bool {
        self.marks.is_offered(hash)
    }

    /// A key that is marked as offered or fenced.
    pub(super) fn marked_key(&self, hash: &KeyHash) -> Option<&[u8]> {
        self.marks.get(hash).map(|marked| &marked.key[..])
    }

    /// Keys marked as offered whose position is in `from..=to`, in order; a scan can't tell their
    /// values.
    pub(super) fn offered_between(
        &self,
        from: u64,
        to: u64,
    ) -> impl Iterator<Item = (&KeyHash, &[u8])> {
        let offered =
            self.marks.offered_between(from, to).filter(|_| self.mechanisms.marked_scans());
        offered.map(|(hash, marked)| (hash, &marked.key[..]))
    }

    /// Offers a hot key to the cache, once. `count`: how often the switch has counted it, or
    /// [`Offer::NAMED`].
    pub(super) fn offer(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        value_bytes: u32,
        count: u32,
    ) -> Offering {
        if self.marks.is_offered(hash) {
            let is_news = self.marks.counted(hash, count);
            let marked = self.marks.get(hash).filter(|_| is_news);
            return marked.map_or(Offering::Known, |marked| Offering::Hotter(marked.offer(hash)));
        }
        let floor = self.rising.of(hash);
        let mark = self.marks.offer(hash, key, value_bytes, count, floor);
        mark.map_or(Offering::Refused, Offering::ToSave)
    }

    /// The mark of an offer could not be made durable: there was no offer.
    pub(super) fn offer_failed(&mut self, hash: &KeyHash, offer: OfferId) {
        self.marks.clear_offer(hash, offer);
    }

    /// The mark of an offer is durable: the offer, if it is still to be sent now.
    pub(super) fn offer_saved(
        &mut self,
        hash: KeyHash,
        offer: OfferId,
        value_bytes: u32,
        is_held: bool,
    ) -> Option<Offer> {
        let marked = self.marks.get_mut(&hash).filter(|marked| marked.mark.offer == offer)?;
        marked.durable = true;
        if is_held {
            return None; // the release offers everything
        }
        marked.value_bytes = value_bytes;
        let offer = marked.offer(&hash);
        self.marks.to_offer.push_back(hash);
        Some(offer)
    }

    /// The offers of a chain's keys that the controller hasn't confirmed, of those whose
    /// partition the node heads.
    pub(super) fn open_offers(
        &mut self,
        chain: ChainId,
        is_headed: impl Fn(&KeyHash) -> bool,
    ) -> Vec<Offer> {
        let mut offers = Vec::new();
        let mut again = Vec::new();
        while let Some(hash) = self.marks.to_offer.pop_front() {
            if self.chain_of(&hash) != chain {
                again.push(hash);
                continue;
            }
            let Some(marked) = self.marks.get(&hash) else { continue };
            if !marked.mark.is_offered() || marked.known || !marked.durable {
                continue;
            }
            if is_headed(&hash) {
                offers.push(marked.offer(&hash));
                again.push(hash);
            }
        }
        self.marks.to_offer.extend(again);
        offers
    }

    /// The controller may have forgotten every offer of a chain's keys.
    pub(super) fn offer_all_again(&mut self, chain: ChainId) {
        let rising = &self.rising;
        self.marks.offer_all_again(|hash| rising.chain_of(hash) == chain);
    }

    /// The controller knows this offer.
    pub(super) fn hold_offer(&mut self, hash: &KeyHash, offer: OfferId) {
        self.marks.hold(hash, offer);
    }

    /// Clears an offer, if it is this one. The key and the mark that remains to be stored (`None`
    /// inside: nothing remains).
    pub(super) fn clear_offer(
        &mut self,
        hash: &KeyHash,
        offer: OfferId,
    ) -> Option<(Vec<u8>, Option<Mark>)> {
        self.marks.clear_offer(hash, offer)
    }

    /// The end of a chain's recovery: nothing up to this floor can arrive at all. Whether the floor
    /// rises, and is to be saved.
    pub(super) fn raise_base(&mut self, chain: ChainId, floor: Seq) -> bool {
        self.rising.raise_base(chain, floor)
    }

    /// Drops fences that saved floors stand for, and raises floors that are due. The keys whose
    /// marks are to be cleared, and what is to be saved. What is `unconfirmed` keeps its fence, and
    /// its bucket's floor.
    pub(super) fn raise_floors(
        &mut self,
        now: Now,
        period_us: u64,
        unconfirmed: &BTreeSet<KeyHash>,
    ) -> (Vec<(KeyHash, Vec<u8>)>, FloorsToSave) {
        // A floor that rises early makes late copies of writes end as indeterminate; but without it
        // the number of fences would have no limit.
        let is_early = self.marks.is_crowded() && self.rising.is_saved();
        let gone = match self.rising.is_saved() {
            true => {
                let batch = if is_early { SWEEP_BATCH_CROWDED } else { SWEEP_BATCH };
                self.sweep_fences(batch, unconfirmed)
            }
            false => Vec::new(),
        };
        let kept = unconfirmed.iter().map(|hash| self.rising.bucket_of(hash)).collect();
        (gone, self.rising.raise(now, period_us, is_early, &kept))
    }

    fn sweep_fences(
        &mut self,
        batch: usize,
        unconfirmed: &BTreeSet<KeyHash>,
    ) -> Vec<(KeyHash, Vec<u8>)> {
        let rising = &self.rising;
        let covered =
            |hash: &KeyHash, fence: Seq| fence <= rising.of(hash) && !unconfirmed.contains(hash);
        let (gone, next) = self.marks.drop_fences(self.swept, batch, covered);
        self.swept = next;
        gone
    }

    /// The floor of all keys of a chain is on the disk, or is to be written again.
    pub(super) fn base_saved(&mut self, chain: ChainId, is_saved: bool) {
        self.rising.base_saved(chain, is_saved);
    }

    /// Floors of buckets are on the disk, or are to be written again.
    pub(super) fn floors_saved(&mut self, floors: Vec<(Bucket, Seq)>, is_saved: bool) {
        self.rising.saved(floors, is_saved);
    }
}
