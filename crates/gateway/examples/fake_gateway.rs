//! A gateway over the tests' fake rack, for trying clients and for measuring what the gateway
//! itself costs: `fake_gateway [ADDRESS] [cached|uncached|null] [SPOOL_DIRECTORY]`. With `null` the
//! rack costs nothing: every read finds the same value, every write is absorbed and forgotten.
#![allow(clippy::unwrap_used)]

#[path = "../tests/all/fake/mod.rs"]
mod fake;

use switchback_gateway::{Durability, GatewayConfig};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:6380".into());
    let mood = arguments.next().unwrap_or("cached".into());
    let spool_dir = arguments.next().map(Into::into);
    let durability = if spool_dir.is_some() { Durability::EverySecond } else { Durability::Memory };
    let rack = fake::FakeRack::default();
    rack.set(|knobs| {
        knobs.nothing_cached = mood == "uncached";
        knobs.null = mood == "null";
    });
    let listen = vec![address.parse().unwrap()];
    let gateway = rack.start(GatewayConfig { listen, durability, spool_dir, ..fake::config() });
    println!("listening on {}", gateway.local_addr());
    loop {
        std::thread::park();
    }
}
