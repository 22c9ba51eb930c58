//! LATENCY.

use super::{Verb, no_subcommand, wrong_arity};
use crate::connection::ConnectionId;
use crate::execute::answer_here;
use crate::latency::Latency;
use crate::resp::{Args, write};
use crate::running::Running;
use crate::shared::Shared;
use crate::statistics::{Answerer, BUCKETS};
use std::fmt::Write;

pub(crate) fn latency(running: &mut Running, shared: &Shared, id: ConnectionId, args: Args<'_>) {
    let put = |running: &mut Running, write: &dyn Fn(&mut Vec<u8>, bool)| {
        answer_here(running, id, Some(Verb::Latency), |out, resp3| write(out, resp3));
    };
    let latency = &shared.latency;
    let sub = args.get(1).to_ascii_lowercase();
    match (&sub[..], args.len()) {
        (b"history", 3) => put(running, &|out, _| history(out, latency, args.get(2))),
        (b"latest", 2) => put(running, &|out, _| latest(out, latency)),
        (b"reset", _) => {
            let count = latency
                .forget(|name| args.len() == 2 || args.from(2).any(|it| it == name.as_bytes()));
            put(running, &|out, _| write::integer(out, count as i64));
        }
        (b"doctor", 2) => {
            let text = diagnosis(latency);
            put(running, &|out, resp3| write::verbatim(out, &text, resp3));
        }
        (b"histogram", _) => {
            let mut asked: Vec<Verb> = Vec::new();
            // Each once, though a million names may be there.
            for verb in args.from(2).filter_map(Verb::from_name) {
                if !asked.contains(&verb) {
                    asked.push(verb);
                }
            }
            if args.len() == 2 {
                asked.extend(Verb::all());
            }
            put(running, &|out, resp3| histograms(out, shared, &asked, resp3));
        }
        (b"graph", 3) => no_subcommand(running, shared, id, args),
        (b"history" | b"latest" | b"doctor" | b"graph", _) => {
            wrong_arity(running, id, &format!("latency|{}", String::from_utf8_lossy(&sub)));
        }
        _ => no_subcommand(running, shared, id, args),
    }
}

fn history(out: &mut Vec<u8>, latency: &Latency, name: &[u8]) {
    let event = latency.event(name).unwrap_or_default();
    write::array(out, event.samples.len());
    for sample in &event.samples {
        write::array(out, 2);
        write::integer(out, sample.unix_s as i64);
        write::integer(out, sample.took_ms as i64);
    }
}

fn latest(out: &mut Vec<u8>, latency: &Latency) {
    let events = latency.all();
    write::array(out, events.len());
    for (name, event) in &events {
        let last = event.samples.back();
        write::array(out, 4);
        write::bulk(out, name.as_bytes());
        write::integer(out, last.map_or(0, |last| last.unix_s as i64));
        write::integer(out, last.map_or(0, |last| last.took_ms as i64));
        write::integer(out, event.max_ms as i64);
    }
}

/// What DOCTOR says. Writing to a `String` can't fail.
fn diagnosis(latency: &Latency) -> String {
    let threshold_ms = latency.threshold_ms();
    let events = latency.all();
    let mut text = match (threshold_ms, events.is_empty()) {
        (0, true) => {
            return "Latency isn't monitored. CONFIG SET latency-monitor-threshold \
            <milliseconds> begins with it.\n"
                .into();
        }
        (0, false) => "Latency isn't monitored any more. What was seen before:\n".into(),
        (_, true) => format!("No command took {threshold_ms} ms or more.\n"),
        (_, false) => format!("Seconds in which a command took {threshold_ms} ms or more:\n"),
    };
    for (name, event) in &events {
        let (seconds, max_ms) = (event.samples.len(), event.max_ms);
        let sum_ms: u64 = event.samples.iter().map(|sample| sample.took_ms).sum();
        let mean_ms = sum_ms / seconds.max(1) as u64;
        let _ = writeln!(text, "{name}: {seconds} s, mean {mean_ms} ms, worst of all {max_ms} ms");
    }
    if !events.is_empty() {
        text.push_str("SLOWLOG GET tells which commands these were, and INFO who answers them.\n");
    }
    text
}

/// How many commands took at most how many microseconds.
fn histograms(out: &mut Vec<u8>, shared: &Shared, verbs: &[Verb], resp3: bool) {
    let counted = verbs.iter().map(|&verb| (verb, buckets(shared, verb)));
    let counted: Vec<_> = counted.filter(|(_, buckets)| buckets.iter().any(|&n| n > 0)).collect();
    write::map(out, counted.len(), resp3);
    for (verb, buckets) in &counted {
        write::bulk(out, verb.name().as_bytes());
        write::map(out, 2, resp3);
        write::bulk(out, b"calls");
        write::integer(out, buckets.iter().sum::<u64>() as i64);
        write::bulk(out, b"histogram_usec");
        write::map(out, buckets.iter().filter(|&&count| count > 0).count(), resp3);
        let mut sum = 0;
        for (at, count) in buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            sum += count;
            write::integer(out, 1 << at);
            write::integer(out, sum as i64);
        }
    }
}

/// A command's counts by bucket, those of all parts that answer together.
fn buckets(shared: &Shared, verb: Verb) -> [u64; BUCKETS] {
    let mut buckets = [0; BUCKETS];
    for worker in shared.statistics.workers() {
        for by in Answerer::ALL {
            let counts = worker.latency(verb, by).buckets();
            buckets.iter_mut().zip(counts).for_each(|(sum, (_, count))| *sum += count);
        }
    }
    buckets
}
