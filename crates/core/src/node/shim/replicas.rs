//! The node as one of several replicas of a partition: what it passes on, takes, and says.

use super::{Served, Shim};
use crate::node::link::{
    Answer, Awaited, Effect, Frame, HotHint, Left, LinkMessage, Links, Outbound, Standing, Taken,
    Term,
};
use crate::node::replica::{PassOn, Pending, Request, Resend};
use crate::storage::{EngineError, EngineOp, EngineReply, Lanes, Mark, Record, Source};
use crate::time::Now;
use crate::topology::ChainId;
use switchback_wire::{Header, KeyHash, Op, Status};

impl Shim {
    /// Takes a message of another node.
    pub fn handle_link(&mut self, now: Now, from: u16, message: LinkMessage) {
        match message {
            LinkMessage::Ask { partition, epoch, view } => {
                if self.linked(partition).is_some_and(|(_, served, _)| served.is_serving()) {
                    self.links.asked(partition, from, Term { epoch, view });
                }
            }
            LinkMessage::Frame(frame) => self.take_frame(from, *frame),
            LinkMessage::Ready { partition, epoch, view, round } => {
                self.begin_round(from, partition, Term { epoch, view }, round);
            }
            LinkMessage::Confirm { partition, round, number } => {
                let is_next = |next: u16| next == from;
                if self.links.outbound(partition).is_some_and(|it| is_next(it.next())) {
                    self.frames_confirmed(partition, round, number);
                }
            }
            LinkMessage::Hint { partition, hot } => self.take_hint(now, partition, hot),
            LinkMessage::Fetch { partition, join, from: at } => {
                self.fetched(from, partition, join, at);
            }
            LinkMessage::Copy(copy) => self.take_copy(from, *copy),
        }
    }

    /// Takes the next message for another node, and its index.
    pub fn poll_link(&mut self) -> Option<(u16, LinkMessage)> {
        self.links.poll()
    }

    /// Whether the replicas behind this one take what it passes on, of all its partitions.
    pub fn are_links_flowing(&self) -> bool {
        self.links.are_flowing()
    }

    /// Frames that no tail has confirmed.
    pub fn frames_under_way(&self) -> usize {
        self.links.frames()
    }

    /// The partition of a key.
    pub(super) fn partition_of(&self, hash: &KeyHash) -> Option<u16> {
        self.told(hash).map(|(_, config)| config.partition_of(hash))
    }

    /// The partition of a key, if there is a replica behind this one.
    fn passed_on(&self, hash: &KeyHash) -> Option<u16> {
        if self.links.is_empty() {
            return None;
        }
        self.partition_of(hash).filter(|partition| self.links.has_outbound(*partition))
    }

    /// Whether there is a replica behind this one for a key.
    pub(super) fn is_passed_on(&self, hash: &KeyHash) -> bool {
        self.passed_on(hash).is_some()
    }

    /// What a write has changed, as the engine has stored it; or it has changed nothing.
    pub(super) fn effect_of(
        &mut self,
        effect: Option<Box<Effect>>,
        result: &Result<EngineReply, EngineError>,
    ) -> Option<Effect> {
        let mut effect = *effect?;
        let partition = self.partition_of(&effect.hash)?;
        if result.is_err() {
            self.change_failed(partition, &effect.hash);
            return None;
        }
        let is_stored = matches!(result, Ok(EngineReply::Put(Ok(_))));
        self.change_ended(partition, &effect.hash, is_stored);
        let Ok(EngineReply::Put(Ok(since))) = result else { return None };
        if let Some(record) = &mut effect.record {
            record.since = *since;
        }
        Some(effect)
    }

    /// The chain of a partition, and how it is served.
    pub(super) fn served_partition(&self, partition: u16) -> Option<(ChainId, &Served)> {
        self.chains.iter().find(|(_, served)| served.is_mine(partition))
    }

    /// The chain of a partition that this node has links for, how it is served, and where the node
    /// stands.
    pub(super) fn linked(&self, partition: u16) -> Option<(ChainId, &Served, Standing)> {
        self.chains.iter().find_map(|(chain, served)| {
            served.standing(self.index, partition).map(|standing| (chain, served, standing))
        })
    }

    fn standing_in(&self, partition: u16) -> Option<Standing> {
        self.linked(partition).map(|(_, _, standing)| standing)
    }

    /// Something of a key is about to be stored, by a request of this lane if it leaves a
    /// completion. What is to be noted with it.
    pub(super) fn note(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        lanes: impl IntoIterator<Item = (u32, u64)>,
    ) -> Option<Lanes> {
        let partition = self.passed_on(hash)?;
        let noted = self.links.note(partition, hash, key, lanes.into_iter());
        if self.links.outbound(partition).is_some_and(|it| it.is_too_far()) {
            self.give_up_join(partition);
        }
        noted
    }

    /// Passes a decision on, which changes nothing; false if there is no replica to pass it on to.
    pub(super) fn passes_on(&mut self, hash: &KeyHash, answer: Answer) -> bool {
        let Some(partition) = self.passed_on(hash) else { return false };
        self.pass_on(partition, None, Some(answer), None);
        true
    }

    /// Makes a mark durable, then passes on what it is for; false if there is no replica behind.
    pub(super) fn save_and_pass_on(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        mark: Option<Mark>,
        answer: Option<Answer>,
        awaited: Option<Awaited>,
    ) -> bool {
        let Some(unconfirmed) = self.note(&hash, key, None) else { return false };
        let effect =
            Effect { mark: Some(mark.unwrap_or_default()), ..Effect::of(hash, key.to_vec()) };
        let pending = Pending::PassOn(Box::new(PassOn { effect, answer, awaited }));
        let key = key.to_vec();
        let unconfirmed = Some(unconfirmed);
        self.replica.submit(pending, |id| EngineOp::SetMark { id, hash, key, mark, unconfirmed });
        true
    }

    /// Stores a record of the cache iff it is newer, then passes on what it is for; false if there
    /// is no replica behind.
    pub(super) fn store_and_pass_on(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        record: &Record,
        answer: Option<Answer>,
        awaited: Option<Awaited>,
    ) -> bool {
        let Some(unconfirmed) = self.note(&hash, key, None) else { return false };
        let put = self.decider.take_from_cache(&hash, record.clone());
        let (record, condition) = (put.record, put.condition);
        let effect = Effect { record: Some(record.clone()), ..Effect::of(hash, key.to_vec()) };
        let pending = Pending::PassOn(Box::new(PassOn { effect, answer, awaited }));
        let key = key.to_vec();
        self.replica.submit(pending, |id| EngineOp::Put {
            id,
            hash,
            key,
            record,
            condition,
            completion: None,
            source: Source::Cache,
            unconfirmed: Some(unconfirmed),
        });
        true
    }

    /// The engine has stored what is to be passed on, or not.
    pub(super) fn stored_to_pass_on(
        &mut self,
        pass_on: PassOn,
        result: Result<EngineReply, EngineError>,
    ) {
        let PassOn { mut effect, answer, awaited } = pass_on;
        let hash = effect.hash;
        let partition = self.partition_of(&hash);
        let Some(partition) = partition else { return };
        match result {
            Ok(reply) => {
                if let Some(mark) = &effect.mark {
                    self.decider.fence_saved(&hash, mark.fence);
                }
                let is_stored = !matches!(reply, EngineReply::Put(Err(_)));
                if let (EngineReply::Put(Ok(since)), Some(record)) = (reply, &mut effect.record) {
                    record.since = since;
                }
                let effect = is_stored.then_some(effect);
                self.change_ended(partition, &hash, effect.is_some());
                self.pass_on(partition, effect, answer, awaited);
            }
            Err(error) => {
                self.change_failed(partition, &hash);
                match awaited {
                    Some(Awaited::Command(chain, id)) => self.command_step(chain, id, Some(error)),
                    Some(Awaited::Offer { hash, offer, .. }) => {
                        self.decider.offer_failed(&hash, offer);
                    }
                    _ => {}
                }
            }
        }
        self.read_to_resend(partition);
    }

    /// An operation that was to change a key has ended.
    fn change_ended(&mut self, partition: u16, hash: &KeyHash, has_changed: bool) {
        let confirmed = self.links.change(partition, |outbound| outbound.ended(hash, has_changed));
        self.keys_confirmed(confirmed.flatten());
    }

    /// It has failed: what is stored is read and sent.
    pub(super) fn change_failed(&mut self, partition: u16, hash: &KeyHash) {
        self.links.change(partition, |outbound| {
            outbound.send_again(hash);
            outbound.ended(hash, false)
        });
        self.read_to_resend(partition);
    }

    /// Passes on what is stored and decided. Where no replica is behind any more, what was decided
    /// is said, or has come to nothing.
    pub(super) fn pass_on(
        &mut self,
        partition: u16,
        effect: Option<Effect>,
        answer: Option<Answer>,
        awaited: Option<Awaited>,
    ) {
        let is_head = self.standing_in(partition).is_some_and(|it| it.is_head());
        let (mut answer, mut awaited) = (answer, awaited);
        if is_head {
            let leaves = |answer: &Answer| self.leaves_early(answer, effect.is_some());
            if let Some(early) = answer.take_if(|answer| leaves(answer)) {
                self.say(early);
            }
            let leaves = |awaited: &Awaited| match awaited {
                Awaited::Command(..) => !self.mechanisms.store_confirmed(),
                Awaited::Offer { .. } => !self.mechanisms.offer_confirmed(),
                Awaited::Frame { .. } => false,
            };
            if let Some(early) = awaited.take_if(|awaited| leaves(awaited)) {
                self.reached(partition, early);
            }
        }
        if self.links.passes_on(partition) {
            self.statistics.frames += 1;
            let passed = self.links.change(partition, |outbound| {
                let next = outbound.next();
                outbound.pass_on(partition, effect, answer, awaited).map(|frame| (next, frame))
            });
            if let Some((next, frame)) = passed.flatten() {
                self.links.send(next, LinkMessage::Frame(Box::new(frame)));
            }
            return;
        }
        if let Some(effect) = effect {
            self.pass_to_joiner(partition, effect);
        }
        if self.standing_in(partition).is_some_and(|it| it.is_replica) {
            answer.into_iter().for_each(|answer| self.say(answer));
            awaited.into_iter().for_each(|awaited| self.reached(partition, awaited));
        } else {
            awaited.into_iter().for_each(|awaited| self.lost(awaited));
        }
    }

    /// A node that joins is sent what the tail has stored. If it lags too far its round ends, and
    /// the next one begins with what has changed.
    pub(super) fn pass_to_joiner(&mut self, partition: u16, effect: Effect) {
        self.statistics.frames += 1;
        let passed = self.links.change(partition, |outbound| {
            if outbound.lags() {
                outbound.stop();
                return None;
            }
            let next = outbound.next();
            outbound.pass_on(partition, Some(effect), None, None).map(|frame| (next, frame))
        });
        if let Some((next, frame)) = passed.flatten() {
            self.links.send(next, LinkMessage::Frame(Box::new(frame)));
        }
    }

    /// Whether an answer leaves at the head already, since the mechanism that forbids it is left
    /// out.
    fn leaves_early(&self, answer: &Answer, is_stored: bool) -> bool {
        let waits = match answer {
            Answer::Read { .. } => true,
            Answer::Packet { header, .. } if header.op == Op::Bounce => true,
            Answer::Packet { header, .. } if header.status == Status::ConditionFailed => {
                self.mechanisms.tail_refuses()
            }
            Answer::Packet { .. } if is_stored => self.mechanisms.tail_answers(),
            Answer::Packet { .. } => self.mechanisms.tail_answers_again(),
        };
        !waits
    }

    /// Whether a packet names the view in which this node has a replica of its partition.
    pub(super) fn is_in_view(&self, header: &Header) -> bool {
        self.told(&header.key_hash).is_some_and(|(served, config)| {
            served.is_mine(header.partition)
                && config.map.numbered(header.partition).view == header.view
        })
    }

    /// Whether a packet names the epoch and the view in which its partition is served here.
    pub(super) fn is_of_term(&self, header: &Header) -> bool {
        let Some((_, served)) = self.served_partition(header.partition) else { return false };
        served.term(header.partition) == Term { epoch: header.epoch, view: header.view }
    }

    /// The tail says what the head has decided.
    fn say(&mut self, answer: Answer) {
        if !self.is_of_term(answer.header()) {
            return;
        }
        let Some((_, served)) = self.served_partition(answer.header().partition) else { return };
        let Some(switch) = served.config().and_then(|config| config.switch) else { return };
        match answer {
            Answer::Packet { header, value, key } => {
                self.replica.send(switch, header, &value, &key);
            }
            Answer::Read { header, key } => {
                let hash = header.key_hash;
                let request = Request { header, key: key.clone(), switch };
                self.replica.submit(Pending::Read(request), |id| EngineOp::Get { id, hash, key });
            }
        }
    }

    /// The tail has what something waited for.
    fn reached(&mut self, partition: u16, awaited: Awaited) {
        match awaited {
            Awaited::Command(chain, id) => self.command_step(chain, id, None),
            Awaited::Offer { hash, offer, value_bytes } => {
                self.offer_marked(hash, offer, value_bytes, true);
            }
            Awaited::Frame { round, number } => {
                let inbound = self.links.inbound_mut(partition).filter(|it| it.is_in(round));
                let told = inbound.map(|it| (it.before(), it.confirmed(partition, number)));
                if let Some((before, Some(confirm))) = told {
                    self.links.send(before, confirm);
                }
            }
        }
    }

    /// This node has nothing to do any more with the tail that should have it.
    fn lost(&mut self, awaited: Awaited) {
        if let Awaited::Command(chain, id) = awaited {
            let error = "this node is no replica of these keys any more".to_owned();
            self.command_step(chain, id, Some(EngineError::Io(error)));
        }
    }

    /// The replica behind takes frames, in this round: it is sent what is unconfirmed.
    fn begin_round(&mut self, from: u16, partition: u16, term: Term, round: u64) {
        let Some((_, served, _)) = self.linked(partition) else { return };
        let Some(outbound) = self.links.outbound(partition) else { return };
        if !served.is_serving() || (outbound.next(), outbound.term()) != (from, term) {
            return;
        }
        let resends = self.mechanisms.resent();
        let begins = self.links.change(partition, |outbound| outbound.begin(round, resends));
        if begins == Some(true) {
            // What arrives meanwhile couldn't be passed on.
            if self.links.passes_on(partition) {
                self.links.close(partition);
            }
            self.read_to_resend(partition);
        }
    }

    /// Reads the next unconfirmed keys, or sends FLUSH once there are none.
    pub(super) fn read_to_resend(&mut self, partition: u16) {
        let may_send = |links: &Links, outbound: &Outbound| {
            !outbound.lags() && (links.has_room() || outbound.may_resend())
        };
        while self.links.outbound(partition).is_some_and(|it| may_send(&self.links, it)) {
            let next = self.links.change(partition, |outbound| outbound.read_next());
            let Some((round, hash, key)) = next.flatten() else { break };
            let mark = self.decider.mark_of(&hash);
            let offer = self.decider.unconfirmed_offer(&hash);
            let resend = Resend { partition, round, hash, key: key.clone(), mark, offer };
            let pending = Pending::Resend(Box::new(resend));
            self.replica.submit(pending, |id| EngineOp::Get { id, hash, key });
        }
        let flushed = self.links.change(partition, |outbound| {
            let next = outbound.next();
            outbound.flush(partition).map(|frame| (next, frame))
        });
        if let Some((next, flush)) = flushed.flatten() {
            self.links.send(next, LinkMessage::Frame(Box::new(flush)));
            self.links.be_ready(partition);
        }
    }

    /// What is stored of an unconfirmed key, which is sent. Its mark is on the disk by now if it is
    /// what it was when the key was asked for. Else it may be on its way there, and is sent once it
    /// has arrived.
    pub(super) fn read_for_resend(
        &mut self,
        resend: Resend,
        result: Result<EngineReply, EngineError>,
    ) {
        let Resend { partition, round, hash, key, mark, offer } = resend;
        let Some(outbound) = self.links.outbound(partition).filter(|it| it.is_in(round)) else {
            return;
        };
        let lanes = outbound.lanes(&hash);
        match result {
            Ok(EngineReply::Got(record)) => {
                self.statistics.frames_resent += 1;
                let mark = Some(mark).filter(|mark| *mark == self.decider.mark_of(&hash));
                let completions = self.decider.completions_of(&lanes);
                let effect = Effect { record, mark, completions, ..Effect::of(hash, key) };
                self.links.change(partition, |outbound| outbound.is_read(&hash));
                // A key that changes all the time is never confirmed as a whole.
                let offer = offer.filter(|it| Some(*it) == self.decider.unconfirmed_offer(&hash));
                let is_head = self.links.inbound(partition).is_none();
                let awaited = offer
                    .filter(|_| is_head && self.links.passes_on(partition))
                    .map(|(offer, value_bytes)| Awaited::Offer { hash, offer, value_bytes });
                self.pass_on(partition, Some(effect), None, awaited);
                self.read_to_resend(partition);
            }
            // It is read again when it is time to repeat.
            _ => _ = self.links.change(partition, |outbound| outbound.send_again(&hash)),
        }
    }

    /// Whether an effect is of a key of this partition.
    pub(super) fn is_of(&self, partition: u16, effect: &Effect) -> bool {
        let Some((_, config)) = self.told(&effect.hash) else { return false };
        config.partition_of(&effect.hash) == partition
            && config.hash_key.hash(&effect.key) == effect.hash
    }

    /// Takes a frame, and has the engine store its effect.
    fn take_frame(&mut self, from: u16, frame: Frame) {
        let Frame { partition, epoch, view, number, .. } = frame;
        let takes_any = !self.mechanisms.frames_of_round();
        let any_view = !self.mechanisms.frames_of_view();
        let term = Term { epoch, view };
        if !frame.effect.as_ref().is_none_or(|effect| self.is_of(partition, effect)) {
            return;
        }
        let mut frame = frame;
        let Some(inbound) = self.links.inbound_mut(partition) else { return };
        if !any_view && (inbound.before() != from || inbound.term() != term) {
            return;
        }
        match inbound.take(&mut frame, takes_any || (any_view && inbound.term() != term)) {
            Taken::Next => {}
            Taken::Before(confirmed) => {
                if let Some(confirm) = inbound.confirmed(partition, confirmed) {
                    self.links.send(from, confirm);
                }
                return;
            }
            Taken::Strange => return,
            Taken::Gap => return self.links.be_ready(partition),
        }
        let effect = inbound.newest().and_then(|arrived| arrived.effect.clone());
        let round = inbound.round().expect("a frame is taken in a round");
        match effect {
            None => _ = self.links.inbound_mut(partition).map(|inbound| inbound.stored(number)),
            Some(effect) => self.merge(partition, round, number, effect),
        }
        self.frames_stored(partition);
    }

    fn merge(&mut self, partition: u16, round: u64, number: u64, effect: Effect) {
        let merged = self.decider.merge(&effect);
        let Effect { hash, key, record, source, .. } = effect;
        let (mark, completions) = (merged.mark, merged.completions.clone());
        let lanes: Lanes = completions.iter().map(|done| (done.lane, done.request)).collect();
        let unconfirmed = self.note(&hash, &key, lanes);
        if matches!(mark, Some(mark) if !mark.is_some_and(|mark| mark.is_offered())) {
            self.replica.forget_update(&hash);
        }
        let merged = Box::new(merged);
        let pending = Pending::Merge { partition, round, number, hash, merged };
        self.replica.submit(pending, |id| EngineOp::Merge {
            id,
            hash,
            key,
            record,
            mark,
            completions,
            source,
            unconfirmed,
        });
    }

    /// The effect of a frame is stored, or not: then the round ends, and the next one brings it.
    pub(super) fn effect_stored(
        &mut self,
        (partition, round, number): (u16, u64, u64),
        hash: &KeyHash,
        merged: &crate::node::decider::Merged,
        is_stored: bool,
    ) {
        let is_last = !self.links.passes_on(partition);
        self.decider.merged(hash, merged, is_stored, is_last);
        match is_stored {
            true => self.change_ended(partition, hash, true),
            false => self.change_failed(partition, hash),
        }
        let inbound = self.links.inbound_mut(partition).filter(|inbound| inbound.is_in(round));
        match (inbound, is_stored) {
            (Some(inbound), true) => {
                inbound.stored(number);
                self.frames_stored(partition);
            }
            // Read again: the frame that brought it may not have been passed on.
            (None, true) => {
                self.links.change(partition, |outbound| outbound.send_again(hash));
                self.read_to_resend(partition);
            }
            (Some(_), false) => self.links.close(partition),
            (None, false) => {}
        }
    }

    /// Passes on frames whose effects are stored, or says what they are for.
    fn frames_stored(&mut self, partition: u16) {
        while let Some(inbound) = self.links.inbound_mut(partition)
            && let Some(arrived) = inbound.next_stored()
        {
            let (number, before) = (arrived.number, inbound.before());
            let round = inbound.round().expect("a frame is stored in its round");
            if self.links.passes_on(partition) {
                let awaited = Some(Awaited::Frame { round, number });
                self.pass_on(partition, arrived.effect, arrived.answer, awaited);
                continue;
            }
            if let Some(effect) = arrived.effect {
                self.refresh_cache(&effect);
                self.pass_to_joiner(partition, effect);
            }
            arrived.answer.into_iter().for_each(|answer| self.say(answer));
            let inbound = self.links.inbound_mut(partition);
            let confirm = inbound.and_then(|inbound| inbound.confirmed(partition, number));
            confirm.into_iter().for_each(|confirm| self.links.send(before, confirm));
        }
        self.open_if_flushed(partition);
        self.release_if_flushed();
    }

    /// The tail has stored a record: the cache is sent it (NetCache).
    fn refresh_cache(&mut self, effect: &Effect) {
        let Effect { hash, key, record: Some(record), .. } = effect else { return };
        let partition = self.partition_of(hash);
        let standing = partition.and_then(|partition| self.standing_in(partition));
        if !standing.is_some_and(|standing| standing.is_tail()) {
            return;
        }
        let refreshes = self.served(hash).is_some_and(Served::refreshes);
        if refreshes && self.decider.is_offered(hash) {
            self.update_cache(*hash, key, record);
        }
    }

    /// All replicas have what is stored of these keys.
    fn keys_confirmed(&mut self, keys: impl IntoIterator<Item = (KeyHash, Vec<u8>)>) {
        for (hash, key) in keys {
            self.decider.mark_confirmed(&hash);
            self.confirmed.push((hash, key));
        }
    }

    /// The tail has the frames of a round up to this one.
    fn frames_confirmed(&mut self, partition: u16, round: u64, number: u64) {
        let confirmed = self.links.change(partition, |outbound| outbound.confirm(round, number));
        let Some((keys, reached)) = confirmed else { return };
        reached.into_iter().for_each(|awaited| self.reached(partition, awaited));
        self.keys_confirmed(keys);
        self.read_to_resend(partition);
        self.release_if_flushed();
    }

    /// A read at the tail has found a key hot: the head may offer it. Whether this node isn't the
    /// head.
    pub(super) fn hints(
        &mut self,
        hash: &KeyHash,
        key: &[u8],
        value_bytes: u32,
        count: u32,
    ) -> bool {
        if self.links.is_empty() {
            return false;
        }
        let Some(partition) = self.partition_of(hash) else { return false };
        let Some(before) = self.links.inbound(partition).map(|inbound| inbound.before()) else {
            return false;
        };
        let hot = HotHint { hash: *hash, key: key.to_vec(), value_bytes, count };
        self.links.send(before, LinkMessage::Hint { partition, hot });
        true
    }

    fn take_hint(&mut self, now: Now, partition: u16, hot: HotHint) {
        let HotHint { hash, key, value_bytes, count } = hot;
        let is_mine = self.partition_of(&hash) == Some(partition) && key.len() <= u16::MAX.into();
        if is_mine && self.standing_in(partition).is_some_and(|it| it.is_replica) {
            self.offer(now, &hash, &key, value_bytes as usize, count);
        }
    }

    /// Links follow the epoch and the views of a chain.
    pub(super) fn arrange(&mut self, chain: ChainId) {
        let served = &self.chains[chain];
        let Some(config) = served.config() else { return };
        let is_changed = |view: u32, replicas: usize| view > 0 || replicas > 1;
        let of_chain = config.map.partitions().iter().filter(|it| it.chain == chain.number());
        let changed = of_chain.filter(|it| is_changed(it.view, it.replicas.len()));
        let partitions: Vec<_> = changed.map(|it| it.number).collect();
        for partition in partitions {
            let served = &self.chains[chain];
            let (standing, term) = (served.standing(self.index, partition), served.term(partition));
            let is_durable = served.is_serving();
            let left = self.links.arrange(partition, term, standing, is_durable);
            let is_tail = standing.is_some_and(|it| it.is_tail());
            let is_new = is_durable && self.links.becomes_tail(partition, is_tail);
            if is_new && self.chains[chain].refreshes() {
                let of = |hash: &&KeyHash| self.partition_of(hash) == Some(partition);
                let offered: Vec<_> = self.decider.all_offered().filter(of).copied().collect();
                self.replica.refresh(offered.into_iter());
            }
            let Left { confirmed, reached, lost } = left;
            reached.into_iter().for_each(|awaited| self.reached(partition, awaited));
            // Where it is no replica any more, what is noted goes with all the rest.
            if standing.is_some() {
                self.keys_confirmed(confirmed);
            }
            lost.into_iter().for_each(|awaited| self.lost(awaited));
            if is_durable {
                self.links.be_ready(partition);
                let ask = self.links.change(partition, |outbound| {
                    outbound.ask_once(partition).map(|ask| (outbound.next(), ask))
                });
                ask.flatten().into_iter().for_each(|(next, ask)| self.links.send(next, ask));
            }
        }
        self.release_if_flushed();
    }

    /// What was noted before a restart.
    pub(super) fn restore_unconfirmed(&mut self, unconfirmed: Vec<(KeyHash, Vec<u8>, Lanes)>) {
        // That an offer was cleared may be lost here with a commit that failed, and be done behind
        // this node: it is offered again once all have its mark again.
        let offered: Vec<_> = match self.links.is_empty() {
            true => Vec::new(),
            false => self.decider.all_offered().copied().collect(),
        };
        for hash in offered {
            let key = self.decider.marked_key(&hash).map(<[u8]>::to_vec);
            let Some((partition, key)) = self.passed_on(&hash).zip(key) else { continue };
            if self.links.passes_on(partition) {
                self.decider.mark_unconfirmed(&hash);
            }
            self.links.restore(partition, hash, key, Lanes::new());
        }
        for (hash, key, lanes) in unconfirmed {
            if !self.mechanisms.durable_unconfirmed() {
                continue;
            }
            match self.passed_on(&hash) {
                Some(partition) => {
                    if self.links.passes_on(partition) {
                        self.decider.mark_unconfirmed(&hash);
                    }
                    self.links.restore(partition, hash, key, lanes);
                }
                None => match self.left_partition(&hash) {
                    Some(partition) => self.left.entry(partition).or_default().0.extend(lanes),
                    None => self.confirmed.push((hash, key)),
                },
            }
        }
    }

    /// Whether all that was unconfirmed of a chain's partitions here is at their tails.
    pub(super) fn is_flushed(&self, chain: ChainId) -> bool {
        let served = &self.chains[chain];
        let is_flushed = |partition: u16| {
            let outbound = self.links.outbound(partition);
            let outbound = outbound.is_none_or(|it| it.joins() || it.is_flushed());
            let inbound = self.links.inbound(partition).is_none_or(|it| it.is_flushed());
            outbound && inbound || !served.is_mine(partition)
        };
        self.links.is_empty() || self.links.partitions().into_iter().all(is_flushed)
    }

    /// Sends what may be lost once more.
    pub(super) fn repeat_links(&mut self) {
        for partition in self.links.partitions() {
            let is_serving =
                self.linked(partition).is_some_and(|(_, served, _)| served.is_serving());
            if is_serving {
                self.links.repeat(partition);
                let outbound = self.links.outbound(partition);
                let ask = outbound.and_then(|it| Some((it.next(), it.ask(partition)?)));
                ask.into_iter().for_each(|(next, ask)| self.links.send(next, ask));
            }
            let probe = self.links.change(partition, |outbound| {
                let next = outbound.next();
                outbound.probe(partition).map(|frame| (next, frame))
            });
            if let Some((next, frame)) = probe.flatten() {
                self.links.send(next, LinkMessage::Frame(Box::new(frame)));
            }
            self.read_to_resend(partition);
        }
    }

    /// Forgets what is confirmed: with the next commit, since nothing depends on it.
    pub(super) fn forget_confirmed(&mut self) {
        let mut keys = std::mem::take(&mut self.confirmed);
        keys.retain(|(hash, _)| {
            let partition = self.passed_on(hash);
            partition.is_none_or(|partition| !self.links.is_unconfirmed(partition, hash))
        });
        if !keys.is_empty() {
            self.replica.submit(Pending::Nothing, |id| EngineOp::Confirm { id, keys });
        }
    }
}
