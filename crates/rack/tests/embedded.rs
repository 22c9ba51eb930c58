//! Racks in one process, through their gateway and their HTTP.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};
use switchback_rack::config::{LinkKind, Overrides, RackConfig};
use switchback_rack::embedded::EmbeddedRack;
use switchback_wire::Scheme;

const KEYS: u32 = 200;

fn config(directory: &Path, links: LinkKind, chains: u16, layers: u8) -> RackConfig {
    let text = "[rack]\nmetrics = \"127.0.0.1:0\"\n[gateway]\nresp = \"127.0.0.1:0\"\n\
                [nodes]\ncount = 2\nsync = \"none\"\n[cache]\nrecords = 1024\n";
    let overrides = Overrides {
        scheme: Some(if layers == 1 { Scheme::FarReach } else { Scheme::DistReach }),
        links: Some(links),
        chains: Some(chains),
        layers: Some(layers),
        ..Overrides::default()
    };
    RackConfig::parse(text, "test.toml", directory, &overrides).unwrap()
}

/// A connection of a Redis client that sends one command at a time.
struct Redis(BufReader<TcpStream>);

impl Redis {
    fn connect(rack: &EmbeddedRack) -> Redis {
        Redis(BufReader::new(TcpStream::connect(rack.resp_address()).unwrap()))
    }

    /// The reply's first line.
    fn ask(&mut self, command: &str) -> String {
        self.0.get_mut().write_all(format!("{command}\r\n").as_bytes()).unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn set_all(&mut self, value: u32) {
        for key in 0..KEYS {
            assert_eq!(self.ask(&format!("SET key:{key} {value}-{key}")), "+OK");
        }
    }

    fn check_all(&mut self, value: u32) {
        for key in 0..KEYS {
            let wanted = format!("{value}-{key}");
            assert_eq!(self.ask(&format!("GET key:{key}")), format!("${}", wanted.len()));
            assert_eq!(self.line(), wanted);
        }
    }
}

fn metrics(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Of each switch, what it counted under this name.
fn counted(rack: &EmbeddedRack, name: &str) -> Vec<u64> {
    let metrics = metrics(rack.metrics_address());
    let value = |line: &str| Some(line.rsplit_once(' ')?.1.parse::<f64>().ok()? as u64);
    let of = |switch| {
        let name = format!("{name}{{switch=\"{switch}\"}}");
        metrics.lines().find(|line| line.starts_with(&name)).and_then(value)
    };
    (0..).map_while(of).collect()
}

/// Fails if a rack in one process has fewer switches than its chains take, if a packet goes to
/// another chain than its key's or past a keeper, or if what switches have absorbed is not there
/// after the end of the rack.
#[test]
fn several_switches_of_one_process_absorb_each_their_own_keys() {
    for (links, chains, layers) in [
        (LinkKind::Memory, 3, 1),
        (LinkKind::Udp, 3, 1),
        (LinkKind::Memory, 2, 2),
        (LinkKind::Udp, 1, 3),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path(), links, chains, layers);
        let rack = EmbeddedRack::start(&config, None).unwrap();
        let is_done = || {
            let absorbed = counted(&rack, "switchback_absorbed_writes_total");
            let kept = counted(&rack, "switchback_kept_records_total");
            assert_eq!(absorbed.len(), usize::from(chains) * usize::from(layers));
            (0..).zip(absorbed.iter().zip(&kept)).all(|(switch, (absorbed, kept))| {
                let is_owner = switch % u16::from(layers) + 1 == u16::from(layers);
                assert!(is_owner || *absorbed == 0, "{links:?}: keeper {switch} absorbs");
                if is_owner { *absorbed > 100 } else { *kept > 100 }
            })
        };
        let mut redis = Redis::connect(&rack);
        let (start, mut round) = (Instant::now(), 0);
        while !is_done() {
            assert!(start.elapsed() < Duration::from_secs(60), "{links:?}, {layers} layers");
            round += 1;
            redis.set_all(round);
            redis.check_all(round);
        }
        drop(redis);
        rack.shutdown(Duration::from_secs(30)).unwrap();
        let rack = EmbeddedRack::start(&config, None).unwrap();
        Redis::connect(&rack).check_all(round);
        rack.shutdown(Duration::from_secs(30)).unwrap();
    }
}

/// Fails if data is opened by a rack with other chains than it was made with.
#[test]
fn a_rack_with_data_keeps_its_number_of_chains() {
    let directory = tempfile::tempdir().unwrap();
    let start =
        |chains| EmbeddedRack::start(&config(directory.path(), LinkKind::Memory, chains, 1), None);
    start(2).unwrap().shutdown(Duration::from_secs(30)).unwrap();
    let refusal = start(3).err().map(|error| format!("{error:#}")).unwrap();
    assert!(refusal.contains("chains"), "{refusal}");
}
