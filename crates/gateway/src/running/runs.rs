//! Commands of one connection on one key take effect in their order, so one waits for the other.
//! All that wait when the first one's turn comes have begun, and none is answered: reads that
//! follow each other may see the same, and unconditional writes that follow each other may happen
//! right before the last one, which no client can tell from now. Such a run is one request (request
//! coalescing).

use super::{Link, Running};
use crate::key_queues::NONE;
use crate::operation::OperationState;
use switchback_core::client::{Completion, SubmitError};

/// Operations of one request.
const RUN_MAX: u32 = 64;

impl Running {
    /// Submits an operation's next request, for those behind it, too, that can do with the same
    /// one.
    #[inline]
    pub(super) fn submit(&mut self, link: &mut Link, at: u32) -> Result<(), SubmitError> {
        let last = self.last_of_run(at);
        // Of writes the last one is what remains; of reads each is as good.
        link.session.submit(self.now, self.operations[last].request(), u64::from(at))?;
        self.operations[at].run_last = last;
        self.operations[at].state = OperationState::Submitted;
        let mut member = at;
        while member != last {
            member = self.operations[member].places[0].next;
            self.operations[member].state = OperationState::Submitted;
        }
        Ok(())
    }

    /// The last operation of the run that `at` is the first of.
    #[inline]
    fn last_of_run(&self, at: u32) -> u32 {
        let first = &self.operations[at];
        if first.places[0].next == NONE || !first.is_shareable() {
            return at;
        }
        let mut last = at;
        for _ in 1..RUN_MAX {
            let next = self.operations[last].places[0].next;
            if next == NONE || !self.operations[next].may_share_with(first) {
                break;
            }
            last = next;
        }
        last
    }

    /// Hands the outcome of a request to all operations that it was for, in their order.
    #[inline]
    pub(super) fn complete_run(&mut self, at: u32, completion: &Completion<'_>) {
        let last = self.operations[at].run_last;
        let mut member = at;
        loop {
            let next = self.operations[member].places[0].next;
            self.complete_one(member, completion);
            if member == last {
                return;
            }
            member = next;
        }
    }
}
