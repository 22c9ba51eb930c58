//! The Redis protocol: requests in ([`Parser`]), replies out ([`write`]).

mod inline;
mod number;
mod parser;
pub mod write;

pub use number::parse_i64;
pub use parser::{Args, Parsed, Parser, ParserLimits, ProtocolError, Range};
