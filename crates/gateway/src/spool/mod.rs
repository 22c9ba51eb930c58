//! The spool of a worker on the disk: [`switchback_spool`] in a directory, with a thread that syncs
//! and deletes behind it.

mod background;
mod directory;
mod files;

pub use directory::{SpoolDirectory, SpoolError};

use crate::statistics::WorkerStatistics;
use files::Files;
use std::fmt;
use std::io;
use std::time::Instant;
use switchback_core::client::{Preservation, PreservedRecord};
use switchback_spool::{Counts, OpenError};

/// When an absorbed write is answered, and what can lose it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// When it is synced to disk: nothing loses it.
    Always,
    /// When it is written, synced each second: a power cut loses a second at most.
    #[default]
    EverySecond,
    /// At once: lost when this process and the switch die together.
    Memory,
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Durability::Always => "always",
            Durability::EverySecond => "everysec",
            Durability::Memory => "memory",
        })
    }
}

/// One worker's spool.
#[derive(Debug)]
pub struct Spool {
    spool: switchback_spool::Spool<Files>,
    began: Instant,
    counted: Counts,
}

impl Spool {
    /// Opens a worker's spool and loads it into `preserved`.
    ///
    /// # Errors
    /// The directory can't be used, or holds what isn't ours.
    pub fn open(
        directory: &SpoolDirectory,
        worker: usize,
        durability: Durability,
        bytes_max: u64,
        preserved: &mut Preservation,
    ) -> Result<Spool, SpoolError> {
        let path = directory.path();
        let files =
            Files::start(path, worker).map_err(SpoolError::io("start a thread for", path))?;
        let always = durability == Durability::Always;
        let opened = switchback_spool::Spool::open(files, worker, always, bytes_max, preserved);
        let spool = opened.map_err(|error| match error {
            OpenError::Segment(name, error) => SpoolError::segment(&path.join(name), error),
            OpenError::Io(what, error) => SpoolError::io(what, path)(error),
        })?;
        Ok(Spool { spool, began: Instant::now(), counted: Counts::default() })
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.spool.bytes()
    }

    /// Takes a record that has to be on disk before it is answered; [`Spool::commit`] writes
    /// it.
    #[inline]
    pub fn push(&mut self, kept: &PreservedRecord) {
        self.spool.push(kept);
    }

    /// Whether something waits for [`Spool::commit`].
    #[inline]
    pub fn has_unwritten(&self) -> bool {
        self.spool.has_unwritten()
    }

    /// Whether this key's newest version couldn't be written.
    pub fn is_missing(&self, key: &[u8]) -> bool {
        self.spool.is_missing(key)
    }

    /// Why it can't be written, while it can't.
    pub fn failure(&self) -> Option<&str> {
        self.spool.failure()
    }

    /// Looks whether what was written could be synced since; if not, something waits for
    /// [`Spool::commit`].
    pub fn check_syncs(&mut self) {
        self.spool.check_syncs();
    }

    /// Writes everything pushed, as durably as was asked for. After a failure what wasn't written
    /// is kept, and tried again from time to time with what came since.
    ///
    /// # Errors
    /// It isn't written, for this reason.
    pub fn commit(
        &mut self,
        preserved: &Preservation,
        statistics: &WorkerStatistics,
    ) -> Result<(), String> {
        let result = self.spool.commit(preserved, self.began.elapsed().as_micros() as u64);
        let (counts, before) = (self.spool.counts(), self.counted);
        self.counted = counts;
        statistics.spool_records.add(counts.records - before.records);
        statistics.spool_bytes.add(counts.bytes - before.bytes);
        statistics.spool_errors.add(counts.errors - before.errors);
        statistics.spool_rewrites.add(counts.rewrites - before.rewrites);
        let files = self.spool.disk_mut();
        for time in files.writes.drain(..) {
            statistics.spool_writes.record(time.as_micros() as u64, 1);
        }
        for time in files.syncs.drain(..) {
            statistics.spool_syncs.record(time.as_micros() as u64, 1);
        }
        if result.is_ok() {
            statistics.spool_size.set(self.bytes());
        }
        result
    }

    /// Deletes the segments in which everything is durable elsewhere: of generations older than
    /// `durable_generation`, or everything if nothing is preserved. All the more if nothing can be
    /// written: the spool may have filled its disk.
    pub fn release(&mut self, durable_generation: u32, nothing_preserved: bool) {
        self.spool.release(durable_generation, nothing_preserved);
    }

    /// Makes everything written durable, and everything deleted gone: at an orderly end.
    ///
    /// # Errors
    /// A sync failed.
    pub fn sync(&mut self) -> io::Result<()> {
        self.spool.sync()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_wire::{KeyHash, Seq};

    /// Fails if a spool that is idle finds out with its next write only that the last one isn't on
    /// the disk.
    #[test]
    fn a_sync_that_failed_is_noticed_without_a_write() {
        let path = tempfile::tempdir().unwrap();
        let directory = SpoolDirectory::open(path.path()).unwrap();
        let mut preserved = Preservation::default();
        let every = Durability::EverySecond;
        let mut spool = Spool::open(&directory, 0, every, u64::MAX, &mut preserved).unwrap();
        let statistics = WorkerStatistics::default();
        preserved.keep(KeyHash([1; 16]), b"k", b"v", Seq(1), false, 0, 1);
        preserved.drain_touched(|kept| spool.push(kept));
        spool.commit(&preserved, &statistics).unwrap();
        spool.check_syncs();
        assert!(!spool.has_unwritten(), "nothing failed");
        spool.spool.disk_mut().fail_sync();
        spool.check_syncs();
        assert!(spool.has_unwritten());
        spool.commit(&preserved, &statistics).unwrap();
        assert_eq!((statistics.spool_errors.get(), statistics.spool_rewrites.get()), (1, 1));
        spool.check_syncs();
        assert!(!spool.has_unwritten());
    }
}
