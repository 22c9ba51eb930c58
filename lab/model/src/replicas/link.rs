//! Links between nodes: what goes over them, what leaves at their end, what comes again.

use super::Mechanism;
use super::state::{Command, Decision, Frame, Node, Packet, State, To};
use super::step::Step;
use super::stored::Stored;
use crate::state::Op;

/// More frames than any exploration puts on a link.
const FRAMES_MAX: usize = 16;

impl Step<'_> {
    /// What a node has stored goes on, and so does the decision; or that leaves, at the tail.
    pub(super) fn pass_on(&mut self, node: u8, effect: Stored, decision: Option<Decision>) {
        let Node { view: number, open, .. } = self.state.node(node);
        let view = self.state.view(number);
        let is_tail = view.tail() == node;
        let leaves_here = is_tail
            || view.head() == node && decision.is_some_and(|decision| self.leaves_early(decision));
        if let Some(decision) = decision
            && leaves_here
            && (open || !is_tail)
        {
            self.say(node, decision);
        }
        let Some(next) = view.next(node) else { return };
        let changes = !effect.is_empty();
        self.state.node_mut(node).unconfirmed |= changes;
        let decision = decision.filter(|_| !leaves_here);
        if changes || decision.is_some() {
            self.put_on_link(Frame {
                from: node,
                to: next,
                view: number,
                effect,
                decision,
                flush: false,
            });
        }
    }

    /// Whether a decision leaves at the head already, since the mechanism that forbids it is left
    /// out.
    fn leaves_early(&self, decision: Decision) -> bool {
        let mechanism = match decision {
            Decision::Refused(..) => Mechanism::TailRefuses,
            Decision::Overwritten(_) => Mechanism::TailAnswersOverwritten,
            Decision::Bounced(_) => Mechanism::TailBounces,
            Decision::EvictionStored(_) => Mechanism::TailConfirmsStore,
            Decision::Offered(_) => Mechanism::TailConfirmsOffer,
            Decision::Ran(_) | Decision::Fenced(_) | Decision::Embedded(_) => {
                Mechanism::TailAnswers
            }
        };
        !self.has(mechanism)
    }

    /// A decision leaves.
    fn say(&mut self, node: u8, decision: Decision) {
        let to_switch =
            |packet: Packet, op| Packet { to: To::Switch, op, view: 0, guard: 0, ..packet };
        match decision {
            Decision::Ran(packet) | Decision::Overwritten(packet) => {
                self.told(packet.version.seq);
                if self.state.node(node).stored.version == packet.version {
                    self.shown(packet.version);
                }
                self.state.send(to_switch(packet, Op::WriteReply));
            }
            Decision::Refused(packet, because_of) => {
                self.told(because_of);
                self.state.send(to_switch(packet, Op::ConditionFailed));
            }
            Decision::Bounced(packet) => {
                let conditional = packet.op == Op::ConditionalWrite;
                let op = if conditional { Op::BounceConditional } else { Op::Bounce };
                self.state.send(Packet { guard: packet.guard, ..to_switch(packet, op) });
            }
            Decision::Fenced(packet) => self.answer_read(node, packet, Op::FencedReadReply),
            Decision::Embedded(packet) => self.answer_read(node, packet, Op::ReadReply),
            Decision::EvictionStored(mark) => self.state.command(Command::Remove(mark)),
            Decision::Offered(mark) => {
                if mark > self.state.switch.admitted_to {
                    self.state.command(Command::Admit(mark));
                }
            }
        }
    }

    fn put_on_link(&mut self, frame: Frame) {
        let Frame { from, to, .. } = frame;
        if !self.state.node(to).is_up || self.state.adds_nothing(&frame) {
            return;
        }
        assert!(self.state.link(from, to).count() < FRAMES_MAX, "a link is endless");
        let is_later = |other: &Frame| (other.from, other.to) > (from, to);
        let end = self.state.frames.iter().position(is_later).unwrap_or(self.state.frames.len());
        self.state.frames.insert(end, frame);
    }

    /// The first frame of a link arrives.
    pub(super) fn frame_arrives(&mut self, from: u8, to: u8) {
        let at = self.first_on_link(from, to);
        let frame = self.state.frames.remove(at);
        let number = self.state.node(to).view;
        let view = self.state.view(number);
        if frame.view != number && self.has(Mechanism::FramesOfView) || !view.has(to) {
            return;
        }
        let changes = self.state.node_mut(to).stored.merge(&frame.effect, self.config);
        if !view.is_replica(to) {
            return;
        }
        self.state.node_mut(to).open |= frame.flush && frame.view == number && view.tail() == to;
        if changes || frame.decision.is_some() {
            self.pass_on(to, frame.effect, frame.decision);
        }
    }

    fn first_on_link(&self, from: u8, to: u8) -> usize {
        let mut frames = self.state.frames.iter();
        frames.position(|frame| frame.is_on(from, to)).expect("there is a frame on the link")
    }

    /// A link breaks. Its sender makes another one.
    pub(super) fn break_link(&mut self, from: u8, to: u8) {
        if self.has(Mechanism::NewestLink) {
            self.state.frames.retain(|frame| !frame.is_on(from, to));
        } else {
            // The first frame is lost. The receiver still reads the rest.
            let at = self.first_on_link(from, to);
            self.state.frames.remove(at);
        }
        self.resend(from);
    }

    /// A new link, or a new view, begins with all that is unconfirmed. A tail behind it may open
    /// then.
    pub(super) fn resend(&mut self, node: u8) {
        let Node { is_up, view: number, stored, unconfirmed, .. } = self.state.node(node);
        if !is_up || number == 0 {
            return;
        }
        let view = self.state.view(number);
        let Some(next) = view.next(node) else { return };
        let frame = |effect, flush| Frame {
            from: node,
            to: next,
            view: number,
            effect,
            decision: None,
            flush,
        };
        if unconfirmed && self.has(Mechanism::Resend) {
            self.put_on_link(frame(stored, false));
        }
        if view.tail() == next {
            self.put_on_link(frame(Stored::default(), true));
        }
    }
}

impl State {
    /// The end of the line has all that a node has stored, which hears of it.
    pub(super) fn may_confirm(&self, node: u8) -> bool {
        let Node { view: number, stored, unconfirmed, .. } = self.node(node);
        if number == 0 || !unconfirmed {
            return false;
        }
        let Some(end) = self.view(number).end_for(node) else { return false };
        let end = self.node(end);
        end.view == number && end.stored.covers(end.floor, &stored)
    }

    /// A link carries an answer once at a time, so that it isn't endless: what is asked again while
    /// the answer is under way gets that one. Nor does it carry the same effect twice in a row.
    fn adds_nothing(&self, frame: &Frame) -> bool {
        let mut under_way = self.link(frame.from, frame.to);
        match frame.decision {
            Some(_) => under_way.any(|other| other == frame),
            None => under_way.next_back() == Some(frame),
        }
    }

    /// Whether an offer is on its way to the switch.
    pub(super) fn offer_is_under_way(&self) -> bool {
        let is_offer = |frame: &Frame| matches!(frame.decision, Some(Decision::Offered(_)));
        let is_admission = |command: &Command| matches!(command, Command::Admit(_));
        self.frames.iter().any(is_offer) || self.commands.iter().any(is_admission)
    }
}
