//! The connections of a worker and the replies that go to them: in order, and not before they are
//! spooled.

use crate::arena::Arena;
use crate::command::Verb;
use crate::connection::{Connection, ConnectionId, Early, EarlySizes, Pool, UNKNOWN, Unspooled};
use crate::failure::ErrorKind;
use crate::operation::Answer;
use crate::resp::write;
use crate::statistics::{Answerer, GatewayStatistics, WorkerStatistics};
use std::sync::Arc;

#[derive(Debug, Default)]
struct Entry {
    serial: u32,
    connection: Option<Box<Connection>>,
}

/// The connections, by index.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

impl Connections {
    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.connection = Some(Box::new(connection));
        ConnectionId { index, serial: entry.serial }
    }

    /// The index that the next connection will have.
    pub(crate) fn next_index(&self) -> usize {
        self.free.last().map_or(self.entries.len(), |&index| index as usize)
    }

    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let entry =
            self.entries.get_mut(id.index as usize).filter(|entry| entry.serial == id.serial)?;
        let connection = entry.connection.take()?;
        entry.serial = entry.serial.wrapping_add(1);
        self.free.push(id.index);
        Some(connection)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let entry =
            self.entries.get_mut(id.index as usize).filter(|entry| entry.serial == id.serial)?;
        entry.connection.as_deref_mut()
    }

    #[inline]
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let entry =
            self.entries.get(id.index as usize).filter(|entry| entry.serial == id.serial)?;
        entry.connection.as_deref()
    }

    /// The connection that has this index now.
    pub(crate) fn at(&self, index: usize) -> Option<ConnectionId> {
        let entry = self.entries.get(index)?;
        entry
            .connection
            .as_ref()
            .map(|_| ConnectionId { index: index as u32, serial: entry.serial })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ConnectionId, &Connection)> {
        self.entries.iter().enumerate().filter_map(|(index, entry)| {
            let id = ConnectionId { index: index as u32, serial: entry.serial };
            entry.connection.as_deref().map(|connection| (id, connection))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}

/// A stretch of a connection's output that tells something that isn't in the spool yet.
#[derive(Clone, Copy, Debug)]
struct Journaled {
    connection: ConnectionId,
    from: usize,
    to: usize,
    of: Unspooled,
}

/// Commands answered in one iteration of the loop that are counted alike.
#[derive(Debug)]
struct Finished {
    verb: Verb,
    answerer: Answerer,
    arrived_us: u64,
    count: u64,
}

/// A reply's way back: whose command it answers, and when that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) connection: ConnectionId,
    pub(crate) number: u64,
    pub(crate) verb: Option<Verb>,
    pub(crate) arrived_us: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Replies {
    pub(crate) connections: Connections,
    pub(crate) pool: Pool,
    /// Have something to be written to their sockets.
    pub(crate) dirty: Vec<ConnectionId>,
    /// Can be gone on with.
    pub(crate) resume: Vec<ConnectionId>,
    /// Replies before their turn.
    early: Arena<Early>,
    journal: Vec<Journaled>,
    unspooled_slots: Vec<(ConnectionId, u64)>,
    /// What [`Unspooled::Key`] numbers.
    unspooled_keys: Vec<Box<[u8]>>,
    finished: Vec<Finished>,
    all: Arc<GatewayStatistics>,
    worker: usize,
}

/// Puts a connection into a list, unless it is there.
#[inline]
fn enlist(list: &mut Vec<ConnectionId>, is_listed: &mut bool, id: ConnectionId) {
    if !*is_listed {
        *is_listed = true;
        list.push(id);
    }
}

impl Replies {
    pub(crate) fn new(all: Arc<GatewayStatistics>, worker: usize) -> Replies {
        Replies {
            connections: Connections::default(),
            pool: Pool::default(),
            dirty: Vec::new(),
            resume: Vec::new(),
            early: Arena::default(),
            journal: Vec::new(),
            unspooled_slots: Vec::new(),
            unspooled_keys: Vec::new(),
            finished: Vec::new(),
            all,
            worker,
        }
    }

    #[inline]
    pub(crate) fn statistics(&self) -> &WorkerStatistics {
        &self.all.workers()[self.worker]
    }

    /// The index of the worker whose connections these are.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }

    /// Has the connection's output written, or its end noticed, at the end of this iteration.
    #[inline]
    pub(crate) fn mark_dirty(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            enlist(&mut self.dirty, &mut connection.in_dirty, id);
        }
    }

    /// Has the connection gone on with.
    #[inline]
    pub(crate) fn mark_resume(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            enlist(&mut self.resume, &mut connection.in_resume, id);
        }
    }

    /// Writes one reply, to the output if it is its turn, else to its slot.
    #[inline]
    pub(crate) fn reply(
        &mut self,
        to: Address,
        answerer: Answerer,
        unspooled: Option<Unspooled>,
        write: impl FnOnce(&mut Vec<u8>, bool),
    ) {
        if let Some(verb) = to.verb {
            self.count(verb, answerer, to.arrived_us);
        }
        let id = to.connection;
        let Some(connection) = self.connections.get_mut(id) else { return };
        enlist(&mut self.dirty, &mut connection.in_dirty, id);
        let is_wanted = to.number >= connection.silent_until;
        if connection.first != to.number {
            let at = (to.number - connection.first) as usize;
            let Some(slot) = connection.slots.get_mut(at) else { return };
            *slot = self.early.take();
            let early = &mut self.early[*slot];
            if is_wanted {
                early.buffer = self.pool.output();
                write(&mut early.buffer, connection.resp3);
            }
            connection.early.add(EarlySizes::of(&early.buffer));
            connection.replied(early.buffer.len());
            early.unspooled = unspooled;
            if unspooled.is_some() {
                self.unspooled_slots.push((id, to.number));
            }
            return;
        }
        if connection.out.capacity() == 0 {
            connection.out = self.pool.output();
        }
        let from = connection.out.len();
        if is_wanted {
            write(&mut connection.out, connection.resp3);
        }
        connection.replied(connection.out.len() - from);
        connection.first += 1;
        let journal = &mut self.journal;
        if let Some(of) = unspooled {
            journal.push(Journaled { connection: id, from, to: connection.out.len(), of });
        }
        if connection.slots.pop_front().is_some() {
            let put = |of, from, to| journal.push(Journaled { connection: id, from, to, of });
            connection.advance(&mut self.early, &mut self.pool, put);
        }
    }

    #[inline]
    fn count(&mut self, verb: Verb, answerer: Answerer, arrived_us: u64) {
        match self.finished.last_mut() {
            Some(last)
                if (last.verb, last.answerer, last.arrived_us) == (verb, answerer, arrived_us) =>
            {
                last.count += 1
            }
            _ => self.finished.push(Finished { verb, answerer, arrived_us, count: 1 }),
        }
    }

    /// As [`Replies::reply`], of an answer of the rack.
    #[inline]
    pub(crate) fn answer(
        &mut self,
        to: Address,
        answer: &Answer<'_>,
        by: Answerer,
        unspooled: Option<Unspooled>,
    ) {
        if let Answer::Failed(failure) = answer {
            self.statistics().count_error(failure.kind());
        }
        self.reply(to, by, unspooled, |out, resp3| answer.write(out, resp3));
    }

    /// Keeps a place for a reply that isn't known yet.
    #[inline]
    pub(crate) fn reserve(&mut self, id: ConnectionId) {
        if let Some(connection) = self.connections.get_mut(id) {
            connection.slots.push_back(UNKNOWN);
        }
    }

    /// Takes a connection out, and what waits for its turn there.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Box<Connection>> {
        let mut connection = self.connections.remove(id)?;
        for at in connection.slots.drain(..).filter(|&at| at != UNKNOWN) {
            self.pool.reuse_output(std::mem::take(&mut self.early[at].buffer));
            self.early[at].unspooled = None;
            self.early.give_back(at);
        }
        Some(connection)
    }

    /// A reply waits for what the spool is to hold of this key.
    pub(crate) fn unspooled_key(&mut self, key: &[u8]) -> Unspooled {
        self.unspooled_keys.push(key.into());
        Unspooled::Key((self.unspooled_keys.len() - 1) as u32)
    }

    /// Everything that the replies of this iteration tell is in the spool, or needs not be.
    pub(crate) fn spooled(&mut self) {
        self.journal.clear();
        while let Some((id, number)) = self.unspooled_slots.pop() {
            if let Some(early) = self.early(id, number) {
                early.unspooled = None;
            }
        }
        self.unspooled_keys.clear();
    }

    fn early(&mut self, id: ConnectionId, number: u64) -> Option<&mut Early> {
        let connection = self.connections.get(id)?;
        let at = number.checked_sub(connection.first)?;
        connection
            .slots
            .get(at as usize)
            .filter(|&&at| at != UNKNOWN)
            .map(|&at| &mut self.early[at])
    }

    /// The spool couldn't be written: replies that tell what isn't in it become errors.
    pub(crate) fn not_spooled(&mut self, error: &str, is_missing: impl Fn(&[u8]) -> bool) {
        let keys = std::mem::take(&mut self.unspooled_keys);
        let is_unspooled = |of| match of {
            Unspooled::Any => true,
            Unspooled::Key(at) => is_missing(&keys[at as usize]),
        };
        let mut reply = Vec::new();
        write::error(&mut reply, error);
        let mut count = 0;
        while let Some((id, number)) = self.unspooled_slots.pop() {
            let Some(early) = self.early(id, number) else { continue };
            if early.unspooled.take().is_some_and(is_unspooled) {
                let before = EarlySizes::of(&early.buffer);
                early.buffer = reply.clone();
                let after = EarlySizes::of(&early.buffer);
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.early.remove(before);
                    connection.early.add(after);
                }
                count += 1;
            }
        }
        let mut journal = std::mem::take(&mut self.journal);
        // From the back, so that what is before a replaced reply stays where it was noted.
        journal.sort_by_key(|entry| (entry.connection.index, entry.from));
        for entry in journal.drain(..).rev().filter(|entry| is_unspooled(entry.of)) {
            if let Some(connection) = self.connections.get_mut(entry.connection) {
                connection.out.splice(entry.from..entry.to, reply.iter().copied());
                count += 1;
            }
        }
        self.journal = journal;
        for _ in 0..count {
            self.statistics().count_error(ErrorKind::Spool);
        }
    }

    /// Gives up the room of early replies if there are none.
    pub(crate) fn rest(&mut self) {
        self.early.rest();
    }

    /// Whether a reply waits for the spool.
    pub(crate) fn has_unspooled(&self) -> bool {
        !self.journal.is_empty() || !self.unspooled_slots.is_empty()
    }

    /// Counts what was answered in this iteration; its replies are being written now.
    pub(crate) fn count_finished(&mut self, now_us: u64) {
        let statistics = &self.all.workers()[self.worker];
        for Finished { verb, answerer, arrived_us, count } in self.finished.drain(..) {
            statistics.latency(verb, answerer).record(now_us.saturating_sub(arrived_us), count);
        }
    }
}
