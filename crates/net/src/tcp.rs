//! The control channel over TCP: length-prefixed frames. A connection may break at any time; what was on its way is lost, and
//! whoever needs it repeats it.

use crate::mailbox::Mailbox;
use crate::port::{Carrier, ControlEvent, MESSAGES_MAX, PeerPort};
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use switchback_core::control::{Envelope, Message, Peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// Longest frame: a batch of the largest cacheable records fits many times.
const FRAME_BYTES_MAX: u32 = 16 << 20;
/// Pause before a broken connection is tried again.
const RECONNECT: Duration = Duration::from_millis(20);
/// How long a connection may take to be made, and what was sent to be acknowledged. Left to itself TCP waits twice as long each time, so
/// that after a partition it needs as long again to notice that it is over.
const UNANSWERED: Duration = Duration::from_secs(1);
/// How long a peer may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(5);

/// What an introduction begins with: "SW", and the version of the messages, which is another one whenever their encoding is.
const CONTROL_VERSION: u32 = 0x5357_0003;
/// How long somebody waits who can't be understood, since he will try again.
const REFUSAL: Duration = Duration::from_secs(1);

/// Bytes that the control channel has carried.
#[derive(Debug, Default)]
struct ControlBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

impl ControlBytes {
    /// Bytes sent and received, frames included.
    fn get(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

async fn read_frame(from: &mut BufReader<OwnedReadHalf>, bytes: &ControlBytes) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a control frame of {length} bytes")));
    }
    let mut frame = vec![0; length as usize];
    from.read_exact(&mut frame).await?;
    bytes.received.fetch_add(4 + u64::from(length), Ordering::Relaxed);
    Ok(frame)
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &[u8], bytes: &ControlBytes) -> io::Result<()> {
    let mut whole = Vec::with_capacity(4 + frame.len());
    whole.extend_from_slice(&(frame.len() as u32).to_be_bytes());
    whole.extend_from_slice(frame);
    to.write_all(&whole).await?;
    bytes.sent.fetch_add(whole.len() as u64, Ordering::Relaxed);
    Ok(())
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    SockRef::from(stream).set_tcp_user_timeout(Some(UNANSWERED))
}

fn decode<T: serde::de::DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    postcard::from_bytes(frame).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain data has an encoding")
}

/// Runs a future on a thread of its own until the process ends or the future does.
fn spawn(name: &str, future: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.into()).spawn(move || runtime.block_on(future))?;
    Ok(())
}

type Senders = Mutex<BTreeMap<Peer, (u64, mpsc::Sender<Arc<Vec<u8>>>)>>;

/// The controller's side: accepts connections of all peers.
#[derive(Debug)]
pub struct TcpHub {
    address: SocketAddr,
    inbox: Arc<Mailbox<ControlEvent>>,
    senders: Senders,
    connections: AtomicU64,
    /// Connections of whoever spoke another version.
    refused: AtomicU64,
    bytes: ControlBytes,
    closed: Notify,
}

impl TcpHub {
    /// Listens on `address`.
    pub fn listen(address: SocketAddr) -> io::Result<Arc<TcpHub>> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let hub = Arc::new(TcpHub {
            address: listener.local_addr()?,
            inbox: Arc::new(Mailbox::new(MESSAGES_MAX)),
            senders: Mutex::default(),
            connections: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            bytes: ControlBytes::default(),
            closed: Notify::new(),
        });
        let accepting = Arc::clone(&hub);
        spawn("control", async move {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => {
                    tracing::error!(%error, "the control channel can't accept connections");
                    return;
                }
            };
            tokio::select! {
                () = accept(&accepting, &listener) => {}
                // With the runtime, whose only future this is, all connections end.
                () = accepting.closed.notified() => {}
            }
        })?;
        Ok(hub)
    }

    /// Stops listening and ends all connections.
    pub fn close(&self) {
        self.closed.notify_one();
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the controller reads.
    pub fn controller_inbox(&self) -> Arc<Mailbox<ControlEvent>> {
        Arc::clone(&self.inbox)
    }

    /// Bytes carried so far.
    pub fn bytes(&self) -> (u64, u64) {
        self.bytes.get()
    }

    async fn serve(self: Arc<TcpHub>, stream: TcpStream) -> io::Result<()> {
        configure(&stream)?;
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let introduction = tokio::time::timeout(INTRODUCTION, read_frame(&mut read, &self.bytes)).await;
        let introduction = introduction.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let Some(peer) = introduced(&introduction) else { return self.refuse().await };
        let (sender, mut outgoing) = mpsc::channel::<Arc<Vec<u8>>>(MESSAGES_MAX);
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        self.senders.lock().unwrap_or_else(PoisonError::into_inner).insert(peer, (connection, sender));
        let hub = Arc::clone(&self);
        let writing = tokio::spawn(async move {
            while let Some(frame) = outgoing.recv().await {
                if write_frame(&mut write, &frame, &hub.bytes).await.is_err() {
                    return;
                }
            }
        });
        let ended = loop {
            match read_frame(&mut read, &self.bytes).await.and_then(|frame| decode::<Message>(&frame)) {
                Ok(message) => {
                    let envelope = Envelope { from: peer, to: Peer::Controller, message };
                    self.inbox.push(ControlEvent::Message(envelope));
                }
                Err(error) => break error,
            }
        };
        writing.abort();
        self.gone(peer, connection);
        Err(ended)
    }

    async fn refuse(&self) -> io::Result<()> {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused.is_power_of_two() {
            tracing::warn!(
                refused,
                "not a part of this version of Switchback: give all parts of the rack the same version"
            );
        }
        tokio::time::sleep(REFUSAL).await;
        Err(io::ErrorKind::Unsupported.into())
    }

    fn gone(&self, peer: Peer, connection: u64) {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        // A newer connection of the same peer is not this one's to take away.
        if senders.get(&peer).is_some_and(|(current, _)| *current == connection) {
            senders.remove(&peer);
            self.inbox.push(ControlEvent::Lost(peer));
        }
    }
}

/// Who it is, if it speaks this version.
fn introduced(introduction: &[u8]) -> Option<Peer> {
    let (version, peer): (u32, Peer) = decode(introduction).ok()?;
    (version == CONTROL_VERSION).then_some(peer)
}

/// Serves whoever connects.
async fn accept(hub: &Arc<TcpHub>, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let hub = Arc::clone(hub);
                tokio::spawn(async move {
                    if let Err(error) = hub.serve(stream).await {
                        tracing::debug!(%from, %error, "a control connection ended");
                    }
                });
            }
            // Out of file descriptors, say: those that are open go on.
            Err(error) => {
                tracing::warn!(%error, "accepting a control connection failed");
                tokio::time::sleep(RECONNECT).await;
            }
        }
    }
}

impl Carrier for TcpHub {
    fn carry(&self, envelope: Envelope) {
        let senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sender)) = senders.get(&envelope.to) {
            // A full queue is a peer that doesn't read: it loses the message, as over a broken connection.
            let _ = sender.try_send(Arc::new(encode(&envelope.message)));
        }
    }
}

/// A peer's side: keeps a connection to the controller.
#[derive(Debug)]
struct TcpPeer {
    outgoing: mpsc::Sender<Vec<u8>>,
}

impl Carrier for TcpPeer {
    fn carry(&self, envelope: Envelope) {
        let _ = self.outgoing.try_send(encode(&envelope.message));
    }
}

/// A port for `peer` to the controller at `controller`; connects in the background, again and again.
pub fn connect(peer: Peer, controller: SocketAddr) -> io::Result<PeerPort> {
    let inbox = Arc::new(Mailbox::new(MESSAGES_MAX));
    let (outgoing, mut to_send) = mpsc::channel::<Vec<u8>>(MESSAGES_MAX);
    let arriving = Arc::clone(&inbox);
    spawn("control", async move {
        let bytes = Arc::new(ControlBytes::default());
        let mut told = false;
        loop {
            match run_connection(peer, controller, &mut to_send, &arriving, &bytes).await {
                Ok(()) => return, // the port is gone
                Err(error) if !told => {
                    tracing::info!(%controller, %error, "no connection to the controller; trying again and again");
                    told = true;
                }
                Err(_) => {}
            }
            tokio::time::sleep(RECONNECT).await;
            // What was meant for the broken connection is stale: it is repeated by whoever needs an answer.
            while to_send.try_recv().is_ok() {}
        }
    })?;
    Ok(PeerPort::new(peer, Arc::new(TcpPeer { outgoing }), inbox))
}

async fn run_connection(
    peer: Peer,
    controller: SocketAddr,
    to_send: &mut mpsc::Receiver<Vec<u8>>,
    arriving: &Arc<Mailbox<Message>>,
    bytes: &Arc<ControlBytes>,
) -> io::Result<()> {
    let stream = tokio::time::timeout(UNANSWERED, TcpStream::connect(controller)).await??;
    configure(&stream)?;
    let (read, mut write) = stream.into_split();
    write_frame(&mut write, &encode(&(CONTROL_VERSION, peer)), bytes).await?;
    // Both end together: nothing of this connection may arrive once there is another one, for that may lead to another controller.
    let reading = async {
        let mut read = BufReader::new(read);
        loop {
            match read_frame(&mut read, bytes).await.and_then(|frame| decode::<Message>(&frame)) {
                Ok(message) => {
                    arriving.push(message);
                }
                Err(error) => return error,
            }
        }
    };
    let writing = async {
        while let Some(frame) = to_send.recv().await {
            write_frame(&mut write, &frame, bytes).await?;
        }
        Ok(())
    };
    tokio::select! {
        error = reading => Err(error),
        ended = writing => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_parts_of_this_version_are_understood() {
        for peer in [Peer::Node(2), Peer::Switch(0), Peer::Client(u64::MAX)] {
            assert_eq!(introduced(&encode(&(CONTROL_VERSION, peer))), Some(peer));
            assert_eq!(introduced(&encode(&(CONTROL_VERSION + 1, peer))), None);
            assert_eq!(introduced(&encode(&peer)), None, "as it was before there was a version");
        }
        assert_eq!(introduced(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(introduced(b""), None);
    }
}
