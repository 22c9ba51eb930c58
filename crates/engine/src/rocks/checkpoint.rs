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
/// What is being removed is called so before its number.
const DROPPED: &str = "dropped-";

/// Where the checkpoints of the engine in this directory are, each in a directory that is named by
/// its number: `node-0/checkpoints/17`.
pub fn checkpoints_of(path: &Path) -> PathBuf {
    path.join("checkpoints")
}

/// The numbers of the checkpoints that there are.
///
/// # Errors
/// The directory can't be read. Without one there are none.
pub fn numbers(checkpoints: &Path) -> io::Result<Vec<u64>> {
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
        // First it loses its name, so that no half of it looks like a whole one.
        let dropped = checkpoints.join(format!("{DROPPED}{lower}"));
        match fs::rename(checkpoints.join(lower.to_string()), dropped) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {} // fetched, and removed
            renamed => renamed.map_err(io)?,
        }
    }
    remove_dropped(checkpoints);
    Ok(())
}

/// Removes what was dropped, in a thread of its own: large files take their time. What can't be
/// removed, or is left when the process ends, is tried again with the next checkpoint.
fn remove_dropped(checkpoints: PathBuf) {
    let removing = std::thread::Builder::new().name("checkpoints".into()).spawn(move || {
        let entries = fs::read_dir(&checkpoints).into_iter().flatten().flatten();
        let dropped = entries.filter(|it| it.file_name().to_string_lossy().starts_with(DROPPED));
        for path in dropped.map(|entry| entry.path()) {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "a checkpoint can't be removed");
            }
        }
    });
    if let Err(error) = removing {
        tracing::warn!(%error, "old checkpoints stay until the next one");
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
