//! The control channel over TCP: length-prefixed frames. A connection may break at any time; what
//! was on its way is lost, and is repeated by the part that needs an answer.

use crate::mailbox::Mailbox;
use crate::port::{Carrier, ControlEvent, MESSAGES_MAX, PeerPort};
use connections::{Connections, Outgoing};
pub use connections::{ControlStatistics, Parts};
use handshake::{ANSWER_BYTES_MAX, Answer, INTRODUCTION_BYTES_MAX, Introduction};
pub use links::listen_for_nodes;
use socket2::SockRef;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_core::control::{Envelope, Message, Peer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

mod connections;
mod handshake;
mod links;

/// Longest frame of a peer: a batch fits several times.
const PEER_FRAME_BYTES_MAX: u32 = 1 << 20;
/// Longest frame of the controller: all partitions and addresses of all nodes fit.
const CONTROLLER_FRAME_BYTES_MAX: u32 = 4 << 20;
/// Memory taken for a frame before any of it has arrived. It grows with what arrives.
const FRAME_BYTES_FIRST: usize = 4 << 10;
/// How long a frame may take to arrive once its length has.
const FRAME_TIME: Duration = Duration::from_secs(30);
/// Bytes of frames that wait for the controller; what finds no room is dropped and counted.
const INBOX_BYTES_MAX: usize = 64 << 20;
/// Pause before a broken connection is tried again.
const RECONNECT: Duration = Duration::from_millis(20);
/// How long a connection may take to be made, and what was sent to be acknowledged. Left to itself
/// TCP waits twice as long each time, so that after a partition it needs as long again to notice
/// that it is over.
const UNANSWERED: Duration = Duration::from_secs(1);
/// How long a peer may take to say who it is, and the hub to answer.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Delay before a refused peer is disconnected, so that it doesn't reconnect at once.
const REFUSAL: Duration = Duration::from_secs(1);

/// Bytes that the control channel has carried.
#[derive(Debug, Default)]
struct ControlBytes {
    sent: AtomicU64,
    received: AtomicU64,
}

/// Reads one frame of at most `bytes_max`. Memory grows with what arrives: a length alone costs
/// none.
async fn read_frame<R: AsyncRead + Unpin>(
    from: &mut R,
    bytes_max: u32,
    bytes: &ControlBytes,
) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    if length > bytes_max {
        let error = format!("a control frame of {length} bytes, of which there may be {bytes_max}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, error));
    }
    let mut frame = Vec::with_capacity(FRAME_BYTES_FIRST.min(length as usize));
    let mut rest = from.take(length.into());
    tokio::time::timeout(FRAME_TIME, rest.read_to_end(&mut frame)).await??;
    if frame.len() < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.received.fetch_add(4 + u64::from(length), Ordering::Relaxed);
    Ok(frame)
}

async fn write_frame(
    to: &mut OwnedWriteHalf,
    frame: &[u8],
    bytes: &ControlBytes,
) -> io::Result<()> {
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

fn decode(frame: &[u8]) -> io::Result<Message> {
    Message::decode(frame).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn encode<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain data has an encoding")
}

/// Runs a future on a thread of its own until the process ends or the future does. When the thread
/// has ended, all that the future has opened is closed.
fn spawn(
    name: &str,
    future: impl Future<Output = ()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.into()).spawn(move || runtime.block_on(future))
}

/// The controller's side: accepts connections of all peers.
#[derive(Debug)]
pub struct TcpHub {
    address: SocketAddr,
    inbox: Arc<Mailbox<ControlEvent>>,
    connections: Mutex<Connections>,
    bytes: ControlBytes,
    /// Messages to peers that found no room.
    dropped: AtomicU64,
    closed: Notify,
    /// Accepts and serves, until it is joined.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl TcpHub {
    /// Listens on `address` for the parts of a rack and its clients.
    pub fn listen(address: SocketAddr, parts: Parts) -> io::Result<Arc<TcpHub>> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let hub = Arc::new(TcpHub {
            address: listener.local_addr()?,
            inbox: Arc::new(Mailbox::with_bytes(MESSAGES_MAX, INBOX_BYTES_MAX)),
            connections: Mutex::new(Connections::new(parts)),
            bytes: ControlBytes::default(),
            dropped: AtomicU64::new(0),
            closed: Notify::new(),
            thread: Mutex::new(None),
        });
        let accepting = Arc::clone(&hub);
        let thread = spawn("control", async move {
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
        *hub.thread() = Some(thread);
        Ok(hub)
    }

    /// Stops listening and ends all connections. When it returns, the address is free for another
    /// hub.
    pub fn close(&self) {
        self.closed.notify_one();
        let thread = self.thread().take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the control channel has panicked");
        }
    }

    fn thread(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the controller reads.
    pub fn controller_inbox(&self) -> Arc<Mailbox<ControlEvent>> {
        Arc::clone(&self.inbox)
    }

    /// Counters.
    pub fn statistics(&self) -> ControlStatistics {
        let (peers, refused) = self.with_connections(|connections| connections.counts());
        ControlStatistics {
            bytes_sent: self.bytes.sent.load(Ordering::Relaxed),
            bytes_received: self.bytes.received.load(Ordering::Relaxed),
            dropped_sent: self.dropped.load(Ordering::Relaxed),
            dropped_received: self.inbox.dropped(),
            peers,
            refused,
        }
    }

    /// Where peers that are connected tell over HTTP what they know, as far as they said; in the
    /// order of the peers.
    pub fn metrics(&self) -> Vec<(Peer, SocketAddr)> {
        self.with_connections(|connections| connections.metrics())
    }

    /// Serves connection `number` until it breaks or its peer makes another one.
    async fn talk(&self, number: u64, stream: TcpStream) -> io::Result<()> {
        configure(&stream)?;
        let (from, own) = (stream.peer_addr()?.ip(), stream.local_addr()?.ip());
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let introduction = read_frame(&mut read, INTRODUCTION_BYTES_MAX, &self.bytes);
        let introduction = tokio::time::timeout(INTRODUCTION, introduction).await??;
        let Some(introduction) = Introduction::decode(&introduction) else {
            self.note_refusal("it isn't a part of Switchback");
            tokio::time::sleep(REFUSAL).await;
            return Err(io::ErrorKind::Unsupported.into());
        };
        let (peer, metrics) = (introduction.peer, introduction.metrics_seen(from, own));
        let (outgoing, queue) = Outgoing::new();
        let answer = introduction.version().and_then(|version| {
            let outgoing = outgoing.speaking(version);
            self.with_connections(|connections| {
                connections.introduce(number, peer, metrics, outgoing)
            })?;
            Ok(version)
        });
        if let Err(refusal) = answer {
            self.note_refusal(&format!("{peer:?}: {refusal}"));
        }
        // What is sent to it meanwhile waits in its queue.
        write_frame(&mut write, &encode(&answer), &self.bytes).await?;
        if let Err(refusal) = answer {
            tokio::time::sleep(REFUSAL).await;
            return Err(io::Error::new(io::ErrorKind::Unsupported, refusal));
        }
        let ended = tokio::select! {
            error = self.read(peer, &mut read) => error,
            error = self.write(queue, write) => error,
        };
        if self.with_connections(|connections| connections.end(number)) == Some(peer) {
            self.inbox.push(ControlEvent::Lost(peer));
        }
        Err(ended)
    }

    /// Passes on what a peer says, until its connection breaks.
    async fn read(&self, peer: Peer, from: &mut BufReader<OwnedReadHalf>) -> io::Error {
        loop {
            let frame = match read_frame(from, PEER_FRAME_BYTES_MAX, &self.bytes).await {
                Ok(frame) => frame,
                Err(error) => return error,
            };
            match decode(&frame) {
                Ok(message) => {
                    let envelope = Envelope { from: peer, to: Peer::Controller, message };
                    self.inbox.push_bytes(ControlEvent::Message(envelope), frame.len());
                }
                Err(error) => return error,
            }
        }
    }

    /// Sends what waits for a peer, until its connection breaks.
    async fn write(&self, mut queue: connections::Queue, mut to: OwnedWriteHalf) -> io::Error {
        while let Some(frame) = queue.next().await {
            if let Err(error) = write_frame(&mut to, &frame, &self.bytes).await {
                return error;
            }
        }
        io::ErrorKind::ConnectionAborted.into()
    }
}

impl Server for TcpHub {
    const WHAT: &str = "a control connection";

    fn connections(&self) -> &Mutex<Connections> {
        &self.connections
    }

    fn serve(&self, number: u64, stream: TcpStream) -> impl Future<Output = io::Result<()>> + Send {
        self.talk(number, stream)
    }
}

/// Who accepts connections of other parts.
trait Server: Send + Sync + 'static {
    /// What a connection is called in the log.
    const WHAT: &str;

    /// All connections.
    fn connections(&self) -> &Mutex<Connections>;

    /// Serves connection `number` until it breaks, or its peer makes another one.
    fn serve(&self, number: u64, stream: TcpStream) -> impl Future<Output = io::Result<()>> + Send;

    fn with_connections<T>(&self, f: impl FnOnce(&mut Connections) -> T) -> T {
        f(&mut self.connections().lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A connection, or what came over it, is refused. The log hears of the first, second, fourth,
    /// eighth, ...
    fn note_refusal(&self, reason: &str) {
        let refused = self.with_connections(Connections::refuse);
        if refused.is_power_of_two() {
            tracing::warn!(refused, reason, "refused {}", Self::WHAT);
        }
    }
}

/// Accepts connections, each of which is served by a task.
async fn accept<S: Server>(server: &Arc<S>, listener: &TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let number = server.with_connections(Connections::next_number);
                let serving = Arc::clone(server);
                let task = tokio::spawn(async move {
                    if let Err(error) = serving.serve(number, stream).await {
                        tracing::debug!(%from, %error, "{} ended", S::WHAT);
                    }
                    serving.with_connections(|connections| connections.end(number));
                });
                let task = task.abort_handle();
                server.with_connections(|connections| connections.arrive(number, from.ip(), task));
                // Those that have arrived get to say who they are before more arrive.
                tokio::task::yield_now().await;
            }
            // Out of file descriptors, say: those that are open go on.
            Err(error) => {
                tracing::warn!(%error, "{} can't be accepted", S::WHAT);
                tokio::time::sleep(RECONNECT).await;
            }
        }
    }
}

impl Carrier for TcpHub {
    fn carry(&self, envelope: Envelope) {
        let (since, frame) = (envelope.message.since(), encode(&envelope.message));
        // A full queue is a peer that doesn't read: it loses the message, as over a broken
        // connection.
        if !self.with_connections(|connections| connections.send(envelope.to, since, frame)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A peer's side: keeps a connection to the controller.
#[derive(Debug)]
struct TcpPeer {
    outgoing: mpsc::Sender<Vec<u8>>,
    dropped: AtomicU64,
}

impl Carrier for TcpPeer {
    fn carry(&self, envelope: Envelope) {
        if self.outgoing.try_send(encode(&envelope.message)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// A port for `peer` to the controller at `controller`, which it tells where its metrics are;
/// connects in the background, again and again.
pub fn connect(
    peer: Peer,
    metrics: Option<SocketAddr>,
    controller: SocketAddr,
) -> io::Result<PeerPort> {
    let introduction = Introduction::of(peer, metrics).encode();
    let inbox = Arc::new(Mailbox::new(MESSAGES_MAX));
    let (outgoing, mut to_send) = mpsc::channel::<Vec<u8>>(MESSAGES_MAX);
    let arriving = Arc::clone(&inbox);
    spawn("control", async move {
        let bytes = Arc::new(ControlBytes::default());
        let mut told = String::new();
        loop {
            match run_connection(&introduction, controller, &mut to_send, &arriving, &bytes).await {
                Ok(()) => return, // the port is gone
                Err(error) => {
                    let error = error.to_string();
                    if error != told {
                        tracing::info!(
                            %controller,
                            error,
                            "no connection to the controller; trying again and again"
                        );
                        told = error;
                    }
                }
            }
            tokio::time::sleep(RECONNECT).await;
            // What was meant for the broken connection is stale: a sender that needs an
            // answer repeats it.
            while to_send.try_recv().is_ok() {}
        }
    })?;
    Ok(PeerPort::new(peer, Arc::new(TcpPeer { outgoing, dropped: AtomicU64::new(0) }), inbox))
}

async fn run_connection(
    introduction: &[u8],
    controller: SocketAddr,
    to_send: &mut mpsc::Receiver<Vec<u8>>,
    arriving: &Arc<Mailbox<Message>>,
    bytes: &Arc<ControlBytes>,
) -> io::Result<()> {
    let stream = tokio::time::timeout(UNANSWERED, TcpStream::connect(controller)).await??;
    configure(&stream)?;
    let (read, mut write) = stream.into_split();
    write_frame(&mut write, introduction, bytes).await?;
    let mut read = BufReader::new(read);
    let answered = answer(&mut read, bytes);
    tokio::time::timeout(INTRODUCTION, answered).await??;
    // Both end together: nothing of this connection may arrive once there is another one, for that
    // may lead to another controller.
    let reading = async {
        loop {
            match read_frame(&mut read, CONTROLLER_FRAME_BYTES_MAX, bytes)
                .await
                .and_then(|frame| decode(&frame))
            {
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

/// Reads the hub's answer to an introduction: the version in which it speaks from here on.
async fn answer<R: AsyncRead + Unpin>(from: &mut R, bytes: &ControlBytes) -> io::Result<u16> {
    let frame = read_frame(from, ANSWER_BYTES_MAX, bytes).await.map_err(|error| {
        let hung_up = "it hung up without an answer: it is another program, or a controller that \
                       speaks version 7 of the control channel or older";
        match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), hung_up),
            _ => error,
        }
    })?;
    let answer: Answer = postcard::from_bytes(&frame)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    answer.map_err(|refusal| io::Error::new(io::ErrorKind::Unsupported, refusal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use handshake::{Refusal, VERSIONS, Versions};
    use std::collections::VecDeque;
    use std::io::{Read, Write};
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use switchback_core::control::ClientReport;
    use tokio::io::ReadBuf;

    /// A hub, and the controller's end of it.
    struct Controller {
        hub: Arc<TcpHub>,
        poll: mio::Poll,
        arrived: VecDeque<ControlEvent>,
    }

    impl Controller {
        fn new() -> Controller {
            let parts = Parts { switches: 1, nodes: 2 };
            let hub = TcpHub::listen(([127, 0, 0, 1], 0).into(), parts).expect("a port is free");
            let poll = mio::Poll::new().expect("a poll");
            let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
            hub.controller_inbox().register(&Arc::new(waker));
            Controller { hub, poll, arrived: VecDeque::new() }
        }

        fn stranger(&self) -> std::net::TcpStream {
            std::net::TcpStream::connect(self.hub.address()).expect("the hub listens")
        }

        /// Waits for what happens next.
        fn next(&mut self) -> ControlEvent {
            let mut events = mio::Events::with_capacity(1);
            loop {
                self.hub.controller_inbox().drain_into(&mut self.arrived);
                match self.arrived.pop_front() {
                    Some(ControlEvent::Wake) => {}
                    Some(event) => return event,
                    None => self.poll.poll(&mut events, None).expect("it can wait"),
                }
            }
        }

        /// Waits for a message of `peer`; what else happens before is passed over.
        fn hears(&mut self, peer: Peer) {
            while !matches!(self.next(), ControlEvent::Message(said) if said.from == peer) {}
        }
    }

    impl Drop for Controller {
        fn drop(&mut self) {
            self.hub.close();
        }
    }

    fn framed(frame: &[u8]) -> Vec<u8> {
        [&(frame.len() as u32).to_be_bytes(), frame].concat()
    }

    fn introduction(peer: Peer) -> Vec<u8> {
        framed(&Introduction::of(peer, None).encode())
    }

    /// Waits for the connection's end: what came before that.
    fn ended(stream: &mut std::net::TcpStream) -> Vec<u8> {
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        said
    }

    fn closing() -> Message {
        Message::FromClient(ClientReport::Close { boot: 1 })
    }

    /// Gives a few bytes at a time, and notes for how many there was room.
    struct Trickle<'a> {
        bytes: &'a [u8],
        given: usize,
        room_max: usize,
    }

    impl AsyncRead for Trickle<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            to: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let excess = to.remaining().saturating_sub(2 * self.given);
            self.room_max = self.room_max.max(excess);
            let (now, later) = self.bytes.split_at(self.bytes.len().min(to.remaining()).min(100));
            to.put_slice(now);
            self.given += now.len();
            self.bytes = later;
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn memory_for_a_frame_grows_with_what_arrives() {
        let frame = vec![7; 300_000];
        let (whole, bytes) = (framed(&frame), ControlBytes::default());
        let mut trickle = Trickle { bytes: &whole, given: 0, room_max: 0 };
        assert_eq!(read_frame(&mut trickle, PEER_FRAME_BYTES_MAX, &bytes).await.unwrap(), frame);
        assert!(
            trickle.room_max <= FRAME_BYTES_FIRST,
            "{} bytes taken for nothing",
            trickle.room_max
        );
        let error = |whole: Vec<u8>| async move {
            let bytes = ControlBytes::default();
            read_frame(&mut &whole[..], PEER_FRAME_BYTES_MAX, &bytes).await.unwrap_err().kind()
        };
        assert_eq!(error(whole[..1000].to_vec()).await, io::ErrorKind::UnexpectedEof);
        assert_eq!(
            error((PEER_FRAME_BYTES_MAX + 1).to_be_bytes().to_vec()).await,
            io::ErrorKind::InvalidData
        );
    }

    #[test]
    fn a_closed_hub_has_left_its_address_to_the_next() {
        let parts = || Parts { switches: 1, nodes: 2 };
        let mut hub = TcpHub::listen(([127, 0, 0, 1], 0).into(), parts()).expect("a port is free");
        let address = hub.address();
        let _reconnects = connect(Peer::Node(0), None, address).expect("a port");
        for _ in 0..50 {
            hub.close();
            hub = TcpHub::listen(address, parts()).expect("the last hub doesn't listen any more");
        }
        hub.close();
    }

    #[test]
    fn a_crowd_of_strangers_costs_no_peer_its_connection() {
        let mut controller = Controller::new();
        let known = connect(Peer::Node(0), None, controller.hub.address()).expect("a port");
        // What is sent before there is a connection waits for it.
        known.send(closing());
        controller.hears(Peer::Node(0));
        let mut strangers: Vec<_> = (0..200).map(|_| controller.stranger()).collect();
        let said: Vec<_> = strangers.iter_mut().take(100).map(ended).collect();
        assert!(said.iter().all(Vec::is_empty), "the hub has nothing to say to them");
        known.send(closing());
        controller.hears(Peer::Node(0));
        let new = connect(Peer::Node(1), None, controller.hub.address()).expect("a port");
        new.send(closing());
        controller.hears(Peer::Node(1));
        let counted = controller.hub.statistics();
        assert!(counted.peers == 2 && counted.refused >= 100, "{counted:?}");
    }

    #[test]
    fn a_peer_that_connects_again_has_one_connection() {
        let mut controller = Controller::new();
        let (mut first, mut second) = (controller.stranger(), controller.stranger());
        for stream in [&mut first, &mut second] {
            stream.write_all(&introduction(Peer::Client(1))).expect("the hub reads");
            stream.write_all(&framed(&encode(&closing()))).expect("the hub reads");
            controller.hears(Peer::Client(1));
        }
        ended(&mut first);
        assert_eq!(controller.hub.statistics().peers, 1);
        drop(second);
        let lost = ControlEvent::Lost(Peer::Client(1));
        assert_eq!(controller.next(), lost, "the first one's end left the peer connected");
    }

    #[test]
    fn nonsense_ends_its_own_connection_only() {
        let mut controller = Controller::new();
        let hello = introduction(Peer::Client(1));
        let newer = Versions { oldest: VERSIONS.newest + 1, newest: VERSIONS.newest + 2 };
        let too_new = Introduction { versions: newer, ..Introduction::of(Peer::Client(1), None) };
        let not_common = Refusal::Version { controller: VERSIONS, part: newer };
        let answered = |answer: Answer| framed(&encode(&answer));
        let refused = |refusal| answered(Err(refusal));
        let welcome = || answered(Ok(VERSIONS.newest));
        for (introduction, message, answer) in [
            (&hello[..], &(PEER_FRAME_BYTES_MAX + 1).to_be_bytes()[..], welcome()),
            (&hello[..], &framed(b"\xff\xff\xff")[..], welcome()),
            (&hello[..], &framed(&[])[..], welcome()),
            (&(INTRODUCTION_BYTES_MAX + 1).to_be_bytes()[..], &[][..], vec![]),
            (&framed(b"GET / HTTP/1.1\r\n")[..], &[][..], vec![]),
            (&introduction(Peer::Controller)[..], &[][..], refused(Refusal::Unknown)),
            (&introduction(Peer::Node(2))[..], &[][..], refused(Refusal::Unknown)),
            (&framed(&too_new.encode())[..], &[][..], refused(not_common)),
        ] {
            let mut stream = controller.stranger();
            stream.write_all(introduction).expect("the hub reads");
            let _ = stream.write_all(message);
            assert_eq!(ended(&mut stream), answer, "{introduction:?}");
        }
        let known = connect(Peer::Node(0), None, controller.hub.address()).expect("a port");
        known.send(closing());
        controller.hears(Peer::Node(0));
        assert_eq!(controller.hub.statistics().peers, 1);
    }
}
