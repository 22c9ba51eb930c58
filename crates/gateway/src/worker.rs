//! One thread: its connections, its session, its spool. Nothing here blocks but the poll, and the
//! disk where durability asks for it.

use crate::connection::{Connection, ConnectionId};
use crate::failure::{ErrorKind, Failure};
use crate::resp::write;
use crate::running::{Link, Running};
use crate::shared::{Accepted, ClientInfo, Errand, Shared};
use crate::socket::{Socket, keep_alive};
use crate::spool::Spool;
use mio::event::Event;
use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, ErrorKind as Io, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};
use switchback_net::until;

/// Tokens below are connections.
pub(crate) const LISTENER: usize = usize::MAX - 1024;
pub(crate) const UPLINK: Token = Token(usize::MAX - 1);
pub(crate) const WAKER: Token = Token(usize::MAX);

/// Packets taken between two looks at the sockets.
const PACKETS_MAX: usize = 4096;
/// How often the log tells of connections that were closed, for their memory or for speaking HTTP,
/// or not accepted, so that hostile clients can't fill the disk with lines.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
/// How long a client may take none of its replies before its further commands are executed all the
/// same.
const UNREAD_US: u64 = 500_000;
/// How often what waits is looked at again, and counters are copied.
const TICK: Duration = Duration::from_millis(50);
/// Bytes after which memory is looked at in any case.
const RELIEVE_BYTES: u64 = 16 << 20;

/// See the [module](self).
pub(crate) struct Worker {
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) poll: Poll,
    pub(crate) listeners: Vec<TcpListener>,
    pub(crate) link: Link,
    pub(crate) running: Running,
    pub(crate) spool: Option<Spool>,
    /// Connections may be waiting at the listeners.
    pub(crate) accepts: bool,
    /// The last attempt failed; the next one is at the next tick.
    pub(crate) accepts_again: bool,
    pub(crate) refused_logged: Option<Instant>,
    /// When the log was told of a connection whose TLS failed.
    pub(crate) broken_logged: Option<Instant>,
    pub(crate) next_tick: Instant,
    /// Bytes received when memory was last looked at.
    pub(crate) relieved_at: u64,
    /// Connections closed for their memory and not yet told of, the largest of them, and when that
    /// was told last.
    pub(crate) relieved: u64,
    pub(crate) relieved_bytes: usize,
    pub(crate) relieved_logged: Option<Instant>,
    pub(crate) stop_at: Option<Instant>,
}

impl Worker {
    /// Serves until the gateway stops.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        loop {
            if let Err(error) = self.poll.poll(&mut events, Some(self.timeout()))
                && error.kind() != Io::Interrupted
            {
                tracing::error!(%error, worker = self.index, "poll failed; the worker ends");
                break;
            }
            self.running.now = self.shared.now();
            for event in &events {
                self.note(event);
            }
            self.step();
            if self.stops() {
                break;
            }
        }
        self.end();
    }

    fn timeout(&self) -> Duration {
        if !self.running.outbox.replies.resume.is_empty() {
            return Duration::ZERO;
        }
        let until_tick = self.next_tick.saturating_duration_since(Instant::now());
        let due = until(self.shared.now(), self.link.session.poll_timeout());
        // Milliseconds are what poll counts in; rounded down it would spin.
        due.map_or(until_tick, |due| due.min(until_tick)).max(Duration::from_millis(1))
    }

    fn note(&mut self, event: &Event) {
        match event.token() {
            WAKER | UPLINK => {}
            Token(index) if index >= LISTENER => self.accepts = true,
            Token(index) => {
                let Some(id) = self.running.outbox.replies.connections.at(index) else { return };
                let Some(connection) = self.running.outbox.replies.connections.get_mut(id) else {
                    return;
                };
                let hung_up = event.is_read_closed() || event.is_error();
                connection.hung_up |= hung_up;
                let is_readable = event.is_readable() || hung_up;
                connection.readable |= is_readable;
                if is_readable {
                    self.running.outbox.replies.mark_resume(id);
                }
                if event.is_writable() {
                    self.running.outbox.replies.mark_dirty(id);
                }
            }
        }
    }

    /// Everything that can be done now.
    fn step(&mut self) {
        self.take_errands();
        self.take_messages();
        self.take_packets();
        if self.running.now.is_due(self.link.session.poll_timeout()) {
            self.link.session.handle_timeout(self.running.now);
            self.running.may_retry();
            self.running.pump(&mut self.link);
        }
        while let Some(completion) = self.link.session.poll_completion() {
            self.running.complete(completion);
        }
        self.running.drive(&mut self.link);
        if self.running.has_to_retry() {
            self.running.retry_parked(&mut self.link);
        }
        let mut resume = std::mem::take(&mut self.running.outbox.replies.resume);
        for id in resume.drain(..) {
            self.serve(id);
        }
        // What was marked meanwhile is in the new list; the old one's buffer is kept if that is
        // empty.
        if self.running.outbox.replies.resume.is_empty() {
            self.running.outbox.replies.resume = resume;
        }
        self.running.settle(&mut self.link);
        self.link.uplink.flush();
        self.send_messages();
        self.persist();
        if self.shared.monitors.are_any() {
            let replies = &mut self.running.outbox.replies;
            self.shared.monitors.note(self.index, |id| replies.mark_dirty(id));
        }
        self.write_replies();
        if Instant::now() >= self.next_tick {
            self.tick();
        }
        let bytes_in = self.running.outbox.replies.statistics().bytes_in.get();
        if bytes_in.wrapping_sub(self.relieved_at) > RELIEVE_BYTES {
            self.relieve_memory();
        }
    }

    fn take_messages(&mut self) {
        while let Some(notice) = self.link.control.receive() {
            // Not the time before it was taken: the process may have been paused between.
            self.running.now = self.shared.now();
            self.link.session.handle_message(self.running.now, notice);
            self.running.may_retry();
        }
        self.running.pump(&mut self.link);
    }

    fn send_messages(&mut self) {
        while let Some(report) = self.link.session.poll_message() {
            self.link.control.send(report);
        }
    }

    fn take_packets(&mut self) {
        let Link { session, uplink, packet, .. } = &mut self.link;
        for _ in 0..PACKETS_MAX {
            if !uplink.receive(packet) {
                break;
            }
            if let Some(completion) = session.handle_packet(self.running.now, packet) {
                self.running.complete(completion);
            }
        }
        self.running.pump(&mut self.link);
        self.running.drive(&mut self.link);
    }

    /// Writes to disk what the replies promise; a reply whose records can't be written becomes an
    /// error.
    fn persist(&mut self) {
        let preserved = self.link.session.preserved_mut();
        let Some(spool) = &mut self.spool else {
            if preserved.has_touched() {
                preserved.drain_touched(|_| ());
            }
            return;
        };
        if preserved.has_touched() {
            preserved.drain_touched(|kept| spool.push(kept));
        }
        let outbox = &mut self.running.outbox;
        if !spool.has_unwritten() && spool.failure().is_none() {
            return outbox.replies.spooled();
        }
        match spool.commit(self.link.session.preserved(), outbox.replies.statistics()) {
            Ok(()) => {
                outbox.spool_failure = None;
                outbox.replies.spooled();
            }
            Err(why) => self.withhold(why),
        }
    }

    /// The spool can't be written.
    fn withhold(&mut self, why: String) {
        let Some(spool) = &self.spool else { return };
        let is_new = self.running.outbox.spool_failure.is_none();
        let text = format!("MISCONF {why}; if this was a write, it may or may not last");
        if self.running.outbox.replies.has_unspooled() {
            self.running.outbox.replies.not_spooled(&text, |key| spool.is_missing(key));
        }
        if is_new {
            self.running.fail_unspooled_batches(&Failure::Text(text));
        }
        self.running.outbox.spool_failure = Some(why);
    }

    fn write_replies(&mut self) {
        let mut dirty = std::mem::take(&mut self.running.outbox.replies.dirty);
        if dirty.is_empty() {
            return;
        }
        for id in dirty.drain(..) {
            self.write_reply(id);
        }
        self.running.outbox.replies.dirty = dirty;
        self.running.outbox.replies.count_finished(self.shared.now().monotonic_us);
    }

    fn write_reply(&mut self, id: ConnectionId) {
        let replies = &mut self.running.outbox.replies;
        let Some(connection) = replies.connections.get_mut(id) else { return };
        connection.in_dirty = false;
        let before = connection.sent;
        let mut result = send(connection);
        if connection.is_monitor && result.is_ok() && connection.is_sent() {
            self.shared.monitors.take(connection.number, &mut connection.out);
            result = send(connection);
        }
        let sent = connection.sent - before;
        connection.took(sent, self.running.now.monotonic_us);
        if connection.unsent() == 0 && connection.out.capacity() > 0 {
            connection.sent = 0;
            replies.pool.reuse_output(std::mem::take(&mut connection.out));
        } else if connection.sent > connection.out.len() / 2 {
            connection.out.drain(..connection.sent);
            connection.sent = 0;
        }
        let is_over =
            connection.unsent() + connection.early.bytes > self.shared.config.output_bytes_hard;
        let is_stalled =
            connection.stalled && connection.unsent() < self.shared.config.output_bytes_soft;
        // What is to be gone on with may have commands that were read and not yet executed.
        let goes_on = connection.stalled || connection.in_resume || connection.readable;
        let at_end = connection.closing || (connection.ended && !goes_on);
        let is_done = at_end && connection.is_idle() && connection.is_sent();
        replies.statistics().bytes_out.add(sent as u64);
        if is_over {
            replies.statistics().count_error(ErrorKind::Memory);
        }
        if result.is_err() || is_over || is_done {
            self.close(id);
        } else if is_stalled {
            replies.mark_resume(id);
        }
    }

    /// Takes connections from the listeners, and does what other workers want.
    fn take_errands(&mut self) {
        if self.accepts {
            self.accepts = false;
            self.accept();
        }
        let inbox = &self.shared.inboxes[self.index];
        let errands = match inbox.errands.try_lock() {
            Ok(mut errands) if !errands.is_empty() => std::mem::take(&mut *errands),
            _ => return,
        };
        for errand in errands {
            match errand {
                Errand::Adopt(accepted) => self.adopt(accepted),
                Errand::Close(number) => self.close_number(number),
            }
        }
    }

    fn accept(&mut self) {
        for (listener, at) in self.listeners.iter().zip(&self.shared.listening) {
            loop {
                let (mut stream, peer) = match listener.accept() {
                    Ok(accepted) => accepted,
                    Err(error) if error.kind() == Io::WouldBlock => break,
                    Err(error) if error.kind() == Io::Interrupted => continue,
                    Err(error) => {
                        // Out of file descriptors, perhaps: looked at again at the next tick.
                        if is_due(&mut self.refused_logged) {
                            tracing::warn!(%error, "can't accept connections");
                        }
                        self.accepts_again = true;
                        break;
                    }
                };
                if self.shared.connections() >= self.shared.settings.clients() {
                    self.running.outbox.replies.statistics().count_error(ErrorKind::MaxClients);
                    if !at.is_tls {
                        // If the socket takes nothing now, the client only sees its end.
                        let _ = stream.write(b"-ERR max number of clients reached\r\n");
                    }
                    continue;
                }
                let worker = self.shared.least_busy();
                self.shared.inboxes[worker].connections.fetch_add(1, Relaxed);
                let accepted = Accepted { stream, peer, is_tls: at.is_tls };
                self.shared.send(worker, Errand::Adopt(accepted));
            }
        }
    }

    fn adopt(&mut self, Accepted { mut stream, peer, is_tls }: Accepted) {
        // Without the first a reply may wait 40 ms for an acknowledgement; without the second a
        // peer that has vanished keeps its place. A socket that refuses still works.
        let _ = stream.set_nodelay(true);
        let _ = keep_alive(&stream, self.shared.settings.keep_alive_s());
        let local = stream.local_addr().unwrap_or(peer);
        let number = self.shared.next_number();
        let replies = &mut self.running.outbox.replies;
        let registry = self.poll.registry();
        let index = replies.connections.next_index();
        let interest = Interest::READABLE | Interest::WRITABLE;
        let watched = registry.register(&mut stream, Token(index), interest);
        let tls = watched.and_then(|()| match &self.shared.tls {
            Some(tls) if is_tls => tls.accept().map(Some).map_err(io::Error::other),
            _ => Ok(None),
        });
        let socket = match tls {
            Ok(tls) => Socket::new(stream, tls),
            Err(error) => {
                if is_due(&mut self.refused_logged) {
                    tracing::warn!(%error, "can't begin with a connection");
                }
                self.shared.inboxes[self.index].connections.fetch_sub(1, Relaxed);
                return;
            }
        };
        let is_open = self.shared.config.password.is_none();
        let now_us = self.running.now.monotonic_us;
        let id = replies.connections.insert(Connection::new(socket, number, peer, is_open, now_us));
        assert_eq!(id.index as usize, index);
        replies.statistics().connections_accepted.add(1);
        replies.statistics().connections_open.set(replies.connections.len() as u64);
        let info = ClientInfo {
            peer,
            local,
            since: Instant::now(),
            name: String::new(),
            library: Default::default(),
            resp3: false,
            worker: self.index,
        };
        self.shared.clients().insert(number, info);
        replies.mark_resume(id);
    }

    /// Closes the connection of this number, if it is still there.
    fn close_number(&mut self, number: u64) {
        let connections = &self.running.outbox.replies.connections;
        let found = connections.iter().find(|(_, connection)| connection.number == number);
        let id = found.map(|(id, _)| id);
        if let Some(id) = id {
            self.close(id);
        }
    }

    pub(crate) fn close(&mut self, id: ConnectionId) {
        let replies = &mut self.running.outbox.replies;
        let Some(connection) = replies.remove(id) else { return };
        // Before its client sees the end, so that it can't ask for what isn't there any more.
        self.shared.clients().remove(&connection.number);
        if connection.is_monitor {
            self.shared.monitors.leave(connection.number, &mut Vec::new());
        }
        connection.socket.close(self.poll.registry());
        self.shared.inboxes[self.index].connections.fetch_sub(1, Relaxed);
        replies.statistics().connections_open.set(replies.connections.len() as u64);
        tracing::debug!(peer = %connection.peer, "connection closed");
    }

    /// What needs doing now and then.
    fn tick(&mut self) {
        self.next_tick = Instant::now() + TICK;
        self.accepts |= std::mem::take(&mut self.accepts_again);
        let session = &self.link.session;
        let statistics = self.running.outbox.replies.statistics();
        let counted = session.statistics();
        statistics.session_open.set(session.is_open(self.running.now).into());
        statistics.session_submitted.set(counted.submitted);
        statistics.session_answered_by_cache.set(counted.answered_by_cache);
        statistics.session_retries.set(counted.retries);
        statistics.session_epoch_changes.set(counted.epoch_changes);
        statistics.preserved_records.set(session.preserved().len() as u64);
        statistics.preserved_bytes.set(session.preserved().bytes() as u64);
        if let Some(spool) = &mut self.spool {
            spool.release(session.durable_generation(), session.preserved().is_empty());
            spool.check_syncs();
            statistics.spool_size.set(spool.bytes());
        }
        self.running.may_retry();
        self.let_senders_go_on();
        self.let_paused_go_on();
        self.close_idle();
        self.running.outbox.replies.rest();
        self.relieve_memory();
    }

    /// Closes what has said and taken nothing for as long as CONFIG SET `timeout` says. As in
    /// Redis, monitors and what waits for something stay.
    fn close_idle(&mut self) {
        let idle_us = self.shared.settings.idle_s() * 1_000_000;
        if idle_us == 0 {
            return;
        }
        let now_us = self.running.now.monotonic_us;
        let is_over = |connection: &Connection| {
            let waits = connection.is_monitor || connection.stalled || !connection.is_idle();
            !waits && now_us >= connection.active_us + idle_us
        };
        let connections = self.running.outbox.replies.connections.iter();
        let idle = connections.filter(|(_, connection)| is_over(connection));
        for id in idle.map(|(id, _)| id).collect::<Vec<_>>() {
            self.close(id);
        }
    }

    /// A client that takes no replies for `UNREAD_US`, and sends more, may send all its commands
    /// before it takes any: it would wait for ever.
    fn let_senders_go_on(&mut self) {
        let now_us = self.running.now.monotonic_us;
        let replies = &mut self.running.outbox.replies;
        let waits = |connection: &Connection| {
            let is_late =
                connection.unread_since_us.is_some_and(|since| now_us >= since + UNREAD_US);
            connection.stalled && !connection.takes_nothing && is_late
        };
        let connections = replies.connections.iter().filter(|(_, connection)| waits(connection));
        for id in connections.map(|(id, _)| id).collect::<Vec<_>>() {
            if let Some(connection) = replies.connections.get_mut(id) {
                connection.takes_nothing = true;
            }
            replies.mark_resume(id);
        }
    }

    /// What waits for CLIENT PAUSE looks again whether that is over.
    fn let_paused_go_on(&mut self) {
        if !std::mem::take(&mut self.running.is_paused) {
            return;
        }
        let replies = &mut self.running.outbox.replies;
        let connections = replies.connections.iter();
        let stalled = connections.filter(|(_, connection)| connection.stalled);
        for id in stalled.map(|(id, _)| id).collect::<Vec<_>>() {
            replies.mark_resume(id);
        }
    }

    /// Closes the connection whose buffers are largest, if all together are too large.
    fn relieve_memory(&mut self) {
        self.relieved_at = self.running.outbox.replies.statistics().bytes_in.get();
        loop {
            let connections = &self.running.outbox.replies.connections;
            let (mut sum, mut largest) = (0, None);
            for (id, connection) in connections.iter() {
                let bytes = connection.memory();
                sum += bytes;
                if largest.is_none_or(|(_, most)| bytes > most) {
                    largest = Some((id, bytes));
                }
            }
            let Some((id, bytes)) = largest.filter(|_| sum > self.shared.config.client_bytes_max)
            else {
                break;
            };
            self.running.outbox.replies.statistics().count_error(ErrorKind::Memory);
            self.relieved += 1;
            self.relieved_bytes = self.relieved_bytes.max(bytes);
            self.close(id);
        }
        if self.relieved > 0 && is_due(&mut self.relieved_logged) {
            let (connections, largest_bytes) = (self.relieved, self.relieved_bytes);
            tracing::warn!(
                connections,
                largest_bytes,
                "clients' buffers took too much memory: the largest were closed"
            );
            (self.relieved, self.relieved_bytes) = (0, 0);
        }
    }

    /// Whether it is time to end: asked to, and everything answered or given up.
    fn stops(&mut self) -> bool {
        if !self.shared.stop.load(Acquire) {
            return false;
        }
        self.listeners.clear();
        let stop_at =
            *self.stop_at.get_or_insert(Instant::now() + self.shared.config.stop_wait_max);
        let connections = &self.running.outbox.replies.connections;
        let has_unsent = connections
            .iter()
            .any(|(_, connection)| !connection.is_sent() || connection.replayed.is_some());
        (self.running.is_idle() && !has_unsent) || Instant::now() >= stop_at
    }

    fn end(mut self) {
        self.persist();
        self.write_replies();
        if let Some(spool) = &mut self.spool
            && let Err(error) = spool.sync()
        {
            tracing::error!(%error, "can't sync the spool at the end");
        }
        // A session that preserves records stays open: a recovery asks the next run for them.
        if self.link.session.preserved().is_empty() {
            self.link.session.close();
        }
        self.send_messages();
        let open: Vec<_> =
            self.running.outbox.replies.connections.iter().map(|(id, _)| id).collect();
        for id in open {
            self.close(id);
        }
    }

    /// A connection whose socket failed: the end of it.
    pub(crate) fn break_apart(&mut self, id: ConnectionId, error: &io::Error) {
        let replies = &self.running.outbox.replies;
        if error.kind() == Io::InvalidData
            && let Some(connection) = replies.connections.get(id)
        {
            replies.statistics().count_error(ErrorKind::Tls);
            if is_due(&mut self.broken_logged) {
                let peer = connection.peer;
                tracing::warn!(%peer, %error, "a client's TLS failed; it may speak plain text");
            }
        }
        self.close(id);
    }

    /// An error that ends the connection once it is written.
    pub(crate) fn break_off(&mut self, id: ConnectionId, kind: ErrorKind, text: &str) {
        self.running.outbox.replies.statistics().count_error(kind);
        crate::execute::answer_here(&mut self.running, id, None, |out, _| write::error(out, text));
        if let Some(connection) = self.running.outbox.replies.connections.get_mut(id) {
            connection.closing = true;
        }
    }
}

/// Whether the log may be told again of what it was last told of then; it counts as told.
pub(crate) fn is_due(logged: &mut Option<Instant>) -> bool {
    let is_due = logged.is_none_or(|at| at.elapsed() >= LOGGED_EVERY);
    if is_due {
        *logged = Some(Instant::now());
    }
    is_due
}

/// Writes what the socket takes.
fn send(connection: &mut Connection) -> io::Result<()> {
    connection.socket.flush()?;
    while connection.unsent() > 0 {
        match connection.socket.write(&connection.out[connection.sent..]) {
            Ok(0) => return Err(Io::WriteZero.into()),
            Ok(sent) => connection.sent += sent,
            Err(error) if error.kind() == Io::Interrupted => {}
            Err(error) if error.kind() == Io::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
