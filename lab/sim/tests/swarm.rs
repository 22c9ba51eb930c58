//! The swarm: every seed is another rack with other faults and another load, and none may break a
//! promise.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use switchback_sim::ablation::Ablation;
use switchback_sim::plan::Plan;
use switchback_sim::run::run;
use switchback_wire::Scheme;

/// Seeds of each scheme.
const SEEDS: u64 = 200;
/// Operations of searched histories that a run has at least, on average.
const SEARCHED_OPS_MIN: u64 = 300;

fn no_seed_breaks_a_promise(scheme: Scheme) {
    let next = AtomicU64::new(0);
    let broken = Mutex::new(Vec::new());
    let operations = AtomicU64::new(0);
    let [idle, searched_runs, searched_ops, decided, given_up] = [const { AtomicU64::new(0) }; 5];
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= SEEDS {
                        return;
                    }
                    let outcome = run(Plan::draw(seed, scheme, Ablation::NOTHING), false);
                    operations.fetch_add(outcome.operations, Ordering::Relaxed);
                    idle.fetch_add(outcome.statistics.idle, Ordering::Relaxed);
                    searched_runs
                        .fetch_add(u64::from(outcome.searches.decided > 0), Ordering::Relaxed);
                    searched_ops.fetch_add(outcome.searches.operations, Ordering::Relaxed);
                    decided.fetch_add(outcome.searches.decided, Ordering::Relaxed);
                    given_up.fetch_add(outcome.searches.given_up, Ordering::Relaxed);
                    if outcome.violation.is_some() {
                        let replay =
                            format!("switchback lab sim --seed {seed} --scheme {}", scheme.name());
                        broken
                            .lock()
                            .expect("no thread panics")
                            .push(format!("{}{replay}", outcome.report));
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("no thread panicked");
    assert!(broken.is_empty(), "{} of {SEEDS} seeds\n{}", broken.len(), broken.join("\n\n"));
    // An idle swarm proves nothing.
    assert!(operations.into_inner() > SEEDS * 1_000);
    let (idle, searched_runs) = (idle.into_inner(), searched_runs.into_inner());
    assert!(idle <= SEEDS / 100, "something was broken all the time in {idle} of {SEEDS} runs");
    // Nor do searches that don't take place.
    assert!(
        searched_runs >= SEEDS / 2,
        "only {searched_runs} of {SEEDS} runs had a history that was searched"
    );
    let searched_ops = searched_ops.into_inner();
    assert!(
        searched_ops >= SEEDS * SEARCHED_OPS_MIN,
        "only {searched_ops} operations were searched in {SEEDS} runs"
    );
    let (decided, given_up) = (decided.into_inner(), given_up.into_inner());
    assert!(
        given_up * 20 < decided + given_up,
        "{given_up} searches were given up, {decided} weren't"
    );
}

#[test]
fn nocache_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::NoCache);
}

#[test]
fn writearound_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::WriteAround);
}

#[test]
fn netcache_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::NetCache);
}

#[test]
fn distcache_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::DistCache);
}

#[test]
fn farreach_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::FarReach);
}

#[test]
fn distreach_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::DistReach);
}
