//! Which node stores each partition, and which chain of switches serves it.

use super::chain::Chain;
use super::directory::Directory;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

/// The rack's chains of switches. There is one, which all switches belong to and which serves all
/// partitions: nothing but this file relies on that.
#[derive(Debug)]
pub(super) struct Chains {
    only: Chain,
}

impl Chains {
    pub(super) fn new(only: Chain) -> Chains {
        Chains { only }
    }

    /// All chains.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Chain> {
        std::iter::once(&self.only)
    }

    /// All chains.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Chain> {
        std::iter::once(&mut self.only)
    }

    /// The chain that a switch belongs to.
    pub(super) fn of_switch(&mut self, _switch: u16) -> &mut Chain {
        &mut self.only
    }

    /// The chain that is in this epoch; `None`: none is any more, or yet.
    pub(super) fn of_epoch(&mut self, directory: &Directory, epoch: u32) -> Option<&mut Chain> {
        (epoch == directory.epoch()).then_some(&mut self.only)
    }

    /// Each chain, and those of the keys that it serves.
    pub(super) fn with_keys(&mut self, keys: Vec<Vec<u8>>) -> impl Iterator<Item = (&mut Chain, Vec<Vec<u8>>)> {
        std::iter::once((&mut self.only, keys))
    }

    /// The chain that grants and the status tell of: both have room for one.
    pub(super) fn told(&self) -> &Chain {
        &self.only
    }
}

/// Every node gets as many partitions as any other, give or take one, in an order drawn from `seed`.
pub fn deal_partitions(nodes: u16, partitions: u32, seed: u64) -> Vec<Vec<u16>> {
    assert!(nodes > 0 && partitions >= u32::from(nodes));
    let mut random = Pcg32::seed_from_u64(seed ^ 0x7061_7274);
    let first = random.random_range(0..nodes);
    let mut routes: Vec<u16> = (0..partitions).map(|p| ((p + u32::from(first)) % u32::from(nodes)) as u16).collect();
    routes.shuffle(&mut random);
    routes.into_iter().map(|node| vec![node]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_dealt_out_evenly() {
        for nodes in [1, 3, 4, 16] {
            let routes = deal_partitions(nodes, 256, 7);
            let counts: Vec<_> =
                (0..nodes).map(|node| routes.iter().filter(|route| route[0] == node).count()).collect();
            assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
        }
        assert_eq!(deal_partitions(4, 256, 7), deal_partitions(4, 256, 7));
        assert_ne!(deal_partitions(4, 256, 7), deal_partitions(4, 256, 8));
    }
}
