//! Means with confidence intervals by Student's t-distribution ("Student" [W. S. Gosset], "The
//! probable error of a mean", Biometrika 1908).

/// A mean of repetitions, with its confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Estimate {
    pub(crate) mean: f64,
    /// Half the width of the 95 % confidence interval; 0 for a single repetition, which has no
    /// variance.
    pub(crate) half_width: f64,
}

/// The 97.5 % quantile of Student's t by degrees of freedom, from 1 on. Beyond the last one the
/// normal distribution's, 1.96, is used.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// The mean of `samples`, of which there must be at least one.
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
    fn the_interval_of_five_samples_is_that_of_the_textbook_formula() {
        // Mean 10, standard deviation 2 (n - 1), five samples: 2.776 * 2 / sqrt(5).
        let estimate = Estimate::of(&[8.0, 8.0, 10.0, 12.0, 12.0]);
        assert!((estimate.mean - 10.0).abs() < 1e-12);
        assert!((estimate.half_width - 2.776 * 2.0 / 5f64.sqrt()).abs() < 1e-9, "{estimate:?}");
    }

    #[test]
    fn one_repetition_has_no_interval_and_a_thousand_have_nearly_the_normal_distributions() {
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, half_width: 0.0 });
        let samples: Vec<f64> = (0..1000).map(|i| f64::from(i % 2)).collect();
        assert!((Estimate::of(&samples).half_width - 1.96 * 0.5 / 1000f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn ninety_five_of_a_hundred_intervals_hold_the_mean() {
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
