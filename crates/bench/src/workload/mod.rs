//! Workloads: the sequence of verbs and records, and the contents of values. Pure: no clock, no
//! I/O, and determined by the seed, so that wall-clock runs and virtual-time experiments have
//! exactly the same requests.

mod keys;
mod lengths;
mod popularity;
mod requests;
pub mod twitter;
mod zipf;

pub(crate) use keys::mix;
pub use keys::{KEY_BYTES, KeySpace, PRELOADED, Preload, STAMP_BYTES, Stamp, ValueError};
pub use lengths::{Lengths, VALUE_BYTES, ValueBytes, is_cacheable};
pub use popularity::{Change, Pattern, Popularity};
pub use requests::{Request, Requests};
pub use twitter::Cluster;
pub use zipf::{Zipf, ZipfShares};

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// An operation on a record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verb {
    /// Reads it.
    Read,
    /// Writes it; it exists.
    Update,
    /// Writes it; it doesn't exist yet.
    Insert,
    /// Reads it, then writes it: two requests, one operation (YCSB's F).
    Rmw,
    /// Writes it if it doesn't exist: one conditional write.
    Add,
    /// Reads it, then writes it if its version is still the one that was read: a read and a
    /// conditional write.
    Cas,
}

impl Verb {
    /// All of them.
    pub const ALL: [Verb; 6] =
        [Verb::Read, Verb::Update, Verb::Insert, Verb::Rmw, Verb::Add, Verb::Cas];

    /// As reports spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Update => "update",
            Verb::Insert => "insert",
            Verb::Rmw => "rmw",
            Verb::Add => "add",
            Verb::Cas => "cas",
        }
    }
}

/// A mix of operations and a way to choose records.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workload {
    /// Inserts only, into an empty rack.
    Load,
    /// Half reads, half updates; Zipf.
    A,
    /// 95 % reads, 5 % updates; Zipf.
    B,
    /// Reads only; Zipf.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// Half reads, half read-modify-writes; Zipf.
    F,
    /// This percentage of updates, the rest reads; Zipf.
    Mix(f64),
    /// The published mix of a cluster whose operations are known; Zipf, and keys that are used only
    /// once.
    Twitter(&'static Cluster),
}

/// Requests that one operation makes, on average.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Demand {
    /// Reads.
    pub reads: f64,
    /// Writes.
    pub writes: f64,
}

impl Workload {
    /// Probability of each verb, in the order of [`Verb::ALL`].
    pub fn mix(self) -> [f64; Verb::ALL.len()] {
        let [read, update, insert, rmw] = match self {
            Workload::Load => [0.0, 0.0, 1.0, 0.0],
            Workload::A => [0.5, 0.5, 0.0, 0.0],
            Workload::B => [0.95, 0.05, 0.0, 0.0],
            Workload::C => [1.0, 0.0, 0.0, 0.0],
            Workload::D => [0.95, 0.0, 0.05, 0.0],
            Workload::F => [0.5, 0.0, 0.0, 0.5],
            Workload::Mix(percent) => [1.0 - percent / 100.0, percent / 100.0, 0.0, 0.0],
            Workload::Twitter(cluster) => return cluster.mix().expect("its operations are known"),
        };
        [read, update, insert, rmw, 0.0, 0.0]
    }

    /// Requests that one operation makes.
    pub fn demand(self) -> Demand {
        let [read, update, insert, rmw, add, cas] = self.mix();
        Demand { reads: read + rmw + cas, writes: update + insert + rmw + add + cas }
    }

    /// Share of operations on keys that are used only once.
    pub fn one_hit(self) -> f64 {
        match self {
            Workload::Twitter(cluster) => cluster.one_hit_requests(),
            _ => 0.0,
        }
    }

    /// Whether the hot records stay the same while popularity isn't changed: not for inserts and
    /// read-latest.
    pub fn is_static(self) -> bool {
        !matches!(self, Workload::Load | Workload::D)
    }

    /// Whether reads choose among the newest records.
    pub fn reads_latest(self) -> bool {
        self == Workload::D
    }

    /// A description in words.
    pub fn describe(self) -> String {
        let mix = self.mix();
        let parts = Verb::ALL.iter().zip(mix).filter(|(_, share)| *share > 0.0);
        let parts: Vec<_> = parts
            .map(|(verb, share)| format!("{} % {}", (share * 1000.0).round() / 10.0, verb.name()))
            .collect();
        parts.join(", ")
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Workload::Load => f.write_str("load"),
            Workload::A => f.write_str("a"),
            Workload::B => f.write_str("b"),
            Workload::C => f.write_str("c"),
            Workload::D => f.write_str("d"),
            Workload::F => f.write_str("f"),
            Workload::Mix(percent) => write!(f, "mix:{percent}"),
            Workload::Twitter(cluster) => write!(f, "{cluster}"),
        }
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(name: &str) -> Result<Workload, String> {
        let wanted = "a workload is load, a, b, c, d, f, mix:WRITE_PERCENT (mix:25) or twitter:CLUSTER (twitter:36)";
        match name.to_ascii_lowercase().as_str() {
            "load" | "insert" => Ok(Workload::Load),
            "a" => Ok(Workload::A),
            "b" => Ok(Workload::B),
            "c" => Ok(Workload::C),
            "d" => Ok(Workload::D),
            "e" => Err(format!("workload e scans ranges, which no cache serves; {wanted}")),
            "f" => Ok(Workload::F),
            other if other.starts_with("twitter:") => {
                let cluster = twitter::cluster(&other["twitter:".len()..])?;
                match cluster.mix() {
                    Some(_) => Ok(Workload::Twitter(cluster)),
                    None => Err(format!("of {cluster} no figures were published")),
                }
            }
            other => {
                let percent =
                    other.strip_prefix("mix:").and_then(|percent| percent.parse::<f64>().ok());
                match percent {
                    Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Workload::Mix(percent)),
                    Some(percent) => Err(format!("{percent} % of writes? It is 0 to 100")),
                    None => Err(wanted.to_owned()),
                }
            }
        }
    }
}

/// The parameters that determine all requests.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// The mix.
    pub workload: Workload,
    /// Zipf exponent; 0 is uniform.
    pub theta: f64,
    /// Records that are stored before the run (for `load`: none are; it is the number that the
    /// limit assumes).
    pub records: u64,
    /// How long values are.
    pub value_bytes: ValueBytes,
    /// How popularity changes, if it does.
    pub change: Option<Change>,
    /// The seed of everything.
    pub seed: u64,
}

impl WorkloadSpec {
    /// Number of records that are stored before a run.
    pub fn preloaded(&self) -> u64 {
        if self.workload == Workload::Load { 0 } else { self.records }
    }

    /// The popularity before any change.
    pub fn popularity(&self) -> Popularity {
        Popularity::new(self.records, self.workload.reads_latest(), self.change, self.seed)
    }

    /// The requests of client `client` of `clients`.
    pub fn requests(&self, client: u32, clients: u32) -> Requests {
        Requests::new(self, client, clients)
    }

    /// The length of each record's value.
    pub fn lengths(&self) -> Lengths {
        Lengths::new(self.value_bytes.clone(), self.seed)
    }

    /// The indexes of the `count` hottest records that a cache takes, hottest first.
    pub fn hottest(&self, count: u64) -> impl Iterator<Item = u64> {
        let (popularity, lengths) = (self.popularity(), self.lengths());
        let ranks = if self.value_bytes.cacheable_share() > 0.0 { self.preloaded() } else { 0 };
        (0..ranks)
            .map(move |rank| popularity.index(rank))
            .filter(move |index| lengths.is_cacheable(*index))
            .take(count as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "load",
            "a",
            "b",
            "c",
            "d",
            "f",
            "mix:0",
            "mix:25",
            "mix:12.5",
            "mix:100",
            "twitter:36",
        ] {
            assert_eq!(name.parse::<Workload>().unwrap().to_string(), name);
        }
        for name in [
            "",
            "e",
            "g",
            "mix",
            "mix:",
            "mix:101",
            "mix:-1",
            "mix:x",
            "mix:NaN",
            "twitter:",
            "twitter:5",
            "twitter:55",
        ] {
            assert!(name.parse::<Workload>().is_err(), "{name}");
        }
    }

    #[test]
    fn shares_of_verbs_add_up() {
        for name in ["load", "a", "b", "c", "d", "f", "mix:33", "twitter:22", "twitter:36"] {
            let workload: Workload = name.parse().unwrap();
            assert!((workload.mix().iter().sum::<f64>() - 1.0).abs() < 1e-12);
        }
        assert_eq!(Workload::F.demand(), Demand { reads: 1.0, writes: 0.5 });
        // get 0.72, incr 0.18, set 0.10: an incr reads, too.
        let Demand { reads, writes } = "twitter:22".parse::<Workload>().unwrap().demand();
        assert!((reads - 0.9).abs() < 1e-12 && (writes - 0.28).abs() < 1e-12, "{reads} {writes}");
        assert_eq!(Workload::Mix(25.0).describe(), "75 % read, 25 % update");
    }
}
