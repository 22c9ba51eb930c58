//! Cleaning: what the owner's sweep finds dirty is stored at its node, then it counts as clean in
//! all switches of the chain, unless it has changed since (rule 26). So nodes lag behind by a
//! bounded time, and a recovery has less to store.

use super::cache::Stage;
use super::work::Work;
use super::{Chain, Context};
use crate::control::{EntryId, KeyedRecord, SwitchCommand};
use crate::storage::Record;

/// Stores under way at a time. Beyond this what is found dirty is left to the next sweep.
const CLEANINGS_MAX: usize = 256;

impl Chain {
    /// The owner has these records, which no node has.
    pub(super) fn found_dirty(&mut self, cx: &mut Context<'_>, records: Vec<(EntryId, Record)>) {
        if self.commands.cleanings() >= CLEANINGS_MAX {
            return;
        }
        // What is on its way out is stored by its eviction.
        let is_cached = |stage: Stage| matches!(stage, Stage::Cached | Stage::Candidate);
        let keyed = |(id, record): (EntryId, Record)| {
            let key = self.cache.get(id).filter(|key| is_cached(key.stage))?;
            let (hash, key) = (key.entry.hash, key.entry.key.clone());
            Some((id, KeyedRecord { hash, key, record }))
        };
        let dirty: Vec<_> = records.into_iter().filter_map(keyed).collect();
        if dirty.is_empty() {
            return;
        }
        if !cx.mechanisms.clean_after_store() {
            self.clean(cx, &dirty);
        }
        self.command_heads(cx, Work::StoreCleaned(dirty));
    }

    /// Their nodes have these records.
    pub(super) fn cleaned_stored(
        &mut self,
        cx: &mut Context<'_>,
        stored: &[(EntryId, KeyedRecord)],
    ) {
        self.cleaned += stored.len() as u64;
        self.clean(cx, stored);
    }

    fn clean(&mut self, cx: &mut Context<'_>, stored: &[(EntryId, KeyedRecord)]) {
        let versions = stored.iter().map(|(id, keyed)| (*id, keyed.record.seq)).collect();
        self.command_members(cx, SwitchCommand::Clean(versions));
    }
}
