//! Any bytes on a connection to a gateway, in pieces: it answers or hangs up, and another client is
//! served as before. The gateway is a real one with one thread, over a rack that is one map.
#![no_main]

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/gateway/tests/all/fake/mod.rs"]
mod fake;

use fake::{Client, FakeRack, config};
use libfuzzer_sys::fuzz_target;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::LazyLock;
use switchback_fuzz::Draw;
use switchback_gateway::Gateway;

/// Pieces of one input.
const PIECES_MAX: usize = 16;

static GATEWAY: LazyLock<(FakeRack, Gateway)> = LazyLock::new(|| {
    let rack = FakeRack::default();
    let gateway = rack.start(config());
    (rack, gateway)
});

fuzz_target!(|bytes: &[u8]| {
    let (rack, gateway) = &*GATEWAY;
    let Some((&seed, rest)) = bytes.split_first() else { return };
    let mut draw = Draw::new(std::slice::from_ref(&seed));
    rack.set(|knobs| {
        knobs.loss = 0;
        knobs.reordering = if draw.once_in(4) { 30 } else { 0 };
    });
    let mut hostile = TcpStream::connect(gateway.local_addr()).expect("the gateway listens");
    hostile.set_nodelay(true).expect("a TCP socket");
    let pieces = 1 + usize::from(seed >> 4) % PIECES_MAX;
    for piece in rest.chunks(rest.len().div_ceil(pieces).max(1)) {
        if hostile.write_all(piece).is_err() {
            break;
        }
    }
    // Half closed, it is answered and hung up on; else it goes without a word.
    if seed & 1 == 0 {
        let _ = hostile.shutdown(Shutdown::Write);
        let mut replies = [0; 4096];
        while hostile.read(&mut replies).is_ok_and(|bytes| bytes > 0) {}
    }
    drop(hostile);
    let mut other = Client::connect(gateway);
    assert_eq!(other.ask("PING"), "+PONG\r\n");
});
