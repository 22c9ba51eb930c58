//! The node: protocol, section 5, in its order (`crates/core/src/node`).

use crate::ablation::Mechanism;
use crate::state::{Command, Entry, Op, Packet, Phase, Seq, To, Version};
use crate::step::Step;

impl Step<'_> {
    /// The checks before anything else, then the operation.
    pub(crate) fn node_receives(&mut self, packet: Packet) {
        let node = self.state.node;
        let of_other_chain =
            packet.epoch == self.state.controller.other_epoch && !self.has(Mechanism::OwnChain);
        let fenced = self.has(Mechanism::EpochFence) && !of_other_chain;
        let other_epoch = packet.epoch != node.epoch && fenced;
        if other_epoch || (node.held && node.offer != 0 && self.has(Mechanism::Hold)) {
            return;
        }
        match packet.op {
            Op::Read => self.answer_read(packet, Op::ReadReply),
            Op::FencedRead => self.read_fenced(packet),
            Op::EmbeddedRead => self.read_embedded(packet),
            Op::Write | Op::ConditionalWrite => self.write(packet),
            _ => {}
        }
    }

    fn answer_read(&mut self, packet: Packet, op: Op) {
        let version = self.state.node.stored;
        let expired = self.has_expired(version);
        self.state.send(Packet { to: To::Switch, op, version, expired, ..packet });
    }

    /// Rule 2: the fence is durable before the value is read; the answer repeats it.
    fn read_fenced(&mut self, packet: Packet) {
        if self.has(Mechanism::Fence) {
            let node = &mut self.state.node;
            node.fence = node.fence.max(packet.guard);
        }
        self.answer_read(packet, Op::FencedReadReply);
    }

    /// Rule 5: stores the embedded record, then answers.
    fn read_embedded(&mut self, packet: Packet) {
        if self.has(Mechanism::EmbeddingStore) {
            self.store_from_cache(packet.version);
        }
        self.answer_read(packet, Op::ReadReply);
    }

    /// What comes out of the cache is stored only under an offer, above its floor, and iff newer:
    /// to an absent key nothing up to the floor of the epoch.
    pub(crate) fn store_from_cache(&mut self, version: Version) {
        let node = self.state.node;
        let offered = node.offer != 0 && version.seq > node.offer_floor;
        if !offered && self.has(Mechanism::OfferedStores) {
            return;
        }
        if version.seq <= self.stored_or_floor() && self.has(Mechanism::SeqCompare) {
            return;
        }
        // It may have been made upon the version that it replaces: the series goes on.
        let node = &mut self.state.node;
        node.base =
            if node.stored.value == 0 { node.floor.max(node.floor_of_epoch) } else { node.base };
        node.stored = version;
    }

    /// What an absent key counts as stored with is the floor of the epoch.
    fn stored_or_floor(&self) -> Seq {
        let node = &self.state.node;
        if node.stored.value == 0 { node.floor_of_epoch } else { node.stored.seq }
    }

    /// Rule 3, with conditions.
    fn write(&mut self, packet: Packet) {
        let node = self.state.node;
        let seq = packet.version.seq;
        let conditional = packet.op == Op::ConditionalWrite;
        let absent = node.stored.value == 0;
        let stored = self.stored_or_floor();
        let base = if absent { stored } else { node.base };
        let base = if self.has(Mechanism::Dependent) { base } else { stored };
        let compares = self.has(Mechanism::SeqCompare);
        let floor = if self.has(Mechanism::Floor) { node.floor } else { Seq::NONE };
        let fence = if self.has(Mechanism::Fence) { node.fence } else { Seq::NONE };
        let ran = node.completions[usize::from(packet.client)] == (packet.request, seq);
        if conditional && ran && self.has(Mechanism::NodeCompletion) {
            self.reply_write(packet, Op::WriteReply);
        } else if conditional && seq <= stored {
            self.reply_condition_failed(packet);
        } else if seq <= base && compares {
            self.reply_write(packet, Op::WriteReply);
        } else if absent && seq <= floor {
            // It may have run, and its record may have been dropped since.
        } else if (seq <= stored && compares) || seq <= fence.max(floor) {
            let op = if conditional { Op::BounceConditional } else { Op::Bounce };
            self.state.send(Packet { to: To::Switch, op, ..packet });
        } else if conditional && packet.guard != node.stored.seq {
            self.reply_condition_failed(packet);
        } else {
            self.apply(packet, stored);
        }
    }

    /// Stores the write, and a conditional one's completion in the same batch.
    fn apply(&mut self, packet: Packet, replaced: Seq) {
        let (client, seq) = (usize::from(packet.client), packet.version.seq);
        let node = &mut self.state.node;
        if packet.op == Op::ConditionalWrite {
            let floor = node.floor.max(node.floor_of_epoch);
            node.base = if node.stored.value == 0 { floor.max(replaced) } else { node.base };
            node.completions[client] = (packet.request, seq);
        } else {
            node.base = seq;
        }
        node.stored = packet.version;
        self.executed(packet.client, packet.request, seq);
        self.reply_write(packet, Op::WriteReply);
    }

    fn reply_write(&mut self, packet: Packet, op: Op) {
        self.state.send(Packet { to: To::Switch, op, guard: Seq::NONE, ..packet });
    }

    fn reply_condition_failed(&mut self, packet: Packet) {
        self.reply_write(packet, Op::ConditionFailed);
    }

    /// The key is hot: it is marked durably, then offered; the controller has it admitted.
    pub(crate) fn offer(&mut self) {
        let node = &mut self.state.node;
        node.offers += 1;
        node.offer = node.offers;
        node.offer_floor = node.floor.max(node.floor_of_epoch);
        if !node.held {
            self.send_offer();
        }
    }

    /// An offer that arrives while its key is cached is known already; else the key gets an entry.
    pub(crate) fn send_offer(&mut self) {
        let (offer, epoch) = (self.state.node.offer, self.state.node.epoch);
        let early = !self.has(Mechanism::AdmitAfterRecovery);
        let controller = &mut self.state.controller;
        if epoch != controller.epoch || (controller.phase != Phase::Serving && !early) {
            return;
        }
        controller.entries += 1;
        let entry = Entry { epoch, id: controller.entries, offer };
        if self.config.has_keepers() && self.has(Mechanism::KeepersFirst) {
            self.admit_at_keepers(entry);
        } else {
            self.state.command(Command::Admit(entry));
        }
    }

    /// An eviction's store; its entry goes once this is done.
    pub(crate) fn store_evicted(&mut self, entry: Entry, version: Version) {
        if entry.epoch == self.state.node.epoch || !self.has(Mechanism::EpochFence) {
            self.store_from_cache(version);
            self.state.command(Command::Remove(entry));
            // Rule 5: the offer stands until the entry is gone.
            if !self.has(Mechanism::LateClearing) {
                self.clear_offer(entry);
            }
        }
    }

    /// A record that stays in the cache is stored, and is clean then.
    pub(crate) fn store_cleaned(&mut self, entry: Entry, version: Version) {
        if entry.epoch == self.state.node.epoch {
            self.store_from_cache(version);
            self.state.command(Command::MarkClean(entry, version.seq));
        }
    }

    /// The entry is gone: the key may be offered again.
    pub(crate) fn clear_offer(&mut self, entry: Entry) {
        let node = &mut self.state.node;
        if entry.epoch == node.epoch && entry.offer == node.offer {
            node.offer = 0;
            node.offer_floor = Seq::NONE;
        }
    }

    /// Rule 8: a new epoch; offered keys are held until the release.
    pub(crate) fn node_changes_epoch(&mut self) {
        let node = &mut self.state.node;
        node.epoch = self.state.controller.epoch;
        let offered = if node.held { node.was_offered } else { node.offer != 0 };
        node.was_offered = offered && self.config.declares;
        node.held = true;
    }

    /// What a recovery gathered.
    pub(crate) fn store_recovered(&mut self, epoch: u8, version: Version) {
        if epoch == self.state.node.epoch {
            self.store_from_cache(version);
            self.state.command(Command::Release(epoch));
        }
    }

    /// The end of a recovery: everything older is stored, or will never come. Offers are made anew.
    /// If witnesses were asked, they must keep what they have until the controller hears of it.
    pub(crate) fn release(&mut self, epoch: u8) {
        let node = &mut self.state.node;
        if epoch != node.epoch || !node.held {
            return;
        }
        self.declare_loss(epoch);
        let node = &mut self.state.node;
        node.held = false;
        node.was_offered = false;
        node.floor_of_epoch = Seq::new(epoch, 0);
        if self.state.controller.witnesses == 0 {
            self.recovered(epoch);
        } else {
            self.state.command(Command::Released(epoch));
        }
        self.offer_again();
    }

    /// What is offered is offered anew.
    pub(crate) fn offer_again(&mut self) {
        let node = &self.state.node;
        if node.offer != 0 && !node.held {
            self.send_offer();
        }
    }

    /// Everything is durable, so nothing changes, unless a mechanism is missing.
    pub(crate) fn node_restarts(&mut self) {
        if !self.has(Mechanism::DurableOffer) {
            self.state.node.offer = 0;
            self.state.node.offer_floor = Seq::NONE;
        }
    }

    /// A number that made a fence, a tombstone or an expiring record becomes the floor, once no
    /// client waits any more for a write up to it. What the floor stands for goes: fences, and
    /// tombstones and expired records of keys that aren't offered.
    pub(crate) fn raise_floor(&mut self) {
        let node = self.state.node;
        let tombstone = self.config.is_tombstone(node.stored.value);
        let goes = tombstone || self.has_expired(node.stored);
        let will_go = tombstone || self.config.expires(node.stored.value);
        let noted = if will_go { node.stored.seq.max(node.fence) } else { node.fence };
        let clients = 0..self.config.clients.len();
        let active = self.state.switches[self.state.active()];
        let waits = |at: usize| {
            let (client, lane) = (&self.state.clients[at], &active.lanes[at]);
            client.waits && lane.request == client.ended + 1 && lane.seq <= noted
        };
        if noted <= node.floor || clients.into_iter().any(waits) {
            return;
        }
        let node = &mut self.state.node;
        node.floor = noted;
        if node.fence <= noted {
            node.fence = Seq::NONE;
        }
        if goes && node.stored.seq <= noted && node.offer == 0 {
            node.stored = Version::default();
            node.base = Seq::NONE;
        }
    }
}
