//! The arbiter of a bypass epoch: no switch serves, clients send to the nodes themselves, and each
//! node does for its keys what the switch does for all: it gives out sequence numbers and
//! arbitrates lanes.
//!
//! Numbers and lanes are in memory only. So a node that restarts never serves that epoch again; the
//! controller raises it.

use crate::control::NodeConfig;
use std::collections::BTreeMap;
use switchback_wire::{Header, SEQ_COUNTER_BITS, Seq, Status};

/// A lane's newest request here.
#[derive(Clone, Copy, Debug)]
struct LaneEntry {
    request: u64,
    seq: Seq,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    /// The engine has it.
    Running,
    /// Nothing came of it yet: its next copy goes on with its number.
    Waiting,
    /// It was answered so; a failed condition tells the record's number.
    Done(Status, Seq),
}

/// What is to be done with a write of a client.
pub(in crate::node) enum Arbitration {
    /// It goes on under this number.
    Run(Seq),
    /// It was answered so.
    AnswerAgain(Status, Seq),
    /// Another copy of it is under way, its lane has gone on, or it has no lane.
    Drop,
}

/// The sequence counter and lanes of a bypass epoch.
#[derive(Debug)]
pub(super) struct Arbiter {
    epoch: u32,
    /// One for all keys, since a node has one thread that serves them.
    counter: u64,
    lanes: BTreeMap<u32, LaneEntry>,
    lanes_max: u32,
}

impl Arbiter {
    /// For a new epoch, if that has no switch.
    pub(super) fn of(epoch: u32, config: &NodeConfig) -> Option<Arbiter> {
        let arbiter =
            Arbiter { epoch, counter: 0, lanes: BTreeMap::new(), lanes_max: config.lanes };
        config.switch.is_none().then_some(arbiter)
    }

    fn take_seq(&mut self) -> Option<Seq> {
        self.counter += 1;
        (self.counter < 1 << SEQ_COUNTER_BITS).then(|| Seq::new(self.epoch, self.counter))
    }

    /// Whether half of the epoch's sequence numbers are used.
    pub(super) fn is_half_used(&self) -> bool {
        self.counter >= 1 << (SEQ_COUNTER_BITS - 1)
    }

    /// Arbitrates a write; `remembers` unless what was given out before is to be ignored.
    pub(super) fn arbitrate(&mut self, header: &Header, remembers: bool) -> Arbitration {
        if header.lane >= self.lanes_max {
            return Arbitration::Drop;
        }
        let known =
            self.lanes.get_mut(&header.lane).filter(|entry| entry.request >= header.request);
        match known.filter(|_| remembers) {
            Some(entry)
                if entry.request > header.request || entry.progress == Progress::Running =>
            {
                Arbitration::Drop
            }
            Some(entry) => match entry.progress {
                Progress::Done(status, seq) => Arbitration::AnswerAgain(status, seq),
                Progress::Waiting | Progress::Running => {
                    entry.progress = Progress::Running;
                    Arbitration::Run(entry.seq)
                }
            },
            None => {
                let Some(seq) = self.take_seq() else { return Arbitration::Drop };
                let entry = LaneEntry { request: header.request, seq, progress: Progress::Running };
                self.lanes.insert(header.lane, entry);
                Arbitration::Run(seq)
            }
        }
    }

    fn entry_of(&mut self, header: &Header) -> Option<&mut LaneEntry> {
        let entry = self.lanes.get_mut(&header.lane)?;
        (entry.request == header.request && entry.seq == header.seq).then_some(entry)
    }

    /// The write is answered; `told` is the record's number.
    pub(super) fn answered(&mut self, header: &Header, status: Status, told: Seq) {
        if let Some(entry) = self.entry_of(header) {
            entry.progress = match status {
                Status::Ok | Status::ConditionFailed => Progress::Done(status, told),
                _ => Progress::Waiting,
            };
        }
    }

    /// Nothing came of the write.
    pub(super) fn failed(&mut self, header: &Header) {
        self.answered(header, Status::NoSpace, Seq::NONE);
    }

    /// The write can't be done under its number: its next copy gets another one.
    pub(super) fn bounced(&mut self, header: &Header) {
        let Some(seq) = self.take_seq() else { return };
        if let Some(entry) = self.entry_of(header) {
            *entry = LaneEntry { seq, progress: Progress::Waiting, ..*entry };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::{HashKey, Map};

    #[test]
    fn a_bypass_epoch_is_half_used_long_before_its_numbers_run_out() {
        let config = NodeConfig {
            hash_key: HashKey([1; 16]),
            map: Map::equal(vec![vec![0]]),
            switch: None,
            lanes: 1,
            refresh: crate::control::Refresh::None,
        };
        let mut arbiter = Arbiter::of(1, &config).expect("no switch serves");
        arbiter.counter = (1 << (SEQ_COUNTER_BITS - 1)) - 2;
        assert!(arbiter.take_seq().is_some() && !arbiter.is_half_used());
        assert!(arbiter.take_seq().is_some() && arbiter.is_half_used());
        arbiter.counter = (1 << SEQ_COUNTER_BITS) - 2;
        assert!(arbiter.take_seq().is_some());
        assert!(arbiter.take_seq().is_none(), "a number never wraps");
    }
}
