//! Runs of all schemes and repetitions, in turn.

use crate::cli::{Arrivals, LoadArgs, OPS_MAX, Outstanding, Rate, Shape};
use crate::generator::{Crash, LADDER, Learned, Measured, Plan, measure};
use crate::limit::{Limit, Placement, Policy, Room};
use crate::rack::{BenchRack, Links, RackFactory, RackOptions};
use crate::report::{
    Bar, Limits, Machine, Report, Run, RunContext, check_writable, describe, headline, say,
    summarize, text_of_run, text_of_summary,
};
use crate::workload::{Change, KeySpace, Preload, WorkloadSpec};
use anyhow::Context as _;
use std::collections::HashSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use switchback_core::controller::RecoveryTimes;
use switchback_wire::{KeyHash, Scheme};

/// Runs everything and reports it on stdout.
pub(crate) fn run(args: &LoadArgs, racks: &mut dyn RackFactory) -> anyhow::Result<ExitCode> {
    if matches!(args.rate, Some(Rate::OfLimit(_))) {
        anyhow::ensure!(
            args.node_capacity.is_some(),
            "--rate in percent of the limit needs --node-capacity"
        );
    }
    anyhow::ensure!(
        args.outstanding != Outstanding::Best || args.rate.is_none(),
        "--outstanding best is for a closed loop: with --rate nothing waits for a free place"
    );
    let schemes = args.schemes()?;
    anyhow::ensure!(
        args.links != Links::Processes || usize::from(args.layers) * usize::from(args.chains) == 1,
        "--links processes runs one switch; with --layers and --chains links are memory or udp"
    );
    let (shape, notes) = args.shape()?;
    args.json.as_deref().map(check_writable).transpose()?;
    let settled = LoadArgs {
        schemes: Some(schemes.clone()),
        zipf: Some(shape.zipf),
        key_bytes: Some(shape.key_bytes),
        value_bytes: Some(shape.value_bytes.clone()),
        ..args.clone()
    };
    let mut report = Report {
        tool: "switchback bench",
        version: env!("CARGO_PKG_VERSION"),
        kind: "measured",
        machine: Machine::here(),
        arguments: settled,
        notes,
        runs: Vec::new(),
        summary: Vec::new(),
    };
    say(&format!("{}\n", describe(args, &shape, &report.notes, &report.machine)))?;
    for repetition in 1..=args.repeat {
        for &scheme in &schemes {
            let run = run_once(args, &shape, scheme, repetition, racks, None);
            let (run, _) = run.with_context(|| format!("scheme {scheme}"))?;
            let headline = headline(&run, args.repeat);
            report.runs.push(run);
            report.summary = summarize(&report.runs);
            // Written after each run, so that a later failure loses none.
            if let Some(path) = &args.json {
                write_json(path, &report)?;
            }
            say(&headline)?;
        }
    }
    say("\n")?;
    for summary in &report.summary {
        let mut runs: Vec<_> =
            report.runs.iter().filter(|run| run.scheme == summary.scheme).collect();
        runs.sort_by(|a, b| a.throughput_ops.total_cmp(&b.throughput_ops));
        say(&format!("{}\n", text_of_run(runs[runs.len() / 2])))?;
    }
    say(&text_of_summary(&report.summary))?;
    let wrong = report.runs.iter().any(|run| run.mismatches.unwrap_or(0) > 0);
    Ok(if wrong { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn write_json(path: &Path, report: &Report) -> anyhow::Result<()> {
    let json = serde_json::to_vec_pretty(report).context("the report as JSON")?;
    std::fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))
}

/// The workload that the arguments ask for.
fn spec(args: &LoadArgs, shape: &Shape) -> WorkloadSpec {
    let change = args.change.map(|pattern| Change { pattern, keys: args.change_keys });
    WorkloadSpec {
        workload: args.workload,
        theta: shape.zipf,
        records: args.records,
        value_bytes: shape.value_bytes.clone(),
        change,
        seed: args.seed,
    }
}

/// The rack that the arguments ask for.
fn options(args: &LoadArgs, shape: &Shape) -> RackOptions {
    RackOptions {
        nodes: args.nodes,
        layers: args.layers,
        chains: args.chains,
        cache_records: args.cache_records,
        node_capacity_ops: args.node_capacity,
        links: args.links,
        clients: args.clients,
        lanes: args.outstanding.most(),
        value_bytes: shape.value_bytes.longest() as u32,
        snapshot_period_ms: (args.snapshot_period * 1000.0) as u64,
        seed: args.seed,
        data: args.data.clone(),
    }
}

/// Runs one scheme on a fresh rack. Returns the run, and the times of the recovery if its switch
/// crashed.
pub(crate) fn run_once(
    args: &LoadArgs,
    shape: &Shape,
    scheme: Scheme,
    repetition: u32,
    racks: &mut dyn RackFactory,
    crash: Option<Crash>,
) -> anyhow::Result<(Run, Option<RecoveryTimes>)> {
    let mut bar = Bar::new(format!("{:8}", scheme.name()), Duration::from_secs_f64(args.seconds));
    bar.say("starting");
    let mut rack = racks.start(scheme, &options(args, shape)).context("the rack does not start")?;
    // The rack is stopped even if the run failed, since stopping removes its data.
    let result = run_on(args, shape, scheme, repetition, rack.as_mut(), &mut bar, crash);
    let recovery = rack.recovery().filter(|_| crash.is_some());
    bar.say("stopping");
    let stopped = rack.stop().context("stopping the rack");
    bar.clear();
    let run = result?;
    stopped.map(|()| (run, recovery))
}

fn run_on(
    args: &LoadArgs,
    shape: &Shape,
    scheme: Scheme,
    repetition: u32,
    rack: &mut dyn BenchRack,
    bar: &mut Bar,
    crash: Option<Crash>,
) -> anyhow::Result<Run> {
    let spec = spec(args, shape);
    let keys = KeySpace::new(args.seed, shape.key_bytes as usize);
    let mut objections = Vec::new();
    bar.say("storing records");
    rack.load(Preload::new(keys, spec.lengths(), 0..spec.preloaded()))
        .context("cannot store the records")?;
    if args.preload && scheme.caches() {
        bar.say("filling the cache");
        let hottest = hottest(args, &spec, keys, rack);
        let wanted = hottest.len();
        let cached = rack.preload_cache(hottest).context("cannot fill the cache")?;
        if cached < wanted {
            objections.push(format!(
                "{cached} of the {wanted} hottest records were cached before the run"
            ));
        }
    }
    let placement = Placement::of_workload(&spec, 0, keys, &rack.map(), rack.hash_key());
    let rate_ops = rate_ops(args, scheme, &placement);
    anyhow::ensure!(
        rate_ops.is_none_or(|ops| ops <= OPS_MAX),
        "--rate in percent makes more than {OPS_MAX} operations a second here, where nodes serve next to nothing: say how many"
    );
    // A perfect learner's limit needs a cold cache, lasting popularity and capped nodes.
    let learns =
        scheme.caches() && !args.preload && args.change.is_none() && args.node_capacity.is_some();
    let learner_records = learns.then_some(args.cache_records as usize);
    let plan = Plan { crash, learner_records, ..plan(args, spec, keys, rate_ops) };
    let measured = measure(rack, &plan, &mut |progress| bar.update(progress))?;
    let placement = match measured.phase {
        0 => placement,
        phase => Placement::of_workload(&plan.spec, phase, keys, &rack.map(), rack.hash_key()),
    };
    let limits = limits(args, scheme, &placement, &measured);
    let context = RunContext {
        scheme,
        repetition,
        offered_ops: rate_ops,
        change_every: plan.change_every,
        objections,
    };
    Ok(Run::new(context, measured, limits))
}

/// The hottest keys of each chain of switches, as many as its cache holds, hottest first.
fn hottest(
    args: &LoadArgs,
    spec: &WorkloadSpec,
    keys: KeySpace,
    rack: &dyn BenchRack,
) -> Vec<Vec<u8>> {
    let (map, hash_key) = (rack.map(), rack.hash_key());
    let (chains, count) = (usize::from(args.chains), args.cache_records as usize);
    let mut room = Room::new(chains, count);
    let hottest = spec.hottest(u64::MAX).map(|index| keys.key(index));
    let cached = hottest.filter(|key| room.takes(map.of(hash_key.hash(key)).chain));
    cached.take(chains * count).collect()
}

fn plan(args: &LoadArgs, spec: WorkloadSpec, keys: KeySpace, rate_ops: Option<f64>) -> Plan {
    Plan {
        spec,
        keys,
        clients: args.clients,
        outstanding: args.outstanding.most(),
        ladder: if args.outstanding == Outstanding::Best { LADDER.to_vec() } else { Vec::new() },
        rate_ops,
        poisson: args.arrivals == Arrivals::Poisson,
        warmup: Duration::from_secs_f64(args.warmup),
        measured: Duration::from_secs_f64(args.seconds),
        change_every: args.change.map(|_| Duration::from_secs_f64(args.change_every)),
        crash: None,
        learner_records: None,
        verify: args.verify,
        node_capacity_ops: args.node_capacity,
    }
}

/// The limit of a scheme with the clients' number of outstanding requests.
fn closed_loop(args: &LoadArgs, scheme: Scheme, outstanding: u32) -> Policy {
    Policy::closed_loop(scheme, f64::from(outstanding) * f64::from(args.clients))
}

/// The rate of an open loop. A percentage is of the scheme's limit with the best content of the
/// cache.
fn rate_ops(args: &LoadArgs, scheme: Scheme, placement: &Placement) -> Option<f64> {
    match (args.rate?, args.node_capacity) {
        (Rate::Ops(ops), _) => Some(ops),
        (Rate::OfLimit(share), Some(capacity)) => {
            let (demand, records) = (args.workload.demand(), args.cache_records as usize);
            let policy = closed_loop(args, scheme, args.outstanding.most());
            Some(share * placement.limit_of_hottest(demand, policy, records).ops(capacity))
        }
        (Rate::OfLimit(_), None) => None,
    }
}

fn limits(args: &LoadArgs, scheme: Scheme, placement: &Placement, measured: &Measured) -> Limits {
    let (demand, records) = (args.workload.demand(), args.cache_records as usize);
    // Infinite if the cache answers all requests: then nodes are no limit.
    let ops = |limit: Limit| {
        args.node_capacity.map(|capacity| limit.ops(capacity)).filter(|ops| ops.is_finite())
    };
    let best = |policy| ops(placement.limit_of_hottest(demand, policy, records));
    let ideal = Policy::ideal(scheme);
    let of_content = |content: &HashSet<KeyHash>| ops(placement.limit(demand, ideal, content));
    let is_lasting = placement.has_lasting_content();
    let learned = |learned: &Learned| match is_lasting {
        true => of_content(&learned.content),
        false => ops(placement.limit_of_hits(demand, ideal, learned.hit_share)),
    };
    let queued = closed_loop(args, scheme, measured.outstanding);
    let queues = queued != ideal && args.rate.is_none();
    Limits {
        best: best(ideal),
        learned: measured.learned.as_ref().and_then(learned),
        cached: is_lasting.then(|| of_content(&measured.cached)).flatten(),
        closed_loop: queues.then(|| best(queued)).flatten(),
        cached_share: placement.share_of(&measured.cached),
    }
}

#[cfg(test)]
#[path = "runs_tests.rs"]
mod tests;
