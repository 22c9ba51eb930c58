//! What Prometheus reads of a running rack, over HTTP.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use switchback_rack::config::{Durability, Overrides, RackConfig};
use switchback_rack::embedded::EmbeddedRack;

fn start(directory: &tempfile::TempDir) -> EmbeddedRack {
    EmbeddedRack::start(&config(directory), None).unwrap()
}

fn config(directory: &tempfile::TempDir) -> RackConfig {
    let any: Option<SocketAddr> = Some("127.0.0.1:0".parse().unwrap());
    let overrides = Overrides {
        nodes: Some(1),
        data: Some(directory.path().into()),
        resp: any,
        metrics: any,
        durability: Some(Durability::Memory),
        workers: Some(1),
        cache_records: Some(64),
        ..Overrides::default()
    };
    RackConfig::load(None, &overrides).unwrap()
}

/// The samples of one metric: labels and value, as they are written.
fn samples(rack: &EmbeddedRack, metric: &str) -> Vec<String> {
    let mut stream = TcpStream::connect(rack.metrics_address()).unwrap();
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().filter_map(|line| line.strip_prefix(metric)).map(str::to_owned).collect()
}

/// Sends commands, one a line, and reads as many replies, each of one line.
fn send(rack: &EmbeddedRack, commands: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(rack.resp_address()).unwrap();
    stream.write_all((commands.join("\r\n") + "\r\nQUIT\r\n").as_bytes()).unwrap();
    let mut replies = String::new();
    stream.read_to_string(&mut replies).unwrap();
    let mut replies: Vec<_> = replies.lines().map(str::to_owned).collect();
    assert_eq!(replies.pop().as_deref(), Some("+OK"), "of QUIT");
    assert_eq!(replies.len(), commands.len(), "{replies:?}");
    replies
}

#[test]
fn refused_commands_are_counted_by_name() {
    const METRIC: &str = "switchback_gateway_refused_commands_total";
    let directory = tempfile::tempdir().unwrap();
    let rack = start(&directory);
    send(&rack, &["SET key value", "EXISTS key", "SET key", "PING"]);
    assert_eq!(
        samples(&rack, METRIC),
        Vec::<String>::new(),
        "nothing was refused, though one was wrong"
    );
    let refused = [
        "FCALL x 0",
        "fcall y 0",
        "HSET h f v",
        "CLIENT TRACKING on",
        "NONSENSE 1",
        "WHATEVER",
        "\"fc\\nall\" x",
    ];
    let replies = send(&rack, &refused);
    assert!(replies.iter().all(|reply| reply.starts_with("-ERR ")), "{replies:?}");
    // What a transaction refuses is counted as itself.
    send(&rack, &["MULTI", "INCR n", "INCR m", "EXEC"]);
    let mut found = samples(&rack, METRIC);
    found.sort();
    let expected = ["client\"} 1", "fcall\"} 2", "hset\"} 1", "incr\"} 1", "other\"} 3"];
    assert_eq!(found, expected.map(|sample| format!("{{command=\"{sample}")));
    rack.shutdown(std::time::Duration::from_secs(30)).unwrap();
}

/// Asks for a key until the metric has another value than 0; 100,000 times at most.
fn ask_until(rack: &EmbeddedRack, metric: &str) {
    let is_zero = || samples(rack, metric).iter().all(|value| value == " 0");
    for _ in 0..100_000 {
        if !is_zero() {
            return;
        }
        send(rack, &["SET key value"]);
    }
    panic!("{metric} stays 0");
}

#[test]
fn a_key_is_admitted_within_the_budget() {
    const ADMISSIONS: &str = "switchback_cache_messages_total{purpose=\"admission\"}";
    const DECLINED: &str = "switchback_declined_offers_total{reason=\"crowded\"}";
    let directory = tempfile::tempdir().unwrap();
    let rack = start(&directory);
    ask_until(&rack, ADMISSIONS);
    rack.shutdown(std::time::Duration::from_secs(30)).unwrap();

    let directory = tempfile::tempdir().unwrap();
    let mut config = config(&directory);
    config.cache.control_budget.messages_per_s = 0;
    let rack = EmbeddedRack::start(&config, None).unwrap();
    ask_until(&rack, DECLINED);
    assert_eq!(samples(&rack, ADMISSIONS), [" 0"]);
    rack.shutdown(std::time::Duration::from_secs(30)).unwrap();
}
