//! The chains of switches of a rack, which of them serves a key, what there is once for each, and
//! which switches form one.
//!
//! A chain serves the requests of its partitions. Epochs, sequence numbers, recoveries and
//! snapshots are a chain's. A rack has as many as its controller was made with; the other parts
//! learn from it which there are, and which keys each of them serves.
//!
//! A chain's *members* are switches of different layers: requests pass them in the order of the
//! layers, answers in the other direction. The last member, next to the nodes, is the chain's
//! *owner*; the others are its *keepers*.

use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut};
use switchback_wire::{EPOCHS_OF_ROUND, KeyHash, Map, PARTITIONS_MAX, RoutingKey};

/// Chains of a rack at most.
pub const CHAINS_MAX: u16 = 64;

/// Names a chain of switches: its number, from 0.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct ChainId(u16);

impl ChainId {
    /// The chain of this number.
    pub const fn new(number: u16) -> ChainId {
        ChainId(number)
    }

    /// Its number, as in [`Partition::chain`](switchback_wire::Partition::chain).
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Whether a rack may have it.
    pub const fn is_possible(self) -> bool {
        self.0 < CHAINS_MAX
    }
}

/// The round that an epoch is of, where all chains of a rack change theirs together: the epochs of
/// a round are the chains' numbers apart.
pub const fn round_of(epoch: u32) -> u32 {
    const { assert!(EPOCHS_OF_ROUND == CHAINS_MAX as u32) };
    epoch / EPOCHS_OF_ROUND
}

/// The epoch of a chain in a round.
pub const fn epoch_of_round(round: u32, chain: ChainId) -> u32 {
    round * EPOCHS_OF_ROUND + chain.0 as u32
}

/// Of the chains whose spines serve, the one whose spine may have a copy of a key (rendezvous
/// hashing; Thaler and Ravishankar, 1998). It depends on other bits of the hash than the chain that
/// serves the key.
pub fn spine_of(hash: &KeyHash, spines: impl Iterator<Item = ChainId>) -> Option<ChainId> {
    let [.., a, b, c, d, e, f, g, h] = hash.0;
    let low = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let weight = |chain: &ChainId| {
        let mixed = (low ^ (u64::from(chain.0) + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
    };
    spines.max_by_key(weight)
}

/// Which chain serves each key: ranges of the key space. Of partitions that follow each other and
/// are served by one chain there is one range.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChainMap {
    /// Where each begins, and who serves it, in order.
    ranges: Vec<(RoutingKey, ChainId)>,
}

impl ChainMap {
    /// The chain that serves a key.
    #[inline]
    pub fn of(&self, hash: &KeyHash) -> ChainId {
        if let [(_, only)] = self.ranges[..] {
            return only;
        }
        let key = hash.routing();
        let beyond = self.ranges.partition_point(|(start, _)| *start <= key);
        self.ranges[beyond - 1].1
    }

    /// The chains that serve keys, some of them more than once.
    pub fn chains(&self) -> impl Iterator<Item = ChainId> {
        self.ranges.iter().map(|(_, chain)| *chain)
    }

    /// Its bytes on a disk.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("plain data has an encoding")
    }

    /// The map that has this encoding; `None`: the bytes are no map's.
    pub fn decode(bytes: &[u8]) -> Option<ChainMap> {
        let (map, rest) = postcard::take_from_bytes::<ChainMap>(bytes).ok()?;
        (rest.is_empty() && map.is_plausible() && map.encode() == bytes).then_some(map)
    }

    /// Whether a map of partitions may have given it.
    pub fn is_plausible(&self) -> bool {
        self.ranges.len() <= PARTITIONS_MAX
            && self.ranges.first().is_some_and(|(start, _)| *start == RoutingKey(0))
            && self.ranges.is_sorted_by(|(start, _), (next, _)| start < next)
            && self.chains().all(ChainId::is_possible)
    }
}

/// The first chain serves everything.
impl Default for ChainMap {
    fn default() -> ChainMap {
        ChainMap { ranges: vec![(RoutingKey(0), ChainId::default())] }
    }
}

impl From<&Map> for ChainMap {
    fn from(map: &Map) -> ChainMap {
        let of = |partition: &switchback_wire::Partition| {
            (partition.start, ChainId::new(partition.chain))
        };
        let mut ranges: Vec<_> = map.partitions().iter().map(of).collect();
        ranges.dedup_by_key(|(_, chain)| *chain);
        ChainMap { ranges }
    }
}

/// One of something for each chain, from the first on. A part that isn't the controller has as many
/// as it was told of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ByChain<T>(Vec<T>);

impl<T> ByChain<T> {
    /// What `make` makes for each of `chains`.
    pub fn new(chains: u16, make: impl FnMut(ChainId) -> T) -> ByChain<T> {
        ByChain((0..chains).map(ChainId).map(make).collect())
    }

    /// Of how many chains there is one.
    pub fn chains(&self) -> u16 {
        self.0.len() as u16
    }

    /// What there is of a chain.
    #[inline]
    pub fn get(&self, chain: ChainId) -> Option<&T> {
        self.0.get(usize::from(chain.0))
    }

    /// What there is of a chain.
    #[inline]
    pub fn get_mut(&mut self, chain: ChainId) -> Option<&mut T> {
        self.0.get_mut(usize::from(chain.0))
    }

    /// What there is of a chain; of one that wasn't known, and of those before it, what `make`
    /// makes.
    pub fn known(&mut self, chain: ChainId, make: impl FnMut(ChainId) -> T) -> &mut T {
        let known = self.chains();
        self.0.extend((known..=chain.0).map(ChainId).map(make));
        &mut self.0[usize::from(chain.0)]
    }

    /// What `call` makes of each.
    pub fn map<'a, U>(&'a self, mut call: impl FnMut(ChainId, &'a T) -> U) -> ByChain<U> {
        ByChain(self.iter().map(|(chain, it)| call(chain, it)).collect())
    }

    /// Each chain, with its own.
    pub fn iter(&self) -> impl Iterator<Item = (ChainId, &T)> {
        (0..).map(ChainId).zip(&self.0)
    }

    /// Each chain, with its own.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (ChainId, &mut T)> {
        (0..).map(ChainId).zip(&mut self.0)
    }
}

/// Of no chain.
impl<T> Default for ByChain<T> {
    fn default() -> ByChain<T> {
        ByChain(Vec::new())
    }
}

impl<T> Index<ChainId> for ByChain<T> {
    type Output = T;

    #[inline]
    fn index(&self, chain: ChainId) -> &T {
        &self.0[usize::from(chain.0)]
    }
}

impl<T> IndexMut<ChainId> for ByChain<T> {
    #[inline]
    fn index_mut(&mut self, chain: ChainId) -> &mut T {
        &mut self.0[usize::from(chain.0)]
    }
}

/// A switch that lives and may be a member of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate<'a> {
    /// Its number.
    pub switch: u16,
    /// Its layer, from 1 next to the clients.
    pub layer: u8,
    /// Slots of each class: `(value bytes, slots)`.
    pub classes: &'a [(u32, u32)],
}

/// The members of a chain with places for `layers`, in the order of their layers: of each layer the
/// chain's own member if it is a candidate, else the first candidate of that layer. A layer without
/// a candidate is left out.
///
/// An entry has the same place in all members. So all have the classes of the chain's owner, or of
/// what is left of the `previous` members; a candidate that has others isn't taken.
pub fn form(layers: u8, previous: &[u16], candidates: &[Candidate<'_>]) -> Vec<u16> {
    let own = |candidate: &&Candidate<'_>| previous.contains(&candidate.switch);
    let left = candidates.iter().filter(own).max_by_key(|candidate| candidate.layer);
    let mut classes = left.map(|candidate| candidate.classes);
    let mut members = Vec::new();
    for layer in (1..=layers).rev() {
        let fits = |candidate: &&Candidate<'_>| {
            candidate.layer == layer && classes.is_none_or(|classes| candidate.classes == classes)
        };
        let candidates = || candidates.iter().filter(fits);
        if let Some(member) = candidates().find(own).or_else(|| candidates().next()) {
            classes = Some(member.classes);
            members.push(member.switch);
        }
    }
    members.reverse();
    members
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::Partition;

    const SMALL: &[(u32, u32)] = &[(64, 8)];
    const LARGE: &[(u32, u32)] = &[(64, 8), (512, 8)];

    /// Switches with layers, all of the same classes.
    fn living(switches: &[(u16, u8)]) -> Vec<Candidate<'static>> {
        let candidate = |&(switch, layer)| Candidate { switch, layer, classes: SMALL };
        switches.iter().map(candidate).collect()
    }

    #[test]
    fn a_chain_has_one_living_switch_of_each_layer() {
        let all = living(&[(0, 1), (1, 2), (2, 3), (3, 1), (4, 2)]);
        assert_eq!(form(3, &[], &all), [0, 1, 2]);
        assert_eq!(form(2, &[], &all), [0, 1], "the rack has no layer 3");
        assert_eq!(form(1, &[], &all), [0]);
        assert_eq!(form(4, &[], &all), [0, 1, 2], "no switch is of layer 4");
        assert!(form(3, &[], &[]).is_empty());
    }

    #[test]
    fn own_members_stay_and_spares_of_their_layer_take_the_places_of_others() {
        let all = living(&[(0, 1), (1, 2), (3, 1), (4, 2)]);
        assert_eq!(form(2, &[3, 4], &all), [3, 4]);
        assert_eq!(form(2, &[5, 4], &all), [0, 4], "switch 5 is dead");
        assert_eq!(form(2, &[3, 5], &all), [3, 1]);
        assert_eq!(form(2, &[5], &all), [0, 1], "there is a spare for the layer that was left out");
        let first_layer = living(&[(3, 1), (0, 1)]);
        assert_eq!(form(2, &[5, 6], &first_layer), [3], "the first candidate, and no owner below");
    }

    #[test]
    fn all_members_have_the_same_classes() {
        let candidate = |switch, layer, classes| Candidate { switch, layer, classes };
        let mixed = [candidate(0, 1, SMALL), candidate(1, 2, LARGE), candidate(2, 1, LARGE)];
        assert_eq!(form(2, &[], &mixed), [2, 1], "the owner's classes count");
        assert_eq!(form(2, &[0], &mixed), [0], "a member that is left keeps its cache");
        assert_eq!(form(2, &[0, 1], &mixed), [2, 1], "the last of them, the owner");
    }

    fn map_of(chains: &[u16]) -> Map {
        let equal = Map::equal(vec![vec![0]; chains.len()]);
        let with_chain = |(partition, chain): (&Partition, &u16)| Partition {
            chain: *chain,
            ..partition.clone()
        };
        Map::new(equal.partitions().iter().zip(chains).map(with_chain).collect()).expect("a map")
    }

    #[test]
    fn a_key_is_served_by_the_chain_of_its_partition() {
        for chains in [&[0, 0, 0, 0][..], &[0, 0, 1, 1], &[1, 0, 0, 1], &[3, 2, 1, 0]] {
            let map = map_of(chains);
            let by_range = ChainMap::from(&map);
            assert!(by_range.is_plausible());
            for position in (0..=u64::MAX - 1).step_by(1 << 58) {
                let hash = KeyHash::at_position(position);
                assert_eq!(by_range.of(&hash).number(), map.of(hash).chain, "{chains:?}");
            }
        }
        let runs = ChainMap::from(&map_of(&[0, 0, 1, 1]));
        assert_eq!(runs.chains().map(ChainId::number).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(ChainMap::from(&map_of(&[0, 0])), ChainMap::default());
    }

    #[test]
    fn epochs_of_a_round_differ_in_their_chain_alone() {
        for chain in [0, 1, CHAINS_MAX - 1].map(ChainId) {
            let epoch = epoch_of_round(7, chain);
            assert_eq!((round_of(epoch), epoch % EPOCHS_OF_ROUND), (7, chain.0.into()));
        }
    }

    #[test]
    fn keys_of_each_chain_are_spread_over_all_spines() {
        let spines = || [0, 1, 5].map(ChainId).into_iter();
        let mut counts = [0; 6];
        for position in 0..3000 {
            // All near the beginning of the key space: of one chain.
            let mut hash = KeyHash::at_position(position);
            hash.0[15] = (position % 251) as u8;
            let spine = spine_of(&hash, spines()).expect("there are three");
            counts[usize::from(spine.number())] += 1;
            let without = spines().filter(|other| *other != spine);
            assert_ne!(spine_of(&hash, without), Some(spine));
        }
        assert!([0, 1, 5].iter().all(|chain| counts[*chain] > 800), "{counts:?}");
        assert_eq!(spine_of(&KeyHash([0; 16]), std::iter::empty()), None);
    }

    #[test]
    fn ranges_that_no_map_has_are_not_plausible() {
        let ranges = |ranges: &[(u128, u16)]| {
            let range = |(start, chain): &(u128, u16)| (RoutingKey(*start), ChainId(*chain));
            ChainMap { ranges: ranges.iter().map(range).collect() }
        };
        assert!(ranges(&[(0, CHAINS_MAX - 1), (7, 0)]).is_plausible());
        for wrong in [&[][..], &[(1, 0)], &[(0, CHAINS_MAX)], &[(0, 0), (9, 1), (9, 2)]] {
            assert!(!ranges(wrong).is_plausible(), "{wrong:?}");
        }
    }

    #[test]
    fn a_part_comes_to_know_chains_one_after_the_other() {
        let mut known: ByChain<u16> = ByChain::default();
        assert_eq!(known.get(ChainId(2)), None);
        *known.known(ChainId(2), |chain| chain.number()) += 40;
        assert_eq!(known, ByChain(vec![0, 1, 42]));
        assert_eq!(*known.known(ChainId(1), |_| 9), 1);
    }
}
