//! Every state of a few small configurations of backups, and what each of their mechanisms is for.
//! `docs/understand/model.md` has larger ones.

use switchback_model::backup::{ABLATIONS, Config, Mechanism, trace};
use switchback_model::explore::{Conclusion, explore};
use switchback_model::properties::Broken;

const STATES_MAX: usize = 4_000_000;

fn config(operations: &str) -> Config {
    Config::of(operations).expect("a configuration")
}

fn holds(config: &Config) {
    let report = explore(config, STATES_MAX, |_, _| {});
    assert_eq!(report.conclusion, Conclusion::Holds, "{config:?}");
    assert_ne!(config.checked.get(), 0, "no backup is ever complete: {config:?}");
    println!("{config:?}: {} states", report.states);
}

#[test]
fn a_backup_is_one_moment() {
    for operations in ["XY,Yx", "XY,YX", "X,xY", "XX,xy"] {
        holds(&config(operations));
    }
}

#[test]
fn records_come_and_go_and_are_cleaned_meanwhile() {
    holds(&Config { admissions: 2, evictions: 2, ..config("XY,Yx") });
    holds(&Config { cleanings: 1, ..config("XY,Yx") });
}

#[test]
fn a_void_try_leaves_nothing_to_the_next_one() {
    holds(&Config { tries: 2, ..config("XY,Yx") });
}

#[test]
fn writes_of_unknown_outcome_may_take_effect_while_a_cut_is_made() {
    holds(&Config { gives_up: true, ..config("XY,Yx") });
    holds(&Config { lapses: 1, ..config("XY,Yx") });
}

/// The configuration that shows what a mechanism is for.
fn needs(mechanism: Mechanism) -> Config {
    let config = config("XY,Yx");
    match mechanism {
        Mechanism::AnswerOfTry => Config { tries: 2, ..config },
        Mechanism::LeaseOfHolders => Config { lapses: 1, ..config },
        _ => config,
    }
}

/// What is wrong with the first backup that shows it.
fn flaw(mechanism: Mechanism) -> &'static str {
    match mechanism {
        Mechanism::HoldFirst
        | Mechanism::CutInTime
        | Mechanism::AnswerOfTry
        | Mechanism::LeaseOfHolders => "it has Y1 and lacks X1, known when Y1 began",
        Mechanism::SnapshotFirst | Mechanism::RemovedLoaded => {
            "it lacks X1, which was known when the cut began"
        }
        Mechanism::ChangedLoaded => "it has Y2, which began after the cut was made",
    }
}

/// Explores a configuration without a mechanism, and expects this of a shortest counterexample.
fn breaks(name: &str, mechanism: Mechanism, with: Config) {
    let config = Config { without: vec![mechanism], ..with };
    let report = explore(&config, STATES_MAX, |_, _| {});
    let Conclusion::Violated(broken, path) = report.conclusion else {
        panic!("{name}: nothing breaks in {} states", report.states);
    };
    assert_eq!(broken, Broken::NotLinearizable, "{name}");
    println!("{name}: {} steps, {} states", path.len(), report.states);
    let lines = trace(&config, &path);
    assert_eq!(lines.len(), path.len());
    let end = lines.last().expect("a backup is complete");
    assert!(end.ends_with(flaw(mechanism)), "{name}: {end}");
}

#[test]
fn every_ablation_breaks_a_backup() {
    for (name, mechanism) in ABLATIONS {
        breaks(name, *mechanism, needs(*mechanism));
    }
}

#[test]
fn a_record_that_is_marked_as_clean_is_loaded_first_too() {
    let config = Config { evictions: 0, cleanings: 1, ..config("XY,Yx") };
    breaks("removed-unloaded", Mechanism::RemovedLoaded, config);
}

#[test]
fn what_is_not_modelled_is_refused() {
    assert!(Config::of("XZ").is_err_and(|error| error.contains("only X, Y (write it)")));
    assert!(Config::of("XXXX").is_err_and(|error| error.contains("3 each")));
}
