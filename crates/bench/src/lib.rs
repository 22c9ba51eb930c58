//! Workloads, their analytic limit, and the wall-clock load generator.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod cli;
pub mod rack;
mod redis;
mod runs;
pub mod workload;

pub use cli::{BenchArgs, run};
pub use rack::{BenchRack, ClientLinks, Links, RackFactory, RackOptions, RackStatistics, Scheme};
