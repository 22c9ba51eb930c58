//! Tests of the state machines from outside, by the messages and packets that they exchange.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod agent;
mod backup;
mod budget;
mod hostile;
mod layers;
mod learning;
mod node;
mod offers;
mod operators;
mod rack;
mod recovery;
mod renewal;
mod replicas;
mod session;
mod snapshots;
