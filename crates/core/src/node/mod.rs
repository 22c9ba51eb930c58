//! The node: the shim between the data plane and a storage engine (rules 2, 3 and 5; protocol,
//! section 5).
//!
//! An environment owns a [`Shim`] and an engine and does this, in a loop: feed packets
//! ([`Shim::handle_packet`]), commands ([`Shim::handle_message`]), engine answers
//! ([`Shim::handle_done`]) and time ([`Shim::handle_timeout`], due at [`Shim::poll_timeout`]); then
//! pass on what [`Shim::poll_ops`], [`Shim::poll_packet`] and [`Shim::poll_message`] give, until
//! nothing is left. Where partitions have several replicas, it also carries what
//! [`Shim::poll_link`] gives to other nodes ([`Shim::handle_link`]), in order as far as it can.
//!
//! A shim is two things. The *decider* says what becomes of a request, by what it knows of key and
//! lane: it changes nothing else. The *replica* has the engine store that, and answers. With one
//! replica of each partition these are one step: the shim hands what the decider says to its
//! replica at once. With several, the head's decider decides; what it has stored and decided goes
//! over *links* from replica to replica, and the tail's answers. A *join* brings a partition to a
//! node that has nothing of it. *Copies* knows which caches answer
//! beside the node, and lets a write run once they don't (DistCache).

mod copies;
mod decider;
mod join;
mod link;
mod replica;
mod shim;

pub use join::CopyAt;
pub use link::{
    Answer, Copy, Effect, FRAME_BYTES_MAX, Frame, HotHint, LINK_BYTES_MAX, LinkMessage,
};
pub use shim::{NodeLimits, NodeStatistics, Shim};
