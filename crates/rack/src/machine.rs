//! Whether a machine fits a rack: what can be looked at before a rack starts as well as while it
//! runs, and disturbs neither.

use crate::config::{LinkKind, Node, Protection, RackConfig, Shape};
use crate::descriptors;
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use std::fs::read_to_string;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use switchback_terminal::{bytes, grouped};

/// The group of what every part needs.
pub const MACHINE: &str = "machine";
/// 1 January 2025: no machine that runs this is older.
const EARLIEST_UNIX_S: u64 = 1_735_689_600;
/// Less room than this is soon full, if not at the first compaction.
const ROOM_MIN: u64 = 256 << 20;
const ROOM_GOOD: u64 = 4 << 30;

/// What a check came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fitness {
    /// As it should be.
    Fits,
    /// Works without; something is slower or can't be done.
    Optional,
    /// A rack needs it.
    Missing,
}

/// One check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// What needs it: `machine`, `rack`, `kernel datapath`, `build`.
    pub group: String,
    /// What is looked at.
    pub name: String,
    /// What it came to.
    pub verdict: Fitness,
    /// What was found.
    pub found: String,
    /// How to mend it; only if it doesn't fit.
    pub mend: Option<String>,
}

impl Check {
    /// As it should be.
    pub fn fits(group: &str, name: &str, found: impl Into<String>) -> Check {
        Check {
            group: group.into(),
            name: name.into(),
            verdict: Fitness::Fits,
            found: found.into(),
            mend: None,
        }
    }

    /// Better otherwise; `mend` says how.
    pub fn optional(
        group: &str,
        name: &str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Check {
        let (verdict, mend) = (Fitness::Optional, Some(mend.into()));
        Check { verdict, mend, ..Check::fits(group, name, found) }
    }

    /// Needed; `mend` says how to have it.
    pub fn missing(
        group: &str,
        name: &str,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Check {
        let verdict = Fitness::Missing;
        Check { verdict, ..Check::optional(group, name, found, mend) }
    }
}

/// What a rack needs of this machine. `in_kernel`: the kernel is to be the switch of a rack in one
/// process.
pub fn checks(config: &RackConfig, in_kernel: bool) -> Vec<Check> {
    let mut checks = vec![kernel(), cores(), memory(config), open_files(config), clock()];
    checks.push(protection(config));
    checks.push(room(&config.rack.data));
    let memory =
        config.shape == Shape::Embedded && config.links.kind == LinkKind::Memory && !in_kernel;
    for (name, wanted_kb) in
        [("rmem_max", config.links.receive_buffer_kb), ("wmem_max", config.links.send_buffer_kb)]
    {
        checks.push(buffer(name, u64::from(wanted_kb) << 10, memory));
    }
    checks
}

fn kernel() -> Check {
    let release =
        read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    match version_in(&release) {
        Some(version) if version >= (4, 18) => {
            Check::fits(MACHINE, "kernel", format!("Linux {release}"))
        }
        Some(_) => Check::missing(
            MACHINE,
            "kernel",
            format!("Linux {release}"),
            "a rack needs Linux 4.18 or newer: update the system",
        ),
        None => Check::missing(
            MACHINE,
            "kernel",
            "no Linux kernel",
            "a rack runs on Linux; a container or virtual machine will do",
        ),
    }
}

fn cores() -> Check {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match cores {
        1 => Check::optional(
            MACHINE,
            "cores",
            "1",
            "everything takes turns on one core: throughput will be low",
        ),
        cores => Check::fits(MACHINE, "cores", cores.to_string()),
    }
}

fn memory(config: &RackConfig) -> Check {
    let mb = |mb: u32| u64::from(mb) << 20;
    let of_engine = |node: &Node| (node.engine.memory_bytes)(&node.options);
    let nodes: u64 = config.nodes.iter().map(of_engine).sum();
    // A slot has the value, a key of up to 128 bytes and its state.
    let slots: u64 = config
        .cache
        .classes
        .iter()
        .map(|&(value, slots)| u64::from(slots) * (u64::from(value) + 250))
        .sum();
    let needed = nodes + slots + mb(config.client.preserve_max_mb);
    let info = read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info.lines().find_map(|line| {
        let kb = line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB")?;
        kb.parse::<u64>().ok()
    });
    // What this process has taken already is part of what it takes.
    let Some(available) = available.map(|kb| (kb << 10) + resident_bytes()) else {
        return Check::optional(
            MACHINE,
            "memory",
            "unknown",
            format!("this rack takes up to {}", bytes(needed)),
        );
    };
    let found = format!("{} free; this rack takes up to {}", bytes(available), bytes(needed));
    match available >= needed {
        true => Check::fits(MACHINE, "memory", found),
        false => {
            let settings = config.nodes[0].engine.settings;
            let keys: Vec<_> = settings.iter().map(|setting| setting.key).collect();
            let keys = keys.join(" and ");
            let mend =
                format!("lower {keys} in [nodes], records in [cache], preserve_max_mb in [client]");
            Check::optional(MACHINE, "memory", found, mend)
        }
    }
}

/// The memory that this process has; 0 if the kernel doesn't tell.
fn resident_bytes() -> u64 {
    let text = read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

fn open_files(config: &RackConfig) -> Check {
    let (wanted, allowed) = (descriptors::wanted(config), descriptors::allowed());
    let found = format!("{} open files; this rack may want {}", shown(allowed), grouped(wanted));
    if allowed >= wanted {
        return Check::fits(MACHINE, "open files", found);
    }
    let mend = format!(
        "'* hard nofile {wanted}' in /etc/security/limits.conf, or LimitNOFILE={wanted} in the \
         systemd unit; or lower max_clients in [gateway]: else the rack takes fewer clients"
    );
    Check::optional(MACHINE, "open files", found, mend)
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { grouped(limit) }
}

fn clock() -> Check {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now < EARLIEST_UNIX_S {
        let found = format!("{now} s since 1970: it was never set");
        return Check::missing(
            MACHINE,
            "clock",
            found,
            "set it (timedatectl set-ntp true): expiry times depend on it",
        );
    }
    match synchronized() {
        true => Check::fits(MACHINE, "clock", "set, and kept by a time service"),
        false => Check::optional(
            MACHINE,
            "clock",
            "set, but nothing keeps it",
            "timedatectl set-ntp true, or install chrony: nodes of a distributed rack expire keys by their clocks",
        ),
    }
}

/// Whether the kernel's clock is synchronized.
fn synchronized() -> bool {
    // SAFETY: all-zero is a valid timex, and with `modes` 0 the call only reads the clock and fills
    // the struct in.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&mut timex)
    };
    (0..libc::TIME_ERROR).contains(&state)
}

/// Who protects what was acknowledged and no node has yet.
fn protection(config: &RackConfig) -> Check {
    let protection = config.protection();
    let (group, name, found) = ("rack", "protection", protection.to_string());
    match protection {
        Protection::ClientsOfOneDomain => Check::optional(
            group,
            name,
            found,
            "switches on two hosts, or with two names in `domain` of [[switch]], protect it without clients",
        ),
        _ => Check::fits(group, name, found),
    }
}

/// The part of the path that is there; none if the working directory can't be told.
pub fn existing(directory: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(directory).ok()?;
    absolute.ancestors().find(|part| part.is_dir()).map(Path::to_owned)
}

fn room(directory: &Path) -> Check {
    let name = "data";
    let file_system = existing(directory).map(|existing| statvfs(&existing));
    let free = match file_system {
        Some(Ok(file_system)) => file_system.f_bavail * file_system.f_frsize,
        Some(Err(error)) => {
            let found = format!("{}: {error}", directory.display());
            return Check::optional(MACHINE, name, found, "see whether it has room");
        }
        None => {
            let found = format!("{} can't be looked at", directory.display());
            let mend = "choose another directory with --data DIR";
            return Check::missing(MACHINE, name, found, mend);
        }
    };
    let found = format!("{}, {} free", directory.display(), bytes(free));
    let mend = "make room, or choose another disk with --data DIR";
    match free {
        free if free < ROOM_MIN => Check::missing(MACHINE, name, found, mend),
        free if free < ROOM_GOOD => Check::optional(MACHINE, name, found, mend),
        _ => Check::fits(MACHINE, name, found),
    }
}

/// `unused`: the rack's parts talk in memory, so there is nothing to mend.
fn buffer(name: &'static str, wanted: u64, unused: bool) -> Check {
    let file = format!("/proc/sys/net/core/{name}");
    let Some(limit) = read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok())
    else {
        return Check::optional(
            MACHINE,
            name,
            "unknown",
            format!("UDP sockets ask for {}", bytes(wanted)),
        );
    };
    let found = format!("{} a UDP socket, {} are asked for", bytes(limit), bytes(wanted));
    match limit >= wanted || unused {
        true if unused => Check::fits(
            MACHINE,
            name,
            format!("{} a UDP socket (unused: links in memory)", bytes(limit)),
        ),
        true => Check::fits(MACHINE, name, found),
        false => {
            let mend = format!(
                "sysctl -w net.core.{name}={wanted}; bursts beyond the limit are lost and sent again"
            );
            Check::optional(MACHINE, name, found, mend)
        }
    }
}

/// The first number of dotted digits in a text: `(1, 95)` of "rustc 1.95.0".
pub fn version_in(text: &str) -> Option<(u32, u32)> {
    let starts = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let word = text.split(|c: char| !c.is_ascii_digit() && c != '.').find(starts)?;
    let mut numbers = word.split('.');
    Some((
        numbers.next()?.parse().ok()?,
        numbers.next().and_then(|minor| minor.parse().ok()).unwrap_or(0),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    #[test]
    fn versions_are_found() {
        assert_eq!(version_in("rustc 1.95.0 (59807616e 2026-04-14)"), Some((1, 95)));
        assert_eq!(version_in("Debian clang version 19.1.7 (3~deb12u1)"), Some((19, 1)));
        assert_eq!(version_in("6.1.0-13-amd64"), Some((6, 1)));
        assert_eq!((version_in("none"), version_in("99999999999999")), (None, None));
    }

    #[test]
    fn what_a_rack_needs_is_looked_at_without_a_trace() {
        let directory = tempfile::tempdir().unwrap();
        let data = Some(directory.path().join("new/data"));
        let overrides = Overrides { data, ..Overrides::default() };
        let checks = checks(&RackConfig::load(None, &overrides).unwrap(), false);
        let names: Vec<_> = checks.iter().map(|check| &*check.name).collect();
        let expected = [
            "kernel",
            "cores",
            "memory",
            "open files",
            "clock",
            "protection",
            "data",
            "rmem_max",
            "wmem_max",
        ];
        assert_eq!(names, expected);
        let mended = |check: &Check| check.mend.is_some() != (check.verdict == Fitness::Fits);
        assert!(checks.iter().all(mended), "{checks:?}");
        assert!(!directory.path().join("new").exists());
    }

    #[test]
    fn a_disk_without_room_is_missing_one() {
        // A file system that has none.
        let check = room(Path::new("/proc"));
        assert_eq!((check.verdict, check.mend.is_some()), (Fitness::Missing, true), "{check:?}");
    }
}
