//! Exp#S6: a chain's switches change, with background cleaning of dirty records and without.

use super::failure::{CHAIN, CLASSES, LANES};
use super::recovery::{recovered, run_until};
use super::{Context, Finding, layered};
use crate::confidence::Estimate;
use crate::output::{COMMIT, Csv, Figure, Series, Style, Table, Ticks};
use crate::profile::Profile;
use crate::trial::{Bench, Case};
use crate::world::{Classes, Drive, World};
use std::fmt;
use switchback_bench::workload::Workload;
use switchback_wire::Scheme;

/// Costs of the parts: those of the software switch. The model takes no time off an agent for what
/// its sweeps load, which would be much of it where a record takes it 35 us.
const PROFILE: &Profile = &Profile::SOFTWARE;
/// Cached records of a chain, all of them dirty at first.
const SIZES: [u32; 3] = [1_000, 10_000, 100_000];
/// The largest with `--quick`.
const QUICK_MAX: u32 = 10_000;
/// How long a record may be in switches alone: without cleaning, and with it.
const DIRTY_MAX_US: [Option<u64>; 2] = [None, Some(1_000_000)];
/// Requests come at this share of what the nodes can do without a cache, since a planned change
/// empties it.
const LOAD: f64 = 0.5;
/// [`Job::before_ns`]: more than two sweeps.
const BEFORE_NS: u64 = 2_500_000_000;
/// How long after it, for operations that waited: clients ask again within half a second.
const AFTER_NS: u64 = 600_000_000;
/// The cache counts as full again with this share of the keys that it had: some are exchanged for
/// others meanwhile.
const BACK: f64 = 0.99;
/// No series is wanted.
const BUCKET_NS: u64 = 0;

/// What happens to the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Happens {
    OwnerDies,
    /// An operator takes it out.
    OwnerDrained,
    /// A switch starts in the place of one that died earlier.
    KeeperReturns,
}

impl Happens {
    const ALL: [Happens; 3] = [Happens::OwnerDies, Happens::OwnerDrained, Happens::KeeperReturns];
}

impl fmt::Display for Happens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Happens::OwnerDies => "owner dies",
            Happens::OwnerDrained => "owner is drained",
            Happens::KeeperReturns => "keeper returns",
        })
    }
}

/// A cleaning's period as tables and files name it.
fn period(dirty_max_us: Option<u64>) -> String {
    dirty_max_us.map_or("off".to_owned(), |us| format!("{} ms", us / 1000))
}

struct Job {
    happens: Happens,
    dirty_max_us: Option<u64>,
    cache_records: u32,
    /// How long the rack is under load before the change.
    before_ns: u64,
    seed: u64,
}

impl Job {
    fn case(&self, context: &Context) -> Case {
        let Job { cache_records, dirty_max_us, .. } = *self;
        let (workload, asks_again_soon) = (Workload::A, true);
        let layered = layered(&context.case());
        Case { workload, cache_records, dirty_max_us, asks_again_soon, ..layered }
    }

    /// Approximate: filling the cache, and the requests of the time before the change.
    fn cost(&self) -> u64 {
        100_000 + 8 * u64::from(self.cache_records)
    }

    /// A rack under load, whose cached records all were dirty when the load began, and the chain's
    /// keeper. One that is to return has gone before.
    fn rack(&self, context: &Context) -> (World, u16) {
        let bench = Bench::new(self.case(context), PROFILE, self.seed);
        let mut world = bench.filled(bench.setup_with(Scheme::DistReach, LANES));
        let keeper = members(&world)[0];
        if self.happens == Happens::KeeperReturns {
            let epoch = world.status().epoch;
            world.lose_switch(keeper);
            recovered(&mut world, epoch);
        }
        world.write_all(&bench.preloadable());
        world.drive(Drive::Open(LOAD * bench.ideal_ops(Scheme::NoCache)));
        world.run_for(self.before_ns);
        (world, keeper)
    }

    fn begin(&self, world: &mut World, keeper: u16) {
        let owner = *members(world).last().expect("the chain has switches");
        match self.happens {
            Happens::OwnerDies => world.lose_switch(owner),
            Happens::OwnerDrained => world.drain_switch(owner),
            Happens::KeeperReturns => world.return_switch(keeper),
        }
    }
}

/// The switches that serve the chain, from the clients to the nodes.
fn members(world: &World) -> Vec<u16> {
    world.status().chains[usize::from(CHAIN)].members.clone()
}

/// What a change of a chain took.
struct Change {
    /// Records of the chain that no node had when it began, of those cached.
    dirty: usize,
    cached: usize,
    /// Records that nodes were given to store by the recovery.
    stored: u64,
    /// Until the next epoch begins: the death is noticed, or the cache is drained and clients end
    /// their writes.
    before_us: u64,
    /// From then on until no node holds requests any more.
    held_us: u64,
    /// From then on until the cache is full again.
    readmit_us: u64,
    /// Of each of [`CLASSES`], the longest that an operation took, and how many failed.
    longest_us: [f64; CLASSES.len()],
    failed: [u64; CLASSES.len()],
}

/// What a time of a change is called, and how to read it, in microseconds.
type Time = (&'static str, fn(&Change) -> u64);

impl Change {
    const TIMES: [Time; 4] = [
        ("before", |change| change.before_us),
        ("held", |change| change.held_us),
        ("re-admit", |change| change.readmit_us),
        ("in all", |change| change.before_us + change.held_us + change.readmit_us),
    ];
}

/// Runs a change of the chain, from its cause until the cache is full again.
fn change(context: &Context, job: &Job) -> Change {
    let (mut world, keeper) = job.rack(context);
    let (epoch, begun_us) = (world.status().epoch, world.now_ns() / 1000);
    let (cached, dirty) = (world.entries_of(CHAIN), world.dirty_of(CHAIN));
    let keys = world.cached_hashes().into_iter().collect();
    world.measure_classes(Classes::ByChain(CHAIN, keys), BUCKET_NS);
    job.begin(&mut world, keeper);
    let times = recovered(&mut world, epoch);
    run_until(&mut world, |world| world.entries_of(CHAIN) as f64 >= BACK * cached as f64);
    let readmit_us = world.now_ns() / 1000 - times.released_at_us;
    world.run_for(AFTER_NS);
    let meter = &world.meter;
    Change {
        dirty,
        cached,
        stored: times.records,
        before_us: times.started_us - begun_us,
        held_us: times.collect_us + times.store_us,
        readmit_us,
        longest_us: CLASSES.map(|(class, _)| meter.class_latency_us(class).map_or(0.0, |of| of.1)),
        failed: CLASSES.map(|(class, _)| meter.class_failed(class)),
    }
}

/// All changes, with what they were changes of.
struct Changes {
    jobs: Vec<Job>,
    changes: Vec<Change>,
}

impl Changes {
    fn run(context: &Context) -> Changes {
        let mut jobs = Vec::new();
        for happens in Happens::ALL {
            for dirty_max_us in DIRTY_MAX_US {
                for cache_records in sizes(context) {
                    let job = |seed| Job {
                        happens,
                        dirty_max_us,
                        cache_records,
                        before_ns: BEFORE_NS,
                        seed,
                    };
                    jobs.extend(context.seeds().into_iter().map(job));
                }
            }
        }
        let changes = context.run_all(&jobs, Job::cost, |job| change(context, job));
        Changes { jobs, changes }
    }

    /// The mean of `value` over the repetitions of a case.
    fn mean(&self, case: (Happens, Option<u64>, u32), value: impl Fn(&Change) -> f64) -> f64 {
        let is_one = |job: &Job| (job.happens, job.dirty_max_us, job.cache_records) == case;
        let all = self.jobs.iter().zip(&self.changes).filter(|(job, _)| is_one(job));
        Estimate::of(&all.map(|(_, change)| value(change)).collect::<Vec<_>>()).mean
    }

    fn table(&self, context: &Context) -> Table {
        let title = format!(
            "What a change of a chain takes, in ms (modelled), profile {}; longest operations",
            PROFILE.name
        );
        let times = Change::TIMES.map(|(name, _)| name);
        let longest = CLASSES.map(|(_, name)| name);
        let names = ["what happens", "cleaning", "cached", "dirty", "stored"];
        let head = [&names[..], &times, &longest, &["failed"]].concat();
        let mut table = Table::new(title, &head).with_words(&[1]);
        for happens in Happens::ALL {
            for cache_records in sizes(context) {
                for dirty_max_us in DIRTY_MAX_US {
                    let mean = |value: &dyn Fn(&Change) -> f64| {
                        self.mean((happens, dirty_max_us, cache_records), value)
                    };
                    let count = |value: &dyn Fn(&Change) -> f64| format!("{:.0}", mean(value));
                    let mut cells = vec![happens.to_string(), period(dirty_max_us)];
                    cells.push(count(&|change| change.cached as f64));
                    cells.push(count(&|change| change.dirty as f64));
                    cells.push(count(&|change| change.stored as f64));
                    let ms = |us: f64| format!("{:.1}", us / 1e3);
                    cells.extend(Change::TIMES.map(|(_, us)| ms(mean(&|it| us(it) as f64))));
                    let longest = |at: usize| ms(mean(&|change| change.longest_us[at]));
                    cells.extend((0..CLASSES.len()).map(longest));
                    cells.push(count(&|change| change.failed.iter().sum::<u64>() as f64));
                    table.row(cells);
                }
            }
        }
        table
    }

    fn csv(&self, context: &Context) -> Csv {
        let mut csv = Csv::new(&[
            "kind",
            "profile",
            "scheme",
            "chains",
            "layers",
            "happens",
            "dirty_max_us",
            "cache_records",
            "cached",
            "dirty",
            "stored",
            "before_us",
            "held_us",
            "readmit_us",
            "total_us",
            "longest_cached_us",
            "longest_uncached_us",
            "longest_others_us",
            "failed_cached",
            "failed_uncached",
            "failed_others",
            "seed",
            "commit",
        ]);
        for (job, change) in self.jobs.iter().zip(&self.changes) {
            let case = job.case(context);
            let mut fields = vec![
                "modelled".to_owned(),
                PROFILE.name.to_owned(),
                Scheme::DistReach.to_string(),
                case.chains.to_string(),
                case.layers.to_string(),
                job.happens.to_string(),
                job.dirty_max_us.map_or(String::new(), |us| us.to_string()),
                job.cache_records.to_string(),
                change.cached.to_string(),
                change.dirty.to_string(),
                change.stored.to_string(),
            ];
            fields.extend(Change::TIMES.map(|(_, us)| us(change).to_string()));
            fields.extend(change.longest_us.map(|us| format!("{us:.1}")));
            fields.extend(change.failed.map(|failed| failed.to_string()));
            fields.extend([job.seed.to_string(), COMMIT.to_owned()]);
            csv.row(&fields);
        }
        csv
    }

    /// Until nothing is held any more, by what is cached: with cleaning dashed.
    fn figure(&self, context: &Context) -> Figure {
        let sizes = sizes(context);
        let line = |(ink, happens): (usize, Happens), dirty_max_us: Option<u64>| {
            let at = |(at, cache_records): (usize, &u32)| {
                let case = (happens, dirty_max_us, *cache_records);
                let mean =
                    self.mean(case, |change| (change.before_us + change.held_us) as f64 / 1e3);
                (at as f64, Estimate { mean, half_width: 0.0 })
            };
            let label = format!("{happens}, cleaning {}", period(dirty_max_us));
            let line = Series::line(label, ink, sizes.iter().enumerate().map(at).collect());
            match dirty_max_us {
                None => line,
                Some(_) => Series { style: Style::Dashed, ..line },
            }
        };
        let lines = Happens::ALL.into_iter().enumerate();
        let series = lines.flat_map(|of| DIRTY_MAX_US.map(|dirty_max_us| line(of, dirty_max_us)));
        Figure {
            name: "expS6".to_owned(),
            title: "Exp#S6 Until a change of a chain is over for its clients".to_owned(),
            x_label: "cached records",
            y_label: "time, ms",
            ticks: Ticks::steps(sizes.iter().map(u32::to_string)),
            is_logarithmic: true,
            series: series.collect(),
            origin: context.origin_of(PROFILE.name, context.effort.repetitions),
        }
    }
}

/// The sizes that are run.
fn sizes(context: &Context) -> Vec<u32> {
    let is_run = |size: &u32| !context.effort.is_quick || *size <= QUICK_MAX;
    SIZES.into_iter().filter(is_run).collect()
}

/// Runs it.
pub(crate) fn run(context: &Context) -> Finding {
    let changes = Changes::run(context);
    Finding {
        name: "S6",
        title: "Two layers of two switches: changes of a chain, with cleaning and without",
        paper: "Not in the paper.",
        differs: "All cached records are written once, then 2.5 s of workload A follow, at half of \
                  what the nodes do without a cache, since a planned change empties it. `dirty` is \
                  what no node has when the change begins. Where the owner dies, `before` is until \
                  that is noticed, and `held` until nodes have stored what the keeper has. Where \
                  an operator drains the owner, or a switch starts (in 10 ms) in the place of a \
                  keeper that died, nothing may be lost: `before` is until the cache is drained, \
                  which stores what is dirty, and clients have ended their writes; `held` is the \
                  change of epoch. The last columns are the longest operations that came during \
                  the change, and how many failed: writes that were under way when a switch died. \
                  Those of the other chain wait in the queues of nodes, which store records and \
                  mark offers meanwhile. There is no spare that could replace a switch at once: a \
                  chain goes on with its other switch. The model takes no time off an agent for \
                  what its sweeps look at.",
        remarks: Vec::new(),
        csv: vec![("expS6", changes.csv(context))],
        figures: vec![changes.figure(context)],
        tables: vec![changes.table(context)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::Effort;
    use indicatif::ProgressBar;
    use std::sync::Arc;

    fn changed(happens: Happens, dirty_max_us: Option<u64>) -> Change {
        let context = Context {
            profile: PROFILE.clone(),
            effort: Effort::QUICK,
            value_bytes: Case::default().value_bytes,
            seed: 1,
            threads: 1,
            progress: ProgressBar::hidden(),
            memo: Arc::default(),
        };
        let (cache_records, before_ns) = (300, 50_000_000);
        change(&context, &Job { happens, dirty_max_us, cache_records, before_ns, seed: 1 })
    }

    #[test]
    fn cleaning_leaves_little_to_store_and_planned_changes_fail_nothing() {
        for happens in Happens::ALL {
            let [without, with] =
                [None, Some(10_000)].map(|dirty_max_us| changed(happens, dirty_max_us));
            let is_planned = happens != Happens::OwnerDies;
            for change in [&without, &with] {
                let failed: u64 = change.failed.iter().sum();
                assert_eq!(failed > 0, !is_planned, "{happens}: {:?}", change.failed);
                assert!(change.held_us > 0 && change.readmit_us > 0, "{happens}");
                assert_eq!(change.stored > 0, !is_planned, "{happens}: {}", change.stored);
            }
            assert!(without.dirty * 100 >= without.cached * 95, "{happens}: {}", without.dirty);
            assert!(with.dirty * 2 < with.cached, "{happens}: {}", with.dirty);
        }
    }
}
