//! Clients: one lane each, one request at a time.

use super::state::{Client, Packet, To};
use super::step::Step;
use super::stored::Version;
use crate::config::Kind;
use crate::state::{Op, Outcome, operation_index, value_of};

impl Step<'_> {
    /// A client begins its next operation. Its packet is in the network from now on, so retries
    /// need nothing more.
    pub(super) fn invoke(&mut self, client: u8) {
        let session = &mut self.state.clients[usize::from(client)];
        session.waits = true;
        let Client { ended, seen, .. } = *session;
        let request = ended + 1;
        let mut before = 0;
        for (at, operation) in self.state.history.iter().enumerate() {
            let has_ended = !matches!(operation.outcome, Outcome::None | Outcome::Open);
            before |= u16::from(has_ended) << at;
        }
        let (op, value, expected) = match self.config.kind(client, request) {
            Kind::Read => (Op::Read, 0, Version::default()),
            Kind::Conditional => (Op::ConditionalWrite, value_of(client, request), seen),
            _ => (Op::Write, value_of(client, request), Version::default()),
        };
        let operation = &mut self.state.history[operation_index(client, request)];
        (operation.outcome, operation.before) = (Outcome::Open, before);
        operation.value = expected.value;
        let version = Version { value, seq: 0 };
        let guard = expected.seq;
        self.state.send(Packet { to: To::Switch, op, client, request, view: 0, version, guard });
    }

    /// A client takes the answer to its request.
    pub(super) fn client_receives(&mut self, packet: Packet) {
        let Client { ended, waits, .. } = self.state.clients[usize::from(packet.client)];
        if !waits || packet.request != ended + 1 {
            return;
        }
        match packet.op {
            Op::ReadReply | Op::WriteReply => {
                self.ends(packet.client, Outcome::Done, packet.version);
            }
            Op::ConditionFailed => self.ends(packet.client, Outcome::Failed, Version::default()),
            _ => {}
        }
    }

    /// A client waits no longer: what became of its write is unknown.
    pub(super) fn give_up(&mut self, client: u8) {
        self.ends(client, Outcome::Indeterminate, Version::default());
    }

    fn ends(&mut self, client: u8, outcome: Outcome, version: Version) {
        let session = &mut self.state.clients[usize::from(client)];
        session.waits = false;
        session.ended += 1;
        let request = session.ended;
        if !self.config.next_is_conditional(client, request) {
            session.seen = Version::default();
        } else if outcome == Outcome::Done {
            session.seen = version;
        }
        let operation = &mut self.state.history[operation_index(client, request)];
        operation.outcome = outcome;
        if self.config.kind(client, request) == Kind::Read {
            operation.value = version.value;
        }
        self.check_history(outcome);
    }
}
