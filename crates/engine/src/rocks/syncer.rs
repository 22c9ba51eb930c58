//! Forces RocksDB's log to the disk in the background, so that commits don't wait for it: what
//! Redis does for `appendfsync everysec`.

use rocksdb::{DB, WriteBatch, WriteOptions};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How often the log is forced to the disk.
const SYNC_PERIOD: Duration = Duration::from_secs(1);
/// A disk that is slower than that is waited for, so that no more than this is ever lost; as Redis'
/// `appendfsync everysec`.
const LAG_MAX: Duration = Duration::from_secs(2);

/// A thread that syncs the log while there is something in it that isn't on the disk.
pub(super) struct Syncer {
    lag: Arc<Lag>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the commits share.
struct Lag {
    began: Instant,
    /// When the oldest commit was written that may not be on the disk, in microseconds since
    /// `began`, and one; 0: all are.
    since_us: AtomicU64,
    /// The same of the newest commit.
    newest_us: AtomicU64,
    ends: AtomicBool,
}

impl Syncer {
    pub(super) fn start(db: Arc<DB>) -> io::Result<Syncer> {
        let lag = Arc::new(Lag {
            began: Instant::now(),
            since_us: AtomicU64::new(0),
            newest_us: AtomicU64::new(0),
            ends: AtomicBool::new(false),
        });
        let shared = Arc::clone(&lag);
        let thread =
            thread::Builder::new().name("engine-sync".into()).spawn(move || shared.run(&db))?;
        Ok(Syncer { lag, thread: Some(thread) })
    }

    /// A commit was written; `is_synced`: to the disk, and with it all before it.
    pub(super) fn written(&self, is_synced: bool) {
        if is_synced {
            self.lag.since_us.store(0, SeqCst);
        } else {
            let now_us = self.lag.now_us();
            self.lag.newest_us.store(now_us, SeqCst);
            self.lag.lags_since(now_us);
        }
    }

    /// Whether the disk is so slow, or fails, that the next commit has to wait for it, and to say
    /// what is wrong with it.
    pub(super) fn lags_too_far(&self) -> bool {
        let since_us = self.lag.since_us.load(SeqCst);
        since_us != 0 && u128::from(self.lag.now_us() - since_us) > LAG_MAX.as_micros()
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.lag.ends.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It panics nowhere; if it did, there is nothing left to end.
            drop(thread.join());
        }
    }
}

impl Lag {
    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX - 1) + 1
    }

    /// Something that was written then is not on the disk. An earlier time stays.
    fn lags_since(&self, since_us: u64) {
        let _ = self.since_us.compare_exchange(0, since_us, SeqCst, SeqCst);
    }

    fn run(&self, db: &DB) {
        while !self.ends.load(SeqCst) {
            thread::park_timeout(SYNC_PERIOD);
            let since_us = self.since_us.load(SeqCst);
            let now_us = self.now_us();
            // A failure is told by the commit that has to sync by itself.
            if since_us == 0 || sync(db).is_err() {
                continue;
            }
            let _ = self.since_us.compare_exchange(since_us, 0, SeqCst, SeqCst);
            // A commit that was written meanwhile may have missed the sync, and found the time of
            // an earlier one.
            if self.newest_us.load(SeqCst) >= now_us {
                self.lags_since(now_us);
            }
        }
    }
}

/// Writes nothing, and forces the log to the disk with it. (`flush_wal` would make an error for
/// good of a write that found the disk full; this is refused as other writes are, until there is
/// room.)
fn sync(db: &DB) -> Result<(), rocksdb::Error> {
    let mut synced = WriteOptions::default();
    synced.set_sync(true);
    synced.set_no_slowdown(true);
    db.write_opt(WriteBatch::default(), &synced)
}
