//! Exp#13, #13b and #S3: a switch of a chain dies, its records are in the other switches of the
//! chain, and no client is asked.

use super::recovery::{admission_ns, recovered, sizes, total_us};
use super::{Context, Finding, layered};
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Table, Ticks};
use crate::profile::Profile;
use crate::trial::{Bench, Case};
use crate::world::{Classes, Drive, World};
use std::fmt;
use switchback_bench::workload::Workload;
use switchback_core::controller::RecoveryTimes;
use switchback_wire::Scheme;

/// The chain of which a switch dies.
pub(super) const CHAIN: u16 = 0;
/// Requests come at this share of what the rack can do.
const LOAD: f64 = 0.5;
/// As many may wait for the recovery as come meanwhile.
pub(super) const LANES: u32 = 65_536;
/// Cached records of a chain where their number isn't what is varied.
const RECORDS: u32 = 10_000;
/// Layers that are compared.
const LAYERS: [u8; 4] = [2, 3, 4, 8];
/// A bucket of the time series.
const BUCKET_NS: u64 = 10_000_000;
/// Buckets before the crash, and in all.
const BUCKETS: (u64, u64) = (10, 40);

/// Which switch of the chain dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Killed {
    Owner,
    Keeper,
    /// The owner, and every client is paused.
    OwnerAlone,
}

impl Killed {
    const ALL: [Killed; 3] = [Killed::Owner, Killed::Keeper, Killed::OwnerAlone];
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Killed::Owner => "owner",
            Killed::Keeper => "keeper",
            Killed::OwnerAlone => "owner, clients paused",
        })
    }
}

struct Job<'a> {
    profile: &'a Profile,
    layers: u8,
    cache_records: u32,
    killed: Killed,
    seed: u64,
}

impl Job<'_> {
    fn case(&self, context: &Context) -> Case {
        let (workload, cache_records, layers) =
            (Workload::Mix(100.0), self.cache_records, self.layers);
        Case { workload, cache_records, layers, ..layered(&context.case()) }
    }

    fn cost(&self) -> u64 {
        let switches = 2 * u64::from(self.layers);
        let entries = switches * u64::from(self.cache_records);
        entries * 2_000 + admission_ns(self.profile, self.cache_records)
    }

    /// A rack whose caches have nothing but records that no node has, under load.
    fn rack(&self, context: &Context) -> World {
        let bench = Bench::new(self.case(context), self.profile, self.seed);
        let mut world = bench.filled(bench.setup_with(Scheme::DistReach, LANES));
        world.write_all(&bench.preloadable());
        world.drive(Drive::Open(LOAD * bench.ideal_ops(Scheme::DistReach)));
        world.run_for(context.effort.before_crash_ns);
        world
    }

    fn kill(&self, world: &mut World) {
        let members = &world.status().chains[usize::from(CHAIN)].members;
        let switch = match self.killed {
            Killed::Keeper => members.first(),
            Killed::Owner | Killed::OwnerAlone => members.last(),
        };
        if self.killed == Killed::OwnerAlone {
            world.pause_clients();
        }
        world.lose_switch(*switch.expect("the chain has switches"));
    }
}

/// How long the recovery of a rack took whose switch dies.
fn recovery(context: &Context, job: &Job<'_>) -> RecoveryTimes {
    let mut world = job.rack(context);
    let epoch = world.status().epoch;
    job.kill(&mut world);
    recovered(&mut world, epoch)
}

/// Runs it for all jobs, and makes a row of each with what it is named by.
struct Recoveries<'a> {
    jobs: Vec<Job<'a>>,
    times: Vec<RecoveryTimes>,
}

/// A step of a recovery, and how to read its time, in microseconds.
type Step = (&'static str, fn(&RecoveryTimes) -> u64);

const STEPS: [Step; 6] = [
    ("detect", |times| times.detect_us),
    ("load", |times| times.collect_us),
    ("store", |times| times.store_us),
    ("held", |times| times.collect_us + times.store_us),
    ("re-admit", |times| times.readmit_us),
    ("in all", total_us),
];

impl<'a> Recoveries<'a> {
    fn run(context: &Context, jobs: Vec<Job<'a>>) -> Recoveries<'a> {
        let times = context.run_all(&jobs, Job::cost, |job| recovery(context, job));
        Recoveries { jobs, times }
    }

    fn of(&self, is_one: impl Fn(&Job<'_>) -> bool, value: impl Fn(&RecoveryTimes) -> u64) -> f64 {
        let all = self.jobs.iter().zip(&self.times).filter(|(job, _)| is_one(job));
        let values: Vec<_> = all.map(|(_, times)| value(times) as f64).collect();
        Estimate::of(&values).mean
    }

    /// A row of a table: what `is_one` of the jobs took, on average.
    fn row(&self, name: Vec<String>, is_one: impl Fn(&Job<'_>) -> bool) -> Vec<String> {
        let counts = [|times: &RecoveryTimes| times.loaded, |times: &RecoveryTimes| times.records];
        let counts = counts.map(|count| format!("{:.0}", self.of(&is_one, count)));
        let steps = STEPS.map(|(_, us)| format!("{:.1}", self.of(&is_one, us) / 1000.0));
        name.into_iter().chain(counts).chain(steps).collect()
    }

    fn csv(&self) -> Csv {
        let columns = [
            "kind",
            "profile",
            "scheme",
            "chains",
            "layers",
            "killed",
            "cache_records",
            "loaded",
            "stored",
            "detect_us",
            "load_us",
            "store_us",
            "readmit_us",
            "total_us",
            "abandoned_clients",
            "seed",
            "commit",
        ];
        let mut csv = Csv::new(&columns);
        for (job, times) in self.jobs.iter().zip(&self.times) {
            let numbers = [
                times.loaded,
                times.records,
                times.detect_us,
                times.collect_us,
                times.store_us,
                times.readmit_us,
                total_us(times),
                times.abandoned_clients,
            ];
            let mut fields = vec![
                "modelled".to_owned(),
                job.profile.name.to_owned(),
                Scheme::DistReach.to_string(),
                "2".to_owned(),
                job.layers.to_string(),
                job.killed.to_string(),
                job.cache_records.to_string(),
            ];
            fields.extend(numbers.map(|number| number.to_string()));
            fields.extend([job.seed.to_string(), COMMIT.to_owned()]);
            csv.row(&fields);
        }
        csv
    }

    /// A line for each step, by what is varied.
    fn series(&self, places: usize, is_at: impl Fn(usize, &Job<'_>) -> bool) -> Vec<Series> {
        let line = |(ink, (label, us)): (usize, Step)| {
            let at = |place: usize| {
                let mean = self.of(|job| is_at(place, job), us) / 1000.0;
                (place as f64, Estimate { mean, half_width: 0.0 })
            };
            Series::line(label, ink, (0..places).map(at).collect())
        };
        STEPS.into_iter().enumerate().map(line).collect()
    }
}

/// The columns of a table after those that name its rows.
fn head<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let steps = STEPS.map(|(label, _)| label);
    [names, &["loaded", "stored"], &steps].concat()
}

/// Profiles that are compared: the built-in ones and the given one.
fn profiles(context: &Context) -> Vec<&Profile> {
    let mut profiles = Profile::ALL.to_vec();
    if profiles.iter().all(|profile| profile.name != context.profile.name) {
        profiles.push(&context.profile);
    }
    profiles
}

/// Exp#13.
pub(crate) fn by_size(context: &Context) -> Finding {
    let mut jobs = Vec::new();
    for profile in profiles(context) {
        for cache_records in sizes(context, profile, false) {
            for killed in Killed::ALL {
                let job = |seed| Job { profile, layers: 2, cache_records, killed, seed };
                jobs.extend(context.seeds().into_iter().map(job));
            }
        }
    }
    let recoveries = Recoveries::run(context, jobs);
    let table = |profile: &Profile| {
        let title = format!("Time of recovery in ms (modelled), profile {}", profile.name);
        let mut table = Table::new(title, &head(&["killed", "cached"]));
        for killed in Killed::ALL {
            for size in sizes(context, profile, false) {
                let is_one = |job: &Job<'_>| {
                    (job.profile.name, job.killed, job.cache_records)
                        == (profile.name, killed, size)
                };
                table.row(recoveries.row(vec![killed.to_string(), size.to_string()], is_one));
            }
        }
        table
    };
    let figure = |profile: &Profile| {
        let sizes = sizes(context, profile, false);
        let is_at = |at: usize, job: &Job<'_>| {
            (job.profile.name, job.killed, job.cache_records)
                == (profile.name, Killed::Owner, sizes[at])
        };
        Figure {
            name: format!("exp13_{}", profile.name),
            title: format!("Exp#13 Time of recovery of a chain, profile {}", profile.name),
            x_label: "cached records",
            y_label: "time, ms",
            ticks: Ticks::steps(sizes.iter().map(u32::to_string)),
            is_logarithmic: true,
            series: recoveries.series(sizes.len(), is_at),
            origin: context.origin_of(profile.name, context.effort.repetitions),
        }
    };
    Finding {
        name: "13",
        title: "Two layers of two switches: time of recovery by size of the cache",
        paper: "10,000 records: load 0.20 s, store 0.24 s, admit 0.09 s: 0.53 s in all, where \
                FarReach takes 2.35 s.",
        differs: "One of the chain's two switches dies and doesn't come back; every cached record \
                  is one that no node has, under half of the load that the rack can bear. `held` \
                  is how long nodes hold requests for the chain's offered keys: load and store. A \
                  broken connection tells of the death here, so detection is short; of a switch \
                  that falls silent `switch_timeout` comes on top. Where clients are paused none \
                  hears or does anything, as none is asked.",
        remarks: Vec::new(),
        csv: vec![("exp13", recoveries.csv())],
        figures: profiles(context).into_iter().map(figure).collect(),
        tables: profiles(context).into_iter().map(table).collect(),
    }
}

/// Exp#S3.
pub(crate) fn by_layers(context: &Context) -> Finding {
    let mut jobs = Vec::new();
    for profile in profiles(context) {
        for layers in LAYERS {
            let job =
                |seed| Job { profile, layers, cache_records: RECORDS, killed: Killed::Owner, seed };
            jobs.extend(context.seeds().into_iter().map(job));
        }
    }
    let recoveries = Recoveries::run(context, jobs);
    let is_one = |profile: &Profile, layers: u8| {
        let name = profile.name;
        move |job: &Job<'_>| (job.profile.name, job.layers) == (name, layers)
    };
    let table = |profile: &Profile| {
        let title = format!("Time of recovery in ms (modelled), profile {}", profile.name);
        let mut table = Table::new(title, &head(&["layers"]));
        for layers in LAYERS {
            table.row(recoveries.row(vec![layers.to_string()], is_one(profile, layers)));
        }
        table
    };
    let figure = |profile: &Profile| Figure {
        name: format!("expS3_{}", profile.name),
        title: format!("Exp#S3 Time of recovery of a chain, profile {}", profile.name),
        x_label: "layers",
        y_label: "time, ms",
        ticks: Ticks::steps(LAYERS.iter().map(u8::to_string)),
        is_logarithmic: false,
        series: recoveries.series(LAYERS.len(), |at, job| is_one(profile, LAYERS[at])(job)),
        origin: context.origin_of(profile.name, context.effort.repetitions),
    };
    Finding {
        name: "S3",
        title: "Time of recovery by number of layers",
        paper: "The supplement: 0.96 s with 8 layers and 10,000 records, of which each layer more \
                adds some.",
        differs: "The switches that are left load, and admit, in parallel: time hardly depends on \
                  their number. The owner dies.",
        remarks: Vec::new(),
        csv: vec![("expS3", recoveries.csv())],
        figures: profiles(context).into_iter().map(figure).collect(),
        tables: profiles(context).into_iter().map(table).collect(),
    }
}

/// Classes of operations, and their names.
pub(super) const CLASSES: [(usize, &str); 3] = [
    (Classes::CACHED, "cached keys of the chain"),
    (Classes::UNCACHED, "its other keys"),
    (Classes::OTHERS, "the other chain"),
];

/// What one run saw.
struct Seen {
    /// Of each class, in operations a second.
    series_ops: [Vec<f64>; CLASSES.len()],
    longest_us: [f64; CLASSES.len()],
    failed: [u64; CLASSES.len()],
    times: Option<RecoveryTimes>,
}

fn see(context: &Context, job: &Job<'_>) -> Seen {
    let mut world = job.rack(context);
    let cached = world.cached_hashes().into_iter().collect();
    let epoch = world.status().epoch;
    world.measure_classes(Classes::ByChain(CHAIN, cached), BUCKET_NS);
    let (before, all) = BUCKETS;
    world.run_for(before * BUCKET_NS);
    job.kill(&mut world);
    world.run_for((all - before) * BUCKET_NS);
    let meter = &world.meter;
    let series = |(class, _): (usize, &str)| {
        let mut series = meter.class_series_ops(class);
        series.resize(all as usize, 0.0);
        series
    };
    let longest = |(class, _)| meter.class_latency_us(class).map_or(0.0, |(_, longest)| longest);
    Seen {
        series_ops: CLASSES.map(series),
        longest_us: CLASSES.map(longest),
        failed: CLASSES.map(|(class, _)| meter.class_failed(class)),
        times: world.status().recovery.filter(|times| times.epoch > epoch),
    }
}

/// Exp#13b.
pub(crate) fn seen_by_others(context: &Context) -> Finding {
    let profile = &Profile::SOFTWARE;
    let kinds = [Killed::Owner, Killed::Keeper];
    let job = |killed, seed| Job { profile, layers: 2, cache_records: RECORDS, killed, seed };
    let jobs: Vec<_> = kinds
        .into_iter()
        .flat_map(|killed| context.seeds().into_iter().map(move |seed| job(killed, seed)))
        .collect();
    let seen = context.run_all(&jobs, Job::cost, |job| see(context, job));
    let of = |killed: Killed| jobs.iter().zip(&seen).filter(move |(job, _)| job.killed == killed);
    let mean = |values: Vec<f64>| Estimate::of(&values).mean;
    let (before, all) = (BUCKETS.0 as usize, BUCKETS.1 as usize);
    let title = "What others see, 0.1 s before a switch dies and 0.3 s after it (modelled)";
    let head = [
        "killed",
        "operations on",
        "Mops before",
        "Mops after",
        "after / before",
        "failed",
        "longest, ms",
    ];
    let mut table = Table::new(title, &head).with_words(&[1]);
    for killed in kinds {
        for (at, (_, name)) in CLASSES.into_iter().enumerate() {
            let ops = |range: std::ops::Range<usize>| {
                let buckets = range.len() as f64;
                let of_run =
                    |seen: &Seen| seen.series_ops[at][range.clone()].iter().sum::<f64>() / buckets;
                mean(of(killed).map(|(_, seen)| of_run(seen)).collect()) / 1e6
            };
            let longest_ms = mean(of(killed).map(|(_, seen)| seen.longest_us[at] / 1e3).collect());
            let failed = mean(of(killed).map(|(_, seen)| seen.failed[at] as f64).collect());
            let (mops_before, mops_after) = (ops(0..before), ops(before..all));
            table.row(vec![
                killed.to_string(),
                name.to_owned(),
                format!("{mops_before:.3}"),
                format!("{mops_after:.3}"),
                format!("{:.3}", mops_after / mops_before),
                format!("{failed:.0}"),
                format!("{longest_ms:.1}"),
            ]);
        }
    }
    let csv = series_csv(&jobs, &seen);
    let figure = |killed: Killed| {
        let line = |(ink, (_, name)): (usize, (usize, &str))| {
            let at = |bucket: usize| {
                let runs = of(killed).map(|(_, seen)| seen.series_ops[ink][bucket] / 1e6);
                (time_ms(bucket) as f64, Estimate { mean: mean(runs.collect()), half_width: 0.0 })
            };
            Series::line(name, ink, (0..all).map(at).collect())
        };
        Figure {
            name: format!("exp13b_{killed}"),
            title: format!("Exp#13b Throughput over time, the {killed} dies at 0"),
            x_label: "time, ms",
            y_label: "throughput, Mops",
            ticks: Ticks::Numbers,
            is_logarithmic: false,
            series: CLASSES.into_iter().enumerate().map(line).collect(),
            origin: context.origin_of(profile.name, context.effort.repetitions),
        }
    };
    Finding {
        name: "13b",
        title: "Two layers of two switches: what others see of a recovery",
        paper: "Not in the paper.",
        differs: "Each chain has 10,000 cached records, all of which no node has; requests come at \
                  half of what the rack can bear, whether earlier ones are answered or not. A \
                  write that is under way when its switch dies ends without a result: it counts as \
                  failed, and `longest` is of the others.",
        remarks: Vec::new(),
        csv: vec![("exp13b", csv)],
        figures: kinds.into_iter().map(figure).collect(),
        tables: vec![table],
    }
}

/// A row for each bucket of each class in each run.
fn series_csv(jobs: &[Job<'_>], seen: &[Seen]) -> Csv {
    let mut csv = Csv::new(&[
        "kind",
        "profile",
        "scheme",
        "killed",
        "class",
        "time_ms",
        "throughput_ops",
        "longest_us",
        "failed",
        "held_us",
        "seed",
        "commit",
    ]);
    for (job, seen) in jobs.iter().zip(seen) {
        let held_us = seen.times.map_or(0, |times| times.collect_us + times.store_us);
        for (at, (_, name)) in CLASSES.into_iter().enumerate() {
            for (bucket, ops) in seen.series_ops[at].iter().enumerate() {
                csv.row(&[
                    "modelled".to_owned(),
                    job.profile.name.to_owned(),
                    Scheme::DistReach.to_string(),
                    job.killed.to_string(),
                    name.to_owned(),
                    time_ms(bucket).to_string(),
                    format!("{ops:.0}"),
                    format!("{:.1}", seen.longest_us[at]),
                    seen.failed[at].to_string(),
                    held_us.to_string(),
                    job.seed.to_string(),
                    COMMIT.to_owned(),
                ]);
            }
        }
    }
    csv
}

/// When a bucket begins, from the crash on, in milliseconds.
fn time_ms(bucket: usize) -> i64 {
    (bucket as i64 - BUCKETS.0 as i64) * (BUCKET_NS / 1_000_000) as i64
}
