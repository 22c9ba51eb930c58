//! Commands that wait for their answer. Each is repeated until it comes, or until its epoch is
//! over.

use super::budget::Purpose;
use super::work::Work;
use crate::control::{Command, CommandId, Envelope, Message, NodeCommand, Peer, SwitchCommand};
use crate::storage::OfferId;
use crate::time::Now;
use crate::topology::ChainId;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::repeat_n;
use std::ops::RangeInclusive;
use switchback_wire::KeyHash;

/// What a peer is told to do. Its answer is understood by this.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// To a switch that serves.
    Switch(SwitchCommand),
    /// To one node, whichever partitions it heads.
    Node(NodeCommand),
    /// To the node that heads the partitions of these keys.
    Work(Work),
}

impl Order {
    /// What it is for, if it is about keys that are to be cached, or no longer.
    pub(super) fn purpose(&self) -> Option<Purpose> {
        match self {
            Order::Switch(SwitchCommand::Admit(_)) | Order::Work(Work::RegisterCopies(_)) => {
                Some(Purpose::Admission)
            }
            Order::Switch(SwitchCommand::EvictBegin { .. } | SwitchCommand::Remove(_))
            | Order::Work(Work::StoreEvicted(_)) => Some(Purpose::Eviction),
            Order::Switch(SwitchCommand::Clean(_)) | Order::Work(Work::StoreCleaned(_)) => {
                Some(Purpose::Cleaning)
            }
            Order::Work(Work::ClearOffers(_) | Work::HoldOffers(_) | Work::OfferKeys(_)) => {
                Some(Purpose::Offer)
            }
            Order::Switch(_) | Order::Node(_) | Order::Work(Work::StoreRecovered(_)) => None,
        }
    }
}

#[derive(Clone, Debug)]
struct Outstanding {
    /// Its receiver; of work, the head of its partitions when it was last sent.
    to: Peer,
    epoch: u32,
    order: Order,
    /// Of the commands that say the same to several switches: the first and the last of them.
    together: RangeInclusive<CommandId>,
    send_at_us: u64,
    pause_us: u64,
}

impl Outstanding {
    fn message(&self, chain: ChainId, id: CommandId) -> Message {
        let epoch = self.epoch;
        match &self.order {
            Order::Switch(body) => {
                Message::ToSwitch(Command { id, chain, epoch, body: body.clone() })
            }
            Order::Node(body) => Message::ToNode(Command { id, chain, epoch, body: body.clone() }),
            Order::Work(work) => {
                Message::ToNode(Command { id, chain, epoch, body: work.command() })
            }
        }
    }
}

/// Offers that outstanding commands are about.
type Offers = BTreeSet<(KeyHash, OfferId, CommandId)>;

/// The table of outstanding commands. There may be as many as there are offers after a recovery, so
/// nothing that is done for every message looks through them all.
#[derive(Debug)]
pub(super) struct Commands {
    chain: ChainId,
    outstanding: BTreeMap<CommandId, Outstanding>,
    /// When each is sent, for the first time or again.
    schedule: BTreeSet<(u64, CommandId)>,
    /// Admissions among them; those that say the same to several switches count as one.
    admits: usize,
    /// Questions among them which of some records are to be evicted.
    evict_begins: usize,
    /// Stores of cleanings among them.
    cleanings: usize,
    /// Stores of a recovery among them, by the node that is told.
    recovery_stores: BTreeMap<Peer, usize>,
    /// Offers that nodes were told to clear and may not have cleared yet.
    clearing: Offers,
    /// Offers that nodes were told are known, and may not have heard so yet.
    telling: Offers,
    next: CommandId,
    retry_us: u64,
}

fn contains(offers: &Offers, hash: KeyHash, offer: OfferId) -> bool {
    offers.range((hash, offer, 0)..=(hash, offer, CommandId::MAX)).next().is_some()
}

/// Longest pause between two repetitions.
const PAUSE_US_MAX: u64 = 500_000;

impl Commands {
    /// Commands about a chain. `starts` makes ids unique over restarts of the controller.
    pub(super) fn new(chain: ChainId, starts: u32, retry_us: u64) -> Commands {
        Commands {
            chain,
            outstanding: BTreeMap::new(),
            schedule: BTreeSet::new(),
            admits: 0,
            evict_begins: 0,
            cleanings: 0,
            recovery_stores: BTreeMap::new(),
            clearing: Offers::new(),
            telling: Offers::new(),
            next: u64::from(starts) << 40 | 1,
            retry_us,
        }
    }

    fn add(&mut self, now: Now, to: Peer, epoch: u32, order: Order) {
        let together = self.next..=self.next;
        self.add_together(now, to, epoch, order, together);
    }

    fn add_together(
        &mut self,
        now: Now,
        to: Peer,
        epoch: u32,
        order: Order,
        together: RangeInclusive<CommandId>,
    ) {
        let id = self.next;
        self.next += 1;
        match &order {
            Order::Switch(SwitchCommand::Admit(_)) if id == *together.start() => self.admits += 1,
            Order::Switch(SwitchCommand::EvictBegin { .. }) => self.evict_begins += 1,
            Order::Work(Work::StoreCleaned(_)) => self.cleanings += 1,
            Order::Work(Work::StoreRecovered(_)) => {
                *self.recovery_stores.entry(to).or_default() += 1
            }
            _ => {}
        }
        if let Some((set, offers)) = self.offers_of(&order) {
            set.extend(offers.iter().map(|(hash, offer)| (*hash, *offer, id)));
        }
        let (send_at_us, pause_us) = (now.monotonic_us, self.retry_us);
        self.schedule.insert((send_at_us, id));
        let outstanding = Outstanding { to, epoch, order, together, send_at_us, pause_us };
        self.outstanding.insert(id, outstanding);
    }

    fn remove(&mut self, id: CommandId) -> Option<Outstanding> {
        let outstanding = self.outstanding.remove(&id)?;
        self.schedule.remove(&(outstanding.send_at_us, id));
        match &outstanding.order {
            Order::Switch(SwitchCommand::Admit(_)) if self.is_last(&outstanding) => {
                self.admits -= 1;
            }
            Order::Switch(SwitchCommand::EvictBegin { .. }) => self.evict_begins -= 1,
            Order::Work(Work::StoreCleaned(_)) => self.cleanings -= 1,
            Order::Work(Work::StoreRecovered(_)) => {
                *self
                    .recovery_stores
                    .get_mut(&outstanding.to)
                    .expect("counted when it was added") -= 1;
            }
            _ => {}
        }
        if let Some((set, offers)) = self.offers_of(&outstanding.order) {
            offers.iter().for_each(|(hash, offer)| {
                set.remove(&(*hash, *offer, id));
            });
        }
        Some(outstanding)
    }

    /// Whether no other command is outstanding of those that say the same as one that isn't any
    /// more.
    fn is_last(&self, answered: &Outstanding) -> bool {
        self.outstanding.range(answered.together.clone()).next().is_none()
    }

    /// The offers that a command is about, and the set that knows them while it is outstanding.
    fn offers_of<'a>(
        &mut self,
        order: &'a Order,
    ) -> Option<(&mut Offers, &'a [(KeyHash, OfferId)])> {
        match order {
            Order::Work(Work::ClearOffers(offers)) => Some((&mut self.clearing, offers)),
            Order::Work(Work::HoldOffers(offers)) => Some((&mut self.telling, offers)),
            _ => None,
        }
    }

    /// Sets when a command is sent again.
    fn send_at(&mut self, id: CommandId, at_us: u64, pause_us: u64) {
        let Some(outstanding) = self.outstanding.get_mut(&id) else { return };
        self.schedule.remove(&(outstanding.send_at_us, id));
        self.schedule.insert((at_us, id));
        (outstanding.send_at_us, outstanding.pause_us) = (at_us, pause_us);
    }

    /// Tells these switches the same: the last answer says that all have answered.
    pub(super) fn command_switches(
        &mut self,
        now: Now,
        epoch: u32,
        switches: &[u16],
        body: SwitchCommand,
    ) {
        let first = self.next;
        for (switch, body) in switches.iter().zip(repeat_n(body, switches.len())) {
            let together = first..=first + switches.len() as u64 - 1;
            self.add_together(now, Peer::Switch(*switch), epoch, Order::Switch(body), together);
        }
    }

    pub(super) fn command_node(&mut self, now: Now, epoch: u32, node: u16, body: NodeCommand) {
        self.add(now, Peer::Node(node), epoch, Order::Node(body));
    }

    /// Tells the heads of the keys' partitions: each in as few messages as it takes.
    pub(super) fn command_heads(
        &mut self,
        now: Now,
        epoch: u32,
        work: Work,
        head_of: impl Fn(&KeyHash) -> u16,
    ) {
        for (head, work) in work.by_head(head_of) {
            self.add(now, Peer::Node(head), epoch, Order::Work(work));
        }
    }

    /// Takes the answer to a command: what it was, and whether all that were told the same have
    /// answered; `None` if it was answered before, or its epoch is over.
    pub(super) fn answered(&mut self, id: CommandId, from: Peer) -> Option<(Order, bool)> {
        let outstanding = self.outstanding.get(&id)?;
        if outstanding.to != from {
            return None;
        }
        let outstanding = self.remove(id)?;
        let by_all = self.is_last(&outstanding);
        Some((outstanding.order, by_all))
    }

    /// A command failed for now: it is repeated after a pause.
    pub(super) fn failed(&mut self, now: Now, id: CommandId) {
        if let Some(pause_us) = self.outstanding.get(&id).map(|outstanding| outstanding.pause_us) {
            self.send_at(id, now.in_us(pause_us), pause_us);
        }
    }

    /// A peer is back: repeat at once what it may have missed.
    pub(super) fn repeat_to(&mut self, now: Now, peer: Peer) {
        let of_peer = self.outstanding.iter().filter(|(_, outstanding)| outstanding.to == peer);
        let ids: Vec<_> = of_peer.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.send_at(id, now.monotonic_us, self.retry_us));
    }

    /// Whether such a command is outstanding. Looks through all.
    pub(super) fn any(&self, is_wanted: impl Fn(Peer, &Order) -> bool) -> bool {
        self.outstanding.values().any(|outstanding| is_wanted(outstanding.to, &outstanding.order))
    }

    /// Whether a node was told to clear this offer and may not have cleared it yet.
    pub(super) fn is_clearing(&self, hash: KeyHash, offer: OfferId) -> bool {
        contains(&self.clearing, hash, offer)
    }

    /// Whether a node was told that this offer is known, and may not have heard so yet.
    pub(super) fn is_telling(&self, hash: KeyHash, offer: OfferId) -> bool {
        contains(&self.telling, hash, offer)
    }

    /// How many commands are outstanding.
    pub(super) fn len(&self) -> usize {
        self.outstanding.len()
    }

    /// How many of them are admissions.
    pub(super) fn admits(&self) -> usize {
        self.admits
    }

    /// How many of them are a recovery's stores that a node was told.
    pub(super) fn recovery_stores(&self, node: u16) -> usize {
        self.recovery_stores.get(&Peer::Node(node)).copied().unwrap_or(0)
    }

    /// How many of them are stores of cleanings.
    pub(super) fn cleanings(&self) -> usize {
        self.cleanings
    }

    /// Whether the switch was asked which of some records are to be evicted.
    pub(super) fn is_evict_begin_out(&self) -> bool {
        self.evict_begins > 0
    }

    /// The epoch is over, and with it every command.
    pub(super) fn clear(&mut self) {
        self.outstanding.clear();
        self.schedule.clear();
        (self.admits, self.evict_begins, self.cleanings) = (0, 0, 0);
        self.recovery_stores.clear();
        self.clearing.clear();
        self.telling.clear();
    }

    /// The cache's state is to be learned anew; what was under way to change it no longer counts.
    /// But nodes may yet clear the offers that they were told to: those must not be taken
    /// meanwhile.
    pub(super) fn clear_but_offers(&mut self) {
        self.withdraw(|order| !matches!(order, Order::Work(Work::ClearOffers(_))));
    }

    /// Forgets the commands that `is_meant`: what is answered to them no longer counts.
    pub(super) fn withdraw(&mut self, is_meant: impl Fn(&Order) -> bool) {
        let meant = self.outstanding.iter().filter(|(_, other)| is_meant(&other.order));
        for id in meant.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    /// Forgets what a node was told that isn't about the keys of partitions, which have another
    /// head by now.
    pub(super) fn withdraw_from(&mut self, peer: Peer) {
        let of_peer = self.outstanding.iter().filter(|(_, outstanding)| {
            outstanding.to == peer && matches!(outstanding.order, Order::Node(_))
        });
        for id in of_peer.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.remove(id);
        }
    }

    /// When [`Commands::due`] has something to send.
    pub(super) fn next_us(&self) -> Option<u64> {
        self.schedule.first().map(|(at_us, _)| *at_us)
    }

    /// Commands to send now, for the first time or again. Work goes to the heads of the moment.
    pub(super) fn due(
        &mut self,
        now: Now,
        head_of: impl Fn(&KeyHash) -> u16,
        mut send: impl FnMut(&Order, Envelope),
    ) {
        for id in self.due_now(now) {
            self.follow_heads(now, id, &head_of);
        }
        for id in self.due_now(now) {
            let outstanding = &self.outstanding[&id];
            let message = outstanding.message(self.chain, id);
            let envelope = Envelope { from: Peer::Controller, to: outstanding.to, message };
            send(&outstanding.order, envelope);
            let pause_us = outstanding.pause_us;
            self.send_at(id, now.in_us(pause_us), (pause_us * 2).min(PAUSE_US_MAX));
        }
    }

    fn due_now(&self, now: Now) -> Vec<CommandId> {
        self.schedule.range(..=(now.monotonic_us, CommandId::MAX)).map(|(_, id)| *id).collect()
    }

    /// If other nodes head the partitions of some work by now, they are told, by other commands:
    /// what the node before them answers no longer counts.
    fn follow_heads(&mut self, now: Now, id: CommandId, head_of: impl Fn(&KeyHash) -> u16) {
        let Outstanding { to: Peer::Node(node), order: Order::Work(work), .. } =
            &self.outstanding[&id]
        else {
            return;
        };
        if work.is_headed_by(*node, &head_of) {
            return;
        }
        if let Some(Outstanding { epoch, order: Order::Work(work), .. }) = self.remove(id) {
            self.command_heads(now, epoch, work, head_of);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::ChainId;

    fn now(monotonic_us: u64) -> Now {
        Now { monotonic_us, unix_ms: 0 }
    }

    fn key(key: u8) -> KeyHash {
        KeyHash([key; 16])
    }

    /// What is sent now: to which node, and the keys of the offers to clear.
    fn sent(
        commands: &mut Commands,
        at_us: u64,
        head_of: impl Fn(&KeyHash) -> u16,
    ) -> Vec<(Peer, CommandId, Vec<KeyHash>)> {
        let mut sent = Vec::new();
        commands.due(now(at_us), head_of, |_, envelope| {
            let Message::ToNode(Command { id, body: NodeCommand::ClearOffers(offers), .. }) =
                envelope.message
            else {
                panic!("{envelope:?}")
            };
            sent.push((envelope.to, id, offers.into_iter().map(|(hash, _)| hash).collect()));
        });
        sent
    }

    #[test]
    fn a_head_hears_of_all_its_partitions_in_one_message() {
        let mut commands = Commands::new(ChainId::new(0), 1, 1000);
        let offers = (0..4).map(|number| (key(number), OfferId::from_bits(7))).collect();
        let parity = |hash: &KeyHash| u16::from(hash.0[0] % 2);
        commands.command_heads(now(0), 1, Work::ClearOffers(offers), parity);
        let sent: Vec<_> =
            sent(&mut commands, 0, parity).into_iter().map(|(to, _, keys)| (to, keys)).collect();
        assert_eq!(
            sent,
            [(Peer::Node(0), vec![key(0), key(2)]), (Peer::Node(1), vec![key(1), key(3)])]
        );
    }

    #[test]
    fn work_follows_its_partitions_to_another_head() {
        let mut commands = Commands::new(ChainId::new(0), 1, 1000);
        let offer = OfferId::from_bits(7);
        let offers = vec![(key(0), offer), (key(1), offer)];
        commands.command_heads(now(0), 1, Work::ClearOffers(offers), |_| 0);
        let before = sent(&mut commands, 0, |_| 0);
        assert_eq!(before.len(), 1);

        let split = |hash: &KeyHash| u16::from(hash.0[0]);
        assert_eq!(sent(&mut commands, 999, split), [], "it is repeated after a pause");
        let after = sent(&mut commands, 1000, split);
        let told: Vec<_> = after.iter().map(|(to, _, keys)| (*to, keys.clone())).collect();
        assert_eq!(told, [(Peer::Node(0), vec![key(0)]), (Peer::Node(1), vec![key(1)])]);

        assert!(
            commands.answered(before[0].1, Peer::Node(0)).is_none(),
            "the first command stands no more"
        );
        assert!(commands.is_clearing(key(0), offer) && commands.is_clearing(key(1), offer));
        assert!(commands.answered(after[1].1, Peer::Node(1)).is_some());
        assert!(commands.is_clearing(key(0), offer) && !commands.is_clearing(key(1), offer));
        assert_eq!(commands.len(), 1);
    }
}
