//! The client session: one lane, preservation, the move to a new epoch (`crates/core/src/client`).

use crate::ablation::Mechanism;
use crate::config::Kind;
use crate::state::{
    Client, Op, Outcome, Packet, Preserved, Seq, To, Version, operation_index, value_of,
};
use crate::step::Step;

impl Step<'_> {
    fn client(&mut self, client: u8) -> &mut Client {
        &mut self.state.clients[usize::from(client)]
    }

    /// Begins the next operation. Its packet is in the network from now on, so retries need nothing
    /// more.
    pub(crate) fn invoke(&mut self, client: u8) {
        let session = self.client(client);
        session.waits = true;
        let (request, seen) = (session.ended + 1, session.seen);
        let mut before = 0;
        for (at, operation) in self.state.history.iter().enumerate() {
            if !matches!(operation.outcome, Outcome::None | Outcome::Open) {
                before |= 1 << at;
            }
        }
        let kind = self.config.kind(client, request);
        let operation = &mut self.state.history[operation_index(client, request)];
        operation.outcome = Outcome::Open;
        operation.before = before;
        if kind == Kind::Conditional {
            operation.value = seen.value;
        }
        let op = match kind {
            Kind::Read => Op::Read,
            Kind::Write | Kind::Delete | Kind::Expiring => Op::Write,
            Kind::Conditional => Op::ConditionalWrite,
        };
        let value = if kind == Kind::Read { 0 } else { value_of(client, request) };
        let guard = if kind == Kind::Conditional { seen.seq } else { Seq::NONE };
        self.send_request(client, op, Version { value, seq: Seq::NONE }, guard);
    }

    fn send_request(&mut self, client: u8, op: Op, version: Version, guard: Seq) {
        let session = *self.client(client);
        let (request, epoch) = (session.ended + 1, session.epoch);
        let packet =
            Packet { to: To::Switch, op, client, request, epoch, version, guard, ..NO_PACKET };
        self.pass_down(packet);
    }

    /// Takes an answer, if it is to the request under way and of its epoch.
    pub(crate) fn client_receives(&mut self, packet: Packet) {
        let fenced = self.has(Mechanism::EpochFence);
        let session = *self.client(packet.client);
        let other_epoch = fenced && packet.epoch != session.epoch;
        if other_epoch || !session.waits || packet.request != session.ended + 1 {
            return;
        }
        let kind = self.config.kind(packet.client, packet.request);
        match packet.op {
            Op::ReadReply if session.refused => self.read_after_refusal(packet),
            Op::ReadReply if kind == Kind::Read => {
                self.preserve(packet);
                self.state.history[operation_index(packet.client, packet.request)].found_expired =
                    packet.expired;
                self.ends(packet.client, Outcome::Done, packet.version);
            }
            Op::WriteReply if !session.refused => {
                self.preserve(packet);
                self.ends(packet.client, Outcome::Done, packet.version);
            }
            // A client that the cache refused has seen that another version is there: it is read,
            // and preserved, first; unless the refusal itself was kept on its way.
            Op::ConditionFailed if packet.cached && self.config.has_keepers() => {
                self.refused_by(packet);
            }
            Op::ConditionFailed if packet.cached && !session.refused => {
                self.client(packet.client).refused = true;
                self.send_request(packet.client, Op::Read, Version::default(), Seq::NONE);
            }
            Op::ConditionFailed if !session.refused => {
                self.ends(packet.client, Outcome::Failed, Version::default());
            }
            _ => {}
        }
    }

    /// The refusal names the version that is there; a repeated one may know only its number.
    fn refused_by(&mut self, packet: Packet) {
        self.preserve(packet);
        self.state.promised = self.state.promised.max(packet.version.seq);
        let known = if packet.version.value == 0 { Version::default() } else { packet.version };
        self.ends(packet.client, Outcome::Failed, known);
    }

    /// In a later epoch it may be what was expected after all, since no part knew of the other.
    /// Nothing was done, at any rate.
    fn read_after_refusal(&mut self, packet: Packet) {
        self.preserve(packet);
        self.client(packet.client).refused = false;
        let expected = self.state.history[operation_index(packet.client, packet.request)].value;
        let outcome =
            if packet.version.value == expected { Outcome::Void } else { Outcome::Failed };
        self.ends(packet.client, outcome, packet.version);
    }

    /// Keeps what the cache answered and no node has (rule 7).
    fn preserve(&mut self, packet: Packet) {
        let is_read = packet.op == Op::ReadReply;
        let preserves = self.has(Mechanism::Preservation)
            && (!is_read || self.has(Mechanism::ReaderPreservation));
        let needed = packet.cached && packet.dirty;
        let session = self.client(packet.client);
        if !preserves || !needed || packet.generation < session.durable_generation {
            return;
        }
        let Preserved { version: kept, generation } = session.preserved;
        let (newer, again) = (packet.version.seq > kept.seq, packet.version.seq == kept.seq);
        if newer || (again && packet.generation > generation) {
            session.preserved =
                Preserved { version: packet.version, generation: packet.generation };
        }
    }

    /// The operation under way ends.
    pub(crate) fn ends(&mut self, client: u8, outcome: Outcome, version: Version) {
        let session = self.client(client);
        let request = session.ended + 1;
        session.waits = false;
        session.ended = request;
        let next_needs_it = self.config.next_is_conditional(client, request);
        let told = matches!(outcome, Outcome::Done | Outcome::Failed);
        let session = self.client(client);
        session.seen = match (next_needs_it, told) {
            (true, true) => version,
            (true, false) => session.seen,
            (false, _) => Version::default(),
        };
        let operation = &mut self.state.history[operation_index(client, request)];
        operation.outcome = outcome;
        if self.config.kind(client, request) == Kind::Read {
            operation.value = version.value;
        }
        if told {
            self.state.promised = self.state.promised.max(version.seq);
        }
        self.check_history(client, request);
    }

    /// It waited for too long: what became of a write is unknown.
    pub(crate) fn gives_up(&mut self, client: u8) {
        let session = *self.client(client);
        let is_read = self.config.kind(client, session.ended + 1) == Kind::Read || session.refused;
        self.client(client).refused = false;
        self.ends(
            client,
            if is_read { Outcome::Void } else { Outcome::Indeterminate },
            Version::default(),
        );
    }

    /// Moves to the new epoch and answers the gather, in one step (rule 9).
    pub(crate) fn gather_from(&mut self, client: u8) {
        self.moves_to(client, self.state.controller.epoch);
        let preserved = self.client(client).preserved;
        self.gathered(client, preserved.version);
    }

    /// It takes another epoch: open writes become indeterminate, reads are sent again.
    pub(crate) fn moves_to(&mut self, client: u8, epoch: u8) {
        let session = self.client(client);
        session.epoch = epoch;
        let (waits, request) = (session.waits, session.ended + 1);
        let reads = session.refused || self.config.kind(client, request) == Kind::Read;
        if waits && reads {
            self.send_request(client, Op::Read, Version::default(), Seq::NONE);
        } else if waits {
            self.ends(client, Outcome::Indeterminate, Version::default());
        }
    }

    /// A snapshot is durable: everything older is in it, or at its node.
    pub(crate) fn hears_durable(&mut self, client: u8) {
        let published = self.state.controller.published;
        let session = self.client(client);
        session.durable_generation = published;
        if session.preserved.generation < published {
            session.preserved = Preserved::default();
        }
    }

    /// The recovery is durable: everything of older epochs is at its node.
    pub(crate) fn hears_recovered(&mut self, client: u8) {
        let recovered = self.state.controller.recovered_epoch;
        let session = self.client(client);
        session.recovered_epoch = recovered;
        if session.preserved.version.seq.epoch() < recovered {
            session.preserved = Preserved::default();
        }
    }
}

const NO_PACKET: Packet = Packet {
    to: To::Switch,
    op: Op::Read,
    client: 0,
    request: 0,
    epoch: 0,
    version: Version { value: 0, seq: Seq::NONE },
    guard: Seq::NONE,
    generation: 0,
    cached: false,
    dirty: false,
    expired: false,
};
