//! Each mechanism is needed: without it, some small configuration breaks a property.

use switchback_model::ablation::{ABLATIONS, Mechanism};
use switchback_model::config::Config;
use switchback_model::explore::{Verdict, explore};

const STATES_MAX: usize = 4_000_000;

/// The configuration that shows what a mechanism is for.
fn needs(mechanism: Mechanism) -> Config {
    let of = |operations| Config::of(operations).expect("a configuration");
    let crash = |operations| Config { crashes: 1, ..of(operations) };
    let snapshot = |operations| Config { snapshots: 1, ..of(operations) };
    match mechanism {
        Mechanism::Embedding
        | Mechanism::EmbeddingStore
        | Mechanism::SeqCompare
        | Mechanism::Outdated => of("WR,W"),
        Mechanism::Fence => of("W,RR"),
        Mechanism::Preservation | Mechanism::ReaderPreservation => of("W,R"),
        Mechanism::Completion => of("WR,W"),
        Mechanism::RetryOldSeq => of("W,RWR"),
        Mechanism::Validity => Config { admissions: 2, ..of("W,RR") },
        Mechanism::IncarnationCheck => Config { admissions: 2, ..of("WR,W") },
        Mechanism::SnapshotCow => snapshot("WR,W"),
        Mechanism::EpochFence | Mechanism::Hold => crash("W,RR"),
        Mechanism::RecoverNewest | Mechanism::LateClearing => crash("W,WR"),
        Mechanism::GatherAll => crash("W,R"),
        Mechanism::NoSnapshotInRecovery => Config { crashes: 1, ..snapshot("W,R") },
        Mechanism::DurableOffer => Config { node_restarts: 1, ..of("WR,W") },
        Mechanism::ReleaseAfterDurable => Config { controller_restarts: 1, ..snapshot("W,R") },
        Mechanism::OfferedStores | Mechanism::Floor => Config { floor_rises: 1, ..of("WDR") },
        Mechanism::NodeCompletion => of("WC,R"),
        Mechanism::Dependent | Mechanism::ConditionWait => Config { counter_max: 4, ..of("WC,WR") },
    }
}

#[test]
fn every_ablation_breaks_a_property() {
    for (name, mechanism) in ABLATIONS {
        let config = Config { without: Some(*mechanism), ..needs(*mechanism) };
        let report = explore(&config, STATES_MAX, |_, _| {});
        let Verdict::Violated(broken, path) = report.verdict else {
            panic!("{name}: nothing breaks in {} states", report.states);
        };
        println!("{name}: {broken}, {} steps, {} states", path.len(), report.states);
    }
}
