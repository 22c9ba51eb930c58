//! What once broke a promise, step by step. Each script is green; `needs` shows that it is red
//! without the mechanism that mended it. For the others no mechanism can be left out; their
//! comments say which change makes them red, and the commit that tried it.

use switchback_assembly::Part;
use switchback_sim::ablation::Ablation;
use switchback_sim::history::Answered;
use switchback_sim::plan::Plan;
use switchback_sim::run::Outcome;
use switchback_sim::world::{Act, Script};
use switchback_wire::Op;

const SWITCH: Part = Part::Switch(0);
const NODE: Part = Part::Node(0);
const ONE: u16 = 0;
const OTHER: u16 = 1;

fn is_green(outcome: &Outcome) {
    assert!(outcome.violation.is_none(), "{}", outcome.report);
}

/// A script leaves a few times to be drawn. Whatever they are, it must mean the same.
const SEEDS: u64 = 40;

/// The script breaks nothing.
fn holds(script: impl Fn(Plan) -> Outcome) {
    (0..SEEDS).for_each(|seed| is_green(&script(Plan { seed, ..Script::plan() })));
}

/// The script breaks nothing with all mechanisms, and one of the checks that the ablation names
/// finds it without.
fn needs(mechanism: &str, script: impl Fn(Plan) -> Outcome) {
    holds(&script);
    let ablation = Ablation::by_name(mechanism).expect("an ablation has this name");
    for seed in 0..SEEDS {
        let violation = script(Plan { seed, ablation, ..Script::plan() }).violation;
        let check = violation.unwrap_or_else(|| panic!("nothing is wrong with {mechanism}")).check;
        assert!(ablation.caught_by.contains(check), "{mechanism} is caught by {}", check.name());
    }
}

/// Long enough for the floors to rise to what was noted before.
fn floors_rise(script: &mut Script) {
    script.wait_us(40_000);
}

/// A conditional write that expected an absent key was refused by a tombstone; the tombstone was
/// dropped, and a late copy of it ran.
#[test]
fn a_refused_write_does_not_run_once_its_tombstone_is_gone() {
    needs("no-refusal-fence", |plan| {
        let mut script = Script::begin(plan);
        let write = script.write(OTHER, 0);
        script.expect(write, Answered::Written);
        let delete = script.delete(OTHER, 0);
        script.expect(delete, Answered::Written);
        floors_rise(&mut script);
        script.on(SWITCH, NODE, Op::Write, Act::Copy);
        let refused = script.write_if(ONE, 0);
        script.expect(refused, Answered::ConditionFailed);
        assert_eq!(script.compact(0), 1, "the tombstone is dropped");
        script.deliver();
        script.end()
    });
}

/// A write below a floor was called done because a series of conditional writes had begun there,
/// upon an absent key.
#[test]
fn a_series_that_began_below_a_floor_says_nothing_of_older_writes() {
    needs("trust-dependents-below-floor", |mut plan| {
        plan.load.keys = 4_000;
        let mut script = Script::begin(plan);
        let (key, neighbour) = script.neighbours();
        script.on(SWITCH, NODE, Op::Write, Act::Hold);
        let late = script.write(ONE, key);
        script.keeps();
        script.on(Part::Client(ONE), SWITCH, Op::Write, Act::Lose);
        // Another key's tombstone raises the floor of both.
        let delete = script.delete(OTHER, neighbour);
        script.expect(delete, Answered::Written);
        floors_rise(&mut script);
        let begins = script.write_if(OTHER, key);
        script.expect(begins, Answered::Written);
        script.deliver();
        script.answer(late);
        script.end()
    });
}

/// A late copy of an older conditional write replaced the completion of its lane's newest at the
/// node, of which another copy was then refused although it had run. Red without the decider's look
/// at `is_past` before a write (3384bef).
#[test]
fn a_late_write_of_a_lane_replaces_no_completion() {
    holds(|mut plan| {
        plan.times.deadline_us = 50_000;
        let mut script = Script::begin(plan);
        script.on(SWITCH, NODE, Op::Write, Act::Hold);
        script.on(SWITCH, NODE, Op::Write, Act::Lose);
        let late = script.write_if(ONE, 0);
        script.expect(late, Answered::Unknown);
        script.stop_losing();
        // The next request of the lane is done, but its client doesn't hear of it.
        script.on(NODE, SWITCH, Op::WriteReply, Act::Lose);
        let done = script.write_if(ONE, 1);
        script.wait_us(5_000);
        script.deliver();
        script.wait_us(5_000);
        script.stop_losing();
        let done = script.answer(done);
        let outcome = script.end();
        is_green(&outcome);
        assert_eq!(done.answered, Answered::Written);
        outcome
    });
}

/// A key is written, evicted if it is cached, and read. Whether the cache took the write.
fn evicts(script: &mut Script, key: u32) -> bool {
    let absorbed = script.absorbs(ONE, key);
    script.drain();
    script.wait_us(20_000);
    script.resume();
    let read = script.read(OTHER, key);
    script.answer(read);
    absorbed
}

/// An offer was declined, came again, and was admitted before its node had heard that it was
/// declined: the node then refused to store what the cache had absorbed.
#[test]
fn a_declined_offer_is_not_admitted_while_it_is_being_cleared() {
    needs("take-declined-offers", |plan| {
        let mut script = Script::begin(plan);
        script.drain();
        script.offer(0);
        script.stall(Part::Controller, NODE);
        script.stalls();
        script.resume();
        // The node repeats its offer.
        script.wait_us(5_000);
        script.flow(Part::Controller, NODE);
        script.wait_us(5_000);
        evicts(&mut script, 0);
        script.end()
    });
}

/// A node let the end of an offer wait for a commit, and offered the key again to a controller that
/// had just started: what the cache absorbed under that offer the node then refused to store.
#[test]
fn an_offer_that_was_told_to_end_is_not_offered_to_the_next_controller() {
    needs("offer-what-ended", |mut plan| {
        plan.times.node_defer_us = 30_000;
        let mut script = Script::begin(plan);
        script.drain();
        script.offer(0);
        script.wait_us(1_000);
        script.crash(Part::Controller);
        script.start(Part::Controller);
        script.wait_us(15_000);
        script.absorbs(ONE, 0);
        script.wait_us(30_000);
        evicts(&mut script, 0);
        script.end()
    });
}

/// A controller that took stock of the cache anew forgot which offers it had told nodes to clear,
/// and took one of them. Red with `clear()` in place of `clear_but_offers()` (0eb7959).
#[test]
fn taking_stock_forgets_no_offer_that_is_being_cleared() {
    holds(|plan| {
        let mut script = Script::begin(plan);
        script.drain();
        script.offer(0);
        script.stall(Part::Controller, NODE);
        script.stalls();
        script.resume();
        // The switch is silent until it counts as dead, and then is back with all that it holds.
        script.stall(SWITCH, Part::Controller);
        script.wait_us(80_000);
        script.flow(SWITCH, Part::Controller);
        script.wait_us(20_000);
        script.flow(Part::Controller, NODE);
        script.wait_us(5_000);
        evicts(&mut script, 0);
        script.end()
    });
}

/// An offer that waited was declined when its node repeated it to a full queue, and admitted all
/// the same: the node then refused to store what the cache had absorbed. Red if an offer that waits
/// needs room to wait, and goes on waiting when it is declined (41d8295 undoes that part of
/// 5cf4099).
#[test]
fn an_offer_that_waits_is_not_declined() {
    holds(|mut plan| {
        plan.topology.cache_records = 1;
        let mut script = Script::begin(plan);
        script.offer(0);
        script.wait_us(5_000);
        // The cache is full, and the switch doesn't hear that it has to make room.
        script.stall(Part::Controller, SWITCH);
        script.offer(1);
        // The node doesn't hear that its offer is known, and repeats it.
        script.stall(Part::Controller, NODE);
        script.wait_us(10_000);
        script.flow(Part::Controller, NODE);
        script.flow(Part::Controller, SWITCH);
        script.wait_us(10_000);
        assert!(evicts(&mut script, 1), "it was admitted");
        script.end()
    });
}

/// A record of the cache that was older than its bucket's floor began its series above itself, so
/// that a write between it and the floor counted as done. Red with `base` in place of
/// `base.min(record.seq)` in the engines' group (8753be1).
#[test]
fn a_record_older_than_its_floor_begins_its_own_series() {
    holds(|mut plan| {
        plan.load.keys = 4_000;
        let mut script = Script::begin(plan);
        let (key, neighbour) = script.neighbours();
        script.offer(key);
        script.wait_us(5_000);
        assert!(script.absorbs(ONE, key));
        // The record is evicted, but doesn't arrive yet; the next write passes it by.
        script.stall(Part::Controller, NODE);
        script.drain();
        script.stalls();
        script.on(SWITCH, NODE, Op::Write, Act::Hold);
        let late = script.write(ONE, key);
        script.keeps();
        script.on(Part::Client(ONE), SWITCH, Op::Write, Act::Lose);
        // Another key's tombstone raises the floor of both.
        let delete = script.delete(OTHER, neighbour);
        script.expect(delete, Answered::Written);
        floors_rise(&mut script);
        script.flow(Part::Controller, NODE);
        script.wait_us(5_000);
        script.deliver();
        script.answer(late);
        script.stop_losing();
        script.resume();
        script.end()
    });
}

/// A node left a bypass epoch while its engine worked, and answered a refused condition with the
/// write's own number as the record's. Red without the check of the epoch before a write is
/// answered (a3dfd7f).
#[test]
fn a_node_that_left_a_bypass_epoch_answers_nothing_of_it() {
    holds(|mut plan| {
        plan.times.bypass_us = Some(20_000);
        let mut script = Script::begin(plan);
        script.crash(SWITCH);
        script.bypasses();
        let first = script.write(ONE, 0);
        script.expect(first, Answered::Written);
        let read = script.read(OTHER, 0);
        script.expect(read, Answered::Value);
        let second = script.write(ONE, 0);
        script.expect(second, Answered::Written);
        script.stop_engine(0);
        let refused = script.write_if(OTHER, 0);
        script.commits();
        // The next epoch begins; the client hasn't heard of it.
        script.stall(Part::Controller, Part::Client(OTHER));
        script.start(SWITCH);
        script.moves_on(0);
        script.start_engine(0);
        script.wait_us(1_000);
        script.flow(Part::Controller, Part::Client(OTHER));
        script.answer(refused);
        script.end()
    });
}
