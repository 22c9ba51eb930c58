//! What each kernel program takes in each scheme's build, and how far that is from the kernel's
//! limits.

#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

#[path = "../../../crates/xdp/tests/common/mod.rs"]
mod common;

use common::may_load;
use std::fmt::Write as _;
use std::io::Write as _;
use switchback_datapath::{Config, Features};
use switchback_wire::{Address, Scheme};
use switchback_xdp::XdpDatapath;
use switchback_xdp::measure::Meter;

/// The verifier gives up at a million instructions: other kernels look at more of them than this
/// one.
const VERIFIED_MAX: u32 = 700_000;
/// Of 512 bytes: what comes needs some.
const STACK_BYTES_MAX: u32 = 480;

#[test]
fn every_program_of_every_scheme_keeps_its_distance_from_the_limits() {
    if !may_load() {
        return;
    }
    let mut table = format!(
        "{:11}  {:20}  {:>12}  {:>8}  {:>5}\n",
        "scheme", "program", "instructions", "verified", "stack"
    );
    let mut exceeding = Vec::new();
    for scheme in Scheme::ALL {
        let config = Config { features: Features::of(scheme), ..Config::default() };
        let switch = XdpDatapath::new(&config, Address::default()).unwrap();
        // The same programs and those that measure them. The verifier says how much stack functions
        // take for this object only, since what a switch loads has room for the reason of a
        // refusal.
        let measured = Meter::new(&config).unwrap().program_resources();
        assert!(
            measured
                .iter()
                .any(|program| program.functions.len() > 1 && program.deepest_stack_bytes > 0)
        );
        for program in switch.program_resources() {
            let same = measured.iter().find(|other| other.name == program.name).unwrap();
            let (verified, stack) = (program.verified, same.deepest_stack_bytes);
            let row = format!(
                "{scheme:11}  {:20}  {:>12}  {verified:>8}  {stack:>5}",
                program.name, program.instructions
            );
            let _ = writeln!(table, "{row}");
            if verified > VERIFIED_MAX || stack > STACK_BYTES_MAX {
                exceeding.push(row);
            }
        }
    }
    // Not by println!, which is shown of failed tests only.
    let _unseen = write!(std::io::stderr(), "\n{table}");
    assert!(
        exceeding.is_empty(),
        "above {VERIFIED_MAX} verified or {STACK_BYTES_MAX} B:\n{}",
        exceeding.join("\n")
    );
}
