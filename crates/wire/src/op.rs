//! Operations, status and flags: the numbers of `docs/understand/protocol.md`, section 1.

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum $name { $($(#[$vdoc])* $variant = $number,)* }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The one with this number. Outside of this crate packets are parsed, or
            /// [`crate::op_of`] finds the operation: where a byte is in a packet is known here.
            #[inline]
            pub(crate) const fn from_u8(number: u8) -> Option<$name> {
                match number { $($number => Some($name::$variant),)* _ => None }
            }
        }
    };
}

numbered! {
    /// What a packet asks or answers.
    Op {
        /// Request.
        Read = 1,
        /// Request; with [`flags::LARGE`] it commits staged fragments.
        Write = 2,
        /// Request.
        Delete = 3,
        /// Request: stages a part of a large value at the node.
        Fragment = 4,
        /// Request: pulls parts of a large value.
        ReadFragment = 5,
        /// Request: lists a node's keys.
        Scan = 6,
        /// Answer.
        ReadReply = 17,
        /// Answer to writes and deletes.
        WriteReply = 18,
        /// Answer: which fragments are staged.
        FragmentReply = 20,
        /// Answer: one fragment.
        ReadFragmentReply = 21,
        /// Answer.
        ScanReply = 22,
        /// Node to switch: execute this write again, with a new seq.
        Bounce = 24,
        /// Node to switch (NetCache): the value of a cached record.
        CacheUpdate = 25,
        /// Switch to node.
        CacheUpdateAck = 26,
        /// Node to switch (DistCache): this copy answers nothing older than `seq`.
        Invalidate = 27,
        /// Switch to node.
        InvalidateAck = 28,
        /// Switch to neighbour in its chain: its packets arrive.
        Probe = 29,
        /// Control: a slot becomes a hollow, invalid record.
        Admit = 64,
        /// Control.
        SetValid = 65,
        /// Control.
        EvictBegin = 66,
        /// Control.
        Remove = 67,
        /// Control.
        LoadRecord = 68,
        /// Control.
        LoadCounters = 69,
        /// Control.
        AgeCounters = 70,
        /// Control.
        AgeSketch = 71,
        /// Control.
        SnapshotBegin = 72,
        /// Control.
        SnapshotEnd = 73,
        /// Control.
        SetDurableGeneration = 74,
        /// Control.
        SetEpoch = 75,
        /// Control.
        LoadLane = 76,
        /// Control: a node has stored this version of a record.
        Clean = 79,
        /// Report: a record as it was before its first change in a new generation.
        Original = 80,
        /// Report: this record outgrew its slot and wants to be evicted.
        EvictMe = 81,
        /// Control: another epoch and place, without forgetting.
        Freeze = 88,
        /// Control: records of other epochs are gone.
        Forget = 89,
    }
}

impl Op {
    /// Whether it is a switch's answer to a node: it goes back to where the node's packet came
    /// from.
    pub const fn is_acknowledgement(self) -> bool {
        matches!(self, Op::CacheUpdateAck | Op::InvalidateAck)
    }
}

numbered! {
    /// Outcome of a request.
    Status {
        /// Done.
        Ok = 0,
        /// No such record (or a tombstone, or expired).
        NotFound = 1,
        /// The record's seq isn't the expected one; `seq` is the record's.
        ConditionFailed = 2,
        /// Stage the large value again; not an outcome.
        FragmentsMissing = 3,
        /// The record or entry is another version or incarnation by now.
        Changed = 4,
        /// The node's disk is full; nothing was stored; not an outcome.
        NoSpace = 5,
        /// More than the target takes.
        TooLarge = 6,
    }
}

/// Bits of [`crate::Header::flags`].
pub mod flags {
    /// The sketch counts the key as hot.
    pub const HOT: u16 = 1;
    /// The switch answered from its cache.
    pub const CACHED: u16 = 2;
    /// A read that sets a fence at the node, and its answer.
    pub const FENCED: u16 = 4;
    /// The packet carries an evicted record.
    pub const EMBEDDED: u16 = 8;
    /// A write or delete with an expected seq in `guard`.
    pub const CONDITIONAL: u16 = 16;
    /// The value is not (wholly) in this packet.
    pub const LARGE: u16 = 32;
    /// In a bounce or write reply: the request was a delete.
    pub const DELETE: u16 = 64;
}

/// Bits of [`crate::Header::record_flags`].
pub mod record_flags {
    /// The record is a delete.
    pub const TOMBSTONE: u8 = 1;
    /// No node has this version yet.
    pub const DIRTY: u8 = 2;
}
