//! Directories and copies of them. After a crash, what was copied whole isn't copied again.

use anyhow::{Context, bail};
use indicatif::ProgressBar;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, TryRecvError};

/// A file that isn't whole yet is called so after its name.
const PART: &str = "part";

/// Copies all files of a directory, whose contents don't change, and those of directories in it. On
/// return they are on the disk. The bytes of all of them.
///
/// # Errors
/// What the system says; a signal came.
pub(crate) fn tree(
    from: &Path,
    to: &Path,
    bar: &ProgressBar,
    signals: &Receiver<i32>,
) -> anyhow::Result<u64> {
    let mut bytes = 0;
    fs::create_dir_all(to).with_context(|| format!("{} can't be made", to.display()))?;
    let entries = fs::read_dir(from).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    for entry in entries.with_context(|| format!("{} can't be read", from.display()))? {
        if signals.try_recv() != Err(TryRecvError::Empty) {
            bail!("stopped before the end; the same command goes on");
        }
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            bytes += tree(&from, &to, bar, signals)?;
        } else {
            bytes += file(&from, &to).with_context(|| {
                format!("{} can't be copied to {}", from.display(), to.display())
            })?;
            bar.set_message(format!("{}", to.display()));
        }
    }
    sync(to)?;
    Ok(bytes)
}

fn file(from: &Path, to: &Path) -> io::Result<u64> {
    let bytes = fs::metadata(from)?.len();
    if fs::metadata(to).is_ok_and(|there| there.len() == bytes) {
        return Ok(bytes);
    }
    let mut part = to.as_os_str().to_owned();
    part.push(".");
    part.push(PART);
    fs::copy(from, &part)?;
    File::open(&part)?.sync_all()?;
    fs::rename(&part, to)?;
    Ok(bytes)
}

/// A directory's entries are on the disk.
pub(crate) fn sync(directory: &Path) -> anyhow::Result<()> {
    let synced = File::open(directory).and_then(|it| it.sync_all());
    synced.with_context(|| format!("{} can't be synced", directory.display()))
}

/// Whether a directory has nothing in it, or isn't there. (A crash leaves a temporary file, whose
/// name begins with ".tmp".)
pub(crate) fn is_empty(directory: &Path) -> anyhow::Result<bool> {
    has_only(directory, |name| name.to_string_lossy().starts_with(".tmp"))
}

/// Whether all that a directory has is called so, or it isn't there.
pub(crate) fn has_only(directory: &Path, is_so: impl Fn(&OsStr) -> bool) -> anyhow::Result<bool> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        entries => entries.and_then(Iterator::collect::<io::Result<Vec<_>>>),
    };
    let entries = entries.with_context(|| format!("{} can't be read", directory.display()))?;
    Ok(entries.iter().all(|entry| is_so(&entry.file_name())))
}

/// One command at a time uses a directory.
pub(crate) fn lock(directory: &Path) -> anyhow::Result<File> {
    let name = directory.display();
    let lock = File::open(directory).with_context(|| format!("{name} can't be read"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => bail!("{name} is used by another command"),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("{name} can't be locked"))
        }
    }
}
