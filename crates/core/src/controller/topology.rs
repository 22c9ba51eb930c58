//! Which node stores each partition, and which chain of switches serves it.

use super::Context;
use super::chain::Chain;
use super::directory::Directory;
use crate::control::ChainGrant;
use crate::topology::{ByChain, ChainId, chain_of, chain_of_switch};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;
use switchback_wire::Map;

/// The rack's chains of switches.
#[derive(Debug)]
pub(super) struct Chains {
    chains: ByChain<Chain>,
}

impl Chains {
    pub(super) fn new(chain: impl FnMut(ChainId) -> Chain) -> Chains {
        Chains { chains: ByChain::new(chain) }
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
        ByChain::new(|id| call(&mut self.chains[id]))
    }

    /// The chain that a switch belongs to.
    pub(super) fn of_switch(&mut self, switch: u16) -> &mut Chain {
        &mut self.chains[chain_of_switch(switch)]
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
        let mut of_chain = ByChain::new(|_| Vec::new());
        for key in keys {
            let hash = directory.hash_key().hash(&key);
            of_chain[chain_of(directory.partition_of(&hash))].push(key);
        }
        self.chains.iter_mut().map(move |(id, chain)| (chain, std::mem::take(&mut of_chain[id])))
    }

    /// What the chains offer to a client; `None` while one of them has nothing to offer.
    pub(super) fn grants(&self, cx: &Context<'_>) -> Option<ByChain<ChainGrant>> {
        ByChain::try_new(|chain| self.chains[chain].grant(cx))
    }

    /// The chain that the status tells of, which has room for one.
    pub(super) fn told(&self) -> &Chain {
        &self.chains[chain_of(0)]
    }
}

/// Equal ranges, of which every node gets as many as any other, give or take one, in an order drawn
/// from `seed`.
pub fn deal_partitions(nodes: u16, partitions: u32, seed: u64) -> Map {
    assert!(nodes > 0 && partitions >= u32::from(nodes));
    let mut random = Pcg32::seed_from_u64(seed ^ 0x7061_7274);
    let first = random.random_range(0..nodes);
    let mut heads: Vec<u16> =
        (0..partitions).map(|p| ((p + u32::from(first)) % u32::from(nodes)) as u16).collect();
    heads.shuffle(&mut random);
    Map::equal(heads.into_iter().map(|node| vec![node]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_dealt_out_evenly() {
        for nodes in [1, 3, 4, 16] {
            let map = deal_partitions(nodes, 256, 7);
            let heads: Vec<u16> =
                map.partitions().iter().map(|partition| partition.head()).collect();
            let counts: Vec<_> =
                (0..nodes).map(|node| heads.iter().filter(|head| **head == node).count()).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
        assert_eq!(deal_partitions(4, 256, 7), deal_partitions(4, 256, 7));
        assert_ne!(deal_partitions(4, 256, 7), deal_partitions(4, 256, 8));
    }
}
