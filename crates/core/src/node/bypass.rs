//! A bypass epoch: no switch serves, clients send to the nodes themselves, and each node does for its keys what the switch does for all:
//! it gives out sequence numbers and arbitrates lanes (design, sections 6 and 7).
//!
//! Numbers and lanes are in memory only. So a node that restarts never serves that epoch again; the controller raises it.

use super::shim::{Request, Shim};
use crate::control::NodeConfig;
use std::collections::BTreeMap;
use switchback_wire::{Address, Header, Op, PacketRef, SEQ_COUNTER_BITS, Seq, Status, flags};

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

/// What to do with a write.
enum Verdict {
    Run(Seq),
    AnswerAgain(Status, Seq),
    Drop,
}

/// The sequence counter and lanes of a bypass epoch.
#[derive(Debug)]
pub(super) struct Arbiter {
    epoch: u32,
    /// One for all keys: there is but one thread.
    counter: u64,
    lanes: BTreeMap<u32, LaneEntry>,
    lanes_max: u32,
}

impl Arbiter {
    /// For a new epoch, if that has no switch.
    pub(super) fn of(epoch: u32, config: &NodeConfig) -> Option<Arbiter> {
        let arbiter = Arbiter { epoch, counter: 0, lanes: BTreeMap::new(), lanes_max: config.lanes };
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

    fn arbitrate(&mut self, header: &Header, remembers: bool) -> Verdict {
        if header.lane >= self.lanes_max {
            return Verdict::Drop;
        }
        let known = self.lanes.get_mut(&header.lane).filter(|entry| entry.request >= header.request);
        match known.filter(|_| remembers) {
            Some(entry) if entry.request > header.request || entry.progress == Progress::Running => Verdict::Drop,
            Some(entry) => match entry.progress {
                Progress::Done(status, seq) => Verdict::AnswerAgain(status, seq),
                Progress::Waiting | Progress::Running => {
                    entry.progress = Progress::Running;
                    Verdict::Run(entry.seq)
                }
            },
            None => {
                let Some(seq) = self.take_seq() else { return Verdict::Drop };
                let entry = LaneEntry { request: header.request, seq, progress: Progress::Running };
                self.lanes.insert(header.lane, entry);
                Verdict::Run(seq)
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

impl Shim {
    /// A packet that came from a client directly, as the switch would have passed it on; `None` if it goes no further.
    pub(super) fn take_from_client<'a>(&mut self, from: Address, mut parts: PacketRef<'a>) -> Option<PacketRef<'a>> {
        let header = &mut parts.header;
        header.flags &= flags::CONDITIONAL | flags::LARGE;
        header.record_flags = 0;
        match header.op {
            Op::Read => {
                header.flags = 0;
                header.guard = 0;
            }
            Op::Fragment | Op::ReadFragment | Op::Scan => {}
            Op::Write | Op::Delete => {
                let arbiter = self.arbiter.as_mut().expect("a bypass epoch has an arbiter");
                match arbiter.arbitrate(header, self.mechanisms.bypass_lanes) {
                    Verdict::Run(seq) => header.seq = seq,
                    Verdict::AnswerAgain(status, seq) => {
                        let request = Request { header: *header, key: parts.key.to_vec(), switch: from };
                        self.send_write_reply(&request, status, seq);
                        return None;
                    }
                    Verdict::Drop => return None,
                }
            }
            _ => {
                self.statistics.dropped_malformed += 1;
                return None;
            }
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::HashKey;

    #[test]
    fn a_bypass_epoch_is_half_used_long_before_its_numbers_run_out() {
        let config = NodeConfig {
            hash_key: HashKey([1; 16]),
            routes: vec![vec![0]],
            switch: None,
            lanes: 1,
            write_through: false,
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
