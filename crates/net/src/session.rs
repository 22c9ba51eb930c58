//! A client's session with its links, driven by the thread that has it.

use crate::{Clock, ControlLink, Sent, Uplink, until};
use mio::{Events, Poll, Token, Waker};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use switchback_core::Now;
use switchback_core::client::{ClientConfig, Completion, Session};
use switchback_wire::Packet;

/// The longest wait.
const WAIT_MAX: Duration = Duration::from_millis(20);

/// A session, its links, and what its thread waits with.
pub struct DrivenSession {
    /// The session.
    pub session: Session,
    /// The clock by which it is driven.
    pub clock: Clock,
    uplink: Box<dyn Uplink>,
    control: Box<dyn ControlLink>,
    poll: Poll,
    events: Events,
    packet: Packet,
}

impl DrivenSession {
    /// A session that has no lease yet, of a client that draws `boot` anew at each start; and what
    /// ends a wait.
    pub fn new(
        config: ClientConfig,
        boot: u64,
        mut uplink: Box<dyn Uplink>,
        mut control: Box<dyn ControlLink>,
        clock: Clock,
    ) -> io::Result<(DrivenSession, Arc<Waker>)> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), Token(0))?);
        uplink.register(poll.registry(), Token(1), &waker)?;
        control.register(&waker);
        let session = Session::new(config, boot, boot, clock.now());
        let (events, packet) = (Events::with_capacity(8), Packet::new());
        Ok((DrivenSession { session, clock, uplink, control, poll, events, packet }, waker))
    }

    /// Waits for packets, messages or a timeout, and handles the last two. The time after the wait.
    pub fn wait(&mut self) -> Now {
        let timeout = until(self.clock.now(), self.session.poll_timeout());
        let timeout = timeout.map_or(WAIT_MAX, |timeout| timeout.min(WAIT_MAX));
        if let Err(error) = self.poll.poll(&mut self.events, Some(timeout)) {
            tracing::debug!(%error, "waiting was interrupted");
        }
        while let Some(notice) = self.control.receive() {
            // Not the time before it was taken: the process may have been paused between.
            self.session.handle_message(self.clock.now(), notice);
        }
        let now = self.clock.now();
        if now.is_due(self.session.poll_timeout()) {
            self.session.handle_timeout(now);
        }
        now
    }

    /// Handles the packets that have come.
    pub fn receive(&mut self, now: Now, mut done: impl FnMut(Completion<'_>)) {
        while self.uplink.receive(&mut self.packet) {
            if let Some(completion) = self.session.handle_packet(now, &self.packet) {
                done(completion);
            }
        }
    }

    /// Sends what the session has to send.
    pub fn transmit(&mut self, now: Now, mut done: impl FnMut(Completion<'_>)) {
        while let Some(to) = self.session.poll_packet(&mut self.packet) {
            if self.uplink.send(to, &mut self.packet) == Sent::Answered
                && let Some(completion) = self.session.handle_packet(now, &self.packet)
            {
                done(completion);
            }
        }
        self.uplink.flush();
    }

    /// Takes what ended without a packet, and sends the controller what it is to know.
    pub fn finish(&mut self, mut done: impl FnMut(Completion<'_>)) {
        while let Some(completion) = self.session.poll_completion() {
            done(completion);
        }
        self.report();
    }

    /// Ends the session.
    pub fn close(&mut self) {
        self.session.close();
        self.report();
    }

    fn report(&mut self) {
        while let Some(report) = self.session.poll_message() {
            self.control.send(report);
        }
    }
}
