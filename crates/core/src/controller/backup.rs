//! Backups: what all nodes have stored and all caches hold dirty at one moment, the *cut*
//! (rule 29).
//!
//! Nodes first write out what only their logs have, so that a checkpoint is quick.
//! Then every client ends its writes and holds back new ones; the owner of each chain begins a
//! snapshot; then each node makes a checkpoint; and the writes go on. A client holds writes back
//! for [`HOLD_US`] from when it was asked: a cut that takes longer is void, and tried again.
//!
//! A backup is complete once the snapshots that began at the cut are whole. It is then the
//! checkpoints, which are at the nodes, and the controller's files of [`BackupFile`].

use super::chain::Chain;
use super::directory::{SnapshotFile, encode};
use super::outbox::{BackupFile, BackupPart, StoreFile};
use super::topology::Chains;
use super::{ClientNotice, Context};
use crate::control::{HOLD_US, NodeCommand};
use crate::time::Now;
use crate::topology::{ByChain, ChainId};
use std::collections::{BTreeMap, BTreeSet};

/// A cut must be done this long before the first client may write again: clocks differ a little.
const MARGIN_US: u64 = 50_000;
/// Tries to cut before the backup fails.
const TRIES_MAX: u32 = 5;
/// Pause before the next try.
const PAUSE_US: u64 = 1_000_000;
/// How long a backup waits for chains that recover or take a snapshot, and for its own snapshots.
const WAIT_US_MAX: u64 = 60_000_000;

/// How far a backup has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackupStage {
    /// It has ended, or there was none.
    #[default]
    Ended,
    /// It waits until it can be cut.
    Waiting,
    /// Clients end their writes.
    Holding,
    /// All clients hold writes back: the cut is made.
    Cutting,
    /// The cut is made, and its snapshots become whole and durable.
    Collecting,
}

/// What became of the last backup that was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BackupStatus {
    /// Which one was asked for; 0: none in this run of the controller.
    pub request: u64,
    /// How far it has come.
    pub stage: BackupStage,
    /// The last try to cut. Its files and checkpoints have this number.
    pub round: u64,
    /// What it waits for; `None`: it has ended.
    pub waits_for: Option<String>,
    /// Why it failed, or why the last try to cut was void.
    pub failure: Option<String>,
    /// How often it was tried to cut.
    pub tries: u32,
    /// For how long writes were held back by the try that succeeded.
    pub held_us: u64,
    /// Its files are durable.
    pub is_complete: bool,
}

/// The backup under way, and what became of the last one.
#[derive(Debug, Default)]
pub(super) struct Backup {
    status: BackupStatus,
    step: Step,
    until_us: u64,
    /// Of the last try to cut.
    round: u64,
    /// A backup of which a file can't be stored, and why.
    unstored: Option<(u64, String)>,
}

#[derive(Debug, Default)]
enum Step {
    #[default]
    Idle,
    /// Nodes write out what only their logs have.
    Flushing,
    /// Every chain has to serve, and to take no snapshot.
    Waiting,
    /// These clients have writes to these chains under way.
    Holding { cut: Cut, clients: BTreeSet<(u64, ChainId)> },
    /// The owners of these chains begin snapshots.
    Beginning { cut: Cut, chains: BTreeSet<ChainId> },
    /// These nodes make checkpoints.
    Checkpointing { cut: Cut, nodes: BTreeSet<u16> },
    /// Snapshots aren't whole yet.
    Collecting { cut: Cut },
    /// The last file is being stored.
    Storing { store: u64 },
    /// The last try was void.
    Pausing,
}

impl Step {
    /// What it waits for, for people; `None`: nothing is under way.
    fn waits_for(&self) -> Option<String> {
        Some(match self {
            Step::Idle => return None,
            Step::Flushing => "nodes to write out their logs".into(),
            Step::Waiting => "chains that recover, change or take a snapshot".into(),
            Step::Holding { clients, .. } => {
                let asked: BTreeSet<_> = clients.iter().map(|(client, _)| client).collect();
                format!("clients to hold their writes back ({} of them)", asked.len())
            }
            Step::Beginning { chains, .. } => format!("snapshots of chains {chains:?} to begin"),
            Step::Checkpointing { nodes, .. } => format!("checkpoints of nodes {nodes:?}"),
            Step::Collecting { cut } => format!("snapshots of chains {:?}", cut.unfinished),
            Step::Storing { .. } => "the controller's disk".into(),
            Step::Pausing => "the next try".into(),
        })
    }

    /// The cut that has been begun and may still become a backup.
    fn cut(&mut self) -> Option<&mut Cut> {
        match self {
            Step::Holding { cut, .. }
            | Step::Beginning { cut, .. }
            | Step::Checkpointing { cut, .. }
            | Step::Collecting { cut } => Some(cut),
            _ => None,
        }
    }
}

/// A try to cut.
#[derive(Debug)]
struct Cut {
    began_us: u64,
    /// Who was asked to hold writes back, in which life.
    asked: BTreeMap<u64, u64>,
    /// Those of them whose leases ran out before they answered: the cut is made without them.
    silent: BTreeSet<u64>,
    /// The epoch of each chain. Another one makes the cut void.
    epochs: ByChain<u32>,
    /// The generation that each snapshot began, of the chains that have any.
    generations: BTreeMap<ChainId, u32>,
    /// The chains whose snapshot isn't whole yet.
    unfinished: BTreeSet<ChainId>,
    /// The directory at the cut, once it is made.
    directory: Vec<u8>,
}

impl Backup {
    /// How it stands.
    pub(super) fn status(&self) -> BackupStatus {
        let (stage, round, waits_for) = (self.stage(), self.round, self.step.waits_for());
        BackupStatus { stage, round, waits_for, ..self.status.clone() }
    }

    /// The last try to cut.
    pub(super) fn round(&self) -> u64 {
        self.round
    }

    /// How far the one under way has come.
    pub(super) fn stage(&self) -> BackupStage {
        match self.step {
            Step::Idle => BackupStage::Ended,
            Step::Flushing | Step::Waiting | Step::Pausing => BackupStage::Waiting,
            Step::Holding { .. } => BackupStage::Holding,
            Step::Beginning { .. } | Step::Checkpointing { .. } => BackupStage::Cutting,
            Step::Collecting { .. } | Step::Storing { .. } => BackupStage::Collecting,
        }
    }

    /// When it has something to do without a message.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        (!matches!(self.step, Step::Idle | Step::Storing { .. })).then_some(self.until_us)
    }

    /// Whether this life of a client may be granted a lease: while clients are waited for, only one
    /// that was asked to hold its writes back; while the cut is made, only one that does.
    pub(super) fn admits(&self, client: u64, boot: u64) -> bool {
        match &self.step {
            Step::Holding { cut, .. } => cut.asked.get(&client) == Some(&boot),
            Step::Beginning { cut, .. } | Step::Checkpointing { cut, .. } => {
                cut.asked.get(&client) == Some(&boot) && !cut.silent.contains(&client)
            }
            _ => true,
        }
    }

    /// A client holds back its writes to a chain.
    pub(super) fn client_holds(&mut self, client: u64, chain: ChainId, round: u64) {
        if let Step::Holding { clients, .. } = &mut self.step
            && self.round == round
        {
            clients.remove(&(client, chain));
        }
    }

    /// A client's session has ended.
    pub(super) fn client_closed(&mut self, client: u64) {
        if let Step::Holding { clients, .. } = &mut self.step {
            clients.retain(|(other, _)| *other != client);
        }
        if let Some(cut) = self.step.cut() {
            cut.asked.remove(&client);
        }
    }

    /// A node has made the checkpoint of this number.
    pub(super) fn node_has_checkpoint(&mut self, node: u16, number: u64) {
        if let Step::Checkpointing { nodes, .. } = &mut self.step
            && self.round == number
        {
            nodes.remove(&node);
        }
    }

    /// A chain's snapshot has begun.
    pub(super) fn snapshot_has_begun(&mut self, chain: ChainId, generation: u32) {
        if let Step::Beginning { cut, chains } = &mut self.step
            && cut.generations.get(&chain) == Some(&generation)
        {
            chains.remove(&chain);
        }
    }

    /// The next round, or backup: the time, so that no other one of this rack has its number, not
    /// even after a restart of the controller or of a rack that was restored.
    fn next_round(&mut self, now: Now) -> u64 {
        self.round = now.unix_ms.max(self.round + 1);
        self.round
    }

    /// Whether no snapshot may begin for another reason: there would hardly be a moment at which no
    /// chain takes one.
    pub(super) fn holds_up_snapshots(&self) -> bool {
        matches!(self.step, Step::Waiting | Step::Holding { .. })
    }

    /// A file of the backup with this number can't be stored.
    pub(super) fn is_not_stored(&mut self, number: u64, why: &str) {
        self.unstored = Some((number, why.to_owned()));
    }

    /// Why this backup can't be stored.
    fn unstored(&self) -> Option<String> {
        let (_, why) = self.unstored.as_ref().filter(|(number, _)| *number == self.round)?;
        Some(format!("the controller can't store its files: {why}"))
    }
}

/// A chain's snapshot is whole. If it began at the cut, it becomes part of the backup.
pub(super) fn snapshot_is_whole(cx: &mut Context<'_>, chain: ChainId, snapshot: &SnapshotFile) {
    let Some(cut) = cx.backup.step.cut() else { return };
    if cut.generations.get(&chain) == Some(&snapshot.generation) && cut.unfinished.remove(&chain) {
        let file = BackupFile { number: cx.backup.round, part: BackupPart::Snapshot(chain) };
        cx.outbox.store(StoreFile::Backup(file), encode(snapshot));
    }
}

/// Takes the next step, if it can be taken. Whether it was: chains may have commands to send then.
pub(super) fn step(chains: &mut Chains, cx: &mut Context<'_>) -> bool {
    let is_late = cx.now.monotonic_us >= cx.backup.until_us;
    let is_ready = chains.iter().all(Chain::is_ready_to_cut);
    let in_order = cx.mechanisms.checkpoint_after_snapshot();
    let (next, until_us) = match std::mem::take(&mut cx.backup.step) {
        Step::Flushing if is_late => (Step::Waiting, cx.now.in_us(WAIT_US_MAX)),
        Step::Waiting if is_late => fail(cx),
        Step::Waiting if is_ready => begin_cut(chains, cx),
        step if has_changed(chains, cx, &step) => {
            void(chains, cx, step, "another epoch began meanwhile".into())
        }
        Step::Holding { mut cut, clients }
            if is_ready && (all_hold(cx, &clients) || !cx.mechanisms.hold_before_cut()) =>
        {
            cut.silent = clients.into_iter().map(|(client, _)| client).collect();
            if in_order { begin_snapshots(chains, cx, cut) } else { checkpoint(chains, cx, cut) }
        }
        Step::Beginning { cut, chains: begun } if begun.is_empty() => {
            if in_order {
                checkpoint(chains, cx, cut)
            } else {
                end_cut(cx, cut)
            }
        }
        step @ Step::Holding { .. } if is_late => late(chains, cx, step),
        step @ (Step::Beginning { .. } | Step::Checkpointing { .. })
            if is_late && cx.mechanisms.cut_in_time() =>
        {
            late(chains, cx, step)
        }
        Step::Checkpointing { cut, nodes } if nodes.is_empty() => {
            if in_order {
                end_cut(cx, cut)
            } else {
                begin_snapshots(chains, cx, cut)
            }
        }
        Step::Collecting { .. } | Step::Storing { .. } if cx.backup.unstored().is_some() => {
            cx.backup.status.failure = cx.backup.unstored();
            (Step::Idle, cx.now.monotonic_us)
        }
        Step::Collecting { cut } if cut.unfinished.is_empty() => store(cx, cut),
        step @ Step::Collecting { .. } if is_late => late(chains, cx, step),
        step @ Step::Collecting { .. } if has_failed(chains, &step) => {
            void(chains, cx, step, "a snapshot came to nothing".into())
        }
        Step::Storing { store } if cx.outbox.is_stored(store) => {
            cx.backup.status.is_complete = true;
            cx.backup.status.failure = None;
            return false;
        }
        Step::Pausing if is_late => (Step::Waiting, cx.now.in_us(WAIT_US_MAX)),
        other => {
            cx.backup.step = other;
            return false;
        }
    };
    (cx.backup.step, cx.backup.until_us) = (next, until_us);
    true
}

/// Begins a backup, unless one is under way that isn't cut yet; the request. `None`: one is that
/// lacks what is written since its cut.
pub(super) fn begin(chains: &mut Chains, cx: &mut Context<'_>) -> Option<u64> {
    match cx.backup.stage() {
        BackupStage::Ended => {}
        BackupStage::Waiting | BackupStage::Holding => return Some(cx.backup.status.request),
        BackupStage::Cutting | BackupStage::Collecting => return None,
    }
    let request = cx.backup.next_round(cx.now);
    cx.backup.status = BackupStatus { request, ..BackupStatus::default() };
    withdraw_commands(chains);
    command_nodes(chains, cx, &NodeCommand::FlushSoon);
    let until_us = cx.now.in_us(cx.config.backup_flush_us);
    (cx.backup.step, cx.backup.until_us) = (Step::Flushing, until_us);
    Some(request)
}

/// Tells every node something, as of a chain that it knows, since it stores keys of it; the nodes.
fn command_nodes(
    chains: &mut Chains,
    cx: &mut Context<'_>,
    command: &NodeCommand,
) -> BTreeSet<u16> {
    // One that was taken out of all partitions stores nothing.
    let stores = |node: &u16| chains.iter().any(|it| cx.directory.holders(it.id()).contains(node));
    let nodes: BTreeSet<u16> = (0..cx.members.nodes()).filter(stores).collect();
    for node in &nodes {
        let holds = |chain: &&mut Chain| cx.directory.holders(chain.id()).contains(node);
        if let Some(chain) = chains.iter_mut().find(holds) {
            chain.command_node(cx, *node, command.clone());
        }
    }
    nodes
}

/// Commands of a try that is over aren't repeated.
fn withdraw_commands(chains: &mut Chains) {
    chains.iter_mut().for_each(Chain::withdraw_backup);
}

/// Asks all clients to hold back their writes.
fn begin_cut(chains: &mut Chains, cx: &mut Context<'_>) -> (Step, u64) {
    let round = cx.backup.next_round(cx.now);
    cx.backup.status.tries += 1;
    let session_of = |client| Some((client, cx.directory.session(client)?.boot));
    let asked: BTreeMap<u64, u64> = cx.sessions.living(cx.now).filter_map(session_of).collect();
    let epochs = chains.by_chain(|chain| cx.directory.epoch(chain.id()));
    let clients: BTreeSet<_> =
        asked.keys().flat_map(|client| epochs.iter().map(|(chain, _)| (*client, chain))).collect();
    clients.iter().for_each(|(client, chain)| ask(cx, *client, *chain, epochs[*chain], round));
    let cut = Cut {
        began_us: cx.now.monotonic_us,
        asked,
        silent: BTreeSet::new(),
        epochs,
        generations: BTreeMap::new(),
        unfinished: BTreeSet::new(),
        directory: Vec::new(),
    };
    (Step::Holding { cut, clients }, cx.now.in_us(HOLD_US - MARGIN_US))
}

fn ask(cx: &mut Context<'_>, client: u64, chain: ChainId, epoch: u32, round: u64) {
    cx.notify(client, ClientNotice::Hold { chain, epoch, round });
}

/// A client that is waited for says hello: the notice or its answer may be lost.
pub(super) fn ask_again(cx: &mut Context<'_>, client: u64) {
    let round = cx.backup.round;
    let Step::Holding { cut, clients } = &cx.backup.step else { return };
    let of_client = clients.iter().filter(|(other, _)| *other == client);
    let asked: Vec<_> = of_client.map(|(_, chain)| (*chain, cut.epochs[*chain])).collect();
    asked.into_iter().for_each(|(chain, epoch)| ask(cx, client, chain, epoch, round));
}

/// Whether no client has a write under way. One without a lease accepts no answer, so its writes
/// have ended.
fn all_hold(cx: &Context<'_>, clients: &BTreeSet<(u64, ChainId)>) -> bool {
    clients.iter().all(|(client, _)| !cx.sessions.is_living(cx.now, *client))
}

/// All writes are held back: the caches begin snapshots. What a cache evicts from now on is in its
/// snapshot; what it has evicted before is at its node.
fn begin_snapshots(chains: &mut Chains, cx: &mut Context<'_>, mut cut: Cut) -> (Step, u64) {
    for chain in chains.iter_mut() {
        if let Some(generation) = chain.begin_snapshot(cx) {
            cut.generations.insert(chain.id(), generation);
        }
    }
    cut.unfinished = cut.generations.keys().copied().collect();
    let chains = cut.unfinished.clone();
    (Step::Beginning { cut, chains }, cx.backup.until_us)
}

/// All snapshots have begun: the nodes make checkpoints.
fn checkpoint(chains: &mut Chains, cx: &mut Context<'_>, cut: Cut) -> (Step, u64) {
    let command = NodeCommand::Checkpoint(cx.backup.round);
    let nodes = command_nodes(chains, cx, &command);
    (Step::Checkpointing { cut, nodes }, cx.backup.until_us)
}

/// All checkpoints were made in time: the writes go on.
fn end_cut(cx: &mut Context<'_>, mut cut: Cut) -> (Step, u64) {
    cx.backup.status.held_us = cx.now.monotonic_us - cut.began_us;
    cut.directory = cx.directory.of_backup();
    resume(cx, &mut cut);
    (Step::Collecting { cut }, cx.now.in_us(WAIT_US_MAX))
}

/// Everything else is stored, or will be before this: the directory makes the backup complete.
fn store(cx: &mut Context<'_>, cut: Cut) -> (Step, u64) {
    let file = BackupFile { number: cx.backup.round, part: BackupPart::Directory };
    let store = cx.outbox.store(StoreFile::Backup(file), cut.directory);
    (Step::Storing { store }, cx.backup.until_us)
}

/// A try that waits for something for too long is void.
fn late(chains: &mut Chains, cx: &mut Context<'_>, step: Step) -> (Step, u64) {
    let waits_for = step.waits_for().unwrap_or_default();
    void(chains, cx, step, format!("it waited for {waits_for} for too long"))
}

/// A try came to nothing: the writes go on, and another one follows.
fn void(chains: &mut Chains, cx: &mut Context<'_>, mut step: Step, why: String) -> (Step, u64) {
    cx.backup.status.failure = Some(format!("try {} was void: {why}", cx.backup.status.tries));
    if let Some(cut) = step.cut() {
        resume(cx, cut);
    }
    withdraw_commands(chains);
    let is_last = cx.backup.status.tries >= TRIES_MAX;
    (if is_last { Step::Idle } else { Step::Pausing }, cx.now.in_us(PAUSE_US))
}

/// A backup that can't be cut is given up.
fn fail(cx: &mut Context<'_>) -> (Step, u64) {
    let waited = "it waited too long for chains that recover, change or take a snapshot";
    cx.backup.status.failure = Some(waited.into());
    (Step::Idle, cx.now.monotonic_us)
}

/// Whether another epoch of a chain has begun since clients were asked to hold their writes back.
fn has_changed(chains: &Chains, cx: &Context<'_>, step: &Step) -> bool {
    let cut = match step {
        Step::Holding { cut, .. }
        | Step::Beginning { cut, .. }
        | Step::Checkpointing { cut, .. } => cut,
        _ => return false,
    };
    chains.iter().any(|chain| cx.directory.epoch(chain.id()) != cut.epochs[chain.id()])
}

/// Whether a snapshot that a cut needs isn't taken any more.
fn has_failed(chains: &mut Chains, step: &Step) -> bool {
    let Step::Collecting { cut } = step else { return false };
    let is_taken = |chain: &ChainId| {
        chains.get_mut(*chain).is_some_and(|it| it.takes_snapshot(cut.generations[chain]))
    };
    !cut.unfinished.iter().all(is_taken)
}

/// Tells the clients that were asked that their writes go on.
fn resume(cx: &mut Context<'_>, cut: &mut Cut) {
    let round = cx.backup.round;
    for client in std::mem::take(&mut cut.asked).into_keys() {
        cx.notify(client, ClientNotice::Resume { round });
    }
}
