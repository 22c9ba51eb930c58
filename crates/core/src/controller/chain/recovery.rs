//! Recovery of a chain (rules 8, 9 and 23): a new epoch, then hold, load what witnesses have or
//! gather what clients preserve, store the newest, release. Clients run on meanwhile.

use super::commands::Order;
use super::gather::{Client, Gather};
use super::witnesses::Witnesses;
use super::work::Work;
use super::{Chain, Context, Phase};
use crate::control::{
    ClientNotice, KeyedRecord, NodeCommand, NodeConfig, Peer, Refresh, SwitchCommand, SwitchConfig,
    batch_len,
};
use crate::controller::directory::Preserved;
use crate::controller::status::RecoveryTimes;
use crate::time::Now;
use crate::topology::ChainId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use switchback_wire::{Address, KeyHash, Map, Partition, Place, Seq};

/// Stores under way to one node at a time.
const STORES_MAX: usize = 8;

/// A recovery in progress.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The store that makes the new epoch durable: no part is told of it before.
    stored_by: u64,
    /// Members that haven't taken their configuration.
    unconfigured: BTreeSet<u16>,
    /// Those that store partitions of the chain.
    nodes: BTreeMap<u16, NodeRecovery>,
    /// Partitions whose records aren't all stored.
    partitions: BTreeMap<u16, PartitionRecovery>,
    /// Every record was at its node when it began.
    is_drained: bool,
    /// `None` until the new epoch is durable.
    source: Option<Source>,
    /// The store that makes its end durable, once nothing else is left to do.
    ended_by: Option<u64>,
    times: RecoveryTimes,
}

/// Where it takes what was told and no node has.
#[derive(Debug)]
enum Source {
    /// The switches that served.
    Witnesses(Witnesses),
    /// Clients, and the last snapshot.
    Clients(Gather),
}

#[derive(Debug, Default)]
struct NodeRecovery {
    moved: bool,
    releasing: bool,
    released: bool,
}

#[derive(Debug, Default)]
struct PartitionRecovery {
    to_store: VecDeque<KeyedRecord>,
    /// Records that its head was told to store.
    storing: usize,
}

impl Recovery {
    /// A recovery whose epoch becomes durable by the store `stored_by`. A switch that served before
    /// was last heard of at `silent_since_us`. `is_drained`: every record is at its node.
    pub(super) fn new(
        now: Now,
        epoch: u32,
        stored_by: u64,
        silent_since_us: u64,
        members: impl Iterator<Item = u16>,
        holders: impl Iterator<Item = u16>,
        is_drained: bool,
    ) -> Recovery {
        Recovery {
            stored_by,
            unconfigured: members.collect(),
            nodes: holders.map(|node| (node, NodeRecovery::default())).collect(),
            partitions: BTreeMap::new(),
            is_drained,
            source: None,
            ended_by: None,
            times: RecoveryTimes {
                epoch,
                started_us: now.monotonic_us,
                detect_us: now.monotonic_us - silent_since_us,
                ..RecoveryTimes::default()
            },
        }
    }

    /// Only these nodes store partitions of the chain any more, once this store is durable. Whether
    /// no part was told of the epoch before: then all are told of it after that.
    pub(super) fn is_left_to(&mut self, holders: &BTreeSet<u16>, store: u64) -> bool {
        self.nodes.retain(|node, _| holders.contains(node));
        if self.source.is_none() {
            self.stored_by = store;
        }
        self.source.is_none()
    }

    /// Whether switches and nodes have moved to the new epoch.
    pub(super) fn waits_for_clients_only(&self) -> bool {
        self.source.is_some()
            && self.unconfigured.is_empty()
            && self.nodes.values().all(|node| node.moved)
    }

    /// When its source has something to do without a message.
    pub(super) fn source_deadline_us(&self) -> Option<u64> {
        match self.source.as_ref()? {
            Source::Witnesses(witnesses) => witnesses.deadline_us(),
            Source::Clients(gather) => gather.deadline_us(),
        }
    }

    /// See [`Gather::slept`].
    pub(super) fn slept(&mut self, now: Now, slept_us: u64, lease_us: u64) {
        if let Some(gather) = self.gather_mut() {
            gather.slept(now, slept_us, lease_us);
        }
    }

    /// What is being gathered from clients, or was.
    fn gather_mut(&mut self) -> Option<&mut Gather> {
        match self.source.as_mut()? {
            Source::Clients(gather) => Some(gather),
            Source::Witnesses(_) => None,
        }
    }

    /// What is being loaded from witnesses, or was.
    pub(super) fn witnesses_mut(&mut self) -> Option<&mut Witnesses> {
        match self.source.as_mut()? {
            Source::Witnesses(witnesses) => Some(witnesses),
            Source::Clients(_) => None,
        }
    }

    /// Whether clients are asked for what they preserve; `None` until the new epoch is durable.
    pub(super) fn gathers(&self) -> Option<bool> {
        self.source.as_ref().map(|source| matches!(source, Source::Clients(_)))
    }

    /// Whether it could go on with a witness, and has none: nodes hold the keys still.
    pub(super) fn lacks_witness(&self) -> bool {
        match &self.source {
            Some(Source::Witnesses(witnesses)) => witnesses.is_empty(),
            Some(Source::Clients(gather)) => !gather.is_over(),
            None => false,
        }
    }

    fn is_merged(&self) -> bool {
        match &self.source {
            Some(Source::Witnesses(witnesses)) => witnesses.is_over(),
            Some(Source::Clients(gather)) => gather.is_over(),
            None => false,
        }
    }

    /// Takes the records in, which are to be stored.
    fn merge(
        &mut self,
        records: BTreeMap<KeyHash, KeyedRecord>,
        partition_of: impl Fn(&KeyHash) -> u16,
    ) {
        self.times.records = records.len() as u64;
        for (hash, record) in records {
            let partition = self.partitions.entry(partition_of(&hash)).or_default();
            partition.to_store.push_back(record);
        }
    }

    fn is_over(&self) -> bool {
        self.is_merged()
            && self.unconfigured.is_empty()
            && self.nodes.values().all(|node| node.released)
    }

    /// Nodes that have moved to the epoch, and weren't told that they are released.
    fn unreleased(&self) -> Vec<u16> {
        let nodes = self.nodes.iter().filter(|(_, node)| node.moved && !node.releasing);
        nodes.map(|(node, _)| *node).collect()
    }

    /// Records for a node that heads these partitions, as many as go into a message.
    fn next_batch(&mut self, headed: &[u16]) -> Vec<KeyedRecord> {
        let mut left =
            batch_len(headed.iter().flat_map(|partition| &self.partitions[partition].to_store));
        let mut batch = Vec::with_capacity(left);
        for partition in headed {
            let state = self
                .partitions
                .get_mut(partition)
                .expect("a partition whose records aren't all stored");
            let count = left.min(state.to_store.len());
            batch.extend(state.to_store.drain(..count));
            state.storing += count;
            left -= count;
        }
        batch
    }
}

impl Chain {
    /// Takes the next steps of a recovery.
    pub(super) fn recover_on(&mut self, cx: &mut Context<'_>) {
        let Phase::Recovering(recovery) = &self.phase else { return };
        if recovery.source.is_none() {
            if !cx.outbox.is_stored(recovery.stored_by) && cx.mechanisms.durable_epoch() {
                return;
            }
            self.begin_recovery(cx);
        }
        self.give_up_witnesses(cx);
        self.merge_when_loaded(cx);
        self.merge_when_gathered(cx);
        self.store_and_release(cx);
        self.finish_recovery(cx);
    }

    /// The new epoch is durable: tell all parts.
    fn begin_recovery(&mut self, cx: &mut Context<'_>) {
        let generation = self.snapshots.next_generation(cx);
        let Phase::Recovering(recovery) = &self.phase else {
            unreachable!("called while recovering")
        };
        let is_drained = recovery.is_drained;
        let keeps = cx.config.scheme.keeps_in_switches() && !is_drained;
        for (at, (switch, boot)) in cx.directory.members(self.id).iter().enumerate() {
            let place = self.place(cx, at);
            let (map, nodes) = self.beyond(cx, &place);
            let (boot, lanes) = (*boot, cx.config.lanes.0);
            let config = SwitchConfig { boot, place, generation, lanes, map, nodes };
            let is_witness = cx.directory.witnesses(self.id).contains(&(*switch, boot));
            let command = if keeps && is_witness {
                SwitchCommand::Freeze(config)
            } else {
                SwitchCommand::Configure(config)
            };
            self.command_switch(cx, *switch, command);
        }
        for node in cx.directory.holders(self.id) {
            self.send_epoch(cx, *node);
        }
        self.begin_to_take(cx, is_drained);
    }

    /// Begins to take what was told and no node has: from witnesses or from clients.
    fn begin_to_take(&mut self, cx: &mut Context<'_>, is_drained: bool) {
        let members = cx.directory.members(self.id).iter();
        let is_witness =
            |member: &&(u16, u64)| is_drained || cx.directory.witnesses(self.id).contains(member);
        let living: Vec<_> = members.filter(is_witness).map(|(switch, _)| *switch).collect();
        if !self.takes_from_witnesses(cx, !living.is_empty()) {
            self.gather(cx);
            return;
        }
        let until_us = self.witnesses_until_us(cx);
        let epoch = cx.directory.recovered_epoch(self.id);
        let keys_max = cx.config.cache_records.max(self.cache.slots());
        let witnesses = Witnesses::new(epoch, keys_max, living.into_iter(), until_us);
        self.take_from(Source::Witnesses(witnesses));
        let clients: Vec<_> = cx.sessions.waited_for(self.id).map(|(client, _)| client).collect();
        self.ask(cx, &clients);
    }

    fn take_from(&mut self, source: Source) {
        if let Phase::Recovering(recovery) = &mut self.phase {
            recovery.source = Some(source);
        }
    }

    /// Begins to gather what clients preserve.
    pub(super) fn gather(&mut self, cx: &mut Context<'_>) {
        let ask_again_us = cx.now.in_us(cx.config.retry_us);
        let from = clients_to_gather_from(cx, self.id);
        let gather = Gather::new(from, cx.config.gather_bytes_max, ask_again_us);
        let clients = gather.clients();
        self.take_from(Source::Clients(gather));
        self.ask(cx, &clients);
    }

    /// Where a member sends the requests that it doesn't answer: partitions, and addresses of
    /// nodes. In DistCache the switches of the other layer are behind the nodes: a leaf takes
    /// requests that spines pass on, and a spine's map has a partition's leaf in the place of its
    /// node.
    fn beyond(&self, cx: &Context<'_>, place: &Place) -> (Map, Vec<Address>) {
        let (map, nodes) = (cx.directory.map().clone(), cx.members.node_addresses());
        if !cx.config.scheme.has_copies() {
            return (map, nodes);
        }
        let of_chain = |chain: ChainId| match place.is_owner() {
            true => cx.directory.spine(chain),
            false => cx.directory.owner(chain),
        };
        let address = |chain: ChainId| {
            let hello = of_chain(chain).and_then(|switch| cx.members.switch(switch));
            hello.map_or(Address::default(), |hello| hello.address)
        };
        let others = (0..cx.directory.chains()).map(ChainId::new).map(address);
        let first = nodes.len() as u16;
        let to_leaf = |partition: &Partition| Partition {
            replicas: vec![first + partition.chain],
            ..partition.clone()
        };
        let map = match place.is_owner() {
            true => map,
            false => Map::new(map.partitions().iter().map(to_leaf).collect())
                .expect("the ranges are a map's"),
        };
        (map, nodes.into_iter().chain(others).collect())
    }

    /// The place of a member in the chain: of the first one, `at` is 0.
    fn place(&self, cx: &Context<'_>, at: usize) -> Place {
        let members = cx.directory.members(self.id);
        let address = |at: usize| {
            let (switch, _) = members.get(at)?;
            cx.members.switch(*switch).map(|hello| hello.address)
        };
        Place {
            position: at as u8 + 1,
            length: members.len() as u8,
            before: at.checked_sub(1).and_then(address),
            after: address(at + 1),
            protects: cx.directory.preserves(self.id) == Preserved::Nothing,
        }
    }

    /// Asks clients to move to the epoch, and to send what they preserve if that is gathered.
    fn ask(&self, cx: &mut Context<'_>, clients: &[u64]) {
        if clients.is_empty() {
            return; // a bypass epoch's destination copies the map
        }
        let Some(to) = self.grant(cx) else { return };
        let chain = self.id;
        for client in clients {
            let (to, served) = (to.clone(), cx.directory.served().clone());
            cx.notify(*client, ClientNotice::Move { chain, to, served });
            self.name_spine(cx, *client);
        }
    }

    /// Tells a client where the chain's spine is, if it has one.
    pub(in crate::controller) fn name_spine(&self, cx: &mut Context<'_>, client: u64) {
        let spine = cx.directory.spine(self.id).filter(|_| cx.config.scheme.has_copies());
        let Some(hello) = spine.and_then(|switch| cx.members.switch(switch)) else { return };
        let (chain, epoch, switch) = (self.id, cx.directory.epoch(self.id), hello.address);
        cx.notify(client, ClientNotice::Spine { chain, epoch, switch });
    }

    pub(super) fn send_epoch(&mut self, cx: &Context<'_>, node: u16) {
        let owner = cx.directory.owner(self.id).and_then(|owner| cx.members.switch(owner));
        if owner.is_none() && !cx.directory.is_bypass(self.id) {
            return; // its address isn't known yet
        }
        let config = NodeConfig {
            hash_key: cx.directory.hash_key(),
            map: cx.directory.map().clone(),
            switch: owner.map(|hello| hello.address),
            lanes: cx.config.lanes.0,
            refresh: Refresh::of(cx.config.scheme),
        };
        self.command_node(cx, node, NodeCommand::Epoch(config));
    }

    /// A switch has taken its configuration: it refuses other epochs.
    pub(super) fn switch_configured(&mut self, cx: &Context<'_>, switch: u16) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        recovery.unconfigured.remove(&switch);
        let is_drained = recovery.is_drained;
        let Some(witnesses) = recovery.witnesses_mut() else { return };
        let is_to_be_loaded = witnesses.frozen(switch);
        if is_to_be_loaded && is_drained {
            witnesses.take(switch, Vec::new(), true);
        } else if is_to_be_loaded {
            self.load_witness(cx, switch, None);
        }
    }

    /// Something was heard of a client.
    pub(in crate::controller) fn client_heard(&mut self, cx: &Context<'_>, client: u64) {
        if cx.mechanisms.wait_while_heard()
            && let Some(gather) = self.gather_mut()
        {
            gather.heard(client, cx.now.in_us(cx.sessions.lease_us()));
        }
    }

    /// A client said hello, in this epoch: if a recovery waits for its answer, it is asked.
    pub(in crate::controller) fn client_said_hello(
        &mut self,
        cx: &mut Context<'_>,
        client: u64,
        client_epoch: Option<&u32>,
    ) {
        let has_moved = client_epoch == Some(&cx.directory.epoch(self.id));
        if self.gather_mut().is_some_and(|gather| gather.is_to_be_asked(client, has_moved)) {
            self.ask(cx, &[client]);
        }
        self.quiesce_again(cx, client, client_epoch.copied());
    }

    /// A client sent a part of what it preserves. Outside a recovery, or after its deadline, the
    /// records come too late (rule 9): there is nothing to wait for.
    pub(in crate::controller) fn client_preserved(
        &mut self,
        cx: &mut Context<'_>,
        client: u64,
        chunk: u32,
        last: bool,
        records: Vec<KeyedRecord>,
    ) {
        if let Some(gather) = self.gather_mut() {
            gather.take_chunk(cx.now, client, chunk, last, records, cx.mechanisms.recover_newest());
        }
        let epoch = cx.directory.epoch(self.id);
        cx.notify(client, ClientNotice::Gathered { epoch, chunk });
    }

    /// A client ended its session.
    pub(in crate::controller) fn client_closed(&mut self, client: u64) {
        if let Some(gather) = self.gather_mut() {
            gather.closed(client);
        }
    }

    /// What is being gathered, or was in the recovery that goes on.
    fn gather_mut(&mut self) -> Option<&mut Gather> {
        match &mut self.phase {
            Phase::Recovering(recovery) => recovery.gather_mut(),
            _ => None,
        }
    }

    /// Asks clients again that haven't answered, if it is time to.
    pub(super) fn gather_again(&mut self, cx: &mut Context<'_>) {
        let pause_us = cx.config.retry_us;
        let clients = self.gather_mut().map(|gather| gather.ask_again(cx.now, pause_us));
        self.ask(cx, &clients.unwrap_or_default());
    }

    /// All clients have answered, or are given up: the newest version of each key goes to the head
    /// of its partition.
    fn merge_when_gathered(&mut self, cx: &Context<'_>) {
        let newest = cx.mechanisms.recover_newest();
        let loss = self.loss(cx);
        let is_lost = loss.is_none_or(|loss| loss.keys > 0);
        let waits =
            cx.mechanisms.gather_all() && (cx.mechanisms.declare_after_clients() || !is_lost);
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        let Some(Source::Clients(gather)) = &mut recovery.source else { return };
        if gather.is_over() || (waits && !gather.is_done(cx.now)) {
            return;
        }
        let Some(loss) = loss else {
            gather.set_answered();
            return;
        };
        if loss.keys > 0 {
            self.losses = (self.losses.0 + 1, Some(loss));
        }
        let times = &mut recovery.times;
        times.lost_keys = loss.keys;
        self.abandoned = (cx.directory.epoch(self.id), gather.end());
        times.gathered = gather.arrived();
        times.abandoned_clients = self.abandoned.1.len() as u64;
        times.collect_us = cx.now.monotonic_us - times.started_us;
        let snapshot = self.snapshots.last();
        // A snapshot of an epoch that was recovered since is at the nodes already.
        let is_needed = snapshot.epoch >= cx.directory.recovered_epoch(self.id);
        let records = gather.take_records(if is_needed { &snapshot.records } else { &[] }, newest);
        recovery.merge(records, |hash| cx.directory.partition_of(hash));
    }

    /// A witness refuses the last recovered epoch, and was loaded: so nothing of it is told any
    /// more that the witness doesn't have. The newest version of each key goes to the head of its
    /// partition.
    fn merge_when_loaded(&mut self, cx: &Context<'_>) {
        let waits = cx.mechanisms.release_after_freeze();
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        let Some(Source::Witnesses(witnesses)) = &mut recovery.source else { return };
        if witnesses.is_over() || (waits && !witnesses.are_enough()) {
            return;
        }
        let records = witnesses.end();
        self.abandoned = (cx.directory.epoch(self.id), Vec::new());
        recovery.times.loaded = witnesses.arrived();
        recovery.times.collect_us = cx.now.monotonic_us - recovery.times.started_us;
        recovery.merge(records, |hash| cx.directory.partition_of(hash));
    }

    /// Sends each partition's records to its head, and releases each node once all its partitions
    /// are stored, however long others take.
    fn store_and_release(&mut self, cx: &Context<'_>) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if !recovery.is_merged() {
            return;
        }
        let mut headed_by: BTreeMap<u16, Vec<u16>> = BTreeMap::new();
        let mut waiting_nodes: BTreeSet<u16> = BTreeSet::new();
        for partition in recovery.partitions.keys() {
            headed_by.entry(cx.directory.head(*partition)).or_default().push(*partition);
            waiting_nodes.extend(cx.directory.replicas(*partition));
        }
        for node in recovery.unreleased() {
            if !waiting_nodes.contains(&node) {
                self.begin_release(cx, node);
            } else if let Some(headed) = headed_by.get(&node) {
                self.store_at_head(cx, node, headed);
            }
        }
    }

    /// Sends records of partitions to their head, as many as it may have to store at a time.
    fn store_at_head(&mut self, cx: &Context<'_>, head: u16, headed: &[u16]) {
        while self.commands.recovery_stores(head) < STORES_MAX {
            let Phase::Recovering(recovery) = &mut self.phase else { return };
            let batch = recovery.next_batch(headed);
            if batch.is_empty() {
                return;
            }
            self.command_heads(cx, Work::StoreRecovered(batch));
        }
    }

    fn begin_release(&mut self, cx: &Context<'_>, node: u16) {
        if let Some(node) = self.recovering(node) {
            node.releasing = true;
        }
        self.release_node(cx, node);
    }

    /// A node has moved to the epoch.
    pub(super) fn node_moved(&mut self, cx: &Context<'_>, node: u16) {
        if let Some(node) = self.recovering(node) {
            node.moved = true;
        }
        // It lost its epoch (an empty disk, say) while the rack served: nothing is held for it.
        // While the rack waits for a switch, a recovery may have been cut short: what it was to
        // store is still missing.
        if self.is_serving() && cx.members.standing(node, self.id).held {
            self.release_node(cx, node);
        }
    }

    /// The heads of their partitions have stored these records.
    pub(super) fn recovered_stored(&mut self, cx: &Context<'_>, records: &[KeyedRecord]) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        for record in records {
            let partition = cx.directory.partition_of(&record.hash);
            let state =
                recovery.partitions.get_mut(&partition).expect("it is known until all is stored");
            state.storing -= 1;
            if state.storing == 0 && state.to_store.is_empty() {
                recovery.partitions.remove(&partition);
            }
        }
    }

    /// A node holds nothing any more.
    pub(super) fn node_released(&mut self, node: u16) {
        if let Some(node) = self.recovering(node) {
            node.released = true;
        }
    }

    /// A node that a recovery is under way with.
    fn recovering(&mut self, node: u16) -> Option<&mut NodeRecovery> {
        match &mut self.phase {
            Phase::Recovering(recovery) => recovery.nodes.get_mut(&node),
            _ => None,
        }
    }

    /// Releases a node: it takes nothing any more that is older than the epoch.
    fn release_node(&mut self, cx: &Context<'_>, node: u16) {
        let floor = Seq::new(cx.directory.epoch(self.id), 0);
        // What a node that has nothing lacks, others don't: then it is left out, and joins.
        let is_new = cx.directory.recovered_epoch(self.id) == 0;
        if cx.directory.is_replicated() && (is_new || !cx.directory.has_others(node)) {
            self.command_node(cx, node, NodeCommand::Begin);
        }
        self.command_node(cx, node, NodeCommand::Release { floor });
    }

    /// Nodes that are the only members of their partitions now may begin with nothing: no node has
    /// what they lack. Those that were told to be released before didn't hear that.
    pub(super) fn begin_without_others(&mut self, cx: &Context<'_>) {
        if !matches!(self.phase, Phase::Recovering(_)) {
            return;
        }
        for node in cx.directory.holders(self.id).iter().copied().collect::<Vec<_>>() {
            let is_fresh = cx.members.standing(node, self.id).epoch == 0;
            if is_fresh && !cx.directory.has_others(node) {
                self.command_node(cx, node, NodeCommand::Begin);
            }
        }
    }

    /// A node said hello: is it where it should be?
    pub(super) fn node_lags(&mut self, cx: &Context<'_>, node: u16) {
        let is_of =
            cx.directory.holders(self.id).contains(&node) || cx.directory.is_joiner(self.id, node);
        if !self.is_serving() || !is_of {
            return;
        }
        let standing = cx.members.standing(node, self.id);
        // One that has lost all since it was told to be released doesn't hear that.
        let lacks_epoch =
            cx.directory.is_replicated() && standing.epoch < cx.directory.epoch(self.id);
        let moves = |order: &Order| match order {
            Order::Node(NodeCommand::Epoch(_)) => true,
            Order::Node(NodeCommand::Release { .. } | NodeCommand::Begin) => !lacks_epoch,
            _ => false,
        };
        if self.commands.any(|to, order| to == Peer::Node(node) && moves(order)) {
            return;
        }
        if standing.epoch < cx.directory.epoch(self.id) {
            // With it come the newest views, by which the switches have to route first.
            if self.may_change_views() {
                self.send_epoch(cx, node);
            }
        } else if standing.held && standing.epoch == cx.directory.epoch(self.id) {
            self.release_node(cx, node);
        }
    }

    fn finish_recovery(&mut self, cx: &mut Context<'_>) {
        let Phase::Recovering(recovery) = &mut self.phase else { return };
        if !recovery.is_over() {
            return;
        }
        // Nothing is admitted before it is durable that these switches are the witnesses (rule 24).
        if let Some(ended_by) = recovery.ended_by {
            if cx.outbox.is_stored(ended_by) {
                self.phase = Phase::Serving;
            }
            return;
        }
        let mut times = recovery.times;
        times.store_us = cx.now.monotonic_us - times.started_us - times.collect_us;
        times.released_at_us = cx.now.monotonic_us;
        times.missing = self.missing.len() as u64;
        // A chain that never served has begun, and recovered from nothing.
        if cx.directory.recovered_epoch(self.id) > 0 {
            self.times = Some(times);
        }
        let (chain, epoch) = (self.id, cx.directory.epoch(self.id));
        let clients: Vec<_> = cx.sessions.waited_for(chain).map(|(client, _)| client).collect();
        for client in clients {
            cx.notify(client, ClientNotice::Released { chain, epoch });
        }
        // The next recovery doesn't wait for a client that was silent during all of this one.
        let (since_us, chains) = (times.started_us, cx.directory.chains());
        let abandoned = if recovery.gather_mut().is_some() { &self.abandoned.1[..] } else { &[] };
        let gone = cx.sessions.give_up(self.id, since_us, abandoned, chains);
        let keeps = cx.config.scheme.keeps_in_switches();
        let ended_by = cx.directory.end_recovery(cx.outbox, self.id, keeps, &gone);
        cx.sessions.forget(&gone);
        if keeps {
            recovery.ended_by = Some(ended_by);
        } else {
            self.phase = Phase::Serving;
        }
        self.snapshots.chain_is_recovered(cx.now);
        if cx.directory.preserves(self.id) == Preserved::All {
            self.snapshots.hurry(cx.now);
        }
    }
}

/// The clients that a chain waits for, and for how long: the new epoch took its time to become
/// durable, and none was asked before.
fn clients_to_gather_from(cx: &Context<'_>, chain: ChainId) -> BTreeMap<u64, Client> {
    let lease_us = cx.sessions.lease_us();
    let now_us = cx.now.monotonic_us;
    let gather_from = |(id, client): (u64, &crate::controller::sessions::Client)| {
        let spool_us = if client.spooled { cx.now.in_us(cx.config.spool_wait_us) } else { 0 };
        // Its lease may have run out because there was no switch to grant one for.
        let lives = client.heard_us != 0 && now_us <= client.heard_us + lease_us;
        let alive_us =
            if lives && cx.mechanisms.wait_while_heard() { client.heard_us + lease_us } else { 0 };
        let deadline_us = client.lease_until_us.max(spool_us).max(alive_us);
        let deadline_us_max = cx.now.in_us(cx.config.spool_wait_us).max(deadline_us);
        (id, Client::new(deadline_us, deadline_us_max))
    };
    cx.sessions.waited_for(chain).map(gather_from).collect()
}
