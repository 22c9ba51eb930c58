//! The switches before a chain's owner. They pass requests on, and keep what an answer tells of a
//! version that no node has, before a client is told.

use crate::ablation::Mechanism;
use crate::state::{Command, Entry, Keeper, Op, Packet, Seq, To, Version};
use crate::step::Step;

impl Step<'_> {
    fn keeper(&mut self, chain: usize, place: usize) -> &mut Keeper {
        &mut self.state.keepers[chain][place]
    }

    /// Whether every keeper of a chain passes what it needn't keep. They do it at once: a packet
    /// may arrive at any later moment anyway, or never.
    fn keepers_pass(&self, chain: usize) -> bool {
        let keepers = &self.state.keepers[chain][..self.config.owner()];
        keepers.iter().all(|keeper| !keeper.frozen)
    }

    /// A client's request, through all keepers to the owner.
    pub(crate) fn pass_down(&mut self, packet: Packet) {
        let is_read = packet.op == Op::Read;
        if !is_read && !self.has(Mechanism::KeptOnTheWayUp) {
            self.state.send(Packet { to: To::Keeper(0), ..packet });
            return;
        }
        if is_read && !self.has(Mechanism::OwnerAnswers) {
            self.state.send(Packet { to: To::Keeper(0), ..packet });
        }
        if self.state.chain_of(packet.epoch).is_none_or(|chain| self.keepers_pass(chain)) {
            self.state.send(packet);
        }
    }

    /// An answer from the owner, or from the keeper at this place, towards its client.
    pub(crate) fn pass_up(&mut self, chain: usize, from: usize, packet: Packet) {
        let is_kept = packet.cached && packet.dirty;
        if from == 0 {
            self.tell(chain, packet);
        } else if is_kept {
            self.state.send(Packet { to: To::Keeper(from as u8 - 1), ..packet });
            self.pass_by(chain, from, packet);
        } else if self.keepers_pass(chain) {
            self.tell(chain, packet);
        }
    }

    /// The way around keepers that must not be there.
    fn pass_by(&mut self, chain: usize, from: usize, packet: Packet) {
        if !self.has(Mechanism::KeptBeforeTold) {
            self.tell(chain, packet);
        }
        if !self.has(Mechanism::Neighbour) {
            for place in 0..from as u8 - 1 {
                self.state.send(Packet { to: To::Keeper(place), ..packet });
            }
        }
    }

    /// The first switch's answer to a client. What switches alone protect, clients needn't
    /// preserve.
    fn tell(&mut self, chain: usize, packet: Packet) {
        let dirty = packet.dirty && self.config.is_preserved(chain);
        self.state.send(Packet { to: To::Client, dirty, ..packet });
    }

    /// A packet arrives at a keeper.
    pub(crate) fn keeper_receives(&mut self, chain: usize, place: usize, packet: Packet) {
        let epoch = self.state.switches[chain].epoch;
        let refuses = packet.epoch != epoch && self.has(Mechanism::EpochFence);
        if refuses || self.keeper(chain, place).frozen {
            return;
        }
        match packet.op {
            Op::Read => self.answer_as_keeper(chain, place, packet),
            Op::Write | Op::ConditionalWrite => self.keep_on_the_way_down(chain, place, packet),
            _ => self.keep(chain, place, packet),
        }
    }

    /// Keeps the version that the answer tells if it is newer, then passes the answer on. Without
    /// an entry the answer is dropped: it is sent again, and then a node has it.
    fn keep(&mut self, chain: usize, place: usize, packet: Packet) {
        let compares = self.has(Mechanism::KeepNewest);
        let is_wanted = self.has(Mechanism::Keeping)
            && self.has(Mechanism::KeptOnTheWayUp)
            && (packet.op != Op::ReadReply || self.has(Mechanism::ReaderKeeping))
            && (packet.op != Op::ConditionFailed || self.has(Mechanism::RefusalKeeping));
        let drops = self.has(Mechanism::DropUnkept) && self.has(Mechanism::KeptOnTheWayUp);
        let keeper = self.keeper(chain, place);
        if !keeper.is_valid() && drops {
            return;
        }
        let is_newer = packet.version.seq > keeper.version.seq || !compares;
        if keeper.is_valid() && is_newer && is_wanted {
            keeper.version = packet.version;
        }
        self.pass_up(chain, place, packet);
    }

    /// What a keeper must not do: it answers a read with what it keeps.
    fn answer_as_keeper(&mut self, chain: usize, place: usize, packet: Packet) {
        let version = self.keeper(chain, place).version;
        if version.value != 0 {
            self.tell(chain, Packet { op: Op::ReadReply, version, cached: true, ..packet });
        }
    }

    /// The published order, which isn't safe: the switch next to the clients numbers a write and
    /// stores it, and the chain's last one stores it then and answers.
    fn keep_on_the_way_down(&mut self, chain: usize, place: usize, packet: Packet) {
        let counter_max = self.config.counter_max;
        let keeper = self.keeper(chain, place);
        if keeper.counter == counter_max {
            return;
        }
        keeper.counter += 1;
        let version = Version { seq: Seq::new(packet.epoch, keeper.counter), ..packet.version };
        if keeper.is_valid() {
            keeper.version = version;
        }
        self.state.send(Packet { to: To::Switch, version, ..packet });
    }

    /// An empty entry. Once each keeper has it the owner gets it: what the owner absorbs from then
    /// on can be kept.
    pub(crate) fn admit_keeper(&mut self, chain: usize, place: usize, entry: Entry) {
        let keeper = self.keeper(chain, place);
        if keeper.frozen || entry.id <= keeper.admitted_to || keeper.is_valid() {
            return;
        }
        keeper.admitted_to = entry.id;
        keeper.entry = entry;
        let keepers = &self.state.keepers[chain][..self.config.owner()];
        if keepers.iter().all(|keeper| keeper.entry == entry) && self.has(Mechanism::KeepersFirst) {
            self.state.command(Command::Admit(entry));
        }
    }

    /// Asks every keeper for an entry.
    pub(crate) fn admit_at_keepers(&mut self, entry: Entry) {
        for place in 0..self.config.owner() as u8 {
            self.state.command(Command::AdmitKeeper(place, entry));
        }
    }

    /// The entry goes; once no member has it the node's offer is cleared.
    pub(crate) fn remove_keeper(&mut self, chain: usize, place: usize, entry: Entry) {
        let keeper = self.keeper(chain, place);
        if keeper.frozen || keeper.entry != entry {
            return;
        }
        keeper.entry = Entry::default();
        keeper.version = Version::default();
        self.clear_once_gone(chain, entry);
    }

    /// The entry is to go at every keeper that has one.
    pub(crate) fn remove_from_keepers(&mut self, chain: usize, entry: Entry) {
        for place in 0..self.config.owner() {
            if self.keeper(chain, place).is_valid() {
                self.state.command(Command::RemoveKeeper(place as u8, entry));
            }
        }
        self.clear_once_gone(chain, entry);
    }

    fn clear_once_gone(&mut self, chain: usize, entry: Entry) {
        let keepers = &self.state.keepers[chain][..self.config.owner()];
        let is_kept = keepers.iter().any(Keeper::is_valid);
        if !is_kept && !self.state.switches[chain].record.is_valid() {
            self.state.command(Command::ClearOffer(entry));
        }
    }

    /// `MARK_CLEAN`: a node has this very version, so the answers from now on needn't be kept.
    pub(crate) fn mark_clean(&mut self, chain: usize, entry: Entry, seq: Seq) {
        let compares = self.has(Mechanism::CleanCompare);
        let owner = &mut self.state.switches[chain];
        let record = &mut owner.record;
        if !owner.frozen && record.entry == entry && (record.version.seq == seq || !compares) {
            record.dirty = false;
        }
    }
}
