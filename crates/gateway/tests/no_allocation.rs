//! A command that the cache answers costs no allocation, from the socket's bytes to the reply's.
#![allow(clippy::unwrap_used, unsafe_code)]

mod counting;
#[path = "all/fake/mod.rs"]
mod fake;

use counting::{ALLOCATIONS, Counting};
use fake::{Client, FakeRack, IN_RACK, config};
use std::cell::Cell;
use std::sync::atomic::Ordering::Relaxed;
use switchback_gateway::{Durability, GatewayConfig};

thread_local! {
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

/// The gateway's worker: the thread that isn't the test's, where it isn't in the rack that the test
/// stands for.
fn is_worker() -> bool {
    !IS_TEST.try_with(Cell::get).unwrap_or(true) && !IN_RACK.try_with(Cell::get).unwrap_or(true)
}

#[global_allocator]
static ALLOCATOR: Counting = Counting(is_worker);

/// Allocations of the worker in `rounds` pipelines of SET, GET, INCR, MGET and SET NX.
fn allocations(client: &mut Client, rounds: u32) -> u64 {
    let value = [b'v'; 128];
    let mut stream = Vec::new();
    for i in 0..16 {
        let key = format!("key:{i}");
        stream.extend(Client::command(&[b"SET", key.as_bytes(), &value]));
        stream.extend(Client::command(&[b"GET", key.as_bytes()]));
        stream.extend(Client::command(&[b"INCR", format!("n{i}").as_bytes()]));
        stream.extend(Client::command(&[b"SET", key.as_bytes(), b"x", b"NX"]));
        stream.extend(Client::command(&[b"MGET", b"key:0", b"key:1", b"nothing"]));
    }
    let before = ALLOCATIONS.load(Relaxed);
    for _ in 0..rounds {
        client.send(&stream);
        (0..16 * 5).for_each(|_| drop(client.reply()));
    }
    ALLOCATIONS.load(Relaxed) - before
}

#[test]
fn cached_commands_allocate_nothing() {
    IS_TEST.set(true);
    for durability in [Durability::Memory, Durability::EverySecond] {
        let directory = tempfile::tempdir().unwrap();
        let rack = FakeRack::default();
        let spool_dir = Some(directory.path().to_owned());
        let gateway = rack.start(GatewayConfig { durability, spool_dir, ..config() });
        let mut client = Client::connect(&gateway);
        allocations(&mut client, 50);
        // Now and then the session renews its lease, which allocates a message; most stretches of
        // time see none of it.
        let fewest = (0..20).map(|_| allocations(&mut client, 20)).min();
        assert_eq!(fewest, Some(0), "{durability}");
    }
}
