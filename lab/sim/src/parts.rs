//! The parts of a rack, as small numbers: controller, clients, switches, nodes.

use std::fmt;
use switchback_core::control::Peer;
use switchback_wire::Address;

/// Most clients of a run.
pub const CLIENTS_MAX: usize = 8;
/// Most switches of a run.
pub const SWITCHES_MAX: usize = 3;
/// Most nodes of a run.
pub const NODES_MAX: usize = 16;

const FIRST_CLIENT: u8 = 1;
const FIRST_SWITCH: u8 = FIRST_CLIENT + CLIENTS_MAX as u8;
const FIRST_NODE: u8 = FIRST_SWITCH + SWITCHES_MAX as u8;
/// How many parts there can be.
pub const PARTS_MAX: usize = FIRST_NODE as usize + NODES_MAX;

const CLIENT_ROLE: u16 = 1;
const SWITCH_ROLE: u16 = 2;
const NODE_ROLE: u16 = 3;

/// A part of the rack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The controller.
    Controller,
    /// A client.
    Client(u8),
    /// A switch.
    Switch(u8),
    /// A node.
    Node(u8),
}

impl Part {
    /// Its number.
    #[inline]
    pub fn index(self) -> u8 {
        match self {
            Part::Controller => 0,
            Part::Client(client) => FIRST_CLIENT + client,
            Part::Switch(switch) => FIRST_SWITCH + switch,
            Part::Node(node) => FIRST_NODE + node,
        }
    }

    /// The part of a number.
    #[inline]
    pub fn from_index(index: u8) -> Part {
        match index {
            0 => Part::Controller,
            FIRST_CLIENT..FIRST_SWITCH => Part::Client(index - FIRST_CLIENT),
            FIRST_SWITCH..FIRST_NODE => Part::Switch(index - FIRST_SWITCH),
            _ => Part::Node(index - FIRST_NODE),
        }
    }

    /// Its name on the control channel.
    pub fn peer(self) -> Peer {
        match self {
            Part::Controller => Peer::Controller,
            Part::Client(client) => Peer::Client(u64::from(client)),
            Part::Switch(switch) => Peer::Switch(switch.into()),
            Part::Node(node) => Peer::Node(node.into()),
        }
    }

    /// The part that has this name on the control channel.
    pub fn of_peer(peer: Peer) -> Part {
        match peer {
            Peer::Controller => Part::Controller,
            Peer::Client(client) => Part::Client(client as u8),
            Peer::Switch(switch) => Part::Switch(switch as u8),
            Peer::Node(node) => Part::Node(node as u8),
        }
    }

    /// Its address on the data plane.
    pub const fn address(self) -> Address {
        match self {
            Part::Controller => Address::in_memory(0, 0),
            Part::Client(client) => Address::in_memory(CLIENT_ROLE, client as u16),
            Part::Switch(switch) => Address::in_memory(SWITCH_ROLE, switch as u16),
            Part::Node(node) => Address::in_memory(NODE_ROLE, node as u16),
        }
    }

    /// The part that has this address.
    #[inline]
    pub fn of_address(address: &Address) -> Option<Part> {
        let index = address.ip[15];
        match u16::from_be_bytes([address.ip[12], address.ip[13]]) {
            CLIENT_ROLE => Some(Part::Client(index)),
            SWITCH_ROLE => Some(Part::Switch(index)),
            NODE_ROLE => Some(Part::Node(index)),
            _ => None,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Controller => write!(f, "controller"),
            Part::Client(client) => write!(f, "client{client}"),
            Part::Switch(switch) => write!(f, "switch{switch}"),
            Part::Node(node) => write!(f, "node{node}"),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_number_address_and_name() {
        for part in [
            Part::Controller,
            Part::Client(0),
            Part::Client(7),
            Part::Switch(2),
            Part::Node(0),
            Part::Node(15),
        ] {
            assert_eq!(Part::from_index(part.index()), part);
            assert_eq!(Part::of_peer(part.peer()), part);
            if part != Part::Controller {
                assert_eq!(Part::of_address(&part.address()), Some(part));
            }
        }
        assert!(usize::from(Part::Node(15).index()) < PARTS_MAX);
    }
}
