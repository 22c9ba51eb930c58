//! Packets under way.

use super::World;
use crate::event::Event;
use crate::trace::Sending;
use switchback_assembly::Part;
use switchback_wire::{Address, Packet};

/// A packet under way. It keeps its buffer from hop to hop.
pub(super) struct Flight {
    pub(super) packet: Packet,
    pub(super) from: Address,
    pub(super) to: u16,
}

/// All packets under way, and buffers for more.
#[derive(Default)]
pub(super) struct Flights {
    places: Vec<Option<Box<Flight>>>,
    free: Vec<u32>,
    #[allow(clippy::vec_box)] // They are moved from hop to hop, and they are long.
    buffers: Vec<Box<Flight>>,
}

impl Flights {
    /// An empty buffer.
    #[inline]
    pub(super) fn buffer(&mut self) -> Box<Flight> {
        let fresh = || Box::new(Flight { packet: Packet::new(), from: Address::default(), to: 0 });
        self.buffers.pop().unwrap_or_else(fresh)
    }

    /// Takes a buffer back.
    #[inline]
    pub(super) fn done(&mut self, flight: Box<Flight>) {
        self.buffers.push(flight);
    }

    #[inline]
    fn put(&mut self, flight: Box<Flight>) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.places[place as usize] = Some(flight);
                place
            }
            None => {
                self.places.push(Some(flight));
                (self.places.len() - 1) as u32
            }
        }
    }

    #[inline]
    fn take(&mut self, place: u32) -> Box<Flight> {
        self.free.push(place);
        self.places[place as usize].take().expect("a packet arrives once")
    }

    /// Packets under way.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}

impl World {
    /// Sends a packet over the network.
    #[inline]
    pub(super) fn send_packet(&mut self, from: Part, to: Address, mut flight: Box<Flight>) {
        let Some(to) = Part::of_address(&to) else {
            self.flights.done(flight);
            return;
        };
        flight.from = from.address();
        flight.to = self.numbers.number(to);
        if let Some(rules) = &mut self.rules
            && !rules.lets_pass(from, to, &flight)
        {
            self.trace.sent(self.now_us, || describe(from, to, &flight.packet, self.now_us, &[]));
            self.flights.done(flight);
            return;
        }
        let fate = self.network.send(self.numbers.number(from), flight.to);
        let (now_us, sent) = (self.now_us, fate.delays());
        self.trace.sent(now_us, || describe(from, to, &flight.packet, now_us, sent));
        if let Some(&delay_us) = sent.get(1) {
            let mut copy = self.flights.buffer();
            copy.from = flight.from;
            copy.to = flight.to;
            copy.packet.copy_from(flight.packet.bytes()).expect("a packet fits a buffer");
            let place = self.flights.put(copy);
            self.queue.push(now_us + delay_us, Event::Packet(place));
        }
        match sent.first() {
            Some(&delay_us) => {
                let place = self.flights.put(flight);
                self.queue.push(now_us + delay_us, Event::Packet(place));
            }
            None => self.flights.done(flight),
        }
    }

    /// Delivers a copy of a packet now, whatever the network does.
    pub(super) fn inject(&mut self, from: Part, to: Part, bytes: &[u8]) {
        let mut flight = self.flights.buffer();
        flight.from = from.address();
        flight.to = self.numbers.number(to);
        flight.packet.copy_from(bytes).expect("a packet fits a buffer");
        let place = self.flights.put(flight);
        self.queue.push(self.now_us, Event::Packet(place));
    }

    pub(super) fn packet_arrives(&mut self, place: u32) {
        let to = self.flights.places[place as usize].as_ref().expect("a packet arrives once").to;
        if self.is_paused(to, Event::Packet(place)) {
            return;
        }
        let flight = self.flights.take(place);
        self.trace.number(u64::from(to));
        self.trace.packet(
            self.now_us,
            flight.from,
            self.numbers.part(to).address(),
            flight.packet.bytes(),
        );
        // Without the durable generation, which means something in answers only.
        self.trace.bytes(&flight.packet.bytes()[..104]);
        self.trace.bytes(&flight.packet.bytes()[108..switchback_wire::HEADER_BYTES]);
        match self.numbers.part(to) {
            Part::Client(client) => self.client_receives(client, flight),
            Part::Switch(switch) => self.switch_receives(switch, flight),
            Part::Node(node) => self.node_receives(node, flight),
            Part::Controller => self.flights.done(flight),
        }
    }
}

fn describe(from: Part, to: Part, packet: &Packet, now_us: u64, delays: &[u64]) -> Sending {
    let parsed = packet.parse();
    let key = parsed.as_ref().map(|parts| parts.header.key_hash).unwrap_or_default();
    let text = match parsed {
        Ok(parts) => {
            let h = parts.header;
            format!(
                "{:?} {:?} epoch {} lane {} r {:x} seq {} guard {} gen {} durable {:?} flags {:#x} rec {:#x} key {:?} {}B {:?}",
                h.op,
                h.status,
                h.epoch,
                h.lane,
                h.request,
                h.seq,
                switchback_wire::Seq(h.guard),
                h.generation,
                matches!(to, Part::Client(_)).then_some(h.durable_generation),
                h.flags,
                h.record_flags,
                h.key_hash,
                h.value_bytes,
                crate::history::writer_of(parts.value),
            )
        }
        Err(error) => error.to_string(),
    };
    let arrives_us = delays.iter().map(|delay_us| now_us + delay_us).collect();
    Sending { from, to, key: Some(key), text, arrives_us, fate: format!("delays {delays:?}") }
}
