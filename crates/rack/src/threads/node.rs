//! A node's thread: shim, engine and links.

use super::{SOCKET, Stop, poll, spawn, wait};
use mio::Events;
use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use switchback_core::Now;
use switchback_core::node::{NodeStatistics, Shim};
use switchback_core::storage::{EngineDone, EngineOp};
use switchback_datapath::Shard;
use switchback_engine::{Engine, Statistics};
use switchback_net::{
    Clock, Delivered, Dice, LinkPort, LinkStatistics, Mailbox, MemoryFabric, PeerPort, UdpLink,
    until,
};
use switchback_wire::{Address, Op, Packet, op_of};

/// Packets taken before the engine is asked: the size of a group commit.
const GROUP: usize = 256;
/// Messages of other nodes taken before the engine is asked.
const LINK_GROUP: usize = 1024;

/// How a node's packets come and go.
pub enum NodeLinks {
    /// Through queues; what the node sends runs through the datapath in its own thread.
    Memory {
        /// The fabric.
        fabric: Arc<MemoryFabric>,
        /// Where its packets wait.
        inbox: Arc<Mailbox<Delivered>>,
        /// Its address.
        address: Address,
        /// Where its thread counts.
        shard: Shard,
        /// Random bits for the datapath.
        dice: Dice,
    },
    /// Through a socket.
    Udp(Box<UdpLink>),
}

impl NodeLinks {
    /// The links of an embedded node.
    pub fn memory(fabric: &Arc<MemoryFabric>, node: u16, shard: Shard) -> NodeLinks {
        NodeLinks::Memory {
            fabric: Arc::clone(fabric),
            inbox: fabric.node_inbox(node),
            address: MemoryFabric::node_address(node),
            shard,
            dice: Dice::new(0x5eed + u32::from(node)),
        }
    }
}

/// What others may know and ask of a running node.
#[derive(Clone)]
pub struct NodeHandle {
    shared: Arc<Mutex<NodeCounters>>,
    served: Arc<AtomicU64>,
    calls: Sender<Call>,
}

type Call = Box<dyn FnOnce(&mut dyn Engine) + Send>;

#[derive(Clone, Debug, Default)]
struct NodeCounters {
    shim: NodeStatistics,
    engine: Statistics,
    links: LinkStatistics,
    queued: usize,
}

impl NodeHandle {
    fn shared(&self) -> NodeCounters {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The shim's counters.
    pub fn statistics(&self) -> NodeStatistics {
        self.shared().shim
    }

    /// The engine's counters.
    pub fn engine(&self) -> Statistics {
        self.shared().engine
    }

    /// Counters of its links to other nodes.
    pub fn links(&self) -> LinkStatistics {
        self.shared().links
    }

    /// Packets that wait.
    pub fn queued(&self) -> usize {
        self.shared().queued
    }

    /// Requests served.
    pub fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    /// Runs `call` on the engine, in the node's thread; `None` if that has ended.
    pub fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&mut dyn Engine) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = mpsc::channel();
        let call = move |engine: &mut dyn Engine| {
            let _ = answer.send(call(engine));
        };
        self.calls.send(Box::new(call)).ok()?;
        answered.recv().ok()
    }
}

/// A thread that wanted to sleep for a millisecond may be woken some milliseconds later on a busy
/// machine.
const CATCH_UP_US: f64 = 5_000.0;

/// Caps a node's rate by a token bucket (RFC 2215): a token a request, `capacity` a second, as
/// many as [`CATCH_UP_US`] brings.
#[derive(Clone, Copy, Debug)]
struct Capacity {
    service_us: f64,
    busy_until_us: f64,
}

impl Capacity {
    /// Whether another request may begin now. What a late wake-up missed is caught up with, to
    /// [`CATCH_UP_US`].
    fn admits(&mut self, now: Now) -> bool {
        let now_us = now.monotonic_us as f64;
        self.busy_until_us = self.busy_until_us.max(now_us - CATCH_UP_US);
        if self.busy_until_us > now_us {
            return false;
        }
        self.busy_until_us += self.service_us;
        true
    }
}

/// A node.
pub struct NodeThread {
    /// The state machine.
    pub shim: Shim,
    /// Its storage.
    pub engine: Box<dyn Engine>,
    /// What the engine takes for the time: milliseconds since the Unix epoch.
    pub engine_clock: Arc<AtomicU64>,
    /// Its packets.
    pub links: NodeLinks,
    /// Its links to the other nodes; none where each partition is at one node.
    pub others: Option<LinkPort>,
    /// Its end of the control channel.
    pub port: PeerPort,
    /// The clock.
    pub clock: Clock,
    /// Requests a second at most, to play a slower server.
    pub capacity_ops: Option<f64>,
}

/// The thread's own state beside the node.
struct Running {
    backlog: VecDeque<Delivered>,
    /// Whether messages of other nodes may wait.
    others_wait: bool,
    packet: Packet,
    ops: Vec<EngineOp>,
    done: Vec<EngineDone>,
    capacity: Option<Capacity>,
    served: Arc<AtomicU64>,
    shared: Arc<Mutex<NodeCounters>>,
    calls: Receiver<Call>,
    next_share_us: u64,
    /// The last failure that the log was told of.
    told: Option<String>,
}

impl NodeThread {
    /// Starts the thread; when `stop` is asked it closes the engine and ends.
    pub fn start(mut self, stop: Stop) -> io::Result<(NodeHandle, JoinHandle<()>)> {
        let (sender, calls) = mpsc::channel();
        let running = Running {
            backlog: VecDeque::new(),
            others_wait: false,
            packet: Packet::new(),
            ops: Vec::new(),
            done: Vec::new(),
            capacity: self
                .capacity_ops
                .map(|ops| Capacity { service_us: 1e6 / ops, busy_until_us: 0.0 }),
            served: Arc::default(),
            shared: Arc::default(),
            calls,
            next_share_us: 0,
            told: None,
        };
        let handle = NodeHandle {
            shared: Arc::clone(&running.shared),
            served: Arc::clone(&running.served),
            calls: sender,
        };
        let (poll, waker) = poll()?;
        self.port.register(&waker);
        if let Some(others) = &self.others {
            others.register(&waker);
        }
        match &mut self.links {
            NodeLinks::Memory { inbox, .. } => inbox.register(&waker),
            NodeLinks::Udp(link) => link.register(poll.registry(), SOCKET)?,
        }
        let name = format!("node {}", self.shim.index());
        let joined = spawn(name, move || self.run(poll, &stop, running))?;
        Ok((handle, joined))
    }

    fn run(mut self, mut poll: mio::Poll, stop: &Stop, mut running: Running) {
        let mut events = Events::with_capacity(8);
        while !stop.is_asked() {
            let timeout = self.timeout(&running);
            wait(&mut poll, &mut events, Some(timeout));
            let now = self.clock.now();
            self.engine_clock.store(now.unix_ms, Ordering::Relaxed);
            while let Some(command) = self.port.receive() {
                self.shim.handle_message(now, command);
            }
            while let Ok(call) = running.calls.try_recv() {
                call(self.engine.as_mut());
            }
            if now.is_due(self.shim.poll_timeout()) {
                self.shim.handle_timeout(now);
            }
            running.others_wait = self.take_messages(now);
            self.take_packets(now, &mut running);
            self.ask_engine(now, &mut running);
            self.send(now, &mut running);
            while let Some(report) = self.shim.poll_message() {
                self.port.send(report);
            }
            self.share(now, &mut running);
        }
        if let Err(error) = self.engine.close() {
            // Nothing is lost: the log has it, and the next start replays it.
            tracing::info!(
                node = self.shim.index(),
                %error,
                "the engine was closed with its log unflushed"
            );
        }
    }

    fn timeout(&self, running: &Running) -> Duration {
        let due =
            until(self.clock.now(), self.shim.poll_timeout()).unwrap_or(Duration::from_millis(20));
        let due = due.min(Duration::from_millis(20));
        if running.others_wait {
            return Duration::ZERO;
        }
        match (&running.capacity, running.backlog.is_empty()) {
            (_, true) => due,
            (Some(_), false) => due.min(Duration::from_millis(1)),
            (None, false) => Duration::ZERO,
        }
    }

    /// Feeds the shim up to a group of other nodes' messages. Whether more may wait.
    fn take_messages(&mut self, now: Now) -> bool {
        let Some(others) = &mut self.others else { return false };
        for _ in 0..LINK_GROUP {
            let Some((from, message)) = others.receive() else { return false };
            self.shim.handle_link(now, from, message);
        }
        true
    }

    /// Feeds the shim up to a group of packets. What remains is taken in the next round, which
    /// doesn't wait.
    fn take_packets(&mut self, now: Now, running: &mut Running) {
        match &mut self.links {
            // What a slow node can't take stays in the inbox, which has a limit.
            NodeLinks::Memory { inbox, .. } if running.backlog.len() < 4 * GROUP => {
                inbox.drain_into(&mut running.backlog);
            }
            NodeLinks::Memory { .. } => {}
            NodeLinks::Udp(link) => {
                while running.backlog.len() < 4 * GROUP {
                    let Some(from) = link.receive(&mut running.packet) else { break };
                    running.backlog.push_back((from, running.packet.bytes().to_vec()));
                }
            }
        }
        for _ in 0..GROUP {
            let Some((_, bytes)) = running.backlog.front() else { return };
            let counts = is_request(bytes);
            if counts && running.capacity.as_mut().is_some_and(|capacity| !capacity.admits(now)) {
                return;
            }
            running.served.fetch_add(u64::from(counts), Ordering::Relaxed);
            let Some((from, bytes)) = running.backlog.pop_front() else { return };
            if running.packet.copy_from(&bytes).is_some() {
                self.shim.handle_packet(now, from, &running.packet);
            }
        }
    }

    /// Lets the engine do what the shim wants, as one group, until it wants nothing more.
    fn ask_engine(&mut self, now: Now, running: &mut Running) {
        loop {
            self.shim.poll_ops(&mut running.ops);
            if running.ops.is_empty() {
                return;
            }
            self.engine.execute(&mut running.ops, &mut running.done);
            for done in running.done.drain(..) {
                self.shim.handle_done(now, done);
            }
        }
    }

    fn send(&mut self, now: Now, running: &mut Running) {
        while let Some(to) = self.shim.poll_packet(&mut running.packet) {
            match &mut self.links {
                NodeLinks::Memory { fabric, address, shard, dice, .. } => {
                    if fabric.pass(*address, to, &mut running.packet, dice.roll(), *shard) {
                        // The switch answers the node itself: a cache update is acknowledged.
                        self.shim.handle_packet(now, to, &running.packet);
                    }
                }
                NodeLinks::Udp(link) => link.send(to, &running.packet),
            }
        }
        if let NodeLinks::Udp(link) = &mut self.links {
            link.flush();
        }
        while let Some((to, message)) = self.shim.poll_link() {
            if let Some(others) = &mut self.others {
                others.send(to, message);
            }
        }
        if let Some(others) = &mut self.others {
            others.flush();
        }
    }

    /// Publishes the counters, a few times a second.
    fn share(&mut self, now: Now, running: &mut Running) {
        if now.monotonic_us < running.next_share_us {
            return;
        }
        running.next_share_us = now.in_us(100_000);
        let engine = self.engine.statistics();
        let shared = NodeCounters {
            shim: self.shim.statistics(),
            engine,
            links: self.others.as_ref().map(LinkPort::statistics).unwrap_or_default(),
            queued: running.backlog.len(),
        };
        *running.shared.lock().unwrap_or_else(PoisonError::into_inner) = shared;
        let (node, failure) = (self.shim.index(), self.shim.failure(now));
        if failure != running.told.as_deref() {
            match failure {
                Some(failure) => {
                    tracing::error!(node, failure, "the node's storage refuses operations")
                }
                None => tracing::warn!(node, "the node's storage works again"),
            }
            running.told = failure.map(str::to_owned);
        }
    }
}

/// Whether a packet asks for work that a capped node counts.
fn is_request(bytes: &[u8]) -> bool {
    matches!(
        op_of(bytes),
        Some(Op::Read | Op::Write | Op::Delete | Op::Fragment | Op::ReadFragment | Op::Scan)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::Header;

    #[test]
    fn a_capped_node_counts_requests_and_nothing_else() {
        let counts = |op| is_request(Packet::build(Header::new(op), &[], b"key").bytes());
        assert!([Op::Read, Op::Write, Op::Delete, Op::Scan].into_iter().all(counts));
        assert!(![Op::CacheUpdateAck, Op::ReadReply, Op::WriteReply].into_iter().any(counts));
        assert!(!is_request(&[]) && !is_request(b"key"));
    }
}
