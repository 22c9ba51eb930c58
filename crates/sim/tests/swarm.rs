//! The swarm: every seed is another rack with other faults and another load, and none may break a promise.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use switchback_sim::ablation::Ablation;
use switchback_sim::plan::{Plan, Scheme};
use switchback_sim::run::run;

/// Seeds of each scheme.
const SEEDS: u64 = 300;

fn no_seed_breaks_a_promise(scheme: Scheme) {
    let next = AtomicU64::new(0);
    let broken = Mutex::new(Vec::new());
    let operations = AtomicU64::new(0);
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
                    if outcome.violation.is_some() {
                        let replay = format!("switchback sim --seed {seed} --scheme {}", scheme.name());
                        broken.lock().expect("no thread panics").push(format!("{}{replay}", outcome.report));
                    }
                }
            });
        }
    });
    let broken = broken.into_inner().expect("no thread panicked");
    assert!(broken.is_empty(), "{} of {SEEDS} seeds\n{}", broken.len(), broken.join("\n\n"));
    // An idle swarm proves nothing.
    assert!(operations.into_inner() > SEEDS * 1_000);
}

#[test]
fn nocache_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::NoCache);
}

#[test]
fn netcache_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::NetCache);
}

#[test]
fn farreach_keeps_its_promises() {
    no_seed_breaks_a_promise(Scheme::FarReach);
}
