//! One read after the other by a blocking socket: the switch in the kernel, the switch in user
//! space, redis-server and memcached, over the same veth. What a server's side of it takes, and how
//! long the client waits. Client and server share a CPU.

use crate::cases::{Case, KEY_BYTES, Operation, Outcome, USUAL};
use crate::kernel::Kernel;
use crate::matrix::restore;
use crate::native::Native;
use crate::pinned::{cpus, pin};
use crate::requests::Request;
use anyhow::{Context as _, ensure};
use serde::Serialize;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_bench::process_guard::ProcessGuard;
use switchback_bench::report::Spread;
use switchback_datapath::{NodeAddresses, Shard};
use switchback_net::UdpLink;
use switchback_rack::threads::{Stop, SwitchThread};
use switchback_terminal::Table;
use switchback_wire::{Op, Packet, SWITCH_PORT, op_of};
use switchback_xdp::measure::RunTimes;
use switchback_xdp::{Mode, Segment};

/// Reads of one round; a tenth as many before it don't count.
const READS: usize = 20_000;
/// Keys that are read.
const KEYS: u32 = 100;
/// For a server to start, and for any answer.
const PATIENCE: Duration = Duration::from_secs(10);

const USER_SPACE: &str = "user-space switch";

/// What was seen of one server.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// Of the server a read; of the kernel's datapath what its program takes, the clock that
    /// measures it included.
    pub(crate) cpu_ns: Spread,
    pub(crate) p50_us: Spread,
    pub(crate) p99_us: Spread,
}

/// One round.
struct Round {
    cpu_ns: f64,
    p50_us: f64,
    p99_us: f64,
}

fn peer(name: &'static str, rounds: &[Round]) -> Peer {
    let of = |figure: fn(&Round) -> f64| {
        Spread::of(rounds.iter().map(figure)).expect("there are rounds")
    };
    Peer {
        name,
        cpu_ns: of(|round| round.cpu_ns),
        p50_us: of(|round| round.p50_us),
        p99_us: of(|round| round.p99_us),
    }
}

/// Asks again and again; `cpu` says what the server has taken so far.
fn round(
    mut ask: impl FnMut(usize) -> anyhow::Result<()>,
    cpu: impl Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Round> {
    for index in 0..READS / 10 {
        ask(index)?;
    }
    let before = cpu()?;
    let mut waits = Vec::with_capacity(READS);
    for index in 0..READS {
        let start = Instant::now();
        ask(index)?;
        waits.push(start.elapsed());
    }
    let took = cpu()? - before;
    waits.sort();
    let us = |share: usize| waits[READS * share / 100].as_nanos() as f64 / 1000.0;
    Ok(Round { cpu_ns: took.as_nanos() as f64 / READS as f64, p50_us: us(50), p99_us: us(99) })
}

/// Measures all of them in turn.
pub(crate) fn measure(
    kernel: &Kernel,
    native: &Native,
    segment: &Segment,
    rounds: usize,
) -> anyhow::Result<Vec<Peer>> {
    restore(kernel.meter(), USUAL, KEYS)?;
    restore(&**native.datapath(), USUAL, KEYS)?;
    let redis = Server::redis(segment)?;
    let memcached = Server::memcached(segment)?;
    let names = ["XDP switch", USER_SPACE, "redis-server", "memcached"];
    let mut all = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        all[0].push(xdp(kernel, segment)?);
        all[1].push(user_space(native, segment)?);
        for (server, rounds) in [&redis, &memcached].into_iter().zip(&mut all[2..]) {
            if let Some(server) = server {
                rounds.push(server.round(segment)?);
            }
        }
    }
    let measured = names.into_iter().zip(&all).filter(|(_, rounds)| !rounds.is_empty());
    Ok(measured.map(|(name, rounds)| peer(name, rounds)).collect())
}

/// Reads of the switch.
fn switch_round(
    segment: &Segment,
    cpu: impl Fn() -> anyhow::Result<Duration> + Send,
) -> anyhow::Result<Round> {
    segment.on_hosts(|| {
        pin(cpus()[0])?;
        let socket = UdpSocket::bind((Segment::HOSTS, 0)).context("binding the client's socket")?;
        socket.connect((Segment::SWITCH, SWITCH_PORT))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let case = Case { operation: Operation::Read, outcome: Outcome::Hit, cpus: 1 };
        let (header, _) = case.request(USUAL);
        let mut packet = Packet::new();
        let mut answer = [0; 2048];
        let ask = |index: usize| {
            let Request { key, hash, .. } = Request::new(index as u64 % u64::from(KEYS), 0);
            packet.fill(&switchback_wire::Header { key_hash: hash, ..header }, &[], &key);
            socket.send(packet.bytes()).context("asking the switch")?;
            let length = socket.recv(&mut answer).context("waiting for the switch")?;
            let is_hit = length
                == switchback_wire::HEADER_BYTES + USUAL.value_bytes as usize + KEY_BYTES
                && op_of(&answer) == Some(Op::ReadReply);
            ensure!(is_hit, "the switch didn't answer from its cache");
            Ok(())
        };
        round(ask, cpu)
    })
}

fn xdp(kernel: &Kernel, segment: &Segment) -> anyhow::Result<Round> {
    let meter = kernel.meter();
    let _attached = segment.attach(meter, Mode::Native)?;
    // Counting costs something, so what the client waits for is measured without.
    let waits = switch_round(segment, || Ok(Duration::ZERO))?;
    let _counted = RunTimes::count()?;
    let (took, runs) = meter.run_time();
    switch_round(segment, || Ok(Duration::ZERO))?;
    let (then, runs_then) = meter.run_time();
    ensure!(runs_then > runs, "the kernel doesn't count what programs take");
    Ok(Round { cpu_ns: (then - took).as_nanos() as f64 / (runs_then - runs) as f64, ..waits })
}

fn user_space(native: &Native, segment: &Segment) -> anyhow::Result<Round> {
    let stop = Stop::default();
    let (_, thread) = segment.on_switch(|| {
        pin(cpus()[0])?;
        let link =
            UdpLink::bind(SocketAddr::from((Segment::SWITCH, SWITCH_PORT)), 1 << 20, 1 << 20)?;
        let thread = SwitchThread {
            datapath: Arc::clone(native.datapath()),
            link,
            nodes: NodeAddresses::new(0),
            shard: Shard::default(),
            packet_log: None,
        };
        anyhow::Ok(thread.start(stop.clone())?)
    })?;
    let waits = switch_round(segment, || cpu_of("/proc/self/task", |name| name == "switch"));
    stop.ask();
    let _ended = thread.join();
    waits
}

/// CPU time of the threads in a directory of /proc.
fn cpu_of(tasks: &str, wanted: impl Fn(&str) -> bool) -> anyhow::Result<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(tasks).with_context(|| format!("listing {tasks}"))?.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if wanted(read("comm").trim()) {
            sum += read("schedstat")
                .split(' ')
                .next()
                .and_then(|ns| ns.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(sum))
}

/// A server of others, which ends with this.
struct Server {
    process: ProcessGuard,
    port: u16,
    /// What a read says, and what is answered.
    ask: String,
    answer_bytes: usize,
}

impl Server {
    /// None if it isn't installed.
    fn start(
        segment: &Segment,
        command: &[&str],
        port: u16,
    ) -> anyhow::Result<Option<ProcessGuard>> {
        let name = command[0];
        if Command::new(name)
            .arg("--version")
            .output()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
        {
            eprintln!("without {name}, which isn't installed: apt-get install {name}");
            return Ok(None);
        }
        let port = port.to_string();
        let command = [command, &[&port]].concat();
        // It inherits the thread's CPU and its network.
        let process = segment.on_switch(|| {
            pin(cpus()[0])?;
            ProcessGuard::spawn(&command, Stdio::null(), Stdio::null())
                .with_context(|| format!("starting {name}"))
        })?;
        Ok(Some(process))
    }

    fn redis(segment: &Segment) -> anyhow::Result<Option<Server>> {
        let words = [
            "redis-server",
            "--bind",
            "10.0.0.1",
            "--protected-mode",
            "no",
            "--save",
            "",
            "--appendonly",
            "no",
            "--port",
        ];
        let Some(process) = Server::start(segment, &words, 6379)? else { return Ok(None) };
        let value = "v".repeat(USUAL.value_bytes as usize);
        let answer_bytes = format!("${}\r\n{value}\r\n", value.len()).len();
        let server = Server {
            process,
            port: 6379,
            ask: "GET user000000000000\r\n".to_owned(),
            answer_bytes,
        };
        server
            .store(segment, &format!("SET user000000000000 {value}\r\n"), "+OK\r\n")
            .map(|()| Some(server))
    }

    fn memcached(segment: &Segment) -> anyhow::Result<Option<Server>> {
        let words = ["memcached", "-l", "10.0.0.1", "-U", "0", "-t", "1", "-u", "nobody", "-p"];
        let Some(process) = Server::start(segment, &words, 11211)? else { return Ok(None) };
        let value = "v".repeat(USUAL.value_bytes as usize);
        let answer_bytes =
            format!("VALUE user000000000000 0 {}\r\n{value}\r\nEND\r\n", value.len()).len();
        let server = Server {
            process,
            port: 11211,
            ask: "get user000000000000\r\n".to_owned(),
            answer_bytes,
        };
        let set = format!("set user000000000000 0 0 {}\r\n{value}\r\n", value.len());
        server.store(segment, &set, "STORED\r\n").map(|()| Some(server))
    }

    fn connect(&self) -> anyhow::Result<TcpStream> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(SocketAddr::from((Segment::SWITCH, self.port))) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(PATIENCE))?;
                    return Ok(stream);
                }
                Err(error) if Instant::now() > deadline => {
                    return Err(error).context("connecting to a server");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Gives the one key its value.
    fn store(&self, segment: &Segment, command: &str, expected: &str) -> anyhow::Result<()> {
        segment.on_hosts(|| {
            let mut stream = self.connect()?;
            stream.write_all(command.as_bytes())?;
            let mut answer = vec![0; expected.len()];
            stream.read_exact(&mut answer)?;
            ensure!(
                answer == expected.as_bytes(),
                "port {}: {}",
                self.port,
                String::from_utf8_lossy(&answer)
            );
            Ok(())
        })
    }

    fn round(&self, segment: &Segment) -> anyhow::Result<Round> {
        let tasks = format!("/proc/{}/task", self.process.id());
        segment.on_hosts(|| {
            pin(cpus()[0])?;
            let mut stream = self.connect()?;
            let mut answer = vec![0; self.answer_bytes];
            let ask = |_| {
                stream.write_all(self.ask.as_bytes())?;
                Ok(stream.read_exact(&mut answer)?)
            };
            round(ask, || cpu_of(&tasks, |_| true))
        })
    }
}

/// What the figures say of the aims: per packet at least 5 times cheaper than a server's read,
/// round trips at most half of user space's.
pub(crate) fn text(peers: &[Peer], packet_ns: f64) -> String {
    let mut table = Table::of_numbers([
        "one read after the other",
        "CPU, ns a read",
        "of XDP's packet",
        "p50, us",
        "p99, us",
        "p50, p99 of user space",
    ]);
    let user_space = peers.iter().find(|peer| peer.name == USER_SPACE);
    for peer in peers {
        let Spread { median, min, max } = peer.cpu_ns;
        let (p50, p99) = (peer.p50_us.median, peer.p99_us.median);
        let of_user_space = |user: &Peer| {
            format!("{:.2}, {:.2}", p50 / user.p50_us.median, p99 / user.p99_us.median)
        };
        table.row([
            peer.name.to_owned(),
            format!("{median:.0} ({min:.0}..{max:.0})"),
            format!("{:.1} times", median / packet_ns),
            format!("{p50:.1}"),
            format!("{p99:.1}"),
            user_space.map_or_else(String::new, of_user_space),
        ]);
    }
    format!(
        "{table}  Client and server share a CPU. XDP's packet: {packet_ns:.0} ns, the read that hits of the table above. Aims: 5 times, 0.50.\n"
    )
}
