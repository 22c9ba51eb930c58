//! Where data is kept: writable, room, and how long a flush takes.

use super::Check;
use crate::output::{bytes, seconds};
use rustix::fs::statvfs;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use switchback_rack::config::{RackConfig, SyncChoice};

const GROUP: &str = "machine";
/// Less than this is soon full, if not at the first compaction.
const ROOM_MIN: u64 = 256 << 20;
const ROOM_GOOD: u64 = 4 << 30;
/// Flushes that are measured, but not for longer than this.
const FLUSHES: usize = 20;
const FLUSHING_MAX: Duration = Duration::from_secs(3);
/// A disk slower than this makes synced writes noticeably slow.
const FLUSH_GOOD: Duration = Duration::from_millis(20);

pub(super) fn checks(config: &RackConfig) -> Vec<Check> {
    let directory = &config.rack.data;
    let Some(existing) = existing(directory) else {
        let found = format!("{} can't be looked at", directory.display());
        return vec![Check::missing(
            GROUP,
            "data",
            found,
            "choose another directory with --data DIR",
        )];
    };
    let probe = existing.join(format!(".switchback-doctor-{}", std::process::id()));
    let flush = measure(&probe);
    // An error is ignored: the file may not exist, and a check has no remedy for one that stays.
    let _ = fs::remove_file(&probe);
    let flush = match flush {
        Ok(flush) => flush,
        Err(error) => {
            let found = format!("{}: {error}", existing.display());
            let mend = "choose a directory you may write to with --data DIR, or change its owner";
            return vec![Check::missing(GROUP, "data", found, mend)];
        }
    };
    vec![room(directory, &existing), flushes(config, flush)]
}

/// The part of the path that is there.
fn existing(directory: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(directory).ok()?;
    absolute.ancestors().find(|part| part.is_dir()).map(Path::to_owned)
}

fn room(directory: &Path, existing: &Path) -> Check {
    let free = match statvfs(existing) {
        Ok(file_system) => file_system.f_bavail * file_system.f_frsize,
        Err(error) => {
            return Check::optional(
                GROUP,
                "data",
                format!("{}: {error}", directory.display()),
                "see whether it has room",
            );
        }
    };
    let found = format!("{}, {} free", directory.display(), bytes(free));
    let mend = "make room, or choose another disk with --data DIR";
    match free {
        free if free < ROOM_MIN => Check::missing(GROUP, "data", found, mend),
        free if free < ROOM_GOOD => Check::optional(GROUP, "data", found, mend),
        _ => Check::fits(GROUP, "data", found),
    }
}

/// Median time of forcing 4 KiB to the disk.
fn measure(probe: &Path) -> io::Result<Duration> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(probe)?;
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < FLUSHES && began.elapsed() < FLUSHING_MAX {
        file.write_all(&[0x5a; 4096])?;
        let flushing = Instant::now();
        file.sync_data()?;
        times.push(flushing.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2])
}

fn flushes(config: &RackConfig, flush: Duration) -> Check {
    let found = format!("4 KiB are on the disk after {} (median)", seconds(flush.as_secs_f64()));
    let synced = config.nodes.iter().any(|node| node.sync == SyncChoice::Always);
    match flush > FLUSH_GOOD && synced {
        true => Check::optional(
            GROUP,
            "fsync",
            found,
            "uncached writes wait for it, many at a time; a local SSD is faster, sync = \"everysec\" in [nodes] doesn't wait \
             but loses a second with the power",
        ),
        false => Check::fits(GROUP, "fsync", found),
    }
}
