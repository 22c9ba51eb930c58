//! Tests of the engines from outside: what holds for all, and what RocksDB does with files.
#![allow(clippy::unwrap_used)] // A failed unwrap is a failed test.

mod checkpoints;
mod common;
mod contract;
mod differential;
mod durability;
mod full_disk;
mod node;
mod opening;
