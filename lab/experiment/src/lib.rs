//! Virtual-time experiments: FarReach's evaluation on the production pipeline and state machines,
//! every figure beside its limit.
//!
//! A [`world`] is a rack in which the switch's C datapath, the agent, the controller, the nodes'
//! shims and the clients' sessions run as they do in production; service times, delays and
//! capacities come from a [`profile`]. A [`trial`] is one run of it, and [`experiments`] are many.
//! No result of these depends on a wall clock: a seed determines a run. (Exp#14 is measured.)

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod batch;
mod cli;
mod confidence;
mod counterpart;
mod effort;
mod experiments;
mod output;
mod pool;
mod profile;
mod storage;
mod timeline;
mod trial;
mod world;

pub use cli::{ExperimentArgs, run};
