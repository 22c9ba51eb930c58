//! The contract of `switchback_core::storage`, held against both engines. Each test says what would
//! make it fail.

use crate::common::*;
use switchback_core::floors::seq_bucket;
use switchback_core::storage::*;
use switchback_core::topology::ChainId;
use switchback_engine::{MemoryEngine, SyncPolicy};
use switchback_wire::{KeyHash, Seq};

/// Makes a test of each engine out of a test of any engine.
macro_rules! on_both {
    ($($name:ident)*) => {$(
        mod $name {
            #[test]
            fn memory() {
                super::$name(&mut super::MemoryEngine::new(super::SyncPolicy::None));
            }
            #[test]
            fn rocks() {
                super::$name(&mut super::Rocks::new());
            }
        }
    )*};
}

on_both! {
    records_come_back newer_wins known_newer_is_believed if_seq_compares a_group_sees_itself
    refusals_in_a_group_see_the_group floors_speak_for_absent_keys a_floor_never_sinks
    a_floor_holds_for_the_keys_of_its_chain
    compaction_drops_only_the_dead floors_of_buckets_drop_what_is_not_offered
    a_condition_begins_its_series_at_the_floor nothing_expires_without_a_clock
    completions_go_with_the_write replicas_merge_what_is_newer what_is_unconfirmed_is_noted
    a_range_is_emptied_whole_and_alone a_range_that_is_copied_keeps_its_tombstones
    copies_follow_the_hashes
    everything_survives_reopening marks_can_be_cleared scans_follow_the_hashes scans_respect_bounds
    scans_never_part_a_position scans_see_their_group keys_of_one_hash_are_told_apart
    any_bytes_are_a_value
}

/// Fails if any field of a record is not stored, or a tombstone is turned into absence.
fn records_come_back(engine: &mut dyn Restartable) {
    let with_expiry = Record { expiry_ms: u64::MAX, ..record(5, b"value") };
    assert_eq!(run_one(engine, get(b"a")), ABSENT);
    assert_eq!(run_one(engine, put(b"a", with_expiry.clone(), NEWER)), stored());
    assert_eq!(run_one(engine, put(b"b", tombstone(6), NEWER)), stored());
    for _ in 0..2 {
        assert_eq!(run_one(engine, get(b"a")), got(with_expiry.clone()));
        assert_eq!(run_one(engine, get(b"b")), got(tombstone(6)));
        engine.reopen();
    }
}

/// Fails if `>` becomes `>=` or `<`, if the refusal names another seq, or if a refused put is
/// stored.
fn newer_wins(engine: &mut dyn Restartable) {
    assert_eq!(run_one(engine, put(b"a", record(5, b"five"), NEWER)), stored());
    assert_eq!(run_one(engine, put(b"a", record(4, b"four"), NEWER)), refused(5));
    assert_eq!(run_one(engine, put(b"a", record(5, b"again"), NEWER)), refused(5));
    assert_eq!(run_one(engine, get(b"a")), got(record(5, b"five")));
    assert_eq!(run_one(engine, put(b"a", tombstone(6), NEWER)), stored());
    assert_eq!(run_one(engine, put(b"a", record(5, b"late"), NEWER)), refused(6));
    assert_eq!(run_one(engine, get(b"a")), got(tombstone(6)));
}

/// Fails if `known` puts are refused or not stored. (That they don't read is counted in
/// `rocks.rs`.)
fn known_newer_is_believed(engine: &mut dyn Restartable) {
    assert_eq!(run_one(engine, put(b"a", record(5, b"five"), KNOWN)), stored());
    assert_eq!(run_one(engine, put(b"a", record(9, b"nine"), KNOWN)), stored());
    assert_eq!(run_one(engine, get(b"a")), got(record(9, b"nine")));
}

/// Fails if the expected seq or the order of seqs is not looked at, or if an absent key has another
/// seq than NONE.
fn if_seq_compares(engine: &mut dyn Restartable) {
    let if_seq = |seq| PutCondition::IfSeq(Seq(seq));
    assert_eq!(run_one(engine, put(b"a", record(3, b"x"), if_seq(1))), refused_by_floor(0));
    assert_eq!(run_one(engine, put(b"a", record(3, b"x"), if_seq(0))), stored());
    assert_eq!(run_one(engine, put(b"a", record(4, b"y"), if_seq(0))), refused(3));
    assert_eq!(run_one(engine, put(b"a", record(3, b"y"), if_seq(3))), refused(3));
    assert_eq!(run_one(engine, put(b"a", record(2, b"y"), if_seq(3))), refused(3));
    assert_eq!(run_one(engine, put(b"a", record(4, b"y"), if_seq(3))), stored());
    assert_eq!(run_one(engine, get(b"a")), got(record(4, b"y")));
}

/// Fails if reads or conditions in a group look at the store only.
fn a_group_sees_itself(engine: &mut dyn Restartable) {
    let replies = run(
        engine,
        [
            get(b"a"),
            put(b"a", record(2, b"two"), NEWER),
            get(b"a"),
            put(b"a", record(3, b"three"), PutCondition::IfSeq(Seq(2))),
            get(b"a"),
            put(b"b", record(4, b"other"), NEWER),
            get(b"a"),
        ],
    );
    let (two, three) = (got(record(2, b"two")), got(record(3, b"three")));
    assert_eq!(replies, [ABSENT, stored(), two, stored(), three.clone(), stored(), three]);
}

/// Fails if an older put later in the group overwrites a newer one, or a floor counts only from the
/// next group.
fn refusals_in_a_group_see_the_group(engine: &mut dyn Restartable) {
    let ops = [
        put(b"a", record(5, b"five"), NEWER),
        put(b"a", record(4, b"four"), NEWER),
        floor(8),
        put(b"b", record(8, b"b"), NEWER),
        put(b"a", record(6, b"six"), NEWER),
    ];
    assert_eq!(run(engine, ops), [stored(), refused(5), SET, refused_by_floor(8), stored()]);
    assert_eq!(run(engine, [get(b"a"), get(b"b")]), [got(record(6, b"six")), ABSENT]);
}

/// Fails if absent keys accept writes up to the floor, or if keys that exist refuse by it.
fn floors_speak_for_absent_keys(engine: &mut dyn Restartable) {
    assert_eq!(run_one(engine, put(b"old", record(3, b"x"), NEWER)), stored());
    assert_eq!(run_one(engine, floor(10)), SET);
    assert_eq!(run_one(engine, put(b"new", record(10, b"x"), NEWER)), refused_by_floor(10));
    assert_eq!(
        run_one(engine, put(b"new", record(9, b"x"), PutCondition::IfSeq(Seq::NONE))),
        refused_by_floor(10)
    );
    assert_eq!(
        run_one(engine, put(b"new", record(11, b"x"), PutCondition::IfSeq(Seq::NONE))),
        stored()
    );
    assert_eq!(run_one(engine, put(b"old", record(4, b"y"), NEWER)), stored());
    assert_eq!(engine.reopen().floors.base(ChainId::default()), Seq(10));
    assert_eq!(run_one(engine, put(b"third", record(10, b"x"), NEWER)), refused_by_floor(10));
}

/// Fails if the floor of a chain refuses or drops what another one serves, or if who serves what is
/// forgotten.
fn a_floor_holds_for_the_keys_of_its_chain(engine: &mut dyn Restartable) {
    let (low, high) = (key_of_half(0), key_of_half(1));
    let served = EngineOp::SetState { id: 0, state: Vec::new(), served: halves() };
    let floor = EngineOp::SetFloor { id: 0, chain: ChainId::new(1), floor: Seq(10) };
    let tombstones = [put(&low, tombstone(5), NEWER), put(&high, tombstone(5), NEWER)];
    run(engine, tombstones);
    assert_eq!(run(engine, [served, floor]), [SET, SET]);
    engine.compact_now();
    let got_both = |engine: &mut dyn Restartable| run(engine, [get(&low), get(&high)]);
    assert_eq!(got_both(engine), [got(tombstone(5)), Ok(EngineReply::Got(None))]);
    let floors = engine.reopen().floors;
    assert_eq!((floors.of(&hash(&low)), floors.of(&hash(&high))), (Seq::NONE, Seq(10)));
    let put_both = [put(&low, record(7, b"x"), NEWER), put(&high, record(7, b"x"), NEWER)];
    assert_eq!(run(engine, put_both), [stored(), refused_by_floor(10)]);
}

/// A key that this half of the key space has.
fn key_of_half(half: u16) -> Vec<u8> {
    let is_there = |key: &Vec<u8>| halves().of(&hash(key)) == ChainId::new(half);
    (0..u8::MAX).map(|byte| vec![byte]).find(is_there).expect("hashes are spread")
}

/// Fails if a lower floor replaces a higher one: tombstones below it may be gone.
fn a_floor_never_sinks(engine: &mut dyn Restartable) {
    assert_eq!(run(engine, [floor(10), floor(7)]), [SET, SET]);
    assert_eq!(run_one(engine, floor(4)), SET);
    assert_eq!(run_one(engine, put(b"a", record(10, b"x"), NEWER)), refused_by_floor(10));
    assert_eq!(engine.reopen().floors.base(ChainId::default()), Seq(10));
}

/// Fails if a bucket's floor drops what another bucket, a live record, an offered key or a higher
/// seq is; if it isn't found again; or if puts of absent keys are refused by it.
fn floors_of_buckets_drop_what_is_not_offered(engine: &mut dyn Restartable) {
    let keys = [&b"gone"[..], b"other bucket", b"live", b"offered", b"later"];
    let buckets: Vec<u16> = keys.iter().map(|key| seq_bucket(&hash(key))).collect();
    assert!((0..5).all(|at| !buckets[..at].contains(&buckets[at])), "five keys in five buckets");
    let offered = Mark { offer: OfferId::from_bits(7), ..Mark::default() };
    let puts = keys.iter().map(|key| match *key {
        b"live" => put(key, record(5, b"x"), NEWER),
        b"later" => put(key, tombstone(10), NEWER),
        _ => put(key, tombstone(5), NEWER),
    });
    run(engine, puts.chain([mark(b"offered", Some(offered))]));
    let raised = [&b"gone"[..], b"live", b"offered", b"later"].map(|key| floor_of(key, 9));
    run(engine, raised);
    assert_eq!(engine.reopen().floors.of(&hash(b"gone")), Seq(9));
    engine.compact_now();
    assert_eq!(run_one(engine, get(b"gone")), ABSENT);
    assert_eq!(run_one(engine, get(b"other bucket")), got(tombstone(5)));
    assert_eq!(run_one(engine, get(b"live")), got(record(5, b"x")));
    assert_eq!(run_one(engine, get(b"offered")), got(tombstone(5)));
    assert_eq!(run_one(engine, get(b"later")), got(tombstone(10)));
    assert_eq!(run_one(engine, put(b"gone", record(6, b"y"), NEWER)), stored());
    run(engine, [mark(b"offered", None)]);
    engine.compact_now();
    assert_eq!(run_one(engine, get(b"offered")), ABSENT);
}

/// Fails if a series upon a dropped tombstone begins below it: then what ran before it would count
/// as never run.
fn a_condition_begins_its_series_at_the_floor(engine: &mut dyn Restartable) {
    run(engine, [put(b"a", tombstone(5), NEWER), floor_of(b"a", 9)]);
    engine.compact_now();
    let inherits = Record { since: Record::INHERITED, ..record(12, b"x") };
    let absent = PutCondition::IfSeq(Seq::NONE);
    assert_eq!(run_one(engine, put(b"a", inherits, absent)), stored_since(9));
    assert_eq!(run_one(engine, get(b"a")), got(Record { since: Some(Seq(9)), ..record(12, b"x") }));
    // A record of the cache may be older than the floor: its series begins with it.
    let late = Record { since: Record::INHERITED, ..record(4, b"y") };
    run(engine, [floor_of(b"b", 9)]);
    assert_eq!(run_one(engine, put(b"b", late, NEWER)), stored_since(4));
    assert_eq!(run_one(engine, get(b"b")), got(Record { since: Some(Seq(4)), ..record(4, b"y") }));
}

/// Fails if live records are dropped, or dead ones above the floor, or if dead ones below it stay;
/// or if an older version comes back.
fn compaction_drops_only_the_dead(engine: &mut dyn Restartable) {
    let expiring = |seq, at| Record { expiry_ms: at, ..record(seq, b"v") };
    run(engine, [put(b"dead", record(1, b"older version"), NEWER)]);
    engine.compact_now();
    run(
        engine,
        [
            put(b"dead", tombstone(2), NEWER),
            put(b"dead at it", tombstone(10), NEWER),
            put(b"dead above", tombstone(11), NEWER),
            put(b"live", record(3, b"v"), NEWER),
            put(b"expired", expiring(4, 500), NEWER),
            put(b"expired above", expiring(12, 500), NEWER),
            put(b"expires later", expiring(5, 501), NEWER),
        ],
    );
    engine.set_clock(500);
    engine.compact_now();
    assert_eq!(run_one(engine, get(b"dead")), got(tombstone(2)), "no floor, nothing dropped");
    run(engine, [floor(10)]);
    engine.compact_now();
    for _ in 0..2 {
        assert_eq!(run_one(engine, get(b"dead")), ABSENT);
        assert_eq!(run_one(engine, get(b"expired")), ABSENT);
        assert_eq!(run_one(engine, get(b"dead at it")), ABSENT);
        assert_eq!(run_one(engine, get(b"dead above")), got(tombstone(11)));
        assert_eq!(run_one(engine, get(b"live")), got(record(3, b"v")));
        assert_eq!(run_one(engine, get(b"expired above")), got(expiring(12, 500)));
        assert_eq!(run_one(engine, get(b"expires later")), got(expiring(5, 501)));
        engine.reopen();
    }
    // The floor goes on dropping, and speaking for what was dropped.
    run(engine, [put(b"late", tombstone(9), KNOWN)]);
    engine.compact_now();
    assert_eq!(run_one(engine, get(b"late")), ABSENT);
    assert_eq!(run_one(engine, put(b"dead", record(2, b"late"), NEWER)), refused_by_floor(10));
}

/// Fails if a clock that was never set counts as a time.
fn nothing_expires_without_a_clock(engine: &mut dyn Restartable) {
    let expiring = Record { expiry_ms: 1, ..record(4, b"v") };
    run(engine, [put(b"a", expiring.clone(), NEWER), floor(10)]);
    engine.compact_now();
    assert_eq!(run_one(engine, get(b"a")), got(expiring));
}

/// Fails if a completion is stored without its write, or the write without it, or under another
/// lane.
fn completions_go_with_the_write(engine: &mut dyn Restartable) {
    let done = |lane, request, seq| LaneCompletion { lane, request, seq: Seq(seq) };
    let first = PutCondition::IfSeq(Seq::NONE);
    run(engine, [put_completing(b"a", record(1, b"x"), first, done(3, 10, 1))]);
    let refusal = run_one(engine, put_completing(b"a", record(2, b"x"), first, done(3, 11, 2)));
    assert_eq!(refusal, refused(1));
    run(engine, [put_completing(b"b", record(5, b"x"), first, done(1, 7, 5))]);
    assert_eq!(engine.reopen().completions, [done(1, 7, 5), done(3, 10, 1)]);
    run(
        engine,
        [put_completing(b"a", record(9, b"y"), PutCondition::IfSeq(Seq(1)), done(3, 12, 9))],
    );
    assert_eq!(engine.reopen().completions, [done(1, 7, 5), done(3, 12, 9)]);
}

/// Fails if any of the five things is not durable, or the newest state isn't.
fn everything_survives_reopening(engine: &mut dyn Restartable) {
    let one = Mark { fence: Seq(4), ..Mark::default() };
    let other = Mark { offer: OfferId::from_bits(u64::MAX), floor: Seq(3), ..Mark::default() };
    run(engine, [state(b"first"), mark(b"a", Some(one)), mark(b"b", Some(other)), floor(2)]);
    run(engine, [state(b"second"), put(b"a", record(3, b"x"), NEWER)]);
    let mut loaded = engine.reopen();
    loaded.marks.sort_by_key(|(_, key, _)| key.clone());
    assert_eq!(loaded.state.as_deref(), Some(&b"second"[..]));
    assert_eq!(loaded.floors.base(ChainId::default()), Seq(2));
    assert_eq!(
        loaded.marks,
        [(hash(b"a"), b"a".to_vec(), one), (hash(b"b"), b"b".to_vec(), other)]
    );
    assert_eq!(run_one(engine, get(b"a")), got(record(3, b"x")));
    // An empty state is a state.
    run(engine, [state(b"")]);
    assert_eq!(engine.reopen().state, Some(Vec::new()));
}

/// Fails if `None` is stored as a mark, or clearing a key's mark clears another's, or order within
/// a group is lost.
fn marks_can_be_cleared(engine: &mut dyn Restartable) {
    let one = Mark { fence: Seq(4), offer: OfferId::from_bits(1), floor: Seq(2) };
    let marked = Some(one);
    run(
        engine,
        [
            mark(b"a", marked),
            mark(b"b", marked),
            mark(b"c", marked),
            mark(b"c", None),
            mark(b"never", None),
        ],
    );
    run(engine, [mark(b"a", None)]);
    assert_eq!(engine.reopen().marks, [(hash(b"b"), b"b".to_vec(), one)]);
}

/// Keys at chosen positions.
fn put_at(position: u64, low: u8, key: &[u8]) -> EngineOp {
    let mut hash = KeyHash::at_position(position);
    hash.0[15] = low;
    let record = record(1, key);
    EngineOp::Put {
        id: 0,
        hash,
        key: key.to_vec(),
        record,
        condition: NEWER,
        completion: None,
        source: Source::Client,
        unconfirmed: None,
    }
}

fn names(reply: &Reply) -> (Vec<String>, Option<u64>) {
    match reply {
        Ok(EngineReply::Scanned(keys, next)) => {
            (keys.iter().map(|key| String::from_utf8_lossy(&key.key).into_owned()).collect(), *next)
        }
        other => panic!("no scan: {other:?}"),
    }
}

/// Fails if scans are in the order of keys or of writing, or leave out tombstones, or forget
/// expiries.
fn scans_follow_the_hashes(engine: &mut dyn Restartable) {
    run(
        engine,
        [put_at(300, 0, b"a"), put_at(1, 0, b"c"), put_at(256, 0, b"b"), put_at(u64::MAX, 0, b"0")],
    );
    assert_eq!(
        names(&run_one(engine, scan(0, u64::MAX, 100))),
        (["c", "b", "a", "0"].map(String::from).into(), None)
    );
    let gone = Record { tombstone: true, expiry_ms: 9, ..record(2, b"") };
    run(engine, [put(b"z", gone, NEWER)]);
    let position = hash(b"z").position();
    let scanned =
        ScannedKey { hash: hash(b"z"), key: b"z".to_vec(), tombstone: true, expiry_ms: 9 };
    assert_eq!(
        run_one(engine, scan(position, position, 9)),
        Ok(EngineReply::Scanned(vec![scanned], None))
    );
}

/// Fails if a bound is off by one, or if the scan's end at the last position overflows, or if the
/// next position skips a key.
fn scans_respect_bounds(engine: &mut dyn Restartable) {
    let at = [10, 20, 30, u64::MAX];
    run(engine, at.map(|position| put_at(position, 0, position.to_string().as_bytes())));
    let mut list = |from, to, limit| names(&run_one(engine, scan(from, to, limit)));
    let of = |positions: &[u64]| positions.iter().map(u64::to_string).collect::<Vec<_>>();
    assert_eq!(list(10, 20, 9), (of(&[10, 20]), None));
    assert_eq!(list(11, 29, 9), (of(&[20]), None));
    assert_eq!(list(30, u64::MAX, 9), (of(&[30, u64::MAX]), None));
    assert_eq!(list(u64::MAX, u64::MAX, 9), (of(&[u64::MAX]), None));
    assert_eq!(list(0, u64::MAX, 2), (of(&[10, 20]), Some(30)));
    assert_eq!(list(30, u64::MAX, 1), (of(&[30]), Some(u64::MAX)));
    assert_eq!(list(0, 30, 3), (of(&[10, 20, 30]), None), "nothing left within the bounds");
    assert_eq!(list(0, u64::MAX, 0), (of(&[10]), Some(20)), "even a limit of none makes progress");
    assert_eq!(list(40, 5, 9), (of(&[]), None));
}

/// Fails if a limit falls between keys of one position: the rest would never be listed.
fn scans_never_part_a_position(engine: &mut dyn Restartable) {
    run(engine, [put_at(5, 0, b"a"), put_at(5, 1, b"b"), put_at(5, 2, b"c"), put_at(6, 0, b"d")]);
    assert_eq!(
        names(&run_one(engine, scan(0, 9, 1))),
        (["a", "b", "c"].map(String::from).into(), Some(6))
    );
}

/// Fails if a scan doesn't see the writes before it in its group, or sees those after it.
fn scans_see_their_group(engine: &mut dyn Restartable) {
    let replies =
        run(engine, [put_at(1, 0, b"a"), scan(0, 9, 9), put_at(2, 0, b"b"), scan(0, 9, 9)]);
    assert_eq!(names(&replies[1]), (vec!["a".to_owned()], None));
    assert_eq!(names(&replies[3]), (vec!["a".to_owned(), "b".to_owned()], None));
}

/// Fails if the overlay or the store takes the hash for the key.
fn keys_of_one_hash_are_told_apart(engine: &mut dyn Restartable) {
    let put = |key: &[u8], seq| EngineOp::Put {
        id: 0,
        hash: KeyHash::default(),
        key: key.to_vec(),
        record: record(seq, key),
        condition: NEWER,
        completion: None,
        source: Source::Client,
        unconfirmed: None,
    };
    let get = |key: &[u8]| EngineOp::Get { id: 0, hash: KeyHash::default(), key: key.to_vec() };
    let (one, two) = (got(record(5, b"one")), got(record(3, b"two")));
    let ops = [put(b"one", 5), put(b"two", 3), get(b"one"), get(b"two"), get(b"three")];
    assert_eq!(run(engine, ops), [stored(), stored(), one.clone(), two.clone(), ABSENT]);
    assert_eq!(run(engine, [get(b"one"), get(b"two"), get(b"three")]), [one, two, ABSENT]);
}

/// Fails if values are cut, or bytes in keys or values have a meaning.
fn any_bytes_are_a_value(engine: &mut dyn Restartable) {
    let large = vec![0xa5; 1 << 20];
    let keys: [&[u8]; 4] = [b"\0", b"\0\0", &[0xff; 1024], b"\n"];
    for (seq, key) in (1..).zip(keys) {
        assert_eq!(run_one(engine, put(key, record(seq, &large), NEWER)), stored());
    }
    run(engine, [put(b"empty", record(9, b""), NEWER)]);
    engine.reopen();
    for (seq, key) in (1..).zip(keys) {
        assert_eq!(run_one(engine, get(key)), got(record(seq, &large)));
    }
    assert_eq!(run_one(engine, get(b"empty")), got(record(9, b"")));
}

/// Fails if an older record replaces a newer one, if the mark or the completions of an older one
/// are refused with it, or if a floor says anything of what another replica has.
fn replicas_merge_what_is_newer(engine: &mut dyn Restartable) {
    let done = |request| LaneCompletion { lane: 7, request, seq: Seq(request) };
    let marked = Mark { fence: Seq(3), ..Mark::default() };
    run(engine, [floor(6)]);
    assert_eq!(run_one(engine, merge(b"a", Some(record(5, b"five")), None, vec![done(1)])), SET);
    let older = record(4, b"four");
    assert_eq!(run_one(engine, merge(b"a", Some(older), Some(marked), vec![done(2)])), SET);
    assert_eq!(run_one(engine, merge(b"a", None, None, Vec::new())), SET);
    assert_eq!(run_one(engine, get(b"a")), got(record(5, b"five")));
    let loaded = engine.reopen();
    assert_eq!(loaded.completions, [done(2)]);
    assert_eq!(loaded.marks, [(hash(b"a"), b"a".to_vec(), marked)]);
}

/// Fails if a key is forgotten that may not be at the tail, if lanes aren't those that were noted
/// last, or if a refused put notes anything.
fn what_is_unconfirmed_is_noted(engine: &mut dyn Restartable) {
    let noted = |key: &[u8], lanes: &[(u32, u64)]| (hash(key), key.to_vec(), lanes.to_vec());
    run(engine, [put_unconfirmed(b"a", record(5, b"x"), vec![(1, 8)])]);
    run(engine, [put_unconfirmed(b"a", record(4, b"y"), vec![(2, 8)])]);
    assert_eq!(engine.reopen().unconfirmed, [noted(b"a", &[(1, 8)])]);
    run(engine, [put_unconfirmed(b"a", record(6, b"z"), vec![(1, 8), (2, 9)])]);
    assert_eq!(engine.reopen().unconfirmed, [noted(b"a", &[(1, 8), (2, 9)])]);
    let confirm = EngineOp::Confirm { id: 0, keys: vec![(hash(b"a"), b"a".to_vec())] };
    assert_eq!(run_one(engine, confirm), SET);
    assert_eq!(engine.reopen().unconfirmed, []);
}

/// Fails if anything of an emptied range is left, be it of the same group, if anything of another
/// one goes, or if a completion goes that is newer than what was named.
fn a_range_is_emptied_whole_and_alone(engine: &mut dyn Restartable) {
    let (low, high) = (key_of_half(0), key_of_half(1));
    let marked = Mark { offer: OfferId::from_bits(4), ..Mark::default() };
    let done = |lane, request| LaneCompletion { lane, request, seq: Seq(request) };
    let of = |key: &[u8], lanes| {
        let (offered, noted) =
            (mark(key, Some(marked)), put_unconfirmed(key, record(5, b"x"), lanes));
        [merge(key, None, None, vec![done(1, 3), done(2, 9)]), offered, noted]
    };
    run(engine, of(&low, vec![(1, 3), (2, 8)]));
    let ops = of(&high, vec![(1, 3)]).into_iter().chain([
        put(&low, record(6, b"later"), NEWER),
        empty(half(false), false, vec![(1, 3), (2, 8)]),
        get(&low),
        put(&low, record(2, b"anew"), PutCondition::IfSeq(Seq::NONE)),
    ]);
    assert_eq!(run(engine, ops)[3..], [stored(), SET, ABSENT, stored()]);
    let replies = run(engine, [get(&low), get(&high)]);
    assert_eq!(replies, [got(record(2, b"anew")), got(record(5, b"x"))]);
    let loaded = engine.reopen();
    assert_eq!(loaded.completions, [done(2, 9)]);
    assert_eq!(loaded.marks, [(hash(&high), high.clone(), marked)]);
    assert_eq!(loaded.unconfirmed, [(hash(&high), high, vec![(1, 3)])]);
}

/// Fails if a compaction drops a tombstone of a range that is being copied, even after a restart,
/// keeps it once the range is settled, or keeps those of another range.
fn a_range_that_is_copied_keeps_its_tombstones(engine: &mut dyn Restartable) {
    let (low, high) = (key_of_half(0), key_of_half(1));
    let tombstones = [put(&low, tombstone(5), NEWER), put(&high, tombstone(5), NEWER)];
    run(engine, [empty(half(false), true, Vec::new())]);
    run(engine, tombstones);
    run(engine, [floor(9)]);
    assert_eq!(engine.reopen().floors.kept(), [half(false)]);
    engine.compact_now();
    assert_eq!(run(engine, [get(&low), get(&high)]), [got(tombstone(5)), ABSENT]);
    assert_eq!(run_one(engine, keep(half(false), false)), SET);
    assert_eq!(engine.reopen().floors.kept(), []);
    engine.compact_now();
    assert_eq!(run_one(engine, get(&low)), ABSENT);
    assert_eq!(run_one(engine, keep(half(true), true)), SET);
    run(engine, [put(&high, tombstone(15), NEWER), floor(20)]);
    assert_eq!(engine.reopen().floors.kept(), [half(true)]);
    engine.compact_now();
    assert_eq!(run_one(engine, get(&high)), got(tombstone(15)));
}

/// Fails if a copy lacks a record of its range, has one of another, or doesn't end where it is told
/// to.
fn copies_follow_the_hashes(engine: &mut dyn Restartable) {
    let mut keys: Vec<_> = (0..9u8).map(|name| vec![b'a' + name]).collect();
    run(engine, keys.iter().map(|key| put(key, record(3, b"12345678"), NEWER)));
    keys.sort_by_key(|key| hash(key));
    let copied = |keys: &[Vec<u8>], next: Option<&Vec<u8>>| {
        let of = |key: &Vec<u8>| CopiedRecord {
            hash: hash(key),
            key: key.clone(),
            record: record(3, b"12345678"),
        };
        Ok(EngineReply::Copied(keys.iter().map(of).collect(), next.map(|key| hash(key))))
    };
    let all = KeyRange { first: KeyHash([0; 16]), last: KeyHash([0xff; 16]) };
    assert_eq!(run_one(engine, copy(all, 100, 1000)), copied(&keys, None));
    assert_eq!(run_one(engine, copy(all, 2, 1000)), copied(&keys[..2], Some(&keys[2])));
    assert_eq!(run_one(engine, copy(all, 100, 10)), copied(&keys[..2], Some(&keys[2])));
    let middle = KeyRange { first: hash(&keys[2]), last: hash(&keys[5]) };
    assert_eq!(run_one(engine, copy(middle, 100, 1000)), copied(&keys[2..6], None));
    assert_eq!(run_one(engine, copy(middle, 0, 1000)), copied(&keys[2..3], Some(&keys[3])));
}
