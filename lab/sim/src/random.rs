//! All randomness of a run: one generator, from one seed.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A generator with the draws that the simulator needs.
#[derive(Clone, Debug)]
pub(crate) struct Random(Pcg64Mcg);

impl Random {
    /// The generator of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        // Neighbouring seeds must not give neighbouring runs.
        let mut mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random(Pcg64Mcg::seed_from_u64(mixed ^ (mixed >> 31)))
    }

    /// A generator of its own for one purpose, so that draws for one don't shift those for another.
    pub(crate) fn fork(&mut self) -> Random {
        Random::new(self.bits())
    }

    /// 64 uniform bits.
    #[inline]
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Uniform in `0..1`.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    #[inline]
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// Uniform below `end`, which is not 0.
    #[inline]
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0);
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// Uniform in `low..=high`.
    #[inline]
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// Between `low` and `high`, each order of magnitude as likely as any other.
    pub(crate) fn logarithmic(&mut self, low: u64, high: u64) -> u64 {
        assert!(0 < low && low <= high);
        let (from, to) = ((low as f64).ln(), (high as f64 + 1.0).ln());
        ((from + (to - from) * self.unit()).exp() as u64).clamp(low, high)
    }

    /// Exponential with this mean.
    #[inline]
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean as f64) as u64
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }
}
