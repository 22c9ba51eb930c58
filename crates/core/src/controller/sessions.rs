//! Client sessions: lanes, leases, and what a recovery gathers from them.

use super::directory::SessionEntry;
use super::machine::{Controller, Phase};
use crate::control::{ClientNotice, ClientReport, Grant, KeyedRecord, Message, Peer};
use crate::time::Now;

/// A session as the controller knows it.
#[derive(Clone, Debug)]
pub(super) struct ClientState {
    /// Until then it may accept answers.
    pub(super) lease_until_us: u64,
    /// It comes back with its records even after a crash.
    pub(super) spooled: bool,
    pub(super) heard_us: u64,
}

impl ClientState {
    pub(super) fn of(session: &SessionEntry, lease_until_us: u64) -> ClientState {
        ClientState { lease_until_us, spooled: session.spooled, heard_us: 0 }
    }
}

impl Controller {
    pub(super) fn handle_client(&mut self, now: Now, client: u64, report: ClientReport) {
        self.client_lives(now, client);
        match report {
            ClientReport::Hello { boot, sent_us, lanes, epoch, pressure, spooled } => {
                if self.directory.active.is_none() && !self.directory.bypass {
                    return; // nobody to send packets to yet; it asks again
                }
                self.open_session(now, client, boot, lanes, spooled);
                self.gather_from(client, epoch);
                self.grant(now, client, sent_us);
                if pressure {
                    self.snapshots.hurry(now);
                }
            }
            ClientReport::Preserved { epoch, chunk, last, records } => {
                self.preserved(now, client, epoch, chunk, last, records);
            }
            ClientReport::Close { boot } => {
                if self.directory.sessions.get(&client).is_some_and(|session| session.boot == boot) {
                    self.directory.sessions.remove(&client);
                    self.clients.remove(&client);
                    self.store_directory();
                    if let Phase::Recovering(recovery) = &mut self.phase {
                        recovery.closed(client);
                    }
                }
            }
        }
    }

    fn client_lives(&mut self, now: Now, client: u64) {
        if let Some(state) = self.clients.get_mut(&client) {
            state.heard_us = now.monotonic_us;
        }
        let until_us = now.in_us(self.config.lease_us + self.config.drift_us);
        if let Phase::Recovering(recovery) = &mut self.phase
            && self.mechanisms.wait_while_heard
        {
            recovery.heard(client, until_us);
        }
    }

    /// Forgets all sessions: nothing that they preserve is missing at a node (after a drain, with no client running).
    pub fn close_sessions(&mut self, now: Now) {
        assert!(self.is_drained(), "what clients preserve may be needed");
        self.directory.sessions.clear();
        self.clients.clear();
        self.store_directory();
        self.go_on(now);
    }

    /// Opens the client's session unless it is open or there are no lanes left.
    fn open_session(&mut self, now: Now, client: u64, boot: u64, lanes: u32, spooled: bool) {
        let known = self.directory.sessions.get(&client);
        if known.is_some_and(|session| session.boot == boot && session.spooled == spooled) {
            return;
        }
        let lanes = lanes.clamp(1, self.config.lanes.1);
        let (lane_first, lanes) = match known {
            Some(session) if session.lanes == lanes => (session.lane_first, lanes),
            _ => {
                let allocated = self.allocate_lanes(client, lanes).or_else(|| {
                    self.forget_expired(now);
                    self.allocate_lanes(client, lanes)
                });
                let Some(allocated) = allocated else { return };
                allocated
            }
        };
        // Request numbers rise over the sessions of a lane, so nothing of an earlier one can be taken for this one's.
        self.directory.sessions_opened += 1;
        let number = self.directory.sessions_opened;
        self.directory.sessions.insert(client, SessionEntry { boot, lane_first, lanes, number, spooled });
        let state = ClientState { lease_until_us: 0, spooled, heard_us: now.monotonic_us };
        let state = self.clients.entry(client).or_insert(state);
        state.spooled = spooled;
        self.store_directory();
    }

    /// Forgets clients, and stores the directory. One that lives after all opens another session.
    pub(super) fn forget(&mut self, clients: &[u64]) {
        for client in clients {
            self.directory.sessions.remove(client);
            self.clients.remove(client);
        }
        self.store_directory();
    }

    /// Forgets clients without a spool whose lease has run out: a recovery would not wait for them. (A recovery that runs knows whom it
    /// waits for.)
    fn forget_expired(&mut self, now: Now) {
        if !matches!(self.phase, Phase::Serving) {
            return;
        }
        let lease_us = self.config.lease_us + self.config.drift_us;
        let is_expired = |client: &ClientState| {
            !client.spooled && now.monotonic_us > client.lease_until_us.max(client.heard_us + lease_us)
        };
        let expired = self.clients.iter().filter(|(_, client)| is_expired(client)).map(|(client, _)| *client);
        self.forget(&expired.collect::<Vec<_>>());
    }

    /// The first gap between the lanes of all other sessions that is wide enough.
    fn allocate_lanes(&self, client: u64, lanes: u32) -> Option<(u32, u32)> {
        let others = self.directory.sessions.iter().filter(|(id, _)| **id != client);
        let mut taken: Vec<_> = others.map(|(_, session)| (session.lane_first, session.lanes)).collect();
        taken.sort_unstable();
        let mut first = 0;
        for (start, count) in taken {
            if start - first >= lanes {
                break;
            }
            first = start + count;
        }
        (self.config.lanes.0.checked_sub(first)? >= lanes).then_some((first, lanes))
    }

    /// Grants or renews the lease.
    fn grant(&mut self, now: Now, client: u64, hello_us: u64) {
        let Some(session) = self.directory.sessions.get(&client) else { return };
        let Some(destination) = self.destination() else { return };
        if matches!(self.phase, Phase::Waiting) {
            return;
        }
        let grant = Grant {
            boot: session.boot,
            hello_us,
            lease_us: self.config.lease_us,
            epoch: self.directory.epoch,
            destination,
            hash_key: self.directory.hash_key,
            partitions: self.directory.routes.len() as u32,
            lane_first: session.lane_first,
            lanes: session.lanes,
            request_base: u64::from(session.number) << 32,
            durable_generation: self.snapshots.durable_generation,
            recovered_epoch: self.directory.recovered_epoch,
        };
        let state = self.clients.get_mut(&client).expect("every session has a client");
        state.lease_until_us = now.in_us(self.config.lease_us + self.config.drift_us);
        let message = Message::ToClient(ClientNotice::Granted(grant));
        // Neither the session nor the epoch may be told before they are durable; the hello that asked for them may not be the first one.
        self.send_after(self.directory_store, Peer::Client(client), message);
    }

    fn preserved(&mut self, now: Now, client: u64, epoch: u32, chunk: u32, last: bool, records: Vec<KeyedRecord>) {
        if epoch != self.directory.epoch {
            return;
        }
        if let Phase::Recovering(recovery) = &mut self.phase {
            recovery.gathered(now, client, chunk, last, records, self.mechanisms.recover_newest);
        }
        // Outside a recovery, or after its deadline, the records come too late (rule 9): there is nothing to wait for.
        self.notify(client, ClientNotice::Gathered { epoch, chunk });
    }
}
