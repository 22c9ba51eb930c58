//! Why a directory can't be opened, said so that somebody can do something about it; and RocksDB's errors in our words.

use rocksdb::ErrorKind;
use std::path::{Path, PathBuf};
use switchback_core::storage::EngineError;
use thiserror::Error;

/// Why a directory can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Somebody has it open.
    #[error(
        "{} is in use: another Switchback node (or another process) has it open. Stop that one, or give this node a directory \
         of its own",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file or something else is in its place.
    #[error("{} is not a directory. A node keeps its records in a directory; name another path", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// We may not write there.
    #[error("{} can't be written to ({reason}). The node's user needs to own it, on a file system that is not read-only", path.display())]
    NotWritable {
        /// The directory.
        path: PathBuf,
        /// What the operating system says.
        reason: String,
    },
    /// It belongs to another program.
    #[error(
        "{} holds files that are not Switchback's (such as '{found}'). Name an empty or a new directory; nothing was touched",
        path.display()
    )]
    Foreign {
        /// The directory.
        path: PathBuf,
        /// A file that lies there.
        found: String,
    },
    /// The file that says whose it is says something else.
    #[error(
        "{} is not as a node writes it. If a node's records are beside it, copy the file from another node's directory (it is the same in \
         all); if not, name an empty or a new directory; nothing was touched",
        path.display()
    )]
    Marker {
        /// The file.
        path: PathBuf,
    },
    /// Another version wrote it.
    #[error(
        "{} is of storage format {found}, this program reads format {expected}. Use the version of Switchback that wrote it; \
         nothing was touched",
        path.display()
    )]
    Version {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: String,
        /// Ours.
        expected: u32,
    },
    /// Its contents are damaged.
    #[error(
        "{} is damaged: {detail}. Restore it from a backup; nothing was changed",
        path.display()
    )]
    Corrupt {
        /// The directory.
        path: PathBuf,
        /// What is damaged.
        detail: String,
        /// The damage is in the log: [`Options::salvage`](crate::Options::salvage) would cut it there.
        log: bool,
    },
    /// The disk is full.
    #[error("no space left on the device that holds {}. Opening replays the log and needs some; make room and start again", path.display())]
    NoSpace {
        /// The directory.
        path: PathBuf,
    },
    /// Anything else.
    #[error("{} can't be opened: {reason}. Mend that; only a new rack may have another directory (data in [[node]], or --data)", path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the operating system or RocksDB says.
        reason: String,
    },
}

impl OpenError {
    pub(crate) fn from_io(path: &Path, error: &std::io::Error) -> OpenError {
        use std::io::ErrorKind::{NotADirectory, PermissionDenied, ReadOnlyFilesystem, StorageFull};
        let (path, reason) = (path.to_path_buf(), error.to_string());
        match error.kind() {
            PermissionDenied | ReadOnlyFilesystem => OpenError::NotWritable { path, reason },
            NotADirectory => OpenError::NotADirectory { path },
            StorageFull => OpenError::NoSpace { path },
            _ => OpenError::Io { path, reason },
        }
    }

    /// RocksDB has no codes for most of these: its messages must do.
    pub(crate) fn from_rocksdb(path: &Path, error: &rocksdb::Error) -> OpenError {
        let (path, reason) = (path.to_path_buf(), error.to_string());
        let has = |text: &str| reason.contains(text);
        if has("lock hold by current process") || has("While lock file") {
            OpenError::Locked { path }
        } else if is_full(&reason) {
            OpenError::NoSpace { path }
        } else if has("Permission denied") || has("Read-only file system") {
            OpenError::NotWritable { path, reason }
        } else if has("does not exist (create_if_missing is false)") {
            let detail = "its file CURRENT is missing, though a node wrote here before".to_owned();
            OpenError::Corrupt { path, detail, log: false }
        } else if has("No such file or directory") {
            OpenError::Corrupt { path, detail: format!("a file is missing ({reason})"), log: false }
        } else if error.kind() == ErrorKind::Corruption {
            // Of damage in the log, alone, RocksDB doesn't say where it is.
            let log = !has(".sst") && !has("MANIFEST") && !has("CURRENT");
            let detail = if log { format!("its write-ahead log (*.log): {reason}") } else { reason };
            OpenError::Corrupt { path, detail, log }
        } else {
            OpenError::Io { path, reason }
        }
    }
}

fn is_full(reason: &str) -> bool {
    reason.contains("No space left on device")
        || reason.contains("Space limit reached")
        || reason.contains("quota exceeded")
}

/// An error of RocksDB in an open directory.
pub(crate) fn engine_error(path: &str, error: &rocksdb::Error) -> EngineError {
    let reason = error.to_string();
    if is_full(&reason) {
        EngineError::NoSpace(path.to_owned())
    } else if error.kind() == ErrorKind::Corruption {
        EngineError::Corrupt(format!("{path}: {reason}"))
    } else {
        EngineError::Io(format!("{path}: {reason}"))
    }
}
