//! Linearizability by witness: the versions' sequence numbers *are* an order of the operations on a
//! key. It remains to check that this order respects real time, which takes one comparison an
//! operation.
//!
//! A version `s` has the position `2 s`; `2 s + 1` is right after it, where a delete of unknown
//! number was. Each key has a *floor*: the highest position that an answered operation made or saw.
//! An operation remembers the floor of the moment at which it was asked; its own position may not
//! be below, and a write's must be above. (Reads of one version come after the write that made it,
//! in any order.) What a conditional write must find is checked at the end, see
//! [`super::conditions`].

use super::{Check, Checks, Violation};
use crate::clock::START_UNIX_MS;
use crate::history::{Answered, History, Kind, NO_OP, Op, OpIndex};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use switchback_wire::Seq;

/// A version whose write isn't known yet.
const ANONYMOUS: OpIndex = NO_OP;

#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

type Versions = HashMap<(u32, u64), OpIndex, BuildHasherDefault<Mixed>>;

#[derive(Clone, Copy, Debug)]
struct KeyState {
    floor: u64,
    /// Who raised the floor.
    by: OpIndex,
    epoch: u32,
    /// Changes of unknown seq that may have happened.
    unassigned: u32,
    /// Versions of unknown write.
    anonymous: u32,
    /// Some of the evidence went with its client.
    has_weak: bool,
}

/// Follows the history as it grows.
pub struct Witness {
    keys: Vec<KeyState>,
    versions: Versions,
    /// How far clocks differ, in milliseconds: expiry is checked only beyond that.
    skew_ms: u64,
    checks: Checks,
}

/// What an answer says.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// The outcome.
    pub answered: Answered,
    /// The version that was made or seen.
    pub seq: Seq,
    /// The operation whose value was read.
    pub saw: OpIndex,
    /// The length of that value.
    pub bytes: u32,
    /// When it expires, in milliseconds since the Unix epoch; 0: never.
    pub expiry_ms: u64,
    /// The client's epoch.
    pub epoch: u32,
    /// A cache answered.
    pub cached: bool,
    /// Only the client keeps what the answer rests on.
    pub at_risk: bool,
}

impl Witness {
    /// For `keys` keys, and clocks that differ by `skew_ms` at most.
    pub fn new(keys: u32, skew_ms: u64, checks: Checks) -> Witness {
        let key = KeyState {
            floor: 0,
            by: NO_OP,
            epoch: 0,
            unassigned: 0,
            anonymous: 0,
            has_weak: false,
        };
        Witness { keys: vec![key; keys as usize], versions: Versions::default(), skew_ms, checks }
    }

    /// How far clocks differ at most, in milliseconds.
    pub fn skew_ms(&self) -> u64 {
        self.skew_ms
    }

    /// An operation is about to begin: notes in it what is known of its key.
    pub fn begin(&mut self, op: &mut Op) {
        let key = &mut self.keys[op.key as usize];
        op.floor = key.floor;
        op.epoch_floor = key.epoch;
        key.unassigned += u32::from(op.changes());
    }

    /// The highest position that an answer has shown.
    pub fn floor(&self, key: u32) -> Seq {
        Seq(self.keys[key as usize].floor / 2)
    }

    /// The newest version of a key that some answer has shown which still counts.
    pub fn known(&self, history: &History, key: u32) -> Seq {
        if !self.keys[key as usize].has_weak {
            return self.floor(key);
        }
        let counts = history.of_key(key).filter(|(_, op)| op.counts());
        counts.map(|(_, op)| Seq(op.seq)).max().unwrap_or(Seq::NONE)
    }

    /// The write that made a version, if it is known.
    pub fn writer(&self, key: u32, seq: Seq) -> Option<OpIndex> {
        self.versions.get(&(key, seq.0)).copied().filter(|&op| op != ANONYMOUS)
    }

    /// An operation was answered.
    pub fn answered(
        &mut self,
        history: &mut History,
        index: OpIndex,
        answer: Answer,
        now_us: u64,
    ) -> Result<(), Violation> {
        let moment = history.tick();
        let now_ms = START_UNIX_MS + now_us / 1000;
        let op = &mut history.ops[index as usize];
        (op.responded, op.responded_us) = (moment, now_us);
        op.answered = answer.answered;
        op.epoch = answer.epoch;
        op.cached = answer.cached;
        op.at_risk = answer.at_risk;
        let key = op.key;
        if matches!(answer.answered, Answered::Nothing | Answered::ConditionFailed) && op.changes()
        {
            if op.seq != 0 {
                let text = format!(
                    "#{index} was answered as not done, but a client saw it as {}",
                    Seq(op.seq)
                );
                return Err(Violation::of(Check::WriteRanTwice, key, index, text));
            }
            self.keys[key as usize].unassigned -= 1;
        }
        if matches!(answer.answered, Answered::Nothing | Answered::Unknown | Answered::Pending) {
            return Ok(());
        }
        if answer.epoch < op.epoch_floor && self.checks.contains(Check::TwoOwners) {
            let text = format!(
                "#{index} was answered in epoch {} after an answer of epoch {}",
                answer.epoch, op.epoch_floor
            );
            return Err(Violation::of(Check::TwoOwners, key, index, text));
        }
        let state = &mut self.keys[key as usize];
        state.epoch = state.epoch.max(answer.epoch);
        let position = match answer.answered {
            Answered::Value => self.value(history, index, answer, now_ms)?,
            Answered::Absent => self.absent(history, index, answer.seq, now_ms)?,
            Answered::Written => self.written(history, index, answer.seq)?,
            _ => self.refused(history, index, answer.seq, now_ms)?,
        };
        self.place(history, index, position)
    }

    fn value(
        &mut self,
        history: &mut History,
        index: OpIndex,
        answer: Answer,
        now_ms: u64,
    ) -> Result<u64, Violation> {
        let key = history.ops[index as usize].key;
        history.ops[index as usize].saw = answer.saw;
        history.ops[index as usize].seq = answer.seq.0;
        let Some(writer) = history.ops.get(answer.saw as usize).copied() else {
            let text = format!("#{index} read bytes that no operation wrote");
            return Err(Violation::of(Check::StrangeValue, key, index, text));
        };
        if writer.key != key
            || writer.kind != Kind::Write
            || matches!(writer.answered, Answered::Nothing | Answered::ConditionFailed)
        {
            let text = format!(
                "#{index} read what #{} was to write, which is not of this key or was not done",
                answer.saw
            );
            return Err(Violation::of(Check::StrangeValue, key, index, text));
        }
        if (answer.bytes, answer.expiry_ms) != (writer.bytes, writer.expiry_ms) {
            let (bytes, expiry_ms) = (answer.bytes, answer.expiry_ms);
            let text = format!(
                "#{index} read #{} as {bytes} bytes until {expiry_ms}, which wrote {} until {}",
                answer.saw, writer.bytes, writer.expiry_ms
            );
            return Err(Violation::of(Check::StrangeValue, key, index, text));
        }
        if writer.expiry_ms != 0
            && now_ms
                > writer.expiry_ms
                    + self.skew_ms
                    + self.read_ms(&history.ops[index as usize], now_ms)
        {
            let text = format!(
                "#{index} read #{}, which expired at {}, at {now_ms}",
                answer.saw, writer.expiry_ms
            );
            return Err(Violation::of(Check::Expiry, key, index, text));
        }
        self.assign(history, index, answer.saw, answer.seq)?;
        history.ops[answer.saw as usize].observed = true;
        Ok(2 * answer.seq.0)
    }

    /// How long an operation took: its answer may be that old.
    fn read_ms(&self, op: &Op, now_ms: u64) -> u64 {
        now_ms.saturating_sub(START_UNIX_MS + op.invoked_us / 1000) + 1
    }

    /// A write's version is known now; `index` shows it.
    fn assign(
        &mut self,
        history: &mut History,
        index: OpIndex,
        write: OpIndex,
        seq: Seq,
    ) -> Result<(), Violation> {
        let op = &mut history.ops[write as usize];
        let key = op.key;
        if op.seq != 0 && op.seq != seq.0 {
            let text = format!("#{write} is both {} and {seq}", Seq(op.seq));
            return Err(Violation::of(Check::WriteRanTwice, key, index, text));
        }
        if op.seq == 0 {
            op.seq = seq.0;
            self.keys[key as usize].unassigned -= 1;
        }
        match self.versions.insert((key, seq.0), write) {
            None => {}
            Some(ANONYMOUS) => self.keys[key as usize].anonymous -= 1,
            Some(other) if other == write => {}
            Some(other) => {
                let text = format!("#{write} and #{other} are both version {seq}");
                return Err(Violation::of(Check::WriteRanTwice, key, index, text));
            }
        }
        Ok(())
    }

    fn written(
        &mut self,
        history: &mut History,
        index: OpIndex,
        seq: Seq,
    ) -> Result<u64, Violation> {
        self.assign(history, index, index, seq)?;
        let op = &history.ops[index as usize];
        if op.is_conditional()
            && let Some(expected) = self.writer(op.key, Seq(op.guard))
        {
            history.ops[expected as usize].observed = true;
        }
        let op = &history.ops[index as usize];
        if 2 * seq.0 <= op.floor && !op.floor_is_excused(history, self, seq.0) {
            let text = format!(
                "#{index} became {seq}, but {} was known before it was asked",
                Seq(op.floor / 2)
            );
            return Err(Violation::of(Check::Linearizable, op.key, index, text));
        }
        Ok(2 * seq.0)
    }

    fn refused(
        &mut self,
        history: &mut History,
        index: OpIndex,
        seq: Seq,
        now_ms: u64,
    ) -> Result<u64, Violation> {
        let op = history.ops[index as usize];
        if seq.0 == op.guard {
            let text = format!(
                "#{index} was refused although the record has the version that it expects, {seq}"
            );
            return Err(Violation::of(Check::Condition, op.key, index, text));
        }
        if seq.counter() == 0 {
            // The floor speaks for a key that is gone.
            return self.absent(history, index, seq, now_ms);
        }
        self.see(history, index, op.key, seq)?;
        if let Some(seen) = self.writer(op.key, seq) {
            history.ops[seen as usize].observed = true;
        }
        history.ops[index as usize].seq = seq.0; // for the history's reader
        Ok(2 * seq.0)
    }

    /// A version was seen without its value.
    fn see(
        &mut self,
        history: &History,
        index: OpIndex,
        key: u32,
        seq: Seq,
    ) -> Result<(), Violation> {
        if self.versions.contains_key(&(key, seq.0)) {
            return Ok(());
        }
        self.versions.insert((key, seq.0), ANONYMOUS);
        let state = &mut self.keys[key as usize];
        state.anonymous += 1;
        if state.anonymous > state.unassigned {
            let ops = history.of_key(key).count();
            let text = format!(
                "#{index} saw version {seq}, which none of {ops} operations on the key can have made"
            );
            return Err(Violation::of(Check::WriteRanTwice, key, index, text));
        }
        Ok(())
    }

    fn absent(
        &mut self,
        history: &mut History,
        index: OpIndex,
        seq: Seq,
        now_ms: u64,
    ) -> Result<u64, Violation> {
        let op = history.ops[index as usize];
        if op.kind == Kind::Read {
            history.ops[index as usize].seq = seq.0;
        }
        if seq.counter() == 0 {
            return self.absent_without_trace(history, index, now_ms);
        }
        self.see(history, index, op.key, seq)?;
        let Some(writer) = self.writer(op.key, seq) else { return Ok(2 * seq.0) };
        history.ops[writer as usize].observed = true;
        let writer_op = &history.ops[writer as usize];
        if !self.is_gone(writer_op, now_ms) {
            let text =
                format!("#{index} found nothing at {seq}, but that is #{writer}: {writer_op}");
            return Err(Violation::of(Check::Expiry, op.key, index, text));
        }
        Ok(2 * seq.0)
    }

    /// Whether what a write made reads as absent, by some clock.
    pub fn is_gone(&self, writer: &Op, now_ms: u64) -> bool {
        writer.kind == Kind::Delete
            || (writer.expiry_ms != 0 && writer.expiry_ms <= now_ms + self.skew_ms)
    }

    /// Whether a key may be absent, without a trace, once nothing is under way: its newest version
    /// is a delete or may have expired.
    pub fn may_be_absent(&self, history: &History, key: u32, now_ms: u64) -> bool {
        let floor = self.keys[key as usize].floor;
        if floor == 0 || floor % 2 == 1 {
            return true;
        }
        let newest = self.writer(key, Seq(floor / 2));
        let later = |op: &Op| {
            op.may_have_changed() && self.is_gone(op, now_ms) && (op.seq == 0 || 2 * op.seq > floor)
        };
        newest.is_none_or(|writer| self.is_gone(&history.ops[writer as usize], now_ms))
            || history.of_key(key).any(|(_, op)| later(op))
    }

    /// The record is unknown: never written, or its tombstone is gone.
    fn absent_without_trace(
        &mut self,
        history: &History,
        index: OpIndex,
        now_ms: u64,
    ) -> Result<u64, Violation> {
        let op = &history.ops[index as usize];
        if op.floor == 0 || op.floor % 2 == 1 {
            return Ok(op.floor);
        }
        let newest = self.writer(op.key, Seq(op.floor / 2));
        if newest.is_none_or(|writer| self.is_gone(&history.ops[writer as usize], now_ms)) {
            return Ok(op.floor);
        }
        let later = |other: &Op| {
            other.may_have_changed()
                && self.is_gone(other, now_ms)
                && other.invoked < op.responded
                && (other.seq == 0 || 2 * other.seq > op.floor)
        };
        if history.of_key(op.key).any(|(_, other)| later(other)) {
            return Ok(op.floor + 1);
        }
        // What survived of clients that are gone may end with a delete, of which nothing is left.
        let strong = op.strong_floor(history);
        let gone = |other: &Op| {
            other.may_have_changed() && self.is_gone(other, now_ms) && 2 * other.seq <= op.floor
        };
        let deleted = history
            .of_key(op.key)
            .filter(|(_, other)| gone(other))
            .map(|(_, other)| other.seq)
            .max();
        let found = deleted.unwrap_or(0);
        if found >= strong && op.floor_is_excused(history, self, found) {
            return Ok(2 * found);
        }
        Err(self.too_old(history, index, "nothing"))
    }

    /// Takes an answered operation's position, which must not be below what was known when it was
    /// asked.
    fn place(
        &mut self,
        history: &mut History,
        index: OpIndex,
        position: u64,
    ) -> Result<(), Violation> {
        let op = &history.ops[index as usize];
        let key = op.key;
        if position < op.floor {
            if !op.floor_is_excused(history, self, position / 2) {
                return Err(self.too_old(
                    history,
                    index,
                    &format!("version {}", Seq(position / 2)),
                ));
            }
            self.forget_weak(history, key, position);
        }
        let state = &mut self.keys[key as usize];
        if position > state.floor {
            state.floor = position;
            state.by = index;
        }
        Ok(())
    }

    fn too_old(&self, history: &History, index: OpIndex, found: &str) -> Violation {
        let op = &history.ops[index as usize];
        let newest = Seq(op.floor / 2);
        let check = if newest.epoch() >= op.epoch {
            Check::Linearizable
        } else if history.of_key(op.key).any(|(_, other)| {
            other.answered == Answered::Written
                && other.seq == newest.0
                && other.responded < op.invoked
        }) {
            Check::AcknowledgedWriteLost
        } else {
            Check::SeenValueVanished
        };
        let text = format!("#{index} found {found}, but {newest} was known before it was asked");
        Violation::of(check, op.key, index, text)
    }

    /// The client of some answers, in its lives since this one, is gone for good, with what they
    /// rest on: `lost` says which keys' newest it alone kept.
    pub fn weaken(
        &mut self,
        history: &mut History,
        client: u16,
        since_life: u16,
        lost: impl Fn(u32, Seq) -> bool,
    ) {
        for op in history
            .ops
            .iter_mut()
            .filter(|op| op.client == client && op.life >= since_life && op.at_risk)
        {
            if !op.weak && lost(op.key, Seq(op.seq)) {
                op.weak = true;
                self.keys[op.key as usize].has_weak = true;
            }
        }
    }

    /// What every switch that had it is gone with is lost, as declared: `lost` says which versions
    /// of which keys.
    pub fn lose(&mut self, history: &mut History, lost: impl Fn(u32, Seq) -> bool) {
        for op in history.ops.iter_mut().filter(|op| !op.weak && lost(op.key, Seq(op.seq))) {
            op.weak = true;
            self.keys[op.key as usize].has_weak = true;
        }
    }

    /// The same for one answer, which its client handed out only later.
    pub fn weaken_one(&mut self, history: &mut History, index: OpIndex) {
        let op = &mut history.ops[index as usize];
        op.weak = true;
        self.keys[op.key as usize].has_weak = true;
    }

    /// Nothing is under way, and a key's node has `stored` of it: what only weak evidence speaks
    /// for is lost if that is older.
    pub fn settle(&mut self, history: &History, key: u32, stored: Seq) {
        let state = &self.keys[key as usize];
        if state.has_weak && 2 * stored.0 < state.floor {
            self.forget_weak(history, key, 2 * stored.0);
        }
    }

    /// What only weak evidence speaks for has turned out to be lost.
    fn forget_weak(&mut self, history: &History, key: u32, position: u64) {
        let strong = history.of_key(key).filter(|(_, op)| op.counts());
        let floor = strong.map(|(_, op)| 2 * op.seq).max().unwrap_or(0);
        self.keys[key as usize].floor = floor.max(position);
    }
}

impl Op {
    /// Whether its answer shows a version, and isn't lost.
    fn counts(&self) -> bool {
        !self.weak
            && self.responded != u64::MAX
            && self.seq != 0
            && self.answered != Answered::Unknown
    }

    /// Whether everything above `found` is known from clients only that are gone, in an epoch that
    /// is over.
    fn floor_is_excused(&self, history: &History, witness: &Witness, found: u64) -> bool {
        let may_be =
            witness.keys[self.key as usize].has_weak && Seq(self.floor / 2).epoch() < self.epoch;
        may_be && self.strong_floor(history) <= found
    }

    /// The newest version that a client which still counts knew of when this was asked.
    fn strong_floor(&self, history: &History) -> u64 {
        let answered = |other: &Op| {
            other.responded < self.invoked
                && other.answered != Answered::Unknown
                && other.answered != Answered::Nothing
                && !other.weak
        };
        history
            .of_key(self.key)
            .filter(|(_, other)| answered(other))
            .map(|(_, other)| other.seq)
            .max()
            .unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One key of several clients; every answer rests on what its client alone keeps.
    struct OneKey {
        witness: Witness,
        history: History,
    }

    impl OneKey {
        fn new() -> OneKey {
            OneKey { witness: Witness::new(1, 0, Checks::ALL), history: History::default() }
        }

        fn answer(
            &mut self,
            (client, life): (u16, u16),
            kind: Kind,
            answered: Answered,
            seq: Seq,
            epoch: u32,
        ) -> Result<OpIndex, Violation> {
            let mut op = Op::ask(client, life, 0, kind);
            self.witness.begin(&mut op);
            let index = self.history.begin(op, 0);
            let answer = Answer {
                answered,
                seq,
                saw: NO_OP,
                bytes: 0,
                expiry_ms: 0,
                epoch,
                cached: true,
                at_risk: true,
            };
            self.witness.answered(&mut self.history, index, answer, 0).map(|()| index)
        }

        /// A write of epoch 1, under this counter.
        fn write(&mut self, client: (u16, u16), counter: u64) -> OpIndex {
            let seq = Seq::new(1, counter);
            self.answer(client, Kind::Write, Answered::Written, seq, 1).expect("it is the newest")
        }

        /// What is wrong with a read of the next epoch that finds no record, and no trace of one.
        fn absent(&mut self) -> Option<Check> {
            let read = self.answer((9, 1), Kind::Read, Answered::Absent, Seq::NONE, 2);
            read.err().map(|violation| violation.check)
        }

        fn gives_up(&mut self, client: u16, since_life: u16) {
            self.witness.weaken(&mut self.history, client, since_life, |_, _| true);
        }
    }

    #[test]
    fn what_a_client_keeps_is_lost_only_with_it() {
        let mut told = OneKey::new();
        told.write((1, 1), 1);
        assert_eq!(told.absent(), Some(Check::AcknowledgedWriteLost));
        let mut told = OneKey::new();
        told.write((1, 1), 1);
        told.gives_up(2, 1);
        assert_eq!(told.absent(), Some(Check::AcknowledgedWriteLost));
        told.gives_up(1, 1);
        assert_eq!(told.absent(), None);
    }

    /// What its spool had kept since an earlier life of the client counts no more either.
    #[test]
    fn a_client_is_given_up_since_a_life() {
        let mut told = OneKey::new();
        told.write((1, 2), 1);
        told.gives_up(1, 3);
        assert_eq!(told.absent(), Some(Check::AcknowledgedWriteLost));
        told.gives_up(1, 2);
        assert_eq!(told.absent(), None);
    }

    /// The answer had waited for its client's spool.
    #[test]
    fn an_answer_that_comes_after_its_client_was_given_up_is_no_evidence() {
        let mut told = OneKey::new();
        told.gives_up(1, 1);
        let late = told.write((1, 1), 1);
        assert_eq!(told.absent(), Some(Check::AcknowledgedWriteLost));
        told.witness.weaken_one(&mut told.history, late);
        assert_eq!(told.absent(), None);
    }

    #[test]
    fn a_node_may_lack_what_is_lost_though_no_read_has_shown_it() {
        let (older, newer) = (Seq::new(1, 1), Seq::new(1, 2));
        let mut told = OneKey::new();
        told.write((1, 1), 1);
        told.write((2, 1), 2);
        let floor_with = |told: &mut OneKey, stored| {
            told.witness.settle(&told.history, 0, stored);
            told.witness.floor(0)
        };
        assert_eq!(floor_with(&mut told, older), newer, "nothing is lost");
        told.gives_up(2, 1);
        assert_eq!(floor_with(&mut told, newer), newer, "it is there");
        assert_eq!(floor_with(&mut told, older), older);
        assert_eq!(floor_with(&mut told, Seq::NONE), older, "the first client has it");
    }

    /// It leaves no record, although the client that was told of it is gone.
    #[test]
    fn a_delete_may_survive_its_client() {
        let lost_with = |kind| {
            let mut told = OneKey::new();
            told.write((1, 1), 1);
            told.answer((2, 1), kind, Answered::Written, Seq::new(1, 2), 1)
                .expect("it is the newest");
            told.write((2, 1), 3);
            told.gives_up(2, 1);
            told.absent()
        };
        assert_eq!(lost_with(Kind::Delete), None);
        assert_eq!(
            lost_with(Kind::Write),
            Some(Check::AcknowledgedWriteLost),
            "the first client's write is there still"
        );
    }
}
