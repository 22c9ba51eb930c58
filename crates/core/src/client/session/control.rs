//! Time and the controller: retries, the lease, epochs and gathers (rules 8 and 9).

use super::*;
use crate::control::HOLD_US;

impl Session {
    /// Takes the next outcome that no packet brought.
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion<'static>> {
        self.finished.pop_front()
    }

    /// When to call [`Session::handle_timeout`] next, of the monotonic clock.
    #[inline]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.next_us()
    }

    /// Sends again what was not answered, gives up what is too old, renews the lease.
    pub fn handle_timeout(&mut self, now: Now) {
        if self.timers.is_due(SessionTimer::Hello, now) {
            self.say_hello(now);
        }
        if self.timers.is_due(SessionTimer::Retry, now) {
            self.retry_lanes(now);
        }
        if self.timers.is_due(SessionTimer::Gather, now) {
            self.timers.set(SessionTimer::Gather, now.in_us(self.config.hello_us));
            let chunks = self
                .chains
                .iter()
                .filter_map(|(_, chain)| chain.gather.as_ref())
                .flat_map(|it| &it.chunks);
            let open = chunks.filter(|(done, _)| !done);
            self.messages.extend(open.map(|(_, chunk)| chunk.clone()));
        }
        if self.timers.is_due(SessionTimer::Quiet, now) {
            self.end_quiet(now);
        }
    }

    fn say_hello(&mut self, now: Now) {
        let pressure = self.preserved.bytes() > self.config.preserve_bytes_max / 2;
        self.messages.push_back(ClientReport::Hello {
            boot: self.boot,
            sent_us: now.monotonic_us,
            lanes: self.config.lanes,
            epochs: self.chains.map(|_, chain| chain.epoch),
            pressure,
            spooled: self.config.spooled,
        });
        for (_, chain) in self.chains.iter_mut() {
            chain.spine_load.age();
            chain.leaf_load.age();
        }
        // Three tries within a lease; while there is none, or memory is short, as often as is
        // decent.
        let pause_us =
            if self.is_open(now) && !pressure { self.lease_us / 4 } else { self.config.hello_us };
        self.timers.set(SessionTimer::Hello, now.in_us(pause_us.max(self.config.hello_us)));
    }

    fn retry_lanes(&mut self, now: Now) {
        self.timers.stop(SessionTimer::Retry);
        for index in 0..self.lanes.len() as u32 {
            let lane = &mut self.lanes[index as usize];
            if matches!(lane.state, LaneState::Free | LaneState::Done(_)) {
                continue;
            }
            if now.monotonic_us < lane.retry_at_us {
                self.timers.set_earlier(SessionTimer::Retry, lane.retry_at_us);
                continue;
            }
            if now.monotonic_us >= lane.submitted_us + self.config.deadline_us {
                self.give_up(now, index);
                continue;
            }
            if lane.is_held || lane.awaits_share() {
                self.arm(index, now);
                continue;
            }
            lane.attempt += 1;
            self.statistics.retries += 1;
            let request = lane.request;
            if matches!(lane.state, LaneState::Staging(_)) {
                self.send_fragments(index, true);
            } else {
                self.sends.push_back(Send::Request(index, request));
            }
            self.arm(index, now);
        }
    }

    /// Ends an operation without an answer.
    fn give_up(&mut self, now: Now, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let outcome = match (lane.asked(), &lane.state) {
            (Op::Read | Op::Scan, _) => Outcome::TimedOut,
            _ if lane.is_held => Outcome::TimedOut,
            // What was only staged cannot happen any more: the request number is not used again.
            (_, LaneState::Staging(staging)) if !staging.was_asked_for => Outcome::TimedOut,
            _ => Outcome::Indeterminate,
        };
        match outcome {
            Outcome::Indeterminate => self.statistics.indeterminate += 1,
            _ => self.statistics.timed_out += 1,
        }
        self.large_bytes -= large_bytes(&lane.state);
        lane.state = LaneState::Free;
        self.free.push(index);
        let (ended, chain) = (Ended::of(lane), lane.chain);
        self.finished.push_back(ended.with(outcome, false));
        self.end_transfer(now, index);
        self.tell_if_quiet(chain, None);
    }

    /// The epoch of a chain is about to change, or a `round` of a backup to be cut: writes are held
    /// back from now on.
    fn quiesce(&mut self, now: Now, chain: ChainId, epoch: u32, round: Option<u64>) {
        let Some(state) = self.chains.get_mut(chain).filter(|state| state.epoch == epoch) else {
            return;
        };
        let until_us = now.in_us(HOLD_US);
        state.quiet = Some(Quiet { until_us, round, is_told: false });
        self.timers.set_earlier(SessionTimer::Quiet, until_us);
        self.tell_if_quiet(chain, None);
    }

    /// Tells the controller once no write to a chain is under way whose writes are held back, but
    /// for that of the lane that `ends`.
    pub(super) fn tell_if_quiet(&mut self, chain: ChainId, ends: Option<u32>) {
        let Some(state) = self.chains.get(chain) else { return };
        let epoch = state.epoch;
        if state.quiet.is_none_or(|quiet| quiet.is_told) {
            return;
        }
        let is_under_way = |(index, lane): (u32, &Lane)| {
            lane.chain == chain
                && Some(index) != ends
                && !lane.is_held
                && !matches!(lane.state, LaneState::Free | LaneState::Done(_))
                && matches!(lane.asked(), Op::Write | Op::Delete)
        };
        if (0..).zip(&self.lanes).any(is_under_way) {
            return;
        }
        let Some(quiet) = &mut self.chains[chain].quiet else { return };
        quiet.is_told = true;
        self.messages.push_back(match quiet.round {
            Some(round) => ClientReport::Holding { epoch, round },
            None => ClientReport::Quiet { epoch },
        });
    }

    /// A try to cut a backup is over: what was held back for it is sent.
    fn resume(&mut self, now: Now, round: u64) {
        for (_, chain) in self.chains.iter_mut() {
            if let Some(quiet) = chain.quiet.as_mut().filter(|quiet| quiet.round == Some(round)) {
                quiet.until_us = now.monotonic_us;
            }
        }
        self.end_quiet(now);
    }

    /// An epoch that was to change didn't, or a backup is cut: what was held back for it is sent.
    fn end_quiet(&mut self, now: Now) {
        self.timers.stop(SessionTimer::Quiet);
        for chain in self.chains.iter().map(|(chain, _)| chain).collect::<Vec<_>>() {
            let Some(quiet) = self.chains[chain].quiet else { continue };
            if now.monotonic_us < quiet.until_us {
                self.timers.set_earlier(SessionTimer::Quiet, quiet.until_us);
                continue;
            }
            self.chains[chain].quiet = None;
            for index in 0..self.lanes.len() as u32 {
                let lane = &mut self.lanes[index as usize];
                let is_its = lane.chain == chain
                    && !matches!(lane.state, LaneState::Free | LaneState::Done(_));
                if is_its && std::mem::take(&mut lane.is_held) {
                    self.begin_to_send(index);
                    self.arm(index, now);
                }
            }
        }
    }

    /// Takes the next message for the controller.
    pub fn poll_message(&mut self) -> Option<ClientReport> {
        self.messages.pop_front()
    }

    /// Takes a message of the controller.
    pub fn handle_message(&mut self, now: Now, notice: ClientNotice) {
        match notice {
            ClientNotice::Granted(grant) => self.granted(now, grant),
            ClientNotice::Move { chain, to, served } => {
                self.served = served;
                self.move_to(now, chain, &to)
            }
            ClientNotice::Quiesce { chain, epoch } => self.quiesce(now, chain, epoch, None),
            ClientNotice::Hold { chain, epoch, round } => {
                self.quiesce(now, chain, epoch, Some(round));
            }
            ClientNotice::Resume { round } => self.resume(now, round),
            ClientNotice::Gathered { epoch, chunk } => self.gathered(epoch, chunk),
            ClientNotice::Released { chain, epoch } => self.released(now, chain, epoch),
            ClientNotice::Spine { chain, epoch, switch } => {
                self.has_spines = true;
                let state = self.chains.known(chain, |_| ChainState::new());
                if state.spine.is_none_or(|(known, _)| known <= epoch) {
                    state.spine = Some((epoch, switch));
                }
            }
        }
    }

    /// Nodes serve what they held for the recovery of this epoch. What they dropped until then was
    /// sent again after pauses that doubled; the next one needn't be waited for.
    fn released(&mut self, now: Now, chain: ChainId, epoch: u32) {
        if self.chains.get(chain).is_none_or(|known| known.epoch != epoch) {
            return;
        }
        for lane in &mut self.lanes {
            let waits =
                !matches!(lane.state, LaneState::Free | LaneState::Done(_)) && lane.attempt > 0;
            if waits && lane.chain == chain {
                lane.attempt = 0;
                lane.retry_at_us = now.monotonic_us;
                self.timers.set_earlier(SessionTimer::Retry, now.monotonic_us);
            }
        }
    }

    /// The controller has a chunk of what was gathered for this epoch.
    fn gathered(&mut self, epoch: u32, chunk: u32) {
        for gather in self.chains.iter_mut().map(|(_, chain)| &mut chain.gather) {
            let Some(answer) = gather.as_mut().filter(|answer| answer.epoch == epoch) else {
                continue;
            };
            if let Some((done, _)) = answer.chunks.get_mut(chunk as usize) {
                *done = true;
            }
            if answer.chunks.iter().all(|(done, _)| *done) {
                *gather = None;
            }
        }
        self.end_gather();
    }

    /// Repeats nothing, if all that was sent for gathers is confirmed.
    fn end_gather(&mut self) {
        if self.chains.iter().all(|(_, chain)| chain.gather.is_none()) {
            self.timers.stop(SessionTimer::Gather);
        }
    }

    fn granted(&mut self, now: Now, grant: Grant) {
        // An answer to an earlier life of this client (it may have waited for the controller's
        // disk), a clock that ran ahead of us, an older epoch: nothing to gain from it.
        let is_mine = grant.boot == self.boot || !self.config.mechanisms.client_life();
        // More lanes than were asked for are of another session, or of no controller.
        let is_mine = is_mine && grant.lanes <= self.config.lanes;
        let is_old = grant.chains.iter().any(|(chain, granted)| {
            let known = self.chains.get(chain).map_or(0, |known| known.epoch);
            granted.as_ref().is_some_and(|granted| granted.epoch < known)
        });
        if !is_mine || is_old || grant.hello_us > now.monotonic_us {
            return;
        }
        self.served = grant.served.clone();
        for (chain, granted) in grant.chains.iter() {
            let known = self.chains.known(chain, |_| ChainState::new()).epoch;
            let Some(granted) = granted else { continue };
            if known == 0 {
                self.chains[chain].epoch = granted.epoch;
            } else if granted.epoch > known {
                self.move_to(now, chain, granted);
            }
        }
        // The controller had forgotten this client if the numbers are others.
        let known = (self.lane_first, self.lanes.len(), self.request_base);
        if self.epoch() == 0
            || (grant.lane_first, grant.lanes as usize, grant.request_base) != known
        {
            self.open(now, &grant);
        }
        self.lease_us = grant.lease_us;
        let lease_until_us = grant.hello_us.saturating_add(grant.lease_us);
        self.lease_until_us = self.lease_until_us.max(lease_until_us);
        for (chain, granted) in grant.chains.iter() {
            let known = &mut self.chains[chain];
            if granted.is_some() || !self.config.mechanisms.lease_by_chain() {
                known.lease_until_us = known.lease_until_us.max(lease_until_us);
            }
            let Some(granted) = granted else { continue };
            known.destination = granted.destination.clone();
            known.preserves = granted.preserves;
            self.generation_is_durable(chain, granted.durable_generation);
            if granted.recovered_epoch > self.chains[chain].recovered_epoch {
                self.chains[chain].recovered_epoch = granted.recovered_epoch;
                self.release_older_epochs(chain, granted.recovered_epoch);
            }
        }
    }

    /// A chain's recovery up to this epoch is durable.
    fn release_older_epochs(&mut self, chain: ChainId, epoch: u32) {
        let served = &self.served;
        self.preserved.release_older_epochs(epoch, |hash| served.of(hash) == chain);
    }

    /// A chain's snapshot that began this generation is durable.
    #[inline]
    pub(super) fn generation_is_durable(&mut self, chain: ChainId, generation: u32) {
        if generation > self.chains[chain].durable_generation {
            self.chains[chain].durable_generation = generation;
            let (served, any) = (&self.served, !self.config.mechanisms.release_by_chain());
            let is_of = |hash: &KeyHash| any || served.of(hash) == chain;
            self.preserved.release_older_generations(generation, is_of);
        }
    }

    /// Takes over the lanes of a new grant.
    fn open(&mut self, now: Now, grant: &Grant) {
        for index in 0..self.lanes.len() as u32 {
            if !matches!(self.lanes[index as usize].state, LaneState::Free | LaneState::Done(_)) {
                self.give_up(now, index);
            }
        }
        for (chain, granted) in grant.chains.iter() {
            if let Some(granted) = granted {
                self.chains[chain].epoch = granted.epoch;
            }
        }
        self.hash_key = grant.hash_key;
        self.lane_first = grant.lane_first;
        self.request_base = grant.request_base;
        self.sends.clear();
        let lane = Lane {
            request: grant.request_base,
            state: LaneState::Free,
            share: 0,
            is_held: false,
            token: 0,
            packet: Packet::new(),
            chain: ChainId::default(),
            hash: KeyHash::default(),
            expiry_ms: 0,
            refused: None,
            submitted_us: 0,
            retry_at_us: 0,
            attempt: 0,
        };
        self.lanes = vec![lane; grant.lanes as usize];
        self.free = (0..grant.lanes).rev().collect();
    }

    /// Moves to a chain's new epoch and answers the gather, if there is one, in one step (rule 9).
    fn move_to(&mut self, now: Now, chain: ChainId, to: &ChainGrant) {
        let epoch = to.epoch;
        let known = self.chains.known(chain, |_| ChainState::new());
        let answering = known.gather.as_ref().is_some_and(|gather| gather.epoch == epoch);
        if epoch < known.epoch || answering {
            return;
        }
        // The same epoch again: a controller that restarted during the recovery asks anew, or one
        // that no switch has answered asks clients after all.
        if epoch > known.epoch {
            self.change_epoch(now, chain, to);
        }
        if to.gathers {
            self.gather(now, chain, epoch);
        } else {
            self.end_gather();
        }
    }

    /// Sends everything that is preserved of a chain.
    fn gather(&mut self, now: Now, chain: ChainId, epoch: u32) {
        let is_of = |record: &KeyedRecord| self.served.of(&record.hash) == chain;
        let mut records: VecDeque<_> = self.preserved.keyed().filter(is_of).collect();
        let mut chunks = Vec::new();
        while chunks.is_empty() || !records.is_empty() {
            let count = batch_len(&records);
            chunks.push(records.drain(..count).collect());
        }
        let count = chunks.len();
        let chunks = chunks.into_iter().enumerate().map(|(chunk, records)| {
            let last = chunk + 1 == count;
            (false, ClientReport::Preserved { epoch, chunk: chunk as u32, last, records })
        });
        let chunks: Vec<_> = chunks.collect();
        self.messages.extend(chunks.iter().map(|(_, chunk)| chunk.clone()));
        self.chains[chain].gather = Some(Gather { epoch, chunks });
        self.timers.set(SessionTimer::Gather, now.in_us(self.config.hello_us));
        if !self.config.mechanisms.release_after_recovery() {
            self.release_older_epochs(chain, epoch);
        }
    }

    /// Moves to a chain's new epoch: the operations on its keys end, or begin anew.
    fn change_epoch(&mut self, now: Now, chain: ChainId, to: &ChainGrant) {
        let epoch = to.epoch;
        self.chains[chain].epoch = epoch;
        self.chains[chain].destination = to.destination.clone();
        self.chains[chain].preserves = to.preserves;
        self.chains[chain].gather = None;
        self.chains[chain].quiet = None;
        self.statistics.epoch_changes += 1;
        let lanes = &self.lanes;
        self.sends
            .retain(|send| lanes.get(send.lane() as usize).is_some_and(|lane| lane.chain != chain));
        for index in 0..self.lanes.len() as u32 {
            let lane = &mut self.lanes[index as usize];
            if lane.chain != chain {
                continue;
            }
            match lane.state {
                LaneState::Free | LaneState::Done(_) => continue,
                LaneState::Pulling(..) => {
                    self.large_bytes -= large_bytes(&lane.state);
                    lane.state = LaneState::Open;
                    self.end_transfer(now, index);
                }
                LaneState::Open | LaneState::Staging(_) | LaneState::Committing(_) => {}
            }
            let lane = &mut self.lanes[index as usize];
            let parts = lane.packet.parse().expect("the lane's own packet");
            if matches!(parts.header.op, Op::Read | Op::Scan)
                || lane.is_held
                || !self.config.mechanisms.end_with_epoch()
            {
                let destination = &self.chains[chain].destination;
                let (partition, view) = destination.partition(&parts.header.key_hash);
                let header = Header { epoch, partition, view, ..parts.header };
                lane.packet.rewrite(&header);
                if std::mem::take(&mut lane.is_held) {
                    self.begin_to_send(index);
                } else {
                    let request = lane.request;
                    self.sends.push_back(Send::Request(index, request));
                }
                self.arm(index, now);
            } else {
                self.give_up(now, index);
            }
        }
    }

    /// Ends the session: nothing is preserved any more, or it is given up. To be sent before the
    /// client goes.
    pub fn close(&mut self) {
        self.messages.push_back(ClientReport::Close { boot: self.boot });
        self.lease_until_us = 0;
        self.chains.iter_mut().for_each(|(_, chain)| chain.lease_until_us = 0);
    }
}
