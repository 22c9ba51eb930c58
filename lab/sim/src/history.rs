//! What the clients' applications asked and were told, as they saw it.

use crate::check::scans::Listing;
use std::fmt;
use switchback_wire::Seq;

/// An operation's place in the history.
pub type OpIndex = u32;
/// No operation.
pub const NO_OP: OpIndex = u32::MAX;
/// The guard of an operation without a condition.
pub const NO_GUARD: u64 = u64::MAX;

/// What was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum Kind {
    Read,
    Write,
    Delete,
}

/// What was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answered {
    /// Nothing yet, or never: its client crashed.
    Pending,
    /// The value of another operation.
    Value,
    /// There is no such record.
    Absent,
    /// Written or deleted.
    Written,
    /// The record has another version.
    ConditionFailed,
    /// Nothing was done, and nothing will be.
    Nothing,
    /// It may have happened, and may still.
    Unknown,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub struct Op {
    /// Whose.
    pub client: u16,
    /// Which life of that client.
    pub life: u16,
    /// On which key.
    pub key: u32,
    /// What was asked.
    pub kind: Kind,
    /// The version that it expects, or [`NO_GUARD`].
    pub guard: u64,
    /// When what it writes expires.
    pub expiry_ms: u64,
    /// Length of what it writes.
    pub bytes: u32,
    /// When it was asked and answered, in the order of all such moments.
    pub invoked: u64,
    /// See `invoked`; `u64::MAX` without an answer.
    pub responded: u64,
    /// The same in virtual time.
    pub invoked_us: u64,
    /// The same in virtual time.
    pub responded_us: u64,
    /// What was answered.
    pub answered: Answered,
    /// The version that it made or saw; 0 while unknown or if there is none.
    pub seq: u64,
    /// The operation whose value it read, or [`NO_OP`].
    pub saw: OpIndex,
    /// The newest position of its key that a client knew of when it was asked (see the checker).
    pub floor: u64,
    /// The latest epoch in which an operation on its key had been answered when it was asked.
    pub epoch_floor: u32,
    /// The epoch of its answer.
    pub epoch: u32,
    /// A cache answered.
    pub cached: bool,
    /// Only its client keeps what the answer rests on.
    pub at_risk: bool,
    /// Its client, which alone kept what the answer rests on, is gone.
    pub weak: bool,
    /// A client saw what it wrote.
    pub observed: bool,
}

impl Op {
    /// A question.
    pub fn ask(client: u16, life: u16, key: u32, kind: Kind) -> Op {
        Op {
            client,
            life,
            key,
            kind,
            guard: NO_GUARD,
            expiry_ms: 0,
            bytes: 0,
            invoked: 0,
            responded: u64::MAX,
            invoked_us: 0,
            responded_us: 0,
            answered: Answered::Pending,
            seq: 0,
            saw: NO_OP,
            floor: 0,
            epoch_floor: 0,
            epoch: 0,
            cached: false,
            at_risk: false,
            weak: false,
            observed: false,
        }
    }

    /// Whether it changes the record if it happens.
    #[inline]
    pub fn changes(&self) -> bool {
        self.kind != Kind::Read
    }

    /// Whether it has a condition.
    #[inline]
    pub fn is_conditional(&self) -> bool {
        self.guard != NO_GUARD
    }

    /// Whether it may have changed the record.
    pub fn may_have_changed(&self) -> bool {
        self.changes()
            && matches!(self.answered, Answered::Pending | Answered::Written | Answered::Unknown)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10} us  client{}.{} ", self.invoked_us, self.client, self.life)?;
        match self.kind {
            Kind::Read => write!(f, "read")?,
            Kind::Write => write!(f, "write of {} bytes", self.bytes)?,
            Kind::Delete => write!(f, "delete")?,
        }
        if self.is_conditional() {
            write!(f, " if {}", Seq(self.guard))?;
        }
        if self.expiry_ms != 0 {
            write!(f, " until {}", self.expiry_ms)?;
        }
        match self.answered {
            Answered::Pending => return write!(f, " -> no answer"),
            Answered::Value => write!(f, " -> value of #{} at {}", self.saw, Seq(self.seq))?,
            Answered::Absent => write!(f, " -> absent at {}", Seq(self.seq))?,
            Answered::Written => write!(f, " -> done as {}", Seq(self.seq))?,
            Answered::ConditionFailed => write!(f, " -> refused, it is {}", Seq(self.seq))?,
            Answered::Nothing => write!(f, " -> nothing was done")?,
            Answered::Unknown => write!(f, " -> unknown")?,
        }
        let by = if self.cached { "cache" } else { "node" };
        write!(f, " ({by}, epoch {}, at {} us)", self.epoch, self.responded_us)
    }
}

/// All operations of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order of their beginnings.
    pub ops: Vec<Op>,
    /// Answers to scans.
    pub listings: Vec<Listing>,
    moment: u64,
}

impl History {
    /// The next moment.
    pub fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// An operation begins.
    pub fn begin(&mut self, mut op: Op, now_us: u64) -> OpIndex {
        op.invoked = self.tick();
        op.invoked_us = now_us;
        self.ops.push(op);
        (self.ops.len() - 1) as OpIndex
    }

    /// The operations on one key.
    pub fn of_key(&self, key: u32) -> impl Iterator<Item = (OpIndex, &Op)> {
        self.ops
            .iter()
            .enumerate()
            .filter(move |(_, op)| op.key == key)
            .map(|(index, op)| (index as OpIndex, op))
    }
}

/// Shortest value: it has to name its write.
pub const VALUE_BYTES_MIN: usize = 8;

fn word(op: OpIndex, at: usize) -> u64 {
    (u64::from(op) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((at % 63) as u32)
        ^ at as u64
}

/// Fills `to` with the value that an operation writes: no two operations write the same.
pub fn fill_value(op: OpIndex, bytes: usize, to: &mut Vec<u8>) {
    assert!(bytes >= VALUE_BYTES_MIN);
    to.clear();
    to.resize(bytes, 0);
    let (head, rest) = to.split_first_chunk_mut::<8>().expect("long enough");
    *head = u64::from(op).to_le_bytes();
    let mut words = rest.chunks_exact_mut(8);
    let mut at = 1;
    for chunk in &mut words {
        chunk.copy_from_slice(&word(op, at).to_le_bytes());
        at += 1;
    }
    let last = words.into_remainder();
    last.copy_from_slice(&word(op, at).to_le_bytes()[..last.len()]);
}

/// The operation that wrote a value, if it is that value, whole and unchanged (its length is still
/// to be compared).
pub fn writer_of(value: &[u8]) -> Option<OpIndex> {
    let (head, rest) = value.split_first_chunk::<8>()?;
    let op = u32::try_from(u64::from_le_bytes(*head)).ok()?;
    let words = rest.chunks_exact(8);
    let last = words.remainder();
    let count = words.len();
    let same = |(at, chunk): (usize, &[u8])| {
        u64::from_le_bytes(chunk.try_into().expect("eight")) == word(op, at + 1)
    };
    let whole =
        words.enumerate().all(same) && word(op, count + 1).to_le_bytes()[..last.len()] == *last;
    whole.then_some(op)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_names_its_write_and_damage_shows() {
        let mut value = Vec::new();
        for (op, bytes) in [(0, 8), (7, 13), (70_000, 1024), (3, 5000)] {
            fill_value(op, bytes, &mut value);
            assert_eq!((writer_of(&value), value.len()), (Some(op), bytes));
            if bytes > 8 {
                *value.last_mut().unwrap() ^= 1;
                assert_eq!(writer_of(&value), None);
            }
        }
        assert_eq!(writer_of(&[1, 2]), None);
    }
}
