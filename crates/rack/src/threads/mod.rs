//! Threads that drive the state machines: each owns one, feeds it packets, messages and time, and
//! carries out what it wants.

mod agent;
mod controller;
mod files;
mod kernel;
mod node;
mod packet_log;
mod switch;

pub use agent::{AgentHandle, AgentThread};
pub use controller::{ControllerHandle, ControllerThread};
pub use files::{ControllerFiles, FilesError, backup_directory};
pub use kernel::KernelThread;
pub use node::{NodeHandle, NodeLinks, NodeThread};
pub use packet_log::PacketLog;
pub use switch::{SwitchHandle, SwitchThread};

use mio::{Poll, Token, Waker};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use switchback_datapath::{Control, NodeAddresses, Verdict};
use switchback_net::{UdpLink, reply_address};
use switchback_wire::{Address, Packet};

/// The token of a thread's waker, and of its socket.
const WAKE: Token = Token(0);
const SOCKET: Token = Token(1);

/// How a thread is asked to end.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was asked.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A poll with its waker.
fn poll() -> io::Result<(Poll, Arc<Waker>)> {
    let poll = Poll::new()?;
    let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
    Ok((poll, waker))
}

/// A poll of a socket alone.
fn socket_poll(link: &mut UdpLink) -> io::Result<Poll> {
    let poll = Poll::new()?;
    link.register(poll.registry(), SOCKET)?;
    Ok(poll)
}

/// A named thread.
fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(body)
}

/// Waits for events; a signal is not an error.
fn wait(poll: &mut Poll, events: &mut mio::Events, timeout: Option<std::time::Duration>) {
    if let Err(error) = poll.poll(events, timeout)
        && error.kind() != io::ErrorKind::Interrupted
    {
        tracing::error!(%error, "waiting for events failed");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// What `datapath` decided on a packet, carried out.
fn carry_out(
    datapath: &impl Control,
    verdict: Verdict,
    from: Address,
    packet: &Packet,
    nodes: &NodeAddresses,
    mut send: impl FnMut(Address),
) {
    match verdict {
        Verdict::Reply => send(reply_address(from, packet)),
        Verdict::Forward(replicas) => nodes.each(&replicas, send),
        // It may have got another place since it processed the packet.
        Verdict::ToSwitch(neighbour) => datapath.neighbour(neighbour).into_iter().for_each(send),
        Verdict::Taken | Verdict::Drop(_) | Verdict::Pass => {}
    }
}
