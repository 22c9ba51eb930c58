//! INFO.

use super::REDIS_VERSION;
use crate::command::Verb;
use crate::config::Cluster;
use crate::failure::ErrorKind;
use crate::resp::Args;
use crate::running::Running;
use crate::shared::Shared;
use crate::spool::Durability;
use crate::statistics::{Answerer, Counter, WorkerStatistics};
use std::fmt::Write;

type Section = fn(&mut String, &Running, &Shared);

const SECTIONS: &[(&str, Section)] = &[
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("persistence", persistence),
    ("stats", stats),
    ("replication", replication),
    ("cluster", cluster),
    ("commandstats", command_stats),
    ("errorstats", error_stats),
];

/// Sections that have to be asked for.
const ON_DEMAND: &[&str] = &["commandstats", "errorstats"];

pub(super) fn info(running: &Running, shared: &Shared, args: Args<'_>) -> String {
    let asked: Vec<String> =
        args.from(1).map(|name| String::from_utf8_lossy(name).to_ascii_lowercase()).collect();
    let has = |name: &str| asked.iter().any(|asked| asked == name);
    let by_default = asked.is_empty() || has("default");
    let mut text = String::new();
    for (name, section) in SECTIONS {
        let wanted = has(name)
            || has("all")
            || has("everything")
            || (by_default && !ON_DEMAND.contains(name));
        if !wanted {
            continue;
        }
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        section(&mut text, running, shared);
    }
    text
}

/// Writing to a `String` can't fail.
fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{key}:{value}\r\n");
}

fn sum(shared: &Shared, counter: impl Fn(&WorkerStatistics) -> &Counter) -> u64 {
    shared.statistics.sum(|worker| counter(worker).get())
}

fn server(text: &mut String, _: &Running, shared: &Shared) {
    text.push_str("# Server\r\n");
    line(text, "redis_version", REDIS_VERSION);
    line(text, "switchback_version", env!("CARGO_PKG_VERSION"));
    line(text, "redis_mode", shared.config.cluster.redis_mode());
    line(text, "os", std::env::consts::OS);
    line(text, "arch_bits", usize::BITS);
    line(text, "multiplexing_api", "epoll");
    line(text, "process_id", std::process::id());
    line(text, "tcp_port", shared.port(false));
    let seconds = shared.started.elapsed().as_secs();
    line(text, "uptime_in_seconds", seconds);
    line(text, "uptime_in_days", seconds / 86_400);
    line(text, "switchback_workers", shared.inboxes.len());
}

fn clients(text: &mut String, _: &Running, shared: &Shared) {
    text.push_str("# Clients\r\n");
    line(text, "connected_clients", shared.connections());
    line(text, "maxclients", shared.settings.clients());
}

/// Of the whole process: an embedded rack is in it, too.
fn memory(text: &mut String, _: &Running, _: &Shared) {
    text.push_str("# Memory\r\n");
    if let Some(bytes) = resident_bytes() {
        line(text, "used_memory", bytes);
        line(text, "used_memory_rss", bytes);
    }
    line(text, "maxmemory", 0);
    line(text, "maxmemory_policy", "noeviction");
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    kib.parse::<u64>().ok().map(|kib| kib * 1024)
}

fn persistence(text: &mut String, running: &Running, shared: &Shared) {
    text.push_str("# Persistence\r\n");
    line(text, "loading", 0);
    line(text, "rdb_changes_since_last_save", sum(shared, |worker| &worker.written));
    line(text, "aof_enabled", u8::from(shared.config.durability != Durability::Memory));
    line(
        text,
        "aof_last_write_status",
        if running.outbox.spool_failure.is_some() { "err" } else { "ok" },
    );
    line(text, "switchback_durability", shared.config.durability);
    line(text, "switchback_spool_bytes", sum(shared, |worker| &worker.spool_size));
    line(text, "switchback_spool_errors", sum(shared, |worker| &worker.spool_errors));
    line(text, "switchback_spool_rewrites", sum(shared, |worker| &worker.spool_rewrites));
    line(text, "switchback_preserved_records", sum(shared, |worker| &worker.preserved_records));
    line(text, "switchback_preserved_bytes", sum(shared, |worker| &worker.preserved_bytes));
}

fn stats(text: &mut String, _: &Running, shared: &Shared) {
    text.push_str("# Stats\r\n");
    let commands: u64 = Answerer::ALL.iter().map(|&by| shared.statistics.commands(by)).sum();
    line(text, "total_connections_received", sum(shared, |worker| &worker.connections_accepted));
    line(text, "total_commands_processed", commands);
    line(text, "total_net_input_bytes", sum(shared, |worker| &worker.bytes_in));
    line(text, "total_net_output_bytes", sum(shared, |worker| &worker.bytes_out));
    line(
        text,
        "rejected_connections",
        shared.statistics.sum(|worker| worker.errors(ErrorKind::MaxClients)),
    );
    line(text, "evicted_clients", shared.statistics.sum(|worker| worker.errors(ErrorKind::Memory)));
    line(text, "keyspace_hits", sum(shared, |worker| &worker.found));
    line(text, "keyspace_misses", sum(shared, |worker| &worker.missing));
    let errors: u64 = ErrorKind::ALL
        .iter()
        .map(|&kind| shared.statistics.sum(|worker| worker.errors(kind)))
        .sum();
    line(text, "total_error_replies", errors);
    for by in Answerer::ALL {
        let _ = write!(
            text,
            "switchback_answered_by_{}:{}\r\n",
            by.name(),
            shared.statistics.commands(by)
        );
    }
    line(text, "switchback_session_retries", sum(shared, |worker| &worker.session_retries));
    line(text, "switchback_epoch_changes", sum(shared, |worker| &worker.session_epoch_changes));
}

fn replication(text: &mut String, _: &Running, _: &Shared) {
    text.push_str("# Replication\r\n");
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
}

fn cluster(text: &mut String, _: &Running, shared: &Shared) {
    text.push_str("# Cluster\r\n");
    line(text, "cluster_enabled", u8::from(shared.config.cluster == Cluster::Emulated));
}

fn command_stats(text: &mut String, _: &Running, shared: &Shared) {
    text.push_str("# Commandstats\r\n");
    for verb in Verb::all() {
        let of = |count: &dyn Fn(&WorkerStatistics, Answerer) -> u64| {
            Answerer::ALL
                .iter()
                .map(|&by| shared.statistics.sum(|worker| count(worker, by)))
                .sum::<u64>()
        };
        let calls = of(&|worker, by| worker.latency(verb, by).count());
        let us = of(&|worker, by| worker.latency(verb, by).sum_us());
        if calls > 0 {
            let per_call = us as f64 / calls as f64;
            let _ = write!(
                text,
                "cmdstat_{}:calls={calls},usec={us},usec_per_call={per_call:.2}\r\n",
                verb.name()
            );
        }
    }
}

fn error_stats(text: &mut String, _: &Running, shared: &Shared) {
    text.push_str("# Errorstats\r\n");
    for kind in ErrorKind::ALL {
        let count = shared.statistics.sum(|worker| worker.errors(kind));
        if count > 0 {
            let _ = write!(text, "errorstat_{}:count={count}\r\n", kind.name());
        }
    }
}
