//! Storage engines of a node.
//!
//! An engine is an [`Engine`], and a [`Kind`] in the list [`ENGINES`], by which `rack.toml` names
//! it: a new one is a folder beside `rocks` and a line in that list. [`rocks`] is the one that
//! ships. [`MemoryEngine`] obeys the same contract ([`switchback_core::storage`]) on a modelled
//! disk that crashes, fills up and rots when the simulator says so. Both run their operations
//! through the same code (`group.rs`), so that what is decided about a write (is it newer, may it
//! be answered yet) is decided in one place; they differ in how they read and how they commit.

mod engine;
#[cfg_attr(not(feature = "rocks"), allow(dead_code))]
mod error;
mod group;
mod kind;
mod memory;
mod policy;
#[cfg(feature = "rocks")]
pub mod rocks;

pub use engine::{Engine, Statistics};
pub use error::OpenError;
pub use kind::{ENGINES, Kind, Opened, Options, Setting, Storage, Takes, Value};
pub use memory::{Fault, MemoryEngine};
pub use policy::SyncPolicy;
