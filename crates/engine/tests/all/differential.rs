//! Random groups on RocksDB, on the modelled disk and on a plain model: the same answers, the same
//! contents after restarts.

use crate::common::model::Model;
use crate::common::*;
use proptest::prelude::*;
use switchback_core::floors::Bucket;
use switchback_core::storage::*;
use switchback_core::topology::{ChainId, ChainMap};
use switchback_engine::{MemoryEngine, SyncPolicy};
use switchback_wire::{KeyHash, Seq};

/// Few keys, so that operations meet: two positions, two hashes at each, two keys of each hash.
fn key() -> impl Strategy<Value = (KeyHash, Vec<u8>)> {
    (0..2u64, 0..2u8, 0..2u8).prop_map(|(position, low, name)| {
        let mut hash = KeyHash::at_position(position << 60);
        hash.0[15] = low;
        (hash, vec![b'a' + name])
    })
}

fn record_of(seq: u64) -> impl Strategy<Value = Record> {
    let value = proptest::collection::vec(any::<u8>(), 0..40);
    (any::<bool>(), 0..3u64, value, any::<bool>()).prop_map(
        move |(tombstone, expiry_ms, value, inherits)| Record {
            seq: Seq(seq),
            tombstone,
            expiry_ms: expiry_ms * 100,
            value: if tombstone { Vec::new() } else { value },
            since: if inherits { Record::INHERITED } else { None },
        },
    )
}

fn put() -> impl Strategy<Value = EngineOp> {
    let condition = prop_oneof![
        3 => Just(NEWER),
        2 => (0..60u64).prop_map(|seq| PutCondition::IfSeq(Seq(seq))),
        2 => Just(PutCondition::IfSeq(Seq::NONE)),
        1 => Just(KNOWN),
    ];
    let completion = proptest::option::of((0..3u32, 0..9u64));
    let source = prop_oneof![Just(Source::Client), Just(Source::Cache)];
    ((0..60u64).prop_flat_map(record_of), key(), condition, completion, source).prop_map(
        |(record, (hash, key), condition, completion, source)| EngineOp::Put {
            id: 0,
            hash,
            key,
            condition,
            completion: completion.map(|(lane, request)| LaneCompletion {
                lane,
                request,
                seq: record.seq,
            }),
            record,
            source,
            unconfirmed: None,
        },
    )
}

/// Parts of the keys: one of a few, so that those that are emptied are settled, too.
fn range() -> impl Strategy<Value = KeyRange> {
    let hash = |byte: u8| prop_oneof![Just(KeyHash([byte; 16])), key().prop_map(|(hash, _)| hash)];
    (hash(0), hash(0xff)).prop_map(|(first, last)| KeyRange { first, last: last.max(first) })
}

fn op() -> impl Strategy<Value = EngineOp> {
    let bound = || prop_oneof![Just(0), Just(1u64 << 60), Just(u64::MAX), any::<u64>()];
    let mark =
        proptest::option::of((0..9u64, 0..3u64, 0..9u64).prop_map(|(fence, offer, floor)| Mark {
            fence: Seq(fence),
            offer: OfferId::from_bits(offer),
            floor: Seq(floor),
        }));
    prop_oneof![
        6 => key().prop_map(|(hash, key)| EngineOp::Get { id: 0, hash, key }),
        12 => put(),
        2 => (key(), mark)
            .prop_map(|((hash, key), mark)| {
                EngineOp::SetMark { id: 0, hash, key, mark, unconfirmed: None }
            }),
        1 => (any::<[u8; 3]>(), any::<bool>()).prop_map(|(bytes, is_halved)| {
            let served = if is_halved { halves() } else { ChainMap::default() };
            EngineOp::SetState { id: 0, state: bytes.to_vec(), served }
        }),
        1 => (0..2u16, 0..40u64).prop_map(|(chain, floor)| {
            EngineOp::SetFloor { id: 0, chain: ChainId::new(chain), floor: Seq(floor) }
        }),
        1 => (key(), 0..2u16, 0..40u64).prop_map(|((hash, _), chain, floor)| {
            let bucket = Bucket { chain: ChainId::new(chain), ..bucket(&hash) };
            EngineOp::RaiseFloors { id: 0, floors: vec![(bucket, Seq(floor))] }
        }),
        2 => (bound(), bound(), 0..6usize).prop_map(|(from, to, limit)| scan(from, to, limit)),
        1 => (range(), any::<bool>(), proptest::option::of((0..3u32, 0..9u64))).prop_map(
            |(range, keeps, lane)| empty(range, keeps, lane.into_iter().collect())
        ),
        1 => (range(), any::<bool>()).prop_map(|(range, keeps)| keep(range, keeps)),
        2 => (range(), 0..6usize, 0..60usize)
            .prop_map(|(range, limit, bytes)| copy(range, limit, bytes)),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Group(Vec<EngineOp>),
    Reopen,
    Compact(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => proptest::collection::vec(op(), 1..12).prop_map(Step::Group),
        1 => Just(Step::Reopen),
        1 => (0..4u64).prop_map(|now| Step::Compact(now * 60)),
    ]
}

fn check(steps: Vec<Step>) {
    let (mut rocks, mut memory, mut model) =
        (Rocks::new(), MemoryEngine::new(SyncPolicy::Always), Model::default());
    // RocksDB compacts by itself after four flushes, which would drop dead records where the model
    // doesn't yet.
    let mut flushes = 0;
    for step in steps {
        match step {
            Step::Group(ops) => {
                let expected: Vec<Reply> = ops.iter().map(|op| model.execute(op)).collect();
                assert_eq!(run(&mut memory, ops.clone()), expected, "memory, on {ops:?}");
                assert_eq!(run(&mut rocks, ops.clone()), expected, "RocksDB, on {ops:?}");
            }
            Step::Reopen if flushes < 3 => {
                flushes += 1;
                let expected = model.loaded();
                assert_eq!(memory.reopen(), expected);
                assert_eq!(rocks.reopen(), expected);
            }
            Step::Reopen => {}
            Step::Compact(now_ms) => {
                flushes = 0;
                for engine in [&mut memory as &mut dyn Restartable, &mut rocks] {
                    engine.set_clock(now_ms);
                    engine.compact_now();
                }
                model.compact(now_ms);
            }
        }
    }
    let everything = model.execute(&scan(0, u64::MAX, 100));
    assert_eq!(run_one(&mut rocks, scan(0, u64::MAX, 100)), everything);
}

/// Groups, and how the machine stops after them.
fn crashing() -> impl Strategy<Value = Vec<(Vec<Vec<EngineOp>>, usize)>> {
    let groups = proptest::collection::vec(proptest::collection::vec(op(), 1..6), 0..6);
    proptest::collection::vec((groups, 0..8usize), 1..4)
}

fn holds(memory: &MemoryEngine, model: &Model) {
    let records = memory
        .records()
        .map(|(hash, key, record)| ((*hash, key.to_vec()), record.clone()))
        .collect();
    assert_eq!(Model { records, ..model.clone() }, *model);
    assert_eq!(memory.loaded(), model.loaded());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Fails on any difference between an engine and the contract as the model says it: an overlay
    /// that forgets an earlier operation of the group, a comparison the wrong way round, a filter
    /// that drops too much, something that a restart loses.
    #[test]
    fn engines_agree(steps in proptest::collection::vec(step(), 1..14)) {
        check(steps);
    }
}

proptest! {
    /// Fails if a crash keeps anything but a prefix of the groups, loses a synced one, or tears
    /// one.
    #[test]
    fn a_crash_keeps_a_prefix(rounds in crashing()) {
        let (mut memory, mut model) = (MemoryEngine::new(SyncPolicy::None), Model::default());
        for (groups, survivors) in rounds {
            // The states to which a crash may lead, oldest first.
            let mut states = vec![model.clone()];
            for mut group in groups {
                // These make two commits of their group; leave that to the other test.
                let splits = |op: &EngineOp| {
                    matches!(
                        op,
                        EngineOp::Scan { .. } | EngineOp::Copy { .. } | EngineOp::Empty { .. }
                    )
                };
                group.retain(|op| !splits(op));
                for op in &group {
                    model.execute(op).unwrap();
                }
                let before = memory.unsynced();
                let is_synced = |op: &EngineOp| {
                    let floors =
                        matches!(op, EngineOp::SetFloor { .. } | EngineOp::RaiseFloors { .. });
                    let marks = matches!(op, EngineOp::SetMark { mark: Some(_), .. });
                    let states =
                        matches!(op, EngineOp::SetState { .. } | EngineOp::Keep { .. });
                    floors || marks || states
                };
                let synced = group.iter().any(is_synced);
                run(&mut memory, group);
                if synced {
                    states.clear();
                    states.push(model.clone());
                } else if memory.unsynced() > before {
                    states.push(model.clone());
                }
            }
            assert_eq!(memory.unsynced() + 1, states.len());
            memory.crash(survivors);
            model = states[survivors.min(states.len() - 1)].clone();
            holds(&memory, &model);
        }
    }

    /// Fails if a group that was answered under `Always` can be lost.
    #[test]
    fn a_crash_takes_nothing_that_is_synced(
        groups in proptest::collection::vec(proptest::collection::vec(op(), 1..6), 1..6),
    ) {
        let (mut memory, mut model) = (MemoryEngine::new(SyncPolicy::Always), Model::default());
        for group in groups {
            for op in &group {
                model.execute(op).unwrap();
            }
            run(&mut memory, group);
        }
        memory.crash(0);
        holds(&memory, &model);
    }
}
