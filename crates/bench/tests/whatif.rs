//! What `GET /whatif` says is the limit that the benchmark is judged by.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::collections::HashSet;
use switchback_bench::limit::{KeyShare, Placement, Policy};
use switchback_bench::workload::Demand;
use switchback_rack::admin::{
    HeatStatus, HotKeyStatus, HotStatus, Owners, PartitionStatus, WhatIf,
};
use switchback_wire::{KeyHash, Map, Partition, Scheme};

/// All reads and writes of one second are for these keys, hottest first.
fn keys() -> Vec<HotKeyStatus> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let key = |rank: u32| {
        let hash: [u8; 16] = random.random();
        HotKeyStatus {
            hash: format!("{:032x}", u128::from_be_bytes(hash)),
            range: hash[0],
            reads_per_s: 700.0 / f64::from(rank),
            writes_per_s: 300.0 / f64::from(rank),
            ..HotKeyStatus::default()
        }
    };
    (1..=200).map(key).collect()
}

/// The heat that their requests make, of which none is answered by the cache.
fn heat(keys: &[HotKeyStatus]) -> HeatStatus {
    let plane = |of: fn(&HotKeyStatus) -> f64| {
        let mut rates = vec![0.0; 256];
        keys.iter().for_each(|key| rates[usize::from(key.range)] += of(key));
        vec![rates]
    };
    HeatStatus {
        ranges: 256,
        reads_per_s: plane(|key| key.reads_per_s),
        writes_per_s: plane(|key| key.writes_per_s),
        nodes_per_s: plane(HotKeyStatus::requests_per_s),
        ..HeatStatus::default()
    }
}

#[test]
fn what_if_is_the_limit_of_the_hottest() {
    let map = Map::equal((0..256).map(|partition| vec![partition % 5]).collect());
    let partition = |partition: &Partition| PartitionStatus {
        first_key: format!("{:032x}", partition.start.0),
        replicas: partition.replicas.clone(),
        ..PartitionStatus::default()
    };
    let partitions: Vec<_> = map.partitions().iter().map(partition).collect();
    let owners = Owners::of_map(&partitions);
    let keys = keys();
    let sum = |of: fn(&HotKeyStatus) -> f64| keys.iter().map(of).sum::<f64>();
    let (reads, writes) = (sum(|key| key.reads_per_s), sum(|key| key.writes_per_s));
    let hash = |key: &HotKeyStatus| {
        KeyHash(u128::from_str_radix(&key.hash, 16).expect("32 digits").to_be_bytes())
    };
    let share = |key: &HotKeyStatus| KeyShare {
        hash: hash(key),
        reads: key.reads_per_s / reads,
        writes: key.writes_per_s / writes,
        cacheable: true,
    };
    let placement = Placement::of_keys(&map, keys.iter().map(share));
    let hot = HotStatus { keys: keys.clone(), ..HotStatus::default() };
    for scheme in Scheme::ALL {
        for records in [0, 1, 7, 100, 200] {
            let whatif = WhatIf::new(&heat(&keys), &hot, &owners, &owners, scheme, records);
            let cached: HashSet<_> = keys.iter().take(records).map(hash).collect();
            let limit = placement.limit(Demand { reads, writes }, Policy::ideal(scheme), &cached);
            for (node, expected) in whatif.nodes.iter().zip(&limit.node_load) {
                let found = node.would_serve_per_s;
                assert!(
                    (found - expected).abs() < 1e-6 * reads,
                    "{scheme}, {records}: {found} and {expected} at node {}",
                    node.index
                );
            }
            assert_eq!(whatif.nodes.len(), 5);
        }
    }
}
