//! Exp#9: how long a rack takes to recover from the death of its switch, by what was cached.

use super::sweep::{COLUMNS, row};
use super::{Context, Finding};
use crate::output::{Csv, Figure, Series, Table, Ticks};
use crate::profile::Profile;
use crate::stretch::Begun;
use crate::student::Estimate;
use crate::trial::{Bench, Case, Measured};
use crate::world::Drive;
use switchback_bench::Scheme;
use switchback_bench::workload::Workload;
use switchback_core::controller::RecoveryTimes;

/// Cached records.
const SIZES: [u32; 5] = [100, 1000, 10_000, 100_000, 1_000_000];
/// The largest that a look has: to fill a cache of a million records takes most of the time of all.
const QUICK_MAX: u32 = 100_000;
/// A cache whose entries take the agent longer than this is left out: every request that comes meanwhile is simulated.
const ADMISSION_MAX_NS: u64 = 10_000_000_000;

/// The sizes that are run with these costs.
fn sizes(context: &Context, profile: &Profile) -> Vec<u32> {
    let is_run = |size: &u32| {
        (!context.effort.is_quick || *size <= QUICK_MAX) && admission_ns(profile, *size) <= ADMISSION_MAX_NS
    };
    SIZES.into_iter().filter(is_run).collect()
}

/// How long a recovery is waited for, beside what its parts need for so many records.
const PATIENCE_NS: u64 = 20_000_000_000;
/// How often the controller is asked whether it is over. It takes the times itself.
const ASK_NS: u64 = 1_000_000;

/// How long the agent is busy with the entries of a cache.
fn admission_ns(profile: &Profile, cache_records: u32) -> u64 {
    u64::from(cache_records) * profile.agent_entry_ns
}

/// Filling a cache takes the program longest, and the requests while it is filled again.
fn cost(job: &Job<'_>) -> u64 {
    u64::from(job.cache_records) * 2_000 + admission_ns(job.profile, job.cache_records)
}

/// The profiles that are compared: those that the program has, and the one that was given, if it is another.
fn profiles(context: &Context) -> Vec<&Profile> {
    let mut profiles = Profile::ALL.to_vec();
    if profiles.iter().all(|profile| profile.name != context.profile.name) {
        profiles.push(&context.profile);
    }
    profiles
}

struct Job<'a> {
    profile: &'a Profile,
    cache_records: u32,
    seed: u64,
}

struct Run {
    /// What the rack did before its switch died.
    before: Measured,
    times: RecoveryTimes,
}

/// Runs it, with each profile: what a table costs is what differs.
pub(crate) fn run(context: &Context) -> Finding {
    let mut jobs = Vec::new();
    for profile in profiles(context) {
        for cache_records in sizes(context, profile) {
            jobs.extend(context.seeds().into_iter().map(|seed| Job { profile, cache_records, seed }));
        }
    }
    let results = context.run_all(&jobs, cost, |job| recover(context, job));
    Finding {
        name: "9",
        title: "Time of recovery by size of the cache",
        paper: "Writes only, 16 servers, 100 to 10,000 cached records: about 1 s to update a server, mostly to collect what clients and the \
                controller have; 1 to 1.35 s to fill the cache again; 2.35 s in all at most.",
        differs: "Each profile is a table: `paper` has the paper's cost of a table entry (35 us), `software` this \
                  switch's, `calibrated` this machine's, if one was given. Nothing here takes the paper's second to \
                  collect records: clients answer the controller by themselves, in parallel. Detection is counted \
                  from the last hello of the switch that died (one every 20 ms); here a successor says hello 10 ms \
                  after the crash. Cached records are all written before it, so all are stored, and where the cache \
                  is small also what was evicted since: clients keep what the cache took until a snapshot makes it \
                  durable. Re-admission ends with the last of the keys that were cached. With the costs of `paper` a \
                  million entries take 35 s, which isn't run.",
        remarks: Vec::new(),
        csv: vec![("exp9", csv(&jobs, &results))],
        figures: profiles(context).into_iter().map(|profile| figure(context, profile, &jobs, &results)).collect(),
        tables: profiles(context)
            .into_iter()
            .map(|profile| summary(&sizes(context, profile), profile, &jobs, &results))
            .collect(),
    }
}

/// What is run.
fn case(job: &Job<'_>) -> Case {
    Case { workload: Workload::Mix(100.0), cache_records: job.cache_records, ..Case::default() }
}

/// Kills the switch of a busy rack.
fn recover(context: &Context, job: &Job<'_>) -> Run {
    let bench = Bench::new(case(job), job.profile, job.seed);
    let mut world = bench.filled(bench.setup(Scheme::FarReach));
    world.write_all(&bench.preloadable());
    world.drive(Drive::Closed);
    let begun = Begun::now(&world);
    world.run_for(context.effort.before_crash_ns);
    let before = bench.measured(Scheme::FarReach, &world, &begun);
    let epoch = world.status().epoch;
    world.kill_switch();
    let at_most_ns = world.now_ns() + patience_ns(job);
    loop {
        world.run_for(ASK_NS);
        let times = world.status().recovery.filter(|times| times.epoch > epoch && times.missing == 0);
        if let Some(times) = times {
            return Run { before, times };
        }
        assert!(world.now_ns() < at_most_ns, "a recovery ends: {:?}", world.status().recovery);
    }
}

/// How long a recovery is waited for: longer than the agent needs for so many entries, and one node alone for all the records.
fn patience_ns(job: &Job<'_>) -> u64 {
    let storing_ns = u64::from(job.cache_records) * job.profile.node_write_ns;
    PATIENCE_NS + 3 * (admission_ns(job.profile, job.cache_records) + storing_ns)
}

/// All steps together.
fn total_us(times: &RecoveryTimes) -> u64 {
    times.detect_us + times.collect_us + times.store_us + times.readmit_us
}

fn csv(jobs: &[Job<'_>], results: &[Run]) -> Csv {
    let more = ["gathered", "stored", "detect_us", "collect_us", "store_us", "readmit_us", "total_us"];
    let mut csv = Csv::new(&[&COLUMNS[..], &more].concat());
    for (job, Run { before, times }) in jobs.iter().zip(results) {
        let mut fields = row(job.profile, Scheme::FarReach, &case(job), job.seed, before);
        let steps_us = [times.detect_us, times.collect_us, times.store_us, times.readmit_us, total_us(times)];
        fields.extend([times.gathered, times.records].map(|records| records.to_string()));
        fields.extend(steps_us.map(|us| us.to_string()));
        csv.row(&fields);
    }
    csv
}

/// A step's mean over the repetitions, in milliseconds.
fn mean_ms(profile: &Profile, cache_records: u32, jobs: &[Job<'_>], results: &[Run], us: Step) -> Estimate {
    let mine = |job: &Job<'_>| job.profile.name == profile.name && job.cache_records == cache_records;
    let runs = jobs.iter().zip(results).filter(|(job, _)| mine(job));
    Estimate::of(&runs.map(|(_, run)| us(&run.times) as f64 / 1000.0).collect::<Vec<_>>())
}

/// What tells how long a step took.
type Step = fn(&RecoveryTimes) -> u64;

/// The steps, and what tells them.
const STEPS: [(&str, Step); 5] = [
    ("detect", |times| times.detect_us),
    ("collect", |times| times.collect_us),
    ("store", |times| times.store_us),
    ("re-admit", |times| times.readmit_us),
    ("in all", total_us),
];

fn figure(context: &Context, profile: &Profile, jobs: &[Job<'_>], results: &[Run]) -> Figure {
    let sizes = sizes(context, profile);
    let line = |(ink, (label, us)): (usize, (&str, Step))| {
        let point = |at: usize| (at as f64, mean_ms(profile, sizes[at], jobs, results, us));
        Series::line(label, ink, (0..sizes.len()).map(point).collect())
    };
    Figure {
        name: format!("exp9_{}", profile.name),
        title: format!("Exp#9 Time of recovery, profile {}", profile.name),
        x_label: "cached records",
        y_label: "time, ms",
        ticks: Ticks::steps(sizes.iter().map(u32::to_string)),
        is_logarithmic: true,
        series: STEPS.into_iter().enumerate().map(line).collect(),
        origin: context.origin_of(profile.name, context.effort.repetitions),
    }
}

fn summary(sizes: &[u32], profile: &Profile, jobs: &[Job<'_>], results: &[Run]) -> Table {
    let title = format!("Time of recovery in ms (modelled), profile {}", profile.name);
    let mut table = Table::new(title, &["cached", "stored", "detect", "collect", "store", "re-admit", "in all"]);
    for &size in sizes {
        let stored = mean_ms(profile, size, jobs, results, |times| times.records).mean * 1000.0;
        let mut cells = vec![size.to_string(), format!("{stored:.0}")];
        cells.extend(STEPS.map(|(_, us)| format!("{:.1}", mean_ms(profile, size, jobs, results, us).mean)));
        table.row(cells);
    }
    table
}
