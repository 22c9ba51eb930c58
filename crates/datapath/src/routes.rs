//! The map of partitions as the tables of `datapath/route.h` have it.

use crate::{Config, TableError};
use switchback_wire::{Map, RoutingKey};
use zerocopy::{Immutable, IntoBytes};

/// `struct route_bucket`: the keys that have their top bits in common.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Immutable, IntoBytes)]
pub struct RouteBucket {
    /// Of the partition that all these keys belong to, if one.
    pub route: u64,
    /// Its view.
    pub view: u32,
    /// That partition.
    pub partition: u16,
    /// The first range with keys of the bucket.
    pub first: u16,
    /// The last one; the first, if there is one partition.
    pub last: u16,
    reserved: [u16; 3],
}

/// `struct range`: the keys of a partition.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Immutable, IntoBytes)]
pub struct RouteRange {
    /// Upper half of the first key.
    pub start_high: u64,
    /// Lower half of the first key.
    pub start_low: u64,
    /// Its replicas.
    pub route: u64,
    /// How often they have changed.
    pub view: u32,
    /// Its number.
    pub partition: u16,
    reserved: u16,
}

/// A map of partitions for a datapath's tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routes {
    /// An index by the key's top bits: [`Config::partitions`] buckets.
    pub buckets: Vec<RouteBucket>,
    /// In the order of their keys, [`Config::partitions`] at most.
    pub ranges: Vec<RouteRange>,
}

impl Routes {
    /// The tables of a map.
    ///
    /// # Errors
    /// More partitions than there is room for, and replicas at nodes that don't exist.
    pub fn new(map: &Map, config: &Config) -> Result<Routes, TableError> {
        if map.partitions().len() > config.partitions as usize {
            return Err(TableError::Partitions);
        }
        if map.nodes() > usize::from(config.nodes) {
            return Err(TableError::Replicas);
        }
        let range = |partition: &switchback_wire::Partition| RouteRange {
            start_high: partition.start.position(),
            start_low: partition.start.0 as u64,
            route: route_of(&partition.replicas),
            view: partition.view,
            partition: partition.number,
            reserved: 0,
        };
        let ranges: Vec<_> = map.partitions().iter().map(range).collect();
        let to_last = u128::MAX >> config.partitions.trailing_zeros();
        let bucket = |index| {
            let start = index * to_last + index;
            let (first, last) =
                (map.find(RoutingKey(start)), map.find(RoutingKey(start + to_last)));
            let RouteRange { route, view, partition, .. } = ranges[first];
            let (first, last, reserved) = (first as u16, last as u16, [0; 3]);
            RouteBucket { route, view, partition, first, last, reserved }
        };
        let buckets = (0..u128::from(config.partitions)).map(bucket).collect();
        Ok(Routes { buckets, ranges })
    }
}

impl RouteBucket {
    /// Of a datapath that has no map yet: nothing has a node.
    pub const NONE: RouteBucket =
        RouteBucket { route: u64::MAX, view: 0, partition: 0, first: 0, last: 0, reserved: [0; 3] };
}

/// Replicas as a word of the tables.
fn route_of(replicas: &[u16]) -> u64 {
    (0..4)
        .rev()
        .fold(0, |route, i| route << 16 | u64::from(replicas.get(i).copied().unwrap_or(u16::MAX)))
}
