//! The client: lanes, retries, leases, record preservation. What the papers call the client shim
//! layer.
//!
//! An environment owns a [`Session`] and does this, in a loop:
//!
//! 1. [`Session::submit`] starts an operation; [`Session::handle_packet`] takes a packet;
//!    [`Session::handle_message`] a control message; [`Session::handle_timeout`] the passing of
//!    time (call it at [`Session::poll_timeout`]).
//! 2. After any of these, send what [`Session::poll_packet`] and [`Session::poll_message`] give,
//!    until they give nothing, and take the outcomes that no packet brought from
//!    [`Session::poll_completion`].
//!
//! An operation that the cache answers costs no allocation: buffers belong to lanes and are reused.

mod large;
mod loads;
mod preserve;
mod rto;
mod session;
mod types;

pub use large::FRAGMENTS_AT_ONCE;
pub use preserve::{Preservation, PreservedRecord};
pub use session::Session;
pub use types::{ClientConfig, Completion, Operation, Outcome, SessionStatistics, SubmitError};
