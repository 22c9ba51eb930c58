//! What a spool leaves to a thread of its own, so that the gateway's goes on meanwhile: syncing
//! once a second, and deleting segments.

use super::directory::sync_directory;
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often it syncs.
const PERIOD: Duration = Duration::from_secs(1);
/// A writer waits for a sync that is this late (Redis does, too).
const LATE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct QueueState {
    /// Written since the last sync began, oldest first; since when.
    unsynced: Vec<Arc<File>>,
    since: Option<Instant>,
    /// The sync under way; the age of the oldest write that it covers.
    syncing: Option<Instant>,
    failed: Option<String>,
    times: Vec<Duration>,
    /// To be deleted, oldest first; the one that is being deleted stays until it is gone.
    deleted: VecDeque<PathBuf>,
    stop: bool,
}

#[derive(Debug)]
struct SyncQueue {
    directory: PathBuf,
    state: Mutex<QueueState>,
    changed: Condvar,
}

impl SyncQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        state: MutexGuard<'a, QueueState>,
        at_most: Duration,
    ) -> MutexGuard<'a, QueueState> {
        self.changed.wait_timeout(state, at_most).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The background thread.
#[derive(Debug)]
pub(super) struct Background {
    shared: Arc<SyncQueue>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Of the worker's spool in `directory`.
    pub(super) fn start(directory: &Path, worker: usize) -> io::Result<Background> {
        let (state, changed) = Default::default();
        let shared = Arc::new(SyncQueue { directory: directory.to_owned(), state, changed });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("sw-spool-{worker}"))
            .spawn(move || run(&theirs))?;
        Ok(Background { shared, thread: Some(thread) })
    }

    /// Something was written, which is synced within a second or so. If the last sync is far too
    /// late, waits for it. Takes what syncs have cost since the last call, and whether one failed.
    pub(super) fn written(
        &self,
        file: &Arc<File>,
        times: &mut Vec<Duration>,
    ) -> Result<(), String> {
        let mut state = self.shared.lock();
        while state.syncing.is_some_and(|since| since.elapsed() > LATE) && !state.stop {
            state = self.shared.wait(state, PERIOD);
        }
        if !state.unsynced.last().is_some_and(|last| Arc::ptr_eq(last, file)) {
            state.unsynced.push(Arc::clone(file));
        }
        if state.since.is_none() {
            state.since = Some(Instant::now());
            self.shared.changed.notify_all();
        }
        times.append(&mut state.times);
        state.failed.take().map_or(Ok(()), Err)
    }

    /// Why a sync failed, if one has since this was asked the last time.
    pub(super) fn failure(&self) -> Option<String> {
        self.shared.lock().failed.take()
    }

    #[cfg(test)]
    pub(super) fn fail(&self) {
        self.shared.lock().failed = Some("for a test".into());
    }

    /// What was written is synced otherwise, or not needed.
    pub(super) fn forget(&self) {
        let mut state = self.shared.lock();
        state.unsynced.clear();
        state.since = None;
        state.failed = None;
    }

    /// Has a segment deleted, after those before it.
    pub(super) fn delete(&self, segment: PathBuf) {
        self.shared.lock().deleted.push_back(segment);
        self.shared.changed.notify_all();
    }

    /// Whether all is deleted that was to be.
    pub(super) fn has_deleted(&self) -> bool {
        self.shared.lock().deleted.is_empty()
    }

    /// Syncs now what was written, and waits until all is deleted.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.shared.lock();
        if state.since.is_some() {
            // Due at once.
            state.since = Instant::now().checked_sub(PERIOD).or(state.since);
            self.shared.changed.notify_all();
        }
        while state.since.is_some() || state.syncing.is_some() || !state.deleted.is_empty() {
            state = self.shared.wait(state, PERIOD);
        }
        state.failed.take().map_or(Ok(()), |text| Err(io::Error::other(text)))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the hook already.
            let _ = thread.join();
        }
    }
}

fn run(shared: &SyncQueue) {
    let mut state = shared.lock();
    loop {
        let due = state.since.map_or(PERIOD, |since| PERIOD.saturating_sub(since.elapsed()));
        if due.is_zero() && !state.stop {
            state = sync(shared, state);
        } else if let Some(path) = state.deleted.front().cloned() {
            drop(state);
            delete(&path);
            state = shared.lock();
            state.deleted.pop_front();
            shared.changed.notify_all();
        } else if state.stop {
            return;
        } else {
            state = shared.wait(state, due);
        }
    }
}

/// Syncs what was written, and the names of the files that it was written to.
fn sync<'a>(
    shared: &'a SyncQueue,
    mut state: MutexGuard<'a, QueueState>,
) -> MutexGuard<'a, QueueState> {
    let files = std::mem::take(&mut state.unsynced);
    state.syncing = state.since.take();
    drop(state);
    let begin = Instant::now();
    let result = files
        .iter()
        .try_for_each(|file| file.sync_data())
        .and_then(|()| sync_directory(&shared.directory));
    let mut state = shared.lock();
    state.syncing = None;
    state.times.push(begin.elapsed());
    if let Err(error) = result {
        state.failed = Some(error.to_string());
    }
    shared.changed.notify_all();
    state
}

/// Deletes a segment. If that fails it is loaded again at the next start, which does no harm:
/// its records have generations that are durable already.
fn delete(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "can't delete a segment of the spool");
    }
}
