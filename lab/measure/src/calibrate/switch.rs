//! The switch: its native pipeline, and its agent over the same tables.

use super::{Effort, sample, timed, us};
use crate::cases::{Case, Operation, Outcome, USUAL};
use crate::matrix;
use crate::native::Native;
use anyhow::{Context as _, ensure};
use std::sync::Arc;
use switchback_bench::report::Spread;
use switchback_calibration::{Agent as AgentSamples, Pipeline, Sample, Switch};
use switchback_core::Now;
use switchback_core::control::{
    BATCH_MAX, Command, Entry, Location, SwitchCommand, SwitchConfig, SwitchReport, SwitchResult,
};
use switchback_core::switch::{Agent, AgentConfig, carry_out};
use switchback_core::topology::ChainId;
use switchback_datapath::{ClassConfig, Config, Datapath, Shard, Verdict};
use switchback_net::DatapathTarget;
use switchback_wire::{Address, HashKey, Header, Map, Op, Packet, Place};

/// Rounds of the pipeline are long already.
const PIPELINE_ROUNDS: usize = 25;
/// Starts of a switch.
const STARTS: usize = 9;
const CLIENT: Address = Address::in_memory(1, 0);
const SWITCH: Address = Address::in_memory(2, 0);
const HASH_KEY: HashKey = HashKey([7; 16]);
const PARTITIONS: u32 = 256;
const LANES: u32 = 256;
const BOOT: u64 = 1;

pub(super) fn pipeline(effort: &Effort) -> anyhow::Result<Pipeline> {
    let mut native = Native::new(USUAL, 1)?;
    let mut cost = |operation, outcome| {
        let case = Case { operation, outcome, cpus: 1 };
        let cost =
            matrix::measure(&mut native, None, (USUAL, case), effort.rounds.min(PIPELINE_ROUNDS))?
                .native;
        let Spread { median, min: low, max: high } = cost.net_ns();
        anyhow::Ok(Sample { median, low, high, cpu: None })
    };
    Ok(Pipeline {
        read_hit_ns: cost(Operation::Read, Outcome::Hit)?,
        write_hit_ns: cost(Operation::Write, Outcome::Hit)?,
        miss_ns: cost(Operation::Read, Outcome::Miss)?,
    })
}

fn config(entries: u32) -> Config {
    Config {
        classes: vec![ClassConfig { value_bytes: USUAL.value_bytes, slots: entries }],
        lanes: LANES,
        partitions: PARTITIONS,
        nodes: 1,
        ..Config::default()
    }
}

fn now() -> Now {
    Now { monotonic_us: 1, unix_ms: 1 }
}

/// A configured switch with an empty cache.
struct Testbed {
    datapath: Arc<Datapath>,
    target: DatapathTarget<Datapath>,
    agent: Agent,
    commands: u64,
}

impl Testbed {
    fn new(entries: u32) -> anyhow::Result<Testbed> {
        let config = config(entries);
        let datapath = Arc::new(Datapath::new(&config)?);
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let agent = Agent::new(BOOT, SWITCH, AgentConfig::default(), now());
        let mut testbed = Testbed { datapath, target, agent, commands: 0 };
        let map = Map::equal(vec![vec![0]; PARTITIONS as usize]);
        let (place, nodes) = (Place::sole(), vec![CLIENT]);
        let configure = SwitchConfig { boot: BOOT, place, generation: 1, lanes: LANES, map, nodes };
        testbed.command(SwitchCommand::Configure(configure))?;
        Ok(testbed)
    }

    /// Has a command done, which must do all it is to do.
    fn command(&mut self, body: SwitchCommand) -> anyhow::Result<()> {
        self.commands += 1;
        let id = self.commands;
        self.agent.handle_message(now(), Command { id, chain: ChainId::new(0), epoch: 1, body });
        carry_out(&mut self.agent, now(), &mut self.target);
        let report = self.agent.poll_message().context("the agent says nothing")?;
        let done = match &report {
            SwitchReport::Done { result: SwitchResult::Ok, .. } => true,
            // Two hashes may collide: few do.
            SwitchReport::Done { result: SwitchResult::Admitted { refused }, .. } => {
                refused.len() <= BATCH_MAX / 16
            }
            _ => false,
        };
        ensure!(done, "the agent answers {report:?}");
        Ok(())
    }

    /// A client writes a cached key: it has a record then that no node has.
    fn write(&mut self, entry: &Entry, request: u64) -> bool {
        let header = Header {
            epoch: 1,
            request,
            lane: entry.at.slot % LANES,
            key_hash: entry.hash,
            ..Header::new(Op::Write)
        };
        let value = [7; USUAL.value_bytes as usize];
        let mut packet = Packet::build(header, &value, &entry.key);
        self.datapath.process(&mut packet, CLIENT, 1, 1, Shard::default()) == Verdict::Reply
    }
}

/// Times of the agent, and of a start.
pub(super) fn agent(effort: &Effort) -> anyhow::Result<(AgentSamples, Switch)> {
    let mut starts = Vec::new();
    for _ in 0..STARTS {
        let took = timed(|| Testbed::new(effort.entries).map(|_| ()))?;
        starts.push(us(took) / 1e3);
    }
    let mut testbed = Testbed::new(effort.entries)?;
    let entries: Vec<_> = (0..effort.entries).map(entry).collect();
    let mut admissions = Vec::new();
    for batch in entries.chunks(BATCH_MAX) {
        let command = SwitchCommand::Admit(batch.to_vec());
        admissions.push(us(timed(|| testbed.command(command))?) / batch.len() as f64);
    }
    let written = entries
        .iter()
        .filter(|entry| testbed.write(entry, 1 + u64::from(entry.at.slot / LANES)))
        .count();
    ensure!(
        written * 10 > entries.len() * 9,
        "only {written} of {} keys take a write",
        entries.len()
    );
    let agent = AgentSamples {
        entry_us: sample(admissions),
        snapshot_record_us: sample(snapshot(&mut testbed, written)?),
    };
    Ok((agent, Switch { start_ms: sample(starts) }))
}

fn entry(slot: u32) -> Entry {
    let key = format!("calibrate{slot:07}").into_bytes();
    Entry {
        id: u64::from(slot) + 1,
        at: Location { class: 0, slot },
        hash: HASH_KEY.hash(&key),
        key,
        count: 1,
    }
}

/// Microseconds a record, of each step of a snapshot.
fn snapshot(testbed: &mut Testbed, expected: usize) -> anyhow::Result<Vec<f64>> {
    testbed.command(SwitchCommand::Snapshot { generation: 2 })?;
    let (mut steps, mut records) = (Vec::new(), 0);
    while testbed.agent.is_taking_snapshot() {
        let took = timed(|| {
            testbed.agent.handle_timeout(now());
            carry_out(&mut testbed.agent, now(), &mut testbed.target);
            Ok(())
        })?;
        steps.push(us(took) / AgentConfig::default().loads_a_step as f64);
        while let Some(report) = testbed.agent.poll_message() {
            if let SwitchReport::SnapshotChunk { records: chunk, .. } = report {
                records += chunk.len();
            }
        }
    }
    ensure!(records == expected, "a snapshot has {records} of {expected} records");
    // The last step makes the chunks of all: its time is every record's.
    let last = steps.pop().context("a snapshot takes no step")?;
    let share = last * AgentConfig::default().loads_a_step as f64 / records as f64;
    Ok(if steps.is_empty() {
        vec![last]
    } else {
        steps.into_iter().map(|step| step + share).collect()
    })
}
