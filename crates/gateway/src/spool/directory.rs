//! The spool's directory: locked by one gateway, with the segments of its workers. `w<worker>-<number>.spool`.

use super::record;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use switchback_core::client::Preservation;
use switchback_net::directory_refused;
use thiserror::Error;

/// What every segment begins with: a magic and the format's version.
pub(super) const HEADER: [u8; 8] = *b"SWSPOOL\x01";
const LOCK: &str = "lock";
const EXTENSION: &str = "spool";
/// The last number that has a segment; a file with a higher one is none of ours.
const NUMBER_MAX: u64 = 999_999_999_999;

/// Why a spool can't be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SpoolError {
    #[error("another gateway uses the spool in {0}")]
    Locked(PathBuf),
    #[error("{path} was written by version {version} of the spool's format; this program knows version {}", HEADER[7])]
    Version { path: PathBuf, version: u8 },
    #[error(
        "{0} is no segment of a spool, or its beginning is damaged; move it away, and what it holds is given up unless the switch or \
         a node has it"
    )]
    Foreign(PathBuf),
    #[error(
        "the spool in {0} holds writes that were acknowledged and may be nowhere else, and durability memory reads no spool; start once \
         with --durability everysec and stop it with Ctrl-C, which leaves nothing in it"
    )]
    Left(PathBuf),
    #[error(
        "the gateway's spool: can't {what} {path}: {}; mend that, or move the spool with all that it holds and name its new place with \
         spool in [gateway] of rack.toml",
        directory_refused(error)
    )]
    Io { what: &'static str, path: PathBuf, error: io::Error },
}

impl SpoolError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SpoolError {
        move |error| SpoolError::Io { what, path: path.to_owned(), error }
    }
}

/// The directory, locked as long as this lives.
#[derive(Debug)]
pub struct SpoolDirectory {
    path: PathBuf,
    _lock: File,
}

/// A segment found on disk.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) worker: usize,
    pub(super) number: u64,
}

impl SpoolDirectory {
    /// Creates the directory if need be, and locks it.
    pub fn open(path: &Path) -> Result<SpoolDirectory, SpoolError> {
        fs::create_dir_all(path).map_err(SpoolError::io("create", path))?;
        let lock_path = path.join(LOCK);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(SpoolError::io("open", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => Ok(SpoolDirectory { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(SpoolError::Locked(path.to_owned())),
            Err(TryLockError::Error(error)) => Err(SpoolError::io("lock", &lock_path)(error)),
        }
    }

    /// Whether somebody left records in this directory, which needn't exist, and isn't there to look after them.
    ///
    /// # Errors
    /// Its files can't be read.
    pub fn is_left(path: &Path) -> Result<bool, SpoolError> {
        if !path.join(LOCK).exists() {
            return Ok(false);
        }
        let directory = match SpoolDirectory::open(path) {
            Err(SpoolError::Locked(_)) => return Ok(false),
            opened => opened?,
        };
        let mut preserved = Preservation::default();
        for found in directory.segments(|_| true)? {
            if load(&found.path, &mut preserved)?.records > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes what is in this directory: every record of it has come to its node.
    ///
    /// # Errors
    /// Somebody uses it, or its files can't be deleted.
    pub fn clear(path: &Path) -> Result<(), SpoolError> {
        let directory = SpoolDirectory::open(path)?;
        for found in directory.segments(|_| true)? {
            fs::remove_file(&found.path).map_err(SpoolError::io("delete", &found.path))?;
        }
        sync_directory(path).map_err(SpoolError::io("sync", path))
    }

    /// The workers from `workers` on that have left something.
    pub(crate) fn retired(&self, workers: usize) -> Result<BTreeSet<usize>, SpoolError> {
        Ok(self.segments(|worker| worker >= workers)?.into_iter().map(|found| found.worker).collect())
    }

    /// Reads what such a worker left into `preserved`; the files that hold it.
    pub(crate) fn load_retired(&self, worker: usize, preserved: &mut Preservation) -> Result<Vec<PathBuf>, SpoolError> {
        let segments = self.segments(|of| of == worker)?;
        for found in &segments {
            load(&found.path, preserved)?;
        }
        Ok(segments.into_iter().map(|found| found.path).collect())
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The segments of the workers for which `wanted` holds, oldest first.
    pub(super) fn segments(&self, wanted: impl Fn(usize) -> bool) -> Result<Vec<Found>, SpoolError> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(SpoolError::io("list", &self.path))? {
            let path = entry.map_err(SpoolError::io("list", &self.path))?.path();
            match parse_name(&path) {
                Some((worker, number)) if wanted(worker) => found.push(Found { path, worker, number }),
                _ => {}
            }
        }
        found.sort_by(|a, b| (a.number, &a.path).cmp(&(b.number, &b.path)));
        Ok(found)
    }
}

pub(super) fn segment_path(directory: &Path, worker: usize, number: u64) -> PathBuf {
    directory.join(format!("w{worker}-{number:012}.{EXTENSION}"))
}

fn parse_name(path: &Path) -> Option<(usize, u64)> {
    let name = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let (worker, number) = name.strip_prefix('w')?.split_once('-')?;
    let number = number.parse().ok().filter(|number| *number <= NUMBER_MAX)?;
    Some((worker.parse().ok()?, number))
}

/// Makes a created, renamed or deleted file's name durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// What loading a segment brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Loaded {
    pub(super) records: u64,
    /// Length of the undamaged part.
    pub(super) bytes: u64,
    /// What follows it: the tail of a write that a crash cut off, or damage.
    pub(super) torn_bytes: u64,
    pub(super) newest_generation: u32,
}

/// Reads a segment's records into `preserved`.
pub(super) fn load(path: &Path, preserved: &mut Preservation) -> Result<Loaded, SpoolError> {
    let mut bytes = Vec::new();
    File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)).map_err(SpoolError::io("read", path))?;
    let mut loaded = Loaded::default();
    match bytes.first_chunk::<8>() {
        Some(&HEADER) => {}
        Some(header) if header[..7] == HEADER[..7] => {
            return Err(SpoolError::Version { path: path.to_owned(), version: header[7] });
        }
        Some(_) => return Err(SpoolError::Foreign(path.to_owned())),
        // Cut off while it was created.
        None => return Ok(Loaded { torn_bytes: bytes.len() as u64, ..loaded }),
    }
    let mut at = HEADER.len();
    while let Some((spooled, length)) = record::decode(&bytes[at..]) {
        spooled.keep(preserved);
        loaded.records += 1;
        loaded.newest_generation = loaded.newest_generation.max(spooled.generation);
        at += length;
    }
    loaded.bytes = at as u64;
    loaded.torn_bytes = (bytes.len() - at) as u64;
    if loaded.torn_bytes > 0 {
        tracing::warn!(path = %path.display(), at, torn_bytes = loaded.torn_bytes, "the spool's segment ends in a torn record");
    }
    Ok(loaded)
}
