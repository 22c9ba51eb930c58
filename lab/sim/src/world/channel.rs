//! Messages under way.

use super::World;
use crate::control::Sent;
use crate::event::Event;
use crate::trace::Sending;
use switchback_assembly::Part;
use switchback_core::control::{Delivery, Envelope, Message};

impl World {
    /// Sends a part's message to the controller.
    pub(super) fn report(&mut self, from: Part, message: impl Into<Message>) {
        self.carry(Envelope::to_controller(from.peer(), message));
    }

    /// Sends a message over the control plane.
    pub(super) fn carry(&mut self, envelope: Envelope) {
        let (from, to) = (Part::of_peer(envelope.from), Part::of_peer(envelope.to));
        let now_us = self.now_us;
        let envelope = match &mut self.rules {
            Some(rules) => rules.stalls(from, to, envelope),
            None => Some(envelope),
        };
        let Some(envelope) = envelope else { return };
        let text = self.trace.is_described().then(|| format!("{:?}", envelope.message));
        let sent = self.control.send(now_us, envelope);
        if let Some(text) = text {
            let arrives_us = match sent {
                Sent::Arrives(_, at_us) => vec![at_us],
                Sent::Lost | Sent::Breaks => Vec::new(),
            };
            let fate = format!("{sent:?}");
            self.trace.sent(now_us, || Sending { from, to, key: None, text, arrives_us, fate });
        }
        match sent {
            Sent::Arrives(place, at_us) => self.queue.push(at_us, Event::Message(place)),
            Sent::Lost => {}
            Sent::Breaks => {
                self.break_connection(self.numbers.number(Part::connection(from, to).0));
            }
        }
    }

    /// Breaks the connection between a part and the controller.
    pub(super) fn break_connection(&mut self, part: u16) {
        let Some((again_us, number)) = self.control.break_connection(self.now_us, part) else {
            return;
        };
        let lost_us = self.random.between(self.now_us, again_us);
        self.queue.push(lost_us, Event::Lost(part, number));
        self.queue.push(again_us, Event::Reconnect(part, number));
    }

    pub(super) fn connection_lost(&mut self, part: u16) {
        if self.is_paused(self.numbers.number(Part::Controller), Event::Lost(part, 0)) {
            return;
        }
        self.controller_loses(self.numbers.part(part));
    }

    pub(super) fn message_arrives(&mut self, place: u32) {
        // It waits in the receiver's socket while that is paused.
        let Some(under_way) = self.control.take(place) else { return };
        let to = Part::of_peer(under_way.envelope.to);
        let until_us = self.paused_until_us[usize::from(self.numbers.number(to))];
        if until_us > self.now_us {
            let place = self.control.put(under_way);
            self.queue.push(until_us, Event::Message(place));
            return;
        }
        self.trace.number(u64::from(self.numbers.number(to)));
        match under_way.envelope.deliver().expect("the controller knows who is who") {
            Delivery::Controller(envelope) => self.controller_hears(envelope),
            Delivery::Client(client, notice) => self.client_hears(client as u16, notice),
            Delivery::Switch(switch, command) => self.switch_hears(switch, command),
            Delivery::Node(node, command) => self.node_hears(node, command),
        }
    }
}
