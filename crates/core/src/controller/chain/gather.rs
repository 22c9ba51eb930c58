//! What clients preserve, as a recovery gathers it (design, section 6, rule 9).

use crate::control::KeyedRecord;
use crate::time::Now;
use std::collections::{BTreeMap, BTreeSet};
use switchback_wire::KeyHash;

/// The clients that a recovery waits for, and the records that it has so far.
#[derive(Debug)]
pub(super) struct Gather {
    clients: BTreeMap<u64, Client>,
    best: BTreeMap<KeyHash, KeyedRecord>,
    /// When clients that haven't answered are asked again.
    ask_again_us: u64,
    /// Records that arrived.
    arrived: u64,
    is_over: bool,
}

/// A client that is waited for.
#[derive(Debug)]
pub(super) struct Client {
    chunks: BTreeSet<u32>,
    last: Option<u32>,
    /// When it is no longer waited for: it accepts no answer of the old epoch any more, and hasn't
    /// been heard of for the time of a lease.
    deadline_us: u64,
    /// The same, however often it is heard of.
    deadline_us_max: u64,
}

impl Client {
    /// A client that hasn't answered.
    pub(super) fn new(deadline_us: u64, deadline_us_max: u64) -> Client {
        Client { chunks: BTreeSet::new(), last: None, deadline_us, deadline_us_max }
    }

    fn is_done(&self, now: Now) -> bool {
        self.is_complete() || now.monotonic_us >= self.deadline_us
    }

    fn is_complete(&self) -> bool {
        self.last.is_some_and(|last| self.chunks.len() == last as usize + 1)
    }
}

impl Gather {
    /// Nothing has arrived of any of these clients.
    pub(super) fn new(clients: BTreeMap<u64, Client>, ask_again_us: u64) -> Gather {
        Gather { clients, best: BTreeMap::new(), ask_again_us, arrived: 0, is_over: false }
    }

    /// The clients that were asked when it began.
    pub(super) fn clients(&self) -> Vec<u64> {
        self.clients.keys().copied().collect()
    }

    /// A part of what a client preserves has arrived. `newest`: the newest version of a key counts,
    /// not the first.
    pub(super) fn take_chunk(
        &mut self,
        now: Now,
        client: u64,
        chunk: u32,
        last: bool,
        records: Vec<KeyedRecord>,
        newest: bool,
    ) {
        let Some(client) = self.clients.get_mut(&client) else { return };
        if self.is_over || now.monotonic_us >= client.deadline_us {
            return;
        }
        client.chunks.insert(chunk);
        if last {
            client.last = Some(chunk);
        }
        self.arrived += records.len() as u64;
        for record in records {
            self.merge(record, newest);
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
        let is_answering = |client: &Client| client.is_complete() || (has_moved && client.last.is_some());
        self.clients.get(&client).is_some_and(|client| !is_answering(client))
    }

    /// Clients to be asked again now, for the next time after `pause_us`.
    pub(super) fn ask_again(&mut self, now: Now, pause_us: u64) -> Vec<u64> {
        if self.is_over || now.monotonic_us < self.ask_again_us {
            return Vec::new();
        }
        self.ask_again_us = now.in_us(pause_us);
        let open = self.clients.iter().filter(|(_, client)| client.last.is_none());
        open.map(|(client, _)| *client).collect()
    }

    /// When a client is asked again, or no longer waited for; `None` once it is over.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        if self.is_over {
            return None;
        }
        let open = self.clients.values().filter(|client| !client.is_complete());
        let deadline_us = open.map(|client| client.deadline_us).min().unwrap_or(0);
        Some(deadline_us.min(self.ask_again_us))
    }

    /// Whether every client has answered, or accepts no answer any more.
    pub(super) fn is_done(&self, now: Now) -> bool {
        self.clients.values().all(|client| client.is_done(now))
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

    /// Adds a record that is as good as preserved (of a snapshot, say).
    pub(super) fn merge(&mut self, record: KeyedRecord, newest: bool) {
        let known = self.best.get(&record.hash);
        if known.is_none_or(|known| newest && known.record.seq < record.record.seq) {
            self.best.insert(record.hash, record);
        }
    }

    /// Takes the record of each key.
    pub(super) fn take_records(&mut self) -> BTreeMap<KeyHash, KeyedRecord> {
        std::mem::take(&mut self.best)
    }
}
