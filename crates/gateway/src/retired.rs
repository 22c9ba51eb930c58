//! A worker that an earlier start had and this one hasn't: its session gives back what its spool
//! holds until that is durable elsewhere. Then the session ends, so that no recovery waits for it,
//! and the files go.

use crate::gateway::{GatewayError, WorkerLinks};
use crate::shared::Shared;
use crate::spool::SpoolDirectory;
use mio::{Events, Poll, Token, Waker};
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;
use switchback_core::client::{ClientConfig, Session};
use switchback_net::ControlLink;

/// How often it looks whether the gateway stops.
const TICK: Duration = Duration::from_millis(50);

/// See the [module](self).
pub(crate) struct Retired {
    worker: usize,
    session: Session,
    control: Box<dyn ControlLink>,
    poll: Poll,
    segments: Vec<PathBuf>,
    shared: Arc<Shared>,
}

impl Retired {
    /// Reads what it left.
    pub(crate) fn open(
        directory: &SpoolDirectory,
        worker: usize,
        seeds: [u64; 2],
        links: WorkerLinks,
        shared: &Arc<Shared>,
    ) -> Result<Retired, GatewayError> {
        let config = ClientConfig { lanes: 1, ..shared.config.session.clone() };
        let mut session = Session::new(config, seeds[0], seeds[1], shared.now());
        let segments = directory.load_retired(worker, session.preserved_mut())?;
        session.preserved_mut().drain_touched(|_| ()); // it is on disk
        let poll = Poll::new().map_err(GatewayError::Worker)?;
        let waker = Waker::new(poll.registry(), Token(0)).map_err(GatewayError::Worker)?;
        let mut control = links.control;
        control.register(&Arc::new(waker));
        Ok(Retired { worker, session, control, poll, segments, shared: Arc::clone(shared) })
    }

    /// Lives until nothing of it is needed any more, or the gateway stops.
    pub(crate) fn run(mut self) {
        let mut events = Events::with_capacity(4);
        while !self.shared.stop.load(Acquire) {
            let now = self.shared.now();
            while let Some(notice) = self.control.receive() {
                self.session.handle_message(now, notice);
            }
            if now.is_due(self.session.poll_timeout()) {
                self.session.handle_timeout(now);
            }
            let is_over = self.session.is_open(now) && self.session.preserved().is_empty();
            if is_over {
                self.session.close();
            }
            while let Some(report) = self.session.poll_message() {
                self.control.send(report);
            }
            if is_over {
                return self.forget();
            }
            if let Err(error) = self.poll.poll(&mut events, Some(TICK))
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(
                    %error,
                    worker = self.worker,
                    "poll failed; what a worker that is gone left stays in its spool"
                );
                return;
            }
        }
    }

    fn forget(&self) {
        for path in &self.segments {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(
                    path = %path.display(),
                    %error,
                    "the spool of a worker that is gone can't be deleted"
                );
            }
        }
        tracing::info!(
            worker = self.worker,
            "what a worker that is gone had spooled is durable elsewhere"
        );
    }
}
