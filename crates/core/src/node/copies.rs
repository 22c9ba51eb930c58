//! Copies of records in caches that answer reads by themselves (DistCache; rule 30).
//!
//! A key has up to one copy in each layer. A copy is *invalid*, and answers nothing, if it is new,
//! or has acknowledged an INVALIDATE, and was sent no version since. A write is applied only while
//! all copies of its key are invalid; others that come meanwhile are applied with it. Once none is
//! under way each copy is sent what is stored, and counts as valid. That is what the last write has
//! stored, if it succeeded; else it is read.
//!
//! What a copy was sent is repeated until it is acknowledged. An acknowledgement counts if it names
//! what was sent last.

use super::replica::Write;
use crate::control::EntryId;
use crate::mechanisms::Mechanisms;
use std::collections::BTreeMap;
use switchback_wire::{Address, Header, KeyHash, LAYERS_MAX, Op, Seq};

/// Writes of a key that wait for its copies at most; their clients send further ones again.
const WAITING_MAX: usize = 256;

/// One copy of a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct CopyId {
    /// The switch that has it.
    pub(super) switch: Address,
    /// Its incarnation.
    pub(super) entry: EntryId,
}

/// What a copy may answer, as far as the node knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CopyState {
    /// Nothing.
    Invalid,
    /// It was sent INVALIDATE for the write of this number, and may answer until it says so.
    Invalidating(Seq),
    /// It was sent this version; `false`: it hasn't acknowledged that.
    Valid(Seq, bool),
}

impl CopyState {
    /// Whether the copy has no version, or may not have got it.
    fn needs_value(&self) -> bool {
        matches!(self, CopyState::Invalid | CopyState::Valid(_, false))
    }
}

/// The copies of a key.
#[derive(Debug, Default)]
struct Copied {
    key: Vec<u8>,
    copies: BTreeMap<CopyId, CopyState>,
    /// Writes that wait until all copies are invalid.
    waiting: Vec<Write>,
    /// Writes that the engine has, also those that it was given before the key had copies.
    under_way: usize,
    /// A number that changes when the key gets its first copy, and when the engine is given a
    /// write.
    given: u64,
    /// The number of the last write that the engine was given since.
    last_given: Seq,
    /// What is stored is being read. It is read once at a time, so that repetitions don't add reads
    /// to an engine that is slow.
    is_reading: bool,
}

impl Copied {
    fn is_invalid(&self) -> bool {
        self.copies.values().all(|state| *state == CopyState::Invalid)
    }

    /// Takes out the writes that wait no longer.
    fn released(&mut self) -> Vec<Write> {
        if self.is_invalid() { std::mem::take(&mut self.waiting) } else { Vec::new() }
    }
}

/// What a copy is to be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Invalidation {
    pub(super) copy: CopyId,
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    /// Of the write.
    pub(super) seq: Seq,
}

/// What is stored of a key is to be sent to its copies; a moment in which no write was under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Refill {
    pub(super) hash: KeyHash,
    pub(super) key: Vec<u8>,
    /// That of the key then.
    given: u64,
}

/// All copies of a node's keys.
#[derive(Debug)]
pub(super) struct Copies {
    mechanisms: Mechanisms,
    keys: BTreeMap<KeyHash, Copied>,
    invalidations: Vec<Invalidation>,
    refills: Vec<Refill>,
    /// The last number of [`Copied::given`] of any key.
    given: u64,
}

impl Copies {
    pub(super) fn new(mechanisms: Mechanisms) -> Copies {
        let (keys, invalidations, refills) = Default::default();
        Copies { mechanisms, keys, invalidations, refills, given: 0 }
    }

    /// A switch has admitted a key: the copy is empty. Of more than there are layers none is
    /// filled. `under_way` says how many writes of the key the engine has.
    pub(super) fn register(
        &mut self,
        hash: KeyHash,
        key: Vec<u8>,
        copy: CopyId,
        under_way: impl FnOnce() -> usize,
    ) {
        let copied = self.keys.entry(hash).or_insert_with(|| {
            self.given += 1;
            let counts = self.mechanisms.earlier_writes_count();
            let under_way = if counts { under_way() } else { 0 };
            Copied { under_way, given: self.given, ..Copied::default() }
        });
        copied.key = key;
        if copied.copies.len() < usize::from(LAYERS_MAX) {
            copied.copies.entry(copy).or_insert(CopyState::Invalid);
        }
        self.refill(&hash);
    }

    /// All copies of a key are gone. The writes that waited.
    pub(super) fn unregister(&mut self, hash: &KeyHash) -> Vec<Write> {
        self.keys.remove(hash).map_or(Vec::new(), |copied| copied.waiting)
    }

    /// Whether an answer is about a copy, and comes from its switch.
    pub(super) fn is_at(&self, from: Address, header: &Header) -> bool {
        let copy = CopyId { switch: from, entry: header.request };
        matches!(header.op, Op::InvalidateAck | Op::CacheUpdateAck)
            && self.keys.get(&header.key_hash).is_some_and(|it| it.copies.contains_key(&copy))
    }

    /// A write is to be given to the engine; `None`: it waits, or is dropped, since there is no
    /// room or it waits already.
    pub(super) fn admits(&mut self, write: Write) -> Option<Write> {
        let header = &write.request.header;
        let (hash, seq) = (header.key_hash, header.seq);
        let Some(copied) = self.keys.get_mut(&hash) else { return Some(write) };
        // One that isn't newer than what a copy was sent changes nothing that is stored.
        let is_old = |state: &CopyState| matches!(state, CopyState::Valid(sent, _) if seq <= *sent);
        let is_invalid = copied.is_invalid() || !self.mechanisms.invalidated_first();
        if is_invalid || copied.copies.values().any(is_old) {
            return Some(write);
        }
        let waits = copied.waiting.iter().any(|other| other.request.header.seq == seq);
        if waits || copied.waiting.len() >= WAITING_MAX {
            return None;
        }
        copied.waiting.push(write);
        for (copy, state) in &mut copied.copies {
            // An INVALIDATE that is under way counts for all that wait.
            if let CopyState::Valid(..) = state {
                *state = CopyState::Invalidating(seq);
                let (copy, key) = (*copy, copied.key.clone());
                self.invalidations.push(Invalidation { copy, hash, key, seq });
            }
        }
        None
    }

    /// A switch has acknowledged an INVALIDATE. Writes that needn't wait any more.
    pub(super) fn invalidated(&mut self, hash: &KeyHash, copy: CopyId, seq: Seq) -> Vec<Write> {
        let Some(copied) = self.keys.get_mut(hash) else { return Vec::new() };
        match copied.copies.get_mut(&copy) {
            Some(state) if *state == CopyState::Invalidating(seq) => *state = CopyState::Invalid,
            _ => return Vec::new(),
        }
        copied.released()
    }

    /// The engine was given a write.
    pub(super) fn begun(&mut self, header: &Header) {
        if let Some(copied) = self.keys.get_mut(&header.key_hash) {
            self.given += 1;
            copied.under_way += 1;
            copied.given = self.given;
            copied.last_given = header.seq;
        }
    }

    /// The engine is done with that write. `has_record`: it has stored it, and the caller has its
    /// record. If a refill comes back, that record is what the copies are to be filled with.
    pub(super) fn ended(&mut self, header: &Header, has_record: bool) -> Option<Refill> {
        let copied = self.keys.get_mut(&header.key_hash)?;
        copied.under_way = copied.under_way.saturating_sub(1);
        // The engine executes writes in the order in which it is given them.
        let is_stored = has_record && copied.last_given == header.seq;
        let refill = self.needed(&header.key_hash)?;
        if is_stored {
            return Some(refill);
        }
        self.refill(&header.key_hash);
        None
    }

    /// Asks for what is stored, if a copy needs it and it isn't being read already.
    fn refill(&mut self, hash: &KeyHash) {
        let Some(refill) = self.needed(hash) else { return };
        let copied = self.keys.get_mut(hash).filter(|copied| !copied.is_reading);
        if let Some(copied) = copied {
            copied.is_reading = true;
            self.refills.push(refill);
        }
    }

    /// What is stored has been read, or could not be.
    pub(super) fn was_read(&mut self, hash: &KeyHash) {
        if let Some(copied) = self.keys.get_mut(hash) {
            copied.is_reading = false;
        }
    }

    /// What a key's copies need, if one does and no write is under way: after the last one they are
    /// filled.
    fn needed(&self, hash: &KeyHash) -> Option<Refill> {
        let copied = self.keys.get(hash)?;
        let is_needed = copied.copies.values().any(CopyState::needs_value)
            && copied.under_way == 0
            && copied.waiting.is_empty();
        is_needed.then(|| Refill { hash: *hash, key: copied.key.clone(), given: copied.given })
    }

    /// Whether a key has copies.
    pub(super) fn are_of(&self, hash: &KeyHash) -> bool {
        self.keys.contains_key(hash)
    }

    /// What is stored is known: the copies that are to be sent it. None, if a write has begun
    /// since, or waits.
    pub(super) fn refilled(&mut self, refill: &Refill, seq: Seq) -> Vec<CopyId> {
        let Some(copied) = self.keys.get_mut(&refill.hash) else { return Vec::new() };
        let is_quiet = copied.given == refill.given && copied.waiting.is_empty();
        if !is_quiet && self.mechanisms.fill_when_quiet() {
            self.refill(&refill.hash);
            return Vec::new();
        }
        let is_valid = self.mechanisms.sent_is_valid();
        let needy = copied.copies.iter_mut().filter(|(_, state)| state.needs_value());
        needy
            .map(|(copy, state)| {
                *state = if is_valid { CopyState::Valid(seq, false) } else { CopyState::Invalid };
                *copy
            })
            .collect()
    }

    /// A switch has acknowledged the version that a copy was sent.
    pub(super) fn updated(&mut self, hash: &KeyHash, copy: CopyId, seq: Seq) {
        let state = self.keys.get_mut(hash).and_then(|copied| copied.copies.get_mut(&copy));
        if let Some(state) = state.filter(|state| **state == CopyState::Valid(seq, false)) {
            *state = CopyState::Valid(seq, true);
        }
    }

    /// Takes the next INVALIDATE to send.
    pub(super) fn next_invalidation(&mut self) -> Option<Invalidation> {
        self.invalidations.pop()
    }

    /// Takes the next key to read for its copies.
    pub(super) fn next_refill(&mut self) -> Option<Refill> {
        self.refills.pop()
    }

    /// Asks again for what wasn't acknowledged: INVALIDATEs, and what is stored for copies that may
    /// not have got it.
    pub(super) fn repeat(&mut self) {
        for (hash, copied) in &self.keys {
            for (copy, state) in &copied.copies {
                if let CopyState::Invalidating(seq) = state {
                    let (copy, hash, key, seq) = (*copy, *hash, copied.key.clone(), *seq);
                    self.invalidations.push(Invalidation { copy, hash, key, seq });
                }
            }
        }
        let hashes: Vec<_> = self.keys.keys().copied().collect();
        hashes.iter().for_each(|hash| self.refill(hash));
    }

    /// The caches are empty, and hold none of these keys any more.
    pub(super) fn forget(&mut self, is_of: impl Fn(&KeyHash) -> bool) {
        self.keys.retain(|hash, _| !is_of(hash));
        self.invalidations.retain(|it| !is_of(&it.hash));
        self.refills.retain(|it| !is_of(&it.hash));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::replica::Request;

    const HASH: KeyHash = KeyHash([7; 16]);

    fn copy(entry: EntryId) -> CopyId {
        CopyId { switch: Address::default(), entry }
    }

    fn write(seq: u64) -> Write {
        let header = Header { key_hash: HASH, seq: Seq(seq), ..Header::new(Op::Write) };
        let request = Request { header, key: b"key".to_vec(), switch: Address::default() };
        Write { request, value: Vec::new(), is_staged: false }
    }

    fn seqs(writes: &[Write]) -> Vec<u64> {
        writes.iter().map(|write| write.request.header.seq.0).collect()
    }

    /// A key with copies of these incarnations.
    fn with(entries: &[EntryId]) -> Copies {
        let mut copies = Copies::new(Mechanisms::ALL);
        entries.iter().for_each(|entry| copies.register(HASH, b"key".to_vec(), copy(*entry), || 0));
        copies
    }

    /// What is stored is read, and sent to whichever copies need it.
    fn fill(copies: &mut Copies, seq: u64) -> Vec<EntryId> {
        let refill = std::iter::from_fn(|| copies.next_refill()).last().unwrap();
        copies.was_read(&HASH);
        copies.refilled(&refill, Seq(seq)).into_iter().map(|copy| copy.entry).collect()
    }

    /// The engine stores a write.
    fn run(copies: &mut Copies, write: &Write) {
        copies.begun(&write.request.header);
        assert_eq!(copies.ended(&write.request.header, false), None);
    }

    /// Incarnations that are to be invalidated, and for which write.
    fn invalidations(copies: &mut Copies) -> Vec<(EntryId, u64)> {
        let next = std::iter::from_fn(|| copies.next_invalidation());
        let mut all: Vec<_> = next.map(|it| (it.copy.entry, it.seq.0)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_write_waits_until_every_copy_is_invalid() {
        let mut copies = with(&[1, 2]);
        assert_eq!(fill(&mut copies, 5), [1, 2]);
        assert!(copies.admits(write(6)).is_none());
        assert_eq!(invalidations(&mut copies), [(1, 6), (2, 6)]);
        assert!(copies.invalidated(&HASH, copy(1), Seq(6)).is_empty());
        assert!(copies.invalidated(&HASH, copy(2), Seq(5)).is_empty(), "of a write before");
        assert_eq!(seqs(&copies.invalidated(&HASH, copy(2), Seq(6))), [6]);
    }

    #[test]
    fn writes_that_come_meanwhile_run_with_it() {
        let mut copies = with(&[1]);
        fill(&mut copies, 5);
        assert!(copies.admits(write(6)).is_none());
        assert!(copies.admits(write(7)).is_none());
        assert!(copies.admits(write(7)).is_none(), "it waits already");
        assert_eq!(invalidations(&mut copies), [(1, 6)], "one is enough");
        let released = copies.invalidated(&HASH, copy(1), Seq(6));
        assert_eq!(seqs(&released), [6, 7]);
        copies.begun(&released[0].request.header);
        assert!(copies.admits(write(8)).is_some(), "the copy is invalid still");
    }

    #[test]
    fn a_copy_is_filled_once_no_write_is_under_way() {
        let mut copies = with(&[1]);
        let early = copies.next_refill().unwrap();
        let (first, second) = (write(6), write(7));
        copies.begun(&first.request.header);
        copies.begun(&second.request.header);
        copies.was_read(&HASH);
        assert!(copies.refilled(&early, Seq(5)).is_empty(), "a write has begun since");
        assert_eq!(copies.ended(&first.request.header, true), None);
        assert!(copies.next_refill().is_none());
        assert_eq!(copies.ended(&second.request.header, false), None);
        assert_eq!(fill(&mut copies, 7), [1]);
    }

    #[test]
    fn a_write_that_began_before_the_copies_does_not_end_another() {
        let mut copies = Copies::new(Mechanisms::ALL);
        let (before, after) = (write(6), write(7));
        copies.begun(&before.request.header);
        copies.register(HASH, b"key".to_vec(), copy(1), || 1);
        assert!(copies.next_refill().is_none(), "a write is under way");
        copies.begun(&after.request.header);
        assert_eq!(copies.ended(&before.request.header, true), None);
        assert!(copies.next_refill().is_none(), "the other one still is");
        assert!(copies.ended(&after.request.header, true).is_some());
    }

    #[test]
    fn what_was_read_for_copies_that_are_gone_fills_no_others() {
        let mut copies = with(&[1]);
        let refill = copies.next_refill().unwrap();
        copies.unregister(&HASH);
        copies.begun(&write(6).request.header);
        copies.register(HASH, b"key".to_vec(), copy(2), || 1);
        assert!(copies.refilled(&refill, Seq(5)).is_empty());
    }

    #[test]
    fn what_is_stored_is_read_once_at_a_time() {
        let mut copies = with(&[1]);
        let refill = copies.next_refill().unwrap();
        copies.repeat();
        assert!(copies.next_refill().is_none(), "it is being read");
        run(&mut copies, &write(6));
        assert!(copies.next_refill().is_none());
        copies.was_read(&HASH);
        assert!(copies.refilled(&refill, Seq(5)).is_empty(), "that was before the write");
        assert_eq!(fill(&mut copies, 6), [1]);
        copies.repeat();
        assert_eq!(fill(&mut copies, 6), [1], "it may not have come");
    }

    #[test]
    fn what_the_last_write_has_stored_is_not_read() {
        let mut copies = with(&[1]);
        fill(&mut copies, 5);
        let (first, second) = (write(6), write(7));
        copies.admits(write(6));
        copies.invalidated(&HASH, copy(1), Seq(6));
        copies.begun(&first.request.header);
        let refill = copies.ended(&first.request.header, true).expect("the copy is invalid");
        assert!(copies.next_refill().is_none());
        assert_eq!(copies.refilled(&refill, Seq(6)), [copy(1)]);
        assert!(copies.admits(write(7)).is_none());
        copies.invalidated(&HASH, copy(1), Seq(7));
        copies.begun(&second.request.header);
        copies.begun(&first.request.header);
        assert_eq!(copies.ended(&second.request.header, true), None);
        assert_eq!(copies.ended(&first.request.header, false), None, "it was older");
        assert_eq!(fill(&mut copies, 7), [1]);
    }

    #[test]
    fn a_write_that_changes_nothing_invalidates_no_copy() {
        let mut copies = with(&[1]);
        fill(&mut copies, 5);
        assert!(copies.admits(write(5)).is_some());
        assert!(copies.admits(write(4)).is_some());
        assert!(invalidations(&mut copies).is_empty());
    }

    #[test]
    fn a_new_copy_is_invalid_and_those_that_are_gone_hold_nothing_up() {
        let mut copies = with(&[1]);
        fill(&mut copies, 5);
        assert!(copies.admits(write(6)).is_none());
        copies.register(HASH, b"key".to_vec(), copy(2), || 0);
        assert_eq!(invalidations(&mut copies), [(1, 6)]);
        assert_eq!(seqs(&copies.invalidated(&HASH, copy(1), Seq(6))), [6]);
        run(&mut copies, &write(6));
        assert_eq!(fill(&mut copies, 6), [1, 2]);
        assert!(copies.admits(write(7)).is_none());
        assert_eq!(seqs(&copies.unregister(&HASH)), [7]);
        assert!(copies.admits(write(7)).is_some(), "no copy is left");
    }

    #[test]
    fn what_is_not_acknowledged_is_told_again() {
        let mut copies = with(&[1, 2]);
        fill(&mut copies, 5);
        copies.updated(&HASH, copy(1), Seq(5));
        copies.updated(&HASH, copy(2), Seq(4));
        copies.repeat();
        assert_eq!(fill(&mut copies, 5), [2], "the other one has it");
        copies.updated(&HASH, copy(2), Seq(5));
        copies.repeat();
        assert!(copies.next_refill().is_none());
        assert!(copies.admits(write(6)).is_none());
        invalidations(&mut copies);
        copies.repeat();
        assert_eq!(invalidations(&mut copies), [(1, 6), (2, 6)]);
    }

    #[test]
    fn the_writes_of_a_key_that_wait_are_limited() {
        let mut copies = with(&[1]);
        fill(&mut copies, 5);
        for seq in 0..2 * WAITING_MAX as u64 {
            assert!(copies.admits(write(6 + seq)).is_none());
        }
        assert_eq!(copies.invalidated(&HASH, copy(1), Seq(6)).len(), WAITING_MAX);
    }
}
