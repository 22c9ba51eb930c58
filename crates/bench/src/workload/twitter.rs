//! Workloads by the published figures of Twitter's production cache clusters (`twitter.csv`, which
//! names its source).
//!
//! The figures are means, without correlations. So operations, keys and sizes are independent here:
//! all operations choose their keys by the published Zipf exponent, except for the share of
//! requests for keys that are used only once; and all records have the mean size.

use super::Verb;
use std::fmt;
use std::sync::LazyLock;
use switchback_wire::CACHED_KEY_BYTES_MAX;

const FIGURES: &str = include_str!("twitter.csv");
/// The traces are a week long.
const TRACE_SECONDS: f64 = 7.0 * 24.0 * 3600.0;

/// One cluster. What was not published is `None`.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// Its number, from 1.
    pub number: u16,
    /// Mean length of keys.
    pub key_bytes: Option<u32>,
    /// Mean length of values.
    pub value_bytes: Option<u32>,
    /// Requests a second of the traced instance.
    pub rate_ops: Option<f64>,
    /// Requests of a key, on average.
    pub mean_requests: Option<f64>,
    /// Share of keys that were used only once.
    pub one_hit_keys: Option<f64>,
    /// Zipf exponent.
    pub alpha: Option<f64>,
    /// Shares of operations as memcached names them, as published: rounded, and those below 1 %
    /// left out. Empty if not published.
    pub operations: Vec<(&'static str, f64)>,
}

static CLUSTERS: LazyLock<Vec<Cluster>> = LazyLock::new(|| {
    let lines = FIGURES.lines().filter(|line| !line.starts_with('#')).skip(1);
    lines
        .map(|line| {
            Cluster::parse(line)
                .expect("the figures are part of the program, and a test reads them")
        })
        .collect()
});

/// All clusters, by number.
pub fn clusters() -> &'static [Cluster] {
    &CLUSTERS
}

/// A cluster by its number, as users write it.
pub fn cluster(number: &str) -> Result<&'static Cluster, String> {
    let found = number
        .parse()
        .ok()
        .and_then(|number: u16| CLUSTERS.iter().find(|cluster| cluster.number == number));
    found.ok_or_else(|| {
        format!("there is no cluster `{number}`: they are twitter:1 to twitter:{}", CLUSTERS.len())
    })
}

impl Cluster {
    fn parse(line: &'static str) -> Option<Cluster> {
        let mut fields = line.split(',');
        let mut number = || fields.next().map(|field| field.parse::<f64>().ok());
        let cluster = number()??;
        let [key_bytes, value_bytes, rate_kqps] = [number()?, number()?, number()?];
        let [mean_requests, one_hit_percent, alpha] = [number()?, number()?, number()?];
        let operations =
            fields.next()?.split(' ').filter_map(|operation| operation.split_once(':'));
        Some(Cluster {
            number: cluster as u16,
            key_bytes: key_bytes.map(|bytes| bytes as u32),
            value_bytes: value_bytes.map(|bytes| bytes as u32),
            rate_ops: rate_kqps.map(|kqps| kqps * 1000.0),
            mean_requests,
            one_hit_keys: one_hit_percent.map(|percent| percent / 100.0),
            alpha,
            operations: operations
                .map(|(name, share)| Some((name, share.parse().ok()?)))
                .collect::<Option<_>>()?,
        })
    }

    /// Whether the mean record fits a cache with slots of `slot_bytes` bytes.
    pub fn fits(&self, slot_bytes: u32) -> Option<bool> {
        let (key_bytes, value_bytes) = self.key_bytes.zip(self.value_bytes)?;
        Some(key_bytes as usize <= CACHED_KEY_BYTES_MAX && value_bytes <= slot_bytes)
    }

    /// A lower bound of the share of records that fit, for any distribution of lengths with the
    /// published means: at most `mean / length` of them have that length or more (Markov's
    /// inequality).
    pub fn fits_at_least(&self, slot_bytes: u32) -> Option<f64> {
        let (key_bytes, value_bytes) = self.key_bytes.zip(self.value_bytes)?;
        let too_long = |mean: u32, most: u32| f64::from(mean) / (f64::from(most) + 1.0);
        Some(
            (1.0 - too_long(key_bytes, CACHED_KEY_BYTES_MAX as u32)
                - too_long(value_bytes, slot_bytes))
            .max(0.0),
        )
    }

    /// Share of requests that go to keys used only once.
    pub fn one_hit_requests(&self) -> f64 {
        match (self.one_hit_keys, self.mean_requests) {
            (Some(keys), Some(requests)) => (keys / requests.max(1.0)).min(1.0),
            _ => 0.0,
        }
    }

    /// Number of keys that were used more than once. It isn't published, but follows from the rate,
    /// the length of the trace and the mean number of requests.
    pub fn lasting_keys(&self) -> Option<u64> {
        let keys = self.rate_ops? * TRACE_SECONDS / self.mean_requests?.max(1.0);
        Some(((keys * (1.0 - self.one_hit_keys.unwrap_or(0.0))) as u64).max(1))
    }

    /// Probability of each verb, in the order of [`Verb::ALL`]; `None` if the operations were not
    /// published.
    ///
    /// `get` and `gets` read. `set`, `replace` and `delete` write (a delete is replaced by a write,
    /// since the number of records would shrink). `add` writes if there is nothing. `cas`, `incr`,
    /// `decr`, `append` and `prepend` read and then write if the record is still the one that was
    /// read; the `gets` that a `cas` had to make is that read, and doesn't count again.
    pub(super) fn mix(&self) -> Option<[f64; Verb::ALL.len()]> {
        let share = |names: &[&str]| -> f64 {
            self.operations
                .iter()
                .filter(|(name, _)| names.contains(name))
                .map(|(_, share)| share)
                .sum()
        };
        let mut mix = [0.0; Verb::ALL.len()];
        let (gets, cas) = (share(&["gets"]), share(&["cas"]));
        mix[Verb::Read as usize] = share(&["get"]) + (gets - cas).max(0.0);
        mix[Verb::Update as usize] = share(&["set", "replace", "delete"]);
        mix[Verb::Add as usize] = share(&["add"]);
        mix[Verb::Cas as usize] = cas + share(&["incr", "decr", "append", "prepend"]);
        let sum: f64 = mix.iter().sum();
        (sum > 0.0).then(|| mix.map(|share| share / sum))
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "twitter:{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_whole() {
        let clusters = clusters();
        assert!(clusters.iter().map(|cluster| cluster.number).eq(1..=54));
        assert!(
            FIGURES.lines().take(3).any(|line| line.contains("CC BY 4.0")),
            "they are not ours"
        );
        let known = ["get", "gets", "set", "add", "cas", "incr", "delete", "prepend"];
        for cluster in clusters {
            assert!(
                cluster.operations.iter().all(|(name, _)| known.contains(name)),
                "{cluster} has an unknown operation"
            );
            let sum: f64 = cluster.operations.iter().map(|(_, share)| share).sum();
            assert!(cluster.number == 5 || (0.96..1.02).contains(&sum), "{cluster}: {sum}");
            assert!((0.0..=1.0).contains(&cluster.one_hit_requests()), "{cluster}");
        }
        let missing: Vec<_> =
            clusters.iter().filter(|c| c.alpha.is_none()).map(|c| c.number).collect();
        assert_eq!(missing, [5, 43, 46]);
        assert!(clusters[4].mix().is_none() && clusters[4].lasting_keys().is_none());
    }

    #[test]
    fn a_cluster_is_what_was_published() {
        let cluster = cluster("36").unwrap();
        assert_eq!(
            (cluster.key_bytes, cluster.value_bytes, cluster.alpha),
            (Some(23), Some(78), Some(1.2169))
        );
        // get 0.93, add 0.04, gets 0.01, cas 0.01: the cas made that gets.
        let mix = cluster.mix().unwrap();
        assert!((mix[Verb::Read as usize] - 0.93 / 0.98).abs() < 1e-12);
        assert!((mix[Verb::Add as usize] - 0.04 / 0.98).abs() < 1e-12);
        assert!((mix[Verb::Cas as usize] - 0.01 / 0.98).abs() < 1e-12);
        // 9.08 K a second for a week, 46.8 a key; 2.4 % of the keys only once.
        assert!((cluster.lasting_keys().unwrap() as f64 / 114.5e6 - 1.0).abs() < 0.01);
        assert!((cluster.one_hit_requests() - 0.024 / 46.8).abs() < 1e-12);
        // Of values of 78 B no more than 78 in 129 are longer than 128 B, and of keys of 23 B no
        // more than 23.
        assert_eq!((cluster.fits(128), cluster.fits(77)), (Some(true), Some(false)));
        assert!((cluster.fits_at_least(128).unwrap() - 28.0 / 129.0).abs() < 1e-12);
        assert_eq!((cluster.fits_at_least(64), clusters()[4].fits(128)), (Some(0.0), None));
        for wrong in ["0", "55", "x", ""] {
            assert!(self::cluster(wrong).unwrap_err().contains("twitter:54"), "{wrong}");
        }
    }
}
