//! Whose directory is it? A marker file answers before RocksDB touches anything.

use crate::error::OpenError;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The file that makes a directory ours.
pub const FORMAT_FILE: &str = "SWITCHBACK";
/// The storage format that this version writes. Formats 1 and 2, which it reads too, differ in the
/// node's own state, which says itself what format it has, and know one chain of switches.
pub const FORMAT_VERSION: u32 = 3;
/// The oldest format that this version reads.
const FORMAT_OLDEST: u32 = 1;

const FIRST_LINE: &str = "Switchback node storage";
const TEMPORARY: &str = "SWITCHBACK.tmp";

/// How far the directory's first opening got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// RocksDB may not have made its files yet.
    Creating,
    /// It has, in an older format, in which an older program would still open it.
    Older,
    /// It has: if they are gone, records are lost, and making new ones would hide that.
    Complete,
}

/// Makes the directory if need be, and sees to it that it is ours.
pub(crate) fn claim(path: &Path) -> Result<Stage, OpenError> {
    let io = |error: std::io::Error| OpenError::from_io(path, &error);
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => {
            return Err(OpenError::NotADirectory { path: path.to_path_buf() });
        }
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs::create_dir_all(path).map_err(io)?
        }
        Err(error) => return Err(io(error)),
    }
    match fs::read_to_string(path.join(FORMAT_FILE)) {
        Ok(marker) => parse(path, &marker),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            refuse_foreign(path)?;
            mark(path, Stage::Creating)?;
            Ok(Stage::Creating)
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => parse(path, ""),
        Err(error) => Err(io(error)),
    }
}

fn refuse_foreign(path: &Path) -> Result<(), OpenError> {
    let io = |error: std::io::Error| OpenError::from_io(path, &error);
    for entry in fs::read_dir(path).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        // A fresh file system has lost+found; a crash within `mark` leaves its temporary file.
        if name != "lost+found" && name != TEMPORARY {
            let found = name.to_string_lossy().into_owned();
            return Err(OpenError::Foreign { path: path.to_path_buf(), found });
        }
    }
    Ok(())
}

fn parse(path: &Path, marker: &str) -> Result<Stage, OpenError> {
    let mut lines = marker.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err(OpenError::Marker { path: path.join(FORMAT_FILE) });
    }
    let found = lines.next().and_then(|line| line.strip_prefix("format ")).unwrap_or("unknown");
    let Some(format) = (FORMAT_OLDEST..=FORMAT_VERSION).find(|format| found == format.to_string())
    else {
        let (oldest, newest) = (FORMAT_OLDEST, FORMAT_VERSION);
        return Err(OpenError::Version {
            path: path.to_path_buf(),
            found: found.to_owned(),
            oldest,
            newest,
        });
    };
    Ok(match lines.next() {
        Some("complete") if format == FORMAT_VERSION => Stage::Complete,
        Some("complete") => Stage::Older,
        _ => Stage::Creating,
    })
}

/// Writes the marker, with the format of this version: whole or not at all, and durably.
pub(crate) fn mark(path: &Path, stage: Stage) -> Result<(), OpenError> {
    let stage = if stage == Stage::Creating { "creating" } else { "complete" };
    let write = || -> std::io::Result<()> {
        let temporary = path.join(TEMPORARY);
        let mut file = File::create(&temporary)?;
        write!(file, "{FIRST_LINE}\nformat {FORMAT_VERSION}\n{stage}\n")?;
        file.sync_all()?;
        fs::rename(&temporary, path.join(FORMAT_FILE))?;
        File::open(path)?.sync_all()
    };
    write().map_err(|error| OpenError::from_io(path, &error))
}
