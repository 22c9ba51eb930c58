//! Taking stock after a restart of the controller: members list what they hold.
//!
//! An entry gets to the keepers before the owner and goes from them after it. So the owner's
//! entries are the cache's; what a keeper has beside was on its way in or out when the controller
//! before died. It is removed, and its node offers the key again, under an offer that still stands.

use super::commands::Order;
use super::{Chain, Context, Phase};
use crate::control::{BATCH_MAX, Entry, EntryId, Location, NodeCommand, Peer, SwitchCommand};
use crate::storage::OfferId;
use std::collections::BTreeSet;

/// What is known of the entries that members hold.
#[derive(Debug)]
pub(super) struct Resync {
    /// Members that haven't listed everything.
    listing: BTreeSet<u16>,
    /// What keepers hold.
    kept: BTreeSet<EntryId>,
}

impl Resync {
    /// Nothing is known of these members.
    pub(super) fn new(members: impl Iterator<Item = u16>) -> Resync {
        Resync { listing: members.collect(), kept: BTreeSet::new() }
    }
}

impl Chain {
    /// A member listed some of its entries, and says where to go on.
    pub(super) fn listed(
        &mut self,
        cx: &mut Context<'_>,
        switch: u16,
        entries: Vec<Entry>,
        next: Option<Location>,
    ) {
        let Phase::Resyncing(resync) = &mut self.phase else { return };
        let is_owner = cx.directory.owner(self.id) == Some(switch);
        for entry in entries {
            self.next_entry = self.next_entry.max(entry.id + 1);
            if is_owner {
                let partition = cx.directory.partition_of(&entry.hash);
                // Under which offer it is cached its node will say, when it is asked to offer
                // again.
                self.cache.adopt(entry, partition, OfferId::NONE);
            } else if resync.kept.len() < self.cache.slots() {
                resync.kept.insert(entry.id);
            }
        }
        if let Some(next) = next {
            self.command_switch(cx, switch, SwitchCommand::ListEntries(Some(next)));
            return;
        }
        resync.listing.remove(&switch);
        if !resync.listing.is_empty() {
            return;
        }
        let kept = std::mem::take(&mut resync.kept);
        let left: Vec<_> = kept.into_iter().filter(|id| self.cache.get(*id).is_none()).collect();
        for batch in left.chunks(BATCH_MAX) {
            self.command_keepers(cx, SwitchCommand::Remove(batch.to_vec()));
        }
    }

    /// Serves once every member has listed its entries and nothing is left beside the owner's.
    pub(super) fn resync_on(&mut self, cx: &mut Context<'_>) {
        let Phase::Resyncing(resync) = &self.phase else { return };
        let is_keeper = |to| cx.directory.keepers(self.id).any(|it| Peer::Switch(it) == to);
        let removes = |order: &Order| matches!(order, Order::Switch(SwitchCommand::Remove(_)));
        let is_removing = || self.commands.any(|to, order| is_keeper(to) && removes(order));
        if !resync.listing.is_empty() || is_removing() {
            return;
        }
        self.phase = Phase::Serving;
        for node in cx.directory.holders(self.id) {
            self.command_node(cx, *node, NodeCommand::OfferAgain);
        }
    }
}
