//! Means with confidence intervals by Student's t-distribution.

/// A mean of repetitions, and how far it may be off.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    /// Half the width of the 95 % confidence interval; 0 of a single repetition, which says nothing
    /// of the spread.
    pub(crate) half_width: f64,
}

/// The 97.5 % quantile of Student's t by degrees of freedom, from 1 on; beyond the last one the
/// normal distribution is close.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// Of repetitions, at least one.
    pub(crate) fn of(samples: &[f64]) -> Estimate {
        assert!(!samples.is_empty());
        let count = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / count;
        if samples.len() == 1 {
            return Estimate { mean, half_width: 0.0 };
        }
        let variance =
            samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let t = T_975.get(samples.len() - 2).copied().unwrap_or(1.96);
        Estimate { mean, half_width: t * (variance / count).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_the_textbooks() {
        // Mean 10, standard deviation 2 (n - 1), five samples: 2.776 * 2 / sqrt(5).
        let estimate = Estimate::of(&[8.0, 8.0, 10.0, 12.0, 12.0]);
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        assert!((estimate.half_width - 2.776 * 2.0 / 5f64.sqrt()).abs() < 1e-9, "{estimate:?}");
    }

    #[test]
    fn one_repetition_says_nothing_of_the_spread_and_many_come_near_the_normal_distribution() {
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, half_width: 0.0 });
        let samples: Vec<f64> = (0..1000).map(|i| f64::from(i % 2)).collect();
        assert!((Estimate::of(&samples).half_width - 1.96 * 0.5 / 1000f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn the_interval_holds_the_mean_as_often_as_it_says() {
        // Five draws of a known normal distribution (sums of twelve uniforms), many times.
        use rand::{RngExt, SeedableRng};
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let mut normal = || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let held = (0..4000).filter(|_| {
            let samples: Vec<f64> = (0..5).map(|_| normal()).collect();
            let estimate = Estimate::of(&samples);
            estimate.mean.abs() <= estimate.half_width
        });
        let share = held.count() as f64 / 4000.0;
        assert!((share - 0.95).abs() < 0.015, "{share}");
    }
}
