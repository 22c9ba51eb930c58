//! Each mechanism is needed: without it, some small configuration breaks a property.

use switchback_model::ablation::{ABLATIONS, Mechanism};
use switchback_model::config::{Config, Protection};
use switchback_model::explore::{Conclusion, explore};

const STATES_MAX: usize = 4_000_000;

/// The configuration that shows what a mechanism is for.
fn needs(mechanism: Mechanism) -> Config {
    let of = |operations| Config::of(operations).expect("a configuration");
    let crash = |operations| Config { crashes: 1, ..of(operations) };
    let snapshot = |operations| Config { snapshots: 1, ..of(operations) };
    if let Some(config) = chain_needs(mechanism) {
        return config;
    }
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
        _ => panic!("{mechanism:?}: no configuration shows what it is for"),
    }
}

/// The same for chains of several switches.
fn chain_needs(mechanism: Mechanism) -> Option<Config> {
    let of = |operations| Config { layers: 2, ..Config::of(operations).expect("a configuration") };
    let crash = |operations| Config { crashes: 1, ..of(operations) };
    Some(match mechanism {
        Mechanism::Keeping
        | Mechanism::ReaderKeeping
        | Mechanism::KeptBeforeTold
        | Mechanism::RepeatKept
        | Mechanism::RepeatByRecord
        | Mechanism::KeepersFirst
        | Mechanism::DropUnkept
        | Mechanism::KeepersLast
        | Mechanism::KeptOnTheWayUp => of("W,R"),
        Mechanism::KeepNewest | Mechanism::OwnerAnswers => of("WR,W"),
        Mechanism::RefusalKeeping => of("WC,W"),
        Mechanism::Neighbour => Config { layers: 3, ..of("W,R") },
        Mechanism::SupersededKept => Config { two_cores: true, ..of("W,WR") },
        Mechanism::LoadAfterFreeze
        | Mechanism::ReleaseAfterFreeze
        | Mechanism::AdmitAfterRecovery => crash("W,R"),
        Mechanism::RecordEpoch => crash("W,RR"),
        Mechanism::ForgetLast => Config { controller_restarts: 1, ..crash("W,R") },
        Mechanism::CleanCompare => Config { cleanings: 1, ..of("WR,W") },
        Mechanism::DrainBeforeHandOver => Config { hand_overs: 1, ..of("W,R") },
        Mechanism::EpochByRack => Config { moves: 1, ..of("W,RR") },
        Mechanism::OwnChain => Config { moves: 1, ..of("WR,WR") },
        Mechanism::FloorByChain => Config { other_recoveries: 1, ..of("W,R") },
        Mechanism::ProtectionOfLast => {
            let protection = vec![Protection::Switches, Protection::Clients];
            Config { protection, ..crash("W,R") }
        }
        Mechanism::DeclareAfterClients => Config { declares: true, ..crash("W,R") },
        _ => return None,
    })
}

/// What is left out with it: the mechanism, and one that would do in its place.
fn left_out(mechanism: Mechanism) -> Vec<Mechanism> {
    match mechanism {
        Mechanism::KeepersFirst | Mechanism::DropUnkept => {
            vec![Mechanism::KeepersFirst, Mechanism::DropUnkept]
        }
        _ => vec![mechanism],
    }
}

#[test]
fn every_ablation_breaks_a_property() {
    for (name, mechanism) in ABLATIONS {
        let config = Config { without: left_out(*mechanism), ..needs(*mechanism) };
        let report = explore(&config, STATES_MAX, |_, _| {});
        let Conclusion::Violated(broken, path) = report.conclusion else {
            panic!("{name}: nothing breaks in {} states", report.states);
        };
        println!("{name}: {broken}, {} steps, {} states", path.len(), report.states);
    }
}
