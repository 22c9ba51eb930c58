//! The queue of events. Packets on links with equal delays arrive nearly in the order in which they
//! were sent, so a deque holds them instead of a heap.

use crate::world::Event;
use std::collections::VecDeque;
use switchback_events::EventQueue;
use switchback_wire::{Address, Packet};

/// A packet on a link. It keeps its buffer from hop to hop.
pub(crate) struct Flight {
    pub(crate) packet: Packet,
    /// The part that sent it.
    pub(crate) from: Address,
    /// Index of the part that receives it, among those of its role.
    pub(crate) to: u16,
}

/// The links of the data plane, by their receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Link {
    Switch,
    Node,
    Client,
}

const LINKS: [Link; 3] = [Link::Switch, Link::Node, Link::Client];

/// The next event.
pub(crate) enum Next {
    Arrival(Link, Box<Flight>),
    Event(Event),
}

/// Packets on links, and all other events, in order of time.
#[derive(Default)]
pub(crate) struct Timeline {
    #[allow(clippy::vec_box)] // Flights are long, and move from hop to hop.
    lines: [VecDeque<(u64, Box<Flight>)>; 3],
    queue: EventQueue<Event>,
    #[allow(clippy::vec_box)]
    spare: Vec<Box<Flight>>,
}

impl Timeline {
    /// An empty buffer.
    #[inline]
    pub(crate) fn buffer(&mut self) -> Box<Flight> {
        let fresh = || Box::new(Flight { packet: Packet::new(), from: Address::default(), to: 0 });
        self.spare.pop().unwrap_or_else(fresh)
    }

    /// Takes a buffer back.
    #[inline]
    pub(crate) fn done(&mut self, flight: Box<Flight>) {
        self.spare.push(flight);
    }

    /// Sends a packet. Packets of a link take equally long but for their lengths: a short one
    /// overtakes those few long ones that other parts sent just before.
    #[inline]
    pub(crate) fn send(&mut self, link: Link, at_ns: u64, flight: Box<Flight>) {
        let line = &mut self.lines[link as usize];
        let overtaken = line.iter().rev().take_while(|(other_ns, _)| *other_ns > at_ns).count();
        line.insert(line.len() - overtaken, (at_ns, flight));
    }

    /// Adds another event.
    #[inline]
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.queue.push(at_ns, event);
    }

    /// Drops the packets on their way to a switch, whose socket is gone.
    pub(crate) fn cut_switch(&mut self, switch: u16) {
        let line = &mut self.lines[Link::Switch as usize];
        for (at_ns, flight) in std::mem::take(line) {
            if flight.to == switch {
                self.spare.push(flight);
            } else {
                line.push_back((at_ns, flight));
            }
        }
    }

    /// The time of the next event.
    #[inline]
    pub(crate) fn next_ns(&self) -> Option<u64> {
        let lines = self.lines.iter().filter_map(|line| line.front().map(|(at_ns, _)| *at_ns));
        lines.chain(self.queue.next_at()).min()
    }

    /// Takes the next event. Of those at one instant packets come first, in the order of the links.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Next)> {
        let mut first_ns = self.queue.next_at().unwrap_or(u64::MAX);
        let mut from = None;
        for link in LINKS {
            if let Some((at_ns, _)) = self.lines[link as usize].front()
                && (*at_ns < first_ns || (*at_ns == first_ns && from.is_none()))
            {
                first_ns = *at_ns;
                from = Some(link);
            }
        }
        match from {
            Some(link) => {
                let (at_ns, flight) = self.lines[link as usize].pop_front()?;
                Some((at_ns, Next::Arrival(link, flight)))
            }
            None => self.queue.pop().map(|(at_ns, event)| (at_ns, Next::Event(event))),
        }
    }
}
