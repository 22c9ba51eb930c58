//! Seeds that broke a promise through a fault of the simulator itself, in its checks or its racks.
//! What was wrong with the product is a script (`tests/schedules.rs`) or an ablation
//! (`tests/ablations.rs`), for the rack that a seed draws changes with the simulator.

use switchback_sim::ablation::Ablation;
use switchback_sim::focus::Focus;
use switchback_sim::plan::Plan;
use switchback_sim::run::run;
use switchback_wire::Scheme;

fn is_green(seed: u64, focus: Focus) {
    let plan =
        Plan::draw(seed, Scheme::FarReach, Ablation { focus: Some(focus), ..Ablation::NOTHING });
    let outcome = run(plan, false);
    assert!(outcome.violation.is_none(), "seed {seed}, {}\n{}", focus.name(), outcome.report);
}

/// Not the product's: a delete had survived although the client that was told of it hadn't, and the
/// checker called its record lost.
#[test]
fn a_delete_may_survive_its_client() {
    for seed in [16, 45, 47] {
        is_green(seed, Focus::Splits);
    }
}

/// Not the product's: a message that a slow control plane had held up arrived when everything was
/// to be well, and the switch counted as dead.
#[test]
fn a_run_is_settled_once_no_message_is_held_up() {
    for seed in [7, 17] {
        is_green(seed, Focus::Switches);
    }
}

/// Not the product's: an answer had waited for its client's spool, and came after a recovery had
/// given the client up with what it kept.
#[test]
fn an_answer_that_comes_after_its_client_was_given_up_is_no_evidence() {
    for seed in [140, 495] {
        is_green(seed, Focus::Stragglers);
    }
}

/// Not the product's: switches died faster than a control message travels, and hardly any operation
/// could be answered.
#[test]
fn a_switch_lives_until_its_clients_have_heard_of_it() {
    is_green(394, Focus::Switches);
}

/// Not the product's: what a spool had kept since an earlier life of its client still counted after
/// a recovery had given the client up.
#[test]
fn a_spool_that_was_given_up_proves_nothing() {
    is_green(350, Focus::Floors);
}

/// Not the product's: what waited for a part that paused was overtaken when the end of faults cut
/// the pause short.
#[test]
fn the_end_of_faults_reorders_no_connection() {
    is_green(1737, Focus::Evictions);
}
