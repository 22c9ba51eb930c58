use crate::Address;
use serde::{Deserialize, Serialize};

/// A switch's place in its chain: one switch a layer, counted from the clients on. The last one
/// *owns* the chain's records, the others are *keepers*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Place {
    /// 1 next to the clients, `length` next to the nodes.
    pub position: u8,
    /// How many switches the chain has, to [`LAYERS_MAX`].
    pub length: u8,
    /// The switch at the position before, which requests come from; none at position 1.
    pub before: Option<Address>,
    /// The switch at the position after, which answers come from; none at the last.
    pub after: Option<Address>,
    /// Whether the chain's switches protect what the cache told: position 1 then clears DIRTY in
    /// answers, so that clients preserve nothing.
    pub protects: bool,
}

/// Switches of a chain at most.
pub const LAYERS_MAX: u8 = 8;

/// [`Header::hop`](crate::Header::hop) of what has passed a spine last (DistCache).
pub const SPINE_HOP: u8 = 1;
/// The same of a leaf, also while its chain has no spine.
pub const LEAF_HOP: u8 = 2;

impl Place {
    /// How long a place is as FREEZE brings it.
    pub const BYTES: usize = 40;

    /// Of the only switch of a chain.
    pub const fn sole() -> Place {
        Place { position: 1, length: 1, before: None, after: None, protects: false }
    }

    /// Whether it is the last switch of its chain, which owns the records.
    pub fn is_owner(&self) -> bool {
        self.position == self.length
    }

    /// Whether it is a place of a chain, with the neighbours that it has there.
    pub fn is_sound(&self) -> bool {
        (1..=self.length).contains(&self.position)
            && self.length <= LAYERS_MAX
            && self.before.is_some_and(|before| before.port != 0) == (self.position > 1)
            && self.after.is_some_and(|after| after.port != 0) == (self.position < self.length)
    }

    /// As FREEZE brings it: position, length, whether it protects, 0, the ports of the switches
    /// before and after (2 bytes each, big-endian; 0: there is none), their addresses (16 bytes
    /// each).
    pub fn encode(&self) -> [u8; Place::BYTES] {
        let mut bytes = [0; Place::BYTES];
        bytes[..3].copy_from_slice(&[self.position, self.length, self.protects.into()]);
        for (i, neighbour) in [self.before, self.after].into_iter().enumerate() {
            let Address { ip, port } = neighbour.unwrap_or_default();
            bytes[4 + 2 * i..][..2].copy_from_slice(&port.to_be_bytes());
            bytes[8 + 16 * i..][..16].copy_from_slice(&ip);
        }
        bytes
    }

    /// The place that [`Place::encode`] gave as these bytes.
    pub fn decode(bytes: &[u8; Place::BYTES]) -> Place {
        let neighbour = |i: usize| {
            let port = u16::from_be_bytes([bytes[4 + 2 * i], bytes[5 + 2 * i]]);
            let mut ip = [0; 16];
            ip.copy_from_slice(&bytes[8 + 16 * i..][..16]);
            (port != 0).then_some(Address { ip, port })
        };
        let [position, length, protects, ..] = *bytes;
        let (before, after) = (neighbour(0), neighbour(1));
        Place { position, length, before, after, protects: protects != 0 }
    }
}

/// How many probes of its neighbours in the chain a switch has heard, ever (rule 28): each
/// neighbour sends a short and a full one at every heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Heard {
    /// Of the switch before.
    pub before: Probes,
    /// Of the switch after.
    pub after: Probes,
}

/// Probes that arrived from one neighbour. The counts wrap around.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Probes {
    /// Of a header and a key of one byte.
    pub short: u32,
    /// Of [`PACKET_BYTES_MAX`](crate::PACKET_BYTES_MAX) bytes.
    pub full: u32,
}

impl Heard {
    /// From the counts of the datapath: short and full ones of the switch before, then of the one
    /// after.
    pub fn from_counts([short_before, full_before, short_after, full_after]: [u32; 4]) -> Heard {
        Heard {
            before: Probes { short: short_before, full: full_before },
            after: Probes { short: short_after, full: full_after },
        }
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::sole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Address = Address::in_memory(4, 7);

    fn second_of_three() -> Place {
        let (before, after) = (Some(ADDRESS), Some(Address::in_memory(4, 8)));
        Place { position: 2, length: 3, before, after, protects: true }
    }

    #[test]
    fn a_place_comes_back_from_its_bytes() {
        for place in [Place::sole(), second_of_three()] {
            assert_eq!(Place::decode(&place.encode()), place);
        }
    }

    #[test]
    fn a_place_has_the_neighbours_of_its_position_and_no_others() {
        let place = second_of_three();
        assert!(Place::sole().is_sound() && place.is_sound());
        assert!(!Place { position: 0, before: None, ..place }.is_sound());
        assert!(!Place { position: 4, ..place }.is_sound());
        assert!(!Place { length: LAYERS_MAX + 1, ..place }.is_sound());
        assert!(!Place { before: None, ..place }.is_sound());
        assert!(!Place { after: None, ..place }.is_sound());
        assert!(!Place { after: Some(ADDRESS), ..Place::sole() }.is_sound());
        assert!(!Place { after: Some(Address::default()), ..place }.is_sound());
    }
}
