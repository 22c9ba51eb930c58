//! The parts of a rack by their roles, and what connects them.
//!
//! - **Data**: clients and nodes send packets to switches, switches to clients and nodes. A packet
//!   goes to an address, so there is no list of pairs.
//! - **Control**: each part but the controller has one connection, to the controller.

use std::fmt;
use switchback_core::control::Peer;
use switchback_wire::Address;

/// Roles in an address in memory.
const CLIENT: u16 = 1;
const SWITCH: u16 = 2;
const NODE: u16 = 3;

/// A part of a rack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The controller.
    Controller,
    /// A client.
    Client(u16),
    /// A switch.
    Switch(u16),
    /// A node.
    Node(u16),
}

impl Part {
    /// Its name on the control channel.
    pub fn peer(self) -> Peer {
        match self {
            Part::Controller => Peer::Controller,
            Part::Client(client) => Peer::Client(client.into()),
            Part::Switch(switch) => Peer::Switch(switch),
            Part::Node(node) => Peer::Node(node),
        }
    }

    /// The part that has this name on the control channel.
    ///
    /// # Panics
    /// If a client's name isn't from [`Part::peer`]: processes draw theirs.
    pub fn of_peer(peer: Peer) -> Part {
        match peer {
            Peer::Controller => Part::Controller,
            Peer::Client(client) => Part::Client(client.try_into().expect("a part's number")),
            Peer::Switch(switch) => Part::Switch(switch),
            Peer::Node(node) => Part::Node(node),
        }
    }

    /// Its address on the data plane, where that is memory.
    #[inline]
    pub const fn address(self) -> Address {
        match self {
            Part::Controller => Address::in_memory(0, 0),
            Part::Client(client) => Address::in_memory(CLIENT, client),
            Part::Switch(switch) => Address::in_memory(SWITCH, switch),
            Part::Node(node) => Address::in_memory(NODE, node),
        }
    }

    /// The part that has this address.
    #[inline]
    pub fn of_address(address: &Address) -> Option<Part> {
        let [.., role_high, role_low, high, low] = address.ip;
        let number = u16::from_be_bytes([high, low]);
        match u16::from_be_bytes([role_high, role_low]) {
            CLIENT => Some(Part::Client(number)),
            SWITCH => Some(Part::Switch(number)),
            NODE => Some(Part::Node(number)),
            _ => None,
        }
    }

    /// Whose connection to the controller a message takes, and which way.
    pub fn connection(from: Part, to: Part) -> (Part, Direction) {
        if to == Part::Controller { (from, Direction::Up) } else { (to, Direction::Down) }
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

/// How many parts of each role there are, or may be, beside the controller. They have numbers:
/// first the controller, then clients, switches and nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// Clients.
    pub clients: u16,
    /// Switches.
    pub switches: u16,
    /// Nodes.
    pub nodes: u16,
}

impl Parts {
    /// How many there are, the controller among them.
    pub const fn count(self) -> usize {
        1 + self.clients as usize + self.switches as usize + self.nodes as usize
    }

    /// The number of a part.
    #[inline]
    pub fn number(self, part: Part) -> u16 {
        match part {
            Part::Controller => 0,
            Part::Client(client) => 1 + client,
            Part::Switch(switch) => 1 + self.clients + switch,
            Part::Node(node) => 1 + self.clients + self.switches + node,
        }
    }

    /// The part of a number.
    #[inline]
    pub fn part(self, number: u16) -> Part {
        let Some(client) = number.checked_sub(1) else { return Part::Controller };
        let Some(switch) = client.checked_sub(self.clients) else { return Part::Client(client) };
        match switch.checked_sub(self.switches) {
            None => Part::Switch(switch),
            Some(node) => Part::Node(node),
        }
    }
}

/// The way of a message over a part's connection to the controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// To the controller.
    Up,
    /// From the controller.
    Down,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_number_address_and_name() {
        let parts = Parts { clients: 8, switches: 3, nodes: 1024 };
        for number in 0..parts.count() as u16 {
            let part = parts.part(number);
            assert_eq!(parts.number(part), number);
            assert_eq!(Part::of_peer(part.peer()), part);
            if part != Part::Controller {
                assert_eq!(Part::of_address(&part.address()), Some(part));
            }
        }
        assert_eq!(parts.part(0), Part::Controller);
        assert_eq!(parts.part(8), Part::Client(7));
        assert_eq!(parts.part(9), Part::Switch(0));
        assert_eq!(parts.part(1035), Part::Node(1023));
    }

    #[test]
    fn each_part_has_one_connection() {
        let (switch, controller) = (Part::Switch(1), Part::Controller);
        assert_eq!(Part::connection(switch, controller), (switch, Direction::Up));
        assert_eq!(Part::connection(controller, switch), (switch, Direction::Down));
    }
}
