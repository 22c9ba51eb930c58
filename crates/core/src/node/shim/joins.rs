//! The node in a join: as the joiner it empties, asks and merges; as the source it answers
//! (rules R10 to R12).

use super::{Served, Shim, state};
use crate::control::{CommandId, Join, JoinStep, NodeReport};
use crate::floors::SEQ_BUCKETS;
use crate::node::decider::Merged;
use crate::node::join::{CopyAt, KnownJoin};
use crate::node::link::{Copy, Effect, LinkMessage};
use crate::node::replica::Pending;
use crate::storage::{CopiedRecord, EngineError, EngineOp, EngineReply, KeyRange, Lanes};
use crate::topology::ChainId;
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::{KeyHash, Map, RoutingKey, Seq};

/// Records, marks and completions of a part of a copy, and about how many bytes of records.
const COPIED_KEYS: usize = 128;
const COPIED_LANES: usize = 4096;
const COPIED_BYTES: usize = 256 << 10;

/// A part of a copy that is being stored.
#[derive(Debug)]
struct Part {
    next: CopyAt,
    /// What the engine hasn't stored yet.
    left: usize,
    has_failed: bool,
}

/// What a joiner, or a source, needs to know of a join that needn't survive a restart.
#[derive(Debug, Default)]
pub(super) struct Joining {
    number: u32,
    /// The engine drops what there is of the partition.
    is_emptying: bool,
    part: Option<Part>,
    /// Floors that were copied and haven't risen yet.
    floors: Option<Vec<(u16, Seq)>>,
    /// How far it is known to have come after a restart.
    saved: Option<CopyAt>,
    /// FLUSH has arrived in a view in which this node is the tail.
    has_opened: bool,
    /// This node is the source, and gives the join up.
    gives_up: bool,
}

/// The keys of a partition of a map.
fn range_of(map: &Map, partition: u16) -> Option<KeyRange> {
    let place = map.partitions().iter().position(|it| it.number == partition)?;
    let beyond = map.end(place).map_or(u128::MAX, |end| end.0 - 1);
    let first = KeyHash::of_routing(map.partitions()[place].start);
    Some(KeyRange { first, last: KeyHash::of_routing(RoutingKey(beyond)) })
}

impl Shim {
    /// A newer list of joins.
    pub(super) fn change_joins(
        &mut self,
        chain: ChainId,
        id: CommandId,
        version: u32,
        joins: Vec<Join>,
    ) {
        let index = self.index;
        let served = &mut self.chains[chain];
        let Some(config) = served.config() else { return };
        let is_of = |join: &Join| {
            let mut all = config.map.partitions().iter();
            all.any(|it| it.number == join.partition && it.chain == chain.number())
        };
        if !joins.iter().all(is_of) {
            return self.done(chain, id, Some("this chain doesn't serve these partitions".into()));
        }
        let known = served.joins();
        if version < known.version || (version == known.version && served.is_serving()) {
            return self.done(chain, id, None);
        }
        let begins = |join: &Join| {
            let is_known = known.of(join.partition).is_some_and(|it| it.join.number == join.number);
            [join.node, join.source].contains(&index) && !is_known
        };
        // What a node does in a join has to be known after a restart. That one has ended is told
        // again then.
        let is_saved = version == known.version || joins.iter().any(begins);
        let before: Vec<_> =
            known.iter().filter(|it| it.is_begun(index)).map(|it| it.join).collect();
        if version > known.version {
            served.take_joins(index, version, joins, is_saved);
        }
        let goes_on = |join: &Join| {
            let known = self.chains[chain].joins().of(join.partition);
            known.is_some_and(|it| it.join.number == join.number)
        };
        let over: Vec<_> = before.into_iter().filter(|join| !goes_on(join)).collect();
        over.into_iter().for_each(|join| self.settle(chain, join.partition));
        self.settle_given(chain);
        self.arrange(chain);
        if is_saved {
            self.set_state(chain, id);
        } else {
            self.joins_on(chain);
            self.done(chain, id, None);
        }
    }

    /// The node joins a partition no more, nor is it the source of a join.
    fn settle(&mut self, chain: ChainId, partition: u16) {
        self.joining.remove(&partition);
        self.kept.remove(&partition);
        self.keep_tombstones(chain, partition, false);
    }

    fn keep_tombstones(&mut self, chain: ChainId, partition: u16, keeps: bool) {
        let range = self.chains[chain].config().and_then(|it| range_of(&it.map, partition));
        if let Some(range) = range {
            let pending = if keeps { Pending::Kept { partition } } else { Pending::Nothing };
            self.replica.submit(pending, |id| EngineOp::Keep { id, range, keeps });
        }
    }

    /// The tombstones of a partition are kept, or not: then nothing was copied of it.
    pub(super) fn tombstones_kept(&mut self, partition: u16, is_done: bool) {
        if !is_done {
            self.kept.remove(&partition);
        }
    }

    /// Settles partitions of which this node was the source of a join.
    fn settle_given(&mut self, chain: ChainId) {
        let (served, index) = (&self.chains[chain], self.index);
        let Some(config) = served.config() else { return };
        let is_over = |partition: &&u16| {
            let is_of_chain = |it: &switchback_wire::Partition| {
                it.number == **partition && it.chain == chain.number()
            };
            let mut given = served.joins().given(index);
            config.map.partitions().iter().any(is_of_chain)
                && !given.any(|join| join.partition == **partition)
        };
        let over: Vec<_> = self.kept.iter().filter(is_over).copied().collect();
        for partition in over {
            self.kept.remove(&partition);
            self.keep_tombstones(chain, partition, false);
        }
    }

    /// By a newer map the node may be no replica of some partitions any more. What it has of them
    /// goes once that is durable.
    pub(super) fn leave(&mut self, chain: ChainId, map: &Map) {
        for partition in self.chains[chain].left_by(self.index, map) {
            let lanes = self.links.lanes_of(partition);
            self.left.entry(partition).or_default().0.extend(lanes);
        }
    }

    /// The partition of a key of which the node is no replica any more.
    pub(super) fn left_partition(&self, hash: &KeyHash) -> Option<u16> {
        let (served, config) = self.told(hash)?;
        let it = config.map.of(*hash);
        let joins = served.joins().of(it.number).is_some_and(|known| known.is_begun(self.index));
        (it.view > 0 && !it.replicas.contains(&self.index) && !joins).then_some(it.number)
    }

    /// What joins were before a restart. Ranges that were `kept` for others are settled.
    pub(super) fn restore_joins(&mut self, mut kept: Vec<KeyRange>) {
        for (_, served) in self.chains.iter() {
            let Some(config) = served.config() else { continue };
            for known in served.joins().iter().filter(|known| known.is_begun(self.index)) {
                let KnownJoin { join: Join { partition, number, .. }, at: saved, .. } = *known;
                let joining = Joining { number, saved, ..Joining::default() };
                self.joining.insert(partition, joining);
                let range = range_of(&config.map, partition);
                kept.retain(|kept| Some(*kept) != range);
            }
            for Join { partition, .. } in served.joins().given(self.index) {
                let range = range_of(&config.map, partition);
                if kept.iter().any(|kept| Some(*kept) == range) {
                    self.kept.insert(partition);
                    kept.retain(|kept| Some(*kept) != range);
                }
            }
        }
        for range in kept {
            self.replica.submit(Pending::Nothing, |id| EngineOp::Keep { id, range, keeps: false });
        }
    }

    /// Takes the steps of a chain's joins that have become possible.
    pub(super) fn joins_on(&mut self, chain: ChainId) {
        let served = &self.chains[chain];
        if !served.is_serving() {
            return;
        }
        let is_next = |known: &&KnownJoin| {
            let Join { node, partition, .. } = known.join;
            let waits = known.at.is_none() && !known.has_ended;
            node == self.index && waits && !served.is_mine(partition)
        };
        let joins: Vec<_> = served.joins().iter().filter(is_next).map(|it| it.join).collect();
        self.drop_left(chain);
        self.end_joins(chain);
        joins.into_iter().for_each(|join| self.begin_join(chain, join));
    }

    /// Drops what there is of partitions that the node has left. A join does so, too.
    fn drop_left(&mut self, chain: ChainId) {
        let served = &self.chains[chain];
        let Some(config) = served.config() else { return };
        let is_due = |partition: u16, is_dropping: bool| {
            let joins = served.joins().of(partition).is_some_and(|it| it.join.node == self.index);
            let it = config.map.partitions().iter().find(|it| it.number == partition);
            let is_gone = it
                .is_some_and(|it| it.chain == chain.number() && !it.replicas.contains(&self.index));
            !is_dropping && !joins && is_gone
        };
        let due = self
            .left
            .iter()
            .filter(|(partition, (_, is_dropping))| is_due(**partition, *is_dropping));
        let due: Vec<_> = due
            .filter_map(|(partition, (lanes, _))| {
                Some((*partition, range_of(&config.map, *partition)?, lanes.clone()))
            })
            .collect();
        for (partition, range, lanes) in due {
            if !self.mechanisms.join_empty() {
                self.left.remove(&partition);
                continue;
            }
            self.left.entry(partition).or_default().1 = true;
            self.empty(partition, None, range, lanes);
        }
    }

    fn empty(&mut self, partition: u16, join: Option<u32>, range: KeyRange, lanes: Lanes) {
        let keeps = join.is_some() && self.mechanisms.joiner_keeps_tombstones();
        let pending = Pending::Emptied { partition, join, range, lanes: lanes.clone() };
        self.replica.submit(pending, |id| EngineOp::Empty { id, range, keeps, lanes });
    }

    /// A join begins with nothing of the partition.
    fn begin_join(&mut self, chain: ChainId, join: Join) {
        let Join { partition, number, .. } = join;
        let joining = self.joining.entry(partition).or_default();
        if joining.number != number {
            *joining = Joining { number, ..Joining::default() };
        }
        if joining.is_emptying {
            return;
        }
        let Some(config) = self.chains[chain].config() else { return };
        let Some(range) = range_of(&config.map, partition) else { return };
        if !self.mechanisms.join_empty() {
            return self.joins_with_nothing(partition, number, range);
        }
        joining.is_emptying = true;
        let lanes = self.left.get(&partition).map_or(Vec::new(), |(lanes, _)| lanes.clone());
        self.empty(partition, Some(number), range, lanes);
    }

    /// All of a partition is dropped, or couldn't be.
    pub(super) fn emptied(
        &mut self,
        partition: u16,
        join: Option<u32>,
        range: KeyRange,
        lanes: Lanes,
        is_done: bool,
    ) {
        if is_done {
            self.decider.empty(&range, &lanes);
            self.replica.forget_updates(|hash| range.contains(hash));
        }
        let Some(number) = join else {
            match is_done {
                true => _ = self.left.remove(&partition),
                false => self.left.entry(partition).or_default().1 = false,
            }
            return;
        };
        let joining = self.joining.get_mut(&partition).filter(|it| it.number == number);
        let Some(joining) = joining else { return };
        joining.is_emptying = false;
        if is_done {
            self.left.remove(&partition);
            self.joins_with_nothing(partition, number, range);
        }
    }

    /// Nothing is left of a partition that the node joins: what the source passes on is taken from
    /// now on, and the copy begins.
    fn joins_with_nothing(&mut self, partition: u16, number: u32, range: KeyRange) {
        if let Some(chain) = self.come_to(partition, number, CopyAt::Keys(range.first)) {
            self.save_joins();
            self.arrange(chain);
            self.fetch(partition);
        }
    }

    /// A copy has come as far. The partition's chain, if the join stands.
    fn come_to(&mut self, partition: u16, number: u32, at: CopyAt) -> Option<ChainId> {
        let index = self.index;
        let is_it = |known: &KnownJoin| (known.join.number, known.join.node) == (number, index);
        let is_of = |served: &Served| served.joins().of(partition).is_some_and(is_it);
        let chain = self.chains.iter().find_map(|(chain, it)| is_of(it).then_some(chain))?;
        self.chains[chain].joins_mut().of_mut(partition)?.at = Some(at);
        Some(chain)
    }

    /// The node's own joins: where each partition's copy has come to.
    fn own_joins(&self) -> Vec<(ChainId, KnownJoin)> {
        let of = |(chain, served): (ChainId, &Served)| {
            let begun = served.joins().iter().filter(|known| known.is_begun(self.index));
            begun.map(|known| (chain, known.clone())).collect::<Vec<_>>()
        };
        self.chains.iter().flat_map(of).collect()
    }

    /// What is durable of how the node serves, as it is to be from now on.
    pub(super) fn state_bytes(&mut self) -> Vec<u8> {
        self.states += 1;
        state::encode(&self.chains.map(|_, served| served.state()))
    }

    /// Makes durable how far joins have come.
    fn save_joins(&mut self) {
        let places = self
            .own_joins()
            .into_iter()
            .filter_map(|(_, KnownJoin { join, at, .. })| Some((join.partition, join.number, at?)));
        let pending = Pending::JoinsSaved(places.collect());
        self.save_state(pending);
    }

    fn save_state(&mut self, pending: Pending) {
        let (state, served) = (self.state_bytes(), self.decider.served().clone());
        self.replica.submit(pending, |id| EngineOp::SetState { id, state, served });
    }

    pub(super) fn joins_saved(&mut self, places: Vec<(u16, u32, CopyAt)>, is_saved: bool) {
        for (partition, number, at) in places {
            let joining = self.joining.get_mut(&partition).filter(|it| it.number == number);
            if let Some(joining) = joining.filter(|_| is_saved) {
                joining.saved = Some(at);
            }
        }
        self.report_joins();
    }

    /// Asks the source for the next part of a copy, unless one is being stored.
    fn fetch(&mut self, partition: u16) {
        let Some((_, served, standing)) = self.linked(partition) else { return };
        let Some(KnownJoin { join, at: Some(from), .. }) = served.joins().of(partition) else {
            return;
        };
        let (join, from) = (*join, *from);
        let is_ready = served.is_serving() && !standing.is_replica && from != CopyAt::All;
        let is_open = self.links.inbound(partition).is_some_and(|inbound| inbound.is_open());
        let is_storing = self
            .joining
            .get(&partition)
            .is_some_and(|joining| joining.part.is_some() || joining.floors.is_some());
        if is_ready && is_open && !is_storing {
            let fetch = LinkMessage::Fetch { partition, join: join.number, from };
            self.links.send(join.source, fetch);
        }
    }

    /// A joiner asks for a part of a copy.
    pub(super) fn fetched(&mut self, from: u16, partition: u16, join: u32, at: CopyAt) {
        let Some(round) = self.copies_for(partition, join, Some(from)) else { return };
        let Some((chain, served, _)) = self.linked(partition) else { return };
        let Some(config) = served.config() else { return };
        match at {
            CopyAt::Keys(first) => {
                let Some(range) = range_of(&config.map, partition) else { return };
                let range = KeyRange { first: first.max(range.first), ..range };
                if first > range.last || !self.copying.insert(partition) {
                    return;
                }
                // What is copied may be deleted before the joiner hears of that.
                if self.mechanisms.source_keeps_tombstones() && self.kept.insert(partition) {
                    self.keep_tombstones(chain, partition, true);
                }
                let pending = Pending::Copied { partition, join, from: at, round, range };
                self.replica.submit(pending, |id| EngineOp::Copy {
                    id,
                    range,
                    limit: COPIED_KEYS,
                    bytes: COPIED_BYTES,
                });
            }
            CopyAt::Lanes(lane) => {
                let left = self.left.values().flat_map(|(lanes, _)| lanes.iter().copied());
                let mut unconfirmed = BTreeMap::new();
                for (lane, request) in self.links.lanes_but(partition).chain(left) {
                    let known: &mut u64 = unconfirmed.entry(lane).or_default();
                    *known = request.max(*known);
                }
                let (completions, next) =
                    self.decider.completions_from(lane, COPIED_LANES, &unconfirmed);
                let next = next.map_or(CopyAt::Floors, CopyAt::Lanes);
                self.send_part(part_of(partition, join, (at, next), |it| {
                    it.completions = completions
                }));
            }
            CopyAt::Floors => {
                let floors = self.decider.floors_of(chain);
                self.send_part(part_of(partition, join, (at, CopyAt::All), |it| {
                    it.floors = floors
                }));
            }
            CopyAt::All => {}
        }
    }

    /// The round in which a source sends a joiner, this one if one is named, what it stores.
    fn copies_for(&self, partition: u16, join: u32, joiner: Option<u16>) -> Option<u64> {
        let (_, served, standing) = self.linked(partition)?;
        let known = served.joins().of(partition).filter(|it| it.join.number == join)?;
        let is_joiner = joiner.is_none_or(|joiner| joiner == known.join.node);
        let is_source = standing.after_joins && standing.after == Some(known.join.node);
        let outbound = self.links.outbound(partition).filter(|it| it.joins())?;
        let (round, _) = outbound.position()?;
        (served.is_serving() && is_joiner && is_source).then_some(round)
    }

    /// Records have been read for a part of a copy: it is sent with the marks of the same keys.
    pub(super) fn send_copy(
        &mut self,
        partition: u16,
        (join, from, round): (u32, CopyAt, u64),
        range: KeyRange,
        result: Result<EngineReply, EngineError>,
    ) {
        self.copying.remove(&partition);
        let is_kept = self.kept.contains(&partition) || !self.mechanisms.source_keeps_tombstones();
        let Ok(EngineReply::Copied(mut records, mut next)) = result else { return };
        if !is_kept {
            return;
        }
        if self.copies_for(partition, join, None) != Some(round) {
            return;
        }
        // Marks of keys in this part, of which there may be more than records.
        let last = next.map_or(range.last, |next| {
            KeyHash::of_routing(RoutingKey(next.routing().0.saturating_sub(1)))
        });
        let within = KeyRange { last, ..range };
        let marks = self.decider.marks_in(&within).take(COPIED_KEYS + 1);
        let mut marked: Vec<_> = marks.map(|(hash, key)| (*hash, key.to_vec())).collect();
        if marked.len() > COPIED_KEYS
            && let Some((cut, _)) = marked.pop()
        {
            next = Some(cut);
            records.retain(|it| it.hash < cut);
        }
        let mut keys: BTreeMap<(KeyHash, Vec<u8>), _> =
            marked.into_iter().map(|key| (key, None)).collect();
        for CopiedRecord { hash, key, record } in records {
            keys.insert((hash, key), Some(record));
        }
        let effect = |((hash, key), record)| {
            let mark = Some(self.decider.mark_of(&hash)).filter(|_| self.mechanisms.marks_copied());
            Effect { record, mark, ..Effect::of(hash, key) }
        };
        let effects = keys.into_iter().map(effect).collect();
        let next = next.map_or(CopyAt::Lanes(0), CopyAt::Keys);
        self.send_part(part_of(partition, join, (from, next), |it| it.effects = effects));
    }

    /// Sends a part, behind the frames of which it has the effects.
    fn send_part(&mut self, mut copy: Copy) {
        let Some(outbound) = self.links.outbound(copy.partition) else { return };
        let (next, Some((round, after))) = (outbound.next(), outbound.position()) else { return };
        (copy.round, copy.after) = (round, after);
        self.statistics.parts_copied += 1;
        self.links.send(next, LinkMessage::Copy(Box::new(copy)));
    }

    /// Takes a part of a copy, if it is the next one, and no frame was sent since.
    pub(super) fn take_copy(&mut self, from: u16, copy: Copy) {
        let Copy { partition, join, round, after, next, .. } = copy;
        let Some((chain, served, standing)) = self.linked(partition) else { return };
        let known = served.joins().of(partition).filter(|it| it.join.number == join);
        let is_asked = known.is_some_and(|it| it.is_begun(self.index) && it.at == Some(copy.from));
        let is_in_order = self
            .links
            .inbound(partition)
            .is_some_and(|it| it.before() == from && it.is_in(round) && it.last() == after);
        let config = served.config();
        let range = config.and_then(|config| range_of(&config.map, partition));
        if !is_asked || !is_in_order || standing.is_replica || next <= copy.from {
            return;
        }
        if !copy.effects.iter().all(|effect| self.is_of(partition, effect)) {
            return;
        }
        let joining = self.joining.get_mut(&partition).filter(|it| it.number == join);
        let Some(joining) = joining.filter(|it| it.part.is_none() && it.floors.is_none()) else {
            return;
        };
        if copy.from == CopyAt::Floors {
            let floors = copy.floors.into_iter().filter(|it| usize::from(it.0) < SEQ_BUCKETS);
            joining.floors = Some(floors.collect());
            return self.raise_copied(chain, partition);
        }
        let left = copy.effects.len() + usize::from(!copy.completions.is_empty());
        joining.part = Some(Part { next, left, has_failed: false });
        for effect in copy.effects {
            self.merge_copied(partition, join, effect);
        }
        if !copy.completions.is_empty() {
            let completions = copy.completions;
            let hash = range.map_or(KeyHash([0; 16]), |range| range.first);
            let of_none = Effect { completions, ..Effect::of(hash, Vec::new()) };
            self.merge_copied(partition, join, of_none);
        }
        self.part_stored(partition);
    }

    fn merge_copied(&mut self, partition: u16, join: u32, effect: Effect) {
        let merged = self.decider.merge(&effect);
        let Effect { hash, key, record, source, .. } = effect;
        let (mark, completions) = (merged.mark, merged.completions.clone());
        let pending = Pending::CopyMerged { partition, join, hash, merged: Box::new(merged) };
        self.replica.submit(pending, |id| EngineOp::Merge {
            id,
            hash,
            key,
            record,
            mark,
            completions,
            source,
            unconfirmed: None,
        });
    }

    /// Something of a part is stored, or not: then the part is asked for again.
    pub(super) fn copy_merged(
        &mut self,
        partition: u16,
        join: u32,
        hash: &KeyHash,
        merged: &Merged,
        is_stored: bool,
    ) {
        self.decider.merged(hash, merged, is_stored, true);
        let joining = self.joining.get_mut(&partition).filter(|it| it.number == join);
        if let Some(part) = joining.and_then(|joining| joining.part.as_mut()) {
            part.left = part.left.saturating_sub(1);
            part.has_failed |= !is_stored;
            self.part_stored(partition);
        }
    }

    /// Once a part is stored the next one is asked for.
    fn part_stored(&mut self, partition: u16) {
        let Some(joining) = self.joining.get_mut(&partition) else { return };
        if joining.part.as_ref().is_none_or(|part| part.left > 0) {
            return;
        }
        let Some(Part { next, has_failed, .. }) = joining.part.take() else { return };
        let number = joining.number;
        if !has_failed && self.come_to(partition, number, next).is_some() {
            self.fetch(partition);
        }
    }

    /// Raises floors that were copied. Those of buckets in which something of another partition is
    /// unconfirmed wait. The copy is whole once all are on the disk.
    fn raise_copied(&mut self, chain: ChainId, partition: u16) {
        let Some(joining) = self.joining.get_mut(&partition) else { return };
        let Some(mut floors) = joining.floors.take() else { return };
        let unconfirmed: BTreeSet<_> = self.links.unconfirmed().copied().collect();
        let raised = self.decider.take_floors(chain, &mut floors, &unconfirmed);
        if !raised.is_empty() {
            let pending = Pending::Floors(raised.clone());
            self.replica.submit(pending, |id| EngineOp::RaiseFloors { id, floors: raised });
        }
        let number = joining.number;
        if floors.is_empty() && self.decider.are_floors_saved() {
            self.come_to(partition, number, CopyAt::All);
            self.save_joins();
        } else {
            joining.floors = Some(floors);
        }
    }

    /// Whether the node has become the tail of a partition, and may lack something that was
    /// answered (rule R10).
    pub(super) fn is_opening(&self, partition: u16) -> bool {
        let Some((_, served)) = self.served_partition(partition) else { return false };
        let Some(KnownJoin { join, .. }) = served.joins().of(partition) else { return false };
        self.mechanisms.open_after_flush()
            && join.node == self.index
            && served.is_last_behind(self.index, join)
            && !self.has_opened(join)
    }

    fn has_opened(&self, join: &Join) -> bool {
        let joining = self.joining.get(&join.partition);
        joining.is_some_and(|it| it.number == join.number && it.has_opened)
    }

    /// FLUSH may have arrived: all that the source had answered came before it.
    pub(super) fn open_if_flushed(&mut self, partition: u16) {
        let Some((chain, served)) = self.served_partition(partition) else { return };
        let Some(known) = served.joins().of(partition) else { return };
        let is_flushed = self.links.inbound(partition).is_some_and(|it| it.is_flushed());
        if !is_flushed || !known.is_copied(self.index) || self.has_opened(&known.join) {
            return;
        }
        let number = known.join.number;
        let joining = self.joining.entry(partition).or_default();
        if joining.number == number {
            joining.has_opened = true;
            self.end_joins(chain);
            self.report_joins();
        }
    }

    /// Forgets joins that have ended. One of a node that stands behind its source, and hasn't
    /// opened, goes on: that it has ended doesn't say how.
    fn end_joins(&mut self, chain: ChainId) {
        let served = &self.chains[chain];
        let is_over = |known: &&KnownJoin| {
            let waits = served.is_last_behind(self.index, &known.join);
            let is_mine = known.has_ended && known.join.node == self.index;
            is_mine && (!waits || self.has_opened(&known.join))
        };
        let over = served.joins().iter().filter(is_over).map(|known| known.join.partition);
        let over: Vec<_> = over.collect();
        for partition in &over {
            self.chains[chain].joins_mut().forget(*partition);
            self.settle(chain, *partition);
        }
        if !over.is_empty() {
            self.arrange(chain);
        }
    }

    /// Too many keys of a partition have changed that its joiner lacks: the source gives the
    /// join up, once that is durable.
    pub(super) fn give_up_join(&mut self, partition: u16) {
        let Some((chain, served, _)) = self.linked(partition) else { return };
        let Some(known) = served.joins().of(partition).filter(|it| !it.has_ended) else { return };
        let number = known.join.number;
        let joining = self.joining.entry(partition).or_default();
        if joining.gives_up {
            return;
        }
        *joining = Joining { number, gives_up: true, ..Joining::default() };
        self.save_as_given_up(chain, partition, number);
    }

    fn save_as_given_up(&mut self, chain: ChainId, partition: u16, join: u32) {
        self.set_ended(chain, partition, true);
        let pending = Pending::GivenUp { partition, join, states: self.states + 1 };
        self.save_state(pending);
        self.set_ended(chain, partition, false);
    }

    fn set_ended(&mut self, chain: ChainId, partition: u16, has_ended: bool) {
        if let Some(known) = self.chains[chain].joins_mut().of_mut(partition) {
            known.has_ended = has_ended;
        }
    }

    /// That is durable, or not. What was made durable since says that the join goes on.
    pub(super) fn given_up(&mut self, partition: u16, join: u32, states: u64, is_saved: bool) {
        let Some((chain, served, _)) = self.linked(partition) else { return };
        if served.joins().of(partition).is_none_or(|known| known.join.number != join) {
            return;
        }
        if !is_saved {
            self.joining.remove(&partition);
        } else if states != self.states {
            self.save_as_given_up(chain, partition, join);
        } else {
            self.set_ended(chain, partition, true);
            self.joining.remove(&partition);
            self.arrange(chain);
            self.report_joins();
        }
    }

    /// Tells the controller how joins stand, where it has something to do then.
    fn report_joins(&mut self) {
        for (_, served) in self.chains.iter() {
            for KnownJoin { join, at, has_ended } in served.joins().iter() {
                let Join { partition, number, node, source } = *join;
                let saved = self.joining.get(&partition).filter(|it| it.number == number);
                let is_saved = saved.is_some_and(|joining| joining.saved == Some(CopyAt::All));
                let is_mine = served.is_mine(partition);
                let step = if source == self.index && *has_ended {
                    JoinStep::GivenUp
                } else if node != self.index || *has_ended {
                    continue;
                } else if is_mine && self.has_opened(join) {
                    JoinStep::Opened
                } else if !is_mine && *at == Some(CopyAt::All) && is_saved && served.is_released() {
                    JoinStep::Copied
                } else {
                    continue;
                };
                let epoch = served.epoch();
                self.reports.push_back(NodeReport::Join { epoch, partition, number, step });
            }
        }
    }

    /// Asks, saves and says again what may be lost.
    pub(super) fn repeat_joins(&mut self) {
        let chains: Vec<_> = self.chains.iter().map(|(chain, _)| chain).collect();
        chains.into_iter().for_each(|chain| self.joins_on(chain));
        let own = self.own_joins();
        for (chain, KnownJoin { join, .. }) in &own {
            self.raise_copied(*chain, join.partition);
            self.fetch(join.partition);
        }
        let is_unsaved = |(_, known): &(ChainId, KnownJoin)| {
            let joining = self.joining.get(&known.join.partition);
            joining.is_some_and(|it| it.number == known.join.number && it.saved != known.at)
        };
        if own.iter().any(is_unsaved) {
            self.save_joins();
        }
        self.report_joins();
    }
}

/// A part of a copy, with this in it. Its place among the frames follows.
fn part_of(
    partition: u16,
    join: u32,
    (from, next): (CopyAt, CopyAt),
    fill: impl FnOnce(&mut Copy),
) -> Copy {
    let (effects, completions, floors) = Default::default();
    let (round, after) = (0, 0);
    let mut copy = Copy { partition, join, round, after, from, next, effects, completions, floors };
    fill(&mut copy);
    copy
}
