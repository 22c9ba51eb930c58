//! The controller's files: each replaced whole (written aside, synced, renamed, the directory
//! synced), each with a checksum.

use rustix::fs::{FlockOperation, flock};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use switchback_core::controller::{BackupFile, BackupPart, Files, StoreFile};
use switchback_core::topology::{CHAINS_MAX, ChainId};
use switchback_net::directory_refused;
use thiserror::Error;

/// What a file begins with, before a byte for its format.
const MAGIC: &[u8; 7] = b"SBCTRL\0";
const HEADER_BYTES: usize = 8 + 4 + 8;

/// For how long a lock that is held is tried again: a process that ends may hold it for a moment
/// yet, and so does a child between `fork` and `exec`, which has its parent's descriptors.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Why the controller's directory can't be used.
#[derive(Debug, Error)]
pub enum FilesError {
    /// Another process has it.
    #[error(
        "{} is in use by another process: stop that one, or give this one another directory \
         (`data` in [controller] of rack.toml, or --data of `switchback up`)",
        .0.display()
    )]
    Locked(PathBuf),
    /// A file is not what it should be.
    #[error(
        "{} is damaged ({}): restore the controller's directory from a backup. Without one, \
         nothing can read the nodes' records any more; to begin a new rack, move them away, too, \
         and the spool",
        .0.display(),
        .1
    )]
    Damaged(PathBuf, &'static str),
    /// Another version wrote it.
    #[error(
        "{} is of format {}, and this program reads formats 1 to {}: use the version of Switchback \
         that wrote it; nothing was touched",
        .0.display(),
        .1,
        StoreFile::FORMAT
    )]
    Format(PathBuf, u8),
    /// The system said no.
    #[error(
        "the controller can't use {}: {}; {}",
        .0.display(),
        directory_refused(.1),
        mend(.1)
    )]
    Io(PathBuf, io::Error),
}

/// What an operator can do. Another directory is for a new rack only: the controller of a rack that
/// has records needs the directory with their hash key.
fn mend(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "make room there",
        _ => {
            "mend that, or, for a new rack only, name another directory: `data` in [controller] of rack.toml, or --data of `switchback up`"
        }
    }
}

/// The directory of the controller's files, locked.
#[derive(Debug)]
pub struct ControllerFiles {
    directory: PathBuf,
    _lock: File,
}

/// The first chain's snapshot has the name that it had when there was no other. A backup has files
/// of the same names, in a directory of its own.
fn name(file: StoreFile) -> String {
    match file {
        StoreFile::Directory => "directory".to_owned(),
        StoreFile::Snapshot(chain) if chain == ChainId::default() => "snapshot".to_owned(),
        StoreFile::Snapshot(chain) => format!("snapshot-{}", chain.number()),
        StoreFile::Backup(BackupFile { number, part }) => {
            let file = match part {
                BackupPart::Directory => StoreFile::Directory,
                BackupPart::Snapshot(chain) => StoreFile::Snapshot(chain),
            };
            format!("{BACKUP}{number}/{}", name(file))
        }
    }
}

/// How the directory of a backup is called, before its number.
const BACKUP: &str = "backup-";

/// Where a controller's files of a backup are, in its directory.
pub fn backup_directory(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{BACKUP}{number}"))
}

/// The backups in a controller's directory, with their numbers. One without a file `directory`
/// isn't complete.
fn backups(directory: &Path) -> impl Iterator<Item = (u64, PathBuf)> {
    fs::read_dir(directory).into_iter().flatten().flatten().filter_map(|entry| {
        let number = entry.file_name().to_str()?.strip_prefix(BACKUP)?.parse().ok()?;
        Some((number, entry.path()))
    })
}

/// Tries to lock for `LOCK_WAIT`.
fn locked(lock: &File) -> bool {
    let until = Instant::now() + LOCK_WAIT;
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return true,
            Err(_) if Instant::now() < until => thread::sleep(Duration::from_millis(5)),
            Err(_) => return false,
        }
    }
}

impl ControllerFiles {
    /// Makes, locks and reads a directory.
    pub fn open(directory: &Path) -> Result<(ControllerFiles, Files), FilesError> {
        let io_error = |error| FilesError::Io(directory.to_path_buf(), error);
        fs::create_dir_all(directory).map_err(io_error)?;
        let lock = File::create(directory.join("lock")).map_err(io_error)?;
        if !locked(&lock) {
            return Err(FilesError::Locked(directory.to_path_buf()));
        }
        let files = ControllerFiles { directory: directory.to_path_buf(), _lock: lock };
        let mut loaded = Files { directory: files.read(StoreFile::Directory)?, ..Files::default() };
        for chain in (0..CHAINS_MAX).map(ChainId::new) {
            if let Some(snapshot) = files.read(StoreFile::Snapshot(chain))? {
                loaded.snapshots.insert(chain, snapshot);
            }
        }
        Ok((files, loaded))
    }

    fn read(&self, file: StoreFile) -> Result<Option<Vec<u8>>, FilesError> {
        let path = self.directory.join(name(file));
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(FilesError::Io(path, error)),
        };
        let Some((header, content)) = bytes.split_at_checked(HEADER_BYTES) else {
            return Err(FilesError::Damaged(path, "too short"));
        };
        if &header[..7] != MAGIC {
            return Err(FilesError::Damaged(path, "not a file of a controller's"));
        }
        let format = header[7];
        if !(1..=StoreFile::FORMAT).contains(&format) {
            return Err(FilesError::Format(path, format));
        }
        let sum = u32::from_be_bytes(header[8..12].try_into().expect("four bytes"));
        let length = u64::from_be_bytes(header[12..20].try_into().expect("eight bytes"));
        if length != content.len() as u64 || sum != crc32fast::hash(content) {
            return Err(FilesError::Damaged(path, "its checksum doesn't fit"));
        }
        if format == StoreFile::FORMAT {
            return Ok(Some(content.to_vec()));
        }
        // The controller stores its directory as it starts, and so replaces the file.
        let upgraded = file.upgrade(format, content.to_vec());
        upgraded.map(Some).map_err(|_| FilesError::Damaged(path, "its contents can't be decoded"))
    }

    /// Replaces a file; on return it is on the disk. After an error the old one is still there.
    pub fn store(&self, file: StoreFile, content: &[u8]) -> Result<(), FilesError> {
        let path = self.directory.join(name(file));
        let aside = path.with_extension("new");
        let parent = path.parent().expect("a file is in a directory");
        if let StoreFile::Backup(BackupFile { number, .. }) = file
            && !parent.exists()
        {
            fs::create_dir_all(parent)
                .map_err(|error| FilesError::Io(parent.to_path_buf(), error))?;
            self.drop_backups(|other, path| other < number && !path.join("directory").exists());
        }
        self.write(&aside, content).map_err(|error| FilesError::Io(aside.clone(), error))?;
        let renamed = fs::rename(&aside, &path).and_then(|()| File::open(parent)?.sync_all());
        renamed.map_err(|error| FilesError::Io(path, error))?;
        if let StoreFile::Backup(BackupFile { number, part: BackupPart::Directory }) = file {
            let synced = File::open(&self.directory).and_then(|it| it.sync_all());
            synced.map_err(|error| FilesError::Io(self.directory.clone(), error))?;
            self.drop_backups(|other, _| other < number);
        }
        Ok(())
    }

    /// Backups that are of no use any more go. What can't be removed is tried again with the next
    /// one.
    fn drop_backups(&self, is_useless: impl Fn(u64, &Path) -> bool) {
        let all = backups(&self.directory);
        for (_, path) in all.filter(|(number, path)| is_useless(*number, path)) {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::warn!(path = %path.display(), %error, "an old backup can't be removed");
            }
        }
    }

    fn write(&self, aside: &Path, content: &[u8]) -> io::Result<()> {
        let mut to = File::create(aside)?;
        to.write_all(MAGIC)?;
        to.write_all(&[StoreFile::FORMAT])?;
        to.write_all(&crc32fast::hash(content).to_be_bytes())?;
        to.write_all(&(content.len() as u64).to_be_bytes())?;
        to.write_all(content)?;
        to.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use switchback_testing::Tmpfs;

    #[test]
    fn a_file_comes_back_whole_or_is_called_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let (files, found) = ControllerFiles::open(directory.path()).unwrap();
        assert!(found.directory.is_none() && found.snapshots.is_empty());
        files.store(StoreFile::Directory, b"one").unwrap();
        files.store(StoreFile::Directory, b"two").unwrap();
        assert!(matches!(ControllerFiles::open(directory.path()), Err(FilesError::Locked(_))));
        drop(files);
        let (files, found) = ControllerFiles::open(directory.path()).unwrap();
        assert_eq!(found.directory.as_deref(), Some(&b"two"[..]));
        drop(files);
        let path = directory.path().join("directory");
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(ControllerFiles::open(directory.path()), Err(FilesError::Damaged(..))));
    }

    const SNAPSHOT: StoreFile = StoreFile::Snapshot(ChainId::new(0));

    #[test]
    fn each_chain_has_a_snapshot_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let (files, _) = ControllerFiles::open(directory.path()).unwrap();
        let chains = [0, 1, CHAINS_MAX - 1].map(ChainId::new);
        for chain in chains {
            files.store(StoreFile::Snapshot(chain), &[chain.number() as u8]).unwrap();
        }
        drop(files);
        let (_, found) = ControllerFiles::open(directory.path()).unwrap();
        let contents = chains.map(|chain| (chain, vec![chain.number() as u8]));
        assert_eq!(found.snapshots, chains_to(contents));
        let names = [("snapshot", 0), ("snapshot-1", 1), ("snapshot-63", 63)];
        for (name, content) in names {
            let stored = fs::read(directory.path().join(name)).unwrap();
            assert_eq!(stored, file_of(StoreFile::FORMAT, &[content]), "{name}");
        }
    }

    fn chains_to<const N: usize>(
        contents: [(ChainId, Vec<u8>); N],
    ) -> std::collections::BTreeMap<ChainId, Vec<u8>> {
        contents.into()
    }

    /// A file of this format, with these contents.
    fn file_of(format: u8, content: &[u8]) -> Vec<u8> {
        let sum = crc32fast::hash(content).to_be_bytes();
        [&MAGIC[..], &[format], &sum, &(content.len() as u64).to_be_bytes(), content].concat()
    }

    #[test]
    fn an_older_format_is_read_and_the_next_store_replaces_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("directory");
        // Two partitions and no sessions, as controller/directory.rs of core has them.
        let was = [&[1, 2, 3, 4, 5][..], &[6; 16], &[2, 1, 0, 1, 1], &[0, 0, 0]].concat();
        fs::write(&path, file_of(1, &was)).unwrap();
        fs::write(directory.path().join("snapshot"), file_of(1, b"the same")).unwrap();
        let (files, found) = ControllerFiles::open(directory.path()).unwrap();
        let upgraded = found.directory.unwrap();
        assert_eq!(Ok(&upgraded), StoreFile::Directory.upgrade(1, was.clone()).as_ref());
        assert_eq!(found.snapshots[&ChainId::new(0)], b"the same");
        assert_eq!(fs::read(&path).unwrap(), file_of(1, &was), "opening changes nothing");
        files.store(StoreFile::Directory, &upgraded).unwrap();
        assert_eq!(fs::read(&path).unwrap(), file_of(StoreFile::FORMAT, &upgraded));
        drop(files);
        // As if killed while the file was replaced.
        fs::write(directory.path().join("directory.new"), b"SBCT").unwrap();
        assert_eq!(ControllerFiles::open(directory.path()).unwrap().1.directory, Some(upgraded));
        fs::write(&path, file_of(1, &was[..9])).unwrap();
        assert!(matches!(ControllerFiles::open(directory.path()), Err(FilesError::Damaged(..))));
    }

    /// Of no file that differs in one bit from what was stored, or ends early, are the contents
    /// others than those that were stored.
    #[test]
    fn a_damaged_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("snapshot");
        let (files, _) = ControllerFiles::open(directory.path()).unwrap();
        let whole = file_of(StoreFile::FORMAT, b"records");
        let read = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            files.read(SNAPSHOT)
        };
        assert_eq!(read(&whole).unwrap().unwrap(), b"records");
        for at in 0..whole.len() {
            assert!(matches!(read(&whole[..at]), Err(FilesError::Damaged(..))), "cut at {at}");
            for bit in 0..u8::BITS {
                let mut bytes = whole.clone();
                bytes[at] ^= 1 << bit;
                match read(&bytes) {
                    // A snapshot is the same in older formats.
                    Ok(contents) => assert_eq!(contents.unwrap(), b"records", "bit {bit} at {at}"),
                    Err(FilesError::Format(..)) => assert_eq!(at, MAGIC.len()),
                    Err(error) => assert!(matches!(error, FilesError::Damaged(..)), "{error}"),
                }
            }
        }
    }

    #[test]
    fn a_later_format_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("directory");
        for format in [0, StoreFile::FORMAT + 1] {
            fs::write(&path, file_of(format, b"whatever")).unwrap();
            let error =
                ControllerFiles::open(directory.path()).map(|_| ()).unwrap_err().to_string();
            let expected = format!(
                "{} is of format {format}, and this program reads formats 1 to {}",
                path.display(),
                StoreFile::FORMAT
            );
            assert!(
                error.starts_with(&expected)
                    && error.contains("the version of Switchback that wrote it"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_snapshot_that_finds_no_room_leaves_the_old_one() {
        let Some(mounted) = Tmpfs::mount(1 << 10) else { return };
        let directory = mounted.path().join("controller");
        let (files, _) = ControllerFiles::open(&directory).unwrap();
        files.store(SNAPSHOT, &[1; 300_000]).unwrap();
        let error = files.store(SNAPSHOT, &[2; 900_000]).unwrap_err();
        assert!(error.to_string().contains("no space is left on its device"), "{error}");
        drop(files);
        let (files, found) = ControllerFiles::open(&directory).unwrap();
        assert_eq!(found.snapshots[&ChainId::new(0)], [1; 300_000]);
        files.store(SNAPSHOT, &[3; 300_000]).unwrap();
        drop(files);
        assert_eq!(
            ControllerFiles::open(&directory).unwrap().1.snapshots[&ChainId::new(0)],
            [3; 300_000]
        );
    }
}
