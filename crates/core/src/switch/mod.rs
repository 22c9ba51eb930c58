//! The switch's agent (the paper's switch OS): writes the datapath's tables, injects control packets, receives reports.
//!
//! The datapath itself is behind [`Target`], so that one agent drives the native build, the kernel's and P4 targets. A driver feeds
//! commands ([`Agent::handle_command`]) and time ([`Agent::handle_timeout`], due at [`Agent::poll_timeout`]) and passes on
//! what [`Agent::poll_report`] gives.

mod agent;
mod counting;
mod entries;
mod snapshot;
mod target;
mod traffic;

pub use agent::{Agent, AgentConfig, AgentStatistics};
pub use counting::Counting;
pub use target::{LoadedRecord, Target};
