//! Moving data in and out: `switchback import` copies the strings of a Redis into a rack,
//! `switchback export` writes a rack's records to an RDB file that redis-server loads. Both go
//! through Redis' protocol, so they work with every gateway, and with a Redis on either side.
//! `switchback backup` fetches what a running rack has at one moment, `switchback restore` puts it
//! back: both copy the rack's files.
//!
//! All go on where they were after a crash: what they have done is in a small file.

mod backup;
mod changes;
mod copy;
mod export;
mod import;
mod manifest;
mod progress;
mod restore;
mod server;

pub use backup::{BackupArgs, RunningRack, backup};

pub use export::{ExportArgs, export};
pub use import::{ImportArgs, import};
pub use manifest::nodes_and_chains;
pub use restore::{RestoreArgs, restore};
