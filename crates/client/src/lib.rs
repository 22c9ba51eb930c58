//! The async client library: reads, writes, deletes and conditional writes of a rack, from any
//! async runtime.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use switchback_client::{Client, Options};
//!
//! let client = Client::connect("127.0.0.1:9460".parse()?, Options::default()).await?;
//! client.set(b"user:1", b"Ada").await?;
//! let user = client.get(b"user:1").await?.expect("it was just written");
//! // Only if no other write came in between:
//! client.set_if(b"user:1", b"Ada Lovelace", user.seq).await??;
//! # Ok(())
//! # }
//! ```
//!
//! A thread of its own drives the session (lanes, retries with backoff and jitter, deadlines, the
//! lease, preservation of what the cache acknowledged); a [`Client`] is a handle of it and may be
//! cloned. An operation whose outcome can't be known is [`Error::Indeterminate`]: a write that may
//! or may not have happened, or may still happen.

mod driver;

pub use switchback_core::client::{ClientConfig, SessionStatistics};
pub use switchback_wire::Seq;

use driver::{Driver, Request, RequestKind};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use switchback_core::control::Peer;
use switchback_net::{ClientControl, Clock, ControlLink, Mailbox, UdpLink, Uplink, connect};
use thiserror::Error;
use tokio::sync::oneshot;

/// Operations that may wait for a lane.
const QUEUE_MAX: usize = 1 << 16;

/// Choices of a client.
#[derive(Clone, Debug)]
pub struct Options {
    /// Lanes, deadlines, limits.
    pub session: ClientConfig,
    /// Its number on the control channel; another client with the same number takes its session
    /// over. `None`: a random one.
    pub id: Option<u64>,
    /// Socket buffers, receive and send.
    pub buffers: (usize, usize),
}

impl Default for Options {
    fn default() -> Options {
        Options { session: ClientConfig::default(), id: None, buffers: (4 << 20, 4 << 20) }
    }
}

/// A record that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned {
    /// Its value.
    pub value: Vec<u8>,
    /// Its version, for a conditional write.
    pub seq: Seq,
    /// Milliseconds since the Unix epoch; 0: never.
    pub expiry_ms: u64,
}

/// The record has another version than a conditional write expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the record has another version, {seq}")]
pub struct Conflict {
    /// Which.
    pub seq: Seq,
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Error {
    /// The write may or may not have happened, or may still happen.
    #[error("no answer: the write may or may not have happened")]
    Indeterminate,
    /// Nothing happened.
    #[error("no answer in time; nothing was changed")]
    TimedOut,
    /// The disk of the key's node is full: it refused the write. A copy of its packet that is still
    /// on its way may find room later, so it may yet happen, once.
    #[error(
        "the disk of this key's node is full: it refused the write, but a copy that is still on its way may find room"
    )]
    NoSpace,
    /// A key has 1 byte to 1 KiB, a value at most 1 MiB.
    #[error("a key has 1 byte to 1 KiB, a value at most 1 MiB")]
    TooLarge,
    /// Too many operations wait already.
    #[error("too many operations are waiting")]
    Overloaded,
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

/// A handle of a session. Clones share it; it closes when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    queue: Arc<Queue>,
}

/// The way to the driver's thread; its end tells the thread to close.
#[derive(Debug)]
struct Queue(Arc<Mailbox<Request>>);

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.push(Request::close());
    }
}

impl Client {
    /// Connects to the rack whose controller listens at `controller`, and waits for a session.
    ///
    /// # Errors
    /// Sockets that can't be had. A controller that doesn't answer is waited for.
    pub async fn connect(controller: SocketAddr, options: Options) -> io::Result<Client> {
        let unspecified: SocketAddr = match controller {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let uplink = UdpLink::bind(unspecified, options.buffers.0, options.buffers.1)?;
        let id = options.id.unwrap_or_else(driver::draw);
        let port = connect(Peer::Client(id), None, controller)?;
        Client::over(
            options.session,
            Box::new(uplink),
            Box::new(ClientControl(port)),
            Clock::default(),
        )
        .await
    }

    /// A client over links that exist already (of an embedded rack, say).
    ///
    /// # Errors
    /// Threads or polls that can't be had.
    pub async fn over(
        config: ClientConfig,
        uplink: Box<dyn Uplink>,
        control: Box<dyn ControlLink>,
        clock: Clock,
    ) -> io::Result<Client> {
        let queue = Arc::new(Mailbox::new(QUEUE_MAX));
        let (opened, is_open) = oneshot::channel();
        Driver::start(config, uplink, control, clock, Arc::clone(&queue), opened)?;
        let client = Client { queue: Arc::new(Queue(queue)) };
        is_open.await.map_err(|_| io::Error::other("the client's thread ended"))?;
        Ok(client)
    }

    async fn run(&self, kind: RequestKind) -> Result<driver::Answer, Error> {
        let (request, answer) = Request::new(kind);
        if !self.queue.0.push(request) {
            return Err(Error::Overloaded);
        }
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Reads a record.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        match self.run(RequestKind::Get { key: key.to_vec() }).await? {
            driver::Answer::Value(found) => Ok(found),
            _ => unreachable!("a read is answered by a value"),
        }
    }

    /// Writes a record.
    pub async fn set(&self, key: &[u8], value: &[u8]) -> Result<Seq, Error> {
        self.set_until(key, value, 0).await
    }

    /// Writes a record that expires at `expiry_ms` (milliseconds since the Unix epoch; 0: never).
    pub async fn set_until(&self, key: &[u8], value: &[u8], expiry_ms: u64) -> Result<Seq, Error> {
        let (key, value) = (key.to_vec(), value.to_vec());
        match self.run(RequestKind::Set { key, value, expiry_ms, condition: None }).await? {
            driver::Answer::Written(Ok(seq)) => Ok(seq),
            _ => unreachable!("an unconditional write has no conflicts"),
        }
    }

    /// Writes a record iff its version is `seq` ([`Seq::NONE`]: there never was one).
    pub async fn set_if(
        &self,
        key: &[u8],
        value: &[u8],
        seq: Seq,
    ) -> Result<Result<Seq, Conflict>, Error> {
        let (key, value) = (key.to_vec(), value.to_vec());
        match self.run(RequestKind::Set { key, value, expiry_ms: 0, condition: Some(seq) }).await? {
            driver::Answer::Written(written) => Ok(written),
            _ => unreachable!("a write is answered by what became of it"),
        }
    }

    /// Deletes a record, whether it exists or not.
    pub async fn delete(&self, key: &[u8]) -> Result<Seq, Error> {
        match self.run(RequestKind::Delete { key: key.to_vec(), condition: None }).await? {
            driver::Answer::Written(Ok(seq)) => Ok(seq),
            _ => unreachable!("an unconditional delete has no conflicts"),
        }
    }

    /// Deletes a record iff its version is `seq`.
    pub async fn delete_if(&self, key: &[u8], seq: Seq) -> Result<Result<Seq, Conflict>, Error> {
        match self.run(RequestKind::Delete { key: key.to_vec(), condition: Some(seq) }).await? {
            driver::Answer::Written(written) => Ok(written),
            _ => unreachable!("a delete is answered by what became of it"),
        }
    }

    /// Counters of the session.
    pub async fn statistics(&self) -> Result<SessionStatistics, Error> {
        match self.run(RequestKind::Statistics).await? {
            driver::Answer::Statistics(statistics) => Ok(statistics),
            _ => unreachable!("statistics are answered by statistics"),
        }
    }
}
