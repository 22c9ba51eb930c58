//! What nodes are told about keys.

use crate::control::{BATCH_MAX, EntryId, KeyedRecord, NamedCopy, NodeCommand};
use crate::storage::OfferId;
use std::collections::BTreeMap;
use switchback_wire::KeyHash;

/// What the heads of some keys' partitions are to do. It says nothing of nodes: which one heads a
/// partition is asked when a command is sent, and again whenever it is repeated.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Work {
    /// Store what these entries of the cache held.
    StoreEvicted(Vec<(EntryId, KeyedRecord)>),
    /// Store what these entries of the cache hold.
    StoreCleaned(Vec<(EntryId, KeyedRecord)>),
    /// Store what a recovery found.
    StoreRecovered(Vec<KeyedRecord>),
    /// These offers came to nothing, or their entries are gone.
    ClearOffers(Vec<(KeyHash, OfferId)>),
    /// These offers are known.
    HoldOffers(Vec<(KeyHash, OfferId)>),
    /// Offer these keys.
    OfferKeys(Vec<(KeyHash, Vec<u8>)>),
    /// Switches have these copies of entries.
    RegisterCopies(Vec<(EntryId, NamedCopy)>),
}

impl Work {
    /// The command that tells a head of it.
    pub(super) fn command(&self) -> NodeCommand {
        match self {
            Work::StoreEvicted(held) | Work::StoreCleaned(held) => {
                NodeCommand::Store(held.iter().map(|(_, record)| record.clone()).collect())
            }
            Work::StoreRecovered(records) => NodeCommand::Store(records.clone()),
            Work::ClearOffers(offers) => NodeCommand::ClearOffers(offers.clone()),
            Work::HoldOffers(offers) => NodeCommand::OffersHeld(offers.clone()),
            Work::OfferKeys(keys) => NodeCommand::OfferKeys(keys.clone()),
            Work::RegisterCopies(copies) => {
                NodeCommand::RegisterCopies(copies.iter().map(|(_, copy)| copy.clone()).collect())
            }
        }
    }

    /// Whether `node` heads the partition of each of its keys.
    pub(super) fn is_headed_by(&self, node: u16, head_of: impl Fn(&KeyHash) -> u16) -> bool {
        match self {
            Work::StoreEvicted(held) | Work::StoreCleaned(held) => {
                held.iter().all(|(_, record)| head_of(&record.hash) == node)
            }
            Work::StoreRecovered(records) => {
                records.iter().all(|record| head_of(&record.hash) == node)
            }
            Work::ClearOffers(offers) | Work::HoldOffers(offers) => {
                offers.iter().all(|(hash, _)| head_of(hash) == node)
            }
            Work::OfferKeys(keys) => keys.iter().all(|(hash, _)| head_of(hash) == node),
            Work::RegisterCopies(copies) => {
                copies.iter().all(|(_, copy)| head_of(&copy.hash) == node)
            }
        }
    }

    /// Its parts for each head, none of which is too much for a message.
    pub(super) fn by_head(self, head_of: impl Fn(&KeyHash) -> u16) -> Vec<(u16, Work)> {
        match self {
            Work::StoreEvicted(evicted) => {
                deal(evicted, |(_, record)| head_of(&record.hash), Work::StoreEvicted)
            }
            Work::StoreCleaned(held) => {
                deal(held, |(_, record)| head_of(&record.hash), Work::StoreCleaned)
            }
            Work::StoreRecovered(records) => {
                deal(records, |record| head_of(&record.hash), Work::StoreRecovered)
            }
            Work::ClearOffers(offers) => deal(offers, |(hash, _)| head_of(hash), Work::ClearOffers),
            Work::HoldOffers(offers) => deal(offers, |(hash, _)| head_of(hash), Work::HoldOffers),
            Work::OfferKeys(keys) => deal(keys, |(hash, _)| head_of(hash), Work::OfferKeys),
            Work::RegisterCopies(copies) => {
                deal(copies, |(_, copy)| head_of(&copy.hash), Work::RegisterCopies)
            }
        }
    }
}

fn deal<T>(
    items: Vec<T>,
    head: impl Fn(&T) -> u16,
    work: impl Fn(Vec<T>) -> Work,
) -> Vec<(u16, Work)> {
    let mut by_head: BTreeMap<u16, Vec<T>> = BTreeMap::new();
    for item in items {
        by_head.entry(head(&item)).or_default().push(item);
    }
    let mut parts = Vec::new();
    for (head, mut items) in by_head {
        while items.len() > BATCH_MAX {
            let rest = items.split_off(BATCH_MAX);
            parts.push((head, work(std::mem::replace(&mut items, rest))));
        }
        parts.push((head, work(items)));
    }
    parts
}
