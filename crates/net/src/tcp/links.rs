//! Links between nodes over TCP. A node listens for the others at its own address, and makes a
//! connection to each that it has something to say to: messages go one way on each. What arrives
//! over an older connection of a node counts no more once there is a newer one.

use super::connections::{Connections, Outgoing, Parts, Queue};
use super::handshake::Versions;
use super::{
    ControlBytes, INTRODUCTION, INTRODUCTION_BYTES_MAX, RECONNECT, REFUSAL, Server, UNANSWERED,
    accept, configure, encode, read_frame, spawn, write_frame,
};
use crate::links::{Arrived, LinkCarrier, LinkPort, LinkStatistics, inbox};
use crate::mailbox::Mailbox;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use switchback_core::control::Peer;
use switchback_core::node::{LINK_BYTES_MAX, LinkMessage};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Which encodings of messages this program speaks.
const VERSIONS: Versions = Versions { oldest: 1, newest: 1 };
/// "SWBL", first in an introduction.
const MAGIC: u32 = 0x5357_424c;
/// Bytes that wait for a node at most; a node has fewer frames than this under way.
const OUTGOING_BYTES_MAX: usize = 96 << 20;
/// Batches that wait for it.
const OUTGOING_MAX: usize = 1 << 14;
/// A batch that has grown to this is sent before it is flushed.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes read from a connection at a time.
const READ_BYTES: usize = 256 << 10;

/// What a node says first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Introduction {
    magic: u32,
    versions: Versions,
    from: u16,
    /// The node that it means to speak with.
    to: u16,
}

/// Why a node is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
enum LinkRefusal {
    #[error(
        "no common version of the links between nodes: the one that listens speaks \
         {listener}, the one that connects {sender}"
    )]
    Version { listener: Versions, sender: Versions },
    #[error("node {0} listens there: compare the addresses of nodes in the two configurations")]
    Mistaken(u16),
    #[error("its rack has no such node: compare the two configurations")]
    Unknown,
}

/// What a node's threads share.
struct Shared {
    node: u16,
    addresses: Vec<SocketAddr>,
    inbox: Arc<Mailbox<Arrived>>,
    connections: Mutex<Connections>,
    bytes: ControlBytes,
    dropped: AtomicU64,
    closed: Notify,
}

impl Server for Shared {
    const WHAT: &str = "a link of another node";

    fn connections(&self) -> &Mutex<Connections> {
        &self.connections
    }

    fn serve(&self, number: u64, stream: TcpStream) -> impl Future<Output = io::Result<()>> + Send {
        receive_over_one(self, number, stream)
    }
}

/// What waits for another node.
struct Waiting {
    batch: Vec<u8>,
    batches: Outgoing,
}

/// A node's connections to the others. They end with it.
struct TcpLinks {
    shared: Arc<Shared>,
    /// Accepts and reads, until it is joined.
    thread: Option<JoinHandle<()>>,
    runtime: Handle,
    peers: BTreeMap<u16, Waiting>,
}

/// The links of `node`, one of those at `addresses`, over TCP.
///
/// # Errors
/// An address that can't be listened on.
pub fn listen_for_nodes(node: u16, addresses: Vec<SocketAddr>) -> io::Result<LinkPort> {
    let own = addresses.get(usize::from(node)).copied().ok_or(io::ErrorKind::InvalidInput)?;
    let listener = std::net::TcpListener::bind(own)?;
    listener.set_nonblocking(true)?;
    let shared = Arc::new(Shared {
        node,
        inbox: inbox(),
        connections: Mutex::new(Connections::new(Parts { switches: 0, nodes: addresses.len() })),
        addresses,
        bytes: ControlBytes::default(),
        dropped: AtomicU64::new(0),
        closed: Notify::new(),
    });
    let (sender, receiver) = std::sync::mpsc::channel();
    let accepting = Arc::clone(&shared);
    let thread = spawn("links", async move {
        let _it_is_waited_for = sender.send(Handle::current());
        match TcpListener::from_std(listener) {
            Ok(listener) => tokio::select! {
                () = accept(&accepting, &listener) => {}
                // With the runtime, whose only future this is, all connections end.
                () = accepting.closed.notified() => {}
            },
            Err(error) => tracing::error!(%error, "a node can't accept connections of others"),
        }
    })?;
    let runtime = receiver.recv().map_err(io::Error::other)?;
    let inbox = Arc::clone(&shared.inbox);
    let links = TcpLinks { shared, thread: Some(thread), runtime, peers: BTreeMap::new() };
    Ok(LinkPort::new(Box::new(links), inbox))
}

impl Drop for TcpLinks {
    fn drop(&mut self) {
        self.shared.closed.notify_one();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of a node's links has panicked");
        }
    }
}

impl TcpLinks {
    /// What waits for a node, to which a connection is made if there was none; `None`: there is no
    /// such node.
    fn peer(&mut self, to: u16) -> Option<&mut Waiting> {
        let TcpLinks { shared, runtime, peers, .. } = self;
        let address = *shared.addresses.get(usize::from(to))?;
        Some(peers.entry(to).or_insert_with(|| {
            let (batches, queue) = Outgoing::with_room(OUTGOING_MAX, OUTGOING_BYTES_MAX);
            runtime.spawn(keep_connected(Arc::clone(shared), to, address, queue));
            Waiting { batch: Vec::new(), batches }
        }))
    }
}

impl Waiting {
    /// Queues the batch; false if there is no room.
    fn flush(&mut self) -> bool {
        // There is one version: every node can read every message.
        self.batch.is_empty() || self.batches.send(0, std::mem::take(&mut self.batch))
    }
}

impl LinkCarrier for TcpLinks {
    fn send(&mut self, to: u16, message: LinkMessage) {
        let Some(peer) = self.peer(to) else { return };
        let start = peer.batch.len();
        peer.batch.extend([0; 4]);
        message.encode(&mut peer.batch);
        let length = peer.batch.len() - start - 4;
        let is_sent = if length > LINK_BYTES_MAX {
            peer.batch.truncate(start);
            false
        } else {
            peer.batch[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
            peer.batch.len() < BATCH_BYTES || peer.flush()
        };
        if !is_sent {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&mut self) {
        for peer in self.peers.values_mut() {
            if !peer.flush() {
                self.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn statistics(&self) -> LinkStatistics {
        LinkStatistics {
            bytes_sent: self.shared.bytes.sent.load(Ordering::Relaxed),
            bytes_received: self.shared.bytes.received.load(Ordering::Relaxed),
            dropped: self.shared.dropped.load(Ordering::Relaxed),
        }
    }
}

/// Keeps a connection to another node, and sends over it what waits.
async fn keep_connected(shared: Arc<Shared>, to: u16, address: SocketAddr, mut queue: Queue) {
    let mut told = String::new();
    loop {
        match send_over_one(&shared, to, address, &mut queue).await {
            Ok(()) => return, // the port is gone
            Err(error) => {
                let error = error.to_string();
                if error != told {
                    let node = shared.node;
                    tracing::info!(
                        node,
                        to,
                        %address,
                        error,
                        "no link to another node; trying again and again"
                    );
                    told = error;
                }
            }
        }
        tokio::time::sleep(RECONNECT).await;
        // What was meant for the broken connection is stale: the nodes notice what is missing.
        while queue.take().is_some() {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

async fn send_over_one(
    shared: &Shared,
    to: u16,
    address: SocketAddr,
    queue: &mut Queue,
) -> io::Result<()> {
    let stream = tokio::time::timeout(UNANSWERED, TcpStream::connect(address)).await??;
    configure(&stream)?;
    let (mut read, mut write) = stream.into_split();
    let introduction = Introduction { magic: MAGIC, versions: VERSIONS, from: shared.node, to };
    write_frame(&mut write, &encode(&introduction), &shared.bytes).await?;
    let answer = read_frame(&mut read, INTRODUCTION_BYTES_MAX, &shared.bytes);
    let answer = tokio::time::timeout(INTRODUCTION, answer).await??;
    let answer: Result<u16, LinkRefusal> = postcard::from_bytes(&answer)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    answer.map_err(|refusal| io::Error::new(io::ErrorKind::Unsupported, refusal))?;
    let mut nothing = [0];
    loop {
        tokio::select! {
            batch = queue.next() => {
                let Some(batch) = batch else { return Ok(()) };
                write.write_all(&batch).await?;
                shared.bytes.sent.fetch_add(batch.len() as u64, Ordering::Relaxed);
            }
            // The other end says nothing more: it has closed the connection, or will not be
            // understood.
            ended = read.read(&mut nothing) => {
                ended?;
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
    }
}

/// Whether a node may send here, and in which version.
fn admit(shared: &Shared, number: u64, introduction: Introduction) -> Result<u16, LinkRefusal> {
    let Introduction { versions, from, to, .. } = introduction;
    let version = VERSIONS.common(versions);
    let version = version.ok_or(LinkRefusal::Version { listener: VERSIONS, sender: versions })?;
    if to != shared.node {
        return Err(LinkRefusal::Mistaken(shared.node));
    }
    let nothing_is_sent_back = Outgoing::new().0;
    shared
        .with_connections(|it| it.introduce(number, Peer::Node(from), None, nothing_is_sent_back))
        .map_err(|_| LinkRefusal::Unknown)?;
    Ok(version)
}

async fn receive_over_one(shared: &Shared, number: u64, stream: TcpStream) -> io::Result<()> {
    configure(&stream)?;
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::with_capacity(READ_BYTES, read);
    let introduction = read_frame(&mut read, INTRODUCTION_BYTES_MAX, &shared.bytes);
    let introduction = tokio::time::timeout(INTRODUCTION, introduction).await??;
    let introduction = postcard::from_bytes(&introduction).ok();
    let Some(introduction) = introduction.filter(|it: &Introduction| it.magic == MAGIC) else {
        shared.note_refusal("it isn't a node of Switchback");
        tokio::time::sleep(REFUSAL).await;
        return Err(io::ErrorKind::Unsupported.into());
    };
    let answer = admit(shared, number, introduction);
    write_frame(&mut write, &encode(&answer), &shared.bytes).await?;
    if let Err(refusal) = answer {
        shared.note_refusal(&format!("node {}: {refusal}", introduction.from));
        tokio::time::sleep(REFUSAL).await;
        return Err(io::Error::new(io::ErrorKind::Unsupported, refusal));
    }
    loop {
        let frame = read_frame(&mut read, LINK_BYTES_MAX as u32, &shared.bytes).await?;
        let message = LinkMessage::decode(&frame).map_err(|error| {
            shared.note_refusal(&format!("node {}: {error}", introduction.from));
            io::Error::new(io::ErrorKind::InvalidData, error)
        })?;
        let bytes = message.bytes();
        shared.inbox.push_bytes((introduction.from, message), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addresses::free_addresses;
    use std::io::{Read as _, Write as _};
    use std::time::{Duration, Instant};

    const WAIT: Duration = Duration::from_secs(20);

    fn confirm(number: u64) -> LinkMessage {
        LinkMessage::Confirm { partition: 1, round: 2, number }
    }

    fn addresses() -> Vec<SocketAddr> {
        free_addresses::<2>().expect("addresses are free").to_vec()
    }

    /// What arrives next.
    fn next(port: &mut LinkPort) -> (u16, LinkMessage) {
        let began = Instant::now();
        loop {
            if let Some(arrived) = port.receive() {
                return arrived;
            }
            assert!(began.elapsed() < WAIT, "nothing arrives");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Sends from one to the other until something arrives: what is sent while there is no
    /// connection is lost.
    fn connect(from: &mut LinkPort, to: (u16, &mut LinkPort)) {
        let began = Instant::now();
        while to.1.receive().is_none() {
            assert!(began.elapsed() < WAIT, "no connection");
            from.send(to.0, confirm(0));
            from.flush();
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(50));
        while to.1.receive().is_some() {}
    }

    #[test]
    fn what_a_node_sends_arrives_in_order_and_after_a_restart_again() {
        let addresses = addresses();
        let listen = |node| listen_for_nodes(node, addresses.clone()).expect("it is free");
        let (mut first, mut second) = (listen(0), listen(1));
        connect(&mut first, (1, &mut second));
        for number in 0..10_000 {
            first.send(1, confirm(number));
        }
        first.send(9, confirm(0));
        first.flush();
        for number in 0..10_000 {
            assert_eq!(next(&mut second), (0, confirm(number)));
        }
        assert!(first.statistics().bytes_sent > 10_000 && second.statistics().bytes_received > 0);
        drop(second);
        let mut second = listen(1);
        connect(&mut first, (1, &mut second));
        connect(&mut second, (0, &mut first));
    }

    #[test]
    fn strangers_and_other_nodes_are_refused_and_cost_the_links_nothing() {
        let addresses = addresses();
        let listen = |node| listen_for_nodes(node, addresses.clone()).expect("it is free");
        let (mut first, mut second) = (listen(0), listen(1));
        connect(&mut first, (1, &mut second));
        let say = |bytes: &[u8]| {
            let mut stranger = std::net::TcpStream::connect(addresses[1]).expect("it listens");
            stranger.set_read_timeout(Some(WAIT)).expect("a timeout");
            let mut whole = (bytes.len() as u32).to_be_bytes().to_vec();
            whole.extend(bytes);
            stranger.write_all(&whole).expect("it reads");
            let mut answer = Vec::new();
            let _it_hangs_up = stranger.read_to_end(&mut answer);
            answer
        };
        let introduced = |from, to, versions| {
            let answer = say(&encode(&Introduction { magic: MAGIC, versions, from, to }));
            postcard::from_bytes::<Result<u16, LinkRefusal>>(&answer[4..]).expect("an answer")
        };
        assert!(say(b"GET / HTTP/1.1").is_empty());
        assert_eq!(introduced(0, 0, VERSIONS), Err(LinkRefusal::Mistaken(1)));
        assert_eq!(introduced(7, 1, VERSIONS), Err(LinkRefusal::Unknown));
        let other = Versions { oldest: 2, newest: 9 };
        let refusal = LinkRefusal::Version { listener: VERSIONS, sender: other };
        assert_eq!(introduced(0, 1, other), Err(refusal));
        // Claims 4 GiB.
        let mut stranger = std::net::TcpStream::connect(addresses[1]).expect("it listens");
        stranger.write_all(&u32::MAX.to_be_bytes()).expect("it reads");
        first.send(1, confirm(3));
        first.flush();
        assert_eq!(next(&mut second), (0, confirm(3)));
    }
}
