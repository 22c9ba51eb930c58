//! What a client's driver needs of the network: a way to the switch and one to the controller.
//! Embedded racks implement both in memory, distributed ones with UDP and TCP; the drivers can't
//! tell.

use mio::{Registry, Token, Waker};
use std::io;
use std::sync::Arc;
use switchback_core::control::{ClientNotice, ClientReport};
use switchback_datapath::Item;
use switchback_wire::{Address, Packet};

/// What became of a packet that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent {
    /// The buffer holds the switch's answer already (embedded racks: the datapath ran in this very
    /// call).
    Answered,
    /// The answer, if there is one, comes by [`Uplink::receive`].
    OnItsWay,
}

/// Packets that are worth sending at once.
pub const SEND_BATCH: usize = switchback_datapath::BATCH;

/// A packet of a batch to send.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// The packet; embedded racks find the rest filled in as the datapath needs it.
    pub item: Item,
    /// Where it goes.
    pub to: Address,
    /// What became of it.
    pub sent: Sent,
}

impl Default for Outgoing {
    fn default() -> Outgoing {
        Outgoing { item: Item::default(), to: Address::default(), sent: Sent::OnItsWay }
    }
}

impl AsMut<Item> for Outgoing {
    #[inline]
    fn as_mut(&mut self) -> &mut Item {
        &mut self.item
    }
}

/// The data path of one client thread to its switch.
pub trait Uplink: Send {
    /// Makes the thread's poll wake up when packets arrive: by `token` (sockets) or by `waker`
    /// (memory).
    fn register(&mut self, registry: &Registry, token: Token, waker: &Arc<Waker>)
    -> io::Result<()>;

    /// Sends a packet; it may be queued until [`Uplink::flush`].
    fn send(&mut self, to: Address, packet: &mut Packet) -> Sent;

    /// Sends packets in this order, each as by [`Uplink::send`].
    fn send_batch(&mut self, batch: &mut [Outgoing]) {
        for outgoing in batch {
            outgoing.sent = self.send(outgoing.to, &mut outgoing.item.packet);
        }
    }

    /// Sends what is queued. Call at the end of a batch.
    fn flush(&mut self);

    /// Takes the next packet that arrived; false if there is none.
    fn receive(&mut self, packet: &mut Packet) -> bool;
}

/// The control path of one client session. Messages may get lost; sessions repeat what matters.
pub trait ControlLink: Send {
    /// As [`Uplink::register`]; messages always wake by `waker`.
    fn register(&mut self, waker: &Arc<Waker>);

    /// Sends a message to the controller.
    fn send(&mut self, report: ClientReport);

    /// Takes the next message of the controller.
    fn receive(&mut self) -> Option<ClientNotice>;
}
