//! Commands of many keys: their parts are started as there is room, their scans one after the
//! other.

use super::{Link, Running, SCAN_TOKEN, Work};
use crate::batch::{Batch, Kind, Next, Part};
use crate::command::Verb;
use crate::connection::{ConnectionId, Unspooled};
use crate::failure::Failure;
use crate::operation::Parent;
use crate::replies::Address;
use crate::slowlog::shown;
use crate::statistics::Answerer;
use switchback_core::client::Outcome;

impl Running {
    /// Starts a command on many keys; `fill` puts them in.
    pub(crate) fn start_batch(
        &mut self,
        link: &mut Link,
        id: ConnectionId,
        verb: Verb,
        kind: Kind,
        fill: impl FnOnce(&mut Batch),
    ) {
        let Some(connection) = self.outbox.replies.connections.get_mut(id) else { return };
        let number = connection.next_reply();
        let was_empty = connection.slots.is_empty();
        connection.unfinished += 1;
        connection.barrier = true;
        let at = self.outbox.batches.take();
        let batch = &mut self.outbox.batches[at];
        batch.begin(kind, id, number, verb);
        batch.arrived_us = self.now.monotonic_us;
        fill(batch);
        connection.held_bytes += batch.held_bytes();
        if !was_empty {
            self.outbox.replies.reserve(id);
        }
        self.work_batch(at);
        self.drive(link);
        if was_empty
            && self
                .outbox
                .replies
                .connections
                .get(id)
                .is_some_and(|connection| connection.first == number)
        {
            self.outbox.replies.reserve(id);
        }
    }

    pub(super) fn run_batch(&mut self, link: &mut Link, at: u32) {
        while self.outbox.batches[at].in_use {
            let batch = &mut self.outbox.batches[at];
            let connection = self.outbox.replies.connections.get(batch.connection);
            // What was refused is tried again first; when it is done, the batch goes on.
            if batch.is_running() && connection.is_some_and(|connection| connection.parked > 0) {
                break;
            }
            match batch.next(connection.is_some()) {
                Next::Part(part) => self.start_part(link, at, part),
                Next::Scan => self.scan(link, at),
                Next::Run => batch.run_script(&mut self.programs, self.now.unix_ms),
                Next::Nothing => break,
                Next::Finished => self.finish_batch(at),
            }
        }
        let batch = &mut self.outbox.batches[at];
        let id = batch.connection;
        if batch.in_use {
            let (before, after) = batch.charge();
            if let Some(connection) = self.outbox.replies.connections.get_mut(id) {
                connection.result_bytes = connection.result_bytes - before + after;
            }
        }
        let batch = &self.outbox.batches[at];
        if batch.in_use
            && batch.is_all_started()
            && let Some(connection) = self.outbox.replies.connections.get_mut(id)
        {
            connection.barrier = false;
            if connection.stalled {
                self.outbox.replies.mark_resume(id);
            }
        }
    }

    fn start_part(&mut self, link: &mut Link, at: u32, part: u32) {
        let batch = &self.outbox.batches[at];
        let Part { action, key, argument, expected } = batch.part(part);
        let index = self.operations.take();
        let operation = &mut self.operations[index];
        operation.begin(
            batch.connection,
            Parent::Batch(at, part),
            batch.verb.unwrap_or(Verb::Get),
            action,
        );
        operation.arrived_us = batch.arrived_us;
        operation.fill(key, argument);
        operation.expect(expected);
        self.begin(link, index);
    }

    fn scan(&mut self, link: &mut Link, at: u32) {
        let batch = &mut self.outbox.batches[at];
        batch.scan_started();
        match link.session.submit(self.now, batch.scan_request(), SCAN_TOKEN | u64::from(at)) {
            Ok(()) => self.pump(link),
            Err(_) => {
                batch.parked_us = self.now.monotonic_us;
                if let Some(connection) = self.outbox.replies.connections.get_mut(batch.connection)
                {
                    connection.parked += 1;
                }
                self.parked.push_back(Work::Batch(at));
            }
        }
    }

    pub(super) fn complete_scan(&mut self, at: u32, outcome: Outcome<'_>) {
        let deadline_ms = self.config.session.deadline_us / 1000;
        let batch = &mut self.outbox.batches[at];
        batch.cached = false;
        match outcome {
            Outcome::Scanned { entries, next, live } => batch.scanned(entries, next, live),
            _ => batch.scan_failed(Failure::TimedOut(deadline_ms)),
        }
        self.work_batch(at);
    }

    fn finish_batch(&mut self, at: u32) {
        let batch = std::mem::take(&mut self.outbox.batches[at]);
        if let Some(failure) = &batch.failure {
            self.outbox.replies.statistics().count_error(failure.kind());
        }
        let (connection, number, verb, arrived_us) =
            (batch.connection, batch.number, batch.verb, batch.arrived_us);
        let by = if batch.cached && batch.any_cached { Answerer::Cache } else { Answerer::Node };
        let unspooled = (self.outbox.spools && batch.any_cached).then_some(Unspooled::Any);
        let to = Address { connection, number, verb, arrived_us };
        self.outbox.replies.reply(to, by, unspooled, |out, resp3| batch.write(out, resp3));
        let took_us = self.now.monotonic_us.saturating_sub(arrived_us);
        if self.is_slow(took_us) {
            self.was_slow(connection, took_us, verb, batch.first_key().map(shown));
        }
        let (held, charged) = (batch.held_bytes(), batch.charged_bytes());
        self.outbox.batches[at] = batch;
        self.outbox.batches[at].end();
        self.outbox.batches.give_back(at);
        if let Some(connection) = self.outbox.replies.connections.get_mut(connection) {
            connection.barrier = false;
            connection.result_bytes -= charged;
        }
        self.release(connection, held);
    }

    /// The spool can't be written: batches that were answered by the cache in part can't succeed
    /// any more.
    pub(crate) fn fail_unspooled_batches(&mut self, failure: &Failure) {
        for at in 0..self.outbox.batches.len() {
            let batch = &mut self.outbox.batches[at];
            if batch.in_use && batch.any_cached {
                batch.fail(failure.clone());
            }
        }
    }
}
