//! Exact Zipf-distributed ranks, for any exponent from 0 on, without a table.

use rand::{Rng, RngExt};

/// Samples rank `r` of `0..items` with probability proportional to `1 / (r + 1)^theta`.
///
/// Rejection-inversion (Hörmann and Derflinger, 1996): exact for every `theta >= 0`, 1 included, in
/// constant time and space. YCSB's generator (Gray et al., 1994) is an approximation: at 0.99 the
/// third rank comes 19 % too often, and from 1 on it is undefined.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    items: f64,
    theta: f64,
    /// Integral of the density's hat up to 1.5, less the first rank's whole weight.
    from: f64,
    /// The same up to the last rank.
    to: f64,
    /// Distance below which a candidate is accepted without looking closer.
    shortcut: f64,
}

impl Zipf {
    /// A sampler of `items` ranks (at least 1) with exponent `theta` (0 is uniform).
    pub fn new(items: u64, theta: f64) -> Zipf {
        assert!(items > 0 && theta >= 0.0 && theta.is_finite());
        let items = items as f64;
        let from = integral(1.5, theta) - 1.0;
        let to = integral(items + 0.5, theta);
        let shortcut = 2.0 - inverse_integral(integral(2.5, theta) - density(2.0, theta), theta);
        Zipf { items, theta, from, to, shortcut }
    }

    /// The next rank; 0 is the hottest.
    #[inline]
    pub fn sample(&self, random: &mut impl Rng) -> u64 {
        loop {
            let u = self.to + random.random::<f64>() * (self.from - self.to);
            let x = inverse_integral(u, self.theta);
            let rank = (x + 0.5).floor().clamp(1.0, self.items);
            if rank - x <= self.shortcut
                || u >= integral(rank + 0.5, self.theta) - density(rank, self.theta)
            {
                return rank as u64 - 1;
            }
        }
    }
}

/// `x^-theta`.
#[inline]
fn density(x: f64, theta: f64) -> f64 {
    (-theta * x.ln()).exp()
}

/// An antiderivative of the density: `(x^(1 - theta) - 1) / (1 - theta)`, or `ln x` at 1, without
/// cancellation near 1.
#[inline]
pub(crate) fn integral(x: f64, theta: f64) -> f64 {
    let ln = x.ln();
    ln * expm1_over_x((1.0 - theta) * ln)
}

/// The inverse of [`integral`].
#[inline]
fn inverse_integral(y: f64, theta: f64) -> f64 {
    // Rounding may push the argument over the edge of the logarithm's domain.
    let t = (y * (1.0 - theta)).max(-1.0);
    (y * ln1p_over_x(t)).exp()
}

#[inline]
fn expm1_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 * (1.0 + x / 3.0) }
}

#[inline]
fn ln1p_over_x(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x * (0.5 - x / 3.0) }
}

/// The shares of the ranks of a [`Zipf`] distribution.
#[derive(Clone, Copy, Debug)]
pub struct ZipfShares {
    items: u64,
    theta: f64,
    zeta: f64,
}

/// Up to this rank sums are added up one by one; beyond it the Euler-Maclaurin formula is exact to
/// rounding.
const SUMMED: u64 = 10_000;

impl ZipfShares {
    /// The distribution over `items` ranks with exponent `theta`.
    pub fn new(items: u64, theta: f64) -> ZipfShares {
        assert!(items > 0 && theta >= 0.0 && theta.is_finite());
        ZipfShares { items, theta, zeta: zeta(items, theta) }
    }

    /// Number of ranks.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Probability of a rank.
    #[inline]
    pub fn share(&self, rank: u64) -> f64 {
        if rank < self.items { density((rank + 1) as f64, self.theta) / self.zeta } else { 0.0 }
    }

    /// Probability of all ranks below `count` together.
    pub fn head(&self, count: u64) -> f64 {
        if count >= self.items { 1.0 } else { zeta(count, self.theta) / self.zeta }
    }
}

/// `1 + 2^-theta + ... + n^-theta`.
fn zeta(n: u64, theta: f64) -> f64 {
    // Small terms first, so that rounding errors stay small.
    let summed: f64 = (1..=n.min(SUMMED)).rev().map(|k| density(k as f64, theta)).sum();
    if n <= SUMMED {
        return summed;
    }
    let (a, b) = (SUMMED as f64, n as f64);
    let (fa, fb) = (density(a, theta), density(b, theta));
    let slope = |x: f64, f: f64| -theta * f / x;
    summed + integral(b, theta) - integral(a, theta)
        + (fb - fa) / 2.0
        + (slope(b, fb) - slope(a, fa)) / 12.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand_pcg::Pcg64Mcg;

    /// Pearson's statistic over the ranks, those expected fewer than 20 times pooled, and its
    /// degrees of freedom.
    fn chi_square(items: u64, theta: f64, samples: u64) -> (f64, f64) {
        let (zipf, shares) = (Zipf::new(items, theta), ZipfShares::new(items, theta));
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let mut counts = vec![0u64; items as usize];
        for _ in 0..samples {
            counts[zipf.sample(&mut random) as usize] += 1;
        }
        let (mut statistic, mut cells, mut pooled) = (0.0, 0.0, (0.0, 0.0));
        for (rank, &count) in counts.iter().enumerate() {
            let expected = shares.share(rank as u64) * samples as f64;
            if expected >= 20.0 {
                statistic += (count as f64 - expected).powi(2) / expected;
                cells += 1.0;
            } else {
                pooled = (pooled.0 + count as f64, pooled.1 + expected);
            }
        }
        if pooled.1 > 0.0 {
            statistic += (pooled.0 - pooled.1).powi(2) / pooled.1;
            cells += 1.0;
        }
        (statistic, cells - 1.0)
    }

    #[test]
    fn samples_follow_the_distribution_exactly() {
        for theta in [0.0, 0.5, 0.9, 0.99, 1.0, 1.000_000_001, 1.2, 2.7] {
            for items in [1, 2, 3, 1000] {
                let (statistic, freedom) = chi_square(items, theta, 400_000);
                // Five standard deviations of the chi-square distribution.
                assert!(
                    statistic <= freedom + 5.0 * (2.0 * freedom).sqrt() + 1e-9,
                    "theta {theta}, {items} items: {statistic} at {freedom} degrees of freedom"
                );
            }
        }
    }

    #[test]
    fn another_exponent_fails_the_test() {
        // The same test refuses 0.95 for 0.99, so it can fail.
        let (zipf, shares) = (Zipf::new(1000, 0.95), ZipfShares::new(1000, 0.99));
        let mut random = Pcg64Mcg::seed_from_u64(7);
        let hottest = (0..400_000).filter(|_| zipf.sample(&mut random) == 0).count() as f64;
        let expected = shares.share(0) * 400_000.0;
        assert!((hottest - expected).abs() > 5.0 * expected.sqrt());
    }

    #[test]
    fn sums_by_formula_are_sums() {
        for theta in [0.0, 0.5, 0.99, 1.0, 1.2, 3.0] {
            let n = 300_000;
            let summed: f64 = (1..=n).rev().map(|k| (k as f64).powf(-theta)).sum();
            assert!((zeta(n, theta) / summed - 1.0).abs() < 1e-12, "theta {theta}");
        }
    }

    proptest! {
        #[test]
        fn ranks_stay_in_range(items in 1u64..1 << 40, theta in 0.0f64..4.0, seed in any::<u64>()) {
            let zipf = Zipf::new(items, theta);
            let mut random = Pcg64Mcg::seed_from_u64(seed);
            for _ in 0..50 {
                prop_assert!(zipf.sample(&mut random) < items);
            }
        }

        #[test]
        fn shares_add_up(items in 1u64..100_000, theta in 0.0f64..3.0, part in 0.0f64..1.0) {
            let shares = ZipfShares::new(items, theta);
            let count = (items as f64 * part) as u64;
            let summed: f64 = (0..count).rev().map(|rank| shares.share(rank)).sum();
            prop_assert!((shares.head(count) - summed).abs() < 1e-9);
        }
    }
}
