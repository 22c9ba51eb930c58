//! The controller: admission, eviction, snapshots, recovery, membership, sessions. Never on the data path.
//!
//! A driver owns a [`Controller`] and feeds it messages ([`Controller::handle_message`]), finished stores
//! ([`Controller::handle_stored`]), lost connections ([`Controller::handle_lost`]) and time ([`Controller::handle_timeout`], due at
//! [`Controller::poll_timeout`]); then it carries out what [`Controller::poll_effect`] gives.

mod admission;
mod cache;
mod commands;
mod directory;
mod eviction;
mod machine;
mod partitions;
mod recovery;
mod renewal;
mod sessions;
mod snapshots;
mod status;

pub use directory::{Files, PendingStore, StoreFile, merge_stores};
pub use machine::{Controller, ControllerConfig, Effect};
pub use partitions::deal_partitions;
pub use status::{CachedKeyStatus, ControllerStatus, NodeStatus, RecoveryTimes, SwitchStatus};
