//! Packets of the data path: what the decider says of them, the replica does.

use super::deferred::HotKey;
use super::{Served, Shim};
use crate::control::{BATCH_MAX, NodeReport, Offer};
use crate::node::copies::Refill;
use crate::node::decider::{Arbitration, Decision, Offering, Put, RaisedFence, ReadVerdict};
use crate::node::link::{Answer, Awaited, Effect};
use crate::node::replica::{Pending, Request, Write, bounce, write_reply};
use crate::storage::{
    EngineError, EngineOp, EngineReply, Lanes, Mark, OfferId, OpId, Record, Source,
};
use crate::time::Now;
use switchback_wire::{
    Address, CACHED_KEY_BYTES_MAX, CACHED_VALUE_BYTES_MAX, Header, KeyHash, Op, PacketRef,
    Partition, Seq, Status, flags, record_flags,
};

impl Shim {
    /// A packet that came from a client directly, as the switch would have passed it on; `None` if
    /// it goes no further.
    pub(super) fn take_from_client<'a>(
        &mut self,
        from: Address,
        mut parts: PacketRef<'a>,
    ) -> Option<PacketRef<'a>> {
        let header = &mut parts.header;
        header.flags &= flags::CONDITIONAL | flags::LARGE;
        header.record_flags = 0;
        match header.op {
            Op::Read => {
                header.flags = 0;
                header.guard = 0;
            }
            Op::Fragment | Op::ReadFragment | Op::Scan => {}
            Op::Write | Op::Delete => match self.decider.arbitrate(header) {
                Arbitration::Run(seq) => header.seq = seq,
                Arbitration::AnswerAgain(status, seq) => {
                    let request =
                        Request { header: *header, key: parts.key.to_vec(), switch: from };
                    self.answer_write(&request, status, seq, None);
                    return None;
                }
                Arbitration::Drop => return None,
            },
            _ => {
                self.statistics.dropped_malformed += 1;
                return None;
            }
        }
        Some(parts)
    }

    /// Reads: plain, fenced, and with an embedded record. The answer comes after the step before
    /// it, or never: the engine takes operations in order, and a failed step forgets the read.
    pub(super) fn read(&mut self, from: Address, parts: PacketRef<'_>) {
        self.statistics.reads += 1;
        let PacketRef { header, value, key } = parts;
        let (hash, key) = (header.key_hash, key.to_vec());
        let changes = header.has(flags::FENCED) || header.has(flags::EMBEDDED);
        let answer = || Answer::Read { header, key: key.clone() };
        match self.decider.read(&header, &key) {
            ReadVerdict::Plain => {
                if changes && self.passes_on(&hash, answer()) {
                    return;
                }
            }
            ReadVerdict::Fenced(raised) => {
                self.statistics.fenced_reads += 1;
                match raised {
                    RaisedFence::Saved => {
                        if self.passes_on(&hash, answer()) {
                            return;
                        }
                    }
                    RaisedFence::ToSave(mark) => {
                        if self.save_and_pass_on(hash, &key, Some(mark), Some(answer()), None) {
                            return;
                        }
                        self.save_fence(hash, key.clone(), mark);
                    }
                    RaisedFence::NoRoom => {
                        self.statistics.dropped_no_fence += 1;
                        return;
                    }
                }
            }
            ReadVerdict::Embedded => {
                self.statistics.embedded_stored += 1;
                let record = embedded(&header, value);
                if self.store_and_pass_on(hash, &key, &record, Some(answer()), None) {
                    return;
                }
                let before = self.replica.after_next();
                self.store(Pending::Step { before }, hash, key.clone(), record);
            }
        }
        let request = Request { header, key: key.clone(), switch: from };
        self.replica.submit(Pending::Read(request), |id| EngineOp::Get { id, hash, key });
    }

    /// Makes a fence durable, before what the next operation answers.
    fn save_fence(&mut self, hash: KeyHash, key: Vec<u8>, mark: Mark) {
        let pending = Pending::Fence { hash, fence: mark.fence, before: self.replica.after_next() };
        self.save_mark(pending, hash, key, mark);
    }

    fn save_mark(&mut self, pending: Pending, hash: KeyHash, key: Vec<u8>, mark: Mark) {
        let (mark, unconfirmed) = (Some(mark), None);
        self.replica.submit(pending, |id| EngineOp::SetMark { id, hash, key, mark, unconfirmed });
    }

    /// Stores a record of the cache iff it is newer.
    pub(super) fn store(&mut self, pending: Pending, hash: KeyHash, key: Vec<u8>, record: Record) {
        let put = self.decider.take_from_cache(&hash, record);
        self.put(pending, hash, key, put, Source::Cache, None);
    }

    fn put(
        &mut self,
        pending: Pending,
        hash: KeyHash,
        key: Vec<u8>,
        put: Put,
        source: Source,
        unconfirmed: Option<Lanes>,
    ) {
        let Put { record, condition, completion, .. } = put;
        self.replica.submit(pending, |id| EngineOp::Put {
            id,
            hash,
            key,
            record,
            condition,
            completion,
            source,
            unconfirmed,
        });
    }

    /// Answers a read, and offers its key if it is hot.
    pub(super) fn answer_read(&mut self, now: Now, request: &Request, record: Option<Record>) {
        let value_bytes = self.replica.answer_read(now, request, record);
        if request.header.has(flags::HOT) {
            let header = &request.header;
            self.offer(now, &header.key_hash, &request.key, value_bytes, header.generation);
        }
    }

    /// A write or delete has arrived.
    pub(super) fn write(&mut self, from: Address, parts: PacketRef<'_>) {
        self.statistics.writes += 1;
        let header = parts.header;
        let request = Request { header, key: parts.key.to_vec(), switch: from };
        let is_large = header.has(flags::LARGE) && header.op == Op::Write;
        let is_staged = is_large && self.replica.has_staged(&header);
        let decision = self.decider.write(&header, is_large && !is_staged);
        let value = match decision {
            // What is there is whole.
            Decision::Run | Decision::LookUp if is_staged => {
                self.replica.staged(&header).unwrap_or_default()
            }
            Decision::Run | Decision::LookUp => parts.value.to_vec(),
            _ => Vec::new(),
        };
        self.carry_out(Write { request, value, is_staged }, decision);
    }

    /// Does with a write what the decider says.
    pub(super) fn carry_out(&mut self, write: Write, decision: Decision) {
        let header = write.request.header;
        if !self.is_in_view(&header) {
            // Its partition has other replicas by now: nothing of it may be stored here any more.
            return self.decider.nothing_came(&header);
        }
        match decision {
            Decision::Ignore => {}
            Decision::NothingCame => self.decider.nothing_came(&header),
            Decision::NoFence => {
                self.statistics.dropped_no_fence += 1;
                self.decider.nothing_came(&header);
            }
            Decision::BelowFloor => self.statistics.dropped_below_floor += 1,
            Decision::Run => self.run(write),
            Decision::LookUp => self.look_up(write),
            Decision::SaveFence(mark) => {
                let (hash, key) = (header.key_hash, write.request.key.clone());
                if !self.save_and_pass_on(hash, &key, Some(mark), None, None) {
                    self.save_fence(hash, key, mark);
                }
                self.look_up(write);
            }
            Decision::Answer(status, seq) => self.answer_write(&write.request, status, seq, None),
            Decision::Superseded => {
                self.statistics.superseded += 1;
                self.answer_write(&write.request, Status::Ok, header.seq, None);
            }
            Decision::Refuse { mark, told } => {
                let (hash, key) = (header.key_hash, write.request.key.clone());
                let reply = write_reply(&header, Status::ConditionFailed, header.seq, told);
                let answer = Answer::Packet { header: reply, value: Vec::new(), key: key.clone() };
                if self.save_and_pass_on(hash, &key, Some(mark), Some(answer), None) {
                    return;
                }
                let pending = Pending::Refusal { request: write.request, told, fence: mark.fence };
                self.save_mark(pending, hash, key, mark);
            }
            Decision::Bounce => {
                // It runs under a new number if the lane still waits for it, else never. No copy of
                // it may run here any more, not even from a commit that failed and that a crash
                // brings to light: so what the bounce rests on is durable, and a commit that
                // succeeds buries those that failed before.
                self.statistics.bounced += 1;
                if !self.decider.bounced(&header) {
                    let Write { request: Request { key, switch, .. }, value, .. } = write;
                    let value = if header.has(flags::LARGE) { &[][..] } else { &value };
                    self.tell(switch, None, bounce(&header), value, &key);
                }
            }
        }
    }

    /// Hands a write to the engine, once no copy of the record answers any more.
    fn run(&mut self, write: Write) {
        let header = write.request.header;
        let Some(Write { request, value, .. }) = self.copies.admits(write) else {
            self.decider.nothing_came(&header);
            self.tell_copies();
            return;
        };
        self.copies.begun(&header);
        let (header, hash, key) = (request.header, request.header.key_hash, request.key.clone());
        let put = self.decider.run(&header, value);
        let refreshes = self.served(&hash).is_some_and(Served::refreshes);
        let is_cached = refreshes && (header.has(flags::CACHED) || self.decider.is_offered(&hash));
        let is_copied = self.copies.are_of(&hash) && !header.has(flags::LARGE);
        let update = (is_cached || is_copied).then(|| put.record.value.clone());
        let again = put
            .may_be_older
            .then(|| if header.has(flags::LARGE) { Vec::new() } else { put.record.value.clone() });
        let lane = put.completion.map(|completion| (completion.lane, completion.request));
        let unconfirmed = self.note(&hash, &key, lane);
        let effect = unconfirmed.is_some().then(|| {
            let (record, completions) = (put.record.clone(), put.completion.into_iter().collect());
            let (record, source) = (Some(record), Source::Client);
            Box::new(Effect { record, completions, source, ..Effect::of(hash, key.clone()) })
        });
        let pending = Pending::Put { request, update, again, effect };
        self.put(pending, hash, key, put, Source::Client, unconfirmed);
    }

    /// Reads what is stored, which tells what becomes of a write.
    fn look_up(&mut self, write: Write) {
        let (hash, key) = (write.request.header.key_hash, write.request.key.clone());
        self.replica.submit(Pending::LookUp(write), |id| EngineOp::Get { id, hash, key });
    }

    /// The record that a write has to be judged by.
    pub(super) fn looked_up(&mut self, write: Write, record: Option<&Record>) {
        let Request { header, key, .. } = &write.request;
        let replicated = self.is_passed_on(&header.key_hash).then_some(&key[..]);
        let decision = self.decider.judge(header, replicated, write.is_staged, record);
        self.carry_out(write, decision);
    }

    /// The engine has stored a write, or not.
    pub(super) fn put_done(
        &mut self,
        now: Now,
        request: Request,
        update: Option<Vec<u8>>,
        again: Option<Vec<u8>>,
        effect: Option<Effect>,
        result: Result<EngineReply, EngineError>,
    ) {
        let header = request.header;
        self.decider.decided(&header);
        let is_stored = matches!(result, Ok(EngineReply::Put(Ok(_))));
        let refill = self.copies.ended(&header, is_stored && update.is_some());
        self.tell_copies();
        match result {
            Ok(EngineReply::Put(Ok(_))) => self.applied(now, &request, update, refill, effect),
            Ok(EngineReply::Put(Err(newest))) => {
                self.statistics.condition_failed += u64::from(header.has(flags::CONDITIONAL));
                let decision =
                    self.decider.put_refused(&header, &request.key, newest, again.is_some());
                self.carry_out(
                    Write { request, value: again.unwrap_or_default(), is_staged: true },
                    decision,
                );
            }
            Err(EngineError::NoSpace(_)) => {
                self.answer_write(&request, Status::NoSpace, header.seq, None)
            }
            _ => {}
        }
    }

    fn applied(
        &mut self,
        now: Now,
        request: &Request,
        update: Option<Vec<u8>>,
        refill: Option<Refill>,
        effect: Option<Effect>,
    ) {
        let header = request.header;
        self.statistics.applied += 1;
        self.decider.ran(&header);
        let is_passed_on = effect.is_some();
        self.answer_write(request, Status::Ok, header.seq, effect);
        self.replica.forget_staged(&header);
        if let Some(value) = update.filter(|_| !is_passed_on) {
            let tombstone = header.op == Op::Delete;
            let record = Record {
                seq: header.seq,
                tombstone,
                expiry_ms: header.expiry_ms,
                value,
                since: None,
            };
            match refill {
                Some(refill) => self.fill_copies(&refill, &record),
                None if self.served(&header.key_hash).is_some_and(Served::refreshes) => {
                    self.update_cache(header.key_hash, &request.key, &record);
                }
                None => {}
            }
        }
        if header.has(flags::HOT) && header.op == Op::Write {
            let value_bytes = if header.has(flags::LARGE) {
                header.total_bytes
            } else {
                header.value_bytes.into()
            };
            let (hash, count) = (&header.key_hash, header.generation);
            self.offer(now, hash, &request.key, value_bytes as usize, count);
        }
    }

    /// The fence of a refused write is durable.
    pub(super) fn refusal_saved(&mut self, request: &Request, told: Seq, fence: Seq) {
        self.decider.fence_saved(&request.header.key_hash, fence);
        self.answer_write(request, Status::ConditionFailed, told, None);
    }

    /// Answers a write. `seq` is its number, or the version because of which its condition failed.
    /// What it has changed comes before the answer, where that is said by another replica.
    fn answer_write(
        &mut self,
        request: &Request,
        status: Status,
        seq: Seq,
        effect: Option<Effect>,
    ) {
        let header = &request.header;
        let epoch = self.served(&header.key_hash).map_or(0, Served::epoch);
        if header.epoch != epoch && self.mechanisms.epoch_fence() {
            // The engine took its time: the client takes the outcome for unknown.
            if let (Some(effect), Some(partition)) = (effect, self.partition_of(&header.key_hash)) {
                self.pass_on(partition, Some(effect), None, None);
            }
            return;
        }
        let name = self.decider.answered(header, status, seq);
        let reply = write_reply(header, status, name, seq);
        // These say nothing of what is stored: another copy may yet run.
        if matches!(status, Status::NoSpace | Status::FragmentsMissing) {
            self.replica.send(request.switch, reply, &[], &request.key);
            return;
        }
        self.tell(request.switch, effect, reply, &[], &request.key);
    }

    /// Tells what is decided: the switch, or first the replicas behind this one.
    fn tell(
        &mut self,
        to: Address,
        effect: Option<Effect>,
        header: Header,
        value: &[u8],
        key: &[u8],
    ) {
        if effect.is_some() || self.is_passed_on(&header.key_hash) {
            if let Some(partition) = self.partition_of(&header.key_hash) {
                let answer = Answer::Packet { header, value: value.to_vec(), key: key.to_vec() };
                self.pass_on(partition, effect, Some(answer), None);
            }
        } else if self.is_in_view(&header) {
            self.replica.send(to, header, value, key);
        }
    }

    /// Sends a record's value to the cache until it is acknowledged (NetCache).
    pub(super) fn update_cache(&mut self, hash: KeyHash, key: &[u8], record: &Record) {
        let Some(served) = self.chains.get(self.decider.chain_of(&hash)) else { return };
        let Some(config) = served.config() else { return };
        let is_sent = self.replica.update_cache(served.epoch(), config, hash, key, record);
        self.statistics.cache_updates += u64::from(is_sent);
    }

    /// Offers a hot key to the cache, once: marks it durably first. `count`: how often the switch
    /// has counted it.
    pub(super) fn offer(
        &mut self,
        now: Now,
        hash: &KeyHash,
        key: &[u8],
        value_bytes: usize,
        count: u32,
    ) {
        if key.len() > CACHED_KEY_BYTES_MAX || value_bytes > CACHED_VALUE_BYTES_MAX {
            return;
        }
        if self.hints(hash, key, value_bytes as u32, count) {
            return;
        }
        let hot = HotKey { hash: *hash, key: key.to_vec(), value_bytes: value_bytes as u32, count };
        let ends = self.deferred.ends(hash) && self.mechanisms.settled_ends();
        if self.decider.is_offered(hash) && !ends {
            self.mark_offered(hot);
        } else {
            self.deferred.offer(hot);
            self.defer(now);
        }
    }

    /// Marks a hot key as offered, unless it is already.
    pub(super) fn mark_offered(&mut self, hot: HotKey) {
        let HotKey { hash, key, value_bytes, count } = hot;
        let is_mine = self
            .told(&hash)
            .is_some_and(|(served, config)| served.is_mine(config.partition_of(&hash)));
        if !is_mine {
            return;
        }
        let mark = match self.decider.offer(&hash, &key, value_bytes, count) {
            Offering::Known => return,
            Offering::Hotter(offer) => return self.send_offer(offer),
            Offering::Refused => {
                self.statistics.offers_refused += 1;
                return;
            }
            Offering::ToSave(mark) => mark,
        };
        self.statistics.offers += 1;
        let awaited = Awaited::Offer { hash, offer: mark.offer, value_bytes };
        if self.save_and_pass_on(hash, &key, Some(mark), None, Some(awaited)) {
            return;
        }
        let pending = Pending::Offer { hash, offer: mark.offer, value_bytes };
        self.save_mark(pending, hash, key, mark);
    }

    /// The mark of an offer is durable: now it may be sent. Or it isn't: there was no offer.
    pub(super) fn offer_marked(
        &mut self,
        hash: KeyHash,
        offer: OfferId,
        value_bytes: u32,
        is_saved: bool,
    ) {
        if !is_saved {
            self.decider.offer_failed(&hash, offer);
            return;
        }
        let Some(served) = self.served(&hash) else { return };
        if let Some(offer) = self.decider.offer_saved(hash, offer, value_bytes, served.is_held()) {
            self.send_offer(offer);
        }
    }

    /// Sends an offer, in one message with those before it that wait to be sent.
    fn send_offer(&mut self, offer: Offer) {
        let epoch = self.served(&offer.hash).map_or(0, Served::epoch);
        match self.reports.back_mut() {
            Some(NodeReport::Offers { epoch: of, offers })
                if *of == epoch && offers.len() < BATCH_MAX =>
            {
                offers.push(offer)
            }
            _ => {
                let offers = vec![offer];
                self.reports.push_back(NodeReport::Offers { epoch, offers });
            }
        }
    }

    /// Forgets an operation: its answer is ignored.
    pub(super) fn forget(&mut self, id: OpId) {
        match self.replica.take(id) {
            Some(Pending::Put { request, .. }) => {
                self.decider.decided(&request.header);
                self.copies.ended(&request.header, false);
            }
            Some(Pending::LookUp(write)) => self.decider.nothing_came(&write.request.header),
            Some(Pending::Refill(refill)) => self.copies.was_read(&refill.hash),
            _ => {}
        }
    }

    /// Lists or counts keys, up to the end of the node's run of partitions.
    pub(super) fn scan(&mut self, from: Address, parts: PacketRef<'_>) {
        let end = self.run_end(parts.header.key_hash);
        match self.replica.scan(from, parts, end) {
            true => self.statistics.scans += 1,
            false => self.statistics.dropped_malformed += 1,
        }
    }

    /// Last position of the run of neighbouring partitions, from a key's on, that are this node's
    /// and its chain's.
    fn run_end(&self, from: KeyHash) -> u64 {
        let Some((served, config)) = self.told(&from) else { return from.position() };
        let run = &config.map.partitions()[config.map.find(from)..];
        // The view of one with several replicas, now or before, has to be that of the packet.
        let is_alone = |it: &Partition| it.view == 0 && it.replicas.len() == 1;
        let is_first = |it: &Partition| it.number == run[0].number;
        let beyond = run.iter().find(|it| {
            !served.is_mine(it.number) || !(is_first(it) || (is_alone(it) && is_alone(&run[0])))
        });
        beyond.map_or(u64::MAX, |next| next.start.position().saturating_sub(1).max(from.position()))
    }
}

/// The record that a read embeds.
fn embedded(header: &Header, value: &[u8]) -> Record {
    let tombstone = header.record_flags & record_flags::TOMBSTONE != 0;
    Record {
        seq: header.seq,
        tombstone,
        expiry_ms: header.expiry_ms,
        value: value.to_vec(),
        since: None,
    }
}
