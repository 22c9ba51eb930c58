//! Runs the conformance vectors natively.

mod conformance;

use conformance::*;
use switchback_datapath::*;
use switchback_wire::{Address, Header, Map, Op, Packet, Scheme};

/// What no vector can tell: a state before has no reports that wait (`lifecycle.rs` has the test).
const UNNOTICED: [&str; 1] = ["report-first"];

#[test]
fn every_vector_holds() {
    let vectors = vectors();
    check_vectors::<Datapath>(&vectors);
    assert!(vectors.len() >= 400, "only {}: some went missing", vectors.len());
    let mut names: Vec<_> = vectors.iter().map(|(name, ..)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), vectors.len(), "each has a name of its own");
}

#[test]
fn every_map_routes_each_key() {
    for vector in &maps() {
        check_map::<Datapath>(vector);
    }
}

#[test]
fn what_doesnt_fit_leaves_the_map_as_it_was() {
    let config = Config { partitions: 2, nodes: 2, ..Config::default() };
    let datapath = Datapath::new(&config).unwrap();
    datapath.poke_registers(&state::Registers {
        epoch: 1,
        generation: 1,
        ..state::Registers::default()
    });
    let ask = || {
        let mut packet = Packet::build(Header { epoch: 1, ..Header::new(Op::Read) }, &[], b"key");
        datapath.process(&mut packet, Address::in_memory(1, 1), 1, u32::MAX, Shard::default())
    };
    assert_eq!(ask(), Verdict::Drop(DropReason::Route), "before there is a map");
    let map = |heads: &[u16]| Map::equal(heads.iter().map(|head| vec![*head]).collect());
    datapath.set_map(&map(&[1, 0])).unwrap();
    assert_eq!(datapath.set_map(&map(&[0; 4])), Err(TableError::Partitions));
    assert_eq!(datapath.set_map(&map(&[0, 2])), Err(TableError::Replicas));
    let Verdict::Forward(replicas) = ask() else { panic!("{:?}", ask()) };
    assert_eq!(replicas[..], [1]);
}

/// For each mechanism at least one vector notices that it is left out. Where it can't be, none
/// notices.
#[test]
fn every_mechanism_is_needed_and_only_the_laboratory_can_do_without() {
    let vectors = vectors();
    std::panic::set_hook(Box::new(|_| {})); // Failing is the point here.
    let left_out = |(name, bit): &(&'static str, Features)| {
        failures::<Datapath>(&vectors, *bit).is_empty().then_some(*name)
    };
    let unnoticed: Vec<_> = Features::ALL.iter().filter_map(left_out).collect();
    drop(std::panic::take_hook());
    let of_schemes = ["cache", "write-back", "write-through", "layers", "copies"];
    let mechanisms =
        Features::ALL.iter().map(|(name, _)| *name).filter(|name| !of_schemes.contains(name));
    let expected =
        if cfg!(feature = "ablations") { UNNOTICED.to_vec() } else { mechanisms.collect() };
    assert_eq!(unnoticed, expected, "no vector fails without these");
}

#[test]
fn every_scheme_has_vectors() {
    let vectors = vectors();
    for scheme in Scheme::ALL {
        let is_its = |(_, _, features): &(_, _, Features)| features.0 == Features::of(scheme).0;
        assert!(vectors.iter().any(is_its), "{scheme}");
    }
}

/// Every packet that there is meets the pipeline; `states.json` has each request and answer in each
/// state of a record.
#[test]
fn every_operation_has_a_vector() {
    let named: Vec<_> = vectors().iter().map(|(_, vector, _)| op(&vector["in"]["op"])).collect();
    let without: Vec<_> = Op::ALL.iter().filter(|op| !named.contains(op)).collect();
    assert_eq!(without, [&Op::EvictMe], "what an agent finds comes from the pipeline only");
}
