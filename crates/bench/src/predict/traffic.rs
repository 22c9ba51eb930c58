//! The load of a key-value store, from a trace or from published figures.

use super::tally::Count;
use super::trace::Trace;
use crate::limit::KeyShare;
use crate::workload::{Cluster, Demand, Workload, ZipfShares};
use anyhow::Context as _;
use switchback_wire::{CACHED_KEY_BYTES_MAX, HashKey, KeyHash};

/// The load of a key-value store.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) source: String,
    /// Requests that an operation on a key makes.
    pub(super) demand: Demand,
    /// Keys, the hottest first, by hashes under a key that no rack has.
    pub(super) keys: Vec<KeyShare>,
    /// Number of operations on keys in the trace; `None`: there is no trace.
    pub(super) operations: Option<u64>,
    pub(super) seconds: Option<f64>,
    pub(super) distinct_keys: u64,
    /// Whether `keys` has all of them.
    pub(super) all_keys_counted: bool,
    /// Share of the requests for keys that a cache can hold.
    pub(super) cacheable_share: f64,
    /// Notes on what is assumed, left out or approximated.
    pub(super) notes: Vec<String>,
}

/// A part of a whole; 0 if the whole is 0.
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Traffic {
    /// The load of a trace, on slots of `slot_bytes`.
    pub(super) fn of_trace(source: String, trace: Trace, slot_bytes: u64) -> Traffic {
        let Trace { tally, times, unserved, cut_off } = trace;
        let (operations, reads, writes) = (tally.operations, tally.reads, tally.writes);
        let (forgotten_max, keys_max) = (tally.forgotten_max, tally.keys_max);
        let counts = tally.hottest_first();
        let mut notes = Vec::new();
        if !unserved.is_empty() {
            let sum: u64 = unserved.values().sum();
            let mut names: Vec<_> = unserved.iter().collect();
            names.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let names: Vec<_> =
                names.iter().take(6).map(|(name, count)| format!("{name} {count}")).collect();
            let percent = 100.0 * share(sum, sum + operations);
            notes.push(format!(
                "{percent:.1} % of the commands are none that Switchback serves, and left out: {}",
                names.join(", ")
            ));
        }
        let unsized_requests: u64 = counts
            .iter()
            .filter(|(_, count)| count.value_bytes.is_none())
            .map(|(_, count)| count.requests())
            .sum();
        if unsized_requests > 0 {
            let percent = 100.0 * share(unsized_requests, reads + writes);
            notes.push(format!(
                "{percent:.1} % of the requests are for keys whose values' length the trace doesn't tell; taken to fit"
            ));
        }
        if forgotten_max > 0 {
            notes.push(format!(
                "more keys than are counted one by one (--keys-max): a key's count may lack \
                 {forgotten_max} requests, which count as those of cold keys, spread evenly; so \
                 limits with a cache are rather too low"
            ));
        }
        if cut_off {
            notes.push("the file ends within a line, which is left out".to_owned());
        }
        let fits = |count: &Count| {
            count.key_fits && count.value_bytes.is_none_or(|bytes| bytes <= slot_bytes)
        };
        let requests = |fitting: bool| -> u64 {
            counts
                .iter()
                .filter(|(_, count)| !fitting || fits(count))
                .map(|(_, count)| count.requests())
                .sum()
        };
        let key = |(hash, count): &(KeyHash, Count)| KeyShare {
            hash: *hash,
            reads: share(count.reads, reads),
            writes: share(count.writes, writes),
            cacheable: fits(count),
        };
        Traffic {
            source,
            demand: Demand { reads: share(reads, operations), writes: share(writes, operations) },
            distinct_keys: if forgotten_max == 0 { counts.len() as u64 } else { keys_max as u64 },
            all_keys_counted: forgotten_max == 0,
            cacheable_share: share(requests(true), requests(false)),
            keys: counts.iter().map(key).collect(),
            operations: Some(operations),
            seconds: times.map(|(first, last)| last - first).filter(|seconds| *seconds > 0.0),
            notes,
        }
    }

    /// The load that the published figures of a cluster describe, with its `exact` hottest keys one
    /// by one.
    pub(super) fn of_cluster(
        cluster: &'static Cluster,
        zipf: Option<f64>,
        slot_bytes: u64,
        exact_keys: u64,
    ) -> anyhow::Result<Traffic> {
        let workload: Workload = cluster.to_string().parse().map_err(anyhow::Error::msg)?;
        let alpha = zipf.or(cluster.alpha);
        let alpha = alpha
            .with_context(|| format!("of {cluster} no Zipf exponent was published: give --zipf"))?;
        let unknown = |what| format!("of {cluster} no {what} was published");
        let records = cluster.lasting_keys().with_context(|| unknown("number of keys"))?;
        let key_bytes = cluster.key_bytes.with_context(|| unknown("length of keys"))?;
        let value_bytes = cluster.value_bytes.with_context(|| unknown("length of values"))?;
        let cacheable =
            key_bytes as usize <= CACHED_KEY_BYTES_MAX && u64::from(value_bytes) <= slot_bytes;
        let (shares, lasting) = (ZipfShares::new(records, alpha), 1.0 - workload.one_hit());
        let names = HashKey(*b"switchback ranks");
        let key = |rank: u64| {
            let share = shares.share(rank) * lasting;
            KeyShare {
                hash: names.hash(&rank.to_be_bytes()),
                reads: share,
                writes: share,
                cacheable,
            }
        };
        let mut notes = vec![format!(
            "mean figures (Yang et al., OSDI 2020; CC BY 4.0): Zipf {alpha}, keys of {key_bytes} \
             B, values of {value_bytes} B, {} (operations below 1 % weren't published); all values \
             are taken to have the mean length, and all keys to be read and written alike",
            workload.describe()
        )];
        notes.push(format!(
            "{:.1} % of the requests are for keys that are used only once; the number of the others follows from the published rate",
            100.0 * workload.one_hit()
        ));
        Ok(Traffic {
            source: cluster.to_string(),
            demand: workload.demand(),
            keys: (0..records.min(exact_keys)).map(key).collect(),
            operations: None,
            seconds: None,
            distinct_keys: records,
            all_keys_counted: true,
            cacheable_share: if cacheable { 1.0 } else { 0.0 },
            notes,
        })
    }
}
