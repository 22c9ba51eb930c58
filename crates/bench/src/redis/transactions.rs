//! Load of transactions, which redis-benchmark can't make: MULTI, INCR of a key, EXEC.
//!
//! Like redis-benchmark, one thread has a pipeline outstanding on each connection. It takes the
//! connections in turn: each one's replies are read, and its next transactions sent.

use super::{COUNTER, RANDOM, authenticate};
use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How a transaction's replies begin.
const REPLIES: [&str; 4] = ["+OK", "+QUEUED", "*1", ":"];
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is asked of a server.
pub(super) struct Load<'a> {
    pub(super) address: SocketAddr,
    pub(super) password: Option<&'a str>,
    pub(super) connections: u32,
    pub(super) pipeline: u32,
    /// Transactions in all.
    pub(super) requests: u64,
    /// 1 is one hot key.
    pub(super) keys: u64,
}

/// Transactions a second, p50 and p99 in milliseconds: of a pipeline, from its first byte to its
/// last reply.
pub(super) fn run(load: &Load) -> anyhow::Result<(f64, f64, f64)> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut connections = Vec::new();
    for _ in 0..load.connections.max(1) {
        connections.push(Connection::open(load)?);
    }
    let mut latencies = Histogram::<u64>::new(3).context("a histogram")?;
    let (mut sent, mut answered) = (0, 0);
    let begin = Instant::now();
    while answered < load.requests {
        for connection in &mut connections {
            if let Some(latency) = connection.answers()? {
                answered += connection.outstanding;
                connection.outstanding = 0;
                latencies.saturating_record(latency.as_micros() as u64);
            }
            let next = u64::from(load.pipeline.max(1)).min(load.requests - sent);
            sent += next;
            connection.send(next, load.keys, &mut random)?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let ms = |quantile| latencies.value_at_quantile(quantile) as f64 / 1000.0;
    Ok((load.requests as f64 / seconds, ms(0.5), ms(0.99)))
}

struct Connection {
    stream: BufReader<TcpStream>,
    /// Transactions that were sent and aren't answered.
    outstanding: u64,
    sent_at: Instant,
}

impl Connection {
    fn open(load: &Load) -> anyhow::Result<Connection> {
        let mut stream = TcpStream::connect(load.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        authenticate(&mut stream, load.password)?;
        Ok(Connection { stream: BufReader::new(stream), outstanding: 0, sent_at: Instant::now() })
    }

    fn send(&mut self, transactions: u64, keys: u64, random: &mut Pcg64Mcg) -> anyhow::Result<()> {
        if transactions == 0 {
            return Ok(());
        }
        let mut bytes = Vec::new();
        for _ in 0..transactions {
            let key = match keys {
                1 => COUNTER.to_owned(),
                keys => COUNTER.replace(RANDOM, &format!("{:012}", random.random_range(0..keys))),
            };
            let length = key.len();
            write!(
                bytes,
                "*1\r\n$5\r\nMULTI\r\n*2\r\n$4\r\nINCR\r\n${length}\r\n{key}\r\n*1\r\n$4\r\nEXEC\r\n"
            )?;
        }
        self.sent_at = Instant::now();
        self.stream.get_mut().write_all(&bytes)?;
        self.outstanding = transactions;
        Ok(())
    }

    /// Reads the replies to what is outstanding: how long they took, if anything was.
    fn answers(&mut self) -> anyhow::Result<Option<Duration>> {
        let mut line = String::new();
        for _ in 0..self.outstanding {
            for wanted in REPLIES {
                line.clear();
                self.stream.read_line(&mut line).context("a transaction's reply")?;
                ensure!(
                    line.starts_with(wanted),
                    "a transaction was answered {:?} where {wanted:?} was expected",
                    line.trim_end()
                );
            }
        }
        Ok((self.outstanding > 0).then(|| self.sent_at.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::thread;

    /// Answers each transaction of one connection like this, until the client goes.
    fn server(reply: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut seen, mut bytes) = (String::new(), [0; 4096]);
            while let Ok(length @ 1..) = stream.read(&mut bytes) {
                seen += std::str::from_utf8(&bytes[..length]).unwrap();
                while let Some(end) = seen.find("EXEC\r\n") {
                    seen.drain(..end + 6);
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
            }
        });
        address
    }

    fn load(address: SocketAddr) -> Load<'static> {
        Load { address, password: None, connections: 1, pipeline: 3, requests: 100, keys: 7 }
    }

    #[test]
    fn transactions_are_counted() {
        let address = server("+OK\r\n+QUEUED\r\n*1\r\n:5\r\n");
        let (ops, p50_ms, p99_ms) = run(&load(address)).unwrap();
        assert!(ops > 0.0 && p50_ms <= p99_ms);
    }

    #[test]
    fn a_refusal_ends_the_measurement() {
        let address = server("+OK\r\n-ERR unknown command\r\n-EXECABORT\r\n");
        let error = run(&load(address)).unwrap_err().to_string();
        assert!(error.contains("-ERR unknown command"), "{error}");
    }
}
