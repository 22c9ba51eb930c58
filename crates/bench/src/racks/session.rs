//! A blocking session, which fills the cache before a run.

use super::OWN_LANES;
use crate::rack::ClientLinks;
use anyhow::ensure;
use std::time::{Duration, Instant};
use switchback_core::client::{ClientConfig, Completion, Operation, SubmitError};
use switchback_net::{Clock, DrivenSession};
use switchback_rack::assembly::draw_boot;

const OPEN_LIMIT: Duration = Duration::from_secs(30);

/// A client session with its links, driven by the caller's thread.
pub(super) struct BlockingSession(DrivenSession);

impl BlockingSession {
    /// Opens a session; waits until it has a lease.
    pub(super) fn open(links: ClientLinks, clock: Clock) -> anyhow::Result<BlockingSession> {
        let ClientLinks { uplink, control, .. } = links;
        let config = ClientConfig { lanes: OWN_LANES, ..ClientConfig::default() };
        let (driven, _) = DrivenSession::new(config, draw_boot(), uplink, control, clock)?;
        let mut opened = BlockingSession(driven);
        let start = Instant::now();
        while !opened.0.session.is_open(clock.now()) {
            ensure!(start.elapsed() < OPEN_LIMIT, "the controller grants no session");
            opened.step(&mut |_| {});
        }
        Ok(opened)
    }

    /// Waits for packets, messages or a timeout, and handles them.
    fn step(&mut self, done: &mut dyn FnMut(Completion<'_>)) {
        let now = self.0.wait();
        self.0.receive(now, &mut *done);
        self.0.transmit(now, &mut *done);
        self.0.finish(done);
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
                let now = self.0.clock.now();
                match self.0.session.submit(now, Operation::Read { key }, 0) {
                    Ok(()) => next = keys_left.next(),
                    Err(SubmitError::TooLarge) => anyhow::bail!("a key of {} bytes", key.len()),
                    Err(_) => break,
                }
                self.0.transmit(now, &mut take);
            }
            self.step(&mut take);
        }
        Ok(cached)
    }

    /// Ends the session.
    pub(super) fn close(mut self) {
        self.0.close();
    }
}
