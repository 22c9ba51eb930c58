//! What the controller wants done: messages to send, and files to store.

use super::directory::StoreFile;
use crate::control::{Envelope, Message, Peer};
use std::collections::VecDeque;

/// What the driver has to do.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// Send a message.
    Send(Envelope),
    /// Store a file whole, then call [`Controller::handle_stored`](super::Controller::handle_stored).
    Store(StoreFile, u64, Vec<u8>),
}

/// Effects in the order in which they came up, and messages that wait until a store is durable.
#[derive(Debug)]
pub(super) struct Outbox {
    effects: VecDeque<Effect>,
    /// Each may leave once this store is durable. In the order of the stores.
    held_back: VecDeque<(u64, Envelope)>,
    next_store: u64,
    /// This store is durable, with all before it.
    stored: u64,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox { effects: VecDeque::new(), held_back: VecDeque::new(), next_store: 1, stored: 0 }
    }

    /// Sends a message.
    pub(super) fn send(&mut self, to: Peer, message: Message) {
        self.post(Envelope { from: Peer::Controller, to, message });
    }

    /// Sends an envelope.
    pub(super) fn post(&mut self, envelope: Envelope) {
        self.effects.push_back(Effect::Send(envelope));
    }

    /// Sends a message once a store is durable.
    pub(super) fn send_after(&mut self, store: u64, to: Peer, message: Message) {
        self.held_back.push_back((store, Envelope { from: Peer::Controller, to, message }));
        self.release();
    }

    /// Stores a file whole; the number of the store.
    pub(super) fn store(&mut self, file: StoreFile, bytes: Vec<u8>) -> u64 {
        let id = self.next_store;
        self.next_store += 1;
        self.effects.push_back(Effect::Store(file, id, bytes));
        id
    }

    /// A store is durable, with all before it: what was held back for them leaves.
    pub(super) fn set_stored(&mut self, store: u64) {
        self.stored = self.stored.max(store);
        self.release();
    }

    /// Whether a store is durable.
    pub(super) fn is_stored(&self, store: u64) -> bool {
        self.stored >= store
    }

    /// Takes the next effect.
    pub(super) fn poll(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    fn release(&mut self) {
        while self.held_back.front().is_some_and(|(store, _)| *store <= self.stored) {
            let (_, envelope) = self.held_back.pop_front().expect("just seen");
            self.post(envelope);
        }
    }
}
