//! The modelled side of a case: the measured side's durations, in virtual time.

use super::cases::{Counterpart, Scale};
use super::{Figures, longest, steps_ms};
use crate::batch::Counters;
use crate::profile::Profile;
use crate::trial::{Bench, Effort};
use crate::world::{Drive, World};
use std::time::Duration;
use switchback_bench::report::recoveries;

/// The bucket in which `switchback-bench` counts throughput over time.
const STEP_NS: u64 = 100_000_000;

pub(super) fn run(
    counterpart: &Counterpart,
    scale: &Scale,
    profile: &Profile,
    seed: u64,
) -> Figures {
    let bench = Bench::new(scale.case(counterpart), profile, seed);
    let setup = bench.setup_with(counterpart.scheme, scale.outstanding);
    let mut world = bench.warm_up(setup, &Effort::QUICK);
    if let Some(rate_ops) = counterpart.rate_ops {
        world.drive(Drive::Script);
        world.finish_all();
        world.drive(Drive::Open(rate_ops));
    }
    world.run_for(ns(scale.warmup));
    if counterpart.rate_ops.is_some() {
        world.measure_latencies()
    } else {
        world.measure_series(STEP_NS)
    }
    let (counters, snapshots_before) = (Counters::of(&world), world.status().snapshots_completed);
    let measured = scale.measured_of(counterpart);
    follow(&mut world, counterpart, scale, measured);
    let found = bench.measured(counterpart.scheme, &world, &counters);
    let status = world.status();
    let latency_us = world.meter.latency_us().map(|(mean, median, p99)| [mean, median, p99]);
    let steps: Vec<u64> = world
        .meter
        .series_ops()
        .iter()
        .map(|ops| (ops * STEP_NS as f64 / 1e9).round() as u64)
        .collect();
    let changes =
        counterpart.change.map(|_| recoveries(&steps, measured.as_secs_f64(), scale.change_every));
    Figures {
        throughput_ops: found.throughput_ops,
        limit_ops: Some(found.limit_ops).filter(|limit_ops| limit_ops.is_finite()),
        latency_us,
        lateness_us: latency_us.map(|_| 0.0),
        back_s: longest(&changes.unwrap_or_default()),
        snapshots: (status.snapshots_completed - snapshots_before, status.snapshot_bytes),
        recovery_ms: status.recovery.filter(|_| counterpart.crashes).map(|times| steps_ms(&times)),
    }
}

/// Runs for the measured time, with the changes or the crash of the case.
fn follow(world: &mut World, counterpart: &Counterpart, scale: &Scale, measured: Duration) {
    if counterpart.crashes {
        world.run_for(ns(measured / 2));
        world.kill_switch(0);
        world.run_for(ns(measured - measured / 2));
    } else if counterpart.change.is_some() {
        let periods = (measured.as_nanos() / scale.change_every.as_nanos()) as u32;
        world.run_for(ns(scale.change_every));
        for phase in 1..periods {
            world.set_phase(phase);
            world.run_for(ns(scale.change_every));
        }
    } else {
        world.run_for(ns(measured));
    }
}

fn ns(time: Duration) -> u64 {
    time.as_nanos() as u64
}
