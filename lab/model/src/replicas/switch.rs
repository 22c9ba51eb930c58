//! The switch: the protocol's, with a partition whose writes go to the head and whose reads go to
//! the tail (`datapath`).

use super::Mechanism;
use super::state::{Command, Lane, Packet, Record, To};
use super::step::Step;
use super::stored::Version;
use crate::state::{LaneState, Op};

impl Step<'_> {
    pub(super) fn switch_receives(&mut self, packet: Packet) {
        match packet.op {
            Op::Read => self.read_request(packet),
            Op::Write | Op::ConditionalWrite => self.write_request(packet),
            Op::ReadReply | Op::FencedReadReply => self.read_answer(packet),
            Op::WriteReply | Op::ConditionFailed => self.write_answer(packet),
            Op::Bounce | Op::BounceConditional => self.write_bounced(packet),
            Op::FencedRead | Op::EmbeddedRead => {}
        }
    }

    /// A plain read goes to the tail. What changes something goes to the head, be it a read.
    pub(super) fn goes_to_tail(&self, op: Op) -> bool {
        match op {
            Op::Read => true,
            Op::FencedRead => !self.has(Mechanism::HeadFences),
            Op::EmbeddedRead => !self.has(Mechanism::HeadEmbeds),
            _ => false,
        }
    }

    fn forward(&mut self, packet: Packet) {
        let number = self.state.switch.view;
        let view = self.state.view(number);
        let node = if self.goes_to_tail(packet.op) { view.tail() } else { view.head() };
        self.state.send(Packet { to: To::Node(node), view: number, ..packet });
    }

    fn answer(&mut self, packet: Packet) {
        self.state.send(Packet { to: To::Client, view: 0, guard: 0, ..packet });
    }

    /// From the cache, or to a node with what the nodes must know.
    fn read_request(&mut self, packet: Packet) {
        let Record { mark, latest, evicting, dirty, version, .. } = self.state.switch.record;
        if mark != 0 && latest {
            self.answer(Packet { op: Op::ReadReply, version, ..packet });
        } else if mark != 0 && evicting && dirty {
            self.forward(Packet { op: Op::EmbeddedRead, version, ..packet });
        } else if mark != 0 && !evicting {
            let guard = self.state.switch.counter;
            self.forward(Packet { op: Op::FencedRead, guard, ..packet });
        } else {
            self.forward(packet);
        }
    }

    /// The answer to a fenced read may promote.
    fn read_answer(&mut self, packet: Packet) {
        let record = &mut self.state.switch.record;
        let waits = record.mark != 0 && !record.latest && !record.evicting;
        if packet.op == Op::FencedReadReply && waits && packet.guard >= record.adm {
            let (latest, dirty, version) = (true, false, packet.version);
            *record = Record { latest, dirty, version, ..*record };
        }
        self.answer(Packet { op: Op::ReadReply, ..packet });
    }

    /// A request that the lane knows is asked again under its number, or answered again.
    fn write_request(&mut self, packet: Packet) {
        let Lane { request, seq, state } = self.state.switch.lanes[usize::from(packet.client)];
        if state == LaneState::None || packet.request > request {
            return self.write_new(packet);
        }
        if packet.request < request {
            return;
        }
        let numbered = Packet { version: Version { seq, ..packet.version }, ..packet };
        match state {
            LaneState::Forwarded => self.forward(numbered),
            LaneState::Applied | LaneState::Done => {
                self.answer(Packet { op: Op::WriteReply, ..numbered });
            }
            LaneState::Refused | LaneState::DoneFailed => {
                self.answer(Packet { op: Op::ConditionFailed, ..numbered });
            }
            LaneState::None => {}
        }
    }

    fn write_new(&mut self, packet: Packet) {
        if self.state.switch.counter == self.config.counter_max {
            return;
        }
        self.state.switch.counter += 1;
        let seq = self.state.switch.counter;
        let packet = Packet { version: Version { seq, ..packet.version }, ..packet };
        let conditional = packet.op == Op::ConditionalWrite;
        let record = &mut self.state.switch.record;
        if record.mark == 0 {
            self.forward_write(packet);
        } else if record.evicting && conditional {
            // It waits: it is sent again.
        } else if record.evicting {
            record.latest = false;
            self.forward_write(packet);
        } else if record.latest && conditional && packet.guard != record.version.seq {
            self.set_lane(packet, LaneState::Refused);
            self.answer(Packet { op: Op::ConditionFailed, ..packet });
        } else if record.latest {
            self.absorb(packet);
        } else if conditional {
            record.adm = record.adm.max(seq);
            self.forward_write(packet);
        } else if seq > record.adm {
            self.absorb(packet);
        } else {
            self.forward_write(packet);
        }
    }

    fn absorb(&mut self, packet: Packet) {
        let record = &mut self.state.switch.record;
        let (latest, dirty, version) = (true, true, packet.version);
        *record = Record { latest, dirty, version, ..*record };
        self.executed(packet.client, packet.request, version.seq);
        self.set_lane(packet, LaneState::Applied);
        self.answer(Packet { op: Op::WriteReply, ..packet });
    }

    fn forward_write(&mut self, packet: Packet) {
        self.set_lane(packet, LaneState::Forwarded);
        self.forward(packet);
    }

    fn set_lane(&mut self, packet: Packet, state: LaneState) {
        let Packet { request, version: Version { seq, .. }, .. } = packet;
        self.state.switch.lanes[usize::from(packet.client)] = Lane { request, seq, state };
    }

    /// Whether the lane waits for what is said about this request under this number.
    fn lane_waits(&self, packet: &Packet) -> bool {
        self.state.switch.lanes[usize::from(packet.client)].waits_for(packet)
    }

    fn write_answer(&mut self, packet: Packet) {
        if !self.lane_waits(&packet) {
            return;
        }
        let failed = packet.op == Op::ConditionFailed;
        if !failed {
            self.executed(packet.client, packet.request, packet.version.seq);
        }
        self.set_lane(packet, if failed { LaneState::DoneFailed } else { LaneState::Done });
        self.answer(packet);
    }

    /// Once more, with a new number.
    fn write_bounced(&mut self, packet: Packet) {
        if self.lane_waits(&packet) {
            let op = if packet.op == Op::Bounce { Op::Write } else { Op::ConditionalWrite };
            self.write_new(Packet { op, ..packet });
        }
    }

    /// An empty entry, which doesn't answer yet.
    pub(super) fn admit(&mut self, mark: u8) {
        let switch = &mut self.state.switch;
        if mark > switch.admitted_to && switch.record.mark == 0 {
            switch.admitted_to = mark;
            switch.record = Record { mark, adm: switch.counter, ..Record::default() };
        }
    }

    /// The eviction begins: what is dirty goes to the head first.
    pub(super) fn evict(&mut self) {
        let record = &mut self.state.switch.record;
        record.evicting = true;
        let Record { mark, dirty, version, .. } = *record;
        self.state.command(match dirty {
            true => Command::Store(mark, version),
            false => Command::Remove(mark),
        });
    }

    /// The entry goes. What the cache has answered is the replicas' from now on.
    pub(super) fn remove_entry(&mut self, mark: u8) {
        let record = self.state.switch.record;
        if record.mark == mark {
            self.state.switch.record = Record::default();
            self.told(record.version.seq);
            self.state.command(Command::Clear(mark));
        }
    }
}

impl Lane {
    /// Whether it waits for what is said about this request under this number.
    pub(super) fn waits_for(&self, packet: &Packet) -> bool {
        let named = self.request == packet.request && self.seq == packet.version.seq;
        self.state == LaneState::Forwarded && named
    }
}
