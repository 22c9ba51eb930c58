//! Inspections: the switch is asked what it has of each cached key, since it alone knows how often
//! keys were counted and which records are dirty.
//!
//! One command asks for [`BATCH_MAX`] keys, and the next follows its answer, so that the agent does
//! other things in between. An inspection reads what a snapshot reads: all records.

use super::commands::Order;
use super::{Chain, Context, Phase};
use crate::control::{BATCH_MAX, EntryId, Inspected, SwitchCommand};
use crate::controller::directory::Directory;
use crate::controller::status::InspectedKeyStatus;
use crate::time::Now;

/// How long an inspection may take. What the switch hasn't told by then is unknown.
const INSPECTION_US_MAX: u64 = 5_000_000;

/// The inspection under way, if one is.
#[derive(Debug, Default)]
pub(super) struct Inspections {
    /// The number of the last one that began; 0: none yet.
    last: u64,
    under_way: Option<Asking>,
}

/// How far the inspection under way goes.
#[derive(Clone, Copy, Debug)]
struct Asking {
    epoch: u32,
    until_us: u64,
    /// Keys admitted later are not asked for.
    end: EntryId,
}

impl Inspections {
    /// When the one under way is given up.
    pub(super) fn deadline_us(&self) -> Option<u64> {
        self.under_way.map(|asking| asking.until_us)
    }
}

impl Chain {
    /// Begins an inspection, or joins the one under way. Returns its number.
    pub(in crate::controller) fn inspect(&mut self, cx: &mut Context<'_>) -> u64 {
        if self.inspections.under_way.is_none() {
            self.inspections.last += 1;
            self.inspections.under_way = Some(Asking {
                epoch: cx.directory.epoch(self.id),
                until_us: cx.now.in_us(INSPECTION_US_MAX),
                end: self.next_entry,
            });
            self.inspect_from(cx, 0);
        }
        self.inspections.last
    }

    /// Asks for the next keys, those from `first` on; the inspection ends if there are none.
    fn inspect_from(&mut self, cx: &mut Context<'_>, first: EntryId) {
        let Some(asking) = self.inspections.under_way else { return };
        let entries = self.cache.ids(first..asking.end, BATCH_MAX);
        if entries.is_empty() {
            self.inspections.under_way = None;
        } else {
            self.command_owner(cx, SwitchCommand::Inspect(entries));
        }
    }

    /// The switch told what it has of these.
    pub(super) fn inspected(
        &mut self,
        cx: &mut Context<'_>,
        asked: &[EntryId],
        told: Vec<Inspected>,
    ) {
        for inspected in told {
            self.cache.set_inspected(self.inspections.last, inspected);
        }
        if let Some(last) = asked.last() {
            self.inspect_from(cx, last + 1);
        }
    }

    /// Ends the inspection under way if it takes too long, or if no switch can answer.
    pub(super) fn inspect_on(&mut self, cx: &mut Context<'_>) {
        let Some(asking) = self.inspections.under_way else { return };
        let is_served = !matches!(self.phase, Phase::Waiting { .. } | Phase::Resyncing(_))
            && asking.epoch == cx.directory.epoch(self.id);
        if !is_served || cx.now.monotonic_us >= asking.until_us {
            self.inspections.under_way = None;
            let inspects =
                |order: &Order| matches!(order, Order::Switch(SwitchCommand::Inspect(_)));
            self.commands.withdraw(inspects);
        }
    }

    /// Whether the inspection of this number has ended.
    pub(in crate::controller) fn has_inspected(&self, number: u64) -> bool {
        self.inspections.last > number || self.inspections.under_way.is_none()
    }

    /// Every key that is or may be in the cache, with what the switch told since the inspection of
    /// this number began.
    pub(in crate::controller) fn inspected_keys(
        &self,
        directory: &Directory,
        now: Now,
        number: u64,
    ) -> impl Iterator<Item = InspectedKeyStatus> {
        self.cache.iter().map(move |cached| {
            let told = cached.inspected.filter(|(inspection, _)| *inspection >= number);
            InspectedKeyStatus {
                key: cached.status(directory),
                age_us: cached
                    .admitted_us
                    .map(|since_us| now.monotonic_us.saturating_sub(since_us)),
                switch_has: told.map(|(_, inspected)| inspected),
            }
        })
    }
}
