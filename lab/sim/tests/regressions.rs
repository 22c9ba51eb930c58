//! Seeds that broke a promise through a fault of the simulator itself, in how it draws racks and ends
//! faults. A seed draws another rack whenever the simulator changes, so that these prove less and
//! less; what has a test of its own went (`check/witness.rs`, `control.rs`). What was wrong with the
//! product is a script (`tests/schedules.rs`) or an ablation (`tests/ablations.rs`).

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
