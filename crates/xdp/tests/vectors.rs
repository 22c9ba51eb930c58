//! Runs the conformance vectors in the kernel, by BPF_PROG_TEST_RUN.

mod common;

use common::conformance::{check_map, failures, maps, vectors};
use common::{Kernel, may_load};
use switchback_datapath::Features;

#[test]
fn every_vector_holds_in_the_kernel() {
    if !may_load() {
        return;
    }
    let mut vectors = vectors();
    vectors.sort_by_key(|(_, _, features)| features.0);
    std::panic::set_hook(Box::new(|_| {})); // Messages are kept, and told below.
    let failed = failures::<Kernel>(&vectors, Features(0));
    drop(std::panic::take_hook());
    assert!(
        failed.is_empty(),
        "{} of {} failed:\n{}",
        failed.len(),
        vectors.len(),
        failed.join("\n")
    );
    assert!(vectors.len() >= 150, "only {}: some went missing", vectors.len());
}

#[test]
fn every_map_routes_each_key_in_the_kernel() {
    if !may_load() {
        return;
    }
    for vector in &maps() {
        check_map::<Kernel>(vector);
    }
}
