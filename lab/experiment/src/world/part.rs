//! The parts of a rack, their names on the control channel, and their addresses.

use super::Setup;
use switchback_core::control::Peer;
use switchback_wire::Address;

const CLIENT_ROLE: u16 = 1;
const SWITCH_ROLE: u16 = 2;
const NODE_ROLE: u16 = 3;

/// A part of the rack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Controller,
    Switch,
    Node(u16),
    Client(u16),
}

impl Part {
    /// Its number among all parts.
    #[inline]
    pub(crate) fn index(self, setup: &Setup) -> usize {
        match self {
            Part::Controller => 0,
            Part::Switch => 1,
            Part::Node(node) => 2 + usize::from(node),
            Part::Client(client) => 2 + usize::from(setup.servers) + usize::from(client),
        }
    }

    /// Its name on the control channel.
    pub(crate) fn peer(self) -> Peer {
        match self {
            Part::Controller => Peer::Controller,
            Part::Switch => Peer::Switch(0),
            Part::Node(node) => Peer::Node(node),
            Part::Client(client) => Peer::Client(client.into()),
        }
    }

    /// The part with this name on the control channel.
    pub(crate) fn of_peer(peer: Peer) -> Part {
        match peer {
            Peer::Controller => Part::Controller,
            Peer::Switch(_) => Part::Switch,
            Peer::Node(node) => Part::Node(node),
            Peer::Client(client) => Part::Client(client as u16),
        }
    }

    /// Its address on the data plane.
    #[inline]
    pub(crate) const fn address(self) -> Address {
        match self {
            Part::Controller => Address::in_memory(0, 0),
            Part::Switch => Address::in_memory(SWITCH_ROLE, 0),
            Part::Node(node) => Address::in_memory(NODE_ROLE, node),
            Part::Client(client) => Address::in_memory(CLIENT_ROLE, client),
        }
    }

    /// The part with this address.
    #[inline]
    pub(crate) fn of_address(address: &Address) -> Option<Part> {
        let index = u16::from_be_bytes([address.ip[14], address.ip[15]]);
        match u16::from_be_bytes([address.ip[12], address.ip[13]]) {
            CLIENT_ROLE => Some(Part::Client(index)),
            SWITCH_ROLE => Some(Part::Switch),
            NODE_ROLE => Some(Part::Node(index)),
            _ => None,
        }
    }
}
