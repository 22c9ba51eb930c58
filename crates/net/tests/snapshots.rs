//! The agent's snapshots of a native datapath whose reports have little room.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

use std::sync::Arc;
use switchback_core::Now;
use switchback_core::control::{
    Command, Entry, Location, SwitchCommand, SwitchConfig, SwitchReport,
};
use switchback_core::switch::{Agent, AgentConfig, carry_out};
use switchback_core::topology::ChainId;
use switchback_datapath::{ClassConfig, Config, Datapath, DropReason, Shard, Verdict};
use switchback_net::DatapathTarget;
use switchback_wire::{Address, HashKey, Header, Map, Op, Packet, Place};

const KEYS: u32 = 64;
/// Reports that find room; a power of two, as the ring's length is.
const REPORTS: u32 = 4;
const CLIENT: Address = Address::in_memory(1, 1);
const NOW: Now = Now { monotonic_us: 1, unix_ms: 1 };

/// A switch with all keys cached.
struct Switch {
    agent: Agent,
    target: DatapathTarget<Datapath>,
    datapath: Arc<Datapath>,
    commands: u64,
    requests: u64,
}

fn header(op: Op, key: u32) -> Header {
    Header { epoch: 1, key_hash: HashKey([5; 16]).hash(&key.to_be_bytes()), ..Header::new(op) }
}

impl Switch {
    fn new() -> Switch {
        let config = Config {
            classes: vec![ClassConfig { value_bytes: 64, slots: KEYS }],
            lanes: 1,
            partitions: 1,
            nodes: 1,
            sketch_width: 64,
            reports: REPORTS,
            ..Config::default()
        };
        let datapath = Arc::new(Datapath::new(&config).unwrap());
        let target = DatapathTarget::new(Arc::clone(&datapath));
        let agent = Agent::new(1, Address::default(), AgentConfig::default(), NOW);
        let mut switch = Switch { agent, target, datapath, commands: 0, requests: 0 };
        let nodes = vec![Address::in_memory(2, 0)];
        let config = SwitchConfig {
            boot: 1,
            place: Place::sole(),
            generation: 1,
            lanes: 1,
            map: Map::equal(vec![vec![0]]),
            nodes,
        };
        switch.command(SwitchCommand::Configure(config));
        let entry = |slot: u32| {
            let key = slot.to_be_bytes().to_vec();
            Entry {
                id: u64::from(slot) + 1,
                at: Location { class: 0, slot },
                hash: header(Op::Read, slot).key_hash,
                key,
                count: 1,
            }
        };
        switch.command(SwitchCommand::Admit((0..KEYS).map(entry).collect()));
        switch
    }

    fn command(&mut self, body: SwitchCommand) {
        self.commands += 1;
        self.agent.handle_message(
            NOW,
            Command { id: self.commands, chain: ChainId::new(0), epoch: 1, body },
        );
        carry_out(&mut self.agent, NOW, &mut self.target);
    }

    fn tick(&mut self) {
        self.agent.handle_timeout(NOW);
        carry_out(&mut self.agent, NOW, &mut self.target);
    }

    fn write(&mut self, key: u32, value: &[u8]) -> Verdict {
        self.requests += 1;
        let header = Header { request: self.requests, ..header(Op::Write, key) };
        let mut packet = Packet::build(header, value, &key.to_be_bytes());
        self.datapath.process(&mut packet, CLIENT, 0, 0, Shard::default())
    }

    /// Writes each key until it is stored; how often a report found no room.
    fn write_all(&mut self, value: &[u8]) -> u32 {
        let mut refused = 0;
        for key in 0..KEYS {
            loop {
                match self.write(key, value) {
                    Verdict::Reply => break,
                    Verdict::Drop(DropReason::Unreported) => refused += 1,
                    other => panic!("{other:?}"),
                }
                self.tick();
            }
        }
        refused
    }

    /// What the agent has said of snapshots: values of their records, and whether each that ended
    /// was complete.
    fn snapshots(&mut self) -> (Vec<Vec<u8>>, Vec<bool>) {
        let (mut values, mut ended) = (Vec::new(), Vec::new());
        while let Some(report) = self.agent.poll_message() {
            match report {
                SwitchReport::SnapshotChunk { records, .. } => {
                    values.extend(records.into_iter().map(|keyed| keyed.record.value));
                }
                SwitchReport::SnapshotEnd { complete, .. } => ended.push(complete),
                _ => {}
            }
        }
        (values, ended)
    }
}

/// Every record is overwritten while the snapshot is taken, sixteen times as many as reports find
/// room.
#[test]
fn a_snapshot_ends_whole_however_many_records_change_meanwhile() {
    let mut switch = Switch::new();
    assert_eq!(switch.write_all(b"before"), 0);
    switch.command(SwitchCommand::Snapshot { generation: 2 });
    assert!(switch.write_all(b"after") > 0, "reports found no room");
    switch.tick();
    switch.tick();
    let (values, ended) = switch.snapshots();
    assert_eq!(ended, [true]);
    assert_eq!(values, vec![b"before".to_vec(); KEYS as usize]);
}

/// A value that outgrows its slot takes the key out of the cache; if the agent can't be told, it
/// doesn't yet.
#[test]
fn each_record_that_outgrew_its_slot_is_reported() {
    let mut switch = Switch::new();
    switch.write_all(b"small");
    let large = [7; 65];
    let mut refused = 0;
    for key in 0..KEYS {
        while switch.write(key, &large) == Verdict::Drop(DropReason::Unreported) {
            refused += 1;
            switch.tick();
        }
    }
    switch.tick();
    assert!(refused > 0, "reports found no room");
    let mut told: Vec<u64> = Vec::new();
    while let Some(report) = switch.agent.poll_message() {
        if let SwitchReport::EvictMe { entries, .. } = report {
            told.extend(entries.iter().map(|(id, _)| *id));
        }
    }
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, (1..=u64::from(KEYS)).collect::<Vec<_>>());
}
