//! The wall-clock load generator: client threads with a session each, closed or open loop.

mod client;
mod clock;
mod in_flight;
mod pacer;
mod recorder;

pub(crate) use recorder::{Recorder, STEP_NS};

use crate::rack::{BenchRack, ClientLinks, RackStatistics};
use crate::verify::{Verification, Verifier};
use crate::workload::{KeySpace, WorkloadSpec, is_cacheable, mix};
use anyhow::{Context as _, anyhow};
use client::{Client, ClientResults, RunState, STOPPED, Times};
use in_flight::InFlight;
use pacer::Pacer;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, SystemTime};
use switchback_core::client::{ClientConfig, Session, SessionStatistics};
use switchback_wire::KeyHash;

/// The parameters of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) spec: WorkloadSpec,
    pub(crate) keys: KeySpace,
    pub(crate) clients: u32,
    /// Operations that each client has outstanding at most.
    pub(crate) outstanding: u32,
    /// Fewer that are tried before it is measured, and the best of them taken; none to try: empty.
    pub(crate) ladder: Vec<u32>,
    /// Operations a second of all clients together; `None`: a closed loop.
    pub(crate) rate_ops: Option<f64>,
    pub(crate) poisson: bool,
    pub(crate) warmup: Duration,
    pub(crate) measured: Duration,
    pub(crate) change_every: Option<Duration>,
    /// The crash of the switch, if there is one.
    pub(crate) crash: Option<Crash>,
    /// Room of a perfect learner that counts all requests; `None`: there is no learner.
    pub(crate) learner_records: Option<usize>,
    pub(crate) verify: bool,
    pub(crate) node_capacity_ops: Option<f64>,
}

/// Operations outstanding at a client that are tried to find the best number.
pub(crate) const LADDER: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];
/// How long each of them is tried, of the measured time.
pub(crate) const TRY_SHARE: f64 = 0.125;
/// How long each goes on before that without being counted, of the same.
const SETTLE_SHARE: f64 = TRY_SHARE / 2.0;

/// What a number of outstanding operations did.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Tried {
    /// At each client.
    pub(crate) outstanding: u32,
    /// Operations a second.
    pub(crate) throughput_ops: f64,
}

/// A crash of the switch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Crash {
    /// Time since the measured time began.
    pub(crate) after: Duration,
    /// Time until its successor starts.
    pub(crate) restart: Duration,
}

/// The results of a perfect learner.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Learned {
    /// Its content at the end of the measured time.
    pub(crate) content: HashSet<KeyHash>,
    /// The share of the reads in the measured time whose records were in its content.
    pub(crate) hit_share: f64,
}

/// The results of a measurement.
pub(crate) struct Measured {
    pub(crate) recorder: Recorder,
    pub(crate) seconds: f64,
    /// Counters of the rack over the measured time.
    pub(crate) rack: RackStatistics,
    /// Counters of all sessions over the measured time.
    pub(crate) sent: SessionStatistics,
    pub(crate) unsent: u64,
    pub(crate) late: u64,
    pub(crate) verification: Option<Verification>,
    /// Records that the sweep at the end did not read.
    pub(crate) unswept: u64,
    /// Keys that were cached at the end of the measured time.
    pub(crate) cached: HashSet<KeyHash>,
    pub(crate) learned: Option<Learned>,
    /// Changes of popularity by then.
    pub(crate) phase: u32,
    /// Operations that each client had outstanding at most.
    pub(crate) outstanding: u32,
    pub(crate) tried: Vec<Tried>,
}

/// Progress of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Progress {
    Warmup,
    /// Time since the measured time began, and operations that have ended since.
    Measuring(Duration, u64),
    Finishing,
}

/// Time after the measured time in which overdue operations are still begun.
const DRAIN: Duration = Duration::from_secs(1);
/// Time limit of the sweep at the end.
const SWEEP: Duration = Duration::from_secs(60);
/// Period of progress reports.
const WATCH: Duration = Duration::from_millis(100);

/// Runs a workload on a rack whose records are stored.
pub(crate) fn measure(
    rack: &mut dyn BenchRack,
    plan: &Plan,
    progress: &mut dyn FnMut(Progress),
) -> anyhow::Result<Measured> {
    let verifier = plan
        .verify
        .then(|| Verifier::new(plan.spec.preloaded(), plan.spec.lengths(), plan.clients as u16));
    let shared = RunState::new(plan, verifier.as_ref());
    let links =
        (0..plan.clients).map(|number| rack.client(number)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut measured, results) = with_clients(&shared, plan, links, |clients| {
        watch(rack, plan, &shared, clients, progress)
    })?;
    for results in results {
        add(&mut measured, results);
    }
    if let Some(verifier) = &verifier {
        let verification = verifier.verification();
        measured.unswept = unswept(verifier, &verification);
        measured.verification = Some(verification);
    }
    Ok(measured)
}

/// Records that the sweep at the end did not read.
fn unswept(verifier: &Verifier, verification: &Verification) -> u64 {
    (verifier.touched(0, 1).count() as u64).saturating_sub(verification.swept)
}

/// Runs the clients while `watch` looks at them. Returns what it and they have found.
fn with_clients<T>(
    shared: &RunState<'_>,
    plan: &Plan,
    links: Vec<ClientLinks>,
    watch: impl FnOnce(&[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>]) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<ClientResults>)> {
    let (watched, results) = std::thread::scope(|scope| {
        let clients: Vec<_> = links
            .into_iter()
            .enumerate()
            .map(|(number, links)| spawn_client(scope, shared, plan, number as u32, links))
            .collect();
        let watched = watch(&clients);
        if watched.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let results: Vec<_> = clients.into_iter().map(join).collect();
        (watched, results)
    });
    // If a client failed, its error comes first: the others, and the thread that watches them,
    // ended because of it.
    let mut others = Vec::new();
    for result in results {
        match result {
            Err(error) if error.root_cause().to_string() != STOPPED => return Err(error),
            other => others.push(other),
        }
    }
    let watched = watched?;
    Ok((watched, others.into_iter().collect::<anyhow::Result<_>>()?))
}

fn spawn_client<'scope, 'a: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    shared: &'a RunState<'a>,
    plan: &'a Plan,
    number: u32,
    links: ClientLinks,
) -> ScopedJoinHandle<'scope, anyhow::Result<ClientResults>> {
    let work = move || {
        let now = shared.clock.at(shared.clock.now_ns());
        let unix_ns =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos()
                as u64;
        let session =
            Session::new(client_config(plan), unix_ns ^ links.id.rotate_left(32), links.id, now);
        let equip = |times: Times| equip(shared, plan, number, times);
        let result = Client::open(shared, number, session, links, equip).and_then(Client::run);
        if result.is_err() {
            shared.stop.store(true, Ordering::Relaxed);
        }
        result.with_context(|| format!("client {number}"))
    };
    std::thread::Builder::new()
        .name(format!("bench-{number}"))
        .spawn_scoped(scope, work)
        .expect("a process that can't start threads can't measure")
}

fn join(
    client: ScopedJoinHandle<'_, anyhow::Result<ClientResults>>,
) -> anyhow::Result<ClientResults> {
    client.join().unwrap_or_else(|_| Err(anyhow!("a client thread panicked")))
}

/// The operations and the pacer of client `number`.
fn equip<'a>(
    shared: &'a RunState<'a>,
    plan: &Plan,
    number: u32,
    times: Times,
) -> (InFlight<'a>, Option<Pacer>) {
    let requests = plan.spec.requests(number, plan.clients);
    let recorder = Recorder::new(times.from_ns, times.to_ns, plan.rate_ops.is_some());
    let in_flight = InFlight::new(plan.outstanding, number as u16 + 1, requests, recorder, shared);
    let pacer = plan.rate_ops.map(|rate_ops| {
        let ops = rate_ops / f64::from(plan.clients);
        Pacer::new(
            ops,
            plan.poisson,
            times.start_ns,
            mix(plan.spec.seed ^ mix(u64::from(number) | 1 << 32)),
        )
    });
    (in_flight, pacer)
}

/// The session's settings: the defaults, with longer timeouts if nodes are capped. A request that
/// waits in a node's queue must not be sent again, since that would add to the measured load.
fn client_config(plan: &Plan) -> ClientConfig {
    let ours = ClientConfig::default();
    // Packets of a session that may wait at nodes: fragments of large values are some of them.
    let is_small = is_cacheable(plan.spec.value_bytes.longest());
    let fragments = if is_small { 0 } else { ours.fragments_max };
    let outstanding =
        (f64::from(plan.outstanding) + f64::from(fragments)) * f64::from(plan.clients);
    let wait_us = plan.node_capacity_ops.map_or(0, |ops| (4e6 * outstanding / ops) as u64);
    ClientConfig {
        lanes: plan.outstanding,
        retry_us: (ours.retry_us.0.max(wait_us), ours.retry_us.1.max(2 * wait_us)),
        deadline_us: ours.deadline_us.max(8 * wait_us),
        ..ours
    }
}

/// Starts the clients, once they are ready, and takes the rack's counters at both ends of the
/// measured time.
fn watch(
    rack: &mut dyn BenchRack,
    plan: &Plan,
    shared: &RunState<'_>,
    clients: &[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>],
    progress: &mut dyn FnMut(Progress),
) -> anyhow::Result<Measured> {
    progress(Progress::Warmup);
    let times = start(plan, shared, clients)?;
    let tried = try_ladder(plan, shared, clients, times)?;
    wait_until(shared, clients, times.from_ns, &mut |_| ())?;
    let before = rack.statistics();
    let reads_before = shared.learner().map(|learner| learner.reads_and_hits());
    let began_ns = shared.clock.now_ns();
    let operations_before = shared.operations();
    let mut look = |now_ns| {
        let operations = shared.operations() - operations_before;
        progress(Progress::Measuring(Duration::from_nanos(now_ns - times.from_ns), operations));
    };
    if let Some(crash) = plan.crash {
        wait_until(shared, clients, times.from_ns + crash.after.as_nanos() as u64, &mut look)?;
        rack.replace_switch(crash.restart)?;
    }
    wait_until(shared, clients, times.to_ns, &mut look)?;
    let after = rack.statistics();
    // The rack's counters are read a little late at both ends; rates use the time between the two
    // reads.
    let scale =
        (times.to_ns - times.from_ns) as f64 / (shared.clock.now_ns() - began_ns).max(1) as f64;
    let cached = rack.cached().into_iter().collect();
    let learned =
        shared.learner().zip(reads_before).map(|(learner, (reads_before, hits_before))| {
            let (reads, hits) = learner.reads_and_hits();
            let hash = |index: &u64| rack.hash_key().hash(&plan.keys.key(*index));
            Learned {
                content: learner.content().iter().map(hash).collect(),
                hit_share: (hits - hits_before) as f64 / ((reads - reads_before) as f64).max(1.0),
            }
        });
    progress(Progress::Finishing);
    let phase = plan.change_every.map_or(0, |every| changes_within(plan.measured, every));
    Ok(Measured {
        recorder: Recorder::new(times.from_ns, times.to_ns, plan.rate_ops.is_some()),
        seconds: plan.measured.as_secs_f64(),
        rack: difference(&before, &after, scale),
        sent: SessionStatistics::default(),
        unsent: 0,
        late: 0,
        verification: None,
        unswept: 0,
        cached,
        learned,
        phase,
        outstanding: shared.outstanding.load(Ordering::Relaxed),
        tried,
    })
}

/// Waits until every client has a session, and starts them.
fn start(
    plan: &Plan,
    shared: &RunState<'_>,
    clients: &[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>],
) -> anyhow::Result<Times> {
    while shared.ready.load(Ordering::Acquire) < plan.clients {
        check(shared, clients)?;
        std::thread::sleep(Duration::from_millis(1));
    }
    let times = times(plan, shared.clock.now_ns());
    shared.times.set(times).expect("the times are set once");
    Ok(times)
}

/// Lets clients have each number of operations outstanding in turn, and leaves them the best.
fn try_ladder(
    plan: &Plan,
    shared: &RunState<'_>,
    clients: &[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>],
    times: Times,
) -> anyhow::Result<Vec<Tried>> {
    let mut until_ns = times.start_ns + plan.warmup.as_nanos() as u64;
    let mut tried = Vec::new();
    for &outstanding in &plan.ladder {
        wait_until(shared, clients, until_ns, &mut |_| ())?;
        shared.outstanding.store(outstanding, Ordering::Relaxed);
        until_ns += plan.measured.mul_f64(SETTLE_SHARE).as_nanos() as u64;
        wait_until(shared, clients, until_ns, &mut |_| ())?;
        let (begun_ns, before) = (shared.clock.now_ns(), shared.operations());
        until_ns += plan.measured.mul_f64(TRY_SHARE).as_nanos() as u64;
        wait_until(shared, clients, until_ns, &mut |_| ())?;
        let seconds = (shared.clock.now_ns() - begun_ns) as f64 / 1e9;
        let throughput_ops = (shared.operations() - before) as f64 / seconds;
        tried.push(Tried { outstanding, throughput_ops });
    }
    if let Some(best) = tried.iter().max_by(|a, b| a.throughput_ops.total_cmp(&b.throughput_ops)) {
        shared.outstanding.store(best.outstanding, Ordering::Relaxed);
    }
    Ok(tried)
}

fn times(plan: &Plan, start_ns: u64) -> Times {
    // After the tries the best number has as long to settle as each of them had.
    let (tries, settles) = (plan.ladder.len() as f64, (plan.ladder.len() + 1) as f64);
    let ladder =
        if plan.ladder.is_empty() { 0.0 } else { tries * TRY_SHARE + settles * SETTLE_SHARE };
    let from_ns = start_ns + (plan.warmup + plan.measured.mul_f64(ladder)).as_nanos() as u64;
    let to_ns = from_ns + plan.measured.as_nanos() as u64;
    let drain_ns = to_ns + DRAIN.as_nanos() as u64;
    let sweep_ns = if plan.verify { SWEEP.as_nanos() as u64 } else { 0 };
    // A second more than the session's own deadline, so that every operation ends.
    let end_ns = drain_ns + client_config(plan).deadline_us * 1000 + 1_000_000_000 + sweep_ns;
    Times { start_ns, from_ns, to_ns, drain_ns, end_ns }
}

/// Changes of popularity at `every`, `2 * every` and so on, strictly before the end.
pub(crate) fn changes_within(measured: Duration, every: Duration) -> u32 {
    ((measured.as_nanos().saturating_sub(1)) / every.as_nanos().max(1)) as u32
}

fn wait_until(
    shared: &RunState<'_>,
    clients: &[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>],
    until_ns: u64,
    look: &mut dyn FnMut(u64),
) -> anyhow::Result<()> {
    loop {
        let now_ns = shared.clock.now_ns();
        if now_ns >= until_ns {
            return Ok(());
        }
        check(shared, clients)?;
        look(now_ns);
        std::thread::sleep(WATCH.min(Duration::from_nanos(until_ns - now_ns)));
    }
}

fn check(
    shared: &RunState<'_>,
    clients: &[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>],
) -> anyhow::Result<()> {
    anyhow::ensure!(!shared.stop.load(Ordering::Relaxed), STOPPED);
    anyhow::ensure!(
        !clients.iter().any(ScopedJoinHandle::is_finished),
        "a client ended before its time"
    );
    Ok(())
}

fn difference(before: &RackStatistics, after: &RackStatistics, scale: f64) -> RackStatistics {
    let over =
        |before: u64, after: u64| (after.saturating_sub(before) as f64 * scale).round() as u64;
    let node_before = before.node_ops.iter().copied().chain(std::iter::repeat(0));
    RackStatistics {
        node_ops: after
            .node_ops
            .iter()
            .zip(node_before)
            .map(|(&after, before)| over(before, after))
            .collect(),
        hits: over(before.hits, after.hits),
        misses: over(before.misses, after.misses),
        conservative_reads: over(before.conservative_reads, after.conservative_reads),
        admissions: over(before.admissions, after.admissions),
        evictions: over(before.evictions, after.evictions),
        dropped: over(before.dropped, after.dropped),
        snapshots: over(before.snapshots, after.snapshots),
        snapshot_bytes: after.snapshot_bytes,
    }
}

fn add(measured: &mut Measured, results: ClientResults) {
    measured.recorder.add(&results.recorder);
    measured.unsent += results.unsent;
    measured.late += results.late;
    measured.sent.submitted += results.sent.submitted;
    measured.sent.retries += results.sent.retries;
    measured.sent.timed_out += results.sent.timed_out;
    measured.sent.indeterminate += results.sent.indeterminate;
    measured.sent.ignored_packets += results.sent.ignored_packets;
    measured.sent.epoch_changes += results.sent.epoch_changes;
}

#[cfg(test)]
mod tests;
