//! Conditional writes: between the version that one expects and the one that it makes there must be
//! no other.
//!
//! A write that was superseded before it was read may stand anywhere while it was under way, so
//! one whose number lies in between is excused if an unconditional write of a later number was
//! under way with it: it stands right before that one. Checked at the end of a run, when all
//! numbers are known.

use super::witness::Witness;
use super::{Check, Violation};
use crate::history::{Answered, History, Kind, Op, OpIndex};
use std::collections::BTreeMap;
use switchback_wire::Seq;

/// Checks every conditional write that was done.
pub fn check(history: &History, witness: &Witness) -> Result<(), Violation> {
    let mut changes: BTreeMap<u32, Vec<OpIndex>> = BTreeMap::new();
    let conditional =
        history.ops.iter().filter(|op| op.answered == Answered::Written && op.is_conditional());
    for op in conditional {
        changes.entry(op.key).or_default();
    }
    for (index, op) in history.ops.iter().enumerate() {
        if op.may_have_changed()
            && let Some(of_key) = changes.get_mut(&op.key)
        {
            of_key.push(index as OpIndex);
        }
    }
    for of_key in changes.values() {
        for &index in of_key {
            let op = &history.ops[index as usize];
            if op.answered == Answered::Written && op.is_conditional() {
                check_one(history, witness, of_key, index, op)?;
            }
        }
    }
    Ok(())
}

fn check_one(
    history: &History,
    witness: &Witness,
    of_key: &[OpIndex],
    index: OpIndex,
    op: &Op,
) -> Result<(), Violation> {
    let found = Seq(op.guard);
    if op.guard >= op.seq {
        let text = format!("#{index} became {} although it expected {found}", Seq(op.seq));
        return Err(Violation::of(Check::Condition, op.key, index, text));
    }
    if op.weak && !is_known(history, op) {
        // It went with its client, so what came between may have come back with another.
        return Ok(());
    }
    if found == Seq::NONE {
        return check_absent(history, of_key, index, op);
    }
    for &other in of_key {
        let between = &history.ops[other as usize];
        if between.seq > op.guard
            && between.seq < op.seq
            && stands_there(history, of_key, between, op)
        {
            let expected = witness
                .writer(op.key, found)
                .map_or(String::new(), |writer| format!(" of #{writer}"));
            let text = format!(
                "#{index} expected {found}{expected} and became {}, but #{other} is {} and came between",
                Seq(op.seq),
                Seq(between.seq)
            );
            return Err(Violation::of(Check::Condition, op.key, index, text));
        }
    }
    Ok(())
}

/// A conditional write that expected nothing: the newest version before it must read as nothing.
fn check_absent(
    history: &History,
    of_key: &[OpIndex],
    index: OpIndex,
    op: &Op,
) -> Result<(), Violation> {
    let before = of_key.iter().map(|&other| (other, &history.ops[other as usize]));
    let before = before
        .filter(|(_, other)| other.seq != 0 && other.seq < op.seq && survived(history, other, op));
    let Some((other, newest)) = before.max_by_key(|(_, other)| other.seq) else { return Ok(()) };
    let gone = newest.kind == Kind::Delete || newest.expiry_ms != 0;
    // A delete of unknown number may have come after it, or one that need not have survived, but
    // may have.
    let deleted = of_key.iter().any(|&delete| {
        let delete = &history.ops[delete as usize];
        let deletes = delete.kind == Kind::Delete || delete.expiry_ms != 0;
        let between = delete.seq == 0 || (delete.seq > newest.seq && delete.seq < op.seq);
        deletes && between && delete.invoked < op.responded
    });
    if gone || deleted || !stands_there(history, of_key, newest, op) {
        return Ok(());
    }
    let text = format!(
        "#{index} expected nothing and became {}, but #{other} is {}",
        Seq(op.seq),
        Seq(newest.seq)
    );
    Err(Violation::of(Check::Condition, op.key, index, text))
}

/// Whether a change was still there: what only clients knew of that are gone may have gone with its
/// switch.
fn survived(history: &History, change: &Op, conditional: &Op) -> bool {
    let over = Seq(change.seq).epoch() < Seq(conditional.seq).epoch();
    !over || is_known(history, change)
}

/// Whether an answer that counts has shown the version that a change made.
fn is_known(history: &History, change: &Op) -> bool {
    let is_told =
        |op: &Op| matches!(op.answered, Answered::Value | Answered::Absent | Answered::Written);
    history.of_key(change.key).any(|(_, op)| op.seq == change.seq && !op.weak && is_told(op))
}

/// Whether a change must stand where its number says.
fn stands_there(history: &History, of_key: &[OpIndex], change: &Op, conditional: &Op) -> bool {
    if !survived(history, change, conditional) {
        return false;
    }
    if change.observed || change.is_conditional() {
        return change.answered == Answered::Written || change.observed;
    }
    if change.answered != Answered::Written {
        return false; // it was not read, and its writer was not told
    }
    let excused = of_key.iter().map(|&other| &history.ops[other as usize]).any(|later| {
        !later.is_conditional()
            && later.invoked < change.responded
            && (later.seq > conditional.seq || later.seq == 0)
    });
    !excused
}
