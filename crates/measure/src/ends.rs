//! `switchback datapath ends`: one client of the switch in the kernel, over a veth, by sockets with batched system calls, by sockets whose
//! messages the kernel takes apart, and past the kernel's network stack. The same requests, in turn.

use crate::cases::{Case, KEY_BYTES, Operation, Outcome, USUAL};
use crate::kernel::Kernel;
use crate::matrix::{FIRST_REQUEST, LANES};
use crate::pinned::{cpu_time, cpus, pin};
use crate::requests::{Request, requests};
use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;
use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use switchback_bench::report::{Machine, Spread, Table, grouped};
use switchback_net::UdpLink;
use switchback_wire::{HEADER_BYTES, Header, Op, Packet, SWITCH_PORT};
use switchback_xdp::measure::Program;
use switchback_xdp::{Segment, XdpLink};

/// Requests that are on their way at a time.
const WINDOWS: [usize; 4] = [1, 16, 64, LANES as usize];
/// AF_XDP's own port; sockets have ephemeral ones.
const PORT: u16 = 4000;
const BUFFER_BYTES: usize = 4 << 20;
/// What has not been answered by then never will.
const PATIENCE: Duration = Duration::from_secs(10);
/// Answers between two looks at the clock.
const STRETCH: u64 = 64;

/// Compare what sending and receiving costs a client.
#[derive(Args, Clone, Debug)]
pub(crate) struct EndsArgs {
    /// Short rounds, and few: a look, not a result.
    #[arg(long)]
    quick: bool,

    /// Writes everything that was measured to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// A way to the switch.
trait End: Send {
    fn send(&mut self, packet: &Packet);
    fn flush(&mut self);
    fn receive(&mut self, packet: &mut Packet) -> bool;
}

macro_rules! end {
    ($link:ty) => {
        impl End for $link {
            fn send(&mut self, packet: &Packet) {
                <$link>::send(self, SocketAddr::from((Segment::SWITCH, SWITCH_PORT)).into(), packet);
            }
            fn flush(&mut self) {
                <$link>::flush(self);
            }
            fn receive(&mut self, packet: &mut Packet) -> bool {
                <$link>::receive(self, packet).is_some()
            }
        }
    };
}
end!(UdpLink);
end!(XdpLink);

/// One end, and its requests.
struct Client<'a> {
    name: &'static str,
    end: Box<dyn End>,
    requests: &'a [Request],
    value: Vec<u8>,
    packet: Packet,
}

/// Time that all CPUs of the machine have been busy, with whatever.
fn machine_busy() -> anyhow::Result<Duration> {
    let text = std::fs::read_to_string("/proc/stat").context("reading /proc/stat")?;
    // user, nice, system, idle, waiting, irq, softirq; then what the host or guests took.
    let ticks: Vec<u64> = text.split_whitespace().skip(1).map_while(|ticks| ticks.parse().ok()).take(7).collect();
    let busy = ticks.iter().sum::<u64>() - ticks.iter().skip(3).take(2).sum::<u64>();
    Ok(Duration::from_secs_f64(busy as f64 / rustix::param::clock_ticks_per_second() as f64))
}

impl Client<'_> {
    /// Sends the request with this number.
    fn ask(&mut self, operation: Operation, lane: usize, number: u64) {
        let Request { key, hash, .. } = self.requests[number as usize % self.requests.len()];
        let (header, value_bytes) = Case { operation, outcome: Outcome::Hit, cpus: 1 }.request(USUAL);
        let header = Header { key_hash: hash, request: number, lane: lane as u32, ..header };
        self.packet.fill(header, &self.value[..value_bytes], &key);
        self.end.send(&self.packet);
    }

    /// Takes the next answer, which is the switch's own, and says on which lane it is.
    fn answer(&mut self, operation: Operation) -> anyhow::Result<Option<usize>> {
        if !self.end.receive(&mut self.packet) {
            return Ok(None);
        }
        let header = self.packet.parse().context("what the switch sends")?.header;
        let expected = match operation {
            Operation::Read => (Op::ReadReply, HEADER_BYTES + USUAL.value_bytes as usize + KEY_BYTES),
            _ => (Op::WriteReply, HEADER_BYTES + KEY_BYTES),
        };
        let got = (header.op, header.packet_bytes());
        ensure!(got == expected, "the switch didn't answer from its cache: {got:?} instead of {expected:?}");
        Ok(Some(header.lane as usize))
    }

    /// Keeps `window` requests on their way for so long. `number` is the last request's. What one took: CPU time of this thread, of the
    /// machine, in nanoseconds; and how many there were a second.
    fn round(
        &mut self,
        (operation, window): (Operation, usize),
        length: Duration,
        number: &mut u64,
    ) -> anyhow::Result<[f64; 3]> {
        let (start, cpu, busy) = (Instant::now(), cpu_time(), machine_busy()?);
        for lane in 0..window {
            *number += 1;
            self.ask(operation, lane, *number);
        }
        let (mut waiting, mut answered, mut is_over, mut last) = (window, 0u64, false, start);
        while waiting > 0 {
            self.end.flush();
            let before = answered;
            while let Some(lane) = self.answer(operation)? {
                answered += 1;
                if answered.is_multiple_of(STRETCH) {
                    last = Instant::now();
                    is_over = last - start >= length;
                }
                if is_over {
                    waiting -= 1;
                } else {
                    *number += 1;
                    self.ask(operation, lane, *number);
                }
            }
            if answered == before {
                // On one CPU answers are there when sending returns, or as soon as the kernel's thread has done the rest of it.
                std::thread::yield_now();
                ensure!(last.elapsed() < PATIENCE, "{}: {waiting} of {window} requests aren't answered", self.name);
            }
        }
        let ns = [cpu_time() - cpu, machine_busy()? - busy].map(|took| took.as_nanos() as f64 / answered as f64);
        Ok([ns[0], ns[1], answered as f64 / start.elapsed().as_secs_f64()])
    }
}

/// The three ends, on the hosts' side of a segment, whose switch is at this Ethernet address.
fn clients<'a>(requests: &'a [Request], switch: [u8; 6]) -> anyhow::Result<[Client<'a>; 3]> {
    let socket = || UdpLink::bind((Segment::HOSTS, 0).into(), BUFFER_BYTES, BUFFER_BYTES).context("binding a socket");
    // First, since it also brings the program without which the veth loses answers.
    let link = XdpLink::open(Segment::HOSTS_INTERFACE, SocketAddrV4::new(Segment::HOSTS, PORT), switch)?;
    let ends: [(_, Box<dyn End>); 3] = [
        ("sendmmsg, recvmmsg", Box::new(socket()?)),
        ("UDP_SEGMENT, UDP_GRO", Box::new(socket()?.segmenting())),
        ("AF_XDP, copying", Box::new(link)),
    ];
    let value = vec![7; USUAL.value_bytes as usize];
    Ok(ends.map(|(name, end)| Client { name, end, requests, value: value.clone(), packet: Packet::new() }))
}

/// What one end took with one window.
#[derive(Clone, Debug, Serialize)]
struct Row {
    operation: Operation,
    window: usize,
    end: &'static str,
    /// CPU time of the client's thread a request; the kernel's work on its behalf counts, the switch's included, as far as it is done
    /// there.
    cpu_ns: Spread,
    /// Time that the machine's CPUs were busy.
    machine_ns: Spread,
    ops_per_second: Spread,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Ends {
    machine: Machine,
    rounds: usize,
    ends: Vec<Row>,
}

/// Measures all ends in turn.
pub(crate) fn measure(args: &EndsArgs) -> anyhow::Result<Ends> {
    let (rounds, length) = if args.quick { (3, 100) } else { (9, 500) };
    let kernel = Kernel::new(USUAL, 1)?;
    let requests = requests(USUAL.slots, Outcome::Hit);
    // One queue, so that all frames are on the client's CPU.
    let segment = Segment::new(1)?;
    let _switch = segment.on_switch(|| kernel.meter().put(Program::Switch, Segment::SWITCH_INTERFACE))?;
    let links = segment.on_switch(|| switchback_xdp::links().context("listing interfaces"))?;
    let switch = links.iter().find(|link| link.name == Segment::SWITCH_INTERFACE).context("the veth is gone")?.address;
    let ends = segment.on_hosts(|| {
        pin(cpus()[0])?;
        let mut clients = clients(&requests, switch)?;
        let (mut rows, mut next) = (Vec::new(), FIRST_REQUEST);
        for case in [Operation::Read, Operation::Write].into_iter().flat_map(|op| WINDOWS.map(|window| (op, window))) {
            let mut figures = [const { Vec::new() }; 3];
            // The first round warms up.
            for round in 0..=rounds {
                for (client, figures) in clients.iter_mut().zip(&mut figures) {
                    let figure = client.round(case, Duration::from_millis(length), &mut next)?;
                    figures.extend((round > 0).then_some(figure));
                }
            }
            rows.extend(clients.iter().zip(&figures).map(|(client, rounds)| row(case, client.name, rounds)));
        }
        anyhow::Ok(rows)
    })?;
    Ok(Ends { machine: Machine::here(), rounds, ends })
}

fn row((operation, window): (Operation, usize), end: &'static str, rounds: &[[f64; 3]]) -> Row {
    let of = |figure: usize| Spread::of(rounds.iter().map(|round| round[figure])).expect("there are rounds");
    Row { operation, window, end, cpu_ns: of(0), machine_ns: of(1), ops_per_second: of(2) }
}

impl Ends {
    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut table =
            Table::new(["128 B, 64 K slots", "window", "end", "CPU, ns a request", "machine, ns", "requests/s"]);
        let cell = |spread: &Spread| {
            let [median, min, max] = [spread.median, spread.min, spread.max].map(grouped);
            format!("{median} ({min}..{max})")
        };
        for row in &self.ends {
            table.row([
                format!("{:?} that hits", row.operation),
                row.window.to_string(),
                row.end.to_owned(),
                cell(&row.cpu_ns),
                cell(&row.machine_ns),
                cell(&row.ops_per_second),
            ]);
        }
        let Machine { model, cpus, kernel, .. } = &self.machine;
        format!("{model}, {cpus} CPUs, Linux {kernel}; median (least..greatest) of {} rounds\n\n{table}", self.rounds)
    }
}
