//! Seeds that broke a promise through a fault of the simulator itself, in how it draws racks and
//! ends faults. A seed draws another rack whenever the simulator changes, so that these prove less
//! and less; what has a test of its own went (`check/witness.rs`, `control.rs`). What was wrong
//! with the product is a script (`tests/schedules.rs`) or an ablation (`tests/ablations.rs`).

use switchback_sim::ablation::Ablation;
use switchback_sim::focus::Focus;
use switchback_sim::plan::Plan;
use switchback_sim::run::run;
use switchback_wire::Scheme;

fn is_green(seed: u64, focus: Focus) {
    is_plan_green(seed, Scheme::FarReach, Ablation { focus: Some(focus), ..Ablation::NOTHING });
}

fn is_plan_green(seed: u64, scheme: Scheme, ablation: Ablation) {
    let outcome = run(Plan::draw(seed, scheme, ablation), false);
    assert!(outcome.violation.is_none(), "seed {seed} of {scheme:?}\n{}", outcome.report);
}

/// Not the product's: switches died faster than a control message travels, and hardly any operation
/// could be answered.
#[test]
fn a_switch_lives_until_its_clients_have_heard_of_it() {
    is_green(394, Focus::Switches);
}

/// Not the product's: what waited for a part that paused was overtaken when the end of faults cut
/// the pause short.
#[test]
fn the_end_of_faults_reorders_no_connection() {
    is_green(1737, Focus::Evictions);
}

/// Not the product's: a switch whose link lost too many probes was still left out when the faults
/// were over, and was expected to serve before the link's pause ended.
#[test]
fn a_link_that_pauses_after_the_faults_may_pause_on() {
    is_plan_green(2081, Scheme::NoCache, Ablation::NOTHING);
}

/// Not the product's: a dead link was tried again several times after the faults, and operations
/// that came to nothing were counted as if one epoch had ended.
#[test]
fn a_dead_link_may_be_tried_again_after_the_faults() {
    is_plan_green(1206, Scheme::NoCache, Ablation::NOTHING);
}
