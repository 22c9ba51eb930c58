//! The connections of the control port. Any peer that reaches the port may connect, so each kind
//! has its limit, and a connection that has not said who it is costs no place of one that has.

use super::handshake::Refusal;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use switchback_core::control::Peer;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Connections that have not said who they are. One more ends the oldest of them.
const STRANGERS_MAX: usize = 256;
/// Such connections of one address, so that other hosts get their turn.
const STRANGERS_PER_ADDRESS_MAX: usize = 64;
/// Connections of clients; more are refused. Switches and nodes have a place each.
const CLIENTS_MAX: usize = 4096;
/// Connections of clients of one address, so that a host can't take the places of all others.
const CLIENTS_PER_ADDRESS_MAX: usize = 1024;
/// Messages that wait for a peer, and their bytes.
const OUTGOING_MAX: usize = 1 << 16;
const OUTGOING_BYTES_MAX: usize = 16 << 20;

/// The parts of a rack that have a place at the control port, beside clients: those numbered below
/// these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts {
    /// How many switches.
    pub switches: usize,
    /// How many nodes.
    pub nodes: usize,
}

/// Counters of the control channel, as the controller sees it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct ControlStatistics {
    /// Bytes of frames sent.
    pub bytes_sent: u64,
    /// Bytes of frames received.
    pub bytes_received: u64,
    /// Messages to peers that found no room.
    pub dropped_sent: u64,
    /// Messages of peers that found no room.
    pub dropped_received: u64,
    /// Peers that are connected.
    pub peers: u64,
    /// Connections refused, or ended before they said who they are.
    pub refused: u64,
}

/// What waits for a peer, bounded in messages and bytes.
#[derive(Debug)]
pub(super) struct Outgoing {
    frames: mpsc::Sender<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
    bytes_max: usize,
    /// The version of the control channel that the peer speaks.
    version: u16,
}

/// The other end of [`Outgoing`].
#[derive(Debug)]
pub(super) struct Queue {
    frames: mpsc::Receiver<Vec<u8>>,
    bytes: Arc<AtomicUsize>,
}

impl Outgoing {
    pub(super) fn new() -> (Outgoing, Queue) {
        Outgoing::with_room(OUTGOING_MAX, OUTGOING_BYTES_MAX)
    }

    /// With room for as many frames and bytes.
    pub(super) fn with_room(frames_max: usize, bytes_max: usize) -> (Outgoing, Queue) {
        let (sender, receiver) = mpsc::channel(frames_max);
        let bytes = Arc::new(AtomicUsize::new(0));
        let (frames, version) = (sender, 0);
        let outgoing = Outgoing { frames, bytes: Arc::clone(&bytes), bytes_max, version };
        (outgoing, Queue { frames: receiver, bytes })
    }

    /// To a peer that speaks this version.
    pub(super) fn speaking(self, version: u16) -> Outgoing {
        Outgoing { version, ..self }
    }

    /// Queues a frame, unless the peer is older than `since` and couldn't read it; false if there
    /// is no room.
    pub(super) fn send(&self, since: u16, frame: Vec<u8>) -> bool {
        if since > self.version {
            return true;
        }
        let length = frame.len();
        if self.bytes.load(Ordering::Relaxed) + length > self.bytes_max {
            return false;
        }
        self.bytes.fetch_add(length, Ordering::Relaxed);
        let sent = self.frames.try_send(frame).is_ok();
        if !sent {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
        }
        sent
    }
}

impl Queue {
    /// The next frame, once there is one; `None` once there will be none.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.recv().await?;
        self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }

    /// The next frame, if there is one now.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.try_recv().ok()?;
        self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }
}

/// A connection: a stranger's until it is introduced.
#[derive(Debug)]
struct Connection {
    from: IpAddr,
    task: AbortHandle,
    peer: Option<Peer>,
    /// Where its peer tells over HTTP what it knows.
    metrics: Option<SocketAddr>,
}

/// All connections, by their number in the order of arrival.
#[derive(Debug)]
pub(super) struct Connections {
    parts: Parts,
    all: BTreeMap<u64, Connection>,
    peers: BTreeMap<Peer, (u64, Outgoing)>,
    arrived: u64,
    refused: u64,
}

impl Connections {
    pub(super) fn new(parts: Parts) -> Connections {
        Connections { parts, all: BTreeMap::new(), peers: BTreeMap::new(), arrived: 0, refused: 0 }
    }

    /// Names the next connection.
    pub(super) fn next_number(&mut self) -> u64 {
        self.arrived += 1;
        self.arrived
    }

    /// A connection has arrived, which `task` serves. If there are too many strangers, the oldest
    /// one goes.
    pub(super) fn arrive(&mut self, number: u64, from: IpAddr, task: AbortHandle) {
        self.all.insert(number, Connection { from, task, peer: None, metrics: None });
        let strangers = || self.all.iter().filter(|(_, connection)| connection.peer.is_none());
        let of_address = || strangers().filter(|(_, connection)| connection.from == from);
        let oldest = if of_address().count() > STRANGERS_PER_ADDRESS_MAX {
            of_address().next()
        } else if strangers().count() > STRANGERS_MAX {
            strangers().next()
        } else {
            None
        };
        if let Some((&oldest, _)) = oldest {
            self.refused += 1;
            self.abort(oldest);
        }
    }

    fn abort(&mut self, number: u64) {
        if let Some(connection) = self.all.remove(&number) {
            connection.task.abort();
        }
    }

    /// A connection says who it is, which is refused if there is no place for it. A peer's older
    /// connection ends.
    pub(super) fn introduce(
        &mut self,
        number: u64,
        peer: Peer,
        metrics: Option<SocketAddr>,
        outgoing: Outgoing,
    ) -> Result<(), Refusal> {
        let Some(connection) = self.all.get(&number) else {
            return Err(Refusal::Crowded); // it was ended a moment ago
        };
        self.find_place(peer, connection.from)?;
        if let Some((older, _)) = self.peers.insert(peer, (number, outgoing)) {
            self.abort(older);
        }
        if let Some(connection) = self.all.get_mut(&number) {
            (connection.peer, connection.metrics) = (Some(peer), metrics);
        }
        Ok(())
    }

    fn find_place(&self, peer: Peer, from: IpAddr) -> Result<(), Refusal> {
        let (has_place, otherwise) = match peer {
            Peer::Controller => (false, Refusal::Unknown),
            Peer::Switch(index) => (usize::from(index) < self.parts.switches, Refusal::Unknown),
            Peer::Node(index) => (usize::from(index) < self.parts.nodes, Refusal::Unknown),
            Peer::Client(_) => {
                let is_known = self.peers.contains_key(&peer);
                (is_known || self.has_place_for_client(from), Refusal::Crowded)
            }
        };
        has_place.then_some(()).ok_or(otherwise)
    }

    fn has_place_for_client(&self, from: IpAddr) -> bool {
        let is_client = |connection: &&Connection| matches!(connection.peer, Some(Peer::Client(_)));
        let clients = || self.all.values().filter(is_client);
        clients().count() < CLIENTS_MAX
            && clients().filter(|connection| connection.from == from).count()
                < CLIENTS_PER_ADDRESS_MAX
    }

    /// A connection ends: the peer that is without one now.
    pub(super) fn end(&mut self, number: u64) -> Option<Peer> {
        let peer = self.all.remove(&number)?.peer?;
        self.peers.remove(&peer);
        Some(peer)
    }

    /// A connection is refused: how many there were by now.
    pub(super) fn refuse(&mut self) -> u64 {
        self.refused += 1;
        self.refused
    }

    /// Sends a frame to a peer, if that is connected and speaks the version `since`; false if it
    /// doesn't read what waits for it.
    pub(super) fn send(&self, to: Peer, since: u16, frame: Vec<u8>) -> bool {
        self.peers.get(&to).is_none_or(|(_, outgoing)| outgoing.send(since, frame))
    }

    /// Where peers that are connected tell over HTTP what they know, in the order of the peers.
    pub(super) fn metrics(&self) -> Vec<(Peer, SocketAddr)> {
        let told = |(peer, (number, _)): (&Peer, &(u64, Outgoing))| {
            Some((*peer, self.all.get(number)?.metrics?))
        };
        self.peers.iter().filter_map(told).collect()
    }

    /// Peers that are connected, and connections refused so far.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.peers.len() as u64, self.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connected(connections: &mut Connections, peer: Peer, from: u8) -> bool {
        says(connections, peer, from, None)
    }

    fn says(
        connections: &mut Connections,
        peer: Peer,
        from: u8,
        metrics: Option<SocketAddr>,
    ) -> bool {
        let number = connections.next_number();
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        connections.arrive(number, [10, 0, 0, from].into(), task);
        connections.introduce(number, peer, metrics, Outgoing::new().0).is_ok()
    }

    #[tokio::test]
    async fn those_who_are_connected_and_said_where_they_tell_can_be_asked() {
        let mut connections = Connections::new(Parts { switches: 1, nodes: 1 });
        let metrics: SocketAddr = ([10, 0, 0, 1], 9465).into();
        assert!(connected(&mut connections, Peer::Switch(0), 1));
        for client in [8, 7] {
            assert!(says(&mut connections, Peer::Client(client), 1, Some(metrics)));
        }
        let expected = [7, 8].map(|client| (Peer::Client(client), metrics));
        assert_eq!(connections.metrics(), expected);
        assert_eq!(connections.end(2), Some(Peer::Client(8)));
        assert_eq!(connections.metrics(), expected[..1]);
    }

    #[tokio::test]
    async fn clients_of_one_address_leave_room_for_others_and_for_parts() {
        let mut connections = Connections::new(Parts { switches: 1, nodes: 1 });
        let mut admitted = |from| {
            (0..CLIENTS_PER_ADDRESS_MAX + 10)
                .filter(|client| {
                    connected(
                        &mut connections,
                        Peer::Client((u64::from(from) << 32) + *client as u64),
                        from,
                    )
                })
                .count()
        };
        let addresses = (CLIENTS_MAX / CLIENTS_PER_ADDRESS_MAX) as u8;
        for from in 0..addresses {
            assert_eq!(admitted(from), CLIENTS_PER_ADDRESS_MAX);
        }
        assert_eq!(admitted(addresses), 0, "as many clients as there may be");
        assert!(connected(&mut connections, Peer::Client(0), 0), "a known client comes back");
        assert!(
            connected(&mut connections, Peer::Switch(0), 0)
                && connected(&mut connections, Peer::Node(0), 0)
        );
        assert!(
            !connected(&mut connections, Peer::Switch(1), 0)
                && !connected(&mut connections, Peer::Node(1), 0)
        );
    }

    #[tokio::test]
    async fn what_waits_for_a_peer_is_bounded_in_bytes() {
        let (outgoing, mut queue) = Outgoing::new();
        let half = vec![0; OUTGOING_BYTES_MAX / 2];
        assert!(
            outgoing.send(0, half.clone())
                && outgoing.send(0, half.clone())
                && !outgoing.send(0, vec![0])
        );
        assert_eq!(queue.next().await.map(|frame| frame.len()), Some(half.len()));
        assert!(outgoing.send(0, half));
    }

    #[tokio::test]
    async fn a_peer_is_sent_nothing_that_its_version_lacks() {
        let (outgoing, mut queue) = Outgoing::new();
        let outgoing = outgoing.speaking(8);
        assert!(outgoing.send(9, vec![9]) && outgoing.send(8, vec![8]));
        assert_eq!(queue.next().await, Some(vec![8]));
    }
}
