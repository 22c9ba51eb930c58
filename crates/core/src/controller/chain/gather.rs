//! What clients preserve, as a recovery gathers it (rule 9).

use crate::control::{BATCH_MAX, KeyedRecord};
use crate::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::KeyHash;

/// Bytes of the records in a chunk that isn't the last one, at least: a client fills them by
/// number, or by bytes, which are more.
const FULL_CHUNK_BYTES_MIN: usize = BATCH_MAX * KeyedRecord::BYTES_MIN;

/// The clients that a recovery waits for, and the records that it has so far.
#[derive(Debug)]
pub(super) struct Gather {
    clients: BTreeMap<u64, Client>,
    best: BTreeMap<KeyHash, Held>,
    /// Bytes of records that may be held of one client.
    bytes_max: usize,
    /// When clients that haven't answered are asked again.
    ask_again_us: u64,
    /// Records that arrived.
    arrived: u64,
    /// No client is waited for any more.
    is_answered: bool,
    is_over: bool,
}

/// A record, and the client that sent it; `None`: it is of a snapshot.
#[derive(Debug)]
struct Held {
    record: KeyedRecord,
    of: Option<u64>,
}

/// A client that is waited for.
#[derive(Debug)]
pub(super) struct Client {
    chunks: BTreeSet<u32>,
    last: Option<u32>,
    /// Bytes of records that are held of it. One that it sends again, or that is replaced by a
    /// newer one of another client, doesn't count.
    held_bytes: usize,
    /// It sent more than any client preserves: nothing more is taken of it.
    is_over_limit: bool,
    /// When it is no longer waited for: it accepts no answer of the old epoch any more, and hasn't
    /// been heard of for the time of a lease.
    deadline_us: u64,
    /// The same, however often it is heard of.
    deadline_us_max: u64,
}

impl Client {
    /// A client that hasn't answered.
    pub(super) fn new(deadline_us: u64, deadline_us_max: u64) -> Client {
        let (chunks, last) = (BTreeSet::new(), None);
        Client { chunks, last, held_bytes: 0, is_over_limit: false, deadline_us, deadline_us_max }
    }

    fn is_done(&self, now: Now) -> bool {
        self.is_complete() || self.is_given_up(now)
    }

    /// Whether it is no longer waited for, and what it sends is no longer taken.
    fn is_given_up(&self, now: Now) -> bool {
        self.is_over_limit || now.monotonic_us >= self.deadline_us
    }

    fn is_complete(&self) -> bool {
        !self.is_over_limit && self.last.is_some_and(|last| self.chunks.len() == last as usize + 1)
    }
}

impl Gather {
    /// Begins to gather from these clients; at most `bytes_max` bytes of records are held of each.
    pub(super) fn new(
        clients: BTreeMap<u64, Client>,
        bytes_max: usize,
        ask_again_us: u64,
    ) -> Gather {
        Gather {
            clients,
            best: BTreeMap::new(),
            bytes_max,
            ask_again_us,
            arrived: 0,
            is_answered: false,
            is_over: false,
        }
    }

    /// The clients that were asked when it began.
    pub(super) fn clients(&self) -> Vec<u64> {
        self.clients.keys().copied().collect()
    }

    /// A part of what a client preserves has arrived. `newest`: the newest version of a key counts,
    /// not the first. A client that exceeds its limit is given up; what was taken of it stays,
    /// since it may have replaced what another client sent.
    pub(super) fn take_chunk(
        &mut self,
        now: Now,
        client: u64,
        chunk: u32,
        last: bool,
        records: Vec<KeyedRecord>,
        newest: bool,
    ) {
        let chunks_max = self.bytes_max / FULL_CHUNK_BYTES_MIN + 1;
        let Some(state) = self.clients.get_mut(&client) else { return };
        if self.is_over || state.is_given_up(now) {
            return;
        }
        if chunk as usize >= chunks_max {
            state.is_over_limit = true;
            return;
        }
        state.chunks.insert(chunk);
        if last {
            state.last = Some(chunk);
        }
        self.arrived += records.len() as u64;
        for record in records {
            if self.clients[&client].held_bytes + record.bytes() > self.bytes_max {
                self.clients.get_mut(&client).expect("found above").is_over_limit = true;
                return;
            }
            self.merge(Some(client), record, newest);
        }
    }

    /// A client lives: it is waited for as if it had just got a lease, which ends then.
    pub(super) fn heard(&mut self, client: u64, until_us: u64) {
        if let Some(client) = self.clients.get_mut(&client) {
            client.deadline_us = client.deadline_us.max(until_us.min(client.deadline_us_max));
        }
    }

    /// A client ended its session: it preserves nothing any more, and isn't waited for.
    pub(super) fn closed(&mut self, client: u64) {
        self.clients.remove(&client);
    }

    /// Nothing was heard of any client for this long, since the controller didn't listen.
    pub(super) fn slept(&mut self, now: Now, slept_us: u64, lease_us: u64) {
        for client in self.clients.values_mut() {
            client.deadline_us_max += slept_us;
            let anew_us = now.in_us(lease_us).min(client.deadline_us_max);
            client.deadline_us = anew_us.max(client.deadline_us + slept_us);
        }
    }

    /// Whether a client that says hello in this epoch is to be asked: not if its answer is there,
    /// or, once it has moved to the epoch of the recovery, on its way: it repeats its chunks until
    /// they are confirmed.
    pub(super) fn is_to_be_asked(&self, client: u64, has_moved: bool) -> bool {
        let is_answering =
            |client: &Client| client.is_complete() || (has_moved && client.last.is_some());
        self.clients
            .get(&client)
            .is_some_and(|client| !client.is_over_limit && !is_answering(client))
    }

    /// Clients to be asked again now, for the next time after `pause_us`.
    pub(super) fn ask_again(&mut self, now: Now, pause_us: u64) -> Vec<u64> {
        if self.is_over || now.monotonic_us < self.ask_again_us {
            return Vec::new();
        }
        self.ask_again_us = now.in_us(pause_us);
        let open = self
            .clients
            .iter()
            .filter(|(_, client)| client.last.is_none() && !client.is_over_limit);
        open.map(|(client, _)| *client).collect()
    }

    /// When a client is asked again, or no longer waited for; `None` once it is over.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        if self.is_over {
            return None;
        }
        if self.is_answered {
            return Some(self.ask_again_us);
        }
        let open =
            self.clients.values().filter(|client| !client.is_complete() && !client.is_over_limit);
        let deadline_us = open.map(|client| client.deadline_us).min().unwrap_or(0);
        Some(deadline_us.min(self.ask_again_us))
    }

    /// Whether every client has answered, or is given up.
    pub(super) fn is_done(&self, now: Now) -> bool {
        self.clients.values().all(|client| client.is_done(now))
    }

    /// No client is waited for any more, but something else.
    pub(super) fn set_answered(&mut self) {
        self.is_answered = true;
    }

    /// Whether its records were taken.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Records that arrived.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Ends it: the clients whose answer is missing. What they send later is ignored.
    pub(super) fn end(&mut self) -> Vec<u64> {
        self.is_over = true;
        let incomplete = self.clients.iter().filter(|(_, client)| !client.is_complete());
        incomplete.map(|(client, _)| *client).collect()
    }

    /// Takes the record of each key, of a snapshot as well.
    pub(super) fn take_records(
        &mut self,
        snapshot: &[KeyedRecord],
        newest: bool,
    ) -> BTreeMap<KeyHash, KeyedRecord> {
        for record in snapshot {
            self.merge(None, record.clone(), newest);
        }
        std::mem::take(&mut self.best).into_iter().map(|(hash, held)| (hash, held.record)).collect()
    }

    /// Keeps a record unless one of its key is held that counts more.
    fn merge(&mut self, of: Option<u64>, record: KeyedRecord, newest: bool) {
        let known = self.best.get(&record.hash);
        if known.is_some_and(|known| !newest || known.record.record.seq >= record.record.seq) {
            return;
        }
        self.count(of, |held_bytes| held_bytes + record.bytes());
        if let Some(replaced) = self.best.insert(record.hash, Held { record, of }) {
            self.count(replaced.of, |held_bytes| held_bytes - replaced.record.bytes());
        }
    }

    /// Changes how many bytes are held of a client. (One that closed its session isn't counted any
    /// more.)
    fn count(&mut self, client: Option<u64>, change: impl FnOnce(usize) -> usize) {
        if let Some(client) = client.and_then(|client| self.clients.get_mut(&client)) {
            client.held_bytes = change(client.held_bytes);
        }
    }
}
