//! Whether a node may have lost records with its machine's power: its engine lets them lag, and the
//! machine has started anew since. What the operating system has is safe from the end of a process,
//! and a node that is stopped leaves nothing behind that isn't on the disk.

use anyhow::Context as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use switchback_engine::{Opened, Storage, SyncPolicy};

/// Names the machine's start, as long as it lasts.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// In a node's directory while the node runs: under which start of the machine.
const FILE: &str = "RUNNING";

/// Says that a node runs, until it has ended in order.
#[derive(Debug, Default)]
pub struct PowerGuard {
    path: Option<PathBuf>,
}

/// Opens node `index`'s storage. If it may have lost records that others of this many replicas
/// have, the node begins as one that has nothing (rule R18), and is left out of what it had.
///
/// # Errors
/// Those of [`Storage::open`], and of the guard's file.
pub fn open(storage: &Storage, index: u16, replicas: u16) -> anyhow::Result<(Opened, PowerGuard)> {
    let (engine, mut loaded) =
        storage.open().with_context(|| format!("node {index} can't be opened"))?;
    let directory = storage.directory.display();
    let (guard, may_have_lost) = PowerGuard::begin(storage, replicas)
        .with_context(|| format!("node {index} can't use {directory}"))?;
    if may_have_lost && loaded.state.take().is_some() {
        tracing::warn!(
            node = index,
            "the machine stopped while the node ran, which may have lost its last writes: it is \
             given what other replicas have"
        );
    }
    Ok(((engine, loaded), guard))
}

impl PowerGuard {
    /// A node begins. Whether it may have lost records; never if it has no other replicas, which
    /// would have them, or forces each to the disk.
    ///
    /// # Errors
    /// The file can't be read or written.
    pub fn begin(storage: &Storage, replicas: u16) -> io::Result<(PowerGuard, bool)> {
        if replicas == 1 || storage.sync == SyncPolicy::Always {
            return Ok((PowerGuard::default(), false));
        }
        // Where there is none, any start may be another one of the machine.
        PowerGuard::begin_in(&storage.directory, fs::read_to_string(BOOT_ID).ok().as_deref())
    }

    fn begin_in(directory: &Path, machine: Option<&str>) -> io::Result<(PowerGuard, bool)> {
        let path = directory.join(FILE);
        let may_have_lost = match fs::read_to_string(&path) {
            Ok(before) => machine.is_none_or(|machine| before != machine),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        let mut file = File::create(&path)?;
        file.write_all(machine.unwrap_or_default().as_bytes())?;
        file.sync_all()?;
        File::open(directory)?.sync_all()?;
        Ok((PowerGuard { path: Some(path) }, may_have_lost))
    }

    /// All that the node has is on the disk, and it changes nothing any more.
    pub fn end(self) {
        let removed = self.path.map_or(Ok(()), fs::remove_file);
        if let Err(error) = removed {
            tracing::warn!(%error, "a node's next start may take it for one that lost power");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_may_have_lost_records_only_if_its_machine_stopped_under_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let begin = |machine| PowerGuard::begin_in(directory.path(), machine).expect("writable");
        let (guard, may_have_lost) = begin(Some("one"));
        assert!(!may_have_lost, "its first start");
        drop(guard);
        let (guard, may_have_lost) = begin(Some("one"));
        assert!(!may_have_lost, "the process was killed");
        drop(guard);
        let (guard, may_have_lost) = begin(Some("two"));
        assert!(may_have_lost, "the machine was");
        guard.end();
        assert!(!begin(Some("three")).1, "it was stopped in order");
        assert!(begin(None).1, "who knows");
    }

    #[test]
    fn a_node_without_other_replicas_has_what_it_has() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(FILE);
        fs::write(&path, "another start").expect("writable");
        let mut storage = crate::blueprint::storage(&crate::config::RackConfig::default(), 0);
        storage.directory = directory.path().to_owned();
        storage.sync = SyncPolicy::None;
        assert!(!PowerGuard::begin(&storage, 1).expect("nothing is done").1);
        assert!(PowerGuard::begin(&storage, 2).expect("writable").1);
        storage.sync = SyncPolicy::Always;
        fs::write(&path, "another start").expect("writable");
        assert!(!PowerGuard::begin(&storage, 2).expect("nothing is done").1);
    }
}
