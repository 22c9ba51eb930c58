//! Which node has which partition, in a rack that is made now.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg32;

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
