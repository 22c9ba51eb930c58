//! Checkpoints: copies of a directory that share its tables, in a directory in it, so that they are
//! on one file system.

use super::error::engine_error;
use super::open::{self, Stage};
use rocksdb::DB;
use rocksdb::checkpoint::Checkpoint;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use switchback_core::storage::EngineError;

/// What is being made.
const UNFINISHED: &str = "unfinished";
/// What is being removed is called so before its name.
const DROPPED: &str = "dropped-";

/// Where the checkpoints of the engine in this directory are, each in a directory that is named by
/// its number: `node-0/checkpoints/17`.
pub fn checkpoints_of(path: &Path) -> PathBuf {
    path.join("checkpoints")
}

/// The numbers of the checkpoints that there are.
fn numbers(checkpoints: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(checkpoints) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Makes a checkpoint, unless there is one with this or a higher number; drops those with lower
/// ones. Under its number it is whole and durable.
pub(super) fn make(db: &DB, path: &Path, number: u64) -> Result<(), EngineError> {
    let checkpoints = checkpoints_of(path);
    let name = checkpoints.display().to_string();
    let io = |error: io::Error| io_error(&name, &error);
    let there = numbers(&checkpoints).map_err(io)?;
    if there.last().is_some_and(|last| *last >= number) {
        return Ok(());
    }
    fs::create_dir_all(&checkpoints).map_err(io)?;
    let unfinished = checkpoints.join(UNFINISHED);
    remove(&unfinished).map_err(io)?;
    Checkpoint::new(db)
        .and_then(|checkpoint| checkpoint.create_checkpoint(&unfinished))
        .map_err(|error| engine_error(&name, &error))?;
    open::mark(&unfinished, Stage::Complete).map_err(|error| EngineError::Io(error.to_string()))?;
    fs::rename(&unfinished, checkpoints.join(number.to_string())).map_err(io)?;
    File::open(&checkpoints).and_then(|directory| directory.sync_all()).map_err(io)?;
    for lower in there {
        match drop_later(&checkpoints.join(lower.to_string())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // copied, and dropped
            dropped => dropped.map_err(io)?,
        }
    }
    // In a thread of its own: large files take their time.
    let remove = move || remove_dropped(&checkpoints);
    if let Err(error) = std::thread::Builder::new().name("checkpoints".into()).spawn(remove) {
        tracing::warn!(%error, "old checkpoints stay until the next one");
    }
    Ok(())
}

/// A directory loses its name, so that no half of it looks like a whole one while it is removed.
///
/// # Errors
/// What the system says.
pub fn drop_later(directory: &Path) -> io::Result<()> {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    fs::rename(directory, directory.with_file_name(format!("{DROPPED}{name}")))
}

/// Removes the directories of this one that were dropped. What can't be removed, or is left when
/// the process ends, is tried again by the next call.
pub fn remove_dropped(of: &Path) {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    let dropped = entries.filter(|it| it.file_name().to_string_lossy().starts_with(DROPPED));
    for path in dropped.map(|entry| entry.path()) {
        if let Err(error) = fs::remove_dir_all(&path) {
            tracing::warn!(
                path = %path.display(),
                %error,
                "a part of an old backup can't be removed"
            );
        }
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn io_error(name: &str, error: &io::Error) -> EngineError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            EngineError::NoSpace(name.to_owned())
        }
        _ => EngineError::Io(format!("{name}: {error}")),
    }
}
