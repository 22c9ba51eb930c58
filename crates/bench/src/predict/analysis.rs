//! Limits of each scheme for some traffic, and what follows from them.

use super::traffic::Traffic;
use crate::limit::{KeyShare, Limit, Placement, Policy};
use crate::report::Spread;
use crate::workload::{Demand, mix};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use switchback_wire::{HashKey, PerScheme, Scheme};

/// A smaller gain doesn't count: random maps differ by as much.
pub const GAIN_MIN: f64 = 1.1;
/// The load counts as even if the rack reaches this share of the throughput that it would have with
/// equally busy nodes.
const EVEN: f64 = 0.95;

/// The hypothetical rack.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(super) struct Rack {
    pub(super) nodes: u16,
    pub(super) partitions: u32,
    pub(super) cache_records: u32,
    pub(super) slot_bytes: u32,
    /// Requests a second that one node serves.
    pub(super) node_capacity: Option<f64>,
    /// Outstanding requests of a closed loop.
    pub(super) outstanding: u32,
    pub(super) seed: u64,
    /// Number of random partition maps.
    pub(super) maps: u32,
}

/// A policy: a scheme at its ideal, or in a closed loop whose nodes are full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    scheme: Scheme,
    is_closed_loop: bool,
}

impl Way {
    pub(super) const fn ideal(scheme: Scheme) -> Way {
        Way { scheme, is_closed_loop: false }
    }

    pub(super) const fn closed_loop(scheme: Scheme) -> Way {
        Way { scheme, is_closed_loop: true }
    }

    /// Each scheme at its ideal, and those whose cached records wait for nodes also in a closed
    /// loop.
    pub(super) fn all() -> impl Iterator<Item = Way> {
        Scheme::OF_ONE_LAYER.into_iter().flat_map(|scheme| {
            let full = scheme.invalidates().then_some(Way::closed_loop(scheme));
            [Way::ideal(scheme)].into_iter().chain(full)
        })
    }

    /// The name in tables.
    pub(super) fn title(self) -> String {
        let policy = self.scheme.policy();
        if self.is_closed_loop {
            return format!("{policy}, nodes full");
        }
        let system = self.scheme.system().map(|system| format!(" ({system})")).unwrap_or_default();
        let ideal = if self.scheme.invalidates() { ", ideal" } else { "" };
        format!("{policy}{system}{ideal}")
    }

    /// The name as the head of a narrow column.
    pub(super) fn short(self) -> &'static str {
        if self.is_closed_loop { "full" } else { self.scheme.policy().trim_start_matches("write-") }
    }

    fn policy(self, rack: &Rack) -> Policy {
        if self.is_closed_loop {
            Policy::closed_loop(self.scheme, f64::from(rack.outstanding))
        } else {
            Policy::ideal(self.scheme)
        }
    }
}

impl Serialize for Way {
    /// The name in JSON: `write_through_closed_loop`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let policy = self.scheme.policy().replace([' ', '-'], "_");
        let suffix = if self.is_closed_loop { "_closed_loop" } else { "" };
        serializer.serialize_str(&format!("{policy}{suffix}"))
    }
}

/// The results of a policy. Infinite figures (nodes serve no request) are `None`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) way: Way,
    /// Share of requests that the cache answers.
    pub(super) hit_ratio: f64,
    /// Operations a second over the capacity of one node.
    pub(super) limit: Option<f64>,
    /// Operations a second, if the nodes' capacity is given.
    pub(super) limit_ops: Option<f64>,
    /// Throughput over that of no cache.
    pub(super) gain: Option<f64>,
    /// The gains with several maps.
    pub(super) gains: Option<Spread>,
    /// Share of all requests that each node serves.
    pub(super) node_load: Vec<f64>,
    pub(super) imbalance: f64,
}

/// Gains with this number of records cached.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Step {
    pub(super) records: u64,
    /// Throughput over that of no cache; `None` if nodes serve no request.
    pub(super) gains: PerScheme<Option<f64>>,
}

impl Serialize for Step {
    /// The number of records, and the gain of each policy that caches.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("records", &self.records)?;
        for (scheme, gain) in self.gains.iter().filter(|(scheme, _)| scheme.caches()) {
            map.serialize_entry(&scheme.policy().replace('-', "_"), gain)?;
        }
        map.end()
    }
}

/// Whether write-back pays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Write-back gains more than any write-through cache.
    WriteBack,
    /// Write-back gains more than a write-through cache whose nodes are full.
    UnderLoad,
    /// So few writes are of hot keys that a write-through cache gains about as much.
    WriteThrough,
    /// The load is even already.
    Even,
    /// The hot records fit no slot.
    TooLarge,
    /// The load is spread over more keys than the cache holds.
    TooMany,
}

impl Advice {
    /// All verdicts, the best first.
    pub const ALL: [Advice; 6] = [
        Advice::WriteBack,
        Advice::UnderLoad,
        Advice::WriteThrough,
        Advice::TooLarge,
        Advice::Even,
        Advice::TooMany,
    ];

    /// Whether write-back pays.
    pub fn pays(self) -> bool {
        matches!(self, Advice::WriteBack | Advice::UnderLoad)
    }

    /// The verdict in a few words.
    pub fn short(self) -> &'static str {
        match self {
            Advice::WriteBack => "pays",
            Advice::UnderLoad => "pays under load",
            Advice::WriteThrough => "NO: write-through does",
            Advice::Even => "NO: even",
            Advice::TooLarge => "NO: too large",
            Advice::TooMany => "NO: too many keys",
        }
    }

    /// The reason.
    pub fn reason(self) -> &'static str {
        match self {
            Advice::WriteBack => "more than any write-through cache",
            Advice::UnderLoad => "more than a write-through cache whose nodes are full",
            Advice::WriteThrough => {
                "a write-through cache does about as well: few writes go to what is hot"
            }
            Advice::TooLarge => "values are too large for a slot",
            Advice::Even => "the load is even already, or nearly",
            Advice::TooMany => "the load is spread over more keys than the cache holds",
        }
    }
}

/// A prediction.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Prediction {
    pub(super) source: String,
    pub(super) rack: Rack,
    pub(super) operations: Option<u64>,
    pub(super) operations_per_second: Option<f64>,
    pub(super) distinct_keys: u64,
    /// Whether all keys were counted. Otherwise the load of the others is taken to be spread
    /// evenly.
    pub(super) all_keys_counted: bool,
    /// Shares of all requests: reads, and requests for cacheable keys.
    pub(super) read_share: f64,
    pub(super) cacheable_share: f64,
    /// Share of all requests that each partition draws.
    pub(super) partition_load: Vec<f64>,
    pub(super) outcomes: Vec<Outcome>,
    /// The fewest cached records that even the load out; `None`: no number does.
    pub(super) sufficient_records: Option<u64>,
    pub(super) steps: Vec<Step>,
    pub(super) verdict: Advice,
    pub(super) notes: Vec<String>,
}

/// Traffic on a rack with one partition map.
struct Map<'a> {
    traffic: &'a Traffic,
    rack: &'a Rack,
    number: u32,
    placement: Placement,
    none: Limit,
}

impl<'a> Map<'a> {
    /// Map `number` of those drawn from the rack's seed.
    fn new(traffic: &'a Traffic, rack: &'a Rack, number: u32) -> Map<'a> {
        let word = |at: u64| mix(mix(rack.seed) ^ (u64::from(number) << 1 | at)).to_be_bytes();
        let hash_key = HashKey([word(0), word(1)].concat().try_into().expect("twice eight bytes"));
        let heads =
            (0..rack.partitions).map(|partition| vec![(partition % u32::from(rack.nodes)) as u16]);
        let map = switchback_wire::Map::equal(heads.collect());
        let keys =
            traffic.keys.iter().map(|key| KeyShare { hash: hash_key.hash(&key.hash.0), ..*key });
        let placement = Placement::of_keys(&map, keys);
        let none = placement.limit_of_hottest(traffic.demand, Policy::ideal(Scheme::NoCache), 0);
        Map { traffic, rack, number, placement, none }
    }

    fn limit(&self, way: Way, records: usize) -> Limit {
        self.placement.limit_of_hottest(self.traffic.demand, way.policy(self.rack), records)
    }

    fn gain(&self, way: Way, records: usize) -> f64 {
        self.limit(way, records).ops_per_capacity / self.none.ops_per_capacity
    }

    fn outcome(&self, way: Way, gains: Option<Spread>) -> Outcome {
        let limit = self.limit(way, self.rack.cache_records as usize);
        let requests = self.traffic.demand.reads + self.traffic.demand.writes;
        let left: f64 = limit.node_load.iter().sum();
        let finite = |number: f64| number.is_finite().then_some(number);
        Outcome {
            way,
            hit_ratio: (1.0 - left / requests).max(0.0),
            limit: finite(limit.ops_per_capacity),
            limit_ops: self.rack.node_capacity.and_then(|capacity| finite(limit.ops(capacity))),
            gain: finite(limit.ops_per_capacity / self.none.ops_per_capacity),
            gains,
            imbalance: limit.imbalance(),
            node_load: limit.node_load.iter().map(|load| load / requests).collect(),
        }
    }

    /// The fewest cached records with which write-back reaches the throughput of equally busy
    /// nodes.
    fn sufficient_records(&self) -> Option<usize> {
        let requests = self.traffic.demand.reads + self.traffic.demand.writes;
        let even = EVEN * f64::from(self.rack.nodes) / requests;
        let suffices = |records: usize| {
            self.limit(Way::ideal(Scheme::FarReach), records).ops_per_capacity >= even
        };
        let (mut low, mut high) = (0, self.traffic.keys.iter().filter(|key| key.cacheable).count());
        if !suffices(high) {
            return None;
        }
        while low < high {
            let middle = (low + high) / 2;
            if suffices(middle) { high = middle } else { low = middle + 1 }
        }
        Some(low)
    }

    /// Gains at 10, 32, 100, 316 and so on records, up to all.
    fn steps(&self) -> Vec<Step> {
        let all = self.traffic.keys.iter().filter(|key| key.cacheable).count();
        let sizes = (2..=12).map(|half| 10f64.powf(f64::from(half) / 2.0).round() as usize);
        let step = |records: usize| {
            let gain = |way| Some(self.gain(way, records)).filter(|gain| gain.is_finite());
            Step {
                records: records as u64,
                gains: PerScheme::from_fn(|scheme| gain(Way::ideal(scheme))),
            }
        };
        sizes
            .take_while(|&records| records < all)
            .chain((all > 0).then_some(all))
            .map(step)
            .collect()
    }

    fn verdict(&self) -> Advice {
        let gain = |way| self.gain(way, self.rack.cache_records as usize);
        let back = gain(Way::ideal(Scheme::FarReach));
        // No gain is larger than one for which nodes serve no request.
        let is_better_than = |way| gain(way).is_finite() && back >= GAIN_MIN * gain(way);
        if is_better_than(Way::ideal(Scheme::NetCache)) {
            Advice::WriteBack
        } else if is_better_than(Way::closed_loop(Scheme::NetCache)) {
            Advice::UnderLoad
        } else if back >= GAIN_MIN {
            Advice::WriteThrough
        } else if self.gain_if_all_fit() >= GAIN_MIN {
            Advice::TooLarge
        } else if self.none.imbalance() < GAIN_MIN {
            Advice::Even
        } else {
            Advice::TooMany
        }
    }

    fn gain_if_all_fit(&self) -> f64 {
        let keys =
            self.traffic.keys.iter().map(|key| KeyShare { cacheable: true, ..*key }).collect();
        let fitting = Traffic { keys, ..self.traffic.clone() };
        Map::new(&fitting, self.rack, self.number)
            .gain(Way::ideal(Scheme::FarReach), self.rack.cache_records as usize)
    }
}

/// The results of each policy with one map, and the verdict.
pub(super) fn assess(traffic: &Traffic, rack: &Rack) -> (Vec<Outcome>, Advice) {
    let map = Map::new(traffic, rack, 0);
    (Way::all().map(|way| map.outcome(way, None)).collect(), map.verdict())
}

/// Predicts the results of all schemes for this traffic.
pub(super) fn predict(traffic: &Traffic, rack: Rack) -> Prediction {
    let map = Map::new(traffic, &rack, 0);
    let mut gains = vec![Vec::new(); Way::all().count()];
    for number in 0..rack.maps {
        let other = Map::new(traffic, &rack, number);
        for (gains, way) in gains.iter_mut().zip(Way::all()) {
            gains.push(other.gain(way, rack.cache_records as usize));
        }
    }
    let spread = |gains: Vec<f64>| Spread::of(gains).filter(|spread| spread.max.is_finite());
    let outcomes =
        Way::all().zip(gains).map(|(way, gains)| map.outcome(way, spread(gains))).collect();
    let Demand { reads, writes } = traffic.demand;
    let partition_load = map.placement.partition_load(traffic.demand);
    Prediction {
        outcomes,
        sufficient_records: map.sufficient_records().map(|records| records as u64),
        steps: map.steps(),
        verdict: map.verdict(),
        partition_load: partition_load.into_iter().map(|load| load / (reads + writes)).collect(),
        source: traffic.source.clone(),
        rack,
        operations: traffic.operations,
        operations_per_second: traffic
            .operations
            .zip(traffic.seconds)
            .map(|(ops, seconds)| ops as f64 / seconds),
        distinct_keys: traffic.distinct_keys,
        all_keys_counted: traffic.all_keys_counted,
        read_share: reads / (reads + writes),
        cacheable_share: traffic.cacheable_share,
        notes: traffic.notes.clone(),
    }
}

impl Prediction {
    pub(super) fn outcome(&self, way: Way) -> &Outcome {
        self.outcomes.iter().find(|outcome| outcome.way == way).expect("all ways are looked at")
    }
}
