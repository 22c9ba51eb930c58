//! `switchback bench` against an ideal rack: caches that cost nothing, in front of nodes that serve
//! exactly `--node-capacity` requests a second each, one after the other. Shows that the generator
//! reaches the limits that it prints, and that the limits are right: that of write-through in a
//! closed loop, too, which is solved from a formula and arises here from queues. Arguments are
//! those of `switchback bench`.
//!
//! ```sh
//! cargo run --release -p switchback-bench --example ideal -- \
//!     --preload --node-capacity 2000 --nodes 8
//! ```

mod grants;

use clap::Parser;
use grants::{Grants, HASH_KEY};
use mio::{Registry, Token, Waker};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use switchback_bench::workload::Preload;
use switchback_bench::{
    BenchArgs, BenchRack, ClientLinks, RackFactory, RackOptions, RackStatistics, run,
};
use switchback_net::{Sent, Uplink};
use switchback_wire::{Address, HashKey, Header, KeyHash, Map, Op, Packet, Scheme, Seq, flags};

const PARTITIONS: u16 = 1024;

/// State of a cached key.
#[derive(Clone, Copy, Default)]
struct Content {
    /// Writes that passed the switch.
    writes: u64,
    /// Of these, the writes that the node's last refresh includes: with write-through each write
    /// refreshes, with write-around each read.
    known: u64,
}

/// State that clients and nodes share.
struct Switch {
    scheme: Scheme,
    seq: u64,
    value: Vec<u8>,
    cached: HashMap<KeyHash, Content>,
    map: Map,
    statistics: RackStatistics,
}

impl Switch {
    fn node_of(&self, hash: &KeyHash) -> u16 {
        self.map.of(*hash).head()
    }

    /// Whether the cache answers. A write that it doesn't answer makes its record invalid until the
    /// node has refreshed it. A request that goes to the node carries in `guard` how many writes
    /// its answer includes.
    fn serves(&mut self, header: &mut Header) -> bool {
        let Some(content) = self.cached.get_mut(&header.key_hash).filter(|_| self.scheme.caches())
        else {
            return false;
        };
        if self.scheme.absorbs_writes() || header.op != Op::Write && content.known == content.writes
        {
            return true;
        }
        content.writes += u64::from(header.op == Op::Write);
        header.guard = content.writes;
        false
    }

    fn applied(&mut self, header: &Header) {
        let tells = if self.scheme.refreshes() { Op::Write } else { Op::Read };
        if let Some(content) = self.cached.get_mut(&header.key_hash).filter(|_| header.op == tells)
        {
            content.known = content.known.max(header.guard);
        }
    }

    fn answer(&mut self, packet: &mut Packet, header: Header, flags: u16) {
        self.seq += 1;
        let answer = Header { flags, seq: Seq(self.seq), durable_generation: 1, ..header };
        if header.op == Op::Write {
            packet.fill(&Header { op: Op::WriteReply, ..answer }, &[], b"k");
        } else {
            packet.fill(&Header { op: Op::ReadReply, ..answer }, &self.value, b"k");
        }
    }
}

#[derive(Default)]
struct Inbox {
    packets: Mutex<VecDeque<Packet>>,
    waker: OnceLock<Arc<Waker>>,
}

type Forwarded = (Packet, Arc<Inbox>);

struct Link {
    switch: Arc<Mutex<Switch>>,
    inbox: Arc<Inbox>,
    nodes: Sender<Forwarded>,
}

impl Uplink for Link {
    fn register(&mut self, _: &Registry, _: Token, waker: &Arc<Waker>) -> io::Result<()> {
        let _ = self.inbox.waker.set(waker.clone());
        Ok(())
    }

    fn send(&mut self, _: Address, packet: &mut Packet) -> Sent {
        let mut header = packet.parse().expect("the session's own packet").header;
        let mut switch = lock(&self.switch);
        if switch.serves(&mut header) {
            switch.statistics.hits += 1;
            switch.answer(packet, header, flags::CACHED);
            return Sent::Answered;
        }
        switch.statistics.misses += 1;
        packet.rewrite(&header);
        let _ = self.nodes.send((packet.clone(), self.inbox.clone()));
        Sent::OnItsWay
    }

    fn flush(&mut self) {}

    fn receive(&mut self, packet: &mut Packet) -> bool {
        let next = lock(&self.inbox.packets).pop_front();
        next.map(|next| *packet = next).is_some()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with the lock held")
}

/// All nodes: each serves what arrives in order, one request a `service`.
fn serve(switch: &Mutex<Switch>, requests: &Receiver<Forwarded>, service: Duration) {
    let nodes = lock(switch).map.nodes();
    let mut free = vec![Instant::now(); nodes];
    let mut departures: BinaryHeap<Reverse<(Instant, u64)>> = BinaryHeap::new();
    let mut under_way: HashMap<u64, Forwarded> = HashMap::new();
    let mut number = 0;
    loop {
        let wait = departures.peek().map_or(Duration::from_secs(1), |next| {
            next.0.0.saturating_duration_since(Instant::now())
        });
        match requests.recv_timeout(wait) {
            Ok(request) => {
                let header = request.0.parse().expect("the session's own packet").header;
                let free = &mut free[usize::from(lock(switch).node_of(&header.key_hash))];
                *free = (*free).max(Instant::now()) + service;
                number += 1;
                departures.push(Reverse((*free, number)));
                under_way.insert(number, request);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some(Reverse((at, number))) = departures.peek().copied()
            && at <= Instant::now()
        {
            departures.pop();
            let (mut packet, inbox) = under_way.remove(&number).expect("it departs once");
            let header = packet.parse().expect("the session's own packet").header;
            let mut switch = lock(switch);
            let node = switch.node_of(&header.key_hash);
            switch.statistics.node_ops[usize::from(node)] += 1;
            switch.applied(&header);
            switch.answer(&mut packet, header, 0);
            drop(switch);
            lock(&inbox.packets).push_back(packet);
            let _ = inbox.waker.get().map(|waker| waker.wake());
        }
    }
}

struct IdealRack {
    switch: Arc<Mutex<Switch>>,
    nodes: Sender<Forwarded>,
    thread: JoinHandle<()>,
}

impl BenchRack for IdealRack {
    fn map(&self) -> Map {
        lock(&self.switch).map.clone()
    }

    fn hash_key(&self) -> HashKey {
        HASH_KEY
    }

    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks> {
        let link =
            Link { switch: self.switch.clone(), inbox: Arc::default(), nodes: self.nodes.clone() };
        let grants = Grants::new(index);
        Ok(ClientLinks {
            id: u64::from(index) + 1,
            uplink: Box::new(link),
            control: Box::new(grants),
        })
    }

    fn load(&mut self, _: Preload) -> anyhow::Result<()> {
        Ok(())
    }

    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize> {
        let mut switch = lock(&self.switch);
        switch.cached = keys.iter().map(|key| (HASH_KEY.hash(key), Content::default())).collect();
        Ok(switch.cached.len())
    }

    fn cached(&self) -> Vec<KeyHash> {
        lock(&self.switch).cached.keys().copied().collect()
    }

    fn statistics(&self) -> RackStatistics {
        lock(&self.switch).statistics.clone()
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        let IdealRack { nodes, thread, .. } = *self;
        drop(nodes);
        thread.join().map_err(|_| anyhow::anyhow!("the nodes panicked"))
    }
}

struct IdealRacks;

impl RackFactory for IdealRacks {
    fn start(
        &mut self,
        scheme: Scheme,
        options: &RackOptions,
    ) -> anyhow::Result<Box<dyn BenchRack>> {
        let switch = Arc::new(Mutex::new(Switch {
            scheme,
            seq: 1,
            value: vec![0; options.value_bytes as usize],
            cached: HashMap::new(),
            map: Map::equal(
                (0..PARTITIONS).map(|partition| vec![partition % options.nodes]).collect(),
            ),
            statistics: RackStatistics {
                node_ops: vec![0; options.nodes.into()],
                ..RackStatistics::default()
            },
        }));
        let service = Duration::from_secs_f64(1.0 / options.node_capacity_ops.unwrap_or(1e6));
        let (nodes, requests) = channel();
        let thread = std::thread::spawn({
            let switch = switch.clone();
            move || serve(&switch, &requests, service)
        });
        Ok(Box::new(IdealRack { switch, nodes, thread }))
    }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    run(Cli::parse().bench, &mut IdealRacks)
}
