//! `GET /whatif`: what each node is asked for, what reaches it, and what would with another cache
//! or another number of nodes.

use super::{
    AdminError, HeatStatus, HotKeyStatus, HotStatus, KeyPlace, PartitionStatus, ServerState,
    answer, blocking, heat, hot,
};
use axum::extract::{Query, State};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use switchback_core::controller::deal_partitions;
use switchback_heat::{KEYS, RANGES, SECONDS_MAX};
use switchback_wire::Scheme;

/// `GET /whatif?scheme=NAME&records=N&nodes=M`. Loads are in requests a second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WhatIf {
    /// The time that everything here is of, up to now.
    pub window_seconds: f64,
    /// The scheme that was asked about.
    pub scheme: String,
    /// Those that can be asked about.
    #[serde(default)]
    pub schemes: Vec<WhatIfScheme>,
    /// The records that its cache would hold: the hottest.
    pub records: usize,
    /// Keys whose rates are known, and that fit a slot: `records` is no more.
    pub records_known: usize,
    /// How many nodes there are.
    pub nodes_now: usize,
    /// The number of nodes that was asked about.
    pub nodes_asked: usize,
    /// Every node, those that there are and those that would be.
    pub nodes: Vec<WhatIfNode>,
    /// The busiest node, by the number of cached records.
    pub sizes: Vec<WhatIfSize>,
}

/// Part of [`WhatIf`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WhatIfScheme {
    /// Its name, as it is asked about.
    pub name: String,
    /// The usual name of its caching policy.
    pub policy: String,
}

/// Part of [`WhatIf`].
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WhatIfNode {
    /// Its number.
    pub index: u16,
    /// Requests for its keys: its load without a cache. 0 if there is no such node now.
    pub asked_per_s: f64,
    /// Those that a node answered: its load now. 0 if there is no such node now.
    pub served_per_s: f64,
    /// Its load with the nodes and the cache that was asked about, at its best: what is cached is
    /// what is asked for most, and a record that a write made invalid is back at once.
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
pub struct Owners {
    /// The heads of the partitions, in the order of their ranges.
    heads: Vec<usize>,
    starts: Vec<u128>,
}

impl Owners {
    /// By the map of a rack.
    pub fn of_map(partitions: &[PartitionStatus]) -> Owners {
        let starts = partitions.iter().map(|partition| position(&partition.first_key));
        let head = |partition: &PartitionStatus| partition.replicas.first().copied();
        let heads = partitions.iter().map(|it| head(it).unwrap_or_default().into());
        Owners { heads: heads.collect(), starts: starts.collect() }
    }

    /// By a map that a new rack of that many nodes could be dealt, with as many partitions; at most
    /// a node a partition. Real ones are drawn at random: this one is always the same.
    fn of_nodes(nodes: usize, partitions: usize) -> Owners {
        let nodes = nodes.clamp(1, partitions) as u16;
        let map = deal_partitions((nodes, 1), 1, partitions as u32, 0);
        let of = |it: &switchback_wire::Partition| (usize::from(it.replicas[0]), it.start.0);
        let (heads, starts) = map.partitions().iter().map(of).unzip();
        Owners { heads, starts }
    }

    /// The number of nodes.
    fn nodes(&self) -> usize {
        self.heads.iter().max().map_or(0, |last| last + 1)
    }

    /// What nodes are asked for, if each range is asked for that often.
    fn loads(&self, ranges: &[f64]) -> Vec<f64> {
        let mut loads = vec![0.0; self.nodes()];
        for (range, rate) in ranges.iter().enumerate() {
            for (node, share) in self.of_range(range).filter(|(_, share)| *share > 0.0) {
                loads[node] += rate * share;
            }
        }
        loads
    }

    fn of_key(&self, key: &HotKeyStatus) -> usize {
        let position = position(&key.hash);
        self.heads[self.starts.partition_point(|start| *start <= position).saturating_sub(1)]
    }

    /// Nodes, and their shares of a range.
    fn of_range(&self, range: usize) -> impl Iterator<Item = (usize, f64)> {
        const UNIT: f64 = RANGES as f64;
        let begin = |at: usize| {
            self.starts.get(at).map_or(UNIT, |start| *start as f64 / 2f64.powi(128) * UNIT)
        };
        let (from, to) = (range as f64, (range + 1) as f64);
        let overlap = move |at| (begin(at + 1).min(to) - begin(at).max(from)).max(0.0);
        (0..self.starts.len()).map(move |at| (self.heads[at], overlap(at)))
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
    /// From what was asked for in the same time, by range and by key, and whose keys those are,
    /// `now` and with the nodes that are asked about.
    pub fn new(
        heat: &HeatStatus,
        hot: &HotStatus,
        now: &Owners,
        then: &Owners,
        scheme: Scheme,
        records: usize,
    ) -> WhatIf {
        let ranges = 0..heat.ranges.min(RANGES);
        let mean = |plane: &[Vec<f64>], range: usize| {
            let rates = plane.iter().filter_map(|column| column.get(range));
            rates.sum::<f64>() / plane.len().max(1) as f64
        };
        let all = |range| mean(&heat.reads_per_s, range) + mean(&heat.writes_per_s, range);
        let all: Vec<_> = ranges.clone().map(all).collect();
        let reaches: Vec<_> = ranges.map(|range| mean(&heat.nodes_per_s, range)).collect();
        let (asked, served) = (now.loads(&all), now.loads(&reaches));
        let uncached = then.loads(&all);
        let never = [KeyPlace::KeyTooLong, KeyPlace::ValueTooLarge];
        let is_cacheable = |key: &&HotKeyStatus| key.cache.is_none_or(|it| !never.contains(&it));
        let keys: Vec<_> = hot.keys.iter().filter(is_cacheable).collect();
        let loads = |records: usize| {
            let mut loads = uncached.clone();
            for key in keys.iter().take(records) {
                loads[then.of_key(key)] -= relief(scheme, key);
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
        let load = |loads: &[f64], index: usize| loads.get(index).copied().unwrap_or(0.0);
        let node = |index: usize| WhatIfNode {
            index: index as u16,
            asked_per_s: load(&asked, index),
            served_per_s: load(&served, index),
            would_serve_per_s: load(&would, index),
        };
        let named =
            |it: Scheme| WhatIfScheme { name: it.name().into(), policy: it.policy().into() };
        WhatIf {
            window_seconds: hot.window_seconds,
            scheme: scheme.name().into(),
            schemes: Scheme::ALL.map(named).to_vec(),
            records,
            records_known: keys.len(),
            nodes_now: asked.len(),
            nodes_asked: would.len(),
            nodes: (0..asked.len().max(would.len())).map(node).collect(),
            sizes: sizes.map(size).collect(),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Wanted {
    scheme: Option<Scheme>,
    records: Option<usize>,
    nodes: Option<usize>,
}

pub(super) async fn whatif(
    State(shared): State<ServerState>,
    Query(wanted): Query<Wanted>,
) -> Result<Response, Response> {
    Ok(answer(what_if(&shared, wanted).await?))
}

async fn what_if(
    shared: &ServerState,
    wanted: Wanted,
) -> Result<Result<WhatIf, AdminError>, Response> {
    let heat = heat::told(shared, SECONDS_MAX, SECONDS_MAX).await?;
    let hot = hot::told(shared, KEYS, SECONDS_MAX).await?;
    let admin = shared.admin.clone();
    let (partitions, status) = blocking(move || (admin.partitions(), admin.status())).await?;
    let scheme = wanted.scheme.or_else(|| status.scheme.parse().ok()).unwrap_or(Scheme::FarReach);
    let records = wanted.records.unwrap_or(KEYS);
    let known = heat.and_then(|heat| Ok((heat, hot?, partitions?)));
    let what_if = |(heat, hot, partitions): (_, _, Vec<_>)| {
        let now = Owners::of_map(&partitions);
        let wanted = wanted.nodes.filter(|nodes| *nodes != now.nodes() && !partitions.is_empty());
        let then = wanted.map(|nodes| Owners::of_nodes(nodes, partitions.len()));
        WhatIf::new(&heat, &hot, &now, then.as_ref().unwrap_or(&now), scheme, records)
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
        let owners = Owners::of_map(&map);
        let with = |scheme, records| WhatIf::new(&heat, &hot, &owners, &owners, scheme, records);
        let none = with(Scheme::FarReach, 0);
        let [first, second] = &none.nodes[..] else { panic!("{none:?}") };
        assert_eq!((first.asked_per_s, second.asked_per_s), (0.0, 100.0));
        assert_eq!((first.served_per_s, second.served_per_s), (0.0, 50.0));
        assert_eq!((loads(&none), none.records_known), (vec![0.0, 100.0], 2));
        let policy = |name| none.schemes.iter().find(|it| it.name == name).map(|it| &it.policy[..]);
        assert_eq!((policy("netcache"), none.schemes.len()), (Some("write-through"), 6));
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
        let owners = Owners::of_map(&partitions(&heads));
        let hot = HotStatus::default();
        let whatif = WhatIf::new(&heat(|_| 4.0), &hot, &owners, &owners, Scheme::NoCache, 0);
        assert_eq!(loads(&whatif), [3.0 * 256.0, 256.0]);
        assert_eq!(whatif.sizes.len(), 1);
    }

    #[test]
    fn other_nodes_share_what_there_is() {
        let now = Owners::of_map(&partitions(&[0, 1, 0, 1]));
        let with = |nodes| {
            let then = Owners::of_nodes(nodes, 256);
            let hot = HotStatus {
                keys: vec![key(9, 24.0, 8.0, KeyPlace::Cached)],
                ..HotStatus::default()
            };
            WhatIf::new(&heat(|_| 4.0), &hot, &now, &then, Scheme::FarReach, 1)
        };
        let four = with(4);
        assert_eq!((four.nodes_now, four.nodes_asked, four.nodes.len()), (2, 4, 4));
        let asked = four.nodes.iter().map(|node| node.asked_per_s);
        assert_eq!(asked.collect::<Vec<_>>(), [512.0, 512.0, 0.0, 0.0]);
        let mut would = loads(&four);
        would.sort_by(f64::total_cmp);
        assert_eq!(would, [256.0 - 32.0, 256.0, 256.0, 256.0]);
        assert_eq!(four.sizes[0].busiest_per_s, 256.0);
        let one = with(1);
        assert_eq!((one.nodes_asked, one.nodes.len()), (1, 2));
        assert_eq!(loads(&one), [1024.0 - 32.0, 0.0]);
        // A partition isn't divided, and no number is refused.
        assert_eq!((with(0).nodes_asked, with(10_000).nodes_asked), (1, 256));
    }
}
