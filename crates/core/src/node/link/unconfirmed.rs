//! Which keys are unconfirmed, and with which frame they are confirmed.

use crate::storage::{LaneCompletion, Lanes};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::KeyHash;

/// A lane's completion.
#[derive(Clone, Copy, Debug, Default)]
struct Completed {
    request: u64,
    /// The frame of the round that brings it.
    number: Option<u64>,
}

#[derive(Debug, Default)]
struct Entry {
    key: Vec<u8>,
    /// Lanes with a completion that is unconfirmed, of writes to the key.
    lanes: BTreeMap<u32, Completed>,
    /// Operations of the engine that change the key, and aren't done.
    under_way: u32,
    /// The last frame of the round that brings the key.
    number: Option<u64>,
    /// The key has changed since.
    has_changed: bool,
}

impl Entry {
    fn lanes(&self) -> Lanes {
        self.lanes.iter().map(|(lane, completed)| (*lane, completed.request)).collect()
    }
}

/// The unconfirmed keys of a partition.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    keys: BTreeMap<KeyHash, Entry>,
    /// Those that are still to be sent anew, and those that are being read for it.
    to_send: BTreeSet<KeyHash>,
    reading: BTreeSet<KeyHash>,
    /// A round is under way: which frames bring which keys, and how far it is confirmed.
    in_round: bool,
    sent: VecDeque<(u64, KeyHash)>,
    confirmed: u64,
}

impl Unconfirmed {
    pub(super) fn hashes(&self) -> impl Iterator<Item = &KeyHash> {
        self.keys.keys()
    }

    pub(super) fn has(&self, hash: &KeyHash) -> bool {
        self.keys.contains_key(hash)
    }

    /// An operation that may change a key begins; all lanes that are unconfirmed with it.
    pub(super) fn note(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        lanes: impl Iterator<Item = (u32, u64)>,
    ) -> Lanes {
        let entry = self.keys.entry(*hash).or_default();
        if entry.key.is_empty() {
            entry.key = key.to_vec();
        }
        for (lane, request) in lanes {
            let noted = entry.lanes.entry(lane).or_default();
            if noted.request < request {
                *noted = Completed { request, number: None };
            }
        }
        entry.under_way += 1;
        entry.lanes()
    }

    /// A key was noted before the node restarted.
    pub(super) fn restore(&mut self, hash: KeyHash, key: Vec<u8>, lanes: Lanes) {
        let restored = |(lane, request)| (lane, Completed { request, number: None });
        let lanes = lanes.into_iter().map(restored).collect();
        self.keys.insert(hash, Entry { key, lanes, ..Entry::default() });
    }

    /// An operation that was to change a key has ended, and has changed it: then a frame brings
    /// that next; or not. The key, if it is confirmed by now.
    pub(super) fn done(&mut self, hash: &KeyHash, has_changed: bool) -> Option<(KeyHash, Vec<u8>)> {
        let entry = self.keys.get_mut(hash)?;
        entry.under_way = entry.under_way.saturating_sub(1);
        entry.has_changed |= has_changed;
        self.take_if_confirmed(hash)
    }

    fn is_to_be_sent(&self, hash: &KeyHash) -> bool {
        !self.in_round || self.to_send.contains(hash) || self.reading.contains(hash)
    }

    /// What no frame of the round brings, and needn't be sent, hasn't changed.
    fn take_if_confirmed(&mut self, hash: &KeyHash) -> Option<(KeyHash, Vec<u8>)> {
        let entry = self.keys.get(hash)?;
        let is_there = entry.number.is_none_or(|number| number <= self.confirmed);
        if entry.under_way > 0 || entry.has_changed || !is_there || self.is_to_be_sent(hash) {
            return None;
        }
        self.keys.remove_entry(hash).map(|(hash, entry)| (hash, entry.key))
    }

    /// This frame brings what has changed of a key, and these completions.
    pub(super) fn sent(&mut self, hash: &KeyHash, number: u64, completions: &[LaneCompletion]) {
        if let Some(entry) = self.keys.get_mut(hash) {
            (entry.number, entry.has_changed) = (Some(number), false);
            for done in completions {
                let noted = entry.lanes.get_mut(&done.lane);
                if let Some(noted) = noted.filter(|noted| noted.request == done.request) {
                    noted.number = Some(number);
                }
            }
            self.sent.push_back((number, *hash));
        }
    }

    /// The next frame brings all that is stored of a key.
    pub(super) fn is_read(&mut self, hash: &KeyHash) {
        self.reading.remove(hash);
    }

    /// A round begins: all keys have to be sent, unless it `resends` nothing.
    pub(super) fn begin(&mut self, resends: bool) {
        self.end();
        self.in_round = true;
        if resends {
            self.to_send = self.keys.keys().copied().collect();
        }
    }

    /// The round has ended.
    pub(super) fn end(&mut self) {
        self.in_round = false;
        self.confirmed = 0;
        self.sent.clear();
        self.to_send.clear();
        self.reading.clear();
        for entry in self.keys.values_mut() {
            entry.number = None;
            entry.lanes.values_mut().for_each(|completed| completed.number = None);
        }
    }

    /// A key has to be sent in this round, whatever was sent of it before.
    pub(super) fn send_again(&mut self, hash: &KeyHash) {
        self.reading.remove(hash);
        if self.in_round && self.keys.contains_key(hash) {
            self.to_send.insert(*hash);
        }
    }

    /// The next key that is to be read and sent.
    pub(super) fn read_next(&mut self) -> Option<(KeyHash, Vec<u8>)> {
        let hash = self.to_send.pop_first()?;
        self.reading.insert(hash);
        self.keys.get(&hash).map(|entry| (hash, entry.key.clone()))
    }

    /// How many are being read.
    pub(super) fn reading(&self) -> usize {
        self.reading.len()
    }

    /// Whether all are sent.
    pub(super) fn is_all_sent(&self) -> bool {
        self.to_send.is_empty() && self.reading.is_empty()
    }

    /// The lanes that are unconfirmed with a key.
    pub(super) fn lanes(&self, hash: &KeyHash) -> Lanes {
        self.keys.get(hash).map_or(Vec::new(), Entry::lanes)
    }

    /// How many keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// All keys, to be confirmed; they stay unconfirmed.
    pub(super) fn keys(&self) -> Vec<(KeyHash, Vec<u8>)> {
        self.keys.iter().map(|(hash, entry)| (*hash, entry.key.clone())).collect()
    }

    /// All lanes that are unconfirmed with any key.
    pub(super) fn all_lanes(&self) -> impl Iterator<Item = (u32, u64)> {
        self.keys.values().flat_map(Entry::lanes)
    }

    /// The tail has everything up to this frame: the keys that are confirmed by that.
    pub(super) fn confirm(&mut self, number: u64) -> Vec<(KeyHash, Vec<u8>)> {
        self.confirmed = self.confirmed.max(number);
        let mut confirmed = Vec::new();
        while let Some((sent, hash)) = self.sent.front().copied()
            && sent <= number
        {
            self.sent.pop_front();
            if let Some(entry) = self.keys.get_mut(&hash) {
                // A key that changes all the time has few lanes all the same.
                let is_there =
                    |completed: &Completed| completed.number.is_some_and(|it| it <= sent);
                entry.lanes.retain(|_, completed| !is_there(completed));
            }
            confirmed.extend(self.take_if_confirmed(&hash));
        }
        confirmed
    }

    /// All keys.
    pub(super) fn into_keys(self) -> Vec<(KeyHash, Vec<u8>)> {
        self.keys.into_iter().map(|(hash, entry)| (hash, entry.key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::Seq;

    const HASH: KeyHash = KeyHash([1; 16]);

    fn noted(unconfirmed: &mut Unconfirmed, lane: u32) -> Lanes {
        unconfirmed.note(&HASH, b"key", [(lane, 7)].into_iter())
    }

    #[test]
    fn a_key_is_confirmed_with_the_last_frame_that_brings_it() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.begin(true);
        assert_eq!(
            (noted(&mut unconfirmed, 1), noted(&mut unconfirmed, 2)),
            (vec![(1, 7)], vec![(1, 7), (2, 7)])
        );
        assert_eq!(unconfirmed.done(&HASH, true), None, "a frame is to bring it");
        unconfirmed.sent(&HASH, 1, &[]);
        assert_eq!(unconfirmed.confirm(1), [], "another change is under way");
        let confirmed = unconfirmed.done(&HASH, false);
        assert_eq!(confirmed, Some((HASH, b"key".to_vec())), "it changed nothing");
        assert!(!unconfirmed.has(&HASH));
        noted(&mut unconfirmed, 1);
        assert_eq!(unconfirmed.done(&HASH, true), None);
        unconfirmed.sent(&HASH, 2, &[]);
        assert_eq!(unconfirmed.confirm(1), []);
        assert_eq!(unconfirmed.confirm(2), [(HASH, b"key".to_vec())]);
    }

    #[test]
    fn a_round_begins_with_every_key_and_confirms_none_that_it_has_not_sent() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.restore(HASH, b"key".to_vec(), vec![(3, 7)]);
        unconfirmed.begin(true);
        assert_eq!(unconfirmed.confirm(8), []);
        assert_eq!(unconfirmed.read_next(), Some((HASH, b"key".to_vec())));
        assert!(!unconfirmed.is_all_sent() && unconfirmed.reading() == 1);
        noted(&mut unconfirmed, 3);
        assert_eq!(unconfirmed.done(&HASH, false), None, "it is being read, and was never sent");
        unconfirmed.sent(&HASH, 9, &[]);
        assert!(!unconfirmed.is_all_sent(), "that isn't all of it");
        assert_eq!(unconfirmed.confirm(9), []);
        unconfirmed.is_read(&HASH);
        unconfirmed.sent(&HASH, 10, &[]);
        assert!(unconfirmed.is_all_sent());
        unconfirmed.begin(true);
        assert_eq!((unconfirmed.confirm(10), unconfirmed.has(&HASH)), (vec![], true));
        assert_eq!(unconfirmed.lanes(&HASH), [(3, 7)]);
    }

    /// Fails if the lanes of a key that changes all the time, and so is never confirmed as a whole,
    /// are written with each change for ever.
    #[test]
    fn a_completion_that_the_tail_has_is_noted_no_more() {
        let mut unconfirmed = Unconfirmed::default();
        unconfirmed.begin(true);
        for lane in 1..100 {
            let completion = LaneCompletion { lane, request: 7, seq: Seq::new(1, 1) };
            assert!(noted(&mut unconfirmed, lane).len() <= 2, "those of two changes at most");
            assert_eq!(unconfirmed.done(&HASH, true), None);
            unconfirmed.sent(&HASH, lane.into(), &[completion]);
            assert_eq!(unconfirmed.confirm(u64::from(lane) - 1), []);
        }
        unconfirmed.begin(true);
        assert_eq!(unconfirmed.lanes(&HASH), [(99, 7)], "it is sent again in the next round");
    }
}
