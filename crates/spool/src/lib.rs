//! The spool: preserved records on disk, so that a client that dies together with the switch loses
//! nothing that it answered.
//!
//! Append-only segments, each record with a checksum. A segment goes when all its records are
//! durable in a snapshot; when the segments outgrow a limit they are rewritten with only what is
//! preserved, the newest version of each key.
//!
//! Files are behind [`Disk`], and time comes in with each call: the gateway brings a directory, the
//! simulator a disk that forgets what was not synced.

mod disk;
mod record;
mod segment;
mod spool;

pub use disk::Disk;
pub use segment::{HEADER, LoadError, Loaded, load, parse_name, segment_name, segments};
pub use spool::{Counts, OpenError, Spool};
