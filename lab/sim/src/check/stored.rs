//! After a drain a node's record is compared with the operation that wrote it: number, bytes,
//! expiry, tombstone.

use super::witness::Witness;
use crate::history::{History, Kind, Op, OpIndex, writer_of};
use switchback_core::storage::Record;
use switchback_wire::Seq;

/// What a node has of a key.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// The record, if there is one.
    pub record: Option<&'a Record>,
    /// Tombstones and expired records up to this one may have been dropped.
    pub floor: Seq,
}

/// Compares what a node has of a key with the history, at a time when nothing is under way. An
/// error says what is wrong.
pub fn compare(
    history: &History,
    witness: &Witness,
    key: u32,
    stored: Stored<'_>,
    now_ms: u64,
) -> Result<(), String> {
    let known = witness.floor(key);
    let Some(record) = stored.record else {
        if stored.floor < known {
            return Err(format!("is known as {known}, but its node has nothing"));
        }
        let absent = witness.may_be_absent(history, key, now_ms);
        return if absent {
            Ok(())
        } else {
            Err(format!("is {known}, which is not gone, but its node has nothing"))
        };
    };
    if record.seq < known {
        return Err(format!("is known as {known}, but its node has {}", record.seq));
    }
    match writer(history, witness, key, record, now_ms) {
        // What a reader preserved of an expired record is a tombstone of its version.
        Some((_, op)) if record.tombstone && witness.is_gone(op, now_ms) => Ok(()),
        Some((index, op)) => compare_with(index, op, record),
        None => {
            Err(format!("has {} at its node, which no operation on it can have made", record.seq))
        }
    }
}

/// The operation that made a record, or one that may have if its version has not been told to any
/// client.
fn writer<'a>(
    history: &'a History,
    witness: &Witness,
    key: u32,
    record: &Record,
    now_ms: u64,
) -> Option<(OpIndex, &'a Op)> {
    if let Some(index) = witness.writer(key, record.seq) {
        return Some((index, &history.ops[index as usize]));
    }
    let may_be = |op: &Op| op.key == key && op.may_have_changed() && op.seq == 0;
    if record.tombstone {
        return history.of_key(key).find(|(_, op)| may_be(op) && witness.is_gone(op, now_ms));
    }
    let index = writer_of(&record.value)?;
    let op = history.ops.get(index as usize)?;
    (may_be(op) && op.kind == Kind::Write).then_some((index, op))
}

fn compare_with(index: OpIndex, op: &Op, record: &Record) -> Result<(), String> {
    let seq = record.seq;
    if record.tombstone || op.kind == Kind::Delete {
        let is = if record.tombstone { "a tombstone" } else { "a value" };
        return Err(format!("has {is} as {seq} at its node, but that is #{index}: {op}"));
    }
    if writer_of(&record.value) != Some(index) || record.value.len() != op.bytes as usize {
        let bytes = record.value.len();
        return Err(format!(
            "has {bytes} other bytes as {seq} at its node than #{index} wrote: {op}"
        ));
    }
    if record.expiry_ms != op.expiry_ms {
        let (is, was) = (record.expiry_ms, op.expiry_ms);
        return Err(format!(
            "expires at {is} at its node, but #{index} wrote {seq} to expire at {was}"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Checks;
    use crate::check::witness::Answer;
    use crate::history::{Answered, NO_OP, fill_value};

    const VERSION: Seq = Seq(1 << 40);
    const EXPIRY_MS: u64 = 1000;

    /// A write of 20 bytes that expires, done as [`VERSION`], and a delete of unknown outcome on
    /// another key.
    fn history() -> (History, Witness) {
        let (mut history, mut witness) = (History::default(), Witness::new(2, 0, Checks::ALL));
        let mut write = Op { bytes: 20, expiry_ms: EXPIRY_MS, ..Op::ask(0, 1, 0, Kind::Write) };
        witness.begin(&mut write);
        let index = history.begin(write, 0);
        let answer = Answer {
            answered: Answered::Written,
            seq: VERSION,
            saw: NO_OP,
            bytes: 0,
            expiry_ms: 0,
            epoch: 1,
            cached: false,
            at_risk: false,
        };
        witness.answered(&mut history, index, answer, 10).unwrap();
        let mut delete = Op::ask(0, 1, 1, Kind::Delete);
        witness.begin(&mut delete);
        history.begin(delete, 20);
        (history, witness)
    }

    fn record(op: OpIndex, bytes: usize) -> Record {
        let mut value = Vec::new();
        fill_value(op, bytes, &mut value);
        Record { seq: VERSION, expiry_ms: EXPIRY_MS, value, ..Record::default() }
    }

    fn verdict(key: u32, record: Option<&Record>) -> Result<(), String> {
        verdict_at(key, record, 1)
    }

    fn verdict_at(key: u32, record: Option<&Record>, now_ms: u64) -> Result<(), String> {
        let (history, witness) = history();
        let floor = if record.is_none() { VERSION } else { Seq::NONE };
        compare(&history, &witness, key, Stored { record, floor }, now_ms)
    }

    #[test]
    fn what_was_written_is_what_is_stored() {
        verdict(0, Some(&record(0, 20))).unwrap();
        let tombstone = Record { seq: VERSION, tombstone: true, ..Record::default() };
        verdict(1, Some(&tombstone)).unwrap();
        verdict_at(0, Some(&tombstone), EXPIRY_MS).unwrap();
        verdict_at(0, None, EXPIRY_MS).unwrap();
        verdict(1, None).unwrap();
    }

    #[test]
    fn the_right_number_with_other_contents_is_noticed() {
        let good = record(0, 20);
        let mut damaged = good.clone();
        damaged.value[12] ^= 1;
        let cases = [
            ("damaged", damaged),
            ("cut off", record(0, 12)),
            ("of another write", record(1, 20)),
            ("without expiry", Record { expiry_ms: 0, ..good.clone() }),
            (
                "deleted",
                Record { tombstone: true, value: Vec::new(), expiry_ms: 0, ..good.clone() },
            ),
            ("older", Record { seq: Seq(VERSION.0 - 1), ..good.clone() }),
            ("from nowhere", Record { seq: Seq(VERSION.0 + 1), ..good }),
        ];
        for (how, stored) in &cases {
            assert!(verdict(0, Some(stored)).is_err(), "a record that is {how}");
        }
        assert!(verdict(0, None).is_err(), "a record that was dropped although it had not expired");
        assert!(verdict(1, Some(&record(0, 20))).is_err(), "a record of another key");
    }
}
