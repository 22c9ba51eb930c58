//! Why a directory can't be opened, and what an operator can do about it.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why a directory can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "{} is in use: another Switchback node (or another process) has it open. Stop that one, or \
         give this node a directory of its own",
        path.display()
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// A file or something else is in its place.
    #[error(
        "{} is not a directory. A node keeps its records in a directory; name another path",
        path.display()
    )]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// We may not write there.
    #[error(
        "{} can't be written to ({reason}). The node's user needs to own it, on a file system that is not read-only",
        path.display()
    )]
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
        "{} is not as a node writes it. If a node's records are beside it, copy the file from \
         another node's directory (it is the same in all); if not, name an empty or a new \
         directory; nothing was touched",
        path.display()
    )]
    Marker {
        /// The file.
        path: PathBuf,
    },
    /// Another version wrote it.
    #[error(
        "{} is of storage format {found}, and this program reads formats {oldest} to {newest}. Use \
         the version of Switchback that wrote it; nothing was touched",
        path.display()
    )]
    Version {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: String,
        /// The first that this program reads.
        oldest: u32,
        /// The last.
        newest: u32,
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
        /// The damage is in the log: the engine's `salvage` option would cut it there.
        log: bool,
    },
    /// The disk is full.
    #[error(
        "no space left on the device that holds {}. Opening replays the log and needs some; make room and start again",
        path.display()
    )]
    NoSpace {
        /// The directory.
        path: PathBuf,
    },
    /// Anything else.
    #[error(
        "{} can't be opened: {reason}. Mend that; only a new rack may have another directory (data in [[node]], or --data)",
        path.display()
    )]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the operating system or RocksDB says.
        reason: String,
    },
}

impl OpenError {
    /// What an error of the operating system means for an opening.
    pub(crate) fn from_io(path: &Path, error: &std::io::Error) -> OpenError {
        use std::io::ErrorKind::{
            NotADirectory, PermissionDenied, ReadOnlyFilesystem, StorageFull,
        };
        let (path, reason) = (path.to_path_buf(), error.to_string());
        match error.kind() {
            PermissionDenied | ReadOnlyFilesystem => OpenError::NotWritable { path, reason },
            NotADirectory => OpenError::NotADirectory { path },
            StorageFull => OpenError::NoSpace { path },
            _ => OpenError::Io { path, reason },
        }
    }
}
