//! What exchanges gain: a randomized controlled trial (Fisher, "The Design of Experiments", 1935).
//!
//! Counts say too little of whether a newcomer will be asked for more often than what it replaces.
//! Of keys that are asked for equally often, some are always ahead by chance; and where a few keys
//! are far more popular than all others, the many others still replace each other for nothing. So
//! the agent tries it: now and then it spares a victim, and watches how often that is asked for
//! from then on, and how often a newcomer is that was admitted for another victim.

use crate::control::{EntryId, Location};
use std::collections::VecDeque;

/// One in this many exchanges is left out.
const SPARED_OF: u32 = 16;
/// Pairs that are watched at a time.
const PAIRS_MAX: usize = 1024;
/// An entry counts as asked for this often at most, so that one that is very popular doesn't speak
/// for all others.
const HITS_MAX: u32 = 16;
/// Enough hits of newcomers and victims to judge. If both are asked for equally often, one time in
/// 25 it seems otherwise.
const HITS_TO_JUDGE: f64 = 256.0;
/// Newcomers that are asked for this many times as often as spared victims are worth an exchange.
const WORTH: f64 = 1.25;

/// An entry that is watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Watched {
    pub(super) id: EntryId,
    pub(super) at: Location,
    /// What its counter was.
    pub(super) count: u32,
}

/// The trial of one switch.
#[derive(Debug, Default)]
pub(super) struct Trial {
    /// Pairs that are watched: a newcomer and a spared victim, and since which time.
    pairs: VecDeque<(f64, Watched, Watched)>,
    /// A victim was spared, and no newcomer is its counterpart yet.
    spared: Option<Watched>,
    /// Exchanges since a victim was spared.
    exchanges: u32,
    /// How often all newcomers of pairs were asked for, and all spared victims; halved when judged.
    newcomers: f64,
    victims: f64,
    is_in_vain: bool,
}

impl Trial {
    /// Whether exchanges were found to gain nothing.
    pub(super) fn is_in_vain(&self) -> bool {
        self.is_in_vain
    }

    /// `exchanges` entries are to be evicted for newcomers. Whether one of them is to be spared.
    pub(super) fn spares(&mut self, exchanges: usize) -> bool {
        self.exchanges = self.exchanges.saturating_add(exchanges as u32);
        self.exchanges >= SPARED_OF && self.spared.is_none() && self.pairs.len() < PAIRS_MAX
    }

    /// This victim is spared.
    pub(super) fn spared(&mut self, victim: Watched) {
        self.exchanges = 0;
        self.spared = Some(victim);
    }

    /// This newcomer is admitted, now.
    pub(super) fn admitted(&mut self, now: f64, newcomer: Watched) {
        if let Some(victim) = self.spared.take() {
            self.pairs.push_back((now, newcomer, victim));
        }
    }

    /// The pairs that have been watched since `until`, to `limit`: their counters are to be read.
    pub(super) fn due(&mut self, until: f64, limit: usize) -> Vec<(Watched, Watched)> {
        let are_due = self.pairs.iter().take(limit).take_while(|(since, ..)| *since <= until);
        let count = are_due.count();
        self.pairs.drain(..count).map(|(_, newcomer, victim)| (newcomer, victim)).collect()
    }

    /// How often a newcomer and a spared victim were asked for while they were watched.
    pub(super) fn seen(&mut self, newcomer: u32, victim: u32) {
        self.newcomers += f64::from(newcomer.min(HITS_MAX));
        self.victims += f64::from(victim.min(HITS_MAX));
        if self.newcomers + self.victims >= HITS_TO_JUDGE {
            self.is_in_vain = self.newcomers < WORTH * self.victims;
            self.newcomers /= 2.0;
            self.victims /= 2.0;
        }
    }

    /// All counters are halved: those that are watched say nothing.
    pub(super) fn forget_watched(&mut self) {
        self.pairs.clear();
        self.spared = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(id: EntryId) -> Watched {
        Watched { id, at: Location { class: 0, slot: id as u32 }, count: 3 }
    }

    #[test]
    fn one_in_sixteen_exchanges_is_left_out_and_has_a_counterpart() {
        let mut trial = Trial::default();
        trial.admitted(0.0, watched(1));
        assert!(!trial.spares(15) && trial.spares(1));
        trial.spared(watched(2));
        assert!(!trial.spares(100), "until there is a counterpart");
        trial.admitted(10.0, watched(3));
        trial.admitted(10.0, watched(4));
        assert_eq!(trial.due(9.0, 64), []);
        assert_eq!(trial.due(10.0, 64), [(watched(3), watched(2))]);
        assert_eq!(trial.due(10.0, 64), []);
        assert!(trial.spares(16));
        trial.spared(watched(5));
        trial.forget_watched();
        trial.admitted(20.0, watched(6));
        assert_eq!(trial.due(20.0, 64), [], "what was spared before is forgotten, too");
    }

    #[test]
    fn exchanges_are_in_vain_if_newcomers_are_asked_for_no_more_often_than_victims() {
        let mut trial = Trial::default();
        let mut judged = |newcomer, victim| {
            (0..300).for_each(|_| trial.seen(newcomer, victim));
            trial.is_in_vain()
        };
        assert!(judged(1, 1));
        assert!(!judged(3, 2));
        assert!(judged(5, 6));
        assert!(!judged(1, 0));
        assert!(judged(0, 1));
    }

    #[test]
    fn one_popular_newcomer_does_not_speak_for_all() {
        let mut trial = Trial::default();
        trial.seen(1_000_000, 0);
        assert!(!trial.is_in_vain());
        (0..300).for_each(|_| trial.seen(1, 1));
        assert!(trial.is_in_vain());
    }
}
