//! A rack for tests: one map behind a lock that does what switch and nodes do together, with faults
//! on request.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // Each test uses its part.

mod records;
pub mod redis;

pub use records::Knobs;
use records::Records;

use mio::{Registry, Token, Waker};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use switchback_core::control::{ChainGrant, ClientNotice, ClientReport, Destination, Grant};
use switchback_core::topology::{ByChain, ChainMap};
use switchback_gateway::{Durability, Gateway, GatewayConfig, GatewayError, WorkerLinks};
use switchback_net::{ControlLink, Sent, Uplink};
use switchback_wire::{Address, HashKey, Header, Op, Packet, Seq, flags};

thread_local! {
    /// This thread is doing the rack's work, not the gateway's.
    pub static IN_RACK: Cell<bool> = const { Cell::new(false) };
}

/// What takes longer than this hangs: a busy machine may stall everything for seconds.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub const HASH_KEY: HashKey = HashKey([7; 16]);

/// The rack. Clones are the same one.
#[derive(Clone, Default)]
pub struct FakeRack(Arc<Mutex<Records>>);

impl FakeRack {
    /// Changes how it behaves.
    pub fn set(&self, change: impl FnOnce(&mut Knobs)) {
        change(&mut self.0.lock().unwrap().knobs);
    }

    pub fn writes(&self) -> u64 {
        self.0.lock().unwrap().writes
    }

    /// How many packets were sent to it, answered or not.
    pub fn packets(&self) -> u64 {
        self.0.lock().unwrap().packets
    }

    pub fn closed_sessions(&self) -> u64 {
        self.0.lock().unwrap().closed_sessions
    }

    /// The live value of a key.
    pub fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.0.lock().unwrap().value(key)
    }

    pub fn links(&self, worker: usize) -> WorkerLinks {
        let uplink = FakeUplink {
            rack: self.clone(),
            answers: VecDeque::new(),
            waker: None,
            random: 1 + worker as u64,
            null: None,
        };
        let control = FakeControl {
            rack: self.clone(),
            worker: worker as u32,
            notices: VecDeque::new(),
            waker: None,
        };
        WorkerLinks { uplink: Box::new(uplink), control: Box::new(control) }
    }

    pub fn try_start(
        &self,
        config: GatewayConfig,
        workers: usize,
    ) -> Result<Gateway, GatewayError> {
        Gateway::start(config, workers, |worker, _| Ok(self.links(worker)))
    }

    pub fn start(&self, config: GatewayConfig) -> Gateway {
        self.try_start(config, 1).unwrap()
    }
}

/// A gateway on any port that spools nothing.
pub fn config() -> GatewayConfig {
    GatewayConfig {
        listen: vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        durability: Durability::Memory,
        ..GatewayConfig::default()
    }
}

struct FakeUplink {
    rack: FakeRack,
    answers: VecDeque<Packet>,
    waker: Option<Arc<Waker>>,
    random: u64,
    null: Option<bool>,
}

/// The least that an answer costs.
fn answer_for_nothing(packet: &mut Packet) -> Sent {
    let mut key = [0; 128];
    let parts = packet.parse().unwrap();
    let key = &mut key[..parts.key.len()];
    key.copy_from_slice(parts.key);
    let reads = parts.header.op == Op::Read;
    let op = if reads { Op::ReadReply } else { Op::WriteReply };
    let header =
        Header { op, flags: flags::CACHED, seq: Seq(parts.header.request), ..parts.header };
    packet.fill(&header, if reads { &[b'v'; 128] } else { &[] }, key);
    Sent::Answered
}

impl FakeUplink {
    /// True in `percent` of the cases.
    fn chance(&mut self, percent: u64) -> bool {
        self.random =
            self.random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.random >> 33) % 100 < percent
    }
}

impl Uplink for FakeUplink {
    fn register(&mut self, _: &Registry, _: Token, waker: &Arc<Waker>) -> io::Result<()> {
        self.waker = Some(Arc::clone(waker));
        Ok(())
    }

    fn send(&mut self, _: Address, packet: &mut Packet) -> Sent {
        if self.null.unwrap_or_else(|| self.rack.0.lock().unwrap().knobs.null) {
            self.null = Some(true);
            return answer_for_nothing(packet);
        }
        IN_RACK.set(true);
        let sent = self.send_packet(packet);
        IN_RACK.set(false);
        sent
    }

    fn flush(&mut self) {}

    fn receive(&mut self, packet: &mut Packet) -> bool {
        let Some(answer) = self.answers.pop_front() else { return false };
        *packet = answer;
        true
    }
}

impl FakeUplink {
    fn send_packet(&mut self, packet: &mut Packet) -> Sent {
        let mut records = self.rack.0.lock().unwrap();
        records.packets += 1;
        let knobs = records.knobs.clone();
        let writes = matches!(packet.parse().unwrap().header.op, Op::Write | Op::Delete);
        let is_silent = knobs.silent_key.is_some_and(|key| packet.parse().unwrap().key == key);
        let is_late = knobs.silent_after.is_some_and(|last| records.packets > last);
        if knobs.silent || is_silent || is_late || (knobs.silent_writes && writes) {
            return Sent::OnItsWay;
        }
        let first_new = self.answers.len();
        let inline = records.handle(packet, &mut self.answers);
        drop(records);
        if inline && knobs.loss == 0 {
            return Sent::Answered;
        }
        if inline {
            self.answers.push_back(packet.clone());
        }
        let mut at = first_new;
        while at < self.answers.len() {
            if self.chance(knobs.loss) {
                self.answers.remove(at);
                continue;
            }
            if self.chance(knobs.duplication) {
                let twin = self.answers[at].clone();
                self.answers.push_back(twin);
            }
            if self.chance(knobs.reordering) {
                let last = self.answers.len() - 1;
                self.answers.swap(at, last);
            }
            at += 1;
        }
        self.waker.as_ref().unwrap().wake().unwrap();
        Sent::OnItsWay
    }
}

struct FakeControl {
    rack: FakeRack,
    worker: u32,
    notices: VecDeque<ClientNotice>,
    waker: Option<Arc<Waker>>,
}

const LANES: u32 = 256;

impl ControlLink for FakeControl {
    fn register(&mut self, waker: &Arc<Waker>) {
        self.waker = Some(Arc::clone(waker));
    }

    fn send(&mut self, report: ClientReport) {
        let mut records = self.rack.0.lock().unwrap();
        let (sent_us, boot, asked) = match report {
            ClientReport::Hello { sent_us, boot, lanes, .. } => (sent_us, boot, lanes),
            ClientReport::Close { .. } => return records.closed_sessions += 1,
            ClientReport::Preserved { .. }
            | ClientReport::Quiet { .. }
            | ClientReport::Holding { .. } => return,
        };
        if records.knobs.no_session {
            return;
        }
        self.notices.push_back(ClientNotice::Granted(Grant {
            boot,
            hello_us: sent_us,
            lease_us: 2_000_000,
            chains: ByChain::new(1, |_| {
                Some(ChainGrant {
                    epoch: 1,
                    destination: Destination::Switch(Address::in_memory(1, 0)),
                    durable_generation: records.knobs.durable_generation,
                    recovered_epoch: 0,
                    preserves: true,
                    gathers: true,
                })
            }),
            served: ChainMap::default(),
            hash_key: HASH_KEY,
            lane_first: self.worker * LANES,
            lanes: records.knobs.lanes.unwrap_or(LANES).min(asked),
            request_base: records.request_base(boot),
        }));
        drop(records);
        self.waker.as_ref().unwrap().wake().unwrap();
    }

    fn receive(&mut self) -> Option<ClientNotice> {
        assert!(!self.rack.0.lock().unwrap().knobs.broken, "a worker that dies, on purpose");
        self.notices.pop_front()
    }
}

/// A client that knows no protocol but lengths.
pub struct Client(pub TcpStream, Vec<u8>);

impl Client {
    pub fn connect(gateway: &Gateway) -> Client {
        Client::to(gateway.local_addr())
    }

    pub fn to(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Client(stream, Vec::new())
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    pub fn command(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend(*word);
            bytes.extend(b"\r\n");
        }
        bytes
    }

    /// Sends a command and gives its reply, raw.
    pub fn call(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.send(&Client::command(words));
        self.reply()
    }

    /// As [`Client::call`], as text; words separated by spaces.
    pub fn ask(&mut self, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        String::from_utf8_lossy(&self.call(&words)).into_owned()
    }

    /// The next whole reply; empty at the end of the stream.
    pub fn reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(length) = reply_length(&self.1) {
                return self.1.drain(..length).collect();
            }
            let mut more = [0; 65536];
            match self.0.read(&mut more) {
                Ok(0) => return Vec::new(),
                Ok(bytes) => self.1.extend_from_slice(&more[..bytes]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Vec::new(),
                // The fuzzer's clock is a signal.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}; so far: {}", String::from_utf8_lossy(&self.1)),
            }
        }
    }
}

/// The length of the reply that `bytes` begin with, once it is whole.
fn reply_length(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || std::str::from_utf8(&bytes[1..end - 2]).unwrap().parse::<i64>().unwrap();
    let elements = match bytes[0] {
        b'+' | b'-' | b':' | b'_' | b'#' | b',' => return Some(end),
        b'$' | b'=' => {
            let whole = if number() < 0 { end } else { end + number() as usize + 2 };
            return (bytes.len() >= whole).then_some(whole);
        }
        b'*' | b'~' | b'>' => number().max(0),
        b'%' => 2 * number(),
        other => panic!("not a reply: {other}"),
    };
    let mut at = end;
    for _ in 0..elements {
        at += reply_length(&bytes[at..])?;
    }
    Some(at)
}
