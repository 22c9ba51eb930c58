//! What answers mean: the end of an operation, or its next packet.

use super::*;

impl Session {
    /// Whether this is an answer of the common kind: a small record, or that it was written.
    #[inline]
    pub(super) fn is_plain(&self, index: u32, header: &Header) -> bool {
        let lane = &self.lanes[index as usize];
        match (header.op, lane.asked()) {
            (Op::ReadReply, Op::Read) => {
                lane.refused.is_none()
                    && !header.has(flags::LARGE)
                    && matches!(lane.state, LaneState::Open)
            }
            (Op::WriteReply, Op::Write | Op::Delete) => header.status == Status::Ok,
            _ => false,
        }
    }

    /// What any other answer says; `None` if the operation goes on.
    pub(super) fn answer<'a>(
        &mut self,
        now: Now,
        index: u32,
        header: &Header,
        value: &'a [u8],
    ) -> Option<Outcome<'a>> {
        let lane = &self.lanes[index as usize];
        match (header.op, lane.asked()) {
            (Op::ReadReply, Op::Read) if lane.refused.is_some() => {
                Some(self.refused_answer(index, header, value))
            }
            (Op::ReadReply, Op::Read) if header.has(flags::LARGE) => {
                self.begin_pull(now, index, header, value)
            }
            (Op::ReadFragmentReply, Op::Read) => self.pulled(now, index, header, value),
            (Op::FragmentReply, Op::Write) => {
                self.staged(now, index, header, value);
                None
            }
            (Op::WriteReply, Op::Write | Op::Delete) => self.not_written(now, index, header),
            (Op::ScanReply, Op::Scan) => Some(Outcome::Scanned {
                entries: value,
                next: header.guard,
                live: header.total_bytes,
            }),
            _ => {
                self.statistics.ignored_packets += 1;
                None
            }
        }
    }

    #[inline]
    pub(super) fn read_answer<'a>(
        &mut self,
        index: u32,
        header: &Header,
        value: &'a [u8],
    ) -> Outcome<'a> {
        let dirty = header.record_flags & record_flags::DIRTY != 0;
        // Deleted or expired: the same to a reader, and it must stay so.
        let tombstone = header.status != Status::Ok;
        // What was seen must not vanish, even if its writer never heard that it was written (rule
        // 7).
        let preserves = self.lane_preserves(index) && self.config.mechanisms.reader_preservation();
        if header.has(flags::CACHED)
            && dirty
            && preserves
            && header.generation >= self.lane_durable_generation(index)
        {
            let (_, key) = self.lanes[index as usize].packet.value_and_key();
            let (seq, expiry_ms) = (header.seq, header.expiry_ms);
            self.preserved.keep(
                header.key_hash,
                key,
                value,
                seq,
                tombstone,
                expiry_ms,
                header.generation,
            );
        }
        match header.status {
            Status::Ok => Outcome::Value { value, seq: header.seq, expiry_ms: header.expiry_ms },
            _ => Outcome::NotFound { seq: header.seq },
        }
    }

    /// Snapshots before this generation are durable, of the chain that serves a lane's key.
    #[inline]
    fn lane_durable_generation(&self, index: u32) -> u32 {
        self.chains[self.lanes[index as usize].chain].durable_generation
    }

    /// Whether clients preserve what the cache tells of a lane's key.
    #[inline]
    fn lane_preserves(&self, index: u32) -> bool {
        self.chains[self.lanes[index as usize].chain].preserves
            && self.config.mechanisms.preservation()
    }

    /// The write, or delete, happened.
    #[inline]
    pub(super) fn written(&mut self, index: u32, header: &Header) -> Outcome<'static> {
        let preserves = self.lane_preserves(index);
        if header.has(flags::CACHED)
            && preserves
            && header.generation >= self.lane_durable_generation(index)
        {
            let lane = &self.lanes[index as usize];
            let (value, key) = lane.packet.value_and_key();
            let deleted = lane.asked() == Op::Delete;
            self.preserved.keep(
                lane.hash,
                key,
                value,
                header.seq,
                deleted,
                lane.expiry_ms,
                header.generation,
            );
        }
        Outcome::Written { seq: header.seq }
    }

    /// The write, or delete, didn't happen, or not yet.
    fn not_written(&mut self, now: Now, index: u32, header: &Header) -> Option<Outcome<'static>> {
        let lane = &mut self.lanes[index as usize];
        match header.status {
            // The switch has put the record's seq there, in an answer that it repeats as well;
            // `guard` is the request's in those.
            Status::ConditionFailed
                if header.has(flags::CACHED)
                    && self.chains[lane.chain].preserves
                    && self.config.mechanisms.kept_refusals() =>
            {
                self.read_refusing(now, index);
                None
            }
            Status::ConditionFailed => Some(Outcome::ConditionFailed { seq: header.seq }),
            Status::NoSpace => Some(Outcome::NoSpace),
            Status::FragmentsMissing => {
                if let LaneState::Committing(staging) = &mut lane.state {
                    staging.restart();
                    let LaneState::Committing(staging) = std::mem::take(&mut lane.state) else {
                        unreachable!("just matched")
                    };
                    lane.state = LaneState::Staging(staging);
                    self.transfer(index);
                    self.arm(index, now);
                }
                None
            }
            _ => {
                self.statistics.ignored_packets += 1;
                None
            }
        }
    }

    /// The cache refused a conditional write: its caller has seen that another version is there.
    /// So that version must not vanish with the switch, even if its writer never heard that
    /// it was written (rule 7); it is read, and thereby preserved, first.
    fn read_refusing(&mut self, now: Now, index: u32) {
        let lane = &mut self.lanes[index as usize];
        let parts = lane.packet.parse().expect("the lane's own packet");
        let (asked, key) = (parts.header, parts.key.to_vec());
        lane.refused = Some(Seq(asked.guard));
        let read =
            Header { op: Op::Read, flags: 0, guard: 0, expiry_ms: 0, total_bytes: 0, ..asked };
        lane.packet.fill(&read, &[], &key);
        lane.attempt = 0;
        let request = lane.request;
        self.sends.push_back(Send::Request(index, request));
        self.arm(index, now);
    }

    /// What was read after a refusal.
    fn refused_answer(&mut self, index: u32, header: &Header, value: &[u8]) -> Outcome<'static> {
        let expected = self.lanes[index as usize].refused;
        let seq = match self.read_answer(index, header, value) {
            Outcome::Value { seq, .. } | Outcome::NotFound { seq } => seq,
            _ => header.seq,
        };
        // In a later epoch it may be what was expected after all, since no part knew of the other.
        // Nothing was done, at any rate.
        if Some(seq) == expected { Outcome::TimedOut } else { Outcome::ConditionFailed { seq } }
    }

    /// A FRAGMENT_REPLY: send more fragments, or commit.
    fn staged(&mut self, now: Now, index: u32, header: &Header, bitmap: &[u8]) {
        let lane = &mut self.lanes[index as usize];
        let has_share = lane.share > 0;
        let LaneState::Staging(staging) = &mut lane.state else { return };
        let window_done = staging.arrived(header.fragment_index, bitmap);
        if staging.is_complete() {
            let LaneState::Staging(mut staging) = std::mem::take(&mut lane.state) else {
                unreachable!("matched above")
            };
            staging.was_asked_for = true;
            lane.state = LaneState::Committing(staging);
            lane.attempt = 0;
            let request = lane.request;
            self.sends.push_back(Send::Request(index, request));
            self.arm(index, now);
            self.end_transfer(now, index);
        } else if window_done && has_share {
            lane.attempt = 0;
            self.send_fragments(index, false);
            self.arm(index, now);
        }
    }

    /// The first answer to a read of a large value.
    fn begin_pull<'a>(
        &mut self,
        now: Now,
        index: u32,
        header: &Header,
        first: &'a [u8],
    ) -> Option<Outcome<'a>> {
        let lane = &mut self.lanes[index as usize];
        if !matches!(lane.state, LaneState::Open) {
            return None;
        }
        let key_bytes = lane.packet.parse().expect("the lane's own packet").key.len();
        let total = header.total_bytes as usize;
        let pulled = PulledValue::begin(first, total, key_bytes, header.seq, header.expiry_ms)?;
        if pulled.is_complete() {
            return Some(Outcome::Value {
                value: first,
                seq: header.seq,
                expiry_ms: header.expiry_ms,
            });
        }
        self.large_bytes += pulled.value.len();
        self.pull(now, index, Box::new(pulled));
        None
    }

    fn pull(&mut self, now: Now, index: u32, pulled: Box<PulledValue>) {
        let (first, count) = pulled.wanted();
        let lane = &mut self.lanes[index as usize];
        lane.state = LaneState::Pulling(pulled, first, count);
        lane.attempt = 0;
        self.transfer(index);
        self.arm(index, now);
    }

    /// A READ_FRAGMENT_REPLY.
    fn pulled(
        &mut self,
        now: Now,
        index: u32,
        header: &Header,
        bytes: &[u8],
    ) -> Option<Outcome<'static>> {
        let lane = &mut self.lanes[index as usize];
        let LaneState::Pulling(pulled, first, count) = &mut lane.state else { return None };
        if header.status != Status::Ok || header.seq != pulled.seq {
            // The value changed under the read: start over, which is a read of the newer value.
            self.large_bytes -= large_bytes(&lane.state);
            lane.state = LaneState::Open;
            let request = lane.request;
            self.sends.push_back(Send::Request(index, request));
            self.arm(index, now);
            self.end_transfer(now, index);
            return None;
        }
        if !pulled.put(header.fragment_index, bytes) {
            self.statistics.ignored_packets += 1;
            return None;
        }
        if pulled.is_complete() {
            let (seq, expiry_ms) = (pulled.seq, pulled.expiry_ms);
            // handle_packet() puts the value in.
            return Some(Outcome::Value { value: &[], seq, expiry_ms });
        }
        if pulled.window_done(*first, *count) {
            let LaneState::Pulling(pulled, ..) = std::mem::take(&mut lane.state) else {
                unreachable!("matched above")
            };
            self.pull(now, index, pulled);
        }
        None
    }
}
