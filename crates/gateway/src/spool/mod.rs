//! The spool: preserved records on disk, so that a gateway that dies together with the switch loses nothing that it answered.
//!
//! Append-only segments, each record with a checksum. A segment goes when all its records are durable in a snapshot; when the segments
//! outgrow a limit they are rewritten with only what is preserved, the newest version of each key.

mod background;
mod directory;
mod record;

pub use directory::{SpoolDirectory, SpoolError};

use crate::statistics::WorkerStatistics;
use background::Background;
use directory::{HEADER, load, segment_path, sync_directory};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switchback_core::client::{Preservation, PreservedRecord};

/// A segment longer than this is followed by a new one.
const SEGMENT_BYTES_MAX: u64 = 32 << 20;
/// How often a spool that can't be written is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Unwritten records beyond which only a rewrite can mend the spool.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;

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

impl FromStr for Durability {
    type Err = String;

    fn from_str(name: &str) -> Result<Durability, String> {
        match name {
            "always" => Ok(Durability::Always),
            "everysec" => Ok(Durability::EverySecond),
            "memory" => Ok(Durability::Memory),
            other => Err(format!("durability is always, everysec or memory, not '{other}'")),
        }
    }
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

#[derive(Debug)]
struct Segment {
    path: PathBuf,
    bytes: u64,
    newest_generation: u32,
}

/// One worker's spool.
#[derive(Debug)]
pub struct Spool {
    directory: PathBuf,
    worker: usize,
    bytes_max: u64,
    /// Not written to any more, oldest first.
    sealed: VecDeque<Segment>,
    live: Segment,
    file: Arc<File>,
    next_number: u64,
    /// Encoded, not yet written.
    unwritten: Vec<u8>,
    unwritten_records: u64,
    unwritten_generation: u32,
    /// Keys of what couldn't be written so far.
    missing: HashSet<Box<[u8]>>,
    failure: Option<String>,
    retry_at: Option<Instant>,
    /// The file can't be trusted, or too much couldn't be written: only a rewrite helps.
    needs_rewrite: bool,
    always: bool,
    background: Background,
    sync_times: Vec<Duration>,
    last_rewrite_bytes: u64,
}

impl Spool {
    /// Opens a worker's spool and loads it into `preserved`.
    pub fn open(
        directory: &SpoolDirectory,
        worker: usize,
        durability: Durability,
        bytes_max: u64,
        preserved: &mut Preservation,
    ) -> Result<Spool, SpoolError> {
        let path = directory.path();
        let mut sealed = VecDeque::new();
        let mut next_number = 1;
        for found in directory.segments(|of| of == worker)? {
            let loaded = load(&found.path, preserved)?;
            next_number = found.number + 1;
            let (bytes, newest_generation) = (loaded.bytes, loaded.newest_generation);
            sealed.push_back(Segment { path: found.path, bytes, newest_generation });
        }
        let (live, file) = create(path, worker, next_number).map_err(SpoolError::io("create a segment in", path))?;
        sync_directory(path).map_err(SpoolError::io("sync", path))?;
        let background = Background::start(path, worker).map_err(SpoolError::io("start a thread for", path))?;
        let spool = Spool {
            directory: path.to_owned(),
            worker,
            bytes_max,
            sealed,
            live,
            file: Arc::new(file),
            next_number: next_number + 1,
            unwritten: Vec::new(),
            unwritten_records: 0,
            unwritten_generation: 0,
            missing: HashSet::new(),
            failure: None,
            retry_at: None,
            needs_rewrite: false,
            always: durability == Durability::Always,
            background,
            sync_times: Vec::new(),
            last_rewrite_bytes: 0,
        };
        // What was loaded is on disk.
        preserved.drain_touched(|_| ());
        Ok(spool)
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.live.bytes + self.sealed.iter().map(|segment| segment.bytes).sum::<u64>()
    }

    /// Takes a record that has to be on disk before anybody is told of it; [`Spool::commit`] writes it.
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

    /// Why it can't be written, while it can't.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Writes everything pushed, as durably as was asked for. After a failure what wasn't written is kept, and tried again from time to
    /// time with what came since.
    pub fn commit(&mut self, preserved: &Preservation, statistics: &WorkerStatistics) -> Result<(), String> {
        if let Some(failure) = &self.failure
            && self.retry_at.is_some_and(|at| Instant::now() < at)
        {
            return Err(failure.clone());
        }
        match self.write_and_sync(preserved, statistics) {
            Ok(()) => {
                if self.failure.take().is_some() {
                    tracing::info!(directory = %self.directory.display(), "the spool can be written again");
                }
                self.missing.clear();
                statistics.spool_size.set(self.bytes());
                Ok(())
            }
            Err(error) => {
                statistics.spool_errors.add(1);
                let text = format!("the spool in {} can't be written: {error}", self.directory.display());
                if self.failure.is_none() {
                    tracing::error!("{text}");
                    // Which of these records made it nobody knows; all are written again.
                    let mut rest = &self.unwritten[..];
                    while let Some((spooled, length)) = record::decode(rest) {
                        self.missing.insert(spooled.key.into());
                        rest = &rest[length..];
                    }
                }
                self.failure = Some(text.clone());
                self.retry_at = Some(Instant::now() + RETRY);
                Err(text)
            }
        }
    }

    fn write_and_sync(&mut self, preserved: &Preservation, statistics: &WorkerStatistics) -> io::Result<()> {
        let is_long = self.bytes() + self.unwritten.len() as u64 > self.rewrite_beyond();
        if self.needs_rewrite || is_long {
            statistics.spool_rewrites.add(1);
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
        let begin = Instant::now();
        if let Err(error) = (&*self.file).write_all(&self.unwritten) {
            // What got there in part would hide what comes after it.
            if self.file.set_len(self.live.bytes).is_err() {
                self.needs_rewrite = true;
            }
            return Err(error);
        }
        let written = begin.elapsed();
        statistics.spool_writes.record(written.as_micros() as u64, 1);
        if self.always
            && let Err(error) = self.file.sync_data()
        {
            // The kernel may have dropped what it failed to write; only other bytes can be trusted.
            self.needs_rewrite = true;
            return Err(error);
        }
        if self.always {
            statistics.spool_syncs.record((begin.elapsed() - written).as_micros() as u64, 1);
        }
        self.live.bytes += self.unwritten.len() as u64;
        self.live.newest_generation = self.live.newest_generation.max(self.unwritten_generation);
        statistics.spool_bytes.add(self.unwritten.len() as u64);
        statistics.spool_records.add(self.unwritten_records);
        self.forget_unwritten();
        self.note_written(statistics)
    }

    /// Has what was written synced, if it isn't yet; learns how that went with what was written before.
    fn note_written(&mut self, statistics: &WorkerStatistics) -> io::Result<()> {
        if self.always {
            return Ok(());
        }
        let result = self.background.written(&self.file, &mut self.sync_times);
        for time in self.sync_times.drain(..) {
            statistics.spool_syncs.record(time.as_micros() as u64, 1);
        }
        result.map_err(|text| {
            self.needs_rewrite = true;
            io::Error::other(format!("fdatasync failed: {text}"))
        })
    }

    fn forget_unwritten(&mut self) {
        self.unwritten.clear();
        if self.unwritten.capacity() > UNWRITTEN_BYTES_MAX {
            self.unwritten = Vec::new();
        }
        self.unwritten_records = 0;
        self.unwritten_generation = 0;
    }

    /// Twice what the last rewrite came to, if that is more than the limit: or it would be rewritten for ever.
    fn rewrite_beyond(&self) -> u64 {
        self.bytes_max.max(2 * self.last_rewrite_bytes)
    }

    /// Begins a new segment. Whoever syncs what was written to the old one, and what will be to this, is the same as ever.
    fn rotate(&mut self) -> io::Result<()> {
        let (live, file) = create(&self.directory, self.worker, self.next_number)?;
        if self.always {
            sync_directory(&self.directory)?;
        }
        self.next_number += 1;
        self.sealed.push_back(std::mem::replace(&mut self.live, live));
        self.file = Arc::new(file);
        Ok(())
    }

    /// Replaces all segments by one that holds what is preserved.
    fn rewrite(&mut self, preserved: &Preservation) -> io::Result<()> {
        let path = segment_path(&self.directory, self.worker, self.next_number);
        let temporary = path.with_extension("tmp");
        let result = write_segment(&temporary, preserved).and_then(|written| {
            fs::rename(&temporary, &path)?;
            sync_directory(&self.directory)?;
            Ok(written)
        });
        let (file, bytes, newest_generation) = result.inspect_err(|_| {
            // It takes room that others need; if it can't be deleted, the next rewrite overwrites it.
            let _ = fs::remove_file(&temporary);
        })?;
        self.next_number += 1;
        let live = Segment { path, bytes, newest_generation };
        self.sealed.push_back(std::mem::replace(&mut self.live, live));
        self.file = Arc::new(file);
        self.background.forget();
        self.last_rewrite_bytes = bytes;
        self.needs_rewrite = false;
        self.forget_unwritten();
        for segment in self.sealed.drain(..) {
            self.background.delete(segment.path);
        }
        Ok(())
    }

    /// Deletes the segments in which everything is durable elsewhere: of generations older than `durable_generation`, or everything if
    /// nothing is preserved. All the more if nothing can be written: the spool may have filled its disk.
    pub fn release(&mut self, durable_generation: u32, nothing_preserved: bool) {
        if nothing_preserved {
            self.forget_unwritten();
            self.missing.clear();
        }
        let is_done = |segment: &Segment| nothing_preserved || segment.newest_generation < durable_generation;
        // In order, so that an older version never outlives a newer one.
        while self.sealed.front().is_some_and(is_done) {
            if let Some(segment) = self.sealed.pop_front() {
                self.background.delete(segment.path);
            }
        }
        let is_empty = self.live.bytes <= HEADER.len() as u64;
        // What can't be trusted waits for its rewrite.
        let is_oldest = self.sealed.is_empty() && self.background.has_deleted() && !self.needs_rewrite;
        if is_oldest && !is_empty && is_done(&self.live) && self.file.set_len(HEADER.len() as u64).is_ok() {
            self.live.bytes = HEADER.len() as u64;
            self.live.newest_generation = 0;
        }
    }

    /// Makes everything written durable, and everything deleted gone: at an orderly end.
    pub fn sync(&self) -> io::Result<()> {
        self.background.finish()?;
        self.file.sync_data()
    }
}

/// Creates an empty segment; its name isn't durable yet.
fn create(directory: &Path, worker: usize, number: u64) -> io::Result<(Segment, File)> {
    let path = segment_path(directory, worker, number);
    // Appending, so that truncation needs no seek.
    let file = OpenOptions::new().create(true).append(true).open(&path)?;
    file.set_len(0)?;
    (&file).write_all(&HEADER)?;
    Ok((Segment { path, bytes: HEADER.len() as u64, newest_generation: 0 }, file))
}

/// Writes and syncs a segment of everything preserved.
fn write_segment(path: &Path, preserved: &Preservation) -> io::Result<(File, u64, u32)> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    file.set_len(0)?;
    let mut buffer = HEADER.to_vec();
    let (mut bytes, mut newest_generation) = (0, 0);
    for kept in preserved.iter() {
        record::encode(kept, &mut buffer);
        newest_generation = newest_generation.max(kept.generation);
        if buffer.len() > 1 << 20 {
            (&file).write_all(&buffer)?;
            bytes += buffer.len() as u64;
            buffer.clear();
        }
    }
    (&file).write_all(&buffer)?;
    bytes += buffer.len() as u64;
    file.sync_all()?;
    Ok((file, bytes, newest_generation))
}
