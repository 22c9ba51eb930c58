//! The Redis protocol: requests in ([`Parser`]), replies out ([`write`]).

mod args;
mod inline;
mod number;
mod parser;
pub mod write;

pub use args::{Args, Range};
pub use number::parse_i64;
pub use parser::{Parsed, Parser, ParserLimits, ProtocolError};
