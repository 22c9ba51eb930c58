//! A pool of threads for runs. Every run has its own world, so results don't depend on the order of
//! runs or the number of threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs every job on `threads` threads. The costliest begin first, so that all threads end at
/// nearly the same time (longest processing time first, Graham 1969). Results are in the order of
/// the jobs.
pub(crate) fn run<J: Sync, R: Send>(
    threads: usize,
    jobs: &[J],
    cost: impl Fn(&J) -> u64,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(cost(&jobs[*at])));
    let results: Vec<Mutex<Option<R>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        while let Some(&at) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = work(&jobs[at]);
            *results[at].lock().expect("a panic of a worker ends the run") = Some(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, jobs.len().max(1)) {
            scope.spawn(worker);
        }
    });
    let result_of = |result: Mutex<Option<R>>| {
        result.into_inner().ok().flatten().expect(
            "every job has a \
            result",
        )
    };
    results.into_iter().map(result_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_jobs() {
        let jobs: Vec<u64> = (0..100).collect();
        assert_eq!(
            run(4, &jobs, |job| job % 7, |job| job * 2),
            jobs.iter().map(|job| job * 2).collect::<Vec<_>>()
        );
        assert!(run(4, &[], |_| 0, |job: &u64| *job).is_empty());
    }

    #[test]
    fn the_costliest_job_begins_first() {
        let begun = Mutex::new(Vec::new());
        run(1, &[2, 9, 4, 9], |job| *job, |job| begun.lock().unwrap().push(*job));
        assert_eq!(begun.into_inner().unwrap(), [9, 9, 4, 2]);
    }
}
