//! Work on CPUs of its own, timed, with its instructions counted where the machine can.

use anyhow::Context as _;
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// What a stretch of packets took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Took {
    pub(crate) ns: f64,
    /// A packet; none if the machine doesn't count.
    pub(crate) instructions: Option<f64>,
}

/// CPUs that this process may use.
pub(crate) fn cpus() -> Vec<usize> {
    let allowed = sched_getaffinity(None);
    let is_allowed = |cpu: &usize| allowed.as_ref().is_ok_and(|allowed| allowed.is_set(*cpu));
    (0..CpuSet::MAX_CPU).filter(is_allowed).collect()
}

/// Ties the calling thread to a CPU.
pub(crate) fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).with_context(|| format!("binding a thread to CPU {cpu}"))
}

fn counter() -> Option<Counter> {
    let mut builder = Builder::new().kind(Hardware::INSTRUCTIONS);
    builder.include_kernel();
    builder.build().ok()
}

/// Whether instructions can be counted here.
pub(crate) fn counts_instructions() -> bool {
    counter().is_some()
}

/// Does `work(index)` on each of the first CPUs at once. It says how long `packets` packets took;
/// the mean of the CPUs is what this says of one.
pub(crate) fn on_cpus(
    count: usize,
    packets: usize,
    work: impl Fn(usize) -> anyhow::Result<Duration> + Sync,
) -> anyhow::Result<Took> {
    let cpus = cpus();
    anyhow::ensure!(
        count <= cpus.len(),
        "{count} CPUs are asked for, and this process may use {}",
        cpus.len()
    );
    let start = Barrier::new(count);
    let one = |index: usize| {
        let ready = pin(cpus[index]);
        let mut counter = counter();
        start.wait();
        ready?;
        let started = counter.as_mut().map(Counter::enable);
        let took = work(index)?;
        let instructions = match (started, counter) {
            (Some(Ok(())), Some(mut counter)) => {
                counter.disable().and_then(|()| counter.read()).ok()
            }
            _ => None,
        };
        anyhow::Ok((took, instructions))
    };
    let all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|index| scope.spawn(move || one(index))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<anyhow::Result<Vec<_>>>()
    })?;
    let each = (count * packets) as f64;
    let ns = all.iter().map(|(took, _)| took.as_nanos() as f64).sum::<f64>() / each;
    let instructions =
        all.iter().map(|(_, count)| *count).sum::<Option<u64>>().map(|sum| sum as f64 / each);
    Ok(Took { ns, instructions })
}

/// What the calling thread has had of a CPU so far.
pub(crate) fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The time of a piece of work.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}
