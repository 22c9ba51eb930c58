//! Workloads, their analytic limit, predictions for a trace, and the wall-clock load generator.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod demo;
#[cfg(test)]
mod fake;
mod generator;
pub mod learner;
pub mod limit;
pub mod predict;
pub mod process_guard;
pub mod rack;
pub mod racks;
mod redis;
pub mod report;
mod runs;
pub mod scratch;
pub mod single;
pub mod verify;
pub mod workload;

pub use cli::{BenchArgs, run};
pub use rack::{BenchRack, ClientLinks, Links, RackFactory, RackOptions, RackStatistics};
