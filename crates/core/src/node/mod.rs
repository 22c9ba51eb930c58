//! The node: the shim between the data plane and a storage engine (design, section 5; protocol, section 5).
//!
//! An environment owns a [`Shim`] and an engine and does this, in a loop: feed packets ([`Shim::handle_packet`]), commands
//! ([`Shim::handle_message`]), engine answers ([`Shim::handle_done`]) and time ([`Shim::handle_timeout`], due at
//! [`Shim::poll_timeout`]); then pass on what [`Shim::poll_ops`], [`Shim::poll_packet`] and [`Shim::poll_message`] give,
//! until nothing is left.

mod bypass;
mod commands;
mod floors;
mod fragments;
mod marks;
mod read;
mod recent;
mod scan;
mod shim;
mod write;

pub use shim::{NodeLimits, NodeStatistics, Shim};
