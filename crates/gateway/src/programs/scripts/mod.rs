//! Lua 5.1, as Redis 7.0 has it: one state a worker, made when the first script comes.

mod bits;
mod commands;
mod engine;
mod host;
mod json;
mod known;
mod msgpack;
mod number;
mod patterns;
mod raw;
mod replies;
mod sources;
mod structs;
mod words;

pub(crate) use commands::{Call, eval, script};
pub(crate) use engine::{Compiled, Engine};
pub(crate) use host::Host;
pub(crate) use sources::{Sha, Sources, sha};
