//! What an agent has done to its datapath, as values, and the one place that does it.

use super::agent::Agent;
use super::learning::{Counted, Counting};
use super::target::{Inject, LoadedRecord, Target};
use crate::control::{BATCH_MAX, Entry, Location, SwitchConfig};
use crate::time::Now;
use switchback_wire::{Address, Heard, Map, Op, Packet, Place, Seq};

/// An operation on the datapath, in an epoch.
#[derive(Clone, PartialEq, Debug)]
pub struct DatapathOp {
    /// The agent's epoch.
    pub epoch: u32,
    /// What is to be done.
    pub action: DatapathAction,
}

/// What is to be done to the datapath, and with which [`DatapathDone`] it ends.
#[derive(Clone, PartialEq, Debug)]
pub enum DatapathAction {
    /// Forget everything cached, and serve this rack in the operation's epoch: `Configured`.
    Configure(SwitchConfig),
    /// Serve this rack in the operation's epoch, and leave the records of earlier ones to be read:
    /// `Configured`.
    Freeze(SwitchConfig),
    /// Serve this many lanes: `Changed`.
    SetLanes(u32),
    /// Route by this map, whose ranges are those of the one before: `Changed`.
    SetMap(Map),
    /// Send what is for node `.0` to address `.1`: `Changed`.
    SetNode(u16, Address),
    /// Make the slots of these entries hollow records, and their keys findable: `Admitted`.
    Admit(Vec<Entry>),
    /// Read the access counters of these slots: `Counters`.
    ReadCounters(Vec<Location>),
    /// Mark these entries as to be evicted, and read their records: `Records`.
    BeginEvictions(Vec<Entry>),
    /// Free the slots of these entries: `Changed`.
    Remove(Vec<Entry>),
    /// Take the records of these entries as clean, if these are their versions still: `Changed`.
    Clean(Vec<(Entry, Seq)>),
    /// Set the point of a snapshot: this generation begins, and originals are reported from now on:
    /// `SnapshotBegun`.
    BeginSnapshot(u32),
    /// Read the records of these entries: `Records`.
    LoadRecords(Vec<Entry>),
    /// Report originals no longer: `Changed`.
    EndSnapshot,
    /// Tell clients that the snapshot which began this generation is durable: `Changed`.
    SetDurableGeneration(u32),
    /// Halve all counts: `Changed`.
    Age,
    /// Count so from now on, and read what was counted: `Counted`.
    SetCounting(Counting),
    /// Probe the neighbours of this place, and read what a heartbeat tells: `Meters`.
    ReadMeters(Place),
    /// Take a batch of reports: `Reports`.
    TakeReports,
}

/// How an operation on the datapath ended. Lists have one item for each of the operation's, in its
/// order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatapathDone {
    /// It is done, and there is nothing to tell.
    Changed,
    /// The datapath serves its new epoch.
    Configured {
        /// How many reads, writes and deletes came before, ever.
        requests: u64,
        /// How many requests missed the cache, ever.
        misses: u64,
    },
    /// Whether each entry was admitted.
    Admitted(Vec<bool>),
    /// The access counter of each slot.
    Counters(Vec<u32>),
    /// The record of each entry; `None` where the datapath has another entry or none.
    Records(Vec<Option<LoadedRecord>>),
    /// Whether the snapshot's generation began.
    SnapshotBegun(bool),
    /// What was counted.
    Counted(Counted),
    /// What a heartbeat tells.
    Meters {
        /// How many reads, writes and deletes came, ever.
        requests: u64,
        /// How much of the epoch's sequence numbers the fullest bucket has used, in 256ths; 0 below
        /// half.
        sequence_used: u32,
        /// Slots of each class: `(value bytes, slots)`.
        classes: Vec<(u32, u32)>,
        /// How many probes of its neighbours arrived, ever; `None`: it has none, or nothing between
        /// them can lose a packet.
        heard: Option<Heard>,
    },
    /// Reports, oldest first; there may be more if these are [`BATCH_MAX`].
    Reports(Vec<DatapathReport>),
}

/// What a datapath reports by itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DatapathReport {
    /// A record as it was before its first change since a snapshot's point.
    Original(LoadedRecord),
    /// A record outgrew its slot: the entry of this incarnation is to be evicted.
    EvictMe(u64),
}

/// Carries out everything that an agent wants to be done to its datapath, one operation after
/// another.
pub fn carry_out(agent: &mut Agent, now: Now, target: &mut dyn Target) {
    while let Some(op) = agent.poll_op() {
        let done = op.execute(target);
        agent.handle_done(now, done);
    }
}

impl DatapathOp {
    /// Does this to a datapath.
    pub fn execute(self, target: &mut dyn Target) -> DatapathDone {
        let mut packet = Packet::new();
        let mut inject = Inject { target, packet: &mut packet, epoch: self.epoch };
        match self.action {
            DatapathAction::Configure(config) => return configure(&mut inject, &config, true),
            DatapathAction::Freeze(config) => return configure(&mut inject, &config, false),
            DatapathAction::SetLanes(lanes) => inject.target.set_lanes(lanes),
            DatapathAction::SetMap(map) => inject.target.set_map(&map),
            DatapathAction::SetNode(node, address) => inject.target.set_node(node, address),
            DatapathAction::Admit(entries) => {
                return DatapathDone::Admitted(
                    entries.iter().map(|entry| inject.admit(entry)).collect(),
                );
            }
            DatapathAction::ReadCounters(slots) => {
                return DatapathDone::Counters(
                    slots.into_iter().map(|at| inject.counter(at)).collect(),
                );
            }
            DatapathAction::BeginEvictions(entries) => {
                return DatapathDone::Records(
                    entries.iter().map(|entry| inject.evict_begin(entry)).collect(),
                );
            }
            DatapathAction::Remove(entries) => {
                entries.iter().for_each(|entry| inject.remove(entry))
            }
            DatapathAction::Clean(versions) => {
                versions.iter().for_each(|(entry, seq)| inject.clean(entry, *seq))
            }
            DatapathAction::BeginSnapshot(generation) => {
                return DatapathDone::SnapshotBegun(inject.snapshot_begin(generation));
            }
            DatapathAction::LoadRecords(entries) => {
                return DatapathDone::Records(
                    entries.iter().map(|entry| inject.load(entry)).collect(),
                );
            }
            DatapathAction::EndSnapshot => inject.snapshot_end(),
            DatapathAction::SetDurableGeneration(generation) => {
                inject.set_durable_generation(generation)
            }
            DatapathAction::Age => inject.age(),
            DatapathAction::SetCounting(counting) => {
                let offers_left = inject.target.set_counting(counting);
                let (requests, misses) = (inject.target.requests(), inject.target.misses());
                return DatapathDone::Counted(Counted { requests, misses, offers_left });
            }
            DatapathAction::ReadMeters(place) => {
                let heard = inject.probe(&place);
                return DatapathDone::Meters {
                    requests: inject.target.requests(),
                    sequence_used: inject.target.sequence_used(),
                    classes: inject.target.classes(),
                    heard,
                };
            }
            DatapathAction::TakeReports => return DatapathDone::Reports(take_reports(&mut inject)),
        }
        DatapathDone::Changed
    }
}

fn configure(inject: &mut Inject<'_>, config: &SwitchConfig, clears: bool) -> DatapathDone {
    // In epoch 0 every packet is refused while the tables change.
    inject.set_epoch(0, config.generation);
    if clears {
        inject.target.clear();
    }
    for (node, address) in config.nodes.iter().enumerate() {
        inject.target.set_node(node as u16, *address);
    }
    inject.target.set_place(&config.place);
    inject.target.set_map(&config.map);
    inject.target.set_lanes(config.lanes);
    let requests = inject.target.requests();
    let set = inject.set_epoch(inject.epoch, config.generation);
    assert!(set || inject.target.failure().is_some(), "the datapath takes its own agent's epoch");
    DatapathDone::Configured { requests, misses: inject.target.misses() }
}

fn take_reports(inject: &mut Inject<'_>) -> Vec<DatapathReport> {
    let mut reports = Vec::new();
    while reports.len() < BATCH_MAX && inject.target.next_report(inject.packet) {
        let Some(loaded) = LoadedRecord::from_packet(inject.packet) else { continue };
        match inject.packet.parse().map(|parts| parts.header.op) {
            Ok(Op::Original) => reports.push(DatapathReport::Original(loaded)),
            Ok(Op::EvictMe) => reports.push(DatapathReport::EvictMe(loaded.entry)),
            _ => {}
        }
    }
    reports
}
