//! A node: the production shim over RocksDB, with a socket on loopback, driven as its thread drives
//! it.
//!
//! A round is a group of requests that wait in the socket. Timed is what the node's thread does:
//! take them, let the shim and the engine do them as one commit, send the answers. Filling the
//! socket and looking at the answers is not.

use super::{Effort, sample, us};
use crate::pinned::cpu_time;
use anyhow::{Context as _, ensure};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Instant;
use switchback_calibration::{Node, Sample};
use switchback_core::control::{Command, NodeCommand, NodeConfig, Refresh};
use switchback_core::mechanisms::Mechanisms;
use switchback_core::node::{NodeLimits, Shim};
use switchback_core::storage::{
    EngineDone, EngineOp, Loaded, Mark, OfferId, PutCondition, Record, Source,
};
use switchback_core::topology::ChainId;
use switchback_engine::rocks::{Options, RocksEngine};
use switchback_engine::{Engine, MemoryEngine, SyncPolicy};
use switchback_net::{Clock, UdpLink};
use switchback_wire::{Address, HashKey, Header, Map, Op, Packet, Seq, Status, flags};

/// Requests of a round: as many as wait at a busy node on average, in the model's closed loops.
pub(super) const GROUP: usize = 32;
/// Records of one group while loading.
const LOAD_GROUP: usize = 2000;
const VALUE_BYTES: usize = 128;
/// Longer values, of which the cost of a byte is told: the longest of the paper's sizes.
const LONG_BYTES: usize = 1024;
const HASH_KEY: HashKey = HashKey([7; 16]);
/// Epoch that the node serves.
const EPOCH: u32 = 1;

pub(super) fn measure(effort: &Effort, scratch: &Path) -> anyhow::Result<Node> {
    let (mut engine, loaded) = RocksEngine::open(scratch.join("node"), &Options::default())?;
    fill(&mut engine, effort.records, VALUE_BYTES)?;
    engine.flush()?;
    let mark_us = marks(&mut engine, effort)?;
    let mut testbed = Testbed::new(engine, loaded, effort.records, Refresh::None)?;
    let read_us = testbed.sample(effort, Ask::Read)?;
    let write_us = testbed.sample(effort, Ask::Write)?;
    let conditional_us = testbed.sample(effort, Ask::Conditional)?;
    testbed.group = 1;
    let (read_alone_us, write_alone_us) =
        (testbed.sample(effort, Ask::Read)?, testbed.sample(effort, Ask::Write)?);
    Box::new(testbed.engine).close()?;
    let cache_update_us = cache_updates(effort)?;
    let [read_byte_ns, write_byte_ns] = bytes(effort, scratch)?;
    Ok(Node {
        read_us,
        write_us,
        conditional_us,
        read_alone_us,
        write_alone_us,
        mark_us,
        cache_update_us,
        read_byte_ns,
        write_byte_ns,
    })
}

/// What each byte of a value adds to a read and to a write: two nodes take turns, one with short
/// values, one with long ones, so that whatever drifts on the machine drifts under both. Of the
/// thread's CPU time, since the time of a sync varies by more than all bytes take: the disk's
/// bandwidth and compaction, which is other threads', are not in it.
fn bytes(effort: &Effort, scratch: &Path) -> anyhow::Result<[Sample; 2]> {
    let records = effort.records.min(100_000);
    let open = |value_bytes: usize| {
        let (mut engine, loaded) =
            RocksEngine::open(scratch.join(format!("node-{value_bytes}")), &Options::default())?;
        fill(&mut engine, records, value_bytes)?;
        engine.flush()?;
        anyhow::Ok(Testbed { value_bytes, ..Testbed::new(engine, loaded, records, Refresh::None)? })
    };
    let (mut short, mut long): (Testbed<RocksEngine>, _) = (open(VALUE_BYTES)?, open(LONG_BYTES)?);
    let mut added = |ask| -> anyhow::Result<Sample> {
        for _ in 0..effort.rounds / 4 {
            short.round(ask)?;
            long.round(ask)?;
        }
        let difference = |_| {
            let (short, long) = (short.round(ask)?, long.round(ask)?);
            Ok((long.cpu_us - short.cpu_us) * 1000.0 / (LONG_BYTES - VALUE_BYTES) as f64)
        };
        let differences =
            (0..effort.rounds).map(difference).collect::<anyhow::Result<Vec<f64>>>()?;
        Ok(sample(differences.into_iter().map(|difference| difference.max(0.0)).collect()))
    };
    let costs = [added(Ask::Read)?, added(Ask::Write)?];
    Box::new(short.engine).close()?;
    Box::new(long.engine).close()?;
    Ok(costs)
}

fn key(index: u64) -> [u8; 16] {
    let mut key = *b"calibrate:......";
    key[8..].copy_from_slice(&index.to_be_bytes());
    key
}

fn execute(engine: &mut impl Engine, ops: &mut Vec<EngineOp>) -> anyhow::Result<()> {
    let mut done = Vec::new();
    engine.execute(ops, &mut done);
    done.into_iter().try_for_each(|done| done.result.map(|_| ())).context("the engine")
}

fn fill(engine: &mut impl Engine, records: u64, value_bytes: usize) -> anyhow::Result<()> {
    let mut ops = Vec::new();
    for index in 0..records {
        let (hash, key) = (HASH_KEY.hash(&key(index)), key(index).to_vec());
        let record =
            Record { seq: Seq::new(0, 1), value: vec![7; value_bytes], ..Record::default() };
        let condition = PutCondition::Newer { known: true };
        ops.push(EngineOp::Put {
            id: index,
            hash,
            key,
            record,
            condition,
            completion: None,
            source: Source::Client,
            unconfirmed: None,
        });
        if ops.len() == LOAD_GROUP || index + 1 == records {
            execute(engine, &mut ops)?;
        }
    }
    Ok(())
}

/// Durable marks, the engine's part: the shim's is a look at a table.
fn marks(engine: &mut impl Engine, effort: &Effort) -> anyhow::Result<Sample> {
    let (mut wall, mut cpu) = (Vec::new(), Vec::new());
    for round in 0..effort.rounds {
        let mark = Some(Mark {
            fence: Seq::NONE,
            offer: OfferId::from_bits(round as u64 + 1),
            floor: Seq::NONE,
        });
        let set = |id: u64| EngineOp::SetMark {
            id,
            hash: HASH_KEY.hash(&key(id)),
            key: key(id).to_vec(),
            mark,
            unconfirmed: None,
        };
        let mut ops: Vec<_> = (0..GROUP as u64).map(set).collect();
        let (start, cpu_start) = (Instant::now(), cpu_time());
        execute(engine, &mut ops)?;
        wall.push(us(start.elapsed()) / GROUP as f64);
        cpu.push(us(cpu_time() - cpu_start) / GROUP as f64);
    }
    let mut ops: Vec<_> = (0..GROUP as u64)
        .map(|id| EngineOp::SetMark {
            id,
            hash: HASH_KEY.hash(&key(id)),
            key: key(id).to_vec(),
            mark: None,
            unconfirmed: None,
        })
        .collect();
    execute(engine, &mut ops)?;
    Ok(with_cpu(wall, cpu))
}

fn with_cpu(wall: Vec<f64>, cpu: Vec<f64>) -> Sample {
    Sample { cpu: Some(sample(cpu).median), ..sample(wall) }
}

/// The difference that an update of the cache makes to a write, without RocksDB, whose spread is
/// wider than the difference.
fn cache_updates(effort: &Effort) -> anyhow::Result<Sample> {
    let mut engine = MemoryEngine::new(SyncPolicy::None);
    fill(&mut engine, effort.records.min(20_000), VALUE_BYTES)?;
    let loaded = engine.loaded();
    let mut testbed = Testbed::new(engine, loaded, effort.records.min(20_000), Refresh::Updates)?;
    let mut differences = Vec::new();
    for _ in 0..effort.rounds {
        let (plain, updating) = (testbed.round(Ask::Write)?, testbed.round(Ask::Update)?);
        differences.push(updating.wall_us - plain.wall_us);
    }
    Ok(sample(differences.into_iter().map(|difference| difference.max(0.0)).collect()))
}

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ask {
    Read,
    Write,
    Conditional,
    /// A write of a cached key, which the node brings to the cache.
    Update,
}

/// What an operation of a round took.
struct Took {
    wall_us: f64,
    cpu_us: f64,
}

/// A node, and the switch's end of its link.
struct Testbed<E> {
    shim: Shim,
    engine: E,
    link: UdpLink,
    switch: UdpLink,
    clock: Clock,
    /// Requests of a round.
    group: usize,
    /// Of the values that it writes.
    value_bytes: usize,
    random: Pcg64Mcg,
    /// The version of each record.
    seqs: Vec<Seq>,
    written: u64,
    requests: u64,
    packet: Packet,
    ops: Vec<EngineOp>,
    done: Vec<EngineDone>,
}

impl<E: Engine> Testbed<E> {
    fn new(
        engine: E,
        loaded: Loaded,
        records: u64,
        refresh: Refresh,
    ) -> anyhow::Result<Testbed<E>> {
        let bind = || {
            let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            UdpLink::bind(loopback, 1 << 20, 1 << 20).context("a socket on loopback")
        };
        let (link, switch, clock) = (bind()?, bind()?, Clock::default());
        let address = Address::from(link.address());
        let shim =
            Shim::new(0, 1, address, NodeLimits::default(), Mechanisms::ALL, loaded, clock.now())?;
        let config = NodeConfig {
            hash_key: HASH_KEY,
            map: Map::equal(vec![vec![0]]),
            switch: Some(switch.address().into()),
            lanes: GROUP as u32,
            refresh,
        };
        let mut testbed = Testbed {
            shim,
            engine,
            link,
            switch,
            clock,
            group: GROUP,
            value_bytes: VALUE_BYTES,
            random: Pcg64Mcg::seed_from_u64(1),
            seqs: vec![Seq::new(0, 1); records as usize],
            written: 0,
            requests: 0,
            packet: Packet::new(),
            ops: Vec::new(),
            done: Vec::new(),
        };
        for (id, body) in
            [(1, NodeCommand::Epoch(config)), (2, NodeCommand::Release { floor: Seq::NONE })]
        {
            testbed.shim.handle_message(
                testbed.clock.now(),
                Command { id, chain: ChainId::new(0), epoch: EPOCH, body },
            );
            testbed.ask_engine();
        }
        Ok(testbed)
    }

    fn sample(&mut self, effort: &Effort, ask: Ask) -> anyhow::Result<Sample> {
        // Some that don't count warm up.
        (0..effort.rounds / 4).try_for_each(|_| self.round(ask).map(|_| ()))?;
        let took =
            (0..effort.rounds).map(|_| self.round(ask)).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(with_cpu(
            took.iter().map(|took| took.wall_us).collect(),
            took.iter().map(|took| took.cpu_us).collect(),
        ))
    }

    /// One group, from the socket and back.
    fn round(&mut self, ask: Ask) -> anyhow::Result<Took> {
        let node = self.link.address().into();
        for lane in 0..self.group as u32 {
            let packet = self.request(ask, lane);
            self.switch.send(node, &packet);
        }
        self.switch.flush();
        let served = self.timed(|testbed| {
            testbed.take(testbed.group)?;
            testbed.ask_engine();
            testbed.answer();
            Ok(())
        })?;
        let updates = self.look_at_answers(ask)?;
        let acknowledged = self.timed(|testbed| testbed.take(updates))?;
        let group = self.group as f64;
        let each = |of: fn(&Took) -> f64| (of(&served) + of(&acknowledged)) / group;
        Ok(Took { wall_us: each(|took| took.wall_us), cpu_us: each(|took| took.cpu_us) })
    }

    fn timed(
        &mut self,
        work: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<Took> {
        let (start, cpu_start) = (Instant::now(), cpu_time());
        work(self)?;
        Ok(Took { wall_us: us(start.elapsed()), cpu_us: us(cpu_time() - cpu_start) })
    }

    /// A request as the switch forwards it.
    fn request(&mut self, ask: Ask, lane: u32) -> Packet {
        let index = self.random.random_range(0..self.seqs.len());
        let key = key(index as u64);
        let hash = HASH_KEY.hash(&key);
        self.requests += 1;
        let mut header = Header {
            epoch: EPOCH,
            key_hash: hash,
            routing: hash.routing(),
            request: self.requests,
            lane,
            ..Header::new(if ask == Ask::Read { Op::Read } else { Op::Write })
        };
        if ask == Ask::Read {
            return Packet::build(header, &[], &key);
        }
        match ask {
            Ask::Conditional => {
                (header.flags, header.guard) = (flags::CONDITIONAL, self.seqs[index].0)
            }
            Ask::Update => header.flags = flags::CACHED,
            Ask::Read | Ask::Write => {}
        }
        self.written += 1;
        header.seq = Seq::new(EPOCH, self.written);
        self.seqs[index] = header.seq;
        Packet::build(header, &[8; LONG_BYTES][..self.value_bytes], &key)
    }

    /// Takes packets from the socket, which has them all: what is sent over loopback is there when
    /// the call returns.
    fn take(&mut self, count: usize) -> anyhow::Result<()> {
        let now = self.clock.now();
        for _ in 0..count {
            let from =
                self.link.receive(&mut self.packet).context("a packet was lost on loopback")?;
            self.shim.handle_packet(now, from, &self.packet);
        }
        Ok(())
    }

    fn ask_engine(&mut self) {
        let now = self.clock.now();
        loop {
            self.shim.poll_ops(&mut self.ops);
            if self.ops.is_empty() {
                return;
            }
            self.engine.execute(&mut self.ops, &mut self.done);
            self.done.drain(..).for_each(|done| self.shim.handle_done(now, done));
        }
    }

    fn answer(&mut self) {
        while let Some(to) = self.shim.poll_packet(&mut self.packet) {
            self.link.send(to, &self.packet);
        }
        self.link.flush();
        while self.shim.poll_message().is_some() {}
    }

    /// Every request must have been done. Acknowledges updates of the cache; how many there were.
    fn look_at_answers(&mut self, ask: Ask) -> anyhow::Result<usize> {
        let (mut well, mut updates) = (0, 0);
        while let Some(node) = self.switch.receive(&mut self.packet) {
            let header = self.packet.parse().context("an answer")?.header;
            match header.op {
                Op::CacheUpdate => {
                    let acknowledgement = Header { op: Op::CacheUpdateAck, ..header };
                    self.switch.send(node, &Packet::build(acknowledgement, &[], &[0; 16]));
                    updates += 1;
                }
                _ => well += usize::from(header.status == Status::Ok),
            }
        }
        self.switch.flush();
        let (group, expected) = (self.group, if ask == Ask::Update { self.group } else { 0 });
        ensure!(
            (well, updates) == (group, expected),
            "{ask:?}: {well} of {group} requests done, {updates} updates sent"
        );
        Ok(updates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_request_is_done() {
        let mut engine = MemoryEngine::new(SyncPolicy::None);
        fill(&mut engine, 100, VALUE_BYTES).unwrap();
        let loaded = engine.loaded();
        let mut testbed = Testbed::new(engine, loaded, 100, Refresh::Updates).unwrap();
        for ask in [Ask::Read, Ask::Write, Ask::Conditional, Ask::Update, Ask::Read] {
            for _ in 0..3 {
                testbed.round(ask).unwrap();
            }
        }
        assert_eq!(testbed.shim.statistics().writes, 3 * 3 * GROUP as u64);
    }
}
