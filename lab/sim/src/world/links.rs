//! Links between nodes: a connection between any two of them. What is sent over one arrives in
//! order; one that breaks loses what is on its way; while there is none, messages are lost.

use super::World;
use crate::event::Event;
use crate::plan::ControlNetwork;
use crate::random::Random;
use std::collections::BTreeMap;
use switchback_assembly::Part;
use switchback_core::node::LinkMessage;

/// A message on its way.
struct UnderWay {
    from: u16,
    to: u16,
    /// The connection's number among those from the one node to the other.
    number: u32,
    message: LinkMessage,
}

#[derive(Clone, Copy, Default)]
struct Connection {
    number: u32,
    /// When it is up again.
    up_us: u64,
    /// When the last message arrives.
    last_us: u64,
}

/// All links.
pub(super) struct NodeLinks {
    plan: ControlNetwork,
    random: Random,
    connections: BTreeMap<(u16, u16), Connection>,
    messages: Vec<Option<UnderWay>>,
    free: Vec<u32>,
}

impl NodeLinks {
    pub(super) fn new(plan: ControlNetwork, random: Random) -> NodeLinks {
        let (connections, messages, free) = Default::default();
        NodeLinks { plan, random, connections, messages, free }
    }

    /// Messages under way.
    pub(super) fn under_way(&self) -> usize {
        self.messages.len() - self.free.len()
    }

    /// Sends a message; where it is among those under way, and when it arrives.
    fn send(&mut self, now_us: u64, slower: u64, under_way: UnderWay) -> Option<(u32, u64)> {
        let connection = self.connections.entry((under_way.from, under_way.to)).or_default();
        if connection.up_us > now_us {
            return None;
        }
        if self.random.chance(self.plan.breaks) {
            let again_us = 1 + self.random.below(self.plan.reconnect_us.max(1));
            (connection.number, connection.up_us) = (connection.number + 1, now_us + again_us);
            return None;
        }
        let delay_us = (self.plan.delay_us + self.random.exponential(self.plan.jitter_us)) * slower;
        connection.last_us = connection.last_us.max(now_us + 1 + delay_us);
        let (number, at_us) = (connection.number, connection.last_us);
        Some((self.put(UnderWay { number, ..under_way }), at_us))
    }

    fn put(&mut self, under_way: UnderWay) -> u32 {
        if let Some(place) = self.free.pop() {
            self.messages[place as usize] = Some(under_way);
            return place;
        }
        self.messages.push(Some(under_way));
        (self.messages.len() - 1) as u32
    }

    fn take(&mut self, place: u32) -> UnderWay {
        self.free.push(place);
        self.messages[place as usize].take().expect("a message arrives once")
    }

    fn is_of_now(&self, under_way: &UnderWay) -> bool {
        let connection = self.connections.get(&(under_way.from, under_way.to));
        connection.is_some_and(|connection| connection.number == under_way.number)
    }

    /// All connections of a node break.
    pub(super) fn break_all(&mut self, now_us: u64, node: u16) {
        for ((from, to), connection) in &mut self.connections {
            if *from == node || *to == node {
                connection.number += 1;
                let again_us = 1 + self.random.below(self.plan.reconnect_us.max(1));
                connection.up_us = now_us + again_us;
                connection.last_us = 0;
            }
        }
    }

    /// Whether messages arrive about as soon as they are sent: none is still behind one that a
    /// fault held up.
    pub(super) fn is_prompt(&self, now_us: u64) -> bool {
        let soon_us = now_us + 20 * (self.plan.delay_us + self.plan.jitter_us) + 1;
        self.connections.values().all(|connection| connection.last_us <= soon_us)
    }

    /// Everything works from now on.
    pub(super) fn heal(&mut self) {
        self.plan.breaks = 0.0;
    }
}

impl World {
    /// Sends a message from node to node.
    pub(super) fn send_link(&mut self, from: u16, to: u16, message: LinkMessage) {
        let numbers = (self.numbers.number(Part::Node(from)), self.numbers.number(Part::Node(to)));
        let text = self.trace.is_described().then(|| format!("{message:?}"));
        let slower = self.control.slower;
        let is_cut = self.network.is_blocked(numbers.0, numbers.1);
        let under_way = UnderWay { from, to, number: 0, message };
        let sent = match is_cut {
            true => None,
            false => self.links.send(self.now_us, slower, under_way),
        };
        if let Some(text) = text {
            self.trace.line(self.now_us, || {
                let arrives = sent.map(|(_, at_us)| at_us);
                format!("node{from} to node{to}, arrives {arrives:?}: {text}")
            });
        }
        if let Some((place, at_us)) = sent {
            self.queue.push(at_us, Event::Link(place));
        }
    }

    pub(super) fn link_arrives(&mut self, place: u32) {
        let under_way = self.links.take(place);
        if !self.links.is_of_now(&under_way) {
            return;
        }
        let UnderWay { from, to, .. } = under_way;
        let until_us = self.paused_until_us[usize::from(self.numbers.number(Part::Node(to)))];
        if until_us > self.now_us {
            let place = self.links.put(under_way);
            self.queue.push(until_us, Event::Link(place));
            return;
        }
        self.trace.number(u64::from(to));
        self.node_is_told(to, from, under_way.message);
    }
}
