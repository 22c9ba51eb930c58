//! What the controller tells operators.

use super::Controller;
use super::chain::{Chain, ControlCost, Declined};
use super::directory::Preserved;
use crate::control::Inspected;
use crate::time::Now;
use crate::topology::{ByChain, ChainId};
use switchback_wire::KeyHash;

/// How long the steps of the last recovery took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryTimes {
    /// The epoch that it began.
    pub epoch: u32,
    /// When it began, of the controller's monotonic clock.
    pub started_us: u64,
    /// From the last sign of life of the old switch.
    pub detect_us: u64,
    /// Until all clients' records were there.
    pub collect_us: u64,
    /// Until the newest of them were stored and every node was released.
    pub store_us: u64,
    /// When that was.
    pub released_at_us: u64,
    /// Until every key that was cached was admitted again, or declined; 0 while some are missing.
    pub readmit_us: u64,
    /// Keys that were cached and have not come back yet.
    pub missing: u64,
    /// Preserved records that clients sent.
    pub gathered: u64,
    /// Records that switches sent which had served before.
    pub loaded: u64,
    /// Records that were stored.
    pub records: u64,
    /// Keys of which what was told may be lost.
    pub lost_keys: u64,
    /// Clients whose lease ran out before they answered, or that sent more than they may preserve.
    pub abandoned_clients: u64,
}

/// What was told of keys of a chain, and is lost: no switch that had it came back, and clients
/// didn't preserve it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The epoch in which it was told.
    pub epoch: u32,
    /// Keys that may have been in the cache.
    pub keys: u64,
}

/// A node as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct NodeStatus {
    pub index: u16,
    pub alive: bool,
    pub epoch: u32,
    pub held: bool,
    pub silent_us: u64,
    pub cached_keys: usize,
    /// Partitions that it has, or joins.
    pub partitions: usize,
    /// Those that it joins.
    pub joining: usize,
    pub error: Option<String>,
}

/// How many replicas partitions have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReplicationStatus {
    /// How many each is to have.
    pub replicas: usize,
    /// Partitions that have fewer, as far as nodes are heard.
    pub lacking: usize,
    /// Partitions that a node joins.
    pub joining: usize,
    /// Partitions none of whose replicas is heard.
    pub unavailable: usize,
    /// How many more nodes may fail, whichever they are, and nothing is lost.
    pub may_fail: usize,
}

/// A switch as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct SwitchStatus {
    pub index: u16,
    /// From 1 next to the clients.
    pub layer: u8,
    pub active: bool,
    /// The chain that it serves, or served last; `None`: it may take over any.
    pub chain: Option<u16>,
    /// It is taken out of service: if it still serves, its chain is being drained for that.
    pub drained: bool,
    pub alive: bool,
    pub epoch: u32,
    pub silent_us: u64,
    /// Why it can't take a place that is free.
    pub refusal: Option<String>,
}

/// Snapshots that are taken of a chain unasked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeriodicSnapshots {
    /// From one to the next.
    pub period_us: u64,
    /// Since the last one was durable. Shorter if the controller started later, or a recovery has
    /// stored at the nodes what was told.
    pub age_us: u64,
}

/// A chain of switches as the controller sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct ChainStatus {
    pub chain: u16,
    pub phase: &'static str,
    pub epoch: u32,
    /// The switches that serve the epoch, from the clients to the nodes: the last one is the owner.
    /// None before there is one, and in a bypass epoch.
    pub members: Vec<u16>,
    pub generation: u32,
    pub durable_generation: u32,
    pub cached: usize,
    /// Failure domains of its members, as far as they have been heard of.
    pub domains: usize,
    /// Clients preserve what it tells.
    pub preserved: bool,
    /// `None`: no snapshots are taken unasked, since clients preserve nothing, or there is no
    /// period.
    pub snapshots: Option<PeriodicSnapshots>,
    /// How many losses were declared in this run of the controller.
    pub losses: u64,
    /// The last of them.
    pub last_loss: Option<Loss>,
}

/// A cached key.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct CachedKeyStatus {
    pub key: Vec<u8>,
    pub hash: KeyHash,
    pub node: u16,
    pub class: u8,
    pub slot: u32,
    pub stage: &'static str,
}

/// A cached key, and what its switch has of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InspectedKeyStatus {
    /// What the controller knows by itself.
    pub key: CachedKeyStatus,
    /// Since it got its slot; `None`: it had it before the controller started.
    pub age_us: Option<u64>,
    /// What the switch told; `None` if it didn't.
    pub switch_has: Option<Inspected>,
}

/// Where a key is, by its hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyStanding {
    /// The node that heads its partition.
    pub node: u16,
    /// As in [`CachedKeyStatus`]; `None`: it has no place in the cache.
    pub stage: Option<&'static str>,
    /// It was offered, and waits for a slot.
    pub waits: bool,
    /// The cache of its chain has room for no more keys.
    pub is_full: bool,
}

/// An inspection of every chain: for [`Controller::inspected`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inspection(ByChain<u64>);

/// The rack as the controller sees it: of several chains the one that is farthest from serving,
/// the sums of what they count, and the last recovery of any.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub struct ControllerStatus {
    pub phase: &'static str,
    pub epoch: u32,
    pub generation: u32,
    pub durable_generation: u32,
    pub cached: usize,
    pub waiting_offers: usize,
    pub declined_offers: Declined,
    pub control_cost: ControlCost,
    pub sessions: usize,
    pub draining: bool,
    pub cleaned_records: u64,
    pub snapshots_completed: u64,
    pub snapshots_failed: u64,
    pub snapshot_duration_us: u64,
    pub snapshot_bytes: u64,
    pub snapshot_records: u64,
    pub recovery: Option<RecoveryTimes>,
    pub replication: ReplicationStatus,
    pub nodes: Vec<NodeStatus>,
    pub switches: Vec<SwitchStatus>,
    pub chains: Vec<ChainStatus>,
}

impl Controller {
    /// Whether the rack serves, nothing being recovered.
    pub fn is_serving(&self) -> bool {
        self.chains.iter().all(Chain::is_serving)
    }

    /// Whether no switch serves some chain, and clients send to the nodes.
    pub fn is_bypassing(&self) -> bool {
        self.chains.iter().any(|chain| self.directory.is_bypass(chain.id()))
    }

    /// Whether clients can be served: of a recovery, at most clients are missing.
    pub fn is_ready_for_clients(&self) -> bool {
        self.chains.iter().all(Chain::is_ready_for_clients)
    }

    /// Keys in the cache or on their way in or out.
    pub fn cached(&self) -> usize {
        self.chains.iter().map(Chain::cached).sum()
    }

    /// Keys that are in the cache or on their way in or out.
    pub fn cached_keys(&self) -> Vec<CachedKeyStatus> {
        self.chains.iter().flat_map(|chain| chain.cached_keys(&self.directory)).collect()
    }

    /// Where keys are, by their hashes.
    pub fn standings(&self, hashes: &[KeyHash]) -> Vec<KeyStanding> {
        let standing = |hash: &KeyHash| {
            let id = self.directory.served().of(hash);
            let chain = self.chains.iter().find(|chain| chain.id() == id);
            chain.expect("a chain serves each key").standing(&self.directory, hash)
        };
        hashes.iter().map(standing).collect()
    }

    /// Asks the switches what they have of their cached keys. [`Controller::inspected`] has the
    /// answer after some time, which is bounded. Callers that come meanwhile share it.
    pub fn inspect(&mut self, now: Now) -> Inspection {
        let (chains, mut cx) = self.split(now);
        let inspection = Inspection(chains.by_chain(|chain| chain.inspect(&mut cx)));
        self.go_on(now);
        inspection
    }

    /// Keys that are in the cache or on their way in or out, with what the switches told since the
    /// inspection began; `None` until it has ended.
    pub fn inspected(&self, inspection: &Inspection, now: Now) -> Option<Vec<InspectedKeyStatus>> {
        let Inspection(numbers) = inspection;
        let has_ended = |chain: &Chain| chain.has_inspected(numbers[chain.id()]);
        let keys = |chain| {
            let number = numbers[Chain::id(chain)];
            chain.inspected_keys(&self.directory, now, number)
        };
        self.chains.iter().all(has_ended).then(|| self.chains.iter().flat_map(keys).collect())
    }

    /// Every chain of switches.
    pub fn chain_statuses(&self, now: Now) -> Vec<ChainStatus> {
        let status = |chain: &Chain| {
            let known = chain.status(&self.directory);
            let preserved = self.directory.preserves(chain.id()) == Preserved::All
                && self.config.scheme.absorbs_writes();
            let periodic =
                |period_us| PeriodicSnapshots { period_us, age_us: chain.snapshot_age_us(now) };
            ChainStatus {
                chain: chain.id().number(),
                phase: known.phase,
                epoch: known.epoch,
                members: self.directory.switches(chain.id()).collect(),
                generation: known.generation,
                durable_generation: known.durable_generation,
                cached: known.cached,
                domains: self.members.domains(self.directory.switches(chain.id())),
                preserved,
                snapshots: self.config.snapshot_us.filter(|_| preserved).map(periodic),
                losses: chain.losses().0,
                last_loss: chain.losses().1,
            }
        };
        self.chains.iter().map(status).collect()
    }

    /// Complete snapshots so far.
    pub fn snapshots_completed(&self) -> u64 {
        self.chains.iter().map(Chain::snapshots_completed).sum()
    }

    /// The epoch of a chain's last recovery that has gathered, and the clients that it gave up (see
    /// [`RecoveryTimes::abandoned_clients`]): what they alone preserved of that chain is lost.
    pub fn abandoned_clients(&self, chain: ChainId) -> (u32, &[u64]) {
        let mut chains = self.chains.iter();
        let chain = chains.find(|known| known.id() == chain);
        chain.map_or((0, &[]), Chain::abandoned_clients)
    }

    /// How many losses of a chain were declared in this run of the controller, and the last one.
    pub fn losses(&self, chain: ChainId) -> (u64, Option<Loss>) {
        let mut chains = self.chains.iter();
        chains.find(|known| known.id() == chain).map_or((0, None), Chain::losses)
    }

    /// Commands that wait for their answer.
    pub fn commands_outstanding(&self) -> usize {
        self.chains.iter().map(Chain::commands_outstanding).sum()
    }

    /// How many switches that serve nothing a chain goes on without for now because of a dead link
    /// (rule 28).
    pub fn left_out_switches(&self, now: Now, chain: ChainId) -> usize {
        let Some(chain) = self.chains.iter().find(|known| known.id() == chain) else { return 0 };
        let is_left_out = |switch: &u16| {
            self.directory.chain_of_switch(*switch).is_none() && chain.is_left_out(now, *switch)
        };
        self.members.switch_indices().filter(is_left_out).count()
    }

    /// Why no chain takes a switch into a place that is free; `None`: one does, or there is no such
    /// place.
    fn refusal(&self, now: Now, switch: u16) -> Option<String> {
        let hello = self.members.switch(switch)?;
        let (layer, layers) = (hello.layer, self.config.layers);
        if self.directory.chain_of_switch(switch).is_some() {
            return None;
        }
        if let Some(reason) =
            self.chains.iter().find_map(|chain| chain.reason_left_out(now, switch))
        {
            return Some(reason);
        }
        if layer > layers {
            return Some(format!("it is of layer {layer}, and the rack has layers 1 to {layers}"));
        }
        let is_unlike = |chain: &Chain| {
            let members: Vec<_> = self.directory.switches(chain.id()).collect();
            let known = |member: u16| self.members.switch(member);
            let is_free = !members.iter().any(|it| known(*it).is_some_and(|it| it.layer == layer));
            let owner = members.last().copied().filter(|_| is_free)?;
            let classes = &known(owner)?.classes;
            (*classes != hello.classes).then_some((chain.id().number(), owner))
        };
        self.chains.iter().find_map(is_unlike).map(|(chain, owner)| {
            format!(
                "its slot classes are not those of switch {owner}, the owner of chain {chain}: give all switches the same [cache]"
            )
        })
    }

    fn replication(&self, now: Now) -> ReplicationStatus {
        let replicas = self.directory.replication();
        let mut status = ReplicationStatus {
            replicas,
            joining: self.directory.joining(),
            may_fail: replicas.saturating_sub(1),
            ..ReplicationStatus::default()
        };
        for it in self.directory.map().partitions() {
            let members = self.directory.members_of(it.number);
            let is_heard = |node: &&u16| self.members.is_node_heard(now, **node);
            let heard = members.iter().filter(is_heard).count();
            status.lacking += usize::from(heard < replicas);
            status.unavailable += usize::from(heard == 0);
            status.may_fail = status.may_fail.min(heard.saturating_sub(1));
        }
        status
    }

    /// Everything at a glance.
    pub fn status(&self, now: Now) -> ControllerStatus {
        let cached_keys = |node| {
            self.chains.iter().map(|chain| chain.cached_of_head(&self.directory, node)).sum()
        };
        let chain_of = |switch| self.directory.chain_of_switch(switch).map(ChainId::number);
        let loads = self.directory.loads(self.members.nodes());
        let of_chains = self.chains.iter().map(|chain| chain.status(&self.directory));
        ControllerStatus {
            sessions: self.directory.sessions().len(),
            replication: self.replication(now),
            nodes: self.members.node_statuses(now, cached_keys, &loads),
            switches: self.members.switch_statuses(
                now,
                chain_of,
                |switch| self.directory.is_drained(switch),
                |switch| self.refusal(now, switch),
            ),
            chains: self.chain_statuses(now),
            control_cost: self.budget.cost(now),
            ..of_chains.reduce(ControllerStatus::and).expect("a rack has a chain")
        }
    }
}

/// What a chain is doing, the farthest from serving first.
const PHASES: [&str; 5] =
    [PHASE_WAITING, PHASE_RECOVERING, PHASE_RESYNCING, PHASE_BYPASS, PHASE_SERVING];
pub(super) const PHASE_WAITING: &str = "waiting for a switch";
pub(super) const PHASE_RECOVERING: &str = "recovering";
pub(super) const PHASE_RESYNCING: &str = "resynchronizing";
pub(super) const PHASE_BYPASS: &str = "serving without a switch";
pub(super) const PHASE_SERVING: &str = "serving";

impl ControllerStatus {
    /// Of this chain and another one.
    fn and(mut self, other: ControllerStatus) -> ControllerStatus {
        let rank = |phase: &&str| PHASES.iter().position(|known| known == phase);
        self.phase = std::cmp::min_by_key(self.phase, other.phase, |phase| rank(phase));
        self.epoch = self.epoch.max(other.epoch);
        self.generation = self.generation.max(other.generation);
        self.durable_generation = self.durable_generation.min(other.durable_generation);
        self.cached += other.cached;
        self.waiting_offers += other.waiting_offers;
        self.declined_offers += other.declined_offers;
        self.draining |= other.draining;
        self.cleaned_records += other.cleaned_records;
        self.snapshots_completed += other.snapshots_completed;
        self.snapshots_failed += other.snapshots_failed;
        self.snapshot_duration_us = self.snapshot_duration_us.max(other.snapshot_duration_us);
        self.snapshot_bytes += other.snapshot_bytes;
        self.snapshot_records += other.snapshot_records;
        let started_us = |times: &Option<RecoveryTimes>| times.map(|times| times.started_us);
        self.recovery = std::cmp::max_by_key(self.recovery, other.recovery, started_us);
        self
    }
}
