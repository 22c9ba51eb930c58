//! Storage engines of a node.
//!
//! [`RocksEngine`] is the one that ships: RocksDB, write-ahead log always on, one commit a group. [`MemoryEngine`] obeys the same
//! contract ([`switchback_core::storage`]) on a modelled disk that crashes, fills up and rots when the simulator says so.
//! Both run their operations through the same code (`group.rs`), so that what is decided about a write (is it newer, may it be
//! answered yet) is decided in one place; they differ in how they read and how they commit.

mod error;
mod floor_filter;
mod format;
mod group;
mod memory;
mod open;
mod options;
mod rocks;
mod statistics;

pub use error::OpenError;
pub use memory::{Fault, MemoryEngine};
pub use open::{FORMAT_FILE, FORMAT_VERSION};
pub use options::{Options, SyncPolicy};
pub use rocks::RocksEngine;
pub use statistics::Statistics;
