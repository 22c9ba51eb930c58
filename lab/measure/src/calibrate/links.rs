//! Links and the control channel: two threads that sleep until something comes.

use super::{Effort, sample, us};
use anyhow::{Context as _, ensure};
use mio::{Events, Poll, Token, Waker};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_calibration::{Control, Link};
use switchback_core::control::{
    Command, Envelope, KeyedRecord, Message, NodeCommand, NodeReport, Peer, SwitchReport,
};
use switchback_core::storage::Record;
use switchback_core::topology::ChainId;
use switchback_net::{Carrier, ControlEvent, Parts, PeerPort, TcpHub, UdpLink, connect};
use switchback_wire::{Address, Header, KeyHash, Op, Packet, Seq};

const WAKE: Token = Token(0);
const SOCKET: Token = Token(1);
const BUFFER_BYTES: usize = 1 << 20;
/// What has not come back by then never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// Values of packets whose difference tells what a byte costs.
const SHORT_BYTES: usize = 128;
const LONG_BYTES: usize = 1024;
/// A chunk of a snapshot.
const CHUNK_RECORDS: usize = 256;
/// Chunks of a round: some megabytes.
const CHUNKS: u32 = 100;

fn loopback() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Sleeps until something comes.
struct Sleeper {
    poll: Poll,
    events: Events,
    waker: Arc<Waker>,
}

impl Sleeper {
    fn new() -> anyhow::Result<Sleeper> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        Ok(Sleeper { poll, events: Events::with_capacity(4), waker })
    }

    /// Waits for what `take` finds.
    fn wait<T>(&mut self, mut take: impl FnMut() -> Option<T>) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            if let Some(found) = take() {
                return Ok(found);
            }
            ensure!(
                start.elapsed() < PATIENCE,
                "nothing came over loopback within {} s",
                PATIENCE.as_secs()
            );
            match self.poll.poll(&mut self.events, Some(Duration::from_millis(100))) {
                Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }
}

/// Half of round trips, in microseconds, of `ask` here and `answer` in another thread.
fn round_trips(
    rounds: usize,
    mut ask: impl FnMut() -> anyhow::Result<()>,
    mut answer: impl FnMut() -> anyhow::Result<()> + Send,
) -> anyhow::Result<Vec<f64>> {
    // Some that don't count warm up.
    let warm_up = rounds / 4 + 1;
    std::thread::scope(|scope| {
        let answers = scope.spawn(move || (0..warm_up + rounds).try_for_each(|_| answer()));
        let asked = (0..warm_up + rounds).map(|_| {
            let start = Instant::now();
            ask().map(|()| us(start.elapsed()) / 2.0)
        });
        let halves = asked.collect::<anyhow::Result<Vec<_>>>();
        let answered =
            answers.join().map_err(|_| anyhow::anyhow!("the answering thread panicked"))?;
        let halves = halves?;
        answered.map(|()| halves[warm_up..].to_vec())
    })
}

pub(super) fn measure(effort: &Effort) -> anyhow::Result<Link> {
    let rounds = 10 * effort.rounds;
    let udp_us = sample(udp(rounds)?);
    Ok(Link { udp_us, byte_ns: sample(bytes(rounds)?) })
}

/// Nanoseconds that each byte of a packet takes from one socket to another: what a long packet,
/// sent and received, takes longer than a short one.
fn bytes(rounds: usize) -> anyhow::Result<Vec<f64>> {
    let mut here = udp_end()?.0;
    let mut there = udp_end()?.0;
    let to: Address = there.address().into();
    let mut arrived = Packet::new();
    let packet = |value_bytes: usize| {
        Packet::build(Header::new(Op::Read), &[7; LONG_BYTES][..value_bytes], &[1; 16])
    };
    let (short, long) = (packet(SHORT_BYTES), packet(LONG_BYTES));
    let mut pass = |packet: &Packet| {
        let start = Instant::now();
        here.send(to, packet);
        here.flush();
        there.receive(&mut arrived).context("a packet was lost on loopback")?;
        anyhow::Ok(start.elapsed())
    };
    let mut difference = || {
        let (short, long) = (pass(&short)?, pass(&long)?);
        anyhow::Ok((us(long) - us(short)).max(0.0) * 1000.0 / (LONG_BYTES - SHORT_BYTES) as f64)
    };
    let differences =
        (0..rounds / 4 + rounds).map(|_| difference()).collect::<anyhow::Result<Vec<_>>>()?;
    // The first warm up.
    Ok(differences[rounds / 4..].to_vec())
}

/// A link with its sleeper.
fn udp_end() -> anyhow::Result<(UdpLink, Sleeper)> {
    let mut link =
        UdpLink::bind(loopback(), BUFFER_BYTES, BUFFER_BYTES).context("a socket on loopback")?;
    let sleeper = Sleeper::new()?;
    link.register(sleeper.poll.registry(), SOCKET)?;
    Ok((link, sleeper))
}

fn udp(rounds: usize) -> anyhow::Result<Vec<f64>> {
    let ((mut here, mut here_sleeps), (mut there, mut there_sleeps)) = (udp_end()?, udp_end()?);
    let to: Address = there.address().into();
    let asked = Packet::build(Header::new(Op::Read), &[7; 128], &[1; 16]);
    let (mut answer, mut arrived) = (Packet::new(), Packet::new());
    let ask = || {
        here.send(to, &asked);
        here.flush();
        here_sleeps.wait(|| here.receive(&mut answer)).map(|_| ())
    };
    round_trips(rounds, ask, move || {
        let from = there_sleeps.wait(|| there.receive(&mut arrived))?;
        there.send(from, &arrived);
        there.flush();
        Ok(())
    })
}

/// The controller's end of a control channel, and a peer's.
struct Channel {
    hub: Arc<TcpHub>,
    hub_sleeps: Sleeper,
    arrived: VecDeque<ControlEvent>,
    port: PeerPort,
    port_sleeps: Sleeper,
}

impl Channel {
    fn open(peer: Peer) -> anyhow::Result<Channel> {
        let hub = TcpHub::listen(loopback(), Parts { switches: 1, nodes: 1 })
            .context("the control channel on loopback")?;
        let (hub_sleeps, port_sleeps) = (Sleeper::new()?, Sleeper::new()?);
        hub.controller_inbox().register(&hub_sleeps.waker);
        let port = connect(peer, None, hub.address())?;
        port.register(&port_sleeps.waker);
        Ok(Channel { hub, hub_sleeps, arrived: VecDeque::new(), port, port_sleeps })
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.hub.close();
    }
}

/// Takes the next message that a peer sent to the controller.
fn hear(
    hub: &TcpHub,
    sleeps: &mut Sleeper,
    arrived: &mut VecDeque<ControlEvent>,
) -> anyhow::Result<Message> {
    let inbox = hub.controller_inbox();
    sleeps.wait(|| {
        inbox.drain_into(arrived);
        match arrived.pop_front()? {
            ControlEvent::Message(envelope) => Some(envelope.message),
            _ => None,
        }
    })
}

pub(super) fn control(effort: &Effort) -> anyhow::Result<Control> {
    Ok(Control {
        delay_us: sample(delay(effort.rounds)?),
        mb_per_s: sample(rate(effort.rounds.min(60) / 6)?),
    })
}

fn delay(rounds: usize) -> anyhow::Result<Vec<f64>> {
    let peer = Peer::Node(0);
    let mut channel = Channel::open(peer)?;
    let Channel { hub, hub_sleeps, arrived, port, port_sleeps } = &mut channel;
    let done = || {
        Message::FromNode(NodeReport::Done { id: 1, chain: ChainId::new(0), epoch: 1, error: None })
    };
    let again = || {
        Message::ToNode(Command {
            id: 1,
            chain: ChainId::new(0),
            epoch: 1,
            body: NodeCommand::OfferAgain,
        })
    };
    let ask = || {
        port.send(done());
        port_sleeps.wait(|| port.receive::<Message>()).map(|_| ())
    };
    round_trips(rounds, ask, || {
        hear(hub, hub_sleeps, arrived)?;
        hub.carry(Envelope { from: Peer::Controller, to: peer, message: again() });
        Ok(())
    })
}

/// MB/s of snapshots' chunks, from the first message sent to the last one heard.
fn rate(rounds: usize) -> anyhow::Result<Vec<f64>> {
    let mut channel = Channel::open(Peer::Switch(0))?;
    let Channel { hub, hub_sleeps, arrived, port, .. } = &mut channel;
    let record = |at: usize| KeyedRecord {
        hash: KeyHash([at as u8; 16]),
        key: vec![at as u8; 16],
        record: Record { seq: Seq::new(1, at as u64), value: vec![7; 128], ..Record::default() },
    };
    let records: Vec<_> = (0..CHUNK_RECORDS).map(record).collect();
    let mut round = |counts: bool| {
        let (start, before) = (Instant::now(), hub.statistics());
        for index in 0..CHUNKS {
            let records = records.clone();
            port.send(SwitchReport::SnapshotChunk { epoch: 1, generation: 1, index, records });
        }
        for _ in 0..CHUNKS {
            hear(hub, hub_sleeps, arrived)?;
        }
        let after = hub.statistics();
        let bytes =
            (after.bytes_sent + after.bytes_received) - (before.bytes_sent + before.bytes_received);
        anyhow::Ok(counts.then(|| bytes as f64 / us(start.elapsed())))
    };
    round(false)?;
    (0..rounds.max(3)).filter_map(|_| round(true).transpose()).collect()
}
