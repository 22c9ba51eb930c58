//! The agent's operations on its datapath: one at a time, in the order of the commands.

use switchback_core::Now;
use switchback_core::control::{
    BATCH_MAX, Command, Entry, Inspected, KeyedRecord, Location, Offer, SwitchCommand,
    SwitchConfig, SwitchReport, SwitchResult,
};
use switchback_core::storage::Record;
use switchback_core::switch::{
    Agent, AgentConfig, Counted, DatapathAction, DatapathDone, DatapathReport, LoadedRecord,
};
use switchback_core::topology::ChainId;
use switchback_wire::{Address, Heard, KeyHash, Map, Place, Seq};

const NOW: Now = Now { monotonic_us: 1_000_000, unix_ms: 1 };
const NOTHING: Counted = Counted { requests: 0, misses: 0, offers_left: 0 };
const MANY: u64 = BATCH_MAX as u64 + 1;

fn entry(id: u64) -> Entry {
    let hash = KeyHash(u128::from(id).to_be_bytes());
    let at = Location { class: 0, slot: id as u32 };
    Entry { id, at, hash, key: id.to_be_bytes().to_vec(), count: 1 }
}

fn evict(candidates: &[u64], counts: &[u32]) -> SwitchCommand {
    SwitchCommand::EvictBegin {
        candidates: candidates.to_vec(),
        counts: counts.to_vec(),
        waiting: 1,
    }
}

fn loaded(id: u64) -> LoadedRecord {
    let Entry { hash, key, .. } = entry(id);
    let record = Record { seq: Seq::new(1, id), value: b"dirty".to_vec(), ..Record::default() };
    LoadedRecord { entry: id, keyed: KeyedRecord { hash, key, record }, dirty: true, generation: 1 }
}

/// An agent without a datapath: the test answers its operations.
struct Alone(Agent);

/// What a heartbeat finds where nothing goes on.
fn meters(heard: Option<Heard>) -> DatapathDone {
    DatapathDone::Meters { requests: 0, sequence_used: 0, classes: Vec::new(), heard }
}

impl Alone {
    /// It serves epoch 1 with nothing cached.
    fn configured(config: AgentConfig) -> Alone {
        let mut alone = Alone(Agent::new(7, Address::default(), config, NOW));
        let config = SwitchConfig {
            boot: 7,
            place: Place::sole(),
            generation: 1,
            lanes: 1,
            map: Map::equal(vec![vec![0]]),
            nodes: Vec::new(),
        };
        alone.command(1, SwitchCommand::Configure(config));
        assert!(matches!(alone.asks(), DatapathAction::Configure(_)));
        alone.ends(DatapathDone::Configured { requests: 0, misses: 0 });
        assert_eq!(
            alone.says(),
            [SwitchReport::Done { id: 1, epoch: 1, result: SwitchResult::Ok }]
        );
        alone
    }

    /// It serves epoch 1 with nothing cached, has said hello and begun to count.
    fn new() -> Alone {
        let mut alone = Alone::configured(AgentConfig::default());
        alone.0.handle_timeout(NOW);
        assert_eq!(alone.asks(), DatapathAction::ReadMeters(Place::sole()));
        alone.ends(meters(None));
        assert!(matches!(alone.asks(), DatapathAction::SetCounting(_)));
        alone.ends(DatapathDone::Counted(NOTHING));
        assert_eq!(alone.asks(), DatapathAction::TakeReports);
        alone.ends(DatapathDone::Reports(Vec::new()));
        assert!(matches!(alone.says()[..], [SwitchReport::Hello { epoch: 1, .. }]));
        alone
    }

    fn command(&mut self, id: u64, body: SwitchCommand) {
        self.0.handle_message(NOW, Command { id, chain: ChainId::new(0), epoch: 1, body });
    }

    /// The operation that it asks for: only this one.
    fn asks(&mut self) -> DatapathAction {
        let op = self.0.poll_op().unwrap();
        assert_eq!((op.epoch, self.0.poll_op(), self.0.poll_timeout()), (1, None, None));
        op.action
    }

    fn ends(&mut self, done: DatapathDone) {
        self.0.handle_done(NOW, done);
    }

    fn says(&mut self) -> Vec<SwitchReport> {
        std::iter::from_fn(|| self.0.poll_message()).collect()
    }
}

#[test]
fn an_agent_of_a_switch_that_caches_nothing_counts_nothing() {
    let mut alone = Alone::configured(AgentConfig { records: 0, ..AgentConfig::default() });
    alone.0.handle_timeout(NOW);
    assert_eq!(alone.asks(), DatapathAction::ReadMeters(Place::sole()));
    alone.ends(meters(None));
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
}

#[test]
fn an_agent_tells_what_it_hears_of_its_neighbours_after_each_hello() {
    let mut alone = Alone::configured(AgentConfig { records: 0, ..AgentConfig::default() });
    alone.0.handle_timeout(NOW);
    alone.asks();
    let heard = Heard::from_counts([1, 2, 3, 4]);
    alone.ends(meters(Some(heard)));
    let said = alone.says();
    let [SwitchReport::Hello { .. }, told] = &said[..] else { panic!("{said:?}") };
    assert_eq!(*told, SwitchReport::Heard { epoch: 1, heard });
}

/// The least counted goes for the key that was counted most often, the next for the next, until one
/// is counted as often as what is to take its place.
#[test]
fn what_is_cached_gives_way_to_keys_that_were_counted_more_often() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit((1..=4).map(entry).collect()));
    alone.asks();
    alone.ends(DatapathDone::Admitted(vec![true; 4]));
    alone.command(3, evict(&[1, 2, 3, 4], &[9, 6, 5]));
    alone.asks();
    alone.ends(DatapathDone::Counters(vec![6, 2, 5, 100]));
    assert_eq!(alone.asks(), DatapathAction::BeginEvictions(vec![entry(2), entry(3)]));
    alone.ends(DatapathDone::Records(vec![None, None]));
    alone.command(4, evict(&[1, 4], &[Offer::NAMED, 1]));
    alone.asks();
    alone.ends(DatapathDone::Counters(vec![6, u32::MAX - 1]));
    assert_eq!(alone.asks(), DatapathAction::BeginEvictions(vec![entry(1)]));
    alone.ends(DatapathDone::Records(vec![None]));
}

#[test]
fn commands_wait_in_order_while_an_operation_is_under_way_and_time_does_no_harm() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit(vec![entry(1), entry(2)]));
    alone.command(3, evict(&[1, 2], &[10]));
    alone.command(4, SwitchCommand::Lanes(5));
    alone.0.handle_timeout(Now { monotonic_us: u64::MAX, ..NOW });
    alone.0.handle_readable(NOW);
    assert_eq!(alone.asks(), DatapathAction::Admit(vec![entry(1), entry(2)]));
    alone.ends(DatapathDone::Admitted(vec![false, true]));
    // Refused, so it can't be evicted.
    assert_eq!(alone.asks(), DatapathAction::ReadCounters(vec![entry(2).at]));
    alone.ends(DatapathDone::Counters(vec![9]));
    assert_eq!(alone.asks(), DatapathAction::BeginEvictions(vec![entry(2)]));
    alone.ends(DatapathDone::Records(vec![Some(loaded(2))]));
    assert_eq!(alone.asks(), DatapathAction::SetLanes(5));
    alone.ends(DatapathDone::Changed);
    assert_eq!(alone.0.poll_op(), None);
    assert!(alone.0.poll_timeout().is_some());
    let done = |id, result| SwitchReport::Done { id, epoch: 1, result };
    let evicting = SwitchResult::Evicting(vec![(2, Some(loaded(2).keyed.record))]);
    let admitted = SwitchResult::Admitted { refused: vec![1] };
    assert_eq!(alone.says(), [done(2, admitted), done(3, evicting), done(4, SwitchResult::Ok)]);
}

/// Fails if an entry is told of with the counter or the record of another one.
#[test]
fn an_inspection_tells_of_the_entries_that_the_datapath_has() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit((1..=3).map(entry).collect()));
    alone.asks();
    alone.ends(DatapathDone::Admitted(vec![true; 3]));
    alone.says();
    let known = [3, 1, 2].map(entry).to_vec();
    let clean = LoadedRecord { dirty: false, ..loaded(2) };
    let told = |id, count, dirty| Inspected { id, count, dirty, bytes: 8 + 5 };
    alone.command(3, SwitchCommand::Inspect(vec![3, 9, 1, 2]));
    alone.command(4, SwitchCommand::Remove(vec![3]));
    let slots = known.iter().map(|entry| entry.at).collect();
    assert_eq!(alone.asks(), DatapathAction::ReadCounters(slots));
    alone.ends(DatapathDone::Counters(vec![50, 60, 70]));
    assert_eq!(alone.asks(), DatapathAction::LoadRecords(known), "what is removed goes later");
    alone.ends(DatapathDone::Records(vec![Some(loaded(3)), None, Some(clean)]));
    let result = SwitchResult::Inspected(vec![told(3, 50, true), told(2, 70, false)]);
    assert_eq!(alone.says(), [SwitchReport::Done { id: 3, epoch: 1, result }]);
}

#[test]
fn commands_beyond_a_limit_are_dropped_while_an_operation_is_under_way() {
    let mut alone = Alone::new();
    for id in 0..10_000 {
        alone.command(2 + id, SwitchCommand::Lanes(1));
    }
    let mut done = 0;
    while alone.0.poll_op().is_some() {
        alone.ends(DatapathDone::Changed);
        done += 1;
    }
    assert!((1_000..2_000).contains(&done), "{done} were done");
    assert_eq!(alone.says().len(), done);
}

#[test]
fn all_reports_are_taken_before_the_controller_is_told_of_evictions() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit((1..=MANY).map(entry).collect()));
    assert!(matches!(alone.asks(), DatapathAction::Admit(_)));
    alone.ends(DatapathDone::Admitted(vec![true; MANY as usize]));
    alone.says();
    alone.0.handle_readable(NOW);
    let reports = |ids: std::ops::RangeInclusive<u64>| {
        DatapathDone::Reports(ids.map(DatapathReport::EvictMe).collect())
    };
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
    alone.ends(reports(1..=MANY - 1));
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
    alone.ends(reports(MANY..=MANY));
    for ids in [1..=MANY - 1, MANY..=MANY] {
        assert_eq!(alone.asks(), DatapathAction::BeginEvictions(ids.clone().map(entry).collect()));
        alone.ends(DatapathDone::Records(ids.clone().map(|id| Some(loaded(id))).collect()));
        let entries = ids.map(|id| (id, Some(loaded(id).keyed.record))).collect();
        assert_eq!(alone.says(), [SwitchReport::EvictMe { epoch: 1, entries }]);
    }
    assert_eq!(alone.0.poll_op(), None);
}

/// A backup's checkpoint of its node may be older than the record's eviction, or its cleaning (rule
/// 29).
#[test]
fn a_record_is_loaded_for_a_snapshot_before_its_entry_is_removed_or_cleaned() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit(vec![entry(1), entry(2), entry(3)]));
    assert!(matches!(alone.asks(), DatapathAction::Admit(_)));
    alone.ends(DatapathDone::Admitted(vec![true; 3]));
    alone.command(3, SwitchCommand::Snapshot { generation: 4 });
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
    alone.ends(DatapathDone::Reports(Vec::new()));
    assert_eq!(alone.asks(), DatapathAction::BeginSnapshot(4));
    alone.ends(DatapathDone::SnapshotBegun(true));
    let mut loads = |command: SwitchCommand, id: u64, then: DatapathAction| {
        alone.command(10 + id, command);
        assert_eq!(alone.asks(), DatapathAction::LoadRecords(vec![entry(id)]));
        alone.ends(DatapathDone::Records(vec![Some(loaded(id))]));
        assert_eq!(alone.asks(), then);
        alone.ends(DatapathDone::Changed);
    };
    loads(SwitchCommand::Remove(vec![1]), 1, DatapathAction::Remove(vec![entry(1)]));
    let version = loaded(2).keyed.record.seq;
    let cleaned = DatapathAction::Clean(vec![(entry(2), version)]);
    loads(SwitchCommand::Clean(vec![(2, version)]), 2, cleaned);
    // What was loaded is removed at once.
    alone.command(20, SwitchCommand::Remove(vec![2]));
    assert_eq!(alone.asks(), DatapathAction::Remove(vec![entry(2)]));
    alone.ends(DatapathDone::Changed);
    alone.0.handle_timeout(NOW);
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
    alone.ends(DatapathDone::Reports(Vec::new()));
    assert_eq!(alone.asks(), DatapathAction::LoadRecords(vec![entry(3)]));
}

/// A writer that was delayed may report, after this snapshot's beginning, the original that the
/// snapshot before asked for, and then change the record: the snapshot holds what it wrote.
#[test]
fn a_late_original_of_the_snapshot_before_gives_way_to_this_ones() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit(vec![entry(1)]));
    assert!(matches!(alone.asks(), DatapathAction::Admit(_)));
    alone.ends(DatapathDone::Admitted(vec![true]));
    alone.command(3, SwitchCommand::Snapshot { generation: 4 });
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
    alone.ends(DatapathDone::Reports(Vec::new()));
    assert_eq!(alone.asks(), DatapathAction::BeginSnapshot(4));
    alone.ends(DatapathDone::SnapshotBegun(true));
    alone.says();
    let changed_in = |generation: u32, value: &[u8]| {
        let mut loaded = LoadedRecord { generation, ..loaded(1) };
        loaded.keyed.record.value = value.to_vec();
        loaded
    };
    alone.0.handle_readable(NOW);
    assert_eq!(alone.asks(), DatapathAction::TakeReports);
    let originals = [changed_in(1, b"of the snapshot before"), changed_in(3, b"of this one")];
    alone.ends(DatapathDone::Reports(originals.map(DatapathReport::Original).to_vec()));
    loop {
        match alone.0.poll_op().map(|op| op.action) {
            Some(DatapathAction::LoadRecords(entries)) => {
                let loaded = entries.iter().map(|_| Some(changed_in(4, b"too late")));
                alone.ends(DatapathDone::Records(loaded.collect()));
            }
            Some(DatapathAction::TakeReports) => alone.ends(DatapathDone::Reports(Vec::new())),
            Some(DatapathAction::SetCounting(_)) => alone.ends(DatapathDone::Counted(NOTHING)),
            Some(DatapathAction::EndSnapshot) => {
                alone.ends(DatapathDone::Changed);
                break;
            }
            Some(action) => panic!("{action:?} is no step of a snapshot"),
            None => alone.0.handle_timeout(NOW),
        }
    }
    let (mut records, mut complete) = (Vec::new(), false);
    for report in alone.says() {
        match report {
            SwitchReport::SnapshotChunk { records: chunk, .. } => records.extend(chunk),
            SwitchReport::SnapshotEnd { complete: is_complete, .. } => complete = is_complete,
            other => panic!("{other:?} is no report of a snapshot"),
        }
    }
    assert_eq!((records, complete), (vec![changed_in(3, b"of this one").keyed], true));
}

#[test]
fn what_the_sweep_finds_dirty_is_told_and_cleaned_by_its_number() {
    let mut alone = Alone::new();
    alone.command(2, SwitchCommand::Admit((1..=3).map(entry).collect()));
    alone.asks();
    alone.ends(DatapathDone::Admitted(vec![true; 3]));
    alone.says();
    let mut now = NOW;
    for id in 1..=3 {
        now.monotonic_us += 100_000;
        alone.0.handle_timeout(now);
        let swept = loop {
            let done = match alone.asks() {
                DatapathAction::LoadRecords(entries) => break entries,
                DatapathAction::TakeReports => DatapathDone::Reports(Vec::new()),
                DatapathAction::SetCounting(_) => DatapathDone::Counted(NOTHING),
                DatapathAction::ReadMeters(_) => meters(None),
                action => panic!("{action:?}"),
            };
            alone.0.handle_done(now, done);
        };
        assert_eq!(swept, [entry(id)]);
        // The third is clean.
        let found = LoadedRecord { dirty: id < 3, ..loaded(id) };
        alone.0.handle_done(now, DatapathDone::Records(vec![Some(found)]));
        let records = vec![(id, loaded(id).keyed.record)];
        let dirty = SwitchReport::Dirty { epoch: 1, records };
        let said = alone.says().into_iter().filter(|report| *report == dirty).count();
        assert_eq!(said, usize::from(id < 3));
    }
    let versions = [1, 2].map(|id| (id, Seq::new(1, id)));
    // One that isn't cached any more is left out.
    alone.command(3, SwitchCommand::Clean([&versions[..], &[(9, Seq::new(1, 9))]].concat()));
    let known = versions.map(|(id, seq)| (entry(id), seq)).to_vec();
    assert_eq!(alone.asks(), DatapathAction::Clean(known));
    alone.ends(DatapathDone::Changed);
    let done = SwitchReport::Done { id: 3, epoch: 1, result: SwitchResult::Ok };
    assert!(alone.says().contains(&done));
}
