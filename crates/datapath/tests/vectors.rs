//! Runs the conformance vectors natively.

mod conformance;

use conformance::*;
use switchback_datapath::*;
use switchback_wire::Op;

/// What no vector can tell: a state before has no reports that wait (`lifecycle.rs` has the test).
const UNNOTICED: [&str; 1] = ["report-first"];

/// All vectors hold, and for each mechanism at least one notices that it is left out.
#[test]
fn every_vector_holds_and_every_mechanism_is_needed() {
    let vectors = vectors();
    std::panic::set_hook(Box::new(|_| {})); // Failing is the point here, and the messages are kept.
    let failed = failures::<Datapath>(&vectors, Features(0));
    let left_out =
        |(name, bit): &(&'static str, Features)| failures::<Datapath>(&vectors, *bit).is_empty().then_some(*name);
    let unnoticed: Vec<_> = Features::ALL.iter().filter_map(left_out).collect();
    drop(std::panic::take_hook());
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), vectors.len(), failed.join("\n"));
    assert_eq!(unnoticed, UNNOTICED, "no vector fails without these");
    assert!(vectors.len() >= 400, "only {}: some went missing", vectors.len());
    let mut names: Vec<_> = vectors.iter().map(|(name, ..)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), vectors.len(), "each has a name of its own");
}

/// Every packet that there is meets the pipeline; `states.json` has each request and answer in each state of a record.
#[test]
fn every_operation_has_a_vector() {
    let named: Vec<_> = vectors().iter().map(|(_, vector, _)| op(&vector["in"]["op"])).collect();
    let without: Vec<_> = Op::ALL.iter().filter(|op| !named.contains(op)).collect();
    assert_eq!(without, [&Op::EvictMe], "what an agent finds comes from the pipeline only");
}
