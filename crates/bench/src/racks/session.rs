//! A blocking session, which fills the cache before a run.

use anyhow::ensure;
use mio::{Events, Poll, Token, Waker};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_core::client::{ClientConfig, Completion, Operation, Session, SubmitError};
use switchback_net::{Clock, ControlLink, Sent, Uplink, until};
use switchback_wire::Packet;

const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// A client session with its links, driven by the caller's thread.
pub(super) struct BlockingSession {
    session: Session,
    uplink: Box<dyn Uplink>,
    control: Box<dyn ControlLink>,
    clock: Clock,
    poll: Poll,
    events: Events,
    packet: Packet,
}

impl BlockingSession {
    /// Opens a session; waits until it has a lease.
    pub(super) fn open(
        config: ClientConfig,
        mut uplink: Box<dyn Uplink>,
        mut control: Box<dyn ControlLink>,
        clock: Clock,
    ) -> anyhow::Result<BlockingSession> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(0))?);
        uplink.register(poll.registry(), Token(1), &waker)?;
        control.register(&waker);
        let boot = switchback_rack::assembly::draw_boot();
        let session = Session::new(config, boot, boot, clock.now());
        let events = Events::with_capacity(8);
        let mut opened = BlockingSession {
            session,
            uplink,
            control,
            clock,
            poll,
            events,
            packet: Packet::new(),
        };
        let start = Instant::now();
        while !opened.session.is_open(opened.clock.now()) {
            ensure!(start.elapsed() < OPEN_LIMIT, "the controller grants no session");
            opened.step(&mut |_| {});
        }
        Ok(opened)
    }

    /// Waits for packets, messages or a timeout, and handles them.
    fn step(&mut self, done: &mut dyn FnMut(Completion<'_>)) {
        let timeout = until(self.clock.now(), self.session.poll_timeout())
            .unwrap_or(Duration::from_millis(20));
        let timeout = timeout.min(Duration::from_millis(20));
        if let Err(error) = self.poll.poll(&mut self.events, Some(timeout)) {
            tracing::debug!(%error, "waiting was interrupted");
        }
        let now = self.clock.now();
        while let Some(notice) = self.control.receive() {
            self.session.handle_message(now, notice);
        }
        if now.is_due(self.session.poll_timeout()) {
            self.session.handle_timeout(now);
        }
        while self.uplink.receive(&mut self.packet) {
            if let Some(completion) = self.session.handle_packet(now, &self.packet) {
                done(completion);
            }
        }
        self.transmit(done);
        while let Some(completion) = self.session.poll_completion() {
            done(completion);
        }
        while let Some(report) = self.session.poll_message() {
            self.control.send(report);
        }
    }

    fn transmit(&mut self, done: &mut dyn FnMut(Completion<'_>)) {
        while let Some(to) = self.session.poll_packet(&mut self.packet) {
            if self.uplink.send(to, &mut self.packet) == Sent::Answered
                && let Some(completion) = self.session.handle_packet(self.clock.now(), &self.packet)
            {
                done(completion);
            }
        }
        self.uplink.flush();
    }

    /// Reads all keys, many at a time. Returns the number that the cache answered.
    pub(super) fn read_all(&mut self, keys: &[Vec<u8>]) -> anyhow::Result<usize> {
        let (mut answered, mut cached) = (0, 0);
        let mut keys_left = keys.iter();
        let mut next = keys_left.next();
        while answered < keys.len() {
            let mut take = |completion: Completion<'_>| {
                answered += 1;
                cached += usize::from(completion.cached);
            };
            while let Some(key) = next {
                match self.session.submit(self.clock.now(), Operation::Read { key }, 0) {
                    Ok(()) => next = keys_left.next(),
                    Err(SubmitError::TooLarge) => anyhow::bail!("a key of {} bytes", key.len()),
                    Err(_) => break,
                }
                self.transmit(&mut take);
            }
            self.step(&mut take);
        }
        Ok(cached)
    }

    /// Ends the session.
    pub(super) fn close(mut self) {
        self.session.close();
        while let Some(report) = self.session.poll_message() {
            self.control.send(report);
        }
    }
}
