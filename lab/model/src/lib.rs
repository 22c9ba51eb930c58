//! A model of the rules of ownership, at-most-once and recovery, small enough to look at every
//! state.
//!
//! One key, one node, one chain of switches and its successors, a few clients; every packet and
//! command that was ever sent may arrive any number of times, at any later moment, or never.
//! `docs/understand/model.md` says what is modelled, what was explored and what isn't.
//!
//! [`backup`], [`distcache`] and [`replicas`] are models of other rules: those of backups, with two
//! keys at two nodes, those of read-only copies in two layers, and those of replicated nodes.
//!
//! It is written from `docs/understand/protocol.md` and shares no code with the product: it would
//! be no evidence otherwise.

pub mod ablation;
pub mod backup;
mod client;
pub mod config;
mod controller;
pub mod distcache;
pub mod explore;
mod forget;
mod keeper;
mod linearizability;
mod node;
pub mod properties;
pub mod replicas;
mod state;
mod step;
mod switch;
pub mod trace;

pub use step::Action;
