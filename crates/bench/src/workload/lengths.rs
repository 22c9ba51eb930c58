//! Lengths of values: one for all keys, or each key its own.

use super::{ZipfShares, mix};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use switchback_wire::CACHED_VALUE_BYTES_MAX;

/// Shortest and longest value that can be asked for.
pub const VALUE_BYTES: (usize, usize) = (1, 1 << 16);
/// Exponent of `zipfian`: YCSB's.
const THETA: f64 = 0.99;
/// Keeps a record's length independent of what else is drawn by its index.
const SALT: u64 = 0x6c65_6e67_7468_7321;

/// Whether slots of the cache take values of this length.
pub fn is_cacheable(value_bytes: usize) -> bool {
    value_bytes <= CACHED_VALUE_BYTES_MAX
}

/// A distribution of lengths, of the kinds that YCSB has as `fieldlengthdistribution`:
///
/// | as text | lengths |
/// | --- | --- |
/// | `128` | all alike (`constant`) |
/// | `uniform:1..65536` | each from the first to the last as often |
/// | `zipfian:1..65536` | the shortest most often, the n-th shortest n^-0.99 times as often |
/// | `128:9,4096:1` | these, by their weights (`histogram`) |
#[derive(Clone, PartialEq, Debug)]
pub struct ValueBytes {
    text: String,
    /// By length.
    steps: Arc<[Step]>,
}

/// A length that occurs.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Step {
    bytes: usize,
    /// The share of the keys that has it.
    share: f64,
    /// The share that has it or a shorter one.
    until: f64,
}

impl ValueBytes {
    /// All values have this length.
    pub fn constant(bytes: usize) -> ValueBytes {
        ValueBytes::weighted(bytes.to_string(), [(bytes, 1.0)])
    }

    /// Lengths in ascending order with their weights.
    fn weighted(text: String, lengths: impl IntoIterator<Item = (usize, f64)>) -> ValueBytes {
        let lengths: Vec<_> = lengths.into_iter().collect();
        let sum: f64 = lengths.iter().map(|(_, weight)| weight).sum();
        let mut until = 0.0;
        let step = |(bytes, weight): (usize, f64)| {
            until += weight / sum;
            Step { bytes, share: weight / sum, until }
        };
        ValueBytes { text, steps: lengths.into_iter().map(step).collect() }
    }

    /// The longest of all.
    pub fn longest(&self) -> usize {
        self.steps.last().expect("there is a length").bytes
    }

    /// The mean over the keys of something that follows from the length.
    pub fn mean(&self, of: impl Fn(usize) -> f64) -> f64 {
        self.steps.iter().map(|step| step.share * of(step.bytes)).sum()
    }

    /// The share of the keys that a cache takes.
    pub fn cacheable_share(&self) -> f64 {
        self.mean(|bytes| f64::from(u8::from(is_cacheable(bytes))))
    }

    /// The one length, if all are alike.
    pub fn only(&self) -> Option<usize> {
        (self.steps.len() == 1).then(|| self.steps[0].bytes)
    }
}

impl fmt::Display for ValueBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for ValueBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.only() {
            Some(bytes) => serializer.serialize_u64(bytes as u64),
            None => serializer.collect_str(self),
        }
    }
}

fn length(text: &str) -> Result<usize, String> {
    let (from, to) = VALUE_BYTES;
    match text.parse() {
        Ok(bytes) if (from..=to).contains(&bytes) => Ok(bytes),
        Ok(bytes) => Err(format!("{bytes} B? A length is {from} to {to}")),
        Err(_) => Err(format!(
            "`{text}` is no length; lengths are N, uniform:MIN..MAX, zipfian:MIN..MAX or N:WEIGHT,N:WEIGHT,..."
        )),
    }
}

/// Every length of `MIN..MAX`, both ends included, as YCSB has it.
fn range(text: &str) -> Result<std::ops::RangeInclusive<usize>, String> {
    let (from, to) = text.split_once("..").ok_or_else(|| format!("`{text}` is not MIN..MAX"))?;
    let (from, to) = (length(from)?, length(to)?);
    if from > to {
        return Err(format!("{from} is more than {to}"));
    }
    Ok(from..=to)
}

impl FromStr for ValueBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<ValueBytes, String> {
        let weighted = |lengths: Vec<(usize, f64)>| ValueBytes::weighted(text.to_owned(), lengths);
        if let Some(ends) = text.strip_prefix("uniform:") {
            return Ok(weighted(range(ends)?.map(|bytes| (bytes, 1.0)).collect()));
        }
        if let Some(ends) = text.strip_prefix("zipfian:") {
            let lengths = range(ends)?;
            let shares = ZipfShares::new(lengths.clone().count() as u64, THETA);
            let share = |(rank, bytes)| (bytes, shares.share(rank));
            return Ok(weighted((0..).zip(lengths).map(share).collect()));
        }
        if !text.contains(':') {
            return Ok(ValueBytes::constant(length(text)?));
        }
        let step = |step: &str| {
            let (bytes, weight) = step.split_once(':').ok_or(format!("`{step}` has no weight"))?;
            match weight.parse::<f64>() {
                Ok(weight) if weight > 0.0 && weight.is_finite() => Ok((length(bytes)?, weight)),
                _ => Err(format!("a weight is a number above 0, not `{weight}`")),
            }
        };
        let mut lengths = text.split(',').map(step).collect::<Result<Vec<_>, String>>()?;
        lengths.sort_by_key(|(bytes, _)| *bytes);
        if let Some(twice) = lengths.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("{} B is there twice", twice[0].0));
        }
        Ok(weighted(lengths))
    }
}

/// The length of each record's value. It follows from seed and index, so that a key keeps it.
#[derive(Clone, PartialEq, Debug)]
pub struct Lengths {
    distribution: ValueBytes,
    seed: u64,
}

impl Lengths {
    /// Those of the records of this seed.
    pub fn new(distribution: ValueBytes, seed: u64) -> Lengths {
        Lengths { distribution, seed: mix(seed ^ SALT) }
    }

    /// All alike.
    pub fn constant(bytes: usize) -> Lengths {
        Lengths::new(ValueBytes::constant(bytes), 0)
    }

    /// The length of the value of record `index`: the distribution's quantile at a number in 0 to 1
    /// that follows from seed and index.
    #[inline]
    pub fn of(&self, index: u64) -> usize {
        if let Some(bytes) = self.only() {
            return bytes;
        }
        let steps = &self.distribution.steps;
        let draw = mix(self.seed ^ mix(index.wrapping_add(SALT)));
        let quantile = (draw >> 11) as f64 / (1u64 << 53) as f64;
        let at = steps.partition_point(|step| step.until <= quantile);
        steps[at.min(steps.len() - 1)].bytes
    }

    /// The one length, if all are alike.
    #[inline]
    pub fn only(&self) -> Option<usize> {
        self.distribution.only()
    }

    /// Whether a cache takes record `index`.
    #[inline]
    pub fn is_cacheable(&self, index: u64) -> bool {
        is_cacheable(self.of(index))
    }

    /// The longest of all.
    pub fn longest(&self) -> usize {
        self.distribution.longest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ValueBytes {
        text.parse().unwrap()
    }

    #[test]
    fn a_distribution_is_read_as_it_is_written() {
        for text in ["128", "uniform:1..65536", "zipfian:16..1024", "128:0.9,4096:0.09,65536:0.01"]
        {
            assert_eq!(parse(text).to_string(), text);
        }
        assert_eq!(serde_json::to_string(&parse("128")).unwrap(), "128");
        assert_eq!(serde_json::to_string(&parse("uniform:1..2")).unwrap(), "\"uniform:1..2\"");
        for (text, reason) in [
            ("", "no length"),
            ("0", "1 to 65536"),
            ("65537", "1 to 65536"),
            ("uniform:9", "MIN..MAX"),
            ("uniform:9..8", "more than"),
            ("zipfian:0..8", "1 to 65536"),
            ("normal:1..8", "a weight is"),
            ("128:1,4096", "no weight"),
            ("128:1,4096:0", "above 0"),
            ("128:1,4096:inf", "above 0"),
            ("128:1,128:2", "twice"),
        ] {
            let error = text.parse::<ValueBytes>().unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_key_keeps_its_length_and_lengths_come_in_their_shares() {
        let drawn = |text: &str| Lengths::new(parse(text), 1);
        let list = drawn("4096:9,128:90,65536:1");
        let count = |bytes| (0..100_000).filter(|&index| list.of(index) == bytes).count() as f64;
        for (bytes, share) in [(128, 0.9), (4096, 0.09), (65_536, 0.01)] {
            assert!((count(bytes) / 100_000.0 - share).abs() < 0.004, "{bytes}: {}", count(bytes));
        }
        let of = |lengths: &Lengths| (0..1000).map(|index| lengths.of(index)).collect::<Vec<_>>();
        assert_eq!(of(&list), of(&list.clone()));
        assert_ne!(of(&list), of(&Lengths::new(parse("4096:9,128:90,65536:1"), 2)));

        let uniform = drawn("uniform:1..65536");
        let mean = (0..100_000).map(|index| uniform.of(index)).sum::<usize>() as f64 / 1e5;
        assert!((mean / 32_768.5 - 1.0).abs() < 0.01, "{mean}");
        assert!((parse("uniform:1..65536").mean(|bytes| bytes as f64) - 32_768.5).abs() < 1e-6);
        assert!((0..100_000).all(|index| (1..=65_536).contains(&uniform.of(index))));

        let zipfian = drawn("zipfian:100..199");
        let of_length = |bytes| (0..100_000).filter(|&i| zipfian.of(i) == bytes).count() as f64;
        let ratio = of_length(100) / of_length(109);
        assert!((ratio / 10f64.powf(0.99) - 1.0).abs() < 0.1, "{ratio}");
        assert!((0..1000).all(|index| Lengths::constant(77).of(index) == 77));
    }

    #[test]
    fn what_no_slot_takes_is_not_cacheable() {
        assert!(is_cacheable(1168) && !is_cacheable(1169));
        let lengths = parse("1168:3,1169:1");
        assert!((lengths.cacheable_share() - 0.75).abs() < 1e-9 && lengths.longest() == 1169);
        assert_eq!((parse("1168").cacheable_share(), parse("1169").cacheable_share()), (1.0, 0.0));
    }
}
