//! The commands: their table, their options, and those that need no data.

pub(crate) mod glob;
pub(crate) mod introspect;
pub(crate) mod options;
pub(crate) mod parts;
mod table;
mod touches;
mod unsupported;

pub use table::{Spec, VERBS, Verb};
pub use unsupported::Refused;
pub(crate) use unsupported::why_unsupported;
