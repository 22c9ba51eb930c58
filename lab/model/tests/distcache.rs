//! Every state of a few small configurations of DistCache, and what each of its mechanisms is for.
//! `docs/understand/model.md` has larger ones.

use switchback_model::distcache::{ABLATIONS, Config, Mechanism, trace};
use switchback_model::explore::{Conclusion, explore};
use switchback_model::properties::Broken;

const STATES_MAX: usize = 4_000_000;

fn config(operations: &str) -> Config {
    Config::of(operations).expect("a configuration")
}

fn holds(config: &Config) {
    let report = explore(config, STATES_MAX, |_, _| {});
    assert_eq!(report.conclusion, Conclusion::Holds, "{config:?}");
    println!("{config:?}: {} states", report.states);
}

#[test]
fn copies_in_two_layers_are_linearizable() {
    for operations in ["WR,R", "W,RR", "W,W"] {
        holds(&config(operations));
    }
}

#[test]
fn a_spine_that_was_taken_for_dead_may_serve_on() {
    holds(&Config { crashes: true, admissions: 1, ..config("WR,R") });
    holds(&Config { crashes: true, evictions: 0, ..config("W,RR") });
}

#[test]
fn a_node_restarts_without_knowing_which_copies_are_invalid() {
    holds(&Config { restarts: true, admissions: 1, ..config("W,RR") });
}

/// The configuration that shows what a mechanism is for.
fn needs(mechanism: Mechanism) -> Config {
    match mechanism {
        Mechanism::ZombieAwaited | Mechanism::OwnIncarnations => {
            Config { crashes: true, ..config("W,RR") }
        }
        Mechanism::SentIsHeard => config("WW,RR"),
        Mechanism::RestartedUnsure => Config { restarts: true, ..config("W,RR") },
        _ => config("W,RR"),
    }
}

#[test]
fn every_ablation_breaks_a_property() {
    for (name, mechanism) in ABLATIONS {
        let config = Config { without: vec![*mechanism], ..needs(*mechanism) };
        let report = explore(&config, STATES_MAX, |_, _| {});
        let Conclusion::Violated(broken, path) = report.conclusion else {
            panic!("{name}: nothing breaks in {} states", report.states);
        };
        assert_eq!(broken, Broken::NotLinearizable, "{name}");
        println!("{name}: {} steps, {} states", path.len(), report.states);
        assert_eq!(trace(&config, &path).len(), path.len());
    }
}

#[test]
fn what_is_not_modelled_is_refused() {
    assert!(Config::of("WC,R").is_err_and(|error| error.contains("only R (read) and W (write)")));
}
