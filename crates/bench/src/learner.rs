//! A perfect learner: it counts every request exactly, and its cache always holds the records with
//! the most requests so far, at no cost. No cache that has to learn can have better content at that
//! moment.

use crate::workload::{Lengths, mix};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Requests of a record.
#[derive(Clone, Copy, Default, Debug)]
struct Counted {
    requests: u32,
    is_cached: bool,
}

/// Counters of all requested records, and the best content of a cache that has room for `room` of
/// them.
///
/// The content changes by at most one record a request: only the record that was just counted can
/// have become hotter than one of the content. It replaces one of the content's coldest, which
/// `coldest` lists; the list is made anew when it is empty. The lowest count has risen by then, so
/// a run of `n` requests makes at most `n / room` lists.
#[derive(Clone, Debug)]
pub struct Learner {
    room: usize,
    lengths: Lengths,
    counted: HashMap<u64, Counted, BuildHasherDefault<Mixed>>,
    content: Vec<u64>,
    /// No record of the content has fewer requests, once it is full.
    least: u32,
    /// Places in the content of the records that had `least` requests when they were listed.
    coldest: Vec<usize>,
    /// Reads so far, and those whose record was in the content when they came.
    reads: u64,
    hits: u64,
}

impl Learner {
    /// Nothing is counted yet, nothing is cached. Of records of these lengths it counts and caches
    /// those that fit a slot.
    pub fn new(room: usize, lengths: Lengths) -> Learner {
        let (counted, content, coldest) = (HashMap::default(), Vec::new(), Vec::new());
        Learner { room, lengths, counted, content, least: 0, coldest, reads: 0, hits: 0 }
    }

    /// A request for a record.
    #[inline]
    pub fn request(&mut self, index: u64, reads: bool) {
        self.reads += u64::from(reads);
        if !self.lengths.is_cacheable(index) {
            return;
        }
        let counted = self.counted.entry(index).or_default();
        counted.requests = counted.requests.saturating_add(1);
        let Counted { requests, is_cached } = *counted;
        self.hits += u64::from(reads && is_cached);
        if is_cached {
            return;
        }
        if self.content.len() < self.room {
            counted.is_cached = true;
            self.content.push(index);
        } else if requests > self.least {
            self.replace_coldest(index, requests);
        }
    }

    /// Puts a record with this number of requests into the content, if a record of the content has
    /// fewer.
    fn replace_coldest(&mut self, index: u64, requests: u32) {
        if self.room == 0 {
            return;
        }
        loop {
            while let Some(place) = self.coldest.pop() {
                let old =
                    self.counted.get_mut(&self.content[place]).expect("what is cached was counted");
                if old.requests > self.least {
                    continue; // it was requested since
                }
                old.is_cached = false;
                self.content[place] = index;
                self.counted.get_mut(&index).expect("just counted").is_cached = true;
                return;
            }
            let requests_of = |index: &u64| self.counted[index].requests;
            self.least = self.content.iter().map(requests_of).min().expect("there is room for one");
            let places = self.content.iter().enumerate();
            self.coldest = places
                .filter(|(_, index)| requests_of(index) == self.least)
                .map(|(place, _)| place)
                .collect();
            if requests <= self.least {
                return;
            }
        }
    }

    /// The cacheable records with the most requests, as many as there is room for.
    pub fn content(&self) -> &[u64] {
        &self.content
    }

    /// Reads so far, and how many of them found their record in the content.
    pub fn reads_and_hits(&self) -> (u64, u64) {
        (self.reads, self.hits)
    }
}

/// A hasher of numbers: [`mix`].
#[derive(Clone, Copy, Default, Debug)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("records are numbers");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// The counts of the hottest records, by sorting all.
    fn hottest(counts: &BTreeMap<u64, u32>, room: usize) -> Vec<u32> {
        let mut sorted: Vec<u32> = counts.values().copied().collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        sorted.truncate(room);
        sorted
    }

    #[test]
    fn what_fits_no_slot_is_read_but_never_cached() {
        let lengths = Lengths::new("128:1,4096:1".parse().unwrap(), 1);
        let mut learner = Learner::new(10, lengths.clone());
        // Record 0 is asked for most, and so on.
        let ranks = (0..40u64).flat_map(|rank| std::iter::repeat_n(rank, 41 - rank as usize));
        ranks.for_each(|rank| learner.request(rank, true));
        let mut content = learner.content().to_vec();
        content.sort_unstable();
        let fitting = (0..40).filter(|&index| lengths.is_cacheable(index));
        assert_eq!(content, fitting.take(10).collect::<Vec<_>>());
        assert!(content[9] > 9, "some of the hottest don't fit");
        assert_eq!(learner.reads_and_hits().0, (2..=41).sum::<u64>());
    }

    proptest! {
        #[test]
        fn the_content_is_the_hottest_after_every_request(
            room in 0usize..12,
            requests in prop::collection::vec(
                (prop_oneof![0u64..4, 0u64..40], any::<bool>()),
                0..400,
            ),
        ) {
            let (mut learner, mut counts) =
                (Learner::new(room, Lengths::constant(128)), BTreeMap::new());
            let (mut reads, mut hits) = (0, 0);
            for (index, is_read) in requests {
                reads += u64::from(is_read);
                hits += u64::from(is_read && learner.content().contains(&index));
                learner.request(index, is_read);
                *counts.entry(index).or_insert(0) += 1;
                let mut content: Vec<_> =
                    learner.content().iter().map(|index| counts[index]).collect();
                content.sort_unstable_by(|a, b| b.cmp(a));
                prop_assert_eq!(content, hottest(&counts, room));
                let mut distinct = learner.content().to_vec();
                distinct.sort_unstable();
                distinct.dedup();
                prop_assert_eq!(distinct.len(), learner.content().len());
            }
            prop_assert_eq!(learner.reads_and_hits(), (reads, hits));
        }
    }
}
