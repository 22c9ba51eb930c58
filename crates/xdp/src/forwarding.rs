//! The kernel looks routes up for a frame only on an interface that forwards. This switches it on,
//! and off again; what a killed process left on is noted in a file, for the next one that starts.

use crate::{Error, sys};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Notes and settings are both gone when the machine starts again.
const NOTES: &str = "/run/switchback";
const SETTINGS: &str = "/proc/sys/net";
/// `ipv4-eth1-12`: family, interface, network namespace. A namespace's number never comes again.
const SEPARATOR: char = '-';

/// Forwarding as this process has switched it on; switched off again when dropped, if it was off.
#[derive(Debug)]
pub(crate) struct Forwarding {
    /// Opened once, so that it stays that of its namespace, also when a thread of another drops it.
    setting: File,
    note: Option<Note>,
}

/// What is to be restored. Locked as long as its writer lives.
#[derive(Debug)]
struct Note {
    path: PathBuf,
    before: String,
    _locked: Option<File>,
}

impl Forwarding {
    /// Switches it on for an interface of this thread's namespace. No other process may do so
    /// meanwhile: the caller has attached a program to it.
    pub(crate) fn enable(interface: &str, v4: bool) -> Result<Forwarding, Error> {
        let namespace =
            sys::namespace_cookie().map_err(Error::system("asking for the namespace"))?;
        let found =
            Forwarding::enable_in(Path::new(NOTES), Path::new(SETTINGS), namespace, interface, v4);
        found.map_err(Error::system("letting the interface forward"))
    }

    fn enable_in(
        notes: &Path,
        settings: &Path,
        namespace: u64,
        interface: &str,
        v4: bool,
    ) -> io::Result<Forwarding> {
        restore_left(notes, settings, namespace);
        let family = if v4 { "ipv4" } else { "ipv6" };
        let setting =
            OpenOptions::new().read(true).write(true).open(path(settings, family, interface))?;
        let before = read(&setting)?;
        if before == "1" {
            return Ok(Forwarding { setting, note: None });
        }
        let path = notes.join(format!("{family}{SEPARATOR}{interface}{SEPARATOR}{namespace}"));
        let locked = write_note(&path, &before);
        if let Err(error) = &locked {
            tracing::warn!(
                %error,
                note = %path.display(),
                "not noted: forwarding stays on if this process is killed"
            );
        }
        setting.write_all_at(b"1", 0)?;
        Ok(Forwarding { setting, note: Some(Note { path, before, _locked: locked.ok() }) })
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        let Some(note) = &self.note else { return };
        match self.setting.write_all_at(note.before.as_bytes(), 0) {
            // Of an interface that is gone there is nothing to restore.
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, note = %note.path.display(), "forwarding isn't restored")
            }
            // If it was never written, it isn't there.
            _ => drop(fs::remove_file(&note.path)),
        }
    }
}

fn path(settings: &Path, family: &str, interface: &str) -> PathBuf {
    settings.join(family).join("conf").join(interface).join("forwarding")
}

fn read(file: &File) -> io::Result<String> {
    let mut bytes = [0; 16];
    let length = file.read_at(&mut bytes, 0)?;
    Ok(String::from_utf8_lossy(&bytes[..length]).trim().to_owned())
}

/// Writes a note: into another file, which is locked before it gets the note's name.
fn write_note(path: &Path, before: &str) -> io::Result<File> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let aside = directory.join(format!(".{}", std::process::id()));
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&aside)?;
    file.try_lock()?;
    file.write_all(before.as_bytes())?;
    fs::rename(aside, path)?;
    Ok(file)
}

/// Restores what processes have left that live no more, in this namespace.
fn restore_left(notes: &Path, settings: &Path, namespace: u64) {
    for entry in fs::read_dir(notes).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((family, rest)) = name.split_once(SEPARATOR) else { continue };
        let Some((interface, of)) = rest.rsplit_once(SEPARATOR) else { continue };
        if !["ipv4", "ipv6"].contains(&family) || of.parse() != Ok(namespace) {
            continue;
        }
        let setting = path(settings, family, interface);
        match restore(&entry.path(), &setting) {
            Ok(true) => tracing::info!(
                interface,
                family,
                "forwarding is restored, which a killed process left on"
            ),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(%error, note = %entry.path().display(), "forwarding isn't restored")
            }
        }
    }
}

/// False if the note's writer lives, or another process was faster.
fn restore(note: &Path, setting: &Path) -> io::Result<bool> {
    let file = File::open(note)?;
    if file.try_lock().is_err() || file.metadata()?.nlink() == 0 {
        return Ok(false);
    }
    let before = read(&file)?;
    // The interface may be gone.
    if setting.exists() && ["0", "1"].contains(&before.as_str()) {
        fs::write(setting, before)?;
    }
    fs::remove_file(note)?;
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A failed unwrap is a failed test.
mod tests {
    use super::*;

    struct Machine {
        directory: tempfile::TempDir,
    }

    impl Machine {
        fn new() -> Machine {
            let directory = tempfile::tempdir().unwrap();
            for interface in ["eth0", "eth-1"] {
                fs::create_dir_all(directory.path().join("ipv4/conf").join(interface)).unwrap();
                fs::write(path(directory.path(), "ipv4", interface), "0\n").unwrap();
            }
            Machine { directory }
        }

        fn notes(&self) -> PathBuf {
            self.directory.path().join("notes")
        }

        fn count(&self) -> usize {
            fs::read_dir(self.notes()).map_or(0, Iterator::count)
        }

        fn enable(&self, namespace: u64, interface: &str) -> Forwarding {
            Forwarding::enable_in(&self.notes(), self.directory.path(), namespace, interface, true)
                .unwrap()
        }

        fn setting(&self, interface: &str) -> String {
            fs::read_to_string(path(self.directory.path(), "ipv4", interface))
                .unwrap()
                .trim()
                .to_owned()
        }
    }

    /// As kill -9 does: the lock is gone, the setting and the note stay.
    fn kill(mut forwarding: Forwarding) {
        forwarding.note.take().unwrap();
    }

    #[test]
    fn it_is_restored_at_the_end() {
        let machine = Machine::new();
        let forwarding = machine.enable(7, "eth0");
        assert_eq!((machine.setting("eth0"), machine.count()), ("1".into(), 1));
        drop(forwarding);
        assert_eq!((machine.setting("eth0"), machine.count()), ("0".into(), 0));
    }

    #[test]
    fn the_next_start_restores_what_a_killed_process_left_and_only_that() {
        let machine = Machine::new();
        kill(machine.enable(7, "eth-1"));
        assert_eq!((machine.setting("eth-1"), machine.count()), ("1".into(), 1));
        // A process in another namespace leaves the note alone.
        let elsewhere = machine.enable(8, "eth0");
        assert_eq!((machine.setting("eth-1"), machine.count()), ("1".into(), 2));
        drop(elsewhere);
        let alive = machine.enable(7, "eth0");
        assert_eq!((machine.setting("eth-1"), machine.count()), ("0".into(), 1));
        // A process that lives keeps what it has switched on.
        restore_left(&machine.notes(), machine.directory.path(), 7);
        assert_eq!((machine.setting("eth0"), machine.count()), ("1".into(), 1));
        drop(alive);
        assert_eq!((machine.setting("eth0"), machine.count()), ("0".into(), 0));
    }

    #[test]
    fn what_was_on_stays_on() {
        let machine = Machine::new();
        fs::write(path(machine.directory.path(), "ipv4", "eth0"), "1\n").unwrap();
        drop(machine.enable(7, "eth0"));
        assert_eq!((machine.setting("eth0"), machine.count()), ("1".into(), 0));
    }
}
