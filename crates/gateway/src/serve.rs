//! A connection's turn: read what is there, execute what is complete.

use crate::connection::{Connection, ConnectionId};
use crate::execute::{self, Flow};
use crate::failure::{ErrorKind, Failure};
use crate::programs;
use crate::resp::{Parsed, ParserLimits};
use crate::socket::Received;
use crate::worker::Worker;
use std::io::ErrorKind as Io;
use std::sync::LazyLock;

/// Bytes of unfinished commands' arguments beyond which a connection's next command waits.
const HELD_BYTES_MAX: usize = 1 << 20;
/// Replies that wait for one before them beyond which a connection's next command waits.
const EARLY_MAX: usize = 4096;
/// Bytes that one connection may bring in one turn, however fast it sends.
const TURN_BYTES_MAX: usize = 256 << 10;

static LIMITS: LazyLock<[ParserLimits; 2]> =
    LazyLock::new(|| [ParserLimits::unauthenticated(), ParserLimits::default()]);

/// How executing what was read ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// All complete commands are executed.
    Drained,
    /// The next one has to wait.
    Stalled,
    /// A program took long: other connections have their turn before the next one.
    Long,
    /// The connection takes no more commands.
    Over,
}

impl Worker {
    /// Gives a connection its turn.
    pub(crate) fn serve(&mut self, id: ConnectionId) {
        let Some(connection) = self.running.outbox.replies.connections.get_mut(id) else { return };
        connection.in_resume = false;
        connection.stalled = false;
        self.running.programs.begin_turn();
        let mut brought = 0;
        loop {
            match self.execute_input(id) {
                Turn::Drained => {}
                // Sending its own queued requests may be all that it waits for.
                Turn::Stalled if self.running.settle(&mut self.link) => {}
                Turn::Stalled => return,
                Turn::Long => return self.running.outbox.replies.mark_resume(id),
                Turn::Over => return self.running.outbox.replies.mark_dirty(id),
            }
            if brought >= TURN_BYTES_MAX {
                return self.running.outbox.replies.mark_resume(id);
            }
            match self.read(id) {
                Some(bytes) => brought += bytes,
                None => return self.rest(id),
            }
        }
    }

    /// Whether the connection's next command may be looked at.
    fn may_execute(&self, connection: &Connection) -> bool {
        connection.parked == 0
            && !connection.barrier
            && connection.unfinished < self.shared.config.pipeline_max
            && connection.slots.len() < self.shared.config.pipeline_max + EARLY_MAX
            && connection.held_bytes <= HELD_BYTES_MAX
            && self.has_room(connection)
            && self.stop_at.is_none()
    }

    /// Whether the connection may get more replies.
    fn has_room(&self, connection: &Connection) -> bool {
        connection.owed() <= self.shared.config.output_bytes_soft || connection.sends_first()
    }

    fn execute_input(&mut self, id: ConnectionId) -> Turn {
        let Some(connection) = self.running.outbox.replies.connections.get_mut(id) else {
            return Turn::Over;
        };
        // They stand aside, so that arguments can be borrowed while the connection's replies are
        // written.
        let mut input = std::mem::take(&mut connection.input);
        let mut parser = std::mem::take(&mut connection.parser);
        let turn = loop {
            let Some(connection) = self.running.outbox.replies.connections.get(id) else {
                break Turn::Over;
            };
            if connection.closing {
                break Turn::Over;
            }
            if connection.replayed.is_some() {
                if !connection.is_idle() || !self.has_room(connection) {
                    break Turn::Stalled;
                }
                if self.running.programs.took_long() {
                    break Turn::Long;
                }
                match programs::replay(&mut self.running, &mut self.link, &self.shared, id) {
                    Flow::Done => continue,
                    Flow::Wait => break Turn::Stalled,
                }
            }
            if input.unread().is_empty() && !parser.is_due() {
                break Turn::Drained;
            }
            if !self.may_execute(connection) {
                break Turn::Stalled;
            }
            if self.running.programs.took_long() {
                break Turn::Long;
            }
            let limits = &LIMITS[usize::from(connection.authenticated)];
            match parser.next(input.unread(), limits) {
                Ok(Parsed::Command { consumed }) => {
                    let args = parser.args(input.unread());
                    if execute::execute(&mut self.running, &mut self.link, &self.shared, id, args)
                        == Flow::Wait
                    {
                        break Turn::Stalled;
                    }
                    parser.done();
                    input.consume(consumed);
                }
                Ok(Parsed::Skip { consumed }) => input.consume(consumed),
                Ok(Parsed::Rejected) => {
                    let text = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
                    execute::refuse(&mut self.running, id, ErrorKind::Length, text);
                    programs::spoil(&mut self.running, id);
                }
                Ok(Parsed::Incomplete { .. })
                    if input.unread().len() > self.shared.config.command_bytes_max =>
                {
                    let failure = Failure::CommandLength(self.shared.config.command_bytes_max);
                    self.break_off(id, failure.kind(), &failure.text());
                }
                Ok(Parsed::Incomplete { .. }) => break Turn::Drained,
                Err(error) => self.break_off(id, ErrorKind::Protocol, &format!("ERR {error}")),
            }
        };
        let replies = &mut self.running.outbox.replies;
        if let Some(connection) = replies.connections.get_mut(id) {
            input.rest(&mut replies.pool);
            connection.input = input;
            connection.parser = parser;
            connection.stalled = turn == Turn::Stalled;
        }
        turn
    }

    /// Everything that was sent is executed or refused.
    fn rest(&mut self, id: ConnectionId) {
        let Some(connection) = self.running.outbox.replies.connections.get_mut(id) else { return };
        if connection.ended {
            self.running.outbox.replies.mark_dirty(id);
        }
    }

    /// Reads once; `None` if there is nothing more to be had now.
    fn read(&mut self, id: ConnectionId) -> Option<usize> {
        let replies = &mut self.running.outbox.replies;
        let connection = replies.connections.get_mut(id)?;
        if !connection.readable {
            return None;
        }
        let room = connection.input.room(&mut replies.pool);
        loop {
            match connection.socket.read(room) {
                Ok(Received { bytes: 0, .. }) => {
                    connection.readable = false;
                    connection.ended = true;
                    connection.input.rest(&mut replies.pool);
                    replies.mark_dirty(id);
                    return None;
                }
                Ok(Received { bytes, was_all }) => {
                    connection.input.filled(bytes);
                    connection.active_us = self.running.now.monotonic_us;
                    // Unless the socket's end was announced, the next bytes bring an event.
                    if was_all && !connection.hung_up {
                        connection.readable = false;
                    }
                    replies.statistics().bytes_in.add(bytes as u64);
                    return Some(bytes);
                }
                Err(error) if error.kind() == Io::Interrupted => {}
                Err(error) if error.kind() == Io::WouldBlock => {
                    connection.readable = false;
                    connection.input.rest(&mut replies.pool);
                    return None;
                }
                Err(error) => {
                    self.break_apart(id, &error);
                    return None;
                }
            }
        }
    }
}
