//! Every state of a few small configurations. `docs/understand/model.md` has larger ones.

use switchback_model::config::Config;
use switchback_model::explore::{Conclusion, Report, explore};

const STATES_MAX: usize = 4_000_000;

fn config(operations: &str) -> Config {
    Config::of(operations).expect("a configuration")
}

fn holds(config: &Config) -> Report {
    let report = explore(config, STATES_MAX, |_, _| {});
    assert_eq!(report.conclusion, Conclusion::Holds, "{config:?}");
    report
}

#[test]
fn the_cache_is_linearizable() {
    for operations in ["WR,WR", "W,RR", "W,RWR"] {
        holds(&config(operations));
    }
}

#[test]
fn a_key_may_be_admitted_twice() {
    holds(&Config { admissions: 2, evictions: 2, ..config("WR,W") });
}

#[test]
fn deletes_and_floors_that_rise() {
    holds(&config("DR,WR"));
    holds(&Config { floor_rises: 1, ..config("WDR") });
}

#[test]
fn records_expire() {
    holds(&config("ER,W"));
    holds(&Config { floor_rises: 1, ..config("WER") });
    holds(&Config { crashes: 1, ..config("E,R") });
}

#[test]
fn conditional_writes() {
    holds(&config("WC,W"));
    holds(&Config { counter_max: 4, ..config("WC,RC") });
}

#[test]
fn two_cores_may_serve_a_key() {
    holds(&Config { two_cores: true, ..config("WR,WR") });
    holds(&Config { two_cores: true, counter_max: 4, ..config("WC,W") });
}

#[test]
fn the_node_restarts() {
    holds(&Config { node_restarts: 1, ..config("WR,WR") });
}

#[test]
fn the_switch_dies() {
    holds(&Config { crashes: 1, ..config("W,RR") });
}

#[test]
fn the_switch_dies_with_a_snapshot() {
    holds(&Config { crashes: 1, snapshots: 1, evictions: 0, ..config("W,R") });
}

#[test]
fn the_controller_restarts() {
    holds(&Config { snapshots: 1, controller_restarts: 1, ..config("W,R") });
}

/// Crash, snapshot, eviction and a restart of the controller together, with one client; without the
/// snapshot, with two.
#[test]
fn the_controller_restarts_while_everything_else_happens() {
    holds(&Config { crashes: 1, snapshots: 1, controller_restarts: 1, ..config("WR") });
    holds(&Config { crashes: 1, controller_restarts: 1, ..config("W,R") });
}

#[test]
fn forgetting_packets_hides_nothing() {
    for operations in ["W,R", "W,WC"] {
        let forgets = config(operations);
        let keeps = Config { keeps_dead_packets: true, ..forgets.clone() };
        assert!(holds(&forgets).states < holds(&keeps).states);
    }
}
