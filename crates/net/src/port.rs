//! Ports of the control channel: how a part's thread and the controller's exchange messages, in
//! memory or over TCP.

use crate::mailbox::Mailbox;
use mio::Waker;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use switchback_core::control::{Envelope, Message, Peer};

/// Messages that wait for a part; more are dropped: a sender that needs an answer repeats.
pub(crate) const MESSAGES_MAX: usize = 1 << 16;

/// What happens at the controller's port.
#[derive(Clone, PartialEq, Debug)]
pub enum ControlEvent {
    /// A message arrived.
    Message(Envelope),
    /// A peer's connection broke.
    Lost(Peer),
    /// A store is durable (told by the thread that writes the controller's files).
    Stored(u64),
    /// A file of the backup with this number can't be stored, and why.
    BackupNotStored(u64, String),
    /// A call waits for the controller's thread.
    Wake,
}

/// Carries messages to their receivers. They may get lost.
pub trait Carrier: Send + Sync {
    /// Sends a message on its way.
    fn carry(&self, envelope: Envelope);

    /// Messages that found no room, ever.
    fn dropped(&self) -> u64 {
        0
    }
}

/// A part's end of the control channel.
pub struct PeerPort {
    peer: Peer,
    carrier: Arc<dyn Carrier>,
    inbox: Arc<Mailbox<Message>>,
    arrived: VecDeque<Message>,
}

impl fmt::Debug for PeerPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerPort({:?})", self.peer)
    }
}

impl PeerPort {
    /// The port of `peer`, which reads `inbox`.
    pub fn new(peer: Peer, carrier: Arc<dyn Carrier>, inbox: Arc<Mailbox<Message>>) -> PeerPort {
        PeerPort { peer, carrier, inbox, arrived: VecDeque::new() }
    }

    /// Its waker, for messages.
    pub fn register(&self, waker: &Arc<Waker>) {
        self.inbox.register(waker);
    }

    /// Sends a message to the controller.
    pub fn send(&self, message: impl Into<Message>) {
        self.carrier.carry(Envelope::to_controller(self.peer, message));
    }

    /// Messages, to and from the controller, that found no room.
    pub fn dropped(&self) -> u64 {
        self.carrier.dropped() + self.inbox.dropped()
    }

    /// Takes the next message of the controller that is of the part's kind. Others are ignored.
    pub fn receive<T: TryFrom<Message>>(&mut self) -> Option<T> {
        loop {
            if self.arrived.is_empty() {
                self.inbox.drain_into(&mut self.arrived);
            }
            if let Ok(message) = self.arrived.pop_front()?.try_into() {
                return Some(message);
            }
        }
    }
}

/// The control channel of an embedded rack: mailboxes.
#[derive(Debug)]
pub struct MemoryHub {
    controller: Arc<Mailbox<ControlEvent>>,
    peers: RwLock<BTreeMap<Peer, Arc<Mailbox<Message>>>>,
}

impl Default for MemoryHub {
    fn default() -> MemoryHub {
        MemoryHub { controller: Arc::new(Mailbox::new(MESSAGES_MAX)), peers: RwLock::default() }
    }
}

impl MemoryHub {
    /// Where the controller reads.
    pub fn controller_inbox(&self) -> Arc<Mailbox<ControlEvent>> {
        Arc::clone(&self.controller)
    }

    /// A port for `peer`; replaces an earlier one.
    pub fn port(self: &Arc<MemoryHub>, peer: Peer) -> PeerPort {
        let inbox = Arc::new(Mailbox::new(MESSAGES_MAX));
        let mut peers = self.peers.write().unwrap_or_else(PoisonError::into_inner);
        peers.insert(peer, Arc::clone(&inbox));
        PeerPort::new(peer, Arc::clone(self) as Arc<dyn Carrier>, inbox)
    }

    /// Takes a peer's port away, as if its connection broke.
    pub fn disconnect(&self, peer: Peer) {
        self.peers.write().unwrap_or_else(PoisonError::into_inner).remove(&peer);
        self.controller.push(ControlEvent::Lost(peer));
    }
}

impl Carrier for MemoryHub {
    fn carry(&self, envelope: Envelope) {
        if envelope.to == Peer::Controller {
            self.controller.push(ControlEvent::Message(envelope));
            return;
        }
        let peers = self.peers.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = peers.get(&envelope.to) {
            inbox.push(envelope.message);
        }
    }
}
