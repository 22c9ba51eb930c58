use crate::Address;
use serde::{Deserialize, Serialize};

/// A switch's place in its chain: one switch a layer, counted from the clients on. The last one
/// *owns* the chain's records, the others are *keepers*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// 1 next to the clients, `length` next to the nodes.
    pub position: u8,
    /// How many switches the chain has.
    pub length: u8,
    /// The switch at the position before, which requests come from; none at position 1.
    pub before: Option<Address>,
    /// The switch at the position after, which answers come from; none at the last.
    pub after: Option<Address>,
    /// Whether the chain's switches protect what the cache told: position 1 then clears DIRTY in
    /// answers, so that clients preserve nothing.
    pub protects: bool,
}

impl Place {
    /// Of the only switch of a chain.
    pub const fn sole() -> Place {
        Place { position: 1, length: 1, before: None, after: None, protects: false }
    }
}
