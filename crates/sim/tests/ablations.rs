//! Every mechanism is missed when it is left out: within a bounded number of seeds, by a check that the ablation names.

use std::thread::available_parallelism;
use switchback_sim::ablation::Ablation;
use switchback_sim::check::{Check, Checks};
use switchback_sim::sweep::{miss_each, table};

#[test]
fn every_mechanism_is_missed() {
    let threads = available_parallelism().map_or(1, usize::from);
    let missed = miss_each(Checks::ALL, 0, threads);
    // Shown when the test fails, and by `--nocapture`.
    println!("{}", table(&missed));
    assert_eq!(missed.len(), Ablation::ALL.len());
    let unnoticed = missed.iter().filter(|missed| missed.needed.is_none());
    let names: Vec<_> = unnoticed.map(|missed| (missed.ablation.name, missed.runs)).collect();
    assert!(names.is_empty(), "left out and not caught by a check that they name, in this number of seeds: {names:?}");
}

/// The page of guarantees names every mechanism that can be left out, and every check.
#[test]
fn the_guarantees_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guarantees.md");
    let page = std::fs::read_to_string(path).expect("docs/guarantees.md is there");
    for ablation in Ablation::ALL {
        assert!(!ablation.caught_by.is_empty(), "{} names no check", ablation.name);
        let row = format!("| {} | `{}` | {} |", ablation.rule, ablation.name, ablation.caught_by.names());
        assert!(page.contains(&row), "docs/guarantees.md lacks {row}: see `switchback sim --ablations`");
    }
    for check in Check::ALL {
        assert!(page.contains(&format!("`{}`", check.name())), "docs/guarantees.md lacks {}", check.name());
    }
}
