//! The map of partitions against a linear search, and what it refuses.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use proptest::prelude::*;
use switchback_wire::{KeyHash, Map, MapError, PARTITIONS_MAX, Partition, RoutingKey};

fn partition(number: u16, start: u128) -> Partition {
    Partition { number, start: RoutingKey(start), view: 0, chain: 0, replicas: vec![number % 3] }
}

/// The partitions that begin with these keys, and with the first one.
fn map(starts: impl IntoIterator<Item = u128>) -> Map {
    let mut starts: Vec<u128> = starts.into_iter().chain([0]).collect();
    starts.sort_unstable();
    starts.dedup();
    // Numbers that aren't in the order of the ranges.
    let last = starts.len() - 1;
    let numbered = starts
        .into_iter()
        .enumerate()
        .map(|(place, start)| partition((last - place) as u16, start));
    Map::new(numbered.collect()).unwrap()
}

fn linear(map: &Map, key: RoutingKey) -> &Partition {
    map.partitions().iter().rfind(|partition| partition.start <= key).unwrap()
}

/// The keys where something may go wrong.
fn edges(map: &Map) -> Vec<RoutingKey> {
    let around = |start: u128| [start.wrapping_sub(1), start, start + 1];
    map.partitions()
        .iter()
        .flat_map(|partition| around(partition.start.0))
        .map(RoutingKey)
        .collect()
}

/// Keys with few bits set come close to each other and share buckets; others spread.
fn keys() -> impl Strategy<Value = u128> {
    prop_oneof![
        any::<u128>(),
        any::<u8>().prop_map(u128::from),
        (any::<u8>(), 0..128u32).prop_map(|(key, shift)| { u128::from(key) << shift })
    ]
}

proptest! {
    #[test]
    fn a_key_is_found_as_by_a_linear_search(
        starts in prop::collection::vec(keys(), 0..200),
        looked_up in prop::collection::vec(keys(), 1..50),
    ) {
        let map = map(starts);
        for key in looked_up.into_iter().map(RoutingKey).chain(edges(&map)) {
            prop_assert_eq!(map.of(key), linear(&map, key), "{:?}", key);
        }
    }
}

#[test]
fn equal_ranges_are_the_top_bits() {
    for bits in [0, 1, 4, 12, 16] {
        let map = Map::equal(vec![vec![7]; 1 << bits]);
        for key in edges(&map) {
            let top = (key.0 >> 64 >> 48 << bits >> 16) as u16;
            assert_eq!(
                (map.of(key).number, map.find(key)),
                (top, usize::from(top)),
                "{bits} bits, {key:?}"
            );
        }
    }
}

#[test]
fn the_most_partitions_may_share_their_top_bits() {
    let map = map((1..PARTITIONS_MAX as u128).map(|place| place * 3));
    assert_eq!(map.partitions().len(), PARTITIONS_MAX);
    for key in [0, 2, 3, 4, 98_303, 98_304, 196_604, 196_605, u128::MAX].map(RoutingKey) {
        assert_eq!(map.of(key), linear(&map, key), "{key:?}");
    }
}

#[test]
fn a_routing_key_is_the_hash_as_a_number() {
    let hash = KeyHash(std::array::from_fn(|i| i as u8));
    assert_eq!(RoutingKey::from(hash), RoutingKey(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f));
    assert_eq!(RoutingKey::from(hash).position(), hash.position());
}

#[test]
fn what_covers_no_key_space_is_refused() {
    let refused = |partitions: &[Partition]| Map::new(partitions.to_vec()).unwrap_err();
    assert_eq!(refused(&[]), MapError::Count);
    let many: Vec<_> =
        (0..=PARTITIONS_MAX).map(|place| partition(place as u16, place as u128)).collect();
    assert_eq!(refused(&many), MapError::Count);
    assert_eq!(refused(&[partition(0, 1)]), MapError::First);
    assert_eq!(refused(&[partition(0, 0), partition(1, 9), partition(2, 9)]), MapError::Order);
    assert_eq!(refused(&[partition(0, 0), partition(1, 9), partition(2, 8)]), MapError::Order);
    assert_eq!(refused(&[partition(4, 0), partition(4, 9)]), MapError::Number);
    for count in [0, 3, 2 * PARTITIONS_MAX] {
        assert_eq!(Map::try_equal(vec![vec![0]; count]), Err(MapError::Equal));
    }
    for replicas in [vec![], vec![0; 2], vec![0, 1, 2, 3, 4]] {
        assert_eq!(refused(&[Partition { replicas, ..partition(0, 0) }]), MapError::Replicas);
    }
}

#[test]
fn a_node_knows_its_partitions_by_number() {
    let map = Map::new(vec![partition(5, 0), partition(1, 9), partition(3, 11)]).unwrap();
    assert_eq!(map.numbers_of(0), [false, false, false, true, false, false]);
    assert_eq!(map.numbers_of(1), [false, true, false, false, false, false]);
    assert_eq!((map.end(0), map.end(2), map.nodes()), (Some(RoutingKey(9)), None, 3));
}
