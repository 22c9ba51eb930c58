//! Exp#9: time to recover from a crash of the switch, by the number of cached records.

use super::sweep::{COLUMNS, row, start};
use super::{Context, Finding};
use crate::batch::Counters;
use crate::confidence::Estimate;
use crate::output::{Csv, Figure, Series, Table, Ticks};
use crate::profile::Profile;
use crate::trial::{Bench, Case, Measured};
use crate::world::{Drive, Setup, World};
use switchback_bench::workload::Workload;
use switchback_core::controller::RecoveryTimes;
use switchback_wire::Scheme;

/// Cached records.
const SIZES: [u32; 5] = [100, 1000, 10_000, 100_000, 1_000_000];
/// The largest size with `--quick`: to fill a cache of a million records takes most of the
/// program's time.
const QUICK_MAX: u32 = 100_000;
/// The largest size of a cold cache: a run doesn't find more hot keys.
const COLD_MAX: u32 = 10_000;
/// A cache whose entries take the agent longer than this is left out, since every request that
/// arrives meanwhile is simulated.
const ADMISSION_MAX_NS: u64 = 10_000_000_000;

/// The sizes that are run with a profile.
pub(super) fn sizes(context: &Context, profile: &Profile, is_cold: bool) -> Vec<u32> {
    let is_run = |size: &u32| {
        (!context.effort.is_quick || *size <= QUICK_MAX)
            && (!is_cold || *size <= COLD_MAX)
            && admission_ns(profile, *size) <= ADMISSION_MAX_NS
    };
    SIZES.into_iter().filter(is_run).collect()
}

/// A recovery may take this much longer than its parts need for its records.
const PATIENCE_NS: u64 = 20_000_000_000;
/// How often the run asks the controller whether the recovery has ended. The controller measures
/// its steps.
const ASK_NS: u64 = 1_000_000;

/// The time that the agent needs for the entries of a cache.
pub(super) fn admission_ns(profile: &Profile, cache_records: u32) -> u64 {
    u64::from(cache_records) * profile.agent_entry_ns
}

/// Approximate cost of a job: most of the program's time goes to filling the cache, and to the
/// requests that arrive while it is filled again.
fn cost(job: &Job<'_>) -> u64 {
    u64::from(job.cache_records) * 2_000 + admission_ns(job.profile, job.cache_records)
}

/// Profiles and starts that are compared: the built-in profiles and the given one, each preloaded
/// and cold.
fn kinds(context: &Context) -> Vec<(&Profile, bool)> {
    let mut profiles = Profile::ALL.to_vec();
    if profiles.iter().all(|profile| profile.name != context.profile.name) {
        profiles.push(&context.profile);
    }
    profiles.into_iter().flat_map(|profile| [(profile, false), (profile, true)]).collect()
}

struct Job<'a> {
    profile: &'a Profile,
    is_cold: bool,
    cache_records: u32,
    seed: u64,
}

struct Run {
    /// Measured before the switch crashed.
    before: Measured,
    times: RecoveryTimes,
}

/// Runs it with each profile, since profiles differ in the cost of a table entry.
pub(crate) fn run(context: &Context) -> Finding {
    let mut jobs = Vec::new();
    for (profile, is_cold) in kinds(context) {
        for cache_records in sizes(context, profile, is_cold) {
            jobs.extend(context.seeds().into_iter().map(|seed| Job {
                profile,
                is_cold,
                cache_records,
                seed,
            }));
        }
    }
    let results = context.run_all(&jobs, cost, |job| recover(context, job));
    let runs = Runs { jobs: &jobs, results: &results };
    Finding {
        name: "9",
        title: "Time of recovery by size of the cache",
        paper: "Writes only, 16 servers, 100 to 10,000 cached records: about 1 s to update a \
                server, mostly to collect what clients and the controller have; 1 to 1.35 s to \
                fill the cache again; 2.35 s in all at most.",
        differs: "Each profile is a table: `paper` has the paper's cost of a table entry (35 us), \
                  `software` this switch's, `calibrated` this machine's, if one was given. No step \
                  here takes the paper's second to collect records: clients answer the controller \
                  directly, in parallel. Detection is counted from the last hello of the switch \
                  that died (one every 20 ms); here a successor says hello 10 ms after the crash. \
                  All cached records are written before it, so all are stored; where the cache is \
                  small, so are those evicted since: clients keep what the cache absorbed until a \
                  snapshot makes it durable. Re-admission ends with the last of the keys that were \
                  cached. Cold, the cache has learned its keys, which may be fewer than it has \
                  room for; snapshots were taken meanwhile. With the costs of `paper` a million \
                  entries would take 35 s; that isn't run.",
        remarks: Vec::new(),
        csv: vec![("exp9", csv(context, &jobs, &results))],
        figures: kinds(context).into_iter().map(|kind| figure(context, kind, &runs)).collect(),
        tables: kinds(context).into_iter().map(|kind| summary(context, kind, &runs)).collect(),
    }
}

/// The case of a job.
fn case(context: &Context, job: &Job<'_>) -> Case {
    let Job { is_cold, cache_records, .. } = *job;
    Case { workload: Workload::Mix(100.0), cache_records, is_cold, ..context.case() }
}

/// Crashes the switch of a busy rack, and waits until it has recovered.
fn recover(context: &Context, job: &Job<'_>) -> Run {
    let bench = Bench::new(case(context, job), job.profile, job.seed);
    let setup = bench.setup(Scheme::FarReach);
    let mut world = if job.is_cold {
        bench.warm_up(setup, &context.effort)
    } else {
        let mut world = bench.filled(setup);
        world.write_all(&bench.preloadable());
        world.drive(Drive::Closed);
        world
    };
    let counters = Counters::of(&world);
    world.run_for(context.effort.before_crash_ns);
    let before = bench.measured(Scheme::FarReach, &world, &counters);
    let epoch = world.status().epoch;
    world.kill_switch(0);
    Run { before, times: recovered(&mut world, epoch) }
}

/// Runs until an epoch after this one is recovered and its keys are back in the cache; how long the
/// steps took.
pub(super) fn recovered(world: &mut World, epoch: u32) -> RecoveryTimes {
    let is_over = |world: &World| {
        world.status().recovery.filter(|times| times.epoch > epoch && times.missing == 0)
    };
    run_until(world, |world| is_over(world).is_some());
    is_over(world).expect("it is over now")
}

/// Runs until a change of the chain has come so far.
///
/// # Panics
/// It takes longer than anything that the chain does with all its records.
pub(super) fn run_until(world: &mut World, has_come: impl Fn(&World) -> bool) {
    let at_most_ns = world.now_ns() + patience_ns(world);
    while !has_come(world) {
        assert!(world.now_ns() < at_most_ns, "a change ends: {:?}", world.status().recovery);
        world.run_for(ASK_NS);
    }
}

/// Time limit of a recovery, in nanoseconds: more than the agent needs for the entries of the
/// cache, and one node for all its records.
fn patience_ns(world: &World) -> u64 {
    let Setup { profile, cache_records, .. } = world.setup();
    let storing_ns = u64::from(*cache_records) * profile.node_write_ns;
    PATIENCE_NS + 3 * (admission_ns(profile, *cache_records) + storing_ns)
}

/// Time of all steps, in microseconds.
pub(super) fn total_us(times: &RecoveryTimes) -> u64 {
    times.detect_us + times.collect_us + times.store_us + times.readmit_us
}

fn csv(context: &Context, jobs: &[Job<'_>], results: &[Run]) -> Csv {
    let more =
        ["gathered", "stored", "detect_us", "collect_us", "store_us", "readmit_us", "total_us"];
    let mut csv = Csv::new(&[&COLUMNS[..], &more].concat());
    for (job, Run { before, times }) in jobs.iter().zip(results) {
        let mut fields = row(job.profile, Scheme::FarReach, &case(context, job), job.seed, before);
        let steps_us =
            [times.detect_us, times.collect_us, times.store_us, times.readmit_us, total_us(times)];
        fields.extend([times.gathered, times.records].map(|records| records.to_string()));
        fields.extend(steps_us.map(|us| us.to_string()));
        csv.row(&fields);
    }
    csv
}

/// All runs.
struct Runs<'a> {
    jobs: &'a [Job<'a>],
    results: &'a [Run],
}

impl Runs<'_> {
    /// The mean of a step over the repetitions, in thousandths of the step's unit.
    fn mean(&self, (profile, is_cold): (&Profile, bool), cache_records: u32, of: Step) -> Estimate {
        let is_mine = |job: &Job<'_>| {
            job.profile.name == profile.name
                && job.is_cold == is_cold
                && job.cache_records == cache_records
        };
        let runs = self.jobs.iter().zip(self.results).filter(|(job, _)| is_mine(job));
        Estimate::of(&runs.map(|(_, run)| of(&run.times) as f64 / 1000.0).collect::<Vec<_>>())
    }
}

/// Reads a step's time, in microseconds.
type Step = fn(&RecoveryTimes) -> u64;

/// The steps of a recovery, and how to read their times.
const STEPS: [(&str, Step); 5] = [
    ("detect", |times| times.detect_us),
    ("collect", |times| times.collect_us),
    ("store", |times| times.store_us),
    ("re-admit", |times| times.readmit_us),
    ("in all", total_us),
];

fn figure(context: &Context, kind: (&Profile, bool), runs: &Runs<'_>) -> Figure {
    let (profile, is_cold) = kind;
    let sizes = sizes(context, profile, is_cold);
    let line = |(ink, (label, us)): (usize, (&str, Step))| {
        let point = |at: usize| (at as f64, runs.mean(kind, sizes[at], us));
        Series::line(label, ink, (0..sizes.len()).map(point).collect())
    };
    Figure {
        name: format!("exp9_{}_{}", profile.name, start(is_cold)),
        title: format!("Exp#9 Time of recovery, profile {}, {}", profile.name, start(is_cold)),
        x_label: if is_cold { "room for cached records" } else { "cached records" },
        y_label: "time, ms",
        ticks: Ticks::steps(sizes.iter().map(u32::to_string)),
        is_logarithmic: true,
        series: STEPS.into_iter().enumerate().map(line).collect(),
        origin: context.origin_of(profile.name, context.effort.repetitions),
    }
}

fn summary(context: &Context, kind: (&Profile, bool), runs: &Runs<'_>) -> Table {
    let (profile, is_cold) = kind;
    let title =
        format!("Time of recovery in ms (modelled), profile {}, {}", profile.name, start(is_cold));
    let of = if is_cold { "room for" } else { "cached" };
    let mut table =
        Table::new(title, &[of, "stored", "detect", "collect", "store", "re-admit", "in all"]);
    for size in sizes(context, profile, is_cold) {
        let stored = runs.mean(kind, size, |times| times.records).mean * 1000.0;
        let mut cells = vec![size.to_string(), format!("{stored:.0}")];
        cells.extend(STEPS.map(|(_, us)| format!("{:.1}", runs.mean(kind, size, us).mean)));
        table.row(cells);
    }
    table
}
