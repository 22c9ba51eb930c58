//! `switchback bench redis`: a running gateway beside redis-server, or beside another gateway, both
//! driven by redis-benchmark; transactions by a load of our own.
//!
//! Absolute figures of a small machine vary with its load; the ratio of two servers that take turns
//! on it, under the same load generator, varies less. So each round runs every case on both
//! servers, which take turns in going first, and ratios are taken within rounds.

mod transactions;

use crate::process_guard::ProcessGuard;
use crate::report::{Machine, Spread, check_writable, grouped, say, spelt};
use crate::scratch::Scratch;
use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode, Stdio};
use std::time::{Duration, Instant};
use switchback_net::free_addresses;
use switchback_terminal::Table;

/// Arguments of `switchback bench redis`.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct RedisArgs {
    /// Address of the gateway, which must be running, with the durability below.
    #[arg(long, default_value = "127.0.0.1:6380", value_name = "ADDR")]
    pub(crate) gateway: String,

    /// Password of the gateway, and of what `--beside` names.
    #[arg(long, value_name = "PASSWORD")]
    #[serde(skip)]
    pub(crate) password: Option<String>,

    /// What the gateway is compared with, instead of a redis-server that is started for it: another
    /// address of it, or one of another build or setting.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["durability", "data"])]
    pub(crate) beside: Option<String>,

    /// Speak TLS to the gateway, whose certificate a CA of this file has issued; what it is
    /// compared with is spoken to in plain text.
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,

    /// Durability of the redis-server that is started beside it; give that of the gateway.
    #[arg(long, value_enum, default_value_t = Durability::Everysec)]
    pub(crate) durability: Durability,

    /// Key spaces: 1 is one hot key.
    // redis-benchmark counts them in 31 bits.
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_values_t = [1, 10_000, 1_000_000],
        value_parser = clap::value_parser!(u64).range(1..=i32::MAX as u64)
    )]
    pub(crate) keys: Vec<u64>,

    /// Commands. `eval` and `evalsha` run a script that calls INCR, `multi` is INCR in a
    /// transaction.
    #[arg(
        long,
        value_enum,
        value_name = "NAME,...",
        value_delimiter = ',',
        default_values_t = [Command::Set, Command::Get]
    )]
    pub(crate) commands: Vec<Command>,

    /// Connections.
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub(crate) connections: u32,

    /// Requests that each connection has outstanding.
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub(crate) pipeline: u32,

    /// Length of values.
    #[arg(long, default_value_t = 128, value_name = "BYTES")]
    pub(crate) value_bytes: u32,

    /// Requests of each measurement.
    #[arg(
        long,
        default_value_t = 1_000_000,
        value_name = "N",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    pub(crate) requests: u64,

    /// Rounds; medians and spread are over them.
    #[arg(
        long,
        default_value_t = 5,
        value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub(crate) rounds: u32,

    /// Where redis-server keeps its data, in a directory that is removed at the end, best on the
    /// gateway's disk; the system's directory for temporary files if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,

    /// Writes everything that was measured to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum Command {
    Set,
    Get,
    Incr,
    /// The script comes along each time.
    Eval,
    /// The script is named by its SHA-1.
    #[value(name = "evalsha")]
    EvalSha,
    /// A transaction: MULTI, INCR, EXEC.
    Multi,
}

impl Command {
    /// As redis-benchmark names it, where it can be told.
    fn name(self) -> &'static str {
        match self {
            Command::Set => "SET",
            Command::Get => "GET",
            Command::Incr => "INCR",
            Command::Eval => "EVAL",
            Command::EvalSha => "EVALSHA",
            Command::Multi => "MULTI, INCR, EXEC",
        }
    }

    /// What redis-benchmark is to be told, if it can make such a load.
    fn arguments(self) -> Option<&'static [&'static str]> {
        match self {
            Command::Set => Some(&["-t", "set"]),
            Command::Get => Some(&["-t", "get"]),
            Command::Incr => Some(&["INCR", COUNTER]),
            Command::Eval => Some(&["EVAL", SCRIPT, "1", COUNTER]),
            Command::EvalSha => Some(&["EVALSHA", SCRIPT_SHA, "1", COUNTER]),
            Command::Multi => None,
        }
    }

    /// The command whose keys, and what else it needs, are there before it is measured.
    fn filled_by(self) -> Command {
        match self {
            Command::Set | Command::Get => Command::Set,
            Command::Incr | Command::Multi => Command::Incr,
            Command::Eval | Command::EvalSha => Command::Eval,
        }
    }
}

/// A key that holds a number.
const COUNTER: &str = "counter:__rand_int__";
/// Where redis-benchmark puts a number of 12 digits into it, if there are several.
const RANDOM: &str = "__rand_int__";
const SCRIPT: &str = "return redis.call('INCR', KEYS[1])";
/// The SHA-1 of it.
const SCRIPT_SHA: &str = "61636018f4e6b5817b89791bbed242f93fa089e3";

/// The failures that an acknowledged write survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Durability {
    /// A power cut: appendfsync always.
    Always,
    /// kill -9, and a power cut but for the last second: appendfsync everysec.
    Everysec,
    /// kill -9: appendfsync no.
    No,
    /// Nothing: no append-only file.
    Memory,
}

impl Durability {
    fn redis_options(self) -> [&'static str; 4] {
        match self {
            Durability::Always => ["--appendonly", "yes", "--appendfsync", "always"],
            Durability::Everysec => ["--appendonly", "yes", "--appendfsync", "everysec"],
            Durability::No => ["--appendonly", "yes", "--appendfsync", "no"],
            Durability::Memory => ["--appendonly", "no", "--appendfsync", "no"],
        }
    }
}

/// The servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum Server {
    /// What the gateway is compared with.
    Beside,
    Gateway,
}

/// How a server is reached.
#[derive(Clone, Copy)]
struct Target<'a> {
    server: Server,
    address: SocketAddr,
    password: Option<&'a str>,
    /// It speaks TLS, and its certificate is of a CA of this file.
    cacert: Option<&'a Path>,
}

/// A case: a command and a number of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Case {
    command: Command,
    keys: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.keys {
            1 => write!(f, "{}, one hot key", self.command.name()),
            keys => write!(f, "{}, {} keys", self.command.name(), grouped(keys as f64)),
        }
    }
}

/// One measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Sample {
    round: u32,
    server: Server,
    #[serde(flatten)]
    case: Case,
    ops: f64,
    p50_ms: f64,
    p99_ms: f64,
}

/// All rounds of one case.
#[derive(Clone, Debug, Serialize)]
struct Comparison {
    #[serde(flatten)]
    case: Case,
    beside_ops: Spread,
    gateway_ops: Spread,
    /// Gateway over what is beside it, in each round.
    ratio: Spread,
    beside_p99_ms: Spread,
    gateway_p99_ms: Spread,
}

#[derive(Serialize)]
struct Report<'a> {
    tool: &'static str,
    kind: &'static str,
    machine: Machine,
    /// What the gateway is compared with.
    beside: String,
    arguments: &'a RedisArgs,
    samples: Vec<Sample>,
    summary: Vec<Comparison>,
}

/// Compares, and prints a table.
pub(crate) fn run(args: &RedisArgs) -> anyhow::Result<ExitCode> {
    args.json.as_deref().map(check_writable).transpose()?;
    let gateway = Target {
        server: Server::Gateway,
        address: resolve(&args.gateway)?,
        password: args.password.as_deref(),
        cacert: args.cacert.as_deref(),
    };
    ping(gateway).with_context(|| {
        format!("no gateway answers at {}; start one with `switchback up`", args.gateway)
    })?;
    let redis = args.beside.is_none().then(|| RedisServer::start(args)).transpose()?;
    let (beside, described) = match (&redis, &args.beside) {
        (Some(redis), _) => {
            let durability = spelt(args.durability);
            (redis.target(), format!("{}, durability {durability}", version()?))
        }
        (None, other) => {
            let other = other.as_deref().unwrap_or_default();
            let target = Target {
                server: Server::Beside,
                address: resolve(other)?,
                cacert: None,
                ..gateway
            };
            ping(target).with_context(|| format!("nothing answers at {other}"))?;
            (target, format!("the gateway at {other}"))
        }
    };
    let mut report = Report {
        tool: "switchback bench redis",
        kind: "measured",
        machine: Machine::here(),
        beside: described,
        arguments: args,
        samples: Vec::new(),
        summary: Vec::new(),
    };
    let Machine { cpus, model, kernel } = &report.machine;
    say(&format!(
        "redis-benchmark -P {} -c {} -d {}, {} requests each\n\
         {}, beside the gateway at {}{}\n\
         measured on {cpus} CPU(s), {model}, Linux {kernel}\n\n",
        args.pipeline,
        args.connections,
        args.value_bytes,
        grouped(args.requests as f64),
        report.beside,
        gateway.address,
        if gateway.cacert.is_some() { ", by TLS" } else { "" },
    ))?;
    let targets = [beside, gateway];
    for target in targets {
        eprintln!("filling {}", target.address);
        fill(args, target)?;
    }
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        for case in cases(args) {
            // The servers take turns in going first.
            for at in 0..2 {
                let target = targets[(round as usize + at) % 2];
                let (ops, p50_ms, p99_ms) = benchmark(args, case, args.requests, target)?;
                let server = target.server;
                report.samples.push(Sample { round, server, case, ops, p50_ms, p99_ms });
            }
        }
    }
    report.summary =
        cases(args).iter().filter_map(|&case| compare(case, &report.samples)).collect();
    if let Some(path) = &args.json {
        let json = serde_json::to_vec_pretty(&report).context("the report as JSON")?;
        std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let name = if redis.is_some() { "redis" } else { "beside" };
    say(&table(name, &report.summary).to_string())?;
    Ok(ExitCode::SUCCESS)
}

fn cases(args: &RedisArgs) -> Vec<Case> {
    let of = |&keys| args.commands.iter().map(move |&command| Case { command, keys });
    args.keys.iter().flat_map(of).collect()
}

/// Writes the keys, so that reads find them and both servers are warm. Keys are drawn at random:
/// five times as many writes as keys leave less than one in a hundred out.
fn fill(args: &RedisArgs, target: Target) -> anyhow::Result<()> {
    let mut filled = Vec::new();
    for Case { command, keys } in cases(args) {
        let case = Case { command: command.filled_by(), keys };
        if !filled.contains(&case) {
            let requests = if keys == 1 { 100_000 } else { 5 * keys };
            benchmark(args, case, requests, target)?;
            filled.push(case);
        }
    }
    Ok(())
}

/// Runs a case once: operations a second, p50 and p99 in milliseconds.
fn benchmark(
    args: &RedisArgs,
    case: Case,
    requests: u64,
    Target { address, password, cacert, .. }: Target,
) -> anyhow::Result<(f64, f64, f64)> {
    let Some(arguments) = case.command.arguments() else {
        ensure!(cacert.is_none(), "transactions are measured without TLS only");
        return transactions::run(&transactions::Load {
            address,
            password,
            connections: args.connections,
            pipeline: args.pipeline,
            requests,
            keys: case.keys,
        })
        .with_context(|| format!("{case}, against {address}"));
    };
    let mut command = process::Command::new("redis-benchmark");
    command.args(["-h", &address.ip().to_string(), "-p", &address.port().to_string()]);
    command.args(["-c", &args.connections.to_string(), "-P", &args.pipeline.to_string()]);
    command.args(["-d", &args.value_bytes.to_string(), "-n", &requests.to_string()]);
    command.arg("--csv");
    if case.keys > 1 {
        command.args(["-r", &case.keys.to_string()]);
    }
    if let Some(password) = password {
        command.args(["-a", password]);
    }
    if let Some(cacert) = cacert {
        command.arg("--tls").arg("--cacert").arg(cacert);
    }
    command.args(arguments);
    let output = command
        .stdin(Stdio::null())
        .output()
        .context("cannot run redis-benchmark (package redis-tools)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    parse_csv(&text, case.command.name()).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!(
            "redis-benchmark against {address} ({case}) ended with {}: {text}{errors}",
            output.status
        )
    })
}

/// The line of a command: rate, p50 and p99, found by the names of the columns. Its first cell is
/// the command's name, or all of it.
fn parse_csv(text: &str, command: &str) -> anyhow::Result<(f64, f64, f64)> {
    let cells = |line: &str| {
        let line = line.trim().trim_matches('"');
        line.split("\",\"").map(str::to_owned).collect::<Vec<_>>()
    };
    let mut lines = text.lines().map(cells);
    let head =
        lines.find(|cells| cells.first().is_some_and(|cell| cell == "test")).context("no table")?;
    let names = |cell: &String| cell.split(' ').next() == Some(command);
    let line = lines.find(|cells| cells.first().is_some_and(names)).context("no line")?;
    let figure = |name: &str| {
        let column = head
            .iter()
            .position(|cell| cell == name)
            .with_context(|| format!("no column {name}"))?;
        line.get(column)
            .context("the line is too short")?
            .parse::<f64>()
            .with_context(|| format!("{name} is no number"))
    };
    Ok((figure("rps")?, figure("p50_latency_ms")?, figure("p99_latency_ms")?))
}

fn compare(case: Case, samples: &[Sample]) -> Option<Comparison> {
    let of = |server| {
        samples.iter().filter(move |sample| sample.case == case && sample.server == server)
    };
    let spread = |server, figure: fn(&Sample) -> f64| Spread::of(of(server).map(figure));
    let ratios = of(Server::Gateway).filter_map(|gateway| {
        let beside = of(Server::Beside).find(|beside| beside.round == gateway.round)?;
        Some(gateway.ops / beside.ops)
    });
    Some(Comparison {
        case,
        beside_ops: spread(Server::Beside, |sample| sample.ops)?,
        gateway_ops: spread(Server::Gateway, |sample| sample.ops)?,
        ratio: Spread::of(ratios)?,
        beside_p99_ms: spread(Server::Beside, |sample| sample.p99_ms)?,
        gateway_p99_ms: spread(Server::Gateway, |sample| sample.p99_ms)?,
    })
}

/// With this name of what the gateway is compared with.
fn table(beside: &str, comparisons: &[Comparison]) -> Table {
    let (ops, p99) = (format!("{beside} ops/s"), format!("p99 ms, {beside}"));
    let ratio = format!("gateway/{beside}");
    let mut table = Table::of_numbers([
        "measured, medians",
        &ops,
        "spread",
        "gateway ops/s",
        "spread",
        &ratio,
        "from",
        "to",
        &p99,
        "gateway",
    ]);
    let spread = |spread: &Spread| format!("± {:.1} %", spread.relative() * 100.0);
    for comparison in comparisons {
        let Comparison { case, beside_ops, gateway_ops, ratio, beside_p99_ms, gateway_p99_ms } =
            comparison;
        table.row([
            case.to_string(),
            grouped(beside_ops.median),
            spread(beside_ops),
            grouped(gateway_ops.median),
            spread(gateway_ops),
            format!("{:.2}", ratio.median),
            format!("{:.2}", ratio.min),
            format!("{:.2}", ratio.max),
            format!("{:.2}", beside_p99_ms.median),
            format!("{:.2}", gateway_p99_ms.median),
        ]);
    }
    table
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let mut found =
        address.to_socket_addrs().with_context(|| format!("{address} is no HOST:PORT"))?;
    found.next().with_context(|| format!("{address} has no address"))
}

/// Sends PING, and waits for PONG; where TLS is spoken, only connects.
fn ping(Target { address, password, cacert, .. }: Target) -> anyhow::Result<()> {
    let wait = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&address, wait)?;
    if cacert.is_some() {
        return Ok(());
    }
    stream.set_read_timeout(Some(wait))?;
    authenticate(&mut stream, password)?;
    stream.write_all(b"*1\r\n$4\r\nPING\r\n")?;
    expect(&mut stream, b"+PONG\r\n")
}

/// Sends the password, if there is one.
fn authenticate(stream: &mut TcpStream, password: Option<&str>) -> anyhow::Result<()> {
    let Some(password) = password else { return Ok(()) };
    let length = password.len();
    write!(stream, "*2\r\n$4\r\nAUTH\r\n${length}\r\n{password}\r\n")?;
    expect(stream, b"+OK\r\n")
}

fn expect(stream: &mut TcpStream, wanted: &[u8]) -> anyhow::Result<()> {
    let mut answer = vec![0; wanted.len()];
    stream.read_exact(&mut answer)?;
    ensure!(answer == wanted, "it answered {:?}", String::from_utf8_lossy(&answer));
    Ok(())
}

fn version() -> anyhow::Result<String> {
    let output = process::Command::new("redis-server")
        .arg("--version")
        .output()
        .context("cannot run redis-server")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    Ok(format!("redis-server {}", number.unwrap_or("of unknown version")))
}

/// A redis-server that ends with this process.
struct RedisServer {
    process: ProcessGuard,
    address: SocketAddr,
    _data: Scratch,
}

impl RedisServer {
    fn start(args: &RedisArgs) -> anyhow::Result<RedisServer> {
        let data = Scratch::new(args.data.as_deref(), "redis")?;
        let [address] = free_addresses()?;
        let process = spawn(address, data.path(), args.durability)?;
        let mut server = RedisServer { process, address, _data: data };
        let give_up = Instant::now() + Duration::from_secs(10);
        while ping(server.target()).is_err() {
            if let Some(status) = server.process.ended()? {
                bail!("redis-server ended with {status}");
            }
            ensure!(Instant::now() < give_up, "redis-server does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    fn target(&self) -> Target<'static> {
        let (server, address) = (Server::Beside, self.address);
        Target { server, address, password: None, cacert: None }
    }
}

fn spawn(address: SocketAddr, data: &Path, durability: Durability) -> anyhow::Result<ProcessGuard> {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let data = data.to_str().context("redis-server's directory has a name that isn't UTF-8")?;
    let mut command =
        vec!["redis-server", "--bind", &host, "--port", &port, "--save", "", "--dir", data];
    command.extend(durability.redis_options());
    ProcessGuard::spawn(&command, Stdio::null(), Stdio::inherit())
        .context("cannot run redis-server (package redis-server)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    const CSV: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
        \"GET\",\"1149425.38\",\"0.381\",\"0.128\",\"0.359\",\"0.535\",\"0.791\",\"1.503\"\n";

    #[test]
    fn the_table_of_redis_benchmark_is_read_by_the_names_of_its_columns() {
        assert_eq!(parse_csv(CSV, "GET").unwrap(), (1_149_425.38, 0.359, 0.791));
        let warned = format!("WARNING: Could not fetch server CONFIG\n{CSV}");
        assert_eq!(parse_csv(&warned, "GET").unwrap().0, 1_149_425.38);
        let eval = CSV.replace("GET", &format!("EVAL {SCRIPT} 1 {COUNTER}"));
        assert_eq!(parse_csv(&eval, "EVAL").unwrap().0, 1_149_425.38);
        assert!(parse_csv(CSV, "SET").is_err());
        assert!(parse_csv("", "GET").is_err());
    }

    #[test]
    fn ratios_are_taken_within_rounds() {
        let case = Case { command: Command::Set, keys: 1 };
        let sample =
            |round, server, ops| Sample { round, server, case, ops, p50_ms: 0.1, p99_ms: 0.2 };
        // The machine was twice as fast in the second round: the ratio is the same.
        let samples = [
            sample(1, Server::Beside, 100.0),
            sample(1, Server::Gateway, 120.0),
            sample(2, Server::Gateway, 240.0),
            sample(2, Server::Beside, 200.0),
        ];
        let comparison = compare(case, &samples).unwrap();
        assert_eq!(comparison.ratio, Spread { median: 1.2, min: 1.2, max: 1.2 });
        let line = table("redis", &[comparison]).to_string();
        let line: Vec<_> = line.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            line,
            [
                "SET,", "one", "hot", "key", "150", "±", "33.3", "%", "180", "±", "33.3", "%",
                "1.20", "1.20", "1.20", "0.20", "0.20"
            ]
        );
        assert!(compare(Case { keys: 2, ..case }, &samples).is_none());
    }

    #[test]
    fn a_gateway_that_isnt_there_is_named() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (server, password, cacert) = (Server::Gateway, None, None);
        assert!(ping(Target { server, address, password, cacert }).is_err());
        assert!(resolve("nowhere").is_err());
    }
}
