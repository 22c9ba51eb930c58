//! A request that the cache answers costs no allocation in a whole rack: gateway, session and
//! pipeline run in one thread, which this counts in. (The gateway by itself, with everything else
//! that it can answer, is in its own tests.)
#![allow(clippy::unwrap_used, unsafe_code)]

#[path = "../../gateway/tests/counting/mod.rs"]
mod counting;

use counting::{ALLOCATIONS, Counting};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::Relaxed;
use switchback_rack::config::{Durability, Overrides, RackConfig};
use switchback_rack::embedded::EmbeddedRack;

/// The gateway's threads, which only their names tell from others.
fn is_gateway() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name.starts_with(b"sw-gateway-")
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(is_gateway);

const KEYS: usize = 16;
const VALUE_BYTES: usize = 128;

/// SETs and GETs of a few keys, as often as said; what the gateway's thread allocated.
fn allocations(stream: &mut TcpStream, rounds: u32) -> u64 {
    let value = "v".repeat(VALUE_BYTES);
    let mut requests = String::new();
    for key in 0..KEYS {
        requests +=
            &format!("*3\r\n$3\r\nSET\r\n$6\r\nkey:{key:02}\r\n${VALUE_BYTES}\r\n{value}\r\n");
        requests += &format!("*2\r\n$3\r\nGET\r\n$6\r\nkey:{key:02}\r\n");
    }
    let reply = format!("+OK\r\n${VALUE_BYTES}\r\n{value}\r\n").repeat(KEYS);
    let mut replies = vec![0; reply.len()];
    let before = ALLOCATIONS.load(Relaxed);
    for _ in 0..rounds {
        stream.write_all(requests.as_bytes()).unwrap();
        stream.read_exact(&mut replies).unwrap();
        assert!(replies == reply.as_bytes(), "{}", String::from_utf8_lossy(&replies));
    }
    ALLOCATIONS.load(Relaxed) - before
}

/// How many commands the cache has answered.
fn answered_by_cache(stream: &mut TcpStream) -> u64 {
    stream.write_all(b"INFO stats\r\n").unwrap();
    let mut text = String::new();
    while !text.ends_with("\r\n\r\n") {
        let mut some = [0; 4096];
        let bytes = stream.read(&mut some).unwrap();
        text += std::str::from_utf8(&some[..bytes]).unwrap();
    }
    let line = text.lines().find_map(|line| line.strip_prefix("switchback_answered_by_cache:"));
    line.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
}

#[test]
fn what_the_cache_of_an_embedded_rack_answers_allocates_nothing() {
    for durability in [Durability::Memory, Durability::Everysec] {
        let directory = tempfile::tempdir().unwrap();
        let text = "[rack]\nmetrics = \"127.0.0.1:0\"\n[gateway]\nresp = \"127.0.0.1:0\"\n\
                    [nodes]\ncount = 1\nsync = \"none\"\n";
        let overrides = Overrides { durability: Some(durability), ..Overrides::default() };
        let config = RackConfig::parse(text, "test.toml", directory.path(), &overrides).unwrap();
        let rack = EmbeddedRack::start(&config, None).unwrap();
        let mut stream = TcpStream::connect(rack.resp_address()).unwrap();
        assert!(
            allocations(&mut stream, 1) > 0,
            "a new connection allocates, or nothing is counted"
        );
        // Until the keys are cached, and buffers have their size. Then leases and releases of
        // preserved records allocate messages now and then; most stretches of time see none of
        // them.
        let begin = std::time::Instant::now();
        loop {
            assert!(
                begin.elapsed().as_secs() < 60,
                "{durability:?}: every stretch of 640 requests allocates"
            );
            let before = answered_by_cache(&mut stream);
            let allocated = allocations(&mut stream, 20);
            if allocated == 0 && answered_by_cache(&mut stream) - before == 20 * 2 * KEYS as u64 {
                break;
            }
        }
        drop(stream);
        rack.shutdown(std::time::Duration::from_secs(30)).unwrap();
    }
}
