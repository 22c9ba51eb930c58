//! Moving data in and out: `switchback import` copies the strings of a Redis into a rack,
//! `switchback export` writes a rack's records to an RDB file that redis-server loads.
//!
//! Both go through Redis' protocol, so they work with every gateway, and with a Redis on either
//! side. Both go on where they were after a crash: what they have done is in a small file.

mod changes;
mod export;
mod import;
mod progress;
mod server;

pub use export::{ExportArgs, export};
pub use import::{ImportArgs, import};
