//! The cost of the load generator itself: `switchback bench` against a rack that answers every
//! packet in the call by rewriting its header. No rack can be measured faster than this. Arguments
//! are those of `switchback bench`.
//!
//! ```sh
//! cargo run --release -p switchback-bench --example overhead -- --workload a --seconds 3
//! ```

mod grants;

use clap::Parser;
use grants::{Grants, HASH_KEY};
use mio::{Registry, Token, Waker};
use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use switchback_bench::workload::Preload;
use switchback_bench::{
    BenchArgs, BenchRack, ClientLinks, RackFactory, RackOptions, RackStatistics, run,
};
use switchback_net::{Sent, Uplink};
use switchback_wire::{Address, HashKey, Header, KeyHash, Map, Op, Packet, Scheme, Seq, flags};

const PARTITIONS: usize = 64;

/// Answers at once: reads with a value of the asked length, writes with the next version.
struct Mirror {
    seq: u64,
    value: Vec<u8>,
    hits: Arc<AtomicU64>,
}

impl Uplink for Mirror {
    fn register(&mut self, _: &Registry, _: Token, _: &Arc<Waker>) -> io::Result<()> {
        Ok(())
    }

    fn send(&mut self, _: Address, packet: &mut Packet) -> Sent {
        let header = packet.parse().expect("the session's own packet").header;
        self.seq += 1;
        self.hits.fetch_add(1, Ordering::Relaxed);
        let answer =
            Header { flags: flags::CACHED, seq: Seq(self.seq), durable_generation: 1, ..header };
        if header.op == Op::Write {
            packet.rewrite(&Header { op: Op::WriteReply, ..answer });
        } else {
            packet.fill(&Header { op: Op::ReadReply, ..answer }, &self.value, b"k");
        }
        Sent::Answered
    }

    fn flush(&mut self) {}

    fn receive(&mut self, _: &mut Packet) -> bool {
        false
    }
}

struct MirrorRack {
    value_bytes: u32,
    hits: Arc<AtomicU64>,
}

impl BenchRack for MirrorRack {
    fn map(&self) -> Map {
        Map::equal(vec![vec![0]; PARTITIONS])
    }

    fn hash_key(&self) -> HashKey {
        HASH_KEY
    }

    fn client(&mut self, index: u32) -> anyhow::Result<ClientLinks> {
        let mirror = Mirror {
            seq: 1 << 20,
            value: vec![0; self.value_bytes as usize],
            hits: self.hits.clone(),
        };
        let grants = Grants::new(index);
        Ok(ClientLinks {
            id: u64::from(index) + 1,
            uplink: Box::new(mirror),
            control: Box::new(grants),
        })
    }

    fn load(&mut self, _: Preload) -> anyhow::Result<()> {
        Ok(())
    }

    fn preload_cache(&mut self, keys: Vec<Vec<u8>>) -> anyhow::Result<usize> {
        Ok(keys.len())
    }

    fn cached(&self) -> Vec<KeyHash> {
        Vec::new()
    }

    fn statistics(&self) -> RackStatistics {
        RackStatistics {
            node_ops: vec![0],
            hits: self.hits.load(Ordering::Relaxed),
            ..RackStatistics::default()
        }
    }

    fn stop(self: Box<Self>) -> anyhow::Result<()> {
        Ok(())
    }
}

struct MirrorRacks;

impl RackFactory for MirrorRacks {
    fn start(&mut self, _: Scheme, options: &RackOptions) -> anyhow::Result<Box<dyn BenchRack>> {
        Ok(Box::new(MirrorRack { value_bytes: options.value_bytes, hits: Arc::default() }))
    }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    bench: BenchArgs,
}

fn main() -> anyhow::Result<ExitCode> {
    run(Cli::parse().bench, &mut MirrorRacks)
}
