//! The state machines of a rack, without I/O: agent, controller, node shim, client session.
//!
//! Time, randomness and bytes come in as arguments; packets, messages and storage operations go out as values. There are no sockets,
//! clocks, threads or global randomness in here, and nothing iterates over an unordered map; so the simulator torments exactly what ships.

pub mod client;
pub mod control;
pub mod controller;
pub mod floors;
pub mod mechanisms;
pub mod node;
pub mod storage;
pub mod switch;
pub mod time;

pub use time::Now;
