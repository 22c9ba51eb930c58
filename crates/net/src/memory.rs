//! In-memory links: the same packets as on a wire, through queues. A switch is a call: the sender's
//! thread runs a packet through its datapath and passes it on.

use crate::clock::unix_ms;
use crate::link::{ControlLink, Outgoing, Sent, Uplink};
use crate::mailbox::Mailbox;
use crate::port::PeerPort;
use mio::{Registry, Token, Waker};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switchback_assembly::Part;
use switchback_core::control::{ClientNotice, ClientReport};
use switchback_datapath::{Control, Datapath, Item, Neighbour, Shard, Verdict};
use switchback_wire::{Address, Packet};

/// A packet in a queue: the sender's address, and its bytes.
pub type Delivered = (Address, Vec<u8>);

/// Packets that wait for a part; more are dropped, as by a socket buffer.
const INBOX_MAX: usize = 1 << 16;

/// All in-memory endpoints of a rack, and its datapaths.
#[derive(Debug)]
pub struct MemoryFabric {
    switches: Vec<Arc<Datapath>>,
    nodes: Vec<Arc<Mailbox<Delivered>>>,
    clients: Vec<Arc<Mailbox<Delivered>>>,
    undeliverable: AtomicU64,
}

impl MemoryFabric {
    /// A fabric around the datapaths of these switches, with room for `nodes` and `clients`.
    pub fn new(switches: Vec<Arc<Datapath>>, nodes: u16, clients: u16) -> MemoryFabric {
        let inboxes = |count| (0..count).map(|_| Arc::new(Mailbox::new(INBOX_MAX))).collect();
        MemoryFabric {
            switches,
            nodes: inboxes(nodes),
            clients: inboxes(clients),
            undeliverable: AtomicU64::new(0),
        }
    }

    /// Address of a switch.
    pub fn switch_address(switch: u16) -> Address {
        Part::Switch(switch).address()
    }

    /// Address of a node.
    pub fn node_address(node: u16) -> Address {
        Part::Node(node).address()
    }

    /// Address of a client.
    pub fn client_address(client: u16) -> Address {
        Part::Client(client).address()
    }

    /// Where packets for a node wait.
    pub fn node_inbox(&self, node: u16) -> Arc<Mailbox<Delivered>> {
        Arc::clone(&self.nodes[usize::from(node)])
    }

    /// Where packets for a client wait.
    pub fn client_inbox(&self, client: u16) -> Arc<Mailbox<Delivered>> {
        Arc::clone(&self.clients[usize::from(client)])
    }

    /// The switches' datapaths.
    pub fn switches(&self) -> &[Arc<Datapath>] {
        &self.switches
    }

    /// Packets that found no room or no receiver.
    pub fn dropped(&self) -> u64 {
        let inboxes = self.nodes.iter().chain(&self.clients);
        self.undeliverable.load(Ordering::Relaxed)
            + inboxes.map(|inbox| inbox.dropped()).sum::<u64>()
    }

    fn inbox(&self, to: Address) -> Option<&Arc<Mailbox<Delivered>>> {
        match Part::of_address(&to)? {
            Part::Node(node) => self.nodes.get(usize::from(node)),
            Part::Client(client) => self.clients.get(usize::from(client)),
            Part::Controller | Part::Switch(_) => None,
        }
    }

    fn deliver(&self, from: Address, to: Address, packet: &Packet) {
        match self.inbox(to) {
            Some(inbox) => {
                inbox.push((from, packet.bytes().to_vec()));
            }
            None => self.count_undeliverable(1),
        }
    }

    fn count_undeliverable(&self, packets: usize) {
        self.undeliverable.fetch_add(packets as u64, Ordering::Relaxed);
    }

    /// The switch at this address.
    #[inline]
    fn switch(&self, address: Address) -> Option<&Datapath> {
        match Part::of_address(&address)? {
            Part::Switch(switch) => self.switches.get(usize::from(switch)).map(|it| &**it),
            Part::Controller | Part::Client(_) | Part::Node(_) => None,
        }
    }

    /// Runs a packet of `from` through the datapath of the switch at `to` and passes it on; true if
    /// the answer is in the buffer, for `from`.
    #[inline]
    pub fn pass(
        &self,
        from: Address,
        to: Address,
        packet: &mut Packet,
        random: u32,
        shard: Shard,
    ) -> bool {
        let Some(datapath) = self.switch(to) else {
            self.count_undeliverable(1);
            return false;
        };
        self.enter(from, from, (to, datapath), packet, (random, shard))
    }

    /// The same of a packet that has come to this switch by way of another one, or of none.
    #[inline]
    fn enter(
        &self,
        from: Address,
        sender: Address,
        (at, datapath): (Address, &Datapath),
        packet: &mut Packet,
        (random, shard): (u32, Shard),
    ) -> bool {
        let verdict = datapath.process(packet, sender, unix_ms(), random, shard);
        self.pass_on(from, at, packet, verdict, (random, shard))
    }

    /// As [`MemoryFabric::pass`] of each packet, in this order; a packet's `from` says whose it is.
    fn pass_batch(&self, batch: &mut [Outgoing], shard: Shard) {
        for run in batch.chunk_by_mut(|one, next| one.to == next.to) {
            self.pass_run(run, shard);
        }
    }

    /// The same of packets that go to one switch.
    fn pass_run(&self, run: &mut [Outgoing], shard: Shard) {
        let Some(datapath) = run.first().and_then(|first| self.switch(first.to)) else {
            self.count_undeliverable(run.len());
            run.iter_mut().for_each(|outgoing| outgoing.sent = Sent::OnItsWay);
            return;
        };
        datapath.process_batch(run, unix_ms(), shard);
        for Outgoing { item, to, sent } in run {
            let Item { packet, from, random, verdict } = item;
            let is_answered = self.pass_on(*from, *to, packet, *verdict, (*random, shard));
            *sent = if is_answered { Sent::Answered } else { Sent::OnItsWay };
        }
    }

    /// What becomes of a packet of `from` that the switch `at` has processed: the other switches of
    /// its chain are calls, too.
    #[inline]
    fn pass_on(
        &self,
        from: Address,
        at: Address,
        packet: &mut Packet,
        verdict: Verdict,
        by: (u32, Shard),
    ) -> bool {
        match verdict {
            Verdict::Reply => self.reply(from, at, packet),
            Verdict::Forward(replicas) => {
                let mut is_answered = false;
                for node in replicas.iter() {
                    let to = self.beyond(at, *node);
                    match self.switch(to) {
                        Some(leaf) => is_answered |= self.enter(from, at, (to, leaf), packet, by),
                        None => self.deliver(at, to, packet),
                    }
                }
                is_answered
            }
            Verdict::ToSwitch(neighbour) => self.pass_along(from, at, packet, neighbour, by),
            Verdict::Taken | Verdict::Drop(_) | Verdict::Pass => false,
        }
    }

    /// Where a switch forwards to: a node, or from a spine a leaf.
    #[inline]
    fn beyond(&self, at: Address, node: u16) -> Address {
        let told = self.switch(at).and_then(|datapath| datapath.told_node(node));
        told.unwrap_or(MemoryFabric::node_address(node))
    }

    /// Sends an answer of the switch `at`; true if it is for `from`, whose buffer has it.
    #[inline]
    fn reply(&self, from: Address, at: Address, packet: &Packet) -> bool {
        let to = reply_address(from, packet);
        if to == from {
            return true;
        }
        self.deliver(at, to, packet);
        false
    }

    /// Takes a packet from switch to switch, until one of them does something else with it.
    #[cold]
    fn pass_along(
        &self,
        from: Address,
        at: Address,
        packet: &mut Packet,
        neighbour: Neighbour,
        (random, shard): (u32, Shard),
    ) -> bool {
        let (mut at, mut neighbour) = (at, neighbour);
        loop {
            let next = self.switch(at).and_then(|datapath| datapath.neighbour(neighbour));
            let Some((next, datapath)) = next.and_then(|next| Some((next, self.switch(next)?)))
            else {
                self.count_undeliverable(1);
                return false;
            };
            match datapath.process(packet, at, unix_ms(), random, shard) {
                Verdict::ToSwitch(further) => (at, neighbour) = (next, further),
                verdict => {
                    return self.pass_on(from, next, packet, verdict, (random, shard));
                }
            }
        }
    }
}

/// Where a reply goes: to the client it names, but an acknowledgement goes back to the
/// sender of what it acknowledges.
#[inline]
pub fn reply_address(from: Address, packet: &Packet) -> Address {
    match packet.op_and_origin() {
        Some((op, origin)) if !op.is_acknowledgement() => origin,
        _ => from,
    }
}

/// A source of the datapath's random bits (xorshift: it only decides what is sampled).
#[derive(Clone, Debug)]
pub struct Dice(u32);

impl Dice {
    /// Dice that fall differently for each seed.
    pub fn new(seed: u32) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9) | 1)
    }

    /// The next throw.
    #[inline]
    pub fn roll(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0
    }
}

/// A client's way to the embedded switches: a call.
#[derive(Debug)]
pub struct MemoryUplink {
    fabric: Arc<MemoryFabric>,
    address: Address,
    inbox: Arc<Mailbox<Delivered>>,
    arrived: VecDeque<Delivered>,
    shard: Shard,
    dice: Dice,
}

impl MemoryUplink {
    /// The uplink of client `client`, whose thread counts in `shard`.
    pub fn new(fabric: &Arc<MemoryFabric>, client: u16, shard: Shard) -> MemoryUplink {
        MemoryUplink {
            fabric: Arc::clone(fabric),
            address: MemoryFabric::client_address(client),
            inbox: fabric.client_inbox(client),
            arrived: VecDeque::new(),
            shard,
            dice: Dice::new(u32::from(client) + 1),
        }
    }
}

impl Uplink for MemoryUplink {
    fn register(
        &mut self,
        _registry: &Registry,
        _token: Token,
        waker: &Arc<Waker>,
    ) -> io::Result<()> {
        self.inbox.register(waker);
        Ok(())
    }

    #[inline]
    fn send(&mut self, to: Address, packet: &mut Packet) -> Sent {
        match self.fabric.pass(self.address, to, packet, self.dice.roll(), self.shard) {
            true => Sent::Answered,
            false => Sent::OnItsWay,
        }
    }

    fn send_batch(&mut self, batch: &mut [Outgoing]) {
        for Outgoing { item, .. } in &mut *batch {
            (item.from, item.random) = (self.address, self.dice.roll());
        }
        self.fabric.pass_batch(batch, self.shard);
    }

    fn flush(&mut self) {}

    fn receive(&mut self, packet: &mut Packet) -> bool {
        if self.arrived.is_empty() {
            self.inbox.drain_into(&mut self.arrived);
        }
        while let Some((_, bytes)) = self.arrived.pop_front() {
            if packet.copy_from(&bytes).is_some() {
                return true;
            }
        }
        false
    }
}

/// A client's control link over any port.
#[derive(Debug)]
pub struct ClientControl(pub PeerPort);

impl ControlLink for ClientControl {
    fn register(&mut self, waker: &Arc<Waker>) {
        self.0.register(waker);
    }

    fn send(&mut self, report: ClientReport) {
        self.0.send(report);
    }

    fn receive(&mut self) -> Option<ClientNotice> {
        self.0.receive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_datapath::{ClassConfig, Config, Features};
    use switchback_wire::{HashKey, Header, Map, Op, Place, Scheme};

    const EPOCH: u32 = 64;

    /// A spine (switch 0), whose leaf (switch 1) is its node 1, and node 0 behind the leaf.
    fn spine_and_leaf() -> Arc<MemoryFabric> {
        let config = Config {
            features: Features::of(Scheme::DistCache),
            classes: vec![ClassConfig { value_bytes: 16, slots: 4 }],
            lanes: 4,
            partitions: 1,
            nodes: 2,
            sketch_width: 64,
            ..Config::default()
        };
        let datapaths = [1, 2].map(|position| {
            let datapath = Datapath::new(&config).expect("a datapath");
            let at = |switch| Some(MemoryFabric::switch_address(switch));
            let (before, after) = if position == 1 { (None, at(1)) } else { (at(0), None) };
            let place = Place { position, length: 2, before, after, protects: true };
            datapath.set_place(&place).expect("a place");
            // The other switch is node 1 to each, and the spine's map leads there.
            let other = 2 - u16::from(position);
            datapath.set_map(&Map::equal(vec![vec![other]])).expect("room for it");
            datapath.set_node(0, MemoryFabric::node_address(0));
            datapath.set_node(1, MemoryFabric::switch_address(other));
            let header = Header { epoch: EPOCH, generation: 1, ..Header::new(Op::SetEpoch) };
            assert_eq!(datapath.inject(&mut Packet::build(header, &[], b"-")), Verdict::Reply);
            Arc::new(datapath)
        });
        Arc::new(MemoryFabric::new(datapaths.to_vec(), 1, 1))
    }

    #[test]
    fn what_a_spine_cannot_answer_goes_through_its_leaf_to_the_node_and_back() {
        let fabric = spine_and_leaf();
        let (spine, leaf) = (MemoryFabric::switch_address(0), MemoryFabric::switch_address(1));
        let (client, node) = (MemoryFabric::client_address(0), MemoryFabric::node_address(0));
        let hash = HashKey([7; 16]).hash(b"key");
        let header = Header { epoch: EPOCH, key_hash: hash, ..Header::new(Op::Read) };
        let mut packet = Packet::build(header, &[], b"key");
        assert!(!fabric.pass(client, spine, &mut packet, 1, Shard::default()));
        let (mut arrived, inbox) = (VecDeque::new(), fabric.node_inbox(0));
        inbox.drain_into(&mut arrived);
        let (from, bytes) = arrived.pop_front().expect("the node has got it");
        assert_eq!((from, fabric.dropped()), (leaf, 0));
        assert!(packet.copy_from(&bytes).is_some());
        let asked = packet.parse().expect("a packet").header;
        let answer = Header { op: Op::ReadReply, ..asked };
        let mut packet = Packet::build(answer, b"value", b"key");
        assert!(!fabric.pass(node, leaf, &mut packet, 1, Shard::default()));
        fabric.client_inbox(0).drain_into(&mut arrived);
        assert_eq!(arrived.pop_front().expect("the client has got it").0, leaf);
    }
}
