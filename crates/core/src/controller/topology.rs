//! Which node stores each partition, and which chain of switches serves it.

use super::Context;
use super::chain::Chain;
use super::directory::Directory;
use crate::control::ChainGrant;
use crate::topology::{ByChain, CHAINS_MAX, ChainId};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use switchback_wire::{Map, Partition};

/// The rack's chains of switches.
#[derive(Debug)]
pub(super) struct Chains {
    chains: ByChain<Chain>,
}

impl Chains {
    pub(super) fn new(chains: ByChain<Chain>) -> Chains {
        Chains { chains }
    }

    /// One of them; `None`: there is no such chain.
    pub(super) fn get_mut(&mut self, chain: ChainId) -> Option<&mut Chain> {
        self.chains.get_mut(chain)
    }

    /// All chains.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Chain> {
        self.chains.iter().map(|(_, chain)| chain)
    }

    /// All chains.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Chain> {
        self.chains.iter_mut().map(|(_, chain)| chain)
    }

    /// What `call` returns for each chain.
    pub(super) fn by_chain<T>(&mut self, mut call: impl FnMut(&mut Chain) -> T) -> ByChain<T> {
        ByChain::new(self.chains.chains(), |id| call(&mut self.chains[id]))
    }

    /// A switch said hello: the chain that it serves, or served last, hears of it; if there is
    /// none, the first that lacks a switch takes it.
    pub(super) fn switch_said_hello(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        needs_epoch: bool,
    ) {
        match cx.directory.home_of_switch(switch) {
            Some(chain) => self.chains[chain].switch_said_hello(cx, switch, needs_epoch),
            None => _ = self.iter_mut().any(|chain| chain.takes_spare(cx, switch)),
        }
    }

    /// The chain that is in this epoch; `None`: none is any more, or yet.
    pub(super) fn of_epoch(&mut self, directory: &Directory, epoch: u32) -> Option<&mut Chain> {
        self.iter_mut().find(|chain| epoch == directory.epoch(chain.id()))
    }

    /// Each chain, and those of the keys that it serves.
    pub(super) fn with_keys<'a>(
        &'a mut self,
        directory: &Directory,
        keys: Vec<Vec<u8>>,
    ) -> impl Iterator<Item = (&'a mut Chain, Vec<Vec<u8>>)> + use<'a> {
        let mut of_chain = ByChain::new(self.chains.chains(), |_| Vec::new());
        for key in keys {
            let hash = directory.hash_key().hash(&key);
            of_chain[directory.served().of(&hash)].push(key);
        }
        self.chains.iter_mut().map(move |(id, chain)| (chain, std::mem::take(&mut of_chain[id])))
    }

    /// What each chain offers to a client.
    pub(super) fn grants(&self, cx: &Context<'_>) -> ByChain<Option<ChainGrant>> {
        self.chains.map(|_, chain| chain.grant(cx))
    }
}

/// Equal ranges, of which every node is the head of as many as any other, give or take one, in an
/// order drawn from `seed`; their other replicas are at the nodes that have the fewest by then.
/// Chains serve them as [`deal_to_chains`] says.
///
/// # Panics
/// Without nodes, with more of them than partitions, or fewer of them than `replicas`.
pub fn deal_partitions(
    (nodes, replicas): (u16, u16),
    chains: u16,
    partitions: u32,
    seed: u64,
) -> Map {
    assert!(nodes > 0 && partitions >= u32::from(nodes) && (1..=nodes).contains(&replicas));
    let mut random = Pcg32::seed_from_u64(seed ^ 0x7061_7274);
    let first = random.random_range(0..nodes);
    let mut heads: Vec<u16> =
        (0..partitions).map(|p| ((p + u32::from(first)) % u32::from(nodes)) as u16).collect();
    heads.shuffle(&mut random);
    let mut all: Vec<_> = heads.into_iter().map(|node| vec![node]).collect();
    let mut counts = vec![partitions / u32::from(nodes); usize::from(nodes)];
    for _ in 1..replicas {
        for of_partition in &mut all {
            let others = (0..nodes).filter(|node| !of_partition.contains(node));
            let fewest = others.map(|node| (counts[usize::from(node)], random.random(), node));
            let (_, _, node): (u32, u32, u16) = fewest.min().expect("more nodes than replicas");
            counts[usize::from(node)] += 1;
            of_partition.push(node);
        }
    }
    deal_to_chains(&Map::equal(all), chains)
}

/// The same partitions, of which every chain serves as many, give or take one, that follow each
/// other: so it takes little to say which of them serves a key.
pub fn deal_to_chains(map: &Map, chains: u16) -> Map {
    let partitions = map.partitions().len() as u64;
    assert!((1..=CHAINS_MAX).contains(&chains) && partitions >= u64::from(chains));
    let of_chain = |(place, partition): (u64, &Partition)| {
        let chain = (place * u64::from(chains) / partitions) as u16;
        Partition { chain, ..partition.clone() }
    };
    Map::new((0..).zip(map.partitions()).map(of_chain).collect()).expect("as good as the other")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every node is a replica of as many partitions as any other, give or take one in a hundred,
    /// and those of one node are shared by all others: its repair takes work of each.
    #[test]
    fn replicas_are_dealt_out_evenly() {
        for (nodes, replicas) in [(2, 2), (3, 2), (4, 3), (16, 3)] {
            let map = deal_partitions((nodes, replicas), 1, 256, 7);
            let mut counts = vec![0; usize::from(nodes)];
            let mut with_first = vec![0; usize::from(nodes)];
            for it in map.partitions() {
                let mut distinct = it.replicas.clone();
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!((distinct.len(), it.replicas.len()), (replicas.into(), replicas.into()));
                it.replicas.iter().for_each(|node| counts[usize::from(*node)] += 1);
                if it.replicas.contains(&0) {
                    it.replicas.iter().for_each(|node| with_first[usize::from(*node)] += 1);
                }
            }
            let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
            assert!(most - least <= 2, "{counts:?}");
            assert!(with_first.iter().all(|shared| *shared > 0), "{with_first:?}");
        }
    }

    #[test]
    fn partitions_are_dealt_out_evenly() {
        for nodes in [1, 3, 4, 16] {
            let map = deal_partitions((nodes, 1), 1, 256, 7);
            let heads: Vec<u16> =
                map.partitions().iter().map(|partition| partition.head()).collect();
            let counts: Vec<_> =
                (0..nodes).map(|node| heads.iter().filter(|head| **head == node).count()).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
        assert_eq!(deal_partitions((4, 1), 1, 256, 7), deal_partitions((4, 1), 1, 256, 7));
        assert_ne!(deal_partitions((4, 1), 1, 256, 7), deal_partitions((4, 1), 1, 256, 8));
    }
    #[test]
    fn every_chain_serves_as_many_partitions_of_all_nodes() {
        let map = deal_partitions((4, 1), 3, 256, 7);
        assert_eq!(
            map.partitions().iter().map(Partition::head).collect::<Vec<_>>(),
            deal_partitions((4, 1), 1, 256, 7)
                .partitions()
                .iter()
                .map(Partition::head)
                .collect::<Vec<_>>(),
        );
        for chain in 0..3 {
            let of_chain = || map.partitions().iter().filter(|it| it.chain == chain);
            assert!((85..=86).contains(&of_chain().count()), "{}", of_chain().count());
            for node in 0..4 {
                assert!(of_chain().any(|partition| partition.head() == node));
            }
        }
    }
}
