//! fdatasync once a second, in the background.

use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often.
const PERIOD: Duration = Duration::from_secs(1);
/// A writer waits for a sync that is this late (Redis does, too).
const LATE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    /// Written since the last sync began; since when.
    unsynced: Option<(Arc<File>, Instant)>,
    /// The sync under way; the age of the oldest write that it covers.
    syncing: Option<Instant>,
    failed: Option<String>,
    times: Vec<Duration>,
    stop: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The background thread.
#[derive(Debug)]
pub(super) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    pub(super) fn start(worker: usize) -> std::io::Result<Syncer> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name(format!("sw-spool-{worker}")).spawn(move || run(&theirs))?;
        Ok(Syncer { shared, thread: Some(thread) })
    }

    /// Something was written. If the last sync is far too late, waits for it. Takes what syncs have cost since the last call, and
    /// whether one failed.
    pub(super) fn written(&self, file: &Arc<File>, times: &mut Vec<Duration>) -> Result<(), String> {
        let mut state = self.shared.lock();
        while state.syncing.is_some_and(|since| since.elapsed() > LATE) && !state.stop {
            let waited = self.shared.changed.wait_timeout(state, PERIOD);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.unsynced.is_none() {
            state.unsynced = Some((Arc::clone(file), Instant::now()));
            self.shared.changed.notify_all();
        }
        times.append(&mut state.times);
        state.failed.take().map_or(Ok(()), Err)
    }

    /// The file is synced otherwise, or gone.
    pub(super) fn forget(&self) {
        let mut state = self.shared.lock();
        state.unsynced = None;
        state.failed = None;
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the hook already.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut state = shared.lock();
    while !state.stop {
        let wait = match &state.unsynced {
            Some((_, since)) => PERIOD.saturating_sub(since.elapsed()),
            None => PERIOD,
        };
        if !wait.is_zero() || state.unsynced.is_none() {
            state = shared.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let Some((file, since)) = state.unsynced.take() else { continue };
        state.syncing = Some(since);
        drop(state);
        let begin = Instant::now();
        let result = file.sync_data();
        state = shared.lock();
        state.syncing = None;
        state.times.push(begin.elapsed());
        if let Err(error) = result {
            state.failed = Some(error.to_string());
        }
        shared.changed.notify_all();
    }
}
