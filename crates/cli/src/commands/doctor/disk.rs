//! How long the disk takes until data is on it.

use super::Check;
use crate::output::seconds;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use switchback_rack::config::{RackConfig, SyncChoice};
use switchback_rack::machine::{MACHINE, existing};

/// Flushes that are measured, but not for longer than this.
const FLUSHES: usize = 20;
const FLUSHING_MAX: Duration = Duration::from_secs(3);
/// A disk slower than this makes synced writes noticeably slow.
const FLUSH_GOOD: Duration = Duration::from_millis(20);

/// None if there is no directory to try it in, which another check says.
pub(super) fn flush(config: &RackConfig) -> Option<Check> {
    let directory = existing(&config.rack.data)?;
    let probe = directory.join(format!(".switchback-doctor-{}", std::process::id()));
    let measured = measure(&probe);
    // An error is ignored: the file may not exist, and a check has no remedy for one that stays.
    let _ = fs::remove_file(&probe);
    Some(match measured {
        Ok(flush) => flushes(config, flush),
        Err(error) => {
            let found = format!("{}: {error}", directory.display());
            let mend = "choose a directory you may write to with --data DIR, or change its owner";
            Check::missing(MACHINE, "fsync", found, mend)
        }
    })
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
            MACHINE,
            "fsync",
            found,
            "uncached writes wait for it, many at a time; a local SSD is faster, \
             sync = \"everysec\" in [nodes] doesn't wait but loses a second with the power",
        ),
        false => Check::fits(MACHINE, "fsync", found),
    }
}
