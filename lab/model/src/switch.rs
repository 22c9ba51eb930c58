//! The switch, in a chain its owner: reads, writes, completion, control packets, snapshots
//! (protocol, sections 3, 4 and 6; `datapath/*.h`).

use crate::ablation::Mechanism;
use crate::properties::Broken;
use crate::state::{
    Command, Entry, Lane, LaneState, Op, Packet, Record, Seq, Switch, Taking, To, Version,
};
use crate::step::Step;

impl Step<'_> {
    fn switch(&mut self, at: usize) -> &mut Switch {
        &mut self.state.switches[at]
    }

    fn lane(&mut self, at: usize, client: u8) -> &mut Lane {
        &mut self.state.switches[at].lanes[usize::from(client)]
    }

    /// An answer towards its client.
    fn answer(&mut self, at: usize, packet: Packet) {
        self.pass_up(at, self.config.owner(), packet);
    }

    /// The pipeline.
    pub(crate) fn switch_receives(&mut self, at: usize, packet: Packet) {
        let refuses = self.has(Mechanism::EpochFence) && packet.epoch != self.switch(at).epoch;
        if refuses || self.switch(at).frozen {
            return;
        }
        match packet.op {
            Op::Read => self.read_request(at, packet),
            Op::Write | Op::ConditionalWrite => self.write_request(at, packet),
            Op::ReadReply | Op::FencedReadReply => self.read_answer(at, packet),
            Op::WriteReply | Op::ConditionFailed => self.write_answer(at, packet),
            Op::Bounce | Op::BounceConditional => self.write_bounced(at, packet),
            Op::FencedRead | Op::EmbeddedRead => {}
        }
    }

    /// `read.h`: from the cache, or to the node with what the node must know.
    fn read_request(&mut self, at: usize, packet: Packet) {
        let switch = *self.switch(at);
        let record = switch.record;
        let forwarded = Packet { to: To::Node, ..packet };
        let sent = if !record.is_valid() {
            forwarded
        } else if record.latest || !self.has(Mechanism::Outdated) {
            let (generation, dirty) = (record.generation, record.dirty);
            let (version, expired) = (record.version, self.has_expired(record.version));
            let answer = Packet { op: Op::ReadReply, version, expired, ..packet };
            return self.answer(at, Packet { cached: true, generation, dirty, ..answer });
        } else if record.evicting && record.dirty && self.has(Mechanism::Embedding) {
            Packet { op: Op::EmbeddedRead, version: record.version, ..forwarded }
        } else if record.evicting {
            forwarded
        } else {
            // Rule 2.
            let fence = if self.has(Mechanism::Fence) { switch.last() } else { Seq::NONE };
            Packet { op: Op::FencedRead, guard: fence, ..forwarded }
        };
        self.state.send(sent);
    }

    /// `answer.h`: the answer to a fenced read may promote (rule 4).
    fn read_answer(&mut self, at: usize, packet: Packet) {
        let fenced = self.has(Mechanism::Fence);
        let record = self.switch(at).record;
        let waits = record.is_valid() && !record.latest && !record.evicting;
        if packet.op == Op::FencedReadReply && waits && (packet.guard >= record.adm || !fenced) {
            // Only the node knows how it was made.
            self.store_in_cache(at, packet.version, false, true);
        }
        self.answer(at, Packet { op: Op::ReadReply, guard: Seq::NONE, ..packet });
    }

    /// `record_store`: before the first change in a new generation the original goes to the agent.
    fn store_in_cache(&mut self, at: usize, version: Version, dirty: bool, dependent: bool) {
        let copies = self.has(Mechanism::SnapshotCow);
        let switch = self.switch(at);
        let original = switch.record;
        let taking = &mut switch.taking;
        if taking.generation != 0
            && original.generation < switch.generation
            && copies
            && !taking.reported
        {
            taking.reported = true;
            taking.original = if original.dirty { original.version } else { Version::default() };
        }
        let generation = switch.generation;
        switch.record = Record { latest: true, dirty, dependent, version, generation, ..original };
    }

    /// `complete.h`: what the lane says of a request, at most once.
    fn write_request(&mut self, at: usize, packet: Packet) {
        let lane = *self.lane(at, packet.client);
        if lane.locked.is_some() {
            return;
        }
        if !self.has(Mechanism::Completion)
            || lane.state == LaneState::None
            || packet.request > lane.request
        {
            self.write_new(at, packet);
            return;
        }
        if packet.request < lane.request {
            return;
        }
        let version = Version { seq: lane.seq, ..packet.version };
        match lane.state {
            LaneState::Forwarded if !self.has(Mechanism::RetryOldSeq) => self.write_new(at, packet),
            LaneState::Forwarded => self.state.send(Packet { to: To::Node, version, ..packet }),
            LaneState::Applied => self.repeat(at, Packet { version, ..packet }, Op::WriteReply),
            LaneState::Refused => {
                self.repeat(at, Packet { version, ..packet }, Op::ConditionFailed)
            }
            LaneState::Done => {
                let op = Op::WriteReply;
                self.answer(at, Packet { op, version, guard: Seq::NONE, ..packet });
            }
            LaneState::DoneFailed => self.answer(at, Packet { op: Op::ConditionFailed, ..packet }),
            LaneState::None => {}
        }
    }

    /// An answer with the *current* generation. Keepers are told whether a node has the record;
    /// without any, the client preserves its own write in any case.
    fn reply_from_cache(&mut self, at: usize, packet: Packet, op: Op) {
        let dirty = self.is_undone(at) || !self.config.has_keepers();
        self.reply(at, Packet { dirty, ..packet }, op);
    }

    fn reply(&mut self, at: usize, packet: Packet, op: Op) {
        let generation = self.switch(at).generation;
        self.answer(at, Packet { op, generation, cached: true, guard: Seq::NONE, ..packet });
    }

    /// Whether there is a record that no node has.
    fn is_undone(&mut self, at: usize) -> bool {
        let record = self.switch(at).record;
        record.is_valid() && record.dirty
    }

    /// Says again what the lane knows. The first time it may not have been kept, so the record is
    /// looked up: what isn't there any more a node has, and a refusal names what is there now.
    fn repeat(&mut self, at: usize, packet: Packet, op: Op) {
        if !self.config.has_keepers() {
            return self.reply_from_cache(at, packet, op);
        }
        let undone = self.is_undone(at);
        let named = if undone { self.switch(at).record.version } else { Version::default() };
        let version = match op {
            Op::ConditionFailed => Version { seq: named.seq.max(packet.version.seq), ..named },
            _ => packet.version,
        };
        let by_record = self.has(Mechanism::RepeatByRecord);
        let dirty = (undone || !by_record) && self.has(Mechanism::RepeatKept);
        self.reply(at, Packet { version, dirty, ..packet }, op);
    }

    /// `write.h`: takes its number, rule 1, before it looks the record up.
    fn write_new(&mut self, at: usize, packet: Packet) {
        let counter_max = self.config.counter_max;
        let two_cores = self.config.two_cores;
        let numbers = self.has(Mechanism::KeptOnTheWayUp);
        let switch = self.switch(at);
        if numbers && switch.counter == counter_max {
            return;
        }
        if numbers {
            switch.counter += 1;
        } else {
            switch.counter = switch.counter.max(packet.version.seq.counter());
        }
        let seq = if numbers { switch.last() } else { packet.version.seq };
        let packet = Packet { version: Version { seq, ..packet.version }, ..packet };
        if two_cores {
            self.lane(at, packet.client).locked = Some(packet);
        } else {
            self.write_numbered(at, packet);
        }
    }

    /// What the cached record, if there is one, makes of a write that has its number.
    pub(crate) fn write_numbered(&mut self, at: usize, packet: Packet) {
        let record = self.switch(at).record;
        let conditional = packet.op == Op::ConditionalWrite;
        let seq = packet.version.seq;
        let compares = self.has(Mechanism::SeqCompare);
        let newer_than = |than: Seq| seq > than || !compares;
        if !record.is_valid() {
            self.forward_write(at, packet);
        } else if record.evicting {
            if conditional && self.has(Mechanism::ConditionWait) {
                return; // waits: it is sent again
            }
            if newer_than(record.version.seq) {
                self.switch(at).record.latest = false;
            }
            self.forward_write(at, packet);
        } else if record.latest || !self.has(Mechanism::Outdated) {
            let refused = conditional && packet.guard != record.version.seq;
            if refused {
                self.refuse(at, packet);
            } else if newer_than(record.version.seq) {
                self.absorb(at, packet);
            } else if conditional || record.dependent && self.has(Mechanism::Dependent) {
                // Another core was faster. Upon what a dependent record was made nothing was in
                // between, so this write has to come later, with another number; its client sends
                // it again.
            } else {
                self.lane_set(at, packet, LaneState::Applied);
                self.superseded(at, packet);
            }
        } else if conditional {
            self.switch(at).record.adm = record.adm.max(seq);
            self.forward_write(at, packet);
        } else if newer_than(record.adm) {
            self.absorb(at, packet);
        } else {
            self.forward_write(at, packet);
        }
    }

    fn absorb(&mut self, at: usize, packet: Packet) {
        self.store_in_cache(at, packet.version, true, packet.op == Op::ConditionalWrite);
        self.executed(packet.client, packet.request, packet.version.seq);
        self.lane_set(at, packet, LaneState::Applied);
        self.reply_from_cache(at, packet, Op::WriteReply);
    }

    /// The condition failed, because of the record that is there. Keepers are told of it; without
    /// any, the client reads it.
    fn refuse(&mut self, at: usize, packet: Packet) {
        let version = self.switch(at).record.version;
        let named = Packet { version, ..packet };
        self.lane_set(at, named, LaneState::Refused);
        let told = if self.config.has_keepers() { named } else { packet };
        self.reply_from_cache(at, told, Op::ConditionFailed);
    }

    /// Another core's later write is there already: this one counts as applied before it.
    fn superseded(&mut self, at: usize, packet: Packet) {
        if self.has(Mechanism::SupersededKept) {
            self.reply_from_cache(at, packet, Op::WriteReply);
        } else {
            self.reply(at, Packet { dirty: false, ..packet }, Op::WriteReply);
        }
    }

    fn forward_write(&mut self, at: usize, packet: Packet) {
        self.lane_set(at, packet, LaneState::Forwarded);
        self.state.send(Packet { to: To::Node, ..packet });
    }

    fn lane_set(&mut self, at: usize, packet: Packet, state: LaneState) {
        *self.lane(at, packet.client) =
            Lane { request: packet.request, seq: packet.version.seq, state, locked: None };
    }

    /// Whether the lane waits for what a node says about this request under this number.
    fn lane_waits(&mut self, at: usize, packet: Packet) -> bool {
        let lane = *self.lane(at, packet.client);
        let named = lane.request == packet.request && lane.seq == packet.version.seq;
        lane.locked.is_none() && lane.state == LaneState::Forwarded && named
            || !self.has(Mechanism::Completion)
    }

    /// The node's word on a write.
    fn write_answer(&mut self, at: usize, packet: Packet) {
        if !self.lane_waits(at, packet) {
            return;
        }
        let failed = packet.op == Op::ConditionFailed;
        self.lane_set(at, packet, if failed { LaneState::DoneFailed } else { LaneState::Done });
        self.answer(at, packet);
    }

    /// A node refused to apply it under this number, because a fence is above it: once more, with a
    /// new one.
    fn write_bounced(&mut self, at: usize, packet: Packet) {
        if self.lane_waits(at, packet) {
            let op = if packet.op == Op::Bounce { Op::Write } else { Op::ConditionalWrite };
            self.write_new(at, Packet { op, ..packet });
        }
    }

    /// `ADMIT`, the lookup entry, `SET_VALID`: a hollow record, outdated.
    pub(crate) fn admit(&mut self, at: usize, entry: Entry) {
        let validated = self.has(Mechanism::Validity);
        let switch = self.switch(at);
        let refuses = switch.frozen || entry.epoch != switch.epoch;
        if refuses || entry.id <= switch.admitted_to || switch.record.is_valid() {
            return;
        }
        switch.admitted_to = entry.id;
        // Without validity packets find it before `SET_VALID` has looked at the counter.
        let adm = if validated { switch.last() } else { Seq::NONE };
        switch.record = Record { entry, adm, generation: switch.generation, ..Record::default() };
        if !self.has(Mechanism::KeepersFirst) {
            self.admit_at_keepers(entry);
        }
    }

    /// Whether a command means the record that is there.
    fn is_named(&mut self, at: usize, entry: Entry) -> bool {
        let checked = self.has(Mechanism::IncarnationCheck);
        let switch = self.switch(at);
        let there = switch.record.entry.id;
        let serves = entry.epoch == switch.epoch && !switch.frozen;
        serves && there != 0 && (there == entry.id || !checked)
    }

    /// `EVICT_BEGIN`: what is dirty goes to the node first.
    pub(crate) fn evict_begin(&mut self, at: usize, entry: Entry) {
        if !self.is_named(at, entry) {
            return;
        }
        let record = &mut self.switch(at).record;
        record.evicting = true;
        let (dirty, version) = (record.dirty, record.version);
        if !self.has(Mechanism::KeepersLast) {
            self.remove_from_keepers(at, entry);
        }
        self.state.command(match dirty {
            true => Command::StoreEvicted(entry, version),
            false => Command::Remove(entry),
        });
    }

    /// `REMOVE`; only then do its keepers' entries go, and then is the node's offer cleared (rule
    /// 5).
    pub(crate) fn remove(&mut self, at: usize, entry: Entry) {
        if self.is_named(at, entry) {
            self.switch(at).record = Record::default();
            self.remove_from_keepers(at, entry);
        }
    }

    /// `SNAPSHOT_BEGIN`: from here on the datapath reports originals.
    pub(crate) fn snapshot_begin(&mut self, at: usize, generation: u8) {
        let switch = self.switch(at);
        switch.generation = generation;
        let entry = switch.record.entry.id;
        switch.taking = Taking { generation, entry, ..Taking::default() };
    }

    /// The agent loads the record, unless it is of the new generation: then its original must be
    /// there.
    pub(crate) fn snapshot_load(&mut self, at: usize) -> Version {
        let switch = self.switch(at);
        let Taking { generation, entry, reported, original } = std::mem::take(&mut switch.taking);
        let record = switch.record;
        if entry == 0 || record.entry.id != entry {
            return Version::default(); // not cached, or evicted since: then the node has it
        }
        if record.generation < generation {
            return if record.dirty { record.version } else { Version::default() };
        }
        if !reported {
            self.breaks(Broken::SnapshotIncomplete);
        }
        original
    }
}
