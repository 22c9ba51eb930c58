//! Which keys nodes are told of: how large a sample is counted, from which count on a key is hot,
//! and how many hot keys the control plane has room for.
//!
//! The cache learns as TinyLFU does (Einziger, Friedman, Manes, ACM Transactions on Storage 13(4),
//! 2017): a new key takes the place of a cached one that was counted less, and all counts are
//! halved now and then, so that old ones are forgotten. Two things are a switch's own. What isn't
//! cached is counted by a sketch in the pipeline, and what is cached by exact counters. And each
//! key that is told of costs its node a durable mark and the agent a command, so their number is
//! limited by a token bucket; what exceeds it is kept away by a threshold that rises.

use super::gain::{Trial, Watched};
use crate::control::Offer;
use crate::time::Now;

/// Offers that may wait at the controller while the cache is full: twice what it compares at a
/// time. More would be marked by their nodes and declined.
const WAITING: u32 = 64;
/// If the controller compared nothing for this long, no offers wait there: it compares them as they
/// come.
const WAITING_US: u64 = 50_000;
/// A cache that is full has room again when fewer than this share of its keys are there.
const ROOM_SHARE: usize = 16;
/// Of the time between two ageings this share is long enough to see what an exchange gained.
const WATCHED_SHARE: f64 = 0.25;
/// Pairs of a newcomer and a spared victim that are looked at together.
const PAIRS: usize = 64;

/// How the pipeline counts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Counting {
    /// Share of the packets that are counted, 0 to 1.
    pub sampling: f64,
    /// How many times a key was counted that is hot.
    pub threshold: u32,
    /// How many hot keys nodes are told of before the agent looks again.
    pub offers: u32,
}

/// What the pipeline has counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counted {
    /// Reads, writes and deletes that came, ever.
    pub requests: u64,
    /// Requests that missed the cache, ever.
    pub misses: u64,
    /// How many of the offers weren't used.
    pub offers_left: u32,
}

/// Limits within which an agent learns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LearningConfig {
    /// How often the agent looks at what was counted.
    pub period_us: u64,
    /// A key is hot that was counted this many times, at least: also while there is room.
    pub threshold: u32,
    /// Share of the packets that are counted, 0 to 1, at most.
    pub sampling: f64,
    /// Packets that are counted in a second, at most: beyond this the share falls.
    pub counted_per_s: u32,
    /// Keys that nodes are told of in a second, at most.
    pub admissions_per_s: u32,
    /// Where exchanges gain nothing, a key must have been counted more often than another one by
    /// this many standard deviations to take its place. 0: that isn't tried.
    pub deviations: f64,
    /// Counters in a row of the sketch.
    pub sketch_width: u32,
    /// All counts are halved when the counters of a row have this many misses each on average.
    pub ageing_misses: u32,
    /// All counts are halved at least this often.
    pub ageing_us: u64,
}

impl Default for LearningConfig {
    fn default() -> LearningConfig {
        LearningConfig {
            period_us: 5_000,
            threshold: 1,
            sampling: 1.0,
            counted_per_s: 1_500_000,
            admissions_per_s: 20_000,
            deviations: 3.0,
            sketch_width: 1 << 16,
            ageing_misses: 32,
            ageing_us: 60_000_000,
        }
    }
}

/// What an agent knows of how its cache learns.
#[derive(Debug)]
pub(super) struct Learning {
    config: LearningConfig,
    counting: Counting,
    /// How many offers the pipeline was given last.
    given: u32,
    /// What the token bucket holds, in millionths of an offer.
    tokens: u64,
    /// When the counts were looked at last.
    looked_us: u64,
    requests: u64,
    misses: u64,
    /// Misses in each row of the sketch: halved with the counters.
    counted_misses: f64,
    aged_us: u64,
    /// Room had to be made, and there is none since.
    is_full: bool,
    /// Moving average of the least count among the cached keys that newcomers were compared with.
    victims: u32,
    trial: Trial,
    /// Misses that were counted, ever: what the trial takes for the time.
    ever_counted: f64,
    /// By how much the threshold is raised, since more keys were hot than there were offers.
    raised: u32,
    /// Offers that wait at the controller: those that it said, and those since.
    waiting: u32,
    waiting_us: u64,
}

/// An offer in millionths: a rate a second fills the bucket by as many each microsecond.
const TOKEN: u64 = 1_000_000;

impl Learning {
    pub(super) fn new(config: LearningConfig, now: Now) -> Learning {
        let counting =
            Counting { sampling: config.sampling, threshold: config.threshold, offers: 0 };
        let mut learning = Learning {
            config,
            counting,
            given: 0,
            tokens: 0,
            looked_us: now.monotonic_us,
            requests: 0,
            misses: 0,
            counted_misses: 0.0,
            aged_us: now.monotonic_us,
            is_full: false,
            victims: 0,
            trial: Trial::default(),
            ever_counted: 0.0,
            raised: 0,
            waiting: 0,
            waiting_us: now.monotonic_us,
        };
        learning.begin(now, 0, 0);
        learning
    }

    /// An epoch begins, with nothing cached and nothing counted.
    pub(super) fn begin(&mut self, now: Now, requests: u64, misses: u64) {
        (self.requests, self.misses) = (requests, misses);
        (self.looked_us, self.aged_us) = (now.monotonic_us, now.monotonic_us);
        (self.is_full, self.victims, self.raised, self.waiting) = (false, 0, 0, 0);
        self.counted_misses = 0.0;
        self.trial = Trial::default();
        self.counting.threshold = self.config.threshold;
    }

    /// How the pipeline is to count until the next look.
    pub(super) fn counting(&self) -> Counting {
        self.counting
    }

    /// The controller compares offers with cached keys: so there is no room. `waiting` offers wait
    /// for it.
    pub(super) fn room_is_made(&mut self, now: Now, waiting: u32) {
        self.is_full = true;
        self.waiting = waiting;
        self.waiting_us = now.monotonic_us;
    }

    /// How often a key was asked for, by estimate, if the sketch says `count`: its counters count
    /// other keys, too (Deng and Rafiei, "New estimation algorithms for streaming data: Count-min
    /// can do more", 2007).
    pub(super) fn worth(&self, count: u32) -> u32 {
        if count == Offer::NAMED { count } else { count.saturating_sub(self.noise()) }
    }

    /// Newcomers were compared with cached keys that were counted this often, the least first.
    pub(super) fn compared(&mut self, counts: &[u32]) {
        let Some(least) = counts.first() else { return };
        let kept = u64::from(self.victims) * 3;
        self.victims = ((kept + u64::from(*least)).div_ceil(4)) as u32;
    }

    /// How often a key must have been counted to take the place of one that was counted `cached`
    /// times: more often; and where exchanges were in vain, by more than chance, for an exchange
    /// costs nodes three writes.
    pub(super) fn to_outdo(&self, cached: u32) -> u32 {
        if !self.trial.is_in_vain() {
            return cached.saturating_add(1);
        }
        // Of what the sketch says, and of two counts, each of which varies by its root. (The least
        // of four counters varies by half as much as one.)
        let variance = self.mean() / 2.0 + 2.0 * f64::from(cached);
        let chance = self.config.deviations;
        // The count c for which c - cached = chance * sqrt(variance + c - cached).
        let more = chance * chance / 2.0 + chance * (variance + chance * chance / 4.0).sqrt();
        cached.saturating_add((more as u32).max(1))
    }

    /// `exchanges` entries are to be evicted. Whether the one counted most of them is to be spared,
    /// to see what exchanging it would have gained.
    pub(super) fn spares(&mut self, exchanges: usize) -> bool {
        self.config.deviations > 0.0 && self.trial.spares(exchanges)
    }

    /// This entry is spared.
    pub(super) fn spared(&mut self, victim: Watched) {
        self.trial.spared(victim);
    }

    /// Of the newcomers that are admitted this one was counted least.
    pub(super) fn admitted(&mut self, newcomer: Watched) {
        if self.is_full {
            self.trial.admitted(self.ever_counted, newcomer);
        }
    }

    /// Newcomers and spared victims that were watched for long enough.
    pub(super) fn watched(&mut self) -> Vec<(Watched, Watched)> {
        let ageing = f64::from(self.config.ageing_misses) * f64::from(self.config.sketch_width);
        self.trial.due(self.ever_counted - WATCHED_SHARE * ageing, PAIRS)
    }

    /// How often a newcomer and a spared victim were asked for while they were watched.
    pub(super) fn seen(&mut self, newcomer: u32, victim: u32) {
        self.trial.seen(newcomer, victim);
    }

    /// Takes what was counted since the last look. Whether all counts are to be halved now.
    pub(super) fn look(
        &mut self,
        now: Now,
        counted: Counted,
        cached: usize,
        records: usize,
    ) -> bool {
        let elapsed_us = now.monotonic_us.saturating_sub(self.looked_us);
        self.looked_us = now.monotonic_us;
        // A datapath that has failed says 0.
        let requests = counted.requests.saturating_sub(self.requests);
        let misses = counted.misses.saturating_sub(self.misses);
        (self.requests, self.misses) = (counted.requests, counted.misses);
        self.counted_misses += misses as f64 * self.counting.sampling;
        self.ever_counted += misses as f64 * self.counting.sampling;
        // A slot is free between an eviction and the admission it was for: a few are no room.
        if cached + records / ROOM_SHARE < records && self.is_controller_silent(now) {
            self.is_full = false;
        }
        let is_full = self.is_full || cached >= records;
        // The datapath was given new offers just now, and said how many of the ones before are
        // left.
        let given = std::mem::replace(&mut self.given, self.counting.offers);
        let left = counted.offers_left.min(given);
        self.raise(given, left);
        self.wait(now, given - left, is_full);
        self.fill(elapsed_us, left, is_full);
        self.sample(elapsed_us, requests);
        let contested = self.victims.saturating_add(self.victims / 8);
        let least = if is_full { self.to_outdo(contested) } else { 1 };
        let threshold = self.noise().saturating_add(least).saturating_add(self.raised);
        self.counting.threshold = threshold.max(self.config.threshold);
        self.is_to_age(now)
    }

    /// What the least of a key's four counters has of other keys, about: their mean, less a
    /// standard deviation.
    fn noise(&self) -> u32 {
        let mean = self.mean();
        (mean - mean.sqrt()).max(0.0) as u32
    }

    /// What a counter of the sketch has on average.
    fn mean(&self) -> f64 {
        self.counted_misses / f64::from(self.config.sketch_width.max(1))
    }

    /// Raises the threshold if all offers were used, and lowers it if half of them are left.
    fn raise(&mut self, given: u32, left: u32) {
        if given == 0 {
            return; // nothing was to be had, so nothing is known of how many were hot
        }
        if left == 0 {
            self.raised = self.raised.saturating_add(1 + self.counting.threshold / 8);
        } else if left > given / 2 {
            self.raised -= self.raised.div_ceil(8);
        }
    }

    /// Whether nothing was compared for `WAITING_US`, so that nothing waits to be.
    fn is_controller_silent(&self, now: Now) -> bool {
        now.monotonic_us.saturating_sub(self.waiting_us) > WAITING_US
    }

    /// What was told of waits, if there is no room.
    fn wait(&mut self, now: Now, told: u32, is_full: bool) {
        if self.is_controller_silent(now) {
            self.waiting = 0;
        }
        self.waiting = if is_full { self.waiting.saturating_add(told) } else { 0 };
    }

    /// The token bucket of offers: it holds those of two looks, and at least one.
    fn fill(&mut self, elapsed_us: u64, left: u32, is_full: bool) {
        let rate = u64::from(self.config.admissions_per_s);
        let most = (rate * 2 * self.config.period_us).max(if rate > 0 { TOKEN } else { 0 });
        let more = u64::from(left) * TOKEN + rate.saturating_mul(elapsed_us);
        self.tokens = (self.tokens + more).min(most);
        // What the pipeline has already can be used, too, before the next look.
        let room = if is_full { WAITING.saturating_sub(self.waiting) } else { u32::MAX };
        self.counting.offers = ((self.tokens / TOKEN) as u32).min(room.saturating_sub(self.given));
        self.tokens -= u64::from(self.counting.offers) * TOKEN;
    }

    /// At high rates a smaller share is as good a sample.
    fn sample(&mut self, elapsed_us: u64, requests: u64) {
        let most = self.config.counted_per_s as f64 * elapsed_us as f64 / 1e6;
        let share = most / (requests.max(1)) as f64;
        // From one look to the next by no more than half, for a short one may see a burst.
        let (least, greatest) = (self.counting.sampling / 2.0, self.counting.sampling * 2.0);
        let least = least.min(self.config.sampling);
        let greatest = greatest.clamp(1e-6, self.config.sampling.max(1e-6));
        if elapsed_us > 0 && self.config.sampling > 0.0 {
            self.counting.sampling = share.clamp(least, greatest);
        }
    }

    fn is_to_age(&mut self, now: Now) -> bool {
        let is_late = now.monotonic_us.saturating_sub(self.aged_us) >= self.config.ageing_us;
        let is_due = is_late || self.mean() >= f64::from(self.config.ageing_misses.max(1));
        if is_due {
            self.aged_us = now.monotonic_us;
            self.counted_misses /= 2.0;
            self.victims /= 2;
            self.raised /= 2;
            self.trial.forget_watched();
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Location;

    const RECORDS: usize = 100;
    const PERIOD_US: u64 = 5_000;

    struct Switch {
        learning: Learning,
        now: Now,
        counted: Counted,
        /// Offers that the pipeline has.
        offers: u32,
    }

    impl Switch {
        fn new(config: LearningConfig) -> Switch {
            let now = Now { monotonic_us: 0, unix_ms: 0 };
            let counted = Counted { requests: 0, misses: 0, offers_left: 0 };
            Switch { learning: Learning::new(config, now), now, counted, offers: 0 }
        }

        /// A period in which `misses` of `requests` missed, and `hot` keys could be told of.
        /// Whether counts are to be halved.
        fn pass(&mut self, requests: u64, misses: u64, hot: u32, cached: usize) -> bool {
            self.now.monotonic_us += PERIOD_US;
            self.counted.requests += requests;
            self.counted.misses += misses;
            self.counted.offers_left = self.offers.saturating_sub(hot);
            self.offers = self.learning.counting().offers;
            self.learning.look(self.now, self.counted, cached, RECORDS)
        }

        fn threshold(&self) -> u32 {
            self.learning.counting().threshold
        }
    }

    #[test]
    fn with_room_the_first_count_is_enough() {
        let mut switch = Switch::new(LearningConfig::default());
        switch.pass(10, 10, 0, 0);
        let counting = Counting { sampling: 1.0, threshold: 1, offers: 100 };
        assert_eq!(switch.learning.counting(), counting);
    }

    #[test]
    fn in_a_full_cache_a_key_must_outdo_what_it_would_replace() {
        let mut switch = Switch::new(LearningConfig::default());
        switch.learning.room_is_made(switch.now, 3);
        for _ in 0..64 {
            switch.learning.compared(&[40, 1_000_000]);
        }
        switch.pass(10, 10, 0, RECORDS - 1);
        assert_eq!(switch.threshold(), 46);
        switch.pass(10, 10, 0, RECORDS / 2);
        assert_eq!(switch.threshold(), 46, "a moment ago there was none");
        for _ in 0..WAITING_US / PERIOD_US {
            switch.pass(10, 10, 0, RECORDS / 2);
        }
        assert_eq!(switch.threshold(), 1, "there is room again");
    }

    #[test]
    fn no_more_keys_are_told_of_than_are_allowed_and_the_threshold_rises_until_they_are_fewer() {
        let config = LearningConfig { admissions_per_s: 2_000, ..LearningConfig::default() };
        let mut switch = Switch::new(config);
        let mut offers = 0;
        for _ in 0..200 {
            switch.pass(1_000, 10, u32::MAX, 0);
            offers += switch.learning.counting().offers;
        }
        assert!((1_900..=2_020).contains(&offers), "{offers} in a second");
        assert!(switch.threshold() > 100);
        for _ in 0..200 {
            switch.pass(1_000, 10, 0, 0);
        }
        assert_eq!(switch.threshold(), 1);
        assert!(switch.learning.counting().offers <= 20, "two periods' at most");
    }

    #[test]
    fn few_admissions_a_second_are_some() {
        let config = LearningConfig { admissions_per_s: 2, ..LearningConfig::default() };
        let mut switch = Switch::new(config);
        let mut offers = 0;
        for _ in 0..2_000 {
            switch.pass(10, 10, u32::MAX, 0);
            offers += switch.learning.counting().offers;
        }
        assert_eq!(offers, 20, "in ten seconds");
        let mut switch = Switch::new(LearningConfig { admissions_per_s: 0, ..config });
        for _ in 0..2_000 {
            switch.pass(10, 10, 0, 0);
            assert_eq!(switch.learning.counting().offers, 0);
        }
    }

    #[test]
    fn a_full_cache_is_offered_what_is_soon_compared() {
        let mut switch = Switch::new(LearningConfig::default());
        // What is in the pipeline, and what it gets next.
        let offers = |switch: &Switch| (switch.offers, switch.learning.counting().offers);
        switch.learning.room_is_made(switch.now, 40);
        switch.pass(10, 10, 0, RECORDS);
        assert_eq!(offers(&switch), (0, 24));
        switch.pass(10, 10, 0, RECORDS);
        assert_eq!(offers(&switch), (24, 0));
        switch.pass(10, 10, 20, RECORDS);
        assert_eq!(offers(&switch), (0, 4), "20 more wait");
        switch.learning.room_is_made(switch.now, 2_000);
        switch.pass(10, 10, 0, RECORDS);
        assert_eq!(offers(&switch), (4, 0));
        for _ in 0..=WAITING_US / PERIOD_US {
            switch.pass(10, 10, 0, RECORDS);
        }
        let (has, gets) = offers(&switch);
        assert_eq!(has + gets, WAITING, "none wait any more");
    }

    #[test]
    fn the_sketch_s_noise_makes_no_key_hot() {
        let config = LearningConfig { sketch_width: 1_000, ..LearningConfig::default() };
        let mut switch = Switch::new(config);
        switch.pass(4_000, 4_000, 0, 0);
        assert_eq!(switch.threshold(), 3, "the least of four counters has two of other keys");
        let worth = [1, 2, 7, Offer::NAMED].map(|count| switch.learning.worth(count));
        assert_eq!(worth, [0, 0, 5, Offer::NAMED]);
        for _ in 0..5 {
            assert!(!switch.pass(5_000, 5_000, 0, 0));
        }
        assert_eq!(switch.threshold(), 24);
        assert!(switch.pass(5_000, 5_000, 0, 0), "halved");
        switch.pass(0, 0, 0, 0);
        assert_eq!(switch.threshold(), 13);
    }

    #[test]
    fn as_many_packets_are_counted_at_any_rate() {
        let mut switch = Switch::new(LearningConfig::default());
        let mut counted = 0.0;
        for _ in 0..200 {
            counted += 50_000.0 * switch.learning.counting().sampling;
            switch.pass(50_000, 0, 0, 0);
        }
        assert!((1_500_000.0..1_700_000.0).contains(&counted), "{counted} of ten million");
        for _ in 0..20 {
            switch.pass(5, 0, 0, 0);
        }
        assert_eq!(switch.learning.counting().sampling, 1.0);
    }

    #[test]
    fn where_exchanges_gain_nothing_a_newcomer_must_be_ahead_by_more_than_chance() {
        let mut switch = Switch::new(LearningConfig::default());
        let learning = &mut switch.learning;
        assert_eq!(learning.to_outdo(4), 5);
        (0..256).for_each(|_| learning.seen(1, 1));
        assert_eq!(learning.to_outdo(4), 4 + 14, "three deviations of 4 + 18");
        learning.counted_misses = 32.0 * f64::from(learning.config.sketch_width);
        assert_eq!(
            learning.to_outdo(4),
            4 + 19,
            "and what the sketch has of other keys varies, too"
        );
        assert_eq!(learning.to_outdo(u32::MAX), Offer::NAMED, "one that is named outdoes all");
        (0..256).for_each(|_| learning.seen(2, 1));
        assert_eq!(learning.to_outdo(4), 5);
    }

    #[test]
    fn a_pair_is_watched_for_a_quarter_of_the_time_between_two_ageings() {
        let config =
            LearningConfig { sketch_width: 100, ageing_misses: 40, ..LearningConfig::default() };
        let mut switch = Switch::new(config);
        let watched = |id| Watched { id, at: Location { class: 0, slot: 0 }, count: 0 };
        switch.learning.room_is_made(switch.now, 1);
        assert!(switch.learning.spares(16));
        switch.learning.spared(watched(1));
        switch.learning.admitted(watched(2));
        switch.pass(999, 999, 0, RECORDS);
        assert_eq!(switch.learning.watched(), []);
        switch.pass(1, 1, 0, RECORDS);
        assert_eq!(switch.learning.watched(), [(watched(2), watched(1))]);

        assert!(switch.learning.spares(16));
        switch.learning.spared(watched(3));
        switch.learning.admitted(watched(4));
        assert!(switch.pass(3_000, 3_000, 0, RECORDS), "counts are halved");
        assert_eq!(switch.learning.watched(), []);
        let mut untried =
            Switch::new(LearningConfig { deviations: 0.0, ..LearningConfig::default() });
        assert!(!untried.learning.spares(16));
    }

    #[test]
    fn counts_are_halved_by_misses_and_by_time() {
        let config = LearningConfig {
            sampling: 0.5,
            sketch_width: 100,
            ageing_misses: 10,
            ageing_us: 100 * PERIOD_US,
            ..LearningConfig::default()
        };
        let mut switch = Switch::new(config);
        assert!(!switch.pass(1_999, 1_999, 0, 0));
        assert!(switch.pass(2, 2, 0, 0));
        assert!(!switch.pass(998, 998, 0, 0), "half of them are forgotten");
        assert!(switch.pass(4, 4, 0, 0));
        let aged = (0..200).filter(|_| switch.pass(0, 0, 0, 0)).count();
        assert_eq!(aged, 2);
    }
}
