//! What goes into a session and what comes out: configuration, operations, outcomes.

use crate::mechanisms::Mechanisms;
use switchback_wire::{KEY_BYTES_MAX, KeyHash, Seq, VALUE_BYTES_MAX};
use thiserror::Error;

/// Limits and times of a session.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Requests outstanding at a time.
    pub lanes: u32,
    /// Shortest and longest wait before a request is sent again.
    pub retry_us: (u64, u64),
    /// After this a read fails and a write is indeterminate.
    pub deadline_us: u64,
    /// How often to ask for a session while there is none.
    pub hello_us: u64,
    /// Preserved bytes beyond which writes wait for a snapshot; reads wait beyond twice as many.
    pub preserve_bytes_max: usize,
    /// Bytes of large values under way beyond which large operations wait.
    pub large_bytes_max: usize,
    /// Fragments of large values under way at a time, of all lanes together; at least 32.
    pub fragments_max: u16,
    /// Preserved records are kept on disk as well.
    pub spooled: bool,
    /// All, but in simulations.
    pub mechanisms: Mechanisms,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig {
            lanes: 1024,
            retry_us: (10_000, 500_000),
            deadline_us: 5_000_000,
            hello_us: 50_000,
            preserve_bytes_max: 256 << 20,
            large_bytes_max: 64 << 20,
            fragments_max: 256,
            spooled: false,
            mechanisms: Mechanisms::ALL,
        }
    }
}

/// What a client may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// Reads a record.
    Read {
        /// The key.
        key: &'a [u8],
    },
    /// Writes a record.
    Write {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// Milliseconds since the Unix epoch; 0: never.
        expiry_ms: u64,
        /// Only if the record's seq is this one ([`Seq::NONE`]: was never written).
        condition: Option<Seq>,
    },
    /// Deletes a record, whether it exists or not.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Only if the record's seq is this one.
        condition: Option<Seq>,
    },
    /// Lists keys from a position of the hash space on.
    Scan {
        /// First hash position.
        position: u64,
        /// Only count them.
        count_only: bool,
    },
}

/// What became of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome<'a> {
    /// The record that was read.
    Value {
        /// Its value.
        value: &'a [u8],
        /// Its version.
        seq: Seq,
        /// Milliseconds since the Unix epoch; 0: never.
        expiry_ms: u64,
    },
    /// There is no such record; `seq` is what a conditional write has to expect.
    NotFound {
        /// The version of the delete or the expired record; [`Seq::NONE`] if there never was one.
        seq: Seq,
    },
    /// Written or deleted.
    Written {
        /// The new version.
        seq: Seq,
    },
    /// The record has another version.
    ConditionFailed {
        /// Which.
        seq: Seq,
    },
    /// Keys, as [`switchback_wire::scan_entries`] takes them apart.
    Scanned {
        /// The list.
        entries: &'a [u8],
        /// Where to go on; 0: that was all.
        next: u64,
        /// Live keys passed that cannot be cached.
        live: u32,
    },
    /// The node has no room: it refused the write, but a copy of the packet that is still on its
    /// way may find some.
    NoSpace,
    /// No answer in time. Nothing was changed, since nothing was to be changed.
    TimedOut,
    /// No answer that would tell: a write that may or may not have happened, or may still happen.
    Indeterminate,
}

/// A finished operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion<'a> {
    /// As given to [`Session::submit`].
    pub token: u64,
    /// Of its key, or where its scan began.
    pub hash: KeyHash,
    /// What became of it.
    pub outcome: Outcome<'a>,
    /// The cache answered, not a node.
    pub cached: bool,
    /// When it was submitted, of the monotonic clock.
    pub submitted_us: u64,
}

/// Why an operation was not started. Nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SubmitError {
    /// All lanes are busy: try again after a completion.
    #[error("all lanes are busy")]
    Busy,
    /// No session or no lease: try again when there is one.
    #[error("no session with the controller")]
    NoSession,
    /// Preserved records or large values use up their memory: try again after a snapshot or a
    /// completion.
    #[error("too many bytes under way or not yet durable")]
    Backpressure,
    /// Key or value outside the limits: never.
    #[error("a key has 1 to {KEY_BYTES_MAX} bytes, a value at most {VALUE_BYTES_MAX}")]
    TooLarge,
}

/// Counters of a session.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SessionStatistics {
    pub submitted: u64,
    pub completed: u64,
    pub answered_by_cache: u64,
    pub retries: u64,
    pub indeterminate: u64,
    pub timed_out: u64,
    pub ignored_packets: u64,
    pub epoch_changes: u64,
}
