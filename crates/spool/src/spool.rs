//! One worker's spool.

use crate::disk::Disk;
use crate::record;
use crate::segment::{HEADER, LoadError, Loaded, load, segment_name, segments};
use std::collections::{HashSet, VecDeque};
use std::io;
use switchback_core::client::{Preservation, PreservedRecord};

/// A segment longer than this is followed by a new one.
const SEGMENT_BYTES_MAX: u64 = 32 << 20;
/// How often a spool that can't be written is tried again.
const RETRY_US: u64 = 100_000;
/// Unwritten records beyond which only a rewrite can mend the spool.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;

#[derive(Debug)]
struct Segment {
    name: String,
    bytes: u64,
    newest_generation: u32,
}

/// What a spool has done since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Records that were written.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Writes that failed.
    pub errors: u64,
    /// Rewrites that were begun.
    pub rewrites: u64,
}

/// Why a spool can't be opened.
#[derive(Debug)]
pub enum OpenError {
    /// A segment, which is named, can't be loaded.
    Segment(String, LoadError),
    /// The disk failed at this.
    Io(&'static str, io::Error),
}

/// One worker's spool.
#[derive(Debug)]
pub struct Spool<D: Disk> {
    disk: D,
    worker: usize,
    bytes_max: u64,
    /// Not written to any more, oldest first.
    sealed: VecDeque<Segment>,
    live: Segment,
    file: D::File,
    next_number: u64,
    /// Encoded, not yet written.
    unwritten: Vec<u8>,
    unwritten_records: u64,
    unwritten_generation: u32,
    /// Keys of what couldn't be written so far.
    missing: HashSet<Box<[u8]>>,
    failure: Option<String>,
    retry_at_us: u64,
    /// The file can't be trusted, or too much couldn't be written: only a rewrite helps.
    needs_rewrite: bool,
    always: bool,
    counts: Counts,
    last_rewrite_bytes: u64,
}

impl<D: Disk> Spool<D> {
    /// Opens a worker's spool and loads it into `preserved`. What is committed is synced at once if
    /// `always`, soon otherwise; segments of more than `bytes_max` bytes are rewritten.
    ///
    /// # Errors
    /// The disk fails, or holds what isn't ours.
    pub fn open(
        mut disk: D,
        worker: usize,
        always: bool,
        bytes_max: u64,
        preserved: &mut Preservation,
    ) -> Result<Spool<D>, OpenError> {
        let io = |what| move |error| OpenError::Io(what, error);
        let mut sealed = VecDeque::new();
        let mut next_number = 1;
        for (name, _, number) in segments(disk.names().map_err(io("list"))?, |of| of == worker) {
            let file = disk.open(&name).map_err(LoadError::Io);
            let loaded = file.and_then(|file| load(file, preserved));
            let Loaded { bytes, is_torn, newest_generation, .. } =
                loaded.map_err(|error| OpenError::Segment(name.clone(), error))?;
            if is_torn {
                tracing::warn!(name, bytes, "the spool's segment ends in a torn record");
            }
            next_number = number + 1;
            sealed.push_back(Segment { name, bytes, newest_generation });
        }
        let (live, file) =
            create(&mut disk, worker, next_number).map_err(io("create a segment in"))?;
        disk.sync_names().map_err(io("sync"))?;
        // What was loaded is on disk.
        preserved.drain_touched(|_| ());
        Ok(Spool {
            disk,
            worker,
            bytes_max,
            sealed,
            live,
            file,
            next_number: next_number + 1,
            unwritten: Vec::new(),
            unwritten_records: 0,
            unwritten_generation: 0,
            missing: HashSet::new(),
            failure: None,
            retry_at_us: 0,
            needs_rewrite: false,
            always,
            counts: Counts::default(),
            last_rewrite_bytes: 0,
        })
    }

    /// Its disk.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// Its disk.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.disk
    }

    /// Takes the disk back.
    pub fn into_disk(self) -> D {
        self.disk
    }

    /// What it has done.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.live.bytes + self.sealed.iter().map(|segment| segment.bytes).sum::<u64>()
    }

    /// Takes a record that has to be on disk before it is answered; [`Spool::commit`] writes
    /// it.
    #[inline]
    pub fn push(&mut self, kept: &PreservedRecord) {
        self.unwritten_generation = self.unwritten_generation.max(kept.generation);
        self.unwritten_records += 1;
        if self.failure.is_some() {
            self.missing.insert(kept.key.as_slice().into());
            if self.unwritten.len() > UNWRITTEN_BYTES_MAX {
                self.needs_rewrite = true;
            }
        }
        if !self.needs_rewrite {
            record::encode(kept, &mut self.unwritten);
        }
    }

    /// Whether something waits for [`Spool::commit`].
    #[inline]
    pub fn has_unwritten(&self) -> bool {
        !self.unwritten.is_empty() || self.needs_rewrite
    }

    /// Whether this key's newest version couldn't be written.
    pub fn is_missing(&self, key: &[u8]) -> bool {
        self.missing.contains(key)
    }

    /// Looks whether what was written could be synced since. If it couldn't, only other bytes can
    /// be trusted: the next [`Spool::commit`] rewrites it, and there is something to commit.
    pub fn check_syncs(&mut self) {
        if let Some(error) = self.disk.failed_sync() {
            tracing::error!(%error, directory = self.disk.place(), "the spool is rewritten");
            self.counts.errors += 1;
            self.needs_rewrite = true;
        }
    }

    /// Why it can't be written, while it can't.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Writes everything pushed, as durably as was asked for. After a failure what wasn't written
    /// is kept, and tried again from time to time (by a clock that only rises) with what came
    /// since.
    ///
    /// # Errors
    /// It isn't written, for this reason.
    pub fn commit(&mut self, preserved: &Preservation, now_us: u64) -> Result<(), String> {
        if let Some(failure) = &self.failure
            && now_us < self.retry_at_us
        {
            return Err(failure.clone());
        }
        match self.write_and_sync(preserved) {
            Ok(()) => {
                if self.failure.take().is_some() {
                    tracing::info!(directory = self.disk.place(), "the spool can be written again");
                }
                self.missing.clear();
                Ok(())
            }
            Err(error) => {
                self.counts.errors += 1;
                let text = format!("the spool in {} can't be written: {error}", self.disk.place());
                if self.failure.is_none() {
                    tracing::error!("{text}");
                    // Some of these records may have been written; all are written again.
                    let mut rest = &self.unwritten[..];
                    while let Some((spooled, length)) = record::decode(rest) {
                        self.missing.insert(spooled.key.into());
                        rest = &rest[length..];
                    }
                }
                self.failure = Some(text.clone());
                self.retry_at_us = now_us.saturating_add(RETRY_US);
                Err(text)
            }
        }
    }

    fn write_and_sync(&mut self, preserved: &Preservation) -> io::Result<()> {
        let is_long = self.bytes() + self.unwritten.len() as u64 > self.rewrite_beyond();
        if self.needs_rewrite || is_long {
            self.counts.rewrites += 1;
            match self.rewrite(preserved) {
                // There may be no room for a second copy, but for a few more records.
                Err(error) if !self.needs_rewrite => {
                    tracing::warn!(%error, "can't rewrite the spool; it grows");
                    self.last_rewrite_bytes = self.bytes();
                }
                result => return result,
            }
        }
        if self.live.bytes > SEGMENT_BYTES_MAX {
            self.rotate()?;
        }
        if let Err(error) = self.disk.append(&self.file, &self.unwritten) {
            // What got there in part would hide what comes after it.
            if self.disk.truncate(&self.file, self.live.bytes).is_err() {
                self.needs_rewrite = true;
            }
            return Err(error);
        }
        if self.always
            && let Err(error) = self.disk.sync(&self.file)
        {
            // The kernel may have dropped what it failed to write; only other bytes can be trusted.
            self.needs_rewrite = true;
            return Err(error);
        }
        self.live.bytes += self.unwritten.len() as u64;
        self.live.newest_generation = self.live.newest_generation.max(self.unwritten_generation);
        self.counts.bytes += self.unwritten.len() as u64;
        self.counts.records += self.unwritten_records;
        self.forget_unwritten();
        self.note_written()
    }

    /// Has what was written synced, if it isn't yet; learns how that went with what was written
    /// before.
    fn note_written(&mut self) -> io::Result<()> {
        if self.always {
            return Ok(());
        }
        self.disk.sync_soon(&self.file).inspect_err(|_| self.needs_rewrite = true)
    }

    fn forget_unwritten(&mut self) {
        self.unwritten.clear();
        if self.unwritten.capacity() > UNWRITTEN_BYTES_MAX {
            self.unwritten = Vec::new();
        }
        self.unwritten_records = 0;
        self.unwritten_generation = 0;
    }

    /// Twice what the last rewrite came to, if that is more than the limit: or it would be
    /// rewritten for ever.
    fn rewrite_beyond(&self) -> u64 {
        self.bytes_max.max(2 * self.last_rewrite_bytes)
    }

    /// Begins a new segment. Syncs that are due for the old one stay due.
    fn rotate(&mut self) -> io::Result<()> {
        let (live, file) = create(&mut self.disk, self.worker, self.next_number)?;
        if self.always {
            self.disk.sync_names()?;
        }
        self.next_number += 1;
        self.sealed.push_back(std::mem::replace(&mut self.live, live));
        self.file = file;
        Ok(())
    }

    /// Replaces all segments by one that holds what is preserved.
    fn rewrite(&mut self, preserved: &Preservation) -> io::Result<()> {
        let name = segment_name(self.worker, self.next_number);
        let temporary = format!("w{}-{:012}.tmp", self.worker, self.next_number);
        let result = self.write_segment(&temporary, preserved).and_then(|written| {
            self.disk.rename(&temporary, &name)?;
            self.disk.sync_names()?;
            Ok(written)
        });
        let (file, bytes, newest_generation) = result.inspect_err(|_| {
            // It takes room that others need; if it can't be deleted, the next rewrite overwrites
            // it.
            let _ = self.disk.remove(&temporary);
        })?;
        self.next_number += 1;
        let live = Segment { name, bytes, newest_generation };
        self.sealed.push_back(std::mem::replace(&mut self.live, live));
        self.file = file;
        self.disk.forget_syncs();
        self.last_rewrite_bytes = bytes;
        self.needs_rewrite = false;
        self.forget_unwritten();
        for segment in self.sealed.drain(..) {
            self.disk.remove_soon(&segment.name);
        }
        Ok(())
    }

    /// Writes and syncs a segment of everything preserved.
    fn write_segment(
        &mut self,
        name: &str,
        preserved: &Preservation,
    ) -> io::Result<(D::File, u64, u32)> {
        let file = self.disk.create(name)?;
        let mut buffer = HEADER.to_vec();
        let (mut bytes, mut newest_generation) = (0, 0);
        for kept in preserved.iter() {
            record::encode(kept, &mut buffer);
            newest_generation = newest_generation.max(kept.generation);
            if buffer.len() > 1 << 20 {
                self.disk.append(&file, &buffer)?;
                bytes += buffer.len() as u64;
                buffer.clear();
            }
        }
        self.disk.append(&file, &buffer)?;
        bytes += buffer.len() as u64;
        self.disk.sync(&file)?;
        Ok((file, bytes, newest_generation))
    }

    /// Deletes the segments in which everything is durable elsewhere: of generations older than
    /// `durable_generation`, or everything if nothing is preserved. All the more if nothing can be
    /// written: the spool may have filled its disk.
    pub fn release(&mut self, durable_generation: u32, nothing_preserved: bool) {
        if nothing_preserved {
            self.forget_unwritten();
            self.missing.clear();
        }
        let is_done =
            |segment: &Segment| nothing_preserved || segment.newest_generation < durable_generation;
        // In order, so that an older version never outlives a newer one.
        while self.sealed.front().is_some_and(is_done) {
            if let Some(segment) = self.sealed.pop_front() {
                self.disk.remove_soon(&segment.name);
            }
        }
        let is_empty = self.live.bytes <= HEADER.len() as u64;
        // What can't be trusted waits for its rewrite.
        let is_oldest = self.sealed.is_empty() && self.disk.has_removed() && !self.needs_rewrite;
        let cut = is_oldest && !is_empty && is_done(&self.live);
        if cut && self.disk.truncate(&self.file, HEADER.len() as u64).is_ok() {
            self.live.bytes = HEADER.len() as u64;
            self.live.newest_generation = 0;
        }
    }

    /// Makes everything written durable, and everything deleted gone: at an orderly end.
    ///
    /// # Errors
    /// A sync failed.
    pub fn sync(&mut self) -> io::Result<()> {
        self.disk.finish()?;
        self.disk.sync(&self.file)
    }
}

/// Creates an empty segment; its name isn't durable yet.
fn create<D: Disk>(disk: &mut D, worker: usize, number: u64) -> io::Result<(Segment, D::File)> {
    let name = segment_name(worker, number);
    let file = disk.create(&name)?;
    disk.append(&file, &HEADER)?;
    Ok((Segment { name, bytes: HEADER.len() as u64, newest_generation: 0 }, file))
}
