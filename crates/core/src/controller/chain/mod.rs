//! A chain of switches: which of them serve, what its cache holds, its recoveries and snapshots.

mod admission;
mod budget;
mod cache;
mod change;
mod cleaning;
mod commands;
mod copies;
mod eviction;
mod gather;
mod inspection;
mod links;
mod recovery;
mod resync;
mod snapshots;
mod takeover;
mod views;
mod witnesses;
mod work;

use self::admission::Waiting;
use self::budget::Purpose;
use self::cache::Cache;
use self::change::Change;
use self::commands::{Commands, Order};
use self::inspection::Inspections;
use self::links::Links;
use self::recovery::Recovery;
use self::resync::Resync;
use self::snapshots::Snapshots;
use self::views::Views;
use self::work::Work;
use super::directory::{Directory, Preserved, SnapshotFile};
use super::membership::NodeChange;
use super::status::{
    CachedKeyStatus, ControllerStatus, KeyStanding, PHASE_BYPASS, PHASE_RECOVERING,
    PHASE_RESYNCING, PHASE_SERVING, PHASE_WAITING, RecoveryTimes,
};
use super::{Context, ControllerConfig, Known, Loss};
use crate::control::{
    ChainGrant, CommandId, Destination, EntryId, NodeCommand, Peer, SwitchCommand, SwitchReport,
    SwitchResult,
};
use crate::time::Now;
use crate::topology::ChainId;
pub use admission::Declined;
pub(super) use budget::Budget;
pub use budget::{ControlCost, Spent};
pub(super) use copies::Spines;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::KeyHash;

/// The controller is called at least once in a retry's pause while a recovery gathers; if this many
/// were missed, its process was paused.
const SLEEP_RETRIES: u64 = 4;

/// What a chain is doing.
#[derive(Debug)]
enum Phase {
    /// No switch serves since then: the first that says hello will.
    Waiting { since_us: u64 },
    /// The switches that serve are known, what they hold is being listed (after a restart of the
    /// controller).
    Resyncing(Resync),
    /// A new epoch is being made durable, then recovered.
    Recovering(Box<Recovery>),
    /// The epoch is recovered.
    Serving,
}

/// What a chain does when its time has come. Each deadline follows from the chain's state, so none
/// is kept beside it.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// A command is sent, for the first time or again.
    Command,
    /// A switch that serves counts as dead, or the wait for one is over.
    Switch,
    /// A snapshot is taken, or the one under way is given up.
    Snapshot,
    /// Clients are asked again for what they preserve, or no longer waited for; or no witness is.
    Source,
    /// A planned change's drain is given up, or clients aren't waited for any more.
    Change,
    /// An inspection is given up.
    Inspection,
    /// The budget has something left for offers that wait.
    Budget,
    /// Evictions that waited for others are begun.
    Eviction,
}

impl Timer {
    const ALL: [Timer; 8] = [
        Timer::Command,
        Timer::Switch,
        Timer::Snapshot,
        Timer::Source,
        Timer::Change,
        Timer::Inspection,
        Timer::Budget,
        Timer::Eviction,
    ];
}

/// A chain of switches. Epoch and members are in the directory, since they must be durable.
#[derive(Debug)]
pub(super) struct Chain {
    id: ChainId,
    phase: Phase,
    commands: Commands,
    cache: Cache,
    waiting: Waiting,
    /// Offers wait for the budget.
    awaits_budget: bool,
    /// The next entry of the cache gets this id.
    next_entry: EntryId,
    snapshots: Snapshots,
    /// When evictions were begun last.
    evicted_us: Option<u64>,
    /// Evictions are wanted that wait for others to join them.
    wants_room: bool,
    /// How many callers wait for an empty cache.
    drains: u32,
    change: Change,
    inspections: Inspections,
    links: Links,
    views: Views,
    /// When this began.
    since_us: u64,
    /// The last sign of life of each switch that serves, or served last, in that life.
    heard_us: BTreeMap<u16, u64>,
    /// Keys that were cached when a switch died, until they are cached again or declined.
    missing: BTreeSet<KeyHash>,
    /// Of the last recovery.
    times: Option<RecoveryTimes>,
    /// The last recovery that has gathered, and the clients that it no longer waited for.
    abandoned: (u32, Vec<u64>),
    /// How many losses were declared in this run of the controller, and the last one.
    losses: (u64, Option<Loss>),
    /// Dirty records that nodes have stored while they were cached.
    cleaned: u64,
}

impl Chain {
    /// A chain whose switches haven't been heard of in this run of the controller.
    pub(super) fn new(
        id: ChainId,
        now: Now,
        config: &ControllerConfig,
        directory: &Directory,
        last: SnapshotFile,
    ) -> Chain {
        // Nodes and clients of a bypass epoch need nothing of the controller but leases.
        let is_serving = directory.is_bypass(id) && directory.is_recovered(id);
        let since_us = now.monotonic_us;
        Chain {
            id,
            phase: if is_serving { Phase::Serving } else { Phase::Waiting { since_us } },
            commands: Commands::new(id, directory.starts(), config.retry_us),
            cache: Cache::new(&[], config.cache_records),
            waiting: Waiting::default(),
            awaits_budget: false,
            next_entry: u64::from(directory.starts()) << 40 | 1,
            snapshots: Snapshots::new(
                now,
                config
                    .snapshot_us
                    .filter(|_| directory.preserves(id) == Preserved::All)
                    .map(|period_us| now.in_us(period_us)),
                last,
            ),
            evicted_us: None,
            wants_room: false,
            drains: 0,
            change: Change::default(),
            inspections: Inspections::default(),
            links: Links::default(),
            views: Views::default(),
            since_us,
            heard_us: BTreeMap::new(),
            missing: BTreeSet::new(),
            times: None,
            abandoned: (0, Vec::new()),
            losses: (0, None),
            cleaned: 0,
        }
    }

    /// Its name.
    pub(super) fn id(&self) -> ChainId {
        self.id
    }

    /// Takes every step that has become possible.
    pub(super) fn go_on(&mut self, cx: &mut Context<'_>) {
        self.resync_on(cx);
        self.recover_on(cx);
        self.views_on(cx);
        self.joins_on(cx);
        self.admit_waiting(cx);
        self.drain_on(cx);
        self.change_on(cx);
        self.inspect_on(cx);
        let (directory, outbox, budget) = (&*cx.directory, &mut *cx.outbox, &mut *cx.budget);
        let head_of = |hash: &KeyHash| directory.head_of(hash);
        self.commands.due(cx.now, head_of, |order, envelope| {
            if let Some(purpose) = order.purpose() {
                budget.sent(cx.now, purpose, &envelope.message);
            }
            outbox.post(envelope);
        });
    }

    /// A switch of the chain reported something of the chain's epoch, but for hellos.
    pub(super) fn switch_reported(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        report: SwitchReport,
    ) {
        // What keepers hold follows from what the owner does.
        let is_owner = cx.directory.owner(self.id) == Some(switch);
        match report {
            SwitchReport::Done { id, result, .. } => self.switch_done(cx, switch, id, result),
            SwitchReport::Heard { heard, .. } => self.switch_heard(cx, switch, heard),
            _ if !is_owner => {}
            SwitchReport::Hello { .. } => {}
            SwitchReport::EvictMe { entries, .. } => {
                cx.budget.received(cx.now, Purpose::Eviction, &entries);
                self.evict_themselves(cx, entries);
            }
            SwitchReport::Dirty { records, .. } => {
                cx.budget.received(cx.now, Purpose::Cleaning, &records);
                self.found_dirty(cx, records);
            }
            SwitchReport::SnapshotChunk { generation, index, records, .. } => {
                self.snapshots.take_chunk(cx.now, generation, index, records);
            }
            SwitchReport::SnapshotEnd { generation, chunks, complete, .. } => {
                self.snapshot_end(cx, generation, chunks, complete);
            }
        }
    }

    fn switch_done(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        id: CommandId,
        result: SwitchResult,
    ) {
        let Some((Order::Switch(command), by_all)) =
            self.answered(cx, id, Peer::Switch(switch), &result)
        else {
            return;
        };
        match (command, result) {
            (SwitchCommand::Configure(_) | SwitchCommand::Freeze(_), SwitchResult::Ok) => {
                self.switch_configured(cx, switch);
            }
            (SwitchCommand::LoadFrozen(_), SwitchResult::Frozen(records, next)) => {
                self.frozen_loaded(cx, switch, records, next);
            }
            (SwitchCommand::ListEntries(_), SwitchResult::Entries(entries, next)) => {
                self.listed(cx, switch, entries, next)
            }
            (SwitchCommand::Admit(entries), SwitchResult::Admitted { refused }) => {
                self.admitted_by(cx, switch, entries, refused, by_all);
            }
            (
                SwitchCommand::EvictBegin { candidates, counts, .. },
                SwitchResult::Evicting(evicting),
            ) => {
                self.evicting(cx, candidates, &counts, evicting);
            }
            (SwitchCommand::Views(_), _) if by_all => self.views_routed(cx),
            (SwitchCommand::Remove(entries), _) if by_all => self.removed_by(cx, switch, entries),
            (SwitchCommand::Inspect(asked), SwitchResult::Inspected(told)) => {
                self.inspected(cx, &asked, told);
            }
            (SwitchCommand::Snapshot { generation }, SwitchResult::Busy) => {
                self.snapshots.fail(cx.now, generation)
            }
            (SwitchCommand::Snapshot { generation }, SwitchResult::Ok) => {
                cx.backup.snapshot_has_begun(self.id, generation);
            }
            _ => {}
        }
    }

    /// A node said hello.
    pub(super) fn node_said_hello(&mut self, cx: &mut Context<'_>, node: u16, change: NodeChange) {
        if change.restarted {
            self.commands.repeat_to(cx.now, Peer::Node(node));
        }
        if change.moved {
            let address = cx.members.node(node).address;
            let command = SwitchCommand::NodeAddress(node, address);
            match cx.config.scheme.has_copies() {
                true => self.command_members(cx, command), // nodes fill a spine's copies, too
                false => self.command_owner(cx, command),
            }
        }
        self.node_lags(cx, node);
        self.joins_lag(cx, node, change.restarted);
        if !cx.directory.holders(self.id).contains(&node) {
            self.stranger_said_hello(cx, node, change.restarted);
        }
        let standing = cx.members.standing(node, self.id);
        if standing.needs_epoch && standing.epoch == cx.directory.epoch(self.id) {
            self.node_needs_epoch(cx);
        }
    }

    /// A node did what it was told in the chain's epoch.
    pub(super) fn node_done(&mut self, cx: &mut Context<'_>, node: u16, id: CommandId) {
        let Some((order, _)) = self.answered(cx, id, Peer::Node(node), &()) else { return };
        match order {
            Order::Node(NodeCommand::Epoch(_)) => self.node_moved(cx, node),
            Order::Node(NodeCommand::Release { .. }) => self.node_released(node),
            Order::Node(NodeCommand::Checkpoint(number)) => {
                cx.backup.node_has_checkpoint(node, number);
            }
            Order::Work(Work::StoreRecovered(records)) => self.recovered_stored(cx, &records),
            Order::Work(Work::StoreEvicted(evicted)) => {
                self.evicted_stored(cx, evicted.into_iter().map(|(entry, _)| entry).collect());
            }
            Order::Work(Work::StoreCleaned(stored)) => self.cleaned_stored(cx, &stored),
            Order::Work(Work::ClearOffers(offers)) => self.offers_cleared(offers),
            Order::Work(Work::RegisterCopies(copies)) => self.copies_registered(cx, &copies),
            _ => {}
        }
    }

    /// Takes the answer to a command, and what it tells: what the command was, if it stood, and
    /// whether all switches that were told the same have answered.
    fn answered(
        &mut self,
        cx: &mut Context<'_>,
        id: CommandId,
        from: Peer,
        told: &impl Serialize,
    ) -> Option<(Order, bool)> {
        let (order, by_all) = self.commands.answered(id, from)?;
        if let Some(purpose) = order.purpose() {
            cx.budget.received(cx.now, purpose, told);
        }
        Some((order, by_all))
    }

    /// A node can't do now what it was told.
    pub(super) fn node_refused(&mut self, now: Now, id: CommandId) {
        self.commands.failed(now, id);
    }

    /// Something was stored: perhaps the snapshot.
    pub(super) fn stored(&mut self, cx: &mut Context<'_>) {
        if self.snapshots.is_stored(cx.outbox) {
            self.publish_snapshot(cx);
        }
    }

    /// When [`Chain::handle_timeout`] has something to do.
    pub(super) fn poll_timeout(&self, known: Known<'_>) -> Option<u64> {
        Timer::ALL.iter().filter_map(|timer| self.deadline_us(*timer, known)).min()
    }

    fn deadline_us(&self, timer: Timer, known: Known<'_>) -> Option<u64> {
        match timer {
            Timer::Command => self.commands.next_us(),
            Timer::Switch => self.switch_deadline_us(known),
            Timer::Snapshot => self.snapshots.next_us(),
            Timer::Source => match &self.phase {
                Phase::Recovering(recovery) => recovery.source_deadline_us(),
                _ => None,
            },
            Timer::Change => self.change.deadline_us(),
            Timer::Inspection => self.inspections.deadline_us(),
            Timer::Budget => {
                let keeps = known.config.scheme.keeps_in_switches();
                let waits = self.awaits_budget && self.wants_slots(known.directory, keeps);
                known.budget.ready_us().filter(|_| waits)
            }
            Timer::Eviction => self.eviction_us(known.config).filter(|_| self.wants_room),
        }
    }

    fn is_due(&self, cx: &Context<'_>, timer: Timer) -> bool {
        let deadline_us = self.deadline_us(timer, cx.known());
        deadline_us.is_some_and(|deadline_us| cx.now.monotonic_us >= deadline_us)
    }

    /// Notices a dead switch, takes a snapshot, asks clients again, as far as they are due.
    pub(super) fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        if self.is_due(cx, Timer::Switch) {
            self.switch_is_dead(cx);
        }
        if self.is_due(cx, Timer::Snapshot) {
            self.snapshot_is_due(cx);
        }
        if self.is_due(cx, Timer::Source) {
            self.gather_again(cx);
        }
        self.go_on(cx);
    }

    /// The controller wasn't called for `slept_us`. If its process was paused, it may have missed
    /// what clients sent, so a recovery waits longer for each of them.
    pub(super) fn slept(&mut self, cx: &Context<'_>, slept_us: u64) {
        if let Phase::Recovering(recovery) = &mut self.phase
            && slept_us > SLEEP_RETRIES * cx.config.retry_us
            && cx.mechanisms.wait_while_heard()
        {
            recovery.slept(cx.now, slept_us, cx.sessions.lease_us());
        }
    }

    /// Sends a command to a switch that serves.
    fn command_switch(&mut self, cx: &Context<'_>, switch: u16, body: SwitchCommand) {
        let epoch = cx.directory.epoch(self.id);
        self.commands.command_switches(cx.now, epoch, &[switch], body);
    }

    /// Sends a command to the chain's owner, if it has one.
    fn command_owner(&mut self, cx: &Context<'_>, body: SwitchCommand) {
        if let Some(owner) = cx.directory.owner(self.id) {
            self.command_switch(cx, owner, body);
        }
    }

    /// Sends a command to all keepers together. Whether there are any.
    fn command_keepers(&mut self, cx: &Context<'_>, body: SwitchCommand) -> bool {
        let keepers: Vec<_> = cx.directory.keepers(self.id).collect();
        self.commands.command_switches(cx.now, cx.directory.epoch(self.id), &keepers, body);
        !keepers.is_empty()
    }

    /// Sends a command to all members together.
    fn command_members(&mut self, cx: &Context<'_>, body: SwitchCommand) {
        let members: Vec<_> = cx.directory.switches(self.id).collect();
        self.commands.command_switches(cx.now, cx.directory.epoch(self.id), &members, body);
    }

    /// Sends a command to a node, whichever partitions it heads.
    pub(super) fn command_node(&mut self, cx: &Context<'_>, node: u16, body: NodeCommand) {
        self.commands.command_node(cx.now, cx.directory.epoch(self.id), node, body);
    }

    /// Forgets commands about a backup.
    pub(super) fn withdraw_backup(&mut self) {
        self.commands.withdraw(|order| {
            matches!(order, Order::Node(NodeCommand::FlushSoon | NodeCommand::Checkpoint(_)))
        });
    }

    /// Sends commands to the nodes that head the partitions of some keys.
    fn command_heads(&mut self, cx: &Context<'_>, work: Work) {
        let head_of = |hash: &KeyHash| cx.directory.head_of(hash);
        self.commands.command_heads(cx.now, cx.directory.epoch(self.id), work, head_of);
    }

    /// Where clients send their packets in this epoch; `None` while the switch's address isn't
    /// known (after a restart of the controller).
    fn destination(&self, cx: &Context<'_>) -> Option<Destination> {
        let first = match cx.config.scheme.has_copies() {
            true => cx.directory.owner(self.id), // clients know the spines apart
            false => cx.directory.first(self.id),
        };
        match first {
            Some(first) => cx.members.switch(first).map(|hello| Destination::Switch(hello.address)),
            None if cx.directory.is_bypass(self.id) => {
                let (map, nodes) = (cx.directory.map().clone(), cx.members.node_addresses());
                Some(Destination::Nodes { map, nodes })
            }
            None => None,
        }
    }

    /// What a client with a lease is offered; `None` while there is nothing to offer.
    pub(super) fn grant(&self, cx: &Context<'_>) -> Option<ChainGrant> {
        if matches!(self.phase, Phase::Waiting { .. }) {
            return None;
        }
        Some(ChainGrant {
            epoch: cx.directory.epoch(self.id),
            destination: self.destination(cx)?,
            durable_generation: self.snapshots.durable_generation(),
            recovered_epoch: cx.directory.recovered_epoch(self.id),
            preserves: cx.directory.preserves(self.id) == Preserved::All,
            gathers: self.gathers(cx),
        })
    }

    /// Whether a client that moves to the epoch is to send what it preserves.
    fn gathers(&self, cx: &Context<'_>) -> bool {
        let gathers = match &self.phase {
            Phase::Recovering(recovery) => recovery.gathers(),
            _ => None,
        };
        gathers.unwrap_or(!cx.config.scheme.keeps_in_switches())
    }

    /// Whether it serves, nothing being recovered.
    pub(super) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving)
    }

    /// Whether clients can be served: of a recovery, at most clients are missing.
    pub(super) fn is_ready_for_clients(&self) -> bool {
        match &self.phase {
            Phase::Serving => true,
            Phase::Recovering(recovery) => recovery.waits_for_clients_only(),
            Phase::Waiting { .. } | Phase::Resyncing(_) => false,
        }
    }

    /// Keys in the cache or on their way in or out.
    pub(super) fn cached(&self) -> usize {
        self.cache.len()
    }

    /// Keys that are in the cache or on their way in or out, of partitions that a node heads.
    pub(super) fn cached_of_head(&self, directory: &Directory, node: u16) -> usize {
        let headed =
            self.cache.partitions().filter(|(partition, _)| directory.head(*partition) == node);
        headed.map(|(_, keys)| keys).sum()
    }

    /// Every key that is or may be in the cache.
    pub(super) fn cached_keys(
        &self,
        directory: &Directory,
    ) -> impl Iterator<Item = CachedKeyStatus> {
        self.cache.iter().map(|key| key.status(directory))
    }

    /// Where a key of the chain is.
    pub(super) fn standing(&self, directory: &Directory, hash: &KeyHash) -> KeyStanding {
        KeyStanding {
            node: directory.head_of(hash),
            stage: self.cache.find(hash).map(|key| key.stage.name()),
            waits: self.waiting.has(hash),
            is_full: self.cache.room() == 0,
        }
    }

    /// Commands that wait for their answer.
    pub(super) fn commands_outstanding(&self) -> usize {
        self.commands.len()
    }

    /// The epoch of the last recovery that has gathered, and the clients that it gave up.
    pub(super) fn abandoned_clients(&self) -> (u32, &[u64]) {
        (self.abandoned.0, &self.abandoned.1)
    }

    /// How many losses were declared in this run of the controller, and the last one.
    pub(super) fn losses(&self) -> (u64, Option<Loss>) {
        self.losses
    }

    /// Everything of the chain at a glance; nothing of switches, nodes and sessions.
    pub(super) fn status(&self, directory: &Directory) -> ControllerStatus {
        let status = ControllerStatus {
            phase: match &self.phase {
                Phase::Waiting { .. } => PHASE_WAITING,
                Phase::Resyncing(_) => PHASE_RESYNCING,
                Phase::Recovering(_) => PHASE_RECOVERING,
                Phase::Serving if directory.is_bypass(self.id) => PHASE_BYPASS,
                Phase::Serving => PHASE_SERVING,
            },
            epoch: directory.epoch(self.id),
            cached: self.cache.len(),
            waiting_offers: self.waiting.len(),
            declined_offers: self.waiting.declined(),
            draining: self.is_draining(),
            cleaned_records: self.cleaned,
            recovery: self.times,
            ..ControllerStatus::default()
        };
        self.snapshots.status(status)
    }
}
