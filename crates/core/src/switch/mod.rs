//! The switch's agent (the paper's switch OS): writes the datapath's tables, injects control
//! packets, receives reports.
//!
//! What is to be done to the datapath the agent gives out as [`DatapathOp`]s, one at a time.
//! [`carry_out`] does them to any datapath that implements [`Target`]: the native build, the
//! kernel's, a P4 target. So an environment calls [`Agent::handle_message`],
//! [`Agent::handle_timeout`] (due at [`Agent::poll_timeout`]) or [`Agent::handle_readable`], then
//! [`carry_out`], and sends what [`Agent::poll_message`] gives.

mod agent;
mod datapath;
mod entries;
mod gain;
mod learning;
mod snapshot;
mod sweep;
mod target;
mod traffic;

pub use agent::{Agent, AgentConfig, AgentStatistics};
pub use datapath::{DatapathAction, DatapathDone, DatapathOp, DatapathReport, carry_out};
pub use learning::{Counted, Counting, LearningConfig};
pub use switchback_wire::Place;
pub use target::{LoadedRecord, Target};
