//! Links between nodes, over which the replicas of a partition talk to each other: in memory, or
//! over TCP. Messages between two nodes arrive in the order in which they were sent, but any may be
//! lost; the nodes notice and repeat.

use crate::mailbox::Mailbox;
use mio::Waker;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use switchback_core::node::LinkMessage;

/// Messages that wait for a node, and about how many bytes they have; what finds no room is
/// dropped. More than other nodes have on their way to it at a time.
const MESSAGES_MAX: usize = 1 << 18;
const BYTES_MAX: usize = 256 << 20;

/// A message, and the node that sent it.
pub(crate) type Arrived = (u16, LinkMessage);

/// A queue for what arrives at a node.
pub(crate) fn inbox() -> Arc<Mailbox<Arrived>> {
    Arc::new(Mailbox::with_bytes(MESSAGES_MAX, BYTES_MAX))
}

/// What has become of messages between nodes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LinkStatistics {
    /// Bytes sent to other nodes.
    pub bytes_sent: u64,
    /// Bytes received from them.
    pub bytes_received: u64,
    /// Messages, and batches of them, that found no room or no connection.
    pub dropped: u64,
}

/// Carries a node's messages to other nodes.
pub(crate) trait LinkCarrier: Send {
    /// Sends a message; it may be queued until [`LinkCarrier::flush`].
    fn send(&mut self, to: u16, message: LinkMessage);

    /// Sends what is queued.
    fn flush(&mut self);

    /// Counters, but for what finds no room at this node.
    fn statistics(&self) -> LinkStatistics;
}

/// A node's end of its links.
pub struct LinkPort {
    carrier: Box<dyn LinkCarrier>,
    inbox: Arc<Mailbox<Arrived>>,
    arrived: VecDeque<Arrived>,
}

impl fmt::Debug for LinkPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LinkPort").field("waiting", &self.inbox.len()).finish_non_exhaustive()
    }
}

impl LinkPort {
    pub(crate) fn new(carrier: Box<dyn LinkCarrier>, inbox: Arc<Mailbox<Arrived>>) -> LinkPort {
        LinkPort { carrier, inbox, arrived: VecDeque::new() }
    }

    /// The node's waker, for messages.
    pub fn register(&self, waker: &Arc<Waker>) {
        self.inbox.register(waker);
    }

    /// Sends a message to a node; it may be queued until [`LinkPort::flush`].
    pub fn send(&mut self, to: u16, message: LinkMessage) {
        self.carrier.send(to, message);
    }

    /// Sends what is queued. Call at the end of a batch.
    pub fn flush(&mut self) {
        self.carrier.flush();
    }

    /// Takes the next message, and the node that sent it.
    pub fn receive(&mut self) -> Option<(u16, LinkMessage)> {
        if self.arrived.is_empty() {
            self.inbox.drain_into(&mut self.arrived);
        }
        self.arrived.pop_front()
    }

    /// Counters.
    pub fn statistics(&self) -> LinkStatistics {
        let statistics = self.carrier.statistics();
        LinkStatistics { dropped: statistics.dropped + self.inbox.dropped(), ..statistics }
    }
}

/// The links of the nodes of an embedded rack: mailboxes.
#[derive(Clone, Debug)]
pub struct MemoryLinks {
    inboxes: Arc<[Arc<Mailbox<Arrived>>]>,
}

impl MemoryLinks {
    /// Of as many nodes.
    pub fn new(nodes: u16) -> MemoryLinks {
        MemoryLinks { inboxes: (0..nodes).map(|_| inbox()).collect() }
    }

    /// A node's end; `None`: there is no such node.
    pub fn port(&self, node: u16) -> Option<LinkPort> {
        let inbox = self.inboxes.get(usize::from(node))?;
        let carrier = MemoryCarrier { node, links: self.clone() };
        Some(LinkPort::new(Box::new(carrier), Arc::clone(inbox)))
    }
}

struct MemoryCarrier {
    node: u16,
    links: MemoryLinks,
}

impl LinkCarrier for MemoryCarrier {
    fn send(&mut self, to: u16, message: LinkMessage) {
        if let Some(inbox) = self.links.inboxes.get(usize::from(to)) {
            let bytes = message.bytes();
            inbox.push_bytes((self.node, message), bytes);
        }
    }

    fn flush(&mut self) {}

    fn statistics(&self) -> LinkStatistics {
        LinkStatistics::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn confirm(number: u64) -> LinkMessage {
        LinkMessage::Confirm { partition: 1, round: 2, number }
    }

    #[test]
    fn messages_go_from_node_to_node_in_order() {
        let links = MemoryLinks::new(2);
        let mut ports = [0, 1].map(|node| links.port(node).expect("a node"));
        for number in 0..3 {
            ports[0].send(1, confirm(number));
        }
        ports[0].send(7, confirm(9));
        ports[0].flush();
        for number in 0..3 {
            assert_eq!(ports[1].receive(), Some((0, confirm(number))));
        }
        assert_eq!((ports[1].receive(), ports[0].receive()), (None, None));
        assert!(links.port(2).is_none());
    }
}
