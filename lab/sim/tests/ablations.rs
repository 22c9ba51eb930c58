//! Every mechanism is missed when it is left out: within a bounded number of seeds, by a check that
//! the ablation names.

use std::thread::available_parallelism;
use switchback_sim::ablation::{Ablation, BlackBox};
use switchback_sim::check::{Check, Checks};
use switchback_sim::sweep::{Missed, miss_each, table};

/// Ablations that clients need not notice.
const HIDDEN_MAX: usize = 8;

fn all_are_missed(checked: Checks) -> Vec<Missed> {
    let threads = available_parallelism().map_or(1, usize::from);
    let missed = miss_each(None, checked, 0, threads);
    // Shown when the test fails, and by `--nocapture`.
    println!("{}", table(&missed));
    let unnoticed = missed.iter().filter(|missed| missed.needed.is_none());
    let names: Vec<_> = unnoticed.map(|missed| (missed.ablation.name, missed.runs)).collect();
    assert!(
        names.is_empty(),
        "left out and not caught by a check that they name, in this number of seeds: {names:?}"
    );
    missed
}

#[test]
fn every_mechanism_is_missed() {
    assert_eq!(all_are_missed(Checks::ALL).len(), Ablation::ALL.len());
}

/// Without the checks that know how the rack works, clients still lose something, get it twice or
/// read it wrong.
#[test]
fn clients_miss_the_mechanisms_too() {
    let hidden = |ablation: &&Ablation| matches!(ablation.black_box, BlackBox::Hidden(_));
    let hidden = Ablation::ALL.iter().filter(hidden).count();
    assert!(hidden <= HIDDEN_MAX, "{hidden} ablations are hidden from clients");
    assert_eq!(all_are_missed(Checks::BLACK_BOX).len(), Ablation::ALL.len() - hidden);
}

/// The page of guarantees names every mechanism that can be left out, and every check.
#[test]
fn the_guarantees_are_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/understand/guarantees.md");
    let page = std::fs::read_to_string(path).expect("docs/understand/guarantees.md is there");
    for ablation in Ablation::ALL {
        assert!(!ablation.caught_by.is_empty(), "{} names no check", ablation.name);
        let row =
            format!("| {} | `{}` | {} |", ablation.rule, ablation.name, ablation.caught_by.names());
        assert!(
            page.contains(&row),
            "docs/understand/guarantees.md lacks {row}: see `switchback lab sim --ablations`"
        );
    }
    for check in Check::ALL {
        assert!(
            page.contains(&format!("`{}`", check.name())),
            "docs/understand/guarantees.md lacks {}",
            check.name()
        );
    }
}
