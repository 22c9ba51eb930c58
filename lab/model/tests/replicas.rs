//! Every state of a few small configurations of replicated nodes, and what each of their mechanisms
//! is for. `docs/understand/model.md` has larger ones.

use switchback_model::explore::{Conclusion, Report, explore};
use switchback_model::properties::Broken;
use switchback_model::replicas::{ABLATIONS, Action, Config, Mechanism, Times, trace};

const STATES_MAX: usize = 4_000_000;

const NEVER: Times = Times::NEVER;

fn config(operations: &str, replicas: usize, at_most: Times) -> Config {
    Config { replicas, at_most, ..Config::of(operations).expect("a configuration") }
}

/// With fewer numbers: a conditional write that is sent back, and refused, takes one each time.
fn few_numbers(operations: &str, at_most: Times) -> Config {
    Config { counter_max: 4, ..config(operations, 2, at_most) }
}

fn holds(config: &Config) -> Report<Action> {
    let report = explore(config, STATES_MAX, |_, _| {});
    assert_eq!(report.conclusion, Conclusion::Holds, "{config:?}");
    println!("{config:?}: {} states", report.states);
    report
}

#[test]
fn replicas_are_one_register() {
    holds(&config("WR,WR", 1, NEVER));
    holds(&config("WR,WR", 2, NEVER));
    holds(&config("WR,WR", 3, NEVER));
    holds(&few_numbers("WC,RC", NEVER));
}

#[test]
fn nodes_die_or_are_taken_for_dead() {
    holds(&config("WR,R", 2, Times { crashes: 1, ..NEVER }));
    holds(&config("WR,R", 2, Times { removals: 1, ..NEVER }));
    holds(&config("WR,R", 3, Times { crashes: 2, ..NEVER }));
    holds(&config("W,R", 3, Times { removals: 1, breaks: 1, ..NEVER }));
}

#[test]
fn nodes_restart_and_links_break() {
    holds(&config("WR,R", 2, Times { restarts: 1, breaks: 1, given_up: 1, ..NEVER }));
    holds(&config("WC,R", 2, Times { restarts: 1, removals: 1, ..NEVER }));
}

#[test]
fn a_node_joins() {
    holds(&config("WR,R", 2, Times { joins: 1, ..NEVER }));
    holds(&config("W,R", 1, Times { joins: 1, restarts: 1, ..NEVER }));
}

/// A node joins, and the one that was there leaves.
#[test]
fn a_partition_moves_to_another_node() {
    holds(&config("WR,R", 1, Times { joins: 1, removals: 1, ..NEVER }));
    holds(&config("WD", 1, Times { joins: 1, removals: 1, floor_rises: 1, ..NEVER }));
}

#[test]
fn replicas_change_places() {
    holds(&config("WR,R", 2, Times { reorders: 1, ..NEVER }));
    holds(&config("W,R", 3, Times { reorders: 1, ..NEVER }));
}

#[test]
fn a_cache_stands_before_them() {
    holds(&config("WR,R", 2, Times { offers: 1, evictions: 1, ..NEVER }));
    holds(&config("W,R", 2, Times { offers: 1, evictions: 1, crashes: 1, ..NEVER }));
    holds(&config("W", 1, Times { offers: 1, evictions: 1, joins: 1, removals: 1, ..NEVER }));
}

#[test]
fn conditional_writes_and_what_is_sent_back() {
    holds(&few_numbers("WC,RC", Times { crashes: 1, ..NEVER }));
    holds(&few_numbers("WC,W", Times { removals: 1, ..NEVER }));
    holds(&few_numbers("W,C", Times { breaks: 1, ..NEVER }));
    holds(&config("W,W", 2, Times { offers: 1, removals: 1, ..NEVER }));
}

#[test]
fn deletes_and_floors_that_rise() {
    holds(&config("WD,R", 2, Times { floor_rises: 1, breaks: 1, given_up: 1, ..NEVER }));
    holds(&config("WD,R", 2, Times { floor_rises: 1, crashes: 1, ..NEVER }));
}

#[test]
fn forgetting_packets_hides_nothing() {
    let offer = Times { offers: 1, ..NEVER };
    let restart = Times { restarts: 1, ..NEVER };
    for forgets in [config("W,R", 2, offer), few_numbers("W,C", restart)] {
        let keeps = Config { keeps_dead_packets: true, ..forgets.clone() };
        assert!(holds(&forgets).states < holds(&keeps).states);
    }
}

/// The configuration that shows what a mechanism is for, and the property that breaks first.
fn needs(mechanism: Mechanism) -> (Config, Broken) {
    use Broken::{ExecutedTwice, MemberLacks, NotLinearizable, ReplicaAhead, ReplicasDiffer};
    let cached = Times { offers: 1, evictions: 1, ..NEVER };
    let joins = Times { joins: 1, ..NEVER };
    let moves = Times { joins: 1, removals: 1, ..NEVER };
    let (operations, replicas, at_most, broken) = match mechanism {
        Mechanism::TailAnswers => ("W,R", 2, NEVER, MemberLacks),
        Mechanism::TailAnswersOverwritten => ("W,W", 2, NEVER, MemberLacks),
        Mechanism::TailRefuses => ("W,C", 2, NEVER, MemberLacks),
        Mechanism::TailBounces => ("WC,RC", 2, Times { removals: 1, ..NEVER }, ExecutedTwice),
        Mechanism::TailConfirmsStore => ("W,R", 2, cached, MemberLacks),
        Mechanism::TailConfirmsOffer => ("W,R", 2, Times { crashes: 1, ..cached }, MemberLacks),
        Mechanism::HeadFences => {
            ("W,RR", 2, Times { offers: 1, crashes: 1, ..NEVER }, NotLinearizable)
        }
        Mechanism::HeadEmbeds => ("W,RW", 2, Times { removals: 1, ..cached }, MemberLacks),
        Mechanism::FramesOfView => ("WC,RC", 2, Times { removals: 1, ..NEVER }, ExecutedTwice),
        Mechanism::SwitchFirst => ("W,R", 2, Times { removals: 1, ..cached }, NotLinearizable),
        Mechanism::OpenAfterFlush | Mechanism::MemberOnceOpen => ("W,R", 1, joins, MemberLacks),
        Mechanism::JoinOfSource => ("W,R", 2, moves, ReplicasDiffer),
        Mechanism::Resend => ("W", 2, Times { breaks: 1, ..NEVER }, MemberLacks),
        Mechanism::DurableUnconfirmed => ("W", 2, Times { restarts: 1, ..NEVER }, ReplicasDiffer),
        Mechanism::NewestLink => ("W,W", 2, Times { breaks: 1, ..NEVER }, MemberLacks),
        Mechanism::MarksReplicated => ("W,R", 2, Times { crashes: 1, ..cached }, MemberLacks),
        Mechanism::CompletionsReplicated => {
            ("C", 2, Times { crashes: 1, ..NEVER }, NotLinearizable)
        }
        Mechanism::SeqCompare => ("WW", 1, joins, MemberLacks),
        Mechanism::MarksCopied => ("W", 1, Times { removals: 1, joins: 1, ..cached }, MemberLacks),
        Mechanism::CompletionsCopied => ("WC", 1, moves, NotLinearizable),
        Mechanism::FloorsCopied => {
            ("W,RDR", 1, Times { floor_rises: 1, given_up: 1, ..moves }, MemberLacks)
        }
        Mechanism::ReorderFlushed => ("W,R", 2, Times { reorders: 1, ..NEVER }, ReplicaAhead),
        Mechanism::JoinEmpty => ("W,R", 2, moves, ReplicaAhead),
        Mechanism::JoinerKeepsTombstones => {
            ("WD,R", 1, Times { floor_rises: 1, ..joins }, ReplicasDiffer)
        }
        Mechanism::FloorBelowUnconfirmed => {
            let at_most = Times { breaks: 1, given_up: 1, floor_rises: 1, ..NEVER };
            ("WD,R", 2, at_most, ReplicasDiffer)
        }
        Mechanism::RefusalFenced => {
            ("WD,C", 2, Times { crashes: 1, floor_rises: 1, ..NEVER }, ExecutedTwice)
        }
    };
    (config(operations, replicas, at_most), broken)
}

/// The configuration in which clients notice, where that property isn't one that they see.
fn needs_to_be_seen(mechanism: Mechanism) -> Option<Config> {
    let cached = Times { offers: 1, evictions: 1, ..NEVER };
    let cached_and_crash = Times { crashes: 1, ..cached };
    let moves = Times { joins: 1, removals: 1, ..NEVER };
    let crash = Times { crashes: 1, ..NEVER };
    Some(match mechanism {
        Mechanism::TailAnswers => config("WR", 2, crash),
        Mechanism::TailAnswersOverwritten => config("WR,W", 2, crash),
        Mechanism::TailRefuses => few_numbers("W,CR", crash),
        Mechanism::TailConfirmsStore
        | Mechanism::TailConfirmsOffer
        | Mechanism::MarksReplicated => config("WR", 2, cached_and_crash),
        Mechanism::OpenAfterFlush | Mechanism::MemberOnceOpen => config("WR", 1, moves),
        Mechanism::JoinOfSource => config("WR", 2, Times { removals: 2, ..moves }),
        Mechanism::Resend | Mechanism::NewestLink => config("WR", 2, Times { breaks: 1, ..NEVER }),
        Mechanism::DurableUnconfirmed => config("WR", 2, Times { restarts: 1, ..NEVER }),
        Mechanism::SeqCompare => config("WWR", 1, moves),
        Mechanism::MarksCopied => config("WR", 1, Times { joins: 1, removals: 1, ..cached }),
        Mechanism::ReorderFlushed => few_numbers("W,RC", Times { reorders: 1, ..NEVER }),
        Mechanism::JoinEmpty => config("WDR", 2, Times { floor_rises: 1, ..moves }),
        Mechanism::JoinerKeepsTombstones => config("WDR", 1, Times { floor_rises: 1, ..moves }),
        Mechanism::FloorBelowUnconfirmed => {
            let at_most = Times { breaks: 1, given_up: 1, floor_rises: 1, ..NEVER };
            Config { counter_max: 3, ..config("WCR,D", 2, at_most) }
        }
        _ => return None,
    })
}

/// What breaks first without a mechanism.
fn broken_without(mechanism: Mechanism, config: Config) -> Option<Broken> {
    let config = Config { without: vec![mechanism], ..config };
    let report = explore(&config, STATES_MAX, |_, _| {});
    let Conclusion::Violated(broken, path) = report.conclusion else { return None };
    println!("{mechanism:?}: {broken}, {} steps, {} states", path.len(), report.states);
    assert_eq!(trace(&config, &path).len(), path.len());
    Some(broken)
}

#[test]
fn every_ablation_breaks_its_property() {
    for (name, mechanism) in ABLATIONS {
        let (config, expected) = needs(*mechanism);
        let broken = broken_without(*mechanism, config);
        assert_eq!(broken, Some(expected), "{name}");
    }
}

#[test]
fn clients_see_what_an_ablation_breaks() {
    for (name, mechanism) in ABLATIONS {
        let Some(config) = needs_to_be_seen(*mechanism) else { continue };
        let config = Config { only_seen: true, ..config };
        assert!(broken_without(*mechanism, config).is_some(), "{name}");
    }
}

#[test]
fn what_is_not_modelled_is_refused() {
    assert!(Config::of("WE,R").is_err_and(|error| error.contains("isn't modelled here")));
}
