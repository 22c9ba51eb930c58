//! Drivers: how packets, control messages and time reach the state machines of `switchback-core`.

mod link;

pub use link::{ControlLink, Sent, Uplink};
