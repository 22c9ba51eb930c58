//! Every state of a few small configurations of a chain of several switches.
//! `docs/understand/model.md` has larger ones.

use switchback_model::ablation::Mechanism;
use switchback_model::config::{Config, Protection};
use switchback_model::explore::{Conclusion, explore};
use switchback_model::properties::Broken;
use switchback_model::trace::trace;

const STATES_MAX: usize = 4_000_000;

fn chain(operations: &str) -> Config {
    Config { layers: 2, ..Config::of(operations).expect("a configuration") }
}

fn holds(config: &Config) {
    let report = explore(config, STATES_MAX, |_, _| {});
    assert_eq!(report.conclusion, Conclusion::Holds, "{config:?}");
}

#[test]
fn what_a_chain_tells_every_switch_has() {
    for operations in ["WR,W", "WR,WR", "WC,W"] {
        holds(&chain(operations));
    }
    holds(&Config { layers: 3, ..chain("WR,W") });
    holds(&Config { admissions: 2, evictions: 2, ..chain("W,R") });
    holds(&Config { two_cores: true, ..chain("WR,W") });
}

#[test]
fn any_switches_that_are_left_have_it() {
    holds(&Config { crashes: 1, ..chain("W,R") });
    holds(&Config { crashes: 1, evictions: 0, layers: 3, ..chain("W,R") });
    holds(&Config { crashes: 1, evictions: 0, gives_up: true, ..chain("W,R") });
}

#[test]
fn a_recovery_that_is_interrupted_begins_anew_from_the_same_switches() {
    holds(&Config { crashes: 2, evictions: 0, ..chain("W,R") });
    holds(&Config { crashes: 1, controller_restarts: 1, evictions: 0, ..chain("W,R") });
}

/// Clients aren't asked, nor waited for.
#[test]
fn switches_are_exchanged_while_they_live() {
    holds(&Config { changes: 1, ..chain("W,R") });
    holds(&Config { changes: 1, evictions: 0, layers: 1, ..chain("W,R") });
}

/// Neither the old switches nor clients are asked, and the old switches run on.
#[test]
fn a_drained_chain_is_handed_over_to_other_switches() {
    for layers in [1, 2] {
        holds(&Config { hand_overs: 1, layers, ..chain("WR,W") });
        holds(&Config { hand_overs: 1, controller_restarts: 1, layers, ..chain("W,R") });
    }
    holds(&Config { hand_overs: 1, crashes: 1, ..chain("W,R") });
}

#[test]
fn dirty_records_are_cleaned() {
    holds(&Config { cleanings: 1, ..chain("WR,W") });
    holds(&Config { cleanings: 1, crashes: 1, evictions: 0, ..chain("W,R") });
}

#[test]
fn a_partition_moves_to_another_chain() {
    holds(&Config { moves: 1, evictions: 0, ..chain("W,R") });
    holds(&Config { moves: 1, layers: 1, ..chain("W,R") });
    holds(&Config { other_recoveries: 1, ..chain("W,R") });
}

#[test]
fn protection_may_change_with_the_epoch() {
    use Protection::{Clients, Switches};
    for protection in [vec![Clients, Switches], vec![Switches, Clients]] {
        holds(&Config { crashes: 1, evictions: 0, protection, ..chain("W,R") });
    }
}

/// Older versions may be read then, but no longer newer ones after them.
#[test]
fn a_loss_that_is_declared_is_the_only_one() {
    holds(&Config { crashes: 1, evictions: 0, declares: true, ..chain("W,R") });
}

/// Either would do: an owner that has no entry before its keepers do, or keepers that pass nothing
/// which they can't keep.
#[test]
fn admission_keepers_first_and_dropping_what_is_not_kept_stand_in_for_each_other() {
    for mechanism in [Mechanism::KeepersFirst, Mechanism::DropUnkept] {
        holds(&Config { without: vec![mechanism], ..chain("W,R") });
    }
}

/// As published: a write is numbered, and stored, by the switch next to the clients, then by the
/// next one, and the last one answers. A write that passes the first switch before the key is
/// admitted there, and the last one after it was admitted there, is acknowledged by one switch.
#[test]
fn storing_on_the_way_down_acknowledges_what_one_switch_has() {
    let config = Config { without: vec![Mechanism::KeptOnTheWayUp], ..chain("W,R") };
    let report = explore(&config, STATES_MAX, |_, _| {});
    let Conclusion::Violated(Broken::NotKept, path) = report.conclusion else {
        panic!("{:?}", report.conclusion);
    };
    let steps = trace(&config, &path);
    let last = steps.last().expect("there are steps");
    assert_eq!(path.len(), 8, "{}", steps.join("\n"));
    assert!(last.contains("keeper 0 [nothing]"), "the first switch has it: {last}");
    assert!(last.contains("[v1@1.1 latest dirty]"), "the last one doesn't: {last}");
    assert!(last.contains("node nothing"), "the node has it: {last}");
}
