//! Storage engines of a node.
//!
//! [`RocksEngine`] is the one that ships: RocksDB, write-ahead log always on, one commit a group. [`MemoryEngine`] obeys the same
//! contract ([`switchback_core::storage`]) on a modelled disk that crashes, fills up and rots when the simulator says so.
//! Both run their operations through the same code (`group.rs`), so that what is decided about a write (is it newer, may it be
//! answered yet) is decided in one place; they differ in how they read and how they commit.

#[cfg(feature = "rocks")]
mod error;
#[cfg(feature = "rocks")]
mod floor_filter;
#[cfg_attr(not(feature = "rocks"), allow(dead_code))]
mod format;
mod group;
mod memory;
#[cfg(feature = "rocks")]
mod open;
#[cfg(feature = "rocks")]
mod options;
mod policy;
#[cfg(feature = "rocks")]
mod rocks;
#[cfg(feature = "rocks")]
mod statistics;

#[cfg(feature = "rocks")]
pub use error::OpenError;
pub use memory::{Fault, MemoryEngine};
#[cfg(feature = "rocks")]
pub use open::{FORMAT_FILE, FORMAT_VERSION};
#[cfg(feature = "rocks")]
pub use options::Options;
pub use policy::SyncPolicy;
#[cfg(feature = "rocks")]
pub use rocks::RocksEngine;
#[cfg(feature = "rocks")]
pub use statistics::Statistics;
