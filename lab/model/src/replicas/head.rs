//! The head: what it makes of requests and commands (protocol, section 5).

use super::Mechanism;
use super::state::{Command, Decision, Node, Packet, To};
use super::step::Step;
use super::stored::{Completion, Stored, Version};
use crate::state::Op;

impl Step<'_> {
    /// A node takes packets of its view, if they are for what it is in that.
    pub(super) fn node_receives(&mut self, node: u8, packet: Packet) {
        if packet.view != self.state.node(node).view {
            return;
        }
        let is_for_tail = self.goes_to_tail(packet.op);
        if is_for_tail && self.state.answers(node) {
            self.read_at_tail(node, packet);
        } else if !is_for_tail && self.state.decides(node) {
            self.decide(node, packet);
        }
    }

    /// A plain read; without a mechanism, others that should have gone to the head.
    fn read_at_tail(&mut self, node: u8, packet: Packet) {
        match packet.op {
            Op::FencedRead => {
                self.raise_fence(node, packet.guard);
                self.answer_read(node, packet, Op::FencedReadReply);
            }
            Op::EmbeddedRead => {
                self.store_from_cache(node, packet.version);
                self.answer_read(node, packet, Op::ReadReply);
            }
            _ => self.answer_read(node, packet, Op::ReadReply),
        }
    }

    /// A read is answered with what the node has stored.
    pub(super) fn answer_read(&mut self, node: u8, packet: Packet, op: Op) {
        let version = self.state.node(node).stored.version;
        self.told(version.seq);
        self.shown(version);
        self.state.send(Packet { to: To::Switch, op, view: 0, version, ..packet });
    }

    fn decide(&mut self, node: u8, packet: Packet) {
        match packet.op {
            Op::FencedRead => {
                let effect = self.raise_fence(node, packet.guard);
                self.pass_on(node, effect, Some(Decision::Fenced(packet)));
            }
            Op::EmbeddedRead => {
                let effect = self.store_from_cache(node, packet.version);
                self.pass_on(node, effect, Some(Decision::Embedded(packet)));
            }
            Op::Write | Op::ConditionalWrite => self.decide_write(node, packet),
            _ => {}
        }
    }

    fn raise_fence(&mut self, node: u8, fence: u8) -> Stored {
        let stored = &mut self.state.node_mut(node).stored;
        let before = *stored;
        stored.fence = stored.fence.max(fence);
        stored.since(&before)
    }

    /// What comes out of the cache is stored under a mark, if it is above the floor of that, and
    /// newer. It may have been made upon the version that it replaces: the series goes on.
    fn store_from_cache(&mut self, node: u8, version: Version) -> Stored {
        let Node { stored: before, floor, .. } = self.state.node(node);
        let is_newer = version.seq > before.version.seq && version.seq > before.mark_floor;
        if !before.is_offered() || !is_newer {
            return Stored::default();
        }
        let stored = &mut self.state.node_mut(node).stored;
        stored.base = if before.version.value == 0 { floor } else { before.base };
        stored.version = version;
        stored.since(&before)
    }

    fn decide_write(&mut self, node: u8, packet: Packet) {
        let Node { stored, floor, .. } = self.state.node(node);
        let Packet { client, request, guard, version: Version { seq, .. }, .. } = packet;
        let conditional = packet.op == Op::ConditionalWrite;
        let done = stored.completions[usize::from(client)];
        let newest = stored.version.seq;
        let is_absent = stored.version.value == 0;
        let base = if is_absent { 0 } else { stored.base };
        // A series may have begun upon an absent key: what ran below the floor isn't known.
        let is_unsure = is_absent || base < newest;
        let nothing = Stored::default();
        if conditional && done == (Completion { request, seq }) {
            self.pass_on(node, nothing, Some(Decision::Ran(packet)));
        } else if conditional && done.request > request {
            // Nothing waits for it any more.
        } else if conditional && seq <= newest {
            self.pass_on(node, nothing, Some(Decision::Refused(packet, newest)));
        } else if seq == newest {
            self.pass_on(node, nothing, Some(Decision::Ran(packet)));
        } else if is_unsure && seq <= floor {
            // It may have run, and its record may have been dropped since.
        } else if seq <= base {
            self.pass_on(node, nothing, Some(Decision::Overwritten(packet)));
        } else if seq <= newest.max(stored.fence).max(floor) {
            self.pass_on(node, nothing, Some(Decision::Bounced(packet)));
        } else if conditional && guard != newest {
            self.refuse(node, packet);
        } else {
            self.apply(node, packet);
        }
    }

    /// A write that expected an absent key must not run when what it found is gone: a fence keeps
    /// late copies of it from that.
    fn refuse(&mut self, node: u8, packet: Packet) {
        let newest = self.state.node(node).stored.version.seq;
        let fence = if packet.guard == 0 { packet.version.seq } else { 0 };
        let effect = self.raise_fence(node, fence);
        let replicated = self.has(Mechanism::RefusalFenced);
        let effect = if replicated { effect } else { Stored::default() };
        self.pass_on(node, effect, Some(Decision::Refused(packet, newest)));
    }

    fn apply(&mut self, node: u8, packet: Packet) {
        let Packet { client, request, version, .. } = packet;
        let Node { stored: before, floor, .. } = self.state.node(node);
        let stored = &mut self.state.node_mut(node).stored;
        if packet.op == Op::ConditionalWrite {
            stored.base = if before.version.value == 0 { floor } else { before.base };
            stored.completions[usize::from(client)] = Completion { request, seq: version.seq };
        } else {
            stored.base = version.seq;
        }
        stored.version = version;
        let effect = stored.since(&before);
        self.pass_on(node, effect, Some(Decision::Ran(packet)));
    }

    /// The key is hot, and offered; or an offer that may be lost is made again.
    pub(super) fn offer(&mut self, node: u8) {
        let Node { stored: before, floor, .. } = self.state.node(node);
        let stored = &mut self.state.node_mut(node).stored;
        if !before.is_offered() {
            (stored.mark, stored.mark_floor) = (before.mark + 1, floor);
            self.state.spent.offers += 1;
        }
        let stored = self.state.node(node).stored;
        self.pass_on(node, stored.since(&before), Some(Decision::Offered(stored.mark)));
    }

    /// A command of the controller to the head of the moment.
    pub(super) fn head_commanded(&mut self, node: u8, command: Command) {
        let before = self.state.node(node).stored;
        match command {
            // Not under this mark: it is taken for a late one, of what was stored long ago.
            Command::Store(mark, _) if before.mark != mark => {
                self.pass_on(node, Stored::default(), Some(Decision::EvictionStored(mark)));
            }
            Command::Store(mark, version) => {
                let effect = self.store_from_cache(node, version);
                self.pass_on(node, effect, Some(Decision::EvictionStored(mark)));
            }
            Command::Clear(mark) if before.mark == mark => {
                let stored = &mut self.state.node_mut(node).stored;
                (stored.mark, stored.mark_floor) = (mark + 1, 0);
                let effect = stored.since(&before);
                self.pass_on(node, effect, None);
            }
            _ => {}
        }
    }
}
