//! The controller, its disk, and the control plane: one connection to every part, in order, with a
//! delay and a rate.

use super::{Event, World};
use std::collections::VecDeque;
use switchback_assembly::Part;
use switchback_core::control::{Delivery, Envelope, Message, Peer};
use switchback_core::controller::{Controller, Store, Stored, merge_stores};

/// Bytes that frame a message on the control channel.
const FRAME_BYTES: usize = 4;

/// The controller and its disk.
pub(super) struct ControllerSlot {
    pub(super) controller: Controller,
    stores: VecDeque<Store>,
}

/// Messages under way.
#[derive(Default)]
pub(super) struct ControlPlane {
    messages: Vec<Option<Envelope>>,
    free: Vec<u32>,
    /// When the last message of each connection and direction arrives.
    last_ns: Vec<[u64; 2]>,
    /// Everything sent, with frames.
    pub(super) bytes: u64,
}

impl ControllerSlot {
    pub(super) fn new(controller: Controller) -> ControllerSlot {
        ControllerSlot { controller, stores: VecDeque::new() }
    }
}

impl World {
    /// Sends a message to the controller.
    pub(super) fn report(&mut self, from: Part, message: impl Into<Message>) {
        self.carry(Envelope::to_controller(from.peer(), message));
    }

    fn carry(&mut self, envelope: Envelope) {
        let (part, direction) =
            Part::connection(Part::of_peer(envelope.from), Part::of_peer(envelope.to));
        let plane = &mut self.control;
        let bytes = FRAME_BYTES
            + postcard::experimental::serialized_size(&envelope)
                .expect("plain data has an encoding");
        plane.bytes += bytes as u64;
        let number = usize::from(self.setup.parts().number(part));
        if plane.last_ns.len() <= number {
            plane.last_ns.resize(number + 1, [0; 2]);
        }
        let last_ns = &mut plane.last_ns[number][direction as usize];
        let rate = self.setup.profile.control_bytes_per_us;
        let transfer_ns = bytes as u64 * 1000 / rate;
        let sent_ns = self.now_ns.max(last_ns.saturating_sub(self.setup.profile.control_link_ns))
            + transfer_ns;
        *last_ns = sent_ns + self.setup.profile.control_link_ns;
        let at_ns = *last_ns;
        let place = match plane.free.pop() {
            Some(place) => {
                plane.messages[place as usize] = Some(envelope);
                place
            }
            None => {
                plane.messages.push(Some(envelope));
                (plane.messages.len() - 1) as u32
            }
        };
        self.timeline.push(at_ns, Event::Message(place));
    }

    pub(super) fn message_arrives(&mut self, place: u32) {
        let envelope =
            self.control.messages[place as usize].take().expect("a message arrives once");
        self.control.free.push(place);
        match envelope.deliver().expect("the controller knows who is who") {
            Delivery::Controller(envelope) => {
                let now = self.now();
                self.controller.controller.handle_message(now, envelope);
                self.pump_controller();
            }
            Delivery::Client(client, notice) => self.client_hears(client as u16, notice),
            Delivery::Switch(switch, command) => self.switch_hears(switch, command),
            Delivery::Node(node, command) => self.node_hears(node, command),
        }
    }

    pub(super) fn wake_controller(&mut self) {
        let now = self.now();
        let controller = &mut self.controller.controller;
        if now.is_due(controller.poll_timeout()) {
            controller.handle_timeout(now);
        }
        self.pump_controller();
    }

    /// The connection to a switch broke.
    pub(super) fn switch_is_lost(&mut self, switch: u16) {
        let now = self.now();
        self.controller.controller.handle_lost(now, Peer::Switch(switch));
        self.pump_controller();
    }

    pub(super) fn stored(&mut self) {
        let Store { id, .. } = self.controller.stores.pop_front().expect("a store is under way");
        if !self.controller.stores.is_empty() {
            merge_stores(&mut self.controller.stores);
            self.begin_store();
        }
        let now = self.now();
        self.controller.controller.handle_done(now, Stored { id });
        self.pump_controller();
    }

    fn begin_store(&mut self) {
        let Some(Store { bytes, .. }) = self.controller.stores.front() else { return };
        let profile = &self.setup.profile;
        let takes_ns = profile.store_ns + bytes.len() as u64 * 1000 / profile.store_bytes_per_us;
        self.timeline.push(self.now_ns + takes_ns, Event::Stored);
    }

    /// Carries out what the controller wants.
    pub(super) fn pump_controller(&mut self) {
        loop {
            if let Some(store) = self.controller.controller.poll_op() {
                self.controller.stores.push_back(store);
                if self.controller.stores.len() == 1 {
                    self.begin_store();
                }
            } else if let Some(envelope) = self.controller.controller.poll_message() {
                self.carry(envelope);
            } else {
                break;
            }
        }
        let due_us = self.controller.controller.poll_timeout();
        self.arm(Part::Controller, due_us);
    }
}
