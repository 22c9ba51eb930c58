//! Kernel, processors, memory, open files, clock, tools.

use super::{Check, Verdict, version_in};
use crate::output::{bytes, grouped};
use std::fs::read_to_string;
use std::time::{SystemTime, UNIX_EPOCH};
use switchback_rack::config::{Node, RackConfig};
use switchback_rack::descriptors;

const GROUP: &str = "machine";
/// 1 January 2025: no machine that runs this is older.
const EARLIEST_UNIX_S: u64 = 1_735_689_600;

pub(super) fn checks(config: &RackConfig) -> Vec<Check> {
    vec![kernel(), cores(), memory(config), open_files(config), clock(), redis_cli()]
}

fn kernel() -> Check {
    let release =
        read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    match version_in(&release) {
        Some(version) if version >= (4, 18) => {
            Check::fits(GROUP, "kernel", format!("Linux {release}"))
        }
        Some(_) => Check::missing(
            GROUP,
            "kernel",
            format!("Linux {release}"),
            "a rack needs Linux 4.18 or newer: update the system",
        ),
        None => Check::missing(
            GROUP,
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
            GROUP,
            "cores",
            "1",
            "everything takes turns on one core: throughput will be low",
        ),
        cores => Check::fits(GROUP, "cores", cores.to_string()),
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
    let Some(available) = available.map(|kb| kb << 10) else {
        return Check::optional(
            GROUP,
            "memory",
            "unknown",
            format!("this rack takes up to {}", bytes(needed)),
        );
    };
    let found = format!("{} free; this rack takes up to {}", bytes(available), bytes(needed));
    match available >= needed {
        true => Check::fits(GROUP, "memory", found),
        false => {
            let settings = config.nodes[0].engine.settings;
            let keys: Vec<_> = settings.iter().map(|setting| setting.key).collect();
            let keys = keys.join(" and ");
            let mend =
                format!("lower {keys} in [nodes], records in [cache], preserve_max_mb in [client]");
            Check::optional(GROUP, "memory", found, mend)
        }
    }
}

fn open_files(config: &RackConfig) -> Check {
    let (wanted, allowed) = (descriptors::wanted(config), descriptors::allowed());
    let found = format!("{} open files; this rack may want {}", shown(allowed), grouped(wanted));
    if allowed >= wanted {
        return Check::fits(GROUP, "open files", found);
    }
    let mend = format!(
        "'* hard nofile {wanted}' in /etc/security/limits.conf, or LimitNOFILE={wanted} in the systemd unit; or lower max_clients in \
         [gateway]: else the rack takes fewer clients"
    );
    Check::optional(GROUP, "open files", found, mend)
}

fn shown(limit: u64) -> String {
    if limit == u64::MAX { "unlimited".to_owned() } else { grouped(limit) }
}

fn clock() -> Check {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if now < EARLIEST_UNIX_S {
        let found = format!("{now} s since 1970: it was never set");
        return Check::missing(
            GROUP,
            "clock",
            found,
            "set it (timedatectl set-ntp true): expiry times depend on it",
        );
    }
    match synchronized() {
        true => Check::fits(GROUP, "clock", "set, and kept by a time service"),
        false => Check::optional(
            GROUP,
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

fn redis_cli() -> Check {
    let mend = "apt-get install redis-tools, to talk to the gateway by hand";
    Check::tool(GROUP, "redis-cli", "redis-cli", Verdict::Optional, mend)
}
