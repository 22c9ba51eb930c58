//! The subcommands, a file each.

pub(crate) mod config;
pub(crate) mod ctl;
pub(crate) mod doctor;
pub(crate) mod part;
pub(crate) mod up;
