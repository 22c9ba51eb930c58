//! `GET /whatif`: what each node is asked for, what reaches it, and what would with another cache.

use super::{
    AdminError, HeatStatus, HotKeyStatus, HotStatus, KeyPlace, PartitionStatus, Shared, answer,
    blocking, heat, hot,
};
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use switchback_heat::{KEYS, RANGES, SECONDS_MAX};
use switchback_wire::Scheme;

/// `GET /whatif?scheme=NAME&records=N`. Loads are in requests a second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WhatIf {
    /// The time that everything here is of, up to now.
    pub window_seconds: f64,
    /// The scheme that was asked about.
    pub scheme: String,
    /// The records that its cache would hold: the hottest.
    pub records: usize,
    /// Keys whose rates are known, and that fit a slot: `records` is no more.
    pub records_known: usize,
    /// Every node.
    pub nodes: Vec<WhatIfNode>,
    /// The busiest node, by the number of cached records.
    pub sizes: Vec<WhatIfSize>,
}

/// Part of [`WhatIf`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WhatIfNode {
    /// Its number.
    pub index: u16,
    /// Requests for its keys: its load without a cache.
    pub asked_per_s: f64,
    /// Those that a node answered: its load now.
    pub served_per_s: f64,
    /// Its load with the cache that was asked about, at its best: what is cached is what is asked
    /// for most, and a record that a write made invalid is back at once.
    pub would_serve_per_s: f64,
}

/// Part of [`WhatIf`].
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WhatIfSize {
    /// Cached records.
    pub records: usize,
    /// The largest of the nodes' loads.
    pub busiest_per_s: f64,
}

/// Which node each hash range belongs to, by shares: partitions may be smaller than ranges.
struct Owners<'a> {
    partitions: &'a [PartitionStatus],
    starts: Vec<u128>,
}

impl<'a> Owners<'a> {
    fn new(partitions: &'a [PartitionStatus]) -> Owners<'a> {
        let starts = partitions.iter().map(|partition| position(&partition.first_key));
        Owners { partitions, starts: starts.collect() }
    }

    fn head(&self, partition: usize) -> usize {
        self.partitions[partition].replicas.first().copied().unwrap_or_default().into()
    }

    fn of_key(&self, key: &HotKeyStatus) -> usize {
        let position = position(&key.hash);
        self.head(self.starts.partition_point(|start| *start <= position).saturating_sub(1))
    }

    /// Nodes, and their shares of a range.
    fn of_range(&self, range: usize) -> impl Iterator<Item = (usize, f64)> {
        const UNIT: f64 = RANGES as f64;
        let begin = |at: usize| {
            self.starts.get(at).map_or(UNIT, |start| *start as f64 / 2f64.powi(128) * UNIT)
        };
        let (from, to) = (range as f64, (range + 1) as f64);
        let overlap = move |at| (begin(at + 1).min(to) - begin(at).max(from)).max(0.0);
        (0..self.starts.len()).map(move |at| (self.head(at), overlap(at)))
    }
}

/// Hexadecimal digits of a position; what is none is 0.
fn position(digits: &str) -> u128 {
    u128::from_str_radix(digits, 16).unwrap_or_default()
}

/// Requests for a cached key that reach no node, as docs/measure/performance.md derives them: of
/// write-around, a read that follows a write goes to the node.
fn relief(scheme: Scheme, key: &HotKeyStatus) -> f64 {
    let (reads, writes) = (key.reads_per_s, key.writes_per_s);
    match scheme {
        _ if !scheme.caches() || reads + writes == 0.0 => 0.0,
        _ if scheme.absorbs_writes() => reads + writes,
        _ if scheme.refreshes() => reads,
        _ => reads * reads / (reads + writes),
    }
}

impl WhatIf {
    /// From what was asked for in the same time, by range and by key, and the map of partitions.
    pub fn new(
        heat: &HeatStatus,
        hot: &HotStatus,
        partitions: &[PartitionStatus],
        scheme: Scheme,
        records: usize,
    ) -> WhatIf {
        let owners = Owners::new(partitions);
        let heads = partitions.iter().flat_map(|partition| partition.replicas.first());
        let count = heads.max().map_or(0, |last| usize::from(*last) + 1);
        let (mut asked, mut served) = (vec![0.0; count], vec![0.0; count]);
        for range in 0..heat.ranges.min(RANGES) {
            let mean = |plane: &[Vec<f64>]| {
                let rates = plane.iter().filter_map(|column| column.get(range));
                rates.sum::<f64>() / plane.len().max(1) as f64
            };
            let reaches = mean(&heat.nodes_per_s);
            let all = mean(&heat.reads_per_s) + mean(&heat.writes_per_s);
            for (node, share) in owners.of_range(range).filter(|(_, share)| *share > 0.0) {
                asked[node] += all * share;
                served[node] += reaches * share;
            }
        }
        let never = [KeyPlace::KeyTooLong, KeyPlace::ValueTooLarge];
        let is_cacheable = |key: &&HotKeyStatus| key.cache.is_none_or(|it| !never.contains(&it));
        let keys: Vec<_> = hot.keys.iter().filter(is_cacheable).collect();
        let loads = |records: usize| {
            let mut loads = asked.clone();
            for key in keys.iter().take(records) {
                loads[owners.of_key(key)] -= relief(scheme, key);
            }
            // Rates of keys are estimates, those of ranges are not.
            loads.into_iter().map(|load| load.max(0.0)).collect::<Vec<_>>()
        };
        let size = |records| {
            let busiest_per_s = loads(records).into_iter().fold(0.0, f64::max);
            WhatIfSize { records, busiest_per_s }
        };
        let powers = (0..usize::BITS).map(|power| 1 << power).take_while(|size| *size < keys.len());
        let sizes = [0].into_iter().chain(powers).chain((!keys.is_empty()).then_some(keys.len()));
        let records = records.min(keys.len());
        let would = loads(records);
        let node = |index: usize| WhatIfNode {
            index: index as u16,
            asked_per_s: asked[index],
            served_per_s: served[index],
            would_serve_per_s: would[index],
        };
        WhatIf {
            window_seconds: hot.window_seconds,
            scheme: scheme.name().into(),
            records,
            records_known: keys.len(),
            nodes: (0..count).map(node).collect(),
            sizes: sizes.map(size).collect(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    scheme: Option<Scheme>,
    records: Option<usize>,
}

pub(super) async fn whatif(
    State(shared): State<Shared>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Response> {
    Ok(answer(what_if(&shared, wanted).await?))
}

async fn what_if(shared: &Shared, wanted: Wanted) -> Result<Result<WhatIf, AdminError>, Response> {
    let heat = heat::told(shared, SECONDS_MAX, SECONDS_MAX).await?;
    let hot = hot::told(shared, KEYS, SECONDS_MAX).await?;
    let admin = shared.admin.clone();
    let (partitions, status) = blocking(move || (admin.partitions(), admin.status())).await?;
    let scheme = wanted.scheme.or_else(|| status.scheme.parse().ok()).unwrap_or(Scheme::FarReach);
    let records = wanted.records.unwrap_or(KEYS);
    let known = heat.and_then(|heat| Ok((heat, hot?, partitions?)));
    let what_if = |(heat, hot, partitions): (_, _, Vec<_>)| {
        WhatIf::new(&heat, &hot, &partitions, scheme, records)
    };
    Ok(known.map(what_if))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partitions(heads: &[u16]) -> Vec<PartitionStatus> {
        let first = |at: usize| (at as u128) << (128 - heads.len().ilog2());
        let partition = |(at, head): (usize, &u16)| PartitionStatus {
            partition: at as u16,
            first_key: format!("{:032x}", first(at)),
            replicas: vec![*head],
            ..PartitionStatus::default()
        };
        heads.iter().enumerate().map(partition).collect()
    }

    /// Each range is asked for `of(range)`, of which a node answers half; two columns of one mean.
    fn heat(of: impl Fn(usize) -> f64) -> HeatStatus {
        let column = |part: f64| (0..RANGES).map(|range| part * of(range)).collect();
        let plane = |part: f64| vec![column(0.5 * part), column(1.5 * part)];
        HeatStatus {
            ranges: RANGES,
            reads_per_s: plane(0.75),
            writes_per_s: plane(0.25),
            nodes_per_s: plane(0.5),
            ..HeatStatus::default()
        }
    }

    fn key(range: u8, reads_per_s: f64, writes_per_s: f64, cache: KeyPlace) -> HotKeyStatus {
        let hash = format!("{range:02x}{:030x}", 7);
        let cache = Some(cache);
        HotKeyStatus { hash, range, reads_per_s, writes_per_s, cache, ..HotKeyStatus::default() }
    }

    fn loads(whatif: &WhatIf) -> Vec<f64> {
        whatif.nodes.iter().map(|node| node.would_serve_per_s).collect()
    }

    #[test]
    fn the_hottest_keys_are_taken_from_their_nodes() {
        let (map, heat) = (partitions(&[0, 1, 0, 1]), heat(|range| f64::from(range == 64) * 100.0));
        let keys = vec![
            key(64, 40.0, 20.0, KeyPlace::ValueTooLarge),
            key(64, 20.0, 10.0, KeyPlace::Cached),
            key(65, 3.0, 1.0, KeyPlace::CacheFull),
        ];
        let hot = HotStatus { keys, ..HotStatus::default() };
        let with = |scheme, records| WhatIf::new(&heat, &hot, &map, scheme, records);
        let none = with(Scheme::FarReach, 0);
        let [first, second] = &none.nodes[..] else { panic!("{none:?}") };
        assert_eq!((first.asked_per_s, second.asked_per_s), (0.0, 100.0));
        assert_eq!((first.served_per_s, second.served_per_s), (0.0, 50.0));
        assert_eq!((loads(&none), none.records_known), (vec![0.0, 100.0], 2));
        assert_eq!(loads(&with(Scheme::FarReach, 1)), [0.0, 70.0]);
        assert_eq!(loads(&with(Scheme::FarReach, 9)), [0.0, 66.0]);
        assert_eq!(loads(&with(Scheme::NetCache, 1)), [0.0, 80.0]);
        assert_eq!(loads(&with(Scheme::WriteAround, 1)), [0.0, 100.0 - 20.0 * 20.0 / 30.0]);
        assert_eq!(loads(&with(Scheme::NoCache, 9)), [0.0, 100.0]);
        let sizes: Vec<_> =
            none.sizes.iter().map(|size| (size.records, size.busiest_per_s)).collect();
        assert_eq!(sizes, [(0, 100.0), (1, 70.0), (2, 66.0)]);
    }

    #[test]
    fn a_range_of_several_partitions_is_shared_by_their_nodes() {
        let heads: Vec<_> = (0..1024).map(|partition| u16::from(partition % 4 == 3)).collect();
        let map = partitions(&heads);
        let whatif = WhatIf::new(&heat(|_| 4.0), &HotStatus::default(), &map, Scheme::NoCache, 0);
        assert_eq!(loads(&whatif), [3.0 * 256.0, 256.0]);
        assert_eq!(whatif.sizes.len(), 1);
    }
}
