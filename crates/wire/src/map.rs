//! The map of partitions: which range of the key space each has, and who serves it.

use crate::KeyHash;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use thiserror::Error;

/// Partitions of a rack at most, as many as packets can number.
pub const PARTITIONS_MAX: usize = 1 << 16;
/// Replicas of a partition at most, as many as the datapath's word of a route has room for.
pub const REPLICAS_MAX: usize = 4;

/// As many keys as there can be, 2^128.
const KEYS: f64 = (1u128 << 64) as f64 * (1u128 << 64) as f64;

/// The place of a key among all keys, by which partitions divide them: 128 bits, ordered as a
/// number. It is the key's hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RoutingKey(pub u128);

impl RoutingKey {
    /// The first eight bytes, by which scans proceed.
    #[inline]
    pub fn position(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// The top `bits` bits, to 16.
    #[inline]
    fn top(self, bits: u32) -> usize {
        (self.position() >> 48 << bits >> 16) as usize
    }
}

impl From<KeyHash> for RoutingKey {
    #[inline]
    fn from(hash: KeyHash) -> RoutingKey {
        hash.routing()
    }
}

impl fmt::Debug for RoutingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// With its bits in reverse order: where ranges begin has few bits set, the top ones, and small
/// numbers are short in a message.
impl Serialize for RoutingKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.reverse_bits().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RoutingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RoutingKey, D::Error> {
        u128::deserialize(deserializer).map(|reversed| RoutingKey(reversed.reverse_bits()))
    }
}

/// A range of the key space, and who serves it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Partition {
    /// Names it, in packets too. It stays when ranges are divided or joined.
    pub number: u16,
    /// Its first key. It ends before the next partition's.
    pub start: RoutingKey,
    /// Counts the changes of its replicas.
    pub view: u32,
    /// The chain of switches that serves it.
    pub chain: u16,
    /// The nodes that store it, from the head to the tail.
    pub replicas: Vec<u16>,
}

impl Partition {
    /// The node that takes writes.
    #[inline]
    pub fn head(&self) -> u16 {
        self.replicas[0]
    }

    /// The node that answers reads.
    #[inline]
    pub fn tail(&self) -> u16 {
        self.replicas[self.replicas.len() - 1]
    }
}

/// The replicas of a partition from one change of them to the next.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct View {
    /// The partition.
    pub partition: u16,
    /// Counts its changes of replicas.
    pub number: u32,
    /// The nodes that store it, from the head to the tail.
    pub replicas: Vec<u16>,
}

/// Why partitions make no map.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MapError {
    /// There is none, or more than packets can number.
    #[error("a map has 1 to {PARTITIONS_MAX} partitions")]
    Count,
    /// Keys below the first partition would belong to none.
    #[error("the first partition doesn't begin with the first key")]
    First,
    /// A partition would be empty, or the order is another one.
    #[error("partitions don't follow each other")]
    Order,
    /// Two partitions have one number, or none has it.
    #[error("two partitions have the same number, or none has it")]
    Number,
    /// Equal ranges that the key's top bits don't number.
    #[error("equal ranges are a power of two, to {PARTITIONS_MAX}")]
    Equal,
    /// A partition has none, or too many.
    #[error("a partition has 1 to {REPLICAS_MAX} replicas, each another node")]
    Replicas,
}

/// Partitions that cover the key space: each key belongs to exactly one.
///
/// A key is found by an index of the key's top bits, which has a bucket for each partition or a
/// few more, and a binary search among the partitions that share the bucket. Of equal ranges none
/// do.
#[derive(Clone)]
pub struct Map {
    partitions: Vec<Partition>,
    /// The partition that each bucket's first key belongs to.
    index: Vec<u16>,
    /// The place of the partition that has each number, to the highest number.
    places: Vec<u16>,
}

impl Map {
    /// The map of these partitions, in the order of their ranges.
    ///
    /// # Errors
    /// Partitions that don't cover the key space, or whose numbers or replicas are not in order.
    pub fn new(partitions: Vec<Partition>) -> Result<Map, MapError> {
        let ensure = |holds, error| if holds { Ok(()) } else { Err(error) };
        ensure((1..=PARTITIONS_MAX).contains(&partitions.len()), MapError::Count)?;
        ensure(partitions[0].start == RoutingKey(0), MapError::First)?;
        ensure(partitions.windows(2).all(|pair| pair[0].start < pair[1].start), MapError::Order)?;
        let mut seen = vec![false; PARTITIONS_MAX];
        for Partition { number, replicas, .. } in &partitions {
            ensure(!std::mem::replace(&mut seen[usize::from(*number)], true), MapError::Number)?;
            ensure((1..=REPLICAS_MAX).contains(&replicas.len()), MapError::Replicas)?;
            let is_repeated = |(i, node)| replicas[..i].contains(node);
            ensure(!replicas.iter().enumerate().any(is_repeated), MapError::Replicas)?;
        }
        let bits = partitions.len().next_power_of_two().trailing_zeros();
        let index = first_of_buckets(&partitions, bits);
        let places = places_of_numbers(&partitions);
        Ok(Map { partitions, index, places })
    }

    /// As many equal ranges as there are lists of replicas, a power of two: the top bits of a key
    /// are its partition's number.
    ///
    /// # Panics
    /// On what [`Map::try_equal`] refuses.
    pub fn equal(replicas: Vec<Vec<u16>>) -> Map {
        Map::try_equal(replicas).expect("replicas of equal ranges")
    }

    /// [`Map::equal`] of lists that come from outside.
    ///
    /// # Errors
    /// Another number of lists, and lists that [`Map::new`] refuses.
    pub fn try_equal(replicas: Vec<Vec<u16>>) -> Result<Map, MapError> {
        if !replicas.len().is_power_of_two() || replicas.len() > PARTITIONS_MAX {
            return Err(MapError::Equal);
        }
        let bits = replicas.len().trailing_zeros();
        let partition = |(number, replicas)| {
            let start = RoutingKey((number as u128).checked_shl(128 - bits).unwrap_or(0));
            Partition { number: number as u16, start, view: 0, chain: 0, replicas }
        };
        Map::new(replicas.into_iter().enumerate().map(partition).collect())
    }

    /// The same ranges, each with the newest view of it: this map's, or one of these.
    ///
    /// # Errors
    /// Views of partitions that there are not, or with replicas that [`Map::new`] refuses.
    pub fn with_views<'a>(
        &self,
        views: impl IntoIterator<Item = &'a View>,
    ) -> Result<Map, MapError> {
        let mut partitions = self.partitions.clone();
        for View { partition, number, replicas } in views {
            let place = self.places.get(usize::from(*partition)).copied();
            let known = place.and_then(|place| partitions.get_mut(usize::from(place)));
            let known = known.filter(|known| known.number == *partition);
            let known = known.ok_or(MapError::Number)?;
            if *number > known.view {
                (known.view, known.replicas) = (*number, replicas.clone());
            }
        }
        Map::new(partitions)
    }

    /// The view that each partition is in, of those whose replicas have changed.
    pub fn changed_views(&self) -> impl Iterator<Item = View> {
        let changed = self.partitions.iter().filter(|partition| partition.view > 0);
        changed.map(|Partition { number, view, replicas, .. }| View {
            partition: *number,
            number: *view,
            replicas: replicas.clone(),
        })
    }

    /// Whether each partition has one node, which has never changed.
    pub fn is_first(&self) -> bool {
        let is_first = |partition: &Partition| partition.view == 0 && partition.replicas.len() == 1;
        self.partitions.iter().all(is_first)
    }

    /// All partitions, in the order of their ranges.
    #[inline]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The place among [`Map::partitions`] of the one that a key belongs to.
    #[inline]
    pub fn find(&self, key: impl Into<RoutingKey>) -> usize {
        let key = key.into();
        let bucket = key.top(self.index.len().trailing_zeros());
        let first = usize::from(self.index[bucket]);
        let last =
            self.index.get(bucket + 1).map_or(self.partitions.len() - 1, |last| usize::from(*last));
        first
            + self.partitions[first + 1..=last].partition_point(|partition| partition.start <= key)
    }

    /// The partition that a key belongs to.
    #[inline]
    pub fn of(&self, key: impl Into<RoutingKey>) -> &Partition {
        &self.partitions[self.find(key)]
    }

    /// The partition that has a number.
    ///
    /// # Panics
    /// If none of the map has it.
    pub fn numbered(&self, number: u16) -> &Partition {
        let partition = &self.partitions[usize::from(self.places[usize::from(number)])];
        assert_eq!(partition.number, number, "no partition has this number");
        partition
    }

    /// The first key beyond a partition; `None` for the last one.
    pub fn end(&self, place: usize) -> Option<RoutingKey> {
        self.partitions.get(place + 1).map(|next| next.start)
    }

    /// Which part of all keys belongs to a partition: 1 is all of them.
    pub fn share(&self, place: usize) -> f64 {
        let beyond = self.end(place).map_or(KEYS, |end| end.0 as f64);
        (beyond - self.partitions[place].start.0 as f64) / KEYS
    }

    /// For each number of a partition, to the highest, whether it has a replica at this node.
    pub fn numbers_of(&self, node: u16) -> Vec<bool> {
        let mut mine = vec![false; self.places.len()];
        for partition in
            self.partitions.iter().filter(|partition| partition.replicas.contains(&node))
        {
            mine[usize::from(partition.number)] = true;
        }
        mine
    }

    /// How many nodes it names, if they are numbered without gaps.
    pub fn nodes(&self) -> usize {
        let named = self.partitions.iter().flat_map(|partition| &partition.replicas);
        named.max().map_or(0, |node| usize::from(*node) + 1)
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Map) -> bool {
        self.partitions == other.partitions // the index follows from them
    }
}

impl Eq for Map {}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Map").field(&self.partitions).finish()
    }
}

/// As the list of its partitions.
impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.partitions.serialize(serializer)
    }
}

/// What makes no map is refused.
impl<'de> Deserialize<'de> for Map {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Map, D::Error> {
        Map::new(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The place of the partition that has each number; that of a number without one means nothing.
fn places_of_numbers(partitions: &[Partition]) -> Vec<u16> {
    let highest =
        partitions.iter().map(|partition| partition.number).max().expect("a map has partitions");
    let mut places = vec![0; usize::from(highest) + 1];
    for (place, partition) in partitions.iter().enumerate() {
        places[usize::from(partition.number)] = place as u16;
    }
    places
}

/// For each bucket of the top `bits` bits, the partition that its first key belongs to.
fn first_of_buckets(partitions: &[Partition], bits: u32) -> Vec<u16> {
    let mut place = 0;
    let of_bucket = |bucket: u128| {
        let key = RoutingKey(bucket.checked_shl(128 - bits).unwrap_or(0));
        while partitions.get(place + 1).is_some_and(|next| next.start <= key) {
            place += 1;
        }
        place as u16
    };
    (0..1 << bits).map(of_bucket).collect()
}
