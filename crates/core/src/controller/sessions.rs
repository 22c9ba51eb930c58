//! Client sessions: their lanes and leases.

use super::ControllerConfig;
use super::directory::{Directory, SessionEntry};
use super::outbox::Outbox;
use crate::control::{ChainGrant, ClientNotice, Grant, Message, Peer};
use crate::time::Now;
use crate::topology::{ByChain, ChainId};
use std::collections::{BTreeMap, BTreeSet};

/// A client with a session.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// Until then it may accept answers.
    pub(super) lease_until_us: u64,
    /// It comes back with its records even after a crash.
    pub(super) spooled: bool,
    /// When something was last heard of it; 0: not in this run of the controller.
    pub(super) heard_us: u64,
    /// Chains whose recoveries it was silent in since then. They don't wait for it again.
    given_up_by: BTreeSet<ChainId>,
}

impl Client {
    fn new(lease_until_us: u64, spooled: bool, heard_us: u64) -> Client {
        Client { lease_until_us, spooled, heard_us, given_up_by: BTreeSet::new() }
    }
}

/// What a client asks for in its hello.
#[derive(Clone, Copy, Debug)]
pub(super) struct SessionRequest {
    /// Drawn anew at every start of the client.
    pub(super) boot: u64,
    /// Lanes it would like to have.
    pub(super) lanes: u32,
    /// It keeps its preserved records on disk.
    pub(super) spooled: bool,
}

/// The clients that have a session. What must survive the controller is in the directory, which has
/// an entry for each of them.
#[derive(Debug)]
pub(super) struct Sessions {
    clients: BTreeMap<u64, Client>,
    /// Lanes in all, and for one session at most.
    lanes: (u32, u32),
    /// Lease of a session, by the client's clock.
    lease_us: u64,
    /// How much longer it may seem to be by the controller's.
    drift_us: u64,
}

impl Sessions {
    /// The sessions of the directory. Each may have a lease that was granted just now, by the
    /// controller before this one.
    pub(super) fn new(now: Now, config: &ControllerConfig, directory: &Directory) -> Sessions {
        let (lanes, lease_us, drift_us) = (config.lanes, config.lease_us, config.drift_us);
        let lease_until_us = now.in_us(lease_us + drift_us);
        let client = |(id, session): (u64, &SessionEntry)| {
            (id, Client::new(lease_until_us, session.spooled, 0))
        };
        Sessions { clients: directory.sessions().map(client).collect(), lanes, lease_us, drift_us }
    }

    /// All clients, and what is known of them.
    fn iter(&self) -> impl Iterator<Item = (u64, &Client)> {
        self.clients.iter().map(|(id, client)| (*id, client))
    }

    /// The clients that a chain's recovery waits for.
    pub(super) fn waited_for(&self, chain: ChainId) -> impl Iterator<Item = (u64, &Client)> {
        self.iter().filter(move |(_, client)| !client.given_up_by.contains(&chain))
    }

    /// The clients that may accept answers.
    pub(super) fn living(&self, now: Now) -> impl Iterator<Item = u64> {
        let is_living = move |client: &Client| now.monotonic_us < client.lease_until_us;
        self.iter().filter(move |(_, client)| is_living(client)).map(|(client, _)| client)
    }

    /// Whether a client may accept answers.
    pub(super) fn is_living(&self, now: Now, client: u64) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| now.monotonic_us < client.lease_until_us)
    }

    /// For how long a lease may last by the controller's clock.
    pub(super) fn lease_us(&self) -> u64 {
        self.lease_us + self.drift_us
    }

    /// Something was heard of a client.
    pub(super) fn heard(&mut self, now: Now, client: u64) {
        if let Some(state) = self.clients.get_mut(&client) {
            state.heard_us = now.monotonic_us;
            state.given_up_by.clear();
        }
    }

    /// A chain's recovery, which began at `since_us`, has given `clients` up: those that were
    /// silent during all of it are not waited for again. Those that no chain waits for any more.
    pub(super) fn give_up(
        &mut self,
        chain: ChainId,
        since_us: u64,
        clients: &[u64],
        chains: u16,
    ) -> Vec<u64> {
        let mut gone = Vec::new();
        for client in clients {
            let Some(state) = self.clients.get_mut(client) else { continue };
            if state.heard_us < since_us {
                state.given_up_by.insert(chain);
            }
            if state.given_up_by.len() == usize::from(chains) {
                gone.push(*client);
            }
        }
        gone
    }

    /// Opens the client's session unless it is open. If there are no lanes left, clients whose
    /// lease has run out are forgotten, if they may be; if there are none even so, the client has
    /// to ask again.
    pub(super) fn open(
        &mut self,
        now: Now,
        client: u64,
        request: SessionRequest,
        may_forget: bool,
        directory: &mut Directory,
        outbox: &mut Outbox,
    ) {
        let SessionRequest { boot, lanes, spooled } = request;
        let known = directory.session(client);
        if known.is_some_and(|session| session.boot == boot && session.spooled == spooled) {
            return;
        }
        let lanes = lanes.clamp(1, self.lanes.1);
        let lanes = match known {
            Some(session) if session.lanes == lanes => Some((session.lane_first, lanes)),
            _ => self.allocate_lanes(client, lanes, directory).or_else(|| {
                if may_forget {
                    self.forget_expired(now, directory, outbox);
                }
                self.allocate_lanes(client, lanes, directory)
            }),
        };
        let Some(lanes) = lanes else { return };
        // Request numbers rise over the sessions of a lane, so nothing of an earlier one can be
        // taken for this one's.
        directory.open_session(outbox, client, boot, lanes, spooled);
        let state = Client::new(0, spooled, now.monotonic_us);
        self.clients.entry(client).or_insert(state).spooled = spooled;
    }

    /// The first gap between the lanes of all other sessions that is wide enough: `(first, count)`.
    fn allocate_lanes(&self, client: u64, lanes: u32, directory: &Directory) -> Option<(u32, u32)> {
        let others = directory.sessions().filter(|(id, _)| *id != client);
        let mut taken: Vec<_> =
            others.map(|(_, session)| (session.lane_first, session.lanes)).collect();
        taken.sort_unstable();
        let mut first = 0;
        for (start, count) in taken {
            if start - first >= lanes {
                break;
            }
            first = start + count;
        }
        (self.lanes.0.checked_sub(first)? >= lanes).then_some((first, lanes))
    }

    /// Forgets clients without a spool whose lease has run out: a recovery would not wait for them.
    /// One that lives after all opens another session.
    fn forget_expired(&mut self, now: Now, directory: &mut Directory, outbox: &mut Outbox) {
        let lease_us = self.lease_us();
        let is_expired = |client: &Client| {
            !client.spooled
                && now.monotonic_us > client.lease_until_us.max(client.heard_us + lease_us)
        };
        let expired =
            self.iter().filter(|(_, client)| is_expired(client)).map(|(client, _)| client);
        let expired: Vec<u64> = expired.collect();
        directory.close_sessions(outbox, &expired);
        self.forget(&expired);
    }

    /// Forgets clients whose sessions the directory no longer has.
    pub(super) fn forget(&mut self, clients: &[u64]) {
        for client in clients {
            self.clients.remove(client);
        }
    }

    /// Ends a client's session; false if this life of it has none.
    pub(super) fn close(
        &mut self,
        client: u64,
        boot: u64,
        directory: &mut Directory,
        outbox: &mut Outbox,
    ) -> bool {
        let is_open = directory.session(client).is_some_and(|session| session.boot == boot);
        if is_open {
            directory.close_sessions(outbox, &[client]);
            self.clients.remove(&client);
        }
        is_open
    }

    /// Ends all sessions.
    pub(super) fn close_all(&mut self, directory: &mut Directory, outbox: &mut Outbox) {
        directory.close_all_sessions(outbox);
        self.clients.clear();
    }

    /// Grants or renews the lease of a client that has a session; `hello_us` is its own clock in
    /// the hello that this answers.
    pub(super) fn grant(
        &mut self,
        now: Now,
        client: u64,
        hello_us: u64,
        chains: ByChain<Option<ChainGrant>>,
        directory: &Directory,
        outbox: &mut Outbox,
    ) {
        let Some(session) = directory.session(client) else { return };
        let lease_until_us = now.in_us(self.lease_us());
        self.clients.get_mut(&client).expect("every session has a client").lease_until_us =
            lease_until_us;
        let grant = Grant {
            boot: session.boot,
            hello_us,
            lease_us: self.lease_us,
            chains,
            served: directory.served().clone(),
            hash_key: directory.hash_key(),
            lane_first: session.lane_first,
            lanes: session.lanes,
            request_base: u64::from(session.number) << 32,
        };
        // The client hears of session and epoch when they are durable, though an earlier hello may
        // have asked for them.
        let message = Message::ToClient(ClientNotice::Granted(grant));
        directory.send_when_durable(outbox, Peer::Client(client), message);
    }
}
