//! The control plane's network: a connection between the controller and every other part. What is
//! sent over one connection arrives in order; a connection that breaks loses what is on its way;
//! while there is none, messages are dropped.

use crate::plan::ControlNetwork;
use crate::random::Random;
use switchback_assembly::{Direction, Part, Parts};
use switchback_core::control::Envelope;

/// A message on its way, and the connection that it is sent over.
#[derive(Debug)]
pub(crate) struct UnderWay {
    /// The message.
    pub(crate) envelope: Envelope,
    /// The connection's other end.
    pub(crate) part: u16,
    /// The number of that connection among those of the part.
    pub(crate) number: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Connection {
    up: bool,
    number: u32,
    /// When the last message of each direction arrives.
    last_us: [u64; 2],
    /// How many faults stall it.
    stalled: u8,
}

/// Connections of all parts to the controller.
pub(crate) struct ControlPlane {
    plan: ControlNetwork,
    random: Random,
    numbers: Parts,
    connections: Vec<Connection>,
    messages: Vec<Option<UnderWay>>,
    free: Vec<u32>,
    stalled: Vec<UnderWay>,
    /// Factor by which all messages take longer, for a while.
    pub(crate) slower: u64,
    /// Messages sent.
    pub(crate) sent: u64,
    /// Connections that broke.
    pub(crate) broken: u64,
}

/// What becomes of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sent {
    /// It is this one of those under way, and arrives then.
    Arrives(u32, u64),
    /// It is lost.
    Lost,
    /// It is lost, and the connection breaks.
    Breaks,
}

impl ControlPlane {
    /// All connections are up.
    pub(crate) fn new(plan: ControlNetwork, random: Random, numbers: Parts) -> ControlPlane {
        let connection = Connection { up: true, number: 1, ..Connection::default() };
        ControlPlane {
            plan,
            random,
            numbers,
            connections: vec![connection; numbers.count()],
            messages: Vec::new(),
            free: Vec::new(),
            stalled: Vec::new(),
            slower: 1,
            sent: 0,
            broken: 0,
        }
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, now_us: u64, envelope: Envelope) -> Sent {
        self.sent += 1;
        let (from, to) = (Part::of_peer(envelope.from), Part::of_peer(envelope.to));
        let (part, direction) = Part::connection(from, to);
        let part = self.numbers.number(part);
        let connection = self.connections[usize::from(part)];
        if !connection.up {
            return Sent::Lost;
        }
        if self.random.chance(self.plan.breaks) {
            return Sent::Breaks;
        }
        let under_way = UnderWay { envelope, part, number: connection.number };
        if connection.stalled > 0 {
            self.stalled.push(under_way);
            return Sent::Lost; // for now
        }
        self.arrive(now_us, direction, under_way)
    }

    fn arrive(&mut self, now_us: u64, direction: Direction, under_way: UnderWay) -> Sent {
        let delay_us =
            (self.plan.delay_us + self.random.exponential(self.plan.jitter_us)) * self.slower;
        let last_us =
            &mut self.connections[usize::from(under_way.part)].last_us[direction as usize];
        *last_us = (*last_us).max(now_us + delay_us);
        let at_us = *last_us;
        Sent::Arrives(self.put(under_way), at_us)
    }

    /// Takes a message in: its place.
    pub(crate) fn put(&mut self, under_way: UnderWay) -> u32 {
        if let Some(place) = self.free.pop() {
            self.messages[place as usize] = Some(under_way);
            return place;
        }
        self.messages.push(Some(under_way));
        (self.messages.len() - 1) as u32
    }

    /// A message arrives, unless its connection broke.
    pub(crate) fn take(&mut self, place: u32) -> Option<UnderWay> {
        let under_way = self.messages[place as usize].take()?;
        self.free.push(place);
        let connection = &self.connections[usize::from(under_way.part)];
        (connection.up && connection.number == under_way.number).then_some(under_way)
    }

    /// Breaks a part's connection. Returns when the part may connect again, and the number of that
    /// connection; `None` if there is no connection to break.
    pub(crate) fn break_connection(&mut self, now_us: u64, part: u16) -> Option<(u64, u32)> {
        let connection = &mut self.connections[usize::from(part)];
        if !connection.up {
            return None;
        }
        self.broken += 1;
        connection.up = false;
        connection.number += 1;
        let number = connection.number;
        self.stalled.retain(|under_way| under_way.part != part);
        Some((now_us + 1 + self.random.below(self.plan.reconnect_us.max(1)), number))
    }

    /// The connection is up again, if nothing happened to it since.
    pub(crate) fn reconnect(&mut self, part: u16, number: u32) {
        let connection = &mut self.connections[usize::from(part)];
        if connection.number == number {
            connection.up = true;
        }
    }

    /// Stalls a connection, or undoes it once; messages that arrive thereby, and when.
    pub(crate) fn stall(&mut self, now_us: u64, part: u16, stalls: bool) -> Vec<(u32, u64)> {
        let connection = &mut self.connections[usize::from(part)];
        connection.stalled = if stalls {
            connection.stalled.saturating_add(1)
        } else {
            connection.stalled.saturating_sub(1)
        };
        if connection.stalled > 0 {
            return Vec::new();
        }
        let (released, kept) =
            std::mem::take(&mut self.stalled).into_iter().partition(|message| message.part == part);
        self.stalled = kept;
        let released: Vec<UnderWay> = released;
        let mut arriving = Vec::new();
        for under_way in released {
            let Envelope { from, to, .. } = under_way.envelope;
            let (_, direction) = Part::connection(Part::of_peer(from), Part::of_peer(to));
            if let Sent::Arrives(place, at_us) = self.arrive(now_us, direction, under_way) {
                arriving.push((place, at_us));
            }
        }
        arriving
    }

    /// Whether messages arrive about as soon as they are sent: none is still behind one that a
    /// fault held up.
    pub(crate) fn is_prompt(&self, now_us: u64) -> bool {
        let soon_us = now_us + 20 * (self.plan.delay_us + self.plan.jitter_us) + 1;
        self.connections
            .iter()
            .all(|connection| connection.last_us.iter().all(|last_us| *last_us <= soon_us))
    }

    /// Everything works from now on.
    pub(crate) fn heal(&mut self) {
        self.plan.breaks = 0.0;
        self.slower = 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::PARTS;
    use switchback_core::control::{ClientReport, Message, Peer};

    #[test]
    fn a_message_that_was_slowed_down_is_waited_for_after_the_faults() {
        let plan = ControlNetwork { delay_us: 100, jitter_us: 0, breaks: 0.0, reconnect_us: 1 };
        let mut control = ControlPlane::new(plan, Random::new(1), PARTS);
        let message = Message::FromClient(ClientReport::Close { boot: 1 });
        let envelope = Envelope { from: Peer::Client(0), to: Peer::Controller, message };
        assert!(matches!(control.send(0, envelope.clone()), Sent::Arrives(_, 100)));
        assert!(control.is_prompt(0));
        control.slower = 1_000;
        assert!(matches!(control.send(0, envelope), Sent::Arrives(_, 100_000)));
        control.heal();
        assert!(!control.is_prompt(0) && control.is_prompt(100_000));
    }
}
