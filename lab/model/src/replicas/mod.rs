//! Replicated nodes: one key, one switch that isn't replaced, the replicas of one partition, and a
//! node that joins them.
//!
//! The first replica, the *head*, alone decides about requests. What it decided travels from
//! replica to replica over links that keep order: what has changed (the *effect*), and what is to
//! be answered (the *decision*). Each stores the effect, then passes both on; the last one, the
//! *tail*, answers. Which nodes are the replicas, and in which order, is a *view*: it has a number,
//! which packets and frames carry. The directory makes views; switch and nodes learn of them one by
//! one.
//!
//! Packets and commands that were ever sent may arrive any number of times, at any later moment, or
//! never. Frames on a link arrive in order and once, until the link breaks: the rest is lost then,
//! and the sender first sends what the tail hasn't confirmed.
//!
//! `docs/understand/model.md` says what is modelled, what was explored and what isn't.

mod ablations;
mod client;
mod config;
mod directory;
mod forget;
mod head;
mod link;
mod node;
mod properties;
mod state;
mod step;
mod stored;
mod switch;
mod trace;
mod view;

pub use ablations::{ABLATIONS, Mechanism};
pub use config::{Config, Times};
pub use state::State;
pub use step::Action;
pub use trace::trace;
