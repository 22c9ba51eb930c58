//! RocksDB's errors in the engines' words.

use crate::error::OpenError;
use rocksdb::ErrorKind;
use std::path::Path;
use switchback_core::storage::EngineError;

/// Why RocksDB doesn't open a directory. It has no codes for most of these, so its messages are
/// searched.
pub(super) fn open_error(path: &Path, error: &rocksdb::Error) -> OpenError {
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

fn is_full(reason: &str) -> bool {
    reason.contains("No space left on device")
        || reason.contains("Space limit reached")
        || reason.contains("quota exceeded")
}

/// An error of RocksDB in an open directory.
pub(super) fn engine_error(path: &str, error: &rocksdb::Error) -> EngineError {
    let reason = error.to_string();
    if is_full(&reason) {
        EngineError::NoSpace(path.to_owned())
    } else if error.kind() == ErrorKind::Corruption {
        EngineError::Corrupt(format!("{path}: {reason}"))
    } else {
        EngineError::Io(format!("{path}: {reason}"))
    }
}
