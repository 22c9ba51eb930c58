//! Runs on all cores. Every run is a world of its own, so results depend on neither their order nor their number.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs every job, on so many threads; results in the order of the jobs.
pub(crate) fn run<J: Sync, R: Send>(threads: usize, jobs: &[J], work: impl Fn(&J) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        while let Some(at) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|at| *at < jobs.len()) {
            let result = work(&jobs[at]);
            *results[at].lock().expect("a worker that panics ends the run") = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(worker);
        }
    });
    let taken = |result: Mutex<Option<R>>| result.into_inner().ok().flatten().expect("every job was done");
    results.into_iter().map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        assert_eq!(run(4, &jobs, |job| job * 2), jobs.iter().map(|job| job * 2).collect::<Vec<_>>());
        assert!(run(4, &[], |job: &u64| *job).is_empty());
    }
}
