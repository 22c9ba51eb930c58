//! The spool's directory: locked by one gateway, with the segments of its workers.
//! `w<worker>-<number>.spool`.

use super::files::names;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use switchback_core::client::Preservation;
use switchback_net::directory_refused;
use switchback_spool::LoadError;
use thiserror::Error;

const LOCK: &str = "lock";

/// Why a spool can't be used.
#[derive(Debug, Error)]
#[allow(missing_docs)]
pub enum SpoolError {
    #[error("another gateway uses the spool in {0}")]
    Locked(PathBuf),
    #[error(
        "{path} is of format {version}, and this program reads format {}: use the version of \
         Switchback that wrote it; nothing was touched",
        switchback_spool::HEADER[7]
    )]
    Version { path: PathBuf, version: u8 },
    #[error(
        "{0} is no segment of a spool, or its beginning is damaged; move it away, and what it \
         holds is given up unless the switch or a node has it"
    )]
    Foreign(PathBuf),
    #[error(
        "the spool in {0} holds writes that were acknowledged and may be nowhere else, and \
         durability memory reads no spool; start once with --durability everysec and stop it with \
         Ctrl-C, which leaves nothing in it"
    )]
    Left(PathBuf),
    #[error(
        "the gateway's spool: can't {what} {path}: {}; mend that, or move the spool with all that \
         it holds and name its new place with spool in [gateway] of rack.toml",
        directory_refused(error)
    )]
    Io { what: &'static str, path: PathBuf, error: io::Error },
}

impl SpoolError {
    pub(super) fn io(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SpoolError {
        move |error| SpoolError::Io { what, path: path.to_owned(), error }
    }

    /// What is wrong with this segment.
    pub(super) fn segment(path: &Path, error: LoadError) -> SpoolError {
        match error {
            LoadError::Version(version) => SpoolError::Version { path: path.to_owned(), version },
            LoadError::Foreign => SpoolError::Foreign(path.to_owned()),
            LoadError::Io(error) => SpoolError::io("read", path)(error),
        }
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
struct Found {
    path: PathBuf,
    worker: usize,
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

    /// Whether a gateway that has ended left records in this directory, which needn't exist.
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
            if load(&found.path, &mut preserved)? > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes what is in this directory: every record of it has come to its node.
    ///
    /// # Errors
    /// Another gateway uses it, or its files can't be deleted.
    pub fn clear(path: &Path) -> Result<(), SpoolError> {
        let directory = SpoolDirectory::open(path)?;
        for found in directory.segments(|_| true)? {
            fs::remove_file(&found.path).map_err(SpoolError::io("delete", &found.path))?;
        }
        sync_directory(path).map_err(SpoolError::io("sync", path))
    }

    /// The workers from `workers` on that have left something.
    pub(crate) fn retired(&self, workers: usize) -> Result<BTreeSet<usize>, SpoolError> {
        Ok(self
            .segments(|worker| worker >= workers)?
            .into_iter()
            .map(|found| found.worker)
            .collect())
    }

    /// Reads what such a worker left into `preserved`; the files that hold it.
    pub(crate) fn load_retired(
        &self,
        worker: usize,
        preserved: &mut Preservation,
    ) -> Result<Vec<PathBuf>, SpoolError> {
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
    fn segments(&self, wanted: impl Fn(usize) -> bool) -> Result<Vec<Found>, SpoolError> {
        let names = names(&self.path).map_err(SpoolError::io("list", &self.path))?;
        let segments = switchback_spool::segments(names, wanted).into_iter();
        Ok(segments.map(|(name, worker, _)| Found { path: self.path.join(name), worker }).collect())
    }
}

/// Makes a created, renamed or deleted file's name durable.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Reads a segment's records into `preserved`; how many.
fn load(path: &Path, preserved: &mut Preservation) -> Result<u64, SpoolError> {
    let file = File::open(path).map_err(SpoolError::io("read", path))?;
    let loaded = switchback_spool::load(file, preserved);
    Ok(loaded.map_err(|error| SpoolError::segment(path, error))?.records)
}
