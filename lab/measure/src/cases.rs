//! What is measured: one kind of packet on one size of table.

use serde::Serialize;
use switchback_wire::{Header, Op, Seq, flags, record_flags};

/// Length of keys.
pub(crate) const KEY_BYTES: usize = 16;

/// In which the tables serve.
pub(crate) const EPOCH: u32 = 1;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Read,
    Write,
    Delete,
    /// An owner's answer to a write, which a keeper stores.
    Keep,
}

/// Whether the cache has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Outcome {
    Hit,
    Miss,
}

/// The size of the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Size {
    pub(crate) value_bytes: u32,
    pub(crate) slots: u32,
}

/// That which all headline figures are of.
pub(crate) const USUAL: Size = Size { value_bytes: 128, slots: 1 << 16 };

/// One cell of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Case {
    pub(crate) operation: Operation,
    pub(crate) outcome: Outcome,
    pub(crate) cpus: usize,
}

impl Case {
    /// The cases of one table, on up to `cpus` CPUs; deletes last, since they leave no values.
    pub(crate) fn all(cpus: usize) -> Vec<Case> {
        let mut cases = Vec::new();
        for operation in [Operation::Read, Operation::Write, Operation::Delete] {
            for outcome in [Outcome::Hit, Outcome::Miss] {
                cases.extend((1..=cpus).map(|cpus| Case { operation, outcome, cpus }));
            }
        }
        cases
    }

    /// The request's header but for key, lane and number, and the length of its value.
    pub(crate) fn request(&self, size: Size) -> (Header, usize) {
        let (op, value_bytes) = match self.operation {
            Operation::Read => (Op::Read, 0),
            Operation::Write => (Op::Write, size.value_bytes as usize),
            Operation::Delete => (Op::Delete, 0),
            Operation::Keep => (Op::WriteReply, size.value_bytes as usize),
        };
        let header = Header { epoch: EPOCH, ..Header::new(op) };
        if self.operation == Operation::Keep {
            let (flags, record_flags) = (flags::CACHED, record_flags::DIRTY);
            return (Header { flags, record_flags, ..header }, value_bytes);
        }
        (header, value_bytes)
    }

    /// The version of the packet at this place: only an owner's answers tell one, each a newer one.
    pub(crate) fn seq(&self, at: usize) -> Seq {
        match self.operation {
            Operation::Keep => Seq::new(EPOCH, at as u64 + 1),
            _ => Seq::NONE,
        }
    }

    /// The counter that counts packets of this case.
    pub(crate) fn counted(&self, statistics: &switchback_datapath::Statistics) -> u64 {
        match (self.operation, self.outcome) {
            (Operation::Keep, _) => statistics.kept,
            (Operation::Read, Outcome::Hit) => statistics.read_hits,
            (Operation::Read, Outcome::Miss) => statistics.read_misses,
            (_, Outcome::Hit) => statistics.absorbed_writes,
            (_, Outcome::Miss) => statistics.forwarded_writes,
        }
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Delete => "delete",
            Operation::Keep => "kept answer",
        };
        write!(f, "{} {operation}", if self.outcome == Outcome::Hit { "hit" } else { "miss" })
    }
}
