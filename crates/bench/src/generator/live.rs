//! A load that goes on until it is told to end, and says meanwhile what it has done.

use super::client::{ClientResults, Shared};
use super::{Plan, check, start, unswept, with_clients};
use crate::rack::ClientLinks;
use crate::verify::{Verdict, Verifier};
use std::sync::atomic::Ordering;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// What a load has done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Done {
    /// Operations that ended.
    pub(crate) operations: u64,
    /// Requests that were answered: in all, and by the cache.
    pub(crate) requests: u64,
    pub(crate) cached: u64,
    /// Operations that ended without an outcome: timed out, indeterminate, no space.
    pub(crate) failed: u64,
    /// What the verifier says of the answers.
    pub(crate) verdict: Verdict,
    /// Audits that ended, and the records that the last of them read.
    pub(crate) audits: u32,
    pub(crate) audited: u64,
    /// Records that the sweep at the end did not read; 0 until then.
    pub(crate) unswept: u64,
}

/// What a load is to do next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    GoOn,
    /// Reads every record that was touched, beside what it does anyway. The next one begins after
    /// the one that is under way, if there is one.
    Audit,
    /// Ends, and reads every record that was touched once more.
    End,
}

/// Runs a workload on a rack that has no records yet, for the plan's measured time at most. Every
/// answer is verified. `look` is asked some twenty times a second.
pub(crate) fn drive(
    links: Vec<ClientLinks>,
    plan: &Plan,
    look: &mut dyn FnMut(&Done) -> anyhow::Result<Order>,
) -> anyhow::Result<Done> {
    let verifier = Verifier::new(0, plan.spec.lengths(), plan.clients as u16);
    let shared = Shared::new(plan, Some(&verifier));
    with_clients(&shared, plan, links, |clients| watch(plan, &shared, &verifier, clients, look))?;
    let done = so_far(&shared, &verifier);
    Ok(Done { unswept: unswept(&verifier, &done.verdict), ..done })
}

fn watch(
    plan: &Plan,
    shared: &Shared<'_>,
    verifier: &Verifier,
    clients: &[ScopedJoinHandle<'_, anyhow::Result<ClientResults>>],
    look: &mut dyn FnMut(&Done) -> anyhow::Result<Order>,
) -> anyhow::Result<()> {
    let times = start(plan, shared, clients)?;
    while shared.clock.now_ns() < times.to_ns {
        check(shared, clients)?;
        match look(&so_far(shared, verifier))? {
            Order::GoOn => {}
            Order::Audit => {
                shared.audits.fetch_add(1, Ordering::Relaxed);
            }
            Order::End => {
                shared.enough.store(true, Ordering::Relaxed);
                return Ok(());
            }
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn so_far(shared: &Shared<'_>, verifier: &Verifier) -> Done {
    let audits = shared.tallies.iter().map(|tally| tally.audits.load(Ordering::Acquire)).min();
    Done {
        operations: shared.operations(),
        requests: shared.sum(|tally| &tally.requests),
        cached: shared.sum(|tally| &tally.cached),
        failed: shared.sum(|tally| &tally.failed),
        verdict: verifier.verdict(),
        audits: audits.unwrap_or(0),
        audited: shared.sum(|tally| &tally.audited),
        unswept: 0,
    }
}
