//! Runs the conformance vectors in the kernel, by BPF_PROG_TEST_RUN.

mod common;

use common::conformance::{check_map, check_vectors, maps, vectors};
use common::{Kernel, may_load};

#[test]
fn every_vector_holds_in_the_kernel() {
    if !may_load() {
        return;
    }
    let mut vectors = vectors();
    vectors.sort_by_key(|(_, _, features)| features.0);
    check_vectors::<Kernel>(&vectors);
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
