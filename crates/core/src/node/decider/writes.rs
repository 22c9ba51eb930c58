//! Writes and deletes: which run, which are answered by what is stored, which go back.

use super::{Decider, RaisedFence};
use crate::storage::{LaneCompletion, Mark, Newest, PutCondition, Record};
use std::ops::Bound;
use switchback_wire::{Header, Op, Seq, Status, flags};

/// What is to be done about a write next.
#[derive(Debug)]
pub(in crate::node) enum Decision {
    /// Nothing: another copy of it gets the answer, or nothing waits for one.
    Ignore,
    /// Nothing comes of this copy; the next one is another try.
    NothingCame,
    /// The same, because there is no room for the fence that its answer needs.
    NoFence,
    /// It may have run, and its record may have been deleted and dropped since; or not. So it gets
    /// no answer.
    BelowFloor,
    /// Hand it to the engine: [`Decider::run`].
    Run,
    /// Read what is stored, which tells: [`Decider::judge`].
    LookUp,
    /// Make this mark durable first, then read what is stored.
    SaveFence(Mark),
    /// Answer so, and tell this number.
    Answer(Status, Seq),
    /// Answer that it ran: it did, or what is stored now is newer.
    Superseded,
    /// Make this mark durable, then answer that the condition failed because of the version that is
    /// told.
    Refuse {
        /// The mark with the fence.
        mark: Mark,
        /// The version.
        told: Seq,
    },
    /// Send it back to where lanes are arbitrated.
    Bounce,
}

/// A write as the engine gets it.
#[derive(Debug)]
pub(in crate::node) struct Put {
    /// What to store.
    pub(in crate::node) record: Record,
    /// When to store it.
    pub(in crate::node) condition: PutCondition,
    /// Stored with it.
    pub(in crate::node) completion: Option<LaneCompletion>,
    /// It may turn out to be older than what is stored, and is judged then.
    pub(in crate::node) may_be_older: bool,
}

impl Decider {
    /// A write has arrived. `lacks_value`: it commits a staged value that isn't there.
    pub(in crate::node) fn write(&self, header: &Header, lacks_value: bool) -> Decision {
        let lane = (header.lane, header.request);
        if header.has(flags::CONDITIONAL) && self.mechanisms.node_completion() {
            if self.was_applied(header) {
                return Decision::Answer(Status::Ok, header.seq);
            }
            // A duplicate of what the engine is deciding: that answer is the answer. Or one that is
            // past: its completion would replace a newer one, of which copies may still come.
            if self.deciding.contains(&lane) || self.is_past(lane) {
                return Decision::Ignore;
            }
        }
        let fenced = header.seq <= self.marks.fence(&header.key_hash) && self.mechanisms.fence();
        let below_floor = header.seq <= self.rising.of(&header.key_hash) && self.mechanisms.floor();
        // Only the stored number tells: an old duplicate is answered, anything else goes back, or
        // is staged anew.
        if fenced || below_floor || lacks_value { Decision::LookUp } else { Decision::Run }
    }

    fn was_applied(&self, header: &Header) -> bool {
        let done = self.completions.get(&header.lane);
        done.is_some_and(|done| done.request == header.request && done.seq == header.seq)
    }

    /// Whether a conditional write of a later request of the lane was applied, or is being decided:
    /// nothing waits for this one any more.
    fn is_past(&self, (lane, request): (u32, u64)) -> bool {
        let later = (Bound::Excluded((lane, request)), Bound::Included((lane, u64::MAX)));
        self.completions.get(&lane).is_some_and(|done| done.request > request)
            || self.deciding.range(later).next().is_some()
    }

    /// A write runs, if the engine finds it newer and its condition met.
    pub(in crate::node) fn run(&mut self, header: &Header, value: Vec<u8>) -> Put {
        let (hash, seq) = (header.key_hash, header.seq);
        let tombstone = header.op == Op::Delete;
        if tombstone || header.expiry_ms != 0 {
            self.rising.note(&hash, seq);
        }
        let seq_compare = self.mechanisms.seq_compare();
        let newest = self.newest_of(&hash);
        let known = seq > *newest || !seq_compare;
        *newest = (*newest).max(seq);
        let conditional = header.has(flags::CONDITIONAL);
        if conditional && self.mechanisms.node_completion() {
            self.deciding.insert((header.lane, header.request));
        }
        let since = if conditional { Record::INHERITED } else { None };
        Put {
            record: Record { seq, tombstone, expiry_ms: header.expiry_ms, value, since },
            condition: match conditional {
                true => PutCondition::IfSeq(Seq(header.guard)),
                false => PutCondition::Newer { known },
            },
            completion: conditional.then(|| completion(header)),
            may_be_older: !known && !conditional,
        }
    }

    /// The engine has decided a write, or failed to.
    pub(in crate::node) fn decided(&mut self, header: &Header) {
        self.deciding.remove(&(header.lane, header.request));
    }

    /// A write has run.
    pub(in crate::node) fn ran(&mut self, header: &Header) {
        if header.has(flags::CONDITIONAL) {
            self.completions.insert(header.lane, completion(header));
        }
    }

    /// The engine did not store a write, because of what it found; `may_be_older` as in its
    /// [`Put`].
    pub(in crate::node) fn put_refused(
        &mut self,
        header: &Header,
        key: &[u8],
        newest: Newest,
        may_be_older: bool,
    ) -> Decision {
        if header.has(flags::CONDITIONAL) {
            let told = newest.version();
            // What it expected may have been dropped since a copy of it ran in a commit that
            // failed: a crash may bring that to light.
            let may_run = header.guard == Seq::NONE.0 || self.commit_failed;
            return if may_run && newest.seq() < header.seq {
                self.refuse_for_good(header, key, told)
            } else {
                refused(told)
            };
        }
        // Overwritten, or overtaken by a write that ran upon the version before: only the stored
        // record tells.
        if may_be_older && newest.seq() != header.seq {
            Decision::LookUp
        } else {
            Decision::Superseded
        }
    }

    /// A write at or below the fence, the floor or the stored number, or one whose staged value is
    /// missing (unless it `is_staged`), once the stored record is known.
    /// `key`: that of a partition with several replicas.
    pub(in crate::node) fn judge(
        &mut self,
        header: &Header,
        key: Option<&[u8]>,
        is_staged: bool,
        record: Option<&Record>,
    ) -> Decision {
        let seq = header.seq;
        let floor = self.rising.of(&header.key_hash);
        let stored = record.map_or(self.rising.base_of(&header.key_hash), |record| record.seq);
        let base = record.map_or(stored, Record::base);
        let base = if self.mechanisms.dependent() { base } else { stored };
        // Such a series may have begun upon an absent key, below a floor: which older writes ran
        // there isn't known any more.
        let is_unsure = self.mechanisms.unsure_dependents()
            && record.is_some_and(|record| record.base() < record.seq);
        let conditional = header.has(flags::CONDITIONAL);
        if conditional && self.was_applied(header) {
            Decision::Answer(Status::Ok, seq)
        } else if conditional && seq <= stored {
            refused(record.map_or(Seq::NONE, |record| record.seq))
        } else if seq == stored {
            Decision::Superseded
        } else if (record.is_none() || is_unsure) && seq <= floor && self.mechanisms.floor() {
            Decision::BelowFloor
        } else if seq <= base {
            Decision::Superseded
        } else if seq <= stored || seq <= self.marks.saved_fence(&header.key_hash) {
            Decision::Bounce
        } else if seq <= self.marks.fence(&header.key_hash) {
            // The commit of the fence failed. It is tried again before a write below is sent back:
            // that no copy of it runs here must be known after a restart, too.
            self.marks
                .get(&header.key_hash)
                .map_or(Decision::Ignore, |marked| Decision::SaveFence(marked.mark))
        } else if seq <= floor
            && self.mechanisms.floor()
            && let Some(key) = key
        {
            // The floors of other replicas may be lower: a fence stands for this one.
            match self.marks.raise_fence(&header.key_hash, key, seq) {
                RaisedFence::Saved => Decision::Bounce,
                RaisedFence::ToSave(mark) => Decision::SaveFence(mark),
                RaisedFence::NoRoom => Decision::NoFence,
            }
        } else if seq <= floor && self.mechanisms.floor() {
            // Sent back it may run anew: that no copy of it runs here must be known after a
            // restart, too.
            if self.rising.is_saved() { Decision::Bounce } else { Decision::NothingCame }
        } else if header.has(flags::LARGE) && !is_staged {
            Decision::Answer(Status::FragmentsMissing, seq)
        } else {
            // The fence fell meanwhile (a floor covers it): an ordinary write by now.
            Decision::Run
        }
    }

    /// A write that expected an absent key found a record. Should that vanish (deleted, or expired,
    /// and dropped), a late copy of the write must not run after all: a fence keeps it from that,
    /// and is durable before the write is answered. The commit of the fence also buries what
    /// commits that failed before it may have left.
    fn refuse_for_good(&mut self, header: &Header, key: &[u8], told: Seq) -> Decision {
        let Header { key_hash: hash, seq, .. } = *header;
        self.rising.note(&hash, seq);
        if !self.mechanisms.fenced_refusals() {
            return refused(told);
        }
        match self.marks.raise_fence(&hash, key, seq) {
            RaisedFence::Saved => refused(told),
            RaisedFence::ToSave(mark) => Decision::Refuse { mark, told },
            RaisedFence::NoRoom => Decision::NoFence,
        }
    }
}

fn refused(told: Seq) -> Decision {
    Decision::Answer(Status::ConditionFailed, told)
}

fn completion(header: &Header) -> LaneCompletion {
    LaneCompletion { lane: header.lane, request: header.request, seq: header.seq }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mechanisms::Mechanisms;
    use crate::storage::Loaded;
    use crate::time::Now;
    use crate::topology::ByChain;
    use switchback_wire::KeyHash;

    const KEY: &[u8] = b"key";

    fn decider() -> Decider {
        Decider::new(
            Loaded::default(),
            ByChain::new(1, |_| None),
            8,
            1,
            Mechanisms::ALL,
            Now::default(),
        )
    }

    fn write(number: u64, flags: u16) -> Header {
        let (seq, request) = (Seq::new(1, number), number);
        Header { seq, request, flags, key_hash: KeyHash([7; 16]), ..Header::new(Op::Write) }
    }

    fn record(number: u64, since: Option<u64>) -> Record {
        let since = since.map(|number| Seq::new(1, number));
        Record { seq: Seq::new(1, number), since, ..Record::default() }
    }

    #[test]
    fn a_write_at_or_below_the_fence_is_judged_by_what_is_stored() {
        let mut decider = decider();
        assert!(matches!(decider.write(&write(5, 0), false), Decision::Run));
        let read = Header { guard: Seq::new(1, 5).0, flags: flags::FENCED, ..write(0, 0) };
        assert!(matches!(
            decider.read(&read, KEY),
            super::super::ReadVerdict::Fenced(RaisedFence::ToSave(_))
        ));
        assert!(matches!(decider.write(&write(5, 0), false), Decision::LookUp));
        assert!(matches!(decider.write(&write(6, 0), false), Decision::Run));
        // The fence isn't known to be durable, so nothing goes back yet.
        assert!(matches!(decider.judge(&write(5, 0), None, false, None), Decision::SaveFence(_)));
        decider.fence_saved(&KeyHash([7; 16]), Seq::new(1, 5));
        assert!(matches!(decider.judge(&write(5, 0), None, false, None), Decision::Bounce));
        assert!(matches!(
            decider.judge(&write(5, 0), None, false, Some(&record(5, None))),
            Decision::Superseded
        ));
        assert!(matches!(
            decider.judge(&write(5, 0), None, false, Some(&record(9, None))),
            Decision::Superseded
        ));
        // Versions 2 to 9 were each made upon the one before: 5 isn't among them.
        assert!(matches!(
            decider.judge(&write(5, 0), None, false, Some(&record(9, Some(2)))),
            Decision::Bounce
        ));
    }

    #[test]
    fn a_conditional_write_is_decided_once() {
        let mut decider = decider();
        let (first, second) = (write(5, flags::CONDITIONAL), write(6, flags::CONDITIONAL));
        assert_eq!(decider.run(&first, Vec::new()).condition, PutCondition::IfSeq(Seq::NONE));
        assert!(matches!(decider.write(&first, false), Decision::Ignore));
        decider.decided(&first);
        decider.ran(&first);
        assert!(matches!(
            decider.write(&first, false),
            Decision::Answer(Status::Ok, seq) if seq == first.seq
        ));
        decider.run(&second, Vec::new());
        decider.decided(&second);
        decider.ran(&second);
        assert!(matches!(decider.write(&first, false), Decision::Ignore), "its lane has gone on");
    }

    #[test]
    fn a_write_that_expected_no_record_is_refused_after_its_fence_is_durable() {
        let mut decider = decider();
        let refused = write(5, flags::CONDITIONAL);
        let stored = Newest::Record(Seq::new(1, 3));
        let decision = decider.put_refused(&refused, KEY, stored, false);
        assert!(matches!(
            decision,
            Decision::Refuse { mark, told } if mark.fence == refused.seq && told == Seq::new(1, 3)
        ));
        assert!(matches!(decider.put_refused(&write(5, 0), KEY, stored, true), Decision::LookUp));
        assert!(matches!(
            decider.put_refused(&write(5, 0), KEY, stored, false),
            Decision::Superseded
        ));
    }

    #[test]
    fn no_floor_is_told_as_a_version_even_if_it_has_risen_since() {
        let mut decider = decider();
        let request = Header { guard: 7, ..write(9, flags::CONDITIONAL) };
        decider.raise_base(decider.chain_of(&request.key_hash), Seq::new(1, 8));
        let decision = decider.put_refused(&request, KEY, Newest::Floor(Seq::new(1, 4)), false);
        assert!(matches!(decision, Decision::Answer(Status::ConditionFailed, Seq::NONE)));
    }
}
